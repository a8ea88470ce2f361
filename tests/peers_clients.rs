//! Real clients of other servers use promlet: InfluxDB's library for Python, the migration tool of
//! VictoriaMetrics, which copies a Prometheus, the library of Prometheus for Python, which pushes
//! to a Pushgateway, its library for Go, which pushes protobuf messages, prometheus-api-client,
//! OpenTelemetry's SDK for Python with deltas, and collectd, which is scraped, also as an exporter
//! of statsd's datagrams.
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

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harness::{Answer, ORG, Server, Start, bootstrap, eventually, percent, remote_write, request};
use packages::{debian, debian_12, latest_debian, pypi, run};
use promlet::clock::Clock;
use promlet::model::{Labels, Sample, Timestamp};
use serde_json::{Value as Json, json};
use servers::{Peer, free_port, prometheus_server, started, write_to};

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

/// Builds the program of `tests/peers/push.go` into `dir`.
fn go_client(dir: &Path) -> PathBuf {
    const PACKAGES: [&str; 10] = [
        "golang-github-beorn7-perks-dev",
        "golang-github-cespare-xxhash-dev",
        "golang-github-golang-protobuf-1-5-dev",
        "golang-github-prometheus-client-golang-dev",
        "golang-github-prometheus-client-model-dev",
        "golang-github-prometheus-common-dev",
        "golang-github-prometheus-procfs-dev",
        "golang-golang-x-sys-dev",
        "golang-google-protobuf-dev",
        "golang-protobuf-extensions-dev",
    ];
    let root = debian_12("go-client", &PACKAGES);
    let program = dir.join("push");
    run(
        packages::go(&[&root.join("usr/share/gocode")])
            .args(["build", "-o"])
            .arg(&program)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/push.go")),
        "the client library of Prometheus for Go comes from Debian",
    );
    program
}

#[test]
fn the_client_of_prometheus_for_go_pushes_messages_and_they_are_found_value_for_value() {
    let folder = tempfile::tempdir().expect("a folder");
    let client = go_client(folder.path());
    let server = serve(&folder.path().join("store"));
    let (_, secret) = server.api_key(&server.sign_in());
    let said = run(Command::new(client).args([server.url.as_str(), &secret]), "it is a client of promlet");
    let group = "job=\"sync/nightly\",instance=\"a/b\"";
    for (series, expected) in [
        ("sync_files_total{disk=\"home \\\"a\\\"\",", "7"),
        ("sync_bytes{", "1250000000"),
        ("sync_seconds_bucket{le=\"1\",", "1"),
        ("sync_seconds_bucket{le=\"2.5\",", "2"),
        ("sync_seconds_bucket{le=\"1e+06\",", "3"),
        ("sync_seconds_bucket{le=\"+Inf\",", "4"),
        ("sync_seconds_sum{", "2000052.5"),
        ("sync_seconds_count{", "4"),
        ("sync_wait{quantile=\"0.5\",", "2"),
        ("sync_wait{quantile=\"1\",", "2000000"),
        ("sync_wait_count{", "4"),
        ("sync_errors{", "0"),
        ("push_failure_time_seconds{", "0"),
    ] {
        assert_eq!(value(&server, &secret, &format!("{series}{group}}}")), expected, "{series}");
    }
    let now = Clock::System.now().as_s() + 1;
    assert_eq!(query(&server, &secret, "{job=~\"brief|native\"}", now), json!([]));
    assert!(said.contains("400") && said.contains("is a native histogram"), "{said}");
    let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/metadata?metric=sync_files_total");
    let metadata = server.get(&path, &[("Authorization", &format!("Bearer {secret}"))]).json();
    let expected = json!([{ "type": "counter", "help": "Files \\ so far.", "unit": "" }]);
    assert_eq!(metadata["data"]["sync_files_total"], expected);
}

