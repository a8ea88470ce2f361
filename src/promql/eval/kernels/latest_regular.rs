//! The newest sample in each step's window, for regular sample times and equally spaced windows.

use super::super::rows::ABSENT;
use super::window_cache::EvenWindows;
use crate::model::RegularTimes;

/// The newest sample at each step, if the distance of windows is a multiple of the distance of
/// samples. The steps fall into four groups in this order: steps without a sample; steps whose
/// sample advances by `stride`; steps that have the last sample; steps without a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LatestSamples {
    /// Steps before the first sample.
    before: usize,
    /// Index of the sample of the first step after those, and number of samples from each step to
    /// the next.
    from: usize,
    stride: usize,
    /// Number of steps in the second group, and whether their samples are inside their windows,
    /// which is the same for all.
    moving: usize,
    reached: bool,
    /// Number of steps in the third group.
    resting: usize,
}

impl LatestSamples {
    /// Returns `None` if the distance of windows is not a multiple of that of samples, or on
    /// overflow.
    pub(super) fn of(regular: RegularTimes, windows: EvenWindows) -> Option<LatestSamples> {
        let EvenWindows { first: (after, until), step_ms, len } = windows;
        if regular.interval_ms <= 0 || step_ms % regular.interval_ms != 0 {
            return None;
        }
        let stride = usize::try_from(step_ms / regular.interval_ms).ok()?;
        let last_index = regular.len.checked_sub(1)?;
        let last = regular.at(last_index)?;
        let reach = until.checked_sub(after)?;
        let late = regular.first.checked_sub(until)?.max(0);
        let before = usize::try_from(late / step_ms + i64::from(late % step_ms != 0)).ok()?.min(len);
        // The end of the first window of the second group.
        let until = until.checked_add(step_ms.checked_mul(i64::try_from(before).ok()?)?)?;
        let since = until.checked_sub(regular.first)?;
        let from = usize::try_from(since.max(0) / regular.interval_ms).ok()?;
        let further = last_index.checked_sub(from).map_or(0, |left| left / stride + 1);
        let moving = further.min(len - before);
        let since_last =
            until.checked_add(step_ms.checked_mul(i64::try_from(moving).ok()?)?)?.checked_sub(last)?;
        let left = reach.checked_sub(since_last)?;
        let resting = if left > 0 { usize::try_from((left - 1) / step_ms).ok()? + 1 } else { 0 };
        let resting = resting.min(len - before - moving);
        Some(LatestSamples {
            before,
            from,
            stride,
            moving,
            reached: since % regular.interval_ms < reach,
            resting,
        })
    }

    /// Fills a row with `result` of the time and value of each step's sample.
    pub(super) fn fill(
        self,
        regular: RegularTimes,
        values: &[f64],
        result: impl Fn(i64, f64) -> f64,
        row: &mut [f64],
    ) {
        debug_assert_eq!(values.len(), regular.len, "a value for each time");
        let result = |index: usize, value: &f64| result(regular.at(index).unwrap_or_default(), *value);
        let (before, row) = row.split_at_mut(self.before);
        before.fill(ABSENT);
        let (moving, row) = row.split_at_mut(self.moving);
        if self.reached {
            let indices = (self.from..).step_by(self.stride);
            let found = values.get(self.from..).unwrap_or_default().iter().step_by(self.stride);
            for ((out, value), index) in moving.iter_mut().zip(found).zip(indices) {
                *out = result(index, value);
            }
        } else {
            moving.fill(ABSENT);
        }
        let (resting, after) = row.split_at_mut(self.resting);
        resting.fill(values.last().map_or(ABSENT, |value| result(regular.len - 1, value)));
        after.fill(ABSENT);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::windows::tests::shared;
    use super::super::{FloatSamples, KernelScratch, SampleTimes};
    use super::*;
    use crate::promql::eval::rows::Grid;

    fn fives(of: std::ops::Range<i64>) -> impl Strategy<Value = i64> {
        of.prop_map(|n| n * 5)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// All times and edges are multiples of 5, so edges often coincide with samples.
        #[test]
        fn newest_samples_of_regular_times_equal_those_found_in_a_list(
            (first, interval_ms, samples) in (fives(-60..60), prop_oneof![Just(15i64), fives(1..8)], 1usize..60),
            (start_ms, step_ms, len) in (
                prop_oneof![4 => fives(-100..100), 1 => Just(i64::MAX - 400), 1 => Just(i64::MIN + 400)],
                prop_oneof![2 => Just(15i64), 2 => Just(60), 1 => fives(1..16)],
                2usize..60,
            ),
            lookback in prop_oneof![1 => Just(300i64), 2 => fives(1..20)],
            fixed in prop::option::weighted(0.1, fives(0..20)),
        ) {
            let times: Vec<i64> = (0..samples).map(|n| first + interval_ms * i64::try_from(n).expect("few")).collect();
            let values: Vec<f64> = (0..samples).map(|n| n as f64).collect();
            let grid = Grid { start_ms, step_ms, len };
            // As with `@`, which fixes the time.
            let edges = |at: i64| {
                let at = fixed.unwrap_or(at);
                (at.saturating_sub(lookback), at)
            };
            let result = |at: i64, value: f64| value + at as f64 / 1_000.0;
            let row_of = |times: SampleTimes<'_>| {
                let mut row = vec![-1.0; len];
                let floats = FloatSamples { times, values: &values, non_decreasing: false };
                KernelScratch::within(1 << 20).newest(grid, floats, edges, result, &mut row);
                row.iter().map(|value| value.to_bits()).collect::<Vec<u64>>()
            };
            let shared: Arc<_> = shared(&times, interval_ms);
            prop_assert_eq!(row_of(SampleTimes::Shared(&shared)), row_of(SampleTimes::Own(&times)));
        }
    }

    #[test]
    fn a_15_s_scrape_read_each_minute_yields_every_fourth_sample() {
        let regular = RegularTimes { first: 100_000, interval_ms: 15_000, len: 41 };
        let windows = EvenWindows { first: (-240_000, 60_000), step_ms: 60_000, len: 20 };
        let expected = LatestSamples { before: 1, from: 1, stride: 4, moving: 10, reached: true, resting: 5 };
        assert_eq!(LatestSamples::of(regular, windows), Some(expected));
        assert_eq!(
            LatestSamples::of(regular, EvenWindows { step_ms: 50_000, ..windows }),
            None,
            "no whole number of samples"
        );
    }
}
