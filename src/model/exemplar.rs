//! One observation shown as an example of many.

use super::{Labels, Timestamp};

/// An example of what a series counted: most often the id of a trace.
#[derive(Clone, Debug)]
pub struct Exemplar {
    /// What identifies it; not the series' labels.
    pub labels: Labels,
    /// The observed value.
    pub value: f64,
    /// When it was observed.
    pub at: Timestamp,
}

/// Bit for bit, so that a NaN equals itself.
impl PartialEq for Exemplar {
    fn eq(&self, other: &Exemplar) -> bool {
        self.labels == other.labels && self.value.to_bits() == other.value.to_bits() && self.at == other.at
    }
}

impl Exemplar {
    /// Characters of all label names and values at most (OpenMetrics, as Prometheus keeps to it).
    pub const LABEL_CHARS_MAX: usize = 128;

    /// Characters of its label names and values.
    pub fn label_chars(&self) -> usize {
        self.labels.iter().map(|label| label.name.chars().count() + label.value.chars().count()).sum()
    }
}
