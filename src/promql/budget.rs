//! What one query may cost, and what it did cost.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::QueryError;
use super::memory::{Lease, NoRoom};
use super::worker_pool::WorkerPool;
use crate::model::{Conductor, Pace, Stopped, check_available};
use crate::tsdb::{Paced, Snapshot};

/// What one query may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Samples held at once, about as Prometheus counts them.
    pub samples_max: u64,
    /// Series of one selector. Memory and time bound a query in any case.
    pub series_max: u64,
    /// Bytes of values held at once; asked for before they are allocated.
    pub memory_bytes_max: u64,
}

impl Default for Limits {
    /// 10 million samples, any number of series, 256 MiB: the samples of the first limit as columns, and half as much again
    /// for what is made of them; several queries run at once.
    fn default() -> Limits {
        Limits { samples_max: 10_000_000, series_max: u64::MAX, memory_bytes_max: 256 << 20 }
    }
}

/// How a running query learns that it should stop, and whom it tells how far it is. The default never stops, tells nobody
/// and shares no memory.
#[derive(Clone, Default)]
pub struct Budget<'a> {
    /// Set by whoever no longer wants the answer.
    pub cancel: Option<&'a AtomicBool>,
    /// Whether the deadline has passed; asked once per series and every few thousand values.
    pub expired: Option<&'a dyn Fn() -> bool>,
    /// Whether a piece of work of so many units, about nanoseconds, may be done by this thread; asked before pieces that
    /// are known to be long.
    pub admits: Option<&'a dyn Fn(u64) -> bool>,
    /// Who looks on.
    pub progress: Option<Arc<Progress>>,
    /// What it may take of the memory that all queries share.
    pub lease: Option<Arc<Lease>>,
    /// Worker threads that may compute parts of the query. Without them its own thread computes all.
    pub workers: Option<&'a WorkerPool>,
}

/// How far a query is, for who looks on from another thread. Every number is what was true a moment ago.
#[derive(Debug, Default)]
pub struct Progress {
    samples: AtomicU64,
    memory_bytes: AtomicU64,
    selections: AtomicU64,
    series: AtomicU64,
    read: AtomicU64,
}

impl Progress {
    /// Nothing is done yet, or not any more.
    pub fn begin(&self) {
        let Progress { samples, memory_bytes, selections, series, read } = self;
        for counter in [samples, memory_bytes, selections, series, read] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// One more series is read, of so many samples.
    pub(super) fn read(&self, samples: usize) {
        self.samples.fetch_add(samples as u64, Ordering::Relaxed);
        self.read.fetch_add(1, Ordering::Relaxed);
    }

    /// So many more series are read, of so many samples together.
    pub(super) fn read_all(&self, series: usize, samples: usize) {
        self.samples.fetch_add(samples as u64, Ordering::Relaxed);
        self.read.fetch_add(series as u64, Ordering::Relaxed);
    }

    /// Samples read from the store.
    pub fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Bytes of values held now.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// From 0 to 1: of `selectors` all but the last are done, of the last one so much as series are read.
    #[expect(clippy::cast_precision_loss, reason = "a share of few digits")]
    pub fn share(&self, selectors: usize) -> f64 {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let (begun, series, read) = (load(&self.selections), load(&self.series), load(&self.read));
        if begun == 0.0 {
            return 0.0;
        }
        let of_last = if series == 0.0 { 1.0 } else { (read / series).min(1.0) };
        ((begun - 1.0 + of_last) / (selectors.max(1) as f64)).clamp(0.0, 1.0)
    }
}

impl std::fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("cancel", &self.cancel)
            .field("expired", &self.expired.map(|_| "a deadline"))
            .field("admits", &self.admits.map(|_| "a test of pieces"))
            .field("progress", &self.progress)
            .field("lease", &self.lease)
            .field("workers", &self.workers)
            .finish()
    }
}

impl Budget<'_> {
    /// Refuses to go on once cancelled or expired.
    pub(super) fn check(&self) -> Result<(), QueryError> {
        if self.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Err(QueryError::Cancelled);
        }
        if self.expired.is_some_and(|expired| expired()) {
            return Err(QueryError::Timeout);
        }
        Ok(())
    }

    /// As [`Budget::check`], before a piece of work of so many units.
    pub(super) fn admit(&self, units: u64) -> Result<(), QueryError> {
        self.check()?;
        // Where a piece is too long for this thread, the caller does the work again elsewhere.
        if self.admits.is_none_or(|admits| admits(units)) { Ok(()) } else { Err(QueryError::Timeout) }
    }

    /// Runs work that asks a pace, which asks this budget, and `meter` for memory.
    pub(super) fn pacing<T>(
        &self,
        meter: Option<&Meter>,
        work: impl FnOnce(&Pace<'_>) -> Result<T, Stopped>,
    ) -> Result<T, QueryError> {
        let asking = Asking { budget: self, meter, refused: Cell::new(None) };
        work(&Pace::of(&asking)).map_err(|Stopped| asking.refused.take().unwrap_or(QueryError::Cancelled))
    }

    /// Runs a selection or a listing, as [`Budget::pacing`].
    pub(super) fn paced<T>(
        &self,
        snapshot: &Snapshot,
        meter: Option<&Meter>,
        work: impl FnOnce(&Paced<'_>) -> Result<T, Stopped>,
    ) -> Result<T, QueryError> {
        self.pacing(meter, |pace| work(&snapshot.paced(pace)))
    }
}

/// Asks a budget before pieces of work, and remembers why it refused.
struct Asking<'b> {
    budget: &'b Budget<'b>,
    meter: Option<&'b Meter>,
    refused: Cell<Option<QueryError>>,
}

