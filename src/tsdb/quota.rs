//! What one organisation takes of the process, and what it may take: memory, bytes on the disk, new series a second.
//!
//! **Memory.** All organisations share one budget. An organisation may grow while it has less than three times of what
//! is left of the budget, and in any case up to a 256th of it. So one alone gets three quarters, N that want all of it
//! get `3 / (1 + 3 N)` each once their samples were sealed, and nobody's appetite takes the last room of another. Names
//! (dictionaries and series) are never given back while the process lives, so they may take half of the budget by the same
//! rule: beyond it new series are refused, for good, while samples of known ones wait for the next seal.
//!
//! **Disk.** Segments, the registry, and the records logged since the last seal.
//!
//! **New series** come out of a bucket that holds ten seconds' worth: a sender's first scrape fits, a flood does not.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::error::AppendError;
use super::options::OrgLimits;
use super::report::{Capacity, SampleCounts};
use super::series::table::Table;
use super::store::{OrgStore, Stores};
use crate::model::{Refusal, Timestamp};
use crate::sync::IgnorePoison as _;

/// An organisation may have so many times what is left.
const SHARE_OF_FREE: u64 = 3;
/// What an organisation may have in any case, as a part of the budget: the room of the last one to come.
const FLOOR_PART: u64 = 256;
/// Names get this part of the memory.
const NAMES_PART: u64 = 2;
/// Seconds of new series that a full bucket holds.
const BUCKET_S: u64 = 10;

/// What an organisation uses, as far as its head and its table do not say it themselves.
#[derive(Debug)]
pub(super) struct Usage {
    /// Estimated memory of names and series; written under the table's lock.
    names: AtomicU64,
    /// Series registered, and one more than the greatest id; written under the table's lock.
    series: AtomicU64,
    ids_end: AtomicU32,
    /// How much of that is in [`Stores::name_bytes`] already.
    names_counted: Mutex<u64>,
    /// What [`admit`] last found that names may take.
    names_allowed: AtomicU64,
    /// Bytes of records in the log since the last seal.
    pub(super) log_bytes: AtomicU64,
    /// The greatest time of any sample; the least possible while there is none.
    newest_ms: AtomicI64,
    /// Samples were refused for want of memory: a seal would help.
    pressed: AtomicBool,
    bucket: Mutex<Bucket>,
    refused: Mutex<BTreeMap<&'static str, u64>>,
    today: Mutex<Today>,
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
            pressed: AtomicBool::new(false),
            bucket: Mutex::default(),
            refused: Mutex::default(),
            today: Mutex::default(),
        }
    }
}

/// Samples stored since midnight (UTC).
#[derive(Clone, Copy, Debug, Default)]
struct Today {
    day: i64,
    stored: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Numbers only: whole after every statement.
    mutex.lock().ignore_poison()
}

impl Usage {
    /// Whether samples were refused for want of memory since this was asked last.
    pub(super) fn take_pressed(&self) -> bool {
        self.pressed.swap(false, Ordering::Relaxed)
    }

    /// Notes that a sample of this time is there.
    pub(super) fn saw(&self, at_ms: i64) {
        self.newest_ms.fetch_max(at_ms, Ordering::Relaxed);
    }

