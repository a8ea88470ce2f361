//! Vulnerabilities of other programs (docs/specification.md J) that no other file tests. Each test
//! names its program.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Method;
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use promlet::api::ApiOptions;
use promlet::api::routes::Auth;
use promlet::identity::{OrgCreate, SignupMode};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::test_server::{EMAIL, PASSWORD, TestServer, TestServerOptions, Who, ask, signed};

/// Mimir #15175, #11040 and authenticating proxies: a header is neither a credential nor an
/// organisation.
#[tokio::test]
async fn identity_headers_are_ignored() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    assert_eq!(server.post("/api/v1/orgs", &cabinet, json!({ "slug": "other" })).await.status, 201);
    let (_, secret) = server.key(&cabinet, json!({ "scopes": ["read"] })).await;
    let headers = ["x-org-id", "x-grafana-org-id", "x-webauth-user", "x-forwarded-user"];
    let more = ["remote-user", "x-remote-user", "x-auth-request-email", "x-forwarded-email", "x-user-id"];
    for header in headers.into_iter().chain(more) {
        for value in ["other", "acme", EMAIL, "1"] {
            let request = ask("GET", "/api/v1/auth/me", &Who::Nobody).header(header, value);
            server.send(request.body(Body::empty()).expect("a request")).await.is(401, "unauthenticated");
        }
        let key = Who::Bearer(secret.clone());
        let (own, foreign) =
            ("/api/v1/orgs/acme/prometheus/api/v1/probe", "/api/v1/orgs/other/prometheus/api/v1/probe");
        let asked =
            |path| ask("GET", path, &key).header(header, "other").body(Body::empty()).expect("a request");
        assert_eq!(server.send(asked(own)).await.status, 200, "{header}");
        assert_eq!(server.send(asked(foreign)).await.status, 403, "{header}");
    }
}

/// Clients of Mimir send the organisation in a header. It is compared with the credential, so that
/// samples never end in another organisation than their sender believes.
#[tokio::test]
async fn a_tenant_header_never_selects_an_organisation_and_must_agree_with_the_credential() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    assert_eq!(server.post("/api/v1/orgs", &cabinet, json!({ "slug": "other" })).await.status, 201);
    let (_, secret) = server.key(&cabinet, json!({ "scopes": ["read", "embed"] })).await;
    let status = async |path: &str, who: &Who, tenant: &str| {
        let request = ask("GET", path, who).header("x-scope-orgid", tenant);
        server.send(request.body(Body::empty()).expect("a request")).await.status.as_u16()
    };
    let (own, foreign) =
        ("/api/v1/orgs/acme/prometheus/api/v1/probe", "/api/v1/orgs/other/prometheus/api/v1/probe");
    let key = Who::Bearer(secret);
    for (path, tenant, expected) in [
        (own, "acme", 200),
        (own, "other", 403),
        (own, "acme|other", 403),
        (foreign, "other", 403),
        (foreign, "acme", 403),
    ] {
        assert_eq!(status(path, &key, tenant).await, expected, "{path} {tenant}");
    }
    assert_eq!(status(own, &cabinet, "other").await, 200, "a session belongs to no single organisation");
    assert_eq!(status("/api/v1/auth/me", &Who::Nobody, "acme").await, 401);
}

/// Grafana #31360, #15316, #18644, #23233: a dashboard sends many requests at once, which must not
/// end the session.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_concurrent_requests_after_a_pause_keep_their_session() {
    let server = Arc::new(TestServer::new());
    let cabinet = server.log_in().await;
    for pause in [Duration::from_secs(11 * 60), Duration::from_secs(29 * 86_400)] {
        server.pass(pause);
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let (server, cabinet) = (Arc::clone(&server), cabinet.clone());
            all.spawn(async move { server.get("/api/v1/auth/me", &cabinet).await });
        }
        while let Some(reply) = all.join_next().await {
            let reply = reply.expect("no panic");
            assert_eq!(reply.status, 200, "{}", reply.body);
            assert_eq!(reply.session_cookie().as_deref(), Some(cabinet.secret()), "the same one, renewed");
        }
    }
}

