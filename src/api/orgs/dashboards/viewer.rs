//! A dashboard for its viewers: members, and embed tokens that grant this dashboard
//! (docs/specification.md C5).
//!
//! The expressions of a dashboard stay on the server. A viewer names a query by its panel, and
//! sends values for the variables that it may set. Locked variables are matchers of the scope, so
//! no value widens them.
//!
//! | file | subject |
//! |---|---|
//! | `data` | the results of the queries of panels |
//! | `options` | the options of a variable |
//! | `live` | the points of the queries of panels, each step when it is due |

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts as _, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::{data, live, not_found, options};
use crate::api::body::{Json, read_json};
use crate::api::callers::{Endpoint, Grant, Permission, QueryAccess, QueryCaller, StandingCaller};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::orgs::etag::{content_hash, etag_header, not_modified};
use crate::api::orgs::query::ReadDeps;
use crate::api::orgs::query::batch::Parameter;
use crate::api::params::{Params, PathOf};
use crate::api::routes::{Auth, Routes};
use crate::dashboards::{
    Context, Dashboard, InterpolateError, Panel, SelectionError, Selections, Target, VariableAccess,
    duration_ms,
};
use crate::identity::{Identity, StoreError};
use crate::model::{LruBounds, OrgId, OrgLru, TimeRange, Timestamp};

const VIEWERS: Auth = Auth::QueryCaller(Endpoint::Dashboard);

/// Bounds of the cache of parsed documents.
const DOCUMENTS: LruBounds = LruBounds { all: 64 << 20, org: 16 << 20, one: 12 << 20 };
/// Memory of a parsed document, relative to its text.
const PARSED_PER_BYTE: usize = 8;

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<ViewerDeps> {
    Routes::new()
        .get("/orgs/{slug}/dashboards/{uid}/view", VIEWERS, "Get a dashboard without its queries", view)
        .post(
            "/orgs/{slug}/dashboards/{uid}/data",
            VIEWERS,
            "Evaluate queries of a dashboard's panels and stream their results",
            data::data,
        )
        .post(
            "/orgs/{slug}/dashboards/{uid}/options",
            VIEWERS,
            "List the options of a dashboard's variable",
            options::options,
        )
        .post(
            "/orgs/{slug}/dashboards/{uid}/live",
            VIEWERS,
            "Stream the points of queries of a dashboard's panels, each step when it is due",
            live::live,
        )
}

/// The dependencies of the viewers' routes.
#[derive(Clone, Debug)]
pub struct ViewerDeps {
    /// The stored dashboards.
    identity: Arc<Identity>,
    /// The dependencies of queries.
    pub(in crate::api::orgs) read: ReadDeps,
    /// Parsed documents.
    documents: Arc<OrgLru<Arc<Dashboard>>>,
}

/// The current version of a dashboard.
#[derive(Clone)]
pub(in crate::api::orgs) struct ViewedDashboard {
    pub(in crate::api::orgs) document: Arc<Dashboard>,
    version: u32,
    /// Identifies the version, also among dashboards that had the same uid before.
    key: String,
}

impl ViewerDeps {
    /// Returns the dependencies with an empty cache.
    pub fn new(identity: Arc<Identity>, read: ReadDeps) -> ViewerDeps {
        ViewerDeps { identity, read, documents: Arc::new(OrgLru::new(DOCUMENTS)) }
    }

