//! Series that will be read next, looked up some at a time: where they are in segments, and a few values of those that are
//! kept decoded. One by one each would wait for memory at every step of its way; of so many at once no step of one waits
//! for a step of another.

use std::hint::black_box;
use std::ops::Range;

use super::sources::{Families, Source};
use crate::model::TimeRange;
use crate::tsdb::block_cache::{BlockRange, CacheHandle, RANGES_MAX, RangeLookup};
use crate::tsdb::segments::SegmentSet;

/// Series that are looked up at once.
pub(super) const WINDOW: usize = RANGES_MAX;

/// What was looked up; nothing until [`Window::begin`].
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The number of the first series, and the range that was asked for.
    from: usize,
    range: Option<TimeRange>,
    series: Vec<Looked>,
    pieces: Vec<BlockRange>,
    /// For each piece its place in `series`.
    of: Vec<usize>,
    /// For each piece what came of it.
    found: Vec<RangeLookup>,
    values: Vec<f64>,
}

/// One series.
#[derive(Debug)]
struct Looked {
    /// Where all its samples are, if they are in one segment.
    source: Option<Source>,
    /// Those that are asked for among `values`, and whether they are known to rise.
    kept: Option<(Range<usize>, bool)>,
}

impl Window {
    pub(super) fn clear(&mut self) {
        self.range = None;
        self.series.clear();
    }

    /// Begins anew, with the series of this number.
    pub(super) fn begin(&mut self, from: usize, range: TimeRange) {
        (self.from, self.range) = (from, Some(range));
        self.series.clear();
        self.pieces.clear();
        self.of.clear();
        self.found.clear();
        self.values.clear();
    }

    /// Adds the next series.
    pub(super) fn push(&mut self, source: Option<Source>, piece: Option<BlockRange>) {
        if let Some(piece) = piece {
            self.pieces.push(piece);
            self.of.push(self.series.len());
        }
        self.series.push(Looked { source, kept: None });
    }

    /// Looks for the pieces among what is kept, and at what will be decoded of those that are not.
    pub(super) fn find(&mut self, set: &SegmentSet, families: &Families, keeper: Option<&mut CacheHandle>) {
        let Window { series, pieces, of, found, values, .. } = self;
        match keeper {
            Some(keeper) => keeper.get_many(pieces, values, found),
            None => found.extend(pieces.iter().map(|_| RangeLookup::Miss)),
        }
        for ((found, piece), place) in found.iter().zip(pieces).zip(of) {
            let Some(one) = series.get_mut(*place) else { continue };
            match (found, one.source) {
                (RangeLookup::Hit(start, rises), _) => {
                    one.kept = Some((*start..start + piece.wanted.len(), *rises));
                }
                (RangeLookup::Miss | RangeLookup::TooLittle, Some(mut source)) => {
                    source.may_be_kept = *found == RangeLookup::Miss;
                    one.source = Some(source);
                    let part = set.parts.get(source.part);
                    if let Some((part, rows)) = part.zip(families.rows(&source)) {
                        black_box(part.segment.touch(rows, source.row));
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether the series of this number was looked up for the range.
    pub(super) fn has(&self, number: usize, range: TimeRange) -> bool {
        self.range == Some(range) && self.looked(number).is_some()
    }

    fn looked(&self, number: usize) -> Option<&Looked> {
        self.series.get(number.checked_sub(self.from)?)
    }

    /// Where all samples of a series are, if they are in one segment.
    pub(super) fn source(&self, number: usize) -> Option<Source> {
        self.looked(number)?.source
    }

    /// The values of a series within the range, where they are kept, and whether they are known to rise.
    pub(super) fn values(&self, number: usize) -> Option<(&[f64], bool)> {
        let (range, rises) = self.looked(number)?.kept.as_ref()?;
        Some((self.values.get(range.clone())?, *rises))
    }
}
