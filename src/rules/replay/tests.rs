//! Tests of replays.

mod cuts;
mod history;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::Stopwatch;
use crate::model::{Access, BatchBuilder, OrgId, Sample, TimeRange, is_stale, stale_nan};
use crate::promql::syntax::{Caps, parse_selector};
use crate::rules::AlertPhase;
use crate::rules::file::{RuleFileOptions, decode_rule, decode_rule_group};
use crate::rules::run::{GroupRun, RuleSettings};
use crate::tsdb::{SampleColumns, SelectedSeries, Tsdb};

const ORG: OrgId = OrgId(1);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_s(1_000_000 + seconds)
}

fn options() -> RuleFileOptions<'static> {
    static CAPS: std::sync::OnceLock<Caps> = std::sync::OnceLock::new();
    RuleFileOptions { caps: CAPS.get_or_init(Caps::default), check_template: |_| Ok(()) }
}

fn rule(text: &str) -> Rule {
    decode_rule(text, options()).expect("valid")
}

fn put(tsdb: &Tsdb, name: &str, job: &str, seconds: i64, value: f64) {
    let mut batch = BatchBuilder::default();
    let labels = Labels::from_pairs([("__name__", name), ("job", job)]);
    batch.series(&labels, [Sample { at: at(seconds), value }]);
    tsdb.append(ORG, &batch.batch(), at(seconds)).expect("stored");
}

/// Series and the times and bits of their samples, in the order of their labels.
type StoredSeries = Vec<(Labels, Vec<(i64, u64)>)>;

/// Returns the stored samples of matching series, staleness markers among them.
fn stored_series(tsdb: &Tsdb, org: OrgId, selector: &str) -> StoredSeries {
    let snapshot = tsdb.snapshot(&Access::whole(org));
    let matchers = parse_selector(selector, &Caps::default()).expect("valid");
    let read = |found: SelectedSeries| {
        let mut columns = SampleColumns::default();
        snapshot.read(found.id, TimeRange::ALL, &mut columns);
        let bits = columns.values.iter().map(|value| value.to_bits());
        (found.labels, columns.times.iter().copied().zip(bits).collect())
    };
    let mut series: StoredSeries = snapshot.select(&matchers, TimeRange::ALL).into_iter().map(read).collect();
    series.sort();
    series
}

fn steps(from: i64, to: i64) -> Steps {
    Steps::new(at(from), at(to), 10_000).expect("valid")
}

fn times(from: i64, to: i64) -> BackfillTimes {
    BackfillTimes { start: at(from), end: at(to), step_ms: 10_000 }
}

#[test]
fn a_preview_has_every_transition_and_the_series() {
    let (tsdb, settings) = (Tsdb::scaffold(), RuleSettings::default());
    let context = RuleContext::new(&settings, &tsdb, ORG);
    for (step, value) in [0.0, 5.0, 6.0, 7.0, 0.0, 0.0].into_iter().enumerate() {
        put(&tsdb, "x", "a", i64::try_from(step).expect("small") * 10, value);
    }
    let rule = rule("{alert: A, expr: x > 1, for: 20s, labels: {l: m}}");
    let preview = preview_rule(&rule, &RulePreviewGroup::default(), steps(0, 50), context).expect("done");
    let seen: Vec<_> = preview.transitions.iter().map(|one| (one.at, one.phase, one.value)).collect();
    use AlertPhase::{Firing, Pending, Resolved};
    assert_eq!(
        seen,
        [(at(10), Some(Pending), 5.0), (at(30), Some(Firing), 7.0), (at(40), Some(Resolved), 7.0)]
    );
    assert_eq!(preview.series.len(), 1);
    assert_eq!(preview.series[0].samples.len(), 3);
}

