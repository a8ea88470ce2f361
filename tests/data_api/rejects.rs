//! The limits of an organisation's samples, and the list of refusals for its senders
//! (docs/specification.md C3, C7, C8).

use std::time::Duration;

use axum::body::Body;
use serde_json::{Value, json};

use crate::test_server::{Reply, Who, ask};
use crate::wire::{DataFixture, NOW, encode, post_block, snappy};

async fn set(fixture: &DataFixture, org: &str, settings: Value) {
    let path = format!("/api/v1/orgs/{org}");
    let reply = fixture.server.json("PATCH", &path, &fixture.cabinet, json!({ "settings": settings })).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

/// Encodes a request with one sample, `age_s` old, of each of these metrics.
fn block(names: &[&str], age_s: i64) -> Vec<u8> {
    let labels: Vec<[(&str, &str); 1]> = names.iter().map(|name| [("__name__", *name)]).collect();
    let sample = [((NOW - age_s) * 1_000, 1.0)];
    let series: Vec<_> = labels.iter().map(|labels| (&labels[..], &sample[..])).collect();
    snappy(&encode(&series))
}

async fn write(fixture: &DataFixture, names: &[&str], age_s: i64) -> Reply {
    post_block(&fixture.server, &fixture.agent, block(names, age_s)).await
}

async fn rejects(fixture: &DataFixture) -> Value {
    let reply = fixture.get("ingest/rejects").await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.value()
}

/// Creates a second organisation, and returns an ingest key of it.
async fn other_org(fixture: &DataFixture) -> Who {
    let made = fixture.server.post("/api/v1/orgs", &fixture.cabinet, json!({ "slug": "shop" })).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let body = json!({ "name": "shop", "scopes": ["ingest"] });
    let key = fixture.server.post("/api/v1/orgs/shop/api-keys", &fixture.cabinet, body).await;
    assert_eq!(key.status, 201, "{}", key.body);
    Who::Bearer(key.text("secret"))
}

async fn write_to(fixture: &DataFixture, org: &str, who: &Who, block: Vec<u8>) -> Reply {
    let request = ask("POST", &format!("/api/v1/orgs/{org}/write"), who).body(Body::from(block));
    fixture.server.send(request.expect("a request")).await
}

/// So the operator of a sender can find the reason of missing samples without an account.
#[tokio::test]
async fn an_api_key_lists_only_the_refusals_of_its_own_samples() {
    let fixture = DataFixture::new().await;
    let (_, other) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["ingest"] })).await;
    let other = Who::Bearer(other);
    set(&fixture, "acme", json!({ "max_series": 1 })).await;
    assert_eq!(write(&fixture, &["known"], 0).await.status, 204);
    assert_eq!(write(&fixture, &["mine"], 0).await.status, 400);
    assert_eq!(write_to(&fixture, "acme", &other, block(&["theirs"], 0)).await.status, 400);
    let path = "/api/v1/orgs/acme/ingest/rejects";
    let names = |reply: Reply| -> Vec<String> {
        assert_eq!(reply.status, 200, "{}", reply.body);
        let rows = reply.value()["data"].as_array().expect("rows").clone();
        rows.iter().map(|row| row["series"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(names(fixture.server.get(path, &fixture.agent).await).len(), 1);
    assert!(names(fixture.server.get(path, &fixture.agent).await)[0].contains("mine"));
    assert!(names(fixture.server.get(path, &other).await)[0].contains("theirs"));
    assert_eq!(names(fixture.server.get(path, &fixture.cabinet).await).len(), 2);
    let (_, reader) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["read"] })).await;
    fixture.server.get(path, &Who::Bearer(reader)).await.is(403, "forbidden");
    let other_org = other_org(&fixture).await;
    fixture.server.get(path, &other_org).await.is(403, "org_mismatch");
}

