//! Every documented response of the routes for samples and queries (docs/specification.md C5 to
//! C7): for each status and code in the OpenAPI document, all routes that list it are called.
//! `tests/data_api` tests the content of the responses.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::{Request, header};
use promlet::api::ApiOptions;
use promlet::api::error::Code;
use promlet::api::routes::{Auth, RouteDoc};
use promlet::identity::Endpoint;
use promlet::model::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::fake_upstream::FakeUpstream;
use crate::test_server::{TestServer, TestServerOptions, Who, ask, signed};
use crate::walk::{document, rows, says};
use crate::wire::{DataFixture, NOW, encode, escaped, nested, snappy, varint};

const FORM: &str = "application/x-www-form-urlencoded";
const DELETE: &str = "/api/v1/orgs/acme/prometheus/api/v1/admin/tsdb/delete_series";

/// A server with two series and with limits that no test reaches.
async fn stage(plan: TestServerOptions) -> DataFixture {
    let mut plan = plan;
    plan.options.limits.cabinet_rps = 1_000_000;
    plan.options.limits.anonymous_rps = 1_000_000;
    let stage = DataFixture::of(TestServer::build(plan)).await;
    let up = |job| [("__name__", "up"), ("job", job)];
    let samples: Vec<(i64, f64)> = (0..300).map(|ago| ((NOW - 299 + ago) * 1_000, 1.0)).collect();
    stage.write(&[(&up("api"), &samples), (&up("web"), &samples)]).await;
    let variable = |name: &str, query: &str| json!({ "name": name, "type": "query", "query": query });
    let document = json!({
        "uid": VIEWED,
        "title": "Viewed",
        "panels": [{ "id": 1, "type": "stat", "targets": [{ "refId": "A", "expr": "up" }] }],
        "templating": { "list": [
            variable("job", "label_values(up, job)"),
            variable("unclosed", "query_result(up{)"),
            variable("failing", &format!("query_result({FAILING})")),
        ] },
    });
    let path = "/api/v1/orgs/acme/dashboards";
    let made = stage.server.post(path, &stage.cabinet, json!({ "dashboard": document })).await;
    assert_eq!(made.status, 201, "{}", made.body);
    stage
}

/// The dashboard in all requests.
const VIEWED: &str = "viewed";

/// An expression that fails when it is evaluated.
const FAILING: &str = "label_replace(up, \"a\", \"b\", \"c\", \"(\")";

fn read(change: impl FnOnce(&mut ApiOptions)) -> TestServerOptions {
    let mut plan = TestServerOptions::default();
    change(&mut plan.options);
    plan
}

/// The rows that take samples and questions.
fn is_of_data(row: &RouteDoc) -> bool {
    let of_data = |auth| {
        matches!(
            auth,
            Auth::QueryCaller(_) | Auth::PictureCaller(_) | Auth::PrometheusCaller(_) | Auth::IngestCaller
        )
    };
    // The routes of rules and alerts have tests of their own.
    (of_data(row.auth) && !is_of_alerting(row)) || row.path.ends_with("/delete_series")
}

/// The rows that take rules and alerts, also from API keys.
fn is_of_alerting(row: &RouteDoc) -> bool {
    ["/config/v1/rules", "/alertmanager/", "/rules/backfill"].iter().any(|part| row.path.contains(part))
}

/// Media type, coding, parameters and body of one valid sample.
fn sample(row: &RouteDoc) -> (&'static str, &'static str, &'static str, Vec<u8>) {
    sample_at(row, NOW)
}

