//! Imports of text, OpenMetrics, JSON lines and CSV, and OTLP, through the router
//! (docs/specification.md C7).

use std::io::Write as _;

use axum::body::Body;
use flate2::Compression;
use flate2::write::GzEncoder;
use promlet::api::ApiOptions;
use serde_json::{Value, json};

use crate::remote_write2::post_one;
use crate::test_server::{Reply, TestServer, TestServerOptions, Who, ask};
use crate::wire::{DataFixture, NOW, encode, escaped, post_block, snappy};

const UP: &str = "up{job=\"a\"} 1\n";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// An ingestion request.
struct ImportRequest<'a> {
    path: &'a str,
    content_type: &'a str,
    encoding: &'a str,
    body: Vec<u8>,
}

impl ImportRequest<'_> {
    fn text(path: &str, body: impl Into<Vec<u8>>) -> ImportRequest<'_> {
        ImportRequest { path, content_type: "text/plain", encoding: "", body: body.into() }
    }

    async fn by(self, fixture: &DataFixture, who: &Who) -> Reply {
        let mut request = ask("POST", &format!("/api/v1/orgs/acme/{}", self.path), who);
        for (name, value) in [("content-type", self.content_type), ("content-encoding", self.encoding)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        fixture.server.send(request.body(Body::from(self.body)).expect("a request")).await
    }

    async fn to(self, fixture: &DataFixture) -> Reply {
        let agent = fixture.agent.clone();
        self.by(fixture, &agent).await
    }
}

async fn result(fixture: &DataFixture, expr: &str) -> Value {
    let reply = fixture.get(&format!("query/expr-instant?expr={}&time={NOW}", escaped(expr))).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.value()["data"]["result"].clone()
}

async fn count(fixture: &DataFixture) -> usize {
    result(fixture, "{__name__=~\".+\"}").await.as_array().map_or(0, Vec::len)
}

#[track_caller]
fn is_accepted(reply: &Reply, samples: u64) {
    assert_eq!((reply.status.as_u16(), reply.header("durability")), (200, "synced"), "{}", reply.body);
    assert_eq!(reply.value(), json!({ "accepted": samples, "rejected": 0, "errors": [] }));
}

/// The error helps a person who sends a large file.
#[tokio::test]
async fn the_error_of_a_body_that_is_too_large_suggests_gzip_and_splitting() {
    let fixture = DataFixture::new().await;
    for path in ["import", "import/jsonl", "import/csv", "import/graphite", "write", "push/metrics/job/a"] {
        let request = ask("POST", &format!("/api/v1/orgs/acme/{path}"), &fixture.agent)
            .header("content-length", (9 << 20).to_string())
            .body(Body::from(vec![b'x'; 9 << 20]));
        let reply = fixture.server.send(request.expect("a request")).await;
        reply.is(413, "body_too_large");
        assert!(reply.body.contains("gzip") && reply.body.contains("split"), "{}", reply.body);
    }
}

#[tokio::test]
async fn both_paths_accept_text_with_and_without_gzip_from_keys_and_editors() {
    let fixture = DataFixture::new().await;
    is_accepted(
        &ImportRequest::text("import", "# TYPE up gauge\nup{job=\"a\"} 1\nup{job=\"b\"} 0\n")
            .to(&fixture)
            .await,
        2,
    );
    let zipped = ImportRequest {
        encoding: "gzip",
        ..ImportRequest::text("import/prometheus", gzip(b"up{job=\"c\"} 1\n"))
    };
    is_accepted(&zipped.to(&fixture).await, 1);
    let members = [gzip(b"up{job=\"d\"} 1\n"), gzip(b"up{job=\"e\"} 1\n")].concat();
    is_accepted(
        &ImportRequest { encoding: "x-gzip", ..ImportRequest::text("import", members) }.to(&fixture).await,
        2,
    );
    let cabinet = fixture.cabinet.clone();
    is_accepted(&ImportRequest::text("import", "up{job=\"f\"} 1\n").by(&fixture, &cabinet).await, 1);
    // curl's default content type, no content type, and that of Prometheus.
    for content_type in ["application/x-www-form-urlencoded", "", "text/plain; version=0.0.4; charset=utf-8"]
    {
        is_accepted(
            &ImportRequest { content_type, ..ImportRequest::text("import", UP) }.to(&fixture).await,
            1,
        );
    }
    assert_eq!(count(&fixture).await, 6);
    assert_eq!(
        result(&fixture, "up{job=\"b\"}").await,
        json!([{ "metric": { "__name__": "up", "job": "b" }, "value": [NOW, "0"] }])
    );
}

