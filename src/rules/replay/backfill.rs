//! The series of a recording rule for times before it existed, written slice by slice.

use super::columns::{self, depends_on_range};
use super::{ReplayError, RulePreviewGroup, shifted, slice};
use crate::model::{BatchBuilder, Histogram, HistogramError, Steps, Timestamp};
use crate::promql::{HistogramPoint, MatrixSeries};
use crate::rules::group::Rule;
use crate::rules::run::{CompiledRule, RuleContext, WRITE_SAMPLES_MAX, stored_histogram};

/// The steps of one slice, which is evaluated and written at once.
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
        let Some(slice) = slice(self.steps, first, SLICE_STEPS) else {
            return Ok(BackfillReport::default());
        };
        let next = first + slice.len();
        let slice = shifted(slice, -self.query_offset_ms)?;
        let columns = columns::evaluate(&self.compiled, context, slice, self.step_by_step)?;
        let mut report = BackfillReport::default();
        let mut batch = BatchBuilder::default();
        let mut held = 0;
        for MatrixSeries { labels, samples, histograms } in columns.into_recorded(&self.compiled)? {
            let count = samples.len() + histograms.len();
            if held + count > WRITE_SAMPLES_MAX {
                report.write(&std::mem::take(&mut batch), context, now)?;
                held = 0;
            }
            held += count;
            let histograms: Vec<(Timestamp, Histogram)> =
                histograms.iter().map(recorded_histogram).collect::<Result<_, _>>()?;
            batch.series(&labels, samples).histograms(histograms);
        }
        report.write(&batch, context, now)?;
        report.next = (next < self.steps.len()).then(|| self.steps.at(next));
        Ok(report)
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
