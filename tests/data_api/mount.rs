//! The Prometheus mount (docs/specification.md C6).

use axum::body::Body;
use serde_json::{Value, json};

use crate::test_server::{Reply, Who, ask};
use crate::wire::{
    DataFixture, NOW, describe, encode, encode_labels, escaped, nested, post_block, snappy, varint,
};

const MOUNT: &str = "prometheus/api/v1";

async fn reader(fixture: &DataFixture) -> Who {
    let (_, secret) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["read"] })).await;
    Who::Basic("anything".into(), secret)
}

async fn post_form(fixture: &DataFixture, who: &Who, path: &str, content_type: &str, form: &str) -> Reply {
    let request = ask("POST", &format!("/api/v1/orgs/acme/{MOUNT}/{path}"), who)
        .header("content-type", content_type)
        .body(Body::from(form.to_owned()))
        .expect("a request");
    fixture.server.send(request).await
}

async fn ask_mount(fixture: &DataFixture, who: &Who, path: &str) -> Value {
    let reply = fixture.get_as(who, &format!("{MOUNT}/{path}")).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    reply.value()
}

fn is_refused(reply: &Reply, status: u16, kind: &str, error: &str) {
    assert_eq!(reply.status, status, "{}", reply.body);
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.value(), json!({ "status": "error", "errorType": kind, "error": error }));
}

#[tokio::test]
async fn query_responses_have_the_format_of_prometheus() {
    let fixture = DataFixture::with_shop().await;
    let who = reader(&fixture).await;
    let cases = [
        (
            "query?query=1%2B1&time=4",
            r#"{"status":"success","data":{"resultType":"scalar","result":[4,"2"]}}"#,
        ),
        (
            "query?query=%22a%22&time=4.5",
            r#"{"status":"success","data":{"resultType":"string","result":[4.5,"a"]}}"#,
        ),
        ("query?query=nonsense", r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#),
        (
            "query?query=sum(up)",
            r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1800000000,"2"]}]}}"#,
        ),
        (
            "query_range?query=sum(up)&start=1799999970&end=1800000000&step=15",
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1799999970,"2"],[1799999985,"2"],[1800000000,"2"]]}]}}"#,
        ),
        (
            "query?query=up%7Bjob%3D%22api%22%7D%5B16s%5D",
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"up","job":"api"},"values":[[1799999985,"1"],[1800000000,"1"]]}]}}"#,
        ),
    ];
    for (path, body) in cases {
        let reply = fixture.get_as(&who, &format!("{MOUNT}/{path}")).await;
        assert_eq!(reply.body, body, "{path}");
    }
}

#[tokio::test]
async fn sessions_api_keys_and_tokens_can_read() {
    let fixture = DataFixture::with_shop().await;
    let Who::Basic(_, secret) = reader(&fixture).await else { unreachable!("a key") };
    let token = fixture.embed(json!({})).await;
    for who in [&fixture.cabinet, &Who::Bearer(secret), &token] {
        assert_eq!(
            ask_mount(&fixture, who, "query?query=sum(up)").await["data"]["result"][0]["value"][1],
            "2"
        );
    }
    let reply = fixture.get_as(&fixture.agent, &format!("{MOUNT}/query?query=up")).await;
    is_refused(&reply, 403, "forbidden", "this API key lacks the scope read");
    assert_eq!(fixture.get_as(&Who::Nobody, &format!("{MOUNT}/query?query=up")).await.status, 401);
}

#[tokio::test]
async fn url_and_form_parameters_are_one_list_whatever_the_content_type() {
    let fixture = DataFixture::with_shop().await;
    let who = reader(&fixture).await;
    let form = "application/x-www-form-urlencoded";
    for (path, content_type, body) in [
        ("query", form, "query=sum%28up%29"),
        ("query?query=sum(up)", "application/json", ""),
        ("query?time=1800000000", "text/plain", "query=sum(up)"),
    ] {
        let reply = post_form(&fixture, &who, path, content_type, body).await;
        assert_eq!(
            reply.value()["data"]["result"][0]["value"],
            json!([NOW, "2"]),
            "{path} {body}: {}",
            reply.body
        );
    }
    let reply = post_form(&fixture, &who, "query?query=up", form, "query=up").await;
    is_refused(&reply, 400, "bad_data", "parameter \"query\" is given 2 times");
    let range = "query=sum(up)&start=1799999970&end=1800000000&step=30";
    let reply = post_form(&fixture, &who, "query_range", form, range).await;
    assert_eq!(reply.value()["data"]["result"][0]["values"], json!([[NOW - 30, "2"], [NOW, "2"]]));
    let reply = post_form(
        &fixture,
        &who,
        "series",
        form,
        "match[]=up&match[]=http_requests_total%7Btenant%3D%22b%22%7D",
    )
    .await;
    assert_eq!(reply.value()["data"].as_array().expect("a list").len(), 3);
}

