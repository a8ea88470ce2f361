//! Explained plans as clients see them: texts, estimates and actual costs.

use super::*;
use crate::model::{Access, BatchBuilder, Labels, OrgId, Sample, Steps, Timestamp};
use crate::promql::syntax::{Caps, parse};
use crate::promql::{Value, run};
use crate::tsdb::Tsdb;

/// Returns a store with twelve series `n{job,i}` of two jobs, with a sample each minute for an
/// hour, and one series `m`.
fn store() -> Snapshot {
    let store = Tsdb::scaffold();
    let mut batch = BatchBuilder::default();
    let samples = |value: f64| (0..60).map(move |m| Sample { at: Timestamp::from_s(m * 60), value });
    for i in 0..12 {
        let job = if i % 3 == 0 { "a" } else { "b" };
        let labels = Labels::from_pairs([("__name__", "n"), ("job", job), ("i", i.to_string().as_str())]);
        batch.series(&labels, samples(f64::from(i)));
    }
    batch.series(&Labels::from_pairs([("__name__", "m")]), samples(1.0));
    store.append(OrgId(7), &batch.batch(), Timestamp::from_s(3_600)).expect("stored");
    store.snapshot(&Access::whole(OrgId(7)))
}

fn query(text: &str) -> Query {
    let expr = parse(text, &Caps::default()).expect("parses").expr;
    let steps = Steps::new(Timestamp::from_s(600), Timestamp::from_s(1_200), 60_000).expect("a grid");
    Query { expr: expr.into(), text: text.into(), steps, instant: false }
}

fn explained(text: &str) -> (QueryResult, PlanNode) {
    explain(&query(text), &store(), &Options::default(), &Budget::default()).expect("answers")
}

/// Appends a line for each node: its text, and its estimated and actual series and samples.
fn lines(node: &PlanNode, depth: usize, out: &mut Vec<String>) {
    let actual = node.actual.map_or("-".into(), |a| format!("{}, {}", a.series, a.samples));
    out.push(format!("{}{} ({}, {}) ({actual})", "  ".repeat(depth), node.node, node.series, node.samples));
    for input in &node.inputs {
        lines(input, depth + 1, out);
    }
}

fn check(text: &str, expected: &[&str]) {
    let (answer, root) = explained(text);
    let mut found = Vec::new();
    lines(&root, 0, &mut found);
    assert_eq!(found, expected, "{text}");
    let plain = run(&query(text), &store(), &Options::default(), &Budget::default()).expect("answers");
    assert_eq!(
        format!("{:?}", answer.value),
        format!("{:?}", plain.value),
        "an explanation does not change the result"
    );
    assert_eq!(answer.stats, plain.stats);
}

#[test]
fn an_explanation_has_estimated_and_actual_costs_of_each_node() {
    check(
        "sum by (job) (rate(n[5m] offset 1m))",
        &[
            "sum by (job) (2, 180) (2, 180)",
            "  rate (12, 180) (12, 180)",
            "    n[300s] offset 60s (12, 180) (12, 180)",
        ],
    );
    check(
        "topk(2, n{i=~\"1|2\"}) + on (i) group_left () (m * 0 == bool 1 or n)",
        &[
            "+ on (i) group_left () (2, 225) (2, 225)",
            "  topk (2, 30) (2, 30)",
            "    2 (1, 0) (-)",
            "    n{i=~\"1|2\"} (2, 30) (2, 30)",
            "  or (13, 195) (13, 195)",
            "    == bool (1, 15) (1, 15)",
            "      * (1, 15) (1, 15)",
            "        m (1, 15) (1, 15)",
            "        0 (1, 0) (-)",
            "      1 (1, 0) (-)",
            "    n (12, 180) (12, 180)",
        ],
    );
}

#[test]
fn an_explanation_shows_subqueries_constants_and_step_invariant_parts() {
    check(
        "max_over_time(count(n)[10m:5m]) > scalar(n{i=\"1\"} @ 900)",
        &[
            "> (1, 245) (1, 241)",
            "  max_over_time (1, 240) (1, 240)",
            "    subquery [600s:300s] (1, 240) (1, 240)",
            "      count (1, 240) (1, 240)",
            "        n (12, 240) (12, 240)",
            "  once for all steps (1, 5) (1, 1)",
            "    scalar (1, 5) (1, 1)",
            "      n{i=\"1\"} @ 900 (1, 5) (1, 1)",
        ],
    );
    check("vector(1)", &["once for all steps (1, 0) (1, 0)", "  vector (1, 0) (1, 0)", "    1 (1, 0) (-)"]);
    check(
        "1 + 1",
        &["once for all steps (1, 0) (-)", "  + (1, 0) (-)", "    1 (1, 0) (-)", "    1 (1, 0) (-)"],
    );
}

#[test]
fn an_estimate_equals_the_root_of_an_explanation() {
    for text in ["n", "sum(rate(n[5m]))", "n / on () group_left () m"] {
        let estimated =
            estimate(&query(text), &store(), &Options::default(), &Budget::default()).expect("estimates");
        let (answer, root) = explained(text);
        assert_eq!(
            (estimated.series, estimated.samples, estimated.memory_bytes),
            (root.series, root.samples, root.memory_bytes)
        );
        let Value::Matrix(series) = answer.value else { panic!("a range query returns a matrix") };
        assert_eq!(estimated.series, series.len() as u64, "{text}");
        assert_eq!(estimated.samples, answer.stats.samples, "{text}: all series have equally many samples");
        assert!(estimated.memory_bytes >= answer.stats.peak_memory_bytes, "{text}: {estimated:?}");
    }
}

#[test]
fn an_estimate_reads_only_a_few_series() {
    let checks = std::cell::Cell::new(0);
    let expired = || {
        checks.set(checks.get() + 1);
        false
    };
    let budget = Budget { expired: Some(&expired), ..Budget::default() };
    let all = query("{__name__=~\"n|m\"}");
    estimate(&all, &store(), &Options::default(), &budget).expect("estimates");
    assert!(checks.get() <= 16 + 2, "{}", checks.get());
    let options = Options {
        limits: super::super::Limits { series_max: 12, ..Default::default() },
        ..Options::default()
    };
    let refused = estimate(&all, &store(), &options, &Budget::default()).expect_err("too many");
    assert_eq!(refused, QueryError::TooManySeries { found: 13, allowed: 12 });
}
