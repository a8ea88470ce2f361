//! A gzip decoder that enforces the size limit while it decompresses.
//!
//! A body is one member or several in sequence (RFC 1952, section 2.2). Anything else after a
//! member refuses the whole body.

use flate2::bufread::MultiGzDecoder;

use super::decompress::{check_compressed, read_decompressed};
use super::{DecodeError, DecodeLimits};

/// The reason why a body is not valid gzip: a truncated member, a wrong checksum, or other bytes
/// after a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not valid gzip: {0}")]
pub struct GzipError(String);

/// Decompresses `body` into `out`.
///
/// # Errors
/// [`DecodeError::Empty`]; [`DecodeError::TooLarge`] at the first byte beyond the limit;
/// [`DecodeError::OutOfMemory`]; [`GzipError`].
pub fn decompress<'a>(
    body: &[u8],
    limits: &DecodeLimits,
    out: &'a mut Vec<u8>,
) -> Result<&'a [u8], DecodeError> {
    check_compressed(body, limits)?;
    let decoder = MultiGzDecoder::new(body);
    let likely = likely_bytes(body);
    read_decompressed(decoder, limits, likely, out, |error| GzipError(error.to_string()).into())
}

/// Returns the length that the end of a body states, which is that of its last member: wrong if
/// there are several, or if the sender lies. It is at most what a body of this length can contain.
fn likely_bytes(body: &[u8]) -> usize {
    /// The most bytes per compressed byte (RFC 1951: a match of 258 bytes in two bits).
    const RATIO_MAX: usize = 1_032;
    let stated = body.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    usize::try_from(stated).unwrap_or(usize::MAX).min(body.len().saturating_mul(RATIO_MAX))
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

    fn gunzip(body: &[u8], allowed: usize) -> Result<Vec<u8>, DecodeError> {
        let limits = DecodeLimits { decompressed_bytes_max: allowed, ..DecodeLimits::default() };
        decompress(body, &limits, &mut Vec::new()).map(<[u8]>::to_vec)
    }

    #[test]
    fn members_are_decoded_in_sequence_and_nothing_else_may_follow() {
        let two = [member(b"up 1\n"), member(b"up 2\n")].concat();
        assert_eq!(gunzip(&two, 10), Ok(b"up 1\nup 2\n".to_vec()));
        for garbage in [&b"x"[..], b"\0", b"\x1f\x8b", &[0; 512]] {
            let found = gunzip(&[&two, garbage].concat(), 10);
            assert!(matches!(found, Err(DecodeError::Gzip(_))), "{garbage:02x?}: {found:?}");
        }
    }

    #[test]
    fn a_bomb_is_refused_at_the_first_byte_over_the_limit() {
        let bomb = member(&vec![0; 1_000_000]);
        assert!(bomb.len() < 10_000);
        assert_eq!(gunzip(&bomb, 1_000_000).map(|bytes| bytes.len()), Ok(1_000_000));
        for allowed in [0, 1, 999_999] {
            let limits = DecodeLimits { decompressed_bytes_max: allowed, ..DecodeLimits::default() };
            let mut out = Vec::new();
            let found = decompress(&bomb, &limits, &mut out).expect_err("too large");
            assert_eq!(
                found.to_string(),
                format!(
                    "the request has {} bytes after decompression; at most {allowed} are allowed",
                    allowed + 1
                )
            );
            assert!(out.capacity() <= 4 * (allowed + (16 << 10)), "{}", out.capacity());
        }
        let many = member(b"").repeat(1_000);
        assert_eq!(gunzip(&many, 10), Err(DecodeError::Empty));
        let limits = DecodeLimits { compressed_bytes_max: 3, ..DecodeLimits::default() };
        let found = decompress(&bomb, &limits, &mut Vec::new()).expect_err("too large").is_size();
        assert!(found);
    }

    /// A decoder that clears its spare capacity at each short read turns a body of 8 MiB into
    /// terabytes of writes, and this test would take minutes.
    #[test]
    fn many_small_members_after_a_large_one_cost_only_their_own_bytes() {
        let small = member(b"1").repeat(4_000);
        let body = [member(&vec![b'0'; 4 << 20]), small].concat();
        let text = gunzip(&body, (4 << 20) + 4_000).expect("just enough");
        assert!(text.len() == (4 << 20) + 4_000 && text.ends_with(&[b'1'; 4_000]) && text.starts_with(b"00"));
        assert!(gunzip(&body, (4 << 20) + 3_999).expect_err("one too many").is_size());
    }

    #[test]
    fn a_wrong_length_at_the_end_of_a_body_changes_no_result() {
        let text = b"metric 1\n".repeat(5_000);
        let mut lying = member(&text);
        let end = lying.len() - 4;
        for stated in [0, 1, 44_999, 45_001, u32::MAX] {
            lying[end..].copy_from_slice(&stated.to_le_bytes());
            let mut out = Vec::new();
            let found = decompress(&lying, &DecodeLimits::default(), &mut out);
            assert!(matches!(found, Err(DecodeError::Gzip(_))), "{stated}: {found:?}");
            assert!(out.capacity() <= lying.len() * 1_032 + 1, "{stated}: {}", out.capacity());
        }
        for last in [&b""[..], b"x", &b"long ".repeat(100_000)] {
            let body = [member(&text), member(last)].concat();
            assert_eq!(gunzip(&body, 1 << 20), Ok([&text, last].concat()));
        }
    }

    #[test]
    fn truncated_damaged_and_foreign_bodies_are_refused() {
        let whole = member(&b"metric 1\n".repeat(50));
        for length in 1..whole.len() {
            assert!(matches!(gunzip(&whole[..length], 1_000), Err(DecodeError::Gzip(_))), "{length}");
        }
        let mut wrong = whole.clone();
        let last = wrong.len() - 6;
        wrong[last] ^= 1;
        assert!(matches!(gunzip(&wrong, 1_000), Err(DecodeError::Gzip(_))), "its checksum");
        assert!(matches!(gunzip(b"up 1\n", 1_000), Err(DecodeError::Gzip(_))));
        assert_eq!(gunzip(b"", 1_000), Err(DecodeError::Empty));
    }

    proptest! {
        #[test]
        fn compressed_members_round_trip(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..3_000), 1..4)) {
            let body: Vec<u8> = parts.iter().flat_map(|part| member(part)).collect();
            let all = parts.concat();
            prop_assert_eq!(gunzip(&body, all.len()), Ok(all));
        }

        #[test]
        fn arbitrary_bytes_never_panic_gzip(bytes in prop::collection::vec(any::<u8>(), 0..300), has_header in any::<bool>()) {
            let body = if has_header { [vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0], bytes].concat() } else { bytes };
            let _ = gunzip(&body, 100);
        }
    }
}
