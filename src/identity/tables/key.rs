//! API keys, their last use, and their previous secrets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::kv::{Record, SideRecord, decode_body};
use crate::model::{OrgId, Timestamp};

use crate::identity::tables::id::{KeyId, SecretHash, UserId};

/// The scopes of an API key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct KeyScopes {
    /// Writing samples (C7).
    pub ingest: bool,
    /// Reading on the Prometheus mount (C6).
    pub read: bool,
    /// Signing and minting embed tokens.
    pub embed: bool,
    /// Changing rules and silences (C13, C14). The scope exists since version 5 of [`KeyRow`].
    pub alerting: bool,
}

/// The scopes of a key up to version 4 of [`KeyRow`].
#[derive(Serialize, Deserialize)]
struct KeyScopesV4 {
    ingest: bool,
    read: bool,
    embed: bool,
}

impl From<KeyScopesV4> for KeyScopes {
    fn from(old: KeyScopesV4) -> KeyScopes {
        KeyScopes { ingest: old.ingest, read: old.read, embed: old.embed, alerting: false }
    }
}

/// The signature algorithm of a key's embed tokens; it never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TokenAlgorithm {
    /// HMAC with SHA-256; the HMAC key is the text of the secret.
    #[default]
    Hs256,
    /// Ed25519, with an uploaded public key.
    EdDsa,
    /// ECDSA on P-256, with an uploaded public key.
    Es256,
    /// RSA PKCS#1 v1.5 with SHA-256, with an uploaded public key of at least 2,048 bits.
    Rs256,
}

impl TokenAlgorithm {
    /// Returns the name used in the API and in the JWT header.
    pub const fn as_str(self) -> &'static str {
        match self {
            TokenAlgorithm::Hs256 => "HS256",
            TokenAlgorithm::EdDsa => "EdDSA",
            TokenAlgorithm::Es256 => "ES256",
            TokenAlgorithm::Rs256 => "RS256",
        }
    }

    /// Parses the name used in the API.
    pub fn parse(text: &str) -> Option<TokenAlgorithm> {
        use TokenAlgorithm::{EdDsa, Es256, Hs256, Rs256};
        [Hs256, EdDsa, Es256, Rs256].into_iter().find(|algorithm| algorithm.as_str() == text)
    }
}

/// Settings of a key's embed tokens.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EmbedSettings {
    /// Signature algorithm, fixed when the key is created.
    pub alg: TokenAlgorithm,
    /// Public key as SPKI PEM; in a new or changed key also a JWK. Present exactly if `alg` is not
    /// HS256.
    pub public_key: Option<String>,
    /// Requests a second over all tokens of the key, 1 to 10,000. The specification's default is
    /// 100.
    pub rate_limit_rps: u32,
    /// Maximum lifetime of a token in seconds, 60 to 86,400.
    pub max_token_ttl_s: u32,
    /// `*`, or exact origins.
    pub origins: Vec<String>,
    /// The limits of every token of this key.
    pub policy: EmbedPolicy,
    /// Evaluation time in seconds that all tokens of the key may use in a trailing minute, 1 to
    /// 3,600; `None` is no limit. The field exists since version 4 of [`KeyRow`].
    pub query_seconds_per_minute: Option<u32>,
    /// Exact origins whose pages may not use the tokens of the key, even if `origins` allows them;
    /// at most 64. The field exists since version 4 of [`KeyRow`].
    pub blocked_origins: Vec<String>,
}

/// The default of [`EmbedSettings::query_seconds_per_minute`]: one core at full load.
const QUERY_SECONDS_DEFAULT: Option<u32> = Some(60);

impl Default for EmbedSettings {
    fn default() -> EmbedSettings {
        EmbedSettings {
            alg: TokenAlgorithm::Hs256,
            public_key: None,
            rate_limit_rps: 100,
            max_token_ttl_s: 3_600,
            origins: vec!["*".into()],
            policy: EmbedPolicy::default(),
            query_seconds_per_minute: QUERY_SECONDS_DEFAULT,
            blocked_origins: Vec::new(),
        }
    }
}

