//! Raw samples through the query API of Prometheus, for an upstream without remote read: the
//! response to an instant query of a matrix selector, such as `{a="b"}[300001ms]`.
//!
//! Data that the query API does not return is lost. Staleness markers are missing, so a series that
//! ended seems to continue for the lookback. A NaN loses its payload. Native histograms come
//! without their layout, so a response with any is refused.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::ChunkSample;
use super::{ReadDecoder, ReadError};
use crate::model::{Label, RawSeries};

/// The most series of one response. Their texts are listed before they are decoded.
const ELEMENTS_MAX: usize = 1 << 20;

#[derive(Deserialize)]
struct MatrixResponse<'a> {
    #[serde(borrow)]
    data: MatrixData<'a>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
    /// VictoriaMetrics sets it if a storage node does not answer.
    #[serde(rename = "isPartial", default)]
    is_partial: bool,
}

#[derive(Deserialize)]
struct MatrixData<'a> {
    #[serde(rename = "resultType")]
    result_type: &'a str,
    #[serde(borrow)]
    result: Elements<'a>,
}

/// The texts of at most [`ELEMENTS_MAX`] series.
struct Elements<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Elements<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Elements<'a>, D::Error> {
        struct ElementsVisitor;

        impl<'de> Visitor<'de> for ElementsVisitor {
            type Value = Elements<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of series")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Elements<'de>, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = list.next_element()? {
                    if all.len() == ELEMENTS_MAX {
                        return Err(A::Error::custom(format!("more than {ELEMENTS_MAX} series")));
                    }
                    all.push(one);
                }
                Ok(Elements(all))
            }
        }

        from.deserialize_seq(ElementsVisitor)
    }
}

#[derive(Deserialize)]
struct MatrixEntry {
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<MatrixPoint>,
    #[serde(default)]
    histograms: Vec<IgnoredAny>,
}

/// A time in seconds and a value.
#[derive(Deserialize)]
struct MatrixPoint(f64, #[serde(deserialize_with = "number")] f64);

/// Reads a number that is written as a text.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let text = Cow::<'de, str>::deserialize(from)?;
    text.parse().map_err(|_| D::Error::custom(format!("{text:?} is not a number")))
}

impl ReadDecoder<'_> {
    /// Decodes the responses to one matrix selector for each query, in the order of the queries.
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Lossy`] if a series has native histograms, and
    /// [`ReadError::Partial`] if the server reports that samples are missing.
    pub fn matrices(mut self, bodies: &[impl AsRef<[u8]>]) -> Result<Vec<RawSeries>, ReadError> {
        if bodies.len() != self.ranges.len() {
            return Err(ReadError::Results);
        }
        for (query, body) in bodies.iter().enumerate() {
            let range = *self.ranges.get(query).ok_or(ReadError::Results)?;
            self.reserve(ELEMENTS_MAX.min(body.as_ref().len()).saturating_mul(size_of::<&RawValue>()))?;
            let response: MatrixResponse<'_> =
                serde_json::from_slice(body.as_ref()).map_err(|error| invalid(&error))?;
            let warning = response.warnings.into_iter().flatten().next();
            // A query of raw samples has no other warnings than those of missing data.
            if let Some(why) = warning.or_else(|| response.is_partial.then(|| "isPartial".to_owned())) {
                return Err(ReadError::Partial(why));
            }
            if response.data.result_type != "matrix" {
                return Err(ReadError::Json("the result is not a matrix".to_owned()));
            }
            let Elements(all) = response.data.result;
            self.take(all.len().saturating_mul(size_of::<&RawValue>()))?;
            for series in all {
                // A point has at least eight bytes of text, and 16 in memory.
                self.reserve(series.get().len().saturating_mul(2))?;
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
                for MatrixPoint(seconds, value) in entry.values {
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
    if ms.abs() < 9e15 { Ok(ms as i64) } else { Err(ReadError::Json(format!("{seconds} is not a time"))) }
}
