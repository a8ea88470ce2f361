//! The forwarding targets of an organisation.

use serde::{Deserialize, Serialize};

use crate::identity::tables::id::UserId;
use crate::identity::tables::target::SealedTarget;
use crate::kv::Record;
use crate::model::{OrgId, Timestamp};

/// A stored target, by organisation and number. Numbers begin at 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct ForwardRow {
    pub(in crate::identity) name: String,
    pub(in crate::identity) target: SealedTarget,
    /// `auto`, `rw1` or `rw2`.
    pub(in crate::identity) protocol: String,
    /// `snappy` or `zstd`.
    pub(in crate::identity) compression: String,
    /// The relabelling rules as JSON.
    pub(in crate::identity) rules: String,
    pub(in crate::identity) enabled: bool,
    /// The first log record that is sent.
    pub(in crate::identity) from_seq: u64,
    /// Increases with each change; never 0.
    pub(in crate::identity) version: u32,
    pub(in crate::identity) updated_at: Timestamp,
    pub(in crate::identity) updated_by: Option<UserId>,
}

impl Record for ForwardRow {
    const TABLE: u8 = 0x33;
    const KIND: u8 = 0x33;
    const VERSION: u8 = 1;
    type Key = (OrgId, u32);
}
