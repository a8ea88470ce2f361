//! The dashboards of an organisation (docs/specification.md C9): documents in Grafana's JSON, their
//! versions, and each member's stars.
//!
//! A document is stored and returned as the text that was sent. Its parsing and compression run on
//! the query lane, where an organisation's share is bounded.

mod data;
mod links;
mod live;
mod options;
mod versions;
pub mod viewer;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::OrgDeps;
use super::etag::{etag, etag_header, if_match, not_modified, required_if_match};
use crate::api::body::{Json, is_json, parse_json, read};
use crate::api::callers::MemberCaller;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::Lane;
use crate::api::listing::PageRequest;
use crate::api::params::{Params, PathOf};
use crate::api::routes::{Auth, Login, Routes};
use crate::api::views::dashboard::dashboard_json;
use crate::entropy::Entropy;
use crate::identity::{
    DASHBOARD_BYTES_MAX, Dashboard, DashboardDocument, DashboardError, DashboardMarks, DashboardWrite,
    ExpectedVersion, Identity, Role, StoreError, UserId, check_depth, parse_folder, parse_message,
};
use crate::model::OrgId;

const READS: Auth = Auth::Member(Role::Viewer, Login::Any);
const WRITES: Auth = Auth::Member(Role::Editor, Login::Any);

/// The most bytes of a request in addition to the document itself.
const ENVELOPE_BYTES_MAX: usize = 64 * 1_024;

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    let routes = Routes::new()
        .get("/orgs/{slug}/dashboards", READS, "List the dashboards of an organisation", list)
        .post("/orgs/{slug}/dashboards", WRITES, "Create a dashboard", create)
        .get("/orgs/{slug}/dashboards/{uid}", READS, "Get a dashboard", show)
        .put("/orgs/{slug}/dashboards/{uid}", WRITES, "Store a new version of a dashboard", update)
        .delete("/orgs/{slug}/dashboards/{uid}", WRITES, "Delete a dashboard and its versions", delete)
        .put("/orgs/{slug}/dashboards/{uid}/star", READS, "Star a dashboard", star)
        .delete("/orgs/{slug}/dashboards/{uid}/star", READS, "Remove the star of a dashboard", unstar);
    routes.merge(versions::routes()).merge(links::routes())
}

fn not_found() -> ApiError {
    DashboardError::NotFound.into()
}

// -- reading --------------------------------------------------------------------------------------

/// The filters of a listing.
struct Filters {
    text: Option<String>,
    tag: Option<String>,
    folder: Option<String>,
    starred: Option<bool>,
}

impl Filters {
    fn take(params: &mut Params) -> ApiResult<Filters> {
        let starred = match params.one(&["starred"])?.as_deref() {
            None => None,
            Some("true" | "1") => Some(true),
            Some("false" | "0") => Some(false),
            Some(_) => return Err(ApiError::invalid_parameter("starred", "is true or false")),
        };
        let text = params.one(&["q"])?.map(|text| text.to_lowercase());
        Ok(Filters { text, tag: params.one(&["tag"])?, folder: params.one(&["folder"])?, starred })
    }

