//! Deleting samples, on Prometheus' own path (API.md C6; prometheus/web/api/v1, `admin/tsdb/delete_series`).
//!
//! For an administrator's session only: no key and no token deletes. What was deleted is noted in the audit log before
//! it is gone.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use super::metrics::range;
use super::prometheus::{Given, in_parameter};
use super::query::ReadDeps;
use super::query::run::{Watch, selectors};
use crate::api::callers::Cabinet;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::Lane;
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Login, Routes};
use crate::identity::{Identity, Role};
use crate::model::Pace;

/// What deleting needs.
#[derive(Clone, Debug)]
pub struct DeleteDeps {
    /// The samples.
    pub read: ReadDeps,
    /// Who may, and the audit log.
    pub identity: Arc<Identity>,
}

/// Relative to `/api/v1`.
pub fn routes() -> Routes<DeleteDeps> {
    Routes::new().post(
        "/orgs/{slug}/prometheus/api/v1/admin/tsdb/delete_series",
        Auth::Member(Role::Admin, Login::Any),
        "Prometheus: delete samples of the series that selectors find",
        delete,
    )
}

async fn delete(
    State(deps): State<DeleteDeps>,
    cabinet: Cabinet,
    PathOf(slug): PathOf<String>,
    Given(mut params): Given,
) -> ApiResult<StatusCode> {
    let org = cabinet.enter(&slug, Role::Admin)?.org.id;
    let DeleteDeps { read: ReadDeps { tsdb, lanes, clock, options, expressions, .. }, identity } = deps;
    // A client that hangs up, or waits too long, has nothing deleted as long as series are looked for.
    let (watch, _guard) = Watch::start(options.timeout);
    let now = clock.now();
    let texts = params.many(&["match[]"]);
    if texts.is_empty() {
        return Err(ApiError::new(Code::InvalidParameter, "no match[] parameter provided"));
    }
    let range = range(&mut params, now)?;
    let (actor, said) = (cabinet.user(), texts.join(" "));
    let compile = move || selectors((&expressions, org), &texts, "match[]", &options.caps);
    let selectors = lanes.run(Lane::Query(org), compile).await?.map_err(in_parameter("match[]"))?;
    lanes.run(Lane::Account, move || identity.note_deletion(actor, org, &said, now)).await??;
    let done = lanes
        .run(Lane::Query(org), move || tsdb.delete_within(org, (&selectors, range), now, &Pace::of(&watch)))
        .await??;
    tracing::info!(org = org.0, series = done.series, segments = done.segments, "samples were deleted");
    Ok(StatusCode::NO_CONTENT)
}
