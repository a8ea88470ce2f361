//! End to end with real programs: Prometheus 3 scrapes a real node_exporter and writes to promlet.
//! For those series promlet must give the same PromQL answers as that Prometheus, by cookie and by
//! embed token.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use harness::{Answer, ORG, Server, eventually, percent, request};
use promlet::clock::Clock;
use serde_json::{Value as Json, json};

struct Peer {
    name: &'static str,
    child: Child,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(name: &'static str, command: &mut Command) -> Peer {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap_or_else(|e| panic!("{name} does not start: {e}"));
    Peer { name, child }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    eventually(Duration::from_secs(90), || format!("waited for {what}"), || done().then_some(()));
}

/// A client of instant and range queries: from (expression, time or start/end) to (status, body).
struct Asker<'a> {
    name: &'a str,
    instant: Ask<'a>,
    range: Ask<'a>,
}

/// An expression with start, end and step; an instant query uses only the end.
type Ask<'a> = Box<dyn Fn(&str, [i64; 3]) -> Answer + 'a>;

const QUERIES: &[&str] = &[
    "up",
    "count({job=\"node\"})",
    "count by (__name__) ({job=\"node\"})",
    "node_memory_MemTotal_bytes / 1024 / 1024",
    "node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes",
    "rate(node_cpu_seconds_total[10s])",
    "sum by (mode) (rate(node_cpu_seconds_total{mode!=\"idle\"}[10s]))",
    "100 - avg by (instance) (irate(node_cpu_seconds_total{mode=\"idle\"}[10s])) * 100",
    "increase(node_context_switches_total[12s])",
    "topk(3, node_filesystem_size_bytes)",
    "quantile by (job) (0.7, node_cpu_seconds_total)",
    "stddev(node_cpu_seconds_total)",
    "node_load1 offset 4s",
    "max_over_time(node_load1[8s]) - min_over_time(node_load1[8s])",
    "avg_over_time(node_memory_MemAvailable_bytes[9s])",
    "max_over_time(rate(node_cpu_seconds_total{mode=\"user\"}[5s])[10s:2s])",
    "histogram_quantile(0.9, sum by (le) (rate(prometheus_http_request_duration_seconds_bucket[10s])))",
    "node_network_receive_bytes_total * on (instance, device) group_left (operstate) node_network_info",
    "label_replace(node_uname_info, \"short\", \"$1\", \"release\", \"([0-9]+).*\")",
    "absent(no_such_metric{job=\"x\"})",
    "node_time_seconds - timestamp(node_time_seconds)",
    "scalar(node_load5) + vector(1)",
    "clamp_max(node_load1, 0.1) or node_load5",
    "{__name__=~\"node_load1.?\", job=\"node\"} > 0.001",
    "deriv(node_memory_MemFree_bytes[10s])",
    "changes(node_load1[10s]) + resets(node_load1[10s])",
];

#[test]
fn node_exporters_series_written_by_a_real_prometheus_are_answered_as_it_answers_itself() {
    let programs = packages::prometheus();
    let node_port = free_port();
    let node = start(
        "node_exporter",
        Command::new(programs.join("prometheus-node-exporter"))
            .arg(format!("--web.listen-address=127.0.0.1:{node_port}"))
            .arg("--log.level=error")
            .stderr(Stdio::null()),
    );
    let house = House::start(&programs, &[("node", node_port)], "", "");
    let House { server, cookie, key, secret, upstream, .. } = &house;
    println!("peers {} and {} are up", node.name, house.prometheus.name);

    // Prometheus scrapes for a while. Then a time is used for which both have all samples.
    wait_for("Prometheus to have scraped for 20 s", || {
        house.upstream("count_over_time(up{job=\"node\"}[1m])").is_some_and(|n| n >= 20.0)
    });
    let at = Clock::System.now().as_s() - 2;
    wait_for("promlet to have received what Prometheus scraped", || {
        let later = format!("max(timestamp({{__name__=~\"node_load1|prometheus_build_info\"}})) - {at}");
        server.ask(cookie, &later, &(at + 30).to_string())["result"][0]["value"][1]
            .as_str()
            .and_then(|v| v.parse::<f64>().ok())
            .is_some_and(|lag| lag > 2.0)
    });

    let token = server
        .post_json(
            &format!("/api/v1/orgs/{ORG}/embed/tokens"),
            &[("Cookie", cookie)],
            &json!({"api_key_id": key, "ttl_s": 600}),
        )
        .json()["token"]
        .as_str()
        .expect("a token")
        .to_owned();
    let offline = offline_token(key, secret);
    let by_cookie = promlet("cookie", server, "Cookie", cookie.clone());
    let by_token = promlet("minted token", server, "Authorization", format!("Bearer {token}"));
    let by_offline = promlet("token made offline", server, "Authorization", format!("Bearer {offline}"));
    let mut compared = 0;
    for expr in QUERIES {
        let expected =
            request("GET", &format!("{upstream}/api/v1/query?query={}&time={at}", percent(expr)), &[], None);
        let range = format!(
            "{upstream}/api/v1/query_range?query={}&start={}&end={at}&step=2",
            percent(expr),
            at - 12
        );
        let expected_range = request("GET", &range, &[], None);
        for asker in [&by_cookie, &by_token, &by_offline] {
            compared += compare(asker.name, expr, &expected, &(asker.instant)(expr, [at, at, 1]));
            compared += compare(asker.name, expr, &expected_range, &(asker.range)(expr, [at - 12, at, 2]));
        }
    }
    let series = server.ask(cookie, "count({job=\"node\"})", &at.to_string());
    let series: f64 = series["result"][0]["value"][1].as_str().expect("counted").parse().expect("a number");
    println!(
        "{series} node_exporter series; {compared} series of {} queries compared three ways, instant and range",
        QUERIES.len()
    );
    assert!(series > 150.0 && compared > 1_000, "{series} series, {compared} compared");
    promtool_reads(&programs, server, secret);
}

