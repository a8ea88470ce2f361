//! OpenTelemetry metrics (OTLP 1.x): an `ExportMetricsServiceRequest`, in protobuf or JSON, to series as Prometheus 3 makes
//! them by default.
//!
//! | message | fields that are read |
//! |---|---|
//! | `ExportMetricsServiceRequest` | 1 `ResourceMetrics` (repeated) |
//! | `ResourceMetrics` | 1 `Resource`, 2 `ScopeMetrics` (repeated) |
//! | `Resource` | 1 `KeyValue` (repeated) |
//! | `ScopeMetrics` | 2 `Metric` (repeated); 1, the scope, makes no label, as `promote_scope_metadata: false` |
//! | `Metric` | 1 name, 2 description, 3 unit, and one of 5 `Gauge`, 7 `Sum`, 9 `Histogram`, 10 `ExponentialHistogram`, 11 `Summary` |
//! | `Gauge`, `Sum`, ... | 1 data points (repeated), 2 temporality (enum: 1 delta, 2 cumulative), of `Sum` 3 monotonic (bool) |
//! | `NumberDataPoint` | 2 start, 3 time (fixed64, nanoseconds), 4 double or 6 sfixed64, 5 `Exemplar` (repeated), 7 `KeyValue` (repeated), 8 flags |
//! | `HistogramDataPoint` | 2, 3, 4 count (fixed64), 5 sum (double, may be absent), 6 counts (fixed64), 7 bounds (double), 8 `Exemplar`, 9 `KeyValue`, 10 flags |
//! | `ExponentialHistogramDataPoint` | 1 `KeyValue`, 2, 3, 4 count, 5 sum, 6 scale (sint32), 7 zero count (fixed64), 8 positive and 9 negative `Buckets`, 10 flags, 11 `Exemplar`, 14 zero threshold (double) |
//! | `Buckets` | 1 offset (sint32), 2 counts (uint64) |
//! | `SummaryDataPoint` | 2, 3, 4 count, 5 sum, 6 `ValueAtQuantile` (1 quantile, 2 value), 7 `KeyValue`, 8 flags |
//! | `Exemplar` | 2 time, 3 double or 6 sfixed64, 4 span id, 5 trace id, 7 `KeyValue` (repeated) |
//! | `KeyValue` | 1 key, 2 `AnyValue` |
//! | `AnyValue` | 1 string, 2 bool, 3 int64, 4 double, 5 array (1 `AnyValue`), 6 map (1 `KeyValue`), 7 bytes |
//!
//! JSON is brought to the same bytes first (`json`), so that there is one translation. `names` spells names; `attributes`
//! makes labels; `resource` is what all points of one sender share; `translate` walks to the points, which are `points`,
//! `histograms` and `exponential`; `exemplars` are theirs.
//!
//! What is wrong with one point, metric or resource refuses that one, with a reason; what is no protobuf, or no JSON of
//! the right shape, refuses the request. Fields that are not known are passed over.
//!
//! Where Prometheus 3 answers otherwise:
//! * `service.name`, `deployment.environment`, `deployment.environment.name` and `host.name` of a resource become labels of
//!   its series, unless a point says them itself. Prometheus does so where it is configured.
//! * Points without a time or a value, and histograms whose bounds and counts do not fit, are refused.
//! * An attribute's double that is no number is `NaN`, `+Inf` or `-Inf`; JSON in a label has `<`, `>` and `&` as they are.
//! * Exemplars of gauges are kept, and their attributes named as labels are. A zero threshold that is told is kept.

mod attributes;
mod exemplars;
mod exponential;
mod histograms;
mod json;
mod names;
mod points;
mod resource;
mod translate;

use super::protobuf::{WireError, put_bytes, put_varint};
use super::{DecodeError, DecodeLimits, Translated};

/// The two ways of writing a request down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Binary.
    Protobuf,
    /// Text.
    Json,
}

impl Encoding {
    /// By a request's `Content-Type`; none where it is neither.
    pub fn of(content_type: &str) -> Option<Encoding> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        [Encoding::Protobuf, Encoding::Json]
            .into_iter()
            .find(|e| media.eq_ignore_ascii_case(e.content_type()))
    }

    /// The `Content-Type`, of the request and of its answer.
    pub const fn content_type(self) -> &'static str {
        match self {
            Encoding::Protobuf => "application/x-protobuf",
            Encoding::Json => "application/json",
        }
    }
}

/// Translates one request. `body`: decompressed.
///
/// # Errors
/// [`DecodeError`], where nothing of the request can be taken.
pub fn decode(body: &[u8], encoding: Encoding, limits: &DecodeLimits) -> Result<Translated, DecodeError> {
    if body.is_empty() {
        return Err(DecodeError::Empty);
    }
    if body.len() > limits.decompressed_bytes_max {
        let (found, allowed) = (body.len(), limits.decompressed_bytes_max);
        return Err(DecodeError::TooLarge { what: "bytes after decompression", found, allowed });
    }
    match encoding {
        Encoding::Protobuf => translate::translate(body, limits),
        Encoding::Json => translate::translate(&json::to_protobuf(body, limits)?, limits),
    }
}

/// An `ExportMetricsServiceResponse`: all is well, or how many data points were refused and why. A message alone warns.
pub fn response(encoding: Encoding, refused: u64, message: &str) -> Vec<u8> {
    let partial = refused > 0 || !message.is_empty();
    match encoding {
        Encoding::Json if partial => {
            // 64-bit numbers are texts in protobuf's JSON.
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

/// A `google.rpc.Status` for the body of an error; its code is left to HTTP, as OTLP allows.
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

/// Why something is not translated.
#[derive(Debug)]
enum Trouble {
    /// Nothing of the request is.
    Request(DecodeError),
    /// This point (metric, resource, exemplar) is not: a stable word and a sentence.
    Point(&'static str, String),
}

impl From<DecodeError> for Trouble {
    fn from(error: DecodeError) -> Trouble {
        Trouble::Request(error)
    }
}

impl From<WireError> for Trouble {
    fn from(error: WireError) -> Trouble {
        match error {
            // The bytes are in order, this text is not.
            WireError::Utf8 { .. } => Trouble::Point("invalid_utf8", error.to_string()),
            _ => Trouble::Request(error.into()),
        }
    }
}

/// Counts entries.
fn charge(what: &'static str, have: &mut usize, more: usize, allowed: usize) -> Result<(), DecodeError> {
    let found = have.saturating_add(more);
    if found > allowed {
        return Err(DecodeError::TooLarge { what, found, allowed });
    }
    *have = found;
    Ok(())
}

#[cfg(test)]
mod tests;
