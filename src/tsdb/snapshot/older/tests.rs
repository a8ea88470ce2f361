//! A snapshot with an older source equals a store that has all samples.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::model::{Access, BatchBuilder, OrgId, Sample, Scope, stale_nan};
use crate::tsdb::Tsdb;
use crate::tsdb::side_data::tests::exponential;

pub(in crate::tsdb::snapshot) const ORG: OrgId = OrgId(1);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::tsdb::snapshot) enum Kind {
    Float(u8),
    Stale,
    Native(u8),
}

/// The location of a time's sample: here, in the older source, or in both with two values.
#[derive(Clone, Copy, Debug)]
enum SamplePlace {
    Here(Kind),
    Older(Kind),
    Both(Kind, Kind),
}

pub(in crate::tsdb::snapshot) type Samples = BTreeMap<i64, Kind>;

pub(in crate::tsdb::snapshot) fn labels(series: u8) -> Labels {
    let (name, zone) = (format!("m{}", series % 2), format!("z{}", series / 2 % 2));
    let host = format!("h{series}");
    Labels::from_pairs([("__name__", name.as_str()), ("host", host.as_str()), ("zone", zone.as_str())])
}

fn native(count: u8) -> Histogram {
    let count = u64::from(count);
    exponential(3, 0.001, &[(-1, 2), (3, 1)], &[], count as f64 / 4.0, count * 3, &[count, 2 * count, 0])
}

fn float(kind: Kind) -> Option<f64> {
    match kind {
        Kind::Float(value) => Some(f64::from(value)),
        Kind::Stale => Some(stale_nan()),
        Kind::Native(_) => None,
    }
}

pub(in crate::tsdb::snapshot) fn store(all: &BTreeMap<u8, Samples>) -> Tsdb {
    let tsdb = Tsdb::scaffold();
    fill(&tsdb, all);
    tsdb
}

pub(in crate::tsdb::snapshot) fn fill(tsdb: &Tsdb, all: &BTreeMap<u8, Samples>) {
    let mut batch = BatchBuilder::default();
    for (series, samples) in all.iter().filter(|(_, samples)| !samples.is_empty()) {
        let floats = samples.iter().filter_map(|(at, kind)| Some((*at, float(*kind)?)));
        let floats = floats.map(|(at, value)| Sample { at: Timestamp::from_ms(at), value });
        let histograms = samples.iter().filter_map(|(at, kind)| match kind {
            Kind::Native(count) => Some((Timestamp::from_ms(*at), native(*count))),
            _ => None,
        });
        batch.series(&labels(*series), floats).histograms(histograms);
    }
    tsdb.append(ORG, &batch.batch(), Timestamp::from_ms(1_000)).expect("stored");
}

fn raw(series: u8, samples: &Samples) -> RawSeries {
    let mut raw = RawSeries::new(labels(series));
    for (at, kind) in samples {
        match kind {
            Kind::Native(count) => raw.push_histogram(*at, native(*count)),
            kind => raw.push(*at, float(*kind).expect("a float")),
        }
    }
    raw
}

pub(in crate::tsdb::snapshot) fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![4 => (0u8..9).prop_map(Kind::Float), 1 => Just(Kind::Stale), 2 => (1u8..9).prop_map(Kind::Native)]
}

fn places() -> impl Strategy<Value = SamplePlace> {
    prop_oneof![
        kinds().prop_map(SamplePlace::Here),
        kinds().prop_map(SamplePlace::Older),
        (kinds(), kinds()).prop_map(|(here, older)| SamplePlace::Both(here, older)),
    ]
}

/// The bits of the samples of one series.
pub(in crate::tsdb::snapshot) type Read = (Vec<(i64, u64)>, Vec<(i64, Histogram)>);

