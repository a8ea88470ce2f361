//! Members, invitations and the audit log (docs/specification.md C2 and C3; threat model rows 20,
//! 26, 50).

use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use promlet::entropy::Entropy;
use promlet::identity::{Email, LoginOutcome, NewUser, Password, PasswordLogin, Role, UserId};
use serde_json::{Value, json};

use crate::limits::Slow;
use crate::test_server::{EMAIL, PASSWORD, Reply, TestServer, TestServerOptions, Who, ask};

/// Creates an account, with a role in `acme` if one is given. Returns its session and id.
pub(crate) fn person(server: &TestServer, email: &str, role: Option<Role>) -> (Who, UserId) {
    let (now, mut rng) = (server.clock.now(), Entropy::system());
    let email = Email::parse(email).expect("an address");
    let new = NewUser { email: email.clone(), name: "", password: Some(Password(PASSWORD)), is_admin: false };
    let user = server.identity.create_user(&new, now, &mut rng).expect("made");
    if let Some(role) = role {
        let acme = server.identity.org_by_slug("acme").expect("read").expect("there");
        server.identity.add_member(acme.id, user.id, role, now).expect("a member");
    }
    (session(server, email.as_str()), user.id)
}

pub(crate) fn session(server: &TestServer, email: &str) -> Who {
    let client =
        promlet::identity::Client { ip: "127.0.0.1".parse().expect("an address"), user_agent: String::new() };
    let attempt =
        PasswordLogin { email, password: Password(PASSWORD), client: &client, replaces: None, device: None };
    match server.identity.login(&attempt, server.clock.now(), &mut Entropy::system()).expect("in") {
        LoginOutcome::LoggedIn(login) => Who::Cookie(login.token.expose().to_owned()),
        LoginOutcome::NeedsCode(_) => unreachable!("no second factor"),
    }
}

async fn invite(server: &TestServer, who: &Who, email: &str, role: &str) -> Reply {
    server.post("/api/v1/orgs/acme/invites", who, json!({ "email": email, "role": role })).await
}

/// Returns the token of the last mail.
fn mailed(server: &TestServer) -> String {
    let mail = server.outbox.mails().pop().expect("a mail");
    let (_, token) = mail.url.split_once("/invite#token=").expect("a link");
    assert_eq!(mail.kind.as_str(), "invite");
    token.to_owned()
}

async fn accept(server: &TestServer, who: &Who, body: Value) -> Reply {
    server.post("/api/v1/auth/invites/accept", who, body).await
}

fn path(user: UserId) -> String {
    format!("/api/v1/orgs/acme/members/{user}")
}

async fn roles(server: &TestServer, who: &Who) -> Vec<(String, String)> {
    let list = server.get("/api/v1/orgs/acme/members", who).await.value();
    let rows = list["data"].as_array().expect("rows").iter();
    let text = |row: &Value, field: &str| row[field].as_str().expect("a text").to_owned();
    rows.map(|row| (text(row, "email"), text(row, "role"))).collect()
}

