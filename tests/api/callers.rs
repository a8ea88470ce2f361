//! Which credentials each endpoint accepts (docs/specification.md B1 and the threat model's rows 27
//! to 31, 36, 47).

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use serde_json::json;

use crate::test_server::{TestServer, Who, ask};

const RANGE: &str = "/api/v1/orgs/acme/query/probe-range";
const EXPR: &str = "/api/v1/orgs/acme/query/probe-expr";
const MOUNT: &str = "/api/v1/orgs/acme/prometheus/api/v1/probe";
const WRITE: &str = "/api/v1/orgs/acme/import/probe";

fn bearer(token: &str) -> Who {
    Who::Bearer(token.to_owned())
}

#[tokio::test]
async fn each_credential_is_accepted_by_its_endpoints_only() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, embed_secret) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let (_, read) = server.key(&cabinet, json!({ "scopes": ["read"] })).await;
    let (_, ingest) = server.key(&cabinet, json!({ "scopes": ["ingest"] })).await;
    let token = server.token(&cabinet, &key, json!({})).await;
    let table = [
        ("nobody", Who::Nobody, [401, 401, 401, 401, 401]),
        ("cookie", cabinet.clone(), [200, 200, 200, 204, 200]),
        ("token", token, [200, 200, 200, 403, 401]),
        ("read key", bearer(&read), [401, 401, 200, 403, 401]),
        ("ingest key", bearer(&ingest), [401, 401, 403, 204, 401]),
        ("embed key", bearer(&embed_secret), [401, 401, 403, 403, 401]),
        ("read key as password", Who::Basic("grafana".into(), read.clone()), [401, 401, 200, 403, 401]),
    ];
    for (name, who, expected) in table {
        let got = [
            server.get(RANGE, &who).await.status.as_u16(),
            server.get(EXPR, &who).await.status.as_u16(),
            server.get(MOUNT, &who).await.status.as_u16(),
            server.post(WRITE, &who, json!({})).await.status.as_u16(),
            server.get("/api/v1/orgs/acme", &who).await.status.as_u16(),
        ];
        assert_eq!(got, expected, "{name}: range, expr, mount, write, cabinet");
    }
}

/// docs/specification.md F47.
#[tokio::test]
async fn a_raw_api_key_is_refused_on_the_data_paths_with_a_hint() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (_, secret) = server.key(&cabinet, json!({ "scopes": ["read", "embed", "ingest"] })).await;
    let reply = server.get(RANGE, &bearer(&secret)).await;
    reply.is(401, "api_key_not_allowed");
    assert!(reply.text("hint").contains("prometheus"));
    assert_eq!(reply.value()["errorType"], "unauthorized");
    assert!(
        reply.header("www-authenticate").starts_with("Bearer realm=\"metrics\", error=\"invalid_token\"")
    );
    server.get("/api/v1/orgs/acme", &bearer(&secret)).await.is(401, "session_required");
}

/// docs/specification.md B3: on an endpoint that does not accept keys, a key does not bypass the
/// limit for requests without a valid credential.
#[tokio::test]
async fn a_key_on_an_endpoint_that_accepts_none_is_charged_to_its_address() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (_, secret) = server.key(&cabinet, json!({ "scopes": ["ingest"] })).await;
    for path in [RANGE, "/api/v1/orgs/acme"] {
        server.pass(Duration::from_secs(2));
        for _ in 0..200 {
            assert_eq!(server.get(path, &bearer(&secret)).await.status, 401, "{path}");
        }
        let refused = server.get(path, &bearer(&secret)).await;
        refused.is(429, "rate_limited");
        assert_eq!(refused.value()["scope"], "ip", "{path}");
    }
}

/// docs/specification.md B1.1 and F36: with an invalid Authorization header a valid cookie is not
/// used.
#[tokio::test]
async fn the_authorization_header_is_the_only_credential_considered() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let token = server.token(&cabinet, &key, json!({ "ttl_s": 60 })).await;
    server.pass(Duration::from_secs(60 + 31));
    let both = |authorization: String| {
        ask("GET", RANGE, &cabinet)
            .header(header::AUTHORIZATION, authorization)
            .body(Body::empty())
            .expect("a request")
    };
    let expired = server.send(both(format!("Bearer {}", token.secret()))).await;
    expired.is(401, "token_expired");
    assert_eq!(expired.session_cookie(), None, "the cookie was not read");
    for authorization in ["Bearer x", "Bearer a.b.c", "Basic !!!", "Digest x", "", "Bearer", "Bearer msk_x"] {
        let reply = server.send(both(authorization.to_owned())).await;
        assert_eq!(reply.status, 401, "{authorization:?}");
    }
}

