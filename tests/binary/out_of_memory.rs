//! A process that gets no more memory refuses large requests, and nothing else fails.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use promlet::clock::Clock;
use promlet::model::{Labels, Sample, Timestamp};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use crate::harness::{Answer, ORG, Server, Start, bootstrap, percent, request};

/// The number of series that are stored before the first request.
const SERIES: usize = 20_000;
/// The memory that the process may allocate beyond its current size, in MiB.
const MORE_MIB: [u64; 4] = [4, 24, 64, 96];
/// Another organisation, which must not notice.
const OTHER: &str = "other";

/// A server and the API keys of its two organisations. All samples are in the minutes after `now`,
/// so that no window closes during the test: a seal beside a request may need the memory that the
/// request has taken.
struct Store {
    server: Server,
    secret: String,
    other: String,
    now: Timestamp,
}

/// A request to send.
struct Request {
    name: &'static str,
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    body: Vec<u8>,
}

fn open(dir: &Path) -> Store {
    // Without caches, so that each query is computed.
    let more = [("PROMLET_QUERY_CACHE_BYTES", "0"), ("PROMLET_DECODED_CACHE_BYTES", "0")];
    let env: Vec<_> = bootstrap().into_iter().chain(more).collect();
    let server = Server::start(&Start { args: &["serve"], dir, env: &env });
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    let made = server.post_json("/api/v1/orgs", &[("Cookie", &cookie)], &json!({ "slug": OTHER }));
    assert_eq!(made.status, 201, "{}", made.body);
    let key = json!({ "name": "test", "scopes": ["ingest", "read"] });
    let made =
        server.post_json(&format!("/api/v1/orgs/{OTHER}/api-keys"), &[("Cookie", &cookie)], &key).json();
    let other = made["secret"].as_str().expect("a secret").to_owned();
    Store { server, secret, other, now: Clock::System.now() }
}

impl Store {
    fn fill(&self) {
        for step in 0..3 {
            let at = self.now.plus_ms(step * 15_000);
            let series: Vec<(Labels, Vec<Sample>)> = (0..SERIES)
                .map(|n| {
                    let labels = Labels::from_pairs([("__name__", "m".to_owned()), ("n", n.to_string())]);
                    (labels, vec![Sample { at, value: n as f64 + 0.25 }])
                })
                .collect();
            let written = self.server.write(&self.secret, &series);
            assert_eq!(written.status, 204, "{}", written.body);
        }
    }

    /// Limits the data segment of the process to its current size and `more_mib` MiB, or lifts the
    /// limit.
    fn limit(&self, more_mib: Option<u64>) {
        let pid = i32::try_from(self.server.pid()).ok().and_then(Pid::from_raw).expect("a process");
        let current = more_mib.map(|more| self.server.status_bytes("VmData") + (more << 20));
        // If the process has ended, the request that follows reports it.
        let _ = prlimit(Some(pid), Resource::Data, Rlimit { current, maximum: None });
    }

    fn send(&self, one: &Request) -> Answer {
        let bearer = format!("Bearer {}", self.secret);
        let mut headers = vec![("Authorization", bearer.as_str())];
        headers.extend(one.headers.iter().copied());
        let body = (!one.body.is_empty()).then_some(one.body.as_slice());
        request(one.method, &format!("{}{}", self.server.url, one.path), &headers, body)
    }

    /// Sends a small write and a small query of another organisation.
    fn others_go_on(&self, round: i64, after: &str) {
        let bearer = format!("Bearer {}", self.other);
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "text/plain")];
        let text = format!("up{{job=\"a\"}} {round} {}\n", self.now.plus_ms(round).as_ms());
        let url = &self.server.url;
        let written =
            request("POST", &format!("{url}/api/v1/orgs/{OTHER}/import"), &headers, Some(text.as_bytes()));
        assert_eq!(written.status, 200, "{after}: {}\n{}", written.body, self.server.log());
        let path = format!(
            "/api/v1/orgs/{OTHER}/prometheus/api/v1/query?query=up&time={}",
            self.now.plus_ms(10_000).as_s()
        );
        let asked = self.server.get(&path, &[("Authorization", &bearer)]);
        assert!(asked.status == 200 && asked.body.contains("\"job\":\"a\""), "{after}: {}", asked.body);
    }
}

fn get(name: &'static str, path: String) -> Request {
    Request { name, method: "GET", path, headers: Vec::new(), body: Vec::new() }
}

fn post(name: &'static str, path: &str, headers: &[(&'static str, &'static str)], body: Vec<u8>) -> Request {
    let path = format!("/api/v1/orgs/{ORG}/{path}");
    Request { name, method: "POST", path, headers: headers.to_vec(), body }
}

