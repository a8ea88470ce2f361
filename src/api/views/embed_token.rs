//! A minted embed token, and the introspection of one.

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Value, json};

use crate::api::params::shortened;
use crate::identity::{
    AlertsPolicy, EmbedGrant, EmbedPolicy, EmbedRequest, Identity, KeyId, MintedToken, TokenRefusal,
};
use crate::model::{OrgId, Timestamp};

/// Returns a token that was just minted.
pub fn minted_json(minted: &MintedToken) -> Value {
    json!({
        "token": minted.token.expose(),
        "expires_at": minted.expires_at.to_rfc3339(),
        "kid": minted.kid.to_string(),
    })
}

/// Returns the permissions of a token in an organisation, or the reason why it is refused.
pub fn introspection(identity: &Identity, org: OrgId, request: &EmbedRequest<'_>, now: Timestamp) -> Value {
    let verdict = identity.inspect(org, request, now);
    let header = token_part(request.token, 0);
    let reason = verdict.as_ref().err().map(|refusal| match refusal {
        TokenRefusal::Expired => "exp",
        // The key belongs to this organisation, but the claim names another one.
        TokenRefusal::OrgMismatch => "org",
        refusal => refusal.reason(),
    });
    let kid = header.as_ref().and_then(|header| header.get("kid")?.as_str()?.parse().ok());
    let claims = token_part(request.token, 1);
    let detail = reason.map(|reason| match (reason, kid) {
        ("key", Some(kid)) => key_detail(identity, org, kid, now).to_owned(),
        ("claims", _) => claims_detail(claims.as_ref()),
        (reason, _) => detail(reason).to_owned(),
    });
    json!({
        "valid": verdict.is_ok(),
        "reason": reason,
        "detail": detail,
        "header": header,
        "claims": claims,
        "effective": verdict.as_ref().ok().map(effective),
    })
}

/// Returns which claim is missing or has the wrong type, and names an unknown field of `ms`.
fn claims_detail(claims: Option<&Value>) -> String {
    let general = detail("claims");
    let Some(ms) = claims.and_then(|claims| claims.get("ms")) else { return general.to_owned() };
    match EmbedPolicy::from_json(ms) {
        Err(problem) => format!("{general}; in ms: {}", shortened(&problem)),
        Ok(_) => general.to_owned(),
    }
}

/// Returns why the key that a token names cannot verify it.
fn key_detail(identity: &Identity, org: OrgId, kid: KeyId, now: Timestamp) -> &'static str {
    let Some(key) = identity.key(org, kid) else {
        return "the header's kid names no API key of this organisation";
    };
    if key.disabled {
        "the API key is disabled"
    } else if key.is_refused(now) {
        "the API key has expired"
    } else if !key.scopes.embed {
        "the API key does not have the scope embed"
    } else if key.lacks_secret() {
        "the API key got the scope embed after its creation, and its secret is not stored: rotate the key once"
    } else {
        "the API key's secret cannot be decrypted: the server has another master key, or the key is damaged"
    }
}

/// Returns an explanation of each reason of [`TokenRefusal`].
fn detail(reason: &str) -> &'static str {
    match reason {
        "size" => "a token has at most 4,096 bytes",
        "form" => {
            "this is not a JWT, which has three base64url parts separated by dots, the first one a JSON object"
        }
        "header" => "the header must not have crit, jku, jwk, x5u, x5c, b64, zip or enc",
        "kid" => "the header needs a kid, the id of the API key that signs: ak_ and 16 characters",
        "key" => "the header's kid names no API key of this organisation",
        "alg" => "the header's alg is not the algorithm of the API key",
        "signature" => "the token is not signed with the secret or private key of the API key",
        "claims" => {
            "a claim is missing or has the wrong type: org and aud are strings, iat and exp numbers of seconds, ms an object of known fields"
        }
        "aud" => "the claim aud must be ms-embed",
        "iat" => "the claim iat is in the future: the clocks of signer and server differ by more than 30 s",
        "ttl" => "the claim exp is before iat, or later than the key's max_token_ttl_s after it",
        "revoked" => {
            "the token was issued before the key's tokens were revoked, or less than 30 s after that; if the server's clock was ahead then, create a new key"
        }
        "org" => "the claim org is not this organisation's slug",
        "iss" => "the optional claim iss must be the API key's id",
        "policy" => "a restriction is invalid, or is a claim of its own instead of a field of ms",
        "exp" => "the token has expired: a page must fetch a new token before that",
        "nbf" => "the token is not valid yet",
        "origin" => "pages of this origin may not use the token: token and key must both allow the origin",
        _ => "the token is refused",
    }
}

/// Decodes the part `index` of a token, 0 for the header or 1 for the claims, without verification.
/// Returns `None` if it is not base64url of JSON.
pub fn token_part(token: &str, index: usize) -> Option<Value> {
    let encoded = token.split('.').nth(index)?;
    let bytes = BASE64URL_NOPAD.decode(encoded.as_bytes()).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn effective(grant: &EmbedGrant) -> Value {
    let matchers = grant.scope.matchers.iter().map(ToString::to_string);
    let names =
        grant.scope.names.iter().map(|globs| globs.iter().map(|glob| glob.as_str()).collect::<Vec<_>>());
    json!({
        "endpoints": grant.endpoints,
        "match": matchers.collect::<Vec<_>>(),
        "metrics": names.collect::<Vec<_>>(),
        "exprs": grant.exprs,
        "dashboard": grant.dashboard.as_ref().map(|dashboard| {
            json!({ "uid": dashboard.uid, "locked": dashboard.locked, "open": dashboard.open })
        }),
        "alerts": grant.alerts.as_ref().map(AlertsPolicy::to_json),
        "max_range_s": grant.max_range_s,
        "max_lookback_s": grant.max_lookback_s,
        "min_step_s": grant.min_step_s,
        "origins": grant.origins,
        "rate_limit_rps": grant.rate_limit_rps,
        "sub": grant.sub,
        "expires_at": grant.expires_at.to_rfc3339(),
    })
}
