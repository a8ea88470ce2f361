//! API keys: how machines write and read, and what embed tokens are signed with (docs/specification.md C4).
//!
//! A secret is `msk_<16 of the key's id>_<40 random base62><6 base62 of the CRC-32 of what stands before>`: 238 random
//! bits; the id lets a person see which key leaked, the checksum lets scanners tell a secret from a look-alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::entropy::Entropy;
use crate::model::{OrgId, OrgSlug, Timestamp};

use super::matcher_text::{self, PatternLimits};
use super::name::NameError;
use super::{Endpoint, KeyId, Secret, SecretHash, StoreError, UserId};

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
    /// SPKI PEM, or a JWK in a key that is to be made or changed; present exactly when `alg` is not HS256.
    pub public_key: Option<String>,
    /// Requests a second over all tokens of the key, 1 to 10,000. `[spec]` default 100.
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

/// How a key itself may read, without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReadSettings {
    /// Requests a second, 1 to 100,000. A dashboard or a group of rules asks hundreds of queries at once.
    pub rate_limit_rps: u32,
}

impl Default for ReadSettings {
    fn default() -> ReadSettings {
        ReadSettings { rate_limit_rps: 1_000 }
    }
}

/// Restrictions, of a key (`embed.policy`) or of one token (`ms`). `None` and empty restrict nothing.
///
/// Reading it from JSON refuses unknown fields: a typo here would silently grant more.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EmbedPolicy {
    /// Of `metrics labels range instant expr`.
    pub endpoints: Option<Vec<Endpoint>>,
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
        IngestSettings { rate_limit_rps: 100, samples_per_s: 2_000_000, labels: Vec::new() }
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
    /// How it may read.
    pub read: ReadSettings,
    /// Tokens made before this are refused.
    pub tokens_valid_after: Option<Timestamp>,
    /// Its secret is kept, sealed, so that it signs and verifies HS256. Of a key that was given the scope `embed` later it
    /// is not, before the next rotation.
    pub secret_kept: bool,
    pub(super) usage: Arc<Usage>,
}

impl ApiKey {
    /// When a request last used it, to the minute; `None` if never.
    pub fn last_used(&self) -> Option<Timestamp> {
        match self.usage.last_ms.load(Ordering::Acquire) {
            i64::MIN => None,
            ms => Some(Timestamp::from_ms(ms)),
        }
    }

    /// Whether it may sign tokens with a secret that is not kept: it has to be rotated once before.
    pub fn lacks_secret(&self) -> bool {
        self.scopes.embed && self.embed.alg == TokenAlgorithm::Hs256 && !self.secret_kept
    }

    /// Whether it is refused for its own sake: disabled or expired.
    pub fn is_refused(&self, now: Timestamp) -> bool {
        self.disabled || self.expires_at.is_some_and(|at| at <= now)
    }
}

/// When a key was used; survives changes of its settings.
#[derive(Debug)]
pub(super) struct Usage {
    /// Milliseconds; `i64::MIN` is never.
    pub(super) last_ms: AtomicI64,
    /// What the store knows.
    pub(super) stored_ms: AtomicI64,
    /// Waits for the flusher.
    pub(super) queued: AtomicBool,
}