#[tokio::test]
async fn administrators_change_roles_and_owners_change_owners() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let (admin, admin_id) = person(&server, "adam@example.com", Some(Role::Admin));
    let (viewer, viewer_id) = person(&server, "vera@example.com", Some(Role::Viewer));
    let (_, stranger_id) = person(&server, "eve@example.com", None);
    let role = |role: &str| json!({ "role": role });
    let changed = server.json("PATCH", &path(viewer_id), &admin, role("editor")).await;
    assert_eq!((changed.status.as_u16(), changed.text("role").as_str()), (200, "editor"), "{}", changed.body);
    server.json("PATCH", &path(viewer_id), &viewer, role("admin")).await.is(403, "forbidden");
    server.json("PATCH", &path(viewer_id), &admin, role("owner")).await.is(403, "forbidden");
    server.json("PATCH", &path(admin_id), &admin, role("owner")).await.is(403, "forbidden");
    server.json("PATCH", &path(stranger_id), &owner, role("viewer")).await.is(404, "not_found");
    server.json("PATCH", &path(viewer_id), &owner, role("king")).await.is(422, "validation_failed");
    server.json("PATCH", &path(viewer_id), &owner, json!({})).await.is(422, "validation_failed");
    let list = server.get("/api/v1/auth/me", &owner).await.value();
    let ada: UserId = list["user"]["id"].as_str().expect("an id").parse().expect("an id");
    server.json("PATCH", &path(ada), &admin, role("viewer")).await.is(403, "forbidden");
    server.json("PATCH", &path(ada), &owner, role("admin")).await.is(409, "last_owner");
    server.delete(&path(ada), &owner).await.is(409, "last_owner");
    server.delete(&path(ada), &admin).await.is(403, "forbidden");
    let made = server.json("PATCH", &path(admin_id), &owner, role("owner")).await;
    assert_eq!(made.status, 200, "{}", made.body);
    assert_eq!(server.json("PATCH", &path(ada), &owner, role("viewer")).await.status, 200);
    let expected = [(EMAIL, "viewer"), ("adam@example.com", "owner"), ("vera@example.com", "editor")];
    let mut found = roles(&server, &admin).await;
    found.sort();
    assert_eq!(found, expected.map(|(email, role)| (email.to_owned(), role.to_owned())));
}

#[tokio::test]
async fn a_member_may_leave_and_sees_less_than_an_administrator() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let (viewer, viewer_id) = person(&server, "vera@example.com", Some(Role::Viewer));
    let (editor, editor_id) = person(&server, "ed@example.com", Some(Role::Editor));
    let list = server.get("/api/v1/orgs/acme/members", &viewer).await.value();
    assert_eq!(list["data"].as_array().expect("rows").len(), 3);
    assert!(!list.to_string().contains("twofa_enabled") && !list.to_string().contains("last_seen_at"));
    let list = server.get("/api/v1/orgs/acme/members", &owner).await.value();
    assert!(list.to_string().contains("twofa_enabled"));
    server.delete(&path(editor_id), &viewer).await.is(403, "forbidden");
    assert_eq!(server.delete(&path(viewer_id), &viewer).await.status, 204);
    server.get("/api/v1/orgs/acme", &viewer).await.is(404, "org_not_found");
    assert_eq!(server.delete(&path(editor_id), &owner).await.status, 204);
    server.get("/api/v1/orgs/acme", &editor).await.is(404, "org_not_found");
    server.delete(&path(editor_id), &owner).await.is(404, "not_found");
    server.delete("/api/v1/orgs/acme/members/usr_", &owner).await.is(404, "not_found");
}

/// Sends a change whose body arrives in two parts, with `meanwhile` between them. The caller is
/// checked before the first part.
pub(crate) async fn change_in_two_parts(
    server: &TestServer,
    (method, path, who): (&str, &str, &Who),
    [first, second]: [&'static str; 2],
    meanwhile: impl Future<Output = ()>,
) -> Reply {
    let (more, rest) = tokio::sync::mpsc::channel(1);
    let request = ask(method, path, who).header(header::CONTENT_TYPE, "application/json");
    let mut waiting = std::pin::pin!(server.send(request.body(Body::new(Slow(rest))).expect("a request")));
    more.send(first.into()).await.expect("taken");
    // Polled until it waits for more.
    for _ in 0..10 {
        let polled = std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_ready()));
        assert!(!polled.await, "it is not whole yet");
        tokio::task::yield_now().await;
    }
    meanwhile.await;
    more.send(second.into()).await.expect("taken");
    drop(more);
    waiting.await
}

#[tokio::test]
async fn a_member_removed_while_the_body_arrives_changes_nothing() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let (admin, admin_id) = person(&server, "adam@example.com", Some(Role::Admin));
    let remove = async { assert_eq!(server.delete(&path(admin_id), &owner).await.status, 204) };
    let parts = ["{\"name\":", "\"Mine\"}"];
    let reply = change_in_two_parts(&server, ("PATCH", "/api/v1/orgs/acme", &admin), parts, remove).await;
    reply.is(404, "org_not_found");
    assert_ne!(server.get("/api/v1/orgs/acme", &owner).await.text("name"), "Mine");
}

