//! Where the windows of all steps begin and end among samples of given times.

use std::ops::Range;
use std::sync::Arc;

use rapidhash::RapidHashMap;

use crate::promql::functions::{count, seconds};

use super::super::rows::Grid;
use super::TimesOf;
use crate::model::{Steady, Times};

/// The windows of all steps for every list of times that was met. Series that are scraped together have the same times:
/// what is found for one is found for all. Most share one list; others are told by comparing the times, a fraction of what
/// finding costs.
#[derive(Default)]
pub(super) struct Known {
    met: Vec<Frames>,
    /// By first time and number of times; of several that agree in these, the last one met.
    of: RapidHashMap<(i64, usize), usize>,
    /// By place in memory of lists that are shared.
    shared: RapidHashMap<usize, usize>,
    /// Met last: neighbours mostly have the same.
    last: usize,
    bytes: usize,
    /// So much is kept at most before everything is forgotten.
    bytes_max: usize,
    edges: Edges,
    /// In which runs are put together.
    joining: Runs,
}

/// Where the windows of all steps lie in time.
#[derive(Default)]
struct Edges {
    all: Vec<(i64, i64)>,
    /// How far one window is from the next, where that is the same everywhere and not nothing.
    apart: Option<i64>,
}

impl Edges {
    fn set(&mut self, edges: impl Iterator<Item = (i64, i64)>) {
        self.all.clear();
        self.all.extend(edges);
        self.apart = match *self.all.as_slice() {
            [(first, _), (second, _), ..] => second.checked_sub(first).filter(|apart| *apart > 0),
            _ => None,
        };
        let Some(apart) = self.apart else { return };
        let next = |edge: i64| edge.checked_add(apart);
        let alike =
            |pair: &[(i64, i64)]| next(pair[0].0) == Some(pair[1].0) && next(pair[0].1) == Some(pair[1].1);
        self.apart = self.all.windows(2).all(alike).then_some(apart);
    }
}

/// Lists of times that there is room for once a second one is met.
const LISTS_USUAL: usize = 64;

/// Windows that are equally far apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Even {
    /// The first one: after that moment, and until that one.
    pub(super) first: (i64, i64),
    /// Milliseconds from one to the next, at least one.
    pub(super) apart: i64,
    /// How many there are.
    pub(super) len: usize,
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
        times: TimesOf<'_>,
        edges: impl Fn(i64) -> (i64, i64),
        stretches: bool,
    ) -> &Frames {
        self.look_at(grid, edges);
        match times {
            TimesOf::Shared(times) => self.fit_shared(times, stretches),
            TimesOf::Own(times) => self.fit_own(times, stretches),
        }
        &self.met[self.last]
    }

    /// The windows of all steps, where they are equally far apart.
    pub(super) fn even(&mut self, grid: Grid, edges: impl Fn(i64) -> (i64, i64)) -> Option<Even> {
        self.look_at(grid, edges);
        let (first, apart) = self.edges.all.first().zip(self.edges.apart)?;
        Some(Even { first: *first, apart, len: self.edges.all.len() })
    }

    fn look_at(&mut self, grid: Grid, edges: impl Fn(i64) -> (i64, i64)) {
        if self.edges.all.len() != grid.len {
            self.edges.set((0..grid.len).map(|step| edges(grid.at(step))));
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.met.clear();
        self.of.clear();
        self.shared.clear();
        self.bytes = 0;
    }

    fn fit_shared(&mut self, times: &Arc<Times>, stretches: bool) {
        if self.met.get(self.last).is_some_and(|frames| frames.times.are(times)) {
            return;
        }
        // Who is known holds its times, so that no others can be where they are.
        let place = Arc::as_ptr(times).addr();
        if let Some(known) = self.shared.get(&place) {
            self.last = *known;
            return;
        }
        self.make_room(times.len());
        let mut frames = Frames { times: Whose::Shared(Arc::clone(times)), ..Frames::default() };
        frames.set(&self.edges, stretches, &mut self.joining);
        self.last = self.met.len();
        if self.last == 1 {
            self.met.reserve(LISTS_USUAL);
            self.shared.reserve(LISTS_USUAL);
        }
        self.met.push(frames);
        self.shared.insert(place, self.last);
    }

    fn fit_own(&mut self, times: &[i64], stretches: bool) {
        if self.met.get(self.last).is_some_and(|frames| frames.times.are_like(times)) {
            return;
        }
        let key = (times.first().copied().unwrap_or_default(), times.len());
        if let Some(known) = self.of.get(&key) {
            self.last = *known;
        } else {
            self.make_room(times.len());
            self.last = self.met.len();
            self.met.push(Frames::default());
            self.of.insert(key, self.last);
        }
        let frames = &mut self.met[self.last];
        if !frames.times.are_like(times) {
            frames.times = Whose::Own(times.to_vec());
            frames.set(&self.edges, stretches, &mut self.joining);
        }
    }

    /// Forgets everything rather than keep too much with one more list.
    fn make_room(&mut self, times: usize) {
        let bytes = times * size_of::<i64>() + self.edges.all.len() * STEP_BYTES;
        if self.bytes + bytes > self.bytes_max {
            self.forget();
        }
        self.bytes += bytes;
    }
}

