//! Where the windows of all steps begin and end among samples of given times.

use std::collections::HashMap;
use std::sync::Arc;

use crate::promql::functions::{count, seconds};

use super::super::rows::Grid;

/// The windows of all steps for every list of times that was met. Series that are scraped together have the same times:
/// what is found for one is found for all. Most share one list; others are told by comparing the times, a fraction of what
/// finding costs.
#[derive(Default)]
pub(super) struct Known {
    met: Vec<Frames>,
    /// By first time and number of times; of several that agree in these, the last one met.
    of: HashMap<(i64, usize), usize>,
    /// By place in memory of lists that are shared.
    shared: HashMap<usize, usize>,
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
        (times, shared): (&[i64], Option<&Arc<Vec<i64>>>),
        edges: impl Fn(i64) -> (i64, i64),
        stretches: bool,
    ) -> &Frames {
        if self.edges.len() != grid.len {
            self.edges.clear();
            self.edges.extend((0..grid.len).map(|step| edges(grid.at(step))));
            self.forget();
        }
        match shared {
            Some(list) => self.fit_shared(list, stretches),
            None => self.fit_own(times, stretches),
        }
        &self.met[self.last]
    }

    fn forget(&mut self) {
        self.met.clear();
        self.of.clear();
        self.shared.clear();
        self.bytes = 0;
    }

    fn fit_shared(&mut self, list: &Arc<Vec<i64>>, stretches: bool) {
        if self.met.get(self.last).is_some_and(|frames| frames.times.is(list)) {
            return;
        }
        // Who is known holds its list, so that no other can be where it is.
        let place = Arc::as_ptr(list).addr();
        if let Some(known) = self.shared.get(&place) {
            self.last = *known;
            return;
        }
        self.make_room(list);
        let mut frames = Frames { times: Times::Shared(Arc::clone(list)), ..Frames::default() };
        frames.set(&self.edges, stretches);
        self.last = self.met.len();
        self.met.push(frames);
        self.shared.insert(place, self.last);
    }

    fn fit_own(&mut self, times: &[i64], stretches: bool) {
        if self.met.get(self.last).is_some_and(|frames| frames.times.list() == times) {
            return;
        }
        let key = (times.first().copied().unwrap_or_default(), times.len());
        if let Some(known) = self.of.get(&key) {
            self.last = *known;
        } else {
            self.make_room(times);
            self.last = self.met.len();
            self.met.push(Frames::default());
            self.of.insert(key, self.last);
        }
        let frames = &mut self.met[self.last];
        if frames.times.list() != times {
            frames.times = Times::Own(times.to_vec());
            frames.set(&self.edges, stretches);
        }
    }

    /// Forgets everything rather than keep too much with one more list.
    fn make_room(&mut self, times: &[i64]) {
        let bytes = size_of_val(times) + self.edges.len() * STEP_BYTES;
        if self.bytes + bytes > self.bytes_max {
            self.forget();
        }
        self.bytes += bytes;
    }
}

/// The times of some series.
enum Times {
    Own(Vec<i64>),
    Shared(Arc<Vec<i64>>),
}

impl Default for Times {
    fn default() -> Times {
        Times::Own(Vec::new())
    }
}

impl Times {
    fn list(&self) -> &[i64] {
        match self {
            Times::Own(times) => times,
            Times::Shared(times) => times,
        }
    }

    /// Whether it is this very list.
    fn is(&self, list: &Arc<Vec<i64>>) -> bool {
        matches!(self, Times::Shared(times) if Arc::ptr_eq(times, list))
    }
}

/// The windows of all steps over one list of times.
#[derive(Default)]
pub(super) struct Frames {
    times: Times,
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
    fn set(&mut self, edges: &[(i64, i64)], stretches: bool) {
        let times = self.times.list();
        self.all.clear();
        self.runs.clear();
        let (mut from, mut to) = (Place::default(), Place::default());
        self.all.extend(edges.iter().map(|(after, until)| {
            let from = from.after(times, *after);
            Frame { from, to: to.after(times, *until).max(from) }
        }));
        if stretches {
            find_runs(times, &self.all, edges, &mut self.runs);
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

/// Joins windows of two samples or more to runs.
fn find_runs(times: &[i64], all: &[Frame], edges: &[(i64, i64)], runs: &mut Vec<Run>) {
    // What a window's stretch is made of, in milliseconds.
    let mut before = None;
    for (step, (frame, (start_ms, end_ms))) in all.iter().zip(edges).enumerate() {
        let Some(&[first, .., last]) = times.get(frame.from..frame.to) else {
            before = None;
            continue;
        };
        let range_ms = end_ms.saturating_sub(*start_ms);
        let to_start = first.saturating_sub(*start_ms);
        let shape = Some((frame.to - frame.from, last.saturating_sub(first), to_start, range_ms));
        let alike = runs.last_mut().filter(|_| shape == before);
        before = shape;
        if let Some(run) = alike {
            let ahead = frame.from - (run.from + (run.len - 1) * run.stride);
            if run.len == 1 || run.stride == ahead {
                (run.stride, run.len) = (ahead, run.len + 1);
                continue;
            }
            let stretch = run.stretch;
            let (from, width) = (frame.from, frame.to - frame.from);
            runs.push(Run { step, len: 1, from, stride: 0, width, stretch });
            continue;
        }
        let stretch = stretch(*frame, (*start_ms, *end_ms), times);
        let (from, width) = (frame.from, frame.to - frame.from);
        runs.push(Run { step, len: 1, from, stride: 0, width, stretch });
    }
}

/// The place of the first time after a moment; moments ascend.
#[derive(Default)]
struct Place {
    at: usize,
    /// How far it went last: mostly it goes as far again.
    ahead: usize,
}

impl Place {
    #[inline]
    fn after(&mut self, times: &[i64], moment: i64) -> usize {
        let mut next = (self.at + self.ahead).min(times.len());
        while next > self.at && times.get(next - 1).is_some_and(|time| *time > moment) {
            next -= 1;
        }
        while times.get(next).is_some_and(|time| *time <= moment) {
            next += 1;
        }
        (self.at, self.ahead) = (next, next - self.at);
        next
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
