//! The limits, the running account, and the measured cost of one query.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::error::QueryError;
use super::memory::{Lease, LeaseError};
use super::worker_pool::WorkerPool;
use crate::model::{Conductor, Pace, Stopped, check_available};
use crate::tsdb::{Paced, Snapshot};

/// The limits of one query.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The number of samples held at once, counted about as Prometheus does.
    pub samples_max: u64,
    /// The number of series of one selector. Memory and time bound a query in any case.
    pub series_max: u64,
    /// The bytes of values held at once; they are charged before they are allocated.
    pub memory_bytes_max: u64,
}

impl Default for Limits {
    /// 10 million samples, any number of series, and 256 MiB: 10 million samples stored as columns,
    /// and half as much again for derived values, while several queries run at once.
    fn default() -> Limits {
        Limits { samples_max: 10_000_000, series_max: u64::MAX, memory_bytes_max: 256 << 20 }
    }
}

/// The means by which a running query learns that it must stop, reports its progress, and shares
/// memory and threads. The default never stops a query, reports nothing, and shares nothing.
#[derive(Clone, Default)]
pub struct Budget<'a> {
    /// Set when the result is no longer needed.
    pub cancel: Option<&'a AtomicBool>,
    /// Returns whether the deadline has passed. Called once per series and every few thousand
    /// values.
    pub expired: Option<&'a dyn Fn() -> bool>,
    /// Returns whether this thread may do work of this many units, which are about nanoseconds.
    /// Called before work that is known to take long.
    pub admits: Option<&'a dyn Fn(u64) -> bool>,
    /// The progress, as another thread reads it.
    pub progress: Option<Arc<QueryProgress>>,
    /// The query's part of the memory that all queries share.
    pub lease: Option<Arc<Lease>>,
    /// Worker threads that may compute parts of the query. A query without workers is computed on
    /// its own thread.
    pub workers: Option<&'a WorkerPool>,
}

/// The progress of a query, read by other threads. Each number may be slightly out of date.
#[derive(Debug, Default)]
pub struct QueryProgress {
    samples: AtomicU64,
    memory_bytes: AtomicU64,
    selections: AtomicU64,
    series: AtomicU64,
    read: AtomicU64,
}

impl QueryProgress {
    /// Resets all counters, before a query starts or starts again.
    pub fn begin(&self) {
        let QueryProgress { samples, memory_bytes, selections, series, read } = self;
        for counter in [samples, memory_bytes, selections, series, read] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// Counts one more series as read, with `samples` samples.
    pub(super) fn read(&self, samples: usize) {
        self.samples.fetch_add(samples as u64, Ordering::Relaxed);
        self.read.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts `series` more series as read, with `samples` samples in total.
    pub(super) fn read_all(&self, series: usize, samples: usize) {
        self.samples.fetch_add(samples as u64, Ordering::Relaxed);
        self.read.fetch_add(series as u64, Ordering::Relaxed);
    }

    /// Returns the number of samples read from the store.
    pub fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Returns the bytes of values held now.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Estimates the finished share of a query with `selectors` selectors, from 0 to 1. All
    /// selectors but the last started one count as finished, the last one by its share of series
    /// read.
    #[expect(clippy::cast_precision_loss, reason = "a share of few digits")]
    pub fn share(&self, selectors: usize) -> f64 {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let (started, series, read) = (load(&self.selections), load(&self.series), load(&self.read));
        if started == 0.0 {
            return 0.0;
        }
        let of_last = if series == 0.0 { 1.0 } else { (read / series).min(1.0) };
        ((started - 1.0 + of_last) / (selectors.max(1) as f64)).clamp(0.0, 1.0)
    }
}

impl std::fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("cancel", &self.cancel)
            .field("expired", &self.expired.map(|_| "a deadline"))
            .field("admits", &self.admits.map(|_| "a check of long work"))
            .field("progress", &self.progress)
            .field("lease", &self.lease)
            .field("workers", &self.workers)
            .finish()
    }
}