/// Settings of reading with the key itself, without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReadSettings {
    /// Requests a second, 1 to 100,000. A dashboard or a rule group sends hundreds of queries at
    /// once.
    pub rate_limit_rps: u32,
}

impl Default for ReadSettings {
    fn default() -> ReadSettings {
        ReadSettings { rate_limit_rps: 1_000 }
    }
}

/// Restrictions of a key (`embed.policy`) or of one token (`ms`). `None` and empty lists restrict
/// nothing.
///
/// Deserialising it from JSON refuses unknown fields: a typo would silently grant more access.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EmbedPolicy {
    /// Allowed endpoints: `metrics`, `labels`, `range`, `instant`, `expr`, `dashboard`, `alerts`.
    pub endpoints: Option<Vec<Endpoint>>,
    /// Globs that the metric name of every selection must match.
    pub metrics: Option<Vec<String>>,
    /// Matchers `label op "value"`, ANDed onto every selection; at most 8.
    pub matchers: Vec<String>,
    /// The only expressions that may be evaluated; compared after parsing and printing.
    pub exprs: Option<Vec<String>>,
    /// Maximum range of a query, seconds.
    pub max_range_s: Option<u64>,
    /// Maximum age of a sample, in seconds before now.
    pub max_lookback_s: Option<u64>,
    /// Minimum step, seconds.
    pub min_step_s: Option<u64>,
    /// `*`, or exact origins; only in tokens.
    pub origins: Option<Vec<String>>,
    /// The only dashboard that may be shown. The field exists since version 3 of [`KeyRow`].
    pub dashboard: Option<DashboardPolicy>,
    /// The alerts and their fields that may be shown. Unlike the other fields it grants, and `None`
    /// grants nothing. The field exists since version 5 of [`KeyRow`].
    pub alerts: Option<AlertsPolicy>,
}

/// The parts of an alert that tokens may show beyond its labels, its state and its times. Rules are
/// evaluated with the whole organisation, so both may reveal series that a token cannot read.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AlertsPolicy {
    /// The names of the annotations; at most 16.
    pub annotations: Vec<String>,
    /// Whether the value of the rule's expression is shown.
    pub value: bool,
}

/// A dashboard that tokens may show, and the party that chooses the value of each variable. A
/// variable that is neither locked nor open has the value that is saved in the dashboard.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DashboardPolicy {
    /// Uid of the dashboard.
    pub uid: String,
    /// Variables whose values also restrict every selection of series; by name, at most 16.
    pub locked: BTreeMap<String, LockedVariable>,
    /// Variables that the viewer sets, with the allowed values; `None` allows every value. By name,
    /// at most 32.
    pub open: BTreeMap<String, Option<Vec<String>>>,
}

/// The values of a locked variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LockedVariable {
    /// The label whose values are restricted; `None` stands for the variable's name.
    pub label: Option<String>,
    /// The values, 1 to 64.
    pub values: Vec<String>,
}

/// Settings of writing with a key.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct IngestSettings {
    /// Requests a second, 1 to 10,000.
    pub rate_limit_rps: u32,
    /// Samples a second, 1 to 100,000,000.
    pub samples_per_s: u32,
    /// Labels (name, value) set on every written series; they replace the sender's.
    pub labels: Vec<(String, String)>,
}

impl Default for IngestSettings {
    fn default() -> IngestSettings {
        IngestSettings { rate_limit_rps: 100, samples_per_s: 2_000_000, labels: Vec::new() }
    }
}

/// A stored key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct KeyRow {
    pub(in crate::identity) name: String,
    pub(in crate::identity) scopes: KeyScopes,
    pub(in crate::identity) secret: SecretHash,
    /// The sealed secret, if it verifies HS256.
    pub(in crate::identity) sealed: Option<Vec<u8>>,
    pub(in crate::identity) hint: String,
    pub(in crate::identity) created_by: Option<UserId>,
    pub(in crate::identity) created_at: Timestamp,
    pub(in crate::identity) expires_at: Option<Timestamp>,
    pub(in crate::identity) disabled: bool,
    pub(in crate::identity) embed: EmbedSettings,
    pub(in crate::identity) ingest: IngestSettings,
    pub(in crate::identity) tokens_valid_after: Option<Timestamp>,
    /// The field exists since version 2.
    pub(in crate::identity) read: ReadSettings,
}

