//! API keys: the credentials with which programs write and read, and which sign embed tokens
//! (docs/specification.md C4).
//!
//! A secret is `msk_<16 characters of the key's id>_<40 random base62 characters><checksum>`, where
//! the checksum is the CRC-32 of all characters before it, as 6 base62 characters. It has 238
//! random bits. The id lets a person see which key leaked; the checksum lets secret scanners reject
//! look-alikes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::entropy::Entropy;
use crate::model::{OrgId, OrgSlug, Timestamp, is_label_name};

use crate::identity::keys::dashboard_policy::matcher_texts;
use crate::identity::keys::policy_matcher::{self, PatternLimits};
use crate::identity::keys::public_key;
use crate::identity::tables::id::{KeyId, Secret, SecretHash, UserId};
use crate::identity::tables::key::{
    AlertsPolicy, DashboardPolicy, EmbedPolicy, EmbedSettings, IngestSettings, KeyScopes, ReadSettings,
    TokenAlgorithm,
};
use crate::identity::tables::name::NameError;
use crate::identity::tables::store::StoreError;

/// An API key, as its administrators see it and as requests use it. It never holds the secret.
#[derive(Debug)]
pub struct ApiKey {
    /// The id in the API, and the `kid` of its tokens.
    pub id: KeyId,
    /// The organisation that it belongs to.
    pub org: OrgId,
    /// The slug of that organisation; compared with the path before any lookup (`org_mismatch`).
    pub slug: OrgSlug,
    /// Display name.
    pub name: String,
    /// The scopes.
    pub scopes: KeyScopes,
    /// A hint to the secret, such as `msk_…Kx3f`.
    pub hint: String,
    /// The creator; `None` if it was created on the command line.
    pub created_by: Option<UserId>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// The key is refused from this time on.
    pub expires_at: Option<Timestamp>,
    /// The key is refused until it is enabled again.
    pub disabled: bool,
    /// Settings of its embed tokens.
    pub embed: EmbedSettings,
    /// Settings of writing.
    pub ingest: IngestSettings,
    /// Settings of reading.
    pub read: ReadSettings,
    /// Tokens issued before this time are refused.
    pub tokens_valid_after: Option<Timestamp>,
    /// The sealed secret is stored, so the key can sign and verify HS256. A key that got the scope
    /// `embed` later has none before its next rotation.
    pub secret_kept: bool,
    pub(in crate::identity) usage: Arc<KeyUsage>,
}

impl ApiKey {
    /// Returns a key of an organisation that is not stored.
    #[cfg(test)]
    pub(crate) fn for_tests(id: KeyId, org: OrgId, embed: EmbedSettings) -> ApiKey {
        ApiKey {
            id,
            org,
            slug: OrgSlug::parse("acme").expect("a slug"),
            name: "website".into(),
            scopes: KeyScopes { embed: true, ..KeyScopes::default() },
            hint: String::new(),
            created_by: None,
            created_at: Timestamp::from_s(0),
            expires_at: None,
            disabled: false,
            embed,
            ingest: IngestSettings::default(),
            read: ReadSettings::default(),
            tokens_valid_after: None,
            secret_kept: true,
            usage: Arc::new(KeyUsage::stored(None)),
        }
    }

    /// Returns the time of the last request that used the key, to the minute.
    pub fn last_used(&self) -> Option<Timestamp> {
        match self.usage.last_ms.load(Ordering::Acquire) {
            i64::MIN => None,
            ms => Some(Timestamp::from_ms(ms)),
        }
    }

    /// Returns whether the key has to be rotated once before it can sign tokens: it has the scope,
    /// but its secret is not stored.
    pub fn lacks_secret(&self) -> bool {
        self.scopes.embed && self.embed.alg == TokenAlgorithm::Hs256 && !self.secret_kept
    }

    /// Returns whether the key is disabled or expired.
    pub fn is_refused(&self, now: Timestamp) -> bool {
        self.disabled || self.expires_at.is_some_and(|at| at <= now)
    }
}

/// Minimum difference to the stored time of last use that is written.
const LAG_MS: i64 = 60 * 1_000;

/// Last use of a key. It is shared by all versions of the key's settings.
#[derive(Debug)]
pub(in crate::identity) struct KeyUsage {
    /// Last use in milliseconds since 1970; `i64::MIN` is never.
    last_ms: AtomicI64,
    /// The last use that the store holds.
    stored_ms: AtomicI64,
    /// The key is in the queue of the next flush.
    queued: AtomicBool,
}

