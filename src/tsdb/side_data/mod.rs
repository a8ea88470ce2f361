//! Data that few series have, by series id: native histograms, start timestamps, exemplars. The
//! table is stored next to the head.
//!
//! * [`histograms`]: [`histogram_chunk`]s, and late histograms; a seal closes them as it closes the
//!   floats of the head.
//! * [`start_timestamps`]: change points; [`late_starts`]: starts for times that were sealed
//!   before.
//! * [`exemplars`]: a ring for each series. They are also in segments, for the next start; readers
//!   see only the rings.
//! * [`sealed`]: the format of all of these in segments.
//! * [`record`]: the bodies of their log records; `append::side_data`: conversion of a request to
//!   records; [`checkpoint_rows`]: checkpoints.
//!
//! **One value at a time.** Floats and histograms of a series each have their own order. If a float
//! and a histogram have the same time, readers see the histogram. So neither write path reads the
//! other, and the path of floats costs one more flag.

pub(super) mod checkpoint_rows;
pub(super) mod exemplars;
pub(super) mod histogram_chunk;
pub(super) mod histograms;
mod late_histograms;
pub(super) mod late_starts;
pub(super) mod record;
pub(super) mod sealed;
mod series;
pub(super) mod start_timestamps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use exemplars::{ExemplarRings, NewestExemplars};
use histograms::{Histograms, PutHistogram};
use late_starts::LateStarts;
use record::LogStart;
use series::SideSeries;

use super::error::Damage;
use super::head::stripe::Span;
use super::wal::log::ApplyOutcome;
use super::wal::record::RecordKind;
use crate::model::{HistogramColumns, TimeRange};
use crate::sync::IgnorePoison as _;

/// Series of a stripe, as many as in the head. The ids of a stripe share a lock.
const STRIPE_SERIES: u32 = super::head::STRIPE_SERIES;
/// Refused histograms that are reported by name at most.
const FIRST_MAX: usize = 10;

/// The side table of one organisation. Only the thread that applies the log writes to it.
#[derive(Debug)]
pub(super) struct SideTable {
    stripes: RwLock<BTreeMap<u32, Arc<RwLock<SideStripe>>>>,
    exemplars: Mutex<ExemplarRings>,
    barrier: AtomicI64,
    /// The current seal takes samples of any time.
    closes_all: AtomicBool,
    /// The greatest time of the segments that the current seal writes.
    end_ms: AtomicI64,
    /// Whether any series ever had a histogram. Readers of floats check this first.
    any: AtomicBool,
    pub(super) counters: SideCounters,
    /// The memory budget of the process, shared with the heads.
    shared_bytes: Arc<AtomicU64>,
}

/// A log record with side data.
#[derive(Clone, Copy, Debug)]
pub(super) struct SideRecord<'a> {
    pub(super) seq: u64,
    pub(super) kind: RecordKind,
    pub(super) body: &'a [u8],
}

/// The size of the side table.
#[derive(Debug, Default)]
pub(super) struct SideCounters {
    /// Histograms, late ones included.
    pub(super) histograms: AtomicU64,
    pub(super) late: AtomicU64,
    /// Estimated memory in bytes.
    pub(super) bytes: AtomicU64,
    /// Exemplars in the rings.
    pub(super) exemplars: AtomicU64,
    /// Exemplars that were dropped because they were too late, too long, or duplicates.
    pub(super) exemplars_dropped: AtomicU64,
}

/// Neighbouring series that share a lock.
#[derive(Debug, Default)]
pub(super) struct SideStripe {
    /// Number of the last record that changed the stripe.
    pub(super) applied_seq: u64,
    series: BTreeMap<u32, SideSeries>,
}

