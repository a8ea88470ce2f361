//! Remote write 2.0 through the router (docs/specification.md C7).

use serde_json::{Value, json};

use crate::test_server::Reply;
use crate::wire::{DataFixture, NOW, encode, escaped, nested, post_block, post_typed, snappy, varint};
use crate::writing::histogram;

const V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
const MS: i64 = NOW * 1_000;

/// An encoder of a request: the symbol table and the encoded series.
struct RequestBuilder {
    symbols: Vec<String>,
    series: Vec<u8>,
}

impl RequestBuilder {
    fn new() -> RequestBuilder {
        RequestBuilder { symbols: vec![String::new()], series: Vec::new() }
    }

    fn reference(&mut self, text: &str) -> u64 {
        let existing = self.symbols.iter().position(|symbol| symbol == text);
        existing.unwrap_or_else(|| {
            self.symbols.push(text.to_owned());
            self.symbols.len() - 1
        }) as u64
    }

    fn packed(&mut self, texts: &[&str]) -> Vec<u8> {
        let mut references = Vec::new();
        texts.iter().for_each(|text| varint(self.reference(text), &mut references));
        let mut out = Vec::new();
        nested(1, &references, &mut out);
        out
    }

    /// Adds a series with alternating label names and values, and its other fields.
    fn series(&mut self, labels: &[&str], fields: &[u8]) {
        let message = [self.packed(labels), fields.to_vec()].concat();
        nested(5, &message, &mut self.series);
    }

    fn body(&self) -> Vec<u8> {
        let mut message = Vec::new();
        self.symbols.iter().for_each(|text| nested(4, text.as_bytes(), &mut message));
        message.extend_from_slice(&self.series);
        snappy(&message)
    }
}

/// Encodes a sample `after_ms` milliseconds after `NOW`. A start of 0 means no start timestamp.
fn sample(value: f64, after_ms: i64, start: i64) -> Vec<u8> {
    let mut message = vec![1 << 3 | 1];
    message.extend_from_slice(&value.to_le_bytes());
    message.push(2 << 3);
    varint((MS + after_ms).cast_unsigned(), &mut message);
    if start != 0 {
        message.push(3 << 3);
        varint(start.cast_unsigned(), &mut message);
    }
    let mut out = Vec::new();
    nested(2, &message, &mut out);
    out
}

/// Writes a request with one sample.
pub(crate) async fn post_one(fixture: &DataFixture, labels: &[&str]) -> Reply {
    let mut request = RequestBuilder::new();
    request.series(labels, &sample(1.0, 0, 0));
    post(fixture, request.body()).await
}

fn with_exemplar(request: &mut RequestBuilder, fields: &mut Vec<u8>, trace: &str) {
    let mut message = request.packed(&["trace_id", trace]);
    message.extend_from_slice(&[2 << 3 | 1, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f, 3 << 3]);
    varint(MS.cast_unsigned(), &mut message);
    nested(4, &message, fields);
}

fn with_metadata(request: &mut RequestBuilder, fields: &mut Vec<u8>, kind: u8, help: &str, unit: &str) {
    let mut message = vec![1 << 3, kind, 3 << 3];
    varint(request.reference(help), &mut message);
    message.push(4 << 3);
    varint(request.reference(unit), &mut message);
    nested(5, &message, fields);
}

async fn post(fixture: &DataFixture, body: Vec<u8>) -> Reply {
    post_typed(&fixture.server, &fixture.agent, body, V2, "snappy").await
}

/// Returns the response headers with the numbers of written samples, histograms and exemplars.
fn written(reply: &Reply) -> [&str; 3] {
    ["samples", "histograms", "exemplars"]
        .map(|what| reply.header(&format!("x-prometheus-remote-write-{what}-written")))
}

async fn ask(fixture: &DataFixture, path: &str) -> Value {
    let reply = fixture.get(&format!("prometheus/api/v1/{path}")).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.value()["data"].clone()
}

/// Encodes two floats with start timestamps, a native histogram, two exemplars, and metadata.
fn everything() -> Vec<u8> {
    let mut request = RequestBuilder::new();
    let mut counter = [sample(1.0, -1_000, MS - 5_000), sample(2.0, 0, MS - 5_000)].concat();
    with_exemplar(&mut request, &mut counter, "abc");
    with_metadata(&mut request, &mut counter, 1, "Requests", "");
    request.series(&["__name__", "requests_total", "job", "a"], &counter);
    let mut native = Vec::new();
    nested(3, &histogram(3), &mut native);
    with_exemplar(&mut request, &mut native, "def");
    with_metadata(&mut request, &mut native, 3, "How long", "seconds");
    request.series(&["__name__", "latency_seconds", "job", "a"], &native);
    request.body()
}

