//! The head: every sample that is not in a segment yet, in memory.
//!
//! * [`stripe`]: 1,024 consecutive series behind one lock. [`slots`] has their newest samples as a
//!   struct of arrays; [`record`] and [`arena`] have the compressed samples before them.
//! * [`Head`]: the stripes of one organisation.
//!
//! Samples are applied by one thread, in log order, or by a replay at start, so the outcome for a
//! sample is a function of the log. The rules, in this order: a sample before the barrier is late;
//! one after the last sample of its series is appended; one at the same time is a duplicate if the
//! bits are equal, and refused otherwise; an earlier one is late. Late samples are stored
//! separately and merged by readers. At equal times, the last one written wins (docs/storage.md
//! section 11).
//!
//! A seal takes samples from the head in four steps. [`Head::close_window`] raises the barrier and
//! freezes the late samples, so that the samples before the barrier no longer change.
//! [`Head::copy_closed`] returns these samples. Once they are in a segment,
//! [`Head::release_closed`] removes exactly these; if there is no segment, [`Head::reopen`] makes
//! the frozen samples late again.

mod arena;
mod backwards;
mod record;
mod slots;
pub(super) mod stripe;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};

use stripe::{PutResult, SealBounds, Span, Stripe};

use super::report::SampleColumns;
use super::wal::log::{ApplyOutcome, RefusedSample};
use super::wal::samples::LogSample;
use crate::model::TimeRange;
use crate::sync::IgnorePoison as _;

/// The series of a stripe, which bounds the appends under one lock. It is a multiple of the 32
/// series of a checkpoint's row.
pub(super) const STRIPE_SERIES: u32 = 1_024;

/// The samples of one organisation.
#[derive(Debug)]
pub(super) struct Head {
    /// Shared with readers, so that a read of many series copies no pointers. A new stripe copies
    /// the list only if a reader has it.
    stripes: RwLock<Arc<Vec<Arc<RwLock<Stripe>>>>>,
    barrier: AtomicI64,
    /// Whether the current seal takes samples of any time.
    closes_all: AtomicBool,
    /// Whether tails are kept short, as during a start, when memory matters and there are no
    /// readers.
    short_tails: AtomicBool,
    pub(super) counters: HeadCounters,
    /// The memory of all heads of the process, in bytes.
    total_bytes: Arc<AtomicU64>,
}

/// The content of the head. Only the writing thread changes it.
#[derive(Debug, Default)]
pub(super) struct HeadCounters {
    pub(super) samples: AtomicU64,
    pub(super) late: AtomicU64,
    /// The estimated memory, in bytes.
    pub(super) bytes: AtomicU64,
}

impl Head {
    pub(super) fn new(total_bytes: Arc<AtomicU64>, short_tails: bool) -> Head {
        Head {
            stripes: RwLock::default(),
            barrier: AtomicI64::new(i64::MIN),
            closes_all: AtomicBool::new(false),
            short_tails: AtomicBool::new(short_tails),
            counters: HeadCounters::default(),
            total_bytes,
        }
    }

    /// Sets whether tails are kept short from now on. Existing tails do not change, but grow with
    /// new samples.
    pub(super) fn set_short_tails(&self, short_tails: bool) {
        self.short_tails.store(short_tails, Ordering::Relaxed);
    }

    /// Returns the time before which samples are late; `i64::MIN` if there is no barrier.
    pub(super) fn barrier(&self) -> i64 {
        self.barrier.load(Ordering::Acquire)
    }

    /// Raises the barrier to `until_ms` and freezes the late samples. Only the writing thread calls
    /// it, between records.
    pub(super) fn close_window(&self, until_ms: i64) {
        self.barrier.fetch_max(until_ms, Ordering::AcqRel);
        self.closes_all.store(false, Ordering::Release);
        self.change_all(Stripe::freeze);
    }

    /// Sets the barrier to `until_ms`, earlier or later, and closes all samples: samples in order
    /// at or after the barrier are frozen like late ones. Only the writing thread calls it, between
    /// records.
    pub(super) fn close_all(&self, until_ms: i64) {
        self.set_barrier(until_ms);
        self.closes_all.store(true, Ordering::Release);
        self.change_all(|stripe| stripe.freeze_all(until_ms));
    }

    /// Sets the barrier of a head that is loaded from a checkpoint.
    pub(super) fn set_barrier(&self, until_ms: i64) {
        self.barrier.store(until_ms, Ordering::Release);
    }

