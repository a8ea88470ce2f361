//! Login, sessions and logout (docs/specification.md C1, C2, D1, D3, D5).

use std::time::Duration;

use axum::body::Body;
use promlet::api::ApiOptions;
use promlet::entropy::Entropy;
use promlet::identity::Email;
use serde_json::{Value, json};

use crate::test_server::{EMAIL, PASSWORD, TestServer, TestServerOptions, Who, ask, ask_from};

fn bare() -> TestServer {
    TestServer::build(TestServerOptions { set_up: false, ..TestServerOptions::default() })
}

fn first() -> Value {
    json!({ "email": EMAIL, "password": PASSWORD, "name": "Ada", "org": { "slug": "acme", "name": "Acme" } })
}

#[tokio::test]
async fn a_login_answers_with_the_account_and_a_sliding_cookie() {
    let server = TestServer::new();
    for path in ["/api/v1/auth/login", "/auth/login", "/auth/login/"] {
        let reply = server
            .post(path, &Who::Nobody, json!({ "email": " ADA@example.com ", "password": PASSWORD }))
            .await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        let body = reply.value();
        assert_eq!(body["requires_2fa"], false);
        assert_eq!(body["user"]["email"], EMAIL);
        assert_eq!(body["orgs"], json!([{ "slug": "acme", "name": "Acme", "role": "owner" }]));
        assert_eq!(body["session"]["auth_method"], "password");
        assert!(reply.session_cookie().expect("a cookie").starts_with("ses_"));
        let cookie = reply.header("set-cookie");
        for part in ["Path=/", "Max-Age=2592000", "HttpOnly", "SameSite=Lax"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        assert!(!cookie.contains("Secure") && !cookie.contains("Domain"), "{cookie}");
    }
}

/// `PROMLET_COOKIE_SECURE`: Safari drops `Secure` cookies on `http://localhost`, so the default
/// follows the public URL.
#[tokio::test]
async fn cookies_are_secure_if_the_setting_or_the_public_url_says_so() {
    for (url, secure, expected) in [
        ("http://127.0.0.1:8095", None, false),
        ("http://127.0.0.1:8095", Some(true), true),
        ("https://metrics.example.com", None, true),
        ("https://metrics.example.com", Some(false), false),
    ] {
        let mut options = promlet::api::ApiOptions::new(url);
        options.cookie_secure = secure;
        let server = TestServer::build(TestServerOptions { options, ..TestServerOptions::default() });
        let login = json!({ "email": EMAIL, "password": PASSWORD });
        let reply = server.post("/auth/login", &Who::Nobody, login).await;
        let set = reply.headers.get_all("set-cookie").iter();
        let set: Vec<_> = set.map(|value| value.to_str().expect("text")).collect();
        assert_eq!(set.len(), 2, "{set:?}");
        assert!(set.iter().all(|cookie| cookie.contains("; Secure") == expected), "{url}: {set:?}");
    }
}

/// The second link request of a browser keeps its cookie, so both links work there.
#[tokio::test]
async fn one_browser_can_use_two_outstanding_links() {
    let server = TestServer::new();
    let asked = server.post("/auth/magic-link/request", &Who::Nobody, json!({ "email": EMAIL })).await;
    let browser = asked.cookie("ms_ml").expect("bound");
    let post = |path: &str, body: Value| {
        let request = ask("POST", path, &Who::Nobody)
            .header("content-type", "application/json")
            .header("cookie", &browser)
            .body(Body::from(body.to_string()));
        server.send(request.expect("a request"))
    };
    let again = post("/auth/password/reset/request", json!({ "email": EMAIL })).await;
    assert_eq!(again.cookie("ms_ml"), Some(browser.clone()));
    let mails = server.outbox.mails();
    let token = |number: usize| mails[number].url.split("token=").nth(1).expect("a token").to_owned();
    let signed = post("/auth/magic-link/verify", json!({ "token": token(0) })).await;
    assert_eq!(signed.status, 200, "{}", signed.body);
    let body = json!({ "token": token(1), "new_password": "another long password" });
    assert_eq!(post("/auth/password/reset/confirm", body).await.status, 200);
}

/// docs/specification.md F1: every failed login gets the same response.
#[tokio::test]
async fn wrong_password_and_unknown_address_get_the_same_response() {
    let server = TestServer::new();
    let mut bodies = Vec::new();
    for (email, password) in
        [(EMAIL, "wrong password"), ("nobody@example.com", PASSWORD), ("not an address", PASSWORD)]
    {
        let reply =
            server.post("/auth/login", &Who::Nobody, json!({ "email": email, "password": password })).await;
        reply.is(401, "invalid_credentials");
        assert_eq!(reply.session_cookie(), None);
        let mut body = reply.value();
        body["request_id"] = Value::Null;
        bodies.push(body);
    }
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test]
async fn a_login_body_is_validated_before_the_account_lookup() {
    let server = TestServer::new();
    server.post("/auth/login", &Who::Nobody, json!({ "email": EMAIL })).await.is(422, "validation_failed");
    server
        .post("/auth/login", &Who::Nobody, json!({ "email": EMAIL, "password": "" }))
        .await
        .is(422, "validation_failed");
    let long = "x".repeat(1_025);
    server
        .post("/auth/login", &Who::Nobody, json!({ "email": EMAIL, "password": long }))
        .await
        .is(422, "validation_failed");
    let text =
        ask("POST", "/auth/login", &Who::Nobody).header("content-type", "text/plain").body(Body::from("{}"));
    server.send(text.expect("a request")).await.is(415, "unsupported_media_type");
    let broken = ask("POST", "/auth/login", &Who::Nobody)
        .header("content-type", "application/json")
        .body(Body::from("{\"email\":"));
    server.send(broken.expect("a request")).await.is(400, "invalid_json");
}

#[tokio::test]
async fn repeated_failures_are_throttled_before_hashing() {
    let server = TestServer::new();
    let wrong = json!({ "email": EMAIL, "password": "wrong password" });
    let mut throttled = None;
    for _ in 0..10 {
        let reply = server.post("/auth/login", &Who::Nobody, wrong.clone()).await;
        if reply.status == 429 {
            throttled = Some(reply);
            break;
        }
    }
    let reply = throttled.expect("throttled within ten tries");
    reply.is(429, "login_throttled");
    assert!(reply.header("retry-after").parse::<u64>().expect("seconds") >= 1);
    let hashed = server.identity.passwords_verified();
    server.post("/auth/login", &Who::Nobody, wrong).await.is(429, "login_throttled");
    assert_eq!(server.identity.passwords_verified(), hashed);
}

#[tokio::test]
async fn every_response_to_a_session_renews_its_cookie_and_thirty_idle_days_end_it() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    for _ in 0..3 {
        server.pass(Duration::from_secs(29 * 86_400));
        let reply = server.get("/api/v1/auth/me", &cabinet).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.session_cookie().as_deref(), Some(cabinet.secret()));
    }
    let missing = server.get("/api/v1/nothing", &cabinet).await;
    missing.is(404, "not_found");
    assert_eq!(missing.session_cookie().as_deref(), Some(cabinet.secret()), "errors renew, too");
    server.pass(Duration::from_secs(31 * 86_400));
    for _ in 0..2 {
        let reply = server.get("/api/v1/auth/me", &cabinet).await;
        reply.is(401, "session_invalid");
        assert_eq!(reply.session_cookie(), None);
    }
}

