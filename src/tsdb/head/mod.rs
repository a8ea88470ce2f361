//! The writable window: every sample that is not in a segment, in memory.
//!
//! * [`stripe`]: 1,024 consecutive series as struct of arrays, behind one lock.
//! * [`Head`]: the stripes of one organisation.
//!
//! One thread writes (the applier, in log order; at start the replay), so what becomes of a sample is a function of the
//! log: later than the series' last one, it is appended; at the same time, it is a duplicate (same bits) or refused;
//! earlier, it is a late sample, kept beside the chunks and merged when read (STORAGE.md section 11). Until segments
//! exist the head keeps everything.

pub(super) mod stripe;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use stripe::{Put, Span, Stripe};

use super::wal::log::{Outcome, RefusedSample};
use super::wal::samples::LogSample;
use crate::model::TimeRange;

/// Series of a stripe: a lock is held for at most so many appends. A multiple of the 32 of a checkpoint's row.
pub(super) const STRIPE_SERIES: u32 = 1_024;
/// Refused samples that are named.
const FIRST_MAX: usize = 10;

/// The samples of one organisation.
#[derive(Debug, Default)]
pub(super) struct Head {
    stripes: RwLock<Vec<Arc<RwLock<Stripe>>>>,
    pub(super) counters: HeadCounters,
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
    /// The stripe of a series, if it has samples.
    pub(super) fn stripe(&self, series: u32) -> Option<Arc<RwLock<Stripe>>> {
        let stripes = self.stripes.read().unwrap_or_else(PoisonError::into_inner);
        stripes.get((series / STRIPE_SERIES) as usize).map(Arc::clone)
    }

    fn stripe_or_new(&self, series: u32) -> Arc<RwLock<Stripe>> {
        if let Some(stripe) = self.stripe(series) {
            return stripe;
        }
        let mut stripes = self.stripes.write().unwrap_or_else(PoisonError::into_inner);
        let place = (series / STRIPE_SERIES) as usize;
        if stripes.len() <= place {
            stripes.resize_with(place + 1, Arc::default);
        }
        // The place was just made; the default is never shared.
        stripes.get(place).map(Arc::clone).unwrap_or_default()
    }

    /// Puts the samples of one record in, in their order. `skip` says which series have this record already.
    pub(super) fn apply(&self, seq: u64, samples: &[LogSample], skip: impl Fn(u32) -> bool) -> Outcome {
        let mut outcome = Outcome::default();
        let mut rest = samples;
        while let Some(first) = rest.first() {
            let number = first.series / STRIPE_SERIES;
            let count = rest.iter().take_while(|s| s.series / STRIPE_SERIES == number).count();
            let (here, after) = rest.split_at(count);
            rest = after;
            let stripe = self.stripe_or_new(first.series);
            let mut stripe = stripe.write().unwrap_or_else(PoisonError::into_inner);
            let before = stripe.size();
            for sample in here {
                if skip(sample.series) {
                    continue;
                }
                match stripe.put(slot(sample.series), sample.at_ms, sample.bits) {
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
        counters.samples.fetch_add(after.samples - before.samples, Ordering::Relaxed);
        counters.late.fetch_add(after.late - before.late, Ordering::Relaxed);
        counters.bytes.fetch_add(after.bytes.saturating_sub(before.bytes), Ordering::Relaxed);
        counters.bytes.fetch_sub(before.bytes.saturating_sub(after.bytes), Ordering::Relaxed);
    }

    /// Changes one stripe, as loading a checkpoint does.
    pub(super) fn load<T>(&self, series: u32, change: impl FnOnce(&mut Stripe) -> T) -> T {
        let stripe = self.stripe_or_new(series);
        let mut stripe = stripe.write().unwrap_or_else(PoisonError::into_inner);
        let before = stripe.size();
        let out = change(&mut stripe);
        self.count(before, stripe.size());
        out
    }

    /// A reader that keeps to one stripe's lock while it can.
    pub(super) fn spans(&self) -> Spans {
        Spans { stripes: self.stripes.read().unwrap_or_else(PoisonError::into_inner).clone() }
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
    /// Calls `found` for each of the series that has samples between its ends in `range`; ids in any order, runs of
    /// one stripe under one lock.
    pub(super) fn overlapping(&self, series: &[u32], range: TimeRange, mut found: impl FnMut(usize, Span)) {
        let mut held: Option<(u32, RwLockReadGuard<'_, Stripe>)> = None;
        for (place, id) in series.iter().enumerate() {
            let number = id / STRIPE_SERIES;
            if held.as_ref().is_none_or(|(have, _)| *have != number) {
                drop(held.take());
                let Some(stripe) = self.stripes.get(number as usize) else { continue };
                held = Some((number, stripe.read().unwrap_or_else(PoisonError::into_inner)));
            }
            let span = held.as_ref().and_then(|(_, stripe)| stripe.span(slot(*id)));
            if let Some(span) = span.filter(|span| span.overlaps(range)) {
                found(place, span);
            }
        }
    }
}
