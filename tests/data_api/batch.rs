//! `POST query/batch` (docs/specification.md C5): its lines, their order, its limits, and what a
//! client that disconnects or does not read causes.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, header};
use http_body_util::BodyExt as _;
use promlet::api::lanes::LaneOptions;
use promlet::model::EgressRules;
use promlet::outbound::Egress;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::fake_upstream::FakeUpstream;
use crate::test_server::{Reply, TestServer, TestServerOptions, Who, ask};
use crate::wire::{DataFixture, NOW, Series, escaped};

const PATH: &str = "/api/v1/orgs/acme/query/batch";

/// A query that runs until it is cancelled.
const ENDLESS: &str = "quantile_over_time(0.5, vector(time() + scalar(count(up)))[1d:1s])";

fn range(id: &str, expr: &str) -> Value {
    json!({ "id": id, "expr": expr, "type": "range" })
}

fn instant(id: &str, expr: &str) -> Value {
    json!({ "id": id, "expr": expr, "type": "instant" })
}

/// A batch over the ten minutes before `NOW`.
fn body(queries: &[Value]) -> Value {
    json!({ "start": NOW - 600, "end": NOW, "step": "60s", "queries": queries })
}

async fn post(fixture: &DataFixture, who: &Who, body: &Value) -> Reply {
    fixture.server.post(PATH, who, body.clone()).await
}

/// Checks that a batch is complete, and returns its lines by id.
fn lines(reply: &Reply) -> BTreeMap<String, Value> {
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.header("content-type"), "application/x-ndjson");
    let mut lines: Vec<Value> =
        reply.body.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let last = lines.pop().expect("a last line");
    let failed = lines.iter().filter(|line| line["status"] == "error").count();
    assert_eq!(
        (&last["done"], &last["queries"], &last["failed"]),
        (&json!(true), &json!(lines.len()), &json!(failed)),
        "{last}"
    );
    assert!(last["elapsed_ms"].is_number());
    let count = lines.len();
    let by_id: BTreeMap<String, Value> =
        lines.into_iter().map(|line| (line["id"].as_str().expect("an id").to_owned(), line)).collect();
    assert_eq!(by_id.len(), count, "no id has two lines");
    by_id
}

/// Checks that a line equals the response to a request for the same query.
fn assert_equal(line: &Value, single: &Reply, about: &str) {
    let value = single.value();
    if single.status != 200 {
        assert_eq!(line["status"], "error", "{about}: {line}");
        assert_eq!(line["http_status"], single.status.as_u16(), "{about}");
        for member in ["type", "title", "code", "detail", "errorType", "error", "errors"] {
            assert_eq!(line[member], value[member], "{about}: {member}");
        }
        return;
    }
    for member in ["status", "data", "query", "warnings", "infos"] {
        assert_eq!(line[member], value[member], "{about}: {member}");
    }
    assert_eq!(line["stats"]["series"], value["stats"]["series"], "{about}");
}

/// Expressions with results of all types, annotations, and errors of all stages.
const EXPRESSIONS: [&str; 26] = [
    "up",
    "http_requests_total",
    "sum by (job) (rate(http_requests_total[5m]))",
    "sum  by(job)(rate(http_requests_total[5m]))",
    "rate(up[5m])",
    "rate( up[5m])",
    "histogram_quantile(0.9, up)",
    "quantile(7, up)",
    " quantile(7, up)",
    "topk(1, http_requests_total)",
    "http_requests_total{job=~\"a.*\"} / on(job) group_left up",
    "up / on() http_requests_total",
    "http_requests_total offset 1h",
    "max_over_time(sum(rate(http_requests_total[1m]))[5m:1m])",
    "1 + 2",
    "time()",
    "\"text\"",
    "vector(1)",
    "absent(nonsense)",
    "up[5m]",
    "sum(",
    "",
    "nonsense(up)",
    "label_replace(up, \"job\", \"(\", \"job\", \"(\")",
    "up{job=~\"(\"}",
    "max_over_time(vector(time())[100y:1ms])",
];

