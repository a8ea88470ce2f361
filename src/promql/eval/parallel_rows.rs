//! Rows of many series, each computed from the samples of its own series: in batches, by all free
//! threads.
//!
//! A batch is a fixed number of neighbouring series, whichever thread computes it. The query's
//! thread writes rows into the result; a worker writes a batch into a buffer, from which the
//! query's thread copies the rows into the result. So no bit of the result depends on the number of
//! threads. Afterwards the query's thread counts samples in the order of rows. If the rows together
//! have too many values, all threads stop early, with the error that the count would report.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::model::{HistogramColumns, Stopped, TimeRange, Timestamp};
use crate::promql::budget::{OptionalCharge, QueryProgress, rows_bytes};
use crate::promql::error::QueryError;
use crate::promql::worker_pool::{POLL_INTERVAL, ParallelTask, WorkerSlot};
use crate::sync::IgnorePoison as _;
use crate::tsdb::{ReadColumns, SelectedSeries, SeriesId, SeriesReader, Snapshot, non_decreasing};

use super::Context;
use super::kernels::{
    ContinueCheck, FloatSamples, KernelScratch, SCRATCH_BYTES_MAX, STEP_BYTES, SampleTimes, any_stale,
};
use super::rows::{LabelledRows, RowCounts, present};
use super::windows::drop_stale;

/// Values in one batch, 64 KiB: half of a core's own cache.
const BATCH_VALUES: usize = 8_192;
/// The most and the fewest series in one batch.
const BATCH_SERIES: (usize, usize) = (256, 8);
/// Buffers of each worker: one for the batch that it computes, the others for batches that wait to
/// be copied.
const BUFFERS: usize = 4;

/// A function that computes one row from the samples of one series and overwrites all of its
/// values.
pub(super) type FillRow = dyn Fn(&mut KernelScratch, FloatSamples<'_>, &mut [f64], ContinueCheck<'_>) -> Result<(), Stopped>
    + Send
    + Sync;

/// Returns a row function that threads can share.
pub(super) fn fill_row(
    fill: impl Fn(&mut KernelScratch, FloatSamples<'_>, &mut [f64], ContinueCheck<'_>) -> Result<(), Stopped>
    + Send
    + Sync
    + 'static,
) -> Arc<FillRow> {
    Arc::new(fill)
}

/// Returns the samples that were read in the form from which rows are computed. If `windows` is
/// set, staleness markers are removed first.
pub(super) fn floats_of(read: &mut ReadColumns, windows: bool) -> FloatSamples<'_> {
    // A non-decreasing sequence contains no marker, because a marker is NaN.
    let non_decreasing = windows && (read.is_known_to_rise() || non_decreasing(read.values()));
    if windows && !non_decreasing && any_stale(read.values()) {
        drop_stale(read.change());
    }
    let times = read.shared_times().map_or_else(|| SampleTimes::Own(read.times()), SampleTimes::Shared);
    FloatSamples { times, values: read.values(), non_decreasing }
}

/// The way in which the samples of each series are read.
#[derive(Clone, Copy)]
pub(super) struct ReadPlan {
    pub(super) range: TimeRange,
    /// The samples are used in windows: staleness markers are removed, and the samples count as
    /// held while a row is computed.
    pub(super) windows: bool,
    /// Estimated nanoseconds of one step, without reading samples.
    pub(super) step_ns: u64,
}

/// [`ReadPlan::step_ns`] of a step that looks up one or two samples.
pub(super) const LOOKUP_NS: u64 = 2;

impl ReadPlan {
    /// Returns a reader for a grid of `steps` steps.
    pub(super) fn reader(
        self,
        snapshot: &Snapshot,
        histograms_from: Timestamp,
        steps: usize,
    ) -> SeriesReader<'_> {
        let reader = snapshot.reader(self.range, histograms_from);
        // One step needs only the newest sample of the range.
        if steps == 1 && !self.windows { reader.newest_only() } else { reader }
    }
}

/// The result of [`Context::compute_rows`].
pub(super) enum RowsOrSeries {
    Rows(LabelledRows),
    /// Some of the series have native histograms and need another evaluation. The series are
    /// counted already.
    Native(Vec<SelectedSeries>),
}