/// Like [`sample`], at a time in seconds.
fn sample_at(row: &RouteDoc, at: i64) -> (&'static str, &'static str, &'static str, Vec<u8>) {
    let text = |media, query, body: &str| (media, "identity", query, body.as_bytes().to_vec());
    if row.path.contains("/influx/") {
        return text("text/plain", "precision=s", &format!("up value=1 {at}"));
    }
    if row.path.contains("/push/") {
        return text("text/plain", "", "up 1\n");
    }
    let is_mounted = row.path.contains("/prometheus/");
    match row.path.rsplit('/').next() {
        Some("write") => {
            let series = [("__name__", "up"), ("job", "sent")];
            ("application/x-protobuf", "snappy", "", snappy(&encode(&[(&series, &[(at * 1_000, 1.0)])])))
        }
        Some("metrics") => {
            let point = json!({ "timeUnixNano": format!("{at}000000000"), "asDouble": 1.0 });
            let metric = json!({ "name": "up", "gauge": { "dataPoints": [point] } });
            let export = json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [metric] }] }] });
            text("application/json", "", &export.to_string())
        }
        Some("graphite") => text("text/plain", "", &format!("up 1 {at}\n")),
        Some("csv") => text("text/csv", "format=1:metric:up,2:time:unix_s", &format!("1,{at}\n")),
        Some("jsonl" | "import") if row.path.ends_with("jsonl") || is_mounted => {
            let line = json!({ "metric": { "__name__": "up" }, "values": [1], "timestamps": [at * 1_000] });
            text("application/x-ndjson", "", &line.to_string())
        }
        _ => text("text/plain", "", &format!("up 1 {}\n", at * 1_000)),
    }
}

/// A request with these parameters in the URL, or in the form of a `POST`; ingest routes get a
/// valid sample as the body.
fn request(row: &RouteDoc, query: &str, who: &Who) -> Request<Body> {
    request_of(row, ("up", "job"), query, who)
}

/// Like [`request`], for another metric or label in the path.
fn request_of(row: &RouteDoc, (metric, label): (&str, &str), query: &str, who: &Who) -> Request<Body> {
    let path = row.path.replace("{slug}", "acme").replace("{name}", metric).replace("{label}", label);
    let path = path.replace("{uid}", VIEWED).replace("{grouping}", "job%2Fsent");
    let parts: Vec<&str> =
        path.split('/').map(|part| if part.starts_with('{') { "none" } else { part }).collect();
    let path = parts.join("/");
    let post = |body: Value| {
        ask(row.method, &path, who)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string()))
            .expect("a request")
    };
    let panel = json!({ "id": "A", "panel": 1, "ref": "A", "type": "range" });
    match path.rsplit_once(&format!("/{VIEWED}/")).map(|(_, last)| last) {
        Some("data") => {
            let timeout = if query == MALFORMED { "soon" } else { "1s" };
            return post(json!({ "timeout": timeout, "queries": [panel] }));
        }
        Some("options") => {
            let variable = match query {
                _ if query.contains(&escaped("up{")) => "unclosed",
                _ if query.contains(&escaped(FAILING)) => "failing",
                _ => "job",
            };
            let start = if query == MALFORMED { json!("soon") } else { json!(NOW - 299) };
            return post(json!({ "variable": variable, "start": start }));
        }
        Some("live") => {
            let since = if query == MALFORMED { json!("soon") } else { Value::Null };
            let queries = json!([{ "id": "A", "panel": 1, "ref": "A" }]);
            return post(json!({ "queries": queries, "since": since, "count": 1 }));
        }
        _ => {}
    }
    let asked = |target: &str| ask(row.method, target, who);
    let request = match (row.auth, row.method) {
        (Auth::IngestCaller, _) => {
            let (media, coding, own, body) = sample(row);
            asked(&format!("{path}?{own}&{query}"))
                .header(header::CONTENT_TYPE, media)
                .header(header::CONTENT_ENCODING, coding)
                .body(Body::from(body))
        }
        (_, "POST") if path.ends_with("/query/batch") => {
            // Errors of a single query are in its line, so only the batch itself can be wrong.
            let timeout = if query == MALFORMED { "soon" } else { "1s" };
            let up = json!({ "id": "A", "expr": "up", "type": "range" });
            let batch = json!({ "timeout": timeout, "queries": [up] });
            asked(&path).header(header::CONTENT_TYPE, "application/json").body(Body::from(batch.to_string()))
        }
        (_, "POST") if path.ends_with("/query/live") => {
            // As for a batch. Without a count the stream never ends.
            let count = if query == MALFORMED { "soon" } else { "1" };
            let set = json!({ "queries": [{ "id": "A", "expr": "up" }], "count": count });
            asked(&path).header(header::CONTENT_TYPE, "application/json").body(Body::from(set.to_string()))
        }
        (_, "POST") if path.ends_with("/api/v1/read") => {
            let pattern = if query.contains(&escaped("up{")) { "(" } else { "up" };
            asked(&path).body(Body::from(remote_read(pattern)))
        }
        (_, "POST") => asked(&path).header(header::CONTENT_TYPE, FORM).body(Body::from(query.to_owned())),
        _ => asked(&format!("{path}?{query}")).body(Body::empty()),
    };
    request.expect("a request")
}