/// The times of some series.
enum Whose {
    Own(Vec<i64>),
    Shared(Arc<Times>),
}

impl Default for Whose {
    fn default() -> Whose {
        Whose::Own(Vec::new())
    }
}

impl Whose {
    /// Whether it is these very times.
    fn are(&self, others: &Arc<Times>) -> bool {
        matches!(self, Whose::Shared(times) if Arc::ptr_eq(times, others))
    }

    /// Whether it is times of one series that are the same as these.
    fn are_like(&self, others: &[i64]) -> bool {
        matches!(self, Whose::Own(times) if times == others)
    }
}

/// Ascending times among which windows are looked for.
trait Ascending: Copy {
    fn at(self, place: usize) -> Option<i64>;

    fn len(self) -> usize;

    /// How many after that place are each so far behind the one before.
    fn in_step(self, from: usize, interval: i64) -> usize;
}

impl Ascending for &[i64] {
    #[inline]
    fn at(self, place: usize) -> Option<i64> {
        self.get(place).copied()
    }

    #[inline]
    fn len(self) -> usize {
        <[i64]>::len(self)
    }

    fn in_step(self, from: usize, interval: i64) -> usize {
        in_step(self.get(from..).unwrap_or_default(), interval)
    }
}

impl Ascending for Steady {
    #[inline]
    fn at(self, place: usize) -> Option<i64> {
        Steady::at(self, place)
    }

    #[inline]
    fn len(self) -> usize {
        self.len
    }

    fn in_step(self, from: usize, interval: i64) -> usize {
        if interval == self.apart { self.len.saturating_sub(from + 1) } else { 0 }
    }
}

/// The windows of all steps over one list of times.
#[derive(Default)]
pub(super) struct Frames {
    times: Whose,
    /// None where it is asked for how far they reach: then the runs say it all.
    all: Vec<Frame>,
    /// The windows of two samples or more, where it is asked for how far they reach, and the steps that have fewer.
    runs: Box<[Run]>,
    gaps: Box<[Range<usize>]>,
}

