//! The alerts of an organisation for pages (docs/specification.md C5), and the part of them that an
//! embed token sees.
//!
//! A token sees an alert if it grants alerts, and if it could read the alert's series `ALERTS` by
//! its name and its labels. Every label that the scope restricts must be there: `env!="dev"` hides
//! an alert without `env`, whose rule may have aggregated that label away.
//!
//! A rule reads the whole organisation, so its name in a listing of rules, its expression, its
//! value and its annotations may reveal series outside of the scope. Tokens get the labels, the
//! state and its times, and the value and the annotations that the policy grants. Everything of a
//! response, its order, its counts, its cursor and its tag included, depends on visible alerts
//! only.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use serde_json::{Value, json};

use crate::api::callers::{Endpoint, QueryAccess, QueryCaller};
use crate::api::embed_use::EmbedUsage;
use crate::api::error::{ApiError, ApiResult};
use crate::api::listing::{PageRequest, SortKey};
use crate::api::orgs::etag::{content_hash, etag_header, not_modified};
use crate::api::orgs::query::ReadDeps;
use crate::api::orgs::query::deadline::QueryDeadline;
use crate::api::orgs::query::response::QueryBody;
use crate::api::orgs::query::selectors::selectors;
use crate::api::params::{Params, PathOf};
use crate::api::prom_json::number_text;
use crate::api::routes::{Auth, Routes};
use crate::api::views::labels::labels_json;
use crate::identity::AlertsPolicy;
use crate::model::{Labels, METRIC_NAME, Matcher, Scope, Timestamp};
use crate::rules::{AlertPhase, RuleAlert, RuleGroupView};

/// The alerts between two checks of the deadline.
const CHECK_EVERY: usize = 1_024;

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<ReadDeps> {
    let summary = "List the pending and firing alerts for a page";
    Routes::new().get("/orgs/{slug}/alerts", Auth::QueryCaller(Endpoint::Alerts), summary, list)
}

/// The alerts that a caller sees, and the visible fields of each.
pub(super) struct VisibleAlerts<'a> {
    /// `None` for sessions and API keys, which see everything.
    token: Option<TokenView<'a>>,
}

/// The part of the alerts that a token sees.
struct TokenView<'a> {
    scope: &'a Scope,
    /// `None` if the token grants no alerts.
    policy: Option<&'a AlertsPolicy>,
}

impl<'a> VisibleAlerts<'a> {
    pub(super) fn of(access: &'a QueryAccess) -> VisibleAlerts<'a> {
        let view = || TokenView { scope: &access.access.scope, policy: access.grant.alerts() };
        VisibleAlerts { token: access.grant.is_token().then(view) }
    }

    /// Iterates over the visible alerts, in the order of their groups and rules.
    pub(super) fn iter<'g>(&self, groups: &'g [Arc<RuleGroupView>]) -> impl Iterator<Item = &'g RuleAlert> {
        let all = groups.iter().flat_map(|group| group.rules.iter()).flat_map(|rule| rule.alerts.iter());
        all.filter(|alert| self.admits(alert))
    }

    fn admits(&self, alert: &RuleAlert) -> bool {
        let Some(TokenView { scope, policy }) = &self.token else { return true };
        policy.is_some()
            && scope.admits_name("ALERTS")
            && with_series(alert, &scope.matchers, |labels| {
                let has_label = |matcher: &Matcher| !labels.value(matcher.name()).is_empty();
                scope.matchers.iter().all(|matcher| has_label(matcher) && matcher.admits(labels))
            })
    }

    /// Returns whether the value of an alert is visible.
    fn has_value(&self) -> bool {
        self.token.as_ref().is_none_or(|token| token.policy.is_some_and(|policy| policy.value))
    }

    /// Returns the visible annotations of an alert.
    fn annotations<'r>(&self, alert: &'r RuleAlert) -> impl Iterator<Item = (&'r String, &'r String)> {
        alert.annotations.iter().filter(|(name, _)| {
            let lists = |policy: &AlertsPolicy| policy.annotations.contains(name);
            self.token.as_ref().is_none_or(|token| token.policy.is_some_and(lists))
        })
    }

    /// Returns a visible alert without the members that the caller may not see. A hidden value is
    /// that of the series `ALERTS`, which is 1.
    pub(super) fn shown(&self, alert: &RuleAlert) -> RuleAlert {
        let mut shown = alert.clone();
        if self.token.is_some() {
            let annotations = self.annotations(alert);
            shown.annotations =
                Arc::new(annotations.map(|(name, text)| (name.clone(), text.clone())).collect());
        }
        if !self.has_value() {
            shown.value = 1.0;
        }
        shown
    }
}

