//! Many viewers of live queries: `cargo bench --features peers --bench live_viewers [-- VIEWERS
//! [SCOPES [STEP [SECONDS [QUERIES [identity]]]]]]`.
//!
//! Starts the built server, and opens 10,000 connections over loopback (VIEWERS). Each is a stream
//! of 30 queries (QUERIES) with steps of 1 s (STEP), of one token or of SCOPES tokens that each may
//! see a different host. Samples arrive each second, shortly before the step. After all viewers
//! have connected, SECONDS are measured (30): how long after a step its last event has arrived, and
//! the memory and CPU time of the server. The driver runs on the same cores. Streams are in gzip,
//! as those of browsers are, or without compression with `identity`.
//!
//! Fails if a viewer misses, doubles or reorders a step, if the 99th percentile exceeds 250 ms, or
//! if the server has more than 1 GiB.

#![expect(clippy::panic, reason = "a bench that cannot continue panics with the reason")]
#![expect(clippy::cast_possible_truncation, reason = "places within a list")]

#[path = "common/arguments.rs"]
mod arguments;
#[path = "common/cpu_time.rs"]
mod cpu_time;
#[path = "common/embed_token.rs"]
mod embed_token;
#[path = "../tests/binary/harness.rs"]
#[expect(dead_code, reason = "the tests of the binary use the rest")]
mod harness;
#[path = "common/viewers.rs"]
mod viewers;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arguments::arguments;
use embed_token::embed_token;
use harness::{ORG, Server, Start, bootstrap};
use promlet::clock::Clock;
use promlet::model::{Labels, Sample};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::time::Instant;
use viewers::{LiveTarget, Viewed, view};

/// New connections in each 10 ms.
const CONNECT_BURST: usize = 20;
const LATE_MS_MAX: i64 = 250;
const SERVER_BYTES_MAX: u64 = 1 << 30;
/// The series of each query, unless there are more scopes.
const HOSTS: usize = 3;

fn series(hosts: usize, queries: usize) -> Vec<(Labels, Vec<Sample>)> {
    let at = Clock::System.now();
    let one = |n: usize| {
        let (host, panel) = (format!("h{}", n % hosts), format!("panel_{}", n / hosts));
        let labels = Labels::from_pairs([("__name__", panel), ("host", host)]);
        (labels, vec![Sample { at, value: (n as f64).sin() }])
    };
    (0..hosts * queries).map(one).collect()
}

fn percentile(sorted: &[i64], share: f64) -> i64 {
    let place = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or_default()
}

/// Returns what is wrong with the steps of a viewer.
fn wrong(viewed: &Viewed, step_ms: i64) -> Option<String> {
    let next = viewed.steps.windows(2).find(|pair| pair[1] != pair[0] + step_ms);
    match next {
        Some(pair) => Some(format!("{} after {}", pair[1], pair[0])),
        None if viewed.steps.is_empty() => Some(format!("no step: {viewed:?}")),
        None if viewed.gaps + viewed.errors + viewed.refused > 0 => {
            Some(format!("{} gaps, {} errors, {} refused", viewed.gaps, viewed.errors, viewed.refused))
        }
        None => None,
    }
}

/// The arguments.
#[derive(Clone, Copy)]
struct Plan {
    viewers: usize,
    scopes: usize,
    step_s: usize,
    seconds: usize,
    queries: usize,
    in_gzip: bool,
}

impl Plan {
    fn hosts(self) -> usize {
        if self.scopes == 1 { HOSTS } else { self.scopes }
    }

    /// Returns a stream for each token.
    fn targets(self, server: &Server, secret: &str) -> Vec<LiveTarget> {
        let query =
            |n: usize| json!({ "id": format!("{n}:A"), "expr": format!("panel_{n}"), "step": self.step_s });
        let body = json!({ "queries": (0..self.queries).map(query).collect::<Vec<_>>() }).to_string();
        let address = server.url.trim_start_matches("http://").parse().expect("an address");
        let address = Arc::new(Mutex::new(address));
        let target = |restrictions: Value| LiveTarget {
            address: Arc::clone(&address),
            path: format!("/api/v1/orgs/{ORG}/query/live"),
            token: embed_token(server, secret, &restrictions),
            body: body.clone(),
            in_gzip: self.in_gzip,
            viewing: Arc::default(),
        };
        match self.scopes {
            1 => vec![target(json!({}))],
            scopes => (0..scopes).map(|n| target(json!({ "match": [format!("host=\"h{n}\"")] }))).collect(),
        }
    }

