//! The native query endpoints (docs/specification.md C5).

use serde_json::{Value, json};

use crate::test_server::{Reply, Who};
use crate::wire::{DataFixture, NOW, escaped};

/// Checks for a JSON response with status 200, and returns its body.
fn ok_json(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.header("content-type"), "application/json");
    reply.value()
}

#[tokio::test]
async fn a_structured_range_query_returns_its_expression_and_result() {
    let fixture = DataFixture::with_shop().await;
    let times = format!("start={}&end={NOW}&step=60", NOW - 120);
    let reply = fixture
        .get(&format!(
            "query/range?metric=http_requests_total&match=tenant=a&fn=rate&window=5m&agg=sum&by=job&{times}"
        ))
        .await;
    let value = ok_json(&reply);
    assert_eq!(
        value["query"],
        json!({ "expr": "sum by (job) (rate(http_requests_total{tenant=\"a\"}[5m]))", "start": NOW - 120, "end": NOW, "step": 60 })
    );
    // The window excludes its start: twenty samples span 285 s, and the slope is extrapolated to
    // 300 s (Prometheus, promql/functions.go).
    let slope = |total: f64| (total * (300.0 / 285.0 / 300.0)).to_string();
    let values = |v: &str| json!([[NOW - 120, v], [NOW - 60, v], [NOW, v]]);
    let (api, web) = (values(&slope(285.0)), values(&slope(570.0)));
    let expected =
        json!([{ "metric": { "job": "api" }, "values": api }, { "metric": { "job": "web" }, "values": web }]);
    assert_eq!(value["data"], json!({ "resultType": "matrix", "result": expected }));
    assert_eq!(
        (&value["status"], &value["warnings"], &value["stats"]["series"]),
        (&json!("success"), &json!([]), &json!(2))
    );
    assert!(
        value["stats"]["samples"].as_u64().expect("a number") > 0 && value["stats"]["elapsed_ms"].is_number()
    );
}

#[tokio::test]
async fn structured_parameters_are_translated_to_promql() {
    let fixture = DataFixture::with_shop().await;
    let cases = [
        ("metric=up", "up"),
        ("metric=up&match=job%3D~%22api%7Cweb%22&match[]=x!=", "up{job=~\"api|web\",x!=\"\"}"),
        ("metric=up&fn=none&agg=none", "up"),
        ("metric=up&agg=count", "count(up)"),
        ("metric=up&fn=max_over_time", "max_over_time(up[5m])"),
        ("metric=up&fn=quantile_over_time&q=0.5&window=90", "quantile_over_time(0.5, up[1m30s])"),
        ("metric=up&agg=topk&k=3", "topk(3, up)"),
        ("metric=up&agg=sum&without=job,%20x", "sum without (job, x) (up)"),
        ("metric=up&offset=1m", "up offset 1m"),
        (
            "metric=h_bucket&fn=rate&agg=histogram_quantile&q=0.9&by=job",
            "histogram_quantile(0.9, sum by (le, job) (rate(h_bucket[5m])))",
        ),
        ("metric=a.b", "{\"a.b\"}"),
        ("metric=up&match=job%3D%22%5C%22%7D%20or%20up%22", "up{job=\"\\\"} or up\"}"),
    ];
    for (parameters, expr) in cases {
        let value = ok_json(&fixture.get(&format!("query/instant?{parameters}")).await);
        // A space after the comma between two matchers is ignored.
        let printed = value["query"]["expr"].as_str().expect("a text").replace("\", ", "\",");
        assert_eq!((printed.as_str(), &value["query"]["time"]), (expr, &json!(NOW)), "{parameters}");
    }
}

#[tokio::test]
async fn an_expression_is_accepted_in_place_of_a_structured_query() {
    let fixture = DataFixture::with_shop().await;
    for path in [
        "query/instant?expr=",
        "query/instant?query=",
        "query/expr-instant?expr=",
        "query/expr-instant?query=",
    ] {
        let value = ok_json(&fixture.get(&format!("{path}{}", escaped("sum(up)"))).await);
        assert_eq!(
            value["data"],
            json!({ "resultType": "vector", "result": [{ "metric": {}, "value": [NOW, "2"] }] })
        );
    }
    for path in ["query/range?expr=", "query/expr-range?query="] {
        let value =
            ok_json(&fixture.get(&format!("{path}{}&start=now-1m&step=1m", escaped("sum(up)"))).await);
        assert_eq!(value["data"]["result"][0]["values"], json!([[NOW - 60, "2"], [NOW, "2"]]), "{path}");
    }
    let kinds = [("1e21", "scalar"), ("\"a\"", "string"), ("up[1m]", "matrix"), ("up", "vector")];
    for (expr, kind) in kinds {
        let value = ok_json(&fixture.get(&format!("query/expr-instant?expr={}", escaped(expr))).await);
        assert_eq!(value["data"]["resultType"], kind);
    }
}