/// docs/specification.md B1.4: a token is not a session, so the request is unauthenticated.
#[tokio::test]
async fn a_token_on_a_cabinet_endpoint_needs_a_session() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let token = server.token(&cabinet, &key, json!({})).await;
    for who in [&token, &bearer("a.b.c")] {
        for path in [
            "/api/v1/orgs/acme",
            "/api/v1/orgs",
            "/auth/me",
            "/api/v1/orgs/acme/api-keys",
            "/api/v1/orgs/other/api-keys",
        ] {
            server.get(path, who).await.is(401, "session_required");
        }
        server
            .post("/api/v1/orgs/acme/embed/tokens", who, json!({ "api_key_id": key }))
            .await
            .is(401, "session_required");
    }
}

/// docs/specification.md A15: outsiders cannot tell whether an organisation exists.
#[tokio::test]
async fn foreign_and_unknown_organisations_get_the_same_response() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let unknown = ["nobody-has-this", "x", "api", "%E4", "UPPER"];
    let mut bodies = std::collections::BTreeSet::new();
    for slug in unknown {
        for path in [format!("/api/v1/orgs/{slug}"), format!("/api/v1/orgs/{slug}/api-keys")] {
            let reply = server.get(&path, &cabinet).await;
            if reply.status == 400 {
                continue;
            }
            reply.is(404, "org_not_found");
            let mut body = reply.value();
            body["request_id"] = "".into();
            bodies.insert(body.to_string());
        }
    }
    assert_eq!(bodies.len(), 1);
    server.get("/api/v1/orgs/other/query/probe-range", &cabinet).await.is(404, "org_not_found");
}

/// docs/specification.md F30: decided by the credential alone, whether or not the organisation
/// exists.
#[tokio::test]
async fn credentials_of_one_organisation_do_not_work_in_another() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    assert_eq!(server.post("/api/v1/orgs", &cabinet, json!({ "slug": "other" })).await.status, 201);
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let (_, machine) = server.key(&cabinet, json!({ "scopes": ["read", "ingest", "embed"] })).await;
    let token = server.token(&cabinet, &key, json!({})).await;
    // Percent-encoding is another spelling of the same organisation, for every credential alike.
    assert_eq!(server.get("/api/v1/orgs/%61cme/query/probe-range", &token).await.status, 200);
    for slug in ["other", "unknown", "%6fther", "acme%ff", "acme%"] {
        server.get(&format!("/api/v1/orgs/{slug}/query/probe-range"), &token).await.is(403, "org_mismatch");
        let mount = server.get(&format!("/api/v1/orgs/{slug}/prometheus/api/v1/probe"), &token).await;
        assert_eq!((mount.status.as_u16(), mount.text("errorType").as_str()), (403, "forbidden"));
    }
    for slug in ["other", "unknown"] {
        server
            .post(&format!("/api/v1/orgs/{slug}/import/probe"), &bearer(&machine), json!({}))
            .await
            .is(403, "org_mismatch");
        server
            .post(&format!("/api/v1/orgs/{slug}/embed/tokens"), &bearer(&machine), json!({}))
            .await
            .is(403, "org_mismatch");
        let mount =
            server.get(&format!("/api/v1/orgs/{slug}/prometheus/api/v1/probe"), &bearer(&machine)).await;
        assert_eq!(mount.status, 403);
    }
}

