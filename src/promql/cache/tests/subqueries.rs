//! The subqueries that are cached, the callers that share them, and their lifetime. `tests/kernels`
//! compares them with evaluations.

use super::*;
use crate::promql::QueryProgress;

const PEAK: &str = "max_over_time(sum by (job) (rate(n_total[2m]))[10m:1m])";

fn at(text: &str, second: i64) -> Query {
    Query { instant: true, ..ask(text, (second, second, 60)) }
}

/// Like [`check`], with the default options.
fn read(cache: &RangeCache, store: &Tsdb, access: &Access, query: &Query) -> u64 {
    check(cache, store, access, query, &Options::default())
}

#[test]
fn an_instant_query_computes_the_steps_of_its_subquery_that_are_new() {
    let (cache, store, access) = (RangeCache::new(CACHE_BYTES), sample_store(), unrestricted());
    let read = |second| read(&cache, &store, &access, &at(PEAK, second));
    let all = read(900);
    assert!(all > 4 * 40, "{all}");
    assert_eq!((read(900), read(959)), (0, 0), "no new step");
    // One step more of four series reads one window each.
    let one = read(970);
    assert!(one > 0 && one <= 4 * 9, "{one}");
    // A sample after the last step changes none of them; a sample before it does.
    write(&store, "n_total", 0, [(1_505, 1.0)]);
    assert_eq!(read(975), 0);
    write(&store, "n_total", 3, [(959, 1.0)]);
    let again = read(975);
    assert!(again > 0 && again <= 4 * 9, "{again}");
    let uses = cache.usage();
    assert_eq!(
        (uses.subqueries, uses.ranges),
        (CacheOutcomes { hits: 3, extended: 2, misses: 1 }, CacheOutcomes::default())
    );
    assert_eq!(uses.entries, 1);
}

#[test]
fn a_cached_subquery_counts_as_read_in_the_progress() {
    let (cache, store, access) = (RangeCache::new(CACHE_BYTES), sample_store(), unrestricted());
    let query =
        at("max_over_time(sum by (job) (rate(n_total[2m]) / n_total)[10m:1m]) + sum by (job) (n_total)", 900);
    for hits in [0, 1] {
        let progress = Arc::new(QueryProgress::default());
        let budget = Budget { progress: Some(Arc::clone(&progress)), ..Budget::default() };
        let snapshot = store.snapshot(&access);
        cache.run(&query, &access, &snapshot, &Options::default(), &budget).expect("answers");
        assert_eq!((cache.usage().subqueries.hits, progress.share(3)), (hits, 1.0));
    }
}

#[test]
fn a_range_query_that_grows_at_its_end_computes_one_step_of_its_subquery() {
    let (cache, store, access) = (RangeCache::new(CACHE_BYTES), sample_store(), unrestricted());
    let read = |range| read(&cache, &store, &access, &ask(PEAK, range));
    read((900, 1_200, 60));
    let one = read((900, 1_260, 60));
    assert!(one > 0 && one <= 4 * 9, "{one}");
    let uses = cache.usage();
    assert_eq!(uses.ranges, CacheOutcomes { hits: 0, extended: 1, misses: 1 });
    assert_eq!(uses.subqueries, CacheOutcomes { hits: 0, extended: 1, misses: 1 });
}

#[test]
fn subqueries_of_different_ranges_and_nested_ones_have_their_own_entries() {
    let (cache, store, access) = (RangeCache::new(CACHE_BYTES), sample_store(), unrestricted());
    let (short, long) = ("sum_over_time(sum(n_total)[2m:30s])", "sum_over_time(sum(n_total)[9m:30s])");
    let inside = "max_over_time(sum_over_time(sum(n_total)[2m:30s])[6m:1m])";
    for text in [short, long, short, long, inside, inside] {
        read(&cache, &store, &access, &at(text, 900));
    }
    // The nested query evaluates the inner range at six steps in one request, which its own second
    // run finds. The short query had cached the range at the last step only.
    let uses = cache.usage();
    assert_eq!((uses.subqueries, uses.entries), (CacheOutcomes { hits: 3, extended: 0, misses: 4 }, 3));
}

