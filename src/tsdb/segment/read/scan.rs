//! Reads all rows of a family, for which its record is decoded once.

use super::super::format::{COLUMNS, DICTIONARIES, DIRECT, FAMILIES, LOCAL};
use super::families::FamilyRecord;
use super::{PackedColumn, Segment, SegmentBlock, SegmentDamage};
use crate::tsdb::codec::Reader;
use crate::tsdb::error::Damage;

/// A family whose rows are read one after another.
#[derive(Debug)]
pub(in crate::tsdb) struct FamilyScan<'a> {
    segment: &'a Segment,
    family: FamilyRecord<'a>,
    /// For each label, the number of its name and the column of its values.
    labels: Vec<(usize, LabelColumn)>,
}

impl<'a> FamilyScan<'a> {
    pub(in crate::tsdb) fn segment(&self) -> &'a Segment {
        self.segment
    }

    /// Returns the series id of a row.
    pub(in crate::tsdb) fn id(&self, row: usize) -> Option<u32> {
        self.segment.ids_of(&self.family.rows).get(row)
    }

    /// Returns the first and the last time of a row.
    pub(in crate::tsdb) fn span(&self, row: usize) -> Option<(i64, i64)> {
        self.segment.spans_of(&self.family.rows).get(row)
    }

    /// Calls `each` with the number of the name and the number of the value of each label of a row,
    /// in order of the names.
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

    /// Does the same as [`Segment::each_block`].
    pub(in crate::tsdb) fn each_block(
        &self,
        row: usize,
        act: impl FnMut(u32, SegmentBlock<'a>) -> Result<bool, SegmentDamage>,
    ) -> Result<(), SegmentDamage> {
        self.segment.blocks_of(&self.family.rows, row, act)
    }
}

impl Segment {
    /// Begins a scan of a family.
    pub(in crate::tsdb) fn scan(&self, family: usize) -> Result<FamilyScan<'_>, SegmentDamage> {
        let family = self.family(family)?;
        let in_families = |damage| self.at(FAMILIES, damage);
        let (mut names, mut columns) = (family.names, family.columns);
        let mut labels = Vec::with_capacity(family.labels);
        for _ in 0..family.labels {
            let name = usize::try_from(names.varint().map_err(in_families)?).unwrap_or(usize::MAX);
            labels.push((name, LabelColumn::take(&mut columns).map_err(in_families)?));
        }
        Ok(FamilyScan { segment: self, family, labels })
    }

    /// Returns the value for numbers that [`FamilyScan::numbers`] has reported.
    pub(in crate::tsdb) fn value(&self, name: usize, number: u32) -> Result<String, SegmentDamage> {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let text = self.dictionary(name.saturating_add(1))?.text(number);
        text.map_err(|damage| self.at(DICTIONARIES, damage))
    }
}

/// The numbers of a label's values by row.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelColumn {
    column: PackedColumn,
    /// In the form with local numbers, the column of value numbers by local number.
    map: Option<PackedColumn>,
}

impl LabelColumn {
    /// Reads the references of a label's column. The reader moves behind them.
    pub(super) fn take(reader: &mut Reader<'_>) -> Result<LabelColumn, Damage> {
        let form = reader.u8()?;
        let column = PackedColumn::take(reader)?;
        let map = match form {
            DIRECT => None,
            LOCAL => Some(PackedColumn::take(reader)?),
            _ => return Err(reader.damage("a column of an unknown form")),
        };
        Ok(LabelColumn { column, map })
    }

    /// Returns the number of the value of a row.
    pub(super) fn get(&self, pool: &[u8], row: usize) -> Option<usize> {
        let get = |column: &PackedColumn, row: usize| {
            column.get(pool, row).and_then(|number| usize::try_from(number).ok())
        };
        let number = get(&self.column, row)?;
        self.map.map_or(Some(number), |map| get(&map, number))
    }
}
