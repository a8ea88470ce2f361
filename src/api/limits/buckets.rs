//! Leaky buckets by key (GCRA of the crate governor), and their clock.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::Clock as GovernorClock;
use governor::middleware::{NoOpMiddleware, StateInformationMiddleware};
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

use crate::clock::{Clock, Stopwatch};

/// A monotonic clock: the time since the start of the process, or the time of a test's clock.
#[derive(Clone, Debug)]
pub(in crate::api) struct Ticker {
    clock: Clock,
    since_start: Stopwatch,
}

impl Ticker {
    /// Returns a clock that starts now.
    pub(in crate::api) fn start(clock: &Clock) -> Ticker {
        Ticker { clock: clock.clone(), since_start: Stopwatch::start() }
    }

    /// Returns the microseconds since the start of the process, or of the test's clock.
    pub(in crate::api) fn now_us(&self) -> u64 {
        match &self.clock {
            Clock::System => self.since_start.elapsed().as_micros().try_into().unwrap_or(u64::MAX),
            Clock::Manual(_) => u64::try_from(self.clock.now().as_ms()).unwrap_or(0).saturating_mul(1_000),
        }
    }
}

impl GovernorClock for Ticker {
    type Instant = Duration;

    fn now(&self) -> Duration {
        match &self.clock {
            Clock::System => self.since_start.elapsed(),
            Clock::Manual(_) => Duration::from_micros(self.now_us()),
        }
    }
}

/// A limiter that reports only whether a request is accepted.
pub(super) type PlainLimiter<K> = RateLimiter<K, HashMapStateStore<K>, Ticker, NoOpMiddleware<Duration>>;
/// A limiter that also reports the remaining burst.
type StateLimiter<K> = RateLimiter<K, HashMapStateStore<K>, Ticker, StateInformationMiddleware>;

/// Leaky buckets by key in a bounded map. Beyond the bound all new keys share one bucket.
pub(super) struct KeyedBuckets<K: Clone + Eq + Hash> {
    pub(super) limiter: StateLimiter<K>,
    overflow: K,
    entries_max: usize,
}

impl<K: Clone + Eq + Hash> KeyedBuckets<K> {
    /// Returns a map without buckets. `overflow` is the key of the shared bucket.
    pub(super) fn new(quota: Quota, overflow: K, ticker: &Ticker, entries_max: usize) -> KeyedBuckets<K> {
        let limiter = RateLimiter::new(quota, HashMapStateStore::default(), ticker.clone());
        KeyedBuckets { limiter, overflow, entries_max }
    }

    /// Charges one request and returns how many more would be accepted now. At the limit, returns
    /// the time to wait.
    pub(super) fn charge(&self, key: &K) -> Result<u32, Duration> {
        if self.limiter.len() >= self.entries_max {
            self.limiter.retain_recent();
        }
        let key = if self.limiter.len() >= self.entries_max { &self.overflow } else { key };
        let checked = self.limiter.check_key(key);
        let left = checked.map_err(|until| until.wait_time_from(self.limiter.clock().now()))?;
        Ok(left.remaining_burst_capacity())
    }
}

/// Returns a quota of `rate` a second, at least one.
pub(super) fn per_second(rate: u32) -> Quota {
    Quota::per_second(NonZeroU32::new(rate).unwrap_or(NonZeroU32::MIN))
}

/// Returns a quota of `count` at once, which refills evenly over `period`.
pub(super) fn spread(count: u32, period: Duration) -> Quota {
    let count = NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
    Quota::with_period(period / count.get())
        .map_or(Quota::per_second(count), |quota| quota.allow_burst(count))
}
