//! The rows of a family: their series, the times that each spans, and where its blocks are.

use std::ops::Range;

use super::super::format::{COLUMNS, DATA, FAMILIES};
use super::super::packed::Packed;
use super::{Segment, SegmentDamage};
use crate::tsdb::error::Damage;

/// The columns of the timelines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timelines {
    pub(super) len: usize,
    pub(super) first: Packed,
    pub(super) last: Packed,
    pub(super) ends: Packed,
    pub(super) blocks: Packed,
}

/// The columns of a family's rows. Whoever reads many of them decodes the family's record once.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct Rows {
    pub(super) len: usize,
    /// Where its blocks begin in DATA.
    pub(super) data: u64,
    pub(super) ids: Packed,
    pub(super) timelines: Packed,
    pub(super) offsets: Packed,
}

/// Where a row's samples are.
#[derive(Debug)]
pub(super) struct Stored<'a> {
    pub(super) id: u32,
    /// Its time blocks, as places in the list of all timelines.
    pub(super) list: Range<usize>,
    /// Where the region begins in DATA.
    pub(super) start: usize,
    /// Lengths of its blocks, and the blocks.
    pub(super) region: &'a [u8],
}

/// The series ids of a family, ascending, by row.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct Ids<'a> {
    pool: &'a [u8],
    column: Packed,
    rows: usize,
}

impl Ids<'_> {
    pub(in crate::tsdb) fn len(&self) -> usize {
        self.rows
    }

    #[inline]
    pub(in crate::tsdb) fn get(&self, row: usize) -> Option<u32> {
        if row >= self.rows {
            return None;
        }
        u32::try_from(self.column.get(self.pool, row)?).ok()
    }

    pub(in crate::tsdb) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.rows).map_while(|row| self.get(row))
    }

    /// The row of a series.
    pub(in crate::tsdb) fn row_of(&self, id: u32) -> Option<usize> {
        self.row_within(0..self.rows, id)
    }

    /// The row of a series, looked for from `near` on: who asks in order of ids finds the next one there or soon behind.
    #[inline]
    pub(in crate::tsdb) fn row_near(&self, near: usize, id: u32) -> Option<usize> {
        let at = self.get(near);
        if at == Some(id) { Some(near) } else { self.row_beyond((near, at), id) }
    }

    /// The row of a series, which is not that at `near`.
    fn row_beyond(&self, (near, at): (usize, Option<u32>), id: u32) -> Option<usize> {
        if at.is_none_or(|at| at > id) {
            return self.row_within(0..near.min(self.rows), id);
        }
        // Steps twice as long each: few for what is near, not twice as many as halving takes for what is far.
        let (mut before, mut step) = (near, 1);
        loop {
            let next = before + step;
            match self.get(next) {
                Some(found) if found < id => (before, step) = (next, step * 2),
                _ => return self.row_within(before + 1..self.rows.min(next + 1), id),
            }
        }
    }

    fn row_within(&self, Range { mut start, mut end }: Range<usize>, id: u32) -> Option<usize> {
        while start < end {
            let middle = usize::midpoint(start, end);
            if self.get(middle)? < id { start = middle + 1 } else { end = middle }
        }
        (self.get(start)? == id).then_some(start)
    }
}

/// First and last times by row.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct Spans<'a> {
    pool: &'a [u8],
    rows: usize,
    column: Packed,
    timelines: &'a Timelines,
}

impl Spans<'_> {
    #[inline]
    pub(in crate::tsdb) fn get(&self, row: usize) -> Option<(i64, i64)> {
        if row >= self.rows {
            return None;
        }
        let timeline = usize::try_from(self.column.get(self.pool, row)?).ok()?;
        Some((self.timelines.first.get(self.pool, timeline)?, self.timelines.last.get(self.pool, timeline)?))
    }
}

impl Segment {
    /// The latest first and the earliest last time of all rows, where they have few timelines.
    pub(in crate::tsdb) fn common(&self) -> Option<(i64, i64)> {
        /// Of regular senders every target has one.
        const TIMELINES_MAX: usize = 4_096;
        let Timelines { len, first, last, .. } = self.timelines;
        if len == 0 || len > TIMELINES_MAX {
            return None;
        }
        let pool = self.section(COLUMNS);
        (0..len).try_fold((i64::MIN, i64::MAX), |(from, to), timeline| {
            Some((from.max(first.get(pool, timeline)?), to.min(last.get(pool, timeline)?)))
        })
    }

