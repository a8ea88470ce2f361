//! The source of a run: its snapshot, or the answers of another server.
//!
//! A run does no I/O. If it needs an answer that it does not have, it records the read and ends;
//! [`ReadDeps::run`] then fetches the answer, and runs the same work again with it. Each answer is
//! stored with its read. If an execution reads something else than the previous one, for example
//! because a dashboard was saved meanwhile, the answers from there on are fetched again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::deps::ReadDeps;
use super::inline::{InlineDeadline, QueryFingerprint};
use super::request::QueryRequest;
use super::result::ResultData;
use super::run::{EvaluatedData, QueryRun, RunWork};
use super::split::{SplitRun, union};
use crate::api::embed_use::EmbedUsage;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::{CancelOnDrop, Lane};
use crate::clock::Stopwatch;
use crate::model::{
    Labels, METRIC_NAME, MatchOp, Matcher, OrgId, Pattern, Steps, Stopped, TimeRange, Timestamp, families_of,
    format_duration,
};
use crate::promql::syntax::tree::QueryTimes;
use crate::promql::{self, Annotations, Lease, Query, QueryError, QueryStats, Value, VectorSample};
use crate::tsdb::{
    Cardinality, Description, LabelSummary, Listing, Metric, MetricFilter, Paced, SeriesExemplars,
};
use crate::upstream::{
    AnswerData, FetchLimits, FetchedAnswer, ForcedMatchers, QueryValue, Upstream, UpstreamAnswer,
    UpstreamError, UpstreamRead,
};

/// The most reads of one run, inclusive.
const READS_MAX: usize = 64;
/// The most reads that count the series of a page of metrics, inclusive.
const COUNT_READS_MAX: usize = 32;
/// The most bytes of names in the regular expression of one such read.
const COUNTED_NAMES_BYTES: usize = 32 << 10;
/// The largest answer that is checked, sorted or parsed on the thread of the connection, in bytes
/// of memory. That takes about 0.2 ms.
const INLINE_BYTES_MAX: u64 = 64 << 10;
/// The largest text that is passed on by the thread of the connection. That takes about 0.3 ms.
const PASSED_BYTES_MAX: u64 = 2 << 20;
/// How often a fetch looks whether its query was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// A run that another server answers.
pub(super) struct UpstreamRun {
    upstream: Arc<Upstream>,
    now: Timestamp,
    /// The answers to the first reads, in order.
    answers: RefCell<Vec<HeldAnswer>>,
    /// The number of fetched answers, including those that were dropped.
    fetched: Cell<usize>,
    /// The number of answers that this execution has used.
    used: Cell<usize>,
    /// The read that ended this execution.
    wanted: RefCell<Option<UpstreamRead>>,
    /// Set if only older samples are on the server.
    pub(super) split: Option<SplitRun>,
}

/// An answer to a read, with its memory.
struct HeldAnswer {
    read: UpstreamRead,
    answer: Arc<UpstreamAnswer>,
    _lease: Arc<Lease>,
}

impl UpstreamRun {
    fn new(upstream: Arc<Upstream>, now: Timestamp, split: Option<SplitRun>) -> UpstreamRun {
        let (answers, fetched) = (RefCell::default(), Cell::new(0));
        UpstreamRun { upstream, now, answers, fetched, used: Cell::new(0), wanted: RefCell::new(None), split }
    }

    /// Begins an execution.
    pub(super) fn restart(&self) {
        self.used.set(0);
        self.wanted.take();
    }

    /// Returns the number of answers that this execution has used.
    pub(super) fn place(&self) -> usize {
        self.used.get()
    }

    /// Continues after the first `place` answers.
    pub(super) fn skip_to(&self, place: usize) {
        self.used.set(place);
    }

    /// Returns whether the answer at a place is that to a read.
    pub(super) fn is_answered(&self, place: usize, read: &UpstreamRead) -> bool {
        self.answers.borrow().get(place).is_some_and(|held| held.read == *read)
    }

    /// Returns whether no answer has been fetched yet.
    pub(super) fn is_first_execution(&self) -> bool {
        self.fetched.get() == 0
    }

    /// Drops the answers from an index on, and the samples that were decoded from them.
    fn forget_from(&self, place: usize) {
        self.answers.borrow_mut().truncate(place);
        if let Some(split) = &self.split {
            split.forget_from(place);
        }
    }

    /// Returns the memory of all answers in bytes.
    fn held_bytes(&self) -> u64 {
        self.answers.borrow().iter().fold(0, |bytes, held| bytes.saturating_add(held.answer.bytes))
    }

    /// Returns whether this execution has ended until an answer is fetched.
    pub(super) fn is_waiting(&self) -> bool {
        self.wanted.borrow().is_some()
    }

