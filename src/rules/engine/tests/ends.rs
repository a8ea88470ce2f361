//! Ends of series of rules that were replaced or removed before a kill.

use super::*;

/// Two rules, of which the second one is removed by an edit.
const TWO: &str = "{name: g, interval: 10s, rules: [{record: y, expr: x}, {record: z, expr: x}]}";
const REST: &str = "{name: g, interval: 10s, rules: [{record: z, expr: x}]}";

impl Bench {
    /// Replaces the engine by a new one, as after a kill, at a time.
    fn kill(&mut self, groups: &[&str], seconds: i64) {
        self.restart(groups);
        self.set_clock(seconds);
    }

    fn set_clock(&self, seconds: i64) {
        let Clock::Manual(ms) = &self.engine.parts.clock else { return };
        ms.store(at(seconds).as_ms(), Ordering::SeqCst);
    }

    /// Plans the end of rules that were replaced or removed.
    fn end_replaced(&self, text: &str, seconds: i64) {
        let source = RuleSource::Replaced(Arc::from("api"));
        let key = RuleGroupKey { org: ORG, source, name: Arc::from("g\n1") };
        self.engine.end_replaced(&key, group(text), at(seconds));
    }

    fn run_each_second(&self, range: std::ops::Range<i64>) {
        for seconds in range {
            self.run(seconds);
        }
    }
}

#[test]
fn the_series_of_a_removed_group_end_after_kills_before_their_end() {
    for (text, expected) in
        [(RECORD, "y"), ("{name: g, interval: 10s, rules: [{alert: A, expr: x}]}", "ALERTS")]
    {
        let mut bench = Bench::new(MissedPolicy::Skip);
        bench.put("x", 0, 7.0);
        bench.set(&[text]);
        bench.run(0);
        let first = first_after(0);
        bench.run(first);
        bench.set(&[]);
        // Two kills, the second one while the end is planned.
        for kill in [5, 8] {
            bench.kill(&[], first + kill);
            bench.end_replaced(text, first + 3);
            assert_eq!((bench.engine.counters().groups, bench.engine.keys()), (0, vec![]));
        }
        bench.run_each_second(first + 8..first + 60);
        let value = bench.samples(ORG, expected)[0].1;
        let ended = [(first, value), (first + 23, -1.0)];
        assert_eq!(bench.samples(ORG, expected), ended);
        // A start after the end plans it again.
        bench.kill(&[], first + 100);
        bench.end_replaced(text, first + 3);
        bench.run_each_second(first + 100..first + 130);
        assert_eq!(bench.samples(ORG, expected), ended);
        assert_eq!(bench.engine.orgs(), []);
    }
}

#[test]
fn an_end_that_is_past_at_the_start_is_written_for_its_time() {
    let mut bench = Bench::new(MissedPolicy::Skip);
    let first = record_once(&bench);
    bench.kill(&[], first + 600);
    bench.end_replaced(RECORD, first + 3);
    bench.run(first + 619);
    assert_eq!(bench.samples(ORG, "y"), [(first, 7.0)], "another group may continue the series");
    bench.run(first + 620);
    assert_eq!(bench.samples(ORG, "y"), [(first, 7.0), (first + 23, -1.0)]);
}

#[test]
fn the_series_of_a_rule_that_an_edit_removed_end_and_the_others_continue() {
    let mut bench = Bench::new(MissedPolicy::Skip);
    for seconds in (0..100).step_by(10) {
        bench.put("x", seconds, 7.0);
    }
    bench.set(&[TWO]);
    bench.run(0);
    let first = first_after(0);
    bench.run(first);
    // The edit is stored, and the process is killed before the next evaluation.
    bench.kill(&[REST], first + 4);
    bench.end_replaced(RECORD, first + 3);
    bench.run_each_second(first + 4..first + 40);
    assert_eq!(bench.samples(ORG, "y"), [(first, 7.0), (first + 23, -1.0)]);
    assert!(bench.samples(ORG, "z").iter().all(|(_, value)| *value == 7.0), "continued");
    assert_eq!(bench.view().rules.len(), 1);
}

