//! Accounts that users create themselves: `PROMLET_SIGNUP` (docs/specification.md C2, E).

use axum::body::Body;
use promlet::identity::{OrgCreate, SignupMode};
use promlet::outbound::MailKind;
use serde_json::{Value, json};

use crate::test_server::{EMAIL, PASSWORD, Reply, TestServer, TestServerOptions, Who, ask};

const NEW: &str = "grace@example.com";

fn open_server() -> TestServer {
    TestServer::build(TestServerOptions {
        signup: SignupMode::Open,
        org_create: OrgCreate::Any,
        ..TestServerOptions::default()
    })
}

async fn complete(server: &TestServer, browser: Option<&str>, body: Value) -> Reply {
    let mut request =
        ask("POST", "/auth/signup/complete", &Who::Nobody).header("content-type", "application/json");
    if let Some(cookie) = browser {
        request = request.header("cookie", cookie);
    }
    server.send(request.body(Body::from(body.to_string())).expect("a request")).await
}

/// Requests an account. Returns the browser's cookie and the mailed token.
async fn asked(server: &TestServer) -> (String, String) {
    let reply = server.post("/auth/signup", &Who::Nobody, json!({ "email": NEW })).await;
    assert_eq!((reply.status.as_u16(), reply.session_cookie()), (202, None), "{}", reply.body);
    let mail = server.outbox.mails().last().expect("mailed").clone();
    assert_eq!((mail.kind, mail.to.as_str()), (MailKind::Signup, NEW));
    let token = mail.url.strip_prefix("http://127.0.0.1:8095/login/signup#token=").expect("the public URL");
    (reply.cookie("ms_ml").expect("bound to a browser"), token.to_owned())
}

#[tokio::test]
async fn a_mailed_link_creates_an_account_and_nothing_exists_before() {
    let server = open_server();
    assert_eq!(server.get("/auth/config", &Who::Nobody).await.value()["signup"], "open");
    let (browser, token) = asked(&server).await;
    server
        .post("/auth/login", &Who::Nobody, json!({ "email": NEW, "password": PASSWORD }))
        .await
        .is(401, "invalid_credentials");
    let body = json!({ "token": token, "password": PASSWORD, "name": " Grace ", "org": { "slug": "grace" } });
    complete(&server, None, body.clone()).await.is(400, "email_confirmation_required");
    let made = complete(&server, Some(&browser), body.clone()).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let result = made.value();
    assert_eq!((&result["user"]["email"], &result["user"]["name"]), (&json!(NEW), &json!("Grace")));
    assert_eq!(
        (&result["user"]["is_admin"], &result["session"]["auth_method"]),
        (&json!(false), &json!("signup"))
    );
    assert_eq!(result["orgs"], json!([{ "slug": "grace", "name": "", "role": "owner" }]));
    let cabinet = Who::Cookie(made.session_cookie().expect("a session"));
    assert_eq!(server.get("/auth/me", &cabinet).await.status, 200);
    complete(&server, Some(&browser), body).await.is(401, "link_invalid");
    server.get("/api/v1/orgs/acme", &cabinet).await.is(404, "org_not_found");
}

#[tokio::test]
async fn invalid_fields_of_a_new_account_are_named_and_the_link_stays_valid() {
    let server = open_server();
    let (browser, token) = asked(&server).await;
    let cases = [
        (json!({ "token": token, "password": "short" }), 422, "weak_password"),
        (json!({ "token": token, "org": { "slug": "acme" } }), 409, "slug_taken"),
        (json!({ "token": token, "org": { "slug": "api" } }), 422, "validation_failed"),
        (json!({ "token": token, "name": "x".repeat(201) }), 422, "validation_failed"),
        (json!({ "token": "sgn_x" }), 401, "link_invalid"),
        (json!({}), 422, "validation_failed"),
    ];
    for (body, status, code) in cases {
        complete(&server, Some(&browser), body).await.is(status, code);
    }
    let made = complete(&server, None, json!({ "token": token, "email": " GRACE@example.com" })).await;
    assert_eq!((made.status.as_u16(), &made.value()["user"]["has_password"]), (201, &json!(false)));
}

/// docs/specification.md F1: only the reader of the mail learns whether an account exists.
#[tokio::test]
async fn an_address_with_an_account_gets_a_mail_and_the_response_is_the_same() {
    let server = open_server();
    let mut bodies = Vec::new();
    for email in [EMAIL, NEW] {
        let reply = server.post("/auth/signup", &Who::Nobody, json!({ "email": email })).await;
        assert!(reply.cookie("ms_ml").is_some());
        bodies.push((reply.status, reply.body));
    }
    assert_eq!(bodies[0], bodies[1]);
    let kinds: Vec<_> = server.outbox.mails().into_iter().map(|mail| mail.kind).collect();
    assert_eq!(kinds, [MailKind::SignupKnown, MailKind::Signup]);
}

#[tokio::test]
async fn a_closed_sign_up_creates_no_account() {
    for mode in [SignupMode::First, SignupMode::Invite, SignupMode::Closed] {
        let server = TestServer::build(TestServerOptions { signup: mode, ..TestServerOptions::default() });
        let signup = server.post("/auth/signup", &Who::Nobody, json!({ "email": NEW })).await;
        signup.is(403, "signup_closed");
        let token = format!("sgn_{}", "A".repeat(43));
        complete(&server, None, json!({ "token": token })).await.is(403, "signup_closed");
        assert!(server.outbox.mails().is_empty());
        assert_eq!(server.get("/auth/config", &Who::Nobody).await.value()["signup"], mode.as_str());
        // The first account of an instance is exempt.
        let bare = TestServer::build(TestServerOptions {
            signup: mode,
            set_up: false,
            ..TestServerOptions::default()
        });
        let missing = bare.post("/auth/signup", &Who::Nobody, json!({ "email": NEW })).await;
        missing.is(422, "validation_failed");
        let first = json!({ "email": EMAIL, "password": PASSWORD, "org": { "slug": "acme" } });
        assert_eq!(bare.post("/auth/signup", &Who::Nobody, first).await.status, 201);
    }
}

#[tokio::test]
async fn a_closed_server_creates_no_account_by_invitation_but_lets_existing_accounts_join() {
    let server =
        TestServer::build(TestServerOptions { signup: SignupMode::Closed, ..TestServerOptions::default() });
    let cabinet = server.log_in().await;
    let invited = json!({ "email": NEW, "role": "viewer" });
    let made = server.post("/api/v1/orgs/acme/invites", &cabinet, invited).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let mail = server.outbox.mails().pop().expect("a mail");
    let (_, token) = mail.url.split_once("/invite#token=").expect("a link");
    let accept = json!({ "token": token, "password": PASSWORD });
    server.post("/api/v1/auth/invites/accept", &Who::Nobody, accept).await.is(403, "signup_closed");
    let login = json!({ "email": NEW, "password": PASSWORD });
    server.post("/auth/login", &Who::Nobody, login).await.is(401, "invalid_credentials");
}