/// Usually a script's variable that is not set or holds something else: a version, a host name,
/// half of a key.
#[tokio::test]
async fn a_bearer_that_is_neither_a_key_nor_a_token_gets_an_error_that_says_so() {
    let server = TestServer::new();
    for path in ["query/probe-range", "prometheus/api/v1/probe"] {
        let refused = async |bearer: &str| {
            let value = HeaderValue::from_bytes(bearer.as_bytes()).expect("a value");
            let request = ask("GET", &format!("/api/v1/orgs/acme/{path}"), &Who::Nobody);
            let request = request.header(header::AUTHORIZATION, value).body(Body::empty());
            let refused = server.send(request.expect("a request")).await;
            assert_eq!(refused.status, 401, "{bearer}: {}", refused.body);
            refused.body
        };
        for text in [
            "secret",
            "ak_abcdefgh",
            "a.b",
            "a.b.c.d",
            "$KEY",
            "a.b.c",
            "1.2.3",
            "my.host.name",
            "..",
            "\u{2026}",
        ] {
            let body = refused(&format!("Bearer {text}")).await;
            assert!(body.contains("neither an API key") && body.contains("JWT"), "{text}: {body}");
        }
        // The header of a token, and an array, which is not one.
        for (part, is_token) in
            [(r#"{"alg":"HS256"}"#, true), ("{}", true), (r#"["alg"]"#, false), ("{", false)]
        {
            let part = BASE64URL_NOPAD.encode(part.as_bytes());
            let body = refused(&format!("Bearer {part}.e30.c2ln")).await;
            assert_eq!(body.contains("neither"), !is_token, "{body}");
        }
        // A key abbreviated as in lists and logs, and a key with an adjacent character.
        for text in
            ["msk_0123\u{2026}abcd", "msk_0123...abcd", "msk_0123abcd\"", "msk_0123abcd\u{a0}", "msk_\u{e4}"]
        {
            let body = refused(&format!("Bearer {text}")).await;
            assert!(body.contains("a character that no key has"), "{text}: {body}");
        }
        assert!(refused("Bearer msk_0123abcd").await.contains("unknown, disabled or expired"));
        let basic = BASE64.encode("any:msk_0123\u{2026}".as_bytes());
        assert!(refused(&format!("Basic {basic}")).await.contains("a character that no key has"));
    }
}

/// A token that lists expressions allows only those, unless it lists endpoints as well.
#[tokio::test]
async fn a_token_that_lists_expressions_allows_only_those() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let exprs = json!({ "exprs": ["up"] });
    let (free, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let restricted = json!({ "scopes": ["embed"], "embed": { "policy": exprs } });
    let (restricted, _) = server.key(&cabinet, restricted).await;
    let (range, expr) = ("/api/v1/orgs/acme/query/probe-range", "/api/v1/orgs/acme/query/probe-expr");
    for (key, ms) in [(&free, exprs.clone()), (&restricted, json!({}))] {
        let token = server.token(&cabinet, key, json!({ "ms": ms })).await;
        server.get(range, &token).await.is(403, "embed_restricted");
        server.get("/api/v1/orgs/acme/metrics", &token).await.is(403, "embed_restricted");
        assert_eq!(server.get(expr, &token).await.status, 200);
    }
    // Endpoints that the token lists as well are allowed.
    let both = json!({ "ms": { "exprs": ["up"], "endpoints": ["expr", "range"] } });
    let token = server.token(&cabinet, &free, both).await;
    assert_eq!(
        (server.get(range, &token).await.status, server.get(expr, &token).await.status),
        (200.try_into().expect("a status"), 200.try_into().expect("a status"))
    );
}

/// docs/specification.md F31: ids of one organisation are unknown in another.
#[tokio::test]
async fn keys_of_another_organisation_are_not_found() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    assert_eq!(server.post("/api/v1/orgs", &cabinet, json!({ "slug": "other" })).await.status, 201);
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let path = format!("/api/v1/orgs/other/api-keys/{key}");
    server.get(&path, &cabinet).await.is(404, "not_found");
    server.delete(&path, &cabinet).await.is(404, "not_found");
    server.json("PATCH", &path, &cabinet, json!({ "name": "mine now" })).await.is(404, "not_found");
    server.post(&format!("{path}/revoke-tokens"), &cabinet, json!({})).await.is(404, "not_found");
    server
        .post("/api/v1/orgs/other/embed/tokens", &cabinet, json!({ "api_key_id": key }))
        .await
        .is(404, "not_found");
    let unchanged = server.get(&format!("/api/v1/orgs/acme/api-keys/{key}"), &cabinet).await;
    assert_eq!(unchanged.text("name"), "test");
}

/// docs/specification.md F27 to F29.
#[tokio::test]
async fn forged_tokens_are_refused() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let token = server.token(&cabinet, &key, json!({})).await;
    let parts: Vec<&str> = token.secret().split('.').collect();
    let header = |json: serde_json::Value| BASE64URL_NOPAD.encode(json.to_string().as_bytes());
    let none = header(json!({ "alg": "none", "typ": "JWT", "kid": key }));
    let mut flipped = parts[2].to_owned();
    flipped.replace_range(0..1, if flipped.starts_with('A') { "B" } else { "A" });
    let forged = [
        format!("{none}.{}.", parts[1]),
        format!("{none}.{}.{}", parts[1], parts[2]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}.{flipped}", parts[0], parts[1]),
        format!("{}.{}.{}", header(json!({ "alg": "HS512", "kid": key })), parts[1], parts[2]),
        format!("{}.{}.{}", header(json!({ "alg": "HS256", "kid": "../../etc/passwd" })), parts[1], parts[2]),
        format!(
            "{}.{}.{}",
            header(json!({ "alg": "HS256", "kid": key, "jku": "http://127.0.0.1:1/" })),
            parts[1],
            parts[2]
        ),
        format!(
            "{}.{}.{}",
            parts[0],
            header(json!({ "aud": "ms-embed", "org": "acme", "iat": 0, "exp": 9_999_999_999_u64 })),
            parts[2]
        ),
        token.secret().repeat(20),
        "...".into(),
    ];
    for forgery in forged {
        server.get(RANGE, &Who::Bearer(forgery)).await.is(401, "token_invalid");
    }
    assert_eq!(server.get(RANGE, &token).await.status, 200, "the genuine one still works");
}

