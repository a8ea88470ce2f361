//! A file that is read in pieces.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::{BlockError, ByteReader, VARINT_BYTES_MAX};

/// An open file. Reads beyond its end are errors with a position.
#[derive(Debug)]
pub(in crate::history) struct BlockFile {
    path: PathBuf,
    file: File,
    len: u64,
}

impl BlockFile {
    pub(in crate::history) fn open(path: &Path) -> Result<BlockFile, BlockError> {
        let failed = |source| BlockError::Io { file: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(BlockFile::damage(path, 0, "this is no file"));
        }
        Ok(BlockFile { path: path.to_owned(), file, len: metadata.len() })
    }

    fn damage(path: &Path, offset: u64, reason: impl Into<String>) -> BlockError {
        BlockError::Damaged { file: path.to_owned(), offset, reason: reason.into() }
    }

    /// Returns an error about the bytes at `offset`.
    pub(in crate::history) fn damaged(&self, offset: u64, reason: impl Into<String>) -> BlockError {
        BlockFile::damage(&self.path, offset, reason)
    }

    /// Returns the length in bytes at the time of opening.
    pub(in crate::history) const fn len(&self) -> u64 {
        self.len
    }

    /// Replaces `out` by `length` bytes at `offset`.
    ///
    /// # Errors
    /// [`BlockError`]; before any allocation if the file has fewer bytes.
    pub(in crate::history) fn read(
        &self,
        offset: u64,
        length: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), BlockError> {
        if offset.checked_add(length as u64).is_none_or(|end| end > self.len) {
            return Err(self.damaged(offset, format!("the file ends before {length} bytes from here")));
        }
        out.clear();
        out.resize(length, 0);
        let failed = |source| BlockError::Io { file: self.path.clone(), source };
        self.file.read_exact_at(out, offset).map_err(failed)
    }

    /// Returns the CRC-32C of `length` bytes at `offset`, which are read in pieces.
    pub(in crate::history) fn checksum(&self, offset: u64, length: u64) -> Result<u32, BlockError> {
        let (mut at, mut left, mut sum) = (offset, length, 0);
        let mut piece = Vec::new();
        while left > 0 {
            let some = left.min(PIECE_BYTES);
            self.read(at, usize::try_from(some).unwrap_or(usize::MAX), &mut piece)?;
            sum = crc32c::crc32c_append(sum, &piece);
            (at, left) = (at.saturating_add(some), left.saturating_sub(some));
        }
        Ok(sum)
    }

    /// Checks a section `u32 length, bytes, u32 CRC-32C`. Returns the length of its bytes.
    ///
    /// # Errors
    /// [`BlockError`].
    pub(in crate::history) fn check_section(&self, offset: u64) -> Result<u64, BlockError> {
        let mut four = Vec::new();
        self.read(offset, 4, &mut four)?;
        let length = u64::from(be_u32(&four));
        let content = offset.saturating_add(4);
        if content.saturating_add(length).saturating_add(4) > self.len {
            return Err(
                self.damaged(offset, format!("a section of {length} bytes does not fit into the file"))
            );
        }
        let found = self.checksum(content, length)?;
        self.read(content.saturating_add(length), 4, &mut four)?;
        if found != be_u32(&four) {
            return Err(self.damaged(offset, "a section has the wrong checksum"));
        }
        Ok(length)
    }
}

/// Bytes that are read at once.
pub(super) const PIECE_BYTES: u64 = 256 << 10;

/// Returns the number in the first four bytes, 0 if there are fewer.
pub(super) fn be_u32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// A buffer for reads that mostly ascend.
#[derive(Debug, Default)]
pub(in crate::history) struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Returns at least one and at most `most` bytes at `offset`: fewer only at the end of the
    /// file.
    ///
    /// # Errors
    /// [`BlockError`], also if the file has no byte there.
    pub(in crate::history) fn up_to(
        &mut self,
        file: &BlockFile,
        offset: u64,
        most: usize,
    ) -> Result<&[u8], BlockError> {
        let left = usize::try_from(file.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        if left == 0 {
            return Err(file.damaged(offset, "the file ends here"));
        }
        self.exactly(file, offset, most.min(left))
    }

    /// Reads a varint at `offset` that is the length of the bytes behind it, at most `most`.
    /// Returns it with the position of those bytes.
    ///
    /// # Errors
    /// [`BlockError`], with this reason if the length is wrong.
    pub(super) fn length(
        &mut self,
        file: &BlockFile,
        offset: u64,
        most: u64,
        wrong: &'static str,
    ) -> Result<(u64, u64), BlockError> {
        let mut head = ByteReader::new(self.up_to(file, offset, VARINT_BYTES_MAX)?);
        let before = head.len();
        let length = head.uvarint().filter(|length| *length <= most);
        let length = length.ok_or_else(|| file.damaged(offset, wrong))?;
        Ok((length, offset.saturating_add(before.saturating_sub(head.len()) as u64)))
    }

    /// Returns `length` bytes at `offset`.
    ///
    /// # Errors
    /// [`BlockError`].
    pub(in crate::history) fn exactly(
        &mut self,
        file: &BlockFile,
        offset: u64,
        length: usize,
    ) -> Result<&[u8], BlockError> {
        let end = offset.saturating_add(length as u64);
        let held = self.start.saturating_add(self.bytes.len() as u64);
        if offset < self.start || end > held {
            let left = file.len().saturating_sub(offset);
            let some = left.min(PIECE_BYTES.max(length as u64));
            let some = usize::try_from(some).unwrap_or(usize::MAX).max(length);
            self.start = offset;
            file.read(offset, some, &mut self.bytes).inspect_err(|_| self.bytes.clear())?;
        }
        let from = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let found = self.bytes.get(from..from.saturating_add(length));
        found.ok_or_else(|| file.damaged(offset, "the file ends here"))
    }
}