    fn admit(&self, dashboard: &Dashboard, marks: &DashboardMarks) -> bool {
        let contains =
            |text: &str| self.text.as_ref().is_none_or(|wanted| text.to_lowercase().contains(wanted));
        let in_folder = |wanted: &String| {
            let rest = dashboard.folder.strip_prefix(wanted.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        (contains(&dashboard.title)
            || contains(&dashboard.folder)
            || dashboard.tags.iter().any(|tag| contains(tag)))
            && self.tag.as_ref().is_none_or(|wanted| dashboard.tags.contains(wanted))
            && self.folder.as_ref().is_none_or(in_folder)
            && self.starred.is_none_or(|wanted| marks.is_starred(&dashboard.uid) == wanted)
    }
}

/// Lists stored and provisioned dashboards by title. A stored dashboard hides a provisioned one
/// with the same uid.
async fn list(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    RawQuery(query): RawQuery,
) -> ApiResult<Json<Value>> {
    let mut params = Params::of_query(query.as_deref())?;
    let page = PageRequest::take(&mut params)?;
    let filters = Filters::take(&mut params)?;
    let (org, user) = (caller.org().id, caller.user());
    let read = move |identity: &Identity| {
        let marks = identity.dashboard_marks(org, user)?;
        let stored = identity.dashboards(org)?;
        let provisioned = identity.provisioned_dashboards();
        // `stored` is in the order of the uids.
        let is_hidden =
            |uid: &String| stored.binary_search_by(|dashboard| dashboard.uid.as_str().cmp(uid)).is_ok();
        let files = provisioned.iter().filter(|(uid, _)| !is_hidden(uid));
        let mut rows: Vec<(&Dashboard, bool)> = stored.iter().map(|dashboard| (dashboard, false)).collect();
        rows.extend(files.map(|(_, file)| (&file.dashboard, true)));
        rows.retain(|(dashboard, _)| filters.admit(dashboard, &marks));
        let key = |(dashboard, _): &(&Dashboard, bool)| {
            format!("{}\0{}", dashboard.title.to_lowercase(), dashboard.uid)
        };
        rows.sort_by_cached_key(key);
        page.answer(&rows, key, |(dashboard, provisioned)| dashboard_json(dashboard, *provisioned, &marks))
    };
    deps.read(org, read).await
}

/// A dashboard with its document, which is written as it is stored.
#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    meta: Value,
    dashboard: Box<RawValue>,
}

/// Returns a stored text as JSON.
fn raw(text: String) -> ApiResult<Box<RawValue>> {
    RawValue::from_string(text)
        .map_err(|_| StoreError::Inconsistent("the document of a dashboard is not JSON").into())
}

async fn show(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, uid)): PathOf<(String, String)>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let (org, user, now) = (caller.org().id, caller.user(), deps.clock.now());
    let known = headers.get(header::IF_NONE_MATCH).cloned();
    let read = move |identity: &Identity| {
        let found = identity.dashboard(org, &uid)?;
        let (tag, provisioned) = match &found {
            Some(dashboard) => (etag(dashboard.version), None),
            None => {
                let file = identity.provisioned_dashboards().get(&uid).cloned().ok_or_else(not_found)?;
                (format!("\"p{}\"", file.hash), Some(file))
            }
        };
        identity.note_dashboard_view(org, user, &uid, now);
        if let Some(response) = not_modified(known.as_ref(), &tag) {
            return Ok(response);
        }
        let marks = identity.dashboard_marks(org, user)?;
        let (dashboard, text) = match &provisioned {
            Some(file) => (file.dashboard.clone(), file.text.as_ref().to_owned()),
            None => identity.dashboard_with_text(org, &uid)?.ok_or_else(not_found)?,
        };
        let tag = if provisioned.is_some() { tag } else { etag(dashboard.version) };
        let meta = dashboard_json(&dashboard, provisioned.is_some(), &marks);
        Ok((etag_header(&tag), Json(Whole { meta, dashboard: raw(text)? })).into_response())
    };
    deps.read(org, read).await
}

// -- writing --------------------------------------------------------------------------------------

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteBody {
    dashboard: Box<RawValue>,
    folder: Option<String>,
    message: Option<String>,
}

