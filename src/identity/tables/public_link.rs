//! Public links of dashboards, and their last use.

use serde::{Deserialize, Serialize};

use crate::kv::{Record, SideRecord};
use crate::model::{OrgId, Timestamp};

use crate::identity::tables::id::{KeyId, SecretHash, UserId};
use crate::identity::tables::key::DashboardPolicy;

/// A stored public link; by organisation, uid of the dashboard, and id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct PublicLinkRow {
    pub(in crate::identity) name: String,
    pub(in crate::identity) secret: SecretHash,
    /// The sealed secret; `None` after the loss of the master key.
    pub(in crate::identity) sealed: Option<Vec<u8>>,
    pub(in crate::identity) created_by: Option<UserId>,
    pub(in crate::identity) created_at: Timestamp,
    pub(in crate::identity) expires_at: Option<Timestamp>,
    pub(in crate::identity) disabled: bool,
    /// The version of the dashboard when the link was created; 0 for a provisioned dashboard. The
    /// deletion of a dashboard removes the links up to its last version. A later dashboard with the
    /// same uid has higher versions.
    pub(in crate::identity) dashboard_version: u32,
    pub(in crate::identity) dashboard: DashboardPolicy,
    pub(in crate::identity) max_range_s: Option<u64>,
    pub(in crate::identity) max_lookback_s: Option<u64>,
    pub(in crate::identity) min_step_s: Option<u64>,
    pub(in crate::identity) origins: Vec<String>,
    pub(in crate::identity) rate_limit_rps: u32,
}

impl Record for PublicLinkRow {
    const TABLE: u8 = 0x1f;
    const KIND: u8 = 0x1f;
    const VERSION: u8 = 1;
    type Key = (OrgId, String, KeyId);
}

/// Time of a public link's last use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct PublicLinkUsedRow(pub(in crate::identity) Timestamp);

impl Record for PublicLinkUsedRow {
    const TABLE: u8 = 0x30;
    const KIND: u8 = 0x30;
    const VERSION: u8 = 1;
    type Key = (OrgId, String, KeyId);
}

impl SideRecord for PublicLinkUsedRow {
    type Main = PublicLinkRow;

    fn main_key(key: &(OrgId, String, KeyId)) -> (OrgId, String, KeyId) {
        key.clone()
    }
}
