//! The execution of one query on the query lane or inline.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::response::Response;

use super::active::{RunningQueries, RunningQuery, RunningQueryGuard};
use super::admission::{admit_lookback, admit_windows, pattern_bytes, selectors};
use super::inline::{BODY_BYTES_MAX, CODED_BYTES_MAX, InlineDeadline, InlinePolicy, QueryFingerprint};
use super::response::{Envelope, QueryBody};
use crate::api::callers::{Grant, QueryAccess};
use crate::api::encoding::Coding;
use crate::api::error::data::bad_expression;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::{CancelOnDrop, Lane, Lanes};
use crate::api::params::Params;
use crate::api::prom_json;
use crate::clock::{Clock, Stopwatch};
use crate::model::{
    Access, Conductor, Labels, Matcher, MayCompile, OrgId, Pace, Pattern, PatternCache, Stopped, TimeRange,
};
use crate::promql::explain::{self, Estimate, PlanNode};
use crate::promql::syntax::tree::Expr;
use crate::promql::syntax::{Caps, ExpressionCache};
use crate::promql::{
    self, Annotations, Budget, Lease, MemoryPool, Query, QueryError, QueryResult, RangeCache, Value,
};
use crate::tsdb::{Paced, Snapshot, Tsdb};

/// The dependencies of the discovery and query endpoints, including the Prometheus mount.
#[derive(Clone, Debug)]
pub struct ReadDeps {
    /// The samples.
    pub tsdb: Arc<Tsdb>,
    /// The thread pools that run queries.
    pub lanes: Lanes,
    /// The wall clock.
    pub clock: Clock,
    /// The limits of queries.
    pub options: Arc<ReadOptions>,
    /// The running queries.
    pub active: Arc<RunningQueries>,
    /// The memory that all queries share.
    pub memory: Arc<MemoryPool>,
    /// Cached results.
    pub cache: Arc<RangeCache>,
    /// Cached regular expressions.
    pub patterns: Arc<PatternCache>,
    /// Cached expressions, parsed within the caps.
    pub expressions: Arc<ExpressionCache>,
    /// Decides which queries run inline.
    pub inline: Arc<InlinePolicy>,
}

/// The limits of one query (docs/specification.md C5, E).
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Limits of the evaluation: lookback, memory, and samples. An organisation's settings may
    /// override the number of samples.
    pub promql: promql::Options,
    /// The syntax limits of an expression.
    pub caps: Caps,
    /// The time from the arrival of the request to the end of encoding. A `timeout` parameter may
    /// shorten it, and an organisation's settings may override it.
    pub timeout: Duration,
    /// The most milliseconds of `end - start` on the native query paths, inclusive.
    pub range_ms_max: i64,
    /// The most bytes of one response body, inclusive.
    pub body_bytes_max: usize,
    /// The most bytes of values that all queries hold; one organisation holds at most half of them.
    pub memory_bytes_max: u64,
    /// The most bytes of cached results; one organisation holds at most half of them. Zero turns
    /// the cache off.
    pub cache_bytes_max: u64,
}

impl Default for ReadOptions {
    /// Returns a timeout of 30 s, ranges of one year, 256 MiB per body, 1 GiB of memory (two of the
    /// largest queries of one organisation, and as much for others), and 64 MiB of cached results,
    /// which are four million points.
    fn default() -> ReadOptions {
        ReadOptions {
            promql: promql::Options::default(),
            caps: Caps::default(),
            timeout: Duration::from_secs(30),
            range_ms_max: 365 * 86_400_000,
            body_bytes_max: 256 << 20,
            memory_bytes_max: 1 << 30,
            cache_bytes_max: 64 << 20,
        }
    }
}

