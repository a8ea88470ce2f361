//! Copies of samples from a source to a sink.
//!
//! ```text
//! source -> batch -> filter -> sink (durable) -> position in the progress file
//! ```
//!
//! A position is stored once the batches before it are durable. After an interruption the
//! batches since the last stored position are written again. The store keeps one sample of each
//! time, so a batch that is written twice changes nothing: no sample is lost or doubled.

mod batch;
mod filter;
mod preview;
mod progress;
mod prometheus;
mod run;
mod store;
#[cfg(test)]
mod tests;
mod text;
mod verify;
mod windows;

pub use batch::{CopyBatch, CopyMetadata, CopySeries};
pub use filter::CopyFilter;
pub use preview::{CopyPreview, preview};
pub use progress::ProgressFile;
pub use prometheus::PrometheusSource;
pub use run::{CopyStep, CopyTotals, copy};
pub(in crate::history) use store::read_series;
pub use store::{StoreLookup, StoreSink};
pub use text::{TextFormat, TextSource};
pub use verify::{CopyDifference, CopyDigest, VerifyReport, verify};
pub use windows::{FetchFailure, FetchWindow, WindowSource};

use serde::{Deserialize, Serialize};

use crate::history::block::BlockError;
use crate::model::{Labels, RawSeries, TimeRange};

/// The samples after which a batch ends.
pub const BATCH_SAMPLES: usize = 65_536;
/// The estimated bytes after which a batch ends.
pub const BATCH_BYTES: usize = 8 << 20;

/// The position after the last batch of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyPosition {
    /// The number of the part: a block, or 0.
    pub part: u64,
    /// The position in the part: bytes of a file, series of a block, milliseconds of a time.
    pub offset: i64,
    /// The lines before `offset` in a file of lines.
    pub lines: u64,
}

/// How far a source has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyShare {
    /// The part that has been read, in a unit of the source.
    pub done: u64,
    /// The whole source in the same unit; 0 if it is unknown.
    pub all: u64,
}

/// Samples that are read front to back, on a thread of their own.
pub trait CopySource: Send {
    /// Returns a text that changes if the source changes.
    fn identity(&self) -> String;

    /// Continues after a position of an earlier run.
    ///
    /// # Errors
    /// [`SampleCopyError`].
    fn resume(&mut self, position: CopyPosition) -> Result<(), SampleCopyError>;

    /// Returns the next samples; none at the end.
    ///
    /// # Errors
    /// [`SampleCopyError`].
    fn next(&mut self) -> Result<Option<CopyBatch>, SampleCopyError>;

    /// Returns the position after the last batch.
    fn position(&self) -> CopyPosition;

    /// Returns how far the source has been read.
    fn share(&self) -> CopyShare;

    /// Returns a sentence for each part that could not be read.
    fn problems(&self) -> Vec<String>;
}

/// A destination of samples.
pub trait CopySink {
    /// Writes a batch. [`CopySink::unflushed_batches`] tells when it is durable.
    ///
    /// # Errors
    /// [`SampleCopyError`].
    fn write(&mut self, batch: &CopyBatch) -> Result<WrittenCounts, SampleCopyError>;

    /// Returns the number of the last batches that may not be durable yet. All before them are.
    fn unflushed_batches(&self) -> usize {
        0
    }

    /// Makes all batches durable.
    ///
    /// # Errors
    /// [`SampleCopyError`].
    fn flush(&mut self) -> Result<(), SampleCopyError> {
        Ok(())
    }
}

/// The outcome of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenCounts {
    /// Samples that are stored, now or before.
    pub stored: u64,
    /// Samples that were refused.
    pub refused: u64,
    /// The first reasons.
    pub reasons: Vec<String>,
}

/// A reader of the samples at the destination.
pub trait CopyLookup {
    /// Returns the samples of a series in a range, in the order of their times.
    ///
    /// # Errors
    /// [`SampleCopyError`].
    fn samples(&mut self, labels: &Labels, range: TimeRange) -> Result<RawSeries, SampleCopyError>;
}

/// The reason why a copy stopped.
#[derive(Debug, thiserror::Error)]
pub enum SampleCopyError {
    /// The source cannot be read.
    #[error("{0}")]
    Source(String),
    /// A file of Prometheus cannot be read or written.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The destination does not accept the samples.
    #[error("the destination does not accept samples: {0}")]
    Sink(String),
    /// The stored samples cannot be read.
    #[error("the stored samples cannot be read: {0}")]
    Lookup(String),
    /// The progress file cannot be written.
    #[error("the progress file {file}: {source}")]
    Progress {
        /// The file.
        file: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The caller stopped the copy. It continues with the next call.
    #[error("stopped; the same command continues")]
    Stopped,
}