#[tokio::test]
async fn openmetrics_is_selected_by_its_content_type() {
    let fixture = DataFixture::new().await;
    let body = format!(
        "# TYPE a counter\na_total{{b=\"c\"}} 5 {NOW}.0 # {{trace_id=\"abc\"}} 0.5\na_created{{b=\"c\"}} {}\n# EOF\n",
        NOW - 60
    );
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    is_accepted(&ImportRequest { content_type, ..ImportRequest::text("import", body) }.to(&fixture).await, 1);
    assert_eq!(
        result(&fixture, "a_total").await,
        json!([{ "metric": { "__name__": "a_total", "b": "c" }, "value": [NOW, "5"] }])
    );
    let reply =
        fixture.get(&format!("prometheus/api/v1/query_exemplars?query=a_total&start=0&end={NOW}")).await;
    assert_eq!(reply.value()["data"][0]["exemplars"][0]["labels"]["trace_id"], "abc", "{}", reply.body);
}

#[tokio::test]
async fn json_lines_have_the_export_format_of_victoriametrics() {
    let fixture = DataFixture::new().await;
    let ms = NOW * 1_000;
    let body = format!(
        "{{\"metric\":{{\"__name__\":\"up\",\"job\":\"a\"}},\"values\":[1,0],\"timestamps\":[{},{ms}]}}\n\
         {{\"metric\":{{\"__name__\":\"up\",\"job\":\"b\"}},\"values\":[1],\"timestamps\":[{ms}]}}\n",
        ms - 15_000
    );
    for content_type in ["application/x-ndjson", "application/json", ""] {
        let request = ImportRequest { content_type, ..ImportRequest::text("import/jsonl", body.clone()) };
        is_accepted(&request.to(&fixture).await, 3);
    }
    let values = json!([[NOW - 15, "1"], [NOW, "0"]]);
    let expected = json!([{ "metric": { "__name__": "up", "job": "a" }, "values": values }]);
    assert_eq!(result(&fixture, "up{job=\"a\"}[1m]").await, expected);
    let request = ImportRequest { content_type: "text/csv", ..ImportRequest::text("import/jsonl", body) };
    request.to(&fixture).await.is(415, "unsupported_media_type");
}

#[tokio::test]
async fn csv_columns_are_named_by_the_parameter_or_by_the_first_line() {
    let fixture = DataFixture::new().await;
    let format = escaped("1:label:city,2:metric:temperature,3:time:unix_s");
    let body = format!("Oslo,3.5,{NOW}\nRome,15,{NOW}\n");
    let path = format!("import/csv?format={format}");
    is_accepted(
        &ImportRequest { content_type: "text/csv", ..ImportRequest::text(&path, body) }.to(&fixture).await,
        2,
    );
    assert_eq!(
        result(&fixture, "temperature{city=\"Oslo\"}").await,
        json!([{ "metric": { "__name__": "temperature", "city": "Oslo" }, "value": [NOW, "3.5"] }])
    );
    // Without the parameter, the first line names the columns.
    let body = format!("time:unix_s,metric,value,city\n{NOW},wind,4,Oslo\n");
    for path in ["import/csv", "import/csv?format="] {
        is_accepted(&ImportRequest::text(path, body.clone()).to(&fixture).await, 1);
    }
    assert_eq!(result(&fixture, "wind").await[0]["metric"]["city"], "Oslo");
    ImportRequest::text("import/csv?format=1:nonsense", "a,1\n")
        .to(&fixture)
        .await
        .is(400, "invalid_parameter");
    ImportRequest::text("import/csv", "a,b\n1,2\n").to(&fixture).await.is(400, "bad_request");
}

