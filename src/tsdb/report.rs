//! Plain answers of the store: what happened, what there is.

use std::path::PathBuf;
use std::time::Duration;

use super::block_cache::BlockCacheUsage;
use crate::kv::Finding;
use crate::model::{Exemplar, Labels, MetricKind, OrgId, Refusal, Timestamp};

/// A series' number within its organisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(pub u32);

/// Samples of one series as columns, ascending in time. Reused between reads.
#[derive(Clone, Debug, Default)]
pub struct SampleColumns {
    /// Milliseconds since the epoch.
    pub times: Vec<i64>,
    /// The values, staleness markers included.
    pub values: Vec<f64>,
}

/// A series and some of its exemplars.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesExemplars {
    /// Its whole label set.
    pub labels: Labels,
    /// In order of time.
    pub exemplars: Vec<Exemplar>,
}

/// Samples by code of refusal; each code once.
pub type SampleCounts = Vec<(&'static str, u64)>;

/// Something that an organisation may run out of for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// Its own limit of memory.
    Memory,
    /// Its share of the process' memory.
    MemoryShare,
    /// Its own limit of bytes on the disk.
    Disk,
}

impl Capacity {
    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Capacity::Memory => "its memory",
            Capacity::MemoryShare => "its share of the memory",
            Capacity::Disk => "its disk space",
        }
    }

    /// The stable word that refusals are counted under.
    pub const fn code(self) -> &'static str {
        match self {
            Capacity::Memory => "memory_limit",
            Capacity::MemoryShare => "memory_share",
            Capacity::Disk => "disk_limit",
        }
    }
}

/// What happened to a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppendReport {
    /// Samples stored, or already there bit for bit.
    pub stored: u64,
    /// Samples refused.
    pub refused: u64,
    /// The same by code.
    pub refused_by_code: SampleCounts,
    /// The first ten refusals.
    pub refusals: Vec<Refusal>,
    /// Native histograms among the stored.
    pub histograms: u64,
    /// Exemplars that were kept or were there already; the others were too old or too long.
    pub exemplars: u64,
}

impl AppendReport {
    /// Refusals named at most.
    pub const REFUSALS_MAX: usize = 10;

    pub(super) fn refuse(&mut self, samples: u64, code: &'static str, refusal: impl FnOnce() -> Refusal) {
        self.count(samples, code);
        if self.refusals.len() < AppendReport::REFUSALS_MAX {
            self.refusals.push(refusal());
        }
    }

    pub(super) fn count(&mut self, samples: u64, code: &'static str) {
        self.refused += samples;
        match self.refused_by_code.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count += samples,
            None => self.refused_by_code.push((code, samples)),
        }
    }
}

/// Items of a listing in order, and whether the limit cut it off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    /// At most as many as were asked for.
    pub items: Vec<T>,
    /// Whether there are more.
    pub truncated: bool,
}

impl<T> Default for Listing<T> {
    fn default() -> Listing<T> {
        Listing { items: Vec::new(), truncated: false }
    }
}

/// A metric as a listing shows it (docs/specification.md C5, `/metrics`).
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The metric name.
    pub name: std::sync::Arc<str>,
    /// Its type, `Unknown` where nobody told.
    pub kind: MetricKind,
    /// The help text, may be empty.
    pub help: std::sync::Arc<str>,
    /// The unit, may be empty.
    pub unit: std::sync::Arc<str>,
    /// Its series within the question's range and the reader's scope.
    pub series: u64,
    /// The time of its newest sample, over all of those series.
    pub last_seen: Timestamp,
}

/// A label of some series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSummary {
    /// Its name.
    pub name: std::sync::Arc<str>,
    /// Distinct values.
    pub count: usize,
    /// The first of them in order, at most as many as were asked for.
    pub values: Vec<std::sync::Arc<str>>,
}

/// How many of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Of what.
    pub name: std::sync::Arc<str>,
    /// How many.
    pub count: u64,
}

