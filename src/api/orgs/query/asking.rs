//! A question on its way through the query lane: one snapshot, one deadline, one flag that stops it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::response::Response;

use super::active::{Active, Entry, Listed};
use super::answer::{Answer as Body, Document};
use super::brief::{BODY_BYTES_MAX, Brief, CODED_BYTES_MAX, Here, Likeness};
use crate::api::callers::{Entered, Grant};
use crate::api::encoding::Coding;
use crate::api::error::data::bad_expression;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::{CancelOnDrop, Lane, Lanes};
use crate::api::params::Params;
use crate::api::prom_json;
use crate::clock::{Clock, Stopwatch};
use crate::model::{
    Access, Conductor, KeptPatterns, Labels, MatchOp, Matcher, MayCompile, OrgId, Pace, Steps, Stopped,
    TimeRange, Timestamp,
};
use crate::promql::explain::{self, Estimate, PlanNode};
use crate::promql::syntax::tree::Expr;
use crate::promql::syntax::{self, Caps, KeptExpressions};
use crate::promql::{
    self, Annotations, Answer, Budget, Lease, MemoryPool, Query, QueryError, RangeCache, Value,
};
use crate::tsdb::{Paced, Snapshot, Tsdb};

/// Selectors in one request; each is a scan.
const SELECTORS_MAX: usize = 32;

/// What the discover and query endpoints need, the Prometheus mount included.
#[derive(Clone, Debug)]
pub struct ReadDeps {
    /// The samples.
    pub tsdb: Arc<Tsdb>,
    /// Where questions run.
    pub lanes: Lanes,
    /// What time it is.
    pub clock: Clock,
    /// What questions may cost.
    pub options: Arc<ReadOptions>,
    /// Those under way.
    pub active: Arc<Active>,
    /// What they hold together.
    pub memory: Arc<MemoryPool>,
    /// Answers that may be used again.
    pub cache: Arc<RangeCache>,
    /// Regular expressions that may be used again.
    pub patterns: Arc<KeptPatterns>,
    /// Expressions that were parsed within the caps and may be asked again.
    pub expressions: Arc<KeptExpressions>,
    /// Which are answered where they arrive.
    pub brief: Arc<Brief>,
}

/// What one question may cost (API.md C5, E).
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Evaluation: lookback, samples (unless an organisation's settings say others), memory.
    pub promql: promql::Options,
    /// What an expression may be made of.
    pub caps: Caps,
    /// From the request's arrival to the end of the answer's writing; a `timeout` parameter may shorten it, an
    /// organisation's settings may say another.
    pub timeout: Duration,
    /// `end - start` on the specification's paths, milliseconds.
    pub range_ms_max: i64,
    /// Bytes of one answer.
    pub body_bytes_max: usize,
    /// Bytes of values that all questions hold together; half of them for one organisation.
    pub memory_bytes_max: u64,
    /// Bytes of answers that are kept to be used again; half of them for one organisation. Zero keeps none.
    pub cache_bytes_max: u64,
}

impl Default for ReadOptions {
    /// 30 seconds, a year, 256 MiB, a GiB: room for two of the largest questions of one organisation, and as much beside.
    /// 64 MiB of kept answers are four million points.
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

/// What a question sees and spends while it runs on the lane.
pub(in crate::api::orgs) struct Running {
    /// All that it can see.
    pub(in crate::api::orgs) snapshot: Snapshot,
    /// What its reader may ask.
    pub(in crate::api::orgs) grant: Grant,
    /// What may be asked.
    pub(in crate::api::orgs) options: Arc<ReadOptions>,
    /// Warnings so far.
    pub(in crate::api::orgs) warnings: Vec<String>,
    access: Access,
    watch: Watch,
    samples_max: u64,
    coding: Coding,
    lease: Arc<Lease>,
    cache: Arc<RangeCache>,
    patterns: Arc<KeptPatterns>,
    expressions: Arc<KeptExpressions>,
    lanes: Lanes,
    /// Its place among the questions under way, if it is one that takes long.
    listed: Option<Listed>,
    /// Whether its answer is too large to be made on the thread that a request arrives at.
    large: Cell<bool>,
}

/// When a question has to end.
#[derive(Clone)]
pub(in crate::api::orgs) struct Watch {
    since: Stopwatch,
    timeout: Duration,
    cancelled: Arc<AtomicBool>,
    /// Where it runs on the thread that it arrived at.
    here: Option<Here>,
}

impl Watch {
    /// Watches over work that may take `timeout`, and ends with the returned guard.
    pub(in crate::api::orgs) fn begin(timeout: Duration) -> (Watch, CancelOnDrop) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let guard = CancelOnDrop::new(Arc::clone(&cancelled));
        (Watch { since: Stopwatch::start(), timeout, cancelled, here: None }, guard)
    }

