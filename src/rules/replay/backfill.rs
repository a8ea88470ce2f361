//! The series of recording rules for times before they existed, written slice by slice.
//!
//! They have the samples that live evaluations of the group at the same times would have written,
//! staleness markers included: one at each step at which a series of the step before is missing.
//! The series of the step before the first one are those that are stored at that time. So a
//! backfill continues the samples of an earlier one and of live evaluation. The series of the last
//! step get no marker: the next evaluation continues or ends them.
//!
//! A rule is evaluated over all steps of a slice at once, unless it may read samples of the steps
//! before that it or a later rule of the group writes. As in [`GroupRun`](crate::rules::GroupRun),
//! samples are written before a rule that may read them, and markers after values: if one rule
//! continues the series that another one ends, its value wins.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::columns::{self, depends_on_range, times_of};
use super::{ReplayError, RulePreviewGroup, shifted};
use crate::clock::Stopwatch;
use crate::model::{
    BatchBuilder, Histogram, HistogramError, Labels, METRIC_NAME, MatchOp, Matcher, Sample, Steps, TimeRange,
    Timestamp, is_stale, stale_nan,
};
use crate::promql::{HistogramPoint, MatrixSeries};
use crate::rules::group::Rule;
use crate::rules::run::{CompiledRule, RuleContext, WRITE_SAMPLES_MAX, stored_histogram, stored_samples};
use crate::tsdb::Snapshot;

/// The steps of the first slice, which shows how long a step takes.
const SLICE_STEPS_FIRST: usize = 50;
/// The least steps of a later slice, unless they take too long or fail. A slice of rules with few
/// series is followed by a longer one.
const SLICE_STEPS_MIN: usize = 500;
/// The most steps of a slice, inclusive.
const SLICE_STEPS_MAX: usize = 8_000;
/// How much longer than the slice before a slice may be.
const SLICE_GROWTH: usize = 4;
/// The part of the timeout of queries that a slice may be expected to take.
const SLICE_TIME_PART: u32 = 4;
/// The most samples that a rule is expected to yield in a longer slice.
const SLICE_SAMPLES_MAX: usize = 40_000;
/// The most evaluations of rules in a longer slice.
const SLICE_EVALUATIONS_MAX: usize = 1_000_000;

/// The result of a slice, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackfillReport {
    /// Samples that are stored, including those that were stored before.
    pub stored: u64,
    /// Samples that the store refused, such as those older than the retention.
    pub refused: u64,
}

/// The bounds of one call of [`Backfill::run`].
#[derive(Clone, Copy, Debug)]
pub struct BackfillLimits {
    /// The most steps, inclusive.
    pub steps: usize,
    /// The time after which no further slice begins.
    pub time: Duration,
}

/// The times of a backfill.
#[derive(Clone, Copy, Debug)]
pub struct BackfillTimes {
    /// The first evaluation. It should be on the grid of the group.
    pub start: Timestamp,
    /// The end, inclusive.
    pub end: Timestamp,
    /// The time between two evaluations in milliseconds, above 0.
    pub step_ms: i64,
}

/// A backfill, which a caller runs slice by slice. It can be continued after an interruption from
/// the time of [`Backfill::next`]: samples that are written twice have the same bits.
#[derive(Debug)]
pub struct Backfill {
    rules: Vec<BackfillRule>,
    blocks: Vec<RuleBlock>,
    /// The metrics that several rules write.
    shared: BTreeSet<String>,
    group: RulePreviewGroup,
    end: Timestamp,
    step_ms: i64,
    next: Option<Timestamp>,
    /// The time after the last step, also if the backfill is complete.
    reached: Timestamp,
    /// The most steps of the next slice.
    slice_steps: usize,
}

#[derive(Debug)]
struct BackfillRule {
    compiled: CompiledRule,
    step_by_step: bool,
    /// The series of the last step; `None`: those that are stored.
    series: Option<HashSet<Labels>>,
    /// The series of the step before the first one, if they are known. Those that are not stored do
    /// not count.
    known_before: Option<Arc<HashSet<Labels>>>,
}

