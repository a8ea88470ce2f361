//! Host, CSRF and CORS (docs/specification.md B4; threat model rows 11 to 13).

use axum::body::Body;
use axum::http::request::Builder;
use promlet::api::ApiOptions;
use serde_json::json;

use crate::test_server::{EMAIL, PASSWORD, Reply, TestServer, TestServerOptions, Who, ask};

async fn send(server: &TestServer, request: Builder) -> Reply {
    server.send(request.body(Body::empty()).expect("a request")).await
}

fn with_host(method: &str, path: &str, host: &str) -> Builder {
    let mut request = ask(method, path, &Who::Nobody);
    request.headers_mut().expect("valid so far").insert("host", host.parse().expect("a value"));
    request
}

/// DNS rebinding: refused on every route.
#[tokio::test]
async fn a_foreign_host_is_refused_on_every_route() {
    let server = TestServer::new();
    assert!(server.rows.len() > 25);
    for row in &server.rows {
        let path = row.path.replace("{slug}", "acme").replace("{id}", "ak_aaaaaaaaaaaaaaaa");
        send(&server, with_host(row.method, &path, "evil.example:8095")).await.is_host_refusal(&path);
    }
    for path in ["/", "/login", "/api/nothing"] {
        send(&server, with_host("GET", path, "evil.example")).await.is_host_refusal(path);
    }
    for good in ["localhost:8095", "127.0.0.1", "[::1]:8095", "metrics.localhost:8095"] {
        assert_eq!(send(&server, with_host("GET", "/healthz", good)).await.status, 200, "{good}");
    }
}

impl Reply {
    #[track_caller]
    fn is_host_refusal(&self, path: &str) {
        assert_eq!(self.status, 421, "{path}: {}", self.body);
        assert!(self.body.contains("host"), "{path}: {}", self.body);
        assert_eq!(self.session_cookie(), None);
    }
}

#[tokio::test]
async fn a_request_has_exactly_one_host() {
    let server = TestServer::new();
    let mut none = ask("GET", "/api/v1/orgs", &Who::Nobody);
    none.headers_mut().expect("valid").remove("host");
    send(&server, none).await.is(400, "bad_request");
    send(&server, ask("GET", "/api/v1/orgs", &Who::Nobody).header("host", "localhost"))
        .await
        .is(400, "bad_request");
    let absolute = with_host("GET", "http://evil.example/api/v1/orgs", "localhost");
    send(&server, absolute).await.is(400, "bad_request");
}

#[tokio::test]
async fn the_public_url_and_configured_names_are_allowed() {
    let mut options = ApiOptions::new("https://metrics.example.com/");
    options.allowed_hosts = vec!["other.example.com".into()];
    let server = TestServer::build(TestServerOptions { options, ..TestServerOptions::default() });
    for good in ["metrics.example.com", "METRICS.example.com:443", "other.example.com"] {
        assert_eq!(send(&server, with_host("GET", "/healthz", good)).await.status, 200, "{good}");
    }
    assert_eq!(send(&server, with_host("GET", "/healthz", "example.com")).await.status, 421);
    let login = json!({ "email": EMAIL, "password": PASSWORD });
    let reply = server.post("/auth/login", &Who::Nobody, login).await;
    assert!(reply.header("set-cookie").contains("; Secure"), "{}", reply.header("set-cookie"));
}

fn json_post(path: &str, who: &Who) -> Builder {
    ask("POST", path, who).header("content-type", "application/json")
}

async fn post(server: &TestServer, request: Builder, body: serde_json::Value) -> Reply {
    server.send(request.body(Body::from(body.to_string())).expect("a request")).await
}

