//! Least and greatest of each window: a queue of those that may still be it.

use super::Frames;

/// `told` the place of each window's best value. A later value that is `better` stands in for an earlier one, and anything
/// for NaN, as in going through the window from its start.
pub(super) fn fill(
    frames: &Frames,
    values: &[f64],
    queue: &mut Vec<usize>,
    row: &mut [f64],
    better: impl Fn(f64, f64) -> bool,
    told: impl Fn(usize) -> f64,
) {
    queue.clear();
    // Places of values of which none is better than one before it; the first `gone` of them are behind the window.
    let mut gone = 0;
    let mut next = 0;
    for (frame, out) in frames.all().iter().zip(row) {
        if frame.from == frame.to {
            continue;
        }
        // What lies before the window is never looked at again.
        if next < frame.from {
            next = frame.from;
            queue.clear();
            gone = 0;
        }
        for (place, value) in values.iter().enumerate().take(frame.to).skip(next) {
            while let Some(last) = queue.get(gone..).and_then(<[usize]>::last) {
                let last = values[*last];
                if !(better(*value, last) || last.is_nan()) {
                    break;
                }
                queue.pop();
            }
            queue.push(place);
        }
        next = next.max(frame.to);
        while queue.get(gone).is_some_and(|place| *place < frame.from) {
            gone += 1;
        }
        if let Some(place) = queue.get(gone) {
            *out = told(*place);
        }
    }
}
