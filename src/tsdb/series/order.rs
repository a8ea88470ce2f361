//! The rows of a family in the order of their labels. The first query that needs many of them
//! computes the order, and later queries reuse it.
//!
//! An order takes 4 bytes per row and is released after some time without use
//! ([`CachedOrder::age`]). The memory of names includes it from the beginning
//! ([`super::table::Table::bytes`]). It covers all rows, so it does not depend on which rows a
//! query may read. The order of a dictionary's texts ([`Dictionary::order`]) is cached, counted and
//! released in the same way.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU8, Ordering as Atomically};
use std::sync::{Arc, RwLock};

use super::columns::{CodeColumn, Codes};
use super::dictionary::Dictionary;
use super::table::{Family, Table};
use crate::sync::IgnorePoison as _;

/// Families with fewer rows are sorted as fast as an order is looked up.
const ROWS_MIN: usize = 32;
/// The calls of [`CachedOrder::age`] without use after which an order is released: ten minutes of
/// upkeep.
const AGE_MAX: u8 = 60;
/// New rows are inserted one by one if there are this many times as many old rows.
const INSERT_FACTOR: usize = 16;

/// The cached order of a family's rows or of a dictionary's texts.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct CachedOrder {
    /// The order of the first rows or texts, as many as it is long.
    known: RwLock<Arc<[u32]>>,
    /// Calls of [`CachedOrder::age`] since the last use.
    age: AtomicU8,
}

impl CachedOrder {
    /// Drops the order. Call it when rows get other numbers.
    pub(super) fn clear(&mut self) {
        let known = self.known.get_mut().ignore_poison();
        if !known.is_empty() {
            *known = Arc::default();
        }
    }

    /// Returns the cached order and marks it as used.
    pub(super) fn get(&self) -> Arc<[u32]> {
        self.age.store(0, Atomically::Relaxed);
        Arc::clone(&self.known.read().ignore_poison())
    }

    /// Replaces the cached order. No row or text is added while a reader holds the table, so
    /// concurrent readers store the same order.
    pub(super) fn set(&self, order: Arc<[u32]>) {
        *self.known.write().ignore_poison() = order;
    }

    /// Returns the number of rows or texts in the cached order.
    pub(super) fn len(&self) -> usize {
        self.known.read().ignore_poison().len()
    }

    /// Releases the order after `AGE_MAX` calls without use.
    pub(super) fn age(&self) {
        if self.known.read().ignore_poison().is_empty() {
            return;
        }
        if self.age.fetch_add(1, Atomically::Relaxed) >= AGE_MAX {
            *self.known.write().ignore_poison() = Arc::default();
            self.age.store(0, Atomically::Relaxed);
        }
    }
}

impl Table {
    /// Ages the orders of families and of dictionaries, which releases those without recent use.
    pub(in crate::tsdb) fn age_orders(&self) {
        self.families.iter().for_each(|family| family.order.age());
        self.dictionaries().for_each(Dictionary::age_order);
    }
}

impl Family {
    /// Returns all rows in the order of their labels, or None for a small family, whose order is
    /// not cached.
    ///
    /// New rows are appended, and the order of the old rows stays valid. If the new rows are few,
    /// only they are sorted and merged in. Concurrent callers may both compute the order.
    pub(in crate::tsdb) fn in_order(&self, table: &Table) -> Option<Arc<[u32]>> {
        let rows = self.ids.len();
        if rows < ROWS_MIN {
            return None;
        }
        let known = self.order.get();
        if known.len() == rows {
            return Some(known);
        }
        let comparer = RowComparer::of(self, table);
        let more = u32::try_from(known.len()).ok()?..u32::try_from(rows).ok()?;
        let order = if known.len() / INSERT_FACTOR > more.len() {
            let mut more: Vec<u32> = more.collect();
            more.sort_unstable_by(|a, b| comparer.compare(*a, *b));
            merged(&known, &more, |a, b| comparer.compare(a, b))
        } else {
            comparer.sorted(rows)
        };
        let order: Arc<[u32]> = order.into();
        self.order.set(Arc::clone(&order));
        Some(order)
    }

    /// Sorts some rows by their labels, and returns their indexes in `rows`. Only labels of these
    /// rows are compared. `None` if the distinguishing codes are too long for
    /// [`RowComparer::packed`].
    pub(in crate::tsdb) fn sorted(
        &self,
        table: &Table,
        rows: &(impl Iterator<Item = usize> + Clone),
    ) -> Option<Vec<u32>> {
        let comparer = RowComparer::of(self, table);
        if comparer.are_in_order(rows) {
            return Some((0u32..).zip(rows.clone()).map(|(place, _)| place).collect());
        }
        comparer.packed(rows)
    }
}