/// Grafana CVE-2022-39229: a display name is no login, and does not block another's login.
#[tokio::test]
async fn a_name_that_is_an_address_neither_logs_in_nor_blocks_a_login() {
    let server = TestServer::build(TestServerOptions {
        signup: SignupMode::Open,
        org_create: OrgCreate::Any,
        ..TestServerOptions::default()
    });
    let signup = json!({ "email": "eve@example.com" });
    let asked = server.post("/auth/signup", &Who::Nobody, signup).await;
    assert_eq!(asked.status, 202);
    let url = server.outbox.mails().pop().expect("mailed").url;
    let token = url.split("token=").nth(1).expect("a token");
    let body = json!({ "token": token, "email": "eve@example.com", "password": "eve's own password", "name": EMAIL });
    assert_eq!(server.post("/auth/signup/complete", &Who::Nobody, body).await.status, 201);
    let login = |password: &str| json!({ "email": EMAIL, "password": password });
    server
        .post("/auth/login", &Who::Nobody, login("eve's own password"))
        .await
        .is(401, "invalid_credentials");
    let ada = server.post("/auth/login", &Who::Nobody, login(PASSWORD)).await;
    assert_eq!(ada.value()["user"]["email"], EMAIL, "{}", ada.body);
}

/// CVE-2022-46146 (exporter-toolkit): the stored hash of a secret is not accepted as the secret.
#[tokio::test]
async fn the_hash_of_a_secret_is_not_accepted() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (id, secret) = server.key(&cabinet, json!({ "scopes": ["read", "embed"] })).await;
    let hash = |text: &str| Sha256::digest(text.as_bytes());
    let forms = |hash: &[u8]| [HEXLOWER.encode(hash), BASE64URL_NOPAD.encode(hash)];
    for text in forms(&hash(cabinet.secret())) {
        for cookie in [text.clone(), format!("ses_{text}")] {
            server.get("/api/v1/auth/me", &Who::Cookie(cookie)).await.is(401, "session_invalid");
        }
    }
    let path = "/api/v1/orgs/acme/prometheus/api/v1/probe";
    for text in forms(&hash(&secret)) {
        for key in [format!("msk_{text}"), format!("{}_{text}", secret.rsplit_once('_').expect("parts").0)] {
            for who in [Who::Bearer(key.clone()), Who::Basic(id.clone(), key)] {
                assert_eq!(server.get(path, &who).await.status, 401);
            }
        }
        let now = server.clock.now().as_s();
        let claims = json!({ "aud": "ms-embed", "org": "acme", "iat": now, "exp": now + 60 });
        assert_eq!(server.get(path, &Who::Bearer(signed(&id, &text, &claims))).await.status, 401);
    }
}

/// InfluxDB CVE-2019-20933: an empty or well-known secret verifies no signature.
#[tokio::test]
async fn a_token_signed_with_an_empty_or_known_secret_is_refused() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (id, secret) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let now = server.clock.now().as_s();
    let claims = json!({ "aud": "ms-embed", "org": "acme", "iat": now, "exp": now + 60 });
    let path = "/api/v1/orgs/acme/query/probe-range";
    let public = secret.rsplit_once('_').expect("parts").0.to_owned();
    for known in ["", "\0", "null", "undefined", "secret", "msk_", &id, &public] {
        let reply = server.get(path, &Who::Bearer(signed(&id, known, &claims))).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (401, "token_invalid"), "{known:?}");
    }
    assert_eq!(
        server.get(path, &Who::Bearer(signed(&id, &secret, &claims))).await.status,
        200,
        "the secret itself"
    );
}

