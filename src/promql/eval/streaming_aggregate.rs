//! Aggregations that add the row of each series to its group as soon as it is computed, and discard
//! it.
//!
//! Series are divided into blocks in the order of their labels. Within a block they are computed in
//! the order in which they are stored. The thread that finishes the next block in order adds its
//! rows to their groups, and those of following blocks that are finished already. So rows are added
//! in the order of labels, for any number of threads. A thread that finds no free buffer waits
//! until the rows of a block have been added.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::model::{HistogramColumns, Matcher, Stopped, Timestamp};
use crate::promql::budget::{Charge, QueryProgress, rows_bytes};
use crate::promql::error::QueryError;
use crate::promql::plan::{AggregateNode, MatrixSource, ScalarNode, SelectorOutput, VectorNode, WindowNode};
use crate::promql::worker_pool::{POLL_INTERVAL, ParallelTask};
use crate::sync::IgnorePoison as _;
use crate::tsdb::{Grouped, GroupedSeries, ReadColumns, SeriesReader, Snapshot};

use super::Context;
use super::accumulate::{Accumulate, accumulator, extra_bytes};
use super::aggregate::is_grouping_label;
use super::common_rows::{RowBatch, RowsBySeries};
use super::hooks::CostSnapshot;
use super::kernels::{ContinueCheck, KernelScratch};
use super::parallel_rows::{
    FillRow, LOOKUP_NS, ReadPlan, SeriesCheckInterval, cost_ns, fill_row, floats_of, scratch_bytes,
};
use super::pushdown::{ElementwiseOps, PushedDown};
use super::rows::{ABSENT, Grid, LabelledRows, RowHead, is_absent, is_metadata};

/// Values in one block: the size of a core's own cache.
const BLOCK_VALUES: usize = 16_384;
/// The most series in one block.
const BLOCK_SERIES_MAX: usize = 1_024;

/// The rows of one block, with counts of each.
#[derive(Default)]
struct SeriesBlock {
    number: usize,
    values: Vec<f64>,
    read: Vec<ReadCounts>,
}

/// Counts of one series that was read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadCounts {
    samples: usize,
    held: usize,
    /// The row has a value before the elementwise operations.
    before_ops: bool,
    /// The row has a value after the elementwise operations.
    after_ops: bool,
}

/// The state of the aggregation after the rows added so far.
struct Accumulated {
    accumulator: Box<dyn Accumulate>,
    /// Groups with a value, in the order in which their first value was added.
    groups: Vec<u32>,
    seen_groups: Vec<bool>,
    /// Some row had a value before the elementwise operations.
    any_before_ops: bool,
    /// Number of rows with a value.
    rows: usize,
    samples: u64,
    /// Largest number of samples that one row was computed from.
    held: usize,
}

/// Progress of the blocks, and free buffers.
struct BlockQueue {
    /// Number of the next block that no thread has taken.
    computed: usize,
    /// Number of the next block whose rows are to be added.
    added: usize,
    free: Vec<SeriesBlock>,
    /// Threads that wait for a free buffer.
    waiting: usize,
    finished: Vec<SeriesBlock>,
    /// `None` while a thread adds rows.
    accumulated: Option<Accumulated>,
}

/// The state that all threads share.
struct AggregateTask {
    snapshot: Snapshot,
    plan: ReadPlan,
    histograms_from: Timestamp,
    fill: Arc<FillRow>,
    ops: ElementwiseOps,
    series: Vec<GroupedSeries>,
    /// Rows that the query computed before.
    reused: Option<Arc<RowsBySeries>>,
    /// Collects the computed rows if the query needs them again.
    retained: Option<Mutex<Vec<RowBatch>>>,
    steps: usize,
    /// Series in each block.
    block: usize,
    scratch_bytes: usize,
    queue: Mutex<BlockQueue>,
    /// Signalled when a buffer becomes free.
    freed: Condvar,
    progress: Option<Arc<QueryProgress>>,
    /// Set when a thread has stopped the task; there is no result then.
    stopped: AtomicBool,
    /// Set when a series with native histograms occurs; the query then uses another evaluation.
    native: AtomicBool,
}

