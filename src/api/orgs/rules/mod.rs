//! The rules of an organisation (docs/specification.md C13): groups, their versions, and the past
//! of a rule.

pub mod alert_list;
mod json;
pub mod listing;
pub mod mimir;
mod past;
mod prometheus_json;
pub mod replaced;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::OrgDeps;
use super::etag::{etag, etag_header, if_match};
use super::targets::wrong;
use crate::api::body::Json;
use crate::api::callers::MemberCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Login, Routes};
use crate::clock::Clock;
use crate::identity::{
    AlertingActor, ExpectedVersion, Identity, NewRuleGroup, RULE_GROUP_BYTES_MAX, Role, RuleGroupError,
    RuleGroupPlace, RuleGroupWrite, StoredRuleGroup,
};
use crate::model::{OrgId, percent_encoded};
use crate::promql::syntax::Caps;
use crate::rules::{RuleEngine, RuleFileOptions, RuleGroup, RuleGroupKey, RuleSource, decode_rule_group};

/// The namespace of groups that are sent without one.
const NAMESPACE: &str = "api";
/// The most bytes of a namespace, inclusive.
const NAMESPACE_BYTES_MAX: usize = 200;
/// The most bytes of the name of a stored group, inclusive.
const NAME_BYTES_MAX: usize = 200;

const READS: Auth = Auth::Member(Role::Viewer, Login::Any);
const WRITES: Auth = Auth::Member(Role::Editor, Login::Any);

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new()
        .get("/orgs/{slug}/rule-groups", READS, "List the groups of rules of an organisation", list)
        .get("/orgs/{slug}/rule-groups/{name}", READS, "Get a group of rules", show)
        .put("/orgs/{slug}/rule-groups/{name}", WRITES, "Create or replace a group of rules", put)
        .delete("/orgs/{slug}/rule-groups/{name}", WRITES, "Remove a group of rules", remove)
        .post("/orgs/{slug}/rules/preview", READS, "Simulate a rule over a past range", past::preview)
        .post(
            "/orgs/{slug}/rules/backfill",
            Auth::AlertingCaller,
            "Write the past samples of a recording rule",
            past::backfill,
        )
        .merge(versions::routes())
}

/// Splits `namespace/group`, or a group of the default namespace.
fn place(org: OrgId, text: &str) -> RuleGroupPlace {
    let (namespace, name) = text.split_once('/').unwrap_or((NAMESPACE, text));
    RuleGroupPlace { org, namespace: namespace.to_owned(), name: name.to_owned() }
}

/// Returns the identity of a group in the engine.
fn key_of(place: &RuleGroupPlace) -> RuleGroupKey {
    let source = RuleSource::Api(Arc::from(place.namespace.as_str()));
    RuleGroupKey { org: place.org, source, name: Arc::from(place.name.as_str()) }
}

