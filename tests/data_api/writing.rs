//! Remote write 1.0 through the router (docs/specification.md C7).

use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use serde_json::json;

use crate::test_server::{Reply, TestServer, TestServerOptions, Who, ask};
use crate::wire::{
    DataFixture, NOW, encode, encode_labels, nested, post_block, post_typed, snappy, varint, write_request,
};

const UP: &[(&str, &str)] = &[("__name__", "up"), ("job", "a")];
const ONE: &[(i64, f64)] = &[(NOW * 1_000, 1.0)];

fn up() -> Vec<u8> {
    snappy(&encode(&[(UP, ONE)]))
}

async fn stored(fixture: &DataFixture) -> serde_json::Value {
    let reply = fixture.get("query/expr-instant?expr=%7B__name__%3D~%22.%2B%22%7D").await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.value()["data"]["result"].clone()
}

#[tokio::test]
async fn a_write_of_the_last_urgency_gives_way_while_others_are_active() {
    let mut options = TestServerOptions::default();
    options.lanes.activity_window = Duration::from_secs(600);
    let fixture = DataFixture::of(TestServer::build(options)).await;
    let write = async |priority: &'static str| {
        let mut request = write_request(&fixture.agent, up(), "application/x-protobuf", "snappy");
        request.headers_mut().insert("priority", HeaderValue::from_static(priority));
        let reply = fixture.server.send(request).await;
        assert_eq!(reply.status, 204, "{}", reply.body);
        reply.header("gave-way").to_owned()
    };
    assert_eq!(write("u=7").await, "", "no other request is active, and such requests do not count");
    assert_eq!(write("u=7, i").await, "");
    assert_eq!(write("u=3").await, "", "another urgency does not give way");
    assert_eq!((write("u=7").await, write("i, u=7").await), ("1".to_owned(), "1".to_owned()));
}

#[tokio::test]
async fn a_query_makes_writes_of_the_last_urgency_give_way() {
    let mut options = TestServerOptions::default();
    options.lanes.activity_window = Duration::from_secs(600);
    let fixture = DataFixture::of(TestServer::build(options)).await;
    assert_eq!(stored(&fixture).await, json!([]));
    let mut request = write_request(&fixture.agent, up(), "application/x-protobuf", "snappy");
    request.headers_mut().insert("priority", HeaderValue::from_static("u=7"));
    let reply = fixture.server.send(request).await;
    assert_eq!((reply.status.as_u16(), reply.header("gave-way")), (204, "1"));
}

#[tokio::test]
async fn written_samples_can_be_queried_and_the_response_has_their_durability() {
    let fixture = DataFixture::new().await;
    let reply = post_block(&fixture.server, &fixture.agent, up()).await;
    assert_eq!((reply.status.as_u16(), reply.header("durability"), reply.body.as_str()), (204, "synced", ""));
    assert_eq!(
        stored(&fixture).await,
        json!([{ "metric": { "__name__": "up", "job": "a" }, "value": [NOW, "1"] }])
    );
}

#[tokio::test]
async fn both_paths_accept_samples_and_editors_may_write() {
    let fixture = DataFixture::new().await;
    for (path, who) in [("write", &fixture.agent), ("prometheus/api/v1/write", &fixture.cabinet)] {
        let request =
            ask("POST", &format!("/api/v1/orgs/acme/{path}"), who).body(Body::from(up())).expect("a request");
        let reply = fixture.server.send(request).await;
        assert_eq!(reply.status, 204, "{path}: {}", reply.body);
    }
}

