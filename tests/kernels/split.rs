//! `engine: split`: a query over samples of two sources equals the same query over one store that
//! has all of them, to the bit. The older source gets exactly the ranges that `raw_reads` computes,
//! so a range that is too short is a difference.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use promlet::model::{
    Access, BatchBuilder, Histogram, HistogramColumns, Labels, Pace, RawSeries, Sample, Scope, Steps,
    TimeRange, Timestamp,
};
use promlet::promql::syntax::{Caps, Features, parse};
use promlet::promql::{Budget, Options, Query, Value, raw_reads, run};
use promlet::tsdb::{OlderSamples, SampleColumns, Snapshot, Tsdb};
use proptest::prelude::*;

use super::data::{ORG, SentSamples, random_floats, random_histograms, store_samples};
use super::expressions::{deep, flat, native};
use super::laws::steps;
use super::oracle::LOOKBACK_MS;

/// The stored samples of one series.
#[derive(Clone, Debug, Default)]
struct Stored {
    floats: Vec<(i64, f64)>,
    histograms: Vec<(i64, Histogram)>,
}

fn stored(snapshot: &Snapshot) -> BTreeMap<Labels, Stored> {
    let (mut floats, mut native) = (SampleColumns::default(), HistogramColumns::default());
    let mut all = BTreeMap::new();
    for series in snapshot.select(&[], TimeRange::ALL) {
        snapshot.read_both(series.id, TimeRange::ALL, Timestamp::MIN, &mut floats, &mut native);
        let stored = Stored {
            floats: floats.times.iter().copied().zip(floats.values.iter().copied()).collect(),
            histograms: native.times.iter().copied().zip(native.histograms.iter().cloned()).collect(),
        };
        all.insert(series.labels, stored);
    }
    all
}

/// Stores the samples from `from_ms` on.
fn newer(all: &BTreeMap<Labels, Stored>, from_ms: i64) -> Tsdb {
    let store = Tsdb::scaffold();
    let mut batch = BatchBuilder::default();
    for (labels, Stored { floats, histograms }) in all {
        let floats = floats.iter().filter(|(at, _)| *at >= from_ms);
        let floats = floats.map(|(at, value)| Sample { at: Timestamp::from_ms(*at), value: *value });
        let histograms = histograms.iter().filter(|(at, _)| *at >= from_ms);
        let histograms = histograms.map(|(at, native)| (Timestamp::from_ms(*at), native.clone()));
        let (floats, histograms): (Vec<_>, Vec<_>) = (floats.collect(), histograms.collect());
        if !floats.is_empty() || !histograms.is_empty() {
            batch.series(labels, floats).histograms(histograms);
        }
    }
    store.append(ORG, &batch.batch(), Timestamp::from_s(1_000_000)).expect("stored");
    store
}

/// Returns what an upstream with all samples answers for the part of the reads before the border.
fn fetched(all: &BTreeMap<Labels, Stored>, query: &Query, options: &Options, border_ms: i64) -> OlderSamples {
    let mut found = Vec::new();
    for read in raw_reads(query, options, &Budget::default()).expect("a plan") {
        let end = read.range.end.min(Timestamp::from_ms(border_ms - 1));
        let range = TimeRange::new(read.range.start, end);
        for (labels, Stored { floats, histograms }) in all {
            if !read.matchers.iter().all(|matcher| matcher.admits(labels)) {
                continue;
            }
            let mut series = RawSeries::new(labels.clone());
            let within = |at: i64| range.contains(Timestamp::from_ms(at));
            floats.iter().filter(|(at, _)| within(*at)).for_each(|(at, value)| series.push(*at, *value));
            for (at, native) in histograms.iter().filter(|(at, _)| within(*at)) {
                series.push_histogram(*at, native.clone());
            }
            found.push(series);
        }
    }
    OlderSamples::new(found)
}

/// Renders a result with the bits of all floats.
fn rendered(query: &Query, snapshot: &Snapshot, options: &Options) -> Result<String, String> {
    let result = run(query, snapshot, options, &Budget::default()).map_err(|error| error.to_string())?;
    let mut out = format!("{:?}\n", result.annotations);
    let Value::Matrix(matrix) = result.value else {
        return Ok(format!("{out}{:?}", result.value));
    };
    for series in matrix {
        let _ = writeln!(out, "{}", series.labels);
        for sample in series.samples {
            let _ =
                writeln!(out, "  {} {:?} {:016x}", sample.at.as_ms(), sample.value, sample.value.to_bits());
        }
        for point in series.histograms {
            let _ = writeln!(out, "  {} {:?}", point.at.as_ms(), point.value);
        }
    }
    Ok(out)
}

/// Where the two sources meet: the border, how far the samples of this store reach back beyond it,
/// and whether the query is an instant query.
#[derive(Clone, Copy, Debug)]
struct Meeting {
    border_ms: i64,
    overlap_ms: i64,
    instant: bool,
}

fn meeting() -> impl Strategy<Value = Meeting> {
    let overlap = prop_oneof![2 => Just(0), 1 => 0..400_000i64, 1 => Just(1 << 40)];
    (-200_000..1_300_000i64, overlap, prop::bool::weighted(0.2))
        .prop_map(|(border_ms, overlap_ms, instant)| Meeting { border_ms, overlap_ms, instant })
}

fn check(text: &str, steps: Steps, sent: &SentSamples, meeting: Meeting) -> Result<(), TestCaseError> {
    let caps = Caps { features: Features::ALL, ..Caps::default() };
    let expr = parse(text, &caps).unwrap_or_else(|e| unreachable!("{text}: {e}")).expr;
    let Meeting { border_ms, overlap_ms, instant } = meeting;
    let steps = if instant { Steps::once(steps.start()) } else { steps };
    let query = Query { expr: expr.into(), text: text.into(), steps, instant };
    let options = Options { lookback_ms: LOOKBACK_MS, ..Options::default() };
    let whole_store = Tsdb::scaffold();
    let whole = store_samples(&whole_store, sent, |_| {});
    let all = stored(&whole);
    let here = newer(&all, border_ms.saturating_sub(overlap_ms));
    let older = fetched(&all, &query, &options, border_ms);
    let split = here.snapshot(&Access { org: ORG, scope: Scope::default() });
    let split = split.with_older(&older, &Pace::endless()).expect("endless");
    let (expected, found) = (rendered(&query, &whole, &options), rendered(&query, &split, &options));
    prop_assert_eq!(found, expected, "{} with {:?}", text, meeting);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn windows_and_aggregations_at_a_border_equal_those_of_one_store(
        sent in random_floats(true),
        steps in steps(),
        text in flat(),
        meeting in meeting(),
    ) {
        check(&text, steps, &sent, meeting)?;
    }

    #[test]
    fn functions_of_native_histograms_at_a_border_equal_those_of_one_store(
        sent in random_histograms(),
        steps in steps(),
        text in native(),
        meeting in meeting(),
    ) {
        check(&text, steps, &sent, meeting)?;
    }

    #[test]
    fn operators_and_subqueries_at_a_border_equal_those_of_one_store(
        sent in random_floats(false),
        steps in steps(),
        text in deep(),
        meeting in meeting(),
    ) {
        check(&text, steps, &sent, meeting)?;
    }
}
