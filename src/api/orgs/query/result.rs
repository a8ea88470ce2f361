//! The result of a query until it is encoded.

use std::sync::Arc;

use super::parallel_encode::encode_prefix;
use crate::api::error::{ApiError, ApiResult};
use crate::api::prom_json::{self, ResultCursor};
use crate::promql::{Lease, Value, WorkerPool};
use crate::upstream::PassedResult;

/// The approximate memory of a series in bytes, without its values.
const SERIES_BYTES: usize = 64;
/// More than the bytes around the text of a passed result.
const PASSED_HEAD_BYTES: usize = 64;

/// The result of a query.
#[derive(Clone, Debug)]
pub(in crate::api::orgs) enum ResultData {
    /// A value.
    Value(Arc<Value>),
    /// A vector or matrix of another server, which is text.
    Passed {
        /// The series, of which the first `limit` belong to the result.
        series: Arc<PassedResult>,
        /// The most series of the result.
        limit: usize,
    },
}

impl From<Value> for ResultData {
    fn from(value: Value) -> ResultData {
        ResultData::Value(Arc::new(value))
    }
}

impl ResultData {
    /// Returns the result as a value, and parses it if it is text.
    ///
    /// # Errors
    /// 500 if the text is not that of a result, which would be a defect.
    pub(in crate::api::orgs) fn into_value(self) -> ApiResult<Value> {
        match self {
            ResultData::Value(value) => Ok(Arc::unwrap_or_clone(value)),
            ResultData::Passed { series, limit } => {
                let parsed = series.parsed(limit);
                parsed.ok_or_else(|| ApiError::internal("the text of an upstream's result is not one"))
            }
        }
    }

    /// Returns the number of series; a scalar and a string count as one.
    pub(in crate::api::orgs) fn series_count(&self) -> usize {
        match self {
            ResultData::Value(value) => match &**value {
                Value::Vector(series) => series.len(),
                Value::Matrix(series) => series.len(),
                Value::Scalar { .. } | Value::Text { .. } => 1,
            },
            ResultData::Passed { series, limit } => series.series_count().min(*limit),
        }
    }

    /// Keeps the first `limit` series. Returns whether there were more.
    pub(super) fn truncate(&mut self, most: usize) -> bool {
        let is_longer = self.series_count() > most;
        match self {
            ResultData::Value(value) if is_longer => match Arc::make_mut(value) {
                Value::Vector(series) => series.truncate(most),
                Value::Matrix(series) => series.truncate(most),
                Value::Scalar { .. } | Value::Text { .. } => return false,
            },
            ResultData::Value(_) => {}
            ResultData::Passed { limit, .. } => *limit = most.min(*limit),
        }
        is_longer
    }

    /// Returns the approximate bytes of memory that the result holds.
    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            ResultData::Value(value) => value_memory_bytes(value),
            // The series behind the limit are held, too.
            ResultData::Passed { series, .. } => series.held_bytes(),
        }
    }

    /// Returns an upper bound of the JSON bytes of most results.
    pub(super) fn estimated_bytes(&self) -> usize {
        match self {
            ResultData::Value(value) => prom_json::estimated_bytes(value),
            ResultData::Passed { series, limit } => {
                series.text(*limit).len().saturating_add(PASSED_HEAD_BYTES)
            }
        }
    }

    /// Returns how many bytes could be encoded in the time of this result, if it is not compressed.
    pub(super) fn encode_work_bytes(&self) -> usize {
        /// Copying is this many times as fast as encoding.
        const COPY_FACTOR: usize = 4;
        match self {
            ResultData::Value(_) => self.estimated_bytes(),
            ResultData::Passed { .. } => self.estimated_bytes() / COPY_FACTOR,
        }
    }

    /// Returns a lower bound of the JSON bytes: the shortest point is `[1,"1"],`.
    pub(super) fn min_encoded_bytes(&self) -> usize {
        const POINT: usize = 8;
        match self {
            ResultData::Value(value) => match &**value {
                Value::Scalar { .. } | Value::Text { .. } => 0,
                Value::Vector(series) => series.len().saturating_mul(POINT),
                Value::Matrix(series) => {
                    series.iter().map(|series| series.samples.len()).sum::<usize>().saturating_mul(POINT)
                }
            },
            ResultData::Passed { series, limit } => series.text(*limit).len(),
        }
    }

    /// Encodes the beginning with two threads if that is faster, and returns the position after it.
    pub(super) fn encode_prefix(
        &self,
        workers: &WorkerPool,
        lease: Option<&Lease>,
        text: &mut Vec<u8>,
    ) -> ResultCursor {
        match self {
            ResultData::Value(value) => encode_prefix(value, workers, lease, text),
            ResultData::Passed { .. } => ResultCursor::default(),
        }
    }

    /// See [`ResultCursor::fill`].
    pub(super) fn fill(&self, cursor: &mut ResultCursor, length: usize, out: &mut Vec<u8>) -> bool {
        match self {
            ResultData::Value(value) => cursor.fill(value, length, out),
            ResultData::Passed { series, limit } => cursor.fill_passed(series, *limit, length, out),
        }
    }
}

/// Returns the approximate bytes of memory that a value holds.
pub(in crate::api::orgs) fn value_memory_bytes(value: &Value) -> u64 {
    // Label texts are shared with the store and do not count.
    let bytes = match value {
        Value::Scalar { .. } => SERIES_BYTES,
        Value::Text { text, .. } => text.len(),
        Value::Vector(series) => series.len().saturating_mul(SERIES_BYTES),
        Value::Matrix(series) => {
            let samples: usize = series.iter().map(|series| series.samples.len()).sum();
            samples.saturating_mul(16).saturating_add(series.len().saturating_mul(SERIES_BYTES))
        }
    };
    bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Labels, Sample, Timestamp};

    fn passed(series: usize, samples: i64) -> ResultData {
        let samples: Vec<Sample> =
            (0..samples).map(|n| Sample { at: Timestamp::from_s(n * 15), value: n as f64 * 1.5 }).collect();
        let of = |n: usize| {
            let labels = Labels::from_pairs([("common", "\"x\""), ("n", n.to_string().as_str())]);
            (labels, samples.clone())
        };
        let series: Vec<_> = (0..series).map(of).collect();
        ResultData::Passed { series: Arc::new(PassedResult::printed(&series)), limit: usize::MAX }
    }

    /// Writes a result in steps of `length` bytes.
    fn written(data: &ResultData, length: usize) -> String {
        let (mut cursor, mut text) = (ResultCursor::default(), Vec::new());
        while !data.fill(&mut cursor, text.len() + length, &mut text) {}
        String::from_utf8(text).expect("UTF-8")
    }

    #[test]
    fn a_passed_matrix_has_the_text_of_its_value() {
        for (series, samples) in [(0, 0), (1, 0), (1, 1), (7, 30), (4, 5_000)] {
            let mut data = passed(series, samples);
            let value = ResultData::from(data.clone().into_value().expect("series"));
            let text = written(&value, usize::MAX);
            for length in [1, 100, 1_000, 50_000, usize::MAX] {
                assert!(written(&data, length) == text, "{series} series in pieces of {length}");
            }
            assert!(data.min_encoded_bytes() <= text.len() && text.len() <= data.estimated_bytes());
            assert_eq!(data.series_count(), series);
            let (mut cut, is_longer) = (value, series > 3);
            assert_eq!((cut.truncate(3), data.truncate(3)), (is_longer, is_longer));
            assert!(written(&data, 50) == written(&cut, usize::MAX), "{series} series");
            assert_eq!(data.clone().into_value().expect("series"), cut.into_value().expect("series"));
        }
    }
}
