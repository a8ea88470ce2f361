//! The API of Alertmanager, version 2, for each organisation, so that amtool and the Alertmanager
//! data source of Grafana work (docs/specification.md C14). Embed tokens see no alerts, because
//! their restrictions concern series.

use std::sync::Arc;

use axum::extract::{RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::AlertApiDeps;
use super::body::SilenceBody;
use crate::api::body::{Json, parse_json, read_json};
use crate::api::callers::{AlertingAccess, AlertingCaller, IngestCaller, PrometheusCaller, Sender};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::Lane;
use crate::api::params::{Params, PathOf};
use crate::api::routes::{Auth, Routes};
use crate::model::{Alert, AlertSink as _, OrgId, Timestamp};
use crate::notify::labels::AlertLabels;
use crate::notify::matcher::AlertMatchers;
use crate::notify::org::{AlertView, OrgNotifier};

const READERS: Auth = Auth::PrometheusCaller(None);

/// The most alerts in one request, inclusive.
const POSTED_ALERTS_MAX: usize = 1_000;
/// How long an alert without an end stays valid, in milliseconds: `resolve_timeout` of
/// Alertmanager.
const RESOLVE_TIMEOUT_MS: i64 = 300_000;

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<AlertApiDeps> {
    Routes::new()
        .get("/orgs/{slug}/alertmanager/api/v2/status", READERS, "Alertmanager: get the status", status)
        .get("/orgs/{slug}/alertmanager/api/v2/receivers", READERS, "Alertmanager: list receivers", receivers)
        .get("/orgs/{slug}/alertmanager/api/v2/alerts", READERS, "Alertmanager: list alerts", alerts)
        .post(
            "/orgs/{slug}/alertmanager/api/v2/alerts",
            Auth::IngestCaller,
            "Alertmanager: send alerts",
            post_alerts,
        )
        .get("/orgs/{slug}/alertmanager/api/v2/alerts/groups", READERS, "Alertmanager: list groups", groups)
        .get("/orgs/{slug}/alertmanager/api/v2/silences", READERS, "Alertmanager: list silences", silences)
        .post(
            "/orgs/{slug}/alertmanager/api/v2/silences",
            Auth::AlertingCaller,
            "Alertmanager: create or change a silence",
            post_silence,
        )
        .get("/orgs/{slug}/alertmanager/api/v2/silence/{id}", READERS, "Alertmanager: get a silence", silence)
        .delete(
            "/orgs/{slug}/alertmanager/api/v2/silence/{id}",
            Auth::AlertingCaller,
            "Alertmanager: end a silence",
            end_silence,
        )
        .get(
            "/orgs/{slug}/prometheus/api/v1/alertmanagers",
            READERS,
            "Prometheus: list the Alertmanagers in use",
            alertmanagers,
        )
}

/// The organisation that a caller reads, and whether it sees alerts.
struct AlertReader {
    org: OrgId,
    sees_alerts: bool,
}

impl AlertReader {
    fn enter(caller: &PrometheusCaller, slug: &str) -> ApiResult<AlertReader> {
        let access = caller.enter_any(slug)?;
        Ok(AlertReader { org: access.access.org, sees_alerts: access.usage.is_none() })
    }
}

impl AlertApiDeps {
    /// Reads a list; empty for a caller that sees no alerts.
    async fn list(
        &self,
        reader: AlertReader,
        read: impl FnOnce(&OrgNotifier, Timestamp) -> Vec<Value> + Send + 'static,
    ) -> ApiResult<Json<Value>> {
        if !reader.sees_alerts {
            return Ok(Json(json!([])));
        }
        Ok(Json(Value::Array(self.read_org(reader.org, read).await?)))
    }
}

async fn status(
    State(deps): State<AlertApiDeps>,
    caller: PrometheusCaller,
    PathOf(slug): PathOf<String>,
) -> ApiResult<Json<Value>> {
    let reader = AlertReader::enter(&caller, &slug)?;
    let names = |notifier: &OrgNotifier, _| {
        let config = notifier.config();
        let root = config.routes.first().and_then(|root| config.receivers.get(root.receiver));
        let receivers: Vec<Value> =
            config.receivers.iter().map(|receiver| json!({ "name": *receiver.name })).collect();
        json!({ "route": { "receiver": root.map(|root| &*root.name) }, "receivers": receivers })
    };
    let config = match reader.sees_alerts {
        true => deps.read_org(reader.org, names).await?,
        false => json!({}),
    };
    Ok(Json(json!({
        "cluster": { "name": "promlet", "status": "disabled", "peers": [] },
        "config": { "original": config.to_string() },
        "uptime": deps.orgs.clock.now().to_rfc3339(),
        "versionInfo": {
            "branch": "", "buildDate": "", "buildUser": "", "goVersion": "", "revision": "",
            "version": "0.27.0",
        },
    })))
}

async fn receivers(
    State(deps): State<AlertApiDeps>,
    caller: PrometheusCaller,
    PathOf(slug): PathOf<String>,
) -> ApiResult<Json<Value>> {
    let reader = AlertReader::enter(&caller, &slug)?;
    let list = |notifier: &OrgNotifier, _| {
        notifier.config().receivers.iter().map(|receiver| json!({ "name": *receiver.name })).collect()
    };
    deps.list(reader, list).await
}

/// Returns the matchers of all parameters `filter`.
fn filter_of(params: &mut Params) -> ApiResult<AlertMatchers> {
    let mut matchers = AlertMatchers::default();
    for text in params.many(&["filter"]) {
        matchers.push_text(&text).map_err(|why| ApiError::invalid_parameter("filter", why))?;
    }
    Ok(matchers)
}

/// The parameters of a list of alerts.
struct AlertFilter {
    matchers: AlertMatchers,
    receiver: Option<AlertMatchers>,
    active: bool,
    silenced: bool,
    inhibited: bool,
}

impl AlertFilter {
    fn parse(query: Option<&str>) -> ApiResult<AlertFilter> {
        let mut params = Params::of_query(query)?;
        let mut flag = |name: &'static str| match params.one(&[name])?.as_deref() {
            None | Some("" | "true" | "1") => Ok(true),
            Some("false" | "0") => Ok(false),
            Some(_) => Err(ApiError::invalid_parameter(name, "true or false is expected")),
        };
        let (active, silenced, inhibited) = (flag("active")?, flag("silenced")?, flag("inhibited")?);
        let matchers = filter_of(&mut params)?;
        let receiver = params.one(&["receiver"])?.filter(|text| !text.is_empty());
        let receiver = receiver.map(|pattern| {
            let mut matchers = AlertMatchers::default();
            let pushed = matchers.push("receiver", crate::model::MatchOp::Regex, &pattern);
            pushed.map(|()| matchers).map_err(|why| ApiError::invalid_parameter("receiver", why))
        });
        Ok(AlertFilter { matchers, receiver: receiver.transpose()?, active, silenced, inhibited })
    }

    fn admits(&self, alert: &AlertView) -> bool {
        let (silenced, inhibited) = (!alert.silenced_by.is_empty(), alert.inhibited_by.is_some());
        let receiver = |pattern: &AlertMatchers| {
            alert
                .receivers
                .iter()
                .any(|name| pattern.matches(&AlertLabels::from([("receiver".to_owned(), name.to_string())])))
        };
        (self.active || silenced || inhibited)
            && (self.silenced || !silenced)
            && (self.inhibited || !inhibited)
            && self.matchers.matches(&alert.labels)
            && self.receiver.as_ref().is_none_or(receiver)
    }
}