/// Returns the name of a group in paths, which [`place`] splits: with its namespace, unless it is
/// the default one and the name has no `/`.
fn path_name(namespace: &str, name: &str) -> String {
    if namespace == NAMESPACE && !name.contains('/') {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

/// A group that was decoded and may be stored.
struct CheckedGroup {
    group: RuleGroup,
    yaml: String,
}

/// Decodes a group and checks that it has the name of its place.
fn decoded(yaml: String, place: &RuleGroupPlace, caps: &Caps) -> ApiResult<CheckedGroup> {
    if yaml.len() > RULE_GROUP_BYTES_MAX {
        return wrong("yaml", format!("a group has at most {RULE_GROUP_BYTES_MAX} bytes"));
    }
    let group = decode_rule_group(&yaml, RuleFileOptions::within(caps))
        .or_else(|error| wrong("yaml", error.to_string()))?;
    if group.name != place.name {
        let mut message =
            format!("the group has the name {:?}, and the path has {:?}", group.name, place.name);
        if group.name.contains('/') {
            // A path without a namespace was split at the first `/` of the name.
            let whole = format!("{}/{}", place.namespace, place.name);
            let namespace = if whole == group.name { NAMESPACE } else { &place.namespace };
            let path = percent_encoded(&path_name(namespace, &group.name));
            message.push_str(&format!(
                "; in a path, the first / separates the namespace from the name: write rule-groups/{path}"
            ));
        }
        return wrong("yaml", message);
    }
    checked(group, yaml)
}

/// Checks the name of a group that was decoded from `yaml`.
fn checked(group: RuleGroup, yaml: String) -> ApiResult<CheckedGroup> {
    let name = &group.name;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let message = format!("1 to {NAME_BYTES_MAX} bytes without control characters are expected");
        return wrong("name", message);
    }
    Ok(CheckedGroup { group, yaml })
}

fn check_namespace(namespace: &str) -> ApiResult<()> {
    let is_valid = !namespace.is_empty()
        && namespace.len() <= NAMESPACE_BYTES_MAX
        && !namespace.contains('/')
        && !namespace.chars().any(char::is_control);
    if is_valid {
        return Ok(());
    }
    let message = format!("1 to {NAMESPACE_BYTES_MAX} bytes without / and control characters are expected");
    Err(ApiError::invalid_parameter("namespace", message))
}

/// Stores a group and gives it to the engine. No evaluation of the version before is later than the
/// time of the change.
fn store(
    identity: &Identity,
    engine: &RuleEngine,
    actor: AlertingActor,
    (place, new): (RuleGroupPlace, CheckedGroup),
    expected: Option<ExpectedVersion>,
    clock: &Clock,
) -> Result<RuleGroupWrite, RuleGroupError> {
    let CheckedGroup { group, yaml } = new;
    let rules = u32::try_from(group.rules.len()).unwrap_or(u32::MAX);
    let key = key_of(&place);
    let _changing = engine.changes();
    let _held = engine.hold(vec![key.clone()]);
    let new = NewRuleGroup { yaml, rules, expected };
    let written = identity.set_rule_group(actor, place, new, clock.now())?;
    if evaluates(identity, key.org) {
        engine.set_group(key.org, key.source, group);
    }
    Ok(written)
}

/// Removes a group from the accounts and from the engine.
fn discard(
    identity: &Identity,
    engine: &RuleEngine,
    actor: AlertingActor,
    (place, expected): (RuleGroupPlace, ExpectedVersion),
    clock: &Clock,
) -> Result<(), RuleGroupError> {
    let key = key_of(&place);
    let _changing = engine.changes();
    let _held = engine.hold(vec![key.clone()]);
    identity.remove_rule_group(actor, place, expected, clock.now())?;
    engine.remove_group(&key);
    Ok(())
}

/// Returns whether the rules of an organisation are evaluated here: it is not deleted, this process
/// is not a replica, and the samples are not on another server.
fn evaluates(identity: &Identity, org: OrgId) -> bool {
    !identity.is_replica() && identity.engine(org).is_none() && exists(identity, org)
}

/// Returns whether an organisation is not deleted. If that cannot be read, it counts as existing.
fn exists(identity: &Identity, org: OrgId) -> bool {
    !matches!(identity.org(org), Ok(None))
}

/// Removes the groups of deleted organisations from the engine, which then writes no more samples
/// for them.
pub fn forget_deleted(identity: &Identity, engine: &RuleEngine) {
    engine.orgs().into_iter().filter(|org| !exists(identity, *org)).for_each(|org| engine.forget_org(org));
}

/// Makes the groups that are evaluated equal to those that are stored. To be called at the start,
/// after a promotion, and then from time to time, because engines of organisations change.
pub fn reconcile(identity: &Identity, engine: &RuleEngine) {
    let _changing = engine.changes();
    let stored = match identity.all_rule_groups() {
        Ok(stored) => stored,
        Err(error) => return tracing::warn!("groups of rules cannot be read: {error}"),
    };
    let mut wanted: BTreeMap<RuleGroupKey, StoredRuleGroup> = BTreeMap::new();
    let mut known: BTreeMap<OrgId, bool> = BTreeMap::new();
    for group in stored {
        let org = group.place.org;
        if *known.entry(org).or_insert_with(|| evaluates(identity, org)) {
            wanted.insert(key_of(&group.place), group);
        }
    }
    let running: BTreeSet<RuleGroupKey> = engine.keys().into_iter().collect();
    for key in &running {
        let is_stored = wanted.contains_key(key) || matches!(key.source, RuleSource::File(_));
        match known.get(&key.org) {
            _ if is_stored => {}
            Some(true) => engine.remove_group(key),
            Some(false) | None => engine.forget_group(key),
        }
    }
    let caps = engine.settings().caps;
    for (key, group) in wanted.into_iter().filter(|(key, _)| !running.contains(key)) {
        match decode_rule_group(&group.yaml, RuleFileOptions::within(&caps)) {
            Ok(decoded) => engine.set_group(key.org, key.source, decoded),
            // An older version of the program may not read a group that a newer one stored.
            Err(error) => {
                tracing::warn!(org = key.org.0, "the group of rules {} is not read: {error}", key.name)
            }
        }
    }
}

// -- handlers -------------------------------------------------------------------------------------

async fn list(State(deps): State<OrgDeps>, caller: MemberCaller) -> ApiResult<Json<Value>> {
    let (org, engine) = (caller.org().id, Arc::clone(&deps.rules));
    let read = move |identity: &Identity| {
        let mut data: Vec<Value> = identity.rule_groups(org)?.iter().map(json::stored).collect();
        data.extend(engine.groups(org).iter().filter_map(|view| json::of_file(view)));
        Ok(Json(json!({ "data": data })))
    };
    deps.read(org, read).await
}

async fn show(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, name)): PathOf<(String, String)>,
) -> ApiResult<Response> {
    let (org, engine) = (caller.org().id, Arc::clone(&deps.rules));
    let read = move |identity: &Identity| match identity.rule_group(&place(org, &name)) {
        Ok(group) => Ok((etag_header(&etag(group.version)), Json(json::stored(&group))).into_response()),
        Err(RuleGroupError::NotFound) => {
            let views = engine.groups(org);
            let mut of_files = views.iter().filter(|view| *view.key.name == *name);
            let found = of_files.find_map(|view| json::of_file(view)).ok_or(RuleGroupError::NotFound)?;
            Ok(Json(found).into_response())
        }
        Err(error) => Err(error.into()),
    };
    deps.read(org, read).await
}

