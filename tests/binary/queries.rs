//! Long queries from outside: listed with their progress; ended by request, by a closed connection,
//! by their timeout; refused for their memory; and never in the way of another organisation's
//! queries.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use promlet::clock::{Clock, Stopwatch};
use promlet::model::{Labels, Sample};
use serde_json::{Value as Json, json};

use crate::harness::{Answer, ORG, Server, Start, bootstrap, eventually, percent, request};

/// How long a wait may take before the test fails. A tested end comes at once or never.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A query that sorts a day of seconds at each of ten thousand steps: hours of work.
const ENDLESS: &str = "quantile_over_time(0.5, vector(time() + scalar(count(up)))[1d:1s])";

struct QueryClient {
    server: Server,
    cookie: String,
}

impl QueryClient {
    fn start(dir: &Path) -> QueryClient {
        // The list of queries is polled without a pause.
        let args = &["serve", "--rate-cabinet-rps", "10000"];
        let server = Server::start(&Start { args, dir, env: &bootstrap() });
        let cookie = server.sign_in();
        let (_, secret) = server.api_key(&cookie);
        let up = Labels::from_pairs([("__name__", "up"), ("job", "a")]);
        let now = vec![Sample { at: Clock::System.now(), value: 1.0 }];
        assert_eq!(server.write(&secret, &[(up, now)]).status, 204);
        QueryClient { server, cookie }
    }

    fn get(&self, path: &str) -> Answer {
        self.server.get(&format!("/api/v1/orgs/{path}"), &[("Cookie", &self.cookie)])
    }

    /// Returns the path of an endless query to an organisation.
    fn endless(org: &str) -> String {
        format!("/api/v1/orgs/{org}/query/expr-range?expr={}&start=now-3h&step=1", percent(ENDLESS))
    }

    /// Sends an endless query. The caller closes the connection.
    fn ask_endlessly(&self, org: &str) -> TcpStream {
        self.send(&QueryClient::endless(org))
    }

    /// Sends a GET request. The caller closes the connection.
    fn send(&self, path: &str) -> TcpStream {
        send(&self.server, &self.cookie, path)
    }

    /// Sends JSON as the signed-in account. The caller closes the connection.
    fn send_json(&self, method: &str, path: &str, body: &Json) -> TcpStream {
        let address = self.server.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(WAIT_MAX)).expect("a timeout");
        let (cookie, body) = (&self.cookie, body.to_string());
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(text.as_bytes()).expect("sent");
        stream
    }

    /// Waits until `/metrics` contains `line`.
    fn until_metric(&self, line: &str) {
        let failure = || format!("/metrics has no line {line:?}");
        eventually(WAIT_MAX, failure, || {
            self.server.get("/metrics", &[]).body.lines().any(|have| have == line).then_some(())
        });
    }

    fn running(&self, org: &str) -> Vec<Json> {
        let answer = self.get(&format!("{org}/queries"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["data"].as_array().expect("a list").clone()
    }

    /// Waits until the list of an organisation satisfies `is_so`, and returns it.
    fn until(&self, org: &str, is_so: impl Fn(&[Json]) -> bool) -> Vec<Json> {
        let failure = || format!("the list is {:?}", self.running(org));
        eventually(WAIT_MAX, failure, || Some(self.running(org)).filter(|rows| is_so(rows)))
    }
}

/// Waits until the last request is `age` old, so that its connection counts as inactive.
fn until_inactive(age: Duration) {
    let since = Stopwatch::start();
    eventually(WAIT_MAX, || format!("{age:?} have not passed"), || (since.elapsed() >= age).then_some(()));
}

/// Sends a GET request over its own connection. The caller reads the response or closes it.
pub(crate) fn send(server: &Server, cookie: &str, path: &str) -> TcpStream {
    let address = server.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("a timeout");
    let text =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("sent");
    stream
}

/// Reads a response and returns its status line and its body.
fn read(mut stream: TcpStream) -> (String, Json) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let body = body.get(body.find('{').unwrap_or(0)..=body.rfind('}').expect("JSON")).unwrap_or_default();
    (head.lines().next().unwrap_or_default().to_owned(), serde_json::from_str(body).expect("JSON"))
}

