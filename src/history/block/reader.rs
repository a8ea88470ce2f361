//! A reader of a block: its series, and their samples without the deleted ones.

use std::path::Path;

use super::chunk_files::ChunkFiles;
use super::index::BlockIndex;
use super::{BlockError, BlockMeta, BlockSeries, DeletedRanges};
use crate::ingest::prometheus_chunk::{self, ChunkError, ChunkSample};
use crate::model::Timestamp;

/// An open block.
#[derive(Debug)]
pub struct BlockReader {
    index: BlockIndex,
    chunks: ChunkFiles,
    deleted: DeletedRanges,
}

/// The size of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Series.
    pub series: u64,
    /// Chunks.
    pub chunks: u64,
    /// Samples, including deleted ones.
    pub samples: u64,
}

impl BlockReader {
    /// Opens the block in a folder. The checksums of series and chunks are checked as they are
    /// read, all others here.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn open(folder: &Path) -> Result<BlockReader, BlockError> {
        // The file is only verified; the reader does not use it.
        BlockMeta::read(folder)?;
        Ok(BlockReader {
            index: BlockIndex::open(folder)?,
            chunks: ChunkFiles::open(folder)?,
            deleted: DeletedRanges::read(folder)?,
        })
    }

    /// Returns the number of series.
    pub const fn series_count(&self) -> u32 {
        self.index.series_count()
    }

    /// Returns a series by its place, from 0, in the order of their labels.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn series(&mut self, place: u32) -> Result<BlockSeries, BlockError> {
        self.index.series(place)
    }

    /// Reads every series and every chunk, and checks their checksums.
    ///
    /// # Errors
    /// The first [`BlockError`].
    pub fn verify(&mut self) -> Result<BlockCounts, BlockError> {
        let mut counts = BlockCounts::default();
        for place in 0..self.series_count() {
            let series = self.series(place)?;
            counts.series = counts.series.saturating_add(1);
            for one in &series.chunks {
                let (_, data) = self.chunks.read(*one, &self.index.file, series.offset)?;
                let samples = data.first_chunk().map(|count| u16::from_be_bytes(*count));
                counts.chunks = counts.chunks.saturating_add(1);
                counts.samples = counts.samples.saturating_add(samples.unwrap_or_default().into());
            }
        }
        Ok(counts)
    }

    /// Calls `each` with the time in milliseconds and the sample of each sample of a series that is
    /// not deleted, chunk by chunk. Chunks may overlap.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn samples(
        &mut self,
        series: &BlockSeries,
        mut each: impl FnMut(i64, ChunkSample),
    ) -> Result<(), BlockError> {
        (0..series.chunks.len()).try_for_each(|place| self.chunk_samples(series, place, &mut each))
    }

    /// Like [`BlockReader::samples`], for the chunk at a place. A place without a chunk has no
    /// samples.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn chunk_samples(
        &mut self,
        series: &BlockSeries,
        place: usize,
        mut each: impl FnMut(i64, ChunkSample),
    ) -> Result<(), BlockError> {
        let Some(one) = series.chunks.get(place).copied() else { return Ok(()) };
        let BlockReader { index, chunks, deleted, .. } = self;
        let ranges = deleted.of(series.number);
        let (kind, data) = chunks.read(one, &index.file, series.offset)?;
        let decoded = prometheus_chunk::decode::<ChunkError>(kind, data, |at, sample| {
            if !ranges.iter().any(|range| range.contains(Timestamp::from_ms(at))) {
                each(at, sample);
            }
            Ok(())
        });
        decoded.map_err(|error| chunks.damaged(one, error.to_string()))
    }
}
