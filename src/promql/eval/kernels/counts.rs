//! Functions that look at places, and at no more than two values.

use crate::promql::functions::count;

use super::super::rows::ABSENT;
use super::Frames;

/// `of` the places where a window begins and ends; absent where it has no samples.
pub(super) fn each(frames: &Frames, row: &mut [f64], of: impl Fn(usize, usize) -> f64) {
    for (frame, out) in frames.all().iter().zip(row) {
        *out = if frame.from < frame.to { of(frame.from, frame.to) } else { ABSENT };
    }
}

/// `of` a window's last two values and the milliseconds between them.
pub(super) fn last_two(
    frames: &Frames,
    (times, values): (&[i64], &[f64]),
    row: &mut [f64],
    of: impl Fn((f64, f64), i64) -> f64,
) {
    for (frame, out) in frames.all().iter().zip(row) {
        if frame.from + 1 < frame.to {
            let last = frame.to - 1;
            *out = of((values[last - 1], values[last]), times[last] - times[last - 1]);
        }
    }
}

/// How many neighbours inside a window are a pair that counts: the difference of two counts from the start.
pub(super) fn pairs(
    frames: &Frames,
    values: &[f64],
    marks: &mut Vec<u32>,
    row: &mut [f64],
    counts: impl Fn(f64, f64) -> bool,
) {
    marks.clear();
    marks.push(0);
    let mut sofar = 0;
    for pair in values.windows(2) {
        sofar += u32::from(counts(pair[0], pair[1]));
        marks.push(sofar);
    }
    each(frames, row, |from, to| count((marks[to - 1] - marks[from]) as usize));
}