pub(in crate::tsdb::snapshot) fn read_all(
    snapshot: &Snapshot,
    range: TimeRange,
    from: Timestamp,
    newest: bool,
) -> BTreeMap<Labels, Read> {
    let mut selected = snapshot.select(&[], TimeRange::new(from.min(range.start), range.end));
    assert!(selected.is_sorted_by(|a, b| a.labels < b.labels));
    let mut reader = snapshot.reader(range, from);
    if newest {
        reader = reader.newest_only();
    } else {
        // Announced series are read in order of their numbers.
        selected.sort_by_key(|series| series.id);
        reader.look_ahead(selected.iter().map(|series| series.id));
    }
    let (mut out, mut histograms) = (ReadColumns::default(), HistogramColumns::default());
    let mut all = BTreeMap::new();
    for series in selected {
        reader.read(series.id, &mut out, &mut histograms);
        let floats: Vec<(i64, u64)> =
            out.times().iter().zip(out.values()).map(|(at, value)| (*at, value.to_bits())).collect();
        let native: Vec<(i64, Histogram)> =
            histograms.times.iter().copied().zip(histograms.histograms.iter().cloned()).collect();
        if !newest {
            let mut columns = SampleColumns::default();
            snapshot.read(series.id, range, &mut columns);
            let again = columns.times.iter().zip(&columns.values).map(|(at, value)| (*at, value.to_bits()));
            assert_eq!(again.collect::<Vec<_>>(), floats, "{}", series.labels);
        }
        if !floats.is_empty() || !native.is_empty() {
            all.insert(series.labels, (floats, native));
        }
    }
    all
}

/// Returns the newest sample of each series: its time, and its bits unless it is a histogram.
pub(in crate::tsdb::snapshot) fn newest_of(
    all: BTreeMap<Labels, Read>,
) -> BTreeMap<Labels, (i64, Option<u64>)> {
    let newest = |(floats, native): Read| {
        let float = floats.last().map(|(at, bits)| (*at, Some(*bits)));
        let native = native.last().map(|(at, _)| (*at, None));
        float.into_iter().chain(native).max_by_key(|(at, _)| *at)
    };
    all.into_iter().filter_map(|(labels, read)| Some((labels, newest(read)?))).collect()
}

