//! Compares promlet with VictoriaMetrics and Prometheus:
//! `cargo bench --features peers --bench compare [-- SERIES]`.
//!
//! Installs both peers as the tests against peers do, starts the three servers on loopback with
//! fresh folders, and sends the same remote write requests to each in turn: SERIES series (2,000,
//! 10,000 or 100,000; the default is 10,000) with 240 samples each. Then it measures queries, a
//! restart after a clean stop, and a kill while samples are written. Prints one table of figures
//! and of ratios of promlet to each peer.
//!
//! Checks: all servers return the same series and values, and promlet has every acknowledged sample
//! after it was killed. The exit status is 1 if a check fails. VictoriaMetrics keeps samples in
//! memory for up to five seconds by design, so samples that a peer loses are counted, not refused.

#![expect(clippy::panic, reason = "a bench that cannot continue panics with the reason")]

#[path = "../common/cpu_time.rs"]
mod cpu_time;
mod data;
#[path = "../../tests/binary/harness.rs"]
#[expect(dead_code, reason = "the tests of the binary use the rest")]
mod harness;
#[path = "../common/median.rs"]
mod median;
#[path = "../../tests/peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;
mod queries;
mod servers;
mod table;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harness::{percent, remote_write};
use promlet::clock::{Clock, Stopwatch};
use promlet::model::{Labels, Sample, Timestamp};

use data::{Data, ROUNDS};
use median::median;
use queries::{QUERIES, Query, single};
use servers::{Kind, Target, WAIT_MAX};
use table::Row;

/// The number of turns that each server has with a query, and the end of a turn: whichever is
/// reached first.
const TURNS: usize = 5;
const TURN_TIME: Duration = Duration::from_millis(150);
const TURN_RUNS: usize = 200;
/// The number of restarts of which the median is shown.
const RESTARTS: usize = 3;
/// The number of requests that may be sent before a kill, the number after which the server is
/// killed, and the number of samples in each.
const CRASH_REQUESTS: usize = 600;
const CRASH_KILL_AFTER: usize = 100;
/// The number of requests after the restart that must be found, as a control of the check.
const CRASH_CONTROL: usize = 10;
const CRASH_SERIES: usize = 1_000;
/// The data end this long before the start of the bench. The requests before the kill continue
/// them.
const MARGIN_MS: i64 = 660_000;

/// Calls a function for each server. The server that begins depends on the number of the turn.
fn in_turns(turn: usize, mut call: impl FnMut(usize)) {
    for i in 0..3 {
        call((turn + i) % 3);
    }
}

/// Stores the data in each server and adds the rows of it. Returns the number of samples.
fn ingest(targets: &[Target; 3], data: &mut Data, rows: &mut Vec<Row>) -> f64 {
    let before = targets.each_ref().map(Target::cpu_s);
    let (mut wall_s, mut samples, mut turn) = ([0.0; 3], 0, 0);
    while let Some(requests) = data.round() {
        for series in requests {
            samples += series.len();
            let body = remote_write(&series);
            in_turns(turn, |i| {
                let watch = Stopwatch::start();
                let written = targets[i].write(&body);
                assert!(written.is_ok(), "{} refuses samples: {written:?}", targets[i].name());
                wall_s[i] += watch.elapsed().as_secs_f64();
            });
            turn += 1;
        }
    }
    // Work in the background counts as well.
    std::thread::sleep(Duration::from_secs(5));
    let samples = samples as f64;
    let cpu_s = [0, 1, 2].map(|i| targets[i].cpu_s() - before[i]);
    rows.push(Row::new("samples per second, one sender, thousands", wall_s.map(|s| samples / s / 1e3)));
    rows.push(Row::new("samples per CPU second, thousands", cpu_s.map(|s| samples / s / 1e3)));
    rows.push(Row::new("peak memory after ingestion, MiB", targets.each_ref().map(Target::peak_mib)));
    samples
}

/// Compares the responses of all servers. Returns the differences.
fn compare(targets: &[Target; 3], query: &Query, end: Timestamp) -> Vec<String> {
    let path = query.path(end);
    let [ours, victoria, prometheus] = targets.each_ref().map(|target| target.json(&path));
    let difference = |name: &str, theirs, extrapolates| {
        let found = query.difference(&ours, theirs, extrapolates)?;
        Some(format!("{}: promlet against {name}: {found}", query.name))
    };
    [difference("VictoriaMetrics", &victoria, false), difference("Prometheus", &prometheus, true)]
        .into_iter()
        .flatten()
        .collect()
}

/// Measures a query on each server: the median wall time and the mean CPU time in milliseconds.
fn measure(targets: &[Target; 3], query: &Query, end: Timestamp) -> Row {
    let path = query.path(end);
    let mut wall_ms: [Vec<f64>; 3] = Default::default();
    let mut cpu_s = [0.0; 3];
    for turn in 0..TURNS {
        in_turns(turn, |i| {
            let before = targets[i].cpu_s();
            let whole = Stopwatch::start();
            for _ in 0..TURN_RUNS {
                let watch = Stopwatch::start();
                let body = targets[i].get(&path);
                wall_ms[i].push(watch.elapsed_ms());
                assert!(!body.is_empty(), "{}: {path}", targets[i].name());
                if whole.elapsed() > TURN_TIME {
                    break;
                }
            }
            cpu_s[i] += targets[i].cpu_s() - before;
        });
    }
    let cpu_ms = [0, 1, 2].map(|i| cpu_s[i] * 1e3 / wall_ms[i].len() as f64);
    Row { name: query.name.to_owned(), figures: wall_ms.map(|ms| median(&ms)), cpu: Some(cpu_ms) }
}