/// A running query: its snapshot and its limits.
pub(in crate::api::orgs) struct QueryRun {
    /// The data that the query reads.
    pub(in crate::api::orgs) snapshot: Snapshot,
    /// The restrictions of the caller's credential.
    pub(in crate::api::orgs) grant: Grant,
    /// The limits of the server.
    pub(in crate::api::orgs) options: Arc<ReadOptions>,
    /// The warnings of the response so far.
    pub(in crate::api::orgs) warnings: Vec<String>,
    access: Access,
    deadline: QueryDeadline,
    samples_max: u64,
    coding: Coding,
    lease: Arc<Lease>,
    cache: Arc<RangeCache>,
    patterns: Arc<PatternCache>,
    expressions: Arc<ExpressionCache>,
    lanes: Lanes,
    /// The entry in the list of running queries, if the query is listed.
    listed: Option<RunningQueryGuard>,
    /// Whether the result is too large to be encoded inline.
    large: Cell<bool>,
    /// Bytes that stay charged until the run ends: compiled patterns and the texts of listings. The
    /// buffers of listings and bodies are charged separately.
    charged_bytes: Cell<u64>,
}

/// The deadline and the cancellation flag of a query.
#[derive(Clone)]
pub(in crate::api::orgs) struct QueryDeadline {
    since: Stopwatch,
    timeout: Duration,
    cancelled: Arc<AtomicBool>,
    /// Set while the query runs inline.
    inline: Option<InlineDeadline>,
}

impl QueryDeadline {
    /// Starts a deadline `timeout` from now. Dropping the returned guard cancels the work.
    pub(in crate::api::orgs) fn start(timeout: Duration) -> (QueryDeadline, CancelOnDrop) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let guard = CancelOnDrop::new(Arc::clone(&cancelled));
        (QueryDeadline { since: Stopwatch::start(), timeout, cancelled, inline: None }, guard)
    }

    /// Returns whether the deadline, or the shorter deadline of inline work, has passed.
    fn is_expired(&self) -> bool {
        self.since.elapsed() >= self.timeout || self.inline.as_ref().is_some_and(InlineDeadline::check)
    }

    /// Checks that work of `units` (about one nanosecond each) may start.
    ///
    /// # Errors
    /// [`QueryError::Cancelled`] after a cancellation. [`QueryError::Timeout`] after the deadline,
    /// or if the work takes too long to run inline.
    pub(in crate::api::orgs) fn admit(&self, units: u64) -> Result<(), QueryError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(QueryError::Cancelled);
        }
        let admitted = self.inline.as_ref().is_none_or(|deadline| deadline.admits(units));
        if !admitted || self.is_expired() { Err(QueryError::Timeout) } else { Ok(()) }
    }

    /// Runs `work` with an organisation's cache of compiled patterns. The deadline is checked
    /// before each pattern that is not cached is compiled. Compiling one takes too long for inline
    /// work.
    pub(in crate::api::orgs) fn with_patterns<T>(
        &self,
        patterns: &Arc<PatternCache>,
        org: OrgId,
        work: impl FnOnce() -> T,
    ) -> T {
        let deadline = self.clone();
        let may_compile: MayCompile = Rc::new(move || deadline.admit(Pattern::COMPILE_UNITS).is_ok());
        patterns.with_check(org, Some(may_compile), work)
    }

    /// Returns the timeout or cancellation if one has occurred, otherwise `error`, the error of a
    /// text that was not parsed. Parsing also fails because the deadline passed.
    pub(in crate::api::orgs) fn error_or(&self, error: ApiError) -> ApiError {
        self.admit(0).map_or_else(ApiError::from, |()| error)
    }
}

/// Checks the work and the memory of a listing, and stores the reason of a refusal.
struct Metering<'r> {
    run: &'r QueryRun,
    refused: Cell<Option<QueryError>>,
}

impl Metering<'_> {
    fn record(&self, admitted: Result<(), QueryError>) -> bool {
        admitted.map_err(|refused| self.refused.set(Some(refused))).is_ok()
    }
}

impl Conductor for Metering<'_> {
    fn admits(&self, units: u64) -> bool {
        self.record(self.run.deadline.admit(units))
    }

    fn holds(&self, bytes: u64) -> bool {
        self.record(self.run.hold(bytes))
    }
}

/// A query before it runs: its caller, timeout, listed text, and fingerprint.
pub(in crate::api::orgs) struct QueryRequest {
    entered: QueryAccess,
    timeout: Option<Duration>,
    listed: Option<String>,
    fingerprint: Option<QueryFingerprint>,
}