#[test]
fn a_query_ends_as_soon_as_its_client_disconnects() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let client = QueryClient::start(dir.path());
    // More rounds than there are threads for one organisation, so that a single leftover would be
    // noticed.
    for _ in 0..12 {
        let stream = client.ask_endlessly(ORG);
        client.until(ORG, |rows| rows.len() == 1);
        let begun = Stopwatch::start();
        drop(stream);
        client.until(ORG, <[Json]>::is_empty);
        println!("gone after {:?}, two requests included", begun.elapsed());
    }
    assert_eq!(client.server.ask(&client.cookie, "count(up)", "now")["result"][0]["value"][1], "1");
}

#[test]
fn a_running_query_is_listed_with_its_progress_and_ended_by_its_id() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let client = QueryClient::start(dir.path());
    let stream = client.ask_endlessly(ORG);
    // It has read its samples and computes.
    let rows = client.until(ORG, |rows| rows.iter().any(|row| row["progress"] == 1.0));
    let row = &rows[0];
    assert_eq!(row["query"], ENDLESS);
    assert!(row["elapsed_ms"].is_number() && row["memory_bytes"].as_u64() > Some(0), "{row}");
    let id = row["id"].as_str().expect("an id");
    let url = format!("{}/api/v1/orgs/{ORG}/queries/{id}", client.server.url);
    let end = || request("DELETE", &url, &[("Cookie", &client.cookie)], None);
    assert_eq!(end().status, 204);
    let (status, problem) = read(stream);
    assert!(status.contains(" 503 "), "{status}");
    assert_eq!(problem["code"], "query_cancelled");
    client.until(ORG, <[Json]>::is_empty);
    assert_eq!(end().status, 404, "it is gone");
}

#[test]
fn a_query_ends_at_its_timeout_and_one_too_large_is_refused_with_the_numbers() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let client = QueryClient::start(dir.path());
    let late =
        client.server.get(&(QueryClient::endless(ORG) + "&timeout=50ms"), &[("Cookie", &client.cookie)]);
    assert_eq!((late.status, late.code().as_str()), (503, "query_timeout"), "{}", late.body);
    client.until(ORG, <[Json]>::is_empty);
    let expr = percent("max_over_time(vector(time())[100y:1ms])");
    let refused = client.get(&format!("{ORG}/query/expr-instant?expr={expr}"));
    assert_eq!((refused.status, refused.code().as_str()), (422, "query_too_expensive"), "{}", refused.body);
    let detail = refused.json()["detail"].as_str().expect("a sentence").to_owned();
    let numbers: Vec<u64> =
        detail.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    assert!(
        matches!(numbers[..], [needed, .., allowed] if needed > allowed && allowed == 256 << 20),
        "{detail}"
    );
    // Refused and ended queries have released all their memory.
    assert!(client.server.get("/metrics", &[]).body.contains("promlet_query_memory_bytes 0\n"));
}

#[test]
fn the_cost_of_a_query_is_estimated_and_its_actual_cost_reported() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let client = QueryClient::start(dir.path());
    let expr = percent("sum by (job) (up)");
    let estimate = client.get(&format!("{ORG}/query/estimate?expr={expr}")).json();
    assert_eq!(
        (&estimate["status"], &estimate["data"]["series"]),
        (&json!("success"), &json!(1)),
        "{estimate}"
    );
    let plain = client.get(&format!("{ORG}/query/expr-instant?expr={expr}")).json();
    assert!(plain.get("explain").is_none(), "{plain}");
    let explained = client.get(&format!("{ORG}/query/expr-instant?expr={expr}&explain=true")).json();
    let root = &explained["explain"];
    assert_eq!(
        (&root["node"], &root["actual"]["series"]),
        (&json!("sum by (job)"), &json!(1)),
        "{explained}"
    );
    assert_eq!(root["inputs"][0]["actual"]["samples"], 1, "{explained}");
}

