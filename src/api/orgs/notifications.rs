//! The notifications of an organisation (docs/specification.md C14): the configuration, silences,
//! acknowledgements, and the state of the receivers.

pub mod alertmanager;
mod body;
pub mod store;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::OrgDeps;
use super::etag::{etag, etag_header, required_if_match};
use crate::api::body::Json;
use crate::api::callers::{MemberCaller, org_not_found};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Login, Routes};
use crate::entropy::Entropy;
use crate::identity::{
    AlertingActor, ExpectedVersion, Identity, NotificationsError, Role, StoredNotifications, UserId,
};
use crate::model::{OrgId, Timestamp};
use crate::notify::config::{FieldProblem, NotifyDocument};
use crate::notify::delivery::DeliveryError;
use crate::notify::edge::{NotifyHub, NotifyUnavailable, TestReport};
use crate::notify::labels::AlertFingerprint;
use crate::notify::org::{
    AcknowledgeError, AlertAcknowledgement, AmStatus, IntegrationStatus, OrgNotifier, TestRefusal,
};
use crate::notify::silence::SilenceError;
use crate::sync::IgnorePoison as _;
use body::SilenceBody;

const MEMBERS: Auth = Auth::Member(Role::Viewer, Login::Any);
const EDITORS: Auth = Auth::Member(Role::Editor, Login::Any);
const ADMINS: Auth = Auth::Member(Role::Admin, Login::Any);

/// The dependencies of the routes.
#[derive(Clone, Debug)]
pub struct AlertApiDeps {
    /// The accounts, lanes and clock.
    pub orgs: OrgDeps,
    /// The notifiers.
    pub hub: Arc<NotifyHub>,
    /// Held while a configuration is stored and applied, so that the stored one is in use.
    pub changing: Arc<Mutex<()>>,
}

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<AlertApiDeps> {
    Routes::new()
        .get("/orgs/{slug}/notifications", MEMBERS, "Get the configuration of notifications", show)
        .put("/orgs/{slug}/notifications", ADMINS, "Replace the configuration of notifications", set)
        .get("/orgs/{slug}/notifications/status", MEMBERS, "Get the state of the receivers", status)
        .post("/orgs/{slug}/notifications/test", ADMINS, "Send a test to a receiver", test)
        .get("/orgs/{slug}/silences", MEMBERS, "List the silences", silences)
        .post("/orgs/{slug}/silences", EDITORS, "Create a silence", create_silence)
        .get("/orgs/{slug}/silences/{id}", MEMBERS, "Get a silence", silence)
        .put("/orgs/{slug}/silences/{id}", EDITORS, "Change a silence", change_silence)
        .delete("/orgs/{slug}/silences/{id}", EDITORS, "End a silence", end_silence)
        .post(
            "/orgs/{slug}/alerts/{fingerprint}/acknowledgement",
            EDITORS,
            "Acknowledge a firing alert until it is resolved",
            acknowledge,
        )
        .delete(
            "/orgs/{slug}/alerts/{fingerprint}/acknowledgement",
            EDITORS,
            "Withdraw an acknowledgement",
            withdraw,
        )
}

impl From<NotifyUnavailable> for ApiError {
    fn from(error: NotifyUnavailable) -> ApiError {
        match error {
            NotifyUnavailable::NoOrg => org_not_found(),
            NotifyUnavailable::Inactive => {
                ApiError::new(Code::Busy, error.to_string()).with_retry_after(Duration::from_secs(5))
            }
            NotifyUnavailable::Store(_) => ApiError::new(Code::StorageDegraded, error.to_string()),
        }
    }
}

impl From<SilenceError> for ApiError {
    fn from(error: SilenceError) -> ApiError {
        let detail = error.to_string();
        match error {
            SilenceError::NotFound => ApiError::new(Code::NotFound, detail),
            SilenceError::TooMany => ApiError::new(Code::LimitReached, detail),
            SilenceError::Invalid { field, message } => ApiError::invalid_field(field, "invalid", message),
        }
    }
}

