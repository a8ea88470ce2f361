//! API keys (docs/specification.md C4). The secret occurs only in the response that creates or
//! rotates the key.
//!
//! Every request object restricts a key, so an unknown field is refused with 422. Otherwise a
//! misspelled restriction would be ignored and the key would grant more.

use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::OrgDeps;
use crate::api::body::Json;
use crate::api::callers::MemberCaller;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::listing::PageRequest;
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Login, Routes};
use crate::api::views::api_key::{NOTHING_TO_READ, key_json};
use crate::api::views::embed_policy::policy_from_json;
use crate::entropy::Entropy;
use crate::identity::{
    ApiKeyChange, EmbedChange, EmbedPolicy, EmbedSettings, Identity, IngestChange, IngestSettings, KeyId,
    KeyScopes, NewApiKey, ReadSettings, Role, Rotation, TokenAlgorithm,
};
use crate::model::{OrgId, Timestamp};

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new()
        .get(
            "/orgs/{slug}/api-keys",
            Auth::Member(Role::Admin, Login::Any),
            "List the API keys of an organisation",
            list,
        )
        .post(
            "/orgs/{slug}/api-keys",
            Auth::Member(Role::Admin, Login::Fresh),
            "Create an API key; only this response contains its secret",
            create,
        )
        .get("/orgs/{slug}/api-keys/{id}", Auth::Member(Role::Admin, Login::Any), "Get an API key", show)
        .patch(
            "/orgs/{slug}/api-keys/{id}",
            Auth::Member(Role::Admin, Login::Any),
            "Change an API key",
            change,
        )
        .delete(
            "/orgs/{slug}/api-keys/{id}",
            Auth::Member(Role::Admin, Login::Any),
            "Delete an API key; the key and its tokens become invalid at once",
            delete,
        )
        .post(
            "/orgs/{slug}/api-keys/{id}/revoke-tokens",
            Auth::Member(Role::Admin, Login::Any),
            "Revoke all embed tokens issued until now",
            revoke_tokens,
        )
        .post(
            "/orgs/{slug}/api-keys/{id}/block-origin",
            Auth::Member(Role::Admin, Login::Any),
            "Refuse the embed tokens of an API key on the pages of an origin",
            block_origin,
        )
        .post(
            "/orgs/{slug}/api-keys/{id}/rotate",
            Auth::Member(Role::Admin, Login::Fresh),
            "Rotate the secret of an API key; the old secret works until the overlap ends",
            rotate,
        )
}

fn not_found() -> ApiError {
    ApiError::new(Code::NotFound, "there is no such API key in this organisation")
}

pub(super) fn key_id(text: &str) -> ApiResult<KeyId> {
    text.parse().map_err(|_| not_found())
}

/// Lists the keys, the oldest first.
async fn list(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    RawQuery(query): RawQuery,
) -> ApiResult<Json<Value>> {
    let page = PageRequest::of_query(query.as_deref())?;
    let keys = deps.identity.keys(caller.org().id);
    page.answer(&keys, |key| (key.created_at, key.id), |key| key_json(key))
}

