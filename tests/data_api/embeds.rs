//! The pages that use embed tokens (docs/specification.md C4): what the list counts, how their
//! tokens are revoked, and that their evaluation time is bounded while members are served.

use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::test_server::{Reply, Who, ask};
use crate::wire::{DataFixture, escaped};

const EMBEDS: &str = "/api/v1/orgs/acme/embeds";
const UP: &str = "/api/v1/orgs/acme/query/expr-instant?expr=up";
const PAGE: &str = "https://shop.example";

/// Sends a query as a page of `origin`.
async fn ask_as(fixture: &DataFixture, who: &Who, origin: &str, path: &str) -> Reply {
    let request = ask("GET", path, who).header("origin", origin).body(Body::empty());
    fixture.server.send(request.expect("a request")).await
}

async fn list(fixture: &DataFixture) -> Value {
    let reply = fixture.server.get(EMBEDS, &fixture.cabinet).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.value()
}

async fn key(fixture: &DataFixture, embed: Value) -> String {
    fixture.server.key(&fixture.cabinet, json!({ "scopes": ["embed"], "embed": embed })).await.0
}

async fn token(fixture: &DataFixture, key: &str, ms: Value) -> Who {
    fixture.server.token(&fixture.cabinet, key, json!({ "ms": ms })).await
}

/// Creates a dashboard.
async fn dashboard(fixture: &DataFixture, uid: &str) {
    let body = json!({ "dashboard": { "uid": uid, "title": format!("The {uid}"), "panels": [] } });
    let reply = fixture.server.post("/api/v1/orgs/acme/dashboards", &fixture.cabinet, body).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
}

/// Restrictions to a dashboard that also grant expressions.
fn of_dashboard(uid: &str) -> Value {
    json!({ "endpoints": ["dashboard", "expr"], "dashboard": { "uid": uid } })
}

async fn open_stream(fixture: &DataFixture, who: &Who) -> Response<Body> {
    let path = "/api/v1/orgs/acme/query/live?expr=up&step=1h";
    let request = ask("GET", path, who).header("origin", PAGE).body(Body::empty()).expect("a request");
    let response = fixture.server.router.clone().oneshot(request).await.expect("infallible");
    assert_eq!(response.status(), 200);
    response
}

/// Reads a stream to its end. Returns the code of the last event.
async fn end_of(mut stream: Response<Body>) -> String {
    let mut text = String::new();
    let read = async {
        while let Some(frame) = stream.body_mut().frame().await {
            let data = frame.expect("no error").into_data().expect("data");
            text.push_str(std::str::from_utf8(&data).expect("UTF-8"));
        }
    };
    tokio::time::timeout(Duration::from_secs(30), read).await.expect("the stream ends");
    let data = text.trim_end().rsplit_once("event: end\ndata: ").expect("an end").1;
    let data: Value = serde_json::from_str(data).expect("JSON");
    data["code"].as_str().expect("a code").to_owned()
}

#[tokio::test]
async fn the_list_names_each_page_with_its_viewers_streams_and_cost() {
    let fixture = DataFixture::with_shop().await;
    dashboard(&fixture, "node").await;
    let first = key(&fixture, json!({ "rate_limit_rps": 3 })).await;
    let second = key(&fixture, json!({})).await;
    assert_eq!(list(&fixture).await["data"], json!([]), "members are no embeds");
    let shown = token(&fixture, &first, of_dashboard("node")).await;
    for _ in 0..3 {
        assert_eq!(ask_as(&fixture, &shown, PAGE, UP).await.status, 200);
    }
    ask_as(&fixture, &shown, PAGE, UP).await.is(429, "rate_limited");
    fixture.server.pass(Duration::from_secs(2));
    let structured = "/api/v1/orgs/acme/query/range?metric=up&start=0&end=1&step=1";
    ask_as(&fixture, &shown, PAGE, structured).await.is(403, "embed_restricted");
    let stream = open_stream(&fixture, &shown).await;
    // A backend sends no Origin; another viewer of the other key.
    let body = json!({ "ms": {}, "sub": "ada" });
    let backend = fixture.server.token(&fixture.cabinet, &second, body).await;
    assert_eq!(fixture.server.get(UP, &backend).await.status, 200);
    fixture.server.pass(Duration::from_secs(1));

    let shown = list(&fixture).await;
    let rows = shown["data"].as_array().expect("rows");
    let of = |key: &str| rows.iter().find(|row| row["api_key"]["id"] == key).expect("a row");
    let row = of(&first);
    assert_eq!((rows.len(), &row["origin"], &row["api_key"]["name"]), (2, &json!(PAGE), &json!("test")));
    assert_eq!(row["dashboard"], json!({ "uid": "node", "title": "The node" }));
    assert_eq!((&row["requests"], &row["refused"], &row["viewers"]), (&json!(6), &json!(2), &json!(1)));
    assert_eq!((&row["streams"], &row["blocked"]), (&json!(1), &json!(false)));
    assert!(row["query_seconds"].as_f64() > Some(0.0) && row["samples"].as_u64() > Some(0), "{row}");
    assert!(row["first_seen_at"].as_str() < row["last_seen_at"].as_str(), "{row}");
    let row = of(&second);
    assert_eq!(
        (&row["origin"], &row["dashboard"], &row["requests"]),
        (&Value::Null, &Value::Null, &json!(1))
    );
    let keys = shown["keys"].as_array().expect("keys");
    assert_eq!((keys.len(), &keys[0]["query_seconds_per_minute"]), (2, &json!(60)), "{shown}");

    drop(stream);
    let rows = list(&fixture).await;
    assert!(rows["data"].as_array().expect("rows").iter().all(|row| row["streams"] == 0), "{rows}");
    let own = fixture.server.get("/metrics", &Who::Nobody).await.body;
    for line in ["promlet_embed_requests_total 7", "promlet_embed_refused_total 2", "promlet_embed_pages 2"] {
        assert!(own.lines().any(|found| found == line), "{line}");
    }
    let viewer = fixture.server.get(EMBEDS, &backend).await;
    viewer.is(401, "session_required");
}

