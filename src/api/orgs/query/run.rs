//! One query on the query lane: its snapshot, its deadline, and the flag that cancels it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::response::Response;

use super::active::{Active, Entry, Listed};
use super::answer::{Answer as Body, Document};
use super::inline::{BODY_BYTES_MAX, CODED_BYTES_MAX, InlineDeadline, InlinePolicy, QueryFingerprint};
use crate::api::callers::{Grant, QueryAccess};
use crate::api::encoding::Coding;
use crate::api::error::data::bad_expression;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::{CancelOnDrop, Lane, Lanes};
use crate::api::params::Params;
use crate::api::prom_json;
use crate::clock::{Clock, Stopwatch};
use crate::model::{
    Access, Conductor, Labels, MatchOp, Matcher, MayCompile, OrgId, Pace, Pattern, PatternCache, Steps,
    Stopped, TimeRange, Timestamp,
};
use crate::promql::explain::{self, Estimate, PlanNode};
use crate::promql::syntax::tree::Expr;
use crate::promql::syntax::{Caps, ExpressionCache};
use crate::promql::{
    self, Annotations, Budget, Lease, MemoryPool, Query, QueryError, QueryResult, RangeCache, Value,
};
use crate::tsdb::{Paced, Snapshot, Tsdb};

/// The most selectors of one request; each is a scan.
const SELECTORS_MAX: usize = 32;

/// What the discovery and query endpoints need, including the Prometheus mount.
#[derive(Clone, Debug)]
pub struct ReadDeps {
    /// The samples.
    pub tsdb: Arc<Tsdb>,
    /// Where queries run.
    pub lanes: Lanes,
    /// The wall clock.
    pub clock: Clock,
    /// The limits of queries.
    pub options: Arc<ReadOptions>,
    /// The running queries.
    pub active: Arc<Active>,
    /// The memory that all queries share.
    pub memory: Arc<MemoryPool>,
    /// Cached results.
    pub cache: Arc<RangeCache>,
    /// Cached regular expressions.
    pub patterns: Arc<PatternCache>,
    /// Cached expressions, parsed within the caps.
    pub expressions: Arc<ExpressionCache>,
    /// Which queries run inline.
    pub inline: Arc<InlinePolicy>,
}

/// The limits of one query (docs/specification.md C5, E).
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Evaluation: lookback, memory, and samples, which an organisation's settings may override.
    pub promql: promql::Options,
    /// The syntax limits of an expression.
    pub caps: Caps,
    /// From the arrival of the request to the end of encoding. A `timeout` parameter may shorten it,
    /// and an organisation's settings may override it.
    pub timeout: Duration,
    /// The most milliseconds of `end - start` on the specification's paths, inclusive.
    pub range_ms_max: i64,
    /// The most bytes of one response body, inclusive.
    pub body_bytes_max: usize,
    /// The most bytes of values that all queries hold; one organisation holds half of them.
    pub memory_bytes_max: u64,
    /// The most bytes of cached results; one organisation holds half of them. Zero turns the cache off.
    pub cache_bytes_max: u64,
}

impl Default for ReadOptions {
    /// 30 s, one year, 256 MiB per body, 1 GiB of memory (two of the largest queries of one
    /// organisation, and as much for others), and 64 MiB of cached results, which are four million points.
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

/// A running query: what it reads, and its limits.
pub(in crate::api::orgs) struct QueryRun {
    /// The data that the query can see.
    pub(in crate::api::orgs) snapshot: Snapshot,
    /// What the caller is granted.
    pub(in crate::api::orgs) grant: Grant,
    /// The limits of the server.
    pub(in crate::api::orgs) options: Arc<ReadOptions>,
    /// Warnings so far.
    pub(in crate::api::orgs) warnings: Vec<String>,
    access: Access,
    watch: Watch,
    samples_max: u64,
    coding: Coding,
    lease: Arc<Lease>,
    cache: Arc<RangeCache>,
    patterns: Arc<PatternCache>,
    expressions: Arc<ExpressionCache>,
    lanes: Lanes,
    /// Its entry in the list of running queries, if it is listed.
    listed: Option<Listed>,
    /// The result is too large to be encoded inline.
    large: Cell<bool>,
    /// Bytes that stay until the run ends, beside what listings and bodies hold: patterns, listed texts.
    kept_bytes: Cell<u64>,
}

/// Deadline and cancellation of a query.
#[derive(Clone)]
pub(in crate::api::orgs) struct Watch {
    since: Stopwatch,
    timeout: Duration,
    cancelled: Arc<AtomicBool>,
    /// Set while the query runs inline.
    inline: Option<InlineDeadline>,
}

impl Watch {
    /// A deadline in `timeout` from now. Dropping the returned guard cancels the work.
    pub(in crate::api::orgs) fn start(timeout: Duration) -> (Watch, CancelOnDrop) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let guard = CancelOnDrop::new(Arc::clone(&cancelled));
        (Watch { since: Stopwatch::start(), timeout, cancelled, inline: None }, guard)
    }

