//! Cached results of range queries and of subqueries, reused whole, in part, or with newer steps
//! computed and appended.
//!
//! **Exact.** A cached result equals, to the bit, an evaluation at the same moment. Each entry
//! carries the version of the store from which it was computed ([`Snapshot::version`]). A later
//! request reuses the steps that read no sample that was added or removed since
//! ([`Snapshot::unchanged_before`]) or hidden by another floor ([`Snapshot::floor`]). The plan
//! says how far each step looks ([`reach`]). Later steps are computed and appended if the plan can
//! be computed in parts; otherwise the result is reused as a whole or not at all. No clock is read:
//! a step after all samples stays valid until a sample arrives.
//!
//! **Subqueries.** The evaluated steps of subqueries are cached by the same rules
//! ([`CallerSubqueries`]). So an instant query, whose own result is never cached, computes only the
//! new steps of its subqueries.
//!
//! Not cached are results with annotations (they may concern the whole range, and they name a
//! position in the text), results of expressions that read their own range, of series that carry
//! their type as a label, and results over the size limit of one entry. A result that is joined
//! from parts may succeed where a full evaluation would exceed a limit of cost. A cached result
//! does not report damage that was found in a file since.
//!
//! **Bounded.** The cache has a limit in bytes, half of which one organisation may use. The least
//! recently used entries are evicted first.

mod reach;
mod subqueries;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::model::{Access, MatchOp, Matcher, OrgId, Steps, TimeRange, Timestamp, check_available};
use crate::sync::IgnorePoison as _;
use crate::tsdb::Snapshot;

use super::annotations::Annotations;
use super::budget::{Budget, QueryStats};
use super::error::QueryError;
use super::eval::{self, CacheLookup, Hooks};
use super::plan;
use super::query::{Options, Query, QueryResult};
use super::value::{MatrixSeries, Value, cut_series, join_series};

use reach::{Reach, has_parts};
use subqueries::CallerSubqueries;

/// Returns the time of the oldest sample that a plan may read, if it reads any.
pub(super) fn oldest_sample(plan: &plan::Plan, query: &Query, options: &Options) -> Option<Timestamp> {
    Reach::of(plan, options).oldest(query.steps.start().as_ms()).map(Timestamp::from_ms)
}

/// The divisor that gives the largest entry, as a share of one organisation's bytes.
const ENTRY_DIVISOR: u64 = 4;
/// The maximal number of entries. Eviction scans all of them for the least recently used.
const ENTRIES_MAX: usize = 2_048;

/// The cached results of all organisations.
#[derive(Debug)]
pub struct RangeCache {
    bytes_max: u64,
    state: Mutex<CacheState>,
    range_outcomes: OutcomeCounters,
    subquery_outcomes: OutcomeCounters,
}

#[derive(Debug, Default)]
struct CacheState {
    entries: HashMap<RangeKey, CachedRange>,
    bytes: u64,
    bytes_by_org: HashMap<OrgId, u64>,
    /// The number of uses so far; an entry stores it as the time of its last use.
    uses: u64,
    /// The number of evicted entries.
    evicted: u64,
}

#[derive(Debug, Default)]
struct OutcomeCounters {
    hits: AtomicU64,
    extended: AtomicU64,
    misses: AtomicU64,
}

/// The number of requests by cache outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheOutcomes {
    /// The whole result was cached.
    pub hits: u64,
    /// A part of the result was cached.
    pub extended: u64,
    /// No usable entry was cached, and the whole result was computed.
    pub misses: u64,
}

impl OutcomeCounters {
    fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    fn extended(&self) {
        self.extended.fetch_add(1, Ordering::Relaxed);
    }

    fn miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    fn outcomes(&self) -> CacheOutcomes {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheOutcomes { hits: load(&self.hits), extended: load(&self.extended), misses: load(&self.misses) }
    }
}

/// The counters and the current size of the cache, for `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUsage {
    /// The outcomes for results of range queries.
    pub ranges: CacheOutcomes,
    /// The outcomes for evaluations of subqueries.
    pub subqueries: CacheOutcomes,
    /// The number of evicted entries.
    pub evicted: u64,
    /// The size of all entries in bytes.
    pub bytes: u64,
    /// The number of entries.
    pub entries: usize,
}

