//! Cached results compared with evaluations, and the entries that the cache stores and evicts.

mod subqueries;

use proptest::prelude::*;

use super::*;
use crate::model::effort::rounds;
use crate::model::{BatchBuilder, Labels, Sample, Scope};
use crate::promql::syntax::{Caps, Features, parse};
use crate::promql::{Limits, run};
use crate::tsdb::Tsdb;

const ORG: OrgId = OrgId(7);
const CACHE_BYTES: u64 = 1 << 20;

fn labels(name: &str, i: usize) -> Labels {
    let job = if i.is_multiple_of(2) { "a" } else { "b" };
    Labels::from_pairs([("__name__", name), ("job", job), ("i", i.to_string().as_str())])
}

fn write(store: &Tsdb, name: &str, i: usize, samples: impl IntoIterator<Item = (i64, f64)>) {
    let mut batch = BatchBuilder::default();
    let samples = samples.into_iter().map(|(at_s, value)| Sample { at: Timestamp::from_s(at_s), value });
    batch.series(&labels(name, i), samples);
    store.append(ORG, &batch.batch(), Timestamp::from_s(100_000)).expect("stored");
}

fn ask(text: &str, (start_s, end_s, step_s): (i64, i64, i64)) -> Query {
    let caps = Caps { features: Features::ALL, ..Caps::default() };
    let expr = parse(text, &caps).expect("parses").expr;
    let steps = Steps::new(Timestamp::from_s(start_s), Timestamp::from_s(end_s), step_s * 1_000);
    Query { expr: expr.into(), text: text.into(), steps: steps.expect("a grid"), instant: false }
}

/// Renders a result with the bits of its samples.
fn render(answer: &Result<QueryResult, QueryError>) -> String {
    match answer {
        Err(error) => format!("{error:?}"),
        Ok(answer) => {
            let Value::Matrix(series) = &answer.value else { return format!("{:?}", answer.value) };
            let bits = |one: &MatrixSeries| {
                let points: Vec<(i64, u64)> =
                    one.samples.iter().map(|sample| (sample.at.as_ms(), sample.value.to_bits())).collect();
                format!("{} {points:?}", one.labels)
            };
            let all: Vec<String> = series.iter().map(bits).collect();
            format!("{all:?} {:?}", answer.annotations)
        }
    }
}

/// Evaluates a query with and without the cache, and compares the results to the bit. Returns how
/// many samples the evaluation with the cache read.
fn check(cache: &RangeCache, store: &Tsdb, access: &Access, query: &Query, options: &Options) -> u64 {
    let snapshot = store.snapshot(access);
    let budget = Budget::default();
    let found = cache.run(query, access, &snapshot, options, &budget);
    let expected = run(query, &snapshot, options, &budget);
    assert_eq!(render(&found), render(&expected), "{} at {:?}", query.text, query.steps);
    found.map_or(0, |answer| answer.stats.samples)
}

fn unrestricted() -> Access {
    Access::whole(ORG)
}

fn sample_store() -> Tsdb {
    let store = Tsdb::scaffold();
    for i in 0..4 {
        write(&store, "n_total", i, (0..=100).map(|n| (n * 15, (n * (i as i64 + 1)) as f64 * 0.1)));
    }
    store
}

#[test]
fn a_repeated_query_reads_nothing_and_a_later_end_reads_the_new_steps_only() {
    let (cache, store, options) = (RangeCache::new(CACHE_BYTES), sample_store(), Options::default());
    let text = "sum by (job) (rate(n_total[2m]))";
    let read = |range| check(&cache, &store, &unrestricted(), &ask(text, range), &options);
    let all = read((300, 1_500, 60));
    assert!(all > 300, "{all}");
    assert_eq!(read((300, 1_500, 60)), 0, "nothing is read");
    assert_eq!(read((600, 1_200, 60)), 0, "a part of it");
    assert_eq!(read((300, 1_500, 60)), 0, "the part did not replace the whole");
    // Two new steps: their two windows and the samples between.
    let tail = read((360, 1_620, 60));
    assert!(tail > 0 && tail <= 4 * 12, "{tail}");
    // The samples are older than all steps at first; then one arrives that only the last steps
    // read.
    for i in 0..4 {
        write(&store, "n_total", i, [(1_560, 99.0)]);
    }
    let again = read((360, 1_620, 60));
    assert!(again > 0 && again <= 4 * 12, "{again}");
    let uses = cache.usage();
    assert_eq!((uses.ranges, uses.entries), (CacheOutcomes { hits: 3, extended: 2, misses: 1 }, 1));
}

