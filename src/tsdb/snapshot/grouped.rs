//! Series told apart by some of their labels, for who adds them up and asks for no others.

use std::ops::Range;
use std::sync::Arc;

use rapidhash::RapidHashMap;

use super::find::{Hit, located};
use super::labelled::by_family;
use super::{Paced, SelectedSeries};
use crate::model::{Label, Labels, Matcher, Pace, Stopped, TimeRange};
use crate::tsdb::report::SeriesId;
use crate::tsdb::series::columns::{Codes, Column};
use crate::tsdb::series::table::Table;

/// The result of [`Paced::select_grouped`].
#[derive(Debug)]
pub struct Grouped {
    /// Sorted by their labels.
    pub series: Vec<GroupedSeries>,
    /// The labels that a group's series share, of those asked for; no two are equal, in no order.
    pub groups: Vec<Labels>,
    /// The metric name of the first series; empty where it has none.
    pub name: Arc<str>,
    /// Whether any two series differ in a label that goes.
    pub differ: bool,
}

/// A series that was found, by numbers alone.
#[derive(Clone, Copy, Debug)]
pub struct GroupedSeries {
    /// The argument of [`crate::tsdb::Snapshot::read`].
    pub id: SeriesId,
    /// Its place among the groups.
    pub group: u32,
}

/// The metric name of the first series, and all series.
type NamedSeries = (Arc<str>, Vec<SelectedSeries>);

/// A test of label names.
type Test<'t> = &'t dyn Fn(&str) -> bool;

