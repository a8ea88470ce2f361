//! The settings of an organisation apply at once, and after a start (docs/specification.md C3).

use promlet::api::orgs::settings::apply_settings;
use promlet::model::{BatchBuilder, Labels, OrgId, Sample};
use promlet::tsdb::{Options, Tsdb};
use serde_json::{Value, json};

use crate::wire::{DataFixture, NOW, encode, post_block, snappy};

async fn set(fixture: &DataFixture, settings: Value) {
    let reply = fixture
        .server
        .json("PATCH", "/api/v1/orgs/acme", &fixture.cabinet, json!({ "settings": settings }))
        .await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

/// Writes one sample, and returns the status.
async fn write(fixture: &DataFixture, labels: &[(&str, &str)], age_s: i64) -> u16 {
    let block = snappy(&encode(&[(labels, &[((NOW - age_s) * 1_000, 1.0)])]));
    post_block(&fixture.server, &fixture.agent, block).await.status.as_u16()
}

#[tokio::test]
async fn changed_limits_of_writes_apply_at_once() {
    let fixture = DataFixture::with_shop().await;
    let (first, other) = ([("__name__", "first")], [("__name__", "other"), ("label", "a long value")]);
    assert_eq!(write(&fixture, &first, 200_000).await, 204);
    set(&fixture, json!({ "max_series": 6 })).await;
    assert_eq!((write(&fixture, &other, 10).await, write(&fixture, &first, 10).await), (400, 204));
    set(&fixture, json!({ "max_series": null, "max_labels": 1 })).await;
    assert_eq!(write(&fixture, &other, 10).await, 400);
    set(&fixture, json!({ "max_labels": null, "max_label_value_bytes": 8 })).await;
    assert_eq!(write(&fixture, &other, 10).await, 400);
    set(&fixture, json!({ "max_label_value_bytes": "none", "retention_days": 1 })).await;
    assert_eq!((write(&fixture, &other, 86_401).await, write(&fixture, &other, 10).await), (400, 204));
}

#[tokio::test]
async fn changed_limits_of_queries_apply_at_once_to_sessions_and_tokens() {
    let fixture = DataFixture::with_shop().await;
    let token = fixture.embed(json!({})).await;
    let query = "query/expr-instant?expr=count_over_time(up%5B5m%5D)";
    set(&fixture, json!({ "max_samples_per_query": 5 })).await;
    for who in [&fixture.cabinet, &token] {
        fixture.get_as(who, query).await.is(422, "query_too_expensive");
    }
    set(&fixture, json!({ "max_samples_per_query": null })).await;
    for who in [&fixture.cabinet, &token] {
        assert_eq!(fixture.get_as(who, query).await.status, 200);
    }
}

#[tokio::test]
async fn stored_settings_apply_to_a_newly_opened_store() {
    let fixture = DataFixture::new().await;
    set(&fixture, json!({ "max_series": 1 })).await;
    let tsdb = Tsdb::in_memory(Options::default(), [0; 32]);
    apply_settings(&fixture.server.identity, &tsdb).expect("read");
    let now = fixture.server.clock.now();
    let mut batch = BatchBuilder::default();
    for name in ["a", "b"] {
        batch.series(&Labels::from_pairs([("__name__", name)]), [Sample { at: now, value: 1.0 }]);
    }
    let report = tsdb.append(OrgId(1), &batch.batch(), now).expect("taken");
    assert_eq!((report.stored, report.refused), (1, 1));
}