#[tokio::test]
async fn callers_without_write_access_are_refused() {
    let fixture = DataFixture::new().await;
    let (_, reading) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["read"] })).await;
    let token = fixture.embed(json!({})).await;
    post_block(&fixture.server, &Who::Bearer(reading), up()).await.is(403, "forbidden");
    post_block(&fixture.server, &token, up()).await.is(403, "embed_restricted");
    post_block(&fixture.server, &Who::Nobody, up()).await.is(401, "unauthenticated");
    post_block(&fixture.server, &Who::Bearer("msk_wrong".into()), up()).await.is(401, "api_key_invalid");
    let other =
        ask("POST", "/api/v1/orgs/other/write", &fixture.agent).body(Body::from(up())).expect("a request");
    fixture.server.send(other).await.is(403, "org_mismatch");
    assert_eq!(stored(&fixture).await, json!([]));
}

#[tokio::test]
async fn unknown_encodings_and_versions_are_refused_with_415() {
    let fixture = DataFixture::new().await;
    let cases = [
        ("application/x-protobuf;proto=io.prometheus.write.v3.Request", "snappy"),
        ("application/x-protobuf;proto=io.prometheus.write.v2.Request", "br"),
        ("application/json", "snappy"),
        ("application/x-protobuf", "br"),
        ("application/x-protobuf", "gzip"),
    ];
    for (content_type, encoding) in cases {
        post_typed(&fixture.server, &fixture.agent, up(), content_type, encoding)
            .await
            .is(415, "unsupported_media_type");
    }
}

/// vmagent tries zstd first.
#[tokio::test]
async fn bodies_in_zstd_are_stored_and_bombs_are_refused() {
    let fixture = DataFixture::new().await;
    let send = async |bytes: &[u8]| {
        let body = zstd::bulk::compress(bytes, 3).expect("memory");
        post_typed(&fixture.server, &fixture.agent, body, "application/x-protobuf", "zstd").await
    };
    for _ in 0..2 {
        let reply = send(&encode(&[(UP, ONE)])).await;
        assert_eq!(reply.status, 204, "{}", reply.body);
    }
    assert_eq!(stored(&fixture).await.as_array().expect("a list").len(), 1);
    send(&vec![0; (64 << 20) + 1]).await.is(413, "body_too_large");
    let reply = post_typed(&fixture.server, &fixture.agent, up(), "application/x-protobuf", "zstd").await;
    reply.is(400, "bad_request");
}

#[tokio::test]
async fn broken_bodies_are_refused_and_the_server_continues() {
    let fixture = DataFixture::new().await;
    let message = encode(&[(UP, ONE)]);
    let block = snappy(&message);
    let mut bodies = vec![Vec::new(), b"{}".to_vec(), vec![0xff; 100], snappy(&message[..message.len() - 3])];
    bodies.extend((1..block.len()).map(|length| block[..length].to_vec()));
    for body in bodies {
        post_block(&fixture.server, &fixture.agent, body).await.is(400, "bad_request");
        fixture.server.pass(std::time::Duration::from_millis(20));
    }
    assert_eq!(stored(&fixture).await, json!([]));
    assert_eq!(post_block(&fixture.server, &fixture.agent, block).await.status, 204);
}

#[tokio::test]
async fn decompression_bombs_are_refused_by_their_declared_length() {
    let fixture = DataFixture::new().await;
    // Blocks that declare 65 MiB, and the greatest number of 32 bits.
    for header in [&[0x80, 0x80, 0xc0, 0x20][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]] {
        let bomb = [header, &[0; 100]].concat();
        post_block(&fixture.server, &fixture.agent, bomb).await.is(413, "body_too_large");
    }
    // A hundred bytes of a snappy block cannot decompress to 60 MiB.
    let lie = [&[0x80, 0x80, 0x80, 0x1e][..], &[0; 100]].concat();
    post_block(&fixture.server, &fixture.agent, lie).await.is(400, "bad_request");
    let large = vec![0; 8 * 1024 * 1024 + 1];
    post_block(&fixture.server, &fixture.agent, large).await.is(413, "body_too_large");
}