impl KeyUsage {
    pub(in crate::identity) fn stored(at: Option<Timestamp>) -> KeyUsage {
        let ms = at.map_or(i64::MIN, Timestamp::as_ms);
        KeyUsage {
            last_ms: AtomicI64::new(ms),
            stored_ms: AtomicI64::new(ms),
            queued: AtomicBool::new(false),
        }
    }

    /// Records a use. Returns whether the key has to join the queue of the next flush.
    pub(in crate::identity) fn record(&self, now: Timestamp) -> bool {
        self.last_ms.fetch_max(now.as_ms(), Ordering::AcqRel);
        let lag_ms = now.as_ms().saturating_sub(self.stored_ms.load(Ordering::Acquire));
        lag_ms >= LAG_MS && !self.queued.swap(true, Ordering::AcqRel)
    }

    /// Returns the time of last use for a flush; a later use queues the key again.
    pub(in crate::identity) fn begin_flush(&self) -> Option<Timestamp> {
        self.queued.store(false, Ordering::Release);
        match self.last_ms.load(Ordering::Acquire) {
            i64::MIN => None,
            ms => Some(Timestamp::from_ms(ms)),
        }
    }

    /// Records that the store holds the use at `at`.
    pub(in crate::identity) fn flushed(&self, at: Timestamp) {
        self.stored_ms.fetch_max(at.as_ms(), Ordering::AcqRel);
    }
}

/// The settings of a new key.
#[derive(Clone, Debug)]
pub struct NewApiKey {
    /// Display name, 1 to 200 bytes.
    pub name: String,
    /// The scopes; at least one.
    pub scopes: KeyScopes,
    /// Expiry, in the future.
    pub expires_at: Option<Timestamp>,
    /// Settings of its embed tokens.
    pub embed: EmbedSettings,
    /// Settings of writing.
    pub ingest: IngestSettings,
    /// Settings of reading.
    pub read: ReadSettings,
}

/// A change of a key; `None` leaves a field unchanged. `alg` never changes.
#[derive(Clone, Debug, Default)]
pub struct ApiKeyChange {
    /// Display name, 1 to 200 bytes.
    pub name: Option<String>,
    /// The scopes; at least one.
    pub scopes: Option<KeyScopes>,
    /// `Some(None)` removes the expiry.
    pub expires_at: Option<Option<Timestamp>>,
    /// `true` disables the key, `false` enables it.
    pub disabled: Option<bool>,
    /// Settings of its embed tokens; `alg` must be that of the key.
    pub embed: EmbedChange,
    /// Settings of writing.
    pub ingest: IngestChange,
    /// The new [`ReadSettings::rate_limit_rps`].
    pub read_rate_limit_rps: Option<u32>,
}

/// A change of a key's embed settings. `None` leaves the value that is stored when the change is
/// committed, so that of two concurrent changes neither takes back a restriction of the other.
#[derive(Clone, Debug, Default)]
pub struct EmbedChange {
    /// The algorithm; for an existing key it must be that of the key.
    pub alg: Option<TokenAlgorithm>,
    /// `Some(None)` removes the public key.
    pub public_key: Option<Option<String>>,
    /// The new [`EmbedSettings::rate_limit_rps`].
    pub rate_limit_rps: Option<u32>,
    /// The new [`EmbedSettings::max_token_ttl_s`].
    pub max_token_ttl_s: Option<u32>,
    /// The whole list.
    pub origins: Option<Vec<String>>,
    /// The whole policy.
    pub policy: Option<EmbedPolicy>,
    /// The new [`EmbedSettings::query_seconds_per_minute`]; `Some(None)` removes the limit.
    pub query_seconds_per_minute: Option<Option<u32>>,
    /// The whole list.
    pub blocked_origins: Option<Vec<String>>,
}

impl EmbedChange {
    /// Applies the change.
    pub fn apply(self, to: &mut EmbedSettings) {
        put(self.alg, &mut to.alg);
        put(self.public_key, &mut to.public_key);
        put(self.rate_limit_rps, &mut to.rate_limit_rps);
        put(self.max_token_ttl_s, &mut to.max_token_ttl_s);
        put(self.origins, &mut to.origins);
        put(self.policy, &mut to.policy);
        put(self.query_seconds_per_minute, &mut to.query_seconds_per_minute);
        put(self.blocked_origins, &mut to.blocked_origins);
    }
}

