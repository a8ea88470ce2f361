//! The list of alerts for pages, and what embed tokens see of it (docs/specification.md C5; threat
//! 71).

use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use promlet::model::{BatchBuilder, Labels, Sample};
use serde_json::{Value, json};

use crate::test_server::{Reply, TestServer, TestServerOptions, Who, ask, signed};

const ALERTS: &str = "/api/v1/orgs/acme/alerts";
const PAGE: &str = "https://a.example";

/// Alerts with the label of a customer, one of the sum over all customers without the label, and a
/// pending one. The annotations print values of other customers.
const GROUP: &str = r#"name: secret-group
interval: 10s
rules:
- alert: High
  expr: x / scalar(sum(x)) > 0.1
  labels: {severity: page}
  annotations:
    summary: '{{ $labels.customer }} has {{ $value }}'
    leak: '{{ range query "x" }}{{ .Labels.customer }}={{ .Value }} {{ end }}'
- alert: Total
  expr: sum(x) > 1
- alert: Slow
  expr: x > 4
  for: 1m
"#;

/// A server whose rules were evaluated three times with the customers c1, c2 and c3.
async fn alerting(options: TestServerOptions) -> (TestServer, Who) {
    let server = TestServer::build(options);
    let owner = server.log_in().await;
    write(&server, &[("c1", 3.0), ("c2", 5.0), ("c3", 7.0)]);
    let body = json!({ "yaml": GROUP }).to_string();
    let put = ask("PUT", "/api/v1/orgs/acme/rule-groups/secret-group", &owner)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body));
    let put = server.send(put.expect("a request")).await;
    assert_eq!(put.status, 201, "{}", put.body);
    for seconds in [0, 10, 10] {
        evaluate(&server, seconds);
    }
    (server, owner)
}

fn write(server: &TestServer, values: &[(&str, f64)]) {
    let org = server.identity.orgs().expect("read")[0].id;
    let now = server.clock.now();
    let mut batch = BatchBuilder::default();
    for &(customer, value) in values {
        let labels = Labels::from_pairs([("__name__", "x"), ("customer", customer)]);
        batch.series(&labels, [Sample { at: now, value }]);
    }
    server.tsdb.append(org, &batch.batch(), now).expect("stored");
}

/// Advances the clock and evaluates the due groups.
fn evaluate(server: &TestServer, seconds: u64) {
    server.pass(Duration::from_secs(seconds));
    server.rules.run_due(server.clock.now());
}

/// Creates a key whose policy has `alerts`, and returns a token of it with `ms`.
async fn token(server: &TestServer, owner: &Who, alerts: Value, ms: Value) -> Who {
    let fields =
        json!({ "scopes": ["embed"], "embed": { "policy": { "alerts": alerts }, "origins": [PAGE] } });
    let (key, _) = server.key(owner, fields).await;
    server.token(owner, &key, json!({ "ms": ms })).await
}

/// Returns the names and customers of the alerts of a response, in its order.
fn names(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let value = reply.value();
    let data = value["data"].as_array().expect("alerts").iter();
    let text = |alert: &Value, name: &str| alert["labels"][name].as_str().unwrap_or("-").to_owned();
    let mut names: Vec<String> =
        data.map(|alert| format!("{} {}", text(alert, "alertname"), text(alert, "customer"))).collect();
    names.sort();
    names
}

async fn conditional(server: &TestServer, path: &str, who: &Who, tag: &str) -> Reply {
    let request = ask("GET", path, who).header(header::IF_NONE_MATCH, tag).body(Body::empty());
    server.send(request.expect("a request")).await
}

#[tokio::test]
async fn a_token_sees_only_alerts_with_the_labels_of_its_restrictions() {
    let (server, owner) = alerting(TestServerOptions::default()).await;
    let all = ["High c1", "High c2", "High c3", "Slow c2", "Slow c3", "Total -"];
    assert_eq!(names(&server.get(ALERTS, &owner).await), all);
    for (restrictions, expected) in [
        (json!({}), &all[..]),
        (json!({ "match": ["customer=\"c2\""] }), &["High c2", "Slow c2"]),
        (json!({ "match": ["customer=~\"c1|c2\"", "severity=\"page\""] }), &["High c1", "High c2"]),
        // The sum has no customer, and others are part of it.
        (json!({ "match": ["customer!=\"c1\""] }), &["High c2", "High c3", "Slow c2", "Slow c3"]),
        (json!({ "match": ["customer=\"\""] }), &[]),
        (json!({ "match": ["alertstate=\"pending\""] }), &["Slow c2", "Slow c3"]),
        (json!({ "metrics": ["x"] }), &[]),
        (json!({ "metrics": ["x", "ALERTS"], "match": ["customer=\"c3\""] }), &["High c3", "Slow c3"]),
        (json!({ "exprs": ["x"], "match": ["customer=\"c3\""] }), &["High c3", "Slow c3"]),
        (json!({ "endpoints": ["alerts"], "match": ["customer=\"c3\""] }), &["High c3", "Slow c3"]),
    ] {
        let mut ms = restrictions.clone();
        ms["alerts"] = json!({});
        let viewer = token(&server, &owner, json!({}), ms).await;
        assert_eq!(names(&server.get(ALERTS, &viewer).await), expected, "{restrictions}");
    }
}

