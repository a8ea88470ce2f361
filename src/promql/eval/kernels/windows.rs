//! Sample ranges of the windows of all steps, for a given list of sample times.

use std::ops::Range;
use std::sync::Arc;

use crate::promql::numbers::{count, seconds};

use super::SampleTimes;
use super::periodic_windows::PeriodicWindows;
use crate::model::{RegularTimes, Times};

/// The windows of all steps as time ranges `(after, until]` in milliseconds.
#[derive(Default)]
pub(super) struct WindowEdges {
    pub(super) all: Vec<(i64, i64)>,
    /// Milliseconds from one window to the next, positive; `None` if it is not the same everywhere.
    pub(super) step_ms: Option<i64>,
}

impl WindowEdges {
    pub(super) fn set(&mut self, edges: impl Iterator<Item = (i64, i64)>) {
        self.all.clear();
        self.all.extend(edges);
        self.step_ms = match *self.all.as_slice() {
            [(first, _), (second, _), ..] => second.checked_sub(first).filter(|step_ms| *step_ms > 0),
            _ => None,
        };
        let Some(step_ms) = self.step_ms else { return };
        let next = |edge: i64| edge.checked_add(step_ms);
        let evenly_spaced =
            |pair: &[(i64, i64)]| next(pair[0].0) == Some(pair[1].0) && next(pair[0].1) == Some(pair[1].1);
        self.step_ms = self.all.windows(2).all(evenly_spaced).then_some(step_ms);
    }
}

/// The sample times for which windows were computed.
pub(super) enum SeriesTimes {
    Own(Vec<i64>),
    Shared(Arc<Times>),
}

impl Default for SeriesTimes {
    fn default() -> SeriesTimes {
        SeriesTimes::Own(Vec::new())
    }
}

impl SeriesTimes {
    /// Returns whether these are the same shared times, by address.
    pub(super) fn is_same(&self, others: &Arc<Times>) -> bool {
        matches!(self, SeriesTimes::Shared(times) if Arc::ptr_eq(times, others))
    }

    /// Returns whether these are own times with equal values.
    pub(super) fn equals(&self, others: &[i64]) -> bool {
        matches!(self, SeriesTimes::Own(times) if times == others)
    }
}

/// Ascending times in which windows are located.
pub(super) trait AscendingTimes: Copy {
    fn at(self, index: usize) -> Option<i64>;

    fn len(self) -> usize;

    /// Returns how many consecutive times after index `from` follow their predecessor by
    /// `interval_ms`.
    fn count_regular(self, from: usize, interval_ms: i64) -> usize;
}

impl AscendingTimes for &[i64] {
    #[inline]
    fn at(self, index: usize) -> Option<i64> {
        self.get(index).copied()
    }

    #[inline]
    fn len(self) -> usize {
        <[i64]>::len(self)
    }

    fn count_regular(self, from: usize, interval_ms: i64) -> usize {
        count_regular(self.get(from..).unwrap_or_default(), interval_ms)
    }
}

impl AscendingTimes for RegularTimes {
    #[inline]
    fn at(self, index: usize) -> Option<i64> {
        RegularTimes::at(self, index)
    }

    #[inline]
    fn len(self) -> usize {
        self.len
    }

    fn count_regular(self, from: usize, interval_ms: i64) -> usize {
        if interval_ms == self.interval_ms { self.len.saturating_sub(from + 1) } else { 0 }
    }
}

/// The windows of all steps over one list of times.
#[derive(Default)]
pub(super) struct StepWindows {
    pub(super) times: SeriesTimes,
    /// One range for each step; empty if extrapolation was requested, because `runs` and `gaps`
    /// then describe all steps.
    all: Vec<SampleRange>,
    /// With extrapolation: the windows with at least two samples, and the steps with fewer.
    runs: Box<[WindowRun]>,
    gaps: Box<[Range<usize>]>,
}

/// Windows of equal shape, at consecutive steps or at every `every`-th step. Regularly scraped
/// series have almost only such windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WindowRun {
    /// Index of the first step, distance between two steps, and number of windows.
    pub(super) step: usize,
    pub(super) every: usize,
    pub(super) len: usize,
    /// Index of the first sample of the first window, and distance to that of the next window.
    pub(super) from: usize,
    pub(super) stride: usize,
    /// Samples in each window, at least two.
    pub(super) width: usize,
    pub(super) extrapolation: Extrapolation,
}

