//! The Pushgateway of an organisation (docs/specification.md C7): jobs that end before anything
//! could scrape them push their metrics here.
//!
//! The path of a group has any number of labels. The outermost layer makes one segment of them
//! ([`aliases`](crate::api::aliases)), so that a route has one parameter for the group.
//!
//! A change of a group writes its samples first and its row afterwards; if the row cannot be
//! stored, the client gets 503 and pushes again, which writes the same once more.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderName, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::write::{DURABILITY, WriteDeps, gzip, media, partial_error, request_refusal, unsupported};
use crate::api::body::{self, Json};
use crate::api::callers::{IngestAccess, IngestCaller};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::Lane;
use crate::api::params::{Params, PathOf, parse_span};
use crate::api::prom_json::number_text;
use crate::api::routes::{Auth, Routes};
use crate::identity::{Identity, StoredPush};
use crate::ingest::gzip::decompress;
use crate::ingest::text::Format;
use crate::model::{OrgId, Refusal, StandbyRefusal, Timestamp};
use crate::push::{
    Exposition, GroupingError, GroupingLabels, OrgPushes, Push, PushBodyError, PushChange, PushError,
    PushFormat, PushGroup, PushKind,
};
use crate::sync::IgnorePoison as _;

/// The shortest and the longest time to live of a group, in milliseconds.
const TTL_MS: RangeInclusive<i64> = 1_000..=10 * 365 * 86_400_000;
/// The most bytes of a list of groups as a tree of JSON, inclusive.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// The request header with the time to live, for clients that cannot add a parameter.
const TTL_HEADER: HeaderName = HeaderName::from_static("x-push-ttl");

/// The dependencies of the routes of pushed groups.
#[derive(Clone, Debug)]
pub struct PushDeps {
    /// The dependencies of writing samples.
    pub write: Arc<WriteDeps>,
    /// The stored groups.
    pub identity: Arc<Identity>,
    /// The groups in memory.
    pub groups: Arc<PushedGroups>,
    /// The time to live of groups that state none; `None` means without end.
    pub ttl: Option<Duration>,
    /// The time at which the server started.
    pub started: Timestamp,
}

/// The groups of all organisations in memory. They are loaded for the first request or repetition.
#[derive(Debug, Default)]
pub struct PushedGroups {
    orgs: Mutex<HashMap<OrgId, Arc<AsyncMutex<OrgPushes>>>>,
    is_loaded: AtomicBool,
}

impl PushedGroups {
    /// Loads the stored groups unless they are loaded. Reads from disk.
    fn load(&self, identity: &Identity) -> ApiResult<()> {
        if self.is_loaded.load(Ordering::Acquire) {
            return Ok(());
        }
        // A promoted server would otherwise continue with its groups from before the promotion.
        if identity.is_follower() {
            return Err(StandbyRefusal::Follower.into());
        }
        // Changes wait for the map, so nothing is stored while rows are read.
        let mut orgs = self.orgs.lock().ignore_poison();
        if self.is_loaded.load(Ordering::Acquire) {
            return Ok(());
        }
        for (org, stored) in identity.all_pushes()? {
            orgs.insert(org, Arc::new(AsyncMutex::new(groups_of(stored))));
        }
        self.is_loaded.store(true, Ordering::Release);
        Ok(())
    }

    fn of(&self, org: OrgId) -> Arc<AsyncMutex<OrgPushes>> {
        Arc::clone(self.orgs.lock().ignore_poison().entry(org).or_default())
    }

    fn all(&self) -> Vec<(OrgId, Arc<AsyncMutex<OrgPushes>>)> {
        self.orgs.lock().ignore_poison().iter().map(|(org, pushes)| (*org, Arc::clone(pushes))).collect()
    }

    fn forget(&self, org: OrgId) {
        self.orgs.lock().ignore_poison().remove(&org);
    }
}

fn groups_of(stored: Vec<StoredPush>) -> OrgPushes {
    let mut pushes = OrgPushes::default();
    for one in stored {
        let StoredPush { number, labels, text, ttl_ms, pushed_at, failed_at } = one;
        let group = PushGroup { number, text, ttl_ms, pushed_at, failed_at, sent_at: None };
        pushes.load(GroupingLabels::of_stored(labels), group);
    }
    pushes
}

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<PushDeps> {
    let path = "/orgs/{slug}/push/metrics/{grouping}";
    Routes::new()
        .put(path, Auth::IngestCaller, "Pushgateway: replace the metrics of a group", push)
        .post(path, Auth::IngestCaller, "Pushgateway: replace metrics of the same name in a group", push)
        .delete(path, Auth::IngestCaller, "Pushgateway: delete a group", delete)
        .get(
            "/orgs/{slug}/push/api/v1/metrics",
            Auth::IngestCaller,
            "Pushgateway: list the groups and their metrics",
            list,
        )
        .get("/orgs/{slug}/push/api/v1/status", Auth::IngestCaller, "Pushgateway: get the version", status)
}

