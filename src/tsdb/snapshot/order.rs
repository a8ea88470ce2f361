//! Found series in the order of their labels, by the codes of names and values: each distinct text is compared once for all
//! series that have it, and no label set is made.

use super::find::Hit;
use crate::model::{Pace, Stopped};
use crate::tsdb::series::order::replace_by_rank;
use crate::tsdb::series::table::{Family, Table};

/// The places of hits in the order of their labels. Those of one family are neighbours, as [`super::Paced::find`] has
/// them. Sorting is one piece of work for the pace.
///
/// # Errors
/// [`Stopped`].
pub(super) fn by_labels(table: &Table, hits: &[Hit<'_>], pace: &Pace<'_>) -> Result<Vec<u32>, Stopped> {
    /// Where the order of a family is kept, a hit costs a few nanoseconds; where it has to be made, a comparison for each
    /// doubling.
    const HIT_UNITS: u64 = 100;
    pace.spend_each(hits.len(), HIT_UNITS)?;
    pace.hold_each(hits.len(), size_of::<u32>())?;
    let mut parts: Vec<Part<'_>> = Vec::new();
    for (place, hit) in hits.iter().enumerate() {
        match parts.last_mut().filter(|part| std::ptr::eq(part.family, hit.family)) {
            Some(part) => part.to = place + 1,
            None => parts.push(Part { family: hit.family, from: place, to: place + 1 }),
        }
    }
    // Where all have the same first label and each family one value of it, mostly the metric's name, that decides first.
    let first = |part: &Part<'_>| {
        let (name, column) = part.family.names.first().zip(part.family.columns.first())?;
        Some((*name, column.same()?))
    };
    let mut order: Vec<u32> = Vec::with_capacity(hits.len());
    let name = parts.first().and_then(first).map(|(name, _)| name);
    let told_apart = name.filter(|name| parts.iter().all(|part| first(part).is_some_and(|it| it.0 == *name)));
    if let Some(values) = told_apart.and_then(|name| table.values(name)) {
        let value = |part: &Part<'_>| first(part).map_or(0, |(_, value)| value);
        parts.sort_by(|a, b| {
            let (a, b) = (value(a), value(b));
            if a == b { std::cmp::Ordering::Equal } else { values.text(a).cmp(&values.text(b)) }
        });
        for alike in parts.chunk_by(|a, b| value(a) == value(b)) {
            sort_parts(table, hits, alike, &mut order, pace)?;
        }
    } else {
        sort_parts(table, hits, &parts, &mut order, pace)?;
    }
    Ok(order)
}

/// The hits of one family: `from..to`.
struct Part<'t> {
    family: &'t Family,
    from: usize,
    to: usize,
}