impl Budget<'_> {
    /// Returns an error if the query was cancelled or its deadline has passed.
    pub(super) fn check(&self) -> Result<(), QueryError> {
        if self.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Err(QueryError::Cancelled);
        }
        if self.expired.is_some_and(|expired| expired()) {
            return Err(QueryError::Timeout);
        }
        Ok(())
    }

    /// Like [`Budget::check`], before work of `units` units.
    pub(super) fn admit(&self, units: u64) -> Result<(), QueryError> {
        self.check()?;
        // If the work is too long for this thread, the caller repeats the query on another one.
        if self.admits.is_none_or(|admits| admits(units)) { Ok(()) } else { Err(QueryError::Timeout) }
    }

    /// Runs work that calls a [`Pace`], which consults this budget and, for memory, `meter`.
    pub(super) fn pacing<T>(
        &self,
        meter: Option<&Meter>,
        work: impl FnOnce(&Pace<'_>) -> Result<T, Stopped>,
    ) -> Result<T, QueryError> {
        let conductor = BudgetConductor { budget: self, meter, refused: Cell::new(None) };
        work(&Pace::of(&conductor))
            .map_err(|Stopped| conductor.refused.take().unwrap_or(QueryError::Cancelled))
    }

    /// Runs a selection or a listing of series, like [`Budget::pacing`].
    pub(super) fn paced<T>(
        &self,
        snapshot: &Snapshot,
        meter: Option<&Meter>,
        work: impl FnOnce(&Paced<'_>) -> Result<T, Stopped>,
    ) -> Result<T, QueryError> {
        self.pacing(meter, |pace| work(&snapshot.paced(pace)))
    }
}

/// The [`Conductor`] that consults a budget before each unit of work and stores the reason of a
/// refusal.
struct BudgetConductor<'b> {
    budget: &'b Budget<'b>,
    meter: Option<&'b Meter>,
    refused: Cell<Option<QueryError>>,
}

impl BudgetConductor<'_> {
    fn record(&self, outcome: Result<(), QueryError>) -> bool {
        outcome.map_err(|refused| self.refused.set(Some(refused))).is_ok()
    }
}

impl Conductor for BudgetConductor<'_> {
    fn admits(&self, units: u64) -> bool {
        self.record(self.budget.admit(units))
    }

    fn holds(&self, bytes: u64) -> bool {
        self.record(self.meter.map_or(Ok(()), |meter| meter.lease_more(bytes)))
    }
}

/// The measured cost of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryStats {
    /// The number of series that selectors matched; each selector counts by itself.
    pub series: u64,
    /// The number of samples read from the store.
    pub samples: u64,
    /// The highest number of samples held at once.
    pub peak_samples: u64,
    /// The highest number of bytes of values held at once.
    pub peak_memory_bytes: u64,
}

/// The account of the memory that a query holds. A [`Charge`] returns its part on drop.
#[derive(Debug)]
pub(super) struct Meter {
    limits: Limits,
    progress: Option<Arc<QueryProgress>>,
    lease: Option<Arc<Lease>>,
    held_samples: Cell<u64>,
    held_bytes: Cell<u64>,
    /// Bytes that only make an evaluation faster. No limit of the query counts them, so they never
    /// change its outcome.
    optional_bytes: Cell<u64>,
    stats: Cell<QueryStats>,
}

/// A part of a [`Meter`], returned on drop.
#[derive(Debug)]
pub(super) struct Charge {
    meter: Rc<Meter>,
    samples: u64,
    bytes: u64,
}

impl Meter {
    pub(super) fn new(limits: Limits, budget: &Budget<'_>) -> Rc<Meter> {
        Rc::new(Meter {
            limits,
            progress: budget.progress.clone(),
            lease: budget.lease.clone(),
            held_samples: Cell::new(0),
            held_bytes: Cell::new(0),
            optional_bytes: Cell::new(0),
            stats: Cell::new(QueryStats::default()),
        })
    }

    /// Returns a charge of zero bytes.
    pub(super) fn charge(self: &Rc<Meter>) -> Charge {
        Charge { meter: Rc::clone(self), samples: 0, bytes: 0 }
    }

    pub(super) fn stats(&self) -> QueryStats {
        self.stats.get()
    }

    /// Counts the series that one selector matched.
    pub(super) fn found_series(&self, found: usize) -> Result<(), QueryError> {
        let found = found as u64;
        let mut stats = self.stats.get();
        stats.series += found;
        self.stats.set(stats);
        if let Some(progress) = &self.progress {
            progress.read.store(0, Ordering::Relaxed);
            progress.series.store(found, Ordering::Relaxed);
            progress.selections.fetch_add(1, Ordering::Relaxed);
        }
        let allowed = self.limits.series_max;
        if found > allowed { Err(QueryError::TooManySeries { found, allowed }) } else { Ok(()) }
    }

