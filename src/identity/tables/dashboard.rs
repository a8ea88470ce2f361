//! Dashboards of an organisation: current state, documents, history, and each member's stars.
//!
//! The document of a version is a row of its own, so listing dashboards or versions reads none. The
//! history of a dashboard is the truth for which documents exist: a document is removed in the
//! change that removes its entry.

use serde::{Deserialize, Serialize};

use crate::kv::Record;
use crate::model::{OrgId, Timestamp};

use crate::identity::tables::id::UserId;

const UID_BYTES_MAX: usize = 40;

/// Returns whether a text is a uid by Grafana's rule: 1 to 40 letters, digits, `-` and `_`.
pub fn is_dashboard_uid(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (1..=UID_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

/// The current version of a dashboard, without its document; by organisation and uid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct DashboardRow {
    pub(in crate::identity) title: String,
    /// Path such as `Infra/Kubernetes`; empty at the top.
    pub(in crate::identity) folder: String,
    pub(in crate::identity) tags: Vec<String>,
    pub(in crate::identity) version: u32,
    pub(in crate::identity) created_at: Timestamp,
    /// The author; `None` on the command line.
    pub(in crate::identity) created_by: Option<UserId>,
    pub(in crate::identity) updated_at: Timestamp,
    pub(in crate::identity) updated_by: Option<UserId>,
    pub(in crate::identity) panels: u32,
    pub(in crate::identity) queries: u32,
}

impl Record for DashboardRow {
    const TABLE: u8 = 0x13;
    const KIND: u8 = 0x13;
    const VERSION: u8 = 1;
    type Key = (OrgId, String);
}

/// The document of one version; by organisation, uid and version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct DocumentRow {
    /// Length of the text, bytes. It bounds the decompression.
    pub(in crate::identity) bytes: u32,
    /// The text in one zstd frame.
    pub(in crate::identity) compressed: Vec<u8>,
}

impl Record for DocumentRow {
    const TABLE: u8 = 0x14;
    const KIND: u8 = 0x14;
    const VERSION: u8 = 1;
    type Key = (OrgId, String, u32);
}

/// One version of a dashboard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct VersionEntry {
    pub(in crate::identity) version: u32,
    pub(in crate::identity) saved_at: Timestamp,
    pub(in crate::identity) saved_by: Option<UserId>,
    pub(in crate::identity) message: String,
    /// The older version whose document this one has.
    pub(in crate::identity) restored_from: Option<u32>,
    /// Length of the text, bytes.
    pub(in crate::identity) bytes: u32,
    /// Length of the compressed text, bytes.
    pub(in crate::identity) stored_bytes: u32,
}

/// The stored versions of a dashboard, oldest first; by organisation and uid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct HistoryRow(pub(in crate::identity) Vec<VersionEntry>);

impl Record for HistoryRow {
    const TABLE: u8 = 0x15;
    const KIND: u8 = 0x15;
    const VERSION: u8 = 1;
    type Key = (OrgId, String);
}

/// Totals of an organisation's dashboards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct DashboardUsageRow {
    /// Number of dashboards.
    pub(in crate::identity) dashboards: u32,
    /// Compressed size of all stored versions, bytes; also those whose removal is pending.
    pub(in crate::identity) stored_bytes: u64,
    /// The uids that were deleted last, each with its last version. A new dashboard with the uid of
    /// a deleted one continues its version numbers.
    pub(in crate::identity) deleted: Vec<(String, u32)>,
}

impl Record for DashboardUsageRow {
    const TABLE: u8 = 0x16;
    const KIND: u8 = 0x16;
    const VERSION: u8 = 1;
    type Key = OrgId;
}

/// The documents of a deleted dashboard that are still stored: versions and compressed bytes; by
/// organisation, uid and last version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct DashboardRemovalRow(pub(in crate::identity) Vec<(u32, u32)>);

impl Record for DashboardRemovalRow {
    const TABLE: u8 = 0x17;
    const KIND: u8 = 0x17;
    const VERSION: u8 = 1;
    type Key = (OrgId, String, u32);
}

/// The stars and the last views of a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct DashboardMarksRow {
    /// Uids of starred dashboards.
    pub(in crate::identity) starred: Vec<String>,
    /// Uids and times of the dashboards viewed last, newest first.
    pub(in crate::identity) viewed: Vec<(String, Timestamp)>,
}

impl Record for DashboardMarksRow {
    const TABLE: u8 = 0x1b;
    const KIND: u8 = 0x1b;
    const VERSION: u8 = 1;
    type Key = (OrgId, UserId);
}
