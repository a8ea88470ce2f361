//! Runs a plan over one snapshot: labels first, then series by series over all steps.
//!
//! Every node returns [`LabelledRows`]: its output labels, and one value for each series and step.
//! Only nodes that compare series with one another, such as `topk`, are evaluated step by step.

mod accumulate;
mod aggregate;
mod common_rows;
mod hash;
mod histogram;
mod hooks;
mod info;
mod join;
mod join_labels;
mod kernels;
mod label_keys;
mod match_groups;
mod native;
mod operators;
mod parallel_rows;
mod pushdown;
mod raw_reads;
mod relabel;
mod rows;
mod select;
mod set_operators;
mod sort;
mod start_timestamps;
mod streaming_aggregate;
mod subquery;
mod windows;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::model::{Labels, Matcher, Sample, Stopped, TimeRange, Timestamp, bytes_of};
use crate::tsdb::{Paced, SelectedSeries, Snapshot};

use super::annotations::AnnotationCollector;
use super::budget::{Budget, Charge, Meter};
use super::error::QueryError;
use super::numbers::seconds;
use super::plan::{MatrixNode, Plan, ScalarNode, VectorNode};
use super::query::{Options, Query, QueryResult};
use super::value::{HistogramPoint, MatrixSeries, Value, VectorSample};

use common_rows::{CommonRows, RowRecipe};
use hooks::CostSnapshot;
pub(super) use hooks::{
    CacheLookup, CachedSubquery, EvalCost, Hooks, NodeObserver, SubqueryCache, SubqueryTimes,
};
pub(super) use parallel_rows::scratch_bytes;
pub use raw_reads::RawRead;
pub(super) use raw_reads::raw_reads;
use rows::{ABSENT, Duplicates, Grid, LabelledRows, Point, RowHead, Scalars, is_absent, present};

/// The state that all parts of an evaluation share.
struct Context<'a> {
    snapshot: &'a Snapshot,
    options: &'a Options,
    budget: &'a Budget<'a>,
    meter: Rc<Meter>,
    notes: RefCell<AnnotationCollector>,
    hooks: Hooks<'a>,
    /// Recipes of rows that several aggregations need, and the rows that have been computed.
    shared_recipes: Vec<RowRecipe>,
    common_rows: RefCell<Vec<Rc<CommonRows>>>,
    /// Memory of the label sets of selected series. It is held until the end, because results share
    /// the label sets.
    labels: RefCell<Charge>,
}

/// Evaluates the plan of `query`.
///
/// # Errors
/// Limits, deadline, cancellation, and errors of the expression at any step.
pub(super) fn run(
    plan: &Plan,
    query: &Query,
    snapshot: &Snapshot,
    options: &Options,
    budget: &Budget<'_>,
    hooks: Hooks<'_>,
) -> Result<QueryResult, QueryError> {
    let notes = RefCell::new(AnnotationCollector::default());
    let meter = Meter::new(options.limits, budget);
    let (shared_recipes, common_rows) = (common_rows::shared_recipes(plan), RefCell::default());
    let labels = RefCell::new(meter.charge());
    let context =
        Context { snapshot, options, budget, meter, notes, hooks, shared_recipes, common_rows, labels };
    let steps = query.steps;
    let grid = Grid { start_ms: steps.start().as_ms(), step_ms: steps.step_ms(), len: steps.len() };
    // Compiled patterns stay in memory until the evaluation ends.
    let mut patterns = context.meter.charge();
    patterns.add_bytes(plan.pattern_bytes())?;
    let value = context.value(plan, grid, query.instant)?;
    drop(patterns);
    let stats = context.meter.stats();
    let mut annotations = context.notes.into_inner().finish(&query.text);
    annotations.warnings.extend(snapshot.warnings());
    Ok(QueryResult { value, annotations, stats })
}

