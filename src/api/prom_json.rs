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
use crate::upstream::PassedResult;

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

/// The least bytes of a passed text that are written at once, unless it has fewer.
const PASSED_BYTES_MIN: usize = 16 << 10;

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

    /// Like [`ResultCursor::fill`], for the first `limit` series of a result that is text already.
    pub fn fill_passed(
        &mut self,
        series: &PassedResult,
        limit: usize,
        length: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        if !std::mem::replace(&mut self.started, true) {
            out.extend_from_slice(if series.is_vector() { VECTOR_HEAD } else { MATRIX_HEAD });
        }
        // The position is that in the text.
        let rest = series.text(limit).get(self.point..).unwrap_or_default();
        let most = length.saturating_sub(out.len()).max(PASSED_BYTES_MIN);
        let some = rest.get(..most).unwrap_or(rest);
        out.extend_from_slice(some);
        self.point += some.len();
        if some.len() < rest.len() {
            return false;
        }
        out.push(b']');
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

/// The text before the first series of a matrix.
const MATRIX_HEAD: &[u8] = br#""resultType":"matrix","result":["#;
/// The text before the first sample of a vector.
const VECTOR_HEAD: &[u8] = br#""resultType":"vector","result":["#;

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
        Value::Vector(_) => out.extend_from_slice(VECTOR_HEAD),
        Value::Matrix(_) => out.extend_from_slice(MATRIX_HEAD),
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

/// Returns the text of the value of a sample.
pub fn number_text(value: f64) -> String {
    let mut out = Vec::new();
    number(value, &mut out);
    // Only digits, signs and letters of ASCII are written.
    String::from_utf8(out).unwrap_or_default()
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
mod tests;
