//! Zeros in files that are allocated in advance.

/// Length of the pieces in which the end of the data is searched, in bytes.
const PIECE_BYTES: usize = 4_096;

/// Returns whether all bytes are zero, as for an empty slice.
pub(crate) fn are_zeros(bytes: &[u8]) -> bool {
    // The first byte is zero and each byte equals the next one. Comparing two slices is one call of
    // `memcmp`, which is fast in builds without optimisation, too.
    match bytes {
        [] => true,
        [first, rest @ ..] => *first == 0 && Some(rest) == bytes.get(..rest.len()),
    }
}

/// Returns the length of `bytes` without the zeros at its end.
pub(crate) fn written_bytes(bytes: &[u8]) -> usize {
    for (index, piece) in bytes.chunks(PIECE_BYTES).enumerate().rev() {
        if !are_zeros(piece) {
            let last = piece.iter().rposition(|byte| *byte != 0).unwrap_or(0);
            return index * PIECE_BYTES + last + 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_byte_that_is_not_zero_is_found_wherever_it_is() {
        for length in [0, 1, 2, 31, 4_095, 4_096, 4_097, 9_000] {
            let mut bytes = vec![0; length];
            assert!(are_zeros(&bytes), "{length}");
            assert_eq!(written_bytes(&bytes), 0, "{length}");
            for at in 0..length {
                bytes[at] = 1;
                assert!(!are_zeros(&bytes), "{at} of {length}");
                assert_eq!(written_bytes(&bytes), at + 1, "of {length}");
                bytes[at] = 0;
            }
        }
    }

    proptest! {
        #[test]
        fn the_end_of_arbitrary_bytes_is_that_of_a_search_by_byte(start in prop::collection::vec(0_u8..3, 0..40), zeros in 0_usize..9_000) {
            let mut bytes = start;
            bytes.resize(bytes.len() + zeros, 0);
            let last = bytes.iter().rposition(|byte| *byte != 0);
            prop_assert_eq!(written_bytes(&bytes), last.map_or(0, |last| last + 1));
            prop_assert_eq!(are_zeros(&bytes), last.is_none());
        }
    }
}
