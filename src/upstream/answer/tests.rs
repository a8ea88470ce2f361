//! Responses as servers send them, and as they should not.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

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
        AnswerData::Query(QueryAnswer { value: QueryValue::Parsed(value), .. }) => Ok(value),
        AnswerData::Query(QueryAnswer { value: QueryValue::Passed(series), .. }) => {
            Ok(series.parsed(usize::MAX).expect("series"))
        }
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
fn labels_and_the_text_of_values_count_as_memory() {
    let points: Vec<String> = (0..900).map(|n| format!(r#"[{n},"0.12345678901234567"]"#)).collect();
    let of = |spaces: &str| {
        let one = format!(r#"{{"metric":{{"a":"b"}},{spaces}"values":[{}]}}"#, points.join(","));
        let mut reader = AnswerReader::new(&instant_query(), None, 1_000, false);
        reader.push(data("matrix", &format!("[{one}]")).as_bytes()).expect("read");
        (one.len() as u64, reader.held_bytes())
    };
    // The usual form, which is copied, and another one, which is printed and sorted later.
    for (length, held) in ["", " "].map(of) {
        assert!((length..4 * length + 4_096).contains(&held), "{held} bytes are held for {length}");
    }
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

/// A response for the oracle, which reads it as a whole.
#[derive(Deserialize)]
struct WholeResponse {
    status: String,
    data: WholeData,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WholeData {
    result_type: String,
    result: Vec<WholeSeries>,
}

#[derive(Deserialize)]
struct WholeSeries {
    metric: WholeLabels,
    values: Vec<(f64, String)>,
}

/// All labels, also those that occur twice.
struct WholeLabels(Vec<(String, String)>);

impl<'de> Deserialize<'de> for WholeLabels {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<WholeLabels, D::Error> {
        struct LabelsVisitor;

        impl<'de> serde::de::Visitor<'de> for LabelsVisitor {
            type Value = WholeLabels;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("labels")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<WholeLabels, A::Error> {
                let mut all = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    all.push(pair);
                }
                Ok(WholeLabels(all))
            }
        }

        from.deserialize_map(LabelsVisitor)
    }
}

/// The values of each series in the order of labels; times in milliseconds, values as bits.
type ReadMatrix = Vec<(String, Vec<(i64, u64)>)>;

/// The bits of a value; those of all NaNs are the same.
fn bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
}

/// Reads a response to [`range_query`] without the reader.
fn read_whole(text: &str) -> Option<ReadMatrix> {
    let response: WholeResponse = serde_json::from_str(text).ok()?;
    if response.status != "success" || response.data.result_type != "matrix" {
        return None;
    }
    let mut all: BTreeMap<Labels, Vec<(i64, u64)>> = BTreeMap::new();
    for WholeSeries { metric, values } in response.data.result {
        let WholeLabels(labels) = metric;
        let shown = labels.into_iter().filter(|(name, value)| name != "tenant" && !value.is_empty());
        let shown: Vec<(String, String)> = shown.collect();
        let names: BTreeSet<&str> = shown.iter().map(|(name, _)| name.as_str()).collect();
        if names.len() < shown.len() || names.contains("") {
            return None;
        }
        let mut points = Vec::new();
        for (seconds, value) in values {
            #[expect(clippy::cast_possible_truncation, reason = "a test")]
            let ms = (seconds * 1_000.0).round() as i64;
            let is_step = (100_000..=160_000).contains(&ms) && ms % 15_000 == 10_000;
            let is_next = points.last().is_none_or(|(before, _)| *before < ms);
            if !is_step || !is_next {
                return None;
            }
            points.push((ms, bits(value.parse().ok()?)));
        }
        if all.insert(Labels::from_pairs(shown), points).is_some() {
            return None;
        }
    }
    Some(all.into_iter().map(|(labels, points)| (labels.to_string(), points)).collect())
}

/// Reads a response to [`range_query`] in pieces of these sizes, again and again.
fn read_pieces(text: &str, pieces: &[usize]) -> Result<ReadMatrix, AnswerError> {
    let mut reader = AnswerReader::new(&range_query(), Some("tenant"), 1_000, false);
    let (mut rest, mut pieces) = (text.as_bytes(), pieces.iter().cycle());
    while !rest.is_empty() {
        let (now, later) = rest.split_at((*pieces.next().expect("a size")).min(rest.len()));
        reader.push(now)?;
        rest = later;
    }
    let AnswerData::Query(QueryAnswer { value: QueryValue::Passed(series), .. }) = reader.finish()?.data
    else {
        panic!("matrix")
    };
    let of = |sample: &Sample| (sample.at.as_ms(), bits(sample.value));
    let Some(Value::Matrix(parsed)) = series.parsed(usize::MAX) else { panic!("matrix") };
    let parsed: ReadMatrix =
        parsed.iter().map(|one| (one.labels.to_string(), one.samples.iter().map(of).collect())).collect();
    // The text that is passed on has the same labels and values, and no others.
    let passed = String::from_utf8(series.text(usize::MAX).to_vec()).expect("UTF-8");
    assert!(!passed.contains("tenant"), "{passed}");
    let passed = passed.replace("}}", "},\"values\":[]}");
    assert_eq!(read_whole(&data("matrix", &format!("[{passed}]"))), Some(parsed.clone()), "{passed}");
    assert_eq!(series.series_count(), parsed.len());
    Ok(parsed)
}

/// A label as JSON, mostly without escapes.
fn label() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        8 => Just("a"), 8 => Just("b"), 8 => Just("c"), 2 => Just("tenant"), 1 => Just(""), 1 => Just("\\u0061"),
    ];
    let value = prop_oneof![
        8 => Just("x"), 8 => Just("y"), 2 => Just(""), 1 => Just("\u{e9}\u{1f600}"), 1 => Just("\\n\\\""), 1 => Just("]},{"),
    ];
    (name, value).prop_map(|(name, value)| format!("\"{name}\":\"{value}\""))
}

/// A list with commas.
fn joined(one: impl Strategy<Value = String>, most: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(one, 0..=most).prop_map(|all| all.join(","))
}

/// Values as JSON, mostly at steps of [`range_query`].
fn values() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        8 => (0..1_000u32).prop_map(|value| value.to_string()),
        8 => any::<f64>().prop_map(|value| value.to_string()),
        2 => prop_oneof![Just("NaN"), Just("+Inf"), Just("-Inf"), Just("1e3"), Just("-0"), Just("1.50")]
            .prop_map(str::to_owned),
        1 => prop_oneof![Just(""), Just("x"), Just("\\u0031"), Just("0x1")].prop_map(str::to_owned),
    ];
    let point = (
        0..5usize,
        prop_oneof![30 => Just(""), 4 => Just(".0"), 4 => Just(".000"), 1 => Just(".001")],
        value,
    );
    prop::collection::vec(point, 0..6).prop_map(|mut points| {
        points.sort_by_key(|(step, ..)| *step);
        points.dedup_by_key(|(step, ..)| *step);
        let of = |(step, fraction, value): (usize, &str, String)| {
            format!("[{}{fraction},\"{value}\"]", 100 + 15 * step)
        };
        points.into_iter().map(of).collect::<Vec<_>>().join(",")
    })
}