/// Grafana CVE-2026-27880, CVE-2021-43798: no other spelling of a path bypasses authentication.
#[tokio::test]
async fn no_other_spelling_of_a_path_bypasses_authentication() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.limits.anonymous_rps = 1_000_000;
    let server = TestServer::build(TestServerOptions { options, ..TestServerOptions::default() });
    let mut asked = 0;
    for row in server.rows.iter().filter(|row| !matches!(row.auth, Auth::Public | Auth::Operator)) {
        let path = row.path.replace("{slug}", "acme").replace(['{', '}'], "");
        let below = path.strip_prefix("/api/v1").expect("an API path");
        let spellings = [
            format!("//api/v1{below}"),
            format!("/api//v1{below}"),
            format!("/api/v1/{below}"),
            format!("/api/v1/.{below}"),
            format!("/./api/v1{below}"),
            format!("/api/v1/auth/..{below}"),
            format!("/api/v1/auth/config/../..{below}"),
            format!("/api/v1/auth/config;{below}"),
            format!("/api/v1%2f{}", &below[1..]),
            format!("/api%2fv1{below}"),
            format!("/%61pi/v1{below}"),
            format!("/api/v1{}", below.replacen('o', "%6f", 1)),
            format!("/api/v1/%2e{below}"),
            format!("/api/v1/auth/%2e%2e{below}"),
            format!("/API/V1{below}"),
            format!("/api/v1{}", below.to_uppercase()),
            format!("{path}/"),
            format!("{path}//"),
            format!("{path}%00"),
            format!("{path}/."),
            format!("{path}?"),
            format!("{path}%20"),
        ];
        for spelling in spellings {
            let reply = server
                .send(ask(row.method, &spelling, &Who::Nobody).body(Body::empty()).expect("a request"))
                .await;
            let page = reply.body == "a page" || (row.method == Method::HEAD.as_str());
            let refused = matches!(reply.status.as_u16(), 401 | 404 | 405 | 421);
            // 400 if the path is invalid.
            assert!(
                page || refused || reply.status == 400,
                "{} {spelling}: {} {}",
                row.method,
                reply.status,
                reply.body
            );
            asked += 1;
        }
    }
    assert!(asked > 500, "{asked}");
}

/// bcrypt's 72 bytes, and systems that trim, fold or truncate: a password is compared by all of its
/// bytes (docs/specification.md C1; ASVS 6.2.8, 6.2.9).
#[tokio::test]
async fn every_byte_of_a_password_counts() {
    let server = TestServer::new();
    let mut current = PASSWORD.to_owned();
    let long = "0123456789abcdef".repeat(64);
    let pairs = [
        (format!("{}a", "x".repeat(72)), format!("{}b", "x".repeat(72))),
        ("before\0after the nul".to_owned(), "before\0another after it".to_owned()),
        ("Ünïcode pass".to_owned(), "U\u{308}nïcode pass".to_owned()),
        (" spaces around ".to_owned(), "spaces around".to_owned()),
        ("Letter Case Counts".to_owned(), "letter case counts".to_owned()),
        (long.clone(), long[..1_023].to_owned()),
    ];
    for (right, wrong) in pairs {
        let login = |password: &str| json!({ "email": EMAIL, "password": password });
        let entered = server.post("/auth/login", &Who::Nobody, login(&current)).await;
        let cabinet = Who::Cookie(entered.session_cookie().expect("a session"));
        let change = json!({ "current_password": current, "new_password": right });
        let changed = server.post("/auth/password/change", &cabinet, change).await;
        assert_eq!(changed.status, 200, "{right:?}: {}", changed.body);
        server.post("/auth/login", &Who::Nobody, login(&wrong)).await.is(401, "invalid_credentials");
        assert_eq!(server.post("/auth/login", &Who::Nobody, login(&right)).await.status, 200, "{right:?}");
        current = right;
    }
}

/// docs/specification.md K2, and a flaw of prom-label-proxy: the required permission depends on the
/// query, not on the name of the parameter.
#[tokio::test]
async fn an_expression_needs_its_permission_under_every_parameter_name_and_path() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let structured =
        server.token(&cabinet, &key, json!({ "ms": { "endpoints": ["range", "instant"] } })).await;
    let any = server.token(&cabinet, &key, json!({ "ms": { "endpoints": ["expr"] } })).await;
    for path in ["range", "instant"] {
        for name in ["expr", "query"] {
            let url = format!("/api/v1/orgs/acme/query/{path}?{name}=up");
            server.get(&url, &structured).await.is(403, "embed_restricted");
            assert_eq!(server.get(&url, &any).await.status, 200, "{url}");
            assert_eq!(server.get(&url, &cabinet).await.status, 200, "{url}");
        }
        let plain = format!("/api/v1/orgs/acme/query/{path}?metric=up");
        assert_eq!(server.get(&plain, &structured).await.status, 200, "{plain}");
        server.get(&plain, &any).await.is(403, "embed_restricted");
    }
    for path in ["expr-instant", "expr-range"] {
        let url = format!("/api/v1/orgs/acme/query/{path}?expr=up");
        server.get(&url, &structured).await.is(403, "embed_restricted");
        assert_eq!(server.get(&url, &any).await.status, 200, "{url}");
    }
}