#[tokio::test]
async fn every_line_equals_the_response_to_the_single_request() {
    let mut options = TestServerOptions::default();
    options.options.limits.cabinet_rps = 1_000_000;
    let fixture = DataFixture::with_shop_of(DataFixture::of(TestServer::build(options)).await).await;
    let mut queries = Vec::new();
    for (n, expr) in EXPRESSIONS.iter().enumerate() {
        queries.push(range(&format!("range {n}"), expr));
        queries.push(instant(&format!("instant {n}"), expr));
        let mut own = range(&format!("own {n}"), expr);
        own["start"] = json!("now-5m");
        own["step"] = json!(15);
        own["limit"] = json!(1);
        queries.push(own);
    }
    for who in [&fixture.cabinet, &fixture.embed(json!({ "match": ["tenant=\"a\""] })).await] {
        let lines = lines(&post(&fixture, who, &body(&queries)).await);
        assert_eq!(lines.len(), queries.len());
        for (n, expr) in EXPRESSIONS.iter().enumerate() {
            let text = escaped(expr);
            for (id, path) in [
                ("range", format!("expr-range?expr={text}&start={}&end={NOW}&step=60", NOW - 600)),
                ("instant", format!("expr-instant?expr={text}&time={NOW}")),
                ("own", format!("expr-range?expr={text}&start=now-5m&end={NOW}&step=15&limit=1")),
            ] {
                let single = fixture.get_as(who, &format!("query/{path}")).await;
                assert_equal(&lines[&format!("{id} {n}")], &single, &format!("{id} {expr}"));
            }
        }
    }
}

#[tokio::test]
async fn parameters_of_a_query_are_those_of_the_single_request() {
    let fixture = DataFixture::with_shop().await;
    for (members, parameters) in [
        (json!({ "step": 0 }), "step=0"),
        (json!({ "step": "1ms" }), "step=1ms"),
        (json!({ "start": "yesterday" }), "start=yesterday"),
        (json!({ "start": "now-2y" }), "start=now-2y"),
        (json!({ "start": 1_799_999_999.5, "step": 0.1 }), "start=1799999999.5&step=0.1"),
        (
            json!({ "end": "2027-01-15T08:00:00Z", "start": "now-1h" }),
            "end=2027-01-15T08:00:00Z&start=now-1h",
        ),
        (json!({ "limit": 0 }), "limit=0"),
        (json!({ "max_series": 1 }), "limit=1"),
        (json!({ "limit": "two" }), "limit=two"),
        (json!({ "timeout": 0 }), "timeout=0"),
        (json!({ "nocache": true }), "nocache=true"),
        (json!({ "nocache": "maybe" }), "nocache=maybe"),
        (json!({ "time": 7 }), "time=7"),
        (json!({ "start": null, "step": "" }), "x=y"),
    ] {
        let mut query = range("A", "up");
        query.as_object_mut().expect("an object").extend(members.as_object().expect("an object").clone());
        let mut all = json!({ "start": NOW - 600, "end": NOW, "step": 60 });
        all["queries"] = json!([query]);
        let line = lines(&post(&fixture, &fixture.cabinet, &all).await).remove("A").expect("a line");
        let mut path = format!("query/expr-range?expr=up&{parameters}").replace("&x=y", "");
        for (name, value) in [("start", NOW - 600), ("end", NOW), ("step", 60)] {
            if !path.contains(&format!("&{name}=")) {
                path.push_str(&format!("&{name}={value}"));
            }
        }
        assert_equal(&line, &fixture.get(&path).await, &path);
    }
    // Without times in the batch, the defaults are those of a single request.
    let plain = json!({ "queries": [range("R", "up"), instant("I", "up")] });
    let both = lines(&post(&fixture, &fixture.cabinet, &plain).await);
    assert_equal(&both["R"], &fixture.get("query/expr-range?expr=up").await, "range");
    assert_equal(&both["I"], &fixture.get("query/expr-instant?expr=up").await, "instant");
    // A query's own time precedes the batch's, and the batch's time precedes its end.
    let mut own = instant("own", "up");
    own["time"] = json!(NOW - 60);
    let times = json!({ "time": NOW - 120, "end": NOW, "queries": [own, instant("batch", "up")] });
    let both = lines(&post(&fixture, &fixture.cabinet, &times).await);
    assert_eq!(
        (&both["own"]["query"]["time"], &both["batch"]["query"]["time"]),
        (&json!(NOW - 60), &json!(NOW - 120))
    );
}