#[test]
fn an_evaluation_that_times_out_is_counted_neither_as_a_hit_nor_as_a_miss() {
    let (cache, store, options) = (RangeCache::new(CACHE_BYTES), sample_store(), Options::default());
    let (access, query) = (unrestricted(), ask("n_total", (300, 1_500, 60)));
    let expired = || true;
    let budget = Budget { expired: Some(&expired), ..Budget::default() };
    let ended = cache.run(&query, &access, &store.snapshot(&access), &options, &budget);
    assert_eq!(ended.expect_err("ended"), QueryError::Timeout);
    assert_eq!(cache.usage().ranges, CacheOutcomes::default());
    check(&cache, &store, &access, &query, &options);
    assert_eq!(cache.usage().ranges, CacheOutcomes { misses: 1, ..CacheOutcomes::default() });
}

#[test]
fn a_result_of_abandoned_reads_is_not_cached() {
    let (cache, store, options) = (RangeCache::new(CACHE_BYTES), sample_store(), Options::default());
    let (access, query) = (unrestricted(), ask("n_total", (300, 1_500, 60)));
    let busy = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let snapshot = store.snapshot(&access).without_waiting(busy);
    cache.run(&query, &access, &snapshot, &options, &Budget::default()).expect("an answer");
    assert_eq!(cache.usage().entries, 0);
}

#[test]
fn a_result_is_computed_again_after_a_change_that_may_affect_it() {
    let text = "n_total";
    let range = (300, 1_500, 60);
    let (store, cache) = (sample_store(), RangeCache::new(CACHE_BYTES));
    let access = unrestricted();
    let read = |access: &Access, options: &Options| check(&cache, &store, access, &ask(text, range), options);
    let options = Options::default();
    read(&access, &options);
    assert_eq!(read(&access, &options), 0);
    // A late sample, older than all that the query reads.
    write(&store, "late", 0, [(5, 1.0)]);
    assert!(read(&access, &options) > 0);
    // A new series with a sample near the end.
    write(&store, "n_total", 9, [(1_499, 1.0)]);
    assert!(read(&access, &options) > 0);
    // A deletion: its time range counts for all series of the organisation.
    let named = |name: &str| vec![vec![Matcher::equal("__name__", name)]];
    let at = Timestamp::from_s;
    store.delete(ORG, &named("n_total"), TimeRange::new(at(600), at(700)), at(2_000)).expect("deleted");
    assert!(read(&access, &options) > 0);
    assert_eq!(read(&access, &options), 0);
    // Another lookback, other limits, and another scope.
    assert!(read(&access, &Options { lookback_ms: 60_000, ..options.clone() }) > 0);
    let limits = Limits { samples_max: 10, ..Limits::default() };
    let refused = cache.run(
        &ask(text, range),
        &access,
        &store.snapshot(&access),
        &Options { limits, ..options.clone() },
        &Budget::default(),
    );
    assert_eq!(refused.expect_err("too many"), QueryError::TooManySamples { allowed: 10 });
    let scoped =
        |matchers, min_time| Access { org: ORG, scope: Scope { matchers, min_time, ..Scope::default() } };
    assert!(read(&scoped(vec![Matcher::equal("job", "a")], None), &options) > 0);
    assert_eq!(read(&access, &options), 0);
    assert!(read(&scoped(Vec::new(), Some(at(400))), &options) > 0, "samples are hidden");
    assert_eq!(read(&scoped(Vec::new(), Some(at(400))), &options), 0);
    assert!(read(&scoped(Vec::new(), Some(at(500))), &options) > 0);
}

#[test]
fn a_floor_below_all_read_samples_keeps_a_result_valid() {
    let (store, cache, options) = (sample_store(), RangeCache::new(CACHE_BYTES), Options::default());
    let from = |second| Access {
        org: ORG,
        scope: Scope { min_time: Some(Timestamp::from_s(second)), ..Scope::default() },
    };
    let query = ask("sum(rate(n_total[1m]))", (300, 600, 60));
    assert!(check(&cache, &store, &from(100), &query, &options) > 0);
    assert_eq!(check(&cache, &store, &from(239), &query, &options), 0);
    assert!(check(&cache, &store, &from(241), &query, &options) > 0);
}

