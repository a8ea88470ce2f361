//! Retention: drops whole segments whose last sample is too old, and the oldest segments of an
//! organisation above its limit of bytes. A segment that is only partly too old stays, and reads
//! hide its old samples.
//!
//! Ages count from the organisation's newest sample ([`horizon`]), so an organisation that stopped
//! sending keeps its samples. A segment that overrides values of another is never dropped before
//! that one.
//!
//! No age counts from the wall clock itself: `store::retention_clock` bounds the speed of
//! retention's present.
//! Samples are hidden by [`Present::shown`]. Their segments are removed by [`Present::confirmed`],
//! which is a grace period behind.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::compact::{MaintenanceContext, UpkeepError, UpkeepReport, rank, retire};
use crate::kv::with_sources;
use crate::model::Timestamp;
use crate::sync::IgnorePoison as _;
use crate::tsdb::Tsdb;
use crate::tsdb::error::Unconfirmed;
use crate::tsdb::options::Options;
use crate::tsdb::segment::SegmentMeta;
use crate::tsdb::store::OrgStore;
use crate::tsdb::store::manifest::{Manifest, ManifestChange};
use crate::tsdb::store::retention_clock::{RetentionClock, grace_of, horizon};
use crate::tsdb::store::segments::{IndexedSegment, Obsolete};

/// The lead of the wall clock over the running time above which the operator is warned.
const AHEAD_WARNED: Duration = Duration::from_secs(3_600);
/// The operator is warned if the wall clock is earlier than the build of the program by more than
/// this.
const BEFORE_BUILD_WARNED: Duration = Duration::from_secs(86_400);
/// The running time of a process during which a sample too far ahead of the clock is refused with a
/// retryable error. A machine without a battery-backed clock starts with the time of its last stop,
/// or of a past year, until it has asked a time server.
const CLOCK_CONFIRMED_AFTER: Duration = Duration::from_secs(900);
/// The running time between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(3_600);
/// The limit of segments in one commit. Each takes two rows of 64.
const COMMIT_SEGMENTS_MAX: usize = 24;

/// The retention limits of an organisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tsdb) struct RetentionLimits {
    /// The greatest age; none: unlimited.
    pub(in crate::tsdb) age: Option<Duration>,
    /// The limit of segment bytes; none: unlimited.
    pub(in crate::tsdb) bytes: Option<u64>,
}

/// A segment, and the time that decides when it expires.
struct Expiring<'a> {
    meta: &'a SegmentMeta,
    /// The last time of the segment and of all segments that it overrides, directly or indirectly.
    /// It must stay until they are gone, or overridden values would reappear.
    last_ms: i64,
}

/// Sorts segments in the order in which they may expire. No overridden value reappears, wherever
/// this list is cut.
fn by_age<'a>(segments: &[&'a SegmentMeta]) -> Vec<Expiring<'a>> {
    let mut metas = segments.to_vec();
    metas.sort_unstable_by_key(|meta| rank(meta));
    let mut all: Vec<Expiring<'a>> = Vec::with_capacity(metas.len());
    for meta in metas {
        let beaten =
            all.iter().filter(|other| other.meta.min_ms <= meta.max_ms && meta.min_ms <= other.meta.max_ms);
        let last_ms =
            beaten.map(|other| other.last_ms).max().map_or(meta.max_ms, |last| last.max(meta.max_ms));
        all.push(Expiring { meta, last_ms });
    }
    // The sort is stable: of segments that expire at the same time, overridden ones come first.
    all.sort_by_key(|expiring| expiring.last_ms);
    all
}

