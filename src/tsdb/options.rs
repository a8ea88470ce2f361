//! The settings of the store and of an organisation, with their defaults.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::disk::Disk;
use super::open_progress::ProgressObserver;
use crate::clock::Stopwatch;
use crate::kv::Control;
use crate::model::{StoreId, Timestamp};

/// The location and the owner of a store.
#[derive(Clone)]
pub struct Home<'a> {
    /// The folder with `wal/`, `series/`, `head/`, `segments/` and `quarantine/`. The caller holds
    /// its lock (`kv::DataFolder`), because two processes on one log would destroy it.
    pub dir: &'a Path,
    /// The id of the store, which is in every file.
    pub store: StoreId,
    /// The database that lists the segments. [`super::Tsdb::close`] releases it.
    pub control: Arc<Control>,
}

/// How far a sample may be ahead of the clock, inclusive, unless [`Options::ahead_max`] sets
/// another limit.
pub const AHEAD_MAX: Duration = Duration::from_secs(600);

/// The tolerance beyond [`Options::ahead_max`] within which a sample ahead of the clock does not
/// show that a clock is wrong.
const AHEAD_SLACK: Duration = Duration::from_secs(600);

/// The time at which an append is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// After its bytes are synced to the disk (`Durability: synced`).
    #[default]
    Synced,
    /// After its bytes are written. They are synced within this time (`Durability: buffered`). A
    /// killed process loses nothing, and a power cut loses at most the samples that were
    /// acknowledged within this time.
    Interval(Duration),
}

/// The pause of work in the background, which sleeps as long as it has worked, so that it leaves
/// capacity for requests.
#[derive(Clone)]
pub struct Rest(Arc<dyn Fn(Duration) + Send + Sync>);

impl Rest {
    /// Creates a pause that calls `sleep`. Tests pass a function that returns at once.
    pub fn by(sleep: impl Fn(Duration) + Send + Sync + 'static) -> Rest {
        Rest(Arc::new(sleep))
    }

    pub(super) fn take(&self, time: Duration) {
        (self.0)(time);
    }
}

impl Default for Rest {
    fn default() -> Rest {
        Rest::by(std::thread::sleep)
    }
}

impl std::fmt::Debug for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rest")
    }
}

/// A monotonic clock: the time since some moment before the store was opened.
#[derive(Clone)]
pub struct Elapsed(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Elapsed {
    /// Creates a clock that calls `read`, for tests that control the time.
    pub fn by(read: impl Fn() -> Duration + Send + Sync + 'static) -> Elapsed {
        Elapsed(Arc::new(read))
    }

    pub(super) fn read(&self) -> Duration {
        (self.0)()
    }
}

impl Default for Elapsed {
    fn default() -> Elapsed {
        let watch = Stopwatch::start();
        Elapsed::by(move || watch.elapsed())
    }
}

impl std::fmt::Debug for Elapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Elapsed")
    }
}

