//! The restrictions of embed tokens (docs/specification.md D7 and F 32 to 35).

use serde_json::{Value, json};

use crate::scope_law::point;
use crate::test_server::{Reply, Who, signed};
use crate::wire::{
    DataFixture, NOW, Series, describe, encode, encode_labels, escaped, nested, post_block, snappy,
};

/// Returns an organisation with two tenants. All metrics and labels of `bravo` contain its name.
async fn tenants() -> DataFixture {
    let fixture = DataFixture::new().await;
    let samples: Vec<(i64, f64)> = (0..=60).map(|n| ((NOW - 900 + n * 15) * 1_000, n as f64)).collect();
    let labels: [&[(&str, &str)]; 5] = [
        &[("__name__", "http_total"), ("job", "api"), ("tenant", "alpha")],
        &[("__name__", "http_total"), ("job", "web"), ("tenant", "alpha")],
        &[("__name__", "http_total"), ("job", "bravo-api"), ("tenant", "bravo")],
        &[("__name__", "bravo_total"), ("bravo_label", "x"), ("tenant", "bravo")],
        &[("__name__", "up"), ("job", "bravo-up")],
    ];
    let series: Vec<Series<'_>> = labels.iter().map(|labels| (*labels, &samples[..])).collect();
    let mut body = encode(&series);
    body.extend(describe("bravo_total", 1, "bravo's secret", ""));
    let reply = post_block(&fixture.server, &fixture.agent, snappy(&body)).await;
    assert_eq!(reply.status, 204, "{}", reply.body);
    fixture
}

fn alpha() -> Value {
    json!({ "match": ["tenant=\"alpha\""] })
}

