//! `promlet agent` from outside: received samples reach its targets, whatever the responses of the
//! targets are and however the agent ends.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promlet::clock::Clock;
use promlet::model::{Labels, Sample};
use serde_json::json;

use crate::harness::{Server, Start, eventually, remote_write, request};
use crate::lying_target::{Accepted, Lie, LyingTarget};

const WAIT_MAX: Duration = Duration::from_secs(60);

/// Writes the file of an agent and returns its path.
fn config(dir: &Path, relabel: &serde_json::Value, targets: &[&LyingTarget]) -> String {
    let entry = |(place, target): (usize, &&LyingTarget)| json!({ "name": format!("t{place}"), "url": format!("{}/api/v1/write", target.url), "protocol": "1.0" });
    let targets: Vec<_> = targets.iter().enumerate().map(entry).collect();
    let path = dir.join("agent.json");
    std::fs::write(&path, json!({ "relabel": relabel, "targets": targets }).to_string()).expect("written");
    path.to_str().expect("UTF-8").to_owned()
}

fn start(dir: &Path, config: &str, env: &[(&str, &str)]) -> Server {
    let args = ["agent", "--config", config, "--outbound-allow", "127.0.0.0/8"];
    Server::start(&Start { args: &args, dir: &dir.join("queue"), env })
}

fn series(name: &str, values: std::ops::Range<i32>) -> (Labels, Vec<Sample>) {
    let now = Clock::System.now();
    let labels = Labels::from_pairs([("__name__", name), ("pod", "p1")]);
    let sample = |n| Sample { at: now.plus_ms(i64::from(n) - 10_000), value: f64::from(n) };
    (labels, values.map(sample).collect())
}

fn send(agent: &Server, series: &[(Labels, Vec<Sample>)]) -> u16 {
    let headers = [("Content-Type", "application/x-protobuf"), ("Content-Encoding", "snappy")];
    request("POST", &format!("{}/api/v1/write", agent.url), &headers, Some(&remote_write(series))).status
}

/// Waits until the target has these values of a series, with repetitions but in order of first
/// arrival.
#[track_caller]
fn arrives(agent: &Server, target: &LyingTarget, series: &str, values: std::ops::Range<i32>) {
    let expected: Vec<u64> = values.map(|value| f64::from(value).to_bits()).collect();
    let firsts = |accepted: &Accepted| {
        let mut seen: Vec<u64> = Vec::new();
        for (_, bits) in accepted.get(series).into_iter().flatten() {
            if !seen.contains(bits) {
                seen.push(*bits);
            }
        }
        seen
    };
    let failure = || format!("{:?}\n{}", target.accepted(), agent.log());
    eventually(WAIT_MAX, failure, || (firsts(&target.accepted()) == expected).then_some(()));
}

