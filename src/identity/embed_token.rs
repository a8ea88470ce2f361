//! Embed tokens: minted here or offline with a key's secret, verified in the order of docs/specification.md D7.
//!
//! The crate checks the signature, the pinned algorithm and the audience. Everything that needs a clock is compared
//! here with the caller's `now`, since the crate would read the wall clock itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::model::{Matcher, NameGlob, OrgId, Scope, Timestamp};

use super::api_key::{TokenAlgorithm, in_words, policy_errors, policy_shape_errors};
use super::matcher_text::{self, PatternLimits};
use super::{ApiKey, EmbedPolicy, FieldError, KeyId, Secret, StoreError, public_key};

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

    /// Whether free expressions are limited to allow-lists.
    pub fn restricts_exprs(&self) -> bool {
        !self.exprs.is_empty()
    }

    /// Whether a page of this origin may use the token; no `Origin` at all is a server and may.
    pub fn allows_origin(&self, origin: Option<&str>) -> bool {
        origins_allow(&self.origins, origin)
    }
}

/// Why a token is refused. All but three are `token_invalid` to the client; `reason` is for introspection and the audit log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// 401 `token_invalid`.
    #[error("the embed token is not valid ({reason})")]
    Invalid {
        /// A stable word: `size`, `form`, `header`, `kid`, `key`, `alg`, `signature`, `claims`, `aud`, `iat`, `ttl`, `revoked`, `org`,
        /// `iss`, `policy`.
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

impl TokenRefusal {
    /// Whether the text is no token at all: not three parts between dots, the first of which is a JSON object in base64url.
    pub fn is_no_token(&self) -> bool {
        matches!(self, TokenRefusal::Invalid { reason: FORM })
    }

    /// A stable word, for the audit log and introspection; never for the client's body.
    pub const fn reason(&self) -> &'static str {
        match self {
            TokenRefusal::Invalid { reason } => reason,
            TokenRefusal::Expired => "expired",
            TokenRefusal::NotYetValid => "nbf",
            TokenRefusal::OrgMismatch => "slug",
            TokenRefusal::OriginNotAllowed => "origin",
        }
    }
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
    /// The key was given the scope `embed` after it was made: `conflict`.
    #[error("this key's secret was not kept, because it was made without the scope embed: rotate it once")]
    SecretNotKept,
    /// `validation_failed`.
    #[error("{}", in_words(.0))]
    Validation(Vec<FieldError>),
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Longest token, bytes.
const TOKEN_BYTES_MAX: usize = 4 * 1_024;
/// Clocks may differ by this much, seconds.
const LEEWAY_S: i64 = 30;
const AUDIENCE: &str = "ms-embed";
const SUB_BYTES_MAX: usize = 255;
/// Beyond this a number is no date: 2^53 seconds, what a double holds exactly.
const DATE_MAX_S: i64 = 1 << 53;

/// What verifying a key's tokens takes, made once when the key is loaded.
#[derive(Debug)]
pub(super) struct TokenKey {
    algorithm: Algorithm,
    decoding: DecodingKey,
    /// Only for HS256: the server can mint.
    signing: Option<Secret>,
    matchers: Arc<[Matcher]>,
    names: Option<Vec<NameGlob>>,
}

/// A key whose stored material cannot verify tokens: it verifies none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an API key cannot verify embed tokens: {0}")]
pub(super) struct TokenKeyError(String);

impl TokenKey {
    /// `secret` is the key's own for HS256, `None` for the others.
    pub(super) fn new(
        key: &ApiKey,
        secret: Option<Secret>,
        policy: &CompiledKeyPolicy,
    ) -> Result<TokenKey, TokenKeyError> {
        let decoding = match (key.embed.alg, &secret, &key.embed.public_key) {
            (TokenAlgorithm::Hs256, Some(secret), None) => {
                DecodingKey::from_secret(secret.expose().as_bytes())
            }
            (TokenAlgorithm::Hs256, ..) => return Err(TokenKeyError("no sealed secret".into())),
            (alg, None, Some(pem)) => public_key::check(alg, pem).map_err(TokenKeyError)?,
            (..) => return Err(TokenKeyError("no public key".into())),
        };
        Ok(TokenKey {
            algorithm: algorithm(key.embed.alg),
            decoding,
            signing: secret,
            matchers: policy.clone()?,
            names: globs(&key.embed.policy),
        })
    }
}

/// The matchers of a key's policy.
pub(super) type CompiledKeyPolicy = Result<Arc<[Matcher]>, TokenKeyError>;

/// Compiles the matchers of a key's policy, in at most some 20 ms.
pub(super) fn compile_key_policy(policy: &EmbedPolicy) -> CompiledKeyPolicy {
    let matchers = matcher_text::parse_all(&policy.matchers, PatternLimits::KEY);
    matchers.map(Arc::from).map_err(|error| TokenKeyError(error.to_string()))
}

pub(super) fn algorithm(alg: TokenAlgorithm) -> Algorithm {
    match alg {
        TokenAlgorithm::Hs256 => Algorithm::HS256,
        TokenAlgorithm::EdDsa => Algorithm::EdDSA,
        TokenAlgorithm::Es256 => Algorithm::ES256,
        TokenAlgorithm::Rs256 => Algorithm::RS256,
    }
}

fn globs(policy: &EmbedPolicy) -> Option<Vec<NameGlob>> {
    policy.metrics.as_ref().map(|names| names.iter().map(|name| NameGlob::new(name)).collect())
}

/// Restrictions as a token carries them. Unknown fields and `null` are refused: a typo would grant more.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Ms {
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    metrics: Option<Vec<String>>,
    #[serde(rename = "match", skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    matchers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    exprs: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    max_range_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    max_lookback_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    min_step_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    origins: Option<Vec<String>>,
}

