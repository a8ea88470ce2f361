//! A writer of a block folder.
//!
//! The folder has a temporary name, which Prometheus removes at its start, until everything is
//! synced.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use super::bytes::put_uvarint;
use super::chunk_files::{CHUNKS_FOLDER, CHUNKS_HEADER_BYTES, CHUNKS_MAGIC, CHUNKS_VERSION};
use super::index::{ChunkRef, INDEX_FILE};
use super::meta::{BlockCompaction, META_FILE};
use super::tombstones::TOMBSTONES_FILE;
use super::write_index::IndexWriter;
use super::{BlockError, BlockMeta, BlockStats, DeletedRanges, Ulid};
use crate::ingest::prometheus_chunk::{ChunkKind, EncodedChunk};
use crate::model::Labels;

/// The ending of the name of an incomplete block.
const TEMPORARY: &str = ".tmp-for-creation";
/// A file of chunks has at most this many bytes, as those of Prometheus.
const CHUNK_FILE_BYTES_MAX: u64 = 512 << 20;

/// A block under construction. Its folder is removed if the writer is dropped before
/// [`BlockWriter::finish`].
#[derive(Debug)]
pub struct BlockWriter {
    parent: PathBuf,
    temporary: PathBuf,
    ulid: Ulid,
    index: IndexWriter,
    chunks: ChunkWriter,
    stats: BlockStats,
    times: Option<(i64, i64)>,
    is_finished: bool,
}

/// A complete block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenBlock {
    /// The folder.
    pub folder: PathBuf,
    /// The description.
    pub meta: BlockMeta,
}

impl BlockWriter {
    /// Begins a block in `parent`. `labels` are those of all series that may be added.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn create<'l>(
        parent: &Path,
        ulid: Ulid,
        labels: impl IntoIterator<Item = &'l Labels>,
    ) -> Result<BlockWriter, BlockError> {
        let temporary = parent.join(format!("{ulid}{TEMPORARY}"));
        let chunks = temporary.join(CHUNKS_FOLDER);
        if temporary.exists() {
            let removed = std::fs::remove_dir_all(&temporary);
            removed.map_err(|source| BlockError::Io { file: temporary.clone(), source })?;
        }
        std::fs::create_dir_all(&chunks).map_err(|source| BlockError::Io { file: chunks.clone(), source })?;
        let index = IndexWriter::create(&temporary.join(INDEX_FILE), labels)?;
        Ok(BlockWriter {
            parent: parent.to_owned(),
            temporary,
            ulid,
            index,
            chunks: ChunkWriter { folder: chunks, files: 0, open: None },
            stats: BlockStats::default(),
            times: None,
            is_finished: false,
        })
    }

    /// Adds a series with its chunks, which follow one another in time. Series are added in the
    /// order of their labels. A series without chunks is left out.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn add_series(&mut self, labels: &Labels, chunks: &[EncodedChunk]) -> Result<(), BlockError> {
        let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else { return Ok(()) };
        if !chunks.is_sorted_by(|a, b| a.last_ms < b.first_ms) {
            return Err(BlockError::Limit("the chunks of a series overlap"));
        }
        let mut refs = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            refs.push(self.chunks.write(chunk)?);
            let samples = u64::from(chunk.samples);
            let counter = match chunk.kind {
                ChunkKind::Floats => &mut self.stats.num_float_samples,
                ChunkKind::Histograms | ChunkKind::FloatHistograms => &mut self.stats.num_histogram_samples,
            };
            *counter = counter.saturating_add(samples);
            self.stats.num_samples = self.stats.num_samples.saturating_add(samples);
        }
        self.index.add_series(labels, &refs)?;
        self.stats.num_series = self.stats.num_series.saturating_add(1);
        self.stats.num_chunks = self.stats.num_chunks.saturating_add(chunks.len() as u64);
        let (start, end) = self.times.unwrap_or((first.first_ms, last.last_ms));
        self.times = Some((start.min(first.first_ms), end.max(last.last_ms)));
        Ok(())
    }

    /// Completes the block and gives it its name. A block without series is not written.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn finish(mut self) -> Result<Option<WrittenBlock>, BlockError> {
        let Some((first_ms, last_ms)) = self.times else { return Ok(None) };
        self.index.finish()?;
        self.chunks.close()?;
        let name = self.ulid.to_string();
        let compaction = BlockCompaction { level: 1, sources: vec![name.clone()], hints: Vec::new() };
        let meta = BlockMeta {
            ulid: name.clone(),
            min_time: first_ms,
            max_time: last_ms.saturating_add(1),
            stats: self.stats,
            compaction,
            version: 1,
        };
        let text = serde_json::to_vec_pretty(&meta)
            .map_err(|error| BlockError::Io { file: self.temporary.join(META_FILE), source: error.into() })?;
        write_synced(&self.temporary.join(TOMBSTONES_FILE), &DeletedRanges::empty_file())?;
        write_synced(&self.temporary.join(META_FILE), &text)?;
        sync_folder(&self.temporary.join(CHUNKS_FOLDER))?;
        sync_folder(&self.temporary)?;
        let folder = self.parent.join(&name);
        std::fs::rename(&self.temporary, &folder)
            .map_err(|source| BlockError::Io { file: folder.clone(), source })?;
        self.is_finished = true;
        sync_folder(&self.parent)?;
        Ok(Some(WrittenBlock { folder, meta }))
    }
}

