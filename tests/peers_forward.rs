//! Forwarding to the real Prometheus with its receiver, and to the real VictoriaMetrics, while a
//! sender writes and the source is killed: both have every sample, equal to the bit.
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
use std::time::Duration;

use harness::{Answer, ORG, Server, Start, bootstrap, eventually, percent, request};
use promlet::clock::Clock;
use promlet::model::{Labels, Sample, Timestamp, stale_nan};
use serde_json::{Value as Json, json};
use servers::{Peer, prometheus_server, victoria_metrics};

const WAIT_MAX: Duration = Duration::from_secs(120);
const SERIES: usize = 60;
const STEPS: i64 = 300;
const STEP_MS: i64 = 15_000;

/// Samples of all series, one of which ends with a staleness marker.
fn batch(base: Timestamp, steps: std::ops::Range<i64>) -> Vec<(Labels, Vec<Sample>)> {
    let one = |series: usize| {
        let labels = Labels::from_pairs([
            ("__name__".to_owned(), format!("forwarded_{}", series % 4)),
            ("series".to_owned(), series.to_string()),
        ]);
        let value = |step: i64| match step {
            200 if series == 1 => stale_nan(),
            // VictoriaMetrics stores decimal digits, so a third of a number would be rounded.
            step => series as f64 * 1_000.0 + step as f64 / 4.0,
        };
        let is_there = |step: &i64| series != 1 || *step <= 200;
        let sample = |step: i64| Sample { at: base.plus_ms(step * STEP_MS), value: value(step) };
        (labels, steps.clone().filter(is_there).map(sample).collect())
    };
    (0..SERIES).map(one).collect()
}

/// Values by series and time, as the query API returns them.
fn content(ask: &dyn Fn(&str, i64) -> Answer, base: Timestamp) -> BTreeMap<String, Vec<(String, u64)>> {
    let mut all = BTreeMap::new();
    let end = base.plus_ms((STEPS + 100) * STEP_MS).as_s();
    for number in 0..4 {
        let expr = format!("forwarded_{number}[{}s]", (STEPS + 200) * STEP_MS / 1_000);
        let answer = ask(&expr, end);
        assert_eq!(answer.status, 200, "{}", answer.body);
        for series in answer.json()["data"]["result"].as_array().expect("a matrix") {
            let values = series["values"].as_array().expect("values").iter();
            let value =
                |text: &Json| text.as_str().and_then(|text| text.parse::<f64>().ok()).expect("a number");
            let pair = |pair: &Json| (pair[0].to_string(), value(&pair[1]).to_bits());
            // VictoriaMetrics returns staleness markers, as `NaN`.
            let is_number = |pair: &(String, u64)| !f64::from_bits(pair.1).is_nan();
            let mut samples: Vec<_> = values.map(pair).filter(is_number).collect();
            // Samples are sent at least once, and VictoriaMetrics stores repetitions.
            samples.dedup();
            all.insert(series["metric"]["series"].to_string(), samples);
        }
    }
    all
}

/// Forwards to a peer and compares both, sample by sample.
fn forwards_to(name: &str, start: impl Fn(&Path) -> (Peer, String), protocol: &str, compression: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let (_peer, url) = start(&folder.path().join("theirs"));
    let here = folder.path().join("ours");
    let args = ["serve", "--outbound-allow", "127.0.0.1"];
    let serve = || Server::start(&Start { args: &args, dir: &here, env: &bootstrap() });
    let mut server = serve();
    let (_, secret) = server.api_key(&server.sign_in());
    let base = Timestamp::from_s(Clock::System.now().as_s()).plus_ms(-(STEPS + 20) * STEP_MS);
    let body = json!({
        "name": name,
        "target": { "url": format!("{url}/api/v1/write") },
        "protocol": protocol,
        "compression": compression,
    });
    let path = format!("/api/v1/orgs/{ORG}/forward");
    let cookie = server.sign_in();
    let headers = [("Cookie", &*cookie)];
    assert_eq!(server.post_json(&path, &headers, &body).status, 201);
    let probe = server.post_json(&format!("{path}/1/probe"), &headers, &json!({})).json();
    assert_eq!(probe["ok"], true, "{name}: {probe}");
    for step in 0..STEPS {
        assert_eq!(server.write(&secret, &batch(base, step..step + 1)).status, 204);
        if step == STEPS / 2 {
            server.kill();
            server = serve();
        }
    }
    let bearer = format!("Bearer {secret}");
    let ours = content(
        &|expr, time| {
            let path =
                format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query?query={}&time={time}", percent(expr));
            server.get(&path, &[("Authorization", &bearer)])
        },
        base,
    );
    assert_eq!(ours.len(), SERIES);
    let theirs = || {
        let ask = |expr: &str, time: i64| {
            request("GET", &format!("{url}/api/v1/query?query={}&time={time}", percent(expr)), &[], None)
        };
        content(&ask, base)
    };
    let cookie = server.sign_in();
    let state = || server.get(&format!("{path}/1"), &[("Cookie", &cookie)]).body;
    let failure = || format!("{name} has other samples: {}", state());
    eventually(WAIT_MAX, failure, || (theirs() == ours).then_some(()));
    println!("{name} {protocol} {compression}: {}", state());
}

#[test]
fn prometheus_with_its_receiver_gets_every_sample() {
    forwards_to("Prometheus", prometheus_server, "rw1", "snappy");
    forwards_to("Prometheus", prometheus_server, "auto", "snappy");
}

#[test]
fn victoria_metrics_gets_every_sample() {
    forwards_to("VictoriaMetrics", victoria_metrics, "auto", "snappy");
    forwards_to("VictoriaMetrics", victoria_metrics, "rw1", "zstd");
}
