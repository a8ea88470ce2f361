//! The ruler configuration of Mimir, as mimirtool and Grafana send it (Mimir's HTTP API, "Ruler
//! rules API"): groups of rules in namespaces, as YAML.
//!
//! Members and API keys with the scope `read` may read; editors and API keys with the scope
//! `alerting` may change. A change replaces any version.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::{check_namespace, checked, discard, key_of, store};
use crate::api::body::read;
use crate::api::callers::{AlertingCaller, PrometheusCaller};
use crate::api::error::{ApiError, ApiResult};
use crate::api::lanes::Lane;
use crate::api::orgs::OrgDeps;
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Routes};
use crate::identity::{
    AlertingActor, ExpectedVersion, Identity, RULE_GROUP_BYTES_MAX, RuleGroupError, RuleGroupPlace,
    StoredRuleGroup,
};
use crate::model::OrgId;
use crate::rules::{RuleEngine, RuleFileOptions, RuleSource, decode_rule_group, group_text};

const READS: Auth = Auth::PrometheusCaller(None);
const WRITES: Auth = Auth::AlertingCaller;

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    const ALL: &str = "/orgs/{slug}/prometheus/config/v1/rules";
    const NAMESPACE: &str = "/orgs/{slug}/prometheus/config/v1/rules/{namespace}";
    const GROUP: &str = "/orgs/{slug}/prometheus/config/v1/rules/{namespace}/{group}";
    Routes::new()
        .get(ALL, READS, "Mimir: list the groups of rules", list)
        .get(NAMESPACE, READS, "Mimir: list the groups of rules of a namespace", list_namespace)
        .post(NAMESPACE, WRITES, "Mimir: create or replace a group of rules", set)
        .delete(NAMESPACE, WRITES, "Mimir: remove the groups of rules of a namespace", remove_namespace)
        .get(GROUP, READS, "Mimir: get a group of rules", show)
        .delete(GROUP, WRITES, "Mimir: remove a group of rules", remove)
}

pub(super) fn yaml(text: String) -> Response {
    let kind = HeaderValue::from_static("application/yaml");
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// Returns Mimir's response to a change.
fn accepted() -> Response {
    let body = json!({ "status": "success", "data": null, "errorType": "", "error": "" }).to_string();
    let kind = HeaderValue::from_static("application/json");
    (StatusCode::ACCEPTED, [(header::CONTENT_TYPE, kind)], body).into_response()
}

impl OrgDeps {
    /// Enters the organisation to read its rules. An embed token sees none.
    fn enters(caller: &PrometheusCaller, slug: &str) -> ApiResult<OrgId> {
        let access = caller.enter_any(slug)?;
        if access.grant.is_token() { Err(none()) } else { Ok(access.access.org) }
    }

    /// Returns the groups of an organisation, or those of one namespace.
    async fn ruler_groups(&self, org: OrgId, namespace: Option<String>) -> ApiResult<Response> {
        let engine = Arc::clone(&self.rules);
        let read = move |identity: &Identity| {
            let mut stored = identity.rule_groups(org)?;
            stored.retain(|group| namespace.as_ref().is_none_or(|wanted| group.place.namespace == *wanted));
            let groups: Vec<(String, RuleGroupPlace)> = stored
                .into_iter()
                .filter_map(|group| Some((written(&engine, &group)?, group.place)))
                .collect();
            if groups.is_empty() { Err(none()) } else { Ok(namespaces(&groups)) }
        };
        self.read(org, read).await.map(yaml)
    }

    /// Runs a change of a caller that may write on the account lane.
    async fn ruler_change<T: Send + 'static>(
        &self,
        caller: &AlertingCaller,
        slug: &str,
        change: impl FnOnce(&Identity, OrgId, AlertingActor) -> Result<T, RuleGroupError> + Send + 'static,
    ) -> ApiResult<T> {
        let (identity, caller, slug) = (Arc::clone(&self.identity), caller.clone(), slug.to_owned());
        let change = move || {
            // The body may have arrived long after the first check.
            let access = caller.enter(&slug)?;
            change(&identity, access.org, access.sender.actor()).map_err(ApiError::from)
        };
        self.lanes.run(Lane::Account, change).await?
    }
}

/// Returns the text of a group as this server writes it; `None` for one that it cannot read.
fn written(engine: &RuleEngine, stored: &StoredRuleGroup) -> Option<String> {
    match engine.group(&key_of(&stored.place)) {
        Some(view) => Some(group_text(&view.group)),
        // The group is not evaluated here, so the engine has no view of it.
        None => Some(group_text(&decode_rule_group(&stored.yaml, RuleFileOptions::default()).ok()?)),
    }
}

