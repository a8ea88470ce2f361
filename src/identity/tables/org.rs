//! Organisations, their members, and the data that a removal leaves to delete.

use serde::{Deserialize, Serialize};

use crate::kv::{Record, SideRecord, decode_body};
use crate::model::{OrgId, OrgSlug, Timestamp};

use crate::identity::tables::id::{OrgKey, UserId};
use crate::identity::tables::store::StoreError;

/// The role of a member. Each role includes the permissions of the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Read and query.
    Viewer,
    /// Like viewers; also import, and mint embed tokens.
    Editor,
    /// Like editors; also manage members, invitations, API keys and settings, and read the audit
    /// log.
    Admin,
    /// Like administrators; also delete the organisation and change owners.
    Owner,
}

impl Role {
    /// Returns the name used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Editor => "editor",
            Role::Admin => "admin",
            Role::Owner => "owner",
        }
    }

    /// Parses the name used in the API.
    pub fn parse(text: &str) -> Option<Role> {
        [Role::Viewer, Role::Editor, Role::Admin, Role::Owner].into_iter().find(|role| role.as_str() == text)
    }

    /// Returns whether this role includes `needed`.
    pub fn allows(self, needed: Role) -> bool {
        self >= needed
    }
}

/// An organisation.
#[derive(Clone, Debug, PartialEq)]
pub struct Org {
    /// The number in the store; never reused.
    pub id: OrgId,
    /// The public id.
    pub key: OrgKey,
    /// The name in URLs; it never changes.
    pub slug: OrgSlug,
    /// Display name; may be empty.
    pub name: String,
    /// Time of creation.
    pub created_at: Timestamp,
    /// The own limits.
    pub settings: OrgSettings,
}

/// A setting that may differ from the server's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Limit {
    /// `null` in the API: the server's default.
    #[default]
    Default,
    /// `"none"` in the API: no limit.
    Unlimited,
    /// A number in the unit of the setting.
    At(u64),
}

/// An organisation's own limits (docs/specification.md C3). By default all values are the server's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OrgSettings {
    /// Retention of samples, days.
    pub retention_days: Limit,
    /// Maximum size on disk, bytes; beyond it the oldest samples are removed.
    pub retention_bytes: Limit,
    /// Maximum number of live series.
    pub max_series: Limit,
    /// Maximum number of new series a second.
    pub max_new_series_per_s: Limit,
    /// Maximum number of labels of one series.
    pub max_labels: Limit,
    /// Maximum length of a label value, bytes.
    pub max_label_value_bytes: Limit,
    /// Size on disk in bytes beyond which writes are refused.
    pub max_disk_bytes: Limit,
    /// Maximum memory of the head, bytes.
    pub max_memory_bytes: Limit,
    /// Maximum number of samples that one query may read.
    pub max_samples_per_query: Limit,
    /// Maximum duration of a query, seconds.
    pub query_timeout_s: Limit,
    /// Maximum age of a late sample, seconds.
    pub ooo_window_s: Limit,
    /// Whether public links of dashboards may be created and used.
    pub public_links: bool,
}

/// Version 1 of [`OrgSettings`], without public links.
#[derive(Serialize, Deserialize)]
struct OrgSettingsV1 {
    retention_days: Limit,
    retention_bytes: Limit,
    max_series: Limit,
    max_new_series_per_s: Limit,
    max_labels: Limit,
    max_label_value_bytes: Limit,
    max_disk_bytes: Limit,
    max_memory_bytes: Limit,
    max_samples_per_query: Limit,
    query_timeout_s: Limit,
    ooo_window_s: Limit,
}

impl From<OrgSettingsV1> for OrgSettings {
    fn from(old: OrgSettingsV1) -> OrgSettings {
        OrgSettings {
            retention_days: old.retention_days,
            retention_bytes: old.retention_bytes,
            max_series: old.max_series,
            max_new_series_per_s: old.max_new_series_per_s,
            max_labels: old.max_labels,
            max_label_value_bytes: old.max_label_value_bytes,
            max_disk_bytes: old.max_disk_bytes,
            max_memory_bytes: old.max_memory_bytes,
            max_samples_per_query: old.max_samples_per_query,
            query_timeout_s: old.query_timeout_s,
            ooo_window_s: old.ooo_window_s,
            public_links: false,
        }
    }
}