#[tokio::test]
async fn parameters_set_time_and_labels_and_labels_of_the_key_take_precedence() {
    let fixture = DataFixture::new().await;
    let fields = json!({ "scopes": ["ingest"], "ingest": { "labels": { "source": "key" } } });
    let (_, secret) = fixture.server.key(&fixture.cabinet, fields).await;
    let key = Who::Bearer(secret);
    let labels = "labels=job%3Dforced&labels=source%3Dquery&labels=note%3Da%3Db";
    let path = format!("import?timestamp=now-15m&{labels}");
    is_accepted(&ImportRequest::text(&path, UP).by(&fixture, &key).await, 1);
    let metric = json!({ "__name__": "up", "job": "forced", "source": "key", "note": "a=b" });
    let values = json!([{ "metric": metric, "values": [[NOW - 900, "1"]] }]);
    assert_eq!(result(&fixture, "up[1h]").await, values);
    // A sample's own time takes precedence over the parameter.
    for (at, name) in [("2026-01-01T00:00:00Z", "a"), ("1795000000", "b"), ("now", "c")] {
        let path = format!("import?timestamp={at}");
        is_accepted(
            &ImportRequest::text(&path, format!("{name} 1\n{name}_own 1 {}\n", NOW * 1_000))
                .to(&fixture)
                .await,
            2,
        );
    }
    assert_eq!(result(&fixture, "{__name__=~\"c|a_own|b_own\"}").await.as_array().map(Vec::len), Some(3));
    for wrong in [
        "timestamp=yesterday",
        "labels=job",
        "labels=%3Dx",
        "labels=a%3D1&labels=a%3D2",
        &["labels=a%3D1"; 65].join("&"),
    ] {
        let path = format!("import?{wrong}");
        ImportRequest::text(&path, UP).to(&fixture).await.is(400, "invalid_parameter");
    }
    ImportRequest::text("import?timestamp=1&timestamp=2", UP)
        .to(&fixture)
        .await
        .is(400, "duplicate_parameter");
}

#[tokio::test]
async fn valid_lines_are_stored_and_invalid_ones_are_named_and_listed() {
    let fixture = DataFixture::new().await;
    let late = (NOW + 3_600) * 1_000;
    let body = format!("good 1\nbad{{ 1\nearly 1 {late}\ngood_too 2\n");
    let reply = ImportRequest::text("import", body).to(&fixture).await;
    reply.is(400, "bad_request");
    let value = reply.value();
    assert_eq!((&value["accepted"], &value["rejected"]), (&json!(2), &json!(2)), "{}", reply.body);
    assert_eq!(value["errors"].as_array().map(Vec::len), Some(2), "{}", reply.body);
    let first_line = reply.body.lines().next().unwrap_or_default();
    assert!(first_line.contains("2 samples stored, 2 refused"), "{}", reply.body);
    assert!(first_line.contains("line 2"), "{}", reply.body);
    assert_eq!(reply.header("durability"), "synced");
    assert_eq!(count(&fixture).await, 2);
    let listed = fixture.get("ingest/rejects").await.value();
    let codes: Vec<&str> =
        listed["data"].as_array().expect("rows").iter().filter_map(|row| row["code"].as_str()).collect();
    assert!(codes.contains(&"too_far_in_future") && codes.len() == 2, "{listed}");
    let bad: String = (0..30).map(|n| format!("bad_{n}{{\n")).collect();
    let reply = ImportRequest::text("import", bad).to(&fixture).await;
    reply.is(400, "bad_request");
    assert_eq!((&reply.value()["accepted"], &reply.value()["rejected"]), (&json!(0), &json!(30)));
    assert_eq!(reply.value()["errors"].as_array().map(Vec::len), Some(10));
}

