//! Liveness: which series have samples in a range, in the head or in a segment.
//!
//! Series are probed one by one, so a query stops as soon as it has its result. The head, which has
//! nearly every series that is written, is probed first, and then the segments, newest first.

use std::cmp::Reverse;
use std::sync::{Arc, RwLockReadGuard};

use super::matching::{FamilyMatch, MatchedRows, RowBatch};
use crate::model::{HistogramColumns, Pace, Stopped, TimeRange, Timestamp};
use crate::sync::IgnorePoison as _;
use crate::tsdb::head::stripe::{Span, Stripe};
use crate::tsdb::head::{STRIPE_SERIES, Spans, slot};
use crate::tsdb::report::{SampleColumns, SeriesId};
use crate::tsdb::segment;
use crate::tsdb::side_data::SideTable;
use crate::tsdb::snapshot::read::merge;
use crate::tsdb::snapshot::warnings::Warnings;
use crate::tsdb::snapshot::{Paced, Snapshot};
use crate::tsdb::store::OrgStore;
use crate::tsdb::store::manifest::Tombstone;
use crate::tsdb::store::segments::{IndexedSegment, SegmentSet};

/// Runs a query about a range against the current head and segments.
///
/// A seal publishes its segments before the head releases their samples. A query that took the
/// segments before and probed the head afterwards would miss these samples, so it runs again if the
/// segment set has changed meanwhile.
pub(in crate::tsdb::snapshot) fn with_liveness<T>(
    paced: &Paced<'_>,
    store: &OrgStore,
    range: TimeRange,
    query: impl FnMut(&mut Liveness<'_>) -> Result<T, Stopped>,
) -> Result<T, Stopped> {
    with_liveness_from(paced, store, range, range.start, query)
}

/// Like [`with_liveness`], but samples of segments count only from `sealed_from` on (inclusive).
pub(in crate::tsdb::snapshot) fn with_liveness_from<T>(
    paced: &Paced<'_>,
    store: &OrgStore,
    range: TimeRange,
    sealed_from: Timestamp,
    mut query: impl FnMut(&mut Liveness<'_>) -> Result<T, Stopped>,
) -> Result<T, Stopped> {
    let Paced { snapshot, pace } = *paced;
    snapshot.warnings.add_log_warning();
    let range = snapshot.within(range);
    let sealed = TimeRange::new(range.start.max(sealed_from), range.end);
    let mut set = store.segments();
    loop {
        let spans = store.head.spans();
        let mut parts: Vec<&IndexedSegment> = set.parts.iter().map(|part| &**part).collect();
        parts.sort_by_key(|part| Reverse(part.meta().max_ms));
        let side = store.side.has_histograms().then_some(&store.side);
        let head = HeadCursor { spans: &spans, stripe: None, side };
        let warnings = &snapshot.warnings;
        let floor = snapshot.scope.min_time.map(|_| snapshot.floor().as_ms());
        let samples = SampleProbe::new(snapshot, pace, store);
        let (family, batch) = (None, RowBatch::default());
        let mut liveness =
            Liveness { head, set: &set, parts, family, range, sealed, warnings, floor, samples, batch };
        let result = query(&mut liveness)?;
        liveness.warn();
        drop(liveness);
        // A probe that the pace stopped has found nothing.
        if pace.is_stopped() {
            return Err(Stopped);
        }
        let after = store.segments();
        if Arc::ptr_eq(&set, &after) {
            return Ok(result);
        }
        // The set changes only with seals and compactions.
        set = after;
    }
}

/// A probe for samples of series in a range.
pub(in crate::tsdb::snapshot) struct Liveness<'s> {
    head: HeadCursor<'s>,
    set: &'s SegmentSet,
    /// The parts, newest first.
    parts: Vec<&'s IndexedSegment>,
    /// The family probed last, and its rows in each of the parts that contain it.
    family: Option<(u32, Vec<PartRows<'s>>)>,
    /// The range in which samples of the head count.
    range: TimeRange,
    /// The range in which samples of segments count.
    sealed: TimeRange,
    warnings: &'s Warnings,
    /// The earliest visible time in milliseconds, or `None` if the scope hides no time. A series
    /// with samples before that time and after the range, and none in between, does not exist for
    /// the scope, as in a store that never had the hidden samples.
    floor: Option<i64>,
    samples: SampleProbe<'s>,
    /// A buffer for rows that are copied from the table.
    pub(in crate::tsdb::snapshot) batch: RowBatch,
}

/// A probe that reads samples, for series whose least and greatest time do not decide. The caller
/// must not hold the lock of a stripe.
struct SampleProbe<'s> {
    snapshot: &'s Snapshot,
    pace: &'s Pace<'s>,
    store: &'s OrgStore,
    floats: SampleColumns,
    histograms: HistogramColumns,
}

impl<'s> SampleProbe<'s> {
    fn new(snapshot: &'s Snapshot, pace: &'s Pace<'s>, store: &'s OrgStore) -> SampleProbe<'s> {
        let (floats, histograms) = (SampleColumns::default(), HistogramColumns::default());
        SampleProbe { snapshot, pace, store, floats, histograms }
    }

    /// Returns whether a series has samples in a range that the scope shows.
    fn has_any(&mut self, family: u32, id: u32, range: TimeRange) -> bool {
        self.newest_float(family, id, range).is_some() || self.newest_histogram(id, range).is_some()
    }

    /// Returns the time of the newest sample of a series in a range that the scope shows.
    fn newest(&mut self, family: u32, id: u32, range: TimeRange) -> Option<i64> {
        self.newest_float(family, id, range).max(self.newest_histogram(id, range))
    }

    fn newest_float(&mut self, family: u32, id: u32, range: TimeRange) -> Option<i64> {
        self.may_read()?;
        self.floats.times.clear();
        self.floats.values.clear();
        merge::read_series(
            self.store,
            merge::TableSeries { series: id, family: Some(family) },
            range,
            &self.snapshot.warnings,
            &mut merge::ReadState::default(),
            &mut self.floats,
        );
        self.floats.times.last().copied()
    }

    fn newest_histogram(&mut self, id: u32, range: TimeRange) -> Option<i64> {
        if !self.store.side.has_histograms() {
            return None;
        }
        self.may_read()?;
        self.histograms.clear();
        self.snapshot.histograms_of(self.store, SeriesId(id), range, &mut self.histograms);
        self.histograms.times.last().copied()
    }

    /// Asks the pace for one read. Returns `None` if it stops the request.
    fn may_read(&self) -> Option<()> {
        /// The approximate cost of reading a series.
        const READING: u64 = 5_000;
        self.pace.spend(READING).ok()
    }
}

