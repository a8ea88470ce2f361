//! `rules` and `alerts` of Prometheus' API, with its filters (Prometheus, web/api/v1).
//!
//! An embed token sees no rules, because an expression may name metrics and labels that the token
//! may not see. If it grants alerts, it sees those of [`super::alert_list`].

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use data_encoding::HEXLOWER;
use serde_json::{Value, json};

use super::alert_list::VisibleAlerts;
use super::prometheus_json;
use crate::api::callers::PrometheusCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::api::orgs::prometheus::{in_parameter, success};
use crate::api::orgs::query::ReadDeps;
use crate::api::orgs::query::deadline::QueryDeadline;
use crate::api::orgs::query::request::MergedParams;
use crate::api::orgs::query::selectors::selectors;
use crate::api::params::{Params, PathOf};
use crate::model::{Labels, Matcher};
use crate::rules::{RuleGroupView, RuleView};

/// The filters of a listing of rules.
struct RuleFilters {
    alerts: bool,
    records: bool,
    with_alerts: bool,
    names: BTreeSet<String>,
    groups: BTreeSet<String>,
    files: BTreeSet<String>,
    matchers: Vec<Vec<Matcher>>,
    limit: Option<usize>,
    next: Option<String>,
}

impl RuleFilters {
    fn take(params: &mut Params) -> ApiResult<RuleFilters> {
        let kind = params.one(&["type"])?;
        let (alerts, records) = match kind.as_deref().map(str::to_lowercase).as_deref() {
            None => (true, true),
            Some("alert") => (true, false),
            Some("record") => (false, true),
            Some(_) => {
                let message = format!("not supported value {:?}", kind.unwrap_or_default());
                return Err(ApiError::invalid_parameter("type", message));
            }
        };
        let exclude = match params.one(&["exclude_alerts"])?.as_deref() {
            None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
            Some(_) => return Err(ApiError::invalid_parameter("exclude_alerts", "a boolean is expected")),
        };
        let limit = params.number::<usize>("group_limit", "a positive whole number")?;
        let next = params.one(&["group_next_token"])?;
        if limit == Some(0) {
            return Err(ApiError::invalid_parameter("group_limit", "must be greater than 0"));
        }
        if next.is_some() && limit.is_none() {
            let message = "group_limit needs to be present in order to paginate over the groups";
            return Err(ApiError::invalid_parameter("group_limit", message));
        }
        let set = |params: &mut Params, names: &[&'static str]| params.many(names).into_iter().collect();
        Ok(RuleFilters {
            alerts,
            records,
            with_alerts: !exclude,
            names: set(params, &["rule_name[]"]),
            groups: set(params, &["rule_group[]"]),
            files: set(params, &["file[]"]),
            matchers: Vec::new(),
            limit,
            next,
        })
    }

    fn admits_group(&self, view: &RuleGroupView) -> bool {
        let admits = |set: &BTreeSet<String>, text: &str| set.is_empty() || set.contains(text);
        admits(&self.groups, &view.key.name) && admits(&self.files, view.key.source.as_str())
    }

    fn admits_rule(&self, view: &RuleView) -> bool {
        let kind = if view.rule.alerting().is_some() { self.alerts } else { self.records };
        let named = self.names.is_empty() || self.names.contains(view.rule.name());
        if !kind || !named || self.matchers.is_empty() {
            return kind && named;
        }
        let labels =
            Labels::from_pairs(view.rule.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        self.matchers.iter().any(|all| all.iter().all(|matcher| matcher.admits(&labels)))
    }

    /// Returns the groups, and the token of the next page.
    fn apply(&self, views: &[Arc<RuleGroupView>]) -> ApiResult<Value> {
        let mut views: Vec<&Arc<RuleGroupView>> =
            views.iter().filter(|view| self.admits_group(view)).collect();
        views.sort_by_key(|view| (view.key.source.as_str(), Arc::clone(&view.key.name)));
        let first = match &self.next {
            None => 0,
            Some(next) => views.iter().position(|view| token(view) == *next).ok_or_else(|| {
                let message = format!("invalid group_next_token '{next}'. were rule groups changed?");
                ApiError::invalid_parameter("group_next_token", message)
            })?,
        };
        let (mut groups, mut next_token) = (Vec::new(), None);
        for view in views.into_iter().skip(first) {
            let rules = view.rules.iter().filter(|rule| self.admits_rule(rule));
            let rules: Vec<Value> = rules.map(|rule| prometheus_json::rule(rule, self.with_alerts)).collect();
            // A group without any rule that is left is not shown.
            if rules.is_empty()
                && !(view.rules.is_empty() && self.names.is_empty() && self.matchers.is_empty())
            {
                continue;
            }
            if self.limit.is_some_and(|limit| groups.len() >= limit) {
                next_token = Some(token(view));
                break;
            }
            groups.push(prometheus_json::group(view, &rules));
        }
        let mut data = json!({ "groups": groups });
        if let Some(next_token) = next_token {
            data["groupNextToken"] = json!(next_token);
        }
        Ok(data)
    }
}

/// Returns the token of the page that begins with this group.
fn token(view: &RuleGroupView) -> String {
    let text = format!("{};{}", view.key.source.as_str(), view.key.name);
    HEXLOWER.encode(text.as_bytes())
}

/// Lists groups and their rules.
pub(in crate::api::orgs) async fn rules(
    State(deps): State<ReadDeps>,
    caller: PrometheusCaller,
    PathOf(slug): PathOf<String>,
    MergedParams(mut params): MergedParams,
) -> ApiResult<Response> {
    let access = caller.enter_any(&slug)?;
    let mut filters = RuleFilters::take(&mut params)?;
    if access.grant.is_token() {
        return Ok(success(&json!({ "groups": [] })));
    }
    let texts = params.many(&["match[]"]);
    let (org, lane) = (access.access.org, access.lane());
    let (deadline, _guard) = QueryDeadline::start(deps.options.timeout);
    let lanes = deps.lanes.clone();
    let work = move || {
        deadline.admit(0)?;
        if !texts.is_empty() {
            let parse = || selectors(&deps.expressions, org, &texts, "match[]", &deps.options.caps);
            let parsed = deadline.with_patterns(&deps.patterns, org, parse);
            filters.matchers =
                parsed.map_err(|error| deadline.error_or(error)).map_err(in_parameter("match[]"))?;
        }
        filters.apply(&deps.rules.groups(org)).map(|data| success(&data))
    };
    lanes.run(lane, work).await?
}

/// Lists the pending and firing alerts.
pub(in crate::api::orgs) async fn alerts(
    State(deps): State<ReadDeps>,
    caller: PrometheusCaller,
    PathOf(slug): PathOf<String>,
    MergedParams(_): MergedParams,
) -> ApiResult<Response> {
    let access = caller.enter_any(&slug)?;
    let (lane, lanes) = (access.lane(), deps.lanes.clone());
    let work = move || {
        let groups = deps.rules.groups(access.access.org);
        let visible = VisibleAlerts::of(&access);
        let alerts: Vec<Value> =
            visible.iter(&groups).map(|alert| prometheus_json::alert(&visible.shown(alert))).collect();
        success(&json!({ "alerts": alerts }))
    };
    lanes.run(lane, work).await
}