proptest! {
    #[test]
    fn a_snapshot_with_an_older_source_equals_a_store_with_all_samples(
        content in prop::collection::btree_map(
            0u8..6, prop::collection::btree_map(0i64..40, places(), 0..12), 1..6),
        (start, length, back) in (0i64..40, 0i64..40, 0i64..10),
        zone in 0u8..3,
        min_time in prop::option::of(0i64..30),
    ) {
        let (mut here, mut older, mut all) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (series, samples) in &content {
            for (at, place) in samples {
                let (stored, fetched) = match *place {
                    SamplePlace::Here(kind) => (Some(kind), None),
                    SamplePlace::Older(kind) => (None, Some(kind)),
                    SamplePlace::Both(kind, other) => (Some(kind), Some(other)),
                };
                for (to, kind) in [(&mut here, stored), (&mut older, fetched), (&mut all, stored.or(fetched))] {
                    if let Some(kind) = kind {
                        to.entry(*series).or_insert_with(Samples::new).insert(*at, kind);
                    }
                }
            }
        }
        let matchers = (0..1).filter(|_| zone < 2).map(|_| Matcher::equal("zone", &format!("z{zone}")));
        let min_time = min_time.map(Timestamp::from_ms);
        let scope = Scope { matchers: matchers.collect(), min_time, ..Scope::default() };
        let access = Access { org: ORG, scope };
        let (whole, split) = (store(&all), store(&here));
        let fetched = older.iter().map(|(series, samples)| raw(*series, samples)).collect();
        let fetched = OlderSamples::new(fetched);
        let whole = whole.snapshot(&access);
        let split = split.snapshot(&access).with_older(&fetched, &Pace::endless()).expect("endless");
        prop_assert_eq!(split.version(), None);
        // Where the sources contradict each other in the kind of a sample, histograms before the
        // range may differ: floats there are not read.
        let is_native = |kind: &Kind| matches!(kind, Kind::Native(_));
        let differ = |place: &SamplePlace| match place {
            SamplePlace::Both(here, older) => is_native(here) != is_native(older),
            SamplePlace::Here(_) | SamplePlace::Older(_) => false,
        };
        let back = if content.values().flat_map(BTreeMap::values).any(differ) { 0 } else { back };
        let start = Timestamp::from_ms(start);
        let range = TimeRange::new(start, start.plus_ms(length));
        let from = start.plus_ms(-back);
        prop_assert_eq!(read_all(&split, range, from, false), read_all(&whole, range, from, false));
        let newest = |snapshot: &Snapshot| newest_of(read_all(snapshot, range, start, true));
        prop_assert_eq!(newest(&split), newest(&whole));
        prop_assert_eq!(split.exists(&[], range), !split.select(&[], range).is_empty());

        // Selections may include series without samples in the range, so all of time is selected.
        let names = |snapshot: &Snapshot| {
            let all = snapshot.select(&[], TimeRange::ALL);
            all.into_iter().map(|series| (series.id, series.labels)).collect::<BTreeMap<_, _>>()
        };
        let labels: BTreeSet<Labels> = names(&split).into_values().collect();
        prop_assert_eq!(&labels, &names(&whole).into_values().collect());
        let is_zone = |name: &str| name == "zone";
        let is_name = |name: &str| name == "__name__";
        let grouped = |snapshot: &Snapshot| {
            let names = names(snapshot);
            let found = snapshot.select_grouped(&[], TimeRange::ALL, &is_zone, &is_name);
            let group = |series: &GroupedSeries| {
                (names[&series.id].clone(), found.groups[series.group as usize].clone())
            };
            let series: Vec<(Labels, Labels)> = found.series.iter().map(group).collect();
            (series, found.name, found.differ)
        };
        prop_assert_eq!(grouped(&split), grouped(&whole));
        let without = |snapshot: &Snapshot| {
            let (name, series) = snapshot.select_without(&[], TimeRange::ALL, &is_name)?;
            Some((name, series.into_iter().map(|series| series.labels).collect::<Vec<_>>()))
        };
        prop_assert_eq!(without(&split), without(&whole));
    }
}

#[test]
fn a_series_outside_the_scope_is_not_attached() {
    let scope = Scope { matchers: vec![Matcher::equal("zone", "z1")], ..Scope::default() };
    let samples = Samples::from([(5, Kind::Float(1))]);
    let fetched = OlderSamples::new((0..4).map(|series| raw(series, &samples)).collect());
    let snapshot = store(&BTreeMap::new()).snapshot(&Access { org: ORG, scope });
    let snapshot = snapshot.with_older(&fetched, &Pace::endless()).expect("endless");
    let found = snapshot.select(&[], TimeRange::ALL);
    let found: Vec<Labels> = found.into_iter().map(|series| series.labels).collect();
    assert_eq!(found, [labels(2), labels(3)]);
}

#[test]
fn a_series_that_is_stored_after_the_older_source_was_attached_is_listed_once() {
    let tsdb = store(&BTreeMap::new());
    let samples = Samples::from([(5, Kind::Float(1))]);
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let older = OlderSamples::new(vec![raw(0, &samples)]);
    let snapshot = snapshot.with_older(&older, &Pace::endless()).expect("endless");
    let mut batch = BatchBuilder::default();
    batch.series(&labels(0), [Sample { at: Timestamp::from_ms(9), value: 2.0 }]);
    tsdb.append(ORG, &batch.batch(), Timestamp::from_ms(1_000)).expect("stored");
    let found = snapshot.select(&[], TimeRange::ALL);
    assert_eq!(found.len(), 1);
    let mut out = SampleColumns::default();
    snapshot.read(found[0].id, TimeRange::ALL, &mut out);
    assert_eq!(out.times, [5]);
}
