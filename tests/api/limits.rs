//! Rate limits and memory limits (docs/specification.md B3, F40).

use std::convert::Infallible;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::Frame;
use serde_json::json;

use crate::test_server::{TestServer, TestServerOptions, Who, ask, ask_from, signed};

const RANGE: &str = "/api/v1/orgs/acme/query/probe-range";

/// `[spec]`: 60 requests a second of one session.
#[tokio::test]
async fn the_sixty_first_request_of_a_session_in_a_second_is_refused() {
    let server = TestServer::new();
    let (cabinet, other) = (server.log_in().await, server.log_in().await);
    for n in 0..60 {
        // Every request with the cookie counts, for any path and either mount.
        let path = ["/api/v1/auth/me", "/auth/me", "/api/v1/orgs", "/api/v1/nothing", RANGE][n % 5];
        let reply = server.get(path, &cabinet).await;
        assert_ne!(reply.status, 429, "request {n}");
        assert_eq!(reply.header("ratelimit-policy"), "\"cabinet\";q=60;w=1");
        assert_eq!(reply.header("ratelimit"), format!("\"cabinet\";r={};t=1", 59 - n));
    }
    server.pass(Duration::from_millis(250));
    let reply = server.get("/auth/me", &cabinet).await;
    reply.is(429, "rate_limited");
    let body = reply.value();
    assert_eq!(
        (&body["limit"], &body["window_s"], &body["scope"]),
        (&json!(60), &json!(1), &json!("session"))
    );
    assert_eq!(body["retry_after_ms"], 750);
    assert_eq!(reply.header("retry-after"), "1");
    assert_eq!(reply.header("ratelimit"), "\"cabinet\";r=0;t=1");
    assert_eq!(reply.session_cookie().as_deref(), Some(cabinet.secret()), "refused and still renewed");
    assert_eq!(server.get("/auth/me", &other).await.status, 200, "another session has its own window");
    server.pass(Duration::from_millis(749));
    server.get("/auth/me", &cabinet).await.is(429, "rate_limited");
    server.pass(Duration::from_millis(1));
    assert_eq!(server.get("/auth/me", &cabinet).await.status, 200);
}

#[tokio::test]
async fn a_logout_is_counted_and_never_refused() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    for _ in 0..60 {
        server.get("/auth/me", &cabinet).await;
    }
    server.get("/auth/me", &cabinet).await.is(429, "rate_limited");
    assert_eq!(server.post("/api/v1/auth/logout", &cabinet, json!({})).await.status, 204);
    server.get("/auth/me", &cabinet).await.is(401, "session_invalid");
}

/// docs/specification.md B3: requests to the API and its alias are counted, page requests with a
/// cookie are not.
#[tokio::test]
async fn pages_are_not_counted() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    for n in 0..300 {
        let reply = server.get(["/", "/login", "/app.js", "/healthz"][n % 4], &cabinet).await;
        assert_eq!((reply.status.as_u16(), reply.headers.get("ratelimit")), (200, None));
    }
    assert_eq!(server.get("/auth/me", &cabinet).await.header("ratelimit"), "\"cabinet\";r=59;t=1");
}

#[tokio::test]
async fn rates_of_a_key_are_bounded() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let make = |part: &str, field: &str, value: u64| {
        let body = json!({ "name": "x", "scopes": ["embed", "ingest", "read"], part: { field: value } });
        server.post("/api/v1/orgs/acme/api-keys", &cabinet, body)
    };
    for (part, field, most) in [
        ("read", "rate_limit_rps", 100_000),
        ("embed", "rate_limit_rps", 10_000),
        ("ingest", "rate_limit_rps", 10_000),
        ("ingest", "samples_per_s", 100_000_000),
    ] {
        for (value, status) in [(0, 422), (1, 201), (most, 201), (most + 1, 422)] {
            let reply = make(part, field, value).await;
            assert_eq!(reply.status.as_u16(), status, "{part}.{field} {value}: {}", reply.body);
            if status == 422 {
                let fields = reply.value()["errors"].to_string();
                assert!(fields.contains(&format!("{part}.{field}")), "{fields}");
            }
        }
    }
    let reply =
        server.post("/api/v1/orgs/acme/api-keys", &cabinet, json!({ "name": "x", "scopes": ["embed"] }));
    let made = reply.await.value();
    let rates = (&made["embed"]["rate_limit_rps"], &made["ingest"]["rate_limit_rps"]);
    assert_eq!((rates, &made["ingest"]["samples_per_s"]), ((&json!(100), &json!(100)), &json!(2_000_000)));
    assert_eq!(made["read"]["rate_limit_rps"], 1_000);
}

