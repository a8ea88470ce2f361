//! Selection of series in groups by some of their labels, for aggregations that need no other
//! labels.

use std::ops::Range;
use std::sync::Arc;

use rapidhash::RapidHashMap;

use super::labels::by_family;
use super::matching::{SeriesRow, locate_rows};
use crate::model::{Label, Labels, Matcher, Pace, Stopped, TimeRange};
use crate::tsdb::report::SeriesId;
use crate::tsdb::series::columns::{CodeColumn, Codes};
use crate::tsdb::series::table::Table;
use crate::tsdb::snapshot::{Paced, SelectedSeries};

/// The result of [`Paced::select_grouped`].
#[derive(Debug)]
pub struct Grouped {
    /// The series, sorted by their labels.
    pub series: Vec<GroupedSeries>,
    /// The group labels of each group, all different, in no particular order.
    pub groups: Vec<Labels>,
    /// The metric name of the first series; empty if it has none.
    pub name: Arc<str>,
    /// Whether any two series differ in a dropped label.
    pub differ: bool,
}

/// A matched series and the number of its group.
#[derive(Clone, Copy, Debug)]
pub struct GroupedSeries {
    /// The argument of [`crate::tsdb::Snapshot::read`].
    pub id: SeriesId,
    /// The index in [`Grouped::groups`].
    pub group: u32,
}

/// The metric name of the first series, and all series.
pub(in crate::tsdb::snapshot) type NamedSeries = (Arc<str>, Vec<SelectedSeries>);

/// A predicate of label names.
type LabelPredicate<'t> = &'t dyn Fn(&str) -> bool;