fn alert_json(alert: &AlertView) -> Value {
    let is_suppressed = !alert.silenced_by.is_empty() || alert.inhibited_by.is_some();
    let silenced_by: Vec<&str> = alert.silenced_by.iter().map(|id| &**id).collect();
    let inhibited_by: Vec<String> = alert.inhibited_by.iter().map(ToString::to_string).collect();
    let receivers: Vec<Value> = alert.receivers.iter().map(|name| json!({ "name": **name })).collect();
    json!({
        "labels": *alert.labels,
        "annotations": *alert.annotations,
        "startsAt": alert.starts_at.to_rfc3339(),
        "endsAt": alert.ends_at.to_rfc3339(),
        "updatedAt": alert.updated_at.to_rfc3339(),
        "generatorURL": alert.generator_url,
        "fingerprint": alert.fingerprint.to_string(),
        "receivers": receivers,
        "status": {
            "state": if is_suppressed { "suppressed" } else { "active" },
            "silencedBy": silenced_by,
            "inhibitedBy": inhibited_by,
            "mutedBy": [],
        },
        "acknowledgement": alert.acknowledgement.as_ref().map(super::acknowledgement_json),
    })
}

async fn alerts(
    State(deps): State<AlertApiDeps>,
    caller: PrometheusCaller,
    PathOf(slug): PathOf<String>,
    RawQuery(query): RawQuery,
) -> ApiResult<Json<Value>> {
    let reader = AlertReader::enter(&caller, &slug)?;
    let filter = AlertFilter::parse(query.as_deref())?;
    let list = move |notifier: &OrgNotifier, now| {
        notifier.alerts(now).iter().filter(|alert| filter.admits(alert)).map(alert_json).collect()
    };
    deps.list(reader, list).await
}

