//! The notifications of an organisation: their configuration, and the rows of their state.

use serde::{Deserialize, Serialize};

use crate::identity::tables::id::UserId;
use crate::kv::Record;
use crate::model::{OrgId, Timestamp};

/// The configuration, sealed as a whole with the master key, because URLs may be secrets, too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct NotifyDocumentRow {
    /// The sealed JSON text.
    pub(in crate::identity) sealed: Vec<u8>,
    /// Increases with each change; never 0.
    pub(in crate::identity) version: u32,
    pub(in crate::identity) updated_at: Timestamp,
    pub(in crate::identity) updated_by: Option<UserId>,
}

impl Record for NotifyDocumentRow {
    const TABLE: u8 = 0x39;
    const KIND: u8 = 0x39;
    const VERSION: u8 = 1;
    type Key = OrgId;
}

/// A row of the state: a silence, an acknowledgement, or an entry of the notification log. The key
/// is the organisation, the kind and the id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::identity) struct NotifyStateRow {
    pub(in crate::identity) value: Vec<u8>,
}

impl Record for NotifyStateRow {
    const TABLE: u8 = 0x3a;
    const KIND: u8 = 0x3a;
    const VERSION: u8 = 1;
    type Key = (OrgId, u8, [u8; 16]);
}