#[tokio::test]
async fn an_address_without_a_credential_has_two_hundred_requests_a_second() {
    let server = TestServer::new();
    let ask = |peer: &str| {
        let request = ask_from(peer, "GET", "/api/v1/orgs/acme", &Who::Nobody);
        server.send(request.body(Body::empty()).expect("a request"))
    };
    for n in 0..200 {
        // An IPv6 network counts as one address.
        let reply = ask(&format!("[2001:db8::{n:x}]:1")).await;
        assert_eq!(reply.status, 401, "{n}");
    }
    let refused = ask("[2001:db8::ffff]:1").await;
    refused.is(429, "rate_limited");
    let body = refused.value();
    assert_eq!((&body["limit"], &body["window_s"], &body["scope"]), (&json!(200), &json!(1), &json!("ip")));
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(refused.header("ratelimit-policy"), "\"ip\";q=200;w=1");
    assert_eq!(ask("[2001:db8:0:1::1]:1").await.status, 401, "another network");
    server.pass(Duration::from_secs(1));
    assert_eq!(ask("[2001:db8::1]:1").await.status, 401);
}

/// docs/specification.md B3, the last row: the server's default timeouts.
#[test]
fn the_timeouts_of_a_connection_are_the_documented_ones() {
    use promlet::api::body::BodyDeadlines;
    use promlet::api::edge::EdgeOptions;

    let edge = EdgeOptions::default();
    let seconds = [edge.header_timeout, edge.idle_timeout].map(|time| time.as_secs());
    assert_eq!(seconds, [10, 75]);
    assert_eq!((edge.connections_max, edge.connections_per_ip, edge.connections_reserved), (1_024, 128, 16));
    assert_eq!((edge.known_connections_max, edge.connections_per_session), (15 * 1_024, 128));
    assert_eq!((edge.header_bytes_max, edge.headers_max), (64 * 1_024, 100));
    let BodyDeadlines { ingest, other, .. } = BodyDeadlines::default();
    assert_eq!((other.as_secs(), ingest.as_secs()), (30, 60));
}

/// `[spec]`: a configurable limit per API key, shared by all of its tokens.
#[tokio::test]
async fn all_tokens_of_a_key_share_its_window() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (default, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let (slow, secret) =
        server.key(&cabinet, json!({ "scopes": ["embed", "read"], "embed": { "rate_limit_rps": 5 } })).await;
    for (key, limit) in [(default, 100), (slow, 5)] {
        let mut tokens = Vec::new();
        for sub in ["a", "b", "c"] {
            tokens.push(server.token(&cabinet, &key, json!({ "sub": sub })).await);
        }
        let mut accepted = 0;
        for n in 0..limit + 10 {
            let reply = server.get(RANGE, &tokens[n % 3]).await;
            match reply.status.as_u16() {
                200 => accepted += 1,
                _ => {
                    reply.is(429, "rate_limited");
                    assert_eq!(reply.value()["scope"], "api_key");
                    assert_eq!(reply.value()["errorType"], "too_many_requests");
                }
            }
        }
        assert_eq!(accepted, limit);
    }
    // The key's own queries have a separate window.
    let mount = server.get("/api/v1/orgs/acme/prometheus/api/v1/probe", &Who::Bearer(secret)).await;
    assert_eq!(mount.status, 200, "{}", mount.body);
}

/// A dashboard or a rule group sends hundreds of queries at once.
#[tokio::test]
async fn a_key_that_reads_has_a_separate_window_of_a_thousand_requests() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let mount = "/api/v1/orgs/acme/prometheus/api/v1/probe";
    let (usual, usual_secret) = server.key(&cabinet, json!({ "scopes": ["embed", "read"] })).await;
    let set = json!({ "scopes": ["read"], "read": { "rate_limit_rps": 5 } });
    let (slow, slow_secret) = server.key(&cabinet, set).await;
    for (secret, limit) in [(&usual_secret, 1_000), (&slow_secret, 5)] {
        let who = Who::Bearer(secret.clone());
        for n in 0..limit {
            let reply = server.get(mount, &who).await;
            assert_eq!(reply.status, 200, "{n}: {}", reply.body);
        }
        let refused = server.get(mount, &who).await;
        assert_eq!(refused.status, 429);
        assert_eq!(refused.header("ratelimit-policy"), format!("\"read\";q={limit};w=1"));
        assert_eq!(refused.value()["status"], "error");
    }
    let token = server.token(&cabinet, &usual, json!({})).await;
    assert_eq!(server.get(RANGE, &token).await.header("ratelimit"), "\"embed\";r=99;t=1");
    let path = format!("/api/v1/orgs/acme/api-keys/{slow}");
    let changed = server.json("PATCH", &path, &cabinet, json!({ "read": { "rate_limit_rps": 6 } })).await;
    assert_eq!(changed.value()["read"], json!({ "rate_limit_rps": 6 }));
    assert_eq!(server.get(mount, &Who::Bearer(slow_secret)).await.status, 200);
}

