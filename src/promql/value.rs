//! The values that a query returns.

use std::sync::Arc;

use super::FloatHistogram;
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
