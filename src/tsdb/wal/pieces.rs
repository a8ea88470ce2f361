//! A log file read from front to back, of which a piece is in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::file;
use super::record::{
    BODY_BYTES_MAX, BadEnd, Found, HEADER_BYTES, Header, Layout, end_of_bad_plain_record, plain_header,
};
use crate::kv::keyed::KEYED_FILE_HEADER_BYTES;
use crate::kv::ops;
use crate::tsdb::error::DiskError;

/// Bytes read at once; a longer record is read whole.
const PIECE_BYTES: usize = 1 << 20;

/// An open file and a piece of it.
#[derive(Debug)]
pub(in crate::tsdb) struct Pieces {
    file: File,
    path: PathBuf,
    length: u64,
    /// Where the piece begins.
    start: u64,
    piece: Vec<u8>,
    layout: Layout,
}

impl Pieces {
    /// Opens a file of at most `bytes_max` bytes. `piece` lends its memory.
    ///
    /// # Errors
    /// Where the file system refuses, or the file is longer.
    pub(in crate::tsdb) fn open(
        path: &Path,
        bytes_max: u64,
        mut piece: Vec<u8>,
    ) -> Result<Pieces, DiskError> {
        let file = ops::open_to_read(path).map_err(DiskError::at("open", path))?;
        let length = file.metadata().map_err(DiskError::at("look at", path))?.len();
        if length > bytes_max {
            let why =
                io::Error::new(io::ErrorKind::InvalidData, format!("{length} bytes, {bytes_max} allowed"));
            return Err(DiskError::at("read", path)(why));
        }
        piece.clear();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = file::number_of(&name).unwrap_or_default();
        let path = path.to_owned();
        let mut pieces = Pieces { file, path, length, start: 0, piece, layout: Layout::Lost };
        pieces.layout = Layout::of(pieces.header()?, number);
        Ok(pieces)
    }

    /// How its records are verified.
    pub(in crate::tsdb) const fn layout(&self) -> Layout {
        self.layout
    }

    /// Where its first record stands.
    pub(in crate::tsdb) const fn first_record(&self) -> u64 {
        self.layout.first_record() as u64
    }

    /// The memory, for the next file.
    pub(in crate::tsdb) fn into_memory(self) -> Vec<u8> {
        self.piece
    }

    /// Bytes from `at` on: `wanted` of them or more, fewer where the file ends.
    pub(in crate::tsdb) fn at(&mut self, at: u64, wanted: usize) -> Result<&[u8], DiskError> {
        let left = self.length.saturating_sub(at);
        let wanted = usize::try_from(left).map_or(wanted, |left| wanted.min(left));
        let skip = at.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        let has = |skip: &usize| skip.checked_add(wanted).is_some_and(|end| end <= self.piece.len());
        let skip = match skip.filter(has) {
            Some(skip) => skip,
            None => {
                self.read(at, wanted)?;
                0
            }
        };
        Ok(self.piece.get(skip..).unwrap_or_default())
    }

    fn read(&mut self, at: u64, wanted: usize) -> Result<(), DiskError> {
        let left = usize::try_from(self.length.saturating_sub(at)).unwrap_or(usize::MAX);
        // More than is wanted, so that the next look a little further on finds its bytes, too.
        self.piece.resize(wanted.saturating_add(PIECE_BYTES).min(left), 0);
        self.start = at;
        self.file.read_exact_at(&mut self.piece, at).map_err(DiskError::at("read", &self.path))
    }

    /// The beginning of the file, where its header stands.
    pub(in crate::tsdb) fn header(&mut self) -> Result<&[u8], DiskError> {
        self.at(0, KEYED_FILE_HEADER_BYTES)
    }

    /// What stands at `at`.
    pub(in crate::tsdb) fn record(&mut self, at: u64) -> Result<Found<'_>, DiskError> {
        let layout = self.layout;
        let whole = layout.promised_bytes(self.at(at, layout.header_bytes())?);
        Ok(layout.find(self.at(at, whole)?))
    }

    /// In a file of version 1: how the record `seq` at `at` ends, which does not verify.
    pub(in crate::tsdb) fn end_of_bad_record(
        &mut self,
        at: u64,
        seq: u64,
    ) -> Result<Option<BadEnd>, DiskError> {
        Ok(end_of_bad_plain_record(self.at(at, HEADER_BYTES + BODY_BYTES_MAX)?, seq))
    }

    /// What the bytes at `at` say as the header of a record of version 1, whether it verifies or not.
    pub(in crate::tsdb) fn plain_header(&mut self, at: u64) -> Result<Option<Header>, DiskError> {
        Ok(plain_header(self.at(at, HEADER_BYTES)?))
    }

    /// Where the last byte from `at` on ends that is not zero; `at` where all of them are.
    pub(in crate::tsdb) fn written_from(&mut self, at: u64) -> Result<u64, DiskError> {
        let (mut next, mut end) = (at, at);
        while next < self.length {
            let piece = self.at(next, 1)?;
            if let Some(last) = piece.iter().rposition(|byte| *byte != 0) {
                end = next + last as u64 + 1;
            }
            next += piece.len() as u64;
        }
        Ok(end)
    }

    /// Bytes of the file.
    pub(in crate::tsdb) fn length(&self) -> u64 {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::keyed::RecordKey;
    use crate::model::{OrgId, StoreId};
    use crate::tsdb::wal::record::{FileHeader, Kind, MAGIC_WAL, NewRecord};

    #[test]
    fn a_file_in_pieces_says_what_the_whole_file_says_at_every_place() {
        for layout in [Layout::Plain, Layout::Keyed(RecordKey::from_bytes([7; 16]))] {
            let store = StoreId([7; 16]);
            let header = FileHeader { file_bytes: 0, store, number: 1, created_ms: 0, before: 0, layout };
            let mut content = header.encode(MAGIC_WAL);
            let bodies = [1, 700, PIECE_BYTES - 24, 8, PIECE_BYTES * 2 + 5, 40];
            for (seq, bytes) in (1..).zip(bodies) {
                let record = NewRecord { seq, org: OrgId(3), kind: Kind::Samples, durable: seq };
                layout.put(&mut content, record, &vec![0xa5; bytes]);
            }
            content.resize(content.len() + PIECE_BYTES + 13, 0);
            let dir = tempfile::tempdir().expect("made");
            let path = dir.path().join("1.wal");
            std::fs::write(&path, &content).expect("written");
            let mut pieces = Pieces::open(&path, u64::MAX, Vec::new()).expect("opened");
            assert_eq!(pieces.layout(), layout);
            let mut at = layout.first_record();
            let mut places = vec![1, 8, content.len() - 3, content.len(), content.len() + 9];
            while let Found::Record(_, _, bytes) = layout.find(&content[at..]) {
                places.extend([at, at + 1, at + 8]);
                at += bytes;
            }
            places.push(at);
            assert_eq!(places.len(), 5 + 3 * bodies.len() + 1);
            for at in places.iter().chain(places.iter().rev()) {
                let whole = layout.find(content.get(*at..).unwrap_or_default());
                assert_eq!(pieces.record(*at as u64).expect("read"), whole, "at {at}");
                let written = content.get(*at..).unwrap_or_default().iter().rposition(|b| *b != 0);
                let end = at + written.map_or(0, |last| last + 1);
                assert_eq!(pieces.written_from(*at as u64).expect("read"), end as u64, "at {at}");
            }
        }
    }
}