/// A promlet server, and a Prometheus that sends its samples to it.
struct House {
    server: Server,
    cookie: String,
    /// The id of the API key with which Prometheus writes; its secret follows.
    key: String,
    secret: String,
    prometheus: Peer,
    /// The root of Prometheus' own API.
    upstream: String,
    // The last field, so that both processes have ended when the folder is removed.
    _dir: tempfile::TempDir,
}

impl House {
    /// Prometheus scrapes itself and `jobs`, all on this machine, every second. `settings` are
    /// lines of `remote_write`.
    fn start(programs: &Path, jobs: &[(&str, u16)], settings: &str, features: &str) -> House {
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server::serve(&dir.path().join("store"));
        let cookie = server.sign_in();
        let (key, secret) = server.api_key(&cookie);
        let port = free_port();
        let mut config = "global:\n  scrape_interval: 1s\nscrape_configs:\n".to_owned();
        for (job, port) in [("prometheus", port)].iter().chain(jobs) {
            config.push_str(&format!(
                "- job_name: {job}\n  static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
            ));
        }
        let url = format!("{}/api/v1/orgs/{ORG}/prometheus/api/v1/write", server.url);
        config.push_str(&format!(
            "remote_write:\n- url: {url}\n  authorization: {{credentials: {secret}}}\n  \
             queue_config: {{batch_send_deadline: 1s}}\n{settings}"
        ));
        let file = dir.path().join("prometheus.yml");
        std::fs::write(&file, config).expect("written");
        let prometheus = start(
            "prometheus",
            Command::new(programs.join("prometheus"))
                .arg(format!("--config.file={}", file.display()))
                .arg(format!("--storage.tsdb.path={}", dir.path().join("prometheus").display()))
                .arg(format!("--web.listen-address=127.0.0.1:{port}"))
                .arg(format!("--enable-feature={features}"))
                .arg("--log.level=warn"),
        );
        let upstream = format!("http://127.0.0.1:{port}");
        House { server, cookie, key, secret, prometheus, upstream, _dir: dir }
    }

    /// Returns the first value of Prometheus' own response to an instant query.
    fn upstream(&self, expr: &str) -> Option<f64> {
        let url = format!("{}/api/v1/query?query={}", self.upstream, percent(expr));
        let answer = request("GET", &url, &[], None);
        if answer.status == 200 { first_value(&answer) } else { None }
    }
}

/// A Prometheus scrapes itself, with native histograms, and sends its samples.
#[test]
fn native_histograms_of_a_real_prometheus_are_taken() {
    let settings = "  send_native_histograms: true\n  send_exemplars: true\n";
    let house = House::start(&packages::prometheus(), &[], settings, "native-histograms,exemplar-storage");
    let House { server, cookie, .. } = &house;
    wait_for("Prometheus to have sent 50 native histograms", || {
        house.upstream("sum(prometheus_remote_storage_histograms_total)").is_some_and(|sent| sent > 50.0)
    });
    let failed = house.upstream("sum(prometheus_remote_storage_histograms_failed_total)");
    assert_eq!(failed, Some(0.0), "promlet refused some");
    let mount = format!("/api/v1/orgs/{ORG}/prometheus/api/v1");
    let ask = |path: &str| server.get(&format!("{mount}/{path}"), &[("Cookie", cookie)]).json();
    // Series of histograms are listed, and evaluated.
    let name = "prometheus_http_request_duration_seconds";
    let native = ask(&format!("series?match[]={name}"))["data"].as_array().map_or(0, Vec::len);
    assert!(native > 0, "no series of native histograms");
    let answer = ask(&format!("query?query={name}"));
    let buckets = answer["data"]["result"][0]["histogram"][1]["buckets"].as_array().map_or(0, Vec::len);
    assert!(buckets > 0, "{answer}");
    println!("{native} series of native histograms");
}

