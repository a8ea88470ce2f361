//! One error body per error (docs/specification.md B, B2), and health (C8).

use std::sync::atomic::Ordering;

use axum::body::Body;
use promlet::api::ApiOptions;
use serde_json::json;

use crate::test_server::{TestServer, TestServerOptions, Who, ask, ask_from};

#[tokio::test]
async fn unknown_paths_and_methods_are_problems_below_the_api_and_pages_elsewhere() {
    let server = TestServer::new();
    for path in [
        "/api",
        "/api/",
        "/api/v1",
        "/api/v2/x",
        "/api/v1/auth/nothing",
        "/auth/nothing",
        "/api/v1/orgs/acme/nothing",
    ] {
        server.get(path, &Who::Nobody).await.is(404, "not_found");
    }
    for path in ["/", "/login", "/x/y", "/apis"] {
        let page = server.get(path, &Who::Nobody).await;
        assert_eq!((page.status.as_u16(), page.body.as_str()), (200, "a page"), "{path}");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
    }
    let reply = server
        .send(ask("PUT", "/api/v1/auth/login", &Who::Nobody).body(Body::empty()).expect("a request"))
        .await;
    reply.is(405, "method_not_allowed");
    assert_eq!(reply.header("allow"), "POST");
    let reply =
        server.send(ask("BREW", "/api/v1/orgs", &Who::Nobody).body(Body::empty()).expect("a request")).await;
    reply.is(405, "method_not_allowed");
    assert!(
        reply.header("allow").contains("GET") && reply.header("allow").contains("POST"),
        "{}",
        reply.header("allow")
    );
}

#[tokio::test]
async fn a_trailing_slash_is_ignored_and_head_is_get_without_a_body() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    for path in ["/api/v1/orgs/acme/", "/api/v1/orgs/", "/auth/me/", "/healthz/"] {
        assert_eq!(server.get(path, &cabinet).await.status, 200, "{path}");
        let head = server.send(ask("HEAD", path, &cabinet).body(Body::empty()).expect("a request")).await;
        assert_eq!((head.status.as_u16(), head.body.as_str()), (200, ""), "{path}");
    }
}

/// Data endpoints add Prometheus' two members; the Prometheus mount has a body of its own.
#[tokio::test]
async fn the_error_body_depends_on_the_path() {
    let server = TestServer::new();
    let data = server.get("/api/v1/orgs/acme/query/probe-range", &Who::Nobody).await;
    data.is(401, "unauthenticated");
    assert_eq!((data.text("errorType"), data.text("error")), ("unauthorized".into(), data.text("detail")));
    let plain = server.get("/api/v1/orgs/acme", &Who::Nobody).await.value();
    assert!(plain.get("errorType").is_none() && plain.get("error").is_none());
    for path in ["/api/v1/orgs/acme/prometheus/api/v1/probe", "/api/v1/orgs/acme/prometheus/api/v1/nothing"] {
        let mount = server.get(path, &Who::Nobody).await;
        let body = mount.value();
        let members: Vec<&str> = body.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(members, ["error", "errorType", "status"], "{path}");
        assert_eq!(body["status"], "error");
        assert_eq!(mount.header("content-type"), "application/json");
    }
}

#[tokio::test]
async fn a_panic_is_a_500_that_reveals_nothing_and_the_server_continues() {
    let server = TestServer::new();
    let reply = server.get("/api/v1/probe-panic", &Who::Nobody).await;
    reply.is(500, "internal");
    assert!(!reply.body.contains("ses_") && !reply.body.contains("probe"), "{}", reply.body);
    assert_eq!(server.get("/healthz", &Who::Nobody).await.body, "ok");
    let metrics = server.get("/metrics", &Who::Nobody).await.body;
    assert!(metrics.contains("promlet_http_panics_total 1"), "{metrics}");
}

#[tokio::test]
async fn every_response_has_the_security_headers_and_an_id() {
    let server = TestServer::new();
    for path in
        ["/api/v1/orgs", "/healthz", "/auth/config", "/nothing", "/api/nothing", "/api/v1/probe-panic"]
    {
        let reply = server.get(path, &Who::Nobody).await;
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(reply.header("referrer-policy"), "no-referrer", "{path}");
        assert_eq!(reply.header("cache-control"), "no-store", "{path}");
        assert_eq!(reply.header("x-request-id").len(), 20, "{path}");
        assert_eq!(reply.header("strict-transport-security"), "", "{path}");
    }
}

/// ASVS 3.4.1. The header applies to a whole host, so it is sent only if the public URL is a whole
/// host.
#[tokio::test]
async fn hsts_is_sent_if_the_public_url_is_a_whole_https_host() {
    for (url, said) in [
        ("https://metrics.example.com", "max-age=31536000"),
        ("https://metrics.example.com/", "max-age=31536000"),
        ("https://metrics.example.com:8443", ""),
        ("https://example.com/tools/promlet", ""),
        ("https://localhost", ""),
    ] {
        let server = TestServer::build(TestServerOptions {
            options: ApiOptions::new(url),
            ..TestServerOptions::default()
        });
        for path in ["/healthz", "/api/v1/orgs", "/login", "/api/nothing"] {
            let reply = server.get(path, &Who::Nobody).await;
            assert_eq!(reply.header("strict-transport-security"), said, "{url} {path}");
        }
    }
}

