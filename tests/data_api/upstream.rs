//! Organisations whose samples are on another server: what a caller sees equals what it would see
//! of the same samples stored here, and a server that lies does no harm.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use hyper_util::rt::TokioIo;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use promlet::model::{EgressRules, Features};
use promlet::outbound::Egress;

use crate::fake_upstream::{FakeUpstream, Reply, is_whole, response};
use crate::scope_law;
use crate::test_server::{TestServer, TestServerOptions, Who, ask, signed};
use crate::wire::{DataFixture, NOW, escaped, snappy};

const ENGINE: &str = "/api/v1/orgs/acme/engine";

fn options() -> TestServerOptions {
    let mut plan = TestServerOptions::default();
    let rules = EgressRules::parse(["127.0.0.0/8"]).expect("a network");
    plan.options.egress = Egress::new(rules, &[]);
    plan.options.read.caps.features = Features::ALL;
    plan.options.limits.cabinet_rps = 1_000_000;
    plan.options.limits.anonymous_rps = 1_000_000;
    plan
}

/// Lets a test server listen. Returns its URL.
async fn listen(server: &TestServer) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let router = server.router.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let router = router.clone();
            let service =
                hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                    router.clone().oneshot(request.map(Body::new))
                });
            let serve =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(serve);
        }
    });
    format!("http://{address}")
}

/// A server with samples, and one whose organisation reads them from there.
struct Pair {
    local: DataFixture,
    remote: DataFixture,
}

impl Pair {
    async fn new() -> Pair {
        let local = DataFixture::of(TestServer::build(options())).await;
        let request = ask("POST", "/api/v1/orgs/acme/write", &local.cabinet);
        let body = Body::from(snappy(&scope_law::all_samples()));
        assert_eq!(local.server.send(request.body(body).expect("a request")).await.status, 204);
        let read = json!({ "scopes": ["read"], "read": { "rate_limit_rps": 10_000 } });
        let (_, key) = local.server.key(&local.cabinet, read).await;
        let url = format!("{}/api/v1/orgs/acme/prometheus", listen(&local.server).await);
        let remote = DataFixture::of(TestServer::build(options())).await;
        let engine = json!({ "engine": "upstream", "url": url, "auth": { "type": "bearer", "token": key } });
        let reply = remote.server.json("PUT", ENGINE, &remote.cabinet, engine).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        Pair { local, remote }
    }
}

/// A token with restrictions of its key and of its own.
async fn token(fixture: &DataFixture, key: &Value, own: &Value) -> Who {
    let fields = json!({ "scopes": ["embed"], "embed": { "rate_limit_rps": 10_000, "policy": key } });
    let (id, secret) = fixture.server.key(&fixture.cabinet, fields).await;
    // Signed offline, because the server refuses to sign a token that sees more than its key.
    let now = fixture.server.clock.now().as_s();
    let claims = json!({ "aud": "ms-embed", "org": "acme", "iat": now, "exp": now + 3_600, "ms": own });
    Who::Bearer(signed(&id, &secret, &claims))
}

/// Removes what an upstream does not report in the same way: costs, annotations with positions in
/// the sent text, counts of series, and queries of metrics that a selector does not name.
fn without_costs(mut value: Value) -> Value {
    if let Some(fields) = value.get_mut(1).and_then(Value::as_object_mut) {
        for name in ["stats", "warnings", "infos", "query"] {
            fields.remove(name);
        }
        for metric in fields.get_mut("data").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(metric) = metric.as_object_mut().filter(|metric| metric.contains_key("last_seen")) {
                for name in ["series", "last_seen", "last_queried"] {
                    metric.remove(name);
                }
            }
        }
    }
    value
}

