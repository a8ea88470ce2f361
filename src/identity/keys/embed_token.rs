//! Embed tokens: minted here, or offline with a key's secret; verified in the order of
//! docs/specification.md D7.
//!
//! The `jsonwebtoken` crate checks the signature, the pinned algorithm and the audience. Times are
//! compared here with the caller's `now`, because the crate would read the wall clock.
//!
//! | file | subject |
//! |---|---|
//! | `claims` | the claims of a token as JSON |
//! | `token_key` | the verification material of a key |
//! | `mint` | signing tokens with the secret of a key |

mod claims;
mod mint;
mod token_key;

use std::collections::BTreeMap;

use jsonwebtoken::Validation;
use jsonwebtoken::errors::ErrorKind;

use crate::model::{Matcher, OrgId, Scope, Timestamp};

use crate::identity::keys::api_key::{ApiKey, policy_shape_errors};
use crate::identity::keys::dashboard_policy::{self, DashboardGrant, OtherDashboard};
use crate::identity::tables::id::KeyId;
use crate::identity::tables::key::{AlertsPolicy, EmbedPolicy, Endpoint};

use claims::{Claims, is_nearly_a_restriction};
use token_key::globs;

pub(in crate::identity) use mint::mint;
pub use mint::{MintError, MintRequest, MintedToken};
pub(in crate::identity) use token_key::{CompiledKeyPolicy, KeyRestriction, TokenKey, compile_key_policy};

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
    /// Allowed endpoints; `None` allows all, and [`Endpoint::Dashboard`] and [`Endpoint::Alerts`]
    /// only with `dashboard` and `alerts`.
    pub endpoints: Option<Vec<Endpoint>>,
    /// The only dashboard that may be shown. Its locked variables are in `scope`.
    pub dashboard: Option<DashboardGrant>,
    /// The parts of alerts that may be shown. `Some` only if both the key and the token have
    /// `alerts`.
    pub alerts: Option<AlertsPolicy>,
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
    /// The issue date of the token, which is compared with the date of a revocation; `None` for a
    /// credential that is revoked individually.
    pub issued_at: Option<Timestamp>,
    /// Expiry of the token.
    pub expires_at: Timestamp,
}

impl EmbedGrant {
    /// Returns whether the token has expired, with the leeway of its verification.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        has_expired(self.expires_at, now)
    }

    /// Returns the time of the earliest sample that the token grants at `now`.
    pub fn min_time(&self, now: Timestamp) -> Option<Timestamp> {
        min_time(self.max_lookback_s, now)
    }

    /// Returns whether the token allows this endpoint.
    pub fn allows(&self, endpoint: Endpoint) -> bool {
        (endpoint != Endpoint::Dashboard || self.dashboard.is_some())
            && (endpoint != Endpoint::Alerts || self.alerts.is_some())
            && self.endpoints.as_ref().is_none_or(|list| list.contains(&endpoint))
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

/// Maximum length of a token in bytes.
const TOKEN_BYTES_MAX: usize = 4 * 1_024;
/// Allowed clock difference, seconds.
const LEEWAY_S: i64 = 30;
const AUDIENCE: &str = "ms-embed";
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
    // A token with one of these members is refused: each requires the server to trust a key from
    // the token or to support an extension.
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
    pub(in crate::identity) sub: Option<String>,
    issued_at: Option<Timestamp>,
    expires_at: Timestamp,
}

/// The first valid dates of tokens that name a dashboard, by its uid.
pub(in crate::identity) type DashboardDates<'a> = dyn Fn(&str) -> Option<Timestamp> + 'a;

/// Returns the uid of the dashboard that a token of `key` with this policy names.
pub(in crate::identity) fn dashboard_of<'a>(key: &'a ApiKey, token: &'a EmbedPolicy) -> Option<&'a str> {
    let named = token.dashboard.as_ref().or(key.embed.policy.dashboard.as_ref());
    named.map(|dashboard| dashboard.uid.as_str())
}

/// Returns the first valid date of a token: that of its key or that of its dashboard, whichever is
/// later. The time in whole seconds.
fn first_valid(key: &ApiKey, token: &EmbedPolicy, dashboards: &DashboardDates<'_>) -> Option<i64> {
    let dashboard = dashboard_of(key, token).and_then(dashboards);
    key.tokens_valid_after.max(dashboard).map(whole_second)
}

