//! The cost of label listings in a store of 1,000,000 series: 1,000 metrics on 1,000 instances.
//!
//! `cargo bench --bench listings -- [instances] [metrics]`

use std::hint::black_box;

use promlet::clock::Stopwatch;
use promlet::model::{Access, BatchBuilder, Labels, Matcher, OrgId, Pace, Sample, TimeRange, Timestamp};
use promlet::tsdb::{MetricFilter, Options, Tsdb};

const NOW: Timestamp = Timestamp::from_s(1_800_000_000);
const ORG: OrgId = OrgId(1);
const NEVER_STOPS: &str = "this pace never stops";

fn main() {
    let mut numbers = std::env::args().filter_map(|text| text.parse::<usize>().ok());
    let instances = numbers.next().unwrap_or(1_000);
    let metrics = numbers.next().unwrap_or(1_000);
    let tsdb = Tsdb::in_memory(Options::default(), [0; 32]);
    for instance in 0..instances {
        let mut batch = BatchBuilder::default();
        for metric in 0..metrics {
            let labels = [
                ("__name__", format!("metric_{metric:04}_total")),
                ("instance", format!("10.0.{}.{}:9100", instance / 250, instance % 250)),
                ("job", format!("job_{}", instance % 10)),
                ("path", format!("/api/v1/{}", (metric * 31 + instance) % 100)),
            ];
            batch.series(&Labels::from_pairs(labels), [Sample { at: NOW, value: 1.0 }]);
        }
        tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
    }
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let pace = Pace::endless();
    let snapshot = snapshot.paced(&pace);
    let series = instances * metrics;
    let all = usize::MAX;
    let recent = TimeRange::new(NOW.plus_ms(-3_600_000), NOW);
    let one = [vec![Matcher::equal("__name__", "metric_0007_total")]];
    let job = [vec![Matcher::equal("job", "job_7")]];
    let measure = |what: &str, question: &dyn Fn() -> usize| {
        let mut best = f64::INFINITY;
        let mut found = 0;
        for _ in 0..5 {
            let watch = Stopwatch::start();
            found = black_box(question());
            best = best.min(watch.elapsed_ms());
        }
        println!("{what:<34} {best:>10.3} ms, {found} of {series} series");
    };
    measure("label names, all of time", &|| {
        snapshot.label_names(&[], TimeRange::ALL, all).expect(NEVER_STOPS).items.len()
    });
    measure("label names, an hour", &|| {
        snapshot.label_names(&[], recent, all).expect(NEVER_STOPS).items.len()
    });
    measure("metric names, an hour", &|| {
        snapshot.label_values("__name__", &[], recent, all).expect(NEVER_STOPS).items.len()
    });
    measure("instances, an hour", &|| {
        snapshot.label_values("instance", &[], recent, all).expect(NEVER_STOPS).items.len()
    });
    measure("paths, an hour", &|| {
        snapshot.label_values("path", &[], recent, all).expect(NEVER_STOPS).items.len()
    });
    measure("instances of a metric, an hour", &|| {
        snapshot.label_values("instance", &one, recent, all).expect(NEVER_STOPS).items.len()
    });
    measure("metric names of a job, an hour", &|| {
        snapshot.label_values("__name__", &job, recent, all).expect(NEVER_STOPS).items.len()
    });
    measure("series of a metric, an hour", &|| {
        snapshot.series(&one, recent, all).expect(NEVER_STOPS).items.len()
    });
    measure("series of a job, an hour", &|| {
        snapshot.series(&job, recent, all).expect(NEVER_STOPS).items.len()
    });
    measure("metrics, an hour", &|| {
        snapshot.metrics(&MetricFilter::default(), recent, all).expect(NEVER_STOPS).items.len()
    });
}
