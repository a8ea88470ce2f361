//! Texts that a row stores in one zstd frame, with their length.

use crate::kv::BODY_BYTES_MAX;

/// Compresses a text into one frame. `level` is that of zstd.
///
/// # Errors
/// An error of zstd, such as no memory.
pub(in crate::identity) fn compressed(text: &str, level: i32) -> std::io::Result<Vec<u8>> {
    zstd::bulk::compress(text.as_bytes(), level)
}

/// Returns the text of a frame. `None` if the frame is damaged, if the text does not have this many
/// bytes, or if that is more than `bytes_max` (inclusive). No more than `bytes` is allocated.
pub(in crate::identity) fn decompressed(compressed: &[u8], bytes: u32, bytes_max: usize) -> Option<String> {
    let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= bytes_max)?;
    let text = zstd::bulk::decompress(compressed, bytes).ok()?;
    String::from_utf8(text).ok().filter(|text| text.len() == bytes)
}

/// Returns an upper bound of the number of rows of a value with a frame of this many bytes.
pub(in crate::identity) fn compressed_rows(stored_bytes: u32) -> usize {
    // The length fields of the value and of its rows take less than 32 bytes.
    (usize::try_from(stored_bytes).unwrap_or(usize::MAX).saturating_add(32)).div_ceil(BODY_BYTES_MAX)
}
