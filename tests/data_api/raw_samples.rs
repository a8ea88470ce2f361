//! Raw samples: exports, remote read, and what a token may see of them (docs/specification.md C6).

use axum::body::Body;
use promlet::ingest::remote_read::{self, ReadQuery};
use promlet::model::{MatchOp, Matcher, TimeRange, Timestamp};
use serde_json::json;

use crate::test_server::{Reply, Who, ask};
use crate::wire::{DataFixture, NOW, escaped};

const READ: &str = "/api/v1/orgs/acme/prometheus/api/v1/read";

/// Returns an organisation with the tenants `alpha` and `bravo`, and 61 samples of each series.
async fn tenants() -> DataFixture {
    let fixture = DataFixture::new().await;
    let samples: Vec<(i64, f64)> = (0..=60).map(|n| ((NOW - 900 + n * 15) * 1_000, n as f64 / 2.0)).collect();
    let alpha = [("__name__", "http_total"), ("job", "api"), ("tenant", "alpha")];
    let bravo = [("__name__", "http_total"), ("job", "bravo-api"), ("tenant", "bravo")];
    fixture.write(&[(&alpha, &samples), (&bravo, &samples)]).await;
    fixture
}

async fn read(fixture: &DataFixture, who: &Who, query: ReadQuery, chunks: bool) -> Reply {
    let body = remote_read::request(&[query], chunks).expect("a request");
    let request =
        ask("POST", READ, who).header("content-type", "application/x-protobuf").body(Body::from(body));
    fixture.server.send(request.expect("a request")).await
}

fn everything() -> ReadQuery {
    let matchers = vec![Matcher::new("__name__", MatchOp::Regex, ".+").expect("a pattern")];
    ReadQuery { matchers, range: TimeRange::new(Timestamp::from_ms(0), Timestamp::from_s(NOW)) }
}

#[tokio::test]
async fn an_export_has_the_raw_samples_of_a_selector_and_a_range() {
    let fixture = tenants().await;
    let selector = escaped("http_total{tenant=\"alpha\"}");
    for path in ["export", "prometheus/api/v1/export"] {
        let (start, end) = (NOW - 900, NOW - 870);
        let reply = fixture.get(&format!("{path}?match[]={selector}&start={start}&end={end}")).await;
        let (first, last) = (start * 1_000, end * 1_000);
        let expected = format!(
            "{{\"metric\":{{\"__name__\":\"http_total\",\"job\":\"api\",\"tenant\":\"alpha\"}},\"values\":[0,0.5,1],\
             \"timestamps\":[{first},{},{last}]}}\n",
            first + 15_000
        );
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (200, expected.as_str()));
        assert_eq!(reply.header("content-type"), "application/x-ndjson");
    }
    let reply = fixture.get("export?format=csv").await;
    assert_eq!(reply.body.lines().next(), Some("time:unix_ms,metric,value,job,tenant"));
    assert_eq!(reply.body.lines().count(), 1 + 2 * 61);
    let reply = fixture.get("export?format=openmetrics&end=1").await;
    assert_eq!(reply.body, "# EOF\n", "nothing is that old");
    let reply = fixture.get(&format!("export?format=prometheus&match[]={selector}")).await;
    assert_eq!(reply.body.lines().count(), 61);
}

#[tokio::test]
async fn the_trailer_of_an_export_is_in_the_document() {
    let fixture = tenants().await;
    let document = fixture.server.get("/api/v1/openapi.json", &Who::Nobody).await.value();
    for (method, path) in
        [("get", "export"), ("get", "prometheus/api/v1/export"), ("post", "prometheus/api/v1/export")]
    {
        let reply = fixture.get(&format!("{path}?format=csv")).await;
        let trailer = reply.header("trailer");
        let responses = &document["paths"][format!("/api/v1/orgs/{{slug}}/{path}")][method]["responses"];
        let description = responses["200"]["description"].as_str().unwrap_or_default();
        assert!(!trailer.is_empty() && description.contains(trailer), "{method} {path}: {description}");
    }
}

