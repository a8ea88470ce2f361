//! The series of a recording rule for times before it existed, written slice by slice.

use super::columns::{self, depends_on_range};
use super::{ReplayError, RulePreviewGroup, shifted};
use crate::model::{BatchBuilder, Steps, Timestamp};
use crate::promql::VectorSample;
use crate::rules::group::Rule;
use crate::rules::run::{CompiledRule, RuleContext, RuleSample};

/// The steps of one slice, which is evaluated and written at once.
const SLICE_STEPS: usize = 500;
/// The most samples of one write.
const WRITE_SAMPLES_MAX: usize = 50_000;

/// What a backfill wrote.
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
    query_offset_ms: i64,
}

impl Backfill {
    /// Prepares a backfill of `rule` at `steps`, which should be on the grid of its group.
    ///
    /// # Errors
    /// [`ReplayError::NotRecording`].
    pub fn new(rule: &Rule, group: &RulePreviewGroup, steps: Steps) -> Result<Backfill, ReplayError> {
        if rule.alerting().is_some() {
            return Err(ReplayError::NotRecording);
        }
        let compiled = CompiledRule::new(std::sync::Arc::new(rule.clone()));
        let step_by_step = depends_on_range(&rule.parsed.expr);
        Ok(Backfill { compiled, steps, step_by_step, query_offset_ms: group.query_offset_ms })
    }

    /// Evaluates and writes the slice that begins at `from`, or at the first step after it.
    ///
    /// # Errors
    /// [`ReplayError`] if the evaluation or the write fails. Nothing of the slice counts then.
    pub fn run_slice(
        &self,
        from: Timestamp,
        context: RuleContext<'_>,
        now: Timestamp,
    ) -> Result<BackfillReport, ReplayError> {
        let first = self.steps.iter().position(|at| at >= from).unwrap_or(self.steps.len());
        let last = (first + SLICE_STEPS).min(self.steps.len());
        if first >= last {
            return Ok(BackfillReport::default());
        }
        let slice = Steps::new(self.steps.at(first), self.steps.at(last - 1), self.steps.step_ms())?;
        let slice = shifted(slice, -self.query_offset_ms)?;
        let columns = columns::evaluate(&self.compiled, context, slice, self.step_by_step)?;
        let mut report = BackfillReport::default();
        let mut batch = BatchBuilder::default();
        let mut held = 0;
        for series in columns.into_recorded(&self.compiled)? {
            let floats = series.samples.iter().map(|sample| (sample.at, sample.value, None));
            let histograms = series
                .histograms
                .iter()
                .map(|point| (point.at, 0.0, Some(std::sync::Arc::clone(&point.value))));
            for (at, value, histogram) in floats.chain(histograms) {
                let sample = VectorSample { labels: series.labels.clone(), at, value, histogram };
                let sample = RuleSample::recorded(sample, at)
                    .map_err(|error| ReplayError::Evaluation { at, message: error.to_string() })?;
                sample.put(&mut batch);
                held += 1;
                if held >= WRITE_SAMPLES_MAX {
                    report.write(&std::mem::take(&mut batch), context, now)?;
                    held = 0;
                }
            }
        }
        report.write(&batch, context, now)?;
        report.next = (last < self.steps.len()).then(|| self.steps.at(last));
        Ok(report)
    }
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