/// Version 2 of [`EmbedPolicy`], without dashboards.
#[derive(Serialize, Deserialize)]
struct EmbedPolicyV2 {
    endpoints: Option<Vec<Endpoint>>,
    metrics: Option<Vec<String>>,
    matchers: Vec<String>,
    exprs: Option<Vec<String>>,
    max_range_s: Option<u64>,
    max_lookback_s: Option<u64>,
    min_step_s: Option<u64>,
    origins: Option<Vec<String>>,
}

/// Versions 3 and 4 of [`EmbedPolicy`], without alerts.
#[derive(Serialize, Deserialize)]
struct EmbedPolicyV3 {
    second: EmbedPolicyV2,
    dashboard: Option<DashboardPolicy>,
}

/// Versions 2 and 3 of [`EmbedSettings`], without a budget and blocked origins.
#[derive(Serialize, Deserialize)]
struct EmbedSettingsV2<P> {
    alg: TokenAlgorithm,
    public_key: Option<String>,
    rate_limit_rps: u32,
    max_token_ttl_s: u32,
    origins: Vec<String>,
    policy: P,
}

/// Version 4 of [`EmbedSettings`].
#[derive(Serialize, Deserialize)]
struct EmbedSettingsV4 {
    third: EmbedSettingsV2<EmbedPolicyV3>,
    query_seconds_per_minute: Option<u32>,
    blocked_origins: Vec<String>,
}

impl From<EmbedPolicyV3> for EmbedPolicy {
    fn from(old: EmbedPolicyV3) -> EmbedPolicy {
        let EmbedPolicyV3 { second, dashboard } = old;
        EmbedPolicy {
            endpoints: second.endpoints,
            metrics: second.metrics,
            matchers: second.matchers,
            exprs: second.exprs,
            max_range_s: second.max_range_s,
            max_lookback_s: second.max_lookback_s,
            min_step_s: second.min_step_s,
            origins: second.origins,
            dashboard,
            alerts: None,
        }
    }
}

impl From<EmbedSettingsV4> for EmbedSettings {
    fn from(old: EmbedSettingsV4) -> EmbedSettings {
        let EmbedSettingsV4 { third, query_seconds_per_minute, blocked_origins } = old;
        EmbedSettings {
            alg: third.alg,
            public_key: third.public_key,
            rate_limit_rps: third.rate_limit_rps,
            max_token_ttl_s: third.max_token_ttl_s,
            origins: third.origins,
            policy: third.policy.into(),
            query_seconds_per_minute,
            blocked_origins,
        }
    }
}

impl From<EmbedSettingsV2<EmbedPolicyV3>> for EmbedSettingsV4 {
    fn from(third: EmbedSettingsV2<EmbedPolicyV3>) -> EmbedSettingsV4 {
        let query_seconds_per_minute = QUERY_SECONDS_DEFAULT;
        EmbedSettingsV4 { third, query_seconds_per_minute, blocked_origins: Vec::new() }
    }
}

impl From<EmbedSettingsV2<EmbedPolicyV2>> for EmbedSettingsV4 {
    fn from(old: EmbedSettingsV2<EmbedPolicyV2>) -> EmbedSettingsV4 {
        EmbedSettingsV2 {
            alg: old.alg,
            public_key: old.public_key,
            rate_limit_rps: old.rate_limit_rps,
            max_token_ttl_s: old.max_token_ttl_s,
            origins: old.origins,
            policy: EmbedPolicyV3 { second: old.policy, dashboard: None },
        }
        .into()
    }
}

/// Versions 2 to 4 of [`KeyRow`], which differ in their embed settings.
#[derive(Serialize, Deserialize)]
struct KeyRowV2<E> {
    first: KeyRowV1<E>,
    read: ReadSettings,
}

