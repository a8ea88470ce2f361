//! The property of the subquery cache: for any writes (late or not), deletions and seals between
//! queries, and for any caller, a cached evaluation equals a new one to the bit, including
//! annotations and errors.

use std::sync::Arc;

use promlet::model::{
    Access, BatchBuilder, BucketSpan, CounterReset, Histogram, HistogramCounts, HistogramShape, Labels,
    Matcher, OrgId, Sample, Scope, Steps, TimeRange, Timestamp, stale_nan,
};
use promlet::promql::syntax::{Caps, Features, parse};
use promlet::promql::{
    Budget, CacheUsage, HistogramPoint, Options, Query, QueryError, QueryResult, RangeCache, Value, run,
};
use promlet::tsdb::Tsdb;
use proptest::prelude::*;

use super::data::in_folder;

const ORGS: [OrgId; 2] = [OrgId(1), OrgId(2)];
const NAMES: [&str; 4] = ["n_total", "g", "b_bucket", "h"];
const BOUNDS: [&str; 4] = ["0.5", "2", "8", "+Inf"];

const TEXTS: [&str; 34] = [
    "max_over_time(sum by (job) (rate(n_total[2m]))[5m:1m])",
    "sum(avg_over_time(sum by (i) (g)[3m:1m]))",
    "sum(sum_over_time(avg by (i, job) ({job=~\".\"})[3m:1m]))",
    "avg_over_time(g[3m:30s])",
    "rate(sum by (job) (n_total)[4m:1m])",
    "deriv(sum(n_total)[4m:30s])",
    "quantile_over_time(0.3, topk(2, g)[4m:30s])",
    "changes(limitk(2, {job=\"a\"})[3m:30s])",
    "stddev_over_time((g - ignoring(x) n_total)[4m:1m])",
    "last_over_time((g or n_total)[3m:30s])",
    "count_over_time((g > 0 unless n_total)[3m:30s])",
    "max_over_time(avg_over_time(g[2m:30s])[5m:1m])",
    "sum_over_time(max_over_time(sum by (i) (g)[2m:30s])[5m:1m] offset 1m)",
    "sum_over_time(rate(g[2m])[4m:1m])",
    "max_over_time(g[3m:30s] @ 600)",
    "max_over_time(g[3m:30s] offset 1m)",
    "sum by (i) (g)[3m:30s]",
    "absent_over_time(g{i=\"3\"}[3m:30s])",
    "min_over_time(sum(g @ 400)[3m:1m])",
    "sum_over_time((g offset -1m)[3m:1m])",
    "sum_over_time(vector(time())[3m:30s])",
    "max_over_time(timestamp(g)[3m:30s])",
    "count_over_time(count_values(\"v\", g)[3m:1m])",
    "max_over_time((g @ end())[3m:30s])",
    "sum_over_time(rate(g[step() + 1m])[3m:1m])",
    "sum_over_time(label_replace(g, \"x\", \"$1\", \"i\", \"(.*)\")[3m:30s])",
    "max_over_time(histogram_quantile(0.9, sum by (le) (rate(b_bucket[2m])))[4m:1m])",
    "max_over_time(histogram_quantile(0.9, b_bucket)[4m:1m])",
    "sum_over_time(sum(h)[3m:1m])",
    "last_over_time(sum by (job) (rate(h[2m]))[4m:1m])",
    "rate(sum(h)[4m:1m])",
    "histogram_count(avg_over_time({i=\"1\"}[3m:1m]))",
    "max_over_time(histogram_quantile(0.5, rate(h[2m]))[4m:1m])",
    "g + ignoring(x) group_left () max_over_time(sum(g)[3m:30s])",
];

/// A change of the store, or a query.
#[derive(Clone, Debug)]
enum StoreAction {
    Write {
        org: usize,
        name: usize,
        i: usize,
        at_s: i64,
        value: f64,
    },
    /// A scrape: one sample for every series of both organisations, all at one time.
    Scrape {
        at_s: i64,
    },
    Delete {
        org: usize,
        name: usize,
        job: bool,
        from_s: i64,
        for_s: i64,
    },
    Seal,
    Ask {
        org: usize,
        text: usize,
        at_s: i64,
        steps: i64,
        floor_s: Option<i64>,
        job: bool,
    },
}