#[tokio::test]
async fn errors_have_the_format_and_the_messages_of_prometheus() {
    let fixture = DataFixture::with_shop().await;
    let who = reader(&fixture).await;
    let cases = [
        (
            "query_range?query=up&end=1&step=1",
            "invalid parameter \"start\": cannot parse \"\" to a valid timestamp",
        ),
        (
            "query_range?query=up&start=x&end=1&step=1",
            "invalid parameter \"start\": cannot parse \"x\" to a valid timestamp",
        ),
        (
            "query_range?query=up&start=2&end=1&step=1",
            "invalid parameter \"end\": end timestamp must not be before start time",
        ),
        (
            "query_range?query=up&start=1&end=2&step=x",
            "invalid parameter \"step\": cannot parse \"x\" to a valid duration",
        ),
        (
            "query_range?query=up&start=1&end=2&step=0",
            "invalid parameter \"step\": zero or negative query resolution step widths are not accepted. Try a positive integer",
        ),
        (
            "query_range?query=up&start=1&end=11002&step=1",
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)",
        ),
        (
            "query_range?query=up%5B5m%5D&start=1&end=2&step=1",
            "invalid parameter \"query\": invalid expression type \"range vector\" for range query, must be Scalar or instant Vector",
        ),
        ("series", "no match[] parameter provided"),
    ];
    for (path, error) in cases {
        is_refused(&fixture.get_as(&who, &format!("{MOUNT}/{path}")).await, 400, "bad_data", error);
    }
    for (path, parameter) in [
        ("query?query=up{", "query"),
        ("query", "query"),
        ("labels?match[]=up{", "match[]"),
        ("series?match[]={}", "match[]"),
    ] {
        let reply =
            fixture.get_as(&who, &format!("{MOUNT}/{}", path.replace('{', "%7B").replace('}', "%7D"))).await;
        assert_eq!(
            (reply.status.as_u16(), reply.text("errorType")),
            (400, "bad_data".into()),
            "{}",
            reply.body
        );
        let error = reply.text("error");
        assert!(
            error.starts_with(&format!("invalid parameter \"{parameter}\": "))
                && error.contains("parse error: "),
            "{error}"
        );
    }
    let points = ask_mount(&fixture, &who, "query_range?query=vector(1)&start=0&end=11000&step=1").await;
    assert_eq!(points["data"]["result"][0]["values"].as_array().expect("a list").len(), 11_001);
}

#[tokio::test]
async fn listings_have_the_format_of_prometheus() {
    let fixture = DataFixture::with_shop().await;
    let who = reader(&fixture).await;
    let cases = [
        ("labels", json!(["__name__", "job", "tenant"])),
        ("labels?match[]=up", json!(["__name__", "job"])),
        ("label/job/values", json!(["api", "web"])),
        ("label/__name__/values", json!(["http_requests_total", "up"])),
        ("label/nonsense/values", json!([])),
        ("label/U__job/values", json!(["api", "web"])),
        ("label/tenant/values?match[]=http_requests_total%7Bjob%3D%22web%22%7D", json!(["a"])),
        (
            "series?match[]=up",
            json!([{ "__name__": "up", "job": "api" }, { "__name__": "up", "job": "web" }]),
        ),
        ("series?match[]=up&start=1&end=2", json!([])),
        ("series?match[]=up&start=2&end=1", json!([])),
        ("labels?start=2000000000&end=1", json!([])),
        ("label/job/values?start=2000000000&end=1", json!([])),
        ("query_exemplars?query=up", json!([])),
        ("rules", json!({ "groups": [] })),
        ("alerts", json!({ "alerts": [] })),
    ];
    let end_first = fixture.get("labels/job/values?start=2&end=1").await;
    end_first.is(400, "invalid_parameter");
    for (path, data) in cases {
        assert_eq!(
            ask_mount(&fixture, &who, path).await,
            json!({ "status": "success", "data": data }),
            "{path}"
        );
        fixture.server.pass(std::time::Duration::from_millis(10));
    }
    // A time range that ends in the future, as promtool sends it.
    let wide = format!("series?match[]=up&start={}&end={}.1234567", NOW - 31_536_000, NOW + 31_536_000);
    assert_eq!(ask_mount(&fixture, &who, &wide).await["data"].as_array().expect("a list").len(), 2);
}

