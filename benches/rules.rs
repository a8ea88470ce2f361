//! The CPU time of rules: `cargo bench --features peers --bench rules [-- RULES [SERIES
//! [SECONDS]]]`.
//!
//! promlet, Prometheus, and vmalert with VictoriaMetrics each get SERIES series (100,000) with ten
//! minutes of samples, and evaluate RULES rules (10,000) every 15 s: in groups of 100, half of them
//! record the rate of a metric, half of them alert. Each rule reads its own metric. One server runs
//! at a time. The CPU time of SECONDS (60) is measured, after two rounds, and with it the number of
//! rounds that were skipped. Each server must have recorded all results.
//!
//! At last promlet evaluates 1,000 rules without any samples, and backfills 1,000 rules over seven
//! days.

#![expect(clippy::panic, reason = "a bench that cannot continue panics with the reason")]

#[path = "common/arguments.rs"]
mod arguments;
#[path = "common/cpu_time.rs"]
mod cpu_time;
#[path = "../tests/binary/harness.rs"]
#[expect(dead_code, reason = "the tests of the binary use the rest")]
mod harness;
#[path = "../tests/peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;
#[path = "common/sender.rs"]
mod sender;
#[path = "../tests/peers/servers.rs"]
#[expect(dead_code, reason = "shared: each target needs other servers")]
mod servers;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use promlet::clock::{Clock, Stopwatch};
use promlet::model::{Labels, Sample, Timestamp};

use arguments::{arguments, number};
use harness::{Answer, ORG, Server, Start, bootstrap, percent, process_stats, remote_write, request};
use packages::latest_debian;
use sender::{Destination, send};
use servers::{free_port, prometheus_server_with, started, victoria_metrics};

/// The interval of an evaluation in seconds.
const INTERVAL_S: u64 = 15;
/// The rules of a group.
const GROUP: usize = 100;
/// The samples of a series, 15 s apart.
const SAMPLES: i64 = 40;
/// The series of a remote write request.
const REQUEST: usize = 500;
/// The rules of the measurement without samples.
const IDLE_RULES: usize = 1_000;

/// The recording rules of the backfill.
const BACKFILLED_RULES: usize = 1_000;
/// The series that these rules read.
const BACKFILLED_SERIES: usize = 100;
/// The evaluations of each rule: seven days, every minute.
const BACKFILLED_STEPS: i64 = 7 * 24 * 60;

/// Returns the text of a file of rules.
fn rule_file(rules: usize) -> String {
    let mut text = "groups:\n".to_owned();
    for rule in 0..rules {
        if rule % GROUP == 0 {
            let _ = writeln!(text, "- name: group-{}\n  interval: {INTERVAL_S}s\n  rules:", rule / GROUP);
        }
        let _ = if rule % 2 == 0 {
            writeln!(
                text,
                "  - {{record: recorded, labels: {{rule: r{rule}}}, expr: 'sum(rate(load_{rule}[5m]))'}}"
            )
        } else {
            writeln!(
                text,
                "  - {{alert: High, labels: {{rule: r{rule}}}, expr: 'load_{rule} > 1e12', for: 1m}}"
            )
        };
    }
    text
}

/// Returns the bodies of all samples. Each metric has the same number of series.
fn bodies(rules: usize, series: usize) -> Vec<Vec<u8>> {
    let end = Clock::System.now();
    let one = |n: usize| {
        let (metric, instance) = (format!("load_{}", n % rules), format!("instance-{}", n / rules));
        let labels = Labels::from_pairs([("__name__", &*metric), ("instance", &*instance), ("job", "rules")]);
        let sample = |step: i64| {
            let at = end.plus_ms((step - SAMPLES + 1) * 15_000);
            Sample { at, value: (n as f64) + step as f64 * 7.0 }
        };
        (labels, (0..SAMPLES).map(sample).collect::<Vec<_>>())
    };
    let all: Vec<usize> = (0..series).collect();
    all.chunks(REQUEST).map(|part| remote_write(&part.iter().map(|n| one(*n)).collect::<Vec<_>>())).collect()
}