    /// Returns the end of the samples that the current seal takes.
    fn seal_bounds(&self) -> SealBounds {
        let until = self.barrier();
        let late_end = if self.closes_all.load(Ordering::Acquire) { i64::MAX } else { until };
        SealBounds { until, late_end }
    }

    /// Appends to `out` the samples that a seal takes of a series: all samples before the barrier
    /// that arrived before the window was closed, in ascending order, one per time.
    pub(super) fn copy_closed(&self, series: u32, out: &mut SampleColumns) {
        if let Some(stripe) = self.stripe(series) {
            let stripe = stripe.read().ignore_poison();
            stripe.copy_closed(slot(series), self.seal_bounds(), out);
        }
    }

    /// Follows the chains of records of some series, to load them into the processor's cache, and
    /// returns the number of records.
    ///
    /// The records are scattered, and each has the link to the previous one. Chains are followed
    /// in turns, so that several loads overlap.
    pub(super) fn touch(&self, series: &[u32]) -> usize {
        let number = |series: &u32| series / STRIPE_SERIES;
        let stripes: BTreeMap<u32, Arc<RwLock<Stripe>>> =
            series.iter().filter_map(|series| Some((number(series), self.stripe(*series)?))).collect();
        // Each stripe is locked once: a second read lock while a writer waits could deadlock.
        let locked: BTreeMap<u32, RwLockReadGuard<'_, Stripe>> =
            stripes.iter().map(|(number, stripe)| (*number, stripe.read().ignore_poison())).collect();
        stripe::touch(series.iter().filter_map(|id| Some((&**locked.get(&number(id))?, slot(*id)))))
    }

    /// Removes exactly the samples that [`Head::copy_closed`] returns, and records the barrier in
    /// every stripe. Frozen late samples at or after the barrier are late again, unless there is a
    /// newer sample of the same time.
    pub(super) fn release_closed(&self) {
        let bounds = self.seal_bounds();
        self.change_all(|stripe| stripe.release(bounds));
    }

    /// Undoes the freeze after a failed seal: frozen samples are late again, unless there is a
    /// newer sample of the same time. The barrier stays.
    pub(super) fn reopen(&self) {
        self.change_all(Stripe::reopen);
    }

    /// Returns the greatest time of a sample.
    pub(super) fn greatest_ms(&self) -> Option<i64> {
        self.bounds().map(|span| span.last)
    }

    /// Returns the least time of a sample that no segment has.
    pub(super) fn least_ms(&self) -> Option<i64> {
        self.bounds().map(|span| span.first)
    }

    fn bounds(&self) -> Option<Span> {
        let bounds = |stripe: &RwLock<Stripe>| stripe.read().ignore_poison().bounds();
        self.spans().stripes().filter_map(bounds).reduce(Span::with)
    }

    /// Removes the samples of a series inside `range`. Later samples in that range are stored as
    /// new ones.
    pub(super) fn delete(&self, series: u32, range: TimeRange) {
        if let Some(stripe) = self.stripe(series) {
            self.change(&stripe, |stripe| stripe.delete(slot(series), range));
        }
    }

    fn change_all(&self, mut change: impl FnMut(&mut Stripe)) {
        for stripe in self.spans().stripes() {
            self.change(stripe, &mut change);
        }
    }

    fn change<T>(&self, stripe: &RwLock<Stripe>, change: impl FnOnce(&mut Stripe) -> T) -> T {
        let mut stripe = stripe.write().ignore_poison();
        stripe.short_tails = self.short_tails.load(Ordering::Relaxed);
        let before = stripe.size();
        let out = change(&mut stripe);
        self.count(before, stripe.size());
        out
    }

