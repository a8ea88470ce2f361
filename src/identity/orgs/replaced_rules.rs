//! The versions of groups of rules that were replaced or removed since a time, of all
//! organisations.

use crate::identity::Identity;
use crate::identity::orgs::rule_group::RuleGroupPlace;
use crate::identity::tables::rule_group::{RuleGroupRow, RuleHistoryRow};
use crate::identity::tables::store::StoreError;
use crate::model::Timestamp;

/// A version that was replaced, or removed with its group, and the one that took its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedRuleVersion {
    /// The group.
    pub place: RuleGroupPlace,
    /// The number of the version.
    pub version: u32,
    /// The time at which the group was replaced or removed.
    pub replaced_at: Timestamp,
    /// The number of the version that replaced it; `None` if the group was removed.
    pub next: Option<u32>,
    /// Length of the text, bytes.
    pub bytes: u32,
}

impl Identity {
    /// Returns the versions of all organisations that were replaced or removed at `since` or later,
    /// in the order of their groups. Reads all histories, but no text.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn replaced_rule_versions(&self, since: Timestamp) -> Result<Vec<ReplacedRuleVersion>, StoreError> {
        let mut replaced = Vec::new();
        for (key, RuleHistoryRow(history)) in self.rows::<RuleHistoryRow>(&())? {
            if history.last().is_none_or(|last| last.valid_until < since) {
                continue;
            }
            let current = self.row::<RuleGroupRow>(&key)?.map(|row| (row.version, row.updated_at));
            let mut next = current;
            let (org, namespace, name) = key;
            let place = RuleGroupPlace { org, namespace, name };
            for one in history.iter().rev().take_while(|one| one.valid_until >= since) {
                let follower = next.filter(|(_, valid_from)| *valid_from <= one.valid_until);
                replaced.push(ReplacedRuleVersion {
                    place: place.clone(),
                    version: one.version,
                    replaced_at: one.valid_until,
                    next: follower.map(|(version, _)| version),
                    bytes: one.bytes,
                });
                next = Some((one.version, one.valid_from));
            }
        }
        Ok(replaced)
    }
}
