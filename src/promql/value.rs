//! The values that a query returns.

use std::sync::Arc;

use super::histogram::FloatHistogram;
use crate::model::{Labels, Sample, Timestamp};

/// A value, in the four kinds of Prometheus' API.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One number.
    Scalar {
        /// The evaluation time.
        at: Timestamp,
        /// The number.
        value: f64,
    },
    /// One text.
    Text {
        /// The evaluation time.
        at: Timestamp,
        /// The text.
        text: String,
    },
    /// One value for each series, in no particular order unless the query sorts.
    Vector(Vec<VectorSample>),
    /// The samples of each series, sorted by labels.
    Matrix(Vec<MatrixSeries>),
}

/// The value of one series at the evaluation time.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorSample {
    /// The labels of the series.
    pub labels: Labels,
    /// The evaluation time, not the sample's.
    pub at: Timestamp,
    /// The float value; meaningless if `histogram` is set.
    pub value: f64,
    /// The value, if it is a native histogram.
    pub histogram: Option<Arc<FloatHistogram>>,
}

/// The values of one series over time.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixSeries {
    /// The labels of the series.
    pub labels: Labels,
    /// Float samples in ascending order of time.
    pub samples: Vec<Sample>,
    /// Native histograms in ascending order of time, at times without a float sample. At least one
    /// of the two lists is not empty.
    pub histograms: Vec<HistogramPoint>,
}

/// One native histogram of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramPoint {
    /// The sample time.
    pub at: Timestamp,
    /// The histogram.
    pub value: Arc<FloatHistogram>,
}

/// Copies the steps from `first_ms` to `last_ms`, both inclusive, and omits series without any.
pub(super) fn cut_series(series: &[MatrixSeries], first_ms: i64, last_ms: i64) -> Vec<MatrixSeries> {
    let cut_one = |one: &MatrixSeries| {
        let from = one.samples.partition_point(|sample| sample.at.as_ms() < first_ms);
        let to = one.samples.partition_point(|sample| sample.at.as_ms() <= last_ms);
        let samples = one.samples.get(from..to).unwrap_or_default().to_vec();
        let from = one.histograms.partition_point(|point| point.at.as_ms() < first_ms);
        let to = one.histograms.partition_point(|point| point.at.as_ms() <= last_ms);
        let histograms = one.histograms.get(from..to).unwrap_or_default().to_vec();
        let any = !samples.is_empty() || !histograms.is_empty();
        any.then(|| MatrixSeries { labels: one.labels.clone(), samples, histograms })
    };
    series.iter().filter_map(cut_one).collect()
}

/// Joins series with their older and newer samples. Both inputs and the result are sorted by
/// labels.
pub(super) fn join_series(older: Vec<MatrixSeries>, newer: Vec<MatrixSeries>) -> Vec<MatrixSeries> {
    let mut out = Vec::with_capacity(older.len().max(newer.len()));
    let mut newer = newer.into_iter().peekable();
    for mut series in older {
        while let Some(before) = newer.next_if(|next| next.labels < series.labels) {
            out.push(before);
        }
        if let Some(same) = newer.next_if(|next| next.labels == series.labels) {
            // Destructured, so that a new field of the type must be joined here too.
            let MatrixSeries { labels: _, samples, histograms } = same;
            series.samples.extend(samples);
            series.histograms.extend(histograms);
        }
        out.push(series);
    }
    out.extend(newer);
    out
}
