//! Locations of series in segments.

use rapidhash::RapidHashMap;

use super::merge::TableSeries;
use crate::model::TimeRange;
use crate::tsdb::block_cache::BlockRange;
use crate::tsdb::segment::{FamilyRows, TimelineCache, TimelineRow};
use crate::tsdb::snapshot::warnings::Warnings;
use crate::tsdb::store::segments::{IndexedSegment, SegmentSet};

/// The families and locations that are cached at most before the cache is cleared.
const FAMILIES_MAX: usize = 1 << 14;

/// A cache of the locations of families in the parts of a set, by the table's family number.
#[derive(Debug, Default)]
pub(in crate::tsdb::snapshot) struct LocationCache {
    all: Vec<LocatedFamily>,
    places: RapidHashMap<u32, usize>,
    /// The index in `all` of the family requested last.
    last: usize,
    /// The total length of `parts` in `all`.
    held: usize,
}

/// A family and the parts that contain it.
#[derive(Debug)]
struct LocatedFamily {
    number: u32,
    parts: Vec<FamilyInPart>,
}

/// A family in a segment.
#[derive(Clone, Copy, Debug)]
struct FamilyInPart {
    /// The index of the part in the set.
    part: usize,
    rows: FamilyRows,
    /// The row after the one found last. Series mostly have the same order in all segments.
    next: usize,
    /// The timeline used last, and its first and last time.
    timeline: Option<(usize, (i64, i64))>,
}

/// The location of a series' samples in a segment. It is valid until the cache is cleared.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb::snapshot) struct SampleLocation {
    /// The index of the part in the set.
    pub(in crate::tsdb::snapshot) part: usize,
    /// The indexes of the family in `all`, and of the part in `LocatedFamily::parts`.
    family: usize,
    found: usize,
    pub(in crate::tsdb::snapshot) row: usize,
    pub(in crate::tsdb::snapshot) timeline: usize,
    pub(in crate::tsdb::snapshot) first: i64,
    pub(in crate::tsdb::snapshot) last: i64,
    /// False if the block cache is known not to have the values.
    pub(in crate::tsdb::snapshot) may_be_cached: bool,
}

impl LocationCache {
    pub(in crate::tsdb::snapshot) fn clear(&mut self) {
        *self = LocationCache::default();
    }

    /// Returns whether the cache should be cleared.
    pub(in crate::tsdb::snapshot) fn is_full(&self) -> bool {
        self.held.max(self.all.len()) >= FAMILIES_MAX
    }

    /// Appends the locations of a series' samples. If two have the same time, the later location
    /// wins.
    pub(in crate::tsdb::snapshot) fn locate(
        &mut self,
        set: &SegmentSet,
        series: TableSeries,
        range: TimeRange,
        warnings: &Warnings,
        locations: &mut Vec<SampleLocation>,
    ) {
        let Some(family) = series.family else { return };
        if self.all.get(self.last).is_none_or(|last| last.number != family) {
            self.last = match self.places.get(&family) {
                Some(place) => *place,
                None => self.add(set, family, warnings),
            };
        }
        let Some(LocatedFamily { parts, .. }) = self.all.get_mut(self.last) else { return };
        for (place, found) in parts.iter_mut().enumerate() {
            let Some(part) = set.parts.get(found.part).filter(|part| part.overlaps(range)) else { continue };
            let Some((row, timeline, (first, last))) = found.row(part, series.series) else { continue };
            if first <= range.end.as_ms() && range.start.as_ms() <= last {
                let (part, family) = (found.part, self.last);
                let may_be_cached = true;
                locations.push(SampleLocation {
                    part,
                    family,
                    found: place,
                    row,
                    timeline,
                    first,
                    last,
                    may_be_cached,
                });
            }
        }
    }

    fn add(&mut self, set: &SegmentSet, number: u32, warnings: &Warnings) -> usize {
        let mut parts = Vec::new();
        for (place, part) in set.parts.iter().enumerate().filter(|(_, part)| !part.has_histograms()) {
            let Some(family) = part.family(number) else { continue };
            match part.segment.rows(family) {
                Ok(rows) => parts.push(FamilyInPart { part: place, rows, next: 0, timeline: None }),
                Err(damage) => warnings.damage(part, &damage),
            }
        }
        self.held += parts.len();
        self.all.push(LocatedFamily { number, parts });
        self.places.insert(number, self.all.len() - 1);
        self.all.len() - 1
    }

    /// Returns the columns of the family at a location.
    pub(in crate::tsdb::snapshot) fn rows(&self, location: &SampleLocation) -> Option<&FamilyRows> {
        Some(&self.all.get(location.family)?.parts.get(location.found)?.rows)
    }

    /// Returns the requested range of values if it is in one block and nothing of the series was
    /// deleted.
    pub(in crate::tsdb::snapshot) fn piece(
        &self,
        set: &SegmentSet,
        series: u32,
        location: &SampleLocation,
        range: TimeRange,
        known: &mut TimelineCache,
    ) -> Option<BlockRange> {
        let part = set.parts.get(location.part)?;
        if set.tombstones_of(part, series).next().is_some() {
            return None;
        }
        let at = TimelineRow { rows: self.rows(location)?, row: location.row, timeline: location.timeline };
        part.segment.block_range(at, range, known)
    }
}

impl FamilyInPart {
    /// Returns the row of a series, its timeline, and the first and last time of the timeline.
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
