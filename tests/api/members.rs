//! Members, invitations and the audit log (docs/specification.md C2 and C3; threat model rows 20,
//! 26, 50).

use std::time::Duration;

use promlet::entropy::Entropy;
use promlet::identity::{Email, LoginOutcome, NewUser, Password, PasswordLogin, Role, UserId};
use serde_json::{Value, json};

use crate::test_server::{EMAIL, PASSWORD, Reply, TestServer, TestServerOptions, Who};

/// Creates an account, with a role in `acme` if one is given. Returns its session and id.
pub(crate) fn person(house: &TestServer, email: &str, role: Option<Role>) -> (Who, UserId) {
    let (now, mut rng) = (house.clock.now(), Entropy::system());
    let email = Email::parse(email).expect("an address");
    let new = NewUser { email: email.clone(), name: "", password: Some(Password(PASSWORD)), is_admin: false };
    let user = house.identity.create_user(&new, now, &mut rng).expect("made");
    if let Some(role) = role {
        let acme = house.identity.org_by_slug("acme").expect("read").expect("there");
        house.identity.add_member(acme.id, user.id, role, now).expect("a member");
    }
    (session(house, email.as_str()), user.id)
}

pub(crate) fn session(house: &TestServer, email: &str) -> Who {
    let client =
        promlet::identity::Client { ip: "127.0.0.1".parse().expect("an address"), user_agent: String::new() };
    let attempt =
        PasswordLogin { email, password: Password(PASSWORD), client: &client, replaces: None, device: None };
    match house.identity.login(&attempt, house.clock.now(), &mut Entropy::system()).expect("in") {
        LoginOutcome::LoggedIn(login) => Who::Cookie(login.token.expose().to_owned()),
        LoginOutcome::NeedsCode(_) => unreachable!("no second factor"),
    }
}

async fn invite(house: &TestServer, who: &Who, email: &str, role: &str) -> Reply {
    house.post("/api/v1/orgs/acme/invites", who, json!({ "email": email, "role": role })).await
}

/// Returns the token of the last mail.
fn mailed(house: &TestServer) -> String {
    let mail = house.outbox.mails().pop().expect("a mail");
    let (_, token) = mail.url.split_once("/invite#token=").expect("a link");
    assert_eq!(mail.kind.as_str(), "invite");
    token.to_owned()
}

async fn accept(house: &TestServer, who: &Who, body: Value) -> Reply {
    house.post("/api/v1/auth/invites/accept", who, body).await
}

fn path(user: UserId) -> String {
    format!("/api/v1/orgs/acme/members/{user}")
}

async fn roles(house: &TestServer, who: &Who) -> Vec<(String, String)> {
    let list = house.get("/api/v1/orgs/acme/members", who).await.value();
    let rows = list["data"].as_array().expect("rows").iter();
    let text = |row: &Value, field: &str| row[field].as_str().expect("a text").to_owned();
    rows.map(|row| (text(row, "email"), text(row, "role"))).collect()
}

