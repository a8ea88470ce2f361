//! Deleting an organisation (docs/specification.md C3), and the rights of the instance
//! administrator (docs/specification.md C8).

use std::time::Duration;

use promlet::identity::Role;
use serde_json::{Value, json};

use crate::members::{person, session};
use crate::test_server::{EMAIL, TestServer, Who};

async fn delete(server: &TestServer, who: &Who, confirm: &str) -> crate::test_server::Reply {
    server.json("DELETE", "/api/v1/orgs/acme", who, json!({ "confirm": confirm })).await
}

#[tokio::test]
async fn an_owner_deletes_an_organisation_with_a_fresh_login_and_its_name() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let (admin, _) = person(&server, "adam@example.com", Some(Role::Admin));
    delete(&server, &admin, "acme").await.is(403, "forbidden");
    delete(&server, &owner, "acm").await.is(422, "validation_failed");
    server.json("DELETE", "/api/v1/orgs/acme", &owner, json!({})).await.is(422, "validation_failed");
    server.pass(Duration::from_secs(15 * 60 + 1));
    delete(&server, &owner, "acme").await.is(403, "reauth_required");
    let owner = server.log_in().await;
    let gone = delete(&server, &owner, "acme").await;
    assert_eq!((gone.status.as_u16(), gone.value()), (202, json!({ "slug": "acme", "status": "deleting" })));
    delete(&server, &owner, "acme").await.is(404, "org_not_found");
}

/// Keys, tokens, invitations and memberships are invalid from the response on.
#[tokio::test]
async fn credentials_of_a_deleted_organisation_are_invalid_at_once() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let (viewer, _) = person(&server, "vera@example.com", Some(Role::Viewer));
    let (key, secret) = server.key(&owner, json!({ "scopes": ["embed", "read", "ingest"] })).await;
    let token = server.token(&owner, &key, json!({})).await;
    let invite = json!({ "email": "bo@example.com", "role": "viewer" });
    server.post("/api/v1/orgs/acme/invites", &owner, invite).await;
    let mail = server.outbox.mails().pop().expect("a mail");
    let (_, link) = mail.url.split_once("#token=").expect("a link");
    let probe = "/api/v1/orgs/acme/query/probe-range";
    let mount = "/api/v1/orgs/acme/prometheus/api/v1/probe";
    let write = "/api/v1/orgs/acme/import/probe";
    let bearer = Who::Bearer(secret);
    assert_eq!(server.get(probe, &token).await.status, 200);
    assert_eq!(server.get(mount, &bearer).await.status, 200);
    assert_eq!(server.post(write, &bearer, json!({})).await.status, 204);
    assert_eq!(delete(&server, &owner, "acme").await.status, 202);
    assert_eq!(server.get(probe, &token).await.status, 401);
    assert_eq!(server.get(mount, &bearer).await.status, 401);
    assert_eq!(server.post(write, &bearer, json!({})).await.status, 401);
    for who in [&owner, &viewer] {
        server.get("/api/v1/orgs/acme", who).await.is(404, "org_not_found");
        assert_eq!(server.get("/api/v1/orgs", who).await.value()["data"], json!([]));
        assert_eq!(server.get(probe, who).await.status, 404);
    }
    server
        .post("/api/v1/auth/invites/lookup", &Who::Nobody, json!({ "token": link }))
        .await
        .is(401, "link_invalid");
    server.post("/api/v1/orgs", &owner, json!({ "slug": "acme" })).await.is(409, "slug_taken");
    let events = server.get("/api/v1/admin/audit?action=org.deleted", &owner).await.value();
    assert_eq!(
        (&events["data"][0]["target"], &events["data"][0]["actor"]["email"]),
        (&json!("acme"), &json!(EMAIL))
    );
}

async fn users(server: &TestServer, who: &Who) -> Vec<Value> {
    server.get("/api/v1/admin/users", who).await.value()["data"].as_array().expect("rows").clone()
}