impl ParallelTask for AggregateTask {
    fn run(&self, should_continue: &dyn Fn() -> bool) {
        if self.compute_blocks(&mut || Ok(()), should_continue).is_err() {
            self.stop();
        }
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        drop(self.lock());
        self.freed.notify_all();
    }
}

impl AggregateTask {
    /// Computes blocks while it `should_continue`. Each thread of the task runs this function.
    fn compute_blocks(
        &self,
        check: ContinueCheck<'_>,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<(), Stopped> {
        let mut check = || if self.is_stopped() { Err(Stopped) } else { check() };
        let mut reader = self.plan.reader(&self.snapshot, self.histograms_from, self.steps);
        let mut state =
            WorkerState { scratch: KernelScratch::within(self.scratch_bytes), ..WorkerState::default() };
        check()?;
        while should_continue() {
            let Some(mut block) = self.take_block(&mut check)? else { break };
            self.compute(&mut block, &mut reader, &mut state, &mut check)?;
            self.finish(block);
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, BlockQueue> {
        // A thread that panicked under the lock has stopped the task.
        self.queue.lock().ignore_poison()
    }

    /// Returns a free buffer with the number of the next block; waits while all are in use. Returns
    /// `None` if all blocks are taken.
    fn take_block(&self, check: ContinueCheck<'_>) -> Result<Option<SeriesBlock>, Stopped> {
        let mut queue = self.lock();
        loop {
            if self.is_stopped() {
                return Err(Stopped);
            }
            if queue.computed * self.block >= self.series.len() {
                return Ok(None);
            }
            if let Some(mut block) = queue.free.pop() {
                block.number = queue.computed;
                queue.computed += 1;
                return Ok(Some(block));
            }
            queue.waiting += 1;
            let (again, _) = self.freed.wait_timeout(queue, POLL_INTERVAL).ignore_poison();
            queue = again;
            queue.waiting -= 1;
            check()?;
        }
    }

    fn series_of(&self, number: usize) -> &[GroupedSeries] {
        let from = (number * self.block).min(self.series.len());
        &self.series[from..(from + self.block).min(self.series.len())]
    }

    fn compute(
        &self,
        block: &mut SeriesBlock,
        reader: &mut SeriesReader<'_>,
        state: &mut WorkerState,
        check: ContinueCheck<'_>,
    ) -> Result<(), Stopped> {
        let WorkerState { scratch, columns, histograms, order, interval } = state;
        let series = self.series_of(block.number);
        block.values.resize(series.len() * self.steps, ABSENT);
        block.read.clear();
        block.read.resize(series.len(), ReadCounts::default());
        order.clear();
        order.extend(0..series.len());
        // Series that were written together have neighbouring ids and mostly the same times.
        order.sort_unstable_by_key(|index| series[*index].id);
        if let Some(reused) = &self.reused {
            order.retain(|index| {
                let Some((read, values)) = reused.row(series[*index].id, self.steps) else { return true };
                let row = &mut block.values[index * self.steps..(index + 1) * self.steps];
                row.copy_from_slice(values);
                block.read[*index] = self.apply_ops(row, read);
                false
            });
        }
        let capacity = if self.retained.is_some() { order.len() * self.steps } else { 0 };
        let mut row_batch = RowBatch::with_capacity(capacity);
        reader.look_ahead(order.iter().map(|index| series[*index].id));
        let mut read = 0;
        for index in order.iter().copied() {
            reader.read(series[index].id, columns, histograms);
            if !histograms.is_empty() {
                self.native.store(true, Ordering::Relaxed);
                return Err(Stopped);
            }
            let samples = columns.len();
            read += samples;
            if interval.is_due(samples + self.steps) {
                check()?;
            }
            let floats = floats_of(columns, self.plan.windows);
            let held = floats.times.len();
            let row = &mut block.values[index * self.steps..(index + 1) * self.steps];
            (self.fill)(scratch, floats, row, check)?;
            let this = ReadCounts { samples, held, before_ops: has_value(row), after_ops: false };
            if self.retained.is_some() {
                row_batch.push(series[index].id, this, row);
            }
            block.read[index] = self.apply_ops(row, this);
        }
        if let Some(retained) = &self.retained {
            retained.lock().ignore_poison().push(row_batch);
        }
        if let Some(progress) = &self.progress {
            progress.read_all(series.len(), read);
        }
        Ok(())
    }

    /// Applies the elementwise operations to a row.
    fn apply_ops(&self, row: &mut [f64], read: ReadCounts) -> ReadCounts {
        self.ops.apply(row);
        ReadCounts { after_ops: read.before_ops && has_value(row), ..read }
    }

    /// Puts a computed block into the queue and adds the blocks that are next in order, unless
    /// another thread is adding.
    fn finish(&self, block: SeriesBlock) {
        let mut queue = self.lock();
        queue.finished.push(block);
        let Some(mut accumulated) = queue.accumulated.take() else { return };
        loop {
            let next = queue.added;
            let Some(at) = queue.finished.iter().position(|block| block.number == next) else { break };
            let block = queue.finished.swap_remove(at);
            drop(queue);
            self.add(&block, &mut accumulated);
            queue = self.lock();
            queue.added += 1;
            queue.free.push(block);
            if queue.waiting > 0 {
                self.freed.notify_one();
            }
        }
        queue.accumulated = Some(accumulated);
    }

    fn add(&self, block: &SeriesBlock, accumulated: &mut Accumulated) {
        let series = self.series_of(block.number).iter().zip(&block.read);
        for ((series, read), row) in series.zip(block.values.chunks(self.steps)) {
            accumulated.samples += read.samples as u64;
            accumulated.held = accumulated.held.max(read.held);
            accumulated.any_before_ops |= read.before_ops;
            if !read.after_ops {
                continue;
            }
            accumulated.rows += 1;
            if let Some(seen) = accumulated.seen_groups.get_mut(series.group as usize).filter(|seen| !**seen)
            {
                *seen = true;
                accumulated.groups.push(series.group);
            }
            accumulated.accumulator.add(series.group as usize, row);
        }
    }
}

fn has_value(row: &[f64]) -> bool {
    row.iter().any(|value| !is_absent(*value))
}

/// Buffers of one thread.
#[derive(Default)]
struct WorkerState {
    scratch: KernelScratch,
    columns: ReadColumns,
    histograms: HistogramColumns,
    order: Vec<usize>,
    interval: SeriesCheckInterval,
}

/// The series that an aggregation reads, and how.
struct RowSource<'n> {
    pushed_down: &'n PushedDown<'n>,
    matchers: &'n [Matcher],
    plan: ReadPlan,
    /// Bytes of the accumulator for each group and step, in addition to the value.
    extra_bytes: u64,
    /// The window function, if there is one.
    window: Option<&'n WindowNode>,
}

impl Context<'_> {
    /// Evaluates an aggregation over selected series without storing their rows. Returns `None` if
    /// the aggregation or its argument needs another evaluation.
    pub(super) fn try_streaming(
        &self,
        node: &AggregateNode,
        grid: Grid,
    ) -> Result<Option<LabelledRows>, QueryError> {
        if self.options.delayed_name_removal {
            return Ok(None);
        }
        let Some(extra_bytes) = extra_bytes(node.op) else { return Ok(None) };
        let pushed_down = &PushedDown::of(&node.arg);
        match pushed_down.core {
            VectorNode::Select(selector) if selector.look == SelectorOutput::Value => {
                let range = self.selected_range(selector, grid);
                let source = RowSource {
                    pushed_down,
                    matchers: &selector.matchers,
                    plan: ReadPlan { range, windows: false, step_ns: LOOKUP_NS },
                    extra_bytes,
                    window: None,
                };
                let (when, lookback) = (selector.when, self.options.lookback_ms);
                let edges = move |at_ms: i64| (when.look(at_ms).saturating_sub(lookback), when.look(at_ms));
                let fill = fill_row(move |scratch, samples, row, _| {
                    scratch.newest(grid, samples, edges, |_, value| value, row);
                    Ok(())
                });
                self.stream_source(node, grid, &source, fill)
            }
            VectorNode::Window(window) => {
                let MatrixSource::Select(matchers) = &window.arg.source else { return Ok(None) };
                let numbers = window.params.iter().all(|param| matches!(param, ScalarNode::Number(_)));
                if !numbers {
                    return Ok(None);
                }
                let params = self.params(&window.params, grid)?;
                let columns: Vec<&[f64]> = params.iter().map(|param| &param.values[..]).collect();
                if !self.needs_only_samples(window, &columns, grid) {
                    return Ok(None);
                }
                let (kernel, _held) = self.kernel(window, &columns, grid)?;
                let range = self.window_range(&window.arg, grid);
                let plan = ReadPlan { range, windows: true, step_ns: kernel.step_ns() };
                let source = RowSource { pushed_down, matchers, plan, extra_bytes, window: Some(window) };
                self.stream_source(node, grid, &source, kernel.into_fill())
            }
            _ => Ok(None),
        }
    }