#[tokio::test]
async fn administrators_change_roles_and_owners_change_owners() {
    let house = TestServer::new();
    let owner = house.log_in().await;
    let (admin, admin_id) = person(&house, "adam@example.com", Some(Role::Admin));
    let (viewer, viewer_id) = person(&house, "vera@example.com", Some(Role::Viewer));
    let (_, stranger_id) = person(&house, "eve@example.com", None);
    let role = |role: &str| json!({ "role": role });
    let changed = house.json("PATCH", &path(viewer_id), &admin, role("editor")).await;
    assert_eq!((changed.status.as_u16(), changed.text("role").as_str()), (200, "editor"), "{}", changed.body);
    house.json("PATCH", &path(viewer_id), &viewer, role("admin")).await.is(403, "forbidden");
    house.json("PATCH", &path(viewer_id), &admin, role("owner")).await.is(403, "forbidden");
    house.json("PATCH", &path(admin_id), &admin, role("owner")).await.is(403, "forbidden");
    house.json("PATCH", &path(stranger_id), &owner, role("viewer")).await.is(404, "not_found");
    house.json("PATCH", &path(viewer_id), &owner, role("king")).await.is(422, "validation_failed");
    house.json("PATCH", &path(viewer_id), &owner, json!({})).await.is(422, "validation_failed");
    let list = house.get("/api/v1/auth/me", &owner).await.value();
    let ada: UserId = list["user"]["id"].as_str().expect("an id").parse().expect("an id");
    house.json("PATCH", &path(ada), &admin, role("viewer")).await.is(403, "forbidden");
    house.json("PATCH", &path(ada), &owner, role("admin")).await.is(409, "last_owner");
    house.delete(&path(ada), &owner).await.is(409, "last_owner");
    house.delete(&path(ada), &admin).await.is(403, "forbidden");
    let made = house.json("PATCH", &path(admin_id), &owner, role("owner")).await;
    assert_eq!(made.status, 200, "{}", made.body);
    assert_eq!(house.json("PATCH", &path(ada), &owner, role("viewer")).await.status, 200);
    let expected = [(EMAIL, "viewer"), ("adam@example.com", "owner"), ("vera@example.com", "editor")];
    let mut found = roles(&house, &admin).await;
    found.sort();
    assert_eq!(found, expected.map(|(email, role)| (email.to_owned(), role.to_owned())));
}

#[tokio::test]
async fn a_member_may_leave_and_sees_less_than_an_administrator() {
    let house = TestServer::new();
    let owner = house.log_in().await;
    let (viewer, viewer_id) = person(&house, "vera@example.com", Some(Role::Viewer));
    let (editor, editor_id) = person(&house, "ed@example.com", Some(Role::Editor));
    let list = house.get("/api/v1/orgs/acme/members", &viewer).await.value();
    assert_eq!(list["data"].as_array().expect("rows").len(), 3);
    assert!(!list.to_string().contains("twofa_enabled") && !list.to_string().contains("last_seen_at"));
    let list = house.get("/api/v1/orgs/acme/members", &owner).await.value();
    assert!(list.to_string().contains("twofa_enabled"));
    house.delete(&path(editor_id), &viewer).await.is(403, "forbidden");
    assert_eq!(house.delete(&path(viewer_id), &viewer).await.status, 204);
    house.get("/api/v1/orgs/acme", &viewer).await.is(404, "org_not_found");
    assert_eq!(house.delete(&path(editor_id), &owner).await.status, 204);
    house.get("/api/v1/orgs/acme", &editor).await.is(404, "org_not_found");
    house.delete(&path(editor_id), &owner).await.is(404, "not_found");
    house.delete("/api/v1/orgs/acme/members/usr_", &owner).await.is(404, "not_found");
}

/// docs/specification.md F50: of two owners that demote each other concurrently, one remains.
#[tokio::test(flavor = "multi_thread")]
async fn f50_of_two_owners_demoted_at_once_one_remains() {
    for round in 0..10 {
        let house = TestServer::new();
        let owner = house.log_in().await;
        let (other, other_id) = person(&house, "bo@example.com", Some(Role::Owner));
        let me = house.get("/api/v1/auth/me", &owner).await.value();
        let ada: UserId = me["user"]["id"].as_str().expect("an id").parse().expect("an id");
        let (one, two) = (path(other_id), path(ada));
        let (first, second) = if round % 2 == 0 {
            let demote = json!({ "role": "viewer" });
            tokio::join!(
                house.json("PATCH", &one, &owner, demote.clone()),
                house.json("PATCH", &two, &other, demote)
            )
        } else {
            tokio::join!(house.delete(&two, &owner), house.delete(&one, &other))
        };
        let mut codes = [first.status.as_u16(), second.status.as_u16()];
        codes.sort_unstable();
        // The second request comes from the last owner or from a former owner.
        assert!(matches!(codes, [200 | 204, 403 | 409]), "{codes:?}: {} {}", first.body, second.body);
        let owners = if first.status.is_success() { &owner } else { &other };
        if round % 2 == 0 {
            let left = roles(&house, owners).await;
            assert_eq!(left.iter().filter(|(_, role)| role == "owner").count(), 1, "{left:?}");
        }
    }
}