/// A change of a key's ingest settings; `None` leaves a field unchanged, as in [`EmbedChange`].
#[derive(Clone, Debug, Default)]
pub struct IngestChange {
    /// The new [`IngestSettings::rate_limit_rps`].
    pub rate_limit_rps: Option<u32>,
    /// The new [`IngestSettings::samples_per_s`].
    pub samples_per_s: Option<u32>,
    /// The new labels, which replace the whole list.
    pub labels: Option<Vec<(String, String)>>,
}

impl IngestChange {
    /// Applies the change.
    pub fn apply(self, to: &mut IngestSettings) {
        put(self.rate_limit_rps, &mut to.rate_limit_rps);
        put(self.samples_per_s, &mut to.samples_per_s);
        put(self.labels, &mut to.labels);
    }
}

fn put<T>(given: Option<T>, to: &mut T) {
    if let Some(given) = given {
        *to = given;
    }
}

/// A new or rotated key with its secret.
#[derive(Debug)]
pub struct CreatedKey {
    /// The key.
    pub key: Arc<ApiKey>,
    /// `msk_...`; returned only here.
    pub secret: Secret,
}

/// A validation error of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field in the API, such as `embed.max_token_ttl_s`.
    pub field: &'static str,
    /// Code of the error, for programs.
    pub code: &'static str,
    /// Description of the error, for people.
    pub message: String,
}

/// Joins field errors into one message.
pub(in crate::identity) fn in_words(errors: &[FieldError]) -> String {
    let each: Vec<String> =
        errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
    each.join("; ")
}

impl From<NameError> for KeyError {
    fn from(error: NameError) -> KeyError {
        let named = FieldError { field: "name", code: error.code(), message: error.to_string() };
        KeyError::Validation(vec![named])
    }
}

/// Errors of creating or changing a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// `validation_failed`.
    #[error("{}", in_words(.0))]
    Validation(Vec<FieldError>),
    /// The organisation has no such key: `not_found`.
    #[error("no such API key")]
    NotFound,
    /// The organisation already has [`KEYS_MAX`] keys: `validation_failed`.
    #[error("an organisation has at most {0} API keys")]
    TooMany(usize),
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Maximum number of keys of one organisation.
pub(in crate::identity) const KEYS_MAX: usize = 10_000;
const ORIGINS_MAX: usize = 32;
const BLOCKED_ORIGINS_MAX: usize = 64;
const MATCHERS_MAX: usize = 8;
const METRICS_MAX: usize = 64;
const EXPRS_MAX: usize = 64;
const LABELS_MAX: usize = 16;
const TEXT_BYTES_MAX: usize = 1_024;
const EXPR_BYTES_MAX: usize = 16 * 1_024;

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The prefix of an API key's secret.
pub(super) const KEY_SECRET: &str = "msk_";
/// The prefix of a public link's secret.
pub(in crate::identity) const LINK_SECRET: &str = "mpl_";

/// Draws a secret for the key or public link `id`. `prefix` is one of the two prefixes, which have
/// the same length.
pub(in crate::identity) fn random_secret(prefix: &str, id: KeyId, rng: &mut Entropy) -> Secret {
    let mut text = id.to_string().replacen(KeyId::PREFIX, prefix, 1);
    text.push('_');
    let mut random = 0;
    while random < 40 {
        let [byte] = rng.bytes();
        // 248 is the largest multiple of 62 in a byte; larger bytes would make some characters more
        // likely.
        if let Some(&digit) = BASE62.get(usize::from(byte % 62)).filter(|_| byte < 248) {
            text.push(char::from(digit));
            random += 1;
        }
    }
    let check = checksum(&text);
    text.push_str(&check);
    Secret::new(text)
}

/// Returns the hash by which a secret with this prefix is looked up; `None` if the text is not
/// well-formed or its checksum is wrong.
pub(in crate::identity) fn secret_hash(prefix: &str, text: &str) -> Option<SecretHash> {
    let (body, check) = text.split_at_checked(61)?;
    let (id, random) = body.strip_prefix(prefix)?.split_once('_')?;
    let fits = id.len() == 16 && random.len() == 40 && random.bytes().all(|b| b.is_ascii_alphanumeric());
    (fits && check == checksum(body)).then(|| SecretHash::of(text))
}

/// Returns the displayable part of a secret: `msk_…` and its last four characters.
pub(in crate::identity) fn hint(secret: &Secret) -> String {
    let text = secret.expose();
    let tail = text.len().checked_sub(4).and_then(|at| text.get(at..)).unwrap_or_default();
    format!("{KEY_SECRET}…{tail}")
}

