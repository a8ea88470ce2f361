//! Answers of range queries and of subqueries, kept to be used again: whole, in part, or with newer steps computed and joined
//! on.
//!
//! **Exact.** What this answers is what an evaluation at the same moment would answer, to the bit. An answer is kept with the
//! version of the store that it was computed from ([`Snapshot::version`]). Asked for again, those of its steps count that
//! look at no sample that has come, gone, or fallen under another floor since ([`Snapshot::unchanged_before`],
//! [`Snapshot::floor`]); how far a step looks is read off the plan ([`reach`]). The steps after them are computed and joined
//! on where the plan can be computed in parts; else the answer counts as a whole or not at all. No clock is asked: a step
//! that lies ahead of all samples is as good as any, until a sample comes.
//!
//! **Subqueries.** What a subquery evaluates at its steps is kept as well, by the same rules ([`Subqueries`]): an instant query,
//! which is never kept itself, then computes only those steps of its subqueries that are new.
//!
//! Not kept: answers with a remark (they may be about the whole range, and say where in the text), of expressions that ask
//! for their own range, of series that carry their type as a label, and answers too large for their share. An answer that is
//! put together may succeed where its evaluation in one go would meet a limit of cost, and a kept one does not know of damage
//! that was found in a file since.
//!
//! **Bounded.** So many bytes for all and half for one organisation; what was used longest ago goes first.

mod reach;
mod subqueries;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::model::{Access, MatchOp, Matcher, OrgId, Steps, TimeRange, Timestamp, check_available};
use crate::sync::IgnorePoison as _;
use crate::tsdb::Snapshot;

use super::eval::Hooks;
use super::plan;
use super::value::MatrixSeries;
use super::{Annotations, Answer, Budget, Options, Query, QueryError, QueryStats, Value, eval};

use reach::{Reach, has_parts};
pub(super) use subqueries::{AskedSubquery, Subqueries};

/// Answers of this many bytes at most are kept: a share of an organisation's.
const ANSWER_SHARE: u64 = 4;
/// Kept answers at most; what looks for the oldest looks at all of them.
const ENTRIES_MAX: usize = 2_048;

/// Kept answers of all organisations.
#[derive(Debug)]
pub struct RangeCache {
    bytes_max: u64,
    kept: Mutex<Kept>,
    counts: Counts,
    of_subqueries: Counts,
}

#[derive(Debug, Default)]
struct Kept {
    entries: HashMap<Key, Entry>,
    bytes: u64,
    of_org: HashMap<OrgId, u64>,
    /// Counts uses up: an entry's last use.
    uses: u64,
    /// Entries that made room.
    evicted: u64,
}

#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    extended: AtomicU64,
    misses: AtomicU64,
}

/// How much of what was asked for was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finds {
    /// All of it.
    pub hits: u64,
    /// A part of it.
    pub extended: u64,
    /// Nothing: it was computed whole.
    pub misses: u64,
}

impl Counts {
    fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    fn extended(&self) {
        self.extended.fetch_add(1, Ordering::Relaxed);
    }

    fn missed(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    fn finds(&self) -> Finds {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Finds { hits: load(&self.hits), extended: load(&self.extended), misses: load(&self.misses) }
    }
}

/// What the cache did and holds, for `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// What was found of the answers of range queries.
    pub ranges: Finds,
    /// What was found of what subqueries evaluate.
    pub subqueries: Finds,
    /// Kept answers that made room.
    pub evicted: u64,
    /// Bytes held.
    pub bytes: u64,
    /// Answers held.
    pub entries: usize,
}

/// Everything that an answer depends on, but for its range and the samples.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    org: OrgId,
    /// The expression as it is printed.
    text: String,
    /// Which series are seen.
    scope: String,
    /// What evaluation was told.
    options: String,
    step_ms: i64,
    /// Where the steps lie within their length.
    phase_ms: i64,
    /// Of a subquery, how far back it looks: those of several lengths do not take one another's place.
    back_ms: Option<i64>,
}

