//! Tests of the JSON lines parser.

use proptest::prelude::*;

use super::*;
use crate::ingest::text;
use crate::ingest::text::Format;

const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

fn decoded(text: &str) -> Translated {
    decode(text.as_bytes(), &DecodeLimits::default()).expect("within the limits")
}

/// Label bytes, and times and value bits of each sample.
type SeriesRows = Vec<(Vec<u8>, Vec<(i64, u64)>)>;

fn rows(read: &Translated) -> SeriesRows {
    let batch = read.batch.batch();
    let of = |series: &crate::model::WriteSeries<'_>| {
        let samples = &batch.samples[series.samples.clone()];
        let samples = samples.iter().map(|s| (s.at.as_ms(), s.value.to_bits())).collect();
        (series.raw_labels.to_vec(), samples)
    };
    batch.series.iter().map(of).collect()
}

#[test]
fn a_json_line_equals_the_same_samples_in_the_text_format() {
    let json = concat!(
        r#"{"metric":{"__name__":"up","job":"node_exporter","instance":"localhost:9100"},"#,
        r#""values":[0,1.5,null,"Infinity","-Infinity","NaN",-2e-3],"#,
        r#""timestamps":[1549891472010,1549891487724,3,4,5,6,7]}"#,
        "\r\n\n",
        r#" {"timestamps":[-1],"x":{"y":[1,{"z":null}]},"values":[1],"metric":{"__name__":"a\"b\n\u00e4"}} "#,
    );
    let read = decoded(json);
    assert_eq!(read.refusals, []);
    let up = r#"up{job="node_exporter",instance="localhost:9100"}"#;
    let text = format!(
        "{up} 0 1549891472010\n{up} 1.5 1549891487724\n{up} NaN 3\n{up} +Inf 4\n{up} -Inf 5\n{up} NaN 6\n\
         {up} -2e-3 7\n{{\"a\\\"b\\n\u{e4}\"}} 1 -1\n"
    );
    let text = text::decode(text.as_bytes(), Format::Prometheus, NOW, &DecodeLimits::default());
    assert_eq!(rows(&read), rows(&text.expect("valid")));
}

