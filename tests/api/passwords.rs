//! Changing the password, and resetting it by mail (docs/specification.md C2, D1, D3).

use std::time::Duration;

use axum::body::Body;
use promlet::outbound::MailKind;
use serde_json::{Value, json};

use crate::test_server::{EMAIL, PASSWORD, Reply, TestServer, Who, ask};

const NEW: &str = "another long password";

fn mails(server: &TestServer) -> Vec<(MailKind, String)> {
    server.outbox.mails().into_iter().map(|mail| (mail.kind, mail.to)).collect()
}

async fn log_in(server: &TestServer, password: &str) -> Reply {
    server.post("/auth/login", &Who::Nobody, json!({ "email": EMAIL, "password": password })).await
}

#[tokio::test]
async fn a_password_change_gives_a_new_session_ends_the_others_and_notifies_the_owner() {
    let server = TestServer::new();
    let (mine, other) = (server.log_in().await, server.log_in().await);
    let body = json!({ "current_password": PASSWORD, "new_password": NEW });
    let reply = server.post("/auth/password/change", &mine, body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let result = reply.value();
    assert_eq!((&result["requires_2fa"], &result["user"]["email"]), (&json!(false), &json!(EMAIL)));
    let fresh = Who::Cookie(reply.session_cookie().expect("a new session"));
    assert_ne!(fresh.secret(), mine.secret());
    for over in [&mine, &other] {
        server.get("/auth/me", over).await.is(401, "session_invalid");
    }
    let rows = server.get("/auth/sessions", &fresh).await.value();
    assert_eq!(rows["data"].as_array().expect("rows").len(), 1);
    assert_eq!(mails(&server), [(MailKind::PasswordChanged, EMAIL.to_owned())]);
    log_in(&server, PASSWORD).await.is(401, "invalid_credentials");
    assert_eq!(log_in(&server, NEW).await.status, 200);
}

#[tokio::test]
async fn a_password_change_needs_the_current_password_and_a_strong_new_one() {
    let server = TestServer::new();
    let mine = server.log_in().await;
    let change = |body: Value| server.post("/auth/password/change", &mine, body);
    change(json!({ "new_password": NEW })).await.is(401, "invalid_credentials");
    change(json!({ "current_password": "wrong", "new_password": NEW })).await.is(401, "invalid_credentials");
    change(json!({ "current_password": PASSWORD })).await.is(422, "validation_failed");
    for weak in ["short", "password123", EMAIL, "", &"x".repeat(1_025)] {
        let refused = change(json!({ "current_password": PASSWORD, "new_password": weak })).await;
        refused.is(422, "weak_password");
        assert_eq!(refused.value()["errors"][0]["field"], "new_password");
    }
    let nobody = server.post("/auth/password/change", &Who::Nobody, json!({ "new_password": NEW })).await;
    nobody.is(401, "unauthenticated");
    assert_eq!(server.get("/auth/me", &mine).await.status, 200, "nothing changed");
    assert!(mails(&server).is_empty());
}

/// Requests a reset. Returns the cookie of the browser.
async fn ask_reset(server: &TestServer) -> String {
    let asked = server.post("/auth/password/reset/request", &Who::Nobody, json!({ "email": EMAIL })).await;
    assert_eq!(asked.status, 202, "{}", asked.body);
    assert_eq!(asked.value(), json!({ "status": "accepted", "expires_in": 600 }));
    asked.cookie("ms_ml").expect("bound to a browser")
}

fn mailed_token(server: &TestServer) -> String {
    let mails = server.outbox.mails();
    let mail = mails.iter().rev().find(|mail| mail.kind == MailKind::PasswordReset).expect("mailed");
    let token = mail.url.strip_prefix("http://127.0.0.1:8095/login/reset#token=").expect("the public URL");
    assert!(token.starts_with("rst_"), "{token}");
    token.to_owned()
}

async fn confirm(server: &TestServer, browser: Option<&str>, body: Value) -> Reply {
    let mut request =
        ask("POST", "/auth/password/reset/confirm", &Who::Nobody).header("content-type", "application/json");
    if let Some(cookie) = browser {
        request = request.header("cookie", cookie);
    }
    server.send(request.body(Body::from(body.to_string())).expect("a request")).await
}

#[tokio::test]
async fn a_mailed_link_sets_a_new_password_once_and_creates_no_session() {
    let server = TestServer::new();
    let before = server.log_in().await;
    let browser = ask_reset(&server).await;
    let token = mailed_token(&server);
    let body = json!({ "token": token, "new_password": NEW });
    confirm(&server, None, body.clone()).await.is(400, "email_confirmation_required");
    confirm(&server, Some(&browser), json!({ "token": token, "new_password": "short" }))
        .await
        .is(422, "weak_password");
    let reply = confirm(&server, Some(&browser), body.clone()).await;
    assert_eq!((reply.status.as_u16(), reply.value()), (200, json!({ "status": "password_changed" })));
    assert_eq!(reply.session_cookie(), None);
    server.get("/auth/me", &before).await.is(401, "session_invalid");
    confirm(&server, Some(&browser), body).await.is(401, "link_invalid");
    log_in(&server, PASSWORD).await.is(401, "invalid_credentials");
    assert_eq!(log_in(&server, NEW).await.status, 200);
    assert_eq!(mails(&server).last(), Some(&(MailKind::PasswordWasReset, EMAIL.to_owned())));
}

#[tokio::test]
async fn a_reset_link_lives_ten_minutes_and_its_use_clears_earlier_failures() {
    let server = TestServer::new();
    let browser = ask_reset(&server).await;
    let late = mailed_token(&server);
    server.pass(Duration::from_secs(600));
    let body = |token: &str| json!({ "token": token, "new_password": NEW });
    confirm(&server, Some(&browser), body(&late)).await.is(401, "link_invalid");
    for _ in 0..6 {
        log_in(&server, "wrong password").await;
    }
    log_in(&server, PASSWORD).await.is(429, "login_throttled");
    let browser = ask_reset(&server).await;
    server.pass(Duration::from_millis(599_999));
    for _ in 0..6 {
        log_in(&server, "wrong password").await;
    }
    assert_eq!(confirm(&server, Some(&browser), body(&mailed_token(&server))).await.status, 200);
    assert_eq!(log_in(&server, NEW).await.status, 200, "Grafana #30161");
}

/// docs/specification.md F26: a reset does not bypass the second factor.
#[tokio::test]
async fn after_a_reset_the_second_factor_is_required_as_before() {
    let server = TestServer::new();
    let mine = server.log_in().await;
    let enrolled = server.post("/auth/2fa/enroll", &mine, json!({})).await;
    let secret = data_encoding::BASE32_NOPAD.decode(enrolled.text("secret").as_bytes()).expect("base32");
    let app = totp_rs::Builder::new().with_secret(secret).build().expect("an app");
    let code = app.generate(u64::try_from(server.clock.now().as_s()).expect("after 1970")).to_string();
    let confirmed = server.post("/auth/2fa/confirm", &mine, json!({ "code": code })).await;
    assert_eq!(confirmed.status, 200, "{}", confirmed.body);
    let browser = ask_reset(&server).await;
    let body = json!({ "token": mailed_token(&server), "new_password": NEW });
    assert_eq!(confirm(&server, Some(&browser), body).await.status, 200);
    let login = log_in(&server, NEW).await;
    assert_eq!((login.status.as_u16(), login.session_cookie()), (200, None));
    assert_eq!(login.value()["requires_2fa"], true);
    // Nor does a login link.
    server.post("/auth/magic-link/request", &Who::Nobody, json!({ "email": EMAIL })).await;
    let url = server.outbox.mails().last().expect("mailed").url.clone();
    let token = url.split("token=").nth(1).expect("a token");
    let link =
        server.post("/auth/magic-link/verify", &Who::Nobody, json!({ "token": token, "email": EMAIL })).await;
    assert_eq!((link.status.as_u16(), link.session_cookie()), (200, None));
    assert_eq!(link.value()["requires_2fa"], true);
}