    /// Whether the deadline has passed, or that of inline work.
    fn is_late(&self) -> bool {
        self.since.elapsed() >= self.timeout || self.inline.as_ref().is_some_and(InlineDeadline::check)
    }

    /// Checks before a piece of work of so many `units` (about nanoseconds).
    ///
    /// # Errors
    /// [`QueryError::Cancelled`]; [`QueryError::Timeout`] also if the piece is too long to run inline.
    pub(in crate::api::orgs) fn admit(&self, units: u64) -> Result<(), QueryError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(QueryError::Cancelled);
        }
        let admitted = self.inline.as_ref().is_none_or(|deadline| deadline.admits(units));
        if !admitted || self.is_late() { Err(QueryError::Timeout) } else { Ok(()) }
    }

    /// Runs `work` with the cache of compiled patterns. Each pattern that is not cached is checked before it is compiled,
    /// which is too long a piece for inline work.
    pub(in crate::api::orgs) fn compiling<T>(
        &self,
        (patterns, org): (&Arc<PatternCache>, OrgId),
        work: impl FnOnce() -> T,
    ) -> T {
        let watch = self.clone();
        let may_compile: MayCompile = Rc::new(move || watch.admit(Pattern::COMPILE_UNITS).is_ok());
        patterns.with_check(org, Some(may_compile), work)
    }

    /// The error of a text that was not parsed, or that of a request that has to end.
    pub(in crate::api::orgs) fn refusal(&self, error: ApiError) -> ApiError {
        self.admit(0).map_or_else(ApiError::from, |()| error)
    }
}

/// Checks work and memory of a listing, and keeps the reason of a refusal.
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
        self.record(self.run.watch.admit(units))
    }

    fn holds(&self, bytes: u64) -> bool {
        self.record(self.run.hold(bytes))
    }
}

/// A query that is about to run.
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
    /// Sets a timeout; the organisation's own limit applies if it is less.
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
    pub(in crate::api::orgs) async fn answer(
        &self,
        request: impl Into<QueryRequest>,
        work: impl FnOnce(&mut QueryRun) -> ApiResult<Vec<u8>> + Clone + Send + 'static,
    ) -> ApiResult<Response> {
        let body = self.run(request, move |run| Ok(Body::whole(work(run)?, run.coding)));
        Ok(body.await?.into_response())
    }

    /// As [`ReadDeps::answer`] for results that are encoded while the client reads them.
    pub(in crate::api::orgs) async fn answer_large(
        &self,
        request: impl Into<QueryRequest>,
        work: impl FnOnce(&mut QueryRun) -> ApiResult<Body> + Clone + Send + 'static,
    ) -> ApiResult<Response> {
        Ok(self.run(request, work).await?.into_response())
    }

    /// Runs `work` on the query lane, or inline if the [`InlinePolicy`] admits it. Dropping the future
    /// cancels the work; that happens when the client closes the connection.
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
            // Also set where a lock was not free: such work has read a part of the data at most.
            if !run.watch.inline.take().is_some_and(|deadline| deadline.exceeded()) {
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

    /// Lists a query, and returns what starts it: it sees the data stored at that time.
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
            let entry = Entry {
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
            watch: Watch { since, timeout, cancelled, inline },
            samples_max,
            coding,
            lease,
            cache,
            patterns,
            expressions,
            lanes,
            listed,
            large: Cell::new(false),
            kept_bytes: Cell::new(0),
        }
    }
}

/// The beginning of every success body.
const SUCCESS: &[u8] = br#"{"status":"success","#;

const SCOPED: &str = "this token sees a part of the series only; what is beyond it is left out";

/// Prometheus' warning about a result that `limit` truncated.
pub(in crate::api::orgs) const TRUNCATED: &str = "results truncated due to limit";

