//! Tests of the engine with an injected clock.

mod ends;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::model::{Access, Alert, BatchBuilder, Labels, Sample, TimeRange, is_stale, stale_nan};
use crate::promql::syntax::{Caps, parse_selector};
use crate::rules::RuleHealth;
use crate::rules::file::{RuleFileOptions, decode_rule_group};
use crate::tsdb::SampleColumns;

const ORG: OrgId = OrgId(1);

#[derive(Default)]
struct Sent(Mutex<Vec<(OrgId, Alert, Timestamp)>>);

impl AlertSink for Sent {
    fn send(&self, org: OrgId, alerts: Vec<Alert>, now: Timestamp) {
        let mut all = self.0.lock().expect("no panic");
        all.extend(alerts.into_iter().map(|alert| (org, alert, now)));
    }
}

struct Bench {
    tsdb: Arc<Tsdb>,
    sent: Arc<Sent>,
    engine: Arc<RuleEngine>,
    missed: MissedPolicy,
}

fn group(text: &str) -> RuleGroup {
    let options = RuleFileOptions { caps: &Caps::default(), check_template: |_| Ok(()) };
    decode_rule_group(text, options).expect("valid")
}

fn api() -> RuleSource {
    RuleSource::Api(Arc::from(""))
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_s(1_000_000 + seconds)
}

fn engine(tsdb: &Arc<Tsdb>, sent: &Arc<Sent>, missed: MissedPolicy) -> Arc<RuleEngine> {
    RuleEngine::new(RuleEngineParts {
        tsdb: Arc::clone(tsdb),
        sink: Some(Arc::clone(sent) as Arc<dyn AlertSink>),
        settings: RuleSettings::default(),
        clock: Clock::manual(at(0)),
        missed,
        resend_delay_ms: 60_000,
    })
}

impl Bench {
    fn new(missed: MissedPolicy) -> Bench {
        let (tsdb, sent) = (Arc::new(Tsdb::scaffold()), Arc::new(Sent::default()));
        let engine = engine(&tsdb, &sent, missed);
        Bench { tsdb, sent, engine, missed }
    }

    /// Replaces the engine by a new one, as after a crash.
    fn restart(&mut self, groups: &[&str]) {
        self.engine = engine(&self.tsdb, &self.sent, self.missed);
        self.set(groups);
    }

    fn set(&self, groups: &[&str]) {
        self.engine.set_groups(ORG, &api(), groups.iter().map(|text| group(text)).collect());
    }

    fn run(&self, seconds: i64) -> usize {
        let Clock::Manual(ms) = &self.engine.parts.clock else { return 0 };
        ms.store(at(seconds).as_ms(), Ordering::SeqCst);
        self.engine.run_due(at(seconds))
    }

    fn put(&self, name: &str, seconds: i64, value: f64) {
        let mut batch = BatchBuilder::default();
        batch.series(&Labels::from_pairs([("__name__", name)]), [Sample { at: at(seconds), value }]);
        self.tsdb.append(ORG, &batch.batch(), at(seconds)).expect("stored");
    }

    fn samples(&self, org: OrgId, selector: &str) -> Vec<(i64, f64)> {
        let snapshot = self.tsdb.snapshot(&Access::whole(org));
        let matchers = parse_selector(selector, &Caps::default()).expect("valid");
        let mut all = Vec::new();
        for series in snapshot.select(&matchers, TimeRange::ALL) {
            let mut columns = SampleColumns::default();
            snapshot.read(series.id, TimeRange::ALL, &mut columns);
            let times = columns.times.iter().map(|ms| (ms - at(0).as_ms()) / 1_000);
            all.extend(
                times.zip(columns.values.iter().map(|value| if is_stale(*value) { -1.0 } else { *value })),
            );
        }
        all
    }

    fn view(&self) -> Arc<RuleGroupView> {
        self.engine.groups(ORG).first().cloned().expect("one")
    }
}

const RECORD: &str = "{name: g, interval: 10s, rules: [{record: y, expr: x}]}";

/// The first evaluation after `seconds` of the group `g` with an interval of 10 s.
fn first_after(seconds: i64) -> i64 {
    (RuleGrid::new(10_000, "", "g").after(at(seconds)).as_ms() - at(0).as_ms()) / 1_000
}

/// Evaluates [`RECORD`] once, and returns the second of that evaluation.
fn record_once(bench: &Bench) -> i64 {
    bench.put("x", 0, 7.0);
    bench.set(&[RECORD]);
    bench.run(0);
    let first = first_after(0);
    bench.run(first);
    first
}

