//! The second factor over HTTP (docs/specification.md C1, C2, D3; threats 24, 25, 26).
//! `identity::tests::two_factor` tests its rules; `tests/peers_totp.rs` reads the QR code and
//! generates codes with other programs.

use std::time::Duration;

use axum::body::Body;
use promlet::outbound::MailKind;
use serde_json::{Value, json};

use crate::test_server::{EMAIL, PASSWORD, Reply, TestServer, Who, ask};

/// Returns the code that an authenticator app shows now.
fn code(server: &TestServer, secret: &str) -> String {
    let secret = data_encoding::BASE32_NOPAD.decode(secret.as_bytes()).expect("base32");
    let totp = totp_rs::Builder::new().with_secret(secret).build().expect("a generator");
    totp.generate(u64::try_from(server.clock.now().as_s()).expect("after 1970")).to_string()
}

/// A code that is wrong at any time.
const WRONG: &str = "000000";

/// Creates an account with a second factor. Returns its secret, session and recovery codes.
async fn enrolled() -> (TestServer, String, Who, Vec<String>) {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let secret = server.post("/api/v1/auth/2fa/enroll", &cabinet, json!({})).await.text("secret");
    let body = json!({ "code": code(&server, &secret) });
    let confirmed = server.post("/api/v1/auth/2fa/confirm", &cabinet, body).await;
    assert_eq!(confirmed.status, 200, "{}", confirmed.body);
    let session = Who::Cookie(confirmed.session_cookie().expect("a new session"));
    let codes = confirmed.value()["recovery_codes"].as_array().expect("codes").clone();
    let codes = codes.iter().map(|code| code.as_str().expect("a text").to_owned()).collect();
    server.pass(Duration::from_secs(60));
    (server, secret, session, codes)
}

async fn pending(server: &TestServer) -> String {
    let login = json!({ "email": EMAIL, "password": PASSWORD });
    let reply = server.post("/api/v1/auth/login", &Who::Nobody, login).await;
    assert_eq!(reply.session_cookie(), None);
    reply.text("twofa_pending_login")
}

async fn verify(server: &TestServer, pending: &str, name: &str, value: &str) -> Reply {
    let mut body = json!({ "twofa_pending_login": pending });
    body[name] = Value::from(value);
    server.post("/api/v1/auth/2fa/verify", &Who::Nobody, body).await
}

fn mails(server: &TestServer, kind: MailKind) -> usize {
    server.outbox.mails().iter().filter(|mail| mail.kind == kind && mail.to == EMAIL).count()
}

#[tokio::test]
async fn an_enrolment_has_a_secret_a_link_and_a_qr_code_of_it() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let first = server.post("/api/v1/auth/2fa/enroll", &cabinet, json!({})).await;
    assert_eq!(first.status, 200, "{}", first.body);
    let (secret, url) = (first.text("secret"), first.text("otpauth_url"));
    assert_eq!((secret.len(), first.value()["expires_in"].as_u64()), (32, Some(600)));
    assert!(url.starts_with("otpauth://totp/promlet:") && url.contains(&format!("secret={secret}")), "{url}");
    // SHA-1, six digits and thirty seconds are the defaults of authenticator apps.
    assert!(!url.contains("SHA256") && !url.contains("digits=8"), "{url}");
    assert!(first.text("qr_png").starts_with("data:image/png;base64,iVBORw0KGgo"));
    let second = server.post("/api/v1/auth/2fa/enroll", &cabinet, json!({})).await.text("secret");
    assert_ne!(secret, second);
    let confirm = |code: String| json!({ "code": code });
    server
        .post("/api/v1/auth/2fa/confirm", &cabinet, confirm(code(&server, &secret)))
        .await
        .is(401, "invalid_code");
    server.pass(Duration::from_secs(600));
    server
        .post("/api/v1/auth/2fa/confirm", &cabinet, confirm(code(&server, &second)))
        .await
        .is(409, "twofa_not_enabled");
}

