//! Bulk loading of a table from a registry.
//!
//! A start that adds series one by one spends most of its time on a lookup before each insertion.
//! Here rows are appended to their columns first, and two threads build the hash table of all rows
//! at the end. A registry that was written in order has no repeated id or label set and no id that
//! is far too large. This module does not handle such cases: [`BulkLoader`] fails, and the caller
//! reads the registry through [`Table::define_all`], which reports the errors.

use super::{CodeColumn, Family, GAP_MAX, HashSecret, IdTable, LabelCodes, Table, TextHash, UNKNOWN};
use crate::tsdb::error::Damage;
use crate::tsdb::series::columns::{reserve_many, trim};
use crate::tsdb::series::definition_columns::{BodyTexts, DefinitionColumns, GroupColumns};
use crate::tsdb::series::metadata::{self, Metadata};

/// The error for a registry that cannot be loaded in bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct NotBulkLoadable;

impl From<Damage> for NotBulkLoadable {
    fn from(_: Damage) -> NotBulkLoadable {
        NotBulkLoadable
    }
}

/// Number of rows that are hashed in one batch.
const BATCH_ROWS: usize = 256;
/// Tables with at most this many series are hashed by one thread.
const ONE_THREAD_MAX: usize = 1 << 15;

/// A table under construction, whose series cannot be found by their labels yet.
#[derive(Debug)]
pub(in crate::tsdb) struct BulkLoader {
    table: Table,
    metadata: Metadata,
}

impl BulkLoader {
    pub(in crate::tsdb) fn new(secret: HashSecret) -> BulkLoader {
        BulkLoader { table: Table::new(secret), metadata: Metadata::default() }
    }

    /// Appends the series of one body to those of the bodies before it. This overwrites the cells
    /// of `sheet`.
    pub(in crate::tsdb) fn add(&mut self, body: &mut DefinitionColumns) -> Result<(), NotBulkLoadable> {
        let greatest = body.greatest_id().unwrap_or(0);
        if greatest == u32::MAX || greatest as usize > self.table.places.len() + GAP_MAX {
            return Err(NotBulkLoadable);
        }
        let (texts, mut groups) = body.groups();
        let mut codes = TextCodes {
            texts,
            names: vec![UNKNOWN; texts.len()],
            values: vec![(UNKNOWN, UNKNOWN); texts.len()],
        };
        groups.try_for_each(|group| self.add_group(group, &mut codes).ok_or(NotBulkLoadable))
    }

    fn add_group(&mut self, group: GroupColumns<'_>, codes: &mut TextCodes<'_>) -> Option<()> {
        let table = &mut self.table;
        let GroupColumns { names, metric, ids, cells } = group;
        let mut shape = LabelCodes::default();
        let mut columns = cells.chunks_exact_mut(ids.len().max(1));
        for name in names {
            let name = codes.name(table, *name)?;
            let column = columns.next()?;
            codes.values(table, name, column)?;
            shape.names.push(name);
            shape.codes.push(*column.first()?);
        }
        let metric = metric.and_then(|place| shape.codes.get(place).copied());
        let number = table.family(metric, &shape);
        if !table.places.claim(ids, number + 1) {
            return None;
        }
        table.column_bytes += table.families.get_mut(number as usize)?.extend(ids, cells);
        table.live = table.live.checked_add(u32::try_from(ids.len()).ok()?)?;
        Some(())
    }

    /// Adds the metadata of a record.
    pub(in crate::tsdb) fn describe(&mut self, body: &[u8]) -> Result<(), NotBulkLoadable> {
        Ok(metadata::decode(body, &mut |metric| self.metadata.set(metric, true))?)
    }

    /// Builds the hash table of the series' labels, and returns the table and the metadata of
    /// metrics.
    pub(in crate::tsdb) fn finish(self) -> Result<(Table, Metadata), NotBulkLoadable> {
        let BulkLoader { mut table, metadata } = self;
        let mut rows = IdTable::for_rows(table.live as usize);
        for (hash, id) in hashes(&table).into_iter().flatten() {
            if !rows.insert_new(hash, id, |other| table.is_same(id, other)) {
                return Err(NotBulkLoadable);
            }
        }
        table.rows = rows;
        table.trim();
        Ok((table, metadata))
    }
}

/// The codes of a body's texts.
struct TextCodes<'s> {
    texts: BodyTexts<'s>,
    /// The code of each text as a label name.
    names: Vec<u32>,
    /// By text: the label name it was last a value of, and its code there.
    values: Vec<(u32, u32)>,
}

impl TextCodes<'_> {
    fn name(&mut self, table: &mut Table, number: u32) -> Option<u32> {
        let known = self.names.get_mut(number as usize)?;
        if *known == UNKNOWN {
            *known = table.intern_name(self.texts.get(number));
        }
        Some(*known)
    }

    /// Replaces the numbers of texts in a column of values by their codes.
    fn values(&mut self, table: &mut Table, name: u32, column: &mut [u32]) -> Option<()> {
        for cell in column {
            let known = self.values.get_mut(*cell as usize)?;
            if known.0 != name {
                *known = (name, table.intern_value(name, self.texts.get(*cell)));
            }
            *cell = known.1;
        }
        Some(())
    }
}

impl Family {
    /// Adds rows with ascending ids, and returns the growth in bytes. `cells` has the codes name by
    /// name.
    fn extend(&mut self, ids: &[u32], cells: &[u32]) -> usize {
        let columns = cells.chunks_exact(ids.len().max(1));
        if self.ids.last() >= ids.first() {
            return self.extend_within(ids, columns);
        }
        let rows = self.ids.len();
        let mut grown = 0;
        for (column, more) in self.columns.iter_mut().zip(columns) {
            let before = column.bytes();
            column.extend(rows, more);
            grown += column.bytes() - before;
        }
        let before = self.ids.capacity();
        reserve_many(&mut self.ids, ids.len());
        self.ids.extend_from_slice(ids);
        grown + (self.ids.capacity() - before) * 4
    }

