//! Whole rows at once: one series' samples to one value for each step, at a cost for each step that does not grow with
//! the window where equality to the bit allows it.
//!
//! What a row needs to know of its samples' times is known for all series that share them ([`Frames`]). Where a kernel
//! cannot take a shortcut on the values it met, it runs the function of the one window, step by step.

mod abreast;
mod counts;
mod extremes;
mod frames;
mod lines;
mod newest;
mod rates;
mod spreads;
mod sums;

use std::sync::Arc;

use frames::{Frames, Known};
use newest::Newest;

use crate::model::{Steady, Times, is_stale};
use crate::promql::functions::regression::FittedLine;
use crate::promql::functions::{RowKernel, SampleWindow, count, seconds};
use crate::promql::plan::WindowNode;
use crate::simd::simd_dispatch;

use super::parallel_rows::{FillRow, LOOK_NS, fill_row};
use super::rows::{ABSENT, Grid};

/// Whoever computes may be told to stop.
pub(super) struct Stopped;

/// Asked now and then.
pub(super) type GoesOn<'g> = &'g mut dyn FnMut() -> Result<(), Stopped>;

/// Asks now and then whether to go on: long windows at many steps take long for one series too.
#[derive(Default)]
pub(super) struct Patience {
    looked_at: usize,
}

impl Patience {
    /// After so many samples more.
    pub(super) fn after<E>(
        &mut self,
        samples: usize,
        goes_on: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        const SAMPLES_BETWEEN_CHECKS: usize = 65_536;
        self.looked_at += samples;
        if self.looked_at <= SAMPLES_BETWEEN_CHECKS {
            return Ok(());
        }
        self.looked_at = 0;
        goes_on()
    }
}

/// More than this of times and places is not kept by one thread.
pub(super) const SCRATCH_BYTES_MAX: usize = 8 << 20;

/// What is kept for each step beside the times.
pub(super) const STEP_BYTES: usize = frames::STEP_BYTES;

/// One series' samples, as its row is computed from them; ascending.
#[derive(Clone, Copy)]
pub(super) struct Floats<'s> {
    pub(super) times: TimesOf<'s>,
    pub(super) values: &'s [f64],
    /// All are numbers, and none is less than the one before: that is known.
    pub(super) rises: bool,
}

/// The times of one series' samples.
#[derive(Clone, Copy)]
pub(super) enum TimesOf<'s> {
    /// That nobody else is known to have.
    Own(&'s [i64]),
    /// That are other series' as well.
    Shared(&'s Arc<Times>),
}

impl<'s> TimesOf<'s> {
    pub(super) fn len(self) -> usize {
        match self {
            TimesOf::Own(list) => list.len(),
            TimesOf::Shared(times) => times.len(),
        }
    }

    /// Which they are, where that can be told without a list of them.
    pub(super) fn steady(self) -> Option<Steady> {
        match self {
            TimesOf::Own(_) => None,
            TimesOf::Shared(times) => times.steady(),
        }
    }

    /// A list of them; of shared ones it may have to be made.
    pub(super) fn list(self) -> &'s [i64] {
        match self {
            TimesOf::Own(list) => list,
            TimesOf::Shared(times) => times.list(),
        }
    }
}

/// What one row after the other is computed in.
#[derive(Default)]
pub(super) struct Scratch {
    known: Known,
    resets: Vec<usize>,
    marks: Vec<u32>,
    queue: Vec<usize>,
    sums: sums::Prefixes,
    lines: lines::Room,
    columns: abreast::Columns,
    pieces: extremes::Pieces,
}

impl Scratch {
    /// One that keeps so much of lists of times, and one list in any case.
    pub(super) fn within(bytes_max: usize) -> Scratch {
        Scratch { known: Known::within(bytes_max), ..Scratch::default() }
    }

    /// Fills a row, whatever it held, with what is `told` of the newest sample in each step's window.
    pub(super) fn newest(
        &mut self,
        grid: Grid,
        Floats { times, values, .. }: Floats<'_>,
        edges: impl Fn(i64) -> (i64, i64),
        told: impl Fn(i64, f64) -> f64,
        row: &mut [f64],
    ) {
        if times.len() == 0 {
            row.fill(ABSENT);
            return;
        }
        if let [value] = row {
            // Where one moment is looked at, looking costs less than knowing which times were looked at before.
            let (after, until) = edges(grid.at(0));
            let times = times.list();
            let newest = times.partition_point(|at| *at <= until).checked_sub(1);
            let newest = newest.filter(|newest| times[*newest] > after);
            *value = newest.map_or(ABSENT, |newest| told(times[newest], values[newest]));
            return;
        }
        if let Some(steady) = times.steady()
            && let Some(places) =
                self.known.even(grid, &edges).and_then(|windows| Newest::of(steady, windows))
        {
            places.fill(steady, values, told, row);
            return;
        }
        let frames = self.known.fit(grid, times, edges, false);
        match times.steady() {
            Some(steady) => {
                counts::each(frames, row, |_, to| {
                    told(steady.at(to - 1).unwrap_or_default(), values[to - 1])
                });
            }
            None => {
                let times = times.list();
                counts::each(frames, row, |_, to| told(times[to - 1], values[to - 1]));
            }
        }
    }
}