#[derive(Clone, Debug)]
struct Entry {
    first_ms: i64,
    last_ms: i64,
    /// Of the store, from before the answer was computed.
    version: u64,
    /// What was hidden then.
    floor_ms: i64,
    series: Arc<[MatrixSeries]>,
    bytes: u64,
    used: u64,
}

/// What is there of an answer.
pub(super) enum Found {
    /// All of it.
    Whole(Arc<[MatrixSeries]>),
    /// Up to this step.
    UpTo(Arc<[MatrixSeries]>, i64),
    Nothing,
}

impl RangeCache {
    /// One that holds so many bytes; of none it keeps nothing.
    pub fn new(bytes_max: u64) -> RangeCache {
        RangeCache {
            bytes_max,
            kept: Mutex::default(),
            counts: Counts::default(),
            of_subqueries: Counts::default(),
        }
    }

    /// As [`run`](super::run), from what is kept as far as that is still true. `access` is what `snapshot` was taken for.
    ///
    /// # Errors
    /// As [`run`](super::run).
    pub fn run(
        &self,
        query: &Query,
        (access, snapshot): (&Access, &Snapshot),
        options: &Options,
        budget: &Budget<'_>,
    ) -> Result<Answer, QueryError> {
        let plan = plan::build(query, options, budget)?;
        let subqueries = Subqueries::of(self, access);
        let beside = || Hooks { subqueries: (self.bytes_max > 0).then_some(&subqueries), ..Hooks::default() };
        let compute = || eval::run(&plan, query, snapshot, options, budget, beside());
        let text = query.expr.to_string();
        // Before anything is read: what comes while it is computed is news.
        let version = snapshot.version().filter(|_| !query.instant && self.bytes_max > 0);
        let Some(version) = version.filter(|_| !asks_for_its_range(&text)) else { return compute() };
        let key = Key::of(query, text, access, options);
        let asked = Asked {
            first_ms: query.steps.start().as_ms(),
            last_ms: last_step(&query.steps),
            step_ms: query.steps.step_ms(),
            version,
            floor_ms: snapshot.floor().as_ms(),
            reach: Reach::of(&plan, options),
            has_parts: has_parts(&plan, options),
        };
        match self.find(&key, &asked, snapshot) {
            Found::Whole(series) => {
                self.counts.hit();
                budget.check()?;
                check_available(bytes_of(&key, &series))?;
                return Ok(answer(cut(&series, asked.first_ms, asked.last_ms), QueryStats::default()));
            }
            Found::UpTo(series, until_ms) if !carries_types(snapshot, budget) => {
                let tail = later(query, until_ms)
                    .and_then(|query| tail(&query, (snapshot, options, budget), beside()).transpose());
                // An error or a remark may be about the whole range: then the whole range is asked.
                if let Some(Ok(tail)) = tail {
                    self.counts.extended();
                    let Value::Matrix(newer) = tail.value else { return compute() };
                    check_available(bytes_of(&key, &series))?;
                    let joined = join(cut(&series, asked.first_ms, until_ms), newer);
                    self.keep(key, &asked, snapshot, &joined);
                    return Ok(answer(joined, tail.stats));
                }
            }
            Found::UpTo(..) | Found::Nothing => {}
        }
        let answer = compute()?;
        // Not before: an evaluation that ends on the connection's own thread starts again on the query lane.
        self.counts.missed();
        let silent = answer.annotations == Annotations::default();
        if let Value::Matrix(series) = &answer.value
            && silent
            && !carries_types(snapshot, budget)
        {
            self.keep(key, &asked, snapshot, series);
        }
        Ok(answer)
    }