#[tokio::test]
async fn samples_beyond_a_limit_are_refused_by_its_name_and_the_others_are_stored() {
    let fixture = DataFixture::new().await;
    assert_eq!(write(&fixture, &["known"], 0).await.status, 204);
    let cases = [
        (json!({ "max_series": 1 }), "a", 0, "series_limit"),
        (json!({ "max_new_series_per_s": 1, "max_series": null }), "", 0, "new_series_rate"),
        (json!({ "max_new_series_per_s": null, "ooo_window_s": 60 }), "b", 161, "too_late"),
        (json!({ "ooo_window_s": null, "retention_days": 1 }), "b", 86_410, "too_old"),
    ];
    for (settings, name, age_s, code) in cases {
        set(&fixture, "acme", settings.clone()).await;
        // The token bucket of new series holds ten tokens.
        let names: Vec<String> = (0..11).map(|n| format!("new_{n}")).collect();
        let names: Vec<&str> =
            if name.is_empty() { names.iter().map(String::as_str).collect() } else { vec![name] };
        let reply = write(&fixture, &names, age_s).await;
        reply.is(400, "bad_request");
        assert_eq!(reply.value()["errors"][0]["code"], code, "{settings}: {}", reply.body);
        assert_eq!(reply.value()["stored"], names.len() - 1, "{settings}");
        assert_eq!(write(&fixture, &["known"], 0).await.status, 204, "{settings}");
        fixture.server.pass(Duration::from_secs(1));
    }
    let listed = rejects(&fixture).await;
    let codes: Vec<&str> =
        listed["data"].as_array().expect("rows").iter().filter_map(|row| row["code"].as_str()).collect();
    assert_eq!(codes, ["too_old", "too_late", "new_series_rate", "series_limit"]);
    assert_eq!(
        listed["refused"],
        json!({ "series_limit": 1, "new_series_rate": 1, "too_late": 1, "too_old": 1 })
    );
    let own = fixture.server.get("/metrics", &Who::Nobody).await.body;
    for line in [
        "promlet_org_refused_samples_total{org=\"acme\",reason=\"series_limit\"} 1",
        "promlet_org_series{org=\"acme\"} 11",
    ] {
        assert!(own.lines().any(|found| found == line), "{line} in {own}");
    }
}

