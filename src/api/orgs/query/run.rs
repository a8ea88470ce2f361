//! The execution of one query on the query lane or inline.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::response::Response;

use super::active::{RunningQuery, RunningQueryGuard};
use super::deadline::QueryDeadline;
use super::deps::{ReadDeps, ReadOptions};
use super::engines::ReadEngine;
use super::inline::InlineDeadline;
use super::queried::QueriedMetrics;
use super::request::QueryRequest;
use super::response::QueryBody;
use super::result::ResultData;
use super::selectors::{pattern_bytes, selectors};
use super::source::UpstreamRun;
use crate::api::callers::{Grant, Permission, QueryAccess};
use crate::api::embed_use::EmbedUsage;
use crate::api::encoding::Coding;
use crate::api::error::data::bad_expression;
use crate::api::error::{ApiError, ApiResult};
use crate::api::lanes::{CancelOnDrop, Lanes};
use crate::clock::{Clock, Stopwatch};
use crate::model::{Access, Conductor, Matcher, Pace, PatternCache, Stopped, Timestamp};
use crate::promql::explain::{self, Estimate, PlanNode};
use crate::promql::syntax::ExpressionCache;
use crate::promql::syntax::tree::Expr;
use crate::promql::{
    self, Annotations, Budget, Lease, Query, QueryError, QueryResult, QueryStats, RangeCache,
};
use crate::sync::IgnorePoison as _;
use crate::tsdb::{Paced, Snapshot};

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
    pub(super) access: Access,
    pub(super) deadline: QueryDeadline,
    pub(super) samples_max: u64,
    pub(in crate::api::orgs) coding: Coding,
    pub(super) lease: Arc<Lease>,
    cache: Arc<RangeCache>,
    patterns: Arc<PatternCache>,
    expressions: Arc<ExpressionCache>,
    pub(super) lanes: Lanes,
    /// The entry in the list of running queries, if the query is listed.
    listed: Option<RunningQueryGuard>,
    /// Whether the result is too large to be encoded inline.
    pub(super) large: Cell<bool>,
    /// Bytes that stay charged until the run ends: compiled patterns and the texts of listings. The
    /// buffers of listings and bodies are charged separately.
    charged_bytes: Cell<u64>,
    /// Charges the evaluations of an embed token to its key.
    pub(super) usage: Option<EmbedUsage>,
    queried: Arc<QueriedMetrics>,
    clock: Clock,
    /// Set if the samples are on another server; the snapshot is then not read.
    pub(super) upstream: Option<UpstreamRun>,
}

/// The work of a run, which leaves its result with its caller. It is called again if the run starts
/// again.
pub(super) type RunWork = Box<dyn FnMut(&mut QueryRun) -> ApiResult<()> + Send>;

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

impl ReadDeps {
    /// Runs `work` on the query lane and responds with its JSON.
    pub(in crate::api::orgs) async fn respond(
        &self,
        request: impl Into<QueryRequest>,
        work: impl FnOnce(&mut QueryRun) -> ApiResult<Vec<u8>> + Clone + Send + 'static,
    ) -> ApiResult<Response> {
        let body = self.run(request, move |run| {
            let body = work(run)?;
            Ok(run.whole(body))
        });
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

    /// Runs `work` on the query lane, or inline if the policy
    /// ([`InlinePolicy`](super::inline::InlinePolicy)) admits it. Dropping the future cancels the
    /// work; that happens when the client closes the connection.
    pub(in crate::api::orgs) async fn run<T: Send + 'static>(
        &self,
        request: impl Into<QueryRequest>,
        work: impl FnOnce(&mut QueryRun) -> ApiResult<T> + Clone + Send + 'static,
    ) -> ApiResult<T> {
        let received = Arc::new(Mutex::new(None));
        let result = Arc::clone(&received);
        let work: RunWork = Box::new(move |run| {
            let made = work.clone()(run)?;
            *result.lock().ignore_poison() = Some(made);
            Ok(())
        });
        self.run_work(request.into(), work).await?;
        let made = received.lock().ignore_poison().take();
        made.ok_or_else(|| ApiError::internal("a query ended without a result"))
    }

