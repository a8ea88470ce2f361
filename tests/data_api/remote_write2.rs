//! Remote write 2.0 through the door (docs/specification.md C7): chosen by content type, answered with what was written.

use serde_json::{Value, json};

use crate::test_server::Reply;
use crate::wire::{NOW, Stage, encode, escaped, nested, post_block, post_typed, snappy, varint};
use crate::writing::histogram;

const V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
const MS: i64 = NOW * 1_000;

/// A request on its way: the table of symbols, and the series.
struct Request {
    symbols: Vec<String>,
    series: Vec<u8>,
}

impl Request {
    fn new() -> Request {
        Request { symbols: vec![String::new()], series: Vec::new() }
    }

    fn reference(&mut self, text: &str) -> u64 {
        let known = self.symbols.iter().position(|have| have == text);
        known.unwrap_or_else(|| {
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

    /// Adds a series: names and values of its labels, its other fields.
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

/// A sample at the server's time and so many milliseconds; a start of 0 is none.
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

/// A whole request of one sample, for other files.
pub(crate) async fn post_one(stage: &Stage, labels: &[&str]) -> Reply {
    let mut request = Request::new();
    request.series(labels, &sample(1.0, 0, 0));
    post(stage, request.body()).await
}

fn with_exemplar(request: &mut Request, fields: &mut Vec<u8>, trace: &str) {
    let mut message = request.packed(&["trace_id", trace]);
    message.extend_from_slice(&[2 << 3 | 1, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f, 3 << 3]);
    varint(MS.cast_unsigned(), &mut message);
    nested(4, &message, fields);
}

fn with_metadata(request: &mut Request, fields: &mut Vec<u8>, kind: u8, help: &str, unit: &str) {
    let mut message = vec![1 << 3, kind, 3 << 3];
    varint(request.reference(help), &mut message);
    message.push(4 << 3);
    varint(request.reference(unit), &mut message);
    nested(5, &message, fields);
}

async fn post(stage: &Stage, body: Vec<u8>) -> Reply {
    post_typed(&stage.server, &stage.agent, body, V2, "snappy").await
}

/// Samples, histograms and exemplars that a sender is told were written.
fn written(reply: &Reply) -> [&str; 3] {
    ["samples", "histograms", "exemplars"]
        .map(|what| reply.header(&format!("x-prometheus-remote-write-{what}-written")))
}

async fn ask(stage: &Stage, path: &str) -> Value {
    let reply = stage.get(&format!("prometheus/api/v1/{path}")).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.value()["data"].clone()
}

/// Two floats with starts, a native histogram, two exemplars, descriptions.
fn everything() -> Vec<u8> {
    let mut request = Request::new();
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
async fn everything_of_a_request_is_stored_and_counted_to_its_sender() {
    let stage = Stage::new().await;
    // Sent again, it is there already, which is as good as written.
    for round in 0..2 {
        let reply = post(&stage, everything()).await;
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (204, ""), "round {round}");
        assert_eq!((written(&reply), reply.header("durability")), (["2", "1", "2"], "synced"));
    }
    let counter = json!({ "__name__": "requests_total", "job": "a" });
    let found = ask(&stage, &format!("query?query=requests_total[5s]&time={NOW}")).await;
    let expected = json!([{ "metric": counter, "values": [[NOW - 1, "1"], [NOW, "2"]] }]);
    assert_eq!(found["result"], expected);
    let found = ask(&stage, &format!("query?query=histogram_count(latency_seconds)&time={NOW}")).await;
    assert_eq!(found["result"], json!([{ "metric": { "job": "a" }, "value": [NOW, "3"] }]));
    let found = ask(&stage, "metadata").await;
    let expected = json!({
        "requests_total": [{ "type": "counter", "help": "Requests", "unit": "" }],
        "latency_seconds": [{ "type": "histogram", "help": "How long", "unit": "seconds" }],
    });
    assert_eq!(found, expected);
    let found = ask(&stage, &format!("query_exemplars?query=requests_total&start=0&end={NOW}")).await;
    let exemplar = json!({ "labels": { "trace_id": "abc" }, "value": "0.5", "timestamp": NOW });
    assert_eq!(found, json!([{ "seriesLabels": counter, "exemplars": [exemplar] }]));
}

#[tokio::test]
async fn both_versions_write_the_same_series_by_both_paths_and_only_one_counts() {
    let stage = Stage::new().await;
    let labels = [("__name__", "up"), ("job", "a")];
    let reply = post_block(&stage.server, &stage.agent, snappy(&encode(&[(&labels, &[(MS, 1.0)])]))).await;
    assert_eq!((reply.status.as_u16(), written(&reply)), (204, ["", "", ""]));
    let mut request = Request::new();
    request.series(&["__name__", "up", "job", "a"], &sample(1.0, 0, 0));
    request.series(&["job", "b", "__name__", "up"], &sample(0.0, 0, 0));
    for content_type in [V2, "application/x-protobuf; proto=\"io.prometheus.write.v2.Request\""] {
        let reply = post_typed(&stage.server, &stage.agent, request.body(), content_type, "snappy").await;
        assert_eq!((reply.status.as_u16(), written(&reply)), (204, ["2", "0", "0"]), "{content_type}");
    }
    let found = ask(&stage, &format!("query?query=up&time={NOW}")).await;
    assert_eq!(found["result"].as_array().map(Vec::len), Some(2), "{found}");
}

#[tokio::test]
async fn good_series_of_a_partly_bad_request_are_stored_counted_and_the_bad_are_named() {
    let stage = Stage::new().await;
    let mut request = Request::new();
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
    let reply = post(&stage, request.body()).await;
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
    let found = ask(&stage, &format!("query?query={all}&time={NOW}")).await;
    assert_eq!(found["result"].as_array().map(Vec::len), Some(2), "{found}");
}

#[tokio::test]
async fn broken_bodies_are_refused_and_harm_nobody() {
    let stage = Stage::new().await;
    let whole = everything();
    let mut bodies = vec![Vec::new(), b"{}".to_vec(), vec![0xff; 100]];
    bodies.extend((1..whole.len()).step_by(7).map(|length| whole[..length].to_vec()));
    for body in bodies {
        post(&stage, body).await.is(400, "bad_request");
        stage.server.pass(std::time::Duration::from_millis(20));
    }
    // 65 MiB declared.
    let bomb = [&[0x80, 0x80, 0xc0, 0x20][..], &[0; 100]].concat();
    post(&stage, bomb).await.is(413, "body_too_large");
    // A symbol of a million bytes that a thousand labels name.
    let mut request = Request::new();
    let long = "x".repeat(1_000_000);
    for _ in 0..300 {
        request.series(&["__name__", "a"], &sample(1.0, 0, 0));
    }
    let labels = vec![long.as_str(); 1_000];
    request.series(&labels, &sample(1.0, 0, 0));
    let reply = post(&stage, request.body()).await;
    reply.is(400, "bad_request");
    assert_eq!(written(&reply)[0], "300", "{}", reply.body);
    assert_eq!(post(&stage, whole).await.status, 204);
}
