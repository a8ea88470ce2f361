//! Aggregations that add the row of each series to its group as soon as it is computed, and do not
//! keep it.
//!
//! Series are computed in blocks, in the order of their labels; inside a block in the order in which
//! they are stored. The thread that finishes the next block in order adds its rows to their groups,
//! and those of the following blocks that are finished already. So rows are added in the order of
//! labels, whatever the number of threads. A thread that finds no free buffer waits until the rows of
//! a block were added.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::model::{HistogramColumns, Matcher, Timestamp};
use crate::promql::QueryError;
use crate::promql::budget::{Charge, QueryProgress, rows_bytes};
use crate::promql::plan::{AggregateNode, MatrixSource, ScalarNode, SelectorOutput, VectorNode, WindowNode};
use crate::promql::worker_pool::{POLL_INTERVAL, ParallelTask};
use crate::sync::IgnorePoison as _;
use crate::tsdb::{Grouped, GroupedSeries, ReadColumns, Reader, Snapshot};

use super::Context;
use super::accumulate::{Accumulate, accumulator, extra_bytes};
use super::aggregate::tells_apart;
use super::kept::{KeptRows, Part};
use super::kernels::{GoesOn, Scratch, Stopped};
use super::parallel_rows::{
    FillRow, LOOK_NS, ReadPlan, SeriesCheckInterval, cost_ns, fill_row, floats_of, scratch_bytes,
};
use super::peel::{Peeled, Peels};
use super::rows::{ABSENT, Grid, Head, Rows, is_absent, is_metadata};

/// Values of one block: what fits a core's own cache.
const BLOCK_VALUES: usize = 16_384;
/// The most series of one block.
const BLOCK_SERIES_MAX: usize = 1_024;

/// The rows of one block, and what was read for each.
#[derive(Default)]
struct Block {
    number: usize,
    values: Vec<f64>,
    read: Vec<Read>,
}

/// What was read for one series.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Read {
    samples: usize,
    held: usize,
    /// The row has a value before the elementwise operations.
    found: bool,
    /// The row has a value after them.
    any: bool,
}

/// The state of the aggregation after the rows that were added.
struct Accumulated {
    accumulator: Box<dyn Accumulate>,
    /// Groups with a value, in the order of their first value.
    groups: Vec<u32>,
    has_any: Vec<bool>,
    /// Some row had a value before the elementwise operations.
    found_any: bool,
    /// Rows with a value.
    rows: usize,
    samples: u64,
    /// The most samples held for one series.
    held: usize,
}

/// The blocks: those to be computed, those to be added, and free buffers.
struct BlockQueue {
    /// The next block that no thread has taken.
    computed: usize,
    /// The next block whose rows are to be added.
    added: usize,
    free: Vec<Block>,
    /// Threads that wait for a free buffer.
    waiting: usize,
    finished: Vec<Block>,
    /// `None` while a thread adds rows.
    accumulated: Option<Accumulated>,
}

