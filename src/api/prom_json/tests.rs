//! Tests of the answers in the JSON of the Prometheus API.

use std::sync::Arc;

use super::*;
use crate::model::{CounterReset, Histogram, HistogramCounts, HistogramShape, Labels, Sample};
use crate::promql::{HistogramPoint, VectorSample};
use proptest::prelude::*;

pub(super) fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn values_have_the_same_text_as_in_go() {
    let cases = [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        (0.125, "0.125"),
        (0.0625, "0.0625"),
        (1234.567, "1234.567"),
        (1.01, "1.01"),
        (0.001, "0.001"),
        (1e-6, "0.000001"),
        (1.25e-6, "0.00000125"),
        (9.99e-7, "9.99e-07"),
        (1e-7, "1e-07"),
        (-1e-7, "-1e-07"),
        (5e-324, "5e-324"),
        (2.225_073_858_507_201_4e-308, "2.2250738585072014e-308"),
        (9_007_199_254_740_991.0, "9007199254740991"),
        (9_007_199_254_740_992.0, "9007199254740992"),
        (1_152_921_504_606_846_976.0, "1152921504606847000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e21, "1.5e+21"),
        (123_456_789_012_345_680.0, "123456789012345680"),
        (f64::MAX, "1.7976931348623157e+308"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1.0 / 3.0, "0.3333333333333333"),
        (100.0 / 3.0, "33.333333333333336"),
        (f64::NAN, "NaN"),
        (crate::model::stale_nan(), "NaN"),
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
    ];
    for (value, expected) in cases {
        assert_eq!(written(|out| number(value, out)), expected);
    }
}

#[test]
fn a_scalar_never_has_the_exponent_form() {
    let cases = [
        (1e21, "1000000000000000000000".to_owned()),
        (1.5e-7, "0.00000015".to_owned()),
        (-1e-7, "-0.0000001".to_owned()),
        (1e300, format!("1{}", "0".repeat(300))),
        (5e-324, format!("0.{}5", "0".repeat(323))),
        (f64::INFINITY, "+Inf".to_owned()),
    ];
    for (value, expected) in cases {
        assert_eq!(written(|out| fixed_number(value, out)), expected);
    }
}

#[test]
fn times_have_three_decimals_or_none() {
    let cases = [
        (0, "0", "0"),
        (1_500, "1.500", "1.5"),
        (1_795_226_400_000, "1795226400", "1795226400"),
        (1_795_226_400_123, "1795226400.123", "1795226400.123"),
        (10, "0.010", "0.01"),
        (7, "0.007", "0.007"),
        (-1, "-0.001", "-0.001"),
        (-61_500, "-61.500", "-61.5"),
        (i64::MIN, "-9223372036854775.808", "-9223372036854776"),
    ];
    for (ms, of_sample, of_scalar) in cases {
        assert_eq!(written(|out| time(Timestamp::from_ms(ms), out)), of_sample);
        assert_eq!(written(|out| plain_time(Timestamp::from_ms(ms), out)), of_scalar);
    }
}

#[test]
fn the_four_types_of_results_have_the_format_of_prometheus() {
    let at = Timestamp::from_ms(1_500);
    let up = Labels::from_pairs([("__name__", "up"), ("path", "C:\\ \"x\"\n\u{1}<ä>")]);
    let sample = VectorSample { labels: up, at, value: 0.5, histogram: None };
    let series = |samples| MatrixSeries { labels: Labels::default(), samples, histograms: Vec::new() };
    let samples = vec![Sample { at, value: 1.0 }, Sample { at: at.plus_ms(500), value: f64::NAN }];
    let cases = [
        (
            Value::Scalar { at, value: 1e21 },
            r#""resultType":"scalar","result":[1.5,"1000000000000000000000"]"#,
        ),
        (Value::Text { at, text: "a\tb".into() }, r#""resultType":"string","result":[1.5,"a\tb"]"#),
        (Value::Vector(Vec::new()), r#""resultType":"vector","result":[]"#),
        (
            Value::Vector(vec![sample]),
            r#""resultType":"vector","result":[{"metric":{"__name__":"up","path":"C:\\ \"x\"\n\u0001<ä>"},"value":[1.500,"0.5"]}]"#,
        ),
        (Value::Matrix(Vec::new()), r#""resultType":"matrix","result":[]"#),
        (
            Value::Matrix(vec![series(samples.clone()), series(samples)]),
            r#""resultType":"matrix","result":[{"metric":{},"values":[[1.500,"1"],[2,"NaN"]]},{"metric":{},"values":[[1.500,"1"],[2,"NaN"]]}]"#,
        ),
    ];
    for (value, expected) in cases {
        assert_eq!(written(|out| result(&value, 1_000, out).expect("small")), expected);
    }
}

#[test]
fn native_histograms_are_written_with_their_buckets() {
    let spans = |offset, length| vec![crate::model::BucketSpan { offset, length }];
    let shape = HistogramShape::new(0, 0.5, vec![], spans(1, 3), spans(0, 1)).expect("valid");
    let counts = HistogramCounts::Float { count: 9.5, zero: 3.0, buckets: vec![1.5, 0.0, 2.0, 3.0] };
    let stored = Histogram::new(Arc::new(shape), CounterReset::Unknown, 1e21, counts).expect("valid");
    let value = Arc::new(FloatHistogram::from(&stored));
    let at = Timestamp::from_ms(1_500);
    let json = concat!(
        r#"[1.500,{"count":"9.5","sum":"1e+21","buckets":[[1,"-1","-0.5","3"],[3,"-0.5","0.5","3"],"#,
        r#"[0,"1","2","1.5"],[0,"4","8","2"]]}]"#
    );
    let sample =
        VectorSample { labels: Labels::default(), at, value: f64::NAN, histogram: Some(Arc::clone(&value)) };
    let written = |value: &Value| written(|out| result(value, 1_000, out).expect("small"));
    let expected = format!(r#""resultType":"vector","result":[{{"metric":{{}},"histogram":{json}}}]"#);
    assert_eq!(written(&Value::Vector(vec![sample])), expected);
    let point = |value| HistogramPoint { at, value };
    let series = |samples, histograms| MatrixSeries { labels: Labels::default(), samples, histograms };
    let empty = Histogram::stale();
    let empty = Arc::new(FloatHistogram::from(&empty));
    let mixed = series(vec![Sample { at, value: 1.0 }], vec![point(value)]);
    let alone = series(Vec::new(), vec![point(empty)]);
    let expected = format!(
        r#""resultType":"matrix","result":[{{"metric":{{}},"values":[[1.500,"1"]],"histograms":[{json}]}},{}]"#,
        r#"{"metric":{},"histograms":[[1.500,{"count":"0","sum":"NaN"}]]}"#
    );
    assert_eq!(written(&Value::Matrix(vec![mixed, alone])), expected);
}

#[test]
fn a_result_stops_growing_at_its_limit() {
    let at = Timestamp::from_ms(0);
    let one = VectorSample { labels: Labels::default(), at, value: 1.0, histogram: None };
    let long = MatrixSeries {
        labels: Labels::default(),
        samples: vec![Sample { at, value: 1.0 }; 20_000],
        histograms: Vec::new(),
    };
    for value in [Value::Vector(vec![one; 10_000]), Value::Matrix(vec![long])] {
        let mut out = Vec::new();
        assert_eq!(result(&value, 200, &mut out), Err(BodyTooLarge { bytes_max: 200 }));
        assert!(out.len() < 60_000, "{}", out.len());
    }
}

#[test]
fn a_result_written_in_steps_has_the_same_text() {
    let at = Timestamp::from_ms(0);
    let series = |n: usize| MatrixSeries {
        labels: Labels::from_pairs([("n", n.to_string().as_str())]),
        samples: (0..n)
            .map(|i| Sample { at: at.plus_ms(i as i64 * 15_500), value: i as f64 / 8.0 })
            .collect(),
        histograms: Vec::new(),
    };
    let native = Arc::new(FloatHistogram::from(&Histogram::stale()));
    let point = |i: i64| HistogramPoint { at: at.plus_ms(i), value: Arc::clone(&native) };
    let with_native = |n: usize| MatrixSeries { histograms: (1..2_000).map(point).collect(), ..series(n) };
    let vector = |n: usize| VectorSample { labels: series(n).labels, at, value: n as f64, histogram: None };
    let values = [
        Value::Matrix([0, 1, 2, 1_023, 1_024, 1_025, 3_000].map(series).into()),
        Value::Matrix([0, 1, 1_024].map(with_native).into()),
        Value::Matrix(Vec::new()),
        Value::Vector((0..100).map(vector).collect()),
        Value::Scalar { at, value: 1.0 },
        Value::Text { at, text: "a".into() },
    ];
    for value in &values {
        let whole = written(|out| result(value, usize::MAX, out).expect("no limit"));
        for length in [1, 100, 30_000] {
            let (mut cursor, mut text, mut steps) = (ResultCursor::default(), Vec::new(), 0);
            loop {
                let mut out = Vec::new();
                let done = cursor.fill(value, length, &mut out);
                assert!(done || out.len() >= length && out.len() < length + 40_000, "{}", out.len());
                text.extend(out);
                steps += 1;
                if done {
                    break;
                }
            }
            assert_eq!(String::from_utf8(text).expect("UTF-8"), whole);
            assert!(steps > 1 || whole.len() <= length + 40_000);
        }
    }
}

/// Generates doubles: any bits, whole numbers, decimals with few digits.
fn doubles() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        any::<i64>().prop_map(|n| n as f64),
        (-10_000_000_000_000_000..10_000_000_000_000_000_i64, 0..12)
            .prop_map(|(n, p)| n as f64 / 10_f64.powi(p)),
    ]
}

proptest! {
    #[test]
    fn a_value_parses_to_the_same_bits(value in doubles()) {
        for fixed in [false, true] {
            let text = written(|out| if fixed { fixed_number(value, out) } else { number(value, out) });
            let back: f64 = text.parse().expect("a number");
            prop_assert!(back.to_bits() == value.to_bits() || (back.is_nan() && value.is_nan()), "{text}");
            prop_assert!(!fixed || !text.contains('e'));
        }
    }

    /// The fast paths write as many digits as the general algorithm.
    #[test]
    fn a_value_has_the_fewest_digits_that_parse_to_it(value in doubles()) {
        prop_assume!(value.is_finite());
        let count = |text: &str| {
            let mantissa = text.split('e').next().unwrap_or_default();
            let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
            digits.trim_start_matches('0').trim_end_matches('0').len()
        };
        let text = written(|out| number(value, out));
        prop_assert_eq!(count(&text), count(zmij::Buffer::new().format_finite(value)), "{}", text);
    }

    #[test]
    fn a_time_parses_to_the_same_time(ms in -100_000_000_000_000..100_000_000_000_000_i64) {
        let at = Timestamp::from_ms(ms);
        let back: f64 = written(|out| time(at, out)).parse().expect("a number");
        prop_assert_eq!(back.to_bits(), at.as_seconds().to_bits());
    }
}
