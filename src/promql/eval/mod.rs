//! Runs a plan over one snapshot: labels first, then series by series over all steps.
//!
//! Every node answers [`Rows`]: output labels once, and one value for each series and step. Nothing here is evaluated
//! step by step but what must compare series with one another, such as `topk`.

mod accumulate;
mod aggregate;
mod hash;
mod histogram;
mod included;
mod info;
mod join;
mod kept;
mod kernels;
mod keyed;
mod native;
mod operators;
mod parallel_rows;
mod peel;
mod relabel;
mod rows;
mod select;
mod sort;
mod starts;
mod streaming_aggregate;
mod subquery;
mod windows;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::model::{Labels, Matcher, Sample, Stopped, TimeRange, Timestamp, bytes_of};
use crate::tsdb::{Paced, SelectedSeries, Snapshot};

use super::annotations::AnnotationCollector;
use super::budget::{Charge, Meter};
use super::cache::SubqueryCache;
use super::explain::Trace;
use super::functions::seconds;
use super::plan::{MatrixNode, Plan, ScalarNode, VectorNode};
use super::{
    Budget, HistogramPoint, MatrixSeries, Options, Query, QueryError, QueryResult, Value, VectorSample,
};

use kept::{Kept, Way};
pub(super) use parallel_rows::scratch_bytes;
use rows::{ABSENT, Duplicates, Grid, Head, Point, Rows, Scalars, is_absent, present};

/// What every part of an evaluation needs.
struct Context<'a> {
    snapshot: &'a Snapshot,
    options: &'a Options,
    budget: &'a Budget<'a>,
    meter: Rc<Meter>,
    notes: RefCell<AnnotationCollector>,
    /// Where an explanation is asked for: what each node did.
    trace: Option<&'a Trace>,
    /// Where subqueries may be kept: what is kept of them.
    subqueries: Option<&'a SubqueryCache<'a>>,
    /// How rows are made that more than one aggregation asks for, and those that are there.
    repeated: Vec<Way>,
    kept: RefCell<Vec<Rc<Kept>>>,
    /// What the label sets of selected series hold: until the end, since results share them.
    labels: RefCell<Charge>,
}

/// Who stands beside an evaluation; nobody by default.
#[derive(Clone, Copy, Default)]
pub(super) struct Beside<'a> {
    pub(super) trace: Option<&'a Trace>,
    pub(super) subqueries: Option<&'a SubqueryCache<'a>>,
}

