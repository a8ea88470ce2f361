//! Storage of a value too long for one safe row of sled as numbered rows of the same commit.
//!
//! ```text
//! key            frame, flags: bit 0, rows << 8     u32 total bytes, u32 CRC32C, first bytes
//! key, u8 1      frame, flags: bit 1, 1 << 8        the bytes that follow
//! key, u8 2      ...                                at most 50 rows
//! ```
//! A value of at most 3,988 bytes is one row with flags 0. The numbered rows directly follow the
//! first one, because no key is a prefix of another.

use std::collections::BTreeMap;

use super::frame::{self, BODY_BYTES_MAX, DamagedRow, Frame, KEY_BYTES_MAX};

/// Maximum length of a value: 192 KiB, so that a change with it fits into a journal file.
pub const VALUE_BODY_BYTES_MAX: usize = 192 * 1024;
/// Maximum number of rows of a value.
pub(super) const ROWS_MAX: u16 = 50;
/// Length of the total length and checksum in the first of several rows.
const PREAMBLE_BYTES: usize = 8;
const FIRST_OF_SEVERAL: u16 = 1;
const FURTHER: u16 = 2;

/// Changed rows by key; `None` removes a row.
pub(super) type RowChanges = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// One row of sled.
pub(super) type KeyAndValue = (Vec<u8>, Vec<u8>);

/// Reasons why a value cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The key with its table byte is too long.
    #[error("a key has {bytes} bytes; at most {allowed} are allowed")]
    KeyTooLong {
        /// Length of the key.
        bytes: usize,
        /// The limit.
        allowed: usize,
    },
    /// The value is too long even for several rows.
    #[error("a value has {bytes} bytes; at most {allowed} are allowed")]
    ValueTooLong {
        /// Length of the encoded value.
        bytes: usize,
        /// The limit.
        allowed: usize,
    },
}

/// Splits a value into its rows, first row first.
pub(super) fn split(key: &[u8], version: u8, kind: u8, body: &[u8]) -> Result<Vec<KeyAndValue>, RowError> {
    if key.len() >= KEY_BYTES_MAX {
        return Err(RowError::KeyTooLong { bytes: key.len(), allowed: KEY_BYTES_MAX - 1 });
    }
    if body.len() > VALUE_BODY_BYTES_MAX {
        return Err(RowError::ValueTooLong { bytes: body.len(), allowed: VALUE_BODY_BYTES_MAX });
    }
    if body.len() <= BODY_BYTES_MAX {
        return Ok(vec![(key.to_vec(), frame::seal(key, Frame { version, kind, flags: 0 }, body))]);
    }
    let total = u32::try_from(body.len()).expect("at most 192 KiB: checked above");
    let mut whole = Vec::with_capacity(body.len() + PREAMBLE_BYTES);
    whole.extend_from_slice(&total.to_le_bytes());
    whole.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
    whole.extend_from_slice(body);
    let count = u16::try_from(whole.len().div_ceil(BODY_BYTES_MAX)).expect("at most 50 rows");
    let rows = (0..count).zip(whole.chunks(BODY_BYTES_MAX)).map(|(number, piece)| {
        let flags = if number == 0 { FIRST_OF_SEVERAL | (count << 8) } else { FURTHER | (number << 8) };
        let row_key = numbered(key, number);
        let value = frame::seal(&row_key, Frame { version, kind, flags }, piece);
        (row_key, value)
    });
    Ok(rows.collect())
}

/// Returns the key of a value's row with this number; row 0 has the value's own key.
pub(super) fn numbered(key: &[u8], number: u16) -> Vec<u8> {
    let mut out = key.to_vec();
    if number > 0 {
        out.push(u8::try_from(number).expect("at most 50 rows"));
    }
    out
}

/// Returns the number of rows of a value, given the frame of its first row.
pub(super) fn count(frame: Frame) -> u16 {
    if frame.flags & FIRST_OF_SEVERAL == 0 { 1 } else { frame.flags >> 8 }
}

/// Returns whether the row continues another.
pub(super) fn is_further(frame: Frame) -> bool {
    frame.flags & FURTHER != 0
}

