//! Raw samples through the query API of Prometheus, for an upstream without remote read: the
//! response to an instant query of a matrix selector, such as `{a="b"}[300001ms]`.
//!
//! This way loses what the query API does not return. Staleness markers are missing, so a series
//! that ended seems to continue for the lookback. A NaN loses its payload. Native histograms come
//! without their layout, so a response with any is refused.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::chunk::ChunkSample;
use super::{ReadDecoder, ReadError};
use crate::model::{Label, RawSeries};

#[derive(Deserialize)]
struct MatrixResponse<'a> {
    #[serde(borrow)]
    data: MatrixData<'a>,
}

#[derive(Deserialize)]
struct MatrixData<'a> {
    #[serde(rename = "resultType")]
    result_type: &'a str,
    #[serde(borrow)]
    result: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct MatrixEntry {
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, String)>,
    #[serde(default)]
    histograms: Vec<IgnoredAny>,
}

impl ReadDecoder<'_> {
    /// Decodes the responses to one matrix selector for each query, in the order of the queries.
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Lossy`] if a series has native histograms.
    pub fn matrices(mut self, bodies: &[impl AsRef<[u8]>]) -> Result<Vec<RawSeries>, ReadError> {
        if bodies.len() != self.ranges.len() {
            return Err(ReadError::Results);
        }
        for (query, body) in bodies.iter().enumerate() {
            let range = *self.ranges.get(query).ok_or(ReadError::Results)?;
            let response: MatrixResponse<'_> =
                serde_json::from_slice(body.as_ref()).map_err(|error| invalid(&error))?;
            if response.data.result_type != "matrix" {
                return Err(ReadError::Json("the result is not a matrix".to_owned()));
            }
            self.take(response.data.result.len().saturating_mul(size_of::<&RawValue>()))?;
            for series in response.data.result {
                let entry: MatrixEntry =
                    serde_json::from_str(series.get()).map_err(|error| invalid(&error))?;
                if !entry.histograms.is_empty() {
                    return Err(ReadError::Lossy);
                }
                let (found, allowed) = (entry.metric.len() as u64, self.limits.labels_max as u64);
                if found > allowed {
                    return Err(ReadError::TooLarge { what: "labels of a series", found, allowed });
                }
                let labels = entry.metric.into_iter();
                let labels = labels.map(|(name, value)| Label { name: name.into(), value: value.into() });
                let labels = ReadDecoder::labels(labels.collect())?;
                self.add_series(labels)?;
                for (seconds, text) in entry.values {
                    let value =
                        text.parse().map_err(|_| ReadError::Json(format!("{text:?} is no number")))?;
                    self.add(range, milliseconds(seconds)?, ChunkSample::Float(value))?;
                }
            }
        }
        Ok(self.series)
    }
}

fn invalid(error: &serde_json::Error) -> ReadError {
    ReadError::Json(error.to_string())
}

/// Converts seconds with up to three decimals.
fn milliseconds(seconds: f64) -> Result<i64, ReadError> {
    let ms = (seconds * 1_000.0).round();
    #[expect(clippy::cast_possible_truncation, reason = "whole numbers below 2^53")]
    if ms.abs() < 9e15 { Ok(ms as i64) } else { Err(ReadError::Json(format!("{seconds} is no time"))) }
}
