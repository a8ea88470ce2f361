//! The restriction `alerts`: its limits, and the intersection of a key's with a token's.

use crate::identity::tables::key::AlertsPolicy;

/// The most annotations of a policy, inclusive.
const ANNOTATIONS_MAX: usize = 16;
/// The most bytes of the name of an annotation, inclusive.
const NAME_BYTES_MAX: usize = 128;

impl AlertsPolicy {
    /// Returns whether the policy has as many annotations as it may have, with names of a valid
    /// length.
    pub(super) fn is_within_limits(&self) -> bool {
        let fits = |name: &String| (1..=NAME_BYTES_MAX).contains(&name.len());
        self.annotations.len() <= ANNOTATIONS_MAX && self.annotations.iter().all(fits)
    }

    /// Returns the intersection of this policy of a key with that of a token.
    pub(super) fn intersection(&self, mut token: AlertsPolicy) -> AlertsPolicy {
        token.annotations.retain(|name| self.annotations.contains(name));
        token.value &= self.value;
        token
    }

    /// Returns whether `asked` shows more than this policy.
    pub(super) fn is_exceeded_by(&self, asked: &AlertsPolicy) -> bool {
        (asked.value && !self.value) || asked.annotations.iter().any(|name| !self.annotations.contains(name))
    }

    /// Returns the policy in the API's form.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "annotations": self.annotations, "value": self.value })
    }
}