#[tokio::test]
async fn all_kinds_of_samples_are_stored_and_counted_in_the_response() {
    let fixture = DataFixture::new().await;
    // Samples of a repeated request count as written.
    for round in 0..2 {
        let reply = post(&fixture, everything()).await;
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (204, ""), "round {round}");
        assert_eq!((written(&reply), reply.header("durability")), (["2", "1", "2"], "synced"));
    }
    let counter = json!({ "__name__": "requests_total", "job": "a" });
    let found = ask(&fixture, &format!("query?query=requests_total[5s]&time={NOW}")).await;
    let expected = json!([{ "metric": counter, "values": [[NOW - 1, "1"], [NOW, "2"]] }]);
    assert_eq!(found["result"], expected);
    let found = ask(&fixture, &format!("query?query=histogram_count(latency_seconds)&time={NOW}")).await;
    assert_eq!(found["result"], json!([{ "metric": { "job": "a" }, "value": [NOW, "3"] }]));
    let found = ask(&fixture, "metadata").await;
    let expected = json!({
        "requests_total": [{ "type": "counter", "help": "Requests", "unit": "" }],
        "latency_seconds": [{ "type": "histogram", "help": "How long", "unit": "seconds" }],
    });
    assert_eq!(found, expected);
    let found = ask(&fixture, &format!("query_exemplars?query=requests_total&start=0&end={NOW}")).await;
    let exemplar = json!({ "labels": { "trace_id": "abc" }, "value": "0.5", "timestamp": NOW });
    assert_eq!(found, json!([{ "seriesLabels": counter, "exemplars": [exemplar] }]));
}

#[tokio::test]
async fn both_versions_write_the_same_series_and_only_version_2_returns_counts() {
    let fixture = DataFixture::new().await;
    let labels = [("__name__", "up"), ("job", "a")];
    let reply =
        post_block(&fixture.server, &fixture.agent, snappy(&encode(&[(&labels, &[(MS, 1.0)])]))).await;
    assert_eq!((reply.status.as_u16(), written(&reply)), (204, ["", "", ""]));
    let mut request = RequestBuilder::new();
    request.series(&["__name__", "up", "job", "a"], &sample(1.0, 0, 0));
    request.series(&["job", "b", "__name__", "up"], &sample(0.0, 0, 0));
    for content_type in [V2, "application/x-protobuf; proto=\"io.prometheus.write.v2.Request\""] {
        let reply = post_typed(&fixture.server, &fixture.agent, request.body(), content_type, "snappy").await;
        assert_eq!((reply.status.as_u16(), written(&reply)), (204, ["2", "0", "0"]), "{content_type}");
    }
    let found = ask(&fixture, &format!("query?query=up&time={NOW}")).await;
    assert_eq!(found["result"].as_array().map(Vec::len), Some(2), "{found}");
}

#[tokio::test]
async fn valid_series_are_stored_and_counted_and_invalid_ones_are_named() {
    let fixture = DataFixture::new().await;
    let mut request = RequestBuilder::new();
    request.series(&["__name__", "good"], &sample(1.0, 0, 0));
    request.series(&["__name__", "twice", "a", "1", "a", "2"], &sample(1.0, 0, 0));
    request.series(&["__name__"], &sample(1.0, 0, 0));
    request.series(&["job", "nameless"], &sample(1.0, 0, 0));
    request.series(&["__name__", "early"], &[sample(1.0, 0, 0), sample(1.0, 3_600_000, 0)].concat());
    let mut native = Vec::new();
    nested(3, &histogram(4), &mut native);
    with_exemplar(&mut request, &mut native, "abc");
    request.series(&["__name__", "miscounted"], &native);
    let mut message = Vec::new();
    nested(1, &[1, 99], &mut message);
    message.extend(sample(1.0, 0, 0));
    nested(5, &message, &mut request.series);
    let reply = post(&fixture, request.body()).await;
    reply.is(400, "bad_request");
    assert_eq!((written(&reply), reply.header("durability")), (["2", "0", "0"], "synced"), "{}", reply.body);
    let value = reply.value();
    assert_eq!((&value["stored"], &value["refused"]), (&json!(2), &json!(6)), "{}", reply.body);
    let named = |word: &str| value["errors"].as_array().expect("a list").iter().any(|e| e["code"] == word);
    for code in [
        "duplicate_label",
        "invalid_encoding",
        "missing_metric_name",
        "too_far_in_future",
        "histogram_count_mismatch",
    ] {
        assert!(named(code), "{code}: {}", reply.body);
    }
    let all = escaped("{__name__=~\".+\"}");
    let found = ask(&fixture, &format!("query?query={all}&time={NOW}")).await;
    assert_eq!(found["result"].as_array().map(Vec::len), Some(2), "{found}");
}

#[tokio::test]
async fn broken_bodies_are_refused_and_the_server_continues() {
    let fixture = DataFixture::new().await;
    let whole = everything();
    let mut bodies = vec![Vec::new(), b"{}".to_vec(), vec![0xff; 100]];
    bodies.extend((1..whole.len()).step_by(7).map(|length| whole[..length].to_vec()));
    for body in bodies {
        post(&fixture, body).await.is(400, "bad_request");
        fixture.server.pass(std::time::Duration::from_millis(20));
    }
    // A block that declares 65 MiB.
    let bomb = [&[0x80, 0x80, 0xc0, 0x20][..], &[0; 100]].concat();
    post(&fixture, bomb).await.is(413, "body_too_large");
    // A symbol of a million bytes to which a thousand labels refer.
    let mut request = RequestBuilder::new();
    let long = "x".repeat(1_000_000);
    for _ in 0..300 {
        request.series(&["__name__", "a"], &sample(1.0, 0, 0));
    }
    let labels = vec![long.as_str(); 1_000];
    request.series(&labels, &sample(1.0, 0, 0));
    let reply = post(&fixture, request.body()).await;
    reply.is(400, "bad_request");
    assert_eq!(written(&reply)[0], "300", "{}", reply.body);
    assert_eq!(post(&fixture, whole).await.status, 204);
}
