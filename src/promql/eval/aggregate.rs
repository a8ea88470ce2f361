//! Aggregations: groups are found once by labels, then rows are added to their group's row, one after another.

use std::collections::HashMap;
use std::rc::Rc;

use crate::model::{Labels, METRIC_NAME};
use crate::promql::QueryError;
use crate::promql::budget::{Charge, Meter};
use crate::promql::functions::ParamCheck;
use crate::promql::functions::over_time::{check_quantile, go_float};
use crate::promql::functions::sums::quantile;
use crate::promql::plan::{AggregateNode, Param};
use crate::promql::syntax::tree::{AggregateOp, Grouping};

use super::Context;
use super::accumulate::{accumulator, extra_bytes};
use super::keyed::{NUMBERED_BYTES, numbered};
use super::native::{clear, printed};
use super::rows::{ABSENT, Duplicates, Grid, Head, Point, Rows, Scalars, is_absent};
use super::sort::by_value;

/// `quantile` takes so many steps of each row at once: one value of each row would be one of each line of memory.
const STEPS_TOGETHER: usize = 8;

/// Which group each row belongs to, in order of first appearance.
pub(super) struct Groups {
    pub(super) heads: Vec<Head>,
    /// For each row its group.
    pub(super) of_row: Vec<usize>,
    _charge: Charge,
}

/// Memory of a group beside its label set: its list of rows, and its head, which is copied to the result.
const GROUP_BYTES: usize = size_of::<Vec<usize>>() + 2 * size_of::<Head>();

impl Groups {
    /// Numbers the groups of `rows`, and charges `meter` before memory is taken.
    fn of(rows: &Rows, keep: impl Fn(&str) -> bool, meter: &Rc<Meter>) -> Result<Groups, QueryError> {
        let mut numbering = meter.charge();
        numbering.add_bytes((rows.len() * NUMBERED_BYTES) as u64)?;
        let numbers = numbered(rows.heads.iter().map(|head| &head.labels), &keep);
        // Each row's group, and its place in the group's list.
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
        let heads = numbers.firsts.iter().map(|first| Head { labels: named(first), drops_name: false });
        let mut heads: Vec<Head> = heads.collect();
        for (head, group) in rows.heads.iter().zip(&of_row) {
            heads[*group].drops_name |= head.drops_name;
        }
        // Where the name is not part of the key there is none to drop.
        for head in &mut heads {
            head.drops_name &= head.labels.get(METRIC_NAME).is_some();
        }
        Ok(Groups { heads, of_row, _charge: charge })
    }

    /// For each group its rows.
    fn members(&self) -> Vec<Vec<usize>> {
        let mut members = vec![Vec::new(); self.heads.len()];
        for (row, group) in self.of_row.iter().enumerate() {
            members[*group].push(row);
        }
        members
    }
}

/// Whether a label of this name tells groups apart.
pub(super) fn tells_apart(name: &str, grouping: &Grouping) -> bool {
    match grouping {
        Grouping::By(names) => names.iter().any(|by| by == name),
        Grouping::Without(names) => name != METRIC_NAME && !names.iter().any(|without| without == name),
    }
}

