//! Messages of Prometheus that requests of remote write 1.0 and responses of remote read share:
//! labels, samples and native histograms. Remote write 2.0 has the same histograms.
//! `ingest::histogram` lists their fields.

use super::protobuf_write::{
    double_bytes, int64_bytes, put_chosen_double, put_chosen_uint64, put_double, put_head, put_int64,
    put_sint32, put_text, put_uint64, put_varint, varint_bytes, zigzag,
};
use crate::model::{BucketSpan, Histogram, HistogramCounts, Labels, Timestamp};

/// Appends the field 1 of a `TimeSeries`, an `Exemplar` or a `ChunkedSeries` for each label.
pub(crate) fn put_labels(labels: &Labels, out: &mut Vec<u8>) {
    labels.iter().for_each(|label| put_label(label.name, label.value, out));
}

/// Appends the field 1 of such a message for one label.
pub(crate) fn put_label(name: &str, value: &str, out: &mut Vec<u8>) {
    let bytes = |text: &str| varint_bytes(text.len() as u64).saturating_add(text.len()).saturating_add(1);
    put_head(1, bytes(name).saturating_add(bytes(value)), out);
    put_text(1, name, out);
    put_text(2, value, out);
}

/// Returns the bytes that [`put_sample`] appends.
pub(crate) fn sample_bytes(at: Timestamp, value: f64) -> usize {
    // The tag and the length have a byte each.
    sample_content_bytes(at, value).saturating_add(2)
}

/// Returns the bytes of a `Sample`: at most 20.
fn sample_content_bytes(at: Timestamp, value: f64) -> usize {
    double_bytes(value).saturating_add(int64_bytes(at.as_ms()))
}

/// Appends the field 2 of a `TimeSeries`: a float.
pub(crate) fn put_sample(at: Timestamp, value: f64, out: &mut Vec<u8>) {
    put_head(2, sample_content_bytes(at, value), out);
    put_double(1, value, out);
    put_int64(2, at.as_ms(), out);
}

/// Appends a `Histogram`. A start of 0 is left out, as version 1.0 requires.
pub(crate) fn put_histogram(at: Timestamp, histogram: &Histogram, start_ms: i64, out: &mut Vec<u8>) {
    let shape = histogram.shape();
    let (positive, negative) = (shape.positive(), shape.negative());
    match histogram.counts() {
        HistogramCounts::Integer { count, .. } => put_chosen_uint64(1, *count, out),
        HistogramCounts::Float { count, .. } => put_chosen_double(2, *count, out),
    }
    put_double(3, histogram.sum(), out);
    put_sint32(4, shape.schema(), out);
    put_double(5, shape.zero_threshold(), out);
    match histogram.counts() {
        HistogramCounts::Integer { zero, buckets, .. } => {
            let (of_positive, of_negative) = buckets.split_at(shape.positive_buckets());
            put_chosen_uint64(6, *zero, out);
            put_spans(8, negative, out);
            put_deltas(9, of_negative, out);
            put_spans(11, positive, out);
            put_deltas(12, of_positive, out);
        }
        HistogramCounts::Float { zero, buckets, .. } => {
            let (of_positive, of_negative) = buckets.split_at(shape.positive_buckets());
            put_chosen_double(7, *zero, out);
            put_spans(8, negative, out);
            put_doubles(10, of_negative, out);
            put_spans(11, positive, out);
            put_doubles(13, of_positive, out);
        }
    }
    put_uint64(14, histogram.reset() as u64, out);
    put_int64(15, at.as_ms(), out);
    put_doubles(16, shape.custom_values(), out);
    put_int64(17, start_ms, out);
}

fn put_spans(field: u64, spans: &[BucketSpan], out: &mut Vec<u8>) {
    for span in spans {
        let (offset, length) = (zigzag(i64::from(span.offset)), u64::from(span.length));
        let bytes = |value: u64| if value == 0 { 0 } else { varint_bytes(value).saturating_add(1) };
        put_head(field, bytes(offset).saturating_add(bytes(length)), out);
        put_uint64(1, offset, out);
        put_uint64(2, length, out);
    }
}

/// Appends packed counts as differences, each to the bucket before, the first to zero.
fn put_deltas(field: u64, counts: &[u64], out: &mut Vec<u8>) {
    if counts.is_empty() {
        return;
    }
    let deltas = || {
        let before = std::iter::once(0).chain(counts.iter().copied());
        // Counts beyond 63 bits wrap, as they do in Prometheus' encoder.
        counts.iter().zip(before).map(|(count, before)| zigzag(count.wrapping_sub(before).cast_signed()))
    };
    put_head(field, deltas().map(varint_bytes).sum(), out);
    deltas().for_each(|delta| put_varint(delta, out));
}

fn put_doubles(field: u64, values: &[f64], out: &mut Vec<u8>) {
    if values.is_empty() {
        return;
    }
    put_head(field, values.len().saturating_mul(8), out);
    values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
}