/// Starts collectd, which measures this machine each second and listens to statsd's datagrams at
/// `statsd`. Returns the address of its metrics.
fn collectd(dir: &Path, statsd: SocketAddr) -> (Peer, String) {
    let packages = ["collectd-core", "libltdl7", "libmicrohttpd12", "libprotobuf-c1"];
    let root = debian("collectd", &packages);
    let port = free_port();
    let (root_path, dir_path) = (root.display(), dir.display());
    let config = format!(
        "Hostname \"laptop\"\nFQDNLookup false\nInterval 1\nBaseDir \"{dir_path}\"\nPIDFile \"{dir_path}/pid\"\n\
         PluginDir \"{root_path}/usr/lib/collectd\"\nTypesDB \"{root_path}/usr/share/collectd/types.db\"\n\
         LoadPlugin load\nLoadPlugin memory\nLoadPlugin statsd\nLoadPlugin write_prometheus\n\
         <Plugin statsd>\n  Host \"127.0.0.1\"\n  Port \"{}\"\n</Plugin>\n\
         <Plugin write_prometheus>\n  Host \"127.0.0.1\"\n  Port \"{port}\"\n</Plugin>\n",
        statsd.port()
    );
    let file = dir.join("collectd.conf");
    std::fs::write(&file, config).expect("written");
    let libraries = format!("{root_path}/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let mut command = Command::new(root.join("usr/sbin/collectd"));
    command.arg("-f").arg("-C").arg(file).env("LD_LIBRARY_PATH", libraries);
    let (peer, url) = started(&mut command, port);
    (peer, url.trim_start_matches("http://").to_owned())
}

/// The beginnings of the lines that collectd shows for the datagrams of the test.
const STATSD: [&str; 2] =
    ["collectd_statsd_derive_total{statsd=\"shop.deploys\"", "collectd_statsd_gauge{statsd=\"queue\""];

/// Returns the stored value of the sample in a line of collectd, if it is stored with the time in
/// the line.
fn stored_value(server: &Server, secret: &str, job: &str, line: &str) -> Option<f64> {
    let (series, rest) = line.split_once("} ")?;
    let (_, at) = rest.split_once(' ')?;
    let at: f64 = at.parse().ok()?;
    let labels = format!("exported_instance=\"laptop\",job=\"{job}\"");
    let series = format!("{}}}", series.replace("instance=\"laptop\"", &labels));
    let number = |expr: &str| -> Option<f64> {
        let path = format!(
            "/api/v1/orgs/{ORG}/prometheus/api/v1/query?query={}&time={}",
            percent(expr),
            at / 1_000.0
        );
        let answer = server.get(&path, &[("Authorization", &format!("Bearer {secret}"))]).json();
        answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    };
    let stored_at = number(&format!("timestamp({series})"))?;
    if (stored_at * 1_000.0 - at).abs() < 0.5 { number(&series) } else { None }
}

/// The samples of collectd have times of their own, so each is found at its time.
#[test]
fn collectd_is_scraped_as_text_and_as_messages_value_for_value() {
    let folder = tempfile::tempdir().expect("a folder");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    // A port that was free a moment ago.
    let statsd = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let (_collectd, address) = collectd(folder.path(), statsd);
    let job = |name: &str, protocol: &str| {
        format!(
            "- {{job_name: {name}, scrape_interval: 250ms, scrape_timeout: 250ms, \
             scrape_protocols: [{protocol}], static_configs: [{{targets: ['{address}']}}]}}\n"
        )
    };
    let jobs = job("text", "PrometheusText0.0.4") + &job("messages", "PrometheusProto");
    let config = folder.path().join("prometheus.yml");
    std::fs::write(&config, format!("scrape_configs:\n{jobs}")).expect("written");
    let path = config.to_str().expect("plain");
    let env = [&bootstrap()[..], &[("PROMLET_SCRAPE_CONFIG", path)]].concat();
    let server = Server::start(&Start { args: &["serve"], dir: &folder.path().join("store"), env: &env });
    let (_, secret) = server.api_key(&server.sign_in());
    let mut pending = BTreeSet::new();
    let (mut seen, mut of_statsd) = (BTreeMap::new(), BTreeSet::new());
    let failure = || format!("no sample of collectd is found at its time\n{}", server.log());
    eventually(Duration::from_secs(60), failure, || {
        // Datagrams to a socket that is not open yet are refused.
        let _ = client.send_to(b"shop.deploys:3|c\nqueue:42|g\n", statsd);
        let body = request("GET", &format!("http://{address}/metrics"), &[], None).body;
        let lines = body.lines().filter(|line| line.starts_with("collectd_"));
        let shown = lines.flat_map(|line| ["text", "messages"].map(|job| (job, line.to_owned())));
        pending.extend(shown);
        pending.retain(|(job, line)| {
            let Some(stored) = stored_value(&server, &secret, job, line) else { return true };
            let value: f64 = line.split(' ').nth_back(1).and_then(|text| text.parse().ok()).expect("a value");
            assert_eq!(stored, value, "{job}: {line}");
            *seen.entry(*job).or_insert(0) += 1;
            let of = STATSD.into_iter().filter(|series| line.starts_with(series));
            of_statsd.extend(of.map(|series| (*job, series)));
            false
        });
        let is_enough = seen.len() == 2 && seen.values().all(|seen| *seen >= 5);
        (is_enough && of_statsd.len() == 2 * STATSD.len()).then_some(())
    });
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
