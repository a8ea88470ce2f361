//! The files of chunks of a block.
//!
//! File: `u32 magic, u8 version, 3 zeros`, then chunks: `uvarint length, u8 encoding, data, u32
//! CRC-32C` of encoding and data.

use std::path::{Path, PathBuf};

use super::index::ChunkRef;
use super::{BlockError, BlockFile, ByteReader, Window, checksum};
use crate::ingest::prometheus_chunk::ChunkKind;

pub(super) const CHUNKS_FOLDER: &str = "chunks";
pub(super) const CHUNKS_MAGIC: u32 = 0x85bd_40dd;
pub(super) const CHUNKS_VERSION: u8 = 1;
/// Magic number, version and padding.
pub(super) const CHUNKS_HEADER_BYTES: usize = 8;
/// The greatest length of the data of a chunk in bytes.
pub(in crate::history) const CHUNK_BYTES_MAX: u64 = 16 << 20;
/// The most files of a block. Prometheus starts a new one after 512 MiB.
const FILES_MAX: usize = 65_536;

/// The open files of chunks of a block.
#[derive(Debug)]
pub(super) struct ChunkFiles {
    files: Vec<BlockFile>,
    /// The file whose bytes are in the window.
    current: usize,
    window: Window,
}

impl ChunkFiles {
    /// Opens the files, in the order of their names, and checks their headers.
    pub(super) fn open(block: &Path) -> Result<ChunkFiles, BlockError> {
        let folder = block.join(CHUNKS_FOLDER);
        let mut files = Vec::new();
        for path in numbered_files(&folder)? {
            let file = BlockFile::open(&path)?;
            let mut bytes = Vec::new();
            file.read(0, CHUNKS_HEADER_BYTES, &mut bytes)?;
            let mut header = ByteReader::new(&bytes);
            if header.u32() != Some(CHUNKS_MAGIC) || header.u8() != Some(CHUNKS_VERSION) {
                return Err(file.damaged(0, "not a file of chunks, or of an unknown version"));
            }
            files.push(file);
        }
        Ok(ChunkFiles { files, current: 0, window: Window::default() })
    }

    /// Returns the encoding and the data of a chunk. `index` and `offset` are the index and the
    /// position that refer to it.
    ///
    /// # Errors
    /// [`BlockError`].
    pub(super) fn read(
        &mut self,
        one: ChunkRef,
        index: &BlockFile,
        offset: u64,
    ) -> Result<(ChunkKind, &[u8]), BlockError> {
        let place = one.file as usize;
        let Some(file) = self.files.get(place) else {
            return Err(index.damaged(offset, format!("there is no file of chunks with the number {place}")));
        };
        if self.current != place {
            (self.current, self.window) = (place, Window::default());
        }
        let at = u64::from(one.offset);
        let wrong = "the length of a chunk is wrong";
        let (length, start) = self.window.length(file, at, CHUNK_BYTES_MAX, wrong)?;
        let covered = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(1);
        let bytes = self.window.exactly(file, start, covered.saturating_add(4))?;
        let (content, sum) = bytes.split_at_checked(covered).unwrap_or_default();
        if ByteReader::new(sum).u32() != Some(checksum(content)) {
            return Err(file.damaged(at, "a chunk has the wrong checksum"));
        }
        let (encoding, data) = content.split_first().unwrap_or((&0, &[]));
        let kind =
            ChunkKind::of(u64::from(*encoding)).map_err(|error| file.damaged(start, error.to_string()))?;
        Ok((kind, data))
    }

    /// Returns an error about the data of a chunk.
    pub(super) fn damaged(&self, one: ChunkRef, reason: impl Into<String>) -> BlockError {
        match self.files.get(one.file as usize) {
            Some(file) => file.damaged(u64::from(one.offset), reason),
            None => BlockError::Limit("a chunk is in no file"),
        }
    }
}

/// Returns the files of a folder whose names are numbers, by number; none if the folder is missing.
///
/// # Errors
/// [`BlockError`].
pub(in crate::history) fn numbered_files(folder: &Path) -> Result<Vec<PathBuf>, BlockError> {
    let failed = |source| BlockError::Io { file: folder.to_owned(), source };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if let Some(number) = name.to_str().and_then(|name| name.parse::<u64>().ok()) {
            files.push((number, entry.path()));
        }
        if files.len() > FILES_MAX {
            return Err(BlockError::Limit("a folder has more than 65,536 numbered files"));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}