/// Everything that determines a result, except its range and the samples.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RangeKey {
    org: OrgId,
    /// The expression in its printed form.
    text: String,
    /// The scope that selects the visible series.
    scope: String,
    /// The evaluation options in their debug form.
    options: String,
    step_ms: i64,
    /// The remainder of the step times modulo the step.
    phase_ms: i64,
    /// The range of a subquery in milliseconds, so that subqueries of different ranges have their
    /// own entries.
    subquery_range_ms: Option<i64>,
}

#[derive(Clone, Debug)]
struct CachedRange {
    first_ms: i64,
    last_ms: i64,
    /// The version of the store before the evaluation.
    version: u64,
    /// The time below which samples were hidden during the evaluation.
    floor_ms: i64,
    series: Arc<[MatrixSeries]>,
    bytes: u64,
    used: u64,
}

impl RangeCache {
    /// A cache of at most `bytes_max` bytes; 0 turns it off.
    pub fn new(bytes_max: u64) -> RangeCache {
        RangeCache {
            bytes_max,
            state: Mutex::default(),
            range_outcomes: OutcomeCounters::default(),
            subquery_outcomes: OutcomeCounters::default(),
        }
    }

    /// Evaluates a query like [`run`](super::run) and reuses cached steps that are still valid.
    /// `access` must be the one for which `snapshot` was taken.
    ///
    /// # Errors
    /// The same as those of [`run`](super::run).
    pub fn run(
        &self,
        query: &Query,
        access: &Access,
        snapshot: &Snapshot,
        options: &Options,
        budget: &Budget<'_>,
    ) -> Result<QueryResult, QueryError> {
        let plan = plan::build(query, options, budget)?;
        let subqueries = CallerSubqueries::of(self, access);
        let hooks = match self.bytes_max {
            0 => Hooks::default(),
            _ => Hooks { observer: None, subqueries: Some(&subqueries) },
        };
        let compute = || eval::run(&plan, query, snapshot, options, budget, hooks);
        let text = query.expr.to_string();
        // The version is read before any sample: samples that arrive meanwhile count as new.
        let version = snapshot.version().filter(|_| !query.instant && self.bytes_max > 0);
        let Some(version) = version.filter(|_| !reads_own_range(&text)) else { return compute() };
        let key = RangeKey::of(query, text, access, options);
        let request = RangeRequest {
            first_ms: query.steps.start().as_ms(),
            last_ms: last_step(&query.steps),
            step_ms: query.steps.step_ms(),
            version,
            floor_ms: snapshot.floor().as_ms(),
            reach: Reach::of(&plan, options),
            has_parts: has_parts(&plan, options),
        };
        match self.look_up(&key, &request, snapshot) {
            CacheLookup::Hit(series) => {
                self.range_outcomes.hit();
                budget.check()?;
                check_available(bytes_of(&key, &series))?;
                return Ok(answer(
                    cut_series(&series, request.first_ms, request.last_ms),
                    QueryStats::default(),
                ));
            }
            CacheLookup::Prefix(series, until_ms) if !carries_types(snapshot, budget) => {
                let tail = query_after(query, until_ms)
                    .and_then(|query| evaluate_tail(&query, snapshot, options, budget, hooks).transpose());
                // An error or an annotation may concern the whole range, so the whole range is
                // evaluated.
                if let Some(Ok(tail)) = tail {
                    self.range_outcomes.extended();
                    let Value::Matrix(newer) = tail.value else { return compute() };
                    check_available(bytes_of(&key, &series))?;
                    let joined = join_series(cut_series(&series, request.first_ms, until_ms), newer);
                    self.store(key, &request, snapshot, &joined);
                    return Ok(answer(joined, tail.stats));
                }
            }
            CacheLookup::Prefix(..) | CacheLookup::Miss => {}
        }
        let answer = compute()?;
        // A miss is counted only here, because an inline evaluation that runs out of time is
        // repeated on the query lane.
        self.range_outcomes.miss();
        let silent = answer.annotations == Annotations::default();
        if let Value::Matrix(series) = &answer.value
            && silent
            && !carries_types(snapshot, budget)
        {
            self.store(key, &request, snapshot, series);
        }
        Ok(answer)
    }

