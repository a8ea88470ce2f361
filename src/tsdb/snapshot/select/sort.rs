//! Sorting of matched series by their labels, using the codes of names and values. Each distinct
//! text is compared once for all its series, and no label set is created.

use super::matching::SeriesRow;
use crate::model::{Pace, Stopped};
use crate::tsdb::series::order::replace_by_rank;
use crate::tsdb::series::table::{Family, Table};

/// Returns the indexes of rows in the order of their labels. Rows of one family must be neighbours,
/// as [`crate::tsdb::Paced::find`] returns them. The pace is charged once, before the sort.
///
/// # Errors
/// [`Stopped`] if the pace stops the request.
pub(in crate::tsdb::snapshot) fn by_labels(
    table: &Table,
    hits: &[SeriesRow<'_>],
    pace: &Pace<'_>,
) -> Result<Vec<u32>, Stopped> {
    /// A family with a cached order costs a few nanoseconds per row. Otherwise a row costs one
    /// comparison per doubling.
    const HIT_UNITS: u64 = 100;
    pace.spend_each(hits.len(), HIT_UNITS)?;
    pace.hold_each(hits.len(), size_of::<u32>())?;
    let mut slices: Vec<FamilySlice<'_>> = Vec::new();
    for (place, hit) in hits.iter().enumerate() {
        match slices.last_mut().filter(|slice| std::ptr::eq(slice.family, hit.family)) {
            Some(slice) => slice.to = place + 1,
            None => slices.push(FamilySlice { family: hit.family, from: place, to: place + 1 }),
        }
    }
    // If all families have the same first label, mostly the metric name, with one value each, that
    // value decides first.
    let first = |slice: &FamilySlice<'_>| {
        let (name, column) = slice.family.names.first().zip(slice.family.columns.first())?;
        Some((*name, column.same()?))
    };
    let mut order: Vec<u32> = Vec::with_capacity(hits.len());
    let name = slices.first().and_then(first).map(|(name, _)| name);
    let distinct =
        name.filter(|name| slices.iter().all(|slice| first(slice).is_some_and(|it| it.0 == *name)));
    if let Some(values) = distinct.and_then(|name| table.values(name)) {
        let value = |slice: &FamilySlice<'_>| first(slice).map_or(0, |(_, value)| value);
        slices.sort_by(|a, b| {
            let (a, b) = (value(a), value(b));
            if a == b { std::cmp::Ordering::Equal } else { values.text(a).cmp(&values.text(b)) }
        });
        for alike in slices.chunk_by(|a, b| value(a) == value(b)) {
            sort_slices(table, hits, alike, &mut order, pace)?;
        }
    } else {
        sort_slices(table, hits, &slices, &mut order, pace)?;
    }
    Ok(order)
}

/// The rows `from..to`, which are of one family.
struct FamilySlice<'t> {
    family: &'t Family,
    from: usize,
    to: usize,
}

