//! `rate`, `increase` and `delta`: first and last sample of each window, and the drops between.

use std::ops::Range;

use crate::simd::simd_dispatch;

use super::super::rows::ABSENT;
use super::Frames;
use super::frames::Stretch;

/// The places of `numbers` that lie in `(from, to)`, looked for from where the window before had them: a drop belongs to a
/// window when the sample before it does too.
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

/// Windows that are computed together before it is looked whether any of them is special.
const TOGETHER: usize = 32;

/// What is computed of first and last values.
#[derive(Clone, Copy)]
struct Rate {
    /// A counter is never below zero: its windows begin no earlier than where its line meets zero.
    counts: bool,
    per_second: bool,
}

/// Fills a row, whatever it held. `resets`: of a counter, the places of values lower than the one before.
pub(super) fn fill(
    frames: &Frames,
    values: &[f64],
    resets: Option<&[usize]>,
    per_second: bool,
    row: &mut [f64],
) {
    let rate = Rate { counts: resets.is_some(), per_second };
    let resets = resets.unwrap_or_default();
    for gap in frames.gaps() {
        if let Some(gap) = row.get_mut(gap.clone()) {
            gap.fill(ABSENT);
        }
    }
    let (mut inside, mut from) = (0..0, 0);
    for run in frames.runs() {
        let reach = (run.len - 1) * run.stride + 1;
        let last = run.from + run.width - 1;
        let ends = values.get(run.from..run.from + reach).zip(values.get(last..last + reach));
        let out = row.get_mut(run.step..run.step + (run.len - 1) * run.every + 1);
        // Frames are of as many samples and steps as there are.
        debug_assert!(ends.is_some() && out.is_some(), "{run:?}");
        let Some(((firsts, lasts), out)) = ends.zip(out) else {
            continue;
        };
        match (run.every, run.stride) {
            (1, 0) => out.fill(rate.of(&run.stretch, firsts[0], lasts[0] - firsts[0])),
            // So that the compiler knows it.
            (1, 1) => simd_dispatch!(rate.fill::<1>(&run.stretch, (firsts, lasts), out)),
            (1, 2) => simd_dispatch!(rate.fill::<2>(&run.stretch, (firsts, lasts), out)),
            (1, 4) => simd_dispatch!(rate.fill::<4>(&run.stretch, (firsts, lasts), out)),
            strides => rate.fill_any(&run.stretch, (firsts, lasts), strides, out),
        }
        if resets.is_empty() {
            continue;
        }
        // Where runs are of every so manyth step the next one begins where this one did.
        if run.from < from {
            inside = 0..0;
        }
        from = run.from;
        for (frame, out) in run.windows().zip(out.iter_mut().step_by(run.every)) {
            inside = within(resets, inside, frame.from, frame.to);
            from = frame.from;
            if inside.is_empty() {
                continue;
            }
            let (first, last) = (values[frame.from], values[frame.to - 1]);
            // What was reached before each drop, in order: the additions of the simple definition, no others.
            let before_drops = resets[inside.clone()].iter().map(|reset| values[reset - 1]);
            *out =
                rate.of(&run.stretch, first, before_drops.fold(last - first, |change, value| change + value));
        }
    }
}

impl Rate {
    /// One window's, of its first value and its change.
    #[inline]
    fn of(self, stretch: &Stretch, first: f64, change: f64) -> f64 {
        let mut factor = self.plain_factor(stretch);
        if self.counts
            && change > 0.0
            && first >= 0.0
            && let Some(since_zero) = since_zero(stretch, first, change)
        {
            factor = if self.per_second { since_zero / stretch.range } else { since_zero };
        }
        change * factor
    }

    fn plain_factor(self, stretch: &Stretch) -> f64 {
        if self.per_second { stretch.per_second } else { stretch.factor }
    }