    /// The part of [`ReadDeps::run`] that does not depend on the type of the result.
    async fn run_work(&self, request: QueryRequest, mut work: RunWork) -> ApiResult<()> {
        match self.engines.of(request.caller.access.org)? {
            ReadEngine::Local => {}
            ReadEngine::Upstream(upstream) => return self.run_upstream(request, upstream, None, work).await,
            ReadEngine::Split { upstream, split_after_ms } => {
                return self.run_upstream(request, upstream, Some(split_after_ms), work).await;
            }
        }
        let (org, sole_connection, fingerprint) =
            (request.caller.access.org, request.caller.sole_connection, request.inline_fingerprint());
        let lane = request.caller.lane();
        let cancelled = Arc::new(AtomicBool::new(false));
        let _guard = CancelOnDrop::new(Arc::clone(&cancelled));
        let start = self.start(request, cancelled);
        let fast =
            fingerprint.filter(|fingerprint| sole_connection && self.inline.is_fast(org, *fingerprint));
        let permit = fast.and_then(|fingerprint| Some((fingerprint, self.lanes.try_inline(org)?)));
        if let Some((fingerprint, permit)) = permit {
            let since = Stopwatch::start();
            let mut run = start(Some(InlineDeadline::start()));
            let done = permit.run(|| run.execute(&mut work))?;
            // The flag is also set if a lock was not free. The result is then incomplete.
            if !run.deadline.inline.take().is_some_and(|deadline| deadline.exceeded()) {
                self.inline.record(org, fingerprint, since.elapsed());
                return done;
            }
            self.inline.record(org, fingerprint, Duration::MAX);
            run.snapshot.wait_for_locks();
            return self.lanes.run(lane, move || run.execute(&mut work)).await?;
        }
        let inline = fingerprint.map(|fingerprint| (Arc::clone(&self.inline), fingerprint));
        let work = move || {
            let since = Stopwatch::start();
            let mut run = start(None);
            let done = run.execute(&mut work);
            if let Some((inline, fingerprint)) = inline {
                let time = if run.large.get() { Duration::MAX } else { since.elapsed() };
                inline.record(org, fingerprint, time);
            }
            done
        };
        self.lanes.run(lane, work).await?
    }

    /// Lists a query, and returns a function that starts it. The query sees the data that is stored
    /// when that function is called.
    pub(super) fn start(
        &self,
        request: QueryRequest,
        cancelled: Arc<AtomicBool>,
    ) -> impl FnOnce(Option<InlineDeadline>) -> QueryRun + Send + 'static {
        let QueryRequest { caller, timeout, listed, .. } = request;
        let QueryAccess { access, grant, quota, requester, coding, usage, .. } = caller;
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
        let (queried, clock) = (Arc::clone(&self.queried), self.clock.clone());
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
            usage,
            queried,
            clock,
            upstream: None,
        }
    }
}

/// The warning that a scope may have hidden series.
pub(super) const SCOPED: &str = "this token grants only some of the series; the others are left out";