    /// Whether it has to end: its time is over, or it takes too long for where it is.
    fn is_late(&self) -> bool {
        self.since.elapsed() >= self.timeout || self.here.as_ref().is_some_and(Here::is_over)
    }

    /// Whether a piece of work may be done: nobody cancelled, the time is not over, and the piece is not too long for
    /// where it is.
    ///
    /// # Errors
    /// [`QueryError::Cancelled`] and [`QueryError::Timeout`].
    fn admit(&self, units: u64) -> Result<(), QueryError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(QueryError::Cancelled);
        }
        let here = self.here.as_ref().is_none_or(|here| here.admits(units));
        if !here || self.is_late() { Err(QueryError::Timeout) } else { Ok(()) }
    }
}

impl Conductor for Watch {
    fn admits(&self, units: u64) -> bool {
        self.admit(units).is_ok()
    }

    fn holds(&self, _: u64) -> bool {
        true
    }
}

/// Asks for the work and the memory of a listing, and remembers why it was refused.
struct Metering<'r> {
    running: &'r Running,
    refused: Cell<Option<QueryError>>,
}

impl Metering<'_> {
    fn note(&self, asked: Result<(), QueryError>) -> bool {
        asked.map_err(|refused| self.refused.set(Some(refused))).is_ok()
    }
}

impl Conductor for Metering<'_> {
    fn admits(&self, units: u64) -> bool {
        self.note(self.running.watch.admit(units))
    }

    fn holds(&self, bytes: u64) -> bool {
        self.note(self.running.hold(bytes))
    }
}

/// Somebody's question.
pub(in crate::api::orgs) struct Asking {
    entered: Entered,
    timeout: Option<Duration>,
    listed: Option<String>,
    likeness: Option<Likeness>,
}

impl From<Entered> for Asking {
    fn from(entered: Entered) -> Asking {
        Asking { entered, timeout: None, listed: None, likeness: None }
    }
}

impl Asking {
    /// To be answered within this time, where the organisation's own limit is not less.
    pub(in crate::api::orgs) fn within(self, timeout: Option<Duration>) -> Asking {
        Asking { timeout, ..self }
    }

    /// Listed as `text` among the questions under way.
    pub(in crate::api::orgs) fn listed(self, text: String) -> Asking {
        Asking { listed: Some(text), ..self }
    }

    /// One of a kind, about this time: where that is known to be brief, it may be answered where it arrived.
    pub(in crate::api::orgs) fn like(self, likeness: Likeness, range: TimeRange) -> Asking {
        Asking { likeness: Some(likeness.over(range)), ..self }
    }
}

impl ReadDeps {
    /// Runs `work` on the query lane and answers its JSON.
    pub(in crate::api::orgs) async fn answer(
        &self,
        asking: impl Into<Asking>,
        work: impl FnOnce(&mut Running) -> ApiResult<Vec<u8>> + Clone + Send + 'static,
    ) -> ApiResult<Response> {
        let body = self.ask(asking, move |running| Ok(Body::whole(work(running)?, running.coding)));
        Ok(body.await?.into_response())
    }

    /// As [`ReadDeps::answer`] for what may be larger than what is ever held.
    pub(in crate::api::orgs) async fn answer_large(
        &self,
        asking: impl Into<Asking>,
        work: impl FnOnce(&mut Running) -> ApiResult<Body> + Clone + Send + 'static,
    ) -> ApiResult<Response> {
        Ok(self.ask(asking, work).await?.into_response())
    }