#[test]
fn entries_stay_within_the_bytes_of_an_organisation() {
    let (store, options) = (sample_store(), Options::default());
    let one = {
        let cache = RangeCache::new(CACHE_BYTES);
        check(&cache, &store, &unrestricted(), &ask("n_total", (300, 1_500, 60)), &options);
        cache.usage().bytes
    };
    // One entry may have an eighth of all bytes. This one just fits, and four fill the share of an
    // organisation.
    let cache = RangeCache::new(one * 8);
    for lookback_ms in 1..20 {
        let options = Options { lookback_ms: lookback_ms + 300_000, ..Options::default() };
        check(&cache, &store, &unrestricted(), &ask("n_total", (300, 1_500, 60)), &options);
        assert!(cache.usage().bytes <= one * 4, "{:?}", cache.usage());
    }
    assert_eq!((cache.usage().entries, cache.usage().evicted), (4, 15));
    for (cache, why) in [(RangeCache::new(0), "switched off"), (RangeCache::new(one * 7), "too large")] {
        check(&cache, &store, &unrestricted(), &ask("n_total", (300, 1_500, 60)), &options);
        assert_eq!(cache.usage().entries, 0, "{why}");
    }
}

#[test]
fn results_with_annotations_own_ranges_or_types_and_instant_queries_are_not_cached() {
    let (store, cache, options) = (sample_store(), RangeCache::new(CACHE_BYTES), Options::default());
    write(&store, "gauge", 0, (0..=100).map(|n| (n * 15, 1.0)));
    let range = (300, 1_500, 60);
    for text in ["rate(gauge[2m])", "n_total @ end()", "n_total > start()", "n_total + range()"] {
        if parse(text, &Caps::default()).is_ok() {
            check(&cache, &store, &unrestricted(), &ask(text, range), &options);
            assert_eq!(cache.usage().entries, 0, "{text}");
        }
    }
    let moment = Query { instant: true, ..ask("n_total", (300, 300, 60)) };
    check(&cache, &store, &unrestricted(), &moment, &options);
    assert_eq!(cache.usage().entries, 0);
    check(&cache, &store, &unrestricted(), &ask("n_total", range), &options);
    assert_eq!(cache.usage().entries, 1);
    let mut batch = BatchBuilder::default();
    let typed = Labels::from_pairs([("__name__", "t"), ("__type__", "gauge")]);
    batch.series(&typed, [Sample { at: Timestamp::from_s(900), value: 1.0 }]);
    store.append(ORG, &batch.batch(), Timestamp::from_s(100_000)).expect("stored");
    let before = cache.usage();
    check(&cache, &store, &unrestricted(), &ask("n_total", range), &options);
    check(&cache, &store, &unrestricted(), &ask("sum(n_total)", range), &options);
    let after = cache.usage();
    assert_eq!(
        (after.entries, after.ranges.misses, after.ranges.extended),
        (1, before.ranges.misses + 2, before.ranges.extended)
    );
}

#[test]
fn only_plans_whose_rows_do_not_depend_on_the_range_are_computed_in_parts() {
    let parts = |text: &str| {
        let query = ask(text, (300, 600, 60));
        has_parts(
            &plan::build(&query, &Options::default(), &Budget::default()).expect("a plan"),
            &Options::default(),
        )
    };
    for text in [
        "n_total",
        "sum by (job) (rate(n_total[5m]))",
        "sum(rate(n_total[5m])) / sum(rate(m_count[5m]))",
        "histogram_quantile(0.9, sum by (le) (rate(m_bucket[5m])))",
        "count({job=\"a\"})",
        "count(sum by (job) (n_total))",
        "max_over_time(n_total[5m:1m])",
        "topk(3, n_total > 2)",
        "time() + scalar(sum(n_total))",
        "clamp_min(n_total offset 5m, 1) and n_total @ 5",
        "absent(n_total{x=\"y\"})",
        "avg_over_time(sum(n_total)[5m:1m])",
        // The rows of a subquery are sorted by labels, for every expression.
        "sum(max_over_time(sum by (job) (n_total)[5m:1m]))",
    ] {
        assert!(parts(text), "{text}");
    }
    for text in [
        // The order of groups, and so the order of additions, depends on the range.
        "sum(sum by (job) (n_total))",
        "sum(n_total / n_total)",
        "sum(rate({job=\"a\"}[5m]))",
        "sum(-{job=\"a\"})",
        // Infos about a name, and errors about equal labels, concern the whole range.
        "rate(n[5m])",
        "max_over_time({job=\"a\"}[5m])",
        "label_replace(n_total, \"x\", \"$1\", \"i\", \"(.*)\")",
        "count_values(\"x\", n_total)",
    ] {
        assert!(!parts(text), "{text}");
    }
}

