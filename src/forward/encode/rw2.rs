//! Messages of remote write 2.0 (`io.prometheus.write.v2.Request`).
//!
//! | message | fields |
//! |---|---|
//! | `Request` | 4 symbol (string), 5 `TimeSeries` |
//! | `TimeSeries` | 1 symbols, 2 `Sample`, 3 `Histogram`, 4 `Exemplar`, 5 `Metadata`, 6 start |
//! | `Sample` | 1 value (double), 2 time (int64, milliseconds), 3 start |
//! | `Exemplar` | 1 labels (uint32: symbols), 2 value (double), 3 time (int64, milliseconds) |
//! | `Metadata` | 1 kind (enum), 3 help (uint32: a symbol), 4 unit (uint32: a symbol) |
//!
//! Starts are int64, milliseconds. Receivers before the release candidate 4 of the specification
//! read field 6 of `TimeSeries`, later ones field 3 of `Sample` and 17 of `Histogram`. Both are
//! written, and each receiver skips the field that it does not know.

use super::symbols::SymbolTable;
use super::{Buffers, Run};
use crate::ingest::prompb::put_histogram;
use crate::ingest::protobuf_write::{
    double_bytes, int64_bytes, put_bytes, put_double, put_head, put_int64, put_uint64, put_varint,
};
use crate::model::Labels;

/// Appends a `TimeSeries`.
pub(super) fn put_series(buffers: &mut Buffers, labels: &Labels, run: &Run<'_>) {
    let Buffers { message, inner, references, series, symbols, .. } = buffers;
    message.clear();
    put_labels(labels, symbols, references, message);
    for sample in run.samples {
        let (value, at_ms) = (sample.value, sample.at.as_ms());
        put_head(2, double_bytes(value) + int64_bytes(at_ms) + int64_bytes(run.start_ms), message);
        put_double(1, value, message);
        put_int64(2, at_ms, message);
        put_int64(3, run.start_ms, message);
    }
    for (at, histogram) in run.histograms {
        inner.clear();
        put_histogram(*at, histogram, run.start_ms, inner);
        put_bytes(3, inner, message);
    }
    for exemplar in run.exemplars {
        inner.clear();
        put_labels(&exemplar.labels, symbols, references, inner);
        put_double(2, exemplar.value, inner);
        put_int64(3, exemplar.at.as_ms(), inner);
        put_bytes(4, inner, message);
    }
    if let Some(metadata) = &run.metadata {
        inner.clear();
        put_uint64(1, metadata.kind as u64, inner);
        put_uint64(3, symbols.reference(metadata.help), inner);
        put_uint64(4, symbols.reference(metadata.unit), inner);
        put_bytes(5, inner, message);
    }
    put_int64(6, run.start_ms, message);
    put_bytes(5, message, series);
}

/// Appends a packed field 1 with the symbols of all names and values.
fn put_labels(labels: &Labels, symbols: &mut SymbolTable, references: &mut Vec<u8>, out: &mut Vec<u8>) {
    if labels.is_empty() {
        return;
    }
    references.clear();
    for label in labels {
        put_varint(symbols.reference(label.name), references);
        put_varint(symbols.reference(label.value), references);
    }
    put_bytes(1, references, out);
}