impl From<QueryAccess> for QueryRequest {
    fn from(entered: QueryAccess) -> QueryRequest {
        QueryRequest { entered, timeout: None, listed: None, fingerprint: None }
    }
}

impl QueryRequest {
    /// Sets a timeout; the organisation's own limit applies if it is shorter.
    pub(in crate::api::orgs) fn within(self, timeout: Option<Duration>) -> QueryRequest {
        QueryRequest { timeout, ..self }
    }

    /// Lists the query as `text` among the running queries.
    pub(in crate::api::orgs) fn listed(self, text: String) -> QueryRequest {
        QueryRequest { listed: Some(text), ..self }
    }

    /// Lets the query run inline if queries with this fingerprint over this time range are fast.
    pub(in crate::api::orgs) fn with_fingerprint(
        self,
        fingerprint: QueryFingerprint,
        range: TimeRange,
    ) -> QueryRequest {
        QueryRequest { fingerprint: Some(fingerprint.over(range)), ..self }
    }
}

impl ReadDeps {
    /// Runs `work` on the query lane and responds with its JSON.
    pub(in crate::api::orgs) async fn respond(
        &self,
        request: impl Into<QueryRequest>,
        work: impl FnOnce(&mut QueryRun) -> ApiResult<Vec<u8>> + Clone + Send + 'static,
    ) -> ApiResult<Response> {
        let body = self.run(request, move |run| Ok(QueryBody::whole(work(run)?, run.coding)));
        Ok(body.await?.into_response())
    }

    /// Like [`ReadDeps::respond`], for results that are encoded while the client reads them.
    pub(in crate::api::orgs) async fn respond_large(
        &self,
        request: impl Into<QueryRequest>,
        work: impl FnOnce(&mut QueryRun) -> ApiResult<QueryBody> + Clone + Send + 'static,
    ) -> ApiResult<Response> {
        Ok(self.run(request, work).await?.into_response())
    }

    /// Runs `work` on the query lane, or inline if the [`InlinePolicy`] admits it. Dropping the
    /// future cancels the work; that happens when the client closes the connection.
    pub(in crate::api::orgs) async fn run<T: Send + 'static>(
        &self,
        request: impl Into<QueryRequest>,
        work: impl FnOnce(&mut QueryRun) -> ApiResult<T> + Clone + Send + 'static,
    ) -> ApiResult<T> {
        let request = request.into();
        let (org, sole_connection, fingerprint) =
            (request.entered.access.org, request.entered.sole_connection, request.fingerprint);
        let cancelled = Arc::new(AtomicBool::new(false));
        let _guard = CancelOnDrop::new(Arc::clone(&cancelled));
        let start = self.start(request, cancelled);
        let fast =
            fingerprint.filter(|fingerprint| sole_connection && self.inline.is_fast(org, *fingerprint));
        let permit = fast.and_then(|fingerprint| Some((fingerprint, self.lanes.try_inline(org)?)));
        if let Some((fingerprint, permit)) = permit {
            let since = Stopwatch::start();
            let (again, mut run) = (work.clone(), start(Some(InlineDeadline::start())));
            let done = permit.run(|| run.execute(work))?;
            // The flag is also set if a lock was not free. The result is then incomplete.
            if !run.deadline.inline.take().is_some_and(|deadline| deadline.exceeded()) {
                self.inline.record(org, fingerprint, since.elapsed());
                return done;
            }
            self.inline.record(org, fingerprint, Duration::MAX);
            run.snapshot.wait_for_locks();
            return self.lanes.run(Lane::Query(org), move || run.execute(again)).await?;
        }
        let inline = fingerprint.map(|fingerprint| (Arc::clone(&self.inline), fingerprint));
        let work = move || {
            let since = Stopwatch::start();
            let mut run = start(None);
            let done = run.execute(work);
            if let Some((inline, fingerprint)) = inline {
                let time = if run.large.get() { Duration::MAX } else { since.elapsed() };
                inline.record(org, fingerprint, time);
            }
            done
        };
        self.lanes.run(Lane::Query(org), work).await?
    }

    /// Lists a query, and returns a function that starts it. The query sees the data that is stored
    /// when that function is called.
    fn start(
        &self,
        request: QueryRequest,
        cancelled: Arc<AtomicBool>,
    ) -> impl FnOnce(Option<InlineDeadline>) -> QueryRun + Send + 'static {
        let QueryRequest { entered, timeout, listed, .. } = request;
        let QueryAccess { access, grant, quota, requester, coding, .. } = entered;
        let (tsdb, options) = (Arc::clone(&self.tsdb), Arc::clone(&self.options));
        let longest = quota.timeout(options.timeout);
        let timeout = timeout.unwrap_or(longest).min(longest);
        let samples_max = quota.samples_max(options.promql.limits.samples_max);
        let since = Stopwatch::start();
        let listed = listed.map(|text| {
            let entry = RunningQuery {
                requester,
                text,
                started_at: self.clock.now(),
                since,
                progress: Arc::default(),
                selectors: AtomicUsize::new(1),
                cancelled: Arc::clone(&cancelled),
            };
            self.active.list(access.org, entry)
        });
        let lease = Arc::new(self.memory.lease(access.org));
        let (cache, lanes) = (Arc::clone(&self.cache), self.lanes.clone());
        let (patterns, expressions) = (Arc::clone(&self.patterns), Arc::clone(&self.expressions));
        let snapshot_of = move |access: &Access, inline: Option<&InlineDeadline>| {
            let snapshot = tsdb.snapshot(access);
            match inline {
                Some(deadline) => snapshot.without_waiting(deadline.flag()),
                None => snapshot,
            }
        };
        move |inline| QueryRun {
            snapshot: snapshot_of(&access, inline.as_ref()),
            grant,
            options,
            warnings: Vec::new(),
            access,
            deadline: QueryDeadline { since, timeout, cancelled, inline },
            samples_max,
            coding,
            lease,
            cache,
            patterns,
            expressions,
            lanes,
            listed,
            large: Cell::new(false),
            charged_bytes: Cell::new(0),
        }
    }
}

