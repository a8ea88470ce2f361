//! The totals of series whose senders report changes (OTLP, delta temporality).
//!
//! A total is the sum of all changes so far, and totals are the stored samples. So the newest
//! stored sample of a series is its total, and memory is only a cache: a series that is not in
//! memory, after a restart or an eviction, continues from its newest stored sample of the last
//! [`LOOKBACK_MS`]. After a crash, changes whose samples the log lost are lost with them, and no
//! total is wrong. A series without such a sample begins at zero, like a counter after a reset.
//!
//! A request changes totals only once its samples are stored ([`RequestTotals::keep`]); otherwise
//! its sender repeats it. Until then the totals of the organisation are locked, so its requests
//! with changes run one after another.
//!
//! A point is refused if its time is not after that of the previous one: whether it is a repetition
//! cannot be known. Gaps and overlaps between the intervals of points are counted.

mod histogram;
mod stored;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::ingest::otlp::{DeltaRefusal, DeltaTimes, DeltaTotals};
use crate::model::{Histogram, HistogramError, OrgId, RenderedLabels, Timestamp};
use crate::sync::IgnorePoison as _;
pub use stored::StoredTotals;
use stored::stored_labels;

/// How far back the stored sample of a total is searched for, in milliseconds.
pub const LOOKBACK_MS: i64 = 86_400_000;
/// The most series of an organisation in memory, inclusive; about 100 bytes each, and the buckets
/// of native histograms.
const SERIES_MAX: usize = 100_000;
/// The most buckets of native histograms of an organisation in memory, inclusive.
const BUCKETS_MAX: usize = 2_000_000;
/// The time after which the totals of an organisation without requests are dropped from memory.
const IDLE_MS: i64 = 3_600_000;

/// Counts since the start of the server.
#[derive(Debug, Default)]
pub struct DeltaCounts {
    /// Points whose interval begins after the end of the previous one.
    pub gaps: AtomicU64,
    /// Points whose interval begins before the end of the previous one.
    pub overlaps: AtomicU64,
    /// Refused points whose time is not after that of the previous one.
    pub reordered: AtomicU64,
    /// Refused points that repeat the previous one.
    pub repeated: AtomicU64,
    /// Series that were evicted from memory.
    pub evicted: AtomicU64,
}

/// The totals of all organisations.
#[derive(Debug, Default)]
pub struct SeriesTotals {
    orgs: Mutex<HashMap<OrgId, Arc<Mutex<OrgTotals>>>>,
    /// The counts for the metrics of the server.
    pub counts: DeltaCounts,
}

impl SeriesTotals {
    /// Returns the totals of an organisation.
    pub fn of(&self, org: OrgId) -> Arc<Mutex<OrgTotals>> {
        Arc::clone(self.orgs.lock().ignore_poison().entry(org).or_default())
    }

    /// Drops the totals of organisations without requests in the last hour from memory.
    pub fn sweep(&self, now: Timestamp) {
        self.orgs.lock().ignore_poison().retain(|_, totals| {
            // A request that has the totals may not have locked them yet. New requests wait for the
            // map, so the lock below never waits.
            Arc::strong_count(totals) > 1 || now.ms_since(totals.lock().ignore_poison().used_at) < IDLE_MS
        });
    }
}

/// A keyed hash of the labels of a series, which no sender can make collide.
type SeriesKey = u128;

/// The total of a series.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SeriesTotal {
    /// The time of the newest point.
    at: Timestamp,
    /// The start of the interval of the newest point, if it is known.
    start: Option<Timestamp>,
    /// The start of the total, if it is known.
    origin: Option<Timestamp>,
    value: TotalValue,
}

#[derive(Clone, Debug, PartialEq)]
enum TotalValue {
    Number(f64),
    Native(Box<Histogram>),
}

impl TotalValue {
    fn buckets(&self) -> usize {
        match self {
            TotalValue::Number(_) => 0,
            TotalValue::Native(histogram) => histogram.shape().buckets(),
        }
    }
}

/// The totals of an organisation in memory, in two generations: when the young one has half of the
/// allowed series, the old one is dropped, and the young one becomes old. Used series move to the
/// young generation.
#[derive(Debug)]
pub struct OrgTotals {
    young: HashMap<SeriesKey, SeriesTotal>,
    old: HashMap<SeriesKey, SeriesTotal>,
    young_buckets: usize,
    hashers: [RandomState; 2],
    used_at: Timestamp,
    series_max: usize,
}

impl Default for OrgTotals {
    fn default() -> OrgTotals {
        OrgTotals {
            young: HashMap::new(),
            old: HashMap::new(),
            young_buckets: 0,
            hashers: [RandomState::new(), RandomState::new()],
            used_at: Timestamp::MIN,
            series_max: SERIES_MAX,
        }
    }
}

impl OrgTotals {
    /// Returns the key of a stored series, whose labels are in order.
    fn key(&self, labels: &[(&str, &str)]) -> SeriesKey {
        let [high, low] = self.hashers.each_ref().map(|hasher| hasher.hash_one(labels));
        u128::from(high) << 64 | u128::from(low)
    }

    fn take(&mut self, key: SeriesKey) -> Option<SeriesTotal> {
        if let Some(total) = self.young.remove(&key) {
            self.young_buckets = self.young_buckets.saturating_sub(total.value.buckets());
            return Some(total);
        }
        self.old.remove(&key)
    }

    /// Sets a total. Returns the number of series that were evicted for it.
    fn put(&mut self, key: SeriesKey, total: SeriesTotal) -> usize {
        let mut evicted = 0;
        if self.young.len() >= self.series_max / 2 || self.young_buckets >= BUCKETS_MAX / 2 {
            evicted = self.old.len();
            self.old = std::mem::take(&mut self.young);
            self.young_buckets = 0;
        }
        self.young_buckets += total.value.buckets();
        self.young.insert(key, total);
        evicted
    }
}

