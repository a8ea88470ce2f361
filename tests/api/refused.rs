//! Errors of the routes of accounts and organisations that no other test causes: each documented
//! error once. `whole_document::every_documented_response_is_given_by_its_route` lists the missing
//! ones.

use std::time::Duration;

use axum::body::Body;
use promlet::api::ApiOptions;
use promlet::identity::{Role, SignupMode};
use serde_json::{Value, json};

use crate::members::person;
use crate::test_server::{EMAIL, PASSWORD, Reply, TestServer, TestServerOptions, Who, ask};

const AUTH: &str = "/api/v1/auth";

/// Returns the code that an authenticator app shows now.
fn code(server: &TestServer, secret: &str) -> String {
    let secret = data_encoding::BASE32_NOPAD.decode(secret.as_bytes()).expect("base32");
    let totp = totp_rs::Builder::new().with_secret(secret).build().expect("a generator");
    totp.generate(u64::try_from(server.clock.now().as_s()).expect("after 1970")).to_string()
}

async fn post(server: &TestServer, path: &str, who: &Who, body: Value) -> Reply {
    server.post(&format!("{AUTH}{path}"), who, body).await
}

#[tokio::test]
async fn the_last_administrator_of_the_server_cannot_delete_their_account() {
    let server = TestServer::new();
    let admin = server.log_in().await;
    person(&server, "bo@example.com", Some(Role::Owner));
    server.delete("/api/v1/auth/me", &admin).await.is(409, "conflict");
}

#[tokio::test]
async fn lists_name_the_invalid_parameter() {
    let server = TestServer::new();
    let admin = server.log_in().await;
    for path in [
        "/api/v1/admin/users",
        "/api/v1/admin/orgs",
        "/api/v1/admin/audit",
        "/api/v1/auth/sessions",
        "/api/v1/orgs",
        "/api/v1/orgs/acme/members",
        "/api/v1/orgs/acme/invites",
        "/api/v1/orgs/acme/audit",
        "/api/v1/orgs/acme/api-keys",
    ] {
        server.get(&format!("{path}?limit=0"), &admin).await.is(400, "invalid_parameter");
        server.get(&format!("{path}?limit=1&limit=2"), &admin).await.is(400, "duplicate_parameter");
        server.get(&format!("{path}?cursor=x"), &admin).await.is(400, "invalid_parameter");
    }
    server.delete("/api/v1/auth/sessions?include_current=x", &admin).await.is(400, "invalid_parameter");
}

#[tokio::test]
async fn a_links_form_names_the_invalid_field() {
    let server = TestServer::new();
    let path = "/api/v1/auth/magic-link/verify";
    server.get(&format!("{path}?token=a&token=b"), &Who::Nobody).await.is(400, "duplicate_parameter");
    for (form, code) in [("", "invalid_parameter"), ("token=a&token=b", "duplicate_parameter")] {
        let request =
            ask("POST", path, &Who::Nobody).header("content-type", "application/x-www-form-urlencoded");
        server.send(request.body(Body::from(form)).expect("a request")).await.is(400, code);
    }
}

#[tokio::test]
async fn an_enrolment_allows_five_wrong_codes_and_is_confirmed_once() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    post(&server, "/2fa/enroll", &cabinet, json!({})).await;
    for _ in 0..5 {
        post(&server, "/2fa/confirm", &cabinet, json!({ "code": "000000" })).await.is(401, "invalid_code");
    }
    post(&server, "/2fa/confirm", &cabinet, json!({ "code": "000000" })).await.is(429, "twofa_throttled");
    server.pass(Duration::from_secs(15 * 60));
    post(&server, "/reauth", &cabinet, json!({ "password": PASSWORD })).await;
    let secret = post(&server, "/2fa/enroll", &cabinet, json!({})).await.text("secret");
    let right = json!({ "code": code(&server, &secret) });
    let confirmed = post(&server, "/2fa/confirm", &cabinet, right.clone()).await;
    assert_eq!(confirmed.status, 200, "{}", confirmed.body);
    let cabinet = Who::Cookie(confirmed.session_cookie().expect("a new session"));
    post(&server, "/2fa/confirm", &cabinet, right).await.is(409, "twofa_already_enabled");
}

