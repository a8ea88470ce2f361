//! Query results in Prometheus' JSON format (util/jsonutil, web/api/v1/json_codec.go), written
//! directly into the response body.
//!
//! * A sample's value is a string with the fewest digits that parse to the same bits. It has Go's
//!   `'f'` form for magnitudes from 1e-6 up to 1e21 (exclusive), otherwise the `'e'` form with at
//!   least two exponent digits. Special values are `NaN`, `+Inf`, `-Inf` and `-0`.
//! * A scalar's value never takes the exponent form.
//! * A sample's time is a number of seconds with three decimals, or none if they are zero. The time
//!   of a scalar or a string is a plain number, `1.5`.

mod digits;
mod labels;
mod points;

use std::ops::Range;

use crate::model::Timestamp;
use crate::promql::{FloatHistogram, MatrixSeries, Value};

use digits::NUMBER_BYTES;
pub use labels::{LabelSetWriter, labels, text, texts};
use points::PointWriter;

/// The error of a body that exceeds its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the result is larger than {bytes_max} bytes of JSON")]
pub struct BodyTooLarge {
    /// The limit, inclusive.
    pub bytes_max: usize,
}

/// Appends `"resultType":"...","result":...`, the members of `data`. `bytes_max` limits the length
/// of `out`, inclusive; it is checked about every thousand points.
///
/// # Errors
/// [`BodyTooLarge`]; `out` then holds a part of the result.
pub fn result(value: &Value, bytes_max: usize, out: &mut Vec<u8>) -> Result<(), BodyTooLarge> {
    let mut cursor = ResultCursor::default();
    out.reserve(estimated_bytes(value).min(bytes_max));
    while !cursor.fill(value, out.len().saturating_add(POINTS_AT_ONCE * 26), out) {
        if out.len() > bytes_max {
            return Err(BodyTooLarge { bytes_max });
        }
    }
    if out.len() > bytes_max { Err(BodyTooLarge { bytes_max }) } else { Ok(()) }
}

/// Returns an upper bound of the JSON bytes of most values, so that a body rarely reallocates.
pub(super) fn estimated_bytes(value: &Value) -> usize {
    const SERIES: usize = 256;
    const POINT: usize = 40;
    let (series, points) = match value {
        Value::Scalar { .. } | Value::Text { .. } => (1, 1),
        Value::Vector(series) => (series.len(), series.len()),
        Value::Matrix(series) => (series.len(), series.iter().map(|series| series.samples.len()).sum()),
    };
    SERIES.saturating_mul(series.saturating_add(1)).saturating_add(POINT.saturating_mul(points))
}

/// The points that are written between two checks of a body's length.
const POINTS_AT_ONCE: usize = 1_024;

/// The position up to which a result is written. A large body is written in several steps, so that
/// it is never completely in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResultCursor {
    started: bool,
    series: usize,
    point: usize,
}

/// Writes the series with the indexes `series` as they occur in the whole result.
pub(super) fn series_range(value: &Value, series: Range<usize>, out: &mut Vec<u8>) {
    let mut cursor = ResultCursor::after(series.start);
    cursor.fill_until(series.end, value, usize::MAX, out);
}

/// The writers of a result's label sets and points, which reuse text of earlier series.
struct SeriesWriter<'v> {
    labels: LabelSetWriter<'v>,
    points: PointWriter,
}

impl ResultCursor {
    /// Returns the position after the head and the first `series` series.
    pub(super) fn after(series: usize) -> ResultCursor {
        ResultCursor { started: true, series, point: 0 }
    }

    /// Continues writing until `out` has at least `length` bytes, or the result ends. Returns
    /// whether the result is complete.
    pub fn fill(&mut self, value: &Value, length: usize, out: &mut Vec<u8>) -> bool {
        if !std::mem::replace(&mut self.started, true) {
            write_head(value, out);
        }
        if !self.fill_until(usize::MAX, value, length, out) {
            return false;
        }
        if matches!(value, Value::Vector(_) | Value::Matrix(_)) {
            out.push(b']');
        }
        true
    }