#[tokio::test]
async fn requests_without_a_valid_credential_are_charged_to_their_address() {
    let server = TestServer::new();
    let anonymous = |peer: &str, n: usize| {
        let who = if n.is_multiple_of(2) { Who::Nobody } else { Who::Bearer("a.b.c".into()) };
        ask_from(peer, "GET", "/api/v1/orgs/acme", &who).body(Body::empty()).expect("a request")
    };
    let mut refused = None;
    for n in 0..500 {
        let reply = server.send(anonymous("192.0.2.1:1", n)).await;
        if reply.status == 429 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("refused within 500 requests of one moment");
    refused.is(429, "rate_limited");
    assert_eq!(refused.value()["scope"], "ip");
    assert_eq!(
        server.send(anonymous("192.0.2.2:1", 0)).await.status,
        401,
        "another address is another matter"
    );
    let cabinet = server.log_in().await;
    let mut with_cookie =
        ask_from("192.0.2.1:1", "GET", "/auth/me", &cabinet).body(Body::empty()).expect("a request");
    assert_eq!(
        server.send(std::mem::take(&mut with_cookie)).await.status,
        200,
        "a session is not charged to its address"
    );
}

#[tokio::test]
async fn an_ingest_key_over_its_rate_gets_retry_after() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let ingest =
        json!({ "scopes": ["ingest"], "ingest": { "rate_limit_rps": 3, "samples_per_s": 1_000_000 } });
    let (_, requests) = server.key(&cabinet, ingest).await;
    let ingest = json!({ "scopes": ["ingest"], "ingest": { "samples_per_s": 1_500 } });
    let (_, samples) = server.key(&cabinet, ingest).await;
    for (secret, admitted) in [(requests, 3), (samples, 1)] {
        let who = Who::Bearer(secret);
        let mut stored = 0;
        let refused = loop {
            let reply = server.post("/api/v1/orgs/acme/import/probe", &who, json!({})).await;
            match reply.status.as_u16() {
                204 => stored += 1,
                _ => break reply,
            }
        };
        assert_eq!(stored, admitted);
        refused.is(503, "ingest_throttled");
        let wait: u64 = refused.header("retry-after").parse().expect("seconds");
        assert!((2..=10).contains(&wait), "{wait}");
    }
}

/// docs/specification.md F40: many tokens of one key, 300 requests a second for three seconds. With
/// the test's own clock, the accepted requests in each trailing second are counted.
#[tokio::test]
async fn fifty_tokens_of_a_key_get_no_more_than_one() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, secret) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let now = server.clock.now().as_s();
    let tokens: Vec<Who> = (0..50)
        .map(|n| {
            let claims = json!({ "aud": "ms-embed", "org": "acme", "iat": now, "exp": now + 600, "sub": format!("{n}") });
            Who::Bearer(signed(&key, &secret, &claims))
        })
        .collect();
    let (mut accepted, mut refused) = (Vec::new(), 0);
    for n in 0..900 {
        // 10 ms for every three requests: 300 a second.
        server.pass(Duration::from_millis(if n % 3 == 0 { 4 } else { 3 }));
        let reply = server.get(RANGE, &tokens[n % 50]).await;
        match reply.status.as_u16() {
            200 => accepted.push(server.clock.now().as_ms()),
            _ => {
                reply.is(429, "rate_limited");
                assert_eq!((&reply.value()["limit"], &reply.value()["window_s"]), (&json!(100), &json!(1)));
                let wait = reply.value()["retry_after_ms"].as_u64().expect("a number");
                assert!((1..=1_000).contains(&wait), "{wait}");
                refused += 1;
            }
        }
    }
    for (place, first) in accepted.iter().enumerate() {
        let within = accepted[place..].iter().take_while(|at| **at < first + 1_000).count();
        assert!(within <= 100, "{within} in the second from {first}");
    }
    assert!((300..=305).contains(&accepted.len()) && refused > 0, "{} accepted", accepted.len());
}

