//! A backfill writes the same samples as live evaluation.

use std::sync::atomic::AtomicBool;

use super::*;

/// The organisation of the backfill; that of live evaluation is [`ORG`].
const PAST: OrgId = OrgId(2);

fn put_both(tsdb: &Tsdb, name: &str, job: &str, seconds: i64, value: f64) {
    let labels = Labels::from_pairs([("__name__", name), ("job", job)]);
    let mut batch = BatchBuilder::default();
    batch.series(&labels, [Sample { at: at(seconds), value }]);
    for org in [ORG, PAST] {
        tsdb.append(org, &batch.batch(), at(seconds)).expect("stored");
    }
}

fn recorded(tsdb: &Tsdb, org: OrgId) -> StoredSeries {
    stored_series(tsdb, org, "{__name__=~\"y|z|u|v\"}")
}

fn group_of(rules: &[String]) -> crate::rules::RuleGroup {
    let text = format!("name: g\ninterval: 10s\nquery_offset: 5s\nrules:\n{}", rules.concat());
    decode_rule_group(&text, options()).expect("valid")
}

/// Evaluates a group every 10 s, each time after it stored a row: the values of `x` of two jobs, or
/// 0 for the end of a series. Returns the second of the last evaluation.
fn live_evaluation(tsdb: &Tsdb, group: &crate::rules::RuleGroup, rows: &[(u8, u8)]) -> i64 {
    let settings = RuleSettings::default();
    let mut live = GroupRun::new(Arc::new(group.clone()), &settings);
    let mut last = 0;
    for (seconds, (a, b)) in (0..).step_by(10).zip(rows) {
        for (job, value) in [("a", a), ("b", b)] {
            let value = if *value == 0 { stale_nan() } else { f64::from(*value) };
            put_both(tsdb, "x", job, seconds - 5, value);
        }
        live.evaluate(RuleContext::new(&settings, tsdb, ORG), at(seconds), at(seconds));
        last = seconds;
    }
    last
}

/// Backfills all rules of a group from one second to another. Returns the number of refused
/// samples.
fn backfill(tsdb: &Tsdb, group: &crate::rules::RuleGroup, from: i64, to: i64) -> u64 {
    let settings = RuleSettings::default();
    let context = RuleContext::new(&settings, tsdb, PAST);
    let of_group = RulePreviewGroup { limit: group.limit, query_offset_ms: 5_000 };
    let mut backfill = Backfill::new(&group.rules, &of_group, times(from, to), at(to)).expect("recording");
    let mut refused = 0;
    while backfill.next().is_some() {
        refused += backfill.run_slice(usize::MAX, context, at(to)).expect("done").refused;
    }
    refused
}

const RECORDED: [&str; 7] = [
    "x > 2",
    "sum by (job) (rate(x[30s])) > 0.05",
    "absent(x)",
    "x offset 10s > x",
    "x unless x @ end() > 2",
    "x > 3 or y offset 5s",
    "{__name__=~\"x|w\", job=\"a\"} == 1",
];