impl QueryRun {
    /// Runs `work`, for the second time if it was too long to run inline.
    fn execute<T>(&mut self, work: impl FnOnce(&mut QueryRun) -> ApiResult<T>) -> ApiResult<T> {
        self.warnings.clear();
        self.kept_bytes.set(0);
        if let Some(listed) = &self.listed {
            listed.entry.progress.begin();
        }
        if self.grant.embed && self.snapshot.is_scoped() {
            self.warn(SCOPED);
        }
        // It may have been cancelled while it waited.
        if self.watch.cancelled.load(Ordering::Relaxed) {
            return Err(QueryError::Cancelled.into());
        }
        let (patterns, org) = (Arc::clone(&self.patterns), self.access.org);
        let watch = self.watch.clone();
        watch.compiling((&patterns, org), || work(self))
    }

    /// Runs a selection or a listing within the deadline and the memory of this query.
    ///
    /// # Errors
    /// 503 `query_timeout` and `query_cancelled`, 422 and 503 where there is no memory.
    pub(in crate::api::orgs) fn paced<T>(
        &self,
        work: impl FnOnce(&Paced<'_>) -> Result<T, Stopped>,
    ) -> ApiResult<T> {
        self.pacing(|pace| work(&self.snapshot.paced(pace)))
    }

    /// As [`QueryRun::paced`], for work of any kind.
    ///
    /// # Errors
    /// As [`QueryRun::paced`].
    pub(in crate::api::orgs) fn pacing<T>(
        &self,
        work: impl FnOnce(&Pace<'_>) -> Result<T, Stopped>,
    ) -> ApiResult<T> {
        let metering = Metering { run: self, refused: Cell::new(None) };
        work(&Pace::of(&metering))
            .map_err(|Stopped| metering.refused.take().unwrap_or(QueryError::Cancelled).into())
    }

    /// Charges `bytes` that stay until the run ends.
    ///
    /// # Errors
    /// 422 and 503 where there is no memory.
    pub(in crate::api::orgs) fn keep(&self, bytes: usize) -> ApiResult<()> {
        self.kept_bytes.set(self.kept_bytes.get().saturating_add(bytes as u64));
        Ok(self.hold(0)?)
    }

    /// Charges the compiled patterns of selectors, and what searching with them may take.
    ///
    /// # Errors
    /// As [`QueryRun::keep`].
    pub(in crate::api::orgs) fn keep_patterns(&self, selectors: &[impl AsRef<[Matcher]>]) -> ApiResult<()> {
        self.keep(pattern_bytes(selectors))
    }

    /// Charges a listing or a body for `bytes` in total, beside what is kept.
    fn hold(&self, bytes: u64) -> Result<(), QueryError> {
        let bytes = bytes.saturating_add(self.kept_bytes.get());
        let allowed = self.options.promql.limits.memory_bytes_max;
        if bytes > allowed {
            return Err(QueryError::TooMuchMemory { needed: bytes, allowed });
        }
        Ok(self.lease.grow_to(bytes, &|| false)?)
    }

    /// As [`QueryRun::hold`] for a body, whose own limit is another one.
    fn hold_body(&self, bytes: u64) -> Result<(), QueryError> {
        let bytes = bytes.saturating_add(self.kept_bytes.get());
        Ok(self.lease.grow_to(bytes, &|| false)?)
    }

    /// The error of a text that was not parsed, or that of a query whose deadline passed meanwhile.
    pub(in crate::api::orgs) fn refusal(&self, error: ApiError) -> ApiError {
        self.watch.refusal(error)
    }

    /// Adds a warning to the response.
    pub(in crate::api::orgs) fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Milliseconds since the request arrived.
    pub(in crate::api::orgs) fn elapsed_ms(&self) -> f64 {
        self.watch.since.elapsed_ms()
    }

    /// Checks that the caller may select series by this name.
    ///
    /// # Errors
    /// 403 `metric_not_allowed` where an embed token does not name it.
    pub(in crate::api::orgs) fn admit_metric(&self, name: &str) -> ApiResult<()> {
        if self.access.scope.admits_name(name) {
            return Ok(());
        }
        Err(ApiError::new(Code::MetricNotAllowed, "this token does not grant this metric"))
    }

    /// Parses an expression within the caps, and checks it against the expressions that a token lists.
    ///
    /// # Errors
    /// 400 `bad_expr`, 403 `embed_restricted`.
    pub(in crate::api::orgs) fn expression(&self, parameter: &'static str, text: &str) -> ApiResult<Expr> {
        let org = self.access.org;
        let parsed = self.expressions.parse(org, text);
        let expr = parsed.map_err(|error| self.refusal(bad_expression(parameter, &error)))?;
        if let Some(listed) = &self.listed {
            listed.entry.selectors.store(expr.selectors().len(), Ordering::Relaxed);
        }
        if self.grant.exprs.is_empty() {
            return Ok(expr);
        }
        let asked = expr.to_string();
        // Listed expressions are compared in canonical form. One that does not parse grants nothing.
        let same = |listed: &String| {
            *listed == asked
                || self.expressions.parse(org, listed).is_ok_and(|expr| expr.to_string() == asked)
        };
        if self.grant.exprs.iter().all(|list| list.iter().any(same)) {
            return Ok(expr);
        }
        let refused = ApiError::new(Code::EmbedRestricted, "this token does not grant this expression");
        // A listed expression may not have been parsed because the request has to end.
        Err(self.refusal(refused))
    }

    /// As [`selectors`], within the caps. Their patterns are charged until the run ends.
    ///
    /// # Errors
    /// As [`selectors`] and [`QueryRun::keep`].
    pub(in crate::api::orgs) fn selectors(
        &self,
        parameter: &'static str,
        texts: &[String],
    ) -> ApiResult<Vec<Vec<Matcher>>> {
        let found = selectors((&self.expressions, self.access.org), texts, parameter, &self.options.caps)
            .map_err(|error| self.refusal(error))?;
        self.keep_patterns(&found)?;
        Ok(found)
    }

    /// Checks that the caller may learn about the series behind a result. A token that lists expressions
    /// grants their results, but not which series they read, how many, or their exemplars.
    ///
    /// # Errors
    /// 403 `embed_restricted` where an embed token lists its expressions.
    pub(in crate::api::orgs) fn admit_insight(&self) -> ApiResult<()> {
        if self.grant.exprs.is_empty() {
            return Ok(());
        }
        Err(ApiError::new(
            Code::EmbedRestricted,
            "this token grants the answers of listed expressions, and nothing of the series behind them",
        ))
    }

    /// Evaluates a query within its deadline, with cached results as far as they are valid.
    ///
    /// # Errors
    /// As [`promql::QueryError`] maps; 503 `query_timeout` also if the query waited too long for a thread.
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

    /// Evaluates a query and returns the cost of each plan node.
    ///
    /// # Errors
    /// As [`QueryRun::evaluate`].
    pub(in crate::api::orgs) fn explain(&self, query: &Query) -> ApiResult<(QueryResult, PlanNode)> {
        self.admit_insight()?;
        let options = self.evaluation(None);
        admit_windows(&self.grant, query, &options)?;
        self.within(|budget| explain::explain(query, &self.snapshot, &options, budget))
    }

    /// Estimates the cost of a query.
    ///
    /// # Errors
    /// As [`QueryRun::evaluate`].
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
        let expired = || self.watch.is_late();
        let admits = |units| self.watch.admit(units).is_ok();
        let workers = self.lanes.workers();
        let _computing = workers.begin_query();
        let budget = Budget {
            cancel: Some(&self.watch.cancelled),
            expired: Some(&expired),
            admits: Some(&admits),
            progress: self.listed.as_ref().map(|listed| Arc::clone(&listed.entry.progress)),
            lease: Some(Arc::clone(&self.lease)),
            workers: Some(workers),
        };
        Ok(work(&budget)?)
    }

    /// A response body: `write` appends the members after `"status":"success",`; warnings and infos
    /// follow. Bodies of the specification always have warnings, those of Prometheus only if there are any.
    ///
    /// # Errors
    /// Those of `write`, and 422 where the body is too large.
    pub(in crate::api::orgs) fn body(
        &self,
        infos: &[String],
        style: BodyFormat,
        write: impl FnOnce(&mut Text<'_>) -> ApiResult<()>,
    ) -> ApiResult<Vec<u8>> {
        // Also where nothing is listed.
        self.watch.admit(0)?;
        let mut text = Text { run: self, out: Vec::from(SUCCESS), check_at: 0 };
        write(&mut text)?;
        let mut out = text.out;
        self.remarks(infos, style, &mut out);
        if out.len() > self.options.body_bytes_max {
            return Err(prom_json::BodyTooLarge { bytes_max: self.options.body_bytes_max }.into());
        }
        self.settle(out.len())?;
        Ok(out)
    }

    /// Ends inline work if a body of so many bytes is too long for it.
    fn settle(&self, bytes: usize) -> ApiResult<()> {
        let most = if self.coding == Coding::Identity { BODY_BYTES_MAX } else { CODED_BYTES_MAX };
        self.large.set(bytes > most);
        if bytes > most { self.leave_inline() } else { Ok(()) }
    }

    /// Ends inline work.
    ///
    /// # Errors
    /// 503, which no client sees, because the work starts again on the lane.
    fn leave_inline(&self) -> ApiResult<()> {
        match &self.watch.inline {
            Some(deadline) => {
                deadline.exceed();
                Err(QueryError::Timeout.into())
            }
            None => Ok(()),
        }
    }

    /// The response body around a result: `write` appends the members after `data`.
    ///
    /// # Errors
    /// As [`Body::of`].
    pub(in crate::api::orgs) fn result(
        &self,
        value: Value,
        infos: &[String],
        style: BodyFormat,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> ApiResult<Body> {
        self.settle(prom_json::likely_bytes(&value))?;
        let head = [SUCCESS, br#""data":{"#].concat();
        let mut tail = vec![b'}'];
        write(&mut tail);
        self.remarks(infos, style, &mut tail);
        let document = Document { head, value, tail };
        let lease = Some(Arc::clone(&self.lease));
        let bytes_max = self.options.body_bytes_max;
        let _computing = self.lanes.workers().begin_query();
        Body::of(document, self.coding, bytes_max, (&self.lanes, self.access.org), lease)
    }

    fn remarks(&self, infos: &[String], style: BodyFormat, out: &mut Vec<u8>) {
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

    /// Adds the warnings of annotations and returns their infos; at most ten of each, as Prometheus does.
    pub(in crate::api::orgs) fn annotate(&mut self, annotations: Annotations) -> Vec<String> {
        let Annotations { warnings, infos } = annotations;
        self.warnings.extend(at_most_ten(warnings, "warning"));
        at_most_ten(infos, "info")
    }

    /// Cuts a result after `limit` series, and says so.
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
pub(in crate::api::orgs) struct Text<'r> {
    run: &'r QueryRun,
    out: Vec<u8>,
    /// The length at which deadline, memory and size are checked next.
    check_at: usize,
}

impl Text<'_> {
    /// Bytes between two checks, which take about 50 µs to encode.
    const CHECK_BYTES: usize = 64 << 10;

    /// Appends bytes as they are.
    pub(in crate::api::orgs) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends what `write` writes, which is at most one text or label set. Checks follow every
    /// [`Text::CHECK_BYTES`].
    ///
    /// # Errors
    /// 503 after the deadline, 422 if the body is too large, either of them if there is no memory for it.
    pub(in crate::api::orgs) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> ApiResult<()> {
        write(&mut self.out);
        if self.out.len() < self.check_at {
            return Ok(());
        }
        let QueryRun { watch, options, .. } = self.run;
        if self.out.len() > options.body_bytes_max {
            return Err(prom_json::BodyTooLarge { bytes_max: options.body_bytes_max }.into());
        }
        if self.out.len() > BODY_BYTES_MAX {
            self.run.leave_inline()?;
        }
        watch.admit(0)?;
        // The buffer may double its capacity once before the next check.
        let bytes = (self.out.capacity() as u64).saturating_mul(2);
        self.run.hold_body(bytes)?;
        self.check_at = self.out.len() + Text::CHECK_BYTES;
        Ok(())
    }

    /// An array; `write` appends each item.
    ///
    /// # Errors
    /// As [`Text::write`].
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

    /// An array of strings.
    ///
    /// # Errors
    /// As [`Text::write`].
    pub(in crate::api::orgs) fn texts<'t>(
        &mut self,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> ApiResult<()> {
        self.array(texts, prom_json::text)
    }

    /// An array of label sets. What a set has in common with the one before is copied.
    ///
    /// # Errors
    /// As [`Text::write`].
    pub(in crate::api::orgs) fn label_sets(&mut self, sets: &[Labels]) -> ApiResult<()> {
        let mut before = prom_json::Before::default();
        self.array(sets, |labels, out| before.labels(labels, out))
    }
}

/// The number of series of a result; a scalar and a string count as one.
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

/// Options of one request for its evaluation.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::api::orgs) struct EvalOptions {
    /// Overrides the lookback of the server.
    pub(in crate::api::orgs) lookback_ms: Option<i64>,
    /// Neither use nor fill the result cache.
    pub(in crate::api::orgs) nocache: bool,
}

/// The format of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api::orgs) enum BodyFormat {
    /// That of the specification (docs/specification.md C5).
    Native,
    /// That of Prometheus (docs/specification.md C6).
    Prometheus,
}

/// Parses the parameter `timeout`.
///
/// # Errors
/// 400 `invalid_parameter` for zero and less.
pub(in crate::api::orgs) fn timeout(params: &mut Params) -> ApiResult<Option<Duration>> {
    match params.duration_ms("timeout")? {
        Some(ms) if ms <= 0 => Err(ApiError::invalid_parameter("timeout", "a timeout must be positive")),
        Some(ms) => Ok(Some(Duration::from_millis(ms.unsigned_abs()))),
        None => Ok(None),
    }
}

/// Checks every window of a query against an embed token. A query reads more than `start` to `end`:
/// `x[30d]` at one time reads thirty days, and `x[1d:1s]` has a range and a step of its own. (How old a sample may be,
/// `max_lookback_s`, is not checked here: below PromQL no sample beyond it is ever read.)
fn admit_windows(grant: &Grant, query: &Query, options: &promql::Options) -> ApiResult<()> {
    if grant.max_range_ms.is_none() && grant.min_step_ms.is_none() {
        return Ok(());
    }
    let refused = |detail: String| Err(ApiError::new(Code::EmbedRestricted, detail));
    for window in promql::windows(query, options) {
        if let Some(most) = grant.max_range_ms.filter(|most| window.range_ms > *most) {
            return refused(format!("this token grants windows of {} s at most", most / 1_000));
        }
        let least = grant.min_step_ms.filter(|least| window.step_ms.is_some_and(|step| step < *least));
        if let Some(least) = least {
            return refused(format!(
                "this token grants subqueries with steps of {} s at least",
                least / 1_000
            ));
        }
    }
    Ok(())
}

/// Checks a lookback that the request sets against an embed token: it is the time that a selector without
/// brackets reads.
fn admit_lookback(grant: &Grant, lookback_ms: Option<i64>) -> ApiResult<()> {
    match grant.max_range_ms.filter(|most| lookback_ms.is_some_and(|asked| asked > *most)) {
        Some(most) => {
            let detail = format!("this token grants lookbacks of {} s at most", most / 1_000);
            Err(ApiError::new(Code::EmbedRestricted, detail))
        }
        None => Ok(()),
    }
}

/// The time range of a listing within what an embed token grants. A missing bound becomes the widest one
/// granted.
///
/// # Errors
/// 403 `embed_restricted`.
pub(in crate::api::orgs) fn admit_range(
    grant: &Grant,
    range: TimeRange,
    now: Timestamp,
) -> ApiResult<TimeRange> {
    let Some(most) = grant.max_range_ms else { return Ok(range) };
    let end = if range.end == Timestamp::MAX { now.max(range.start) } else { range.end };
    let start = if range.start == Timestamp::MIN { end.plus_ms(-most) } else { range.start };
    if end.ms_since(start) > most {
        let detail = format!("this token grants ranges of {} s at most", most / 1_000);
        return Err(ApiError::new(Code::EmbedRestricted, detail));
    }
    Ok(TimeRange::new(start, end))
}

/// Checks a range and its step against an embed token.
///
/// # Errors
/// 403 `embed_restricted`.
pub(in crate::api::orgs) fn admit_steps(grant: &Grant, steps: &Steps) -> ApiResult<()> {
    let range_ms = steps.end().ms_since(steps.start());
    if let Some(most) = grant.max_range_ms.filter(|most| range_ms > *most) {
        let detail = format!("this token grants ranges of {} s at most", most / 1_000);
        return Err(ApiError::new(Code::EmbedRestricted, detail));
    }
    if let Some(least) = grant.min_step_ms.filter(|least| steps.step_ms() < *least) {
        let detail = format!("this token grants steps of {} s at least", least / 1_000);
        return Err(ApiError::new(Code::EmbedRestricted, detail));
    }
    Ok(())
}

/// Parses selectors. Together they may have as many regular expressions as one expression.
///
/// # Errors
/// 400 `bad_expr` and `invalid_parameter`.
pub(in crate::api::orgs) fn selectors(
    (cache, org): (&ExpressionCache, OrgId),
    texts: &[String],
    parameter: &'static str,
    caps: &Caps,
) -> ApiResult<Vec<Vec<Matcher>>> {
    if texts.len() > SELECTORS_MAX {
        let message = format!("{} selectors, more than the {SELECTORS_MAX} allowed", texts.len());
        return Err(ApiError::invalid_parameter(parameter, message));
    }
    let mut patterns_left = caps.regex_matchers;
    let mut all = Vec::with_capacity(texts.len());
    for text in texts {
        let matchers =
            cache.selector(org, text, patterns_left).map_err(|error| bad_expression(parameter, &error))?;
        patterns_left = patterns_left.saturating_sub(patterns(&matchers));
        all.push(matchers);
    }
    Ok(all)
}

/// Bytes of the compiled patterns of selectors, and of what searching with them may take.
pub(in crate::api::orgs) fn pattern_bytes(selectors: &[impl AsRef<[Matcher]>]) -> usize {
    selectors.iter().flat_map(|matchers| matchers.as_ref()).map(Matcher::pattern_bytes).sum()
}

/// The number of regular expressions among these matchers. As in an expression, an alternation of
/// literals is a set and does not count.
pub(in crate::api::orgs) fn patterns(matchers: &[Matcher]) -> usize {
    let is_set = |pattern: &str| pattern.chars().all(|c| c.is_alphanumeric() || " _-/:,|".contains(c));
    let is_pattern = |op| matches!(op, MatchOp::Regex | MatchOp::NotRegex);
    matchers.iter().filter(|matcher| is_pattern(matcher.op()) && !is_set(matcher.value())).count()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::api::callers::Quota;
    use crate::api::lanes::{InlinePermit, LanesOptions};

    fn deps() -> ReadDeps {
        ReadDeps {
            tsdb: Arc::new(Tsdb::scaffold()),
            lanes: Lanes::start(&LanesOptions::for_cores(1)).expect("threads"),
            clock: Clock::manual(Timestamp::from_s(0)),
            options: Arc::new(ReadOptions::default()),
            active: Arc::default(),
            memory: MemoryPool::new(1 << 30),
            cache: Arc::new(RangeCache::new(0)),
            patterns: Arc::default(),
            expressions: Arc::new(ExpressionCache::new(Caps::default())),
            inline: Arc::default(),
        }
    }

    fn entered() -> QueryAccess {
        QueryAccess {
            access: Access::whole(OrgId(1)),
            grant: Grant::default(),
            quota: Quota::default(),
            requester: "usr_a".into(),
            coding: Coding::Identity,
            sole_connection: false,
        }
    }

    /// Longer than any test takes; a test that waits this long has failed.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_closed_connection_cancels_its_query() {
        let deps = deps();
        let (started, has_started) = mpsc::channel();
        let (stopped, has_stopped) = mpsc::channel();
        let query = deps.run(entered(), move |run| {
            let _ = started.send(());
            while !run.watch.cancelled.load(Ordering::Relaxed) && !run.watch.is_late() {
                std::thread::yield_now();
            }
            let _ = stopped.send(run.watch.is_late());
            Ok(())
        });
        tokio::select! {
            _ = query => panic!("the query never ends by itself"),
            () = async { while has_started.try_recv().is_err() { tokio::task::yield_now().await } } => {}
        }
        assert_eq!(has_stopped.recv_timeout(PATIENCE), Ok(false), "cancelled before its deadline");
    }

    #[tokio::test]
    async fn the_timeout_of_a_query_is_at_most_that_of_the_server() {
        let deps = ReadDeps {
            options: Arc::new(ReadOptions { timeout: Duration::ZERO, ..ReadOptions::default() }),
            ..deps()
        };
        let request = QueryRequest::from(entered()).within(Some(PATIENCE));
        let late = deps.run(request, |run| Ok(run.watch.is_late())).await;
        assert!(late.expect("it ran"));
    }

    /// A fingerprint over all times.
    fn up(deps: &ReadDeps) -> QueryFingerprint {
        let params = Params::of_query(Some("query=up")).expect("parameters");
        deps.inline.fingerprint(("query", ""), &params).over(TimeRange::ALL)
    }

    /// The thread on which a query runs at last, and how often it was started.
    async fn thread_of(
        deps: &ReadDeps,
        sole_connection: bool,
        is_fast: bool,
    ) -> (std::thread::ThreadId, usize) {
        let request = QueryRequest::from(QueryAccess { sole_connection, ..entered() })
            .with_fingerprint(up(deps), TimeRange::ALL);
        let runs = Arc::new(AtomicUsize::new(0));
        let done = deps.run(request, move |run| {
            run.warn("one warning");
            let runs = runs.fetch_add(1, Ordering::Relaxed) + 1;
            while !is_fast && runs == 1 && run.watch.inline.is_some() {
                if run.watch.is_late() {
                    return Err(QueryError::Timeout.into());
                }
            }
            assert_eq!(run.warnings, ["one warning"]);
            Ok((std::thread::current().id(), runs))
        });
        done.await.expect("answered")
    }

    /// A permit of the lane, whose threads release theirs after their result was received.
    async fn try_inline(deps: &ReadDeps) -> InlinePermit<'_> {
        let since = Stopwatch::start();
        loop {
            if let Some(permit) = deps.lanes.try_inline(OrgId(1)) {
                return permit;
            }
            assert!(since.elapsed() < PATIENCE, "no permit became free");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn patterns_of_selectors_are_charged_until_the_run_ends() {
        let texts =
            ["{p=~\"(?:[ab]*a.{900})x\"}".to_owned(), "{q=\"1\",p!~\"(?:[ab]*b.{900})y\"}".to_owned()];
        let select = |deps: ReadDeps, texts: Vec<String>| async move {
            let work = move |run: &mut QueryRun| {
                run.selectors("match", &texts)?;
                // A listing holds its own bytes beside the patterns.
                run.pacing(|pace| pace.hold(1 << 20))?;
                Ok(run.lease.bytes())
            };
            deps.run(entered(), work).await
        };
        let held = select(deps(), texts.to_vec()).await.expect("there is memory");
        assert!(held > 9 << 20, "two programs and the states of their searches: {held} bytes");
        let little = ReadDeps { memory: MemoryPool::new(8 << 20), ..deps() };
        let refused = select(little, texts.to_vec()).await.expect_err("one organisation has half of 8 MiB");
        assert_eq!(refused.code(), Code::QueryTooExpensive);
    }

    #[tokio::test]
    async fn a_fast_query_runs_inline_while_its_connection_is_the_only_one() {
        let (deps, own) = (deps(), std::thread::current().id());
        let fingerprint = up(&deps);
        deps.inline.record(OrgId(2), fingerprint, Duration::ZERO);
        assert_ne!(thread_of(&deps, true, true).await.0, own, "recorded for another organisation");
        deps.inline.record(OrgId(1), fingerprint, Duration::ZERO);
        drop(try_inline(&deps).await);
        assert_eq!(thread_of(&deps, true, true).await, (own, 1));
        deps.inline.record(OrgId(1), fingerprint, Duration::ZERO);
        assert_ne!(thread_of(&deps, false, true).await.0, own, "another connection is active");
        deps.inline.record(OrgId(1), fingerprint, Duration::ZERO);
        let held = try_inline(&deps).await;
        let waiting = thread_of(&deps, true, true);
        tokio::select! {
            biased;
            _ = waiting => panic!("the organisation has its share of the lane"),
            () = async { while deps.lanes.gauges()[1].2 == 0 { tokio::task::yield_now().await } } => drop(held),
        }
    }

    #[tokio::test]
    async fn a_query_that_is_too_slow_inline_starts_again_on_the_lane_and_is_not_fast_any_more() {
        let (deps, own) = (deps(), std::thread::current().id());
        let fingerprint = up(&deps);
        deps.inline.record(OrgId(1), fingerprint, Duration::ZERO);
        let (thread, runs) = thread_of(&deps, true, false).await;
        assert_ne!((thread, runs), (own, 1));
        assert_eq!(runs, 2);
        assert!(!deps.inline.is_fast(OrgId(1), fingerprint));
    }

    #[test]
    fn at_most_ten_annotations_are_returned() {
        let texts: Vec<String> = (0..13).map(|n| n.to_string()).collect();
        let shown = at_most_ten(texts, "warning");
        assert_eq!((shown.len(), shown[10].as_str()), (11, "3 more warning annotations omitted"));
        assert_eq!(at_most_ten(vec!["a".into()], "info"), ["a"]);
    }

    #[test]
    fn sets_of_literals_do_not_count_as_patterns() {
        let of = |text: &str| patterns(&[Matcher::new("a", MatchOp::Regex, text).expect("valid")]);
        assert_eq!((of("api|web-1|a:b"), of("api.*"), of("(a|b)"), of("")), (0, 1, 1, 0));
        assert_eq!(patterns(&[Matcher::equal("a", ".*")]), 0);
    }
}