#[tokio::test]
async fn missing_parameters_have_defaults() {
    let fixture = DataFixture::with_shop().await;
    let query = |value: Value| value["query"].clone();
    let value = ok_json(&fixture.get("query/range?metric=up&fn=rate").await);
    assert_eq!(query(value), json!({ "expr": "rate(up[5m])", "start": NOW - 3_600, "end": NOW, "step": 20 }));
    let value = ok_json(&fixture.get("query/range?metric=up&fn=rate&start=now-30d").await);
    assert_eq!(
        query(value),
        json!({ "expr": "rate(up[5h33m20s])", "start": NOW - 30 * 86_400, "end": NOW, "step": 20_000 })
    );
    let value = ok_json(&fixture.get("query/range?metric=up&start=now-1m&end=&step=0.5").await);
    assert_eq!(value["query"]["step"], 0.5);
    assert_eq!(value["data"]["result"][0]["values"][1][0], json!(NOW as f64 - 59.5));
}

#[tokio::test]
async fn the_error_of_an_invalid_parameter_names_it() {
    let fixture = DataFixture::with_shop().await;
    let cases = [
        ("query/range", "metric", "invalid_parameter"),
        ("query/expr-instant", "expr", "invalid_parameter"),
        ("query/expr-instant?expr=", "expr", "invalid_parameter"),
        ("query/range?metric=up&fn=median", "fn", "invalid_parameter"),
        ("query/range?metric=up&agg=median", "agg", "invalid_parameter"),
        ("query/range?metric=up&window=5m", "window", "invalid_parameter"),
        ("query/range?metric=up&fn=rate&window=500ms", "window", "invalid_parameter"),
        ("query/range?metric=up&fn=rate&window=2y", "window", "invalid_parameter"),
        ("query/range?metric=up&by=job", "by", "invalid_parameter"),
        ("query/range?metric=up&agg=sum&by=a&without=b", "by", "invalid_parameter"),
        ("query/range?metric=up&agg=quantile", "q", "invalid_parameter"),
        ("query/range?metric=up&agg=quantile&q=1.5", "q", "invalid_parameter"),
        ("query/range?metric=up&agg=quantile&q=NaN", "q", "invalid_parameter"),
        ("query/range?metric=up&agg=topk&k=0", "k", "invalid_parameter"),
        ("query/range?metric=up&agg=topk&k=101", "k", "invalid_parameter"),
        ("query/range?metric=up&agg=topk&k=-1", "k", "invalid_parameter"),
        ("query/range?metric=up&match=job~a", "match", "bad_expr"),
        ("query/range?metric=up&match=job%3D~%22(%22", "match", "bad_expr"),
        ("query/range?metric=up&start=yesterday", "start", "invalid_parameter"),
        ("query/range?metric=up&start=now&end=now-1h", "end", "invalid_parameter"),
        ("query/range?metric=up&start=now-2y", "start", "invalid_parameter"),
        ("query/range?metric=up&step=0", "step", "invalid_parameter"),
        ("query/range?metric=up&step=-5", "step", "invalid_parameter"),
        ("query/range?metric=up&start=now-1d&step=1", "step", "invalid_parameter"),
        ("query/range?metric=up&limit=0", "limit", "invalid_parameter"),
        ("query/range?metric=up&limit=10001", "limit", "invalid_parameter"),
        ("query/range?metric=up&timeout=0", "timeout", "invalid_parameter"),
        ("query/instant?metric=up&time=1e300", "time", "invalid_parameter"),
        ("query/range?metric=up&step=15&step=15", "step", "duplicate_parameter"),
        ("query/instant?expr=up&query=up", "expr", "duplicate_parameter"),
    ];
    for (path, field, code) in cases {
        let reply = fixture.get(path).await;
        reply.is(400, code);
        assert_eq!(reply.value()["errors"][0]["field"], field, "{path}: {}", reply.body);
        assert_eq!(reply.value()["errorType"], "bad_data");
        assert_eq!(reply.value()["error"], reply.value()["detail"]);
        fixture.server.pass(std::time::Duration::from_millis(50));
    }
}

