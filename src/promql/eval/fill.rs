//! Rows of many series, each computed from its own samples alone: in batches, by as many threads as are free.
//!
//! A batch is so many neighbours, whoever takes it. The query's own thread writes rows in their places; a hand writes a
//! batch in a buffer of its own, and the query's thread puts its rows in their places. So no bit of the answer depends on
//! the number of threads. What is counted and told is so afterwards, in the order of rows, by the query's own thread.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::model::{HistogramColumns, TimeRange, Timestamp};
use crate::promql::QueryError;
use crate::promql::budget::{Aside, Progress, rows_bytes};
use crate::promql::crew::{Hand, NAP, Together};
use crate::tsdb::{ReadColumns, Reader, SelectedSeries, SeriesId, Snapshot, rises};

use super::Context;
use super::kernels::{Floats, GoesOn, SCRATCH_BYTES_MAX, STEP_BYTES, Scratch, Stopped, TimesOf, any_stale};
use super::rows::{Filled, Rows, present};
use super::windows::drop_stale;

/// Values of one batch: half of what stays in a core's own cache, so that each is a small part of all.
const BATCH_VALUES: usize = 8_192;
/// Series of one batch, at most and at least.
const BATCH_SERIES: (usize, usize) = (256, 8);
/// Batches of each hand that wait to be put in their places, and are computed.
const BUFFERS: usize = 4;

/// Computes one row, whatever it held, from one series' samples.
pub(super) type FillRow =
    dyn Fn(&mut Scratch, Floats<'_>, &mut [f64], GoesOn<'_>) -> Result<(), Stopped> + Send + Sync;

/// What computes a row, to be shared.
pub(super) fn fill_row(
    fill: impl Fn(&mut Scratch, Floats<'_>, &mut [f64], GoesOn<'_>) -> Result<(), Stopped> + Send + Sync + 'static,
) -> Arc<FillRow> {
    Arc::new(fill)
}

/// What was read as rows are computed from it: windows have no staleness markers.
pub(super) fn floats_of(read: &mut ReadColumns, windows: bool) -> Floats<'_> {
    // Nothing that rises has a marker, which is no number.
    let rises = windows && (read.is_known_to_rise() || rises(read.values()));
    if windows && !rises && any_stale(read.values()) {
        drop_stale(read.change());
    }
    let times = read.shared_times().map_or_else(|| TimesOf::Own(read.times()), TimesOf::Shared);
    Floats { times, values: read.values(), rises }
}

/// What is read of each series.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    pub(super) range: TimeRange,
    /// Windows have no staleness markers, and their samples count as held while they are read.
    pub(super) windows: bool,
    /// About how long each step takes once the samples are there.
    pub(super) step_ns: u64,
}

/// That of what only looks for a sample at each step, or for two.
pub(super) const LOOK_NS: u64 = 2;

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
    id: SeriesId,
    filled: &'w mut Filled,
    values: &'w mut [f64],
}

/// A batch that a hand has computed.
#[derive(Default)]
struct Computed {
    batch: usize,
    values: Vec<f64>,
    filled: Vec<Filled>,
}

/// What hands have computed, and buffers for more.
#[derive(Default)]
struct Shelf {
    computed: Vec<Computed>,
    free: Vec<Computed>,
    /// Threads that wait for the one or the other.
    waiting: usize,
}

/// What all threads share.
struct Work {
    snapshot: Snapshot,
    reading: Reading,
    histograms_from: Timestamp,
    fill: Arc<FillRow>,
    scratch_bytes: usize,
    steps: usize,
    /// Series of each batch.
    batch: usize,
    /// What hands read, in batches.
    ids: Vec<SeriesId>,
    /// The batch to be computed next.
    next: AtomicUsize,
    shelf: Mutex<Shelf>,
    /// Something was put on the shelf, or taken from it.
    moved: Condvar,
    progress: Option<Arc<Progress>>,
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
    pub(super) fn hire(&self, cost_ns: u64, pieces: usize, bytes: u64) -> (Vec<Hand>, Vec<Aside>) {
        let mut hired = (Vec::new(), Vec::new());
        while hired.0.len() + 1 < pieces {
            let Some(hand) = self.budget.crew.and_then(|crew| crew.hire(cost_ns)) else { break };
            let Some(aside) = self.meter.aside(bytes) else { break };
            hired.0.push(hand);
            hired.1.push(aside);
        }
        hired
    }

