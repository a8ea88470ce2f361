//! Public links of dashboards, and their last use.

use serde::{Deserialize, Serialize};

use crate::kv::{Record, SideRecord, decode_body};
use crate::model::{OrgId, Timestamp};

use crate::identity::tables::id::{KeyId, SecretHash, UserId};
use crate::identity::tables::key::DashboardPolicy;

/// Evaluation time in a trailing minute of a link whose creator chooses none, in seconds: one core
/// at full load.
pub const LINK_QUERY_SECONDS_DEFAULT: u32 = 60;

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
    /// Evaluation time in a trailing minute, seconds; since version 2.
    pub(in crate::identity) query_seconds_per_minute: u32,
}

/// Version 1 of [`PublicLinkRow`], without a budget.
#[derive(Deserialize)]
struct PublicLinkRowV1 {
    name: String,
    secret: SecretHash,
    sealed: Option<Vec<u8>>,
    created_by: Option<UserId>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    disabled: bool,
    dashboard_version: u32,
    dashboard: DashboardPolicy,
    max_range_s: Option<u64>,
    max_lookback_s: Option<u64>,
    min_step_s: Option<u64>,
    origins: Vec<String>,
    rate_limit_rps: u32,
}

impl Record for PublicLinkRow {
    const TABLE: u8 = 0x1f;
    const KIND: u8 = 0x1f;
    const VERSION: u8 = 2;
    type Key = (OrgId, String, KeyId);

    fn from_older(version: u8, body: &[u8]) -> Result<PublicLinkRow, String> {
        if version != 1 {
            return Err(format!("version {version} of a public link"));
        }
        let old: PublicLinkRowV1 = decode_body(body)?;
        Ok(PublicLinkRow {
            name: old.name,
            secret: old.secret,
            sealed: old.sealed,
            created_by: old.created_by,
            created_at: old.created_at,
            expires_at: old.expires_at,
            disabled: old.disabled,
            dashboard_version: old.dashboard_version,
            dashboard: old.dashboard,
            max_range_s: old.max_range_s,
            max_lookback_s: old.max_lookback_s,
            min_step_s: old.min_step_s,
            origins: old.origins,
            rate_limit_rps: old.rate_limit_rps,
            query_seconds_per_minute: LINK_QUERY_SECONDS_DEFAULT,
        })
    }
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