    /// Returns the current version of a dashboard. Reads the store, so it belongs on a lane.
    ///
    /// # Errors
    /// 404 `not_found`, 503 `storage_degraded`.
    pub(in crate::api::orgs) fn dashboard(&self, org: OrgId, uid: &str) -> ApiResult<ViewedDashboard> {
        let parse = |version: u32, key: String, text: &dyn Fn() -> ApiResult<String>| {
            let cached = self.documents.get(org, &key);
            let document = match cached {
                Some(document) => document,
                None => {
                    let text = text()?;
                    let parsed = Dashboard::parse(uid, &text)
                        .map_err(|_| StoreError::Inconsistent("the document of a dashboard is not JSON"))?;
                    let parsed = Arc::new(parsed);
                    let bytes = text.len() * PARSED_PER_BYTE + key.len();
                    self.documents.insert(org, &key, Arc::clone(&parsed), bytes);
                    parsed
                }
            };
            Ok(ViewedDashboard { document, version, key })
        };
        // A version may be removed between the reads of its row and of its document.
        for _ in 0..3 {
            let Some(found) = self.identity.dashboard(org, uid)? else {
                let files = self.identity.provisioned_dashboards();
                let file = files.get(uid).ok_or_else(not_found)?;
                return parse(0, format!("p{} {uid}", file.hash), &|| Ok(file.text.as_ref().to_owned()));
            };
            let key = format!("{} {} {uid}", found.version, found.created_at.as_ms());
            let text = || self.identity.dashboard_text(org, uid, found.version)?.ok_or_else(not_found);
            match parse(found.version, key, &text) {
                Err(error) if error.code() == Code::NotFound => {}
                done => return done,
            }
        }
        Err(not_found())
    }
}

/// A request whose caller has entered the organisation and may see the dashboard in the path.
pub(super) struct ViewerRequest {
    pub(super) access: QueryAccess,
    pub(super) caller: StandingCaller,
    pub(super) uid: String,
    pub(super) headers: HeaderMap,
    /// The body of a POST request, not parsed yet.
    pub(super) body: Bytes,
}

impl FromRequest<ViewerDeps> for ViewerRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &ViewerDeps) -> ApiResult<ViewerRequest> {
        let (mut parts, body) = request.into_parts();
        let caller = QueryCaller::from_request_parts(&mut parts, &()).await?;
        let PathOf((slug, uid)) = PathOf::<(String, String)>::from_request_parts(&mut parts, &()).await?;
        let access = caller.enter(&slug, Endpoint::Dashboard)?;
        access.grant.require(Permission::Dashboard(&uid))?;
        let headers = parts.headers.clone();
        let body = match parts.method {
            Method::POST => read_json(Request::from_parts(parts, body)).await?,
            _ => Bytes::new(),
        };
        let caller = StandingCaller::new(caller, slug.into());
        Ok(ViewerRequest { access, caller, uid, headers, body })
    }
}

/// The values that a request sends, by variable.
pub(in crate::api::orgs) type SentValues = BTreeMap<String, Vec<String>>;

/// The part of a request that its queries have in common: the dashboard, and the selected values.
pub(in crate::api::orgs) struct Viewing<'r> {
    pub(super) dashboard: &'r Dashboard,
    pub(super) grant: &'r Grant,
    selections: ApiResult<Selections>,
}

/// A query of a panel, as a request names it.
pub(in crate::api::orgs) struct PanelQuery<'q> {
    pub(in crate::api::orgs) panel: i64,
    pub(in crate::api::orgs) ref_id: &'q str,
    /// Values for this query alone.
    pub(in crate::api::orgs) variables: &'q SentValues,
    pub(in crate::api::orgs) range: TimeRange,
    pub(in crate::api::orgs) intervals: Intervals,
}

/// `$__interval` and `$__rate_interval` in milliseconds.
#[derive(Clone, Copy)]
pub(in crate::api::orgs) struct Intervals {
    interval_ms: i64,
    rate_interval_ms: i64,
}