#[tokio::test]
async fn revoking_a_dashboard_ends_its_tokens_of_all_keys_and_their_streams_and_no_others() {
    let fixture = DataFixture::with_shop().await;
    dashboard(&fixture, "node").await;
    dashboard(&fixture, "other").await;
    let of_key = json!({ "policy": { "endpoints": ["dashboard", "expr"], "dashboard": { "uid": "node" } } });
    let (first, second) = (key(&fixture, json!({})).await, key(&fixture, of_key).await);
    let revoked =
        [token(&fixture, &first, of_dashboard("node")).await, token(&fixture, &second, json!({})).await];
    let stays =
        [token(&fixture, &first, of_dashboard("other")).await, token(&fixture, &first, json!({})).await];
    let ending = open_stream(&fixture, &revoked[0]).await;
    let mut going = open_stream(&fixture, &stays[0]).await;
    let revoke = "/api/v1/orgs/acme/dashboards/node/revoke-embeds";
    let reply = fixture.server.post(revoke, &fixture.cabinet, json!({})).await;
    assert_eq!(reply.status, 204, "{}", reply.body);
    for token in &revoked {
        fixture.server.get(UP, token).await.is(401, "token_invalid");
    }
    assert_eq!(end_of(ending).await, "token_invalid");
    for token in &stays {
        assert_eq!(fixture.server.get(UP, token).await.status, 200);
    }
    assert!(going.body_mut().frame().await.is_some(), "the other dashboard's stream goes on");
    let fresh = token(&fixture, &first, of_dashboard("node")).await;
    assert_eq!(fixture.server.get(UP, &fresh).await.status, 200, "minted in the same second");
    assert_eq!(fixture.server.post(revoke, &fixture.cabinet, json!({})).await.status, 204);
    fixture.server.get(UP, &fresh).await.is(401, "token_invalid");
    fixture.server.pass(Duration::from_secs(32));
    fixture.server.get(UP, &revoked[0]).await.is(401, "token_invalid");

    let unknown = "/api/v1/orgs/acme/dashboards/none/revoke-embeds";
    fixture.server.post(unknown, &fixture.cabinet, json!({})).await.is(404, "not_found");
    let log =
        fixture.server.get("/api/v1/orgs/acme/audit?action=dashboard.tokens_revoked", &fixture.cabinet).await;
    assert_eq!(log.value()["data"].as_array().map(Vec::len), Some(2), "{}", log.body);
}

