//! The groups of the operator's rule files, as they were last loaded. Files change while the server
//! is stopped or killed, so a start finds here which groups were evaluated before.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::identity::Identity;
use crate::identity::tables::compressed::{packed, unpacked};
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::rule_group::FileRuleGroupRow;
use crate::identity::tables::store::{StoreError, read};
use crate::kv::VALUE_BODY_BYTES_MAX;
use crate::model::{OrgId, Timestamp};

/// The most bytes of all rows, inclusive. Groups beyond it are not stored.
const ROWS_BYTES_MAX: usize = 16 << 20;
/// The most bytes of the text of a group, inclusive: that of a rule file.
const TEXT_BYTES_MAX: usize = 10 << 20;
/// The bytes of a row besides its path, name and text.
const ROW_BYTES: usize = 64;

/// Organisation, and hash of path, name and text.
type FileGroupKey = (OrgId, [u8; 16]);

/// A group of a rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRuleGroup {
    /// The organisation.
    pub org: OrgId,
    /// The path of the file.
    pub path: String,
    /// The name of the group.
    pub name: String,
    /// The group as YAML.
    pub yaml: String,
}

/// A group of a rule file that was removed, or replaced by one with another text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedFileGroup {
    /// The group before its removal.
    pub group: FileRuleGroup,
    /// The time at which the files were first loaded without the group.
    pub removed_at: Timestamp,
}

impl FileRuleGroup {
    fn key(&self) -> FileGroupKey {
        let mut hash = Sha256::new();
        for text in [&self.path, &self.name, &self.yaml] {
            hash.update(text.len().to_be_bytes());
            hash.update(text);
        }
        let mut id = [0; 16];
        id.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
        (self.org, id)
    }

    fn row(&self) -> Result<FileRuleGroupRow, StoreError> {
        let text = packed(&self.yaml)
            .map_err(|_| StoreError::Inconsistent("the text of a group of rules cannot be compressed"))?;
        Ok(FileRuleGroupRow { path: self.path.clone(), name: self.name.clone(), text, removed_at: None })
    }
}

impl FileRuleGroupRow {
    fn bytes(&self) -> usize {
        self.path.len() + self.name.len() + self.text.len() + ROW_BYTES
    }
}

/// The difference between the stored groups and the loaded ones.
struct FileGroupDifference<'g> {
    /// Loaded groups without a row.
    missing: BTreeMap<FileGroupKey, &'g FileRuleGroup>,
    /// The rows of all other groups; None for one that is forgotten.
    rows: Vec<(FileGroupKey, Option<FileRuleGroupRow>)>,
    /// The places in `rows` that changed.
    changed: Vec<usize>,
}

impl Identity {
    fn file_group_difference<'g>(
        &self,
        loaded: &'g [FileRuleGroup],
        since: Timestamp,
        now: Timestamp,
    ) -> Result<FileGroupDifference<'g>, StoreError> {
        let mut missing: BTreeMap<FileGroupKey, &FileRuleGroup> =
            loaded.iter().map(|group| (group.key(), group)).collect();
        let (mut rows, mut changed) = (Vec::new(), Vec::new());
        for (key, mut row) in self.rows::<FileRuleGroupRow>(&())? {
            let removed_at = match missing.remove(&key) {
                Some(_) => None,
                None => Some(row.removed_at.unwrap_or(now)),
            };
            let is_forgotten = removed_at.is_some_and(|at| at < since);
            if is_forgotten || row.removed_at != removed_at {
                changed.push(rows.len());
            }
            row.removed_at = removed_at;
            rows.push((key, (!is_forgotten).then_some(row)));
        }
        Ok(FileGroupDifference { missing, rows, changed })
    }

    /// Returns the stored groups that were removed or replaced at `since` or later, in no order,
    /// if exactly these groups of files are loaded now. Changes nothing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn removed_file_rule_groups(
        &self,
        loaded: &[FileRuleGroup],
        since: Timestamp,
        now: Timestamp,
    ) -> Result<Vec<RemovedFileGroup>, StoreError> {
        let rows = self.file_group_difference(loaded, since, now)?.rows;
        let removed = rows.into_iter().filter_map(|((org, _), row)| {
            let FileRuleGroupRow { path, name, text, removed_at } = row?;
            let removed_at = removed_at?;
            let yaml = unpacked(text, TEXT_BYTES_MAX)?;
            Some(RemovedFileGroup { group: FileRuleGroup { org, path, name, yaml }, removed_at })
        });
        Ok(removed.collect())
    }

    /// Stores that exactly these groups of files are loaded now. Groups that were removed before
    /// `since` are forgotten. A group that does not fit is left out and logged. Blocks (commits).
    ///
    /// # Errors
    /// [`StoreError`]; then a part of the groups may be stored, and the next call stores the rest.
    pub fn set_file_rule_groups(
        &self,
        loaded: &[FileRuleGroup],
        since: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let FileGroupDifference { missing, rows, changed } =
            self.file_group_difference(loaded, since, now)?;
        let mut bytes: usize = rows.iter().filter_map(|(_, row)| Some(row.as_ref()?.bytes())).sum();
        let mut changes: Vec<_> = changed.into_iter().filter_map(|place| rows.get(place).cloned()).collect();
        for (key, group) in missing {
            let row = group.row()?;
            if row.bytes() > VALUE_BODY_BYTES_MAX || bytes + row.bytes() > ROWS_BYTES_MAX {
                tracing::warn!("the group of rules {} of {} is not remembered", group.name, group.path);
                continue;
            }
            bytes += row.bytes();
            changes.push((key, Some(row)));
        }
        self.change_each(&changes, |txn, (key, row)| {
            match row {
                // After the deletion of the organisation the row would never be removed.
                Some(row) if read::<OrgRow>(txn, &key.0)?.is_some() => txn.put(key, row),
                Some(_) => {}
                None => txn.remove::<FileRuleGroupRow>(key),
            }
            Ok(())
        })
    }
}
