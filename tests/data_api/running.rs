//! docs/specification.md C5: what a question will cost, what it did cost, and the list of those under way.

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::test_server::{Reply, Who, ask};
use crate::wire::{NOW, Series, Stage, escaped};

/// A question that runs until something ends it: at each of ten thousand steps it sorts a day of seconds.
const ENDLESS: &str = "quantile_over_time(0.5, vector(time() + scalar(count(up)))[1d:1s])";

fn good(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.value()
}

#[tokio::test]
async fn an_answer_explains_what_it_cost_where_that_is_asked_for() {
    let stage = Stage::with_shop().await;
    let expr = escaped("sum by (job) (rate(http_requests_total[5m]))");
    let path = format!("query/expr-range?expr={expr}&start={}&end={NOW}&step=60", NOW - 120);
    let plain = good(&stage.get(&path).await);
    assert!(plain.get("explain").is_none());
    let value = good(&stage.get(&format!("{path}&explain=true")).await);
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
    stage.get(&format!("{path}&explain=maybe")).await.is(400, "invalid_parameter");
    // A structured question has a plan as well.
    let value = good(&stage.get("query/instant?metric=up&agg=count&explain=true").await);
    assert_eq!(value["explain"]["node"], "count");
}

#[tokio::test]
async fn an_estimate_comes_without_running() {
    let stage = Stage::with_shop().await;
    let expr = escaped("sum by (job) (rate(http_requests_total[5m]))");
    let value = good(&stage.get(&format!("query/estimate?expr={expr}")).await);
    assert_eq!((&value["status"], &value["data"]["series"]), (&json!("success"), &json!(2)));
    // Three series, every 15 seconds in a window that is left-open.
    assert_eq!(value["data"]["samples"], 3 * 20);
    assert!(value["data"]["memory_bytes"].as_u64().expect("a number") > 0);
    let range = good(&stage.get(&format!("query/estimate?expr={expr}&start=now-1h&step=1")).await);
    let memory = |value: &Value| value["data"]["memory_bytes"].as_u64().expect("a number");
    assert!(memory(&range) > 5 * 3_600 * 8, "{range}");
    stage.get("query/estimate").await.is(400, "invalid_parameter");
    stage.get("query/estimate?expr=up&time=now&step=1").await.is(400, "invalid_parameter");
    stage.get(&format!("query/estimate?expr={}", escaped("sum("))).await.is(400, "bad_expr");
}

#[tokio::test]
async fn a_token_learns_of_its_own_part_only() {
    let stage = Stage::with_shop().await;
    let token = stage.embed(json!({ "match": ["tenant=\"b\""] })).await;
    let expr = "sum%28http_requests_total%29";
    let reply = stage.get_as(&token, &format!("query/estimate?expr={expr}")).await;
    assert_eq!(good(&reply)["data"]["samples"], 20, "one series of three: {}", reply.body);
    let reply = stage.get_as(&token, &format!("query/expr-instant?expr={expr}&explain=true")).await;
    assert_eq!(good(&reply)["explain"]["inputs"][0]["actual"]["series"], 1);
    let no_expr = stage.embed(json!({ "endpoints": ["range"] })).await;
    stage.get_as(&no_expr, "query/estimate?expr=up").await.is(403, "embed_restricted");
    for token in [token, no_expr] {
        stage.get_as(&token, "queries").await.is(401, "session_required");
        let end = ask("DELETE", "/api/v1/orgs/acme/queries/qry_1", &token).body(Body::empty());
        stage.server.send(end.expect("a request")).await.is(401, "session_required");
    }
}