#[tokio::test]
async fn an_administrator_whose_role_is_withdrawn_while_the_body_arrives_sets_no_limits() {
    let server = TestServer::new();
    let boss = server.log_in().await;
    let (bo, id) = person(&server, "bo@example.com", None);
    let account = format!("/api/v1/admin/users/{id}");
    let role = |is_admin: bool| server.json("PATCH", &account, &boss, json!({ "is_admin": is_admin }));
    assert_eq!(role(true).await.status, 200);
    let withdraw = async { assert_eq!(role(false).await.status, 200) };
    let parts = ["{\"settings\":", "{\"max_samples_per_query\":100000}}"];
    let reply =
        change_in_two_parts(&server, ("PATCH", "/api/v1/admin/orgs/acme", &bo), parts, withdraw).await;
    reply.is(403, "forbidden");
    let shown = server.get("/api/v1/orgs/acme", &boss).await.value();
    assert_ne!(shown["settings"]["max_samples_per_query"], 100_000);
}

/// docs/specification.md F50: of two owners that demote each other concurrently, one remains.
#[tokio::test(flavor = "multi_thread")]
async fn f50_of_two_owners_demoted_at_once_one_remains() {
    for round in 0..10 {
        let server = TestServer::new();
        let owner = server.log_in().await;
        let (other, other_id) = person(&server, "bo@example.com", Some(Role::Owner));
        let me = server.get("/api/v1/auth/me", &owner).await.value();
        let ada: UserId = me["user"]["id"].as_str().expect("an id").parse().expect("an id");
        let (one, two) = (path(other_id), path(ada));
        let (first, second) = if round % 2 == 0 {
            let demote = json!({ "role": "viewer" });
            tokio::join!(
                server.json("PATCH", &one, &owner, demote.clone()),
                server.json("PATCH", &two, &other, demote)
            )
        } else {
            tokio::join!(server.delete(&two, &owner), server.delete(&one, &other))
        };
        let mut codes = [first.status.as_u16(), second.status.as_u16()];
        codes.sort_unstable();
        // The second request comes from the last owner or from a former owner.
        assert!(matches!(codes, [200 | 204, 403 | 409]), "{codes:?}: {} {}", first.body, second.body);
        let owners = if first.status.is_success() { &owner } else { &other };
        if round % 2 == 0 {
            let left = roles(&server, owners).await;
            assert_eq!(left.iter().filter(|(_, role)| role == "owner").count(), 1, "{left:?}");
        }
    }
}

/// Each demotes itself, so both are owners at the time of their requests.
#[tokio::test(flavor = "multi_thread")]
async fn f50_of_two_owners_that_step_down_at_once_one_is_refused() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let (other, other_id) = person(&server, "bo@example.com", Some(Role::Owner));
    let me = server.get("/api/v1/auth/me", &owner).await.value();
    let ada: UserId = me["user"]["id"].as_str().expect("an id").parse().expect("an id");
    let (own, theirs) = (path(ada), path(other_id));
    let (first, second) = tokio::join!(
        server.json("PATCH", &own, &owner, json!({ "role": "viewer" })),
        server.json("PATCH", &theirs, &other, json!({ "role": "viewer" }))
    );
    let refused = if first.status == 200 { &second } else { &first };
    refused.is(409, "last_owner");
    assert!(first.status == 200 || second.status == 200);
}

