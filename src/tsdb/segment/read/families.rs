//! Reads the families of a segment: metric names, label names and label values.

use super::super::dictionary::Dictionary;
use super::super::format::{COLUMNS, DICTIONARIES, FAMILIES};
use super::super::packed::PackedColumn;
use super::scan::LabelColumn;
use super::{FamilyRows, Segment, SegmentDamage, TimelineColumns};
use crate::tsdb::codec::Reader;
use crate::tsdb::error::Damage;

/// The decoded record of a family, except for its label columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct FamilyRecord<'a> {
    pub(super) metric: u64,
    pub(super) rows: FamilyRows,
    pub(super) labels: usize,
    /// A reader at the numbers of the label names.
    pub(super) names: Reader<'a>,
    /// A reader at the column of the first label.
    pub(super) columns: Reader<'a>,
}

impl Segment {
    /// Returns the numbers of metric name and label names.
    fn key(&self, family: usize) -> Result<(u64, Vec<u64>), SegmentDamage> {
        let mut found = self.family(family)?;
        let names = (0..found.labels).map(|_| found.names.varint());
        let names = names.collect::<Result<_, Damage>>().map_err(|damage| self.at(FAMILIES, damage))?;
        Ok((found.metric, names))
    }

    /// Returns the label names of a family, ascending.
    pub(in crate::tsdb) fn names(&self, family: usize) -> Result<Vec<String>, SegmentDamage> {
        let (_, names) = self.key(family)?;
        let dictionary = self.dictionary(0)?;
        let text = |name: u64| dictionary.text(usize::try_from(name).unwrap_or(usize::MAX));
        names
            .into_iter()
            .map(text)
            .collect::<Result<_, Damage>>()
            .map_err(|damage| self.at(DICTIONARIES, damage))
    }

    /// Returns the metric name of a family, if it has one.
    pub(in crate::tsdb) fn metric(&self, family: usize) -> Result<Option<String>, SegmentDamage> {
        let metric = self.family(family)?.metric;
        let Some(number) = metric.checked_sub(1) else { return Ok(None) };
        let in_dictionaries = |damage| self.at(DICTIONARIES, damage);
        let name = self.dictionary(0)?.find(crate::model::METRIC_NAME).map_err(in_dictionaries)?;
        let Some(name) = name else { return Ok(None) };
        let values = self.dictionary(name + 1)?;
        values.text(usize::try_from(number).unwrap_or(usize::MAX)).map(Some).map_err(in_dictionaries)
    }

    /// Returns the labels of a row in order of their names, the metric name included.
    pub(in crate::tsdb) fn series_labels(
        &self,
        family: usize,
        row: usize,
    ) -> Result<Vec<(String, String)>, SegmentDamage> {
        let names = self.names(family)?;
        let values = self.series_values(family, row)?;
        Ok(names.into_iter().zip(values).collect())
    }

    /// Returns the label values of a row in order of the label names.
    pub(in crate::tsdb) fn series_values(
        &self,
        family: usize,
        row: usize,
    ) -> Result<Vec<String>, SegmentDamage> {
        let mut found = self.family(family)?;
        let pool = self.section(COLUMNS);
        if row >= found.rows.len {
            return Err(self.no_row());
        }
        let mut values = Vec::with_capacity(found.labels);
        for _ in 0..found.labels {
            let in_families = |damage| self.at(FAMILIES, damage);
            let name = found.names.varint().map_err(in_families)?;
            let number = value_number(&mut found.columns, pool, row).map_err(in_families)?;
            let dictionary =
                self.dictionary(usize::try_from(name).unwrap_or(usize::MAX).saturating_add(1))?;
            values.push(dictionary.text(number).map_err(|damage| self.at(DICTIONARIES, damage))?);
        }
        self.intact()?;
        Ok(values)
    }

    /// Decodes the record of a family.
    pub(super) fn family(&self, family: usize) -> Result<FamilyRecord<'_>, SegmentDamage> {
        let bytes = self.section(FAMILIES);
        record(bytes, family, self.families).map_err(|damage| self.at(FAMILIES, damage))
    }

    /// Returns a dictionary. Number 0 has the label names, number `1 + n` the values of label name
    /// `n`.
    pub(super) fn dictionary(&self, number: usize) -> Result<Dictionary<'_>, SegmentDamage> {
        let bytes = self.section(DICTIONARIES);
        nth(bytes, 4, number, count(bytes))
            .and_then(Dictionary::new)
            .map_err(|damage| self.at(DICTIONARIES, damage))
    }
}

/// Reads the u32 at the start of a section.
fn count(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(0, |count| usize::try_from(u32::from_le_bytes(*count)).unwrap_or_default())
}

/// Returns part `number` of `count` parts of a section, whose table of u32 offsets begins at
/// `table`.
fn nth(bytes: &[u8], table: usize, number: usize, count: usize) -> Result<&[u8], Damage> {
    let offset = |number: usize| {
        let at = number.checked_mul(4)?.checked_add(table)?;
        usize::try_from(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?)).ok()
    };
    let range = if number < count { offset(number).zip(offset(number + 1)) } else { None };
    range
        .and_then(|(start, end)| bytes.get(start..end))
        .ok_or_else(|| Damage::new(table, "no such part of the directory"))
}

/// Decodes the number of families and the columns of the timelines.
pub(super) fn directory(bytes: &[u8]) -> Result<(usize, TimelineColumns), Damage> {
    let mut reader = Reader::new(bytes);
    let families = usize::try_from(reader.u32()?).map_err(|_| reader.damage("too many families"))?;
    let len = usize::try_from(reader.u32()?).map_err(|_| reader.damage("too many timelines"))?;
    reader.take(families.saturating_add(1).saturating_mul(4))?;
    let (first, last) = (PackedColumn::take(&mut reader)?, PackedColumn::take(&mut reader)?);
    let (ends, blocks) = (PackedColumn::take(&mut reader)?, PackedColumn::take(&mut reader)?);
    Ok((families, TimelineColumns { len, first, last, ends, blocks }))
}

/// Decodes the record of family `family` of `families`.
fn record(bytes: &[u8], family: usize, families: usize) -> Result<FamilyRecord<'_>, Damage> {
    let record = nth(bytes, 8, family, families)?;
    let mut reader = Reader::new(record);
    let metric = reader.varint()?;
    let len = usize::try_from(reader.varint()?).ok().filter(|rows| u32::try_from(*rows).is_ok());
    let len = len.ok_or_else(|| reader.damage("too many rows"))?;
    let data = reader.varint()?;
    let labels = reader.count(1)?;
    let names = reader;
    for _ in 0..labels {
        reader.varint()?;
    }
    let ids = PackedColumn::take(&mut reader)?;
    let timelines = PackedColumn::take(&mut reader)?;
    let offsets = PackedColumn::take(&mut reader)?;
    let rows = FamilyRows { len, data, ids, timelines, offsets };
    Ok(FamilyRecord { metric, rows, labels, names, columns: reader })
}

/// Returns the number of a row's value. The reader is at the label's column and moves behind it.
fn value_number(reader: &mut Reader<'_>, pool: &[u8], row: usize) -> Result<usize, Damage> {
    LabelColumn::take(reader)?.get(pool, row).ok_or_else(|| reader.damage("a label without a value"))
}
