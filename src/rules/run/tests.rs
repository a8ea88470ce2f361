//! Tests of evaluations and restores.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::model::{
    Access, BatchBuilder, BucketSpan, CounterReset, Histogram, HistogramColumns, HistogramCounts,
    HistogramShape, Labels, OrgId, Sample, Steps, TimeRange, Timestamp, is_stale, stale_nan,
};
use crate::promql::syntax::{Caps, parse_selector};
use crate::promql::{LEASE_UNIT, MemoryPool};
use crate::rules::file::{RuleFileOptions, decode_rule_group};
use crate::rules::{AlertPhase, RuleGroup};
use crate::tsdb::{SampleColumns, Tsdb};

const ORG: OrgId = OrgId(1);

pub(in crate::rules) fn group(text: &str) -> Arc<RuleGroup> {
    let options = RuleFileOptions { caps: &Caps::default(), check_template: |_| Ok(()) };
    Arc::new(decode_rule_group(text, options).expect("valid"))
}

struct Bench {
    tsdb: Tsdb,
    settings: RuleSettings,
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_s(1_000_000 + seconds)
}

impl Bench {
    fn new() -> Bench {
        Bench { tsdb: Tsdb::scaffold(), settings: RuleSettings::default() }
    }

    fn context(&self) -> RuleContext<'_> {
        RuleContext::new(&self.settings, &self.tsdb, ORG)
    }

    fn put(&self, pairs: &[(&str, &str)], seconds: i64, value: f64) {
        let mut batch = BatchBuilder::default();
        batch.series(&Labels::from_pairs(pairs.iter().copied()), [Sample { at: at(seconds), value }]);
        let report = self.tsdb.append(ORG, &batch.batch(), at(seconds)).expect("stored");
        assert_eq!(report.refused, 0, "{report:?}");
    }

    /// Returns the samples of matching series as text, one series a line, markers as `stale`.
    fn series(&self, selector: &str) -> String {
        let snapshot = self.tsdb.snapshot(&Access::whole(ORG));
        let matchers = parse_selector(selector, &Caps::default()).expect("valid");
        let mut found = snapshot.select(&matchers, TimeRange::ALL);
        found.sort_by(|a, b| a.labels.cmp(&b.labels));
        let line = |series: &crate::tsdb::SelectedSeries| {
            let mut columns = SampleColumns::default();
            snapshot.read(series.id, TimeRange::ALL, &mut columns);
            let samples = columns.times.iter().zip(&columns.values).map(|(time, value)| {
                let value = if is_stale(*value) { "stale".to_owned() } else { value.to_string() };
                format!(" {value}@{}", (time - at(0).as_ms()) / 1_000)
            });
            format!("{}{}", series.labels, samples.collect::<String>())
        };
        found.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

const ALERTING: &str = "
name: g
interval: 10s
rules:
- alert: High
  expr: x > 1
  for: 20s
  keep_firing_for: 20s
  labels: {severity: page}
  annotations: {summary: '{{ $labels.job }} at {{ $value }}'}
";

#[test]
fn alerts_are_written_as_prometheus_writes_them() {
    let bench = Bench::new();
    let mut run = GroupRun::new(group(ALERTING), &bench.settings);
    for (step, value) in [2.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0].into_iter().enumerate() {
        let seconds = i64::try_from(step).expect("small") * 10;
        bench.put(&[("__name__", "x"), ("job", "a")], seconds, value);
        run.evaluate(bench.context(), at(seconds), at(seconds));
    }
    assert_eq!(
        bench.series("ALERTS"),
        "{__name__=\"ALERTS\", alertname=\"High\", alertstate=\"firing\", job=\"a\", severity=\"page\"} 1@20 1@30 1@40 stale@50\n\
         {__name__=\"ALERTS\", alertname=\"High\", alertstate=\"pending\", job=\"a\", severity=\"page\"} 1@0 1@10 stale@20"
    );
    assert_eq!(
        bench.series("ALERTS_FOR_STATE"),
        "{__name__=\"ALERTS_FOR_STATE\", alertname=\"High\", job=\"a\", severity=\"page\"} \
         1000000@0 1000000@10 1000000@20 1000000@30 1000000@40 stale@50"
    );
    let alert = run.alerts(0).next().expect("one");
    assert_eq!((alert.phase, alert.value, alert.resolved_at), (AlertPhase::Resolved, 3.0, Some(at(50))));
    assert_eq!(alert.annotations.get("summary").map(String::as_str), Some("a at 3"));
}

#[test]
fn chained_rules_see_the_samples_of_rules_before_them() {
    let bench = Bench::new();
    let text = "
name: g
query_offset: 5s
rules:
- {record: a, expr: x * 2, labels: {kind: y}}
- {record: b, expr: a + 1}
- {record: c, expr: '{__name__=~\"b|nothing\"} * 10'}
- {alert: D, expr: c > 0}
- {record: e, expr: 'count(ALERTS{alertstate=\"firing\"})'}
";
    let mut run = GroupRun::new(group(text), &bench.settings);
    bench.put(&[("__name__", "x")], 0, 1.0);
    run.evaluate(bench.context(), at(5), at(5));
    assert_eq!(
        bench.series("{__name__=~'[abce]'}"),
        "{__name__=\"a\", kind=\"y\"} 2@0\n{__name__=\"b\", kind=\"y\"} 3@0\n{__name__=\"c\", kind=\"y\"} 30@0\n{__name__=\"e\"} 1@0"
    );
    bench.put(&[("__name__", "x")], 10, stale_nan());
    run.evaluate(bench.context(), at(15), at(15));
    assert_eq!(
        bench.series("{__name__=~'[ae]'}"),
        "{__name__=\"a\", kind=\"y\"} 2@0 stale@10\n{__name__=\"e\"} 1@0 stale@10"
    );
}

#[test]
fn a_rule_sees_the_samples_of_a_rule_before_a_failed_one() {
    let bench = Bench::new();
    let text = "
name: g
rules:
- {record: a, expr: x}
- {record: a, expr: 'x * on() x'}
- {record: b, expr: a + 1}
";
    let mut run = GroupRun::new(group(text), &bench.settings);
    bench.put(&[("__name__", "x"), ("job", "a")], 0, 1.0);
    bench.put(&[("__name__", "x"), ("job", "b")], 0, 5.0);
    run.evaluate(bench.context(), at(0), at(0));
    assert_eq!(run.totals.failures, 1);
    assert_eq!(bench.series("b"), "{__name__=\"b\", job=\"a\"} 2@0\n{__name__=\"b\", job=\"b\"} 6@0");
}

#[test]
fn queries_of_a_group_keep_a_unit_of_memory_for_the_next_and_return_the_rest() {
    let pool = MemoryPool::new(256 << 20);
    let mut bench = Bench::new();
    bench.settings.memory = Some(Arc::clone(&pool));
    for job in 0..100 {
        bench.put(&[("__name__", "x"), ("job", &job.to_string())], 0, 1.0);
    }
    let text = "name: g\nrules: [{record: r, expr: 'x * 2'}, {record: s, expr: x}]\n";
    let rules = group(text);
    let compiled = CompiledRule::new(Arc::new(rules.rules[0].clone()));
    let context = bench.context();
    let lease = context.new_lease();
    let context = RuleContext { lease: lease.as_ref(), ..context };
    let range = Steps::new(at(0), at(10_000), 1_000).expect("valid");
    compiled.range(context, &context.snapshot(), range).expect("evaluated");
    assert_eq!(pool.usage().bytes, LEASE_UNIT, "the result takes 8 MB");
    drop(lease);
    assert_eq!(pool.usage().bytes, 0);
    let mut run = GroupRun::new(rules, &bench.settings);
    run.evaluate(bench.context(), at(0), at(0));
    assert_eq!((run.totals.samples, pool.usage().bytes), (200, 0));
}

#[test]
fn native_histograms_are_recorded_with_all_buckets() {
    let bench = Bench::new();
    let spans = vec![BucketSpan { offset: -2, length: 2 }, BucketSpan { offset: 3, length: 1 }];
    let shape = HistogramShape::new(1, 0.001, Vec::new(), spans.clone(), spans).expect("valid");
    let buckets = vec![1, 2, 3, 4, 5, 6];
    let counts = HistogramCounts::Integer { count: 28, zero: 7, buckets };
    let histogram = Histogram::new(Arc::new(shape), CounterReset::Unknown, 5.5, counts).expect("valid");
    let mut batch = BatchBuilder::default();
    for job in ["a", "b"] {
        let labels = Labels::from_pairs([("__name__", "h"), ("job", job)]);
        batch.series(&labels, []).histograms([(at(0), histogram.clone())]);
    }
    bench.tsdb.append(ORG, &batch.batch(), at(0)).expect("stored");
    let mut run = GroupRun::new(group("name: g\nrules: [{record: r, expr: sum(h)}]\n"), &bench.settings);
    run.evaluate(bench.context(), at(0), at(0));
    run.evaluate(bench.context(), at(400), at(400));
    let snapshot = bench.tsdb.snapshot(&Access::whole(ORG));
    let found = snapshot.select(&parse_selector("r", &Caps::default()).expect("valid"), TimeRange::ALL);
    let (mut floats, mut histograms) = (SampleColumns::default(), HistogramColumns::default());
    snapshot.read_both(found[0].id, TimeRange::ALL, Timestamp::MIN, &mut floats, &mut histograms);
    assert_eq!(floats.values.iter().filter(|value| is_stale(**value)).count(), 1, "the marker");
    let recorded = histograms.histograms.first().expect("one");
    assert_eq!((recorded.count(), recorded.sum()), (56.0, 11.0));
    let doubled = [2.0, 4.0, 6.0, 8.0, 10.0, 12.0];
    let HistogramCounts::Float { zero, buckets, .. } = recorded.counts() else { panic!("{recorded:?}") };
    assert_eq!((*zero, &buckets[..]), (14.0, &doubled[..]));
    assert_eq!(recorded.shape().positive(), histogram.shape().positive());
}

#[test]
fn duplicates_after_labels_and_limits_are_errors_of_the_rule() {
    let bench = Bench::new();
    bench.put(&[("__name__", "x"), ("a", "1")], 0, 1.0);
    bench.put(&[("__name__", "x"), ("a", "2")], 0, 1.0);
    let text = "
name: g
limit: 1
rules:
- {record: r, expr: x, labels: {a: ''}}
- {record: s, expr: x}
- {alert: T, expr: x}
- {alert: U, expr: x, labels: {a: same}}
- {record: v, expr: 'x * on() x'}
- {record: ok, expr: sum(x)}
";
    let mut run = GroupRun::new(group(text), &bench.settings);
    run.evaluate(bench.context(), at(0), at(0));
    let health = |rule: usize| match run.health(rule) {
        Some(RuleHealth::Failed(message)) => message.clone(),
        other => format!("{other:?}"),
    };
    let duplicate = "vector contains metrics with the same labelset after applying";
    assert_eq!(health(0), format!("{duplicate} rule labels"));
    assert_eq!(health(1), "exceeded limit of 1 with 2 series");
    assert_eq!(health(2), "exceeded limit of 1 with 2 alerts");
    assert_eq!(health(3), format!("{duplicate} alert labels"));
    assert!(health(4).contains("many-to-many"), "{}", health(4));
    assert_eq!(health(5), "Some(Ok)");
    assert_eq!((run.totals.failures, run.totals.samples), (5, 1));
}

#[test]
fn series_of_rules_that_an_edit_removes_end_and_matching_rules_keep_their_state() {
    let bench = Bench::new();
    bench.put(&[("__name__", "x")], 0, 5.0);
    let mut run = GroupRun::new(
        group(
            "name: g\nrules:\n- {record: a, expr: x}\n- {record: b, expr: x}\n- {alert: C, expr: x, for: 1m}\n",
        ),
        &bench.settings,
    );
    run.evaluate(bench.context(), at(0), at(0));
    let edited = "name: g\nrules:\n- {alert: C, expr: x > 1, for: 1m}\n- {record: b, expr: x + 1}\n";
    let mut next = GroupRun::new(group(edited), &bench.settings);
    next.take_over(run);
    next.evaluate(bench.context(), at(60), at(60));
    assert_eq!(
        bench.series("{__name__=~'[ab]'}"),
        "{__name__=\"a\"} 5@0 stale@60\n{__name__=\"b\"} 5@0 6@60"
    );
    assert_eq!(
        next.alerts(0).next().map(|alert| (alert.phase, alert.active_at)),
        Some((AlertPhase::Firing, at(0)))
    );
}

/// A rule that alerts, with and without labels that only an evaluation knows.
fn random_group() -> impl Strategy<Value = String> {
    (0..4i64, 0..4i64, any::<bool>(), 0..2i64).prop_map(|(hold, keep, templated, offset)| {
        let label = if templated { "'{{ if gt $value 2.0 }}high{{ else }}low{{ end }}'" } else { "page" };
        format!(
            "name: g\ninterval: 10s\nquery_offset: {}s\nrules:\n- {{record: y, expr: x * 2}}\n- alert: A\n  expr: y > 2\n  \
             for: {}s\n  keep_firing_for: {}s\n  labels: {{level: {label}}}\n- alert: A\n  expr: x > 2\n  labels: {{level: other}}\n",
            offset * 3, hold * 15, keep * 15
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::model::effort::rounds(8, 256)))]

    #[test]
    fn a_restored_state_equals_the_live_one(
        text in random_group(),
        values in proptest::collection::vec(proptest::collection::vec(0..5u8, 3), 1..40),
        restarts in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let bench = Bench::new();
        let group = group(&text);
        let mut live = GroupRun::new(Arc::clone(&group), &bench.settings);
        for (step, row) in values.iter().enumerate() {
            let seconds = i64::try_from(step).expect("small") * 10;
            for (series, value) in row.iter().enumerate() {
                let name = ["a", "b", "c"][series];
                let value = if *value == 0 { stale_nan() } else { f64::from(*value) };
                bench.put(&[("__name__", "x"), ("job", name)], seconds, value);
            }
            let moment = at(seconds + 3);
            live.evaluate(bench.context(), moment, moment);
            if restarts[step] {
                let mut restored = GroupRun::new(Arc::clone(&group), &bench.settings);
                restored.restore(bench.context(), at(seconds + 9), |_| true);
                for rule in 0..3 {
                    let show = |run: &GroupRun| run.alerts(rule).cloned().map(|mut alert| {
                        alert.last_sent_at = None;
                        format!("{alert:?}")
                    }).collect::<Vec<_>>();
                    prop_assert_eq!(show(&restored), show(&live), "step {} of\n{}", step, text);
                    prop_assert_eq!(&restored.rules[rule].series, &live.rules[rule].series);
                }
                live = restored;
            }
        }
    }
}
