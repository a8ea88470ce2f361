//! The series of recording rules for times before they existed, written slice by slice.
//!
//! They have the samples that live evaluations of the group at the same times would have written,
//! staleness markers included: one at each step at which a series of the step before is missing.
//! The series of the last step get no marker: the next evaluation continues or ends them.
//!
//! A rule is evaluated over all steps of a slice at once, unless it may read samples of the steps
//! before that it or a later rule of the group writes, or samples of later steps. As in
//! [`GroupRun`](crate::rules::GroupRun), samples are written before a rule that may read them, and
//! markers after values: if one rule continues the series that another one ends, its value wins.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::columns::{self, depends_on_range, reads_ahead, times_of};
use super::pending::{MetricWriters, PendingWrites};
use super::{ReplayError, RulePreviewGroup, shifted};
use crate::clock::Stopwatch;
use crate::model::{
    Histogram, HistogramColumns, HistogramError, Labels, METRIC_NAME, MatchOp, Matcher, Steps, TimeRange,
    Timestamp, is_stale,
};
use crate::promql::{HistogramPoint, MatrixSeries};
use crate::rules::group::Rule;
use crate::rules::run::{CompiledRule, RuleContext, stored_histogram};
use crate::tsdb::{ReadColumns, Snapshot};

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

/// A backfill, which a caller runs slice by slice. However a range is cut into backfills, and even
/// if parts of it are repeated, the same samples are written, to the bit, because a step depends on
/// the store only:
///
/// * A rule that may read samples of its group sees them as they were before it was first evaluated
///   at that time: those that the group wrote later are hidden.
/// * The series of the step before the first one are those that are stored then and that the rule,
///   evaluated again at that time, yields. So a backfill also continues live evaluation.
///
/// This supposes that the other samples do not change meanwhile, and that the store refuses none.
/// Of one kind of sample the store does not tell the rule: two rules write one metric with labels
/// that they do not set, and a rule between them reads it. A marker at the step before the first
/// one counts as that of the first of the two then.
#[derive(Debug)]
pub struct Backfill {
    rules: Vec<BackfillRule>,
    blocks: Vec<RuleBlock>,
    writers: MetricWriters,
    group: RulePreviewGroup,
    end: Timestamp,
    step_ms: i64,
    next: Option<Timestamp>,
    /// The most steps of the next slice.
    slice_steps: usize,
}

#[derive(Debug)]
struct BackfillRule {
    compiled: CompiledRule,
    /// The place in the group.
    place: usize,
    /// Whether a range query has other results than queries at its steps.
    depends_on_range: bool,
    /// The series of the last step; `None`: the store tells them.
    series: Option<HashSet<Labels>>,
}