    /// What the cache did and holds.
    pub fn usage(&self) -> CacheUse {
        let kept = self.lock();
        CacheUse {
            ranges: self.counts.finds(),
            subqueries: self.of_subqueries.finds(),
            evicted: kept.evicted,
            bytes: kept.bytes,
            entries: kept.entries.len(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Numbers and whole entries: a panic elsewhere leaves nothing half done that an answer is made of.
        self.kept.lock().ignore_poison()
    }

    fn find(&self, key: &Key, asked: &Asked, snapshot: &Snapshot) -> Found {
        let mut kept = self.lock();
        kept.uses += 1;
        let uses = kept.uses;
        let Some(entry) = kept.entries.get_mut(key) else { return Found::Nothing };
        entry.used = uses;
        let Some(until_ms) = asked.true_until(entry, snapshot) else { return Found::Nothing };
        let series = Arc::clone(&entry.series);
        if until_ms >= asked.last_ms {
            if (asked.first_ms, asked.last_ms) == (entry.first_ms, entry.last_ms) {
                // As true now as it was then; marks of the newer version are finer.
                (entry.version, entry.floor_ms) = (asked.version, asked.floor_ms);
            }
            return Found::Whole(series);
        }
        if asked.has_parts { Found::UpTo(series, until_ms) } else { Found::Nothing }
    }

    fn keep(&self, key: Key, asked: &Asked, snapshot: &Snapshot, series: &[MatrixSeries]) {
        if snapshot.is_given_up() {
            // Some of it was not read.
            return;
        }
        let bytes = bytes_of(&key, series);
        let org_max = self.bytes_max / 2;
        // What was hidden while it was computed must be what was hidden before.
        if bytes > org_max / ANSWER_SHARE || snapshot.floor().as_ms() != asked.floor_ms {
            return;
        }
        if check_available(bytes).is_err() {
            return;
        }
        let org = key.org;
        let series: Arc<[MatrixSeries]> = series.into();
        let mut kept = self.lock();
        kept.uses += 1;
        let (used, version) = (kept.uses, asked.version);
        let (first_ms, last_ms, floor_ms) = (asked.first_ms, asked.last_ms, asked.floor_ms);
        kept.remove(&key);
        kept.add(key, Entry { first_ms, last_ms, version, floor_ms, series, bytes, used });
        let mut evicted = 0;
        while kept.of_org.get(&org).is_some_and(|bytes| *bytes > org_max) {
            evicted += kept.evict(|key| key.org == org);
        }
        while kept.bytes > self.bytes_max || kept.entries.len() > ENTRIES_MAX {
            evicted += kept.evict(|_| true);
        }
        kept.evicted += evicted;
    }
}

/// A range that is asked for, and what is known of it.
struct Asked {
    first_ms: i64,
    last_ms: i64,
    step_ms: i64,
    version: u64,
    floor_ms: i64,
    reach: Reach,
    has_parts: bool,
}

impl Asked {
    /// The last step asked for, of those from the first one on that are in the entry and true; none if not even the first.
    fn true_until(&self, entry: &Entry, snapshot: &Snapshot) -> Option<i64> {
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
        // A step of the grid: what changed lies anywhere.
        (within >= 0).then(|| self.first_ms + within / self.step_ms * self.step_ms)
    }
}

impl Key {
    fn of(query: &Query, text: String, access: &Access, options: &Options) -> Key {
        let step_ms = query.steps.step_ms();
        Key {
            org: access.org,
            text,
            scope: access.scope.series_key(),
            options: format!("{options:?}"),
            step_ms,
            phase_ms: query.steps.start().as_ms().rem_euclid(step_ms),
            back_ms: None,
        }
    }
}

impl Kept {
    fn add(&mut self, key: Key, entry: Entry) {
        self.bytes += entry.bytes;
        *self.of_org.entry(key.org).or_default() += entry.bytes;
        self.entries.insert(key, entry);
    }

    fn remove(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.bytes -= entry.bytes;
        let of_org = self.of_org.entry(key.org).or_default();
        *of_org -= entry.bytes;
        if *of_org == 0 {
            self.of_org.remove(&key.org);
        }
    }

    /// Removes what was used longest ago; how many that are.
    fn evict(&mut self, of: impl Fn(&Key) -> bool) -> u64 {
        let among = self.entries.iter().filter(|(key, _)| of(key));
        let oldest = among.min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
        oldest.map_or(0, |key| {
            self.remove(&key);
            1
        })
    }
}

/// Times that are taken from the range make another expression of the same text.
fn asks_for_its_range(text: &str) -> bool {
    // Within a label's value it costs an answer that is not kept, no more.
    ["start()", "end()", "range()"].iter().any(|word| text.contains(word))
}

/// Whether series may carry their metric's type or unit as a label: those go with the name, and may differ where names do
/// not.
fn carries_types(snapshot: &Snapshot, budget: &Budget<'_>) -> bool {
    ["__type__", "__unit__"].iter().any(|name| match Matcher::new(name, MatchOp::NotEqual, "") {
        // A refusal of the budget costs an answer that is not kept.
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

/// The steps after those that are there; none with a remark.
fn tail(
    query: &Query,
    (snapshot, options, budget): (&Snapshot, &Options, &Budget<'_>),
    beside: Hooks<'_>,
) -> Result<Option<Answer>, QueryError> {
    let plan = plan::build(query, options, budget)?;
    let answer = eval::run(&plan, query, snapshot, options, budget, beside)?;
    Ok((answer.annotations == Annotations::default()).then_some(answer))
}

/// The same query from the step after `until_ms` on.
fn later(query: &Query, until_ms: i64) -> Option<Query> {
    let start = Timestamp::from_ms(until_ms).plus_ms(query.steps.step_ms());
    let steps = Steps::new(start, query.steps.end(), query.steps.step_ms()).ok()?;
    Some(Query { steps, ..query.clone() })
}

fn answer(series: Vec<MatrixSeries>, stats: QueryStats) -> Answer {
    Answer { value: Value::Matrix(series), annotations: Annotations::default(), stats }
}

/// The steps from one to another, both in; series without any are left out.
pub(super) fn cut(series: &[MatrixSeries], first_ms: i64, last_ms: i64) -> Vec<MatrixSeries> {
    let cut_one = |one: &MatrixSeries| {
        let from = one.samples.partition_point(|sample| sample.at.as_ms() < first_ms);
        let to = one.samples.partition_point(|sample| sample.at.as_ms() <= last_ms);
        let samples = one.samples.get(from..to).unwrap_or_default().to_vec();
        let from = one.histograms.partition_point(|point| point.at.as_ms() < first_ms);
        let to = one.histograms.partition_point(|point| point.at.as_ms() <= last_ms);
        let histograms = one.histograms.get(from..to).unwrap_or_default().to_vec();
        let any = !samples.is_empty() || !histograms.is_empty();
        any.then(|| MatrixSeries { labels: one.labels.clone(), samples, histograms })
    };
    series.iter().filter_map(cut_one).collect()
}

/// Series with their older and newer samples; both are sorted by labels, and so is what comes out.
pub(super) fn join(older: Vec<MatrixSeries>, newer: Vec<MatrixSeries>) -> Vec<MatrixSeries> {
    let mut out = Vec::with_capacity(older.len().max(newer.len()));
    let mut newer = newer.into_iter().peekable();
    for mut series in older {
        while let Some(before) = newer.next_if(|next| next.labels < series.labels) {
            out.push(before);
        }
        if let Some(same) = newer.next_if(|next| next.labels == series.labels) {
            // Whatever a series may have beside is to be joined as well.
            let MatrixSeries { labels: _, samples, histograms } = same;
            series.samples.extend(samples);
            series.histograms.extend(histograms);
        }
        out.push(series);
    }
    out.extend(newer);
    out
}

/// What an entry takes, about; labels as if they were nobody else's.
fn bytes_of(key: &Key, series: &[MatrixSeries]) -> u64 {
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