#[tokio::test]
async fn explain_adds_the_plan_to_the_line_of_its_query() {
    let fixture = DataFixture::with_shop().await;
    let mut explained = range("B", "sum(up)");
    explained["explain"] = json!(true);
    let both = lines(&post(&fixture, &fixture.cabinet, &body(&[range("A", "sum(up)"), explained])).await);
    assert!(both["A"].get("explain").is_none());
    assert_eq!(both["B"]["explain"]["node"], "sum");
    assert_eq!(both["A"]["data"], both["B"]["data"]);
}

#[tokio::test]
async fn equal_queries_are_evaluated_once() {
    let fixture = DataFixture::with_shop().await;
    let mut queries = Vec::new();
    for n in 0..50 {
        queries.push(range(&format!("sum {n}"), &format!("sum{}(up)", " ".repeat(n))));
        queries.push(range(&format!("rate {n}"), "rate(http_requests_total[5m])"));
    }
    queries.push(instant("instant", "sum(up)"));
    let all = lines(&post(&fixture, &fixture.cabinet, &body(&queries)).await);
    assert_eq!(all.len(), 101);
    for n in 1..50 {
        assert_eq!(all[&format!("sum {n}")]["data"], all["sum 0"]["data"]);
        assert_eq!(all[&format!("sum {n}")]["stats"], all["sum 0"]["stats"]);
        assert_eq!(all[&format!("rate {n}")]["data"], all["rate 0"]["data"]);
    }
    assert_eq!(all["instant"]["data"]["resultType"], "vector", "an instant query is not a range query");
    let page = fixture.server.get("/metrics", &Who::Nobody).await.body;
    for line in [
        "promlet_query_cache_requests_total{result=\"miss\"} 2\n",
        "promlet_query_cache_requests_total{result=\"hit\"} 0\n",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}

fn request(who: &Who, body: &Value, accept: &str) -> Request<Body> {
    ask("POST", PATH, who)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT_ENCODING, accept)
        .body(Body::from(body.to_string()))
        .expect("a request")
}

async fn open(fixture: &DataFixture, body: &Value, accept: &str) -> Response<Body> {
    let request = request(&fixture.cabinet, body, accept);
    let response = fixture.server.router.clone().oneshot(request).await.expect("infallible");
    assert_eq!(response.status(), 200);
    response
}

async fn next_frame(response: &mut Response<Body>) -> Vec<u8> {
    let frame = response.body_mut().frame().await.expect("a frame").expect("no error");
    frame.into_data().expect("data").to_vec()
}

async fn running(fixture: &DataFixture) -> Vec<Value> {
    fixture.server.pass(Duration::from_millis(50));
    fixture.get("queries").await.value()["data"].as_array().expect("a list").clone()
}

/// A batch whose first query runs until it is cancelled.
fn endless() -> Value {
    let mut first = range("endless", ENDLESS);
    first["start"] = json!("now-3h");
    first["step"] = json!(1);
    body(&[first, range("fast", "up"), instant("bad", "sum(")])
}