/// Consecutive rules that read no sample of a later block.
#[derive(Debug, PartialEq, Eq)]
struct RuleBlock {
    rules: Range<usize>,
    /// Whether each step is evaluated and written before the next one, because a rule of the block
    /// may read what it or a later rule wrote at the steps before, or what a rule of the group
    /// writes at later steps.
    step_by_step: bool,
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
        let rule = |(place, rule): (usize, &Rule)| BackfillRule {
            compiled: CompiledRule::new(Arc::new(rule.clone())),
            place,
            depends_on_range: depends_on_range(&rule.parsed.expr),
            series: None,
        };
        let rules: Vec<BackfillRule> = rules.iter().enumerate().map(rule).collect();
        let mut writers = MetricWriters::new();
        for rule in &rules {
            let writer = writers.entry(rule.compiled.rule.name().to_owned());
            writer.and_modify(|writer| *writer = None).or_insert(Some(rule.place));
        }
        Ok(Backfill {
            blocks: blocks(&rules, writers.values().any(Option::is_none)),
            writers,
            rules,
            group: *group,
            end,
            step_ms,
            next: Some(start),
            slice_steps: SLICE_STEPS_FIRST,
        })
    }

    /// Returns the time at which the next slice begins; `None`: the backfill is complete.
    pub fn next(&self) -> Option<Timestamp> {
        self.next
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
    /// backfill is complete. A slice that fails is cut in half until it succeeds or has one step.
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
        let mut is_cut = false;
        loop {
            let last = from.plus_ms((most - 1).saturating_mul(self.step_ms));
            let whole = Steps::new(from, last.min(self.end), self.step_ms)?;
            let error = match self.write_slice(whole, context, now) {
                Ok(report) => {
                    if is_cut {
                        self.slice_steps = whole.len();
                    }
                    return Ok(report);
                }
                Err(error) => error,
            };
            // Some rules may have been evaluated at later steps.
            self.rules.iter_mut().for_each(|rule| rule.series = None);
            let is_evaluation = matches!(error, ReplayError::Evaluation { .. });
            if !is_evaluation || whole.len() == 1 || context.check().is_err() {
                return Err(error.plus_ms(self.group.query_offset_ms));
            }
            // Fewer steps may also need less memory.
            (most, is_cut) = (i64::try_from(whole.len() / 2).unwrap_or(i64::MAX), true);
        }
    }

    /// Evaluates and writes steps.
    fn write_slice(
        &mut self,
        whole: Steps,
        context: RuleContext<'_>,
        now: Timestamp,
    ) -> Result<BackfillReport, ReplayError> {
        let (watch, mut report) = (Stopwatch::start(), BackfillReport::default());
        let mut pending = PendingWrites::new(&mut report, &self.writers, context, now);
        let mut largest = 0;
        for block in &self.blocks {
            let rules = self.rules.get_mut(block.rules.clone()).unwrap_or_default();
            let at_once = if block.step_by_step { 1 } else { whole.len() };
            for part in (0..whole.len()).step_by(at_once) {
                let Some(steps) = super::slice(whole, part, at_once) else { break };
                let steps = shifted(steps, -self.group.query_offset_ms)?;
                if block.step_by_step && part == 0 {
                    let before = steps.start().plus_ms(-self.step_ms);
                    rules.iter_mut().try_for_each(|rule| rule.recall(before, &mut pending))?;
                }
                for rule in &mut *rules {
                    largest = largest.max(rule.run(steps, block, self.group.limit, &mut pending)?);
                }
                // A sample of this step is one of the steps before in the next part.
                if block.step_by_step {
                    pending.write()?;
                }
            }
        }
        pending.write()?;
        let next = whole.end().plus_ms(self.step_ms);
        self.next = (next <= self.end).then_some(next);
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
    let is_stepped =
        |rule: &BackfillRule, read: usize| read >= rule.place || reads_ahead(&rule.compiled.rule.parsed.expr);
    let mut blocks = Vec::new();
    let mut first = 0;
    while first < rules.len() {
        let (mut end, mut place, mut step_by_step) = (first + 1, first, false);
        while let Some(rule) = rules.get(place).filter(|_| place < end) {
            let read = last_read(rule);
            step_by_step |= read.is_some_and(|read| is_stepped(rule, read));
            end = end.max(read.map_or(0, |read| read + 1));
            place += 1;
        }
        blocks.push(RuleBlock { rules: first..end, step_by_step });
        first = end;
    }
    // A block writes its markers at the end of each step, before a later block could write a value
    // at the same time.
    if are_shared && blocks.iter().any(|block| block.step_by_step) {
        return vec![RuleBlock { rules: 0..rules.len(), step_by_step: true }];
    }
    blocks
}

