//! Messages of remote write 1.0 (`prometheus.WriteRequest`).
//!
//! | message | fields |
//! |---|---|
//! | `WriteRequest` | 1 `TimeSeries`, 3 `MetricMetadata` |
//! | `TimeSeries` | 1 `Label`, 2 `Sample`, 3 `Exemplar`, 4 `Histogram` |
//! | `Label` | 1 name, 2 value |
//! | `Sample` | 1 value (double), 2 time (int64, milliseconds) |
//! | `Exemplar` | 1 `Label`, 2 value (double), 3 time (int64, milliseconds) |
//! | `MetricMetadata` | 1 kind (enum), 2 family name, 4 help, 5 unit |

use super::histogram::put_histogram;
use super::wire::{
    double_bytes, int64_bytes, put_bytes, put_double, put_head, put_int64, put_text, put_uint64, varint_bytes,
};
use super::{Buffers, Run};
use crate::model::{Labels, MetricMetadata};

/// Appends a `TimeSeries`, and the metadata of its metric if the request does not have it yet.
pub(super) fn put_series(buffers: &mut Buffers, labels: &Labels, run: &Run<'_>) {
    if let Some(metadata) = &run.metadata {
        put_metadata(buffers, metadata);
    }
    if run.samples.is_empty() && run.histograms.is_empty() && run.exemplars.is_empty() {
        return;
    }
    let Buffers { message, inner, series, .. } = buffers;
    message.clear();
    put_labels(labels, message);
    for sample in run.samples {
        let (value, at_ms) = (sample.value, sample.at.as_ms());
        put_head(2, double_bytes(value) + int64_bytes(at_ms), message);
        put_double(1, value, message);
        put_int64(2, at_ms, message);
    }
    for exemplar in run.exemplars {
        inner.clear();
        put_labels(&exemplar.labels, inner);
        put_double(2, exemplar.value, inner);
        put_int64(3, exemplar.at.as_ms(), inner);
        put_bytes(3, inner, message);
    }
    for (at, histogram) in run.histograms {
        inner.clear();
        put_histogram(*at, histogram, 0, inner);
        put_bytes(4, inner, message);
    }
    put_bytes(1, message, series);
}

fn put_labels(labels: &Labels, out: &mut Vec<u8>) {
    let bytes = |text: &str| 1 + varint_bytes(text.len() as u64) + text.len();
    for label in labels {
        put_head(1, bytes(label.name) + bytes(label.value), out);
        put_text(1, label.name, out);
        put_text(2, label.value, out);
    }
}

fn put_metadata(buffers: &mut Buffers, MetricMetadata { name, kind, help, unit }: &MetricMetadata<'_>) {
    let Buffers { symbols, inner, metadata, .. } = buffers;
    let (_, is_new) = symbols.insert(name);
    if is_new {
        inner.clear();
        put_uint64(1, *kind as u64, inner);
        put_text(2, name, inner);
        put_text(4, help, inner);
        put_text(5, unit, inner);
        put_bytes(3, inner, metadata);
    }
}