    /// The columns of a family's rows.
    pub(in crate::tsdb) fn rows(&self, family: usize) -> Result<Rows, SegmentDamage> {
        Ok(self.family(family)?.rows)
    }

    pub(in crate::tsdb) fn ids(&self, family: usize) -> Option<Ids<'_>> {
        Some(self.ids_of(&self.family(family).ok()?.rows))
    }

    pub(in crate::tsdb) fn ids_of(&self, rows: &Rows) -> Ids<'_> {
        Ids { pool: self.section(COLUMNS), column: rows.ids, rows: rows.len }
    }

    /// The row of a series in a family.
    pub(in crate::tsdb) fn row_of(&self, family: usize, id: u32) -> Option<usize> {
        self.ids(family)?.row_of(id)
    }

    /// First and last time of a series here.
    pub(in crate::tsdb) fn span(&self, family: usize, row: usize) -> Option<(i64, i64)> {
        self.spans(family).ok()?.get(row)
    }

    /// First and last times of a family's series: for many rows, cheaper than [`Segment::span`].
    pub(in crate::tsdb) fn spans(&self, family: usize) -> Result<Spans<'_>, SegmentDamage> {
        Ok(self.spans_of(&self.family(family)?.rows))
    }

    pub(in crate::tsdb) fn spans_of(&self, rows: &Rows) -> Spans<'_> {
        let pool = self.section(COLUMNS);
        Spans { pool, rows: rows.len, column: rows.timelines, timelines: &self.timelines }
    }

    /// The number of a row's timeline: with those of one number a row shares its times.
    #[inline]
    pub(in crate::tsdb) fn timeline_of(&self, rows: &Rows, row: usize) -> Option<usize> {
        if row >= rows.len {
            return None;
        }
        let number = usize::try_from(rows.timelines.get(self.section(COLUMNS), row)?).ok()?;
        (number < self.timelines.len).then_some(number)
    }

    /// First and last time of a timeline.
    pub(in crate::tsdb) fn timeline_span(&self, number: usize) -> Option<(i64, i64)> {
        let pool = self.section(COLUMNS);
        Some((self.timelines.first.get(pool, number)?, self.timelines.last.get(pool, number)?))
    }

    /// The time blocks of a timeline, as places in the list of all timelines.
    pub(super) fn timeline_list(&self, number: usize) -> Option<Range<usize>> {
        let pool = self.section(COLUMNS);
        let end = |number: usize| usize::try_from(self.timelines.ends.get(pool, number)?).ok();
        let from = if number == 0 { 0 } else { end(number - 1)? };
        Some(from..end(number)?)
    }

    /// Where the samples of a row are.
    pub(super) fn stored(&self, rows: &Rows, row: usize) -> Result<Stored<'_>, SegmentDamage> {
        let found = if row < rows.len { self.find_stored(rows, row) } else { None };
        found.ok_or_else(|| self.no_row())
    }

    pub(super) fn no_row(&self) -> SegmentDamage {
        self.at(FAMILIES, Damage::new(0, "a row that is not there"))
    }

    fn find_stored(&self, rows: &Rows, row: usize) -> Option<Stored<'_>> {
        let pool = self.section(COLUMNS);
        let number = |column: &Packed, place: usize| {
            column.get(pool, place).and_then(|value| usize::try_from(value).ok())
        };
        let id = u32::try_from(rows.ids.get(pool, row)?).ok()?;
        let list = self.timeline_list(self.timeline_of(rows, row)?)?;
        let base = usize::try_from(rows.data).ok()?;
        let start = base.checked_add(number(&rows.offsets, row)?)?;
        let end = base.checked_add(number(&rows.offsets, row + 1)?)?;
        let region = self.section(DATA).get(start..end)?;
        Some(Stored { id, list, start, region })
    }

    /// Where in TIMES the time block at this place in the list of all timelines is.
    pub(super) fn time_place(&self, place: usize) -> Option<usize> {
        usize::try_from(self.timelines.blocks.get(self.section(COLUMNS), place)?).ok()
    }
}