impl Intervals {
    /// Parses both intervals. The defaults are the step, and the rate interval that Grafana derives
    /// from it for samples every 15 seconds.
    ///
    /// # Errors
    /// 400 `invalid_parameter`.
    pub(in crate::api::orgs) fn parse(
        interval: Option<&str>,
        rate_interval: Option<&str>,
        step_ms: Option<i64>,
    ) -> ApiResult<Intervals> {
        const SCRAPE_MS: i64 = 15_000;
        let parse = |name: &'static str, text: Option<&str>, default_ms: i64| match text {
            None => Ok(default_ms),
            Some(text) => {
                let invalid = || ApiError::invalid_parameter(name, "a duration such as 15s is expected");
                duration_ms(text).ok_or_else(invalid)
            }
        };
        let interval_ms = parse("interval", interval, step_ms.filter(|ms| *ms > 0).unwrap_or(SCRAPE_MS))?;
        let least = interval_ms.saturating_add(SCRAPE_MS).max(4 * SCRAPE_MS);
        Ok(Intervals { interval_ms, rate_interval_ms: parse("rate_interval", rate_interval, least)? })
    }

    fn context(self, range: TimeRange) -> Context {
        Context {
            from_ms: range.start.as_ms(),
            to_ms: range.end.as_ms(),
            interval_ms: self.interval_ms,
            rate_interval_ms: self.rate_interval_ms,
        }
    }
}

impl<'r> Viewing<'r> {
    /// Selects the values of a request. A value that may not be selected is the error of every
    /// query.
    pub(in crate::api::orgs) fn new(
        dashboard: &'r Dashboard,
        grant: &'r Grant,
        sent: &SentValues,
    ) -> Viewing<'r> {
        let locked = grant.dashboard().into_iter().flat_map(|granted| granted.locked.keys());
        let selections = dashboard.selections(access_of(grant), locked, sent);
        let selections = selections.map_err(|error| refused_value(grant, &error));
        Viewing { dashboard, grant, selections }
    }

    pub(in crate::api::orgs) fn selections(&self) -> ApiResult<&Selections> {
        self.selections.as_ref().map_err(Clone::clone)
    }

    /// Returns the expression of a panel's query, with the values of its variables.
    ///
    /// # Errors
    /// For a panel, query, variable or value that the caller may not use, 403 `embed_restricted`
    /// for tokens, and 404 `not_found` or 400 `invalid_parameter` for members.
    pub(in crate::api::orgs) fn expression(&self, query: &PanelQuery<'_>) -> ApiResult<String> {
        let (panel, target): (&Panel, &Target) =
            self.dashboard.target(query.panel, query.ref_id).ok_or_else(|| {
                self.refused(Code::NotFound, "the dashboard has no such query that can be evaluated")
            })?;
        let mut selections = self.selections()?.clone();
        let sent = query.variables;
        let selected = self.dashboard.select_for_panel(&mut selections, access_of(self.grant), panel, sent);
        selected.map_err(|error| refused_value(self.grant, &error))?;
        self.with_values(&target.expr, &selections, &query.intervals.context(query.range))
    }

    /// Returns the expression of an annotation at a place of the document's list, with the values
    /// of its variables.
    ///
    /// # Errors
    /// As [`Viewing::expression`].
    pub(super) fn annotation(
        &self,
        place: usize,
        range: TimeRange,
        intervals: Intervals,
    ) -> ApiResult<String> {
        let missing = || self.refused(Code::NotFound, "the dashboard has no such annotation with a query");
        let expr = self.dashboard.annotation(place).ok_or_else(missing)?;
        self.with_values(expr, self.selections()?, &intervals.context(range))
    }

    fn with_values(&self, expr: &str, selections: &Selections, context: &Context) -> ApiResult<String> {
        let text = self.dashboard.query(expr, selections, context);
        text.map_err(|error| refused_text(self.grant, &error))
    }

    /// Returns the context of a variable's query.
    pub(super) fn context(range: TimeRange) -> ApiResult<Context> {
        Ok(Intervals::parse(None, None, None)?.context(range))
    }

    /// Returns the error for something that the dashboard does not have. The error reveals nothing
    /// that the token does not grant.
    pub(in crate::api::orgs) fn refused(&self, code: Code, detail: &'static str) -> ApiError {
        if self.grant.is_token() {
            return ApiError::new(
                Code::EmbedRestricted,
                "this token does not grant this part of the dashboard",
            );
        }
        ApiError::new(code, detail)
    }
}