/// On every endpoint a code works once, and wrong codes are counted together.
#[tokio::test]
async fn every_endpoint_that_takes_a_code_distinguishes_used_and_wrong_ones() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    post(&server, "/2fa/recovery-codes", &cabinet, json!({ "code": "000000" }))
        .await
        .is(409, "twofa_not_enabled");
    let secret = post(&server, "/2fa/enroll", &cabinet, json!({})).await.text("secret");
    let confirmed = post(&server, "/2fa/confirm", &cabinet, json!({ "code": code(&server, &secret) })).await;
    let cabinet = Who::Cookie(confirmed.session_cookie().expect("a new session"));
    let given = |path: &str, code: &str| {
        let body = json!({ "code": code, "password": PASSWORD });
        // A password is proof enough.
        match path {
            "/reauth" => json!({ "code": code }),
            _ => body,
        }
    };
    let places = ["/2fa/recovery-codes", "/2fa/disable", "/reauth"];
    for path in places {
        let used = post(&server, path, &cabinet, given(path, &code(&server, &secret))).await;
        used.is(401, "code_already_used");
        assert!(
            used.value()["retry_after_ms"].as_u64().is_some_and(|ms| ms <= 60_000),
            "{path}: {}",
            used.body
        );
    }
    for path in places.into_iter().cycle().take(5) {
        post(&server, path, &cabinet, given(path, "000000")).await.is(401, "invalid_code");
    }
    for path in places {
        post(&server, path, &cabinet, given(path, "000000")).await.is(429, "twofa_throttled");
    }
}

#[tokio::test]
async fn a_session_that_guesses_its_owners_password_is_throttled() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    for _ in 0..5 {
        let wrong = json!({ "password": "wrong password" });
        post(&server, "/reauth", &cabinet, wrong).await.is(401, "invalid_credentials");
    }
    let right = json!({ "password": PASSWORD });
    post(&server, "/reauth", &cabinet, right).await.is(429, "login_throttled");
    let change = json!({ "current_password": PASSWORD, "new_password": "another long password" });
    post(&server, "/password/change", &cabinet, change).await.is(429, "login_throttled");
    // The session is throttled, not its owner.
    server.log_in().await;
}

fn mailed(server: &TestServer) -> String {
    let url = server.outbox.mails().pop().expect("mailed").url;
    url.split("token=").nth(1).expect("a token").to_owned()
}

#[tokio::test]
async fn an_account_without_a_password_gets_one_after_a_fresh_login() {
    let server =
        TestServer::build(TestServerOptions { signup: SignupMode::Open, ..TestServerOptions::default() });
    let email = "grace@example.com";
    post(&server, "/signup", &Who::Nobody, json!({ "email": email })).await;
    let complete = json!({ "token": mailed(&server), "email": email });
    let made = post(&server, "/signup/complete", &Who::Nobody, complete).await;
    let grace = Who::Cookie(made.session_cookie().expect("a session"));
    server.pass(Duration::from_secs(15 * 60 + 1));
    let change = json!({ "new_password": "another long password" });
    post(&server, "/password/change", &grace, change).await.is(403, "reauth_required");
}

#[tokio::test]
async fn a_sign_up_link_creates_nothing_that_the_settings_forbid() {
    let server =
        TestServer::build(TestServerOptions { signup: SignupMode::Open, ..TestServerOptions::default() });
    let email = "grace@example.com";
    post(&server, "/signup", &Who::Nobody, json!({ "email": email })).await;
    let token = mailed(&server);
    let with_org = json!({ "token": token, "email": email, "org": { "slug": "grace" } });
    post(&server, "/signup/complete", &Who::Nobody, with_org).await.is(403, "forbidden");
    person(&server, email, None);
    let late = json!({ "token": token, "email": email, "password": PASSWORD });
    post(&server, "/signup/complete", &Who::Nobody, late).await.is(409, "email_taken");
}

