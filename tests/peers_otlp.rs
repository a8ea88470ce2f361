//! OpenTelemetry's own SDK exports to promlet, in protobuf and in JSON, and PromQL returns the
//! measured values. The same points go to VictoriaMetrics with Prometheus naming: both must have
//! the same series and values.
//!
//! The SDK comes from pip, each exporter into its own environment, because they need different
//! versions of the same packages. VictoriaMetrics comes from Debian. Debian's Prometheus is built
//! without OTLP.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use harness::{Answer, ORG, Server, eventually, percent, request};
use packages::{environment, latest_debian, run};

const PROTOBUF: &str = "opentelemetry-exporter-otlp-proto-http==1.45.2";
const JSON: &str = "opentelemetry-exporter-otlp-json-http==0.66b1";

/// Queries for the measurements of `tests/peers/otlp.py`, and their results.
const ANSWERS: &[(&str, f64)] = &[
    (
        "http_server_requests_total{http_request_method=\"GET\", http_response_status_code=\"200\", job=\"eu/shop\", \
         instance=\"i-1\", service_name=\"shop\", deployment_environment_name=\"prod\", host_name=\"a1\"}",
        7.0,
    ),
    ("sum(http_server_requests_total)", 9.0),
    ("cpu_time_seconds_total{cpu=\"0\"}", 1.25),
    ("pool_connections{pool=\"main\"}", 3.0),
    ("memory_utilization_ratio", 0.375),
    ("temperature_celsius{room_name=\"cellar\"}", -3.0),
    ("http_server_duration_seconds_bucket{http_route=\"/api/{id}\", le=\"0.1\"}", 1.0),
    ("http_server_duration_seconds_bucket{le=\"0.5\"}", 3.0),
    ("http_server_duration_seconds_bucket{le=\"1\"}", 4.0),
    ("http_server_duration_seconds_bucket{le=\"10\"}", 4.0),
    ("http_server_duration_seconds_bucket{le=\"+Inf\"}", 5.0),
    ("http_server_duration_seconds_count", 5.0),
    ("http_server_duration_seconds_sum", 43.35),
    ("histogram_count(body_size_exponential_bytes{direction=\"in\"})", 5.0),
    ("histogram_sum(body_size_exponential_bytes)", 1011.0),
    ("histogram_fraction(0, 4, body_size_exponential_bytes)", 0.8),
    ("target_info{k8s_pod_name=\"shop-0\", retries=\"3\"}", 1.0),
    (
        "sum by (k8s_pod_name) (pool_connections * on (job, instance) group_left (k8s_pod_name) target_info)",
        3.0,
    ),
    ("count({job=\"eu/shop\"})", 16.0),
];

/// Measures and exports. Returns the time of the points.
fn export(encoding: &str, secret: &str, urls: &[String]) -> String {
    let package = if encoding == "json" { JSON } else { PROTOBUF };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/otlp.py");
    let mut sdk = Command::new(environment(&format!("otlp-{encoding}"), package).join("python"));
    // The environment of the test run must not configure the SDK.
    sdk.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    run(sdk.arg(script).args([encoding, secret]).args(urls), "see above").trim().to_owned()
}

fn ask(server: &Server, secret: &str, expr: &str, time: &str) -> Answer {
    let bearer = format!("Bearer {secret}");
    let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query?query={}&time={time}", percent(expr));
    server.get(&path, &[("Authorization", &bearer)])
}

/// Values by label set.
fn by_labels(answer: &Answer) -> BTreeMap<BTreeMap<String, String>, String> {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let result = answer.json()["data"]["result"].clone();
    let series = result.as_array().expect("a list").iter();
    let read = series.map(|series| {
        let labels = serde_json::from_value(series["metric"].clone()).expect("labels");
        (labels, series["value"][1].as_str().unwrap_or("a histogram").to_owned())
    });
    read.collect()
}

#[test]
fn what_the_sdk_measures_is_answered_in_both_encodings() {
    for encoding in ["protobuf", "json"] {
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server::serve(dir.path());
        let (_, secret) = server.api_key(&server.sign_in());
        let url = format!("{}/api/v1/orgs/{ORG}/otlp/v1/metrics", server.url);
        let time = export(encoding, &secret, &[url]);
        for (expr, expected) in ANSWERS {
            let answer = ask(&server, &secret, expr, &time);
            let found = by_labels(&answer);
            let value = found.values().next().and_then(|value| value.parse::<f64>().ok());
            assert!(
                found.len() == 1 && value.is_some_and(|value| (value - expected).abs() < 1e-9),
                "{encoding}: {expr}: {}",
                answer.body
            );
        }
        println!("{} questions answered about what came in {encoding}", ANSWERS.len());
    }
}

struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// VictoriaMetrics in this folder, and its address.
fn victoria(dir: &Path) -> (Peer, String) {
    // Debian's stable release has a version without these flags.
    let programs = latest_debian("victoria", &["victoria-metrics"]);
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let child = Command::new(programs.join("usr/bin/victoria-metrics"))
        .arg(format!("-storageDataPath={}", dir.display()))
        .arg(format!("-httpListenAddr=127.0.0.1:{port}"))
        .args([
            "-opentelemetry.usePrometheusNaming",
            "-opentelemetry.promoteAllResourceAttributes=false",
            "-opentelemetry.promoteResourceAttributes=service.name,deployment.environment.name,host.name",
            "-opentelemetry.promoteScopeMetadata=false",
            "-search.latencyOffset=0s",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("VictoriaMetrics starts");
    let (peer, url) = (Peer(child), format!("http://127.0.0.1:{port}"));
    let failure = || "VictoriaMetrics does not listen".to_owned();
    eventually(Duration::from_secs(60), failure, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    (peer, url)
}

#[test]
fn victoria_metrics_makes_the_same_series_of_the_same_points() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::serve(&dir.path().join("ours"));
    let (_, secret) = server.api_key(&server.sign_in());
    let (_peer, victoria) = victoria(&dir.path().join("theirs"));
    let ours = format!("{}/api/v1/orgs/{ORG}/otlp/v1/metrics", server.url);
    let time = export("protobuf", &secret, &[ours, format!("{victoria}/opentelemetry/v1/metrics")]);
    let flushed = request("GET", &format!("{victoria}/internal/force_flush"), &[], None);
    assert_eq!(flushed.status, 200, "{}", flushed.body);

    // Exponential histograms are native ones here and ranges of its own there.
    let expr = "{__name__!=\"\", __name__!~\"body_size_exponential.*\"}";
    let url = format!("{victoria}/api/v1/query?query={}&time={time}", percent(expr));
    let theirs = by_labels(&request("GET", &url, &[], None));
    let mut ours = by_labels(&ask(&server, &secret, expr, &time));
    // It makes no `job` and `instance` of a resource, and hence no `target_info` to join by them.
    ours.retain(|labels, _| labels.get("__name__").is_none_or(|name| name != "target_info"));
    let ours: BTreeMap<_, _> = ours
        .into_iter()
        .map(|(mut labels, value)| {
            assert_eq!(labels.remove("job").as_deref(), Some("eu/shop"));
            assert_eq!(labels.remove("instance").as_deref(), Some("i-1"));
            (labels, value)
        })
        .collect();
    assert_eq!(ours.len(), 14);
    assert_eq!(ours, theirs);
}