/// What makes the series of an organisation; the lists begin with the greatest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cardinality {
    /// Series registered.
    pub series: u64,
    /// Distinct pairs of label name and value.
    pub label_pairs: u64,
    /// The time of the oldest sample; none where there is none, or where the scope hides it.
    pub oldest: Option<Timestamp>,
    /// The time of the newest sample.
    pub newest: Option<Timestamp>,
    /// Series of each metric.
    pub series_by_metric: Vec<Tally>,
    /// Distinct values of each label.
    pub values_by_label: Vec<Tally>,
    /// Bytes of the distinct values of each label.
    pub bytes_by_label: Vec<Tally>,
    /// Series of each pair, `name=value`.
    pub series_by_pair: Vec<Tally>,
}

/// Which metrics to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricFilter<'a> {
    /// The name contains this.
    pub search: &'a str,
    /// The name begins with this.
    pub prefix: &'a str,
    /// Selectors; a metric counts if one of its series passes any of them. Empty: all.
    pub selectors: &'a [Vec<crate::model::Matcher>],
    /// Only names after this one: where the page before ended.
    pub after: Option<&'a str>,
    /// Sealed samples count only from this time on; samples in the head count throughout the range.
    /// None: sealed samples count throughout the range as well.
    pub sealed_from: Option<Timestamp>,
}

/// What senders said about a metric (family) name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name as the sender described it: `http_request_duration_seconds`, without `_bucket`.
    pub name: std::sync::Arc<str>,
    /// What kind of numbers.
    pub kind: MetricKind,
    /// The help text.
    pub help: std::sync::Arc<str>,
    /// The unit.
    pub unit: std::sync::Arc<str>,
}

/// How a start found the folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryMode {
    /// Nothing was there.
    #[default]
    Fresh,
    /// From the whole log.
    Log,
    /// From the newest valid checkpoint and the log after it.
    Checkpoint,
}

/// What a start did. The caller measures the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// From what.
    pub mode: RecoveryMode,
    /// Series known.
    pub series: u64,
    /// Samples taken from the checkpoint.
    pub checkpoint_samples: u64,
    /// Log records read.
    pub records: u64,
    /// Samples applied from the log.
    pub samples: u64,
    /// The last record's number.
    pub last_seq: u64,
    /// Bytes behind the last record that were cleared, see [`RecoveryReport::torn_tail`].
    pub trimmed_bytes: u64,
    /// What is known of an incomplete record at the end of the log, if there was one.
    pub torn_tail: Option<String>,
    /// Samples of series that nothing defines; their bytes stay in the log.
    pub orphans: u64,
    /// Files copied or moved to `quarantine/`.
    pub quarantined: u64,
    /// Why the store is read-only, if it is.
    pub read_only: Option<String>,
    /// What was found wrong and repaired by other means, one sentence each.
    pub notes: Vec<String>,
    /// Everything that was found wrong, weighed: the same function decides for a start and for a check.
    pub findings: Vec<Finding>,
    /// The places of the log that cannot be read, where the store is read-only for them.
    pub log_damage: Vec<LogPlace>,
}

/// A place of the log that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// The file, relative to the data folder; `wal` where a file or its records are missing.
    pub file: PathBuf,
    /// The byte from which on records cannot be read, if known.
    pub offset: Option<u64>,
}

impl std::fmt::Display for LogPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file.display())?;
        self.offset.map_or(Ok(()), |offset| write!(f, " at byte {offset}"))
    }
}

/// What a checkpoint wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Its number.
    pub generation: u64,
    /// Replay starts after this record.
    pub replay_seq: u64,
    /// Series in it.
    pub series: u64,
    /// Samples in it.
    pub samples: u64,
    /// Databases in it.
    pub parts: u64,
    /// Rows in it.
    pub rows: u64,
    /// Bytes of its rows.
    pub bytes: u64,
}

