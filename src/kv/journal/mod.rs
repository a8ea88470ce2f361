//! The journal of account changes: plain files, synced before anything else; what control is rebuilt from.
//!
//! `journal/<number>.jnl`, 256 KiB each, zeroed beforehand, numbers ascending by one. A file begins with
//! ```text
//!  0  8 "PROMJNL1"     8 u16 version 1   10 u16 header bytes 64   12 u32 file bytes
//! 16 16 store id      32 u64 file number  40 i64 created           48 u64 number of the file before it
//! 56  4 zero          60 u32 CRC32C of 0..60
//! ```
//! (created: when the process that made it had opened the journal) and goes on with records, each filled with zeros to a multiple of 8; length 0 is the end of what was written:
//! ```text
//!  0 u32 body bytes L                      4 u32 CRC32C of bytes 0..4, then 8..24+L
//!  8 u64 seq (previous + 1)               16 u32 0
//! 20 u8  type 16    21 u8 body version 1   22 u16 lag = seq - last seq known durable when this was written
//! 24 body: u16 rows, rows {u8 1 put | 2 remove, u16 key bytes, key, u16 value bytes, framed value}
//! ```
//! Little-endian. One record is one change. `lag` tells a torn tail from damage: a valid later record that says
//! "s was durable" proves that bad bytes at s were once good (STORAGE.md section 10, step 7). Files go when both kept
//! exports cover them, oldest first, so the first one there is may have any number and begin with any change.

mod scan;
mod write;

pub(super) use scan::{Damage, Survey, replay, store_of_file, survey, trim};
#[cfg(test)]
pub(super) use write::Faults;
pub(super) use write::{AppendError, Journal};

use std::path::PathBuf;

use super::files::FileError;
use super::rows::Rows;
use crate::model::{StoreId, Timestamp};

/// Bytes of a journal file: some thousand changes; a spare one is always ready.
pub(super) const FILE_BYTES: usize = 256 * 1024;
const HEADER_BYTES: usize = 64;
const RECORD_HEADER_BYTES: usize = 24;
const MAGIC: &[u8; 8] = b"PROMJNL1";
const VERSION: u16 = 1;
const RECORD_TYPE: u8 = 16;
const BODY_VERSION: u8 = 1;

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Bytes that were durable once are not what was written.
    #[error("journal {} is damaged at offset {offset}, from account change {seq} on: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// The change that cannot be read.
        seq: u64,
        /// What is wrong.
        what: String,
    },
    /// The file is another store's.
    #[error("journal {} belongs to store {found}, not {expected}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// This store.
        expected: StoreId,
        /// The store in its header.
        found: StoreId,
    },
    /// Written by a newer program; left alone.
    #[error("journal {} has version {found}, this program reads {VERSION}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u16,
    },
}

fn file_name(number: u64) -> String {
    format!("{number:08}.jnl")
}

/// What a file says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    store: StoreId,
    number: u64,
    /// Number of the file before it; 0 for the first.
    previous: u64,
    created: Timestamp,
}

fn encode_header(header: &Header) -> [u8; HEADER_BYTES] {
    let mut out = Vec::with_capacity(HEADER_BYTES);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&64_u16.to_le_bytes());
    out.extend_from_slice(&262_144_u32.to_le_bytes());
    out.extend_from_slice(&header.store.0);
    out.extend_from_slice(&header.number.to_le_bytes());
    out.extend_from_slice(&header.created.as_ms().to_le_bytes());
    out.extend_from_slice(&header.previous.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out.try_into().expect("64 bytes: the drawing's fields add up")
}

/// Appends the record of one change. `rows` are within the limits of a change (checked when it was made).
fn encode_record(out: &mut Vec<u8>, seq: u64, lag: u16, rows: &Rows) {
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&seq.to_le_bytes());
    out.extend_from_slice(&0_u32.to_le_bytes());
    out.extend_from_slice(&[RECORD_TYPE, BODY_VERSION]);
    out.extend_from_slice(&lag.to_le_bytes());
    let short = |n: usize| u16::try_from(n).expect("within the limits of a change").to_le_bytes();
    out.extend_from_slice(&short(rows.len()));
    for (key, value) in rows {
        out.push(if value.is_some() { 1 } else { 2 });
        out.extend_from_slice(&short(key.len()));
        out.extend_from_slice(key);
        let value = value.as_deref().unwrap_or_default();
        out.extend_from_slice(&short(value.len()));
        out.extend_from_slice(value);
    }
    let record = out.get_mut(start..).expect("just written");
    let length =
        u32::try_from(record.len() - RECORD_HEADER_BYTES).expect("a change is at most 240 KiB").to_le_bytes();
    let (head, rest) = record.split_at_mut(8);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&length), rest).to_le_bytes();
    head.copy_from_slice(&[length, crc].concat());
    out.resize(start + (out.len() - start).next_multiple_of(8), 0);
}

/// Bytes of the record that [`encode_record`] writes for `rows`.
pub(super) fn record_bytes(rows: &Rows) -> usize {
    let body: usize =
        rows.iter().map(|(key, value)| 5 + key.len() + value.as_ref().map_or(0, Vec::len)).sum();
    (RECORD_HEADER_BYTES + 2 + body).next_multiple_of(8)
}

/// The most bytes of records in one group: what an empty file holds.
pub(super) const GROUP_BYTES_MAX: usize = FILE_BYTES - HEADER_BYTES;

#[cfg(test)]
mod tests;