#[tokio::test]
async fn a_logout_ends_the_session_and_clears_the_cookie() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let reply = server.post("/auth/logout", &cabinet, json!({})).await;
    assert_eq!(reply.status, 204);
    assert_eq!(reply.session_cookie().as_deref(), Some(""));
    assert!(reply.header("set-cookie").contains("Max-Age=0"));
    server.get("/auth/me", &cabinet).await.is(401, "session_invalid");
    assert_eq!(
        server.post("/auth/logout", &Who::Nobody, json!({})).await.status,
        204,
        "without a session, too"
    );
}

/// docs/specification.md F7.
#[tokio::test]
async fn unknown_session_ids_are_never_adopted() {
    let server = TestServer::new();
    let forged = Who::Cookie(format!("ses_{}", "A".repeat(43)));
    server.get("/auth/me", &forged).await.is(401, "session_invalid");
    let reply = server.post("/auth/login", &forged, json!({ "email": EMAIL, "password": PASSWORD })).await;
    let fresh = reply.session_cookie().expect("a session");
    assert_ne!(fresh, forged.secret());
    let again = server
        .post("/auth/login", &Who::Cookie(fresh.clone()), json!({ "email": EMAIL, "password": PASSWORD }))
        .await;
    assert_ne!(again.session_cookie().expect("a session"), fresh);
    server.get("/auth/me", &Who::Cookie(fresh)).await.is(401, "session_invalid");
}