/// A user's membership in an organisation; it proves that the user may know that the organisation
/// exists.
#[derive(Clone, Debug, PartialEq)]
pub struct Membership {
    /// The organisation.
    pub org: Org,
    /// The user's role.
    pub role: Role,
    /// Time of joining.
    pub joined_at: Timestamp,
}

/// A stored organisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct OrgRow {
    pub(in crate::identity) key: OrgKey,
    pub(in crate::identity) slug: String,
    pub(in crate::identity) name: String,
    pub(in crate::identity) created_at: Timestamp,
    pub(in crate::identity) settings: OrgSettings,
}

/// Version 1 of [`OrgRow`].
#[derive(Serialize, Deserialize)]
struct OrgRowV1 {
    key: OrgKey,
    slug: String,
    name: String,
    created_at: Timestamp,
    settings: OrgSettingsV1,
}

impl Record for OrgRow {
    const TABLE: u8 = 0x09;
    const KIND: u8 = 0x09;
    const VERSION: u8 = 2;
    type Key = OrgId;

    fn from_older(version: u8, body: &[u8]) -> Result<OrgRow, String> {
        if version != 1 {
            return Err(format!("version {version} of an organisation"));
        }
        let OrgRowV1 { key, slug, name, created_at, settings } = decode_body(body)?;
        Ok(OrgRow { key, slug, name, created_at, settings: settings.into() })
    }
}

impl OrgRow {
    pub(in crate::identity) fn view(self, id: OrgId) -> Result<Org, StoreError> {
        let slug = OrgSlug::parse(&self.slug)
            .map_err(|_| StoreError::Inconsistent("an organisation's slug is none"))?;
        Ok(Org {
            id,
            key: self.key,
            slug,
            name: self.name,
            created_at: self.created_at,
            settings: self.settings,
        })
    }
}

/// Maps a slug to its present or former organisation. Slugs are never reused, or old tokens would
/// open another organisation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct SlugRow(pub(in crate::identity) OrgId);

impl Record for SlugRow {
    const TABLE: u8 = 0x0a;
    const KIND: u8 = 0x0a;
    const VERSION: u8 = 1;
    type Key = String;
}

/// The role of a user in an organisation; by user.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct MembershipRow {
    pub(in crate::identity) role: Role,
    pub(in crate::identity) joined_at: Timestamp,
}

impl Record for MembershipRow {
    const TABLE: u8 = 0x0b;
    const KIND: u8 = 0x0b;
    const VERSION: u8 = 1;
    type Key = (UserId, OrgId);
}

/// The membership of a user in an organisation; by organisation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct MemberRow;

impl Record for MemberRow {
    const TABLE: u8 = 0x0c;
    const KIND: u8 = 0x0c;
    const VERSION: u8 = 1;
    type Key = (OrgId, UserId);
}

/// The number of the next organisation. It only grows. Number 0 is the instance itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct NextOrgRow(pub(in crate::identity) u32);

impl Record for NextOrgRow {
    const TABLE: u8 = 0x0d;
    const KIND: u8 = 0x0d;
    const VERSION: u8 = 1;
    type Key = ();
}

/// The pending removal of a deleted organisation's data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct RemovalRow {
    pub(in crate::identity) key: OrgKey,
    pub(in crate::identity) slug: String,
    pub(in crate::identity) deleted_at: Timestamp,
    /// The account that deleted it; `None` on the command line.
    pub(in crate::identity) deleted_by: Option<UserId>,
}

impl Record for RemovalRow {
    const TABLE: u8 = 0x1a;
    const KIND: u8 = 0x1a;
    const VERSION: u8 = 1;
    type Key = OrgId;
}

/// The recorded usage of one day.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct DailyUsageRow {
    /// Days since 1970 (UTC).
    pub(in crate::identity) day: i64,
    pub(in crate::identity) samples: u64,
}

impl Record for DailyUsageRow {
    const TABLE: u8 = 0x12;
    const KIND: u8 = 0x12;
    const VERSION: u8 = 1;
    type Key = OrgId;
}

impl SideRecord for DailyUsageRow {
    type Main = OrgRow;

    fn main_key(org: &OrgId) -> OrgId {
        *org
    }
}