/// docs/specification.md F11, F12.
#[tokio::test]
async fn cross_site_requests_with_a_cookie_are_refused() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let make = |slug: &str| json!({ "slug": slug });
    for (header, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "http://localhost:8098"),
        ("origin", "http://127.0.0.1:8098"),
        ("origin", "null"),
        ("origin", "https://evil.example"),
    ] {
        let request = json_post("/api/v1/orgs", &cabinet).header(header, value);
        post(&server, request, make("evil")).await.is(403, "csrf_rejected");
        let login = json_post("/auth/login", &Who::Nobody).header(header, value);
        post(&server, login, json!({ "email": EMAIL, "password": PASSWORD })).await.is(403, "csrf_rejected");
        let with_authorization = json_post("/auth/login", &Who::Bearer("x".into())).header(header, value);
        post(&server, with_authorization, json!({ "email": EMAIL, "password": PASSWORD }))
            .await
            .is(403, "csrf_rejected");
    }
    let orgs = server.get("/api/v1/orgs", &cabinet).await.body;
    assert!(!orgs.contains("evil"), "nothing changed: {orgs}");
    for (header, value) in
        [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "none"), ("origin", "http://127.0.0.1:8095")]
    {
        let slug = format!("good-{}", value.len());
        let request = json_post("/api/v1/orgs", &cabinet).header(header, value);
        assert_eq!(post(&server, request, make(&slug)).await.status, 201, "{header}: {value}");
    }
    let read = ask("GET", "/api/v1/orgs", &cabinet).header("sec-fetch-site", "cross-site");
    assert_eq!(send(&server, read).await.status, 200, "safe methods change nothing");
}

#[tokio::test]
async fn tokens_are_accepted_from_other_origins_and_cookies_are_not() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let origins = json!({ "scopes": ["embed"], "embed": { "origins": ["https://app.example.com"] } });
    let (key, _) = server.key(&cabinet, origins).await;
    let token = server.token(&cabinet, &key, json!({ "ttl_s": 60 })).await;
    let path = "/api/v1/orgs/acme/query/probe-range";
    let preflight = |path: &str| {
        ask("OPTIONS", path, &Who::Nobody)
            .header("origin", "https://app.example.com")
            .header("access-control-request-method", "GET")
    };
    let reply = send(&server, preflight(path)).await;
    assert_eq!((reply.status.as_u16(), reply.header("access-control-allow-origin")), (204, "*"));
    let allowed = reply.header("access-control-allow-headers");
    assert_eq!(allowed, "authorization, content-type, if-none-match");
    assert_eq!(reply.header("access-control-max-age"), "7200");
    assert_eq!(reply.header("access-control-allow-credentials"), "");
    for closed in ["/api/v1/orgs", "/auth/login", "/api/v1/orgs/acme/api-keys", "/api/v1/orgs/acme/write"] {
        let reply = send(&server, preflight(closed)).await;
        assert_eq!(reply.header("access-control-allow-origin"), "", "{closed}");
    }
    let from = |who: &Who, origin: &str| ask("GET", path, who).header("origin", origin);
    let allowed = send(&server, from(&token, "https://app.example.com")).await;
    assert_eq!(allowed.status, 200);
    assert_eq!(allowed.header("access-control-allow-origin"), "https://app.example.com");
    assert_eq!(allowed.header("vary"), "Origin");
    assert!(allowed.header("access-control-expose-headers").contains("ratelimit"));
    let other = send(&server, from(&token, "https://evil.example")).await;
    other.is(403, "origin_not_allowed");
    assert_eq!(other.header("access-control-allow-origin"), "");
    let cookie = send(&server, from(&cabinet, "https://app.example.com")).await;
    assert_eq!((cookie.status.as_u16(), cookie.header("access-control-allow-origin")), (200, ""));
    server.pass(std::time::Duration::from_secs(91));
    let expired = send(&server, from(&token, "https://app.example.com")).await;
    expired.is(401, "token_expired");
    assert_eq!(
        expired.header("access-control-allow-origin"),
        "https://app.example.com",
        "the page must see why"
    );
}

#[tokio::test]
async fn a_trusted_origin_may_use_cookies() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.trusted_origins = vec!["http://localhost:5173".into()];
    let server = TestServer::build(TestServerOptions { options, ..TestServerOptions::default() });
    let cabinet = server.log_in().await;
    let request = json_post("/api/v1/orgs", &cabinet)
        .header("origin", "http://localhost:5173")
        .header("sec-fetch-site", "same-site");
    let reply = post(&server, request, json!({ "slug": "dev" })).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    assert_eq!(reply.header("access-control-allow-credentials"), "true");
    let preflight = ask("OPTIONS", "/api/v1/orgs", &Who::Nobody)
        .header("origin", "http://localhost:5173")
        .header("access-control-request-method", "POST");
    assert_eq!(send(&server, preflight).await.header("access-control-allow-credentials"), "true");
}