#[tokio::test]
async fn up_to_four_session_cookies_are_tried() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let tossed = |before: usize| {
        let junk = "ms_session=ses_tossed; ".repeat(before);
        ask("GET", "/auth/me", &Who::Nobody)
            .header("cookie", format!("{junk}ms_session={}", cabinet.secret()))
            .body(Body::empty())
            .expect("a request")
    };
    assert_eq!(server.send(tossed(3)).await.status, 200);
    server.send(tossed(4)).await.is(401, "session_invalid");
}

#[tokio::test]
async fn sessions_are_listed_and_ended_by_their_owner() {
    let server = TestServer::new();
    let (one, two) = (server.log_in().await, server.log_in().await);
    let list = server.get("/auth/sessions", &one).await.value();
    let rows = list["data"].as_array().expect("rows");
    // Set-up created a session, too.
    assert_eq!(rows.len(), 3);
    let current: Vec<_> = rows.iter().filter(|row| row["current"] == true).collect();
    assert_eq!(current.len(), 1);
    assert!(!list.to_string().contains("ses_"), "no secrets in lists");
    let me = server.get("/auth/me", &two).await.value();
    let id = me["session"]["id"].as_str().expect("an id").to_owned();
    assert_eq!(server.delete(&format!("/auth/sessions/{id}"), &one).await.status, 204);
    server.get("/auth/me", &two).await.is(401, "session_invalid");
    for missing in [id.as_str(), "sid_aaaaaaaaaaaaaaaa", "x"] {
        server.delete(&format!("/auth/sessions/{missing}"), &one).await.is(404, "not_found");
    }
    assert_eq!(server.delete("/auth/sessions", &one).await.value(), json!({ "revoked": 1 }));
    assert_eq!(server.get("/auth/me", &one).await.status, 200);
    let all = server.delete("/auth/sessions?include_current=true", &one).await;
    assert_eq!(all.session_cookie().as_deref(), Some(""));
    server.get("/auth/me", &one).await.is(401, "session_invalid");
}

/// docs/specification.md C2 and F45, F46.
#[tokio::test]
async fn the_first_account_needs_the_setup_token_unless_the_request_is_local() {
    let server = bare();
    let config = server.get("/auth/config", &Who::Nobody).await.value();
    assert_eq!((&config["needs_setup"], &config["setup_token_required"]), (&json!(true), &json!(false)));
    let remote = |server: &TestServer, token: Option<&str>, proxied: bool| {
        let mut body = first();
        if let Some(token) = token {
            body["setup_token"] = token.into();
        }
        let peer = if proxied { "127.0.0.1:1" } else { "192.0.2.7:1" };
        let mut request =
            ask_from(peer, "POST", "/auth/signup", &Who::Nobody).header("content-type", "application/json");
        if proxied {
            request = request.header("x-forwarded-for", "127.0.0.1");
        }
        let request = request.body(Body::from(body.to_string())).expect("a request");
        let router = server.router.clone();
        async move { (router, request) }
    };
    for (token, proxied) in [(None, false), (None, true), (Some("sgn_wrong"), false)] {
        let (_, request) = remote(&server, token, proxied).await;
        server.send(request).await.is(403, "setup_token_required");
    }
    let token = server.identity.issue_setup_token(&mut Entropy::system());
    let (_, request) = remote(&server, Some(token.expose()), false).await;
    let reply = server.send(request).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    assert_eq!(reply.value()["user"]["is_admin"], true);
    let cabinet = Who::Cookie(reply.session_cookie().expect("a session"));
    assert_eq!(server.get("/api/v1/orgs/acme", &cabinet).await.value()["role"], "owner");
    server.post("/auth/signup", &Who::Nobody, first()).await.is(403, "signup_closed");
    assert_eq!(server.get("/auth/config", &Who::Nobody).await.value()["needs_setup"], false);
}

