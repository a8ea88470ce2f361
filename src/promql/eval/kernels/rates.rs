//! `rate`, `increase` and `delta`: from the first and the last sample of each window and the
//! counter resets between them.

use std::ops::Range;

use crate::simd::simd_dispatch;

use super::super::rows::ABSENT;
use super::StepWindows;
use super::windows::Extrapolation;

/// Returns the range of `numbers` that lie in `(from, to)`. The search starts at the range of the
/// window `before`. A reset belongs to a window only if the sample before it does too.
pub(super) fn within(numbers: &[usize], before: Range<usize>, from: usize, to: usize) -> Range<usize> {
    let Range { mut start, mut end } = before;
    while numbers.get(start).is_some_and(|number| *number <= from) {
        start += 1;
    }
    end = end.max(start);
    while numbers.get(end).is_some_and(|number| *number < to) {
        end += 1;
    }
    start..end
}

/// Windows that are computed together before a check for special cases.
const CHUNK: usize = 32;

/// The values between the first samples of a run's first and last window, and the values between
/// their last samples, all ends inclusive.
#[derive(Clone, Copy)]
struct WindowEnds<'v> {
    firsts: &'v [f64],
    lasts: &'v [f64],
}

/// The variant of the function: `rate`, `increase` or `delta`.
#[derive(Clone, Copy)]
struct Rate {
    /// The samples are a counter, which is never negative: extrapolation goes back at most to its
    /// zero.
    counts: bool,
    per_second: bool,
}

/// Overwrites a whole row. `resets` are the indices of values lower than their predecessor; `None`
/// for gauges.
pub(super) fn fill(
    windows: &StepWindows,
    values: &[f64],
    resets: Option<&[usize]>,
    per_second: bool,
    row: &mut [f64],
) {
    let rate = Rate { counts: resets.is_some(), per_second };
    let resets = resets.unwrap_or_default();
    for gap in windows.gaps() {
        if let Some(gap) = row.get_mut(gap.clone()) {
            gap.fill(ABSENT);
        }
    }
    let (mut inside, mut from, mut to) = (0..0, 0, 0);
    for run in windows.runs() {
        let reach = (run.len - 1) * run.stride + 1;
        let last = run.from + run.width - 1;
        let ends = values.get(run.from..run.from + reach).zip(values.get(last..last + reach));
        let out = row.get_mut(run.step..run.step + (run.len - 1) * run.every + 1);
        // Windows were computed for this number of samples and steps.
        debug_assert!(ends.is_some() && out.is_some(), "{run:?}");
        let Some(((firsts, lasts), out)) = ends.zip(out) else {
            continue;
        };
        let ends = WindowEnds { firsts, lasts };
        match (run.every, run.stride) {
            (1, 0) => out.fill(rate.of(&run.extrapolation, firsts[0], lasts[0] - firsts[0])),
            // A constant stride lets the compiler vectorise the loop.
            (1, 1) => simd_dispatch!(rate.fill::<1>(&run.extrapolation, ends, out)),
            (1, 2) => simd_dispatch!(rate.fill::<2>(&run.extrapolation, ends, out)),
            (1, 4) => simd_dispatch!(rate.fill::<4>(&run.extrapolation, ends, out)),
            (every, stride) => rate.fill_any(&run.extrapolation, ends, every, stride, out),
        }
        if resets.is_empty() {
            continue;
        }
        // Interleaved runs start over: the next run begins near where this one did.
        // One of the same begin may also end earlier than this one did.
        if run.from < from {
            inside = 0..0;
        } else if run.from + run.width < to {
            inside.end = inside.start;
        }
        for (range, out) in run.windows().zip(out.iter_mut().step_by(run.every)) {
            inside = within(resets, inside, range.from, range.to);
            (from, to) = (range.from, range.to);
            if inside.is_empty() {
                continue;
            }
            let (first, last) = (values[range.from], values[range.to - 1]);
            // Adds the value before each reset in order, as the scalar definition does.
            let before_drops = resets[inside.clone()].iter().map(|reset| values[reset - 1]);
            *out = rate.of(
                &run.extrapolation,
                first,
                before_drops.fold(last - first, |change, value| change + value),
            );
        }
    }
}

impl Rate {
    /// Returns the result of one window from its first value and its change.
    #[inline]
    fn of(self, extrapolation: &Extrapolation, first: f64, change: f64) -> f64 {
        let mut factor = self.plain_factor(extrapolation);
        if self.counts
            && change > 0.0
            && first >= 0.0
            && let Some(since_zero) = since_zero(extrapolation, first, change)
        {
            factor = if self.per_second { since_zero / extrapolation.window_seconds } else { since_zero };
        }
        change * factor
    }

    fn plain_factor(self, extrapolation: &Extrapolation) -> f64 {
        if self.per_second { extrapolation.per_second } else { extrapolation.factor }
    }