/// Converts an index. There are at most as many rows as series, whose ids have 32 bits.
fn place(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// Appends the indexes of the rows of some families, in order.
fn sort_slices(
    table: &Table,
    hits: &[SeriesRow<'_>],
    slices: &[FamilySlice<'_>],
    order: &mut Vec<u32>,
    pace: &Pace<'_>,
) -> Result<(), Stopped> {
    let done = matches!(slices, [slice] if filter_cached_order(table, hits, slice, order) || sort_family(table, hits, slice, order));
    if done { Ok(()) } else { sort_families(table, hits, slices, order, pace) }
}

/// A selection of at least 1 / `PART` of a family is taken from the family's cached order. Smaller
/// selections are sorted directly.
const PART: usize = 64;

/// Sorts the rows of one family by its cached order. Returns false and does nothing if there is no
/// cached order, or if it is too long for so few rows.
fn filter_cached_order(
    table: &Table,
    hits: &[SeriesRow<'_>],
    slice: &FamilySlice<'_>,
    order: &mut Vec<u32>,
) -> bool {
    let rows = slice.family.ids.len();
    let own = hits.get(slice.from..slice.to).unwrap_or_default();
    if own.len() * PART < rows {
        return false;
    }
    let Some(all) = slice.family.in_order(table) else { return false };
    let first = place(slice.from);
    if own.len() == rows {
        // The selected rows are in the order of the family's rows.
        order.extend(all.iter().map(|row| first + row));
        return true;
    }
    const NOT_HIT: u32 = u32::MAX;
    let mut place_of = vec![NOT_HIT; rows];
    for (at, hit) in (first..).zip(own) {
        if let Some(place) = place_of.get_mut(hit.row) {
            *place = at;
        }
    }
    let places = all.iter().filter_map(|row| place_of.get(*row as usize).copied());
    order.extend(places.filter(|place| *place != NOT_HIT));
    true
}

/// Sorts the rows of one family directly. Returns false and does nothing if that is impossible.
fn sort_family(table: &Table, hits: &[SeriesRow<'_>], slice: &FamilySlice<'_>, order: &mut Vec<u32>) -> bool {
    let own = hits.get(slice.from..slice.to).unwrap_or_default();
    let Some(places) = slice.family.sorted(table, &own.iter().map(|hit| hit.row)) else { return false };
    let first = place(slice.from);
    order.extend(places.iter().map(|at| first + at));
    true
}

/// Sorts rows of several families. Label sets are compared pair by pair, name before value, a
/// proper prefix first.
fn sort_families(
    table: &Table,
    hits: &[SeriesRow<'_>],
    slices: &[FamilySlice<'_>],
    order: &mut Vec<u32>,
    pace: &Pace<'_>,
) -> Result<(), Stopped> {
    /// The cost of one label of a row: its code is read, ranked, and compared.
    const LABEL_UNITS: u64 = 20;
    let mut names: Vec<u32> = slices.iter().flat_map(|slice| slice.family.names.iter().copied()).collect();
    names.sort_unstable();
    names.dedup();
    names.sort_by_key(|name| table.names.text(*name));
    let width: usize = slices.iter().map(|slice| (slice.to - slice.from) * slice.family.names.len()).sum();
    let count: usize = slices.iter().map(|slice| slice.to - slice.from).sum();
    // For one name at a time, the code and the slot of each row are stored as well.
    let of_hit = size_of::<(usize, usize, u32)>() + size_of::<u32>() + size_of::<usize>();
    let bytes = (width as u64 * size_of::<u64>() as u64).saturating_add(count as u64 * of_hit as u64);
    pace.hold(bytes)?;
    // The pairs of all rows, one row after the other. Pairs compare like their names and values.
    let mut pairs: Vec<u64> = vec![0; width];
    let mut starts: Vec<(usize, usize, u32)> = Vec::with_capacity(count);
    let mut next = 0;
    for slice in slices {
        for at in slice.from..slice.to {
            starts.push((next, next + slice.family.names.len(), place(at)));
            next += slice.family.names.len();
        }
    }
    let (mut codes, mut slots) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for (rank, name) in (0u64..).zip(&names) {
        let Some(values) = table.values(*name) else { continue };
        codes.clear();
        slots.clear();
        let mut first = 0;
        for slice in slices {
            let labels = slice.family.names.len();
            if let Some(at) = slice.family.names.iter().position(|have| have == name)
                && let Some(column) = slice.family.columns.get(at)
            {
                for (number, hit) in hits.get(slice.from..slice.to).unwrap_or_default().iter().enumerate() {
                    codes.push(column.code(hit.row).unwrap_or_default());
                    slots.push(first + number * labels + at);
                }
            }
            first += (slice.to - slice.from) * labels;
        }
        pace.spend_each(codes.len(), LABEL_UNITS)?;
        replace_by_rank(values, &mut codes);
        for (slot, code) in slots.iter().zip(&codes) {
            if let Some(pair) = pairs.get_mut(*slot) {
                *pair = rank << 32 | u64::from(*code);
            }
        }
    }
    starts.sort_unstable_by_key(|(from, to, _)| pairs.get(*from..*to));
    order.extend(starts.iter().map(|(_, _, place)| *place));
    pace.release(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use crate::model::{
        Access, BatchBuilder, Conductor, Labels, MatchOp, Matcher, OrgId, Pace, Sample, Scope, TimeRange,
        Timestamp,
    };
    use crate::tsdb::Tsdb;
    use crate::tsdb::snapshot::select::matching::locate_rows;

    const ORG: OrgId = OrgId(1);

    fn labels((zone, host): &(u8, u16)) -> Labels {
        let (zone, host) = (format!("z{zone}"), format!("h{host}"));
        Labels::from_pairs([("__name__", "m"), ("host", host.as_str()), ("zone", zone.as_str())])
    }

    fn append(store: &Tsdb, series: &BTreeSet<(u8, u16)>) {
        let mut batch = BatchBuilder::default();
        for one in series {
            batch.series(&labels(one), [Sample { at: Timestamp::from_s(1), value: 1.0 }]);
        }
        store.append(ORG, &batch.batch(), Timestamp::from_s(1)).expect("stored");
    }

    /// Returns the result of a selection within a scope by each selection method.
    fn found(store: &Tsdb, scope: &[Matcher], matchers: &[Matcher]) -> Vec<Vec<Labels>> {
        let scope = Scope { matchers: scope.to_vec(), ..Scope::default() };
        let snapshot = store.snapshot(&Access { org: ORG, scope });
        let all = snapshot.select(matchers, TimeRange::ALL);
        let unnamed = snapshot.select_without(matchers, TimeRange::ALL, &|_| false);
        let (_, unnamed) = unnamed.expect("none differ");
        let zone = |name: &str| name == "zone";
        let grouped = snapshot.select_grouped(matchers, TimeRange::ALL, &zone, &|_| false);
        let group = |series: &crate::tsdb::GroupedSeries| grouped.groups[series.group as usize].clone();
        vec![
            all.into_iter().map(|series| series.labels).collect(),
            unnamed.into_iter().map(|series| series.labels).collect(),
            grouped.series.iter().map(group).collect(),
        ]
    }

    /// A conductor that admits everything and records the most bytes held.
    #[derive(Default)]
    struct Recorder(Cell<u64>);

    impl Conductor for Recorder {
        fn admits(&self, _: u64) -> bool {
            true
        }

        fn holds(&self, bytes: u64) -> bool {
            self.0.set(self.0.get().max(bytes));
            true
        }
    }

    #[test]
    fn sorting_families_with_equal_first_labels_charges_the_memory_of_their_pairs() {
        let store = Tsdb::scaffold();
        let mut batch = BatchBuilder::default();
        for series in 0..200 {
            let names = (0..20).map(|name| (format!("l{:02}", name + series % 2), format!("v{series}")));
            let all = names.chain([("__name__".to_owned(), "m".to_owned())]);
            batch.series(&Labels::from_pairs(all), [Sample { at: Timestamp::from_s(1), value: 1.0 }]);
        }
        store.append(ORG, &batch.batch(), Timestamp::from_s(1)).expect("stored");
        let snapshot = store.snapshot(&Access::whole(ORG));
        let series = snapshot.store.as_ref().expect("an organisation with series");
        let endless = Pace::endless();
        let found = snapshot.paced(&endless).find(series, &[], TimeRange::ALL).expect("endless");
        let table = series.table();
        let hits = locate_rows(&table, &found, &endless).expect("endless");
        assert_eq!(hits.len(), 200);
        let recorder = Recorder::default();
        let pace = Pace::of(&recorder);
        assert_eq!(super::by_labels(&table, &hits, &pace).expect("granted").len(), 200);
        assert!(recorder.0.get() >= 200 * 21 * 8, "{} bytes", recorder.0.get());
    }

    proptest! {
        /// The order of all series is cached per organisation. Each scope still sees exactly its
        /// own series, in order, after any earlier queries.
        #[test]
        fn a_scope_restricts_every_selection_whatever_was_queried_before(
            batches in prop::collection::vec(prop::collection::btree_set((0u8..4, 0u16..400), 1..150), 1..4),
            queries in prop::collection::vec((0u8..5, 0u16..5), 1..6),
        ) {
            let store = Tsdb::scaffold();
            let mut all = BTreeSet::new();
            for batch in &batches {
                append(&store, batch);
                all.extend(batch.iter().copied());
                for (zone, host) in &queries {
                    // The last value of each list means that there is no matcher.
                    let scope: Vec<Matcher> =
                        (0..1).filter(|_| *zone < 4).map(|_| Matcher::equal("zone", &format!("z{zone}"))).collect();
                    let pattern = format!("h{host}.*");
                    let matcher = Matcher::new("host", MatchOp::Regex, &pattern).expect("a pattern");
                    let matchers: Vec<Matcher> = (0..1).filter(|_| *host < 4).map(|_| matcher.clone()).collect();
                    let admitted = all.iter().map(labels).filter(|labels| {
                        scope.iter().chain(&matchers).all(|matcher| matcher.admits(labels))
                    });
                    let expected: BTreeSet<Labels> = admitted.collect();
                    let expected: Vec<Labels> = expected.into_iter().collect();
                    let zones: Vec<Labels> =
                        expected.iter().map(|labels| labels.filtered(|name| name == "zone")).collect();
                    let found = found(&store, &scope, &matchers);
                    prop_assert_eq!(found, vec![expected.clone(), expected, zones]);
                }
            }
        }
    }
}
