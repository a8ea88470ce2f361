//! Replays of rules: the alerts of a rule over a past range, and the series of a recording rule for
//! times before it existed.
//!
//! The expression is evaluated as range queries of bounded slices, whose steps equal instant
//! queries at the same times. An expression that depends on the range of its query (`start()`,
//! `end()`, `step()`, `range()`) is evaluated step by step instead. The alerts are stepped by the
//! same code as live ones.

mod backfill;
mod columns;
mod pending;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::model::{Labels, Steps, StepsError, Timestamp};
use crate::promql::explain::Estimate;
use crate::promql::{MatrixSeries, QueryError};
use crate::rules::alert::{AlertInput, AlertSet, AlertTransition};
use crate::rules::group::Rule;
use crate::rules::run::{CompiledRule, RuleContext, TemplateQueries, check_unique};
pub use backfill::{Backfill, BackfillLimits, BackfillReport, BackfillTimes};
use columns::{ResultColumns, depends_on_range};

/// The most transitions of a preview, inclusive. Later ones are left out.
const PREVIEW_TRANSITIONS_MAX: usize = 10_000;
/// The most series of a preview, inclusive. Further ones are left out.
const PREVIEW_SERIES_MAX: usize = 1_000;
/// The most steps of one range query.
const SLICE_STEPS: usize = 2_000;

/// The simulated result of a rule over a range.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RulePreview {
    /// The changes of the state of alerts, in the order of time; empty for a recording rule.
    pub transitions: Vec<AlertTransition>,
    /// The result of the expression; for a recording rule, with its name and labels.
    pub series: Vec<MatrixSeries>,
    /// Whether transitions or series were left out.
    pub truncated: bool,
    /// The cost of one evaluation, at the time of the last one.
    pub estimate: Estimate,
    /// The alerts after the last step.
    pub(in crate::rules) alerts: AlertSet,
}

/// The reason why a replay has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The range and the step do not form a grid.
    #[error(transparent)]
    Steps(#[from] StepsError),
    /// An evaluation failed.
    #[error("{at}: {message}", at = at.to_rfc3339())]
    Evaluation {
        /// The time of the evaluation, or of the first one of its slice.
        at: Timestamp,
        /// The message.
        message: String,
    },
    /// The rule is not a recording rule.
    #[error("only a recording rule has series to backfill")]
    NotRecording,
    /// A backfill reaches into the future.
    #[error("the end of a backfill must not be in the future; it is {at} now", at = now.to_rfc3339())]
    FutureEnd {
        /// The time of the clock.
        now: Timestamp,
    },
    /// Samples were not stored.
    #[error("samples were not stored: {0}")]
    Store(String),
}

impl ReplayError {
    /// Adds the query offset to the time of the samples: the time is that of the evaluation then.
    fn plus_ms(self, query_offset_ms: i64) -> ReplayError {
        match self {
            ReplayError::Evaluation { at, message } => {
                ReplayError::Evaluation { at: at.plus_ms(query_offset_ms), message }
            }
            other => other,
        }
    }
}

/// Replays a rule over the steps. It begins without alerts.
///
/// # Errors
/// [`ReplayError`] if an evaluation fails, as a live one would.
pub fn preview_rule(
    rule: &Rule,
    group: &RulePreviewGroup,
    steps: Steps,
    context: RuleContext<'_>,
) -> Result<RulePreview, ReplayError> {
    let compiled = CompiledRule::new(Arc::new(rule.clone()));
    let mut preview = RulePreview::default();
    for slice in slices(steps) {
        let shifted = shifted(slice, -group.query_offset_ms)?;
        let on_grid = |error: ReplayError| error.plus_ms(group.query_offset_ms);
        let step_by_step = depends_on_range(&rule.parsed.expr);
        let columns = columns::evaluate(&compiled, context, &context.snapshot(), shifted, step_by_step)
            .map_err(on_grid)?;
        if rule.alerting().is_some() {
            step_alerts(&compiled, group, slice, &columns, context, &mut preview)?;
        }
        add_series(&mut preview, columns.into_recorded(&compiled, group.limit).map_err(on_grid)?);
    }
    let estimate =
        compiled.estimate(context, &context.snapshot(), steps.end().plus_ms(-group.query_offset_ms));
    let failed = |error: QueryError| ReplayError::Evaluation { at: steps.end(), message: error.to_string() };
    preview.estimate = estimate.map_err(failed)?;
    Ok(preview)
}

