//! Questions that run long, from outside: listed with their progress, ended by whoever may, by the hand that hangs up, by
//! their own timeout; refused for their memory; and never in the way of another organisation's.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use promlet::clock::{Clock, Stopwatch};
use promlet::model::{Labels, Sample};
use serde_json::{Value as Json, json};

use crate::harness::{Answer, ORG, Server, Start, bootstrap, percent, request};

/// How long anything may take before the test gives up; what is tested ends at once, or never.
const PATIENCE: Duration = Duration::from_secs(30);

/// At each of ten thousand steps it sorts a day of seconds: hours of work.
const ENDLESS: &str = "quantile_over_time(0.5, vector(time() + scalar(count(up)))[1d:1s])";

struct Asker {
    server: Server,
    cookie: String,
}

impl Asker {
    fn start(dir: &Path) -> Asker {
        // The list is asked for as often as it goes.
        let args = &["serve", "--rate-cabinet-rps", "10000"];
        let server = Server::start(&Start { args, dir, env: &bootstrap() });
        let cookie = server.sign_in();
        let (_, secret) = server.api_key(&cookie);
        let up = Labels::from_pairs([("__name__", "up"), ("job", "a")]);
        let now = vec![Sample { at: Clock::System.now(), value: 1.0 }];
        assert_eq!(server.write(&secret, &[(up, now)]).status, 204);
        Asker { server, cookie }
    }

    fn get(&self, path: &str) -> Answer {
        self.server.get(&format!("/api/v1/orgs/{path}"), &[("Cookie", &self.cookie)])
    }

    /// The path of an endless question to an organisation.
    fn endless(org: &str) -> String {
        format!("/api/v1/orgs/{org}/query/expr-range?expr={}&start=now-3h&step=1", percent(ENDLESS))
    }

    /// Asks an endless question by hand; hanging up is up to the caller.
    fn ask_endlessly(&self, org: &str) -> TcpStream {
        self.send(&Asker::endless(org))
    }

    /// Sends a request by hand; hanging up is up to the caller.
    fn send(&self, path: &str) -> TcpStream {
        send(&self.server, &self.cookie, path)
    }

    /// Sends JSON by hand, as the signed-in account.
    fn send_json(&self, method: &str, path: &str, body: &Json) -> TcpStream {
        let address = self.server.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let (cookie, body) = (&self.cookie, body.to_string());
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(text.as_bytes()).expect("sent");
        stream
    }

    /// Waits until a number of `/metrics` is as it should be.
    fn until_metric(&self, line: &str) {
        let begun = Stopwatch::start();
        while !self.server.get("/metrics", &[]).body.lines().any(|have| have == line) {
            assert!(begun.elapsed() < PATIENCE, "{line:?} never came");
        }
    }