/// A malformed code does not count as an attempt.
#[tokio::test]
async fn a_code_has_six_digits_with_any_separators() {
    let (server, secret, session, _) = enrolled().await;
    let tfp = pending(&server).await;
    for text in ["", "12345", "1234567", "12345a", "١٢٣٤٥٦", "-12345", &"1".repeat(5_000)] {
        verify(&server, &tfp, "code", text).await.is(422, "validation_failed");
        for path in ["confirm", "recovery-codes", "disable"] {
            let body = json!({ "code": text });
            server
                .post(&format!("/api/v1/auth/2fa/{path}"), &session, body)
                .await
                .is(422, "validation_failed");
        }
    }
    let both = json!({ "twofa_pending_login": tfp, "code": WRONG, "recovery_code": "x" });
    server.post("/api/v1/auth/2fa/verify", &Who::Nobody, both).await.is(422, "validation_failed");
    let plain = code(&server, &secret);
    let spaced = format!(" {} {} ", &plain[..3], &plain[3..]);
    assert_eq!(verify(&server, &tfp, "code", &spaced).await.status, 200);
}

/// docs/specification.md F24.
#[tokio::test]
async fn five_wrong_codes_end_the_login_throttle_the_next_and_notify_the_owner() {
    let (server, secret, _, codes) = enrolled().await;
    let tfp = pending(&server).await;
    for left in (0..5).rev() {
        assert_eq!(mails(&server, MailKind::TwofaFailures), 0);
        let reply = verify(&server, &tfp, "code", WRONG).await;
        reply.is(401, "invalid_code");
        assert_eq!(reply.value()["attempts_left"], left);
    }
    assert_eq!(mails(&server, MailKind::TwofaFailures), 1);
    verify(&server, &tfp, "code", &code(&server, &secret)).await.is(401, "pending_login_invalid");
    let tfp = pending(&server).await;
    let reply = verify(&server, &tfp, "code", &code(&server, &secret)).await;
    reply.is(429, "twofa_throttled");
    let wait = reply.header("retry-after").parse::<u64>().expect("seconds");
    assert!((1..=900).contains(&wait), "{wait}");
    let recovered = verify(&server, &tfp, "recovery_code", &codes[0]).await;
    assert_eq!(recovered.status, 200, "wrong codes do not block recovery codes: {}", recovered.body);
    assert_eq!(mails(&server, MailKind::TwofaFailures), 1, "once for each throttle");
    server.pass(Duration::from_secs(900));
    let tfp = pending(&server).await;
    assert_eq!(verify(&server, &tfp, "code", &code(&server, &secret)).await.status, 200);
}

/// The specification allows no cookie on the response that asks for a second factor, so this
/// response does not renew a live session.
#[tokio::test]
async fn the_response_that_asks_for_a_second_factor_sets_no_session_cookie() {
    let (server, _, session, _) = enrolled().await;
    let login = json!({ "email": EMAIL, "password": PASSWORD });
    let reply = server.post("/api/v1/auth/login", &session, login).await;
    assert_eq!((reply.status.as_u16(), &reply.value()["requires_2fa"]), (200, &json!(true)));
    assert!(reply.headers.get("set-cookie").is_none(), "{:?}", reply.headers);
    let me = server.get("/api/v1/auth/me", &session).await;
    assert!(me.status == 200 && me.session_cookie().is_some(), "the older session goes on and slides");
    // The same for a mailed link, for programs and for the form of its page.
    for media in ["application/json", "application/x-www-form-urlencoded"] {
        server.post("/auth/magic-link/request", &Who::Nobody, json!({ "email": EMAIL })).await;
        let url = server.outbox.mails().pop().expect("mailed").url;
        let token = url.split_once("token=").expect("a link").1.to_owned();
        let (body, status) = match media {
            "application/json" => (json!({ "token": token, "email": EMAIL }).to_string(), 200),
            _ => (format!("token={token}&email={EMAIL}"), 303),
        };
        let request = ask("POST", "/auth/magic-link/verify", &session).header("content-type", media);
        let reply = server.send(request.body(Body::from(body)).expect("a request")).await;
        assert_eq!(reply.status, status, "{media}: {}", reply.body);
        let asks = if status == 200 { reply.body.as_str() } else { reply.header("location") };
        assert!(asks.contains("tfp_"), "{media}: {asks}");
        assert!(reply.headers.get("set-cookie").is_none(), "{media}: {:?}", reply.headers);
    }
}