/// The names of [`Ms`]: standing beside `ms` instead of in it, each would be ignored and so grant more.
const MS_FIELDS: [&str; 8] =
    ["endpoints", "metrics", "match", "exprs", "max_range_s", "max_lookback_s", "min_step_s", "origins"];

/// A claim that was meant to restrict: `MS` or `Match`, too, where letter case alone is wrong.
fn is_nearly_a_restriction(claim: &str) -> bool {
    MS_FIELDS.iter().chain(&["ms"]).any(|name| name.eq_ignore_ascii_case(claim))
}

fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Only from an object: a derived struct also reads an array, by position, and an empty one would restrict nothing.
fn object<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Ms>, D::Error> {
    struct Object;
    impl<'de> Visitor<'de> for Object {
        type Value = Ms;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object of restrictions")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Ms, A::Error> {
            Ms::deserialize(MapAccessDeserializer::new(map))
        }
    }
    from.deserialize_map(Object).map(Some)
}

impl From<Ms> for EmbedPolicy {
    fn from(ms: Ms) -> EmbedPolicy {
        EmbedPolicy {
            endpoints: ms.endpoints,
            metrics: ms.metrics,
            matchers: ms.matchers.unwrap_or_default(),
            exprs: ms.exprs,
            max_range_s: ms.max_range_s,
            max_lookback_s: ms.max_lookback_s,
            min_step_s: ms.min_step_s,
            origins: ms.origins,
        }
    }
}

impl From<EmbedPolicy> for Ms {
    fn from(policy: EmbedPolicy) -> Ms {
        Ms {
            endpoints: policy.endpoints,
            metrics: policy.metrics,
            matchers: Some(policy.matchers).filter(|list| !list.is_empty()),
            exprs: policy.exprs,
            max_range_s: policy.max_range_s,
            max_lookback_s: policy.max_lookback_s,
            min_step_s: policy.min_step_s,
            origins: policy.origins,
        }
    }
}