    /// Runs `work` on the query lane, or here where its like is [`Brief`]. Dropping the future, as happens when the client
    /// hangs up, stops it.
    pub(in crate::api::orgs) async fn ask<T: Send + 'static>(
        &self,
        asking: impl Into<Asking>,
        work: impl FnOnce(&mut Running) -> ApiResult<T> + Clone + Send + 'static,
    ) -> ApiResult<T> {
        let asking = asking.into();
        let (org, alone, likeness) = (asking.entered.access.org, asking.entered.alone, asking.likeness);
        let cancelled = Arc::new(AtomicBool::new(false));
        let _guard = CancelOnDrop::new(Arc::clone(&cancelled));
        let begin = self.begin(asking, cancelled);
        let known = likeness.filter(|like| alone && self.brief.knows(org, *like));
        if let Some((likeness, place)) = known.and_then(|like| Some((like, self.lanes.place_here(org)?))) {
            let since = Stopwatch::start();
            let (again, mut running) = (work.clone(), begin(Some(Here::begin())));
            let done = place.run(|| running.go_on(work))?;
            if !running.watch.here.take().is_some_and(|here| here.overstayed()) {
                self.brief.took(org, likeness, since.elapsed());
                return done;
            }
            self.brief.took(org, likeness, Duration::MAX);
            return self.lanes.run(Lane::Query(org), move || running.go_on(again)).await?;
        }
        let brief = likeness.map(|likeness| (Arc::clone(&self.brief), likeness));
        let work = move || {
            let since = Stopwatch::start();
            let mut running = begin(None);
            let done = running.go_on(work);
            if let Some((brief, likeness)) = brief {
                let time = if running.large.get() { Duration::MAX } else { since.elapsed() };
                brief.took(org, likeness, time);
            }
            done
        };
        self.lanes.run(Lane::Query(org), work).await?
    }

    /// Takes it up; what it sees is what there is once it begins.
    fn begin(
        &self,
        asking: Asking,
        cancelled: Arc<AtomicBool>,
    ) -> impl FnOnce(Option<Here>) -> Running + Send + 'static {
        let Asking { entered, timeout, listed, .. } = asking;
        let Entered { access, grant, quota, asker, coding, .. } = entered;
        let (tsdb, options) = (Arc::clone(&self.tsdb), Arc::clone(&self.options));
        let longest = quota.timeout(options.timeout);
        let timeout = timeout.unwrap_or(longest).min(longest);
        let samples_max = quota.samples_max(options.promql.limits.samples_max);
        let since = Stopwatch::start();
        let listed = listed.map(|text| {
            let entry = Entry {
                asker,
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
        move |here| Running {
            snapshot: tsdb.snapshot(&access),
            grant,
            options,
            warnings: Vec::new(),
            access,
            watch: Watch { since, timeout, cancelled, here },
            samples_max,
            coding,
            lease,
            cache,
            patterns,
            expressions,
            lanes,
            listed,
            large: Cell::new(false),
        }
    }
}

/// What compiling a regular expression is taken for: too long a piece for the thread that a request arrives at.
const COMPILE_UNITS: u64 = 10_000_000;

/// How every good body begins.
const SUCCESS: &[u8] = br#"{"status":"success","#;

const SCOPED: &str = "this token sees a part of the series only; what is beyond it is left out";

/// Prometheus' words for an answer that `limit` cut off.
pub(in crate::api::orgs) const TRUNCATED: &str = "results truncated due to limit";

impl Running {
    /// Does what was asked for, be it for the second time.
    fn go_on<T>(&mut self, work: impl FnOnce(&mut Running) -> ApiResult<T>) -> ApiResult<T> {
        self.warnings.clear();
        if let Some(listed) = &self.listed {
            listed.entry.progress.begin();
        }
        if self.grant.embed && self.snapshot.is_scoped() {
            self.warn(SCOPED);
        }
        // It may have been ended while it waited.
        if self.watch.cancelled.load(Ordering::Relaxed) {
            return Err(QueryError::Cancelled.into());
        }
        let (patterns, org) = (Arc::clone(&self.patterns), self.access.org);
        let watch = self.watch.clone();
        // One that is not kept takes up to some tens of milliseconds.
        let may_compile: MayCompile = Rc::new(move || watch.admit(COMPILE_UNITS).is_ok());
        patterns.with_check(org, Some(may_compile), || work(self))
    }

    /// Runs a selection or a listing within the deadline, the memory and the place of this question.
    ///
    /// # Errors
    /// 503 `query_timeout` and `query_cancelled`, 422 and 503 where there is no memory.
    pub(in crate::api::orgs) fn paced<T>(
        &self,
        work: impl FnOnce(&Paced<'_>) -> Result<T, Stopped>,
    ) -> ApiResult<T> {
        self.pacing(|pace| work(&self.snapshot.paced(pace)))
    }

    /// As [`Running::paced`], for work of any kind.
    ///
    /// # Errors
    /// As [`Running::paced`].
    pub(in crate::api::orgs) fn pacing<T>(
        &self,
        work: impl FnOnce(&Pace<'_>) -> Result<T, Stopped>,
    ) -> ApiResult<T> {
        let metering = Metering { running: self, refused: Cell::new(None) };
        work(&Pace::of(&metering))
            .map_err(|Stopped| metering.refused.take().unwrap_or(QueryError::Cancelled).into())
    }

    /// Takes memory for a listing out of what all queries share: `bytes` in all.
    fn hold(&self, bytes: u64) -> Result<(), QueryError> {
        let allowed = self.options.promql.limits.memory_bytes_max;
        if bytes > allowed {
            return Err(QueryError::TooMuchMemory { needed: bytes, allowed });
        }
        Ok(self.lease.grow_to(bytes, &|| false)?)
    }

    /// The refusal of a text that could not be read, or of the reading itself where the question has to end.
    pub(in crate::api::orgs) fn refusal(&self, error: ApiError) -> ApiError {
        self.watch.admit(0).map_or_else(ApiError::from, |()| error)
    }

    /// Says something about an answer that is still an answer.
    pub(in crate::api::orgs) fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Since the request arrived.
    pub(in crate::api::orgs) fn elapsed_ms(&self) -> f64 {
        self.watch.since.elapsed_ms()
    }

    /// That series of this name may be asked for by name.
    ///
    /// # Errors
    /// 403 `metric_not_allowed` where an embed token does not name it.
    pub(in crate::api::orgs) fn admit_metric(&self, name: &str) -> ApiResult<()> {
        if self.access.scope.admits_name(name) {
            return Ok(());
        }
        Err(ApiError::new(Code::MetricNotAllowed, "this token does not grant this metric"))
    }

    /// Reads an expression that came in as text, within the caps and the token's list.
    ///
    /// # Errors
    /// 400 `bad_expr`, 403 `embed_restricted`.
    pub(in crate::api::orgs) fn expression(&self, parameter: &'static str, text: &str) -> ApiResult<Expr> {
        let caps = &self.options.caps;
        let parsed = self.expressions.parse(self.access.org, text);
        let expr = parsed.map_err(|error| self.refusal(bad_expression(parameter, &error)))?;
        if let Some(listed) = &self.listed {
            listed.entry.selectors.store(expr.selectors().len(), Ordering::Relaxed);
        }
        if self.grant.exprs.is_empty() {
            return Ok(expr);
        }
        let asked = expr.to_string();
        // A list holds what its author typed: it is compared as the grammar prints it. One that does not parse admits
        // nothing.
        let same = |listed: &String| {
            *listed == asked
                || syntax::parse(listed, caps).is_ok_and(|parsed| parsed.expr.to_string() == asked)
        };
        if self.grant.exprs.iter().all(|list| list.iter().any(same)) {
            return Ok(expr);
        }
        Err(ApiError::new(Code::EmbedRestricted, "this token does not grant this expression"))
    }

    /// As [`selectors`], within the caps.
    ///
    /// # Errors
    /// As [`selectors`].
    pub(in crate::api::orgs) fn selectors(
        &self,
        parameter: &'static str,
        texts: &[String],
    ) -> ApiResult<Vec<Vec<Matcher>>> {
        selectors((&self.expressions, self.access.org), texts, parameter, &self.options.caps)
            .map_err(|error| self.refusal(error))
    }

    /// That this reader may be told of the series behind an answer, not of the answer alone. Who is granted a sum by name
    /// is not granted what it is made of: which series, how many, their exemplars.
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

    /// Evaluates within the deadline, or takes what is kept of an earlier answer as far as it is still true.
    ///
    /// # Errors
    /// As [`promql::QueryError`] maps; 503 `query_timeout` also where the question waited too long for its turn.
    pub(in crate::api::orgs) fn evaluate(&self, query: &Query, how: How) -> ApiResult<Answer> {
        let options = self.evaluation(how.lookback_ms);
        admit_lookback(&self.grant, how.lookback_ms)?;
        admit_windows(&self.grant, query, &options)?;
        self.within(|budget| {
            if how.nocache {
                return promql::run(query, &self.snapshot, &options, budget);
            }
            self.cache.run(query, (&self.access, &self.snapshot), &options, budget)
        })
    }

    /// Evaluates, and tells what each part cost.
    ///
    /// # Errors
    /// As [`Running::evaluate`].
    pub(in crate::api::orgs) fn explain(&self, query: &Query) -> ApiResult<(Answer, PlanNode)> {
        self.admit_insight()?;
        let options = self.evaluation(None);
        admit_windows(&self.grant, query, &options)?;
        self.within(|budget| explain::explain(query, &self.snapshot, &options, budget))
    }

    /// Reckons what a question would cost.
    ///
    /// # Errors
    /// As [`Running::evaluate`].
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

    /// The answer's body: `write` appends the members after `"status":"success",`; warnings and infos follow. The
    /// specification's endpoints always show their warnings, Prometheus only where there are any.
    ///
    /// # Errors
    /// Those of `write`, and 422 where the body is too large.
    pub(in crate::api::orgs) fn body(
        &self,
        infos: &[String],
        style: Style,
        write: impl FnOnce(&mut Text<'_>) -> ApiResult<()>,
    ) -> ApiResult<Vec<u8>> {
        let mut text = Text { running: self, out: Vec::from(SUCCESS), check_at: 0 };
        write(&mut text)?;
        let mut out = text.out;
        self.remarks(infos, style, &mut out);
        if out.len() > self.options.body_bytes_max {
            return Err(prom_json::BodyTooLarge { bytes_max: self.options.body_bytes_max }.into());
        }
        self.settle(out.len())?;
        Ok(out)
    }

    /// Leaves the thread that the request arrived at where an answer of so many bytes is too long for it.
    fn settle(&self, bytes: usize) -> ApiResult<()> {
        let most = if self.coding == Coding::Identity { BODY_BYTES_MAX } else { CODED_BYTES_MAX };
        self.large.set(bytes > most);
        if bytes > most { self.leave() } else { Ok(()) }
    }

    /// Leaves the thread that the request arrived at, if it is there.
    ///
    /// # Errors
    /// 503, which nobody sees: the work is done again on the lane.
    fn leave(&self) -> ApiResult<()> {
        match &self.watch.here {
            Some(here) => {
                here.leave();
                Err(QueryError::Timeout.into())
            }
            None => Ok(()),
        }
    }

    /// The answer's body around a result: `write` appends the members after `data`.
    ///
    /// # Errors
    /// As [`Body::of`].
    pub(in crate::api::orgs) fn result(
        &self,
        value: Value,
        infos: &[String],
        style: Style,
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

    fn remarks(&self, infos: &[String], style: Style, out: &mut Vec<u8>) {
        if style == Style::Specified || !self.warnings.is_empty() {
            out.extend_from_slice(br#","warnings":"#);
            prom_json::texts(self.warnings.iter().map(String::as_str), out);
        }
        if !infos.is_empty() {
            out.extend_from_slice(br#","infos":"#);
            prom_json::texts(infos.iter().map(String::as_str), out);
        }
        out.push(b'}');
    }

    /// Takes the annotations' warnings in, and answers their infos; ten of each at most, as upstream.
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

/// The text of an answer while it is written.
pub(in crate::api::orgs) struct Text<'r> {
    running: &'r Running,
    out: Vec<u8>,
    /// Length at which the deadline, the memory and the limit of the answer are looked at next.
    check_at: usize,
}

impl Text<'_> {
    /// Bytes between two looks: some 50 microseconds of writing.
    const CHECK_BYTES: usize = 64 << 10;

    /// Appends bytes as they are.
    pub(in crate::api::orgs) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends what `write` does, which is at most some kilobytes.
    ///
    /// # Errors
    /// 503 where the question has to end, 422 where the answer is too large, either where there is no memory for it.
    pub(in crate::api::orgs) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> ApiResult<()> {
        write(&mut self.out);
        if self.out.len() < self.check_at {
            return Ok(());
        }
        let Running { watch, options, lease, .. } = self.running;
        if self.out.len() > options.body_bytes_max {
            return Err(prom_json::BodyTooLarge { bytes_max: options.body_bytes_max }.into());
        }
        if self.out.len() > BODY_BYTES_MAX {
            self.running.leave()?;
        }
        watch.admit(0)?;
        // The text may double its room once before the next look.
        let bytes = (self.out.capacity() as u64).saturating_mul(2);
        lease.grow_to(bytes, &|| false).map_err(QueryError::from)?;
        self.check_at = self.out.len() + Text::CHECK_BYTES;
        Ok(())
    }

    /// `[a,b]`, each written by `write`.
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

    /// `["a","b"]`.
    ///
    /// # Errors
    /// As [`Text::write`].
    pub(in crate::api::orgs) fn texts<'t>(
        &mut self,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> ApiResult<()> {
        self.array(texts, prom_json::text)
    }

    /// Label sets; of those that follow one another what they have in common is copied.
    ///
    /// # Errors
    /// As [`Text::write`].
    pub(in crate::api::orgs) fn label_sets(&mut self, sets: &[Labels]) -> ApiResult<()> {
        let mut before = prom_json::Before::default();
        self.array(sets, |labels, out| before.labels(labels, out))
    }
}

/// Series of a result; a scalar or a text is one.
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

/// What a request says of its evaluation.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::api::orgs) struct How {
    /// Another lookback than the server's.
    pub(in crate::api::orgs) lookback_ms: Option<i64>,
    /// Everything is computed anew, and nothing is kept.
    pub(in crate::api::orgs) nocache: bool,
}

/// Whose bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api::orgs) enum Style {
    /// The specification's endpoints (API.md C5).
    Specified,
    /// Prometheus' (API.md C6).
    Prometheus,
}

/// Takes `timeout`.
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

/// That an embed token admits every window of a question. From `start` to `end` is not all that it looks at: `x[30d]` at
/// one moment reads thirty days, and `x[1d:1s]` is a query of its own with a range and a step. (How old a sample may be,
/// `max_lookback_s`, is not looked for here: below PromQL no sample beyond it is ever read.)
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

/// That an embed token admits a lookback of the question's own: it is how much time a selector without brackets looks at.
fn admit_lookback(grant: &Grant, lookback_ms: Option<i64>) -> ApiResult<()> {
    match grant.max_range_ms.filter(|most| lookback_ms.is_some_and(|asked| asked > *most)) {
        Some(most) => {
            let detail = format!("this token grants lookbacks of {} s at most", most / 1_000);
            Err(ApiError::new(Code::EmbedRestricted, detail))
        }
        None => Ok(()),
    }
}

/// The range that a listing of samples' companions is asked for, within what an embed token grants: what is not said is
/// as much as it grants.
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

/// That an embed token admits this much time in these steps.
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

/// Reads selectors; together they may have as many regular expressions as one expression.
///
/// # Errors
/// 400 `bad_expr` and `invalid_parameter`.
pub(in crate::api::orgs) fn selectors(
    (kept, org): (&KeptExpressions, OrgId),
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
            kept.selector(org, text, patterns_left).map_err(|error| bad_expression(parameter, &error))?;
        patterns_left = patterns_left.saturating_sub(patterns(&matchers));
        all.push(matchers);
    }
    Ok(all)
}

/// How many of these tests are regular expressions that cost what regular expressions cost. As in an expression, an
/// alternation of literals is a set and does not count.
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
    use crate::api::lanes::{LanesOptions, PlaceHere};

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
            expressions: Arc::new(KeptExpressions::within(Caps::default())),
            brief: Arc::default(),
        }
    }

    fn entered() -> Entered {
        Entered {
            access: Access::whole(OrgId(1)),
            grant: Grant::default(),
            quota: Quota::default(),
            asker: "usr_a".into(),
            coding: Coding::Identity,
            alone: false,
        }
    }

    /// Far longer than anything here takes; a test that waits for it has failed.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_client_that_hangs_up_stops_its_question() {
        let deps = deps();
        let (started, has_started) = mpsc::channel();
        let (stopped, has_stopped) = mpsc::channel();
        let question = deps.ask(entered(), move |running| {
            let _ = started.send(());
            while !running.watch.cancelled.load(Ordering::Relaxed) && !running.watch.is_late() {
                std::thread::yield_now();
            }
            let _ = stopped.send(running.watch.is_late());
            Ok(())
        });
        tokio::select! {
            _ = question => panic!("nobody answered this"),
            () = async { while has_started.try_recv().is_err() { tokio::task::yield_now().await } } => {}
        }
        assert_eq!(has_stopped.recv_timeout(PATIENCE), Ok(false), "stopped by the flag, not by the deadline");
    }

    #[tokio::test]
    async fn a_question_is_late_after_its_own_timeout_but_never_has_more_than_the_servers() {
        let deps = ReadDeps {
            options: Arc::new(ReadOptions { timeout: Duration::ZERO, ..ReadOptions::default() }),
            ..deps()
        };
        let asking = Asking::from(entered()).within(Some(PATIENCE));
        let late = deps.ask(asking, |running| Ok(running.watch.is_late())).await;
        assert!(late.expect("it ran"));
    }

    /// A kind of question, about all times.
    fn up(deps: &ReadDeps) -> Likeness {
        let params = Params::of_query(Some("query=up")).expect("parameters");
        deps.brief.like(("query", ""), &params).over(TimeRange::ALL)
    }

    /// Where work runs, and how often it has run.
    async fn place_of(deps: &ReadDeps, alone: bool, is_brief: bool) -> (std::thread::ThreadId, usize) {
        let asking = Asking::from(Entered { alone, ..entered() }).like(up(deps), TimeRange::ALL);
        let runs = Arc::new(AtomicUsize::new(0));
        let done = deps.ask(asking, move |running| {
            running.warn("said once");
            let runs = runs.fetch_add(1, Ordering::Relaxed) + 1;
            while !is_brief && runs == 1 && running.watch.here.is_some() {
                if running.watch.is_late() {
                    return Err(QueryError::Timeout.into());
                }
            }
            assert_eq!(running.warnings, ["said once"]);
            Ok((std::thread::current().id(), runs))
        });
        done.await.expect("answered")
    }

    /// A place of the lane: a thread of it answers before it gives back its own.
    async fn place_here(deps: &ReadDeps) -> PlaceHere<'_> {
        let since = Stopwatch::start();
        loop {
            if let Some(place) = deps.lanes.place_here(OrgId(1)) {
                return place;
            }
            assert!(since.elapsed() < PATIENCE, "it is never free");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_is_known_to_be_brief_is_answered_where_it_arrives_while_nobody_else_asks() {
        let (deps, own) = (deps(), std::thread::current().id());
        let likeness = up(&deps);
        deps.brief.took(OrgId(2), likeness, Duration::ZERO);
        assert_ne!(place_of(&deps, true, true).await.0, own, "not known of this organisation");
        deps.brief.took(OrgId(1), likeness, Duration::ZERO);
        drop(place_here(&deps).await);
        assert_eq!(place_of(&deps, true, true).await, (own, 1));
        deps.brief.took(OrgId(1), likeness, Duration::ZERO);
        assert_ne!(place_of(&deps, false, true).await.0, own, "somebody else asks");
        deps.brief.took(OrgId(1), likeness, Duration::ZERO);
        let held = place_here(&deps).await;
        let waiting = place_of(&deps, true, true);
        tokio::select! {
            biased;
            _ = waiting => panic!("it has its share of the lane"),
            () = async { while deps.lanes.gauges()[1].2 == 0 { tokio::task::yield_now().await } } => drop(held),
        }
    }

    #[tokio::test]
    async fn what_takes_long_after_all_is_begun_anew_on_the_lane_and_is_brief_no_more() {
        let (deps, own) = (deps(), std::thread::current().id());
        let likeness = up(&deps);
        deps.brief.took(OrgId(1), likeness, Duration::ZERO);
        let (place, runs) = place_of(&deps, true, false).await;
        assert_ne!((place, runs), (own, 1));
        assert_eq!(runs, 2);
        assert!(!deps.brief.knows(OrgId(1), likeness));
    }

    #[test]
    fn ten_annotations_are_shown() {
        let texts: Vec<String> = (0..13).map(|n| n.to_string()).collect();
        let shown = at_most_ten(texts, "warning");
        assert_eq!((shown.len(), shown[10].as_str()), (11, "3 more warning annotations omitted"));
        assert_eq!(at_most_ten(vec!["a".into()], "info"), ["a"]);
    }

    #[test]
    fn sets_of_literals_are_no_patterns() {
        let of = |text: &str| patterns(&[Matcher::new("a", MatchOp::Regex, text).expect("valid")]);
        assert_eq!((of("api|web-1|a:b"), of("api.*"), of("(a|b)"), of("")), (0, 1, 1, 0));
        assert_eq!(patterns(&[Matcher::equal("a", ".*")]), 0);
    }
}
