//! The snappy block format, undone within bounds that are known before anything is allocated.
//!
//! A block is the decompressed length as a varint of at most 32 bits, then literals and copies. What it declares is
//! believed only as far as its own bytes could fill it.

mod room;

use super::{DecodeError, Limits};
use crate::model::try_reserve_exact;

/// Why bytes are no snappy block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnappyError {
    /// The header declares more than its bytes can hold.
    #[error("the block declares {declared} bytes, but {sent} bytes of snappy hold {possible} at most")]
    Declared {
        /// What the header says.
        declared: usize,
        /// The block's own length.
        sent: usize,
        /// What that many bytes can hold at most.
        possible: usize,
    },
    /// Anything else; often the streaming format, another compression, or a body that was cut short.
    #[error("the body is no valid block: {0}")]
    Block(String),
}

/// The best that snappy can do: a copy of three bytes stands for 64. Rounded up.
const RATIO_MAX: usize = 22;

/// The decompressed `block`, at the beginning of `out`; what else is in there means nothing.
///
/// # Errors
/// [`DecodeError::Empty`], [`DecodeError::TooLarge`] before anything is allocated, and [`SnappyError`].
pub(super) fn decompress<'a>(
    block: &[u8],
    limits: &Limits,
    out: &'a mut Vec<u8>,
) -> Result<&'a [u8], DecodeError> {
    let sent = block.len();
    if sent == 0 {
        return Err(DecodeError::Empty);
    }
    let allowed = limits.compressed_bytes_max;
    if sent > allowed {
        return Err(DecodeError::TooLarge { what: "bytes", found: sent, allowed });
    }
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
    // What is too large for the room, or no block, is the package's: it knows what to say.
    if undo_in_room(block, declared, out).is_none() {
        // What an earlier block left need not be zeroed: it is written over, or never seen.
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

fn undo_in_room(block: &[u8], declared: usize, out: &mut Vec<u8>) -> Option<()> {
    let length_ends = block.iter().position(|byte| *byte < 0x80)?;
    room::undo(block, length_ends.checked_add(1)?, declared, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn undo(block: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let mut out = Vec::new();
        decompress(block, &Limits::default(), &mut out).map(<[u8]>::to_vec)
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
            let found = decompress(&varint(declared), &Limits::default(), &mut out);
            let (found, allowed) = (found, 64 << 20);
            let what = "bytes after decompression";
            assert_eq!(found, Err(DecodeError::TooLarge { what, found: declared as usize, allowed }));
        }
        let lie = [varint(60 << 20), vec![0; 4]].concat();
        let expected = SnappyError::Declared { declared: 60 << 20, sent: 8, possible: 176 };
        assert_eq!(decompress(&lie, &Limits::default(), &mut out), Err(expected.into()));
        assert_eq!(out.capacity(), 0);
    }

    #[test]
    fn more_bytes_than_allowed_are_not_looked_at() {
        let limits = Limits { compressed_bytes_max: 3, ..Limits::default() };
        let mut out = Vec::new();
        let found = decompress(&[0; 4], &limits, &mut out);
        assert_eq!(found, Err(DecodeError::TooLarge { what: "bytes", found: 4, allowed: 3 }));
    }

    #[test]
    fn what_is_cut_short_or_something_else_is_refused() {
        let block = snap::raw::Encoder::new().compress_vec(&b"abc".repeat(100)).expect("compresses");
        for length in 1..block.len() {
            assert!(undo(&block[..length]).is_err(), "{length}");
        }
        for other in [&b"\xff\x06\x00\x00sNaPpY"[..], b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd", b"{}", b"a=b"]
        {
            assert!(undo(other).is_err(), "{other:02x?}");
        }
        assert_eq!(undo(b""), Err(DecodeError::Empty));
    }

    #[test]
    fn the_ratio_bound_admits_the_best_that_an_encoder_does() {
        let zeros = vec![0; 8 << 20];
        let block = snap::raw::Encoder::new().compress_vec(&zeros).expect("compresses");
        assert_eq!(undo(&block).expect("valid").len(), zeros.len());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = undo(&bytes);
        }

        #[test]
        fn what_was_compressed_comes_back(bytes in proptest::collection::vec(any::<u8>(), 0..3_000)) {
            let block = snap::raw::Encoder::new().compress_vec(&bytes).expect("compresses");
            prop_assert_eq!(undo(&block), Ok(bytes));
        }
    }
}