#[tokio::test]
async fn a_restricted_token_allows_its_endpoints_and_passes_its_restrictions_on() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let ms = json!({ "endpoints": ["range"], "match": ["tenant=\"t42\""], "metrics": ["http_*"], "max_range_s": 60, "max_lookback_s": 3_600 });
    let token = server.token(&cabinet, &key, json!({ "ms": ms })).await;
    let entered = server.get(RANGE, &token).await;
    assert_eq!(entered.status, 200);
    for part in ["t42", "http_*", "max_range_ms: Some(60000)", "min_time: Some"] {
        assert!(entered.body.contains(part), "{part} in {}", entered.body);
    }
    server.get(EXPR, &token).await.is(403, "embed_restricted");
    let introspect = |token: &str| json!({ "token": token });
    let seen =
        server.post("/api/v1/orgs/acme/embed/introspect", &cabinet, introspect(token.secret())).await.value();
    assert_eq!((&seen["valid"], &seen["reason"]), (&json!(true), &json!(null)));
    assert_eq!(seen["effective"]["match"], json!(["tenant=\"t42\""]));
    assert_eq!(seen["claims"]["org"], "acme");
    let seen = server.post("/api/v1/orgs/acme/embed/introspect", &cabinet, introspect("a.b.c")).await.value();
    assert_eq!((&seen["valid"], seen["effective"].is_null()), (&json!(false), true));
    assert!(seen["reason"].is_string());
}

#[tokio::test]
async fn a_deleted_disabled_or_expired_key_and_its_tokens_end_at_once() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, secret) = server.key(&cabinet, json!({ "scopes": ["embed", "read"] })).await;
    let path = format!("/api/v1/orgs/acme/api-keys/{key}");
    let token = server.token(&cabinet, &key, json!({})).await;
    let status = async |who: &Who, at: &str| server.get(at, who).await.status.as_u16();
    assert_eq!((status(&token, RANGE).await, status(&bearer(&secret), MOUNT).await), (200, 200));
    assert_eq!(server.json("PATCH", &path, &cabinet, json!({ "disabled": true })).await.status, 200);
    assert_eq!((status(&token, RANGE).await, status(&bearer(&secret), MOUNT).await), (401, 401));
    assert_eq!(server.json("PATCH", &path, &cabinet, json!({ "disabled": false })).await.status, 200);
    assert_eq!(status(&token, RANGE).await, 200);
    server.pass(Duration::from_secs(1));
    assert_eq!(server.post(&format!("{path}/revoke-tokens"), &cabinet, json!({})).await.status, 204);
    server.get(RANGE, &token).await.is(401, "token_invalid");
    assert_eq!(status(&bearer(&secret), MOUNT).await, 200, "the key itself stays");
    assert_eq!(server.delete(&path, &cabinet).await.status, 204);
    assert_eq!(status(&bearer(&secret), MOUNT).await, 401);
    server.get(&path, &cabinet).await.is(404, "not_found");
}

#[tokio::test]
async fn a_basic_user_that_names_a_key_must_name_the_right_one() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, secret) = server.key(&cabinet, json!({ "scopes": ["read"] })).await;
    assert_eq!(server.get(MOUNT, &Who::Basic(key, secret.clone())).await.status, 200);
    let other = server.get(MOUNT, &Who::Basic("ak_aaaaaaaaaaaaaaaa".into(), secret)).await;
    assert_eq!(other.status, 401);
    assert!(!other.header("www-authenticate").contains("Basic"), "no browser pop-up");
}
