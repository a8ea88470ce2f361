//! `GET query/live` (docs/specification.md C5): its events, how a stream resumes, what ends it, and
//! that equal queries of equal scope are evaluated once.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::test_server::{Who, ask};
use crate::wire::{DataFixture, NOW, escaped};

/// Longer than any test takes. A test that waits this long has failed.
const WAIT_MAX: Duration = Duration::from_secs(30);

fn path(expr: &str, more: &str) -> String {
    format!("/api/v1/orgs/acme/query/live?expr={}{more}", escaped(expr))
}

/// An open stream.
pub(crate) struct Stream {
    response: Response<Body>,
    text: String,
}

/// An event: its name, its id, and its data.
pub(crate) type Event = (String, Option<i64>, Value);

impl Stream {
    async fn open(fixture: &DataFixture, who: &Who, path: &str) -> Stream {
        Stream::of(fixture, ask("GET", path, who).body(Body::empty()).expect("a request")).await
    }

    pub(crate) async fn of(fixture: &DataFixture, request: Request<Body>) -> Stream {
        let response = fixture.server.router.clone().oneshot(request).await.expect("infallible");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream { response, text: String::new() }
    }

    /// Returns the next event; `None` at the end of the stream. Comments are skipped.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                if let Some(data) = field("data: ") {
                    let id = field("id: ").map(|id| id.parse().expect("an id"));
                    let data = serde_json::from_str(data).expect("JSON");
                    return Some((field("event: ").expect("a name").to_owned(), id, data));
                }
                continue;
            }
            let frame = tokio::time::timeout(WAIT_MAX, self.response.body_mut().frame());
            let frame = frame.await.expect("an event")?.expect("no error").into_data().expect("data");
            self.text.push_str(std::str::from_utf8(&frame).expect("UTF-8"));
        }
    }

    async fn points(&mut self) -> (i64, Value) {
        let (name, id, data) = self.next().await.expect("an event");
        assert_eq!(name, "points", "{data}");
        (id.expect("an id"), data)
    }

    async fn end(&mut self) -> String {
        let (name, _, data) = self.next().await.expect("an event");
        assert_eq!(name, "end", "{data}");
        assert_eq!(self.next().await, None, "nothing follows the end");
        data["code"].as_str().expect("a code").to_owned()
    }
}

#[tokio::test]
async fn each_step_is_sent_when_it_is_due_with_the_points_of_a_range_query() {
    let fixture = DataFixture::with_shop().await;
    let mut stream = Stream::open(&fixture, &fixture.cabinet, &path("up", "&step=10")).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let (id, data) = stream.points().await;
        assert_eq!(data["time"].as_f64(), Some(id as f64 / 1_000.0));
        let (at, whole) = (id / 1_000, format!("query/range?expr=up&start={0}&end={0}&step=10", id / 1_000));
        let whole = fixture.get(&whole).await.value();
        for member in ["status", "data", "query", "warnings"] {
            assert_eq!(data[member], whole[member], "{member} at {at}");
        }
        seen.push(at);
        fixture.server.pass(Duration::from_secs(10));
    }
    assert_eq!(seen, [NOW, NOW + 10, NOW + 20, NOW + 30]);
}

#[tokio::test]
async fn a_stream_resumes_after_the_last_event_without_a_missing_or_doubled_point() {
    let fixture = DataFixture::with_shop().await;
    let resume = |id: i64| {
        let request = ask("GET", &path("up", "&step=5&count=3"), &fixture.cabinet);
        request.header("last-event-id", id.to_string()).body(Body::empty()).expect("a request")
    };
    let mut stream = Stream::of(&fixture, resume((NOW - 15) * 1_000)).await;
    let mut ids = Vec::new();
    while let Some((name, id, _)) = stream.next().await {
        assert_eq!(name, "points");
        ids.push(id.expect("an id") / 1_000);
    }
    assert_eq!(ids, [NOW - 10, NOW - 5, NOW]);
    // Nothing is due again before the next step.
    let mut stream = Stream::of(&fixture, resume(NOW * 1_000)).await;
    fixture.server.pass(Duration::from_secs(5));
    assert_eq!(stream.points().await.0, (NOW + 5) * 1_000);
}