#[tokio::test]
async fn a_refusal_is_listed_with_its_series_reason_and_sender() {
    let fixture = DataFixture::new().await;
    assert_eq!(rejects(&fixture).await, json!({ "data": [], "refused": {} }));
    for _ in 0..2 {
        write(&fixture, &["late"], -3_600).await.is(400, "bad_request");
        fixture.server.pass(Duration::from_secs(5));
    }
    let nonsense = write_to(&fixture, "acme", &fixture.cabinet, vec![1, 2, 3]).await;
    nonsense.is(400, "bad_request");
    let listed = rejects(&fixture).await;
    let (whole, early) = (&listed["data"][0], &listed["data"][1]);
    assert_eq!((&whole["series"], &whole["code"]), (&Value::Null, &json!("bad_request")), "{listed}");
    assert_eq!(whole["sender"]["type"], "user");
    assert_eq!(
        (&early["series"], &early["code"], &early["count"]),
        (&json!(r#"{__name__="late"}"#), &json!("too_far_in_future"), &json!(2))
    );
    assert!(early["reason"].as_str().expect("a text").contains("ahead of the clock"), "{early}");
    let at = |seconds: i64| json!(promlet::model::Timestamp::from_s(NOW + seconds).to_rfc3339());
    assert_eq!((&early["first_at"], &early["at"]), (&at(0), &at(5)));
    assert_eq!((&early["sender"]["type"], &early["sender"]["name"]), (&json!("api_key"), &json!("test")));
    assert!(early["sender"]["id"].as_str().expect("an id").starts_with("ak_"));
    let path = "/api/v1/orgs/acme/ingest/rejects";
    assert_eq!(fixture.server.get(path, &fixture.agent).await.status, 200, "a key sees its own refusals");
    fixture.server.get(path, &Who::Nobody).await.is(401, "unauthenticated");
    fixture.server.get("/api/v1/orgs/other/ingest/rejects", &fixture.cabinet).await.is(404, "org_not_found");
}

#[tokio::test]
async fn an_organisation_at_capacity_is_told_to_retry_and_others_are_not_affected() {
    let fixture = DataFixture::new().await;
    let other = other_org(&fixture).await;
    let long = "x".repeat(4_000);
    let wide: Vec<String> = (0..400).map(|n| format!("{n}{long}")).collect();
    let fill = |from: usize| {
        let labels: Vec<[(&str, &str); 2]> =
            wide[from..from + 100].iter().map(|text| [("__name__", "wide"), ("x", text.as_str())]).collect();
        let sample = [(NOW * 1_000, 1.0)];
        let series: Vec<_> = labels.iter().map(|labels| (&labels[..], &sample[..])).collect();
        snappy(&encode(&series))
    };
    for (setting, limit) in [("max_disk_bytes", "disk_limit"), ("max_memory_bytes", "memory_limit")] {
        set(&fixture, "acme", json!({ setting: 1 << 20 })).await;
        let mut refused = None;
        for from in [0, 100, 200, 300] {
            let reply = post_block(&fixture.server, &fixture.agent, fill(from)).await;
            if reply.status == 503 {
                refused = Some(reply);
                break;
            }
        }
        let reply = refused.expect("1.6 MB exceed 1 MiB");
        reply.is(503, "at_capacity");
        assert_eq!(reply.value()["limit"], setting);
        assert!((1..=10).contains(&reply.header("retry-after").parse::<u64>().expect("seconds")));
        assert_eq!(write_to(&fixture, "shop", &other, block(&["up"], 0)).await.status, 204, "{setting}");
        assert_eq!(
            fixture.get("query/expr-instant?expr=count(wide)").await.status,
            200,
            "queries still work"
        );
        let listed = rejects(&fixture).await;
        assert_eq!(
            (&listed["data"][0]["code"], &listed["data"][0]["series"]),
            (&json!("at_capacity"), &Value::Null)
        );
        assert!(listed["refused"][limit].as_u64().expect("counted") >= 1, "{listed}");
        set(&fixture, "acme", json!({ setting: null })).await;
        assert_eq!(write(&fixture, &["up"], 0).await.status, 204, "{setting}");
    }
    let usage = fixture.server.get("/api/v1/orgs/acme", &fixture.cabinet).await.value()["usage"].clone();
    assert!(usage["bytes"].as_u64().expect("bytes") > 1 << 20, "{usage}");
    assert!(usage["memory_bytes"].as_u64().expect("bytes") > 1 << 20, "{usage}");
    assert!(usage["samples_today"].as_u64().expect("samples") > 200, "{usage}");
}

#[tokio::test]
async fn administrators_can_lower_every_setting_and_invalid_values_are_refused() {
    let fixture = DataFixture::new().await;
    let all = json!({ "retention_days": 30, "retention_bytes": 1 << 30, "max_series": 1_000, "max_new_series_per_s": 10,
        "max_labels": 20, "max_label_value_bytes": 100, "max_disk_bytes": 1i64 << 31, "max_memory_bytes": 1 << 28,
        "max_samples_per_query": 1_000, "query_timeout_s": 5, "ooo_window_s": 0, "public_links": true });
    set(&fixture, "acme", all.clone()).await;
    let shown = fixture.server.get("/api/v1/orgs/acme", &fixture.cabinet).await.value();
    assert_eq!(shown["settings"], all);
    let path = "/api/v1/orgs/acme";
    for (setting, wrong) in [
        ("max_disk_bytes", json!(1_000)),
        ("max_memory_bytes", json!((1 << 20) - 1)),
        ("retention_bytes", json!(0)),
        ("retention_days", json!(0)),
        ("retention_days", json!(100_001)),
        ("max_new_series_per_s", json!(0)),
        ("max_new_series_per_s", json!(4_294_967_296u64)),
        ("ooo_window_s", json!(-1)),
    ] {
        let reply = fixture
            .server
            .json("PATCH", path, &fixture.cabinet, json!({ "settings": { setting: wrong } }))
            .await;
        reply.is(422, "validation_failed");
        assert_eq!(reply.value()["errors"][0]["field"], format!("settings.{setting}"));
    }
    assert_eq!(fixture.server.get(path, &fixture.cabinet).await.value()["settings"], all);
}