impl EmbedPolicy {
    /// Reads `embed.policy` of a key, or `ms` of a request to mint, as the API writes them: `null` restricts nothing, an
    /// unknown field is refused.
    ///
    /// # Errors
    /// A sentence that names the field.
    pub fn from_json(json: &serde_json::Value) -> Result<EmbedPolicy, String> {
        let serde_json::Value::Object(fields) = json else { return Err("must be an object".into()) };
        let set =
            fields.iter().filter(|(name, value)| !value.is_null() || !MS_FIELDS.contains(&name.as_str()));
        let object = set.map(|(name, value)| (name.clone(), value.clone())).collect();
        let ms: Ms = serde_json::from_value(serde_json::Value::Object(object)).map_err(|e| e.to_string())?;
        Ok(ms.into())
    }
}

/// Seconds since the epoch, whole or with a fraction (RFC 7519 section 2), rounded down.
#[derive(Clone, Copy, Debug)]
struct NumericDate(i64);

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<NumericDate, D::Error> {
        struct Seconds;
        impl Visitor<'_> for Seconds {
            type Value = NumericDate;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("seconds since 1970, 0 to 2^53")
            }

            fn visit_u64<E: serde::de::Error>(self, s: u64) -> Result<NumericDate, E> {
                let s = i64::try_from(s).ok().filter(|s| *s <= DATE_MAX_S);
                s.map(NumericDate).ok_or_else(|| E::custom("not a date"))
            }

            #[expect(
                clippy::cast_possible_truncation,
                reason = "a whole number of at most 2^53: checked in the line before"
            )]
            fn visit_f64<E: serde::de::Error>(self, s: f64) -> Result<NumericDate, E> {
                let fits = (0.0..=9_007_199_254_740_992.0).contains(&s);
                if fits { Ok(NumericDate(s.floor() as i64)) } else { Err(E::custom("not a date")) }
            }
        }
        from.deserialize_any(Seconds)
    }
}

#[derive(Debug, Deserialize)]
struct Claims {
    org: String,
    iat: NumericDate,
    exp: NumericDate,
    nbf: Option<NumericDate>,
    iss: Option<String>,
    sub: Option<String>,
    /// For the log only: it is no list of what is revoked.
    jti: Option<serde_json::Value>,
    #[serde(default, deserialize_with = "object")]
    ms: Option<Ms>,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

/// Signed with another secret than the key's.
pub(super) const FOREIGN_SIGNATURE: TokenRefusal = invalid("signature");

/// The reason of what has not the form of a token.
const FORM: &str = "form";

const fn invalid(reason: &'static str) -> TokenRefusal {
    TokenRefusal::Invalid { reason }
}

/// Steps 1 and 2 of docs/specification.md D7: which key a token names, if nothing else about its header is wrong.
pub(super) fn key_id(token: &str) -> Result<KeyId, TokenRefusal> {
    let header = header(token)?;
    // Present is enough, whatever the value: each asks us to believe a key from the token, or to understand an extension.
    if ["crit", "jku", "jwk", "x5u", "x5c", "b64", "zip", "enc"].iter().any(|name| header.contains_key(*name))
    {
        return Err(invalid("header"));
    }
    let kid = header.get("kid").and_then(serde_json::Value::as_str).ok_or(invalid("kid"))?;
    kid.parse().map_err(|_| invalid("kid"))
}

fn header(token: &str) -> Result<BTreeMap<String, serde_json::Value>, TokenRefusal> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(invalid("size"));
    }
    let mut parts = token.split('.');
    let (Some(header), Some(_), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(invalid(FORM));
    };
    let bytes = data_encoding::BASE64URL_NOPAD.decode(header.as_bytes()).map_err(|_| invalid(FORM))?;
    serde_json::from_slice(&bytes).map_err(|_| invalid(FORM))
}

/// What a token says, once its signature and its claims have been checked.
#[derive(Clone, Debug)]
pub(super) struct CheckedClaims {
    /// The token's own restrictions; counts and lengths have been checked, patterns are not compiled.
    pub(super) policy: EmbedPolicy,
    sub: Option<String>,
    expires_at: Timestamp,
}

