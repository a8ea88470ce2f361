//! Embed tokens: minted here or offline with a key's secret, verified in the order of API.md D7.

use crate::model::{OrgId, Scope, Timestamp};

use super::{EmbedPolicy, KeyId, Secret, StoreError};

/// What a token may be asked for; the credential decides, the paths are the cabinet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Endpoint {
    /// The list of metrics, and series.
    Metrics,
    /// Labels and their values.
    Labels,
    /// Structured range queries.
    Range,
    /// Structured instant queries.
    Instant,
    /// Free expressions.
    Expr,
}

/// A token and where it is used.
#[derive(Clone, Copy, Debug)]
pub struct EmbedRequest<'a> {
    /// The bearer token.
    pub token: &'a str,
    /// The slug in the path, as given.
    pub slug: &'a str,
    /// `Origin`, if sent.
    pub origin: Option<&'a str>,
}

/// What a verified token may do: token AND key policy.
#[derive(Clone, Debug)]
pub struct EmbedGrant {
    /// The key behind it; its rate limit is shared by all of its tokens.
    pub key: KeyId,
    /// Requests a second of that key.
    pub rate_limit_rps: u32,
    /// Whose series.
    pub org: OrgId,
    /// Which of them.
    pub scope: Scope,
    /// Where; `None` is everywhere.
    pub endpoints: Option<Vec<Endpoint>>,
    /// Allow-lists for expressions; an expression must be in each. Compare after parse and print.
    pub exprs: Vec<Vec<String>>,
    /// Longest range of a query, seconds.
    pub max_range_s: Option<u64>,
    /// Oldest sample, seconds before now; `scope.min_time` is the same as a time.
    pub max_lookback_s: Option<u64>,
    /// Smallest step, seconds.
    pub min_step_s: Option<u64>,
    /// Allow-lists of origins; the origin must be in each (`*` admits all). For the CORS answer.
    pub origins: Vec<Vec<String>>,
    /// The viewer, for the audit log.
    pub sub: Option<String>,
    /// The token's end.
    pub expires_at: Timestamp,
}

impl EmbedGrant {
    /// Whether this endpoint may be asked.
    pub fn allows(&self, endpoint: Endpoint) -> bool {
        self.endpoints.as_ref().is_none_or(|list| list.contains(&endpoint))
    }

    /// Whether `expr`, in its printed form, may be evaluated; the lists are expected in printed form, too.
    pub fn restricts_exprs(&self) -> bool {
        !self.exprs.is_empty()
    }
}

/// Why a token is refused. All but three are `token_invalid` to the client; `reason` is for introspection and the audit log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// 401 `token_invalid`.
    #[error("the embed token is not valid ({reason})")]
    Invalid {
        /// A stable word: `size`, `form`, `header`, `kid`, `key`, `alg`, `signature`, `claims`, `aud`, `iat`, `ttl`, `revoked`, `org`, `iss`, `policy`.
        reason: &'static str,
    },
    /// 401 `token_expired`.
    #[error("the embed token has expired")]
    Expired,
    /// 401 `token_not_yet_valid`.
    #[error("the embed token is not valid yet")]
    NotYetValid,
    /// 403 `org_mismatch`.
    #[error("the embed token is for another organisation")]
    OrgMismatch,
    /// 403 `origin_not_allowed`.
    #[error("the embed token may not be used on this origin")]
    OriginNotAllowed,
}

/// A token to be minted.
#[derive(Clone, Debug)]
pub struct MintRequest {
    /// Which key signs.
    pub key: KeyId,
    /// Its life, seconds; 1 to the key's `max_token_ttl_s`.
    pub ttl_s: u32,
    /// The viewer; at most 255 bytes.
    pub sub: Option<String>,
    /// Restrictions; `None` leaves only the key's own policy.
    pub ms: Option<EmbedPolicy>,
}

/// A fresh token.
#[derive(Debug)]
pub struct MintedToken {
    /// The JWT.
    pub token: Secret,
    /// Its end.
    pub expires_at: Timestamp,
    /// Who signed.
    pub kid: KeyId,
}

/// Why no token was minted.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// No such key in this organisation, disabled, expired, or without the scope `embed`: `not_found`.
    #[error("no such API key, or it may not sign embed tokens")]
    UnknownKey,
    /// We hold no private key: `key_is_asymmetric`.
    #[error("this key signs with a private key that only you hold")]
    Asymmetric,
    /// `validation_failed`.
    #[error("{} fields do not fit", .0.len())]
    Validation(Vec<super::FieldError>),
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}