/// Stops and starts each server. Adds the time until each is ready, and the bytes on disk.
fn restart(targets: &mut [Target; 3], samples: f64, rows: &mut Vec<Row>) {
    let (mut ready_ms, mut bytes): ([Vec<f64>; 3], _) = (Default::default(), [0.0; 3]);
    for turn in 0..RESTARTS {
        in_turns(turn, |i| {
            targets[i].stop();
            bytes[i] = targets[i].disk_bytes() as f64;
            ready_ms[i].push(targets[i].start().as_secs_f64() * 1e3);
        });
    }
    rows.push(Row::new("bytes on disk per sample, after a clean stop", bytes.map(|b| b / samples)));
    rows.push(Row::new("ready after a clean stop, ms", ready_ms.map(|ms| median(&ms))));
}

/// Kills a server while samples are written. Returns the time until it is ready again in
/// milliseconds, and the number of acknowledged samples that are missing afterwards.
fn crash(target: &mut Target, end: Timestamp) -> (f64, f64) {
    let acknowledged = AtomicUsize::new(0);
    let request = |round: usize| {
        let at = end.plus_ms(1_000 * (i64::try_from(round).expect("few") + 1));
        let series = |n: usize| {
            let labels = Labels::from_pairs([("__name__", "crash".to_owned()), ("n", n.to_string())]);
            (labels, vec![Sample { at, value: 1.0 }])
        };
        remote_write(&(0..CRASH_SERIES).map(series).collect::<Vec<_>>())
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..CRASH_REQUESTS {
                if target.write(&request(round)).is_err() {
                    break;
                }
                acknowledged.store(round + 1, Ordering::SeqCst);
            }
        });
        let begun = Stopwatch::start();
        while acknowledged.load(Ordering::SeqCst) < CRASH_KILL_AFTER && begun.elapsed() < WAIT_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        target.kill();
    });
    target.collect();
    let acknowledged = acknowledged.into_inner();
    let range = CRASH_KILL_AFTER..CRASH_REQUESTS;
    assert!(range.contains(&acknowledged), "{}: {acknowledged} requests before the kill", target.name());
    let ready_ms = target.start().as_secs_f64() * 1e3;
    target.flush();
    let at = end.plus_ms(MARGIN_MS).as_ms() / 1_000;
    let expr = percent("sum(count_over_time(crash[20m]))");
    let count = || single(&target.json(&format!("query?nocache=1&query={expr}&time={at}")));
    let found = count();
    for round in CRASH_REQUESTS..CRASH_REQUESTS + CRASH_CONTROL {
        let written = target.write(&request(round));
        assert!(written.is_ok(), "{} refuses samples after the kill: {written:?}", target.name());
    }
    target.flush();
    let control = count() - found;
    let expected = (CRASH_CONTROL * CRASH_SERIES) as f64;
    assert!((control - expected).abs() < 0.5, "{}: the control found {control} samples", target.name());
    (ready_ms, ((acknowledged * CRASH_SERIES) as f64 - found).max(0.0))
}

fn main() -> ExitCode {
    let size = std::env::args().find_map(|text| text.parse::<usize>().ok()).unwrap_or(10_000);
    let dir = tempfile::tempdir().expect("a folder");
    let kinds = [Kind::Promlet, Kind::VictoriaMetrics, Kind::Prometheus];
    let mut targets = kinds.map(|kind| Target::new(kind, dir.path()));
    for target in &mut targets {
        target.start();
    }
    let now = Clock::System.now();
    let end = now.plus_ms(-MARGIN_MS);
    // At a full minute, so that samples and steps have the same times.
    let end = end.plus_ms(-(end.as_ms() % 60_000));
    let mut data = Data::new(size, ROUNDS, end);
    println!("{} series with {ROUNDS} samples each", data.series());

    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    let samples = ingest(&targets, &mut data, &mut rows);
    targets.iter().for_each(Target::flush);
    for query in QUERIES {
        failed.extend(compare(&targets, query, end));
    }
    println!("{} queries compared, {} differences; measuring", QUERIES.len(), failed.len());
    let times: Vec<Row> = QUERIES.iter().map(|query| measure(&targets, query, end)).collect();
    rows.push(Row::new("peak memory after queries, MiB", targets.each_ref().map(Target::peak_mib)));
    restart(&mut targets, samples, &mut rows);
    let crashes = targets.each_mut().map(|target| crash(target, end));
    rows.push(Row::new("ready after kill -9, ms", crashes.map(|(ready_ms, _)| ready_ms)));
    rows.push(Row::new("acknowledged samples lost by kill -9", crashes.map(|(_, lost)| lost)));
    let lost = crashes[0].1;
    if lost > 0.0 {
        failed.push(format!("promlet lost {lost} acknowledged samples"));
    }
    let queries = times.into_iter().map(|row| Row { name: format!("{}, ms (CPU)", row.name), ..row });
    rows.extend(queries);

    let date = chrono::DateTime::from_timestamp_millis(now.as_ms()).expect("a date").format("%Y-%m-%d");
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let build = if cfg!(debug_assertions) { "development build" } else { "optimised build" };
    let versions = targets.each_ref().map(|target| format!("{} {}", target.name(), target.version()));
    println!(
        "\n{date}, {processors} processors, {} series, {samples} samples, {build}: {}\n",
        data.series(),
        versions.join(", ")
    );
    table::print(targets.each_ref().map(Target::name), &rows);
    println!();
    for problem in &failed {
        println!("{problem}");
    }
    println!("{} checks failed.", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
