//! Where the windows of all steps begin and end among samples of given times.

use std::collections::HashMap;

use crate::promql::functions::{count, seconds};

use super::super::rows::Grid;

/// The windows of all steps for every list of times that was met. Series that are scraped together have the same times:
/// what is found for one is found for all, which are told from others by comparing the times, a fraction of what finding
/// costs.
#[derive(Default)]
pub(super) struct Known {
    /// By first time and number of times; of several that agree in these, the last one met.
    of: HashMap<(i64, usize), Frames>,
    bytes: usize,
    edges: Vec<(i64, i64)>,
}

/// So much is kept at most before everything is forgotten: of some hundred targets over a day.
const BYTES_MAX: usize = 8 << 20;

impl Known {
    /// The windows `(after, until]` over samples of these times, at least one; the ends ascend. One instance knows one
    /// kind of windows on one grid, and either always or never is asked how far they reach.
    pub(super) fn fit(
        &mut self,
        grid: Grid,
        times: &[i64],
        edges: impl Fn(i64) -> (i64, i64),
        stretches: bool,
    ) -> &Frames {
        if self.edges.len() != grid.len {
            self.edges.clear();
            self.edges.extend((0..grid.len).map(|step| edges(grid.at(step))));
        }
        let key = (times.first().copied().unwrap_or_default(), times.len());
        if !self.of.contains_key(&key) {
            let bytes = size_of_val(times) + grid.len * size_of::<(Frame, Stretch)>();
            if self.bytes + bytes > BYTES_MAX {
                self.of.clear();
                self.bytes = 0;
            }
            self.bytes += bytes;
        }
        let frames = self.of.entry(key).or_default();
        if frames.all.len() != grid.len || frames.times != times {
            frames.set(times, &self.edges, stretches);
        }
        frames
    }
}

/// The windows of all steps over one list of times.
#[derive(Default)]
pub(super) struct Frames {
    times: Vec<i64>,
    all: Vec<Frame>,
    /// What the functions that extrapolate know of each window; as many, where they are asked for.
    stretches: Vec<Stretch>,
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
    fn set(&mut self, times: &[i64], edges: &[(i64, i64)], stretches: bool) {
        self.times.clear();
        self.times.extend_from_slice(times);
        self.all.clear();
        self.stretches.clear();
        let (mut from, mut to) = (0, 0);
        self.all.extend(edges.iter().map(|(after, until)| {
            while times.get(from).is_some_and(|at| at <= after) {
                from += 1;
            }
            to = to.max(from);
            while times.get(to).is_some_and(|at| at <= until) {
                to += 1;
            }
            Frame { from, to }
        }));
        if stretches {
            let windows = self.all.iter().zip(edges);
            self.stretches.extend(windows.map(|(frame, edges)| stretch(*frame, *edges, times)));
        }
    }

    /// One for each step.
    pub(super) fn all(&self) -> &[Frame] {
        &self.all
    }

    /// One for each step.
    pub(super) fn stretches(&self) -> &[Stretch] {
        &self.stretches
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