/// A window function, what its arguments are at each step, and the steps.
pub(super) struct Kernel {
    pub(super) node: Arc<WindowNode>,
    pub(super) params: Vec<Vec<f64>>,
    pub(super) grid: Grid,
}

impl Kernel {
    /// About how long each step takes, beside reading.
    pub(super) fn step_ns(&self) -> u64 {
        match self.node.kernel.row_kernel {
            RowKernel::Mean | RowKernel::Sum => 10,
            RowKernel::Each
            | RowKernel::Deviation
            | RowKernel::Forecast
            | RowKernel::Slope
            | RowKernel::Variance => 50,
            _ => LOOK_NS,
        }
    }

    /// As it is shared by those who fill rows.
    pub(super) fn into_fill(self) -> Arc<FillRow> {
        fill_row(move |scratch, samples, row, goes_on| self.fill(scratch, samples, row, goes_on))
    }

    /// Fills a row, whatever it held; no staleness markers among the samples.
    pub(super) fn fill(
        &self,
        scratch: &mut Scratch,
        Floats { times, values, rises }: Floats<'_>,
        row: &mut [f64],
        goes_on: GoesOn<'_>,
    ) -> Result<(), Stopped> {
        if times.len() == 0 {
            row.fill(ABSENT);
            return Ok(());
        }
        let Scratch { known, resets, marks, queue, sums, lines, columns, pieces } = scratch;
        let extrapolates =
            matches!(self.node.kernel.row_kernel, RowKernel::Rate | RowKernel::Increase | RowKernel::Delta);
        let edges = |at_ms| self.node.arg.edges(at_ms);
        let frames = known.fit(self.grid, times, edges, extrapolates);
        if !extrapolates {
            row.fill(ABSENT);
        }
        match self.node.kernel.row_kernel {
            RowKernel::Each => return self.each(frames, resets, (times.list(), values), row, goes_on),
            RowKernel::Rate | RowKernel::Increase => {
                resets.clear();
                if !rises {
                    drops(values, resets);
                }
                let per_second = self.node.kernel.row_kernel == RowKernel::Rate;
                rates::fill(frames, values, Some(resets), per_second, row);
            }
            RowKernel::Delta => rates::fill(frames, values, None, false, row),
            RowKernel::LastRate => {
                counts::last_two(frames, (times.list(), values), row, |(before, last), apart| {
                    (if last < before { last } else { last - before }) / seconds(apart)
                })
            }
            RowKernel::LastDelta => {
                counts::last_two(frames, (times.list(), values), row, |(before, last), _| last - before);
            }
            RowKernel::Count => counts::each(frames, row, |from, to| count(to - from)),
            RowKernel::Present => counts::each(frames, row, |_, _| 1.0),
            RowKernel::First => counts::each(frames, row, |from, _| values[from]),
            RowKernel::Last => counts::each(frames, row, |_, to| values[to - 1]),
            RowKernel::Resets => counts::pairs(frames, values, marks, row, |before, value| value < before),
            RowKernel::Changes => counts::pairs(frames, values, marks, row, |before, value| {
                before != value && !(before.is_nan() && value.is_nan())
            }),
            RowKernel::Least => {
                if !extremes::values(pieces, frames, values, row, |a, b| a < b) {
                    extremes::fill(frames, values, queue, row, |a, b| a < b, |i| values[i]);
                }
            }
            RowKernel::Greatest => {
                if !extremes::values(pieces, frames, values, row, |a, b| a > b) {
                    extremes::fill(frames, values, queue, row, |a, b| a > b, |i| values[i]);
                }
            }
            RowKernel::FirstTime | RowKernel::LastTime | RowKernel::LeastTime | RowKernel::GreatestTime => {
                self.moments(frames, queue, (times.list(), values), row);
            }
            RowKernel::Sum | RowKernel::Mean => {
                let is_mean = self.node.kernel.row_kernel == RowKernel::Mean;
                if !sums::fill(sums, frames, values, is_mean, row) {
                    return self.each(frames, resets, (times.list(), values), row, goes_on);
                }
            }
            RowKernel::Variance | RowKernel::Deviation => {
                let is_root = self.node.kernel.row_kernel == RowKernel::Deviation;
                let told = |variance: f64| if is_root { variance.sqrt() } else { variance };
                if !spreads::fill(columns, (frames, values), told, row, goes_on)? {
                    return self.each(frames, resets, (times.list(), values), row, goes_on);
                }
            }
            RowKernel::Slope => {
                let line = (|_: usize, first: i64| first, |_: usize, line: FittedLine| line.slope());
                if !lines::fill(lines, frames, (times.list(), values), line, row, goes_on)? {
                    return self.each(frames, resets, (times.list(), values), row, goes_on);
                }
            }
            RowKernel::Forecast => {
                let [ahead] = self.params.as_slice() else {
                    return self.each(frames, resets, (times.list(), values), row, goes_on);
                };
                let line = (
                    |step: usize, _: i64| self.grid.at(step),
                    |step: usize, line: FittedLine| line.at(ahead[step]),
                );
                if !lines::fill(lines, frames, (times.list(), values), line, row, goes_on)? {
                    return self.each(frames, resets, (times.list(), values), row, goes_on);
                }
            }
        }
        Ok(())
    }

