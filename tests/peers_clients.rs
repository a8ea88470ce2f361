//! Real clients of other servers use promlet: InfluxDB's library for Python, the migration tool of
//! VictoriaMetrics, which copies a Prometheus, the library of Prometheus for Python, which pushes
//! to a Pushgateway, prometheus-api-client, and OpenTelemetry's SDK for Python with deltas.
//!
//! The programs come from Debian and PyPI into a folder below `target/`; if they are unavailable,
//! the test fails and reports it.

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
use std::process::Command;

use harness::{Answer, ORG, Server, Start, bootstrap, percent, remote_write, request};
use packages::{latest_debian, pypi, run};
use promlet::clock::Clock;
use promlet::model::{Labels, Sample, Timestamp};
use serde_json::{Value as Json, json};
use servers::{prometheus_server, write_to};

const CLIENT: &str = "influxdb-client==1.50.0";
const SERIES: i64 = 20;
const STEPS: i64 = 200;
const STEP_MS: i64 = 15_000;

fn serve(dir: &Path) -> Server {
    Server::start(&Start { args: &["serve"], dir, env: &bootstrap() })
}

fn query(server: &Server, secret: &str, expr: &str, time: i64) -> Json {
    let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query?query={}&time={time}", percent(expr));
    let answer = server.get(&path, &[("Authorization", &format!("Bearer {secret}"))]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["data"]["result"].clone()
}

#[test]
fn the_client_of_influxdb_writes_points() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve(folder.path());
    let (_, secret) = server.api_key(&server.sign_in());
    let now = Clock::System.now().as_s();
    let said = run(
        Command::new("python3")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/influx.py"))
            .args([&format!("{}/api/v1/orgs/{ORG}/influx", server.url), &secret, &now.to_string()])
            .env("PYTHONPATH", pypi("influx", CLIENT)),
        "it writes to promlet",
    );
    assert_eq!(said.trim(), "True", "its ping");
    let mut found: Vec<(String, String, String)> = Vec::new();
    for series in query(&server, &secret, "{floor=\"2, left\",db=\"lab\"}", now).as_array().expect("a vector")
    {
        let name = series["metric"]["__name__"].as_str().expect("a name").to_owned();
        let value = series["value"][1].as_str().expect("a value").to_owned();
        found.push((name, value, series["value"][0].to_string()));
    }
    found.sort();
    let at = now.to_string();
    let expected = [("room one_open", "1"), ("room one_people", "3"), ("room one_temperature", "21.5")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned(), at.clone()));
    assert_eq!(found, expected);
}

fn samples(base: Timestamp) -> Vec<(Labels, Vec<Sample>)> {
    let value = |series: i64, step: i64| match (series, step % 50) {
        (0, 7) => f64::NAN,
        (1, 7) => f64::INFINITY,
        (2, 7) => f64::NEG_INFINITY,
        #[expect(clippy::cast_precision_loss, reason = "small")]
        (series, _) => (series * 1_000 + step) as f64 / 3.0,
    };
    let one = |series: i64| {
        let labels = [("__name__", "migrated".to_owned()), ("series", format!("s \"{series}\\"))];
        let sample = |step: i64| Sample { at: base.plus_ms(step * STEP_MS), value: value(series, step) };
        (Labels::from_pairs(labels), (0..STEPS).map(sample).collect())
    };
    (0..SERIES).map(one).collect()
}

/// Times and values by series.
fn content(result: &Json) -> BTreeMap<String, Json> {
    let all = result.as_array().expect("a matrix").iter();
    all.map(|series| (series["metric"].to_string(), series["values"].clone())).collect()
}

#[test]
fn vmctl_copies_a_prometheus_into_an_organisation() {
    let folder = tempfile::tempdir().expect("a folder");
    let (theirs, ours) = (folder.path().join("theirs"), folder.path().join("ours"));
    let (_prometheus, source) = prometheus_server(&theirs);
    let server = serve(&ours);
    let (_, secret) = server.api_key(&server.sign_in());
    let base = Timestamp::from_s(Clock::System.now().as_s()).plus_ms(-(STEPS + 4) * STEP_MS);
    write_to(&source, &remote_write(&samples(base)));
    let (start, end) = (base.plus_ms(-60_000).to_rfc3339(), base.plus_ms((STEPS + 4) * STEP_MS).to_rfc3339());
    let said = run(
        Command::new(latest_debian("victoria", &["victoria-metrics"]).join("usr/bin/vmctl")).args([
            "remote-read",
            "-s",
            "--disable-progress-bar",
            "--remote-read-src-addr",
            &source,
            "--remote-read-filter-label",
            "__name__",
            "--remote-read-filter-label-value",
            "migrated",
            "--remote-read-filter-time-start",
            &start,
            "--remote-read-filter-time-end",
            &end,
            "--remote-read-step-interval",
            "day",
            "--vm-addr",
            &format!("{}/api/v1/orgs/{ORG}/prometheus", server.url),
            "--vm-user",
            "key",
            "--vm-password",
            &secret,
        ]),
        "it copies samples",
    );
    let end_s = base.plus_ms((STEPS + 4) * STEP_MS).as_s();
    let expr = format!("migrated[{}s]", (STEPS + 10) * STEP_MS / 1_000);
    let here = content(&query(&server, &secret, &expr, end_s));
    let answer: Answer =
        request("GET", &format!("{source}/api/v1/query?query={}&time={end_s}", percent(&expr)), &[], None);
    let there = content(&answer.json()["data"]["result"]);
    assert_eq!(there.len(), 20, "{}", json!(there));
    assert_eq!(here, there, "{said}");
}

