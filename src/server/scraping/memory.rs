//! The targets of organisations before the last start, in the accounts.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::api::views::labels::labels_json;
use crate::identity::Identity;
use crate::model::{Labels, OrgId};
use crate::scrape::ScrapeMemory;

/// The most bytes of the labels of remembered targets, inclusive. Beyond it none are remembered.
const REMEMBERED_BYTES_MAX: usize = 16 << 20;

/// Remembers targets for the next start.
pub(super) struct TargetMemory(pub(super) Arc<Identity>);

impl ScrapeMemory for TargetMemory {
    fn load(&self, org: OrgId) -> Vec<Labels> {
        match self.0.scraped_targets(org) {
            Ok(text) => labels_of(&text),
            Err(error) => {
                tracing::warn!(org = org.0, "the targets before the start cannot be read: {error}");
                Vec::new()
            }
        }
    }

    fn store(&self, org: OrgId, targets: &[Labels]) {
        if !self.0.accepts_changes() {
            return;
        }
        let text = text_of(targets);
        let text = if text.len() > REMEMBERED_BYTES_MAX { String::new() } else { text };
        if let Err(error) = self.0.set_scraped_targets(org, text) {
            tracing::warn!(org = org.0, "the targets are not stored for the next start: {error}");
        }
    }
}

fn text_of(targets: &[Labels]) -> String {
    match targets.is_empty() {
        true => String::new(),
        false => Value::from_iter(targets.iter().map(labels_json)).to_string(),
    }
}

fn labels_of(text: &str) -> Vec<Labels> {
    let targets: Vec<Map<String, Value>> = serde_json::from_str(text).unwrap_or_default();
    let of_one = |labels: Map<String, Value>| {
        Labels::from_pairs(
            labels.into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned()))),
        )
    };
    targets.into_iter().map(of_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_targets_are_read_as_they_were_stored() {
        let targets = vec![Labels::from_pairs([("job", "a"), ("instance", "b\"c")]), Labels::default()];
        assert_eq!(labels_of(&text_of(&targets)), targets);
        assert!(labels_of("").is_empty() && labels_of("[{\"a\": 1}").is_empty());
    }
}
