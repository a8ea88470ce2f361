//! Labels as JSON.

use serde_json::{Value, json};

use crate::model::Labels;

/// Returns labels as an object: the value of each label by its name.
pub fn labels_json(labels: &Labels) -> Value {
    labels.iter().map(|label| (label.name.to_owned(), json!(label.value))).collect()
}
