//! Windows that look at samples around them, `anchored` and `smoothed` (prometheus promql/functions.go, extendedRate).
//!
//! Anchored, the value in force at the window's start is the last one at or before it; smoothed, values at both edges
//! lie on the line between the samples around them. Neither extrapolates.

use super::Window;
use crate::promql::syntax::tree::Extension;

/// The value at `at` on the line between two samples. A counter that fell between them began again at zero.
pub(in crate::promql) fn on_the_line(before: (i64, f64), after: (i64, f64), at: i64, counter: bool) -> f64 {
    let from = if counter && after.1 < before.1 { 0.0 } else { before.1 };
    from + (after.1 - from) * milliseconds(at - before.0) / milliseconds(after.0 - before.0)
}

#[expect(clippy::cast_precision_loss, reason = "a window is far shorter than 2^53 milliseconds")]
fn milliseconds(ms: i64) -> f64 {
    ms as f64
}

/// The samples that bound a window, and the values at its edges.
struct Edges {
    first: usize,
    last: usize,
    left: f64,
    right: f64,
}

impl Edges {
    fn of(window: &Window<'_>, counter: bool) -> Option<Edges> {
        let (times, values) = (window.times, window.values);
        let smoothed = window.extension == Some(Extension::Smoothed);
        let newest = times.len().checked_sub(1)?;
        let older = times.get(..newest)?;
        let first = older.partition_point(|at| *at <= window.start_ms).saturating_sub(1);
        let last = if smoothed { older.partition_point(|at| *at < window.end_ms) } else { newest };
        if times[last] <= window.start_ms {
            return None;
        }
        let sample = |i: usize| (times[i], values[i]);
        let left = if smoothed && times[first] < window.start_ms {
            on_the_line(sample(first), sample(first + 1), window.start_ms, counter)
        } else {
            values[first]
        };
        let right = if smoothed && last > 0 && times[last] > window.end_ms {
            on_the_line(sample(last - 1), sample(last), window.end_ms, counter)
        } else {
            values[last]
        };
        Some(Edges { first, last, left, right })
    }

    /// The samples strictly inside of the window.
    fn inside(&self, window: &Window<'_>) -> std::ops::Range<usize> {
        let from = self.first + usize::from(window.times[self.first] <= window.start_ms);
        let to = self.last + usize::from(window.times[self.last] < window.end_ms);
        from..to.max(from)
    }
}

/// How much the series changed from edge to edge; of a counter with what its resets hide.
pub(super) fn change(window: &Window<'_>, counter: bool) -> Option<f64> {
    let edges = Edges::of(window, counter)?;
    if window.extension == Some(Extension::Smoothed) && window.times[edges.first] > window.end_ms {
        return None;
    }
    let change = edges.right - edges.left;
    if !counter {
        return Some(change);
    }
    // A line that crosses a reset has accounted for it already: only values inside are compared.
    let mut hidden = 0.0;
    let mut before = edges.left;
    for value in &window.values[edges.inside(window)] {
        if *value < before {
            hidden += before;
        }
        before = *value;
    }
    if edges.right < before {
        hidden += before;
    }
    Some(change + hidden)
}

/// The first sample that an anchored window looks at: the last one at or before its start, where there is one. Nothing
/// where no sample is inside. All of any other window.
pub(super) fn anchor(window: &Window<'_>) -> Option<usize> {
    if window.extension != Some(Extension::Anchored) {
        return Some(0);
    }
    let before = window.times.partition_point(|at| *at <= window.start_ms);
    (before < window.times.len()).then_some(before.saturating_sub(1))
}

/// The samples of a window as an answer of their own: values at both edges, and what is between them.
pub(in crate::promql) fn samples(window: &Window<'_>) -> Vec<(i64, f64)> {
    let Some(edges) = Edges::of(window, false) else { return Vec::new() };
    let inside = edges.inside(window).map(|i| (window.times[i], window.values[i]));
    let mut samples = vec![(window.start_ms, edges.left)];
    samples.extend(inside);
    samples.push((window.end_ms, edges.right));
    samples
}
