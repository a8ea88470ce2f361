//! The size limits of compressed bodies, which decoders of all formats share.

use std::io::{self, ErrorKind, Read};

use super::{DecodeError, DecodeLimits};
use crate::model::try_reserve_exact;

/// Checks the size of a compressed body.
///
/// # Errors
/// [`DecodeError::Empty`]; [`DecodeError::TooLarge`].
pub(super) fn check_compressed(body: &[u8], limits: &DecodeLimits) -> Result<(), DecodeError> {
    let (found, allowed) = (body.len(), limits.compressed_bytes_max);
    if found == 0 {
        return Err(DecodeError::Empty);
    }
    if found > allowed {
        return Err(DecodeError::TooLarge { what: "bytes", found, allowed });
    }
    Ok(())
}

/// The bytes that are read first of a body of unknown length.
const FIRST_BYTES: usize = 16 << 10;

/// Reads the decompressed body from its decoder into `out`. `likely` is the probable number of its
/// bytes; a body of that length is read at once, into memory that is never copied. `invalid`
/// returns the error of a body that is not in the format.
///
/// # Errors
/// [`DecodeError::TooLarge`] at the first byte beyond the limit; [`DecodeError::Empty`];
/// [`DecodeError::OutOfMemory`]; that of `invalid`.
pub(super) fn read_decompressed<'a>(
    mut decoder: impl Read,
    limits: &DecodeLimits,
    likely: usize,
    out: &'a mut Vec<u8>,
    invalid: impl FnOnce(io::Error) -> DecodeError,
) -> Result<&'a [u8], DecodeError> {
    out.clear();
    let allowed = limits.decompressed_bytes_max;
    // One byte beyond the limit shows that the body is too large, and one beyond the likely length
    // that it ends there.
    let most = allowed.saturating_add(1);
    let (mut read, mut next) = (0, likely.saturating_add(1).max(FIRST_BYTES));
    loop {
        if read == out.len() {
            if read == most {
                let (what, found) = ("bytes after decompression", read);
                return Err(DecodeError::TooLarge { what, found, allowed });
            }
            let length = next.min(most);
            try_reserve_exact(out, length.saturating_sub(read))?;
            out.resize(length, 0);
            next = length.saturating_mul(2);
        }
        match decoder.read(out.get_mut(read..).unwrap_or_default()) {
            Ok(0) => break,
            Ok(more) => read = read.saturating_add(more),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(invalid(error)),
        }
    }
    out.truncate(read);
    if out.is_empty() {
        return Err(DecodeError::Empty);
    }
    Ok(out)
}
