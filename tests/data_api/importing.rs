//! Samples by hand and by script (docs/specification.md C7): text, OpenMetrics, JSON lines, CSV; and OpenTelemetry's.

use std::io::Write as _;

use axum::body::Body;
use flate2::Compression;
use flate2::write::GzEncoder;
use promlet::api::ApiOptions;
use serde_json::{Value, json};

use crate::remote_write2::post_one;
use crate::test_server::{Reply, TestServer, TestServerOptions, Who, ask};
use crate::wire::{NOW, Stage, encode, escaped, post_block, snappy};

const UP: &str = "up{job=\"a\"} 1\n";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

struct Sent<'a> {
    path: &'a str,
    content_type: &'a str,
    encoding: &'a str,
    body: Vec<u8>,
}

impl Sent<'_> {
    fn text(path: &str, body: impl Into<Vec<u8>>) -> Sent<'_> {
        Sent { path, content_type: "text/plain", encoding: "", body: body.into() }
    }

    async fn by(self, stage: &Stage, who: &Who) -> Reply {
        let mut request = ask("POST", &format!("/api/v1/orgs/acme/{}", self.path), who);
        for (name, value) in [("content-type", self.content_type), ("content-encoding", self.encoding)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        stage.server.send(request.body(Body::from(self.body)).expect("a request")).await
    }

    async fn to(self, stage: &Stage) -> Reply {
        let agent = stage.agent.clone();
        self.by(stage, &agent).await
    }
}

async fn result(stage: &Stage, expr: &str) -> Value {
    let reply = stage.get(&format!("query/expr-instant?expr={}&time={NOW}", escaped(expr))).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.value()["data"]["result"].clone()
}

async fn count(stage: &Stage) -> usize {
    result(stage, "{__name__=~\".+\"}").await.as_array().map_or(0, Vec::len)
}

#[track_caller]
fn is_accepted(reply: &Reply, samples: u64) {
    assert_eq!((reply.status.as_u16(), reply.header("durability")), (200, "synced"), "{}", reply.body);
    assert_eq!(reply.value(), json!({ "accepted": samples, "rejected": 0, "errors": [] }));
}

/// Who sends a large file by hand is told what to do about it.
#[tokio::test]
async fn a_body_that_is_too_large_is_told_to_be_compressed_or_split() {
    let stage = Stage::new().await;
    for path in ["import", "import/jsonl", "import/csv", "prometheus/api/v1/write"] {
        let request = ask("POST", &format!("/api/v1/orgs/acme/{path}"), &stage.agent)
            .header("content-length", (9 << 20).to_string())
            .body(Body::from(vec![b'x'; 9 << 20]));
        let refused = stage.server.send(request.expect("a request")).await;
        refused.is(413, "body_too_large");
        assert!(refused.body.contains("gzip") && refused.body.contains("split"), "{}", refused.body);
    }
}

#[tokio::test]
async fn text_is_taken_by_both_paths_plain_or_as_gzip_from_keys_and_editors() {
    let stage = Stage::new().await;
    is_accepted(
        &Sent::text("import", "# TYPE up gauge\nup{job=\"a\"} 1\nup{job=\"b\"} 0\n").to(&stage).await,
        2,
    );
    let zipped = Sent { encoding: "gzip", ..Sent::text("import/prometheus", gzip(b"up{job=\"c\"} 1\n")) };
    is_accepted(&zipped.to(&stage).await, 1);
    let members = [gzip(b"up{job=\"d\"} 1\n"), gzip(b"up{job=\"e\"} 1\n")].concat();
    is_accepted(&Sent { encoding: "x-gzip", ..Sent::text("import", members) }.to(&stage).await, 2);
    let cabinet = stage.cabinet.clone();
    is_accepted(&Sent::text("import", "up{job=\"f\"} 1\n").by(&stage, &cabinet).await, 1);
    // What curl says when nobody tells it what to say, and what says nothing.
    for content_type in ["application/x-www-form-urlencoded", "", "text/plain; version=0.0.4; charset=utf-8"]
    {
        is_accepted(&Sent { content_type, ..Sent::text("import", UP) }.to(&stage).await, 1);
    }
    assert_eq!(count(&stage).await, 6);
    assert_eq!(
        result(&stage, "up{job=\"b\"}").await,
        json!([{ "metric": { "__name__": "up", "job": "b" }, "value": [NOW, "0"] }])
    );
}

