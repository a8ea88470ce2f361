//! The frame around every value in sled, which detects damaged, torn and misplaced values.
//!
//! ```text
//!  0 u8  version of the body's type      1 u8 kind (which record type)
//!  2 u16 flags                           4 u32 body bytes
//!  8 u32 CRC32C of bytes 0..8, the key, the body
//! 12 body
//! ```
//! Little-endian. Key and value share one sled row. The whole value has at most 4,000 bytes,
//! because sled loses larger ones on a power cut (docs/storage.md section 0, point 2). Flags: bit 0
//! marks the first of several rows, bit 1 a further row; bits 8..16 are the number of rows (bit 0)
//! or this row's number (bit 1). [`super::rows`] joins them.

/// Length of the frame before the body.
pub(super) const FRAME_BYTES: usize = 12;
/// Maximum length of a value in sled, frame included.
pub const VALUE_BYTES_MAX: usize = 4_000;
/// Maximum length of the body of one row.
pub const BODY_BYTES_MAX: usize = VALUE_BYTES_MAX - FRAME_BYTES;
/// Maximum length of a key, table byte and row number included.
pub const KEY_BYTES_MAX: usize = 512;

/// The fields of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    /// Version of the body's type.
    pub(super) version: u8,
    /// Tag of the record type.
    pub(super) kind: u8,
    /// See the table in the module documentation.
    pub(super) flags: u16,
}

/// Damage of a stored row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DamagedRow {
    /// The value ends before its frame or body does, or has more bytes.
    #[error("row {}: {found} bytes, but the frame states {expected}", hex(key))]
    Length {
        /// Key of the row.
        key: Vec<u8>,
        /// Length according to the frame, the frame included.
        expected: u64,
        /// Actual length.
        found: u64,
    },
    /// The bytes do not match their checksum.
    #[error("row {}: checksum {found:08x}, but {expected:08x} is stored", hex(key))]
    Checksum {
        /// Key of the row.
        key: Vec<u8>,
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// The row is intact, but does not belong there.
    #[error("row {}: {what}", hex(key))]
    Content {
        /// Key of the row.
        key: Vec<u8>,
        /// Description of the problem.
        what: String,
    },
}

pub(super) fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

/// Returns the value to store under `key`: frame and body. The caller has checked the lengths.
pub(super) fn seal(key: &[u8], frame: Frame, body: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(FRAME_BYTES + body.len());
    value.push(frame.version);
    value.push(frame.kind);
    value.extend_from_slice(&frame.flags.to_le_bytes());
    let length = u32::try_from(body.len()).expect("a body is at most 3,988 bytes: checked by the callers");
    value.extend_from_slice(&length.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&value), key), body);
    value.extend_from_slice(&crc.to_le_bytes());
    value.extend_from_slice(body);
    value
}

/// Returns the frame, the body and the checksum of a row, verified.
pub(super) fn open<'v>(key: &[u8], value: &'v [u8]) -> Result<(Frame, &'v [u8], u32), DamagedRow> {
    let short = |expected: u64| DamagedRow::Length { key: key.to_vec(), expected, found: value.len() as u64 };
    let (head, rest) = value.split_first_chunk::<8>().ok_or_else(|| short(FRAME_BYTES as u64))?;
    let (stored, body) = rest.split_first_chunk::<4>().ok_or_else(|| short(FRAME_BYTES as u64))?;
    let [version, kind, f0, f1, l0, l1, l2, l3] = *head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    if body.len() as u64 != u64::from(length) {
        return Err(short(u64::from(length) + FRAME_BYTES as u64));
    }
    let expected = u32::from_le_bytes(*stored);
    let found = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(head), key), body);
    if expected != found {
        return Err(DamagedRow::Checksum { key: key.to_vec(), expected, found });
    }
    Ok((Frame { version, kind, flags: u16::from_le_bytes([f0, f1]) }, body, expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_frame_has_the_documented_layout() {
        let value = seal(b"\x01key", Frame { version: 2, kind: 7, flags: 0x0301 }, b"body");
        assert_eq!(value[..8], [2, 7, 0x01, 0x03, 4, 0, 0, 0]);
        assert_eq!(value[12..], *b"body");
        let crc = crc32c::crc32c(&[&value[..8], b"\x01key", b"body"].concat());
        assert_eq!(value[8..12], crc.to_le_bytes());
        // The whole value, to detect a change of the checksum's polynomial or order.
        assert_eq!(hex(&value), GOLDEN);
    }

    const GOLDEN: &str = "02070103040000005b074e4e626f6479";

    #[test]
    fn every_flipped_bit_and_every_other_key_is_detected() {
        let value = seal(b"k", Frame { version: 1, kind: 1, flags: 0 }, b"some body");
        for bit in 0..value.len() * 8 {
            let mut bad = value.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(open(b"k", &bad).is_err(), "bit {bit}");
        }
        assert!(matches!(open(b"j", &value), Err(DamagedRow::Checksum { .. })));
        for cut in 0..value.len() {
            assert!(open(b"k", &value[..cut]).is_err(), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn a_sealed_value_opens(key: Vec<u8>, version: u8, kind: u8, flags: u16, body in prop::collection::vec(any::<u8>(), 0..BODY_BYTES_MAX)) {
            let frame = Frame { version, kind, flags };
            let value = seal(&key, frame, &body);
            let (back, got, _) = open(&key, &value).expect("whole");
            prop_assert_eq!((back, got), (frame, body.as_slice()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(key: Vec<u8>, value: Vec<u8>) {
            let _ = open(&key, &value);
        }
    }
}