/// Rules that read each other: the first one of a step reads what the second one wrote before.
const CIRCLE: &str = "- {record: u, expr: 'sum(v) or vector(1)'}\n- {record: v, expr: u + y}\n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::model::effort::rounds(16, 256)))]

    #[test]
    fn a_backfill_equals_live_evaluation_markers_included(
        rows in proptest::collection::vec((0..5u8, 0..5u8), 3..50),
        recorded_by in proptest::array::uniform4(0..RECORDED.len() - 1),
        order in 0..5usize,
    ) {
        let tsdb = Tsdb::scaffold();
        let [first, second, third, fourth] = recorded_by.map(|place| RECORDED[place]);
        let mut rules = vec![
            format!("- {{record: y, expr: '{first}'}}\n"),
            "- {record: z, expr: y * 2, labels: {of: y}}\n".to_owned(),
            format!("- {{record: z, expr: '{second}', labels: {{of: x}}}}\n"),
            // Rules that write the series of other rules.
            format!("- {{record: y, expr: '{third}'}}\n"),
            format!("- {{record: z, expr: '{fourth}', labels: {{of: x}}}}\n"),
        ];
        rules.rotate_left(order);
        rules.insert(order, CIRCLE.to_owned());
        let group = group_of(&rules);
        let last = live_evaluation(&tsdb, &group, &rows);
        backfill(&tsdb, &group, 0, last);
        prop_assert_eq!(recorded(&tsdb, PAST), recorded(&tsdb, ORG));
    }

    #[test]
    fn two_requests_write_what_live_evaluation_wrote_and_a_repetition_changes_nothing(
        rows in proptest::collection::vec((0..5u8, 0..5u8), 3..50),
        first in 0..RECORDED.len() - 1, cut in 1..50usize,
    ) {
        let tsdb = Tsdb::scaffold();
        let y = format!("- {{record: y, expr: '{}'}}\n", RECORDED[first]);
        let group = group_of(&[y, "- {record: z, expr: y * 2}\n".to_owned()]);
        let last = live_evaluation(&tsdb, &group, &rows);
        let cut = i64::try_from(cut.min(rows.len() - 1)).expect("small") * 10;
        let refused = backfill(&tsdb, &group, 0, cut - 10) + backfill(&tsdb, &group, cut, last);
        let before = recorded(&tsdb, PAST);
        prop_assert_eq!(&before, &recorded(&tsdb, ORG));
        prop_assert_eq!(refused + backfill(&tsdb, &group, 0, last), 0);
        prop_assert_eq!(recorded(&tsdb, PAST), before);
    }
}

#[test]
fn a_backfill_of_several_slices_equals_live_evaluation() {
    let (tsdb, settings) = (Tsdb::scaffold(), RuleSettings::default());
    let group = group_of(&[format!("- {{record: y, expr: '{}'}}\n", RECORDED[6])]);
    let mut live = GroupRun::new(Arc::new(group.clone()), &settings);
    // The series ends within slices, and at the first step of the last one.
    for seconds in (0..10_400).step_by(10) {
        let ends = [1_230, 9_500, 10_010].contains(&seconds);
        put_both(&tsdb, "x", "a", seconds - 5, if ends { 9.0 } else { 1.0 });
        let is_twice = seconds > 4_000 && seconds < 4_500;
        put_both(&tsdb, "w", "a", seconds - 5, if is_twice { 1.0 } else { 0.0 });
        // Both have the same labels then, which fails.
        if !is_twice {
            live.evaluate(RuleContext::new(&settings, &tsdb, ORG), at(seconds), at(seconds));
        }
    }
    assert_eq!(backfill(&tsdb, &group, 0, 4_000) + backfill(&tsdb, &group, 4_500, 10_390), 0);
    let [past, live] = [PAST, ORG].map(|org| recorded(&tsdb, org));
    assert_eq!(past, live);
    let is_end = |(_, bits): &&(i64, u64)| is_stale(f64::from_bits(*bits));
    assert_eq!(past[0].1.iter().filter(is_end).count(), 3);
}

#[test]
fn a_rule_that_continues_the_series_of_another_one_has_its_values() {
    let rules = ["- {record: y, expr: x == 1}\n", "- {record: y, expr: x == 2}\n"].map(str::to_owned);
    let group = group_of(&rules);
    for cut in [50, 70, 100, 150] {
        let tsdb = Tsdb::scaffold();
        let value = |seconds: i64| if seconds % 100 < 50 { 1.0 } else { 2.0 };
        for seconds in (0..200).step_by(10) {
            put_both(&tsdb, "x", "a", seconds - 5, value(seconds));
        }
        backfill(&tsdb, &group, 0, cut - 10);
        backfill(&tsdb, &group, cut, 190);
        let series = recorded(&tsdb, PAST);
        let values: Vec<f64> = series[0].1.iter().map(|(_, bits)| f64::from_bits(*bits)).collect();
        assert_eq!(values, (0..200).step_by(10).map(value).collect::<Vec<_>>(), "cut at {cut} s");
    }
}