#[tokio::test]
async fn an_invitation_creates_an_account_of_the_invited_address_once() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let made = invite(&server, &owner, " Bo@Example.com ", "editor").await;
    assert_eq!(made.status, 201, "{}", made.body);
    let value = made.value();
    assert_eq!((&value["email"], &value["role"]), (&json!("bo@example.com"), &json!("editor")));
    assert!(value["id"].as_str().expect("an id").starts_with("inv_"));
    assert_eq!(value["expires_at"], server.clock.now().plus_ms(7 * 86_400_000).to_rfc3339());
    assert_eq!(value.get("url"), None, "a mail carries it");
    let token = mailed(&server);
    assert!(!made.body.contains(&token));
    let list = server.get("/api/v1/orgs/acme/invites", &owner).await;
    assert!(list.body.contains("bo@example.com") && !list.body.contains("ivt_"), "{}", list.body);
    let seen =
        server.post("/api/v1/auth/invites/lookup", &Who::Nobody, json!({ "token": token })).await.value();
    assert_eq!(
        seen,
        json!({ "org": { "slug": "acme", "name": "Acme" }, "email": "bo@example.com", "role": "editor", "account_exists": false })
    );
    accept(&server, &Who::Nobody, json!({ "token": token, "password": "short" }))
        .await
        .is(422, "weak_password");
    let long = json!({ "token": token, "name": "x".repeat(201) });
    accept(&server, &Who::Nobody, long).await.is(422, "validation_failed");
    let joined =
        accept(&server, &Who::Nobody, json!({ "token": token, "name": "Bo", "password": PASSWORD })).await;
    assert_eq!(joined.status, 201, "{}", joined.body);
    let cookie = Who::Cookie(joined.session_cookie().expect("a session"));
    let joined = joined.value();
    assert_eq!((&joined["user"]["email"], &joined["user"]["name"]), (&json!("bo@example.com"), &json!("Bo")));
    assert_eq!(joined["orgs"], json!([{ "slug": "acme", "name": "Acme", "role": "editor" }]));
    assert_eq!(joined["session"]["auth_method"], "invite");
    assert_eq!(server.get("/api/v1/orgs/acme", &cookie).await.text("role"), "editor");
    session(&server, "bo@example.com");
    for again in ["lookup", "accept"] {
        let again = format!("/api/v1/auth/invites/{again}");
        server.post(&again, &Who::Nobody, json!({ "token": token })).await.is(401, "link_invalid");
    }
    let list = server.get("/api/v1/orgs/acme/invites", &owner).await.value();
    assert_eq!(list["data"], json!([]));
}

/// docs/specification.md F20, CVE-2022-39306: for any address in the request, the account gets the
/// invited one.
#[tokio::test]
async fn f20_an_invitation_is_valid_only_for_its_own_address() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    invite(&server, &owner, "bo@example.com", "admin").await;
    let token = mailed(&server);
    let body = json!({ "token": token, "email": "mallory@example.com", "user": { "email": "mallory@example.com" },
        "role": "owner", "password": PASSWORD });
    let joined = accept(&server, &Who::Nobody, body).await;
    assert_eq!(joined.status, 201, "{}", joined.body);
    assert_eq!(joined.value()["user"]["email"], "bo@example.com");
    let emails: Vec<String> =
        server.identity.users().expect("read").iter().map(|user| user.email.to_string()).collect();
    assert!(!emails.contains(&"mallory@example.com".to_owned()), "{emails:?}");
    assert!(roles(&server, &owner).await.contains(&("bo@example.com".to_owned(), "admin".to_owned())));
}

/// docs/specification.md C2 and F26: the link alone logs in to no account and bypasses no second
/// factor.
#[tokio::test]
async fn f26_account_holders_accept_with_a_session_and_the_link_logs_nobody_in() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let (bo, _) = person(&server, "bo@example.com", None);
    let (eve, _) = person(&server, "eve@example.com", None);
    invite(&server, &owner, "bo@example.com", "viewer").await;
    let token = mailed(&server);
    let body = json!({ "token": token, "password": "another password of mine" });
    for who in [&Who::Nobody, &eve, &owner] {
        let refused = accept(&server, who, body.clone()).await;
        refused.is(409, "link_required");
        let set = refused.session_cookie();
        assert!(set.is_none() || set.as_deref() == Some(who.secret()), "no session of another user");
    }
    let seen = server.post("/api/v1/auth/invites/lookup", &Who::Nobody, json!({ "token": token })).await;
    assert_eq!(seen.value()["account_exists"], true);
    let joined = accept(&server, &bo, body).await;
    assert_eq!(joined.status, 200, "{}", joined.body);
    assert_eq!(joined.value()["orgs"][0]["slug"], "acme");
    assert_eq!(server.get("/api/v1/orgs/acme", &bo).await.text("role"), "viewer");
    session(&server, "bo@example.com");
    invite(&server, &owner, "bo@example.com", "admin").await.is(409, "already_member");
    accept(&server, &bo, json!({ "token": token })).await.is(401, "link_invalid");
}