async fn show(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
) -> ApiResult<Json<Value>> {
    let key = deps.identity.key(caller.org().id, key_id(&id)?).ok_or_else(not_found)?;
    Ok(Json(key_json(&key)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateBody {
    name: String,
    scopes: Vec<String>,
    expires_at: Option<String>,
    embed: Option<EmbedBody>,
    ingest: Option<IngestBody>,
    read: Option<ReadBody>,
}

async fn create(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    Json(body): Json<CreateBody>,
) -> ApiResult<Response> {
    let mut key = NewApiKey {
        name: body.name,
        scopes: scopes(&body.scopes)?,
        expires_at: body.expires_at.as_deref().map(time).transpose()?,
        embed: EmbedSettings { rate_limit_rps: deps.embed_rps_default, ..EmbedSettings::default() },
        ingest: IngestSettings::default(),
        read: ReadSettings::default(),
    };
    if let Some(rate_limit_rps) = body.read.and_then(|read| read.rate_limit_rps) {
        let read = ReadSettings { rate_limit_rps };
        check_read_scope(read, key.read, key.scopes)?;
        key.read = read;
    }
    if let Some(embed) = body.embed {
        let policy = deps.key_policy(caller.org().id, &embed).await?;
        check_embed_scope(policy.as_ref(), key.scopes)?;
        embed.change(policy)?.apply(&mut key.embed);
    }
    if let Some(ingest) = body.ingest {
        ingest.check_scope(key.scopes)?;
        ingest.change().apply(&mut key.ingest);
    }
    let (org, user, now) = (caller.org().id, caller.user(), deps.clock.now());
    let made = deps
        .change(&caller, move |identity| {
            identity.create_key(org, Some(user), key, now, &mut Entropy::system())
        })
        .await?;
    let mut body = key_json(&made.key);
    body["secret"] = made.secret.expose().into();
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeKeyBody {
    name: Option<String>,
    scopes: Option<Vec<String>>,
    #[serde(default, deserialize_with = "null_or_value")]
    expires_at: Option<Option<String>>,
    disabled: Option<bool>,
    embed: Option<EmbedBody>,
    ingest: Option<IngestBody>,
    read: Option<ReadBody>,
}

impl ChangeKeyBody {
    /// Returns whether the change needs a fresh login: all changes do, except a new name and
    /// disabling the key.
    fn needs_fresh_login(&self) -> bool {
        let ChangeKeyBody { name: _, scopes, expires_at, disabled, embed, ingest, read } = self;
        let settings = embed.is_some() || ingest.is_some() || read.is_some();
        settings || scopes.is_some() || expires_at.is_some() || *disabled == Some(false)
    }
}

/// Deserializes a field so that `null` is `Some(None)`. With `default`, a missing field is `None`.
pub(super) fn null_or_value<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

async fn change(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
    Json(body): Json<ChangeKeyBody>,
) -> ApiResult<Json<Value>> {
    if body.needs_fresh_login() {
        caller.require_fresh()?;
    }
    let (org, id, now, user) = (caller.org().id, key_id(&id)?, deps.clock.now(), caller.user());
    let key = deps.identity.key(org, id).ok_or_else(not_found)?;
    let mut change = ApiKeyChange {
        name: body.name,
        scopes: body.scopes.as_deref().map(scopes).transpose()?,
        expires_at: body.expires_at.map(|at| at.as_deref().map(time).transpose()).transpose()?,
        disabled: body.disabled,
        embed: EmbedChange::default(),
        ingest: IngestChange::default(),
        read_rate_limit_rps: body.read.and_then(|read| read.rate_limit_rps),
    };
    let scopes = change.scopes.unwrap_or(key.scopes);
    if let Some(rate_limit_rps) = change.read_rate_limit_rps {
        check_read_scope(ReadSettings { rate_limit_rps }, key.read, scopes)?;
    }
    if let Some(sent) = body.embed {
        let policy = deps.key_policy(org, &sent).await?;
        check_embed_scope(policy.as_ref(), scopes)?;
        change.embed = sent.change(policy)?;
        if change.embed.alg.is_some_and(|alg| alg != key.embed.alg) {
            return Err(ApiError::invalid_field(
                "embed.alg",
                "fixed",
                "the algorithm of a key cannot be changed; create another key",
            ));
        }
    }
    if let Some(sent) = body.ingest {
        sent.check_scope(scopes)?;
        change.ingest = sent.change();
    }
    let changed =
        deps.change(&caller, move |identity| identity.change_key(org, Some(user), id, change, now)).await?;
    Ok(Json(key_json(&changed)))
}

async fn delete(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
) -> ApiResult<StatusCode> {
    let (org, id, now, user) = (caller.org().id, key_id(&id)?, deps.clock.now(), caller.user());
    deps.change(&caller, move |identity| identity.delete_key(org, Some(user), id, now)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn revoke_tokens(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
) -> ApiResult<StatusCode> {
    let (org, id, now, user) = (caller.org().id, key_id(&id)?, deps.clock.now(), caller.user());
    deps.change(&caller, move |identity| identity.revoke_tokens(org, Some(user), id, now)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockBody {
    origin: String,
}

/// Blocks an origin. To unblock it, `embed.blocked_origins` is changed, which needs a fresh login.
async fn block_origin(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
    Json(BlockBody { origin }): Json<BlockBody>,
) -> ApiResult<Json<Value>> {
    let (org, id, now, user) = (caller.org().id, key_id(&id)?, deps.clock.now(), caller.user());
    let block = move |identity: &Identity| identity.block_origin(org, Some(user), id, origin, now);
    let changed = deps.change(&caller, block).await?;
    Ok(Json(key_json(&changed)))
}

/// The longest overlap of two secrets in seconds, inclusive: a week.
const OVERLAP_S_MAX: u64 = 604_800;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RotateBody {
    overlap_s: u64,
}

/// Rotates a key's secret. It needs a fresh login like the creation of a key, because both return a
/// secret.
async fn rotate(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
    Json(body): Json<RotateBody>,
) -> ApiResult<Json<Value>> {
    if body.overlap_s > OVERLAP_S_MAX {
        let message = format!("must be at most {OVERLAP_S_MAX} seconds");
        return Err(ApiError::invalid_field("overlap_s", "too_long", message));
    }
    let (now, overlap) = (deps.clock.now(), Duration::from_secs(body.overlap_s));
    let rotation = Rotation { org: caller.org().id, key: key_id(&id)?, actor: Some(caller.user()), overlap };
    let rotated = deps
        .change(&caller, move |identity| identity.rotate_key(rotation, now, &mut Entropy::system()))
        .await?;
    let mut body = key_json(&rotated.key);
    body["secret"] = rotated.secret.expose().into();
    Ok(Json(body))
}

// -- fields ---------------------------------------------------------------------------------------

fn scopes(words: &[String]) -> ApiResult<KeyScopes> {
    let mut scopes = KeyScopes::default();
    for word in words {
        match word.as_str() {
            "ingest" => scopes.ingest = true,
            "read" => scopes.read = true,
            "embed" => scopes.embed = true,
            "alerting" => scopes.alerting = true,
            _ => {
                return Err(ApiError::invalid_field(
                    "scopes",
                    "unknown",
                    "scopes are ingest, read, embed and alerting",
                ));
            }
        }
    }
    Ok(scopes)
}

pub(super) fn time(text: &str) -> ApiResult<Timestamp> {
    let refused = || {
        ApiError::invalid_field(
            "expires_at",
            "form",
            "must be a time in RFC 3339 format, such as 2026-11-21T10:00:00Z",
        )
    };
    Timestamp::from_rfc3339(text).ok_or_else(refused)
}

/// A public key in a request: SPKI PEM, or a JWK as an object or as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum UploadedKey {
    Text(String),
    Jwk(serde_json::Map<String, Value>),
}

impl UploadedKey {
    fn text(self) -> String {
        match self {
            UploadedKey::Text(text) => text,
            UploadedKey::Jwk(jwk) => Value::Object(jwk).to_string(),
        }
    }
}

/// The object `embed`. Missing fields keep their values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmbedBody {
    alg: Option<String>,
    #[serde(default, deserialize_with = "null_or_value")]
    public_key: Option<Option<UploadedKey>>,
    rate_limit_rps: Option<u32>,
    max_token_ttl_s: Option<u32>,
    origins: Option<Vec<String>>,
    policy: Option<Value>,
    #[serde(default, deserialize_with = "null_or_value")]
    query_seconds_per_minute: Option<Option<u32>>,
    blocked_origins: Option<Vec<String>>,
}

impl OrgDeps {
    /// Compiles the policy in `embed`, if there is one.
    async fn key_policy(&self, org: OrgId, embed: &EmbedBody) -> ApiResult<Option<EmbedPolicy>> {
        let Some(sent) = embed.policy.clone() else { return Ok(None) };
        self.compile(org, move |_| policy("embed.policy", &sent)).await.map(Some)
    }
}

/// Checks that a policy is set only on a key that signs tokens. On another key it would have no
/// effect, although it seems to restrict what the key reads.
///
/// # Errors
/// 422 `validation_failed`.
fn check_embed_scope(policy: Option<&EmbedPolicy>, scopes: KeyScopes) -> ApiResult<()> {
    if !scopes.embed && policy.is_some_and(|policy| *policy != EmbedPolicy::default()) {
        let message = "restricts only embed tokens, and this key does not have the scope embed: it reads without restriction";
        return Err(ApiError::invalid_field("embed.policy", "contradiction", message));
    }
    Ok(())
}

impl EmbedBody {
    fn change(self, policy: Option<EmbedPolicy>) -> ApiResult<EmbedChange> {
        let unknown = || {
            let message = "algorithms are HS256, EdDSA, ES256 and RS256";
            ApiError::invalid_field("embed.alg", "unknown", message)
        };
        let alg =
            self.alg.as_deref().map(|alg| TokenAlgorithm::parse(alg).ok_or_else(unknown)).transpose()?;
        Ok(EmbedChange {
            alg,
            public_key: self.public_key.map(|key| key.map(UploadedKey::text)),
            rate_limit_rps: self.rate_limit_rps,
            max_token_ttl_s: self.max_token_ttl_s,
            origins: self.origins,
            policy,
            query_seconds_per_minute: self.query_seconds_per_minute,
            blocked_origins: self.blocked_origins,
        })
    }
}

/// Parses `embed.policy` of a key, or `ms` of a token, which replaces the whole earlier policy.
///
/// # Errors
/// 422 `validation_failed`.
pub(super) fn policy(field: &'static str, sent: &Value) -> ApiResult<EmbedPolicy> {
    policy_from_json(sent).map_err(|message| ApiError::invalid_field(field, "policy", message))
}

/// The object `ingest`. Missing fields keep their values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IngestBody {
    rate_limit_rps: Option<u32>,
    samples_per_s: Option<u32>,
    labels: Option<std::collections::BTreeMap<String, String>>,
}

/// The object `read`. Missing fields keep their values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadBody {
    rate_limit_rps: Option<u32>,
}

/// Checks that a read rate is set only on a key that can read. The stored rate and the default are
/// allowed on any key, so that a client can send a response back.
///
/// # Errors
/// 422 `validation_failed`.
fn check_read_scope(sent: ReadSettings, stored: ReadSettings, scopes: KeyScopes) -> ApiResult<()> {
    if !scopes.read && sent != stored && sent != ReadSettings::default() {
        return Err(ApiError::invalid_field("read.rate_limit_rps", "contradiction", NOTHING_TO_READ));
    }
    Ok(())
}

impl IngestBody {
    /// Checks that labels are set only on a key that can write.
    fn check_scope(&self, scopes: KeyScopes) -> ApiResult<()> {
        if self.labels.as_ref().is_some_and(|labels| !labels.is_empty()) && !scopes.ingest {
            let message = "labels are added to the series that a key writes, and this key does not have the scope ingest";
            return Err(ApiError::invalid_field("ingest.labels", "contradiction", message));
        }
        Ok(())
    }

    fn change(self) -> IngestChange {
        IngestChange {
            rate_limit_rps: self.rate_limit_rps,
            samples_per_s: self.samples_per_s,
            labels: self.labels.map(|labels| labels.into_iter().collect()),
        }
    }
}
