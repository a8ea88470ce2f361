//! Batched lookups of series that will be read next: their locations in segments, and their values
//! if the block cache has them. A lookup of a single series waits for memory at each step. In a
//! batch, the steps of different series do not wait for each other.

use std::hint::black_box;
use std::ops::Range;

use super::locate::{LocationCache, SampleLocation};
use crate::model::TimeRange;
use crate::tsdb::block_cache::{BlockRange, CacheHandle, RANGES_MAX, RangeLookup};
use crate::tsdb::store::segments::SegmentSet;

/// Series that are looked up in one batch.
pub(in crate::tsdb::snapshot) const PREFETCH_SERIES: usize = RANGES_MAX;

/// A batch of lookups; empty until [`PrefetchWindow::restart`].
#[derive(Debug, Default)]
pub(in crate::tsdb::snapshot) struct PrefetchWindow {
    /// The number of the first series, and the requested range.
    from: usize,
    range: Option<TimeRange>,
    series: Vec<PrefetchedSeries>,
    pieces: Vec<BlockRange>,
    /// For each piece, the index of its series in `series`.
    series_of: Vec<usize>,
    /// For each piece, the result of its lookup in the block cache.
    found: Vec<RangeLookup>,
    values: Vec<f64>,
}

/// The lookup of one series.
#[derive(Debug)]
struct PrefetchedSeries {
    /// The location of the samples, if they are all in one segment.
    location: Option<SampleLocation>,
    /// The range of the cached values in `values`, and whether they are known not to decrease.
    cached: Option<(Range<usize>, bool)>,
}

impl PrefetchWindow {
    pub(in crate::tsdb::snapshot) fn clear(&mut self) {
        self.range = None;
        self.series.clear();
    }

    /// Empties the window and starts it with the series of this number.
    pub(in crate::tsdb::snapshot) fn restart(&mut self, from: usize, range: TimeRange) {
        (self.from, self.range) = (from, Some(range));
        self.series.clear();
        self.pieces.clear();
        self.series_of.clear();
        self.found.clear();
        self.values.clear();
    }

    /// Adds the next series.
    pub(in crate::tsdb::snapshot) fn push(
        &mut self,
        location: Option<SampleLocation>,
        piece: Option<BlockRange>,
    ) {
        if let Some(piece) = piece {
            self.pieces.push(piece);
            self.series_of.push(self.series.len());
        }
        self.series.push(PrefetchedSeries { location, cached: None });
    }

    /// Looks the pieces up in the block cache, and touches the blocks that will have to be decoded.
    pub(in crate::tsdb::snapshot) fn resolve(
        &mut self,
        set: &SegmentSet,
        locations: &LocationCache,
        cache_handle: Option<&mut CacheHandle>,
    ) {
        let PrefetchWindow { series, pieces, series_of, found, values, .. } = self;
        match cache_handle {
            Some(cache_handle) => cache_handle.get_many(pieces, values, found),
            None => found.extend(pieces.iter().map(|_| RangeLookup::Miss)),
        }
        for ((found, piece), place) in found.iter().zip(pieces).zip(series_of) {
            let Some(one) = series.get_mut(*place) else { continue };
            match (found, one.location) {
                (RangeLookup::Hit(start, rises), _) => {
                    one.cached = Some((*start..start + piece.wanted.len(), *rises));
                }
                (RangeLookup::Miss | RangeLookup::TooLittle, Some(mut location)) => {
                    location.may_be_cached = *found == RangeLookup::Miss;
                    one.location = Some(location);
                    let part = set.parts.get(location.part);
                    if let Some((part, rows)) = part.zip(locations.rows(&location)) {
                        black_box(part.segment.touch(rows, location.row));
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns whether the series of this number was looked up for the range.
    pub(in crate::tsdb::snapshot) fn has(&self, number: usize, range: TimeRange) -> bool {
        self.range == Some(range) && self.lookup(number).is_some()
    }

    fn lookup(&self, number: usize) -> Option<&PrefetchedSeries> {
        self.series.get(number.checked_sub(self.from)?)
    }

    /// Returns the location of a series' samples, if they are all in one segment.
    pub(in crate::tsdb::snapshot) fn location(&self, number: usize) -> Option<SampleLocation> {
        self.lookup(number)?.location
    }

    /// Returns the cached values of a series within the range, and whether they are known not to
    /// decrease.
    pub(in crate::tsdb::snapshot) fn values(&self, number: usize) -> Option<(&[f64], bool)> {
        let (range, rises) = self.lookup(number)?.cached.as_ref()?;
        Some((self.values.get(range.clone())?, *rises))
    }
}
