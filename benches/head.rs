//! A million active series at the end of a window: `cargo bench --bench head` (`-- 100000` for
//! fewer series).
//!
//! Data: as in the bench `append`, 10 labels each, 10,000 targets; one sample each 15 s for 31
//! minutes, in requests of 2,000 series; counters, one-decimal gauges and constants in equal parts.
//! Printed: bytes per series, by the growth of the process's anonymous memory and by the store's
//! own count; nanoseconds per sample and per series; seconds until the store is open.

#[path = "../tests/binary/process_stats.rs"]
mod process_stats;

use std::sync::Arc;

use promlet::clock::Stopwatch;
use promlet::entropy::Entropy;
use promlet::kv::{Control, ControlOptions, DataFolder};
use promlet::model::{
    Access, BatchBuilder, Labels, MatchOp, Matcher, OrgId, Sample, TimeRange, Timestamp, WriteBatch,
};
use promlet::tsdb::{Home, Options, SampleColumns, Tsdb};

const REQUEST: u32 = 2_000;
/// Half an hour, and the minute until it is sealed.
const ROUNDS: i64 = 124;
/// The number of rounds in the log of the second part.
const LOGGED: i64 = 10;
const ORG: OrgId = OrgId(1);
const START: Timestamp = Timestamp::from_s(1_795_000_000);

fn labels(i: u32) -> Labels {
    let (target, metric) = (i / 100, i % 100);
    let pairs = [
        ("__name__", format!("shop_metric_{metric}_total")),
        ("instance", format!("10.0.{}.{}:9100", target / 250, target % 250)),
        ("job", format!("service-{}", target % 20)),
        ("pod", format!("service-{}-7d9f8b6c5-{target:05}", target % 20)),
        ("namespace", format!("team-{}", target % 8)),
        ("node", format!("worker-{:03}", target % 50)),
        ("cluster", "eu-central".to_owned()),
        ("method", ["GET", "POST", "PUT", "DELETE"][metric as usize % 4].to_owned()),
        ("code", ["200", "204", "404", "500"][metric as usize / 4 % 4].to_owned()),
        ("handler", format!("/api/v1/resource/{}", metric / 16)),
    ];
    Labels::from_pairs(pairs)
}

fn builders(series: u32) -> Vec<BatchBuilder> {
    let request = |first: u32| {
        let mut batch = BatchBuilder::default();
        for i in first..(first + REQUEST).min(series) {
            batch.series(&labels(i), [Sample { at: START, value: 0.0 }]);
        }
        batch
    };
    (0..series).step_by(REQUEST as usize).map(request).collect()
}

