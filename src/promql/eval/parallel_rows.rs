//! Rows of many series, each computed from the samples of its own series: in batches, by as many
//! threads as are free.
//!
//! A batch is a fixed number of neighbouring series, whichever thread computes it. The query's thread
//! writes rows into the result; a worker writes a batch into a buffer, and the query's thread copies
//! its rows into the result. So no bit of the result depends on the number of threads. The query's
//! thread counts and reports afterwards, in the order of rows.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::model::{HistogramColumns, TimeRange, Timestamp};
use crate::promql::QueryError;
use crate::promql::budget::{OptionalCharge, QueryProgress, rows_bytes};
use crate::promql::worker_pool::{POLL_INTERVAL, ParallelTask, WorkerSlot};
use crate::sync::IgnorePoison as _;
use crate::tsdb::{ReadColumns, Reader, SelectedSeries, SeriesId, Snapshot, rises};

use super::Context;
use super::kernels::{Floats, GoesOn, SCRATCH_BYTES_MAX, STEP_BYTES, Scratch, Stopped, TimesOf, any_stale};
use super::rows::{Filled, Rows, present};
use super::windows::drop_stale;

/// Values of one batch: half of what fits a core's own cache.
const BATCH_VALUES: usize = 8_192;
/// The most and the fewest series of one batch.
const BATCH_SERIES: (usize, usize) = (256, 8);
/// Buffers of each worker: for the batch it computes and for those that wait to be copied.
const BUFFERS: usize = 4;

/// Computes one row from the samples of one series, and overwrites all of its values.
pub(super) type FillRow =
    dyn Fn(&mut Scratch, Floats<'_>, &mut [f64], GoesOn<'_>) -> Result<(), Stopped> + Send + Sync;

/// Makes a row function that threads can share.
pub(super) fn fill_row(
    fill: impl Fn(&mut Scratch, Floats<'_>, &mut [f64], GoesOn<'_>) -> Result<(), Stopped> + Send + Sync + 'static,
) -> Arc<FillRow> {
    Arc::new(fill)
}

/// The read samples in the form from which rows are computed. Windows contain no staleness markers.
pub(super) fn floats_of(read: &mut ReadColumns, windows: bool) -> Floats<'_> {
    // A rising sequence contains no marker, because a marker is NaN.
    let rises = windows && (read.is_known_to_rise() || rises(read.values()));
    if windows && !rises && any_stale(read.values()) {
        drop_stale(read.change());
    }
    let times = read.shared_times().map_or_else(|| TimesOf::Own(read.times()), TimesOf::Shared);
    Floats { times, values: read.values(), rises }
}

/// How the samples of each series are read.
#[derive(Clone, Copy)]
pub(super) struct ReadPlan {
    pub(super) range: TimeRange,
    /// The samples are those of windows: without staleness markers, and counted while they are read.
    pub(super) windows: bool,
    /// Estimated time of one step, without reading.
    pub(super) step_ns: u64,
}

/// [`ReadPlan::step_ns`] of a step that looks for one sample or two.
pub(super) const LOOK_NS: u64 = 2;

impl ReadPlan {
    /// A reader for a grid of `steps` steps.
    pub(super) fn reader(self, snapshot: &Snapshot, histograms_from: Timestamp, steps: usize) -> Reader<'_> {
        let reader = snapshot.reader(self.range, histograms_from);
        // One step needs only the newest sample of the range.
        if steps == 1 && !self.windows { reader.newest_only() } else { reader }
    }
}

/// The result of [`Context::compute_rows`].
pub(super) enum RowsOrSeries {
    Rows(Rows),
    /// Some of the series have native histograms, which need another evaluation. The series were
    /// counted already.
    Native(Vec<SelectedSeries>),
}

/// A series and the place of its row in the result.
struct Target<'w> {
    id: SeriesId,
    filled: &'w mut Filled,
    values: &'w mut [f64],
}

/// The rows of one batch, computed by a worker.
#[derive(Default)]
struct FinishedBatch {
    batch: usize,
    values: Vec<f64>,
    filled: Vec<Filled>,
}