/// A request of remote read for the metrics that match a pattern, which may be invalid.
fn remote_read(pattern: &str) -> Vec<u8> {
    // The matcher: a regular expression for the name.
    let mut matcher = vec![0x08, 2];
    nested(2, b"__name__", &mut matcher);
    nested(3, pattern.as_bytes(), &mut matcher);
    let (mut query, mut body) = (Vec::new(), Vec::new());
    query.push(2 << 3);
    varint((NOW * 1_000).cast_unsigned(), &mut query);
    nested(3, &matcher, &mut query);
    nested(1, &query, &mut body);
    snappy(&body)
}

/// The parameters of a query for `text`, which is an expression and a selector.
fn about(row: &RouteDoc, text: &str) -> String {
    let text = escaped(text);
    match row.auth {
        // Without a count it never ends.
        _ if row.path.ends_with("/query/live") => format!("expr={text}&count=1"),
        Auth::QueryCaller(Endpoint::Range | Endpoint::Instant | Endpoint::Expr) | Auth::PictureCaller(_) => {
            format!("expr={text}")
        }
        Auth::QueryCaller(_) => format!("match={text}"),
        Auth::IngestCaller => String::new(),
        _ => format!("query={text}&match[]={text}&start={}&end={NOW}&step=60", NOW - 299),
    }
}

/// Sends the request of `make` to every route of data that documents `code`. Fails if a route
/// answers differently.
async fn walk(
    stage: &DataFixture,
    document: &Value,
    code: Code,
    make: impl Fn(&RouteDoc) -> Option<Request<Body>>,
) {
    walk_of(stage, document, code, (is_of_data, make)).await;
}

