//! Aggregations: rows are grouped once by their labels, then added to the row of their group one
//! after the other.

use std::collections::HashMap;
use std::rc::Rc;

use crate::model::{Labels, METRIC_NAME};
use crate::promql::budget::{Charge, Meter};
use crate::promql::error::QueryError;
use crate::promql::functions::ParamCheck;
use crate::promql::functions::over_time::check_quantile;
use crate::promql::numbers::go_float;
use crate::promql::plan::{AggregateNode, Param};
use crate::promql::sums::quantile;
use crate::promql::syntax::tree::{AggregateOp, Grouping};

use super::Context;
use super::accumulate::{accumulator, extra_bytes};
use super::label_keys::{NUMBERING_BYTES, number_label_sets};
use super::native::{format_value, remove_value};
use super::rows::{ABSENT, Duplicates, Grid, LabelledRows, Point, RowHead, Scalars, is_absent};
use super::sort::{VALUE_UNITS, by_value};

/// Steps of each row that `quantile` processes at a time, so that it uses whole cache lines.
const STEP_BLOCK: usize = 8;

/// The groups of some rows, in order of first appearance.
pub(super) struct RowGroups {
    pub(super) heads: Vec<RowHead>,
    /// The group of each row.
    pub(super) of_row: Vec<usize>,
    _charge: Charge,
}

/// Bytes of a group in addition to its label set: its list of rows, and its head, which is copied
/// to the result.
const GROUP_BYTES: usize = size_of::<Vec<usize>>() + 2 * size_of::<RowHead>();

impl RowGroups {
    /// Groups `rows` by the labels that `keep` accepts. Charges `meter` before it allocates.
    fn of(
        rows: &LabelledRows,
        keep: impl Fn(&str) -> bool,
        meter: &Rc<Meter>,
    ) -> Result<RowGroups, QueryError> {
        let mut numbering = meter.charge();
        numbering.add_bytes((rows.len() * NUMBERING_BYTES) as u64)?;
        let numbers = number_label_sets(rows.heads.iter().map(|head| &head.labels), &keep);
        // The group of each row, and the row's entry in the list of its group.
        let mut charge = meter.charge();
        charge.add_values(rows.len().saturating_mul(2))?;
        let of_group = |first: &usize| {
            let labels = &rows.heads[*first].labels;
            let own = if labels.row().is_none() { Labels::own_bytes(labels.len()) } else { 0 };
            GROUP_BYTES + own
        };
        charge.add_bytes(numbers.firsts.iter().map(of_group).sum::<usize>() as u64)?;
        let of_row: Vec<usize> = numbers.of.iter().map(|group| *group as usize).collect();
        let named = |first: &usize| rows.heads[*first].labels.filtered(&keep);
        let heads = numbers.firsts.iter().map(|first| RowHead { labels: named(first), drops_name: false });
        let mut heads: Vec<RowHead> = heads.collect();
        for (head, group) in rows.heads.iter().zip(&of_row) {
            heads[*group].drops_name |= head.drops_name;
        }
        // If the name is not a grouping label, there is none to drop.
        for head in &mut heads {
            head.drops_name &= head.labels.get(METRIC_NAME).is_some();
        }
        Ok(RowGroups { heads, of_row, _charge: charge })
    }

    /// Returns the rows of each group.
    fn members(&self) -> Vec<Vec<usize>> {
        let mut members = vec![Vec::new(); self.heads.len()];
        for (row, group) in self.of_row.iter().enumerate() {
            members[*group].push(row);
        }
        members
    }
}

/// Returns whether a label of this name is part of the grouping key.
pub(super) fn is_grouping_label(name: &str, grouping: &Grouping) -> bool {
    match grouping {
        Grouping::By(names) => names.iter().any(|by| by == name),
        Grouping::Without(names) => name != METRIC_NAME && !names.iter().any(|without| without == name),
    }
}