#[tokio::test]
async fn no_listing_reveals_series_outside_of_the_scope() {
    let fixture = tenants().await;
    let token = fixture.embed(alpha()).await;
    let everything = escaped("{__name__!=\"\"}");
    let mut paths = vec![
        "metrics".to_owned(),
        "metrics?format=names".into(),
        "metrics?search=bravo".into(),
        "metrics?match=%7Btenant%3D%22bravo%22%7D".into(),
        "metrics/http_total/labels".into(),
        "labels/tenant/values".into(),
        "labels/job/values".into(),
        "labels/__name__/values".into(),
        "labels/job/values?match=%7Btenant%3D%22bravo%22%7D".into(),
        format!("prometheus/api/v1/series?match[]={everything}"),
        format!("prometheus/api/v1/series?match[]={}", escaped("{tenant=\"bravo\"}")),
        "prometheus/api/v1/labels".into(),
        "prometheus/api/v1/metadata".into(),
        "prometheus/api/v1/metadata?metric=bravo_total".into(),
    ];
    paths.extend(
        ["tenant", "job", "__name__", "bravo_label"]
            .map(|label| format!("prometheus/api/v1/label/{label}/values")),
    );
    for path in paths {
        let reply = fixture.get_as(&token, &path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        assert!(!reply.body.contains("bravo"), "{path}: {}", reply.body);
    }
    // A hidden name has the same response as a missing one.
    for (hidden, absent, code) in [
        ("metrics/bravo_total/labels", "metrics/nonsense/labels", "metric_not_found"),
        ("labels/bravo_label/values", "labels/nonsense/values", "label_not_found"),
    ] {
        let (hidden, absent) = (fixture.get_as(&token, hidden).await, fixture.get_as(&token, absent).await);
        hidden.is(404, code);
        assert_eq!(hidden.value()["detail"], absent.value()["detail"]);
    }
    let unknown = |reply: Reply| {
        reply.value()["warnings"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|w| w.as_str().is_some_and(|w| w.contains("not known")))
    };
    assert!(unknown(fixture.get_as(&token, "query/instant?metric=bravo_total").await));
    assert!(!unknown(fixture.get("query/instant?metric=bravo_total&time=1").await));
}

#[tokio::test]
async fn no_matcher_of_a_query_replaces_a_matcher_of_the_scope() {
    let fixture = tenants().await;
    let token = fixture.embed(alpha()).await;
    let exprs = [
        "{__name__=~\".+\"}",
        "{tenant=\"bravo\"}",
        "http_total{tenant=~\".*\"}",
        "http_total{tenant=\"evil\" or tenant=~\".*\"}",
        "{__name__=~\".+\"} or up",
        "label_replace({__name__=~\".+\"}, \"tenant\", \"alpha\", \"\", \"\")",
        "count_values(\"job\", {__name__=~\".+\"})",
        "sort({job=~\".*bravo.*\"})",
        "up unless on() vector(1) or {tenant!=\"alpha\"}",
    ];
    for expr in exprs {
        for path in ["query/expr-instant?expr=", "prometheus/api/v1/query?query="] {
            let reply = fixture.get_as(&token, &format!("{path}{}", escaped(expr))).await;
            assert!(!reply.value()["data"].to_string().contains("bravo"), "{expr}: {}", reply.body);
        }
    }
    let reply = fixture.get_as(&token, &format!("query/expr-instant?expr={}", escaped("absent(up)"))).await;
    assert_eq!(reply.value()["data"]["result"][0]["value"][1], "1", "the token cannot see that `up` exists");
    let warnings = reply.value()["warnings"].to_string();
    assert!(warnings.contains("this token grants only some of the series"), "{warnings}");
    let structured = format!("query/instant?metric=http_total&match={}", escaped("tenant=~\".*\""));
    assert!(!fixture.get_as(&token, &structured).await.body.contains("bravo-api"));
}

#[tokio::test]
async fn a_label_whose_name_needs_quotes_restricts_a_token() {
    let fixture = DataFixture::new().await;
    let samples: Vec<(i64, f64)> = (0..=60).map(|n| ((NOW - 900 + n * 15) * 1_000, n as f64)).collect();
    let labels: [&[(&str, &str)]; 4] = [
        &[("__name__", "http_total"), ("job", "api"), ("la.\"bel", "é"), ("la.bel", "é")],
        &[("__name__", "http_total"), ("job", "bravo"), ("la.\"bel", "bravo"), ("la.bel", "bravo")],
        &[("__name__", "http_total"), ("bravo", "bravo")],
        &[("__name__", "bravo_total"), ("bel", "é"), ("la", "é")],
    ];
    let series: Vec<Series<'_>> = labels.iter().map(|labels| (*labels, &samples[..])).collect();
    fixture.write(&series).await;
    let lock = |label: &str, values: Value| {
        json!({ "endpoints": ["expr", "labels", "metrics"],
        "dashboard": { "uid": "d", "locked": { "host": { "label": label, "values": values } } } })
    };
    let restrictions = [
        json!({ "match": ["\"la.bel\"=\"é\""] }),
        json!({ "match": ["'la.bel'=~\"é|x.*\""] }),
        json!({ "match": ["`la.\"bel`=\"é\""] }),
        json!({ "match": ["\"la.\\\"bel\" =~ \"\u{e9}\""] }),
        lock("la.bel", json!(["é"])),
        lock("la.\"bel", json!(["é", "x"])),
    ];
    let exprs = [
        "{__name__=~\".+\"}",
        "{\"la.bel\"=\"bravo\"}",
        "http_total{\"la.bel\"=~\".*\", \"la.\\\"bel\"=~\".*\"}",
        "http_total{\"la.bel\"=\"\"}",
        "http_total{\"la.bel\"=\"x\" or \"la.bel\"=~\".*\"}",
        "label_replace({__name__=~\".+\"}, \"la.bel\", \"é\", \"\", \"\")",
        "{\"la.bel\"!=\"é\"} or bravo_total",
    ];
    for restriction in restrictions {
        let exact = restriction.to_string();
        let token = fixture.embed(restriction).await;
        for expr in exprs {
            for path in ["query/expr-instant?expr=", "prometheus/api/v1/query?query="] {
                let reply = fixture.get_as(&token, &format!("{path}{}", escaped(expr))).await;
                let data = reply.value()["data"].to_string();
                assert!(!data.contains("bravo"), "{exact}: {expr}: {}", reply.body);
            }
        }
        for path in ["series?match[]=%7B__name__!%3D%22%22%7D", "labels", "label/job/values"] {
            let reply = fixture.get_as(&token, &format!("prometheus/api/v1/{path}")).await;
            assert_eq!(reply.status, 200, "{exact}: {}", reply.body);
            assert!(!reply.body.contains("bravo"), "{exact}: {path}: {}", reply.body);
        }
        let own = fixture.get_as(&token, "prometheus/api/v1/query?query=count(http_total)").await;
        assert_eq!(own.value()["data"]["result"][0]["value"][1], "1", "{exact}: {}", own.body);
    }
}

#[tokio::test]
async fn no_query_reads_samples_older_than_the_lookback_of_a_token() {
    let fixture = tenants().await;
    let token = fixture.embed(json!({ "max_lookback_s": 300 })).await;
    let empty = [
        ("http_total offset 10y".to_owned(), NOW),
        ("http_total offset 11m".into(), NOW),
        ("http_total @ 0".into(), NOW),
        (format!("http_total @ {}", NOW - 600), NOW),
        ("http_total".into(), NOW - 600),
        ("http_total offset -1m".into(), NOW - 600),
        ("max_over_time(http_total[5m] offset 10m)".into(), NOW),
    ];
    for (expr, time) in empty {
        let reply =
            fixture.get_as(&token, &format!("query/expr-instant?expr={}&time={time}", escaped(&expr))).await;
        assert_eq!(reply.value()["data"]["result"], json!([]), "{expr}: {}", reply.body);
    }
    let least = |reply: Reply| -> f64 {
        let value = reply.value();
        value["data"]["result"][0]["value"][1].as_str().expect("a value").parse().expect("a number")
    };
    let oldest = (NOW - 300) as f64;
    for expr in ["min(min_over_time(timestamp(up)[1h:15s]))", "min(timestamp(up @ end()))"] {
        let found =
            least(fixture.get_as(&token, &format!("query/expr-instant?expr={}", escaped(expr))).await);
        assert!(found >= oldest, "{expr}: {found} is older than {oldest}");
    }
    let count = least(
        fixture
            .get_as(&token, &format!("query/expr-instant?expr={}", escaped("count_over_time(up[1h])")))
            .await,
    );
    assert!(count <= 21.0, "{count}");
}

/// A range that ends before the lookback starts is empty, even if a series has samples before and
/// after it. The token must not learn that the series existed before.
#[tokio::test]
async fn no_listing_reveals_series_before_the_lookback_of_a_token() {
    let fixture = tenants().await;
    let token = fixture.embed(json!({ "max_lookback_s": 300 })).await;
    let (start, end) = (NOW - 800, NOW - 400);
    for path in [
        format!("metrics?start={start}&end={end}"),
        format!("labels/job/values?start={start}&end={end}"),
        format!("metrics/http_total/labels?start={start}&end={end}"),
        format!("prometheus/api/v1/series?match[]=http_total&start={start}&end={end}"),
        format!("prometheus/api/v1/labels?start={start}&end={end}"),
        format!("prometheus/api/v1/label/job/values?end={end}"),
    ] {
        assert_ne!(fixture.get(&path).await.value()["data"], json!([]), "a session sees series: {path}");
        let reply = fixture.get_as(&token, &path).await;
        match reply.status.as_u16() {
            200 => assert_eq!(reply.value()["data"], json!([]), "{path}"),
            _ => reply.is(404, "label_not_found"),
        }
    }
    let old = format!("query/estimate?expr=http_total&time={end}");
    assert_eq!(fixture.get_as(&token, &old).await.value()["data"]["series"], 0);
    // The lookback starts two seconds after a sample; the next sample is after the requested time.
    let token = fixture.embed(json!({ "max_lookback_s": 298 })).await;
    let between = format!("query/estimate?expr=http_total&time={}", NOW - 290);
    assert_ne!(fixture.get(&between).await.value()["data"]["series"], 0);
    assert_eq!(fixture.get_as(&token, &between).await.value()["data"]["series"], 0);
    // Listings that end at this time are empty as well, although the series have samples before and
    // after.
    let end = NOW - 290;
    for path in [
        format!("metrics?end={end}"),
        format!("metrics?format=names&match=up&end={end}"),
        format!("metrics/http_total/labels?end={end}"),
        format!("labels/job/values?end={end}"),
        format!("prometheus/api/v1/series?match[]=http_total&end={end}"),
        format!("prometheus/api/v1/labels?end={end}"),
        format!("prometheus/api/v1/label/job/values?end={end}"),
    ] {
        assert_ne!(fixture.get(&path).await.value()["data"], json!([]), "a session sees series: {path}");
        let reply = fixture.get_as(&token, &path).await;
        assert_eq!(reply.value()["data"], json!([]), "{path}: {}", reply.body);
    }
}

/// A token that lists expressions grants their results, but not the names, the number or the
/// exemplars of the series that they read.
#[tokio::test]
async fn a_list_of_expressions_grants_no_information_about_their_series() {
    let fixture = tenants().await;
    let expr = "sum(http_total)";
    let token = fixture.embed(json!({ "endpoints": ["expr"], "exprs": [expr] })).await;
    let text = escaped(expr);
    let reply = fixture.get_as(&token, &format!("query/expr-instant?expr={text}")).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(
        reply.value()["stats"]["samples"],
        Value::Null,
        "the number of samples would reveal the number of series: {}",
        reply.body
    );
    for path in [
        format!("query/expr-instant?expr={text}&explain=true"),
        format!("query/expr-range?expr={text}&explain=true"),
        format!("query/estimate?expr={text}"),
    ] {
        fixture.get_as(&token, &path).await.is(403, "embed_restricted");
    }
    let mount = format!("prometheus/api/v1/query_exemplars?query={text}");
    let reply = fixture.get_as(&token, &mount).await;
    assert_eq!((reply.status.as_u16(), reply.text("errorType")), (403, "forbidden".into()), "{}", reply.body);
    let whole = fixture.embed(json!({ "endpoints": ["expr"] })).await;
    assert_eq!(fixture.get_as(&whole, &mount).await.status, 200);
    let reply = fixture.get_as(&whole, &format!("query/expr-instant?expr={text}&explain=true")).await;
    assert!(reply.value()["stats"]["samples"].as_u64() > Some(0), "{}", reply.body);
}

/// Exemplars have a time range of their own, and a request can set the lookback of instant
/// selectors.
#[tokio::test]
async fn exemplars_and_the_lookback_are_limited_to_the_range_of_a_token() {
    let fixture = tenants().await;
    let mut series = encode_labels(&[("__name__", "traced"), ("tenant", "alpha")]);
    nested(2, &point(1, 2, 1.0, NOW * 1_000), &mut series);
    for (trace, ago) in [("long-ago", 800), ("just-now", 100)] {
        let mut exemplar = encode_labels(&[("trace", trace)]);
        exemplar.extend(point(2, 3, 1.0, (NOW - ago) * 1_000));
        nested(3, &exemplar, &mut series);
    }
    let mut body = Vec::new();
    nested(1, &series, &mut body);
    let reply = post_block(&fixture.server, &fixture.agent, snappy(&body)).await;
    assert_eq!(reply.status, 204, "{}", reply.body);
    let token = fixture.embed(json!({ "max_range_s": 600 })).await;
    let exemplars = "prometheus/api/v1/query_exemplars?query=traced";
    let all = fixture.get(exemplars).await.body;
    assert!(all.contains("long-ago") && all.contains("just-now"), "{all}");
    let some = fixture.get_as(&token, exemplars).await.body;
    assert!(!some.contains("long-ago") && some.contains("just-now"), "{some}");
    for (path, status) in [
        (format!("{exemplars}&start={}&end={NOW}", NOW - 601), 403),
        (format!("{exemplars}&start={}", NOW - 601), 403),
        (format!("{exemplars}&start=0"), 403),
        (format!("{exemplars}&start={}&end={}", NOW - 900, NOW - 300), 200),
        ("prometheus/api/v1/query?query=up&lookback_delta=601s".into(), 403),
        ("prometheus/api/v1/query?query=up&lookback_delta=10m".into(), 200),
        (
            format!("prometheus/api/v1/query_range?query=up&start={NOW}&end={NOW}&step=60&lookback_delta=1y"),
            403,
        ),
    ] {
        let reply = fixture.get_as(&token, &path).await;
        assert_eq!(reply.status.as_u16(), status, "{path}: {}", reply.body);
    }
}

#[tokio::test]
async fn a_token_can_use_only_its_endpoints() {
    let fixture = tenants().await;
    let token = fixture.embed(json!({ "endpoints": ["range"] })).await;
    assert_eq!(fixture.get_as(&token, "query/range?metric=up").await.status, 200);
    for path in [
        "query/instant?metric=up",
        "query/range?expr=up",
        "query/expr-instant?expr=up",
        "query/expr-range?expr=up",
        "metrics",
        "metrics/up/labels",
        "labels/job/values",
    ] {
        fixture.get_as(&token, path).await.is(403, "embed_restricted");
    }
    for path in [
        "query?query=up",
        "query_range?query=up&start=1&end=2&step=1",
        "series?match[]=up",
        "labels",
        "label/job/values",
        "metadata",
        "format_query?query=up",
    ] {
        let reply = fixture.get_as(&token, &format!("prometheus/api/v1/{path}")).await;
        assert_eq!((reply.status.as_u16(), reply.text("errorType")), (403, "forbidden".into()), "{path}");
    }
}

#[tokio::test]
async fn a_token_grants_metrics_by_glob_pattern() {
    let fixture = tenants().await;
    let token = fixture.embed(json!({ "metrics": ["http_*"] })).await;
    assert_eq!(fixture.get_as(&token, "query/instant?metric=http_total").await.status, 200);
    fixture.get_as(&token, "query/instant?metric=up").await.is(403, "metric_not_allowed");
    fixture.get_as(&token, "query/range?metric=nonsense").await.is(403, "metric_not_allowed");
    fixture.get_as(&token, "metrics/up/labels").await.is(404, "metric_not_found");
    let reply = fixture.get_as(&token, "query/expr-instant?expr=up").await;
    assert_eq!(reply.value()["data"]["result"], json!([]));
}

#[tokio::test]
async fn listed_expressions_are_compared_in_canonical_form() {
    let fixture = tenants().await;
    let minted = fixture.embed(json!({ "exprs": ["sum by(job)  (rate(http_total[300s]))"] })).await;
    // The server does not see the claims of an offline token before its use. An invalid expression
    // in it grants nothing.
    let (key, secret) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["embed"] })).await;
    let now = fixture.server.clock.now().as_s();
    let exprs = json!({ "exprs": ["sum  (rate(http_total[300s])) by(job)", "up{"] });
    let claims = json!({ "aud": "ms-embed", "org": "acme", "iat": now, "exp": now + 60, "ms": exprs });
    let offline = Who::Bearer(signed(&key, &secret, &claims));
    for token in [minted, offline] {
        check_listed_expressions(&fixture, &token).await;
    }
}