impl Context<'_> {
    pub(super) fn aggregate(&self, node: &AggregateNode, grid: Grid) -> Result<Rows, QueryError> {
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
                // Nothing is asked for at any step: nothing is looked at, nothing is said.
                return Ok(Rows::new(&self.meter, rows.steps()));
            }
        }
        if rows.has_histograms() {
            rows = self.before_aggregation(node, rows);
        }
        if rows.is_empty() {
            return Ok(rows);
        }
        if let Param::Text(label) = &node.param {
            return self.count_values(&rows, label, &node.grouping);
        }
        let groups = Groups::of(&rows, |name| tells_apart(name, &node.grouping), &self.meter)?;
        match (node.op, param) {
            (op @ (AggregateOp::Sum | AggregateOp::Avg), _) => {
                let floats = self.fold(op, &rows, &groups)?;
                if rows.has_histograms() {
                    self.fold_native(node, &rows, &groups, floats)
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
            ) => self.fold(op, &rows, &groups),
            (AggregateOp::Quantile, Some(q)) => self.quantile(&rows, &groups, &q),
            (AggregateOp::Topk, Some(k)) => self.pick(rows, &groups, &k, Pick::Greatest),
            (AggregateOp::Bottomk, Some(k)) => self.pick(rows, &groups, &k, Pick::Least),
            (AggregateOp::Limitk, Some(k)) if rows.has_histograms() => {
                self.limit_native(rows, &groups, |step| whole(k.values[step]))
            }
            (AggregateOp::Limitk, Some(k)) => self.pick(rows, &groups, &k, Pick::First),
            (AggregateOp::LimitRatio, Some(ratio)) => Ok(limit_ratio(rows, &ratio)),
            (_, None) | (AggregateOp::CountValues, _) => {
                Err(QueryError::BadQuery("the aggregation lacks its parameter".into()))
            }
        }
    }

    /// What no group may be computed with, or what is to be said about the parameter.
    fn check_param(&self, node: &AggregateNode, param: &Scalars) -> Result<(), QueryError> {
        let values = &param.values;
        match node.op {
            AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk => {
                if values.iter().any(|k| k.is_nan()) {
                    return Err(QueryError::execution("Parameter value is NaN"));
                }
                // 2^63: what an int64 holds, as upstream's texts have it.
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
    fn fold(&self, op: AggregateOp, rows: &Rows, groups: &Groups) -> Result<Rows, QueryError> {
        let (count, steps) = (groups.heads.len(), rows.steps());
        let mut held = self.meter.charge();
        held.add_rows(count, steps)?;
        let each = extra_bytes(op).unwrap_or_default();
        held.add_bytes(each.saturating_mul((count as u64).saturating_mul(steps as u64)))?;
        let Some(mut accumulator) = accumulator(op, count, steps) else {
            return Err(QueryError::BadQuery("the aggregation does not add".into()));
        };
        for (i, group) in groups.of_row.iter().enumerate() {
            self.budget.check()?;
            accumulator.add(*group, rows.row(i));
        }
        let mut out = Rows::of(&self.meter, groups.heads.clone(), accumulator.finish(), steps)?;
        out.settle_all()?;
        out.merged(Duplicates::Merge)
    }

    fn quantile(&self, rows: &Rows, groups: &Groups, q: &Scalars) -> Result<Rows, QueryError> {
        let mut out = Rows::with_room(&self.meter, groups.heads.len(), rows.steps())?;
        let mut held = self.meter.charge();
        held.add_values(rows.len().saturating_mul(STEPS_TOGETHER))?;
        let mut columns: [Vec<f64>; STEPS_TOGETHER] = Default::default();
        for (head, members) in groups.heads.iter().zip(groups.members()) {
            let target = out.push_absent(head.clone());
            let pieces = target.chunks_mut(STEPS_TOGETHER).zip(q.values.chunks(STEPS_TOGETHER));
            for (piece, (target, q)) in pieces.enumerate() {
                self.budget.check()?;
                columns.iter_mut().for_each(Vec::clear);
                let first = piece * STEPS_TOGETHER;
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
            out.settle_last()?;
        }
        Ok(out)
    }

    /// `topk`, `bottomk` and `limitk`: rows keep their labels; at each step at most `k` of a group keep their value.
    fn pick(&self, mut rows: Rows, groups: &Groups, k: &Scalars, which: Pick) -> Result<Rows, QueryError> {
        let steps = rows.steps();
        let mut order = Vec::new();
        let mut best: Vec<(f64, usize)> = Vec::new();
        for members in groups.members() {
            for step in 0..steps {
                self.budget.check()?;
                let k = whole(k.values[step]).min(members.len());
                best.clear();
                for i in &members {
                    let slot = &mut rows.row_mut(*i)[step];
                    if !is_absent(*slot) {
                        let value = std::mem::replace(slot, ABSENT);
                        offer(&mut best, k, (value, *i), which);
                    }
                }
                // A large `k` was collected unsorted.
                if best.len() > INSERT_MAX {
                    best.sort_by(|a, b| which.order(a.0, b.0));
                    best.truncate(k);
                }
                for (value, i) in &best {
                    rows.row_mut(*i)[step] = *value;
                }
                if steps == 1 {
                    order.extend(best.iter().map(|(_, i)| *i));
                }
            }
        }
        // The order of an instant result: group by group, best first.
        if steps == 1 {
            return rows.reordered(&order);
        }
        rows.drop_empty();
        Ok(rows)
    }

    /// A series for each different value, told in `label`.
    fn count_values(&self, rows: &Rows, label: &str, grouping: &Grouping) -> Result<Rows, QueryError> {
        let told = !matches!(grouping, Grouping::Without(names) if names.iter().any(|name| name == label));
        let apart = |name: &str| name != label && tells_apart(name, grouping);
        let groups = Groups::of(rows, apart, &self.meter)?;
        let mut out = Rows::new(&self.meter, rows.steps());
        let mut places: HashMap<(usize, Told), usize> = HashMap::new();
        for (i, group) in groups.of_row.iter().enumerate() {
            self.budget.check()?;
            // What is counted is mostly what it was a step before.
            let mut before: Option<(u64, usize)> = None;
            for step in 0..rows.steps() {
                let Some(point) = rows.point(i, step) else { continue };
                let bits = match point {
                    Point::Float(value) => Some(value.to_bits()),
                    Point::Histogram(_) => None,
                };
                let place = match before {
                    Some((same, place)) if Some(same) == bits => place,
                    _ => counted(&mut out, &mut places, (&groups, *group), point, told.then_some(label))?,
                };
                before = bits.map(|bits| (bits, place));
                let count = &mut out.row_mut(place)[step];
                *count = if is_absent(*count) { 1.0 } else { *count + 1.0 };
            }
        }
        out.settle_all()?;
        if told { out.merged(Duplicates::Merge) } else { added(out) }
    }
}

/// The row in which a group's values like this one are counted.
fn counted(
    out: &mut Rows,
    places: &mut HashMap<(usize, Told), usize>,
    (groups, group): (&Groups, usize),
    point: Point<'_>,
    label: Option<&str>,
) -> Result<usize, QueryError> {
    let what = match point {
        Point::Float(value) if value.is_nan() => Told::Bits(f64::NAN.to_bits()),
        Point::Float(value) => Told::Bits(value.to_bits()),
        Point::Histogram(histogram) => Told::Text(histogram.to_string()),
    };
    let key = (group, what);
    if let Some(place) = places.get(&key) {
        return Ok(*place);
    }
    let head = &groups.heads[group];
    let mut builder = head.labels.to_builder();
    if let Some(label) = label {
        builder.set(label, printed(point, plain_float));
    }
    out.push_paid(Head { labels: builder.build(), drops_name: head.drops_name })?;
    places.insert(key, out.len() - 1);
    Ok(out.len() - 1)
}

/// A value that is counted.
#[derive(PartialEq, Eq, Hash)]
enum Told {
    Bits(u64),
    Text(String),
}

/// Rows of equal labels are one group: their counts add up.
fn added(rows: Rows) -> Result<Rows, QueryError> {
    let mut rows = rows;
    let mut places: HashMap<Labels, usize> = HashMap::new();
    for i in 0..rows.len() {
        let into = *places.entry(rows.heads[i].labels.clone()).or_insert(i);
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

/// Up to this many the best are kept sorted while they are collected; more are sorted at the end.
const INSERT_MAX: usize = 64;

/// Keeps the `k` best; of equals the one that came first.
fn offer(best: &mut Vec<(f64, usize)>, k: usize, candidate: (f64, usize), which: Pick) {
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
    let place = best.partition_point(|have| which.order(have.0, candidate.0) != std::cmp::Ordering::Greater);
    best.insert(place, candidate);
}

/// A count given as a number: fractions cut off, less than one is none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, which is what is wanted"
)]
fn whole(k: f64) -> usize {
    if k < 1.0 { 0 } else { k as usize }
}

/// Keeps the share of series whose labels' hash is small (or, for a negative ratio, large).
fn limit_ratio(mut rows: Rows, ratio: &Scalars) -> Rows {
    for i in 0..rows.len() {
        let place = hash_place(&rows.heads[i].labels);
        let native = rows.has_histograms();
        for (step, ratio) in ratio.values.iter().enumerate() {
            let ratio = ratio.clamp(-1.0, 1.0);
            let kept = if ratio >= 0.0 { place < ratio } else { place >= 1.0 + ratio };
            if !kept {
                rows.row_mut(i)[step] = ABSENT;
                if native {
                    clear(&mut rows, i, step);
                }
            }
        }
    }
    rows.drop_empty();
    rows
}

/// Where in `[0, 1)` a label set's hash lies: of each name and value, with its length before it.
#[expect(clippy::cast_precision_loss, reason = "a share needs no more bits")]
fn hash_place(labels: &Labels) -> f64 {
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

/// A number without an exponent, as short as it can be read back.
fn plain_float(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".into() } else { "-Inf".into() }
    } else {
        value.to_string()
    }
}