/// Windows that differ in nothing but where they begin, of neighbouring steps or of every so manyth: of series that are
/// scraped regularly, nearly all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Run {
    /// The first step, how many steps each is after the one before, and how many windows.
    pub(super) step: usize,
    pub(super) every: usize,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Frame {
    /// So many samples further on.
    fn on(self, samples: usize) -> Frame {
        Frame { from: self.from + samples, to: self.to + samples }
    }
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
    fn set(&mut self, edges: &Edges, stretches: bool, joining: &mut Runs) {
        let times = std::mem::take(&mut self.times);
        let whose = match &times {
            Whose::Own(times) => TimesOf::Own(times),
            Whose::Shared(times) => TimesOf::Shared(times),
        };
        match whose.steady() {
            Some(steady) => self.set_over(steady, edges, stretches, joining),
            None => self.set_over(whose.list(), edges, stretches, joining),
        }
        self.times = times;
    }

    fn set_over(&mut self, times: impl Ascending, edges: &Edges, stretches: bool, joining: &mut Runs) {
        let steps = edges.all.len();
        self.all.clear();
        joining.clear();
        let (mut from, mut to) = (Place::default(), Place::default());
        let mut regular = edges.apart.and_then(|apart| Regular::new(times, apart));
        if !stretches {
            self.all.reserve(steps);
        }
        let mut step = 0;
        while let Some((after, until)) = edges.all.get(step) {
            let first = from.after(times, *after);
            let frame = Frame { from: first, to: to.after(times, *until).max(first) };
            step += 1;
            let run = if stretches {
                joining.push(times, frame, (step - 1, (*after, *until)))
            } else {
                self.all.push(frame);
                None
            };
            let Some(regular) = &mut regular else {
                continue;
            };
            regular.push(times, frame, run);
            let Some((rounds, stride)) = regular.rounds(steps - step) else {
                continue;
            };
            let round = std::mem::take(&mut regular.round);
            if stretches {
                joining.go_on(&round, step, stride, rounds);
            } else {
                match round.as_slice() {
                    [(frame, _)] => self.all.extend((1..rounds + 1).map(|n| frame.on(n * stride))),
                    _ => {
                        for n in 1..rounds + 1 {
                            self.all.extend(round.iter().map(|(frame, _)| frame.on(n * stride)));
                        }
                    }
                }
            }
            from.at += rounds * stride;
            to.at += rounds * stride;
            step += rounds * round.len();
        }
        // As many as there are: they are kept.
        self.runs = joining.runs.as_slice().into();
        self.gaps = joining.gaps.as_slice().into();
    }

    /// Windows of these.
    #[cfg(test)]
    pub(super) fn from_all(all: Vec<Frame>) -> Frames {
        Frames { all, ..Frames::default() }
    }

    /// One for each step; none where it is asked for how far they reach.
    pub(super) fn all(&self) -> &[Frame] {
        &self.all
    }

    /// The windows of two samples or more.
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Where it is asked for how far they reach: the steps whose windows have fewer samples.
    pub(super) fn gaps(&self) -> &[Range<usize>] {
        &self.gaps
    }
}

/// Windows of two samples or more, joined to runs as they come.
#[derive(Default)]
struct Runs {
    runs: Vec<Run>,
    /// The steps of all others.
    gaps: Vec<Range<usize>>,
    /// What the stretch of the window before is made of, in milliseconds; none where it was none.
    before: Option<(usize, i64, i64, i64)>,
}

impl Runs {
    fn clear(&mut self) {
        self.runs.clear();
        self.gaps.clear();
        self.before = None;
    }

    /// Adds the window of a step; the run that it is in, where it has the samples.
    fn push(
        &mut self,
        times: impl Ascending,
        frame: Frame,
        (step, (start_ms, end_ms)): (usize, (i64, i64)),
    ) -> Option<usize> {
        let Some((first, last)) = ends(times, frame) else {
            self.before = None;
            self.skip(step);
            return None;
        };
        let range_ms = end_ms.saturating_sub(start_ms);
        let to_start = first.saturating_sub(start_ms);
        let shape = Some((frame.to - frame.from, last.saturating_sub(first), to_start, range_ms));
        let alike = self.runs.last_mut().filter(|_| shape == self.before);
        self.before = shape;
        let (from, width) = (frame.from, frame.to - frame.from);
        let stretch = match alike {
            Some(run) => {
                let ahead = from - (run.from + (run.len - 1) * run.stride);
                if run.len == 1 || run.stride == ahead {
                    (run.stride, run.len) = (ahead, run.len + 1);
                    return Some(self.runs.len() - 1);
                }
                run.stretch
            }
            None => stretch(frame, (start_ms, end_ms), times),
        };
        self.runs.push(Run { step, every: 1, len: 1, from, stride: 0, width, stretch });
        Some(self.runs.len() - 1)
    }

    fn skip(&mut self, step: usize) {
        match self.gaps.last_mut() {
            Some(gap) if gap.end == step => gap.end += 1,
            _ => self.gaps.push(step..step + 1),
        }
    }

