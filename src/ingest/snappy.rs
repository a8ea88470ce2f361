//! A decoder of the snappy block format that checks all sizes before it allocates.
//!
//! A block is the decompressed length as a varint of at most 32 bits, followed by literals and
//! copies. A declared length is accepted only if a block of that many bytes could produce it.
//! Source: <https://github.com/google/snappy/blob/main/format_description.txt>.

mod branchless;

use super::decompress::check_compressed;
use super::{DecodeError, DecodeLimits};
use crate::model::try_reserve_exact;

/// The reason why bytes are not a snappy block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnappyError {
    /// The header declares more bytes than the block can produce.
    #[error(
        "the block declares {declared} bytes, but {sent} bytes of snappy decompress to at most {possible}"
    )]
    Declared {
        /// The declared length.
        declared: usize,
        /// The length of the block.
        sent: usize,
        /// The most bytes that a block of this length can produce.
        possible: usize,
    },
    /// Any other error; often the streaming format, another compression, or a truncated body.
    #[error("the body is not a valid block: {0}")]
    Block(String),
}

/// The largest compression ratio, rounded up: a copy of 3 bytes produces 64.
const RATIO_MAX: usize = 22;

/// Decompresses `block` to the start of `out`; bytes after the result are undefined.
///
/// # Errors
/// [`DecodeError::Empty`]; [`DecodeError::TooLarge`] before anything is allocated;
/// [`DecodeError::OutOfMemory`]; [`SnappyError`].
pub(super) fn decompress<'a>(
    block: &[u8],
    limits: &DecodeLimits,
    out: &'a mut Vec<u8>,
) -> Result<&'a [u8], DecodeError> {
    check_compressed(block, limits)?;
    let sent = block.len();
    let broken = |error: snap::Error| SnappyError::Block(error.to_string());
    let declared = snap::raw::decompress_len(block).map_err(broken)?;
    let allowed = limits.decompressed_bytes_max;
    if declared > allowed {
        return Err(DecodeError::TooLarge { what: "bytes after decompression", found: declared, allowed });
    }
    let possible = sent.saturating_mul(RATIO_MAX);
    if declared > possible {
        return Err(SnappyError::Declared { declared, sent, possible }.into());
    }
    // Blocks that are too large for the work buffer, and invalid ones, are left to the `snap`
    // crate, which also reports the error.
    if decode_branchless(block, declared, out).is_none() {
        // Bytes of an earlier block need no zeroing: they are overwritten or never read.
        if out.len() < declared {
            let more = declared.saturating_sub(out.len());
            try_reserve_exact(out, more)?;
            out.resize(declared, 0);
        }
        let whole = out.get_mut(..declared).unwrap_or_default();
        snap::raw::Decoder::new().decompress(block, whole).map_err(broken)?;
    }
    super::check_memory(declared)?;
    Ok(out.get(..declared).unwrap_or_default())
}

/// Decodes the block in the work buffer of [`branchless`]; `None` if it is invalid or too large.
fn decode_branchless(block: &[u8], declared: usize, out: &mut Vec<u8>) -> Option<()> {
    let length_ends = block.iter().position(|byte| *byte < 0x80)?;
    branchless::decode(block, length_ends.checked_add(1)?, declared, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decompressed(block: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let mut out = Vec::new();
        decompress(block, &DecodeLimits::default(), &mut out).map(<[u8]>::to_vec)
    }

    fn varint(mut value: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
            value >>= 7;
        }
        bytes.push(u8::try_from(value).expect("seven bits"));
        bytes
    }

    #[test]
    fn a_declared_length_is_checked_before_anything_is_allocated() {
        let mut out = Vec::new();
        for declared in [65 << 20, u32::MAX] {
            let found = decompress(&varint(declared), &DecodeLimits::default(), &mut out);
            let (found, allowed) = (found, 64 << 20);
            let what = "bytes after decompression";
            assert_eq!(found, Err(DecodeError::TooLarge { what, found: declared as usize, allowed }));
        }
        let lie = [varint(60 << 20), vec![0; 4]].concat();
        let expected = SnappyError::Declared { declared: 60 << 20, sent: 8, possible: 176 };
        assert_eq!(decompress(&lie, &DecodeLimits::default(), &mut out), Err(expected.into()));
        assert_eq!(out.capacity(), 0);
    }

    #[test]
    fn a_body_over_the_compressed_limit_is_not_read() {
        let limits = DecodeLimits { compressed_bytes_max: 3, ..DecodeLimits::default() };
        let mut out = Vec::new();
        let found = decompress(&[0; 4], &limits, &mut out);
        assert_eq!(found, Err(DecodeError::TooLarge { what: "bytes", found: 4, allowed: 3 }));
    }

    #[test]
    fn truncated_and_foreign_blocks_are_refused() {
        let block = snap::raw::Encoder::new().compress_vec(&b"abc".repeat(100)).expect("compresses");
        for length in 1..block.len() {
            assert!(decompressed(&block[..length]).is_err(), "{length}");
        }
        for other in [&b"\xff\x06\x00\x00sNaPpY"[..], b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd", b"{}", b"a=b"]
        {
            assert!(decompressed(other).is_err(), "{other:02x?}");
        }
        assert_eq!(decompressed(b""), Err(DecodeError::Empty));
    }

    #[test]
    fn the_ratio_bound_admits_the_best_ratio_of_an_encoder() {
        let zeros = vec![0; 8 << 20];
        let block = snap::raw::Encoder::new().compress_vec(&zeros).expect("compresses");
        assert_eq!(decompressed(&block).expect("valid").len(), zeros.len());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_snappy(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decompressed(&bytes);
        }

        #[test]
        fn compressed_blocks_round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..3_000)) {
            let block = snap::raw::Encoder::new().compress_vec(&bytes).expect("compresses");
            prop_assert_eq!(decompressed(&block), Ok(bytes));
        }
    }
}