    /// Returns the matcher of the tenant's label, if the tenant has one.
    pub(super) fn tenant(&self) -> Option<&Matcher> {
        self.upstream.tenant()
    }

    /// Returns the answer to a read, or ends the execution until there is one.
    pub(super) fn answer(&self, read: UpstreamRead) -> ApiResult<Arc<UpstreamAnswer>> {
        let place = self.used.replace(self.used.get() + 1);
        let of_read = |held: &&HeldAnswer| held.read == read;
        let known = self.answers.borrow().get(place).filter(of_read).map(|held| Arc::clone(&held.answer));
        if let Some(answer) = known {
            return match &answer.data {
                AnswerData::Unsupported(why) => Err(unsupported(why)),
                _ => Ok(answer),
            };
        }
        self.forget_from(place);
        if self.fetched.get() >= READS_MAX {
            let why = format!("the request needs more than {READS_MAX} reads");
            return Err(ApiError::new(Code::UpstreamUnsupported, why));
        }
        *self.wanted.borrow_mut() = Some(read);
        // No client receives this error, because the work is run again.
        Err(QueryError::Cancelled.into())
    }
}

impl ReadDeps {
    /// Runs `work` as often as it needs another answer. Dropping the future cancels the work and
    /// the request to the server.
    pub(super) async fn run_upstream(
        &self,
        request: QueryRequest,
        upstream: Arc<Upstream>,
        split_after_ms: Option<i64>,
        work: RunWork,
    ) -> ApiResult<()> {
        let cancelled = Arc::default();
        let _guard = CancelOnDrop::new(Arc::clone(&cancelled));
        let now = self.clock.now();
        let (memory, org) = (Arc::clone(&self.memory), request.caller.access.org);
        let split_lease = Arc::new(memory.lease(org));
        let fingerprint = request.inline_fingerprint().filter(|_| split_after_ms.is_none());
        let mut preparation =
            StepPlace::of(&request, fingerprint.map(QueryFingerprint::of_preparation), self);
        let mut place = StepPlace::of(&request, fingerprint, self);
        let start = self.start(request, Arc::clone(&cancelled));
        let begin = move || {
            let mut run = start(None);
            let split = split_after_ms.map(|after_ms| {
                let kept_from = run.snapshot.kept_from();
                SplitRun::new(now, after_ms, kept_from, split_lease)
            });
            run.upstream = Some(UpstreamRun::new(upstream, now, split));
            (run, Ok(()))
        };
        let (mut run, mut work, mut done) = self.run_step(&mut preparation, true, begin, work).await?;
        preparation.record(self, false);
        loop {
            let Some((read, upstream)) =
                run.upstream.as_mut().and_then(|run| Some((run.wanted.take()?, Arc::clone(&run.upstream))))
            else {
                place.record(self, run.large.get());
                return done;
            };
            // The lease of the run is that of its evaluation; answers have leases of their own.
            let lease = Arc::new(memory.lease(org));
            let limits = run.fetch_limits(&lease);
            let fetched = {
                // The time of the upstream counts for the key of a token.
                let _evaluation = run.usage.as_ref().map(EmbedUsage::begin);
                tokio::select! {
                    biased;
                    fetched = upstream.fetch(&read, limits) => fetched,
                    () = until_cancelled(&cancelled) => return Err(QueryError::Cancelled.into()),
                }
            };
            let is_small = fetched.as_ref().map_or(true, |fetched| {
                fetched.unfinished_bytes() <= INLINE_BYTES_MAX && fetched.held_bytes() <= PASSED_BYTES_MAX
            });
            let take = move || {
                let taken = run.take_answer(read, fetched, lease);
                (run, taken)
            };
            (run, work, done) = self.run_step(&mut place, is_small, take, work).await?;
        }
    }

    /// Prepares a run and executes its work: on this thread if that is admitted and the step is
    /// short, otherwise on the lane.
    async fn run_step(
        &self,
        place: &mut StepPlace,
        is_short: bool,
        prepare: impl FnOnce() -> (QueryRun, ApiResult<()>) + Send + 'static,
        mut work: RunWork,
    ) -> ApiResult<(QueryRun, RunWork, ApiResult<()>)> {
        let since = Stopwatch::start();
        let permit = if place.is_inline && is_short { self.lanes.try_inline(place.org) } else { None };
        let Some(permit) = permit else {
            let step = move || {
                let since = Stopwatch::start();
                let (mut run, prepared) = prepare();
                let done = prepared.and_then(|()| run.execute(&mut work));
                (run, work, done, since.elapsed())
            };
            let (run, work, done, took) = self.lanes.run(place.lane, step).await?;
            place.took = place.took.saturating_add(took);
            return Ok((run, work, done));
        };
        let (mut run, done) = permit.run(|| {
            let (mut run, prepared) = prepare();
            run.deadline.inline = Some(InlineDeadline::start());
            let done = prepared.and_then(|()| run.execute(&mut work));
            (run, done)
        })?;
        if !run.deadline.inline.take().is_some_and(|deadline| deadline.exceeded()) {
            place.took = place.took.saturating_add(since.elapsed());
            return Ok((run, work, done));
        }
        // The work took too long on this thread, and starts again.
        (place.is_inline, place.took) = (false, Duration::MAX);
        let step = move || {
            let done = run.execute(&mut work);
            (run, work, done)
        };
        self.lanes.run(place.lane, step).await
    }
}

