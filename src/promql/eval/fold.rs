//! Aggregations over what is read: each series' row goes into its group as soon as it is computed, and is not kept.
//!
//! Series are taken in blocks, in the order of their labels; inside of a block in the order they lie in. Whoever finishes
//! the block whose turn it is adds its rows to their groups, and those of the blocks behind it that were finished
//! meanwhile: rows are added in the order of labels, however many threads compute them. Only so many blocks are about at
//! once as there are buffers for; who finds none waits until one was added up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::model::{HistogramColumns, Matcher, Timestamp};
use crate::promql::QueryError;
use crate::promql::budget::{Charge, Progress, rows_bytes};
use crate::promql::crew::{NAP, Together};
use crate::promql::plan::{AggregateNode, Look, MatrixSource, ScalarNode, VectorNode, WindowNode};
use crate::tsdb::{Grouped, GroupedSeries, ReadColumns, Reader, Snapshot};

use super::Context;
use super::accumulate::{Accumulate, accumulator, extra_bytes};
use super::aggregate::tells_apart;
use super::fill::{FillRow, LOOK_NS, Patience, Reading, cost_ns, fill_row, floats_of, scratch_bytes};
use super::kept::{KeptRows, Part};
use super::kernels::{GoesOn, Scratch, Stopped};
use super::peel::{Peeled, Peels};
use super::rows::{ABSENT, Grid, Head, Rows, is_absent, is_metadata};

/// Values of one block: what stays in a core's own cache.
const BLOCK_VALUES: usize = 16_384;
/// Series of one block, at most.
const BLOCK_SERIES_MAX: usize = 1_024;

/// One block's rows, and what came of each.
#[derive(Default)]
struct Block {
    number: usize,
    values: Vec<f64>,
    read: Vec<Read>,
}

/// What became of one series.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Read {
    samples: usize,
    held: usize,
    /// There was any value, and there is one after all that was done with it.
    found: bool,
    any: bool,
}

/// What is known once rows were added, in their order.
struct Sofar {
    accumulator: Box<dyn Accumulate>,
    /// Groups that have a value, in the order they got their first.
    groups: Vec<u32>,
    has_any: Vec<bool>,
    /// Any value was found, whatever was done with it.
    found_any: bool,
    /// Rows with any value.
    rows: usize,
    samples: u64,
    /// The most samples held of one series.
    held: usize,
}

/// Where blocks are.
struct Places {
    /// The next to be computed, and the next to be added.
    computed: usize,
    added: usize,
    free: Vec<Block>,
    /// Threads that wait for one that is free.
    waiting: usize,
    finished: Vec<Block>,
    /// None while somebody adds.
    sofar: Option<Sofar>,
}

/// What all threads share.
struct Work {
    snapshot: Snapshot,
    reading: Reading,
    histograms_from: Timestamp,
    fill: Arc<FillRow>,
    peels: Peels,
    series: Vec<GroupedSeries>,
    /// Rows that are there already, and where others are kept for who asks for them later.
    kept: Option<Arc<KeptRows>>,
    keep: Option<Mutex<Vec<Part>>>,
    steps: usize,
    /// Series of each block.
    block: usize,
    scratch_bytes: usize,
    places: Mutex<Places>,
    freed: Condvar,
    progress: Option<Arc<Progress>>,
    /// Somebody gave up: there will be no answer.
    stopped: AtomicBool,
    /// There are native histograms: there will be an answer, but not this way.
    native: AtomicBool,
}

impl Together for Work {
    fn help(&self, stays: &dyn Fn() -> bool) {
        if self.run(&mut || Ok(()), stays).is_err() {
            self.stop();
        }
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        drop(self.lock());
        self.freed.notify_all();
    }
}

