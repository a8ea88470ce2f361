//! `GET query/live` (docs/specification.md C5): its events, how a stream resumes, what ends it, and
//! that equal queries of equal scope are evaluated once.

use std::io::Read as _;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use http_body_util::BodyExt as _;
use promlet::entropy::Entropy;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::test_server::{TestServer, TestServerOptions, Who, ask, ask_from};
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

    /// Returns the next bytes as the connection takes them; `None` at the end of the stream.
    async fn piece(&mut self) -> Option<String> {
        let frame = tokio::time::timeout(WAIT_MAX, self.response.body_mut().frame());
        let piece = frame.await.expect("a piece")?.expect("no error").into_data().expect("data");
        Some(String::from_utf8(piece.to_vec()).expect("UTF-8"))
    }

    /// Takes pieces up to the `id` of a step. Returns their bytes, and `None` if the stream ended.
    async fn take_step(&mut self, at: i64) -> (usize, Option<()>) {
        let id = format!("id: {}\n", at * 1_000);
        let mut bytes = 0;
        while let Some(piece) = self.piece().await {
            bytes += piece.len();
            self.text.push_str(&piece);
            if self.text.contains(&id) {
                return (bytes, Some(()));
            }
            // The id may begin in one piece and end in the next.
            self.text = self.text.split_off(self.text.len().saturating_sub(id.len()));
        }
        (bytes, None)
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

/// The value of a metric without labels.
async fn metric(fixture: &DataFixture, name: &str) -> f64 {
    let page = fixture.server.get("/metrics", &Who::Nobody).await.body;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
    value.expect("the metric").parse().expect("a number")
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

/// Opens a stream of a set of queries.
async fn open_set(fixture: &DataFixture, who: &Who, body: Value) -> Stream {
    Stream::of(fixture, set_request(who, &body)).await
}

fn set_request(who: &Who, body: &Value) -> Request<Body> {
    let request = ask("POST", "/api/v1/orgs/acme/query/live", who);
    request.header("content-type", "application/json").body(Body::from(body.to_string())).expect("a request")
}

/// A hundred queries that no other set has.
fn hundred(set: usize) -> Value {
    let query =
        |n: usize| json!({ "id": n.to_string(), "expr": format!("up + {}", set * 100 + n), "step": "1h" });
    json!({ "queries": (0..100).map(query).collect::<Vec<_>>() })
}

#[tokio::test]
async fn an_organisation_has_a_limit_of_live_queries() {
    let fixture = DataFixture::with_shop().await;
    let mut streams = Vec::new();
    for set in 0..50 {
        streams.push(open_set(&fixture, &fixture.cabinet, hundred(set)).await);
    }
    let refused = fixture.get("query/live?expr=up%2B5000&step=1h").await;
    refused.is(503, "at_capacity");
    assert_eq!(refused.value()["limit"], 5_000);
    // A further stream of running queries adds no query to the count.
    let one = open_set(&fixture, &fixture.cabinet, hundred(7)).await;
    fixture.server.pass(Duration::from_secs(1));
    let more = Stream::open(&fixture, &fixture.cabinet, &path("up + 7", "&step=1h")).await;
    let page = fixture.server.get("/metrics", &Who::Nobody).await.body;
    for line in ["promlet_live_streams 52", "promlet_live_sets 51", "promlet_live_queries 5000"] {
        assert!(page.contains(&format!("\n{line}\n")), "{line}: {page}");
    }
    drop((streams.pop(), one, more));
    streams.push(Stream::open(&fixture, &fixture.cabinet, &path("up + 5000", "&step=1h")).await);
    drop(streams);
    let page = fixture.server.get("/metrics", &Who::Nobody).await.body;
    for line in ["promlet_live_streams 0", "promlet_live_sets 0", "promlet_live_queries 0"] {
        assert!(page.contains(&format!("\n{line}\n")), "{line}: {page}");
    }
}

/// A flood of streams with one token meets the limit of its key, not that of the server.
#[tokio::test]
async fn a_key_and_a_session_have_limits_of_streams() {
    let mut plan = TestServerOptions::default();
    plan.options.read.live_streams_per_key = 3;
    let fixture = DataFixture::with_shop_of(DataFixture::of(TestServer::build(plan)).await).await;
    let live = path("up", "&step=1h");
    let (key, _) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["embed"] })).await;
    let (one, two) = (
        fixture.server.token(&fixture.cabinet, &key, json!({})).await,
        fixture.server.token(&fixture.cabinet, &key, json!({ "ms": { "match": ["job=\"api\""] } })).await,
    );
    let mut held = Vec::new();
    for who in [&one, &two, &one] {
        held.push(Stream::open(&fixture, who, &live).await);
    }
    for who in [&one, &two] {
        let refused = fixture.server.get(&live, who).await;
        refused.is(503, "at_capacity");
        let body = refused.value();
        assert_eq!((&body["limit"], &body["scope"]), (&json!(3), &json!("api_key")));
    }
    let other = fixture.embed(json!({})).await;
    held.push(Stream::open(&fixture, &other, &live).await);
    held.remove(0);
    held.push(Stream::open(&fixture, &two, &live).await);

    let mut of_session = Vec::new();
    for n in 0..100 {
        if n % 50 == 0 {
            fixture.server.pass(Duration::from_secs(1));
        }
        of_session.push(Stream::open(&fixture, &fixture.cabinet, &live).await);
    }
    fixture.server.pass(Duration::from_secs(1));
    let refused = fixture.server.get(&live, &fixture.cabinet).await;
    refused.is(503, "at_capacity");
    assert_eq!(refused.value()["scope"], "session");
    let page = fixture.server.get("/metrics", &Who::Nobody).await.body;
    assert!(page.contains("\npromlet_live_refused_total 3\n"), "{page}");
}