/// A proxy on this machine that adds no header looks like a local client, except for the `Host` of
/// its requests.
#[tokio::test]
async fn a_request_through_a_silent_proxy_is_not_local() {
    let bodies = |public_url: &str, host: &'static str| {
        let options =
            ApiOptions { allowed_hosts: vec!["metrics.example.com".into()], ..ApiOptions::new(public_url) };
        let server =
            TestServer::build(TestServerOptions { set_up: false, options, ..TestServerOptions::default() });
        async move {
            let send = async |method: &str, path: &str, body: String| {
                let mut request = ask(method, path, &Who::Nobody).header("content-type", "application/json");
                let headers = request.headers_mut().expect("a good request so far");
                headers.insert("host", axum::http::HeaderValue::from_static(host));
                server.send(request.body(Body::from(body)).expect("a request")).await
            };
            let config = send("GET", "/auth/config", String::new()).await.value();
            let metrics = send("GET", "/metrics", String::new()).await.status.as_u16();
            let signup = send("POST", "/auth/signup", first().to_string()).await.status.as_u16();
            (config["setup_token_required"] == json!(true), metrics, signup)
        }
    };
    let (here, elsewhere) = ("http://127.0.0.1:8095", "https://metrics.example.com");
    assert_eq!(bodies(here, "localhost:8095").await, (false, 200, 201));
    assert_eq!(bodies(here, "metrics.example.com").await, (true, 401, 403), "the name of another machine");
    assert_eq!(bodies(elsewhere, "metrics.example.com").await, (true, 401, 403));
    assert_eq!(bodies(elsewhere, "127.0.0.1:8095").await, (true, 401, 403), "the proxy rewrote Host");
}

#[tokio::test]
async fn a_first_account_is_checked() {
    let server = bare();
    let mut weak = first();
    weak["password"] = "short".into();
    server.post("/auth/signup", &Who::Nobody, weak).await.is(422, "weak_password");
    let mut reserved = first();
    reserved["org"]["slug"] = "api".into();
    let reply = server.post("/auth/signup", &Who::Nobody, reserved).await;
    reply.is(422, "validation_failed");
    assert_eq!(reply.value()["errors"][0]["field"], "org.slug");
    assert_eq!(server.post("/auth/signup", &Who::Nobody, first()).await.status, 201);
}

#[tokio::test]
async fn a_link_request_does_not_reveal_accounts_and_mails_the_public_url() {
    let server = TestServer::new();
    for email in [EMAIL, "nobody@example.com"] {
        let request = ask("POST", "/auth/magic-link/request", &Who::Nobody)
            .header("content-type", "application/json")
            .header("x-forwarded-host", "evil.example")
            .body(Body::from(json!({ "email": email }).to_string()));
        let reply = server.send(request.expect("a request")).await;
        assert_eq!(reply.status, 202);
        assert_eq!(reply.value(), json!({ "status": "accepted", "expires_in": 600 }));
        assert!(reply.header("set-cookie").starts_with("ms_ml="));
    }
    let mails = server.outbox.mails();
    assert_eq!(mails.len(), 1);
    assert!(
        mails[0].url.starts_with("http://127.0.0.1:8095/api/v1/auth/magic-link/verify?token=mgl_"),
        "{}",
        mails[0].url
    );
    server
        .post("/auth/magic-link/request", &Who::Nobody, json!({ "email": "no address" }))
        .await
        .is(422, "validation_failed");
}

fn cookie_of(reply: &crate::test_server::Reply) -> String {
    reply.header("set-cookie").split(';').next().expect("a cookie").to_owned()
}

