//! Rows of many series, each computed from its own samples alone: in batches, by as many threads as are free.
//!
//! A batch is so many neighbours, whoever takes it; each row is written in its own place. So no bit of the answer depends
//! on the number of threads. What is counted and told is so afterwards, in the order of rows, by the query's own thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::model::{HistogramColumns, TimeRange, Timestamp};
use crate::promql::QueryError;
use crate::promql::budget::{Aside, Progress};
use crate::promql::crew::Hand;
use crate::tsdb::{ReadColumns, Reader, SelectedSeries, Snapshot};

use super::Context;
use super::kernels::{Floats, GoesOn, SCRATCH_BYTES_MAX, STEP_BYTES, Scratch, Stopped, any_stale, rises};
use super::rows::{Filled, Rows, is_absent};
use super::windows::drop_stale;

/// Series of one batch.
const BATCH: usize = 32;

/// Computes one row, whatever it held, from one series' samples.
pub(super) type FillRow<'f> =
    dyn Fn(&mut Scratch, Floats<'_>, &mut [f64], GoesOn<'_>) -> Result<(), Stopped> + Sync + 'f;

/// What was read as rows are computed from it: windows have no staleness markers.
pub(super) fn floats_of(read: &mut ReadColumns, windows: bool) -> Floats<'_> {
    // Nothing that rises has a marker, which is no number.
    let rises = windows && (read.is_known_to_rise() || rises(read.values()));
    if windows && !rises && any_stale(read.values()) {
        drop_stale(read.change());
    }
    Floats { times: read.times(), values: read.values(), shared: read.shared_times(), rises }
}

/// What is read of each series.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    pub(super) range: TimeRange,
    /// Windows have no staleness markers, and their samples count as held while they are read.
    pub(super) windows: bool,
}

impl Reading {
    /// A reader of so many steps' samples.
    pub(super) fn reader(self, snapshot: &Snapshot, histograms_from: Timestamp, steps: usize) -> Reader<'_> {
        let reader = snapshot.reader(self.range, histograms_from);
        // One step looks back from the end of the range: what is before its newest sample is no matter.
        if steps == 1 && !self.windows { reader.newest_only() } else { reader }
    }
}

/// What came of it.
pub(super) enum Outcome {
    Rows(Rows),
    /// Nothing: there are native histograms among the series, which are computed another way. The series are counted.
    Native(Vec<SelectedSeries>),
}

/// A series, and where what it comes to belongs.
struct Part<'w> {
    series: &'w SelectedSeries,
    filled: &'w mut Filled,
    values: &'w mut [f64],
}

/// What all threads share.
struct Work<'w> {
    snapshot: &'w Snapshot,
    reading: Reading,
    histograms_from: Timestamp,
    fill: &'w FillRow<'w>,
    steps: usize,
    scratch_bytes: usize,
    batches: Mutex<std::slice::ChunksMut<'w, Part<'w>>>,
    progress: Option<&'w Progress>,
    /// Somebody gave up: there will be no answer.
    stopped: AtomicBool,
    /// There are native histograms: there will be an answer, but not this way.
    native: AtomicBool,
    /// Samples that rows may still hold.
    present_max: u64,
    present: AtomicU64,
}

impl Context<'_> {
    /// More threads for work that takes about so long and comes in so many pieces, as far as there is room for what each
    /// of them holds.
    pub(super) fn hire(&self, cost_ns: u64, pieces: usize, bytes: u64) -> (Vec<Hand<'_>>, Vec<Aside>) {
        let mut hired = (Vec::new(), Vec::new());
        while hired.0.len() + 1 < pieces {
            let Some(hand) = self.budget.crew.and_then(|crew| crew.hire(cost_ns)) else { break };
            let Some(aside) = self.meter.aside(bytes) else { break };
            hired.0.push(hand);
            hired.1.push(aside);
        }
        hired
    }

    /// A row of `steps` values for each series that has any.
    pub(super) fn filled(
        &self,
        found: Vec<SelectedSeries>,
        reading: Reading,
        steps: usize,
        fill: &FillRow<'_>,
    ) -> Result<Outcome, QueryError> {
        self.meter.found_series(found.len())?;
        self.meter.foresee(found.len(), steps, self.budget)?;
        let mut rows = Rows::with_room(&self.meter, found.len(), steps)?;
        let scratch_bytes = scratch_bytes(found.len(), reading.range, steps);
        let mut held = self.meter.charge();
        held.add_bytes(scratch_bytes as u64)?;
        let (batches, cost_ns) = (found.len().div_ceil(BATCH), cost_ns(found.len(), reading.range, steps));
        let (hands, _asides) = self.hire(cost_ns, batches, scratch_bytes as u64);
        let mut filled = vec![Filled::default(); found.len()];
        let mut refused = None;
        let mut own_check =
            || self.budget.check().map_err(|error| refused = Some(error)).map_err(|()| Stopped);
        let present_max = self.meter.samples_left();
        let (stopped, native, present) = {
            let row_by_row = rows.all_absent(found.len()).chunks_mut(steps);
            let parts = found.iter().zip(&mut filled).zip(row_by_row);
            let mut parts: Vec<Part<'_>> =
                parts.map(|((series, filled), values)| Part { series, filled, values }).collect();
            // Series that are written together have neighbouring numbers, and mostly the same times.
            parts.sort_unstable_by_key(|part| part.series.id);
            let work = Work {
                snapshot: self.snapshot,
                reading,
                // Where no sample is before the range, what went on is unknown: a lookback's worth is enough to find one.
                histograms_from: reading.range.start.plus_ms(self.options.lookback_ms.saturating_neg()),
                fill,
                steps,
                scratch_bytes,
                batches: Mutex::new(parts.chunks_mut(BATCH)),
                progress: self.budget.progress.as_deref(),
                stopped: AtomicBool::new(false),
                native: AtomicBool::new(false),
                present_max,
                present: AtomicU64::new(0),
            };
            work.run_with(hands, self.budget.cancel, &mut own_check);
            let load = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
            (load(&work.stopped), load(&work.native), work.present.load(Ordering::Relaxed))
        };
        if let Some(error) = refused {
            return Err(error);
        }
        if present > present_max {
            return Err(self.meter.too_many_samples());
        }
        if stopped {
            return self.budget.check().and(Err(QueryError::Cancelled));
        }
        if native {
            return Ok(Outcome::Native(found));
        }
        self.meter.add_samples(filled.iter().map(|one| one.read as u64).sum());
        rows.settle_filled(found, &filled, reading.windows)?;
        Ok(Outcome::Rows(rows))
    }
}