#[tokio::test]
async fn labels_of_the_api_key_replace_those_of_the_sender() {
    let fixture = DataFixture::new().await;
    let fields =
        json!({ "scopes": ["ingest"], "ingest": { "labels": { "job": "forced", "source": "laptop" } } });
    let (_, secret) = fixture.server.key(&fixture.cabinet, fields).await;
    let reply = post_block(&fixture.server, &Who::Bearer(secret), up()).await;
    assert_eq!(reply.status, 204, "{}", reply.body);
    let metric = stored(&fixture).await[0]["metric"].clone();
    assert_eq!(metric, json!({ "__name__": "up", "job": "forced", "source": "laptop" }));
}

fn first_line(reply: &Reply) -> &str {
    reply.body.lines().next().unwrap_or_default()
}

#[tokio::test]
async fn valid_samples_are_stored_and_invalid_ones_of_the_same_request_are_named() {
    let fixture = DataFixture::new().await;
    let twice: &[(&str, &str)] = &[("__name__", "bad"), ("job", "a"), ("job", "b")];
    let nameless: &[(&str, &str)] = &[("job", "nameless")];
    let early = &[((NOW + 3_600) * 1_000, 1.0)];
    let early_name: &[(&str, &str)] = &[("__name__", "early")];
    let body = encode(&[(twice, ONE), (UP, ONE), (nameless, ONE), (early_name, early)]);
    let reply = post_block(&fixture.server, &fixture.agent, snappy(&body)).await;
    reply.is(400, "bad_request");
    let value = reply.value();
    assert_eq!((&value["stored"], &value["refused"]), (&json!(1), &json!(3)));
    assert_eq!(value["errors"].as_array().expect("a list").len(), 3);
    assert!(first_line(&reply).contains("1 samples stored, 3 refused"), "{}", reply.body);
    assert!(first_line(&reply).contains("bad"), "{}", reply.body);
    assert_eq!(reply.header("durability"), "synced");
    assert_eq!(stored(&fixture).await.as_array().expect("a list").len(), 1);
}

#[tokio::test]
async fn at_most_ten_refusals_are_named() {
    let fixture = DataFixture::new().await;
    let names: Vec<String> = (0..30).map(|n| format!("bad_{n}")).collect();
    let labels: Vec<[(&str, &str); 3]> =
        names.iter().map(|name| [("__name__", name.as_str()), ("x", "1"), ("x", "2")]).collect();
    let series: Vec<_> = labels.iter().map(|labels| (&labels[..], ONE)).collect();
    let reply = post_block(&fixture.server, &fixture.agent, snappy(&encode(&series))).await;
    reply.is(400, "bad_request");
    assert_eq!(reply.value()["errors"].as_array().expect("a list").len(), 10);
    assert_eq!(reply.value()["refused"], 30);
}

/// Encodes a `Histogram` with two buckets, which hold 3 observations, and the count `count`, at
/// `NOW`.
pub(crate) fn histogram(count: u8) -> Vec<u8> {
    let mut out = vec![1 << 3, count];
    out.extend_from_slice(&[3 << 3 | 1, 0, 0, 0, 0, 0, 0, 0x14, 0x40, 4 << 3, 2]);
    nested(11, &[2 << 3, 2], &mut out);
    // The deltas are 1 and 1, so the buckets hold 1 and 2 observations.
    nested(12, &[2, 2], &mut out);
    out.push(15 << 3);
    varint((NOW * 1_000).cast_unsigned(), &mut out);
    out
}

fn exemplar(trace: &str) -> Vec<u8> {
    let mut out = encode_labels(&[("trace_id", trace)]);
    out.extend_from_slice(&[2 << 3 | 1, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f, 3 << 3]);
    varint((NOW * 1_000).cast_unsigned(), &mut out);
    out
}