#[tokio::test]
async fn public_links_are_listed_with_the_name_and_deleted_with_the_tokens_of_their_dashboard() {
    let fixture = DataFixture::with_shop().await;
    dashboard(&fixture, "node").await;
    dashboard(&fixture, "other").await;
    let on = json!({ "settings": { "public_links": true } });
    assert_eq!(fixture.server.json("PATCH", "/api/v1/orgs/acme", &fixture.cabinet, on).await.status, 200);
    let link = async |uid: &str| {
        let path = format!("/api/v1/orgs/acme/dashboards/{uid}/links");
        let made = fixture.server.post(&path, &fixture.cabinet, json!({ "name": "mail" })).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let secret = made.text("url").split_once("link=").expect("a secret").1.to_owned();
        (made.text("id"), Who::Bearer(secret))
    };
    let view = |uid: &str| format!("/api/v1/orgs/acme/dashboards/{uid}/view");
    let ((id, shown), (_, stays)) = (link("node").await, link("other").await);
    assert_eq!(fixture.server.get(&view("node"), &shown).await.status, 200);
    assert_eq!(ask_as(&fixture, &stays, PAGE, &view("other")).await.status, 200);
    let rows = list(&fixture).await;
    let rows = rows["data"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["public_link"]["id"] == id.as_str()).expect("a row");
    assert_eq!((&row["public_link"]["name"], &row["api_key"]), (&json!("mail"), &Value::Null));
    assert_eq!((&row["origin"], &row["dashboard"]["uid"]), (&Value::Null, &json!("node")));
    assert!(rows.iter().any(|row| row["origin"] == PAGE && row["dashboard"]["uid"] == "other"), "{rows:?}");
    let revoke = "/api/v1/orgs/acme/dashboards/node/revoke-embeds";
    assert_eq!(fixture.server.post(revoke, &fixture.cabinet, json!({})).await.status, 204);
    fixture.server.get(&view("node"), &shown).await.is(401, "public_link_invalid");
    assert_eq!(fixture.server.get(&view("other"), &stays).await.status, 200);
    let left = fixture.server.get("/api/v1/orgs/acme/dashboards/node/links", &fixture.cabinet).await;
    assert_eq!(left.value()["data"], json!([]));
    let rows = list(&fixture).await;
    let row =
        rows["data"].as_array().expect("rows").iter().find(|row| row["public_link"]["id"] == id.as_str());
    assert_eq!(row.expect("still listed")["public_link"]["name"], Value::Null, "deleted");
}

#[tokio::test]
async fn a_blocked_origin_is_refused_until_it_is_unblocked_and_its_streams_end() {
    let fixture = DataFixture::with_shop().await;
    let (id, other) = (key(&fixture, json!({})).await, key(&fixture, json!({})).await);
    let (shown, others) = (token(&fixture, &id, json!({})).await, token(&fixture, &other, json!({})).await);
    assert_eq!(ask_as(&fixture, &shown, PAGE, UP).await.status, 200);
    let stream = open_stream(&fixture, &shown).await;
    let path = format!("/api/v1/orgs/acme/api-keys/{id}");
    let block = async |origin: &str| {
        let body = json!({ "origin": origin });
        fixture.server.post(&format!("{path}/block-origin"), &fixture.cabinet, body).await
    };
    for _ in 0..2 {
        let reply = block(PAGE).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.value()["embed"]["blocked_origins"], json!([PAGE]), "once");
    }
    ask_as(&fixture, &shown, PAGE, UP).await.is(403, "origin_not_allowed");
    assert_eq!(end_of(stream).await, "token_invalid");
    assert_eq!(ask_as(&fixture, &shown, "https://b.example", UP).await.status, 200);
    assert_eq!(ask_as(&fixture, &others, PAGE, UP).await.status, 200, "another key");
    let rows = list(&fixture).await;
    let row = rows["data"].as_array().expect("rows").iter().find(|row| row["blocked"] == true);
    assert_eq!(row.map(|row| &row["origin"]), Some(&json!(PAGE)), "{rows}");
    assert!(rows["keys"].as_array().expect("keys").iter().any(|key| key["blocked_origins"] == json!([PAGE])));
    for origin in ["*", "https://a.example/path", "", "null"] {
        block(origin).await.is(422, "validation_failed");
    }
    let unblock = json!({ "embed": { "blocked_origins": [] } });
    assert_eq!(fixture.server.json("PATCH", &path, &fixture.cabinet, unblock).await.status, 200);
    assert_eq!(ask_as(&fixture, &shown, PAGE, UP).await.status, 200);
}

/// Computes for a while; `n` makes it another query.
pub(crate) fn heavy(n: usize) -> String {
    let expr = format!("sum_over_time(quantile_over_time(0.{n:03}, vector(time())[20m:1s])[5m:1s])");
    format!("/api/v1/orgs/acme/query/expr-instant?expr={}", escaped(&expr))
}

