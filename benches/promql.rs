//! Range queries over a store in memory: `cargo bench --bench promql`.
//!
//! Data: 1,000 counters in 10 groups, a sample each 15 s for 6 hours (1,440 each), one reset each;
//! 1,000 gauges with two decimals; and for each instance an info series with its node. Grid: 361
//! steps of a minute. Printed: milliseconds, millions of result points (series times steps of the
//! innermost vector) per second, and the ratio of the milliseconds to those without wide registers.

use promlet::clock::Stopwatch;
use promlet::model::{Access, BatchBuilder, Labels, OrgId, Sample, Steps, Timestamp};
use promlet::promql::syntax::{Caps, parse};
use promlet::promql::{Budget, Options, Query, run};
use promlet::simd::scalar_only;
use promlet::tsdb::{Snapshot, Tsdb};

const SERIES: u32 = 1_000;
const SAMPLES: i64 = 1_440;

fn store() -> Snapshot {
    let mut batch = BatchBuilder::default();
    for i in 0..SERIES {
        let (id, group) = (i.to_string(), (i % 10).to_string());
        let labels = Labels::from_pairs([
            ("__name__", "requests_total"),
            ("instance", id.as_str()),
            ("group", group.as_str()),
            ("job", "bench"),
            ("le", if i % 2 == 0 { "1" } else { "+Inf" }),
        ]);
        let samples = (0..SAMPLES).map(|n| {
            let at = Timestamp::from_s(n * 15);
            let ahead = (n * i64::from(i % 7 + 1)) % (700 * i64::from(i % 7 + 1));
            Sample { at, value: ahead as f64 }
        });
        batch.series(&labels, samples);
        let labels =
            Labels::from_pairs([("__name__", "load"), ("group", group.as_str()), ("instance", id.as_str())]);
        let samples = (0..SAMPLES).map(|n| {
            let hundredths = (n * 7_919 + i64::from(i) * 31) % 1_000;
            Sample { at: Timestamp::from_s(n * 15), value: hundredths as f64 / 100.0 }
        });
        batch.series(&labels, samples);
        let node = (i % 40).to_string();
        let labels = Labels::from_pairs([
            ("__name__", "instance_info"),
            ("created_by", id.as_str()),
            ("instance", id.as_str()),
            ("job", "state"),
            ("node", node.as_str()),
        ]);
        batch.series(&labels, (0..SAMPLES).map(|n| Sample { at: Timestamp::from_s(n * 15), value: 1.0 }));
    }
    let store = Tsdb::scaffold();
    store.append(OrgId(1), &batch.batch(), Timestamp::from_s(SAMPLES * 15)).expect("stored");
    store.snapshot(&Access::whole(OrgId(1)))
}

fn main() {
    let snapshot = store();
    let steps = Steps::new(Timestamp::from_s(0), Timestamp::from_s(21_600), 60_000).expect("a grid");
    let queries = [
        "requests_total",
        "sum by (group) (requests_total)",
        "sum by (group) (load)",
        "max by (group) (load)",
        "count by (group) (load)",
        "rate(requests_total[5m])",
        "sum by (group) (rate(requests_total[5m]))",
        "sum by (group) (rate(requests_total[1h]))",
        "avg_over_time(requests_total[5m])",
        "avg_over_time(load[5m])",
        "avg_over_time(load[1h])",
        "max_over_time(requests_total[1h])",
        "quantile_over_time(0.9, requests_total[5m])",
        "topk(5, rate(requests_total[5m]))",
        "requests_total / on (instance) group_left sum by (instance) (requests_total)",
        "sum by (node) (rate(requests_total[5m]) * on (instance) group_left (node) instance_info)",
        "count(requests_total * on (instance) group_left (node) instance_info)",
        "count(instance_info * on (instance) group_right (node) requests_total)",
        "count(requests_total / requests_total)",
        "count(requests_total > ignoring (job) requests_total)",
        "count(requests_total and on (instance) instance_info)",
        "count(requests_total unless on (instance) instance_info)",
        "count(requests_total or instance_info)",
        "requests_total > 500",
        "histogram_quantile(0.9, sum by (group, le) (rate(requests_total[5m])))",
        "max_over_time(sum by (group) (rate(requests_total[5m]))[30m:1m])",
    ];
    println!("{:>9}  {:>9}  {:>9}  query", "ms", "M points/s", "of scalar");
    for text in queries {
        let expr = parse(text, &Caps::default()).expect("parses").expr;
        let query = Query { expr: expr.into(), text: text.into(), steps, instant: false };
        let once = || {
            let watch = Stopwatch::start();
            let answer =
                run(&query, &snapshot, &Options::default(), &Budget::default()).expect("has an answer");
            std::hint::black_box(answer);
            watch.elapsed_ms()
        };
        let (mut best, mut scalar) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..5 {
            best = best.min(once());
            scalar = scalar.min(scalar_only(once));
        }
        let points = f64::from(SERIES) * 361.0 / best / 1_000.0;
        println!("{best:>9.2}  {points:>9.1}  {:>9.2}  {text}", best / scalar);
    }
}
