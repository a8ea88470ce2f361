//! `histogram_quantile`, `histogram_fraction` and other functions of native histograms.

use std::collections::HashMap;

use crate::model::Labels;
use crate::promql::error::QueryError;
use crate::promql::eval::rows::{ABSENT, RowHead, is_absent};
use crate::promql::histogram::{FloatHistogram, NanEffect, has_nan_observations};
use crate::promql::plan::HistogramNode;

use super::{Context, LabelledRows};

impl Context<'_> {
    /// Replaces each histogram by a number; floats are removed.
    pub(in crate::promql::eval) fn map_histograms(
        &self,
        run: fn(&FloatHistogram) -> f64,
        mut rows: LabelledRows,
    ) -> Result<LabelledRows, QueryError> {
        rows.values_mut().fill(ABSENT);
        for row in 0..rows.len() {
            self.budget.check()?;
            for step in 0..rows.steps() {
                if let Some(histogram) = rows.take_histogram(row, step) {
                    rows.row_mut(row)[step] = run(&histogram);
                }
            }
        }
        self.drop_names(rows.without_empty())
    }

    /// Adds the results of the native histograms in `rows` to those of the classic ones. A step
    /// that has both for the same labels gets no value and a warning.
    pub(in crate::promql::eval) fn add_native(
        &self,
        node: &HistogramNode,
        rows: &LabelledRows,
        mut classic: LabelledRows,
        of: impl Fn(usize, &FloatHistogram, &RowHead) -> f64,
    ) -> Result<LabelledRows, QueryError> {
        if !rows.has_histograms() {
            return Ok(classic);
        }
        let mut row_of: HashMap<Labels, usize> = HashMap::new();
        row_of.extend(classic.heads.iter().enumerate().map(|(row, head)| (head.labels.clone(), row)));
        for (row, head) in rows.heads.iter().enumerate() {
            self.budget.check()?;
            for (step, histogram) in rows.row_histograms(row) {
                let target_row = match row_of.get(&head.labels) {
                    Some(target_row) => *target_row,
                    None => {
                        classic.push_charged(head.clone())?;
                        row_of.insert(head.labels.clone(), classic.len() - 1);
                        classic.len() - 1
                    }
                };
                classic.heads[target_row].drops_name |= head.drops_name;
                let target = &mut classic.row_mut(target_row)[step];
                if is_absent(*target) {
                    *target = of(step, histogram, head);
                } else {
                    *target = ABSENT;
                    let name = head.labels.metric_name();
                    let about =
                        if name.is_empty() { String::new() } else { format!(" for metric name {name:?}") };
                    let text = format!("vector contains a mix of classic and native histograms{about}");
                    self.notes.borrow_mut().warn(node.arg_span, text);
                }
            }
        }
        classic.finish_all()?;
        Ok(classic)
    }

    /// Returns ` for metric name "x"` if the name is known after the function, else an empty text.
    fn of_metric(&self, head: &RowHead) -> String {
        let name = head.labels.metric_name();
        let known = self.options.delayed_name_removal && !name.is_empty();
        if known { format!(" for metric name {name:?}") } else { String::new() }
    }

    pub(in crate::promql::eval) fn native_quantile(
        &self,
        node: &HistogramNode,
        q: f64,
        histogram: &FloatHistogram,
        head: &RowHead,
    ) -> f64 {
        let found = histogram.quantile(q);
        let what = match found.nan {
            NanEffect::None => return found.value,
            NanEffect::Skews => "result is skewed higher",
            NanEffect::IsResult => "result is NaN",
        };
        let of = self.of_metric(head);
        let text = format!("input to histogram_quantile has NaN observations, {what}{of}");
        self.notes.borrow_mut().info(node.arg_span, text);
        found.value
    }

    pub(in crate::promql::eval) fn native_fraction(
        &self,
        node: &HistogramNode,
        lower: f64,
        upper: f64,
        histogram: &FloatHistogram,
        head: &RowHead,
    ) -> f64 {
        let is_computed = histogram.count() != 0.0 && lower < upper;
        if is_computed && has_nan_observations(histogram) {
            let of = self.of_metric(head);
            let text =
                "input to histogram_fraction has NaN observations, which are excluded from all fractions";
            self.notes.borrow_mut().info(node.arg_span, format!("{text}{of}"));
        }
        histogram.fraction(lower, upper)
    }
}
