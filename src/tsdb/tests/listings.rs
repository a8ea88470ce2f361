//! Tests that listings agree with selections. Each listing is derived again from `select` and
//! `read`.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::model::{MatchOp, Matcher, Scope};

const NAMES: [&str; 4] = ["a", "b", "job", "zone"];

/// A series: its metric, a value for each label (0 for none), and the times of its two samples.
type DrawnSeries = (u8, [u8; 4], i64, i64);

fn drawn() -> impl Strategy<Value = Vec<DrawnSeries>> {
    let series = (0u8..4, [0u8..4, 0u8..3, 0u8..30, 0u8..2], 0i64..100, 0i64..50);
    prop::collection::vec(series, 1..60)
}

/// Writes the series, and seals after the first `sealed` of them.
fn fill(tsdb: &Tsdb, drawn: &[DrawnSeries], sealed: usize) {
    for (index, (metric, values, at, more)) in drawn.iter().enumerate() {
        if index == sealed && sealed > 0 {
            tsdb.seal(NOW).expect("sealed");
        }
        let mut pairs = vec![("__name__".to_owned(), format!("m{metric}"))];
        let labels = NAMES.iter().zip(values).filter(|(_, value)| **value > 0);
        pairs.extend(labels.map(|(name, value)| ((*name).to_owned(), format!("v{value}"))));
        write(tsdb, ORG, &Labels::from_pairs(pairs), &[ago(*at + *more, 1.0), ago(*at, 2.0)]);
    }
}

fn matchers() -> impl Strategy<Value = Vec<Matcher>> {
    let name = prop::sample::select(vec!["__name__", "a", "job", "zone", "absent"]);
    let op = prop::sample::select(vec![MatchOp::Equal, MatchOp::NotEqual, MatchOp::Regex, MatchOp::NotRegex]);
    let value = prop::sample::select(vec!["", "m1", "v1", "v2|v3", "m.", "v.+"]);
    let one = (name, op, value).prop_map(|(name, op, value)| Matcher::new(name, op, value).expect("valid"));
    prop::collection::vec(one, 0..3)
}

fn sorted(texts: BTreeSet<String>) -> Vec<String> {
    texts.into_iter().collect()
}

fn texts(listing: &Listing<Arc<str>>) -> Vec<String> {
    assert!(!listing.truncated);
    listing.items.iter().map(|text| text.to_string()).collect()
}

fn check(snapshot: &Snapshot, selectors: &[Vec<Matcher>], range: TimeRange) -> Result<(), TestCaseError> {
    let mut series = BTreeMap::new();
    let everything = [Vec::new()];
    for matchers in if selectors.is_empty() { &everything } else { selectors } {
        for one in snapshot.select(matchers, range) {
            series.insert(one.labels.clone(), one.id);
        }
    }
    let all = usize::MAX;
    let listed = snapshot.series(selectors, range, all);
    prop_assert_eq!(&listed.items, &series.keys().cloned().collect::<Vec<_>>());
    prop_assert_eq!(snapshot.exists(selectors, range), !series.is_empty());
    let names: BTreeSet<String> = series.keys().flatten().map(|label| label.name.to_string()).collect();
    prop_assert_eq!(texts(&snapshot.label_names(selectors, range, all)), sorted(names.clone()));
    let summaries = snapshot.label_summaries(selectors, range, 2);
    for name in names.iter().map(String::as_str).chain(["absent"]) {
        let values: BTreeSet<String> = series
            .keys()
            .map(|labels| labels.value(name).to_owned())
            .filter(|value| !value.is_empty())
            .collect();
        let values = sorted(values);
        prop_assert_eq!(&texts(&snapshot.label_values(name, selectors, range, all)), &values);
        let cut = snapshot.label_values(name, selectors, range, 1);
        prop_assert_eq!((cut.items.len(), cut.truncated), (values.len().min(1), values.len() > 1));
        let summary = summaries.iter().find(|summary| &*summary.name == name);
        if name != "__name__" {
            let shown: Vec<&str> =
                summary.into_iter().flat_map(|s| &s.values).map(|value| &**value).collect();
            prop_assert_eq!(
                (summary.map_or(0, |s| s.count), shown),
                (values.len(), values.iter().take(2).map(String::as_str).collect())
            );
        }
    }
    let mut metrics: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    let mut out = SampleColumns::default();
    for (labels, id) in &series {
        let one = metrics.entry(labels.metric_name().to_owned()).or_insert((0, i64::MIN));
        snapshot.read(*id, TimeRange::ALL, &mut out);
        one.0 += 1;
        one.1 = one.1.max(*out.times.last().expect("samples"));
    }
    let filter = MetricFilter { selectors, ..MetricFilter::default() };
    let listed = snapshot.metrics(&filter, range, all).items;
    let listed: BTreeMap<String, (u64, i64)> =
        listed.into_iter().map(|m| (m.name.to_string(), (m.series, m.last_seen.as_ms()))).collect();
    prop_assert_eq!(listed, metrics);
    Ok(())
}

