//! The time to open a store of 1,000,000 series after a clean stop, and after a kill: `cargo bench
//! --bench start -- [series] [folder] [starts] [killed]`.
//!
//! Data: targets of 100 series, 10 labels each, four samples a series, with `starts` also a start
//! timestamp a series; sealed, with a last checkpoint, as after a stop of the server. Each start is
//! a process of its own, so that no memory is warm, but the file caches are. Printed: the time of
//! the seal and of the checkpoint of a stop; the time to open the samples, the time to open the
//! accounts before that, and the memory afterwards; for a killed store also the memory while it
//! ran.

#[path = "../tests/binary/process_stats.rs"]
mod process_stats;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use promlet::clock::Stopwatch;
use promlet::entropy::Entropy;
use promlet::kv::{Control, ControlOptions, DataFolder};
use promlet::model::{BatchBuilder, Labels, OrgId, Sample, Timestamp};
use promlet::tsdb::{Home, Options, Tsdb};

const ORG: OrgId = OrgId(1);
const START: Timestamp = Timestamp::from_s(1_795_000_000);
const REQUEST: u32 = 2_000;
const STARTS: usize = 7;

fn labels(i: u32) -> Labels {
    let (target, metric) = (i / 100, i % 100);
    let pairs = [
        ("__name__", format!("shop_metric_{metric}_total")),
        ("instance", format!("10.{}.{}.{}:9100", target / 62_500, target / 250 % 250, target % 250)),
        ("job", format!("service-{}", target % 20)),
        ("pod", format!("service-{}-7d9f8b6c5-{target:05}", target % 20)),
        ("namespace", format!("team-{}", target % 8)),
        ("node", format!("worker-{:03}", target % 500)),
        ("cluster", "eu-central".to_owned()),
        ("method", ["GET", "POST", "PUT", "DELETE"][metric as usize % 4].to_owned()),
        ("code", ["200", "204", "404", "500"][metric as usize / 4 % 4].to_owned()),
        ("handler", format!("/api/v1/resource/{}", metric / 16)),
    ];
    Labels::from_pairs(pairs)
}

/// Opens a folder. Returns the milliseconds for accounts and for samples.
fn open(dir: &Path, now: Timestamp) -> (Tsdb, DataFolder, Arc<Control>, [f64; 2]) {
    let watch = Stopwatch::start();
    let mut rng = Entropy::system();
    let folder = DataFolder::open(dir, now, &mut rng).expect("a folder");
    let (control, _) = Control::open(&folder, &ControlOptions { now, users_table: 1 }).expect("accounts");
    let control = Arc::new(control);
    let accounts = watch.elapsed_ms();
    let watch = Stopwatch::start();
    let home = Home { dir, store: folder.store_id(), control: Arc::clone(&control) };
    let options = Options { ahead_max: None, ..Options::default() };
    let (store, report) = Tsdb::open(home, options, &mut rng, now).expect("opens");
    let samples = watch.elapsed_ms();
    for note in report.notes.iter().chain(&report.read_only) {
        println!("{note}");
    }
    (store, folder, control, [accounts, samples])
}

/// Closes the store as the server does.
fn close((store, folder, control): (Tsdb, DataFolder, Arc<Control>), now: Timestamp) {
    let watch = Stopwatch::start();
    store.seal(now).expect("sealed");
    let sealed = watch.elapsed_ms();
    let watch = Stopwatch::start();
    let report = store.checkpoint().expect("a checkpoint");
    let checkpoint = watch.elapsed_ms();
    println!(
        "sealed in {sealed:.0} ms, checkpoint of {} rows and {} bytes in {checkpoint:.0} ms",
        report.rows, report.bytes
    );
    store.close();
    drop(store);
    Arc::into_inner(control).expect("the only owner").close().expect("closed");
    folder.close_clean(now).expect("closed");
}

/// Properties of the data and of the end of its process.
#[derive(Clone, Copy)]
struct Flags {
    /// Each series has a start timestamp.
    starts: bool,
    /// The process ends as if it was killed.
    killed: bool,
}

/// Fills a folder.
fn fill(dir: &Path, series: u32, Flags { starts, killed }: Flags) {
    let (store, folder, control, _) = open(dir, START);
    let mut stored = 0;
    for round in 0..4 {
        for first in (0..series).step_by(REQUEST as usize) {
            let mut batch = BatchBuilder::default();
            for i in first..(first + REQUEST).min(series) {
                let sample = Sample { at: START.plus_ms(round * 15_000), value: f64::from(i % 1_000) };
                let writer = batch.series(&labels(i), [sample]);
                if starts {
                    writer.start(sample.at, START.plus_ms(-i64::from(i)));
                }
            }
            stored += store.append(ORG, &batch.batch(), START.plus_ms(60_000)).expect("stored").stored;
        }
    }
    let (resident, peak) = (memory("VmRSS"), memory("VmHWM"));
    println!("{stored} samples of {series} series, {resident:.1} MiB, {peak:.1} MiB at most");
    if killed {
        std::process::exit(0);
    }
    let watch = Stopwatch::start();
    close((store, folder, control), START.plus_ms(86_400_000));
    println!("closed in {:.0} ms", watch.elapsed_ms());
}

/// Returns a size in `/proc/self/status` in MiB.
fn memory(name: &str) -> f64 {
    process_stats::status_bytes(std::process::id(), name).expect("Linux") as f64 / f64::from(1 << 20)
}

fn start(dir: &Path, killed: bool) {
    let now = START.plus_ms(if killed { 90_000 } else { 86_500_000 });
    let (store, folder, control, [accounts, samples]) = open(dir, now);
    let (resident, peak) = (memory("VmRSS"), memory("VmHWM"));
    let series = store.stats().series;
    println!(
        "{samples:>8.1}  {accounts:>8.1}  {resident:>8.1}  {peak:>8.1}  ms samples, ms accounts, MiB, MiB at most; {series} series"
    );
    if killed {
        std::process::exit(0);
    }
    close((store, folder, control), now);
}

/// Runs this program again with other arguments, so that each part starts without used memory.
fn run(words: &[&str]) {
    let program = std::env::current_exe().expect("a program");
    let status = Command::new(program).args(words).status().expect("starts");
    assert!(status.success(), "{words:?} failed");
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    let flags = Flags { starts: words.contains(&"starts"), killed: words.contains(&"killed") };
    words.retain(|word| !["starts", "killed"].contains(word));
    match words.as_slice() {
        ["start", dir] => return start(Path::new(dir), flags.killed),
        ["fill", dir, series] => return fill(Path::new(dir), series.parse().expect("a number"), flags),
        _ => {}
    }
    let temporary = tempfile::tempdir().expect("a folder");
    let series = words.first().copied().unwrap_or("1000000");
    let dir = words.get(1).copied().unwrap_or_else(|| temporary.path().to_str().expect("UTF-8"));
    let flags = [("starts", flags.starts), ("killed", flags.killed)];
    let flags: Vec<&str> = flags.into_iter().filter_map(|(word, set)| set.then_some(word)).collect();
    if !Path::new(dir).join("wal").exists() {
        run(&[&["fill", dir, series], flags.as_slice()].concat());
    }
    for _ in 0..STARTS {
        run(&[&["start", dir], flags.as_slice()].concat());
    }
}