/// Passes the labels of an alert's series `ALERTS` to `test`. Without a matcher of the two labels
/// that the series adds, the labels of the alert suffice, which are not copied.
fn with_series(alert: &RuleAlert, matchers: &[Matcher], test: impl FnOnce(&Labels) -> bool) -> bool {
    let is_added = |matcher: &Matcher| matches!(matcher.name(), METRIC_NAME | "alertstate");
    if matchers.iter().any(is_added) { test(&alert.alerts_series()) } else { test(&alert.labels) }
}

/// The order of the list: firing before pending alerts, the newest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct AlertKey {
    is_pending: bool,
    since: Reverse<Timestamp>,
    /// A hash of the labels.
    hash: u64,
}

impl AlertKey {
    fn of(alert: &RuleAlert) -> AlertKey {
        AlertKey {
            is_pending: alert.phase == AlertPhase::Pending,
            since: Reverse(alert.active_at),
            hash: content_hash(&alert.labels),
        }
    }
}

impl SortKey for AlertKey {
    fn write(&self) -> String {
        let state = if self.is_pending { "pending" } else { "firing" };
        format!("{state} {} {:016x}", self.since.0.as_ms(), self.hash)
    }

    fn read(text: &str) -> Option<AlertKey> {
        let (state, rest) = text.split_once(' ')?;
        let (ms, hash) = rest.split_once(' ')?;
        let is_pending = match state {
            "firing" => false,
            "pending" => true,
            _ => return None,
        };
        let since = Reverse(Timestamp::from_ms(ms.parse().ok()?));
        Some(AlertKey { is_pending, since, hash: u64::from_str_radix(hash, 16).ok()? })
    }
}

/// The parameters of the list.
struct AlertQuery {
    state: Option<AlertPhase>,
    selectors: Vec<String>,
    page: PageRequest,
}

impl AlertQuery {
    fn take(params: &mut Params) -> ApiResult<AlertQuery> {
        let state = match params.one(&["state"])?.as_deref() {
            None => None,
            Some("firing") => Some(AlertPhase::Firing),
            Some("pending") => Some(AlertPhase::Pending),
            Some(_) => return Err(ApiError::invalid_parameter("state", "firing or pending is expected")),
        };
        let selectors = params.many(&["match", "match[]"]);
        Ok(AlertQuery { state, selectors, page: PageRequest::take(params)? })
    }

    /// Returns the body of the page.
    fn body(
        &self,
        visible: &VisibleAlerts<'_>,
        groups: &[Arc<RuleGroupView>],
        matchers: &[Vec<Matcher>],
        deadline: &QueryDeadline,
    ) -> ApiResult<Value> {
        let mut rows: Vec<(AlertKey, &RuleAlert)> = Vec::new();
        let (mut firing, mut pending) = (0_usize, 0_usize);
        for (checked, alert) in visible.iter(groups).enumerate() {
            if checked.is_multiple_of(CHECK_EVERY) {
                deadline.admit(0)?;
            }
            if matchers.is_empty() || matchers.iter().any(|all| selects(all, alert)) {
                rows.push((AlertKey::of(alert), alert));
            }
        }
        rows.sort_unstable_by_key(|(key, _)| *key);
        // Two rules may make the same series `ALERTS`.
        rows.dedup_by_key(|(key, _)| *key);
        for (key, _) in &rows {
            *(if key.is_pending { &mut pending } else { &mut firing }) += 1;
        }
        rows.retain(|(_, alert)| self.state.is_none_or(|state| alert.phase == state));
        let (page, next) = self.page.cut(&rows, |(key, _)| *key)?;
        let page = rows.get(page).unwrap_or_default().iter();
        let data: Vec<Value> = page.map(|(_, alert)| alert_json(visible, alert)).collect();
        Ok(json!({
            "status": "success",
            "data": data,
            "counts": { "firing": firing, "pending": pending },
            "next_cursor": next,
        }))
    }
}

fn selects(matchers: &[Matcher], alert: &RuleAlert) -> bool {
    with_series(alert, matchers, |labels| matchers.iter().all(|matcher| matcher.admits(labels)))
}