/// Verifies everything about a token whose cost is linear in its length: the key's state, the
/// signature, the claims, the organisation and the origin. Compiles nothing.
pub(in crate::identity) fn verify(
    key: &ApiKey,
    keys: &TokenKey,
    request: &EmbedRequest<'_>,
    dashboards: &DashboardDates<'_>,
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
    let expires_at = Timestamp::from_s(claims.exp.0);
    if has_expired(expires_at, now) {
        return Err(TokenRefusal::Expired);
    }
    if claims.nbf.is_some_and(|nbf| now_ms < ms_of(nbf.0 - LEEWAY_S)) {
        return Err(TokenRefusal::NotYetValid);
    }
    let (iat, ttl_s) = (claims.iat.0, claims.exp.0 - claims.iat.0);
    // A token minted after a revocation has the first valid date, which may be later than the clock
    // and than its own expiry.
    let policy: EmbedPolicy = claims.ms.unwrap_or_default().into();
    let first_valid = first_valid(key, &policy, dashboards);
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
    if claims.others.keys().any(|name| is_nearly_a_restriction(name))
        || !policy_shape_errors(&policy).is_empty()
    {
        return Err(invalid("policy"));
    }
    if request.slug != key.slug.as_str() {
        return Err(TokenRefusal::OrgMismatch);
    }
    tracing::debug!(key.id = %key.id, sub = claims.sub, jti = ?claims.jti, "an embed token is good");
    let is_blocked = |origin| key.embed.blocked_origins.iter().any(|blocked| blocked == origin);
    if !origins_allow(&origins(key, &policy), request.origin) || request.origin.is_some_and(is_blocked) {
        return Err(TokenRefusal::OriginNotAllowed);
    }
    let issued_at = Some(Timestamp::from_s(iat));
    Ok(CheckedClaims { policy, sub: claims.sub, issued_at, expires_at })
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
pub(in crate::identity) fn first_date_after(before: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let after_skew = now.as_s().saturating_add(LEEWAY_S + 1);
    let after_minted = before.map_or(i64::MIN, |before| whole_second(before).saturating_add(1));
    Timestamp::from_s(after_skew.max(after_minted))
}

/// Returns a date rounded up to seconds; older versions stored milliseconds.
pub(in crate::identity) const fn whole_second(date: Timestamp) -> i64 {
    date.plus_ms(999).as_s()
}

/// Returns the access that the policy of a key grants by itself: that of a token of the key without
/// restrictions of its own.
pub(in crate::identity) fn grant_of_key(
    key: &ApiKey,
    restriction: &KeyRestriction,
    now: Timestamp,
) -> EmbedGrant {
    let expires_at = key.expires_at.unwrap_or(Timestamp::MAX);
    let policy = EmbedPolicy::default();
    let claims = CheckedClaims { policy, sub: None, issued_at: None, expires_at };
    effective(key, restriction, claims, &[], now)
}

/// Returns the intersection of token and key policy; `compiled` are the token's matchers.
pub(super) fn effective(
    key: &ApiKey,
    restriction: &KeyRestriction,
    claims: CheckedClaims,
    compiled: &[Matcher],
    now: Timestamp,
) -> EmbedGrant {
    let own = &key.embed.policy;
    let CheckedClaims { policy: token, sub, issued_at, expires_at } = claims;
    let matchers = restriction.matchers.iter().chain(compiled).cloned().collect();
    let origins = origins(key, &token);
    let token_names = globs(&token);
    let (dashboard, one_dashboard) = match dashboard_policy::intersection(own, &token) {
        Ok(dashboard) => (dashboard, true),
        Err(OtherDashboard) => (None, false),
    };
    let endpoints = match (granted_endpoints(own), granted_endpoints(&token)) {
        (Some(own), Some(token)) => {
            Some(token.into_iter().filter(|endpoint| own.contains(endpoint)).collect())
        }
        (own, token) => own.or(token),
    };
    // A key and its token that name two dashboards have nothing in common.
    let endpoints = if one_dashboard { endpoints } else { Some(Vec::new()) };
    let smaller = |a: Option<u64>, b: Option<u64>| [a, b].into_iter().flatten().min();
    let max_lookback_s = smaller(own.max_lookback_s, token.max_lookback_s);
    let min_time = min_time(max_lookback_s, now);
    EmbedGrant {
        key: key.id,
        rate_limit_rps: key.embed.rate_limit_rps,
        org: key.org,
        scope: Scope {
            matchers,
            names: restriction.names.iter().cloned().chain(token_names).collect(),
            min_time,
        },
        endpoints,
        dashboard,
        alerts: own.alerts.as_ref().zip(token.alerts).map(|(own, token)| own.intersection(token)),
        exprs: own.exprs.iter().cloned().chain(token.exprs).collect(),
        max_range_s: smaller(own.max_range_s, token.max_range_s),
        max_lookback_s,
        min_step_s: own.min_step_s.max(token.min_step_s),
        origins,
        sub,
        issued_at,
        expires_at,
    }
}

fn has_expired(expires_at: Timestamp, now: Timestamp) -> bool {
    now >= expires_at.plus_ms(LEEWAY_S * 1_000)
}

fn min_time(max_lookback_s: Option<u64>, now: Timestamp) -> Option<Timestamp> {
    let lookback_ms = |s: u64| i64::try_from(s).unwrap_or(i64::MAX).saturating_mul(1_000);
    max_lookback_s.map(|s| now.plus_ms(lookback_ms(s).saturating_neg()))
}

/// Returns the endpoints of a policy; `None` is all. A policy that lists no endpoints grants only
/// the dashboard that it names, or else only the expressions that it lists: structured queries and
/// listings would reveal other metrics. The endpoint of alerts is granted in addition if the policy
/// has `alerts`.
fn granted_endpoints(policy: &EmbedPolicy) -> Option<Vec<Endpoint>> {
    let implied = match policy {
        EmbedPolicy { dashboard: Some(_), .. } => Some(Endpoint::Dashboard),
        EmbedPolicy { exprs: Some(_), .. } => Some(Endpoint::Expr),
        _ => None,
    };
    let alerts = policy.alerts.as_ref().map(|_| Endpoint::Alerts);
    policy
        .endpoints
        .clone()
        .or_else(|| implied.map(|one| [Some(one), alerts].into_iter().flatten().collect()))
}
