//! Label sets of many series by columns: each text is held once for all of them, and a set is a row's number.
//!
//! What a label set of its own costs (a place in the heap, and two counted texts for each label) is most of what it takes to
//! answer many series. Here a row is a number for each label that tells rows apart.

use std::cmp::Ordering;
use std::sync::Arc;

use super::LabelRef;

/// Label sets of the same names.
#[derive(Debug)]
pub struct LabelTable {
    /// In order of names; no more than [`LabelTable::COLUMNS_MAX`].
    columns: Vec<LabelColumn>,
    rows: usize,
    ascends: bool,
    /// The columns that are the same in all rows.
    same: LabelMask,
}

/// One name, and its value in each row.
#[derive(Debug)]
pub struct LabelColumn {
    /// Never empty.
    pub name: Arc<str>,
    /// No text is empty.
    pub values: LabelValues,
}

/// The values of one name.
#[derive(Debug)]
pub enum LabelValues {
    /// The same in all rows.
    Same(Arc<str>),
    /// One of some texts in each row.
    Each {
        /// Each once.
        texts: Vec<Arc<str>>,
        /// The place of each row's text among them.
        places: Vec<u32>,
    },
}

impl LabelColumn {
    fn text(&self, row: u32) -> Option<&Arc<str>> {
        match &self.values {
            LabelValues::Same(text) => Some(text),
            LabelValues::Each { texts, places } => texts.get(*places.get(row as usize)? as usize),
        }
    }

    /// Whether two rows have the same text: each is there once.
    fn is_same(&self, a: u32, b: u32) -> bool {
        match &self.values {
            LabelValues::Same(_) => true,
            LabelValues::Each { places, .. } => places.get(a as usize) == places.get(b as usize),
        }
    }
}

/// Which of a table's columns a row has: a bit for each, the lowest for the first.
pub type LabelMask = u64;

/// The places of a mask's columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places(pub(super) LabelMask);

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let place = self.0.trailing_zeros();
        self.0 &= self.0.checked_sub(1)?;
        Some(place as usize)
    }
}

impl LabelTable {
    /// A row's labels are told by bits of one number.
    pub const COLUMNS_MAX: usize = 64;

    /// So many rows. `ascends`: each of them is greater than the one before.
    ///
    /// None where there are too many columns, or one has no text for a row.
    pub fn new(columns: Vec<LabelColumn>, rows: usize, ascends: bool) -> Option<LabelTable> {
        debug_assert!(columns.windows(2).all(|pair| pair[0].name < pair[1].name), "sorted and unique");
        let whole = columns.iter().all(|column| match &column.values {
            LabelValues::Same(_) => true,
            LabelValues::Each { places, .. } => places.len() == rows,
        });
        if !whole || columns.len() > LabelTable::COLUMNS_MAX {
            return None;
        }
        let same = mask(&columns, |column| matches!(column.values, LabelValues::Same(_)));
        Some(LabelTable { columns, rows, ascends, same })
    }

    /// In order of names.
    pub fn columns(&self) -> &[LabelColumn] {
        &self.columns
    }

    /// The columns that are the same in all rows.
    pub fn same(&self) -> LabelMask {
        self.same
    }

    /// How many label sets it holds.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Memory of the table. The texts belong to the store and are not counted.
    pub fn bytes(&self) -> usize {
        let column = |column: &LabelColumn| match &column.values {
            LabelValues::Same(_) => 0,
            LabelValues::Each { texts, places } => {
                texts.capacity() * size_of::<Arc<str>>() + places.capacity() * size_of::<u32>()
            }
        };
        let columns = self.columns.capacity() * size_of::<LabelColumn>();
        size_of::<LabelTable>() + columns + self.columns.iter().map(column).sum::<usize>()
    }

    /// All columns but those of names that go.
    pub fn mask(&self, mut keep: impl FnMut(&str) -> bool) -> LabelMask {
        mask(&self.columns, |column| keep(&column.name))
    }

    pub(super) fn label(&self, column: usize, row: u32) -> Option<(&Arc<str>, &Arc<str>)> {
        let column = self.columns.get(column)?;
        Some((&column.name, column.text(row)?))
    }

    pub(super) fn get(&self, name: &str, row: u32, mask: LabelMask) -> Option<&Arc<str>> {
        let place = self.columns.binary_search_by(|column| (*column.name).cmp(name)).ok()?;
        if mask >> place & 1 == 0 {
            return None;
        }
        self.columns.get(place)?.text(row)
    }

    /// As label sets compare, both with the same columns of this table.
    pub(super) fn compare(&self, a: u32, b: u32, mask: LabelMask) -> Ordering {
        if self.ascends && (mask | self.same).count_ones() as usize == self.columns.len() {
            return a.cmp(&b);
        }
        let apart = Places(mask).filter_map(|place| self.columns.get(place));
        let mut apart = apart.filter(|column| !column.is_same(a, b));
        apart.next().map_or(Ordering::Equal, |column| column.text(a).cmp(&column.text(b)))
    }

    /// Whether two rows have the same labels, both with the same columns of this table.
    pub(super) fn is_same(&self, a: u32, b: u32, mask: LabelMask) -> bool {
        Places(mask).filter_map(|place| self.columns.get(place)).all(|column| column.is_same(a, b))
    }
}

fn mask(columns: &[LabelColumn], mut is_in: impl FnMut(&LabelColumn) -> bool) -> LabelMask {
    let bits = columns.iter().enumerate().map(|(at, column)| LabelMask::from(is_in(column)) << at);
    bits.fold(0, |mask, bit| mask | bit)
}

/// The labels of a row, in order of names.
#[derive(Clone, Debug)]
pub(super) struct RowIter<'a> {
    pub(super) table: &'a LabelTable,
    pub(super) row: u32,
    pub(super) places: Places,
}

impl<'a> RowIter<'a> {
    pub(super) fn arcs(mut self) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<str>)> {
        std::iter::from_fn(move || self.table.label(self.places.next()?, self.row))
    }
}

impl<'a> Iterator for RowIter<'a> {
    type Item = LabelRef<'a>;

    fn next(&mut self) -> Option<LabelRef<'a>> {
        let (name, value) = self.table.label(self.places.next()?, self.row)?;
        Some(LabelRef { name, value })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.places.0.count_ones() as usize;
        (left, Some(left))
    }
}
