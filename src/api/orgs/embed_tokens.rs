//! The minting and the introspection of embed tokens (docs/specification.md C4).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;

use super::OrgDeps;
use super::api_keys::{key_id, policy};
use crate::api::body::Json;
use crate::api::callers::{MemberCaller, MintCaller};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes;
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Login, Routes};
use crate::api::views::embed_token::{introspection, minted_json};
use crate::identity::{EmbedRequest, Identity, MintRequest, Role, with_origin};

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new().post("/orgs/{slug}/embed/tokens", Auth::MintCaller, "Mint an embed token", mint).post(
        "/orgs/{slug}/embed/introspect",
        Auth::Member(Role::Editor, Login::Any),
        "Get the permissions of an embed token, or the reason why it is refused",
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
    Ok((StatusCode::CREATED, Json(minted_json(&minted))).into_response())
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::identity::read_label_test;
    use crate::promql::syntax::{Caps, parse_matcher};

    /// Generates texts, some of which are label matchers.
    fn texts() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec![
            "tenant",
            "__name__",
            "_a1",
            "le",
            "or",
            "by",
            "1a",
            "a-b",
            "",
            "\"la.bel\"",
            "'a b' ",
            "`a\\x`",
            "\"\\u00e9\"",
            "\"a\\\"=\"",
            "\"\"",
            "\"a",
            "\"\\xff\"",
            "\"a\nb\"",
        ]);
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