impl Drop for BlockWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            // Prometheus and the next export ignore the rest of the folder.
            let _ = std::fs::remove_dir_all(&self.temporary);
        }
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), BlockError> {
    let mut file = SequentialFile::create(path)?;
    file.write(bytes)?;
    file.sync()
}

fn sync_folder(path: &Path) -> Result<(), BlockError> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(|source| BlockError::Io { file: path.to_owned(), source })
}

/// A file that is written front to back.
#[derive(Debug)]
pub(super) struct SequentialFile {
    path: PathBuf,
    out: BufWriter<File>,
    len: u64,
}

impl SequentialFile {
    pub(super) fn create(path: &Path) -> Result<SequentialFile, BlockError> {
        let file = File::create(path).map_err(|source| BlockError::Io { file: path.to_owned(), source })?;
        Ok(SequentialFile { path: path.to_owned(), out: BufWriter::with_capacity(256 << 10, file), len: 0 })
    }

    /// Returns the position of the next byte.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), BlockError> {
        self.len = self.len.saturating_add(bytes.len() as u64);
        self.out.write_all(bytes).map_err(|source| BlockError::Io { file: self.path.clone(), source })
    }

    /// Writes zeros up to a multiple of `alignment` bytes.
    pub(super) fn align(&mut self, alignment: u64) -> Result<(), BlockError> {
        let missing = self.len.next_multiple_of(alignment).saturating_sub(self.len);
        (0..missing).try_for_each(|_| self.write(&[0]))
    }

    pub(super) fn sync(&mut self) -> Result<(), BlockError> {
        let synced = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
        synced.map_err(|source| BlockError::Io { file: self.path.clone(), source })
    }
}

/// The files of chunks of a block.
#[derive(Debug)]
struct ChunkWriter {
    folder: PathBuf,
    /// The number of files so far.
    files: u32,
    open: Option<SequentialFile>,
}

impl ChunkWriter {
    fn write(&mut self, chunk: &EncodedChunk) -> Result<ChunkRef, BlockError> {
        let mut bytes = Vec::with_capacity(chunk.data.len().saturating_add(16));
        put_uvarint(chunk.data.len() as u64, &mut bytes);
        let covered = bytes.len();
        bytes.push(chunk.kind.number());
        bytes.extend_from_slice(&chunk.data);
        let sum = super::checksum(bytes.get(covered..).unwrap_or_default());
        bytes.extend_from_slice(&sum.to_be_bytes());
        let is_full =
            |file: &SequentialFile| file.len().saturating_add(bytes.len() as u64) > CHUNK_FILE_BYTES_MAX;
        if self.open.as_ref().is_none_or(is_full) {
            self.close()?;
            self.open = Some(self.next_file()?);
        }
        let Some(file) = &mut self.open else { return Err(BlockError::Limit("no file of chunks is open")) };
        let offset = u32::try_from(file.len()).map_err(|_| BlockError::Limit("a file of chunks is full"))?;
        file.write(&bytes)?;
        Ok(ChunkRef {
            first_ms: chunk.first_ms,
            last_ms: chunk.last_ms,
            file: self.files.saturating_sub(1),
            offset,
        })
    }

    fn next_file(&mut self) -> Result<SequentialFile, BlockError> {
        self.files = self.files.saturating_add(1);
        let mut file = SequentialFile::create(&self.folder.join(format!("{:06}", self.files)))?;
        let mut header = CHUNKS_MAGIC.to_be_bytes().to_vec();
        header.push(CHUNKS_VERSION);
        header.resize(CHUNKS_HEADER_BYTES, 0);
        file.write(&header)?;
        Ok(file)
    }

    fn close(&mut self) -> Result<(), BlockError> {
        self.open.take().map_or(Ok(()), |mut file| file.sync())
    }
}