/// Consecutive rules that read no sample of a later block.
#[derive(Debug, PartialEq, Eq)]
struct RuleBlock {
    rules: Range<usize>,
    /// Whether a rule of the block may read what it or a later rule wrote at the steps before.
    reads_itself: bool,
}

impl Backfill {
    /// Prepares a backfill of rules of one group, in their order.
    ///
    /// # Errors
    /// [`ReplayError::NotRecording`], [`ReplayError::FutureEnd`] or [`ReplayError::Steps`].
    pub fn new(
        rules: &[Rule],
        group: &RulePreviewGroup,
        times: BackfillTimes,
        now: Timestamp,
    ) -> Result<Backfill, ReplayError> {
        let BackfillTimes { start, end, step_ms } = times;
        if rules.iter().any(|rule| rule.alerting().is_some()) {
            return Err(ReplayError::NotRecording);
        }
        if end > now {
            return Err(ReplayError::FutureEnd { now });
        }
        // The number of all steps is not limited; that of each slice is.
        Steps::new(start, end.min(start), step_ms)?;
        let rule = |rule: &Rule| BackfillRule {
            compiled: CompiledRule::new(Arc::new(rule.clone())),
            step_by_step: depends_on_range(&rule.parsed.expr),
            series: None,
            known_before: None,
        };
        let rules: Vec<BackfillRule> = rules.iter().map(rule).collect();
        let (mut names, mut shared) = (BTreeSet::new(), BTreeSet::new());
        for rule in &rules {
            if !names.insert(rule.compiled.rule.name()) {
                shared.insert(rule.compiled.rule.name().to_owned());
            }
        }
        Ok(Backfill {
            blocks: blocks(&rules, !shared.is_empty()),
            shared,
            rules,
            group: *group,
            end,
            step_ms,
            next: Some(start),
            reached: start,
            slice_steps: SLICE_STEPS_FIRST,
        })
    }

    /// Returns the time at which the next slice begins; `None`: the backfill is complete.
    pub fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// Returns a key of the backfill of one rule, whose text is `rule`, at the time that it has
    /// reached. `None` if the store tells a continuation the series of the last step.
    pub(super) fn continuation(&self, rule: &str) -> Option<String> {
        let reads_itself = self.rules.len() == 1 && self.blocks.iter().any(|block| block.reads_itself);
        reads_itself.then(|| format!("{} {} {:?} {rule}", self.reached.as_ms(), self.step_ms, self.group))
    }

    /// Returns the series of the last step of the first rule; `None` before the first step.
    pub(super) fn series_of_last_step(&self) -> Option<&HashSet<Labels>> {
        self.rules.first()?.series.as_ref()
    }

    /// Sets the series of the step before the first one.
    pub(super) fn continue_after(&mut self, series: Arc<HashSet<Labels>>) {
        if let Some(rule) = self.rules.first_mut() {
            rule.known_before = Some(series);
        }
    }

