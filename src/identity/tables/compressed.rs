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

/// The first bytes of a zstd frame. No text in UTF-8 contains the second one after the first.
const FRAME_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Texts up to this many bytes, inclusive, are stored as they are.
const PLAIN_BYTES_MAX: usize = 32 << 10;
/// The level of zstd of packed texts.
const PACKED_LEVEL: i32 = 3;

/// Returns the stored form of a text that may be longer than a stored value: the text itself, or
/// one zstd frame of a long text.
///
/// # Errors
/// An error of zstd, such as no memory.
pub(in crate::identity) fn packed(text: &str) -> std::io::Result<Vec<u8>> {
    if text.len() <= PLAIN_BYTES_MAX { Ok(text.as_bytes().to_vec()) } else { compressed(text, PACKED_LEVEL) }
}

/// Returns the text whose form [`packed`] returned. `None` if it is damaged or has more than
/// `bytes_max` bytes (that many are allowed). No more are allocated.
pub(in crate::identity) fn unpacked(packed: Vec<u8>, bytes_max: usize) -> Option<String> {
    let text = match packed.starts_with(&FRAME_MAGIC) {
        true => zstd::bulk::decompress(&packed, bytes_max).ok()?,
        false => packed,
    };
    String::from_utf8(text).ok().filter(|text| text.len() <= bytes_max)
}

/// Returns an upper bound of the number of rows of a value with a frame of this many bytes.
pub(in crate::identity) fn compressed_rows(stored_bytes: u32) -> usize {
    // The length fields of the value and of its rows take less than 32 bytes.
    (usize::try_from(stored_bytes).unwrap_or(usize::MAX).saturating_add(32)).div_ceil(BODY_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_packed_only_if_it_is_long_and_unpacked_within_its_limit() {
        let short = "x".repeat(PLAIN_BYTES_MAX);
        assert_eq!(packed(&short).expect("short"), short.as_bytes());
        let long = "scrape_configs: é\n".repeat(50_000);
        let frame = packed(&long).expect("packed");
        assert!(frame.starts_with(&FRAME_MAGIC) && frame.len() < long.len() / 100, "{}", frame.len());
        for text in [&short, &long] {
            let packed = packed(text).expect("packed");
            assert_eq!(unpacked(packed.clone(), text.len()).as_ref(), Some(text));
            assert_eq!(unpacked(packed, text.len() - 1), None);
        }
        assert_eq!(unpacked(frame[..frame.len() - 1].to_vec(), long.len()), None);
        assert_eq!(unpacked(vec![0xff], 1), None);
    }
}
