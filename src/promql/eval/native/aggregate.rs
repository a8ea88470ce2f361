//! Aggregations over vectors with native histograms.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::Labels;
use crate::promql::error::QueryError;
use crate::promql::eval::aggregate::RowGroups;
use crate::promql::eval::rows::{ABSENT, Point, is_absent};
use crate::promql::histogram::{HistogramMean, HistogramSum};
use crate::promql::plan::AggregateNode;
use crate::promql::syntax::tree::AggregateOp;

use super::windows::{conflicting, mixed_buckets, reconciled};
use super::{Context, LabelledRows, count_as_one};

/// The aggregated histograms of a group at one step.
enum NativeAggregate {
    Sum(HistogramSum),
    Mean(Box<HistogramMean>),
    /// There were exponential and custom buckets, so there is no result.
    Mixed,
}

impl NativeAggregate {
    fn sum(&self) -> Option<&HistogramSum> {
        match self {
            NativeAggregate::Sum(sum) => Some(sum),
            NativeAggregate::Mean(mean) => Some(mean.sum()),
            NativeAggregate::Mixed => None,
        }
    }
}

impl Context<'_> {
    /// Prepares histograms for an aggregation: removes those that it ignores, or counts them as 1.
    pub(in crate::promql::eval) fn prepare_histograms(
        &self,
        node: &AggregateNode,
        rows: LabelledRows,
    ) -> LabelledRows {
        let (ignores, span) = match node.op {
            AggregateOp::Min => ("min", node.arg_span),
            AggregateOp::Max => ("max", node.arg_span),
            AggregateOp::Stddev => ("stddev", node.arg_span),
            AggregateOp::Stdvar => ("stdvar", node.arg_span),
            AggregateOp::Quantile => ("quantile", node.arg_span),
            AggregateOp::Topk => ("topk", node.span),
            AggregateOp::Bottomk => ("bottomk", node.span),
            AggregateOp::Count | AggregateOp::Group => return count_as_one(rows),
            AggregateOp::Sum
            | AggregateOp::Avg
            | AggregateOp::CountValues
            | AggregateOp::Limitk
            | AggregateOp::LimitRatio => return rows,
        };
        if (0..rows.len()).any(|row| rows.row_histograms(row).next().is_some()) {
            self.notes.borrow_mut().info(span, format!("ignored histogram in {ignores} aggregation"));
        }
        rows.without_histograms()
    }

    /// Adds the aggregated histograms of each group to the results of `sum` and `avg` over floats.
    pub(in crate::promql::eval) fn aggregate_native(
        &self,
        node: &AggregateNode,
        rows: &LabelledRows,
        groups: &RowGroups,
        mut floats: LabelledRows,
    ) -> Result<LabelledRows, QueryError> {
        let steps = rows.steps();
        let mut held = self.meter.charge();
        held.add_values(groups.heads.len().saturating_mul(steps))?;
        let mut states: Vec<Option<Box<NativeAggregate>>> = Vec::new();
        states.resize_with(groups.heads.len() * steps, || None);
        for (row, group) in groups.of_row.iter().enumerate() {
            self.budget.check()?;
            for (step, histogram) in rows.row_histograms(row) {
                let state = &mut states[group * steps + step];
                let Some(state) = state else {
                    let first = if node.op == AggregateOp::Avg {
                        NativeAggregate::Mean(Box::new(HistogramMean::of(histogram)))
                    } else {
                        NativeAggregate::Sum(HistogramSum::of(histogram))
                    };
                    held.add_bytes(first.sum().map_or(0, HistogramSum::bytes) as u64)?;
                    *state = Some(Box::new(first));
                    continue;
                };
                let before = state.sum().map_or(0, HistogramSum::bytes);
                let added = match &mut **state {
                    NativeAggregate::Sum(sum) => sum.add(histogram),
                    NativeAggregate::Mean(mean) => mean.add(histogram),
                    NativeAggregate::Mixed => Ok(()),
                };
                if added.is_err() {
                    let name = rows.heads[row].labels.metric_name();
                    self.notes.borrow_mut().warn(node.arg_span, mixed_buckets(name));
                    **state = NativeAggregate::Mixed;
                }
                let after = state.sum().map_or(0, HistogramSum::bytes);
                held.add_bytes(after.saturating_sub(before) as u64)?;
            }
        }
        let mut row_of: HashMap<Labels, usize> = HashMap::with_capacity(floats.len());
        row_of.extend(floats.heads.iter().enumerate().map(|(row, head)| (head.labels.clone(), row)));
        for (group, head) in groups.heads.iter().enumerate() {
            for step in 0..steps {
                let Some(state) = states[group * steps + step].take() else { continue };
                let target = match row_of.get(&head.labels) {
                    Some(target) => *target,
                    None => {
                        floats.push_charged(head.clone())?;
                        row_of.insert(head.labels.clone(), floats.len() - 1);
                        floats.len() - 1
                    }
                };
                self.store_aggregate(node, &state, &mut floats, target, step)?;
            }
        }
        floats.finish_all()?;
        Ok(floats)
    }

    fn store_aggregate(
        &self,
        node: &AggregateNode,
        state: &NativeAggregate,
        out: &mut LabelledRows,
        row: usize,
        step: usize,
    ) -> Result<(), QueryError> {
        let mut notes = self.notes.borrow_mut();
        if let Some(sum) = state.sum() {
            if sum.reconciled {
                notes.info(node.arg_span, reconciled("aggregation"));
            }
            if sum.resets_conflict() {
                notes.warn(node.arg_span, conflicting("aggregation"));
            }
        }
        if !is_absent(out.row(row)[step]) {
            let text = "encountered a mix of histograms and floats for aggregation";
            notes.warn(node.arg_span, text);
            out.row_mut(row)[step] = ABSENT;
            return Ok(());
        }
        let value = match state {
            NativeAggregate::Sum(sum) => sum.value(),
            NativeAggregate::Mean(mean) => mean.value(),
            NativeAggregate::Mixed => return Ok(()),
        };
        out.put_histogram(row, step, Arc::new(value))
    }

    /// Evaluates `limitk` for rows with histograms: at each step the first `k` rows of a group keep
    /// their value.
    pub(in crate::promql::eval) fn limit_mixed_rows(
        &self,
        mut rows: LabelledRows,
        groups: &RowGroups,
        k: impl Fn(usize) -> usize,
    ) -> Result<LabelledRows, QueryError> {
        let mut kept = vec![0usize; groups.heads.len()];
        for step in 0..rows.steps() {
            self.budget.check()?;
            kept.fill(0);
            let k = k(step);
            for (row, group) in groups.of_row.iter().enumerate() {
                if rows.point(row, step).is_none() {
                    continue;
                }
                if kept[*group] >= k {
                    remove_value(&mut rows, row, step);
                } else {
                    kept[*group] += 1;
                }
            }
        }
        rows.drop_empty();
        Ok(rows)
    }
}

/// Removes the float or histogram at a step of a row.
pub(in crate::promql::eval) fn remove_value(rows: &mut LabelledRows, row: usize, step: usize) {
    rows.row_mut(row)[step] = ABSENT;
    rows.take_histogram(row, step);
}

/// Formats a value for `count_values`.
pub(in crate::promql::eval) fn format_value(point: Point<'_>, float: fn(f64) -> String) -> String {
    match point {
        Point::Float(value) => float(value),
        Point::Histogram(histogram) => histogram.to_string(),
    }
}
