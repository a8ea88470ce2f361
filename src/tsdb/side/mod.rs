//! What few series have, beside the head: native histograms, start timestamps, exemplars; by series id.
//!
//! * [`histograms`]: chunks of [`chunk`]s, late ones beside them; closed by a seal as the head's floats are.
//! * [`starts`]: change points; [`points`]: those that came for times that were sealed already.
//! * [`exemplars`]: a ring for each series. Segments have them, too, so that a start finds them; readers are told of those
//!   in the rings alone.
//! * [`sealed`]: all of these in segments.
//! * [`record`]: the bodies of their log records; [`admit`]: from a request to those; [`rows`]: checkpoints.
//!
//! **One value a time.** Floats and histograms of a series keep to their own order; where both have the same time, the
//! histogram is what a reader sees. So neither path asks the other, and the path of floats pays one flag.

pub(super) mod admit;
pub(super) mod chunk;
pub(super) mod exemplars;
pub(super) mod histograms;
mod late;
pub(super) mod points;
pub(super) mod record;
pub(super) mod rows;
pub(super) mod sealed;
pub(super) mod starts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use exemplars::{Exemplars, Newest};
use histograms::{Histograms, PutHistogram};
use points::Points;
use record::LogStart;
use starts::Starts;

use super::error::Damage;
use super::head::stripe::Span;
use super::wal::log::ApplyOutcome;
use super::wal::record::RecordKind;
use crate::model::{HistogramColumns, TimeRange};
use crate::sync::IgnorePoison as _;

/// Series of a stripe, as many as in the head's: ids of one are locked together.
const STRIPE_SERIES: u32 = super::head::STRIPE_SERIES;
/// Refused histograms that are named.
const FIRST_MAX: usize = 10;

/// The side table of one organisation. Written by the applying thread alone.
#[derive(Debug)]
pub(super) struct Side {
    stripes: RwLock<BTreeMap<u32, Arc<RwLock<Stripe>>>>,
    exemplars: Mutex<Exemplars>,
    barrier: AtomicI64,
    /// The seal at work takes samples of any time.
    closes_all: AtomicBool,
    /// Where the segments end that the seal at work writes.
    end_ms: AtomicI64,
    /// Whether any series ever had a histogram: what readers of floats ask first.
    any: AtomicBool,
    pub(super) counters: SideCounters,
    /// The process' budget, which heads share.
    shared_bytes: Arc<AtomicU64>,
}

/// What the side table holds.
#[derive(Debug, Default)]
pub(super) struct SideCounters {
    /// Histograms, late ones included.
    pub(super) histograms: AtomicU64,
    pub(super) late: AtomicU64,
    /// Estimated memory.
    pub(super) bytes: AtomicU64,
    /// Exemplars held.
    pub(super) exemplars: AtomicU64,
    /// Exemplars that came too late, or too long, or twice.
    pub(super) exemplars_dropped: AtomicU64,
}

/// Neighbouring series.
#[derive(Debug, Default)]
pub(super) struct Stripe {
    /// The last record that touched it.
    pub(super) applied_seq: u64,
    series: BTreeMap<u32, Series>,
}

/// One series.
#[derive(Debug, Default)]
struct Series {
    histograms: Histograms,
    starts: Starts,
    /// What of it is counted.
    counted: Counted,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    histograms: u64,
    late: u64,
    bytes: u64,
}

impl Side {
    /// An empty one that counts its memory into `shared_bytes`, too.
    pub(super) fn new(shared_bytes: Arc<AtomicU64>) -> Side {
        Side {
            stripes: RwLock::default(),
            exemplars: Mutex::default(),
            barrier: AtomicI64::new(i64::MIN),
            closes_all: AtomicBool::new(false),
            end_ms: AtomicI64::new(i64::MIN),
            any: AtomicBool::new(false),
            counters: SideCounters::default(),
            shared_bytes,
        }
    }
}

fn move_by(counter: &AtomicU64, before: u64, now: u64) {
    counter.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
    counter.fetch_sub(before.saturating_sub(now), Ordering::Relaxed);
}

// Poisoned locks are taken over: the applying thread is the only writer, and its end closes the log.
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().ignore_poison()
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().ignore_poison()
}

