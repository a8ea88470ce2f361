//! A table from a registry, many series at a time.
//!
//! A start that takes over series one by one spends most of its time looking each one up before it is put in. Here rows
//! go to the ends of their columns first, and the hash of them all is made at last, by two threads. What a registry that
//! was written in order never holds (an id or a label set twice, an id out of all proportion) is not sorted out here:
//! [`Loading`] gives up, and the caller reads that registry through [`Table::define_all`], which says what is wrong.

use super::{Column, Family, GAP_MAX, Rows, Secret, Shape, Table, TextHash, UNKNOWN};
use crate::tsdb::error::Damage;
use crate::tsdb::series::columns::{make_room_for, trim};
use crate::tsdb::series::metadata::{self, Metadata};
use crate::tsdb::series::sheet::{Columns, Sheet, Texts};

/// The registry is not for this way of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct GivesUp;

impl From<Damage> for GivesUp {
    fn from(_: Damage) -> GivesUp {
        GivesUp
    }
}

/// Rows that are hashed in one go.
const AT_ONCE: usize = 256;
/// Fewer series are not worth a second thread.
const ALONE_MAX: usize = 1 << 15;

/// A table whose series cannot be found by their labels yet.
#[derive(Debug)]
pub(in crate::tsdb) struct Loading {
    table: Table,
    metadata: Metadata,
}

impl Loading {
    pub(in crate::tsdb) fn new(secret: Secret) -> Loading {
        Loading { table: Table::new(secret), metadata: Metadata::default() }
    }

    /// Puts the series of one body behind those of the bodies before it. The sheet's cells are of no use after it.
    pub(in crate::tsdb) fn add(&mut self, sheet: &mut Sheet) -> Result<(), GivesUp> {
        let greatest = sheet.greatest_id().unwrap_or(0);
        if greatest == u32::MAX || greatest as usize > self.table.places.len() + GAP_MAX {
            return Err(GivesUp);
        }
        let (texts, mut groups) = sheet.groups();
        let mut codes =
            Codes { texts, names: vec![UNKNOWN; texts.len()], values: vec![(UNKNOWN, UNKNOWN); texts.len()] };
        groups.try_for_each(|group| self.add_group(group, &mut codes).ok_or(GivesUp))
    }

    fn add_group(&mut self, group: Columns<'_>, codes: &mut Codes<'_>) -> Option<()> {
        let table = &mut self.table;
        let Columns { names, metric, ids, cells } = group;
        let mut shape = Shape::default();
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

    /// Takes over what a record says about metrics.
    pub(in crate::tsdb) fn describe(&mut self, body: &[u8]) -> Result<(), GivesUp> {
        Ok(metadata::decode(body, &mut |said| self.metadata.set(said, true))?)
    }

    /// The table, with its series to be found by their labels, and what is known of metrics.
    pub(in crate::tsdb) fn finish(self) -> Result<(Table, Metadata), GivesUp> {
        let Loading { mut table, metadata } = self;
        let mut rows = Rows::for_rows(table.live as usize);
        for (hash, id) in hashes(&table).into_iter().flatten() {
            if !rows.insert_new(hash, id, |other| table.is_same(id, other)) {
                return Err(GivesUp);
            }
        }
        table.rows = rows;
        table.trim();
        Ok((table, metadata))
    }
}

/// Codes of a sheet's texts.
struct Codes<'s> {
    texts: Texts<'s>,
    /// As names.
    names: Vec<u32>,
    /// As a value: of which name it was last one, and its code there.
    values: Vec<(u32, u32)>,
}