#[test]
fn endless_queries_of_one_organisation_delay_no_other() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let client = QueryClient::start(dir.path());
    let made =
        client.server.post_json("/api/v1/orgs", &[("Cookie", &client.cookie)], &json!({"slug": "other"}));
    assert_eq!(made.status, 201, "{}", made.body);
    let threads = std::thread::available_parallelism().map_or(2, usize::from) * 2;
    // Send as many queries as there are threads: half of them run, the others wait for their turn.
    let streams: Vec<TcpStream> = (0..threads).map(|_| client.ask_endlessly(ORG)).collect();
    client.until(ORG, |rows| rows.len() >= threads / 2);
    for _ in 0..20 {
        let answer = client.get("other/query/expr-instant?expr=1%2B1");
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(answer.json()["data"]["result"][1], "2", "{}", answer.body);
    }
    let rows = client.running(ORG);
    assert!(
        !rows.is_empty() && client.running("other").is_empty(),
        "no organisation sees the queries of another: {rows:?}"
    );
    drop(streams);
    client.until(ORG, <[Json]>::is_empty);
}

/// Returns regular expressions that need a thousand states a byte on random text of a and b, and
/// that cannot be kept as a set.
pub(crate) fn hostile_matchers(count: usize) -> String {
    let tests: Vec<String> = (0..count).map(|n| format!("p!~\"[ab]*a.{{900}}x{n}\"")).collect();
    format!("{{{}}}", [String::from("p!=\"\"")].into_iter().chain(tests).collect::<Vec<_>>().join(","))
}

/// Returns a thousand series with values of 4 kB on which such expressions are slow: fourteen of
/// them take more than 20 s over all values.
pub(crate) fn hostile_values() -> Vec<(Labels, Vec<Sample>)> {
    let mut state = 7u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if state >> 63 == 0 { 'a' } else { 'b' }
    };
    let at = Clock::System.now();
    let mut series = || {
        let value: String = (0..4_000).map(|_| letter()).collect();
        (
            Labels::from_pairs([("__name__", "hostile"), ("p", value.as_str())]),
            vec![Sample { at, value: 1.0 }],
        )
    };
    (0..1_000).map(|_| series()).collect()
}

/// The limit for ending work that takes more than 20 s.
const SOON: Duration = Duration::from_secs(10);

