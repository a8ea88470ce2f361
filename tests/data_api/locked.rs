//! The escape differential of a locked dashboard (docs/specification.md D7): every endpoint that a
//! page uses beside `data` returns the same as in an organisation that contains only the series of
//! the lock. `dashboard_viewers` has that of `data` and of single queries.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::header;
use serde_json::{Value, json};

use crate::dashboard_viewers::{
    A, ALPHA, HOSTILE, data, document, query, shaped, store, target, templates, timeless, with_series,
    with_tenants,
};
use crate::live::Stream;
use crate::test_server::{Who, ask};
use crate::wire::{DataFixture, NOW, escaped};

/// Texts in the places of references, most of which would widen an expression.
const WIDENING: [&str; 13] = [
    ".*",
    ".+",
    "bravo",
    "alpha|bravo",
    "bravo-api",
    "tenant",
    "job",
    "env",
    "__name__",
    "bravo_total",
    "up",
    "a.i",
    "",
];
/// The variables that the viewer of the dashboard sets.
const OPEN: [&str; 5] = ["job", "one", "n", "free", "filters"];
/// Queries of one stream.
const SET: usize = 60;

/// Returns an organisation with several tenants, and one that has only the series of the lock. Both
/// have the dashboard `a` with a query of each template.
async fn twins() -> [DataFixture; 2] {
    let targets: Vec<Value> =
        templates().iter().enumerate().map(|(at, expr)| target(&format!("Q{at}"), expr)).collect();
    let twins = [with_tenants().await, with_series(&ALPHA).await];
    for twin in &twins {
        store(twin, &document("a", &targets)).await;
    }
    twins
}

/// Returns a token with the lock for the endpoints of a page.
async fn token(twin: &DataFixture) -> Who {
    twin.embed(json!({ "endpoints": ["dashboard", "range", "instant", "expr", "labels", "metrics"],
        "dashboard": { "uid": "a", "locked": { "tenant": "alpha" }, "open": OPEN } }))
        .await
}

/// Returns a public link of the dashboard with the lock.
async fn link(twin: &DataFixture) -> Who {
    let allow = json!({ "settings": { "public_links": true } });
    let allowed = twin.server.json("PATCH", "/api/v1/orgs/acme", &twin.cabinet, allow).await;
    assert_eq!(allowed.status, 200, "{}", allowed.body);
    let fields = json!({ "locked": { "tenant": "alpha" }, "open": OPEN, "rate_limit_rps": 10_000 });
    let made = twin.server.post(&format!("{A}/links"), &twin.cabinet, fields).await;
    assert_eq!(made.status, 201, "{}", made.body);
    Who::Bearer(made.text("url").split_once("link=").expect("a secret").1.to_owned())
}

/// Returns status and body of a response without its times and its id.
async fn get(twin: &DataFixture, who: &Who, path: &str) -> (u16, Value) {
    let reply = twin.get_as(who, path).await;
    let mut body = if reply.body.starts_with('<') { json!(reply.body) } else { timeless(reply.value()) };
    if let Some(fields) = body.as_object_mut() {
        fields.remove("request_id");
    }
    (reply.status.as_u16(), body)
}

/// Returns the lines of a batch by their id.
async fn batch(twin: &DataFixture, who: &Who, queries: &[Value]) -> BTreeMap<String, Value> {
    let body = json!({ "start": NOW - 300, "end": NOW, "step": "60s", "queries": queries });
    let reply = twin.server.post("/api/v1/orgs/acme/query/batch", who, body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let lines = reply.body.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.filter(|line| line["id"].is_string()).map(|line| (line["id"].to_string(), timeless(line))).collect()
}

/// Returns the name and the data of the first event of each query of a stream, by its id.
async fn live(twin: &DataFixture, who: &Who, path: &str, body: &Value) -> BTreeMap<String, (String, Value)> {
    let request = ask("POST", path, who).header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(body.to_string())).expect("a request");
    let mut stream = Stream::of(twin, request).await;
    let count = body["queries"].as_array().expect("queries").len();
    let mut events = BTreeMap::new();
    while events.len() < count {
        let (name, _, data) = stream.next().await.expect("an event of each query");
        assert!(data["id"].is_string(), "{name}: {data}");
        events.entry(data["id"].to_string()).or_insert((name, timeless(data)));
    }
    events
}