impl SideTable {
    /// Creates an empty table that adds its memory to `shared_bytes`.
    pub(super) fn new(shared_bytes: Arc<AtomicU64>) -> SideTable {
        SideTable {
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

/// Changes a counter by the difference between two values.
fn move_by(counter: &AtomicU64, before: u64, now: u64) {
    counter.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
    counter.fetch_sub(before.saturating_sub(now), Ordering::Relaxed);
}

// Poisoned locks are taken over: only the applying thread writes, and its end closes the log.
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().ignore_poison()
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().ignore_poison()
}

impl SideTable {
    /// Returns whether a reader of floats has to read histograms at all.
    pub(super) fn has_histograms(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Locks the exemplars of the organisation.
    pub(super) fn exemplars(&self) -> MutexGuard<'_, ExemplarRings> {
        self.exemplars.lock().ignore_poison()
    }

    /// Locks the exemplars if that is possible without waiting.
    pub(super) fn try_exemplars(&self) -> Option<MutexGuard<'_, ExemplarRings>> {
        self.exemplars.try_lock().ignore_poison()
    }

    fn stripe(&self, series: u32) -> Option<Arc<RwLock<SideStripe>>> {
        read(&self.stripes).get(&(series / STRIPE_SERIES)).map(Arc::clone)
    }

    fn stripe_or_new(&self, series: u32) -> Arc<RwLock<SideStripe>> {
        self.stripe(series)
            .unwrap_or_else(|| Arc::clone(write(&self.stripes).entry(series / STRIPE_SERIES).or_default()))
    }

    fn all(&self) -> Vec<Arc<RwLock<SideStripe>>> {
        read(&self.stripes).values().map(Arc::clone).collect()
    }

    /// Changes one series, and updates the counters.
    fn change<T>(&self, seq: u64, id: u32, change: impl FnOnce(&mut SideSeries) -> T) -> T {
        let stripe = self.stripe_or_new(id);
        let mut stripe = write(&stripe);
        stripe.applied_seq = stripe.applied_seq.max(seq);
        let series = stripe.series.entry(id).or_default();
        let out = change(series);
        self.count(series);
        out
    }

    /// Updates the counters for a changed series.
    fn count(&self, series: &mut SideSeries) {
        let now = series.usage();
        let before = std::mem::replace(&mut series.counted, now);
        move_by(&self.counters.histograms, before.histograms, now.histograms);
        move_by(&self.counters.late, before.late, now.late);
        self.count_bytes(before.bytes, now.bytes);
    }

    fn count_bytes(&self, before: u64, now: u64) {
        move_by(&self.counters.bytes, before, now);
        move_by(&self.shared_bytes, before, now);
    }

    /// Changes the exemplars, and updates the counters.
    fn change_exemplars<T>(&self, change: impl FnOnce(&mut ExemplarRings) -> T) -> T {
        let mut exemplars = self.exemplars();
        let before = exemplars.bytes();
        let out = change(&mut exemplars);
        self.count_bytes(before, exemplars.bytes());
        self.counters.exemplars.store(exemplars.count() as u64, Ordering::Relaxed);
        out
    }

    /// Applies a record. `knows` returns whether a series is defined; `skip`, whether a sample of a
    /// series at a time is in a checkpoint or segment already. `arrived` is called with the time of
    /// each new histogram.
    ///
    /// # Errors
    /// [`Damage`] if the body does not have the format of its kind, although its checksum matches.
    pub(super) fn apply(
        &self,
        record: SideRecord<'_>,
        knows: impl Fn(u32) -> bool,
        skip: impl Fn(u32, i64) -> bool,
        arrived: impl Fn(i64),
    ) -> Result<ApplyOutcome, Damage> {
        let SideRecord { seq, kind, body } = record;
        let mut outcome = ApplyOutcome::default();
        match kind {
            RecordKind::Histograms => self.apply_histograms(record, knows, skip, arrived, &mut outcome)?,
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
                        // A duplicate changes nothing, so items of the checkpoint may be applied
                        // again.
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
        record: SideRecord<'_>,
        knows: impl Fn(u32) -> bool,
        skip: impl Fn(u32, i64) -> bool,
        arrived: impl Fn(i64),
        outcome: &mut ApplyOutcome,
    ) -> Result<(), Damage> {
        let SideRecord { seq, body, .. } = record;
        let barrier = self.barrier.load(Ordering::Relaxed);
        record::decode_histograms(body, |id, mut decoder| {
            if !knows(id) {
                // Histograms that are in segments are not lost, like floats.
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
                    match series.histograms.get_or_insert_default().put(at, histogram, barrier) {
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
        if let Some(histograms) = read(&stripe).series.get(&id).and_then(|series| series.histograms.as_ref())
        {
            histograms.read(range.start.as_ms(), range.end.as_ms(), out);
        }
    }

    /// Appends the start timestamps of a series: changes and late starts.
    pub(super) fn starts(&self, id: u32, changes: &mut Vec<(i64, i64)>, late: &mut LateStarts) {
        let Some(stripe) = self.stripe(id) else { return };
        if let Some(series) = read(&stripe).series.get(&id) {
            series.starts.copy_all(changes, late);
        }
    }

    /// Returns the least and the greatest time of a series' histograms.
    pub(super) fn span(&self, id: u32) -> Option<Span> {
        let stripe = self.stripe(id)?;
        let stripe = read(&stripe);
        let (first, last) = stripe.series.get(&id)?.span()?;
        Some(Span { first, last })
    }

    // --- Seal: the counterparts of `Head` for floats.

    /// Raises the barrier to `until_ms` and freezes the late data.
    pub(super) fn close_window(&self, until_ms: i64) {
        self.barrier.fetch_max(until_ms, Ordering::Relaxed);
        self.closes_all.store(false, Ordering::Relaxed);
        self.each_series(|_, series, barrier| {
            series.change_histograms(Histograms::freeze);
            series.starts.close(barrier);
        });
        self.exemplars().close();
    }

    /// Sets the barrier to `until_ms`, which may be earlier or later, and closes all content.
    pub(super) fn close_all(&self, until_ms: i64) {
        self.set_barrier(until_ms);
        self.closes_all.store(true, Ordering::Relaxed);
        self.each_series(|_, series, barrier| {
            series.change_histograms(|all| all.freeze_all(barrier));
            series.starts.close_all();
        });
        self.exemplars().close();
    }

    /// Sets the barrier of a table into which a checkpoint is loaded.
    pub(super) fn set_barrier(&self, until_ms: i64) {
        self.barrier.store(until_ms, Ordering::Relaxed);
    }

    /// Returns the barrier, and the end of the late histograms that the current seal takes.
    fn ends(&self) -> (i64, i64) {
        let barrier = self.barrier.load(Ordering::Relaxed);
        (barrier, if self.closes_all.load(Ordering::Relaxed) { i64::MAX } else { barrier })
    }

    /// Changes every series, with the current barrier as an argument.
    fn each_series(&self, change: impl Fn(u32, &mut SideSeries, i64)) {
        let barrier = self.barrier.load(Ordering::Relaxed);
        for stripe in self.all() {
            for (id, series) in &mut write(&stripe).series {
                change(*id, series, barrier);
                self.count(series);
            }
        }
    }

    /// Returns the series with content for the current seal, ascending.
    pub(super) fn closed_series(&self) -> Vec<u32> {
        let (barrier, late_end) = self.ends();
        let mut found = BTreeSet::new();
        for stripe in self.all() {
            for (id, series) in &read(&stripe).series {
                let before = series.span().is_some_and(|(first, _)| first < late_end);
                if before || series.starts.has_closed(barrier) {
                    found.insert(*id);
                }
            }
        }
        found.into_iter().collect()
    }

    /// Records the number of histograms in a segment.
    pub(super) fn note_sealed(&self, histograms: u64) {
        if histograms > 0 {
            self.any.store(true, Ordering::Release);
        }
    }

    /// Loads exemplars from segments, the last of which end before `ends_ms`.
    pub(super) fn load_exemplars(&self, newest: NewestExemplars, ends_ms: i64) {
        self.note_end(ends_ms.saturating_sub(1));
        self.change_exemplars(|exemplars| {
            for (series, exemplar) in newest.into_sorted() {
                exemplars.put(series, exemplar);
            }
            exemplars.close();
            exemplars.release(ends_ms);
        });
    }

    /// Sets the greatest time of the segments that the next seal writes.
    pub(super) fn note_end(&self, end_ms: i64) {
        self.end_ms.store(end_ms, Ordering::Relaxed);
    }

    /// Returns the time set by [`SideTable::note_end`].
    pub(super) fn end(&self) -> i64 {
        self.end_ms.load(Ordering::Relaxed)
    }

    /// Returns whether there is content for a seal.
    pub(super) fn has_closed(&self) -> bool {
        !self.closed_series().is_empty() || !self.exemplars().closed().is_empty()
    }

    /// Appends the content of a series for a seal: histograms and start timestamps before the
    /// barrier.
    pub(super) fn copy_closed(
        &self,
        id: u32,
        histograms: &mut HistogramColumns,
        changes: &mut Vec<(i64, i64)>,
        late: &mut LateStarts,
    ) {
        let (barrier, late_end) = self.ends();
        let Some(stripe) = self.stripe(id) else { return };
        if let Some(series) = read(&stripe).series.get(&id) {
            if let Some(all) = &series.histograms {
                all.copy_closed(barrier, late_end, histograms);
            }
            series.starts.copy_closed(barrier, changes, late);
        }
    }

    /// Removes exactly the data that [`SideTable::copy_closed`] has returned, except for the last
    /// start timestamp of each series.
    pub(super) fn release_closed(&self) {
        let (barrier, late_end) = self.ends();
        for stripe in self.all() {
            let mut stripe = write(&stripe);
            for series in stripe.series.values_mut() {
                series.change_histograms(|all| all.release(barrier, late_end));
                series.starts.release(barrier);
                self.count(series);
            }
        }
        self.exemplars().release(self.end().saturating_add(1));
    }

    /// Returns frozen content after a failed seal. The barrier stays.
    pub(super) fn reopen(&self) {
        self.each_series(|_, series, _| {
            series.change_histograms(Histograms::thaw);
            series.starts.reopen();
        });
    }

    /// Returns the least and the greatest time of all histograms.
    pub(super) fn extent(&self) -> Option<(i64, i64)> {
        let stripes = self.all();
        let spans = stripes
            .iter()
            .flat_map(|stripe| read(stripe).series.values().filter_map(SideSeries::span).collect::<Vec<_>>());
        spans.reduce(|(first, last), (least, greatest)| (first.min(least), last.max(greatest)))
    }

    /// Removes the exemplars of a series in a range.
    pub(super) fn delete_exemplars(&self, id: u32, range: TimeRange) {
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        self.change_exemplars(|exemplars| exemplars.delete(id, start, end));
    }

    /// Removes the histograms of a series in a range.
    pub(super) fn delete(&self, id: u32, range: TimeRange) {
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        if let Some(stripe) = self.stripe(id)
            && let Some(series) = write(&stripe).series.get_mut(&id)
        {
            series.change_histograms(|all| all.delete(start, end));
            self.count(series);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