/// About how long it takes. A scrape each 15 s is usual; what was never scraped so long costs less.
pub(super) fn cost_ns(series: usize, range: TimeRange, steps: usize) -> u64 {
    let each = 700 + usual_samples(range) * 2 + steps as u64 * 2;
    (series as u64).saturating_mul(each)
}

fn usual_samples(range: TimeRange) -> u64 {
    (range.end.ms_since(range.start).max(0).unsigned_abs() / 15_000).min(100_000)
}

/// What one thread may keep of lists of times that it met, beside one of them: all, of not too many series.
pub(in crate::promql) fn scratch_bytes(series: usize, range: TimeRange, steps: usize) -> usize {
    let samples = usize::try_from(usual_samples(range)).unwrap_or(usize::MAX);
    let each = samples.saturating_mul(64).saturating_add(steps.saturating_mul(STEP_BYTES));
    series.saturating_mul(each).min(SCRATCH_BYTES_MAX)
}

/// When to look whether to go on: a look at the clock costs as much as reading some samples.
#[derive(Default)]
pub(super) struct Patience {
    since: usize,
}

impl Patience {
    /// After one more series of so many samples and steps: whether some microseconds went by.
    pub(super) fn is_over(&mut self, work: usize) -> bool {
        self.since += 256 + work;
        let is_over = self.since >= 2_048;
        if is_over {
            self.since = 0;
        }
        is_over
    }
}

/// Work that several threads do together.
pub(super) trait Shared: Sync {
    /// One thread's part, piece after piece while it `stays`.
    fn run(&self, check: GoesOn<'_>, stays: &dyn Fn() -> bool) -> Result<(), Stopped>;

    /// Tells all to stop: there will be no answer.
    fn stop(&self);

    /// Whether somebody said so.
    fn is_stopped(&self) -> bool;

    /// Works until nothing is left, with whoever was hired.
    fn run_with(&self, hands: Vec<Hand<'_>>, cancel: Option<&AtomicBool>, own_check: GoesOn<'_>) {
        let part = |check: GoesOn<'_>, stays: &dyn Fn() -> bool| {
            if self.run(check, stays).is_err() {
                self.stop();
            }
        };
        let part = &part;
        std::thread::scope(|scope| {
            for hand in hands {
                let mut check = move || {
                    let cancelled = cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed));
                    if cancelled || self.is_stopped() { Err(Stopped) } else { Ok(()) }
                };
                let helper = std::thread::Builder::new().name("query-hand".into());
                let help = move || part(&mut check, &|| !hand.is_wanted_elsewhere());
                // Without another thread this one does it all.
                if helper.spawn_scoped(scope, help).is_err() {
                    break;
                }
            }
            part(own_check, &|| true);
        });
    }
}

impl Shared for Work<'_> {
    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn run(&self, check: GoesOn<'_>, stays: &dyn Fn() -> bool) -> Result<(), Stopped> {
        let mut reader = self.reading.reader(self.snapshot, self.histograms_from, self.steps);
        let mut scratch = Scratch::within(self.scratch_bytes);
        let mut read = ReadColumns::default();
        let mut histograms = HistogramColumns::default();
        let mut patience = Patience::default();
        check()?;
        while stays() {
            let next = self.batches.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(batch) = next else { break };
            reader.look_ahead(batch.iter().map(|part| part.series.id));
            for Part { series, filled, values: row } in batch {
                if self.native.load(Ordering::Relaxed) {
                    return Ok(());
                }
                reader.read(series.id, &mut read, &mut histograms);
                if !histograms.is_empty() {
                    self.native.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                filled.read = read.times().len();
                if let Some(progress) = self.progress {
                    progress.read(filled.read);
                }
                if patience.is_over(filled.read + row.len()) {
                    check()?;
                }
                let floats = floats_of(&mut read, self.reading.windows);
                filled.held = floats.times.len();
                (self.fill)(&mut scratch, floats, row, check)?;
                filled.present = row.iter().filter(|value| !is_absent(**value)).count();
                let before = self.present.fetch_add(filled.present as u64, Ordering::Relaxed);
                if before.saturating_add(filled.present as u64) > self.present_max {
                    return Err(Stopped);
                }
            }
        }
        Ok(())
    }
}