/// Checks everything about a token that takes no more than its bytes: the key's state, the signature, the claims, the
/// organisation and the origin. Compiles nothing.
pub(super) fn verify(
    key: &ApiKey,
    keys: &TokenKey,
    request: &EmbedRequest<'_>,
    now: Timestamp,
) -> Result<CheckedClaims, TokenRefusal> {
    if key.is_refused(now) || !key.scopes.embed {
        return Err(invalid("key"));
    }
    // The crate knows no names but those of its own algorithms: `none` would be called a mistake in the claims.
    if header(request.token)?.get("alg").and_then(serde_json::Value::as_str) != Some(key.embed.alg.as_str()) {
        return Err(invalid("alg"));
    }
    let claims = signed_claims(keys, request.token)?;
    let now_ms = now.as_ms();
    let ms_of = |s: i64| s.saturating_mul(1_000);
    if now_ms >= ms_of(claims.exp.0 + LEEWAY_S) {
        return Err(TokenRefusal::Expired);
    }
    if claims.nbf.is_some_and(|nbf| now_ms < ms_of(nbf.0 - LEEWAY_S)) {
        return Err(TokenRefusal::NotYetValid);
    }
    let (iat, ttl_s) = (claims.iat.0, claims.exp.0 - claims.iat.0);
    // A token minted after a revocation bears the first valid date, which may be ahead of the clock and of its own end.
    let first_valid = key.tokens_valid_after.map(whole_second);
    let is_first_valid = first_valid == Some(iat);
    if ms_of(iat - LEEWAY_S) > now_ms && !is_first_valid {
        return Err(invalid("iat"));
    }
    if (ttl_s <= 0 && !is_first_valid) || ttl_s > i64::from(key.embed.max_token_ttl_s) {
        return Err(invalid("ttl"));
    }
    if first_valid.is_some_and(|first| iat < first) {
        return Err(invalid("revoked"));
    }
    if claims.iss.is_some_and(|iss| iss != key.id.to_string()) {
        return Err(invalid("iss"));
    }
    if claims.org != key.slug.as_str() {
        return Err(invalid("org"));
    }
    let policy: EmbedPolicy = claims.ms.unwrap_or_default().into();
    if claims.others.keys().any(|name| is_nearly_a_restriction(name))
        || !policy_shape_errors(&policy).is_empty()
    {
        return Err(invalid("policy"));
    }
    if request.slug != key.slug.as_str() {
        return Err(TokenRefusal::OrgMismatch);
    }
    tracing::debug!(key.id = %key.id, sub = claims.sub, jti = ?claims.jti, "an embed token is good");
    if !origins_allow(&origins(key, &policy), request.origin) {
        return Err(TokenRefusal::OriginNotAllowed);
    }
    Ok(CheckedClaims { policy, sub: claims.sub, expires_at: Timestamp::from_s(claims.exp.0) })
}

/// The allow-lists of origins of a key and a token's policy; an origin must be in each.
pub(super) fn origins(key: &ApiKey, token: &EmbedPolicy) -> Vec<Vec<String>> {
    std::iter::once(&key.embed.origins).chain(&token.origins).cloned().collect()
}

/// Whether every list allows `origin`. A request without one comes from a server and passes.
fn origins_allow(lists: &[Vec<String>], origin: Option<&str>) -> bool {
    origin.is_none_or(|origin| {
        lists.iter().all(|list| list.iter().any(|allowed| allowed == "*" || allowed == origin))
    })
}

/// Steps 4 and 5: the signature by the pinned algorithm, the audience, the claims' types.
fn signed_claims(keys: &TokenKey, token: &str) -> Result<Claims, TokenRefusal> {
    let mut validation = Validation::new(keys.algorithm);
    // Only required claims are enforced by the crate: without this line a token with no `aud` at all would pass.
    validation.set_required_spec_claims(&["exp", "aud"]);
    validation.set_audience(&[AUDIENCE]);
    validation.validate_exp = false;
    validation.validate_nbf = false;
    let decoded = jsonwebtoken::decode::<Claims>(token, &keys.decoding, &validation);
    decoded.map(|token| token.claims).map_err(|error| {
        invalid(match error.kind() {
            ErrorKind::InvalidAlgorithm => "alg",
            ErrorKind::InvalidAudience => "aud",
            ErrorKind::MissingRequiredClaim(name) if name == "aud" => "aud",
            ErrorKind::InvalidSignature | ErrorKind::Base64(_) => "signature",
            _ => "claims",
        })
    })
}

