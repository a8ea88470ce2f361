//! An encoder of remote write requests that shares no code with the server, and a test server with
//! samples.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::test_server::{Reply, TestServer, Who, ask};

/// The labels of a series, and its samples as (milliseconds, value).
pub(crate) type Series<'a> = (&'a [(&'a str, &'a str)], &'a [(i64, f64)]);

/// The time of the test server's clock in seconds.
pub(crate) const NOW: i64 = 1_800_000_000;

pub(crate) fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("seven bits"));
}

pub(crate) fn nested(field: u64, message: &[u8], out: &mut Vec<u8>) {
    varint(field << 3 | 2, out);
    varint(message.len() as u64, out);
    out.extend_from_slice(message);
}

pub(crate) fn encode_labels(labels: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in labels {
        let mut label = Vec::new();
        nested(1, name.as_bytes(), &mut label);
        nested(2, value.as_bytes(), &mut label);
        nested(1, &label, &mut out);
    }
    out
}

/// Encodes a `WriteRequest`.
pub(crate) fn encode(series: &[Series<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (labels, samples) in series {
        let mut message = encode_labels(labels);
        for (at, value) in *samples {
            let mut sample = vec![1 << 3 | 1];
            sample.extend_from_slice(&value.to_le_bytes());
            sample.push(2 << 3);
            varint(at.cast_unsigned(), &mut sample);
            nested(2, &sample, &mut message);
        }
        nested(1, &message, &mut out);
    }
    out
}

/// Encodes a `MetricMetadata` field of a `WriteRequest`; `kind` is 1 for a counter and 2 for a
/// gauge.
pub(crate) fn describe(name: &str, kind: u8, help: &str, unit: &str) -> Vec<u8> {
    let mut message = vec![1 << 3, kind];
    nested(2, name.as_bytes(), &mut message);
    nested(4, help.as_bytes(), &mut message);
    nested(5, unit.as_bytes(), &mut message);
    let mut out = Vec::new();
    nested(3, &message, &mut out);
    out
}

/// Encodes a valid snappy block that consists of literals.
pub(crate) fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(bytes.len() as u64, &mut out);
    for chunk in bytes.chunks(65_536) {
        // The tag of a literal, and its length minus one in two bytes.
        out.push(61 << 2);
        out.extend_from_slice(&u16::try_from(chunk.len() - 1).expect("a chunk").to_le_bytes());
        out.extend_from_slice(chunk);
    }
    out
}

pub(crate) async fn post_block(server: &TestServer, who: &Who, block: Vec<u8>) -> Reply {
    post_typed(server, who, block, "application/x-protobuf", "snappy").await
}

pub(crate) async fn post_typed(
    server: &TestServer,
    who: &Who,
    block: Vec<u8>,
    content_type: &str,
    encoding: &str,
) -> Reply {
    server.send(write_request(who, block, content_type, encoding)).await
}

pub(crate) fn write_request(who: &Who, block: Vec<u8>, content_type: &str, encoding: &str) -> Request<Body> {
    ask("POST", "/api/v1/orgs/acme/write", who)
        .header("content-type", content_type)
        .header("content-encoding", encoding)
        .header("x-prometheus-remote-write-version", "0.1.0")
        .body(Body::from(block))
        .expect("a request")
}

/// A test server with the session of an organisation's owner and an ingest key.
pub(crate) struct DataFixture {
    pub(crate) server: TestServer,
    pub(crate) cabinet: Who,
    pub(crate) agent: Who,
}

impl DataFixture {
    pub(crate) async fn new() -> DataFixture {
        DataFixture::of(TestServer::new()).await
    }

    /// Uses a test server with other options.
    pub(crate) async fn of(server: TestServer) -> DataFixture {
        let cabinet = server.log_in().await;
        let (_, secret) = server.key(&cabinet, json!({ "scopes": ["ingest"] })).await;
        DataFixture { server, cabinet, agent: Who::Bearer(secret) }
    }

    /// Writes samples, all of which must be stored.
    pub(crate) async fn write(&self, series: &[Series<'_>]) {
        let reply = post_block(&self.server, &self.agent, snappy(&encode(series))).await;
        assert_eq!(reply.status, 204, "{}", reply.body);
    }

    /// Returns a server with five series of a small shop: counters of two jobs and two tenants, and
    /// `up`. They have a sample every 15 seconds of the 15 minutes before `NOW`.
    pub(crate) async fn with_shop() -> DataFixture {
        DataFixture::with_shop_of(DataFixture::new().await).await
    }

    /// Writes the series of [`DataFixture::with_shop`].
    pub(crate) async fn with_shop_of(fixture: DataFixture) -> DataFixture {
        let rising = |rate: f64| {
            (0..=60).map(|n| ((NOW - 900 + n * 15) * 1_000, rate * 15.0 * n as f64)).collect::<Vec<_>>()
        };
        let (one, two, ones) =
            (rising(1.0), rising(2.0), rising(0.0).into_iter().map(|(at, _)| (at, 1.0)).collect::<Vec<_>>());
        let counter = |job, tenant| [("__name__", "http_requests_total"), ("job", job), ("tenant", tenant)];
        let up = |job| [("__name__", "up"), ("job", job)];
        fixture
            .write(&[
                (&counter("api", "a"), &one),
                (&counter("web", "a"), &two),
                (&counter("api", "b"), &two),
                (&up("api"), &ones),
                (&up("web"), &ones),
            ])
            .await;
        fixture
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.server.get(&format!("/api/v1/orgs/acme/{path}"), &self.cabinet).await
    }

    pub(crate) async fn get_as(&self, who: &Who, path: &str) -> Reply {
        self.server.get(&format!("/api/v1/orgs/acme/{path}"), who).await
    }

    /// Sends a path and its query string as a `POST` whose form is the query string.
    pub(crate) async fn post_form(&self, who: &Who, slug: &str, path_and_query: &str) -> Reply {
        let (path, form) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let request = ask("POST", &format!("/api/v1/orgs/{slug}/{path}"), who)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Body::from(form.to_owned()));
        self.server.send(request.expect("a request")).await
    }

    /// Returns an embed token with these restrictions.
    pub(crate) async fn embed(&self, ms: Value) -> Who {
        let (key, _) = self
            .server
            .key(&self.cabinet, json!({ "scopes": ["embed"], "embed": { "rate_limit_rps": 10_000 } }))
            .await;
        self.server.token(&self.cabinet, &key, json!({ "ms": ms })).await
    }
}

/// Percent-encodes the value of a query parameter.
pub(crate) fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
