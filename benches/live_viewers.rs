//! Many viewers of live queries: `cargo bench --features peers --bench live_viewers [-- VIEWERS
//! [SCOPES [STEP [SECONDS [QUERIES]]]]]`.
//!
//! Starts the built server, and opens 10,000 connections over loopback (VIEWERS). Each is a stream
//! of 30 queries (QUERIES) with steps of 1 s (STEP), of one token or of SCOPES tokens that each may
//! see a different host. Samples arrive each second, shortly before the step. After all viewers have
//! connected, SECONDS are measured (30): how long after a step its last event has arrived, and the
//! memory and CPU time of the server. The driver runs on the same cores.
//!
//! Fails if a viewer misses, doubles or reorders a step, if the 99th percentile exceeds 250 ms, or if
//! the server has more than 1 GiB.

#![expect(clippy::panic, reason = "a bench that cannot continue panics with the reason")]
#![expect(clippy::cast_precision_loss, reason = "figures to print")]

#[path = "common/cpu_time.rs"]
mod cpu_time;
#[path = "../tests/binary/harness.rs"]
#[expect(dead_code, reason = "the tests of the binary use the rest")]
mod harness;
#[path = "../tests/binary/viewers.rs"]
mod viewers;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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

fn number(place: usize, default: usize) -> usize {
    let given = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).nth(place);
    given.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{text:?} is no number")))
}

fn series(hosts: usize, queries: usize) -> Vec<(Labels, Vec<Sample>)> {
    let at = Clock::System.now();
    let one = |n: usize| {
        let (host, panel) = (format!("h{}", n % hosts), format!("panel_{}", n / hosts));
        let labels = Labels::from_pairs([("__name__", panel), ("host", host)]);
        (labels, vec![Sample { at, value: (n as f64).sin() }])
    };
    (0..hosts * queries).map(one).collect()
}

/// Mints a token, at most 20 a second.
fn token(server: &Server, secret: &str, restrictions: &Value) -> String {
    let bearer = format!("Bearer {secret}");
    let path = format!("/api/v1/orgs/{ORG}/embed-tokens");
    loop {
        let answer = server.post_json(
            &path,
            &[("Authorization", &*bearer)],
            &json!({ "ttl_s": 3_600, "ms": restrictions }),
        );
        match answer.status {
            201 => return answer.json()["token"].as_str().expect("a token").to_owned(),
            429 => std::thread::sleep(Duration::from_millis(50)),
            _ => panic!("{} {}", answer.status, answer.body),
        }
    }
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

fn main() -> ExitCode {
    let (viewers, scopes, step_s, seconds, queries) =
        (number(0, 10_000), number(1, 1), number(2, 1), number(3, 30), number(4, 30));
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
    let hosts = if scopes == 1 { HOSTS } else { scopes };
    let tokens: Vec<String> = match scopes {
        1 => vec![token(&server, &secret, &json!({}))],
        _ => (0..scopes)
            .map(|n| token(&server, &secret, &json!({ "match": [format!("host=\"h{n}\"")] })))
            .collect(),
    };
    let query = |n: usize| json!({ "id": format!("{n}:A"), "expr": format!("panel_{n}"), "step": step_s });
    let body = json!({ "queries": (0..queries).map(query).collect::<Vec<_>>() }).to_string();
    let address = Arc::new(Mutex::new(server.url.trim_start_matches("http://").parse().expect("an address")));
    let path = format!("/api/v1/orgs/{ORG}/query/live");

    let idle = server.status_bytes("VmRSS");
    let done = Arc::new(AtomicBool::new(false));
    let (server, writer) = {
        let server = Arc::new(server);
        let (writing, done, secret) = (Arc::clone(&server), Arc::clone(&done), secret.clone());
        let writer = std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let body = harness::remote_write(&series(hosts, queries));
                let answer = writing.write_raw(&secret, &body);
                assert_eq!(answer.status, 204, "{}", answer.body);
                // The samples of the next step arrive 200 ms before it.
                let now = Clock::System.now().as_ms();
                let wait = (1_800 - now.rem_euclid(1_000)) % 1_000;
                std::thread::sleep(Duration::from_millis(wait.unsigned_abs().max(100)));
            }
        });
        (server, writer)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let connecting = Duration::from_millis((viewers / CONNECT_BURST * 10 + 5_000) as u64);
    let until = Instant::now() + connecting + Duration::from_secs(seconds as u64);
    let (all, cpu, started) = runtime.block_on(async {
        let mut tasks = Vec::with_capacity(viewers);
        for n in 0..viewers {
            let token = tokens[n % tokens.len()].clone();
            let target =
                LiveTarget { address: Arc::clone(&address), path: path.clone(), token, body: body.clone() };
            tasks.push(tokio::spawn(view(target, until)));
            if n % CONNECT_BURST == CONNECT_BURST - 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        tokio::time::sleep_until(until - Duration::from_secs(seconds as u64)).await;
        let started = Clock::System.now().as_ms();
        let cpu = cpu_time::cpu_s(server.pid()).expect("it runs");
        let mut all = Vec::with_capacity(viewers);
        for task in tasks {
            all.push(task.await.expect("no panic"));
        }
        (all, cpu_time::cpu_s(server.pid()).expect("it runs") - cpu, started)
    });
    let peak = server.status_bytes("VmHWM");
    done.store(true, Ordering::Relaxed);
    writer.join().expect("no panic");
    let metrics = server.get("/metrics", &[]).body;
    for line in metrics
        .lines()
        .filter(|line| line.starts_with("promlet_live") || line.starts_with("promlet_connections"))
    {
        println!("{line}");
    }

    let step_ms = step_s as i64 * 1_000;
    let mut late: Vec<i64> = all
        .iter()
        .flat_map(|viewed| viewed.steps.iter().zip(&viewed.late_ms))
        .filter(|(step, _)| **step >= started)
        .map(|(_, late)| *late)
        .collect();
    late.sort_unstable();
    let failed: Vec<String> = all.iter().filter_map(|viewed| wrong(viewed, step_ms)).collect();
    let bytes: usize = all.iter().map(|viewed| viewed.bytes).sum();
    let (p50, p99) = (percentile(&late, 0.5), percentile(&late, 0.99));
    println!(
        "{viewers} viewers, {scopes} scopes, {queries} queries, steps of {step_s} s, {seconds} s: {} events of a step, \
         p50 {p50} ms, p99 {p99} ms, slowest {} ms",
        late.len(),
        late.last().copied().unwrap_or_default()
    );
    println!(
        "server: {} MiB at most, {} MiB before; {:.1} % of one core; {} MiB sent",
        peak >> 20,
        idle >> 20,
        cpu / seconds as f64 * 100.0,
        bytes >> 20
    );
    println!("{} viewers with a fault: {:?}", failed.len(), failed.iter().take(5).collect::<Vec<_>>());
    let good = failed.is_empty() && p99 <= LATE_MS_MAX && peak <= SERVER_BYTES_MAX && !late.is_empty();
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
