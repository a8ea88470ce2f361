//! `engine: split` (docs/specification.md C11): half of the samples here, the older half on an
//! upstream that this test runs. Every response must be that of an organisation with all samples.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use promlet::model::EgressRules;
use promlet::outbound::Egress;
use serde_json::{Value, json};

use crate::test_server::{TestServer, TestServerOptions};
use crate::wire::{DataFixture, NOW, Series, encode, escaped, nested, snappy};

/// The labels of all series: two tenants, and one series that only the upstream has.
const SERIES: [&[(&str, &str)]; 5] = [
    &[("__name__", "http_total"), ("job", "api"), ("tenant", "alpha")],
    &[("__name__", "http_total"), ("job", "web"), ("tenant", "alpha")],
    &[("__name__", "http_total"), ("job", "bravo-api"), ("tenant", "bravo")],
    &[("__name__", "bravo_total"), ("bravo_label", "x"), ("tenant", "bravo")],
    &[("__name__", "old_total"), ("job", "api"), ("tenant", "alpha")],
];
const ENGINE: &str = "/api/v1/orgs/acme/engine?probe=false";
/// The border: 450 s before now, rounded down to a minute.
const BORDER: i64 = NOW - 480;

/// The samples of a series, every 15 s of the last 15 minutes.
fn samples(number: usize) -> Vec<(i64, f64)> {
    let all = (0..=60).map(|n| ((NOW - 900 + n * 15) * 1_000, (n * (number as i64 + 1)) as f64 + 0.1));
    // The last series ends before the border.
    all.filter(|(at, _)| number < 4 || *at < (BORDER - 60) * 1_000).collect()
}

fn encoded(is_in: impl Fn(i64) -> bool) -> Vec<u8> {
    let all: Vec<Vec<(i64, f64)>> =
        (0..5).map(|number| samples(number).into_iter().filter(|(at, _)| is_in(*at)).collect()).collect();
    let series: Vec<Series<'_>> = SERIES.iter().zip(&all).map(|(labels, own)| (*labels, &own[..])).collect();
    encode(&series)
}

/// How an upstream answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    /// All samples before the border for every remote read, whatever its matchers are.
    Everything,
    Html,
    Cut,
    Fails,
    /// No remote read; the query API answers every matrix selector with all samples.
    NoRemoteRead,
    /// The same with the answer of VictoriaMetrics to paths that it does not know.
    PathUnknown,
    /// The same, but a part of the samples is missing.
    Partial,
}

/// Starts an upstream, and returns its URL and the number of remote reads so far. It ends with the
/// process.
fn upstream(manner: Manner) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reads);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let counter = Arc::clone(&counter);
            std::thread::spawn(move || stream.map(|stream| serve(stream, manner, &counter)));
        }
    });
    (url, reads)
}