/// Finished batches, and buffers for further ones.
#[derive(Default)]
struct BatchQueue {
    finished: Vec<FinishedBatch>,
    free: Vec<FinishedBatch>,
    /// Threads that wait for a finished batch or for a free buffer.
    waiting: usize,
}

/// What all threads share.
struct RowTask {
    snapshot: Snapshot,
    plan: ReadPlan,
    histograms_from: Timestamp,
    fill: Arc<FillRow>,
    scratch_bytes: usize,
    steps: usize,
    /// Series of each batch.
    batch: usize,
    /// The series in the order of batches; empty if there are no workers.
    ids: Vec<SeriesId>,
    /// The next batch that no thread has taken.
    next: AtomicUsize,
    queue: Mutex<BatchQueue>,
    /// Signalled when the queue changes.
    changed: Condvar,
    progress: Option<Arc<QueryProgress>>,
    /// A thread has stopped the task; there is no result.
    stopped: AtomicBool,
    /// A series has native histograms; the query continues with another evaluation.
    native: AtomicBool,
    /// Values that rows may still hold, inclusive.
    present_max: u64,
    present: AtomicU64,
}

impl Context<'_> {
    /// Acquires workers for work that is estimated to take `cost_ns` and has this many `pieces`, as
    /// long as there is memory for the `bytes` that each of them needs.
    pub(super) fn acquire_workers(
        &self,
        cost_ns: u64,
        pieces: usize,
        bytes: u64,
    ) -> (Vec<WorkerSlot>, Vec<OptionalCharge>) {
        let mut acquired = (Vec::new(), Vec::new());
        while acquired.0.len() + 1 < pieces {
            let Some(slot) = self.budget.workers.and_then(|pool| pool.try_acquire(cost_ns)) else { break };
            let Some(aside) = self.meter.optional_charge(bytes) else { break };
            acquired.0.push(slot);
            acquired.1.push(aside);
        }
        acquired
    }

    /// Runs the query's `own` part of a task while workers run theirs. All have stopped when it
    /// returns.
    pub(super) fn run_parallel<T: ParallelTask>(
        &self,
        task: &Arc<T>,
        slots: Vec<WorkerSlot>,
        own: impl FnOnce(GoesOn<'_>) -> Result<(), Stopped>,
    ) -> Result<(), QueryError> {
        let mut refused = None;
        let mut goes_on = || self.budget.check().map_err(|error| refused = Some(error)).map_err(|()| Stopped);
        let pool = self.budget.workers.filter(|_| !slots.is_empty());
        let workers = pool.map(|pool| pool.spawn(slots, task));
        if own(&mut goes_on).is_err() {
            task.stop();
        }
        if let Some(workers) = workers {
            workers.join(|| goes_on().is_ok());
        }
        refused.map_or(Ok(()), Err)
    }

    /// Computes a row of `steps` values for each series that has samples.
    pub(super) fn compute_rows(
        &self,
        found: Vec<SelectedSeries>,
        plan: ReadPlan,
        steps: usize,
        fill: Arc<FillRow>,
    ) -> Result<RowsOrSeries, QueryError> {
        self.meter.found_series(found.len())?;
        self.meter.reserve_rows(found.len(), steps, self.budget)?;
        let mut rows = Rows::with_room(&self.meter, found.len(), steps)?;
        let scratch_bytes = scratch_bytes(found.len(), plan.range, steps);
        let mut held = self.meter.charge();
        held.add_bytes(scratch_bytes as u64)?;
        let batch = batch(found.len(), steps);
        let (batches, cost_ns) = (found.len().div_ceil(batch), cost_ns(found.len(), plan, steps));
        let worker_bytes = rows_bytes(BUFFERS * batch, steps).saturating_add(scratch_bytes as u64);
        let (slots, _asides) = self.acquire_workers(cost_ns, batches, worker_bytes);
        let each = size_of::<Filled>() + size_of::<Target<'_>>() + size_of::<SeriesId>();
        self.meter.has_memory((found.len() as u64).saturating_mul(each as u64))?;
        let mut filled = vec![Filled::default(); found.len()];
        let present_max = self.meter.samples_left();
        let row_by_row = rows.all_absent(found.len()).chunks_mut(steps);
        let targets = found.iter().zip(&mut filled).zip(row_by_row);
        let mut targets: Vec<Target<'_>> =
            targets.map(|((series, filled), values)| Target { id: series.id, filled, values }).collect();
        // Series that were written together have neighbouring ids and mostly the same times.
        targets.sort_unstable_by_key(|target| target.id);
        let mut queue = BatchQueue::default();
        queue.free.resize_with(BUFFERS * slots.len(), FinishedBatch::default);
        let task = Arc::new(RowTask {
            snapshot: self.snapshot.clone(),
            plan,
            // The first histogram of the range needs its predecessor, which a lookback before it contains.
            histograms_from: plan.range.start.plus_ms(self.options.lookback_ms.saturating_neg()),
            fill,
            scratch_bytes,
            steps,
            batch,
            ids: if slots.is_empty() { Vec::new() } else { targets.iter().map(|target| target.id).collect() },
            next: AtomicUsize::new(0),
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            progress: self.budget.progress.clone(),
            stopped: AtomicBool::new(false),
            native: AtomicBool::new(false),
            present_max,
            present: AtomicU64::new(0),
        });
        self.run_parallel(&task, slots, |goes_on| task.own_part(&mut targets, goes_on))?;
        if task.present.load(Ordering::Relaxed) > present_max {
            return Err(self.meter.too_many_samples());
        }
        if task.stopped.load(Ordering::Relaxed) {
            return self.budget.check().and(Err(QueryError::Cancelled));
        }
        if task.native.load(Ordering::Relaxed) {
            return Ok(RowsOrSeries::Native(found));
        }
        self.meter.add_samples(filled.iter().map(|one| one.read as u64).sum());
        rows.settle_filled(found, &filled, plan.windows)?;
        Ok(RowsOrSeries::Rows(rows))
    }
}