impl Context<'_> {
    pub(super) fn aggregate(&self, node: &AggregateNode, grid: Grid) -> Result<LabelledRows, QueryError> {
        if let Some(rows) = self.try_streaming(node, grid)? {
            return Ok(rows);
        }
        let mut rows = self.vector(&node.arg, grid)?;
        let param = match &node.param {
            Param::Scalar(scalar) => Some(self.scalar(scalar, grid)?),
            Param::Text(_) | Param::None => None,
        };
        if let Some(param) = &param {
            self.check_param(node, param)?;
            let counts = matches!(node.op, AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk);
            if counts && param.values.iter().all(|k| *k < 1.0) {
                // `k` is less than 1 at every step: the result is empty, without annotations.
                return Ok(LabelledRows::new(&self.meter, rows.steps()));
            }
        }
        if rows.has_histograms() {
            rows = self.prepare_histograms(node, rows);
        }
        if rows.is_empty() {
            return Ok(rows);
        }
        if let Param::Text(label) = &node.param {
            return self.count_values(&rows, label, &node.grouping);
        }
        let groups = RowGroups::of(&rows, |name| is_grouping_label(name, &node.grouping), &self.meter)?;
        match (node.op, param) {
            (op @ (AggregateOp::Sum | AggregateOp::Avg), _) => {
                let floats = self.accumulate(op, &rows, &groups)?;
                if rows.has_histograms() {
                    self.aggregate_native(node, &rows, &groups, floats)
                } else {
                    Ok(floats)
                }
            }
            (
                op @ (AggregateOp::Stdvar
                | AggregateOp::Stddev
                | AggregateOp::Count
                | AggregateOp::Group
                | AggregateOp::Min
                | AggregateOp::Max),
                _,
            ) => self.accumulate(op, &rows, &groups),
            (AggregateOp::Quantile, Some(q)) => self.quantile(&rows, &groups, &q),
            (AggregateOp::Topk, Some(k)) => self.pick(rows, &groups, &k, Pick::Greatest),
            (AggregateOp::Bottomk, Some(k)) => self.pick(rows, &groups, &k, Pick::Least),
            (AggregateOp::Limitk, Some(k)) if rows.has_histograms() => {
                self.limit_mixed_rows(rows, &groups, |step| to_count(k.values[step]))
            }
            (AggregateOp::Limitk, Some(k)) => self.pick(rows, &groups, &k, Pick::First),
            (AggregateOp::LimitRatio, Some(ratio)) => Ok(limit_ratio(rows, &ratio)),
            (_, None) | (AggregateOp::CountValues, _) => {
                Err(QueryError::BadQuery("the aggregation requires a parameter".into()))
            }
        }
    }

    /// Checks the parameter at all steps: returns an error, or adds annotations.
    fn check_param(&self, node: &AggregateNode, param: &Scalars) -> Result<(), QueryError> {
        let values = &param.values;
        match node.op {
            AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk => {
                if values.iter().any(|k| k.is_nan()) {
                    return Err(QueryError::execution("Parameter value is NaN"));
                }
                // 2^63, the bound of int64, which Prometheus names in its messages.
                const BOUND: f64 = 9_223_372_036_854_775_808.0;
                if let Some(k) = values.iter().find(|k| **k <= -BOUND) {
                    return Err(QueryError::execution(format!(
                        "Scalar value {} underflows int64",
                        go_float(*k)
                    )));
                }
                if let Some(k) = values.iter().find(|k| **k >= BOUND) {
                    return Err(QueryError::execution(format!(
                        "Scalar value {} overflows int64",
                        go_float(*k)
                    )));
                }
            }
            AggregateOp::LimitRatio => {
                if values.iter().any(|ratio| ratio.is_nan()) {
                    return Err(QueryError::execution("Ratio value is NaN"));
                }
                for ratio in values.iter().filter(|ratio| ratio.abs() > 1.0) {
                    let text = format!(
                        "ratio value should be between -1 and 1, got {}, capping to {}",
                        go_float(*ratio),
                        go_float(ratio.clamp(-1.0, 1.0))
                    );
                    self.notes.borrow_mut().warn(node.param_span, text);
                }
            }
            AggregateOp::Quantile => {
                for q in values {
                    if let ParamCheck::Warn(text) = check_quantile(&[*q]) {
                        self.notes.borrow_mut().warn(node.param_span, text);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds the rows to their groups, one after the other.
    fn accumulate(
        &self,
        op: AggregateOp,
        rows: &LabelledRows,
        groups: &RowGroups,
    ) -> Result<LabelledRows, QueryError> {
        let (count, steps) = (groups.heads.len(), rows.steps());
        let mut held = self.meter.charge();
        held.add_rows(count, steps)?;
        let each = extra_bytes(op).unwrap_or_default();
        held.add_bytes(each.saturating_mul((count as u64).saturating_mul(steps as u64)))?;
        let Some(mut accumulator) = accumulator(op, count, steps) else {
            return Err(QueryError::BadQuery("the aggregation has no accumulator".into()));
        };
        for (i, group) in groups.of_row.iter().enumerate() {
            self.budget.check()?;
            accumulator.add(*group, rows.row(i));
        }
        let mut out = LabelledRows::of(&self.meter, groups.heads.clone(), accumulator.finish(), steps)?;
        out.finish_all()?;
        out.merge_duplicates(Duplicates::Merge)
    }

    fn quantile(
        &self,
        rows: &LabelledRows,
        groups: &RowGroups,
        q: &Scalars,
    ) -> Result<LabelledRows, QueryError> {
        let mut out = LabelledRows::with_capacity(&self.meter, groups.heads.len(), rows.steps())?;
        let mut held = self.meter.charge();
        held.add_values(rows.len().saturating_mul(STEP_BLOCK))?;
        let mut columns: [Vec<f64>; STEP_BLOCK] = Default::default();
        for (head, members) in groups.heads.iter().zip(groups.members()) {
            let target = out.push_absent(head.clone());
            let blocks = target.chunks_mut(STEP_BLOCK).zip(q.values.chunks(STEP_BLOCK));
            for (block, (target, q)) in blocks.enumerate() {
                self.budget.check()?;
                columns.iter_mut().for_each(Vec::clear);
                let first = block * STEP_BLOCK;
                for i in &members {
                    let values = &rows.row(*i)[first..first + target.len()];
                    for (value, column) in
                        values.iter().zip(&mut columns).filter(|(value, _)| !is_absent(**value))
                    {
                        column.push(*value);
                    }
                }
                for ((target, q), column) in target.iter_mut().zip(q).zip(&mut columns) {
                    if !column.is_empty() {
                        *target = quantile(*q, column);
                    }
                }
            }
            out.finish_last()?;
        }
        Ok(out)
    }

    /// Evaluates `topk`, `bottomk` and `limitk`: rows keep their labels, and at each step at most
    /// `k` rows of a group keep their value.
    fn pick(
        &self,
        mut rows: LabelledRows,
        groups: &RowGroups,
        k: &Scalars,
        which: Pick,
    ) -> Result<LabelledRows, QueryError> {
        let steps = rows.steps();
        let mut order = Vec::new();
        let mut best: Vec<(f64, usize)> = Vec::new();
        for members in groups.members() {
            for step in 0..steps {
                self.budget.check()?;
                let k = to_count(k.values[step]).min(members.len());
                best.clear();
                for i in &members {
                    let slot = &mut rows.row_mut(*i)[step];
                    if !is_absent(*slot) {
                        let value = std::mem::replace(slot, ABSENT);
                        insert_candidate(&mut best, k, (value, *i), which);
                    }
                }
                // For a large `k` the values were collected unsorted.
                if best.len() > INSERT_MAX {
                    let mut sorted = self.sorted(best.len(), |pace, a, b| {
                        pace.spend(VALUE_UNITS)?;
                        Ok(which.order(best[a].0, best[b].0))
                    })?;
                    sorted.truncate(k);
                    best = sorted.into_iter().map(|i| best[i]).collect();
                }
                for (value, i) in &best {
                    rows.row_mut(*i)[step] = *value;
                }
                if steps == 1 {
                    order.extend(best.iter().map(|(_, i)| *i));
                }
            }
        }
        // Instant results are ordered by group, the best first.
        if steps == 1 {
            return rows.reordered(&order);
        }
        rows.drop_empty();
        Ok(rows)
    }

    /// Returns a row for each different value, which becomes the value of `label`.
    fn count_values(
        &self,
        rows: &LabelledRows,
        label: &str,
        grouping: &Grouping,
    ) -> Result<LabelledRows, QueryError> {
        let adds_label =
            !matches!(grouping, Grouping::Without(names) if names.iter().any(|name| name == label));
        let is_key = |name: &str| name != label && is_grouping_label(name, grouping);
        let groups = RowGroups::of(rows, is_key, &self.meter)?;
        let mut out = LabelledRows::new(&self.meter, rows.steps());
        let mut row_of: HashMap<(usize, CountedValue), usize> = HashMap::new();
        for (i, group) in groups.of_row.iter().enumerate() {
            self.budget.check()?;
            // The value is mostly the same as at the previous step.
            let mut before: Option<(u64, usize)> = None;
            for step in 0..rows.steps() {
                let Some(point) = rows.point(i, step) else { continue };
                let bits = match point {
                    Point::Float(value) => Some(value.to_bits()),
                    Point::Histogram(_) => None,
                };
                let row = match before {
                    Some((same, row)) if Some(same) == bits => row,
                    _ => counting_row(
                        &mut out,
                        &mut row_of,
                        &groups,
                        *group,
                        point,
                        adds_label.then_some(label),
                    )?,
                };
                before = bits.map(|bits| (bits, row));
                let count = &mut out.row_mut(row)[step];
                *count = if is_absent(*count) { 1.0 } else { *count + 1.0 };
            }
        }
        out.finish_all()?;
        if adds_label { out.merge_duplicates(Duplicates::Merge) } else { merge_counts(out) }
    }
}

/// Returns the index of the row that counts this value of a group; adds the row if there is none.
fn counting_row(
    out: &mut LabelledRows,
    row_of: &mut HashMap<(usize, CountedValue), usize>,
    groups: &RowGroups,
    group: usize,
    point: Point<'_>,
    label: Option<&str>,
) -> Result<usize, QueryError> {
    let what = match point {
        Point::Float(value) if value.is_nan() => CountedValue::Bits(f64::NAN.to_bits()),
        Point::Float(value) => CountedValue::Bits(value.to_bits()),
        Point::Histogram(histogram) => CountedValue::Text(histogram.to_string()),
    };
    let key = (group, what);
    if let Some(row) = row_of.get(&key) {
        return Ok(*row);
    }
    let head = &groups.heads[group];
    let mut builder = head.labels.to_builder();
    if let Some(label) = label {
        builder.set(label, format_value(point, plain_float));
    }
    out.push_charged(RowHead { labels: builder.build(), drops_name: head.drops_name })?;
    row_of.insert(key, out.len() - 1);
    Ok(out.len() - 1)
}

/// A value that is counted: the bits of a float or the text of a histogram.
#[derive(PartialEq, Eq, Hash)]
enum CountedValue {
    Bits(u64),
    Text(String),
}

/// Adds up the counts of rows with equal labels.
fn merge_counts(rows: LabelledRows) -> Result<LabelledRows, QueryError> {
    let mut rows = rows;
    let mut row_of: HashMap<Labels, usize> = HashMap::new();
    for i in 0..rows.len() {
        let into = *row_of.entry(rows.heads[i].labels.clone()).or_insert(i);
        if into == i {
            continue;
        }
        for step in 0..rows.steps() {
            let count = std::mem::replace(&mut rows.row_mut(i)[step], ABSENT);
            if !is_absent(count) {
                let target = &mut rows.row_mut(into)[step];
                *target = if is_absent(*target) { count } else { *target + count };
            }
        }
    }
    rows.drop_empty();
    Ok(rows)
}

/// The rows of a group that keep their value: those with the greatest or least values, or the first
/// ones.
#[derive(Clone, Copy, PartialEq)]
enum Pick {
    Greatest,
    Least,
    First,
}

impl Pick {
    fn order(self, a: f64, b: f64) -> std::cmp::Ordering {
        match self {
            Pick::Greatest => by_value(a, b, true),
            Pick::Least => by_value(a, b, false),
            Pick::First => std::cmp::Ordering::Equal,
        }
    }
}

/// Largest `k` for which the best values are kept sorted while they are collected. For a larger `k`
/// they are sorted at the end.
const INSERT_MAX: usize = 64;

/// Inserts a candidate among the `k` best values. Among equal values the earlier one wins.
fn insert_candidate(best: &mut Vec<(f64, usize)>, k: usize, candidate: (f64, usize), which: Pick) {
    if k == 0 {
        return;
    }
    if k > INSERT_MAX {
        best.push(candidate);
        return;
    }
    if best.len() == k {
        let worst = best[k - 1].0;
        if which.order(candidate.0, worst) != std::cmp::Ordering::Less {
            return;
        }
        best.pop();
    }
    let position =
        best.partition_point(|have| which.order(have.0, candidate.0) != std::cmp::Ordering::Greater);
    best.insert(position, candidate);
}

/// Returns a count given as a float: fractions are cut off, values below 1 are 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, which is what is wanted"
)]
fn to_count(k: f64) -> usize {
    if k < 1.0 { 0 } else { k as usize }
}

/// Keeps the series whose label hash is in the lower part of its range, or in the upper part for a
/// negative ratio.
fn limit_ratio(mut rows: LabelledRows, ratio: &Scalars) -> LabelledRows {
    for i in 0..rows.len() {
        let fraction = hash_fraction(&rows.heads[i].labels);
        let native = rows.has_histograms();
        for (step, ratio) in ratio.values.iter().enumerate() {
            let ratio = ratio.clamp(-1.0, 1.0);
            let kept = if ratio >= 0.0 { fraction < ratio } else { fraction >= 1.0 + ratio };
            if !kept {
                rows.row_mut(i)[step] = ABSENT;
                if native {
                    remove_value(&mut rows, i, step);
                }
            }
        }
    }
    rows.drop_empty();
    rows
}

/// Returns the hash of a label set, scaled to `[0, 1)`. The hash covers each name and value,
/// preceded by its length, as in Prometheus's `stringlabels`.
#[expect(clippy::cast_precision_loss, reason = "a share needs no more bits")]
fn hash_fraction(labels: &Labels) -> f64 {
    let mut bytes = Vec::new();
    for label in labels {
        for text in [label.name, label.value] {
            match u8::try_from(text.len()) {
                Ok(length) if length < 255 => bytes.push(length),
                _ => {
                    bytes.push(255);
                    bytes.extend((text.len() as u64).to_le_bytes().into_iter().take(3));
                }
            }
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    // 2^64
    super::hash::xxh64(&bytes) as f64 / 18_446_744_073_709_551_616.0
}

/// Formats a number without exponent, in the shortest form that reads back to it.
fn plain_float(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".into() } else { "-Inf".into() }
    } else {
        value.to_string()
    }
}