/// Joins a value from its first row and the others, which `row` returns by key.
pub(super) fn join(
    key: &[u8],
    first: &[u8],
    row: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Result<(Frame, Vec<u8>), DamagedRow> {
    let damaged = |what: String| DamagedRow::Content { key: key.to_vec(), what };
    let (frame, body, _) = frame::open(key, first)?;
    if is_further(frame) {
        return Err(damaged("a continuation where a value begins".to_owned()));
    }
    if frame.flags & FIRST_OF_SEVERAL == 0 {
        return Ok((frame, body.to_vec()));
    }
    let mut whole = body.to_vec();
    for number in 1..count(frame) {
        let row_key = numbered(key, number.min(255));
        let value = row(&row_key).ok_or_else(|| damaged(format!("row {number} of its value is missing")))?;
        let (further, piece, _) = frame::open(&row_key, &value)?;
        let expected = Frame { flags: FURTHER | (number << 8), ..frame };
        if further != expected {
            return Err(damaged(format!("row {number} of its value has frame {further:?}")));
        }
        whole.extend_from_slice(piece);
    }
    let stored =
        |from: Option<(&[u8; 4], &[u8])>| from.map(|(word, rest)| (u32::from_le_bytes(*word), rest.to_vec()));
    let (total, rest) = stored(whole.split_first_chunk()).ok_or_else(|| damaged("no length".to_owned()))?;
    let (crc, joined) = stored(rest.split_first_chunk()).ok_or_else(|| damaged("no checksum".to_owned()))?;
    if joined.len() as u64 != u64::from(total) || crc32c::crc32c(&joined) != crc {
        return Err(damaged(format!("its rows are not one value of {total} bytes")));
    }
    Ok((frame, joined))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(rows: &BTreeMap<Vec<u8>, Vec<u8>>, key: &[u8]) -> Result<Vec<u8>, DamagedRow> {
        let first = rows.get(key).expect("a first row");
        join(key, first, &mut |k| rows.get(k).cloned()).map(|(_, body)| body)
    }

    #[test]
    fn a_value_of_any_length_is_restored_and_no_row_exceeds_the_limit() {
        for (length, count) in
            [(0, 1), (3_988, 1), (3_989, 2), (7_968, 2), (7_969, 3), (VALUE_BODY_BYTES_MAX, 50)]
        {
            let body: Vec<u8> = (0..=250).cycle().take(length).collect();
            let rows: BTreeMap<_, _> = split(b"\x01key", 1, 2, &body).expect("fits").into_iter().collect();
            assert_eq!(rows.len(), count, "{length}");
            assert!(rows.values().all(|v| v.len() <= frame::VALUE_BYTES_MAX));
            assert_eq!(joined(&rows, b"\x01key").expect("whole"), body);
        }
    }

    #[test]
    fn values_and_keys_that_are_too_long_are_refused() {
        assert_eq!(
            split(b"k", 1, 1, &vec![0; VALUE_BODY_BYTES_MAX + 1]),
            Err(RowError::ValueTooLong { bytes: 196_609, allowed: 196_608 })
        );
        assert_eq!(split(&[1; 512], 1, 1, b""), Err(RowError::KeyTooLong { bytes: 512, allowed: 511 }));
    }

    #[test]
    fn a_missing_swapped_or_foreign_row_of_a_long_value_is_detected() {
        let value = |fill: u8| split(b"k", 1, 2, &vec![fill; 12_000]).expect("fits").into_iter().collect();
        let rows: BTreeMap<Vec<u8>, Vec<u8>> = value(1);
        for victim in [[b'k', 1], [b'k', 2], [b'k', 3]] {
            let mut gone = rows.clone();
            gone.remove(victim.as_slice());
            assert!(joined(&gone, b"k").is_err());
            // The row is from another value: its own checksum matches, that of the whole value does
            // not.
            let mut mixed = rows.clone();
            mixed.insert(victim.to_vec(), value(2)[victim.as_slice()].clone());
            assert!(joined(&mixed, b"k").is_err());
        }
        let further = &rows[[b'k', 1].as_slice()];
        assert!(join(b"k\x01", further, &mut |_| None).is_err());
    }
}