/// A series and its output row.
struct RowTarget<'w> {
    id: SeriesId,
    counts: &'w mut RowCounts,
    values: &'w mut [f64],
}

/// The rows of one batch that a worker has computed.
#[derive(Default)]
struct FinishedBatch {
    batch: usize,
    values: Vec<f64>,
    counts: Vec<RowCounts>,
}

/// Finished batches, and free buffers.
#[derive(Default)]
struct BatchQueue {
    finished: Vec<FinishedBatch>,
    free: Vec<FinishedBatch>,
    /// Threads that wait for a finished batch or for a free buffer.
    waiting: usize,
}

/// The state that all threads share.
struct RowTask {
    snapshot: Snapshot,
    plan: ReadPlan,
    histograms_from: Timestamp,
    fill: Arc<FillRow>,
    scratch_bytes: usize,
    steps: usize,
    /// Series in each batch.
    batch: usize,
    /// The series in the order of batches; empty if there are no workers.
    ids: Vec<SeriesId>,
    /// Index of the next batch that no thread has taken.
    next: AtomicUsize,
    queue: Mutex<BatchQueue>,
    /// Signalled when the queue changes.
    changed: Condvar,
    progress: Option<Arc<QueryProgress>>,
    /// Set when a thread has stopped the task; there is no result then.
    stopped: AtomicBool,
    /// Set when a series has native histograms; the query then uses another evaluation.
    native: AtomicBool,
    /// The most values in all rows together, inclusive. A step without a value does not count.
    present_max: u64,
    present: AtomicU64,
}