#[tokio::test]
async fn the_administrator_disables_accounts_and_their_sessions_end_at_once() {
    let server = TestServer::new();
    let boss = server.log_in().await;
    let (bo, id) = person(&server, "bo@example.com", Some(Role::Viewer));
    let path = format!("/api/v1/admin/users/{id}");
    for (method, path) in [
        ("GET", "/api/v1/admin/users"),
        ("GET", "/api/v1/admin/orgs"),
        ("GET", "/api/v1/admin/stats"),
        ("GET", "/api/v1/admin/audit"),
    ] {
        server.json(method, path, &bo, json!({})).await.is(403, "forbidden");
        server.json(method, path, &Who::Nobody, json!({})).await.is(401, "unauthenticated");
    }
    server.json("PATCH", &path, &bo, json!({ "is_admin": true })).await.is(403, "forbidden");
    let row =
        users(&server, &boss).await.into_iter().find(|row| row["id"] == id.to_string()).expect("listed");
    assert_eq!((&row["email"], &row["sessions"]), (&json!("bo@example.com"), &json!(1)));
    assert_eq!(row["orgs"], json!([{ "slug": "acme", "role": "viewer" }]));
    let changed = server.json("PATCH", &path, &boss, json!({ "disabled": true })).await;
    assert_eq!((changed.status.as_u16(), &changed.value()["disabled"]), (200, &json!(true)));
    server.get("/api/v1/auth/me", &bo).await.is(401, "session_invalid");
    let login = json!({ "email": "bo@example.com", "password": crate::test_server::PASSWORD });
    server.post("/api/v1/auth/login", &Who::Nobody, login).await.is(401, "invalid_credentials");
    let changed = server.json("PATCH", &path, &boss, json!({ "disabled": false, "is_admin": true })).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    server.get("/api/v1/auth/me", &bo).await.is(401, "session_invalid");
    let bo = session(&server, "bo@example.com");
    assert_eq!(users(&server, &bo).await.len(), 2);
    server.json("PATCH", &path, &boss, json!({ "admin": true })).await.is(422, "validation_failed");
    server
        .json("PATCH", "/api/v1/admin/users/usr_aaaaaaaaaaaaaaaa", &boss, json!({}))
        .await
        .is(404, "not_found");
    let search = server.get("/api/v1/admin/users?search=BO@&limit=1", &boss).await.value();
    assert_eq!(search["data"].as_array().expect("rows").len(), 1);
    let first = server.get("/api/v1/admin/users?limit=1", &boss).await.value();
    let cursor = first["next_cursor"].as_str().expect("a cursor");
    let second = server.get(&format!("/api/v1/admin/users?limit=1&cursor={cursor}"), &boss).await.value();
    assert_ne!(first["data"][0]["id"], second["data"][0]["id"]);
}

#[tokio::test]
async fn the_last_administrator_who_can_log_in_remains() {
    let server = TestServer::new();
    let boss = server.log_in().await;
    let me =
        server.get("/api/v1/auth/me", &boss).await.value()["user"]["id"].as_str().expect("an id").to_owned();
    let mine = format!("/api/v1/admin/users/{me}");
    for change in [json!({ "disabled": true }), json!({ "is_admin": false })] {
        server.json("PATCH", &mine, &boss, change).await.is(409, "conflict");
    }
    let (_, id) = person(&server, "bo@example.com", None);
    let theirs = format!("/api/v1/admin/users/{id}");
    let both = json!({ "is_admin": true, "disabled": true });
    assert_eq!(server.json("PATCH", &theirs, &boss, both).await.status, 200);
    server.json("PATCH", &mine, &boss, json!({ "is_admin": false })).await.is(409, "conflict");
    assert_eq!(server.json("PATCH", &theirs, &boss, json!({ "disabled": false })).await.status, 200);
    assert_eq!(server.json("PATCH", &mine, &boss, json!({ "is_admin": false })).await.status, 200);
    server.get("/api/v1/admin/users", &boss).await.is(403, "forbidden");
}

/// Names, members and usage, but no data. Only the instance administrator sets limits above the
/// server's own.
#[tokio::test]
async fn the_administrator_sees_organisations_and_raises_their_limits_without_access_to_data() {
    let server = TestServer::new();
    let boss = server.log_in().await;
    let (bo, _) = person(&server, "bo@example.com", Some(Role::Owner));
    let me =
        server.get("/api/v1/auth/me", &boss).await.value()["user"]["id"].as_str().expect("an id").to_owned();
    assert_eq!(server.delete(&format!("/api/v1/orgs/acme/members/{me}"), &boss).await.status, 204);
    server.get("/api/v1/orgs/acme", &boss).await.is(404, "org_not_found");
    let list = server.get("/api/v1/admin/orgs", &boss).await.value();
    let row = &list["data"][0];
    assert_eq!(
        (&row["slug"], &row["members"], &row["owners"]),
        (&json!("acme"), &json!(1), &json!(["bo@example.com"]))
    );
    assert_eq!(row["usage"]["series"], 0);
    let raise = json!({ "settings": { "max_samples_per_query": 50_000_000 } });
    server.json("PATCH", "/api/v1/orgs/acme", &bo, raise.clone()).await.is(403, "forbidden");
    server.json("PATCH", "/api/v1/admin/orgs/acme", &bo, raise.clone()).await.is(403, "forbidden");
    let raised = server.json("PATCH", "/api/v1/admin/orgs/acme", &boss, raise).await;
    assert_eq!(
        (raised.status.as_u16(), &raised.value()["settings"]["max_samples_per_query"]),
        (200, &json!(50_000_000))
    );
    let shown = server.get("/api/v1/orgs/acme", &bo).await.value();
    assert_eq!(shown["settings"]["max_samples_per_query"], 50_000_000);
    let name = json!({ "settings": {}, "name": "x" });
    server.json("PATCH", "/api/v1/admin/orgs/acme", &boss, name).await.is(422, "validation_failed");
    server
        .json("PATCH", "/api/v1/admin/orgs/nothing", &boss, json!({ "settings": {} }))
        .await
        .is(404, "org_not_found");
    let stats = server.get("/api/v1/admin/stats", &boss).await.value();
    assert_eq!((&stats["users"], &stats["orgs"], &stats["admins"]), (&json!(2), &json!(1), &json!(1)));
    assert_eq!(stats["sessions"], 3, "that of the set-up, too");
}
