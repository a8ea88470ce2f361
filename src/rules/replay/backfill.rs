//! The series of a recording rule for times before it existed, written slice by slice.
//!
//! They have the samples that live evaluations at the same times would have written, staleness
//! markers included: one at each step at which a series of the step before is missing. The series
//! of the step before the first one are those that are stored at that time. So a backfill continues
//! the samples of an earlier one and of live evaluation. The series of the last step get no marker:
//! the next evaluation continues or ends them.

use std::collections::{BTreeMap, HashSet};

use super::columns::{self, depends_on_range, times_of};
use super::{ReplayError, RulePreviewGroup, shifted, slice};
use crate::model::{
    BatchBuilder, Histogram, HistogramError, Labels, METRIC_NAME, MatchOp, Matcher, Sample, Steps, TimeRange,
    Timestamp, is_stale, stale_nan,
};
use crate::promql::{HistogramPoint, MatrixSeries};
use crate::rules::group::Rule;
use crate::rules::run::{CompiledRule, RuleContext, WRITE_SAMPLES_MAX, stored_histogram, stored_samples};
use crate::tsdb::Snapshot;

/// The steps of one slice.
const SLICE_STEPS: usize = 500;

/// The result of a backfill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackfillReport {
    /// Samples that are stored, including those that were stored before.
    pub stored: u64,
    /// Samples that the store refused, such as those older than the retention.
    pub refused: u64,
    /// The time from which the backfill continues; None: it is complete.
    pub next: Option<Timestamp>,
}

/// A backfill, which a caller runs slice by slice. It can be continued after an interruption from
/// the time of the last report: samples that are written twice have the same bits.
#[derive(Debug)]
pub struct Backfill {
    compiled: CompiledRule,
    steps: Steps,
    step_by_step: bool,
    /// Whether a step may read samples that earlier steps wrote.
    reads_itself: bool,
    group: RulePreviewGroup,
}

impl Backfill {
    /// Prepares a backfill of `rule` at `steps`, which should be on the grid of its group.
    ///
    /// # Errors
    /// [`ReplayError::NotRecording`] or [`ReplayError::FutureEnd`].
    pub fn new(
        rule: &Rule,
        group: &RulePreviewGroup,
        steps: Steps,
        now: Timestamp,
    ) -> Result<Backfill, ReplayError> {
        if rule.alerting().is_some() {
            return Err(ReplayError::NotRecording);
        }
        if steps.end() > now {
            return Err(ReplayError::FutureEnd { now });
        }
        let compiled = CompiledRule::new(std::sync::Arc::new(rule.clone()));
        let step_by_step = depends_on_range(&rule.parsed.expr);
        let reads_itself = compiled.may_read(&compiled);
        Ok(Backfill { compiled, steps, step_by_step, reads_itself, group: *group })
    }

    /// Evaluates and writes the slice that begins at `from`, or at the first step after it.
    ///
    /// # Errors
    /// [`ReplayError`] if an evaluation or a write fails. A part of the slice may be written.
    pub fn run_slice(
        &self,
        from: Timestamp,
        context: RuleContext<'_>,
        now: Timestamp,
    ) -> Result<BackfillReport, ReplayError> {
        let first = self.steps.iter().position(|at| at >= from).unwrap_or(self.steps.len());
        let mut report = BackfillReport::default();
        let Some(whole) = slice(self.steps, first, SLICE_STEPS) else { return Ok(report) };
        let at_once = if self.reads_itself { 1 } else { SLICE_STEPS };
        for part in (0..whole.len()).step_by(at_once) {
            let Some(steps) = slice(whole, part, at_once) else { break };
            self.run_steps(shifted(steps, -self.group.query_offset_ms)?, context, now, &mut report)?;
        }
        let next = first + whole.len();
        report.next = (next < self.steps.len()).then(|| self.steps.at(next));
        Ok(report)
    }

    fn run_steps(
        &self,
        steps: Steps,
        context: RuleContext<'_>,
        now: Timestamp,
        report: &mut BackfillReport,
    ) -> Result<(), ReplayError> {
        let columns = columns::evaluate(&self.compiled, context, steps, self.step_by_step)?;
        let written = columns.into_written(&self.compiled, self.group.limit)?;
        let snapshot = context.snapshot();
        let mut ends: BTreeMap<Labels, Vec<Timestamp>> = BTreeMap::new();
        for labels in self.ended_before(steps, context, &snapshot, &written) {
            let times = written.get(&labels).map(times_of).unwrap_or_default();
            ends.insert(labels, missing_after(&times, steps, true));
        }
        for (labels, series) in &written {
            let missing = || missing_after(&times_of(series), steps, false);
            ends.entry(labels.clone()).or_insert_with(missing);
        }
        let mut values = BackfillWriter::new(report, context, now);
        for (labels, MatrixSeries { samples, histograms, .. }) in written {
            let histograms: Vec<(Timestamp, Histogram)> =
                histograms.iter().map(recorded_histogram).collect::<Result<_, _>>()?;
            values.add(&labels, samples, histograms)?;
        }
        values.finish()?;
        // Another rule may have written the series at the same time. The stored value wins.
        let mut markers = BackfillWriter::new(report, context, now);
        for (labels, times) in ends.iter().filter(|(_, times)| !times.is_empty()) {
            let marker = |at| Sample { at, value: stale_nan() };
            let times = without_values(&snapshot, labels, times);
            markers.add(labels, times.into_iter().map(marker).collect(), Vec::new())?;
        }
        markers.finish()
    }

    /// Returns the series of the rule that are stored one step before the first one, and are not in
    /// its result.
    fn ended_before(
        &self,
        steps: Steps,
        context: RuleContext<'_>,
        snapshot: &Snapshot,
        written: &BTreeMap<Labels, MatrixSeries>,
    ) -> HashSet<Labels> {
        let before = steps.start().plus_ms(-steps.step_ms());
        let equal = |(name, value)| Matcher::new(name, MatchOp::Equal, value).ok();
        let name = (METRIC_NAME, self.compiled.rule.name());
        let matchers: Vec<Matcher> =
            std::iter::once(name).chain(self.compiled.fixed_labels()).filter_map(equal).collect();
        let is_first = |series: &MatrixSeries| times_of(series).first() == Some(&steps.start());
        let stored = snapshot.select(&matchers, TimeRange::new(before, before)).into_iter();
        let missing = stored.map(|series| series.labels).filter(|labels| {
            !written.get(labels).is_some_and(is_first)
                && without_values(snapshot, labels, &[before]).is_empty()
        });
        let missing: HashSet<Labels> = missing.collect();
        if missing.is_empty() {
            return missing;
        }
        // Another rule may write series with the same name and labels.
        let result = self.compiled.result(context, snapshot, before);
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

/// Samples that are written in batches.
struct BackfillWriter<'a> {
    report: &'a mut BackfillReport,
    context: RuleContext<'a>,
    now: Timestamp,
    batch: BatchBuilder,
    held: usize,
}

impl<'a> BackfillWriter<'a> {
    fn new(report: &'a mut BackfillReport, context: RuleContext<'a>, now: Timestamp) -> BackfillWriter<'a> {
        BackfillWriter { report, context, now, batch: BatchBuilder::default(), held: 0 }
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
            self.report.write(&std::mem::take(&mut self.batch), self.context, self.now)?;
            self.held = 0;
        }
        self.held += count;
        self.batch.series(labels, samples).histograms(histograms);
        Ok(())
    }

    fn finish(self) -> Result<(), ReplayError> {
        self.report.write(&self.batch, self.context, self.now)
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
