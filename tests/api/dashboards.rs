//! Dashboards of an organisation: documents, versions, conditions, limits and stars
//! (docs/specification.md C9).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use promlet::entropy::Entropy;
use promlet::identity::{
    DashboardDocument, DashboardWrite, ExpectedVersion, NewOrg, ProvisionedDashboard, Role,
};
use promlet::model::{OrgId, OrgSlug};
use serde_json::{Value, json};

use crate::members::person;
use crate::test_server::{Reply, TestServer, Who, ask};

pub(crate) const DASHBOARDS: &str = "/api/v1/orgs/acme/dashboards";

fn acme(server: &TestServer) -> OrgId {
    server.identity.org_by_slug("acme").expect("read").expect("there").id
}

fn place(uid: &str) -> String {
    format!("{DASHBOARDS}/{uid}")
}

/// Sends a body of any text, with a precondition if one is given.
async fn send(
    server: &TestServer,
    method: &str,
    path: &str,
    who: &Who,
    body: &str,
    tag: Option<&str>,
) -> Reply {
    let request = ask(method, path, who).header(header::CONTENT_TYPE, "application/json");
    let request = tag.into_iter().fold(request, |request, tag| request.header(header::IF_MATCH, tag));
    server.send(request.body(Body::from(body.to_owned())).expect("a request")).await
}

async fn put(server: &TestServer, uid: &str, who: &Who, dashboard: Value, tag: &str) -> Reply {
    let body = json!({ "dashboard": dashboard }).to_string();
    send(server, "PUT", &place(uid), who, &body, Some(tag)).await
}

async fn create(server: &TestServer, who: &Who, dashboard: Value, folder: &str) -> Reply {
    let reply = server.post(DASHBOARDS, who, json!({ "dashboard": dashboard, "folder": folder })).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    reply
}

async fn titles(server: &TestServer, who: &Who, query: &str) -> Vec<String> {
    let list = server.get(&format!("{DASHBOARDS}?{query}"), who).await.value();
    let rows = list["data"].as_array().expect("rows").iter();
    rows.map(|row| row["title"].as_str().expect("a title").to_owned()).collect()
}

fn write(text: String) -> DashboardWrite {
    let packed = DashboardDocument::parse(text).expect("a dashboard").pack().expect("short");
    DashboardWrite { packed, folder: None, message: String::new() }
}