    /// So many more rounds of windows like those of the last steps before this one.
    fn go_on(&mut self, round: &[(Frame, Option<usize>)], step: usize, stride: usize, rounds: usize) {
        let every = round.len();
        for (i, (frame, run)) in round.iter().enumerate() {
            let Some(run) = run.and_then(|run| self.runs.get_mut(run)) else {
                (0..rounds).for_each(|n| self.skip(step + i + n * every));
                continue;
            };
            if run.len == 1 || (run.every, run.stride) == (every, stride) {
                (run.every, run.stride, run.len) = (every, stride, run.len + rounds);
                continue;
            }
            let (width, stretch, from) = (run.width, run.stretch, frame.from + stride);
            self.runs.push(Run { step: step + i, every, len: rounds, from, stride, width, stretch });
        }
        if every > 1 {
            // What comes next follows the last of the round, which is no run of neighbours any more.
            self.before = None;
        }
    }
}

/// Of more different windows than these it is not waited for until they come round again.
const ROUND_MAX: usize = 32;

/// A piece of a list whose times are all as far apart as the list's first ones.
///
/// Windows come round: after so many steps as their distance needs to be a multiple of the times' one, each lies among the
/// times as it did before. As long as what is just before a window and what is just after it are of the piece, its ends
/// stay between the same times.
struct Regular {
    interval: i64,
    /// How many windows are a round, and by how many times the next one's are further on.
    windows: usize,
    stride: usize,
    /// The first and the last of the piece.
    first: usize,
    last: usize,
    /// The last windows, of one piece, a round at most, and the runs they are in.
    round: Vec<(Frame, Option<usize>)>,
}

impl Regular {
    /// Of windows so far apart.
    fn new(times: impl Ascending, apart: i64) -> Option<Regular> {
        let (first, second) = times.at(0).zip(times.at(1))?;
        let interval = second.checked_sub(first).filter(|interval| *interval > 0)?;
        let shared = shared_divisor(interval, apart);
        let windows = usize::try_from(interval / shared).ok().filter(|windows| *windows <= ROUND_MAX)?;
        let stride = usize::try_from(apart / shared).ok()?;
        Some(Regular { interval, windows, stride, first: 0, last: 0, round: Vec::with_capacity(windows) })
    }

    /// Takes in the window of the next step.
    fn push(&mut self, times: impl Ascending, frame: Frame, run: Option<usize>) {
        if !self.holds(times, frame) {
            self.round.clear();
            return;
        }
        if self.round.first().is_some_and(|(first, _)| first.from <= self.first) {
            // Another piece has begun.
            self.round.clear();
        }
        self.round.push((frame, run));
    }

    /// Whether a window and the times around it are of one piece.
    fn holds(&mut self, times: impl Ascending, frame: Frame) -> bool {
        let Some(before) = frame.from.checked_sub(1) else {
            return false;
        };
        if frame.to == frame.from {
            return false;
        }
        if frame.to > self.last {
            if before > self.last {
                (self.first, self.last) = (before, before);
            }
            self.last += times.in_step(self.last, self.interval);
        }
        before >= self.first && frame.to <= self.last
    }

    /// Once a round is there: how many more there are of it within so many steps, and how many times each is further on.
    fn rounds(&mut self, steps: usize) -> Option<(usize, usize)> {
        if self.round.len() < self.windows {
            return None;
        }
        let inside = |(frame, _): &(Frame, Option<usize>)| (self.last - frame.to) / self.stride;
        let rounds = self.round.iter().map(inside).min().unwrap_or(0).min(steps / self.windows);
        if rounds == 0 {
            self.round.clear();
            return None;
        }
        Some((rounds, self.stride))
    }
}

fn shared_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { shared_divisor(b, a % b) }
}

/// How many times after the first are each so far behind the one before.
fn in_step(times: &[i64], interval: i64) -> usize {
    const TOGETHER: usize = 64;
    let later = times.get(1..).unwrap_or_default();
    let mut found = 0;
    for (before, after) in times.chunks(TOGETHER).zip(later.chunks(TOGETHER)) {
        let pairs = before.iter().zip(after);
        let off = |(before, after): (&i64, &i64)| after.wrapping_sub(*before) ^ interval;
        if pairs.clone().fold(0, |any, pair| any | off(pair)) != 0 {
            return found + pairs.take_while(|pair| off(*pair) == 0).count();
        }
        found += after.len();
    }
    found
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
    fn after(&mut self, times: impl Ascending, moment: i64) -> usize {
        let mut next = (self.at + self.ahead).min(times.len());
        while next > self.at && times.at(next - 1).is_some_and(|time| time > moment) {
            next -= 1;
        }
        while times.at(next).is_some_and(|time| time <= moment) {
            next += 1;
        }
        (self.at, self.ahead) = (next, next - self.at);
        next
    }
}