impl Usage {
    pub(super) fn stored(at: Option<Timestamp>) -> Usage {
        let ms = at.map_or(i64::MIN, Timestamp::as_ms);
        Usage { last_ms: AtomicI64::new(ms), stored_ms: AtomicI64::new(ms), queued: AtomicBool::new(false) }
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
    /// How it may read.
    pub read: ReadSettings,
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
    /// How its tokens may be used; `alg` must be the key's.
    pub embed: EmbedChange,
    /// How it may write.
    pub ingest: IngestChange,
    /// As [`ReadSettings::rate_limit_rps`].
    pub read_rate_limit_rps: Option<u32>,
}

/// What to change of how a key's tokens may be used; `None` leaves what stands when the change is made, so that of two at once
/// neither takes back what the other restricts.
#[derive(Clone, Debug, Default)]
pub struct EmbedChange {
    /// Of a key that is there it must be the key's.
    pub alg: Option<TokenAlgorithm>,
    /// `Some(None)` takes it away.
    pub public_key: Option<Option<String>>,
    /// As [`EmbedSettings::rate_limit_rps`].
    pub rate_limit_rps: Option<u32>,
    /// As [`EmbedSettings::max_token_ttl_s`].
    pub max_token_ttl_s: Option<u32>,
    /// The whole list.
    pub origins: Option<Vec<String>>,
    /// The whole policy.
    pub policy: Option<EmbedPolicy>,
}

impl EmbedChange {
    /// Makes the change.
    pub fn apply(self, to: &mut EmbedSettings) {
        put(self.alg, &mut to.alg);
        put(self.public_key, &mut to.public_key);
        put(self.rate_limit_rps, &mut to.rate_limit_rps);
        put(self.max_token_ttl_s, &mut to.max_token_ttl_s);
        put(self.origins, &mut to.origins);
        put(self.policy, &mut to.policy);
    }
}

/// What to change of how a key may write; `None` leaves it, as in [`EmbedChange`].
#[derive(Clone, Debug, Default)]
pub struct IngestChange {
    /// As [`IngestSettings::rate_limit_rps`].
    pub rate_limit_rps: Option<u32>,
    /// As [`IngestSettings::samples_per_s`].
    pub samples_per_s: Option<u32>,
    /// The whole list.
    pub labels: Option<Vec<(String, String)>>,
}

impl IngestChange {
    /// Makes the change.
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

/// A key and, this once, its secret.
#[derive(Debug)]
pub struct CreatedKey {
    /// The key.
    pub key: Arc<ApiKey>,
    /// `msk_...`; shown now and never again.
    pub secret: Secret,
}

/// One field that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// As in the API: `embed.max_token_ttl_s`.
    pub field: &'static str,
    /// What is wrong with it, to programs.
    pub code: &'static str,
    /// A sentence.
    pub message: String,
}

/// Each field with what is wrong with it.
pub(super) fn in_words(errors: &[FieldError]) -> String {
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

/// Why a key was not made or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// `validation_failed`.
    #[error("{}", in_words(.0))]
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

/// Keys of one organisation at most.
pub(super) const KEYS_MAX: usize = 10_000;
const ORIGINS_MAX: usize = 32;
const MATCHERS_MAX: usize = 8;
const METRICS_MAX: usize = 64;
const EXPRS_MAX: usize = 64;
const LABELS_MAX: usize = 16;
const TEXT_BYTES_MAX: usize = 1_024;
const EXPR_BYTES_MAX: usize = 16 * 1_024;

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A new secret for the key `id`.
pub(super) fn random_secret(id: KeyId, rng: &mut Entropy) -> Secret {
    let mut text = id.to_string().replacen(KeyId::PREFIX, "msk_", 1);
    text.push('_');
    let mut random = 0;
    while random < 40 {
        let [byte] = rng.bytes();
        // 248 is the largest multiple of 62 in a byte: above it some characters would be likelier than others.
        if let Some(&digit) = BASE62.get(usize::from(byte % 62)).filter(|_| byte < 248) {
            text.push(char::from(digit));
            random += 1;
        }
    }
    let check = checksum(&text);
    text.push_str(&check);
    Secret::new(text)
}

/// The hash to look a secret up by; `None` where the text cannot be one, its checksum included.
pub(super) fn secret_hash(text: &str) -> Option<SecretHash> {
    let (body, check) = text.split_at_checked(61)?;
    let (id, random) = body.strip_prefix("msk_")?.split_once('_')?;
    let fits = id.len() == 16 && random.len() == 40 && random.bytes().all(|b| b.is_ascii_alphanumeric());
    (fits && check == checksum(body)).then(|| SecretHash::of(text))
}

/// What a person may see of a secret: `msk_…` and its last four characters.
pub(super) fn hint(secret: &Secret) -> String {
    let text = secret.expose();
    let tail = text.len().checked_sub(4).and_then(|at| text.get(at..)).unwrap_or_default();
    format!("msk_…{tail}")
}

/// What four bits do to the remainder: every request with a key has 61 bytes checked.
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

/// CRC-32 (IEEE 802.3) as six base62 digits, most significant first: 62^6 is above 2^32.
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

/// Collects what does not fit, so that one answer names all of it.
#[derive(Default)]
struct Findings(Vec<FieldError>);

impl Findings {
    fn require(&mut self, holds: bool, field: &'static str, message: impl Into<String>) {
        if !holds {
            self.0.push(FieldError { field, code: "invalid", message: message.into() });
        }
    }

    fn within<T: PartialOrd + std::fmt::Display>(
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

    fn done(self) -> Result<(), KeyError> {
        if self.0.is_empty() { Ok(()) } else { Err(KeyError::Validation(self.0)) }
    }
}

/// Checks a new or changed key as a whole, and writes its public key as it is stored.
pub(super) fn validate(key: &mut NewApiKey, now: Timestamp) -> Result<(), KeyError> {
    let mut found = Findings::default();
    if let Some(uploaded) = &mut key.embed.public_key
        && key.embed.alg != TokenAlgorithm::Hs256
    {
        match super::public_key::to_pem(key.embed.alg, uploaded) {
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
        key.scopes.ingest || key.scopes.read || key.scopes.embed,
        "scopes",
        "must name at least one of ingest, read, embed",
    );
    found.require(key.expires_at.is_none_or(|at| at > now), "expires_at", "must lie in the future");

    let embed = &key.embed;
    found.within(&embed.rate_limit_rps, 1..=10_000, "embed.rate_limit_rps");
    found.within(&embed.max_token_ttl_s, 60..=86_400, "embed.max_token_ttl_s");
    found.require(
        embed.origins.len() <= ORIGINS_MAX && embed.origins.iter().all(|origin| is_origin(origin)),
        "embed.origins",
        "must be * or at most 32 origins such as https://app.example.com, without a path",
    );
    match (embed.alg, &embed.public_key) {
        (TokenAlgorithm::Hs256, None) => {}
        (TokenAlgorithm::Hs256, Some(_)) => found.require(
            false,
            "embed.public_key",
            "HS256 signs with the key's secret and takes no public key",
        ),
        (_, None) => {
            found.require(false, "embed.public_key", "this algorithm needs a public key (SPKI PEM or JWK)")
        }
        (alg, Some(pem)) => {
            found.require(key.scopes.embed, "scopes", "a public key is of use only with the scope embed");
            if let Err(message) = super::public_key::check(alg, pem) {
                found.require(false, "embed.public_key", message);
            }
        }
    }
    found.require(embed.policy.origins.is_none(), "embed.policy", "a key's origins stand in embed.origins");
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

/// What does not fit in a policy, of a key or of a token. Compiles its patterns.
pub(super) fn policy_errors(policy: &EmbedPolicy, limits: PatternLimits) -> Vec<String> {
    let mut found = policy_shape_errors(policy);
    let short = |text: &&String| text.len() <= TEXT_BYTES_MAX;
    let texts: Vec<String> = policy.matchers.iter().take(MATCHERS_MAX).filter(short).cloned().collect();
    if let Err(problem) = matcher_text::parse_all(&texts, limits) {
        found.push(format!("match: {problem}"));
    }
    found
}

/// The part of [`policy_errors`] that compiles nothing: counts and lengths.
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
    found
}

/// `*`, or scheme, host and perhaps port, as a browser sends them in `Origin`.
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

/// The classic label name of Prometheus.
pub(super) fn is_label_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of CRC-32/ISO-HDLC, 0xcbf43926, in base62: keys made by any version stay good.
    #[test]
    fn the_check_of_a_secret_is_the_usual_crc() {
        assert_eq!(checksum("123456789"), "3jZRME");
        assert_eq!(checksum(""), "000000");
    }
}
