//! Which series have samples in a range: those whose head reaches into it, and those whose row of a segment does.
//!
//! Asked series by series, so that a question that has heard enough looks no further: the head first, which has nearly
//! every series that is written; then the segments, newest first.

use std::cmp::Reverse;
use std::sync::{Arc, RwLockReadGuard};

use super::find::{Chunk, Found, Rows};
use super::warnings::Warnings;
use super::{Paced, Snapshot, merge};
use crate::model::{HistogramColumns, Pace, Stopped, TimeRange, Timestamp};
use crate::sync::IgnorePoison as _;
use crate::tsdb::head::stripe::{Span, Stripe};
use crate::tsdb::head::{STRIPE_SERIES, Spans, slot};
use crate::tsdb::manifest::Tombstone;
use crate::tsdb::report::{SampleColumns, SeriesId};
use crate::tsdb::segment;
use crate::tsdb::segments::{IndexedSegment, SegmentSet};
use crate::tsdb::side::Side;
use crate::tsdb::store::OrgStore;

/// Answers a question about a range with what was there at its time.
///
/// A seal makes its segments known before the head lets go of their samples. A question that took the segments before
/// and met the head after would miss them: if others count by then, it is asked again.
pub(super) fn look<T>(
    snapshot: &Snapshot,
    store: &OrgStore,
    range: TimeRange,
    question: impl FnMut(&mut Presence<'_>) -> Result<T, Stopped>,
) -> Result<T, Stopped> {
    look_from(snapshot, store, range, range.start, question)
}

/// As [`look`], where samples of segments count only from `sealed_from` on (inclusive).
pub(super) fn look_from<T>(
    snapshot: &Snapshot,
    store: &OrgStore,
    range: TimeRange,
    sealed_from: Timestamp,
    mut question: impl FnMut(&mut Presence<'_>) -> Result<T, Stopped>,
) -> Result<T, Stopped> {
    snapshot.warnings.looked();
    let range = snapshot.within(range);
    let sealed = TimeRange::new(range.start.max(sealed_from), range.end);
    let mut set = store.segments();
    loop {
        let spans = store.head.spans();
        let mut parts: Vec<&IndexedSegment> = set.parts.iter().map(|part| &**part).collect();
        parts.sort_by_key(|part| Reverse(part.meta().max_ms));
        let side = store.side.has_histograms().then_some(&store.side);
        let head = Cursor { spans: &spans, held: None, side };
        let warnings = &snapshot.warnings;
        let window = Window::of(snapshot, store);
        let (family, chunk) = (None, Chunk::default());
        let mut presence =
            Presence { head, set: &set, parts, family, range, sealed, warnings, window, chunk };
        let answer = question(&mut presence)?;
        presence.warn();
        drop(presence);
        let after = store.segments();
        if Arc::ptr_eq(&set, &after) {
            return Ok(answer);
        }
        // Sets change with seals and compactions alone.
        set = after;
    }
}

/// What series have in a range.
pub(super) struct Presence<'s> {
    head: Cursor<'s>,
    set: &'s SegmentSet,
    /// The newest first.
    parts: Vec<&'s IndexedSegment>,
    /// The family asked for last, and where it lies in each of the parts that have it.
    family: Option<(u32, Vec<PartRows<'s>>)>,
    /// Where samples of the head count.
    range: TimeRange,
    /// Where samples of segments count.
    sealed: TimeRange,
    warnings: &'s Warnings,
    /// None: the scope hides no time.
    window: Option<Window<'s>>,
    /// For [`Presence::has_any`].
    chunk: Chunk,
}

/// What a scope shows that hides time: a series that has samples before it and after the range, and none in between, is
/// not there, as in a store that never had the hidden ones.
struct Window<'s> {
    snapshot: &'s Snapshot,
    store: &'s OrgStore,
    /// What is before is not shown.
    floor: i64,
    floats: SampleColumns,
    histograms: HistogramColumns,
}

impl<'s> Window<'s> {
    fn of(snapshot: &'s Snapshot, store: &'s OrgStore) -> Option<Window<'s>> {
        snapshot.scope.min_time?;
        let floor = snapshot.floor().as_ms();
        let (floats, histograms) = (SampleColumns::default(), HistogramColumns::default());
        Some(Window { snapshot, store, floor, floats, histograms })
    }

    /// Whether a series has any sample that is shown and not after `end`: read, where its least and greatest time do not
    /// tell. To be asked while no lock of a stripe is held.
    fn shows_any(&mut self, family: u32, id: u32, end: Timestamp) -> bool {
        let Window { snapshot, store, floor, floats, histograms } = self;
        let range = TimeRange::new(Timestamp::from_ms(*floor), end);
        floats.times.clear();
        floats.values.clear();
        merge::read_of(
            store,
            (Some(family), id),
            range,
            &snapshot.warnings,
            &mut merge::Known::default(),
            floats,
        );
        if floats.times.is_empty() && store.side.has_histograms() {
            histograms.clear();
            snapshot.histograms_of(store, SeriesId(id), range, histograms);
        }
        !floats.times.is_empty() || !histograms.times.is_empty()
    }
}