/// A client that floods a page with streams leaves those of the key to viewers elsewhere.
#[tokio::test]
async fn a_network_has_a_tenth_of_the_streams_of_a_key() {
    let mut plan = TestServerOptions::default();
    plan.options.read.live_streams_per_key = 1_020;
    let fixture = DataFixture::with_shop_of(DataFixture::of(TestServer::build(plan)).await).await;
    let live = path("up", "&step=1h");
    let (key, _) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["embed"] })).await;
    let token = fixture.server.token(&fixture.cabinet, &key, json!({})).await;
    let from = |peer: &str| ask_from(peer, "GET", &live, &token).body(Body::empty()).expect("a request");
    let mut held = Vec::new();
    for n in 0..102 {
        if n % 50 == 0 {
            fixture.server.pass(Duration::from_secs(1));
        }
        let peer = format!("[2001:db8::{n:x}]:1");
        held.push(Stream::of(&fixture, from(&peer)).await);
    }
    fixture.server.pass(Duration::from_secs(1));
    let refused = fixture.server.send(from("[2001:db8::ffff]:1")).await;
    refused.is(503, "at_capacity");
    let body = refused.value();
    assert_eq!((&body["limit"], &body["scope"]), (&json!(102), &json!("network")));
    for elsewhere in ["[2001:db8:0:1::1]:1", "127.0.0.1:1"] {
        held.push(Stream::of(&fixture, from(elsewhere)).await);
    }
    held.remove(0);
    held.push(Stream::of(&fixture, from("[2001:db8::ffff]:1")).await);
    fixture.server.send(from("[2001:db8::1]:1")).await.is(503, "at_capacity");
}

/// The events of a set up to the one that completes a step: `(id of the query, time in s)`.
async fn moment(stream: &mut Stream) -> (i64, Vec<(String, i64)>) {
    let mut seen = Vec::new();
    loop {
        let (name, id, data) = stream.next().await.expect("an event");
        assert_eq!(name, "points", "{data}");
        let at = data["time"].as_i64().expect("a time");
        seen.push((data["id"].as_str().expect("an id").to_owned(), at));
        if let Some(id) = id {
            return (id / 1_000, seen);
        }
    }
}

fn at(ids: &[&str], at: i64) -> Vec<(String, i64)> {
    ids.iter().map(|id| ((*id).to_owned(), at)).collect()
}