/// Each demotes itself, so both are owners at the time of their requests.
#[tokio::test(flavor = "multi_thread")]
async fn f50_of_two_owners_that_step_down_at_once_one_is_refused() {
    let house = TestServer::new();
    let owner = house.log_in().await;
    let (other, other_id) = person(&house, "bo@example.com", Some(Role::Owner));
    let me = house.get("/api/v1/auth/me", &owner).await.value();
    let ada: UserId = me["user"]["id"].as_str().expect("an id").parse().expect("an id");
    let (own, theirs) = (path(ada), path(other_id));
    let (first, second) = tokio::join!(
        house.json("PATCH", &own, &owner, json!({ "role": "viewer" })),
        house.json("PATCH", &theirs, &other, json!({ "role": "viewer" }))
    );
    let refused = if first.status == 200 { &second } else { &first };
    refused.is(409, "last_owner");
    assert!(first.status == 200 || second.status == 200);
}

#[tokio::test]
async fn an_invitation_creates_an_account_of_the_invited_address_once() {
    let house = TestServer::new();
    let owner = house.log_in().await;
    let made = invite(&house, &owner, " Bo@Example.com ", "editor").await;
    assert_eq!(made.status, 201, "{}", made.body);
    let value = made.value();
    assert_eq!((&value["email"], &value["role"]), (&json!("bo@example.com"), &json!("editor")));
    assert!(value["id"].as_str().expect("an id").starts_with("inv_"));
    assert_eq!(value["expires_at"], house.clock.now().plus_ms(7 * 86_400_000).to_rfc3339());
    assert_eq!(value.get("url"), None, "a mail carries it");
    let token = mailed(&house);
    assert!(!made.body.contains(&token));
    let list = house.get("/api/v1/orgs/acme/invites", &owner).await;
    assert!(list.body.contains("bo@example.com") && !list.body.contains("ivt_"), "{}", list.body);
    let seen =
        house.post("/api/v1/auth/invites/lookup", &Who::Nobody, json!({ "token": token })).await.value();
    assert_eq!(
        seen,
        json!({ "org": { "slug": "acme", "name": "Acme" }, "email": "bo@example.com", "role": "editor", "account_exists": false })
    );
    accept(&house, &Who::Nobody, json!({ "token": token, "password": "short" }))
        .await
        .is(422, "weak_password");
    let long = json!({ "token": token, "name": "x".repeat(201) });
    accept(&house, &Who::Nobody, long).await.is(422, "validation_failed");
    let joined =
        accept(&house, &Who::Nobody, json!({ "token": token, "name": "Bo", "password": PASSWORD })).await;
    assert_eq!(joined.status, 201, "{}", joined.body);
    let cookie = Who::Cookie(joined.session_cookie().expect("a session"));
    let joined = joined.value();
    assert_eq!((&joined["user"]["email"], &joined["user"]["name"]), (&json!("bo@example.com"), &json!("Bo")));
    assert_eq!(joined["orgs"], json!([{ "slug": "acme", "name": "Acme", "role": "editor" }]));
    assert_eq!(joined["session"]["auth_method"], "invite");
    assert_eq!(house.get("/api/v1/orgs/acme", &cookie).await.text("role"), "editor");
    session(&house, "bo@example.com");
    for again in ["lookup", "accept"] {
        let again = format!("/api/v1/auth/invites/{again}");
        house.post(&again, &Who::Nobody, json!({ "token": token })).await.is(401, "link_invalid");
    }
    let list = house.get("/api/v1/orgs/acme/invites", &owner).await.value();
    assert_eq!(list["data"], json!([]));
}

