//! Background work of the store: `cargo bench --bench upkeep [series] [samples of each] [seals]`.
//!
//! Data: targets of 200 series (10 labels each, scraped every 15 s, each target with its own
//! phase); counters, one-decimal gauges, constants and floats in equal parts. Printed, in CPU time
//! of all threads and of the kernel for them: nanoseconds per sample to ingest, seal and merge;
//! bytes per sample in segments, and bytes written.

#[path = "common/cpu_time.rs"]
mod cpu_time;

use std::sync::Arc;

use promlet::entropy::Entropy;
use promlet::kv::{Control, ControlOptions, DataFolder};
use promlet::model::{BatchBuilder, Labels, OrgId, Sample, Timestamp};
use promlet::tsdb::{Home, Options, Tsdb};

const ORG: OrgId = OrgId(1);
const START: Timestamp = Timestamp::from_s(1_795_000_000);
const TARGET: u32 = 200;
const REQUEST: u32 = 2_000;

fn labels(i: u32) -> Labels {
    let (target, metric) = (i / TARGET, i % TARGET);
    let pairs = [
        ("__name__", format!("shop_metric_{}_total", metric / 8)),
        ("instance", format!("10.{}.{}.{}:9100", target / 62_500, target / 250 % 250, target % 250)),
        ("job", format!("service-{}", target % 20)),
        ("pod", format!("service-{}-7d9f8b6c5-{target:05}", target % 20)),
        ("namespace", format!("team-{}", target % 8)),
        ("node", format!("worker-{:03}", target % 50)),
        ("cluster", "eu-central".to_owned()),
        ("method", ["GET", "POST", "PUT", "DELETE"][metric as usize % 4].to_owned()),
        ("code", ["200", "404"][metric as usize / 4 % 2].to_owned()),
        ("handler", format!("/api/v1/resource/{}", metric / 16)),
    ];
    Labels::from_pairs(pairs)
}

fn value(i: u32, n: i64) -> f64 {
    let seed = (u64::from(i) * 0x9e37_79b9_7f4a_7c15) ^ (n as u64).wrapping_mul(0xd134_2543_de82_ef95);
    let random = (seed ^ seed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
    match i % 4 {
        0 => (n * 37 + (random % 11) as i64) as f64,
        1 => (500 + random % 100) as f64 / 10.0,
        2 => f64::from(i % 7),
        _ => n as f64 * 0.02 * f64::from(1 + i % 3) + random as f64 * 1e-10,
    }
}

fn cpu() -> f64 {
    cpu_time::cpu_s(std::process::id()).expect("Linux")
}

/// Returns the number of bytes that the process has written to the file system.
fn written() -> f64 {
    let text = std::fs::read_to_string("/proc/self/io").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: ")).expect("a line");
    line.parse().expect("a number")
}

struct Measurement {
    cpu: f64,
    written: f64,
}

impl Measurement {
    fn start() -> Measurement {
        Measurement { cpu: cpu(), written: written() }
    }

    fn print(self, what: &str, samples: f64) {
        let (ns, bytes) = ((cpu() - self.cpu) * 1e9 / samples, (written() - self.written) / samples);
        println!("{ns:>10.1} ns  {bytes:>8.2} B written  {what}, each of {samples} samples");
    }
}

fn main() {
    let asked: Vec<i64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let (series, rounds, seals) = match *asked.as_slice() {
        [series, rounds, seals] => (u32::try_from(series).expect("few"), rounds, seals),
        _ => (100_000, 40, 1),
    };
    let dir = tempfile::tempdir().expect("a folder");
    let folder = DataFolder::open(dir.path(), START, &mut Entropy::seeded(1)).expect("a folder");
    let options = ControlOptions { now: START, users_table: 1 };
    let (control, _) = Control::open(&folder, &options).expect("accounts");
    let home = Home { dir: dir.path(), store: folder.store_id(), control: Arc::new(control) };
    let options = Options { ahead_max: None, ..Options::default() };
    let (store, _) = Tsdb::open(home, options, &mut Entropy::seeded(1), START).expect("opens");

    let requests: Vec<u32> = (0..series).step_by(REQUEST as usize).collect();
    let builders: Vec<BatchBuilder> = requests
        .iter()
        .map(|first| {
            let mut batch = BatchBuilder::default();
            for i in *first..(first + REQUEST).min(series) {
                batch.series(&labels(i), [Sample { at: START, value: 0.0 }]);
            }
            batch
        })
        .collect();
    let mut batches: Vec<_> = builders.iter().map(BatchBuilder::batch).collect();
    let mut round = |n: i64| {
        for (first, batch) in requests.iter().zip(&mut batches) {
            for (i, sample) in (*first..).zip(batch.samples.iter_mut()) {
                let phase = i64::from(i / TARGET) * 7_919 % 15_000;
                *sample = Sample { at: START.plus_ms(n * 15_000 + phase), value: value(i, n) };
            }
            store.append(ORG, batch, START).expect("stored");
        }
    };
    round(0);
    let mut done = 1;
    let every = rounds / seals;
    for number in 1..=seals {
        let measurement = Measurement::start();
        let before = done;
        while done < number * every {
            round(done);
            done += 1;
        }
        measurement.print("taken in", f64::from(series) * (done - before).max(1) as f64);
        let measurement = Measurement::start();
        let report = store.seal(START.plus_ms(done * 15_000)).expect("sealed");
        measurement.print("sealed", report.samples as f64);
        println!("{:>28.3} B a sample of the segments", report.bytes as f64 / report.samples as f64);
    }
    if seals > 1 {
        let measurement = Measurement::start();
        let report = store.compact(START.plus_ms(done * 15_000)).expect("merged");
        let stats = store.stats();
        measurement.print("merged", stats.sealed_samples as f64);
        println!(
            "{:>28.3} B a sample of the segments, {} jobs",
            stats.segment_bytes as f64 / stats.sealed_samples as f64,
            report.jobs
        );
    }
}