#[tokio::test]
async fn openmetrics_is_told_by_its_type() {
    let stage = Stage::new().await;
    let body = format!(
        "# TYPE a counter\na_total{{b=\"c\"}} 5 {NOW}.0 # {{trace_id=\"abc\"}} 0.5\na_created{{b=\"c\"}} {}\n# EOF\n",
        NOW - 60
    );
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    is_accepted(&Sent { content_type, ..Sent::text("import", body) }.to(&stage).await, 1);
    assert_eq!(
        result(&stage, "a_total").await,
        json!([{ "metric": { "__name__": "a_total", "b": "c" }, "value": [NOW, "5"] }])
    );
    let reply =
        stage.get(&format!("prometheus/api/v1/query_exemplars?query=a_total&start=0&end={NOW}")).await;
    assert_eq!(reply.value()["data"][0]["exemplars"][0]["labels"]["trace_id"], "abc", "{}", reply.body);
}

#[tokio::test]
async fn json_lines_are_those_of_an_export() {
    let stage = Stage::new().await;
    let ms = NOW * 1_000;
    let body = format!(
        "{{\"metric\":{{\"__name__\":\"up\",\"job\":\"a\"}},\"values\":[1,0],\"timestamps\":[{},{ms}]}}\n\
         {{\"metric\":{{\"__name__\":\"up\",\"job\":\"b\"}},\"values\":[1],\"timestamps\":[{ms}]}}\n",
        ms - 15_000
    );
    for content_type in ["application/x-ndjson", "application/json", ""] {
        let sent = Sent { content_type, ..Sent::text("import/jsonl", body.clone()) };
        is_accepted(&sent.to(&stage).await, 3);
    }
    let values = json!([[NOW - 15, "1"], [NOW, "0"]]);
    let expected = json!([{ "metric": { "__name__": "up", "job": "a" }, "values": values }]);
    assert_eq!(result(&stage, "up{job=\"a\"}[1m]").await, expected);
    let sent = Sent { content_type: "text/csv", ..Sent::text("import/jsonl", body) };
    sent.to(&stage).await.is(415, "unsupported_media_type");
}

#[tokio::test]
async fn columns_of_csv_are_named_in_the_query_or_in_the_first_line() {
    let stage = Stage::new().await;
    let format = escaped("1:label:city,2:metric:temperature,3:time:unix_s");
    let body = format!("Oslo,3.5,{NOW}\nRome,15,{NOW}\n");
    let path = format!("import/csv?format={format}");
    is_accepted(&Sent { content_type: "text/csv", ..Sent::text(&path, body) }.to(&stage).await, 2);
    assert_eq!(
        result(&stage, "temperature{city=\"Oslo\"}").await,
        json!([{ "metric": { "__name__": "temperature", "city": "Oslo" }, "value": [NOW, "3.5"] }])
    );
    // Or by the first line.
    let body = format!("time:unix_s,metric,value,city\n{NOW},wind,4,Oslo\n");
    for path in ["import/csv", "import/csv?format="] {
        is_accepted(&Sent::text(path, body.clone()).to(&stage).await, 1);
    }
    assert_eq!(result(&stage, "wind").await[0]["metric"]["city"], "Oslo");
    Sent::text("import/csv?format=1:nonsense", "a,1\n").to(&stage).await.is(400, "invalid_parameter");
    Sent::text("import/csv", "a,b\n1,2\n").to(&stage).await.is(400, "bad_request");
}

#[tokio::test]
async fn the_query_says_when_and_adds_labels_which_those_of_the_key_replace() {
    let stage = Stage::new().await;
    let fields = json!({ "scopes": ["ingest"], "ingest": { "labels": { "source": "key" } } });
    let (_, secret) = stage.server.key(&stage.cabinet, fields).await;
    let key = Who::Bearer(secret);
    let labels = "labels=job%3Dforced&labels=source%3Dquery&labels=note%3Da%3Db";
    let path = format!("import?timestamp=now-15m&{labels}");
    is_accepted(&Sent::text(&path, UP).by(&stage, &key).await, 1);
    let metric = json!({ "__name__": "up", "job": "forced", "source": "key", "note": "a=b" });
    let values = json!([{ "metric": metric, "values": [[NOW - 900, "1"]] }]);
    assert_eq!(result(&stage, "up[1h]").await, values);
    // A time of the sender's own counts.
    for (at, name) in [("2026-01-01T00:00:00Z", "a"), ("1795000000", "b"), ("now", "c")] {
        let path = format!("import?timestamp={at}");
        is_accepted(
            &Sent::text(&path, format!("{name} 1\n{name}_own 1 {}\n", NOW * 1_000)).to(&stage).await,
            2,
        );
    }
    assert_eq!(result(&stage, "{__name__=~\"c|a_own|b_own\"}").await.as_array().map(Vec::len), Some(3));
    for wrong in [
        "timestamp=yesterday",
        "labels=job",
        "labels=%3Dx",
        "labels=a%3D1&labels=a%3D2",
        &["labels=a%3D1"; 65].join("&"),
    ] {
        let path = format!("import?{wrong}");
        Sent::text(&path, UP).to(&stage).await.is(400, "invalid_parameter");
    }
    Sent::text("import?timestamp=1&timestamp=2", UP).to(&stage).await.is(400, "duplicate_parameter");
}