/// The law of embed tokens (docs/specification.md D7) with an upstream: every response equals that
/// of the same samples stored here, or is refused because the upstream cannot be restricted.
#[tokio::test]
async fn a_restricted_caller_sees_the_same_of_an_upstream_as_of_local_samples() {
    let pair = Pair::new().await;
    let mut runner = TestRunner::deterministic();
    let (mut equal, mut with_data, mut unsupported) = (0, 0, 0);
    for case in 0..24 {
        let strategy = (
            scope_law::restriction(),
            scope_law::restriction(),
            scope_law::expressions(),
            scope_law::expressions(),
        );
        let drawn = strategy.new_tree(&mut runner).expect("a case").current();
        let (key, own) = (drawn.0.json(), drawn.1.json());
        let whos = [
            (token(&pair.local, &key, &own).await, token(&pair.remote, &key, &own).await),
            (pair.local.cabinet.clone(), pair.remote.cabinet.clone()),
        ];
        let (from, to) = scope_law::RANGES[case % scope_law::RANGES.len()];
        let range = format!("start={}&end={}", NOW - from, NOW - to);
        let selector = scope_law::SELECTORS[case % scope_law::SELECTORS.len()];
        let mut paths = scope_law::queries(&drawn.2);
        paths.extend(scope_law::queries(&drawn.3));
        paths.extend(scope_law::listings((case % 3 > 0).then_some(selector), &range));
        for (local, remote) in &whos[..if case < 6 { 2 } else { 1 }] {
            for path in paths.iter().map(|path| path.replace("&explain=true", "")) {
                let path = format!("/api/v1/orgs/acme/{path}");
                let here = pair.local.server.get(&path, local).await;
                let there = pair.remote.server.get(&path, remote).await;
                if there.status == 422 && there.body.contains("upstream_unsupported") {
                    unsupported += 1;
                    continue;
                }
                let hints = ["upstream cannot", "samples that are stored here"];
                if there.status == 422 && hints.iter().any(|hint| there.body.contains(hint)) {
                    unsupported += 1;
                    continue;
                }
                // A token does not see the message of an upstream's error.
                if here.status.as_u16() >= 400 {
                    assert_eq!(here.status, there.status, "{path}\n{}\n{}", here.body, there.body);
                    continue;
                }
                let [here_seen, there_seen] =
                    [&here, &there].map(|reply| without_costs(scope_law::comparable(&path, reply)));
                assert_eq!(here_seen, there_seen, "{path}\n{key} {own}\n{}\n{}", here.body, there.body);
                equal += 1;
                with_data += usize::from(here.body.contains("__name__") || here.body.contains("\"m\""));
            }
        }
    }
    assert!(
        equal > 1_000 && with_data > 100,
        "{equal} equal, {with_data} with data, {unsupported} unsupported"
    );
    assert!(unsupported < 3 * equal, "{equal} equal, {unsupported} unsupported");
}

#[tokio::test]
async fn batches_live_points_and_pictures_are_answered_by_the_upstream() {
    let pair = Pair::new().await;
    let body = json!({ "queries": [
        { "id": "a", "expr": "sum by (job) (m)", "type": "instant", "time": NOW },
        { "id": "b", "expr": "sum by (job) (m)", "type": "instant", "time": NOW },
        { "id": "c", "expr": "m{", "type": "instant", "time": NOW },
        { "id": "d", "expr": "m", "type": "range", "start": NOW - 60, "end": NOW, "step": 30 },
    ] });
    let path = "/api/v1/orgs/acme/query/batch";
    let lines = async |fixture: &DataFixture| {
        let reply = fixture.server.post(path, &fixture.cabinet, body.clone()).await;
        let mut lines: Vec<Value> = reply
            .body
            .lines()
            .map(|line| {
                let mut line: Value = serde_json::from_str(line).expect("JSON");
                for name in ["stats", "elapsed_ms", "query"] {
                    line.as_object_mut().expect("an object").remove(name);
                }
                line
            })
            .collect();
        lines.sort_by_key(Value::to_string);
        lines
    };
    let (here, there) = (lines(&pair.local).await, lines(&pair.remote).await);
    assert_eq!(here, there);
    assert_eq!(here.len(), 5);
    let picture =
        format!("/api/v1/orgs/acme/render.svg?expr=m&start={}&end={NOW}&width=400&height=200", NOW - 600);
    let here = pair.local.server.get(&picture, &pair.local.cabinet).await;
    let there = pair.remote.server.get(&picture, &pair.remote.cabinet).await;
    assert_eq!((here.status, here.body), (there.status, there.body));
}