/// A target in this process, for features that no available exporter has: OpenMetrics with
/// exemplars, units and `_created`. It ends with the process of the test.
fn shop_target() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        let mut scrapes = 0_u64;
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // Each connection has one request, whose head fits into one read and is ignored.
            let _ = stream.read(&mut [0; 4_096]);
            scrapes += 1;
            let body = format!(
                "# HELP shop_orders Orders taken.\n# TYPE shop_orders counter\n\
                 shop_orders_total{{route=\"/pay\"}} {scrapes} # {{trace_id=\"t{scrapes}\"}} 0.{scrapes}\n\
                 shop_orders_created{{route=\"/pay\"}} 1700000000\n\
                 # HELP shop_wait_seconds Time in the queue.\n# TYPE shop_wait_seconds gauge\n# UNIT shop_wait_seconds seconds\n\
                 shop_wait_seconds 0.{scrapes}\n# EOF\n"
            );
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
            let _ = write!(stream, "{head}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        }
    });
    port
}

/// A Prometheus that sends remote write 2.0: samples, native histograms, exemplars, descriptions.
#[test]
fn remote_write_2_of_a_real_prometheus_is_taken_whole() {
    let settings = "  protobuf_message: io.prometheus.write.v2.Request\n  send_native_histograms: true\n  \
                    send_exemplars: true\n";
    let features = "native-histograms,exemplar-storage,metadata-wal-records";
    let house = House::start(&packages::prometheus(), &[("shop", shop_target())], settings, features);
    let House { server, cookie, upstream, .. } = &house;
    wait_for("Prometheus to have sent 50 native histograms and 5 exemplars", || {
        house.upstream("sum(prometheus_remote_storage_histograms_total)").is_some_and(|sent| sent > 50.0)
            && house.upstream("sum(prometheus_remote_storage_exemplars_total)").is_some_and(|sent| sent > 5.0)
    });
    let at = Clock::System.now().as_s() - 2;
    wait_for("promlet to have received what Prometheus scraped", || {
        let later = format!("min(timestamp(shop_wait_seconds or prometheus_build_info)) - {at}");
        server.ask(cookie, &later, &(at + 30).to_string())["result"][0]["value"][1]
            .as_str()
            .and_then(|v| v.parse::<f64>().ok())
            .is_some_and(|lag| lag > 2.0)
    });
    // Items that the receiver reports as not written count as failed, too.
    for what in ["samples", "histograms", "exemplars", "metadata"] {
        let failed = house.upstream(&format!("sum(prometheus_remote_storage_{what}_failed_total)"));
        assert_eq!(failed, Some(0.0), "promlet refused some {what}");
    }
    let by_cookie = promlet("cookie", server, "Cookie", cookie.clone());
    let mut compared = 0;
    for expr in [
        "shop_orders_total",
        "shop_wait_seconds",
        "count({job=~\"shop|prometheus\"})",
        "rate(shop_orders_total[10s])",
        "histogram_count(prometheus_http_request_duration_seconds)",
        "histogram_sum(rate(prometheus_http_request_duration_seconds[8s]))",
        "histogram_quantile(0.5, prometheus_http_request_duration_seconds)",
        "sum by (handler) (prometheus_http_requests_total)",
    ] {
        let url = format!("{upstream}/api/v1/query?query={}&time={at}", percent(expr));
        let expected = request("GET", &url, &[], None);
        compared += compare(by_cookie.name, expr, &expected, &(by_cookie.instant)(expr, [at, at, 1]));
    }
    assert!(compared > 30, "{compared} compared");
    let mount = format!("/api/v1/orgs/{ORG}/prometheus/api/v1");
    let get =
        |path: &str| server.get(&format!("{mount}/{path}"), &[("Cookie", cookie)]).json()["data"].clone();
    let of = |name: &str| get(&format!("metadata?metric={name}"))[name][0].clone();
    assert_eq!(
        of("shop_wait_seconds"),
        json!({ "type": "gauge", "help": "Time in the queue.", "unit": "seconds" })
    );
    assert_eq!(of("prometheus_http_request_duration_seconds")["type"], "histogram");
    let listed = |data: &Json| {
        let all = data[0]["exemplars"].as_array().cloned().unwrap_or_default();
        all.iter().map(|e| format!("{} {} {}", e["labels"], e["value"], e["timestamp"])).collect::<Vec<_>>()
    };
    let question = format!("query_exemplars?query=shop_orders_total&start={}&end={at}", at - 60);
    let theirs = request("GET", &format!("{upstream}/api/v1/{question}"), &[], None).json()["data"].clone();
    let (ours, theirs) = (listed(&get(&question)), listed(&theirs));
    assert!(!theirs.is_empty() && ours == theirs, "{ours:?} against {theirs:?}");
    println!("{compared} series and {} exemplars compared", ours.len());
}