#[tokio::test]
async fn mails_to_new_addresses_are_limited_to_ten_in_a_quarter_of_an_hour_per_network() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    for number in 0..10 {
        let body = json!({ "new_email": format!("ada{number}@example.com") });
        assert_eq!(post(&server, "/email/change", &cabinet, body).await.status, 202);
    }
    let body = json!({ "new_email": "ada@another.example" });
    post(&server, "/email/change", &cabinet, body).await.is(429, "mail_throttled");
}

/// docs/specification.md B3: a logout is never refused to a session. A key has no session.
#[tokio::test]
async fn a_key_that_logs_out_is_charged_to_its_address() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.limits.anonymous_rps = 1;
    let server = TestServer::build(TestServerOptions { options, ..TestServerOptions::default() });
    let cabinet = server.log_in().await;
    let (_, secret) = server.key(&cabinet, json!({ "scopes": ["read"] })).await;
    let mut last = post(&server, "/logout", &Who::Bearer(secret.clone()), json!({})).await;
    for _ in 0..3 {
        last = post(&server, "/logout", &Who::Bearer(secret.clone()), json!({})).await;
    }
    last.is(429, "rate_limited");
    assert_eq!(post(&server, "/logout", &cabinet, json!({})).await.status, 204);
}

/// docs/specification.md C4: any setting except `alg` changes. The secret of a key without `embed`
/// cannot sign tokens, and errors ask for a rotation.
#[tokio::test]
async fn a_key_that_gets_embed_later_must_be_rotated_and_says_so() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (id, _) = server.key(&cabinet, json!({ "scopes": ["read"] })).await;
    let key = format!("/api/v1/orgs/acme/api-keys/{id}");
    let changed = server.json("PATCH", &key, &cabinet, json!({ "scopes": ["read", "embed"] })).await;
    assert_eq!((changed.status.as_u16(), &changed.value()["scopes"]), (200, &json!(["read", "embed"])));
    let mint = json!({ "api_key_id": id });
    let refused = server.post("/api/v1/orgs/acme/embed/tokens", &cabinet, mint.clone()).await;
    refused.is(409, "conflict");
    assert!(refused.text("detail").contains("rotate"), "{}", refused.body);
    let claims = json!({ "aud": "ms-embed", "org": "acme", "iat": 1_800_000_000, "exp": 1_800_000_060 });
    let token = crate::test_server::signed(&id, "msk_x", &claims);
    let told = server.post("/api/v1/orgs/acme/embed/introspect", &cabinet, json!({ "token": token })).await;
    assert_eq!(told.value()["reason"], "key");
    assert!(told.text("detail").contains("rotate"), "{}", told.body);
    let rotated = server.post(&format!("{key}/rotate"), &cabinet, json!({ "overlap_s": 0 })).await;
    assert_eq!(rotated.status, 200, "{}", rotated.body);
    assert_eq!(server.post("/api/v1/orgs/acme/embed/tokens", &cabinet, mint).await.status, 201);
}

/// A second factor between a link and its page.
#[tokio::test]
async fn a_links_page_is_kept_during_the_second_factor() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let secret = post(&server, "/2fa/enroll", &cabinet, json!({})).await.text("secret");
    post(&server, "/2fa/confirm", &cabinet, json!({ "code": code(&server, &secret) })).await;
    for (redirect, ends) in [("/explore?q=a&b", "&redirect=%2Fexplore%3Fq%3Da%26b"), ("//evil.example", "")] {
        let wanted = json!({ "email": EMAIL, "redirect": redirect });
        let asked = post(&server, "/magic-link/request", &Who::Nobody, wanted).await;
        let form = ask("POST", "/api/v1/auth/magic-link/verify", &Who::Nobody)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("cookie", asked.cookie("ms_ml").expect("a browser"))
            .body(Body::from(format!("token={}", mailed(&server))));
        let page = server.send(form.expect("a request")).await;
        assert_eq!((page.status.as_u16(), page.session_cookie()), (303, None), "{}", page.body);
        let to = page.header("location");
        let (path, pending) = to.split_once("#pending=tfp_").expect("a login that waits");
        assert_eq!((path, &pending[43..]), ("/login/2fa", ends), "{to}");
    }
}