/// Locks the groups of an organisation. The future waits, no thread does.
async fn locked(deps: &PushDeps, org: OrgId) -> ApiResult<OwnedMutexGuard<OrgPushes>> {
    if !deps.groups.is_loaded.load(Ordering::Acquire) {
        let (groups, identity) = (Arc::clone(&deps.groups), Arc::clone(&deps.identity));
        deps.write.lanes.run(Lane::Account, move || groups.load(&identity)).await??;
    }
    Ok(deps.groups.of(org).lock_owned().await)
}

/// The labels of a group: those of the path, and those that the API key forces on series.
fn grouping(path: &str, access: &IngestAccess) -> ApiResult<GroupingLabels> {
    let wrong = |error: GroupingError| ApiError::new(Code::BadRequest, error.to_string());
    Ok(GroupingLabels::parse(path).map_err(wrong)?.with(forced_labels(access)))
}

fn forced_labels(access: &IngestAccess) -> impl Iterator<Item = (&str, &str)> {
    access.forced_labels.iter().map(|(name, value)| (&**name, &**value))
}

/// Parses the time to live of a push in milliseconds: the parameter `ttl`, the header, or the
/// default. Zero stands for no end.
fn ttl_ms(request: &Request, default: Option<Duration>) -> ApiResult<Option<i64>> {
    let mut params = Params::of_query(request.uri().query())?;
    let header = request.headers().get(TTL_HEADER).map(|value| value.to_str().unwrap_or("?").to_owned());
    let Some(text) = params.one(&["ttl"])?.or(header) else {
        return Ok(default.and_then(|ttl| i64::try_from(ttl.as_millis()).ok()));
    };
    match parse_span(text.trim()) {
        Some(0) => Ok(None),
        Some(ms) if TTL_MS.contains(&ms) => Ok(Some(ms)),
        _ => Err(ApiError::invalid_parameter(
            "ttl",
            format!("{text:?} is not a duration from 1s to 10y, such as 90s or 1h30m; 0 means without end"),
        )),
    }
}

async fn push(
    State(deps): State<PushDeps>,
    machine: IngestCaller,
    PathOf((slug, group)): PathOf<(String, String)>,
    request: Request,
) -> ApiResult<Response> {
    let access = machine.enter(&slug)?;
    deps.write.engines.require_local_writes(access.org)?;
    let ttl_ms = ttl_ms(&request, deps.ttl)?;
    let labels = grouping(&group, &access)?;
    let kind = if *request.method() == Method::PUT { PushKind::Replace } else { PushKind::Merge };
    let (content_type, coding) = media(request.headers());
    if PushFormat::of(content_type, b"").is_none() {
        return Err(unsupported(
            "Content-Type: text/plain, or application/vnd.google.protobuf; \
             proto=io.prometheus.client.MetricFamily; encoding=delimited",
        ));
    }
    let is_gzip = gzip(coding).ok_or_else(|| unsupported("Content-Encoding: gzip, or none"))?;
    let content_type = content_type.to_owned();
    let bytes = body::read(request.into_body(), deps.write.limits.compressed_bytes_max).await?;
    let mut pushes = locked(&deps, access.org).await?;
    let lanes = deps.write.lanes.clone();
    let org = access.org;
    let work = move || {
        let now = deps.write.clock.now();
        let read = read_metrics(&deps, &bytes, is_gzip, &content_type, &labels);
        let metrics = match read {
            Ok(metrics) => metrics,
            Err(refused) => {
                let refusal = request_refusal(refused.code().as_str(), refused.detail().to_owned());
                deps.record_failure(&access, &mut pushes, &labels, vec![refusal]);
                return Err(refused);
            }
        };
        access.charge_samples(metrics.series_len())?;
        let push = Push { kind, metrics, ttl_ms };
        let change = pushes.push(labels.clone(), push, now).map_err(push_refused)?;
        let report = deps.write.tsdb.append_whole(access.org, &change.forced_batch(), now)?;
        if report.refused > 0 {
            deps.record_failure(&access, &mut pushes, &labels, report.refusals.clone());
            return Err(partial_error(&deps.write, report));
        }
        deps.store_row(access.org, &mut pushes, change)?;
        Ok((StatusCode::OK, [(DURABILITY, deps.write.durability())]).into_response())
    };
    lanes.run(Lane::Ingest(org), work).await?
}

