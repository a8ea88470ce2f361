//! Plans as their readers see them: words, expectations, what came of them.

use super::*;
use crate::model::{Access, BatchBuilder, Labels, OrgId, Sample, Steps, Timestamp};
use crate::promql::syntax::{Caps, parse};
use crate::promql::{Value, run};
use crate::tsdb::Tsdb;

/// Twelve series `n{job,i}` of two jobs with a sample each minute for an hour, and one `m`.
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
    Query { expr, text: text.to_owned(), steps, instant: false }
}

fn explained(text: &str) -> (Answer, PlanNode) {
    explain(&query(text), &store(), &Options::default(), &Budget::default()).expect("answers")
}

/// A node as a line: words, estimated and actual series and samples.
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
    assert_eq!(format!("{:?}", answer.value), format!("{:?}", plain.value), "explaining changes nothing");
    assert_eq!(answer.stats, plain.stats);
}

#[test]
fn a_plan_tells_what_it_expected_and_what_it_found() {
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
fn subqueries_constants_and_what_is_hoisted_have_their_place() {
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
fn an_estimate_is_what_an_explanation_begins_with() {
    for text in ["n", "sum(rate(n[5m]))", "n / on () group_left () m"] {
        let reckoned =
            estimate(&query(text), &store(), &Options::default(), &Budget::default()).expect("reckons");
        let (answer, root) = explained(text);
        assert_eq!(
            (reckoned.series, reckoned.samples, reckoned.memory_bytes),
            (root.series, root.samples, root.memory_bytes)
        );
        let Value::Matrix(series) = answer.value else { panic!("a range answers a matrix") };
        assert_eq!(reckoned.series, series.len() as u64, "{text}");
        assert_eq!(reckoned.samples, answer.stats.samples, "{text}: every series has as many samples");
        assert!(reckoned.memory_bytes >= answer.stats.peak_memory_bytes, "{text}: {reckoned:?}");
    }
}

#[test]
fn an_estimate_reads_a_few_series_only() {
    let asked = std::cell::Cell::new(0);
    let expired = || {
        asked.set(asked.get() + 1);
        false
    };
    let budget = Budget { expired: Some(&expired), ..Budget::default() };
    let all = query("{__name__=~\"n|m\"}");
    estimate(&all, &store(), &Options::default(), &budget).expect("reckons");
    assert!(asked.get() <= 16 + 2, "{}", asked.get());
    let options = Options {
        limits: super::super::Limits { series_max: 12, ..Default::default() },
        ..Options::default()
    };
    let refused = estimate(&all, &store(), &options, &Budget::default()).expect_err("too many");
    assert_eq!(refused, QueryError::TooManySeries { found: 13, allowed: 12 });
}