/// The rows of one family in a segment.
struct PartRows<'s> {
    part: &'s IndexedSegment,
    ids: segment::SeriesIds<'s>,
    spans: segment::RowSpans<'s>,
    /// Whether every series of the segment has samples in the range.
    reaches: bool,
    /// The row after the one found last. Series mostly have the same order in all segments.
    next: usize,
}

impl PartRows<'_> {
    fn row(&mut self, id: u32) -> Option<usize> {
        let row = self.ids.row_near(self.next, id)?;
        self.next = row + 1;
        Some(row)
    }

    fn span(&mut self, id: u32) -> Option<Span> {
        let row = self.row(id)?;
        let (first, last) = self.spans.get(row)?;
        Some(Span { first, last })
    }

    /// Returns the first and last time of a series with samples in the range. `None` if no sample
    /// is in the range, or all of them are deleted.
    fn shown(&mut self, set: &SegmentSet, range: TimeRange, id: u32) -> Option<ShownSpan> {
        if !self.part.overlaps(range) {
            return None;
        }
        let span = self.span(id)?;
        let (start, end) = (range.start.as_ms().max(span.first), range.end.as_ms().min(span.last));
        let deletes_all = |tombstone: &Tombstone| tombstone.from_ms <= start && end <= tombstone.to_ms;
        if start > end || set.tombstones_of(self.part, id).any(deletes_all) {
            return None;
        }
        let (has_first, has_last) =
            (self.has_sample(set, id, span.first), self.has_sample(set, id, span.last));
        Some(ShownSpan { span, has_last, is_certain: has_first || has_last })
    }

    /// Returns whether a sample of the segment is not deleted.
    fn has_sample(&self, set: &SegmentSet, id: u32, at_ms: i64) -> bool {
        !set.tombstones_of(self.part, id).any(|tombstone| tombstone.hides(id, at_ms))
    }
}

/// The first and last time of a series in a segment.
struct ShownSpan {
    span: Span,
    /// Whether the last sample is not deleted.
    has_last: bool,
    /// Whether an end of the span is not deleted. If several deletions together hide both ends,
    /// only a read shows whether they leave any sample.
    is_certain: bool,
}

impl<'s> Liveness<'s> {
    /// Returns the approximate cost of a probe of one series: one lookup in the head and one in
    /// each segment. A probe that reads samples requests its work itself.
    pub(in crate::tsdb::snapshot) fn row_units(&self) -> u64 {
        const HEAD: u64 = 8;
        const SEGMENT: u64 = 4;
        HEAD + SEGMENT * self.parts.len() as u64
    }