/// docs/specification.md C7, "name 128 B": the limit of metric and label names.
#[tokio::test]
async fn names_are_limited_to_128_bytes_in_every_format() {
    let fixture = DataFixture::new().await;
    let json = |body: String| ImportRequest {
        content_type: "application/json",
        ..ImportRequest::text("otlp/v1/metrics", body)
    };
    let line = |name: &str| {
        format!(
            "{{\"metric\":{{\"__name__\":\"{name}\"}},\"values\":[1],\"timestamps\":[{}]}}\n",
            NOW * 1_000
        )
    };
    let mut stored = 0;
    for (bytes, fits) in [(128, true), (129, false)] {
        // Each format uses names of its own, because known names are not checked again.
        let name = |prefix: &str| format!("{prefix}{}", "n".repeat(bytes - prefix.len()));
        let first = encode(&[(&[("__name__", &name("v1"))], &[(NOW * 1_000, 1.0)])]);
        let labelled = encode(&[(&[("__name__", "up"), (&name("label"), "x")], &[(NOW * 1_000, 1.0)])]);
        let csv = format!("time:unix_s,metric,value\n{NOW},{},4\n", name("csv"));
        let replies = [
            post_block(&fixture.server, &fixture.agent, snappy(&first)).await,
            post_block(&fixture.server, &fixture.agent, snappy(&labelled)).await,
            post_one(&fixture, &["__name__", &name("v2")]).await,
            ImportRequest::text("import", format!("{} 1\n", name("text"))).to(&fixture).await,
            ImportRequest::text("import/jsonl", line(&name("jsonl"))).to(&fixture).await,
            ImportRequest::text("import/csv", csv).to(&fixture).await,
        ];
        for (index, reply) in replies.iter().enumerate() {
            assert_eq!(reply.status.is_success(), fits, "{index}: {}", reply.body);
            if !fits {
                reply.is(400, "bad_request");
                let code = if index == 1 { "label_name_too_long" } else { "metric_name_too_long" };
                assert_eq!(reply.value()["errors"][0]["code"], code, "{index}: {}", reply.body);
                assert!(reply.body.contains("129 bytes, at most 128"), "{index}: {}", reply.body);
            }
        }
        let reply = json(otlp_json(&name("otlp"))).to(&fixture).await;
        let message = reply.value()["partialSuccess"]["errorMessage"].as_str().unwrap_or_default().to_owned();
        assert_eq!((reply.status.as_u16(), message.contains("at most 128")), (200, !fits), "{}", reply.body);
        let total = count(&fixture).await;
        assert_eq!(total - stored, if fits { 8 } else { 0 });
        stored = total;
    }
    let listed = fixture.get("ingest/rejects").await.value();
    let codes = listed["data"].as_array().expect("rows").iter().filter_map(|row| row["code"].as_str());
    assert_eq!(codes.filter(|code| *code == "metric_name_too_long").count(), 7, "{listed}");
}

/// The paths of all formats but remote write, each with a content type.
const PATHS: [(&str, &str); 11] = [
    ("import", "text/plain"),
    ("import/prometheus", "application/openmetrics-text"),
    ("import/jsonl", "application/x-ndjson"),
    ("import/csv?format=1%3Ametric%3Aa", "text/csv"),
    ("prometheus/api/v1/import", "application/x-ndjson"),
    ("prometheus/api/v1/import/prometheus", "text/plain"),
    ("import/graphite", "text/plain"),
    ("influx/write", "text/plain"),
    ("influx/api/v2/write", "text/plain"),
    ("otlp/v1/metrics", "application/x-protobuf"),
    ("prometheus/api/v1/otlp/v1/metrics", "application/json"),
];

/// Sends a body to a path with a content type, and returns the status.
async fn status(fixture: &DataFixture, path: (&str, &str), encoding: &str, body: Vec<u8>) -> u16 {
    let (path, content_type) = path;
    // The clock advances, because refused requests count towards the rate limit.
    fixture.server.pass(std::time::Duration::from_millis(50));
    ImportRequest { path, content_type, encoding, body }.to(fixture).await.status.as_u16()
}