    /// The greatest time of any sample.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        let ms = self.newest_ms.load(Ordering::Relaxed);
        (ms > i64::MIN).then_some(Timestamp::from_ms(ms))
    }

    /// Records the memory and the number of the series. The caller has the table locked, so that no newer figures are
    /// overwritten.
    pub(super) fn record_table(&self, table: &Table) {
        self.names.store(table.bytes() + table.refused.bytes() as u64, Ordering::Relaxed);
        self.series.store(u64::from(table.live()), Ordering::Relaxed);
        self.ids_end.store(table.ids_end(), Ordering::Release);
    }

    /// One more than the greatest id of a series.
    pub(super) fn ids_end(&self) -> u32 {
        self.ids_end.load(Ordering::Acquire)
    }

    /// The number of series registered.
    pub(super) fn series(&self) -> u64 {
        self.series.load(Ordering::Relaxed)
    }

    /// Counts what became of a batch.
    pub(super) fn count(&self, stored: u64, refused: &SampleCounts, now: Timestamp) {
        let day = now.as_days();
        {
            let mut today = lock(&self.today);
            if today.day != day {
                *today = Today { day, stored: 0 };
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

    /// Takes up what was stored today before the process began. To be called before anything is stored.
    pub(super) fn resume_today(&self, stored: u64, now: Timestamp) {
        *lock(&self.today) = Today { day: now.as_days(), stored };
    }

    /// Samples stored since midnight.
    pub(super) fn stored_today(&self, now: Timestamp) -> u64 {
        let Today { day, stored } = *lock(&self.today);
        if day == now.as_days() { stored } else { 0 }
    }

    /// Samples refused since the start of the process, by code.
    pub(super) fn refused(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.refused).clone()
    }
}

impl OrgStore {
    /// Estimated memory: samples, names.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.head.counters.bytes.load(Ordering::Relaxed)
            + self.side.counters.bytes.load(Ordering::Relaxed)
            + self.usage.names.load(Ordering::Relaxed)
    }

    /// Bytes on the disk as far as they are this organisation's own.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.usage.log_bytes.load(Ordering::Relaxed) + self.segments().file_bytes()
    }
}

impl Stores {
    /// Takes what an organisation's names have grown or shrunk by into the sum.
    pub(super) fn settle_names(&self, store: &OrgStore) {
        // Held to the end: what is subtracted here has been added before.
        let mut counted = lock(&store.usage.names_counted);
        let now = store.usage.names.load(Ordering::Relaxed);
        if now >= *counted {
            self.name_bytes.fetch_add(now - *counted, Ordering::Relaxed);
        } else {
            self.name_bytes.fetch_sub(*counted - now, Ordering::Relaxed);
        }
        *counted = now;
    }

    /// Takes an organisation that is gone out of the sum.
    pub(super) fn forget_names(&self, store: &OrgStore) {
        let counted = *lock(&store.usage.names_counted);
        self.name_bytes.fetch_sub(counted, Ordering::Relaxed);
    }
}

/// What somebody may have who has a part of `used` out of `budget`.
fn share(budget: u64, used: u64) -> u64 {
    budget.saturating_sub(used).saturating_mul(SHARE_OF_FREE).max(budget / FLOOR_PART)
}

/// Whether an organisation has room for more samples.
///
/// # Errors
/// [`AppendError::AtCapacity`]: nothing is refused for good, the sender keeps it and sends it again.
pub(super) fn admit(stores: &Stores, store: &OrgStore, budget: u64) -> Result<(), AppendError> {
    let limits = store.limits();
    let own = limits.memory_bytes_max.unwrap_or(u64::MAX);
    let names = stores.name_bytes.load(Ordering::Relaxed);
    let names_share = share(budget / NAMES_PART, names).min(own / NAMES_PART);
    store.usage.names_allowed.store(names_share, Ordering::Relaxed);

    let refuse = |what, used, allowed| {
        store.usage.pressed.fetch_or(what != Capacity::Disk, Ordering::Relaxed);
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

/// New series that may come at once. Empty until it is first asked, and full then.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// In thousandths of a series, so that whole numbers do.
    level: u64,
    filled: Option<Timestamp>,
}

impl Bucket {
    /// Fills up at `rate` a second. A clock that went back fills nothing and is believed from then on.
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

/// Whether one more series may be registered, and why not. Holds the organisation's bucket while a batch is resolved.
pub(super) struct Gate<'s> {
    bucket: MutexGuard<'s, Bucket>,
    rate: Option<u32>,
    names_allowed: u64,
    series_max: u32,
}

/// The first limit that stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closed {
    Series,
    Memory,
    Rate,
}

