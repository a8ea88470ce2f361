//! Minting: signing tokens with the secret of a key.

use jsonwebtoken::{Algorithm, EncodingKey, Header};

use crate::model::{NameGlob, Timestamp};

use crate::identity::keys::api_key::{ApiKey, FieldError, in_words, policy_errors};
use crate::identity::keys::policy_matcher::PatternLimits;
use crate::identity::tables::id::{KeyId, Secret};
use crate::identity::tables::key::{EmbedPolicy, Endpoint};
use crate::identity::tables::store::StoreError;

use super::claims::{MintedClaims, TokenRestrictions};
use super::token_key::TokenKey;
use super::{AUDIENCE, DashboardDates, TOKEN_BYTES_MAX, first_valid, granted_endpoints};

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

const SUB_BYTES_MAX: usize = 255;

/// Signs a token with the key's secret.
pub(in crate::identity) fn mint(
    key: &ApiKey,
    keys: &TokenKey,
    request: &MintRequest,
    dashboards: &DashboardDates<'_>,
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
    let unrestricted = EmbedPolicy::default();
    let first_valid = first_valid(key, request.ms.as_ref().unwrap_or(&unrestricted), dashboards);
    let iat = first_valid.map_or(now.as_s(), |first| now.as_s().max(first));
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
        (exceeds_dashboard(own, ms), "dashboard"),
        (exceeds_alerts(own, ms), "alerts"),
        (!all_origins && beyond(Some(&key.embed.origins), ms.origins.as_deref()), "origins"),
    ];
    checks
        .into_iter()
        .filter(|(exceeds, _)| *exceeds)
        .map(|(_, field)| format!("{field} exceeds the key's policy"))
        .collect()
}

/// Returns whether `ms` names another dashboard than the key, opens more of it, or names one
/// although the key withholds dashboards.
fn exceeds_dashboard(own: &EmbedPolicy, ms: &EmbedPolicy) -> bool {
    let Some(asked) = &ms.dashboard else { return false };
    let grants = |policy| granted_endpoints(policy).is_none_or(|list| list.contains(&Endpoint::Dashboard));
    (grants(ms) && !grants(own)) || own.dashboard.as_ref().is_some_and(|own| own.is_exceeded_by(asked))
}

/// Returns whether `ms` shows alerts, or more of them, although the key does not.
fn exceeds_alerts(own: &EmbedPolicy, ms: &EmbedPolicy) -> bool {
    let Some(asked) = &ms.alerts else { return false };
    let grants = |policy| granted_endpoints(policy).is_none_or(|list| list.contains(&Endpoint::Alerts));
    (grants(ms) && !grants(own)) || own.alerts.as_ref().is_none_or(|own| own.is_exceeded_by(asked))
}
