//! What a query answers.

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
    /// The value.
    pub value: f64,
}

/// One series' values over time.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixSeries {
    /// Whose.
    pub labels: Labels,
    /// Ascending in time; never empty.
    pub samples: Vec<Sample>,
}
