//! The queries of a batch, and the slices of work in which threads of the query lane run them.
//!
//! A slice runs queries one after the other for [`SLICE`] at most. A batch of short queries so
//! gives up its threads regularly: organisations take turns, and other requests of the same
//! organisation find a thread. Behind long queries they wait until one ends, as behind single
//! requests. A slice waits for a thread until the timeout of the batch, in the order of arrival, so
//! that batches of an organisation take turns. A slice ends as well if [`BACKLOG_BYTES_MAX`] bytes
//! of lines wait for the client.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Batch, BatchQuery};
use crate::api::callers::QueryAccess;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::{Lane, Lanes};
use crate::api::orgs::query::PreparedQuery;
use crate::api::orgs::query::body::EncodedLine;
use crate::api::orgs::query::deps::ReadDeps;
use crate::api::orgs::query::request::QueryRequest;
use crate::api::orgs::query::run::QueryRun;
use crate::api::prom_json;
use crate::clock::Stopwatch;
use crate::model::OrgId;
use crate::promql::{Lease, QueryError};
use crate::sync::IgnorePoison as _;

/// The time after which a slice starts no further query.
const SLICE: Duration = Duration::from_millis(10);
/// No query starts while lines with as many bytes wait for the client.
const BACKLOG_BYTES_MAX: u64 = 4 << 20;

/// A line that waits for the client.
pub(super) struct QueuedLine {
    /// The beginning of the line, with the id.
    pub(super) prefix: Vec<u8>,
    pub(super) rest: EncodedLine,
    /// The bytes that the line counts in the backlog.
    pub(super) bytes: u64,
}

/// The queries of a batch that have not run yet, and those that run.
pub(super) struct BatchQueue {
    deps: ReadDeps,
    access: QueryAccess,
    since: Stopwatch,
    timeout: Duration,
    /// The number of queries.
    queries: usize,
    state: Mutex<QueueState>,
    lines: UnboundedSender<QueuedLine>,
    /// The bytes of the lines that wait for the client.
    backlog: AtomicU64,
    failed: AtomicU64,
    /// The memory of the queries, charged until the batch ends.
    _lease: Lease,
}

struct QueueState {
    /// Groups of equal queries.
    waiting: VecDeque<Vec<BatchQuery>>,
    /// The cancellation flags of running queries.
    running: Vec<Arc<AtomicBool>>,
    /// The client has disconnected: no query starts any more.
    closed: bool,
}

impl BatchQueue {
    /// Returns the queue of a batch that arrived `since`, and its lines.
    pub(super) fn new(
        deps: ReadDeps,
        access: QueryAccess,
        batch: Batch,
        since: Stopwatch,
    ) -> (Arc<BatchQueue>, UnboundedReceiver<QueuedLine>) {
        let (lines, receiver) = unbounded_channel();
        let longest = access.quota.timeout(deps.options.timeout);
        let Batch { groups, timeout, lease } = batch;
        let queue = BatchQueue {
            deps,
            access,
            since,
            timeout: timeout.unwrap_or(longest).min(longest),
            queries: groups.iter().map(Vec::len).sum(),
            state: Mutex::new(QueueState { waiting: groups, running: Vec::new(), closed: false }),
            lines,
            backlog: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            _lease: lease,
        };
        (Arc::new(queue), receiver)
    }

    pub(super) fn lanes(&self) -> &Lanes {
        &self.deps.lanes
    }

    pub(super) fn org(&self) -> OrgId {
        self.access.access.org
    }

    pub(super) fn lane(&self) -> Lane {
        self.access.lane()
    }

    pub(super) fn since(&self) -> Stopwatch {
        self.since
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        // Consistent after every statement.
        self.state.lock().ignore_poison()
    }

    /// Returns the number of slices that may run now: the organisation's share of the threads, but
    /// not more than there are groups that wait or run. No further slice starts if no group waits,
    /// or while the client has lines to read.
    pub(super) fn slices_max(&self) -> usize {
        if self.backlog.load(Ordering::Relaxed) >= BACKLOG_BYTES_MAX {
            return 0;
        }
        let state = self.state();
        match state.waiting.len() {
            0 => 0,
            waiting => (waiting + state.running.len()).min(self.deps.lanes.query_share()),
        }
    }

