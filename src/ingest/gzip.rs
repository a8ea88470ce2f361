//! gzip, undone within a bound that holds while it is undone.
//!
//! A body is one member or several, one after the other (RFC 1952, section 2.2); what comes after the last and is none is
//! refused with everything else.

use std::io::{ErrorKind, Read as _};

use flate2::bufread::MultiGzDecoder;

use super::{DecodeError, Limits};
use crate::model::OutOfMemory;

/// Why bytes are no gzip: a member cut short, a checksum that does not hold, something else behind it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is no valid gzip: {0}")]
pub struct GzipError(String);

/// The decompressed `body`, which ends up in `out`.
///
/// # Errors
/// [`DecodeError::Empty`], [`DecodeError::TooLarge`] as soon as there is a byte too much, and [`GzipError`].
pub fn decompress<'a>(body: &[u8], limits: &Limits, out: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
    let (found, allowed) = (body.len(), limits.compressed_bytes_max);
    if found == 0 {
        return Err(DecodeError::Empty);
    }
    if found > allowed {
        return Err(DecodeError::TooLarge { what: "bytes", found, allowed });
    }
    out.clear();
    let allowed = limits.decompressed_bytes_max;
    // One more than is allowed, so that too many are told from just enough.
    let most = u64::try_from(allowed).unwrap_or(u64::MAX).saturating_add(1);
    let read = MultiGzDecoder::new(body).take(most).read_to_end(out);
    read.map_err(|error| match error.kind() {
        // The buffer could not grow: nothing is wrong with the body.
        ErrorKind::OutOfMemory => DecodeError::from(OutOfMemory { bytes: out.capacity() as u64 }),
        _ => GzipError(error.to_string()).into(),
    })?;
    if out.len() > allowed {
        let (what, found) = ("bytes after decompression", out.len());
        return Err(DecodeError::TooLarge { what, found, allowed });
    }
    if out.is_empty() {
        return Err(DecodeError::Empty);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn member(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    fn undo(body: &[u8], allowed: usize) -> Result<Vec<u8>, DecodeError> {
        let limits = Limits { decompressed_bytes_max: allowed, ..Limits::default() };
        decompress(body, &limits, &mut Vec::new()).map(<[u8]>::to_vec)
    }

    #[test]
    fn members_are_read_one_after_the_other_and_nothing_may_follow_them() {
        let two = [member(b"up 1\n"), member(b"up 2\n")].concat();
        assert_eq!(undo(&two, 10), Ok(b"up 1\nup 2\n".to_vec()));
        for garbage in [&b"x"[..], b"\0", b"\x1f\x8b", &[0; 512]] {
            let found = undo(&[&two, garbage].concat(), 10);
            assert!(matches!(found, Err(DecodeError::Gzip(_))), "{garbage:02x?}: {found:?}");
        }
    }

    #[test]
    fn a_bomb_is_refused_at_the_first_byte_too_much() {
        let bomb = member(&vec![0; 1_000_000]);
        assert!(bomb.len() < 10_000);
        assert_eq!(undo(&bomb, 1_000_000).map(|bytes| bytes.len()), Ok(1_000_000));
        for allowed in [0, 1, 999_999] {
            let limits = Limits { decompressed_bytes_max: allowed, ..Limits::default() };
            let mut out = Vec::new();
            let found = decompress(&bomb, &limits, &mut out).expect_err("too large");
            assert_eq!(
                found.to_string(),
                format!(
                    "the request has {} bytes after decompression, more than the {allowed} that are allowed",
                    allowed + 1
                )
            );
            assert!(out.capacity() <= 4 * (allowed + (16 << 10)), "{}", out.capacity());
        }
        let many = member(b"").repeat(1_000);
        assert_eq!(undo(&many, 10), Err(DecodeError::Empty));
        let limits = Limits { compressed_bytes_max: 3, ..Limits::default() };
        let found = decompress(&bomb, &limits, &mut Vec::new()).expect_err("too large").is_size();
        assert!(found);
    }

    /// Every short read once cleared as much again as there was: a body of 8 MiB could cost terabytes of writes, and this
    /// test minutes.
    #[test]
    fn many_small_members_behind_a_large_one_cost_their_own_bytes() {
        let small = member(b"1").repeat(4_000);
        let body = [member(&vec![b'0'; 4 << 20]), small].concat();
        let text = undo(&body, (4 << 20) + 4_000).expect("just enough");
        assert!(text.len() == (4 << 20) + 4_000 && text.ends_with(&[b'1'; 4_000]) && text.starts_with(b"00"));
        assert!(undo(&body, (4 << 20) + 3_999).expect_err("one too many").is_size());
    }

    #[test]
    fn what_is_cut_short_damaged_or_something_else_is_refused() {
        let whole = member(&b"metric 1\n".repeat(50));
        for length in 1..whole.len() {
            assert!(matches!(undo(&whole[..length], 1_000), Err(DecodeError::Gzip(_))), "{length}");
        }
        let mut wrong = whole.clone();
        let last = wrong.len() - 6;
        wrong[last] ^= 1;
        assert!(matches!(undo(&wrong, 1_000), Err(DecodeError::Gzip(_))), "its checksum");
        assert!(matches!(undo(b"up 1\n", 1_000), Err(DecodeError::Gzip(_))));
        assert_eq!(undo(b"", 1_000), Err(DecodeError::Empty));
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..3_000), 1..4)) {
            let body: Vec<u8> = parts.iter().flat_map(|part| member(part)).collect();
            let all = parts.concat();
            prop_assert_eq!(undo(&body, all.len()), Ok(all));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), behind in any::<bool>()) {
            let body = if behind { [vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0], bytes].concat() } else { bytes };
            let _ = undo(&body, 100);
        }
    }
}