#[tokio::test]
async fn a_line_is_sent_as_soon_as_its_query_is_ready_also_compressed() {
    let fixture = DataFixture::with_shop().await;
    for accept in ["identity", "gzip", "zstd"] {
        let mut response = open(&fixture, &endless(), accept).await;
        let coding = response.headers().get("content-encoding").map(|value| value.to_str().expect("text"));
        assert_eq!(coding.unwrap_or("identity"), accept);
        let mut text = Vec::new();
        let mut gzip = flate2::write::GzDecoder::new(Vec::new());
        let mut zstd = zstd::stream::write::Decoder::new(Vec::new()).expect("a decoder");
        while text.iter().filter(|byte| **byte == b'\n').count() < 2 {
            let frame = next_frame(&mut response).await;
            match accept {
                "gzip" => {
                    gzip.write_all(&frame).and_then(|()| gzip.flush()).expect("gzip");
                    text.clone_from(gzip.get_ref());
                }
                "zstd" => {
                    zstd.write_all(&frame).and_then(|()| zstd.flush()).expect("zstd");
                    text.clone_from(zstd.get_ref());
                }
                _ => text.extend_from_slice(&frame),
            }
        }
        let text = String::from_utf8(text).expect("UTF-8");
        let ids: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["id"].clone())
            .collect();
        assert_eq!(ids, ["fast", "bad"], "{text}");
        drop(response);
        while !running(&fixture).await.is_empty() {
            tokio::task::yield_now().await;
        }
    }
}

/// A long query takes one thread of the organisation. The slice of another one ends after 10 ms
/// with one query left, for which another slice starts.
#[tokio::test]
async fn the_last_query_of_a_batch_does_not_wait_for_a_long_one() {
    let fixture = DataFixture::with_shop().await;
    let mut body = endless();
    body["queries"][1] = range("slow", ENDLESS);
    let mut response = open(&fixture, &body, "identity").await;
    let mut text = Vec::new();
    while text.iter().filter(|byte| **byte == b'\n').count() < 2 {
        text.extend(next_frame(&mut response).await);
    }
    let text = String::from_utf8(text).expect("UTF-8");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["id"], &lines[1]["id"]), (&json!("slow"), &json!("bad")), "{text}");
    assert!(lines[0]["stats"]["elapsed_ms"].as_f64() > Some(10.0), "longer than a slice: {text}");
}

#[tokio::test]
async fn a_disconnected_client_cancels_all_queries_of_a_batch() {
    let fixture = DataFixture::with_shop().await;
    let queries: Vec<Value> = (0..1_000)
        .map(|n| {
            let mut query = range(&n.to_string(), &format!("{ENDLESS} + {n}"));
            (query["start"], query["step"]) = (json!("now-3h"), json!(1));
            query
        })
        .collect();
    for _ in 0..3 {
        let mut response = open(&fixture, &body(&queries), "identity").await;
        loop {
            let frame = response.body_mut().frame();
            assert!(tokio::time::timeout(Duration::from_millis(1), frame).await.is_err(), "no line is ready");
            let rows = running(&fixture).await;
            assert!(rows.len() <= 2, "a batch uses its organisation's share of the threads: {rows:?}");
            if !rows.is_empty() {
                break;
            }
        }
        // Another request of the organisation, and of others, finds a thread: see `neighbour`.
        drop(response);
        while !running(&fixture).await.is_empty() {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(fixture.get("query/expr-instant?expr=up").await.value()["stats"]["series"], 2);
}

#[tokio::test]
async fn a_cancelled_query_ends_with_an_error_and_the_batch_continues() {
    let fixture = DataFixture::with_shop().await;
    let mut response = open(&fixture, &endless(), "identity").await;
    let mut text = Vec::new();
    while text.iter().filter(|byte| **byte == b'\n').count() < 2 {
        text.extend(next_frame(&mut response).await);
    }
    let rows = running(&fixture).await;
    // A query whose line has been sent may still be listed.
    let row = rows.iter().find(|row| row["query"] == ENDLESS).expect("it runs");
    let path = format!("/api/v1/orgs/acme/queries/{}", row["id"].as_str().expect("an id"));
    assert_eq!(fixture.server.delete(&path, &fixture.cabinet).await.status, 204);
    text.extend_from_slice(&response.into_body().collect().await.expect("a body").to_bytes());
    let text = String::from_utf8(text).expect("UTF-8");
    let last: Vec<Value> =
        text.lines().skip(2).map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&last[0]["id"], &last[0]["code"]), (&json!("endless"), &json!("query_cancelled")));
    assert_eq!((&last[1]["done"], &last[1]["failed"]), (&json!(true), &json!(2)));
}

