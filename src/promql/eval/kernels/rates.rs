//! `rate`, `increase` and `delta`: first and last sample of each window, and the drops between.

use std::ops::Range;

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

/// `resets`: of a counter, the places of values lower than the one before.
pub(super) fn fill(
    frames: &Frames,
    values: &[f64],
    resets: Option<&[usize]>,
    per_second: bool,
    row: &mut [f64],
) {
    let (all, stretches) = (frames.all(), frames.stretches());
    let counts = resets.is_some();
    let resets = resets.unwrap_or_default();
    let mut inside = 0..0;
    for ((frame, stretch), out) in all.iter().zip(stretches).zip(row) {
        let Some([first, .., last]) = values.get(frame.from..frame.to) else { continue };
        let mut change = last - first;
        if !resets.is_empty() {
            inside = within(resets, inside, frame.from, frame.to);
            // What was reached before each drop, in order: the additions of the simple definition, no others.
            change = resets[inside.clone()].iter().fold(change, |change, reset| change + values[reset - 1]);
        }
        let mut factor = if per_second { stretch.per_second } else { stretch.factor };
        if counts
            && change > 0.0
            && *first >= 0.0
            && let Some(since_zero) = since_zero(stretch, *first, change)
        {
            factor = if per_second { since_zero / stretch.range } else { since_zero };
        }
        *out = change * factor;
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
