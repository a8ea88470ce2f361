//! Errors that any request can get, on every route: the routes are iterated, one error after the
//! other. Errors of single routes have their own tests;
//! `whole_document::every_documented_response_is_given_by_its_route` checks that none is missing.

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

use crate::test_server::{TestServer, TestServerOptions, Who, ask, is_test_route};

/// The described routes: all except the tests' own probes.
pub(crate) fn rows(server: &TestServer) -> Vec<RouteDoc> {
    server.rows.iter().filter(|row| !is_test_route(&row.path)).cloned().collect()
}

/// A path of the route. The errors here precede any lookup, so its parameters need not exist.
fn path(row: &RouteDoc) -> String {
    let filled = row.path.replace("{slug}", "acme").replace("{provider}", "oidc");
    let filled = filled.replace("{grouping}", "job%2Fa");
    let parts = filled.split('/').map(|part| if part.starts_with('{') { "none" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// Whether the document says that a route reads a body, and whether that is JSON.
fn takes(document: &Value, row: &RouteDoc) -> (bool, bool) {
    let body = &document["paths"][&row.path][row.method.to_ascii_lowercase()]["requestBody"]["content"];
    // JSON of samples is what its format says, and refused as other samples are.
    (body.is_object(), body["application/json"].is_object() && row.auth != Auth::IngestCaller)
}

pub(crate) async fn document(server: &TestServer) -> Value {
    server.get("/api/v1/openapi.json", &Who::Nobody).await.value()
}

/// A server with limits that no test reaches.
fn unlimited() -> TestServer {
    TestServer::build(TestServerOptions { options: unlimited_options(), ..TestServerOptions::default() })
}

fn unlimited_options() -> ApiOptions {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.limits.cabinet_rps = 1_000_000;
    options.limits.anonymous_rps = 1_000_000;
    options
}

/// Sends the request of `make` to each route. Returns the routes that did not answer `code`.
async fn walk(
    server: &TestServer,
    code: Code,
    make: impl Fn(&RouteDoc) -> Option<Request<Body>>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut asked = 0;
    for row in rows(server) {
        let Some(request) = make(&row) else { continue };
        asked += 1;
        let reply = server.send(request).await;
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
async fn every_route_refuses_invalid_requests() {
    let server = unlimited();
    let nobody = Who::Nobody;
    let two_hosts = |row: &RouteDoc| done(empty(row, &nobody).header(header::HOST, "127.0.0.1:8095"));
    assert_eq!(walk(&server, Code::BadRequest, two_hosts).await, [] as [&str; 0]);
    let foreign = |row: &RouteDoc| {
        let mut request = done(empty(row, &nobody))?;
        request.headers_mut().insert(header::HOST, header::HeaderValue::from_static("evil.example:8095"));
        Some(request)
    };
    assert_eq!(walk(&server, Code::HostNotAllowed, foreign).await, [] as [&str; 0]);
    let long = format!("?x={}", "y".repeat(17 << 10));
    let long = |row: &RouteDoc| done(ask(row.method, &format!("{}{long}", path(row)), &nobody));
    assert_eq!(walk(&server, Code::UriTooLong, long).await, [] as [&str; 0]);
    let codeless = |row: &RouteDoc| done(empty(row, &nobody).header("accept-encoding", "br, *;q=0"));
    assert_eq!(walk(&server, Code::NotAcceptable, codeless).await, [] as [&str; 0]);
    let large = |row: &RouteDoc| done(empty(row, &nobody).header(header::CONTENT_LENGTH, "9000000"));
    assert_eq!(walk(&server, Code::BodyTooLarge, large).await, [] as [&str; 0]);
}

#[tokio::test]
async fn every_route_that_changes_state_refuses_other_sites() {
    let server = unlimited();
    let cabinet = server.log_in().await;
    let cross = |row: &RouteDoc| match row.method {
        "GET" => None,
        _ => done(empty(row, &cabinet).header("sec-fetch-site", "cross-site")),
    };
    assert_eq!(walk(&server, Code::CsrfRejected, cross).await, [] as [&str; 0]);
    assert_eq!(server.get("/auth/me", &cabinet).await.status, 200, "nothing happened");
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
async fn every_route_that_reads_a_body_refuses_slow_and_invalid_ones() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.limits.cabinet_rps = 1_000_000;
    let soon = Duration::from_millis(5);
    options.body_deadlines.other = soon;
    options.body_deadlines.ingest = soon;
    let server = TestServer::build(TestServerOptions { options, ..TestServerOptions::default() });
    let cabinet = server.log_in().await;
    let document = document(&server).await;
    let media = |row: &RouteDoc| match row.auth {
        Auth::IngestCaller
            if ["/import", "/influx/", "/push/"].iter().any(|part| row.path.contains(part)) =>
        {
            "text/plain"
        }
        Auth::IngestCaller if row.path.contains("/alertmanager/") => "application/json",
        Auth::AlertingCaller if row.path.contains("/config/v1/rules") => "application/yaml",
        Auth::IngestCaller => "application/x-protobuf",
        Auth::PrometheusCaller(_) if !row.path.ends_with("/batch") => "application/x-www-form-urlencoded",
        _ => "application/json",
    };
    let slow = |row: &RouteDoc| {
        let request = empty(row, &cabinet).header(header::CONTENT_TYPE, media(row));
        takes(&document, row).0.then(|| request.body(Body::new(Stalled)).expect("a request"))
    };
    assert_eq!(walk(&server, Code::RequestTimeout, slow).await, [] as [&str; 0]);
    let with = |media: &'static str, text: &'static str| {
        let (document, cabinet) = (&document, &cabinet);
        move |row: &RouteDoc| {
            let request = empty(row, cabinet).header(header::CONTENT_TYPE, media);
            takes(document, row).1.then(|| request.body(Body::from(text)).expect("a request"))
        }
    };
    assert_eq!(walk(&server, Code::UnsupportedMediaType, with("text/plain", "{}")).await, [] as [&str; 0]);
    assert_eq!(walk(&server, Code::InvalidJson, with("application/json", "{")).await, [] as [&str; 0]);
    assert_eq!(walk(&server, Code::ValidationFailed, with("application/json", "[]")).await, [] as [&str; 0]);
}

#[tokio::test]
async fn every_route_with_credentials_refuses_an_invalid_authorization_header() {
    let server = unlimited();
    let public = |row: &RouteDoc| matches!(row.auth, Auth::Public | Auth::Operator);
    let nobody = |row: &RouteDoc| {
        let request = empty(row, &Who::Nobody).header(header::AUTHORIZATION, "Digest x");
        if public(row) { None } else { done(request) }
    };
    assert_eq!(walk(&server, Code::TokenInvalid, nobody).await, [] as [&str; 0]);
}

/// Whether the document says that a route may answer `code`.
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

/// docs/specification.md D1: after ten minutes the use of a session is stored before the response
/// of any route.
const LATER: Duration = Duration::from_secs(11 * 60);

#[tokio::test]
async fn every_route_of_the_api_reports_a_disk_that_stores_nothing() {
    let server = unlimited();
    let ada = server.log_in().await;
    server.pass(LATER);
    server.break_the_disk();
    let document = document(&server).await;
    // The logout works in memory; the next test covers it.
    // What is always refused needs no session.
    let asks = |row: &RouteDoc| {
        says(&document, row, Code::StorageDegraded) && row.path != OUT && !row.path.ends_with("/native")
    };
    let request = |row: &RouteDoc| if asks(row) { done(empty(row, &ada)) } else { None };
    assert_eq!(walk(&server, Code::StorageDegraded, request).await, [] as [&str; 0]);
}

/// The logout takes effect although it cannot be stored.
#[tokio::test]
async fn a_logout_that_cannot_be_stored_is_reported_and_takes_effect() {
    let server = unlimited();
    let ada = server.log_in().await;
    server.pass(LATER);
    server.break_the_disk();
    server.post(OUT, &ada, Value::Null).await.is(503, "storage_degraded");
    server.get("/api/v1/auth/me", &ada).await.is(401, "session_invalid");
    server.post(OUT, &ada, Value::Null).await.is(503, "storage_degraded");
    let never = Who::Cookie(format!("ses_{}", "A".repeat(43)));
    assert_eq!(server.post(OUT, &never, Value::Null).await.status, 204, "nothing stands of that one");
}

/// docs/specification.md D1: an expiry is answered once its row is removed, and a logout does not
/// say more.
#[tokio::test]
async fn an_expired_session_is_not_called_ended_while_its_row_is_on_the_disk() {
    let server = unlimited();
    let ada = server.log_in().await;
    server.pass(Duration::from_secs(31 * 86_400));
    server.break_the_disk();
    for _ in 0..2 {
        server.post(OUT, &ada, Value::Null).await.is(503, "storage_degraded");
        server.get("/api/v1/auth/me", &ada).await.is(503, "storage_degraded");
    }
}

#[tokio::test]
async fn revocations_that_cannot_be_stored_are_reported_each_time() {
    let server = unlimited();
    let (here, there, third) = (server.log_in().await, server.log_in().await, server.log_in().await);
    let path = format!(
        "/api/v1/auth/sessions/{}",
        server.get("/api/v1/auth/me", &there).await.value()["session"]["id"].as_str().expect("an id")
    );
    server.break_the_disk();
    for _ in 0..2 {
        server.delete(&path, &here).await.is(503, "storage_degraded");
        server.get("/api/v1/auth/me", &there).await.is(401, "session_invalid");
    }
    server.delete("/api/v1/auth/sessions", &here).await.is(503, "storage_degraded");
    server.get("/api/v1/auth/me", &third).await.is(401, "session_invalid");
    server.post(OUT, &third, Value::Null).await.is(503, "storage_degraded");
    assert_eq!(server.get("/api/v1/auth/me", &here).await.status, 200, "one's own is kept");
}

/// Full lanes are one cause, exhausted connections the other; see
/// `edge::every_route_answers_busy_when_connections_run_out`.
#[tokio::test]
async fn every_route_on_a_lane_answers_busy_when_it_is_full() {
    let lanes = full(LanesOptions::for_cores(2));
    let options = unlimited_options();
    let server = TestServer::build(TestServerOptions { lanes, options, ..TestServerOptions::default() });
    let ada = server.log_in_from_within();
    server.pass(LATER);
    let document = document(&server).await;
    let anonymous =
        ["/auth/providers", "/openapi.json", "/-/healthy", "/-/ready", "/health", "/ping", "/native"];
    let asks = |row: &RouteDoc| {
        says(&document, row, Code::Busy) && !anonymous.iter().any(|path| row.path.ends_with(path))
    };
    let lane = |row: &RouteDoc| if asks(row) { done(empty(row, &ada)) } else { None };
    assert_eq!(walk(&server, Code::Busy, lane).await, [] as [&str; 0]);
}

/// Listings read every row of their kind, so they run on a lane, not on a connection's thread,
/// where other connections wait.
#[tokio::test]
async fn listings_of_accounts_are_read_on_a_lane() {
    let server = TestServer::build(TestServerOptions {
        lanes: full(LanesOptions::for_cores(2)),
        ..TestServerOptions::default()
    });
    let ada = server.log_in_from_within();
    let listings = ["/admin/users", "/admin/orgs", "/admin/stats", "/admin/audit"];
    let of_org = ["/orgs/acme/members", "/orgs/acme/invites", "/orgs/acme/audit"];
    for path in listings.into_iter().chain(of_org) {
        server.get(&format!("/api/v1{path}"), &ada).await.is(503, "busy");
    }
}

#[tokio::test]
async fn every_route_answers_starting_while_the_server_starts() {
    let mut server = unlimited();
    let ada = server.log_in().await;
    let all = document(&server).await;
    let options = ApiOptions::new("http://127.0.0.1:8095");
    let counters = Arc::clone(&server.counters);
    server.router = SwitchableApp::starting(Arc::default(), &options, counters).expect("options fit").app();
    let asks = |row: &RouteDoc| says(&all, row, Code::Starting);
    let starting = |row: &RouteDoc| if asks(row) { done(empty(row, &ada)) } else { None };
    assert_eq!(walk(&server, Code::Starting, starting).await, [] as [&str; 0]);
    assert_eq!(server.get("/healthz", &Who::Nobody).await.body, "ok");
    // It has a body of its own, whatever it says.
    let ready = server.get("/readyz", &Who::Nobody).await;
    assert_eq!((ready.status.as_u16(), ready.text("status").as_str()), (503, "starting"));
    assert_eq!(ready.header("retry-after"), "2");
    assert!(ready.value()["recovery"]["elapsed_s"].is_number(), "{}", ready.body);
}

/// A handler's panic ends its request with an error body in the form of its path.
#[tokio::test]
async fn every_route_survives_a_panic_of_its_handler() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.limits.cabinet_rps = 1_000_000;
    let server =
        TestServer::build(TestServerOptions { options, panics: true, ..TestServerOptions::default() });
    let ada = server.log_in_from_within();
    let every = |row: &RouteDoc| done(empty(row, &ada));
    assert_eq!(walk(&server, Code::Internal, every).await, [] as [&str; 0]);
}

/// docs/specification.md B3: requests without a credential share a bucket per address.
#[tokio::test]
async fn every_route_of_the_api_is_rate_limited() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.limits.anonymous_rps = 1;
    let server = TestServer::build(TestServerOptions { options, ..TestServerOptions::default() });
    let mut last = server.get("/api/v1/orgs", &Who::Nobody).await;
    while last.status == 401 {
        last = server.get("/api/v1/orgs", &Who::Nobody).await;
    }
    last.is(429, "rate_limited");
    let again = |row: &RouteDoc| match row.path.starts_with("/api/") && row.path != OUT {
        true => done(empty(row, &Who::Nobody)),
        false => None,
    };
    assert_eq!(walk(&server, Code::RateLimited, again).await, [] as [&str; 0]);
    // A logout is never refused.
    let request = done(ask("POST", OUT, &Who::Nobody)).expect("a request");
    assert_eq!(server.send(request).await.status, 204);
}
