//! Estimates, plans, the list of running queries, result caching and large results
//! (docs/specification.md C5).

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::test_server::{Reply, Who, ask};
use crate::wire::{DataFixture, NOW, Series, escaped};

/// A query that runs until it is cancelled: at each of ten thousand steps it sorts the values of a
/// day, one per second.
const ENDLESS: &str = "quantile_over_time(0.5, vector(time() + scalar(count(up)))[1d:1s])";

/// Checks for status 200, and returns the body.
fn ok_json(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.value()
}

#[tokio::test]
async fn a_result_contains_its_plan_if_explain_is_set() {
    let fixture = DataFixture::with_shop().await;
    let expr = escaped("sum by (job) (rate(http_requests_total[5m]))");
    let path = format!("query/expr-range?expr={expr}&start={}&end={NOW}&step=60", NOW - 120);
    let plain = ok_json(&fixture.get(&path).await);
    assert!(plain.get("explain").is_none());
    let value = ok_json(&fixture.get(&format!("{path}&explain=true")).await);
    assert_eq!((&value["data"], &value["warnings"]), (&plain["data"], &json!([])));
    let root = &value["explain"];
    assert_eq!(root["node"], "sum by (job)");
    assert_eq!((&root["estimated"]["series"], &root["actual"]["series"]), (&json!(2), &json!(2)));
    assert_eq!(root["actual"]["samples"], value["stats"]["samples"]);
    assert!(root["actual"]["elapsed_ms"].is_number());
    let selector = &root["inputs"][0]["inputs"][0];
    assert_eq!(
        (&selector["node"], &selector["actual"]["series"]),
        (&json!("http_requests_total[300s]"), &json!(3))
    );
    fixture.get(&format!("{path}&explain=maybe")).await.is(400, "invalid_parameter");
    // A structured query has a plan as well.
    let value = ok_json(&fixture.get("query/instant?metric=up&agg=count&explain=true").await);
    assert_eq!(value["explain"]["node"], "count");
}

#[tokio::test]
async fn an_estimate_is_returned_without_running_the_query() {
    let fixture = DataFixture::with_shop().await;
    let expr = escaped("sum by (job) (rate(http_requests_total[5m]))");
    let value = ok_json(&fixture.get(&format!("query/estimate?expr={expr}")).await);
    assert_eq!((&value["status"], &value["data"]["series"]), (&json!("success"), &json!(2)));
    // Three series with a sample every 15 seconds, in a window that excludes its start.
    assert_eq!(value["data"]["samples"], 3 * 20);
    assert!(value["data"]["memory_bytes"].as_u64().expect("a number") > 0);
    let range = ok_json(&fixture.get(&format!("query/estimate?expr={expr}&start=now-1h&step=1")).await);
    let memory = |value: &Value| value["data"]["memory_bytes"].as_u64().expect("a number");
    assert!(memory(&range) > 5 * 3_600 * 8, "{range}");
    fixture.get("query/estimate").await.is(400, "invalid_parameter");
    fixture.get("query/estimate?expr=up&time=now&step=1").await.is(400, "invalid_parameter");
    fixture.get(&format!("query/estimate?expr={}", escaped("sum("))).await.is(400, "bad_expr");
}

#[tokio::test]
async fn estimates_and_plans_are_limited_to_the_scope_of_a_token() {
    let fixture = DataFixture::with_shop().await;
    let token = fixture.embed(json!({ "match": ["tenant=\"b\""] })).await;
    let expr = "sum%28http_requests_total%29";
    let reply = fixture.get_as(&token, &format!("query/estimate?expr={expr}")).await;
    assert_eq!(ok_json(&reply)["data"]["samples"], 20, "one series of three: {}", reply.body);
    let reply = fixture.get_as(&token, &format!("query/expr-instant?expr={expr}&explain=true")).await;
    assert_eq!(ok_json(&reply)["explain"]["inputs"][0]["actual"]["series"], 1);
    let no_expr = fixture.embed(json!({ "endpoints": ["range"] })).await;
    fixture.get_as(&no_expr, "query/estimate?expr=up").await.is(403, "embed_restricted");
    for token in [token, no_expr] {
        fixture.get_as(&token, "queries").await.is(401, "session_required");
        let end = ask("DELETE", "/api/v1/orgs/acme/queries/qry_1", &token).body(Body::empty());
        fixture.server.send(end.expect("a request")).await.is(401, "session_required");
    }
}

