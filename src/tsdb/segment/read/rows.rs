//! The rows of a family: their series, their spans of time, and the positions of their blocks.

use std::ops::Range;

use super::super::format::{COLUMNS, DATA, FAMILIES};
use super::super::packed::PackedColumn;
use super::{Segment, SegmentDamage};
use crate::tsdb::error::Damage;

/// The columns of the timelines.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimelineColumns {
    pub(super) len: usize,
    pub(super) first: PackedColumn,
    pub(super) last: PackedColumn,
    pub(super) ends: PackedColumn,
    pub(super) blocks: PackedColumn,
}

/// The columns of a family's rows. Decode them once for reads of many rows.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct FamilyRows {
    pub(super) len: usize,
    /// Offset in DATA of the family's blocks.
    pub(super) data: u64,
    pub(super) ids: PackedColumn,
    pub(super) timelines: PackedColumn,
    pub(super) offsets: PackedColumn,
}

/// A row of a family.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct FamilyRow<'r> {
    pub(in crate::tsdb) rows: &'r FamilyRows,
    pub(in crate::tsdb) row: usize,
}

/// A row of a family with the number of its timeline.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct TimelineRow<'r> {
    pub(in crate::tsdb) rows: &'r FamilyRows,
    pub(in crate::tsdb) row: usize,
    pub(in crate::tsdb) timeline: usize,
}

/// The position of a row's samples.
#[derive(Debug)]
pub(super) struct RowLocation<'a> {
    pub(super) id: u32,
    /// The time blocks, as a range of the list of blocks of all timelines.
    pub(super) list: Range<usize>,
    /// Offset of the region in DATA.
    pub(super) start: usize,
    /// The lengths of the row's value blocks, then the blocks.
    pub(super) region: &'a [u8],
}

/// The series ids of a family by row, ascending.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct SeriesIds<'a> {
    pool: &'a [u8],
    column: PackedColumn,
    rows: usize,
}

impl SeriesIds<'_> {
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

    /// Returns the row of a series by binary search.
    pub(in crate::tsdb) fn row_of(&self, id: u32) -> Option<usize> {
        self.row_within(0..self.rows, id)
    }

    /// Returns the row of a series by a search from `near` on. For ascending ids, the next row is
    /// at `near` or slightly after it.
    #[inline]
    pub(in crate::tsdb) fn row_near(&self, near: usize, id: u32) -> Option<usize> {
        let at = self.get(near);
        if at == Some(id) { Some(near) } else { self.row_beyond(near, at, id) }
    }

    /// Returns the row of a series that is not at `near`.
    fn row_beyond(&self, near: usize, at: Option<u32>, id: u32) -> Option<usize> {
        if at.is_none_or(|at| at > id) {
            return self.row_within(0..near.min(self.rows), id);
        }
        // Exponential search: few steps for a near row, and at most twice those of a binary search
        // for a far one.
        let (mut before, mut step) = (near, 1);
        loop {
            let next = before + step;
            match self.get(next) {
                Some(found) if found < id => (before, step) = (next, step * 2),
                _ => return self.row_within(before + 1..self.rows.min(next + 1), id),
            }
        }
    }

    /// Returns the row of a series by binary search in a range of rows.
    fn row_within(&self, Range { mut start, mut end }: Range<usize>, id: u32) -> Option<usize> {
        while start < end {
            let middle = usize::midpoint(start, end);
            if self.get(middle)? < id { start = middle + 1 } else { end = middle }
        }
        (self.get(start)? == id).then_some(start)
    }
}

/// The first and the last time of each row.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct RowSpans<'a> {
    pool: &'a [u8],
    rows: usize,
    column: PackedColumn,
    timelines: &'a TimelineColumns,
}