/// HS256 with the key's secret, as docs/specification.md C4 says a customer's backend may do it.
fn offline_token(key: &str, secret: &str) -> String {
    let now = Clock::System.now().as_s();
    let mut header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::HS256);
    header.kid = Some(key.to_owned());
    let claims = json!({"aud": "ms-embed", "org": ORG, "iat": now, "exp": now + 600});
    jsonwebtoken::encode(&header, &claims, &jsonwebtoken::EncodingKey::from_secret(secret.as_bytes()))
        .expect("signed")
}

fn promlet<'a>(name: &'a str, server: &'a Server, header: &'static str, credential: String) -> Asker<'a> {
    let again = credential.clone();
    let base = format!("/api/v1/orgs/{ORG}/query");
    let base_range = base.clone();
    // A session may send 60 requests a second; a faster test has to wait.
    let patient = move |path: String, credential: &str| loop {
        let answer = server.get(&path, &[(header, credential)]);
        if answer.status != 429 {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let ask = patient;
    Asker {
        name,
        instant: Box::new(move |expr, [_, at, _]| {
            ask(format!("{base}/expr-instant?expr={}&time={at}&limit=10000", percent(expr)), &credential)
        }),
        range: Box::new(move |expr, [start, end, step]| {
            let path = format!(
                "{base_range}/expr-range?expr={}&start={start}&end={end}&step={step}&limit=10000",
                percent(expr)
            );
            patient(path, &again)
        }),
    }
}

fn first_value(answer: &Answer) -> Option<f64> {
    answer.json()["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

/// Series by label set, each with its (time, value text) pairs.
fn by_labels(name: &str, expr: &str, answer: &Answer) -> BTreeMap<String, Vec<(f64, String)>> {
    assert_eq!(answer.status, 200, "{name}: {expr}: {}", answer.body);
    let data = answer.json()["data"].clone();
    let point =
        |pair: &Json| (pair[0].as_f64().expect("a time"), pair[1].as_str().expect("a text").to_owned());
    if data["resultType"] == "scalar" {
        return BTreeMap::from([("scalar".to_owned(), vec![point(&data["result"])])]);
    }
    let mut found = BTreeMap::new();
    for series in data["result"].as_array().expect("a list") {
        let labels: BTreeMap<String, String> =
            serde_json::from_value(series["metric"].clone()).expect("labels");
        let points = match &series["values"] {
            Json::Array(values) => values.iter().map(point).collect(),
            _ => vec![point(&series["value"])],
        };
        assert!(found.insert(format!("{labels:?}"), points).is_none(), "{name}: {expr}: {labels:?} twice");
    }
    found
}

/// Asserts that both have the same series, times and values. Returns the number of series.
fn compare(name: &str, expr: &str, expected: &Answer, got: &Answer) -> usize {
    let expected = by_labels("prometheus", expr, expected);
    let got = by_labels(name, expr, got);
    assert_eq!(
        expected.keys().collect::<Vec<_>>(),
        got.keys().collect::<Vec<_>>(),
        "{name}: {expr}: other series"
    );
    for (labels, points) in &expected {
        let ours = &got[labels];
        assert_eq!(points.len(), ours.len(), "{name}: {expr}: {labels}: {points:?} against {ours:?}");
        for ((at, value), (our_at, our_value)) in points.iter().zip(ours) {
            assert!(
                (at - our_at).abs() < 1e-6 && same(value, our_value),
                "{name}: {expr}: {labels}: {value} at {at} against {our_value} at {our_at}"
            );
        }
    }
    expected.len()
}

/// Returns whether two texts are equal, or numbers that differ only in the last digits: the order
/// in which a sum visits series is not fixed.
fn same(a: &str, b: &str) -> bool {
    let numbers = (a.parse::<f64>(), b.parse::<f64>());
    a == b || matches!(numbers, (Ok(a), Ok(b)) if (a - b).abs() <= 1e-12 * a.abs().max(b.abs()))
}

/// Prometheus' own command line tool reads the mount with the API key, as a data source would.
fn promtool_reads(programs: &Path, server: &Server, secret: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let config = dir.path().join("http.yml");
    std::fs::write(&config, format!("authorization:\n  credentials: {secret}\n")).expect("written");
    let output = Command::new(programs.join("promtool"))
        .args(["query", "instant", "--http.config.file"])
        .arg(&config)
        .arg(format!("{}/api/v1/orgs/{ORG}/prometheus", server.url))
        .arg("up{job=\"node\"}")
        .output()
        .expect("promtool runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && said.contains("job=\"node\"") && said.contains("=> 1 @"),
        "{said} {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
