//! What a run reads: its snapshot, or the answers of another server.
//!
//! A run does no I/O. If it needs an answer that it does not have, it records the read and ends;
//! [`ReadDeps::run`] then fetches the answer, and runs the same work again with it. The reads of a
//! run depend only on its request and on earlier answers, so the work takes the same way again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::deps::ReadDeps;
use super::request::QueryRequest;
use super::run::{EvalOptions, QueryRun};
use super::split::{SplitRun, union};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::CancelOnDrop;
use crate::model::{
    Labels, METRIC_NAME, MatchOp, Matcher, Steps, Stopped, TimeRange, Timestamp, format_duration,
};
use crate::promql::syntax::tree::QueryTimes;
use crate::promql::{self, Annotations, Query, QueryError, QueryResult, QueryStats, Value};
use crate::tsdb::{
    Cardinality, Description, LabelSummary, Listing, Metric, MetricFilter, Paced, SeriesExemplars,
};
use crate::upstream::{
    AnswerData, FetchLimits, ForcedMatchers, Upstream, UpstreamAnswer, UpstreamError, UpstreamRead,
};

/// The most reads of one run, inclusive.
const READS_MAX: usize = 64;
/// How often a fetch looks whether its query was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(50);
/// Suffixes of the names of a metric's series.
const SUFFIXES: [&str; 6] = ["_bucket", "_count", "_sum", "_total", "_created", "_info"];

/// A run that another server answers.
pub(super) struct UpstreamRun {
    upstream: Arc<Upstream>,
    now: Timestamp,
    /// The answers to the first reads, in order.
    answers: Vec<Arc<UpstreamAnswer>>,
    /// The number of answers that this execution has used.
    used: Cell<usize>,
    /// The read that ended this execution.
    wanted: RefCell<Option<UpstreamRead>>,
    /// Set if only older samples are on the server.
    pub(super) split: Option<SplitRun>,
}