impl RowSpans<'_> {
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
    /// Returns the range of time that every row covers, as the latest first time and the earliest
    /// last time. `None` if there are more than `TIMELINES_MAX` timelines.
    pub(in crate::tsdb) fn common_span(&self) -> Option<(i64, i64)> {
        /// With regular senders there is one timeline for each target.
        const TIMELINES_MAX: usize = 4_096;
        let TimelineColumns { len, first, last, .. } = self.timelines;
        if len == 0 || len > TIMELINES_MAX {
            return None;
        }
        let pool = self.section(COLUMNS);
        (0..len).try_fold((i64::MIN, i64::MAX), |(from, to), timeline| {
            Some((from.max(first.get(pool, timeline)?), to.min(last.get(pool, timeline)?)))
        })
    }

    /// Returns the columns of a family's rows.
    pub(in crate::tsdb) fn rows(&self, family: usize) -> Result<FamilyRows, SegmentDamage> {
        Ok(self.family(family)?.rows)
    }

    pub(in crate::tsdb) fn ids(&self, family: usize) -> Option<SeriesIds<'_>> {
        Some(self.ids_of(&self.family(family).ok()?.rows))
    }

    pub(in crate::tsdb) fn ids_of(&self, rows: &FamilyRows) -> SeriesIds<'_> {
        SeriesIds { pool: self.section(COLUMNS), column: rows.ids, rows: rows.len }
    }

    /// Returns the row of a series in a family.
    pub(in crate::tsdb) fn row_of(&self, family: usize, id: u32) -> Option<usize> {
        self.ids(family)?.row_of(id)
    }

    /// Returns the first and the last time of a row.
    pub(in crate::tsdb) fn span(&self, family: usize, row: usize) -> Option<(i64, i64)> {
        self.spans(family).ok()?.get(row)
    }

    /// Returns the spans of all rows of a family. This is cheaper than [`Segment::span`] for many
    /// rows.
    pub(in crate::tsdb) fn spans(&self, family: usize) -> Result<RowSpans<'_>, SegmentDamage> {
        Ok(self.spans_of(&self.family(family)?.rows))
    }

    pub(in crate::tsdb) fn spans_of(&self, rows: &FamilyRows) -> RowSpans<'_> {
        let pool = self.section(COLUMNS);
        RowSpans { pool, rows: rows.len, column: rows.timelines, timelines: &self.timelines }
    }

    /// Returns the number of a row's timeline. Rows with the same number have the same times.
    #[inline]
    pub(in crate::tsdb) fn timeline_of(&self, rows: &FamilyRows, row: usize) -> Option<usize> {
        if row >= rows.len {
            return None;
        }
        let number = usize::try_from(rows.timelines.get(self.section(COLUMNS), row)?).ok()?;
        (number < self.timelines.len).then_some(number)
    }

    /// Returns the first and the last time of a timeline.
    pub(in crate::tsdb) fn timeline_span(&self, number: usize) -> Option<(i64, i64)> {
        let pool = self.section(COLUMNS);
        Some((self.timelines.first.get(pool, number)?, self.timelines.last.get(pool, number)?))
    }

    /// Returns the time blocks of a timeline, as a range of the list of blocks of all timelines.
    pub(super) fn timeline_list(&self, number: usize) -> Option<Range<usize>> {
        let pool = self.section(COLUMNS);
        let end = |number: usize| usize::try_from(self.timelines.ends.get(pool, number)?).ok();
        let from = if number == 0 { 0 } else { end(number - 1)? };
        Some(from..end(number)?)
    }

    /// Returns the position of a row's samples.
    pub(super) fn stored(&self, rows: &FamilyRows, row: usize) -> Result<RowLocation<'_>, SegmentDamage> {
        let found = if row < rows.len { self.find_stored(rows, row) } else { None };
        found.ok_or_else(|| self.no_row())
    }

    /// The damage that a reference to an absent row shows.
    pub(super) fn no_row(&self) -> SegmentDamage {
        self.at(FAMILIES, Damage::new(0, "no such row"))
    }

    fn find_stored(&self, rows: &FamilyRows, row: usize) -> Option<RowLocation<'_>> {
        let pool = self.section(COLUMNS);
        let number = |column: &PackedColumn, index: usize| {
            column.get(pool, index).and_then(|value| usize::try_from(value).ok())
        };
        let id = u32::try_from(rows.ids.get(pool, row)?).ok()?;
        let list = self.timeline_list(self.timeline_of(rows, row)?)?;
        let base = usize::try_from(rows.data).ok()?;
        let start = base.checked_add(number(&rows.offsets, row)?)?;
        let end = base.checked_add(number(&rows.offsets, row + 1)?)?;
        let region = self.section(DATA).get(start..end)?;
        Some(RowLocation { id, list, start, region })
    }

    /// Returns the offset in TIMES of a time block, given its index in the list of blocks of all
    /// timelines.
    pub(super) fn time_block_offset(&self, list_index: usize) -> Option<usize> {
        usize::try_from(self.timelines.blocks.get(self.section(COLUMNS), list_index)?).ok()
    }
}