#[tokio::test]
async fn a_lock_holds_for_any_expression_of_a_batch_a_stream_and_a_picture() {
    let twins = twins().await;
    let tokens = [token(&twins[0]).await, token(&twins[1]).await];
    let both = || twins.iter().zip(&tokens);
    let exprs = shaped(&WIDENING);
    assert!(exprs.len() >= 100, "{}", exprs.len());
    let ranges =
        |(at, expr): (usize, &String)| json!({ "id": at.to_string(), "expr": expr, "type": "range" });
    let queries: Vec<Value> = exprs.iter().enumerate().map(ranges).collect();
    let mut lines = Vec::new();
    for (twin, token) in both() {
        lines.push(batch(twin, token, &queries).await);
    }
    assert_eq!(lines[0], lines[1]);
    let answered = lines[0].values().filter(|line| line["status"] == "success").count();
    assert!(answered * 2 > exprs.len(), "{answered}");
    for set in exprs.chunks(SET) {
        let steps =
            |(at, expr): (usize, &String)| json!({ "id": at.to_string(), "expr": expr, "step": "15s" });
        let body = json!({ "queries": set.iter().enumerate().map(steps).collect::<Vec<_>>() });
        let mut events = Vec::new();
        for (twin, token) in both() {
            events.push(live(twin, token, "/api/v1/orgs/acme/query/live", &body).await);
        }
        assert_eq!(events[0], events[1]);
        let points = events[0].values().filter(|(name, _)| name == "points").count();
        assert!(points * 2 > set.len(), "{points}");
    }
    let mut drawn = 0;
    for expr in &exprs {
        let path = format!("render.svg?expr={}&start={}&end={NOW}&step=60", escaped(expr), NOW - 300);
        let pictures = [get(&twins[0], &tokens[0], &path).await, get(&twins[1], &tokens[1], &path).await];
        assert_eq!(pictures[0], pictures[1], "{path}");
        drawn += usize::from(pictures[0].0 == 200);
    }
    assert!(drawn * 2 > exprs.len(), "{drawn}");
}

#[tokio::test]
async fn a_public_link_answers_whatever_its_viewer_sends_as_if_there_were_no_other_series() {
    let twins = twins().await;
    let links = [link(&twins[0]).await, link(&twins[1]).await];
    let all = templates().len();
    let queries: Vec<Value> = (0..all).map(|at| query(1, &format!("Q{at}"))).collect();
    let step =
        |at: usize| json!({ "id": at.to_string(), "panel": 1, "ref": format!("Q{at}"), "step": "15s" });
    let (mut answered, mut drawn) = (0, 0);
    for (turn, value) in HOSTILE.iter().enumerate() {
        let filter = format!("job|!=|{}", value.replace('|', "__gfp__"));
        let variables = json!({ "one": [value], "filters": [filter] });
        let (mut lines, mut events, mut pictures) = (Vec::new(), Vec::new(), Vec::new());
        let place = turn * 11 % all;
        let set: Vec<Value> = (0..SET).map(|at| step((place + at) % all)).collect();
        let body = json!({ "variables": variables, "queries": set });
        let panel = format!("render.svg?dashboard=a&panel=1&ref=Q{place}&var-one={}", escaped(value));
        for (twin, link) in twins.iter().zip(&links) {
            let own = data(twin, link, &variables, &queries).await;
            lines.push(own.into_iter().map(timeless).collect::<Vec<_>>());
            events.push(live(twin, link, &format!("{A}/live"), &body).await);
            pictures.push(get(twin, link, &panel).await);
        }
        assert_eq!(lines[0], lines[1], "{value:?}");
        assert_eq!(events[0], events[1], "{value:?}");
        assert_eq!(pictures[0], pictures[1], "{value:?}");
        answered += lines[0].iter().filter(|line| line["status"] == "success").count();
        drawn += usize::from(pictures[0].0 == 200);
    }
    assert!(answered * 4 > all * HOSTILE.len() && drawn > 0, "{answered} lines, {drawn} pictures");
}