#[tokio::test]
async fn good_lines_of_a_partly_bad_body_are_stored_and_the_bad_are_named_and_remembered() {
    let stage = Stage::new().await;
    let late = (NOW + 3_600) * 1_000;
    let body = format!("good 1\nbad{{ 1\nearly 1 {late}\ngood_too 2\n");
    let reply = Sent::text("import", body).to(&stage).await;
    reply.is(400, "bad_request");
    let value = reply.value();
    assert_eq!((&value["accepted"], &value["rejected"]), (&json!(2), &json!(2)), "{}", reply.body);
    assert_eq!(value["errors"].as_array().map(Vec::len), Some(2), "{}", reply.body);
    let first_line = reply.body.lines().next().unwrap_or_default();
    assert!(first_line.contains("2 samples stored, 2 refused"), "{}", reply.body);
    assert!(first_line.contains("line 2"), "{}", reply.body);
    assert_eq!(reply.header("durability"), "synced");
    assert_eq!(count(&stage).await, 2);
    let listed = stage.get("ingest/rejects").await.value();
    let codes: Vec<&str> =
        listed["data"].as_array().expect("rows").iter().filter_map(|row| row["code"].as_str()).collect();
    assert!(codes.contains(&"too_far_in_future") && codes.len() == 2, "{listed}");
    let bad: String = (0..30).map(|n| format!("bad_{n}{{\n")).collect();
    let reply = Sent::text("import", bad).to(&stage).await;
    reply.is(400, "bad_request");
    assert_eq!((&reply.value()["accepted"], &reply.value()["rejected"]), (&json!(0), &json!(30)));
    assert_eq!(reply.value()["errors"].as_array().map(Vec::len), Some(10));
}

/// docs/specification.md C7, "name 128 B": of a metric as of a label, by every way in.
#[tokio::test]
async fn a_name_has_128_bytes_at_most_by_every_way_in() {
    let stage = Stage::new().await;
    let json =
        |body: String| Sent { content_type: "application/json", ..Sent::text("otlp/v1/metrics", body) };
    let line = |name: &str| {
        format!(
            "{{\"metric\":{{\"__name__\":\"{name}\"}},\"values\":[1],\"timestamps\":[{}]}}\n",
            NOW * 1_000
        )
    };
    let mut taken = 0;
    for (bytes, fits) in [(128, true), (129, false)] {
        // One of its own for each way in: what is known is not looked at again.
        let name = |way: &str| format!("{way}{}", "n".repeat(bytes - way.len()));
        let first = encode(&[(&[("__name__", &name("v1"))], &[(NOW * 1_000, 1.0)])]);
        let labelled = encode(&[(&[("__name__", "up"), (&name("label"), "x")], &[(NOW * 1_000, 1.0)])]);
        let csv = format!("time:unix_s,metric,value\n{NOW},{},4\n", name("csv"));
        let replies = [
            post_block(&stage.server, &stage.agent, snappy(&first)).await,
            post_block(&stage.server, &stage.agent, snappy(&labelled)).await,
            post_one(&stage, &["__name__", &name("v2")]).await,
            Sent::text("import", format!("{} 1\n", name("text"))).to(&stage).await,
            Sent::text("import/jsonl", line(&name("jsonl"))).to(&stage).await,
            Sent::text("import/csv", csv).to(&stage).await,
        ];
        for (way, reply) in replies.iter().enumerate() {
            assert_eq!(reply.status.is_success(), fits, "{way}: {}", reply.body);
            if !fits {
                reply.is(400, "bad_request");
                let code = if way == 1 { "label_name_too_long" } else { "metric_name_too_long" };
                assert_eq!(reply.value()["errors"][0]["code"], code, "{way}: {}", reply.body);
                assert!(reply.body.contains("129 bytes, at most 128"), "{way}: {}", reply.body);
            }
        }
        let reply = json(otlp_json(&name("otlp"))).to(&stage).await;
        let message = reply.value()["partialSuccess"]["errorMessage"].as_str().unwrap_or_default().to_owned();
        assert_eq!((reply.status.as_u16(), message.contains("at most 128")), (200, !fits), "{}", reply.body);
        let now = count(&stage).await;
        assert_eq!(now - taken, if fits { 8 } else { 0 });
        taken = now;
    }
    let listed = stage.get("ingest/rejects").await.value();
    let codes = listed["data"].as_array().expect("rows").iter().filter_map(|row| row["code"].as_str());
    assert_eq!(codes.filter(|code| *code == "metric_name_too_long").count(), 7, "{listed}");
}