fn actions() -> impl Strategy<Value = StoreAction> {
    let value = prop_oneof![
        4 => (-100_i32..100).prop_map(|n| f64::from(n) * 0.1),
        1 => Just(f64::NAN),
        1 => Just(stale_nan()),
        1 => Just(f64::INFINITY),
        1 => Just(-0.0),
        1 => Just(1e16),
    ];
    let floor = prop::option::weighted(0.1, 0_i64..1_000);
    prop_oneof![
        3 => (0_usize..2, 0..NAMES.len(), 0_usize..4, 0_i64..1_200, value)
            .prop_map(|(org, name, i, at_s, value)| StoreAction::Write { org, name, i, at_s, value }),
        4 => (0_i64..80).prop_map(|n| StoreAction::Scrape { at_s: n * 15 }),
        1 => (0_usize..2, 0..NAMES.len(), any::<bool>(), 0_i64..1_200, 0_i64..300)
            .prop_map(|(org, name, job, from_s, for_s)| StoreAction::Delete { org, name, job, from_s, for_s }),
        1 => Just(StoreAction::Seal),
        14 => (0_usize..2, 0..TEXTS.len(), 10_i64..110, prop_oneof![3 => Just(0), 1 => 1_i64..8], floor, prop::bool::weighted(0.1))
            .prop_map(|(org, text, at, steps, floor_s, job)| StoreAction::Ask { org, text, at_s: at * 10, steps, floor_s, job }),
    ]
}

fn histogram(count: f64) -> Histogram {
    let spans = vec![BucketSpan { offset: 0, length: 2 }];
    let shape = HistogramShape::new(0, 0.25, Vec::new(), spans, Vec::new()).expect("a shape");
    let buckets = vec![count, count / 2.0];
    let counts = HistogramCounts::Float { count: count * 1.5, zero: 0.0, buckets };
    Histogram::new(Arc::new(shape), CounterReset::Unknown, count * 3.0, counts).expect("a histogram")
}

fn write(store: &Tsdb, org: usize, name: usize, i: usize, at_s: i64, value: f64) {
    let mut batch = BatchBuilder::default();
    let (number, job) = (i.to_string(), if i.is_multiple_of(2) { "a" } else { "b" });
    let mut pairs = vec![("__name__", NAMES[name]), ("job", job), ("i", &*number)];
    if NAMES[name] == "b_bucket" {
        pairs.push(("le", BOUNDS[i]));
    }
    let (labels, at) = (Labels::from_pairs(pairs), Timestamp::from_s(at_s));
    let native = NAMES[name] == "h" && value.is_finite();
    batch.series(&labels, (!native).then_some(Sample { at, value }));
    batch.histograms(native.then(|| (at, histogram(value.abs()))));
    store.append(ORGS[org], &batch.batch(), Timestamp::from_s(100_000)).expect("stored");
}

/// Renders a result with the bits of its values.
fn render(answer: &Result<QueryResult, QueryError>) -> String {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return format!("{error:?}"),
    };
    let native = |point: &HistogramPoint| format!("{:?} {:?}", point.at, point.value);
    let value = match &answer.value {
        Value::Vector(all) => {
            let of = all.iter().map(|one| {
                format!("{} {:?} {} {:?}", one.labels, one.at, one.value.to_bits(), one.histogram)
            });
            of.collect::<Vec<_>>().join("\n")
        }
        Value::Matrix(all) => {
            let of = all.iter().map(|one| {
                let floats: Vec<_> = one.samples.iter().map(|s| (s.at, s.value.to_bits())).collect();
                let natives: Vec<_> = one.histograms.iter().map(native).collect();
                format!("{} {floats:?} {natives:?}", one.labels)
            });
            of.collect::<Vec<_>>().join("\n")
        }
        other => format!("{other:?}"),
    };
    format!("{value}\n{:?}", answer.annotations)
}

fn parsed_query(text: &str, at_s: i64, steps: i64) -> Query {
    let caps = Caps { features: Features::ALL, ..Caps::default() };
    let expr = parse(text, &caps).expect("parses").expr;
    let end = Timestamp::from_s(at_s + steps * 30);
    let steps_of = Steps::new(Timestamp::from_s(at_s), end, 30_000).expect("a grid");
    Query { expr: expr.into(), text: text.into(), steps: steps_of, instant: steps == 0 }
}