impl<'s> Gate<'s> {
    pub(super) fn open(usage: &'s Usage, limits: &OrgLimits, now: Timestamp) -> Gate<'s> {
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

    fn closed(&self, table: &Table) -> Option<Closed> {
        if table.live() >= self.series_max {
            Some(Closed::Series)
        } else if table.bytes() >= self.names_allowed {
            Some(Closed::Memory)
        } else if self.rate.is_some() && self.bucket.level < 1_000 {
            Some(Closed::Rate)
        } else {
            None
        }
    }

    /// How many series the table may have after one more look at it: no more than it has while the gate is closed.
    pub(super) fn series_max(&self, table: &Table) -> u32 {
        if self.closed(table).is_some() { table.live() } else { self.series_max }
    }

    /// Memory that is left for names.
    pub(super) fn spare_bytes(&self, table: &Table) -> u64 {
        self.names_allowed.saturating_sub(table.bytes())
    }

    /// One was registered.
    pub(super) fn pass(&mut self) {
        if self.rate.is_some() {
            self.bucket.level = self.bucket.level.saturating_sub(1_000);
        }
    }

    /// The code of [`Gate::refusal`].
    pub(super) fn code(&self, table: &Table) -> &'static str {
        self.closed_code(table).unwrap_or("series_limit")
    }

    /// The code that new series are refused with now; none while they are registered.
    pub(super) fn closed_code(&self, table: &Table) -> Option<&'static str> {
        self.closed(table).map(|closed| match closed {
            Closed::Memory => "memory_limit",
            Closed::Rate => "new_series_rate",
            Closed::Series => "series_limit",
        })
    }

    /// Why a series was not registered.
    pub(super) fn refusal(&self, table: &Table, series: String) -> Refusal {
        let reason = match self.closed(table) {
            Some(Closed::Memory) => {
                let (bytes, allowed) = (table.bytes(), self.names_allowed);
                format!("the organisation's series take {bytes} of {allowed} bytes of memory")
            }
            Some(Closed::Rate) => {
                let rate = self.rate.unwrap_or_default();
                format!("more than {rate} new series a second came (max_new_series_per_s)")
            }
            Some(Closed::Series) | None => {
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
    fn a_bucket_holds_ten_seconds_and_survives_a_clock_that_goes_back() {
        let mut bucket = Bucket::default();
        let at = Timestamp::from_ms;
        // Milliseconds, series taken before, whole series in it after filling at 3 a second.
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
        let mut slow = Bucket::default();
        slow.fill(1, at(0));
        slow.level = 0;
        for ms in 1..=1_000 {
            slow.fill(1, at(ms));
        }
        assert_eq!(slow.level, 1_000, "nothing is lost between looks");
    }

    /// Everybody takes what they may, in turns of different sizes; then what is theirs is sealed away and they go on.
    #[test]
    fn shares_never_starve_anybody() {
        const BUDGET: u64 = 1 << 32;
        let alone = (0u64..1_000)
            .fold(0, |used, _| if used < share(BUDGET, used) { used + BUDGET / 1_000 } else { used });
        assert!((alone / (BUDGET / 100)).abs_diff(75) <= 1, "{alone}");
        let step = BUDGET / 10_000;
        let mut used = [alone, 0, 0, 0, 0];
        let grow = |used: &mut [u64; 5]| {
            for turn in 0..20_000 {
                let who = turn % used.len();
                if used[who] < share(BUDGET, used.iter().sum()) {
                    used[who] += step;
                }
            }
        };
        grow(&mut used);
        assert!(used.iter().all(|have| *have >= BUDGET / FLOOR_PART), "{used:?}");
        for _ in 0..20 {
            // A seal takes most of everybody's.
            used = used.map(|have| have / 4);
            grow(&mut used);
        }
        let fair = BUDGET / 16 * 3;
        assert!(used.iter().all(|have| have.abs_diff(fair) < fair / 10), "{used:?}, {fair} each");
        assert!(used.iter().sum::<u64>() <= BUDGET);
    }
}
