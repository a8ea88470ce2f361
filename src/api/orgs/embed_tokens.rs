//! Embed tokens: minted here, and explained (API.md C4).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64URL_NOPAD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::OrgDeps;
use super::api_keys::{key_id, policy};
use crate::api::body::Json;
use crate::api::callers::{Cabinet, Minter};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Login, Routes};
use crate::identity::{EmbedGrant, EmbedRequest, MintRequest, Role, TokenRefusal};

/// Relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new().post("/orgs/{slug}/embed/tokens", Auth::Minter, "Mint an embed token", mint).post(
        "/orgs/{slug}/embed/introspect",
        Auth::Member(Role::Editor, Login::Any),
        "Why an embed token fails, and what it may see",
        introspect,
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MintBody {
    api_key_id: Option<String>,
    ttl_s: Option<u32>,
    sub: Option<String>,
    ms: Option<Value>,
}

/// An hour, unless the key allows less.
const TTL_S: u32 = 3_600;

async fn mint(
    State(deps): State<OrgDeps>,
    minter: Minter,
    PathOf(slug): PathOf<String>,
    Json(body): Json<MintBody>,
) -> ApiResult<Response> {
    let (org, calling) = minter.enter(&slug)?;
    let named = body.api_key_id.as_deref().map(key_id).transpose()?;
    let key = match (named, calling) {
        (Some(named), Some(calling)) if named != calling => {
            return Err(ApiError::new(Code::Forbidden, "an API key mints tokens of its own only"));
        }
        (Some(key), _) | (None, Some(key)) => key,
        (None, None) => return Err(ApiError::invalid_field("api_key_id", "required", "say which key signs")),
    };
    if calling.is_none() {
        deps.limits.charge_minting(key)?;
    }
    let longest = deps.identity.key(org, key).map_or(TTL_S, |key| key.embed.max_token_ttl_s);
    let request = MintRequest {
        key,
        ttl_s: body.ttl_s.unwrap_or(TTL_S.min(longest)),
        sub: body.sub,
        ms: body.ms.as_ref().map(|sent| policy("ms", sent)).transpose()?,
    };
    let minted = deps.identity.mint(org, &request, deps.clock.now())?;
    let body = json!({
        "token": minted.token.expose(),
        "expires_at": minted.expires_at.to_rfc3339(),
        "kid": minted.kid.to_string(),
    });
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

#[derive(Deserialize)]
struct IntrospectBody {
    token: String,
}

async fn introspect(
    State(deps): State<OrgDeps>,
    cabinet: Cabinet,
    PathOf(slug): PathOf<String>,
    Json(body): Json<IntrospectBody>,
) -> ApiResult<Json<Value>> {
    cabinet.enter(&slug, Role::Editor)?;
    let request = EmbedRequest { token: &body.token, slug: &slug, origin: None };
    let verdict = deps.identity.embed(&request, deps.clock.now());
    let (reason, effective) = match &verdict {
        Ok(grant) => (None, Some(effective(grant))),
        Err(TokenRefusal::Invalid { reason }) => (Some(*reason), None),
        Err(TokenRefusal::Expired) => (Some("exp"), None),
        Err(TokenRefusal::NotYetValid) => (Some("nbf"), None),
        Err(TokenRefusal::OrgMismatch) => (Some("org"), None),
        Err(TokenRefusal::OriginNotAllowed) => (Some("origin"), None),
    };
    Ok(Json(json!({
        "valid": verdict.is_ok(),
        "reason": reason,
        "header": part(&body.token, 0),
        "claims": part(&body.token, 1),
        "effective": effective,
    })))
}

/// What a token says, verified or not; `null` where it cannot be read.
fn part(token: &str, index: usize) -> Option<Value> {
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
        "max_range_s": grant.max_range_s,
        "max_lookback_s": grant.max_lookback_s,
        "min_step_s": grant.min_step_s,
        "origins": grant.origins,
        "rate_limit_rps": grant.rate_limit_rps,
        "sub": grant.sub,
        "expires_at": grant.expires_at.to_rfc3339(),
    })
}