impl Work {
    /// One thread's part, block after block while it `stays`.
    fn run(&self, goes_on: GoesOn<'_>, stays: &dyn Fn() -> bool) -> Result<(), Stopped> {
        let mut check = || if self.is_stopped() { Err(Stopped) } else { goes_on() };
        let mut reader = self.reading.reader(&self.snapshot, self.histograms_from, self.steps);
        let mut room = Room { scratch: Scratch::within(self.scratch_bytes), ..Room::default() };
        check()?;
        while stays() {
            let Some(mut block) = self.begin(&mut check)? else { break };
            self.compute(&mut block, &mut reader, &mut room, &mut check)?;
            self.finish(block);
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        // Whoever panicked under the lock has told everybody to stop.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer, and the number of the block to put in it; waits for one while all are in use.
    fn begin(&self, check: GoesOn<'_>) -> Result<Option<Block>, Stopped> {
        let mut places = self.lock();
        loop {
            if self.is_stopped() {
                return Err(Stopped);
            }
            if places.computed * self.block >= self.series.len() {
                return Ok(None);
            }
            if let Some(mut block) = places.free.pop() {
                block.number = places.computed;
                places.computed += 1;
                return Ok(Some(block));
            }
            places.waiting += 1;
            let (again, _) = self.freed.wait_timeout(places, NAP).unwrap_or_else(PoisonError::into_inner);
            places = again;
            places.waiting -= 1;
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
        room: &mut Room,
        check: GoesOn<'_>,
    ) -> Result<(), Stopped> {
        let Room { scratch, columns, histograms, order, patience } = room;
        let series = self.series_of(block.number);
        block.values.resize(series.len() * self.steps, ABSENT);
        block.read.clear();
        block.read.resize(series.len(), Read::default());
        order.clear();
        order.extend(0..series.len());
        // Series that are written together have neighbouring numbers, and mostly the same times.
        order.sort_unstable_by_key(|place| series[*place].id);
        if let Some(kept) = &self.kept {
            order.retain(|place| {
                let Some((read, values)) = kept.row(series[*place].id, self.steps) else { return true };
                let row = &mut block.values[place * self.steps..(place + 1) * self.steps];
                row.copy_from_slice(values);
                block.read[*place] = self.done(row, read);
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
            if patience.is_over(samples + self.steps) {
                check()?;
            }
            let floats = floats_of(columns, self.reading.windows);
            let held = floats.times.len();
            let row = &mut block.values[place * self.steps..(place + 1) * self.steps];
            (self.fill)(scratch, floats, row, check)?;
            let this = Read { samples, held, found: any(row), any: false };
            if self.keep.is_some() {
                part.push(series[place].id, this, row);
            }
            block.read[place] = self.done(row, this);
        }
        if let Some(keep) = &self.keep {
            keep.lock().unwrap_or_else(PoisonError::into_inner).push(part);
        }
        if let Some(progress) = &self.progress {
            progress.read_all(series.len(), read);
        }
        Ok(())
    }

    /// Does with a row what is done with each value by itself.
    fn done(&self, row: &mut [f64], read: Read) -> Read {
        self.peels.apply(row);
        Read { any: read.found && any(row), ..read }
    }

    /// Adds the block, and those behind it that are finished, where it is their turn and nobody is at it.
    fn finish(&self, block: Block) {
        let mut places = self.lock();
        places.finished.push(block);
        let Some(mut sofar) = places.sofar.take() else { return };
        loop {
            let next = places.added;
            let Some(at) = places.finished.iter().position(|block| block.number == next) else { break };
            let block = places.finished.swap_remove(at);
            drop(places);
            self.add(&block, &mut sofar);
            places = self.lock();
            places.added += 1;
            places.free.push(block);
            if places.waiting > 0 {
                self.freed.notify_one();
            }
        }
        places.sofar = Some(sofar);
    }

    fn add(&self, block: &Block, sofar: &mut Sofar) {
        let series = self.series_of(block.number).iter().zip(&block.read);
        for ((series, read), row) in series.zip(block.values.chunks(self.steps)) {
            sofar.samples += read.samples as u64;
            sofar.held = sofar.held.max(read.held);
            sofar.found_any |= read.found;
            if !read.any {
                continue;
            }
            sofar.rows += 1;
            if let Some(seen) = sofar.has_any.get_mut(series.group as usize).filter(|seen| !**seen) {
                *seen = true;
                sofar.groups.push(series.group);
            }
            sofar.accumulator.add(series.group as usize, row);
        }
    }
}

fn any(row: &[f64]) -> bool {
    row.iter().any(|value| !is_absent(*value))
}

/// What one thread computes in.
#[derive(Default)]
struct Room {
    scratch: Scratch,
    columns: ReadColumns,
    histograms: HistogramColumns,
    order: Vec<usize>,
    patience: Patience,
}

/// What an aggregation reads, and how.
struct Source<'n> {
    peeled: &'n Peeled<'n>,
    matchers: &'n [Matcher],
    reading: Reading,
    /// The function of windows, if there is one.
    window: Option<&'n WindowNode>,
}

impl Context<'_> {
    /// An aggregation over series that are read for it, without their rows; none where it has to be done another way.
    pub(super) fn folded(&self, node: &AggregateNode, grid: Grid) -> Result<Option<Rows>, QueryError> {
        if self.options.delayed_name_removal {
            return Ok(None);
        }
        let Some(extra_bytes) = extra_bytes(node.op) else { return Ok(None) };
        let peeled = &Peeled::of(&node.arg);
        match peeled.core {
            VectorNode::Select(selector) if selector.look == Look::Value => {
                let range = self.selected_range(selector, grid);
                let source = Source {
                    peeled,
                    matchers: &selector.matchers,
                    reading: Reading { range, windows: false, step_ns: LOOK_NS },
                    window: None,
                };
                let (when, lookback) = (selector.when, self.options.lookback_ms);
                let edges = move |at_ms: i64| (when.look(at_ms).saturating_sub(lookback), when.look(at_ms));
                let fill = fill_row(move |scratch, samples, row, _| {
                    scratch.newest(grid, samples, edges, |_, value| value, row);
                    Ok(())
                });
                self.fold_source(node, grid, &source, extra_bytes, fill)
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
                let reading = Reading { range, windows: true, step_ns: whole.step_ns() };
                let source = Source { peeled, matchers, reading, window: Some(window) };
                self.fold_source(node, grid, &source, extra_bytes, whole.into_fill())
            }
            _ => Ok(None),
        }
    }

    fn fold_source(
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
            self.find(|paced| paced.select_grouped(source.matchers, source.reading.range, &apart, &goes))?;
        if grouped.differ {
            // Names go, and series may be equal without.
            return Ok(None);
        }
        let found = grouped.series.len();
        self.meter.found_series(found)?;
        let mut selected = self.meter.charge();
        selected.add_bytes(grouped.bytes())?;
        let Some((sofar, held)) = self.fold_series(&mut grouped, grid, (node, extra_bytes), source, fill)?
        else {
            self.meter.lost_series(found);
            return Ok(None);
        };
        self.meter.add_samples(sofar.samples);
        if let Some((trace, before)) = self.trace.zip(before) {
            // What is folded and the folding are one; it is told of as the inner ones'.
            for node in &source.peeled.nodes {
                trace.leave(std::ptr::from_ref(*node).addr(), before, sofar.rows, &self.meter);
            }
        }
        if let Some(window) = source.window {
            self.meter.charge().pass_samples(sofar.held)?;
            // The names of such functions' results go, so that all series have one.
            if window.kernel.counts && sofar.found_any {
                self.doubt_counter(window, &grouped.name);
            }
        }
        let values = sofar.accumulator.finish();
        let label = |group: &u32| grouped.groups.get(*group as usize);
        let heads = sofar.groups.iter().filter_map(label);
        let heads: Vec<Head> =
            heads.map(|labels| Head { labels: labels.clone(), drops_name: false }).collect();
        // Groups have numbers in the order of their first series; some may have no value, or got one late.
        let values = if (0..).zip(&sofar.groups).all(|(place, group)| place == *group) {
            values
        } else {
            let rows = sofar.groups.iter().map(|group| *group as usize * grid.len);
            rows.flat_map(|from| values[from..from + grid.len].iter().copied()).collect()
        };
        drop((held, selected));
        let mut rows = Rows::of(&self.meter, heads, values, grid.len)?;
        rows.settle_all()?;
        Ok(Some(rows))
    }

    /// Reads and adds; none where there are native histograms.
    fn fold_series(
        &self,
        grouped: &mut Grouped,
        grid: Grid,
        (node, extra_bytes): (&AggregateNode, u64),
        &Source { peeled, reading, .. }: &Source<'_>,
        fill: Arc<FillRow>,
    ) -> Result<Option<(Sofar, Charge)>, QueryError> {
        let (series, groups, steps) = (std::mem::take(&mut grouped.series), grouped.groups.len(), grid.len);
        let cost_ns = cost_ns(series.len(), reading, steps);
        // Enough of them that the last one finished is a small part of all.
        let block = (BLOCK_VALUES / steps).min(series.len() / 8).clamp(1, BLOCK_SERIES_MAX);
        let blocks = series.len().div_ceil(block);
        let scratch_bytes = scratch_bytes(series.len(), reading.range, steps);
        // Each thread has a buffer that it fills, and one that waits for its turn.
        let rows = groups.saturating_add(2 * block);
        self.meter.foresee(rows, steps, self.budget)?;
        let mut held = self.meter.charge();
        held.add_rows(rows, steps)?;
        held.add_bytes(extra_bytes.saturating_mul((groups as u64).saturating_mul(steps as u64)))?;
        held.add_bytes(scratch_bytes as u64)?;
        let (hands, _asides) =
            self.hire(cost_ns, blocks, rows_bytes(2 * block, steps).saturating_add(scratch_bytes as u64));
        let Some(accumulator) = accumulator(node.op, groups, steps) else { return Ok(None) };
        let sofar = Sofar {
            accumulator,
            groups: Vec::new(),
            has_any: vec![false; groups],
            found_any: false,
            rows: 0,
            samples: 0,
            held: 0,
        };
        let mut free = Vec::new();
        free.resize_with(2 * (hands.len() + 1), Block::default);
        let places =
            Places { computed: 0, added: 0, free, waiting: 0, finished: Vec::new(), sofar: Some(sofar) };
        let kept = self.kept(peeled.core, grid);
        let keeping = if kept.is_none() { self.keeping(peeled.core, series.len(), grid) } else { None };
        let work = Arc::new(Work {
            snapshot: self.snapshot.clone(),
            reading,
            // Where no sample is before the range, what went on is unknown: a lookback's worth is enough to find one.
            histograms_from: reading.range.start.plus_ms(self.options.lookback_ms.saturating_neg()),
            fill,
            peels: peeled.peels.clone(),
            series,
            kept: kept.as_ref().map(|kept| Arc::clone(&kept.rows)),
            keep: keeping.as_ref().map(|_| Mutex::default()),
            steps,
            block,
            scratch_bytes,
            places: Mutex::new(places),
            freed: Condvar::new(),
            progress: self.budget.progress.clone(),
            stopped: AtomicBool::new(false),
            native: AtomicBool::new(false),
        });
        self.together(&work, hands, |goes_on| work.run(goes_on, &|| true))?;
        if work.native.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if work.is_stopped() {
            return self.budget.check().and(Err(QueryError::Cancelled));
        }
        if let Some((keeping, parts)) = keeping.zip(work.keep.as_ref()) {
            let parts = std::mem::take(&mut *parts.lock().unwrap_or_else(PoisonError::into_inner));
            self.keep(keeping, parts, grid);
        }
        let sofar = work.lock().sofar.take();
        Ok(sofar.map(|sofar| (sofar, held)))
    }
}