/// Compiling matchers is the most expensive part of a token: it happens once for a text, and only
/// for requests within the rate.
#[tokio::test]
async fn a_tokens_matchers_are_compiled_once_and_never_beyond_its_keys_rate() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, secret) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let now = server.clock.now().as_s();
    let token = |patterns: &[String]| {
        let matchers: Vec<String> = patterns.iter().map(|text| format!("tenant=~\"{text}\"")).collect();
        let claims = json!({ "aud": "ms-embed", "org": "acme", "iat": now, "exp": now + 600, "ms": { "match": matchers } });
        Who::Bearer(signed(&key, &secret, &claims))
    };
    let ask_all = async |tokens: &[Who]| {
        let (mut accepted, mut refused) = (0, 0);
        for n in 0..150 {
            let reply = server.get(RANGE, &tokens[n % tokens.len()]).await;
            match reply.status.as_u16() {
                200 => accepted += 1,
                _ => {
                    reply.is(429, "rate_limited");
                    refused += 1;
                }
            }
        }
        (accepted, refused, server.identity.token_policies_compiled())
    };
    let eight: Vec<String> = (0..8).map(|n| format!("{n}(a|b)*[a-z]{{40}}")).collect();
    assert_eq!(ask_all(&[token(&eight)]).await, (100, 50, 1));
    server.pass(Duration::from_secs(1));
    let others: Vec<Who> = (0..150).map(|n| token(&[format!("{n}[0-9]+")])).collect();
    assert_eq!(ask_all(&others).await, (100, 50, 101), "none was compiled for a refused request");
    server.pass(Duration::from_secs(1));
    // Patterns that do not compile or exceed the compile limit are charged to the key, too.
    let too_large = [token(&["(x{40}){40}".to_owned()]), token(&["(".to_owned()])];
    for who in &too_large {
        let refused = server.get(RANGE, who).await;
        refused.is(401, "token_invalid");
        assert!(refused.header("ratelimit-policy").starts_with("\"embed\""));
    }
    let minted = json!({ "api_key_id": key, "ms": { "match": ["a=~\"(x{40}){40}\""] } });
    server.post("/api/v1/orgs/acme/embed/tokens", &cabinet, minted).await.is(422, "validation_failed");
}

/// Cached matchers of a token do not keep the token or its key valid.
#[tokio::test]
async fn a_compiled_token_ends_with_its_key_its_policy_and_its_time() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let ms = json!({ "ms": { "match": ["tenant=~\"a.*b\""] }, "ttl_s": 60 });
    let token = server.token(&cabinet, &key, ms.clone()).await;
    let path = format!("/api/v1/orgs/acme/api-keys/{key}");
    let seen = server.get(RANGE, &token).await;
    assert!(seen.body.contains("a.*b") && !seen.body.contains("zone"), "{}", seen.body);
    let policy = json!({ "embed": { "policy": { "match": ["zone=\"eu\""] } } });
    assert_eq!(server.json("PATCH", &path, &cabinet, policy).await.status, 200);
    let seen = server.get(RANGE, &token).await;
    assert!(seen.body.contains("a.*b") && seen.body.contains("zone"), "{}", seen.body);
    let disable = |disabled: bool| server.json("PATCH", &path, &cabinet, json!({ "disabled": disabled }));
    assert_eq!(disable(true).await.status, 200);
    server.get(RANGE, &token).await.is(401, "token_invalid");
    assert_eq!(disable(false).await.status, 200);
    assert_eq!(server.get(RANGE, &token).await.status, 200);
    server.pass(Duration::from_secs(2));
    assert_eq!(server.post(&format!("{path}/revoke-tokens"), &cabinet, json!({})).await.status, 204);
    server.get(RANGE, &token).await.is(401, "token_invalid");
    server.pass(Duration::from_secs(1));
    let token = server.token(&cabinet, &key, ms).await;
    assert_eq!(server.get(RANGE, &token).await.status, 200);
    server.pass(Duration::from_secs(90));
    server.get(RANGE, &token).await.is(401, "token_expired");
    assert_eq!(server.identity.token_policies_compiled(), 1);
}