/// Merges two sorted lists, of which `more` is short.
fn merged(known: &[u32], more: &[u32], compare: impl Fn(u32, u32) -> Ordering) -> Vec<u32> {
    let mut order = Vec::with_capacity(known.len() + more.len());
    let mut rest = known;
    for row in more {
        let (before, after) = rest.split_at(rest.partition_point(|have| compare(*have, *row).is_lt()));
        order.extend_from_slice(before);
        order.push(*row);
        rest = after;
    }
    order.extend_from_slice(rest);
    order
}

/// The columns in which the rows of a family differ.
struct RowComparer<'t> {
    columns: Vec<(&'t Codes, &'t Dictionary)>,
}

impl<'t> RowComparer<'t> {
    fn of(family: &'t Family, table: &'t Table) -> RowComparer<'t> {
        let columns = family.names.iter().zip(&family.columns);
        let differing = columns.filter_map(|(name, column)| match column {
            CodeColumn::Each(codes) => Some((codes, table.values(*name)?)),
            CodeColumn::Same(_) => None,
        });
        RowComparer { columns: differing.collect() }
    }

    fn compare(&self, a: u32, b: u32) -> Ordering {
        for (codes, values) in &self.columns {
            let (a, b) = (codes.get(a as usize), codes.get(b as usize));
            if a != b {
                let text = |code: Option<u32>| values.text(code?);
                return text(a).cmp(&text(b));
            }
        }
        Ordering::Equal
    }

    /// Returns whether rows are in the order of their labels. They often are, because many
    /// exporters sort the series of a metric.
    fn are_in_order(&self, rows: &(impl Iterator<Item = usize> + Clone)) -> bool {
        let rows = rows.clone().map(|row| u32::try_from(row).unwrap_or(u32::MAX));
        rows.is_sorted_by(|a, b| self.compare(*a, *b).is_le())
    }

    /// Sorts the first `rows` rows.
    fn sorted(&self, rows: usize) -> Vec<u32> {
        self.packed(&(0..rows)).unwrap_or_else(|| {
            let mut order: Vec<u32> = (0u32..).zip(0..rows).map(|(row, _)| row).collect();
            order.sort_unstable_by(|a, b| self.compare(*a, *b));
            order
        })
    }

    /// Sorts these rows by their labels, and returns their indexes in `rows`. The ranks of a row's
    /// codes are packed into one number. `None` if they do not fit into 128 bits.
    fn packed(&self, rows: &(impl Iterator<Item = usize> + Clone)) -> Option<Vec<u32>> {
        let mut keys: Vec<(u128, u32)> = (0u32..).zip(rows.clone()).map(|(place, _)| (0, place)).collect();
        let mut bits = 0;
        let mut ranks = Vec::new();
        for (codes, values) in &self.columns {
            ranks.clear();
            ranks.extend(rows.clone().map(|row| codes.get(row).unwrap_or_default()));
            let distinct = replace_by_rank(values, &mut ranks);
            let width = usize::BITS - distinct.saturating_sub(1).leading_zeros();
            bits += width;
            if bits > u128::BITS {
                return None;
            }
            for ((key, _), rank) in keys.iter_mut().zip(&ranks) {
                *key = *key << width | u128::from(*rank);
            }
        }
        keys.sort_unstable();
        Some(keys.iter().map(|(_, place)| *place).collect())
    }
}

