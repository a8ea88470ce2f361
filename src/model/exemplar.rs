//! Exemplars: single observations shown as examples of many.

use super::{Labels, Timestamp};

/// An example of the observations of a series, usually with the id of a trace.
#[derive(Clone, Debug)]
pub struct Exemplar {
    /// Labels that identify the example; not those of the series.
    pub labels: Labels,
    /// The observed value.
    pub value: f64,
    /// Time of the observation.
    pub at: Timestamp,
}

/// Compares values bit by bit, so that a NaN equals itself.
impl PartialEq for Exemplar {
    fn eq(&self, other: &Exemplar) -> bool {
        self.labels == other.labels && self.value.to_bits() == other.value.to_bits() && self.at == other.at
    }
}

impl Exemplar {
    /// Maximum number of characters of all label names and values (the limit of OpenMetrics, which
    /// Prometheus enforces).
    pub const LABEL_CHARS_MAX: usize = 128;

    /// Returns the number of characters of its label names and values.
    pub fn label_chars(&self) -> usize {
        self.labels.iter().map(|label| label.name.chars().count() + label.value.chars().count()).sum()
    }
}