#[tokio::test]
async fn the_cardinality_is_reported_within_the_scope() {
    let fixture = DataFixture::with_shop().await;
    let who = reader(&fixture).await;
    let of = |name: &str, value: u64| json!({ "name": name, "value": value });
    let data = ask_mount(&fixture, &who, "status/tsdb").await["data"].clone();
    let head = json!({ "numSeries": 5, "numLabelPairs": 6, "chunkCount": 5, "minTime": (NOW - 900) * 1_000, "maxTime": NOW * 1_000 });
    assert_eq!(data["headStats"], head);
    assert_eq!(data["seriesCountByMetricName"], json!([of("http_requests_total", 3), of("up", 2)]));
    let values = json!([of("__name__", 2), of("job", 2), of("tenant", 2)]);
    assert_eq!(data["labelValueCountByLabelName"], values);
    assert_eq!(data["memoryInBytesByLabelName"][0], of("__name__", 21));
    assert_eq!(data["seriesCountByLabelValuePair"][0], of("__name__=http_requests_total", 3));
    assert_eq!(data["seriesCountByLabelValuePair"].as_array().expect("a list").len(), 6);
    let one = ask_mount(&fixture, &who, "status/tsdb?limit=1").await;
    assert_eq!(one["data"]["labelValueCountByLabelName"], json!([of("__name__", 2)]));
    let token = fixture.embed(json!({ "match": ["tenant=\"b\""] })).await;
    let scoped = ask_mount(&fixture, &token, "status/tsdb").await;
    let (data, pairs) = (&scoped["data"], &scoped["data"]["seriesCountByLabelValuePair"]);
    assert_eq!((&data["headStats"]["numSeries"], pairs.as_array().expect("a list").len()), (&json!(1), 3));
    assert!(!scoped.to_string().contains("web") && !scoped.to_string().contains("up\""), "{scoped}");
    assert_eq!(fixture.get_as(&who, &format!("{MOUNT}/status/tsdb?limit=0")).await.status, 400);
    assert_eq!(fixture.get_as(&Who::Nobody, &format!("{MOUNT}/status/tsdb")).await.status, 401);
    let range_only = fixture.embed(json!({ "endpoints": ["range"] })).await;
    assert_eq!(fixture.get_as(&range_only, &format!("{MOUNT}/status/tsdb")).await.status, 403);
}