/// The processes of a server, and where its API is.
struct Measured<'a> {
    name: &'a str,
    pids: &'a [u32],
    /// The base of the query API, which ends with `/api/v1`.
    api: String,
    headers: &'a [(&'a str, &'a str)],
}

impl Measured<'_> {
    fn cpu_s(&self) -> f64 {
        self.pids.iter().map(|pid| cpu_time::cpu_s(*pid).expect("a running process")).sum()
    }

    /// Returns the CPU seconds of a round.
    fn measure(&self, rules: usize, seconds: u64) -> f64 {
        std::thread::sleep(Duration::from_secs(2 * INTERVAL_S));
        let before = self.cpu_s();
        std::thread::sleep(Duration::from_secs(seconds));
        let cpu_s = self.cpu_s() - before;
        let path = format!("{}/query?query={}", self.api, percent("count(recorded)"));
        let found: Answer = request("GET", &path, self.headers, None);
        let count = found.json()["data"]["result"][0]["value"][1].as_str().map(str::to_owned);
        assert_eq!(count, Some((rules / 2).to_string()), "{}: {}", self.name, found.body);
        let peaks = self.pids.iter().filter_map(|pid| process_stats::status_bytes(*pid, "VmHWM"));
        let peak_mib = peaks.sum::<u64>() >> 20;
        let round = cpu_s * INTERVAL_S as f64 / seconds as f64;
        println!("{:<28} {round:>8.2} s of CPU each round, peak {peak_mib} MiB", self.name);
        round
    }
}

fn promlet(dir: &Path, rules: usize, bodies: &[Vec<u8>], seconds: u64) -> f64 {
    let file = dir.join("rules.yml");
    std::fs::write(&file, rule_file(rules)).expect("written");
    let file = file.display().to_string();
    let args = ["serve", "--rules", &file, "--rate-cabinet-rps", "10000"];
    let server = Server::start(&Start { args: &args, dir: &dir.join("promlet"), env: &bootstrap() });
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    send(&Destination::promlet(&server, &secret), bodies, 1);
    let measured = Measured {
        name: "promlet",
        pids: &[server.pid()],
        api: format!("{}/api/v1/orgs/{ORG}/prometheus/api/v1", server.url),
        headers: &[("Cookie", &cookie)],
    };
    let round = if bodies.is_empty() {
        std::thread::sleep(Duration::from_secs(2 * INTERVAL_S));
        let before = measured.cpu_s();
        std::thread::sleep(Duration::from_secs(seconds));
        (measured.cpu_s() - before) / seconds as f64
    } else {
        measured.measure(rules, seconds)
    };
    let metrics = server.get("/metrics", &[]).body;
    let missed = metrics.lines().find(|line| line.starts_with("promlet_rule_missed_evaluations_total "));
    assert_eq!(missed, Some("promlet_rule_missed_evaluations_total 0"), "no evaluation is skipped");
    round
}

fn prometheus(dir: &Path, rules: usize, bodies: &[Vec<u8>], seconds: u64) -> f64 {
    let config = format!(
        "global: {{scrape_interval: 1h, evaluation_interval: {INTERVAL_S}s}}\nrule_files: [{}]\n",
        dir.join("rules.yml").display()
    );
    let (peer, url) = prometheus_server_with(&dir.join("prometheus"), &config, &[]);
    send(&Destination::peer(&url), bodies, 1);
    let api = format!("{url}/api/v1");
    Measured { name: "Prometheus", pids: &[peer.id()], api, headers: &[] }.measure(rules, seconds)
}