    /// Writes slices until the backfill is complete or a limit is reached. If the queries of a
    /// slice share the timeout (`since` of the context is set), each slice has the whole timeout.
    ///
    /// A step that fails ends the call. The steps before it are written: if there are any, the call
    /// succeeds, and the next call begins with the failing step and fails.
    ///
    /// # Errors
    /// [`ReplayError`] if the first step fails, if its samples cannot be written, or if the caller
    /// cancels the backfill.
    pub fn run(
        &mut self,
        limits: BackfillLimits,
        context: RuleContext<'_>,
        now: Timestamp,
    ) -> Result<BackfillReport, ReplayError> {
        let (watch, mut report, start) = (Stopwatch::start(), BackfillReport::default(), self.next);
        let Some(first) = start else { return Ok(report) };
        while let Some(from) = self.next {
            let done = usize::try_from(from.ms_since(first) / self.step_ms).unwrap_or(usize::MAX);
            let left = limits.steps.saturating_sub(done);
            if done > 0 && (left == 0 || watch.elapsed() >= limits.time) {
                break;
            }
            let since = context.since.map(|_| Stopwatch::start());
            match self.run_slice(left, RuleContext { since, ..context }, now) {
                Ok(slice) => {
                    report.stored += slice.stored;
                    report.refused += slice.refused;
                }
                Err(_) if done > 0 && !context.is_cancelled() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(report)
    }

    /// Evaluates and writes the next slice, of at most `steps_max` steps. Does nothing if the
    /// backfill is complete. A slice that fails is cut in half until it succeeds or has one step,
    /// unless a rule of a larger group reads its own samples.
    ///
    /// # Errors
    /// [`ReplayError`] if the first step fails, if a query times out, or if samples cannot be
    /// written. A part of the slice may be written.
    pub(super) fn run_slice(
        &mut self,
        steps_max: usize,
        context: RuleContext<'_>,
        now: Timestamp,
    ) -> Result<BackfillReport, ReplayError> {
        let Some(from) = self.next else { return Ok(BackfillReport::default()) };
        let mut most = i64::try_from(self.slice_steps.min(steps_max).max(1)).unwrap_or(i64::MAX);
        // A rule that reads its own samples must not be evaluated twice at a time.
        let reads_itself = self.blocks.iter().any(|block| block.reads_itself);
        let mut is_cut = false;
        loop {
            let last = from.plus_ms((most - 1).saturating_mul(self.step_ms));
            let whole = Steps::new(from, last.min(self.end), self.step_ms)?;
            let before: Vec<_> = self.rules.iter().map(|rule| rule.series.clone()).collect();
            match self.write_slice(whole, context, now) {
                // Fewer steps may also need less memory.
                Err(ReplayError::Evaluation { .. })
                    if whole.len() > 1 && !reads_itself && context.check().is_ok() =>
                {
                    self.rules.iter_mut().zip(before).for_each(|(rule, series)| rule.series = series);
                    (most, is_cut) = (i64::try_from(whole.len() / 2).unwrap_or(i64::MAX), true);
                }
                Err(error) => return Err(error.plus_ms(self.group.query_offset_ms)),
                Ok(report) => {
                    if is_cut {
                        self.slice_steps = whole.len();
                    }
                    return Ok(report);
                }
            }
        }
    }

    /// Evaluates and writes steps. A single rule that reads its own samples, and fails after the
    /// first step, ends the slice before the step that fails.
    fn write_slice(
        &mut self,
        mut whole: Steps,
        context: RuleContext<'_>,
        now: Timestamp,
    ) -> Result<BackfillReport, ReplayError> {
        let (watch, mut report) = (Stopwatch::start(), BackfillReport::default());
        let mut pending = PendingWrites::new(&mut report, &self.shared, context, now);
        let mut largest = 0;
        for block in &self.blocks {
            let at_once = if block.reads_itself { 1 } else { whole.len() };
            for part in (0..whole.len()).step_by(at_once) {
                let Some(steps) = super::slice(whole, part, at_once) else { break };
                let steps = shifted(steps, -self.group.query_offset_ms)?;
                let done = super::slice(whole, 0, part).filter(|_| self.rules.len() == 1);
                let (limit, rules) = (self.group.limit, self.rules.get_mut(block.rules.clone()));
                let run = rules
                    .into_iter()
                    .flatten()
                    .try_fold(0, |most, rule| Ok(rule.run(steps, limit, &mut pending)?.max(most)));
                match (run, done) {
                    (Ok(most), _) => largest = largest.max(most),
                    (Err(ReplayError::Evaluation { .. }), Some(done)) => {
                        pending.discard();
                        whole = done;
                        break;
                    }
                    (Err(error), _) => return Err(error),
                }
                // A sample of this step is one of the steps before in the next part.
                if block.reads_itself {
                    pending.write()?;
                }
            }
        }
        pending.write()?;
        let next = whole.end().plus_ms(self.step_ms);
        (self.next, self.reached) = ((next <= self.end).then_some(next), next);
        self.grow(whole.len(), largest);
        let time_max = context.settings.query_timeout / SLICE_TIME_PART;
        self.slice_steps = self.slice_steps.min(steps_within(time_max, whole.len(), watch.elapsed()));
        Ok(report)
    }

    /// Sets the length of the next slice after one of `steps` steps in which no rule yielded more
    /// than `largest` samples, so that rules with few series are not written in many small pieces.
    fn grow(&mut self, steps: usize, largest: usize) {
        let by_samples = SLICE_SAMPLES_MAX.saturating_mul(steps) / largest.max(1);
        let by_rules = SLICE_EVALUATIONS_MAX / self.rules.len().max(1);
        let wanted = steps.saturating_mul(SLICE_GROWTH).min(by_samples).min(by_rules);
        self.slice_steps = wanted.clamp(SLICE_STEPS_MIN, SLICE_STEPS_MAX);
    }
}

/// Returns how many steps take `time` if `steps` took `elapsed`; at least 1.
fn steps_within(time: Duration, steps: usize, elapsed: Duration) -> usize {
    let within = time.as_micros().saturating_mul(u128::try_from(steps).unwrap_or(u128::MAX));
    usize::try_from(within / elapsed.as_micros().max(1)).unwrap_or(usize::MAX).max(1)
}

/// Splits rules into blocks, so that each rule reads samples of its block and of blocks before
/// only. `are_shared` states whether several rules write one metric.
fn blocks(rules: &[BackfillRule], are_shared: bool) -> Vec<RuleBlock> {
    // The last rule that writes each metric.
    let writers: BTreeMap<&str, usize> =
        rules.iter().map(|rule| rule.compiled.rule.name()).zip(0..).collect();
    let last_read = |rule: &BackfillRule| match rule.compiled.metrics_read() {
        None => Some(rules.len() - 1),
        Some(names) => names.iter().filter_map(|name| writers.get(name.as_str()).copied()).max(),
    };
    let mut blocks = Vec::new();
    let mut first = 0;
    while first < rules.len() {
        let (mut end, mut place, mut reads_itself) = (first + 1, first, false);
        while let Some(rule) = rules.get(place).filter(|_| place < end) {
            let read = last_read(rule).filter(|read| *read >= place);
            reads_itself |= read.is_some();
            end = end.max(read.map_or(0, |read| read + 1));
            place += 1;
        }
        blocks.push(RuleBlock { rules: first..end, reads_itself });
        first = end;
    }
    // A block that reads itself writes its markers at the end of each step, before a later block
    // could write a value at the same time.
    if are_shared && blocks.iter().any(|block| block.reads_itself) {
        return vec![RuleBlock { rules: 0..rules.len(), reads_itself: true }];
    }
    blocks
}

impl BackfillRule {
    /// Evaluates the rule at steps, and adds its samples to `pending`. Returns the number of
    /// values.
    fn run(
        &mut self,
        steps: Steps,
        limit: usize,
        pending: &mut PendingWrites<'_>,
    ) -> Result<usize, ReplayError> {
        let compiled = &self.compiled;
        if pending.are_read_by(compiled) {
            pending.write()?;
        }
        let context = pending.context;
        let columns = columns::evaluate(compiled, context, steps, self.step_by_step)?;
        let written = columns.into_written(compiled, limit)?;
        let before = match self.series.take() {
            Some(series) => series,
            None => self.ended_before(steps, context, &written),
        };
        for labels in before.iter().filter(|labels| !written.contains_key(*labels)) {
            pending.mark(labels, vec![steps.start()]);
        }
        let (mut series, mut values) = (HashSet::new(), 0);
        for (labels, MatrixSeries { mut samples, mut histograms, .. }) in written {
            let count = samples.len() + histograms.len();
            values += count;
            if count < steps.len() {
                let times = times_of(&samples, &histograms);
                pending.mark(&labels, missing_after(&times, steps, before.contains(&labels)));
            }
            let is_last = |at: Timestamp| at == steps.end();
            if samples.last().is_some_and(|sample| is_last(sample.at))
                || histograms.last().is_some_and(|point| is_last(point.at))
            {
                series.insert(labels.clone());
            }
            pending.take_times(&labels, &mut samples, &mut histograms);
            let histograms: Vec<(Timestamp, Histogram)> =
                histograms.iter().map(recorded_histogram).collect::<Result<_, _>>()?;
            pending.add(&labels, samples, histograms)?;
        }
        pending.metrics.insert(compiled.rule.name().to_owned());
        self.series = Some(series);
        Ok(values)
    }

    /// Returns the series of the rule that are stored one step before the first one, and are not in
    /// its result.
    fn ended_before(
        &self,
        steps: Steps,
        context: RuleContext<'_>,
        written: &BTreeMap<Labels, MatrixSeries>,
    ) -> HashSet<Labels> {
        let snapshot = context.snapshot();
        let before = steps.start().plus_ms(-steps.step_ms());
        let equal = |(name, value)| Matcher::new(name, MatchOp::Equal, value).ok();
        let name = (METRIC_NAME, self.compiled.rule.name());
        let matchers: Vec<Matcher> =
            std::iter::once(name).chain(self.compiled.fixed_labels()).filter_map(equal).collect();
        let is_first = |series: &MatrixSeries| {
            series.samples.first().is_some_and(|sample| sample.at == steps.start())
                || series.histograms.first().is_some_and(|point| point.at == steps.start())
        };
        let stored = snapshot.select(&matchers, TimeRange::new(before, before)).into_iter();
        let missing = stored.map(|series| series.labels).filter(|labels| {
            !written.get(labels).is_some_and(is_first)
                && without_values(&snapshot, labels, &[before]).is_empty()
        });
        let missing: HashSet<Labels> = missing.collect();
        if missing.is_empty() {
            return missing;
        }
        // Another rule may write series with the same name and labels.
        if let Some(known) = &self.known_before {
            return missing.into_iter().filter(|labels| known.contains(labels)).collect();
        }
        let result = self.compiled.result(context, &snapshot, before);
        let own = result.and_then(|result| self.compiled.recorded(result)).unwrap_or_default();
        own.into_iter().map(|sample| sample.labels).filter(|labels| missing.contains(labels)).collect()
    }
}

/// Returns the steps at which a series is missing that was there at the step before. `was_there`
/// states whether it was there before the first step.
fn missing_after(times: &[Timestamp], steps: Steps, mut was_there: bool) -> Vec<Timestamp> {
    let mut times = times.iter().peekable();
    let is_end = |at: &Timestamp| {
        let is_there = times.next_if(|time| *time == at).is_some();
        std::mem::replace(&mut was_there, is_there) && !is_there
    };
    steps.iter().filter(is_end).collect()
}

/// Returns the times at which a series has no value in the store. `times` ascend.
fn without_values(snapshot: &Snapshot, labels: &Labels, times: &[Timestamp]) -> Vec<Timestamp> {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return Vec::new() };
    let (floats, histograms) = stored_samples(snapshot, labels, TimeRange::new(*first, *last));
    let has_float = |ms: i64| {
        let place = floats.times.binary_search(&ms).ok();
        place.and_then(|place| floats.values.get(place)).is_some_and(|value| !is_stale(*value))
    };
    let is_free = |at: &&Timestamp| !has_float(at.as_ms()) && !histograms.times.contains(&at.as_ms());
    times.iter().filter(is_free).copied().collect()
}

/// Samples of a slice that are not written yet.
struct PendingWrites<'a> {
    report: &'a mut BackfillReport,
    context: RuleContext<'a>,
    now: Timestamp,
    values: BatchBuilder,
    /// The number of samples in `values`.
    held: usize,
    /// The times of markers, which are written after the values.
    markers: BTreeMap<Labels, BTreeSet<Timestamp>>,
    /// The metrics of the rules whose samples are pending.
    metrics: BTreeSet<String>,
    /// The metrics that several rules write.
    shared: &'a BTreeSet<String>,
    /// The times of the slice that have a sample, by the series of shared metrics. The first sample
    /// stays, as in live evaluation; of late samples, the store would keep the last one.
    taken: BTreeMap<Labels, BTreeSet<Timestamp>>,
}