impl Asking<'_> {
    fn note(&self, asked: Result<(), QueryError>) -> bool {
        asked.map_err(|refused| self.refused.set(Some(refused))).is_ok()
    }
}

impl Conductor for Asking<'_> {
    fn admits(&self, units: u64) -> bool {
        self.note(self.budget.admit(units))
    }

    fn holds(&self, bytes: u64) -> bool {
        self.note(self.meter.map_or(Ok(()), |meter| meter.has_room(bytes)))
    }
}

/// What a query did cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryStats {
    /// Series that selectors found, each selector counted by itself.
    pub series: u64,
    /// Samples read from the store.
    pub samples: u64,
    /// The most samples held at once.
    pub peak_samples: u64,
    /// The most bytes of values held at once.
    pub peak_memory_bytes: u64,
}

/// Counts what is held right now. [`Charge`]s give back what they took.
#[derive(Debug)]
pub(super) struct Meter {
    limits: Limits,
    progress: Option<Arc<Progress>>,
    lease: Option<Arc<Lease>>,
    held_samples: Cell<u64>,
    held_bytes: Cell<u64>,
    /// Bytes that make an evaluation faster and no other: no limit that it meets depends on them.
    aside_bytes: Cell<u64>,
    stats: Cell<QueryStats>,
}

