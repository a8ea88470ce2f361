//! Responses as servers send them, and as they should not.

use super::*;
use crate::model::{MetricKind, Sample, TimeRange};

fn range_query() -> UpstreamRead {
    let steps = Steps::new(Timestamp::from_s(100), Timestamp::from_s(160), 15_000).expect("steps");
    UpstreamRead::Query { expr: "up".to_owned(), steps, instant: false, lookback_ms: None }
}

fn instant_query() -> UpstreamRead {
    let steps = Steps::once(Timestamp::from_s(100));
    UpstreamRead::Query { expr: "up".to_owned(), steps, instant: true, lookback_ms: None }
}

fn answered(read: &UpstreamRead, text: &str) -> Result<UpstreamAnswer, AnswerError> {
    let mut reader = AnswerReader::new(read, Some("tenant"), 1_000, false);
    for piece in text.as_bytes().chunks(7) {
        reader.push(piece)?;
    }
    reader.finish()
}

fn data(kind: &str, result: &str) -> String {
    format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}"#)
}

fn query(read: &UpstreamRead, kind: &str, result: &str) -> Result<Value, AnswerError> {
    match answered(read, &data(kind, result))?.data {
        AnswerData::Query(answer) => Ok(answer.value),
        other => panic!("{other:?}"),
    }
}