/// The rows of one family in a segment.
struct PartRows<'s> {
    part: &'s IndexedSegment,
    ids: segment::Ids<'s>,
    spans: segment::Spans<'s>,
    /// Whoever has a row reaches into the range.
    reaches: bool,
    /// Behind the row that was found last: series come mostly in the same order here and there.
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

    /// First and last time of a series that reaches into the range, unless all of it is deleted there; and whether nothing
    /// of it is deleted at all.
    fn shown(&mut self, set: &SegmentSet, range: TimeRange, id: u32) -> Option<(Span, bool)> {
        if !self.part.overlaps(range) {
            return None;
        }
        let span = self.span(id)?;
        let (start, end) = (range.start.as_ms().max(span.first), range.end.as_ms().min(span.last));
        let deleted = |tombstone: &Tombstone| tombstone.from_ms <= start && end <= tombstone.to_ms;
        let is_there = start <= end && !set.tombstones_of(self.part, id).any(deleted);
        let ends = set.tombstones_of(self.part, id).next().is_none();
        is_there.then_some((span, ends))
    }
}

impl<'s> Presence<'s> {
    /// What a look at one series costs at most, about: a place in the head and one in each segment. Where the scope
    /// hides time, samples may have to be read.
    pub(super) fn row_units(&self) -> u64 {
        const HEAD: u64 = 8;
        const SEGMENT: u64 = 4;
        const READING: u64 = 5_000;
        let places = HEAD + SEGMENT * self.parts.len() as u64;
        if self.window.is_some() { READING + places } else { places }
    }

    /// Whether any of these has samples in the range.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(super) fn has_any(
        &mut self,
        found: &Found,
        (paced, store): (&Paced<'_>, &OrgStore),
    ) -> Result<bool, Stopped> {
        // No row is looked at where all of a segment reach into the range.
        let is_whole = matches!(found.rows, Rows::All(_)) && self.window.is_none();
        if is_whole && self.set.tombstones.is_empty() {
            let mut reaching = self.parts.iter().filter(|part| part.reaches_with_all(self.sealed));
            if reaching.any(|part| part.family(found.number).is_some()) {
                return Ok(true);
            }
        }
        let (units, mut any) = (self.row_units(), false);
        let mut chunk = std::mem::take(&mut self.chunk);
        let looked = found.chunks((paced, store), (&mut chunk, None), units, |chunk| {
            any = chunk.ids().iter().any(|id| self.is_in_head(found.number, *id));
            self.release();
            any = any || chunk.ids().iter().any(|id| self.is_sealed(found.number, *id));
            Ok(!any)
        });
        self.chunk = chunk;
        looked.map(|()| any)
    }

    /// Replaces `there` with whether each series of one family (a number of the table's) has samples in the range.
    ///
    /// The head is asked first, for all: no stripe of it is locked while a segment is looked at, which may have to be
    /// read from the disk.
    pub(super) fn mark(&mut self, family: u32, ids: &[u32], there: &mut Vec<bool>) {
        there.clear();
        there.extend(ids.iter().map(|id| self.is_in_head(family, *id)));
        self.release();
        for (there, id) in there.iter_mut().zip(ids).filter(|(there, _)| !**there) {
            *there = self.is_sealed(family, *id);
        }
    }

    /// Releases the stripe that was looked at last.
    pub(super) fn release(&mut self) {
        self.head.held = None;
    }

