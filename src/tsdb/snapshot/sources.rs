//! Where series lie in segments.

use rapidhash::RapidHashMap;

use super::warnings::Warnings;
use crate::model::TimeRange;
use crate::tsdb::decoded::Piece;
use crate::tsdb::segment::{KnownTimes, Rows};
use crate::tsdb::segments::{IndexedSegment, SegmentSet};

/// Families of segments, and some more, known at most before all are forgotten.
const FAMILIES_MAX: usize = 1 << 14;

/// Where families lie in the parts of a set, by the table's number.
#[derive(Debug, Default)]
pub(super) struct Families {
    all: Vec<Family>,
    places: RapidHashMap<u32, usize>,
    /// The place in `all` of the one asked for last.
    last: usize,
    /// Places in parts, of all of them.
    held: usize,
}

/// A family, and the parts that have it.
#[derive(Debug)]
struct Family {
    number: u32,
    parts: Vec<Found>,
}

/// A family in a segment.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Place of the part in the set.
    part: usize,
    rows: Rows,
    /// Behind the row that was found last: series come mostly in the same order here and there.
    next: usize,
    /// The timeline that was met last, and its first and last time.
    timeline: Option<(usize, (i64, i64))>,
}

/// What of a segment is to be read. It holds until the families are forgotten.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// Place of the part in the set.
    pub(super) part: usize,
    /// Places of the family, and of the part among those that have it.
    family: usize,
    found: usize,
    pub(super) row: usize,
    pub(super) timeline: usize,
    pub(super) first: i64,
    pub(super) last: i64,
    /// Not known not to be kept decoded.
    pub(super) may_be_kept: bool,
}

impl Families {
    pub(super) fn forget(&mut self) {
        *self = Families::default();
    }

    /// Whether it is time to forget them.
    pub(super) fn are_many(&self) -> bool {
        self.held.max(self.all.len()) >= FAMILIES_MAX
    }

    /// Appends where the samples of a series are, those that win last.
    pub(super) fn sources(
        &mut self,
        set: &SegmentSet,
        (family, series): (u32, u32),
        range: TimeRange,
        warnings: &Warnings,
        sources: &mut Vec<Source>,
    ) {
        if self.all.get(self.last).is_none_or(|last| last.number != family) {
            self.last = match self.places.get(&family) {
                Some(place) => *place,
                None => self.add(set, family, warnings),
            };
        }
        let Some(Family { parts, .. }) = self.all.get_mut(self.last) else { return };
        for (place, found) in parts.iter_mut().enumerate() {
            let Some(part) = set.parts.get(found.part).filter(|part| part.overlaps(range)) else { continue };
            let Some((row, timeline, (first, last))) = found.row(part, series) else { continue };
            if first <= range.end.as_ms() && range.start.as_ms() <= last {
                let (part, family) = (found.part, self.last);
                let may_be_kept = true;
                sources.push(Source { part, family, found: place, row, timeline, first, last, may_be_kept });
            }
        }
    }

    fn add(&mut self, set: &SegmentSet, number: u32, warnings: &Warnings) -> usize {
        let mut parts = Vec::new();
        for (place, part) in set.parts.iter().enumerate().filter(|(_, part)| !part.has_histograms()) {
            let Some(family) = part.family(number) else { continue };
            match part.segment.rows(family) {
                Ok(rows) => parts.push(Found { part: place, rows, next: 0, timeline: None }),
                Err(damage) => warnings.damage(part, &damage),
            }
        }
        self.held += parts.len();
        self.all.push(Family { number, parts });
        self.places.insert(number, self.all.len() - 1);
        self.all.len() - 1
    }

    /// The columns of the family that a source is in.
    pub(super) fn rows(&self, source: &Source) -> Option<&Rows> {
        Some(&self.all.get(source.family)?.parts.get(source.found)?.rows)
    }

    /// What of a source is asked for, where that is of one block and nothing of the series was deleted.
    pub(super) fn piece(
        &self,
        set: &SegmentSet,
        series: u32,
        source: &Source,
        range: TimeRange,
        known: &mut KnownTimes,
    ) -> Option<Piece> {
        let part = set.parts.get(source.part)?;
        if set.tombstones_of(part, series).next().is_some() {
            return None;
        }
        let at = (self.rows(source)?, source.row, source.timeline);
        part.segment.piece(at, range, known)
    }
}

impl Found {
    /// The row of a series, its timeline, and the first and last time of that.
    fn row(&mut self, part: &IndexedSegment, series: u32) -> Option<(usize, usize, (i64, i64))> {
        let row = part.segment.ids_of(&self.rows).row_near(self.next, series)?;
        self.next = row + 1;
        let timeline = part.segment.timeline_of(&self.rows, row)?;
        let span = match self.timeline {
            Some((number, span)) if number == timeline => span,
            _ => {
                let span = part.segment.timeline_span(timeline)?;
                self.timeline = Some((timeline, span));
                span
            }
        };
        Some((row, timeline, span))
    }
}
