//! Embed tokens: minted here, and explained (docs/specification.md C4).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64URL_NOPAD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::OrgDeps;
use super::api_keys::{key_id, policy};
use crate::api::body::Json;
use crate::api::callers::{MintCaller, SessionCaller};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes;
use crate::api::params::{PathOf, shortened};
use crate::api::routes::{Auth, Login, Routes};
use crate::identity::{
    EmbedGrant, EmbedPolicy, EmbedRequest, Identity, KeyId, MintRequest, Role, TokenRefusal, with_origin,
};
use crate::model::{OrgId, Timestamp};

/// Relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new().post("/orgs/{slug}/embed/tokens", Auth::MintCaller, "Mint an embed token", mint).post(
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
    minter: MintCaller,
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
        minter.charge(key)?;
    }
    let longest = deps.identity.key(org, key).map_or(TTL_S, |key| key.embed.max_token_ttl_s);
    let (now, compiles) = (deps.clock.now(), body.ms.is_some());
    let mint = move |identity: &Identity| {
        let request = MintRequest {
            key,
            ttl_s: body.ttl_s.unwrap_or(TTL_S.min(longest)),
            sub: body.sub,
            ms: body.ms.as_ref().map(|sent| policy("ms", sent)).transpose()?,
        };
        Ok(identity.mint(org, &request, now)?)
    };
    let minted = if compiles { deps.compile(org, mint).await? } else { mint(&deps.identity)? };
    let from = lanes::ORIGIN.try_with(Clone::clone).unwrap_or_default();
    with_origin(&from, || deps.identity.note_minted(org, key, minter.user(), now));
    let body = json!({
        "token": minted.token.expose(),
        "expires_at": minted.expires_at.to_rfc3339(),
        "kid": minted.kid.to_string(),
    });
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IntrospectBody {
    token: String,
    /// As if a page of this origin had sent it; without one, as a server sends it.
    origin: Option<String>,
}

async fn introspect(
    State(deps): State<OrgDeps>,
    cabinet: SessionCaller,
    PathOf(slug): PathOf<String>,
    Json(body): Json<IntrospectBody>,
) -> ApiResult<Json<Value>> {
    let org = cabinet.enter(&slug, Role::Editor)?.org.id;
    let now = deps.clock.now();
    let inspect = move |identity: &Identity| {
        let request = EmbedRequest { token: &body.token, slug: &slug, origin: body.origin.as_deref() };
        Ok(introspection(identity, org, &request, now))
    };
    deps.compile(org, inspect).await.map(Json)
}

/// Why a token fails for an organisation, and what it may see.
pub fn introspection(identity: &Identity, org: OrgId, request: &EmbedRequest<'_>, now: Timestamp) -> Value {
    let verdict = identity.inspect(org, request, now);
    let header = part(request.token, 0);
    let reason = verdict.as_ref().err().map(|refusal| match refusal {
        TokenRefusal::Expired => "exp",
        // Its key is of this organisation, its claim names another.
        TokenRefusal::OrgMismatch => "org",
        refusal => refusal.reason(),
    });
    let kid = header.as_ref().and_then(|header| header.get("kid")?.as_str()?.parse().ok());
    let claims = part(request.token, 1);
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

/// Which claim is missing or not of its type: a typo is named.
fn claims_detail(claims: Option<&Value>) -> String {
    let known = detail("claims");
    let Some(ms) = claims.and_then(|claims| claims.get("ms")) else { return known.to_owned() };
    match EmbedPolicy::from_json(ms) {
        Err(problem) => format!("{known}; in ms: {}", shortened(&problem)),
        Ok(_) => known.to_owned(),
    }
}

/// What is wrong with the key that a token names.
fn key_detail(identity: &Identity, org: OrgId, kid: KeyId, now: Timestamp) -> &'static str {
    let Some(key) = identity.key(org, kid) else {
        return "the header's kid names no API key of this organisation";
    };
    if key.disabled {
        "the API key is disabled"
    } else if key.is_refused(now) {
        "the API key has expired"
    } else if !key.scopes.embed {
        "the API key has not the scope embed"
    } else if key.lacks_secret() {
        "the API key was given the scope embed after it was made, and its secret is not kept: rotate the key once"
    } else {
        "the API key's secret cannot be opened: the server has another master key, or the key is damaged"
    }
}

/// A sentence for each word of [`TokenRefusal`].
fn detail(reason: &str) -> &'static str {
    match reason {
        "size" => "a token has at most 4,096 bytes",
        "form" => "this is not a JWT: three base64url parts between dots, the first of them a JSON object",
        "header" => "the header may not have crit, jku, jwk, x5u, x5c, b64, zip or enc",
        "kid" => "the header needs a kid: the id of the API key that signs, ak_ and 16 characters",
        "key" => "the header's kid names no API key of this organisation",
        "alg" => "the header's alg is not the one that the API key was made with",
        "signature" => "signed with another secret or private key than the API key's",
        "claims" => {
            "a claim is missing or not of its type: org and aud are texts, iat and exp numbers of seconds, ms an object of known fields"
        }
        "aud" => "the claim aud must be ms-embed",
        "iat" => "the claim iat lies in the future: the clocks of signer and server differ by more than 30 s",
        "ttl" => "exp lies before iat, or further behind it than the key's max_token_ttl_s",
        "revoked" => {
            "dated before the key's tokens were revoked, or less than half a minute after; if the server's clock was ahead at that time, make a new key"
        }
        "org" => "the claim org is not this organisation's slug",
        "iss" => "the claim iss, where there is one, must be the API key's id",
        "policy" => "a restriction does not fit, or stands beside ms instead of in it",
        "exp" => "expired: a page fetches a fresh token before the end of the one it has",
        "nbf" => "not valid yet",
        "origin" => "pages of this origin may not use it: token and key must both allow an origin",
        _ => "refused",
    }
}

/// What a token says, verified or not; `null` where it cannot be read.
pub fn part(token: &str, index: usize) -> Option<Value> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::identity::read_label_test;
    use crate::promql::syntax::{Caps, parse_matcher};

    /// Texts that are label tests, nearly so, or not at all.
    fn texts() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec!["tenant", "__name__", "_a1", "le", "or", "by", "1a", "a-b", ""]);
        let op = prop::sample::select(vec!["=", "!=", "=~", "!~", "==", " = ", " =~ ", "~", ""]);
        let piece = prop_oneof![
            "[a-z0-9._|*+/@: -]{0,6}",
            prop::sample::select(vec![
                "\"", "'", "`", "\\", "\\\"", "\\'", "\\n", "\\t", "\\x41", "\\u0041", ",", " or ", "(", ")",
                "ä", "{", "}", "#", "\n"
            ])
            .prop_map(str::to_owned),
        ];
        let inner = prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat());
        let quotes = prop::sample::select(vec![("", ""), ("\"", "\""), ("'", "'"), ("\"", "'"), ("`", "`")]);
        (name, op, quotes, inner)
            .prop_map(|(name, op, (open, close), inner)| format!("{name}{op}{open}{inner}{close}"))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        /// Two readers, one meaning: a restriction is what a question of the same text would be.
        #[test]
        fn a_label_test_that_restricts_means_what_it_means_in_a_question(text in texts()) {
            if let Ok(here) = read_label_test(&text) {
                let there = parse_matcher(&text, &Caps::default());
                let there = there.map_err(|error| TestCaseError::fail(format!("{text:?}: {error}")))?;
                prop_assert_eq!((here.name(), here.op(), here.value()), (there.name(), there.op(), there.value()), "{}", text);
            }
        }
    }
}