#[tokio::test]
async fn a_document_is_returned_byte_by_byte_with_its_version() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    let document = concat!(
        r#"{"uid":"node","title":" Node \u0041 ", "tags":["linux","prod"],"id":null,"unknown":{"z":1,"a":[1.50,1e2,"#,
        r#"12345678901234567890123,-0.0,"\ud83d\ude00"]},"panels":[{"type":"graph","targets":[{"expr":"up"},{}]}]}"#
    );
    let body = format!(r#"{{"folder":"Infra / Linux","message":"first","dashboard":{document}}}"#);
    let made = send(&server, "POST", DASHBOARDS, &ada, &body, None).await;
    assert_eq!((made.status.as_u16(), made.header("etag")), (201, "\"1\""), "{}", made.body);
    assert_eq!(made.header("location"), "http://127.0.0.1:8095/api/v1/orgs/acme/dashboards/node");
    let shown = server.get(&place("node"), &ada).await;
    assert_eq!(shown.header("etag"), "\"1\"");
    assert!(shown.body.contains(&format!(r#""dashboard":{document}"#)), "{}", shown.body);
    let value = shown.value();
    let me = server.get("/auth/me", &ada).await.value()["user"]["id"].clone();
    for (field, expected) in [
        ("uid", json!("node")),
        ("title", json!("Node A")),
        ("folder", json!("Infra/Linux")),
        ("tags", json!(["linux", "prod"])),
        ("version", json!(1)),
        ("panels", json!(1)),
        ("queries", json!(2)),
        ("created_by", me.clone()),
        ("updated_by", me),
        ("starred", json!(false)),
        ("provisioned", json!(false)),
        ("created_at", json!("2027-01-15T08:00:00Z")),
    ] {
        assert_eq!(value[field], expected, "{field}");
    }
    send(&server, "POST", DASHBOARDS, &ada, &body, None).await.is(409, "already_exists");
    let unchanged = ask("GET", &place("node"), &ada).header(header::IF_NONE_MATCH, "\"7\", W/\"1\"");
    let unchanged = server.send(unchanged.body(Body::empty()).expect("a request")).await;
    assert_eq!((unchanged.status.as_u16(), unchanged.body.as_str()), (304, ""));
    let other = ask("GET", &place("node"), &ada).header(header::IF_NONE_MATCH, "\"2\"");
    assert_eq!(server.send(other.body(Body::empty()).expect("a request")).await.status, 200);
    server.get(&place("none"), &ada).await.is(404, "not_found");
}

#[tokio::test]
async fn a_view_has_a_tag_and_nothing_is_shown_of_a_dashboard_that_is_missing() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    create(&server, &ada, json!({ "uid": "a", "title": "One" }), "").await;
    let path = format!("{}/view", place("a"));
    let shown = server.get(&path, &ada).await;
    assert_eq!((shown.status.as_u16(), shown.text("title")), (200, "One".to_owned()), "{}", shown.body);
    let known = ask("GET", &path, &ada).header(header::IF_NONE_MATCH, shown.header("etag"));
    let unchanged = server.send(known.body(Body::empty()).expect("a request")).await;
    assert_eq!((unchanged.status.as_u16(), unchanged.body.as_str()), (304, ""));
    server.get(&format!("{}/view", place("none")), &ada).await.is(404, "not_found");
    let query = json!([{ "id": "A", "panel": 1, "ref": "A", "type": "range" }]);
    let live = json!([{ "id": "A", "panel": 1, "ref": "A" }]);
    for (last, body) in [
        ("data", json!({ "queries": query })),
        ("live", json!({ "queries": live })),
        ("options", json!({ "variable": "job" })),
    ] {
        let path = format!("{}/{last}", place("none"));
        server.post(&path, &ada, body).await.is(404, "not_found");
    }
}

#[tokio::test]
async fn a_change_needs_the_version_that_it_replaces() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    create(&server, &ada, json!({ "uid": "a", "title": "One" }), "F").await;
    let second = json!({ "title": "Two" });
    let body = json!({ "dashboard": second }).to_string();
    send(&server, "PUT", &place("a"), &ada, &body, None).await.is(428, "precondition_required");
    for wrong in ["\"2\"", "\"0\"", "1", "W/\"1\"", "\"\"", "\"99999999999999999999\""] {
        let refused = put(&server, "a", &ada, second.clone(), wrong).await;
        refused.is(412, "version_conflict");
        assert_eq!(refused.value()["version"], 1, "{wrong}");
    }
    let stored = put(&server, "a", &ada, second.clone(), "\"1\"").await;
    assert_eq!((stored.status.as_u16(), stored.header("etag")), (200, "\"2\""), "{}", stored.body);
    assert_eq!((stored.text("title"), stored.text("folder")), ("Two".to_owned(), "F".to_owned()));
    put(&server, "a", &ada, second.clone(), "\"1\"").await.is(412, "version_conflict");
    assert_eq!(put(&server, "a", &ada, second.clone(), "*").await.header("etag"), "\"3\"");
    put(&server, "none", &ada, second.clone(), "*").await.is(404, "not_found");
    let other = put(&server, "a", &ada, json!({ "title": "T", "uid": "b" }), "*").await;
    other.is(422, "invalid_dashboard");
    assert_eq!(other.value()["errors"][0]["field"], "dashboard.uid");
    let moved = send(
        &server,
        "PUT",
        &place("a"),
        &ada,
        &json!({ "dashboard": second, "folder": "" }).to_string(),
        Some("*"),
    )
    .await;
    assert_eq!(moved.text("folder"), "");
    send(&server, "DELETE", &place("a"), &ada, "", Some("\"1\"")).await.is(412, "version_conflict");
    assert_eq!(send(&server, "DELETE", &place("a"), &ada, "", Some("\"4\"")).await.status, 204);
    server.delete(&place("a"), &ada).await.is(404, "not_found");
    server.get(&place("a"), &ada).await.is(404, "not_found");
    // A client that still has the old version overwrites nothing of a new dashboard.
    let again = create(&server, &ada, json!({ "uid": "a", "title": "Again" }), "").await;
    assert_eq!(again.header("etag"), "\"5\"");
}

#[tokio::test]
async fn the_newest_twenty_versions_are_kept_and_restored() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    create(&server, &ada, json!({ "uid": "a", "title": "v1", "n": 1 }), "").await;
    for n in 2..=23 {
        server.pass(Duration::from_millis(1));
        let body = json!({ "dashboard": { "title": format!("v{n}"), "n": n }, "message": format!("m{n}") });
        let stored = send(&server, "PUT", &place("a"), &ada, &body.to_string(), Some("*")).await;
        assert_eq!(stored.status, 200, "{}", stored.body);
    }
    let versions = format!("{}/versions", place("a"));
    let list = server.get(&versions, &ada).await.value();
    let rows = list["data"].as_array().expect("rows");
    let numbers: Vec<u64> = rows.iter().map(|row| row["version"].as_u64().expect("a number")).collect();
    assert_eq!(numbers, (4..=23).rev().collect::<Vec<u64>>());
    assert_eq!((&rows[0]["message"], &rows[0]["restored_from"]), (&json!("m23"), &Value::Null));
    let page = server.get(&format!("{versions}?limit=2"), &ada).await.value();
    let next = page["next_cursor"].as_str().expect("a cursor");
    let page = server.get(&format!("{versions}?limit=2&cursor={next}"), &ada).await.value();
    assert_eq!(page["data"][0]["version"], 21);
    server.get(&format!("{versions}?limit=0"), &ada).await.is(400, "invalid_parameter");
    server.get(&format!("{versions}?limit=1&limit=1"), &ada).await.is(400, "duplicate_parameter");
    let old = server.get(&format!("{versions}/4"), &ada).await;
    assert_eq!((old.value()["dashboard"]["n"].clone(), old.header("etag")), (json!(4), "\"4\""));
    for gone in ["3", "24", "0", "x", "-1"] {
        server.get(&format!("{versions}/{gone}"), &ada).await.is(404, "not_found");
    }
    server.get(&format!("{}/versions", place("b")), &ada).await.is(404, "not_found");
    let restore = async |version: &str, tag: Option<&str>| {
        send(&server, "POST", &format!("{versions}/{version}/restore"), &ada, "", tag).await
    };
    restore("4", None).await.is(428, "precondition_required");
    restore("4", Some("\"4\"")).await.is(412, "version_conflict");
    restore("3", Some("*")).await.is(404, "not_found");
    server.pass(Duration::from_millis(1));
    let restored = restore("4", Some("\"23\"")).await;
    assert_eq!((restored.status.as_u16(), restored.header("etag")), (200, "\"24\""), "{}", restored.body);
    let shown = server.get(&place("a"), &ada).await.value();
    assert_eq!((&shown["title"], &shown["dashboard"]["n"]), (&json!("v4"), &json!(4)));
    let list = server.get(&versions, &ada).await.value();
    assert_eq!(list["data"][0]["restored_from"], 4);
    let audit = server.get("/api/v1/orgs/acme/audit?action=dashboard.*", &ada).await.value();
    let entry = &audit["data"][0];
    assert_eq!(
        (&entry["action"], &entry["target"], &entry["meta"]),
        (&json!("dashboard.restored"), &json!("a"), &json!({ "detail": "version 24 from 4" })),
        "{entry}"
    );
    server.pass(Duration::from_millis(1));
    assert_eq!(server.delete(&place("a"), &ada).await.status, 204);
    let audit = server.get("/api/v1/orgs/acme/audit?action=dashboard.*", &ada).await.value();
    let actions: Vec<&str> =
        audit["data"].as_array().expect("rows").iter().filter_map(|row| row["action"].as_str()).collect();
    assert_eq!((actions.len(), actions[0], actions[2]), (25, "dashboard.deleted", "dashboard.updated"));
    assert_eq!(actions[24], "dashboard.created");
}