#[test]
fn a_preview_fails_or_forgets_alerts_beyond_the_limit() {
    let (tsdb, settings) = (Tsdb::scaffold(), RuleSettings::default());
    let context = RuleContext::new(&settings, &tsdb, ORG);
    for (seconds, b) in [(0, 0.0), (10, 0.0), (20, 1.0), (30, 0.0), (40, 0.0)] {
        put(&tsdb, "x", "a", seconds, 1.0);
        put(&tsdb, "x", "b", seconds, b);
    }
    let preview = |text: &str, limit: usize| {
        let group = RulePreviewGroup { limit, query_offset_ms: 0 };
        preview_rule(&rule(text), &group, steps(0, 40), context)
    };
    let message = "exceeded limit of 1 with 2 series".to_owned();
    let record = "{record: y, expr: x > 0}";
    assert_eq!(preview(record, 1).expect_err("it fails"), ReplayError::Evaluation { at: at(20), message });
    assert_eq!(preview(record, 2).expect("done").series.len(), 2);
    let alert = preview("{alert: A, expr: x > 0, for: 10s}", 1).expect("done");
    let seen: Vec<_> = alert.transitions.iter().map(|one| (one.at, one.phase)).collect();
    use AlertPhase::{Firing, Pending};
    let expected = [
        (at(0), Some(Pending)),
        (at(10), Some(Firing)),
        (at(20), None),
        (at(30), Some(Pending)),
        (at(40), Some(Firing)),
    ];
    assert_eq!(seen, expected);
    let group =
        decode_rule_group("{name: g, limit: 1, rules: [{alert: A, expr: x > 0, for: 10s}]}", options());
    let mut live = GroupRun::new(Arc::new(group.expect("valid")), &settings);
    (0..=40).step_by(10).for_each(|seconds| live.evaluate(context, at(seconds), at(seconds)));
    let lived: Vec<String> = live.alerts(0).map(|alert| format!("{alert:?}")).collect();
    let replayed: Vec<String> = alert.alerts.iter().map(|alert| format!("{alert:?}")).collect();
    assert_eq!(replayed, lived);
}

#[test]
fn a_preview_estimates_one_evaluation() {
    let (tsdb, settings) = (Tsdb::scaffold(), RuleSettings::default());
    let context = RuleContext::new(&settings, &tsdb, ORG);
    for (seconds, job) in (0..60).step_by(10).flat_map(|seconds| [(seconds, "a"), (seconds, "b")]) {
        put(&tsdb, "x", job, seconds, 1.0);
    }
    let rule = rule("{record: y, expr: 'sum_over_time(x[30s])'}");
    let preview = preview_rule(&rule, &RulePreviewGroup::default(), steps(0, 50), context).expect("done");
    assert_eq!(preview.estimate.series, 2);
    // About three samples of each; a range query over all steps would read six of each.
    assert!((2..=8).contains(&preview.estimate.samples), "{:?}", preview.estimate);
}

#[test]
fn all_queries_of_a_replay_share_one_timeout() {
    let tsdb = Tsdb::scaffold();
    let settings = RuleSettings { query_timeout: Duration::from_secs(1), ..RuleSettings::default() };
    put(&tsdb, "x", "a", 0, 1.0);
    let context = |since| RuleContext { since, ..RuleContext::new(&settings, &tsdb, ORG) };
    let since = Stopwatch::start();
    let rule = rule("{alert: A, expr: 'x @ end()'}");
    let group = RulePreviewGroup::default();
    preview_rule(&rule, &group, steps(0, 10), context(None)).expect("a query takes less than the timeout");
    std::thread::sleep(settings.query_timeout);
    let late = preview_rule(&rule, &group, steps(0, 10), context(Some(since))).expect_err("too late");
    assert_eq!(late, ReplayError::Evaluation { at: at(0), message: QueryError::Timeout.to_string() });
}

#[test]
fn a_backfill_writes_slices_and_continues() {
    let (tsdb, settings) = (Tsdb::scaffold(), RuleSettings::default());
    let context = RuleContext::new(&settings, &tsdb, ORG);
    for seconds in (0..6_000).step_by(10) {
        put(&tsdb, "x", "a", seconds, 1.0);
    }
    let group = RulePreviewGroup::default();
    let new =
        |text: &str, times: BackfillTimes, now: Timestamp| Backfill::new(&[rule(text)], &group, times, now);
    let mut backfill = new("{record: y, expr: x * 2}", times(0, 5_990), at(6_000)).expect("recording");
    assert_eq!(backfill.run_slice(usize::MAX, context, at(6_000)).expect("done").stored, 50);
    assert_eq!(backfill.next(), Some(at(500)));
    assert_eq!(backfill.run_slice(450, context, at(6_000)).expect("done").stored, 450);
    assert_eq!(backfill.next(), Some(at(5_000)));
    assert_eq!(backfill.run_slice(40, context, at(6_000)).expect("done").stored, 40);
    assert_eq!(backfill.next(), Some(at(5_400)));
    let mut again = new("{record: y, expr: x * 2}", times(5_000, 5_990), at(6_000)).expect("recording");
    assert_eq!(again.run_slice(usize::MAX, context, at(6_000)).expect("done").stored, 50);
    assert_eq!(again.run_slice(usize::MAX, context, at(6_000)).expect("done").stored, 50);
    assert_eq!(again.next(), None);
    assert_eq!(again.run_slice(usize::MAX, context, at(6_000)), Ok(BackfillReport::default()));
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let found = snapshot.select(&parse_selector("y", &Caps::default()).expect("valid"), TimeRange::ALL);
    let mut columns = SampleColumns::default();
    snapshot.read(found[0].id, TimeRange::ALL, &mut columns);
    assert_eq!(columns.values, vec![2.0; 600]);
    let error = |text: &str, times, now| new(text, times, now).map(drop).expect_err("it is refused");
    assert_eq!(error("{alert: A, expr: x}", times(0, 1), at(1)), ReplayError::NotRecording);
    let now = at(5_989);
    assert_eq!(error("{record: y, expr: x}", times(0, 5_990), now), ReplayError::FutureEnd { now });
    let backwards = error("{record: y, expr: x}", times(10, 0), at(20));
    assert_eq!(backwards, ReplayError::Steps(StepsError::EndBeforeStart));
}