/// Three responses within a millisecond make the server run the listing inline; then it takes
/// minutes.
#[test]
fn a_matcher_that_became_slow_blocks_neither_health_nor_the_stop_nor_its_thread() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let client = QueryClient::start(dir.path());
    let (_, secret) = client.server.api_key(&client.cookie);
    let listing =
        format!("/api/v1/orgs/{ORG}/prometheus/api/v1/series?match[]={}", percent(&hostile_matchers(14)));
    for _ in 0..3 {
        let answer = client.server.get(&listing, &[("Cookie", &client.cookie)]);
        assert_eq!(answer.status, 200, "{}", answer.body);
        until_inactive(Duration::from_millis(5));
    }
    let written = client.server.write(&secret, &hostile_values());
    assert_eq!(written.status, 204, "{}", written.body);
    // The request of the other connection must be older than two milliseconds.
    until_inactive(Duration::from_millis(50));
    let stream = client.send(&listing);
    client.until_metric("promlet_lane_running{lane=\"query\"} 1");
    let begun = Stopwatch::start();
    for _ in 0..20 {
        assert_eq!(client.server.get("/healthz", &[]).status, 200);
    }
    assert!(begun.elapsed() < SOON, "twenty health checks took {:?}", begun.elapsed());
    stream.set_nonblocking(true).expect("a socket");
    let mut one = [0u8; 1];
    let not_yet = stream.peek(&mut one).expect_err("the listing takes longer than twenty requests");
    assert_eq!(not_yet.kind(), std::io::ErrorKind::WouldBlock);
    drop(stream);
    let begun = Stopwatch::start();
    client.until_metric("promlet_lane_running{lane=\"query\"} 0");
    assert!(begun.elapsed() < SOON, "it continued for {:?} after its client had gone", begun.elapsed());

    // The same in a query, which ends at its timeout.
    let query = percent(&format!("count({})", hostile_matchers(14)));
    let begun = Stopwatch::start();
    let late = client.get(&format!("{ORG}/query/expr-instant?expr={query}&timeout=1s"));
    assert_eq!((late.status, late.code().as_str()), (503, "query_timeout"), "{}", late.body);
    assert!(begun.elapsed() < SOON, "a timeout of 1 s took {:?}", begun.elapsed());

    // A stop is handled while it runs.
    let stream = client.send(&listing);
    client.until_metric("promlet_lane_running{lane=\"query\"} 1");
    client.server.signal("TERM");
    client.server.log_line("stopping: open requests are finished first");
    stream.set_nonblocking(true).expect("a socket");
    let not_yet = stream.peek(&mut one).expect_err("the stop is handled before the listing ends");
    assert_eq!(not_yet.kind(), std::io::ErrorKind::WouldBlock);
    drop(stream);
    assert!(client.server.ended().success());
}

#[test]
fn patterns_of_label_replace_are_counted_with_those_of_selectors() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let client = QueryClient::start(dir.path());
    let nested = |patterns: usize, selector: &str| {
        let open = "label_replace(".repeat(patterns);
        let close: String = (0..patterns).map(|n| format!(",\"d\",\"$1\",\"job\",\"(.*)a{n}\")")).collect();
        format!("{open}{selector}{close}")
    };
    let ask = |text: &str| client.get(&format!("{ORG}/query/expr-instant?expr={}", percent(text)));
    assert_eq!(ask(&nested(16, "up")).status, 200);
    assert_eq!(ask(&nested(15, "up{job=~\"a.*b?\"}")).status, 200);
    for text in [nested(17, "up"), nested(16, "up{job=~\"a.*b?\"}")] {
        let refused = ask(&text);
        assert_eq!((refused.status, refused.code().as_str()), (400, "bad_expr"), "{}", refused.body);
        assert!(refused.body.contains("at most 16 are allowed"), "{}", refused.body);
    }
    let long = format!("label_replace(up, \"d\", \"$1\", \"job\", \"{}.?\")", "a".repeat(1_023));
    let refused = ask(&long);
    assert_eq!((refused.status, refused.code().as_str()), (400, "bad_expr"), "{}", refused.body);
}

/// Returns expressions whose patterns are as slow to compile as patterns may be, all different.
fn slow_to_compile(exprs: usize, salt: &str) -> Json {
    let folded = "[\u{1}-\u{10ffff}]".repeat(3);
    let matchers = |expr: usize| -> String {
        let tests: Vec<String> =
            (0..16).map(|n| format!("p!~\"(?i)(?:{folded}){{0}}{salt}{expr}x{n}\"")).collect();
        tests.join(",")
    };
    (0..exprs).map(|expr| format!("up{{{}}}", matchers(expr))).collect()
}