/// docs/specification.md F20, CVE-2022-39306: for any address in the request, the account gets the
/// invited one.
#[tokio::test]
async fn f20_an_invitation_is_valid_only_for_its_own_address() {
    let house = TestServer::new();
    let owner = house.log_in().await;
    invite(&house, &owner, "bo@example.com", "admin").await;
    let token = mailed(&house);
    let body = json!({ "token": token, "email": "mallory@example.com", "user": { "email": "mallory@example.com" },
        "role": "owner", "password": PASSWORD });
    let joined = accept(&house, &Who::Nobody, body).await;
    assert_eq!(joined.status, 201, "{}", joined.body);
    assert_eq!(joined.value()["user"]["email"], "bo@example.com");
    let emails: Vec<String> =
        house.identity.users().expect("read").iter().map(|user| user.email.to_string()).collect();
    assert!(!emails.contains(&"mallory@example.com".to_owned()), "{emails:?}");
    assert!(roles(&house, &owner).await.contains(&("bo@example.com".to_owned(), "admin".to_owned())));
}

/// docs/specification.md C2 and F26: the link alone logs in to no account and bypasses no second
/// factor.
#[tokio::test]
async fn f26_account_holders_accept_with_a_session_and_the_link_logs_nobody_in() {
    let house = TestServer::new();
    let owner = house.log_in().await;
    let (bo, _) = person(&house, "bo@example.com", None);
    let (eve, _) = person(&house, "eve@example.com", None);
    invite(&house, &owner, "bo@example.com", "viewer").await;
    let token = mailed(&house);
    let body = json!({ "token": token, "password": "another password of mine" });
    for who in [&Who::Nobody, &eve, &owner] {
        let refused = accept(&house, who, body.clone()).await;
        refused.is(409, "link_required");
        let set = refused.session_cookie();
        assert!(set.is_none() || set.as_deref() == Some(who.secret()), "no session of another user");
    }
    let seen = house.post("/api/v1/auth/invites/lookup", &Who::Nobody, json!({ "token": token })).await;
    assert_eq!(seen.value()["account_exists"], true);
    let joined = accept(&house, &bo, body).await;
    assert_eq!(joined.status, 200, "{}", joined.body);
    assert_eq!(joined.value()["orgs"][0]["slug"], "acme");
    assert_eq!(house.get("/api/v1/orgs/acme", &bo).await.text("role"), "viewer");
    session(&house, "bo@example.com");
    invite(&house, &owner, "bo@example.com", "admin").await.is(409, "already_member");
    accept(&house, &bo, json!({ "token": token })).await.is(401, "link_invalid");
}

#[tokio::test]
async fn an_invitation_ends_after_seven_days_by_revocation_and_by_a_new_one() {
    let house = TestServer::new();
    let owner = house.log_in().await;
    invite(&house, &owner, "bo@example.com", "viewer").await;
    let first = mailed(&house);
    house.pass(Duration::from_secs(3_600));
    let owner = house.log_in().await;
    invite(&house, &owner, "bo@example.com", "viewer").await;
    let second = mailed(&house);
    let lookup = |token: &str| {
        let body = json!({ "token": token });
        house.post("/api/v1/auth/invites/lookup", &Who::Nobody, body)
    };
    lookup(&first).await.is(401, "link_invalid");
    house.pass(Duration::from_secs(7 * 86_400 - 1));
    assert_eq!(lookup(&second).await.status, 200);
    house.pass(Duration::from_secs(1));
    lookup(&second).await.is(401, "link_invalid");
    accept(&house, &Who::Nobody, json!({ "token": second, "password": PASSWORD }))
        .await
        .is(401, "link_invalid");
    let owner = house.log_in().await;
    assert_eq!(house.get("/api/v1/orgs/acme/invites", &owner).await.value()["data"], json!([]));
    let id = invite(&house, &owner, "bo@example.com", "viewer").await.text("id");
    let third = mailed(&house);
    let path = format!("/api/v1/orgs/acme/invites/{id}");
    assert_eq!(house.delete(&path, &owner).await.status, 204);
    lookup(&third).await.is(401, "link_invalid");
    house.delete(&path, &owner).await.is(404, "not_found");
    for foreign in ["", "ivt_", "ses_AAAA", &third.replace("ivt_", "mgl_")] {
        lookup(foreign).await.is(401, "link_invalid");
    }
}

