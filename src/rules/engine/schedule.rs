//! The times at which a group is evaluated: a grid of its interval, shifted by a hash of the group,
//! so that the groups of a server are spread over the interval.

use crate::model::Timestamp;

/// The number of intervals between the removal of a group and the end of its series. A group of
/// another name may continue them in this time.
const END_AFTER_INTERVALS: i64 = 2;

/// The treatment of evaluations that are overdue by at least one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedPolicy {
    /// Overdue evaluations are skipped and counted, as in Prometheus.
    #[default]
    Skip,
    /// The overdue evaluations of the last `ms_max` milliseconds are run one after another; older
    /// ones are skipped and counted.
    CatchUp {
        /// The maximum age of an overdue evaluation that is run, in milliseconds.
        ms_max: i64,
    },
}

/// The grid of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RuleGrid {
    /// Milliseconds between evaluations; at least 1.
    pub(super) interval_ms: i64,
    /// The shift of the grid in milliseconds, less than the interval.
    pub(super) shift_ms: i64,
}

impl RuleGrid {
    /// Returns the grid of a group. The shift is in whole seconds if the interval is, so that times
    /// of alerts are too.
    pub(super) fn new(interval_ms: i64, source: &str, name: &str) -> RuleGrid {
        let interval_ms = interval_ms.max(1);
        let bytes = source.bytes().chain([0xff]).chain(name.bytes());
        // FNV-1a, which stays the same in every version.
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let shift = i64::try_from(hash % interval_ms.unsigned_abs()).unwrap_or_default();
        let whole = interval_ms % 1_000 == 0;
        RuleGrid { interval_ms, shift_ms: if whole { shift - shift % 1_000 } else { shift } }
    }

    /// Returns the first time of the grid after `at`.
    pub(super) fn after(&self, at: Timestamp) -> Timestamp {
        let since = at.as_ms().saturating_sub(self.shift_ms).div_euclid(self.interval_ms);
        let next = since.saturating_add(1).saturating_mul(self.interval_ms);
        Timestamp::from_ms(next.saturating_add(self.shift_ms))
    }

    /// Returns when the series of a group end that is removed at `removed_at`.
    pub(super) fn end_of_removed(&self, removed_at: Timestamp) -> Timestamp {
        removed_at.plus_ms(self.interval_ms.saturating_mul(END_AFTER_INTERVALS))
    }

    /// Returns the time to evaluate now instead of `due`, and the number of skipped evaluations.
    pub(super) fn catch_up(&self, due: Timestamp, now: Timestamp, policy: MissedPolicy) -> (Timestamp, u64) {
        let late = now.ms_since(due) / self.interval_ms;
        let kept = match policy {
            MissedPolicy::Skip => 0,
            MissedPolicy::CatchUp { ms_max } => ms_max / self.interval_ms,
        };
        let skipped = late.saturating_sub(kept.max(0)).max(0);
        (due.plus_ms(skipped.saturating_mul(self.interval_ms)), skipped.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn missed_evaluations_are_skipped_or_made_up_for_as_configured() {
        let grid = RuleGrid { interval_ms: 10, shift_ms: 3 };
        let ms = Timestamp::from_ms;
        assert_eq!([2, 3, 4, 12].map(|at| grid.after(ms(at)).as_ms()), [3, 13, 13, 13]);
        assert_eq!(grid.catch_up(ms(3), ms(12), MissedPolicy::Skip), (ms(3), 0));
        assert_eq!(grid.catch_up(ms(3), ms(35), MissedPolicy::Skip), (ms(33), 3));
        assert_eq!(grid.catch_up(ms(3), ms(1_003), MissedPolicy::CatchUp { ms_max: 25 }), (ms(983), 98));
        assert_eq!(grid.catch_up(ms(3), ms(0), MissedPolicy::Skip), (ms(3), 0));
    }

    proptest! {
        #[test]
        fn times_are_on_the_grid_and_the_next_one_is_within_an_interval(
            interval in 1..1_000_000i64, name in ".{0,9}", at in any::<i32>(),
        ) {
            let grid = RuleGrid::new(interval, "file", &name);
            let at = Timestamp::from_ms(i64::from(at));
            let next = grid.after(at);
            prop_assert!(at < next && next.ms_since(at) <= interval);
            prop_assert_eq!((next.as_ms() - grid.shift_ms).rem_euclid(interval), 0);
            prop_assert!((0..interval).contains(&grid.shift_ms));
        }
    }
}