#[test]
fn groups_are_evaluated_on_their_grid_and_missed_evaluations_are_counted() {
    let bench = Bench::new(MissedPolicy::Skip);
    let first = record_once(&bench);
    bench.run(first + 10);
    bench.run(first + 47);
    let expected = [(first, 7.0), (first + 10, 7.0), (first + 40, 7.0)];
    assert_eq!(bench.samples(ORG, "y"), expected);
    assert_eq!((bench.view().missed, bench.engine.counters().missed), (2, 2));
    assert_eq!(bench.view().rules[0].health, RuleHealth::Ok);
}

#[test]
fn missed_evaluations_are_made_up_for_if_so_configured() {
    let bench = Bench::new(MissedPolicy::CatchUp { ms_max: 20_000 });
    let first = record_once(&bench);
    bench.run(first + 50);
    let times: Vec<i64> = bench.samples(ORG, "y").iter().map(|(time, _)| *time - first).collect();
    assert_eq!(times, [0, 30, 40, 50]);
    assert_eq!(bench.engine.counters().missed, 2);
}

#[test]
fn the_series_of_a_removed_group_end_unless_another_group_continues_them() {
    let bench = Bench::new(MissedPolicy::Skip);
    bench.put("x", 0, 7.0);
    bench.put("x", 60, 7.0);
    bench.set(&["{name: g, interval: 10s, rules: [{record: y, expr: x}, {record: z, expr: x}]}"]);
    bench.run(0);
    let first = first_after(0);
    bench.run(first);
    bench.set(&["{name: h, interval: 10s, rules: [{record: z, expr: x}]}"]);
    assert_eq!(bench.engine.groups(ORG).len(), 1);
    for seconds in first..first + 60 {
        bench.run(seconds);
    }
    assert_eq!(bench.samples(ORG, "y"), [(first, 7.0), (first + 20, -1.0)]);
    assert!(bench.samples(ORG, "z").iter().all(|(_, value)| *value == 7.0), "continued");
    assert_eq!(bench.engine.counters().groups, 1);
}

#[test]
fn series_of_removed_groups_and_rules_end_when_the_engine_stops_before() {
    for (change, is_edit) in [(&[][..], false), (&["{name: g, interval: 10s, rules: []}"][..], true)] {
        let bench = Bench::new(MissedPolicy::Skip);
        let first = record_once(&bench);
        bench.run(first + 3);
        bench.set(change);
        bench.engine.stop();
        assert_eq!(bench.samples(ORG, "y"), [(first, 7.0), (first + 3, -1.0)], "edit: {is_edit}");
        bench.engine.stop();
        assert_eq!(bench.samples(ORG, "y").len(), 2);
    }
}

#[test]
fn alerts_are_sent_each_minute_while_they_fire_and_for_15_minutes_after_their_end() {
    let bench = Bench::new(MissedPolicy::Skip);
    bench.set(&["{name: g, interval: 10s, rules: [{alert: A, expr: x > 0, annotations: {a: b}}]}"]);
    bench.run(0);
    let first = first_after(0);
    for step in 0..150 {
        let now = first + step * 10;
        bench.put("x", now, if step < 13 { 1.0 } else { 0.0 });
        bench.run(now);
    }
    let sent = bench.sent.0.lock().expect("no panic");
    let firing: Vec<i64> = sent
        .iter()
        .filter(|(_, alert, _)| !alert.resolved)
        .map(|(_, _, now)| now.ms_since(at(first)) / 1_000)
        .collect();
    assert_eq!(firing, [0, 60, 120]);
    let (_, alert, now) = &sent[0];
    assert_eq!((alert.starts_at, alert.ends_at.ms_since(*now)), (at(first), 240_000));
    let resolved: Vec<i64> = sent
        .iter()
        .filter(|(_, alert, _)| alert.resolved)
        .map(|(_, _, now)| now.ms_since(at(first)) / 1_000)
        .collect();
    assert_eq!(resolved, (0..=15).map(|minute| 130 + minute * 60).collect::<Vec<_>>());
    assert!(
        sent.iter()
            .filter(|(_, alert, _)| alert.resolved)
            .all(|(_, alert, _)| alert.ends_at == at(first + 130))
    );
}

#[test]
fn an_organisation_sees_only_its_own_groups_and_samples() {
    let bench = Bench::new(MissedPolicy::Skip);
    bench.put("x", 0, 7.0);
    bench.set(&[RECORD]);
    bench.engine.set_group(OrgId(2), api(), group(RECORD));
    bench.run(0);
    bench.run(first_after(0));
    assert_eq!(bench.samples(ORG, "y").len(), 1);
    assert_eq!(bench.samples(OrgId(2), "y").len(), 0);
    bench.engine.forget_org(OrgId(2));
    assert_eq!((bench.engine.groups(OrgId(2)).len(), bench.engine.groups(ORG).len()), (0, 1));
}