#[tokio::test]
async fn an_invitation_ends_after_seven_days_by_revocation_and_by_a_new_one() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    invite(&server, &owner, "bo@example.com", "viewer").await;
    let first = mailed(&server);
    server.pass(Duration::from_secs(3_600));
    let owner = server.log_in().await;
    invite(&server, &owner, "bo@example.com", "viewer").await;
    let second = mailed(&server);
    let lookup = |token: &str| {
        let body = json!({ "token": token });
        server.post("/api/v1/auth/invites/lookup", &Who::Nobody, body)
    };
    lookup(&first).await.is(401, "link_invalid");
    server.pass(Duration::from_secs(7 * 86_400 - 1));
    assert_eq!(lookup(&second).await.status, 200);
    server.pass(Duration::from_secs(1));
    lookup(&second).await.is(401, "link_invalid");
    accept(&server, &Who::Nobody, json!({ "token": second, "password": PASSWORD }))
        .await
        .is(401, "link_invalid");
    let owner = server.log_in().await;
    assert_eq!(server.get("/api/v1/orgs/acme/invites", &owner).await.value()["data"], json!([]));
    let id = invite(&server, &owner, "bo@example.com", "viewer").await.text("id");
    let third = mailed(&server);
    let path = format!("/api/v1/orgs/acme/invites/{id}");
    assert_eq!(server.delete(&path, &owner).await.status, 204);
    lookup(&third).await.is(401, "link_invalid");
    server.delete(&path, &owner).await.is(404, "not_found");
    for foreign in ["", "ivt_", "ses_AAAA", &third.replace("ivt_", "mgl_")] {
        lookup(foreign).await.is(401, "link_invalid");
    }
}

#[tokio::test]
async fn administrators_invite_owners_invite_owners_and_mails_are_counted() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let (admin, _) = person(&server, "adam@example.com", Some(Role::Admin));
    let (editor, _) = person(&server, "ed@example.com", Some(Role::Editor));
    let (stranger, _) = person(&server, "eve@example.com", None);
    invite(&server, &editor, "x@example.com", "viewer").await.is(403, "forbidden");
    server.get("/api/v1/orgs/acme/invites", &editor).await.is(403, "forbidden");
    invite(&server, &stranger, "x@example.com", "viewer").await.is(404, "org_not_found");
    invite(&server, &admin, "y@example.com", "owner").await.is(403, "forbidden");
    assert_eq!(invite(&server, &owner, "z@example.com", "owner").await.status, 201);
    invite(&server, &owner, "no address", "viewer").await.is(422, "validation_failed");
    invite(&server, &owner, "a@example.com", "god").await.is(422, "validation_failed");
    for _ in 0..3 {
        assert_eq!(invite(&server, &admin, "w@example.com", "viewer").await.status, 201);
    }
    let refused = invite(&server, &admin, "w@example.com", "viewer").await;
    refused.is(429, "mail_throttled");
    assert!(!refused.header("retry-after").is_empty());
}