#[tokio::test]
async fn alerts_need_a_key_and_a_token_that_name_them() {
    let (server, owner) = alerting(TestServerOptions::default()).await;
    let (old, _) = server.key(&owner, json!({ "scopes": ["embed"] })).await;
    let plain = server.token(&owner, &old, json!({})).await;
    server.get(ALERTS, &plain).await.is(403, "embed_restricted");
    let listed = server.token(&owner, &old, json!({ "ms": { "endpoints": ["alerts", "expr"] } })).await;
    server.get(ALERTS, &listed).await.is(403, "embed_restricted");
    let mounted = "/api/v1/orgs/acme/prometheus/api/v1/alerts";
    for viewer in [&plain, &listed] {
        assert_eq!(server.get(mounted, viewer).await.value()["data"], json!({ "alerts": [] }));
    }
    let minted = json!({ "api_key_id": old, "ms": { "alerts": {} } });
    let minted = server.post("/api/v1/orgs/acme/embed/tokens", &owner, minted).await;
    minted.is(422, "validation_failed");
    assert!(minted.body.contains("alerts exceeds the key's policy"), "{}", minted.body);
    let without = token(&server, &owner, json!({}), json!({ "match": ["customer=\"c1\""] })).await;
    server.get(ALERTS, &without).await.is(403, "embed_restricted");
    let (_, secret) = server.key(&owner, json!({ "scopes": ["read"] })).await;
    server.get(ALERTS, &Who::Bearer(secret)).await.is(401, "api_key_not_allowed");
    server.get("/api/v1/orgs/other/alerts", &without).await.is(403, "org_mismatch");
}

/// Annotations may print the values of any series, and a value may be computed from them.
#[tokio::test]
async fn annotations_and_values_are_hidden_unless_key_and_token_grant_them() {
    let (server, owner) = alerting(TestServerOptions::default()).await;
    let wide = json!({ "annotations": ["summary"], "value": true });
    let greedy = json!({ "annotations": ["summary", "leak"], "value": true });
    let (fields, signer) =
        (json!({ "scopes": ["embed"], "embed": { "policy": { "alerts": wide } } }), &owner);
    let (key, secret) = server.key(signer, fields).await;
    let now = server.clock.now().as_s();
    let claims =
        |ms: Value| json!({ "aud": "ms-embed", "org": "acme", "iat": now, "exp": now + 600, "ms": ms });
    let own = json!(["customer=\"c1\""]);
    let viewer = |alerts: &Value| {
        let ms = json!({ "alerts": alerts, "match": own });
        Who::Bearer(signed(&key, &secret, &claims(ms)))
    };
    let hidden = server.get(ALERTS, &viewer(&json!({}))).await;
    let shown = server.get(ALERTS, &viewer(&greedy)).await;
    for reply in [&hidden, &shown] {
        for word in ["c2", "c3", "leak", "secret-group", "scalar", "x / ", "Total", "Slow"] {
            assert!(!reply.body.contains(word), "{word}: {}", reply.body);
        }
    }
    let (hidden, shown) = (hidden.value(), shown.value());
    let alert = &hidden["data"][0];
    assert_eq!((&alert["annotations"], &alert["value"]), (&json!({}), &Value::Null));
    assert_eq!(hidden["counts"], json!({ "firing": 1, "pending": 0 }));
    let alert = &shown["data"][0];
    assert_eq!(
        (&alert["annotations"], &alert["value"]),
        (&json!({ "summary": "c1 has 0.2" }), &json!("0.2"))
    );
    let mounted = "/api/v1/orgs/acme/prometheus/api/v1/alerts";
    let of_mount = server.get(mounted, &viewer(&json!({}))).await.value()["data"]["alerts"][0].clone();
    assert_eq!((&of_mount["annotations"], &of_mount["value"]), (&json!({}), &json!("1e+00")));
    let of_mount = server.get(mounted, &viewer(&greedy)).await.value()["data"]["alerts"][0].clone();
    assert_eq!(
        (&of_mount["annotations"], &of_mount["value"]),
        (&json!({ "summary": "c1 has 0.2" }), &json!("2e-01"))
    );
    let member = server.get(ALERTS, &owner).await;
    assert!(member.body.contains("c3=7"), "a member sees everything: {}", member.body);
}

