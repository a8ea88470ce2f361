//! The journal of account changes: plain files, synced before anything else, from which control is
//! rebuilt.
//!
//! `journal/<number>.jnl`, 256 KiB each, zeroed in advance, with consecutive numbers. A file begins
//! with
//! ```text
//!  0  8 "PROMJNL1"     8 u16 version 1 | 2   10 u16 header bytes 64 | 4,128   12 u32 file bytes
//! 16 16 store id      32 u64 file number  40 i64 created    48 u64 previous file number
//! 56  4 zero          60 u32 CRC32C of 0..60
//! ```
//! (created: the time at which the process that created it opened the journal). In version 2 the
//! secret of the file follows, as documented in [`super::keyed`]. Records follow, each padded with
//! zeros to a multiple of 8; length 0 is the end of the data. Version 2 has the 32 byte record
//! header of [`super::keyed`], with bytes 8 to 24 of version 1, which is
//! ```text
//!  0 u32 body bytes L                      4 u32 CRC32C of bytes 0..4, then 8..24+L
//!  8 u64 seq (previous + 1)               16 u32 0
//! 20 u8  type 16    21 u8 body version 1   22 u16 lag = seq - last seq known durable at write
//! 24 body: u16 rows, rows {u8 1 put | 2 remove, u16 key bytes, key, u16 value bytes, framed value}
//! ```
//! Little-endian. One record is one change. `lag` distinguishes a torn tail from damage: a valid
//! later record with "s was durable" proves that bad bytes at s were once good (docs/storage.md
//! section 10, step 7). Files are removed oldest first when both kept exports cover them, so the
//! first existing one may have any number and begin with any change.
//!
//! Keys and values contain bytes chosen by users. A search for records after damage must not take
//! such bytes for a record: in version 2 they do not verify. Files of version 1 are still read, but
//! records after bad bytes count only if the end of the bad record is certain. Nothing is appended
//! to them: after opening, the journal continues in a file of version 2.

mod scan;
mod write;

pub(super) use scan::{Damage, Survey, decode_rows, replay, store_of_file, survey, trim};
#[cfg(test)]
pub(super) use write::Faults;
pub(super) use write::{AppendError, Journal};

use std::path::PathBuf;

use super::files::FileError;
use super::keyed::{KEYED_FILE_HEADER_BYTES, KEYED_HEADER_BYTES, RecordKey};
use super::rows::RowChanges;
use crate::model::{StoreId, Timestamp};

/// Length of a journal file: room for thousands of changes. A spare file is always ready.
pub(super) const FILE_BYTES: usize = 256 * 1024;
const HEADER_BYTES: usize = 64;
const RECORD_HEADER_BYTES: usize = 24;
const MAGIC: &[u8; 8] = b"PROMJNL1";
const VERSION_PLAIN: u16 = 1;
const VERSION: u16 = 2;
const RECORD_TYPE: u8 = 16;
const BODY_VERSION: u8 = 1;

/// Reasons why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Bytes that were durable are damaged.
    #[error("journal {} is damaged at offset {offset}, from account change {seq} on: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// The unreadable change.
        seq: u64,
        /// Description of the damage.
        what: String,
    },
    /// The file belongs to another store.
    #[error("journal {} belongs to store {found}, not {expected}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// This store.
        expected: StoreId,
        /// The store in its header.
        found: StoreId,
    },
    /// The file was written by a newer version; it is left unchanged.
    #[error("journal {} has version {found}, but this program reads {VERSION}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version.
        found: u16,
    },
}

fn file_name(number: u64) -> String {
    format!("{number:08}.jnl")
}

/// The layout and verification of a file's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Version 1: a checksum without a key.
    Plain,
    /// Version 2.
    Keyed(RecordKey),
    /// Version 2, with both copies of its secret unreadable: none of its records verifies.
    Lost,
}

impl Layout {
    const fn file_header_bytes(self) -> usize {
        match self {
            Layout::Plain => HEADER_BYTES,
            Layout::Keyed(_) | Layout::Lost => KEYED_FILE_HEADER_BYTES,
        }
    }

    const fn record_header_bytes(self) -> usize {
        match self {
            Layout::Plain => RECORD_HEADER_BYTES,
            Layout::Keyed(_) | Layout::Lost => KEYED_HEADER_BYTES,
        }
    }

