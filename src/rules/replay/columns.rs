//! The result of an expression over steps, read step by step.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ReplayError;
use crate::model::{Labels, Sample, Steps, Timestamp};
use crate::promql::syntax::tree::{AtModifier, DurationExpr, Expr, Extension, VectorSelector};
use crate::promql::{HistogramPoint, MatrixSeries, Value, VectorSample};
use crate::rules::run::{CompiledRule, RuleContext, exceeded_limit, same_labels};
use crate::tsdb::Snapshot;

/// The result of an expression over steps.
pub(super) struct ResultColumns {
    steps: Steps,
    series: Vec<MatrixSeries>,
}

impl ResultColumns {
    /// Returns the number of series.
    pub(super) fn len(&self) -> usize {
        self.series.len()
    }

    /// Iterates over the samples at a step, each with the place of its series.
    pub(super) fn at(&self, step: usize) -> impl Iterator<Item = (usize, VectorSample)> {
        let at = self.steps.at(step);
        self.series.iter().enumerate().filter_map(move |(place, series)| {
            let labels = || series.labels.clone();
            if let Ok(found) = series.samples.binary_search_by_key(&at, |sample| sample.at) {
                let value = series.samples.get(found)?.value;
                return Some((place, VectorSample { labels: labels(), at, value, histogram: None }));
            }
            let found = series.histograms.binary_search_by_key(&at, |point| point.at).ok()?;
            let histogram = series.histograms.get(found).map(|point| Arc::clone(&point.value));
            Some((place, VectorSample { labels: labels(), at, value: 0.0, histogram }))
        })
    }

    /// Returns a sample of each series, of which only the labels count.
    fn one_sample_each(&self) -> Vec<VectorSample> {
        let at = self.steps.start();
        let sample = |series: &MatrixSeries| VectorSample {
            labels: series.labels.clone(),
            at,
            value: 0.0,
            histogram: None,
        };
        self.series.iter().map(sample).collect()
    }

    /// Returns the series as a recording rule writes them, by their labels. `limit` is the most
    /// series of a step; 0: any number.
    ///
    /// # Errors
    /// A step at which a live evaluation would fail.
    pub(super) fn into_written(
        self,
        compiled: &CompiledRule,
        limit: usize,
    ) -> Result<BTreeMap<Labels, MatrixSeries>, ReplayError> {
        let mut written: BTreeMap<Labels, MatrixSeries> = BTreeMap::new();
        let renamed = compiled.renamed(self.one_sample_each());
        for (VectorSample { labels, .. }, one) in renamed.into_iter().zip(self.series) {
            let MatrixSeries { samples, histograms, .. } = one;
            let empty = || MatrixSeries { labels: labels.clone(), samples: vec![], histograms: vec![] };
            let series = written.entry(labels.clone()).or_insert_with(empty);
            // At other steps, another series may get the same labels.
            series.samples.extend(samples);
            series.histograms.extend(histograms);
        }
        let mut counts: BTreeMap<Timestamp, usize> = BTreeMap::new();
        for series in written.values_mut() {
            series.samples.sort_by_key(|sample| sample.at);
            series.histograms.sort_by_key(|point| point.at);
            let times = times_of(&series.samples, &series.histograms);
            let twice = times.windows(2).find_map(|two| match two {
                [a, b] if a == b => Some(*a),
                _ => None,
            });
            if let Some(at) = twice {
                return Err(ReplayError::Evaluation { at, message: same_labels("rule") });
            }
            if limit > 0 {
                times.into_iter().for_each(|at| *counts.entry(at).or_default() += 1);
            }
        }
        match counts.into_iter().find(|(_, count)| *count > limit) {
            Some((at, count)) => {
                Err(ReplayError::Evaluation { at, message: exceeded_limit(limit, count, "series") })
            }
            None => Ok(written),
        }
    }

