//! The deletion of samples with `admin/tsdb/delete_series` (docs/specification.md C6), and its
//! callers.

use axum::body::Body;
use serde_json::{Value, json};

use crate::test_server::{Reply, Who, ask};
use crate::wire::{DataFixture, NOW, escaped};

const PATH: &str = "/api/v1/orgs/acme/prometheus/api/v1/admin/tsdb/delete_series";

async fn delete(fixture: &DataFixture, who: &Who, form: &str) -> Reply {
    let request = ask("POST", PATH, who).header("content-type", "application/x-www-form-urlencoded");
    fixture.server.send(request.body(Body::from(form.to_owned())).expect("a request")).await
}

/// Counts the series and samples of the last hour.
async fn count(fixture: &DataFixture, selector: &str) -> (usize, u64) {
    let expr = escaped(&format!("count_over_time({selector}[1h])"));
    let reply = fixture.get(&format!("query/expr-instant?expr={expr}")).await;
    let value = reply.value();
    let found = value["data"]["result"].as_array().expect("a list");
    let samples = |row: &Value| row["value"][1].as_str().and_then(|text| text.parse::<u64>().ok());
    (found.len(), found.iter().filter_map(samples).sum())
}

#[tokio::test]
async fn only_the_samples_of_the_range_are_deleted() {
    let fixture = DataFixture::with_shop().await;
    assert_eq!(count(&fixture, "{job=~\".+\"}").await, (5, 5 * 61));
    // The selector is in the form. Both ends of the range are inclusive: 5 of 61 samples.
    let form = format!("match[]={}&start={}&end={}", escaped("up{job=\"api\"}"), NOW - 60, NOW);
    let reply = delete(&fixture, &fixture.cabinet, &form).await;
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (204, ""));
    assert_eq!(count(&fixture, "up").await, (2, 56 + 61));
    // Several selectors are in the URL, and the range is unbounded.
    let query = format!("match[]={}&match[]={}", escaped("{tenant=\"b\"}"), escaped("up{job=\"web\"}"));
    let request =
        ask("POST", &format!("{PATH}?{query}"), &fixture.cabinet).body(Body::empty()).expect("a request");
    assert_eq!(fixture.server.send(request).await.status, 204);
    assert_eq!(count(&fixture, "{job=~\".+\"}").await, (3, 56 + 2 * 61));
    let labels = fixture.get("labels/tenant/values").await.value();
    assert_eq!(labels["data"], json!(["a"]), "a series without samples is not listed");
    // Later samples are not deleted.
    fixture.write(&[(&[("__name__", "up"), ("job", "web")], &[(NOW * 1_000, 5.0)])]).await;
    assert_eq!(count(&fixture, "up{job=\"web\"}").await, (1, 1));
}

#[tokio::test]
async fn only_administrators_delete_and_selectors_are_required() {
    let fixture = DataFixture::with_shop().await;
    let (_, secret) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["read", "ingest"] })).await;
    let token = fixture.embed(json!({})).await;
    for who in [Who::Nobody, Who::Bearer(secret), token] {
        assert_eq!(delete(&fixture, &who, "match[]=up").await.status, 401, "{who:?}");
    }
    for (form, message) in [
        ("", "no match[] parameter provided"),
        ("match[]=up{", "parse error"),
        ("match[]={}", "matcher"),
        ("match[]=up&start=2&end=1", "before start"),
        ("match[]=up&start=x", "start"),
    ] {
        let reply = delete(&fixture, &fixture.cabinet, form).await;
        assert_eq!((reply.status.as_u16(), reply.text("errorType")), (400, "bad_data".into()), "{form}");
        assert!(reply.text("error").contains(message), "{form}: {}", reply.body);
    }
    let other =
        ask("POST", &PATH.replace("acme", "other"), &fixture.cabinet).body(Body::empty()).expect("a request");
    assert_eq!(fixture.server.send(other).await.status, 404);
    assert_eq!(count(&fixture, "{job=~\".+\"}").await.0, 5);
    assert!(
        fixture
            .server
            .identity
            .audit(Some(promlet::model::OrgId(1)), 10)
            .expect("read")
            .iter()
            .all(|e| e.action != "series.deleted")
    );
    fixture.server.pass(std::time::Duration::from_secs(1));
    assert_eq!(delete(&fixture, &fixture.cabinet, "match[]=up").await.status, 204);
    let audit = fixture.server.identity.audit(Some(promlet::model::OrgId(1)), 1).expect("read");
    assert_eq!((audit[0].action.as_str(), audit[0].detail.as_str()), ("series.deleted", "up"));
}