/// A group as it is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupBody {
    yaml: String,
}

async fn put(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, name)): PathOf<(String, String)>,
    headers: HeaderMap,
    Json(body): Json<GroupBody>,
) -> ApiResult<Response> {
    let (org, user, clock) = (caller.org().id, caller.user(), deps.clock.clone());
    let place = place(org, &name);
    check_namespace(&place.namespace)?;
    let (wanted, caps) = (place.clone(), deps.rules.settings().caps);
    let new = deps.compile(org, move |_| decoded(body.yaml, &wanted, &caps)).await?;
    let (engine, expected) = (Arc::clone(&deps.rules), if_match(&headers));
    let change = move |identity: &Identity| {
        store(identity, &engine, AlertingActor::User(user), (place, new), expected, &clock)
    };
    let RuleGroupWrite { group, is_new } = deps.change(&caller, change).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, etag_header(&etag(group.version)), Json(json::stored(&group))).into_response())
}

async fn remove(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, name)): PathOf<(String, String)>,
    headers: HeaderMap,
) -> ApiResult<StatusCode> {
    let (org, user, clock) = (caller.org().id, caller.user(), deps.clock.clone());
    let (place, engine) = (place(org, &name), Arc::clone(&deps.rules));
    let expected = if_match(&headers).unwrap_or(ExpectedVersion::Any);
    let change = move |identity: &Identity| {
        discard(identity, &engine, AlertingActor::User(user), (place, expected), &clock)
    };
    deps.change(&caller, change).await?;
    Ok(StatusCode::NO_CONTENT)
}