/// Returns the numbers of the segments to remove with the reasons, in the order of their removal.
pub(in crate::tsdb) fn expired(
    segments: &[&SegmentMeta],
    keep: RetentionLimits,
    newest: Option<Timestamp>,
    now: Timestamp,
) -> Vec<(u64, &'static str)> {
    let oldest = horizon(keep.age, newest, now).map_or(i64::MIN, Timestamp::as_ms);
    let mut bytes: u64 = segments.iter().map(|meta| meta.file_bytes).sum();
    let most = keep.bytes.unwrap_or(u64::MAX);
    if bytes <= most && segments.iter().all(|meta| meta.max_ms >= oldest) {
        // At nearly all calls no segment is expired.
        return Vec::new();
    }
    let mut gone: Vec<(u64, &'static str)> = Vec::new();
    for Expiring { meta, last_ms } in by_age(segments) {
        if last_ms < oldest {
            gone.push((meta.seq, "it is older than is kept"));
        } else if bytes > most {
            gone.push((meta.seq, "there are more bytes than are kept"));
        } else {
            break;
        }
        bytes -= meta.file_bytes;
    }
    gone
}

/// The present of one retention run.
#[derive(Clone, Debug)]
pub(in crate::tsdb) struct Present {
    /// The time of the wall clock.
    wall: Timestamp,
    /// `None` for a store in memory, which has no segments.
    clock: Option<RetentionClock>,
    grace: Duration,
}

impl Present {
    /// Returns the time by which samples are hidden and refused.
    fn shown(&self) -> Timestamp {
        self.clock.as_ref().map_or(self.wall, |clock| clock.reached().min(self.wall))
    }

    /// Returns the time by which segments are removed, for an organisation with the retention
    /// `age`.
    fn confirmed(&self, age: Option<Duration>) -> Timestamp {
        let grace = age.map_or(Duration::ZERO, |age| grace_of(age, self.grace));
        let confirmed = |clock: &RetentionClock| clock.confirmed(grace).unwrap_or(Timestamp::MIN);
        self.clock.as_ref().map_or(self.wall, |clock| confirmed(clock).min(self.wall))
    }
}

/// The retention clock of an open store.
#[derive(Debug)]
pub(in crate::tsdb) struct Retention {
    state: Mutex<RetentionState>,
    /// [`RetentionClock::reached`] in ms; `i64::MIN` in a store in memory.
    reached_ms: AtomicI64,
    /// [`RetentionClock::latest`] in ms; `i64::MIN` in a store in memory.
    latest_ms: AtomicI64,
    /// The lead of the wall clock at the last move of the retention clock, in ms.
    ahead_ms: AtomicU64,
    /// The number of segments that the wall clock would expire and the retention clock does not.
    waiting: AtomicU64,
    /// [`Options::elapsed`] at the opening of the store.
    opened_at: Duration,
}

#[derive(Debug, Default)]
struct RetentionState {
    clock: Option<RetentionClock>,
    /// The clock as stored in control.
    stored: Option<RetentionClock>,
    /// [`Options::elapsed`] at the last move of the clock.
    read_at: Duration,
    /// The time of the wall clock at that move; none in a store in memory.
    wall: Option<Timestamp>,
    /// The time of the last log entry of each warning.
    warned_at: [Option<Duration>; 3],
}

impl RetentionState {
    /// Returns the lead of the wall clock over the retention clock.
    fn ahead(&self) -> Duration {
        let both = self.wall.zip(self.clock.as_ref());
        ms(both.map_or(0, |(wall, clock)| wall.ms_since(clock.reached())))
    }

    fn before_build(&self, built: Option<Timestamp>) -> Option<String> {
        let (wall, built) = self.wall.zip(built)?;
        (ms(built.ms_since(wall)) > BEFORE_BUILD_WARNED).then(|| {
            format!(
                "this machine's clock ({}) is earlier than the build of this program ({}): correct the clock. Samples ahead of it are not stored; their senders retry them",
                wall.to_rfc3339(),
                built.to_rfc3339()
            )
        })
    }

    fn ahead_of_running(&self, waiting: u64) -> Option<String> {
        let ahead = self.ahead().saturating_add(self.clock.as_ref()?.gained());
        (ahead > AHEAD_WARNED && waiting > 0).then(|| {
            format!(
                "the clock is {} hours ahead of the running time of this store, after a long stop or because it is wrong: retention follows slowly, and {waiting} segments wait for removal. If the clock is wrong, correct it, or increase the retention, and no segment is removed",
                ahead.as_secs() / 3_600
            )
        })
    }

    fn behind(&self, options: &Options) -> Option<String> {
        let (wall, clock) = self.wall.zip(self.clock.as_ref())?;
        let (latest, hold) = (clock.latest(), clock.remaining_hold()?);
        (latest > options.latest_plausible(wall)).then(|| {
            let minutes = latest.ms_since(wall) / 60_000;
            let until = match hold.is_zero() {
                true => "a shrinking part of them, since the clock has been behind for 72 hours of running".to_owned(),
                false => format!("for another {} hours of running", hold.as_secs().div_ceil(3_600)),
            };
            format!(
                "the clock is {minutes} minutes behind times that this server has seen. Samples that agree with those times are stored: {until}. If the clock is wrong, correct it"
            )
        })
    }
}

/// Converts milliseconds to a duration; zero if negative.
fn ms(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

impl Retention {
    /// Continues the stored clock, or begins a new one. `newest` is the earliest of the
    /// organisations' newest samples.
    pub(in crate::tsdb) fn begin(
        stored: Option<RetentionClock>,
        wall: Timestamp,
        newest: Option<Timestamp>,
        options: &Options,
    ) -> Retention {
        let opened_at = options.elapsed.read();
        let clock = stored.clone().unwrap_or_else(|| RetentionClock::new(wall, options.built, newest));
        let [reached_ms, latest_ms] = [clock.reached(), clock.latest()].map(|at| AtomicI64::new(at.as_ms()));
        let state = RetentionState {
            clock: Some(clock),
            stored,
            read_at: opened_at,
            wall: Some(wall),
            ..RetentionState::default()
        };
        let (ahead_ms, waiting) = (AtomicU64::new(0), AtomicU64::new(0));
        Retention { state: Mutex::new(state), reached_ms, latest_ms, ahead_ms, waiting, opened_at }
    }

    /// Returns the retention of a store in memory, which removes nothing.
    pub(in crate::tsdb) fn in_memory(options: &Options) -> Retention {
        Retention {
            state: Mutex::default(),
            reached_ms: AtomicI64::new(i64::MIN),
            latest_ms: AtomicI64::new(i64::MIN),
            ahead_ms: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            opened_at: options.elapsed.read(),
        }
    }

    fn state(&self) -> MutexGuard<'_, RetentionState> {
        // Each change is a single assignment, so a poisoned state is consistent.
        self.state.lock().ignore_poison()
    }

    /// Returns the time of the retention clock; none in a store in memory.
    pub(in crate::tsdb) fn reached(&self) -> Option<Timestamp> {
        let ms = self.reached_ms.load(Ordering::Relaxed);
        (ms > i64::MIN).then_some(Timestamp::from_ms(ms))
    }

    /// Returns the latest possible present; none in a store in memory.
    pub(in crate::tsdb) fn latest(&self) -> Option<Timestamp> {
        let ms = self.latest_ms.load(Ordering::Relaxed);
        (ms > i64::MIN).then_some(Timestamp::from_ms(ms))
    }

    /// Returns the lead of the wall clock at the last move, and the number of segments that wait
    /// for the retention clock. Takes no lock, because the state is locked while control syncs a
    /// row.
    pub(in crate::tsdb) fn lag(&self) -> (Duration, u64) {
        let ahead = Duration::from_millis(self.ahead_ms.load(Ordering::Relaxed));
        (ahead, self.waiting.load(Ordering::Relaxed))
    }

    /// Returns the reason why the wall clock may be behind. While there is one, no sample is
    /// refused for good for being ahead of the clock.
    pub(in crate::tsdb) fn unconfirmed(&self, now: Timestamp, options: &Options) -> Option<Unconfirmed> {
        if let Some(built) = options.built.filter(|built| now < *built) {
            return Some(Unconfirmed::BeforeBuild { built });
        }
        let ran = options.elapsed.read().saturating_sub(self.opened_at);
        let left = CLOCK_CONFIRMED_AFTER.checked_sub(ran).filter(|left| !left.is_zero())?;
        Some(Unconfirmed::JustStarted { until: now.plus(left) })
    }

    /// Returns warnings about the clock: earlier than the program, ahead of the running time, and
    /// behind times that were seen.
    pub(in crate::tsdb) fn notes(&self, options: &Options) -> [Option<String>; 3] {
        let (state, waiting) = (self.state(), self.waiting.load(Ordering::Relaxed));
        [state.before_build(options.built), state.ahead_of_running(waiting), state.behind(options)]
    }
}

impl Tsdb {
    /// Moves the retention clock to the present. Its row in control is written when it is due. A
    /// failed write only makes retention later after a restart.
    pub(in crate::tsdb) fn retention_present(
        &self,
        maintenance: MaintenanceContext<'_>,
        wall: Timestamp,
    ) -> Present {
        let mut state = self.retention.state();
        let elapsed = self.options.elapsed.read();
        let ran = elapsed.saturating_sub(state.read_at);
        (state.read_at, state.wall) = (elapsed, Some(wall));
        if let Some(clock) = &mut state.clock {
            clock.advance(wall, ran);
            self.retention.reached_ms.store(clock.reached().as_ms(), Ordering::Relaxed);
            self.retention.latest_ms.store(clock.latest().as_ms(), Ordering::Relaxed);
        }
        if let Some(clock) = state.clock.clone().filter(|clock| clock.is_due(state.stored.as_ref())) {
            self.store_retention_clock(maintenance.manifest, &mut state, clock);
        }
        let ahead_ms = u64::try_from(state.ahead().as_millis()).unwrap_or(u64::MAX);
        self.retention.ahead_ms.store(ahead_ms, Ordering::Relaxed);
        Present { wall, clock: state.clock.clone(), grace: self.options.expiry_grace }
    }

    fn store_retention_clock(&self, manifest: &Manifest, state: &mut RetentionState, clock: RetentionClock) {
        match manifest.set_retention_clock(&clock) {
            Ok(()) => state.stored = Some(clock),
            Err(error) => tracing::warn!(
                "the retention clock was not stored; retention will be late after a restart: {}",
                with_sources(&error)
            ),
        }
    }

    /// Stores the retention clock before the store closes.
    pub(in crate::tsdb) fn close_retention(&self, manifest: &Manifest) {
        let mut state = self.retention.state();
        if let Some(clock) = state.clock.clone().filter(|clock| state.stored.as_ref() != Some(clock)) {
            self.store_retention_clock(manifest, &mut state, clock);
        }
    }

    /// Records the number of segments that wait for the retention clock.
    pub(in crate::tsdb) fn record_waiting(&self, segments: u64) {
        self.retention.waiting.store(segments, Ordering::Relaxed);
        self.warn_of_clocks();
    }

    /// Logs each of [`Retention::notes`] at most once an hour.
    pub(in crate::tsdb) fn warn_of_clocks(&self) {
        let notes = self.retention.notes(&self.options);
        let mut state = self.retention.state();
        let now = state.read_at;
        for (text, warned_at) in notes.into_iter().zip(&mut state.warned_at) {
            let Some(text) = text else { continue };
            if warned_at.is_none_or(|at| now.saturating_sub(at) >= WARN_EVERY) {
                *warned_at = Some(now);
                tracing::warn!("{text}");
            }
        }
    }

    /// Drops the expired segments: first from control, then from the set. Their files follow when
    /// they have no readers.
    pub(in crate::tsdb) fn expire(
        &self,
        maintenance: MaintenanceContext<'_>,
        store: &Arc<OrgStore>,
        present: &Present,
        report: &mut UpkeepReport,
    ) -> Result<(), UpkeepError> {
        let newest = store.usage.newest();
        let mut oldest = i64::MIN;
        let limits = store.hide_before(|limits| {
            oldest = horizon(limits.retention, newest, present.shown()).map_or(i64::MIN, Timestamp::as_ms);
            oldest
        });
        let keep = RetentionLimits { age: limits.retention, bytes: limits.retention_bytes };
        let now = present.confirmed(limits.retention);
        let by_age = RetentionLimits { bytes: None, ..keep };
        let waiting = {
            let set = store.segments();
            let by_wall = expired(&set.metas(), by_age, newest, present.wall).len();
            by_wall.saturating_sub(expired(&set.metas(), by_age, newest, now).len())
        };
        report.waiting += waiting as u64;
        loop {
            let set = store.segments();
            let mut gone = expired(&set.metas(), keep, newest, now);
            gone.truncate(COMMIT_SEGMENTS_MAX);
            if gone.is_empty() {
                return Ok(());
            }
            let numbers: Vec<u64> = gone.iter().map(|(seq, _)| *seq).collect();
            let metas = set.metas();
            let dropped = metas
                .iter()
                .filter_map(|meta| {
                    gone.iter().find(|(seq, _)| *seq == meta.seq).map(|(_, why)| ((*meta).clone(), *why))
                })
                .collect();
            let mut continues = true;
            // A backup copies the list and links the files under this lock.
            let removal = self.removal.lock().ignore_poison();
            store.change_segments(
                maintenance.manifest,
                ManifestChange { drop: dropped, ..ManifestChange::default() },
                |now| {
                    continues = self.options.disk.upkeep_goes_on();
                    if continues { now.with(&numbers, Vec::new()) } else { now.clone() }
                },
            )?;
            drop(removal);
            // Samples that are too old are hidden already. Segments that are dropped for their
            // bytes were visible.
            let shown = metas.iter().filter(|meta| numbers.contains(&meta.seq) && meta.max_ms >= oldest);
            if let Some(least_ms) = shown.map(|meta| meta.min_ms).min() {
                store.changes.note(least_ms);
            }
            if !continues {
                return Err(UpkeepError::Stopped);
            }
            let parts: Vec<Arc<IndexedSegment>> =
                set.parts.iter().filter(|part| numbers.contains(&part.meta().seq)).map(Arc::clone).collect();
            retire(store, maintenance.folder, &parts, "retention");
            let dir = maintenance.folder.segments_of(store.org);
            let bad = set.bad.iter().filter(|bad| numbers.contains(&bad.meta.seq)).map(|bad| Obsolete {
                seq: bad.meta.seq,
                path: dir.join(bad.meta.file_name()),
                reason: "retention".to_owned(),
                part: None,
            });
            store.obsolete.lock().ignore_poison().extend(bad);
            report.expired += numbers.len() as u64;
            tracing::info!(org = store.org.0, segments = numbers.len(), "retention dropped segments");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::OrgId;

    fn meta(seq: u64, min_ms: i64, max_ms: i64, file_bytes: u64) -> SegmentMeta {
        SegmentMeta {
            org: OrgId(1),
            seq,
            level: 0,
            flags: 0,
            series: 1,
            min_ms,
            max_ms,
            file_bytes,
            samples: 1,
            first_log_seq: 1,
            last_log_seq: seq,
            footer_crc: 0,
            sha256: [0; 16],
            replaces: Vec::new(),
        }
    }

    fn gone(
        list: &[SegmentMeta],
        keep: (Option<u64>, Option<u64>),
        newest: Option<i64>,
        now: i64,
    ) -> Vec<u64> {
        let list: Vec<&SegmentMeta> = list.iter().collect();
        let keep = RetentionLimits { age: keep.0.map(Duration::from_millis), bytes: keep.1 };
        let newest = newest.map(Timestamp::from_ms);
        expired(&list, keep, newest, Timestamp::from_ms(now)).iter().map(|(seq, _)| *seq).collect()
    }

    #[test]
    fn expired_segments_are_dropped_and_then_the_oldest_until_the_bytes_fit() {
        let list = [meta(1, 0, 100, 10), meta(2, 101, 200, 10), meta(3, 260, 300, 10), meta(4, 201, 250, 10)];
        let check = |age: Option<u64>, bytes: Option<u64>, expected: &[u64]| {
            assert_eq!(gone(&list, (age, bytes), Some(1_200), 1_200), expected, "{age:?} {bytes:?}");
        };
        check(None, None, &[]);
        check(Some(1_100), None, &[]);
        check(Some(1_099), None, &[1]);
        check(Some(999), None, &[1, 2]);
        check(Some(950), None, &[1, 2]);
        check(Some(949), None, &[1, 2, 4]);
        check(None, Some(40), &[]);
        check(None, Some(39), &[1]);
        check(None, Some(15), &[1, 2, 4]);
        check(Some(1_099), Some(20), &[1, 2]);
        check(None, Some(0), &[1, 2, 4, 3]);
    }

    #[test]
    fn age_counts_from_the_newest_sample_or_from_now_if_that_is_earlier() {
        let list = [meta(1, 0, 100, 10), meta(2, 900, 1_000, 10)];
        let check = |newest: Option<i64>, now: i64, expected: &[u64]| {
            assert_eq!(gone(&list, (Some(500), None), newest, now), expected, "{newest:?} {now}");
        };
        check(Some(1_000), 1_000, &[1]);
        // A clock that is far ahead, or an organisation that stopped sending.
        check(Some(1_000), 1_000_000, &[1]);
        check(Some(600), 1_000_000, &[]);
        // A sample from the future.
        check(Some(1_000_000), 1_000, &[1]);
        // A clock that is behind.
        check(Some(1_000), 50, &[]);
        check(None, 1_000_000, &[]);
    }

    #[test]
    fn a_segment_expires_no_earlier_than_the_segments_that_it_overrides() {
        // Late samples of an old time over a large segment, older ones over those, and a segment
        // that overrides nothing.
        let list = [meta(1, 0, 100, 50), meta(2, 10, 20, 5), meta(3, -10, 12, 5), meta(4, -50, -40, 5)];
        for (bytes, expected) in
            [(64, &[4][..]), (60, &[4]), (59, &[4, 1]), (9, &[4, 1, 2]), (4, &[4, 1, 2, 3])]
        {
            assert_eq!(gone(&list, (None, Some(bytes)), None, 0), expected, "{bytes}");
        }
        // Retention by age keeps half of the large segment, and the segments that override it.
        assert_eq!(gone(&list, (Some(50), None), Some(100), 100), [4]);
        assert_eq!(gone(&list, (Some(50), None), Some(151), 151), [4, 1, 2, 3]);
    }
}