/// Version 1 of [`KeyRow`], with version 2 of the embed settings.
#[derive(Serialize, Deserialize)]
struct KeyRowV1<E> {
    name: String,
    scopes: KeyScopesV4,
    secret: SecretHash,
    sealed: Option<Vec<u8>>,
    hint: String,
    created_by: Option<UserId>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    disabled: bool,
    embed: E,
    ingest: IngestSettings,
    tokens_valid_after: Option<Timestamp>,
}

impl<E: Into<EmbedSettingsV4>> KeyRowV2<E> {
    fn upgraded(self) -> KeyRow {
        let KeyRowV2 { first: old, read } = self;
        let embed: EmbedSettingsV4 = old.embed.into();
        KeyRow {
            name: old.name,
            scopes: old.scopes.into(),
            secret: old.secret,
            sealed: old.sealed,
            hint: old.hint,
            created_by: old.created_by,
            created_at: old.created_at,
            expires_at: old.expires_at,
            disabled: old.disabled,
            embed: embed.into(),
            ingest: old.ingest,
            tokens_valid_after: old.tokens_valid_after,
            read,
        }
    }
}

impl Record for KeyRow {
    const TABLE: u8 = 0x0e;
    const KIND: u8 = 0x0e;
    const VERSION: u8 = 5;
    type Key = (OrgId, KeyId);

    fn from_older(version: u8, body: &[u8]) -> Result<KeyRow, String> {
        type Second = EmbedSettingsV2<EmbedPolicyV2>;
        match version {
            1 => {
                let first: KeyRowV1<Second> = decode_body(body)?;
                // In version 1 the rate limit of tokens also limited reading. A rate that an
                // administrator chose keeps limiting it.
                let read = match first.embed.rate_limit_rps {
                    rate if rate == EmbedSettings::default().rate_limit_rps => ReadSettings::default(),
                    rate_limit_rps => ReadSettings { rate_limit_rps },
                };
                Ok(KeyRowV2 { first, read }.upgraded())
            }
            2 => decode_body::<KeyRowV2<Second>>(body).map(KeyRowV2::upgraded),
            3 => decode_body::<KeyRowV2<EmbedSettingsV2<EmbedPolicyV3>>>(body).map(KeyRowV2::upgraded),
            4 => decode_body::<KeyRowV2<EmbedSettingsV4>>(body).map(KeyRowV2::upgraded),
            _ => Err(format!("version {version} of an API key")),
        }
    }
}

/// Time of a key's last use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct UsedRow(pub(in crate::identity) Timestamp);

impl Record for UsedRow {
    const TABLE: u8 = 0x0f;
    const KIND: u8 = 0x0f;
    const VERSION: u8 = 1;
    type Key = (OrgId, KeyId);
}

impl SideRecord for UsedRow {
    type Main = KeyRow;

    fn main_key(key: &(OrgId, KeyId)) -> (OrgId, KeyId) {
        *key
    }
}

/// A stored previous secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct RotatedRow {
    pub(in crate::identity) secret: SecretHash,
    /// The sealed secret, if it verifies HS256.
    pub(in crate::identity) sealed: Option<Vec<u8>>,
    /// The secret is refused from this time on.
    pub(in crate::identity) until: Timestamp,
}

impl Record for RotatedRow {
    const TABLE: u8 = 0x11;
    const KIND: u8 = 0x11;
    const VERSION: u8 = 1;
    type Key = (OrgId, KeyId);
}

/// The first valid date of the tokens that name a dashboard; by organisation and uid. Tokens issued
/// before it are refused.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct DashboardTokensRow(pub(in crate::identity) Timestamp);

impl Record for DashboardTokensRow {
    const TABLE: u8 = 0x31;
    const KIND: u8 = 0x31;
    const VERSION: u8 = 1;
    type Key = (OrgId, String);
}

/// A group of endpoints that a policy may allow. The credential decides; the paths are those of the
/// cabinet.
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
    /// The dashboard of the policy: its view, its data and the options of its variables.
    Dashboard,
    /// The pending and firing alerts.
    Alerts,
}