/// docs/sessions.md: the session was used, so its expiry moves.
#[tokio::test]
async fn a_login_that_asks_for_a_second_factor_moves_the_expiry_of_the_older_session() {
    let (server, _, session, _) = enrolled().await;
    server.pass(Duration::from_secs(29 * 24 * 3_600));
    let login = json!({ "email": EMAIL, "password": PASSWORD });
    let reply = server.post("/api/v1/auth/login", &session, login).await;
    assert_eq!(reply.value()["requires_2fa"], true);
    server.pass(Duration::from_secs(2 * 24 * 3_600));
    assert_eq!(server.get("/api/v1/auth/me", &session).await.status, 200);
}

/// docs/specification.md F25.
#[tokio::test]
async fn of_twenty_uses_of_one_code_one_logs_in() {
    let (server, secret, _, codes) = enrolled().await;
    for (name, value) in [("code", code(&server, &secret)), ("recovery_code", codes[3].to_uppercase())] {
        let mut logins = Vec::new();
        for _ in 0..4 {
            logins.push(pending(&server).await);
        }
        let uses = (0..20).map(|number| verify(&server, &logins[number % 4], name, &value));
        let mut won = 0;
        for reply in join_all(uses).await {
            won += usize::from(reply.status == 200);
            assert_eq!(reply.session_cookie().is_some(), reply.status == 200);
        }
        assert_eq!(won, 1, "{name}");
        server.pass(Duration::from_secs(3_600));
    }
}

/// Runs all futures concurrently on this thread.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(move |cx| {
        for (future, done) in waiting.iter_mut().filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(output) = future.as_mut().poll(cx) {
                *done = Some(output);
            }
        }
        match waiting.iter().all(|(_, done)| done.is_some()) {
            true => std::task::Poll::Ready(waiting.iter_mut().filter_map(|(_, done)| done.take()).collect()),
            false => std::task::Poll::Pending,
        }
    })
    .await
}

#[tokio::test]
async fn changes_of_the_second_factor_are_notified_by_mail() {
    let (server, secret, session, codes) = enrolled().await;
    assert_eq!(mails(&server, MailKind::TwofaEnabled), 1);
    let fresh = json!({ "code": code(&server, &secret) });
    let renewed = server.post("/api/v1/auth/2fa/recovery-codes", &session, fresh).await;
    assert_eq!(renewed.status, 200, "{}", renewed.body);
    let new = renewed.value()["recovery_codes"][0].as_str().expect("a code").to_owned();
    assert_eq!((new.len(), new.matches('-').count()), (29, 5), "xxxx-xxxx-xxxx-xxxx-xxxx-xxxx");
    let disable = |code: &str| json!({ "password": PASSWORD, "recovery_code": code });
    let path = "/api/v1/auth/2fa/disable";
    server.post(path, &session, disable(&codes[0])).await.is(401, "invalid_code");
    assert_eq!(server.post(path, &session, disable(&new)).await.status, 204);
    assert_eq!(mails(&server, MailKind::TwofaDisabled), 1);
    server.post(path, &session, disable(&new)).await.is(409, "twofa_not_enabled");
    assert!(server.log_in().await.secret().starts_with("ses_"));
}

#[tokio::test]
async fn wrong_codes_do_not_keep_an_owner_from_removing_the_factor_with_a_recovery_code() {
    let (server, _, session, codes) = enrolled().await;
    let path = "/api/v1/auth/2fa/disable";
    let wrong = json!({ "password": PASSWORD, "code": WRONG });
    for _ in 0..5 {
        server.post(path, &session, wrong.clone()).await.is(401, "invalid_code");
    }
    server.post(path, &session, wrong).await.is(429, "twofa_throttled");
    let guess = json!({ "password": "wrong password", "recovery_code": codes[0] });
    for _ in 0..5 {
        server.post(path, &session, guess.clone()).await.is(401, "invalid_credentials");
    }
    server.post(path, &session, guess).await.is(429, "login_throttled");
    server.pass(Duration::from_secs(1));
    let right = json!({ "password": PASSWORD, "recovery_code": codes[0] });
    let removed = server.post(path, &session, right).await;
    assert_eq!(removed.status, 204, "{}", removed.body);
}