/// docs/specification.md F49.
#[tokio::test]
async fn a_valid_request_id_is_echoed_and_any_other_replaced() {
    let server = TestServer::new();
    let with = |id: &str| {
        ask("GET", "/api/v1/orgs", &Who::Nobody)
            .header("x-request-id", id)
            .body(Body::empty())
            .expect("a request")
    };
    let reply = server.send(with("01J-abc")).await;
    assert_eq!((reply.header("x-request-id"), reply.text("request_id").as_str()), ("01J-abc", "01J-abc"));
    for foreign in ["a%0d%0aX: y", "a b", "<script>", &"x".repeat(100)] {
        let reply = server.send(with(foreign)).await;
        assert_eq!(reply.header("x-request-id").len(), 20, "{foreign}");
        reply.is(401, "unauthenticated");
    }
}

#[tokio::test]
async fn sizes_are_checked_before_reading() {
    let server = TestServer::new();
    let uri = format!("/api/v1/orgs?x={}", "y".repeat(17 * 1_024));
    server.get(&uri, &Who::Nobody).await.is(414, "uri_too_long");
    let padded =
        |bytes: usize| Body::from(json!({ "email": "x".repeat(bytes), "password": "x" }).to_string());
    let post = |path: &str, body: Body| {
        ask("POST", path, &Who::Nobody)
            .header("content-type", "application/json")
            .body(body)
            .expect("a request")
    };
    server.send(post("/api/v1/auth/login", padded(17 * 1_024))).await.is(413, "body_too_large");
    let cabinet = server.log_in().await;
    let large = ask("POST", "/api/v1/orgs", &cabinet)
        .header("content-type", "application/json")
        .body(padded(65 * 1_024));
    server.send(large.expect("a request")).await.is(413, "body_too_large");
    // A declared length is refused before a byte is read.
    let declared = ask("POST", "/api/v1/orgs/acme/import/probe", &cabinet)
        .header("content-length", "8388609")
        .body(Body::empty());
    server.send(declared.expect("a request")).await.is(413, "body_too_large");
}

#[tokio::test]
async fn health_is_public_and_metrics_are_for_the_operator() {
    let mut plan = TestServerOptions::default();
    plan.options.metrics_token = Some("mtr_secret".into());
    let server = TestServer::build(plan);
    assert_eq!(server.get("/healthz", &Who::Nobody).await.body, "ok");
    let ready = server.get("/readyz", &Who::Nobody).await;
    assert_eq!(ready.value(), json!({ "status": "ok", "checks": { "storage": "ok", "mailer": "ok" } }));
    let health = server.get("/api/v1/health", &Who::Nobody).await.value();
    assert_eq!(health["status"], "ok");
    let metrics = |peer: &str, who: &Who| ask_from(peer, "GET", "/metrics", who);
    let send = async |request: axum::http::request::Builder| {
        server.send(request.body(Body::empty()).expect("a request")).await
    };
    let remote = "192.0.2.9:1";
    send(metrics(remote, &Who::Nobody)).await.is(401, "unauthenticated");
    send(metrics(remote, &Who::Bearer("wrong".into()))).await.is(401, "token_invalid");
    send(metrics("127.0.0.1:1", &Who::Nobody).header("x-forwarded-for", "127.0.0.1"))
        .await
        .is(401, "unauthenticated");
    assert_eq!(send(metrics(remote, &Who::Bearer("mtr_secret".into()))).await.status, 200);
    let local = send(metrics("[::1]:1", &Who::Nobody)).await;
    assert_eq!(local.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert!(
        local
            .body
            .contains("promlet_http_requests_total{route=\"/healthz\",method=\"GET\",status=\"2xx\"} 1"),
        "{}",
        local.body
    );
    assert!(
        local
            .body
            .contains("promlet_http_requests_total{route=\"/metrics\",method=\"GET\",status=\"4xx\"} 3"),
        "{}",
        local.body
    );
}

/// The labels of the server's own metrics are bounded for any requests.
#[tokio::test]
async fn unusual_requests_do_not_grow_the_own_metrics() {
    let server = TestServer::new();
    for n in 0..100 {
        server.get(&format!("/api/v1/orgs/org{n}/metrics/m{n}/labels"), &Who::Nobody).await;
        server
            .send(
                ask(&format!("BREW{n}"), &format!("/x{n}"), &Who::Nobody)
                    .body(Body::empty())
                    .expect("a request"),
            )
            .await;
    }
    let metrics = server.get("/metrics", &Who::Nobody).await.body;
    let lines = metrics.lines().filter(|line| line.starts_with("promlet_http_requests_total{")).count();
    assert!(lines <= 6, "{metrics}");
    assert!(metrics.contains("method=\"other\""));
    assert_eq!(server.counters.connections.load(Ordering::Relaxed), 0);
}
