//! The list of running queries (docs/specification.md C5): their callers, texts and progress, and
//! their cancellation.
//!
//! A query is listed from its arrival until the lane releases it, also while it waits for a thread.
//! Query ids count within an organisation, so that they reveal nothing about the others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::deps::ReadDeps;
use crate::api::body::Json;
use crate::api::callers::MemberCaller;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Login, Routes};
use crate::clock::Stopwatch;
use crate::identity::Role;
use crate::model::{OrgId, Timestamp};
use crate::promql::QueryProgress;
use crate::sync::IgnorePoison as _;

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<ReadDeps> {
    Routes::new()
        .get("/orgs/{slug}/queries", Auth::Member(Role::Admin, Login::Any), "List running queries", list)
        .delete(
            "/orgs/{slug}/queries/{id}",
            Auth::Member(Role::Admin, Login::Any),
            "Cancel a running query",
            cancel,
        )
}

/// The prefix of a query's id.
const PREFIX: &str = "qry_";

/// All running and waiting queries. Their number is bounded by the threads and the queue of the
/// query lane.
#[derive(Debug, Default)]
pub struct RunningQueries(Mutex<QueryTable>);

#[derive(Debug, Default)]
struct QueryTable {
    /// The running queries, by organisation and number.
    running: BTreeMap<(OrgId, u64), Arc<RunningQuery>>,
    /// The last number of each organisation.
    last: BTreeMap<OrgId, u64>,
}

/// The listed properties of a running query.
#[derive(Debug)]
pub(super) struct RunningQuery {
    /// The id of the user or API key.
    pub(super) requester: Box<str>,
    /// The PromQL expression.
    pub(super) text: String,
    pub(super) started_at: Timestamp,
    pub(super) since: Stopwatch,
    pub(super) progress: Arc<QueryProgress>,
    /// The number of selectors of the expression; 1 until it is parsed.
    pub(super) selectors: AtomicUsize,
    /// Cancels the query when set.
    pub(super) cancelled: Arc<AtomicBool>,
}

/// The place of a query in the list. Dropping it removes the query.
#[derive(Debug)]
pub(super) struct RunningQueryGuard {
    active: Arc<RunningQueries>,
    key: (OrgId, u64),
    pub(super) query: Arc<RunningQuery>,
}

impl Drop for RunningQueryGuard {
    fn drop(&mut self) {
        self.active.lock().running.remove(&self.key);
    }
}

impl RunningQueries {
    fn lock(&self) -> MutexGuard<'_, QueryTable> {
        // Consistent after every statement.
        self.0.lock().ignore_poison()
    }

    /// Lists a query until the returned guard is dropped.
    pub(super) fn list(self: &Arc<RunningQueries>, org: OrgId, query: RunningQuery) -> RunningQueryGuard {
        let query = Arc::new(query);
        let mut state = self.lock();
        let last = state.last.entry(org).or_default();
        *last += 1;
        let key = (org, *last);
        state.running.insert(key, Arc::clone(&query));
        drop(state);
        RunningQueryGuard { active: Arc::clone(self), key, query }
    }

    fn of(&self, org: OrgId) -> Vec<(u64, Arc<RunningQuery>)> {
        let state = self.lock();
        let own = state.running.range((org, 0)..=(org, u64::MAX));
        own.map(|((_, number), query)| (*number, Arc::clone(query))).collect()
    }

    /// Cancels all queries of an organisation.
    pub fn cancel_all(&self, org: OrgId) {
        for (_, query) in self.of(org) {
            query.cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// Cancels a query. Returns false if there is none with this number.
    fn cancel(&self, org: OrgId, number: u64) -> bool {
        let query = self.lock().running.get(&(org, number)).map(Arc::clone);
        query.is_some_and(|query| {
            query.cancelled.store(true, Ordering::Relaxed);
            true
        })
    }
}

async fn list(State(deps): State<ReadDeps>, caller: MemberCaller) -> ApiResult<Json<Value>> {
    let rows: Vec<Value> =
        deps.active.of(caller.org().id).iter().map(|(number, query)| to_json(*number, query)).collect();
    Ok(Json(json!({ "status": "success", "data": rows })))
}

fn to_json(number: u64, query: &RunningQuery) -> Value {
    let rounded = |value: f64| (value * 1_000.0).round() / 1_000.0;
    json!({
        "id": format!("{PREFIX}{number}"),
        "query": query.text,
        "user": query.requester,
        "started_at": query.started_at.to_rfc3339(),
        "elapsed_ms": rounded(query.since.elapsed_ms()),
        "samples": query.progress.samples(),
        "memory_bytes": query.progress.memory_bytes(),
        "progress": rounded(query.progress.share(query.selectors.load(Ordering::Relaxed))),
    })
}

async fn cancel(
    State(deps): State<ReadDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
) -> ApiResult<StatusCode> {
    let org = caller.org().id;
    let number = id.strip_prefix(PREFIX).and_then(|number| number.parse::<u64>().ok());
    if !number.is_some_and(|number| deps.active.cancel(org, number)) {
        return Err(ApiError::new(Code::NotFound, "there is no such running query in this organisation"));
    }
    tracing::info!(org = org.0, user = %caller.user(), query = id, "a query was cancelled");
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query() -> RunningQuery {
        RunningQuery {
            requester: "usr_a".into(),
            text: "up".into(),
            started_at: Timestamp::from_s(0),
            since: Stopwatch::start(),
            progress: Arc::default(),
            selectors: AtomicUsize::new(1),
            cancelled: Arc::default(),
        }
    }

    #[test]
    fn a_query_is_listed_until_it_ends_and_only_its_own_organisation_can_cancel_it() {
        let active: Arc<RunningQueries> = Arc::default();
        let (mine, other) = (OrgId(1), OrgId(2));
        let first = active.list(mine, query());
        let second = active.list(mine, query());
        let theirs = active.list(other, query());
        let numbers = |org| active.of(org).iter().map(|(number, _)| *number).collect::<Vec<_>>();
        assert_eq!((numbers(mine), numbers(other), numbers(OrgId(3))), (vec![1, 2], vec![1], vec![]));
        assert!(!active.cancel(other, 2) && active.cancel(mine, 2));
        let cancelled = |guard: &RunningQueryGuard| guard.query.cancelled.load(Ordering::Relaxed);
        assert_eq!((cancelled(&first), cancelled(&second), cancelled(&theirs)), (false, true, false));
        active.cancel_all(mine);
        assert_eq!((cancelled(&first), cancelled(&second), cancelled(&theirs)), (true, true, false));
        drop((first, second));
        assert_eq!((numbers(mine), active.cancel(mine, 1)), (vec![], false));
        assert_eq!(active.list(mine, query()).key, (mine, 3), "numbers are never reused");
    }
}