impl WindowRun {
    /// Returns the sample ranges in the order of steps.
    pub(super) fn windows(&self) -> impl Iterator<Item = SampleRange> + use<> {
        let WindowRun { from, stride, width, .. } = *self;
        (0..self.len).map(move |i| SampleRange { from: from + i * stride, to: from + i * stride + width })
    }
}

/// The samples of one window as indices `from..to`; empty if both are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SampleRange {
    pub(super) from: usize,
    pub(super) to: usize,
}

impl SampleRange {
    /// Returns the range moved forward by `samples`.
    fn shifted(self, samples: usize) -> SampleRange {
        SampleRange { from: self.from + samples, to: self.to + samples }
    }
}

/// The distances that extrapolation needs, for a window with at least two samples. The definition
/// is Prometheus's `extrapolatedRate` (promql/functions.go).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Extrapolation {
    /// Seconds from the first sample to the last.
    pub(super) sampled: f64,
    /// Seconds from the start of the window to the first sample, capped as Prometheus does.
    pub(super) to_start: f64,
    /// Seconds from the last sample to the end of the window, capped likewise.
    pub(super) to_end: f64,
    /// Factor that extends a change to the whole window if the counter was not zero inside it.
    pub(super) factor: f64,
    /// `factor` divided by the length of the window in seconds.
    pub(super) per_second: f64,
    /// Length of the window in seconds.
    pub(super) window_seconds: f64,
}

impl StepWindows {
    /// Returns windows without any step, for these times.
    pub(super) fn over(times: SeriesTimes) -> StepWindows {
        StepWindows { times, ..StepWindows::default() }
    }

    pub(super) fn set(&mut self, edges: &WindowEdges, extrapolates: bool, builder: &mut RunBuilder) {
        let times = std::mem::take(&mut self.times);
        let series_times = match &times {
            SeriesTimes::Own(times) => SampleTimes::Own(times),
            SeriesTimes::Shared(times) => SampleTimes::Shared(times),
        };
        match series_times.regular() {
            Some(regular) => self.set_over(regular, edges, extrapolates, builder),
            None => self.set_over(series_times.list(), edges, extrapolates, builder),
        }
        self.times = times;
    }

    fn set_over(
        &mut self,
        times: impl AscendingTimes,
        edges: &WindowEdges,
        extrapolates: bool,
        builder: &mut RunBuilder,
    ) {
        let steps = edges.all.len();
        self.all.clear();
        builder.clear();
        let (mut from, mut to) = (TimeCursor::default(), TimeCursor::default());
        let mut periodic = edges.step_ms.and_then(|step_ms| PeriodicWindows::new(times, step_ms));
        if !extrapolates {
            self.all.reserve(steps);
        }
        let mut step = 0;
        while let Some((after, until)) = edges.all.get(step) {
            let first = from.seek_after(times, *after);
            let range = SampleRange { from: first, to: to.seek_after(times, *until).max(first) };
            step += 1;
            let run = if extrapolates {
                builder.push(times, range, step - 1, (*after, *until))
            } else {
                self.all.push(range);
                None
            };
            let Some(periodic) = &mut periodic else {
                continue;
            };
            periodic.push(times, range, run);
            let Some((rounds, stride)) = periodic.rounds(steps - step) else {
                continue;
            };
            let round = std::mem::take(&mut periodic.round);
            if extrapolates {
                builder.repeat(&round, step, stride, rounds);
            } else {
                match round.as_slice() {
                    [(range, _)] => self.all.extend((1..rounds + 1).map(|n| range.shifted(n * stride))),
                    _ => {
                        for n in 1..rounds + 1 {
                            self.all.extend(round.iter().map(|(range, _)| range.shifted(n * stride)));
                        }
                    }
                }
            }
            from.index += rounds * stride;
            to.index += rounds * stride;
            step += rounds * round.len();
        }
        // Exact capacity, because the lists stay in the cache.
        self.runs = builder.runs.as_slice().into();
        self.gaps = builder.gaps.as_slice().into();
    }

    /// Creates windows from given ranges.
    #[cfg(test)]
    pub(super) fn from_all(all: Vec<SampleRange>) -> StepWindows {
        StepWindows { all, ..StepWindows::default() }
    }

    /// Returns one range for each step; empty if extrapolation was requested.
    pub(super) fn all(&self) -> &[SampleRange] {
        &self.all
    }

    /// Returns the windows with at least two samples; empty unless extrapolation was requested.
    pub(super) fn runs(&self) -> &[WindowRun] {
        &self.runs
    }