    /// Returns the number of groups that have not started.
    pub(super) fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    /// Counts bytes that the client has been sent.
    pub(super) fn sent(&self, bytes: u64) {
        self.backlog.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Cancels all queries: the client has disconnected.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        let running = std::mem::take(&mut state.running);
        drop(state);
        drop(waiting);
        for flag in running {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the next group and returns the cancellation flag of its queries.
    fn next(&self) -> Option<(Vec<BatchQuery>, RunningFlag<'_>)> {
        let mut state = self.state();
        let group = state.waiting.pop_front()?;
        let flag = Arc::new(AtomicBool::new(state.closed));
        state.running.push(Arc::clone(&flag));
        drop(state);
        Some((group, RunningFlag { queue: self, flag }))
    }

    /// Runs queries for [`SLICE`].
    pub(super) fn run_slice(&self) {
        let since = Stopwatch::start();
        while self.backlog.load(Ordering::Relaxed) < BACKLOG_BYTES_MAX {
            let Some((group, flag)) = self.next() else { return };
            self.run_group(group, &flag.flag);
            if since.elapsed() >= SLICE {
                return;
            }
        }
    }

    /// Ends a slice that no thread has run. Waits before the next one, or fails the remaining
    /// queries if the batch has no time left.
    pub(super) async fn after_refusal(&self, refused: ApiError) {
        const RETRY: Duration = Duration::from_millis(100);
        match refused.code() {
            Code::Busy if self.remaining() > Duration::ZERO => tokio::time::sleep(RETRY).await,
            Code::Busy => self.fail_waiting(&QueryError::Timeout.into()),
            Code::Internal => {}
            _ => self.fail_waiting(&refused),
        }
    }

    /// Sends an error line for each query that has not started.
    fn fail_waiting(&self, error: &ApiError) {
        let waiting = std::mem::take(&mut self.state().waiting);
        for query in waiting.into_iter().flatten() {
            self.send_error(&query.id, error);
        }
    }

    /// Returns the rest of the timeout.
    pub(super) fn remaining(&self) -> Duration {
        self.timeout.saturating_sub(self.since.elapsed())
    }

    /// Runs the first query of a group, and copies its result to the other queries. A query whose
    /// result cannot be shared is run by itself.
    fn run_group(&self, group: Vec<BatchQuery>, cancelled: &Arc<AtomicBool>) {
        let mut rest = group.into_iter();
        while let Some(BatchQuery { id, query }) = rest.next() {
            let unanswered = Unanswered { queue: self, id: Some(id) };
            let Some(shared) = self.run_query(unanswered, query, cancelled) else { continue };
            let others = std::mem::take(&mut rest).filter_map(|other| shared.send_to(self, other));
            rest = others.collect::<Vec<_>>().into_iter();
        }
    }

    /// Runs a query and sends its line. Returns its result if equal queries may share it.
    fn run_query(
        &self,
        unanswered: Unanswered<'_>,
        query: ApiResult<PreparedQuery>,
        cancelled: &Arc<AtomicBool>,
    ) -> Option<SharedResult> {
        let query = match query {
            Ok(query) => query,
            Err(refused) => {
                unanswered.fail(&refused);
                return None;
            }
        };
        let text = query.listed();
        let timeout = self.remaining();
        let timeout = query.timeout.unwrap_or(timeout).min(timeout);
        let request = QueryRequest::from(self.access.clone()).within(Some(timeout)).listed(text.clone());
        let mut run = self.deps.start(request, Arc::clone(cancelled))(None);
        let done = run.execute(|run| {
            run.deadline.admit(0)?;
            let evaluated = query.evaluate(run)?;
            Ok((run.encode_line(evaluated.envelope)?, evaluated.has_annotations))
        });
        match done {
            Ok((EncodedLine::Whole(line, lease), has_annotations)) => {
                unanswered.answer(EncodedLine::Whole(line.clone(), lease.clone()));
                Some(SharedResult { text, has_annotations, line, lease })
            }
            Ok((large, _)) => {
                unanswered.answer(large);
                None
            }
            Err(refused) => {
                unanswered.fail(&refused);
                None
            }
        }
    }

    /// Returns whether the samples are not local. Queries then wait for another server, and not on
    /// a thread.
    pub(super) fn is_remote(&self) -> bool {
        self.deps.engines.is_remote(self.org())
    }

    /// Runs one group of queries that another server answers. Equal queries are sent once. A group
    /// that finds no free thread waits again. Dropping the future cancels the query.
    pub(super) async fn run_remote_group(&self) {
        let Some(group) = self.state().waiting.pop_front() else { return };
        let mut rest: VecDeque<BatchQuery> = group.into();
        while let Some(BatchQuery { id, query }) = rest.pop_front() {
            let query = match query {
                Ok(query) => query,
                Err(refused) => {
                    self.send_error(&id, &refused);
                    continue;
                }
            };
            match self.run_remote_query(&id, query.clone()).await {
                Ok(Some(shared)) => {
                    rest = rest.into_iter().filter_map(|other| shared.send_to(self, other)).collect();
                }
                Ok(None) => {}
                Err(busy) => {
                    rest.push_front(BatchQuery { id, query: Ok(query) });
                    self.state().waiting.push_back(rest.into());
                    return self.after_refusal(busy).await;
                }
            }
        }
    }

    /// Runs a query and sends its line. Returns its result if equal queries may share it.
    ///
    /// # Errors
    /// 503 `busy` if no thread was free; then no line is sent.
    async fn run_remote_query(&self, id: &str, query: PreparedQuery) -> ApiResult<Option<SharedResult>> {
        let text = query.listed();
        let timeout = self.remaining();
        let timeout = query.timeout.unwrap_or(timeout).min(timeout);
        let request = QueryRequest::from(self.access.clone()).within(Some(timeout)).listed(text.clone());
        let work = move |run: &mut QueryRun| {
            run.deadline.admit(0)?;
            let evaluated = query.evaluate(run)?;
            Ok((run.encode_line(evaluated.envelope)?, evaluated.has_annotations))
        };
        match self.deps.run(request, work).await {
            Ok((EncodedLine::Whole(line, lease), has_annotations)) => {
                self.send(id, EncodedLine::Whole(line.clone(), lease.clone()));
                return Ok(Some(SharedResult { text, has_annotations, line, lease }));
            }
            Ok((large, _)) => self.send(id, large),
            Err(busy) if busy.code() == Code::Busy => return Err(busy),
            Err(refused) => self.send_error(id, &refused),
        }
        Ok(None)
    }

    fn send(&self, id: &str, rest: EncodedLine) {
        let mut prefix = br#"{"id":"#.to_vec();
        prom_json::text(id, &mut prefix);
        prefix.push(b',');
        let bytes = match &rest {
            EncodedLine::Whole(text, _) => (prefix.len() + text.len()) as u64,
            EncodedLine::Large(_, bytes) => *bytes,
        };
        self.backlog.fetch_add(bytes, Ordering::Relaxed);
        // The send fails if the client is gone, and then the line is not needed.
        drop(self.lines.send(QueuedLine { prefix, rest, bytes }));
    }

    fn send_error(&self, id: &str, error: &ApiError) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut line = br#""status":"error""#.to_vec();
        for (name, value) in error.line_members() {
            line.push(b',');
            prom_json::text(&name, &mut line);
            line.push(b':');
            line.extend_from_slice(value.to_string().as_bytes());
        }
        line.extend_from_slice(b"}\n");
        self.send(id, EncodedLine::Whole(line.into(), None));
    }

    /// Returns the last line, which shows that no line is missing.
    pub(super) fn last_line(&self) -> Vec<u8> {
        let mut line = br#"{"done":true,"queries":"#.to_vec();
        prom_json::count(self.queries as u64, &mut line);
        line.extend_from_slice(br#","failed":"#);
        prom_json::count(self.failed.load(Ordering::Relaxed), &mut line);
        line.extend_from_slice(br#","elapsed_ms":"#);
        crate::api::orgs::query::milliseconds(self.since.elapsed_ms(), &mut line);
        line.extend_from_slice(b"}\n");
        line
    }
}

/// Removes the flag of a group from the running ones when the group ends.
struct RunningFlag<'q> {
    queue: &'q BatchQueue,
    flag: Arc<AtomicBool>,
}

impl Drop for RunningFlag<'_> {
    fn drop(&mut self) {
        self.queue.state().running.retain(|flag| !Arc::ptr_eq(flag, &self.flag));
    }
}

/// A query without a line. If a panic drops it, it sends the line of an internal error.
struct Unanswered<'q> {
    queue: &'q BatchQueue,
    id: Option<Box<str>>,
}

impl Unanswered<'_> {
    fn answer(mut self, line: EncodedLine) {
        if let Some(id) = self.id.take() {
            self.queue.send(&id, line);
        }
    }

    fn fail(mut self, error: &ApiError) {
        if let Some(id) = self.id.take() {
            self.queue.send_error(&id, error);
        }
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.queue.send_error(&id, &ApiError::internal("a query of a batch panicked"));
        }
    }
}

/// A line that equal queries share.
struct SharedResult {
    /// The text of the expression.
    text: String,
    has_annotations: bool,
    line: Bytes,
    lease: Option<Arc<Lease>>,
}

impl SharedResult {
    /// Sends the line of an equal query. Returns the query if its line may differ: annotations
    /// state positions in the text.
    fn send_to(&self, queue: &BatchQueue, other: BatchQuery) -> Option<BatchQuery> {
        let same_text = other.query.as_ref().is_ok_and(|query| query.listed() == self.text);
        if self.has_annotations && !same_text {
            return Some(other);
        }
        queue.send(&other.id, EncodedLine::Whole(self.line.clone(), self.lease.clone()));
        None
    }
}