/// The place where steps of a run are executed, and how long they take. The preparation of a query
/// is short, also if its answer is not.
struct StepPlace {
    org: OrgId,
    lane: Lane,
    fingerprint: Option<QueryFingerprint>,
    /// Whether the policy admits steps on the thread of the connection.
    is_inline: bool,
    /// The time of all steps, without that of the server.
    took: Duration,
}

impl StepPlace {
    fn of(request: &QueryRequest, fingerprint: Option<QueryFingerprint>, deps: &ReadDeps) -> StepPlace {
        let (org, lane) = (request.caller.access.org, request.caller.lane());
        let is_fast = fingerprint.is_some_and(|fingerprint| deps.inline.is_fast(org, fingerprint));
        let is_inline = is_fast && request.caller.sole_connection;
        StepPlace { org, lane, fingerprint, is_inline, took: Duration::ZERO }
    }

    /// Records the time of the steps, for the next run.
    fn record(&self, deps: &ReadDeps, is_large: bool) {
        if let Some(fingerprint) = self.fingerprint.filter(|_| !self.took.is_zero()) {
            deps.inline.record(self.org, fingerprint, if is_large { Duration::MAX } else { self.took });
        }
    }
}

/// Waits until the flag is set.
async fn until_cancelled(flag: &std::sync::atomic::AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        tokio::time::sleep(CANCEL_CHECK).await;
    }
}

/// Maps an error of a server. Its messages may contain names that a token must not learn.
fn refused(error: UpstreamError, is_token: bool) -> ApiError {
    let detail = |text: String, plain: &'static str| if is_token { plain.to_owned() } else { text };
    match error {
        UpstreamError::Query(error) => error.into(),
        UpstreamError::Unsupported(why) => ApiError::new(
            Code::UpstreamUnsupported,
            detail(format!("the upstream cannot answer this: {why}"), "the upstream cannot answer this"),
        ),
        UpstreamError::QueryFailed(why) => {
            ApiError::new(Code::QueryFailed, detail(why, "the query failed on the upstream"))
        }
        UpstreamError::Unavailable { ref why, retry_after } => {
            tracing::debug!("an upstream is not available: {why}");
            let detail = detail(error.to_string(), "the upstream is not available");
            ApiError::new(Code::UpstreamUnavailable, detail).with_retry_after(retry_after)
        }
        UpstreamError::Failed(ref cause) => {
            tracing::warn!("an upstream failed: {cause}");
            let error = ApiError::new(Code::UpstreamError, detail(error.to_string(), "the upstream failed"));
            if is_token { error } else { error.with("target_error", cause.code()) }
        }
    }
}

fn unsupported(why: impl Into<String>) -> ApiError {
    ApiError::new(Code::UpstreamUnsupported, why.into())
}

/// A defect of this file: each read has one kind of answer.
pub(super) fn other_answer() -> ApiError {
    ApiError::internal("an upstream's answer is not of the kind of its read")
}

impl QueryRun {
    /// Returns the limits of the next fetch. All answers of a run share the memory of a query.
    fn fetch_limits(&self, lease: &Arc<Lease>) -> FetchLimits {
        let held = self.upstream.as_ref().map_or(0, UpstreamRun::held_bytes);
        FetchLimits {
            timeout: self.deadline.timeout.saturating_sub(self.deadline.since.elapsed()),
            body_bytes_max: self.options.body_bytes_max as u64,
            samples_max: self.samples_max,
            memory_bytes_max: self.options.promql.limits.memory_bytes_max.saturating_sub(held),
            lease: Some(Arc::clone(lease)),
            is_token: self.grant.is_token(),
            is_whole: self.split().is_some(),
        }
    }