    /// Does its `own` part of some work while the hired do theirs. Nobody is at work when it answers.
    pub(super) fn together<W: Together>(
        &self,
        work: &Arc<W>,
        hands: Vec<Hand>,
        own: impl FnOnce(GoesOn<'_>) -> Result<(), Stopped>,
    ) -> Result<(), QueryError> {
        let mut refused = None;
        let mut goes_on = || self.budget.check().map_err(|error| refused = Some(error)).map_err(|()| Stopped);
        let crew = self.budget.crew.filter(|_| !hands.is_empty());
        let helpers = crew.map(|crew| crew.call(hands, work));
        if own(&mut goes_on).is_err() {
            work.stop();
        }
        if let Some(helpers) = helpers {
            helpers.dismiss(|| goes_on().is_ok());
        }
        refused.map_or(Ok(()), Err)
    }

    /// A row of `steps` values for each series that has any.
    pub(super) fn filled(
        &self,
        found: Vec<SelectedSeries>,
        reading: Reading,
        steps: usize,
        fill: Arc<FillRow>,
    ) -> Result<Outcome, QueryError> {
        self.meter.found_series(found.len())?;
        self.meter.foresee(found.len(), steps, self.budget)?;
        let mut rows = Rows::with_room(&self.meter, found.len(), steps)?;
        let scratch_bytes = scratch_bytes(found.len(), reading.range, steps);
        let mut held = self.meter.charge();
        held.add_bytes(scratch_bytes as u64)?;
        let batch = batch(found.len(), steps);
        let (batches, cost_ns) = (found.len().div_ceil(batch), cost_ns(found.len(), reading, steps));
        let of_hand = rows_bytes(BUFFERS * batch, steps).saturating_add(scratch_bytes as u64);
        let (hands, _asides) = self.hire(cost_ns, batches, of_hand);
        let mut filled = vec![Filled::default(); found.len()];
        let present_max = self.meter.samples_left();
        let row_by_row = rows.all_absent(found.len()).chunks_mut(steps);
        let parts = found.iter().zip(&mut filled).zip(row_by_row);
        let mut parts: Vec<Part<'_>> =
            parts.map(|((series, filled), values)| Part { id: series.id, filled, values }).collect();
        // Series that are written together have neighbouring numbers, and mostly the same times.
        parts.sort_unstable_by_key(|part| part.id);
        let mut shelf = Shelf::default();
        shelf.free.resize_with(BUFFERS * hands.len(), Computed::default);
        let work = Arc::new(Work {
            snapshot: self.snapshot.clone(),
            reading,
            // Where no sample is before the range, what went on is unknown: a lookback's worth is enough to find one.
            histograms_from: reading.range.start.plus_ms(self.options.lookback_ms.saturating_neg()),
            fill,
            scratch_bytes,
            steps,
            batch,
            ids: if hands.is_empty() { Vec::new() } else { parts.iter().map(|part| part.id).collect() },
            next: AtomicUsize::new(0),
            shelf: Mutex::new(shelf),
            moved: Condvar::new(),
            progress: self.budget.progress.clone(),
            stopped: AtomicBool::new(false),
            native: AtomicBool::new(false),
            present_max,
            present: AtomicU64::new(0),
        });
        self.together(&work, hands, |goes_on| work.own_part(&mut parts, goes_on))?;
        if work.present.load(Ordering::Relaxed) > present_max {
            return Err(self.meter.too_many_samples());
        }
        if work.stopped.load(Ordering::Relaxed) {
            return self.budget.check().and(Err(QueryError::Cancelled));
        }
        if work.native.load(Ordering::Relaxed) {
            return Ok(Outcome::Native(found));
        }
        self.meter.add_samples(filled.iter().map(|one| one.read as u64).sum());
        rows.settle_filled(found, &filled, reading.windows)?;
        Ok(Outcome::Rows(rows))
    }
}

/// Series of one batch: so many that a hand is worth its waking, and few enough that the last one is a small part of all.
fn batch(series: usize, steps: usize) -> usize {
    let (most, least) = BATCH_SERIES;
    (BATCH_VALUES / steps.max(1)).min(most).min(series / 16).max(least)
}

/// About how long it takes where decoded blocks are kept, twice that where not. A scrape each 15 s is usual; what was never
/// scraped so long costs less.
pub(super) fn cost_ns(series: usize, reading: Reading, steps: usize) -> u64 {
    let each = 400 + usual_samples(reading.range) + (steps as u64).saturating_mul(reading.step_ns);
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

/// What one thread computes in.
struct Bench<'w> {
    reader: Reader<'w>,
    scratch: Scratch,
    read: ReadColumns,
    histograms: HistogramColumns,
    patience: Patience,
}

impl Together for Work {
    fn help(&self, stays: &dyn Fn() -> bool) {
        if self.hands_part(stays).is_err() {
            self.stop();
        }
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        drop(self.shelf());
        self.moved.notify_all();
    }
}

impl Work {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // Whoever panicked under the lock has told everybody to stop.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a while, or until something is moved.
    fn wait<'s>(&self, mut shelf: MutexGuard<'s, Shelf>) -> MutexGuard<'s, Shelf> {
        shelf.waiting += 1;
        let (mut shelf, _) = self.moved.wait_timeout(shelf, NAP).unwrap_or_else(PoisonError::into_inner);
        shelf.waiting -= 1;
        shelf
    }

    /// Lets go of the shelf, and tells who waits.
    fn leave(&self, shelf: MutexGuard<'_, Shelf>) {
        let waiting = shelf.waiting > 0;
        drop(shelf);
        if waiting {
            self.moved.notify_all();
        }
    }

    /// Whether nothing more will come of it this way.
    fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.native.load(Ordering::Relaxed)
    }

    fn bench(&self) -> Bench<'_> {
        Bench {
            reader: self.reading.reader(&self.snapshot, self.histograms_from, self.steps),
            scratch: Scratch::within(self.scratch_bytes),
            read: ReadColumns::default(),
            histograms: HistogramColumns::default(),
            patience: Patience::default(),
        }
    }

    /// Batch after batch, in their places; then those of the hands that are not put there yet.
    fn own_part(&self, parts: &mut [Part<'_>], check: GoesOn<'_>) -> Result<(), Stopped> {
        let mut bench = self.bench();
        let count = parts.len().div_ceil(self.batch);
        let mut placed = 0;
        check()?;
        loop {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = parts.chunks_mut(self.batch).nth(next) else { break };
            bench.reader.look_ahead(batch.iter().map(|part| part.id));
            for Part { id, filled, values } in batch {
                if self.is_over() {
                    return Ok(());
                }
                **filled = self.row(*id, &mut bench, values, check)?;
            }
            placed += 1 + self.place_all(parts);
        }
        while placed < count && !self.is_over() {
            let shelf = self.shelf();
            if shelf.computed.is_empty() {
                drop(self.wait(shelf));
                check()?;
            } else {
                drop(shelf);
            }
            placed += self.place_all(parts);
        }
        Ok(())
    }

    /// Puts what hands have computed in its place; answers how many batches.
    fn place_all(&self, parts: &mut [Part<'_>]) -> usize {
        if self.ids.is_empty() {
            return 0;
        }
        let mut computed = std::mem::take(&mut self.shelf().computed);
        for Computed { batch, values, filled } in &computed {
            let places = parts.chunks_mut(self.batch).nth(*batch).unwrap_or_default();
            for ((part, row), filled) in places.iter_mut().zip(values.chunks(self.steps)).zip(filled) {
                part.values.copy_from_slice(row);
                *part.filled = *filled;
            }
        }
        let count = computed.len();
        if count > 0 {
            let mut shelf = self.shelf();
            shelf.free.append(&mut computed);
            self.leave(shelf);
        }
        count
    }

    /// Batch after batch, on the shelf.
    fn hands_part(&self, stays: &dyn Fn() -> bool) -> Result<(), Stopped> {
        let mut bench = self.bench();
        let mut check = || if self.stopped.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) };
        while stays() {
            let Some(mut computed) = self.buffer() else { break };
            computed.batch = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(ids) = self.ids.chunks(self.batch).nth(computed.batch) else { break };
            computed.values.resize(ids.len() * self.steps, 0.0);
            computed.filled.clear();
            bench.reader.look_ahead(ids.iter().copied());
            for (id, row) in ids.iter().zip(computed.values.chunks_mut(self.steps)) {
                if self.is_over() {
                    return Ok(());
                }
                computed.filled.push(self.row(*id, &mut bench, row, &mut check)?);
            }
            let mut shelf = self.shelf();
            shelf.computed.push(computed);
            self.leave(shelf);
        }
        Ok(())
    }

    /// A buffer; waits while all are on the shelf. None where there is nothing to be put in it any more.
    fn buffer(&self) -> Option<Computed> {
        let mut shelf = self.shelf();
        while !self.is_over() && self.next.load(Ordering::Relaxed) * self.batch < self.ids.len() {
            if let Some(free) = shelf.free.pop() {
                return Some(free);
            }
            shelf = self.wait(shelf);
        }
        None
    }

    /// Computes a row, whatever it held. Of a series with native histograms nothing: that ends it all.
    fn row(
        &self,
        id: SeriesId,
        Bench { reader, scratch, read, histograms, patience }: &mut Bench<'_>,
        row: &mut [f64],
        check: GoesOn<'_>,
    ) -> Result<Filled, Stopped> {
        reader.read(id, read, histograms);
        if !histograms.is_empty() {
            self.native.store(true, Ordering::Relaxed);
            return Ok(Filled::default());
        }
        let samples = read.len();
        if let Some(progress) = &self.progress {
            progress.read(samples);
        }
        if patience.is_over(samples + row.len()) {
            check()?;
        }
        let floats = floats_of(read, self.reading.windows);
        let held = floats.times.len();
        (self.fill)(scratch, floats, row, check)?;
        let present = present(row);
        let before = self.present.fetch_add(present as u64, Ordering::Relaxed);
        if before.saturating_add(present as u64) > self.present_max {
            return Err(Stopped);
        }
        Ok(Filled { read: samples, held, present })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{Access, BatchBuilder, Labels, OrgId, Sample, Steps};
    use crate::promql::syntax::{Caps, parse};
    use crate::promql::{Answer, Budget, Crew, Limits, MemoryPool, Options, Query, run};
    use crate::tsdb::Tsdb;

    const SERIES: usize = 300;
    const EXPRESSIONS: [&str; 6] = [
        "m",
        "rate(m[1m])",
        "avg_over_time(m[2m])",
        "quantile_over_time(scalar(m{id=\"7\"}) / 2e3, m[2m])",
        "sum by (g) (rate(m[1m])) / avg by (g) (m)",
        "topk(3, m * on (id) group_left (g) rate(m[1m]))",
    ];

    /// Series whose numbers and labels are in different orders, of different lengths.
    fn snapshot() -> Snapshot {
        let (store, mut batch) = (Tsdb::scaffold(), BatchBuilder::default());
        for n in 0..SERIES {
            let (id, group) = ((n * 7 % SERIES).to_string(), (n % 5).to_string());
            let labels = Labels::from_pairs([("__name__", "m"), ("g", group.as_str()), ("id", id.as_str())]);
            let sample = |at: usize| Sample {
                at: Timestamp::from_s(at as i64 * 15 + (n % 3) as i64),
                value: (n * at % 17) as f64,
            };
            batch.series(&labels, (0..10 + n % 30).map(sample));
        }
        store.append(OrgId(1), &batch.batch(), Timestamp::from_s(1_000)).expect("stored");
        store.snapshot(&Access::whole(OrgId(1)))
    }

    fn asked(
        text: &str,
        snapshot: &Snapshot,
        limits: Limits,
        budget: &Budget<'_>,
    ) -> Result<Answer, QueryError> {
        let expr = parse(text, &Caps::default()).expect("an expression").expr;
        let (first, last) = (Timestamp::from_s(0), Timestamp::from_s(700));
        let steps = Steps::new(first, last, 20_000).expect("a grid");
        let query = Query { expr, text: text.to_owned(), steps, instant: false };
        run(&query, snapshot, &Options { limits, ..Options::default() }, budget)
    }

    fn told(answer: &Result<Answer, QueryError>) -> String {
        match answer {
            // What hands hold at once is their own affair.
            Ok(answer) => format!("{:?} {:?} {}", answer.value, answer.annotations, answer.stats.samples),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_answer_is_the_same_by_any_number_of_threads() {
        let snapshot = snapshot();
        let few = Limits { samples_max: 2_000, ..Limits::default() };
        for (text, limits) in EXPRESSIONS.iter().flat_map(|text| [(*text, Limits::default()), (*text, few)]) {
            let alone = told(&asked(text, &snapshot, limits, &Budget::default()));
            for cores in [2, 3] {
                let crew = Crew::eager(cores);
                for _ in 0..5 {
                    let _question = crew.enter();
                    let budget = Budget { crew: Some(&crew), ..Budget::default() };
                    assert_eq!(told(&asked(text, &snapshot, limits, &budget)), alone, "{text} by {cores}");
                }
            }
        }
    }

    #[test]
    fn a_question_that_is_ended_ends_by_any_number_of_threads_and_holds_nothing() {
        let (snapshot, crew, pool) = (snapshot(), Crew::eager(2), MemoryPool::new(1 << 30));
        for text in EXPRESSIONS {
            let whole = told(&asked(text, &snapshot, Limits::default(), &Budget::default()));
            // It may be ended before it begins, at any moment, or come to its end before that.
            for looks in [0_u32, 1, 2, 5, 10] {
                let _question = crew.enter();
                let left = std::cell::Cell::new(looks);
                let expired = || left.replace(left.get().saturating_sub(1)) == 0;
                let lease = Arc::new(pool.lease(OrgId(1)));
                let budget = Budget {
                    crew: Some(&crew),
                    expired: Some(&expired),
                    lease: Some(lease),
                    ..Budget::default()
                };
                let ended = asked(text, &snapshot, Limits::default(), &budget);
                match ended {
                    Err(error) => assert!(matches!(error, QueryError::Timeout), "{text}: {error}"),
                    Ok(_) => assert!(looks > 2 && told(&ended) == whole, "{text} after {looks}"),
                }
            }
            assert_eq!(pool.usage().bytes, 0);
        }
    }
}
