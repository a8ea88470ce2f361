//! Sends the same samples through every ingest protocol.

use std::fmt::Write as _;

use promlet::model::{Labels, Sample};
use serde_json::{Map, Value, json};

use crate::harness::{Answer, ORG, Server, compressed, field, request, varint, write_request};

/// The number of protocols.
pub(crate) const PROTOCOLS: i64 = 6;

/// Sends `series` by protocol number `way`. The fields of a remote write request in `beside` are
/// sent with it, or before it in a request of their own.
pub(crate) fn send(
    server: &Server,
    secret: &str,
    way: i64,
    series: &[(Labels, Vec<Sample>)],
    beside: &[u8],
) -> Answer {
    let by_hand = |path: &str, content_type: &str, encoding: &str, body: &[u8]| {
        let first = server.write_raw(secret, &compressed(beside));
        if first.status != 204 {
            return first;
        }
        let bearer = format!("Bearer {secret}");
        let mut headers = vec![("Authorization", &*bearer), ("Content-Type", content_type)];
        if !encoding.is_empty() {
            headers.push(("Content-Encoding", encoding));
        }
        request("POST", &format!("{}/api/v1/orgs/{ORG}/{path}", server.url), &headers, Some(body))
    };
    match way.rem_euclid(PROTOCOLS) {
        0 => server.write_raw(secret, &compressed(&[&write_request(series)[..], beside].concat())),
        1 => {
            let content_type = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
            by_hand("write", content_type, "snappy", &compressed(&version_2(series)))
        }
        2 => by_hand("import", "text/plain", "", text(series).as_bytes()),
        3 => by_hand("import/jsonl", "application/x-ndjson", "", json_lines(series).as_bytes()),
        4 => by_hand("influx/write?precision=ms", "text/plain", "", line_protocol(series).as_bytes()),
        _ => by_hand("otlp/v1/metrics", "application/json", "", otlp(series).as_bytes()),
    }
}

pub(crate) fn version_2(series: &[(Labels, Vec<Sample>)]) -> Vec<u8> {
    let mut symbols = vec![""];
    let mut all = Vec::new();
    for (labels, samples) in series {
        let (mut one, mut references) = (Vec::new(), Vec::new());
        for text in labels.iter().flat_map(|label| [label.name, label.value]) {
            let index = symbols.iter().position(|have| *have == text).unwrap_or_else(|| {
                symbols.push(text);
                symbols.len() - 1
            });
            varint(&mut references, index as u64);
        }
        field(&mut one, 1, &references);
        for sample in samples {
            let mut message = vec![0x09];
            message.extend_from_slice(&sample.value.to_bits().to_le_bytes());
            message.push(0x10);
            varint(&mut message, sample.at.as_ms().cast_unsigned());
            field(&mut one, 2, &message);
        }
        field(&mut all, 5, &one);
    }
    let mut request = Vec::new();
    symbols.iter().for_each(|text| field(&mut request, 4, text.as_bytes()));
    [request, all].concat()
}

/// Returns the labels without the metric name.
fn others(labels: &Labels) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().map(|label| (label.name, label.value)).filter(|(name, _)| *name != "__name__")
}

fn text(series: &[(Labels, Vec<Sample>)]) -> String {
    let mut out = String::new();
    for (labels, samples) in series {
        let pairs: Vec<String> = others(labels).map(|(name, value)| format!("{name}={value:?}")).collect();
        for sample in samples {
            let (name, at) = (labels.value("__name__"), sample.at.as_ms());
            writeln!(out, "{name}{{{}}} {} {at}", pairs.join(","), sample.value).expect("memory");
        }
    }
    out
}

/// Returns lines of InfluxDB. The last part of the metric's name is that of the field.
pub(crate) fn line_protocol(series: &[(Labels, Vec<Sample>)]) -> String {
    let mut out = String::new();
    for (labels, samples) in series {
        let tags: String = others(labels).map(|(name, value)| format!(",{name}={value}")).collect();
        let (measurement, field) = labels.value("__name__").rsplit_once('_').expect("two parts");
        for sample in samples {
            let at = sample.at.as_ms();
            writeln!(out, "{measurement}{tags} {field}={} {at}", sample.value).expect("memory");
        }
    }
    out
}

fn json_lines(series: &[(Labels, Vec<Sample>)]) -> String {
    let line = |(labels, samples): &(Labels, Vec<Sample>)| {
        let metric: Map<String, Value> =
            labels.iter().map(|label| (label.name.to_string(), json!(label.value))).collect();
        let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
        let times: Vec<i64> = samples.iter().map(|sample| sample.at.as_ms()).collect();
        json!({ "metric": metric, "values": values, "timestamps": times }).to_string() + "\n"
    };
    series.iter().map(line).collect()
}

pub(crate) fn otlp(series: &[(Labels, Vec<Sample>)]) -> String {
    let metric = |(labels, samples): &(Labels, Vec<Sample>)| {
        let attributes: Vec<Value> = others(labels)
            .map(|(name, value)| json!({ "key": name, "value": { "stringValue": value } }))
            .collect();
        let point = |sample: &Sample| json!({ "asDouble": sample.value, "timeUnixNano": format!("{}000000", sample.at.as_ms()), "attributes": attributes });
        let points: Vec<Value> = samples.iter().map(point).collect();
        json!({ "name": labels.value("__name__"), "gauge": { "dataPoints": points } })
    };
    let metrics: Vec<Value> = series.iter().map(metric).collect();
    json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": metrics }] }] }).to_string()
}