/// Starts an endless query, and returns its task and its row of the list once it runs.
async fn start(fixture: &DataFixture) -> (tokio::task::JoinHandle<Reply>, Value) {
    let path = format!("/api/v1/orgs/acme/query/expr-range?expr={}&start=now-3h&step=1", escaped(ENDLESS));
    let request = ask("GET", &path, &fixture.cabinet).body(Body::empty()).expect("a request");
    let router = fixture.server.router.clone();
    let asked = tokio::spawn(async move {
        let response = router.oneshot(request).await.expect("infallible");
        let refused = response.extensions().get().copied();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        Reply { status, refused, headers, body: String::from_utf8(body.to_vec()).expect("UTF-8") }
    });
    loop {
        let rows = ok_json(&fixture.get("queries").await)["data"].as_array().expect("a list").clone();
        fixture.server.pass(Duration::from_millis(50));
        // The query has read its samples, and sorts for a long time now.
        if let Some(row) = rows.iter().find(|row| row["progress"] == 1.0) {
            return (asked, row.clone());
        }
        assert!(!asked.is_finished(), "it ended by itself");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_query_is_listed_and_can_be_cancelled() {
    let fixture = DataFixture::with_shop().await;
    let (asked, row) = start(&fixture).await;
    assert_eq!(row["query"], ENDLESS);
    assert!(row["user"].as_str().expect("a text").starts_with("usr_"), "{row}");
    assert!(row["started_at"].as_str().expect("a text").ends_with('Z'), "{row}");
    assert!(row["elapsed_ms"].is_number() && row["memory_bytes"].is_u64());
    assert_eq!(row["samples"], 122, "both series");
    let id = row["id"].as_str().expect("an id").to_owned();
    let end = async |id: &str| {
        let path = format!("/api/v1/orgs/acme/queries/{id}");
        fixture
            .server
            .send(ask("DELETE", &path, &fixture.cabinet).body(Body::empty()).expect("a request"))
            .await
    };
    end("qry_999").await.is(404, "not_found");
    end("up").await.is(404, "not_found");
    assert_eq!(end(&id).await.status, 204);
    asked.await.expect("no panic").is(503, "query_cancelled");
    assert_eq!(ok_json(&fixture.get("queries").await)["data"], json!([]));
    end(&id).await.is(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnected_client_releases_its_thread_of_the_lane() {
    let fixture = DataFixture::with_shop().await;
    // There are more queries than threads, and each would hold one thread forever.
    for _ in 0..6 {
        let (asked, _) = start(&fixture).await;
        asked.abort();
        assert!(asked.await.is_err_and(|error| error.is_cancelled()));
        loop {
            let rows = ok_json(&fixture.get("queries").await)["data"].clone();
            fixture.server.pass(Duration::from_millis(50));
            if rows == json!([]) {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(ok_json(&fixture.get("query/expr-instant?expr=up").await)["stats"]["series"], 2);
}

#[tokio::test]
async fn only_administrators_of_the_organisation_see_running_queries() {
    let fixture = DataFixture::with_shop().await;
    fixture.get_as(&Who::Nobody, "queries").await.is(401, "unauthenticated");
    fixture.server.get("/api/v1/orgs/other/queries", &fixture.cabinet).await.is(404, "org_not_found");
    let (_, secret) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["read"] })).await;
    assert_eq!(fixture.get_as(&Who::Bearer(secret), "queries").await.status, 401);
}

#[tokio::test]
async fn results_have_the_content_coding_that_the_client_requests() {
    let fixture = DataFixture::with_shop().await;
    let range = format!("query/expr-range?expr=http_requests_total&start={}&end={NOW}&step=15", NOW - 900);
    let send = async |path: &str, accept: &str| {
        let request = ask("GET", &format!("/api/v1/orgs/acme/{path}"), &fixture.cabinet);
        let request = request.header("accept-encoding", accept).body(Body::empty()).expect("a request");
        let response = fixture.server.router.clone().oneshot(request).await.expect("infallible");
        fixture.server.pass(Duration::from_millis(50));
        let coding = response.headers().get("content-encoding").map(|v| v.to_str().expect("text").to_owned());
        assert_eq!(response.headers()["vary"], "Accept-Encoding", "{path}");
        (coding, response.into_body().collect().await.expect("a body").to_bytes())
    };
    let (coding, plain) = send(&range, "identity").await;
    assert_eq!(coding, None);
    let data = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).expect("JSON")["data"].clone();
    let (coding, coded) = send(&range, "br, gzip;q=0.8").await;
    assert_eq!(coding.as_deref(), Some("gzip"));
    assert!(coded.len() * 2 < plain.len(), "{} of {}", coded.len(), plain.len());
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&coded[..]), &mut text).expect("gzip");
    assert_eq!(data(&text), data(&plain));
    let (coding, coded) = send(&range, "gzip, deflate, br, zstd").await;
    assert_eq!(coding.as_deref(), Some("zstd"));
    assert!(coded.len() * 2 < plain.len(), "{} of {}", coded.len(), plain.len());
    assert_eq!(data(&zstd::stream::decode_all(&coded[..]).expect("zstd")), data(&plain));
    for (path, accept) in
        [(range.as_str(), "gzip;q=0"), (&range, "br"), ("query/expr-instant?expr=1", "gzip")]
    {
        assert_eq!(send(path, accept).await.0, None, "{path} {accept}");
    }
    let mount = format!(
        "prometheus/api/v1/query_range?query=http_requests_total&start={}&end={NOW}&step=15",
        NOW - 900
    );
    assert_eq!(send(&mount, "gzip").await.0.as_deref(), Some("gzip"));
}

#[tokio::test]
async fn a_repeated_range_query_reads_only_new_samples_unless_caching_is_disabled() {
    let fixture = DataFixture::with_shop().await;
    let path = format!("query/expr-range?expr=http_requests_total&start={}&end={NOW}&step=60", NOW - 600);
    let ask = async |path: &str| {
        let value = ok_json(&fixture.get(path).await);
        fixture.server.pass(Duration::from_millis(50));
        (value["stats"]["samples"].as_u64().expect("a number"), value["data"].clone())
    };
    let (read, first) = ask(&path).await;
    assert!(read > 100, "{read}");
    assert_eq!(ask(&path).await, (0, first.clone()));
    assert_eq!(ask(&format!("{path}&nocache=1")).await, (read, first.clone()));
    // The mount uses the same cached result.
    let mount = format!(
        "prometheus/api/v1/query_range?query=http_requests_total&start={}&end={NOW}&step=60",
        NOW - 600
    );
    assert_eq!(ok_json(&fixture.get(&mount).await)["data"], first);
    // A token does not see cached results of others.
    let token = fixture.embed(json!({ "match": ["tenant=\"b\""] })).await;
    let reply = fixture.get_as(&token, &path).await;
    assert_eq!(ok_json(&reply)["data"]["result"].as_array().expect("a list").len(), 1);
    // A new sample lies between the last two steps, so only the last step is evaluated.
    fixture
        .write(&[(&[("__name__", "http_requests_total"), ("job", "new")], &[((NOW - 5) * 1_000, 7.0)])])
        .await;
    let (tail, second) = ask(&path).await;
    assert!(tail > 0 && tail < read, "{tail} of {read}");
    assert_eq!(second["result"].as_array().expect("a list").len(), 4);
    assert_eq!(ask(&format!("{path}&nocache=1")).await.1, second);
    let page = fixture.server.get("/metrics", &Who::Nobody).await.body;
    // An inline query whose thread was interrupted is repeated on the lane, and looks up again.
    for (result, at_least) in [("hit", 2.0), ("extended", 1.0), ("miss", 2.0)] {
        let name = format!("promlet_query_cache_requests_total{{result=\"{result}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&name));
        let count: f64 = line.and_then(|count| count.parse().ok()).expect("a count");
        assert!((at_least..=2.0 * at_least).contains(&count), "{result}: {count}");
    }
}

#[tokio::test]
async fn a_large_result_arrives_in_chunks_and_is_complete() {
    let fixture = DataFixture::with_shop().await;
    // 61 series of eleven thousand points each.
    let ones: Vec<(i64, f64)> = vec![((NOW - 11_000) * 1_000, 1.5)];
    let names: Vec<String> = (0..61).map(|n| n.to_string()).collect();
    let labels: Vec<[(&str, &str); 2]> =
        names.iter().map(|n| [("__name__", "wide"), ("n", n.as_str())]).collect();
    let series: Vec<Series<'_>> = labels.iter().map(|labels| (labels.as_slice(), ones.as_slice())).collect();
    fixture.write(&series).await;
    let expr = escaped("sum_over_time(wide[4h])");
    let path =
        format!("/api/v1/orgs/acme/query/expr-range?expr={expr}&start={}&end={NOW}&step=1", NOW - 10_999);
    for accept in ["identity", "gzip", "zstd"] {
        let request = ask("GET", &path, &fixture.cabinet).header("accept-encoding", accept);
        let request = request.body(Body::empty()).expect("a request");
        let response = fixture.server.router.clone().oneshot(request).await.expect("infallible");
        assert_eq!(response.status(), 200);
        assert!(response.headers().get("content-length").is_none(), "the length is not known yet");
        let mut body = response.into_body();
        let (mut chunks, mut all) = (0, Vec::new());
        while let Some(frame) = body.frame().await {
            chunks += 1;
            all.extend_from_slice(&frame.expect("no error").into_data().expect("data"));
        }
        if accept == "gzip" {
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&all[..]), &mut text).expect("gzip");
            all = text;
        }
        if accept == "zstd" {
            all = zstd::stream::decode_all(&all[..]).expect("zstd");
        }
        assert!(chunks > 20, "{chunks}");
        let value: Value = serde_json::from_slice(&all).expect("JSON, whole");
        let result = value["data"]["result"].as_array().expect("a list");
        assert_eq!(result.len(), 61);
        for series in result {
            let points = series["values"].as_array().expect("a list");
            assert_eq!((points.len(), &points[10_999]), (11_000, &json!([NOW, "1.5"])));
        }
        assert_eq!((&value["stats"]["series"], &value["warnings"]), (&json!(61), &json!([])));
    }
    // The memory of the result is released at the end of the response.
    let page = fixture.server.get("/metrics", &Who::Nobody).await.body;
    assert!(page.contains("promlet_query_memory_bytes 0\n"), "{page}");
}

#[tokio::test]
async fn a_query_beyond_its_memory_limit_is_refused_with_the_limit() {
    let fixture = DataFixture::with_shop().await;
    let expr = escaped("max_over_time(vector(time())[100y:1ms])");
    let reply = fixture.get(&format!("query/expr-instant?expr={expr}")).await;
    reply.is(422, "query_too_expensive");
    assert!(reply.text("detail").contains("more than the 268435456 a query may use"), "{}", reply.body);
}
