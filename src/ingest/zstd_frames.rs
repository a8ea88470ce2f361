//! A zstd decoder that enforces the size limit while it decompresses.
//!
//! A body is one frame or several in sequence. A frame may ask for a window of at most 8 MiB, which
//! every encoder of a body of that size respects, so a small body cannot make the decoder allocate
//! more than that and its output.

use zstd::stream::read::Decoder;

use super::decompress::{check_compressed, read_decompressed};
use super::{DecodeError, DecodeLimits};

/// The binary logarithm of the largest window of a frame.
const WINDOW_LOG_MAX: u32 = 23;

/// The reason why a body is not valid zstd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not valid zstd: {0}")]
pub struct ZstdError(String);

/// Decompresses `body` into `out`.
///
/// # Errors
/// [`DecodeError::Empty`]; [`DecodeError::TooLarge`] at the first byte beyond the limit;
/// [`DecodeError::OutOfMemory`]; [`ZstdError`].
pub(super) fn decompress<'a>(
    body: &[u8],
    limits: &DecodeLimits,
    out: &'a mut Vec<u8>,
) -> Result<&'a [u8], DecodeError> {
    check_compressed(body, limits)?;
    let invalid = |error: std::io::Error| ZstdError(error.to_string());
    let mut decoder = Decoder::with_buffer(body).map_err(invalid)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(invalid)?;
    let message = read_decompressed(decoder, limits, 0, out, |error| invalid(error).into())?;
    super::check_memory(message.len())?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decompressed(body: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let limits = DecodeLimits {
            compressed_bytes_max: 4_096,
            decompressed_bytes_max: 1 << 20,
            ..DecodeLimits::default()
        };
        let mut out = Vec::new();
        decompress(body, &limits, &mut out).map(<[u8]>::to_vec)
    }

    fn frame(bytes: &[u8]) -> Vec<u8> {
        zstd::bulk::compress(bytes, 3).expect("memory")
    }

    #[test]
    fn frames_in_sequence_are_one_body() {
        assert_eq!(decompressed(&[frame(b"one "), frame(b"two")].concat()), Ok(b"one two".to_vec()));
        assert_eq!(decompressed(b""), Err(DecodeError::Empty));
        assert_eq!(decompressed(&frame(b"")), Err(DecodeError::Empty));
    }

    #[test]
    fn a_bomb_is_refused_at_the_limit() {
        let bomb = frame(&vec![0; 64 << 20]);
        assert!(bomb.len() < 4_096);
        assert!(matches!(decompressed(&bomb), Err(DecodeError::TooLarge { found: 1_048_577, .. })));
        assert!(matches!(decompressed(&[0; 4_097]), Err(DecodeError::TooLarge { what: "bytes", .. })));
    }

    /// A frame of 20 bytes may declare a window of 2 GiB.
    #[test]
    fn a_frame_with_a_large_window_is_refused() {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8];
        frame.extend([1, 0, 0, 0, 0, 0]);
        assert!(matches!(decompressed(&frame), Err(DecodeError::Zstd(_))));
    }

    proptest! {
        #[test]
        fn no_body_panics_and_valid_ones_are_read(bytes: Vec<u8>, cut in 0_usize..200, at in 0_usize..200, bit in 0_u8..8) {
            let mut body = frame(&bytes);
            if !bytes.is_empty() {
                prop_assert_eq!(decompressed(&body), Ok(bytes));
            }
            if let Some(byte) = body.get_mut(at) {
                *byte ^= 1 << bit;
            }
            body.truncate(cut);
            let _ = decompressed(&body);
        }
    }
}
