//! The versions of groups of rules (docs/specification.md C13). The current version is the group
//! itself. A change of the group stores the version that it replaces, with the time during which it
//! was valid.
//!
//! The history of a group says which texts exist: a text is removed in the change that removes its
//! entry. Old versions are removed after a change, so a stopped process may leave more of them
//! until the next one.

use std::collections::BTreeMap;

use crate::identity::Identity;
use crate::identity::tables::compressed::{compressed, compressed_rows, decompressed};
use crate::identity::tables::id::UserId;
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::rule_group::{ReplacedVersion, RuleGroupRow, RuleHistoryRow, RuleTextRow};
use crate::identity::tables::store::{StoreError, read};
use crate::kv::{BODY_BYTES_MAX, CHANGE_ROWS_MAX, Txn, VALUE_BODY_BYTES_MAX};
use crate::model::{OrgId, Timestamp};

/// The most replaced versions of a group, inclusive.
pub const RULE_VERSIONS_MAX: usize = 100;
/// The most bytes of the replaced versions of all groups of an organisation, inclusive: their
/// compressed texts, and [`VERSION_BYTES`] for each.
pub const RULE_VERSIONS_BYTES_MAX: u64 = 16 << 20;
/// The bytes that a version counts in addition to its text: an upper bound of its key and its
/// entry.
const VERSION_BYTES: u64 = 512;
/// The level of zstd.
const LEVEL: i32 = 3;
/// The most rows of a text in the change that replaces it: a group has up to 33, its history 2 and
/// the audit entry 1 of the 64 rows of a change.
const TEXT_ROWS_MAX: usize = 20;
/// The rows of a change that are left for a history.
const HISTORY_ROWS: usize = 4;
/// How often a read of several rows is repeated if one of them was changed meanwhile.
const READS_MAX: usize = 3;

/// Organisation, namespace and name.
type GroupKey = (OrgId, String, String);

/// A version of a group, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleGroupVersion {
    /// The number, from 1.
    pub version: u32,
    /// The time since which it was valid, inclusive.
    pub valid_from: Timestamp,
    /// The time until which it was valid, exclusive; `None` for the current version.
    pub valid_until: Option<Timestamp>,
    /// The account that stored it; `None` for an API key.
    pub updated_by: Option<UserId>,
    /// Length of the text, bytes.
    pub bytes: u32,
}

impl ReplacedVersion {
    fn view(&self) -> RuleGroupVersion {
        let ReplacedVersion { version, valid_from, valid_until, updated_by, bytes, .. } = *self;
        RuleGroupVersion { version, valid_from, valid_until: Some(valid_until), updated_by, bytes }
    }

    fn counted_bytes(&self) -> u64 {
        u64::from(self.stored_bytes) + VERSION_BYTES
    }
}