#[test]
fn callers_with_different_scopes_do_not_share_entries() {
    let (cache, store) = (RangeCache::new(CACHE_BYTES), sample_store());
    let scoped =
        |matchers, min_time| Access { org: ORG, scope: Scope { matchers, min_time, ..Scope::default() } };
    let callers = [
        unrestricted(),
        scoped(vec![Matcher::equal("job", "a")], None),
        scoped(vec![Matcher::equal("job", "b")], None),
        scoped(Vec::new(), Some(Timestamp::from_s(600))),
        Access::whole(OrgId(8)),
    ];
    for (n, access) in callers.iter().enumerate() {
        let before = cache.usage().subqueries;
        read(&cache, &store, access, &at(PEAK, 900));
        assert_eq!(cache.usage().subqueries.hits, before.hits, "caller {n}");
    }
    // The same caller finds its entry. An organisation without a store has nothing to cache.
    read(&cache, &store, &callers[3], &at(PEAK, 900));
    assert_eq!((cache.usage().subqueries.hits, cache.usage().entries), (1, 3));
}

#[test]
fn annotations_own_ranges_delayed_names_and_types_prevent_caching() {
    let (cache, store, access) = (RangeCache::new(CACHE_BYTES), sample_store(), unrestricted());
    write(&store, "gauge", 0, (0..=100).map(|n| (n * 15, 1.0)));
    for text in [
        "max_over_time(rate(gauge[2m])[5m:1m])",
        "max_over_time((n_total @ end())[5m:1m])",
        "max_over_time(rate(n_total[step() + 1m])[5m:1m])",
    ] {
        for _ in 0..2 {
            read(&cache, &store, &access, &at(text, 900));
            assert_eq!(cache.usage().entries, 0, "{text}");
        }
    }
    let delayed = Options { delayed_name_removal: true, ..Options::default() };
    check(&cache, &store, &access, &at(PEAK, 900), &delayed);
    assert_eq!(cache.usage().entries, 0);
    let mut batch = BatchBuilder::default();
    let typed = Labels::from_pairs([("__name__", "t"), ("__type__", "gauge")]);
    batch.series(&typed, [Sample { at: Timestamp::from_s(900), value: 1.0 }]);
    store.append(ORG, &batch.batch(), Timestamp::from_s(100_000)).expect("stored");
    read(&cache, &store, &access, &at(PEAK, 900));
    assert_eq!(cache.usage().entries, 0);
}

#[test]
fn an_annotation_at_a_new_step_causes_a_full_evaluation() {
    let (cache, store, access) = (RangeCache::new(CACHE_BYTES), Tsdb::scaffold(), unrestricted());
    let bucket = |le: &str, samples: &[(i64, f64)]| {
        let mut batch = BatchBuilder::default();
        let of = |(at_s, value): &(i64, f64)| Sample { at: Timestamp::from_s(*at_s), value: *value };
        let labels = Labels::from_pairs([("__name__", "b_bucket"), ("le", le)]);
        batch.series(&labels, samples.iter().map(of));
        store.append(ORG, &batch.batch(), Timestamp::from_s(100_000)).expect("stored");
    };
    // The upper bucket counts less than the lower one from the sixth minute on.
    bucket("1", &[(60, 4.0), (120, 4.0), (180, 4.0), (360, 9.0), (420, 9.0)]);
    bucket("+Inf", &[(60, 5.0), (120, 5.0), (180, 5.0), (360, 5.0), (420, 5.0)]);
    let text = "max_over_time(histogram_quantile(0.9, b_bucket)[5m:1m])";
    for second in [240, 300, 360, 420, 430] {
        read(&cache, &store, &access, &at(text, second));
    }
    assert_eq!(cache.usage().subqueries, CacheOutcomes { hits: 0, extended: 1, misses: 4 });
}

#[test]
fn many_subqueries_stay_within_the_bytes_of_an_organisation() {
    let (cache, store, access) = (RangeCache::new(1 << 16), sample_store(), unrestricted());
    for minutes in 1..200 {
        read(&cache, &store, &access, &at(&format!("sum_over_time(n_total[{minutes}m:15s])"), 1_500));
        assert!(cache.usage().bytes <= 1 << 15, "{:?}", cache.usage());
    }
    let uses = cache.usage();
    assert!(uses.evicted > 0 && uses.entries > 1, "{uses:?}");
    assert_eq!(uses.subqueries.misses, 199);
}
