//! The questions under way (docs/specification.md C5): who asked what, how far it is, and a way to end it.
//!
//! A question is listed from its arrival until the lane lets go of it, also while it waits. Numbers count within an
//! organisation, so that they say nothing of others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::run::ReadDeps;
use crate::api::body::Json;
use crate::api::callers::SessionCaller;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Login, Routes};
use crate::clock::Stopwatch;
use crate::identity::Role;
use crate::model::{OrgId, Timestamp};
use crate::promql::QueryProgress;
use crate::sync::IgnorePoison as _;

/// Relative to `/api/v1`.
pub fn routes() -> Routes<ReadDeps> {
    Routes::new()
        .get("/orgs/{slug}/queries", Auth::Member(Role::Admin, Login::Any), "The queries that run now", list)
        .delete(
            "/orgs/{slug}/queries/{id}",
            Auth::Member(Role::Admin, Login::Any),
            "End a query that runs",
            end,
        )
}

/// How a query's id begins.
const PREFIX: &str = "qry_";

/// All questions under way. There are never more than the query lane takes: its threads and its queue.
#[derive(Debug, Default)]
pub struct Active(Mutex<Questions>);

#[derive(Debug, Default)]
struct Questions {
    running: BTreeMap<(OrgId, u64), Arc<Entry>>,
    last: BTreeMap<OrgId, u64>,
}

/// A question, as those who look on see it.
#[derive(Debug)]
pub(super) struct Entry {
    /// A user's or a key's id.
    pub(super) requester: Box<str>,
    /// PromQL.
    pub(super) text: String,
    pub(super) started_at: Timestamp,
    pub(super) since: Stopwatch,
    pub(super) progress: Arc<QueryProgress>,
    /// Selectors of the expression, once it is read.
    pub(super) selectors: AtomicUsize,
    /// Ends it.
    pub(super) cancelled: Arc<AtomicBool>,
}

/// Takes its question off the list when dropped.
#[derive(Debug)]
pub(super) struct Listed {
    active: Arc<Active>,
    key: (OrgId, u64),
    pub(super) entry: Arc<Entry>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.active.lock().running.remove(&self.key);
    }
}

impl Active {
    fn lock(&self) -> MutexGuard<'_, Questions> {
        // Whole after every statement.
        self.0.lock().ignore_poison()
    }

    /// Lists a question for as long as the answer is held.
    pub(super) fn list(self: &Arc<Active>, org: OrgId, entry: Entry) -> Listed {
        let entry = Arc::new(entry);
        let mut state = self.lock();
        let last = state.last.entry(org).or_default();
        *last += 1;
        let key = (org, *last);
        state.running.insert(key, Arc::clone(&entry));
        drop(state);
        Listed { active: Arc::clone(self), key, entry }
    }

    fn of(&self, org: OrgId) -> Vec<(u64, Arc<Entry>)> {
        let state = self.lock();
        let own = state.running.range((org, 0)..=(org, u64::MAX));
        own.map(|((_, number), entry)| (*number, Arc::clone(entry))).collect()
    }

    /// Ends all questions of an organisation.
    pub fn end_all(&self, org: OrgId) {
        for (_, entry) in self.of(org) {
            entry.cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// Ends a question; whether there is one.
    fn end(&self, org: OrgId, number: u64) -> bool {
        let found = self.lock().running.get(&(org, number)).map(Arc::clone);
        found.is_some_and(|entry| {
            entry.cancelled.store(true, Ordering::Relaxed);
            true
        })
    }
}

async fn list(
    State(deps): State<ReadDeps>,
    cabinet: SessionCaller,
    PathOf(slug): PathOf<String>,
) -> ApiResult<Json<Value>> {
    let org = cabinet.enter(&slug, Role::Admin)?.org.id;
    let rows: Vec<Value> =
        deps.active.of(org).iter().map(|(number, entry)| to_json(*number, entry)).collect();
    Ok(Json(json!({ "status": "success", "data": rows })))
}

fn to_json(number: u64, entry: &Entry) -> Value {
    let rounded = |value: f64| (value * 1_000.0).round() / 1_000.0;
    json!({
        "id": format!("{PREFIX}{number}"),
        "query": entry.text,
        "user": entry.requester,
        "started_at": entry.started_at.to_rfc3339(),
        "elapsed_ms": rounded(entry.since.elapsed_ms()),
        "samples": entry.progress.samples(),
        "memory_bytes": entry.progress.memory_bytes(),
        "progress": rounded(entry.progress.share(entry.selectors.load(Ordering::Relaxed))),
    })
}

async fn end(
    State(deps): State<ReadDeps>,
    cabinet: SessionCaller,
    PathOf((slug, id)): PathOf<(String, String)>,
) -> ApiResult<StatusCode> {
    let member = cabinet.enter(&slug, Role::Admin)?;
    let number = id.strip_prefix(PREFIX).and_then(|number| number.parse::<u64>().ok());
    if !number.is_some_and(|number| deps.active.end(member.org.id, number)) {
        return Err(ApiError::new(Code::NotFound, "no such query runs here"));
    }
    tracing::info!(org = member.org.id.0, user = %cabinet.user(), query = id, "a query was ended");
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
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
    fn a_question_is_listed_while_it_is_held_and_ended_by_its_own_organisation_only() {
        let active: Arc<Active> = Arc::default();
        let (mine, other) = (OrgId(1), OrgId(2));
        let held = active.list(mine, entry());
        let second = active.list(mine, entry());
        let theirs = active.list(other, entry());
        let numbers = |org| active.of(org).iter().map(|(number, _)| *number).collect::<Vec<_>>();
        assert_eq!((numbers(mine), numbers(other), numbers(OrgId(3))), (vec![1, 2], vec![1], vec![]));
        assert!(!active.end(other, 2) && active.end(mine, 2));
        let ended = |listed: &Listed| listed.entry.cancelled.load(Ordering::Relaxed);
        assert_eq!((ended(&held), ended(&second), ended(&theirs)), (false, true, false));
        active.end_all(mine);
        assert_eq!((ended(&held), ended(&second), ended(&theirs)), (true, true, false));
        drop((held, second));
        assert_eq!((numbers(mine), active.end(mine, 1)), (vec![], false));
        assert_eq!(active.list(mine, entry()).key, (mine, 3), "numbers are not used again");
    }
}