    /// Returns the steps whose windows have fewer than two samples; empty unless extrapolation was
    /// requested.
    pub(super) fn gaps(&self) -> &[Range<usize>] {
        &self.gaps
    }
}

/// Joins windows with at least two samples into runs while they are found.
#[derive(Default)]
pub(super) struct RunBuilder {
    runs: Vec<WindowRun>,
    /// Steps of all other windows.
    gaps: Vec<Range<usize>>,
    /// Shape of the previous window: number of samples, milliseconds between its first and last
    /// sample, from its start to its first sample, and from its start to its end. `None` if it had
    /// fewer than two samples.
    before: Option<(usize, i64, i64, i64)>,
}

impl RunBuilder {
    fn clear(&mut self) {
        self.runs.clear();
        self.gaps.clear();
        self.before = None;
    }

    /// Adds the window of a step. Returns the index of its run, or `None` if it has fewer than two
    /// samples.
    fn push(
        &mut self,
        times: impl AscendingTimes,
        range: SampleRange,
        step: usize,
        (start_ms, end_ms): (i64, i64),
    ) -> Option<usize> {
        let Some((first, last)) = first_and_last(times, range) else {
            self.before = None;
            self.skip(step);
            return None;
        };
        let range_ms = end_ms.saturating_sub(start_ms);
        let to_start = first.saturating_sub(start_ms);
        let shape = Some((range.to - range.from, last.saturating_sub(first), to_start, range_ms));
        let same_shape = self.runs.last_mut().filter(|_| shape == self.before);
        self.before = shape;
        let (from, width) = (range.from, range.to - range.from);
        let extrapolation = match same_shape {
            Some(run) => {
                let ahead = from - (run.from + (run.len - 1) * run.stride);
                if run.len == 1 || run.stride == ahead {
                    (run.stride, run.len) = (ahead, run.len + 1);
                    return Some(self.runs.len() - 1);
                }
                run.extrapolation
            }
            None => extrapolation(range, (start_ms, end_ms), times),
        };
        self.runs.push(WindowRun { step, every: 1, len: 1, from, stride: 0, width, extrapolation });
        Some(self.runs.len() - 1)
    }

    fn skip(&mut self, step: usize) {
        match self.gaps.last_mut() {
            Some(gap) if gap.end == step => gap.end += 1,
            _ => self.gaps.push(step..step + 1),
        }
    }

    /// Appends `rounds` repetitions of `round`, the windows of the steps just before `step`. Each
    /// repetition lies `stride` samples after the previous one.
    fn repeat(&mut self, round: &[(SampleRange, Option<usize>)], step: usize, stride: usize, rounds: usize) {
        let every = round.len();
        for (i, (range, run)) in round.iter().enumerate() {
            let Some(run) = run.and_then(|run| self.runs.get_mut(run)) else {
                (0..rounds).for_each(|n| self.skip(step + i + n * every));
                continue;
            };
            if run.len == 1 || (run.every, run.stride) == (every, stride) {
                (run.every, run.stride, run.len) = (every, stride, run.len + rounds);
                continue;
            }
            let (width, extrapolation, from) = (run.width, run.extrapolation, range.from + stride);
            self.runs.push(WindowRun {
                step: step + i,
                every,
                len: rounds,
                from,
                stride,
                width,
                extrapolation,
            });
        }
        if every > 1 {
            // The next window follows the end of the round, so it cannot extend a run of
            // consecutive steps.
            self.before = None;
        }
    }
}

/// Returns how many consecutive times after the first follow their predecessor by `interval_ms`.
fn count_regular(times: &[i64], interval_ms: i64) -> usize {
    const CHUNK: usize = 64;
    let later = times.get(1..).unwrap_or_default();
    let mut found = 0;
    for (before, after) in times.chunks(CHUNK).zip(later.chunks(CHUNK)) {
        let pairs = before.iter().zip(after);
        let off = |(before, after): (&i64, &i64)| after.wrapping_sub(*before) ^ interval_ms;
        if pairs.clone().fold(0, |any, pair| any | off(pair)) != 0 {
            return found + pairs.take_while(|pair| off(*pair) == 0).count();
        }
        found += after.len();
    }
    found
}

/// Cursor to the first time after a moment. Moments must ascend.
#[derive(Default)]
struct TimeCursor {
    index: usize,
    /// Distance of the last move. The next one is mostly equal, so the search starts there.
    last_move: usize,
}