/// A flood of heavy queries of one key's tokens uses the second of evaluation time that the key
/// has. Then they are refused, while a member's same queries and another key's are answered.
#[tokio::test]
async fn a_flood_of_heavy_embed_queries_meets_the_budget_of_its_key_and_members_are_served() {
    let fixture = DataFixture::with_shop().await;
    let limits = json!({ "rate_limit_rps": 10_000, "query_seconds_per_minute": 1 });
    let (busy, calm) = (key(&fixture, limits).await, key(&fixture, json!({})).await);
    let flood = [
        token(&fixture, &busy, json!({})).await,
        token(&fixture, &busy, json!({ "match": ["job=\"api\""] })).await,
    ];
    let calm = token(&fixture, &calm, json!({})).await;
    let mut refused = None;
    for n in 0..2_000 {
        let reply = ask_as(&fixture, &flood[n % 2], PAGE, &heavy(n % 1_000)).await;
        let member = fixture.server.get(UP, &fixture.cabinet).await;
        assert_eq!(member.status, 200, "{}", member.body);
        if reply.status != 200 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("two thousand heavy queries take more than a second");
    refused.is(429, "rate_limited");
    let told = refused.value();
    assert_eq!(
        (&told["scope"], &told["limit"], &told["window_s"]),
        (&json!("embed_budget"), &json!(1), &json!(60))
    );
    let wait: u64 = refused.header("retry-after").parse().expect("seconds");
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(refused.header("access-control-allow-origin"), PAGE, "the page can read the reason");
    for flood in &flood {
        fixture.server.get(UP, flood).await.is(429, "rate_limited");
    }
    assert_eq!(fixture.server.get(UP, &calm).await.status, 200);
    assert_eq!(
        fixture.server.get(&heavy(1_500), &fixture.cabinet).await.status,
        200,
        "a member has no budget"
    );
    let rows = list(&fixture).await;
    let used = |id: &str| {
        let keys = rows["keys"].as_array().expect("keys");
        let key = keys.iter().find(|key| key["id"] == id).expect("a key");
        key["query_seconds_last_minute"].as_f64().expect("a number")
    };
    assert!(used(&busy) >= 1.0, "{rows}");
    let row = rows["data"].as_array().expect("rows").iter().find(|row| row["api_key"]["id"] == busy.as_str());
    assert!(row.expect("a row")["refused"].as_u64() >= Some(1), "{rows}");

    // No limit, at once.
    let path = format!("/api/v1/orgs/acme/api-keys/{busy}");
    let unlimited = json!({ "embed": { "query_seconds_per_minute": null } });
    assert_eq!(fixture.server.json("PATCH", &path, &fixture.cabinet, unlimited).await.status, 200);
    assert_eq!(fixture.server.get(UP, &flood[0]).await.status, 200);
    let limited = json!({ "embed": { "query_seconds_per_minute": 1 } });
    assert_eq!(fixture.server.json("PATCH", &path, &fixture.cabinet, limited).await.status, 200);
    fixture.server.get(UP, &flood[0]).await.is(429, "rate_limited");
    fixture.server.pass(Duration::from_secs(wait + 60));
    assert_eq!(fixture.server.get(UP, &flood[0]).await.status, 200, "after a minute");
}

/// The queries of a batch, and the evaluations of a stream, are charged and refused like others.
#[tokio::test]
async fn batches_and_streams_are_charged_to_the_budget() {
    let fixture = DataFixture::with_shop().await;
    let limits = json!({ "rate_limit_rps": 10_000, "query_seconds_per_minute": 1 });
    let id = key(&fixture, limits).await;
    let shown = token(&fixture, &id, json!({})).await;
    let live = "/api/v1/orgs/acme/query/live?expr=up&step=10s";
    let open = async |who: &Who| {
        let request = ask("GET", live, who).body(Body::empty()).expect("a request");
        fixture.server.router.clone().oneshot(request).await.expect("infallible")
    };
    let (mut embedded, mut members) = (open(&shown).await, open(&fixture.cabinet).await);
    let expr = |n| format!("sum_over_time(quantile_over_time(0.{n:03}, vector(time())[20m:1s])[5m:1s])");
    let queries: Vec<Value> =
        (0..1_000).map(|n| json!({ "id": n.to_string(), "type": "instant", "expr": expr(n) })).collect();
    let batch = json!({ "queries": queries });
    let reply = fixture.server.post("/api/v1/orgs/acme/query/batch", &shown, batch.clone()).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let refused = reply.body.matches("\"embed_budget\"").count();
    assert!((1..1_000).contains(&refused), "{refused} of 1,000 queries are refused");
    fixture.server.post("/api/v1/orgs/acme/query/batch", &shown, batch).await.is(429, "rate_limited");

    // The stream of the token gets an error for its next step, that of the member gets points.
    let event = async |stream: &mut Response<Body>, name: &str| {
        let read = async {
            let mut text = String::new();
            while !text.contains(&format!("event: {name}\n")) {
                let frame = stream.body_mut().frame().await.expect("open").expect("no error");
                text.push_str(std::str::from_utf8(&frame.into_data().expect("data")).expect("UTF-8"));
            }
            text
        };
        tokio::time::timeout(Duration::from_secs(30), read).await.expect("an event")
    };
    event(&mut embedded, "points").await;
    event(&mut members, "points").await;
    fixture.server.pass(Duration::from_secs(10));
    assert!(event(&mut embedded, "error").await.contains("embed_budget"));
    event(&mut members, "points").await;
}