    /// Like [`ResultCursor::fill`], up to the series with the index `until`, exclusive. Returns
    /// whether all series before it are written.
    fn fill_until(&mut self, until: usize, value: &Value, length: usize, out: &mut Vec<u8>) -> bool {
        let series_count = match value {
            Value::Matrix(series) => series.len(),
            Value::Vector(series) => series.len(),
            Value::Scalar { .. } | Value::Text { .. } => 0,
        };
        let mut writer =
            SeriesWriter { labels: LabelSetWriter::default(), points: PointWriter::new(series_count) };
        match value {
            Value::Scalar { .. } | Value::Text { .. } => {}
            Value::Vector(series) => {
                let series = series.get(..until).unwrap_or(series);
                while let Some(sample) = series.get(self.series) {
                    if out.len() >= length {
                        return false;
                    }
                    separate(self.series, out);
                    out.extend_from_slice(br#"{"metric":"#);
                    writer.labels.write(&sample.labels, out);
                    if let Some(histogram) = &sample.histogram {
                        out.extend_from_slice(br#","histogram":["#);
                        histogram_point(sample.at, histogram, out);
                        out.push(b']');
                    } else {
                        out.extend_from_slice(br#","value":"#);
                        writer.points.point(sample.at, sample.value, out);
                    }
                    out.push(b'}');
                    self.series += 1;
                }
            }
            Value::Matrix(series) => {
                let series = series.get(..until).unwrap_or(series);
                while let Some(series) = series.get(self.series) {
                    if out.len() >= length || !self.write_series(series, length, &mut writer, out) {
                        return false;
                    }
                    out.push(b'}');
                    (self.series, self.point) = (self.series + 1, 0);
                }
            }
        }
        true
    }

    /// Writes points of one series until `out` has at least `length` bytes. Returns whether all
    /// points are written.
    fn write_series<'v>(
        &mut self,
        series: &'v MatrixSeries,
        length: usize,
        writer: &mut SeriesWriter<'v>,
        out: &mut Vec<u8>,
    ) -> bool {
        if self.point == 0 {
            separate(self.series, out);
            out.extend_from_slice(br#"{"metric":"#);
            writer.labels.write(&series.labels, out);
            if !series.samples.is_empty() {
                out.extend_from_slice(br#","values":["#);
            }
        }
        while let Some(rest) = series.samples.get(self.point..).filter(|rest| !rest.is_empty()) {
            if out.len() >= length && self.point > 0 {
                return false;
            }
            let chunk = &rest[..rest.len().min(POINTS_AT_ONCE)];
            // A point has 16 to 40 bytes, most have about 26: `[1795222800,"1234.567"],`.
            out.reserve(chunk.len() * 26);
            writer.points.points(chunk, self.point == 0, out);
            self.point += chunk.len();
            if self.point == series.samples.len() {
                out.push(b']');
            }
        }
        while let Some(sample) = series.histograms.get(self.point - series.samples.len()) {
            if out.len() >= length && self.point > 0 {
                return false;
            }
            let first = self.point == series.samples.len();
            out.extend_from_slice(if first { br#","histograms":[["# } else { b",[" });
            histogram_point(sample.at, &sample.value, out);
            out.push(b']');
            self.point += 1;
        }
        if !series.histograms.is_empty() {
            out.push(b']');
        }
        true
    }
}

/// Writes the text before the first series, or the whole of a scalar or a string.
pub(super) fn write_head(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Scalar { at, value } => {
            out.extend_from_slice(br#""resultType":"scalar","result":["#);
            plain_time(*at, out);
            out.extend_from_slice(b",\"");
            fixed_number(*value, out);
            out.extend_from_slice(b"\"]");
        }
        Value::Text { at, text: value } => {
            out.extend_from_slice(br#""resultType":"string","result":["#);
            plain_time(*at, out);
            out.push(b',');
            text(value, out);
            out.push(b']');
        }
        Value::Vector(_) => out.extend_from_slice(br#""resultType":"vector","result":["#),
        Value::Matrix(_) => out.extend_from_slice(br#""resultType":"matrix","result":["#),
    }
}

/// Writes a comma before every item but the first.
fn separate(index: usize, out: &mut Vec<u8>) {
    if index > 0 {
        out.push(b',');
    }
}

/// Writes a time and a histogram: `1.5,{"count":"4","sum":"5.5","buckets":[[0,"1","2","4"]]}`. A
/// bucket consists of the kind of its bounds (0: the upper one is inclusive, 1: the lower one, 2:
/// neither, 3: both), the lower bound, the upper bound, and the count. Empty buckets are omitted.
fn histogram_point(at: Timestamp, histogram: &FloatHistogram, out: &mut Vec<u8>) {
    time(at, out);
    out.extend_from_slice(br#",{"count":""#);
    number(histogram.count(), out);
    out.extend_from_slice(br#"","sum":""#);
    number(histogram.sum(), out);
    out.push(b'"');
    let mut any = false;
    for bucket in histogram.buckets().filter(|bucket| bucket.count != 0.0) {
        out.extend_from_slice(if any { b",[" } else { br#","buckets":[["# });
        any = true;
        out.push(match (bucket.lower_inclusive, bucket.upper_inclusive) {
            (false, true) => b'0',
            (true, false) => b'1',
            (false, false) => b'2',
            (true, true) => b'3',
        });
        for value in [bucket.lower, bucket.upper, bucket.count] {
            out.extend_from_slice(b",\"");
            number(value, out);
            out.push(b'"');
        }
        out.push(b']');
    }
    out.extend_from_slice(if any { b"]}" } else { b"}" });
}

/// Writes a whole number.
pub fn count(value: u64, out: &mut Vec<u8>) {
    append(out, |buf| digits::integer(buf, 0, value));
}

/// Writes a time in seconds with three decimals, or none if they are zero: `1.500`, `2`.
pub fn time(at: Timestamp, out: &mut Vec<u8>) {
    append(out, |buf| digits::time(buf, 0, at));
}

/// Writes a time in seconds as a plain JSON number: `1.5`.
pub fn plain_time(at: Timestamp, out: &mut Vec<u8>) {
    number(at.as_seconds(), out);
}

/// Writes the value of a sample, without quotes.
pub fn number(value: f64, out: &mut Vec<u8>) {
    append(out, |buf| digits::number(buf, 0, value));
}

/// Writes the value of a scalar, without quotes and never in the exponent form: it has up to 309
/// digits before the point, and up to 324 zeros after it.
pub fn fixed_number(value: f64, out: &mut Vec<u8>) {
    let magnitude = value.abs();
    if !value.is_finite() || value == 0.0 || (1e-6..1e21).contains(&magnitude) {
        return number(value, out);
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    digits::fixed(magnitude, out);
}

/// Appends a text of at most [`NUMBER_BYTES`], which `put` writes into a buffer of that size.
fn append(out: &mut Vec<u8>, put: impl FnOnce(&mut [u8]) -> usize) {
    let mut buf = [0; NUMBER_BYTES];
    let end = put(&mut buf);
    out.extend_from_slice(&buf[..end]);
}

#[cfg(test)]
mod tests {
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
        let sample = VectorSample {
            labels: Labels::default(),
            at,
            value: f64::NAN,
            histogram: Some(Arc::clone(&value)),
        };
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
        let with_native =
            |n: usize| MatrixSeries { histograms: (1..2_000).map(point).collect(), ..series(n) };
        let vector =
            |n: usize| VectorSample { labels: series(n).labels, at, value: n as f64, histogram: None };
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
}