/// Minting, new API keys and changed API keys compile the patterns of their policies, and no other
/// request waits for that.
#[test]
fn policies_that_are_slow_to_compile_do_not_block_health() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let client = QueryClient::start(dir.path());
    let (id, _) = client.server.api_key(&client.cookie);
    let keys = format!("/api/v1/orgs/{ORG}/api-keys");
    let policy = |salt: &str| json!({ "exprs": slow_to_compile(2, salt) });
    let requests = [
        ("POST", format!("/api/v1/orgs/{ORG}/embed/tokens"), json!({ "api_key_id": id, "ms": policy("a") })),
        (
            "POST",
            keys.clone(),
            json!({ "name": "k", "scopes": ["embed"], "embed": { "policy": policy("b") } }),
        ),
        ("PATCH", format!("{keys}/{id}"), json!({ "embed": { "policy": policy("c") } })),
    ];
    for (method, path, body) in requests {
        let stream = client.send_json(method, &path, &body);
        client.until_metric("promlet_lane_running{lane=\"query\"} 1");
        for _ in 0..3 {
            assert_eq!(client.server.get("/healthz", &[]).status, 200);
        }
        stream.set_nonblocking(true).expect("a socket");
        let not_yet = stream.peek(&mut [0u8; 1]).expect_err("compiling takes longer than three requests");
        assert_eq!(not_yet.kind(), std::io::ErrorKind::WouldBlock, "{method} {path}");
        // The client disconnects, and compiling ends.
        drop(stream);
        client.until_metric("promlet_lane_running{lane=\"query\"} 0");
    }
}

/// While all threads of an organisation are busy, a token without patterns to compile is accepted
/// at once; others wait.
#[test]
fn matchers_of_a_new_token_are_compiled_in_its_organisations_share_of_the_query_lane() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let client = QueryClient::start(dir.path());
    let (id, _) = client.server.api_key(&client.cookie);
    let mint = |matcher: &str| {
        let body = json!({ "api_key_id": id, "ms": { "match": [matcher] } });
        let path = format!("/api/v1/orgs/{ORG}/embed/tokens");
        let minted = client.server.post_json(&path, &[("Cookie", &client.cookie)], &body);
        assert_eq!(minted.status, 201, "{}", minted.body);
        minted.json()["token"].as_str().expect("a token").to_owned()
    };
    let version = |token: &str| {
        let bearer = format!("Bearer {token}");
        let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/status/buildinfo");
        client.server.get(&path, &[("Authorization", &bearer)])
    };
    let introspect = |token: &str| {
        let path = format!("/api/v1/orgs/{ORG}/embed/introspect");
        client.server.post_json(&path, &[("Cookie", &client.cookie)], &json!({ "token": token }))
    };
    let (plain, cached, new) = (mint("job=a"), mint("job=~\"a.*b?\""), mint("job=~\"a.*c?\""));
    assert_eq!(version(&cached).status, 200);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let streams: Vec<TcpStream> = (0..threads).map(|_| client.ask_endlessly(ORG)).collect();
    client.until_metric(&format!("promlet_lane_running{{lane=\"query\"}} {threads}"));
    assert_eq!((version(&plain).status, version(&cached).status), (200, 200));
    for busy in [version(&new), introspect(&new)] {
        assert_eq!(busy.status, 503, "{}", busy.body);
        assert!(busy.body.contains("the server is busy"), "{}", busy.body);
    }
    drop(streams);
    client.until(ORG, <[Json]>::is_empty);
    assert_eq!(version(&new).status, 200);
    assert_eq!(introspect(&new).json()["valid"], true);
}

#[test]
fn a_form_with_more_parameters_than_any_endpoint_knows_is_refused() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let client = QueryClient::start(dir.path());
    let url = format!("{}/api/v1/orgs/{ORG}/prometheus/api/v1/query", client.server.url);
    let origin = client.server.url.clone();
    let headers = [
        ("Cookie", &*client.cookie),
        ("Origin", &*origin),
        ("Content-Type", "application/x-www-form-urlencoded"),
    ];
    let refused = request("POST", &url, &headers, Some("a&".repeat(130_000).as_bytes()));
    assert_eq!(
        (refused.status, refused.json()["errorType"].as_str()),
        (400, Some("bad_data")),
        "{}",
        refused.body
    );
    assert!(refused.body.contains("at most 1000 parameters"), "{}", refused.body);
    let form = format!("query=up{}", "&a".repeat(999));
    assert_eq!(request("POST", &url, &headers, Some(form.as_bytes())).status, 200);
}
