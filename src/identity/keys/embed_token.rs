//! Embed tokens: minted here, or offline with a key's secret; verified in the order of
//! docs/specification.md D7.
//!
//! The `jsonwebtoken` crate checks the signature, the pinned algorithm and the audience. Times are
//! compared here with the caller's `now`, because the crate would read the wall clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::model::{Matcher, NameGlob, OrgId, Scope, Timestamp};

use crate::identity::keys::api_key::{ApiKey, FieldError, in_words, policy_errors, policy_shape_errors};
use crate::identity::keys::policy_matcher::{self, PatternLimits};
use crate::identity::keys::public_key;
use crate::identity::tables::id::{KeyId, Secret};
use crate::identity::tables::key::{EmbedPolicy, Endpoint, TokenAlgorithm};
use crate::identity::tables::store::StoreError;

/// A token and the request that uses it.
#[derive(Clone, Copy, Debug)]
pub struct EmbedRequest<'a> {
    /// The bearer token.
    pub token: &'a str,
    /// The slug in the path, unchecked.
    pub slug: &'a str,
    /// The header `Origin`, if sent.
    pub origin: Option<&'a str>,
}

/// The access that a verified token grants: the intersection of token and key policy.
#[derive(Clone, Debug)]
pub struct EmbedGrant {
    /// The key that signed it; its rate limit is shared by all of its tokens.
    pub key: KeyId,
    /// Allowed requests a second of that key.
    pub rate_limit_rps: u32,
    /// The organisation whose series may be read.
    pub org: OrgId,
    /// The series and times that may be read.
    pub scope: Scope,
    /// Allowed endpoints; `None` allows all.
    pub endpoints: Option<Vec<Endpoint>>,
    /// Allow-lists of expressions. An expression must be in each list; compare after parsing and
    /// printing.
    pub exprs: Vec<Vec<String>>,
    /// Maximum range of a query, seconds.
    pub max_range_s: Option<u64>,
    /// Maximum age of a sample, in seconds before now; `scope.min_time` is the same as a time.
    pub max_lookback_s: Option<u64>,
    /// Minimum step, seconds.
    pub min_step_s: Option<u64>,
    /// Allow-lists of origins. The origin must be in each list; `*` allows all. Used for the CORS
    /// headers.
    pub origins: Vec<Vec<String>>,
    /// The viewer, for the audit log.
    pub sub: Option<String>,
    /// Expiry of the token.
    pub expires_at: Timestamp,
}

impl EmbedGrant {
    /// Returns whether the token allows this endpoint.
    pub fn allows(&self, endpoint: Endpoint) -> bool {
        self.endpoints.as_ref().is_none_or(|list| list.contains(&endpoint))
    }

    /// Returns whether expressions are restricted to allow-lists.
    pub fn restricts_exprs(&self) -> bool {
        !self.exprs.is_empty()
    }

    /// Returns whether a page of this origin may use the token. A request without `Origin` comes
    /// from a server and may.
    pub fn allows_origin(&self, origin: Option<&str>) -> bool {
        origins_allow(&self.origins, origin)
    }
}

/// Reasons to refuse a token. All but three are `token_invalid` to the client; `reason` is for
/// introspection and the audit log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// 401 `token_invalid`.
    #[error("the embed token is not valid ({reason})")]
    Invalid {
        /// A stable word: `size`, `form`, `header`, `kid`, `key`, `alg`, `signature`, `claims`,
        /// `aud`, `iat`, `ttl`, `revoked`, `org`, `iss`, `policy`.
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
    /// Returns whether the text is not a token at all: it does not have three parts between dots,
    /// the first of which is a JSON object in base64url.
    pub fn is_no_token(&self) -> bool {
        matches!(self, TokenRefusal::Invalid { reason: FORM })
    }

    /// Returns a stable word for the audit log and introspection. It must not be sent to the
    /// client.
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

/// A request to mint a token.
#[derive(Clone, Debug)]
pub struct MintRequest {
    /// The key that signs.
    pub key: KeyId,
    /// Lifetime in seconds, 1 to the key's `max_token_ttl_s`.
    pub ttl_s: u32,
    /// The viewer; at most 255 bytes.
    pub sub: Option<String>,
    /// Restrictions of the token; with `None` only the key's policy applies.
    pub ms: Option<EmbedPolicy>,
}

/// A newly minted token.
#[derive(Debug)]
pub struct MintedToken {
    /// The JWT.
    pub token: Secret,
    /// Expiry.
    pub expires_at: Timestamp,
    /// The key that signed it.
    pub kid: KeyId,
}

/// Errors of minting a token.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// The organisation has no such key, or it is disabled, expired, or without the scope `embed`:
    /// `not_found`.
    #[error("no such API key, or it may not sign embed tokens")]
    UnknownKey,
    /// The server does not have the private key: `key_is_asymmetric`.
    #[error("this key signs with a private key that only you hold")]
    Asymmetric,
    /// The key got the scope `embed` after its creation: `conflict`.
    #[error(
        "this key's secret is not stored, because it was created without the scope embed: rotate it once"
    )]
    SecretNotKept,
    /// `validation_failed`.
    #[error("{}", in_words(.0))]
    Validation(Vec<FieldError>),
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Maximum length of a token in bytes.
const TOKEN_BYTES_MAX: usize = 4 * 1_024;
/// Allowed clock difference, seconds.
const LEEWAY_S: i64 = 30;
const AUDIENCE: &str = "ms-embed";
const SUB_BYTES_MAX: usize = 255;
/// Maximum date: 2^53 seconds, the largest range of integers that a double represents exactly.
const DATE_MAX_S: i64 = 1 << 53;

