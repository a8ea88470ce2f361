//! Functions of a window's ends: they need the indices and at most two values.

use crate::promql::numbers::count;

use super::super::rows::ABSENT;
use super::{ListedSamples, StepWindows};

/// Fills a row with `of(from, to)` for the sample range of each window; empty windows become
/// absent.
pub(super) fn each(windows: &StepWindows, row: &mut [f64], of: impl Fn(usize, usize) -> f64) {
    for (range, out) in windows.all().iter().zip(row) {
        *out = if range.from < range.to { of(range.from, range.to) } else { ABSENT };
    }
}

/// Sets each window with at least two samples to `of` its last two values and the milliseconds
/// between them.
pub(super) fn last_two(
    windows: &StepWindows,
    ListedSamples { times, values }: ListedSamples<'_>,
    row: &mut [f64],
    of: impl Fn((f64, f64), i64) -> f64,
) {
    for (range, out) in windows.all().iter().zip(row) {
        if range.from + 1 < range.to {
            let last = range.to - 1;
            *out = of((values[last - 1], values[last]), times[last] - times[last - 1]);
        }
    }
}

/// Counts, for each window, the neighbouring values for which `counts` holds, as the difference of
/// two running counts.
pub(super) fn pairs(
    windows: &StepWindows,
    values: &[f64],
    marks: &mut Vec<u32>,
    row: &mut [f64],
    counts: impl Fn(f64, f64) -> bool,
) {
    marks.clear();
    marks.push(0);
    let mut counted = 0;
    for pair in values.windows(2) {
        counted += u32::from(counts(pair[0], pair[1]));
        marks.push(counted);
    }
    each(windows, row, |from, to| count((marks[to - 1] - marks[from]) as usize));
}