fn vmalert(dir: &Path, rules: usize, bodies: &[Vec<u8>], seconds: u64) -> f64 {
    let (store, url) = victoria_metrics(&dir.join("victoria-metrics"));
    send(&Destination::peer(&url), bodies, 1);
    let port = free_port();
    let programs = latest_debian("victoria", &["victoria-metrics"]);
    let mut command = Command::new(programs.join("usr/bin/vmalert"));
    command
        .arg(format!("-rule={}", dir.join("rules.yml").display()))
        .arg(format!("-datasource.url={url}"))
        .arg(format!("-remoteWrite.url={url}"))
        .arg(format!("-httpListenAddr=127.0.0.1:{port}"))
        .arg("-notifier.blackhole");
    let (alerts, _) = started(&mut command, port);
    let pids = [store.id(), alerts.id()];
    let api = format!("{url}/api/v1");
    Measured { name: "vmalert and VictoriaMetrics", pids: &pids, api, headers: &[] }.measure(rules, seconds)
}

/// Measures a backfill by the command line of a running server.
fn backfill(dir: &Path) {
    let server = Server::start(&Start { args: &["serve"], dir: &dir.join("promlet"), env: &bootstrap() });
    let (_, secret) = server.api_key(&server.sign_in());
    let end_s = Clock::System.now().as_s() / 60 * 60;
    let start_s = end_s - (BACKFILLED_STEPS - 1) * 60;
    for n in 0..BACKFILLED_SERIES {
        let labels = Labels::from_pairs([("__name__", &*format!("load_{n}")), ("job", "rules")]);
        let sample = |step: i64| Sample {
            at: Timestamp::from_s(start_s + step * 60),
            value: n as f64 + (step * 7 % 1_000) as f64,
        };
        let written = server.write(&secret, &[(labels, (0..BACKFILLED_STEPS).map(sample).collect())]);
        assert_eq!(written.status, 204, "{}", written.body);
    }
    let mut text = "groups:\n".to_owned();
    for rule in 0..BACKFILLED_RULES {
        if rule % GROUP == 0 {
            let _ = writeln!(text, "- name: group-{}\n  interval: 1m\n  rules:", rule / GROUP);
        }
        let metric = rule % BACKFILLED_SERIES;
        let _ = writeln!(
            text,
            "  - {{record: recorded, labels: {{rule: r{rule}}}, expr: 'sum by (job) (load_{metric}) * {rule}'}}"
        );
    }
    let file = dir.join("backfill.yml");
    std::fs::write(&file, text).expect("written");
    let cpu_s = || cpu_time::cpu_s(server.pid()).expect("a running process");
    let (before, watch) = (cpu_s(), Stopwatch::start());
    let output = Command::new(env!("CARGO_BIN_EXE_promlet"))
        .args(["rules", "backfill", "--org", ORG, "--start", &start_s.to_string()])
        .args(["--end", &end_s.to_string(), "--data-dir"])
        .args([&dir.join("promlet"), &file])
        .output()
        .expect("it runs");
    let (elapsed_s, cpu_s) = (watch.elapsed().as_secs_f64(), cpu_s() - before);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = format!("{GROUP} rules, 1 008 000 samples, 0 refused");
    assert!(lines.lines().all(|line| line.ends_with(&expected)), "{lines}");
    println!(
        "{BACKFILLED_RULES} rules backfilled over seven days: {elapsed_s:.1} s (goal 10), {cpu_s:.1} s of CPU"
    );
}

fn main() {
    let args = arguments();
    let (rules, series) = (number(&args, 0, 10_000), number(&args, 1, 100_000));
    let seconds = number(&args, 2, 60_u64);
    println!("{rules} rules, {series} series, every {INTERVAL_S} s");
    let dir = tempfile::tempdir().expect("a folder");
    let ours = promlet(dir.path(), rules, &bodies(rules, series), seconds);
    for theirs in [prometheus, vmalert] {
        let round = theirs(dir.path(), rules, &bodies(rules, series), seconds);
        println!("{:<28} {:>8.2} (goal 0.2)", "promlet divided by it", ours / round);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let idle = promlet(folder.path(), IDLE_RULES, &[], seconds);
    println!("{IDLE_RULES} rules without samples: {:.1} % of a core (goal 2)", idle * 100.0);
    let folder = tempfile::tempdir().expect("a folder");
    backfill(folder.path());
}
