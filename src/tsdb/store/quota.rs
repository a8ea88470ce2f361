//! The resources that an organisation uses and may use: memory, bytes on disk, new series per
//! second.
//!
//! **Memory.** All organisations share one budget. An organisation may grow while it uses less than
//! three times the remaining budget, and always up to a 256th of the budget. So a single
//! organisation gets three quarters. N organisations that all use as much as they can get `3 / (1 +
//! 3 N)` each once their samples are sealed, and none can take the last memory of another. The
//! memory of names (dictionaries and series) is not released while the process lives, so names may
//! take half of the budget by the same rule. Beyond that, new series are refused permanently, while
//! samples of known ones wait for the next seal.
//!
//! **Disk.** Counts segments, the registry, and the records logged since the last seal.
//!
//! **New series** are limited by a token bucket for ten seconds: it admits a sender's first scrape,
//! but not a flood.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::model::{Refusal, Timestamp};
use crate::sync::IgnorePoison as _;
use crate::tsdb::error::AppendError;
use crate::tsdb::options::OrgLimits;
use crate::tsdb::report::{Capacity, SampleCounts};
use crate::tsdb::series::table::Table;
use crate::tsdb::store::{OrgStore, Stores};

/// An organisation may use at most this many times the remaining budget.
const SHARE_OF_FREE: u64 = 3;
/// The divisor of the budget that gives the memory that every organisation may always use.
const FLOOR_PART: u64 = 256;
/// The divisor of the memory that gives the part for names.
const NAMES_PART: u64 = 2;
/// The size of the token bucket, in seconds of new series.
const BUCKET_S: u64 = 10;

/// The resources that an organisation uses, apart from those that its head and its table count.
#[derive(Debug)]
pub(in crate::tsdb) struct Usage {
    /// Estimated memory of names and series in bytes, written under the table's lock.
    names: AtomicU64,
    /// Registered series, and one more than the greatest id, written under the table's lock.
    series: AtomicU64,
    ids_end: AtomicU32,
    /// The part of `names` that is already in [`Stores::name_bytes`].
    names_counted: Mutex<u64>,
    /// The memory for names that [`admit`] computed last.
    names_allowed: AtomicU64,
    /// Bytes of records in the log since the last seal.
    pub(in crate::tsdb) log_bytes: AtomicU64,
    /// The greatest time of any sample; `i64::MIN` while there is none.
    newest_ms: AtomicI64,
    /// Whether samples were refused for lack of memory, which a seal would release.
    memory_refused: AtomicBool,
    /// Whether most samples of the last batch were duplicates with other values.
    pub(in crate::tsdb) sends_duplicates: AtomicBool,
    bucket: Mutex<TokenBucket>,
    refused: Mutex<BTreeMap<&'static str, u64>>,
    today: Mutex<DailyCount>,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage {
            names: AtomicU64::new(0),
            series: AtomicU64::new(0),
            ids_end: AtomicU32::new(0),
            names_counted: Mutex::default(),
            names_allowed: AtomicU64::new(u64::MAX),
            log_bytes: AtomicU64::new(0),
            newest_ms: AtomicI64::new(i64::MIN),
            memory_refused: AtomicBool::new(false),
            sends_duplicates: AtomicBool::new(false),
            bucket: Mutex::default(),
            refused: Mutex::default(),
            today: Mutex::default(),
        }
    }
}

/// Samples stored since midnight (UTC).
#[derive(Clone, Copy, Debug, Default)]
struct DailyCount {
    day: i64,
    stored: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The values are numbers, which are valid after every statement.
    mutex.lock().ignore_poison()
}

impl Usage {
    /// Returns whether samples were refused for lack of memory since the last call.
    pub(in crate::tsdb) fn take_pressed(&self) -> bool {
        self.memory_refused.swap(false, Ordering::Relaxed)
    }

    /// Records the time of a stored sample.
    pub(in crate::tsdb) fn record_time(&self, at_ms: i64) {
        self.newest_ms.fetch_max(at_ms, Ordering::Relaxed);
    }