    fn stream_source(
        &self,
        node: &AggregateNode,
        grid: Grid,
        source: &RowSource<'_>,
        fill: Arc<FillRow>,
    ) -> Result<Option<LabelledRows>, QueryError> {
        let before = self.hooks.observer.map(|_| CostSnapshot::take(&self.meter));
        let drops_names =
            source.pushed_down.drops_names || source.window.is_some_and(|window| !window.kernel.keeps_name);
        let is_dropped = |name: &str| drops_names && is_metadata(name);
        let is_key = |name: &str| is_grouping_label(name, &node.grouping) && !is_dropped(name);
        let mut grouped = self.select_paced(|paced| {
            paced.select_grouped(source.matchers, source.plan.range, &is_key, &is_dropped)
        })?;
        if grouped.differ {
            // Names are dropped, and some series are equal without them.
            return Ok(None);
        }
        let count = grouped.series.len();
        self.meter.found_series(count)?;
        let mut selected = self.meter.charge();
        selected.add_bytes(grouped.bytes())?;
        let Some((accumulated, held)) = self.stream_series(&mut grouped, grid, node, source, fill)? else {
            self.meter.revert_found_series(count);
            return Ok(None);
        };
        self.meter.add_samples(accumulated.samples);
        if let Some((observer, before)) = self.hooks.observer.zip(before) {
            // The aggregation and its argument are evaluated together; the cost is recorded at the
            // argument.
            let cost = before.cost(accumulated.rows, &self.meter);
            for node in &source.pushed_down.nodes {
                observer.node_evaluated(std::ptr::from_ref(*node).addr(), cost);
            }
        }
        if let Some(window) = source.window {
            self.meter.charge().count_transient_samples(accumulated.held)?;
            // Such functions drop the name, so all series of a group have the same one.
            if window.kernel.counts && accumulated.any_before_ops {
                self.note_unusual_counter_name(window, &grouped.name);
            }
        }
        let values = accumulated.accumulator.finish();
        let label = |group: &u32| grouped.groups.get(*group as usize);
        let heads = accumulated.groups.iter().filter_map(label);
        let heads: Vec<RowHead> =
            heads.map(|labels| RowHead { labels: labels.clone(), drops_name: false }).collect();
        // Groups are numbered in the order of their first series, which may have no value.
        let values = if (0..).zip(&accumulated.groups).all(|(index, group)| index == *group) {
            values
        } else {
            let rows = accumulated.groups.iter().map(|group| *group as usize * grid.len);
            rows.flat_map(|from| values[from..from + grid.len].iter().copied()).collect()
        };
        drop((held, selected));
        let mut rows = LabelledRows::of(&self.meter, heads, values, grid.len)?;
        rows.finish_all()?;
        Ok(Some(rows))
    }