/// CRC-32 table by nibbles; every request with a key checks 61 bytes.
const NIBBLES: [u32; 16] = {
    let mut table = [0; 16];
    let mut bits: u32 = 0;
    while bits < 16 {
        let mut rest = bits;
        let mut round = 0;
        while round < 4 {
            rest = (rest >> 1) ^ (0xedb8_8320 & (rest & 1).wrapping_neg());
            round += 1;
        }
        table[bits as usize] = rest;
        bits += 1;
    }
    table
};

/// Returns the CRC-32 (IEEE 802.3) as six base62 digits, most significant first; 62^6 is above
/// 2^32.
fn checksum(text: &str) -> String {
    let mut crc = u32::MAX;
    for byte in text.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..2 {
            crc = (crc >> 4) ^ NIBBLES[(crc & 15) as usize];
        }
    }
    let mut rest = !crc;
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    digits.iter().copied().map(char::from).collect()
}

/// Collects all validation errors, so that one response lists them all.
#[derive(Default)]
pub(in crate::identity) struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    pub(in crate::identity) fn require(
        &mut self,
        holds: bool,
        field: &'static str,
        message: impl Into<String>,
    ) {
        if !holds {
            self.0.push(FieldError { field, code: "invalid", message: message.into() });
        }
    }

    /// Requires `*` or exact origins.
    pub(in crate::identity) fn require_origins(&mut self, origins: &[String], field: &'static str) {
        self.require(
            origins.len() <= ORIGINS_MAX && origins.iter().all(|origin| is_origin(origin)),
            field,
            "must be * or at most 32 origins such as https://app.example.com, without a path",
        );
    }

    pub(in crate::identity) fn within<T: PartialOrd + std::fmt::Display>(
        &mut self,
        value: &T,
        range: std::ops::RangeInclusive<T>,
        field: &'static str,
    ) {
        self.require(
            range.contains(value),
            field,
            format!("must be {} to {}, not {value}", range.start(), range.end()),
        );
    }

    pub(in crate::identity) fn into_errors(self) -> Vec<FieldError> {
        self.0
    }

    fn done(self) -> Result<(), KeyError> {
        if self.0.is_empty() { Ok(()) } else { Err(KeyError::Validation(self.0)) }
    }
}

/// Validates a new or changed key as a whole and converts its public key to the stored form.
pub(super) fn validate(key: &mut NewApiKey, now: Timestamp) -> Result<(), KeyError> {
    let mut found = FieldErrors::default();
    if let Some(uploaded) = &mut key.embed.public_key
        && key.embed.alg != TokenAlgorithm::Hs256
    {
        match public_key::to_pem(key.embed.alg, uploaded) {
            Ok(pem) => *uploaded = pem,
            Err(message) => {
                found.require(false, "embed.public_key", message);
                return found.done();
            }
        }
    }
    let key = &*key;
    found.require(!key.name.is_empty(), "name", "must be 1 to 200 bytes");
    found.require(
        key.scopes != KeyScopes::default(),
        "scopes",
        "must name at least one of ingest, read, embed",
    );
    found.require(key.expires_at.is_none_or(|at| at > now), "expires_at", "must be in the future");

    let embed = &key.embed;
    found.within(&embed.rate_limit_rps, 1..=10_000, "embed.rate_limit_rps");
    found.within(&embed.max_token_ttl_s, 60..=86_400, "embed.max_token_ttl_s");
    found.require_origins(&embed.origins, "embed.origins");
    if let Some(seconds) = embed.query_seconds_per_minute {
        found.within(&seconds, 1..=3_600, "embed.query_seconds_per_minute");
    }
    let is_one = |origin: &String| origin != "*" && is_origin(origin);
    found.require(
        embed.blocked_origins.len() <= BLOCKED_ORIGINS_MAX && embed.blocked_origins.iter().all(is_one),
        "embed.blocked_origins",
        "must be at most 64 origins such as https://app.example.com, without a path",
    );
    match (embed.alg, &embed.public_key) {
        (TokenAlgorithm::Hs256, None) => {}
        (TokenAlgorithm::Hs256, Some(_)) => found.require(
            false,
            "embed.public_key",
            "HS256 signs with the key's secret and does not use a public key",
        ),
        (_, None) => {
            found.require(false, "embed.public_key", "this algorithm needs a public key (SPKI PEM or JWK)")
        }
        (alg, Some(pem)) => {
            found.require(key.scopes.embed, "scopes", "a public key is of use only with the scope embed");
            if let Err(message) = public_key::check(alg, pem) {
                found.require(false, "embed.public_key", message);
            }
        }
    }
    found.require(
        embed.policy.origins.is_none(),
        "embed.policy",
        "set the origins of a key in embed.origins",
    );
    for message in policy_errors(&embed.policy, PatternLimits::KEY) {
        found.require(false, "embed.policy", message);
    }

    found.within(&key.read.rate_limit_rps, 1..=100_000, "read.rate_limit_rps");
    found.within(&key.ingest.rate_limit_rps, 1..=10_000, "ingest.rate_limit_rps");
    found.within(&key.ingest.samples_per_s, 1..=100_000_000, "ingest.samples_per_s");
    let labels = &key.ingest.labels;
    let label_fits = |(name, value): &(String, String)| {
        is_label_name(name)
            && name != "__name__"
            && name.len() <= TEXT_BYTES_MAX
            && value.len() <= TEXT_BYTES_MAX
    };
    found.require(
        labels.len() <= LABELS_MAX && labels.iter().all(label_fits),
        "ingest.labels",
        "at most 16 labels of at most 1,024 bytes, not __name__",
    );
    let mut names: Vec<&str> = labels.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    found.require(names.len() == labels.len(), "ingest.labels", "a label is named twice");
    found.done()
}