#[tokio::test]
async fn the_timeout_of_a_batch_ends_all_its_queries() {
    let fixture = DataFixture::with_shop().await;
    let mut all = endless();
    // Time enough for the fast query on a busy machine.
    all["timeout"] = json!("3s");
    let queries = all["queries"].as_array_mut().expect("a list");
    for n in 0..20 {
        let mut query = range(&n.to_string(), &format!("{ENDLESS} + {n}"));
        (query["start"], query["step"]) = (json!("now-3h"), json!(1));
        queries.push(query);
    }
    let lines = lines(&post(&fixture, &fixture.cabinet, &all).await);
    assert_eq!(lines["fast"]["status"], "success", "{}", lines["fast"]);
    for id in (0..20).map(|n| n.to_string()).chain(["endless".to_owned()]) {
        assert_eq!(lines[&id]["code"], "query_timeout", "{id}");
    }
    // A query's own timeout ends that query.
    let mut all = endless();
    all["queries"][0]["timeout"] = json!("10ms");
    let reply = post(&fixture, &fixture.cabinet, &all).await;
    assert_eq!(self::lines(&reply)["endless"]["code"], "query_timeout");
    all["timeout"] = json!("-1s");
    post(&fixture, &fixture.cabinet, &all).await.is(400, "invalid_parameter");
}

/// The lane refuses work that cannot start at once. A batch and a dashboard wait all the same,
/// until their timeout.
#[tokio::test]
async fn a_batch_beside_an_endless_one_waits_for_its_turn_and_is_never_busy() {
    let mut options = TestServerOptions::default();
    options.lanes.query = LaneOptions { threads: 1, queue: 32, wait: Duration::ZERO, threads_per_org: 1 };
    let fixture = DataFixture::of(TestServer::build(options)).await;
    let mut slow = endless();
    slow["queries"] = json!([slow["queries"][0]]);
    let mut first = open(&fixture, &slow, "identity").await;
    // Nothing is ready, and the only thread runs the endless query.
    while tokio::time::timeout(Duration::from_millis(5), first.body_mut().frame()).await.is_ok()
        || running(&fixture).await.is_empty()
    {
        tokio::task::yield_now().await;
    }
    let mut short = body(&[range("a", "vector(1)"), instant("b", "vector(2)")]);
    short["timeout"] = json!("100ms");
    let late = lines(&post(&fixture, &fixture.cabinet, &short).await);
    assert_eq!((&late["a"]["code"], &late["b"]["code"]), (&json!("query_timeout"), &json!("query_timeout")));
    // With more time it waits until the other batch has ended.
    short["timeout"] = json!("30s");
    let mut second = open(&fixture, &short, "identity").await;
    let pending = tokio::time::timeout(Duration::from_millis(20), second.body_mut().frame()).await;
    assert!(pending.is_err(), "no thread is free");
    drop(first);
    let text = second.into_body().collect().await.expect("a body").to_bytes();
    let text = String::from_utf8(text.to_vec()).expect("UTF-8");
    assert!(text.contains(r#""done":true,"queries":2,"failed":0"#), "{text}");
}

/// The lane is needed before and after the upstream answers.
#[tokio::test]
async fn a_batch_of_an_upstream_waits_for_a_thread_as_well() {
    let mut options = TestServerOptions::default();
    options.lanes.query = LaneOptions { threads: 1, queue: 32, wait: Duration::ZERO, threads_per_org: 1 };
    options.options.egress = Egress::new(EgressRules::parse(["127.0.0.0/8"]).expect("valid"), &[]);
    let fixture = DataFixture::of(TestServer::build(options)).await;
    let mut slow = endless();
    slow["queries"] = json!([slow["queries"][0]]);
    let mut first = open(&fixture, &slow, "identity").await;
    while tokio::time::timeout(Duration::from_millis(5), first.body_mut().frame()).await.is_ok()
        || running(&fixture).await.is_empty()
    {
        tokio::task::yield_now().await;
    }
    let one =
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}]}}"#;
    let fake = FakeUpstream::answering("200 OK", "application/json", one);
    let engine = json!({ "engine": "upstream", "url": fake.url() });
    let path = "/api/v1/orgs/acme/engine?probe=false";
    assert_eq!(fixture.server.json("PUT", path, &fixture.cabinet, engine).await.status, 200);
    let mut short = body(&[instant("a", "up"), instant("b", "down")]);
    short["timeout"] = json!("30s");
    let mut second = open(&fixture, &short, "identity").await;
    let pending = tokio::time::timeout(Duration::from_millis(20), second.body_mut().frame()).await;
    assert!(pending.is_err(), "no thread is free");
    drop(first);
    let text = second.into_body().collect().await.expect("a body").to_bytes();
    let text = String::from_utf8(text.to_vec()).expect("UTF-8");
    assert!(text.contains(r#""done":true,"queries":2,"failed":0"#), "{text}");
}

#[tokio::test]
async fn a_batch_counts_as_one_request() {
    let mut options = TestServerOptions::default();
    options.options.limits.cabinet_rps = 3;
    let fixture = DataFixture::with_shop_of(DataFixture::of(TestServer::build(options)).await).await;
    let queries: Vec<Value> = (0..100).map(|n| range(&n.to_string(), &format!("up + {n}"))).collect();
    let left = |reply: &Reply| reply.header("ratelimit").to_owned();
    fixture.server.pass(Duration::from_secs(2));
    let first = post(&fixture, &fixture.cabinet, &body(&queries)).await;
    assert_eq!(lines(&first).len(), 100);
    assert!(left(&first).contains("r=2"), "{}", left(&first));
    assert!(left(&post(&fixture, &fixture.cabinet, &body(&queries)).await).contains("r=1"));
    assert_eq!(post(&fixture, &fixture.cabinet, &body(&queries)).await.status, 200);
    post(&fixture, &fixture.cabinet, &body(&queries)).await.is(429, "rate_limited");
}

#[tokio::test]
async fn a_key_with_the_scope_read_may_send_batches_and_no_other_key() {
    let fixture = DataFixture::with_shop().await;
    let all = body(&[range("A", "up")]);
    let (_, read) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["read"] })).await;
    let read = lines(&post(&fixture, &Who::Bearer(read), &all).await);
    assert_eq!(read["A"]["stats"]["series"], 2);
    post(&fixture, &fixture.agent, &all).await.is(403, "forbidden");
    post(&fixture, &Who::Nobody, &all).await.is(401, "unauthenticated");
    let other = "/api/v1/orgs/other/query/batch";
    fixture.server.post(other, &fixture.cabinet, all).await.is(404, "org_not_found");
}