    /// Returns the counters and the current size.
    pub fn usage(&self) -> CacheUsage {
        let state = self.lock();
        CacheUsage {
            ranges: self.range_outcomes.outcomes(),
            subqueries: self.subquery_outcomes.outcomes(),
            evicted: state.evicted,
            bytes: state.bytes,
            entries: state.entries.len(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        // Every change under the lock leaves valid entries, so a panic elsewhere does no harm.
        self.state.lock().ignore_poison()
    }

    fn look_up(&self, key: &RangeKey, request: &RangeRequest, snapshot: &Snapshot) -> CacheLookup {
        let mut state = self.lock();
        state.uses += 1;
        let uses = state.uses;
        let Some(entry) = state.entries.get_mut(key) else { return CacheLookup::Miss };
        entry.used = uses;
        let Some(until_ms) = request.valid_until(entry, snapshot) else { return CacheLookup::Miss };
        let series = Arc::clone(&entry.series);
        if until_ms >= request.last_ms {
            if (request.first_ms, request.last_ms) == (entry.first_ms, entry.last_ms) {
                // The entry is still valid; the newer version gives later comparisons a finer mark.
                (entry.version, entry.floor_ms) = (request.version, request.floor_ms);
            }
            return CacheLookup::Hit(series);
        }
        if request.has_parts { CacheLookup::Prefix(series, until_ms) } else { CacheLookup::Miss }
    }

    fn store(&self, key: RangeKey, request: &RangeRequest, snapshot: &Snapshot, series: &[MatrixSeries]) {
        if snapshot.is_given_up() {
            // Some blocks were not read, so the result is incomplete.
            return;
        }
        let bytes = bytes_of(&key, series);
        let org_max = self.bytes_max / 2;
        // The floor must not have moved during the evaluation.
        if bytes > org_max / ENTRY_DIVISOR || snapshot.floor().as_ms() != request.floor_ms {
            return;
        }
        if check_available(bytes).is_err() {
            return;
        }
        let org = key.org;
        let series: Arc<[MatrixSeries]> = series.into();
        let mut state = self.lock();
        state.uses += 1;
        let (used, version) = (state.uses, request.version);
        let (first_ms, last_ms, floor_ms) = (request.first_ms, request.last_ms, request.floor_ms);
        state.remove(&key);
        state.insert(key, CachedRange { first_ms, last_ms, version, floor_ms, series, bytes, used });
        let mut evicted = 0;
        while state.bytes_by_org.get(&org).is_some_and(|bytes| *bytes > org_max) {
            evicted += state.evict(|key| key.org == org);
        }
        while state.bytes > self.bytes_max || state.entries.len() > ENTRIES_MAX {
            evicted += state.evict(|_| true);
        }
        state.evicted += evicted;
    }
}

/// A requested range of steps and the facts that decide how much of an entry is valid.
struct RangeRequest {
    first_ms: i64,
    last_ms: i64,
    step_ms: i64,
    version: u64,
    floor_ms: i64,
    reach: Reach,
    has_parts: bool,
}

impl RangeRequest {
    /// Returns the last requested step of the valid prefix of an entry, or `None` if not even the
    /// first step is valid.
    fn valid_until(&self, entry: &CachedRange, snapshot: &Snapshot) -> Option<i64> {
        let same = (entry.first_ms, entry.last_ms) == (self.first_ms, self.last_ms);
        if self.first_ms < entry.first_ms || !(same || self.has_parts) {
            return None;
        }
        let hidden_ms = entry.floor_ms.max(self.floor_ms);
        if entry.floor_ms != self.floor_ms
            && self.reach.oldest(self.first_ms).is_some_and(|oldest| oldest < hidden_ms)
        {
            return None;
        }
        let changed_ms = snapshot.unchanged_before(entry.version).as_ms();
        let limit =
            if changed_ms == i64::MAX { i64::MAX } else { self.reach.last_step_before(changed_ms)? };
        let within = entry.last_ms.min(limit).min(self.last_ms).checked_sub(self.first_ms)?;
        // The change may lie between two steps; the result is a step of the grid.
        (within >= 0).then(|| self.first_ms + within / self.step_ms * self.step_ms)
    }
}

impl RangeKey {
    fn of(query: &Query, text: String, access: &Access, options: &Options) -> RangeKey {
        let step_ms = query.steps.step_ms();
        RangeKey {
            org: access.org,
            text,
            scope: access.scope.series_key(),
            options: format!("{options:?}"),
            step_ms,
            phase_ms: query.steps.start().as_ms().rem_euclid(step_ms),
            subquery_range_ms: None,
        }
    }
}

impl CacheState {
    fn insert(&mut self, key: RangeKey, entry: CachedRange) {
        self.bytes += entry.bytes;
        *self.bytes_by_org.entry(key.org).or_default() += entry.bytes;
        self.entries.insert(key, entry);
    }

    fn remove(&mut self, key: &RangeKey) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.bytes -= entry.bytes;
        let org_bytes = self.bytes_by_org.entry(key.org).or_default();
        *org_bytes -= entry.bytes;
        if *org_bytes == 0 {
            self.bytes_by_org.remove(&key.org);
        }
    }

    /// Removes the least recently used entry that `of` selects. Returns the number of removed
    /// entries, 0 or 1.
    fn evict(&mut self, of: impl Fn(&RangeKey) -> bool) -> u64 {
        let among = self.entries.iter().filter(|(key, _)| of(key));
        let oldest = among.min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
        oldest.map_or(0, |key| {
            self.remove(&key);
            1
        })
    }
}

/// Returns whether an expression reads its own range, so that its text does not determine its
/// meaning.
fn reads_own_range(text: &str) -> bool {
    // A match inside a label value only leaves one result uncached.
    ["start()", "end()", "range()"].iter().any(|word| text.contains(word))
}

/// Returns whether series may carry the type or unit of their metric as a label. Such labels are
/// dropped together with the name and may differ where names do not.
fn carries_types(snapshot: &Snapshot, budget: &Budget<'_>) -> bool {
    ["__type__", "__unit__"].iter().any(|name| match Matcher::new(name, MatchOp::NotEqual, "") {
        // If the budget refuses the memory, the result is not cached.
        Ok(carries) => budget
            .paced(snapshot, None, |paced| paced.exists(&[vec![carries]], TimeRange::ALL))
            .unwrap_or(true),
        Err(_) => true,
    })
}

fn last_step(steps: &Steps) -> i64 {
    let (start, span) = (steps.start().as_ms(), steps.end().ms_since(steps.start()));
    start + span / steps.step_ms() * steps.step_ms()
}

/// Evaluates the steps of `query`, which follow the cached ones. Returns `None` if the result has
/// annotations.
fn evaluate_tail(
    query: &Query,
    snapshot: &Snapshot,
    options: &Options,
    budget: &Budget<'_>,
    hooks: Hooks<'_>,
) -> Result<Option<QueryResult>, QueryError> {
    let plan = plan::build(query, options, budget)?;
    let answer = eval::run(&plan, query, snapshot, options, budget, hooks)?;
    Ok((answer.annotations == Annotations::default()).then_some(answer))
}

/// Returns the same query, starting at the step after `until_ms`.
fn query_after(query: &Query, until_ms: i64) -> Option<Query> {
    let start = Timestamp::from_ms(until_ms).plus_ms(query.steps.step_ms());
    let steps = Steps::new(start, query.steps.end(), query.steps.step_ms()).ok()?;
    Some(Query { steps, ..query.clone() })
}

fn answer(series: Vec<MatrixSeries>, stats: QueryStats) -> QueryResult {
    QueryResult { value: Value::Matrix(series), annotations: Annotations::default(), stats }
}

/// Estimates the size of an entry in bytes, as if its labels were not shared.
fn bytes_of(key: &RangeKey, series: &[MatrixSeries]) -> u64 {
    let labels = |one: &MatrixSeries| -> usize {
        one.labels.iter().map(|label| label.name.len() + label.value.len() + 64).sum()
    };
    let native =
        |one: &MatrixSeries| -> usize { one.histograms.iter().map(|point| 16 + point.value.bytes()).sum() };
    let of_series: usize =
        series.iter().map(|one| 64 + labels(one) + one.samples.len() * 16 + native(one)).sum();
    (of_series + key.text.len() + key.scope.len() + key.options.len() + 256) as u64
}

#[cfg(test)]
mod tests;