impl Paced<'_> {
    /// Like [`Paced::select`], but returns the number of a group in place of the labels. Two series
    /// are in one group if they agree in all labels for which `is_group_label` is true. The result
    /// also reports whether any two series differ in a label for which `is_dropped` is true.
    ///
    /// Label sets are created only for groups.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub fn select_grouped(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        is_group_label: &dyn Fn(&str) -> bool,
        is_dropped: &dyn Fn(&str) -> bool,
    ) -> Result<Grouped, Stopped> {
        if self.snapshot.has_older() {
            return self.group_both(self.select(matchers, range)?, is_group_label, is_dropped);
        }
        self.snapshot.warnings.add_log_warning();
        let Some(store) = &self.snapshot.store else {
            let (series, groups, name) = (Vec::new(), Vec::new(), "".into());
            return Ok(Grouped { series, groups, name, differ: false });
        };
        let found = self.find(store, &[matchers], range)?;
        let found = self.in_order(store, &found)?;
        let table = self.table(store)?;
        let hits = locate_rows(&table, &found, self.pace)?;
        group(&table, &hits, is_group_label, is_dropped, self.pace)
    }

    /// Like [`Paced::select`], without the labels for which `is_dropped` is true, and returns the
    /// metric name of the first series. `None` if any two series differ in a dropped label, since
    /// they might have no other difference.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub fn select_without(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        is_dropped: &dyn Fn(&str) -> bool,
    ) -> Result<Option<NamedSeries>, Stopped> {
        if self.snapshot.has_older() {
            return self.drop_labels(self.select(matchers, range)?, is_dropped);
        }
        self.snapshot.warnings.add_log_warning();
        let Some(store) = &self.snapshot.store else { return Ok(Some(("".into(), Vec::new()))) };
        let found = self.find(store, &[matchers], range)?;
        let found = self.in_order(store, &found)?;
        let name = {
            let table = self.table(store)?;
            let hits = locate_rows(&table, &found, self.pace)?;
            self.pace.spend_each(hits.len(), 2)?;
            if differ(&table, &hits, is_dropped) {
                return Ok(None);
            }
            self.pace.release((hits.len() * size_of::<SeriesRow<'_>>()) as u64);
            first_name(&table, &hits)
        };
        Ok(Some((name, self.with_labels(store, &found, &|name| !is_dropped(name))?)))
    }
}

/// Number of groups between two charges of memory to the pace.
const GROUPS_PER_REQUEST: usize = 1_024;

/// Returns the memory of a group of `labels` labels in bytes: its label set, its key and its entry
/// in the map.
const fn group_bytes(labels: usize) -> usize {
    size_of::<Labels>() + Labels::own_bytes(labels) + 2 * size_of::<(Vec<(u32, u32)>, u32)>() + labels * 8
}

impl Grouped {
    /// Returns the memory of the series' numbers and of the groups' label sets, in bytes.
    pub fn bytes(&self) -> u64 {
        let series = self.series.capacity() * size_of::<GroupedSeries>();
        let groups = self.groups.capacity() * size_of::<Labels>() + Labels::bytes_behind(&self.groups);
        (series + groups) as u64
    }
}

/// Returns the labels of these codes of names and values, which must be in the order of names.
fn labels_of(table: &Table, codes: &[(u32, u32)]) -> Labels {
    let label = |(name, value): &(u32, u32)| {
        let (name, value) = (table.names.text(*name)?, table.values(*name)?.text(*value)?);
        Some(Label { name: Arc::clone(name), value: Arc::clone(value) })
    };
    Labels::from_sorted(codes.iter().filter_map(label).collect())
}

fn first_name(table: &Table, hits: &[SeriesRow<'_>]) -> Arc<str> {
    let name = hits.first().and_then(|hit| table.metric_name(hit.family));
    name.map_or_else(|| "".into(), Arc::clone)
}

/// A builder of groups.
#[derive(Default)]
struct GroupBuilder {
    /// Group numbers by the codes of names and values.
    numbers: RapidHashMap<Vec<(u32, u32)>, u32>,
    labels: Vec<Labels>,
    /// The number of each row's group.
    group_of: Vec<u32>,
    /// Estimated memory that is not charged yet, in bytes.
    bytes: usize,
    /// Buffers that are reused for each family.
    refiner: PartitionRefiner,
}

fn group(
    table: &Table,
    hits: &[SeriesRow<'_>],
    is_group_label: LabelPredicate<'_>,
    is_dropped: LabelPredicate<'_>,
    pace: &Pace<'_>,
) -> Result<Grouped, Stopped> {
    pace.hold_each(hits.len(), size_of::<GroupedSeries>() + size_of::<u32>())?;
    pace.spend_each(hits.len(), 4)?;
    let mut groups = GroupBuilder { group_of: vec![0; hits.len()], ..GroupBuilder::default() };
    for runs in by_family(hits) {
        let own: usize = runs.iter().map(Range::len).sum();
        let first = runs.first().and_then(|run| hits.get(run.start));
        let columns = first.map_or(0, |hit| hit.family.columns.len());
        pace.spend_each(own, 4 + columns as u64)?;
        groups.add_family(table, hits, &runs, is_group_label, pace)?;
    }
    let numbered = hits.iter().zip(groups.group_of);
    let series = numbered.map(|(hit, group)| GroupedSeries { id: SeriesId(hit.id), group }).collect();
    let differ = differ(table, hits, is_dropped);
    Ok(Grouped { series, groups: groups.labels, name: first_name(table, hits), differ })
}

/// A partition of rows that is refined by one column after another.
#[derive(Default)]
struct PartitionRefiner {
    /// By row: the number of its class, dense from 0 in order of first appearance.
    numbers: Vec<u32>,
    count: usize,
    /// The number of the new class plus 1, by class and code.
    table: Vec<u32>,
    sparse: RapidHashMap<u64, u32>,
}

impl PartitionRefiner {
    /// Starts with all rows in one class.
    fn restart(&mut self, hits: usize) {
        self.numbers.clear();
        self.numbers.resize(hits, 0);
        self.count = 1;
    }

    /// Splits the classes by a column of at most `distinct_max` different codes. `rows` are the
    /// rows in the family.
    fn refine(&mut self, rows: impl Iterator<Item = usize>, codes: &Codes, distinct_max: usize) {
        let PartitionRefiner { numbers, count, table, sparse } = self;
        let mut next = 0;
        let cells = count.saturating_mul(distinct_max);
        // A dense table is the fastest unless it is mostly empty.
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

impl GroupBuilder {
    /// GroupBuilder the rows of one family, which are in these `runs` of `hits`.
    fn add_family(
        &mut self,
        table: &Table,
        hits: &[SeriesRow<'_>],
        runs: &[Range<usize>],
        is_group_label: LabelPredicate<'_>,
        pace: &Pace<'_>,
    ) -> Result<(), Stopped> {
        let own = || runs.iter().flat_map(|run| hits.get(run.clone()).unwrap_or_default());
        let Some(first) = own().next() else { return Ok(()) };
        let family = first.family;
        let group_names: Vec<(usize, u32)> = family
            .names
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, name)| table.names.text(*name).is_some_and(|text| is_group_label(text)))
            .collect();
        let mut refiner = std::mem::take(&mut self.refiner);
        refiner.restart(own().count());
        for (at, name) in &group_names {
            let (Some(CodeColumn::Each(codes)), Some(values)) =
                (family.columns.get(*at), table.values(*name))
            else {
                continue;
            };
            refiner.refine(own().map(|hit| hit.row), codes, values.len());
        }
        // The first row of each class determines its group.
        let mut groups: Vec<u32> = Vec::with_capacity(refiner.count);
        let places = runs.iter().cloned().flatten();
        for (place, number) in places.zip(&refiner.numbers) {
            if *number as usize == groups.len()
                && let Some(hit) = hits.get(place)
            {
                let pair = |(at, name): &(usize, u32)| Some((*name, family.columns.get(*at)?.code(hit.row)?));
                let before = self.labels.len();
                groups.push(self.number(table, group_names.iter().filter_map(pair).collect()));
                if self.labels.len() > before && self.labels.len().is_multiple_of(GROUPS_PER_REQUEST) {
                    pace.hold(std::mem::take(&mut self.bytes) as u64)?;
                }
            }
            if let (Some(group), Some(number_of_group)) =
                (self.group_of.get_mut(place), groups.get(*number as usize))
            {
                *group = *number_of_group;
            }
        }
        self.refiner = refiner;
        Ok(())
    }

    /// Returns the group of these codes of names and values.
    fn number(&mut self, table: &Table, key: Vec<(u32, u32)>) -> u32 {
        *self.numbers.entry(key).or_insert_with_key(|key| {
            self.labels.push(labels_of(table, key));
            self.bytes += group_bytes(key.len());
            number(self.labels.len() - 1)
        })
    }
}

/// Converts the index of a group. There are at most as many groups as series, whose ids have 32
/// bits.
fn number(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// Returns whether any two series differ in a dropped label.
fn differ(table: &Table, hits: &[SeriesRow<'_>], is_dropped: LabelPredicate<'_>) -> bool {
    let mut first: Option<Vec<(u32, u32)>> = None;
    for alike in hits.chunk_by(|a, b| std::ptr::eq(a.family, b.family)) {
        let Some(hit) = alike.first() else { continue };
        let columns = hit.family.names.iter().zip(&hit.family.columns);
        let dropped: Vec<(u32, &CodeColumn)> = columns
            .filter(|(name, _)| table.names.text(**name).is_some_and(|text| is_dropped(text)))
            .map(|(name, column)| (*name, column))
            .collect();
        let codes =
            dropped.iter().filter_map(|(name, column)| Some((*name, column.code(hit.row)?))).collect();
        if *first.get_or_insert_with(|| Vec::clone(&codes)) != codes {
            return true;
        }
        for (_, column) in dropped.iter().filter(|(_, column)| column.same().is_none()) {
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

    /// Creates a store with these series. Each has values of some of the names; a missing metric
    /// name is added.
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
        fn series_are_sorted_and_grouped_by_the_chosen_labels(
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
            let group_names = |name: &str| by.iter().any(|by| NAMES[*by] == name);
            let is_dropped = |name: &str| name == NAMES[gone];
            let grouped = snapshot.select_grouped(&[], TimeRange::ALL, &group_names, &is_dropped);
            let actual = |series: &GroupedSeries| (series.id, grouped.groups[series.group as usize].clone());
            let actual: Vec<(SeriesId, Labels)> = grouped.series.iter().map(actual).collect();
            let expected: Vec<(SeriesId, Labels)> =
                all.iter().map(|series| (series.id, series.labels.filtered(group_names))).collect();
            prop_assert_eq!(actual, expected);
            let distinct: BTreeSet<&Labels> = grouped.groups.iter().collect();
            prop_assert_eq!(distinct.len(), grouped.groups.len());
            let values: BTreeSet<&str> = all.iter().map(|series| series.labels.value(NAMES[gone])).collect();
            prop_assert_eq!(grouped.differ, values.len() > 1);
            let without = snapshot.select_without(&[], TimeRange::ALL, &is_dropped);
            prop_assert_eq!(without.is_none(), grouped.differ);
            if let Some((name, found)) = without {
                prop_assert_eq!(&*name, all[0].labels.metric_name());
                for (found, series) in found.iter().zip(&all) {
                    prop_assert_eq!(found.id, series.id);
                    prop_assert_eq!(&found.labels, &series.labels.filtered(|name| !is_dropped(name)));
                }
            }
        }
    }
}