/// The settings of the whole store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The time at which an append is acknowledged.
    pub durability: Durability,
    /// The limits of an organisation, unless [`super::Tsdb::set_limits`] sets others.
    pub limits: OrgLimits,
    /// How far a sample may be ahead of the clock (docs/specification.md C7). None: any time is
    /// accepted.
    pub ahead_max: Option<Duration>,
    /// Memory for samples and names of all organisations, in bytes, shared as described in
    /// [`crate::tsdb::store::quota`]. Beyond an organisation's share, appends return
    /// [`super::AppendError::AtCapacity`].
    pub head_bytes_max: u64,
    /// Memory for decoded values of segments that are cached for later queries, in bytes; 0
    /// disables the cache.
    pub decoded_bytes_max: u64,
    /// Bytes of the newest segments that are read from the disk in the background after a start, at
    /// most a sixteenth of the machine's memory; 0 disables this.
    pub warm_bytes_max: u64,
    /// The age of the last checkpoint at which another one is due.
    pub checkpoint_every: Duration,
    /// The samples since the last checkpoint after which another one is due. 40 M are 1.8 s of
    /// replay (docs/storage.md section 7).
    pub checkpoint_samples: u64,
    /// The memory of the heads in bytes at which all organisations are sealed early.
    pub seal_head_bytes: u64,
    /// The size of the log in bytes at which all organisations are sealed early (docs/storage.md
    /// section 15).
    pub seal_log_bytes: u64,
    /// The size of the log in bytes above which files that only pins keep are removed. Consumers
    /// lose the records in them. Unsealed files stay.
    pub pinned_log_bytes: u64,
    /// The number of late samples at which all organisations are sealed early.
    pub seal_late_samples: u64,
    /// The pause of a seal in the background.
    pub rest: Rest,
    /// The monotonic clock that bounds retention.
    pub elapsed: Elapsed,
    /// The time when the program was built. The retention clock of a new store begins there, and a
    /// wall clock that is earlier is wrong. None: unknown.
    pub built: Option<Timestamp>,
    /// The running time for which a segment must have been too old before it is removed: at most 72
    /// hours, and at most a quarter of the organisation's retention.
    pub expiry_grace: Duration,
    /// Samples, histograms, exemplars and start timestamps stay in the log, and no query sees them:
    /// the log is a queue (`promlet agent`). Series and descriptions are kept in memory, so that
    /// [`super::Tsdb::append`] decides as usual.
    pub queue_only: bool,
    /// The additional threads of a start that apply the log's samples to the heads. With 0, the
    /// thread that reads the log applies them.
    pub replay_threads: usize,
    /// The observer of the progress of a start.
    pub observer: ProgressObserver,
    /// The file system; tests inject faults here.
    pub disk: Disk,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            durability: Durability::Synced,
            limits: OrgLimits::default(),
            ahead_max: Some(AHEAD_MAX),
            head_bytes_max: 4 << 30,
            decoded_bytes_max: 32 << 20,
            warm_bytes_max: 0,
            checkpoint_every: Duration::from_secs(600),
            checkpoint_samples: 40_000_000,
            seal_head_bytes: 3 << 30,
            seal_log_bytes: 1 << 30,
            pinned_log_bytes: 8 << 30,
            // 64 MiB at 32 bytes each.
            seal_late_samples: 2 << 20,
            rest: Rest::default(),
            elapsed: Elapsed::default(),
            built: None,
            queue_only: false,
            expiry_grace: Duration::from_secs(72 * 3_600),
            replay_threads: replay_threads(),
            observer: ProgressObserver::default(),
            disk: Disk::default(),
        }
    }
}

impl Options {
    /// Returns the latest time of a sample if `present` is the present and no clock is wrong.
    /// [`Timestamp::MAX`] if samples of any time are accepted.
    pub(super) fn latest_plausible(&self, present: Timestamp) -> Timestamp {
        self.ahead_max.map_or(Timestamp::MAX, |ahead| present.plus(ahead).plus(AHEAD_SLACK))
    }
}

/// Returns the number of cores, at most four, or 0 on a single core. Reading the log takes a third
/// of the work, so more threads would wait for it.
fn replay_threads() -> usize {
    match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => 0,
        cores => cores.min(4),
    }
}

/// The limits of one organisation (docs/specification.md C7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrgLimits {
    /// Series. Beyond the limit, new ones are refused and samples of known ones are stored.
    /// `u32::MAX`: memory is the only bound.
    pub series_max: u32,
    /// Labels of one series, including the metric name.
    pub labels_max: usize,
    /// Bytes of a label name.
    pub name_bytes_max: usize,
    /// Bytes of a label value.
    pub value_bytes_max: usize,
    /// Metrics with a stored type, help or unit. Further ones are counted and dropped.
    pub metadata_max: usize,
    /// Bytes of one help text or unit. Longer ones are counted and dropped.
    pub help_bytes_max: usize,
    /// The age beyond which samples are refused and removed. None: any age is accepted.
    pub retention: Option<Duration>,
    /// The bytes on disk beyond which the oldest samples are removed. None: no bound.
    pub retention_bytes: Option<u64>,
    /// How far a sample may be before the organisation's newest sample. None: as far as retention
    /// allows.
    pub ooo_window: Option<Duration>,
    /// New series per second. None: no bound.
    pub new_series_per_s: Option<u32>,
    /// The bytes of memory beyond which appends are refused until the next seal. None: the share of
    /// the process's budget.
    pub memory_bytes_max: Option<u64>,
    /// The bytes on disk beyond which appends are refused until samples are removed. None: no
    /// bound.
    pub disk_bytes_max: Option<u64>,
}

impl OrgLimits {
    /// Returns whether further series or samples use up a limit: of series, memory or disk.
    pub fn has_quota(&self) -> bool {
        let bytes = [self.retention_bytes, self.memory_bytes_max, self.disk_bytes_max];
        self.series_max != u32::MAX || self.new_series_per_s.is_some() || bytes.iter().any(Option::is_some)
    }
}

impl Default for OrgLimits {
    fn default() -> OrgLimits {
        OrgLimits {
            series_max: u32::MAX,
            labels_max: 64,
            name_bytes_max: 128,
            value_bytes_max: 4_096,
            metadata_max: 20_000,
            help_bytes_max: 4_096,
            retention: None,
            retention_bytes: None,
            ooo_window: None,
            new_series_per_s: None,
            memory_bytes_max: None,
            disk_bytes_max: None,
        }
    }
}