#[tokio::test]
async fn a_listing_is_filtered_and_paged() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    assert_eq!(server.get(DASHBOARDS, &ada).await.value(), json!({ "data": [], "next_cursor": null }));
    create(&server, &ada, json!({ "title": "beta", "tags": ["Linux"] }), "Infra/Kubernetes").await;
    create(&server, &ada, json!({ "title": "Alpha", "tags": ["db"] }), "Infra").await;
    create(&server, &ada, json!({ "title": "Gamma" }), "Infrared").await;
    create(&server, &ada, json!({ "title": "alpha" }), "").await;
    assert_eq!(titles(&server, &ada, "q=LINUX").await, ["beta"]);
    assert_eq!(titles(&server, &ada, "q=infra").await, ["Alpha", "beta", "Gamma"]);
    assert_eq!(titles(&server, &ada, "q=AMM").await, ["Gamma"]);
    assert_eq!(titles(&server, &ada, "tag=db").await, ["Alpha"]);
    assert!(titles(&server, &ada, "tag=d").await.is_empty());
    assert_eq!(titles(&server, &ada, "folder=Infra").await, ["Alpha", "beta"]);
    assert_eq!(titles(&server, &ada, "folder=Infra/&q=beta").await, ["beta"]);
    let first = server.get(&format!("{DASHBOARDS}?limit=3"), &ada).await.value();
    let next = first["next_cursor"].as_str().expect("a cursor");
    assert_eq!(titles(&server, &ada, &format!("limit=3&cursor={next}")).await, ["Gamma"]);
    for (query, code) in [
        ("limit=0", "invalid_parameter"),
        ("starred=maybe", "invalid_parameter"),
        ("q=a&q=b", "duplicate_parameter"),
    ] {
        server.get(&format!("{DASHBOARDS}?{query}"), &ada).await.is(400, code);
    }
    let generated = server.get(DASHBOARDS, &ada).await.value()["data"][0]["uid"].clone();
    let generated = generated.as_str().expect("a uid");
    assert!(generated.len() == 16 && generated.bytes().all(|b| b.is_ascii_alphanumeric()), "{generated}");
}