#[tokio::test]
async fn exemplars_belong_to_the_series_that_an_expression_selects() {
    let fixture = DataFixture::new().await;
    let who = reader(&fixture).await;
    let series = |job: &str, trace: &str| {
        let mut message = encode_labels(&[("__name__", "requests_total"), ("job", job)]);
        let mut exemplar = encode_labels(&[("trace_id", trace)]);
        exemplar.push(2 << 3 | 1);
        exemplar.extend_from_slice(&1.5f64.to_le_bytes());
        exemplar.push(3 << 3);
        varint(u64::try_from(NOW * 1_000 - 500).expect("after 1970"), &mut exemplar);
        nested(3, &exemplar, &mut message);
        let mut sample = vec![1 << 3 | 1];
        sample.extend_from_slice(&7.0f64.to_le_bytes());
        sample.push(2 << 3);
        varint(u64::try_from(NOW * 1_000).expect("after 1970"), &mut sample);
        nested(2, &sample, &mut message);
        message
    };
    let mut body = Vec::new();
    nested(1, &series("api", "abc"), &mut body);
    nested(1, &series("web", "def"), &mut body);
    let reply = post_block(&fixture.server, &fixture.agent, snappy(&body)).await;
    assert_eq!(reply.status, 204, "{}", reply.body);
    let ask = |query: &str, more: &str| format!("query_exemplars?query={}{more}", escaped(query));
    let one = |job: &str, trace: &str| {
        json!({
            "seriesLabels": { "__name__": "requests_total", "job": job },
            "exemplars": [{ "labels": { "trace_id": trace }, "value": "1.5", "timestamp": 1_799_999_999.5 }],
        })
    };
    let (api, web) = (one("api", "abc"), one("web", "def"));
    let api_only = "sum(rate(requests_total{job=\"api\"}[5m])) / 2";
    for (path, expected) in [
        (ask("requests_total", ""), json!([api, web])),
        (ask(api_only, ""), json!([api])),
        (ask("requests_total{job=\"web\"} or requests_total{job=\"api\"}", ""), json!([api, web])),
        (ask("requests_total", "&start=1&end=2"), json!([])),
        (ask("1 + 1", ""), json!([])),
    ] {
        assert_eq!(ask_mount(&fixture, &who, &path).await["data"], expected, "{path}");
        fixture.server.pass(std::time::Duration::from_millis(10));
    }
    let token = fixture.embed(json!({ "match": ["job=\"web\""] })).await;
    assert_eq!(ask_mount(&fixture, &token, &ask("requests_total", "")).await["data"], json!([web]));
    assert_eq!(fixture.get_as(&who, &format!("{MOUNT}/query_exemplars")).await.status, 400);
}

#[tokio::test]
async fn a_limit_truncates_with_a_warning_and_zero_means_no_limit() {
    let fixture = DataFixture::with_shop().await;
    let who = reader(&fixture).await;
    let paths = [
        "query?query=up",
        "query_range?query=up&start=1799999970&end=1800000000&step=15",
        "series?match[]=up",
        "labels?x=1",
        "label/job/values?x=1",
    ];
    for path in paths {
        let count = |value: &Value| {
            value["data"]["result"].as_array().or(value["data"].as_array()).expect("a list").len()
        };
        let whole = ask_mount(&fixture, &who, path).await;
        assert_eq!((count(&whole) >= 2, whole.get("warnings")), (true, None), "{path}");
        for limit in [0, 1_000] {
            assert_eq!(ask_mount(&fixture, &who, &format!("{path}&limit={limit}")).await, whole, "{path}");
        }
        let truncated = ask_mount(&fixture, &who, &format!("{path}&limit=1")).await;
        assert_eq!(
            (count(&truncated), &truncated["warnings"]),
            (1, &json!(["results truncated due to limit"])),
            "{path}"
        );
        assert_eq!(fixture.get_as(&who, &format!("{MOUNT}/{path}&limit=-1")).await.status, 400);
    }
}

#[tokio::test]
async fn metadata_is_returned_as_senders_wrote_it() {
    let fixture = DataFixture::with_shop().await;
    let who = reader(&fixture).await;
    let mut body = encode(&[]);
    body.extend(describe("up", 2, "Whether it \"answers\"", ""));
    body.extend(describe("http_requests", 1, "Requests", "requests"));
    assert_eq!(post_block(&fixture.server, &fixture.agent, snappy(&body)).await.status, 204);
    let up = json!([{ "type": "gauge", "help": "Whether it \"answers\"", "unit": "" }]);
    let value = ask_mount(&fixture, &who, "metadata?metric=up").await;
    assert_eq!(value, json!({ "status": "success", "data": { "up": up } }));
    assert_eq!(ask_mount(&fixture, &who, "metadata").await["data"]["up"], up);
}

