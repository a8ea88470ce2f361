//! Listings of accounts and organisations have pages, all in the same way (docs/specification.md C2
//! to C4, C8).

use std::time::Duration;

use promlet::entropy::Entropy;
use promlet::identity::{NewOrg, OrgCreate, Role};
use promlet::model::OrgSlug;
use serde_json::{Value, json};

use crate::members::{person, session};
use crate::test_server::{EMAIL, TestServer, TestServerOptions, Who};

/// Reads every page below `path`, `limit` rows at a time. Returns the names of the rows, and the
/// number of pages.
async fn walked(
    server: &TestServer,
    path: &str,
    who: &Who,
    limit: usize,
    name: &str,
) -> (Vec<String>, usize) {
    let (mut all, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = server.get(&format!("{path}?limit={limit}{cursor}"), who).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        let page = page.value();
        let rows = page["data"].as_array().expect("rows");
        assert!(rows.len() <= limit, "{path}: {page}");
        all.extend(rows.iter().map(|row| row[name].as_str().expect("a name").to_owned()));
        pages += 1;
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return (all, pages),
        }
    }
}

#[tokio::test]
async fn the_pages_of_every_listing_miss_and_repeat_no_row() {
    let server =
        TestServer::build(TestServerOptions { org_create: OrgCreate::Any, ..TestServerOptions::default() });
    let owner = server.log_in().await;
    let ada = server.get("/api/v1/auth/me", &owner).await.value()["user"]["id"].as_str().map(str::to_owned);
    let ada = ada.expect("an id").parse().expect("an id");
    // All in the same millisecond, so that time alone does not order them.
    for number in 0..4 {
        person(&server, &format!("p{number}@example.com"), Some(Role::Viewer));
        session(&server, EMAIL);
        server.key(&owner, json!({ "scopes": ["read"] })).await;
        let invite = json!({ "email": format!("i{number}@example.com"), "role": "viewer" });
        assert_eq!(server.post("/api/v1/orgs/acme/invites", &owner, invite).await.status, 201);
        let slug = OrgSlug::parse(&format!("other{number}")).expect("a slug");
        let org = NewOrg { slug, name: String::new() };
        server.identity.create_org(ada, org, server.clock.now(), &mut Entropy::system()).expect("made");
    }
    for (path, name) in [
        ("/api/v1/auth/sessions", "id"),
        ("/api/v1/orgs", "slug"),
        ("/api/v1/orgs/acme/members", "user_id"),
        ("/api/v1/orgs/acme/invites", "id"),
        ("/api/v1/orgs/acme/api-keys", "id"),
        ("/api/v1/admin/users", "id"),
        ("/api/v1/admin/orgs", "id"),
    ] {
        // A session is limited to sixty requests a second.
        server.pass(Duration::from_secs(1));
        let whole = server.get(path, &owner).await.value();
        assert_eq!(whole["next_cursor"], Value::Null, "{path}");
        let rows = whole["data"].as_array().expect("rows");
        let whole: Vec<&str> = rows.iter().map(|row| row[name].as_str().expect("a name")).collect();
        assert!((4..=6).contains(&whole.len()), "{path}: {whole:?}");
        for limit in [1, 2, whole.len(), 1_000] {
            server.pass(std::time::Duration::from_secs(1));
            let (told, pages) = walked(&server, path, &owner, limit, name).await;
            assert_eq!(told, whole, "{path} by {limit}");
            assert_eq!(pages, whole.len().div_ceil(limit), "{path} by {limit}: no page is empty");
        }
    }
    // Search results have pages as well.
    let found = server.get("/api/v1/admin/users?search=P1%40EXAMPLE&limit=1", &owner).await.value();
    assert_eq!((found["data"].as_array().map(Vec::len), &found["next_cursor"]), (Some(1), &Value::Null));
}

/// The cursor of another listing is refused. It must not give an empty page.
#[tokio::test]
async fn a_cursor_of_another_listing_is_refused() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    person(&server, "bo@example.com", Some(Role::Viewer));
    let members = server.get("/api/v1/orgs/acme/members?limit=1", &owner).await.text("next_cursor");
    for path in
        ["/api/v1/admin/users", "/api/v1/admin/orgs", "/api/v1/auth/sessions", "/api/v1/orgs/acme/api-keys"]
    {
        server.get(&format!("{path}?cursor={members}"), &owner).await.is(400, "invalid_parameter");
    }
}
