//! Results of the store: reports, listings and counters.

use std::path::PathBuf;
use std::time::Duration;

use super::block_cache::BlockCacheUsage;
use crate::kv::Finding;
use crate::model::{Exemplar, Labels, MetricKind, OrgId, Refusal, Timestamp};

/// A series' number within its organisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(pub u32);

/// Samples of one series as columns, ascending in time. The buffers are reused between reads.
#[derive(Clone, Debug, Default)]
pub struct SampleColumns {
    /// Milliseconds since the epoch.
    pub times: Vec<i64>,
    /// The values, including staleness markers.
    pub values: Vec<f64>,
}

/// A series and some of its exemplars.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesExemplars {
    /// The whole label set.
    pub labels: Labels,
    /// The exemplars in order of time.
    pub exemplars: Vec<Exemplar>,
}

/// Numbers of samples by refusal code; each code occurs once.
pub type SampleCounts = Vec<(&'static str, u64)>;

/// The code of samples that the decoder refused, before the store saw them.
pub const UNREADABLE: &str = "unreadable";

/// A resource that an organisation may temporarily exhaust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// The organisation's own memory limit.
    Memory,
    /// The organisation's share of the process's memory.
    MemoryShare,
    /// The organisation's own limit of bytes on disk.
    Disk,
}

impl Capacity {
    /// Returns the resource as text for messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Capacity::Memory => "its memory",
            Capacity::MemoryShare => "its share of the memory",
            Capacity::Disk => "its disk space",
        }
    }

    /// Returns the stable code that refusals are counted under.
    pub const fn code(self) -> &'static str {
        match self {
            Capacity::Memory => "memory_limit",
            Capacity::MemoryShare => "memory_share",
            Capacity::Disk => "disk_limit",
        }
    }
}

/// The outcome of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppendReport {
    /// Samples stored, including those that were already stored with the same bits.
    pub stored: u64,
    /// Samples refused.
    pub refused: u64,
    /// Values of the request that are not numbers, which the decoder left out.
    pub skipped: u64,
    /// Samples refused, by code.
    pub refused_by_code: SampleCounts,
    /// The first ten refusals.
    pub refusals: Vec<Refusal>,
    /// Native histograms in `stored`.
    pub histograms: u64,
    /// Exemplars that were stored, now or before. The others were too old or too long.
    pub exemplars: u64,
}

impl AppendReport {
    /// The most refusals in a report.
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

/// The items of a listing in order, and whether the limit cut it off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    /// At most the requested number.
    pub items: Vec<T>,
    /// Whether there are more items.
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
    /// The type; `Unknown` if no sender gave it.
    pub kind: MetricKind,
    /// The help text; may be empty.
    pub help: std::sync::Arc<str>,
    /// The unit; may be empty.
    pub unit: std::sync::Arc<str>,
    /// The number of series within the query's range and the reader's scope.
    pub series: u64,
    /// The time of the newest sample of all of those series.
    pub last_seen: Timestamp,
}

/// A label of some series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSummary {
    /// The label name.
    pub name: std::sync::Arc<str>,
    /// The number of distinct values.
    pub count: usize,
    /// The first values in order, at most as many as requested.
    pub values: Vec<std::sync::Arc<str>>,
}

/// A name with a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The name of the counted items.
    pub name: std::sync::Arc<str>,
    /// The count.
    pub count: u64,
}

/// The cardinality of an organisation. Lists are in descending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cardinality {
    /// The number of registered series.
    pub series: u64,
    /// The number of distinct pairs of label name and value.
    pub label_pairs: u64,
    /// The time of the oldest sample. `None` if there is none, or if the scope hides anything.
    pub oldest: Option<Timestamp>,
    /// The time of the newest sample, under the same conditions.
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

/// A filter of metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricFilter<'a> {
    /// The name contains this.
    pub search: &'a str,
    /// The name begins with this.
    pub prefix: &'a str,
    /// Selectors: a metric passes if one of its series passes any of them. Empty: all pass.
    pub selectors: &'a [Vec<crate::model::Matcher>],
    /// Only names after this one, which is the last one of the previous page.
    pub after: Option<&'a str>,
    /// Sealed samples count only from this time on; samples in the head count throughout the range.
    /// `None` if sealed samples count throughout the range as well.
    pub sealed_from: Option<Timestamp>,
}

/// The metadata of a metric (family) name from its senders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name as the sender described it: `http_request_duration_seconds`, without `_bucket`.
    pub name: std::sync::Arc<str>,
    /// The type of the metric.
    pub kind: MetricKind,
    /// The help text.
    pub help: std::sync::Arc<str>,
    /// The unit.
    pub unit: std::sync::Arc<str>,
}

/// The source from which a start recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryMode {
    /// An empty folder.
    #[default]
    Fresh,
    /// The whole log.
    Log,
    /// The newest valid checkpoint and the log after it.
    Checkpoint,
}

/// The report of a start. The caller measures the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The source of the recovered state.
    pub mode: RecoveryMode,
    /// Registered series.
    pub series: u64,
    /// Samples loaded from the checkpoint.
    pub checkpoint_samples: u64,
    /// Log records read.
    pub records: u64,
    /// Samples applied from the log.
    pub samples: u64,
    /// The sequence number of the last record.
    pub last_seq: u64,
    /// Bytes after the last record that were cleared; see [`RecoveryReport::torn_tail`].
    pub trimmed_bytes: u64,
    /// A description of an incomplete record at the end of the log, if there was one.
    pub torn_tail: Option<String>,
    /// Samples of series without a definition. Their bytes stay in the log.
    pub orphans: u64,
    /// Files copied or moved to `quarantine/`.
    pub quarantined: u64,
    /// The reason why the store is read-only, if it is.
    pub read_only: Option<String>,
    /// Damage that was repaired, one sentence each.
    pub notes: Vec<String>,
    /// All damage with its severity. A start and a check use the same function for this.
    pub findings: Vec<Finding>,
    /// The places of the log that cannot be read, if the store is read-only because of them.
    pub log_damage: Vec<LogPlace>,
}