#[test]
fn the_reach_of_a_step_covers_lookback_ranges_and_offsets() {
    let reach = |text: &str| {
        let query = ask(text, (1_000, 2_000, 60));
        let reach = Reach::of(
            &plan::build(&query, &Options::default(), &Budget::default()).expect("a plan"),
            &Options::default(),
        );
        let s = |ms: Option<i64>| ms.map(|ms| ms / 1_000);
        (s(reach.oldest(1_000_000)), s(reach.newest(1_000_000)))
    };
    let cases = [
        ("n", (Some(700), Some(1_000))),
        ("n offset 1m", (Some(640), Some(940))),
        ("n offset -1m", (Some(760), Some(1_060))),
        ("rate(n[10m])", (Some(400), Some(1_000))),
        ("rate(n[10m] offset -1h) + n", (Some(700), Some(4_600))),
        ("max_over_time(rate(n[1m])[10m:1m] offset 1m)", (Some(280), Some(940))),
        ("max_over_time(n[10m:1m] @ 500)", (Some(-400), Some(500))),
        ("n + n @ 5000", (Some(700), Some(5_000))),
        ("scalar(n @ 100) + vector(1)", (Some(-200), Some(100))),
        ("time() + vector(1)", (None, None)),
    ];
    for (text, expected) in cases {
        assert_eq!(reach(text), expected, "{text}");
    }
}

/// A query that runs during writes may see a part of them. A query after the writes sees all of
/// them, even if results were cached meanwhile.
#[test]
fn samples_written_during_an_evaluation_are_in_the_next_result() {
    let (store, cache, options) = (sample_store(), RangeCache::new(CACHE_BYTES), Options::default());
    let query = ask("sum(n_total)", (300, 1_500, 60));
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            for n in 0..300_i64 {
                let i = 10 + usize::from(n % 2 == 0);
                write(&store, "n_total", i, [(300 + (n * 37) % 1_200, n as f64)]);
            }
        });
        while !writer.is_finished() {
            let snapshot = store.snapshot(&unrestricted());
            cache.run(&query, &unrestricted(), &snapshot, &options, &Budget::default()).expect("answers");
        }
    });
    check(&cache, &store, &unrestricted(), &query, &options);
    assert_eq!(check(&cache, &store, &unrestricted(), &query, &options), 0);
}

/// A change of the store, or a query.
#[derive(Clone, Debug)]
enum StoreAction {
    Write {
        name: usize,
        i: usize,
        at_s: i64,
        value: f64,
    },
    /// A scrape: one sample for every series, all at one time.
    Scrape {
        at_s: i64,
    },
    Delete {
        name: usize,
        job: bool,
        from_s: i64,
        for_s: i64,
    },
    Ask {
        text: usize,
        start_s: i64,
        steps: i64,
        step: usize,
        floor_s: Option<i64>,
        job: bool,
    },
}

const NAMES: [&str; 3] = ["n_total", "m_bucket", "g"];
const TEXTS: [&str; 28] = [
    "n_total",
    "{job=\"a\"}",
    "rate(n_total[2m])",
    "rate(g[2m])",
    "sum by (job) (rate(n_total[2m]))",
    "sum(sum by (i) (g))",
    "sum(avg by (i) ({i=~\".+\"}))",
    "avg({job=\"b\"})",
    "topk(2, g)",
    "limitk(2, {job=\"a\"})",
    "limit_ratio(0.5, g)",
    "quantile(0.3, g)",
    "g offset 1m",
    "g offset -1m",
    "g @ 400",
    "sum(g @ 900) + sum(n_total)",
    "max_over_time(g[3m:30s])",
    "sum_over_time({job=\"a\"}[2m])",
    "avg_over_time(sum by (i) (g)[3m:1m])",
    "n_total - ignoring(x) g",
    "n_total or g",
    "g > 0 unless n_total",
    "absent(g{i=\"3\"})",
    "absent_over_time(g[1m])",
    "scalar(g{i=\"1\"}) + time()",
    "timestamp(g)",
    "count_values(\"v\", g)",
    "g @ end()",
];

