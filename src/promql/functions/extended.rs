//! Windows with the modifiers `anchored` and `smoothed`, which use samples around the window
//! (Prometheus, `promql/functions.go`, `extendedRate`).
//!
//! An anchored window begins with the last value at or before its start. A smoothed window has
//! linearly interpolated values at both edges. Neither function extrapolates.

use super::SampleWindow;
use crate::promql::syntax::tree::Extension;

/// Returns the linearly interpolated value at `at` between two samples, which are pairs of a time
/// in milliseconds and a value. A counter that decreased between them restarts at zero.
pub(in crate::promql) fn interpolate(before: (i64, f64), after: (i64, f64), at: i64, counter: bool) -> f64 {
    let from = if counter && after.1 < before.1 { 0.0 } else { before.1 };
    from + (after.1 - from) * milliseconds(at - before.0) / milliseconds(after.0 - before.0)
}

#[expect(clippy::cast_precision_loss, reason = "a window is far shorter than 2^53 milliseconds")]
fn milliseconds(ms: i64) -> f64 {
    ms as f64
}

/// The samples that bound a window, and the values at its edges.
struct Edges {
    /// The index of the first sample that is used.
    first: usize,
    /// The index of the last sample that is used, inclusive.
    last: usize,
    /// The value at the start of the window.
    left: f64,
    /// The value at the end of the window.
    right: f64,
}

impl Edges {
    fn of(window: &SampleWindow<'_>, counter: bool) -> Option<Edges> {
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
            interpolate(sample(first), sample(first + 1), window.start_ms, counter)
        } else {
            values[first]
        };
        let right = if smoothed && last > 0 && times[last] > window.end_ms {
            interpolate(sample(last - 1), sample(last), window.end_ms, counter)
        } else {
            values[last]
        };
        Some(Edges { first, last, left, right })
    }

    /// Returns the indices of the samples strictly inside the window.
    fn inside(&self, window: &SampleWindow<'_>) -> std::ops::Range<usize> {
        let from = self.first + usize::from(window.times[self.first] <= window.start_ms);
        let to = self.last + usize::from(window.times[self.last] < window.end_ms);
        from..to.max(from)
    }
}

/// Returns the change of the series from edge to edge. For a counter, the values before each reset
/// are added. Returns `None` if the window has no change to report.
pub(super) fn change(window: &SampleWindow<'_>, counter: bool) -> Option<f64> {
    let edges = Edges::of(window, counter)?;
    if window.extension == Some(Extension::Smoothed) && window.times[edges.first] > window.end_ms {
        return None;
    }
    let change = edges.right - edges.left;
    if !counter {
        return Some(change);
    }
    // Interpolation across a reset has already accounted for it, so only compare the edge values
    // with the values inside the window.
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

/// Returns the index of the first sample that an anchored window uses: the last one at or before
/// its start, if there is one. Returns `None` if no sample is inside an anchored window, and 0 for
/// other windows.
pub(super) fn anchor(window: &SampleWindow<'_>) -> Option<usize> {
    if window.extension != Some(Extension::Anchored) {
        return Some(0);
    }
    let before = window.times.partition_point(|at| *at <= window.start_ms);
    (before < window.times.len()).then_some(before.saturating_sub(1))
}

/// Returns the samples of an extended window selected by itself: the values at both edges, and the
/// samples between them.
pub(in crate::promql) fn samples(window: &SampleWindow<'_>) -> Vec<(i64, f64)> {
    let Some(edges) = Edges::of(window, false) else { return Vec::new() };
    let inside = edges.inside(window).map(|i| (window.times[i], window.values[i]));
    let mut samples = vec![(window.start_ms, edges.left)];
    samples.extend(inside);
    samples.push((window.end_ms, edges.right));
    samples
}