impl Context<'_> {
    /// Acquires workers for work that is estimated to take `cost_ns` and consists of `pieces`
    /// parts. Stops when there is no memory for the `bytes` that each worker needs.
    pub(super) fn acquire_workers(
        &self,
        cost_ns: u64,
        pieces: usize,
        bytes: u64,
    ) -> (Vec<WorkerSlot>, Vec<OptionalCharge>) {
        let mut acquired = (Vec::new(), Vec::new());
        while acquired.0.len() + 1 < pieces {
            let Some(slot) = self.budget.workers.and_then(|pool| pool.try_acquire(cost_ns)) else { break };
            let Some(charge) = self.meter.optional_charge(bytes) else { break };
            acquired.0.push(slot);
            acquired.1.push(charge);
        }
        acquired
    }

    /// Runs the query's `own` part of a task while workers run theirs. All threads have stopped
    /// when it returns.
    pub(super) fn run_parallel<T: ParallelTask>(
        &self,
        task: &Arc<T>,
        slots: Vec<WorkerSlot>,
        own: impl FnOnce(ContinueCheck<'_>) -> Result<(), Stopped>,
    ) -> Result<(), QueryError> {
        let mut refused = None;
        let mut check = || self.budget.check().map_err(|error| refused = Some(error)).map_err(|()| Stopped);
        let pool = self.budget.workers.filter(|_| !slots.is_empty());
        let workers = pool.map(|pool| pool.spawn(slots, task));
        if own(&mut check).is_err() {
            task.stop();
        }
        if let Some(workers) = workers {
            workers.join(|| check().is_ok());
        }
        refused.map_or(Ok(()), Err)
    }

    /// Computes a row of `steps` values for each series that has samples.
    pub(super) fn compute_rows(
        &self,
        series: Vec<SelectedSeries>,
        plan: ReadPlan,
        steps: usize,
        fill: Arc<FillRow>,
    ) -> Result<RowsOrSeries, QueryError> {
        self.meter.found_series(series.len())?;
        self.meter.reserve_rows(series.len(), steps, self.budget)?;
        let mut rows = LabelledRows::with_capacity(&self.meter, series.len(), steps)?;
        let scratch_bytes = scratch_bytes(series.len(), plan.range, steps);
        let mut held = self.meter.charge();
        held.add_bytes(scratch_bytes as u64)?;
        let batch = batch(series.len(), steps);
        let (batches, cost_ns) = (series.len().div_ceil(batch), cost_ns(series.len(), plan, steps));
        let worker_bytes = rows_bytes(BUFFERS * batch, steps).saturating_add(scratch_bytes as u64);
        let (slots, _charges) = self.acquire_workers(cost_ns, batches, worker_bytes);
        let each = size_of::<RowCounts>() + size_of::<RowTarget<'_>>() + size_of::<SeriesId>();
        self.meter.has_memory((series.len() as u64).saturating_mul(each as u64))?;
        let mut counts = vec![RowCounts::default(); series.len()];
        let present_max = self.meter.samples_left();
        let row_by_row = rows.absent_values(series.len()).chunks_mut(steps);
        let targets = series.iter().zip(&mut counts).zip(row_by_row);
        let mut targets: Vec<RowTarget<'_>> =
            targets.map(|((series, counts), values)| RowTarget { id: series.id, counts, values }).collect();
        // Series that were written together have neighbouring ids and mostly the same times.
        targets.sort_unstable_by_key(|target| target.id);
        let mut queue = BatchQueue::default();
        queue.free.resize_with(BUFFERS * slots.len(), FinishedBatch::default);
        let task = Arc::new(RowTask {
            snapshot: self.snapshot.clone(),
            plan,
            // The first histogram of the range needs its predecessor, which is at most a lookback
            // older.
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
        self.run_parallel(&task, slots, |check| task.own_part(&mut targets, check))?;
        if task.present.load(Ordering::Relaxed) > present_max {
            return Err(self.meter.too_many_samples());
        }
        if task.stopped.load(Ordering::Relaxed) {
            return self.budget.check().and(Err(QueryError::Cancelled));
        }
        if task.native.load(Ordering::Relaxed) {
            return Ok(RowsOrSeries::Native(series));
        }
        self.meter.add_samples(counts.iter().map(|one| one.read as u64).sum());
        rows.finish_filled(series, &counts, plan.windows)?;
        Ok(RowsOrSeries::Rows(rows))
    }
}

/// Returns the number of series in one batch: enough to be worth waking a worker, and few enough
/// that the last batch is a small part of all work.
fn batch(series: usize, steps: usize) -> usize {
    let (most, least) = BATCH_SERIES;
    (BATCH_VALUES / steps.max(1)).min(most).min(series / 16).max(least)
}

/// Returns the estimated nanoseconds of all rows with decoded blocks in the cache; without them it
/// takes about twice as long. Assumes a sample every 15 s.
pub(super) fn cost_ns(series: usize, plan: ReadPlan, steps: usize) -> u64 {
    let each = 400 + usual_samples(plan.range) + (steps as u64).saturating_mul(plan.step_ns);
    (series as u64).saturating_mul(each)
}

fn usual_samples(range: TimeRange) -> u64 {
    (range.end.ms_since(range.start).max(0).unsigned_abs() / 15_000).min(100_000)
}

/// Returns how many bytes of times and windows one thread may cache: those of all series, up to
/// [`SCRATCH_BYTES_MAX`].
pub(in crate::promql) fn scratch_bytes(series: usize, range: TimeRange, steps: usize) -> usize {
    let samples = usize::try_from(usual_samples(range)).unwrap_or(usize::MAX);
    let each = samples.saturating_mul(64).saturating_add(steps.saturating_mul(STEP_BYTES));
    series.saturating_mul(each).min(SCRATCH_BYTES_MAX)
}

/// Decides when to check deadline and cancellation between series: reading the clock costs as much
/// as reading some samples.
#[derive(Default)]
pub(super) struct SeriesCheckInterval {
    since: usize,
}

impl SeriesCheckInterval {
    /// Adds one series with `work` samples and steps. Returns whether a check is due, which is
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
    reader: SeriesReader<'w>,
    scratch: KernelScratch,
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

    /// Waits until the queue changes, for at most [`POLL_INTERVAL`].
    fn wait<'s>(&self, mut queue: MutexGuard<'s, BatchQueue>) -> MutexGuard<'s, BatchQueue> {
        queue.waiting += 1;
        let waited = self.changed.wait_timeout(queue, POLL_INTERVAL);
        let (mut queue, _) = waited.ignore_poison();
        queue.waiting -= 1;
        queue
    }

    /// Unlocks a changed queue and wakes the threads that wait for it.
    fn unlock(&self, queue: MutexGuard<'_, BatchQueue>) {
        let waiting = queue.waiting > 0;
        drop(queue);
        if waiting {
            self.changed.notify_all();
        }
    }

    /// Returns whether the rows are not needed any more.
    fn has_ended(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.native.load(Ordering::Relaxed)
    }

    fn worker_state(&self) -> WorkerState<'_> {
        WorkerState {
            reader: self.plan.reader(&self.snapshot, self.histograms_from, self.steps),
            scratch: KernelScratch::within(self.scratch_bytes),
            read: ReadColumns::default(),
            histograms: HistogramColumns::default(),
            interval: SeriesCheckInterval::default(),
        }
    }

    /// Runs on the query's thread: computes batches into the result, and copies the batches of
    /// workers.
    fn own_part(&self, targets: &mut [RowTarget<'_>], check: ContinueCheck<'_>) -> Result<(), Stopped> {
        let mut state = self.worker_state();
        let count = targets.len().div_ceil(self.batch);
        let mut complete = 0;
        check()?;
        loop {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = targets.chunks_mut(self.batch).nth(next) else { break };
            state.reader.look_ahead(batch.iter().map(|target| target.id));
            for RowTarget { id, counts, values } in batch {
                if self.has_ended() {
                    return Ok(());
                }
                **counts = self.compute_row(*id, &mut state, values, check)?;
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
    fn copy_finished(&self, targets: &mut [RowTarget<'_>]) -> usize {
        if self.ids.is_empty() {
            return 0;
        }
        let mut finished = std::mem::take(&mut self.lock().finished);
        for FinishedBatch { batch, values, counts } in &finished {
            let of_batch = targets.chunks_mut(self.batch).nth(*batch).unwrap_or_default();
            for ((target, row), counts) in of_batch.iter_mut().zip(values.chunks(self.steps)).zip(counts) {
                target.values.copy_from_slice(row);
                *target.counts = *counts;
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

    /// Runs the part of a worker: computes batches into the queue.
    fn worker_part(&self, should_continue: &dyn Fn() -> bool) -> Result<(), Stopped> {
        let mut state = self.worker_state();
        let mut check = || if self.stopped.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) };
        while should_continue() {
            let Some(mut finished) = self.free_buffer() else { break };
            finished.batch = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(ids) = self.ids.chunks(self.batch).nth(finished.batch) else { break };
            finished.values.resize(ids.len() * self.steps, 0.0);
            finished.counts.clear();
            state.reader.look_ahead(ids.iter().copied());
            for (id, row) in ids.iter().zip(finished.values.chunks_mut(self.steps)) {
                if self.has_ended() {
                    return Ok(());
                }
                finished.counts.push(self.compute_row(*id, &mut state, row, &mut check)?);
            }
            let mut queue = self.lock();
            queue.finished.push(finished);
            self.unlock(queue);
        }
        Ok(())
    }

    /// Returns a free buffer; waits while all are in use. Returns `None` if all batches are taken.
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
    /// task and leaves the row unchanged.
    fn compute_row(
        &self,
        id: SeriesId,
        state: &mut WorkerState<'_>,
        row: &mut [f64],
        check: ContinueCheck<'_>,
    ) -> Result<RowCounts, Stopped> {
        let WorkerState { reader, scratch, read, histograms, interval } = state;
        reader.read(id, read, histograms);
        if !histograms.is_empty() {
            self.native.store(true, Ordering::Relaxed);
            return Ok(RowCounts::default());
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
        Ok(RowCounts { read: samples, held, present })
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

    /// Returns series of different lengths, whose ids and labels have different orders.
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
        let query = Query { expr: expr.into(), text: text.into(), steps, instant: false };
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
    fn an_expired_query_stops_and_releases_its_memory_with_any_number_of_threads() {
        let (snapshot, workers, pool) = (snapshot(), WorkerPool::eager(2), MemoryPool::new(1 << 30));
        for text in EXPRESSIONS {
            let whole = render(&evaluate(text, &snapshot, Limits::default(), &Budget::default()));
            // The query is cancelled before it begins, in between, or after its last check.
            for checks in [0_u32, 1, 2, 5, 10] {
                let _query = workers.begin_query();
                let left = std::cell::Cell::new(checks);
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
                    Ok(_) => assert!(checks > 2 && render(&ended) == whole, "{text} after {checks}"),
                }
            }
            assert_eq!(pool.usage().bytes, 0);
        }
    }
}
