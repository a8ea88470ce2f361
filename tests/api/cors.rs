//! Which origins may read which responses (docs/specification.md B4).

use axum::body::Body;
use axum::http::request::Builder;
use promlet::api::ApiOptions;
use serde_json::json;

use crate::test_server::{Reply, TestServer, TestServerOptions, Who, ask};

const APP: &str = "https://app.example.com";
const DEV: &str = "http://localhost:5173";
const RANGE: &str = "/api/v1/orgs/acme/query/probe-range";
const MOUNT: &str = "/api/v1/orgs/acme/prometheus/api/v1/probe";

async fn send(server: &TestServer, request: Builder) -> Reply {
    server.send(request.body(Body::empty()).expect("a request")).await
}

fn preflight(path: &str, origin: &str, method: &str) -> Builder {
    ask("OPTIONS", path, &Who::Nobody)
        .header("origin", origin)
        .header("access-control-request-method", method)
        .header("access-control-request-headers", "authorization")
}

#[tokio::test]
async fn preflights_are_answered_for_any_origin_on_read_endpoints_only() {
    let server = TestServer::new();
    for path in [RANGE, MOUNT, "/api/v1/orgs/acme/metrics", "/api/v1/orgs/nobody/labels/job/values"] {
        for origin in [APP, "null", "http://evil.example:8080"] {
            let reply = send(&server, preflight(path, origin, "GET")).await;
            assert_eq!(reply.status, 204, "{path}: {}", reply.body);
            assert_eq!(reply.header("access-control-allow-origin"), "*");
            assert_eq!(reply.header("access-control-allow-methods"), "GET, POST");
            assert_eq!(
                reply.header("access-control-allow-headers"),
                "authorization, content-type, if-none-match"
            );
            assert_eq!(reply.header("access-control-max-age"), "7200");
            assert_eq!(reply.header("access-control-allow-private-network"), "true");
            assert!(!reply.headers.contains_key("access-control-allow-credentials"));
        }
    }
    for path in [
        "/auth/login",
        "/api/v1/auth/me",
        "/api/v1/orgs",
        "/api/v1/orgs/acme",
        "/api/v1/orgs/acme/api-keys",
        "/api/v1/orgs/acme/embed/tokens",
        "/api/v1/orgs/acme/write",
        "/api/v1/orgs/acme/prometheus/api/v1/write",
        "/api/v1/orgs/acme/prometheus/api/v1/otlp/v1/metrics",
        "/api/v1/orgs/acme/prometheus/api/v1/admin/tsdb/delete_series",
        "/healthz",
        "/metrics",
    ] {
        let reply = send(&server, preflight(path, APP, "POST")).await;
        let said: Vec<_> =
            reply.headers.keys().filter(|name| name.as_str().starts_with("access-control")).collect();
        assert!(said.is_empty(), "{path}: {said:?}");
    }
}

#[tokio::test]
async fn responses_are_readable_only_by_the_origins_of_token_and_key() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let origins = json!({ "scopes": ["embed", "read"], "embed": { "origins": [APP, "https://b.example"], "rate_limit_rps": 8 } });
    let (key, secret) = server.key(&cabinet, origins).await;
    let narrow = server.token(&cabinet, &key, json!({ "ms": { "origins": [APP] } })).await;
    let whole = server.token(&cabinet, &key, json!({})).await;
    let from = |path: &str, who: &Who, origin: &str| ask("GET", path, who).header("origin", origin);
    let readable = async |request: Builder| {
        let reply = send(&server, request).await;
        assert!(!reply.headers.contains_key("access-control-allow-credentials"), "{}", reply.body);
        assert!(reply.header("vary").contains("Origin"));
        (reply.status.as_u16(), reply.header("access-control-allow-origin").to_owned())
    };
    let yes = |status: u16, origin: &str| (status, origin.to_owned());
    assert_eq!(readable(from(RANGE, &narrow, APP)).await, yes(200, APP));
    assert_eq!(readable(from(RANGE, &narrow, "https://b.example")).await, yes(403, ""));
    assert_eq!(readable(from(RANGE, &whole, "https://b.example")).await, yes(200, "https://b.example"));
    assert_eq!(readable(from(RANGE, &whole, "https://c.example")).await, yes(403, ""));
    assert_eq!(readable(ask("GET", RANGE, &whole)).await, yes(200, ""), "a server sends no origin");
    let key = Who::Bearer(secret);
    assert_eq!(readable(from(MOUNT, &key, APP)).await, yes(200, APP));
    assert_eq!(
        readable(from(MOUNT, &key, "https://c.example")).await,
        yes(200, ""),
        "answered, and not readable"
    );
    assert_eq!(readable(from(RANGE, &cabinet, APP)).await, yes(200, ""), "a cookie is for our own pages");
    assert_eq!(readable(from(RANGE, &Who::Nobody, APP)).await, yes(401, ""));
    // Errors and headers that a page needs to react.
    let mut limited = yes(0, "");
    for _ in 0..9 {
        limited = readable(from(RANGE, &whole, APP)).await;
    }
    assert_eq!(limited, yes(429, APP));
    let exposed = send(&server, from(RANGE, &whole, APP)).await;
    let exposed = exposed.header("access-control-expose-headers").to_ascii_lowercase();
    for header in ["ratelimit", "ratelimit-policy", "retry-after", "x-request-id"] {
        assert!(exposed.split(", ").any(|one| one == header), "{header} in {exposed}");
    }
}

#[tokio::test]
async fn only_trusted_origins_get_credentials_and_vary_names_the_origin() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.trusted_origins = vec![DEV.into()];
    let server = TestServer::build(TestServerOptions { options, ..TestServerOptions::default() });
    let cabinet = server.log_in().await;
    for path in ["/auth/me", "/api/v1/orgs", RANGE] {
        for (origin, echoed, credentials) in
            [(DEV, DEV, "true"), (APP, "", ""), ("http://localhost:5174", "", "")]
        {
            let reply = send(&server, ask("GET", path, &cabinet).header("origin", origin)).await;
            assert_eq!(reply.status, 200, "{path}");
            assert_eq!(reply.header("access-control-allow-origin"), echoed, "{path} {origin}");
            assert_eq!(reply.header("access-control-allow-credentials"), credentials, "{path} {origin}");
            assert!(reply.header("vary").contains("Origin"), "{path} {origin}");
        }
        let reply = send(&server, preflight(path, DEV, "PATCH")).await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("access-control-allow-origin")),
            (204, DEV),
            "{path}"
        );
        assert_eq!(reply.header("access-control-allow-credentials"), "true");
        assert!(reply.header("access-control-allow-methods").contains("PATCH"));
    }
    // A trusted origin does not replace a session.
    let nobody = send(&server, ask("GET", "/auth/me", &Who::Nobody).header("origin", DEV)).await;
    nobody.is(401, "unauthenticated");
    assert_eq!(nobody.header("access-control-allow-origin"), DEV, "the page must be able to read the error");
}