impl<'a> PendingWrites<'a> {
    fn new(
        report: &'a mut BackfillReport,
        shared: &'a BTreeSet<String>,
        context: RuleContext<'a>,
        now: Timestamp,
    ) -> PendingWrites<'a> {
        PendingWrites {
            report,
            context,
            now,
            values: BatchBuilder::default(),
            held: 0,
            markers: BTreeMap::new(),
            metrics: BTreeSet::new(),
            shared,
            taken: BTreeMap::new(),
        }
    }

    /// Returns whether a rule may read a sample that is pending.
    fn are_read_by(&self, rule: &CompiledRule) -> bool {
        match rule.metrics_read() {
            None => !self.metrics.is_empty(),
            Some(names) => names.iter().any(|name| self.metrics.contains(name)),
        }
    }

    fn add(
        &mut self,
        labels: &Labels,
        samples: Vec<Sample>,
        histograms: Vec<(Timestamp, Histogram)>,
    ) -> Result<(), ReplayError> {
        let count = samples.len() + histograms.len();
        if count == 0 {
            return Ok(());
        }
        if self.held + count > WRITE_SAMPLES_MAX {
            self.write_values()?;
        }
        self.held += count;
        self.values.series(labels, samples).histograms(histograms);
        Ok(())
    }

    /// Returns the taken times of a series of a shared metric.
    fn taken(&mut self, labels: &Labels) -> Option<&mut BTreeSet<Timestamp>> {
        let is_shared = labels.get(METRIC_NAME).is_some_and(|name| self.shared.contains(&**name));
        is_shared.then(|| self.taken.entry(labels.clone()).or_default())
    }

    /// Takes the times of values. Removes the values whose times another rule has taken, and counts
    /// them as refused.
    fn take_times(
        &mut self,
        labels: &Labels,
        samples: &mut Vec<Sample>,
        histograms: &mut Vec<HistogramPoint>,
    ) {
        let before = samples.len() + histograms.len();
        let Some(taken) = self.taken(labels) else { return };
        samples.retain(|sample| taken.insert(sample.at));
        histograms.retain(|point| taken.insert(point.at));
        let removed = before - samples.len() - histograms.len();
        self.report.refused += u64::try_from(removed).unwrap_or(u64::MAX);
    }

    fn mark(&mut self, labels: &Labels, times: Vec<Timestamp>) {
        if !times.is_empty() {
            self.markers.entry(labels.clone()).or_default().extend(times);
        }
    }

    /// Forgets the samples of a step that failed.
    fn discard(&mut self) {
        (self.values, self.held) = (BatchBuilder::default(), 0);
        self.markers.clear();
        self.metrics.clear();
    }

    fn write_values(&mut self) -> Result<(), ReplayError> {
        self.held = 0;
        self.report.write(&std::mem::take(&mut self.values), self.context, self.now)
    }

    /// Writes the values, and then the markers.
    fn write(&mut self) -> Result<(), ReplayError> {
        self.write_values()?;
        self.metrics.clear();
        if self.markers.is_empty() {
            return Ok(());
        }
        // Another rule may have written the series at the same time. The stored value wins.
        let snapshot = self.context.snapshot();
        let marker = |at| Sample { at, value: stale_nan() };
        for (labels, times) in std::mem::take(&mut self.markers) {
            let times: Vec<Timestamp> = times.into_iter().collect();
            let mut times = without_values(&snapshot, &labels, &times);
            if let Some(taken) = self.taken(&labels) {
                times.retain(|at| taken.insert(*at));
            }
            self.add(&labels, times.into_iter().map(marker).collect(), Vec::new())?;
        }
        self.write_values()
    }
}

/// Converts a histogram of a result to one that the store accepts.
fn recorded_histogram(point: &HistogramPoint) -> Result<(Timestamp, Histogram), ReplayError> {
    let HistogramPoint { at, value } = point;
    let failed = |error: HistogramError| ReplayError::Evaluation { at: *at, message: error.to_string() };
    stored_histogram(value).map(|histogram| (*at, histogram)).map_err(failed)
}

impl BackfillReport {
    fn write(
        &mut self,
        batch: &BatchBuilder,
        context: RuleContext<'_>,
        now: Timestamp,
    ) -> Result<(), ReplayError> {
        if batch.series_len() == 0 {
            return Ok(());
        }
        let written = context.tsdb.append(context.org, &batch.batch(), now);
        let written = written.map_err(|error| ReplayError::Store(error.to_string()))?;
        self.stored += written.stored;
        self.refused += written.refused;
        Ok(())
    }
}
