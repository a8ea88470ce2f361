//! Variance of each window by Welford's recurrence with both sums compensated. Each value waits for
//! a division and about ten additions of the previous one, so several windows are computed at a
//! time.

use crate::model::Stopped;
use crate::promql::sums::CompensatedVariance;
use crate::simd::simd_dispatch;

use super::interleaved::{
    EqualWindows, INTERLEAVED, InterleavedSums, WindowColumns, WindowNumbers, is_moderate,
};
use super::windows::{SampleRange, StepWindows};
use super::{CheckInterval, ContinueCheck};

/// Fills an absent row. Returns `false` without any change if the values or windows do not qualify.
pub(super) fn fill(
    columns: &mut WindowColumns,
    windows: &StepWindows,
    values: &[f64],
    of_variance: impl Fn(f64) -> f64,
    row: &mut [f64],
    check: ContinueCheck<'_>,
) -> Result<bool, Stopped> {
    if windows.all().len() < INTERLEAVED || !is_moderate(values) {
        return Ok(false);
    }
    let mut interval = CheckInterval::default();
    for (ranges, out) in windows.all().chunks(INTERLEAVED).zip(row.chunks_mut(INTERLEAVED)) {
        for ((state, SampleRange { from, to }), out) in
            variances(columns, ranges, values).iter().zip(ranges).zip(out)
        {
            if from < to {
                *out = of_variance(state.variance());
            }
        }
        interval.add_samples(ranges.iter().map(|range| range.to - range.from).sum(), &mut *check)?;
    }
    Ok(true)
}

/// Returns the final state of each window.
fn variances(
    columns: &mut WindowColumns,
    ranges: &[SampleRange],
    values: &[f64],
) -> [CompensatedVariance; INTERLEAVED] {
    // Unused slots repeat the first window; their results are ignored.
    let range = |i: usize| ranges.get(i).or(ranges.first()).copied().unwrap_or_default();
    let len = ranges.iter().map(|range| range.to - range.from).min().unwrap_or(0);
    let windows = EqualWindows { ends: std::array::from_fn(|i| range(i).from + len), len };
    let (mut count, mut sums) = (0.0, WelfordSums::default());
    for block in windows.blocks() {
        (count, sums) = add_block(count, sums, columns.of(values, &windows, block));
    }
    let WelfordSums { means, squares } = sums;
    std::array::from_fn(|i| {
        let mut state = CompensatedVariance { count, mean: means.of(i), squares: squares.of(i) };
        if let Some(SampleRange { from, to }) = ranges.get(i) {
            values[from + len..*to].iter().for_each(|value| state.add(*value));
        }
        state
    })
}

/// The running sums of all windows.
#[derive(Clone, Copy, Default)]
struct WelfordSums {
    means: InterleavedSums,
    squares: InterleavedSums,
}

/// Adds a block of values to all windows. Must not be inlined: the compiler would then compute one
/// window after the other.
#[inline(never)]
fn add_block(count: f64, sums: WelfordSums, columns: &[WindowNumbers]) -> (f64, WelfordSums) {
    simd_dispatch!(add_positions(count, sums, columns))
}

#[inline(always)]
fn add_positions(
    mut count: f64,
    WelfordSums { mut means, mut squares }: WelfordSums,
    columns: &[WindowNumbers],
) -> (f64, WelfordSums) {
    for values in columns {
        count += 1.0;
        for (i, value) in values.iter().enumerate() {
            let delta = value - means.total(i);
            means.add(i, delta / count);
            squares.add(i, delta * (value - means.total(i)));
        }
    }
    (count, WelfordSums { means, squares })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::interleaved::tests::{any_sliding_windows, any_values};
    use super::*;
    use crate::promql::sums::compensated_variance;

    proptest! {
        /// For any values and windows, each variance equals that of its window alone, to the bit.
        #[test]
        fn variances_of_interleaved_windows_equal_those_of_each_window_alone(
            values in any_values(),
            sliding in any_sliding_windows(),
        ) {
            let windows = sliding.over(values.len());
            let mut row = vec![0.5; windows.all().len()];
            let done = fill(&mut WindowColumns::default(), &windows, &values, f64::sqrt, &mut row, &mut || Ok(()));
            prop_assert!(done.is_ok());
            if matches!(done, Ok(false)) {
                return Ok(());
            }
            for (range, found) in windows.all().iter().zip(row) {
                let window = &values[range.from..range.to];
                let alone = if window.is_empty() { 0.5 } else { compensated_variance(window).sqrt() };
                prop_assert_eq!(found.to_bits(), alone.to_bits(), "{} for {}", found, alone);
            }
        }
    }
}