#[tokio::test]
async fn hostile_bodies_are_refused_in_every_format_and_the_server_continues() {
    let fixture = DataFixture::new().await;
    for path in PATHS {
        assert_eq!(status(&fixture, path, "", Vec::new()).await, 400, "{path:?}: empty");
        assert_eq!(status(&fixture, path, "gzip", gzip(b"")).await, 400, "{path:?}: nothing inside");
        let whole = gzip(&UP.repeat(50).into_bytes());
        assert_eq!(
            status(&fixture, path, "gzip", whole[..whole.len() - 3].to_vec()).await,
            400,
            "{path:?}: cut"
        );
        let behind = [whole, b"garbage".to_vec()].concat();
        assert_eq!(status(&fixture, path, "gzip", behind).await, 400, "{path:?}: garbage behind it");
        assert_eq!(status(&fixture, path, "gzip", UP.into()).await, 400, "{path:?}: no gzip");
        for encoding in ["zstd", "br", "snappy", "gzip, gzip"] {
            assert_eq!(status(&fixture, path, encoding, UP.into()).await, 415, "{path:?}: {encoding}");
        }
        let large = vec![b'\n'; 8 * 1024 * 1024];
        assert_ne!(status(&fixture, path, "", large).await, 413, "{path:?}: as large as allowed");
        let large = vec![b'\n'; 8 * 1024 * 1024 + 1];
        assert_eq!(status(&fixture, path, "", large).await, 413, "{path:?}: large");
        let wrong = (path.0, "image/png");
        assert_eq!(status(&fixture, wrong, "", UP.into()).await, 415, "{path:?}: another type");
        assert_eq!(status(&fixture, path, "", vec![0xff; 100]).await, 400, "{path:?}: no text");
    }
    assert_eq!(count(&fixture).await, 0);
}

#[tokio::test]
async fn a_decompression_bomb_is_refused_during_decompression() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.write.decompressed_bytes_max = 1 << 20;
    let fixture =
        DataFixture::of(TestServer::build(TestServerOptions { options, ..TestServerOptions::default() }))
            .await;
    let bomb = gzip(&vec![b'\n'; (1 << 20) + 1]);
    for path in PATHS {
        assert_eq!(status(&fixture, path, "gzip", bomb.clone()).await, 413, "{path:?}");
    }
}

#[tokio::test]
async fn an_api_key_beyond_its_sample_rate_is_told_to_retry_in_every_format() {
    let fixture = DataFixture::new().await;
    let bodies: [(&str, &str, String); 4] = [
        ("import", "text/plain", "a 1\nb 2\n".into()),
        ("import/jsonl", "application/json", json!({ "metric": { "__name__": "c" }, "values": [1, 2], "timestamps": [(NOW - 1) * 1_000, NOW * 1_000] }).to_string()),
        ("import/csv?format=1%3Ametric%3Ae,2%3Ametric%3Af", "text/csv", "1,2\n".into()),
        ("otlp/v1/metrics", "application/json", otlp_json("d")),
    ];
    for (path, content_type, body) in bodies {
        let fields = json!({ "scopes": ["ingest"], "ingest": { "samples_per_s": 1 } });
        let (_, secret) = fixture.server.key(&fixture.cabinet, fields).await;
        let key = Who::Bearer(secret);
        let send = || ImportRequest { path, content_type, encoding: "", body: body.clone().into() };
        let first = send().by(&fixture, &key).await;
        let reply = send().by(&fixture, &key).await;
        assert_eq!(
            (first.status.as_u16(), reply.status.as_u16()),
            (200, 503),
            "{path}: {} {}",
            first.body,
            reply.body
        );
        assert!(reply.header("retry-after").parse::<u64>().expect("seconds") >= 1);
    }
}