    /// Fills windows of equal shape that begin every `STRIDE` values, without a branch for each.
    #[inline(always)]
    fn fill<const STRIDE: usize>(
        self,
        extrapolation: &Extrapolation,
        WindowEnds { firsts, lasts }: WindowEnds<'_>,
        out: &mut [f64],
    ) {
        let factor = self.plain_factor(extrapolation);
        // If the line reaches zero earlier than the sampled interval before the first sample, that
        // is outside of the window.
        let outside = extrapolation.to_start <= extrapolation.sampled;
        let (all_firsts, _) = firsts.as_chunks::<STRIDE>();
        let (all_lasts, _) = lasts.as_chunks::<STRIDE>();
        let chunks = all_firsts.chunks(CHUNK).zip(all_lasts.chunks(CHUNK));
        for ((firsts, lasts), out) in chunks.zip(out.chunks_mut(CHUNK)) {
            let ends = firsts.iter().map(|first| first[0]).zip(lasts.iter().map(|last| last[0]));
            let mut may_meet_zero = false;
            for ((first, last), out) in ends.clone().zip(out.iter_mut()) {
                let change = last - first;
                may_meet_zero |= (first >= 0.0) & (first < change);
                *out = change * factor;
            }
            if self.counts && (may_meet_zero || !outside) {
                for ((first, last), out) in ends.zip(out) {
                    *out = self.of(extrapolation, first, last - first);
                }
            }
        }
        // The last window's values do not fill a whole chunk of `STRIDE`.
        if let (Some(out), Some(first), Some(last)) =
            (out.get_mut(all_firsts.len()), firsts.last(), lasts.last())
        {
            *out = self.of(extrapolation, *first, last - first);
        }
    }

    /// Like `fill`, for any stride and any distance between steps.
    fn fill_any(
        self,
        extrapolation: &Extrapolation,
        WindowEnds { firsts, lasts }: WindowEnds<'_>,
        every: usize,
        stride: usize,
        out: &mut [f64],
    ) {
        let stride = stride.max(1);
        let ends = firsts.iter().step_by(stride).zip(lasts.iter().step_by(stride));
        for ((first, last), out) in ends.zip(out.iter_mut().step_by(every)) {
            *out = self.of(extrapolation, *first, last - first);
        }
    }
}

/// Returns the extrapolation factor if the line through the samples reaches zero inside the window,
/// where the counter is then assumed to start.
#[inline]
fn since_zero(extrapolation: &Extrapolation, first: f64, change: f64) -> Option<f64> {
    // Most lines reach zero earlier than the sampled interval before the first sample; no division
    // is needed to see that.
    if first >= change && extrapolation.to_start <= extrapolation.sampled {
        return None;
    }
    let to_zero = extrapolation.sampled * (first / change);
    (to_zero < extrapolation.to_start)
        .then(|| (extrapolation.sampled + to_zero + extrapolation.to_end) / extrapolation.sampled)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::SampleTimes;
    use super::super::window_cache::WindowCache;
    use super::super::windows::tests::shared;
    use super::*;
    use crate::promql::eval::rows::Grid;

    /// Checks that the result of each window of a run equals that of the window alone. A negative
    /// increase is a reset.
    fn check_runs(
        increases: &[f64],
        missing: Option<usize>,
        (start, step, len): (i64, i64, usize),
        range: i64,
    ) -> Result<(), TestCaseError> {
        let mut value = 0.0;
        let increase = |increase: &f64| {
            value = if *increase < 0.0 { 0.5 } else { value + increase };
            value
        };
        let values: Vec<f64> = increases.iter().map(increase).collect();
        let times: Vec<i64> = (0..)
            .filter(|at| Some(*at) != missing)
            .filter_map(|at| Some(i64::try_from(at).ok()? * 15_000))
            .take(values.len())
            .collect();
        let mut resets = Vec::new();
        super::super::drops(&values, &mut resets);
        let grid = Grid { start_ms: start * 1_000, step_ms: step * 1_000, len };
        let edges = |at: i64| (at - range * 1_000, at);
        let mut window_cache = WindowCache::within(1 << 20);
        let shared = shared(&times, 15_000);
        let windows = window_cache.windows_for(grid, SampleTimes::Shared(&shared), edges, true);
        let mut row = vec![-1.0; len];
        fill(windows, &values, Some(&resets), true, &mut row);
        for (at, found) in row.iter().enumerate() {
            let (after, until) = edges(grid.at(at));
            let from = times.partition_point(|time| *time <= after);
            let to = times.partition_point(|time| *time <= until).max(from);
            let mut alone = WindowCache::within(1 << 20);
            let window = Grid { start_ms: grid.at(at), step_ms: 1, len: 1 };
            let mut expected = [ABSENT];
            if to > from {
                let (times, values) = (times[from..to].to_vec(), &values[from..to]);
                let mut resets = Vec::new();
                super::super::drops(values, &mut resets);
                let windows = alone.windows_for(window, SampleTimes::Own(&times), edges, true);
                fill(windows, values, Some(&resets), true, &mut expected);
            }
            prop_assert_eq!(found.to_bits(), expected[0].to_bits(), "step {}", at);
        }
        Ok(())
    }

    #[test]
    fn a_run_that_ends_earlier_than_the_previous_one_counts_no_reset_behind_its_end() {
        let mut increases = [0.0; 21];
        (increases[18], increases[19]) = (4.0, -1.0);
        check_runs(&increases, None, (259, 1, 30), 136).expect("the results are equal");
    }

    proptest! {
        /// However windows are joined into runs, each result equals that of its window alone.
        #[test]
        fn rates_of_runs_equal_those_of_each_window_alone(
            increases in prop::collection::vec(prop_oneof![8 => 0.0..9.0f64, 1 => Just(-1.0), 1 => Just(0.0)], 1..300),
            missing in prop::option::of(0usize..300),
            (start, step, len) in (0i64..600, prop_oneof![Just(60i64), Just(50), Just(14), 1i64..100], 1usize..200),
            range in 15i64..400,
        ) {
            check_runs(&increases, missing, (start, step, len), range)?;
        }
    }
}
