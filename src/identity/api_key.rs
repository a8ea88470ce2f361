//! API keys: how machines write and read, and what embed tokens are signed with (API.md C4).

use std::sync::atomic::{AtomicI64, Ordering};

use crate::model::{OrgId, OrgSlug, Timestamp};

use super::{KeyId, Secret, StoreError, UserId};

/// What a key opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct KeyScopes {
    /// Writing samples (C7).
    pub ingest: bool,
    /// Reading on the Prometheus mount (C6).
    pub read: bool,
    /// Signing and minting embed tokens.
    pub embed: bool,
}

/// How a key's embed tokens are signed; pinned per key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TokenAlgorithm {
    /// HMAC with SHA-256; the key is the secret's own text.
    #[default]
    Hs256,
    /// Ed25519, uploaded public key.
    EdDsa,
    /// ECDSA on P-256, uploaded public key.
    Es256,
    /// RSA PKCS#1 v1.5 with SHA-256, uploaded public key of at least 2,048 bits.
    Rs256,
}

impl TokenAlgorithm {
    /// As the API and the JWT header write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            TokenAlgorithm::Hs256 => "HS256",
            TokenAlgorithm::EdDsa => "EdDSA",
            TokenAlgorithm::Es256 => "ES256",
            TokenAlgorithm::Rs256 => "RS256",
        }
    }

    /// Reads what the API writes.
    pub fn parse(text: &str) -> Option<TokenAlgorithm> {
        use TokenAlgorithm::{EdDsa, Es256, Hs256, Rs256};
        [Hs256, EdDsa, Es256, Rs256].into_iter().find(|algorithm| algorithm.as_str() == text)
    }
}

/// How a key's tokens may be used.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EmbedSettings {
    /// Pinned when the key is made.
    pub alg: TokenAlgorithm,
    /// SPKI PEM; present exactly when `alg` is not HS256.
    pub public_key: Option<String>,
    /// Requests a second over all tokens of the key, 1 to 10,000; also rules `read`. `[spec]` default 100.
    pub rate_limit_rps: u32,
    /// Longest life of a token, seconds, 60 to 86,400.
    pub max_token_ttl_s: u32,
    /// `*`, or exact origins.
    pub origins: Vec<String>,
    /// What no token of this key may exceed.
    pub policy: EmbedPolicy,
}

impl Default for EmbedSettings {
    fn default() -> EmbedSettings {
        EmbedSettings {
            alg: TokenAlgorithm::Hs256,
            public_key: None,
            rate_limit_rps: 100,
            max_token_ttl_s: 3_600,
            origins: vec!["*".into()],
            policy: EmbedPolicy::default(),
        }
    }
}

/// Restrictions, of a key (`embed.policy`) or of one token (`ms`). `None` and empty restrict nothing.
///
/// Reading it from JSON refuses unknown fields: a typo here would silently grant more.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EmbedPolicy {
    /// Of `metrics labels range instant expr`.
    pub endpoints: Option<Vec<super::Endpoint>>,
    /// Globs, forced on the metric name.
    pub metrics: Option<Vec<String>>,
    /// `label op "value"`, ANDed onto every selection; at most 8.
    pub matchers: Vec<String>,
    /// The only expressions that may be evaluated, compared after parse and print.
    pub exprs: Option<Vec<String>>,
    /// Longest range of a query, seconds.
    pub max_range_s: Option<u64>,
    /// Oldest sample, seconds before now.
    pub max_lookback_s: Option<u64>,
    /// Smallest step, seconds.
    pub min_step_s: Option<u64>,
    /// `*`, or exact origins; only in tokens.
    pub origins: Option<Vec<String>>,
}

/// How a key may write.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct IngestSettings {
    /// Requests a second, 1 to 10,000.
    pub rate_limit_rps: u32,
    /// Samples a second, 1 to 100,000,000.
    pub samples_per_s: u32,
    /// Forced onto every written series, replacing the sender's; name and value.
    pub labels: Vec<(String, String)>,
}

impl Default for IngestSettings {
    fn default() -> IngestSettings {
        IngestSettings { rate_limit_rps: 100, samples_per_s: 200_000, labels: Vec::new() }
    }
}

/// A key as its administrators see it, and as requests use it. Never holds the secret.
#[derive(Debug)]
pub struct ApiKey {
    /// Its name in the API and the `kid` of its tokens.
    pub id: KeyId,
    /// Whose series.
    pub org: OrgId,
    /// That organisation's slug: compared with the path before any lookup (`org_mismatch`).
    pub slug: OrgSlug,
    /// What people call it.
    pub name: String,
    /// What it opens.
    pub scopes: KeyScopes,
    /// `msk_…Kx3f`.
    pub hint: String,
    /// Who made it; `None` for one made at the command line.
    pub created_by: Option<UserId>,
    /// When.
    pub created_at: Timestamp,
    /// From then on it is refused.
    pub expires_at: Option<Timestamp>,
    /// Refused until enabled again.
    pub disabled: bool,
    /// How its tokens may be used.
    pub embed: EmbedSettings,
    /// How it may write.
    pub ingest: IngestSettings,
    /// Tokens made before this are refused.
    pub tokens_valid_after: Option<Timestamp>,
    pub(super) last_used_ms: AtomicI64,
}

impl ApiKey {
    /// When a request last used it, to the minute; `None` if never.
    pub fn last_used(&self) -> Option<Timestamp> {
        match self.last_used_ms.load(Ordering::Acquire) {
            i64::MIN => None,
            ms => Some(Timestamp::from_ms(ms)),
        }
    }
}

/// What a new key is to be.
#[derive(Clone, Debug)]
pub struct NewApiKey {
    /// 1 to 200 bytes.
    pub name: String,
    /// At least one.
    pub scopes: KeyScopes,
    /// In the future.
    pub expires_at: Option<Timestamp>,
    /// How its tokens may be used.
    pub embed: EmbedSettings,
    /// How it may write.
    pub ingest: IngestSettings,
}

/// What to change of a key; `None` leaves it. `alg` never changes.
#[derive(Clone, Debug, Default)]
pub struct ApiKeyChange {
    /// 1 to 200 bytes.
    pub name: Option<String>,
    /// At least one.
    pub scopes: Option<KeyScopes>,
    /// `Some(None)` removes the expiry.
    pub expires_at: Option<Option<Timestamp>>,
    /// Refuse it, or accept it again.
    pub disabled: Option<bool>,
    /// All of the embed settings; `alg` must be the key's.
    pub embed: Option<EmbedSettings>,
    /// All of the ingest settings.
    pub ingest: Option<IngestSettings>,
}

/// A key and, this once, its secret.
#[derive(Debug)]
pub struct CreatedKey {
    /// The key.
    pub key: std::sync::Arc<ApiKey>,
    /// `msk_...`; shown now and never again.
    pub secret: Secret,
}

/// One field that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// As in the API: `embed.max_token_ttl_s`.
    pub field: &'static str,
    /// A sentence.
    pub message: String,
}

/// Why a key was not made or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// `validation_failed`.
    #[error("{} fields do not fit", .0.len())]
    Validation(Vec<FieldError>),
    /// No such key in this organisation: `not_found`.
    #[error("no such API key")]
    NotFound,
    /// 10,000 keys in this organisation: `validation_failed`.
    #[error("an organisation has at most {0} API keys")]
    TooMany(usize),
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}
