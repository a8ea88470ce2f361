//! What any request may meet, on every route there is: the rows are walked, one refusal after the other. What only one
//! route refuses has its own test; `openapi::every_documented_answer_is_given_by_its_route` looks whether all have one.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, header};
use promlet::api::ApiOptions;
use promlet::api::error::Code;
use promlet::api::lanes::{LaneOptions, LanesOptions};
use promlet::api::routes::{Auth, RouteDoc};
use promlet::api::starting::SwitchableApp;
use serde_json::Value;

use crate::house::{House, Plan, Who, ask};

/// The rows that somebody described: all but the tests' own probes.
pub(crate) fn rows(house: &House) -> Vec<RouteDoc> {
    house.rows.iter().filter(|row| !row.path.contains("probe")).cloned().collect()
}

/// A path that leads there; whether anything is there is not asked before what is refused here.
fn path(row: &RouteDoc) -> String {
    let filled = row.path.replace("{slug}", "acme").replace("{provider}", "oidc");
    let parts = filled.split('/').map(|part| if part.starts_with('{') { "none" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// The document's word on whether a route reads a body, and whether it is JSON.
fn takes(document: &Value, row: &RouteDoc) -> (bool, bool) {
    let body = &document["paths"][&row.path][row.method.to_ascii_lowercase()]["requestBody"]["content"];
    // JSON of samples is what its format says, and refused as other samples are.
    (body.is_object(), body["application/json"].is_object() && row.auth != Auth::IngestCaller)
}

pub(crate) async fn document(house: &House) -> Value {
    house.get("/api/v1/openapi.json", &Who::Nobody).await.value()
}

/// A house where nobody runs out of requests.
fn roomy() -> House {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.limits.cabinet_rps = 1_000_000;
    options.limits.anonymous_rps = 1_000_000;
    House::build(Plan { options, ..Plan::default() })
}

/// Sends what `make` makes of each row, and answers which rows did not answer `code`.
async fn walk(house: &House, code: Code, make: impl Fn(&RouteDoc) -> Option<Request<Body>>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut asked = 0;
    for row in rows(house) {
        let Some(request) = make(&row) else { continue };
        asked += 1;
        let reply = house.send(request).await;
        if !reply.refuses(code) {
            wrong.push(format!("{} {}: {} {}", row.method, row.path, reply.status, reply.body));
        }
    }
    assert!(asked > 10, "{asked} rows");
    wrong
}

fn empty(row: &RouteDoc, who: &Who) -> axum::http::request::Builder {
    ask(row.method, &path(row), who)
}

fn done(request: axum::http::request::Builder) -> Option<Request<Body>> {
    Some(request.body(Body::empty()).expect("a request"))
}

#[tokio::test]
async fn every_route_refuses_what_is_no_request_for_this_server() {
    let house = roomy();
    let nobody = Who::Nobody;
    let two_hosts = |row: &RouteDoc| done(empty(row, &nobody).header(header::HOST, "127.0.0.1:8095"));
    assert_eq!(walk(&house, Code::BadRequest, two_hosts).await, [] as [&str; 0]);
    let foreign = |row: &RouteDoc| {
        let mut request = done(empty(row, &nobody))?;
        request.headers_mut().insert(header::HOST, header::HeaderValue::from_static("evil.example:8095"));
        Some(request)
    };
    assert_eq!(walk(&house, Code::HostNotAllowed, foreign).await, [] as [&str; 0]);
    let long = format!("?x={}", "y".repeat(17 << 10));
    let long = |row: &RouteDoc| done(ask(row.method, &format!("{}{long}", path(row)), &nobody));
    assert_eq!(walk(&house, Code::UriTooLong, long).await, [] as [&str; 0]);
    let codeless = |row: &RouteDoc| done(empty(row, &nobody).header("accept-encoding", "br, *;q=0"));
    assert_eq!(walk(&house, Code::NotAcceptable, codeless).await, [] as [&str; 0]);
    let large = |row: &RouteDoc| done(empty(row, &nobody).header(header::CONTENT_LENGTH, "9000000"));
    assert_eq!(walk(&house, Code::BodyTooLarge, large).await, [] as [&str; 0]);
}

#[tokio::test]
async fn every_route_that_changes_something_refuses_other_sites() {
    let house = roomy();
    let cabinet = house.log_in().await;
    let cross = |row: &RouteDoc| match row.method {
        "GET" => None,
        _ => done(empty(row, &cabinet).header("sec-fetch-site", "cross-site")),
    };
    assert_eq!(walk(&house, Code::CsrfRejected, cross).await, [] as [&str; 0]);
    assert_eq!(house.get("/auth/me", &cabinet).await.status, 200, "nothing happened");
}

/// A body that never ends.
struct Stalled;

impl HttpBody for Stalled {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Poll::Pending
    }
}

#[tokio::test]
async fn every_route_that_reads_a_body_refuses_one_that_is_slow_or_none() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.limits.cabinet_rps = 1_000_000;
    let soon = Duration::from_millis(5);
    options.body_deadlines.other = soon;
    options.body_deadlines.ingest = soon;
    let house = House::build(Plan { options, ..Plan::default() });
    let cabinet = house.log_in().await;
    let document = document(&house).await;
    let media = |row: &RouteDoc| match row.auth {
        Auth::IngestCaller if row.path.contains("/import") => "text/plain",
        Auth::IngestCaller => "application/x-protobuf",
        Auth::PrometheusCaller(_) => "application/x-www-form-urlencoded",
        _ => "application/json",
    };
    let slow = |row: &RouteDoc| {
        let request = empty(row, &cabinet).header(header::CONTENT_TYPE, media(row));
        takes(&document, row).0.then(|| request.body(Body::new(Stalled)).expect("a request"))
    };
    assert_eq!(walk(&house, Code::RequestTimeout, slow).await, [] as [&str; 0]);
    let with = |media: &'static str, text: &'static str| {
        let (document, cabinet) = (&document, &cabinet);
        move |row: &RouteDoc| {
            let request = empty(row, cabinet).header(header::CONTENT_TYPE, media);
            takes(document, row).1.then(|| request.body(Body::from(text)).expect("a request"))
        }
    };
    assert_eq!(walk(&house, Code::UnsupportedMediaType, with("text/plain", "{}")).await, [] as [&str; 0]);
    assert_eq!(walk(&house, Code::InvalidJson, with("application/json", "{")).await, [] as [&str; 0]);
    assert_eq!(walk(&house, Code::ValidationFailed, with("application/json", "[]")).await, [] as [&str; 0]);
}

#[tokio::test]
async fn every_route_for_somebody_refuses_an_authorization_header_that_holds_nobody() {
    let house = roomy();
    let public = |row: &RouteDoc| matches!(row.auth, Auth::Public | Auth::Operator);
    let nobody = |row: &RouteDoc| {
        let request = empty(row, &Who::Nobody).header(header::AUTHORIZATION, "Digest x");
        if public(row) { None } else { done(request) }
    };
    assert_eq!(walk(&house, Code::TokenInvalid, nobody).await, [] as [&str; 0]);
}

/// The document's word on whether a route may refuse with `code`.
pub(crate) fn says(document: &Value, row: &RouteDoc, code: Code) -> bool {
    let responses = &document["paths"][&row.path][row.method.to_ascii_lowercase()]["responses"];
    responses[code.status().as_str()].to_string().contains(&format!("`{}`", code.as_str()))
}

fn full(lanes: LanesOptions) -> LanesOptions {
    let full = |lane| LaneOptions { queue: 0, ..lane };
    LanesOptions {
        ingest: full(lanes.ingest),
        query: full(lanes.query),
        answer: full(lanes.answer),
        password: full(lanes.password),
        account: full(lanes.account),
        ..lanes
    }
}

const OUT: &str = "/api/v1/auth/logout";

/// docs/specification.md D1: after ten minutes the use of a session is stored before the answer, whatever the question is.
const LATER: Duration = Duration::from_secs(11 * 60);

#[tokio::test]
async fn every_route_of_the_api_says_that_the_disk_takes_nothing() {
    let house = roomy();
    let ada = house.log_in().await;
    house.pass(LATER);
    house.break_the_disk();
    let document = document(&house).await;
    // Logging out works in memory: it is the next test's.
    let asks = |row: &RouteDoc| says(&document, row, Code::StorageDegraded) && row.path != OUT;
    let request = |row: &RouteDoc| if asks(row) { done(empty(row, &ada)) } else { None };
    assert_eq!(walk(&house, Code::StorageDegraded, request).await, [] as [&str; 0]);
}

/// What it could not store it still did.
#[tokio::test]
async fn who_logs_out_of_a_server_that_stores_nothing_is_told_so_and_is_out() {
    let house = roomy();
    let ada = house.log_in().await;
    house.pass(LATER);
    house.break_the_disk();
    house.post(OUT, &ada, Value::Null).await.is(503, "storage_degraded");
    house.get("/api/v1/auth/me", &ada).await.is(401, "session_invalid");
    house.post(OUT, &ada, Value::Null).await.is(503, "storage_degraded");
    let never = Who::Cookie(format!("ses_{}", "A".repeat(43)));
    assert_eq!(house.post(OUT, &never, Value::Null).await.status, 204, "nothing stands of that one");
}

/// docs/specification.md D1: an expiry is answered once its row is gone, and a logout says no more than that either.
#[tokio::test]
async fn a_session_that_ran_out_is_not_said_to_be_gone_while_it_stands_on_the_disk() {
    let house = roomy();
    let ada = house.log_in().await;
    house.pass(Duration::from_secs(31 * 86_400));
    house.break_the_disk();
    for _ in 0..2 {
        house.post(OUT, &ada, Value::Null).await.is(503, "storage_degraded");
        house.get("/api/v1/auth/me", &ada).await.is(503, "storage_degraded");
    }
}

#[tokio::test]
async fn who_revokes_sessions_on_a_server_that_stores_nothing_is_told_so_each_time() {
    let house = roomy();
    let (here, there, third) = (house.log_in().await, house.log_in().await, house.log_in().await);
    let path = format!(
        "/api/v1/auth/sessions/{}",
        house.get("/api/v1/auth/me", &there).await.value()["session"]["id"].as_str().expect("an id")
    );
    house.break_the_disk();
    for _ in 0..2 {
        house.delete(&path, &here).await.is(503, "storage_degraded");
        house.get("/api/v1/auth/me", &there).await.is(401, "session_invalid");
    }
    house.delete("/api/v1/auth/sessions", &here).await.is(503, "storage_degraded");
    house.get("/api/v1/auth/me", &third).await.is(401, "session_invalid");
    house.post(OUT, &third, Value::Null).await.is(503, "storage_degraded");
    assert_eq!(house.get("/api/v1/auth/me", &here).await.status, 200, "one's own is kept");
}

/// The lanes are one reason, places for connections the other; see
/// `edge::every_route_is_told_to_come_back_when_connections_run_out`.
#[tokio::test]
async fn every_route_that_works_on_a_lane_says_that_it_is_full() {
    let plan = Plan { lanes: full(LanesOptions::for_cores(2)), ..Plan::default() };
    let house = House::build(plan);
    let ada = house.log_in_from_within();
    house.pass(LATER);
    let document = document(&house).await;
    let anonymous = ["/auth/providers", "/openapi.json", "/-/healthy", "/-/ready"];
    let asks = |row: &RouteDoc| {
        says(&document, row, Code::Busy) && !anonymous.iter().any(|path| row.path.ends_with(path))
    };
    let lane = |row: &RouteDoc| if asks(row) { done(empty(row, &ada)) } else { None };
    assert_eq!(walk(&house, Code::Busy, lane).await, [] as [&str; 0]);
}

/// Listings read every row of their kind: not on the thread of a connection, which others wait for.
#[tokio::test]
async fn listings_of_accounts_are_read_on_a_lane() {
    let house = House::build(Plan { lanes: full(LanesOptions::for_cores(2)), ..Plan::default() });
    let ada = house.log_in_from_within();
    let listings = ["/admin/users", "/admin/orgs", "/admin/stats", "/admin/audit"];
    let of_org = ["/orgs/acme/members", "/orgs/acme/invites", "/orgs/acme/audit"];
    for path in listings.into_iter().chain(of_org) {
        house.get(&format!("/api/v1{path}"), &ada).await.is(503, "busy");
    }
}

#[tokio::test]
async fn every_route_says_that_the_server_is_starting() {
    let mut house = roomy();
    let ada = house.log_in().await;
    let all = document(&house).await;
    let options = ApiOptions::new("http://127.0.0.1:8095");
    let counters = Arc::clone(&house.counters);
    house.router = SwitchableApp::starting(Arc::default(), &options, counters).expect("options fit").app();
    let asks = |row: &RouteDoc| says(&all, row, Code::Starting);
    let starting = |row: &RouteDoc| if asks(row) { done(empty(row, &ada)) } else { None };
    assert_eq!(walk(&house, Code::Starting, starting).await, [] as [&str; 0]);
    assert_eq!(house.get("/healthz", &Who::Nobody).await.body, "ok");
    // It has a body of its own, whatever it says.
    let ready = house.get("/readyz", &Who::Nobody).await;
    assert_eq!((ready.status.as_u16(), ready.text("status").as_str()), (503, "starting"));
    assert_eq!(ready.header("retry-after"), "2");
    assert!(ready.value()["recovery"]["elapsed_s"].is_number(), "{}", ready.body);
}

/// Whatever a handler does, its panic ends its request with a body in the form of its path.
#[tokio::test]
async fn every_route_survives_a_panic_of_its_handler() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.limits.cabinet_rps = 1_000_000;
    let house = House::build(Plan { options, panics: true, ..Plan::default() });
    let ada = house.log_in_from_within();
    let every = |row: &RouteDoc| done(empty(row, &ada));
    assert_eq!(walk(&house, Code::Internal, every).await, [] as [&str; 0]);
}

/// docs/specification.md B3: who has no credential shares a bucket with the whole address.
#[tokio::test]
async fn every_route_of_the_api_refuses_who_asks_too_often() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.limits.anonymous_rps = 1;
    let house = House::build(Plan { options, ..Plan::default() });
    let mut last = house.get("/api/v1/orgs", &Who::Nobody).await;
    while last.status == 401 {
        last = house.get("/api/v1/orgs", &Who::Nobody).await;
    }
    last.is(429, "rate_limited");
    let again = |row: &RouteDoc| match row.path.starts_with("/api/") && row.path != OUT {
        true => done(empty(row, &Who::Nobody)),
        false => None,
    };
    assert_eq!(walk(&house, Code::RateLimited, again).await, [] as [&str; 0]);
    // Whoever wants out gets out.
    let request = done(ask("POST", OUT, &Who::Nobody)).expect("a request");
    assert_eq!(house.send(request).await.status, 204);
}