/// Like [`walk`], for the rows that a filter selects.
async fn walk_of(
    stage: &DataFixture,
    document: &Value,
    code: Code,
    (selects, make): (impl Fn(&RouteDoc) -> bool, impl Fn(&RouteDoc) -> Option<Request<Body>>),
) {
    let (mut asked, mut wrong) = (0, Vec::new());
    for row in rows(&stage.server).into_iter().filter(|row| selects(row) && says(document, row, code)) {
        let Some(request) = make(&row) else { continue };
        asked += 1;
        let reply = stage.server.send(request).await;
        if !reply.refuses(code) {
            wrong.push(format!("{} {}: {} {}", row.method, row.path, reply.status, reply.body));
        }
    }
    assert!(asked > 0, "no row promises {code:?}");
    assert!(wrong.is_empty(), "{code:?}:\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn every_route_of_samples_and_questions_answers() {
    let stage = stage(TestServerOptions::default()).await;
    // The native format of VictoriaMetrics is always refused, and the steps of relabelling are
    // those of a configured job.
    let is_answered = |row: &&RouteDoc| {
        is_of_data(row) && !row.path.ends_with("/native") && !row.path.ends_with("/relabel_steps")
    };
    for row in rows(&stage.server).iter().filter(is_answered) {
        let who = if row.auth == Auth::IngestCaller { &stage.agent } else { &stage.cabinet };
        let reply = stage.server.send(request(row, &about(row, "up"), who)).await;
        assert!(reply.status.is_success(), "{} {}: {} {}", row.method, row.path, reply.status, reply.body);
    }
}

/// Pushes the group of all requests, which a deletion of it then changes.
async fn push_group(stage: &DataFixture) {
    let row = rows(&stage.server).into_iter().find(|row| row.path.ends_with("/push/metrics/{grouping}"));
    let pushed = stage.server.send(request(&row.expect("a row"), "", &stage.agent)).await;
    assert_eq!(pushed.status, 200, "{}", pushed.body);
}

/// Parameters that are given twice.
const TWICE: &str = "ttl=1h&ttl=1h&match=up&match[]=up&timestamp=1&timestamp=1&start=1&start=1&limit=1&limit=1&scrapePool=a&scrapePool=a&query=1&query=1&expr=1&expr=1&type=alert&type=alert";

/// A parameter that is not UTF-8.
const MALFORMED: &str = "x=%ff";

#[tokio::test]
async fn every_route_refuses_queries_with_the_documented_errors() {
    let stage = stage(TestServerOptions::default()).await;
    let document = document(&stage.server).await;
    let who = |row: &RouteDoc| if row.auth == Auth::IngestCaller { &stage.agent } else { &stage.cabinet };
    let walk = async |code, make: &dyn Fn(&RouteDoc) -> Request<Body>| {
        walk(&stage, &document, code, |row| Some(make(row))).await;
    };
    walk(Code::DuplicateParameter, &|row| request(row, TWICE, who(row))).await;
    walk(Code::InvalidParameter, &|row| request(row, MALFORMED, who(row))).await;
    walk(Code::BadExpr, &|row| request(row, &about(row, "up{"), who(row))).await;
    walk(Code::QueryFailed, &|row| request(row, &about(row, FAILING), who(row))).await;
    walk(Code::MetricNotFound, &|row| request_of(row, ("none", "job"), "", who(row))).await;
    walk(Code::LabelNotFound, &|row| request_of(row, ("up", "none"), "", who(row))).await;
    let narrow = stage.embed(json!({ "metrics": ["down"] })).await;
    walk(Code::MetricNotAllowed, &|row| request(row, "metric=up", &narrow)).await;
}

/// docs/specification.md D7: a token is checked before anything else, also on routes that accept no
/// token.
#[tokio::test]
async fn every_route_refuses_early_tokens_and_foreign_origins() {
    let stage = stage(TestServerOptions::default()).await;
    let document = document(&stage.server).await;
    let page = "https://a.example";
    let fields = json!({ "scopes": ["embed"], "embed": { "origins": [page], "rate_limit_rps": 10_000 } });
    let (id, secret) = stage.server.key(&stage.cabinet, fields).await;
    let claims = json!({ "aud": "ms-embed", "org": "acme", "iat": NOW, "nbf": NOW + 90, "exp": NOW + 120 });
    let early = Who::Bearer(signed(&id, &secret, &claims));
    let about_up = |row: &RouteDoc, who: &Who| Some(request(row, &about(row, "up"), who));
    let selects = |row: &RouteDoc| is_of_data(row) || is_of_alerting(row);
    let with_early = |row: &RouteDoc| about_up(row, &early);
    walk_of(&stage, &document, Code::TokenNotYetValid, (selects, with_early)).await;
    let token = stage.server.token(&stage.cabinet, &id, json!({})).await;
    let elsewhere = |row: &RouteDoc| {
        let mut request = about_up(row, &token)?;
        request.headers_mut().insert(header::ORIGIN, header::HeaderValue::from_static("https://b.example"));
        Some(request)
    };
    walk_of(&stage, &document, Code::OriginNotAllowed, (selects, elsewhere)).await;
}

#[tokio::test]
async fn every_query_route_reports_expensive_and_slow_queries() {
    let dear = stage(read(|options| {
        options.read.promql.limits.series_max = 1;
        options.read.body_bytes_max = 1;
    }))
    .await;
    let document = document(&dear.server).await;
    // A deletion has no limit of series and no result, and raw samples are streamed; their cost is
    // memory.
    let deletes =
        |row: &RouteDoc| ["/delete_series", "/export", "/read"].iter().any(|end| row.path.ends_with(end));
    // A list of pushed groups has a limit of its own.
    let is_query = |row: &RouteDoc| !deletes(row) && !row.path.ends_with("/push/api/v1/metrics");
    let up = |row: &RouteDoc| is_query(row).then(|| request(row, &about(row, "up"), &dear.cabinet));
    walk(&dear, &document, Code::QueryTooExpensive, up).await;
    let scarce = stage(read(|options| options.read.promql.limits.memory_bytes_max = 1)).await;
    let up = |row: &RouteDoc| deletes(row).then(|| request(row, &about(row, "up"), &scarce.cabinet));
    walk(&scarce, &document, Code::QueryTooExpensive, up).await;
    let late = stage(read(|options| options.read.timeout = std::time::Duration::ZERO)).await;
    let up = |row: &RouteDoc| Some(request(row, &about(row, "up"), &late.cabinet));
    walk(&late, &document, Code::QueryTimeout, up).await;
    // A policy whose expressions contain patterns can time out as well, when they are compiled.
    let (id, _) = late.server.key(&late.cabinet, json!({ "scopes": ["embed"] })).await;
    let policy = json!({ "exprs": ["up{job=~\"a.*b?\"}"] });
    let keys = "/api/v1/orgs/acme/api-keys".to_owned();
    let embed = json!({ "policy": &policy });
    for (method, path, body) in [
        ("POST", "/api/v1/orgs/acme/embed/tokens".to_owned(), json!({ "api_key_id": &id, "ms": &policy })),
        ("PATCH", format!("{keys}/{id}"), json!({ "embed": &embed })),
        ("POST", keys, json!({ "name": "late", "scopes": ["embed"], "embed": &embed })),
    ] {
        let reply = late.server.json(method, &path, &late.cabinet, body).await;
        assert!(reply.refuses(Code::QueryTimeout), "{method} {path}: {} {}", reply.status, reply.body);
    }
}

/// Lets another server answer the reads of a stage.
async fn set_engine(stage: &DataFixture, url: &str) {
    let path = "/api/v1/orgs/acme/engine?probe=false";
    let engine = json!({ "engine": "upstream", "url": url });
    let reply = stage.server.json("PUT", path, &stage.cabinet, engine).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

#[tokio::test]
async fn every_read_of_an_upstream_that_fails_is_refused_with_the_documented_errors() {
    let reported = r#"{"status":"error","errorType":"bad_data","error":"no"}"#;
    for (status, body, code) in [
        ("400 Bad Request", reported, Code::UpstreamUnsupported),
        ("409 Conflict", "{}", Code::UpstreamError),
        ("429 Too Many Requests", "{}", Code::UpstreamUnavailable),
    ] {
        let stage = stage(read(|options| options.egress = crate::engine::loopback())).await;
        let document = document(&stage.server).await;
        let fake = FakeUpstream::answering(status, "application/json", body);
        set_engine(&stage, &fake.url()).await;
        let up = |row: &RouteDoc| Some(request(row, &about(row, "up"), &stage.cabinet));
        walk(&stage, &document, code, up).await;
    }
}

#[tokio::test]
async fn every_ingest_route_refuses_samples_that_are_elsewhere() {
    let stage = stage(read(|options| options.egress = crate::engine::loopback())).await;
    let document = document(&stage.server).await;
    set_engine(&stage, "http://127.0.0.1:1").await;
    let sent = |row: &RouteDoc| {
        let who = if row.path.ends_with("delete_series") { &stage.cabinet } else { &stage.agent };
        Some(request(row, &about(row, "up"), who))
    };
    walk(&stage, &document, Code::EngineUpstream, sent).await;
    let reply = stage.server.post("/api/v1/orgs/acme/demo-data", &stage.cabinet, json!({})).await;
    assert!(reply.refuses(Code::EngineUpstream), "{}", reply.body);
}

/// Sorts a day of seconds for each of ten thousand seconds.
const ENDLESS: &str =
    "sum_over_time(quantile_over_time(0.5, vector(time() + scalar(count(up)))[1d:1s])[3h:1s])";

#[tokio::test]
async fn every_listed_query_can_be_cancelled() {
    let stage = stage(TestServerOptions::default()).await;
    let document = document(&stage.server).await;
    let listed = |row: &RouteDoc| is_of_data(row) && says(&document, row, Code::QueryCancelled);
    for row in rows(&stage.server).into_iter().filter(listed) {
        let over = Cell::new(false);
        let asked = async {
            let reply = stage.server.send(request(&row, &about(&row, ENDLESS), &stage.cabinet)).await;
            over.set(true);
            reply
        };
        let ended = async {
            loop {
                assert!(!over.get(), "{} {} ended by itself", row.method, row.path);
                let list = stage.get("queries").await.value();
                let Some(id) = list["data"][0]["id"].as_str() else {
                    tokio::task::yield_now().await;
                    continue;
                };
                let path = format!("/api/v1/orgs/acme/queries/{id}");
                return stage.server.delete(&path, &stage.cabinet).await;
            }
        };
        let (asked, ended) = tokio::join!(asked, ended);
        assert_eq!(ended.status, 204, "{} {}: {}", row.method, row.path, ended.body);
        assert!(asked.refuses(Code::QueryCancelled), "{} {}: {}", row.method, row.path, asked.body);
    }
}

#[tokio::test]
async fn every_ingest_route_refuses_samples_with_the_documented_errors() {
    let stage = stage(TestServerOptions::default()).await;
    let document = document(&stage.server).await;
    let by = |row: &RouteDoc, who: &Who| {
        (row.auth == Auth::IngestCaller && is_of_data(row)).then(|| request(row, "", who))
    };
    let zipped = |row: &RouteDoc| {
        let mut request = by(row, &stage.agent)?;
        let media = header::HeaderValue::from_static("application/zip");
        request.headers_mut().insert(header::CONTENT_TYPE, media);
        Some(request)
    };
    walk(&stage, &document, Code::UnsupportedMediaType, zipped).await;
    let one = json!({ "scopes": ["ingest"], "ingest": { "rate_limit_rps": 1 } });
    let (_, secret) = stage.server.key(&stage.cabinet, one).await;
    let busy = Who::Bearer(secret);
    let first = rows(&stage.server).into_iter().find_map(|row| by(&row, &busy)).expect("a way in");
    assert!(stage.server.send(first).await.status.is_success());
    walk(&stage, &document, Code::IngestThrottled, |row| by(row, &busy)).await;
    push_group(&stage).await;
    let settings = json!({ "settings": { "max_disk_bytes": 1 << 20 } });
    let set = stage.server.json("PATCH", "/api/v1/orgs/acme", &stage.cabinet, settings).await;
    assert_eq!(set.status, 200, "{}", set.body);
    let long: Vec<String> = (0..400).map(|n| format!("{n}{}", "x".repeat(4_000))).collect();
    let labels: Vec<_> = long.iter().map(|text| [("__name__", "wide"), ("x", text.as_str())]).collect();
    let sample = [(NOW * 1_000, 1.0)];
    stage.write(&labels.iter().map(|labels| (&labels[..], &sample[..])).collect::<Vec<_>>()).await;
    walk(&stage, &document, Code::AtCapacity, |row| by(row, &stage.agent)).await;
}

/// A machine without a battery-backed clock starts with the time of its last stop. Until 15 minutes
/// after the start, samples ahead of it are refused in a way that makes senders repeat them; later
/// they are refused for good, because the sender's clock must be wrong.
#[tokio::test]
async fn for_fifteen_minutes_after_a_start_samples_ahead_of_the_clock_are_refused_so_that_they_are_sent_again()
 {
    for stored in [false, true] {
        let stage =
            stage(TestServerOptions { just_started: true, stored, ..TestServerOptions::default() }).await;
        let document = document(&stage.server).await;
        let ahead = |row: &RouteDoc| {
            let (media, coding, query, body) = sample_at(row, NOW + 3_600);
            let request =
                ask(row.method, &format!("{}?{query}", row.path.replace("{slug}", "acme")), &stage.agent)
                    .header(header::CONTENT_TYPE, media)
                    .header(header::CONTENT_ENCODING, coding);
            (row.auth == Auth::IngestCaller).then(|| request.body(Body::from(body)).expect("a request"))
        };
        walk(&stage, &document, Code::ClockUnconfirmed, ahead).await;
        stage.server.ran_s.store(899, Ordering::Relaxed);
        let row =
            rows(&stage.server).into_iter().find(|row| row.path.ends_with("{slug}/write")).expect("a way in");
        let retried = stage.server.send(ahead(&row).expect("a request")).await;
        retried.is(503, "clock_unconfirmed");
        assert!(!retried.header("retry-after").is_empty());
        let until = Timestamp::from_s(NOW + 1).to_rfc3339();
        assert!(retried.body.contains("3600000 ms ahead of the clock"), "{}", retried.body);
        assert!(retried.body.contains(&format!("from {until} on")), "{}", retried.body);
        let up = escaped("count(up)");
        let found = stage.get(&format!("query/expr-instant?expr={up}&time={}", NOW + 3_600)).await;
        assert_eq!(found.value()["data"]["result"], json!([]), "nothing is stored: {}", found.body);
        let own = stage.server.get("/metrics", &Who::Nobody).await.body;
        let counted = "promlet_org_refused_samples_total{org=\"acme\",reason=\"clock_unconfirmed\"}";
        assert!(own.lines().any(|line| line.starts_with(counted)), "{own}");
        stage.server.ran_s.store(900, Ordering::Relaxed);
        let refused = stage.server.send(ahead(&row).expect("a request")).await;
        refused.is(400, "bad_request");
        assert!(refused.body.contains("too_far_in_future"), "{}", refused.body);
    }
}

/// The maximum of outstanding deletions, their execution by a seal, and the errors of a closed
/// store.
#[tokio::test]
async fn a_store_on_disk_executes_deletions_with_a_seal_and_refuses_requests_once_it_is_closed() {
    let stage = stage(TestServerOptions { stored: true, ..TestServerOptions::default() }).await;
    let delete = async |at: i64| {
        let form = format!("match[]=up&start={at}&end={at}");
        let request = ask("POST", DELETE, &stage.cabinet).header(header::CONTENT_TYPE, FORM);
        stage.server.send(request.body(Body::from(form)).expect("a request")).await
    };
    let mut carried_out = 0;
    let refused = loop {
        let reply = delete(NOW - carried_out).await;
        match reply.status.as_u16() {
            204 => carried_out += 1,
            _ => break reply,
        }
    };
    assert!(refused.refuses(Code::AtCapacity), "{}", refused.body);
    assert_eq!(carried_out, 256);
    let sealed = stage.server.post("/api/v1/admin/seal", &stage.cabinet, Value::Null).await;
    assert_eq!((sealed.status.as_u16(), sealed.value()), (200, json!({ "segments": 1, "samples": 88 })));
    let room = delete(NOW - 299).await;
    assert_eq!(room.status, 204, "{}", room.body);
    push_group(&stage).await;
    stage.server.tsdb.close();
    let document = document(&stage.server).await;
    let last = |row: &RouteDoc| {
        let who = if row.auth == Auth::IngestCaller { &stage.agent } else { &stage.cabinet };
        Some(request(row, "match[]=up", who))
    };
    walk(&stage, &document, Code::ShuttingDown, last).await;
}

/// Streams of 5,000 different queries stay open.
#[tokio::test]
async fn a_live_query_beyond_the_limit_of_its_organisation_is_refused() {
    let stage = stage(TestServerOptions::default()).await;
    let set = |n: usize| {
        let query = |id: usize| json!({ "id": id.to_string(), "expr": format!("up + {}", n * 100 + id), "step": "1h" });
        let body = json!({ "queries": (0..100).map(query).collect::<Vec<_>>(), "since": NOW });
        let request = ask("POST", "/api/v1/orgs/acme/query/live", &stage.cabinet);
        let request = request.header(header::CONTENT_TYPE, "application/json");
        request.body(Body::from(body.to_string())).expect("a request")
    };
    let mut streams = Vec::new();
    for n in 0..50 {
        let response = stage.server.router.clone().oneshot(set(n)).await.expect("infallible");
        assert_eq!(response.status(), 200, "{n}");
        streams.push(response);
    }
    stage.server.send(set(50)).await.is(503, "at_capacity");
    let one = "/api/v1/orgs/acme/query/live?expr=up&step=1h";
    stage.server.get(one, &stage.cabinet).await.is(503, "at_capacity");
    let rows = rows(&stage.server);
    let of_dashboard = rows.iter().find(|row| row.path.ends_with("/dashboards/{uid}/live")).expect("a row");
    stage.server.send(request(of_dashboard, "", &stage.cabinet)).await.is(503, "at_capacity");
}

#[tokio::test]
async fn a_picture_that_is_known_or_of_no_panel_has_no_body_or_an_error() {
    let stage = stage(TestServerOptions::default()).await;
    for format in ["svg", "png"] {
        let path = format!("/api/v1/orgs/acme/render.{format}");
        let first = stage.server.get(&format!("{path}?dashboard={VIEWED}&panel=1"), &stage.cabinet).await;
        assert_eq!(first.status, 200, "{}", first.body);
        let again = ask("GET", &format!("{path}?dashboard={VIEWED}&panel=1"), &stage.cabinet)
            .header(header::IF_NONE_MATCH, first.header("etag"))
            .body(Body::empty());
        assert_eq!(stage.server.send(again.expect("a request")).await.status, 304);
        let missing = stage.server.get(&format!("{path}?dashboard={VIEWED}&panel=9"), &stage.cabinet).await;
        missing.is(404, "not_found");
    }
}

#[tokio::test]
async fn a_list_of_pushed_groups_has_bounded_memory() {
    let stage = stage(TestServerOptions::default()).await;
    let push = async |labels: usize| {
        let value = "v".repeat(240);
        let labels: String = (0..labels).map(|n| format!("%2Fl{n}%2F{value}")).collect();
        let body: String = (0..10_000).map(|n| format!("a{{n=\"{n}\"}} 1\n")).collect();
        let path = format!("/api/v1/orgs/acme/push/metrics/job%2Fa{labels}");
        let request = ask("PUT", &path, &stage.agent).body(Body::from(body)).expect("a request");
        let reply = stage.server.send(request).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    };
    let list = "/api/v1/orgs/acme/push/api/v1/metrics";
    push(0).await;
    assert_eq!(stage.server.get(list, &stage.agent).await.status, 200);
    push(28).await;
    stage.server.get(list, &stage.agent).await.is(422, "query_too_expensive");
}

#[tokio::test]
async fn an_organisation_has_a_thousand_groups_at_most() {
    let mut stage = stage(TestServerOptions::default()).await;
    let push = |method: &str, job: &str, who: &Who| {
        let path = format!("/api/v1/orgs/acme/push/metrics/job%2F{job}");
        ask(method, &path, who).body(Body::from("a 1\n")).expect("a request")
    };
    for n in 0..1_000 {
        let reply = stage.server.send(push("POST", &n.to_string(), &stage.agent)).await;
        assert_eq!(reply.status, 200, "{n}: {}", reply.body);
        stage.server.pass(std::time::Duration::from_millis(20));
    }
    stage.server.restart();
    for method in ["PUT", "POST"] {
        stage.server.send(push(method, "more", &stage.cabinet)).await.is(409, "limit_reached");
        assert_eq!(stage.server.send(push(method, "7", &stage.cabinet)).await.status, 200);
    }
    let (deps, now) = (stage.server.deps.clone(), stage.server.clock.now());
    std::thread::spawn(move || deps.repeat_pushes(now)).join().expect("groups are repeated");
}
