//! OpenTelemetry metrics of delta temporality through the router (docs/specification.md C7).

use axum::body::Body;
use serde_json::{Value, json};

use crate::test_server::{Reply, ask};
use crate::wire::{DataFixture, NOW, escaped};

fn time(seconds: i64) -> String {
    format!("{}000000000", NOW + seconds)
}

fn export(metrics: &Value) -> Value {
    let service = json!({ "key": "service.name", "value": { "stringValue": "shop" } });
    json!({ "resourceMetrics": [{
        "resource": { "attributes": [service] }, "scopeMetrics": [{ "metrics": metrics }],
    }] })
}

fn sum(name: &str, (start, end): (i64, i64), value: f64) -> Value {
    let point = json!({ "startTimeUnixNano": time(start), "timeUnixNano": time(end), "asDouble": value });
    json!({ "name": name, "sum": { "aggregationTemporality": 1, "isMonotonic": true, "dataPoints": [point] } })
}

async fn send(fixture: &DataFixture, metrics: Value) -> Reply {
    let request = ask("POST", "/api/v1/orgs/acme/otlp/v1/metrics", &fixture.agent)
        .header("content-type", "application/json")
        .body(Body::from(export(&metrics).to_string()));
    let reply = fixture.server.send(request.expect("a request")).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply
}

async fn is_stored(fixture: &DataFixture, metrics: Value) {
    assert_eq!(send(fixture, metrics).await.body, "{}");
}

async fn value(fixture: &DataFixture, expr: &str, seconds: i64) -> Value {
    let reply =
        fixture.get(&format!("query/expr-instant?expr={}&time={}", escaped(expr), NOW + seconds)).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.value()["data"]["result"][0]["value"][1].clone()
}

#[tokio::test]
async fn changes_of_a_sum_become_a_counter_that_continues_after_a_restart() {
    let mut fixture = DataFixture::new().await;
    is_stored(&fixture, json!([sum("orders", (-60, -50), 3.0)])).await;
    is_stored(&fixture, json!([sum("orders", (-50, -40), 4.0)])).await;
    assert_eq!(value(&fixture, "orders_total", -40).await, "7");
    fixture.server.restart();
    is_stored(&fixture, json!([sum("orders", (-40, -30), 5.0)])).await;
    assert_eq!(value(&fixture, "orders_total", -30).await, "12");
    assert_eq!(value(&fixture, "orders_total", -50).await, "3");
}

#[tokio::test]
async fn repeated_and_reordered_changes_are_refused_and_counted() {
    let fixture = DataFixture::new().await;
    is_stored(&fixture, json!([sum("orders", (-60, -50), 3.0)])).await;
    for (interval, word) in [((-60, -50), "repeats"), ((-70, -60), "in order")] {
        let reply = send(&fixture, json!([sum("orders", interval, 3.0)])).await;
        let partial = reply.value()["partialSuccess"].clone();
        assert_eq!(partial["rejectedDataPoints"], "1", "{}", reply.body);
        assert!(partial["errorMessage"].as_str().expect("a text").contains(word), "{}", reply.body);
    }
    is_stored(&fixture, json!([sum("orders", (-45, -40), 1.0)])).await;
    is_stored(&fixture, json!([sum("orders", (-41, -30), 1.0)])).await;
    assert_eq!(value(&fixture, "orders_total", -30).await, "5");
    let own = fixture.server.get("/metrics", &crate::test_server::Who::Nobody).await.body;
    for kind in ["gap", "overlap", "reordered", "repeated"] {
        let line = format!("promlet_otlp_delta_points_total{{kind=\"{kind}\"}} 1");
        assert!(own.lines().any(|own| own == line), "{line}");
    }
    for (change, word) in [(-1.0, "negative"), (f64::MAX, "")] {
        let reply = send(&fixture, json!([sum("wrong", (-60, -50), change)])).await;
        assert_eq!(reply.body.contains("rejectedDataPoints"), !word.is_empty(), "{}", reply.body);
    }
}

