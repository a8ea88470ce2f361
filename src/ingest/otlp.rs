//! Decoder of OpenTelemetry metrics (OTLP 1.x): translates an `ExportMetricsServiceRequest`, in
//! protobuf or JSON, to the series that Prometheus 3 makes of it by default.
//!
//! Fields that are read, by message:
//! * `ExportMetricsServiceRequest`: 1 `ResourceMetrics` (repeated)
//! * `ResourceMetrics`: 1 `Resource`, 2 `ScopeMetrics` (repeated)
//! * `Resource`: 1 `KeyValue` (repeated)
//! * `ScopeMetrics`: 2 `Metric` (repeated); 1, the scope, makes no labels, as with
//!   `promote_scope_metadata: false`
//! * `Metric`: 1 name, 2 description, 3 unit, and one of 5 `Gauge`, 7 `Sum`, 9 `Histogram`, 10
//!   `ExponentialHistogram`, 11 `Summary`
//! * `Gauge`, `Sum`, ...: 1 data points (repeated), 2 temporality (enum: 1 delta, 2 cumulative), of
//!   `Sum` 3 monotonic (bool)
//! * `NumberDataPoint`: 2 start, 3 time (fixed64, nanoseconds), 4 double or 6 sfixed64, 5
//!   `Exemplar` (repeated), 7 `KeyValue` (repeated), 8 flags
//! * `HistogramDataPoint`: 2, 3, 4 count (fixed64), 5 sum (double, may be absent), 6 counts
//!   (fixed64), 7 bounds (double), 8 `Exemplar`, 9 `KeyValue`, 10 flags
//! * `ExponentialHistogramDataPoint`: 1 `KeyValue`, 2, 3, 4 count, 5 sum, 6 scale (sint32), 7 zero
//!   count (fixed64), 8 positive and 9 negative `Buckets`, 10 flags, 11 `Exemplar`, 14 zero
//!   threshold (double)
//! * `Buckets`: 1 offset (sint32), 2 counts (uint64)
//! * `SummaryDataPoint`: 2, 3, 4 count, 5 sum, 6 `ValueAtQuantile` (1 quantile, 2 value), 7
//!   `KeyValue`, 8 flags
//! * `Exemplar`: 2 time, 3 double or 6 sfixed64, 4 span id, 5 trace id, 7 `KeyValue` (repeated)
//! * `KeyValue`: 1 key, 2 `AnyValue`
//! * `AnyValue`: 1 string, 2 bool, 3 int64, 4 double, 5 array (1 `AnyValue`), 6 map (1 `KeyValue`),
//!   7 bytes
//!
//! `json` converts JSON to the same protobuf bytes first, so that there is one translation. `names`
//! makes metric and label names, `attributes` makes labels, and `resource` holds the labels that
//! all points of one sender share. `translate` goes down to the points, which `points`,
//! `histograms` and `exponential` translate; `exemplars` reads their exemplars.
//!
//! An invalid point, metric or resource is refused alone, with a reason. Malformed protobuf, and
//! JSON of the wrong shape, refuse the request. Unknown fields are skipped.
//!
//! Differences from Prometheus 3:
//! * `service.name`, `deployment.environment`, `deployment.environment.name` and `host.name` of a
//!   resource become labels of its series, unless a point has them itself. Prometheus does so only
//!   if configured.
//! * Points without a time or a value, and histograms whose bounds and counts do not match, are
//!   refused.
//! * A double in an attribute that is not finite is `NaN`, `+Inf` or `-Inf`. JSON in a label has
//!   `<`, `>` and `&` unescaped.
//! * Exemplars of gauges are stored, and their attributes are named like labels. A zero threshold
//!   that is sent is stored.

mod attributes;
mod delta;
mod exemplars;
mod exponential;
mod histograms;
mod json;
mod names;
mod points;
mod resource;
mod translate;

pub use delta::{DeltaRefusal, DeltaTimes, DeltaTotals};

use super::protobuf::{WireError, put_bytes, put_varint};
use super::{DecodeError, DecodeLimits, Translated};

/// An encoding of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Binary protobuf.
    Protobuf,
    /// JSON of protobuf messages.
    Json,
}