impl OrgDeps {
    /// Reads, checks and compresses the dashboard of a request, and charges it to its organisation.
    async fn receive(&self, org: OrgId, headers: &HeaderMap, body: Body) -> ApiResult<DashboardWrite> {
        if !is_json(headers) {
            return Err(ApiError::new(Code::UnsupportedMediaType, "send Content-Type: application/json"));
        }
        let bytes = read(body, DASHBOARD_BYTES_MAX + ENVELOPE_BYTES_MAX).await;
        let bytes = bytes.map_err(|error| match error.code() {
            Code::BodyTooLarge => {
                let detail = format!("a dashboard has at most {DASHBOARD_BYTES_MAX} bytes of JSON");
                ApiError::new(Code::DashboardTooLarge, detail).with("limit_bytes", DASHBOARD_BYTES_MAX)
            }
            _ => error,
        })?;
        let work = move || -> ApiResult<DashboardWrite> {
            check_depth(&bytes, 1)?;
            let body: WriteBody = parse_json(&bytes)?;
            drop(bytes);
            let document = DashboardDocument::parse(String::from(Box::<str>::from(body.dashboard)))?;
            let folder = body.folder.as_deref().map(parse_folder).transpose()?;
            let message = parse_message(body.message.as_deref().unwrap_or_default())?;
            Ok(DashboardWrite { packed: document.pack()?, folder, message })
        };
        let write = self.lanes.run(Lane::Query(org), work).await??;
        self.limits.charge_dashboard(org)?;
        Ok(write)
    }
}

/// Returns the response to a change, without the document that the client just sent.
fn changed(identity: &Identity, org: OrgId, user: UserId, dashboard: &Dashboard) -> ApiResult<Response> {
    let marks = identity.dashboard_marks(org, user)?;
    let meta = dashboard_json(dashboard, false, &marks);
    Ok((etag_header(&etag(dashboard.version)), Json(meta)).into_response())
}

async fn create(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    let (org, user, now) = (caller.org().id, caller.user(), deps.clock.now());
    let write = deps.receive(org, &headers, body).await?;
    let place = format!("{}/api/v1/orgs/{}/dashboards", deps.public_url, caller.org().slug.as_str());
    let create = move |identity: &Identity| -> ApiResult<Response> {
        let made = identity.create_dashboard(org, Some(user), write, now, &mut Entropy::system())?;
        let mut response = changed(identity, org, user, &made)?;
        *response.status_mut() = StatusCode::CREATED;
        if let Ok(place) = HeaderValue::try_from(format!("{place}/{}", made.uid)) {
            response.headers_mut().insert(header::LOCATION, place);
        }
        Ok(response)
    };
    deps.change(&caller, create).await
}

async fn update(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, uid)): PathOf<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    let (org, user, now) = (caller.org().id, caller.user(), deps.clock.now());
    let write = deps.receive(org, &headers, body).await?;
    let expected = required_if_match(&headers)?;
    if write.packed.document().uid().is_some_and(|own| own != uid) {
        let message = format!("the document has another uid than the path, which has {uid}");
        return Err(ApiError::new(Code::InvalidDashboard, message.clone()).with_field(
            "dashboard.uid",
            "invalid",
            message,
        ));
    }
    let update = move |identity: &Identity| -> ApiResult<Response> {
        let stored = identity.update_dashboard(org, Some(user), &uid, expected, write, now)?;
        changed(identity, org, user, &stored)
    };
    deps.change(&caller, update).await
}

async fn delete(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, uid)): PathOf<(String, String)>,
    headers: HeaderMap,
) -> ApiResult<StatusCode> {
    let (org, user, now) = (caller.org().id, caller.user(), deps.clock.now());
    let expected = if_match(&headers).unwrap_or(ExpectedVersion::Any);
    deps.change(&caller, move |identity| identity.delete_dashboard(org, Some(user), &uid, expected, now))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn star(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, uid)): PathOf<(String, String)>,
) -> ApiResult<StatusCode> {
    set_star(&deps, &caller, uid, true).await
}

async fn unstar(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, uid)): PathOf<(String, String)>,
) -> ApiResult<StatusCode> {
    set_star(&deps, &caller, uid, false).await
}

async fn set_star(
    deps: &OrgDeps,
    caller: &MemberCaller,
    uid: String,
    starred: bool,
) -> ApiResult<StatusCode> {
    let (org, user) = (caller.org().id, caller.user());
    deps.change(caller, move |identity| identity.star_dashboard(org, user, &uid, starred)).await?;
    Ok(StatusCode::NO_CONTENT)
}