fn read_metrics(
    deps: &PushDeps,
    bytes: &[u8],
    is_gzip: bool,
    content_type: &str,
    labels: &GroupingLabels,
) -> ApiResult<Exposition> {
    let limits = &deps.write.limits;
    let mut plain = Vec::new();
    let body = match is_gzip {
        true => decompress(bytes, limits, &mut plain)?,
        false => bytes,
    };
    let format = PushFormat::of(content_type, body).unwrap_or(PushFormat::Text(Format::Prometheus));
    Exposition::read(body, format, labels, limits).map_err(|error| match error {
        PushBodyError::Decode(error) => error.into(),
        other => ApiError::new(Code::BadRequest, other.to_string()),
    })
}

fn push_refused(error: PushError) -> ApiError {
    let code = match error {
        PushError::Groups => Code::LimitReached,
        PushError::Group | PushError::Org => Code::BodyTooLarge,
        PushError::Unreadable(error) => return unreadable(error),
    };
    ApiError::new(code, error.to_string())
}

/// The error of a group whose stored metrics cannot be read: 503 if there is too little memory.
fn unreadable(error: PushBodyError) -> ApiError {
    match error {
        PushBodyError::Decode(error) => error.into(),
        other => ApiError::internal(format!("a stored group is damaged: {other}")),
    }
}

async fn delete(
    State(deps): State<PushDeps>,
    machine: IngestCaller,
    PathOf((slug, group)): PathOf<(String, String)>,
) -> ApiResult<Response> {
    let access = machine.enter(&slug)?;
    deps.write.engines.require_local_writes(access.org)?;
    let labels = grouping(&group, &access)?;
    let org = access.org;
    let mut pushes = locked(&deps, org).await?;
    let lanes = deps.write.lanes.clone();
    let work = move || {
        let now = deps.write.clock.now();
        // A group that does not exist is deleted already, as in a Pushgateway.
        if let Some(change) = pushes.delete(&labels, now).map_err(unreadable)? {
            deps.store(org, &mut pushes, change, now)?;
        }
        Ok(StatusCode::ACCEPTED.into_response())
    };
    lanes.run(Lane::Ingest(org), work).await?
}

impl PushDeps {
    /// Writes the samples of a change. Refused ones, such as those of series that the limits do not
    /// admit any more, are left out.
    fn append(&self, org: OrgId, change: &PushChange, now: Timestamp) -> ApiResult<()> {
        let report = self.write.tsdb.append(org, &change.forced_batch(), now)?;
        if report.refused > 0 {
            tracing::debug!(org = org.0, refused = report.refused, "samples of a pushed group are refused");
        }
        Ok(())
    }

    /// Writes the samples of a change, stores its row, and applies it.
    fn store(&self, org: OrgId, pushes: &mut OrgPushes, change: PushChange, now: Timestamp) -> ApiResult<()> {
        self.append(org, &change, now)?;
        self.store_row(org, pushes, change)
    }

    /// Stores the row of a change, and applies it.
    fn store_row(&self, org: OrgId, pushes: &mut OrgPushes, change: PushChange) -> ApiResult<()> {
        match &change.group {
            Some(group) => self.identity.put_push(
                org,
                &StoredPush {
                    number: group.number,
                    labels: owned(&change.labels),
                    text: Arc::clone(&group.text),
                    ttl_ms: group.ttl_ms,
                    pushed_at: group.pushed_at,
                    failed_at: group.failed_at,
                },
            )?,
            None => self.identity.remove_push(org, change.number)?,
        }
        pushes.apply(change);
        Ok(())
    }

    /// Records a refused push: the reasons in the list of its sender, and the time of the failure
    /// in its group, if that exists.
    fn record_failure(
        &self,
        access: &IngestAccess,
        pushes: &mut OrgPushes,
        labels: &GroupingLabels,
        refusals: Vec<Refusal>,
    ) {
        let now = self.write.clock.now();
        if let Some(sender) = access.sender() {
            self.write.rejects.record(access.org, &sender, refusals, now);
        }
        let Some(change) = pushes.fail(labels, now) else { return };
        let stored = self.identity.fail_push(access.org, change.number, now).map_err(ApiError::from);
        match stored.and_then(|()| self.append(access.org, &change, now)) {
            Ok(()) => pushes.apply(change),
            Err(error) => tracing::warn!(%error, "the time of a refused push was not stored"),
        }
    }