/// With console mail a person delivers the link, so it is in the response and nowhere else.
#[tokio::test]
async fn the_link_is_in_the_response_only_if_no_mail_is_sent() {
    let server = TestServer::build(TestServerOptions { console: true, ..TestServerOptions::default() });
    let owner = server.log_in().await;
    let made = invite(&server, &owner, "bo@example.com", "viewer").await;
    let url = made.text("url");
    let token = url.strip_prefix("http://127.0.0.1:8095/invite#token=").expect("a link").to_owned();
    assert_eq!(
        accept(&server, &Who::Nobody, json!({ "token": token })).await.status,
        201,
        "without a password"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_accept_one_invitation_one_succeeds() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    invite(&server, &owner, "bo@example.com", "viewer").await;
    let token = mailed(&server);
    let body = json!({ "token": token, "password": PASSWORD });
    let tries = (0..12).map(|_| accept(&server, &Who::Nobody, body.clone()));
    let codes: Vec<u16> = futures_of(tries).await.iter().map(|reply| reply.status.as_u16()).collect();
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1, "{codes:?}");
    assert!(codes.iter().all(|code| [201, 401, 409, 503].contains(code)), "{codes:?}");
    assert_eq!(roles(&server, &owner).await.len(), 2);
}

/// Runs all requests concurrently.
async fn futures_of(all: impl Iterator<Item = impl Future<Output = Reply>>) -> Vec<Reply> {
    let mut waiting: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(move |context| {
        let mut left = false;
        for (one, done) in &mut waiting {
            if done.is_none() {
                match one.as_mut().poll(context) {
                    std::task::Poll::Ready(reply) => *done = Some(reply),
                    std::task::Poll::Pending => left = true,
                }
            }
        }
        if left {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(waiting.iter_mut().filter_map(|(_, done)| done.take()).collect())
    })
    .await
}

/// docs/specification.md C3: actor, action, target, address and request id; newest first, in pages,
/// and without secrets.
#[tokio::test]
async fn actions_are_recorded_in_the_audit_log() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    server.pass(Duration::from_millis(1));
    let (key, secret) = server.key(&owner, json!({ "scopes": ["embed"] })).await;
    server.pass(Duration::from_millis(1));
    let invited = invite(&server, &owner, "bo@example.com", "viewer").await;
    let token = mailed(&server);
    server.pass(Duration::from_millis(1));
    accept(&server, &Who::Nobody, json!({ "token": token, "password": PASSWORD })).await;
    let list = server.get("/api/v1/orgs/acme/audit", &owner).await;
    for hidden in [secret.as_str(), token.as_str(), PASSWORD, "ses_"] {
        assert!(!list.body.contains(hidden), "{hidden}");
    }
    let value = list.value();
    let rows = value["data"].as_array().expect("rows");
    let actions: Vec<&str> = rows.iter().filter_map(|row| row["action"].as_str()).collect();
    assert_eq!(actions, ["invite.accepted", "invite.created", "key.created", "org.created"]);
    assert_eq!(value["next_cursor"], Value::Null);
    let row = &rows[1];
    assert_eq!((&row["actor"]["type"], &row["actor"]["email"]), (&json!("user"), &json!(EMAIL)));
    assert_eq!((&row["target"], &row["meta"]["detail"]), (&json!("bo@example.com"), &json!("viewer")));
    assert_eq!((&row["ip"], &row["result"]), (&json!("127.0.0.1"), &json!("success")));
    assert_eq!(row["request_id"], invited.header("x-request-id"));
    assert!(row["id"].as_str().expect("an id").starts_with("evt_"));
    assert_eq!(rows[2]["target"], key);
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/api/v1/orgs/acme/audit?limit=1{cursor}"), &owner).await.value();
        found.extend(page["data"].as_array().expect("rows").iter().map(|row| row["action"].clone()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(found, actions);
    let of = async |action: &str| {
        let path = format!("/api/v1/orgs/acme/audit?action={action}");
        server.get(&path, &owner).await.value()["data"].as_array().expect("rows").len()
    };
    assert_eq!((of("invite.*").await, of("key.created").await, of("invite").await), (2, 1, 0));
    for wrong in ["limit=0", "limit=1001", "cursor=x", "limit=1&limit=2"] {
        assert_eq!(
            server.get(&format!("/api/v1/orgs/acme/audit?{wrong}"), &owner).await.status,
            400,
            "{wrong}"
        );
    }
    let bo = session(&server, "bo@example.com");
    server.get("/api/v1/orgs/acme/audit", &bo).await.is(403, "forbidden");
}
