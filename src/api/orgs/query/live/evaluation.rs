//! A query that is evaluated at one step after the other, once for all feeds that include it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Bytes;
use axum::http::StatusCode;
use tokio::sync::{OnceCell, Semaphore};

use super::single_step;
use super::text::UnkeptTexts;
use crate::api::callers::QueryAccess;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::Lanes;
use crate::api::orgs::query::body::EncodedLine;
use crate::api::orgs::query::deps::ReadDeps;
use crate::api::orgs::query::request::QueryRequest;
use crate::api::orgs::query::{PreparedQuery, QueryKind};
use crate::model::{OrgId, Timestamp};
use crate::promql::Lease;
use crate::sync::IgnorePoison as _;

/// The most results of one query that are kept: those of the steps that a stream catches up.
const RESULTS_MAX: usize = 64;
/// The most bytes of the results of one query that are kept; the newest is always kept.
const RESULTS_BYTES_MAX: usize = 1 << 20;
/// The most bytes of results and events that all live queries and streams of one organisation hold,
/// in addition to the newest of each query and feed, and to the buffers of connections.
const ORG_BYTES_MAX: usize = 64 << 20;

/// Everything that the result of a query depends on, except the time. Queries with equal keys have
/// the same results.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LiveKey {
    pub(super) org: OrgId,
    text: Arc<str>,
}

impl LiveKey {
    /// Returns the key of a query of a caller whose restrictions are `restrictions`.
    pub(super) fn of(org: OrgId, restrictions: &str, query: &PreparedQuery) -> LiveKey {
        let PreparedQuery { params, window, timeout, unused } = query;
        // An annotation states positions in the text, so equal texts are required.
        let expr = match &params.kind {
            QueryKind::Expression(text) => format!("{text:?}"),
            QueryKind::Structured(shape) => format!("{shape:?}"),
        };
        let (step_ms, limit, eval) = (window.steps.step_ms(), window.limit, params.eval);
        let hides = params.hides_expression;
        let text = format!("{step_ms} {limit} {timeout:?} {unused:?} {eval:?} {hides} {restrictions} {expr}");
        LiveKey { org, text: text.into() }
    }

    /// Returns the key of a set of queries with their ids.
    pub(super) fn of_set<'k>(
        org: OrgId,
        members: impl Iterator<Item = (Option<&'k str>, &'k LiveKey)>,
    ) -> LiveKey {
        let parts: Vec<(Option<&str>, &str)> = members.map(|(id, key)| (id, &*key.text)).collect();
        LiveKey { org, text: format!("{parts:?}").into() }
    }

    /// Returns a text that callers of equal restrictions have in common. Their queries with equal
    /// parameters have equal results. Queries of two keys are not shared: each key is charged its
    /// own evaluations, and a key without evaluation time does not end queries of other keys.
    pub(super) fn restrictions(access: &QueryAccess) -> String {
        let charged = access.charged_key();
        format!("{charged:?} {} {}", access.grant.key(), access.access.scope.series_key())
    }
}

/// The state that the live queries of one organisation share.
#[derive(Debug)]
pub(super) struct LiveOrg {
    /// A permit for each evaluation, so that live queries never fill the query lane.
    permits: Semaphore,
    /// The bytes of all kept results and events.
    kept_bytes: AtomicUsize,
    /// The texts that are released first if there are too many bytes.
    pub(super) unkept: UnkeptTexts,
    /// The threads that compress texts.
    pub(super) lanes: Lanes,
}

impl LiveOrg {
    pub(super) fn new(lanes: &Lanes) -> LiveOrg {
        let permits = Semaphore::new(lanes.query_share().max(1));
        let unkept = UnkeptTexts::default();
        LiveOrg { permits, kept_bytes: AtomicUsize::new(0), unkept, lanes: lanes.clone() }
    }

    /// Returns whether the results and events have more bytes than the organisation may hold.
    pub(super) fn has_too_many_bytes(&self) -> bool {
        self.kept_bytes.load(Ordering::Relaxed) > ORG_BYTES_MAX
    }

    /// Releases the oldest texts that no feed keeps while there are too many bytes.
    pub(super) fn release_texts(&self) {
        self.unkept.release_while(|| self.has_too_many_bytes());
    }
}

/// Bytes that count among those of the organisation until they are dropped.
#[derive(Debug)]
pub(super) struct KeptBytes {
    org: Arc<LiveOrg>,
    bytes: usize,
}

impl KeptBytes {
    pub(super) fn new(org: &Arc<LiveOrg>) -> KeptBytes {
        KeptBytes { org: Arc::clone(org), bytes: 0 }
    }

    /// Returns whether bytes count.
    pub(super) fn is_set(&self) -> bool {
        self.bytes > 0
    }