/// What all threads share.
struct AggregateTask {
    snapshot: Snapshot,
    plan: ReadPlan,
    histograms_from: Timestamp,
    fill: Arc<FillRow>,
    peels: Peels,
    series: Vec<GroupedSeries>,
    /// Rows that the query computed before.
    kept: Option<Arc<KeptRows>>,
    /// Where rows are kept that the query needs again.
    keep: Option<Mutex<Vec<Part>>>,
    steps: usize,
    /// Series of each block.
    block: usize,
    scratch_bytes: usize,
    queue: Mutex<BlockQueue>,
    /// Signalled when a buffer becomes free.
    freed: Condvar,
    progress: Option<Arc<QueryProgress>>,
    /// A thread has stopped the task; there is no result.
    stopped: AtomicBool,
    /// A series has native histograms; the query continues with another evaluation.
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
    /// Computes block after block while it `should_continue`; the part of one thread.
    fn compute_blocks(&self, goes_on: GoesOn<'_>, should_continue: &dyn Fn() -> bool) -> Result<(), Stopped> {
        let mut check = || if self.is_stopped() { Err(Stopped) } else { goes_on() };
        let mut reader = self.plan.reader(&self.snapshot, self.histograms_from, self.steps);
        let mut state =
            WorkerState { scratch: Scratch::within(self.scratch_bytes), ..WorkerState::default() };
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

    /// A free buffer with the number of the next block; waits while all are in use. `None` if all
    /// blocks are taken.
    fn take_block(&self, check: GoesOn<'_>) -> Result<Option<Block>, Stopped> {
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
        block: &mut Block,
        reader: &mut Reader<'_>,
        state: &mut WorkerState,
        check: GoesOn<'_>,
    ) -> Result<(), Stopped> {
        let WorkerState { scratch, columns, histograms, order, interval } = state;
        let series = self.series_of(block.number);
        block.values.resize(series.len() * self.steps, ABSENT);
        block.read.clear();
        block.read.resize(series.len(), Read::default());
        order.clear();
        order.extend(0..series.len());
        // Series that were written together have neighbouring ids and mostly the same times.
        order.sort_unstable_by_key(|place| series[*place].id);
        if let Some(kept) = &self.kept {
            order.retain(|place| {
                let Some((read, values)) = kept.row(series[*place].id, self.steps) else { return true };
                let row = &mut block.values[place * self.steps..(place + 1) * self.steps];
                row.copy_from_slice(values);
                block.read[*place] = self.apply_peels(row, read);
                false
            });
        }
        let room = if self.keep.is_some() { order.len() * self.steps } else { 0 };
        let mut part = Part::with_room(room);
        reader.look_ahead(order.iter().map(|place| series[*place].id));
        let mut read = 0;
        for place in order.iter().copied() {
            reader.read(series[place].id, columns, histograms);
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
            let row = &mut block.values[place * self.steps..(place + 1) * self.steps];
            (self.fill)(scratch, floats, row, check)?;
            let this = Read { samples, held, found: any(row), any: false };
            if self.keep.is_some() {
                part.push(series[place].id, this, row);
            }
            block.read[place] = self.apply_peels(row, this);
        }
        if let Some(keep) = &self.keep {
            keep.lock().ignore_poison().push(part);
        }
        if let Some(progress) = &self.progress {
            progress.read_all(series.len(), read);
        }
        Ok(())
    }

    /// Applies the elementwise operations to a row.
    fn apply_peels(&self, row: &mut [f64], read: Read) -> Read {
        self.peels.apply(row);
        Read { any: read.found && any(row), ..read }
    }

    /// Puts a computed block into the queue, and adds the blocks whose turn it is, unless another
    /// thread does.
    fn finish(&self, block: Block) {
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

    fn add(&self, block: &Block, accumulated: &mut Accumulated) {
        let series = self.series_of(block.number).iter().zip(&block.read);
        for ((series, read), row) in series.zip(block.values.chunks(self.steps)) {
            accumulated.samples += read.samples as u64;
            accumulated.held = accumulated.held.max(read.held);
            accumulated.found_any |= read.found;
            if !read.any {
                continue;
            }
            accumulated.rows += 1;
            if let Some(seen) = accumulated.has_any.get_mut(series.group as usize).filter(|seen| !**seen) {
                *seen = true;
                accumulated.groups.push(series.group);
            }
            accumulated.accumulator.add(series.group as usize, row);
        }
    }
}

fn any(row: &[f64]) -> bool {
    row.iter().any(|value| !is_absent(*value))
}

/// Buffers of one thread.
#[derive(Default)]
struct WorkerState {
    scratch: Scratch,
    columns: ReadColumns,
    histograms: HistogramColumns,
    order: Vec<usize>,
    interval: SeriesCheckInterval,
}

/// What an aggregation reads, and how.
struct Source<'n> {
    peeled: &'n Peeled<'n>,
    matchers: &'n [Matcher],
    plan: ReadPlan,
    /// The window function, if there is one.
    window: Option<&'n WindowNode>,
}

impl Context<'_> {
    /// Evaluates an aggregation over selected series without keeping their rows. `None` if the
    /// aggregation or its argument needs another evaluation.
    pub(super) fn try_streaming(&self, node: &AggregateNode, grid: Grid) -> Result<Option<Rows>, QueryError> {
        if self.options.delayed_name_removal {
            return Ok(None);
        }
        let Some(extra_bytes) = extra_bytes(node.op) else { return Ok(None) };
        let peeled = &Peeled::of(&node.arg);
        match peeled.core {
            VectorNode::Select(selector) if selector.look == SelectorOutput::Value => {
                let range = self.selected_range(selector, grid);
                let source = Source {
                    peeled,
                    matchers: &selector.matchers,
                    plan: ReadPlan { range, windows: false, step_ns: LOOK_NS },
                    window: None,
                };
                let (when, lookback) = (selector.when, self.options.lookback_ms);
                let edges = move |at_ms: i64| (when.look(at_ms).saturating_sub(lookback), when.look(at_ms));
                let fill = fill_row(move |scratch, samples, row, _| {
                    scratch.newest(grid, samples, edges, |_, value| value, row);
                    Ok(())
                });
                self.stream_source(node, grid, &source, extra_bytes, fill)
            }
            VectorNode::Window(window) => {
                let MatrixSource::Select(matchers) = &window.arg.source else { return Ok(None) };
                let numbers = window.params.iter().all(|param| matches!(param, ScalarNode::Number(_)));
                if !numbers {
                    return Ok(None);
                }
                let params = self.params(&window.params, grid)?;
                let columns: Vec<&[f64]> = params.iter().map(|param| &param.values[..]).collect();
                if !self.is_plain(window, &columns, grid) {
                    return Ok(None);
                }
                let (whole, _held) = self.kernel(window, &columns, grid)?;
                let range = self.window_range(&window.arg, grid);
                let plan = ReadPlan { range, windows: true, step_ns: whole.step_ns() };
                let source = Source { peeled, matchers, plan, window: Some(window) };
                self.stream_source(node, grid, &source, extra_bytes, whole.into_fill())
            }
            _ => Ok(None),
        }
    }