#[tokio::test]
async fn a_page_of_alerts_has_an_order_filters_and_a_cursor() {
    let (server, owner) = alerting(TestServerOptions::default()).await;
    let first = server.get(ALERTS, &owner).await.value();
    let now = server.clock.now().as_s();
    let alert = &first["data"][0];
    let since = alert["active_since"].as_f64().expect("a time");
    assert_eq!((&alert["state"], &alert["firing_since"]), (&json!("firing"), &alert["active_since"]));
    assert!((now as f64 - 20.0..=now as f64).contains(&since), "{first}");
    let pending = &first["data"][4];
    assert_eq!((&pending["state"], &pending["firing_since"]), (&json!("pending"), &Value::Null));
    assert_eq!(
        (&first["counts"], &first["next_cursor"]),
        (&json!({ "firing": 4, "pending": 2 }), &Value::Null)
    );
    let list = async |query: &str| server.get(&format!("{ALERTS}?{query}"), &owner).await;
    assert_eq!(names(&list("state=pending").await), ["Slow c2", "Slow c3"]);
    assert_eq!(list("state=pending").await.value()["counts"], first["counts"]);
    let selected = list("match=%7Bcustomer=%22c1%22%7D&match=ALERTS%7Balertname=%22Total%22%7D").await;
    assert_eq!(names(&selected), ["High c1", "Total -"]);
    assert_eq!(names(&list("match=up").await), [""; 0]);
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = list(&format!("limit=4{cursor}")).await.value();
        seen.extend(page["data"].as_array().expect("alerts").clone());
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(json!(seen), first["data"]);
    for query in ["state=resolved", "limit=0", "limit=1001", "cursor=x", "match=up&limit=x"] {
        list(query).await.is(400, "invalid_parameter");
    }
    list("state=firing&state=firing").await.is(400, "duplicate_parameter");
    list("match=up%7B").await.is(400, "bad_expr");
}

/// A tag that changed with hidden alerts would tell of them.
#[tokio::test]
async fn a_tag_stays_until_a_visible_alert_changes() {
    let (server, owner) = alerting(TestServerOptions::default()).await;
    let ms = json!({ "alerts": {}, "match": ["customer=\"c1\""] });
    let viewer = token(&server, &owner, json!({}), ms).await;
    let first = server.get(ALERTS, &viewer).await;
    let tag = first.header("etag").to_owned();
    let known = conditional(&server, ALERTS, &viewer, &tag).await;
    assert_eq!((known.status.as_u16(), known.body.as_str()), (304, ""));
    assert_eq!(known.header("etag"), tag);
    // Another customer's alert ends.
    write(&server, &[("c1", 3.0), ("c2", 0.0), ("c3", 7.0)]);
    evaluate(&server, 10);
    assert_eq!(names(&server.get(ALERTS, &owner).await).len(), 4);
    assert_eq!(conditional(&server, ALERTS, &viewer, &tag).await.status, 304);
    write(&server, &[("c1", 0.0), ("c2", 0.0), ("c3", 7.0)]);
    evaluate(&server, 10);
    let changed = conditional(&server, ALERTS, &viewer, &tag).await;
    assert_eq!((changed.status.as_u16(), &changed.value()["data"]), (200, &json!([])));
    let head = ask("GET", ALERTS, &viewer).header(header::ORIGIN, PAGE).body(Body::empty());
    let shared = server.send(head.expect("a request")).await;
    assert_eq!(shared.header("access-control-allow-origin"), PAGE);
    let elsewhere = ask("GET", ALERTS, &viewer).header(header::ORIGIN, "https://b.example");
    let refused = server.send(elsewhere.body(Body::empty()).expect("a request")).await;
    refused.is(403, "origin_not_allowed");
}

#[tokio::test]
async fn lists_of_alerts_count_in_the_rate_and_the_budget_of_their_key() {
    let (server, owner) = alerting(TestServerOptions::default()).await;
    let embed = json!({ "rate_limit_rps": 2, "policy": { "alerts": {} } });
    let (key, _) = server.key(&owner, json!({ "scopes": ["embed"], "embed": embed })).await;
    let viewer = server.token(&owner, &key, json!({ "ms": { "alerts": {} } })).await;
    for _ in 0..2 {
        assert_eq!(server.get(ALERTS, &viewer).await.status, 200);
    }
    server.get(ALERTS, &viewer).await.is(429, "rate_limited");
    let rows = server.get("/api/v1/orgs/acme/embeds", &owner).await.value();
    assert_eq!(rows["data"][0]["refused"], json!(1), "{rows}");
}

#[tokio::test]
async fn a_list_of_alerts_ends_at_the_timeout() {
    let mut options = TestServerOptions::default();
    options.options.read.timeout = Duration::ZERO;
    let server = TestServer::build(options);
    let owner = server.log_in().await;
    server.get(ALERTS, &owner).await.is(503, "query_timeout");
}