    /// Returns the greatest time of any sample.
    pub(in crate::tsdb) fn newest(&self) -> Option<Timestamp> {
        let ms = self.newest_ms.load(Ordering::Relaxed);
        (ms > i64::MIN).then_some(Timestamp::from_ms(ms))
    }

    /// Records the memory and the number of the series. The caller has locked the table, so newer
    /// figures are not overwritten.
    pub(in crate::tsdb) fn record_table(&self, table: &Table) {
        self.names.store(table.bytes() + table.refused.bytes() as u64, Ordering::Relaxed);
        self.series.store(u64::from(table.live()), Ordering::Relaxed);
        self.ids_end.store(table.ids_end(), Ordering::Release);
    }

    /// Returns one more than the greatest id of a series.
    pub(in crate::tsdb) fn ids_end(&self) -> u32 {
        self.ids_end.load(Ordering::Acquire)
    }

    /// Returns the number of registered series.
    pub(in crate::tsdb) fn series(&self) -> u64 {
        self.series.load(Ordering::Relaxed)
    }

    /// Counts the outcome of a batch.
    pub(in crate::tsdb) fn count(&self, stored: u64, refused: &SampleCounts, now: Timestamp) {
        let day = now.as_days();
        {
            let mut today = lock(&self.today);
            if today.day != day {
                *today = DailyCount { day, stored: 0 };
            }
            today.stored += stored;
        }
        if !refused.is_empty() {
            let mut all = lock(&self.refused);
            for (code, samples) in refused {
                *all.entry(code).or_default() += samples;
            }
        }
    }

    /// Sets the samples stored today before the process started. Call it before anything is stored.
    pub(in crate::tsdb) fn resume_today(&self, stored: u64, now: Timestamp) {
        *lock(&self.today) = DailyCount { day: now.as_days(), stored };
    }

    /// Returns the samples stored since midnight (UTC).
    pub(in crate::tsdb) fn stored_today(&self, now: Timestamp) -> u64 {
        let DailyCount { day, stored } = *lock(&self.today);
        if day == now.as_days() { stored } else { 0 }
    }

    /// Returns the samples refused since the start of the process, by code.
    pub(in crate::tsdb) fn refused(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.refused).clone()
    }
}

impl OrgStore {
    /// Returns the estimated memory of samples and names, in bytes.
    pub(in crate::tsdb) fn memory_bytes(&self) -> u64 {
        self.head.counters.bytes.load(Ordering::Relaxed)
            + self.side.counters.bytes.load(Ordering::Relaxed)
            + self.usage.names.load(Ordering::Relaxed)
    }

    /// Returns the bytes on disk in the organisation's own files.
    pub(in crate::tsdb) fn disk_bytes(&self) -> u64 {
        self.usage.log_bytes.load(Ordering::Relaxed) + self.segments().file_bytes()
    }
}

impl Stores {
    /// Updates the sum of all names by the change of an organisation's names.
    pub(in crate::tsdb) fn settle_names(&self, store: &OrgStore) {
        // Locked until the end, so that only bytes are subtracted that were added before.
        let mut counted = lock(&store.usage.names_counted);
        let now = store.usage.names.load(Ordering::Relaxed);
        if now >= *counted {
            self.name_bytes.fetch_add(now - *counted, Ordering::Relaxed);
        } else {
            self.name_bytes.fetch_sub(*counted - now, Ordering::Relaxed);
        }
        *counted = now;
    }

    /// Subtracts the names of a removed organisation from the sum.
    pub(in crate::tsdb) fn forget_names(&self, store: &OrgStore) {
        let counted = *lock(&store.usage.names_counted);
        self.name_bytes.fetch_sub(counted, Ordering::Relaxed);
    }
}

/// Returns how much an organisation may use if all organisations use `used` out of `budget`.
fn share(budget: u64, used: u64) -> u64 {
    budget.saturating_sub(used).saturating_mul(SHARE_OF_FREE).max(budget / FLOOR_PART)
}

