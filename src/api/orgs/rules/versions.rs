//! The versions of a stored group of rules. The versions of a removed group stay readable; groups
//! of files have none.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::{READS, json, mimir, place};
use crate::api::body::Json;
use crate::api::callers::MemberCaller;
use crate::api::error::ApiResult;
use crate::api::listing::PageRequest;
use crate::api::orgs::OrgDeps;
use crate::api::orgs::etag::{etag, etag_header};
use crate::api::params::PathOf;
use crate::api::routes::Routes;
use crate::identity::{Identity, RuleGroupError};
use crate::rules::{RuleGroupKey, RuleSource};

/// The routes, relative to `/api/v1`.
pub(super) fn routes() -> Routes<OrgDeps> {
    const LIST: &str = "/orgs/{slug}/rule-groups/{name}/versions";
    const ONE: &str = "/orgs/{slug}/rule-groups/{name}/versions/{version}";
    Routes::new().get(LIST, READS, "List the versions of a group of rules", list).get(
        ONE,
        READS,
        "Get the text of a version of a group of rules",
        show,
    )
}

/// Lists the versions, the newest first.
async fn list(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, name)): PathOf<(String, String)>,
    RawQuery(query): RawQuery,
) -> ApiResult<Json<Value>> {
    let page = PageRequest::of_query(query.as_deref())?;
    let (org, engine) = (caller.org().id, Arc::clone(&deps.rules));
    let read = move |identity: &Identity| {
        let versions = match identity.rule_group_versions(&place(org, &name)) {
            Err(RuleGroupError::NotFound) => {
                let is_of_file =
                    |key: &RuleGroupKey| *key.name == *name && matches!(key.source, RuleSource::File(_));
                let views = engine.groups(org);
                let found = views.iter().any(|view| is_of_file(&view.key));
                if found { Vec::new() } else { return Err(RuleGroupError::NotFound.into()) }
            }
            versions => versions?,
        };
        page.answer(&versions, |version| Reverse(version.version), json::version)
    };
    deps.read(org, read).await
}

/// Returns the text of a version.
async fn show(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, name, version)): PathOf<(String, String, String)>,
) -> ApiResult<Response> {
    let org = caller.org().id;
    let version: u32 = version.parse().map_err(|_| RuleGroupError::NotFound)?;
    let read = move |identity: &Identity| Ok(identity.rule_group_text(&place(org, &name), version)?);
    let text = deps.read(org, read).await?;
    Ok((etag_header(&etag(version)), mimir::yaml(text)).into_response())
}
