//! Changes that users make to their own accounts: name, address, deletion (docs/specification.md
//! C2).

use std::time::Duration;

use promlet::identity::{OrgCreate, SignupMode};
use promlet::outbound::MailKind;
use serde_json::{Value, json};

use crate::test_server::{EMAIL, PASSWORD, TestServer, TestServerOptions, Who};

#[tokio::test]
async fn a_name_is_changed() {
    let server = TestServer::new();
    let mine = server.log_in().await;
    let rename = |name: Value| server.json("PATCH", "/auth/me", &mine, json!({ "name": name }));
    let reply = rename(json!("Ada Lovelace")).await;
    assert_eq!((reply.status.as_u16(), &reply.value()["name"]), (200, &json!("Ada Lovelace")));
    assert_eq!(server.get("/auth/me", &mine).await.value()["user"]["name"], "Ada Lovelace");
    rename(json!("x".repeat(201))).await.is(422, "validation_failed");
    rename(json!(7)).await.is(422, "validation_failed");
    rename(json!("")).await;
    server.json("PATCH", "/auth/me", &Who::Nobody, json!({ "name": "Eve" })).await.is(401, "unauthenticated");
}

/// Creates another account. Returns its session.
async fn grace(server: &TestServer) -> Who {
    server.post("/auth/signup", &Who::Nobody, json!({ "email": "grace@example.com" })).await;
    let url = server.outbox.mails().last().expect("mailed").url.clone();
    let token = url.split("token=").nth(1).expect("a token");
    let body = json!({ "token": token, "email": "grace@example.com", "password": PASSWORD });
    let made = server.post("/auth/signup/complete", &Who::Nobody, body).await;
    Who::Cookie(made.session_cookie().expect("a session"))
}

#[tokio::test]
async fn an_account_is_deleted_by_its_owner_after_a_fresh_login() {
    let plan = TestServerOptions {
        signup: SignupMode::Open,
        org_create: OrgCreate::Any,
        ..TestServerOptions::default()
    };
    let server = TestServer::build(plan);
    let owner = server.log_in().await;
    server.delete("/auth/me", &owner).await.is(409, "last_owner");
    let grace = grace(&server).await;
    server.pass(Duration::from_secs(15 * 60 + 1));
    server.delete("/auth/me", &grace).await.is(403, "reauth_required");
    assert_eq!(server.post("/auth/reauth", &grace, json!({ "password": PASSWORD })).await.status, 200);
    let gone = server.delete("/auth/me", &grace).await;
    assert_eq!((gone.status.as_u16(), gone.session_cookie().as_deref()), (204, Some("")));
    server.get("/auth/me", &grace).await.is(401, "session_invalid");
    let login = json!({ "email": "grace@example.com", "password": PASSWORD });
    server.post("/auth/login", &Who::Nobody, login).await.is(401, "invalid_credentials");
    assert_eq!(server.get("/auth/me", &owner).await.status, 200);
}

#[tokio::test]
async fn an_address_changes_once_the_new_one_is_confirmed_and_the_old_one_is_notified() {
    let plan = TestServerOptions { signup: SignupMode::Open, ..TestServerOptions::default() };
    let server = TestServer::build(plan);
    let mine = server.log_in().await;
    let ask = |new: &str| server.post("/auth/email/change", &mine, json!({ "new_email": new }));
    ask("no address").await.is(422, "validation_failed");
    let reply = ask("ada@new.example").await;
    assert_eq!(
        (reply.status.as_u16(), reply.value()),
        (202, json!({ "status": "accepted", "expires_in": 600 }))
    );
    let mail = server.outbox.mails().pop().expect("mailed");
    assert_eq!((mail.kind, mail.to.as_str()), (MailKind::EmailConfirm, "ada@new.example"));
    let token = mail.url.strip_prefix("http://127.0.0.1:8095/login/email#token=").expect("the public URL");
    let confirm = || server.post("/auth/email/confirm", &Who::Nobody, json!({ "token": token }));
    let done = confirm().await;
    assert_eq!(done.value(), json!({ "status": "email_changed", "email": "ada@new.example" }));
    assert_eq!(server.get("/auth/me", &mine).await.value()["user"]["email"], "ada@new.example");
    let told = server.outbox.mails().pop().expect("told");
    assert_eq!((told.kind, told.to.as_str()), (MailKind::EmailChanged, EMAIL));
    confirm().await.is(401, "link_invalid");
    let login = |email: &str| json!({ "email": email, "password": PASSWORD });
    server.post("/auth/login", &Who::Nobody, login(EMAIL)).await.is(401, "invalid_credentials");
    assert_eq!(server.post("/auth/login", &Who::Nobody, login("ada@new.example")).await.status, 200);

    server.pass(Duration::from_secs(15 * 60 + 1));
    ask("ada@newer.example").await.is(403, "reauth_required");
}