/// Checks a query over all time and over a part of it, with full access and within a scope.
fn check_all(tsdb: &Tsdb, query: &ListingQuery) -> Result<(), TestCaseError> {
    let ListingQuery { selectors, scope, ages: (from, to) } = query;
    let mut access = Access::whole(ORG);
    if let Some(matchers) = scope {
        access.scope = Scope { matchers: matchers.clone(), ..Scope::default() };
    }
    let snapshot = tsdb.snapshot(&access);
    check(&snapshot, selectors, TimeRange::ALL)?;
    let (early, late) = (*from.max(to), *from.min(to));
    check(&snapshot, selectors, TimeRange::new(NOW.plus_ms(-early), NOW.plus_ms(-late)))?;
    prop_assert!(snapshot.warnings().is_empty());
    Ok(())
}

/// A query of a listing.
#[derive(Clone, Debug)]
struct ListingQuery {
    selectors: Vec<Vec<Matcher>>,
    /// The matchers of the scope.
    scope: Option<Vec<Matcher>>,
    /// The ends of a range, in ms before now, in either order.
    ages: (i64, i64),
}

fn query() -> impl Strategy<Value = ListingQuery> {
    let selectors = prop::collection::vec(matchers(), 0..3);
    (selectors, prop::option::of(matchers()), (0i64..160, 0i64..160))
        .prop_map(|(selectors, scope, ages)| ListingQuery { selectors, scope, ages })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn listings_agree_with_selections(drawn in drawn(), query in query()) {
        let tsdb = Tsdb::scaffold();
        fill(&tsdb, &drawn, 0);
        check_all(&tsdb, &query)?;
    }
}

proptest! {
    // Each case seals to the disk.
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn segments_are_listed_like_the_head(drawn in drawn(), sealed in 1usize..60, query in query()) {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let (tsdb, _) = open(dir.path());
        fill(&tsdb, &drawn, sealed);
        check_all(&tsdb, &query)?;
        tsdb.seal(NOW).expect("sealed");
        check_all(&tsdb, &query)?;
    }
}

/// Series with samples before and after a window and none in it, in the head and sealed. Within a
/// scope that hides the earlier samples, every listing is that of a store that never had them.
#[test]
fn no_listing_shows_what_a_scope_hides_even_if_later_samples_follow() {
    let times: [(&str, &[i64]); 5] = [
        ("before and after", &[900, 850, 100]),
        ("in it", &[900, 500, 100]),
        ("after", &[150, 100]),
        ("before", &[900, 880]),
        ("histograms before and after", &[]),
    ];
    for sealed in [false, true] {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let (tsdb, _) = open(dir.path());
        let histogram = crate::tsdb::side_data::tests::exponential(0, 0.0, &[], &[], 0.0, 3, &[]);
        // The second organisation never had the samples that the scope of the first one hides.
        let org = |number: u32, hidden: i64| {
            for (job, agos) in times {
                let samples: Vec<Sample> =
                    agos.iter().filter(|ms| **ms <= hidden).map(|ms| ago(*ms, 1.0)).collect();
                let mut batch = BatchBuilder::default();
                batch.series(&up(job), samples);
                if agos.is_empty() {
                    let visible = [900, 100].into_iter().filter(|ms| *ms <= hidden);
                    batch.histograms(visible.map(|ms| (NOW.plus_ms(-ms), histogram.clone())));
                }
                tsdb.append(OrgId(number), &batch.batch(), NOW).expect("stored");
            }
        };
        org(1, i64::MAX);
        org(2, 600);
        if sealed {
            tsdb.seal(NOW).expect("sealed");
        }
        let scope = Scope { min_time: Some(NOW.plus_ms(-600)), ..Scope::default() };
        let window = tsdb.snapshot(&Access { org: OrgId(1), scope });
        let alone = tsdb.snapshot(&Access::whole(OrgId(2)));
        let at = |ms: i64| NOW.plus_ms(-ms);
        for (from, to, expected) in
            [(at(700), at(300), 1), (at(550), at(300), 1), (at(950), at(120), 2), (at(700), at(0), 4)]
        {
            let range = TimeRange::new(from, to);
            let all = |snapshot: &Snapshot| {
                let filter = MetricFilter::default();
                let selected =
                    snapshot.select(&[], range).into_iter().map(|one| one.labels).collect::<Vec<_>>();
                let listed = snapshot.series(&[], range, 9).items;
                assert_eq!(selected, listed);
                let values = snapshot.label_values("job", &[], range, 9);
                let summaries = snapshot.label_summaries(&[], range, 9);
                let metrics = snapshot.metrics(&filter, range, 9);
                (listed, texts(&values), format!("{summaries:?}"), format!("{metrics:?}"))
            };
            assert_eq!(all(&window), all(&alone), "{from:?} {to:?}, sealed: {sealed}");
            assert_eq!(all(&window).0.len(), expected, "{from:?} {to:?}, sealed: {sealed}");
        }
        let counted = alone.cardinality(9);
        assert_eq!(window.cardinality(9), Cardinality { oldest: None, newest: None, ..counted });
    }
}