/// Returns requests that need much memory. `round` makes their series unique.
fn requests(now: Timestamp, round: u64) -> Vec<Request> {
    let (start, end) = (now.as_s() + 1, now.as_s() + 301);
    let mount = format!("/api/v1/orgs/{ORG}/prometheus/api/v1");
    let at = now.as_ms();
    let range =
        |expr: &str| format!("{mount}/query_range?query={}&start={start}&end={end}&step=1", percent(expr));
    let instant =
        |expr: &str| format!("{mount}/query?query={}&time={}", percent(expr), now.plus_ms(50_000).as_s());
    let mut text = String::new();
    let mut lines = String::new();
    let mut csv = String::new();
    let mut series = Vec::new();
    for n in 0..40_000 {
        let name = format!("x_{round}_{n}_some_name_that_is_longer");
        let filler = "cccccccccccccccccccccccccccccccc";
        writeln!(text, "{name}{{a=\"{n}\",b=\"{filler}\"}} 1 {at}").expect("memory");
        if n < 20_000 {
            writeln!(
                lines,
                "{{\"metric\":{{\"__name__\":\"j_{name}\",\"b\":\"{filler}\"}},\"values\":[1],\"timestamps\":[{at}]}}"
            )
            .expect("memory");
            writeln!(csv, "c{n}_{round},{filler},1,{at}").expect("memory");
            let labels = Labels::from_pairs([("__name__", format!("r_{name}")), ("b", filler.to_owned())]);
            series.push((labels, vec![Sample { at: now, value: 1.0 }]));
        }
    }
    // Many samples of one series, which grow the head only.
    let many: Vec<Sample> =
        (0..300_000).map(|n| Sample { at: now.plus_ms(n), value: (n as f64).sqrt() }).collect();
    let many = vec![(Labels::from_pairs([("__name__", format!("many_{round}"))]), many)];
    let protobuf = [
        ("Content-Type", "application/x-protobuf"),
        ("Content-Encoding", "snappy"),
        ("X-Prometheus-Remote-Write-Version", "0.1.0"),
    ];
    vec![
        get("a range query", range("m")),
        get("a range query with arithmetic", range("m * 2 + on (n) m")),
        get("a subquery", instant("sum by (n) (rate(m[10m:1s])) + on (n) sum by (n) (m)")),
        get("an instant query over all series", instant("m")),
        get("an instant query of ranges", instant("m[10m]")),
        get("a sort", instant("sort(label_replace(m, \"x\", \"$1\", \"n\", \"(.*)\"))")),
        get("a listing of series", format!("{mount}/series?match[]=m")),
        get("a listing of values", format!("{mount}/label/n/values")),
        post("an import of text", "import", &[("Content-Type", "text/plain")], text.into_bytes()),
        post(
            "an import of JSON lines",
            "import/jsonl",
            &[("Content-Type", "application/jsonl")],
            lines.into_bytes(),
        ),
        post(
            "an import of CSV",
            "import/csv?format=1:label:n,2:label:b,3:metric:csv,4:time:unix_ms",
            &[("Content-Type", "text/csv")],
            csv.into_bytes(),
        ),
        post("a remote write of series", "write", &protobuf, crate::harness::remote_write(&series)),
        post("a remote write of samples", "write", &protobuf, crate::harness::remote_write(&many)),
        post(
            "OTLP",
            "otlp/v1/metrics",
            &[("Content-Type", "application/json")],
            otlp(now, round).to_string().into_bytes(),
        ),
    ]
}

/// Returns an OTLP request of gauges with many points.
fn otlp(now: Timestamp, round: u64) -> serde_json::Value {
    let nanos = format!("{}000000", now.as_ms());
    let points: Vec<_> = (0..15_000)
        .map(|n| {
            let attributes = [json!({"key": "n", "value": {"stringValue": format!("{round}_{n}")}})];
            json!({"timeUnixNano": nanos, "asDouble": 1.5, "attributes": attributes})
        })
        .collect();
    let metric = json!({"name": format!("otlp_{round}"), "gauge": {"dataPoints": points}});
    json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]})
}

#[test]
fn a_request_without_enough_memory_is_refused_and_affects_nothing_else() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let store = open(dir.path());
    store.fill();
    let mut refused = BTreeSet::new();
    let mut rounds = 0;
    for (round, more) in (0..).zip(MORE_MIB) {
        for one in requests(store.now, round) {
            store.limit(Some(more));
            let answer = store.send(&one);
            let case = format!("{} with {more} MiB more: {}", one.name, answer.status);
            store.limit(None);
            let body: String = answer.body.chars().take(300).collect();
            assert_ne!(answer.status, 0, "{case} {body}\n{}", store.server.log());
            let stable = matches!(answer.status, 200 | 204 | 503) || answer.status == 422;
            assert!(stable, "{case} {body}");
            if answer.status == 503 {
                assert!(answer.header("retry-after").is_some() && body.contains("memory"), "{case} {body}");
                refused.insert(one.name);
            }
            rounds += 1;
            store.others_go_on(rounds, &case);
        }
    }
    for name in ["a range query", "an import of text", "an import of JSON lines", "a remote write of series"]
    {
        assert!(refused.contains(name), "{name} was never refused: {refused:?}");
    }
    assert!(store.server.terminate().success());
}