/// Encodes an OTLP request with one gauge and two points as JSON.
fn otlp_json(name: &str) -> String {
    let point = |value: f64, job: &str| {
        json!({ "asDouble": value, "timeUnixNano": format!("{NOW}000000000"),
            "attributes": [{ "key": "job", "value": { "stringValue": job } }] })
    };
    let metric = json!({ "name": name, "gauge": { "dataPoints": [point(1.5, "x"), point(2.5, "y")] } });
    json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [metric] }] }] }).to_string()
}

#[tokio::test]
async fn the_otlp_response_has_the_encoding_of_the_request() {
    let fixture = DataFixture::new().await;
    for (path, encoding) in [("otlp/v1/metrics", ""), ("prometheus/api/v1/otlp/v1/metrics", "gzip")] {
        let body = otlp_json("temperature").into_bytes();
        let body = if encoding.is_empty() { body } else { gzip(&body) };
        let reply =
            ImportRequest { path, content_type: "application/json", encoding, body }.to(&fixture).await;
        assert_eq!((reply.status.as_u16(), reply.header("durability")), (200, "synced"), "{}", reply.body);
        assert_eq!((reply.header("content-type"), reply.value()), ("application/json", json!({})));
    }
    assert_eq!(result(&fixture, "sum(temperature)").await[0]["value"][1], "4");
    // An ExportMetricsServiceRequest with one empty ResourceMetrics.
    let request = ImportRequest {
        content_type: "application/x-protobuf",
        ..ImportRequest::text("otlp/v1/metrics", b"\x0a\x00")
    };
    let reply = request.to(&fixture).await;
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (200, ""));
    assert_eq!(reply.header("content-type"), "application/x-protobuf");
}

#[tokio::test]
async fn refused_points_are_a_partial_success_and_listed() {
    let fixture = DataFixture::new().await;
    let early = otlp_json("a").replacen(&format!("{NOW}000000000"), &format!("{}000000000", NOW + 3_600), 1);
    let request =
        ImportRequest { content_type: "application/json", ..ImportRequest::text("otlp/v1/metrics", early) };
    let reply = request.to(&fixture).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let partial = reply.value()["partialSuccess"].clone();
    assert_eq!(partial["rejectedDataPoints"], "1", "{}", reply.body);
    assert!(
        partial["errorMessage"].as_str().is_some_and(|text| text.contains("ahead of the clock")),
        "{partial}"
    );
    assert_eq!(count(&fixture).await, 1);
    let listed = fixture.get("ingest/rejects").await.value();
    assert_eq!(listed["data"][0]["code"], "too_far_in_future", "{listed}");
}

#[tokio::test]
async fn otlp_errors_are_a_status_in_the_encoding_of_the_request() {
    let fixture = DataFixture::new().await;
    for (who, status) in [(&fixture.agent, 400), (&Who::Nobody, 401)] {
        let json =
            ImportRequest { content_type: "application/json", ..ImportRequest::text("otlp/v1/metrics", "{") };
        let reply = json.by(&fixture, who).await;
        assert_eq!((reply.status.as_u16(), reply.header("content-type")), (status, "application/json"));
        assert!(reply.value()["message"].as_str().is_some_and(|text| !text.is_empty()), "{}", reply.body);
        let protobuf = ImportRequest {
            content_type: "application/x-protobuf",
            ..ImportRequest::text("otlp/v1/metrics", b"\xff")
        };
        let reply = protobuf.by(&fixture, who).await;
        assert_eq!((reply.status.as_u16(), reply.header("content-type")), (status, "application/x-protobuf"));
        // Field 2 is the message.
        assert!(reply.body.starts_with('\x12') && reply.body.len() > 10, "{:?}", reply.body);
    }
    let other = ImportRequest { content_type: "text/plain", ..ImportRequest::text("otlp/v1/metrics", "{") };
    other.to(&fixture).await.is(415, "unsupported_media_type");
}

