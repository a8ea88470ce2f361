//! Deleting samples, on Prometheus' own path (docs/specification.md C6; prometheus/web/api/v1, `admin/tsdb/delete_series`).
//!
//! For an administrator's session only: no key and no token deletes. What was deleted is noted in the audit log before
//! it is gone.

use std::cell::Cell;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use super::metrics::range;
use super::prometheus::{Given, in_parameter};
use super::query::ReadDeps;
use super::query::run::{Watch, pattern_bytes, selectors};
use crate::api::callers::SessionCaller;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::Lane;
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Login, Routes};
use crate::identity::{Identity, Role};
use crate::model::{Conductor, Pace};
use crate::promql::{Lease, QueryError};
use crate::tsdb::DeletedSamples;

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
    cabinet: SessionCaller,
    PathOf(slug): PathOf<String>,
    Given(mut params): Given,
) -> ApiResult<StatusCode> {
    let org = cabinet.enter(&slug, Role::Admin)?.org.id;
    let DeleteDeps { read, identity } = deps;
    let ReadDeps { tsdb, lanes, clock, options, memory, patterns, expressions, .. } = read;
    // A client that hangs up, or waits too long, has nothing deleted as long as series are looked for.
    let (watch, _guard) = Watch::start(options.timeout);
    let now = clock.now();
    let texts = params.many(&["match[]"]);
    if texts.is_empty() {
        return Err(ApiError::new(Code::InvalidParameter, "no match[] parameter provided"));
    }
    let range = range(&mut params, now)?;
    let (actor, said) = (cabinet.user(), texts.join(" "));
    let bytes_max = options.promql.limits.memory_bytes_max;
    let compiled = watch.clone();
    let compile = move || {
        let parse = || selectors((&expressions, org), &texts, "match[]", &options.caps);
        compiled.compiling((&patterns, org), parse).map_err(|error| compiled.refusal(error))
    };
    let selectors = lanes.run(Lane::Query(org), compile).await?.map_err(in_parameter("match[]"))?;
    lanes.run(Lane::Account, move || identity.note_deletion(actor, org, &said, now)).await??;
    let delete = move || {
        let metering = Metering {
            watch,
            lease: memory.lease(org),
            kept_bytes: pattern_bytes(&selectors) as u64,
            bytes_max,
            refused: Cell::new(None),
        };
        let pace = Pace::of(&metering);
        let deleted = match pace.hold(0) {
            Ok(()) => tsdb.delete_within(org, DeletedSamples { selectors: &selectors, range }, now, &pace),
            Err(stopped) => Err(stopped.into()),
        };
        deleted.map_err(|error| metering.refused.take().map_or_else(|| error.into(), ApiError::from))
    };
    let done = lanes.run(Lane::Query(org), delete).await??;
    tracing::info!(org = org.0, series = done.series, segments = done.segments, "samples were deleted");
    Ok(StatusCode::NO_CONTENT)
}

/// Checks work and memory of looking for the series, and keeps the reason of a refusal.
struct Metering {
    watch: Watch,
    lease: Lease,
    /// Bytes of the compiled patterns.
    kept_bytes: u64,
    bytes_max: u64,
    refused: Cell<Option<QueryError>>,
}

impl Metering {
    fn record(&self, admitted: Result<(), QueryError>) -> bool {
        admitted.map_err(|refused| self.refused.set(Some(refused))).is_ok()
    }

    fn hold(&self, bytes: u64) -> Result<(), QueryError> {
        let needed = bytes.saturating_add(self.kept_bytes);
        if needed > self.bytes_max {
            return Err(QueryError::TooMuchMemory { needed, allowed: self.bytes_max });
        }
        Ok(self.lease.grow_to(needed, &|| false)?)
    }
}

impl Conductor for Metering {
    fn admits(&self, units: u64) -> bool {
        self.record(self.watch.admit(units))
    }

    fn holds(&self, bytes: u64) -> bool {
        self.record(self.hold(bytes))
    }
}
