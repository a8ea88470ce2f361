//! Aggregations over vectors that have native histograms.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::Labels;
use crate::promql::QueryError;
use crate::promql::eval::aggregate::Groups;
use crate::promql::eval::rows::{ABSENT, Point, is_absent};
use crate::promql::histogram::{HistogramMean, HistogramSum};
use crate::promql::plan::AggregateNode;
use crate::promql::syntax::tree::AggregateOp;

use super::windows::{conflicting, mixed_buckets, reconciled};
use super::{Context, Rows, presence};

/// What a group's histograms come to at one step.
enum State {
    Sum(HistogramSum),
    Mean(Box<HistogramMean>),
    /// Buckets of both kinds: there is no result.
    Mixed,
}

impl State {
    fn sum(&self) -> Option<&HistogramSum> {
        match self {
            State::Sum(sum) => Some(sum),
            State::Mean(mean) => Some(mean.sum()),
            State::Mixed => None,
        }
    }
}

impl Context<'_> {
    /// What is done with histograms before an aggregation looks at floats: nothing, where it looks at histograms itself.
    pub(in crate::promql::eval) fn before_aggregation(&self, node: &AggregateNode, rows: Rows) -> Rows {
        let (ignores, span) = match node.op {
            AggregateOp::Min => ("min", node.arg_span),
            AggregateOp::Max => ("max", node.arg_span),
            AggregateOp::Stddev => ("stddev", node.arg_span),
            AggregateOp::Stdvar => ("stdvar", node.arg_span),
            AggregateOp::Quantile => ("quantile", node.arg_span),
            AggregateOp::Topk => ("topk", node.span),
            AggregateOp::Bottomk => ("bottomk", node.span),
            AggregateOp::Count | AggregateOp::Group => return presence(rows),
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

    /// Adds to the floats of `sum` and `avg` what the histograms of each group come to.
    pub(in crate::promql::eval) fn fold_native(
        &self,
        node: &AggregateNode,
        rows: &Rows,
        groups: &Groups,
        mut floats: Rows,
    ) -> Result<Rows, QueryError> {
        let steps = rows.steps();
        let mut held = self.meter.charge();
        held.add_values(groups.heads.len().saturating_mul(steps))?;
        let mut states: Vec<Option<Box<State>>> = Vec::new();
        states.resize_with(groups.heads.len() * steps, || None);
        for (row, group) in groups.of_row.iter().enumerate() {
            self.budget.check()?;
            for (step, histogram) in rows.row_histograms(row) {
                let state = &mut states[group * steps + step];
                let Some(state) = state else {
                    let first = if node.op == AggregateOp::Avg {
                        State::Mean(Box::new(HistogramMean::of(histogram)))
                    } else {
                        State::Sum(HistogramSum::of(histogram))
                    };
                    held.add_bytes(first.sum().map_or(0, HistogramSum::bytes) as u64)?;
                    *state = Some(Box::new(first));
                    continue;
                };
                let before = state.sum().map_or(0, HistogramSum::bytes);
                let added = match &mut **state {
                    State::Sum(sum) => sum.add(histogram),
                    State::Mean(mean) => mean.add(histogram),
                    State::Mixed => Ok(()),
                };
                if added.is_err() {
                    let name = rows.heads[row].labels.metric_name();
                    self.notes.borrow_mut().warn(node.arg_span, mixed_buckets(name));
                    **state = State::Mixed;
                }
                let after = state.sum().map_or(0, HistogramSum::bytes);
                held.add_bytes(after.saturating_sub(before) as u64)?;
            }
        }
        let mut places: HashMap<Labels, usize> = HashMap::with_capacity(floats.len());
        places.extend(floats.heads.iter().enumerate().map(|(row, head)| (head.labels.clone(), row)));
        for (group, head) in groups.heads.iter().enumerate() {
            for step in 0..steps {
                let Some(state) = states[group * steps + step].take() else { continue };
                let place = match places.get(&head.labels) {
                    Some(place) => *place,
                    None => {
                        floats.push_paid(head.clone())?;
                        places.insert(head.labels.clone(), floats.len() - 1);
                        floats.len() - 1
                    }
                };
                self.place_sum(node, &state, &mut floats, (place, step))?;
            }
        }
        floats.settle_all()?;
        Ok(floats)
    }

    fn place_sum(
        &self,
        node: &AggregateNode,
        state: &State,
        out: &mut Rows,
        (row, step): (usize, usize),
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
            State::Sum(sum) => sum.value(),
            State::Mean(mean) => mean.value(),
            State::Mixed => return Ok(()),
        };
        out.put_histogram(row, step, Arc::new(value))
    }

    /// `limitk` where rows have histograms: at each step the first `k` of a group keep what they have.
    pub(in crate::promql::eval) fn limit_native(
        &self,
        mut rows: Rows,
        groups: &Groups,
        k: impl Fn(usize) -> usize,
    ) -> Result<Rows, QueryError> {
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
                    clear(&mut rows, row, step);
                } else {
                    kept[*group] += 1;
                }
            }
        }
        rows.drop_empty();
        Ok(rows)
    }
}

/// Takes away whatever stands at a place.
pub(in crate::promql::eval) fn clear(rows: &mut Rows, row: usize, step: usize) {
    rows.row_mut(row)[step] = ABSENT;
    rows.take_histogram(row, step);
}

/// What `count_values` writes of a histogram.
pub(in crate::promql::eval) fn printed(point: Point<'_>, float: fn(f64) -> String) -> String {
    match point {
        Point::Float(value) => float(value),
        Point::Histogram(histogram) => histogram.to_string(),
    }
}