    /// Whether the head has samples of a series in the range. Locks its stripe until [`Presence::release`].
    pub(super) fn is_in_head(&mut self, family: u32, id: u32) -> bool {
        let span = self.head.span(id).filter(|span| span.overlaps(self.range));
        span.is_some_and(|span| self.is_shown(family, id, span, true))
    }

    /// Whether the samples between these times, which reach into the range, are any that the scope shows. `ends`: there
    /// is one at the last of the times.
    fn is_shown(&mut self, family: u32, id: u32, span: Span, ends: bool) -> bool {
        let end = self.range.end;
        match &mut self.window {
            Some(window) if span.first < window.floor && !(ends && span.last <= end.as_ms()) => {
                self.head.held = None;
                window.shows_any(family, id, end)
            }
            _ => true,
        }
    }

    /// The time of its newest sample at all, if it has any in the range.
    pub(super) fn newest(&mut self, family: u32, id: u32) -> Option<i64> {
        let is_in_head = self.is_in_head(family, id);
        self.release();
        if !is_in_head && !self.is_sealed(family, id) {
            return None;
        }
        let head = self.head.span(id);
        self.release();
        let mut newest = head.map_or(i64::MIN, |span| span.last);
        for rows in self.rows_of(family) {
            if rows.part.meta().max_ms <= newest {
                break;
            }
            newest = newest.max(rows.span(id).map_or(i64::MIN, |span| span.last));
        }
        Some(newest)
    }

    /// Calls `each` with the series whose head reaches into the range and has their newest samples, and the time of the
    /// newest; in order of ids, those of one stripe at once, whose lock is released before. One lock for every 1,024
    /// series, where [`Presence::newest`] may take one for each. Not to be asked where the scope hides time.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(super) fn each_in_head(
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

    /// Whether segments have samples of a series in the range. To be asked after [`Presence::release`].
    pub(super) fn is_sealed(&mut self, family: u32, id: u32) -> bool {
        let (set, range) = (self.set, self.sealed);
        if self.window.is_none() {
            // Where nothing is deleted and everything reaches into the range, times need not be looked at.
            let is_whole = set.tombstones.is_empty();
            return self.rows_of(family).iter_mut().any(|rows| match is_whole && rows.reaches {
                true => rows.row(id).is_some(),
                false => rows.shown(set, range, id).is_some(),
            });
        }
        let found = self.rows_of(family).iter_mut().filter_map(|rows| rows.shown(set, range, id));
        let found: Vec<(Span, bool)> = found.collect();
        found.into_iter().any(|(span, ends)| self.is_shown(family, id, span, ends))
    }

    /// Where a family lies in the segments, the newest first.
    fn rows_of(&mut self, family: u32) -> &mut [PartRows<'s>] {
        if self.family.as_ref().is_none_or(|(number, _)| *number != family) {
            let (warnings, range, before) = (self.warnings, self.sealed, self.family.take());
            // Its room is used again: a listing comes here for each family there is.
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

    /// Tells of what could not be read: it looks like ids and times that are not there.
    fn warn(&self) {
        self.set.bad_in(self.sealed).for_each(|bad| self.warnings.bad(bad));
        for part in self.parts.iter().filter(|part| part.overlaps(self.sealed)) {
            if let Err(damage) = part.segment.intact() {
                self.warnings.damage(part, &damage);
            }
        }
    }
}

/// A reader of the head that keeps to one stripe's lock while it can.
struct Cursor<'s> {
    spans: &'s Spans,
    held: Option<(u32, RwLockReadGuard<'s, Stripe>)>,
    /// None: it has no histograms.
    side: Option<&'s Side>,
}

impl Cursor<'_> {
    /// From the least to the greatest time of floats and histograms.
    fn span(&mut self, id: u32) -> Option<Span> {
        let floats = self.floats(id);
        match self.side.and_then(|side| side.span(id)) {
            Some(histograms) => Some(floats.map_or(histograms, |floats| floats.with(histograms))),
            None => floats,
        }
    }

    fn floats(&mut self, id: u32) -> Option<Span> {
        let number = id / STRIPE_SERIES;
        if self.held.as_ref().is_none_or(|(have, _)| *have != number) {
            self.held = None;
            let stripe = self.spans.stripe(number)?.read().ignore_poison();
            self.held = Some((number, stripe));
        }
        self.held.as_ref()?.1.span(slot(id))
    }
}