#[tokio::test]
async fn endpoints_that_clients_probe_exist() {
    let fixture = DataFixture::with_shop().await;
    let who = reader(&fixture).await;
    let info = ask_mount(&fixture, &who, "status/buildinfo").await;
    assert!(info["data"]["version"].as_str().expect("a text").starts_with("3."));
    assert_eq!(info["data"].get("features"), None);
    for path in ["prometheus", "prometheus/", "prometheus/-/healthy", "prometheus/-/ready"] {
        assert_eq!(fixture.get_as(&who, path).await.status, 200, "{path}");
    }
    assert_eq!(fixture.get_as(&who, "prometheus/-/ready").await.body, "promlet is ready.\n");
    assert_eq!(fixture.get_as(&who, "prometheus/-/healthy").await.body, "promlet is healthy.\n");
    assert_eq!(fixture.get_as(&Who::Nobody, "prometheus").await.status, 401);
    let format = format!("format_query?query={}", escaped("sum(rate( foo[5m]))by(x)"));
    assert_eq!(ask_mount(&fixture, &who, &format).await["data"], "sum by (x) (rate(foo[5m]))");
}

#[tokio::test]
async fn a_request_can_set_the_lookback() {
    let fixture = DataFixture::with_shop().await;
    let who = reader(&fixture).await;
    let count = |value: Value| value["data"]["result"].as_array().expect("a list").len();
    let later = NOW + 200;
    assert_eq!(count(ask_mount(&fixture, &who, &format!("query?query=up&time={later}")).await), 2);
    assert_eq!(
        count(ask_mount(&fixture, &who, &format!("query?query=up&time={later}&lookback_delta=1m")).await),
        0
    );
}

#[tokio::test]
async fn parse_query_returns_the_tree_of_prometheus() {
    let fixture = DataFixture::with_shop().await;
    let who = reader(&fixture).await;
    let reply = ask_mount(&fixture, &who, &format!("parse_query?query={}", escaped("-(a + 1)"))).await;
    let selector = json!({
        "type": "vectorSelector", "name": "a", "offset": 0, "timestamp": null, "startOrEnd": null,
        "matchers": [{ "name": "__name__", "value": "a", "type": "=" }],
    });
    let sum = json!({
        "type": "binaryExpr", "op": "+", "lhs": selector, "bool": false, "matching": null,
        "rhs": { "type": "numberLiteral", "val": "1" },
    });
    let inner = json!({ "type": "parenExpr", "expr": sum });
    assert_eq!(reply["data"], json!({ "type": "unaryExpr", "op": "-", "expr": inner }));
    let reply =
        ask_mount(&fixture, &who, &format!("parse_query?query={}", escaped("up{b=\"c\"} * inf"))).await;
    let matcher = |name: &str, value: &str| json!({ "name": name, "value": value, "type": "=" });
    assert_eq!(reply["data"]["lhs"]["matchers"], json!([matcher("b", "c"), matcher("__name__", "up")]));
    assert_eq!(reply["data"]["rhs"]["val"], "+Inf");
    let reply = ask_mount(&fixture, &who, &format!("format_query?query={}", escaped("up*inf"))).await;
    assert_eq!(reply["data"], "up * +Inf");
    let wrong = fixture.get_as(&who, &format!("{MOUNT}/parse_query?query=up%7B")).await;
    assert_eq!((wrong.status.as_u16(), wrong.text("errorType")), (400, "bad_data".into()));
    let token = fixture.embed(json!({ "exprs": ["sum(up)"] })).await;
    assert_eq!(fixture.get_as(&token, &format!("{MOUNT}/parse_query?query=up")).await.status, 403);
}

#[tokio::test]
async fn status_pages_have_the_members_that_clients_read() {
    let fixture = DataFixture::with_shop().await;
    let who = reader(&fixture).await;
    assert_eq!(ask_mount(&fixture, &who, "status/config").await["data"], json!({ "yaml": "" }));
    let flags = ask_mount(&fixture, &who, "status/flags").await["data"].clone();
    assert_eq!((&flags["query.lookback-delta"], &flags["query.timeout"]), (&json!("5m"), &json!("30s")));
    let info = ask_mount(&fixture, &who, "status/runtimeinfo").await["data"].clone();
    assert!(info["startTime"].is_string() && info["reloadConfigSuccess"] == true, "{info}");
    assert_eq!((&info["CWD"], &info["hostname"]), (&json!(""), &json!("")), "no secrets of the host");
    let replay = ask_mount(&fixture, &who, "status/walreplay").await["data"].clone();
    assert_eq!(replay, json!({ "min": 0, "max": 0, "current": 0 }));
    assert_eq!(ask_mount(&fixture, &who, "notifications").await["data"], json!([]));
    let metrics = fixture.get_as(&who, "prometheus/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.body.contains("prometheus_build_info{version=\"3.5.0\"} 1"), "{}", metrics.body);
    assert!(!metrics.body.contains("acme"), "{}", metrics.body);
}

