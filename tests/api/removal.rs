//! Deleting an organisation (docs/specification.md C3), and the rights of the instance
//! administrator (docs/specification.md C8).

use std::time::Duration;

use promlet::identity::Role;
use serde_json::{Value, json};

use crate::members::{person, session};
use crate::test_server::{EMAIL, TestServer, Who};

async fn delete(house: &TestServer, who: &Who, confirm: &str) -> crate::test_server::Reply {
    house.json("DELETE", "/api/v1/orgs/acme", who, json!({ "confirm": confirm })).await
}

#[tokio::test]
async fn an_owner_deletes_an_organisation_with_a_fresh_login_and_its_name() {
    let house = TestServer::new();
    let owner = house.log_in().await;
    let (admin, _) = person(&house, "adam@example.com", Some(Role::Admin));
    delete(&house, &admin, "acme").await.is(403, "forbidden");
    delete(&house, &owner, "acm").await.is(422, "validation_failed");
    house.json("DELETE", "/api/v1/orgs/acme", &owner, json!({})).await.is(422, "validation_failed");
    house.pass(Duration::from_secs(15 * 60 + 1));
    delete(&house, &owner, "acme").await.is(403, "reauth_required");
    let owner = house.log_in().await;
    let gone = delete(&house, &owner, "acme").await;
    assert_eq!((gone.status.as_u16(), gone.value()), (202, json!({ "slug": "acme", "status": "deleting" })));
    delete(&house, &owner, "acme").await.is(404, "org_not_found");
}

/// Keys, tokens, invitations and memberships are invalid from the response on.
#[tokio::test]
async fn credentials_of_a_deleted_organisation_are_invalid_at_once() {
    let house = TestServer::new();
    let owner = house.log_in().await;
    let (viewer, _) = person(&house, "vera@example.com", Some(Role::Viewer));
    let (key, secret) = house.key(&owner, json!({ "scopes": ["embed", "read", "ingest"] })).await;
    let token = house.token(&owner, &key, json!({})).await;
    let invite = json!({ "email": "bo@example.com", "role": "viewer" });
    house.post("/api/v1/orgs/acme/invites", &owner, invite).await;
    let mail = house.outbox.mails().pop().expect("a mail");
    let (_, link) = mail.url.split_once("#token=").expect("a link");
    let probe = "/api/v1/orgs/acme/query/probe-range";
    let mount = "/api/v1/orgs/acme/prometheus/api/v1/probe";
    let write = "/api/v1/orgs/acme/import/probe";
    let bearer = Who::Bearer(secret);
    assert_eq!(house.get(probe, &token).await.status, 200);
    assert_eq!(house.get(mount, &bearer).await.status, 200);
    assert_eq!(house.post(write, &bearer, json!({})).await.status, 204);
    assert_eq!(delete(&house, &owner, "acme").await.status, 202);
    assert_eq!(house.get(probe, &token).await.status, 401);
    assert_eq!(house.get(mount, &bearer).await.status, 401);
    assert_eq!(house.post(write, &bearer, json!({})).await.status, 401);
    for who in [&owner, &viewer] {
        house.get("/api/v1/orgs/acme", who).await.is(404, "org_not_found");
        assert_eq!(house.get("/api/v1/orgs", who).await.value()["data"], json!([]));
        assert_eq!(house.get(probe, who).await.status, 404);
    }
    house
        .post("/api/v1/auth/invites/lookup", &Who::Nobody, json!({ "token": link }))
        .await
        .is(401, "link_invalid");
    house.post("/api/v1/orgs", &owner, json!({ "slug": "acme" })).await.is(409, "slug_taken");
    let events = house.get("/api/v1/admin/audit?action=org.deleted", &owner).await.value();
    assert_eq!(
        (&events["data"][0]["target"], &events["data"][0]["actor"]["email"]),
        (&json!("acme"), &json!(EMAIL))
    );
}

async fn users(house: &TestServer, who: &Who) -> Vec<Value> {
    house.get("/api/v1/admin/users", who).await.value()["data"].as_array().expect("rows").clone()
}

