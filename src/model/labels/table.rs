//! Columnar label sets of many series: each text is stored once for all of them, and a label set is
//! a row number.
//!
//! The cost of a separate label set (a heap allocation, and two reference-counted texts per label)
//! would dominate a response with many series. Here a row is one number per label that differs
//! between rows.

use std::cmp::Ordering;
use std::sync::Arc;

use super::LabelRef;

/// Label sets with the same label names.
#[derive(Debug)]
pub struct LabelTable {
    /// Ordered by name; at most [`LabelTable::COLUMNS_MAX`].
    columns: Vec<LabelColumn>,
    rows: usize,
    ascends: bool,
    /// The columns with the same value in all rows.
    same: LabelMask,
}

/// A label name with its value in each row.
#[derive(Debug)]
pub struct LabelColumn {
    /// Label name; never empty.
    pub name: Arc<str>,
    /// Values; none is empty.
    pub values: LabelValues,
}

/// The values of one label name.
#[derive(Debug)]
pub enum LabelValues {
    /// All rows have the same value.
    Same(Arc<str>),
    /// One of several texts in each row.
    Each {
        /// The distinct texts.
        texts: Vec<Arc<str>>,
        /// Index of each row's text.
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

    /// Returns whether two rows have the same text. The texts are distinct, so their indices are
    /// compared.
    fn is_same(&self, a: u32, b: u32) -> bool {
        match &self.values {
            LabelValues::Same(_) => true,
            LabelValues::Each { places, .. } => places.get(a as usize) == places.get(b as usize),
        }
    }
}

/// A set of a table's columns: one bit each, the lowest for the first column.
pub type LabelMask = u64;

/// An iterator over the column indices in a mask.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaskColumns(pub(super) LabelMask);

impl Iterator for MaskColumns {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let column = self.0.trailing_zeros();
        self.0 &= self.0.checked_sub(1)?;
        Some(column as usize)
    }
}

impl LabelTable {
    /// Maximum number of columns: the number of bits of a mask.
    pub const COLUMNS_MAX: usize = 64;

    /// Creates a table of `rows` rows. `ascends`: each row is greater than the previous one.
    ///
    /// Returns `None` if there are too many columns, or one does not have a text for every row.
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

    /// Returns the columns, ordered by name.
    pub fn columns(&self) -> &[LabelColumn] {
        &self.columns
    }

    /// Returns the columns with the same value in all rows.
    pub fn same(&self) -> LabelMask {
        self.same
    }

    /// Returns the number of label sets.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the memory of the table in bytes. The texts belong to the store and are not counted.
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

    /// Returns the mask of the columns for whose names `keep` returns true.
    pub fn mask(&self, mut keep: impl FnMut(&str) -> bool) -> LabelMask {
        mask(&self.columns, |column| keep(&column.name))
    }

    pub(super) fn label(&self, column: usize, row: u32) -> Option<(&Arc<str>, &Arc<str>)> {
        let column = self.columns.get(column)?;
        Some((&column.name, column.text(row)?))
    }

    pub(super) fn get(&self, name: &str, row: u32, mask: LabelMask) -> Option<&Arc<str>> {
        let column = self.columns.binary_search_by(|column| (*column.name).cmp(name)).ok()?;
        if mask >> column & 1 == 0 {
            return None;
        }
        self.columns.get(column)?.text(row)
    }

    /// Compares two rows as label sets, both with the same columns of this table.
    pub(super) fn compare(&self, a: u32, b: u32, mask: LabelMask) -> Ordering {
        if self.ascends && (mask | self.same).count_ones() as usize == self.columns.len() {
            return a.cmp(&b);
        }
        let columns = MaskColumns(mask).filter_map(|column| self.columns.get(column));
        let mut differing = columns.filter(|column| !column.is_same(a, b));
        differing.next().map_or(Ordering::Equal, |column| column.text(a).cmp(&column.text(b)))
    }

    /// Returns whether two rows have equal labels, both with the same columns of this table.
    pub(super) fn is_same(&self, a: u32, b: u32, mask: LabelMask) -> bool {
        MaskColumns(mask).filter_map(|column| self.columns.get(column)).all(|column| column.is_same(a, b))
    }
}

fn mask(columns: &[LabelColumn], mut is_in: impl FnMut(&LabelColumn) -> bool) -> LabelMask {
    let bits = columns.iter().enumerate().map(|(at, column)| LabelMask::from(is_in(column)) << at);
    bits.fold(0, |mask, bit| mask | bit)
}

/// An iterator over the labels of a row, in order of their names.
#[derive(Clone, Debug)]
pub(super) struct RowIter<'a> {
    pub(super) table: &'a LabelTable,
    pub(super) row: u32,
    pub(super) columns: MaskColumns,
}

impl<'a> RowIter<'a> {
    pub(super) fn arcs(mut self) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<str>)> {
        std::iter::from_fn(move || self.table.label(self.columns.next()?, self.row))
    }
}

impl<'a> Iterator for RowIter<'a> {
    type Item = LabelRef<'a>;

    fn next(&mut self) -> Option<LabelRef<'a>> {
        let (name, value) = self.table.label(self.columns.next()?, self.row)?;
        Some(LabelRef { name, value })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.columns.0.count_ones() as usize;
        (left, Some(left))
    }
}
