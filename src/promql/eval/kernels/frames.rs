//! Where the windows of all steps begin and end among samples of given times.

use crate::promql::functions::{count, seconds};
use crate::promql::plan::WindowNode;

use super::super::rows::Grid;

/// The windows of all steps. Series that are scraped together have the same times: what is found for one is kept for the
/// next, which is told from another by comparing the times, a fraction of what finding costs.
#[derive(Default)]
pub(super) struct Frames {
    times: Vec<i64>,
    all: Vec<Frame>,
    /// What the functions that extrapolate know of each window; as many, once they are asked for.
    stretches: Vec<Stretch>,
    edges: Vec<(i64, i64)>,
}

/// The samples of one window: `from..to`, none where both are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// How far a window reaches beyond its samples; nothing is known of windows of less than two.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    /// From the first sample to the last, in seconds.
    pub(super) sampled: f64,
    pub(super) to_start: f64,
    pub(super) to_end: f64,
    /// By what a change is multiplied to cover the whole window, where its counter did not begin inside.
    pub(super) factor: f64,
    /// The same by the length of the window.
    pub(super) per_second: f64,
    /// The window, in seconds.
    pub(super) range: f64,
}

impl Frames {
    /// The windows of a function over samples of these times.
    pub(super) fn fit(&mut self, node: &WindowNode, grid: Grid, times: &[i64]) {
        self.fit_edges(grid, times, |at_ms| node.arg.edges(at_ms));
    }

    /// The same for any windows `(after, until]` whose ends ascend. One instance knows one kind of windows.
    pub(super) fn fit_edges(&mut self, grid: Grid, times: &[i64], edges: impl Fn(i64) -> (i64, i64)) {
        if self.all.len() == grid.len && self.times == times {
            return;
        }
        self.times.clear();
        self.times.extend_from_slice(times);
        if self.edges.len() != grid.len {
            self.edges.clear();
            self.edges.extend((0..grid.len).map(|step| edges(grid.at(step))));
        }
        self.all.clear();
        self.stretches.clear();
        let (mut from, mut to) = (0, 0);
        self.all.extend(self.edges.iter().map(|(after, until)| {
            while times.get(from).is_some_and(|at| at <= after) {
                from += 1;
            }
            to = to.max(from);
            while times.get(to).is_some_and(|at| at <= until) {
                to += 1;
            }
            Frame { from, to }
        }));
    }

    /// One for each step.
    pub(super) fn all(&self) -> &[Frame] {
        &self.all
    }

    /// One for each step.
    pub(super) fn stretched(&mut self) -> (&[Frame], &[Stretch]) {
        if self.stretches.len() != self.all.len() {
            let times = &self.times;
            let windows = self.all.iter().zip(&self.edges);
            self.stretches.extend(windows.map(|(frame, edges)| stretch(*frame, *edges, times)));
        }
        (&self.all, &self.stretches)
    }
}

fn stretch(Frame { from, to }: Frame, (start_ms, end_ms): (i64, i64), times: &[i64]) -> Stretch {
    let Some([first, .., last]) = times.get(from..to) else { return Stretch::default() };
    let sampled = seconds(last - first);
    let between = sampled / count(to - from - 1);
    let threshold = between * 1.1;
    let mut to_start = seconds(first - start_ms);
    if to_start >= threshold {
        to_start = between / 2.0;
    }
    let mut to_end = seconds(end_ms - last);
    if to_end >= threshold {
        to_end = between / 2.0;
    }
    let factor = (sampled + to_start + to_end) / sampled;
    let range = seconds(end_ms.saturating_sub(start_ms));
    Stretch { sampled, to_start, to_end, factor, per_second: factor / range, range }
}