    /// When what is asked for was.
    fn moments(
        &self,
        frames: &Frames,
        queue: &mut Vec<usize>,
        (times, values): (&[i64], &[f64]),
        row: &mut [f64],
    ) {
        let at = |place: usize| seconds(times[place]);
        match self.node.kernel.row_kernel {
            RowKernel::FirstTime => counts::each(frames, row, |from, _| at(from)),
            RowKernel::LastTime => counts::each(frames, row, |_, to| at(to - 1)),
            RowKernel::LeastTime => extremes::fill(frames, values, queue, row, |a, b| a <= b, at),
            _ => extremes::fill(frames, values, queue, row, |a, b| a >= b, at),
        }
    }

    /// Each window by itself.
    fn each(
        &self,
        frames: &Frames,
        resets: &mut Vec<usize>,
        (times, values): (&[i64], &[f64]),
        row: &mut [f64],
        goes_on: GoesOn<'_>,
    ) -> Result<(), Stopped> {
        let run = self.node.kernel.run;
        resets.clear();
        if self.node.kernel.needs_resets {
            drops(values, resets);
        }
        let mut at_step = vec![0.0; self.params.len()];
        let mut reset_places = 0..0;
        let mut patience = Patience::default();
        for (step, (out, frame)) in row.iter_mut().zip(frames.all()).enumerate() {
            let (from, to) = (frame.from, frame.to);
            if from == to {
                continue;
            }
            patience.after(to - from, &mut *goes_on)?;
            for (value, values) in at_step.iter_mut().zip(&self.params) {
                *value = values[step];
            }
            let at_ms = self.grid.at(step);
            let (start_ms, end_ms) = self.node.arg.edges(at_ms);
            reset_places = rates::within(resets, reset_places, from, to);
            let window = SampleWindow {
                times: &times[from..to],
                values: &values[from..to],
                start_ms,
                end_ms,
                at_ms,
                params: &at_step,
                resets: &resets[reset_places.clone()],
                first: from,
                starts: &[],
                extension: None,
            };
            if let Some(value) = run(&window) {
                *out = value;
            }
        }
        Ok(())
    }
}

/// Where values are lower than the one before. A comparison with NaN is no drop.
fn drops(values: &[f64], resets: &mut Vec<usize>) {
    resets.clear();
    simd_dispatch!(push_drops(values, resets));
}

#[inline(always)]
fn push_drops(values: &[f64], resets: &mut Vec<usize>) {
    let later = values.get(1..).unwrap_or_default();
    // Most pieces have none, and are compared without a branch for each value.
    for (piece, (before, after)) in values.chunks(64).zip(later.chunks(64)).enumerate() {
        if before.iter().zip(after).fold(false, |any, (before, value)| any | (value < before)) {
            let pairs = before.iter().zip(after).enumerate();
            let found = pairs.filter(|(_, (before, value))| value < before);
            resets.extend(found.map(|(i, _)| piece * 64 + i + 1));
        }
    }
}

/// Whether any value is a staleness marker.
pub(super) fn any_stale(values: &[f64]) -> bool {
    // A marker is a NaN, which several values are asked for at once; few are one, and those are looked at.
    let any_nan = |piece: &[f64]| piece.iter().fold(false, |any, value| any | value.is_nan());
    simd_dispatch!(
        values.chunks(64).any(|piece| any_nan(piece) && piece.iter().any(|value| is_stale(*value)))
    )
}