async fn groups(
    State(deps): State<AlertApiDeps>,
    caller: PrometheusCaller,
    PathOf(slug): PathOf<String>,
    RawQuery(query): RawQuery,
) -> ApiResult<Json<Value>> {
    let reader = AlertReader::enter(&caller, &slug)?;
    let filter = AlertFilter::parse(query.as_deref())?;
    let list = move |notifier: &OrgNotifier, now| {
        let mut all = Vec::new();
        for group in notifier.groups(now) {
            let alerts: Vec<Value> =
                group.alerts.iter().filter(|alert| filter.admits(alert)).map(alert_json).collect();
            if !alerts.is_empty() {
                all.push(json!({
                    "labels": group.labels,
                    "receiver": { "name": *group.receiver },
                    "alerts": alerts,
                }));
            }
        }
        all
    };
    deps.list(reader, list).await
}

async fn silences(
    State(deps): State<AlertApiDeps>,
    caller: PrometheusCaller,
    PathOf(slug): PathOf<String>,
    RawQuery(query): RawQuery,
) -> ApiResult<Json<Value>> {
    let reader = AlertReader::enter(&caller, &slug)?;
    let wanted = filter_of(&mut Params::of_query(query.as_deref())?)?;
    // As in Alertmanager, a filter is compared with the values of a silence's own matchers.
    let list = move |notifier: &OrgNotifier, now| {
        notifier
            .silences()
            .filter(|one| wanted.is_empty() || wanted.matches(&one.matchers.values()))
            .map(|one| one.to_json(now))
            .collect()
    };
    deps.list(reader, list).await
}

async fn silence(
    State(deps): State<AlertApiDeps>,
    caller: PrometheusCaller,
    PathOf((slug, id)): PathOf<(String, String)>,
) -> ApiResult<Json<Value>> {
    let reader = AlertReader::enter(&caller, &slug)?;
    let find = move |notifier: &OrgNotifier, now| Some(notifier.silence(&id)?.to_json(now));
    let found = if reader.sees_alerts { deps.read_org(reader.org, find).await? } else { None };
    found.map(Json).ok_or_else(super::no_silence)
}

impl AlertApiDeps {
    /// Changes the state of an organisation, and records that in the audit log. The credential is
    /// the one that the extractor has checked.
    async fn write_org<T: Send + 'static>(
        &self,
        AlertingAccess { org, sender }: AlertingAccess,
        (action, target): (&'static str, String),
        change: impl FnOnce(&mut OrgNotifier, Timestamp, &str) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let (identity, hub, now) =
            (Arc::clone(&self.orgs.identity), Arc::clone(&self.hub), self.orgs.clock.now());
        let work = move || -> ApiResult<T> {
            let actor = sender.actor();
            let author = match sender {
                Sender::User(user) => super::author_of(&identity, user)?,
                Sender::Key { name, .. } => format!("API key {name}"),
            };
            let changed = hub.with_org(org, |notifier, now| change(notifier, now, &author))??;
            identity.note_alert_action(actor, (org, action), &target, now)?;
            Ok(changed)
        };
        self.orgs.lanes.run(Lane::Account, work).await?
    }
}

async fn post_silence(
    State(deps): State<AlertApiDeps>,
    caller: AlertingCaller,
    PathOf(slug): PathOf<String>,
    request: Request,
) -> ApiResult<Json<Value>> {
    // The caller is checked before the body is read.
    let writer = caller.enter(&slug)?;
    let mut body: SilenceBody = parse_json(&read_json(request).await?)?;
    let id = body.id.take().filter(|id| !id.is_empty());
    let action = if id.is_some() { "silence.changed" } else { "silence.created" };
    let comment = body.comment.clone().unwrap_or_default();
    let change =
        move |notifier: &mut OrgNotifier, now, author: &str| body.store(id.as_deref(), notifier, author, now);
    let id = deps.write_org(writer, (action, comment), change).await?;
    Ok(Json(json!({ "silenceID": *id })))
}

async fn end_silence(
    State(deps): State<AlertApiDeps>,
    caller: AlertingCaller,
    PathOf((slug, id)): PathOf<(String, String)>,
) -> ApiResult<StatusCode> {
    let writer = caller.enter(&slug)?;
    let target = id.clone();
    let change = move |notifier: &mut OrgNotifier, now, _: &str| Ok(notifier.expire_silence(&id, now)?);
    deps.write_org(writer, ("silence.ended", target), change).await?;
    Ok(StatusCode::OK)
}