#[test]
fn slices_grow_while_rules_yield_few_samples() {
    let (tsdb, settings) = (Tsdb::scaffold(), RuleSettings::default());
    let context = RuleContext::new(&settings, &tsdb, ORG);
    let lengths = |series: usize, end_s: i64| -> Vec<i64> {
        for job in 0..series {
            put(&tsdb, "x", &job.to_string(), 0, 1.0);
        }
        let rules = [rule("{record: y, expr: 'x @ 1000000'}"), rule("{record: z, expr: '1'}")];
        let group = RulePreviewGroup::default();
        let mut backfill = Backfill::new(&rules, &group, times(0, end_s), at(end_s)).expect("valid");
        let mut begins = Vec::new();
        while let Some(from) = backfill.next() {
            begins.push(from);
            backfill.run_slice(usize::MAX, context, at(end_s)).expect("done");
        }
        begins.windows(2).map(|two| two[1].ms_since(two[0]) / 10_000).collect()
    };
    assert_eq!(lengths(1, 250_000), [50, 500, 2_000, 8_000, 8_000]);
    assert_eq!(lengths(40, 26_000), [50, 500, 1_000, 1_000]);
}

const EXPRS: [&str; 6] = [
    "x > 2",
    "sum by (job) (rate(x[30s])) > 0.05",
    "absent(x)",
    "count_over_time(x[25s]) * x",
    "x offset 10s > x",
    "x unless x @ end() > 2",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::model::effort::rounds(8, 256)))]

    #[test]
    fn a_replay_ends_in_the_state_of_the_live_evaluations(
        rows in proptest::collection::vec((0..5u8, 0..5u8), 2..50),
        expr in 0..EXPRS.len(), hold in 0..4i64, keep in 0..4i64, templated: bool,
    ) {
        let (tsdb, settings) = (Tsdb::scaffold(), RuleSettings::default());
        let context = RuleContext::new(&settings, &tsdb, ORG);
        let label = if templated { "'{{ $value }}'" } else { "fixed" };
        let text = format!(
            "{{alert: A, expr: '{}', for: {}s, keep_firing_for: {}s, labels: {{l: {label}}}}}",
            EXPRS[expr], hold * 15, keep * 15
        );
        let group = decode_rule_group(&format!("name: g\nrules:\n- {text}\n"), options()).expect("valid");
        let mut live = GroupRun::new(Arc::new(group), &settings);
        for (step, (a, b)) in rows.iter().enumerate() {
            let seconds = i64::try_from(step).expect("small") * 10;
            for (job, value) in [("a", a), ("b", b)] {
                let value = if *value == 0 { stale_nan() } else { f64::from(*value) };
                put(&tsdb, "x", job, seconds, value);
            }
            live.evaluate(context, at(seconds), at(seconds));
        }
        let last = i64::try_from(rows.len()).expect("small") * 10 - 10;
        let preview = preview_rule(&rule(&text), &RulePreviewGroup::default(), steps(0, last), context).expect("done");
        let replayed: Vec<String> = preview.alerts.iter().map(|alert| format!("{alert:?}")).collect();
        let lived: Vec<String> = live.alerts(0).map(|alert| format!("{alert:?}")).collect();
        prop_assert_eq!(replayed, lived);
    }
}