impl TimeCursor {
    #[inline]
    fn seek_after(&mut self, times: impl AscendingTimes, moment: i64) -> usize {
        let mut next = (self.index + self.last_move).min(times.len());
        while next > self.index && times.at(next - 1).is_some_and(|time| time > moment) {
            next -= 1;
        }
        while times.at(next).is_some_and(|time| time <= moment) {
            next += 1;
        }
        (self.index, self.last_move) = (next, next - self.index);
        next
    }
}

/// Returns the first and the last time of a window with at least two samples.
#[inline]
fn first_and_last(times: impl AscendingTimes, SampleRange { from, to }: SampleRange) -> Option<(i64, i64)> {
    if to < from + 2 {
        return None;
    }
    times.at(from).zip(times.at(to - 1))
}

/// Computes the distances of a window, as Prometheus's `extrapolatedRate` does.
fn extrapolation(
    range: SampleRange,
    (start_ms, end_ms): (i64, i64),
    times: impl AscendingTimes,
) -> Extrapolation {
    let Some((first, last)) = first_and_last(times, range) else {
        return Extrapolation::default();
    };
    let SampleRange { from, to } = range;
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
    let window_seconds = seconds(end_ms.saturating_sub(start_ms));
    Extrapolation { sampled, to_start, to_end, factor, per_second: factor / window_seconds, window_seconds }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::TimesBuilder;

    /// Returns `times` as shared times of which each was announced as `interval_ms` before the
    /// next. If that is true of all, the times need no list.
    pub(in super::super) fn shared(times: &[i64], interval_ms: i64) -> Arc<Times> {
        let mut shared = TimesBuilder::default();
        times.iter().for_each(|time| shared.push_regular(RegularTimes { first: *time, interval_ms, len: 1 }));
        Arc::new(shared.build())
    }

    fn extrapolation_of(range: SampleRange, edges: (i64, i64), times: &[i64]) -> Option<Extrapolation> {
        (range.to - range.from > 1).then(|| extrapolation(range, edges, times))
    }

    proptest! {
        /// However many steps are skipped as repetitions, each window holds exactly the samples
        /// between its edges.
        #[test]
        fn windows_found_by_repetition_equal_those_found_one_by_one(
            gaps in prop::collection::vec(prop_oneof![30 => Just(15), 1 => Just(30), 1 => 1i64..40], 0..200),
            first in -200i64..200,
            (start, step, len) in (-500i64..500, prop_oneof![Just(15i64), Just(30), Just(60), Just(50), Just(20), 1i64..50], 1usize..150),
            range in 1i64..200,
            uneven in prop::option::of(0usize..150),
            (is_shared, announced_ms) in (any::<bool>(), prop_oneof![Just(15i64), 1i64..40]),
        ) {
            let mut times = vec![first];
            for gap in gaps {
                times.push(times.last().unwrap_or(&0) + gap);
            }
            let edge = |at: usize| {
                let until = start + step * i64::try_from(at).expect("few");
                // As with `@`, which fixes the edges from some step on.
                let until = uneven.map_or(until, |uneven| until.min(start + step * i64::try_from(uneven).expect("few")));
                (until - range, until)
            };
            let mut edges = WindowEdges::default();
            edges.set((0..len).map(edge));
            let plain: Vec<SampleRange> = (0..len).map(edge).map(|(after, until)| {
                let from = times.partition_point(|time| *time <= after);
                SampleRange { from, to: times.partition_point(|time| *time <= until).max(from) }
            }).collect();
            let series_times = if is_shared { SeriesTimes::Shared(shared(&times, announced_ms)) } else { SeriesTimes::Own(times.clone()) };
            let mut windows = StepWindows::over(series_times);
            windows.set(&edges, false, &mut RunBuilder::default());
            prop_assert_eq!(windows.all(), &plain[..]);
            windows.set(&edges, true, &mut RunBuilder::default());
            let mut found = vec![None; len];
            for run in windows.runs() {
                for (i, range) in run.windows().enumerate() {
                    prop_assert!(found[run.step + i * run.every].replace((range, run.extrapolation)).is_none(), "twice: {run:?}");
                }
            }
            for step in windows.gaps().iter().cloned().flatten() {
                prop_assert!(plain[step].to - plain[step].from < 2, "step {step}");
            }
            prop_assert_eq!(windows.gaps().iter().map(Range::len).sum::<usize>(), found.iter().filter(|found| found.is_none()).count());
            for (step, range) in plain.iter().enumerate() {
                let expected = extrapolation_of(*range, edge(step), &times).map(|extrapolation| (*range, extrapolation));
                prop_assert_eq!(found[step], expected, "step {} of {:?}", step, windows.runs());
            }
        }
    }
}
