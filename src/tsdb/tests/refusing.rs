//! Tests that the shortcuts for refused series and for duplicates give the same responses as the
//! long way.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// The next action of a sender.
#[derive(Clone, Debug)]
enum SenderStep {
    /// Sends a request with these series, each with one of two spellings of its labels. The samples
    /// are `ago_s` seconds old.
    Send {
        series: Vec<(u8, bool)>,
        ago_s: i64,
    },
    /// Changes the limits: series, labels of one series, new series per second.
    Limit {
        series_max: u32,
        labels_max: usize,
        new_series_per_s: Option<u32>,
    },
    Wait(u32),
}

fn step() -> impl Strategy<Value = SenderStep> {
    let series = prop::collection::vec((0u8..40, any::<bool>()), 1..60);
    let limit = (0u32..30, 2usize..5, prop_oneof![2 => Just(None), 1 => (0u32..2).prop_map(Some)]);
    prop_oneof![
        6 => (series, prop_oneof![5 => Just(0i64), 1 => Just(100), 1 => Just(-10_000)])
            .prop_map(|(series, ago_s)| SenderStep::Send { series, ago_s }),
        2 => limit.prop_map(|(series_max, labels_max, new_series_per_s)| SenderStep::Limit {
            series_max,
            labels_max,
            new_series_per_s
        }),
        1 => (0u32..3_000).prop_map(SenderStep::Wait),
    ]
}

/// Builds a request. Some series have four labels, some no metric name. The second spelling has an
/// empty label, which changes nothing.
fn request(series: &[(u8, bool)], at: Timestamp) -> BatchBuilder {
    let mut batch = BatchBuilder::default();
    for (n, other) in series {
        let number = n.to_string();
        let mut pairs = vec![("job", number.as_str())];
        if n % 7 != 0 {
            pairs.push(("__name__", "up"));
        }
        if n % 5 == 0 {
            pairs.extend([("x", "1"), ("y", "2")]);
        }
        if *other {
            pairs.push(("z", ""));
        }
        batch.series_of(pairs, [Sample { at, value: 1.0 }]);
    }
    batch
}

proptest! {
    #[test]
    fn the_cache_of_refused_series_changes_no_response(steps in prop::collection::vec(step(), 1..30)) {
        let stores = [Tsdb::scaffold(), Tsdb::scaffold()];
        let mut now = NOW;
        for step in steps {
            match step {
                SenderStep::Wait(ms) => now = now.plus_ms(i64::from(ms)),
                SenderStep::Limit { series_max, labels_max, new_series_per_s } => {
                    let limits = OrgLimits {
                        series_max,
                        labels_max,
                        new_series_per_s,
                        retention: Some(Duration::from_secs(1_000)),
                        ooo_window: Some(Duration::from_secs(50)),
                        ..OrgLimits::default()
                    };
                    stores.iter().for_each(|store| store.set_limits(ORG, limits.clone()));
                }
                SenderStep::Send { series, ago_s } => {
                    let batch = request(&series, now.plus_ms(-ago_s * 1_000));
                    let [mut with, mut without] = [0, 1].map(|index: usize| {
                        let report = stores[index].append(ORG, &batch.batch(), now).expect("answered");
                        if index == 1 {
                            stores[1].stores.org_or_new(ORG).table_mut().refused.clear();
                        }
                        report
                    });
                    with.refused_by_code.sort_unstable();
                    without.refused_by_code.sort_unstable();
                    prop_assert_eq!(with, without);
                }
            }
        }
        prop_assert_eq!(content(&stores[0], ORG), content(&stores[1], ORG));
    }
}