    /// Repeats the samples of the groups that are due, and ends expired groups. Blocks; called by a
    /// task.
    pub fn repeat(&self, now: Timestamp) {
        if !self.identity.accepts_changes() {
            return;
        }
        if let Err(error) = self.groups.load(&self.identity) {
            return tracing::warn!(%error, "pushed groups are not loaded");
        }
        for (org, pushes) in self.groups.all() {
            match self.identity.org(org) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.groups.forget(org);
                    continue;
                }
                Err(error) => return tracing::warn!(%error, "pushed groups are not repeated"),
            }
            if self.write.engines.require_local_writes(org).is_err() {
                continue;
            }
            let due = pushes.blocking_lock().due(now);
            for labels in due {
                // Locked for one group at a time, so that pushes wait for one append at most.
                let mut pushes = pushes.blocking_lock();
                if let Err(error) = self.repeat_group(org, &mut pushes, &labels, now) {
                    tracing::warn!(%error, "the samples of a pushed group were not repeated");
                    break;
                }
            }
        }
    }

    fn repeat_group(
        &self,
        org: OrgId,
        pushes: &mut OrgPushes,
        labels: &GroupingLabels,
        now: Timestamp,
    ) -> ApiResult<()> {
        let Some(change) = pushes.repeat(labels, now).map_err(unreadable)? else { return Ok(()) };
        if change.group.is_none() {
            self.store(org, pushes, change, now)?;
        } else {
            self.append(org, &change, now)?;
            pushes.apply(change);
        }
        Ok(())
    }
}

fn owned(labels: &GroupingLabels) -> Vec<(String, String)> {
    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

async fn list(
    State(deps): State<PushDeps>,
    machine: IngestCaller,
    PathOf(slug): PathOf<String>,
) -> ApiResult<Json<Value>> {
    let access = machine.enter(&slug)?;
    let (org, identity, lanes) = (access.org, Arc::clone(&deps.identity), deps.write.lanes.clone());
    // A follower reads the groups of its primary each time.
    let locked = if identity.is_follower() { None } else { Some(locked(&deps, org).await?) };
    let work = move || match locked {
        Some(pushes) => list_of(&pushes, &access),
        None => list_of(&groups_of(identity.pushes_of(org)?), &access),
    };
    let data = lanes.run(Lane::Ingest(org), work).await??;
    Ok(Json(json!({ "status": "success", "data": data })))
}

/// Returns the groups that the caller may see.
fn list_of(pushes: &OrgPushes, access: &IngestAccess) -> ApiResult<Vec<Value>> {
    let shown: Vec<(&GroupingLabels, &PushGroup)> =
        pushes.iter().filter(|(labels, _)| labels.has_all(forced_labels(access))).collect();
    let bytes: u64 = shown.iter().map(|(labels, group)| group.json_bytes(labels)).sum();
    if bytes > LIST_BYTES_MAX {
        let detail = format!(
            "the list takes about {bytes} bytes of memory, of which {LIST_BYTES_MAX} are allowed: query the \
             series instead"
        );
        return Err(ApiError::new(Code::QueryTooExpensive, detail));
    }
    shown.into_iter().map(|(labels, group)| view(labels, group)).collect()
}

/// Returns a group as a Pushgateway lists it. The parts of a histogram or a summary are listed by
/// the names of their series.
fn view(labels: &GroupingLabels, group: &PushGroup) -> ApiResult<Value> {
    let own: Map<String, Value> =
        labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let time = group.pushed_at.to_rfc3339();
    let is_last_good = group.failed_at.is_none_or(|failed| failed < group.pushed_at);
    let mut view = Map::new();
    let metrics = group.metrics(labels).map_err(unreadable)?;
    for series in metrics.series() {
        let entry = view.entry(series.name).or_insert_with(|| {
            json!({
                "time_stamp": time,
                "type": series.kind.as_str().to_ascii_uppercase(),
                "help": series.help,
                "metrics": [],
            })
        });
        let mut all = own.clone();
        all.extend(series.labels.iter().map(|(name, value)| (name.clone(), value.as_str().into())));
        if let Some(metrics) = entry.get_mut("metrics").and_then(Value::as_array_mut) {
            metrics.push(json!({ "labels": all, "value": number_text(series.value) }));
        }
    }
    let gauge = |at: Option<Timestamp>| {
        let seconds = at.map_or(0.0, Timestamp::as_seconds);
        let metric = json!({ "labels": own, "value": number_text(seconds) });
        json!({ "time_stamp": time, "type": "GAUGE", "metrics": [metric] })
    };
    view.insert("push_time_seconds".to_owned(), gauge(Some(group.pushed_at)));
    view.insert("push_failure_time_seconds".to_owned(), gauge(group.failed_at));
    view.insert("labels".to_owned(), own.into());
    view.insert("last_push_successful".to_owned(), is_last_good.into());
    Ok(view.into())
}

async fn status(
    State(deps): State<PushDeps>,
    machine: IngestCaller,
    PathOf(slug): PathOf<String>,
) -> ApiResult<Json<Value>> {
    machine.enter(&slug)?;
    let build = json!({ "version": env!("CARGO_PKG_VERSION") });
    let data = json!({ "build_information": build, "flags": {}, "start_time": deps.started.to_rfc3339() });
    Ok(Json(json!({ "status": "success", "data": data })))
}