#[tokio::test]
async fn administrators_invite_owners_invite_owners_and_mails_are_counted() {
    let house = TestServer::new();
    let owner = house.log_in().await;
    let (admin, _) = person(&house, "adam@example.com", Some(Role::Admin));
    let (editor, _) = person(&house, "ed@example.com", Some(Role::Editor));
    let (stranger, _) = person(&house, "eve@example.com", None);
    invite(&house, &editor, "x@example.com", "viewer").await.is(403, "forbidden");
    house.get("/api/v1/orgs/acme/invites", &editor).await.is(403, "forbidden");
    invite(&house, &stranger, "x@example.com", "viewer").await.is(404, "org_not_found");
    invite(&house, &admin, "y@example.com", "owner").await.is(403, "forbidden");
    assert_eq!(invite(&house, &owner, "z@example.com", "owner").await.status, 201);
    invite(&house, &owner, "no address", "viewer").await.is(422, "validation_failed");
    invite(&house, &owner, "a@example.com", "god").await.is(422, "validation_failed");
    for _ in 0..3 {
        assert_eq!(invite(&house, &admin, "w@example.com", "viewer").await.status, 201);
    }
    let refused = invite(&house, &admin, "w@example.com", "viewer").await;
    refused.is(429, "mail_throttled");
    assert!(!refused.header("retry-after").is_empty());
}

/// With console mail a person delivers the link, so it is in the response and nowhere else.
#[tokio::test]
async fn the_link_is_in_the_response_only_if_no_mail_is_sent() {
    let house = TestServer::build(TestServerOptions { console: true, ..TestServerOptions::default() });
    let owner = house.log_in().await;
    let made = invite(&house, &owner, "bo@example.com", "viewer").await;
    let url = made.text("url");
    let token = url.strip_prefix("http://127.0.0.1:8095/invite#token=").expect("a link").to_owned();
    assert_eq!(
        accept(&house, &Who::Nobody, json!({ "token": token })).await.status,
        201,
        "without a password"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_accept_one_invitation_one_succeeds() {
    let house = TestServer::new();
    let owner = house.log_in().await;
    invite(&house, &owner, "bo@example.com", "viewer").await;
    let token = mailed(&house);
    let body = json!({ "token": token, "password": PASSWORD });
    let tries = (0..12).map(|_| accept(&house, &Who::Nobody, body.clone()));
    let codes: Vec<u16> = futures_of(tries).await.iter().map(|reply| reply.status.as_u16()).collect();
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1, "{codes:?}");
    assert!(codes.iter().all(|code| [201, 401, 409, 503].contains(code)), "{codes:?}");
    assert_eq!(roles(&house, &owner).await.len(), 2);
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
    let house = TestServer::new();
    let owner = house.log_in().await;
    house.pass(Duration::from_millis(1));
    let (key, secret) = house.key(&owner, json!({ "scopes": ["embed"] })).await;
    house.pass(Duration::from_millis(1));
    let invited = invite(&house, &owner, "bo@example.com", "viewer").await;
    let token = mailed(&house);
    house.pass(Duration::from_millis(1));
    accept(&house, &Who::Nobody, json!({ "token": token, "password": PASSWORD })).await;
    let list = house.get("/api/v1/orgs/acme/audit", &owner).await;
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
        let page = house.get(&format!("/api/v1/orgs/acme/audit?limit=1{cursor}"), &owner).await.value();
        found.extend(page["data"].as_array().expect("rows").iter().map(|row| row["action"].clone()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(found, actions);
    let of = async |action: &str| {
        let path = format!("/api/v1/orgs/acme/audit?action={action}");
        house.get(&path, &owner).await.value()["data"].as_array().expect("rows").len()
    };
    assert_eq!((of("invite.*").await, of("key.created").await, of("invite").await), (2, 1, 0));
    for wrong in ["limit=0", "limit=1001", "cursor=x", "limit=1&limit=2"] {
        assert_eq!(
            house.get(&format!("/api/v1/orgs/acme/audit?{wrong}"), &owner).await.status,
            400,
            "{wrong}"
        );
    }
    let bo = session(&house, "bo@example.com");
    house.get("/api/v1/orgs/acme/audit", &bo).await.is(403, "forbidden");
}