#[test]
fn words_for_numbers_need_no_quotes() {
    let line = |values: &str, name: &str| {
        format!(r#"{{"metric":{{"__name__":"{name}"}},"values":[{values}],"timestamps":[1,2,3,4]}}"#)
    };
    let bare = decoded(&line("NaN,Infinity,-Infinity,-1", r#"NaN \" NaN"#));
    let quoted = decoded(&line(r#""NaN","Infinity","-Infinity",-1"#, r#"NaN \" NaN"#));
    assert_eq!((bare.refusals.len(), quoted.refusals.len()), (0, 0));
    assert_eq!(rows(&bare), rows(&quoted));
    let short = decoded(&line("NaN,+Inf,-Inf,-1", r#"NaN \" NaN"#));
    assert_eq!(rows(&short), rows(&quoted));
    let wrong = decoded(&line("NaN,nonsense", "up"));
    assert!(wrong.refusals[0].reason.starts_with("line 1: column 39"), "{:?}", wrong.refusals);
}

#[test]
fn an_invalid_json_line_is_refused_with_its_position_and_the_others_are_stored() {
    let good = r#"{"metric":{"__name__":"up"},"values":[1],"timestamps":[1]}"#;
    let cases = [
        ("nonsense", "column 2: expected a number or null", 1),
        ("[1]", "column 0: invalid type: sequence, expected an object with metric, values and timestamps", 1),
        (r#"{"metric":{"__name__":"up"},"values":[1]}"#, "column 41: missing field `timestamps`", 1),
        (
            r#"{"metric":{"__name__":"up"},"values":[1,2],"timestamps":[1]}"#,
            "2 values and 1 timestamps; their numbers must be equal",
            2,
        ),
        (
            r#"{"metric":{"__name__":"up"},"values":["x"],"timestamps":[1]}"#,
            "column 41: invalid value: string \"x\", expected a number, null, \"NaN\", \"Infinity\" or \"-Infinity\"",
            1,
        ),
        (
            r#"{"metric":{"__name__":"up"},"values":["1e400"],"timestamps":[1]}"#,
            "column 45: \"1e400\" is out of range: the greatest value is about 1.8e308",
            1,
        ),
        (
            r#"{"metric":{"__name__":"up"},"values":[1],"timestamps":[1.5]}"#,
            "column 58: invalid type: floating point `1.5`, expected i64",
            1,
        ),
        (
            r#"{"metric":{"__name__":"up"},"values":[1],"timestamps":[1],"values":[1]}"#,
            "column 66: duplicate field `values`",
            1,
        ),
        (
            r#"{"metric":{"__name__":"up","a":"b","a":"c"},"values":[1,2],"timestamps":[1,2]}"#,
            "label name \"a\" occurs twice",
            2,
        ),
        (r#"{"metric":{"__name__":"up","":"b"},"values":[1],"timestamps":[1]}"#, "a label name is empty", 1),
        (r#"{"metric":{"a":"b"},"values":[1],"timestamps":[1]}"#, "the series has no metric name", 1),
        (
            r#"{"metric":{"__name__":1},"values":[1],"timestamps":[1]}"#,
            "column 23: invalid type: integer `1`, expected a string",
            1,
        ),
        (
            r#"{"metric":{"__name__":"up"},"values":[1],"timestamps":[1]} x"#,
            "column 60: trailing characters",
            1,
        ),
        (r#"{"metric":{"__name__":"up"},"values":[1],"timest"#, "column 48: EOF while parsing a string", 1),
    ];
    for (line, reason, samples) in cases {
        let read = decoded(&format!("{good}\n{line}\n{good}"));
        assert_eq!(read.refusals.len(), 1, "{line}");
        assert_eq!(read.refusals[0].reason, format!("line 2: {reason}"), "{line}");
        assert_eq!((read.refused, read.batch.len()), (samples, 2), "{line}");
    }
    let torn = decode(b"{\"metric\":{\"a\":\"\xff\"}}\n", &DecodeLimits::default()).expect("small");
    assert_eq!(torn.refusals[0].reason, "line 1: column 17: this byte is not UTF-8");
}

#[test]
fn a_line_without_samples_is_not_stored() {
    let read = decoded(r#"{"metric":{"__name__":"up"},"values":[],"timestamps":[]}"#);
    assert_eq!((read.refused, read.batch.batch().series.len()), (0, 0));
}

#[test]
fn limits_of_json_lines_are_enforced() {
    let few = DecodeLimits {
        series_max: 1,
        samples_max: 3,
        decompressed_bytes_max: 500,
        ..DecodeLimits::default()
    };
    let error_of = |text: &str| decode(text.as_bytes(), &few).map(|_| ()).map_err(|e| e.to_string());
    let of = |n: usize| {
        let numbers = vec!["1"; n].join(",");
        format!("{{\"metric\":{{\"__name__\":\"up\"}},\"values\":[{numbers}],\"timestamps\":[{numbers}]}}\n")
    };
    let too_many = |n: usize, what: &str, most: usize| {
        Err(format!("the request has {n} {what}; at most {most} are allowed"))
    };
    assert_eq!(error_of(&of(3)), Ok(()));
    assert_eq!(error_of(&of(4)), too_many(4, "samples", 3));
    assert_eq!(error_of(&(of(1) + &of(1))), Ok(()), "one series still");
    assert_eq!(error_of(&(of(1) + &of(1).replace("up", "down"))), too_many(2, "series", 1));
    assert_eq!(error_of(&" ".repeat(501)), too_many(501, "bytes after decompression", 500));
    assert_eq!(error_of(""), Err("the body is empty".to_owned()));
    let deep = format!("{{\"x\":{}\n", "[".repeat(100_000));
    assert_eq!(decode(deep.as_bytes(), &DecodeLimits::default()).expect("small").refused, 1, "no recursion");
}

proptest! {
    #[test]
    fn json_line_samples_round_trip_to_the_bit(
        labels in prop::collection::btree_map(any::<String>(), any::<String>(), 0..5),
        samples in prop::collection::vec((any::<i64>(), any::<f64>()), 1..8),
    ) {
        let mut labels = labels;
        labels.remove("");
        labels.insert("__name__".to_owned(), "up".to_owned());
        let values: Vec<String> = samples.iter().map(|(_, value)| match value {
            value if value.is_nan() => "null".to_owned(),
            value if value.is_infinite() => format!("\"{value}\""),
            value => format!("{value:?}"),
        }).collect();
        let times: Vec<i64> = samples.iter().map(|(at, _)| *at).collect();
        let metric = serde_json::to_string(&labels).expect("texts");
        let line = format!("{{\"metric\":{metric},\"values\":[{}],\"timestamps\":{times:?}}}", values.join(","));
        let read = decoded(&line);
        prop_assert_eq!(&read.refusals, &[]);
        let bits = |value: f64| if value.is_nan() { number::NORMAL_NAN.to_bits() } else { value.to_bits() };
        let expected: Vec<(i64, u64)> = samples.iter().map(|(at, value)| (*at, bits(*value))).collect();
        prop_assert_eq!(&rows(&read)[0].1, &expected);
        let mut pairs = Vec::new();
        let batch = read.batch.batch();
        (batch.parse_labels)(batch.series[0].raw_labels, &mut pairs).expect("labels");
        let expected: Vec<_> = labels.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
        prop_assert_eq!(pairs, expected);
    }

    #[test]
    fn arbitrary_json_lines_are_decoded_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 1..300),
        pieces in prop::collection::vec(
            prop::sample::select(vec!["{", "}", "[", "]", "\"metric\":", "\"values\":", "\"timestamps\":", "1", ",", "null", "\"__name__\":", "\"up\"", "\n"]),
            1..50,
        ),
    ) {
        let few = DecodeLimits { series_max: 2, samples_max: 3, ..DecodeLimits::default() };
        for body in [&bytes[..], pieces.concat().as_bytes()] {
            let Ok(read) = decode(body, &few) else { continue };
            let batch = read.batch.batch();
            prop_assert!(batch.series.len() <= 2 && batch.samples.len() <= 3);
            prop_assert!(read.refusals.len() <= read.refused);
            prop_assert!(read.refusals.iter().all(|refusal| refusal.reason.starts_with("line ")));
        }
    }
}