/// A token whose patterns do not compile, or compile to more than a token's may.
pub(super) const BAD_PATTERNS: TokenRefusal = invalid("policy");

/// The first valid `iat` after a revocation at `now`, a whole second. No accepted token has it or a later one:
/// - tokens that other programs sign are accepted up to [`LEEWAY_S`] ahead of `now`;
/// - tokens minted since the last revocation may bear its date `before`, however far ahead of `now` that is.
pub(super) fn first_date_after(before: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let after_skew = now.as_s().saturating_add(LEEWAY_S + 1);
    let after_minted = before.map_or(i64::MIN, |before| whole_second(before).saturating_add(1));
    Timestamp::from_s(after_skew.max(after_minted))
}

/// The second of a date, rounded up: older versions stored milliseconds.
const fn whole_second(date: Timestamp) -> i64 {
    date.plus_ms(999).as_s()
}

/// Token AND key policy; `compiled` are the token's matchers.
pub(super) fn effective(
    key: &ApiKey,
    keys: &TokenKey,
    claims: CheckedClaims,
    compiled: &[Matcher],
    now: Timestamp,
) -> EmbedGrant {
    let own = &key.embed.policy;
    let CheckedClaims { policy: token, sub, expires_at } = claims;
    let matchers = keys.matchers.iter().chain(compiled).cloned().collect();
    let origins = origins(key, &token);
    let token_names = globs(&token);
    let endpoints = match (granted_endpoints(own), granted_endpoints(&token)) {
        (Some(own), Some(token)) => {
            Some(token.into_iter().filter(|endpoint| own.contains(endpoint)).collect())
        }
        (own, token) => own.or(token),
    };
    let smaller = |a: Option<u64>, b: Option<u64>| [a, b].into_iter().flatten().min();
    let max_lookback_s = smaller(own.max_lookback_s, token.max_lookback_s);
    let min_time = max_lookback_s
        .map(|s| now.plus_ms(i64::try_from(s).unwrap_or(i64::MAX).saturating_mul(1_000).saturating_neg()));
    EmbedGrant {
        key: key.id,
        rate_limit_rps: key.embed.rate_limit_rps,
        org: key.org,
        scope: Scope { matchers, names: keys.names.iter().cloned().chain(token_names).collect(), min_time },
        endpoints,
        exprs: own.exprs.iter().cloned().chain(token.exprs).collect(),
        max_range_s: smaller(own.max_range_s, token.max_range_s),
        max_lookback_s,
        min_step_s: own.min_step_s.max(token.min_step_s),
        origins,
        sub,
        expires_at,
    }
}

/// The endpoints of a policy; `None` is all. A policy that lists expressions and no endpoints grants those expressions and
/// nothing beside them: structured queries and listings would show what the list was to hide.
fn granted_endpoints(policy: &EmbedPolicy) -> Option<Vec<Endpoint>> {
    policy.endpoints.clone().or_else(|| policy.exprs.as_ref().map(|_| vec![Endpoint::Expr]))
}

#[derive(Serialize)]
struct MintedClaims<'a> {
    aud: &'static str,
    org: &'a str,
    iat: i64,
    exp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<Ms>,
}