/// Series of one batch: enough to be worth waking a worker, and few enough that the last batch is a
/// small part of all work.
fn batch(series: usize, steps: usize) -> usize {
    let (most, least) = BATCH_SERIES;
    (BATCH_VALUES / steps.max(1)).min(most).min(series / 16).max(least)
}

/// Estimated time with decoded blocks in the cache; without them it takes about twice as long. Assumes
/// a sample each 15 s.
pub(super) fn cost_ns(series: usize, plan: ReadPlan, steps: usize) -> u64 {
    let each = 400 + usual_samples(plan.range) + (steps as u64).saturating_mul(plan.step_ns);
    (series as u64).saturating_mul(each)
}

fn usual_samples(range: TimeRange) -> u64 {
    (range.end.ms_since(range.start).max(0).unsigned_abs() / 15_000).min(100_000)
}

/// Bytes of lists of times that one thread may keep beside the current one: those of all series, up to
/// [`SCRATCH_BYTES_MAX`].
pub(in crate::promql) fn scratch_bytes(series: usize, range: TimeRange, steps: usize) -> usize {
    let samples = usize::try_from(usual_samples(range)).unwrap_or(usize::MAX);
    let each = samples.saturating_mul(64).saturating_add(steps.saturating_mul(STEP_BYTES));
    series.saturating_mul(each).min(SCRATCH_BYTES_MAX)
}

/// Decides when to check deadline and cancellation: reading the clock costs as much as reading some
/// samples.
#[derive(Default)]
pub(super) struct SeriesCheckInterval {
    since: usize,
}

impl SeriesCheckInterval {
    /// Adds one series with this many samples and steps. Returns whether a check is due, which is
    /// every few microseconds.
    pub(super) fn is_due(&mut self, work: usize) -> bool {
        self.since += 256 + work;
        let is_due = self.since >= 2_048;
        if is_due {
            self.since = 0;
        }
        is_due
    }
}

/// Buffers of one thread.
struct WorkerState<'w> {
    reader: Reader<'w>,
    scratch: Scratch,
    read: ReadColumns,
    histograms: HistogramColumns,
    interval: SeriesCheckInterval,
}

impl ParallelTask for RowTask {
    fn run(&self, should_continue: &dyn Fn() -> bool) {
        if self.worker_part(should_continue).is_err() {
            self.stop();
        }
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        drop(self.lock());
        self.changed.notify_all();
    }
}