/// A share of a [`Meter`], given back when dropped.
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
            aside_bytes: Cell::new(0),
            stats: Cell::new(QueryStats::default()),
        })
    }

    /// A charge of nothing yet.
    pub(super) fn charge(self: &Rc<Meter>) -> Charge {
        Charge { meter: Rc::clone(self), samples: 0, bytes: 0 }
    }

    pub(super) fn stats(&self) -> QueryStats {
        self.stats.get()
    }

    /// Counts the series of one selector.
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

    /// So many selectors need not be read: what comes of them is known.
    pub(super) fn passed_selectors(&self, selectors: usize) {
        if let Some(progress) = &self.progress {
            progress.read.store(0, Ordering::Relaxed);
            progress.series.store(0, Ordering::Relaxed);
            progress.selections.fetch_add(selectors as u64, Ordering::Relaxed);
        }
    }

    /// Takes back what [`Meter::found_series`] counted: they are looked for again.
    pub(super) fn lost_series(&self, found: usize) {
        let mut stats = self.stats.get();
        stats.series = stats.series.saturating_sub(found as u64);
        self.stats.set(stats);
        if let Some(progress) = &self.progress {
            progress.selections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts samples that came out of the store, of one series.
    pub(super) fn read_samples(&self, read: usize) {
        self.add_samples(read as u64);
        if let Some(progress) = &self.progress {
            progress.read(read);
        }
    }

    /// Counts samples that came out of the store, and that whoever looks on was told of.
    pub(super) fn add_samples(&self, read: u64) {
        let mut stats = self.stats.get();
        stats.samples += read;
        self.stats.set(stats);
    }

    /// How many samples may be held beside those that are.
    pub(super) fn samples_left(&self) -> u64 {
        self.limits.samples_max.saturating_sub(self.held_samples.get())
    }

    /// Why no more may be held.
    pub(super) fn too_many_samples(&self) -> QueryError {
        QueryError::TooManySamples { allowed: self.limits.samples_max }
    }

    /// Admits a query before it reads anything: that `rows` rows of `steps` values will fit beside what is held, and
    /// takes them out of the shared memory. Who holds nothing yet may wait for that.
    pub(super) fn foresee(&self, rows: usize, steps: usize, budget: &Budget<'_>) -> Result<(), QueryError> {
        self.foresee_bytes(rows_bytes(rows, steps), budget)
    }

    /// Like [`Meter::foresee`], for any `bytes`.
    pub(super) fn foresee_bytes(&self, bytes: u64, budget: &Budget<'_>) -> Result<(), QueryError> {
        self.wait_for(self.held_bytes.get().saturating_add(bytes), budget)
    }

    /// Takes `needed` bytes in all out of the shared memory, and waits for them while other queries hold it.
    pub(super) fn wait_for(&self, needed: u64, budget: &Budget<'_>) -> Result<(), QueryError> {
        let allowed = self.limits.memory_bytes_max;
        if needed > allowed {
            return Err(QueryError::TooMuchMemory { needed, allowed });
        }
        let Some(lease) = &self.lease else { return Ok(()) };
        match lease.grow_to(needed, &|| budget.check().is_ok()) {
            Ok(()) => Ok(()),
            // Whoever waited in vain says what ended the waiting.
            Err(no_room) => budget.check().and(Err(no_room.into())),
        }
    }

    /// Takes `bytes` beside what is held out of the shared memory, for what is held for a moment.
    fn has_room(&self, bytes: u64) -> Result<(), QueryError> {
        let needed = self.held_bytes.get().saturating_add(bytes);
        let allowed = self.limits.memory_bytes_max;
        if needed > allowed {
            return Err(QueryError::TooMuchMemory { needed, allowed });
        }
        self.share(needed.saturating_add(self.aside_bytes.get()))
    }

    /// Room for what is of use and not needed, where there is any.
    pub(super) fn aside(self: &Rc<Meter>, bytes: u64) -> Option<Aside> {
        let aside = self.aside_bytes.get().saturating_add(bytes);
        let needed = self.held_bytes.get().saturating_add(aside);
        if needed > self.limits.memory_bytes_max {
            return None;
        }
        self.share(needed).ok()?;
        self.aside_bytes.set(aside);
        Some(Aside { meter: Rc::clone(self), bytes })
    }

    /// Takes `needed` bytes in all out of the shared memory; never waits.
    fn share(&self, needed: u64) -> Result<(), QueryError> {
        match &self.lease {
            Some(lease) if needed > lease.bytes() => Ok(lease.grow_to(needed, &|| false)?),
            _ => Ok(()),
        }
    }

    /// Checks that the operating system has memory for what no limit counts: it is let go of soon, or counted where it is
    /// kept.
    pub(super) fn has_memory(&self, bytes: u64) -> Result<(), QueryError> {
        Ok(check_available(bytes)?)
    }

    fn tell_memory(&self, held: u64) {
        if let Some(progress) = &self.progress {
            progress.memory_bytes.store(held, Ordering::Relaxed);
        }
    }
}

impl From<NoRoom> for QueryError {
    fn from(no_room: NoRoom) -> QueryError {
        let (needed, held, allowed) = match no_room {
            NoRoom::Shared { needed, held, allowed } => (needed, held, allowed),
            NoRoom::OutOfMemory(none) => return none.into(),
        };
        if needed > allowed {
            return QueryError::TooMuchMemory { needed, allowed };
        }
        QueryError::MemoryBusy { needed, held, allowed }
    }
}

/// A row's labels are shared with the store; what is its own is about 64 bytes of bookkeeping.
pub(super) fn rows_bytes(rows: usize, steps: usize) -> u64 {
    (rows as u64).saturating_mul((steps as u64).saturating_mul(8).saturating_add(64))
}

impl Charge {
    /// Takes room for `count` values of eight bytes, before they are allocated.
    pub(super) fn add_values(&mut self, count: usize) -> Result<(), QueryError> {
        self.add_bytes((count as u64).saturating_mul(8))
    }

    /// Takes room for `rows` rows of `steps` values.
    pub(super) fn add_rows(&mut self, rows: usize, steps: usize) -> Result<(), QueryError> {
        self.add_bytes(rows_bytes(rows, steps))
    }

    pub(super) fn add_bytes(&mut self, bytes: u64) -> Result<(), QueryError> {
        let needed = self.meter.held_bytes.get().saturating_add(bytes);
        let allowed = self.meter.limits.memory_bytes_max;
        if needed > allowed {
            return Err(QueryError::TooMuchMemory { needed, allowed });
        }
        self.meter.share(needed.saturating_add(self.meter.aside_bytes.get()))?;
        self.bytes += bytes;
        self.meter.held_bytes.set(needed);
        self.meter.tell_memory(needed);
        let mut stats = self.meter.stats.get();
        stats.peak_memory_bytes = stats.peak_memory_bytes.max(needed);
        self.meter.stats.set(stats);
        Ok(())
    }

    /// Counts samples that are held from now on.
    pub(super) fn add_samples(&mut self, count: usize) -> Result<(), QueryError> {
        let needed = self.pass_samples(count)?;
        self.samples += count as u64;
        self.meter.held_samples.set(needed);
        Ok(())
    }

    /// Counts so many samples in place of those that were: both are held while one is made of the other.
    pub(super) fn replace_samples(&mut self, count: usize) -> Result<(), QueryError> {
        let needed = self.pass_samples(count)?;
        self.meter.held_samples.set(needed - self.samples);
        self.samples = count as u64;
        Ok(())
    }

    /// Counts samples that were held for a moment; answers how many were then.
    pub(super) fn pass_samples(&mut self, count: usize) -> Result<u64, QueryError> {
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

/// Room for what is not needed, given back when dropped.
#[derive(Debug)]
pub(super) struct Aside {
    meter: Rc<Meter>,
    bytes: u64,
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.meter.aside_bytes.set(self.meter.aside_bytes.get() - self.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meter.held_samples.set(self.meter.held_samples.get() - self.samples);
        let held = self.meter.held_bytes.get() - self.bytes;
        self.meter.held_bytes.set(held);
        self.meter.tell_memory(held);
    }
}