#[tokio::test]
async fn each_query_of_a_batch_is_restricted_as_a_single_request_with_the_token() {
    let fixture = DataFixture::with_shop().await;
    let queries = [
        range("sum", "sum(up)"),
        range("spaces", "sum (up)"),
        range("other", "http_requests_total"),
        instant("instant", "sum(up)"),
        instant("window", "sum_over_time(up[1h])"),
        json!({ "id": "long", "expr": "sum(up)", "type": "range", "start": NOW - 7_200 }),
        json!({ "id": "fine", "expr": "sum(up)", "type": "range", "step": 1 }),
        json!({ "id": "plan", "expr": "sum(up)", "type": "range", "explain": true }),
        json!({ "id": "old", "expr": "sum(up)", "type": "instant", "time": NOW - 800 }),
    ];
    for ms in [
        json!({ "exprs": ["sum(up)"] }),
        json!({ "match": ["job=\"api\""] }),
        json!({ "metrics": ["http_*"] }),
        json!({ "max_range_s": 1_800, "min_step_s": 15 }),
        json!({ "max_lookback_s": 300 }),
        json!({ "endpoints": ["expr"], "exprs": ["sum(up)"], "match": ["job=\"web\""] }),
    ] {
        let token = fixture.embed(ms.clone()).await;
        let lines = lines(&post(&fixture, &token, &body(&queries)).await);
        for query in &queries {
            let text = |name: &str, default: Value| {
                let value = if query[name].is_null() { default } else { query[name].clone() };
                value.to_string()
            };
            let expr = escaped(query["expr"].as_str().expect("a text"));
            let path = match query["type"].as_str() {
                Some("range") => format!(
                    "query/expr-range?expr={expr}&start={}&end={NOW}&step={}&explain={}",
                    text("start", json!(NOW - 600)),
                    text("step", json!(60)),
                    text("explain", json!(false)),
                ),
                _ => format!("query/expr-instant?expr={expr}&time={}", text("time", json!(NOW))),
            };
            let single = fixture.get_as(&token, &path).await;
            let id = query["id"].as_str().expect("an id");
            assert_equal(&lines[id], &single, &format!("{ms} {id}"));
            assert_eq!(
                lines[id]["stats"].get("samples").is_some(),
                single.value()["stats"].get("samples").is_some(),
                "{ms} {id}"
            );
        }
    }
    let structured = fixture.embed(json!({ "endpoints": ["range", "instant", "metrics"] })).await;
    post(&fixture, &structured, &body(&queries)).await.is(403, "embed_restricted");
}

