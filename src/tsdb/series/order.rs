//! The rows of a family in the order of their labels: found by who asks for many of them first, and kept for the next.
//!
//! 4 bytes a row, given back when nobody asked for a while ([`Order::age`]); what names may take counts them from the
//! beginning ([`super::table::Table::bytes`]). Whose rows are asked for does not matter: the order is one of all rows.
//! The order of a dictionary's texts ([`Dictionary::order`]) is kept, counted and given back in the same way.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU8, Ordering as Atomically};
use std::sync::{Arc, RwLock};

use super::columns::{Codes, Column};
use super::dictionary::Dictionary;
use super::table::{Family, Table};
use crate::sync::IgnorePoison as _;

/// Families of fewer rows are sorted as fast as an order is looked up.
const ROWS_MIN: usize = 32;
/// So many times [`Order::age`] finds an order unused before it gives it back: ten minutes of upkeep.
const AGE_MAX: u8 = 60;
/// New rows are looked for among the others one by one if those are so many times as many.
const FEW: usize = 16;

/// What is kept of the order of a family's rows, or of a dictionary's texts.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Order {
    /// Of the first rows or texts, as many as it is long.
    known: RwLock<Arc<[u32]>>,
    /// How often it was found unused.
    age: AtomicU8,
}

impl Order {
    /// To be called when rows got other numbers.
    pub(super) fn forget(&mut self) {
        let known = self.known.get_mut().ignore_poison();
        if !known.is_empty() {
            *known = Arc::default();
        }
    }

    /// What is known. The caller is about to use it: it stays for another while.
    pub(super) fn get(&self) -> Arc<[u32]> {
        self.age.store(0, Atomically::Relaxed);
        Arc::clone(&self.known.read().ignore_poison())
    }

    /// Replaces what is known. Rows and texts are not added while a reader holds the table: a reader that was faster has
    /// stored the same.
    pub(super) fn set(&self, order: Arc<[u32]>) {
        *self.known.write().ignore_poison() = order;
    }

    /// Rows or texts whose order is known.
    pub(super) fn len(&self) -> usize {
        self.known.read().ignore_poison().len()
    }

    /// Gives it back where nobody has asked for it the last times that this was called.
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
    /// Gives back the orders of families and of dictionaries that nobody has asked for since this was called some times.
    pub(in crate::tsdb) fn age_orders(&self) {
        self.families.iter().for_each(|family| family.order.age());
        self.dictionaries().for_each(Dictionary::age_order);
    }
}

impl Family {
    /// All rows in the order of their labels; none where that is not kept, as of a small family.
    ///
    /// Rows come at the end, and the order of those that were there stays: it is found for the others alone where they
    /// are few. Two who ask at once may both find it.
    pub(in crate::tsdb) fn in_order(&self, table: &Table) -> Option<Arc<[u32]>> {
        let rows = self.ids.len();
        if rows < ROWS_MIN {
            return None;
        }
        let known = self.order.get();
        if known.len() == rows {
            return Some(known);
        }
        let texts = Texts::of(self, table);
        let more = u32::try_from(known.len()).ok()?..u32::try_from(rows).ok()?;
        let order = if known.len() / FEW > more.len() {
            let mut more: Vec<u32> = more.collect();
            more.sort_unstable_by(|a, b| texts.compare(*a, *b));
            merged(&known, &more, |a, b| texts.compare(a, b))
        } else {
            texts.sorted(rows)
        };
        let order: Arc<[u32]> = order.into();
        self.order.set(Arc::clone(&order));
        Some(order)
    }

    /// The places of some rows among them, in the order of their labels, which are looked at for these alone. None where
    /// what tells the rows apart is too long for that.
    pub(in crate::tsdb) fn sorted(
        &self,
        table: &Table,
        rows: &(impl Iterator<Item = usize> + Clone),
    ) -> Option<Vec<u32>> {
        Texts::of(self, table).packed(rows)
    }
}

/// Two lists that are in order as one; few in `more`.
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

/// The columns that tell a family's rows apart.
struct Texts<'t> {
    columns: Vec<(&'t Codes, &'t Dictionary)>,
}

impl<'t> Texts<'t> {
    fn of(family: &'t Family, table: &'t Table) -> Texts<'t> {
        let columns = family.names.iter().zip(&family.columns);
        let apart = columns.filter_map(|(name, column)| match column {
            Column::Each(codes) => Some((codes, table.values(*name)?)),
            Column::Same(_) => None,
        });
        Texts { columns: apart.collect() }
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

    /// The first so many rows.
    fn sorted(&self, rows: usize) -> Vec<u32> {
        self.packed(&(0..rows)).unwrap_or_else(|| {
            let mut order: Vec<u32> = (0u32..).zip(0..rows).map(|(row, _)| row).collect();
            order.sort_unstable_by(|a, b| self.compare(*a, *b));
            order
        })
    }

    /// The places of these rows among them, in the order of their labels: what tells a row apart is packed into one number.
    /// None where that is too long.
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

/// Replaces each code by the place of its text among those of all the codes; answers how many different ones there are.
pub(in crate::tsdb) fn replace_by_rank(values: &Dictionary, codes: &mut [u32]) -> usize {
    const UNSEEN: u32 = u32::MAX;
    // A table of all codes is the fastest where there are not many more of them than series.
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
    use crate::tsdb::series::identity::Secret;

    /// Defines series, each of an id and the values of two labels, and answers the family's rows in order.
    fn check(table: &mut Table, series: &BTreeSet<(u32, u32, u32)>) {
        for (id, a, b) in series {
            let (a, b) = (format!("v{a}"), format!("v{b}"));
            let pairs = [("__name__", "m"), ("a", a.as_str()), ("b", b.as_str())];
            // Labels that another id has are refused, which is as well.
            _ = table.define(*id, &pairs, false);
        }
        let family = &table.families[0];
        let labels = |row: &u32| table.row_labels(family, *row as usize);
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
        fn a_family_that_grows_stays_in_order(
            pieces in prop::collection::vec(
                prop::collection::btree_set((0u32..2_000, 0u32..30, 0u32..300), 1..200), 1..6),
            ages in prop::collection::vec(prop_oneof![Just(1usize), Just(100)], 6),
        ) {
            let mut table = Table::new(Secret::of(&[1; 32], 1));
            for (piece, ages) in pieces.iter().zip(ages) {
                check(&mut table, piece);
                (0..ages).for_each(|_| table.age_orders());
            }
        }
    }

    #[test]
    fn an_order_that_nobody_asks_for_is_given_back() {
        let mut table = Table::new(Secret::of(&[1; 32], 1));
        check(&mut table, &(0..100).map(|n| (n, n * 7 % 100, n)).collect());
        let kept = |table: &Table| table.families[0].order.len();
        for _ in 0..5 {
            (0..AGE_MAX).for_each(|_| table.age_orders());
            assert_eq!(kept(&table), 100);
            table.families[0].in_order(&table);
        }
        (0..=AGE_MAX).for_each(|_| table.age_orders());
        assert_eq!(kept(&table), 0);
    }

    #[test]
    fn the_order_of_a_dictionary_is_counted_from_the_beginning_and_given_back_when_it_is_unused() {
        let mut table = Table::new(Secret::of(&[1; 32], 1));
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
        assert_eq!(table.bytes(), counted, "it was counted before it was made");
        (0..=AGE_MAX).for_each(|_| table.age_orders());
        assert_eq!(unordered(&table), 100);
    }
}
