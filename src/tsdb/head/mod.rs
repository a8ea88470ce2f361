//! The writable window: every sample that is not in a segment, in memory.
//!
//! * [`stripe`]: 1,024 consecutive series behind one lock; [`slots`] their newest samples as struct of arrays, [`record`] and
//!   [`arena`] the compressed ones before them.
//! * [`Head`]: the stripes of one organisation.
//!
//! One thread writes (the applier, in log order; at start the replay), so what becomes of a sample is a function of the
//! log. The rule, in this order: before the barrier, it is late; later than the series' last one, it is appended; at the
//! same time, it is a duplicate (same bits) or refused; earlier, it is late. Late samples are kept beside the chunks and
//! merged when read; the last one written wins (docs/storage.md section 11).
//!
//! A seal takes the head's samples in four steps: [`Head::close_window`] raises the barrier and sets the late samples
//! aside, so that what lies before the barrier no longer changes; [`Head::copy_closed`] gives it; once it is in a
//! segment, [`Head::release_closed`] lets go of exactly that, or [`Head::reopen`] if there is no segment.

mod arena;
mod backwards;
mod record;
mod slots;
pub(super) mod stripe;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};

use stripe::{Put, Span, Stripe};

use super::report::SampleColumns;
use super::wal::log::{ApplyOutcome, RefusedSample};
use super::wal::samples::LogSample;
use crate::model::TimeRange;
use crate::sync::IgnorePoison as _;

/// Series of a stripe: a lock is held for at most so many appends. A multiple of the 32 of a checkpoint's row.
pub(super) const STRIPE_SERIES: u32 = 1_024;
/// Refused samples that are named.
const FIRST_MAX: usize = 10;

/// The samples of one organisation.
#[derive(Debug)]
pub(super) struct Head {
    stripes: RwLock<Vec<Arc<RwLock<Stripe>>>>,
    barrier: AtomicI64,
    /// The seal at work takes samples of any time.
    closes_all: AtomicBool,
    /// Tails are kept short, as at a start: memory counts then, and nobody reads.
    sparing: AtomicBool,
    pub(super) counters: HeadCounters,
    /// Bytes of all heads of the process.
    total_bytes: Arc<AtomicU64>,
}

/// What the head holds. Only the writing thread changes them.
#[derive(Debug, Default)]
pub(super) struct HeadCounters {
    pub(super) samples: AtomicU64,
    pub(super) late: AtomicU64,
    /// Estimated memory.
    pub(super) bytes: AtomicU64,
}

impl Head {
    pub(super) fn new(total_bytes: Arc<AtomicU64>, sparing: bool) -> Head {
        Head {
            stripes: RwLock::default(),
            barrier: AtomicI64::new(i64::MIN),
            closes_all: AtomicBool::new(false),
            sparing: AtomicBool::new(sparing),
            counters: HeadCounters::default(),
            total_bytes,
        }
    }

    /// Whether tails are kept short from now on. What they have been is not changed: they grow when samples come.
    pub(super) fn set_sparing(&self, sparing: bool) {
        self.sparing.store(sparing, Ordering::Relaxed);
    }

    /// Samples before this time are late; `i64::MIN`: none are for that.
    pub(super) fn barrier(&self) -> i64 {
        self.barrier.load(Ordering::Acquire)
    }

    /// Raises the barrier to `until_ms` and sets the late samples aside. Called by the writing thread, between records.
    pub(super) fn close_window(&self, until_ms: i64) {
        self.barrier.fetch_max(until_ms, Ordering::AcqRel);
        self.closes_all.store(false, Ordering::Release);
        self.change_all(Stripe::freeze);
    }

    /// Sets the barrier to `until_ms`, earlier or later, and closes everything that is there: samples in order at or after
    /// it are set aside as late ones are. Called by the writing thread, between records.
    pub(super) fn close_all(&self, until_ms: i64) {
        self.set_barrier(until_ms);
        self.closes_all.store(true, Ordering::Release);
        self.change_all(|stripe| stripe.freeze_all(until_ms));
    }