#[test]
fn results_are_read_without_the_label_of_the_tenant() {
    let result = r#"[{"metric":{"tenant":"7","__name__":"up","job":"b"},"values":[[100,"1"],[115.000,"NaN"]]},
        {"metric":{"__name__":"up","job":"a","x":""},"values":[[130,"-Inf"]]}]"#;
    let Value::Matrix(series) = query(&range_query(), "matrix", result).expect("valid") else {
        panic!("matrix")
    };
    assert_eq!(series[0].labels.to_string(), r#"{__name__="up", job="a"}"#);
    assert_eq!(series[0].samples, [Sample { at: Timestamp::from_s(130), value: f64::NEG_INFINITY }]);
    assert_eq!(series[1].labels.to_string(), r#"{__name__="up", job="b"}"#);
    assert!(series[1].samples[1].value.is_nan());
    let vector = query(&instant_query(), "vector", r#"[{"metric":{},"value":[99,"1e-3"]}]"#).expect("valid");
    let Value::Vector(series) = vector else { panic!("vector") };
    assert_eq!((series[0].at, series[0].value), (Timestamp::from_s(100), 0.001));
    let scalar = query(&instant_query(), "scalar", r#"[100,"+Inf"]"#).expect("valid");
    assert_eq!(scalar, Value::Scalar { at: Timestamp::from_s(100), value: f64::INFINITY });
    let text = query(&instant_query(), "string", r#"[100,"a\"b"]"#).expect("valid");
    assert_eq!(text, Value::Text { at: Timestamp::from_s(100), text: "a\"b".to_owned() });
}

#[test]
fn wrong_types_times_and_labels_are_refused() {
    let one = |values: &str| format!(r#"[{{"metric":{{"a":"b"}},"values":{values}}}]"#);
    let twice = r#"[{"metric":{"a":"b"},"values":[[100,"1"]]},{"metric":{"a":"b"},"values":[[115,"1"]]}]"#;
    for (kind, result) in [
        ("vector", one(r#"[[100,"1"]]"#)),
        ("vector", r#"[{"metric":{},"value":[100,"1"]}]"#.to_owned()),
        ("matrix", r#"[{"metric":{},"value":[100,"1"]}]"#.to_owned()),
        ("streams", one(r#"[[100,"1"]]"#)),
        ("matrix", r#"[100,"1"]"#.to_owned()),
        ("matrix", r#""no list""#.to_owned()),
        ("matrix", one(r#"[[101,"1"]]"#)),
        ("matrix", one(r#"[[85,"1"]]"#)),
        ("matrix", one(r#"[[175,"1"]]"#)),
        ("matrix", one(r#"[[115,"1"],[100,"1"]]"#)),
        ("matrix", one(r#"[[100,"1"],[100,"1"]]"#)),
        ("matrix", one(r#"[[100,"one"]]"#)),
        ("matrix", one(r#"[[100,1]]"#)),
        ("matrix", one(r#"[["100","1"]]"#)),
        ("matrix", one(r#"[[100]]"#)),
        ("matrix", one(r#"[[100,"1",2]]"#)),
        ("matrix", one(r#"[[1e300,"1"]]"#)),
        ("matrix", r#"[{"metric":{"a":1},"values":[]}]"#.to_owned()),
        ("matrix", r#"[{"metric":{"a":"b","a":"c"},"values":[]}]"#.to_owned()),
        ("matrix", r#"[{"values":[[100,"1"]]}]"#.to_owned()),
        ("matrix", r#"[{"metric":{}}]"#.to_owned()),
    ] {
        let found = query(&range_query(), kind, &result);
        assert!(matches!(found, Err(AnswerError::Invalid(_))), "{kind} {result}: {found:?}");
    }
    // A query can set the label of the tenant, so this says nothing about the server.
    assert!(matches!(query(&range_query(), "matrix", twice), Err(AnswerError::Unsupported(_))));
    let mut reader = AnswerReader::new(&range_query(), None, 1_000, false);
    reader.push(data("matrix", twice).as_bytes()).expect("read");
    assert!(matches!(reader.finish(), Err(AnswerError::Invalid(_))));
    let histogram = r#"[{"metric":{},"histograms":[[100,{"count":"1"}]]}]"#;
    assert!(matches!(query(&range_query(), "matrix", histogram), Err(AnswerError::Unsupported(_))));
    let reported = answered(&range_query(), r#"{"status":"error","errorType":"execution","error":"no"}"#);
    assert_eq!(reported, Err(AnswerError::Reported("no".to_owned())));
    let many: Vec<String> = (0..2_000).map(|n| format!(r#"[{n},"1"]"#)).collect();
    let many = format!(r#"[{{"metric":{{}},"values":[{}]}}]"#, many.join(","));
    let found = query(&instant_query(), "matrix", &many);
    assert_eq!(found, Err(AnswerError::Query(QueryError::TooManySamples { allowed: 1_000 })));
}

#[test]
fn listings_are_sorted_cut_and_without_the_label_of_the_tenant() {
    let (selectors, range) = (vec![String::new()], TimeRange::ALL);
    let names = UpstreamRead::LabelNames { selectors: selectors.clone(), range, limit: 2 };
    let text = r#"{"status":"success","data":["tenant","job","a","b"],"warnings":["w","results truncated due to limit"]}"#;
    let found = answered(&names, text).expect("valid");
    let items = vec!["a".into(), "b".into()];
    assert_eq!(found.data, AnswerData::Texts(Listing { items, truncated: true }));
    assert_eq!(found.warnings, ["w"]);
    let series = UpstreamRead::Series { selectors, range, limit: 9 };
    let text = r#"{"status":"success","data":[{"b":"1","tenant":"x"},{"a":"1"}]}"#;
    let AnswerData::Series(found) = answered(&series, text).expect("valid").data else { panic!("series") };
    assert_eq!(found.items.iter().map(ToString::to_string).collect::<Vec<_>>(), [r#"{a="1"}"#, r#"{b="1"}"#]);
    assert!(answered(&series, r#"{"status":"success","data":{"x":1}}"#).is_err());
    assert!(answered(&series, r#"{"status":"success","data":["x"]}"#).is_err());
    let text = r#"{"status":"success","data":{"up":[{"type":"gauge","help":"h"}],"x":[]}}"#;
    let AnswerData::Metadata(found) =
        answered(&UpstreamRead::Metadata { metric: None }, text).expect("valid").data
    else {
        panic!("metadata")
    };
    assert_eq!((found.len(), &*found[0].name, found[0].kind), (1, "up", MetricKind::Gauge));
}

#[test]
fn a_value_that_equals_the_name_of_the_tenants_label_is_listed() {
    let (selectors, range) = (vec![String::new()], TimeRange::ALL);
    let values = UpstreamRead::LabelValues { name: "kind".to_owned(), selectors, range, limit: 9 };
    let found = answered(&values, r#"{"status":"success","data":["tenant","a"]}"#).expect("valid");
    let items = vec!["a".into(), "tenant".into()];
    assert_eq!(found.data, AnswerData::Texts(Listing { items, truncated: false }));
}

#[test]
fn a_partial_answer_has_a_warning_or_is_refused() {
    let text = data("vector", "[]").replacen('{', r#"{"isPartial":true,"warnings":["w"],"#, 1);
    let found = answered(&instant_query(), &text).expect("valid");
    assert_eq!(found.warnings, [PARTIAL, "w"]);
    let mut hidden = found;
    hidden.hide_texts();
    assert_eq!(hidden.warnings, [PARTIAL, "the upstream reported warnings"]);
    let mut reader = AnswerReader::new(&instant_query(), None, 1_000, true);
    reader.push(text.as_bytes()).expect("read");
    assert!(matches!(reader.finish(), Err(AnswerError::Invalid(_))));
}

#[test]
fn one_huge_element_is_too_expensive_and_no_failure_of_the_server() {
    let begun = format!(r#"{{"data":{{"resultType":"matrix","result":[{{"a":"{}"#, "x".repeat(1 << 20));
    let mut reader = AnswerReader::new(&range_query(), None, 1_000, false);
    let mut outcome = reader.push(begun.as_bytes());
    for _ in 0..32 {
        outcome = outcome.and_then(|()| reader.push(&[b'x'; 1 << 20]));
    }
    assert!(matches!(outcome, Err(AnswerError::Query(QueryError::TooMuchMemory { .. }))), "{outcome:?}");
}

#[test]
fn the_number_of_described_metrics_is_limited_and_only_their_first_entries_count() {
    let of = |count: usize| {
        let all: Vec<String> =
            (0..count).map(|n| format!(r#""m{n}":[{{"type":"gauge"}},{{}},{{}}]"#)).collect();
        let text = format!(r#"{{"status":"success","data":{{{}}}}}"#, all.join(","));
        let mut reader = AnswerReader::new(&UpstreamRead::Metadata { metric: None }, None, 9, false);
        reader.push(text.as_bytes()).and_then(|()| reader.finish())
    };
    let found = of(1_000).expect("valid");
    assert!(found.bytes > 100_000, "{} bytes", found.bytes);
    assert!(matches!(of(200_001), Err(AnswerError::Invalid(_))));
}
