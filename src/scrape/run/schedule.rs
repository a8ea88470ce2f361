//! The times of a target's scrapes.

use std::time::Duration;

use crate::model::{Labels, Timestamp};
use crate::scrape::target::stable_hash;

/// A scrape that begins at most this late has the timestamp that was planned, in milliseconds.
/// Equal distances between timestamps compress better.
const TOLERANCE_MS: i64 = 2;

/// The longest distance between two offsets, in milliseconds: targets with the same offset share
/// the wake-ups and the sync of their scrapes.
const STEP_MS_MAX: u64 = 100;
/// The number of offsets in an interval shorter than a hundred [`STEP_MS_MAX`].
const STEPS: u64 = 100;

/// Returns the seed of all offsets of this server: servers with other external labels or another
/// name scrape at other times.
pub fn offset_seed(external: &Labels, host: &str) -> u64 {
    stable_hash(external, host)
}

/// The times of a target's scrapes: an interval, and an offset that depends on the target, so that
/// the scrapes of many targets are spread over the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeSchedule {
    interval_ms: i64,
    offset_ms: i64,
    next: Timestamp,
}

/// The beginning of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeStart {
    /// The timestamp of its samples.
    pub at: Timestamp,
    /// The scrapes that were planned before it and did not begin.
    pub skipped: u64,
}

impl ScrapeSchedule {
    /// Returns the schedule of a target. The first scrape is less than an interval after `now`.
    pub fn new(interval_ms: i64, target_hash: u64, seed: u64, now: Timestamp) -> ScrapeSchedule {
        let interval_ms = interval_ms.max(1);
        let interval = interval_ms.unsigned_abs();
        let offset = (target_hash ^ seed) % interval;
        let offset = offset - offset % (interval / STEPS).clamp(1, STEP_MS_MAX);
        let mut schedule =
            ScrapeSchedule { interval_ms, offset_ms: i64::try_from(offset).unwrap_or(0), next: now };
        schedule.align(now);
        schedule
    }

    /// Plans the next scrape at the first time from `now` on that has the offset.
    fn align(&mut self, now: Timestamp) {
        let phase = now.plus_ms(-self.offset_ms).as_ms().rem_euclid(self.interval_ms);
        let wait = if phase == 0 { 0 } else { self.interval_ms - phase };
        self.next = now.plus_ms(wait);
    }

    /// Returns the planned time of the next scrape.
    pub const fn next(&self) -> Timestamp {
        self.next
    }

    /// Returns the interval in milliseconds.
    pub const fn interval_ms(&self) -> i64 {
        self.interval_ms
    }

    /// Returns the time from `now` to the next scrape: at most the interval, because a clock that
    /// was set back starts a new plan.
    pub fn wait(&mut self, now: Timestamp) -> Duration {
        if self.next.ms_since(now) > self.interval_ms {
            self.align(now);
        }
        Duration::from_millis(u64::try_from(self.next.ms_since(now).max(0)).unwrap_or(0))
    }

    /// Begins the scrape that is due, and plans the next one. Scrapes that were missed are skipped.
    pub fn begin(&mut self, now: Timestamp) -> ScrapeStart {
        let late = now.ms_since(self.next);
        let mut skipped = 0;
        if late < -self.interval_ms {
            self.align(now);
        } else if late >= self.interval_ms {
            skipped = late / self.interval_ms;
            self.next = self.next.plus_ms(late - late % self.interval_ms);
        }
        let planned = self.next;
        self.next = planned.plus_ms(self.interval_ms);
        let tolerance = TOLERANCE_MS.min(self.interval_ms / 100);
        let at = if now.ms_since(planned).abs() <= tolerance { planned } else { now };
        ScrapeStart { at, skipped: skipped.unsigned_abs() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_123);

    fn start(at: Timestamp, skipped: u64) -> ScrapeStart {
        ScrapeStart { at, skipped }
    }

    #[test]
    fn a_scrape_that_is_at_most_two_milliseconds_late_has_the_planned_timestamp() {
        let mut schedule = ScrapeSchedule::new(10_000, 4_321, 0, NOW);
        assert_eq!(schedule.next(), Timestamp::from_ms(1_700_000_004_300));
        assert_eq!(schedule.wait(NOW), Duration::from_millis(4_177));
        let planned = schedule.next();
        assert_eq!(schedule.begin(planned.plus_ms(2)), start(planned, 0));
        assert_eq!(schedule.begin(planned.plus_ms(10_003)), start(planned.plus_ms(10_003), 0));
        assert_eq!(schedule.next(), planned.plus_ms(20_000), "lateness does not add up");
        let mut fast = ScrapeSchedule::new(100, 0, 0, NOW);
        let planned = fast.next();
        let begun = fast.begin(planned.plus_ms(2));
        assert_eq!(begun, start(planned.plus_ms(2), 0), "the tolerance is 1 % at most");
    }

    #[test]
    fn targets_are_spread_over_the_interval_in_steps_of_a_hundredth_or_100_ms() {
        for (interval_ms, steps) in [(1, 1), (50, 50), (1_000, 100), (10_000, 100), (60_000, 600)] {
            let next = |hash| ScrapeSchedule::new(interval_ms, hash, 7, NOW).next().ms_since(NOW);
            let offsets: BTreeSet<i64> = (0..200_000).map(next).collect();
            assert_eq!(offsets.len(), steps, "{interval_ms}");
            let step = interval_ms / i64::try_from(steps).expect("few");
            assert!(offsets.iter().zip(offsets.iter().skip(1)).all(|(one, next)| next - one == step));
        }
    }

    #[test]
    fn missed_scrapes_are_skipped_and_a_clock_that_is_set_back_starts_a_new_plan() {
        let mut schedule = ScrapeSchedule::new(10_000, 0, 0, NOW);
        let planned = schedule.next();
        assert_eq!(schedule.begin(planned.plus_ms(35_000)), start(planned.plus_ms(35_000), 3));
        assert_eq!(schedule.next(), planned.plus_ms(40_000));
        let back = planned.plus_ms(-3_600_000);
        assert!(schedule.wait(back) <= Duration::from_secs(10));
    }

    #[test]
    fn external_labels_and_the_host_change_the_seed() {
        let labels = Labels::from_pairs([("replica", "a")]);
        let seeds = [
            offset_seed(&labels, "x"),
            offset_seed(&labels, "y"),
            offset_seed(&Labels::default(), "x"),
            offset_seed(&Labels::from_pairs([("replica", "b")]), "x"),
        ];
        assert!((1..4).all(|n| !seeds[..n].contains(&seeds[n])), "{seeds:?}");
    }

    proptest! {
        #[test]
        fn the_first_scrape_is_within_an_interval_and_all_have_the_offset(
            interval in 1_i64..100_000, hash: u64, seed: u64, now in 0_i64..2_000_000_000_000, late in 0_i64..500_000,
        ) {
            let now = Timestamp::from_ms(now);
            let mut schedule = ScrapeSchedule::new(interval, hash, seed, now);
            let first = schedule.next();
            prop_assert!((0..interval).contains(&first.ms_since(now)));
            let begun = schedule.begin(first.plus_ms(late));
            prop_assert_eq!(begun.skipped, u64::try_from(late / interval).expect("late"));
            prop_assert_eq!(schedule.next().ms_since(first) % interval, 0);
            prop_assert!((1..=interval).contains(&schedule.next().ms_since(first.plus_ms(late))));
        }
    }
}