    /// Sets the barrier of a head that a checkpoint is loaded into.
    pub(super) fn set_barrier(&self, until_ms: i64) {
        self.barrier.store(until_ms, Ordering::Release);
    }

    /// Where the late samples end that the seal at work takes.
    fn late_end(&self) -> i64 {
        if self.closes_all.load(Ordering::Acquire) { i64::MAX } else { self.barrier() }
    }

    /// Appends to `out` what a seal takes of a series: every sample before the barrier that came before the window was
    /// closed, ascending, each time once.
    pub(super) fn copy_closed(&self, series: u32, out: &mut SampleColumns) {
        if let Some(stripe) = self.stripe(series) {
            let stripe = stripe.read().ignore_poison();
            stripe.copy_closed(slot(series), (self.barrier(), self.late_end()), out);
        }
    }

    /// Goes over the records of some series, so that the processor has them when they are read; answers how many there are.
    ///
    /// They lie far apart, and each tells where the one before it is: one series after the other would wait for each of
    /// them, all in turn wait for several at a time.
    pub(super) fn touch(&self, series: &[u32]) -> usize {
        let number = |series: &u32| series / STRIPE_SERIES;
        let stripes: BTreeMap<u32, Arc<RwLock<Stripe>>> =
            series.iter().filter_map(|series| Some((number(series), self.stripe(*series)?))).collect();
        // Each is locked once: who asks again while a writer waits would wait for it, and it for him.
        let locked: BTreeMap<u32, RwLockReadGuard<'_, Stripe>> =
            stripes.iter().map(|(number, stripe)| (*number, stripe.read().ignore_poison())).collect();
        stripe::touch(series.iter().filter_map(|id| Some((&**locked.get(&number(id))?, slot(*id)))))
    }

    /// Lets go of exactly what [`Head::copy_closed`] gives; every stripe notes the barrier. Late samples at or after it
    /// that were set aside are late again, where no newer one came.
    pub(super) fn release_closed(&self) {
        let ends = (self.barrier(), self.late_end());
        self.change_all(|stripe| stripe.release(ends));
    }

    /// The seal failed: the late samples that were set aside are late again, where no newer one came. The barrier stays.
    pub(super) fn reopen(&self) {
        self.change_all(Stripe::reopen);
    }

    /// The greatest time of a sample.
    pub(super) fn greatest_ms(&self) -> Option<i64> {
        self.bounds().map(|span| span.last)
    }

    /// The least time of a sample that no segment has.
    pub(super) fn least_ms(&self) -> Option<i64> {
        self.bounds().map(|span| span.first)
    }

    fn bounds(&self) -> Option<Span> {
        let stripes = self.spans().stripes;
        let bounds = |stripe: &Arc<RwLock<Stripe>>| stripe.read().ignore_poison().bounds();
        stripes.iter().filter_map(bounds).reduce(Span::with)
    }

    /// Removes the samples of a series inside `range`; those that come later are new ones.
    pub(super) fn delete(&self, series: u32, range: TimeRange) {
        if let Some(stripe) = self.stripe(series) {
            self.change(&stripe, |stripe| stripe.delete(slot(series), range));
        }
    }

    fn change_all(&self, mut change: impl FnMut(&mut Stripe)) {
        for stripe in self.spans().stripes {
            self.change(&stripe, &mut change);
        }
    }

    fn change<T>(&self, stripe: &RwLock<Stripe>, change: impl FnOnce(&mut Stripe) -> T) -> T {
        let mut stripe = stripe.write().ignore_poison();
        stripe.sparing = self.sparing.load(Ordering::Relaxed);
        let before = stripe.size();
        let out = change(&mut stripe);
        self.count(before, stripe.size());
        out
    }

    /// The stripe of a series, if it has samples.
    pub(super) fn stripe(&self, series: u32) -> Option<Arc<RwLock<Stripe>>> {
        let stripes = self.stripes.read().ignore_poison();
        stripes.get((series / STRIPE_SERIES) as usize).map(Arc::clone)
    }