    const fn record_bytes(self, body_bytes: usize) -> usize {
        (self.record_header_bytes() + body_bytes).next_multiple_of(8)
    }
}

/// The header of a journal file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct JournalHeader {
    store: StoreId,
    number: u64,
    /// Number of the previous file; 0 for the first one.
    previous: u64,
    created: Timestamp,
    layout: Layout,
}

impl JournalHeader {
    /// Creates the header of a new file after file `previous`, with its own secret derived from
    /// `key`.
    fn new(store: StoreId, key: RecordKey, previous: u64, created: Timestamp) -> JournalHeader {
        let number = previous + 1;
        let layout = Layout::Keyed(key.derive(number, 0));
        JournalHeader { store, number, previous, created, layout }
    }
}

fn encode_header(header: &JournalHeader) -> Vec<u8> {
    let (version, bytes) = match header.layout {
        Layout::Plain => (VERSION_PLAIN, 64_u16),
        Layout::Keyed(_) | Layout::Lost => (VERSION, 4_128),
    };
    let mut out = [0; KEYED_FILE_HEADER_BYTES];
    out[..8].copy_from_slice(MAGIC);
    out[8..10].copy_from_slice(&version.to_le_bytes());
    out[10..12].copy_from_slice(&bytes.to_le_bytes());
    out[12..16].copy_from_slice(&262_144_u32.to_le_bytes());
    out[16..32].copy_from_slice(&header.store.0);
    out[32..40].copy_from_slice(&header.number.to_le_bytes());
    out[40..48].copy_from_slice(&header.created.as_ms().to_le_bytes());
    out[48..56].copy_from_slice(&header.previous.to_le_bytes());
    let crc = crc32c::crc32c(&out[..60]);
    out[60..64].copy_from_slice(&crc.to_le_bytes());
    if let Layout::Keyed(key) = header.layout {
        key.put(&mut out, header.number);
    }
    let mut out = out.to_vec();
    out.truncate(header.layout.file_header_bytes());
    out
}

/// Appends the record of one change. `rows` are within the limits of a change, which were checked
/// on creation.
fn encode_record(out: &mut Vec<u8>, layout: Layout, seq: u64, lag: u16, rows: &RowChanges) {
    let start = out.len();
    let mut fields = [0; 16];
    fields[..8].copy_from_slice(&seq.to_le_bytes());
    fields[12..14].copy_from_slice(&[RECORD_TYPE, BODY_VERSION]);
    fields[14..].copy_from_slice(&lag.to_le_bytes());
    let body = encode_rows(rows);
    if let Layout::Keyed(key) = layout {
        out.extend_from_slice(&key.header(fields, &body));
    } else {
        let length = u32::try_from(body.len()).expect("a change is at most 240 KiB").to_le_bytes();
        let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&length), &fields), &body);
        out.extend_from_slice(&length);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&fields);
    }
    out.extend_from_slice(&body);
    out.resize(start + layout.record_bytes(body.len()), 0);
}

/// Encodes the body of a record. `rows` are within the limits of a change.
pub(super) fn encode_rows(rows: &RowChanges) -> Vec<u8> {
    let mut body = Vec::new();
    let short = |n: usize| u16::try_from(n).expect("within the limits of a change").to_le_bytes();
    body.extend_from_slice(&short(rows.len()));
    for (key, value) in rows {
        body.push(if value.is_some() { 1 } else { 2 });
        body.extend_from_slice(&short(key.len()));
        body.extend_from_slice(key);
        let value = value.as_deref().unwrap_or_default();
        body.extend_from_slice(&short(value.len()));
        body.extend_from_slice(value);
    }
    body
}

/// Returns the length of the version 2 record that [`encode_record`] writes for `rows`.
pub(super) fn record_bytes(rows: &RowChanges) -> usize {
    let body: usize =
        rows.iter().map(|(key, value)| 5 + key.len() + value.as_ref().map_or(0, Vec::len)).sum();
    (KEYED_HEADER_BYTES + 2 + body).next_multiple_of(8)
}

/// Maximum length of the records of one group: the capacity of an empty file.
pub(super) const GROUP_BYTES_MAX: usize = FILE_BYTES - KEYED_FILE_HEADER_BYTES;

#[cfg(test)]
mod tests;