const NO_LIMITS: BackfillLimits = BackfillLimits { steps: usize::MAX, time: Duration::MAX };

#[test]
fn a_step_that_would_fail_ends_a_backfill_with_its_time_after_the_steps_before_it() {
    let (tsdb, settings) = (Tsdb::scaffold(), RuleSettings::default());
    for seconds in (0..100).step_by(10) {
        put_both(&tsdb, "x", "a", seconds, 1.0);
        put_both(&tsdb, "w", "a", seconds, if seconds == 50 { 1.0 } else { 0.0 });
    }
    let context = RuleContext::new(&settings, &tsdb, PAST);
    let run = |expr: &str, limit: usize, query_offset_ms: i64| {
        let rule = rule(&format!("{{record: y, expr: '{expr}'}}"));
        let group = RulePreviewGroup { limit, query_offset_ms };
        let mut backfill = Backfill::new(&[rule], &group, times(0, 90), at(90)).expect("recording");
        let first = backfill.run(NO_LIMITS, context, at(90)).expect("steps before the failing one");
        (first.stored, backfill.next(), backfill.run(NO_LIMITS, context, at(90)).expect_err("it fails"))
    };
    let failed = |seconds: i64, message: &str| {
        let error = ReplayError::Evaluation { at: at(seconds), message: message.to_owned() };
        (u64::try_from(seconds / 10).expect("positive"), Some(at(seconds)), error)
    };
    let same = "vector contains metrics with the same labelset after applying rule labels";
    assert_eq!(run(RECORDED[6], 0, 0), failed(50, same));
    assert_eq!(run("{__name__=~\"x|w\"} > 0 and on () (x == 1)", 0, 0), failed(50, same));
    let limited = "label_replace({__name__=~\"x|w\"} == 1, \"of\", \"$1\", \"__name__\", \"(.*)\")";
    let exceeded = "exceeded limit of 1 with 2 series";
    assert_eq!(run(limited, 1, 0), failed(50, exceeded));
    // The time is that of the evaluation. There is no sample before the first evaluation.
    let (stored, next, error) = run(limited, 1, 10_000);
    assert_eq!((stored + 1, next, error), failed(60, exceeded));
    // The query itself fails.
    let joined =
        "x * on () group_left () (w == 1 or on (job, of) label_replace(x, \"of\", \"b\", \"\", \"\"))";
    let (stored, next, error) = run(joined, 0, 0);
    assert_eq!((stored, next), (5, Some(at(50))));
    assert!(error.to_string().contains("many-to-many"), "{error}");
}