/// A place among the hits; there are no more than series, whose ids are 32 bits.
fn place(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// Appends the places of the hits of some families, in order.
fn sort_parts(
    table: &Table,
    hits: &[Hit<'_>],
    parts: &[Part<'_>],
    order: &mut Vec<u32>,
    pace: &Pace<'_>,
) -> Result<(), Stopped> {
    let done = matches!(parts, [part] if take_family(table, hits, part, order) || sort_family(table, hits, part, order));
    if done { Ok(()) } else { sort_families(table, hits, parts, order, pace) }
}

/// A part of a family's series that is not smaller than this one is taken from the order that is kept of all; smaller ones
/// are sorted by themselves.
const PART: usize = 64;

/// One family, of which the order of all series is kept. False where it is not, or would be too long to look through; nothing
/// was done then.
fn take_family(table: &Table, hits: &[Hit<'_>], part: &Part<'_>, order: &mut Vec<u32>) -> bool {
    let rows = part.family.ids.len();
    let own = hits.get(part.from..part.to).unwrap_or_default();
    if own.len() * PART < rows {
        return false;
    }
    let Some(all) = part.family.in_order(table) else { return false };
    let first = place(part.from);
    if own.len() == rows {
        // Hits come in the order of rows.
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

/// One family, of which the hits are sorted by themselves. False where that cannot be done, and nothing was.
fn sort_family(table: &Table, hits: &[Hit<'_>], part: &Part<'_>, order: &mut Vec<u32>) -> bool {
    let own = hits.get(part.from..part.to).unwrap_or_default();
    let Some(places) = part.family.sorted(table, &own.iter().map(|hit| hit.row)) else { return false };
    let first = place(part.from);
    order.extend(places.iter().map(|at| first + at));
    true
}

/// Any families: label sets are compared pair by pair, name before value, a proper prefix first.
fn sort_families(
    table: &Table,
    hits: &[Hit<'_>],
    parts: &[Part<'_>],
    order: &mut Vec<u32>,
    pace: &Pace<'_>,
) -> Result<(), Stopped> {
    /// Nanoseconds for one label of a hit: its code is read, ranked, and compared.
    const LABEL_UNITS: u64 = 20;
    let mut names: Vec<u32> = parts.iter().flat_map(|part| part.family.names.iter().copied()).collect();
    names.sort_unstable();
    names.dedup();
    names.sort_by_key(|name| table.names.text(*name));
    let width: usize = parts.iter().map(|part| (part.to - part.from) * part.family.names.len()).sum();
    let count: usize = parts.iter().map(|part| part.to - part.from).sum();
    // A code and a slot of each hit are held beside its start, for one name at a time.
    let of_hit = size_of::<(usize, usize, u32)>() + size_of::<u32>() + size_of::<usize>();
    let held = (width as u64 * size_of::<u64>() as u64).saturating_add(count as u64 * of_hit as u64);
    pace.hold(held)?;
    // The pairs of one hit after the other, each a number that compares as name and value do.
    let mut pairs: Vec<u64> = vec![0; width];
    let mut starts: Vec<(usize, usize, u32)> = Vec::with_capacity(count);
    let mut next = 0;
    for part in parts {
        for at in part.from..part.to {
            starts.push((next, next + part.family.names.len(), place(at)));
            next += part.family.names.len();
        }
    }
    let (mut codes, mut slots) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for (rank, name) in (0u64..).zip(&names) {
        let Some(values) = table.values(*name) else { continue };
        codes.clear();
        slots.clear();
        let mut first = 0;
        for part in parts {
            let labels = part.family.names.len();
            if let Some(at) = part.family.names.iter().position(|have| have == name)
                && let Some(column) = part.family.columns.get(at)
            {
                for (number, hit) in hits.get(part.from..part.to).unwrap_or_default().iter().enumerate() {
                    codes.push(column.code(hit.row).unwrap_or_default());
                    slots.push(first + number * labels + at);
                }
            }
            first += (part.to - part.from) * labels;
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
    pace.release(held);
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
    use crate::tsdb::snapshot::find::located;

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

    /// What a selection within a scope finds, each way there is.
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

    /// Grants everything, and records the most bytes that were held.
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
    fn ordering_families_that_are_not_told_apart_holds_the_memory_of_their_pairs() {
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
        let hits = located(&table, &found, &endless).expect("endless");
        assert_eq!(hits.len(), 200);
        let recorder = Recorder::default();
        let pace = Pace::of(&recorder);
        assert_eq!(super::by_labels(&table, &hits, &pace).expect("granted").len(), 200);
        assert!(recorder.0.get() >= 200 * 21 * 8, "{} bytes", recorder.0.get());
    }

    proptest! {
        /// Orders are kept of all series of an organisation: whoever asks, and whoever asked before, each sees what its
        /// scope admits, in order, and nothing else.
        #[test]
        fn a_scope_holds_whoever_asked_before(
            pieces in prop::collection::vec(prop::collection::btree_set((0u8..4, 0u16..400), 1..150), 1..4),
            asked in prop::collection::vec((0u8..5, 0u16..5), 1..6),
        ) {
            let store = Tsdb::scaffold();
            let mut all = BTreeSet::new();
            for piece in &pieces {
                append(&store, piece);
                all.extend(piece.iter().copied());
                for (zone, host) in &asked {
                    // The last of each: everything.
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