/// The beginning of every success body.
const SUCCESS: &[u8] = br#"{"status":"success","#;

const SCOPED: &str = "this token grants only some of the series; the others are left out";

/// Prometheus' warning that `limit` truncated a result.
pub(in crate::api::orgs) const TRUNCATED: &str = "results truncated due to limit";

impl QueryRun {
    /// Runs `work`. It runs a second time, on the lane, if it took too long inline, so the state of
    /// the first run is cleared.
    fn execute<T>(&mut self, work: impl FnOnce(&mut QueryRun) -> ApiResult<T>) -> ApiResult<T> {
        self.warnings.clear();
        self.charged_bytes.set(0);
        if let Some(listed) = &self.listed {
            listed.query.progress.begin();
        }
        if self.grant.embed && self.snapshot.is_scoped() {
            self.warn(SCOPED);
        }
        // The query may have been cancelled while it waited.
        if self.deadline.cancelled.load(Ordering::Relaxed) {
            return Err(QueryError::Cancelled.into());
        }
        let (patterns, org) = (Arc::clone(&self.patterns), self.access.org);
        let deadline = self.deadline.clone();
        deadline.with_patterns(&patterns, org, || work(self))
    }

    /// Runs a selection or a listing of the snapshot within the deadline and the memory of this
    /// query.
    ///
    /// # Errors
    /// 503 `query_timeout` and `query_cancelled`; 422 or 503 if there is not enough memory.
    pub(in crate::api::orgs) fn paced<T>(
        &self,
        work: impl FnOnce(&Paced<'_>) -> Result<T, Stopped>,
    ) -> ApiResult<T> {
        self.pacing(|pace| work(&self.snapshot.paced(pace)))
    }

    /// Like [`QueryRun::paced`], for work that is not a method of the snapshot.
    ///
    /// # Errors
    /// Those of [`QueryRun::paced`].
    pub(in crate::api::orgs) fn pacing<T>(
        &self,
        work: impl FnOnce(&Pace<'_>) -> Result<T, Stopped>,
    ) -> ApiResult<T> {
        let metering = Metering { run: self, refused: Cell::new(None) };
        work(&Pace::of(&metering))
            .map_err(|Stopped| metering.refused.take().unwrap_or(QueryError::Cancelled).into())
    }

    /// Charges `bytes` that are held until the run ends.
    ///
    /// # Errors
    /// 422 or 503 if there is not enough memory.
    pub(in crate::api::orgs) fn charge(&self, bytes: usize) -> ApiResult<()> {
        self.charged_bytes.set(self.charged_bytes.get().saturating_add(bytes as u64));
        Ok(self.hold(0)?)
    }

    /// Charges the compiled patterns of selectors, and the memory of searches with them.
    ///
    /// # Errors
    /// Those of [`QueryRun::charge`].
    pub(in crate::api::orgs) fn charge_patterns(&self, selectors: &[impl AsRef<[Matcher]>]) -> ApiResult<()> {
        self.charge(pattern_bytes(selectors))
    }

    /// Charges a listing for `bytes` in total, in addition to the bytes of [`QueryRun::charge`].
    fn hold(&self, bytes: u64) -> Result<(), QueryError> {
        let bytes = bytes.saturating_add(self.charged_bytes.get());
        let allowed = self.options.promql.limits.memory_bytes_max;
        if bytes > allowed {
            return Err(QueryError::TooMuchMemory { needed: bytes, allowed });
        }
        Ok(self.lease.grow_to(bytes, &|| false)?)
    }

    /// Like [`QueryRun::hold`] for a body, which is limited by `body_bytes_max` instead.
    fn hold_body(&self, bytes: u64) -> Result<(), QueryError> {
        let bytes = bytes.saturating_add(self.charged_bytes.get());
        Ok(self.lease.grow_to(bytes, &|| false)?)
    }

    /// See [`QueryDeadline::error_or`].
    pub(in crate::api::orgs) fn error_or(&self, error: ApiError) -> ApiError {
        self.deadline.error_or(error)
    }

    /// Adds a warning to the response.
    pub(in crate::api::orgs) fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Returns the milliseconds since the request arrived.
    pub(in crate::api::orgs) fn elapsed_ms(&self) -> f64 {
        self.deadline.since.elapsed_ms()
    }

    /// Checks that the caller may select series by this name.
    ///
    /// # Errors
    /// 403 `metric_not_allowed` if an embed token does not grant the name.
    pub(in crate::api::orgs) fn admit_metric(&self, name: &str) -> ApiResult<()> {
        if self.access.scope.admits_name(name) {
            return Ok(());
        }
        Err(ApiError::new(Code::MetricNotAllowed, "this token does not grant this metric"))
    }

    /// Parses an expression within the caps, and checks it against the expressions that a token
    /// lists.
    ///
    /// # Errors
    /// 400 `bad_expr`, 403 `embed_restricted`.
    pub(in crate::api::orgs) fn expression(&self, parameter: &'static str, text: &str) -> ApiResult<Expr> {
        let org = self.access.org;
        let parsed = self.expressions.parse(org, text);
        let expr = parsed.map_err(|error| self.error_or(bad_expression(parameter, &error)))?;
        if let Some(listed) = &self.listed {
            listed.query.selectors.store(expr.selectors().len(), Ordering::Relaxed);
        }
        if self.grant.exprs.is_empty() {
            return Ok(expr);
        }
        let requested = expr.to_string();
        // RunningQueryGuard expressions are compared in canonical form. One that does not parse
        // grants nothing.
        let same = |listed: &String| {
            *listed == requested
                || self.expressions.parse(org, listed).is_ok_and(|expr| expr.to_string() == requested)
        };
        if self.grant.exprs.iter().all(|list| list.iter().any(same)) {
            return Ok(expr);
        }
        let refused = ApiError::new(Code::EmbedRestricted, "this token does not grant this expression");
        // Parsing of a listed expression also fails if the request was cancelled or timed out.
        Err(self.error_or(refused))
    }

    /// Parses selectors like [`selectors`], within the caps. Their patterns are charged until the
    /// run ends.
    ///
    /// # Errors
    /// Those of [`selectors`] and [`QueryRun::charge`].
    pub(in crate::api::orgs) fn selectors(
        &self,
        parameter: &'static str,
        texts: &[String],
    ) -> ApiResult<Vec<Vec<Matcher>>> {
        let parsed = selectors(&self.expressions, self.access.org, texts, parameter, &self.options.caps)
            .map_err(|error| self.error_or(error))?;
        self.charge_patterns(&parsed)?;
        Ok(parsed)
    }

    /// Checks that the caller may learn about the series behind a result. A token that lists
    /// expressions grants their results, but not the names, the number or the exemplars of the
    /// series that they read.
    ///
    /// # Errors
    /// 403 `embed_restricted` for an embed token that lists its expressions.
    pub(in crate::api::orgs) fn admit_insight(&self) -> ApiResult<()> {
        if self.grant.exprs.is_empty() {
            return Ok(());
        }
        Err(ApiError::new(
            Code::EmbedRestricted,
            "this token grants the results of listed expressions, but no information about their series",
        ))
    }

    /// Evaluates a query within its deadline, and uses cached results that are still exact.
    ///
    /// # Errors
    /// The mapping of [`promql::QueryError`]. The wait for a thread counts towards `query_timeout`.
    pub(in crate::api::orgs) fn evaluate(&self, query: &Query, eval: EvalOptions) -> ApiResult<QueryResult> {
        let options = self.evaluation(eval.lookback_ms);
        admit_lookback(&self.grant, eval.lookback_ms)?;
        admit_windows(&self.grant, query, &options)?;
        self.within(|budget| {
            if eval.nocache {
                return promql::run(query, &self.snapshot, &options, budget);
            }
            self.cache.run(query, &self.access, &self.snapshot, &options, budget)
        })
    }

    /// Evaluates a query without the cache, and returns its result and the cost of each plan node.
    ///
    /// # Errors
    /// Those of [`QueryRun::evaluate`] and [`QueryRun::admit_insight`].
    pub(in crate::api::orgs) fn explain(&self, query: &Query) -> ApiResult<(QueryResult, PlanNode)> {
        self.admit_insight()?;
        let options = self.evaluation(None);
        admit_windows(&self.grant, query, &options)?;
        self.within(|budget| explain::explain(query, &self.snapshot, &options, budget))
    }

    /// Estimates the cost of a query.
    ///
    /// # Errors
    /// Those of [`QueryRun::evaluate`] and [`QueryRun::admit_insight`].
    pub(in crate::api::orgs) fn estimate(&self, query: &Query) -> ApiResult<Estimate> {
        self.admit_insight()?;
        let options = self.evaluation(None);
        admit_windows(&self.grant, query, &options)?;
        self.within(|budget| explain::estimate(query, &self.snapshot, &options, budget))
    }

    fn evaluation(&self, lookback_ms: Option<i64>) -> promql::Options {
        let mut options = self.options.promql.clone();
        options.lookback_ms = lookback_ms.unwrap_or(options.lookback_ms);
        options.limits.samples_max = self.samples_max;
        options
    }

    fn within<T>(&self, work: impl FnOnce(&Budget<'_>) -> Result<T, QueryError>) -> ApiResult<T> {
        let expired = || self.deadline.is_expired();
        let admits = |units| self.deadline.admit(units).is_ok();
        let workers = self.lanes.workers();
        let _computing = workers.begin_query();
        let budget = Budget {
            cancel: Some(&self.deadline.cancelled),
            expired: Some(&expired),
            admits: Some(&admits),
            progress: self.listed.as_ref().map(|listed| Arc::clone(&listed.query.progress)),
            lease: Some(Arc::clone(&self.lease)),
            workers: Some(workers),
        };
        Ok(work(&budget)?)
    }

    /// Encodes a response body: `write` appends the members after `"status":"success",`; warnings
    /// and infos follow. Native bodies always have the member `warnings`, Prometheus bodies only if
    /// it is not empty.
    ///
    /// # Errors
    /// Those of `write`, and 422 if the body is too large.
    pub(in crate::api::orgs) fn body(
        &self,
        infos: &[String],
        style: BodyFormat,
        write: impl FnOnce(&mut BodyWriter<'_>) -> ApiResult<()>,
    ) -> ApiResult<Vec<u8>> {
        // An empty listing has not checked the deadline yet.
        self.deadline.admit(0)?;
        let mut text = BodyWriter { run: self, out: Vec::from(SUCCESS), check_at: 0 };
        write(&mut text)?;
        let mut out = text.out;
        self.write_annotations(infos, style, &mut out);
        if out.len() > self.options.body_bytes_max {
            return Err(prom_json::BodyTooLarge { bytes_max: self.options.body_bytes_max }.into());
        }
        self.admit_inline_body(out.len())?;
        Ok(out)
    }

    /// Ends inline work if a body of `bytes` is too large to be encoded inline.
    fn admit_inline_body(&self, bytes: usize) -> ApiResult<()> {
        let most = if self.coding == Coding::Identity { BODY_BYTES_MAX } else { CODED_BYTES_MAX };
        self.large.set(bytes > most);
        if bytes > most { self.leave_inline() } else { Ok(()) }
    }

    /// Ends inline work; does nothing on the lane.
    ///
    /// # Errors
    /// 503 if the work runs inline. No client receives it, because the work starts again on the
    /// lane.
    fn leave_inline(&self) -> ApiResult<()> {
        match &self.deadline.inline {
            Some(deadline) => {
                deadline.exceed();
                Err(QueryError::Timeout.into())
            }
            None => Ok(()),
        }
    }

    /// Encodes the response body of a result: `write` appends the members after `data`.
    ///
    /// # Errors
    /// Those of [`QueryBody::encode`].
    pub(in crate::api::orgs) fn result(
        &self,
        value: Value,
        infos: &[String],
        style: BodyFormat,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> ApiResult<QueryBody> {
        self.admit_inline_body(prom_json::estimated_bytes(&value))?;
        let head = [SUCCESS, br#""data":{"#].concat();
        let mut tail = vec![b'}'];
        write(&mut tail);
        self.write_annotations(infos, style, &mut tail);
        let envelope = Envelope { head, value, tail };
        let lease = Some(Arc::clone(&self.lease));
        let bytes_max = self.options.body_bytes_max;
        let _computing = self.lanes.workers().begin_query();
        QueryBody::encode(envelope, self.coding, bytes_max, &self.lanes, self.access.org, lease)
    }

    fn write_annotations(&self, infos: &[String], style: BodyFormat, out: &mut Vec<u8>) {
        if style == BodyFormat::Native || !self.warnings.is_empty() {
            out.extend_from_slice(br#","warnings":"#);
            prom_json::texts(self.warnings.iter().map(String::as_str), out);
        }
        if !infos.is_empty() {
            out.extend_from_slice(br#","infos":"#);
            prom_json::texts(infos.iter().map(String::as_str), out);
        }
        out.push(b'}');
    }

    /// Adds the warnings of annotations to the response and returns their infos, at most ten of
    /// each, as Prometheus does.
    pub(in crate::api::orgs) fn annotate(&mut self, annotations: Annotations) -> Vec<String> {
        let Annotations { warnings, infos } = annotations;
        self.warnings.extend(at_most_ten(warnings, "warning"));
        at_most_ten(infos, "info")
    }

    /// Truncates a result to `limit` series, and adds a warning if it had more.
    pub(in crate::api::orgs) fn truncate(&mut self, value: &mut Value, limit: Option<usize>) {
        let limit = limit.unwrap_or(usize::MAX);
        let series = series_count(value);
        match value {
            Value::Vector(series) => series.truncate(limit),
            Value::Matrix(series) => series.truncate(limit),
            Value::Scalar { .. } | Value::Text { .. } => return,
        }
        if series > limit {
            self.warn(TRUNCATED);
        }
    }
}

/// A response body while it is encoded.
pub(in crate::api::orgs) struct BodyWriter<'r> {
    run: &'r QueryRun,
    out: Vec<u8>,
    /// The length of `out` at which deadline, memory and size are checked next.
    check_at: usize,
}

impl BodyWriter<'_> {
    /// Bytes between two checks, which take about 50 µs to encode.
    const CHECK_BYTES: usize = 64 << 10;

    /// Appends bytes without a check.
    pub(in crate::api::orgs) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends the output of `write`, at most one string or label set. Deadline, memory and size
    /// are checked every [`BodyWriter::CHECK_BYTES`].
    ///
    /// # Errors
    /// 503 after the deadline, 422 if the body is too large, 422 or 503 if there is not enough
    /// memory.
    pub(in crate::api::orgs) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> ApiResult<()> {
        write(&mut self.out);
        if self.out.len() < self.check_at {
            return Ok(());
        }
        let QueryRun { deadline, options, .. } = self.run;
        if self.out.len() > options.body_bytes_max {
            return Err(prom_json::BodyTooLarge { bytes_max: options.body_bytes_max }.into());
        }
        if self.out.len() > BODY_BYTES_MAX {
            self.run.leave_inline()?;
        }
        deadline.admit(0)?;
        // The buffer may double its capacity once before the next check.
        let bytes = (self.out.capacity() as u64).saturating_mul(2);
        self.run.hold_body(bytes)?;
        self.check_at = self.out.len() + BodyWriter::CHECK_BYTES;
        Ok(())
    }

    /// Appends an array; `write` appends each item.
    ///
    /// # Errors
    /// Those of [`BodyWriter::write`].
    pub(in crate::api::orgs) fn array<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(T, &mut Vec<u8>),
    ) -> ApiResult<()> {
        self.raw(b"[");
        for (place, item) in items.into_iter().enumerate() {
            self.write(|out| {
                if place > 0 {
                    out.push(b',');
                }
                write(item, out);
            })?;
        }
        self.raw(b"]");
        Ok(())
    }

    /// Appends an array of strings.
    ///
    /// # Errors
    /// Those of [`BodyWriter::write`].
    pub(in crate::api::orgs) fn texts<'t>(
        &mut self,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> ApiResult<()> {
        self.array(texts, prom_json::text)
    }

    /// Appends an array of label sets. The labels that a set shares with its predecessor are
    /// copied.
    ///
    /// # Errors
    /// Those of [`BodyWriter::write`].
    pub(in crate::api::orgs) fn label_sets(&mut self, sets: &[Labels]) -> ApiResult<()> {
        let mut writer = prom_json::LabelSetWriter::default();
        self.array(sets, |labels, out| writer.write(labels, out))
    }
}

/// Returns the number of series of a result; a scalar and a string count as one.
pub(in crate::api::orgs) fn series_count(value: &Value) -> usize {
    match value {
        Value::Vector(series) => series.len(),
        Value::Matrix(series) => series.len(),
        Value::Scalar { .. } | Value::Text { .. } => 1,
    }
}

fn at_most_ten(mut texts: Vec<String>, kind: &str) -> Vec<String> {
    const SHOWN_MAX: usize = 10;
    let omitted = texts.len().saturating_sub(SHOWN_MAX);
    texts.truncate(SHOWN_MAX);
    if omitted > 0 {
        texts.push(format!("{omitted} more {kind} annotations omitted"));
    }
    texts
}

/// The evaluation options that a request sets.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::api::orgs) struct EvalOptions {
    /// Overrides the lookback of the server, in milliseconds.
    pub(in crate::api::orgs) lookback_ms: Option<i64>,
    /// Whether to neither use nor fill the result cache.
    pub(in crate::api::orgs) nocache: bool,
}

/// The format of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api::orgs) enum BodyFormat {
    /// promlet's own format (docs/specification.md C5).
    Native,
    /// The format of Prometheus (docs/specification.md C6).
    Prometheus,
}

/// Parses the parameter `timeout`.
///
/// # Errors
/// 400 `invalid_parameter` unless it is positive.
pub(in crate::api::orgs) fn timeout(params: &mut Params) -> ApiResult<Option<Duration>> {
    match params.duration_ms("timeout")? {
        Some(ms) if ms <= 0 => Err(ApiError::invalid_parameter("timeout", "a timeout must be positive")),
        Some(ms) => Ok(Some(Duration::from_millis(ms.unsigned_abs()))),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests;