/// An evaluation of such a rule at a time at which it has a sample would read that sample.
#[test]
fn a_rule_that_reads_its_own_samples_is_evaluated_once_at_each_time() {
    let (tsdb, settings) = (Tsdb::scaffold(), RuleSettings::default());
    for seconds in (0..100).step_by(10) {
        for name in ["x", "w"] {
            put_both(&tsdb, name, "a", seconds, if name == "w" && seconds < 50 { 0.0 } else { 1.0 });
        }
    }
    let expr = "({__name__=~\"x|w\"} == 1) + on () group_left () (y or on () vector(0))";
    let rules = [rule(&format!("{{record: y, expr: '{expr}'}}"))];
    let group = RulePreviewGroup::default();
    let context = RuleContext::new(&settings, &tsdb, PAST);
    let mut backfill = Backfill::new(&rules, &group, times(0, 90), at(90)).expect("recording");
    let report = backfill.run(NO_LIMITS, context, at(90)).expect("the steps before the failing one");
    assert_eq!((report.stored, backfill.next()), (5, Some(at(50))));
    let error = backfill.run(NO_LIMITS, context, at(90)).expect_err("it fails");
    assert!(matches!(error, ReplayError::Evaluation { at: failed, .. } if failed == at(50)), "{error}");
    let values: Vec<f64> = recorded(&tsdb, PAST)[0].1.iter().map(|(_, bits)| f64::from_bits(*bits)).collect();
    assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn a_slice_that_reads_too_many_samples_is_cut() {
    let tsdb = Tsdb::scaffold();
    let mut settings = RuleSettings::default();
    settings.options.limits.samples_max = 100;
    for seconds in (0..3_000).step_by(10) {
        put_both(&tsdb, "x", "a", seconds, 1.0);
    }
    let rules = [rule("{record: y, expr: x * 2}")];
    let mut backfill =
        Backfill::new(&rules, &RulePreviewGroup::default(), times(0, 2_990), at(2_990)).expect("recording");
    let report = backfill.run(NO_LIMITS, RuleContext::new(&settings, &tsdb, PAST), at(2_990)).expect("done");
    assert_eq!((report.stored, backfill.next()), (300, None));
    settings.options.limits.samples_max = 0;
    let mut backfill =
        Backfill::new(&rules, &RulePreviewGroup::default(), times(0, 2_990), at(2_990)).expect("recording");
    let error =
        backfill.run(NO_LIMITS, RuleContext::new(&settings, &tsdb, PAST), at(2_990)).expect_err("no step");
    assert!(matches!(error, ReplayError::Evaluation { at: failed, .. } if failed == at(0)), "{error}");
}

#[test]
fn a_call_ends_at_its_limits_and_a_cancelled_one_fails() {
    let (tsdb, settings) = (Tsdb::scaffold(), RuleSettings::default());
    put_both(&tsdb, "x", "a", 0, 1.0);
    let rules = [rule("{record: y, expr: x @ 1000000}")];
    let group = RulePreviewGroup::default();
    let mut backfill = Backfill::new(&rules, &group, times(0, 400_000), at(400_000)).expect("recording");
    let run = |backfill: &mut Backfill, steps, time| {
        let limits = BackfillLimits { steps, time };
        backfill.run(limits, RuleContext::new(&settings, &tsdb, PAST), at(400_000)).expect("done").stored
    };
    assert_eq!(run(&mut backfill, 1_234, Duration::MAX), 1_234);
    assert_eq!(backfill.next(), Some(at(12_340)));
    // The time is over after the first slice, which is always run.
    assert!(run(&mut backfill, usize::MAX, Duration::ZERO) > 0);
    assert!(backfill.next().is_some());
    let cancelled = AtomicBool::new(true);
    let context = RuleContext { cancel: Some(&cancelled), ..RuleContext::new(&settings, &tsdb, PAST) };
    backfill.run(NO_LIMITS, context, at(400_000)).expect_err("cancelled");
}

#[test]
fn a_preview_accepts_labels_that_come_from_other_series_at_other_steps() {
    let (tsdb, settings) = (Tsdb::scaffold(), RuleSettings::default());
    for seconds in (0..100).step_by(10) {
        let is_late = seconds >= 50;
        put_both(&tsdb, "x", "a", seconds, if is_late { 0.0 } else { 1.0 });
        for name in ["w", "v"] {
            put_both(&tsdb, name, "a", seconds, if is_late { 1.0 } else { 0.0 });
        }
    }
    let preview = |expr: &str| {
        let rule = rule(&format!("{{record: y, expr: '{expr}'}}"));
        preview_rule(
            &rule,
            &RulePreviewGroup::default(),
            steps(0, 90),
            RuleContext::new(&settings, &tsdb, ORG),
        )
    };
    let shown = preview("{__name__=~\"x|w\"} == 1").expect("no step has the labels twice");
    assert_eq!(shown.series.len(), 1);
    let samples: Vec<_> = shown.series[0].samples.iter().map(|sample| (sample.at, sample.value)).collect();
    assert_eq!(samples, (0..100).step_by(10).map(|seconds| (at(seconds), 1.0)).collect::<Vec<_>>());
    // From 50 s on, two have a sample.
    let same = "vector contains metrics with the same labelset after applying rule labels";
    let twice = preview("{__name__=~\"x|w|v\"} == 1").expect_err("it fails");
    assert_eq!(twice, ReplayError::Evaluation { at: at(50), message: same.to_owned() });
}