impl QueryRun {
    /// Runs `work`. It runs a second time, on the lane, if it took too long inline, so the state of
    /// the first run is cleared.
    pub(super) fn execute<T>(&mut self, work: impl FnOnce(&mut QueryRun) -> ApiResult<T>) -> ApiResult<T> {
        self.warnings.clear();
        self.charged_bytes.set(0);
        if let Some(upstream) = &self.upstream {
            upstream.restart();
        }
        if let Some(listed) = &self.listed {
            listed.query.progress.begin();
        }
        if self.grant.is_token() && self.snapshot.is_scoped() {
            self.warn(SCOPED);
        }
        // The query may have been cancelled while it waited.
        if self.deadline.cancelled.load(Ordering::Relaxed) {
            return Err(QueryError::Cancelled.into());
        }
        let is_first = self.upstream.as_ref().is_none_or(UpstreamRun::is_first_execution);
        let _evaluation = match &self.usage {
            Some(usage) => {
                // Other queries may have used up the time of the key meanwhile.
                if is_first {
                    usage.admit()?;
                }
                Some(usage.begin())
            }
            None => None,
        };
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
    pub(super) fn hold_body(&self, bytes: u64) -> Result<(), QueryError> {
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

    /// Parses an expression within the caps, and checks it against the expressions that a token
    /// lists.
    ///
    /// # Errors
    /// 400 `bad_expr`, 403 `embed_restricted`.
    pub(in crate::api::orgs) fn expression(
        &self,
        parameter: &'static str,
        text: &str,
    ) -> ApiResult<Arc<Expr>> {
        let org = self.access.org;
        let parsed = self.expressions.parse(org, text);
        let expr = parsed.map_err(|error| self.error_or(bad_expression(parameter, &error)))?;
        if let Some(listed) = &self.listed {
            listed.query.selectors.store(expr.selectors().len(), Ordering::Relaxed);
        }
        let canonical = |listed: &str| Some(self.expressions.parse(org, listed).ok()?.to_string());
        let granted = self.grant.require(Permission::Expression { expr: &expr, canonical: &canonical });
        // Parsing of a listed expression also fails if the request was cancelled or timed out.
        granted.map_err(|refused| self.error_or(refused))?;
        Ok(expr)
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

    /// Returns the time since which all queries of the organisation are known, and when these
    /// metrics were queried last; `None` for a token, which learns nothing about other callers.
    pub(in crate::api::orgs) fn last_queried<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Option<(Timestamp, Vec<Option<Timestamp>>)> {
        (!self.grant.is_token()).then(|| self.queried.last(self.access.org, names))
    }

    /// Evaluates a query within its deadline, and uses cached results that are still exact.
    ///
    /// # Errors
    /// The mapping of [`promql::QueryError`]. The wait for a thread counts towards `query_timeout`.
    pub(in crate::api::orgs) fn evaluate(&self, query: &Query, eval: EvalOptions) -> ApiResult<QueryResult> {
        let EvaluatedData { data, annotations, stats } = self.evaluate_data(query, eval)?;
        Ok(QueryResult { value: self.parsed(data)?, annotations, stats })
    }

    /// Like [`QueryRun::evaluate`], for a result that is only encoded. That of another server then
    /// stays text.
    ///
    /// # Errors
    /// Those of [`QueryRun::evaluate`].
    pub(in crate::api::orgs) fn evaluate_data(
        &self,
        query: &Query,
        eval: EvalOptions,
    ) -> ApiResult<EvaluatedData> {
        let options = self.admit_evaluation(query, eval.lookback_ms)?;
        self.queried.record(self.access.org, &query.expr.selectors(), self.clock.now());
        let result = match &self.upstream {
            None => self.evaluate_here(query, &self.snapshot, &options, eval)?.into(),
            Some(run) => match &run.split {
                None => self.evaluate_upstream(run, query, &options)?,
                Some(split) => self.evaluate_split(run, split, query, options, eval)?,
            },
        };
        if let Some(usage) = &self.usage {
            usage.add_samples(result.stats.samples);
        }
        Ok(result)
    }

    /// Evaluates a query over a snapshot.
    pub(super) fn evaluate_here(
        &self,
        query: &Query,
        snapshot: &Snapshot,
        options: &promql::Options,
        eval: EvalOptions,
    ) -> ApiResult<QueryResult> {
        self.within(|budget| {
            if eval.nocache {
                return promql::run(query, snapshot, options, budget);
            }
            self.cache.run(query, &self.access, snapshot, options, budget)
        })
    }

    /// Evaluates a query without the cache, and returns its result and the cost of each plan node.
    ///
    /// # Errors
    /// Those of [`QueryRun::evaluate`], and 403 without [`Permission::SeriesOfResults`].
    pub(in crate::api::orgs) fn explain(&self, query: &Query) -> ApiResult<(QueryResult, PlanNode)> {
        self.grant.require(Permission::SeriesOfResults)?;
        self.require_local("the cost of each part of a query")?;
        let options = self.admit_evaluation(query, None)?;
        self.queried.record(self.access.org, &query.expr.selectors(), self.clock.now());
        let both = self.snapshot_of_both(query, &options)?;
        let snapshot = both.as_ref().map_or(&self.snapshot, |both| &both.snapshot);
        self.within(|budget| explain::explain(query, snapshot, &options, budget))
    }

    /// Estimates the cost of a query.
    ///
    /// # Errors
    /// Those of [`QueryRun::evaluate`], and 403 without [`Permission::SeriesOfResults`].
    pub(in crate::api::orgs) fn estimate(&self, query: &Query) -> ApiResult<Estimate> {
        self.grant.require(Permission::SeriesOfResults)?;
        self.require_local("the estimated cost of a query")?;
        let options = self.admit_evaluation(query, None)?;
        let both = self.snapshot_of_both(query, &options)?;
        let snapshot = both.as_ref().map_or(&self.snapshot, |both| &both.snapshot);
        self.within(|budget| explain::estimate(query, snapshot, &options, budget))
    }

    /// Checks that the caller may read the metrics of a query, and returns the options of its
    /// evaluation.
    fn admit_evaluation(&self, query: &Query, lookback_ms: Option<i64>) -> ApiResult<promql::Options> {
        let mut options = self.options.promql.clone();
        options.limits.samples_max = self.samples_max;
        if let Some(lookback_ms) = lookback_ms {
            self.grant.require(Permission::Lookback(lookback_ms))?;
            options.lookback_ms = lookback_ms;
        }
        self.grant.require(Permission::Windows(query, &options))?;
        Ok(options)
    }

    pub(super) fn within<T>(&self, work: impl FnOnce(&Budget<'_>) -> Result<T, QueryError>) -> ApiResult<T> {
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

    /// Ends inline work; does nothing on the lane.
    ///
    /// # Errors
    /// 503 if the work runs inline. No client receives it, because the work starts again on the
    /// lane.
    pub(super) fn leave_inline(&self) -> ApiResult<()> {
        match &self.deadline.inline {
            Some(deadline) => {
                deadline.exceed();
                Err(QueryError::Timeout.into())
            }
            None => Ok(()),
        }
    }
}

/// The result of a query for a body.
pub(in crate::api::orgs) struct EvaluatedData {
    /// The result.
    pub(in crate::api::orgs) data: ResultData,
    /// Its warnings and infos.
    pub(in crate::api::orgs) annotations: Annotations,
    /// The cost of its evaluation.
    pub(in crate::api::orgs) stats: QueryStats,
}

impl From<QueryResult> for EvaluatedData {
    fn from(QueryResult { value, annotations, stats }: QueryResult) -> EvaluatedData {
        EvaluatedData { data: value.into(), annotations, stats }
    }
}

/// The evaluation options that a request sets.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::api::orgs) struct EvalOptions {
    /// Overrides the lookback of the server, in milliseconds.
    pub(in crate::api::orgs) lookback_ms: Option<i64>,
    /// Whether to neither use nor fill the result cache.
    pub(in crate::api::orgs) nocache: bool,
}

#[cfg(test)]
mod tests;