#[derive(Deserialize)]
struct PostedAlert {
    labels: AlertLabels,
    #[serde(default)]
    annotations: AlertLabels,
    #[serde(rename = "startsAt")]
    starts_at: Option<String>,
    #[serde(rename = "endsAt")]
    ends_at: Option<String>,
}

impl PostedAlert {
    /// Returns the alert, with its times.
    ///
    /// # Errors
    /// [`Code::ValidationFailed`], if a time has another form.
    fn alert(mut self, now: Timestamp) -> ApiResult<Alert> {
        let time = |field, text: Option<String>| -> ApiResult<Option<Timestamp>> {
            // The zero time of Alertmanager's language stands for none.
            let Some(text) = text.filter(|text| !text.is_empty() && !text.starts_with("0001-")) else {
                return Ok(None);
            };
            let wrong = || ApiError::invalid_field(field, "invalid", "a time of RFC 3339 is expected");
            Timestamp::from_rfc3339(&text).map(Some).ok_or_else(wrong)
        };
        let (start, end) = (time("startsAt", self.starts_at)?, time("endsAt", self.ends_at)?);
        self.labels.retain(|_, value| !value.is_empty());
        let starts_at = start.or(end.map(|end| end.min(now))).unwrap_or(now);
        let ends_at = end.unwrap_or_else(|| now.plus_ms(RESOLVE_TIMEOUT_MS));
        Ok(Alert {
            labels: self.labels,
            annotations: self.annotations,
            value: 0.0,
            starts_at,
            ends_at,
            has_own_end: end.is_some(),
            resolved: ends_at <= now,
            expr: String::new(),
        })
    }
}

/// Returns why an alert is refused, in the words of Alertmanager.
fn refusal_of(alert: &Alert) -> Option<&'static str> {
    if alert.ends_at < alert.starts_at {
        return Some("start time must be before end time");
    }
    if alert.labels.is_empty() {
        return Some("at least one label pair required");
    }
    if alert.labels.contains_key("") {
        return Some("invalid label set: invalid name \"\"");
    }
    alert.annotations.contains_key("").then_some("invalid annotations: invalid name \"\"")
}

async fn post_alerts(
    State(deps): State<AlertApiDeps>,
    caller: IngestCaller,
    PathOf(slug): PathOf<String>,
    request: Request,
) -> ApiResult<Response> {
    let access = caller.enter(&slug)?;
    access.require_any_labels()?;
    let bytes = read_json(request).await?;
    let posted: Vec<PostedAlert> = serde_json::from_slice(&bytes).map_err(|error| {
        ApiError::new(Code::InvalidJson, format!("a list of alerts is expected: {error}"))
    })?;
    if posted.len() > POSTED_ALERTS_MAX {
        let detail = format!("a request has at most {POSTED_ALERTS_MAX} alerts");
        return Err(ApiError::new(Code::ValidationFailed, detail));
    }
    let now = deps.orgs.clock.now();
    let mut alerts = posted.into_iter().map(|one| one.alert(now)).collect::<ApiResult<Vec<Alert>>>()?;
    let mut refused: Vec<&str> = Vec::new();
    // The valid alerts are stored, as in Alertmanager.
    alerts.retain(|alert| {
        let refusal = refusal_of(alert);
        refused.extend(refusal);
        refusal.is_none()
    });
    for alert in &mut alerts {
        for (name, value) in &access.forced_labels {
            alert.labels.insert(name.to_string(), value.to_string());
        }
    }
    deps.hub.send(access.org, alerts, now);
    match refused.is_empty() {
        true => Ok(StatusCode::OK.into_response()),
        false => Err(ApiError::new(Code::ValidationFailed, refused.join("; "))),
    }
}

async fn alertmanagers(
    State(deps): State<AlertApiDeps>,
    caller: PrometheusCaller,
    PathOf(slug): PathOf<String>,
) -> ApiResult<Json<Value>> {
    let reader = AlertReader::enter(&caller, &slug)?;
    let list = |notifier: &OrgNotifier, now| -> Vec<Value> {
        notifier.status(now).alertmanagers.iter().map(|one| json!({ "url": one.url })).collect()
    };
    let active = deps.list(reader, list).await?.0;
    let data = json!({ "activeAlertmanagers": active, "droppedAlertmanagers": [] });
    Ok(Json(json!({ "status": "success", "data": data })))
}