#[tokio::test]
async fn viewers_read_and_star_and_editors_write() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    let (viewer, _) = person(&server, "vera@example.com", Some(Role::Viewer));
    let (editor, _) = person(&server, "ed@example.com", Some(Role::Editor));
    create(&server, &editor, json!({ "uid": "a", "title": "A" }), "").await;
    server.post(DASHBOARDS, &viewer, json!({ "dashboard": { "title": "B" } })).await.is(403, "forbidden");
    put(&server, "a", &viewer, json!({ "title": "B" }), "*").await.is(403, "forbidden");
    server.delete(&place("a"), &viewer).await.is(403, "forbidden");
    let star = format!("{}/star", place("a"));
    let list = async |who: &Who| server.get(DASHBOARDS, who).await.value()["data"][0].clone();
    assert_eq!(list(&viewer).await["last_seen_at"], Value::Null);
    assert_eq!(server.get(&place("a"), &viewer).await.status, 200);
    for _ in 0..2 {
        assert_eq!(send(&server, "PUT", &star, &viewer, "", None).await.status, 204);
        let row = list(&viewer).await;
        assert_eq!((&row["starred"], &row["last_seen_at"]), (&json!(true), &json!("2027-01-15T08:00:00Z")));
    }
    let row = list(&ada).await;
    assert_eq!((&row["starred"], &row["last_seen_at"]), (&json!(false), &Value::Null), "of another member");
    assert_eq!(titles(&server, &viewer, "starred=true").await, ["A"]);
    assert!(titles(&server, &ada, "starred=1").await.is_empty());
    assert_eq!(titles(&server, &ada, "starred=false").await, ["A"]);
    assert_eq!(server.delete(&star, &viewer).await.status, 204);
    assert!(titles(&server, &viewer, "starred=true").await.is_empty());
    let none = format!("{}/star", place("none"));
    send(&server, "PUT", &none, &viewer, "", None).await.is(404, "not_found");
    server.delete(&none, &viewer).await.is(404, "not_found");
}

