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

use super::{Buffers, OutgoingSeries, Run};
use crate::ingest::prompb::{put_histogram, put_labels, put_sample, sample_bytes};
use crate::ingest::protobuf_write::{put_bytes, put_double, put_head, put_int64, put_text, put_uint64};
use crate::model::MetricMetadata;

/// Appends a `TimeSeries`, and the metadata of its metric if the request does not have it yet.
pub(super) fn put_series(buffers: &mut Buffers, of: &OutgoingSeries<'_>, run: &Run<'_>) {
    if let Some(metadata) = &run.metadata {
        put_metadata(buffers, metadata);
    }
    if run.samples.is_empty() && run.histograms.is_empty() && run.exemplars.is_empty() {
        return;
    }
    let Buffers { message, inner, series, .. } = buffers;
    if !of.label_fields.is_empty() && run.histograms.is_empty() && run.exemplars.is_empty() {
        let bytes = run.samples.iter().map(|sample| sample_bytes(sample.at, sample.value));
        put_head(1, of.label_fields.len().saturating_add(bytes.sum()), series);
        series.extend_from_slice(of.label_fields);
        for sample in run.samples {
            put_sample(sample.at, sample.value, series);
        }
        return;
    }
    message.clear();
    match of.label_fields.is_empty() {
        true => put_labels(of.labels, message),
        false => message.extend_from_slice(of.label_fields),
    }
    for sample in run.samples {
        put_sample(sample.at, sample.value, message);
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
