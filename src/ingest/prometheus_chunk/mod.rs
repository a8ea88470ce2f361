//! Prometheus' chunks of samples, encoded and decoded (prometheus/tsdb/chunkenc). Remote read,
//! blocks and the head chunks of a Prometheus use them.
//!
//! * Float chunk (XOR): `u16 samples`, then bits: the first sample's time (varint) and value (64),
//!   the second one's time difference (uvarint) and value (XOR), then for each sample the
//!   difference of time differences and the value (XOR).
//! * Histogram chunks: `u16 samples`, `u8 flags` whose two highest bits are the reset hint of the
//!   first sample, then bits: the layout, the first sample in full, and for each sample differences
//!   of differences (times and integer counts) or XOR values (sums and float counts). A staleness
//!   marker has no buckets.
//!
//! All samples of a histogram chunk have one layout. A counter reset and a change between counters
//! and gauges start a new chunk, so the hint of each sample but the first follows from the chunk.

mod bit_reader;
mod bit_writer;
mod decode;
mod encode;
mod encode_histograms;
#[cfg(test)]
mod tests;

use crate::model::{Histogram, HistogramError};

pub use decode::decode;
pub use encode::{ChunkEncoder, EncodedChunk};

/// An encoding of chunks, by its number in remote read and in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkKind {
    /// Floats, XOR encoded.
    Floats = 1,
    /// Native histograms with integer counts.
    Histograms = 2,
    /// Native histograms with float counts.
    FloatHistograms = 3,
}

impl ChunkKind {
    /// Returns the encoding with this number.
    ///
    /// # Errors
    /// [`ChunkError::Encoding`] for encodings that are not read here.
    pub const fn of(number: u64) -> Result<ChunkKind, ChunkError> {
        match number {
            1 => Ok(ChunkKind::Floats),
            2 => Ok(ChunkKind::Histograms),
            3 => Ok(ChunkKind::FloatHistograms),
            _ => Err(ChunkError::Encoding(number)),
        }
    }

    /// Returns the number of the encoding.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// A sample of a chunk.
#[derive(Clone, Debug, PartialEq)]
pub enum ChunkSample {
    /// A float.
    Float(f64),
    /// A native histogram, or the staleness marker of one.
    Native(Histogram),
}

/// The reason why bytes are not a chunk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The chunk ends before its last sample.
    #[error("a chunk ends before its last sample")]
    Truncated,
    /// The decoder does not know the encoding.
    #[error("chunks of the encoding {0} are not supported")]
    Encoding(u64),
    /// The bytes are invalid.
    #[error("a chunk is invalid: {0}")]
    Invalid(&'static str),
    /// A native histogram is invalid.
    #[error("{0}")]
    Histogram(#[from] HistogramError),
}