/// Ending a stolen session also cancels the address change that it requested.
#[tokio::test]
async fn an_address_change_ends_with_the_session_that_requested_it() {
    let server = TestServer::new();
    let mut password = PASSWORD.to_owned();
    let ways =
        ["logout", "revoked", "others revoked", "all revoked", "password changed", "replaced by a login"];
    for (number, way) in ways.into_iter().enumerate() {
        let login = json!({ "email": EMAIL, "password": password });
        let log_in = |who: Who| {
            let (server, login) = (&server, login.clone());
            async move {
                let reply = server.post("/auth/login", &who, login).await;
                (
                    Who::Cookie(reply.session_cookie().expect("a session")),
                    reply.value()["session"]["id"].clone(),
                )
            }
        };
        let (stolen, id) = log_in(Who::Nobody).await;
        let (own, _) = log_in(Who::Nobody).await;
        let body = json!({ "new_email": format!("eve{number}@example.com") });
        assert_eq!(server.post("/auth/email/change", &stolen, body).await.status, 202);
        let url = server.outbox.mails().pop().expect("mailed").url;
        let token = json!({ "token": url.split("token=").nth(1).expect("a token") });
        let ended = match way {
            "logout" => server.post("/auth/logout", &stolen, json!({})).await,
            "revoked" => {
                server.delete(&format!("/auth/sessions/{}", id.as_str().expect("an id")), &own).await
            }
            "others revoked" => server.delete("/auth/sessions", &own).await,
            "all revoked" => server.delete("/auth/sessions?include_current=true", &own).await,
            "replaced by a login" => server.post("/auth/login", &stolen, login.clone()).await,
            _ => {
                let change = json!({ "current_password": password, "new_password": "another good one" });
                "another good one".clone_into(&mut password);
                server.post("/auth/password/change", &own, change).await
            }
        };
        assert!(ended.status.is_success(), "{way}: {}", ended.body);
        server.post("/auth/email/confirm", &Who::Nobody, token).await.is(401, "link_invalid");
    }
    // The end of another session does not cancel it.
    let login = json!({ "email": EMAIL, "password": password });
    let enter = || server.post("/auth/login", &Who::Nobody, login.clone());
    let (one, other) = (enter().await, enter().await);
    let one = Who::Cookie(one.session_cookie().expect("a session"));
    let other = Who::Cookie(other.session_cookie().expect("a session"));
    server.post("/auth/email/change", &one, json!({ "new_email": "ada@new.example" })).await;
    let url = server.outbox.mails().pop().expect("mailed").url;
    server.post("/auth/logout", &other, json!({})).await;
    let token = json!({ "token": url.split("token=").nth(1).expect("a token") });
    assert_eq!(server.post("/auth/email/confirm", &Who::Nobody, token).await.status, 200);
}

/// docs/specification.md F1: the response does not reveal whether an address has an account.
#[tokio::test]
async fn a_taken_address_gets_the_same_response_as_a_free_one_and_is_refused_on_confirmation() {
    let server =
        TestServer::build(TestServerOptions { signup: SignupMode::Open, ..TestServerOptions::default() });
    let mine = server.log_in().await;
    let before = server.outbox.mails().len();
    let free = server.post("/auth/email/change", &mine, json!({ "new_email": "grace@example.com" })).await;
    let url = server.outbox.mails().last().expect("mailed").url.clone();
    assert_eq!(server.outbox.mails().len(), before + 1);
    grace(&server).await;
    let token = url.split("token=").nth(1).expect("a token");
    let confirm = || server.post("/auth/email/confirm", &Who::Nobody, json!({ "token": token }));
    confirm().await.is(409, "email_taken");
    let count = server.outbox.mails().len();
    let taken = server.post("/auth/email/change", &mine, json!({ "new_email": "grace@example.com" })).await;
    assert_eq!((free.status, free.body), (taken.status, taken.body));
    assert_eq!(server.outbox.mails().len(), count, "and no mail");
    confirm().await.is(401, "link_invalid");
    let mine_again = server.get("/auth/me", &mine).await;
    assert_eq!(mine_again.value()["user"]["email"], EMAIL);
}

/// Otherwise an account could flood the audit log of the whole server.
#[tokio::test]
async fn ending_no_session_is_not_recorded() {
    let server = TestServer::new();
    let (mine, _other) = (server.log_in().await, server.log_in().await);
    let mut revoked = Vec::new();
    for _ in 0..5 {
        revoked.push(server.delete("/auth/sessions", &mine).await.value()["revoked"].clone());
    }
    assert_eq!(revoked, [2, 0, 0, 0, 0].map(|count| json!(count)));
    let log = server.get("/api/v1/admin/audit?action=session.revoked", &mine).await.value();
    let rows = log["data"].as_array().expect("rows");
    assert_eq!(rows.len(), 1, "{log}");
}