#[tokio::test]
async fn callers_without_write_access_cannot_import() {
    let fixture = DataFixture::new().await;
    let (_, reading) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["read"] })).await;
    let token = fixture.embed(json!({})).await;
    for (path, content_type) in PATHS.into_iter().filter(|(path, _)| !path.contains("otlp")) {
        let of = || ImportRequest { content_type, ..ImportRequest::text(path, UP) };
        let reader = Who::Bearer(reading.clone());
        let refusals = [(&reader, 403, "forbidden"), (&token, 403, "embed_restricted")];
        for (who, status, code) in refusals.into_iter().chain([(&Who::Nobody, 401, "unauthenticated")]) {
            let reply = of().by(&fixture, who).await;
            // Below the mount of Prometheus errors have another form.
            if path.starts_with("prometheus/") {
                assert_eq!((reply.status.as_u16(), &reply.value()["status"]), (status, &json!("error")));
            } else {
                reply.is(status, code);
            }
        }
    }
    assert_eq!(count(&fixture).await, 0);
    // A page of another site cannot use the cookie of an editor.
    let request = ask("POST", "/api/v1/orgs/acme/import", &fixture.cabinet)
        .header("content-type", "text/plain")
        .header("sec-fetch-site", "cross-site")
        .body(Body::from(UP))
        .expect("a request");
    fixture.server.send(request).await.is(403, "csrf_rejected");
}

/// Sends line protocol as a client of InfluxDB does.
async fn write_influx(fixture: &DataFixture, path: &str, key: &str, body: &str) -> Reply {
    let request = ask("POST", &format!("/api/v1/orgs/acme/influx/{path}"), &Who::Nobody)
        .header("authorization", format!("Token {key}"))
        .header("content-type", "text/plain; charset=utf-8")
        .body(Body::from(body.to_owned()));
    fixture.server.send(request.expect("a request")).await
}

/// The measurement and the field make the name, tags and the database make the labels. Strings are
/// counted, and a wrong line is refused with its number while the others are stored.
#[tokio::test]
async fn clients_of_influxdb_write_with_a_token_and_read_their_own_errors() {
    let fixture = DataFixture::new().await;
    let key = fixture.agent.secret().to_owned();

    let lines = format!("cpu,host=a usage=1.5,state=\"idle\",up=true {NOW}\n");
    let reply = write_influx(&fixture, "api/v2/write?bucket=lab&precision=s", &key, &lines).await;
    assert_eq!((reply.status.as_u16(), reply.header("durability")), (204, "synced"), "{}", reply.body);
    assert_eq!(reply.header("skipped-fields"), "1");
    for (name, value) in [("cpu_usage", "1.5"), ("cpu_up", "1")] {
        let found = result(&fixture, name).await;
        assert_eq!(found[0]["metric"], json!({ "__name__": name, "db": "lab", "host": "a" }));
        assert_eq!(found[0]["value"][1], value);
    }

    let partial = format!("mem free=1 {NOW}\nmem free= {NOW}\nmem used=2 {NOW}\n");
    let reply = write_influx(&fixture, "write?precision=s", &key, &partial).await;
    assert_eq!(reply.status, 400);
    for member in ["error", "message"] {
        assert!(reply.value()[member].as_str().is_some_and(|text| text.contains("line 2")), "{}", reply.body);
    }
    assert_eq!(result(&fixture, "{__name__=~\"mem_.+\"}").await.as_array().map_or(0, Vec::len), 2);

    // A batch may be as large as that of the other formats.
    let large = format!("disk free=1 {NOW}\n# {}\n", "x".repeat(300 << 10));
    let reply = write_influx(&fixture, "write?precision=s", &key, &large).await;
    assert_eq!(reply.status, 204, "{}", reply.body);

    let reply = write_influx(&fixture, "write?precision=minutes", &key, "mem free=1\n").await;
    reply.is(400, "invalid_parameter");
    let request = ask("POST", "/api/v1/orgs/other/influx/write", &Who::Nobody)
        .header("authorization", format!("Token {key}"))
        .body(Body::from("mem free=1\n"));
    fixture.server.send(request.expect("a request")).await.is(403, "org_mismatch");
}
