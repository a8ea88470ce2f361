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

impl Identity {
    /// Stores that exactly these groups of files are loaded now. Returns the groups that were
    /// removed or replaced at `since` or later, in no order; older ones are forgotten. A group that
    /// does not fit is left out and logged. Blocks (commits).
    ///
    /// # Errors
    /// [`StoreError`]; then a part of the groups may be stored, and the next call stores the rest.
    pub fn set_file_rule_groups(
        &self,
        loaded: &[FileRuleGroup],
        since: Timestamp,
        now: Timestamp,
    ) -> Result<Vec<RemovedFileGroup>, StoreError> {
        let mut wanted: BTreeMap<FileGroupKey, &FileRuleGroup> =
            loaded.iter().map(|group| (group.key(), group)).collect();
        let (mut changes, mut removed, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (key, mut row) in self.rows::<FileRuleGroupRow>(&())? {
            let removed_at = match wanted.remove(&key) {
                Some(_) => None,
                None => Some(row.removed_at.unwrap_or(now)),
            };
            if removed_at.is_some_and(|at| at < since) {
                changes.push((key, None));
                continue;
            }
            bytes += row.bytes();
            if row.removed_at != removed_at {
                row.removed_at = removed_at;
                changes.push((key, Some(row.clone())));
            }
            if let Some(removed_at) = removed_at
                && let Some(yaml) = unpacked(row.text, TEXT_BYTES_MAX)
            {
                let group = FileRuleGroup { org: key.0, path: row.path, name: row.name, yaml };
                removed.push(RemovedFileGroup { group, removed_at });
            }
        }
        for (key, group) in wanted {
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
        })?;
        Ok(removed)
    }
}