/// Signs a token with the key's secret.
pub(super) fn mint(
    key: &ApiKey,
    keys: &TokenKey,
    request: &MintRequest,
    now: Timestamp,
) -> Result<MintedToken, MintError> {
    if key.is_refused(now) || !key.scopes.embed {
        return Err(MintError::UnknownKey);
    }
    let Some(secret) = &keys.signing else { return Err(MintError::Asymmetric) };
    let mut errors = Vec::new();
    if request.ttl_s == 0 || request.ttl_s > key.embed.max_token_ttl_s {
        errors.push(FieldError {
            field: "ttl_s",
            code: "invalid",
            message: format!("must be 1 to {}", key.embed.max_token_ttl_s),
        });
    }
    if request.sub.as_ref().is_some_and(|sub| sub.len() > SUB_BYTES_MAX) {
        errors.push(FieldError {
            field: "sub",
            code: "invalid",
            message: format!("must be at most {SUB_BYTES_MAX} bytes"),
        });
    }
    if let Some(ms) = &request.ms {
        let messages = policy_errors(ms, PatternLimits::TOKEN).into_iter().chain(excesses(key, ms));
        errors.extend(messages.map(|message| FieldError { field: "ms", code: "invalid", message }));
    }
    if !errors.is_empty() {
        return Err(MintError::Validation(errors));
    }
    // A token minted soon after a revocation is dated so that it is not one of the revoked. It ends no later for that.
    let iat = now.as_s().max(key.tokens_valid_after.map_or(i64::MIN, whole_second));
    let exp = now.as_s().saturating_add(i64::from(request.ttl_s));
    let header = Header { kid: Some(key.id.to_string()), ..Header::new(Algorithm::HS256) };
    let ms = request.ms.clone().map(Ms::from);
    let claims =
        MintedClaims { aud: AUDIENCE, org: key.slug.as_str(), iat, exp, sub: request.sub.as_deref(), ms };
    let token = jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(secret.expose().as_bytes()))
        .expect("HMAC signs any text, and the claims are plain JSON");
    if token.len() > TOKEN_BYTES_MAX {
        let message =
            format!("the token would have {} bytes, at most {TOKEN_BYTES_MAX} are accepted", token.len());
        return Err(MintError::Validation(vec![FieldError { field: "ms", code: "invalid", message }]));
    }
    Ok(MintedToken { token: Secret::new(token), expires_at: Timestamp::from_s(exp), kid: key.id })
}

/// Where `ms` asks for more than its key may give. It would not get it: this is for the one who asks.
fn excesses(key: &ApiKey, ms: &EmbedPolicy) -> Vec<String> {
    fn beyond<T: PartialEq>(own: Option<&[T]>, asked: Option<&[T]>) -> bool {
        own.zip(asked).is_some_and(|(own, asked)| asked.iter().any(|one| !own.contains(one)))
    }
    let own = &key.embed.policy;
    let over = |own: Option<u64>, asked: Option<u64>| own.zip(asked).is_some_and(|(own, asked)| asked > own);
    let all_origins = key.embed.origins.iter().any(|origin| origin == "*");
    // No name has a star in it, so a glob that takes the other's star for a letter takes all that the other takes.
    let covered = |asked: &String| own.metrics.iter().flatten().any(|own| NameGlob::new(own).matches(asked));
    let names = ms.metrics.as_ref().filter(|_| own.metrics.is_some());
    let checks = [
        (beyond(own.endpoints.as_deref(), ms.endpoints.as_deref()), "endpoints"),
        (names.is_some_and(|asked| !asked.iter().all(covered)), "metrics"),
        (beyond(own.exprs.as_deref(), ms.exprs.as_deref()), "exprs"),
        (over(own.max_range_s, ms.max_range_s), "max_range_s"),
        (over(own.max_lookback_s, ms.max_lookback_s), "max_lookback_s"),
        (own.min_step_s.zip(ms.min_step_s).is_some_and(|(own, asked)| asked < own), "min_step_s"),
        (!all_origins && beyond(Some(&key.embed.origins), ms.origins.as_deref()), "origins"),
    ];
    checks
        .into_iter()
        .filter(|(exceeds, _)| *exceeds)
        .map(|(_, field)| format!("{field} exceeds the key's policy"))
        .collect()
}