/// Writes namespaces and their groups, which are in the order of namespaces, as Mimir does.
fn namespaces(groups: &[(String, RuleGroupPlace)]) -> String {
    let mut out = String::new();
    let mut last = None;
    for (text, place) in groups {
        if last.replace(&place.namespace) != Some(&place.namespace) {
            let _ = writeln!(out, "{}:", json!(place.namespace));
        }
        for (index, line) in text.lines().enumerate() {
            let _ = writeln!(out, "{}{line}", if index == 0 { "    - " } else { "      " });
        }
    }
    out
}

fn none() -> ApiError {
    RuleGroupError::NotFound.into()
}

async fn list(
    State(deps): State<OrgDeps>,
    caller: PrometheusCaller,
    PathOf(slug): PathOf<String>,
) -> ApiResult<Response> {
    deps.ruler_groups(OrgDeps::enters(&caller, &slug)?, None).await
}

async fn list_namespace(
    State(deps): State<OrgDeps>,
    caller: PrometheusCaller,
    PathOf((slug, namespace)): PathOf<(String, String)>,
) -> ApiResult<Response> {
    deps.ruler_groups(OrgDeps::enters(&caller, &slug)?, Some(namespace)).await
}

async fn show(
    State(deps): State<OrgDeps>,
    caller: PrometheusCaller,
    PathOf((slug, namespace, name)): PathOf<(String, String, String)>,
) -> ApiResult<Response> {
    let org = OrgDeps::enters(&caller, &slug)?;
    let engine = Arc::clone(&deps.rules);
    let read = move |identity: &Identity| {
        let stored = identity.rule_group(&RuleGroupPlace { org, namespace, name })?;
        written(&engine, &stored).ok_or_else(none)
    };
    deps.read(org, read).await.map(yaml)
}

async fn set(
    State(deps): State<OrgDeps>,
    caller: AlertingCaller,
    PathOf((slug, namespace)): PathOf<(String, String)>,
    body: Body,
) -> ApiResult<Response> {
    let org = caller.enter(&slug)?.org;
    check_namespace(&namespace)?;
    let bytes = read(body, RULE_GROUP_BYTES_MAX).await?;
    let caps = deps.rules.settings().caps;
    let decode = move |_: &Identity| {
        let invalid = |message: String| ApiError::invalid_parameter("body", message);
        let text =
            String::from_utf8(bytes.to_vec()).map_err(|_| invalid("the body is not UTF-8".to_owned()))?;
        let group =
            decode_rule_group(&text, RuleFileOptions::within(&caps)).map_err(|e| invalid(e.to_string()))?;
        checked(group, text)
    };
    let new = deps.compile(org, decode).await?;
    let (engine, clock) = (Arc::clone(&deps.rules), deps.clock.clone());
    let change = move |identity: &Identity, org, actor| {
        let place = RuleGroupPlace { org, namespace, name: new.group.name.clone() };
        store(identity, &engine, actor, (place, new), Some(ExpectedVersion::Any), &clock)
    };
    deps.ruler_change(&caller, &slug, change).await?;
    Ok(accepted())
}

async fn remove(
    State(deps): State<OrgDeps>,
    caller: AlertingCaller,
    PathOf((slug, namespace, name)): PathOf<(String, String, String)>,
) -> ApiResult<Response> {
    let (engine, clock) = (Arc::clone(&deps.rules), deps.clock.clone());
    let change = move |identity: &Identity, org, actor| {
        let place = RuleGroupPlace { org, namespace, name };
        discard(identity, &engine, actor, (place, ExpectedVersion::Any), &clock)
    };
    deps.ruler_change(&caller, &slug, change).await?;
    Ok(accepted())
}

async fn remove_namespace(
    State(deps): State<OrgDeps>,
    caller: AlertingCaller,
    PathOf((slug, namespace)): PathOf<(String, String)>,
) -> ApiResult<Response> {
    let (engine, clock) = (Arc::clone(&deps.rules), deps.clock.clone());
    let change = move |identity: &Identity, org, actor| {
        let _changing = engine.changes();
        let keys = engine.groups(org).into_iter().map(|view| view.key.clone());
        let is_of = |source: &RuleSource| matches!(source, RuleSource::Api(own) if **own == *namespace);
        let _held = engine.hold(keys.filter(|key| is_of(&key.source)).collect());
        let removed = |place: &RuleGroupPlace| engine.remove_group(&key_of(place));
        identity.remove_rule_namespace(actor, (org, namespace), || clock.now(), removed)
    };
    deps.ruler_change(&caller, &slug, change).await?;
    Ok(accepted())
}