#[tokio::test]
async fn a_batch_beyond_its_limits_is_refused_before_its_first_line() {
    let fixture = DataFixture::with_shop().await;
    let refused = async |all: Value, code: &str| {
        let reply = post(&fixture, &fixture.cabinet, &all).await;
        fixture.server.pass(Duration::from_millis(50));
        reply.is(422, code);
        reply.value()
    };
    let ones = |count: usize| (0..count).map(|n| instant(&n.to_string(), "1")).collect::<Vec<_>>();
    assert_eq!(lines(&post(&fixture, &fixture.cabinet, &body(&ones(1_000))).await).len(), 1_000);
    let value = refused(body(&ones(1_001)), "validation_failed").await;
    assert_eq!((&value["limit"], &value["errors"][0]["field"]), (&json!(1_000), &json!("queries")));
    assert!(
        value["detail"].as_str().expect("a text").contains("1001 queries, more than the 1000"),
        "{value}"
    );
    // Queries beyond the limit are counted, and not parsed.
    let many = json!({ "queries": vec![json!({}); 100_000] });
    refused(many, "validation_failed").await;
    let value = refused(body(&[range("A", "up"), range("A", "1")]), "validation_failed").await;
    assert_eq!(
        value["errors"][0],
        json!({ "field": "queries[1].id", "code": "duplicate", "message": "two queries have the id \"A\"" })
    );
    for id in [String::new(), "x".repeat(65)] {
        let value = refused(body(&[range(&id, "up")]), "validation_failed").await;
        assert_eq!(
            (&value["errors"][0]["field"], &value["errors"][0]["code"]),
            (&json!("queries[0].id"), &json!("length"))
        );
    }
    let wide = "\u{e9}".repeat(64);
    assert!(lines(&post(&fixture, &fixture.cabinet, &body(&[range(&wide, "up")])).await).contains_key(&wide));
    for wrong in [
        json!({}),
        json!({ "queries": {} }),
        json!({ "queries": [1] }),
        json!({ "queries": [{ "id": "A", "expr": "up" }] }),
        json!({ "queries": [{ "id": "A", "expr": "up", "type": "series" }] }),
        json!({ "queries": [{ "id": "A", "expr": 1, "type": "range" }] }),
        json!({ "queries": [{ "id": "A", "expr": "up", "type": "range", "querry": "up" }] }),
        json!({ "queries": [{ "id": "A", "expr": "up", "type": "range", "step": [] }] }),
        json!({ "querys": [] }),
    ] {
        refused(wrong, "validation_failed").await;
    }
    assert!(lines(&post(&fixture, &fixture.cabinet, &body(&[])).await).is_empty());
    // 1 MiB is allowed, and a byte more is not.
    let padded = |bytes: usize| {
        let text = body(&[range("A", "up")]).to_string();
        format!("{text}{}", " ".repeat(bytes - text.len()))
    };
    let send = async |text: String, length: bool| {
        let mut request =
            ask("POST", PATH, &fixture.cabinet).header(header::CONTENT_TYPE, "application/json");
        if length {
            request = request.header(header::CONTENT_LENGTH, text.len());
        }
        fixture.server.send(request.body(Body::from(text)).expect("a request")).await
    };
    assert_eq!(send(padded(1 << 20), true).await.status, 200);
    for length in [false, true] {
        send(padded((1 << 20) + 1), length).await.is(413, "body_too_large");
    }
}