    fn running(&self, org: &str) -> Vec<Json> {
        let answer = self.get(&format!("{org}/queries"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["data"].as_array().expect("a list").clone()
    }

    /// Waits until the list of an organisation is as it should be; answers it.
    fn until(&self, org: &str, is_so: impl Fn(&[Json]) -> bool) -> Vec<Json> {
        let begun = Stopwatch::start();
        loop {
            let rows = self.running(org);
            if is_so(&rows) {
                return rows;
            }
            assert!(begun.elapsed() < PATIENCE, "still {rows:?}");
        }
    }
}

/// Sends a GET request over a connection of its own; the caller reads the answer or closes it.
pub(crate) fn send(server: &Server, cookie: &str, path: &str) -> TcpStream {
    let address = server.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let text =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("sent");
    stream
}

/// The status of an answer that is read by hand, and its body.
fn read(mut stream: TcpStream) -> (String, Json) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let body = body.get(body.find('{').unwrap_or(0)..=body.rfind('}').expect("JSON")).unwrap_or_default();
    (head.lines().next().unwrap_or_default().to_owned(), serde_json::from_str(body).expect("JSON"))
}

#[test]
fn a_question_is_gone_as_soon_as_its_client_is() {
    let dir = tempfile::tempdir().expect("a folder");
    let asker = Asker::start(dir.path());
    // More often than there are threads for one organisation: a single one that stayed would be noticed.
    for _ in 0..12 {
        let stream = asker.ask_endlessly(ORG);
        asker.until(ORG, |rows| rows.len() == 1);
        let begun = Stopwatch::start();
        drop(stream);
        asker.until(ORG, <[Json]>::is_empty);
        println!("gone after {:?}, two requests included", begun.elapsed());
    }
    assert_eq!(asker.server.ask(&asker.cookie, "count(up)", "now")["result"][0]["value"][1], "1");
}

#[test]
fn a_running_question_is_listed_with_its_progress_and_ended_by_its_id() {
    let dir = tempfile::tempdir().expect("a folder");
    let asker = Asker::start(dir.path());
    let stream = asker.ask_endlessly(ORG);
    // It has read its samples, and computes.
    let rows = asker.until(ORG, |rows| rows.iter().any(|row| row["progress"] == 1.0));
    let row = &rows[0];
    assert_eq!(row["query"], ENDLESS);
    assert!(row["elapsed_ms"].is_number() && row["memory_bytes"].as_u64() > Some(0), "{row}");
    let id = row["id"].as_str().expect("an id");
    let url = format!("{}/api/v1/orgs/{ORG}/queries/{id}", asker.server.url);
    let end = || request("DELETE", &url, &[("Cookie", &asker.cookie)], None);
    assert_eq!(end().status, 204);
    let (status, problem) = read(stream);
    assert!(status.contains(" 503 "), "{status}");
    assert_eq!(problem["code"], "query_cancelled");
    asker.until(ORG, <[Json]>::is_empty);
    assert_eq!(end().status, 404, "it is gone");
}

#[test]
fn a_question_ends_with_its_timeout_and_one_too_large_is_refused_with_the_numbers() {
    let dir = tempfile::tempdir().expect("a folder");
    let asker = Asker::start(dir.path());
    let late = asker.server.get(&(Asker::endless(ORG) + "&timeout=50ms"), &[("Cookie", &asker.cookie)]);
    assert_eq!((late.status, late.code().as_str()), (503, "query_timeout"), "{}", late.body);
    asker.until(ORG, <[Json]>::is_empty);
    let expr = percent("max_over_time(vector(time())[100y:1ms])");
    let refused = asker.get(&format!("{ORG}/query/expr-instant?expr={expr}"));
    assert_eq!((refused.status, refused.code().as_str()), (422, "query_too_expensive"), "{}", refused.body);
    let detail = refused.json()["detail"].as_str().expect("a sentence").to_owned();
    let numbers: Vec<u64> =
        detail.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    assert!(
        matches!(numbers[..], [needed, .., allowed] if needed > allowed && allowed == 256 << 20),
        "{detail}"
    );
    // What is refused and what was ended has given everything back.
    assert!(asker.server.get("/metrics", &[]).body.contains("promlet_query_memory_bytes 0\n"));
}

#[test]
fn a_question_tells_what_it_will_cost_and_what_it_did() {
    let dir = tempfile::tempdir().expect("a folder");
    let asker = Asker::start(dir.path());
    let expr = percent("sum by (job) (up)");
    let estimate = asker.get(&format!("{ORG}/query/estimate?expr={expr}")).json();
    assert_eq!(
        (&estimate["status"], &estimate["data"]["series"]),
        (&json!("success"), &json!(1)),
        "{estimate}"
    );
    let plain = asker.get(&format!("{ORG}/query/expr-instant?expr={expr}")).json();
    assert!(plain.get("explain").is_none(), "{plain}");
    let told = asker.get(&format!("{ORG}/query/expr-instant?expr={expr}&explain=true")).json();
    let root = &told["explain"];
    assert_eq!((&root["node"], &root["actual"]["series"]), (&json!("sum by (job)"), &json!(1)), "{told}");
    assert_eq!(root["inputs"][0]["actual"]["samples"], 1, "{told}");
}

#[test]
fn one_organisations_endless_questions_keep_no_other_waiting() {
    let dir = tempfile::tempdir().expect("a folder");
    let asker = Asker::start(dir.path());
    let made =
        asker.server.post_json("/api/v1/orgs", &[("Cookie", &asker.cookie)], &json!({"slug": "other"}));
    assert_eq!(made.status, 201, "{}", made.body);
    let threads = std::thread::available_parallelism().map_or(2, usize::from) * 2;
    // As many as there are threads: half of them run, the others wait for their turn.
    let streams: Vec<TcpStream> = (0..threads).map(|_| asker.ask_endlessly(ORG)).collect();
    asker.until(ORG, |rows| rows.len() >= threads / 2);
    for _ in 0..20 {
        let answer = asker.get("other/query/expr-instant?expr=1%2B1");
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(answer.json()["data"]["result"][1], "2", "{}", answer.body);
    }
    let rows = asker.running(ORG);
    assert!(!rows.is_empty() && asker.running("other").is_empty(), "nobody sees the other's: {rows:?}");
    drop(streams);
    asker.until(ORG, <[Json]>::is_empty);
}

/// Tests that cost a thousand states a byte on a text of a and b without order; none of them is kept as a set.
pub(crate) fn hostile_matchers(count: usize) -> String {
    let tests: Vec<String> = (0..count).map(|n| format!("p!~\"[ab]*a.{{900}}x{n}\"")).collect();
    format!("{{{}}}", [String::from("p!=\"\"")].into_iter().chain(tests).collect::<Vec<_>>().join(","))
}

/// A thousand series with values of 4 kB that such tests are slow on: fourteen tests of all of them take more than 20 s.
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

/// What ends work that takes more than 20 s ends it within this.
const SOON: Duration = Duration::from_secs(10);

/// Three answers in a thousandth of a second teach the server that such a listing is brief; then it takes minutes.
#[test]
fn a_matcher_that_became_slow_holds_neither_health_nor_the_stop_nor_its_thread() {
    let dir = tempfile::tempdir().expect("a folder");
    let asker = Asker::start(dir.path());
    let (_, secret) = asker.server.api_key(&asker.cookie);
    let listing =
        format!("/api/v1/orgs/{ORG}/prometheus/api/v1/series?match[]={}", percent(&hostile_matchers(14)));
    for _ in 0..3 {
        let answer = asker.server.get(&listing, &[("Cookie", &asker.cookie)]);
        assert_eq!(answer.status, 200, "{}", answer.body);
        std::thread::sleep(Duration::from_millis(5));
    }
    let written = asker.server.write(&secret, &hostile_values());
    assert_eq!(written.status, 204, "{}", written.body);
    // The other connection's request is to be longer ago than two milliseconds.
    std::thread::sleep(Duration::from_millis(50));
    let stream = asker.send(&listing);
    asker.until_metric("promlet_lane_running{lane=\"query\"} 1");
    let begun = Stopwatch::start();
    for _ in 0..20 {
        assert_eq!(asker.server.get("/healthz", &[]).status, 200);
    }
    assert!(begun.elapsed() < SOON, "health was answered twenty times in {:?}", begun.elapsed());
    stream.set_nonblocking(true).expect("a socket");
    let mut one = [0u8; 1];
    let not_yet = stream.peek(&mut one).expect_err("the listing takes longer than twenty requests");
    assert_eq!(not_yet.kind(), std::io::ErrorKind::WouldBlock);
    drop(stream);
    let begun = Stopwatch::start();
    asker.until_metric("promlet_lane_running{lane=\"query\"} 0");
    assert!(begun.elapsed() < SOON, "it went on for {:?} after its client had gone", begun.elapsed());

    // The same in a query, which ends with its timeout.
    let query = percent(&format!("count({})", hostile_matchers(14)));
    let begun = Stopwatch::start();
    let late = asker.get(&format!("{ORG}/query/expr-instant?expr={query}&timeout=1s"));
    assert_eq!((late.status, late.code().as_str()), (503, "query_timeout"), "{}", late.body);
    assert!(begun.elapsed() < SOON, "a timeout of 1 s was answered after {:?}", begun.elapsed());

    // A stop is heard while it runs.
    let stream = asker.send(&listing);
    asker.until_metric("promlet_lane_running{lane=\"query\"} 1");
    asker.server.signal("TERM");
    asker.server.log_line("stopping: open requests are finished first");
    stream.set_nonblocking(true).expect("a socket");
    let not_yet = stream.peek(&mut one).expect_err("the stop is heard before the listing ends");
    assert_eq!(not_yet.kind(), std::io::ErrorKind::WouldBlock);
    drop(stream);
    assert!(asker.server.ended().success());
}

#[test]
fn patterns_of_label_replace_are_counted_with_those_of_selectors() {
    let dir = tempfile::tempdir().expect("a folder");
    let asker = Asker::start(dir.path());
    let nested = |patterns: usize, selector: &str| {
        let open = "label_replace(".repeat(patterns);
        let close: String = (0..patterns).map(|n| format!(",\"d\",\"$1\",\"job\",\"(.*)a{n}\")")).collect();
        format!("{open}{selector}{close}")
    };
    let ask = |text: &str| asker.get(&format!("{ORG}/query/expr-instant?expr={}", percent(text)));
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

/// Expressions with patterns that are as slow to compile as patterns may be, each of its own.
fn slow_to_compile(exprs: usize, salt: &str) -> Json {
    let folded = "[\u{1}-\u{10ffff}]".repeat(3);
    let matchers = |expr: usize| -> String {
        let tests: Vec<String> =
            (0..16).map(|n| format!("p!~\"(?i)(?:{folded}){{0}}{salt}{expr}x{n}\"")).collect();
        tests.join(",")
    };
    (0..exprs).map(|expr| format!("up{{{}}}", matchers(expr))).collect()
}

/// Minting, new keys and changed keys compile what their policies list, and nothing else waits for that.
#[test]
fn policies_that_are_slow_to_compile_do_not_hold_health() {
    let dir = tempfile::tempdir().expect("a folder");
    let asker = Asker::start(dir.path());
    let (id, _) = asker.server.api_key(&asker.cookie);
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
        let stream = asker.send_json(method, &path, &body);
        asker.until_metric("promlet_lane_running{lane=\"query\"} 1");
        for _ in 0..3 {
            assert_eq!(asker.server.get("/healthz", &[]).status, 200);
        }
        stream.set_nonblocking(true).expect("a socket");
        let not_yet = stream.peek(&mut [0u8; 1]).expect_err("compiling takes longer than three requests");
        assert_eq!(not_yet.kind(), std::io::ErrorKind::WouldBlock, "{method} {path}");
        // The client hangs up, and compiling ends.
        drop(stream);
        asker.until_metric("promlet_lane_running{lane=\"query\"} 0");
    }
}

/// With all threads of an organisation taken, a token is good at once if it has nothing to compile, and waits otherwise.
#[test]
fn matchers_of_a_new_token_are_compiled_in_its_organisations_share_of_the_query_lane() {
    let dir = tempfile::tempdir().expect("a folder");
    let asker = Asker::start(dir.path());
    let (id, _) = asker.server.api_key(&asker.cookie);
    let mint = |matcher: &str| {
        let body = json!({ "api_key_id": id, "ms": { "match": [matcher] } });
        let path = format!("/api/v1/orgs/{ORG}/embed/tokens");
        let minted = asker.server.post_json(&path, &[("Cookie", &asker.cookie)], &body);
        assert_eq!(minted.status, 201, "{}", minted.body);
        minted.json()["token"].as_str().expect("a token").to_owned()
    };
    let version = |token: &str| {
        let bearer = format!("Bearer {token}");
        let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/status/buildinfo");
        asker.server.get(&path, &[("Authorization", &bearer)])
    };
    let introspect = |token: &str| {
        let path = format!("/api/v1/orgs/{ORG}/embed/introspect");
        asker.server.post_json(&path, &[("Cookie", &asker.cookie)], &json!({ "token": token }))
    };
    let (plain, cached, new) = (mint("job=a"), mint("job=~\"a.*b?\""), mint("job=~\"a.*c?\""));
    assert_eq!(version(&cached).status, 200);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let streams: Vec<TcpStream> = (0..threads).map(|_| asker.ask_endlessly(ORG)).collect();
    asker.until_metric(&format!("promlet_lane_running{{lane=\"query\"}} {threads}"));
    assert_eq!((version(&plain).status, version(&cached).status), (200, 200));
    for busy in [version(&new), introspect(&new)] {
        assert_eq!(busy.status, 503, "{}", busy.body);
        assert!(busy.body.contains("the server is busy"), "{}", busy.body);
    }
    drop(streams);
    asker.until(ORG, <[Json]>::is_empty);
    assert_eq!(version(&new).status, 200);
    assert_eq!(introspect(&new).json()["valid"], true);
}

#[test]
fn a_form_with_more_parameters_than_any_endpoint_knows_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let asker = Asker::start(dir.path());
    let url = format!("{}/api/v1/orgs/{ORG}/prometheus/api/v1/query", asker.server.url);
    let origin = asker.server.url.clone();
    let headers = [
        ("Cookie", &*asker.cookie),
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
