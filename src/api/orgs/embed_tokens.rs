//! The minting and the introspection of embed tokens (docs/specification.md C4).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64URL_NOPAD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::OrgDeps;
use super::api_keys::{key_id, policy};
use crate::api::body::Json;
use crate::api::callers::{MemberCaller, MintCaller};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes;
use crate::api::params::{PathOf, shortened};
use crate::api::routes::{Auth, Login, Routes};
use crate::identity::{
    EmbedGrant, EmbedPolicy, EmbedRequest, Identity, KeyId, MintRequest, Role, TokenRefusal, with_origin,
};
use crate::model::{OrgId, Timestamp};

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new().post("/orgs/{slug}/embed/tokens", Auth::MintCaller, "Mint an embed token", mint).post(
        "/orgs/{slug}/embed/introspect",
        Auth::Member(Role::Editor, Login::Any),
        "Explain why an embed token fails, or what it grants",
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

/// The default lifetime of a token in seconds, unless the key allows less.
const TTL_DEFAULT_S: u32 = 3_600;

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
            return Err(ApiError::new(Code::Forbidden, "an API key can mint only its own tokens"));
        }
        (Some(key), _) | (None, Some(key)) => key,
        (None, None) => {
            let message = "the id of the API key that signs is required";
            return Err(ApiError::invalid_field("api_key_id", "required", message));
        }
    };
    if calling.is_none() {
        minter.charge(key)?;
    }
    let longest = deps.identity.key(org, key).map_or(TTL_DEFAULT_S, |key| key.embed.max_token_ttl_s);
    let (now, compiles) = (deps.clock.now(), body.ms.is_some());
    let mint = move |identity: &Identity| {
        let request = MintRequest {
            key,
            ttl_s: body.ttl_s.unwrap_or(TTL_DEFAULT_S.min(longest)),
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
    /// The origin of the page that uses the token; `None` for a server.
    origin: Option<String>,
}

async fn introspect(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    Json(body): Json<IntrospectBody>,
) -> ApiResult<Json<Value>> {
    let (org, slug) = (caller.org().id, caller.org().slug.clone());
    let now = deps.clock.now();
    let inspect = move |identity: &Identity| {
        let request =
            EmbedRequest { token: &body.token, slug: slug.as_str(), origin: body.origin.as_deref() };
        Ok(introspection(identity, org, &request, now))
    };
    deps.compile(org, inspect).await.map(Json)
}

/// Returns why a token fails for an organisation, or what it grants.
pub fn introspection(identity: &Identity, org: OrgId, request: &EmbedRequest<'_>, now: Timestamp) -> Value {
    let verdict = identity.inspect(org, request, now);
    let header = part(request.token, 0);
    let reason = verdict.as_ref().err().map(|refusal| match refusal {
        TokenRefusal::Expired => "exp",
        // The key belongs to this organisation, but the claim names another one.
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

    /// Generates texts, some of which are label matchers.
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

        /// The parser of policies and the parser of queries agree on every text that a policy
        /// accepts.
        #[test]
        fn a_matcher_means_the_same_in_a_policy_and_in_a_query(text in texts()) {
            if let Ok(policy) = read_label_test(&text) {
                let query = parse_matcher(&text, &Caps::default());
                let query = query.map_err(|error| TestCaseError::fail(format!("{text:?}: {error}")))?;
                let parts = |matcher: &crate::model::Matcher| {
                    (matcher.name().to_owned(), matcher.op(), matcher.value().to_owned())
                };
                prop_assert_eq!(parts(&policy), parts(&query), "{}", text);
            }
        }
    }
}