impl Paced<'_> {
    /// As [`Paced::select`], but instead of labels each series has its group's number: series are in one group if they
    /// do not differ in the labels that `tells_apart`. Of labels that `goes` it is told whether any two series differ in one.
    ///
    /// Label sets are made for groups alone.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn select_grouped(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        tells_apart: &dyn Fn(&str) -> bool,
        goes: &dyn Fn(&str) -> bool,
    ) -> Result<Grouped, Stopped> {
        self.snapshot.warnings.looked();
        let Some(store) = &self.snapshot.store else {
            let (series, groups, name) = (Vec::new(), Vec::new(), "".into());
            return Ok(Grouped { series, groups, name, differ: false });
        };
        let found = self.find(store, &[matchers], range)?;
        let found = self.in_order(store, &found)?;
        let table = self.table(store)?;
        let hits = located(&table, &found, self.pace)?;
        group(&table, &hits, (tells_apart, goes), self.pace)
    }

    /// As [`Paced::select`], without the labels that `goes`; and the metric name of the first. None where any two series
    /// differ in a label that goes: they might be told apart by nothing else.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn select_without(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        goes: &dyn Fn(&str) -> bool,
    ) -> Result<Option<NamedSeries>, Stopped> {
        self.snapshot.warnings.looked();
        let Some(store) = &self.snapshot.store else { return Ok(Some(("".into(), Vec::new()))) };
        let found = self.find(store, &[matchers], range)?;
        let found = self.in_order(store, &found)?;
        let name = {
            let table = self.table(store)?;
            let hits = located(&table, &found, self.pace)?;
            self.pace.spend_each(hits.len(), 2)?;
            if differ(&table, &hits, goes) {
                return Ok(None);
            }
            self.pace.release((hits.len() * size_of::<Hit<'_>>()) as u64);
            first_name(&table, &hits)
        };
        Ok(Some((name, self.labelled(store, &found, &|name| !goes(name))?)))
    }
}

/// Groups between two requests for memory.
const GROUPS_PER_REQUEST: usize = 1_024;

/// Memory of a group of `labels` labels: its label set, its key and its entry in the map.
const fn group_bytes(labels: usize) -> usize {
    size_of::<Labels>() + Labels::own_bytes(labels) + 2 * size_of::<(Vec<(u32, u32)>, u32)>() + labels * 8
}

impl Grouped {
    /// Memory that is held: the series' numbers, and the label sets of groups.
    pub fn bytes(&self) -> u64 {
        let series = self.series.capacity() * size_of::<GroupedSeries>();
        let groups = self.groups.capacity() * size_of::<Labels>() + Labels::bytes_behind(&self.groups);
        (series + groups) as u64
    }
}

/// The labels of these codes of names and values, in order of names.
fn made(table: &Table, codes: &[(u32, u32)]) -> Labels {
    let label = |(name, value): &(u32, u32)| {
        let (name, value) = (table.names.text(*name)?, table.values(*name)?.text(*value)?);
        Some(Label { name: Arc::clone(name), value: Arc::clone(value) })
    };
    Labels::from_sorted(codes.iter().filter_map(label).collect())
}

fn first_name(table: &Table, hits: &[Hit<'_>]) -> Arc<str> {
    let name = hits.first().and_then(|hit| table.metric_name(hit.family));
    name.map_or_else(|| "".into(), Arc::clone)
}

/// Groups in the making.
#[derive(Default)]
struct Groups {
    /// By the codes of names and values.
    known: RapidHashMap<Vec<(u32, u32)>, u32>,
    labels: Vec<Labels>,
    /// By hit: the number of its group.
    group_of: Vec<u32>,
    /// Estimated memory that was not asked for yet.
    bytes: usize,
}

fn group(
    table: &Table,
    hits: &[Hit<'_>],
    (tells_apart, goes): (Test<'_>, Test<'_>),
    pace: &Pace<'_>,
) -> Result<Grouped, Stopped> {
    pace.hold_each(hits.len(), size_of::<GroupedSeries>() + size_of::<u32>())?;
    pace.spend_each(hits.len(), 4)?;
    let mut groups = Groups { group_of: vec![0; hits.len()], ..Groups::default() };
    let mut room = Refined::default();
    for runs in by_family(hits) {
        let own: usize = runs.iter().map(Range::len).sum();
        let first = runs.first().and_then(|run| hits.get(run.start));
        let columns = first.map_or(0, |hit| hit.family.columns.len());
        pace.spend_each(own, 4 + columns as u64)?;
        groups.of_family(table, (hits, &runs), tells_apart, &mut room, pace)?;
    }
    let numbered = hits.iter().zip(groups.group_of);
    let series = numbered.map(|(hit, group)| GroupedSeries { id: SeriesId(hit.id), group }).collect();
    let differ = differ(table, hits, goes);
    Ok(Grouped { series, groups: groups.labels, name: first_name(table, hits), differ })
}

/// Hits told apart by one column after the other.
#[derive(Default)]
struct Refined {
    /// By hit, dense from 0 in order of first appearance.
    numbers: Vec<u32>,
    count: usize,
    /// By number so far and code: one more than the new number.
    table: Vec<u32>,
    sparse: RapidHashMap<u64, u32>,
}

impl Refined {
    /// No column has told these apart yet.
    fn begin(&mut self, hits: usize) {
        self.numbers.clear();
        self.numbers.resize(hits, 0);
        self.count = 1;
    }

    /// Tells them apart by a column of so many different codes at most; `rows` are the hits' rows.
    fn by(&mut self, rows: impl Iterator<Item = usize>, codes: &Codes, distinct_max: usize) {
        let Refined { numbers, count, table, sparse } = self;
        let mut next = 0;
        let cells = count.saturating_mul(distinct_max);
        // A table is the fastest where it is not mostly empty.
        if cells <= numbers.len().saturating_mul(4).max(1_024) {
            table.clear();
            table.resize(cells, 0);
            for (number, row) in numbers.iter_mut().zip(rows) {
                let code = codes.get(row).unwrap_or_default() as usize;
                if let Some(cell) = table.get_mut(*number as usize * distinct_max + code) {
                    if *cell == 0 {
                        next += 1;
                        *cell = next;
                    }
                    *number = *cell - 1;
                }
            }
        } else {
            sparse.clear();
            for (number, row) in numbers.iter_mut().zip(rows) {
                let code = codes.get(row).unwrap_or_default();
                let cell = sparse.entry(u64::from(*number) << 32 | u64::from(code)).or_insert_with(|| {
                    next += 1;
                    next
                });
                *number = *cell - 1;
            }
        }
        *count = next as usize;
    }
}

impl Groups {
    /// Groups the hits of one family, which are in these `runs`.
    fn of_family(
        &mut self,
        table: &Table,
        (hits, runs): (&[Hit<'_>], &[Range<usize>]),
        tells_apart: Test<'_>,
        room: &mut Refined,
        pace: &Pace<'_>,
    ) -> Result<(), Stopped> {
        let own = || runs.iter().flat_map(|run| hits.get(run.clone()).unwrap_or_default());
        let Some(first) = own().next() else { return Ok(()) };
        let family = first.family;
        let apart: Vec<(usize, u32)> = family
            .names
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, name)| table.names.text(*name).is_some_and(|text| tells_apart(text)))
            .collect();
        room.begin(own().count());
        for (at, name) in &apart {
            let (Some(Column::Each(codes)), Some(values)) = (family.columns.get(*at), table.values(*name))
            else {
                continue;
            };
            room.by(own().map(|hit| hit.row), codes, values.len());
        }
        // What the numbers are called is asked of the first hit of each.
        let mut called: Vec<u32> = Vec::with_capacity(room.count);
        let places = runs.iter().cloned().flatten();
        for (place, number) in places.zip(&room.numbers) {
            if *number as usize == called.len()
                && let Some(hit) = hits.get(place)
            {
                let pair = |(at, name): &(usize, u32)| Some((*name, family.columns.get(*at)?.code(hit.row)?));
                let before = self.labels.len();
                called.push(self.number(table, apart.iter().filter_map(pair).collect()));
                if self.labels.len() > before && self.labels.len().is_multiple_of(GROUPS_PER_REQUEST) {
                    pace.hold(std::mem::take(&mut self.bytes) as u64)?;
                }
            }
            if let (Some(group), Some(called)) = (self.group_of.get_mut(place), called.get(*number as usize))
            {
                *group = *called;
            }
        }
        Ok(())
    }

    /// The group of these codes of names and values.
    fn number(&mut self, table: &Table, key: Vec<(u32, u32)>) -> u32 {
        *self.known.entry(key).or_insert_with_key(|key| {
            self.labels.push(made(table, key));
            self.bytes += group_bytes(key.len());
            number(self.labels.len() - 1)
        })
    }
}

/// Places of groups; there are no more than series, whose ids are 32 bits.
fn number(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// Whether any two series differ in a label that goes.
fn differ(table: &Table, hits: &[Hit<'_>], goes: Test<'_>) -> bool {
    let mut first: Option<Vec<(u32, u32)>> = None;
    for alike in hits.chunk_by(|a, b| std::ptr::eq(a.family, b.family)) {
        let Some(hit) = alike.first() else { continue };
        let columns = hit.family.names.iter().zip(&hit.family.columns);
        let going: Vec<(u32, &Column)> = columns
            .filter(|(name, _)| table.names.text(**name).is_some_and(|text| goes(text)))
            .map(|(name, column)| (*name, column))
            .collect();
        let codes = going.iter().filter_map(|(name, column)| Some((*name, column.code(hit.row)?))).collect();
        if *first.get_or_insert_with(|| Vec::clone(&codes)) != codes {
            return true;
        }
        for (_, column) in going.iter().filter(|(_, column)| column.same().is_none()) {
            let code = column.code(hit.row);
            if alike.iter().any(|other| column.code(other.row) != code) {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::model::{Access, BatchBuilder, OrgId, Sample, Timestamp};
    use crate::tsdb::{Snapshot, Tsdb};

    const NAMES: [&str; 5] = ["Zone", "__name__", "a", "b", "c"];

    /// A store of these series: each the values of some of the names, of the metric's in any case.
    fn store(series: &BTreeSet<BTreeMap<usize, u8>>) -> Snapshot {
        let store = Tsdb::scaffold();
        let mut batch = BatchBuilder::default();
        for labels in series {
            let pairs = labels.iter().map(|(name, value)| (NAMES[*name], format!("v{value}")));
            let pairs = std::iter::once(("__name__", "v0".to_owned())).chain(pairs);
            batch.series(&Labels::from_pairs(pairs), [Sample { at: Timestamp::from_s(1), value: 1.0 }]);
        }
        store.append(OrgId(1), &batch.batch(), Timestamp::from_s(1)).expect("stored");
        store.snapshot(&Access::whole(OrgId(1)))
    }

    proptest! {
        #[test]
        fn series_are_in_order_and_grouped_by_what_tells_them_apart(
            series in prop::collection::btree_set(prop::collection::btree_map(0usize..5, 0u8..12, 1..5), 1..40),
            by in prop::collection::btree_set(0usize..5, 0..3),
            gone in 0usize..5,
        ) {
            let named = |mut labels: BTreeMap<usize, u8>| {
                labels.entry(1).or_insert(0);
                labels
            };
            let series: BTreeSet<BTreeMap<usize, u8>> = series.into_iter().map(named).collect();
            let snapshot = store(&series);
            let all = snapshot.select(&[], TimeRange::ALL);
            prop_assert_eq!(all.len(), series.len());
            prop_assert!(all.is_sorted_by(|a, b| a.labels < b.labels));
            let apart = |name: &str| by.iter().any(|by| NAMES[*by] == name);
            let goes = |name: &str| name == NAMES[gone];
            let grouped = snapshot.select_grouped(&[], TimeRange::ALL, &apart, &goes);
            let told = |series: &GroupedSeries| (series.id, grouped.groups[series.group as usize].clone());
            let told: Vec<(SeriesId, Labels)> = grouped.series.iter().map(told).collect();
            let expected: Vec<(SeriesId, Labels)> =
                all.iter().map(|series| (series.id, series.labels.filtered(apart))).collect();
            prop_assert_eq!(told, expected);
            let distinct: BTreeSet<&Labels> = grouped.groups.iter().collect();
            prop_assert_eq!(distinct.len(), grouped.groups.len());
            let values: BTreeSet<&str> = all.iter().map(|series| series.labels.value(NAMES[gone])).collect();
            prop_assert_eq!(grouped.differ, values.len() > 1);
            let without = snapshot.select_without(&[], TimeRange::ALL, &goes);
            prop_assert_eq!(without.is_none(), grouped.differ);
            if let Some((name, found)) = without {
                prop_assert_eq!(&*name, all[0].labels.metric_name());
                for (found, series) in found.iter().zip(&all) {
                    prop_assert_eq!(found.id, series.id);
                    prop_assert_eq!(&found.labels, &series.labels.filtered(|name| !goes(name)));
                }
            }
        }
    }
}