#[test]
fn an_agent_relabels_and_forwards_what_each_protocol_brings() {
    let dir = crate::harness::scratch::temporary_folder().expect("temp");
    let target = LyingTarget::start(|_| Lie::Accept);
    let rules = json!([
        { "action": "labeldrop", "regex": "pod" },
        { "action": "drop", "source_labels": ["__name__"], "regex": "debug_.*" },
        { "target_label": "site", "replacement": "berlin" },
    ]);
    let agent = start(dir.path(), &config(dir.path(), &rules, &[&target]), &[]);
    assert_eq!(send(&agent, &[series("up", 0..3), series("debug_a", 0..3)]), 204);
    let text = request(
        "POST",
        &format!("{}/api/v1/import/prometheus", agent.url),
        &[("Content-Type", "text/plain")],
        Some(b"from_text{pod=\"x\"} 5\n"),
    );
    assert_eq!(text.status, 200, "{}", text.body);
    let nanoseconds = format!("{}000000", Clock::System.now().as_ms());
    let point = json!({ "timeUnixNano": nanoseconds, "asDouble": 1.0 });
    let metric = json!({ "name": "from_otlp", "gauge": { "dataPoints": [point] } });
    let body = json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [metric] }] }] }).to_string();
    let url = format!("{}/v1/metrics", agent.url);
    let otlp = request("POST", &url, &[("Content-Type", "application/json")], Some(body.as_bytes()));
    assert_eq!(otlp.status, 200, "{}", otlp.body);
    arrives(&agent, &target, r#"{__name__="up", site="berlin"}"#, 0..3);
    arrives(&agent, &target, r#"{__name__="from_text", site="berlin"}"#, 5..6);
    arrives(&agent, &target, r#"{__name__="from_otlp", site="berlin"}"#, 1..2);
    assert!(target.accepted().keys().all(|series| !series.contains("debug")), "{:?}", target.accepted());
    assert!(agent.terminate().success());
}

#[test]
fn samples_wait_for_a_target_that_is_down_across_kills_of_the_agent() {
    let dir = crate::harness::scratch::temporary_folder().expect("temp");
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let target = LyingTarget::start(move |_| match is_up.load(Ordering::SeqCst) {
        true => Lie::Accept,
        false => Lie::Status(503),
    });
    let other = LyingTarget::start(|_| Lie::Accept);
    let file = config(dir.path(), &json!([]), &[&target, &other]);
    for round in 0..3 {
        let agent = start(dir.path(), &file, &[]);
        assert_eq!(send(&agent, &[series("up", round * 10..round * 10 + 10)]), 204);
        if round == 1 {
            assert!(agent.terminate().success());
        } else {
            agent.kill();
        }
    }
    let agent = start(dir.path(), &file, &[]);
    arrives(&agent, &other, r#"{__name__="up", pod="p1"}"#, 0..30);
    assert!(target.accepted().is_empty());
    up.store(true, Ordering::SeqCst);
    arrives(&agent, &target, r#"{__name__="up", pod="p1"}"#, 0..30);
    assert!(agent.terminate().success());
}

#[test]
fn an_agent_with_a_token_admits_only_its_bearer_and_one_without_no_page_of_a_browser() {
    let dir = crate::harness::scratch::temporary_folder().expect("temp");
    let target = LyingTarget::start(|_| Lie::Accept);
    let file = config(dir.path(), &json!([]), &[&target]);
    let agent = start(dir.path(), &file, &[("PROMLET_AGENT_TOKEN", "a long enough token")]);
    let post = |url: &str, headers: &[(&str, &str)]| {
        let headers = [&[("Content-Type", "text/plain")], headers].concat();
        request("POST", &format!("{url}/api/v1/import/prometheus"), &headers, Some(b"a 1\n")).status
    };
    assert_eq!(post(&agent.url, &[]), 401);
    assert_eq!(post(&agent.url, &[("Authorization", "Bearer another")]), 401);
    assert_eq!(post(&agent.url, &[("Authorization", "Bearer a long enough token")]), 200);
    assert_eq!(request("GET", &format!("{}/metrics", agent.url), &[], None).status, 401);
    assert!(agent.terminate().success());

    let agent = start(dir.path(), &file, &[]);
    assert_eq!(post(&agent.url, &[]), 200);
    assert_eq!(post(&agent.url, &[("Origin", "https://evil.example")]), 401);
    assert_eq!(post(&agent.url, &[("X-Forwarded-For", "203.0.113.7")]), 401);
    assert_eq!(request("GET", &format!("{}/api/v1/orgs", agent.url), &[], None).status, 404);
    assert!(agent.terminate().success());
}

#[test]
fn a_server_does_not_open_the_queue_of_an_agent_nor_an_agent_the_store_of_a_server() {
    let dir = crate::harness::scratch::temporary_folder().expect("temp");
    let target = LyingTarget::start(|_| Lie::Accept);
    let file = config(dir.path(), &json!([]), &[&target]);
    assert!(start(dir.path(), &file, &[]).terminate().success());
    let refused = |args: &[&str], folder: &Path| {
        let start = Start { args, dir: folder, env: &[] };
        let output = crate::harness::command(&start).output().expect("it runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let queue = dir.path().join("queue");
    assert!(refused(&["serve"], &queue).contains("is the queue of `promlet agent`"));
    let store = dir.path().join("store");
    assert!(Server::serve(&store).terminate().success());
    let text = refused(&["agent", "--config", &file, "--outbound-allow", "127.0.0.0/8"], &store);
    assert!(text.contains("holds the store of a server"), "{text}");
}

/// Whether samples are not repeated after an answer.
fn is_final(lie: &Lie) -> bool {
    matches!(lie, Lie::Status(400 | 409 | 413 | 422) | Lie::InvalidJson | Lie::EndlessBody)
        || *lie == Lie::AcknowledgeAndForget
}

/// Returns a metric of the agent's target, 0 if it is missing.
fn figure(agent: &Server, name: &str) -> f64 {
    let metrics = request("GET", &format!("{}/metrics", agent.url), &[], None);
    let line = metrics.body.lines().find(|line| line.starts_with(&format!("promlet_forward_{name}{{")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
}

#[test]
fn what_a_target_refuses_for_good_is_counted_exactly_and_holds_up_nothing() {
    let dir = crate::harness::scratch::temporary_folder().expect("temp");
    let lie: Arc<Mutex<Lie>> = Arc::new(Mutex::new(Lie::Accept));
    let script = Arc::clone(&lie);
    let target = LyingTarget::start(move |_| *script.lock().expect("unpoisoned"));
    let agent = start(dir.path(), &config(dir.path(), &json!([]), &[&target]), &[]);
    let lies: Vec<Lie> = Lie::ALL.into_iter().filter(is_final).collect();
    assert_eq!(lies.len(), 7);
    let mut sent = 0;
    let mut forgotten = 0.0;
    for some in lies {
        *lie.lock().expect("unpoisoned") = some;
        // A single sample, because a batch is split until each sample is refused.
        assert_eq!(send(&agent, &[series("lost", sent..sent + 1)]), 204);
        sent += 1;
        let done = || figure(&agent, "refused_samples_total") + figure(&agent, "sent_samples_total");
        let failure = || format!("{some:?}: {}", agent.log());
        eventually(WAIT_MAX, failure, || (done() >= f64::from(sent)).then_some(()));
        forgotten += f64::from(u8::from(some == Lie::AcknowledgeAndForget));
    }
    assert_eq!(figure(&agent, "refused_samples_total"), f64::from(sent) - forgotten);
    *lie.lock().expect("unpoisoned") = Lie::Accept;
    assert_eq!(send(&agent, &[series("up", 0..50)]), 204);
    arrives(&agent, &target, r#"{__name__="up", pod="p1"}"#, 0..50);
    assert!(!target.accepted().keys().any(|series| series.contains("lost")), "{:?}", target.accepted());
    let failure = || format!("the lag does not end: {}", agent.log());
    eventually(WAIT_MAX, failure, || (figure(&agent, "lag_samples") == 0.0).then_some(()));
    assert!(figure(&agent, "up") == 1.0 && figure(&agent, "lag_seconds") == 0.0);
    assert!(agent.terminate().success());
}

#[test]
fn every_lie_of_a_target_is_survived_and_what_it_may_retry_arrives() {
    let dir = crate::harness::scratch::temporary_folder().expect("temp");
    // After these the samples are refused for good or counted as sent (the next test), or the test
    // takes as long as a timeout.
    let skipped = |lie: &Lie| is_final(lie) || *lie == Lie::Hang;
    let lies: Vec<Lie> = Lie::ALL.into_iter().filter(|lie| !skipped(lie)).collect();
    let next: Arc<Mutex<Vec<Lie>>> = Arc::default();
    let script = Arc::clone(&next);
    let target = LyingTarget::start(move |_| script.lock().expect("unpoisoned").pop().unwrap_or(Lie::Accept));
    let agent = start(dir.path(), &config(dir.path(), &json!([]), &[&target]), &[]);
    let mut sent = 0;
    // A few at once, because the delay doubles with each.
    for some in lies.chunks(3) {
        next.lock().expect("unpoisoned").extend(some);
        assert_eq!(send(&agent, &[series("up", sent..sent + 50)]), 204);
        sent += 50;
        arrives(&agent, &target, r#"{__name__="up", pod="p1"}"#, 0..sent);
    }
    assert!(target.requests() > lies.len(), "{} requests", target.requests());
    assert!(target.heads().iter().all(|head| head.contains("x-prometheus-remote-write-version")));
    assert!(agent.terminate().success());
}