    /// Like [`Family::extend`], for ids of concurrent requests: some rows belong before the last
    /// existing ones. These existing rows are removed and added again in order.
    fn extend_within<'c>(&mut self, ids: &[u32], columns: impl Iterator<Item = &'c [u32]>) -> usize {
        self.moved = self.moved.wrapping_add(1);
        self.order.clear();
        let (rows, first) = (self.ids.len(), ids.first());
        let from = self.ids.partition_point(|have| Some(have) < first);
        let mut last = self.ids.split_off(from);
        last.extend_from_slice(ids);
        let mut order: Vec<usize> = (0..last.len()).collect();
        order.sort_by_key(|place| last.get(*place));
        let in_order =
            |of: &[u32]| order.iter().filter_map(|place| of.get(*place).copied()).collect::<Vec<_>>();
        let ids = in_order(&last);
        let mut cells = Vec::with_capacity(ids.len() * self.columns.len());
        for (column, more) in self.columns.iter_mut().zip(columns) {
            last.clear();
            last.extend((from..rows).filter_map(|row| column.code(row)));
            last.extend_from_slice(more);
            column.truncate(from);
            cells.extend(in_order(&last));
        }
        self.extend(&ids, &cells)
    }

    /// Releases most of the spare capacity, and returns the bytes.
    fn trim(&mut self) -> usize {
        let mut released = 0;
        for column in &mut self.columns {
            let before = column.bytes();
            column.trim();
            released += before - column.bytes();
        }
        let before = self.ids.capacity();
        trim(&mut self.ids);
        released + (before - self.ids.capacity()) * 4
    }
}

impl Table {
    fn trim(&mut self) {
        let released: usize = self.families.iter_mut().map(Family::trim).sum();
        self.column_bytes -= released;
        self.places.trim();
    }

    /// Returns whether two series have the same labels.
    fn is_same(&self, a: u32, b: u32) -> bool {
        let same = |((one, row), (other, other_row)): ((&Family, usize), (&Family, usize))| {
            std::ptr::eq(one, other)
                && one.columns.iter().all(|column| column.code(row) == column.code(other_row))
        };
        self.row_of(a).zip(self.row_of(b)).is_some_and(same)
    }
}

/// Hashes and ids in buckets by the highest byte of the hash. Slots of a hash table have the same
/// order, so inserting a bucket touches one region of it.
type Hashes = Vec<Vec<(u32, u32)>>;

const BUCKETS: usize = 256;

/// Returns the hash of each series with its id. Each thread has a bucket for each value of the
/// byte.
fn hashes(table: &Table) -> Hashes {
    let families: Vec<(u32, &Family)> = (0u32..).zip(&table.families).collect();
    let all = table.live as usize;
    if all <= ONE_THREAD_MAX {
        return hash_families(&families, &table.hash);
    }
    let mut rows = 0;
    let half = families.partition_point(|(_, family)| {
        rows += family.ids.len();
        rows <= all / 2
    });
    let (first, second) = families.split_at(half);
    let (mine, others) = std::thread::scope(|scope| {
        let other = scope.spawn(|| hash_families(second, &table.hash));
        (hash_families(first, &table.hash), other.join())
    });
    let others = others.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    mine.into_iter().zip(others).flat_map(|(mine, others)| [mine, others]).collect()
}

/// Like [`super::hash_row`] for many rows at a time, one column after another, which uses the
/// processor's cache well.
fn hash_families(families: &[(u32, &Family)], hash: &TextHash) -> Hashes {
    let rows: usize = families.iter().map(|(_, family)| family.ids.len()).sum();
    // Hashes are evenly spread, so few buckets outgrow this.
    let room = rows / BUCKETS + rows / BUCKETS / 8 + 8;
    let mut out: Hashes = std::iter::repeat_with(|| Vec::with_capacity(room)).take(BUCKETS).collect();
    let (mut bytes, mut batch_codes) = (Vec::new(), [0; BATCH_ROWS]);
    for (number, family) in families {
        let width = 4 * (family.columns.len() + 1);
        bytes.clear();
        bytes.resize(width * BATCH_ROWS, 0);
        put_codes(&mut bytes, width, 0, &[*number; BATCH_ROWS]);
        for (place, column) in family.columns.iter().enumerate() {
            if let Some(code) = column.same() {
                put_codes(&mut bytes, width, place + 1, &[code; BATCH_ROWS]);
            }
        }
        for (batch, ids) in family.ids.chunks(BATCH_ROWS).enumerate() {
            for (place, column) in family.columns.iter().enumerate() {
                if let CodeColumn::Each(codes) = column {
                    codes.copy_from(batch * BATCH_ROWS, &mut batch_codes);
                    put_codes(&mut bytes, width, place + 1, &batch_codes);
                }
            }
            for (id, row) in ids.iter().zip(bytes.chunks_exact(width)) {
                let hash = hash.of(row);
                if let Some(bucket) = out.get_mut((hash >> 24) as usize) {
                    bucket.push((hash, *id));
                }
            }
        }
    }
    out
}

/// Writes a column of numbers at index `place` of rows of `width` bytes.
fn put_codes(bytes: &mut [u8], width: usize, place: usize, codes: &[u32]) {
    for (row, code) in bytes.chunks_exact_mut(width).zip(codes) {
        if let Some(at) = row.get_mut(place * 4..).and_then(|rest| rest.first_chunk_mut()) {
            *at = code.to_le_bytes();
        }
    }
}