/// The settings of the group of a previewed rule.
#[derive(Clone, Copy, Debug, Default)]
pub struct RulePreviewGroup {
    /// The most series or alerts; 0: any number.
    pub limit: usize,
    /// The query offset in milliseconds.
    pub query_offset_ms: i64,
}

fn step_alerts(
    compiled: &CompiledRule,
    group: &RulePreviewGroup,
    slice: Steps,
    columns: &ResultColumns,
    context: RuleContext<'_>,
    preview: &mut RulePreview,
) -> Result<(), ReplayError> {
    let Some(durations) = compiled.durations() else { return Ok(()) };
    let snapshot = context.snapshot();
    let templated = compiled.has_label_templates();
    let mut known: Vec<Option<Labels>> = vec![None; columns.len()];
    let mut transitions = Vec::new();
    for (step, at) in slice.iter().enumerate() {
        context.check().map_err(|error| ReplayError::Evaluation { at, message: error.to_string() })?;
        let queries = TemplateQueries { context, snapshot: &snapshot, at };
        let mut inputs = Vec::new();
        for (place, sample) in columns.at(step) {
            let cached = known.get_mut(place).filter(|_| !templated);
            let input = match cached {
                None => compiled.input(context, &queries, &sample, false),
                Some(Some(labels)) => {
                    let (labels, annotations) = (labels.clone(), Arc::default());
                    AlertInput { labels, annotations, value: sample.value }
                }
                Some(slot) => {
                    let input = compiled.input(context, &queries, &sample, false);
                    *slot = Some(input.labels.clone());
                    input
                }
            };
            inputs.push(input);
        }
        let unique = check_unique(inputs.iter().map(|input| &input.labels), "alert");
        unique.map_err(|message| ReplayError::Evaluation { at, message })?;
        preview.alerts.step(at, durations, inputs, Some(&mut transitions));
        let active = preview.alerts.active();
        if group.limit > 0 && active > group.limit {
            // A live evaluation fails and forgets all alerts, those of this step among them.
            transitions = preview.alerts.forget_active(at);
        }
        let room = PREVIEW_TRANSITIONS_MAX.saturating_sub(preview.transitions.len());
        preview.truncated |= transitions.len() > room;
        preview.transitions.extend(transitions.drain(..).take(room));
    }
    Ok(())
}

/// Adds the series of a slice to those of the slices before.
fn add_series(preview: &mut RulePreview, series: Vec<MatrixSeries>) {
    for one in series {
        let place = preview.series.binary_search_by(|have| have.labels.cmp(&one.labels));
        match place {
            Ok(place) => {
                if let Some(have) = preview.series.get_mut(place) {
                    have.samples.extend(one.samples);
                    have.histograms.extend(one.histograms);
                }
            }
            Err(_) if preview.series.len() >= PREVIEW_SERIES_MAX => preview.truncated = true,
            Err(place) => preview.series.insert(place, one),
        }
    }
}

/// Splits steps into slices of at most [`SLICE_STEPS`] steps.
fn slices(steps: Steps) -> impl Iterator<Item = Steps> {
    (0..steps.len()).step_by(SLICE_STEPS).filter_map(move |first| slice(steps, first, SLICE_STEPS))
}

/// Returns at most `most` steps from the one with the index `first` on; `None` after the last step.
fn slice(steps: Steps, first: usize, most: usize) -> Option<Steps> {
    let end = first.saturating_add(most).min(steps.len());
    let last = end.checked_sub(1).filter(|last| first <= *last)?;
    Steps::new(steps.at(first), steps.at(last), steps.step_ms()).ok()
}

fn shifted(steps: Steps, by_ms: i64) -> Result<Steps, StepsError> {
    Steps::new(steps.start().plus_ms(by_ms), steps.end().plus_ms(by_ms), steps.step_ms())
}