#[tokio::test]
async fn a_set_sends_each_query_at_its_own_steps_and_completes_each_step_once() {
    let fixture = DataFixture::with_shop().await;
    let queries = json!({ "queries": [
        { "id": "A", "expr": "up", "step": 5 },
        { "id": "4:\"B\"", "expr": "sum by (job) (up)", "step": "10s", "limit": 2 },
    ] });
    let mut stream = open_set(&fixture, &fixture.cabinet, queries).await;
    let b = "4:\"B\"";
    // NOW is a multiple of 10 s.
    assert_eq!(moment(&mut stream).await, (NOW, at(&["A", b], NOW)));
    for (step, ids) in [(5, &["A"][..]), (10, &["A", b]), (15, &["A"])] {
        fixture.server.pass(Duration::from_secs(5));
        assert_eq!(moment(&mut stream).await, (NOW + step, at(ids, NOW + step)));
    }
    // An event is what query/range returns.
    fixture.server.pass(Duration::from_secs(5));
    let (_, id, data) = stream.next().await.expect("an event");
    let whole = fixture.get(&format!("query/range?expr=up&start={0}&end={0}&step=5", NOW + 20)).await.value();
    assert_eq!((id, &data["data"], &data["query"]), (None, &whole["data"], &whole["query"]));
}

#[tokio::test]
async fn a_set_resumes_after_the_last_complete_step_without_a_missing_or_doubled_point() {
    let fixture = DataFixture::with_shop().await;
    let body = |since: i64, count: i64| {
        json!({ "since": since, "count": count, "queries": [
            { "id": "A", "expr": "up", "step": 5 },
            { "id": "B", "expr": "sum(up)", "step": 10 },
        ] })
    };
    let mut stream = open_set(&fixture, &fixture.cabinet, body(NOW - 20, 4)).await;
    let mut moments = Vec::new();
    for _ in 0..4 {
        moments.push(moment(&mut stream).await);
    }
    assert_eq!(stream.next().await, None, "the count ends the stream");
    let expected = [(-15, &["A"][..]), (-10, &["A", "B"]), (-5, &["A"]), (0, &["A", "B"])];
    assert_eq!(moments, expected.map(|(step, ids)| (NOW + step, at(ids, NOW + step))));
    // The header precedes the member. Nothing is due again before the next step.
    let mut request = set_request(&fixture.cabinet, &body(NOW - 300, 9));
    let id = (NOW * 1_000).to_string().parse().expect("a value");
    request.headers_mut().insert("last-event-id", id);
    let mut stream = Stream::of(&fixture, request).await;
    fixture.server.pass(Duration::from_secs(5));
    assert_eq!(moment(&mut stream).await, (NOW + 5, at(&["A"], NOW + 5)));
}

#[tokio::test]
async fn equal_queries_of_different_sets_are_evaluated_once() {
    let fixture = DataFixture::with_shop().await;
    let query = |id: &str, expr: &str| json!({ "id": id, "expr": expr, "step": 5 });
    let (up, count) = ("sum(up)", "count(up)");
    let sets = [
        json!({ "queries": [query("A", up), query("B", count)] }),
        json!({ "queries": [query("B", count), query("C", up)] }),
    ];
    let mut streams = Vec::new();
    for n in 0..20 {
        let mut stream = open_set(&fixture, &fixture.cabinet, sets[n % 2].clone()).await;
        moment(&mut stream).await;
        streams.push(stream);
    }
    let evaluations = async || metric(&fixture, "promlet_live_evaluations_total").await;
    let before = evaluations().await;
    assert_eq!(before, 2.0, "streams that join share the evaluations of others");
    for step in 1..=3 {
        fixture.server.pass(Duration::from_secs(5));
        for (n, stream) in streams.iter_mut().enumerate() {
            let ids = [["A", "B"], ["B", "C"]][n % 2];
            assert_eq!(moment(stream).await, (NOW + 5 * step, at(&ids, NOW + 5 * step)));
        }
    }
    assert_eq!(evaluations().await - before, 6.0);
    assert_eq!(metric(&fixture, "promlet_live_sets").await, 2.0);
}

