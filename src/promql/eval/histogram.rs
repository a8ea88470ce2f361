//! `histogram_quantile` and similar functions over classic buckets: buckets are grouped once, then
//! evaluated step by step.

use std::collections::HashMap;

use crate::model::Labels;
use crate::promql::annotations::BucketFixes;
use crate::promql::error::QueryError;
use crate::promql::functions::ParamCheck;
use crate::promql::functions::histogram::{ClassicBucket, MonotonicFix, fraction, quantile, quantiles};
use crate::promql::functions::over_time::check_quantile;
use crate::promql::numbers::go_float;
use crate::promql::plan::{HistogramFunction, HistogramNode};

use super::Context;
use super::rows::{Duplicates, Grid, LabelledRows, RowHead, Scalars, is_absent};

/// The label with a bucket's upper bound, inclusive.
const BOUND: &str = "le";

/// A function of classic buckets, for all steps of a histogram at once and for a single step.
struct BucketFunction<A, S> {
    /// Receives bounds and rows of the buckets, fills the output row and marks the steps that it
    /// computed.
    all_steps: A,
    /// Receives a step and its buckets. Returns the value, and how non-monotonic counts were fixed.
    single: S,
}

/// A classic histogram: its labels without `le`, and bound and row of each bucket in ascending
/// order of bounds.
struct ClassicHistogram {
    head: RowHead,
    buckets: Vec<(f64, usize)>,
}