/// docs/specification.md F17, F18.
#[tokio::test]
async fn opening_a_mailed_link_consumes_nothing_and_the_form_signs_in() {
    let server = TestServer::new();
    let asked = server
        .post("/auth/magic-link/request", &Who::Nobody, json!({ "email": EMAIL, "redirect": "/charts?x=1" }))
        .await;
    let browser = cookie_of(&asked);
    let url = server.outbox.mails()[0].url.replace("http://127.0.0.1:8095", "");
    let head = ask("HEAD", &url, &Who::Nobody).body(Body::empty()).expect("a request");
    assert_eq!(server.send(head).await.status, 200);
    for _ in 0..3 {
        let page = server.get(&url, &Who::Nobody).await;
        assert_eq!(page.status, 200);
        assert!(page.body.contains("<form") && page.body.contains("type=\"email\""), "{}", page.body);
        assert!(page.header("content-security-policy").contains("form-action 'self'"));
        assert_eq!(page.header("cross-origin-opener-policy"), "same-origin");
    }
    let token = url.split("token=").nth(1).expect("a token");
    let form = |cookie: Option<&str>, body: String| {
        let request = ask("POST", "/api/v1/auth/magic-link/verify", &Who::Nobody)
            .header("content-type", "application/x-www-form-urlencoded");
        let request = match cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        };
        request.body(Body::from(body)).expect("a request")
    };
    let other_browser = server.post("/auth/magic-link/verify", &Who::Nobody, json!({ "token": token })).await;
    other_browser.is(400, "email_confirmation_required");
    // A program that submits the form without an address gets the form again, and the link stays
    // valid.
    let pressed = server.send(form(None, format!("token={token}&email="))).await;
    assert_eq!((pressed.status.as_u16(), pressed.session_cookie()), (400, None));
    assert!(
        pressed.body.contains("type=\"email\"") && pressed.body.contains("action=\"verify\""),
        "{}",
        pressed.body
    );
    let done = server.send(form(Some(&browser), format!("token={token}"))).await;
    assert_eq!((done.status.as_u16(), done.header("location")), (303, "/charts?x=1"));
    let cabinet = Who::Cookie(done.session_cookie().expect("a session"));
    assert_eq!(server.get("/auth/me", &cabinet).await.status, 200);
    server
        .post("/auth/magic-link/verify", &Who::Nobody, json!({ "token": token, "email": EMAIL }))
        .await
        .is(401, "link_invalid");
    let stale = server.send(form(Some(&browser), format!("token={token}"))).await;
    assert_eq!(stale.session_cookie(), None);
    assert_eq!((stale.status.as_u16(), stale.header("location")), (303, "/login?error=link_invalid"));
}

#[tokio::test]
async fn opening_a_console_link_signs_in_once() {
    let server = TestServer::build(TestServerOptions { console: true, ..TestServerOptions::default() });
    let email = Email::parse(EMAIL).expect("an address");
    let user = server.identity.user_by_email(&email).expect("readable").expect("the account");
    let link = server
        .identity
        .issue_login_link(user.id, None, server.clock.now(), &mut Entropy::system())
        .expect("a link");
    let url = format!("/api/v1/auth/magic-link/verify?token={}", link.token.expose());
    assert_eq!(
        server.send(ask("HEAD", &url, &Who::Nobody).body(Body::empty()).expect("a request")).await.status,
        200
    );
    let request = ask("GET", &url, &Who::Nobody)
        .header("accept", "text/html,*/*")
        .body(Body::empty())
        .expect("a request");
    let reply = server.send(request).await;
    assert_eq!((reply.status.as_u16(), reply.header("location")), (303, "/"), "{}", reply.body);
    assert_eq!(
        server.get("/auth/me", &Who::Cookie(reply.session_cookie().expect("a session"))).await.status,
        200
    );
    server.get(&url, &Who::Nobody).await.is(401, "link_invalid");
}

#[tokio::test]
async fn after_three_mails_to_one_address_requests_are_dropped_silently() {
    let server = TestServer::new();
    for _ in 0..5 {
        let reply = server.post("/auth/magic-link/request", &Who::Nobody, json!({ "email": EMAIL })).await;
        assert_eq!(reply.status, 202);
    }
    assert_eq!(server.outbox.mails().len(), 3);
    for n in 0..5 {
        server
            .post("/auth/magic-link/request", &Who::Nobody, json!({ "email": format!("x{n}@example.com") }))
            .await;
    }
    server
        .post("/auth/magic-link/request", &Who::Nobody, json!({ "email": EMAIL }))
        .await
        .is(429, "mail_throttled");
}

/// The code that an authenticator app shows.
fn code(secret: &str, at_s: u64) -> String {
    let secret = data_encoding::BASE32_NOPAD.decode(secret.as_bytes()).expect("base32");
    let totp = totp_rs::Builder::new().with_secret(secret).build().expect("a generator");
    totp.generate(at_s).to_string()
}