    fn stream_source(
        &self,
        node: &AggregateNode,
        grid: Grid,
        source: &Source<'_>,
        extra_bytes: u64,
        fill: Arc<FillRow>,
    ) -> Result<Option<Rows>, QueryError> {
        let before = self.trace.map(|trace| trace.enter(&self.meter));
        let names_go =
            source.peeled.takes_names || source.window.is_some_and(|window| !window.kernel.keeps_name);
        let goes = |name: &str| names_go && is_metadata(name);
        let apart = |name: &str| tells_apart(name, &node.grouping) && !goes(name);
        let mut grouped =
            self.find(|paced| paced.select_grouped(source.matchers, source.plan.range, &apart, &goes))?;
        if grouped.differ {
            // Names are dropped, and series may be equal without them.
            return Ok(None);
        }
        let found = grouped.series.len();
        self.meter.found_series(found)?;
        let mut selected = self.meter.charge();
        selected.add_bytes(grouped.bytes())?;
        let Some((accumulated, held)) =
            self.stream_series(&mut grouped, grid, (node, extra_bytes), source, fill)?
        else {
            self.meter.revert_found_series(found);
            return Ok(None);
        };
        self.meter.add_samples(accumulated.samples);
        if let Some((trace, before)) = self.trace.zip(before) {
            // The aggregation and its argument are evaluated together; the trace shows it for the argument.
            for node in &source.peeled.nodes {
                trace.leave(std::ptr::from_ref(*node).addr(), before, accumulated.rows, &self.meter);
            }
        }
        if let Some(window) = source.window {
            self.meter.charge().count_transient_samples(accumulated.held)?;
            // Such functions drop the name, so all series of a group have the same one.
            if window.kernel.counts && accumulated.found_any {
                self.doubt_counter(window, &grouped.name);
            }
        }
        let values = accumulated.accumulator.finish();
        let label = |group: &u32| grouped.groups.get(*group as usize);
        let heads = accumulated.groups.iter().filter_map(label);
        let heads: Vec<Head> =
            heads.map(|labels| Head { labels: labels.clone(), drops_name: false }).collect();
        // Groups are numbered in the order of their first series, which may have no value.
        let values = if (0..).zip(&accumulated.groups).all(|(place, group)| place == *group) {
            values
        } else {
            let rows = accumulated.groups.iter().map(|group| *group as usize * grid.len);
            rows.flat_map(|from| values[from..from + grid.len].iter().copied()).collect()
        };
        drop((held, selected));
        let mut rows = Rows::of(&self.meter, heads, values, grid.len)?;
        rows.settle_all()?;
        Ok(Some(rows))
    }

    /// Reads the series and adds their rows. `None` if some have native histograms.
    fn stream_series(
        &self,
        grouped: &mut Grouped,
        grid: Grid,
        (node, extra_bytes): (&AggregateNode, u64),
        &Source { peeled, plan, .. }: &Source<'_>,
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
        let (slots, _asides) = self.acquire_workers(
            cost_ns,
            blocks,
            rows_bytes(2 * block, steps).saturating_add(scratch_bytes as u64),
        );
        let Some(accumulator) = accumulator(node.op, groups, steps) else { return Ok(None) };
        let accumulated = Accumulated {
            accumulator,
            groups: Vec::new(),
            has_any: vec![false; groups],
            found_any: false,
            rows: 0,
            samples: 0,
            held: 0,
        };
        let mut free = Vec::new();
        free.resize_with(2 * (slots.len() + 1), Block::default);
        let queue = BlockQueue {
            computed: 0,
            added: 0,
            free,
            waiting: 0,
            finished: Vec::new(),
            accumulated: Some(accumulated),
        };
        let kept = self.kept(peeled.core, grid);
        let keeping = if kept.is_none() { self.keeping(peeled.core, series.len(), grid) } else { None };
        let task = Arc::new(AggregateTask {
            snapshot: self.snapshot.clone(),
            plan,
            // The first histogram of the range needs its predecessor, which a lookback before it contains.
            histograms_from: plan.range.start.plus_ms(self.options.lookback_ms.saturating_neg()),
            fill,
            peels: peeled.peels.clone(),
            series,
            kept: kept.as_ref().map(|kept| Arc::clone(&kept.rows)),
            keep: keeping.as_ref().map(|_| Mutex::default()),
            steps,
            block,
            scratch_bytes,
            queue: Mutex::new(queue),
            freed: Condvar::new(),
            progress: self.budget.progress.clone(),
            stopped: AtomicBool::new(false),
            native: AtomicBool::new(false),
        });
        self.run_parallel(&task, slots, |goes_on| task.compute_blocks(goes_on, &|| true))?;
        if task.native.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if task.is_stopped() {
            return self.budget.check().and(Err(QueryError::Cancelled));
        }
        if let Some((keeping, parts)) = keeping.zip(task.keep.as_ref()) {
            let parts = std::mem::take(&mut *parts.lock().ignore_poison());
            self.keep(keeping, parts, grid);
        }
        let accumulated = task.lock().accumulated.take();
        Ok(accumulated.map(|accumulated| (accumulated, held)))
    }
}
