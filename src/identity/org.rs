//! Organisations, who belongs to them, and what they may do there (API.md C3).

use serde::{Deserialize, Serialize};

use crate::model::{OrgId, OrgSlug, SlugError, Timestamp};

use super::{OrgKey, StoreError};

/// What a member may do; each role may do what the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Read and query.
    Viewer,
    /// Also import, and mint embed tokens.
    Editor,
    /// Also members, invites, API keys, audit, settings.
    Admin,
    /// Also delete the organisation and change owners.
    Owner,
}

impl Role {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Editor => "editor",
            Role::Admin => "admin",
            Role::Owner => "owner",
        }
    }

    /// Reads what the API writes.
    pub fn parse(text: &str) -> Option<Role> {
        [Role::Viewer, Role::Editor, Role::Admin, Role::Owner].into_iter().find(|role| role.as_str() == text)
    }

    /// Whether this role includes `needed`.
    pub fn allows(self, needed: Role) -> bool {
        self >= needed
    }
}

/// An organisation.
#[derive(Clone, Debug, PartialEq)]
pub struct Org {
    /// Its number in the store; never used again.
    pub id: OrgId,
    /// Its name in the API beside the slug.
    pub key: OrgKey,
    /// Its name in URLs; never changes.
    pub slug: OrgSlug,
    /// What people call it; may be empty.
    pub name: String,
    /// When it came to be.
    pub created_at: Timestamp,
    /// Its own limits.
    pub settings: OrgSettings,
}

/// A setting that may differ from the server's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Limit {
    /// `null` in the API: as the server says.
    #[default]
    Default,
    /// `"none"` in the API: no limit.
    Unlimited,
    /// This many of the setting's unit.
    At(u64),
}

/// An organisation's own limits (API.md C3); the default leaves all to the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OrgSettings {
    /// Days that samples are kept.
    pub retention_days: Limit,
    /// Bytes on disk beyond which the oldest samples go.
    pub retention_bytes: Limit,
    /// Live series.
    pub max_series: Limit,
    /// New series a second.
    pub max_new_series_per_s: Limit,
    /// Labels of one series.
    pub max_labels: Limit,
    /// Bytes of one label value.
    pub max_label_value_bytes: Limit,
    /// Bytes on disk beyond which writes are refused.
    pub max_disk_bytes: Limit,
    /// Bytes of head memory.
    pub max_memory_bytes: Limit,
    /// Samples one query may read.
    pub max_samples_per_query: Limit,
    /// Seconds one query may take.
    pub query_timeout_s: Limit,
    /// Seconds that a late sample may be late.
    pub ooo_window_s: Limit,
}

/// A user's place in an organisation: the proof that they may know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Membership {
    /// Which.
    pub org: Org,
    /// What they may do.
    pub role: Role,
    /// Since when.
    pub joined_at: Timestamp,
}

/// What a new organisation is to be.
#[derive(Clone, Debug)]
pub struct NewOrg {
    /// Its name in URLs, checked.
    pub slug: OrgSlug,
    /// What people call it; may be empty; at most 200 bytes.
    pub name: String,
}

/// Why an organisation was not made or changed.
#[derive(Debug, thiserror::Error)]
pub enum OrgError {
    /// Only the instance admin may (`org_create = admin`): `forbidden`.
    #[error("only the instance administrator creates organisations here")]
    Forbidden,
    /// Another organisation has this slug, or had it: `slug_taken`.
    #[error("the slug {0} is taken")]
    SlugTaken(OrgSlug),
    /// Not a slug: `validation_failed`.
    #[error(transparent)]
    Slug(#[from] SlugError),
    /// The name is longer than 200 bytes: `validation_failed`.
    #[error("a name has at most 200 bytes, this one {0}")]
    NameTooLong(usize),
    /// All 4,294,967,295 numbers were given out.
    #[error("no organisation number is left")]
    Exhausted,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}