#[tokio::test]
async fn organisations_do_not_see_each_others_dashboards() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    let (bo, bo_id) = person(&server, "bo@example.com", None);
    let (new, now) =
        (NewOrg { slug: OrgSlug::parse("other").expect("a slug"), name: String::new() }, server.clock.now());
    let owner = server.get("/auth/me", &ada).await.value()["user"]["id"].as_str().expect("an id").parse();
    let owner = owner.expect("an id");
    let other = server.identity.create_org(owner, new, now, &mut Entropy::system()).expect("made").org;
    server.identity.add_member(other.id, bo_id, Role::Editor, now).expect("added");
    create(&server, &ada, json!({ "uid": "a", "title": "A" }), "").await;
    server.get(&place("a"), &bo).await.is(404, "org_not_found");
    let theirs = "/api/v1/orgs/other/dashboards";
    server.get(&format!("{theirs}/a"), &bo).await.is(404, "not_found");
    server.delete(&format!("{theirs}/a"), &bo).await.is(404, "not_found");
    assert_eq!(server.get(theirs, &bo).await.value()["data"], json!([]));
    let same = server.post(theirs, &bo, json!({ "dashboard": { "uid": "a", "title": "B" } })).await;
    assert_eq!(same.status, 201);
    assert_eq!(server.get(&place("a"), &ada).await.text("title"), "A");
}