/// Streams that resume after a restart, all at once, evaluate each missed step once.
#[tokio::test]
async fn streams_that_catch_up_share_the_evaluations() {
    let fixture = DataFixture::with_shop().await;
    let body =
        json!({ "since": NOW - 100, "count": 20, "queries": [{ "id": "A", "expr": "up", "step": 5 }] });
    let mut all = Vec::new();
    for _ in 0..10 {
        let mut stream = open_set(&fixture, &fixture.cabinet, body.clone()).await;
        let mut seen = Vec::new();
        while let Some((name, id, _)) = stream.next().await {
            assert_eq!(name, "points");
            seen.push(id.expect("an id"));
        }
        all.push(seen);
    }
    assert_eq!(all[0], (1..=20).map(|n| (NOW - 100 + 5 * n) * 1_000).collect::<Vec<_>>());
    assert!(all.iter().all(|seen| *seen == all[0]));
    // The first stream keeps no results for the next: each feed ended with its stream.
    let held = open_set(&fixture, &fixture.cabinet, body.clone()).await;
    let before = metric(&fixture, "promlet_live_evaluations_total").await;
    for _ in 0..10 {
        let mut stream = open_set(&fixture, &fixture.cabinet, body.clone()).await;
        while stream.next().await.is_some() {}
    }
    assert_eq!(metric(&fixture, "promlet_live_evaluations_total").await - before, 20.0);
    drop(held);
}

#[tokio::test]
async fn what_is_wrong_with_a_query_of_a_set_is_one_event_and_the_others_are_sent() {
    let fixture = DataFixture::with_shop().await;
    let token = fixture.embed(json!({ "exprs": ["up"], "min_step_s": 5 })).await;
    let queries = json!({ "queries": [
        { "id": "good", "expr": "up", "step": 5 },
        { "id": "broken", "expr": "sum(", "step": 5 },
        { "id": "foreign", "expr": "count(up)", "step": 5 },
        { "id": "fine", "expr": "up", "step": 1 },
    ] });
    let mut stream = open_set(&fixture, &token, queries).await;
    let mut first = std::collections::BTreeMap::new();
    for _ in 0..4 {
        let (name, _, data) = stream.next().await.expect("an event");
        let code = data["code"].as_str().unwrap_or("-").to_owned();
        first.insert(data["id"].as_str().expect("an id").to_owned(), (name, code));
    }
    let of = |name: &str, code: &str| (name.to_owned(), code.to_owned());
    let expected = [
        ("broken", of("error", "bad_expr")),
        ("fine", of("error", "embed_restricted")),
        ("foreign", of("error", "embed_restricted")),
        ("good", of("points", "-")),
    ];
    assert_eq!(first, expected.map(|(id, event)| (id.to_owned(), event)).into());
    // Queries that were refused are refused once more at the first step of the feed at most.
    let mut seen = Vec::new();
    for _ in 0..3 {
        fixture.server.pass(Duration::from_secs(5));
        loop {
            let (name, _, data) = stream.next().await.expect("an event");
            if name == "points" {
                break seen.push((data["id"].clone(), data["time"].as_i64().expect("a time")));
            }
        }
    }
    assert_eq!(seen, [5, 10, 15].map(|step| (json!("good"), NOW + step)));
    fixture.server.pass(Duration::from_secs(5));
    assert_eq!(moment(&mut stream).await, (NOW + 20, at(&["good"], NOW + 20)));
}