impl Codes<'_> {
    fn name(&mut self, table: &mut Table, number: u32) -> Option<u32> {
        let known = self.names.get_mut(number as usize)?;
        if *known == UNKNOWN {
            *known = table.intern_name(self.texts.get(number));
        }
        Some(*known)
    }

    /// Makes numbers of texts, the values of one name, codes.
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
    /// Adds rows of ascending ids, the codes name by name; answers by how many bytes it grew.
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
        make_room_for(&mut self.ids, ids.len());
        self.ids.extend_from_slice(ids);
        grown + (self.ids.capacity() - before) * 4
    }

    /// As [`Family::extend`], where requests came together: some of the rows belong before the last ones, which are
    /// taken out and added again with them.
    fn extend_within<'c>(&mut self, ids: &[u32], columns: impl Iterator<Item = &'c [u32]>) -> usize {
        self.moved = self.moved.wrapping_add(1);
        self.order.forget();
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

    /// Gives back most of the room for more rows; answers how many bytes.
    fn trim(&mut self) -> usize {
        let mut given = 0;
        for column in &mut self.columns {
            let before = column.bytes();
            column.trim();
            given += before - column.bytes();
        }
        let before = self.ids.capacity();
        trim(&mut self.ids);
        given + (before - self.ids.capacity()) * 4
    }
}

impl Table {
    fn trim(&mut self) {
        let given: usize = self.families.iter_mut().map(Family::trim).sum();
        self.column_bytes -= given;
        self.places.trim();
    }

    /// Whether two series have the same labels.
    fn is_same(&self, a: u32, b: u32) -> bool {
        let same = |((one, row), (other, other_row)): ((&Family, usize), (&Family, usize))| {
            std::ptr::eq(one, other)
                && one.columns.iter().all(|column| column.code(row) == column.code(other_row))
        };
        self.row_of(a).zip(self.row_of(b)).is_some_and(same)
    }
}

/// Hashes and ids, by the highest byte of the hash: who puts them into slots of the same order stays in one place.
type Hashes = Vec<Vec<(u32, u32)>>;

const BUCKETS: usize = 256;

/// The hash of each series, with its id: buckets of the one thread, then of the other, for each byte.
fn hashes(table: &Table) -> Hashes {
    let families: Vec<(u32, &Family)> = (0u32..).zip(&table.families).collect();
    let all = table.live as usize;
    if all <= ALONE_MAX {
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

/// As [`super::hash_row`], many rows at a time: a column is gone through while it is at hand.
fn hash_families(families: &[(u32, &Family)], hash: &TextHash) -> Hashes {
    let rows: usize = families.iter().map(|(_, family)| family.ids.len()).sum();
    // Hashes are even: few buckets outgrow this.
    let room = rows / BUCKETS + rows / BUCKETS / 8 + 8;
    let mut out: Hashes = std::iter::repeat_with(|| Vec::with_capacity(room)).take(BUCKETS).collect();
    let (mut bytes, mut piece_codes) = (Vec::new(), [0; AT_ONCE]);
    for (number, family) in families {
        let width = 4 * (family.columns.len() + 1);
        bytes.clear();
        bytes.resize(width * AT_ONCE, 0);
        put_codes(&mut bytes, width, 0, &[*number; AT_ONCE]);
        for (place, column) in family.columns.iter().enumerate() {
            if let Some(code) = column.same() {
                put_codes(&mut bytes, width, place + 1, &[code; AT_ONCE]);
            }
        }
        for (piece, ids) in family.ids.chunks(AT_ONCE).enumerate() {
            for (place, column) in family.columns.iter().enumerate() {
                if let Column::Each(codes) = column {
                    codes.copy_from(piece * AT_ONCE, &mut piece_codes);
                    put_codes(&mut bytes, width, place + 1, &piece_codes);
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

/// Puts numbers at one place of rows of so many bytes.
fn put_codes(bytes: &mut [u8], width: usize, place: usize, codes: &[u32]) {
    for (row, code) in bytes.chunks_exact_mut(width).zip(codes) {
        if let Some(at) = row.get_mut(place * 4..).and_then(|rest| rest.first_chunk_mut()) {
            *at = code.to_le_bytes();
        }
    }
}