impl From<AcknowledgeError> for ApiError {
    fn from(error: AcknowledgeError) -> ApiError {
        match error {
            AcknowledgeError::NotFiring => ApiError::new(Code::NotFound, error.to_string()),
            AcknowledgeError::TooLong => ApiError::invalid_field("comment", "invalid", error.to_string()),
        }
    }
}

/// Returns an error with the wrong fields of a configuration.
fn invalid(problems: Vec<FieldProblem>) -> ApiError {
    let first = problems.first().map(|problem| match problem.path.as_str() {
        "" => problem.message.clone(),
        path => format!("{path}: {}", problem.message),
    });
    let error = ApiError::new(Code::ValidationFailed, first.unwrap_or_default());
    problems
        .into_iter()
        .fold(error, |error, FieldProblem { path, message }| error.with_field(path, "invalid", message))
}

impl AlertApiDeps {
    /// Reads the state of an organisation.
    pub(super) async fn read_org<T: Send + 'static>(
        &self,
        org: OrgId,
        read: impl FnOnce(&OrgNotifier, Timestamp) -> T + Send + 'static,
    ) -> ApiResult<T> {
        let hub = Arc::clone(&self.hub);
        self.orgs.read(org, move |_| Ok(hub.read_org(org, read)?)).await
    }

    /// Changes the state of an organisation as a member, and records that in the audit log.
    async fn change_org<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
        &self,
        caller: &MemberCaller,
        (action, target): (&'static str, String),
        change: impl FnOnce(&mut OrgNotifier, Timestamp, &str) -> Result<T, E> + Send + 'static,
    ) -> ApiResult<T> {
        let (org, user, now) = (caller.org().id, caller.user(), self.orgs.clock.now());
        let hub = Arc::clone(&self.hub);
        let work = move |identity: &Identity| -> ApiResult<T> {
            let author = author_of(identity, user)?;
            let changed = hub.with_org(org, |notifier, now| change(notifier, now, &author))?;
            let changed = changed.map_err(Into::into)?;
            identity.note_alert_action(AlertingActor::User(user), (org, action), &target, now)?;
            Ok(changed)
        };
        self.orgs.change(caller, work).await
    }
}

/// Returns the address of an account.
fn author_of(identity: &Identity, user: UserId) -> ApiResult<String> {
    Ok(identity.user(user)?.map(|user| user.email.as_str().to_owned()).unwrap_or_default())
}

/// Returns the response with a document and its version.
fn document_response(document: &NotifyDocument, version: u32) -> Response {
    (etag_header(&etag(version)), Json(document.public())).into_response()
}

/// Reads a stored document. One that cannot be unsealed counts as none, and can be replaced.
fn stored_document(stored: &StoredNotifications) -> Option<NotifyDocument> {
    NotifyDocument::from_stored(stored.text.as_deref()?).ok()
}

async fn show(State(deps): State<AlertApiDeps>, caller: MemberCaller) -> ApiResult<Response> {
    let org = caller.org().id;
    let stored = deps.orgs.read(org, move |identity| Ok(identity.notifications(org)?)).await?;
    let Some(stored) = stored else { return Ok(document_response(&NotifyDocument::default(), 0)) };
    let Some(document) = stored_document(&stored) else {
        let detail = "the configuration was sealed with another master key; replace it with If-Match: *";
        return Err(ApiError::new(Code::StorageDegraded, detail));
    };
    Ok(document_response(&document, stored.version))
}

