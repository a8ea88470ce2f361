//! What the store may use, with its defaults.

use std::sync::Arc;
use std::time::Duration;

use super::disk::Disk;
use super::open_progress::ProgressObserver;
use crate::clock::Stopwatch;
use crate::model::Timestamp;

/// How much later than the clock, beyond [`Options::ahead_max`], a sample may be before a clock is considered wrong.
const AHEAD_SLACK: Duration = Duration::from_secs(600);

/// When an append is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// After its bytes are synced to the disk (`Durability: synced`).
    #[default]
    Synced,
    /// After its bytes are written; they are synced within this time (`Durability: buffered`). A killed process loses
    /// nothing, a power cut at most what was answered within it.
    Interval(Duration),
}

/// What work in the background does to leave room for others: it sleeps as long as it has worked.
#[derive(Clone)]
pub struct Rest(Arc<dyn Fn(Duration) + Send + Sync>);

impl Rest {
    /// Rests by calling this; a test that does not wait hands in a function that returns at once.
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

/// A monotonic clock: the time since some moment before the store was opened. It never goes back.
#[derive(Clone)]
pub struct Elapsed(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Elapsed {
    /// Reads this function; for tests, which let time pass themselves.
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

/// Settings of the whole store.
#[derive(Clone, Debug)]
pub struct Options {
    /// When an append is answered.
    pub durability: Durability,
    /// What an organisation may store, unless [`super::Tsdb::set_limits`] says otherwise.
    pub limits: OrgLimits,
    /// How far a sample may be ahead of the clock (docs/specification.md C7); none: any time is taken.
    pub ahead_max: Option<Duration>,
    /// Memory for samples and names of all organisations, in bytes; shared as [`super::quota`] says. Beyond an
    /// organisation's share appends answer [`super::AppendError::AtCapacity`].
    pub head_bytes_max: u64,
    /// Memory for values of segments that are kept decoded for the next query, in bytes; 0 keeps none.
    pub decoded_bytes_max: u64,
    /// After a start so much of the newest segments is read from the disk in the background, in bytes, or a sixteenth of the
    /// machine's memory if that is less; 0 reads nothing before it is asked for.
    pub warm_bytes_max: u64,
    /// A checkpoint is due when the last one is this old,
    pub checkpoint_every: Duration,
    /// or when so many samples came since: 40 M are 1.8 s of replay (docs/storage.md section 7).
    pub checkpoint_samples: u64,
    /// Everything is sealed early when the heads take so much memory,
    pub seal_head_bytes: u64,
    /// or the log so much space (docs/storage.md section 15),
    pub seal_log_bytes: u64,
    /// or there are so many late samples.
    pub seal_late_samples: u64,
    /// How a seal in the background rests.
    pub rest: Rest,
    /// The monotonic clock that bounds retention.
    pub elapsed: Elapsed,
    /// When the program was built: no present is earlier. The retention clock of a new store begins there, and a wall
    /// clock that is earlier is wrong. None: unknown.
    pub built: Option<Timestamp>,
    /// Running time for which a segment must have been too old before it is removed; at most 72 hours, and at most a
    /// quarter of the organisation's retention.
    pub expiry_grace: Duration,
    /// Threads beside the one that reads the log at a start: they put its samples into the heads; 0: it does so itself.
    pub replay_threads: usize,
    /// Who is told how far the start is.
    pub observer: ProgressObserver,
    /// How the file system answers; tests put faults in.
    pub disk: Disk,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            durability: Durability::Synced,
            limits: OrgLimits::default(),
            ahead_max: Some(Duration::from_secs(600)),
            head_bytes_max: 4 << 30,
            decoded_bytes_max: 32 << 20,
            warm_bytes_max: 0,
            checkpoint_every: Duration::from_secs(600),
            checkpoint_samples: 40_000_000,
            seal_head_bytes: 3 << 30,
            seal_log_bytes: 1 << 30,
            // 64 MiB of 32 bytes each.
            seal_late_samples: 2 << 20,
            rest: Rest::default(),
            elapsed: Elapsed::default(),
            built: None,
            expiry_grace: Duration::from_secs(72 * 3_600),
            replay_threads: replay_threads(),
            observer: ProgressObserver::default(),
            disk: Disk::default(),
        }
    }
}

impl Options {
    /// The latest time that a sample may have if `present` is the present and no clock is wrong. [`Timestamp::MAX`] where
    /// samples of any time are stored.
    pub(super) fn latest_plausible(&self, present: Timestamp) -> Timestamp {
        self.ahead_max.map_or(Timestamp::MAX, |ahead| present.plus(ahead).plus(AHEAD_SLACK))
    }
}

/// As many as there are cores, where there is more than one: reading takes a third of the work. Beyond four they would
/// wait for what is read.
fn replay_threads() -> usize {
    match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => 0,
        cores => cores.min(4),
    }
}

/// What one organisation may store (docs/specification.md C7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrgLimits {
    /// Series; samples of known ones are stored beyond it, new ones refused. `u32::MAX`: memory is the only bound.
    pub series_max: u32,
    /// Labels of one series, the metric name included.
    pub labels_max: usize,
    /// Bytes of a label's name.
    pub name_bytes_max: usize,
    /// Bytes of a label's value.
    pub value_bytes_max: usize,
    /// Metrics with a type, help or unit kept; further ones are counted and not kept.
    pub metadata_max: usize,
    /// Bytes of one help text or unit; a longer one is counted and not kept.
    pub help_bytes_max: usize,
    /// Samples older than this are refused, and go; none: any age is taken and kept.
    pub retention: Option<Duration>,
    /// Bytes on the disk beyond which the oldest samples go; none: all are kept.
    pub retention_bytes: Option<u64>,
    /// How far before the organisation's newest sample one may be; none: as far as retention allows.
    pub ooo_window: Option<Duration>,
    /// Series a second that nobody sent before; none: as fast as they come.
    pub new_series_per_s: Option<u32>,
    /// Bytes of memory beyond which appends wait for the next seal; none: the share of the process' budget.
    pub memory_bytes_max: Option<u64>,
    /// Bytes on the disk beyond which appends are refused until some are gone; none: what the disk has.
    pub disk_bytes_max: Option<u64>,
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