impl BackfillRule {
    /// Evaluates the rule of a block at steps, and adds its samples to `pending`. Returns the
    /// number of values.
    fn run(
        &mut self,
        steps: Steps,
        block: &RuleBlock,
        limit: usize,
        pending: &mut PendingWrites<'_>,
    ) -> Result<usize, ReplayError> {
        let compiled = &self.compiled;
        if pending.are_read_by(compiled) {
            pending.write()?;
        }
        let context = pending.context;
        let snapshot = match block.step_by_step {
            true => pending.view(self.place, compiled, steps.start()),
            false => context.snapshot(),
        };
        let columns = columns::evaluate(compiled, context, &snapshot, steps, self.depends_on_range)?;
        let written = columns.into_written(compiled, limit)?;
        let before = match self.series.take() {
            Some(series) => series,
            None => self.ended_before(steps, context, &written)?,
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

    /// Sets the series of the step before the first one, at the time `before`. `pending` takes the
    /// samples that are stored at that time, as if the step were evaluated now, after the rules
    /// before this one.
    fn recall(&mut self, before: Timestamp, pending: &mut PendingWrites<'_>) -> Result<(), ReplayError> {
        if self.series.is_some() {
            return Ok(());
        }
        let context = pending.context;
        let stored = self.stored_at(&context.snapshot(), before);
        let mut series = HashSet::new();
        if !stored.is_empty() {
            let view = pending.view(self.place, &self.compiled, before);
            series = self.series_at(context, &view, before)?;
            series.retain(|labels| stored.contains_key(labels));
        }
        for (labels, is_marker) in &stored {
            if *is_marker || series.contains(labels) {
                pending.take_time(labels, before);
            }
        }
        self.series = Some(series);
        Ok(())
    }

    /// Returns the series of the rule one step before the first one that are not in its result at
    /// the first one.
    fn ended_before(
        &self,
        steps: Steps,
        context: RuleContext<'_>,
        written: &BTreeMap<Labels, MatrixSeries>,
    ) -> Result<HashSet<Labels>, ReplayError> {
        let snapshot = context.snapshot();
        let before = steps.start().plus_ms(-steps.step_ms());
        let is_first = |series: &MatrixSeries| {
            series.samples.first().is_some_and(|sample| sample.at == steps.start())
                || series.histograms.first().is_some_and(|point| point.at == steps.start())
        };
        let mut missing = self.stored_at(&snapshot, before);
        missing.retain(|labels, _| !written.get(labels).is_some_and(is_first));
        if missing.is_empty() {
            return Ok(HashSet::new());
        }
        // Another rule may write series with the same name and labels.
        let mut series = self.series_at(context, &snapshot, before)?;
        series.retain(|labels| missing.contains_key(labels));
        Ok(series)
    }

    fn series_at(
        &self,
        context: RuleContext<'_>,
        snapshot: &Snapshot,
        at: Timestamp,
    ) -> Result<HashSet<Labels>, ReplayError> {
        let series = self.compiled.series_at(context, snapshot, at);
        series.map_err(|error| ReplayError::Evaluation { at, message: error.to_string() })
    }

    /// Returns the series with the name and the labels of the rule that have a sample at a time,
    /// and whether that is a staleness marker.
    fn stored_at(&self, snapshot: &Snapshot, at: Timestamp) -> HashMap<Labels, bool> {
        let equal = |(name, value)| Matcher::new(name, MatchOp::Equal, value).ok();
        let name = (METRIC_NAME, self.compiled.rule.name());
        let matchers: Vec<Matcher> =
            std::iter::once(name).chain(self.compiled.fixed_labels()).filter_map(equal).collect();
        let range = TimeRange::new(at, at);
        let mut reader = snapshot.reader(range, at);
        let (mut floats, mut histograms) = (ReadColumns::default(), HistogramColumns::default());
        let mut stored = HashMap::new();
        for series in snapshot.select(&matchers, range) {
            reader.read(series.id, &mut floats, &mut histograms);
            let is_marker = floats.values().first().is_some_and(|value| is_stale(*value));
            if !floats.is_empty() || !histograms.is_empty() {
                stored.insert(series.labels, is_marker);
            }
        }
        stored
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

/// Converts a histogram of a result to one that the store accepts.
fn recorded_histogram(point: &HistogramPoint) -> Result<(Timestamp, Histogram), ReplayError> {
    let HistogramPoint { at, value } = point;
    let failed = |error: HistogramError| ReplayError::Evaluation { at: *at, message: error.to_string() };
    stored_histogram(value).map(|histogram| (*at, histogram)).map_err(failed)
}