impl Side {
    /// Whether a reader of floats has to look here at all.
    pub(super) fn has_histograms(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// The exemplars of the organisation.
    pub(super) fn exemplars(&self) -> MutexGuard<'_, Exemplars> {
        self.exemplars.lock().ignore_poison()
    }

    /// The exemplars if they are free at once.
    pub(super) fn try_exemplars(&self) -> Option<MutexGuard<'_, Exemplars>> {
        self.exemplars.try_lock().ignore_poison()
    }

    fn stripe(&self, series: u32) -> Option<Arc<RwLock<Stripe>>> {
        read(&self.stripes).get(&(series / STRIPE_SERIES)).map(Arc::clone)
    }

    fn stripe_or_new(&self, series: u32) -> Arc<RwLock<Stripe>> {
        self.stripe(series)
            .unwrap_or_else(|| Arc::clone(write(&self.stripes).entry(series / STRIPE_SERIES).or_default()))
    }

    fn all(&self) -> Vec<Arc<RwLock<Stripe>>> {
        read(&self.stripes).values().map(Arc::clone).collect()
    }

    /// Changes one series, and counts what that did.
    fn change<T>(&self, seq: u64, id: u32, change: impl FnOnce(&mut Series) -> T) -> T {
        let stripe = self.stripe_or_new(id);
        let mut stripe = write(&stripe);
        stripe.applied_seq = stripe.applied_seq.max(seq);
        let series = stripe.series.entry(id).or_default();
        let out = change(series);
        self.count(series);
        out
    }

    fn count(&self, series: &mut Series) {
        let (in_order, late) = series.histograms.counts();
        let bytes = series.histograms.memory() + series.starts.memory();
        let now = Counted { histograms: in_order + late, late, bytes };
        let before = std::mem::replace(&mut series.counted, now);
        move_by(&self.counters.histograms, before.histograms, now.histograms);
        move_by(&self.counters.late, before.late, now.late);
        self.count_bytes(before.bytes, now.bytes);
    }

    fn count_bytes(&self, before: u64, now: u64) {
        move_by(&self.counters.bytes, before, now);
        move_by(&self.shared_bytes, before, now);
    }

    /// Changes the exemplars, and counts what that did.
    fn change_exemplars<T>(&self, change: impl FnOnce(&mut Exemplars) -> T) -> T {
        let mut exemplars = self.exemplars();
        let before = exemplars.bytes();
        let out = change(&mut exemplars);
        self.count_bytes(before, exemplars.bytes());
        self.counters.exemplars.store(exemplars.count() as u64, Ordering::Relaxed);
        out
    }

    /// Does what a record says. `knows`: whether anything defines a series; `skip`: whether a sample of a series at a
    /// time is in a checkpoint or segment already; `arrived` is told the time of each histogram that came.
    ///
    /// # Errors
    /// [`Damage`] where the body is not what its kind says, though its checksum holds.
    pub(super) fn apply(
        &self,
        (seq, kind, body): (u64, RecordKind, &[u8]),
        knows: impl Fn(u32) -> bool,
        skip: impl Fn(u32, i64) -> bool,
        arrived: impl Fn(i64),
    ) -> Result<ApplyOutcome, Damage> {
        let mut outcome = ApplyOutcome::default();
        match kind {
            RecordKind::Histograms => {
                self.apply_histograms((seq, body), knows, skip, arrived, &mut outcome)?
            }
            RecordKind::Starts => {
                let barrier = self.barrier.load(Ordering::Relaxed);
                record::decode_starts(body, |LogStart { series, at_ms, start_ms }| {
                    if skip(series, at_ms) {
                        return;
                    }
                    if knows(series) {
                        self.change(seq, series, |series| series.starts.put(at_ms, start_ms, seq, barrier));
                    } else {
                        outcome.orphans += 1;
                    }
                })?;
            }
            RecordKind::Exemplars => {
                let mut dropped = 0;
                self.change_exemplars(|exemplars| {
                    record::decode_exemplars(body, |series, exemplar| {
                        // One that is there already changes nothing: no need to know what a checkpoint has.
                        if !knows(series) {
                            outcome.orphans += u64::from(!skip(series, exemplar.at.as_ms()));
                        } else if exemplars.has(series, &exemplar) || exemplars.put(series, exemplar) {
                            outcome.exemplars += 1;
                        } else {
                            dropped += 1;
                        }
                    })
                })?;
                self.counters.exemplars_dropped.fetch_add(dropped, Ordering::Relaxed);
            }
            _ => {}
        }
        Ok(outcome)
    }

    fn apply_histograms(
        &self,
        (seq, body): (u64, &[u8]),
        knows: impl Fn(u32) -> bool,
        skip: impl Fn(u32, i64) -> bool,
        arrived: impl Fn(i64),
        outcome: &mut ApplyOutcome,
    ) -> Result<(), Damage> {
        let barrier = self.barrier.load(Ordering::Relaxed);
        record::decode_histograms(body, |id, mut decoder| {
            if !knows(id) {
                // As of floats: those that segments have are nobody's loss.
                while let Some(at) = decoder.advance()? {
                    outcome.orphans += u64::from(!skip(id, at));
                }
                return Ok(());
            }
            self.any.store(true, Ordering::Release);
            self.change(seq, id, |series| {
                while let Some((at, histogram)) = decoder.next()? {
                    if skip(id, at) {
                        continue;
                    }
                    arrived(at);
                    match series.histograms.put(at, histogram, barrier) {
                        PutHistogram::Stored => {
                            outcome.stored += 1;
                            outcome.histograms += 1;
                        }
                        PutHistogram::Refused => {
                            outcome.refused += 1;
                            if outcome.first_histograms.len() < FIRST_MAX {
                                outcome.first_histograms.push((id, at));
                            }
                        }
                    }
                }
                Ok(())
            })
        })
    }

    /// Appends the histograms of a series in a range to `out`.
    pub(super) fn read_histograms(&self, id: u32, range: TimeRange, out: &mut HistogramColumns) {
        let Some(stripe) = self.stripe(id) else { return };
        if let Some(series) = read(&stripe).series.get(&id) {
            series.histograms.read(range.start.as_ms(), range.end.as_ms(), out);
        }
    }

    /// Appends the start timestamps of a series: changes, and what came for times that were sealed.
    pub(super) fn starts(&self, id: u32, changes: &mut Vec<(i64, i64)>, late: &mut Points) {
        let Some(stripe) = self.stripe(id) else { return };
        if let Some(series) = read(&stripe).series.get(&id) {
            series.starts.copy_all(changes, late);
        }
    }

    /// Least and greatest time of a series' histograms.
    pub(super) fn span(&self, id: u32) -> Option<Span> {
        let stripe = self.stripe(id)?;
        let stripe = read(&stripe);
        let (first, last) = stripe.series.get(&id)?.histograms.span()?;
        Some(Span { first, last })
    }

    // --- The seal: what `Head` has for floats.

    /// Raises the barrier; sets aside what came late.
    pub(super) fn close_window(&self, until_ms: i64) {
        self.barrier.fetch_max(until_ms, Ordering::Relaxed);
        self.closes_all.store(false, Ordering::Relaxed);
        self.each_series(|_, series, _| {
            series.histograms.freeze();
            series.starts.close();
        });
        self.exemplars().close();
    }

    /// Sets the barrier to `until_ms`, earlier or later, and closes everything that is there.
    pub(super) fn close_all(&self, until_ms: i64) {
        self.set_barrier(until_ms);
        self.closes_all.store(true, Ordering::Relaxed);
        self.each_series(|_, series, barrier| {
            series.histograms.freeze_all(barrier);
            series.starts.close_all(barrier);
        });
        self.exemplars().close();
    }

    /// Sets the barrier of a table that a checkpoint is loaded into.
    pub(super) fn set_barrier(&self, until_ms: i64) {
        self.barrier.store(until_ms, Ordering::Relaxed);
    }

    /// The barrier, and where the late histograms end that the seal at work takes.
    fn ends(&self) -> (i64, i64) {
        let barrier = self.barrier.load(Ordering::Relaxed);
        (barrier, if self.closes_all.load(Ordering::Relaxed) { i64::MAX } else { barrier })
    }

    fn each_series(&self, change: impl Fn(u32, &mut Series, i64)) {
        let barrier = self.barrier.load(Ordering::Relaxed);
        for stripe in self.all() {
            for (id, series) in &mut write(&stripe).series {
                change(*id, series, barrier);
                self.count(series);
            }
        }
    }

    /// The series of which a seal has something to take, ascending.
    pub(super) fn closed_series(&self) -> Vec<u32> {
        let (barrier, late_end) = self.ends();
        let mut found = BTreeSet::new();
        for stripe in self.all() {
            for (id, series) in &read(&stripe).series {
                let before = series.histograms.span().is_some_and(|(first, _)| first < late_end);
                if before || series.starts.has_closed(barrier) {
                    found.insert(*id);
                }
            }
        }
        found.into_iter().collect()
    }

    /// There are so many histograms in a segment.
    pub(super) fn note_sealed(&self, histograms: u64) {
        if histograms > 0 {
            self.any.store(true, Ordering::Release);
        }
    }

    /// Takes exemplars over from segments, the last of which end before `ends_ms`.
    pub(super) fn load_exemplars(&self, newest: Newest, ends_ms: i64) {
        self.note_end(ends_ms.saturating_sub(1));
        self.change_exemplars(|exemplars| {
            for (series, exemplar) in newest.into_sorted() {
                exemplars.put(series, exemplar);
            }
            exemplars.close();
            exemplars.release(ends_ms);
        });
    }

    /// Takes note of where the segments end that a seal writes next.
    pub(super) fn note_end(&self, end_ms: i64) {
        self.end_ms.store(end_ms, Ordering::Relaxed);
    }

    /// What [`Side::note_end`] was told.
    pub(super) fn end(&self) -> i64 {
        self.end_ms.load(Ordering::Relaxed)
    }

    /// Whether a seal has anything to take.
    pub(super) fn has_closed(&self) -> bool {
        !self.closed_series().is_empty() || !self.exemplars().closed().is_empty()
    }

    /// Appends what a seal takes of one series: histograms and start timestamps before the barrier.
    pub(super) fn copy_closed(
        &self,
        id: u32,
        histograms: &mut HistogramColumns,
        (changes, late): (&mut Vec<(i64, i64)>, &mut Points),
    ) {
        let (barrier, late_end) = self.ends();
        let Some(stripe) = self.stripe(id) else { return };
        if let Some(series) = read(&stripe).series.get(&id) {
            series.histograms.copy_closed((barrier, late_end), histograms);
            series.starts.copy_closed(barrier, changes, late);
        }
    }

    /// Lets go of exactly what [`Side::copy_closed`] gave, but for each series' last start timestamp.
    pub(super) fn release_closed(&self) {
        let (barrier, late_end) = self.ends();
        for stripe in self.all() {
            let mut stripe = write(&stripe);
            for series in stripe.series.values_mut() {
                series.histograms.release((barrier, late_end));
                series.starts.release(barrier);
                self.count(series);
            }
        }
        self.exemplars().release(self.end().saturating_add(1));
    }

    /// The seal failed: what came late goes back; the barrier stays.
    pub(super) fn reopen(&self) {
        self.each_series(|_, series, _| {
            series.histograms.thaw();
            series.starts.reopen();
        });
    }

    /// Least and greatest time of any histogram here.
    pub(super) fn extent(&self) -> Option<(i64, i64)> {
        let stripes = self.all();
        let spans = stripes.iter().flat_map(|stripe| {
            read(stripe).series.values().filter_map(|series| series.histograms.span()).collect::<Vec<_>>()
        });
        spans.reduce(|(first, last), (least, greatest)| (first.min(least), last.max(greatest)))
    }

    /// Removes exemplars of a series in a range.
    pub(super) fn delete_exemplars(&self, id: u32, range: TimeRange) {
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        self.change_exemplars(|exemplars| exemplars.delete(id, start, end));
    }

    /// Removes histograms of a series in a range.
    pub(super) fn delete(&self, id: u32, range: TimeRange) {
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        if let Some(stripe) = self.stripe(id)
            && let Some(series) = write(&stripe).series.get_mut(&id)
        {
            series.histograms.delete(start, end);
            self.count(series);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