async fn set(
    State(deps): State<AlertApiDeps>,
    caller: MemberCaller,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> ApiResult<Response> {
    let expected = required_if_match(&headers)?;
    let text = body.to_string();
    let (org, user, now) = (caller.org().id, caller.user(), deps.orgs.clock.now());
    let (hub, changing) = (Arc::clone(&deps.hub), Arc::clone(&deps.changing));
    let change = move |identity: &Identity| -> ApiResult<(NotifyDocument, u32)> {
        let _changing = changing.lock().ignore_poison();
        let stored = identity.notifications(org)?;
        let version = stored.as_ref().map_or(0, |stored| stored.version);
        // Before the secrets of another version are merged into this one.
        if matches!(expected, ExpectedVersion::Exactly(replaced) if replaced != version) {
            return Err(NotificationsError::Version { stored: version }.into());
        }
        let before = stored.as_ref().and_then(stored_document);
        let rng = &mut Entropy::system();
        let document = NotifyDocument::parse(&text, before.as_ref(), rng).map_err(invalid)?;
        hub.check(&document)
            .map_err(|(id, why)| ApiError::invalid_field("tls", "invalid", format!("{id}: {why}")))?;
        let stored = document.stored_text();
        let version = identity.set_notifications(user, org, (&stored, version), now, rng)?;
        hub.set_document(org, document.clone())?;
        Ok((document, version))
    };
    let (document, version) = deps.orgs.change(&caller, change).await?;
    Ok(document_response(&document, version))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestBody {
    receiver: String,
}

/// Sends a test. The failure of a receiver is a part of the result, not an error of the request.
async fn test(
    State(deps): State<AlertApiDeps>,
    caller: MemberCaller,
    Json(body): Json<TestBody>,
) -> ApiResult<Json<Value>> {
    let (org, hub) = (caller.org().id, Arc::clone(&deps.hub));
    let start = move |_: &Identity| Ok(hub.start_test(org, &body.receiver)?);
    let tests = deps.orgs.read(org, start).await?.map_err(|refusal| match refusal {
        TestRefusal::NoReceiver => ApiError::new(Code::NotFound, refusal.to_string()),
        TestRefusal::TooMany => ApiError::new(Code::LimitReached, refusal.to_string()),
    })?;
    let report = |one: TestReport| {
        let is_ok = one.error.is_none();
        json!({ "id": one.id, "type": one.kind, "ok": is_ok, "error": one.error })
    };
    let data: Vec<Value> = tests.reports().await.into_iter().map(report).collect();
    Ok(Json(json!({ "data": data })))
}

fn error_json(error: Option<&DeliveryError>) -> Value {
    error.map_or(Value::Null, |error| json!({ "at": error.at.to_rfc3339(), "text": error.text }))
}

fn seconds(ms: i64) -> f64 {
    Timestamp::from_ms(ms).as_seconds()
}

fn alertmanager_json(one: &AmStatus) -> Value {
    json!({
        "id": one.id,
        "url": one.url,
        "queued": one.queued,
        "lag_s": seconds(one.lag_ms),
        "sent": one.counts.sent,
        "retried": one.counts.retried,
        "refused": one.counts.refused,
        "dropped_alerts": one.counts.dropped_alerts,
        "last_error": error_json(one.last_error.as_ref()),
        "next_retry": one.next_retry.map(Timestamp::to_rfc3339),
    })
}

fn integration_json(one: &IntegrationStatus) -> Value {
    json!({
        "id": *one.id,
        "type": one.kind,
        "receiver": *one.receiver,
        "pending": one.pending,
        "lag_s": seconds(one.lag_ms),
        "sent": one.counts.sent,
        "retried": one.counts.retried,
        "refused": one.counts.refused,
        "dropped_alerts": one.counts.dropped_alerts,
        "last_error": error_json(one.last_error.as_ref()),
        "last_sent": one.last_sent.map(Timestamp::to_rfc3339),
        "next_retry": one.next_retry.map(Timestamp::to_rfc3339),
    })
}

async fn status(State(deps): State<AlertApiDeps>, caller: MemberCaller) -> ApiResult<Json<Value>> {
    let (org, hub) = (caller.org().id, Arc::clone(&deps.hub));
    let (status, files) = deps.orgs.read(org, move |_| Ok(hub.status(org)?)).await?;
    let files: Value = files.iter().map(|(id, why)| (id.to_string(), json!(why))).collect();
    Ok(Json(json!({
        "alerts": status.alerts,
        "groups": status.groups,
        "silences": status.silences,
        "received": status.counts.received,
        "dropped": status.counts.dropped,
        "mails_delayed": status.counts.mails_delayed,
        "alertmanagers": status.alertmanagers.iter().map(alertmanager_json).collect::<Vec<Value>>(),
        "integrations": status.integrations.iter().map(integration_json).collect::<Vec<Value>>(),
        "file_errors": files,
    })))
}

async fn silences(State(deps): State<AlertApiDeps>, caller: MemberCaller) -> ApiResult<Json<Value>> {
    let list = |notifier: &OrgNotifier, now| -> Vec<Value> {
        notifier.silences().map(|one| one.to_json(now)).collect()
    };
    let data = deps.read_org(caller.org().id, list).await?;
    Ok(Json(json!({ "data": data })))
}

fn no_silence() -> ApiError {
    SilenceError::NotFound.into()
}

async fn silence(
    State(deps): State<AlertApiDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
) -> ApiResult<Json<Value>> {
    let find = move |notifier: &OrgNotifier, now| Some(notifier.silence(&id)?.to_json(now));
    deps.read_org(caller.org().id, find).await?.map(Json).ok_or_else(no_silence)
}

/// Creates a silence, or changes the one with this id. Returns the resulting silence.
async fn set_silence(
    deps: &AlertApiDeps,
    caller: &MemberCaller,
    id: Option<String>,
    body: SilenceBody,
) -> ApiResult<Value> {
    let action = if id.is_some() { "silence.changed" } else { "silence.created" };
    let comment = body.comment.clone().unwrap_or_default();
    let change = move |notifier: &mut OrgNotifier, now, author: &str| -> ApiResult<Value> {
        let id = body.store(id.as_deref(), notifier, author, now)?;
        notifier.silence(&id).map(|one| one.to_json(now)).ok_or_else(no_silence)
    };
    deps.change_org(caller, (action, comment), change).await
}

async fn create_silence(
    State(deps): State<AlertApiDeps>,
    caller: MemberCaller,
    Json(body): Json<SilenceBody>,
) -> ApiResult<Response> {
    let created = set_silence(&deps, &caller, None, body).await?;
    Ok((StatusCode::CREATED, Json(created)).into_response())
}

async fn change_silence(
    State(deps): State<AlertApiDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
    Json(body): Json<SilenceBody>,
) -> ApiResult<Json<Value>> {
    set_silence(&deps, &caller, Some(id), body).await.map(Json)
}

async fn end_silence(
    State(deps): State<AlertApiDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
) -> ApiResult<StatusCode> {
    let target = id.clone();
    let change = move |notifier: &mut OrgNotifier, now, _: &str| notifier.expire_silence(&id, now);
    deps.change_org(&caller, ("silence.ended", target), change).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AcknowledgementBody {
    #[serde(default)]
    comment: String,
}

/// Returns an acknowledgement as JSON.
fn acknowledgement_json(one: &AlertAcknowledgement) -> Value {
    json!({
        "starts_at": one.starts_at.to_rfc3339(),
        "author": one.author,
        "comment": one.comment,
        "at": one.at.to_rfc3339(),
    })
}

fn fingerprint_of(text: &str) -> ApiResult<AlertFingerprint> {
    AlertFingerprint::parse(text).ok_or_else(|| AcknowledgeError::NotFiring.into())
}

async fn acknowledge(
    State(deps): State<AlertApiDeps>,
    caller: MemberCaller,
    PathOf((_, text)): PathOf<(String, String)>,
    Json(body): Json<AcknowledgementBody>,
) -> ApiResult<Json<Value>> {
    let fingerprint = fingerprint_of(&text)?;
    let change = move |notifier: &mut OrgNotifier, now, author: &str| {
        notifier.acknowledge(fingerprint, author, &body.comment, now)
    };
    let done = deps.change_org(&caller, ("alert.acknowledged", text), change).await?;
    Ok(Json(acknowledgement_json(&done)))
}

async fn withdraw(
    State(deps): State<AlertApiDeps>,
    caller: MemberCaller,
    PathOf((_, text)): PathOf<(String, String)>,
) -> ApiResult<StatusCode> {
    let fingerprint = fingerprint_of(&text)?;
    let change = move |notifier: &mut OrgNotifier, _, _: &str| {
        let had = notifier.withdraw_acknowledgement(fingerprint);
        had.then_some(()).ok_or_else(|| ApiError::new(Code::NotFound, "this alert is not acknowledged"))
    };
    deps.change_org(&caller, ("alert.unacknowledged", text), change).await?;
    Ok(StatusCode::NO_CONTENT)
}