#[tokio::test]
async fn a_query_has_statistics_if_the_client_asks_for_them() {
    let fixture = DataFixture::with_shop().await;
    let who = reader(&fixture).await;
    let plain = ask_mount(&fixture, &who, "query?query=up").await;
    assert_eq!(plain["data"].get("stats"), None);
    for stats in ["all", "true"] {
        let reply = ask_mount(&fixture, &who, &format!("query?query=up&stats={stats}")).await;
        let found = &reply["data"]["stats"];
        assert_eq!(found["samples"]["totalQueryableSamples"], 2, "{reply}");
        assert!(found["timings"]["evalTotalTime"].is_number(), "{reply}");
        assert_eq!(reply["data"]["result"], plain["data"]["result"]);
    }
    let range = "query_range?query=up&start=1799999970&end=1800000000&step=15&stats=all";
    assert!(ask_mount(&fixture, &who, range).await["data"]["stats"]["samples"].is_object());
}

#[tokio::test]
async fn writes_below_the_mount_are_refused_in_the_format_of_prometheus() {
    let fixture = DataFixture::new().await;
    for (path, media, body, status, kind) in [
        ("write", "application/json", "{}", 415, "bad_data"),
        ("import/prometheus", "text/plain", "up x\n", 400, "bad_data"),
    ] {
        let request = ask("POST", &format!("/api/v1/orgs/acme/{MOUNT}/{path}"), &fixture.agent)
            .header("content-type", media)
            .body(Body::from(body));
        let reply = fixture.server.send(request.expect("a request")).await;
        assert_eq!(reply.status, status, "{path}: {}", reply.body);
        assert_eq!((reply.text("status"), reply.text("errorType")), ("error".into(), kind.into()), "{path}");
        assert!(!reply.text("error").is_empty());
    }
}

#[tokio::test]
async fn federation_returns_the_newest_samples_with_their_times_within_the_scope() {
    let fixture = DataFixture::with_shop().await;
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let gone = [("__name__", "gone"), ("job", "api")];
    let slow = [("__name__", "slow"), ("instance", "i")];
    fixture
        .write(&[
            (&gone, &[((NOW - 60) * 1_000, 1.0), ((NOW - 30) * 1_000, stale)]),
            (&slow, &[((NOW - 200) * 1_000, 7.5)]),
        ])
        .await;
    let who = reader(&fixture).await;
    let path = format!("prometheus/federate?match[]={}&match[]=up&match[]=slow", escaped("{job=\"api\"}"));
    let reply = fixture.get_as(&who, &path).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(reply.header("content-type").starts_with("text/plain; version=0.0.4"));
    let ms = NOW * 1_000;
    assert_eq!(
        reply.body,
        format!(
            "# TYPE http_requests_total untyped\n\
             http_requests_total{{instance=\"\",job=\"api\",tenant=\"a\"}} 900 {ms}\n\
             http_requests_total{{instance=\"\",job=\"api\",tenant=\"b\"}} 1800 {ms}\n\
             # TYPE slow untyped\n\
             slow{{instance=\"i\"}} 7.5 {}\n\
             # TYPE up untyped\n\
             up{{instance=\"\",job=\"api\"}} 1 {ms}\n\
             up{{instance=\"\",job=\"web\"}} 1 {ms}\n",
            ms - 200_000
        )
    );
    let token = fixture.embed(json!({ "match": ["tenant=\"b\""] })).await;
    let scoped = fixture.get_as(&token, &path).await.body;
    assert_eq!(scoped.lines().count(), 2, "{scoped}");
    let wrong = fixture.get_as(&who, "prometheus/federate?match[]=up%7B").await;
    assert_eq!((wrong.status.as_u16(), wrong.text("errorType")), (400, "bad_data".into()));
}