fn serve(mut stream: TcpStream, manner: Manner, reads: &AtomicUsize) {
    let mut pending = Vec::new();
    loop {
        let head_end = loop {
            if let Some(at) = pending.windows(4).position(|end| end == b"\r\n\r\n") {
                break at + 4;
            }
            let mut piece = [0; 4_096];
            match stream.read(&mut piece) {
                Ok(0) | Err(_) => return,
                Ok(read) => pending.extend_from_slice(&piece[..read]),
            }
        };
        let head = String::from_utf8_lossy(&pending[..head_end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        let end = head_end + length.unwrap_or(0);
        while pending.len() < end {
            let mut piece = [0; 4_096];
            match stream.read(&mut piece) {
                Ok(0) | Err(_) => return,
                Ok(read) => pending.extend_from_slice(&piece[..read]),
            }
        }
        let body: Vec<u8> = pending.drain(..end).skip(head_end).collect();
        let path = head.split_whitespace().nth(1).unwrap_or_default();
        let (status, media, body) = answer(path, &body, manner, reads);
        let declared = if manner == Manner::Cut { body.len() + 100 } else { body.len() };
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {declared}\r\n\r\n");
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        if sent.is_err() || manner == Manner::Cut {
            return;
        }
    }
}

fn metric(labels: &[(&str, &str)]) -> Value {
    labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}

fn answer(
    path: &str,
    body: &[u8],
    manner: Manner,
    reads: &AtomicUsize,
) -> (&'static str, &'static str, Vec<u8>) {
    let has_matrices = matches!(manner, Manner::NoRemoteRead | Manner::PathUnknown | Manner::Partial);
    if has_matrices && path == "/api/v1/query" {
        let series = SERIES.iter().enumerate().map(|(number, labels)| {
            let older = samples(number).into_iter().filter(|(at, _)| *at < BORDER * 1_000);
            let values: Vec<Value> =
                older.map(|(at, value)| json!([at / 1_000, value.to_string()])).collect();
            json!({ "metric": metric(labels), "values": values })
        });
        let data = json!({ "resultType": "matrix", "result": series.collect::<Vec<_>>() });
        let is_partial = manner == Manner::Partial;
        let text = json!({ "status": "success", "isPartial": is_partial, "data": data }).to_string();
        return ("200 OK", "application/json", text.into_bytes());
    }
    if path != "/api/v1/read" {
        let data = match path.split('?').next().unwrap_or_default() {
            "/api/v1/series" => json!(SERIES.map(metric)),
            "/api/v1/labels" => json!(["__name__", "bravo_label", "job", "tenant"]),
            "/api/v1/label/__name__/values" => json!(["bravo_total", "http_total", "old_total"]),
            "/api/v1/label/job/values" => json!(["api", "bravo-api", "web"]),
            "/api/v1/metadata" => json!({ "old_total": [{ "type": "counter", "help": "Old.", "unit": "" }] }),
            _ => return ("404 Not Found", "text/plain", b"not found".to_vec()),
        };
        let text = json!({ "status": "success", "data": data }).to_string();
        return ("200 OK", "application/json", text.into_bytes());
    }
    reads.fetch_add(1, Ordering::Relaxed);
    match manner {
        Manner::Html => return ("200 OK", "text/html", b"<html>busy</html>".to_vec()),
        Manner::Fails => return ("500 Internal Server Error", "text/plain", b"disk full".to_vec()),
        Manner::PathUnknown => {
            return ("400 Bad Request", "text/plain", b"unsupported path requested".to_vec());
        }
        Manner::NoRemoteRead | Manner::Partial => {
            return ("404 Not Found", "text/plain", b"not found".to_vec());
        }
        Manner::Everything | Manner::Cut => {}
    }
    let request = snap::raw::Decoder::new().decompress_vec(body).expect("a block");
    let mut response = Vec::new();
    for _ in 0..queries(&request) {
        nested(1, &encoded(|at| at < BORDER * 1_000), &mut response);
    }
    ("200 OK", "application/x-protobuf", snappy(&response))
}

/// Returns the number of queries of a request.
fn queries(mut request: &[u8]) -> usize {
    let mut count = 0;
    while let [tag, rest @ ..] = request {
        let (mut length, mut shift, mut rest) = (0_usize, 0, rest);
        while let [byte, after @ ..] = rest {
            length |= usize::from(byte & 0x7f) << shift;
            (shift, rest) = (shift + 7, after);
            if *byte < 0x80 {
                break;
            }
        }
        count += usize::from(*tag == 0x0a);
        request = &rest[length..];
    }
    count
}

/// Returns an organisation with all samples, and one whose older samples are on an upstream.
async fn both(manner: Manner) -> (DataFixture, DataFixture, Arc<AtomicUsize>) {
    let whole = DataFixture::new().await;
    let (url, reads) = upstream(manner);
    let mut options = TestServerOptions::default();
    options.options.egress = Egress::new(EgressRules::parse(["127.0.0.0/8"]).expect("valid"), &[]);
    let split = DataFixture::of(TestServer::build(options)).await;
    for (fixture, from_ms) in [(&whole, 0), (&split, BORDER * 1_000)] {
        let body = snappy(&encoded(|at| at >= from_ms));
        let reply = crate::wire::post_block(&fixture.server, &fixture.agent, body).await;
        assert_eq!(reply.status, 204, "{}", reply.body);
    }
    let engine = json!({ "engine": "split", "url": url, "split_after_s": 450 });
    let reply = split.server.json("PUT", ENGINE, &split.cabinet, engine).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.value()["split_after_s"], 450);
    (whole, split, reads)
}

const EXPRESSIONS: [&str; 9] = [
    "http_total",
    "{__name__=~\".+\"}",
    "sum by (job) (rate(http_total[5m]))",
    "max_over_time(sum(http_total)[10m:30s])",
    "http_total - http_total offset 8m",
    "http_total @ 1799999400 or old_total",
    "absent(bravo_total)",
    "count({tenant=\"bravo\"})",
    "quantile_over_time(0.5, http_total[12m])",
];

fn data_of(body: &Value) -> &Value {
    if body["data"].is_null() { body } else { &body["data"] }
}

/// The escape tests of a scope: a token of one tenant and its owner get from a split what they get
/// from a store with all samples, although the upstream ignores matchers.
#[tokio::test]
async fn a_split_answers_owners_and_tokens_as_one_store_does_even_if_the_upstream_ignores_the_scope() {
    let (whole, split, reads) = both(Manner::Everything).await;
    let alpha = json!({ "match": ["tenant=\"alpha\""] });
    let tokens = (whole.embed(alpha.clone()).await, split.embed(alpha).await);
    for expr in EXPRESSIONS {
        let query = escaped(expr);
        let paths = [
            format!("prometheus/api/v1/query_range?query={query}&start={}&end={NOW}&step=15", NOW - 840),
            format!("prometheus/api/v1/query?query={query}&time={}", BORDER + 30),
            format!("query/expr-range?expr={query}&start={}&end={NOW}&step=30", NOW - 700),
        ];
        for path in paths {
            let before = reads.load(Ordering::Relaxed);
            let (expected, found) = (whole.get(&path).await, split.get(&path).await);
            assert_eq!(found.status, 200, "{path}: {}", found.body);
            assert_eq!(data_of(&found.value())["result"], data_of(&expected.value())["result"], "{path}");
            assert!(reads.load(Ordering::Relaxed) > before, "{path} did not ask the upstream");
            let expected = whole.get_as(&tokens.0, &path).await;
            let found = split.get_as(&tokens.1, &path).await;
            assert_eq!(found.status, expected.status, "{path}: {}", found.body);
            let (found, expected) = (found.value(), expected.value());
            assert_eq!(data_of(&found)["result"], data_of(&expected)["result"], "{path} by a token");
            let result = data_of(&found)["result"].to_string();
            assert!(!result.contains("bravo"), "{path}: {result}");
        }
    }
}

#[tokio::test]
async fn a_batch_over_the_border_answers_as_one_store_does() {
    let (whole, split, _) = both(Manner::Everything).await;
    let queries: Vec<Value> = EXPRESSIONS
        .iter()
        .enumerate()
        .map(|(number, expr)| json!({ "id": number.to_string(), "expr": expr, "type": "range" }))
        .collect();
    let lines = async |fixture: &DataFixture| {
        let body = json!({ "start": NOW - 840, "end": NOW, "step": "15s", "queries": queries });
        let reply = fixture.server.post("/api/v1/orgs/acme/query/batch", &fixture.cabinet, body).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let mut lines: Vec<(String, String)> = reply
            .body
            .lines()
            .filter_map(|line| {
                let line: Value = serde_json::from_str(line).expect("JSON");
                Some((line["id"].as_str()?.to_owned(), data_of(&line)["result"].to_string()))
            })
            .collect();
        lines.sort();
        lines
    };
    let (found, expected) = (lines(&split).await, lines(&whole).await);
    assert_eq!(found.len(), EXPRESSIONS.len());
    assert_eq!(found, expected);
}

#[tokio::test]
async fn an_upstream_without_remote_read_is_read_by_its_query_api_with_a_warning() {
    let path = |expr: &str| {
        let query = escaped(expr);
        format!("prometheus/api/v1/query_range?query={query}&start={}&end={NOW}&step=15", NOW - 840)
    };
    for manner in [Manner::NoRemoteRead, Manner::PathUnknown] {
        let (whole, split, reads) = both(manner).await;
        for path in EXPRESSIONS.map(path) {
            let (expected, found) = (whole.get(&path).await, split.get(&path).await);
            assert_eq!(found.status, 200, "{path}: {}", found.body);
            assert_eq!(found.value()["data"], expected.value()["data"], "{path}");
            assert!(found.value()["warnings"].to_string().contains("no remote read"), "{}", found.body);
        }
        assert_eq!(reads.load(Ordering::Relaxed), EXPRESSIONS.len());
    }
    // A part of the samples would be a wrong result.
    let (_, split, _) = both(Manner::Partial).await;
    let refused = split.get(&path(EXPRESSIONS[0])).await;
    assert_eq!(refused.status, 502, "{}", refused.body);
}

#[tokio::test]
async fn listings_are_the_union_of_both_sides() {
    let (whole, split, _) = both(Manner::Everything).await;
    for path in [
        "prometheus/api/v1/series?match[]=%7B__name__!%3D%22%22%7D",
        "prometheus/api/v1/labels",
        "prometheus/api/v1/label/__name__/values",
        "prometheus/api/v1/label/job/values",
    ] {
        let range =
            format!("{path}{}start={}&end={NOW}", if path.contains('?') { "&" } else { "?" }, NOW - 900);
        let (expected, found) = (whole.get(&range).await, split.get(&range).await);
        assert_eq!(found.value()["data"], expected.value()["data"], "{range}: {}", found.body);
    }
    let metadata = split.get("prometheus/api/v1/metadata").await;
    assert_eq!(metadata.value()["data"]["old_total"][0]["type"], "counter", "{}", metadata.body);
    // An upstream that ignores matchers shows a token nothing outside of its scope.
    let alpha = json!({ "match": ["tenant=\"alpha\""] });
    let tokens = (whole.embed(alpha.clone()).await, split.embed(alpha).await);
    for path in
        ["series?match[]=%7B__name__!%3D%22%22%7D&", "labels?", "label/__name__/values?", "label/job/values?"]
    {
        let path = format!("prometheus/api/v1/{path}start={}&end={NOW}", NOW - 900);
        let (expected, found) = (whole.get_as(&tokens.0, &path).await, split.get_as(&tokens.1, &path).await);
        assert_eq!(found.value()["data"], expected.value()["data"], "{path}: {}", found.body);
        assert!(!found.body.contains("bravo"), "{path}: {}", found.body);
    }
    // From the border on, the upstream is not asked.
    let newer = format!("prometheus/api/v1/label/__name__/values?start={BORDER}&end={NOW}");
    assert_eq!(split.get(&newer).await.value()["data"], json!(["bravo_total", "http_total"]));
}

#[tokio::test]
async fn a_query_after_the_border_needs_no_upstream_and_one_over_it_fails_with_the_upstream() {
    for manner in [Manner::Html, Manner::Cut, Manner::Fails] {
        let (whole, split, reads) = both(manner).await;
        // The range that decides reaches two lookbacks of five minutes back, so a short one is set.
        let near = format!("prometheus/api/v1/query?query=http_total&time={NOW}&lookback_delta=60");
        let (expected, found) = (whole.get(&near).await, split.get(&near).await);
        assert_eq!(found.value()["data"], expected.value()["data"], "{}", found.body);
        assert_eq!(reads.load(Ordering::Relaxed), 0);
        let over = format!("prometheus/api/v1/query?query=rate(http_total[12m])&time={NOW}");
        let failed = split.get(&over).await;
        assert!(matches!(failed.status.as_u16(), 502 | 503), "{manner:?}: {} {}", failed.status, failed.body);
        assert_eq!(failed.value()["status"], "error");
    }
}

#[tokio::test]
async fn the_age_of_the_border_is_checked() {
    let fixture = DataFixture::new().await;
    for (engine, field) in [
        (json!({ "engine": "split", "url": "http://x.test" }), "split_after_s"),
        (json!({ "engine": "split", "url": "http://x.test", "split_after_s": 59 }), "split_after_s"),
        (json!({ "engine": "upstream", "url": "http://x.test", "split_after_s": 60 }), "split_after_s"),
        (json!({ "engine": "both", "url": "http://x.test" }), "engine"),
    ] {
        let reply = fixture.server.json("PUT", ENGINE, &fixture.cabinet, engine).await;
        assert_eq!(reply.status, 422, "{}", reply.body);
        assert!(reply.body.contains(field), "{}", reply.body);
    }
}

/// The label of the tenant is that of the server only; here it may be any label.
#[tokio::test]
async fn values_of_the_tenants_label_are_those_that_are_stored_here() {
    let (_, split, _) = both(Manner::Everything).await;
    let (url, _) = upstream(Manner::Everything);
    let tenant = json!({ "type": "label", "name": "job", "value": "api" });
    let engine = json!({ "engine": "split", "url": url, "split_after_s": 450, "tenant": tenant });
    let reply = split.server.json("PUT", ENGINE, &split.cabinet, engine).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let found = split.get(&format!("prometheus/api/v1/label/job/values?start={}&end={NOW}", NOW - 900)).await;
    assert_eq!(found.value()["data"], json!(["api", "bravo-api", "web"]), "{}", found.body);
}
