//! The queries that streams share, and their newest events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::{newest_due, single_step};
use crate::api::callers::{Permission, QueryAccess};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::orgs::query::body::EncodedLine;
use crate::api::orgs::query::deps::ReadDeps;
use crate::api::orgs::query::request::QueryRequest;
use crate::api::orgs::query::{PreparedQuery, QueryKind};
use crate::model::{OrgId, Timestamp};
use crate::promql::Lease;
use crate::sync::IgnorePoison as _;

/// The most streams at once; one organisation has at most half of them. Inclusive.
const STREAMS_MAX: usize = 20_000;
/// The most different queries of one organisation at once, inclusive.
const QUERIES_MAX: usize = 500;
/// The most events of one query that are kept for slow streams, inclusive.
const KEPT_MAX: usize = 16;
/// The most bytes of the events that are kept; the newest one is always kept.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// The longest sleep between two looks at the wall clock, which may change.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Queries with equal keys have the same results for all of their streams.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LiveKey {
    org: OrgId,
    text: Arc<str>,
}

impl LiveKey {
    /// Returns the key of a query: everything that its result depends on, except the time.
    fn of(query: &StepQuery) -> LiveKey {
        let StepQuery { access, query, .. } = query;
        let PreparedQuery { params, window, timeout, unused } = query;
        // An annotation states positions in the text, so equal texts are required. Statistics
        // depend on the permission.
        let expr = match &params.kind {
            QueryKind::Expression(text) => format!("{text:?}"),
            QueryKind::Structured(shape) => format!("{shape:?}"),
        };
        let insight = access.grant.require(Permission::SeriesOfResults).is_ok();
        // Queries of two keys are not shared: each is charged its own evaluations, and a key whose
        // evaluation time is used up ends no evaluation of others.
        let charged = access.charged_key();
        let text = format!(
            "{charged:?} {} {} {timeout:?} {unused:?} {:?} {insight} {:?} {} {expr}",
            window.steps.step_ms(),
            window.limit,
            params.eval,
            access.grant.max_lookback_s(),
            access.access.scope.series_key(),
        );
        LiveKey { org: access.access.org, text: text.into() }
    }
}

/// A query that is evaluated at one step after the other, as a caller that may evaluate it.
#[derive(Clone)]
pub(super) struct StepQuery {
    deps: ReadDeps,
    access: QueryAccess,
    query: PreparedQuery,
}

/// The points of one step, or the reason why there are none.
#[derive(Clone, Debug)]
pub(super) struct LiveEvent {
    pub(super) at: Timestamp,
    /// The event as it is sent.
    pub(super) text: Bytes,
    /// The memory of the text.
    _lease: Option<Arc<Lease>>,
}

impl StepQuery {
    pub(super) fn new(deps: ReadDeps, access: QueryAccess, query: PreparedQuery) -> StepQuery {
        StepQuery { deps, access, query }
    }

    fn step_ms(&self) -> i64 {
        self.query.window.steps.step_ms()
    }

    /// Evaluates the query at one step, on the query lane.
    ///
    /// # Errors
    /// Those of `query/range`, and 422 `query_too_expensive` for a result of more than 1 MiB.
    pub(super) async fn evaluate(&self, at: Timestamp) -> ApiResult<LiveEvent> {
        let StepQuery { deps, access, query } = self;
        let (mut access, mut query) = (access.clone(), query.clone());
        query.window.steps = single_step(at, self.step_ms())?;
        // The look-back of a token is a time before now, which moves on.
        access.access.scope.min_time = access.grant.min_time(deps.clock.now());
        let request = QueryRequest::from(access).within(query.timeout).listed(query.listed());
        let line = deps.run(request, move |run| {
            let evaluated = query.evaluate(run)?;
            run.encode_line(evaluated.envelope)
        });
        match line.await? {
            EncodedLine::Whole(line, lease) => {
                let mut text = format!("id: {0}\nevent: points\ndata: {{\"time\":", at.as_ms()).into_bytes();
                crate::api::prom_json::time(at, &mut text);
                text.push(b',');
                text.extend_from_slice(line.trim_ascii_end());
                text.extend_from_slice(b"\n\n");
                Ok(LiveEvent { at, text: text.into(), _lease: lease })
            }
            EncodedLine::Large(..) => {
                let detail = "the result of one step has more than 1 MiB; lower limit or aggregate";
                Err(ApiError::new(Code::QueryTooExpensive, detail))
            }
        }
    }