    /// Views the streams. Returns what the viewers received, when the measurement began, and the
    /// CPU time of the server since then.
    fn view(self, targets: &[LiveTarget], pid: u32) -> (Vec<Viewed>, i64, f64) {
        let cpu = || cpu_time::cpu_s(pid).expect("it runs");
        let seconds = Duration::from_secs(self.seconds as u64);
        let connecting = Duration::from_millis((self.viewers / CONNECT_BURST * 10 + 5_000) as u64);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let until = Instant::now() + connecting + seconds;
            let mut tasks = Vec::with_capacity(self.viewers);
            for n in 0..self.viewers {
                let target = targets[n % targets.len()].clone();
                tasks.push(tokio::spawn(view(target, until)));
                if n % CONNECT_BURST == CONNECT_BURST - 1 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            tokio::time::sleep_until(until - seconds).await;
            let (began, cpu_before) = (Clock::System.now().as_ms(), cpu());
            let mut all = Vec::with_capacity(self.viewers);
            for task in tasks {
                all.push(task.await.expect("no panic"));
            }
            (all, began, cpu() - cpu_before)
        })
    }
}

/// Writes samples each second, 200 ms before it, until `done`.
fn write_samples(server: &Server, secret: &str, plan: Plan, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        let body = harness::remote_write(&series(plan.hosts(), plan.queries));
        let answer = server.write_raw(secret, &body);
        assert_eq!(answer.status, 204, "{}", answer.body);
        let wait = (1_800 - Clock::System.now().as_ms().rem_euclid(1_000)) % 1_000;
        std::thread::sleep(Duration::from_millis(wait.unsigned_abs().max(100)));
    }
}

fn main() -> ExitCode {
    let args = arguments();
    let number = |place, default: usize| arguments::number(&args, place, default);
    let plan = Plan {
        viewers: number(0, 10_000),
        scopes: number(1, 1),
        step_s: number(2, 1),
        seconds: number(3, 30),
        queries: number(4, 30),
        in_gzip: args.get(5).is_none_or(|coding| coding != "identity"),
    };
    let before = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before }) {
        panic!("the limit of open files cannot be raised: {error}");
    }
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &bootstrap() });
    let cookie = server.sign_in();
    let key = json!({ "name": "viewers", "scopes": ["embed", "ingest"],
        "embed": { "rate_limit_rps": 10_000, "max_token_ttl_s": 86_400 } });
    let made = server.post_json(&format!("/api/v1/orgs/{ORG}/api-keys"), &[("Cookie", &cookie)], &key);
    assert_eq!(made.status, 201, "{}", made.body);
    let secret = made.json()["secret"].as_str().expect("a secret").to_owned();
    let targets = plan.targets(&server, &secret);
    let idle = server.status_bytes("VmRSS");
    let done = AtomicBool::new(false);
    let (all, began, cpu) = std::thread::scope(|scope| {
        scope.spawn(|| write_samples(&server, &secret, plan, &done));
        let viewed = plan.view(&targets, server.pid());
        done.store(true, Ordering::Relaxed);
        viewed
    });
    let metrics = server.get("/metrics", &[]).body;
    let is_shown =
        |line: &&str| line.starts_with("promlet_live_") || line.starts_with("promlet_connections_");
    metrics.lines().filter(is_shown).for_each(|line| println!("{line}"));
    if report(plan, &all, began, (idle, server.status_bytes("VmHWM")), cpu) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints the figures. Returns whether all bounds hold. `memory` is that of the server before the
/// viewers and at most, in bytes.
fn report(plan: Plan, all: &[Viewed], began: i64, (idle, peak): (u64, u64), cpu_s: f64) -> bool {
    let Plan { viewers, scopes, step_s, seconds, queries, in_gzip } = plan;
    let steps = all.iter().flat_map(|viewed| viewed.steps.iter().zip(&viewed.late_ms));
    let mut late: Vec<i64> = steps.filter(|(step, _)| **step >= began).map(|(_, late)| *late).collect();
    late.sort_unstable();
    let failed: Vec<String> = all.iter().filter_map(|viewed| wrong(viewed, step_s as i64 * 1_000)).collect();
    let bytes: usize = all.iter().map(|viewed| viewed.bytes).sum();
    let (p50, p99) = (percentile(&late, 0.5), percentile(&late, 0.99));
    println!(
        "{viewers} viewers, {scopes} scopes, {queries} queries, steps of {step_s} s, {seconds} s, {}: {} steps viewed, \
         p50 {p50} ms, p99 {p99} ms, slowest {} ms",
        if in_gzip { "gzip" } else { "no compression" },
        late.len(),
        late.last().copied().unwrap_or_default()
    );
    println!(
        "server: {} MiB at most, {} MiB before; {:.1} % of one core; {} MiB sent",
        peak >> 20,
        idle >> 20,
        cpu_s / seconds as f64 * 100.0,
        bytes >> 20
    );
    println!("{} viewers with a fault: {:?}", failed.len(), failed.iter().take(5).collect::<Vec<_>>());
    failed.is_empty() && p99 <= LATE_MS_MAX && peak <= SERVER_BYTES_MAX && !late.is_empty()
}
