//! The records in the segments of a log.
//!
//! Fragment: `u8 type, u16 length, u32 CRC-32C, data`. Type: bits 0 to 2 are 0 for the padding of a
//! page, 1 for a whole record, 2 for the first, 3 for a middle and 4 for the last fragment; bit 3
//! means snappy, bit 4 zstd. A record does not span segments.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::super::block::{BlockError, BlockFile, ByteReader, Window, checksum, numbered_files};

const PAGE_BYTES: u64 = 32 << 10;
const HEADER_BYTES: usize = 7;
/// The greatest size of a record in bytes, before and after decompression.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// The greatest window of zstd: 2 to this power.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// The beginning of the name of a checkpoint.
const CHECKPOINT: &str = "checkpoint.";

/// A place in a log.
#[derive(Debug)]
pub(super) struct RecordPlace<'f> {
    file: &'f BlockFile,
    offset: u64,
}

impl RecordPlace<'_> {
    /// Returns an error about the record.
    pub(super) fn damaged(&self, reason: impl Into<String>) -> BlockError {
        self.file.damaged(self.offset, reason)
    }
}

/// Receives the records of a segment with their places.
pub(super) type EachRecord<'e> = &'e mut dyn FnMut(&[u8], &RecordPlace<'_>) -> Result<(), BlockError>;

/// Returns the segments of a log in the order in which they are read: those of the newest
/// checkpoint, and those after it.
///
/// # Errors
/// [`BlockError`].
pub(super) fn segments(log: &Path) -> Result<Vec<PathBuf>, BlockError> {
    let failed = |source| BlockError::Io { file: log.to_owned(), source };
    let entries = match std::fs::read_dir(log) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut newest = None;
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(CHECKPOINT));
        newest = newest
            .max(number.and_then(|number| number.parse::<u64>().ok()).map(|number| (number, entry.path())));
    }
    let (covered, mut all) = match newest {
        Some((number, folder)) => (Some(number), numbered_files(&folder)?),
        None => (None, Vec::new()),
    };
    let number_of = |path: &Path| path.file_name()?.to_str()?.parse::<u64>().ok();
    all.extend(numbered_files(log)?.into_iter().filter(|path| number_of(path) > covered));
    Ok(all)
}

/// Calls `each` with each record of a segment. A record that the end of the last segment cuts off
/// was never complete and is left out.
///
/// # Errors
/// [`BlockError`], and those of `each`.
pub(super) fn read_segment(path: &Path, is_last: bool, each: EachRecord<'_>) -> Result<(), BlockError> {
    let file = BlockFile::open(path)?;
    let (mut window, mut compressed, mut plain) = (Window::default(), Vec::new(), Vec::new());
    let (mut at, mut started_at) = (0_u64, None);
    while at < file.len() {
        let page_left = PAGE_BYTES.saturating_sub(at % PAGE_BYTES);
        let kind = window.exactly(&file, at, 1)?.first().copied().unwrap_or_default();
        if kind & 7 == 0 {
            at = at.saturating_add(page_left);
            continue;
        }
        if is_last && file.len().saturating_sub(at) < HEADER_BYTES as u64 {
            return Ok(());
        }
        let mut header = ByteReader::new(window.exactly(&file, at, HEADER_BYTES)?);
        header.u8();
        let length = header.array().map_or(0, u16::from_be_bytes);
        let expected = header.u32().unwrap_or_default();
        let end = at.saturating_add(HEADER_BYTES as u64).saturating_add(length.into());
        if end > at.saturating_add(page_left) {
            return Err(file.damaged(at, "a fragment of a record exceeds its page"));
        }
        if end > file.len() && is_last {
            return Ok(());
        }
        let data = window.exactly(&file, at.saturating_add(HEADER_BYTES as u64), length.into())?;
        if checksum(data) != expected {
            return Err(file.damaged(at, "a fragment of a record has the wrong checksum"));
        }
        let begins = matches!(kind & 7, 1 | 2);
        if begins != started_at.is_none() || kind & 7 > 4 {
            return Err(file.damaged(at, "a fragment of a record is out of order"));
        }
        let first = *started_at.get_or_insert(at);
        if compressed.len().saturating_add(data.len()) > RECORD_BYTES_MAX {
            return Err(file.damaged(first, format!("a record has more than {RECORD_BYTES_MAX} bytes")));
        }
        compressed.extend_from_slice(data);
        if matches!(kind & 7, 1 | 4) {
            let place = RecordPlace { file: &file, offset: first };
            each(decompressed(kind, &compressed, &mut plain, &place)?, &place)?;
            compressed.clear();
            started_at = None;
        }
        at = end;
    }
    match started_at {
        Some(first) if !is_last => Err(file.damaged(first, "a record ends early")),
        _ => Ok(()),
    }
}

fn decompressed<'r>(
    kind: u8,
    record: &'r [u8],
    plain: &'r mut Vec<u8>,
    place: &RecordPlace<'_>,
) -> Result<&'r [u8], BlockError> {
    let too_large = || place.damaged(format!("a record has more than {RECORD_BYTES_MAX} bytes"));
    match kind >> 3 & 3 {
        0 => return Ok(record),
        1 => {
            let length =
                snap::raw::decompress_len(record).map_err(|error| place.damaged(error.to_string()))?;
            if length > RECORD_BYTES_MAX {
                return Err(too_large());
            }
            plain.clear();
            plain.resize(length, 0);
            let done = snap::raw::Decoder::new().decompress(record, plain);
            done.map_err(|error| place.damaged(error.to_string()))?;
        }
        2 => {
            plain.clear();
            let failed = |error: std::io::Error| place.damaged(format!("zstd: {error}"));
            let mut decoder = zstd::stream::read::Decoder::with_buffer(record).map_err(failed)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(failed)?;
            let most = (RECORD_BYTES_MAX as u64).saturating_add(1);
            decoder.take(most).read_to_end(plain).map_err(failed)?;
            if plain.len() > RECORD_BYTES_MAX {
                return Err(too_large());
            }
        }
        _ => return Err(place.damaged("a record has two compressions")),
    }
    Ok(plain)
}