    /// Stores the answer that was fetched for a read.
    fn take_answer(
        &mut self,
        read: UpstreamRead,
        fetched: Result<FetchedAnswer, UpstreamError>,
        lease: Arc<Lease>,
    ) -> ApiResult<()> {
        let (is_token, is_split) = (self.grant.is_token(), self.split().is_some());
        let mut answer = match fetched.and_then(FetchedAnswer::finish) {
            Err(UpstreamError::Unsupported(why)) if is_split => {
                let why = if is_token { "the upstream cannot answer this".to_owned() } else { why };
                UpstreamAnswer::of(AnswerData::Unsupported(why))
            }
            answer => answer.map_err(|error| refused(error, is_token))?,
        };
        if is_token {
            answer.hide_texts();
        }
        if let Some(run) = &self.upstream {
            run.fetched.set(run.fetched.get() + 1);
            let (answer, _lease) = (Arc::new(answer), lease);
            run.answers.borrow_mut().push(HeldAnswer { read, answer, _lease });
        }
        Ok(())
    }

    /// Returns whether the scope admits a series that the server listed. So a server that ignores
    /// the matchers of a listing reveals nothing. The label of the tenant is removed from answers.
    fn admits(&self, labels: &Labels) -> bool {
        let scope = &self.access.scope;
        let tenant = self.upstream.as_ref().and_then(UpstreamRun::tenant).map(Matcher::name);
        let mut shown = scope.matchers.iter().filter(|matcher| Some(matcher.name()) != tenant);
        shown.all(|matcher| matcher.admits(labels)) && scope.admits_name(labels.metric_name())
    }

    /// Returns the matchers that the caller cannot remove.
    pub(super) fn forced(&self, run: &UpstreamRun) -> ApiResult<ForcedMatchers> {
        let forced = ForcedMatchers::of(&self.access.scope, run.upstream.tenant());
        forced.map_err(|error| self.error_or(unsupported(error.to_string())))
    }

    /// Returns a result as a value. A text is parsed, and charged in addition to its values.
    ///
    /// # Errors
    /// Those of [`QueryRun::charge`].
    pub(in crate::api::orgs) fn parsed(&self, data: ResultData) -> ApiResult<Value> {
        if let ResultData::Passed { series, .. } = &data {
            if series.held_bytes() > INLINE_BYTES_MAX {
                self.leave_inline()?;
            }
            self.charge(usize::try_from(series.parsed_bytes()).unwrap_or(usize::MAX))?;
        }
        data.into_value()
    }

    /// Returns the series of an answer that is a vector.
    fn vector_of(&self, answer: &UpstreamAnswer) -> ApiResult<Vec<VectorSample>> {
        let AnswerData::Query(found) = &answer.data else { return Err(other_answer()) };
        let QueryValue::Passed(series) = &found.value else { return Err(other_answer()) };
        match self.parsed(ResultData::Passed { series: Arc::clone(series), limit: usize::MAX })? {
            Value::Vector(series) => Ok(series),
            _ => Err(other_answer()),
        }
    }

    /// Evaluates a query on the upstream.
    pub(super) fn evaluate_upstream(
        &self,
        run: &UpstreamRun,
        query: &Query,
        options: &promql::Options,
    ) -> ApiResult<EvaluatedData> {
        // The plan is also built to report the errors that a local evaluation has.
        let oldest = self.within(|budget| promql::oldest_sample(query, options, budget))?;
        let floor = self.access.scope.min_time;
        if oldest.zip(floor).is_some_and(|(oldest, floor)| oldest < floor) {
            return Err(unsupported(
                "the query reads samples that are older than this token may see, and the upstream cannot hide them",
            ));
        }
        let times = QueryTimes {
            step_ms: if query.instant { 0 } else { query.steps.step_ms() },
            range_ms: query.steps.end().ms_since(query.steps.start()),
        };
        let expr = self.forced(run)?.restrict(&query.expr, times, options.subquery_step_ms);
        let expr = expr.map_err(|why| refused(why.into(), false))?.to_string();
        // Always sent, because the default of the server may be another one.
        let (steps, instant, lookback_ms) = (query.steps, query.instant, Some(options.lookback_ms));
        let answer = run.answer(UpstreamRead::Query { expr, steps, instant, lookback_ms })?;
        let AnswerData::Query(found) = &answer.data else { return Err(other_answer()) };
        let data = match &found.value {
            QueryValue::Passed(series) => {
                ResultData::Passed { series: Arc::clone(series), limit: usize::MAX }
            }
            QueryValue::Parsed(value) => {
                // The answer is held until the run ends, in addition to the copy.
                self.charge(usize::try_from(answer.bytes).unwrap_or(usize::MAX))?;
                value.clone().into()
            }
        };
        let (warnings, infos) = (answer.warnings.clone(), answer.infos.clone());
        Ok(EvaluatedData {
            data,
            annotations: Annotations { warnings, infos },
            stats: QueryStats { samples: found.samples, ..QueryStats::default() },
        })
    }