/// Whether the store takes samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// It does.
    #[default]
    Open,
    /// Not until there is space again.
    DiskFull {
        /// Bytes free when last asked.
        free: u64,
        /// Bytes that must be free.
        needed: u64,
    },
    /// Not until a restart: a write or sync failed.
    Fenced(String),
    /// Not until a restart: the process itself is not well.
    Stopped(String),
    /// Not until a repair: the log is damaged.
    ReadOnly(String),
    /// It was closed.
    Closed,
}

/// The store's condition, for `/readyz`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether it takes samples.
    pub writes: Writes,
    /// What an operator should know besides, one sentence each; `degraded` when there is any.
    pub notes: Vec<String>,
}

/// Counters of one organisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrgStats {
    /// Whose.
    pub org: OrgId,
    /// Series registered.
    pub series: u64,
    /// Samples in the head, late ones included.
    pub samples: u64,
    /// Segments listed.
    pub segments: u64,
    /// Samples in them.
    pub sealed_samples: u64,
    /// Bytes of their files.
    pub segment_bytes: u64,
    /// Late samples among them.
    pub late_samples: u64,
    /// Bytes of the head.
    pub head_bytes: u64,
    /// Native histograms among the samples.
    pub histograms: u64,
    /// Exemplars kept now.
    pub exemplars: u64,
    /// Exemplars dropped since the start of the process: there already, too old or too long.
    pub exemplars_dropped_total: u64,
    /// Estimated memory: the head, the names.
    pub memory_bytes: u64,
    /// Bytes on the disk as far as they are its own.
    pub disk_bytes: u64,
    /// Samples stored since the start of the process.
    pub stored_total: u64,
    /// Samples refused since the start of the process.
    pub refused_total: u64,
    /// The same by code, in the codes' order.
    pub refused_by_code: SampleCounts,
    /// Descriptions of metrics dropped since the start of the process: too long or too many.
    pub metadata_dropped_total: u64,
}

/// Counters of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// By organisation, in order of id.
    pub orgs: Vec<OrgStats>,
    /// Series of all organisations.
    pub series: u64,
    /// Samples in the head.
    pub samples: u64,
    /// Segments listed.
    pub segments: u64,
    /// Samples in them.
    pub sealed_samples: u64,
    /// Bytes of their files.
    pub segment_bytes: u64,
    /// Organisations sealed since the start of the process, each time counted.
    pub seals: u64,
    /// Seals that failed since the start of the process.
    pub seals_failed: u64,
    /// Bytes of the head.
    pub head_bytes: u64,
    /// Samples stored since the start of the process.
    pub stored_total: u64,
    /// Samples refused since the start of the process.
    pub refused_total: u64,
    /// Values of segments that are kept decoded.
    pub decoded: BlockCacheUsage,
    /// Log files.
    pub wal_files: u64,
    /// Bytes of the log's files, zeroed room included.
    pub wal_file_bytes: u64,
    /// Files from before the log's beginning that could not be unlinked yet.
    pub wal_trimmed_files: u64,
    /// Bytes of theirs.
    pub wal_trimmed_bytes: u64,
    /// Attempts to unlink them that failed since the start of the process.
    pub wal_unlinks_failed: u64,
    /// Bytes of records written since the start of the process.
    pub wal_written_bytes: u64,
    /// Records written since the start of the process.
    pub wal_records: u64,
    /// Syncs of the log since the start of the process.
    pub wal_syncs: u64,
    /// The last record's number.
    pub last_seq: u64,
    /// Bytes free on the disk; 0 where the store has none.
    pub disk_free_bytes: u64,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Samples that no checkpoint covers.
    pub samples_since_checkpoint: u64,
    /// Time since the last checkpoint of this process or, without one, since its start.
    pub checkpoint_age: Duration,
    /// Checkpoints made since the start of the process.
    pub checkpoints: u64,
    /// Checkpoints that failed since the start of the process.
    pub checkpoints_failed: u64,
    /// How far the wall clock is ahead of the clock that retention goes by.
    pub retention_lag: Duration,
    /// Segments that are too old by the wall clock and wait until the retention clock has confirmed it.
    pub segments_waiting: u64,
}