impl Encoding {
    /// Returns the encoding that a `Content-Type` names; `None` if it is neither.
    pub fn of(content_type: &str) -> Option<Encoding> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        [Encoding::Protobuf, Encoding::Json]
            .into_iter()
            .find(|e| media.eq_ignore_ascii_case(e.content_type()))
    }

    /// Returns the `Content-Type` of a request and of its response.
    pub const fn content_type(self) -> &'static str {
        match self {
            Encoding::Protobuf => "application/x-protobuf",
            Encoding::Json => "application/json",
        }
    }
}

/// Translates one request; `body` is decompressed. Points of delta temporality are refused.
///
/// # Errors
/// [`DecodeError`], if the whole request is refused.
pub fn decode(body: &[u8], encoding: Encoding, limits: &DecodeLimits) -> Result<Translated, DecodeError> {
    decode_with_totals(body, encoding, limits, None)
}

/// Like [`decode`], but points of delta temporality are added up in `totals`.
///
/// # Errors
/// Those of [`decode`].
pub fn decode_with_totals<'t>(
    body: &[u8],
    encoding: Encoding,
    limits: &'t DecodeLimits,
    totals: Option<&'t mut (dyn DeltaTotals + 't)>,
) -> Result<Translated, DecodeError> {
    if body.is_empty() {
        return Err(DecodeError::Empty);
    }
    if body.len() > limits.decompressed_bytes_max {
        let (found, allowed) = (body.len(), limits.decompressed_bytes_max);
        return Err(DecodeError::TooLarge { what: "bytes after decompression", found, allowed });
    }
    match encoding {
        Encoding::Protobuf => translate::translate(body, limits, totals),
        Encoding::Json => translate::translate(&json::to_protobuf(body, limits)?, limits, totals),
    }
}

/// Encodes an `ExportMetricsServiceResponse`. If data points were `refused` it states their number
/// and `message`; a message without refused points is a warning.
pub fn response(encoding: Encoding, refused: u64, message: &str) -> Vec<u8> {
    let partial = refused > 0 || !message.is_empty();
    match encoding {
        Encoding::Json if partial => {
            // 64-bit integers are strings in protobuf's JSON.
            let success =
                serde_json::json!({ "rejectedDataPoints": refused.to_string(), "errorMessage": message });
            serde_json::json!({ "partialSuccess": success }).to_string().into_bytes()
        }
        Encoding::Json => b"{}".to_vec(),
        Encoding::Protobuf => {
            let mut success = Vec::new();
            if refused > 0 {
                success.push(1 << 3);
                put_varint(refused, &mut success);
            }
            if !message.is_empty() {
                put_bytes(2, message.as_bytes(), &mut success);
            }
            let mut response = Vec::new();
            if partial {
                put_bytes(1, &success, &mut response);
            }
            response
        }
    }
}

/// Encodes a `google.rpc.Status` as the body of an error. Its code is omitted, as OTLP over HTTP
/// allows.
pub fn status(encoding: Encoding, message: &str) -> Vec<u8> {
    match encoding {
        Encoding::Json => serde_json::json!({ "message": message }).to_string().into_bytes(),
        Encoding::Protobuf => {
            let mut status = Vec::new();
            put_bytes(2, message.as_bytes(), &mut status);
            status
        }
    }
}

/// The reason why a request or a part of it is refused.
#[derive(Debug)]
enum TranslateError {
    /// The whole request is refused.
    Request(DecodeError),
    /// This point (metric, resource, exemplar) is refused: a stable code and a sentence.
    Point(&'static str, String),
}

impl From<DecodeError> for TranslateError {
    fn from(error: DecodeError) -> TranslateError {
        TranslateError::Request(error)
    }
}

impl From<WireError> for TranslateError {
    fn from(error: WireError) -> TranslateError {
        match error {
            // The message is well-formed, so only the part with this string is refused.
            WireError::Utf8 { .. } => TranslateError::Point("invalid_utf8", error.to_string()),
            _ => TranslateError::Request(error.into()),
        }
    }
}

/// Adds `more` to `count`.
///
/// # Errors
/// [`DecodeError::TooLarge`], if the sum exceeds `allowed`. The count is then unchanged.
fn add_count(what: &'static str, count: &mut usize, more: usize, allowed: usize) -> Result<(), DecodeError> {
    let found = count.saturating_add(more);
    if found > allowed {
        return Err(DecodeError::TooLarge { what, found, allowed });
    }
    *count = found;
    Ok(())
}

#[cfg(test)]
mod tests;