/// `[spec]`: 200 without a cookie, then a second step with the code (docs/specification.md C1, F25,
/// F26).
#[tokio::test]
async fn a_second_factor_is_asked_for_and_each_code_works_once() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let enrolled = server.post("/auth/2fa/enroll", &cabinet, json!({})).await;
    assert_eq!(enrolled.status, 200, "{}", enrolled.body);
    let secret = enrolled.text("secret");
    let now = |server: &TestServer| u64::try_from(server.clock.now().as_s()).expect("after 1970");
    server.post("/auth/2fa/confirm", &cabinet, json!({ "code": "000000" })).await.is(401, "invalid_code");
    let confirmed =
        server.post("/auth/2fa/confirm", &cabinet, json!({ "code": code(&secret, now(&server)) })).await;
    assert_eq!(confirmed.status, 200, "{}", confirmed.body);
    assert_eq!(confirmed.value()["recovery_codes"].as_array().expect("codes").len(), 10);
    let fresh = Who::Cookie(confirmed.session_cookie().expect("a new session"));
    server.get("/auth/me", &cabinet).await.is(401, "session_invalid");
    assert_eq!(server.get("/auth/me", &fresh).await.value()["twofa"]["enabled"], true);

    let login = json!({ "email": EMAIL, "password": PASSWORD });
    let pending = server.post("/auth/login", &Who::Nobody, login.clone()).await;
    assert_eq!(pending.status, 200);
    assert_eq!(pending.session_cookie(), None, "no cookie before the code");
    assert_eq!(pending.value()["requires_2fa"], true);
    assert_eq!(pending.value()["expires_in"], 300);
    let tfp = pending.text("twofa_pending_login");
    let verify = |code: String| json!({ "twofa_pending_login": tfp, "code": code });
    let used = server.post("/auth/2fa/verify", &Who::Nobody, verify(code(&secret, now(&server)))).await;
    used.is(401, "code_already_used");
    assert!(used.value()["retry_after_ms"].as_u64().expect("a wait") <= 60_000);
    let wrong = server.post("/auth/2fa/verify", &Who::Nobody, verify("123456".into())).await;
    wrong.is(401, "invalid_code");
    assert!(wrong.value()["attempts_left"].is_u64());
    server.pass(Duration::from_secs(60));
    let right = code(&secret, now(&server));
    let reply = server.post("/auth/2fa/verify", &Who::Nobody, verify(right.clone())).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(reply.session_cookie().is_some());
    server.post("/auth/2fa/verify", &Who::Nobody, verify(right)).await.is(401, "pending_login_invalid");
    server
        .post("/auth/2fa/verify", &Who::Nobody, json!({ "twofa_pending_login": tfp }))
        .await
        .is(422, "validation_failed");
    server.post("/auth/2fa/enroll", &fresh, json!({})).await.is(409, "twofa_already_enabled");
    server
        .post("/auth/2fa/disable", &fresh, json!({ "password": "wrong", "code": "000000" }))
        .await
        .is(401, "invalid_credentials");
}

#[tokio::test]
async fn enrolment_needs_a_fresh_login() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    server.pass(Duration::from_secs(15 * 60 + 1));
    server.post("/auth/2fa/enroll", &cabinet, json!({})).await.is(403, "reauth_required");
    server
        .post("/auth/reauth", &cabinet, json!({ "password": "wrong password" }))
        .await
        .is(401, "invalid_credentials");
    server.post("/auth/reauth", &cabinet, json!({ "code": "000000" })).await.is(401, "invalid_code");
    let nothing = server.post("/auth/reauth", &cabinet, json!({})).await;
    nothing.is(422, "validation_failed");
    assert_eq!(nothing.value()["errors"][0]["field"], "password", "{}", nothing.body);
    server.post("/auth/2fa/enroll", &cabinet, json!({})).await.is(403, "reauth_required");
    let fresh = server.post("/auth/reauth", &cabinet, json!({ "password": PASSWORD })).await;
    assert_eq!(fresh.text("auth_time"), server.clock.now().to_rfc3339());
    assert_eq!(server.post("/auth/2fa/enroll", &cabinet, json!({})).await.status, 200);
    server
        .post("/auth/2fa/disable", &cabinet, json!({ "password": PASSWORD, "code": "000000" }))
        .await
        .is(409, "twofa_not_enabled");
    let status = server.get("/auth/2fa", &cabinet).await.value();
    assert_eq!(status, json!({ "enabled": false, "enabled_at": null, "recovery_codes_left": 0 }));
}