/// The verification material of a key's tokens, prepared when the key is loaded.
#[derive(Debug)]
pub(in crate::identity) struct TokenKey {
    algorithm: Algorithm,
    decoding: DecodingKey,
    /// The secret, with which the server can mint; HS256 only.
    signing: Option<Secret>,
    matchers: Arc<[Matcher]>,
    names: Option<Vec<NameGlob>>,
}

/// A key whose stored material is damaged: it verifies no tokens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an API key cannot verify embed tokens: {0}")]
pub(in crate::identity) struct TokenKeyError(String);

impl TokenKey {
    /// Prepares the material of `key`. `secret` is the key's own for HS256, `None` for other
    /// algorithms.
    pub(in crate::identity) fn new(
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

/// Compiles the matchers of a key's policy; takes about 20 ms at most.
pub(super) fn compile_key_policy(policy: &EmbedPolicy) -> CompiledKeyPolicy {
    let matchers = policy_matcher::parse_all(&policy.matchers, PatternLimits::KEY);
    matchers.map(Arc::from).map_err(|error| TokenKeyError(error.to_string()))
}

pub(in crate::identity) fn algorithm(alg: TokenAlgorithm) -> Algorithm {
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

/// The claim `ms`: restrictions of a token. Unknown fields and `null` are refused, because a typo
/// would grant more access.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TokenRestrictions {
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

/// The field names of [`TokenRestrictions`]. As claims beside `ms`, each would be ignored and so
/// grant more access.
const MS_FIELDS: [&str; 8] =
    ["endpoints", "metrics", "match", "exprs", "max_range_s", "max_lookback_s", "min_step_s", "origins"];

/// Returns whether a claim looks like a restriction, also with different letter case, such as `MS`
/// or `Match`.
fn is_nearly_a_restriction(claim: &str) -> bool {
    MS_FIELDS.iter().chain(&["ms"]).any(|name| name.eq_ignore_ascii_case(claim))
}

fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Deserialises restrictions from an object only. A derived struct would also accept an array, by
/// position, and an empty array would restrict nothing.
fn object<'de, D: Deserializer<'de>>(from: D) -> Result<Option<TokenRestrictions>, D::Error> {
    struct Object;
    impl<'de> Visitor<'de> for Object {
        type Value = TokenRestrictions;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object of restrictions")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TokenRestrictions, A::Error> {
            TokenRestrictions::deserialize(MapAccessDeserializer::new(map))
        }
    }
    from.deserialize_map(Object).map(Some)
}

impl From<TokenRestrictions> for EmbedPolicy {
    fn from(ms: TokenRestrictions) -> EmbedPolicy {
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

impl From<EmbedPolicy> for TokenRestrictions {
    fn from(policy: EmbedPolicy) -> TokenRestrictions {
        TokenRestrictions {
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
    /// Parses `embed.policy` of a key, or `ms` of a request to mint, in the API's form: `null`
    /// restricts nothing, and an unknown field is refused.
    ///
    /// # Errors
    /// A message that names the field.
    pub fn from_json(json: &serde_json::Value) -> Result<EmbedPolicy, String> {
        let serde_json::Value::Object(fields) = json else { return Err("must be an object".into()) };
        let set =
            fields.iter().filter(|(name, value)| !value.is_null() || !MS_FIELDS.contains(&name.as_str()));
        let object = set.map(|(name, value)| (name.clone(), value.clone())).collect();
        let ms: TokenRestrictions =
            serde_json::from_value(serde_json::Value::Object(object)).map_err(|e| e.to_string())?;
        Ok(ms.into())
    }
}

/// Seconds since 1970, whole or with a fraction (RFC 7519 section 2), rounded down.
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
    /// For the log only; there is no list of revoked ids.
    jti: Option<serde_json::Value>,
    #[serde(default, deserialize_with = "object")]
    ms: Option<TokenRestrictions>,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

/// The token is not signed with the key's secret.
pub(super) const FOREIGN_SIGNATURE: TokenRefusal = invalid("signature");

/// The reason for a text without the form of a token.
const FORM: &str = "form";

const fn invalid(reason: &'static str) -> TokenRefusal {
    TokenRefusal::Invalid { reason }
}

/// Steps 1 and 2 of docs/specification.md D7: returns the key that a token names, after checking
/// the rest of its header.
pub(in crate::identity) fn key_id(token: &str) -> Result<KeyId, TokenRefusal> {
    let header = header(token)?;
    // The mere presence is refused: each of these asks the server to trust a key from the token or
    // to understand an extension.
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

/// The claims of a token whose signature has been verified.
#[derive(Clone, Debug)]
pub(in crate::identity) struct CheckedClaims {
    /// The token's own restrictions. Counts and lengths have been checked; patterns are not
    /// compiled.
    pub(in crate::identity) policy: EmbedPolicy,
    sub: Option<String>,
    expires_at: Timestamp,
}

/// Verifies everything about a token whose cost is linear in its length: the key's state, the
/// signature, the claims, the organisation and the origin. Compiles nothing.
pub(in crate::identity) fn verify(
    key: &ApiKey,
    keys: &TokenKey,
    request: &EmbedRequest<'_>,
    now: Timestamp,
) -> Result<CheckedClaims, TokenRefusal> {
    if key.is_refused(now) || !key.scopes.embed {
        return Err(invalid("key"));
    }
    // The crate parses only the names of its own algorithms and would report `none` as an error in
    // the claims.
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
    // A token minted after a revocation has the first valid date, which may be later than the clock
    // and than its own expiry.
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

/// Returns the allow-lists of origins of a key and a token's policy; an origin must be in each.
pub(in crate::identity) fn origins(key: &ApiKey, token: &EmbedPolicy) -> Vec<Vec<String>> {
    std::iter::once(&key.embed.origins).chain(&token.origins).cloned().collect()
}

/// Returns whether every list allows `origin`. A request without one comes from a server and
/// passes.
fn origins_allow(lists: &[Vec<String>], origin: Option<&str>) -> bool {
    origin.is_none_or(|origin| {
        lists.iter().all(|list| list.iter().any(|allowed| allowed == "*" || allowed == origin))
    })
}

/// Steps 4 and 5: verifies the signature with the pinned algorithm, the audience, and the types of
/// the claims.
fn signed_claims(keys: &TokenKey, token: &str) -> Result<Claims, TokenRefusal> {
    let mut validation = Validation::new(keys.algorithm);
    // The crate enforces only required claims; without this line a token without `aud` would pass.
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

/// The patterns of the token do not compile, or exceed the limits of a token.
pub(super) const BAD_PATTERNS: TokenRefusal = invalid("policy");

/// Returns the first valid `iat` after a revocation at `now`, in whole seconds. No accepted token
/// has this date or a later one:
/// - tokens that other programs sign are accepted up to [`LEEWAY_S`] ahead of `now`;
/// - tokens minted since the last revocation may have its date `before`, however far ahead of `now`
///   that is.
pub(super) fn first_date_after(before: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let after_skew = now.as_s().saturating_add(LEEWAY_S + 1);
    let after_minted = before.map_or(i64::MIN, |before| whole_second(before).saturating_add(1));
    Timestamp::from_s(after_skew.max(after_minted))
}

/// Returns a date rounded up to seconds; older versions stored milliseconds.
const fn whole_second(date: Timestamp) -> i64 {
    date.plus_ms(999).as_s()
}

/// Returns the intersection of token and key policy; `compiled` are the token's matchers.
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

/// Returns the endpoints of a policy; `None` is all. A policy that lists expressions and no
/// endpoints grants only those expressions: structured queries and listings would reveal what the
/// list hides.
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
    ms: Option<TokenRestrictions>,
}

/// Signs a token with the key's secret.
pub(in crate::identity) fn mint(
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
    // A token minted soon after a revocation gets the first valid date, so that it does not count
    // as revoked. Its expiry does not change.
    let iat = now.as_s().max(key.tokens_valid_after.map_or(i64::MIN, whole_second));
    let exp = now.as_s().saturating_add(i64::from(request.ttl_s));
    let header = Header { kid: Some(key.id.to_string()), ..Header::new(Algorithm::HS256) };
    let ms = request.ms.clone().map(TokenRestrictions::from);
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

/// Returns the fields of `ms` that exceed the key's policy. They would have no effect; the caller
/// learns of the mistake.
fn excesses(key: &ApiKey, ms: &EmbedPolicy) -> Vec<String> {
    fn beyond<T: PartialEq>(own: Option<&[T]>, asked: Option<&[T]>) -> bool {
        own.zip(asked).is_some_and(|(own, asked)| asked.iter().any(|one| !own.contains(one)))
    }
    let own = &key.embed.policy;
    let over = |own: Option<u64>, asked: Option<u64>| own.zip(asked).is_some_and(|(own, asked)| asked > own);
    let all_origins = key.embed.origins.iter().any(|origin| origin == "*");
    // Metric names contain no `*`. So a glob that matches the other glob's text, stars taken
    // literally, matches everything that the other matches.
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
