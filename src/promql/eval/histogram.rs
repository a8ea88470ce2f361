//! `histogram_quantile` and its kin over classic buckets: groups and bounds once, then step by step.

use std::collections::HashMap;

use crate::model::Labels;
use crate::promql::QueryError;
use crate::promql::annotations::BucketFixes;
use crate::promql::functions::ParamCheck;
use crate::promql::functions::histogram::{ClassicBucket, MonotonicFix, fraction, quantile, quantiles};
use crate::promql::functions::over_time::{check_quantile, go_float};
use crate::promql::plan::{HistogramFunction, HistogramNode};

use super::Context;
use super::rows::{Duplicates, Grid, Head, Rows, Scalars, is_absent};

/// The label with a bucket's upper bound.
const BOUND: &str = "le";

/// The buckets of one histogram: which rows they are, ascending in bound.
struct Histogram {
    head: Head,
    buckets: Vec<(f64, usize)>,
}

impl Context<'_> {
    pub(super) fn histogram(&self, node: &HistogramNode, grid: Grid) -> Result<Rows, QueryError> {
        let rows = self.vector(&node.arg, grid)?;
        let histograms = self.histograms(&rows, node);
        let delayed = self.options.delayed_name_removal;
        let quantiles = |q: &Scalars| {
            self.warn_of_quantile(q, node);
            let of = |step: usize, buckets: &mut Vec<ClassicBucket>| quantile(q.values[step], buckets);
            let many = |buckets: &[(f64, &[f64])], row: &mut [f64], told: &mut [bool]| {
                quantiles(&q.values, buckets, row, told);
            };
            let classic = self.each_histogram(&rows, &histograms, grid, (many, of), node)?;
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
                let of = |step: usize, buckets: &mut Vec<ClassicBucket>| {
                    (fraction(lower.values[step], upper.values[step], buckets), None)
                };
                let none = |_: &[(f64, &[f64])], _: &mut [f64], _: &mut [bool]| {};
                let classic = self.each_histogram(&rows, &histograms, grid, (none, of), node)?;
                let out = self.add_native(node, &rows, classic, |step, histogram, head| {
                    self.native_fraction(node, (lower.values[step], upper.values[step]), histogram, head)
                })?;
                out.without_names(delayed, Duplicates::Merge)
            }
            HistogramFunction::Quantiles { label, qs } => {
                let mut all = Rows::new(&self.meter, grid.len);
                for q in qs {
                    let q = self.scalar(q, grid)?;
                    for (head, row) in quantiles(&q)?.iter() {
                        place_quantiles(&mut all, head, label, row, &q)?;
                    }
                    all.settle_all()?;
                }
                all.merged(Duplicates::Merge)?.without_names(delayed, Duplicates::Merge)
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

    /// Groups rows by everything but their bound.
    fn histograms(&self, rows: &Rows, node: &HistogramNode) -> Vec<Histogram> {
        let mut places: HashMap<Labels, usize> = HashMap::new();
        let mut histograms: Vec<Histogram> = Vec::new();
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
            let place = *places.entry(labels.clone()).or_insert(histograms.len());
            if place == histograms.len() {
                histograms.push(Histogram {
                    head: Head { labels, drops_name: head.drops_name },
                    buckets: Vec::new(),
                });
            }
            histograms[place].head.drops_name |= head.drops_name;
            histograms[place].buckets.push((le, i));
        }
        for histogram in &mut histograms {
            histogram.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        histograms
    }

    /// A row for each histogram: `many` tells what it can of all steps and which those are, `of` one of the others.
    fn each_histogram(
        &self,
        rows: &Rows,
        histograms: &[Histogram],
        grid: Grid,
        (many, mut of): (
            impl Fn(&[(f64, &[f64])], &mut [f64], &mut [bool]),
            impl FnMut(usize, &mut Vec<ClassicBucket>) -> (f64, Option<MonotonicFix>),
        ),
        node: &HistogramNode,
    ) -> Result<Rows, QueryError> {
        let mut out = Rows::with_room(&self.meter, histograms.len(), grid.len)?;
        let (mut buckets, mut bounded, mut told) = (Vec::new(), Vec::new(), Vec::new());
        for histogram in histograms {
            self.budget.check()?;
            bounded.clear();
            bounded.extend(histogram.buckets.iter().map(|(le, row)| (*le, rows.row(*row))));
            let row = out.push_absent(histogram.head.clone());
            told.clear();
            told.resize(row.len(), false);
            many(&bounded, row, &mut told);
            for (step, result) in row.iter_mut().enumerate().filter(|(step, _)| !told[*step]) {
                let at_step =
                    bounded.iter().map(|(le, counts)| ClassicBucket { le: *le, count: counts[step] });
                buckets.clear();
                buckets.extend(at_step.filter(|bucket| !is_absent(bucket.count)));
                if buckets.is_empty() {
                    continue;
                }
                let (value, lifted) = of(step, &mut buckets);
                *result = value;
                if let Some(MonotonicFix { lowest, highest, max_difference }) = lifted {
                    let at = grid.at(step);
                    let fixes =
                        BucketFixes { lowest, highest, max_difference, first_ms: at, last_ms: at, count: 1 };
                    let name = histogram.head.labels.metric_name();
                    self.notes.borrow_mut().fixed_buckets(node.arg_span, name, fixes);
                }
            }
            out.settle_last()?;
        }
        Ok(out)
    }
}

/// Adds a row for each run of equal quantiles; the label tells which. A quantile that comes back is merged later.
fn place_quantiles(
    all: &mut Rows,
    head: &Head,
    label: &str,
    row: &[f64],
    q: &Scalars,
) -> Result<(), QueryError> {
    let mut told: Option<f64> = None;
    for (step, value) in row.iter().enumerate().filter(|(_, value)| !is_absent(**value)) {
        let q = q.values[step];
        if told.is_none_or(|told| told.to_bits() != q.to_bits()) {
            let mut builder = head.labels.to_builder();
            builder.set(label, metrics_float(q));
            all.push_paid(Head { labels: builder.build(), drops_name: head.drops_name })?;
            told = Some(q);
        }
        let last = all.len() - 1;
        all.row_mut(last)[step] = *value;
    }
    Ok(())
}

/// A number as OpenMetrics writes it: never without a fraction or an exponent.
fn metrics_float(value: f64) -> String {
    let text = go_float(value);
    if value.is_finite() && !text.contains(['.', 'e']) { text + ".0" } else { text }
}