/// Returns the errors of a policy of a key or a token. Compiles its patterns.
pub(in crate::identity) fn policy_errors(policy: &EmbedPolicy, limits: PatternLimits) -> Vec<String> {
    let mut found = policy_shape_errors(policy);
    let short = |text: &&String| text.len() <= TEXT_BYTES_MAX;
    let texts: Vec<String> = policy.matchers.iter().take(MATCHERS_MAX).filter(short).cloned().collect();
    if let Err(problem) = policy_matcher::parse_all(&texts, limits) {
        found.push(format!("match: {problem}"));
    } else if found.is_empty()
        && let Err(problem) = policy_matcher::parse_all(&matcher_texts(policy), limits)
    {
        found.push(format!("dashboard: {problem}"));
    }
    found
}

/// Returns the errors of counts and lengths in a policy, the part of [`policy_errors`] that
/// compiles nothing.
pub(super) fn policy_shape_errors(policy: &EmbedPolicy) -> Vec<String> {
    let mut found = Vec::new();
    let mut require = |holds: bool, message: &str| {
        if !holds {
            found.push(message.to_owned());
        }
    };
    let short = |texts: &Option<Vec<String>>, count: usize, bytes: usize| {
        texts.as_ref().is_none_or(|texts| {
            texts.len() <= count && texts.iter().all(|text| !text.is_empty() && text.len() <= bytes)
        })
    };
    require(
        short(&policy.metrics, METRICS_MAX, TEXT_BYTES_MAX),
        "metrics: at most 64 globs of 1 to 1,024 bytes",
    );
    require(
        short(&policy.exprs, EXPRS_MAX, EXPR_BYTES_MAX),
        "exprs: at most 64 expressions of 1 to 16,384 bytes",
    );
    require(policy.matchers.len() <= MATCHERS_MAX, "match: at most 8 matchers");
    require(
        policy.matchers.iter().all(|text| text.len() <= TEXT_BYTES_MAX),
        "match: at most 1,024 bytes each",
    );
    require(policy.endpoints.as_ref().is_none_or(|list| list.len() <= 16), "endpoints: at most 16");
    require(
        policy
            .origins
            .as_ref()
            .is_none_or(|list| list.len() <= ORIGINS_MAX && list.iter().all(|origin| is_origin(origin))),
        "origins: * or at most 32 origins such as https://app.example.com, without a path",
    );
    require(
        policy.alerts.as_ref().is_none_or(AlertsPolicy::is_within_limits),
        "alerts: at most 16 annotations, each with a name of 1 to 128 bytes",
    );
    found.extend(policy.dashboard.iter().flat_map(DashboardPolicy::shape_errors));
    found
}

/// Returns whether a text is `*` or an origin as a browser sends it in `Origin`: scheme, host and
/// optional port. Such a text has no character that ends a source, a directive or a header.
fn is_origin(text: &str) -> bool {
    if text == "*" {
        return true;
    }
    let Some(host) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else {
        return false;
    };
    let fits =
        |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b':' | b'[' | b']');
    !host.is_empty() && host.len() <= 255 && host.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of CRC-32/ISO-HDLC, 0xcbf43926, in base62: keys of earlier versions stay
    /// valid.
    #[test]
    fn the_checksum_of_a_secret_is_the_standard_crc_32() {
        assert_eq!(checksum("123456789"), "3jZRME");
        assert_eq!(checksum(""), "000000");
    }
}