/// Evaluates what was planned for `query` with these options.
pub(super) fn run(
    plan: &Plan,
    query: &Query,
    (snapshot, options, budget): (&Snapshot, &Options, &Budget<'_>),
    beside: Beside<'_>,
) -> Result<QueryResult, QueryError> {
    let notes = RefCell::new(AnnotationCollector::default());
    let meter = Meter::new(options.limits, budget);
    let (repeated, kept) = (kept::repeated(plan), RefCell::default());
    let Beside { trace, subqueries } = beside;
    let labels = RefCell::new(meter.charge());
    let context =
        Context { snapshot, options, budget, meter, notes, trace, subqueries, repeated, kept, labels };
    let steps = query.steps;
    let grid = Grid { start_ms: steps.start().as_ms(), step_ms: steps.step_ms(), len: steps.len() };
    // Compiled expressions are held from before the evaluation to its end.
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
    /// Looks for series within the budget. Where other queries hold the memory, waits for it outside of the selection,
    /// which locks the series table, and selects again.
    fn find<T>(&self, look: impl Fn(&Paced<'_>) -> Result<T, Stopped>) -> Result<T, QueryError> {
        loop {
            match self.budget.paced(self.snapshot, Some(&self.meter), &look) {
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
                let mut rows = self.vector(node, grid)?.clean()?;
                if !instant {
                    self.meter.has_memory(matrix_bytes(&rows))?;
                }
                let heads = std::mem::take(&mut rows.heads);
                let count = heads.len();
                // A few of many series do not keep what all of them are called.
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
            Plan::Matrix(node) => self.raw(node, grid).map(Value::Matrix),
        }
    }

    /// Selects series, and charges their label sets until the end of the evaluation.
    fn selected(&self, matchers: &[Matcher], range: TimeRange) -> Result<Vec<SelectedSeries>, QueryError> {
        let found = self.find(|paced| paced.select(matchers, range))?;
        self.charge_labels(&found)?;
        Ok(found)
    }

    /// Charges the label sets of selected series until the end of the evaluation.
    fn charge_labels(&self, found: &[SelectedSeries]) -> Result<(), QueryError> {
        let bytes = Labels::bytes_behind(found.iter().map(|series| &series.labels));
        self.labels.borrow_mut().add_bytes(bytes as u64)
    }

    /// The samples of one window as they are stored, or as a subquery computes them.
    fn raw(&self, node: &MatrixNode, grid: Grid) -> Result<Vec<MatrixSeries>, QueryError> {
        let mut found: Vec<(Head, Vec<Sample>, Vec<HistogramPoint>)> = Vec::new();
        let mut charge = self.meter.charge();
        self.each_series(node, grid, 0, &mut |head, all| {
            let samples = windows::samples(node, grid.start_ms, &all);
            let native = all.native;
            let (from, to) = node.edges(grid.start_ms);
            if node.extension.is_some() && !native.is_empty() {
                let text = "anchored and smoothed modifiers are not supported with histograms here";
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
        let clean =
            |head: Head| if head.drops_name { rows::nameless(&head.labels) } else { head.labels }.settled();
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
                let pick =
                    if extreme.greatest { super::functions::sums::max } else { super::functions::sums::min };
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

    fn vector(&self, node: &VectorNode, grid: Grid) -> Result<Rows, QueryError> {
        let Some(trace) = self.trace else { return self.vector_of(node, grid) };
        let before = trace.enter(&self.meter);
        let rows = self.vector_of(node, grid)?;
        trace.leave(std::ptr::from_ref(node).addr(), before, rows.len(), &self.meter);
        Ok(rows)
    }

    fn vector_of(&self, node: &VectorNode, grid: Grid) -> Result<Rows, QueryError> {
        self.budget.check()?;
        if grid.len == 0 {
            return Ok(Rows::new(&self.meter, 0));
        }
        match node {
            VectorNode::Select(selector) => self.select(selector, grid),
            VectorNode::Info(node) => self.info(node, grid),
            VectorNode::From(scalar) => {
                let scalars = self.scalar(scalar, grid)?;
                let mut rows = Rows::with_room(&self.meter, 1, grid.len)?;
                let head = Head { labels: Labels::default(), drops_name: false };
                rows.push_absent(head).copy_from_slice(&scalars.values);
                rows.settle_last()?;
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
                let rows = native::numbered(rows, |step| seconds(grid.at(step)));
                self.unnamed(rows)
            }
            VectorNode::Map { run, arg, .. } => {
                let mut rows = self.vector(arg, grid)?.without_histograms();
                for value in rows.values_mut() {
                    if !is_absent(*value) {
                        *value = run(*value);
                    }
                }
                self.unnamed(rows)
            }
            VectorNode::MapWith { run, arg, params, .. } => {
                let rows = self.vector(arg, grid)?.without_histograms();
                let params = self.params(params, grid)?;
                self.map_with(*run, rows, &params)
            }
            VectorNode::Window(window) => self.window(window, grid),
            VectorNode::Absent { arg, labels } => {
                let rows = self.vector(arg, grid)?;
                self.where_absent(labels, grid, |present| {
                    (0..rows.len()).for_each(|i| rows.mark_present(i, present));
                    Ok(())
                })
            }
            VectorNode::AbsentOverTime { arg, labels } => self.where_absent(labels, grid, |present| {
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
                self.unnamed(rows)
            }
            VectorNode::MapHistograms { run, arg, .. } => self.of_histograms(*run, self.vector(arg, grid)?),
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
                self.vector(inner, grid.once())?.repeated(&self.meter, grid.len)
            }
        }
    }

    fn params(&self, params: &[ScalarNode], grid: Grid) -> Result<Vec<Scalars>, QueryError> {
        params.iter().map(|param| self.scalar(param, grid)).collect()
    }

    fn map_with(
        &self,
        run: fn(f64, &[f64]) -> Option<f64>,
        mut rows: Rows,
        params: &[Scalars],
    ) -> Result<Rows, QueryError> {
        let mut at_step = vec![0.0; params.len()];
        for step in 0..rows.steps() {
            for (value, scalars) in at_step.iter_mut().zip(params) {
                *value = scalars.values[step];
            }
            for i in 0..rows.len() {
                let value = &mut rows.row_mut(i)[step];
                if !is_absent(*value) {
                    *value = run(*value, &at_step).unwrap_or(ABSENT);
                }
            }
        }
        rows.drop_empty();
        self.unnamed(rows)
    }

    /// One row of ones where `mark` left a step unmarked.
    fn where_absent(
        &self,
        labels: &Labels,
        grid: Grid,
        mark: impl FnOnce(&mut [bool]) -> Result<(), QueryError>,
    ) -> Result<Rows, QueryError> {
        let mut rows = Rows::with_room(&self.meter, 2, grid.len)?;
        let mut present = vec![false; grid.len];
        mark(&mut present)?;
        let row = rows.push_absent(Head { labels: labels.clone(), drops_name: false });
        for (value, present) in row.iter_mut().zip(&present) {
            if !present {
                *value = 1.0;
            }
        }
        rows.settle_last()?;
        Ok(rows)
    }

    /// Takes the names off.
    fn unnamed(&self, rows: Rows) -> Result<Rows, QueryError> {
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

/// What rows take as series, beside the rows.
fn matrix_bytes(rows: &Rows) -> u64 {
    let samples: usize = rows.iter().map(|(_, row)| present(row)).sum();
    bytes_of::<Sample>(samples).saturating_add(bytes_of::<MatrixSeries>(rows.len().saturating_mul(2)))
}

/// Rows as series, in the order of their labels.
fn matrix(grid: Grid, rows: &Rows) -> Vec<MatrixSeries> {
    matrix_of(grid, rows, rows.heads.iter().map(|head| head.labels.clone().settled()))
}

/// The same with labels that were taken from the rows.
fn matrix_of(grid: Grid, rows: &Rows, labels: impl Iterator<Item = Labels>) -> Vec<MatrixSeries> {
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