#[tokio::test]
async fn a_document_beyond_a_limit_is_refused_with_the_limit() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    create(&server, &ada, json!({ "uid": "a", "title": "A" }), "").await;
    let noise = noise(400_000);
    let large = "x".repeat(1 << 20);
    let larger = "x".repeat(2 << 20);
    for (what, document, status, code) in [
        ("bytes", json!({ "title": "T", "x": large }), 413, "dashboard_too_large"),
        ("bytes of a body", json!({ "title": "T", "x": larger }), 413, "dashboard_too_large"),
        ("compressed bytes", json!({ "title": "T", "x": noise }), 413, "dashboard_too_large"),
        ("panels", json!({ "title": "T", "panels": vec![json!({}); 501] }), 422, "invalid_dashboard"),
        (
            "variables",
            json!({ "title": "T", "templating": { "list": vec![0; 51] } }),
            422,
            "invalid_dashboard",
        ),
        ("title", json!({ "title": "" }), 422, "invalid_dashboard"),
        ("uid", json!({ "title": "T", "uid": "a/b" }), 422, "invalid_dashboard"),
    ] {
        let body = json!({ "dashboard": document });
        let refused = server.post(DASHBOARDS, &ada, body).await;
        assert_eq!(refused.status, status, "{what}");
        refused.is(status, code);
        put(&server, "a", &ada, document, "*").await.is(status, code);
    }
    let announced = ask("POST", DASHBOARDS, &ada).header(header::CONTENT_LENGTH, (5 << 20).to_string());
    server.send(announced.body(Body::empty()).expect("a request")).await.is(413, "body_too_large");
    let deep = format!(r#"{{"dashboard":{{"title":"T","x":{}{}}}}}"#, "[".repeat(64), "]".repeat(64));
    let refused = send(&server, "POST", DASHBOARDS, &ada, &deep, None).await;
    refused.is(422, "invalid_dashboard");
    assert_eq!(
        (&refused.value()["limit"], &refused.value()["limit_of"]),
        (&json!(64), &json!("levels of nesting"))
    );
    let deep = format!(r#"{{"dashboard":{{"title":"T","x":{}{}}}}}"#, "[".repeat(63), "]".repeat(63));
    assert_eq!(send(&server, "POST", DASHBOARDS, &ada, &deep, None).await.status, 201);
    let bomb = format!(r#"{{"dashboard":{}"#, "[".repeat(500_000));
    send(&server, "POST", DASHBOARDS, &ada, &bomb, None).await.is(422, "invalid_dashboard");
    for (body, code) in [
        (json!({}), "validation_failed"),
        (json!({ "dashboard": { "title": "T" }, "overwrite": true }), "validation_failed"),
        (json!({ "dashboard": { "title": "T" }, "folder": "a".repeat(201) }), "invalid_dashboard"),
        (json!({ "dashboard": { "title": "T" }, "message": "a".repeat(201) }), "invalid_dashboard"),
        (json!({ "dashboard": null }), "invalid_dashboard"),
        (json!({ "dashboard": [1] }), "invalid_dashboard"),
    ] {
        server.post(DASHBOARDS, &ada, body).await.is(422, code);
    }
    let twice = r#"{"dashboard":{"title":"T","panels":[{"a":1,"a":2}]}}"#;
    send(&server, "POST", DASHBOARDS, &ada, twice, None).await.is(422, "validation_failed");
}

/// Text that compresses to half of its length.
fn noise(bytes: usize) -> String {
    let mut state = 1_u64;
    let mut text = String::new();
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{:08x}", state >> 32));
    }
    text
}

#[tokio::test]
async fn hostile_json_is_refused_or_returned_as_it_came() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    let post = async |document: &str| {
        let body = format!(r#"{{"dashboard":{document}}}"#);
        send(&server, "POST", DASHBOARDS, &ada, &body, None).await
    };
    // A member has one value: a browser would take the last one, the server perhaps another.
    let half = vec!["{}"; 501].join(",");
    let panel = format!(r#"{{"title":"A","panels":[{{"targets":[{half}],"targets":[{half}]}}]}}"#);
    for twice in [
        &*panel,
        r#"{"title":"A","title":"B"}"#,
        r#"{"title":"A","uid":"a","u\u0069d":"b"}"#,
        r#"{"title":"A","panels":[],"panels":[{}]}"#,
        r#"{"title":"A","templating":{"list":[],"list":[{}]}}"#,
    ] {
        let refused = post(twice).await;
        assert_eq!(refused.status, 422, "{twice}: {}", refused.body);
    }
    post(&format!(r#"{{"title":"A","a":{}"#, "[".repeat(1_000_000))).await.is(422, "invalid_dashboard");
    let arrays = format!("{}{}", "[".repeat(64), "]".repeat(64));
    post(&format!(r#"{{"title":"A","a":{arrays}}}"#)).await.is(422, "invalid_dashboard");
    assert_eq!(titles(&server, &ada, "").await, [""; 0], "nothing was stored");

    let digits = "9".repeat(300);
    let document = format!(r#"{{"uid":"big","title":"A","a":[1e-999999,-1E+300,{digits},"{{[\"["]}}"#);
    assert_eq!(post(&document).await.status, 201);
    let shown = server.get(&place("big"), &ada).await;
    assert!(shown.body.contains(&document), "{} bytes", shown.body.len());
}

#[tokio::test]
async fn variables_that_refer_to_each_other_are_refused_with_their_names() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    create(&server, &ada, json!({ "uid": "a", "title": "A" }), "").await;
    let query = |name: &str, query: &str| json!({ "name": name, "type": "query", "query": query });
    let list = [
        query("job", "label_values(up, job)"),
        query("host", "label_values(up{job=\"$job\", zone=~\"${zone:regex}\"}, host)"),
        query("zone", "label_values(up{host=\"[[host]]\"}, zone)"),
    ];
    let document = json!({ "title": "T", "templating": { "list": list } });
    for refused in [
        server.post(DASHBOARDS, &ada, json!({ "dashboard": document })).await,
        put(&server, "a", &ada, document.clone(), "*").await,
    ] {
        refused.is(422, "invalid_dashboard");
        assert_eq!(refused.value()["cycle"], json!(["host", "zone", "host"]));
        assert!(refused.text("detail").contains("host → zone → host"), "{}", refused.body);
    }
    assert_eq!(titles(&server, &ada, "").await, ["A"], "nothing was stored");
}

#[tokio::test]
async fn an_organisation_has_a_limit_of_dashboards() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    let (org, now) = (acme(&server), server.clock.now());
    for number in 0..500 {
        let new = write(format!(r#"{{"title":"{number}","uid":"u{number}"}}"#));
        server.identity.create_dashboard(org, None, new, now, &mut Entropy::system()).expect("made");
    }
    let more = json!({ "dashboard": { "title": "T" } });
    server.post(DASHBOARDS, &ada, more.clone()).await.is(409, "limit_reached");
    assert_eq!(server.get(DASHBOARDS, &ada).await.value()["data"].as_array().map(Vec::len), Some(500));
    assert_eq!(server.delete(&place("u7"), &ada).await.status, 204);
    assert_eq!(server.post(DASHBOARDS, &ada, more).await.status, 201);
}

#[tokio::test]
async fn an_organisation_has_a_limit_of_stored_bytes() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    let (org, now) = (acme(&server), server.clock.now());
    let text = format!(r#"{{"title":"T","x":"{}"}}"#, noise(370_000));
    let new = write(text);
    let mut stored = 0;
    'all: for _ in 0..10 {
        let made = server.identity.create_dashboard(org, None, new.clone(), now, &mut Entropy::system());
        let Ok(made) = made else { break 'all };
        stored += 1;
        for _ in 0..19 {
            let again = server.identity.update_dashboard(
                org,
                None,
                &made.uid,
                ExpectedVersion::Any,
                new.clone(),
                now,
            );
            if again.is_err() {
                break 'all;
            }
            stored += 1;
        }
    }
    assert!((85..120).contains(&stored), "{stored} versions of 140 to 190 KiB in 16 MiB");
    let body = json!({ "dashboard": { "title": "T", "x": noise(370_000) } });
    server.post(DASHBOARDS, &ada, body.clone()).await.is(409, "limit_reached");
    let list = server.get(DASHBOARDS, &ada).await.value();
    let last = list["data"].as_array().expect("rows").iter().min_by_key(|row| row["version"].as_u64());
    let last = last.expect("a row")["uid"].as_str().expect("a uid").to_owned();
    put(&server, &last, &ada, body["dashboard"].clone(), "*").await.is(409, "limit_reached");
    let restore = format!("{}/versions/1/restore", place(&last));
    send(&server, "POST", &restore, &ada, "", Some("*")).await.is(409, "limit_reached");
    // A new version of a dashboard with twenty replaces the oldest one.
    let full = list["data"].as_array().expect("rows").iter().max_by_key(|row| row["version"].as_u64());
    let full = full.expect("a row")["uid"].as_str().expect("a uid").to_owned();
    assert_eq!(put(&server, &full, &ada, json!({ "title": "short" }), "*").await.status, 200);
    // A deletion makes room at once.
    assert_eq!(server.delete(&place(&full), &ada).await.status, 204);
    assert_eq!(server.post(DASHBOARDS, &ada, body).await.status, 201);
}

#[tokio::test]
async fn an_organisation_stores_a_limited_number_of_versions_a_minute() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    create(&server, &ada, json!({ "uid": "a", "title": "A" }), "").await;
    let mut refused = None;
    for _ in 0..130 {
        server.pass(Duration::from_millis(20));
        let reply = put(&server, "a", &ada, json!({ "title": "A" }), "*").await;
        if reply.status != 200 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("a limit");
    refused.is(429, "rate_limited");
    assert_eq!((&refused.value()["scope"], &refused.value()["limit"]), (&json!("organisation"), &json!(120)));
    server.pass(Duration::from_secs(1));
    assert_eq!(put(&server, "a", &ada, json!({ "title": "A" }), "*").await.status, 200);
}

/// Provides files with the uids `p0`, `p1` and so on.
fn provide(server: &TestServer, count: usize) {
    let file = |number: usize| {
        let text = format!(r#"{{"title":"File {number}", "n":1.50}}"#);
        let document = DashboardDocument::parse(text).expect("a dashboard");
        let uid = format!("p{number}");
        let made = ProvisionedDashboard::new(uid.clone(), &document, "Files".into(), server.clock.now());
        (uid, Arc::new(made))
    };
    server.identity.set_provisioned_dashboards((0..count).map(file).collect::<BTreeMap<_, _>>());
}

#[tokio::test]
async fn provisioned_dashboards_are_read_only_for_every_organisation() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    create(&server, &ada, json!({ "uid": "p1", "title": "Own" }), "").await;
    provide(&server, 2);
    assert_eq!(titles(&server, &ada, "").await, ["File 0", "Own"], "a stored one hides a file");
    let shown = server.get(&place("p0"), &ada).await;
    assert!(shown.body.contains(r#""dashboard":{"title":"File 0", "n":1.50}"#), "{}", shown.body);
    let value = shown.value();
    assert_eq!((&value["provisioned"], &value["version"]), (&json!(true), &json!(0)));
    let tag = shown.header("etag").to_owned();
    let again = ask("GET", &place("p0"), &ada).header(header::IF_NONE_MATCH, &tag);
    assert_eq!(server.send(again.body(Body::empty()).expect("a request")).await.status, 304);
    assert_eq!(server.get(&format!("{}/versions", place("p0")), &ada).await.value()["data"], json!([]));
    server.get(&format!("{}/versions/0", place("p0")), &ada).await.is(404, "not_found");
    put(&server, "p0", &ada, json!({ "title": "B" }), "*").await.is(409, "provisioned");
    server.delete(&place("p0"), &ada).await.is(409, "provisioned");
    let new = json!({ "dashboard": { "uid": "p0", "title": "B" } });
    server.post(DASHBOARDS, &ada, new).await.is(409, "provisioned");
    let restore = format!("{}/versions/1/restore", place("p0"));
    send(&server, "POST", &restore, &ada, "", Some("*")).await.is(409, "provisioned");
    assert_eq!(send(&server, "PUT", &format!("{}/star", place("p0")), &ada, "", None).await.status, 204);
    assert_eq!(titles(&server, &ada, "starred=true").await, ["File 0"]);
    assert_eq!(put(&server, "p1", &ada, json!({ "title": "Own 2" }), "*").await.status, 200);
}

#[tokio::test]
async fn an_account_stars_a_limited_number_of_dashboards() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    provide(&server, 201);
    let user = server.get("/auth/me", &ada).await.value()["user"]["id"].as_str().expect("an id").parse();
    let (org, user) = (acme(&server), user.expect("an id"));
    for number in 0..200 {
        server.identity.star_dashboard(org, user, &format!("p{number}"), true).expect("starred");
    }
    let star = format!("{}/star", place("p200"));
    send(&server, "PUT", &star, &ada, "", None).await.is(409, "limit_reached");
    provide(&server, 199);
    // Stars of dashboards that no longer exist make room.
    create(&server, &ada, json!({ "uid": "own", "title": "Own" }), "").await;
    assert_eq!(send(&server, "PUT", &format!("{}/star", place("own")), &ada, "", None).await.status, 204);
    assert_eq!(titles(&server, &ada, "starred=true").await.len(), 200);
}