async fn check_listed_expressions(fixture: &DataFixture, token: &Who) {
    for same in [
        "sum by (job) (rate(http_total[5m]))",
        "sum(rate(http_total[5m])) by (job)",
        " sum by(job)(rate(http_total[5m])) # x",
    ] {
        let reply = fixture.get_as(token, &format!("query/expr-instant?expr={}", escaped(same))).await;
        assert_eq!(reply.status, 200, "{same}: {}", reply.body);
    }
    for other in ["sum by (job) (rate(http_total[6m]))", "sum by (job) (rate(http_total[5m])) or up", "up"] {
        fixture
            .get_as(token, &format!("query/expr-instant?expr={}", escaped(other)))
            .await
            .is(403, "embed_restricted");
        let reply = fixture.get_as(token, &format!("prometheus/api/v1/query?query={}", escaped(other))).await;
        assert_eq!(reply.status, 403, "{other}");
    }
    // A list of expressions implies the endpoints that take expressions.
    for path in ["query/instant?metric=up", "metrics"] {
        fixture.get_as(token, path).await.is(403, "embed_restricted");
    }
}

#[tokio::test]
async fn a_token_limits_range_and_step() {
    let fixture = tenants().await;
    let token = fixture.embed(json!({ "max_range_s": 600, "min_step_s": 30 })).await;
    let reply = fixture.get_as(&token, "query/range?metric=up").await;
    assert_eq!(
        reply.value()["query"],
        json!({ "expr": "up", "start": NOW - 600, "end": NOW, "step": 30 }),
        "{}",
        reply.body
    );
    for path in [
        "query/range?metric=up&start=now-601s&step=60",
        "query/range?metric=up&start=now-10m&step=29",
        "query/expr-range?expr=up&start=now-1h",
    ] {
        fixture.get_as(&token, path).await.is(403, "embed_restricted");
    }
    let mount = |start: i64, step: i64| {
        format!("prometheus/api/v1/query_range?query=up&start={start}&end={NOW}&step={step}")
    };
    assert_eq!(fixture.get_as(&token, &mount(NOW - 600, 30)).await.status, 200);
    assert_eq!(fixture.get_as(&token, &mount(NOW - 601, 30)).await.status, 403);
    assert_eq!(fixture.get_as(&token, &mount(NOW - 600, 29)).await.status, 403);
    // Ranges and steps in brackets are limited as well, on every endpoint.
    for expr in [
        "up[601s]",
        "max_over_time(up[11m])",
        "max_over_time(up[10m:29s])",
        "up[11m:1m]",
        "sum(rate(up[5m])) + on() topk(1, max_over_time(rate(up[1m])[10m:15s]))",
        "max_over_time(up[10m + 1s])",
    ] {
        let text = escaped(expr);
        for path in [
            format!("query/expr-instant?expr={text}"),
            format!("query/expr-instant?expr={text}&explain=true"),
            format!("query/estimate?expr={text}"),
        ] {
            fixture.get_as(&token, &path).await.is(403, "embed_restricted");
        }
        let mount = fixture.get_as(&token, &format!("prometheus/api/v1/query?query={text}")).await;
        assert_eq!((mount.status.as_u16(), mount.text("errorType")), (403, "forbidden".into()), "{expr}");
    }
    fixture.get_as(&token, "query/instant?metric=up&fn=rate&window=11m").await.is(403, "embed_restricted");
    for path in [
        "query/expr-instant?expr=max_over_time(up%5B10m%3A30s%5D)",
        "query/expr-instant?expr=up%5B10m%5D",
        "query/expr-instant?expr=max_over_time(up%5B10m%3A%5D)",
        "query/instant?metric=up&fn=rate",
    ] {
        assert_eq!(fixture.get_as(&token, path).await.status, 200, "{path}");
    }
    let minute = fixture.embed(json!({ "max_range_s": 60 })).await;
    let reply = fixture.get_as(&minute, "query/range?metric=up&fn=rate").await;
    assert_eq!(reply.value()["query"]["expr"], "rate(up[1m])", "the default fits: {}", reply.body);
}

#[test]
fn existing_and_missing_organisations_have_the_same_response_for_outsiders() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let fixture = tenants().await;
        let token = fixture.embed(json!({})).await;
        for path in ["metrics", "query/range?metric=up", "query/expr-instant?expr=up", "labels/job/values"] {
            let ask = async |who: &Who, slug: &str| {
                fixture.server.get(&format!("/api/v1/orgs/{slug}/{path}"), who).await
            };
            for slug in ["other", "solo"] {
                let reply = ask(&token, slug).await;
                reply.is(403, "org_mismatch");
                ask(&fixture.cabinet, slug).await.is(404, "org_not_found");
            }
        }
    });
}