impl RowTask {
    fn lock(&self) -> MutexGuard<'_, BatchQueue> {
        // A thread that panicked under the lock has stopped the task.
        self.queue.lock().ignore_poison()
    }

    /// Waits until the queue changes, for [`POLL_INTERVAL`] at most.
    fn wait<'s>(&self, mut queue: MutexGuard<'s, BatchQueue>) -> MutexGuard<'s, BatchQueue> {
        queue.waiting += 1;
        let waited = self.changed.wait_timeout(queue, POLL_INTERVAL);
        let (mut queue, _) = waited.ignore_poison();
        queue.waiting -= 1;
        queue
    }

    /// Unlocks a queue that was changed, and wakes the threads that wait for it.
    fn unlock(&self, queue: MutexGuard<'_, BatchQueue>) {
        let waiting = queue.waiting > 0;
        drop(queue);
        if waiting {
            self.changed.notify_all();
        }
    }

    /// Whether the rows are not needed any more.
    fn has_ended(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.native.load(Ordering::Relaxed)
    }

    fn worker_state(&self) -> WorkerState<'_> {
        WorkerState {
            reader: self.plan.reader(&self.snapshot, self.histograms_from, self.steps),
            scratch: Scratch::within(self.scratch_bytes),
            read: ReadColumns::default(),
            histograms: HistogramColumns::default(),
            interval: SeriesCheckInterval::default(),
        }
    }

    /// The part of the query's thread: computes batches into the result, and copies those of workers.
    fn own_part(&self, targets: &mut [Target<'_>], check: GoesOn<'_>) -> Result<(), Stopped> {
        let mut state = self.worker_state();
        let count = targets.len().div_ceil(self.batch);
        let mut complete = 0;
        check()?;
        loop {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = targets.chunks_mut(self.batch).nth(next) else { break };
            state.reader.look_ahead(batch.iter().map(|target| target.id));
            for Target { id, filled, values } in batch {
                if self.has_ended() {
                    return Ok(());
                }
                **filled = self.compute_row(*id, &mut state, values, check)?;
            }
            complete += 1 + self.copy_finished(targets);
        }
        while complete < count && !self.has_ended() {
            let queue = self.lock();
            if queue.finished.is_empty() {
                drop(self.wait(queue));
                check()?;
            } else {
                drop(queue);
            }
            complete += self.copy_finished(targets);
        }
        Ok(())
    }

    /// Copies the finished batches of workers into the result. Returns their number.
    fn copy_finished(&self, targets: &mut [Target<'_>]) -> usize {
        if self.ids.is_empty() {
            return 0;
        }
        let mut finished = std::mem::take(&mut self.lock().finished);
        for FinishedBatch { batch, values, filled } in &finished {
            let of_batch = targets.chunks_mut(self.batch).nth(*batch).unwrap_or_default();
            for ((target, row), filled) in of_batch.iter_mut().zip(values.chunks(self.steps)).zip(filled) {
                target.values.copy_from_slice(row);
                *target.filled = *filled;
            }
        }
        let count = finished.len();
        if count > 0 {
            let mut queue = self.lock();
            queue.free.append(&mut finished);
            self.unlock(queue);
        }
        count
    }

    /// The part of a worker: computes batches into the queue.
    fn worker_part(&self, should_continue: &dyn Fn() -> bool) -> Result<(), Stopped> {
        let mut state = self.worker_state();
        let mut check = || if self.stopped.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) };
        while should_continue() {
            let Some(mut finished) = self.free_buffer() else { break };
            finished.batch = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(ids) = self.ids.chunks(self.batch).nth(finished.batch) else { break };
            finished.values.resize(ids.len() * self.steps, 0.0);
            finished.filled.clear();
            state.reader.look_ahead(ids.iter().copied());
            for (id, row) in ids.iter().zip(finished.values.chunks_mut(self.steps)) {
                if self.has_ended() {
                    return Ok(());
                }
                finished.filled.push(self.compute_row(*id, &mut state, row, &mut check)?);
            }
            let mut queue = self.lock();
            queue.finished.push(finished);
            self.unlock(queue);
        }
        Ok(())
    }

    /// A free buffer; waits while all are in use. `None` if all batches are taken.
    fn free_buffer(&self) -> Option<FinishedBatch> {
        let mut queue = self.lock();
        while !self.has_ended() && self.next.load(Ordering::Relaxed) * self.batch < self.ids.len() {
            if let Some(free) = queue.free.pop() {
                return Some(free);
            }
            queue = self.wait(queue);
        }
        None
    }

    /// Computes one row and overwrites all of its values. A series with native histograms ends the
    /// task and leaves the row as it is.
    fn compute_row(
        &self,
        id: SeriesId,
        state: &mut WorkerState<'_>,
        row: &mut [f64],
        check: GoesOn<'_>,
    ) -> Result<Filled, Stopped> {
        let WorkerState { reader, scratch, read, histograms, interval } = state;
        reader.read(id, read, histograms);
        if !histograms.is_empty() {
            self.native.store(true, Ordering::Relaxed);
            return Ok(Filled::default());
        }
        let samples = read.len();
        if let Some(progress) = &self.progress {
            progress.read(samples);
        }
        if interval.is_due(samples + row.len()) {
            check()?;
        }
        let floats = floats_of(read, self.plan.windows);
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
    use crate::promql::{Budget, Limits, MemoryPool, Options, Query, QueryResult, WorkerPool, run};
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

    /// Series of different lengths, whose ids and labels are in different orders.
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

    fn evaluate(
        text: &str,
        snapshot: &Snapshot,
        limits: Limits,
        budget: &Budget<'_>,
    ) -> Result<QueryResult, QueryError> {
        let expr = parse(text, &Caps::default()).expect("an expression").expr;
        let (first, last) = (Timestamp::from_s(0), Timestamp::from_s(700));
        let steps = Steps::new(first, last, 20_000).expect("a grid");
        let query = Query { expr, text: text.to_owned(), steps, instant: false };
        run(&query, snapshot, &Options { limits, ..Options::default() }, budget)
    }

    fn render(answer: &Result<QueryResult, QueryError>) -> String {
        match answer {
            // The peak of held samples depends on the number of threads.
            Ok(answer) => format!("{:?} {:?} {}", answer.value, answer.annotations, answer.stats.samples),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_result_does_not_depend_on_the_number_of_threads() {
        let snapshot = snapshot();
        let few = Limits { samples_max: 2_000, ..Limits::default() };
        for (text, limits) in EXPRESSIONS.iter().flat_map(|text| [(*text, Limits::default()), (*text, few)]) {
            let alone = render(&evaluate(text, &snapshot, limits, &Budget::default()));
            for cores in [2, 3] {
                let workers = WorkerPool::eager(cores);
                for _ in 0..5 {
                    let _query = workers.begin_query();
                    let budget = Budget { workers: Some(&workers), ..Budget::default() };
                    assert_eq!(
                        render(&evaluate(text, &snapshot, limits, &budget)),
                        alone,
                        "{text} by {cores}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_query_that_is_ended_ends_with_any_number_of_threads_and_holds_nothing() {
        let (snapshot, workers, pool) = (snapshot(), WorkerPool::eager(2), MemoryPool::new(1 << 30));
        for text in EXPRESSIONS {
            let whole = render(&evaluate(text, &snapshot, Limits::default(), &Budget::default()));
            // The query is ended before it begins, in between, or after its last check.
            for looks in [0_u32, 1, 2, 5, 10] {
                let _query = workers.begin_query();
                let left = std::cell::Cell::new(looks);
                let expired = || left.replace(left.get().saturating_sub(1)) == 0;
                let lease = Arc::new(pool.lease(OrgId(1)));
                let budget = Budget {
                    workers: Some(&workers),
                    expired: Some(&expired),
                    lease: Some(lease),
                    ..Budget::default()
                };
                let ended = evaluate(text, &snapshot, Limits::default(), &budget);
                match ended {
                    Err(error) => assert!(matches!(error, QueryError::Timeout), "{text}: {error}"),
                    Ok(_) => assert!(looks > 2 && render(&ended) == whole, "{text} after {looks}"),
                }
            }
            assert_eq!(pool.usage().bytes, 0);
        }
    }
}