fn run_actions(store: &Tsdb, actions: &[StoreAction], texts: &[usize]) -> Result<CacheUsage, TestCaseError> {
    let (cache, options, budget) = (RangeCache::new(1 << 20), Options::default(), Budget::default());
    let mut scraped = 0.0;
    for action in actions {
        match *action {
            StoreAction::Write { org, name, i, at_s, value } => write(store, org, name, i, at_s, value),
            StoreAction::Scrape { at_s } => {
                for series in 0..NAMES.len() * 4 {
                    scraped += 0.1;
                    for org in 0..ORGS.len() {
                        let value = scraped * (series + org + 1) as f64;
                        write(store, org, series / 4, series % 4, at_s, value);
                    }
                }
            }
            StoreAction::Delete { org, name, job, from_s, for_s } => {
                let mut matchers = vec![Matcher::equal("__name__", NAMES[name])];
                matchers.extend(job.then(|| Matcher::equal("job", "a")));
                let range = TimeRange::new(Timestamp::from_s(from_s), Timestamp::from_s(from_s + for_s));
                store.delete(ORGS[org], &[matchers], range, Timestamp::from_s(100_000)).expect("deleted");
            }
            StoreAction::Seal => {
                store.seal(Timestamp::from_s(1_000_000)).expect("sealed");
            }
            StoreAction::Ask { org, text, at_s, steps, floor_s, job } => {
                let scope = Scope {
                    matchers: job.then(|| Matcher::equal("job", "b")).into_iter().collect(),
                    names: Vec::new(),
                    min_time: floor_s.map(Timestamp::from_s),
                };
                let access = Access { org: ORGS[org], scope };
                let snapshot = store.snapshot(&access);
                let query = parsed_query(TEXTS[texts[text % texts.len()]], at_s, steps);
                let found = cache.run(&query, &access, &snapshot, &options, &budget);
                let expected = run(&query, &snapshot, &options, &budget);
                prop_assert_eq!(
                    render(&found),
                    render(&expected),
                    "{} at {}, {} steps",
                    query.text,
                    at_s,
                    steps
                );
            }
        }
    }
    Ok(cache.usage())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_cached_subquery_equals_an_evaluation(
        actions in prop::collection::vec(actions(), 1..120),
        // Few expressions, so that queries repeat.
        texts in prop::collection::vec(0..TEXTS.len(), 1..4),
    ) {
        let seals_not = |action: &StoreAction| !matches!(action, StoreAction::Seal);
        let actions: Vec<StoreAction> = actions.into_iter().filter(seals_not).collect();
        run_actions(&Tsdb::scaffold(), &actions, &texts)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 15, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_cached_subquery_stays_valid_when_its_samples_are_sealed(
        actions in prop::collection::vec(actions(), 20..120),
        texts in prop::collection::vec(0..TEXTS.len(), 1..4),
    ) {
        in_folder(|store| run_actions(store, &actions, &texts))?;
    }
}

/// Checks that the property tests above do exercise hits, extensions and misses: they would also
/// hold if nothing were ever cached.
#[test]
fn the_property_tests_meet_every_cache_outcome() {
    let mut actions = Vec::new();
    for n in 0..60 {
        actions.push(StoreAction::Scrape { at_s: n * 15 });
        // The query of a panel, evaluated twice between two scrapes.
        for at_s in [n * 15, n * 15 + 7] {
            actions.push(StoreAction::Ask { org: 0, text: 0, at_s, steps: 0, floor_s: None, job: false });
        }
    }
    for (text, extends) in [(0, true), (1, true), (3, true), (22, false), (24, false)] {
        let uses = run_actions(&Tsdb::scaffold(), &actions, &[text]).expect("the law holds").subqueries;
        let name = TEXTS[text];
        if text == 24 {
            assert_eq!(uses, promlet::promql::CacheOutcomes::default(), "{name}");
            continue;
        }
        assert!(uses.hits >= 50, "{name}: {uses:?}");
        assert_eq!((uses.extended > 10, uses.misses > 10), (extends, !extends), "{name}: {uses:?}");
    }
}