    /// Windows that are alike and begin every so manyth value, without a branch for each.
    #[inline(always)]
    fn fill<const STRIDE: usize>(
        self,
        stretch: &Stretch,
        (firsts, lasts): (&[f64], &[f64]),
        out: &mut [f64],
    ) {
        let factor = self.plain_factor(stretch);
        // Lines that meet zero before all samples by more than what they span do so outside of the window.
        let outside = stretch.to_start <= stretch.sampled;
        let (all_firsts, _) = firsts.as_chunks::<STRIDE>();
        let (all_lasts, _) = lasts.as_chunks::<STRIDE>();
        let pieces = all_firsts.chunks(TOGETHER).zip(all_lasts.chunks(TOGETHER));
        for ((firsts, lasts), out) in pieces.zip(out.chunks_mut(TOGETHER)) {
            let ends = firsts.iter().map(|first| first[0]).zip(lasts.iter().map(|last| last[0]));
            let mut may_meet_zero = false;
            for ((first, last), out) in ends.clone().zip(out.iter_mut()) {
                let change = last - first;
                may_meet_zero |= (first >= 0.0) & (first < change);
                *out = change * factor;
            }
            if self.counts && (may_meet_zero || !outside) {
                for ((first, last), out) in ends.zip(out) {
                    *out = self.of(stretch, first, last - first);
                }
            }
        }
        // The last window's values are the first of no whole chunk.
        if let (Some(out), Some(first), Some(last)) =
            (out.get_mut(all_firsts.len()), firsts.last(), lasts.last())
        {
            *out = self.of(stretch, *first, last - first);
        }
    }

    /// The same for any stride, and for every so manyth step.
    fn fill_any(
        self,
        stretch: &Stretch,
        (firsts, lasts): (&[f64], &[f64]),
        (every, stride): (usize, usize),
        out: &mut [f64],
    ) {
        let stride = stride.max(1);
        let ends = firsts.iter().step_by(stride).zip(lasts.iter().step_by(stride));
        for ((first, last), out) in ends.zip(out.iter_mut().step_by(every)) {
            *out = self.of(stretch, *first, last - first);
        }
    }
}

/// By what to multiply a change whose counter was at zero inside the window, as its line has it: it did not start earlier.
#[inline]
fn since_zero(stretch: &Stretch, first: f64, change: f64) -> Option<f64> {
    // Most lines meet zero before all samples by more than what they span: no division is needed to see that.
    if first >= change && stretch.to_start <= stretch.sampled {
        return None;
    }
    let to_zero = stretch.sampled * (first / change);
    (to_zero < stretch.to_start).then(|| (stretch.sampled + to_zero + stretch.to_end) / stretch.sampled)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::TimesOf;
    use super::super::frames::Known;
    use super::super::frames::tests::shared;
    use super::*;
    use crate::promql::eval::rows::Grid;

    proptest! {
        /// However windows are joined to runs, each comes to what it comes to by itself.
        #[test]
        fn rates_are_those_of_each_window_by_itself(
            rises in prop::collection::vec(prop_oneof![8 => 0.0..9.0f64, 1 => Just(-1.0), 1 => Just(0.0)], 1..300),
            missing in prop::option::of(0usize..300),
            (start, step, len) in (0i64..600, prop_oneof![Just(60i64), Just(50), Just(14), 1i64..100], 1usize..200),
            range in 15i64..400,
        ) {
            let mut value = 0.0;
            let values: Vec<f64> = rises.iter().map(|rise| {
                value = if *rise < 0.0 { 0.5 } else { value + rise };
                value
            }).collect();
            let times: Vec<i64> = (0..).filter(|at| Some(*at) != missing)
                .filter_map(|at| Some(i64::try_from(at).ok()? * 15_000)).take(values.len()).collect();
            let mut resets = Vec::new();
            super::super::drops(&values, &mut resets);
            let grid = Grid { start_ms: start * 1_000, step_ms: step * 1_000, len };
            let edges = |at: i64| (at - range * 1_000, at);
            let mut known = Known::within(1 << 20);
            let shared = shared(&times, 15_000);
            let frames = known.fit(grid, TimesOf::Shared(&shared), edges, true);
            let mut row = vec![-1.0; len];
            fill(frames, &values, Some(&resets), true, &mut row);
            for (at, found) in row.iter().enumerate() {
                let (after, until) = edges(grid.at(at));
                let from = times.partition_point(|time| *time <= after);
                let to = times.partition_point(|time| *time <= until).max(from);
                let mut alone = Known::within(1 << 20);
                let window = Grid { start_ms: grid.at(at), step_ms: 1, len: 1 };
                let mut expected = [ABSENT];
                if to > from {
                    let (times, values) = (times[from..to].to_vec(), &values[from..to]);
                    let mut resets = Vec::new();
                    super::super::drops(values, &mut resets);
                    let frames = alone.fit(window, TimesOf::Own(&times), edges, true);
                    fill(frames, values, Some(&resets), true, &mut expected);
                }
                prop_assert_eq!(found.to_bits(), expected[0].to_bits(), "step {}", at);
            }
        }
    }
}
