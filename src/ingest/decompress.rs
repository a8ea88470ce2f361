//! The size limits of compressed bodies, which decoders of all formats share.

use std::io::{self, ErrorKind, Read};

use super::{DecodeError, DecodeLimits};
use crate::model::OutOfMemory;

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

/// Reads the decompressed body from its decoder into `out`. `invalid` returns the error of a body
/// that is not in the format.
///
/// # Errors
/// [`DecodeError::TooLarge`] at the first byte beyond the limit; [`DecodeError::Empty`];
/// [`DecodeError::OutOfMemory`]; that of `invalid`.
pub(super) fn read_decompressed<'a>(
    decoder: impl Read,
    limits: &DecodeLimits,
    out: &'a mut Vec<u8>,
    invalid: impl FnOnce(io::Error) -> DecodeError,
) -> Result<&'a [u8], DecodeError> {
    out.clear();
    let allowed = limits.decompressed_bytes_max;
    // One byte beyond the limit shows that the body is too large.
    let read_max = u64::try_from(allowed).unwrap_or(u64::MAX).saturating_add(1);
    let read = decoder.take(read_max).read_to_end(out);
    read.map_err(|error| match error.kind() {
        // The buffer could not grow; the body may be valid.
        ErrorKind::OutOfMemory => DecodeError::from(OutOfMemory { bytes: out.capacity() as u64 }),
        _ => invalid(error),
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
