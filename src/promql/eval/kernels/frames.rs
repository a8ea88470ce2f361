//! Where the windows of all steps begin and end among samples of given times.

use std::collections::HashMap;

use crate::promql::functions::{count, seconds};

use super::super::rows::Grid;

/// The windows of all steps for every list of times that was met. Series that are scraped together have the same times:
/// what is found for one is found for all, which are told from others by comparing the times, a fraction of what finding
/// costs.
#[derive(Default)]
pub(super) struct Known {
    met: Vec<Frames>,
    /// By first time and number of times; of several that agree in these, the last one met.
    of: HashMap<(i64, usize), usize>,
    /// Met last: neighbours mostly have the same.
    last: usize,
    bytes: usize,
    /// So much is kept at most before everything is forgotten.
    bytes_max: usize,
    edges: Vec<(i64, i64)>,
}

/// What is kept of each step.
pub(super) const STEP_BYTES: usize = size_of::<(Frame, Run)>();

impl Known {
    pub(super) fn within(bytes_max: usize) -> Known {
        Known { bytes_max, ..Known::default() }
    }

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
            (self.met.clear(), self.of.clear());
        }
        if self.met.get(self.last).is_none_or(|frames| frames.times != times) {
            let key = (times.first().copied().unwrap_or_default(), times.len());
            let bytes = size_of_val(times) + grid.len * STEP_BYTES;
            let place = self.of.get(&key).copied();
            if place.is_none() && self.bytes + bytes > self.bytes_max {
                (self.met.clear(), self.of.clear());
                self.bytes = 0;
            }
            self.last = place.unwrap_or(self.met.len());
            if place.is_none() {
                self.met.push(Frames::default());
                self.of.insert(key, self.last);
                self.bytes += bytes;
            }
            let frames = &mut self.met[self.last];
            if frames.times != times {
                frames.set(times, &self.edges, stretches);
            }
        }
        &self.met[self.last]
    }
}

/// The windows of all steps over one list of times.
#[derive(Default)]
pub(super) struct Frames {
    times: Vec<i64>,
    all: Vec<Frame>,
    /// The windows of two samples or more, where it is asked for how far they reach.
    runs: Vec<Run>,
}

/// Windows of neighbouring steps that differ in nothing but where they begin: of series that are scraped as regularly as
/// the steps go, nearly all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Run {
    /// The first step, and how many.
    pub(super) step: usize,
    pub(super) len: usize,
    /// The first sample of the first window, and by how many the next one's is further on.
    pub(super) from: usize,
    pub(super) stride: usize,
    /// Samples of each window, two at least.
    pub(super) width: usize,
    pub(super) stretch: Stretch,
}

impl Run {
    /// The windows with their steps.
    pub(super) fn windows(&self) -> impl Iterator<Item = Frame> + use<> {
        let Run { from, stride, width, .. } = *self;
        (0..self.len).map(move |i| Frame { from: from + i * stride, to: from + i * stride + width })
    }
}

/// The samples of one window: `from..to`, none where both are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// How far a window of two samples or more reaches beyond them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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
        self.runs.clear();
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
            self.find_runs(edges);
        }
    }

    fn find_runs(&mut self, edges: &[(i64, i64)]) {
        // What a window's stretch is made of, in milliseconds.
        let mut before = None;
        for (step, (frame, (start_ms, end_ms))) in self.all.iter().zip(edges).enumerate() {
            let Some(&[first, .., last]) = self.times.get(frame.from..frame.to) else {
                before = None;
                continue;
            };
            let range_ms = end_ms.saturating_sub(*start_ms);
            let to_start = first.saturating_sub(*start_ms);
            let shape = Some((frame.to - frame.from, last.saturating_sub(first), to_start, range_ms));
            let alike = self.runs.last_mut().filter(|_| shape == before);
            before = shape;
            if let Some(run) = alike {
                let ahead = frame.from - (run.from + (run.len - 1) * run.stride);
                if run.len == 1 || run.stride == ahead {
                    (run.stride, run.len) = (ahead, run.len + 1);
                    continue;
                }
                let stretch = run.stretch;
                let (from, width) = (frame.from, frame.to - frame.from);
                self.runs.push(Run { step, len: 1, from, stride: 0, width, stretch });
                continue;
            }
            let stretch = stretch(*frame, (*start_ms, *end_ms), &self.times);
            let (from, width) = (frame.from, frame.to - frame.from);
            self.runs.push(Run { step, len: 1, from, stride: 0, width, stretch });
        }
    }

    /// One for each step.
    pub(super) fn all(&self) -> &[Frame] {
        &self.all
    }

    /// The windows of two samples or more, in order.
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
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