/// A response, mostly valid and in the usual form.
fn response() -> impl Strategy<Value = String> {
    let series = (joined(label(), 3), values(), prop_oneof![9 => Just(false), 1 => Just(true)]).prop_map(
        |(labels, values, spaced)| {
            let text = format!("{{\"metric\":{{{labels}}},\"values\":[{values}]}}");
            if spaced { text.replace("],[", "] , [").replace("\":", "\" : ") } else { text }
        },
    );
    joined(series, 4).prop_map(|series| data("matrix", &format!("[{series}]")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8 * ProptestConfig::default().cases, ..ProptestConfig::default() })]

    #[test]
    fn a_response_in_pieces_is_read_as_the_whole(text in response(), pieces in prop::collection::vec(1..200usize, 1..4)) {
        prop_assert_eq!(read_pieces(&text, &pieces).ok(), read_whole(&text), "{}", text);
    }

    #[test]
    fn a_damaged_response_is_refused_as_the_whole(
        text in response(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0..3u8, "[\\[\\]{}\",:0-9a-z.\\\\ ]"), 1..3),
        pieces in prop::collection::vec(1..200usize, 1..4),
    ) {
        let mut text: Vec<char> = text.chars().collect();
        for (place, kind, other) in damage {
            let (place, other) = (place.index(text.len()), other.chars().next().expect("a character"));
            match kind {
                0 => text[place] = other,
                1 => text.insert(place, other),
                _ => drop(text.remove(place)),
            }
        }
        let text: String = text.into_iter().collect();
        prop_assert_eq!(read_pieces(&text, &pieces).ok(), read_whole(&text), "{}", text);
    }
}