    /// Refuses something that only the local store can answer.
    pub(super) fn require_local(&self, what: &str) -> ApiResult<()> {
        match &self.upstream {
            Some(run) if run.split.is_none() => {
                Err(unsupported(format!("{what} is known only for samples that are stored here")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Adds the warnings of a listing's answer.
    fn take_warnings(&mut self, answer: &UpstreamAnswer) {
        const SHOWN_MAX: usize = 10;
        self.warnings.extend(answer.warnings.iter().take(SHOWN_MAX).cloned());
    }

    /// Returns the part of a range that the caller may see.
    fn visible(&self, range: TimeRange) -> TimeRange {
        let floor = self.access.scope.min_time;
        TimeRange::new(floor.map_or(range.start, |floor| range.start.max(floor)), range.end)
    }

    /// Returns the server, if a listing of this range needs it.
    fn upstream_for(&self, range: TimeRange) -> Option<&UpstreamRun> {
        let run = self.upstream.as_ref()?;
        run.split.as_ref().is_none_or(|split| split.reaches(range)).then_some(run)
    }

    /// Returns the union of a server's listing and the local one, if the engine is split.
    fn with_local<T: Ord>(
        &self,
        found: Listing<T>,
        limit: usize,
        local: impl FnOnce(&Paced<'_>) -> Result<Listing<T>, Stopped>,
    ) -> ApiResult<Listing<T>> {
        match self.split() {
            Some(_) => Ok(union(found, self.paced(local)?, limit)),
            None => Ok(found),
        }
    }

    /// Returns the label sets of series that pass any of the selectors and the scope, sorted.
    /// Without selectors, all series pass them. If the caller may not see old samples, the series
    /// are those with a sample in the range, because listings of servers are coarse in time.
    fn upstream_series(
        &mut self,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        limit: usize,
    ) -> ApiResult<Option<Listing<Labels>>> {
        let Some(run) = self.upstream_for(range) else { return Ok(None) };
        let texts = self.forced(run)?.selectors(selectors);
        let Some(floor) = self.access.scope.min_time else {
            let answer = run.answer(UpstreamRead::Series { selectors: texts, range, limit })?;
            let AnswerData::Series(found) = &answer.data else { return Err(other_answer()) };
            let items = found.items.iter().filter(|labels| self.admits(labels)).cloned().collect();
            let found = Listing { items, truncated: found.truncated };
            self.take_warnings(&answer);
            return Ok(Some(found));
        };
        let end = if range.end == Timestamp::MAX { run.now } else { range.end };
        let start = range.start.max(floor);
        let mut found = BTreeSet::new();
        // A window excludes its start.
        let window_ms = end.ms_since(start).saturating_add(1);
        for text in texts.iter().filter(|_| window_ms > 0) {
            let expr = format!("last_over_time({text}[{}])", format_duration(window_ms));
            let steps = Steps::once(end);
            let answer = run.answer(UpstreamRead::Query { expr, steps, instant: true, lookback_ms: None })?;
            let series = self.vector_of(&answer)?;
            found.extend(series.into_iter().map(|one| one.labels).filter(|labels| self.admits(labels)));
        }
        let truncated = found.len() > limit;
        Ok(Some(Listing { items: found.into_iter().take(limit).collect(), truncated }))
    }

    /// See [`Paced::series`](crate::tsdb::Paced::series).
    ///
    /// # Errors
    /// Those of [`QueryRun::paced`] and of an upstream.
    pub(in crate::api::orgs) fn series(
        &mut self,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        limit: usize,
    ) -> ApiResult<Listing<Labels>> {
        match self.upstream_series(selectors, range, limit)? {
            Some(found) => self.with_local(found, limit, |paced| paced.series(selectors, range, limit)),
            None => self.paced(|paced| paced.series(selectors, range, limit)),
        }
    }

    /// See [`Paced::exists`](crate::tsdb::Paced::exists).
    ///
    /// # Errors
    /// Those of [`QueryRun::series`].
    pub(in crate::api::orgs) fn exists(
        &mut self,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> ApiResult<bool> {
        match self.upstream_series(selectors, range, 1)? {
            Some(found) if !found.items.is_empty() => Ok(true),
            Some(_) if self.split().is_none() => Ok(false),
            Some(_) | None => self.paced(|paced| paced.exists(selectors, range)),
        }
    }

    /// Returns texts of labels, which `of` takes from a label set. For a caller with a scope the
    /// texts come from label sets, because only those can be checked against the scope.
    fn upstream_texts(
        &mut self,
        (selectors, range, limit): (&[Vec<Matcher>], TimeRange, usize),
        read: impl FnOnce(Vec<String>) -> UpstreamRead,
        of: impl Fn(&Labels) -> Vec<Arc<str>>,
    ) -> ApiResult<Option<Listing<Arc<str>>>> {
        let Some(run) = self.upstream_for(range) else { return Ok(None) };
        if !self.access.scope.is_whole() {
            let Some(found) = self.upstream_series(selectors, range, usize::MAX)? else { return Ok(None) };
            let all: BTreeSet<Arc<str>> = found.items.iter().flat_map(of).collect();
            let truncated = all.len() > limit;
            return Ok(Some(Listing { items: all.into_iter().take(limit).collect(), truncated }));
        }
        let answer = run.answer(read(self.forced(run)?.selectors(selectors)))?;
        let AnswerData::Texts(found) = &answer.data else { return Err(other_answer()) };
        let found = found.clone();
        self.take_warnings(&answer);
        Ok(Some(found))
    }

    /// See [`Paced::label_names`](crate::tsdb::Paced::label_names).
    ///
    /// # Errors
    /// Those of [`QueryRun::series`].
    pub(in crate::api::orgs) fn label_names(
        &mut self,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        limit: usize,
    ) -> ApiResult<Listing<Arc<str>>> {
        let read = |selectors| UpstreamRead::LabelNames { selectors, range, limit };
        let of = |labels: &Labels| labels.owned().map(|label| label.name).collect();
        match self.upstream_texts((selectors, range, limit), read, of)? {
            Some(found) => self.with_local(found, limit, |paced| paced.label_names(selectors, range, limit)),
            None => self.paced(|paced| paced.label_names(selectors, range, limit)),
        }
    }

    /// See [`Paced::label_values`](crate::tsdb::Paced::label_values).
    ///
    /// # Errors
    /// Those of [`QueryRun::series`].
    pub(in crate::api::orgs) fn label_values(
        &mut self,
        name: &str,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        limit: usize,
    ) -> ApiResult<Listing<Arc<str>>> {
        let tenant = self.upstream.as_ref().and_then(|run| run.upstream.tenant());
        if tenant.is_some_and(|tenant| tenant.name() == name) {
            return match self.split() {
                Some(_) => self.paced(|paced| paced.label_values(name, selectors, range, limit)),
                None => Ok(Listing::default()),
            };
        }
        let read = |selectors| UpstreamRead::LabelValues { name: name.to_owned(), selectors, range, limit };
        let of = |labels: &Labels| labels.get(name).cloned().into_iter().collect();
        match self.upstream_texts((selectors, range, limit), read, of)? {
            Some(found) => {
                self.with_local(found, limit, |paced| paced.label_values(name, selectors, range, limit))
            }
            None => self.paced(|paced| paced.label_values(name, selectors, range, limit)),
        }
    }

    /// See [`Paced::label_summaries`](crate::tsdb::Paced::label_summaries).
    ///
    /// # Errors
    /// Those of [`QueryRun::series`].
    pub(in crate::api::orgs) fn label_summaries(
        &mut self,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        values_max: usize,
    ) -> ApiResult<Vec<LabelSummary>> {
        if self.upstream_for(range).is_none() {
            return self.paced(|paced| paced.label_summaries(selectors, range, values_max));
        }
        let found = self.series(selectors, range, usize::MAX)?;
        let mut all: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
        for label in found.items.iter().flat_map(Labels::owned).filter(|label| &*label.name != METRIC_NAME) {
            all.entry(label.name).or_default().insert(label.value);
        }
        let of = |(name, values): (Arc<str>, BTreeSet<Arc<str>>)| LabelSummary {
            name,
            count: values.len(),
            values: values.into_iter().take(values_max).collect(),
        };
        Ok(all.into_iter().map(of).collect())
    }

    /// See [`Paced::metadata`](crate::tsdb::Paced::metadata). The metadata of an upstream concerns
    /// all of its series, so that of metrics without a visible series is left out.
    ///
    /// # Errors
    /// Those of [`QueryRun::series`].
    pub(in crate::api::orgs) fn metadata(
        &mut self,
        metric: Option<&str>,
        limit: usize,
    ) -> ApiResult<Listing<Description>> {
        if self.upstream.is_none() {
            return self.paced(|paced| paced.metadata(metric, limit));
        }
        let names = self.label_values(METRIC_NAME, &[], TimeRange::ALL, usize::MAX)?.items;
        let Some(run) = &self.upstream else { return Err(other_answer()) };
        let answer = run.answer(UpstreamRead::Metadata { metric: metric.map(str::to_owned) })?;
        let AnswerData::Metadata(all) = &answer.data else { return Err(other_answer()) };
        let families: BTreeSet<&str> = names.iter().flat_map(|name| families_of(name)).collect();
        let is_metric = |name: &str| metric.is_none_or(|metric| metric == name);
        let visible = all.iter().filter(|one| is_metric(&one.name) && families.contains(&*one.name));
        let mut items: Vec<Description> = visible.take(limit.saturating_add(1)).cloned().collect();
        let truncated = items.len() > limit;
        items.truncate(limit);
        self.take_warnings(&answer);
        if self.split().is_some() {
            // Metadata that was stored here precedes that of the upstream.
            let local = self.paced(|paced| paced.metadata(metric, limit))?;
            items.retain(|one| !local.items.iter().any(|own| own.name == one.name));
            items.extend(local.items);
            items.sort_by(|a, b| a.name.cmp(&b.name));
            let truncated = truncated || local.truncated || items.len() > limit;
            items.truncate(limit);
            return Ok(Listing { items, truncated });
        }
        Ok(Listing { items, truncated })
    }

    /// See [`Paced::cardinality`](crate::tsdb::Paced::cardinality).
    ///
    /// # Errors
    /// 422 `upstream_unsupported` if the samples are on an upstream.
    pub(in crate::api::orgs) fn cardinality(&self, limit: usize) -> ApiResult<Cardinality> {
        self.require_local("the cardinality of all series")?;
        self.paced(|paced| paced.cardinality(limit))
    }

    /// See [`Paced::exemplars`](crate::tsdb::Paced::exemplars).
    ///
    /// # Errors
    /// Those of [`QueryRun::series`].
    pub(in crate::api::orgs) fn exemplars(
        &mut self,
        selectors: &[&[Matcher]],
        range: TimeRange,
        limit: usize,
    ) -> ApiResult<Listing<SeriesExemplars>> {
        let Some(run) = self.upstream_for(range) else {
            return self.paced(|paced| paced.exemplars(selectors, range, limit));
        };
        let own: Vec<Vec<Matcher>> = selectors.iter().map(|matchers| matchers.to_vec()).collect();
        let visible = self.visible(range);
        if own.is_empty() || visible.start > visible.end {
            return Ok(Listing::default());
        }
        let expr = self.forced(run)?.selectors(&own).join(" or ");
        let answer = run.answer(UpstreamRead::Exemplars { expr, range: visible })?;
        let AnswerData::Exemplars(found) = &answer.data else { return Err(other_answer()) };
        let mut found = found.clone();
        found.retain(|series| self.admits(&series.labels));
        if self.split().is_some() {
            let local = self.paced(|paced| paced.exemplars(selectors, range, limit))?;
            found = join_exemplars(found, local.items);
        }
        let (mut left, mut truncated, mut items) = (limit, false, Vec::new());
        for mut series in found {
            truncated |= series.exemplars.len() > left;
            series.exemplars.truncate(left);
            left -= series.exemplars.len();
            if !series.exemplars.is_empty() {
                items.push(series);
            }
        }
        self.take_warnings(&answer);
        Ok(Listing { items, truncated })
    }

    /// See [`Paced::metrics`](crate::tsdb::Paced::metrics). The series of an upstream are counted
    /// at the end of the range only, which is then their `last_seen`; that of a metric without a
    /// sample there is the start.
    ///
    /// # Errors
    /// Those of [`QueryRun::series`].
    pub(in crate::api::orgs) fn metrics(
        &mut self,
        filter: &MetricFilter<'_>,
        range: TimeRange,
        (limit, names_only): (usize, bool),
    ) -> ApiResult<Listing<Metric>> {
        let Some(now) = self.upstream_for(range).map(|run| run.now) else {
            return self.paced(|paced| paced.metrics(filter, range, limit));
        };
        let local = match self.split() {
            Some(_) => self.paced(|paced| paced.metrics(filter, range, limit))?.items,
            None => Vec::new(),
        };
        let start = filter.sealed_from.map_or(range.start, |from| range.start.max(from));
        let range = TimeRange::new(start, range.end);
        let all = self.label_values(METRIC_NAME, filter.selectors, range, usize::MAX)?.items;
        let is_listed = |name: &&Arc<str>| {
            name.starts_with(filter.prefix)
                && name.contains(filter.search)
                && filter.after.is_none_or(|after| &***name > after)
        };
        let mut names: Vec<Arc<str>> =
            all.iter().filter(is_listed).take(limit.saturating_add(1)).cloned().collect();
        let truncated = names.len() > limit;
        names.truncate(limit);
        let mut items: Vec<Metric> = names
            .iter()
            .map(|name| Metric {
                name: Arc::clone(name),
                kind: crate::model::MetricKind::Unknown,
                help: "".into(),
                unit: "".into(),
                series: 0,
                last_seen: self.visible(range).start.max(Timestamp::from_ms(0)),
            })
            .collect();
        if names_only || items.is_empty() {
            return Ok(Listing { items: with_local_metrics(items, local), truncated });
        }
        let described = self.metadata(None, usize::MAX)?.items;
        let described: BTreeMap<&str, &Description> = described.iter().map(|one| (&*one.name, one)).collect();
        let end = if range.end == Timestamp::MAX { now } else { range.end };
        let at = Steps::once(end);
        let counts = self.counts_by_name(filter.selectors, &names, at)?;
        for item in &mut items {
            if let Some(one) = families_of(&item.name).find_map(|family| described.get(family)) {
                (item.kind, item.help, item.unit) = (one.kind, Arc::clone(&one.help), Arc::clone(&one.unit));
            }
            // Counts are whole, and far below 2^53.
            #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "a count")]
            let count = counts.get(&item.name).map_or(0, |count| *count as u64);
            item.series = count;
            if count > 0 {
                item.last_seen = end;
            }
        }
        Ok(Listing { items: with_local_metrics(items, local), truncated })
    }

    /// Returns the number of series of each metric that has any at a time. If [`COUNT_READS_MAX`]
    /// reads cannot name all metrics, only the first ones are counted.
    fn counts_by_name(
        &mut self,
        selectors: &[Vec<Matcher>],
        names: &[Arc<str>],
        at: Steps,
    ) -> ApiResult<BTreeMap<Arc<str>, f64>> {
        let Some(run) = &self.upstream else { return Err(other_answer()) };
        let mut patterns: Vec<String> = Vec::new();
        for name in names.iter().map(|name| Pattern::escape(name)) {
            match patterns.last_mut().filter(|last| last.len() + name.len() < COUNTED_NAMES_BYTES) {
                Some(last) => last.extend(["|", &name]),
                None => patterns.push(name),
            }
        }
        let none = [Vec::new()];
        let selectors = if selectors.is_empty() { &none[..] } else { selectors };
        let mut own: Vec<Vec<Matcher>> = Vec::new();
        for pattern in patterns.iter().take(COUNT_READS_MAX / selectors.len()) {
            let named = Matcher::new(METRIC_NAME, MatchOp::Regex, pattern);
            let named = named.map_err(|error| self.error_or(unsupported(error.to_string())))?;
            own.extend(selectors.iter().map(|own| own.iter().cloned().chain([named.clone()]).collect()));
        }
        let mut values = BTreeMap::new();
        // Samples before the caller's first time do not count.
        let floor = self.access.scope.min_time.unwrap_or(Timestamp::MIN);
        let lookback_ms = at.start().ms_since(floor).min(self.options.promql.lookback_ms);
        if own.is_empty() || lookback_ms <= 0 {
            return Ok(values);
        }
        for text in self.forced(run)?.selectors(&own) {
            let (expr, lookback_ms) = (format!("count by (__name__) ({text})"), Some(lookback_ms));
            let answer = run.answer(UpstreamRead::Query { expr, steps: at, instant: true, lookback_ms })?;
            for one in self.vector_of(&answer)? {
                let name: Arc<str> = one.labels.metric_name().into();
                let value = values.entry(name).or_insert(one.value);
                *value = value.max(one.value);
            }
        }
        Ok(values)
    }
}

/// Replaces metrics of a server by local ones of the same name. The result has the greater number
/// of series and the later time of the two.
fn with_local_metrics(mut items: Vec<Metric>, local: Vec<Metric>) -> Vec<Metric> {
    for own in local {
        if let Some(item) = items.iter_mut().find(|item| item.name == own.name) {
            let (series, last_seen) = (item.series.max(own.series), item.last_seen.max(own.last_seen));
            *item = Metric { series, last_seen, ..own };
        }
    }
    items
}

/// Adds local exemplars to those of a server. Both are sorted by labels; equal exemplars occur
/// once.
fn join_exemplars(found: Vec<SeriesExemplars>, local: Vec<SeriesExemplars>) -> Vec<SeriesExemplars> {
    let mut all: BTreeMap<Labels, SeriesExemplars> =
        found.into_iter().map(|series| (series.labels.clone(), series)).collect();
    for series in local {
        match all.get_mut(&series.labels) {
            Some(known) => {
                known.exemplars.retain(|one| !series.exemplars.contains(one));
                known.exemplars.extend(series.exemplars);
                known.exemplars.sort_by_key(|one| one.at);
            }
            None => {
                all.insert(series.labels.clone(), series);
            }
        }
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests;