/// A place of the log that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// The file, relative to the data folder; `wal` if a file or its records are missing.
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

/// The report of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// The generation number.
    pub generation: u64,
    /// The sequence number of the record after which a replay starts.
    pub replay_seq: u64,
    /// Series in the checkpoint.
    pub series: u64,
    /// Samples in the checkpoint.
    pub samples: u64,
    /// Databases in the checkpoint.
    pub parts: u64,
    /// Rows in the checkpoint.
    pub rows: u64,
    /// Bytes of the rows.
    pub bytes: u64,
}

/// Whether the store accepts samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// The store accepts samples.
    #[default]
    Open,
    /// Refused until enough space is free.
    DiskFull {
        /// The free bytes at the last check.
        free: u64,
        /// The bytes that must be free.
        needed: u64,
    },
    /// Refused until a restart, because a write or sync failed.
    Fenced(String),
    /// Refused until a restart, because of a fault in the process.
    Stopped(String),
    /// Refused until a repair, because the log is damaged.
    ReadOnly(String),
    /// The store was closed.
    Closed,
}

/// A record of the log as it is copied to a follower (docs/standby.md).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The number.
    pub seq: u64,
    /// The organisation; 0 in marks and switches.
    pub org: OrgId,
    /// The type code of its body, as in the log.
    pub kind: u8,
    /// The version of its body, as in the log.
    pub version: u8,
    /// In a switch, the length of the next file in bytes; else 0.
    pub next_file_bytes: u32,
    /// The body.
    pub body: Vec<u8>,
}

/// The condition of the store, for `/readyz`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether the store accepts samples.
    pub writes: Writes,
    /// Further notes for the operator, one sentence each. The state is `degraded` if there are any.
    pub notes: Vec<String>,
}

/// Counters of one organisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrgStats {
    /// The organisation.
    pub org: OrgId,
    /// Registered series.
    pub series: u64,
    /// Samples in the head, including late ones.
    pub samples: u64,
    /// Listed segments.
    pub segments: u64,
    /// Samples in the segments.
    pub sealed_samples: u64,
    /// Bytes of the segment files.
    pub segment_bytes: u64,
    /// Late samples in the head.
    pub late_samples: u64,
    /// Memory of the head, in bytes.
    pub head_bytes: u64,
    /// Native histograms in `samples`.
    pub histograms: u64,
    /// Exemplars in memory.
    pub exemplars: u64,
    /// Exemplars dropped since the start of the process, because they were duplicates, too old or
    /// too long.
    pub exemplars_dropped_total: u64,
    /// Estimated memory of head and names, in bytes.
    pub memory_bytes: u64,
    /// Bytes on disk in the organisation's own files.
    pub disk_bytes: u64,
    /// Samples stored since the start of the process.
    pub stored_total: u64,
    /// Samples refused since the start of the process.
    pub refused_total: u64,
    /// Samples refused by code, in the order of the codes.
    pub refused_by_code: SampleCounts,
    /// Descriptions of metrics dropped since the start of the process, because they were too long
    /// or too many.
    pub metadata_dropped_total: u64,
}

/// Counters of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Counters of each organisation, in order of id.
    pub orgs: Vec<OrgStats>,
    /// Series of all organisations.
    pub series: u64,
    /// Samples in the head.
    pub samples: u64,
    /// Listed segments.
    pub segments: u64,
    /// Samples in the segments.
    pub sealed_samples: u64,
    /// Bytes of the segment files.
    pub segment_bytes: u64,
    /// Seals of one organisation since the start of the process.
    pub seals: u64,
    /// Seals that failed since the start of the process.
    pub seals_failed: u64,
    /// Memory of all heads, in bytes.
    pub head_bytes: u64,
    /// Samples stored since the start of the process.
    pub stored_total: u64,
    /// Samples refused since the start of the process.
    pub refused_total: u64,
    /// The use of the block cache.
    pub decoded: BlockCacheUsage,
    /// Log files.
    pub wal_files: u64,
    /// Bytes of the log files, including preallocated zeros.
    pub wal_file_bytes: u64,
    /// Trimmed log files that could not be unlinked yet.
    pub wal_trimmed_files: u64,
    /// Bytes of these files.
    pub wal_trimmed_bytes: u64,
    /// Failed attempts to unlink them since the start of the process.
    pub wal_unlinks_failed: u64,
    /// Bytes of records written since the start of the process.
    pub wal_written_bytes: u64,
    /// Records written since the start of the process.
    pub wal_records: u64,
    /// Syncs of the log since the start of the process.
    pub wal_syncs: u64,
    /// The sequence number of the last record.
    pub last_seq: u64,
    /// Free bytes on the disk; 0 if the store has no folder.
    pub disk_free_bytes: u64,
    /// Size of the disk, in bytes.
    pub disk_bytes: u64,
    /// Samples since the last checkpoint.
    pub samples_since_checkpoint: u64,
    /// Time since the last checkpoint of this process or, without one, since its start.
    pub checkpoint_age: Duration,
    /// Checkpoints written since the start of the process.
    pub checkpoints: u64,
    /// Checkpoints that failed since the start of the process.
    pub checkpoints_failed: u64,
    /// How far the wall clock is ahead of the retention clock.
    pub retention_lag: Duration,
    /// Segments that are too old by the wall clock and wait until the retention clock confirms it.
    pub segments_waiting: u64,
}