    /// Returns the series, with the name and the labels of a recording rule, sorted by labels.
    /// `limit` is that of [`ResultColumns::into_written`].
    ///
    /// # Errors
    /// A step at which a live evaluation of a recording rule would fail.
    pub(super) fn into_recorded(
        self,
        compiled: &CompiledRule,
        limit: usize,
    ) -> Result<Vec<MatrixSeries>, ReplayError> {
        if compiled.durations().is_some() {
            return Ok(self.series);
        }
        Ok(self.into_written(compiled, limit)?.into_values().collect())
    }
}

/// Returns the times of all samples of a series, in their order.
pub(super) fn times_of(samples: &[Sample], histograms: &[HistogramPoint]) -> Vec<Timestamp> {
    let floats = samples.iter().map(|sample| sample.at);
    let mut times: Vec<Timestamp> = floats.chain(histograms.iter().map(|point| point.at)).collect();
    times.sort_unstable();
    times
}

/// Evaluates the expression of a rule at all steps.
pub(super) fn evaluate(
    compiled: &CompiledRule,
    context: RuleContext<'_>,
    snapshot: &Snapshot,
    steps: Steps,
    step_by_step: bool,
) -> Result<ResultColumns, ReplayError> {
    let failed = |at: Timestamp| move |message: String| ReplayError::Evaluation { at, message };
    if !step_by_step {
        let value = compiled.range(context, snapshot, steps).map_err(failed(steps.start()))?;
        let Value::Matrix(series) = value else {
            return Err(failed(steps.start())("rule result is not a vector or scalar".to_owned()));
        };
        return Ok(ResultColumns { steps, series });
    }
    let mut series: BTreeMap<Labels, MatrixSeries> = BTreeMap::new();
    for at in steps.iter() {
        for sample in compiled.result(context, snapshot, at).map_err(failed(at))? {
            let VectorSample { labels, value, histogram, .. } = sample;
            let empty = || MatrixSeries { labels: labels.clone(), samples: vec![], histograms: vec![] };
            let one = series.entry(labels.clone()).or_insert_with(empty);
            match histogram {
                Some(value) => one.histograms.push(HistogramPoint { at, value }),
                None => one.samples.push(Sample { at, value }),
            }
        }
    }
    Ok(ResultColumns { steps, series: series.into_values().collect() })
}

/// Returns whether the result at a step depends on the range of the query.
pub(super) fn depends_on_range(expr: &Expr) -> bool {
    let at = |at: Option<&AtModifier>| at.is_some_and(|at| !matches!(at, AtModifier::Time(_)));
    let computed = |duration: &DurationExpr| matches!(duration, DurationExpr::Computed(_));
    expr.nodes().any(|node| match node {
        Expr::Vector(selector) => at(selector.at.as_ref()) || computed(&selector.offset),
        Expr::Matrix(matrix) => {
            let selector = &matrix.selector;
            at(selector.at.as_ref()) || computed(&selector.offset) || computed(&matrix.range)
        }
        Expr::Subquery(subquery) => {
            at(subquery.at.as_ref())
                || computed(&subquery.offset)
                || computed(&subquery.range)
                || subquery.step.as_ref().is_some_and(computed)
        }
        _ => false,
    })
}

/// Returns whether an evaluation may read samples of later times.
pub(super) fn reads_ahead(expr: &Expr) -> bool {
    let at = |at: Option<&AtModifier>| matches!(at, Some(AtModifier::Time(_)));
    let offset = |offset: &DurationExpr| !matches!(offset, DurationExpr::Fixed(ms) if *ms >= 0);
    let selector = |selector: &VectorSelector| {
        let is_smoothed = selector.extension == Some(Extension::Smoothed);
        is_smoothed || at(selector.at.as_ref()) || offset(&selector.offset)
    };
    expr.nodes().any(|node| match node {
        Expr::Vector(vector) => selector(vector),
        Expr::Matrix(matrix) => selector(&matrix.selector),
        Expr::Subquery(subquery) => at(subquery.at.as_ref()) || offset(&subquery.offset),
        _ => false,
    })
}