const DOORS: [(&str, &str); 6] = [
    ("import", "text/plain"),
    ("import/prometheus", "application/openmetrics-text"),
    ("import/jsonl", "application/x-ndjson"),
    ("import/csv?format=1%3Ametric%3Aa", "text/csv"),
    ("otlp/v1/metrics", "application/x-protobuf"),
    ("prometheus/api/v1/otlp/v1/metrics", "application/json"),
];

/// What is refused by each way in, with the status alone: the body is each one's own.
async fn refused(stage: &Stage, door: (&str, &str), encoding: &str, body: Vec<u8>) -> u16 {
    let (path, content_type) = door;
    // Refusals are charged as well.
    stage.server.pass(std::time::Duration::from_millis(50));
    Sent { path, content_type, encoding, body }.to(stage).await.status.as_u16()
}

#[tokio::test]
async fn hostile_bodies_are_refused_by_every_way_in_and_harm_nobody() {
    let stage = Stage::new().await;
    for door in DOORS {
        assert_eq!(refused(&stage, door, "", Vec::new()).await, 400, "{door:?}: empty");
        assert_eq!(refused(&stage, door, "gzip", gzip(b"")).await, 400, "{door:?}: nothing inside");
        let whole = gzip(&UP.repeat(50).into_bytes());
        assert_eq!(
            refused(&stage, door, "gzip", whole[..whole.len() - 3].to_vec()).await,
            400,
            "{door:?}: cut"
        );
        let behind = [whole, b"garbage".to_vec()].concat();
        assert_eq!(refused(&stage, door, "gzip", behind).await, 400, "{door:?}: garbage behind it");
        assert_eq!(refused(&stage, door, "gzip", UP.into()).await, 400, "{door:?}: no gzip");
        for encoding in ["zstd", "br", "snappy", "gzip, gzip"] {
            assert_eq!(refused(&stage, door, encoding, UP.into()).await, 415, "{door:?}: {encoding}");
        }
        let large = vec![b'\n'; 8 * 1024 * 1024 + 1];
        assert_eq!(refused(&stage, door, "", large).await, 413, "{door:?}: large");
        let wrong = (door.0, "image/png");
        assert_eq!(refused(&stage, wrong, "", UP.into()).await, 415, "{door:?}: another type");
        assert_eq!(refused(&stage, door, "", vec![0xff; 100]).await, 400, "{door:?}: no text");
    }
    assert_eq!(count(&stage).await, 0);
}

#[tokio::test]
async fn a_bomb_is_refused_while_it_is_undone() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.write.decompressed_bytes_max = 1 << 20;
    let stage =
        Stage::of(TestServer::build(TestServerOptions { options, ..TestServerOptions::default() })).await;
    let bomb = gzip(&vec![b'\n'; (1 << 20) + 1]);
    for door in DOORS {
        assert_eq!(refused(&stage, door, "gzip", bomb.clone()).await, 413, "{door:?}");
    }
}

#[tokio::test]
async fn a_key_beyond_its_samples_is_told_to_come_back_by_every_way_in() {
    let stage = Stage::new().await;
    let bodies: [(&str, &str, String); 4] = [
        ("import", "text/plain", "a 1\nb 2\n".into()),
        ("import/jsonl", "application/json", json!({ "metric": { "__name__": "c" }, "values": [1, 2], "timestamps": [(NOW - 1) * 1_000, NOW * 1_000] }).to_string()),
        ("import/csv?format=1%3Ametric%3Ae,2%3Ametric%3Af", "text/csv", "1,2\n".into()),
        ("otlp/v1/metrics", "application/json", otlp_json("d")),
    ];
    for (path, content_type, body) in bodies {
        let fields = json!({ "scopes": ["ingest"], "ingest": { "samples_per_s": 1 } });
        let (_, secret) = stage.server.key(&stage.cabinet, fields).await;
        let key = Who::Bearer(secret);
        let send = || Sent { path, content_type, encoding: "", body: body.clone().into() };
        let first = send().by(&stage, &key).await;
        let reply = send().by(&stage, &key).await;
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

/// One gauge with two points.
fn otlp_json(name: &str) -> String {
    let point = |value: f64, job: &str| {
        json!({ "asDouble": value, "timeUnixNano": format!("{NOW}000000000"),
            "attributes": [{ "key": "job", "value": { "stringValue": job } }] })
    };
    let metric = json!({ "name": name, "gauge": { "dataPoints": [point(1.5, "x"), point(2.5, "y")] } });
    json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [metric] }] }] }).to_string()
}

