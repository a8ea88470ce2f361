//! The accepted forms of JSON, and its errors.

use super::*;
use crate::model::Refusal;

fn translated_lines(json: &str) -> (Vec<String>, Vec<Refusal>) {
    let translated = decode(json.as_bytes(), Encoding::Json, &DecodeLimits::default()).expect("valid");
    (lines(&translated), translated.refusals)
}

fn refused(json: &str) -> String {
    decode(json.as_bytes(), Encoding::Json, &DecodeLimits::default())
        .map(|_| ())
        .expect_err("refused")
        .to_string()
}

/// Returns a request with one sum; `data` is appended to the data of the metric, `point` holds the
/// fields of its point.
fn of_sum(data: &str, point: &str) -> String {
    format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"s","sum":{{"dataPoints":[{{{point}}}]{data}}}}}]}}]}}]}}"#
    )
}

#[test]
fn enums_numbers_and_ids_are_accepted_in_every_json_form() {
    let plain = r#""timeUnixNano":"1000000000","asInt":"7""#;
    for data in [
        r#","aggregationTemporality":2,"isMonotonic":true"#,
        r#","aggregationTemporality":"AGGREGATION_TEMPORALITY_CUMULATIVE","isMonotonic":true"#,
        r#","aggregation_temporality":2,"is_monotonic":true"#,
        r#","isMonotonic":true,"unknown":[{"deep":[null,1]}],"aggregationTemporality":2"#,
    ] {
        assert_eq!(
            translated_lines(&of_sum(data, plain)),
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
        assert_eq!(translated_lines(&of_sum(cumulative, point)), (expected, vec![]), "{point}");
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
        assert_eq!(translated_lines(&of_sum(cumulative, &point)), (expected, vec![]), "{ids}");
    }
}

#[test]
fn a_request_may_be_empty_and_its_fields_in_any_order() {
    assert_eq!(translated_lines("{}"), (vec![], vec![]));
    assert_eq!(translated_lines(r#" {"resourceMetrics":[]} "#), (vec![], vec![]));
    assert_eq!(translated_lines(r#"{"resource_metrics":null}"#), (vec![], vec![]));
    let json = r#"{"resourceMetrics":[{
        "scopeMetrics":[{"metrics":[{
            "gauge":{"dataPoints":[{"asDouble":1,"timeUnixNano":"1000000000",
                "attributes":[{"value":{"bytesValue":"_-8"},"key":"b"},{"key":"k\u0041"}]}]},
            "unit":"s","name":"g","metadata":[]}],"scope":{"name":1},"schemaUrl":"x"}],
        "resource":{"attributes":[{"key":"service.name","value":{"stringValue":"s"}}],"droppedAttributesCount":0}}]}"#;
    let expected = vec!["__name__=g_seconds b=/+8= job=s service_name=s | 1 @1000".to_owned()];
    assert_eq!(translated_lines(json), (expected, vec![]));
}

#[test]
fn json_errors_name_the_field_and_the_position() {
    let point = |point: &str| refused(&of_sum("", point));
    let cases = [
        (refused("[]"), "invalid type: sequence, expected an object: ExportMetricsServiceRequest"),
        (refused("{} x"), "trailing characters"),
        (refused(r#"{"resourceMetrics":[{"#), "EOF while parsing"),
        (refused(r#"{"resourceMetrics":{}}"#), "an object instead of resourceMetrics (an array)"),
        (refused(r#"{"resourceMetrics":[null]}"#), "null instead of resourceMetrics (an object)"),
        (refused(r#"{"resourceMetrics":[[]]}"#), "an array instead of resourceMetrics (an object)"),
        (refused(r#"{"resourceMetrics":["x"]}"#), "\"x\" instead of resourceMetrics (an object)"),
        (
            refused(&of_sum(r#","aggregationTemporality":"CUMULATIVE""#, "")),
            "\"CUMULATIVE\" instead of aggregationTemporality (a number or name of the enum)",
        ),
        (point(r#""asInt":1.5"#), "1.5 instead of asInt (a 64-bit integer)"),
        (point(r#""asInt":"9223372036854775808""#), "9223372036854775808 instead of asInt"),
        (point(r#""asInt":true"#), "true instead of asInt"),
        (point(r#""asDouble":"much""#), "\"much\" instead of asDouble (a number)"),
        (point(r#""asDouble":1e999"#), "number out of range"),
        (point(r#""asDouble":"-1e999""#), "\"-1e999\" instead of asDouble (a number)"),
        (point(r#""asDouble":[1]"#), "an array instead of asDouble"),
        (point(r#""timeUnixNano":-1"#), "-1 instead of timeUnixNano (a non-negative 64-bit integer)"),
        (point(r#""flags":4294967296"#), "4294967296 instead of flags (a non-negative 32-bit integer)"),
        (point(r#""attributes":[{"key":5}]"#), "5 instead of key (a string)"),
        (
            point(r#""attributes":[{"value":{"bytesValue":"?"}}]"#),
            "\"?\" instead of bytesValue (bytes in base64)",
        ),
        (
            point(r#""exemplars":[{"traceId":"abc"}]"#),
            "\"abc\" instead of traceId (an id in hexadecimal digits)",
        ),
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
fn deeply_nested_json_does_not_overflow_the_stack() {
    let deep = |open: &str, close: &str, levels: usize| {
        let value = format!("{}{}", open.repeat(levels), close.repeat(levels));
        let point =
            format!(r#""timeUnixNano":"1000000000","asInt":1,"attributes":[{{"key":"k","value":{value}}}]"#);
        of_sum(r#","aggregationTemporality":2"#, &point)
    };
    let (lines, refusals) = translated_lines(&deep(r#"{"arrayValue":{"values":["#, "]}}", 16));
    assert_eq!((lines.len(), refusals.len()), (1, 0), "{refusals:?}");
    let (lines, refusals) = translated_lines(&deep(r#"{"arrayValue":{"values":["#, "]}}", 20));
    assert_eq!((lines.len(), refusals[0].code), (0, "attribute_too_deep"));
    assert!(refused(&deep(r#"{"arrayValue":{"values":["#, "]}}", 100_000)).contains("recursion limit"));
    // An unknown field is skipped at any depth.
    let unknown = format!("{{\"x\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(translated_lines(&unknown), (vec![], vec![]));
}

#[test]
fn json_that_grows_in_protobuf_is_limited() {
    let zeros = "0,".repeat(10_000) + "0";
    let point = format!(r#""bucketCounts":[{zeros}]"#);
    let json = of_sum("", &point).replace("\"sum\"", "\"histogram\"");
    let limits = DecodeLimits { decompressed_bytes_max: json.len(), ..DecodeLimits::default() };
    let error = decode(json.as_bytes(), Encoding::Json, &limits).map(|_| ()).expect_err("refused");
    assert!(matches!(error, DecodeError::TooLarge { what: "bytes as protobuf", .. }), "{error}");
}
