//! Records as they are copied from a primary to its follower (docs/standby.md section 2): read
//! behind the writer, and written with the same numbers.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use super::file;
use super::log::{Draft, Log};
use super::record::{
    FILE_HEADER_BYTES, FileHeader, Layout, MAGIC_WAL, ParsedRecord, RecordKind, parse_switch,
};
use super::samples;
use crate::kv::keyed::KEYED_FILE_HEADER_BYTES;
use crate::kv::ops;
use crate::model::OrgId;
use crate::tsdb::disk;
use crate::tsdb::error::{CopyError, DiskError};
use crate::tsdb::report::LogRecord;
use crate::tsdb::side_data;

/// The bytes of one read. A longer record is read whole.
const READ_BYTES: usize = 256 << 10;

/// A record of the primary with its number.
#[derive(Debug)]
pub(in crate::tsdb) struct CopiedRecord {
    pub(in crate::tsdb) seq: u64,
    pub(in crate::tsdb) org: OrgId,
    pub(in crate::tsdb) kind: RecordKind,
    /// The length of the next file in bytes, for a switch record.
    pub(in crate::tsdb) next_file_bytes: u32,
    pub(in crate::tsdb) body: Vec<u8>,
}

impl CopiedRecord {
    pub(in crate::tsdb) fn new(record: LogRecord) -> Result<CopiedRecord, CopyError> {
        let LogRecord { seq, org, kind, version, next_file_bytes, body } = record;
        let invalid = |what: &str| CopyError::Invalid { seq, what: what.to_owned() };
        let kind = RecordKind::of(kind, version).ok_or_else(|| invalid("its kind is unknown"))?;
        if matches!(kind, RecordKind::RegistrySeries | RecordKind::RegistryMetadata) || body.is_empty() {
            return Err(invalid("it is not a record of a log"));
        }
        Ok(CopiedRecord { seq, org, kind, next_file_bytes, body })
    }

    /// Returns the draft that is written and applied. Decodes samples, so that a damaged body is
    /// noticed before it is written.
    pub(in crate::tsdb) fn into_draft(self) -> Result<Draft, CopyError> {
        let CopiedRecord { seq, org, kind, body, .. } = self;
        let mut decoded = Vec::new();
        let mut greatest_ms = side_data::record::greatest_ms(kind, &body);
        if kind.is_samples() {
            let invalid = |e: crate::tsdb::error::Damage| CopyError::Invalid { seq, what: e.to_string() };
            samples::decode(kind, &body, &mut decoded).map_err(invalid)?;
            let newest = decoded.iter().map(|sample| sample.at_ms).max();
            greatest_ms = greatest_ms.max(newest.unwrap_or(i64::MIN));
        }
        Ok(Draft { samples: decoded, greatest_ms, is_copied: true, ..Draft::new(org, kind, body) })
    }
}

/// A reader of the log behind its writer.
#[derive(Debug)]
pub(in crate::tsdb) struct CopyReader {
    next_seq: u64,
    open: Option<OpenFile>,
}

/// The file of the next record.
#[derive(Debug)]
struct OpenFile {
    file: File,
    path: PathBuf,
    number: u64,
    layout: Layout,
    length: u64,
    /// The offset of the next record.
    offset: u64,
    /// The offset of the buffer in the file.
    start: u64,
    buffer: Vec<u8>,
}

impl OpenFile {
    fn open(path: PathBuf, number: u64) -> Result<OpenFile, DiskError> {
        let file = ops::open_to_read(&path).map_err(DiskError::at("open", &path))?;
        let length = file.metadata().map_err(DiskError::at("look at", &path))?.len();
        let start = disk::read_start(&path, KEYED_FILE_HEADER_BYTES as u64)?;
        let layout = Layout::of(&start, number);
        let offset = layout.first_record() as u64;
        Ok(OpenFile { file, path, number, layout, length, offset, start: 0, buffer: Vec::new() })
    }

    /// Returns at least `bytes` bytes from the offset on, fewer at the end of the file.
    fn at_offset(&mut self, bytes: usize) -> Result<&[u8], DiskError> {
        let left = usize::try_from(self.length.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let skip = self.offset.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        let known = skip.filter(|skip| skip.saturating_add(bytes.min(left)) <= self.buffer.len());
        let skip = match known {
            Some(skip) => skip,
            None => {
                self.start = self.offset;
                self.buffer.resize(bytes.max(READ_BYTES).min(left), 0);
                self.file
                    .read_exact_at(&mut self.buffer, self.start)
                    .map_err(DiskError::at("read", &self.path))?;
                0
            }
        };
        Ok(self.buffer.get(skip..).unwrap_or_default())
    }

    fn record(&mut self) -> Result<ParsedRecord<'_>, DiskError> {
        let layout = self.layout;
        let whole = layout.promised_bytes(self.at_offset(layout.header_bytes())?);
        Ok(layout.parse(self.at_offset(whole)?))
    }