#[tokio::test]
async fn the_administrator_disables_accounts_and_their_sessions_end_at_once() {
    let house = TestServer::new();
    let boss = house.log_in().await;
    let (bo, id) = person(&house, "bo@example.com", Some(Role::Viewer));
    let path = format!("/api/v1/admin/users/{id}");
    for (method, path) in [
        ("GET", "/api/v1/admin/users"),
        ("GET", "/api/v1/admin/orgs"),
        ("GET", "/api/v1/admin/stats"),
        ("GET", "/api/v1/admin/audit"),
    ] {
        house.json(method, path, &bo, json!({})).await.is(403, "forbidden");
        house.json(method, path, &Who::Nobody, json!({})).await.is(401, "unauthenticated");
    }
    house.json("PATCH", &path, &bo, json!({ "is_admin": true })).await.is(403, "forbidden");
    let row = users(&house, &boss).await.into_iter().find(|row| row["id"] == id.to_string()).expect("listed");
    assert_eq!((&row["email"], &row["sessions"]), (&json!("bo@example.com"), &json!(1)));
    assert_eq!(row["orgs"], json!([{ "slug": "acme", "role": "viewer" }]));
    let changed = house.json("PATCH", &path, &boss, json!({ "disabled": true })).await;
    assert_eq!((changed.status.as_u16(), &changed.value()["disabled"]), (200, &json!(true)));
    house.get("/api/v1/auth/me", &bo).await.is(401, "session_invalid");
    let login = json!({ "email": "bo@example.com", "password": crate::test_server::PASSWORD });
    house.post("/api/v1/auth/login", &Who::Nobody, login).await.is(401, "invalid_credentials");
    let changed = house.json("PATCH", &path, &boss, json!({ "disabled": false, "is_admin": true })).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    house.get("/api/v1/auth/me", &bo).await.is(401, "session_invalid");
    let bo = session(&house, "bo@example.com");
    assert_eq!(users(&house, &bo).await.len(), 2);
    house.json("PATCH", &path, &boss, json!({ "admin": true })).await.is(422, "validation_failed");
    house
        .json("PATCH", "/api/v1/admin/users/usr_aaaaaaaaaaaaaaaa", &boss, json!({}))
        .await
        .is(404, "not_found");
    let search = house.get("/api/v1/admin/users?search=BO@&limit=1", &boss).await.value();
    assert_eq!(search["data"].as_array().expect("rows").len(), 1);
    let first = house.get("/api/v1/admin/users?limit=1", &boss).await.value();
    let cursor = first["next_cursor"].as_str().expect("a cursor");
    let second = house.get(&format!("/api/v1/admin/users?limit=1&cursor={cursor}"), &boss).await.value();
    assert_ne!(first["data"][0]["id"], second["data"][0]["id"]);
}

#[tokio::test]
async fn the_last_administrator_who_can_log_in_remains() {
    let house = TestServer::new();
    let boss = house.log_in().await;
    let me =
        house.get("/api/v1/auth/me", &boss).await.value()["user"]["id"].as_str().expect("an id").to_owned();
    let mine = format!("/api/v1/admin/users/{me}");
    for change in [json!({ "disabled": true }), json!({ "is_admin": false })] {
        house.json("PATCH", &mine, &boss, change).await.is(409, "conflict");
    }
    let (_, id) = person(&house, "bo@example.com", None);
    let theirs = format!("/api/v1/admin/users/{id}");
    let both = json!({ "is_admin": true, "disabled": true });
    assert_eq!(house.json("PATCH", &theirs, &boss, both).await.status, 200);
    house.json("PATCH", &mine, &boss, json!({ "is_admin": false })).await.is(409, "conflict");
    assert_eq!(house.json("PATCH", &theirs, &boss, json!({ "disabled": false })).await.status, 200);
    assert_eq!(house.json("PATCH", &mine, &boss, json!({ "is_admin": false })).await.status, 200);
    house.get("/api/v1/admin/users", &boss).await.is(403, "forbidden");
}

/// Names, members and usage, but no data. Only the instance administrator sets limits above the
/// server's own.
#[tokio::test]
async fn the_administrator_sees_organisations_and_raises_their_limits_without_access_to_data() {
    let house = TestServer::new();
    let boss = house.log_in().await;
    let (bo, _) = person(&house, "bo@example.com", Some(Role::Owner));
    let me =
        house.get("/api/v1/auth/me", &boss).await.value()["user"]["id"].as_str().expect("an id").to_owned();
    assert_eq!(house.delete(&format!("/api/v1/orgs/acme/members/{me}"), &boss).await.status, 204);
    house.get("/api/v1/orgs/acme", &boss).await.is(404, "org_not_found");
    let list = house.get("/api/v1/admin/orgs", &boss).await.value();
    let row = &list["data"][0];
    assert_eq!(
        (&row["slug"], &row["members"], &row["owners"]),
        (&json!("acme"), &json!(1), &json!(["bo@example.com"]))
    );
    assert_eq!(row["usage"]["series"], 0);
    let raise = json!({ "settings": { "max_samples_per_query": 50_000_000 } });
    house.json("PATCH", "/api/v1/orgs/acme", &bo, raise.clone()).await.is(403, "forbidden");
    house.json("PATCH", "/api/v1/admin/orgs/acme", &bo, raise.clone()).await.is(403, "forbidden");
    let raised = house.json("PATCH", "/api/v1/admin/orgs/acme", &boss, raise).await;
    assert_eq!(
        (raised.status.as_u16(), &raised.value()["settings"]["max_samples_per_query"]),
        (200, &json!(50_000_000))
    );
    let shown = house.get("/api/v1/orgs/acme", &bo).await.value();
    assert_eq!(shown["settings"]["max_samples_per_query"], 50_000_000);
    let name = json!({ "settings": {}, "name": "x" });
    house.json("PATCH", "/api/v1/admin/orgs/acme", &boss, name).await.is(422, "validation_failed");
    house
        .json("PATCH", "/api/v1/admin/orgs/nothing", &boss, json!({ "settings": {} }))
        .await
        .is(404, "org_not_found");
    let stats = house.get("/api/v1/admin/stats", &boss).await.value();
    assert_eq!((&stats["users"], &stats["orgs"], &stats["admins"]), (&json!(2), &json!(1), &json!(1)));
    assert_eq!(stats["sessions"], 3, "that of the set-up, too");
}
