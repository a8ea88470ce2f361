//! Demo data for an organisation (docs/specification.md C7): the generated shop, its limits and its
//! callers.

use std::time::Duration;

use promlet::identity::Role;
use promlet::model::OrgId;
use serde_json::json;

use crate::members::person;
use crate::test_server::{Reply, TestServer, Who};
use crate::wire::{DataFixture, NOW, escaped};

const PATH: &str = "/api/v1/orgs/acme/demo-data";
/// The samples of six hours: 1,441 scrapes of 273 series.
const SAMPLES: u64 = 1_441 * 273;
/// The samples of one of its metrics, which has 180 series.
const BUCKETS: &str = "sum(count_over_time(shop_http_request_duration_seconds_bucket[7h]))";
const BUCKET_SAMPLES: u64 = 1_441 * 180;

async fn load(server: &TestServer, who: &Who) -> Reply {
    server.post(PATH, who, json!({})).await
}

async fn count(fixture: &DataFixture, expr: &str) -> u64 {
    let reply = fixture.get(&format!("query/expr-instant?expr={}", escaped(expr))).await;
    let value = reply.value();
    let text = value["data"]["result"][0]["value"][1].as_str().unwrap_or("0").to_owned();
    text.parse().expect("a whole number")
}

#[tokio::test]
async fn an_editor_loads_six_hours_of_the_shop_and_the_audit_log_names_the_editor() {
    let fixture = DataFixture::new().await;
    // Samples of its own do not make the history late.
    fixture.write(&[(&[("__name__", "up"), ("job", "api")], &[(NOW * 1_000, 1.0)])]).await;
    let (editor, id) = person(&fixture.server, "bo@example.com", Some(Role::Editor));
    fixture.server.pass(Duration::from_secs(1));
    let reply = load(&fixture.server, &editor).await;
    assert_eq!((reply.status.as_u16(), &reply.value()["samples"]), (200, &json!(SAMPLES)), "{}", reply.body);
    assert_eq!(count(&fixture, BUCKETS).await, BUCKET_SAMPLES);
    assert_eq!(count(&fixture, "count(shop_http_requests_total)").await, 45, "up to now");
    let audit = fixture.server.identity.audit(Some(OrgId(1)), 1).expect("read");
    assert_eq!((audit[0].action.as_str(), audit[0].actor), ("demo_data.loaded", Some(id)));
    load(&fixture.server, &fixture.cabinet).await.is(409, "already_exists");
    assert_eq!(count(&fixture, BUCKETS).await, BUCKET_SAMPLES);
    assert_eq!(fixture.server.identity.audit(Some(OrgId(1)), 1).expect("read")[0].id, audit[0].id);
}

#[tokio::test]
async fn demo_data_never_mixes_with_metrics_of_the_same_prefix() {
    let fixture = DataFixture::new().await;
    fixture.write(&[(&[("__name__", "shop_visitors")], &[(NOW * 1_000, 1.0)])]).await;
    let reply = load(&fixture.server, &fixture.cabinet).await;
    reply.is(409, "already_exists");
    assert!(reply.body.contains("shop_"), "{}", reply.body);
    assert_eq!(count(&fixture, "count({__name__=~\".+\"})").await, 1);
}

#[tokio::test]
async fn viewers_api_keys_and_strangers_load_no_demo_data() {
    let fixture = DataFixture::new().await;
    let (viewer, _) = person(&fixture.server, "bo@example.com", Some(Role::Viewer));
    load(&fixture.server, &viewer).await.is(403, "forbidden");
    load(&fixture.server, &fixture.agent).await.is(401, "session_required");
    load(&fixture.server, &Who::Nobody).await.is(401, "unauthenticated");
    let other = fixture.server.post("/api/v1/orgs/other/demo-data", &fixture.cabinet, json!({})).await;
    other.is(404, "org_not_found");
    assert_eq!(count(&fixture, "count({__name__=~\".+\"})").await, 0);
}

#[tokio::test]
async fn two_requests_at_once_store_the_demo_data_once() {
    let fixture = DataFixture::new().await;
    let (one, two) =
        tokio::join!(load(&fixture.server, &fixture.cabinet), load(&fixture.server, &fixture.cabinet));
    let (stored, refused) = if one.status == 200 { (one, two) } else { (two, one) };
    assert_eq!(stored.status, 200, "{}", stored.body);
    refused.is(409, "conflict");
    assert_eq!(count(&fixture, BUCKETS).await, BUCKET_SAMPLES);
}

#[tokio::test]
async fn the_limits_of_the_organisation_hold_for_demo_data() {
    let fixture = DataFixture::new().await;
    let set = async |settings: serde_json::Value| {
        let body = json!({ "settings": settings });
        let reply = fixture.server.json("PATCH", "/api/v1/orgs/acme", &fixture.cabinet, body).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    };
    set(json!({ "max_series": 10 })).await;
    let reply = load(&fixture.server, &fixture.cabinet).await;
    reply.is(400, "bad_request");
    assert_eq!((&reply.value()["stored"], &reply.value()["refused"]), (&json!(10), &json!(263)));
    let rejects = fixture.get("ingest/rejects").await.value();
    assert_eq!(rejects["data"][0]["code"], "series_limit");
    assert_eq!(rejects["data"][0]["sender"]["type"], "user");
    // No more than the first scrape was tried.
    assert_eq!(rejects["refused"]["series_limit"], 263);
}

#[tokio::test]
async fn an_organisation_without_disk_space_gets_no_demo_data() {
    let fixture = DataFixture::new().await;
    let body = json!({ "settings": { "max_disk_bytes": 1 << 20 } });
    let set = fixture.server.json("PATCH", "/api/v1/orgs/acme", &fixture.cabinet, body).await;
    assert_eq!(set.status, 200, "{}", set.body);
    let long: Vec<String> = (0..400).map(|n| format!("{n}{}", "x".repeat(4_000))).collect();
    let labels: Vec<_> = long.iter().map(|text| [("__name__", "wide"), ("x", text.as_str())]).collect();
    let sample = [(NOW * 1_000, 1.0)];
    fixture.write(&labels.iter().map(|labels| (&labels[..], &sample[..])).collect::<Vec<_>>()).await;
    load(&fixture.server, &fixture.cabinet).await.is(503, "at_capacity");
    assert_eq!(count(&fixture, "count({__name__=~\"shop_.*\"})").await, 0);
}

#[tokio::test]
async fn the_built_in_dashboards_are_files_of_the_ui_and_stored_under_their_uids() {
    let fixture = DataFixture::new().await;
    for (file, uid) in [("host", "promlet-host"), ("promlet", "promlet-self"), ("shop", "promlet-shop")] {
        let asset = promlet::ui::file(&format!("/dashboards/{file}.json")).expect("a file");
        assert_eq!(asset.content_type, "application/json");
        let dashboard: serde_json::Value = serde_json::from_slice(&asset.bytes).expect("JSON");
        let body = json!({ "dashboard": dashboard });
        let made = fixture.server.post("/api/v1/orgs/acme/dashboards", &fixture.cabinet, body.clone()).await;
        assert_eq!((made.status.as_u16(), made.text("uid").as_str()), (201, uid), "{}", made.body);
        let again = fixture.server.post("/api/v1/orgs/acme/dashboards", &fixture.cabinet, body).await;
        again.is(409, "already_exists");
    }
}