#[tokio::test]
async fn otlp_is_answered_in_its_own_encoding() {
    let stage = Stage::new().await;
    for (path, encoding) in [("otlp/v1/metrics", ""), ("prometheus/api/v1/otlp/v1/metrics", "gzip")] {
        let body = otlp_json("temperature").into_bytes();
        let body = if encoding.is_empty() { body } else { gzip(&body) };
        let reply = Sent { path, content_type: "application/json", encoding, body }.to(&stage).await;
        assert_eq!((reply.status.as_u16(), reply.header("durability")), (200, "synced"), "{}", reply.body);
        assert_eq!((reply.header("content-type"), reply.value()), ("application/json", json!({})));
    }
    assert_eq!(result(&stage, "sum(temperature)").await[0]["value"][1], "4");
    // An ExportMetricsServiceRequest of one empty ResourceMetrics.
    let sent = Sent { content_type: "application/x-protobuf", ..Sent::text("otlp/v1/metrics", b"\x0a\x00") };
    let reply = sent.to(&stage).await;
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (200, ""));
    assert_eq!(reply.header("content-type"), "application/x-protobuf");
}

#[tokio::test]
async fn refused_points_are_a_partial_success_and_remembered() {
    let stage = Stage::new().await;
    let early = otlp_json("a").replacen(&format!("{NOW}000000000"), &format!("{}000000000", NOW + 3_600), 1);
    let sent = Sent { content_type: "application/json", ..Sent::text("otlp/v1/metrics", early) };
    let reply = sent.to(&stage).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let partial = reply.value()["partialSuccess"].clone();
    assert_eq!(partial["rejectedDataPoints"], "1", "{}", reply.body);
    assert!(
        partial["errorMessage"].as_str().is_some_and(|text| text.contains("ahead of the clock")),
        "{partial}"
    );
    assert_eq!(count(&stage).await, 1);
    let listed = stage.get("ingest/rejects").await.value();
    assert_eq!(listed["data"][0]["code"], "too_far_in_future", "{listed}");
}

#[tokio::test]
async fn refusals_of_otlp_are_a_status_in_its_encoding() {
    let stage = Stage::new().await;
    for (who, status) in [(&stage.agent, 400), (&Who::Nobody, 401)] {
        let json = Sent { content_type: "application/json", ..Sent::text("otlp/v1/metrics", "{") };
        let reply = json.by(&stage, who).await;
        assert_eq!((reply.status.as_u16(), reply.header("content-type")), (status, "application/json"));
        assert!(reply.value()["message"].as_str().is_some_and(|text| !text.is_empty()), "{}", reply.body);
        let protobuf =
            Sent { content_type: "application/x-protobuf", ..Sent::text("otlp/v1/metrics", b"\xff") };
        let reply = protobuf.by(&stage, who).await;
        assert_eq!((reply.status.as_u16(), reply.header("content-type")), (status, "application/x-protobuf"));
        // Field 2, the message.
        assert!(reply.body.starts_with('\x12') && reply.body.len() > 10, "{:?}", reply.body);
    }
    let other = Sent { content_type: "text/plain", ..Sent::text("otlp/v1/metrics", "{") };
    other.to(&stage).await.is(415, "unsupported_media_type");
}

#[tokio::test]
async fn who_may_not_write_imports_nothing() {
    let stage = Stage::new().await;
    let (_, reading) = stage.server.key(&stage.cabinet, json!({ "scopes": ["read"] })).await;
    let token = stage.embed(json!({})).await;
    for (path, content_type) in DOORS.iter().take(4).copied() {
        let of = || Sent { content_type, ..Sent::text(path, UP) };
        of().by(&stage, &Who::Bearer(reading.clone())).await.is(403, "forbidden");
        of().by(&stage, &token).await.is(403, "embed_restricted");
        of().by(&stage, &Who::Nobody).await.is(401, "unauthenticated");
    }
    assert_eq!(count(&stage).await, 0);
    // A page of another site cannot use an editor's cookie.
    let request = ask("POST", "/api/v1/orgs/acme/import", &stage.cabinet)
        .header("content-type", "text/plain")
        .header("sec-fetch-site", "cross-site")
        .body(Body::from(UP))
        .expect("a request");
    stage.server.send(request).await.is(403, "csrf_rejected");
}