impl RuleGroupRow {
    fn version_view(&self) -> RuleGroupVersion {
        RuleGroupVersion {
            version: self.version,
            valid_from: self.updated_at,
            valid_until: None,
            updated_by: self.updated_by,
            bytes: count(self.yaml.len()),
        }
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn text_key((org, namespace, name): &GroupKey, version: u32) -> (OrgId, String, (String, u32)) {
    (*org, namespace.clone(), (name.clone(), version))
}

fn pack(yaml: &str) -> Result<RuleTextRow, StoreError> {
    let compressed = compressed(yaml, LEVEL)
        .map_err(|_| StoreError::Inconsistent("the text of a group of rules cannot be compressed"))?;
    Ok(RuleTextRow { bytes: count(yaml.len()), compressed })
}

fn unpack(row: &RuleTextRow) -> Result<String, StoreError> {
    decompressed(&row.compressed, row.bytes, VALUE_BODY_BYTES_MAX)
        .ok_or(StoreError::Inconsistent("the text of a group of rules cannot be decompressed"))
}

/// The number and the begin of the version that a change stores.
pub(super) struct NextVersion {
    pub(super) version: u32,
    pub(super) valid_from: Timestamp,
}

/// Stores the current version of a group as replaced at `now`, or at its own begin if the clock
/// went back. Returns the version that follows; without a group, the one after the last that was
/// removed.
pub(super) fn replace(
    txn: &mut Txn<'_>,
    key: &GroupKey,
    current: Option<&RuleGroupRow>,
    now: Timestamp,
) -> Result<NextVersion, StoreError> {
    let mut history = read::<RuleHistoryRow>(txn, key)?.unwrap_or_default();
    if let Some(current) = current {
        let text = pack(&current.yaml)?;
        let stored_bytes = count(text.compressed.len());
        let text_key = text_key(key, current.version);
        let is_short = compressed_rows(stored_bytes) <= TEXT_ROWS_MAX;
        if is_short || read::<RuleTextRow>(txn, &text_key)?.is_none() {
            txn.put(&text_key, &text);
        }
        history.0.push(ReplacedVersion {
            version: current.version,
            valid_from: current.updated_at,
            valid_until: now.max(current.updated_at),
            updated_by: current.updated_by,
            bytes: text.bytes,
            stored_bytes,
        });
        txn.put(key, &history);
    }
    Ok(match history.0.last() {
        Some(last) => NextVersion {
            version: last.version.wrapping_add(1).max(1),
            valid_from: now.max(last.valid_until),
        },
        None => NextVersion { version: 1, valid_from: now },
    })
}

/// Returns the versions beyond the limits, oldest first: the last one to remove of each group.
fn surplus(histories: &[(GroupKey, RuleHistoryRow)]) -> BTreeMap<GroupKey, u32> {
    let mut surplus = BTreeMap::new();
    let mut left = Vec::new();
    let mut bytes: u64 = 0;
    for (key, history) in histories {
        let beyond = history.0.len().saturating_sub(RULE_VERSIONS_MAX);
        for (at, version) in history.0.iter().enumerate() {
            if at < beyond {
                surplus.insert(key.clone(), version.version);
            } else {
                bytes = bytes.saturating_add(version.counted_bytes());
                left.push((version.valid_until, key, version));
            }
        }
    }
    if bytes > RULE_VERSIONS_BYTES_MAX {
        left.sort_by_key(|(valid_until, key, version)| (*valid_until, *key, version.version));
        for (_, key, version) in left {
            if bytes <= RULE_VERSIONS_BYTES_MAX {
                break;
            }
            bytes -= version.counted_bytes();
            surplus.insert(key.clone(), version.version);
        }
    }
    surplus
}

impl Identity {
    /// Returns the versions of a group, the newest first: the current one, and those that it
    /// replaced. A removed group has no current version.
    pub(super) fn rule_versions_of(&self, key: &GroupKey) -> Result<Vec<RuleGroupVersion>, StoreError> {
        let (current, history) = self.read_rule_versions(key)?;
        let replaced = history.0.iter().rev().map(ReplacedVersion::view);
        Ok(current.iter().map(RuleGroupRow::version_view).chain(replaced).collect())
    }

    /// Returns the text of a version; `None` if it is not stored.
    pub(super) fn rule_text_of(&self, key: &GroupKey, version: u32) -> Result<Option<String>, StoreError> {
        for _ in 0..READS_MAX {
            let (current, history) = self.read_rule_versions(key)?;
            if let Some(current) = current.filter(|current| current.version == version) {
                return Ok(Some(current.yaml));
            }
            if !history.0.iter().any(|one| one.version == version) {
                return Ok(None);
            }
            // Between the two reads the version may be removed.
            if let Some(text) = self.row::<RuleTextRow>(&text_key(key, version))? {
                return unpack(&text).map(Some);
            }
        }
        Err(StoreError::Inconsistent("a version of a group of rules has no text"))
    }

    /// Reads the group and its history as they are at one moment.
    fn read_rule_versions(
        &self,
        key: &GroupKey,
    ) -> Result<(Option<RuleGroupRow>, RuleHistoryRow), StoreError> {
        let mut current = self.row::<RuleGroupRow>(key)?;
        for _ in 0..READS_MAX {
            let history = self.row::<RuleHistoryRow>(key)?.unwrap_or_default();
            let again = self.row::<RuleGroupRow>(key)?;
            if again.as_ref().map(|row| row.version) == current.as_ref().map(|row| row.version) {
                return Ok((again, history));
            }
            current = again;
        }
        Err(StoreError::Inconsistent("a group of rules changes without a pause"))
    }

    /// Stores the text of the current version if it is too long for the change that replaces it,
    /// because it does not compress.
    pub(super) fn store_long_rule_text(&self, key: &GroupKey) -> Result<(), StoreError> {
        let Some(row) = self.row::<RuleGroupRow>(key)? else { return Ok(()) };
        if row.yaml.len() <= TEXT_ROWS_MAX * BODY_BYTES_MAX / 2 {
            return Ok(());
        }
        let text = pack(&row.yaml)?;
        if compressed_rows(count(text.compressed.len())) <= TEXT_ROWS_MAX {
            return Ok(());
        }
        let key = key.clone();
        self.change(move |txn| {
            let current = read::<RuleGroupRow>(txn, &key)?;
            let is_current = current.is_some_and(|current| current.version == row.version);
            // After the deletion of the organisation the text would never be removed.
            if is_current && read::<OrgRow>(txn, &key.0)?.is_some() {
                txn.put(&text_key(&key, row.version), &text);
            }
            Ok::<_, StoreError>(())
        })
    }

    /// Removes the oldest replaced versions of an organisation beyond the limits, after a change
    /// that is stored. The next change removes them if this fails.
    pub(super) fn trim_rule_versions(&self, org: OrgId) {
        if let Err(error) = self.remove_old_rule_versions(org) {
            tracing::warn!(org = org.0, %error, "old versions of groups of rules are not removed");
        }
    }

    /// Reads all histories, but no text.
    fn remove_old_rule_versions(&self, org: OrgId) -> Result<(), StoreError> {
        for (key, until) in surplus(&self.rows::<RuleHistoryRow>(&org)?) {
            while self.remove_first_rule_versions(key.clone(), until)? {}
        }
        Ok(())
    }

    /// Removes the versions of a group up to `until` (inclusive) that fit into one change. Returns
    /// whether some are left.
    fn remove_first_rule_versions(&self, key: GroupKey, until: u32) -> Result<bool, StoreError> {
        self.change(move |txn| {
            let Some(mut history) = read::<RuleHistoryRow>(txn, &key)? else { return Ok(false) };
            let wanted = history.0.iter().take_while(|one| one.version <= until).count();
            let mut rows = HISTORY_ROWS;
            let fits = |one: &&ReplacedVersion| {
                rows += compressed_rows(one.stored_bytes);
                rows <= CHANGE_ROWS_MAX
            };
            // A text has at most 50 rows, so there is progress.
            let removed = history.0.iter().take(wanted).take_while(fits).count();
            for one in history.0.drain(..removed) {
                txn.remove::<RuleTextRow>(&text_key(&key, one.version));
            }
            if history.0.is_empty() {
                txn.remove::<RuleHistoryRow>(&key);
            } else {
                txn.put(&key, &history);
            }
            Ok(removed < wanted)
        })
    }

    /// Removes all versions of a deleted organisation. Blocks (commits).
    pub(super) fn remove_rule_versions_of(&self, org: OrgId) -> Result<(), StoreError> {
        loop {
            let found = self.rows_back::<RuleTextRow>(&org, None, CHANGE_ROWS_MAX)?;
            if found.is_empty() {
                break;
            }
            let keys: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
            self.remove_all::<RuleTextRow>(&keys)?;
        }
        self.remove_rows_of::<RuleHistoryRow>(org)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_text_of_a_version_is_an_error_that_allocates_no_more_than_a_text() {
        let stored = pack("first").expect("packed");
        assert_eq!(unpack(&stored).expect("whole"), "first");
        for bytes in [0, 4, 6, 192 << 10, (192 << 10) + 1, u32::MAX] {
            assert!(unpack(&RuleTextRow { bytes, ..stored.clone() }).is_err(), "{bytes}");
        }
        let bomb = compressed(&" ".repeat(64 << 20), 3).expect("compressed");
        assert!(unpack(&RuleTextRow { bytes: 5, compressed: bomb }).is_err());
        assert!(unpack(&RuleTextRow { bytes: 5, compressed: b"first".to_vec() }).is_err());
    }
}
