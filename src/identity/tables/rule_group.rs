//! The groups of rules of an organisation, and the versions that were replaced.

use serde::{Deserialize, Serialize};

use crate::identity::tables::id::UserId;
use crate::kv::Record;
use crate::model::{OrgId, Timestamp};

/// A stored group, by organisation, namespace and name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct RuleGroupRow {
    /// The group as YAML.
    pub(in crate::identity) yaml: String,
    /// The number of its rules.
    pub(in crate::identity) rules: u32,
    /// Increases with each change; never 0.
    pub(in crate::identity) version: u32,
    /// The end is never before that of an older version.
    pub(in crate::identity) updated_at: Timestamp,
    /// `None` for an API key.
    pub(in crate::identity) updated_by: Option<UserId>,
}

impl Record for RuleGroupRow {
    const TABLE: u8 = 0x38;
    const KIND: u8 = 0x38;
    const VERSION: u8 = 1;
    type Key = (OrgId, String, String);
}

/// A version that was replaced, or removed with its group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct ReplacedVersion {
    pub(in crate::identity) version: u32,
    /// Inclusive.
    pub(in crate::identity) valid_from: Timestamp,
    /// Exclusive, and not before `valid_from`.
    pub(in crate::identity) valid_until: Timestamp,
    /// The account that stored it; `None` for an API key.
    pub(in crate::identity) updated_by: Option<UserId>,
    /// Length of the text, bytes.
    pub(in crate::identity) bytes: u32,
    /// Length of the compressed text, bytes.
    pub(in crate::identity) stored_bytes: u32,
}

/// The replaced versions of a group, oldest first; by organisation, namespace and name. It stays
/// when the group is removed. The current version is in [`RuleGroupRow`] only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct RuleHistoryRow(pub(in crate::identity) Vec<ReplacedVersion>);

impl Record for RuleHistoryRow {
    const TABLE: u8 = 0x35;
    const KIND: u8 = 0x35;
    const VERSION: u8 = 1;
    type Key = (OrgId, String, String);
}

/// The text of a replaced version; by organisation, namespace, name and version. A row without an
/// entry in [`RuleHistoryRow`] is the text of the current version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct RuleTextRow {
    /// Length of the text, bytes. It bounds the decompression.
    pub(in crate::identity) bytes: u32,
    /// The text in one zstd frame.
    pub(in crate::identity) compressed: Vec<u8>,
}

impl Record for RuleTextRow {
    const TABLE: u8 = 0x36;
    const KIND: u8 = 0x36;
    const VERSION: u8 = 1;
    type Key = (OrgId, String, (String, u32));
}

/// A group of a rule file of the operator, as it was loaded; by organisation and a hash of path,
/// name and text. It stays for a while after the group was removed or changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct FileRuleGroupRow {
    pub(in crate::identity) path: String,
    pub(in crate::identity) name: String,
    /// The text as YAML, packed.
    pub(in crate::identity) text: Vec<u8>,
    /// The time at which the group was first not in a loaded file; `None` if it is loaded.
    pub(in crate::identity) removed_at: Option<Timestamp>,
}

impl Record for FileRuleGroupRow {
    const TABLE: u8 = 0x37;
    const KIND: u8 = 0x37;
    const VERSION: u8 = 1;
    type Key = (OrgId, [u8; 16]);
}