    /// Counts `selectors` selectors as finished in the progress, because their results were cached.
    pub(super) fn skip_selectors(&self, selectors: usize) {
        if let Some(progress) = &self.progress {
            progress.read.store(0, Ordering::Relaxed);
            progress.series.store(0, Ordering::Relaxed);
            progress.selections.fetch_add(selectors as u64, Ordering::Relaxed);
        }
    }

    /// Reverts [`Meter::found_series`] for a selector that is evaluated again.
    pub(super) fn revert_found_series(&self, found: usize) {
        let mut stats = self.stats.get();
        stats.series = stats.series.saturating_sub(found as u64);
        self.stats.set(stats);
        if let Some(progress) = &self.progress {
            progress.selections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts the samples of one series that were read from the store.
    pub(super) fn read_samples(&self, read: usize) {
        self.add_samples(read as u64);
        if let Some(progress) = &self.progress {
            progress.read(read);
        }
    }

    /// Counts samples read from the store that the progress already contains.
    pub(super) fn add_samples(&self, read: u64) {
        let mut stats = self.stats.get();
        stats.samples += read;
        self.stats.set(stats);
    }

    /// Returns how many more samples may be held.
    pub(super) fn samples_left(&self) -> u64 {
        self.limits.samples_max.saturating_sub(self.held_samples.get())
    }

    /// Returns the error for too many samples.
    pub(super) fn too_many_samples(&self) -> QueryError {
        QueryError::TooManySamples { allowed: self.limits.samples_max }
    }

    /// Checks, before a query reads anything, that `rows` rows of `steps` values fit into the
    /// memory that is left, and leases it. A query that holds nothing yet may wait for it.
    pub(super) fn reserve_rows(
        &self,
        rows: usize,
        steps: usize,
        budget: &Budget<'_>,
    ) -> Result<(), QueryError> {
        self.reserve_bytes(rows_bytes(rows, steps), budget)
    }

    /// Like [`Meter::reserve_rows`], for `bytes` bytes.
    pub(super) fn reserve_bytes(&self, bytes: u64, budget: &Budget<'_>) -> Result<(), QueryError> {
        self.wait_for(self.held_bytes.get().saturating_add(bytes), budget)
    }

    /// Grows the lease to `needed` bytes in total, and waits while other queries hold them.
    pub(super) fn wait_for(&self, needed: u64, budget: &Budget<'_>) -> Result<(), QueryError> {
        let allowed = self.limits.memory_bytes_max;
        if needed > allowed {
            return Err(QueryError::TooMuchMemory { needed, allowed });
        }
        let Some(lease) = &self.lease else { return Ok(()) };
        match lease.grow_to(needed, &|| budget.check().is_ok()) {
            Ok(()) => Ok(()),
            // If the wait ended because the query must stop, that is the error.
            Err(refused) => budget.check().and(Err(refused.into())),
        }
    }

    /// Grows the lease by `bytes` more than is held, for values that are held for a moment only.
    fn lease_more(&self, bytes: u64) -> Result<(), QueryError> {
        let needed = self.held_bytes.get().saturating_add(bytes);
        let allowed = self.limits.memory_bytes_max;
        if needed > allowed {
            return Err(QueryError::TooMuchMemory { needed, allowed });
        }
        self.share(needed.saturating_add(self.optional_bytes.get()))
    }

    /// Reserves memory for an optimisation, if the limits leave any. Does not wait.
    pub(super) fn optional_charge(self: &Rc<Meter>, bytes: u64) -> Option<OptionalCharge> {
        let optional_charge = self.optional_bytes.get().saturating_add(bytes);
        let needed = self.held_bytes.get().saturating_add(optional_charge);
        if needed > self.limits.memory_bytes_max {
            return None;
        }
        self.share(needed).ok()?;
        self.optional_bytes.set(optional_charge);
        Some(OptionalCharge { meter: Rc::clone(self), bytes })
    }

    /// Grows the lease to `needed` bytes in total; never waits.
    fn share(&self, needed: u64) -> Result<(), QueryError> {
        match &self.lease {
            Some(lease) if needed > lease.bytes() => Ok(lease.grow_to(needed, &|| false)?),
            _ => Ok(()),
        }
    }

    /// Checks that the operating system has memory for bytes that no limit counts, because they are
    /// released soon or are charged where they are stored.
    pub(super) fn has_memory(&self, bytes: u64) -> Result<(), QueryError> {
        Ok(check_available(bytes)?)
    }

    fn report_memory(&self, held: u64) {
        if let Some(progress) = &self.progress {
            progress.memory_bytes.store(held, Ordering::Relaxed);
        }
    }
}

impl From<LeaseError> for QueryError {
    fn from(refused: LeaseError) -> QueryError {
        let (needed, held, allowed) = match refused {
            LeaseError::Shared { needed, held, allowed } => (needed, held, allowed),
            LeaseError::OutOfMemory(no_memory) => return no_memory.into(),
        };
        if needed > allowed {
            return QueryError::TooMuchMemory { needed, allowed };
        }
        QueryError::MemoryBusy { needed, held, allowed }
    }
}

/// Estimates the size of rows in bytes. Labels are shared with the store, so a row has about 64
/// bytes in addition to its values.
pub(super) fn rows_bytes(rows: usize, steps: usize) -> u64 {
    (rows as u64).saturating_mul((steps as u64).saturating_mul(8).saturating_add(64))
}

impl Charge {
    /// Charges `count` values of eight bytes, before they are allocated.
    pub(super) fn add_values(&mut self, count: usize) -> Result<(), QueryError> {
        self.add_bytes((count as u64).saturating_mul(8))
    }

    /// Charges `rows` rows of `steps` values.
    pub(super) fn add_rows(&mut self, rows: usize, steps: usize) -> Result<(), QueryError> {
        self.add_bytes(rows_bytes(rows, steps))
    }

    pub(super) fn add_bytes(&mut self, bytes: u64) -> Result<(), QueryError> {
        let needed = self.meter.held_bytes.get().saturating_add(bytes);
        let allowed = self.meter.limits.memory_bytes_max;
        if needed > allowed {
            return Err(QueryError::TooMuchMemory { needed, allowed });
        }
        self.meter.share(needed.saturating_add(self.meter.optional_bytes.get()))?;
        self.bytes += bytes;
        self.meter.held_bytes.set(needed);
        self.meter.report_memory(needed);
        let mut stats = self.meter.stats.get();
        stats.peak_memory_bytes = stats.peak_memory_bytes.max(needed);
        self.meter.stats.set(stats);
        Ok(())
    }

    /// Counts samples that are held from now on.
    pub(super) fn add_samples(&mut self, count: usize) -> Result<(), QueryError> {
        let needed = self.count_transient_samples(count)?;
        self.samples += count as u64;
        self.meter.held_samples.set(needed);
        Ok(())
    }

    /// Counts `count` samples in place of those counted before. Both sets of values are held while
    /// the new one is computed from the old one.
    pub(super) fn replace_samples(&mut self, count: usize) -> Result<(), QueryError> {
        let needed = self.count_transient_samples(count)?;
        self.meter.held_samples.set(needed - self.samples);
        self.samples = count as u64;
        Ok(())
    }

    /// Counts samples that are held for a moment only. Returns the number of samples held in total
    /// at that moment.
    pub(super) fn count_transient_samples(&mut self, count: usize) -> Result<u64, QueryError> {
        let needed = self.meter.held_samples.get().saturating_add(count as u64);
        if needed > self.meter.limits.samples_max {
            return Err(self.meter.too_many_samples());
        }
        let mut stats = self.meter.stats.get();
        stats.peak_samples = stats.peak_samples.max(needed);
        self.meter.stats.set(stats);
        Ok(needed)
    }
}

/// Reserved memory of an optimisation, returned on drop.
#[derive(Debug)]
pub(super) struct OptionalCharge {
    meter: Rc<Meter>,
    bytes: u64,
}

impl Drop for OptionalCharge {
    fn drop(&mut self) {
        self.meter.optional_bytes.set(self.meter.optional_bytes.get() - self.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meter.held_samples.set(self.meter.held_samples.get() - self.samples);
        let held = self.meter.held_bytes.get() - self.bytes;
        self.meter.held_bytes.set(held);
        self.meter.report_memory(held);
    }
}