/// Returns whether an organisation may store more samples.
///
/// # Errors
/// [`AppendError::AtCapacity`]. The refusal is temporary: the sender keeps the samples and retries.
pub(in crate::tsdb) fn admit(stores: &Stores, store: &OrgStore, budget: u64) -> Result<(), AppendError> {
    let limits = store.limits();
    let own = limits.memory_bytes_max.unwrap_or(u64::MAX);
    let names = stores.name_bytes.load(Ordering::Relaxed);
    let names_share = share(budget / NAMES_PART, names).min(own / NAMES_PART);
    store.usage.names_allowed.store(names_share, Ordering::Relaxed);

    let refuse = |what, used, allowed| {
        store.usage.memory_refused.fetch_or(what != Capacity::Disk, Ordering::Relaxed);
        Err(AppendError::AtCapacity { what, used, allowed })
    };
    let used = store.memory_bytes();
    if used >= own {
        return refuse(Capacity::Memory, used, own);
    }
    let share = share(budget, stores.head_bytes.load(Ordering::Relaxed) + names);
    if used >= share {
        return refuse(Capacity::MemoryShare, used, share);
    }
    if let Some(allowed) = limits.disk_bytes_max {
        let used = store.disk_bytes();
        if used >= allowed {
            return refuse(Capacity::Disk, used, allowed);
        }
    }
    Ok(())
}

/// The token bucket of new series. It is full at its first use.
#[derive(Clone, Copy, Debug, Default)]
struct TokenBucket {
    /// The tokens, in thousandths of a series, so that integers suffice.
    level: u64,
    filled: Option<Timestamp>,
}

impl TokenBucket {
    /// Adds `rate` tokens per second, up to the bucket's size. If the clock went back, it adds
    /// nothing and continues from the new time.
    fn fill(&mut self, rate: u32, now: Timestamp) {
        let full = u64::from(rate).saturating_mul(BUCKET_S * 1_000);
        let gained = self.filled.map_or(full, |filled| {
            let ms = u64::try_from(now.ms_since(filled)).unwrap_or(0);
            ms.saturating_mul(u64::from(rate))
        });
        self.level = self.level.saturating_add(gained).min(full);
        self.filled = Some(now);
    }
}

/// The check of whether another series may be registered, and why not. Holds the organisation's
/// token bucket while a batch is resolved.
pub(in crate::tsdb) struct Gate<'s> {
    bucket: MutexGuard<'s, TokenBucket>,
    rate: Option<u32>,
    names_allowed: u64,
    series_max: u32,
}

/// The first limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReachedLimit {
    Series,
    Memory,
    Rate,
}

impl<'s> Gate<'s> {
    pub(in crate::tsdb) fn open(usage: &'s Usage, limits: &OrgLimits, now: Timestamp) -> Gate<'s> {
        let mut bucket = lock(&usage.bucket);
        if let Some(rate) = limits.new_series_per_s {
            bucket.fill(rate, now);
        }
        Gate {
            bucket,
            rate: limits.new_series_per_s,
            names_allowed: usage.names_allowed.load(Ordering::Relaxed),
            series_max: limits.series_max,
        }
    }

    fn reached_limit(&self, table: &Table) -> Option<ReachedLimit> {
        if table.live() >= self.series_max {
            Some(ReachedLimit::Series)
        } else if table.bytes() >= self.names_allowed {
            Some(ReachedLimit::Memory)
        } else if self.rate.is_some() && self.bucket.level < 1_000 {
            Some(ReachedLimit::Rate)
        } else {
            None
        }
    }

    /// Returns how many series the table may have after one more registration. If a limit is
    /// reached, this is the current number.
    pub(in crate::tsdb) fn series_max(&self, table: &Table) -> u32 {
        if self.reached_limit(table).is_some() { table.live() } else { self.series_max }
    }

    /// Returns the remaining memory for names, in bytes.
    pub(in crate::tsdb) fn spare_bytes(&self, table: &Table) -> u64 {
        self.names_allowed.saturating_sub(table.bytes())
    }

    /// Takes a token for a registered series.
    pub(in crate::tsdb) fn take_one(&mut self) {
        if self.rate.is_some() {
            self.bucket.level = self.bucket.level.saturating_sub(1_000);
        }
    }

    /// Returns the code of [`Gate::refusal`].
    pub(in crate::tsdb) fn code(&self, table: &Table) -> &'static str {
        self.closed_code(table).unwrap_or("series_limit")
    }

