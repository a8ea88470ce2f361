//! The groups of rules of an organisation.

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
