//! `histogram_quantile`, `histogram_fraction` and what else is asked of a vector's histograms.

use std::collections::HashMap;

use crate::model::Labels;
use crate::promql::eval::rows::{ABSENT, Head, is_absent};
use crate::promql::histogram::{NanEffect, has_nan_observations};
use crate::promql::plan::HistogramNode;
use crate::promql::{FloatHistogram, QueryError};

use super::{Context, Rows};

impl Context<'_> {
    /// One number out of each histogram; floats have none.
    pub(in crate::promql::eval) fn of_histograms(
        &self,
        run: fn(&FloatHistogram) -> f64,
        mut rows: Rows,
    ) -> Result<Rows, QueryError> {
        rows.values_mut().fill(ABSENT);
        for row in 0..rows.len() {
            self.budget.check()?;
            for step in 0..rows.steps() {
                if let Some(histogram) = rows.take_histogram(row, step) {
                    rows.row_mut(row)[step] = run(&histogram);
                }
            }
        }
        self.unnamed(rows.without_empty())
    }

    /// Adds to what classic histograms came to what the native ones of `rows` do. Where both of the same labels are there,
    /// neither is answered.
    pub(in crate::promql::eval) fn add_native(
        &self,
        node: &HistogramNode,
        rows: &Rows,
        mut classic: Rows,
        of: impl Fn(usize, &FloatHistogram, &Head) -> f64,
    ) -> Result<Rows, QueryError> {
        if !rows.has_histograms() {
            return Ok(classic);
        }
        let mut places: HashMap<Labels, usize> = HashMap::new();
        places.extend(classic.heads.iter().enumerate().map(|(row, head)| (head.labels.clone(), row)));
        for (row, head) in rows.heads.iter().enumerate() {
            self.budget.check()?;
            for (step, histogram) in rows.row_histograms(row) {
                let place = match places.get(&head.labels) {
                    Some(place) => *place,
                    None => {
                        classic.push_paid(head.clone())?;
                        places.insert(head.labels.clone(), classic.len() - 1);
                        classic.len() - 1
                    }
                };
                classic.heads[place].drops_name |= head.drops_name;
                let target = &mut classic.row_mut(place)[step];
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
        classic.settle_all()?;
        Ok(classic)
    }

    /// ` for metric name "x"`, where the name is still known once the function has answered.
    fn of_metric(&self, head: &Head) -> String {
        let name = head.labels.metric_name();
        let known = self.options.delayed_name_removal && !name.is_empty();
        if known { format!(" for metric name {name:?}") } else { String::new() }
    }

    pub(in crate::promql::eval) fn native_quantile(
        &self,
        node: &HistogramNode,
        q: f64,
        histogram: &FloatHistogram,
        head: &Head,
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
        (lower, upper): (f64, f64),
        histogram: &FloatHistogram,
        head: &Head,
    ) -> f64 {
        let asked = histogram.count() != 0.0 && lower < upper;
        if asked && has_nan_observations(histogram) {
            let of = self.of_metric(head);
            let text =
                "input to histogram_fraction has NaN observations, which are excluded from all fractions";
            self.notes.borrow_mut().info(node.arg_span, format!("{text}{of}"));
        }
        histogram.fraction(lower, upper)
    }
}