    /// Returns the stripe of a series, if it exists.
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
            Arc::make_mut(&mut stripes).resize_with(place + 1, Arc::default);
        }
        // The stripe was just created, so the default, which is not shared, is never used.
        stripes.get(place).map(Arc::clone).unwrap_or_default()
    }

    /// Applies the samples of one record in order. `skip` returns whether a series already has this
    /// record.
    pub(super) fn apply(&self, seq: u64, samples: &[LogSample], skip: impl Fn(u32) -> bool) -> ApplyOutcome {
        self.apply_to(|_| true, seq, samples, skip)
    }

    /// Like [`Head::apply`], only for the stripes for whose number `takes` returns true. Stripes
    /// are independent: the state of one depends only on the records that it is given, in their
    /// order.
    pub(super) fn apply_to(
        &self,
        takes: impl Fn(u32) -> bool,
        seq: u64,
        samples: &[LogSample],
        skip: impl Fn(u32) -> bool,
    ) -> ApplyOutcome {
        let mut outcome = ApplyOutcome::default();
        let (barrier, short_tails) = (self.barrier(), self.short_tails.load(Ordering::Relaxed));
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
            stripe.short_tails = short_tails;
            let before = stripe.size();
            for sample in here {
                if skip(sample.series) {
                    continue;
                }
                match stripe.put(slot(sample.series), sample.at_ms, sample.bits, barrier) {
                    PutResult::Stored => outcome.stored += 1,
                    PutResult::Refused { have } => {
                        let LogSample { series, at_ms, bits } = *sample;
                        outcome.refuse(RefusedSample { series, at_ms, bits, have });
                    }
                }
            }
            stripe.applied_seq = seq;
            self.count(before, stripe.size());
        }
        outcome
    }

    /// Removes the samples that [`Head::apply`] would refuse as duplicates if it were called now,
    /// and returns its outcome for them. `samples` are in ascending order of series.
    ///
    /// A sample is kept if an earlier one of its series is, because that one changes the outcome.
    pub(super) fn take_duplicates(&self, samples: &mut Vec<LogSample>) -> ApplyOutcome {
        let mut outcome = ApplyOutcome::default();
        let (barrier, spans) = (self.barrier(), self.spans());
        let mut kept = None;
        let all = std::mem::take(samples);
        for here in all.chunk_by(|a, b| a.series / STRIPE_SERIES == b.series / STRIPE_SERIES) {
            let stripe = here.first().and_then(|first| spans.stripe(first.series / STRIPE_SERIES));
            let stripe = stripe.map(|stripe| stripe.read().ignore_poison());
            for sample in here {
                let LogSample { series, at_ms, bits } = *sample;
                let have = match &stripe {
                    Some(stripe) if kept != Some(series) => {
                        stripe.refuses(slot(series), at_ms, bits, barrier)
                    }
                    _ => None,
                };
                match have {
                    Some(have) => outcome.refuse(RefusedSample { series, at_ms, bits, have }),
                    None => {
                        kept = Some(series);
                        samples.push(*sample);
                    }
                }
            }
        }
        outcome
    }

    /// Returns time and bits of the newest sample of a series in order.
    pub(super) fn newest(&self, series: u32) -> Option<(i64, u64)> {
        self.stripe(series)?.read().ignore_poison().newest(slot(series))
    }

    fn count(&self, before: stripe::Size, after: stripe::Size) {
        let counters = &self.counters;
        // The sums wrap, so a negative difference is added correctly, too.
        let add = |counter: &AtomicU64, before: u64, after: u64| {
            counter.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        };
        add(&counters.samples, before.samples, after.samples);
        add(&counters.late, before.late, after.late);
        add(&counters.bytes, before.bytes, after.bytes);
        add(&self.total_bytes, before.bytes, after.bytes);
    }

    /// Changes one stripe, for loading a checkpoint.
    pub(super) fn load<T>(&self, series: u32, change: impl FnOnce(&mut Stripe) -> T) -> T {
        self.change(&self.stripe_or_new(series), change)
    }

    /// Returns the current stripes, for reads of many series.
    pub(super) fn spans(&self) -> Spans {
        Spans { stripes: Arc::clone(&self.stripes.read().ignore_poison()) }
    }
}

/// Returns a series' index in its stripe.
pub(super) const fn slot(series: u32) -> usize {
    (series % STRIPE_SERIES) as usize
}

/// The stripes at one moment, for reads of many series.
pub(super) struct Spans {
    stripes: Arc<Vec<Arc<RwLock<Stripe>>>>,
}

impl Spans {
    /// Returns all stripes in order.
    pub(super) fn stripes(&self) -> impl Iterator<Item = &RwLock<Stripe>> {
        self.stripes.iter().map(|stripe| &**stripe)
    }

    /// Returns the stripe of this number, if it exists.
    pub(super) fn stripe(&self, number: u32) -> Option<&RwLock<Stripe>> {
        self.stripes.get(number as usize).map(|stripe| &**stripe)
    }
}

#[cfg(test)]
mod tests;