    /// Forgets bytes that were read before the writer wrote them.
    fn forget_buffer(&mut self) {
        self.buffer.clear();
    }
}

impl CopyReader {
    /// Creates a reader whose first record is `next_seq`.
    pub(in crate::tsdb) const fn new(next_seq: u64) -> CopyReader {
        CopyReader { next_seq, open: None }
    }

    /// Reads records up to `limit` (inclusive), which are durable and applied, but not more than
    /// `bytes_max` bytes and one record.
    ///
    /// # Errors
    /// [`CopyError::Trimmed`], [`CopyError::Damaged`] or [`CopyError::Disk`].
    pub(in crate::tsdb) fn read(
        &mut self,
        log: &Log,
        limit: u64,
        bytes_max: usize,
    ) -> Result<Vec<LogRecord>, CopyError> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while self.next_seq <= limit && bytes < bytes_max {
            let record = self.next(log)?;
            bytes += record.body.len() + 64;
            records.push(record);
        }
        Ok(records)
    }

    /// Returns a checksum over the records of the file with record `seq`, from its beginning up to
    /// that record (inclusive). Marks and switches, which differ between primary and follower, do
    /// not count.
    ///
    /// # Errors
    /// As for [`CopyReader::read`].
    pub(in crate::tsdb) fn check(log: &Log, seq: u64) -> Result<u32, CopyError> {
        let mut open = file_with(log, seq)?;
        let mut check = 0;
        loop {
            let ParsedRecord::Record(header, body, bytes) = open.record()? else {
                return Err(CopyError::Damaged { path: open.path, offset: open.offset });
            };
            if !matches!(header.kind, Some(RecordKind::Mark | RecordKind::Switch)) {
                check = crc32c::crc32c_append(check, &header.seq.to_le_bytes());
                check = crc32c::crc32c_append(check, body);
            }
            if header.seq >= seq {
                return Ok(check);
            }
            open.offset += bytes as u64;
        }
    }

    fn next(&mut self, log: &Log) -> Result<LogRecord, CopyError> {
        loop {
            let wanted = self.next_seq;
            let mut open = match self.open.take() {
                Some(open) => open,
                None => file_with(log, wanted)?,
            };
            let found = match open.record()? {
                ParsedRecord::Record(header, body, bytes) => Some((header, body.to_vec(), bytes)),
                _ => None,
            };
            let Some((header, body, bytes)) = found else {
                open.forget_buffer();
                if let ParsedRecord::Record(..) = open.record()? {
                    self.open = Some(open);
                    continue;
                }
                // A file of an earlier version may end without a switch.
                let later = file_with(log, wanted)?;
                if later.number == open.number {
                    return Err(CopyError::Damaged { path: open.path, offset: open.offset });
                }
                self.open = Some(later);
                continue;
            };
            let damaged =
                |open: &OpenFile| CopyError::Damaged { path: open.path.clone(), offset: open.offset };
            let Some(kind) = header.kind.filter(|_| header.seq <= wanted) else { return Err(damaged(&open)) };
            if header.seq < wanted {
                open.offset += bytes as u64;
                self.open = Some(open);
                continue;
            }
            let mut next_file_bytes = 0;
            if kind == RecordKind::Switch {
                let next = parse_switch(&body).map_err(|_| damaged(&open))?;
                let path = file::path_of(log.dir(), next);
                let start = disk::read_start(&path, FILE_HEADER_BYTES as u64)?;
                let header = FileHeader::parse(&start, MAGIC_WAL);
                next_file_bytes = header.map_err(|_| CopyError::Damaged { path, offset: 0 })?.file_bytes;
            } else {
                open.offset += bytes as u64;
                self.open = Some(open);
            }
            self.next_seq += 1;
            let (kind, version) = (kind.code(), kind.version());
            return Ok(LogRecord { seq: wanted, org: header.org, kind, version, next_file_bytes, body });
        }
    }
}

/// Opens the file that holds the record `seq`, which is written.
fn file_with(log: &Log, seq: u64) -> Result<OpenFile, CopyError> {
    let number = log.file_of(seq).map_err(|first| CopyError::Trimmed { first, wanted: seq })?;
    Ok(OpenFile::open(file::path_of(log.dir(), number), number)?)
}