#[test]
fn each_organisation_with_groups_is_listed_once() {
    let bench = Bench::new(MissedPolicy::Skip);
    let file = RuleSource::File(Arc::from("rules.yml"));
    for (org, source) in [(u32::MAX, api()), (7, file.clone()), (7, api()), (1, file), (300, api())] {
        bench.engine.set_group(OrgId(org), source, group(RECORD));
    }
    assert_eq!(bench.engine.orgs(), [1, 7, 300, u32::MAX].map(OrgId));
}

#[test]
fn a_removed_group_of_a_deleted_organisation_writes_no_end_of_its_series() {
    let bench = Bench::new(MissedPolicy::Skip);
    let first = record_once(&bench);
    bench.set(&[]);
    assert_eq!(bench.engine.keys(), []);
    assert_eq!(bench.engine.orgs(), [ORG], "the end of its series is planned");
    bench.engine.forget_org(ORG);
    assert_eq!(bench.engine.orgs(), []);
    bench.run(first + 60);
    assert_eq!(bench.samples(ORG, "y"), [(first, 7.0)]);
}

#[test]
fn threads_evaluate_groups_and_stop_at_once() {
    let bench = Bench::new(MissedPolicy::Skip);
    bench.put("x", 0, 7.0);
    bench.set(&[RECORD]);
    bench.engine.start(2).expect("threads");
    let Clock::Manual(ms) = &bench.engine.parts.clock else { return };
    let done = |count: usize| {
        (0..30_000).any(|_| {
            std::thread::sleep(Duration::from_millis(2));
            bench.samples(ORG, "y").len() >= count
        })
    };
    for step in 1..=3 {
        std::thread::sleep(Duration::from_millis(20));
        ms.store(at(first_after(0) + step * 10).as_ms(), Ordering::SeqCst);
        bench.engine.wake.notify_all();
        assert!(done(usize::try_from(step).expect("small") - 1), "evaluation {step}");
    }
    bench.engine.stop();
}

const ALERTS: &str = "
name: g
interval: 10s
rules:
- {record: y, expr: x * 2}
- {alert: A, expr: y > 2, for: 20s, keep_firing_for: 30s, labels: {value: '{{ $value }}'}}
- {alert: B, expr: absent(x), for: 40s}
";

/// Returns the state of all alerts, without the times of sendings.
fn states(engine: &RuleEngine) -> Vec<String> {
    let views = engine.groups(ORG);
    let alerts = views.iter().flat_map(|view| view.rules.iter()).flat_map(|rule| rule.alerts.iter());
    let show = |alert: &crate::rules::RuleAlert| {
        format!(
            "{} {:?} {:?} {:?} {:?}",
            alert.labels, alert.phase, alert.active_at, alert.fired_at, alert.keep_firing_since
        )
    };
    alerts.map(show).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::model::effort::rounds(8, 256)))]

    #[test]
    fn state_survives_restarts_and_jumps_of_the_clock(
        steps in proptest::collection::vec((0..4u8, 0..20u8), 1..60),
    ) {
        let mut bench = Bench::new(MissedPolicy::Skip);
        bench.set(&[ALERTS]);
        bench.run(0);
        let mut now = 1;
        for (value, event) in steps {
            let back = now;
            match event {
                0 => bench.restart(&[ALERTS]),
                1 => now += 3_600,
                2 => now -= 3_600,
                _ => {}
            }
            if event == 0 {
                let before = states(&bench.engine);
                prop_assert!(before.is_empty());
            }
            let value = if value == 0 { stale_nan() } else { f64::from(value) };
            if event != 2 {
                bench.put("x", now, value);
            }
            bench.run(now);
            let live = states(&bench.engine);
            let other = engine(&bench.tsdb, &bench.sent, MissedPolicy::Skip);
            other.set_groups(ORG, &api(), vec![group(ALERTS)]);
            let reached = bench.view().last_evaluation.map_or(at(now), |last| last.max(at(now)));
            other.run_due(reached);
            prop_assert_eq!(states(&other), live, "at {}", now);
            now = back.max(now) + 10;
        }
        prop_assert!(bench.view().rules.iter().all(|rule| !matches!(rule.health, RuleHealth::Failed(_))));
    }
}
