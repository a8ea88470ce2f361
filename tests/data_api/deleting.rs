//! docs/specification.md C6: `admin/tsdb/delete_series`, and who may.

use axum::body::Body;
use serde_json::{Value, json};

use crate::test_server::{Reply, Who, ask};
use crate::wire::{NOW, Stage, escaped};

const PATH: &str = "/api/v1/orgs/acme/prometheus/api/v1/admin/tsdb/delete_series";

async fn delete(stage: &Stage, who: &Who, form: &str) -> Reply {
    let request = ask("POST", PATH, who).header("content-type", "application/x-www-form-urlencoded");
    stage.server.send(request.body(Body::from(form.to_owned())).expect("a request")).await
}

/// Series and samples of the last hour.
async fn count(stage: &Stage, selector: &str) -> (usize, u64) {
    let expr = escaped(&format!("count_over_time({selector}[1h])"));
    let reply = stage.get(&format!("query/expr-instant?expr={expr}")).await;
    let value = reply.value();
    let found = value["data"]["result"].as_array().expect("a list");
    let samples = |row: &Value| row["value"][1].as_str().and_then(|text| text.parse::<u64>().ok());
    (found.len(), found.iter().filter_map(samples).sum())
}

#[tokio::test]
async fn samples_of_the_range_go_and_nothing_else() {
    let stage = Stage::with_shop().await;
    assert_eq!(count(&stage, "{job=~\".+\"}").await, (5, 5 * 61));
    // In the form, both ends in: 5 of 61 samples.
    let form = format!("match[]={}&start={}&end={}", escaped("up{job=\"api\"}"), NOW - 60, NOW);
    let reply = delete(&stage, &stage.cabinet, &form).await;
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (204, ""));
    assert_eq!(count(&stage, "up").await, (2, 56 + 61));
    // In the URL, several selectors, all of time.
    let query = format!("match[]={}&match[]={}", escaped("{tenant=\"b\"}"), escaped("up{job=\"web\"}"));
    let request =
        ask("POST", &format!("{PATH}?{query}"), &stage.cabinet).body(Body::empty()).expect("a request");
    assert_eq!(stage.server.send(request).await.status, 204);
    assert_eq!(count(&stage, "{job=~\".+\"}").await, (3, 56 + 2 * 61));
    let labels = stage.get("labels/tenant/values").await.value();
    assert_eq!(labels["data"], json!(["a"]), "what has no samples left is listed no more");
    // What comes later is new.
    stage.write(&[(&[("__name__", "up"), ("job", "web")], &[(NOW * 1_000, 5.0)])]).await;
    assert_eq!(count(&stage, "up{job=\"web\"}").await, (1, 1));
}

#[tokio::test]
async fn administrators_alone_delete_and_only_what_they_name() {
    let stage = Stage::with_shop().await;
    let (_, secret) = stage.server.key(&stage.cabinet, json!({ "scopes": ["read", "ingest"] })).await;
    let token = stage.embed(json!({})).await;
    for who in [Who::Nobody, Who::Bearer(secret), token] {
        assert_eq!(delete(&stage, &who, "match[]=up").await.status, 401, "{who:?}");
    }
    for (form, words) in [
        ("", "no match[] parameter provided"),
        ("match[]=up{", "parse error"),
        ("match[]={}", "matcher"),
        ("match[]=up&start=2&end=1", "before start"),
        ("match[]=up&start=x", "start"),
    ] {
        let reply = delete(&stage, &stage.cabinet, form).await;
        assert_eq!((reply.status.as_u16(), reply.text("errorType")), (400, "bad_data".into()), "{form}");
        assert!(reply.text("error").contains(words), "{form}: {}", reply.body);
    }
    let other =
        ask("POST", &PATH.replace("acme", "other"), &stage.cabinet).body(Body::empty()).expect("a request");
    assert_eq!(stage.server.send(other).await.status, 404);
    assert_eq!(count(&stage, "{job=~\".+\"}").await.0, 5);
    assert!(
        stage
            .server
            .identity
            .audit(Some(promlet::model::OrgId(1)), 10)
            .expect("read")
            .iter()
            .all(|e| e.action != "series.deleted")
    );
    stage.server.pass(std::time::Duration::from_secs(1));
    assert_eq!(delete(&stage, &stage.cabinet, "match[]=up").await.status, 204);
    let audit = stage.server.identity.audit(Some(promlet::model::OrgId(1)), 1).expect("read");
    assert_eq!((audit[0].action.as_str(), audit[0].detail.as_str()), ("series.deleted", "up"));
}