    /// Returns the code with which new series are refused now, or None while they are registered.
    pub(in crate::tsdb) fn closed_code(&self, table: &Table) -> Option<&'static str> {
        self.reached_limit(table).map(|reached_limit| match reached_limit {
            ReachedLimit::Memory => "memory_limit",
            ReachedLimit::Rate => "new_series_rate",
            ReachedLimit::Series => "series_limit",
        })
    }

    /// Returns the refusal of a series that was not registered.
    pub(in crate::tsdb) fn refusal(&self, table: &Table, series: String) -> Refusal {
        let reason = match self.reached_limit(table) {
            Some(ReachedLimit::Memory) => {
                let (bytes, allowed) = (table.bytes(), self.names_allowed);
                format!("the organisation's series take {bytes} of {allowed} bytes of memory")
            }
            Some(ReachedLimit::Rate) => {
                let rate = self.rate.unwrap_or_default();
                format!("more than {rate} new series per second arrived (max_new_series_per_s)")
            }
            Some(ReachedLimit::Series) | None => {
                let (live, allowed) = (table.live(), self.series_max);
                format!("the organisation has {live} of {allowed} series (max_series)")
            }
        };
        Refusal { series, code: self.code(table), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_bucket_holds_ten_seconds_and_survives_a_clock_that_goes_back() {
        let mut bucket = TokenBucket::default();
        let at = Timestamp::from_ms;
        // Time in milliseconds, series taken before, whole series in the bucket after filling at 3
        // per second.
        let steps = [(1_000, 0, 30), (1_000, 30, 0), (1_333, 0, 0), (1_334, 0, 1), (500, 1, 0), (832, 0, 0)];
        for (ms, taken, expected) in steps {
            bucket.level -= taken * 1_000;
            bucket.fill(3, at(ms));
            assert_eq!(bucket.level / 1_000, expected, "at {ms}");
        }
        bucket.fill(3, at(i64::MAX));
        assert_eq!(bucket.level, 30_000);
        bucket.fill(3, at(i64::MIN));
        bucket.fill(3, at(i64::MAX));
        assert_eq!(bucket.level, 30_000);
        let mut slow = TokenBucket::default();
        slow.fill(1, at(0));
        slow.level = 0;
        for ms in 1..=1_000 {
            slow.fill(1, at(ms));
        }
        assert_eq!(slow.level, 1_000, "no token is lost between fills");
    }

    /// Organisations grow as far as they may, in turns of different sizes. Then most of their
    /// samples are sealed, and they continue.
    #[test]
    fn shares_never_starve_an_organisation() {
        const BUDGET: u64 = 1 << 32;
        let alone = (0u64..1_000)
            .fold(0, |used, _| if used < share(BUDGET, used) { used + BUDGET / 1_000 } else { used });
        assert!((alone / (BUDGET / 100)).abs_diff(75) <= 1, "{alone}");
        let step = BUDGET / 10_000;
        let mut used = [alone, 0, 0, 0, 0];
        let grow = |used: &mut [u64; 5]| {
            for turn in 0..20_000 {
                let org = turn % used.len();
                if used[org] < share(BUDGET, used.iter().sum()) {
                    used[org] += step;
                }
            }
        };
        grow(&mut used);
        assert!(used.iter().all(|have| *have >= BUDGET / FLOOR_PART), "{used:?}");
        for _ in 0..20 {
            // A seal releases most of each organisation's memory.
            used = used.map(|have| have / 4);
            grow(&mut used);
        }
        let fair = BUDGET / 16 * 3;
        assert!(used.iter().all(|have| have.abs_diff(fair) < fair / 10), "{used:?}, {fair} each");
        assert!(used.iter().sum::<u64>() <= BUDGET);
    }
}