/// Replaces each code by the rank of its text among the texts of all the codes, and returns the
/// number of distinct codes.
pub(in crate::tsdb) fn replace_by_rank(values: &Dictionary, codes: &mut [u32]) -> usize {
    const UNSEEN: u32 = u32::MAX;
    // A dense table is the fastest unless it has many more codes than series.
    if values.len() / 8 > codes.len() {
        let mut distinct = codes.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let mut by_text: Vec<(u32, u32)> = (0..).zip(&distinct).map(|(at, code)| (at, *code)).collect();
        by_text.sort_unstable_by_key(|(_, code)| values.text(*code));
        let mut rank_of = vec![0; distinct.len()];
        for (rank, (at, _)) in (0..).zip(&by_text) {
            if let Some(slot) = rank_of.get_mut(*at as usize) {
                *slot = rank;
            }
        }
        for code in codes {
            let at = distinct.binary_search(code).unwrap_or_default();
            *code = rank_of.get(at).copied().unwrap_or_default();
        }
        return distinct.len();
    }
    let mut rank_of = vec![UNSEEN; values.len()];
    let mut distinct = Vec::new();
    for code in codes.iter() {
        if let Some(slot) = rank_of.get_mut(*code as usize).filter(|slot| **slot == UNSEEN) {
            *slot = 0;
            distinct.push(*code);
        }
    }
    if distinct.len() > 1 {
        distinct.sort_unstable_by_key(|code| values.text(*code));
    }
    for (rank, code) in (0..).zip(&distinct) {
        if let Some(slot) = rank_of.get_mut(*code as usize) {
            *slot = rank;
        }
    }
    for code in codes {
        *code = rank_of.get(*code as usize).copied().unwrap_or_default();
    }
    distinct.len()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::tsdb::series::identity::HashSecret;

    /// Defines series, each with an id and the values of two labels, and checks the order of the
    /// family's rows, and that of every third row.
    fn check(table: &mut Table, series: &BTreeSet<(u32, u32, u32)>) {
        for (id, a, b) in series {
            let (a, b) = (format!("v{a}"), format!("v{b}"));
            let pairs = [("__name__", "m"), ("a", a.as_str()), ("b", b.as_str())];
            // Labels of another id are refused, which does not matter here.
            _ = table.define(*id, &pairs);
        }
        let family = &table.families[0];
        let labels = |row: &u32| table.row_labels(family, *row as usize);
        let some = (0..family.ids.len()).step_by(3);
        let sorted = family.sorted(table, &some).expect("short codes");
        assert_eq!(sorted.len(), some.len());
        assert!(sorted.is_sorted_by(|a, b| labels(&(a * 3)) < labels(&(b * 3))));
        match family.in_order(table) {
            None => assert!(family.ids.len() < ROWS_MIN),
            Some(order) => {
                assert_eq!(order.len(), family.ids.len());
                assert!(order.is_sorted_by(|a, b| labels(a) < labels(b)));
            }
        }
    }

    proptest! {
        #[test]
        fn the_order_of_a_growing_family_stays_correct(
            batches in prop::collection::vec(
                prop::collection::btree_set((0u32..2_000, 0u32..30, 0u32..300), 1..200), 1..6),
            ages in prop::collection::vec(prop_oneof![Just(1usize), Just(100)], 6),
        ) {
            let mut table = Table::new(HashSecret::of(&[1; 32], 1));
            for (batch, ages) in batches.iter().zip(ages) {
                check(&mut table, batch);
                (0..ages).for_each(|_| table.age_orders());
            }
        }
    }

    #[test]
    fn rows_that_are_stored_in_order_or_in_reverse_are_sorted() {
        let values: [fn(u32) -> u32; 2] = [|n| n + 10, |n| 40 - n];
        for value in values {
            let series = (1..20).map(|n| (n, value(n), n)).collect();
            check(&mut Table::new(HashSecret::of(&[1; 32], 1)), &series);
        }
    }

    #[test]
    fn an_unused_order_is_released() {
        let mut table = Table::new(HashSecret::of(&[1; 32], 1));
        check(&mut table, &(0..100).map(|n| (n, n * 7 % 100, n)).collect());
        let cached = |table: &Table| table.families[0].order.len();
        for _ in 0..5 {
            (0..AGE_MAX).for_each(|_| table.age_orders());
            assert_eq!(cached(&table), 100);
            table.families[0].in_order(&table);
        }
        (0..=AGE_MAX).for_each(|_| table.age_orders());
        assert_eq!(cached(&table), 0);
    }

    #[test]
    fn the_order_of_a_dictionary_is_counted_from_the_beginning_and_released_when_unused() {
        let mut table = Table::new(HashSecret::of(&[1; 32], 1));
        check(&mut table, &(0..100).map(|n| (n, n * 7 % 100, n)).collect());
        let a = table.names.code("a").expect("a name");
        let counted = table.bytes();
        let unordered = |table: &Table| table.values(a).expect("values").unordered();
        assert_eq!(unordered(&table), 100);
        for _ in 0..5 {
            assert_eq!(table.values(a).expect("values").order().len(), 100);
            (0..AGE_MAX).for_each(|_| table.age_orders());
            assert_eq!(unordered(&table), 0);
        }
        assert_eq!(table.bytes(), counted, "the memory is counted before the order exists");
        (0..=AGE_MAX).for_each(|_| table.age_orders());
        assert_eq!(unordered(&table), 100);
    }
}
