//! The time series database: batches are appended, snapshots are read.
//!
//! [`Tsdb::append`] resolves the series of a batch to ids ([`append`], [`series`]) and turns it
//! into records of the log ([`wal`]). They are durable before the response and applied to the
//! [`head`] in log order. Native histograms, start timestamps and exemplars are stored separately
//! ([`side_data`]). [`Tsdb::snapshot`] is the only way to read: one organisation within one scope
//! ([`snapshot`]). [`Tsdb::tail`] reads the log behind its writer. [`maintenance`] writes
//! checkpoints, which keep starts short; [`recovery`] restores the state at a start. Formats are
//! documented in [`wal`]'s records and samples, [`series`]' definitions and registry, [`chunk`],
//! and [`maintenance::checkpoint`].
//!
//! A seal moves a closed window of time from the head to [`segment`]s ([`maintenance::seal`]):
//! files that never change and that control lists ([`store::manifest`]). The current set of
//! segments is published next to the head ([`store::segments`]). Log files whose samples are all in
//! segments are removed.

mod append;
mod block_cache;
mod chunk;
mod codec;
mod database;
mod disk;
mod error;
mod head;
mod maintenance;
mod open_progress;
mod options;
mod recovery;
mod report;
mod segment;
mod series;
mod side_data;
mod snapshot;
mod store;
mod wal;

pub use append::batch::{Appended, Appending, GuessOutcome, LogSpan};
pub use append::keyed::KeyedBatch;
pub use block_cache::{BlockCacheUsage, non_decreasing};
pub use database::Tsdb;
pub use database::import::{ImportMemory, ImportSeal, SampleImport};
pub use database::tail::{LogTail, TailContent, TailRecord};
pub use disk::{Disk, Faults};
pub use error::{
    AppendError, CheckpointError, CopyError, Damage, DiskError, ManifestError, OpenError, PinError,
    TailError, Unconfirmed,
};
pub use maintenance::backup::StageError;
pub use maintenance::compact::{UpkeepError, UpkeepReport};
pub use maintenance::copies::LogCopies;
pub use maintenance::deletion::{DeleteError, DeleteReport, DeletedSamples};
pub use maintenance::seal::{SealError, SealReport};
pub use open_progress::{OpenControl, OpenStep, Phase, ProgressObserver};
pub use options::{AHEAD_MAX, Durability, Elapsed, Home, Options, OrgLimits};
pub use recovery::check::{CheckProgress, Checked, check};
pub use recovery::prefetch::{Prefetch, prefetch_program};
pub use recovery::repair::{RepairError, Repaired, accept_loss, repair};
pub use recovery::verify_restored::{UnfitSegment, fits_list};
pub use report::{
    AppendReport, Capacity, Cardinality, CheckpointReport, Description, Health, LabelSummary, Listing,
    LogPlace, LogRecord, Metric, MetricFilter, OrgStats, RecoveryMode, RecoveryReport, SampleColumns,
    SampleCounts, SeriesExemplars, SeriesId, Stats, Tally, UNREADABLE, Writes,
};
pub use series::identity::LabelsKey;
pub use side_data::record::LogStart;
pub use snapshot::{
    Grouped, GroupedSeries, OLDER_SERIES_MAX, OlderSamples, Paced, ReadColumns, SelectedSeries, SeriesEnds,
    SeriesReader, Snapshot,
};
pub use store::pins::{ConsumerId, ConsumerKind, LogPosition, PinReport};
pub use wal::record::RecordKind;
pub use wal::samples::LogSample;

#[cfg(test)]
pub(crate) mod tests;