fn histogram((start, end): (i64, i64), counts: [u64; 3], sum: f64) -> Value {
    let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
    let point = json!({
        "startTimeUnixNano": time(start), "timeUnixNano": time(end), "count": "6", "sum": sum,
        "bucketCounts": counts, "explicitBounds": [1.0, 10.0],
    });
    json!({ "name": "latency", "histogram": { "aggregationTemporality": 1, "dataPoints": [point] } })
}

#[tokio::test]
async fn changes_of_a_histogram_become_cumulative_buckets() {
    let mut fixture = DataFixture::new().await;
    is_stored(&fixture, json!([histogram((-60, -50), [1, 2, 3], 20.0)])).await;
    fixture.server.restart();
    is_stored(&fixture, json!([histogram((-50, -40), [3, 2, 1], 10.0)])).await;
    for (expr, expected) in [
        ("latency_bucket{le=\"1\"}", "4"),
        ("latency_bucket{le=\"10\"}", "8"),
        ("latency_bucket{le=\"+Inf\"}", "12"),
        ("latency_count", "12"),
        ("latency_sum", "30"),
    ] {
        assert_eq!(value(&fixture, expr, -40).await, expected, "{expr}");
    }
    let again = send(&fixture, json!([histogram((-50, -40), [3, 2, 1], 10.0)])).await;
    assert!(again.body.contains("repeats"), "{}", again.body);
    assert_eq!(value(&fixture, "latency_count", -40).await, "12");
}

fn exponential((start, end): (i64, i64), scale: i32, counts: [u64; 2]) -> Value {
    let all: u64 = counts.iter().sum();
    let point = json!({
        "startTimeUnixNano": time(start), "timeUnixNano": time(end), "count": all.to_string(), "sum": 2.0,
        "scale": scale, "zeroCount": "0",
        "positive": { "offset": 0, "bucketCounts": counts.map(|count| count.to_string()) },
    });
    json!({ "name": "size", "exponentialHistogram": { "aggregationTemporality": 1, "dataPoints": [point] } })
}

#[tokio::test]
async fn changes_of_an_exponential_histogram_become_a_native_one_at_the_coarser_scale() {
    let mut fixture = DataFixture::new().await;
    is_stored(&fixture, json!([exponential((-60, -50), 1, [1, 2])])).await;
    is_stored(&fixture, json!([exponential((-50, -40), 0, [4, 8])])).await;
    fixture.server.restart();
    is_stored(&fixture, json!([exponential((-40, -30), 1, [16, 32])])).await;
    assert_eq!(value(&fixture, "histogram_count(size)", -30).await, "63");
    assert_eq!(value(&fixture, "histogram_sum(size)", -30).await, "6");
    // At scale 0 the first bucket ends at 2: both buckets of scale 1, and one of scale 0.
    assert_eq!(value(&fixture, "histogram_fraction(0, 2, size) * 63", -30).await, "55");
}

/// The sender sends a request again that was not stored.
#[tokio::test]
async fn a_change_that_is_not_stored_is_not_added() {
    let fixture = DataFixture::new().await;
    is_stored(&fixture, json!([sum("orders", (-60, -50), 3.0)])).await;
    let far = json!([sum("orders", (-50, 3_600), 4.0)]);
    assert!(send(&fixture, far).await.body.contains("rejectedDataPoints"), "too far in the future");
    is_stored(&fixture, json!([sum("orders", (-50, -40), 4.0)])).await;
    assert_eq!(value(&fixture, "orders_total", -40).await, "7");
}

#[tokio::test]
async fn two_senders_of_one_series_at_once_lose_nothing() {
    let fixture = std::sync::Arc::new(DataFixture::new().await);
    let mut all = tokio::task::JoinSet::new();
    for n in 0..20_i64 {
        let fixture = std::sync::Arc::clone(&fixture);
        all.spawn(async move {
            is_stored(&fixture, json!([sum(&format!("m{n}"), (-60, -50), 1.0)])).await;
            is_stored(&fixture, json!([sum(&format!("m{n}"), (-50, -40), 1.0)])).await;
        });
    }
    while let Some(done) = all.join_next().await {
        done.expect("no panic");
    }
    assert_eq!(value(&fixture, "sum({__name__=~\"m.*_total\"})", -40).await, "40");
}