#[tokio::test]
async fn steps_that_are_too_many_to_catch_up_are_reported_as_a_gap() {
    let fixture = DataFixture::with_shop().await;
    let mut stream =
        Stream::open(&fixture, &fixture.cabinet, &path("up", &format!("&step=1&since={}", NOW - 100))).await;
    let (name, id, data) = stream.next().await.expect("an event");
    assert_eq!((name.as_str(), id), ("gap", None));
    assert_eq!(data, json!({ "start": NOW - 99, "end": NOW - 60 }));
    for at in NOW - 59..=NOW {
        assert_eq!(stream.points().await.0, at * 1_000);
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_query_is_an_error_before_the_stream_begins() {
    let fixture = DataFixture::with_shop().await;
    let get = async |query: &str| fixture.get(&format!("query/live?{query}")).await;
    get("expr=sum(").await.is(400, "bad_expr");
    get("").await.is(400, "invalid_parameter");
    get("expr=up&step=0.5").await.is(400, "invalid_parameter");
    get("expr=up&step=2h").await.is(400, "invalid_parameter");
    get("expr=up&count=0").await.is(400, "invalid_parameter");
    get("expr=up&explain=1").await.is(400, "invalid_parameter");
    let token = fixture.embed(json!({ "exprs": ["up"], "min_step_s": 30 })).await;
    let as_token = async |query: &str| fixture.get_as(&token, &format!("query/live?count=1&{query}")).await;
    as_token("expr=http_requests_total").await.is(403, "embed_restricted");
    as_token("expr=up&step=15").await.is(403, "embed_restricted");
    assert_eq!(as_token("expr=up").await.status, 200);
}

#[tokio::test]
async fn a_token_gets_the_points_of_its_scope_alone() {
    let fixture = DataFixture::with_shop().await;
    let expr = "count by (job) (up)";
    let scoped = fixture.embed(json!({ "match": ["job=\"api\""] })).await;
    let mut whole = Stream::open(&fixture, &fixture.cabinet, &path(expr, "&step=5")).await;
    let mut part = Stream::open(&fixture, &scoped, &path(expr, "&step=5")).await;
    for _ in 0..3 {
        let jobs = |data: &Value| {
            let series = data["data"]["result"].as_array().expect("series").clone();
            series
                .iter()
                .map(|one| one["metric"]["job"].as_str().unwrap_or("").to_owned())
                .collect::<Vec<_>>()
        };
        let (all, own) = (jobs(&whole.points().await.1), jobs(&part.points().await.1));
        assert!(own.iter().all(|job| job == "api"), "{own:?}");
        assert!(all.len() > own.len(), "{all:?} {own:?}");
        fixture.server.pass(Duration::from_secs(5));
    }
}

#[tokio::test]
async fn a_credential_that_ends_ends_its_streams_within_a_second_of_the_next_check() {
    let fixture = DataFixture::with_shop().await;
    let (key, _) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["embed"] })).await;
    let token = fixture.server.token(&fixture.cabinet, &key, json!({})).await;
    let live = path("up", "&step=1h");
    let mut revoked = Stream::open(&fixture, &token, &live).await;
    revoked.points().await;
    let revoke = format!("/api/v1/orgs/acme/api-keys/{key}/revoke-tokens");
    assert!(fixture.server.post(&revoke, &fixture.cabinet, json!({})).await.status.is_success());
    assert_eq!(revoked.end().await, "token_invalid");

    let token = fixture.server.token(&fixture.cabinet, &key, json!({ "ttl_s": 60 })).await;
    let mut expired = Stream::open(&fixture, &token, &live).await;
    expired.points().await;
    fixture.server.pass(Duration::from_secs(91));
    assert_eq!(expired.end().await, "token_expired");

    let session = fixture.server.log_in().await;
    let mut ended = Stream::open(&fixture, &session, &live).await;
    ended.points().await;
    assert!(fixture.server.post("/api/v1/auth/logout", &session, json!({})).await.status.is_success());
    assert_eq!(ended.end().await, "session_invalid");

    // A stream of another caller continues.
    let mut other = Stream::open(&fixture, &fixture.cabinet, &path("up", "&step=5")).await;
    other.points().await;
    fixture.server.pass(Duration::from_secs(5));
    other.points().await;
}

#[tokio::test]
async fn a_stream_does_not_keep_a_session_alive() {
    let fixture = DataFixture::with_shop().await;
    let session = fixture.server.log_in().await;
    let mut stream = Stream::open(&fixture, &session, &path("up", "&step=1h")).await;
    stream.points().await;
    for _ in 0..3 {
        fixture.server.pass(Duration::from_secs(10 * 86_400));
        tokio::task::yield_now().await;
    }
    fixture.server.pass(Duration::from_secs(60));
    loop {
        match stream.next().await.expect("an event") {
            (name, _, data) if name == "end" => {
                assert_eq!(data["code"], "session_invalid");
                break;
            }
            (name, ..) => assert_ne!(name, "error"),
        }
    }
}