/// A repeated request parses only the labels of the few series that its response names.
#[test]
fn labels_of_refused_series_are_parsed_once() {
    use std::sync::atomic::AtomicUsize;
    static PARSED: AtomicUsize = AtomicUsize::new(0);
    fn counting<'a>(raw: &'a [u8], pairs: &mut Vec<(&'a [u8], &'a [u8])>) -> Result<(), &'static str> {
        PARSED.fetch_add(1, Ordering::SeqCst);
        (BatchBuilder::default().batch().parse_labels)(raw, pairs)
    }
    let parsed = || PARSED.swap(0, Ordering::SeqCst);
    let tsdb = Tsdb::in_memory(options(&faults()), [0; 32]);
    tsdb.set_limits(ORG, OrgLimits { series_max: 1, ..OrgLimits::default() });
    write(&tsdb, ORG, &up("known"), &[ago(10, 1.0)]);
    for (case, code) in
        [("limit", "series_limit"), ("invalid", "missing_metric_name"), ("future", "too_far_in_future")]
    {
        let mut batch = BatchBuilder::default();
        for n in 0..1_000 {
            let mut pairs = vec![("case", case.to_owned()), ("n", n.to_string())];
            if case != "invalid" {
                pairs.push(("__name__", "up".to_owned()));
            }
            let ahead = if case == "future" { 3_600_000 } else { 0 };
            batch.series(&Labels::from_pairs(pairs), [ago(-ahead, 1.0), ago(-ahead - 1, 2.0)]);
        }
        let mut batch = batch.batch();
        batch.parse_labels = counting;
        for (round, parses) in [(0, 1_000..=1_000), (1, 0..=10), (2, 0..=10)] {
            let report = tsdb.append(ORG, &batch, NOW).expect("answered");
            assert_eq!(report.refused_by_code, [(code, 2_000)], "{case}");
            assert_eq!((report.stored, report.refused, report.refusals.len()), (0, 2_000, 10), "{case}");
            assert!(parses.contains(&parsed()), "{case}, round {round}");
        }
    }
    let usage = tsdb.stores.org_or_new(ORG).memory_bytes();
    assert!(usage >= 3_000 * 16, "the cache counts as memory of the organisation: {usage}");
}

/// A cycle of more label sets than the limit of an organisation. Its share of the memory decides.
#[test]
fn refused_label_sets_are_cached_as_memory_allows() {
    use std::sync::atomic::AtomicU64;
    static PARSED: AtomicU64 = AtomicU64::new(0);
    fn counting<'a>(raw: &'a [u8], pairs: &mut Vec<(&'a [u8], &'a [u8])>) -> Result<(), &'static str> {
        PARSED.fetch_add(1, Ordering::SeqCst);
        (BatchBuilder::default().batch().parse_labels)(raw, pairs)
    }
    const REQUESTS: u64 = 27;
    const SERIES: u64 = 10_000;
    const { assert!(REQUESTS * SERIES > 1 << 18) }
    let builders: Vec<BatchBuilder> = (0..REQUESTS)
        .map(|request| {
            let mut batch = BatchBuilder::default();
            for n in 0..SERIES {
                let number = (request * SERIES + n).to_string();
                batch.series_of([("__name__", "up"), ("n", &number)], [ago(10, 1.0)]);
            }
            batch
        })
        .collect();
    let parses_of_second_round = |head_bytes_max: u64| {
        let tsdb = Tsdb::in_memory(Options { head_bytes_max, ..Options::default() }, [0; 32]);
        tsdb.set_limits(ORG, OrgLimits { series_max: 0, ..OrgLimits::default() });
        for round in 0..2 {
            PARSED.store(0, Ordering::SeqCst);
            for batch in &builders {
                let mut batch = batch.batch();
                batch.parse_labels = counting;
                let report = tsdb.append(ORG, &batch, NOW).expect("answered");
                assert_eq!(report.refused_by_code, [("series_limit", SERIES)], "round {round}");
            }
        }
        PARSED.load(Ordering::SeqCst)
    };
    // The first ten of each request are named in the response.
    assert_eq!(parses_of_second_round(4 << 30), REQUESTS * 10);
    // Without memory for more, only those that were not cached, or replaced, are parsed again.
    let beyond = REQUESTS * SERIES - (1 << 18);
    let parses = parses_of_second_round(64 << 20) - REQUESTS * 10;
    assert!((beyond..beyond * 3 / 2).contains(&parses), "{parses} of {beyond}");
}