impl UpstreamRun {
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
        if let Some(answer) = self.answers.get(place) {
            return match &answer.data {
                AnswerData::Unsupported(why) => Err(unsupported(why)),
                _ => Ok(Arc::clone(answer)),
            };
        }
        if place >= READS_MAX {
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
    pub(super) async fn run_upstream<T: Send + 'static>(
        &self,
        request: QueryRequest,
        upstream: Arc<Upstream>,
        split_after_ms: Option<i64>,
        work: impl FnOnce(&mut QueryRun) -> ApiResult<T> + Clone + Send + 'static,
    ) -> ApiResult<T> {
        let lane = request.caller.lane();
        let cancelled = Arc::default();
        let _guard = CancelOnDrop::new(Arc::clone(&cancelled));
        let now = self.clock.now();
        let (memory, org) = (Arc::clone(&self.memory), request.caller.access.org);
        let split = split_after_ms.map(|after_ms| SplitRun::new(now, after_ms, Arc::new(memory.lease(org))));
        let start = self.start(request, Arc::clone(&cancelled));
        let first = work.clone();
        let begin = move || {
            let mut run = start(None);
            let (answers, used, wanted) = (Vec::new(), Cell::new(0), RefCell::new(None));
            run.upstream = Some(UpstreamRun { upstream, now, answers, used, wanted, split });
            let done = run.execute(first);
            (run, done)
        };
        let (mut run, mut done) = self.lanes.run(lane, begin).await?;
        loop {
            let Some((read, upstream)) =
                run.upstream.as_mut().and_then(|run| Some((run.wanted.take()?, Arc::clone(&run.upstream))))
            else {
                return done;
            };
            let mut limits = run.fetch_limits();
            if let Some(split) = run.upstream.as_mut().and_then(|run| run.split.as_mut()) {
                // The lease of the run is that of its evaluation, beside which answers are held.
                let lease = Arc::new(memory.lease(org));
                limits.lease = Some(Arc::clone(&lease));
                split.hold_answer(lease);
            }
            let (is_token, is_split) = (run.grant.is_token(), run.split().is_some());
            let answer = tokio::select! {
                biased;
                answer = upstream.fetch(&read, &limits) => match answer {
                    Err(UpstreamError::Unsupported(why)) if is_split => {
                        let why = if is_token { "the upstream cannot answer this".to_owned() } else { why };
                        UpstreamAnswer::of(AnswerData::Unsupported(why))
                    }
                    answer => answer.map_err(|error| refused(error, is_token))?,
                },
                () = until_cancelled(&cancelled) => return Err(QueryError::Cancelled.into()),
            };
            if let Some(run) = &mut run.upstream {
                run.answers.push(Arc::new(answer));
            }
            let again = work.clone();
            let execute = move || {
                let done = run.execute(again);
                (run, done)
            };
            (run, done) = self.lanes.run(lane, execute).await?;
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
    /// Returns the limits of the next fetch.
    fn fetch_limits(&self) -> FetchLimits {
        FetchLimits {
            timeout: self.deadline.timeout.saturating_sub(self.deadline.since.elapsed()),
            body_bytes_max: self.options.body_bytes_max as u64,
            samples_max: self.samples_max,
            memory_bytes_max: self.options.promql.limits.memory_bytes_max,
            lease: Some(Arc::clone(&self.lease)),
        }
    }

    /// Returns the matchers that the caller cannot remove.
    pub(super) fn forced(&self, run: &UpstreamRun) -> ApiResult<ForcedMatchers> {
        let forced = ForcedMatchers::of(&self.access.scope, run.upstream.tenant());
        forced.map_err(|error| self.error_or(unsupported(error.to_string())))
    }

    /// Evaluates a query on the upstream.
    pub(super) fn evaluate_upstream(
        &self,
        run: &UpstreamRun,
        query: &Query,
        options: &promql::Options,
        eval: EvalOptions,
    ) -> ApiResult<QueryResult> {
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
        let (steps, instant, lookback_ms) = (query.steps, query.instant, eval.lookback_ms);
        let answer = run.answer(UpstreamRead::Query { expr, steps, instant, lookback_ms })?;
        let AnswerData::Query(found) = &answer.data else { return Err(other_answer()) };
        let (warnings, infos) = (answer.warnings.clone(), answer.infos.clone());
        Ok(QueryResult {
            value: found.value.clone(),
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

    /// Returns a range without what the caller may not see.
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

    /// Returns the label sets of series that pass any of the selectors, sorted. Without selectors,
    /// all series pass. If the caller may not see old samples, the series are those with a sample
    /// in the range, because listings of servers are coarse in time.
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
            let found = found.clone();
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
            match &answer.data {
                AnswerData::Query(answer) => match &answer.value {
                    Value::Vector(series) => found.extend(series.iter().map(|one| one.labels.clone())),
                    _ => return Err(other_answer()),
                },
                _ => return Err(other_answer()),
            }
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

    /// Returns texts of labels, which `of` takes from a label set.
    fn upstream_texts(
        &mut self,
        (selectors, range, limit): (&[Vec<Matcher>], TimeRange, usize),
        read: impl FnOnce(Vec<String>) -> UpstreamRead,
        of: impl Fn(&Labels) -> Vec<Arc<str>>,
    ) -> ApiResult<Option<Listing<Arc<str>>>> {
        let Some(run) = self.upstream_for(range) else { return Ok(None) };
        if self.access.scope.min_time.is_some() {
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
        if tenant.is_some_and(|tenant| tenant.name() == name) && self.split().is_none() {
            return Ok(Listing::default());
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
        let is_metric = |name: &str| metric.is_none_or(|metric| metric == name);
        let visible = all.iter().filter(|one| is_metric(&one.name) && describes_any(&one.name, &names));
        let mut items: Vec<Description> = visible.take(limit.saturating_add(1)).cloned().collect();
        let truncated = items.len() > limit;
        items.truncate(limit);
        self.take_warnings(&answer);
        if self.split().is_some() {
            // What senders described here counts more than what the server knows.
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
        if own.is_empty() {
            return Ok(Listing::default());
        }
        let expr = self.forced(run)?.selectors(&own).join(" or ");
        let answer = run.answer(UpstreamRead::Exemplars { expr, range: self.visible(range) })?;
        let AnswerData::Exemplars(found) = &answer.data else { return Err(other_answer()) };
        let mut found = found.clone();
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
            if let Some(one) = description_of(&item.name, &described) {
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

    /// Returns the number of series of each metric.
    fn counts_by_name(
        &mut self,
        selectors: &[Vec<Matcher>],
        names: &[Arc<str>],
        at: Steps,
    ) -> ApiResult<BTreeMap<Arc<str>, f64>> {
        let Some(run) = &self.upstream else { return Err(other_answer()) };
        let quoted = names.iter().map(|name| regex_of(name)).collect::<Vec<_>>().join("|");
        let named = Matcher::new(METRIC_NAME, MatchOp::Regex, &quoted);
        let named = named.map_err(|error| self.error_or(unsupported(error.to_string())))?;
        let none = [Vec::new()];
        let selectors = if selectors.is_empty() { &none[..] } else { selectors };
        let own: Vec<Vec<Matcher>> =
            selectors.iter().map(|own| own.iter().cloned().chain([named.clone()]).collect()).collect();
        let mut values = BTreeMap::new();
        for text in self.forced(run)?.selectors(&own) {
            let expr = format!("count by (__name__) ({text})");
            let answer =
                run.answer(UpstreamRead::Query { expr, steps: at, instant: true, lookback_ms: None })?;
            let AnswerData::Query(found) = &answer.data else { return Err(other_answer()) };
            let Value::Vector(series) = &found.value else { return Err(other_answer()) };
            for one in series {
                let name: Arc<str> = one.labels.metric_name().into();
                let value = values.entry(name).or_insert(one.value);
                *value = value.max(one.value);
            }
        }
        Ok(values)
    }
}

/// Replaces metrics of a server by local ones of the same name. Of both, the greater number of
/// series and the later time count.
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

/// Returns a regular expression that matches exactly `text`.
fn regex_of(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

/// Returns whether metadata under `family` describes a metric among the sorted `names`.
fn describes_any(family: &str, names: &[Arc<str>]) -> bool {
    let has = |name: &str| names.binary_search_by(|known| (**known).cmp(name)).is_ok();
    has(family) || SUFFIXES.iter().any(|suffix| has(&format!("{family}{suffix}")))
}

/// Returns the metadata of a metric.
fn description_of<'d>(name: &str, described: &BTreeMap<&str, &'d Description>) -> Option<&'d Description> {
    let of_family = || SUFFIXES.iter().find_map(|suffix| described.get(name.strip_suffix(suffix)?)).copied();
    described.get(name).copied().or_else(of_family)
}