    /// Reads the series and adds their rows. Returns `None` if some have native histograms.
    fn stream_series(
        &self,
        grouped: &mut Grouped,
        grid: Grid,
        node: &AggregateNode,
        &RowSource { pushed_down, plan, extra_bytes, .. }: &RowSource<'_>,
        fill: Arc<FillRow>,
    ) -> Result<Option<(Accumulated, Charge)>, QueryError> {
        let (series, groups, steps) = (std::mem::take(&mut grouped.series), grouped.groups.len(), grid.len);
        let cost_ns = cost_ns(series.len(), plan, steps);
        // At least eight blocks, so that the last one is a small part of all work.
        let block = (BLOCK_VALUES / steps).min(series.len() / 8).clamp(1, BLOCK_SERIES_MAX);
        let blocks = series.len().div_ceil(block);
        let scratch_bytes = scratch_bytes(series.len(), plan.range, steps);
        // Each thread has two buffers: one that it fills, and one that waits to be added.
        let rows = groups.saturating_add(2 * block);
        self.meter.reserve_rows(rows, steps, self.budget)?;
        let mut held = self.meter.charge();
        held.add_rows(rows, steps)?;
        held.add_bytes(extra_bytes.saturating_mul((groups as u64).saturating_mul(steps as u64)))?;
        held.add_bytes(scratch_bytes as u64)?;
        let (slots, _charges) = self.acquire_workers(
            cost_ns,
            blocks,
            rows_bytes(2 * block, steps).saturating_add(scratch_bytes as u64),
        );
        let Some(accumulator) = accumulator(node.op, groups, steps) else { return Ok(None) };
        let accumulated = Accumulated {
            accumulator,
            groups: Vec::new(),
            seen_groups: vec![false; groups],
            any_before_ops: false,
            rows: 0,
            samples: 0,
            held: 0,
        };
        let mut free = Vec::new();
        free.resize_with(2 * (slots.len() + 1), SeriesBlock::default);
        let queue = BlockQueue {
            computed: 0,
            added: 0,
            free,
            waiting: 0,
            finished: Vec::new(),
            accumulated: Some(accumulated),
        };
        let reused = self.common_rows(pushed_down.core, grid);
        let pending = if reused.is_none() {
            self.reserve_common_rows(pushed_down.core, series.len(), grid)
        } else {
            None
        };
        let task = Arc::new(AggregateTask {
            snapshot: self.snapshot.clone(),
            plan,
            // The first histogram of the range needs its predecessor, which a lookback before it
            // contains.
            histograms_from: plan.range.start.plus_ms(self.options.lookback_ms.saturating_neg()),
            fill,
            ops: pushed_down.ops.clone(),
            series,
            reused: reused.as_ref().map(|reused| Arc::clone(&reused.rows)),
            retained: pending.as_ref().map(|_| Mutex::default()),
            steps,
            block,
            scratch_bytes,
            queue: Mutex::new(queue),
            freed: Condvar::new(),
            progress: self.budget.progress.clone(),
            stopped: AtomicBool::new(false),
            native: AtomicBool::new(false),
        });
        self.run_parallel(&task, slots, |check| task.compute_blocks(check, &|| true))?;
        if task.native.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if task.is_stopped() {
            return self.budget.check().and(Err(QueryError::Cancelled));
        }
        if let Some((pending, row_batches)) = pending.zip(task.retained.as_ref()) {
            let row_batches = std::mem::take(&mut *row_batches.lock().ignore_poison());
            self.store_common_rows(pending, row_batches, grid);
        }
        let accumulated = task.lock().accumulated.take();
        Ok(accumulated.map(|accumulated| (accumulated, held)))
    }
}
