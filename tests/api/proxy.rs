//! Behind a proxy (docs/specification.md E): a public URL with a path, and client addresses from
//! trusted proxies only.

use axum::body::Body;
use axum::http::{Version, header};
use promlet::api::host::Network;
use promlet::api::{ApiOptions, OptionsError};
use serde_json::json;

use crate::test_server::{EMAIL, PASSWORD, Reply, TestServer, TestServerOptions, Who, ask, ask_from};

fn behind() -> TestServer {
    let mut options = ApiOptions::new("https://example.com/tools/promlet/");
    options.trusted_proxies = vec![Network::parse("10.0.0.0/8").expect("a network")];
    TestServer::build(TestServerOptions { options, console: true, ..TestServerOptions::default() })
}

async fn login(server: &TestServer, path: &str) -> Reply {
    server.post(path, &Who::Nobody, json!({ "email": EMAIL, "password": PASSWORD })).await
}

/// A proxy may keep the path prefix or remove it.
#[tokio::test]
async fn everything_works_below_a_path() {
    let server = behind();
    for path in
        ["/tools/promlet/api/v1/auth/login", "/tools/promlet/auth/login", "/api/v1/auth/login", "/auth/login"]
    {
        let reply = login(&server, path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        let cookie = reply.header("set-cookie");
        assert!(cookie.contains("; Path=/tools/promlet;") && cookie.contains("; Secure"), "{cookie}");
    }
    let cabinet = server.log_in().await;
    let me = server.get("/tools/promlet/api/v1/auth/me/", &cabinet).await;
    assert_eq!(me.status, 200, "{}", me.body);
    assert!(me.header("set-cookie").contains("; Path=/tools/promlet;"), "{}", me.header("set-cookie"));
    for (path, body) in
        [("/tools/promlet/healthz", "ok"), ("/tools/promlet", "a page"), ("/tools/promlet/login", "a page")]
    {
        assert_eq!(server.get(path, &Who::Nobody).await.body, body, "{path}");
    }
    server.get("/tools/promlets/api/v1/auth/me", &cabinet).await.is_page();
    server.get("/tools/promlet/api/v1/nothing", &cabinet).await.is(404, "not_found");
    // The error body depends on the path without the prefix.
    let refused = server.get("/tools/promlet/api/v1/orgs/acme/prometheus/api/v1/query", &Who::Nobody).await;
    assert_eq!(refused.value()["errorType"], "unauthorized", "{}", refused.body);
    let document = server.get("/tools/promlet/api/v1/openapi.json", &Who::Nobody).await.value();
    assert_eq!(document["servers"][0]["url"], "https://example.com/tools/promlet");
}

impl Reply {
    #[track_caller]
    fn is_page(&self) {
        assert_eq!((self.status.as_u16(), self.body.as_str()), (200, "a page"));
    }
}

#[tokio::test]
async fn redirects_lead_below_the_path() {
    let server = behind();
    let open = async |token: &str| {
        let request =
            ask("GET", &format!("/tools/promlet/api/v1/auth/magic-link/verify?token={token}"), &Who::Nobody);
        server.send(request.header(header::ACCEPT, "text/html").body(Body::empty()).expect("a request")).await
    };
    let refused = open("mgl_none").await;
    assert_eq!(
        (refused.status.as_u16(), refused.header("location")),
        (303, "/tools/promlet/login?error=link_invalid")
    );
}

/// docs/specification.md F45: the charged address and the local access never depend on a header
/// that any client can send.
#[tokio::test]
async fn f45_only_a_trusted_proxy_names_the_client() {
    let server = behind();
    let sessions = async |peer: &str, forwarded: &str| {
        let request = ask_from(peer, "POST", "/api/v1/auth/login", &Who::Nobody)
            .header("content-type", "application/json")
            .header("x-forwarded-for", forwarded);
        let body = json!({ "email": EMAIL, "password": PASSWORD }).to_string();
        let reply = server.send(request.body(Body::from(body)).expect("a request")).await;
        let cabinet = Who::Cookie(reply.session_cookie().expect("a session"));
        let list = server.get("/api/v1/auth/sessions", &cabinet).await.value();
        let rows = list["data"].as_array().expect("rows").clone();
        rows.iter().find(|row| row["current"] == true).expect("this one")["ip"]
            .as_str()
            .expect("text")
            .to_owned()
    };
    assert_eq!(sessions("10.1.2.3:4", "203.0.113.7").await, "203.0.113.7");
    assert_eq!(
        sessions("10.1.2.3:4", "6.6.6.6, 203.0.113.7").await,
        "203.0.113.7",
        "the first word is the client's"
    );
    assert_eq!(sessions("10.1.2.3:4", "203.0.113.7:50211").await, "203.0.113.7", "with the client's port");
    assert_eq!(sessions("10.1.2.3:4", "[2001:db8::7]:443").await, "2001:db8::7");
    assert_eq!(sessions("192.0.2.1:4", "203.0.113.7").await, "192.0.2.1", "a stranger's word");
    assert_eq!(
        sessions("127.0.0.1:4", "203.0.113.7").await,
        "127.0.0.1",
        "loopback is no proxy unless it is named"
    );
}

/// A proxy on this machine that adds a header does not make its clients local.
#[tokio::test]
async fn a_forwarding_header_closes_the_metrics_to_a_loopback_peer() {
    let server = TestServer::new();
    assert_eq!(server.get("/metrics", &Who::Nobody).await.status, 200);
    let headers = [
        "x-forwarded-for",
        "forwarded",
        "via",
        "x-real-ip",
        "x-client-ip",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-forwarded-server",
        "cf-connecting-ip",
        "true-client-ip",
    ];
    for header in headers {
        let request =
            ask("GET", "/metrics", &Who::Nobody).header(header, "x").body(Body::empty()).expect("a request");
        server.send(request).await.is(401, "unauthenticated");
    }
}

/// By default nginx adds no header and puts the upstream's name into Host, but uses HTTP/1.0.
#[tokio::test]
async fn an_http_1_0_request_is_never_local() {
    let server = TestServer::build(TestServerOptions { set_up: false, ..TestServerOptions::default() });
    let get = async |path: &str, version: Version| {
        let request = ask("GET", path, &Who::Nobody).version(version).body(Body::empty());
        server.send(request.expect("a request")).await
    };
    assert_eq!(get("/metrics", Version::HTTP_11).await.status, 200);
    get("/metrics", Version::HTTP_10).await.is(401, "unauthenticated");
    for (version, needs_token) in [(Version::HTTP_11, false), (Version::HTTP_10, true)] {
        let config = get("/api/v1/auth/config", version).await.value();
        assert_eq!(config["setup_token_required"], needs_token, "{version:?}");
    }
}

/// A proxy that changes Host keeps the browser's Origin.
#[tokio::test]
async fn the_public_origin_is_accepted_with_any_host_from_the_proxy() {
    let server = behind();
    let cabinet = server.log_in().await;
    let from = async |origin: &str| {
        let request = ask("POST", "/api/v1/orgs", &cabinet)
            .header("content-type", "application/json")
            .header("origin", origin)
            .body(Body::from(json!({ "slug": "made" }).to_string()))
            .expect("a request");
        server.send(request).await
    };
    from("https://evil.example.com").await.is(403, "csrf_rejected");
    from("http://example.com").await.is(403, "csrf_rejected");
    assert_eq!(from("https://example.com").await.status, 201);
}

#[test]
fn a_public_url_is_a_host_and_a_plain_path() {
    for bad in [
        "https://",
        "ftp://x",
        "https://u@x",
        "https://x/\"><script>",
        "https://x/a b",
        "https://x/?a",
        "https://x/#a",
        "https://x//",
        "https://x/../y",
    ] {
        let mut options = ApiOptions::new("http://127.0.0.1");
        options.public_url = bad.to_owned();
        assert_eq!(promlet::api::check(&options), Err(OptionsError::PublicUrl(bad.to_owned())), "{bad}");
    }
    for good in ["https://x", "http://x:1", "https://x/a-b/c_d.e~f", "http://[::1]:8095/m"] {
        assert_eq!(promlet::api::check(&ApiOptions::new(good)), Ok(()), "{good}");
    }
}
