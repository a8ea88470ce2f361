//! The rows of a family one after the other: its record is read once for all of them.

use super::super::format::{COLUMNS, DICTIONARIES, DIRECT, FAMILIES, LOCAL};
use super::families::Family;
use super::{Block, Packed, Segment, SegmentDamage};
use crate::tsdb::codec::Reader;
use crate::tsdb::error::Damage;

/// A family whose rows are walked.
#[derive(Debug)]
pub(in crate::tsdb) struct Walk<'a> {
    segment: &'a Segment,
    family: Family<'a>,
    /// Number of the label name and column of its values, by place.
    labels: Vec<(usize, ValueColumn)>,
}

impl<'a> Walk<'a> {
    pub(in crate::tsdb) fn segment(&self) -> &'a Segment {
        self.segment
    }

    /// The series of a row.
    pub(in crate::tsdb) fn id(&self, row: usize) -> Option<u32> {
        self.segment.ids_of(&self.family.rows).get(row)
    }

    /// First and last time of a row.
    pub(in crate::tsdb) fn span(&self, row: usize) -> Option<(i64, i64)> {
        self.segment.spans_of(&self.family.rows).get(row)
    }

    /// Gives the numbers of label name and value of a row to `each`, in order of the names.
    pub(in crate::tsdb) fn numbers(
        &self,
        row: usize,
        mut each: impl FnMut(usize, u32),
    ) -> Result<(), SegmentDamage> {
        let pool = self.segment.section(COLUMNS);
        for (name, column) in &self.labels {
            let number = column.get(pool, row).and_then(|number| u32::try_from(number).ok());
            let number =
                number.ok_or_else(|| self.segment.at(FAMILIES, Damage::new(0, "a label without a value")))?;
            each(*name, number);
        }
        self.segment.intact()
    }

    /// As [`Segment::each_block`].
    pub(in crate::tsdb) fn each_block(
        &self,
        row: usize,
        act: impl FnMut(u32, Block<'a>) -> Result<bool, SegmentDamage>,
    ) -> Result<(), SegmentDamage> {
        self.segment.blocks_of(&self.family.rows, row, act)
    }
}

impl Segment {
    /// A family whose rows are to be walked: its record is read once.
    pub(in crate::tsdb) fn walk(&self, family: usize) -> Result<Walk<'_>, SegmentDamage> {
        let family = self.family(family)?;
        let in_families = |damage| self.at(FAMILIES, damage);
        let (mut names, mut columns) = (family.names, family.columns);
        let mut labels = Vec::with_capacity(family.labels);
        for _ in 0..family.labels {
            let name = usize::try_from(names.varint().map_err(in_families)?).unwrap_or(usize::MAX);
            labels.push((name, ValueColumn::take(&mut columns).map_err(in_families)?));
        }
        Ok(Walk { segment: self, family, labels })
    }

    /// The value of a number that [`Walk::numbers`] gave for a label.
    pub(in crate::tsdb) fn value(&self, name: usize, number: u32) -> Result<String, SegmentDamage> {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let text = self.dictionary(name.saturating_add(1))?.text(number);
        text.map_err(|damage| self.at(DICTIONARIES, damage))
    }
}

/// The numbers of a label's values by row.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueColumn {
    column: Packed,
    /// The numbers that the column's are places of.
    map: Option<Packed>,
}

impl ValueColumn {
    /// The reader stands at the label's column, and behind it afterwards.
    pub(super) fn take(reader: &mut Reader<'_>) -> Result<ValueColumn, Damage> {
        let form = reader.u8()?;
        let column = Packed::take(reader)?;
        let map = match form {
            DIRECT => None,
            LOCAL => Some(Packed::take(reader)?),
            _ => return Err(reader.damage("a column of no known form")),
        };
        Ok(ValueColumn { column, map })
    }

    pub(super) fn get(&self, pool: &[u8], row: usize) -> Option<usize> {
        let get = |column: &Packed, row: usize| {
            column.get(pool, row).and_then(|number| usize::try_from(number).ok())
        };
        let number = get(&self.column, row)?;
        self.map.map_or(Some(number), |map| get(&map, number))
    }
}