/// Starts an endless question and answers its row of the list, once it runs.
async fn start(stage: &Stage) -> (tokio::task::JoinHandle<Reply>, Value) {
    let path = format!("/api/v1/orgs/acme/query/expr-range?expr={}&start=now-3h&step=1", escaped(ENDLESS));
    let request = ask("GET", &path, &stage.cabinet).body(Body::empty()).expect("a request");
    let router = stage.server.router.clone();
    let asked = tokio::spawn(async move {
        let response = router.oneshot(request).await.expect("infallible");
        let refused = response.extensions().get().copied();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        Reply { status, refused, headers, body: String::from_utf8(body.to_vec()).expect("UTF-8") }
    });
    loop {
        let rows = good(&stage.get("queries").await)["data"].as_array().expect("a list").clone();
        stage.server.pass(Duration::from_millis(50));
        // It reads its samples first, and then sorts for a long time.
        if let Some(row) = rows.iter().find(|row| row["progress"] == 1.0) {
            return (asked, row.clone());
        }
        assert!(!asked.is_finished(), "it ended by itself");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_query_is_listed_and_can_be_ended() {
    let stage = Stage::with_shop().await;
    let (asked, row) = start(&stage).await;
    assert_eq!(row["query"], ENDLESS);
    assert!(row["user"].as_str().expect("a text").starts_with("usr_"), "{row}");
    assert!(row["started_at"].as_str().expect("a text").ends_with('Z'), "{row}");
    assert!(row["elapsed_ms"].is_number() && row["memory_bytes"].is_u64());
    assert_eq!(row["samples"], 122, "both series");
    let id = row["id"].as_str().expect("an id").to_owned();
    let end = async |id: &str| {
        let path = format!("/api/v1/orgs/acme/queries/{id}");
        stage.server.send(ask("DELETE", &path, &stage.cabinet).body(Body::empty()).expect("a request")).await
    };
    end("qry_999").await.is(404, "not_found");
    end("up").await.is(404, "not_found");
    assert_eq!(end(&id).await.status, 204);
    asked.await.expect("no panic").is(503, "query_cancelled");
    assert_eq!(good(&stage.get("queries").await)["data"], json!([]));
    end(&id).await.is(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_frees_the_lane() {
    let stage = Stage::with_shop().await;
    // As often as there are threads and more: each would hold one of them for ever.
    for _ in 0..6 {
        let (asked, _) = start(&stage).await;
        asked.abort();
        assert!(asked.await.is_err_and(|error| error.is_cancelled()));
        loop {
            let rows = good(&stage.get("queries").await)["data"].clone();
            stage.server.pass(Duration::from_millis(50));
            if rows == json!([]) {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(good(&stage.get("query/expr-instant?expr=up").await)["stats"]["series"], 2);
}

#[tokio::test]
async fn the_list_is_for_administrators_of_the_organisation() {
    let stage = Stage::with_shop().await;
    stage.get_as(&Who::Nobody, "queries").await.is(401, "unauthenticated");
    stage.server.get("/api/v1/orgs/other/queries", &stage.cabinet).await.is(404, "org_not_found");
    let (_, secret) = stage.server.key(&stage.cabinet, json!({ "scopes": ["read"] })).await;
    assert_eq!(stage.get_as(&Who::Bearer(secret), "queries").await.status, 401);
}

#[tokio::test]
async fn answers_are_coded_as_the_client_asks() {
    let stage = Stage::with_shop().await;
    let range = format!("query/expr-range?expr=http_requests_total&start={}&end={NOW}&step=15", NOW - 900);
    let send = async |path: &str, accept: &str| {
        let request = ask("GET", &format!("/api/v1/orgs/acme/{path}"), &stage.cabinet);
        let request = request.header("accept-encoding", accept).body(Body::empty()).expect("a request");
        let response = stage.server.router.clone().oneshot(request).await.expect("infallible");
        stage.server.pass(Duration::from_millis(50));
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
async fn a_range_asked_for_again_reads_nothing_unless_something_came_or_it_is_refused() {
    let stage = Stage::with_shop().await;
    let path = format!("query/expr-range?expr=http_requests_total&start={}&end={NOW}&step=60", NOW - 600);
    let ask = async |path: &str| {
        let value = good(&stage.get(path).await);
        stage.server.pass(Duration::from_millis(50));
        (value["stats"]["samples"].as_u64().expect("a number"), value["data"].clone())
    };
    let (read, first) = ask(&path).await;
    assert!(read > 100, "{read}");
    assert_eq!(ask(&path).await, (0, first.clone()));
    assert_eq!(ask(&format!("{path}&nocache=1")).await, (read, first.clone()));
    // The mount asks for the same thing.
    let mount = format!(
        "prometheus/api/v1/query_range?query=http_requests_total&start={}&end={NOW}&step=60",
        NOW - 600
    );
    assert_eq!(good(&stage.get(&mount).await)["data"], first);
    // A token sees its own part, whatever others asked.
    let token = stage.embed(json!({ "match": ["tenant=\"b\""] })).await;
    let reply = stage.get_as(&token, &path).await;
    assert_eq!(good(&reply)["data"]["result"].as_array().expect("a list").len(), 1);
    // A sample between the last two steps: only the last one is computed.
    stage
        .write(&[(&[("__name__", "http_requests_total"), ("job", "new")], &[((NOW - 5) * 1_000, 7.0)])])
        .await;
    let (tail, second) = ask(&path).await;
    assert!(tail > 0 && tail < read, "{tail} of {read}");
    assert_eq!(second["result"].as_array().expect("a list").len(), 4);
    assert_eq!(ask(&format!("{path}&nocache=1")).await.1, second);
    let page = stage.server.get("/metrics", &Who::Nobody).await.body;
    for line in [
        "promlet_query_cache_requests_total{result=\"hit\"} 2",
        "promlet_query_cache_requests_total{result=\"extended\"} 1",
        "promlet_query_cache_requests_total{result=\"miss\"} 2",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}

#[tokio::test]
async fn a_large_answer_comes_in_pieces_and_is_the_same() {
    let stage = Stage::with_shop().await;
    // 61 series of eleven thousand points each.
    let ones: Vec<(i64, f64)> = vec![((NOW - 11_000) * 1_000, 1.5)];
    let names: Vec<String> = (0..61).map(|n| n.to_string()).collect();
    let labels: Vec<[(&str, &str); 2]> =
        names.iter().map(|n| [("__name__", "wide"), ("n", n.as_str())]).collect();
    let series: Vec<Series<'_>> = labels.iter().map(|labels| (labels.as_slice(), ones.as_slice())).collect();
    stage.write(&series).await;
    let expr = escaped("sum_over_time(wide[4h])");
    let path =
        format!("/api/v1/orgs/acme/query/expr-range?expr={expr}&start={}&end={NOW}&step=1", NOW - 10_999);
    for accept in ["identity", "gzip", "zstd"] {
        let request = ask("GET", &path, &stage.cabinet).header("accept-encoding", accept);
        let request = request.body(Body::empty()).expect("a request");
        let response = stage.server.router.clone().oneshot(request).await.expect("infallible");
        assert_eq!(response.status(), 200);
        assert!(response.headers().get("content-length").is_none(), "nobody knows it yet");
        let mut body = response.into_body();
        let (mut pieces, mut all) = (0, Vec::new());
        while let Some(frame) = body.frame().await {
            pieces += 1;
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
        assert!(pieces > 20, "{pieces}");
        let value: Value = serde_json::from_slice(&all).expect("JSON, whole");
        let result = value["data"]["result"].as_array().expect("a list");
        assert_eq!(result.len(), 61);
        for series in result {
            let points = series["values"].as_array().expect("a list");
            assert_eq!((points.len(), &points[10_999]), (11_000, &json!([NOW, "1.5"])));
        }
        assert_eq!((&value["stats"]["series"], &value["warnings"]), (&json!(61), &json!([])));
    }
    // What the answer held is given back with it.
    let page = stage.server.get("/metrics", &Who::Nobody).await.body;
    assert!(page.contains("promlet_query_memory_bytes 0\n"), "{page}");
}

#[tokio::test]
async fn memory_that_no_query_may_have_is_refused_with_the_numbers() {
    let stage = Stage::with_shop().await;
    let expr = escaped("max_over_time(vector(time())[100y:1ms])");
    let reply = stage.get(&format!("query/expr-instant?expr={expr}")).await;
    reply.is(422, "query_too_expensive");
    assert!(reply.text("detail").contains("more than the 268435456 a query may use"), "{}", reply.body);
}
