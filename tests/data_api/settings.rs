//! docs/specification.md C3: an organisation's limits hold at once, and after a start.

use promlet::api::orgs::settings::apply_settings;
use promlet::model::{BatchBuilder, Labels, OrgId, Sample};
use promlet::tsdb::{Options, Tsdb};
use serde_json::{Value, json};

use crate::wire::{NOW, Stage, encode, post_block, snappy};

async fn set(stage: &Stage, settings: Value) {
    let reply = stage
        .server
        .json("PATCH", "/api/v1/orgs/acme", &stage.cabinet, json!({ "settings": settings }))
        .await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

/// The status that one sample gets.
async fn write(stage: &Stage, labels: &[(&str, &str)], age_s: i64) -> u16 {
    let block = snappy(&encode(&[(labels, &[((NOW - age_s) * 1_000, 1.0)])]));
    post_block(&stage.server, &stage.agent, block).await.status.as_u16()
}

#[tokio::test]
async fn what_may_be_written_changes_at_once() {
    let stage = Stage::with_shop().await;
    let (first, other) = ([("__name__", "first")], [("__name__", "other"), ("label", "a long value")]);
    assert_eq!(write(&stage, &first, 200_000).await, 204);
    set(&stage, json!({ "max_series": 6 })).await;
    assert_eq!((write(&stage, &other, 10).await, write(&stage, &first, 10).await), (400, 204));
    set(&stage, json!({ "max_series": null, "max_labels": 1 })).await;
    assert_eq!(write(&stage, &other, 10).await, 400);
    set(&stage, json!({ "max_labels": null, "max_label_value_bytes": 8 })).await;
    assert_eq!(write(&stage, &other, 10).await, 400);
    set(&stage, json!({ "max_label_value_bytes": "none", "retention_days": 1 })).await;
    assert_eq!((write(&stage, &other, 86_401).await, write(&stage, &other, 10).await), (400, 204));
}

#[tokio::test]
async fn what_a_question_may_read_changes_at_once_for_every_kind_of_reader() {
    let stage = Stage::with_shop().await;
    let token = stage.embed(json!({})).await;
    let question = "query/expr-instant?expr=count_over_time(up%5B5m%5D)";
    set(&stage, json!({ "max_samples_per_query": 5 })).await;
    for who in [&stage.cabinet, &token] {
        stage.get_as(who, question).await.is(422, "query_too_expensive");
    }
    set(&stage, json!({ "max_samples_per_query": null })).await;
    for who in [&stage.cabinet, &token] {
        assert_eq!(stage.get_as(who, question).await.status, 200);
    }
}

#[tokio::test]
async fn stored_settings_hold_in_a_store_that_was_just_opened() {
    let stage = Stage::new().await;
    set(&stage, json!({ "max_series": 1 })).await;
    let tsdb = Tsdb::in_memory(Options::default(), [0; 32]);
    apply_settings(&stage.server.identity, &tsdb).expect("read");
    let now = stage.server.clock.now();
    let mut batch = BatchBuilder::default();
    for name in ["a", "b"] {
        batch.series(&Labels::from_pairs([("__name__", name)]), [Sample { at: now, value: 1.0 }]);
    }
    let report = tsdb.append(OrgId(1), &batch.batch(), now).expect("taken");
    assert_eq!((report.stored, report.refused), (1, 1));
}
