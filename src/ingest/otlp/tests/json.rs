//! The ways in which JSON is written, and what is wrong with it.

use super::*;
use crate::model::Refusal;

fn taken(json: &str) -> (Vec<String>, Vec<Refusal>) {
    let translated = decode(json.as_bytes(), Encoding::Json, &DecodeLimits::default()).expect("valid");
    (lines(&translated), translated.refusals)
}

fn refused(json: &str) -> String {
    decode(json.as_bytes(), Encoding::Json, &DecodeLimits::default())
        .map(|_| ())
        .expect_err("refused")
        .to_string()
}

/// A request of one sum; `more` of the metric's data, and the fields of its point.
fn of_sum(data: &str, point: &str) -> String {
    format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"s","sum":{{"dataPoints":[{{{point}}}]{data}}}}}]}}]}}]}}"#
    )
}

#[test]
fn enums_numbers_and_ids_are_read_however_they_are_written() {
    let plain = r#""timeUnixNano":"1000000000","asInt":"7""#;
    for data in [
        r#","aggregationTemporality":2,"isMonotonic":true"#,
        r#","aggregationTemporality":"AGGREGATION_TEMPORALITY_CUMULATIVE","isMonotonic":true"#,
        r#","aggregation_temporality":2,"is_monotonic":true"#,
        r#","isMonotonic":true,"unknown":[{"deep":[null,1]}],"aggregationTemporality":2"#,
    ] {
        assert_eq!(
            taken(&of_sum(data, plain)),
            (vec!["__name__=s_total | 7 @1000".to_owned()], vec![]),
            "{data}"
        );
    }
    let cumulative = r#","aggregationTemporality":2"#;
    for (point, value) in [
        (r#""timeUnixNano":1000000000,"asInt":7"#, "7"),
        (r#""time_unix_nano":1e9,"as_int":-7.0"#, "-7"),
        (r#""timeUnixNano":"1000000000","asDouble":"NaN""#, "NaN"),
        (r#""timeUnixNano":"1000000000","asDouble":"-Infinity""#, "-inf"),
        (r#""timeUnixNano":"1000000000","asDouble":"0.1""#, "0.1"),
        (r#""timeUnixNano":"1000000000","asDouble":5,"exemplars":null,"attributes":null"#, "5"),
        (r#""timeUnixNano":"1000000000","asInt":"9007199254740993""#, "9007199254740992"),
        (r#""timeUnixNano":"1000000000","asDouble":2.2250738585072014e-308"#, &f64::MIN_POSITIVE.to_string()),
    ] {
        let expected = vec![format!("__name__=s | {value} @1000")];
        assert_eq!(taken(&of_sum(cumulative, point)), (expected, vec![]), "{point}");
    }
    for (ids, expected) in [
        (r#""traceId":"0AF7651916CD43DD8448EB211C80319C""#, "trace_id=0af7651916cd43dd8448eb211c80319c"),
        (r#""trace_id":"CvdlGRbNQ92ESOshHIAxnA==""#, "trace_id=0af7651916cd43dd8448eb211c80319c"),
        (r#""spanId":"B7AD6B7169203331""#, "span_id=b7ad6b7169203331"),
        (r#""spanId":"t61rcWkgMzE=""#, "span_id=b7ad6b7169203331"),
        (r#""spanId":"","traceId":"00000000000000000000000000000000""#, ""),
    ] {
        let point = format!(r#"{plain},"exemplars":[{{"timeUnixNano":"1","asDouble":1.5,{ids}}}]"#);
        let expected = vec![format!("__name__=s | 7 @1000 # {expected} 1.5 @0")];
        assert_eq!(taken(&of_sum(cumulative, &point)), (expected, vec![]), "{ids}");
    }
}

#[test]
fn a_request_may_be_empty_and_fields_may_come_in_any_order() {
    assert_eq!(taken("{}"), (vec![], vec![]));
    assert_eq!(taken(r#" {"resourceMetrics":[]} "#), (vec![], vec![]));
    assert_eq!(taken(r#"{"resource_metrics":null}"#), (vec![], vec![]));
    let json = r#"{"resourceMetrics":[{
        "scopeMetrics":[{"metrics":[{
            "gauge":{"dataPoints":[{"asDouble":1,"timeUnixNano":"1000000000",
                "attributes":[{"value":{"bytesValue":"_-8"},"key":"b"},{"key":"k\u0041"}]}]},
            "unit":"s","name":"g","metadata":[]}],"scope":{"name":1},"schemaUrl":"x"}],
        "resource":{"attributes":[{"key":"service.name","value":{"stringValue":"s"}}],"droppedAttributesCount":0}}]}"#;
    let expected = vec!["__name__=g_seconds b=/+8= job=s service_name=s | 1 @1000".to_owned()];
    assert_eq!(taken(json), (expected, vec![]));
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_never_left_out() {
    let point = |point: &str| refused(&of_sum("", point));
    let cases = [
        (refused("[]"), "invalid type: sequence, expected an object: ExportMetricsServiceRequest"),
        (refused("{} x"), "trailing characters"),
        (refused(r#"{"resourceMetrics":[{"#), "EOF while parsing"),
        (refused(r#"{"resourceMetrics":{}}"#), "an object where resourceMetrics (an array) stands"),
        (refused(r#"{"resourceMetrics":[null]}"#), "null where resourceMetrics (an object) stands"),
        (refused(r#"{"resourceMetrics":[[]]}"#), "an array where resourceMetrics (an object) stands"),
        (refused(r#"{"resourceMetrics":["x"]}"#), "\"x\" where resourceMetrics (an object) stands"),
        (
            refused(&of_sum(r#","aggregationTemporality":"CUMULATIVE""#, "")),
            "\"CUMULATIVE\" where aggregationTemporality (one of the enum's numbers or names) stands",
        ),
        (point(r#""asInt":1.5"#), "1.5 where asInt (a whole number of 64 bits) stands"),
        (point(r#""asInt":"9223372036854775808""#), "9223372036854775808 where asInt"),
        (point(r#""asInt":true"#), "true where asInt"),
        (point(r#""asDouble":"much""#), "\"much\" where asDouble (a number) stands"),
        (point(r#""asDouble":1e999"#), "number out of range"),
        (point(r#""asDouble":[1]"#), "an array where asDouble"),
        (
            point(r#""timeUnixNano":-1"#),
            "-1 where timeUnixNano (a whole number of 64 bits, not negative) stands",
        ),
        (point(r#""flags":4294967296"#), "4294967296 where flags (a whole number of 32 bits, not negative)"),
        (point(r#""attributes":[{"key":5}]"#), "5 where key (a text) stands"),
        (point(r#""attributes":[{"value":{"bytesValue":"?"}}]"#), "\"?\" where bytesValue (bytes in base64)"),
        (point(r#""exemplars":[{"traceId":"abc"}]"#), "\"abc\" where traceId (an id in hexadecimal digits)"),
    ];
    for (found, expected) in cases {
        assert!(found.contains(expected), "{found:?}, not {expected:?}");
    }
    assert!(
        refused("{\n  \"resourceMetrics\": 7\n}").ends_with(" at line 2 column 22"),
        "{}",
        refused("{\n  \"resourceMetrics\": 7\n}")
    );
}

#[test]
fn what_is_deep_does_not_reach_the_end_of_the_stack() {
    let deep = |open: &str, close: &str, levels: usize| {
        let value = format!("{}{}", open.repeat(levels), close.repeat(levels));
        let point =
            format!(r#""timeUnixNano":"1000000000","asInt":1,"attributes":[{{"key":"k","value":{value}}}]"#);
        of_sum(r#","aggregationTemporality":2"#, &point)
    };
    let (lines, refusals) = taken(&deep(r#"{"arrayValue":{"values":["#, "]}}", 16));
    assert_eq!((lines.len(), refusals.len()), (1, 0), "{refusals:?}");
    let (lines, refusals) = taken(&deep(r#"{"arrayValue":{"values":["#, "]}}", 20));
    assert_eq!((lines.len(), refusals[0].code), (0, "attribute_too_deep"));
    assert!(refused(&deep(r#"{"arrayValue":{"values":["#, "]}}", 100_000)).contains("recursion limit"));
    // Passed over, and yet valid.
    let unknown = format!("{{\"x\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(taken(&unknown), (vec![], vec![]));
}

#[test]
fn short_json_does_not_become_much() {
    let zeros = "0,".repeat(10_000) + "0";
    let point = format!(r#""bucketCounts":[{zeros}]"#);
    let json = of_sum("", &point).replace("\"sum\"", "\"histogram\"");
    let limits = DecodeLimits { decompressed_bytes_max: json.len(), ..DecodeLimits::default() };
    let error = decode(json.as_bytes(), Encoding::Json, &limits).map(|_| ()).expect_err("refused");
    assert!(matches!(error, DecodeError::TooLarge { what: "bytes as protobuf", .. }), "{error}");
}