    fn stripe_or_new(&self, series: u32) -> Arc<RwLock<Stripe>> {
        if let Some(stripe) = self.stripe(series) {
            return stripe;
        }
        let mut stripes = self.stripes.write().ignore_poison();
        let place = (series / STRIPE_SERIES) as usize;
        if stripes.len() <= place {
            stripes.resize_with(place + 1, Arc::default);
        }
        // The place was just made; the default is never shared.
        stripes.get(place).map(Arc::clone).unwrap_or_default()
    }

    /// Puts the samples of one record in, in their order. `skip` says which series have this record already.
    pub(super) fn apply(&self, seq: u64, samples: &[LogSample], skip: impl Fn(u32) -> bool) -> ApplyOutcome {
        self.apply_to(|_| true, seq, samples, skip)
    }

    /// As [`Head::apply`], to those stripes alone whose numbers `takes` takes. Stripes know nothing of each other: what
    /// becomes of one depends on the records that it is given, in their order.
    pub(super) fn apply_to(
        &self,
        takes: impl Fn(u32) -> bool,
        seq: u64,
        samples: &[LogSample],
        skip: impl Fn(u32) -> bool,
    ) -> ApplyOutcome {
        let mut outcome = ApplyOutcome::default();
        let (barrier, sparing) = (self.barrier(), self.sparing.load(Ordering::Relaxed));
        let mut rest = samples;
        while let Some(first) = rest.first() {
            let number = first.series / STRIPE_SERIES;
            let count = rest.iter().take_while(|s| s.series / STRIPE_SERIES == number).count();
            let (here, after) = rest.split_at(count);
            rest = after;
            if !takes(number) {
                continue;
            }
            let stripe = self.stripe_or_new(first.series);
            let mut stripe = stripe.write().ignore_poison();
            stripe.sparing = sparing;
            let before = stripe.size();
            for sample in here {
                if skip(sample.series) {
                    continue;
                }
                match stripe.put(slot(sample.series), sample.at_ms, sample.bits, barrier) {
                    Put::Stored => outcome.stored += 1,
                    Put::Refused { have } => {
                        outcome.refused += 1;
                        if outcome.first.len() < FIRST_MAX {
                            let LogSample { series, at_ms, bits } = *sample;
                            outcome.first.push(RefusedSample { series, at_ms, bits, have });
                        }
                    }
                }
            }
            stripe.applied_seq = seq;
            self.count(before, stripe.size());
        }
        outcome
    }

    fn count(&self, before: stripe::Size, after: stripe::Size) {
        let counters = &self.counters;
        // Sums wrap, so a difference below zero is added as well as one above.
        let add = |counter: &AtomicU64, before: u64, after: u64| {
            counter.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        };
        add(&counters.samples, before.samples, after.samples);
        add(&counters.late, before.late, after.late);
        add(&counters.bytes, before.bytes, after.bytes);
        add(&self.total_bytes, before.bytes, after.bytes);
    }

    /// Changes one stripe, as loading a checkpoint does.
    pub(super) fn load<T>(&self, series: u32, change: impl FnOnce(&mut Stripe) -> T) -> T {
        self.change(&self.stripe_or_new(series), change)
    }

    /// A reader that keeps to one stripe's lock while it can.
    pub(super) fn spans(&self) -> Spans {
        Spans { stripes: self.stripes.read().ignore_poison().clone() }
    }
}

/// A series' place in its stripe.
pub(super) const fn slot(series: u32) -> usize {
    (series % STRIPE_SERIES) as usize
}

/// The stripes as they are now, for questions about many series.
pub(super) struct Spans {
    stripes: Vec<Arc<RwLock<Stripe>>>,
}

impl Spans {
    /// All of them, in order.
    pub(super) fn stripes(&self) -> impl Iterator<Item = &RwLock<Stripe>> {
        self.stripes.iter().map(|stripe| &**stripe)
    }

    /// The stripe of this number, if any of its series has samples.
    pub(super) fn stripe(&self, number: u32) -> Option<&RwLock<Stripe>> {
        self.stripes.get(number as usize).map(|stripe| &**stripe)
    }
}

#[cfg(test)]
mod tests;