#[tokio::test]
async fn warnings_report_truncated_results_and_unused_parameters() {
    let fixture = DataFixture::with_shop().await;
    let value = ok_json(&fixture.get("query/instant?metric=http_requests_total&limit=2&_=1&fnn=rate").await);
    assert_eq!(value["data"]["result"].as_array().expect("a list").len(), 2);
    assert_eq!(value["stats"]["series"], 3);
    assert_eq!(
        value["warnings"],
        json!(["the parameter \"fnn\" was not used", "results truncated due to limit"])
    );
    let value = ok_json(&fixture.get("query/range?metric=nonsense").await);
    assert_eq!(value["data"]["result"], json!([]));
    assert_eq!(value["warnings"], json!(["the metric \"nonsense\" is not known"]));
    // There is no warning for a metric that exists, but has no sample at that time.
    let value = ok_json(&fixture.get("query/instant?metric=up&time=now-1d").await);
    assert_eq!((&value["data"]["result"], &value["warnings"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn hostile_expressions_are_refused_and_the_server_continues() {
    let fixture = DataFixture::with_shop().await;
    let cases = [
        format!("{}1{}", "(".repeat(5_000), ")".repeat(5_000)),
        "-".repeat(10_000),
        vec!["1"; 5_000].join("+"),
        format!("{{a=~\"{}\"}}", "\\\\w{60}".repeat(200)),
        (0..17).map(|n| format!("{{a=~\"\\\\w{{60}}.*{n}\"}}")).collect::<Vec<_>>().join(" or "),
        "foo offset inf".into(),
        "foo[".into(),
        "foo[5m][5m:][5m:][5m:][5m:][5m:]".into(),
        "\"unclosed".into(),
        "\u{0}".into(),
        "up{or}".into(),
        "rate(up)".into(),
        "sum(".into(),
    ];
    for expr in &cases {
        // Longer URLs would be refused for their length, which another test covers.
        let escaped: String = escaped(expr).chars().take(16_000).collect();
        fixture.get(&format!("query/expr-instant?expr={escaped}")).await.is(400, "bad_expr");
    }
    assert_eq!(
        ok_json(&fixture.get("query/expr-instant?expr=vector(1)").await)["data"]["result"][0]["value"][1],
        "1"
    );
}

#[tokio::test]
async fn expressions_without_a_result_are_refused_with_a_reason() {
    let fixture = DataFixture::with_shop().await;
    let reply = fixture.get(&format!("query/expr-range?expr={}", escaped("up[5m]"))).await;
    reply.is(400, "bad_expr");
    assert!(
        reply.text("detail").starts_with("invalid expression type \"range vector\" for range query"),
        "{}",
        reply.body
    );
    let many =
        fixture.get(&format!("query/expr-instant?expr={}", escaped("up + on() http_requests_total"))).await;
    assert_eq!((many.status.as_u16(), many.text("errorType")), (422, "execution".into()), "{}", many.body);
}

#[tokio::test]
async fn a_timeout_ends_a_query() {
    let fixture = DataFixture::with_shop().await;
    let expr = escaped("count_over_time(sum(rate(http_requests_total[1m]))[1d:1s])");
    let reply = fixture.get(&format!("query/expr-range?expr={expr}&start=now-1h&step=1&timeout=1ms")).await;
    reply.is(503, "query_timeout");
    assert_eq!(reply.value()["errorType"], "timeout");
}

#[tokio::test]
async fn a_query_needs_a_session_or_a_token_of_the_organisation() {
    let fixture = DataFixture::with_shop().await;
    let (_, secret) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["read", "embed"] })).await;
    for path in [
        "metrics",
        "metrics/up/labels",
        "labels/job/values",
        "query/range?metric=up",
        "query/instant?metric=up",
        "query/expr-instant?expr=up",
        "query/expr-range?expr=up",
    ] {
        fixture.get_as(&Who::Nobody, path).await.is(401, "unauthenticated");
        fixture.get_as(&Who::Bearer(secret.clone()), path).await.is(401, "api_key_not_allowed");
        let other = fixture.server.get(&format!("/api/v1/orgs/other/{path}"), &fixture.cabinet).await;
        other.is(404, "org_not_found");
        assert_eq!(fixture.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn values_are_strings_and_times_are_seconds() {
    let fixture = DataFixture::new().await;
    let at = NOW * 1_000 + 500;
    let values = [1.0, -0.0, 1e-7, 1e21, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.1 + 0.2];
    for (n, value) in values.into_iter().enumerate() {
        fixture.write(&[(&[("__name__", "v"), ("n", &n.to_string())], &[(at, value)])]).await;
    }
    let reply = fixture.get("query/instant?metric=v&time=1800000000.5").await;
    let mut found: Vec<(String, String)> = ok_json(&reply)["data"]["result"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|series| {
            (series["metric"]["n"].to_string(), series["value"][1].as_str().expect("a text").to_owned())
        })
        .collect();
    found.sort();
    let found: Vec<&str> = found.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(found, ["1", "-0", "1e-07", "1e+21", "NaN", "+Inf", "-Inf", "0.30000000000000004"]);
    assert!(reply.body.contains("[1800000000.500,"), "{}", reply.body);
}