    /// Like [`StepQuery::evaluate`]; an error becomes an event.
    pub(super) async fn event(&self, at: Timestamp) -> LiveEvent {
        self.evaluate(at).await.unwrap_or_else(|error| {
            let problem = serde_json::Value::from(error.line_members());
            let text = format!("id: {}\nevent: error\ndata: {problem}\n\n", at.as_ms());
            LiveEvent { at, text: text.into(), _lease: None }
        })
    }
}

/// All live queries.
#[derive(Debug, Default)]
pub struct LiveQueries(Mutex<LiveTable>);

#[derive(Debug, Default)]
struct LiveTable {
    queries: BTreeMap<LiveKey, Entry>,
    closed: bool,
}

impl LiveTable {
    fn streams(&self) -> usize {
        self.queries.values().map(|entry| entry.streams).sum()
    }

    /// Returns the numbers of streams and of queries of an organisation.
    fn usage(&self, org: OrgId) -> (usize, usize) {
        let first = LiveKey { org, text: Arc::from("") };
        let own = self.queries.range(first..).take_while(|(key, _)| key.org == org);
        own.fold((0, 0), |(streams, queries), (_, entry)| (streams + entry.streams, queries + 1))
    }
}

#[derive(Debug)]
struct Entry {
    query: Arc<LiveQuery>,
    streams: usize,
    task: AbortHandle,
}

/// The newest events of one query.
#[derive(Debug)]
struct LiveQuery {
    kept: Mutex<Kept>,
    /// Changes with each event.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<LiveEvent>,
    bytes: usize,
}

impl LiveQuery {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Consistent after every statement.
        self.kept.lock().ignore_poison()
    }

    fn push(&self, event: LiveEvent) {
        let mut kept = self.kept();
        kept.bytes += event.text.len();
        kept.events.push_back(event);
        while kept.events.len() > 1 && (kept.events.len() > KEPT_MAX || kept.bytes > KEPT_BYTES_MAX) {
            let Some(oldest) = kept.events.pop_front() else { break };
            kept.bytes -= oldest.text.len();
        }
        drop(kept);
        self.changed.send_replace(());
    }

    /// Evaluates the steps after `last`, each when it is due, until the task is aborted.
    async fn run(&self, query: &StepQuery, mut last: Timestamp) {
        let step_ms = query.step_ms();
        loop {
            let next = last.plus_ms(step_ms);
            let now = query.deps.clock.now();
            let wait_ms = next.ms_since(now);
            if wait_ms > 2 * step_ms {
                // The clock went back: steps are due again by the new time.
                last = newest_due(now, step_ms);
                continue;
            }
            if wait_ms > 0 {
                let wait = Duration::from_millis(wait_ms.unsigned_abs());
                tokio::time::sleep(wait.min(SLEEP_MAX)).await;
                continue;
            }
            // Evaluations that cannot keep up skip steps that no stream would receive.
            let newest = newest_due(now, step_ms);
            let at = next.max(newest.plus_ms(-step_ms * (KEPT_MAX as i64 - 1)));
            self.push(query.event(at).await);
            last = at;
        }
    }
}