    /// Sets the number of bytes.
    pub(super) fn set(&mut self, bytes: usize) {
        self.org.kept_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.org.kept_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        self.org.kept_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A query with the caller that it is evaluated for.
#[derive(Clone)]
pub(super) struct StepQuery {
    deps: ReadDeps,
    access: QueryAccess,
    query: PreparedQuery,
}

/// The points of one step, or the reason why there are none.
#[derive(Clone, Debug)]
pub(super) struct StepResult(pub(super) ApiResult<Points>);

/// The points of one step.
#[derive(Clone, Debug)]
pub(super) struct Points {
    /// The JSON object of the points without its opening brace.
    pub(super) members: Bytes,
    /// The memory of the text.
    _lease: Option<Arc<Lease>>,
}

impl StepResult {
    fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |points| points.members.len())
    }

    /// Returns whether every later step has the same error: the query itself is refused.
    pub(super) fn is_final(&self) -> bool {
        let status = self.0.as_ref().err().map(|error| error.code().status());
        matches!(status, Some(StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN))
    }
}

impl StepQuery {
    pub(super) fn new(deps: ReadDeps, access: QueryAccess, query: PreparedQuery) -> StepQuery {
        StepQuery { deps, access, query }
    }

    /// Evaluates the query at one step, on the query lane.
    ///
    /// # Errors
    /// Those of `query/range`, and 422 `query_too_expensive` for a result of more than 1 MiB.
    async fn evaluate(&self, at: Timestamp) -> ApiResult<Points> {
        let StepQuery { deps, access, query } = self;
        let (mut access, mut query) = (access.clone(), query.clone());
        query.window.steps = single_step(at, query.window.steps.step_ms())?;
        // The look-back of a token is a time before now, which moves on.
        access.access.scope.min_time = access.grant.min_time(deps.clock.now());
        let request = QueryRequest::from(access).within(query.timeout).listed(query.listed());
        let line = deps.run(request, move |run| {
            let evaluated = query.evaluate(run)?;
            run.encode_line(evaluated.envelope)
        });
        match line.await? {
            EncodedLine::Whole(line, lease) => {
                let mut members = Vec::with_capacity(line.len() + 32);
                members.extend_from_slice(b"\"time\":");
                crate::api::prom_json::time(at, &mut members);
                members.push(b',');
                members.extend_from_slice(line.trim_ascii_end());
                Ok(Points { members: members.into(), _lease: lease })
            }
            EncodedLine::Large(..) => {
                let detail = "the result of one step has more than 1 MiB; lower limit or aggregate";
                Err(ApiError::new(Code::QueryTooExpensive, detail))
            }
        }
    }
}

/// A query whose steps are evaluated once for all feeds and streams.
pub(super) struct LiveQuery {
    query: StepQuery,
    org: Arc<LiveOrg>,
    /// Counts evaluations, for `/metrics`.
    evaluated: Arc<AtomicU64>,
    results: Mutex<Results>,
}

/// The results of the newest steps.
struct Results {
    cells: BTreeMap<Timestamp, Arc<OnceCell<StepResult>>>,
    kept: KeptBytes,
}

impl Results {
    /// Removes the oldest results beyond the limits. The newest one stays.
    fn trim(&mut self) {
        loop {
            let of = |cell: &Arc<OnceCell<StepResult>>| cell.get().map_or(0, StepResult::bytes);
            let bytes = self.cells.values().map(of).sum();
            self.kept.set(bytes);
            let own = bytes > RESULTS_BYTES_MAX || self.cells.len() > RESULTS_MAX;
            let exceeded = own || self.kept.org.has_too_many_bytes();
            if !exceeded || self.cells.len() <= 1 {
                return;
            }
            self.cells.pop_first();
        }
    }
}

impl LiveQuery {
    pub(super) fn new(query: StepQuery, org: Arc<LiveOrg>, evaluated: Arc<AtomicU64>) -> LiveQuery {
        let results = Results { cells: BTreeMap::new(), kept: KeptBytes::new(&org) };
        LiveQuery { query, org, evaluated, results: Mutex::new(results) }
    }

    fn results(&self) -> MutexGuard<'_, Results> {
        // A result that was not trimmed is trimmed with the next one.
        self.results.lock().ignore_poison()
    }

    /// Returns the result of a step if it is kept.
    pub(super) fn known(&self, at: Timestamp) -> Option<StepResult> {
        self.results().cells.get(&at)?.get().cloned()
    }

    /// Returns the result of a step. Evaluates the step unless its result is kept or another caller
    /// is evaluating it.
    pub(super) async fn at(&self, at: Timestamp) -> StepResult {
        let cell = Arc::clone(self.results().cells.entry(at).or_default());
        if let Some(known) = cell.get() {
            return known.clone();
        }
        let evaluate = async || {
            // The semaphore is never closed.
            let _permit = self.org.permits.acquire().await;
            self.evaluated.fetch_add(1, Ordering::Relaxed);
            StepResult(self.query.evaluate(at).await)
        };
        let result = cell.get_or_init(evaluate).await.clone();
        self.results().trim();
        result
    }
}