fn alert_json(visible: &VisibleAlerts<'_>, alert: &RuleAlert) -> Value {
    let annotations = visible.annotations(alert);
    let annotations: serde_json::Map<String, Value> =
        annotations.map(|(name, text)| (name.clone(), json!(text))).collect();
    let mut json = json!({
        "state": alert.phase.as_str(),
        "labels": labels_json(&alert.labels),
        "active_since": alert.active_at.as_seconds(),
        "firing_since": alert.fired_at.map(Timestamp::as_seconds),
        "annotations": annotations,
    });
    if visible.has_value() {
        json["value"] = json!(number_text(alert.value));
    }
    json
}

async fn list(
    State(deps): State<ReadDeps>,
    caller: QueryCaller,
    PathOf(slug): PathOf<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let access = caller.enter(&slug, Endpoint::Alerts)?;
    let query = AlertQuery::take(&mut Params::of_query(query.as_deref())?)?;
    let known = headers.get(header::IF_NONE_MATCH).cloned();
    let (org, lane, lanes) = (access.access.org, access.lane(), deps.lanes.clone());
    let (deadline, _guard) = QueryDeadline::start(access.quota.timeout(deps.options.timeout));
    let work = move || {
        let _evaluation = access.usage.as_ref().map(EmbedUsage::begin);
        deadline.admit(0)?;
        let parse = || selectors(&deps.expressions, org, &query.selectors, "match", &deps.options.caps);
        let matchers =
            deadline.with_patterns(&deps.patterns, org, parse).map_err(|error| deadline.error_or(error))?;
        let groups = deps.rules.groups(org);
        let body = query.body(&VisibleAlerts::of(&access), &groups, &matchers, &deadline)?;
        Ok::<_, ApiError>(respond(&access, &body, known.as_ref()))
    };
    lanes.run(lane, work).await?
}

/// Returns the body with its tag, or 304 if the client has it.
fn respond(access: &QueryAccess, body: &Value, known: Option<&HeaderValue>) -> Response {
    let text = body.to_string();
    let tag = format!("\"{:016x}\"", content_hash(&text));
    if let Some(response) = not_modified(known, &tag) {
        return response;
    }
    let mut response = QueryBody::whole(text.into_bytes(), access.coding).into_response();
    response.headers_mut().extend(etag_header(&tag));
    response
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_is_parsed_back(is_pending in any::<bool>(), ms in any::<i64>(), hash in any::<u64>()) {
            let key = AlertKey { is_pending, since: Reverse(Timestamp::from_ms(ms)), hash };
            prop_assert!(AlertKey::read(&key.write()) == Some(key));
        }

        #[test]
        fn no_cursor_panics(text in ".{0,40}") {
            _ = AlertKey::read(&text);
        }
    }

    fn alert(pairs: &[(&str, &str)]) -> RuleAlert {
        RuleAlert {
            labels: Labels::from_pairs(pairs.iter().copied()),
            annotations: Arc::new([("summary".to_owned(), "9 of c43".to_owned())].into()),
            value: 9.0,
            phase: AlertPhase::Firing,
            active_at: Timestamp::from_s(1),
            fired_at: None,
            keep_firing_since: None,
            resolved_at: None,
            last_sent_at: None,
        }
    }

    #[test]
    fn a_token_sees_an_alert_only_with_every_label_of_its_scope() {
        let policy = AlertsPolicy::default();
        let admits = |text: &str, pairs: &[(&str, &str)]| {
            let matchers =
                vec![crate::promql::syntax::parse_matcher(text, &Default::default()).expect("valid")];
            let scope = Scope { matchers, ..Scope::default() };
            let token = Some(TokenView { scope: &scope, policy: Some(&policy) });
            VisibleAlerts { token }.admits(&alert(pairs))
        };
        let (own, other, none) = (&[("env", "prod")][..], &[("env", "dev")][..], &[("job", "a")][..]);
        for (text, expected) in [
            ("env=\"prod\"", [true, false, false]),
            ("env!=\"dev\"", [true, false, false]),
            ("env=~\"prod|\"", [true, false, false]),
            ("env!~\"dev\"", [true, false, false]),
            ("env=\"\"", [false, false, false]),
            ("alertstate=\"firing\"", [true, true, true]),
            ("alertstate=\"pending\"", [false, false, false]),
            ("__name__=\"up\"", [false, false, false]),
        ] {
            let seen = [own, other, none].map(|pairs| admits(text, pairs));
            assert_eq!(seen, expected, "{text}");
        }
    }
}