/// The totals that one request changes.
pub struct RequestTotals<'t> {
    org: &'t Mutex<OrgTotals>,
    /// Locked at the first point with a change.
    locked: Option<MutexGuard<'t, OrgTotals>>,
    counts: &'t DeltaCounts,
    stored: StoredTotals<'t>,
    now: Timestamp,
    /// The totals before the request, in order of their changes.
    before: Vec<(SeriesKey, Option<SeriesTotal>)>,
}

impl std::fmt::Debug for RequestTotals<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestTotals").field("changes", &self.before.len()).finish_non_exhaustive()
    }
}

impl<'t> RequestTotals<'t> {
    /// Returns the totals for a request that arrived at `now`.
    pub fn new(
        org: &'t Mutex<OrgTotals>,
        counts: &'t DeltaCounts,
        stored: StoredTotals<'t>,
        now: Timestamp,
    ) -> RequestTotals<'t> {
        RequestTotals { org, locked: None, counts, stored, now, before: Vec::new() }
    }

    /// Returns whether the request had points with changes.
    pub fn is_used(&self) -> bool {
        self.locked.is_some()
    }

    /// Keeps the changes: all samples of the request are stored.
    pub fn keep(mut self) {
        self.before.clear();
    }

    /// Removes the changed totals from memory: some samples of the request are not stored, so the
    /// stored ones decide.
    pub fn forget(mut self) {
        let keys: Vec<SeriesKey> = self.before.drain(..).map(|(key, _)| key).collect();
        if let Some(org) = &mut self.locked {
            for key in keys {
                org.take(key);
            }
        }
    }

    fn org(&mut self) -> &mut OrgTotals {
        let (org, now) = (self.org, self.now);
        self.locked.get_or_insert_with(|| {
            let mut locked = org.lock().ignore_poison();
            locked.used_at = now;
            locked
        })
    }

    /// Takes a total out of memory, or reads it. The caller puts it back.
    fn take(&mut self, series: &[&RenderedLabels]) -> (SeriesKey, Option<SeriesTotal>) {
        let labels = stored_labels(series, self.stored.forced_labels);
        let org = self.org();
        let key = org.key(&labels);
        let known = org.take(key);
        self.before.push((key, known.clone()));
        (key, known.or_else(|| self.stored.find(&labels)))
    }

    fn put(&mut self, key: SeriesKey, total: SeriesTotal) {
        let evicted = self.org().put(key, total);
        self.counts.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
    }

    fn check_order(&self, before: &SeriesTotal, times: DeltaTimes) -> Result<(), DeltaRefusal> {
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        if times.at <= before.at {
            let is_same = times.at == before.at && (times.start == before.start || before.start.is_none());
            count(if is_same { &self.counts.repeated } else { &self.counts.reordered });
            return Err(if is_same { DeltaRefusal::Repeated } else { DeltaRefusal::Reordered });
        }
        match times.start {
            Some(start) if start > before.at => _ = count(&self.counts.gaps),
            Some(start) if start < before.at => _ = count(&self.counts.overlaps),
            _ => {}
        }
        Ok(())
    }
}

/// Undoes the changes that were not kept.
impl Drop for RequestTotals<'_> {
    fn drop(&mut self) {
        let Some(org) = &mut self.locked else { return };
        for (key, before) in self.before.drain(..).rev() {
            org.take(key);
            if let Some(before) = before {
                org.put(key, before);
            }
        }
    }
}

impl DeltaTotals for RequestTotals<'_> {
    fn admit(
        &mut self,
        series: &[&RenderedLabels],
        times: DeltaTimes,
    ) -> Result<Option<Timestamp>, DeltaRefusal> {
        if times.start.is_some_and(|start| start > times.at) {
            return Err(DeltaRefusal::StartAfterEnd);
        }
        let (key, known) = self.take(series);
        let Some(mut total) = known else {
            // The first point of a series. Its total begins with its interval.
            let value = TotalValue::Number(0.0);
            self.put(key, SeriesTotal { at: times.at, start: times.start, origin: times.start, value });
            return Ok(times.start);
        };
        let order = self.check_order(&total, times);
        if order.is_ok() {
            (total.at, total.start) = (times.at, times.start);
        }
        let origin = total.origin;
        self.put(key, total);
        order.map(|()| origin)
    }

    fn add(&mut self, series: &[&RenderedLabels], at: Timestamp, change: f64) -> f64 {
        let (key, known) = self.take(series);
        let before = match known.as_ref().map(|total| &total.value) {
            Some(TotalValue::Number(before)) => *before,
            _ => 0.0,
        };
        let value = before + change;
        let (start, origin) = known.map_or((None, None), |total| (total.start, total.origin));
        self.put(key, SeriesTotal { at, start, origin, value: TotalValue::Number(value) });
        value
    }

    fn add_histogram(
        &mut self,
        series: &[&RenderedLabels],
        at: Timestamp,
        change: Histogram,
    ) -> Result<Histogram, HistogramError> {
        let (key, known) = self.take(series);
        let sum = match known.as_ref().map(|total| &total.value) {
            Some(TotalValue::Native(before)) => histogram::sum(before, &change)?,
            _ => change,
        };
        let (start, origin) = known.map_or((None, None), |total| (total.start, total.origin));
        let value = TotalValue::Native(Box::new(sum.clone()));
        self.put(key, SeriesTotal { at, start, origin, value });
        Ok(sum)
    }

    fn end(&mut self, series: &[&RenderedLabels]) {
        // The staleness marker, which is stored, ends the total.
        let _ = self.take(series);
    }
}

#[cfg(test)]
mod tests;