#[tokio::test]
async fn a_token_gets_the_raw_samples_of_its_scope_only() {
    let fixture = tenants().await;
    let token = fixture.embed(json!({ "match": ["tenant=\"alpha\""], "max_lookback_s": 300 })).await;
    let reply = fixture.get_as(&token, "prometheus/api/v1/export?format=csv").await;
    assert!(!reply.body.contains("bravo"), "{}", reply.body);
    assert_eq!(reply.body.lines().count(), 1 + 21, "{}", reply.body);
    let (_, secret) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["read"] })).await;
    let reader = Who::Bearer(secret);
    let whole = read(&fixture, &reader, everything(), true).await;
    assert_eq!(whole.status, 200, "{}", whole.body);
    assert!(whole.body.contains("bravo") && whole.body.contains("alpha"));
    assert!(whole.header("content-type").starts_with("application/x-streamed-protobuf"));
    for chunks in [false, true] {
        let scoped = read(&fixture, &token, everything(), chunks).await;
        assert_eq!(scoped.status, 200, "{}", scoped.body);
        assert!(!scoped.body.contains("bravo") && scoped.body.contains("alpha"), "{}", scoped.body);
    }
}

#[tokio::test]
async fn raw_samples_beyond_a_token_or_a_limit_are_refused() {
    let fixture = tenants().await;
    for restriction in [
        json!({ "endpoints": ["expr"], "exprs": ["sum(http_total)"] }),
        json!({ "min_step_s": 60 }),
        json!({ "endpoints": ["metrics"] }),
    ] {
        let token = fixture.embed(restriction.clone()).await;
        let reply = fixture.get_as(&token, "prometheus/api/v1/export").await;
        assert_eq!(reply.status, 403, "{restriction}: {}", reply.body);
        let reply = read(&fixture, &token, everything(), true).await;
        assert_eq!(reply.status, 403, "{restriction}: {}", reply.body);
    }
    let token = fixture.embed(json!({ "max_range_s": 60 })).await;
    let wide = format!("prometheus/api/v1/export?start={}&end={NOW}", NOW - 61);
    assert_eq!(fixture.get_as(&token, &wide).await.status, 403);
    assert_eq!(read(&fixture, &token, everything(), true).await.status, 403);
    let reply = fixture.get_as(&token, "prometheus/api/v1/export?format=csv").await;
    assert_eq!(reply.body.lines().count(), 1 + 2 * 5, "an open range is the widest that is granted");
    for (path, words) in [
        ("export?format=xml", "jsonl, csv, openmetrics or prometheus"),
        ("export?match[]=sum(up)", "match[]"),
        ("prometheus/api/v1/export/native", "native format"),
    ] {
        let reply = fixture.get(path).await;
        assert!(reply.status == 400 && reply.body.contains(words), "{path}: {}", reply.body);
    }
    let native = ask("POST", "/api/v1/orgs/acme/prometheus/api/v1/import/native", &fixture.agent);
    let reply = fixture.server.send(native.body(Body::empty()).expect("a request")).await;
    assert!(reply.status == 400 && reply.body.contains("native format"), "{}", reply.body);
    let (_, secret) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["read"] })).await;
    let request = ask("POST", READ, &Who::Bearer(secret)).body(Body::from("no snappy")).expect("a request");
    assert_eq!(fixture.server.send(request).await.status, 400);
    let many: Vec<ReadQuery> = (0..33).map(|_| everything()).collect();
    let body = remote_read::request(&many, true).expect("a request");
    let request = ask("POST", READ, &fixture.cabinet).body(Body::from(body)).expect("a request");
    let reply = fixture.server.send(request).await;
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("the request has 33 queries; at most 32 are allowed"), "{}", reply.body);
}