impl Context<'_> {
    /// Runs a lookup of series within the budget. If other queries hold the memory that it needs,
    /// waits for it and runs the lookup again. The wait is outside of the lookup, which locks the
    /// series table.
    fn select_paced<T>(&self, select: impl Fn(&Paced<'_>) -> Result<T, Stopped>) -> Result<T, QueryError> {
        loop {
            match self.budget.paced(self.snapshot, Some(&self.meter), &select) {
                Err(QueryError::MemoryBusy { needed, .. }) => self.meter.wait_for(needed, self.budget)?,
                other => return other,
            }
        }
    }

    fn value(&self, plan: &Plan, grid: Grid, instant: bool) -> Result<Value, QueryError> {
        self.budget.check()?;
        let at = Timestamp::from_ms(grid.start_ms);
        match plan {
            Plan::Text(text) => Ok(Value::Text { at, text: text.clone() }),
            Plan::Scalar(node) => {
                let scalars = self.scalar(node, grid)?;
                if instant {
                    let value = scalars.values.first().copied().unwrap_or(f64::NAN);
                    return Ok(Value::Scalar { at, value });
                }
                let samples = samples(grid, &scalars.values);
                let histograms = Vec::new();
                Ok(Value::Matrix(vec![MatrixSeries { labels: Labels::default(), samples, histograms }]))
            }
            Plan::Vector(node) => {
                let mut rows = self.vector(node, grid)?.apply_name_drops()?;
                if !instant {
                    self.meter.has_memory(matrix_bytes(&rows))?;
                }
                let heads = std::mem::take(&mut rows.heads);
                let count = heads.len();
                // Settled labels do not keep the label table of all selected series in memory.
                let labels = heads.into_iter().map(|head| head.labels.settled());
                if instant {
                    let each = size_of::<VectorSample>();
                    self.labels.borrow_mut().add_bytes((count * each) as u64)?;
                    let vector = labels.enumerate().filter_map(|(row, labels)| {
                        let (value, histogram) = match rows.point(row, 0)? {
                            Point::Float(value) => (value, None),
                            Point::Histogram(histogram) => (f64::NAN, Some(Arc::clone(histogram))),
                        };
                        Some(VectorSample { labels, at, value, histogram })
                    });
                    return Ok(Value::Vector(vector.collect()));
                }
                Ok(Value::Matrix(matrix_of(grid, &rows, labels)))
            }
            Plan::Matrix(node) => self.raw_matrix(node, grid).map(Value::Matrix),
        }
    }

    /// Selects series in `range` and charges their label sets until the end of the evaluation.
    fn select_series(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<Vec<SelectedSeries>, QueryError> {
        let found = self.select_paced(|paced| paced.select(matchers, range))?;
        self.charge_labels(&found)?;
        Ok(found)
    }

    /// Charges the label sets of selected series until the end of the evaluation.
    fn charge_labels(&self, found: &[SelectedSeries]) -> Result<(), QueryError> {
        let bytes = Labels::bytes_behind(found.iter().map(|series| &series.labels));
        self.labels.borrow_mut().add_bytes(bytes as u64)
    }

    /// Returns the samples of one window, as stored or as computed by a subquery, in the order of
    /// labels.
    fn raw_matrix(&self, node: &MatrixNode, grid: Grid) -> Result<Vec<MatrixSeries>, QueryError> {
        let mut found: Vec<(RowHead, Vec<Sample>, Vec<HistogramPoint>)> = Vec::new();
        let mut charge = self.meter.charge();
        self.each_series(node, grid, 0, &mut |head, all| {
            let samples = windows::samples(node, grid.start_ms, &all);
            let native = all.native;
            let (from, to) = node.edges(grid.start_ms);
            if node.extension.is_some() && !native.is_empty() {
                let text = "anchored and smoothed range selectors do not support native histograms";
                return Err(QueryError::execution(text));
            }
            charge.add_samples(samples.len())?;
            charge.add_bytes((samples.len() as u64).saturating_mul(16))?;
            let inside = native.times.iter().zip(&native.histograms);
            let inside = inside.filter(|(at, _)| **at > from && **at <= to);
            let mut histograms = Vec::new();
            for (at, histogram) in inside {
                charge.add_samples(rows::samples_of(histogram))?;
                charge.add_bytes(histogram.bytes() as u64)?;
                let (at, value) = (Timestamp::from_ms(*at), Arc::clone(histogram));
                histograms.push(HistogramPoint { at, value });
            }
            if !samples.is_empty() || !histograms.is_empty() {
                found.push((head.clone(), samples, histograms));
            }
            Ok(())
        })?;
        let clean = |head: RowHead| {
            if head.drops_name { rows::labels_without_name(&head.labels) } else { head.labels }.settled()
        };
        let mut series: Vec<MatrixSeries> = found
            .into_iter()
            .map(|(head, samples, histograms)| MatrixSeries { labels: clean(head), samples, histograms })
            .collect();
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        if series.windows(2).any(|pair| pair[0].labels == pair[1].labels) {
            return Err(rows::same_labelset());
        }
        Ok(series)
    }

    fn scalar(&self, node: &ScalarNode, grid: Grid) -> Result<Scalars, QueryError> {
        let filled = |value| Scalars::filled(&self.meter, grid.len, value);
        match node {
            ScalarNode::Number(value) => filled(*value),
            ScalarNode::Time => {
                let mut times = filled(0.0)?;
                for (i, value) in times.values.iter_mut().enumerate() {
                    *value = seconds(grid.at(i));
                }
                Ok(times)
            }
            ScalarNode::Of(vector) => {
                let rows = self.vector(vector, grid)?;
                let mut counts = filled(0.0)?;
                let mut out = filled(f64::NAN)?;
                for (_, row) in rows.iter() {
                    for ((value, count), out) in row.iter().zip(&mut counts.values).zip(&mut out.values) {
                        if !is_absent(*value) {
                            *count += 1.0;
                            *out = if *count > 1.0 { f64::NAN } else { *value };
                        }
                    }
                }
                Ok(out)
            }
            ScalarNode::Negate(inner) => {
                let mut scalars = self.scalar(inner, grid)?;
                scalars.values.iter_mut().for_each(|value| *value = -*value);
                Ok(scalars)
            }
            ScalarNode::Binary(binary) => {
                let mut lhs = self.scalar(&binary.lhs, grid)?;
                let rhs = self.scalar(&binary.rhs, grid)?;
                for (left, right) in lhs.values.iter_mut().zip(&rhs.values) {
                    *left = operators::scalar(binary.op, *left, *right);
                }
                Ok(lhs)
            }
            ScalarNode::MinMax(extreme) => {
                let mut a = self.scalar(&extreme.a, grid)?;
                let b = self.scalar(&extreme.b, grid)?;
                let pick = if extreme.greatest { super::sums::max } else { super::sums::min };
                for (a, b) in a.values.iter_mut().zip(&b.values) {
                    *a = pick(*a, *b);
                }
                Ok(a)
            }
            ScalarNode::StepInvariant(inner) => {
                let once = self.scalar(inner, grid.once())?;
                filled(once.values.first().copied().unwrap_or(f64::NAN))
            }
        }
    }

    fn vector(&self, node: &VectorNode, grid: Grid) -> Result<LabelledRows, QueryError> {
        let Some(observer) = self.hooks.observer else { return self.vector_of(node, grid) };
        let before = CostSnapshot::take(&self.meter);
        let rows = self.vector_of(node, grid)?;
        observer.node_evaluated(std::ptr::from_ref(node).addr(), before.cost(rows.len(), &self.meter));
        Ok(rows)
    }

    fn vector_of(&self, node: &VectorNode, grid: Grid) -> Result<LabelledRows, QueryError> {
        self.budget.check()?;
        if grid.len == 0 {
            return Ok(LabelledRows::new(&self.meter, 0));
        }
        match node {
            VectorNode::Select(selector) => self.select(selector, grid),
            VectorNode::Info(node) => self.info(node, grid),
            VectorNode::From(scalar) => {
                let scalars = self.scalar(scalar, grid)?;
                let mut rows = LabelledRows::with_capacity(&self.meter, 1, grid.len)?;
                let head = RowHead { labels: Labels::default(), drops_name: false };
                rows.push_absent(head).copy_from_slice(&scalars.values);
                rows.finish_last()?;
                Ok(rows)
            }
            VectorNode::StepTimes(arg) => {
                let mut rows = self.vector(arg, grid)?;
                for i in 0..rows.len() {
                    for (step, value) in rows.row_mut(i).iter_mut().enumerate() {
                        if !is_absent(*value) {
                            *value = seconds(grid.at(step));
                        }
                    }
                }
                let rows = native::with_numbers(rows, |step| seconds(grid.at(step)));
                self.drop_names(rows)
            }
            VectorNode::Map { run, arg, .. } => {
                let mut rows = self.vector(arg, grid)?.without_histograms();
                for value in rows.values_mut() {
                    if !is_absent(*value) {
                        *value = run(*value);
                    }
                }
                self.drop_names(rows)
            }
            VectorNode::MapWith { run, arg, params, .. } => {
                let rows = self.vector(arg, grid)?.without_histograms();
                let params = self.params(params, grid)?;
                self.map_with(*run, rows, &params)
            }
            VectorNode::Window(window) => self.window(window, grid),
            VectorNode::Absent { arg, labels } => {
                let rows = self.vector(arg, grid)?;
                self.absent_row(labels, grid, |present| {
                    (0..rows.len()).for_each(|i| rows.mark_present(i, present));
                    Ok(())
                })
            }
            VectorNode::AbsentOverTime { arg, labels } => self.absent_row(labels, grid, |present| {
                self.each_window(arg, grid, &mut |_, step| {
                    present[step] = true;
                    Ok(())
                })
            }),
            VectorNode::Negate(arg) => {
                let mut rows = self.vector(arg, grid)?;
                for value in rows.values_mut() {
                    if !is_absent(*value) {
                        *value = -*value;
                    }
                }
                if rows.has_histograms() {
                    self.negate_native(&mut rows)?;
                }
                self.drop_names(rows)
            }
            VectorNode::MapHistograms { run, arg, .. } => self.map_histograms(*run, self.vector(arg, grid)?),
            VectorNode::WithScalar(node) => self.with_scalar(node, grid),
            VectorNode::Join(node) => self.join(node, grid),
            VectorNode::Aggregate(node) => self.aggregate(node, grid),
            VectorNode::Relabel { arg, relabel } => {
                let rows = self.vector(arg, grid)?;
                self.relabel(rows, relabel)
            }
            VectorNode::Sort { arg, descending, span } => {
                let rows = self.vector(arg, grid)?.without_histograms();
                self.sort(rows, *descending, *span)
            }
            VectorNode::SortByLabel { arg, names, descending, span } => {
                let rows = self.vector(arg, grid)?;
                self.sort_by_label(rows, names, *descending, *span)
            }
            VectorNode::Histogram(node) => self.histogram(node, grid),
            VectorNode::StepInvariant(inner) => {
                self.vector(inner, grid.once())?.repeat(&self.meter, grid.len)
            }
        }
    }

    fn params(&self, params: &[ScalarNode], grid: Grid) -> Result<Vec<Scalars>, QueryError> {
        params.iter().map(|param| self.scalar(param, grid)).collect()
    }

    fn map_with(
        &self,
        run: fn(f64, &[f64]) -> Option<f64>,
        mut rows: LabelledRows,
        params: &[Scalars],
    ) -> Result<LabelledRows, QueryError> {
        let mut params_at_step = vec![0.0; params.len()];
        for step in 0..rows.steps() {
            for (value, scalars) in params_at_step.iter_mut().zip(params) {
                *value = scalars.values[step];
            }
            for i in 0..rows.len() {
                let value = &mut rows.row_mut(i)[step];
                if !is_absent(*value) {
                    *value = run(*value, &params_at_step).unwrap_or(ABSENT);
                }
            }
        }
        rows.drop_empty();
        self.drop_names(rows)
    }

    /// Returns one row with 1 at the steps that `mark` left unmarked.
    fn absent_row(
        &self,
        labels: &Labels,
        grid: Grid,
        mark: impl FnOnce(&mut [bool]) -> Result<(), QueryError>,
    ) -> Result<LabelledRows, QueryError> {
        let mut rows = LabelledRows::with_capacity(&self.meter, 2, grid.len)?;
        let mut present = vec![false; grid.len];
        mark(&mut present)?;
        let row = rows.push_absent(RowHead { labels: labels.clone(), drops_name: false });
        for (value, present) in row.iter_mut().zip(&present) {
            if !present {
                *value = 1.0;
            }
        }
        rows.finish_last()?;
        Ok(rows)
    }

    /// Removes metric names, at once or delayed, as the options say.
    fn drop_names(&self, rows: LabelledRows) -> Result<LabelledRows, QueryError> {
        rows.without_names(self.options.delayed_name_removal, Duplicates::Merge)
    }
}

fn samples(grid: Grid, row: &[f64]) -> Vec<Sample> {
    let present = present(row);
    let mut samples = Vec::with_capacity(present);
    let sample = |(at_ms, value): (i64, &f64)| Sample { at: Timestamp::from_ms(at_ms), value: *value };
    let mut next = grid.start_ms;
    let all = row.iter().map(|value| {
        let at_ms = next;
        next = next.saturating_add(grid.step_ms);
        (at_ms, value)
    });
    if present == row.len() {
        samples.extend(all.map(sample));
    } else {
        samples.extend(all.filter(|(_, value)| !is_absent(**value)).map(sample));
    }
    samples
}

/// Returns the bytes of rows as series, without the memory of the rows themselves.
fn matrix_bytes(rows: &LabelledRows) -> u64 {
    let samples: usize = rows.iter().map(|(_, row)| present(row)).sum();
    bytes_of::<Sample>(samples).saturating_add(bytes_of::<MatrixSeries>(rows.len().saturating_mul(2)))
}

/// Returns the rows as series in the order of their labels.
fn matrix(grid: Grid, rows: &LabelledRows) -> Vec<MatrixSeries> {
    matrix_of(grid, rows, rows.heads.iter().map(|head| head.labels.clone().settled()))
}

/// Returns the rows as series with these `labels`, which belong to the rows in order. The series
/// are in the order of their labels.
fn matrix_of(grid: Grid, rows: &LabelledRows, labels: impl Iterator<Item = Labels>) -> Vec<MatrixSeries> {
    let series = labels.enumerate().map(|(i, labels)| {
        let point = |(step, value): (usize, &Arc<_>)| HistogramPoint {
            at: Timestamp::from_ms(grid.at(step)),
            value: Arc::clone(value),
        };
        let histograms = rows.row_histograms(i).map(point).collect();
        MatrixSeries { labels, samples: samples(grid, rows.row(i)), histograms }
    });
    let mut series: Vec<MatrixSeries> =
        series.filter(|series| !series.samples.is_empty() || !series.histograms.is_empty()).collect();
    series.sort_by(|a, b| a.labels.cmp(&b.labels));
    series
}
