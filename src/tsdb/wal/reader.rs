//! A buffered reader of one log file, from front to back.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::file;
use super::record::{
    BODY_BYTES_MAX, BadEnd, HEADER_BYTES, Layout, ParsedRecord, RecordHeader, end_of_bad_plain_record,
    plain_header,
};
use crate::kv::keyed::KEYED_FILE_HEADER_BYTES;
use crate::kv::ops;
use crate::kv::zeros::written_bytes;
use crate::tsdb::error::DiskError;

/// The bytes of one read. A longer record is read whole.
const READ_BYTES: usize = 1 << 20;

/// An open log file and a buffered part of it.
#[derive(Debug)]
pub(in crate::tsdb) struct LogReader {
    file: File,
    path: PathBuf,
    length: u64,
    /// The offset of the buffer in the file.
    start: u64,
    buffer: Vec<u8>,
    layout: Layout,
}

impl LogReader {
    /// Opens a file of at most `bytes_max` bytes. The memory of `buffer` is reused.
    ///
    /// # Errors
    /// The file cannot be opened, or is longer than `bytes_max`.
    pub(in crate::tsdb) fn open(
        path: &Path,
        bytes_max: u64,
        mut buffer: Vec<u8>,
    ) -> Result<LogReader, DiskError> {
        let file = ops::open_to_read(path).map_err(DiskError::at("open", path))?;
        let length = file.metadata().map_err(DiskError::at("look at", path))?.len();
        if length > bytes_max {
            let why =
                io::Error::new(io::ErrorKind::InvalidData, format!("{length} bytes, {bytes_max} allowed"));
            return Err(DiskError::at("read", path)(why));
        }
        buffer.clear();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = file::number_of(&name).unwrap_or_default();
        let path = path.to_owned();
        let mut reader = LogReader { file, path, length, start: 0, buffer, layout: Layout::Lost };
        reader.layout = Layout::of(reader.header()?, number);
        Ok(reader)
    }

    /// Returns the layout of its records.
    pub(in crate::tsdb) const fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the offset of its first record.
    pub(in crate::tsdb) const fn first_record(&self) -> u64 {
        self.layout.first_record() as u64
    }

    /// Returns the buffer's memory, for the next file.
    pub(in crate::tsdb) fn into_memory(self) -> Vec<u8> {
        self.buffer
    }

    /// Returns at least `min_bytes` bytes from `at` on, fewer only at the end of the file.
    pub(in crate::tsdb) fn at(&mut self, at: u64, min_bytes: usize) -> Result<&[u8], DiskError> {
        let left = self.length.saturating_sub(at);
        let min_bytes = usize::try_from(left).map_or(min_bytes, |left| min_bytes.min(left));
        let skip = at.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        let has = |skip: &usize| skip.checked_add(min_bytes).is_some_and(|end| end <= self.buffer.len());
        let skip = match skip.filter(has) {
            Some(skip) => skip,
            None => {
                self.read(at, min_bytes)?;
                0
            }
        };
        Ok(self.buffer.get(skip..).unwrap_or_default())
    }

    fn read(&mut self, at: u64, min_bytes: usize) -> Result<(), DiskError> {
        let left = usize::try_from(self.length.saturating_sub(at)).unwrap_or(usize::MAX);
        // Reads more than `min_bytes`, so that the next calls find their bytes in the buffer.
        self.buffer.resize(min_bytes.saturating_add(READ_BYTES).min(left), 0);
        self.start = at;
        self.file.read_exact_at(&mut self.buffer, at).map_err(DiskError::at("read", &self.path))
    }

    /// Returns the bytes of the file header.
    pub(in crate::tsdb) fn header(&mut self) -> Result<&[u8], DiskError> {
        self.at(0, KEYED_FILE_HEADER_BYTES)
    }

    /// Parses the bytes at `at`.
    pub(in crate::tsdb) fn record(&mut self, at: u64) -> Result<ParsedRecord<'_>, DiskError> {
        let layout = self.layout;
        let whole = layout.promised_bytes(self.at(at, layout.header_bytes())?);
        Ok(layout.parse(self.at(at, whole)?))
    }

    /// Returns how the record `seq` at `at`, which does not verify, ends in a file of version 1.
    pub(in crate::tsdb) fn end_of_bad_record(
        &mut self,
        at: u64,
        seq: u64,
    ) -> Result<Option<BadEnd>, DiskError> {
        Ok(end_of_bad_plain_record(self.at(at, HEADER_BYTES + BODY_BYTES_MAX)?, seq))
    }

    /// Parses the bytes at `at` as a record header of version 1, without verification.
    pub(in crate::tsdb) fn plain_header(&mut self, at: u64) -> Result<Option<RecordHeader>, DiskError> {
        Ok(plain_header(self.at(at, HEADER_BYTES)?))
    }

    /// Returns the end of the last non-zero byte from `at` on, or `at` if all are zero.
    pub(in crate::tsdb) fn written_from(&mut self, at: u64) -> Result<u64, DiskError> {
        let (mut next, mut end) = (at, at);
        while next < self.length {
            let buffer = self.at(next, 1)?;
            let written = written_bytes(buffer);
            if written > 0 {
                end = next + written as u64;
            }
            next += buffer.len() as u64;
        }
        Ok(end)
    }

    /// Returns the length of the file in bytes.
    pub(in crate::tsdb) fn length(&self) -> u64 {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::keyed::RecordKey;
    use crate::model::{OrgId, StoreId};
    use crate::tsdb::wal::record::{FileHeader, MAGIC_WAL, NewRecord, RecordKind};

    #[test]
    fn a_buffered_reader_parses_every_offset_like_the_whole_file() {
        for layout in [Layout::Plain, Layout::Keyed(RecordKey::from_bytes([7; 16]))] {
            let store = StoreId([7; 16]);
            let header = FileHeader { file_bytes: 0, store, number: 1, created_ms: 0, before: 0, layout };
            let mut content = header.encode(MAGIC_WAL);
            let bodies = [1, 700, READ_BYTES - 24, 8, READ_BYTES * 2 + 5, 40];
            for (seq, bytes) in (1..).zip(bodies) {
                let record = NewRecord { seq, org: OrgId(3), kind: RecordKind::Samples, durable: seq };
                layout.put(&mut content, record, &vec![0xa5; bytes]);
            }
            content.resize(content.len() + READ_BYTES + 13, 0);
            let dir = crate::kv::scratch::temporary_folder().expect("made");
            let path = dir.path().join("1.wal");
            std::fs::write(&path, &content).expect("written");
            let mut reader = LogReader::open(&path, u64::MAX, Vec::new()).expect("opened");
            assert_eq!(reader.layout(), layout);
            let mut at = layout.first_record();
            let mut places = vec![1, 8, content.len() - 3, content.len(), content.len() + 9];
            while let ParsedRecord::Record(_, _, bytes) = layout.parse(&content[at..]) {
                places.extend([at, at + 1, at + 8]);
                at += bytes;
            }
            places.push(at);
            assert_eq!(places.len(), 5 + 3 * bodies.len() + 1);
            for at in places.iter().chain(places.iter().rev()) {
                let whole = layout.parse(content.get(*at..).unwrap_or_default());
                assert_eq!(reader.record(*at as u64).expect("read"), whole, "at {at}");
                let written = content.get(*at..).unwrap_or_default().iter().rposition(|b| *b != 0);
                let end = at + written.map_or(0, |last| last + 1);
                assert_eq!(reader.written_from(*at as u64).expect("read"), end as u64, "at {at}");
            }
        }
    }
}