    /// Returns whether any of the matching series has samples in the range.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub(in crate::tsdb::snapshot) fn has_any(
        &mut self,
        found: &FamilyMatch,
        paced: &Paced<'_>,
        store: &OrgStore,
    ) -> Result<bool, Stopped> {
        // If all series of a segment have samples in the range, no row is probed.
        let is_whole = matches!(found.rows, MatchedRows::All(_)) && self.floor.is_none();
        if is_whole && self.set.tombstones.is_empty() {
            let mut reaching = self.parts.iter().filter(|part| part.reaches_with_all(self.sealed));
            if reaching.any(|part| part.family(found.number).is_some()) {
                return Ok(true);
            }
        }
        let (units, mut any) = (self.row_units(), false);
        let mut batch = std::mem::take(&mut self.batch);
        let looked = found.batches(paced, store, &mut batch, units, |batch| {
            any = batch.ids().iter().any(|id| self.is_in_head(found.number, *id));
            self.release();
            any = any || batch.ids().iter().any(|id| self.is_sealed(found.number, *id));
            Ok(!any)
        });
        self.batch = batch;
        looked.map(|()| any)
    }

    /// Replaces `is_live` with whether each series of one family (its number in the table) has
    /// samples in the range.
    ///
    /// The head is probed first, for all series, so no stripe is locked while a segment is read,
    /// possibly from disk.
    pub(in crate::tsdb::snapshot) fn mark(&mut self, family: u32, ids: &[u32], is_live: &mut Vec<bool>) {
        is_live.clear();
        is_live.extend(ids.iter().map(|id| self.is_in_head(family, *id)));
        self.release();
        for (is_live, id) in is_live.iter_mut().zip(ids).filter(|(is_live, _)| !**is_live) {
            *is_live = self.is_sealed(family, *id);
        }
    }

    /// Releases the lock of the stripe that was probed last.
    pub(in crate::tsdb::snapshot) fn release(&mut self) {
        self.head.stripe = None;
    }

    /// Returns whether the head has samples of a series in the range. Locks the series' stripe
    /// until [`Liveness::release`].
    pub(in crate::tsdb::snapshot) fn is_in_head(&mut self, family: u32, id: u32) -> bool {
        let span = self.head.span(id).filter(|span| span.overlaps(self.range));
        span.is_some_and(|span| self.is_shown(family, id, span, true))
    }

    /// Returns whether the scope shows any of the samples in a span that overlaps the range.
    /// `last_exists` is true if there is a sample at the last time of the span.
    fn is_shown(&mut self, family: u32, id: u32, span: Span, last_exists: bool) -> bool {
        let end = self.range.end;
        match self.floor {
            Some(floor) if span.first < floor && !(last_exists && span.last <= end.as_ms()) => {
                self.release();
                let visible = TimeRange::new(Timestamp::from_ms(floor), end);
                self.samples.has_any(family, id, visible)
            }
            _ => true,
        }
    }

    /// Returns the time of the newest sample of a series, even after the range, if the series has
    /// any sample in the range.
    pub(in crate::tsdb::snapshot) fn newest(&mut self, family: u32, id: u32) -> Option<i64> {
        let is_in_head = self.is_in_head(family, id);
        self.release();
        if !is_in_head && !self.is_sealed(family, id) {
            return None;
        }
        let head = self.head.span(id);
        self.release();
        let mut newest = head.map(|span| span.last);
        let (set, mut deleted) = (self.set, Vec::new());
        for rows in self.rows_of(family) {
            if Some(rows.part.meta().max_ms) <= newest {
                break;
            }
            match rows.span(id) {
                Some(span) if rows.has_sample(set, id, span.last) => newest = newest.max(Some(span.last)),
                Some(span) => deleted.push(span),
                None => {}
            }
        }
        for span in deleted {
            if Some(span.last) > newest {
                newest = newest.max(self.samples.newest(family, id, span.within(TimeRange::ALL)));
            }
        }
        newest
    }

    /// Calls `each` for each stripe with the series whose head overlaps the range and has their
    /// newest sample, and with the time of that sample, in order of ids. The stripe's lock is
    /// released before the call. This takes one lock for 1,024 series, where [`Liveness::newest`]
    /// may take one for each series. It must not be used if the scope hides time.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub(in crate::tsdb::snapshot) fn each_in_head(
        &self,
        pace: &Pace<'_>,
        mut each: impl FnMut(&[(u32, i64)]) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        let mut found = Vec::with_capacity(STRIPE_SERIES as usize);
        let sealed = self.parts.first().map_or(i64::MIN, |part| part.meta().max_ms);
        for (number, stripe) in (0u32..).zip(self.head.spans.stripes()) {
            pace.spend(u64::from(STRIPE_SERIES) * 2)?;
            found.clear();
            {
                let stripe = stripe.read().ignore_poison();
                let newest = |id: u32| {
                    let span = stripe.span(slot(id))?;
                    (span.overlaps(self.range) && span.last >= sealed).then_some((id, span.last))
                };
                let first = number * STRIPE_SERIES;
                found.extend((first..first + STRIPE_SERIES).filter_map(newest));
            }
            each(&found)?;
        }
        Ok(())
    }

    /// Returns whether segments have samples of a series in the range. Call it after
    /// [`Liveness::release`].
    pub(in crate::tsdb::snapshot) fn is_sealed(&mut self, family: u32, id: u32) -> bool {
        let (set, range) = (self.set, self.sealed);
        let mut uncertain: Vec<Span> = Vec::new();
        let mut is_certain = |shown: &ShownSpan| {
            if !shown.is_certain {
                uncertain.push(shown.span);
            }
            shown.is_certain
        };
        let is_found = if self.floor.is_none() {
            // Without deletions, and if everything overlaps the range, no time is compared.
            let is_whole = set.tombstones.is_empty();
            self.rows_of(family).iter_mut().any(|rows| match is_whole && rows.reaches {
                true => rows.row(id).is_some(),
                false => rows.shown(set, range, id).is_some_and(|shown| is_certain(&shown)),
            })
        } else {
            let found = self.rows_of(family).iter_mut().filter_map(|rows| rows.shown(set, range, id));
            let found: Vec<ShownSpan> = found.filter(is_certain).collect();
            found.into_iter().any(|shown| self.is_shown(family, id, shown.span, shown.has_last))
        };
        // One read is as long as one segment, not as long as the series.
        is_found || uncertain.iter().any(|span| self.samples.has_any(family, id, span.within(range)))
    }

    /// Returns the rows of a family in the segments, newest first.
    fn rows_of(&mut self, family: u32) -> &mut [PartRows<'s>] {
        if self.family.as_ref().is_none_or(|(number, _)| *number != family) {
            let (warnings, range, before) = (self.warnings, self.sealed, self.family.take());
            // The buffer is reused, because a listing probes each family.
            let mut places = before.map(|(_, places)| places).unwrap_or_default();
            places.clear();
            places.extend(self.parts.iter().filter_map(|part| {
                let rows = part.segment.rows(part.family(family)?);
                let rows = rows.inspect_err(|damage| warnings.damage(part, damage)).ok()?;
                let (ids, spans) = (part.segment.ids_of(&rows), part.segment.spans_of(&rows));
                let reaches = part.overlaps(range) && part.reaches_with_all(range);
                Some(PartRows { part, ids, spans, reaches, next: 0 })
            }));
            self.family = Some((family, places));
        }
        self.family.as_mut().map_or(&mut [], |(_, places)| places)
    }

    /// Adds warnings about unreadable data, which a probe cannot distinguish from missing series.
    fn warn(&self) {
        self.set.bad_in(self.sealed).for_each(|bad| self.warnings.bad(bad));
        for part in self.parts.iter().filter(|part| part.overlaps(self.sealed)) {
            if let Err(damage) = part.segment.intact() {
                self.warnings.damage(part, &damage);
            }
        }
    }
}

/// A reader of the head that keeps the lock of one stripe until it needs another stripe.
struct HeadCursor<'s> {
    spans: &'s Spans,
    stripe: Option<(u32, RwLockReadGuard<'s, Stripe>)>,
    /// `None` if the organisation has no histograms.
    side: Option<&'s SideTable>,
}

impl HeadCursor<'_> {
    /// Returns the least and the greatest time of floats and histograms.
    fn span(&mut self, id: u32) -> Option<Span> {
        let floats = self.floats(id);
        match self.side.and_then(|side| side.span(id)) {
            Some(histograms) => Some(floats.map_or(histograms, |floats| floats.with(histograms))),
            None => floats,
        }
    }

    fn floats(&mut self, id: u32) -> Option<Span> {
        let number = id / STRIPE_SERIES;
        if self.stripe.as_ref().is_none_or(|(have, _)| *have != number) {
            self.stripe = None;
            let stripe = self.spans.stripe(number)?.read().ignore_poison();
            self.stripe = Some((number, stripe));
        }
        self.stripe.as_ref()?.1.span(slot(id))
    }
}