/// How many evaluations have looked for a cached result.
async fn cache_requests(fixture: &DataFixture) -> f64 {
    let reply = fixture.server.get("/metrics", &Who::Nobody).await;
    assert_eq!(reply.status, 200);
    let lines = reply.body.lines().filter(|line| line.starts_with("promlet_query_cache_requests_total{"));
    lines.map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number")).sum()
}

#[tokio::test]
async fn equal_queries_of_equal_scope_are_evaluated_once() {
    let fixture = DataFixture::with_shop().await;
    let expr = "count(count_over_time(up[1h]))";
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = Stream::open(&fixture, &fixture.cabinet, &path(expr, "&step=5")).await;
        stream.points().await;
        streams.push(stream);
    }
    let before = cache_requests(&fixture).await;
    for _ in 0..3 {
        fixture.server.pass(Duration::from_secs(5));
        let mut events = Vec::new();
        for stream in &mut streams {
            events.push(stream.points().await);
        }
        assert!(events.windows(2).all(|pair| pair[0] == pair[1]), "all streams get the same event");
    }
    assert_eq!(cache_requests(&fixture).await - before, 3.0);
}

#[tokio::test]
async fn a_stream_that_is_too_slow_gets_a_gap_and_the_newest_events() {
    let fixture = DataFixture::with_shop().await;
    let live = path("up", "&step=1");
    let mut slow = Stream::open(&fixture, &fixture.cabinet, &live).await;
    let mut fast = Stream::open(&fixture, &fixture.cabinet, &live).await;
    assert_eq!((slow.points().await.0, fast.points().await.0), (NOW * 1_000, NOW * 1_000));
    for at in NOW + 1..=NOW + 18 {
        fixture.server.pass(Duration::from_secs(1));
        assert_eq!(fast.points().await.0, at * 1_000);
    }
    let (name, _, data) = slow.next().await.expect("an event");
    assert_eq!((name.as_str(), data), ("gap", json!({ "start": NOW + 1, "end": NOW + 2 })));
    for at in NOW + 3..=NOW + 18 {
        assert_eq!(slow.points().await.0, at * 1_000);
    }
}

#[tokio::test]
async fn an_organisation_has_a_limit_of_live_queries() {
    let fixture = DataFixture::with_shop().await;
    let mut streams = Vec::new();
    for n in 0..500 {
        let live = path(&format!("up + {n}"), "&step=1h");
        streams.push(Stream::open(&fixture, &fixture.cabinet, &live).await);
        if n % 50 == 0 {
            // A session has 60 requests a second.
            fixture.server.pass(Duration::from_secs(1));
        }
    }
    fixture.server.pass(Duration::from_secs(1));
    fixture.get("query/live?expr=up%2B500&step=1h").await.is(503, "at_capacity");
    // A further stream of a query that runs is no further query.
    let more = Stream::open(&fixture, &fixture.cabinet, &path("up + 7", "&step=1h")).await;
    let page = fixture.server.get("/metrics", &Who::Nobody).await.body;
    assert!(page.contains("\npromlet_live_streams 501\n"), "{page}");
    drop((streams.pop(), more));
    streams.push(Stream::open(&fixture, &fixture.cabinet, &path("up + 500", "&step=1h")).await);
    drop(streams);
    let page = fixture.server.get("/metrics", &Who::Nobody).await.body;
    assert!(page.contains("\npromlet_live_streams 0\n"), "{page}");
}

#[tokio::test]
async fn a_step_without_a_result_is_an_error_and_the_next_one_is_sent() {
    let fixture = DataFixture::with_shop().await;
    // Two series match one after the next step: many-to-one without a modifier.
    let mut stream = Stream::open(&fixture, &fixture.cabinet, &path("up * on (job) later", "&step=5")).await;
    stream.points().await;
    let copy = |number: &'static str| [("__name__", "later"), ("job", "api"), ("copy", number)];
    let at = [((NOW + 4) * 1_000, 1.0)];
    fixture.write(&[(&copy("1"), &at), (&copy("2"), &at)]).await;
    fixture.server.pass(Duration::from_secs(5));
    let (name, id, data) = stream.next().await.expect("an event");
    assert_eq!(
        (name.as_str(), id, &data["code"]),
        ("error", Some((NOW + 5) * 1_000), &json!("query_failed"))
    );
    // The doubled samples are too old after the look-back.
    fixture.server.pass(Duration::from_secs(600));
    loop {
        match stream.next().await.expect("an event") {
            (name, Some(id), _) if name == "points" => break assert!(id > (NOW + 300) * 1_000),
            (name, ..) => assert_ne!(name, "end"),
        }
    }
}