#[tokio::test]
async fn native_histograms_and_exemplars_are_stored_like_floats() {
    let fixture = DataFixture::new().await;
    let mut native = encode_labels(&[("__name__", "native")]);
    nested(4, &histogram(3), &mut native);
    nested(3, &exemplar("abc"), &mut native);
    let mut body = encode(&[(UP, ONE)]);
    nested(1, &native, &mut body);
    for _ in 0..2 {
        let reply = post_block(&fixture.server, &fixture.agent, snappy(&body)).await;
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (204, ""), "a repeated request succeeds");
    }
    assert_eq!(stored(&fixture).await.as_array().expect("a list").len(), 2);
    let root = "1.414213562373095";
    let buckets = json!([[0, "0.7071067811865475", "1", "1"], [0, "1", root, "2"]]);
    let histogram = json!({ "count": "3", "sum": "5", "buckets": buckets });
    let reply = fixture.get(&format!("prometheus/api/v1/query?query=native&time={NOW}")).await;
    let expected = json!([{ "metric": { "__name__": "native" }, "histogram": [NOW, histogram] }]);
    assert_eq!(reply.value()["data"]["result"], expected, "{}", reply.body);
    assert_eq!(reply.value()["warnings"], json!(null), "{}", reply.body);
    let range = format!("prometheus/api/v1/query_range?query=native&start={NOW}&end={}&step=60", NOW + 60);
    let reply = fixture.get(&range).await;
    let histograms = json!([[NOW, histogram], [NOW + 60, histogram]]);
    let expected = json!([{ "metric": { "__name__": "native" }, "histograms": histograms }]);
    assert_eq!(reply.value()["data"]["result"], expected, "{}", reply.body);
    let quantile = format!("prometheus/api/v1/query?query=histogram_count(native)&time={NOW}");
    let expected = json!([{ "metric": {}, "value": [NOW, "3"] }]);
    assert_eq!(fixture.get(&quantile).await.value()["data"]["result"], expected);
    let reply =
        fixture.get(&format!("prometheus/api/v1/query_exemplars?query=native&start=0&end={NOW}")).await;
    let expected = json!([{
        "seriesLabels": { "__name__": "native" },
        "exemplars": [{ "labels": { "trace_id": "abc" }, "value": "0.5", "timestamp": NOW }],
    }]);
    assert_eq!(reply.value()["data"], expected, "{}", reply.body);
    let reply = fixture.get("prometheus/api/v1/series?match[]=native&start=0").await;
    assert_eq!(reply.value()["data"], json!([{ "__name__": "native" }]), "{}", reply.body);
    let reply = fixture.get("prometheus/api/v1/labels?start=0").await;
    assert_eq!(reply.value()["data"], json!(["__name__", "job"]), "{}", reply.body);
}

#[tokio::test]
async fn an_invalid_histogram_is_named_and_the_other_samples_are_stored() {
    let fixture = DataFixture::new().await;
    let mut native = encode_labels(&[("__name__", "native")]);
    nested(4, &histogram(4), &mut native);
    let mut body = encode(&[(UP, ONE)]);
    nested(1, &native, &mut body);
    let reply = post_block(&fixture.server, &fixture.agent, snappy(&body)).await;
    reply.is(400, "bad_request");
    assert!(first_line(&reply).contains("counts 4 observations, its buckets hold 3"), "{}", reply.body);
    assert_eq!(reply.value()["errors"][0]["code"], "histogram_count_mismatch");
    assert_eq!((&reply.value()["stored"], &reply.value()["refused"]), (&json!(1), &json!(1)));
    assert_eq!(stored(&fixture).await.as_array().expect("a list").len(), 1);
}

#[tokio::test]
async fn an_api_key_beyond_its_sample_rate_is_told_to_retry() {
    let fixture = DataFixture::new().await;
    let fields = json!({ "scopes": ["ingest"], "ingest": { "samples_per_s": 1 } });
    let (_, secret) = fixture.server.key(&fixture.cabinet, fields).await;
    let agent = Who::Bearer(secret);
    assert_eq!(post_block(&fixture.server, &agent, up()).await.status, 204);
    let reply = post_block(&fixture.server, &agent, up()).await;
    reply.is(503, "ingest_throttled");
    assert!(reply.header("retry-after").parse::<u64>().expect("seconds") >= 1);
}