fn round(store: &Tsdb, batches: &mut [WriteBatch<'_>], round: i64) {
    let at = START.plus_ms(round * 15_000);
    for batch in batches {
        for (place, sample) in batch.samples.iter_mut().enumerate() {
            let seed = place as i64 * 7_919 + round * 104_729;
            sample.at = at;
            sample.value = match place % 3 {
                0 => (round * 37 + seed % 11) as f64,
                1 => (seed % 1_000) as f64 / 10.0,
                _ => 1.0,
            };
        }
        store.append(ORG, batch, at).expect("stored");
    }
}

/// Returns the anonymous memory of this process in bytes.
fn anonymous() -> f64 {
    process_stats::status_bytes(std::process::id(), "RssAnon").expect("Linux") as f64
}

fn print_figure(what: &str, value: f64, unit: &str) {
    println!("{value:>10.1} {unit:<11} {what}");
}

fn seconds(watch: Stopwatch) -> f64 {
    watch.elapsed().as_secs_f64()
}

fn memory(batches: &mut [WriteBatch<'_>], series: f64) {
    let before = anonymous();
    let store = Tsdb::scaffold();
    let watch = Stopwatch::start();
    round(&store, batches, 0);
    print_figure("a new series: parsed, found to be new, added", seconds(watch) * 1e9 / series, "ns");
    let names = anonymous() - before;
    let watch = Stopwatch::start();
    (1..ROUNDS).for_each(|n| round(&store, batches, n));
    let samples = series * (ROUNDS - 1) as f64;
    print_figure(
        "a sample: look-up, encode, decode, apply; one caller",
        seconds(watch) * 1e9 / samples,
        "ns",
    );
    let stats = store.stats();
    print_figure("memory grew by, after one sample each", names / series, "B a series");
    print_figure("memory grew by, after 31 minutes", (anonymous() - before) / series, "B a series");
    print_figure("accounted: head", stats.head_bytes as f64 / series, "B a series");
    print_figure("accounted: head and names", stats.orgs[0].memory_bytes as f64 / series, "B a series");
    queries(&store, series);
}

fn queries(store: &Tsdb, series: f64) {
    let snapshot = store.snapshot(&Access::whole(ORG));
    let equal = |name: &str, value: &str| Matcher::new(name, MatchOp::Equal, value).expect("valid");
    let watch = Stopwatch::start();
    let selected = snapshot
        .select(&[equal("__name__", "shop_metric_7_total"), equal("job", "service-3")], TimeRange::ALL);
    print_figure("one metric of one job selected", seconds(watch) * 1e6, "us");
    let mut out = SampleColumns::default();
    let watch = Stopwatch::start();
    let mut samples = 0;
    for found in &selected {
        snapshot.read(found.id, TimeRange::ALL, &mut out);
        samples += out.times.len();
    }
    print_figure("a sample read", seconds(watch) * 1e9 / samples as f64, "ns");
    let watch = Stopwatch::start();
    let all = snapshot.select(&[equal("job", "service-3")], TimeRange::ALL);
    print_figure(
        "one job of all metrics selected and sorted",
        seconds(watch) * 1e9 / all.len() as f64,
        "ns a series",
    );
    let watch = Stopwatch::start();
    assert!(snapshot.select(&[equal("method", "OPTIONS")], TimeRange::ALL).is_empty());
    print_figure(
        "all series scanned for a value that none has",
        seconds(watch) * 1e9 / series,
        "ns a series",
    );
    let watch = Stopwatch::start();
    let pace = promlet::model::Pace::endless();
    let values =
        snapshot.paced(&pace).label_values("pod", &[], TimeRange::ALL, 20_000).expect("it never stops");
    print_figure("values of a label", seconds(watch) * 1e3, "ms");
    assert!(!values.items.is_empty());
}

fn starts(batches: &mut [WriteBatch<'_>], series: f64) {
    let dir = tempfile::tempdir().expect("a folder");
    let open = || {
        let folder = DataFolder::open(dir.path(), START, &mut Entropy::seeded(1)).expect("a folder");
        let (control, _) =
            Control::open(&folder, &ControlOptions { now: START, users_table: 1 }).expect("accounts");
        let home = Home { dir: dir.path(), store: folder.store_id(), control: Arc::new(control) };
        let before = anonymous();
        let watch = Stopwatch::start();
        let (store, report) =
            Tsdb::open(home, Options::default(), &mut Entropy::seeded(1), START).expect("opens");
        let took = seconds(watch);
        assert_eq!(report.read_only, None);
        ((store, folder), report, took, (anonymous() - before) / series)
    };
    let ((store, folder), ..) = open();
    (0..LOGGED).for_each(|n| round(&store, batches, n));
    drop((store, folder));
    let ((store, folder), report, took, grown) = open();
    print_figure("ready from the log alone", took, "s");
    print_figure("of it", took * 1e9 / report.samples as f64, "ns a sample");
    print_figure("memory grew by", grown, "B a series");
    let now = START.plus_ms(LOGGED * 15_000);
    store.checkpoint().expect("made");
    drop((store, folder));
    let ((store, folder), _, took, _) = open();
    print_figure("ready from a checkpoint", took, "s");
    store.seal(now).expect("sealed");
    // As at a clean stop: the samples of the previous checkpoint are in segments now.
    store.checkpoint().expect("made");
    drop((store, folder));
    let (_, report, took, _) = open();
    print_figure("ready after everything was sealed", took, "s");
    assert_eq!(report.series as f64, series);
}

/// Runs each part in a process of its own, because one part would reuse the memory that another
/// freed and seem to need none.
fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let asked = words.iter().find_map(|word| word.parse().ok());
    let series: u32 = asked.unwrap_or(1_000_000);
    let parts = ["memory", "starts"];
    let Some(part) = words.iter().find(|word| parts.contains(&word.as_str())) else {
        println!("{series} series");
        for part in parts {
            let mut run = std::process::Command::new(std::env::current_exe().expect("this bench"));
            assert!(run.args([part, &series.to_string()]).status().expect("runs").success(), "{part} failed");
        }
        return;
    };
    let builders = builders(series);
    let mut batches: Vec<WriteBatch<'_>> = builders.iter().map(BatchBuilder::batch).collect();
    if part == "memory" {
        memory(&mut batches, f64::from(series));
    } else {
        starts(&mut batches, f64::from(series));
    }
}