/// docs/specification.md B3: every response under a limit states what remains.
#[tokio::test]
async fn responses_under_a_limit_say_how_much_is_left() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, secret) = server.key(&cabinet, json!({ "scopes": ["embed", "read"] })).await;
    let token = server.token(&cabinet, &key, json!({})).await;
    let secret = Who::Bearer(secret);
    server.pass(Duration::from_secs(2));
    let mount = "/api/v1/orgs/acme/prometheus/api/v1/probe";
    for (who, path, policy, state) in [
        (&cabinet, "/auth/me", "\"cabinet\";q=60;w=1", "\"cabinet\";r=59;t=1"),
        (&token, RANGE, "\"embed\";q=100;w=1", "\"embed\";r=99;t=1"),
        (&secret, mount, "\"read\";q=1000;w=1", "\"read\";r=999;t=1"),
        (&Who::Nobody, "/auth/me", "\"ip\";q=200;w=1", "\"ip\";r=199;t=1"),
        (&Who::Bearer("a.b.c".into()), RANGE, "\"ip\";q=200;w=1", "\"ip\";r=198;t=1"),
        (&secret, RANGE, "\"ip\";q=200;w=1", "\"ip\";r=197;t=1"),
    ] {
        let reply = server.get(path, who).await;
        assert_eq!((reply.header("ratelimit-policy"), reply.header("ratelimit")), (policy, state), "{path}");
    }
    let minted = server.post("/api/v1/orgs/acme/embed/tokens", &secret, json!({})).await;
    assert_eq!(minted.header("ratelimit-policy"), "\"minting\";q=20;w=1");
    assert_eq!(minted.header("ratelimit"), "\"minting\";r=19;t=1");
}

#[tokio::test]
async fn minting_is_limited_per_key() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (_, secret) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let who = Who::Bearer(secret);
    let mut minted = 0;
    let refused = loop {
        let reply = server.post("/api/v1/orgs/acme/embed/tokens", &who, json!({})).await;
        match reply.status.as_u16() {
            201 => minted += 1,
            _ => break reply,
        }
    };
    refused.is(429, "rate_limited");
    assert_eq!(minted, 20);
    assert_eq!((&refused.value()["limit"], &refused.value()["scope"]), (&json!(20), &json!("api_key")));
    assert_eq!(refused.header("retry-after"), "1");
}

/// Senders keep a body that a 503 refused, and send it again.
#[tokio::test]
async fn bodies_beyond_the_body_memory_get_retry_after() {
    let mut plan = TestServerOptions::default();
    plan.options.body_bytes_max = 2_000;
    let server = TestServer::build(plan);
    let cabinet = server.log_in().await;
    let send = async |bytes: usize| {
        let request =
            ask("POST", "/api/v1/orgs/acme/import/probe", &cabinet).body(Body::from(vec![0; bytes]));
        server.send(request.expect("a request")).await
    };
    for _ in 0..3 {
        assert_eq!(send(1_000).await.status, 204, "what is answered is given back");
        let refused = send(1_001).await;
        refused.is(503, "busy");
        assert!(refused.header("retry-after").parse::<u64>().expect("seconds") >= 2);
    }
}

/// A body that arrives as the test sends it.
pub(crate) struct Slow(pub(crate) tokio::sync::mpsc::Receiver<Bytes>);

impl HttpBody for Slow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// One organisation gets at most half of the memory for bodies.
#[tokio::test]
async fn one_organisations_bodies_leave_memory_for_anothers() {
    let mut plan = TestServerOptions::default();
    plan.options.body_bytes_max = 2_000;
    let server = TestServer::build(plan);
    let cabinet = server.log_in().await;
    assert_eq!(server.post("/api/v1/orgs", &cabinet, json!({ "slug": "other" })).await.status, 201);
    let send = |slug: &str, body: Body| {
        let request = ask("POST", &format!("/api/v1/orgs/{slug}/import/probe"), &cabinet).body(body);
        server.send(request.expect("a request"))
    };
    // A body of which half arrived holds the memory of that half.
    let (more, rest) = tokio::sync::mpsc::channel(1);
    let waiting = Body::new(Slow(rest));
    more.send(vec![0; 900].into()).await.expect("taken");
    let mut waiting = std::pin::pin!(send("acme", waiting));
    // Polled until it waits for more.
    for _ in 0..10 {
        let polled = std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_ready()));
        assert!(!polled.await, "it is not whole yet");
        tokio::task::yield_now().await;
    }
    // Another spelling of the slug is the same organisation.
    for slug in ["acme", "%61cme", "a%63me", "%61%63%6d%65", "%61%63%6D%65"] {
        send(slug, Body::from(vec![0; 200])).await.is(503, "busy");
    }
    assert_eq!(send("other", Body::from(vec![0; 1_000])).await.status, 204);
    drop(more);
    assert_eq!(waiting.await.status, 204);
    assert_eq!(send("acme", Body::from(vec![0; 1_000])).await.status, 204, "all of its half is back");
}