impl LiveQueries {
    fn table(&self) -> MutexGuard<'_, LiveTable> {
        self.0.lock().ignore_poison()
    }

    /// Joins the streams of a query, whose events begin after `due` if it is new.
    ///
    /// # Errors
    /// 503 `at_capacity` with too many streams or queries, and 503 `shutting_down`.
    pub(super) fn join(self: &Arc<LiveQueries>, query: StepQuery, due: Timestamp) -> ApiResult<LiveShare> {
        let (key, step_ms) = (LiveKey::of(&query), query.step_ms());
        let mut table = self.table();
        if table.closed {
            return Err(ApiError::new(Code::ShuttingDown, "the server is shutting down"));
        }
        let full = |detail: String| Err(ApiError::new(Code::AtCapacity, detail));
        let (streams, queries) = table.usage(key.org);
        if table.streams() >= STREAMS_MAX || streams >= STREAMS_MAX / 2 {
            return full(format!("{streams} streams of live queries are open"));
        }
        if queries >= QUERIES_MAX && !table.queries.contains_key(&key) {
            return full(format!(
                "{QUERIES_MAX} different live queries are running, the most of an organisation"
            ));
        }
        let entry = table.queries.entry(key.clone()).or_insert_with(|| {
            let shared = Arc::new(LiveQuery { kept: Mutex::default(), changed: watch::Sender::new(()) });
            let running = Arc::clone(&shared);
            let task = tokio::spawn(async move { running.run(&query, due).await });
            Entry { query: shared, streams: 0, task: task.abort_handle() }
        });
        entry.streams += 1;
        let query = Arc::clone(&entry.query);
        let changes = query.changed.subscribe();
        Ok(LiveShare { live: Arc::clone(self), key, query, changes, step_ms })
    }

    /// Ends all streams, because the server shuts down.
    pub fn close(&self) {
        let mut table = self.table();
        table.closed = true;
        for entry in table.queries.values() {
            entry.task.abort();
            entry.query.changed.send_replace(());
        }
    }

    fn is_closed(&self) -> bool {
        self.table().closed
    }

    /// Returns the number of open streams, for `/metrics`.
    pub fn streams(&self) -> usize {
        self.table().streams()
    }
}

/// A stream's share in a query. The last share of a query ends its evaluation.
pub(super) struct LiveShare {
    live: Arc<LiveQueries>,
    key: LiveKey,
    query: Arc<LiveQuery>,
    changes: watch::Receiver<()>,
    step_ms: i64,
}

/// The events after a time.
#[derive(Default)]
pub(super) struct NewEvents {
    pub(super) events: Vec<LiveEvent>,
    /// The first and the last step that are missing before them.
    pub(super) gap: Option<(Timestamp, Timestamp)>,
}

impl LiveShare {
    /// Waits for a new event. Returns `false` if the server shuts down.
    pub(super) async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok() && !self.live.is_closed()
    }

    /// Returns the kept events after the step `sent`. Steps are missing if the stream was too slow,
    /// or if the evaluation was.
    pub(super) fn events_after(&self, sent: Timestamp) -> NewEvents {
        let kept = self.query.kept();
        let events: Vec<LiveEvent> = kept.events.iter().filter(|event| event.at > sent).cloned().collect();
        drop(kept);
        let next = sent.plus_ms(self.step_ms);
        let gap = events.first().filter(|first| first.at > next);
        let gap = gap.map(|first| (next, first.at.plus_ms(-self.step_ms)));
        NewEvents { events, gap }
    }

    /// Returns whether the newest event is more than one step before `sent`: the clock went back.
    pub(super) fn is_before(&self, sent: Timestamp) -> bool {
        let newest = self.query.kept().events.back().map(|event| event.at);
        newest.is_some_and(|newest| newest < sent.plus_ms(-self.step_ms))
    }
}

impl Drop for LiveShare {
    fn drop(&mut self) {
        let mut table = self.live.table();
        let Some(entry) = table.queries.get_mut(&self.key) else { return };
        entry.streams -= 1;
        if entry.streams == 0 {
            entry.task.abort();
            table.queries.remove(&self.key);
        }
    }
}