impl Context<'_> {
    pub(super) fn histogram(&self, node: &HistogramNode, grid: Grid) -> Result<LabelledRows, QueryError> {
        let rows = self.vector(&node.arg, grid)?;
        let histograms = self.histograms(&rows, node);
        let delayed = self.options.delayed_name_removal;
        let quantiles = |q: &Scalars| {
            self.warn_of_quantile(q, node);
            let single = |step: usize, buckets: &mut Vec<ClassicBucket>| quantile(q.values[step], buckets);
            let all_steps = |buckets: &[(f64, &[f64])], row: &mut [f64], done: &mut [bool]| {
                quantiles(&q.values, buckets, row, done);
            };
            let classic =
                self.each_histogram(&rows, &histograms, grid, BucketFunction { all_steps, single }, node)?;
            self.add_native(node, &rows, classic, |step, histogram, head| {
                self.native_quantile(node, q.values[step], histogram, head)
            })
        };
        match &node.function {
            HistogramFunction::Quantile(q) => {
                let q = self.scalar(q, grid)?;
                quantiles(&q)?.without_names(delayed, Duplicates::Merge)
            }
            HistogramFunction::Fraction { lower, upper } => {
                let (lower, upper) = (self.scalar(lower, grid)?, self.scalar(upper, grid)?);
                let single = |step: usize, buckets: &mut Vec<ClassicBucket>| {
                    (fraction(lower.values[step], upper.values[step], buckets), None)
                };
                let none = |_: &[(f64, &[f64])], _: &mut [f64], _: &mut [bool]| {};
                let classic = self.each_histogram(
                    &rows,
                    &histograms,
                    grid,
                    BucketFunction { all_steps: none, single },
                    node,
                )?;
                let out = self.add_native(node, &rows, classic, |step, histogram, head| {
                    self.native_fraction(node, lower.values[step], upper.values[step], histogram, head)
                })?;
                out.without_names(delayed, Duplicates::Merge)
            }
            HistogramFunction::Quantiles { label, qs } => {
                let mut all = LabelledRows::new(&self.meter, grid.len);
                for q in qs {
                    let q = self.scalar(q, grid)?;
                    for (head, row) in quantiles(&q)?.iter() {
                        add_quantile_rows(&mut all, head, label, row, &q)?;
                    }
                    all.finish_all()?;
                }
                all.merge_duplicates(Duplicates::Merge)?.without_names(delayed, Duplicates::Merge)
            }
        }
    }

    fn warn_of_quantile(&self, q: &Scalars, node: &HistogramNode) {
        for q in &q.values {
            if let ParamCheck::Warn(text) = check_quantile(&[*q]) {
                self.notes.borrow_mut().warn(node.param_span, text);
            }
        }
    }

    /// Groups rows by all labels except `le`. Warns of rows whose bound is missing or malformed.
    fn histograms(&self, rows: &LabelledRows, node: &HistogramNode) -> Vec<ClassicHistogram> {
        let mut index_of: HashMap<Labels, usize> = HashMap::new();
        let mut histograms: Vec<ClassicHistogram> = Vec::new();
        for (i, head) in rows.heads.iter().enumerate() {
            if rows.has_histograms() && !Self::has_floats(rows, i) {
                continue;
            }
            let bound = head.labels.value(BOUND);
            let Ok(le) = bound.parse::<f64>() else {
                let name = head.labels.metric_name();
                let of = if name.is_empty() { String::new() } else { format!(" for metric name {name:?}") };
                let text =
                    format!("bucket label \"le\" is missing or has a malformed value of {bound:?}{of}");
                self.notes.borrow_mut().warn(node.arg_span, text);
                continue;
            };
            let labels = head.labels.filtered(|name| name != BOUND);
            let index = *index_of.entry(labels.clone()).or_insert(histograms.len());
            if index == histograms.len() {
                histograms.push(ClassicHistogram {
                    head: RowHead { labels, drops_name: head.drops_name },
                    buckets: Vec::new(),
                });
            }
            histograms[index].head.drops_name |= head.drops_name;
            histograms[index].buckets.push((le, i));
        }
        for histogram in &mut histograms {
            histogram.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        histograms
    }

    /// Computes a row for each histogram. `all_steps` computes as many steps as it can and marks
    /// them; `single` computes each of the others.
    fn each_histogram(
        &self,
        rows: &LabelledRows,
        histograms: &[ClassicHistogram],
        grid: Grid,
        BucketFunction { all_steps, mut single }: BucketFunction<
            impl Fn(&[(f64, &[f64])], &mut [f64], &mut [bool]),
            impl FnMut(usize, &mut Vec<ClassicBucket>) -> (f64, Option<MonotonicFix>),
        >,
        node: &HistogramNode,
    ) -> Result<LabelledRows, QueryError> {
        let mut out = LabelledRows::with_capacity(&self.meter, histograms.len(), grid.len)?;
        let (mut buckets, mut bounded, mut done) = (Vec::new(), Vec::new(), Vec::new());
        for histogram in histograms {
            self.budget.check()?;
            bounded.clear();
            bounded.extend(histogram.buckets.iter().map(|(le, row)| (*le, rows.row(*row))));
            let row = out.push_absent(histogram.head.clone());
            done.clear();
            done.resize(row.len(), false);
            all_steps(&bounded, row, &mut done);
            for (step, result) in row.iter_mut().enumerate().filter(|(step, _)| !done[*step]) {
                let at_step =
                    bounded.iter().map(|(le, counts)| ClassicBucket { le: *le, count: counts[step] });
                buckets.clear();
                buckets.extend(at_step.filter(|bucket| !is_absent(bucket.count)));
                if buckets.is_empty() {
                    continue;
                }
                let (value, lifted) = single(step, &mut buckets);
                *result = value;
                if let Some(MonotonicFix { lowest, highest, max_difference }) = lifted {
                    let at = grid.at(step);
                    let fixes =
                        BucketFixes { lowest, highest, max_difference, first_ms: at, last_ms: at, count: 1 };
                    let name = histogram.head.labels.metric_name();
                    self.notes.borrow_mut().fixed_buckets(node.arg_span, name, fixes);
                }
            }
            out.finish_last()?;
        }
        Ok(out)
    }
}

/// Adds a row for each run of steps with equal `q`, which becomes the value of `label`. Rows of a
/// `q` that recurs are merged by the caller.
fn add_quantile_rows(
    all: &mut LabelledRows,
    head: &RowHead,
    label: &str,
    row: &[f64],
    q: &Scalars,
) -> Result<(), QueryError> {
    let mut done: Option<f64> = None;
    for (step, value) in row.iter().enumerate().filter(|(_, value)| !is_absent(**value)) {
        let q = q.values[step];
        if done.is_none_or(|done| done.to_bits() != q.to_bits()) {
            let mut builder = head.labels.to_builder();
            builder.set(label, metrics_float(q));
            all.push_charged(RowHead { labels: builder.build(), drops_name: head.drops_name })?;
            done = Some(q);
        }
        let last = all.len() - 1;
        all.row_mut(last)[step] = *value;
    }
    Ok(())
}

/// Formats a number as OpenMetrics does: always with a fraction or an exponent.
fn metrics_float(value: f64) -> String {
    let text = go_float(value);
    if value.is_finite() && !text.contains(['.', 'e']) { text + ".0" } else { text }
}