/// Writes `series` series of a metric whose results have eleven thousand points each.
async fn write_wide(fixture: &DataFixture, series: usize) {
    let ones: Vec<(i64, f64)> = vec![((NOW - 11_000) * 1_000, 1.5)];
    let names: Vec<String> = (0..series).map(|n| n.to_string()).collect();
    let labels: Vec<[(&str, &str); 2]> =
        names.iter().map(|n| [("__name__", "wide"), ("n", n.as_str())]).collect();
    let series: Vec<Series<'_>> = labels.iter().map(|labels| (labels.as_slice(), ones.as_slice())).collect();
    fixture.write(&series).await;
}

/// A batch over eleven thousand seconds.
fn wide(queries: &[Value]) -> Value {
    let mut all = body(queries);
    (all["start"], all["step"]) = (json!(NOW - 10_999), json!(1));
    all
}

/// The bytes that all queries hold.
async fn memory(fixture: &DataFixture) -> u64 {
    let page = fixture.server.get("/metrics", &Who::Nobody).await.body;
    let line = page.lines().find(|line| line.starts_with("promlet_query_memory_bytes ")).expect("a gauge");
    line.split(' ').nth(1).and_then(|text| text.parse::<u64>().ok()).expect("a number")
}

/// Reads the rest of a batch, and checks that each query has a whole line with `series` series.
async fn read_rest(mut text: Vec<u8>, response: Response<Body>, queries: u64, series: usize) {
    text.extend_from_slice(&response.into_body().collect().await.expect("a body").to_bytes());
    let text = String::from_utf8(text).expect("UTF-8");
    let mut ids: Vec<u64> = Vec::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("a line is whole");
        if let Some(id) = line["id"].as_str() {
            assert_eq!(line["data"]["result"].as_array().expect("a list").len(), series);
            ids.push(id.parse().expect("a number"));
        }
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..queries).collect::<Vec<_>>());
    assert!(text.contains(&format!("{{\"done\":true,\"queries\":{queries},\"failed\":0,")));
}

#[tokio::test]
async fn a_slow_reader_holds_a_bounded_part_of_the_results() {
    let fixture = DataFixture::with_shop().await;
    // Each result has about 2 MB, so it is encoded while the client reads it.
    write_wide(&fixture, 10).await;
    let queries: Vec<Value> =
        (0..40).map(|n| range(&n.to_string(), &format!("sum_over_time(wide[4h]) + {n}"))).collect();
    let mut response = open(&fixture, &wide(&queries), "identity").await;
    let text = next_frame(&mut response).await;
    // The running slices end by themselves; no further one starts without a poll.
    while !running(&fixture).await.is_empty() {
        tokio::task::yield_now().await;
    }
    let held = memory(&fixture).await;
    assert!(held > 1 << 20, "{held}");
    assert!(held < 40 << 20, "all results have 70 MB of values: {held}");
    read_rest(text, response, 40, 10).await;
    while memory(&fixture).await > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn equal_queries_share_their_result_in_memory() {
    let fixture = DataFixture::with_shop().await;
    write_wide(&fixture, 4).await;
    let queries: Vec<Value> = (0..60).map(|n| range(&n.to_string(), "sum_over_time(wide[4h])")).collect();
    let mut response = open(&fixture, &wide(&queries), "identity").await;
    let text = next_frame(&mut response).await;
    while !running(&fixture).await.is_empty() {
        tokio::task::yield_now().await;
    }
    let held = memory(&fixture).await;
    assert!(held < 4 << 20, "60 texts have 50 MB: {held}");
    read_rest(text, response, 60, 4).await;
}
