//! The part of a source that is copied, and the changes of its labels on the way.

use std::borrow::Cow;

use super::CopyBatch;
use crate::model::{Label, Labels, Matcher, TimeRange};
use crate::relabel::RelabelRules;

/// A filter of batches.
#[derive(Clone, Debug)]
pub struct CopyFilter {
    /// Selectors: a series is copied if all matchers of any of them match. All series are copied if
    /// there are none.
    pub selectors: Vec<Vec<Matcher>>,
    /// The times, both ends inclusive.
    pub range: TimeRange,
    /// Rules that change the labels of the series that are copied.
    pub rules: RelabelRules,
}

impl Default for CopyFilter {
    fn default() -> CopyFilter {
        CopyFilter { selectors: Vec::new(), range: TimeRange::ALL, rules: RelabelRules::default() }
    }
}

impl CopyFilter {
    /// Returns whether a series is copied.
    pub fn admits(&self, labels: &Labels) -> bool {
        let matches = |all: &Vec<Matcher>| all.iter().all(|matcher| matcher.admits(labels));
        self.selectors.is_empty() || self.selectors.iter().any(matches)
    }

    /// Removes the samples that are not copied, and changes the labels of the others.
    pub fn apply(&self, batch: &mut CopyBatch) {
        batch.series.retain_mut(|series| {
            if !self.admits(&series.labels) {
                return false;
            }
            if self.range != TimeRange::ALL {
                series.samples.retain(|one| self.range.contains(one.at));
                series.histograms.retain(|(at, _)| self.range.contains(*at));
                series.exemplars.retain(|one| self.range.contains(one.at));
                series.starts.retain(|one| self.range.contains(one.at));
            }
            if series.is_empty() {
                return false;
            }
            match self.relabelled(&series.labels) {
                Some(labels) => {
                    series.labels = labels;
                    true
                }
                None => false,
            }
        });
    }

    /// Returns the labels after the rules; none if they drop the series.
    fn relabelled(&self, labels: &Labels) -> Option<Labels> {
        if self.rules.is_empty() {
            return Some(labels.clone());
        }
        let mut pairs =
            labels.iter().map(|label| (Cow::Borrowed(label.name), Cow::Borrowed(label.value))).collect();
        if !self.rules.apply(&mut pairs) {
            return None;
        }
        let own = |(name, value): (Cow<'_, str>, Cow<'_, str>)| Label {
            name: name.as_ref().into(),
            value: value.as_ref().into(),
        };
        Some(Labels::from_sorted(pairs.into_iter().map(own).collect()))
    }
}