#[tokio::test]
async fn a_set_whose_queries_are_all_refused_ends_after_its_errors() {
    let fixture = DataFixture::with_shop().await;
    let token = fixture.embed(json!({ "exprs": ["up"], "min_step_s": 5 })).await;
    // Refused before the first evaluation: no stream.
    let checked =
        json!([{ "id": "fine", "expr": "up", "step": 1 }, { "id": "long", "expr": "up", "step": "2h" }]);
    for body in [json!({ "count": 1, "queries": checked }), json!({ "queries": checked })] {
        let mut stream = open_set(&fixture, &token, body).await;
        assert_eq!(metric(&fixture, "promlet_live_streams").await, 0.0);
        for (id, code) in [("fine", "embed_restricted"), ("long", "invalid_parameter")] {
            let (name, _, data) = stream.next().await.expect("an event");
            assert_eq!((name.as_str(), &data["id"], &data["code"]), ("error", &json!(id), &json!(code)));
        }
        assert_eq!(stream.end().await, "embed_restricted");
    }
    // Refused by the evaluation: an error at the first step of the stream, and at that of the set.
    let evaluated = json!([{ "id": "foreign", "expr": "count(up)", "step": 5 }]);
    let mut stream = open_set(&fixture, &token, json!({ "count": 9, "queries": evaluated })).await;
    for _ in 0..2 {
        let (name, _, data) = stream.next().await.expect("an event");
        assert_eq!((name.as_str(), &data["code"]), ("error", &json!("embed_restricted")));
        fixture.server.pass(Duration::from_secs(5));
    }
    assert_eq!(stream.end().await, "embed_restricted");
    drop(stream);
    assert_eq!(metric(&fixture, "promlet_live_streams").await, 0.0);
    // The path of a panel has the same end.
    let document = json!({ "dashboard": { "uid": "d", "title": "D", "panels": [] } });
    let made = fixture.server.post("/api/v1/orgs/acme/dashboards", &fixture.cabinet, document).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let queries = json!({ "count": 1, "queries": [{ "id": "1", "panel": 9, "ref": "A", "step": "1s" }] });
    let request = ask("POST", "/api/v1/orgs/acme/dashboards/d/live", &fixture.cabinet)
        .header("content-type", "application/json")
        .body(Body::from(queries.to_string()));
    let mut stream = Stream::of(&fixture, request.expect("a request")).await;
    let (name, _, refused) = stream.next().await.expect("an event");
    assert_eq!((name.as_str(), &refused["id"]), ("error", &json!("1")));
    assert_eq!(json!(stream.end().await), refused["code"]);
}

#[tokio::test]
async fn a_set_that_is_too_slow_gets_a_gap_of_each_query_and_the_newest_events() {
    let fixture = DataFixture::with_shop().await;
    let queries = json!({ "queries": [
        { "id": "A", "expr": "up", "step": 1 },
        { "id": "B", "expr": "sum(up)", "step": 2 },
    ] });
    let mut slow = open_set(&fixture, &fixture.cabinet, queries.clone()).await;
    let mut fast = open_set(&fixture, &fixture.cabinet, queries).await;
    assert_eq!(moment(&mut slow).await, moment(&mut fast).await);
    for step in 1..=20 {
        fixture.server.pass(Duration::from_secs(1));
        assert_eq!(moment(&mut fast).await.0, NOW + step);
    }
    for (id, start, end) in [("A", 1, 4), ("B", 2, 4)] {
        let (name, _, data) = slow.next().await.expect("an event");
        let gap = json!({ "id": id, "start": NOW + start, "end": NOW + end });
        assert_eq!((name.as_str(), data), ("gap", gap));
    }
    for step in 5..=20 {
        assert_eq!(moment(&mut slow).await.0, NOW + step);
    }
    assert_eq!(metric(&fixture, "promlet_live_gaps_total").await, 1.0);
}

/// Opens a stream of a set, in gzip or without compression.
async fn coded(fixture: &DataFixture, who: &Who, set: &Value, coding: &'static str) -> Response<Body> {
    let mut request = set_request(who, set);
    request.headers_mut().insert("accept-encoding", coding.parse().expect("a value"));
    let response = fixture.server.router.clone().oneshot(request).await.expect("infallible");
    let sent_in = response.headers().get("content-encoding").map(|value| value.to_str().expect("text"));
    assert_eq!(sent_in, (coding != "identity").then_some("gzip"));
    assert_eq!(response.headers()["vary"], "Accept-Encoding");
    response
}

