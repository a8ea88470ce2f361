//! What a query answers.

use std::sync::Arc;

use super::FloatHistogram;
use crate::model::{Labels, Sample, Timestamp};

/// A result, in the four kinds of Prometheus' API.
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
    /// One value for each series; in no order but where the query sorts.
    Vector(Vec<VectorSample>),
    /// Samples of each series; sorted by labels.
    Matrix(Vec<MatrixSeries>),
}

/// One series' value at the evaluation time.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorSample {
    /// Whose.
    pub labels: Labels,
    /// The evaluation time, not the sample's.
    pub at: Timestamp,
    /// The value; nothing is to be read in it where there is a histogram.
    pub value: f64,
    /// The value, where it is a native histogram.
    pub histogram: Option<Arc<FloatHistogram>>,
}

/// One series' values over time.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixSeries {
    /// Whose.
    pub labels: Labels,
    /// Ascending in time.
    pub samples: Vec<Sample>,
    /// Native histograms, ascending in time, at times without another sample. One of both has something.
    pub histograms: Vec<HistogramPoint>,
}

/// One native histogram of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramPoint {
    /// When.
    pub at: Timestamp,
    /// What.
    pub value: Arc<FloatHistogram>,
}
