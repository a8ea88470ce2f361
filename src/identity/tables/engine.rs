//! The engine that answers the queries of an organisation.

use serde::{Deserialize, Serialize};

use crate::identity::tables::id::UserId;
use crate::identity::tables::target::SealedTarget;
use crate::kv::Record;
use crate::model::{OrgId, Timestamp};

/// The engine from which the samples of an organisation are read. Organisations without a row read
/// local samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EngineKind {
    /// All samples are read from another server.
    Upstream,
    /// Recent samples are local, older ones are read from another server.
    Split,
}

impl EngineKind {
    /// Returns the name used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            EngineKind::Upstream => "upstream",
            EngineKind::Split => "split",
        }
    }
}

/// The stored engine of an organisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct EngineRow {
    pub(in crate::identity) kind: EngineKind,
    pub(in crate::identity) target: SealedTarget,
    /// The age in seconds from which samples are read from the target; 0 unless `Split`.
    pub(in crate::identity) split_after_s: u64,
    /// Increases with each change; never 0.
    pub(in crate::identity) version: u32,
    pub(in crate::identity) updated_at: Timestamp,
    pub(in crate::identity) updated_by: Option<UserId>,
}

impl Record for EngineRow {
    const TABLE: u8 = 0x32;
    const KIND: u8 = 0x32;
    const VERSION: u8 = 1;
    type Key = OrgId;
}
