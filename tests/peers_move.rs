//! `promlet org move` to the real Prometheus, as it is started without a window for late samples,
//! and to the real VictoriaMetrics, while a sender writes: both have every sample once.
//!
//! The programs come from Debian into a folder below `target/`; if they are unavailable, the test
//! fails and reports it.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;
#[path = "peers/servers.rs"]
#[expect(dead_code, reason = "shared: each target needs other servers")]
mod servers;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::{Answer, ORG, Server, Start, bootstrap, eventually, percent, request};
use promlet::clock::Clock;
use promlet::model::{Labels, Sample, Timestamp, stale_nan};
use serde_json::Value as Json;
use servers::{Peer, prometheus_server, victoria_metrics};

const WAIT_MAX: Duration = Duration::from_secs(120);
const SERIES: usize = 60;
const STEPS: i64 = 1_500;
const STEP_MS: i64 = 15_000;

/// Samples of all series, one of which ends with a staleness marker.
fn batch(base: Timestamp, steps: std::ops::Range<i64>) -> Vec<(Labels, Vec<Sample>)> {
    let one = |series: usize| {
        let labels = Labels::from_pairs([
            ("__name__".to_owned(), format!("moved_{}", series % 4)),
            ("series".to_owned(), series.to_string()),
        ]);
        let value = |step: i64| match step {
            700 if series == 1 => stale_nan(),
            step => series as f64 * 1_000.0 + step as f64 / 4.0,
        };
        let is_there = |step: &i64| series != 1 || *step <= 700;
        let sample = |step: i64| Sample { at: base.plus_ms(step * STEP_MS), value: value(step) };
        (labels, steps.clone().filter(is_there).map(sample).collect())
    };
    (0..SERIES).map(one).collect()
}

/// Times in seconds and values, by the label `series`.
type Content = BTreeMap<String, Vec<(f64, f64)>>;

/// What was sent, without staleness markers.
fn sent(base: Timestamp) -> Content {
    let pairs = |samples: Vec<Sample>| {
        let is_shown = |one: &Sample| one.value.to_bits() != stale_nan().to_bits();
        samples.into_iter().filter(is_shown).map(|one| (one.at.as_seconds(), one.value)).collect()
    };
    let all = batch(base, 0..STEPS + 10).into_iter();
    all.map(|(labels, samples)| (labels.value("series").to_owned(), pairs(samples))).collect()
}

/// Returns the response of a server's query API.
fn content(ask: &dyn Fn(&str, i64) -> Answer, base: Timestamp) -> Content {
    let mut all = BTreeMap::new();
    let end = base.plus_ms((STEPS + 100) * STEP_MS).as_s();
    for number in 0..4 {
        let expr = format!("moved_{number}[{}s]", (STEPS + 200) * STEP_MS / 1_000);
        let answer = ask(&expr, end);
        assert_eq!(answer.status, 200, "{}", answer.body);
        for series in answer.json()["data"]["result"].as_array().expect("a matrix") {
            let values = series["values"].as_array().expect("values").iter();
            let value = |text: &Json| text.as_str().and_then(|text| text.parse().ok()).expect("a number");
            let pair = |pair: &Json| (pair[0].as_f64().expect("a time"), value(&pair[1]));
            let name = series["metric"]["series"].as_str().expect("a label");
            // VictoriaMetrics returns staleness markers, as `NaN`.
            let is_number = |pair: &(f64, f64)| !pair.1.is_nan();
            all.insert(name.to_owned(), values.map(pair).filter(is_number).collect());
        }
    }
    all
}

/// Moves the organisation to a peer and compares both, sample by sample.
fn moves_to(name: &str, start: impl Fn(&Path) -> (Peer, String), arguments: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let (_peer, url) = start(&folder.path().join("theirs"));
    let here = folder.path().join("ours");
    let args = ["serve", "--outbound-allow", "127.0.0.1"];
    let server = Server::start(&Start { args: &args, dir: &here, env: &bootstrap() });
    let (_, secret) = server.api_key(&server.sign_in());
    let base = Timestamp::from_s(Clock::System.now().as_s()).plus_ms(-(STEPS + 20) * STEP_MS);
    for first in (0..STEPS).step_by(250) {
        assert_eq!(server.write(&secret, &batch(base, first..first + 250)).status, 204);
    }
    let child = Command::new(env!("CARGO_BIN_EXE_promlet"))
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("PROMLET_DATA_DIR", &here)
        .args(["org", "move", ORG, "--json", "--to", &format!("{url}/api/v1/write")])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A sender writes during the move, some of it twice.
    for step in STEPS..STEPS + 10 {
        assert_eq!(server.write(&secret, &batch(base, step - 1..step + 1)).status, 204);
    }
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{name}: {text}\n{}", server.log());
    let done: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    println!("{name}: {done}");
    for count in ["refused", "different"] {
        assert_eq!(done[count], 0, "{name}: {done}");
    }
    let bearer = format!("Bearer {secret}");
    let ours = || {
        let ask = |expr: &str, time: i64| {
            let path =
                format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query?query={}&time={time}", percent(expr));
            server.get(&path, &[("Authorization", &bearer)])
        };
        content(&ask, base)
    };
    let theirs = || {
        let ask = |expr: &str, time: i64| {
            request("GET", &format!("{url}/api/v1/query?query={}&time={time}", percent(expr)), &[], None)
        };
        content(&ask, base)
    };
    let sent = sent(base);
    assert_eq!(sent.len(), SERIES);
    // Samples since the switch are forwarded.
    let failure = || format!("{name} has other samples: {} series", theirs().len());
    eventually(WAIT_MAX, failure, || (theirs() == sent).then_some(()));
    assert_eq!(ours(), sent, "{name}: queries here are answered by it");
}

#[test]
fn prometheus_without_a_window_for_late_samples_takes_a_whole_organisation() {
    moves_to("Prometheus", prometheus_server, &[]);
    moves_to("Prometheus", prometheus_server, &["--protocol", "2"]);
}

#[test]
fn victoria_metrics_stores_every_sample_once() {
    moves_to("VictoriaMetrics", victoria_metrics, &[]);
    moves_to("VictoriaMetrics", victoria_metrics, &["--compression", "zstd"]);
}
