//! Joins with static pairs compared with joins step by step.

use proptest::prelude::*;

use crate::model::effort::rounds;
use crate::model::{Access, BatchBuilder, Labels, OrgId, Sample, Steps, Timestamp};
use crate::promql::syntax::{Caps, parse};
use crate::promql::{Budget, Options, Query, run};
use crate::tsdb::{Snapshot, Tsdb};

const STEPS: i64 = 20;
const STEP_S: i64 = 30;

/// A series: indices of its label values, its first and last step, its first value.
type SeriesSpec = ([usize; 4], (i64, i64), i32);

fn series(most: usize) -> impl Strategy<Value = Vec<SeriesSpec>> {
    let labels = [0usize..6, 0..3, 0..4, 0..3];
    prop::collection::vec((labels, (-8..8i64, 8..28i64), -3..4i32), 1..most)
}

/// Returns series of both sides, and two with one signature that are never present together.
fn store(many: &[SeriesSpec], one: &[SeriesSpec]) -> Snapshot {
    let mut batch = BatchBuilder::default();
    let mut put = |pairs: &[(&str, &str)], (first, last): (i64, i64), value: i32| {
        let at = |step: i64| Timestamp::from_s(1_000 + step * STEP_S);
        let sample = |step| Sample { at: at(step), value: f64::from(value) + (step % 5) as f64 };
        batch.series(&Labels::from_pairs(pairs.iter().copied()), (first..=last).map(sample));
    };
    let text = |kind: &str, value: usize| if value == 0 { String::new() } else { format!("{kind}{value}") };
    for (number, ([pod, node, zone, name], shown, value)) in many.iter().enumerate() {
        let (pod, node, zone) = (text("p", *pod), text("n", *node), text("z", *zone));
        let id = (number % 11).to_string();
        let name = ["a", "a", "ab"][*name];
        let pairs = [("__name__", name), ("id", &id), ("node", &node), ("pod", &pod), ("zone", &zone)];
        put(&pairs, *shown, *value);
    }
    for ([pod, node, kind, name], shown, value) in one {
        let (pod, node, kind) = (text("p", *pod), text("n", *node), text("k", *kind));
        let name = ["b", "b", "bb"][*name];
        put(&[("__name__", name), ("kind", &kind), ("node", &node), ("pod", &pod)], *shown, *value);
    }
    put(&[("__name__", "c"), ("pod", "none")], (0, 3), 1);
    put(&[("__name__", "cc"), ("pod", "none")], (15, 19), 1);
    let store = Tsdb::scaffold();
    store.append(OrgId(1), &batch.batch(), Timestamp::from_s(10_000)).expect("stored");
    store.snapshot(&Access::whole(OrgId(1)))
}

fn render(text: &str, snapshot: &Snapshot, instant: bool, delayed_name_removal: bool) -> String {
    let expr = parse(text, &Caps::default()).expect("an expression").expr;
    let (first, last) = (Timestamp::from_s(1_000), Timestamp::from_s(1_000 + STEPS * STEP_S));
    let steps = Steps::new(first, if instant { first } else { last }, STEP_S * 1_000).expect("a grid");
    let query = Query { expr: expr.into(), text: "".into(), steps, instant };
    let options = Options { lookback_ms: STEP_S * 1_000, delayed_name_removal, ..Options::default() };
    match run(&query, snapshot, &options, &Budget::default()) {
        Ok(answer) => format!("{:?} {:?}", answer.value, answer.annotations),
        Err(error) => error.to_string(),
    }
}

/// Joins with `A` for the many side and `B` for the one side.
const JOINS: [&str; 15] = [
    "A * on (pod) group_left () B",
    "A * on (pod) group_left (node) B",
    "A / on (pod) group_left (node, kind, node) B",
    "B - on (pod) group_right (kind) A",
    "B / on (pod) group_right () A",
    "A > on (pod) group_left (node) B",
    "A == bool on (pod) group_left (kind) B",
    "B <= on (pod, node) group_right (zone) A",
    "A ^ on (pod, node) group_left (kind, id) B",
    "A + on (pod) group_left (__name__) B",
    "sum by (node) (A * on (pod) group_left (node) B)",
    "count by (kind, node) (A * on (pod) group_left (kind) (B > 0))",
    "A * ignoring (id, zone, kind) group_left (kind) B",
    "max by (pod) (A) - on (pod) B",
    "max by (pod, node, kind) (A) < B",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rounds(6, 48)))]

    /// Two series of one signature that match nothing are added to the one side; they force the
    /// evaluation step by step.
    #[test]
    fn static_pairs_give_the_results_of_pairs_matched_step_by_step(
        many in series(60),
        one in series(9),
        (instant, delayed) in (any::<bool>(), any::<bool>()),
    ) {
        let snapshot = store(&many, &one);
        for join in JOINS {
            for (a, b) in [("a", "b"), ("{__name__=~\"a.*\"}", "b"), ("a", "{__name__=~\"b.*\"}")] {
                let of = |b: &str| join.replace('A', a).replace('B', b);
                let plain = render(&of(b), &snapshot, instant, delayed);
                let stepwise = render(&of(&format!("({b} or {{__name__=~\"cc?\"}})")), &snapshot, instant, delayed);
                prop_assert_eq!(plain, stepwise, "{}", of(b));
            }
        }
    }
}