/// Runs a program of `tests/peers` with the URL of the server, without an organisation, and a key.
fn run_python(script: &str, packages: (&str, &str), server: &Server, secret: &str) -> String {
    run(
        Command::new("python3")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(script))
            .args([server.url.as_str(), secret])
            .env("PYTHONPATH", pypi(packages.0, packages.1)),
        "it is a client of promlet",
    )
}

/// Returns the only value of an expression.
fn value(server: &Server, secret: &str, expr: &str) -> String {
    let found = query(server, secret, expr, Clock::System.now().as_s() + 1);
    let one = found.as_array().filter(|all| all.len() == 1).unwrap_or_else(|| panic!("{expr}: {found}"));
    one[0]["value"][1].as_str().expect("a value").to_owned()
}

const PROMETHEUS_CLIENT: &str = "prometheus-client==0.26.0";
const API_CLIENT: &str = "prometheus-api-client==0.7.2";

#[test]
fn the_client_of_prometheus_pushes_groups_and_they_are_found_value_for_value() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve(folder.path());
    let (_, secret) = server.api_key(&server.sign_in());
    run_python("push.py", ("push", PROMETHEUS_CLIENT), &server, &secret);
    let group = "job=\"backup/nightly\",instance=\"a/b\"";
    for (expr, expected) in [
        (format!("backup_bytes{{disk=\"home \\\"a\\\"\",{group}}}"), "1250000000"),
        (format!("backup_files{{{group}}}"), "7"),
        (format!("backup_seconds_bucket{{le=\"1.0\",{group}}}"), "1"),
        (format!("backup_seconds_bucket{{le=\"10.0\",{group}}}"), "2"),
        (format!("backup_seconds_bucket{{le=\"+Inf\",{group}}}"), "3"),
        (format!("backup_seconds_sum{{{group}}}"), "55.5"),
        (format!("backup_seconds_count{{{group}}}"), "3"),
        (format!("push_failure_time_seconds{{{group}}}"), "0"),
    ] {
        assert_eq!(value(&server, &secret, &expr), expected, "{expr}");
    }
    let now = Clock::System.now().as_s() + 1;
    assert_eq!(query(&server, &secret, "{job=\"brief\"}", now), json!([]), "a deleted group");
    let said = run_python("api_client.py", ("api-client", API_CLIENT), &server, &secret);
    let said: Json = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&said["connected"], &said["value"]), (&json!(true), &json!("7")));
    assert!(said["names"].as_array().expect("a list").contains(&json!("backup_bytes")), "{said}");
}

#[test]
fn the_sdk_of_opentelemetry_sends_deltas_and_their_totals_are_found_value_for_value() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve(folder.path());
    let (_, secret) = server.api_key(&server.sign_in());
    let packages = ("otlp-delta", "opentelemetry-exporter-otlp-proto-http==1.45.2");
    let said = run_python("otlp_delta.py", packages, &server, &secret);
    let totals: Json = serde_json::from_str(said.lines().last().unwrap_or_default()).expect("JSON");
    for (expr, expected) in [
        ("orders_total{shop=\"oslo\"}", &totals["orders"]),
        ("open_orders", &totals["open"]),
        ("latency_seconds_count", &totals["latency"]),
        ("latency_seconds_sum", &totals["latency_sum"]),
        ("latency_seconds_bucket{le=\"+Inf\"}", &totals["latency"]),
        ("histogram_count(sizes)", &totals["sizes"]),
    ] {
        let found: f64 = value(&server, &secret, expr).parse().expect("a number");
        assert_eq!(Some(found), expected.as_f64(), "{expr}");
    }
}