fn actions() -> impl Strategy<Value = StoreAction> {
    let value = prop_oneof![
        (-100_i32..100).prop_map(|n| f64::from(n) * 0.1),
        Just(f64::NAN),
        Just(crate::model::stale_nan()),
        Just(f64::INFINITY),
        Just(-0.0),
        Just(1e16),
    ];
    prop_oneof![
        4 => (0..NAMES.len(), 0_usize..4, 0_i64..1_200, value)
            .prop_map(|(name, i, at_s, value)| StoreAction::Write { name, i, at_s, value }),
        3 => (0_i64..80).prop_map(|n| StoreAction::Scrape { at_s: n * 15 }),
        1 => (0..NAMES.len(), any::<bool>(), 0_i64..1_200, 0_i64..300)
            .prop_map(|(name, job, from_s, for_s)| StoreAction::Delete { name, job, from_s, for_s }),
        12 => (0..TEXTS.len(), 0_i64..20, 1_i64..20, 0_usize..2, prop::option::weighted(0.2, 0_i64..1_000), prop::bool::weighted(0.1))
            .prop_map(|(text, start, steps, step, floor_s, job)| StoreAction::Ask { text, start_s: start * 60, steps, step, floor_s, job }),
    ]
}

fn run_actions(actions: Vec<StoreAction>, texts: &[usize]) -> CacheUsage {
    let (store, cache, options) = (Tsdb::scaffold(), RangeCache::new(CACHE_BYTES), Options::default());
    let mut scraped = 0.0;
    for action in actions {
        match action {
            StoreAction::Write { name, i, at_s, value } => write(&store, NAMES[name], i, [(at_s, value)]),
            StoreAction::Scrape { at_s } => {
                for (n, name) in NAMES.iter().enumerate() {
                    for i in 0..4 {
                        scraped += 0.1;
                        write(&store, name, i, [(at_s, scraped * (n + i) as f64)]);
                    }
                }
            }
            StoreAction::Delete { name, job, from_s, for_s } => {
                let mut matchers = vec![Matcher::equal("__name__", NAMES[name])];
                matchers.extend(job.then(|| Matcher::equal("job", "a")));
                let range = TimeRange::new(Timestamp::from_s(from_s), Timestamp::from_s(from_s + for_s));
                store.delete(ORG, &[matchers], range, Timestamp::from_s(100_000)).expect("deleted");
            }
            StoreAction::Ask { text, start_s, steps, step, floor_s, job } => {
                let scope = Scope {
                    matchers: job.then(|| Matcher::equal("job", "b")).into_iter().collect(),
                    names: Vec::new(),
                    min_time: floor_s.map(Timestamp::from_s),
                };
                let step_s = [60, 30][step];
                let query =
                    ask(TEXTS[texts[text % texts.len()]], (start_s, start_s + steps * step_s, step_s));
                check(&cache, &store, &Access { org: ORG, scope }, &query, &options);
            }
        }
    }
    cache.usage()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(40, 150), ..ProptestConfig::default() })]

    /// A cached result equals an evaluation after any sequence of writes, deletions and queries.
    #[test]
    fn a_cached_result_equals_an_evaluation(
        actions in prop::collection::vec(actions(), 1..120),
        // Few expressions, so that queries repeat.
        texts in prop::collection::vec(0..TEXTS.len(), 1..4),
    ) {
        run_actions(actions, &texts);
    }
}

/// Checks that the property test above does exercise hits, extensions and misses: it would also
/// hold if nothing were ever cached.
#[test]
fn the_property_test_meets_every_cache_outcome() {
    let mut actions = Vec::new();
    for n in 0..40 {
        actions.push(StoreAction::Scrape { at_s: n * 15 });
        // The panel of a dashboard, loaded twice; its end is later than all samples at first.
        for _ in 0..2 {
            actions.push(StoreAction::Ask {
                text: 0,
                start_s: 0,
                steps: 8,
                step: 0,
                floor_s: None,
                job: false,
            });
        }
    }
    for text in [4, 5] {
        let uses = run_actions(actions.clone(), &[text]).ranges;
        let name = TEXTS[text];
        assert!(uses.hits >= 40, "{name}: {uses:?}");
        assert_eq!((uses.extended > 10, uses.misses > 10), (text == 4, text == 5), "{name}: {uses:?}");
    }
}
