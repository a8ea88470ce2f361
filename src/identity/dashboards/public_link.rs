//! Public links of dashboards (docs/specification.md C9): everyone who has the address can view one
//! dashboard, without an account.
//!
//! A public link is a kind of API key with a secret, a policy, a rate and an expiry. It has a table
//! and a ring of its own, so that no lookup of a key ever finds a link: it cannot be listed, used,
//! rotated or minted with as a key. Its policy always names its dashboard, and the code that makes
//! the grant of an embed token makes the grant of a link from that policy alone.
//!
//! The secret is `mpl_` and otherwise as that of an API key. Requests find a link by the hash; the
//! secret itself is sealed with the master key, so that editors can see the address again.
//!
//! | file | subject |
//! |---|---|
//! | `changes` | creating, changing and deleting links |
//! | `ring` | all links in memory, and requests with a link |

mod changes;
mod ring;

use std::collections::BTreeMap;

use crate::model::{OrgSlug, Timestamp};

use crate::identity::keys::api_key::{self, ApiKey, FieldError};
use crate::identity::keys::embed_token::{self, EmbedGrant, KeyRestriction};
use crate::identity::tables::id::SecretHash;
use crate::identity::tables::key::{DashboardPolicy, LockedVariable};
use crate::identity::tables::name::NameError;
use crate::identity::tables::store::StoreError;

pub use crate::identity::tables::public_link::LINK_QUERY_SECONDS_DEFAULT;
pub use ring::LinkKey;
pub(in crate::identity) use ring::PublicLinks;

/// Maximum number of public links of one dashboard.
pub const DASHBOARD_LINKS_MAX: usize = 100;
/// Maximum number of public links of one organisation.
pub const ORG_LINKS_MAX: usize = 1_000;
/// Requests a second of a link whose creator chooses no rate.
pub const LINK_RATE_DEFAULT: u32 = 20;

/// A public link, as editors see it and as requests use it. It never holds the secret.
#[derive(Debug)]
pub struct PublicLink {
    /// The link as an API key without scopes. `embed` has its rate, its origins and its policy.
    pub key: ApiKey,
    /// Uid of the dashboard.
    pub dashboard: String,
    dashboard_version: u32,
    secret: SecretHash,
    sealed: Option<Vec<u8>>,
    /// `None` if the stored policy does not compile; then the link is refused.
    restriction: Option<KeyRestriction>,
}

impl PublicLink {
    /// Returns the slug of the organisation.
    pub fn slug(&self) -> &OrgSlug {
        &self.key.slug
    }

    /// Returns the access that the link grants. Compiles nothing.
    pub fn grant(&self, now: Timestamp) -> Result<EmbedGrant, PublicLinkRefusal> {
        let restriction = self.restriction.as_ref().ok_or(PublicLinkRefusal::Unknown)?;
        Ok(embed_token::grant_of_key(&self.key, restriction, now))
    }
}

/// The reasons to refuse a public link: 401 `public_link_invalid`. Only a request with the right
/// secret learns more than that the link is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublicLinkRefusal {
    /// No link has this secret.
    #[error("there is no such public link, or it was deleted")]
    Unknown,
    /// An editor has disabled it.
    #[error("this public link is disabled")]
    Disabled,
    /// The link's time has passed.
    #[error("this public link has expired")]
    Expired,
    /// The organisation does not allow public links.
    #[error("public links are turned off in this organisation")]
    Off,
    /// The link was changed while a response was streamed.
    #[error("this public link was changed; connect again")]
    Changed,
}

/// The settings of a new public link.
#[derive(Clone, Debug)]
pub struct NewPublicLink {
    /// Display name; at most 200 bytes, may be empty.
    pub name: String,
    /// The dashboard, its locked variables and its open ones.
    pub dashboard: DashboardPolicy,
    /// The same as [`EmbedPolicy::max_range_s`](crate::identity::EmbedPolicy::max_range_s).
    pub max_range_s: Option<u64>,
    /// The same as [`EmbedPolicy::max_lookback_s`](crate::identity::EmbedPolicy::max_lookback_s).
    pub max_lookback_s: Option<u64>,
    /// The same as [`EmbedPolicy::min_step_s`](crate::identity::EmbedPolicy::min_step_s).
    pub min_step_s: Option<u64>,
    /// `*`, or exact origins, whose pages may show the link in a frame and send requests with it.
    pub origins: Vec<String>,
    /// Requests a second, 1 to 10,000.
    pub rate_limit_rps: u32,
    /// Evaluation time that all viewers may use in a trailing minute, 1 to 3,600 seconds.
    pub query_seconds_per_minute: u32,
    /// Expiry, in the future.
    pub expires_at: Option<Timestamp>,
}

/// A change of a public link; `None` leaves the value that is stored when the change is committed,
/// so that of two concurrent changes neither takes back a restriction of the other.
#[derive(Clone, Debug, Default)]
pub struct PublicLinkChange {
    /// The same as [`NewPublicLink::name`].
    pub name: Option<String>,
    /// All locked variables.
    pub locked: Option<BTreeMap<String, LockedVariable>>,
    /// All open variables.
    pub open: Option<BTreeMap<String, Option<Vec<String>>>>,
    /// `Some(None)` removes the restriction.
    pub max_range_s: Option<Option<u64>>,
    /// `Some(None)` removes the restriction.
    pub max_lookback_s: Option<Option<u64>>,
    /// `Some(None)` removes the restriction.
    pub min_step_s: Option<Option<u64>>,
    /// The whole list.
    pub origins: Option<Vec<String>>,
    /// The same as [`NewPublicLink::rate_limit_rps`].
    pub rate_limit_rps: Option<u32>,
    /// The same as [`NewPublicLink::query_seconds_per_minute`].
    pub query_seconds_per_minute: Option<u32>,
    /// `Some(None)` removes the expiry.
    pub expires_at: Option<Option<Timestamp>>,
    /// `true` disables the link, `false` enables it.
    pub disabled: Option<bool>,
}

/// Errors of creating, changing and deleting public links.
#[derive(Debug, thiserror::Error)]
pub enum PublicLinkError {
    /// 403 `public_links_off`.
    #[error(
        "public links are turned off in this organisation: an administrator or owner turns them on with the setting public_links"
    )]
    Off,
    /// The organisation has no such dashboard or link: 404 `not_found`.
    #[error("{0}")]
    NotFound(&'static str),
    /// 422 `validation_failed`.
    #[error("{}", api_key::in_words(.0))]
    Validation(Vec<FieldError>),
    /// 409 `limit_reached`.
    #[error("{0}")]
    TooMany(String),
    /// 503 `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<NameError> for PublicLinkError {
    fn from(error: NameError) -> PublicLinkError {
        let named = FieldError { field: "name", code: error.code(), message: error.to_string() };
        PublicLinkError::Validation(vec![named])
    }
}