/// Returns how the value of a variable is chosen. Members choose all values.
pub(super) fn access_of<'g>(grant: &'g Grant) -> impl Fn(&str) -> VariableAccess<'g> + Copy {
    move |name| match grant.dashboard() {
        None if grant.is_token() => VariableAccess::Fixed,
        None => VariableAccess::Open(None),
        Some(dashboard) => match (dashboard.locked.get(name), dashboard.open.get(name)) {
            (Some(values), _) => VariableAccess::Locked(values),
            (None, Some(values)) => VariableAccess::Open(values.as_deref()),
            (None, None) => VariableAccess::Fixed,
        },
    }
}

fn refused_value(grant: &Grant, error: &SelectionError) -> ApiError {
    if grant.is_token() {
        return ApiError::new(Code::EmbedRestricted, error.to_string());
    }
    match error {
        SelectionError::Unknown(_) => ApiError::new(Code::NotFound, error.to_string()),
        _ => ApiError::invalid_parameter("variables", error.to_string()),
    }
}

pub(super) fn refused_text(grant: &Grant, error: &InterpolateError) -> ApiError {
    let is_value = matches!(error, InterpolateError::NotPlain(_) | InterpolateError::Unclear);
    if grant.is_token() && is_value {
        return ApiError::new(Code::EmbedRestricted, error.to_string());
    }
    ApiError::invalid_parameter("variables", error.to_string())
}

/// Parses `start` and `end`. The default is the last hour.
///
/// # Errors
/// 400 `invalid_parameter`.
pub(super) fn time_range(
    start: Option<Parameter>,
    end: Option<Parameter>,
    now: Timestamp,
) -> ApiResult<TimeRange> {
    const HOUR_MS: i64 = 3_600_000;
    let pairs = [("start", start), ("end", end)].into_iter();
    let pairs = pairs.filter_map(|(name, value)| Some((name.to_owned(), value?.0)));
    let mut params = Params::of_pairs(pairs.collect());
    let end = params.time("end", now)?.unwrap_or(now);
    let start = params.time("start", now)?.unwrap_or(end.plus_ms(-HOUR_MS));
    if end < start {
        return Err(ApiError::invalid_parameter("end", "end timestamp must not be before start time"));
    }
    Ok(TimeRange::new(start, end))
}

async fn view(State(deps): State<ViewerDeps>, request: ViewerRequest) -> ApiResult<Response> {
    let ViewerRequest { access, uid, headers, .. } = request;
    let (org, lane) = (access.access.org, access.lane());
    let known = headers.get(header::IF_NONE_MATCH).cloned();
    let viewer = deps.clone();
    let read = move || {
        let found = viewer.dashboard(org, &uid)?;
        let grant = &access.grant;
        let seconds = |ms: Option<i64>| ms.map(|ms| ms / 1_000);
        let (max_range_s, min_step_s) = (seconds(grant.max_range_ms()), seconds(grant.min_step_ms()));
        let variables = found.document.variables_view(access_of(grant));
        // The document depends on the grant as well.
        let shown = (&found.key, variables.to_string(), max_range_s, min_step_s, grant.is_token());
        let tag = format!("\"{}-{:016x}\"", found.version, content_hash(shown));
        if let Some(response) = not_modified(known.as_ref(), &tag) {
            return Ok(response);
        }
        let body = json!({
            "uid": uid,
            "title": found.document.title,
            "version": found.version,
            "dashboard": found.document.view(access_of(grant)),
            "variables": variables,
            "max_range_s": max_range_s,
            "min_step_s": min_step_s,
        });
        Ok((etag_header(&tag), Json(body)).into_response())
    };
    deps.read.lanes.run_before_queries(lane, read).await?
}