/// An action on a store that gets duplicates.
#[derive(Clone, Debug)]
enum DuplicateStep {
    /// Writes samples: series, seconds before now, value.
    Write(Vec<(u8, u8, u8)>),
    Seal,
    /// Deletes a series' samples from this many seconds before now on.
    Delete(u8, u8),
}

fn duplicate_step() -> impl Strategy<Value = DuplicateStep> {
    prop_oneof![
        8 => prop::collection::vec((0u8..3, 0u8..6, 0u8..3), 1..8).prop_map(DuplicateStep::Write),
        1 => Just(DuplicateStep::Seal),
        1 => (0u8..3, 0u8..6).prop_map(|(series, ago_s)| DuplicateStep::Delete(series, ago_s)),
    ]
}

/// Returns the responses to the writes, and the content at the end. `expects` states whether the
/// store expects duplicates before each write.
fn responses(steps: &[DuplicateStep], expects: bool) -> (Vec<AppendReport>, StoreContent) {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let mut reports = Vec::new();
    for step in steps {
        match step {
            DuplicateStep::Write(samples) => {
                let mut batch = BatchBuilder::default();
                for (series, ago_s, value) in samples {
                    let sample = ago(i64::from(*ago_s) * 1_000, f64::from(*value));
                    batch.series(&up(&series.to_string()), [sample]);
                }
                tsdb.stores.org_or_new(ORG).usage.sends_duplicates.store(expects, Ordering::SeqCst);
                let mut report = tsdb.append(ORG, &batch.batch(), NOW).expect("written");
                // Duplicates found before the log are not in the order of the batch.
                report.refusals.sort_by(|a, b| (&a.series, &a.reason).cmp(&(&b.series, &b.reason)));
                reports.push(report);
            }
            DuplicateStep::Seal => {
                tsdb.seal(NOW).expect("sealed");
            }
            DuplicateStep::Delete(series, ago_s) => {
                let series = [vec![crate::model::Matcher::equal("job", &series.to_string())]];
                let from = ago(i64::from(*ago_s) * 1_000, 0.0).at;
                tsdb.delete(ORG, &series, TimeRange::new(from, NOW), NOW).expect("deleted");
            }
        }
    }
    let content = content(&tsdb, ORG);
    (reports, content)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn duplicates_found_before_the_log_get_the_response_of_those_found_after_it(
        steps in prop::collection::vec(duplicate_step(), 1..24)
    ) {
        prop_assert_eq!(responses(&steps, true), responses(&steps, false));
    }
}

#[test]
fn a_duplicate_after_a_newer_sample_of_the_same_request_is_a_late_sample() {
    let steps = [DuplicateStep::Write(vec![(0, 3, 1)]), DuplicateStep::Write(vec![(0, 2, 1), (0, 3, 2)])];
    let (reports, content) = responses(&steps, true);
    assert_eq!(reports[1].stored, 2);
    assert_eq!((reports, content), responses(&steps, false));
}

#[test]
fn after_a_batch_of_duplicates_the_next_ones_are_not_logged() {
    let tsdb = Tsdb::scaffold();
    let send = |value: f64| {
        let mut all = BatchBuilder::default();
        for n in 0..100 {
            all.series(&up(&n.to_string()), [ago(0, value)]);
        }
        tsdb.append(ORG, &all.batch(), NOW).expect("written")
    };
    assert_eq!(send(1.0).stored, 100);
    let first = send(2.0);
    assert_eq!((first.stored, first.refused), (0, 100));
    let last_seq = || tsdb.stores.org_or_new(ORG).last_seq.load(Ordering::SeqCst);
    let before = last_seq();
    assert_eq!(send(2.0), first);
    assert_eq!(last_seq(), before);
    assert_eq!(send(1.0).stored, 100, "a repeated request is accepted");
    assert!(last_seq() > before);
}