/// Sets an engine without asking it.
async fn set(fixture: &DataFixture, engine: Value) {
    let reply = fixture.server.json("PUT", &format!("{ENGINE}?probe=false"), &fixture.cabinet, engine).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

#[tokio::test]
async fn an_upstream_that_lies_is_a_clear_error() {
    let json = |status: &str, body: &str| Reply::Bytes(response(status, "application/json", body));
    let reported = |kind: &str| format!(r#"{{"status":"error","errorType":"{kind}","error":"told so"}}"#);
    let data = |kind: &str, result: &str| {
        format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}"#)
    };
    let chunked = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let begun = r#"{"status":"success","data":{"resultType":"vector","result":["#;
    let first = format!("{chunked}{:x}\r\n{begun}\r\n", begun.len());
    let element = format!(r#"{{"metric":{{"a":"{}"}},"value":[1,"1"]}},"#, "x".repeat(1_000));
    let again = format!("{:x}\r\n{element}\r\n", element.len());
    let many = format!("{}{{}}", format!("{:x}\r\n{element}\r\n", element.len()).repeat(3));
    let cases = [
        (json("400 Bad Request", &reported("bad_data")), "upstream_unsupported"),
        (json("409 Conflict", &reported("conflict")), "upstream_error"),
        (json("413 Too Large", "{}"), "upstream_error"),
        (json("415 Unsupported", "{}"), "upstream_error"),
        (json("401 Unauthorized", "secret of the proxy"), "upstream_error"),
        (json("422 Unprocessable", &reported("execution")), "query_failed"),
        (json("429 Too Many Requests", "{}"), "upstream_unavailable"),
        (json("500 Oops", "{}"), "upstream_error"),
        (json("503 Unavailable", "{}"), "upstream_error"),
        (json("503 Unavailable", &reported("timeout")), "query_timeout"),
        (Reply::Bytes(response("200 OK", "text/html", "<html>login</html>")), "upstream_error"),
        (
            Reply::Bytes(
                b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n"
                    .to_vec(),
            ),
            "upstream_error",
        ),
        (
            json("200 OK", r#"{"status":"success","data":{"resultType":"vector","result":[{]}}"#),
            "upstream_error",
        ),
        (json("200 OK", &data("streams", "[]")), "upstream_error"),
        (json("200 OK", &data("matrix", r#"[{"metric":{},"value":[1,"1"]}]"#)), "upstream_error"),
        (json("200 OK", &data("vector", r#"[{"metric":{"a":"b"},"value":[1,"one"]}]"#)), "upstream_error"),
        (json("200 OK", &data("vector", &"[".repeat(10_000))), "upstream_error"),
        (json("200 OK", &reported("execution")), "query_failed"),
        (json("200 OK", "null"), "upstream_error"),
        (json("200 OK", ""), "upstream_error"),
        (Reply::Bytes(first.clone().into()), "upstream_error"),
        (Reply::Bytes(format!("{first}{many}").into()), "upstream_error"),
        (Reply::Bytes(Vec::new()), "upstream_error"),
        (Reply::Hang(Vec::new()), "query_timeout"),
        (Reply::Hang(first.clone().into()), "query_timeout"),
        (Reply::Endless(first.into(), again.into()), "query_too_expensive"),
        (
            Reply::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n{".to_vec()),
            "query_too_expensive",
        ),
    ];
    for (reply, expected) in cases {
        let mut plan = options();
        if matches!(reply, Reply::Hang(_)) {
            plan.options.read.timeout = Duration::from_millis(700);
        }
        plan.options.read.promql.limits.memory_bytes_max = 1 << 20;
        let fixture = DataFixture::of(TestServer::build(plan)).await;
        let fake = FakeUpstream::start(reply);
        set(&fixture, json!({ "engine": "upstream", "url": fake.url() })).await;
        let found = fixture.get(&format!("query/expr-instant?expr=up&time={NOW}")).await;
        assert_eq!(found.code(), expected, "{}", found.body);
        // A token learns nothing of the upstream's messages.
        let viewer = token(&fixture, &json!({}), &json!({})).await;
        let path = format!("/api/v1/orgs/acme/query/expr-instant?expr=up&time={NOW}");
        let seen = fixture.server.get(&path, &viewer).await;
        assert!(!seen.body.contains("told so") && !seen.body.contains("secret"), "{}", seen.body);
    }
}

/// Starts a server that ends with the process and answers each request with the JSON that `answer`
/// makes of its text. Returns its URL and the texts so far.
fn scripted(answer: impl Fn(&str) -> Value + Send + Sync + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let (requests, answer) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answer));
    let seen = Arc::clone(&requests);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
            std::thread::spawn(move || {
                let (mut text, mut some) = (Vec::new(), [0; 4_096]);
                while !is_whole(&text) {
                    match stream.read(&mut some) {
                        Ok(read @ 1..) => text.extend_from_slice(&some[..read]),
                        _ => return,
                    }
                }
                let text = String::from_utf8_lossy(&text).into_owned();
                let body = answer(&text).to_string();
                seen.lock().expect("not poisoned").push(text);
                // A client that disconnects early needs no response.
                let _ = stream.write_all(&response("200 OK", "application/json", &body));
            });
        }
    });
    (url, requests)
}

fn vector(series: &[Value]) -> Value {
    let series: Vec<Value> =
        series.iter().map(|labels| json!({ "metric": labels, "value": [NOW, "1"] })).collect();
    json!({ "status": "success", "data": { "resultType": "vector", "result": series } })
}

#[tokio::test]
async fn the_lookback_is_always_sent_and_warnings_of_the_server_are_for_members() {
    let (url, requests) = scripted(|_| {
        let mut body = vector(&[json!({ "a": "b" })]);
        body["warnings"] = json!(["receive series from Addr: 10.3.1.7:10901"]);
        body["infos"] = json!(["10.3.1.8"]);
        body["isPartial"] = json!(true);
        body
    });
    let fixture = DataFixture::of(TestServer::build(options())).await;
    set(&fixture, json!({ "engine": "upstream", "url": url })).await;
    let path = format!("prometheus/api/v1/query?query=up&time={NOW}");
    let member = fixture.get(&path).await;
    assert_eq!(member.status, 200, "{}", member.body);
    assert!(member.body.contains("10.3.1.7") && member.body.contains("10.3.1.8"), "{}", member.body);
    assert!(member.body.contains("partial"), "{}", member.body);
    let viewer = fixture.embed(json!({})).await;
    let seen = fixture.get_as(&viewer, &path).await;
    assert_eq!(seen.status, 200, "{}", seen.body);
    assert!(!seen.body.contains("10.3.1."), "{}", seen.body);
    assert!(seen.body.contains("reported warnings") && seen.body.contains("partial"), "{}", seen.body);
    fixture.get(&format!("{path}&lookback_delta=60")).await;
    let requests = requests.lock().expect("not poisoned");
    let sent: Vec<bool> = ["=300", "=300", "=60"]
        .iter()
        .zip(&*requests)
        .map(|(value, text)| text.contains(&format!("lookback_delta{value}&max_lookback{value}&")))
        .collect();
    assert_eq!(sent, [true; 3], "{requests:?}");
}

#[tokio::test]
async fn an_embed_token_pays_for_the_time_of_the_upstream() {
    let mut plan = options();
    plan.options.read.timeout = Duration::from_millis(600);
    let fixture = DataFixture::of(TestServer::build(plan)).await;
    let limits = json!({ "rate_limit_rps": 10_000, "query_seconds_per_minute": 1 });
    let fields = json!({ "scopes": ["embed"], "embed": limits });
    let (key, _) = fixture.server.key(&fixture.cabinet, fields).await;
    let viewer = fixture.server.token(&fixture.cabinet, &key, json!({ "ms": {} })).await;
    let (url, _) = scripted(|_| vector(&[json!({ "a": "b" }), json!({ "a": "c" })]));
    set(&fixture, json!({ "engine": "upstream", "url": url })).await;
    let path = format!("query/expr-instant?expr=up&time={NOW}");
    assert_eq!(fixture.get_as(&viewer, &path).await.status, 200);
    let rows = fixture.server.get("/api/v1/orgs/acme/embeds", &fixture.cabinet).await;
    assert_eq!(rows.value()["data"][0]["samples"], 2, "{}", rows.body);
    let silent = FakeUpstream::start(Reply::Hang(Vec::new()));
    set(&fixture, json!({ "engine": "upstream", "url": silent.url() })).await;
    for _ in 0..2 {
        assert_eq!(fixture.get_as(&viewer, &path).await.code(), "query_timeout");
    }
    let refused = fixture.get_as(&viewer, &path).await;
    refused.is(429, "rate_limited");
    assert_eq!(refused.value()["scope"], "embed_budget");
    assert_eq!(fixture.get(&path).await.code(), "query_timeout", "a member has no budget");
}

#[tokio::test]
async fn the_answers_of_a_request_share_the_memory_of_a_query() {
    let series: Vec<Value> =
        (0..2_000).map(|n| json!({ "__name__": "m", "a": format!("value {n}") })).collect();
    let (url, requests) = scripted(move |_| vector(&series));
    let mut plan = options();
    plan.options.read.promql.limits.memory_bytes_max = 1 << 20;
    let fixture = DataFixture::of(TestServer::build(plan)).await;
    set(&fixture, json!({ "engine": "upstream", "url": url })).await;
    let viewer = fixture.embed(json!({ "max_lookback_s": 600 })).await;
    let path = |selectors: usize| {
        let all: String = (0..selectors).map(|n| format!("match[]=m{{a!=\"{n}\"}}&")).collect();
        let all = all.replace('{', "%7B").replace('}', "%7D").replace('"', "%22");
        format!("prometheus/api/v1/series?{all}start={}&end={NOW}", NOW - 300)
    };
    assert_eq!(fixture.get_as(&viewer, &path(1)).await.status, 200);
    let refused = fixture.get_as(&viewer, &path(32)).await;
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body.contains("memory"), "{}", refused.body);
    let sent = requests.lock().expect("not poisoned").len();
    assert!(sent < 10, "{sent} answers are held at once");
}

#[tokio::test]
async fn the_series_of_thousands_of_metrics_are_counted_by_several_reads() {
    let names: Vec<String> = (0..3_000).map(|n| format!("a_metric_with_a_long_name_{n}_total")).collect();
    let all = names.clone();
    let (url, requests) = scripted(move |text| match text.lines().next().unwrap_or_default() {
        line if line.contains("/values") => json!({ "status": "success", "data": all }),
        line if line.contains("/metadata") => json!({ "status": "success", "data": {} }),
        _ => vector(&[]),
    });
    let fixture = DataFixture::of(TestServer::build(options())).await;
    set(&fixture, json!({ "engine": "upstream", "url": url })).await;
    let found = fixture.get("metrics?limit=5000").await;
    assert_eq!(found.status, 200, "{}", found.body);
    assert_eq!(found.value()["data"].as_array().map(Vec::len), Some(names.len()));
    let requests = requests.lock().expect("not poisoned");
    let counted = requests.iter().filter(|text| text.contains("count%20by")).count();
    assert!((3..8).contains(&counted), "{counted} reads");
}

#[tokio::test]
async fn a_circuit_opens_after_five_failures_and_is_shown() {
    let fixture = DataFixture::of(TestServer::build(options())).await;
    let fake = FakeUpstream::answering("500 Oops", "application/json", "{}");
    set(&fixture, json!({ "engine": "upstream", "url": fake.url() })).await;
    let path = format!("query/expr-instant?expr=up&time={NOW}");
    for _ in 0..5 {
        assert_eq!(fixture.get(&path).await.code(), "upstream_error");
    }
    let reply = fixture.get(&path).await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (503, "upstream_unavailable"));
    assert!(!reply.header("retry-after").is_empty());
    assert_eq!(fake.requests.load(std::sync::atomic::Ordering::SeqCst), 5);
    let shown = fixture.server.get(ENGINE, &fixture.cabinet).await.value();
    assert_eq!((&shown["circuit"]["state"], &shown["circuit"]["failures"]), (&json!("open"), &json!(5)));
    let ready = fixture.server.get("/readyz", &Who::Nobody).await;
    assert_eq!((ready.status.as_u16(), &ready.value()["status"]), (200, &json!("degraded")));
}

#[tokio::test]
async fn secrets_are_write_only_and_stay_with_the_origin_of_their_url() {
    let fixture = DataFixture::of(TestServer::build(options())).await;
    let fake = FakeUpstream::answering("200 OK", "application/json", "{}");
    let engine = |url: &str, password: Option<&str>| {
        json!({ "engine": "upstream", "url": url, "headers": { "X-Key": "hunter2" },
            "auth": { "type": "basic", "username": "u", "password": password } })
    };
    set(&fixture, engine(&fake.url(), Some("hunter2"))).await;
    let shown = fixture.server.get(ENGINE, &fixture.cabinet).await;
    assert!(!shown.body.contains("hunter2"), "{}", shown.body);
    assert_eq!(shown.value()["auth"], json!({ "type": "basic", "username": "u", "has_secret": true }));
    set(&fixture, engine(&format!("{}/prometheus", fake.url()), None)).await;
    let put = format!("{ENGINE}?probe=false");
    let reply = fixture.server.json("PUT", &put, &fixture.cabinet, engine("http://127.0.0.1:1", None)).await;
    reply.is(422, "validation_failed");
    // The probe is made with the stored secret; the answer is no result of vector(1).
    let reply = fixture.server.json("POST", &format!("{ENGINE}/probe"), &fixture.cabinet, json!({})).await;
    assert_eq!(
        (&reply.value()["ok"], &reply.value()["code"]),
        (&json!(false), &json!("target_invalid_response"))
    );
    let reply = fixture.server.json("PUT", ENGINE, &fixture.cabinet, engine(&fake.url(), None)).await;
    reply.is(422, "probe_failed");
    let outside = engine("http://10.0.0.1", Some("x"));
    let reply = fixture.server.json("PUT", ENGINE, &fixture.cabinet, outside).await;
    reply.is(422, "probe_failed");
    assert_eq!(reply.value()["target_error"], "target_address_refused");
    let audit = fixture.server.get("/api/v1/orgs/acme/audit", &fixture.cabinet).await;
    assert!(audit.body.contains("engine.changed") && !audit.body.contains("hunter2"), "{}", audit.body);
}

#[tokio::test]
async fn writes_are_refused_while_the_samples_are_elsewhere() {
    let fixture = DataFixture::of(TestServer::build(options())).await;
    set(&fixture, json!({ "engine": "upstream", "url": "http://127.0.0.1:1" })).await;
    let body = crate::wire::encode(&[(&[("__name__", "up")], &[(NOW * 1_000, 1.0)])]);
    let reply = crate::wire::post_block(&fixture.server, &fixture.agent, snappy(&body)).await;
    assert_eq!(reply.status, 409, "{}", reply.body);
    let reply = fixture.server.delete(ENGINE, &fixture.cabinet).await;
    assert_eq!(reply.status, 204);
    fixture.write(&[(&[("__name__", "up")], &[(NOW * 1_000, 1.0)])]).await;
    let found = fixture.get(&format!("query/expr-instant?expr=up&time={NOW}")).await;
    assert_eq!(found.status, 200);
    assert!(found.body.contains("\"1\""), "{}", found.body);
    let text = escaped("up");
    assert_eq!(fixture.get(&format!("query/estimate?expr={text}&time={NOW}")).await.status, 200);
}