/// The first and the last time of a window of two samples or more.
#[inline]
fn ends(times: impl Ascending, Frame { from, to }: Frame) -> Option<(i64, i64)> {
    if to < from + 2 {
        return None;
    }
    times.at(from).zip(times.at(to - 1))
}

fn stretch(frame: Frame, (start_ms, end_ms): (i64, i64), times: impl Ascending) -> Stretch {
    let Some((first, last)) = ends(times, frame) else {
        return Stretch::default();
    };
    let Frame { from, to } = frame;
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

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::TimesBuilder;

    /// As they are shared where each is told to be so far before the next: if all are, no list is made of them.
    pub(in super::super) fn shared(times: &[i64], apart: i64) -> Arc<Times> {
        let mut shared = TimesBuilder::default();
        times.iter().for_each(|time| shared.push_steady(Steady { first: *time, apart, len: 1 }));
        Arc::new(shared.build())
    }

    fn stretch_of(frame: Frame, edges: (i64, i64), times: &[i64]) -> Option<Stretch> {
        (frame.to - frame.from > 1).then(|| stretch(frame, edges, times))
    }

    proptest! {
        /// However much of a list is skipped over, each window holds what lies between its edges, and no more.
        #[test]
        fn windows_are_found_as_one_by_one(
            gaps in prop::collection::vec(prop_oneof![30 => Just(15), 1 => Just(30), 1 => 1i64..40], 0..200),
            first in -200i64..200,
            (start, step, len) in (-500i64..500, prop_oneof![Just(15i64), Just(30), Just(60), Just(50), Just(20), 1i64..50], 1usize..150),
            range in 1i64..200,
            uneven in prop::option::of(0usize..150),
            (is_shared, told_apart) in (any::<bool>(), prop_oneof![Just(15i64), 1i64..40]),
        ) {
            let mut times = vec![first];
            for gap in gaps {
                times.push(times.last().unwrap_or(&0) + gap);
            }
            let edge = |at: usize| {
                let until = start + step * i64::try_from(at).expect("few");
                // As where `@` holds the edges fast from some step on.
                let until = uneven.map_or(until, |uneven| until.min(start + step * i64::try_from(uneven).expect("few")));
                (until - range, until)
            };
            let mut edges = Edges::default();
            edges.set((0..len).map(edge));
            let plain: Vec<Frame> = (0..len).map(edge).map(|(after, until)| {
                let from = times.partition_point(|time| *time <= after);
                Frame { from, to: times.partition_point(|time| *time <= until).max(from) }
            }).collect();
            let whose = if is_shared { Whose::Shared(shared(&times, told_apart)) } else { Whose::Own(times.clone()) };
            let mut frames = Frames { times: whose, ..Frames::default() };
            frames.set(&edges, false, &mut Runs::default());
            prop_assert_eq!(frames.all(), &plain[..]);
            frames.set(&edges, true, &mut Runs::default());
            let mut found = vec![None; len];
            for run in frames.runs() {
                for (i, frame) in run.windows().enumerate() {
                    prop_assert!(found[run.step + i * run.every].replace((frame, run.stretch)).is_none(), "twice: {run:?}");
                }
            }
            for step in frames.gaps().iter().cloned().flatten() {
                prop_assert!(plain[step].to - plain[step].from < 2, "step {step}");
            }
            prop_assert_eq!(frames.gaps().iter().map(Range::len).sum::<usize>(), found.iter().filter(|found| found.is_none()).count());
            for (step, frame) in plain.iter().enumerate() {
                let expected = stretch_of(*frame, edge(step), &times).map(|stretch| (*frame, stretch));
                prop_assert_eq!(found[step], expected, "step {} of {:?}", step, frames.runs());
            }
        }
    }
}
