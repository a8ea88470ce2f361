//! The deletion of samples, on Prometheus' path (docs/specification.md C6; Prometheus, web/api/v1,
//! `admin/tsdb/delete_series`).
//!
//! It requires the session of an administrator; API keys and tokens cannot delete. The audit log
//! records the deletion before any sample is deleted. Samples on another server are not deleted, so
//! a deletion that concerns any is refused.

use std::cell::Cell;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use super::metrics::range;
use super::prometheus::in_parameter;
use super::query::ReadDeps;
use super::query::deadline::QueryDeadline;
use super::query::request::MergedParams;
use super::query::selectors::{pattern_bytes, selectors};
use crate::api::callers::MemberCaller;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::Lane;
use crate::api::routes::{Auth, Login, Routes};
use crate::identity::{Identity, Role};
use crate::model::{Conductor, Pace};
use crate::promql::{Lease, QueryError};
use crate::tsdb::DeletedSamples;

/// The dependencies of the deletion.
#[derive(Clone, Debug)]
pub struct DeleteDeps {
    /// The samples.
    pub read: ReadDeps,
    /// The accounts and the audit log.
    pub identity: Arc<Identity>,
}

/// The route, relative to `/api/v1`.
pub fn routes() -> Routes<DeleteDeps> {
    Routes::new().post(
        "/orgs/{slug}/prometheus/api/v1/admin/tsdb/delete_series",
        Auth::Member(Role::Admin, Login::Any),
        "Prometheus: delete samples of the series that match",
        delete,
    )
}

async fn delete(
    State(deps): State<DeleteDeps>,
    caller: MemberCaller,
    MergedParams(mut params): MergedParams,
) -> ApiResult<StatusCode> {
    let org = caller.org().id;
    let DeleteDeps { read, identity } = deps;
    let ReadDeps { tsdb, lanes, clock, options, memory, patterns, expressions, engines, .. } = read;
    // A disconnect or a timeout while the series are searched deletes nothing.
    let (deadline, _guard) = QueryDeadline::start(options.timeout);
    let now = clock.now();
    let texts = params.many(&["match[]"]);
    if texts.is_empty() {
        return Err(ApiError::new(Code::InvalidParameter, "no match[] parameter provided"));
    }
    let range = range(&mut params, now)?;
    engines.require_local(org, range, now)?;
    let (actor, selector_text) = (caller.user(), texts.join(" "));
    let bytes_max = options.promql.limits.memory_bytes_max;
    let compile_deadline = deadline.clone();
    let compile = move || {
        let parse = || selectors(&expressions, org, &texts, "match[]", &options.caps);
        let parsed = compile_deadline.with_patterns(&patterns, org, parse);
        parsed.map_err(|error| compile_deadline.error_or(error))
    };
    let selectors = lanes.run(Lane::Query(org), compile).await?.map_err(in_parameter("match[]"))?;
    let record = move || -> ApiResult<()> {
        caller.recheck()?;
        Ok(identity.note_deletion(actor, org, &selector_text, now)?)
    };
    lanes.run(Lane::Account, record).await??;
    let delete = move || {
        let metering = Metering {
            deadline,
            lease: memory.lease(org),
            pattern_bytes: pattern_bytes(&selectors) as u64,
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

/// Checks the work and the memory of the search for series, and stores the reason of a refusal.
struct Metering {
    deadline: QueryDeadline,
    lease: Lease,
    /// Bytes of the compiled patterns, which are held during the search.
    pattern_bytes: u64,
    bytes_max: u64,
    refused: Cell<Option<QueryError>>,
}

impl Metering {
    fn record(&self, admitted: Result<(), QueryError>) -> bool {
        admitted.map_err(|refused| self.refused.set(Some(refused))).is_ok()
    }

    fn hold(&self, bytes: u64) -> Result<(), QueryError> {
        let needed = bytes.saturating_add(self.pattern_bytes);
        if needed > self.bytes_max {
            return Err(QueryError::TooMuchMemory { needed, allowed: self.bytes_max });
        }
        Ok(self.lease.grow_to(needed, &|| false)?)
    }
}

impl Conductor for Metering {
    fn admits(&self, units: u64) -> bool {
        self.record(self.deadline.admit(units))
    }

    fn holds(&self, bytes: u64) -> bool {
        self.record(self.hold(bytes))
    }
}