#[test]
fn series_that_another_rule_a_client_or_a_new_version_continues_do_not_end() {
    for continuing in ["{name: h, interval: 20s, rules: [{record: y, expr: x}]}", RECORD, ""] {
        let mut bench = Bench::new(MissedPolicy::Skip);
        for seconds in (0..100).step_by(5) {
            bench.put("x", seconds, 7.0);
        }
        bench.set(&[RECORD]);
        bench.run(0);
        let first = first_after(0);
        bench.run(first);
        let groups: Vec<&str> = Some(continuing).into_iter().filter(|text| !text.is_empty()).collect();
        bench.kill(&groups, first + 4);
        bench.end_replaced(RECORD, first + 3);
        if groups.is_empty() {
            bench.put("y", first + 6, 8.0);
        }
        bench.run_each_second(first + 4..first + 60);
        let samples = bench.samples(ORG, "y");
        assert!(samples.len() > 1 && samples.iter().all(|(_, value)| *value > 0.0), "{samples:?}");
    }
}

#[test]
fn an_end_waits_for_a_clock_that_went_back_before_or_after_the_start() {
    for jumps_first in [true, false] {
        let mut bench = Bench::new(MissedPolicy::Skip);
        let first = record_once(&bench);
        bench.kill(&[], if jumps_first { first - 3_000 } else { first + 4 });
        bench.end_replaced(RECORD, first + 3);
        if !jumps_first {
            bench.run(first + 4);
        }
        for seconds in (first - 3_000..first + 22).step_by(100) {
            bench.run(seconds);
        }
        bench.run(first + 22);
        assert_eq!(bench.samples(ORG, "y"), [(first, 7.0)]);
        bench.run(first + 24);
        assert_eq!(bench.samples(ORG, "y"), [(first, 7.0), (first + 23, -1.0)]);
    }
    // A removal in a distant future is not waited for.
    let mut bench = Bench::new(MissedPolicy::Skip);
    let first = record_once(&bench);
    bench.kill(&[], first - 10_000);
    bench.end_replaced(RECORD, first + 3);
    assert_eq!(bench.engine.orgs(), []);
}

#[test]
fn an_organisation_that_is_deleted_after_the_start_gets_no_end_and_alerts_keep_their_state() {
    let mut bench = Bench::new(MissedPolicy::Skip);
    let first = record_once(&bench);
    bench.kill(&[], first + 4);
    bench.end_replaced(RECORD, first + 3);
    assert_eq!(bench.engine.orgs(), [ORG]);
    bench.engine.forget_org(ORG);
    bench.run(first + 60);
    assert_eq!(bench.samples(ORG, "y"), [(first, 7.0)]);

    // The alert is still restored as that of the edited rule, though its new expression is empty.
    let [before, after] = ["x > 1", "x > 9"].map(|expr| {
        format!("{{name: g, interval: 10s, rules: [{{alert: A, expr: '{expr}', keep_firing_for: 1h}}]}}")
    });
    let mut bench = Bench::new(MissedPolicy::Skip);
    bench.put("x", 0, 7.0);
    bench.set(&[before.as_str()]);
    bench.run(0);
    bench.run(first_after(0));
    let live = states(&bench.engine);
    assert_eq!(live.len(), 1);
    bench.kill(&[after.as_str()], first + 4);
    bench.end_replaced(&before, first + 3);
    bench.run(first + 4);
    assert_eq!(states(&bench.engine), live);
    bench.run_each_second(first + 4..first + 60);
    assert!(bench.samples(ORG, "ALERTS").iter().all(|(_, value)| *value == 1.0), "it is kept firing");
}

#[test]
fn no_evaluation_begins_while_a_change_of_its_group_is_stored() {
    let bench = Bench::new(MissedPolicy::Skip);
    let first = record_once(&bench);
    let key = bench.view().key.clone();
    let held = bench.engine.hold(vec![key.clone()]);
    bench.run_each_second(first..first + 13);
    assert_eq!(bench.samples(ORG, "y"), [(first, 7.0)]);
    drop(held);
    bench.run(first + 13);
    assert_eq!(bench.samples(ORG, "y"), [(first, 7.0), (first + 10, 7.0)], "it is late");
    // A removal replaces the evaluation that was held back.
    let held = bench.engine.hold(vec![key.clone()]);
    bench.run(first + 21);
    bench.engine.remove_group(&key);
    drop(held);
    bench.run_each_second(first + 21..first + 60);
    let expected = [(first, 7.0), (first + 10, 7.0), (first + 41, -1.0)];
    assert_eq!(bench.samples(ORG, "y"), expected);
    assert_eq!(bench.engine.counters().missed, 0);
}