/// Returns all bytes of a stream.
async fn whole(response: Response<Body>) -> Vec<u8> {
    let all = tokio::time::timeout(WAIT_MAX, response.into_body().collect());
    all.await.expect("an end").expect("no error").to_bytes().to_vec()
}

fn gunzip(sent: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(sent).read_to_end(&mut text).expect("a complete stream in gzip");
    text
}

#[tokio::test]
async fn a_stream_in_gzip_has_the_events_of_one_without_compression() {
    let fixture = DataFixture::with_shop().await;
    // Labels that do not compress well, so that a compressed text is sent in pieces.
    let mut random = Entropy::seeded(3);
    let names: Vec<String> =
        (0..800).map(|_| random.bytes::<64>().iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    let at = [(NOW * 1_000, 1.0)];
    let labels: Vec<_> = names.iter().map(|name| [("__name__", "wide"), ("name", name)]).collect();
    fixture.write(&labels.iter().map(|labels| (&labels[..], &at[..])).collect::<Vec<_>>()).await;
    let set = |exprs: &[&str]| {
        let query = |(n, expr): (usize, &&str)| json!({ "id": n.to_string(), "expr": expr, "step": 5 });
        let queries: Vec<_> = exprs.iter().enumerate().map(query).collect();
        json!({ "count": 3, "queries": queries })
    };
    // One event, a text that is sent as a whole, and one that is sent in pieces.
    for (exprs, compressed) in [(&["up"][..], 2.0), (&["up"; 20], 0.2), (&["wide", "wide + 1"], 0.65)] {
        let set = set(exprs);
        let open = |coding| coded(&fixture, &fixture.cabinet, &set, coding);
        let mut parts = Vec::new();
        // A text is sent as it is if no thread is free to compress it. Queries find the samples for
        // five minutes.
        while parts.len() < 12 && parts.last().is_none_or(|part| *part >= compressed) {
            // zstd is not offered: not every client decodes more than one frame of it.
            let streams = [open("identity").await, open("gzip").await, open("gzip, deflate, br, zstd").await];
            // The newest step, and two batches of the feed.
            for _ in 0..2 {
                fixture.server.pass(Duration::from_secs(5));
            }
            let [plain, sent, same] = streams.map(whole);
            let (plain, sent, same) = (plain.await, sent.await, same.await);
            assert_eq!(String::from_utf8_lossy(&plain).matches("id: ").count(), 3);
            assert!(gunzip(&sent) == plain && gunzip(&same) == plain, "{exprs:?}");
            let is_shared = same == sent;
            parts.push(if is_shared { sent.len() as f64 / plain.len() as f64 } else { f64::INFINITY });
            fixture.server.pass(Duration::from_secs(10));
        }
        assert!(parts.last().is_some_and(|part| *part < compressed), "{exprs:?}: {parts:?}");
    }
}

/// Streams of an organisation hold 64 MiB of events beside the newest. More are released, the
/// oldest first; a stream that was sending them ends, and continues after another request.
#[tokio::test]
async fn events_that_clients_do_not_read_are_released_the_oldest_first() {
    const QUERIES: usize = 100;
    const SERIES: usize = 500;
    let fixture = DataFixture::with_shop().await;
    let (numbers, filler) = ((0..SERIES).map(|n| n.to_string()).collect::<Vec<_>>(), "x".repeat(150));
    let at = [(NOW * 1_000, 1.0)];
    let labels: Vec<_> =
        numbers.iter().map(|n| [("__name__", "wide"), ("filler", &*filler), ("n", n)]).collect();
    fixture.write(&labels.iter().map(|labels| (&labels[..], &at[..])).collect::<Vec<_>>()).await;
    let query = |n: usize| json!({ "id": n.to_string(), "expr": "wide", "step": 1 });
    let set = json!({ "queries": (0..QUERIES).map(query).collect::<Vec<_>>() });

    let mut fast = open_set(&fixture, &fixture.cabinet, set.clone()).await;
    let (state_bytes, _) = fast.take_step(NOW).await;
    assert!(state_bytes > 9 << 20, "{state_bytes}");
    let mut slow = Vec::new();
    for step in 1..=10 {
        // Each has a part of the newest points of another step.
        let mut stream = open_set(&fixture, &fixture.cabinet, set.clone()).await;
        assert_eq!(stream.piece().await.as_deref(), Some("retry: 2000\n\n"));
        assert_eq!(stream.piece().await.expect("a piece").len(), 64 << 10);
        slow.push(stream);
        fixture.server.pass(Duration::from_secs(1));
        fast.take_step(NOW + step).await.1.expect("a fast stream continues");
    }
    let (bytes, ended) = slow.remove(0).take_step(NOW).await;
    assert!(ended.is_none() && bytes < 1 << 20, "the oldest has ended: {bytes}");
    let (_, newest) = slow.pop().expect("ten").take_step(NOW + 10).await;
    newest.expect("the newest gets its points and those of the last step");
    let mut request = set_request(&fixture.cabinet, &set);
    request.headers_mut().insert("last-event-id", ((NOW + 9) * 1_000).to_string().parse().expect("a value"));
    let (bytes, resumed) = Stream::of(&fixture, request).await.take_step(NOW + 10).await;
    assert!(resumed.is_some() && bytes < state_bytes + (1 << 20), "one step: {bytes}");
}

#[tokio::test]
async fn a_set_beyond_its_limits_is_refused() {
    let fixture = DataFixture::with_shop().await;
    let send = async |body: Value| fixture.server.send(set_request(&fixture.cabinet, &body)).await;
    let up = |id: String| json!({ "id": id, "expr": "up" });
    let many = send(json!({ "queries": (0..101).map(|n| up(n.to_string())).collect::<Vec<_>>() })).await;
    many.is(422, "validation_failed");
    assert_eq!(many.value()["limit"], 100);
    send(json!({ "queries": [] })).await.is(422, "validation_failed");
    send(json!({ "queries": [up("A".into()), up("A".into())] })).await.is(422, "validation_failed");
    send(json!({ "queries": [up(String::new())] })).await.is(422, "validation_failed");
    send(json!({ "queries": [up("x".repeat(65))] })).await.is(422, "validation_failed");
    send(json!({ "queries": [up("A".into())], "other": 1 })).await.is(422, "validation_failed");
    send(json!({ "queries": [up("A".into())], "since": "soon" })).await.is(400, "invalid_parameter");
    send(json!({ "queries": [up("x".repeat(300_000))] })).await.is(413, "body_too_large");
    let token = fixture.embed(json!({ "endpoints": ["range"] })).await;
    let body = json!({ "queries": [up("A".into())] });
    fixture.server.send(set_request(&token, &body)).await.is(403, "embed_restricted");
}

#[tokio::test]
async fn a_set_of_a_credential_that_ends_ends_within_a_second_of_the_next_check() {
    let fixture = DataFixture::with_shop().await;
    let (key, _) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["embed"] })).await;
    let token = fixture.server.token(&fixture.cabinet, &key, json!({})).await;
    let body = json!({ "queries": [{ "id": "A", "expr": "up", "step": "1h" }] });
    let mut revoked = open_set(&fixture, &token, body.clone()).await;
    let in_gzip = coded(&fixture, &token, &body, "gzip").await;
    let mut other = open_set(&fixture, &fixture.cabinet, body).await;
    let hour = NOW - NOW % 3_600;
    assert_eq!(moment(&mut revoked).await.0, hour);
    assert_eq!(moment(&mut other).await.0, hour);
    let path = format!("/api/v1/orgs/acme/api-keys/{key}");
    assert!(fixture.server.json("DELETE", &path, &fixture.cabinet, json!({})).await.status.is_success());
    assert_eq!(revoked.end().await, "token_invalid");
    let ended = gunzip(&whole(in_gzip).await);
    assert!(String::from_utf8_lossy(&ended).contains("event: end\ndata: {"));
    // The set is shared with another caller, whose stream continues.
    fixture.server.pass(Duration::from_secs(3_600));
    assert_eq!(moment(&mut other).await.0, hour + 3_600);
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
