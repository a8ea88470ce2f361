//! Aggregations: groups are found once by labels, then rows are added to their group's row, one after another.

use std::collections::HashMap;

use crate::model::{Labels, METRIC_NAME};
use crate::promql::QueryError;
use crate::promql::functions::Vet;
use crate::promql::functions::over_time::{go_float, vet_quantile};
use crate::promql::functions::sums::{Mean, Sum, Variance, quantile};
use crate::promql::plan::{AggregateNode, Param};
use crate::promql::syntax::tree::{AggregateOp, Grouping};

use super::Context;
use super::keyed::Keyed;
use super::native::{clear, printed};
use super::rows::{ABSENT, Duplicates, Grid, Head, Point, Rows, Scalars, is_absent};
use super::sort::by_value;

/// Which group each row belongs to, in order of first appearance.
pub(super) struct Groups {
    pub(super) heads: Vec<Head>,
    /// For each row its group.
    pub(super) of_row: Vec<usize>,
}

impl Groups {
    fn of(rows: &Rows, keep: impl Fn(&str) -> bool) -> Groups {
        let mut keyed = Keyed::default();
        let mut heads: Vec<Head> = Vec::new();
        let mut of_row = Vec::with_capacity(rows.len());
        for head in &rows.heads {
            let (place, new) = keyed.number(&head.labels, &keep);
            heads.extend(new.map(|labels| Head { labels, drops_name: false }));
            heads[place].drops_name |= head.drops_name;
            of_row.push(place);
        }
        // Where the name is not part of the key there is none to drop.
        for head in &mut heads {
            head.drops_name &= head.labels.get(METRIC_NAME).is_some();
        }
        Groups { heads, of_row }
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
fn tells_apart(name: &str, grouping: &Grouping) -> bool {
    match grouping {
        Grouping::By(names) => names.iter().any(|by| by == name),
        Grouping::Without(names) => name != METRIC_NAME && !names.iter().any(|without| without == name),
    }
}

impl Context<'_> {
    pub(super) fn aggregate(&self, node: &AggregateNode, grid: Grid) -> Result<Rows, QueryError> {
        let mut rows = self.vector(&node.arg, grid)?;
        let param = match &node.param {
            Param::Scalar(scalar) => Some(self.scalar(scalar, grid)?),
            Param::Text(_) | Param::None => None,
        };
        if let Some(param) = &param {
            self.vet_param(node, param)?;
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
        let groups = Groups::of(&rows, |name| tells_apart(name, &node.grouping));
        match (node.op, param) {
            (AggregateOp::Sum, _) => {
                let floats = self.fold_sums(&rows, &groups)?;
                if rows.has_histograms() {
                    self.fold_native(node, &rows, &groups, floats)
                } else {
                    Ok(floats)
                }
            }
            (AggregateOp::Avg, _) => {
                let floats = self.fold(&rows, &groups, Mean::of, Mean::add, Mean::value)?;
                if rows.has_histograms() {
                    self.fold_native(node, &rows, &groups, floats)
                } else {
                    Ok(floats)
                }
            }
            (AggregateOp::Stdvar, _) => {
                self.fold(&rows, &groups, Variance::of, Variance::add, Variance::value)
            }
            (AggregateOp::Stddev, _) => {
                self.fold(&rows, &groups, Variance::of, Variance::add, |state| state.value().sqrt())
            }
            (AggregateOp::Count, _) => self.fold_in_place(&rows, &groups, |_| 1.0, |count, _| count + 1.0),
            (AggregateOp::Group, _) => self.fold_in_place(&rows, &groups, |_| 1.0, |one, _| one),
            (AggregateOp::Min, _) => {
                let least = |least: f64, value| if value < least || least.is_nan() { value } else { least };
                self.fold_in_place(&rows, &groups, |value| value, least)
            }
            (AggregateOp::Max, _) => {
                let most = |most: f64, value| if value > most || most.is_nan() { value } else { most };
                self.fold_in_place(&rows, &groups, |value| value, most)
            }
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
    fn vet_param(&self, node: &AggregateNode, param: &Scalars) -> Result<(), QueryError> {
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
                    if let Vet::Warn(text) = vet_quantile(&[*q]) {
                        self.notes.borrow_mut().warn(node.param_span, text);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A state for each group and step, fed with the rows in order.
    fn fold<S: Copy>(
        &self,
        rows: &Rows,
        groups: &Groups,
        first: fn(f64) -> S,
        add: fn(&mut S, f64),
        finish: fn(&S) -> f64,
    ) -> Result<Rows, QueryError> {
        let steps = rows.steps();
        let mut held = self.meter.charge();
        held.add_bytes((groups.heads.len() as u64) * (steps as u64) * size_of::<Option<S>>() as u64)?;
        let mut states: Vec<Option<S>> = vec![None; groups.heads.len() * steps];
        for (i, group) in groups.of_row.iter().enumerate() {
            self.budget.check()?;
            for (value, state) in rows.row(i).iter().zip(&mut states[group * steps..]) {
                if !is_absent(*value) {
                    match state {
                        Some(state) => add(state, *value),
                        None => *state = Some(first(*value)),
                    }
                }
            }
        }
        let mut out = Rows::with_room(&self.meter, groups.heads.len(), steps)?;
        for (group, head) in groups.heads.iter().enumerate() {
            let target = out.push_absent(head.clone());
            for (target, state) in target.iter_mut().zip(&states[group * steps..]) {
                if let Some(state) = state {
                    *target = finish(state);
                }
            }
            out.settle_last()?;
        }
        out.merged(Duplicates::Merge)
    }

    /// As [`Context::fold`] for sums: sums and what they lack lie apart, and are added to without a branch for each value.
    fn fold_sums(&self, rows: &Rows, groups: &Groups) -> Result<Rows, QueryError> {
        let steps = rows.steps();
        let mut out = Rows::with_room(&self.meter, groups.heads.len(), steps)?;
        let mut held = self.meter.charge();
        held.add_rows(groups.heads.len(), steps)?;
        let mut lacking = vec![0.0; groups.heads.len() * steps];
        for head in &groups.heads {
            out.push_absent(head.clone());
        }
        for (i, group) in groups.of_row.iter().enumerate() {
            self.budget.check()?;
            let lacking = &mut lacking[group * steps..(group + 1) * steps];
            for ((value, sum), rest) in rows.row(i).iter().zip(out.row_mut(*group)).zip(lacking) {
                let mut next = Sum { sum: *sum, rest: *rest };
                next.add(*value);
                // The first value is the sum, whatever absence and it would come to.
                let next = if is_absent(*sum) { Sum::of(*value) } else { next };
                let next = if is_absent(*value) { Sum { sum: *sum, rest: *rest } } else { next };
                (*sum, *rest) = (next.sum, next.rest);
            }
        }
        for (value, rest) in out.values_mut().iter_mut().zip(&lacking) {
            if !is_absent(*value) {
                *value = Sum { sum: *value, rest: *rest }.value();
            }
        }
        out.settle_all()?;
        out.merged(Duplicates::Merge)
    }

    /// As [`Context::fold`], where the state is the value itself.
    fn fold_in_place(
        &self,
        rows: &Rows,
        groups: &Groups,
        first: fn(f64) -> f64,
        add: fn(f64, f64) -> f64,
    ) -> Result<Rows, QueryError> {
        let mut out = Rows::with_room(&self.meter, groups.heads.len(), rows.steps())?;
        for head in &groups.heads {
            out.push_absent(head.clone());
        }
        for (i, group) in groups.of_row.iter().enumerate() {
            self.budget.check()?;
            for (value, state) in rows.row(i).iter().zip(out.row_mut(*group)) {
                if !is_absent(*value) {
                    *state = if is_absent(*state) { first(*value) } else { add(*state, *value) };
                }
            }
        }
        out.settle_all()?;
        Ok(out)
    }

    fn quantile(&self, rows: &Rows, groups: &Groups, q: &Scalars) -> Result<Rows, QueryError> {
        let mut out = Rows::with_room(&self.meter, groups.heads.len(), rows.steps())?;
        let mut column = Vec::new();
        for (head, members) in groups.heads.iter().zip(groups.members()) {
            let target = out.push_absent(head.clone());
            for (step, target) in target.iter_mut().enumerate() {
                self.budget.check()?;
                column.clear();
                column.extend(members.iter().map(|i| rows.row(*i)[step]).filter(|value| !is_absent(*value)));
                if !column.is_empty() {
                    *target = quantile(q.values[step], &mut column);
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
            return Ok(rows.reordered(&order));
        }
        rows.drop_empty();
        Ok(rows)
    }

    /// A series for each different value, told in `label`.
    fn count_values(&self, rows: &Rows, label: &str, grouping: &Grouping) -> Result<Rows, QueryError> {
        let told = !matches!(grouping, Grouping::Without(names) if names.iter().any(|name| name == label));
        let groups = Groups::of(rows, |name| name != label && tells_apart(name, grouping));
        let mut out = Rows::new(&self.meter, rows.steps());
        let mut places: HashMap<(usize, Told), usize> = HashMap::new();
        for (i, group) in groups.of_row.iter().enumerate() {
            self.budget.check()?;
            for step in 0..rows.steps() {
                let Some(point) = rows.point(i, step) else { continue };
                let what = match point {
                    Point::Float(value) if value.is_nan() => Told::Bits(f64::NAN.to_bits()),
                    Point::Float(value) => Told::Bits(value.to_bits()),
                    Point::Histogram(histogram) => Told::Text(histogram.to_string()),
                };
                let place = match places.get(&(*group, what.clone())) {
                    Some(place) => *place,
                    None => {
                        let head = &groups.heads[*group];
                        let mut builder = head.labels.to_builder();
                        if told {
                            builder.set(label, printed(point, plain_float));
                        }
                        out.push_paid(Head { labels: builder.build(), drops_name: head.drops_name })?;
                        places.insert((*group, what), out.len() - 1);
                        out.len() - 1
                    }
                };
                let count = &mut out.row_mut(place)[step];
                *count = if is_absent(*count) { 1.0 } else { *count + 1.0 };
            }
        }
        out.settle_all()?;
        if told { out.merged(Duplicates::Merge) } else { added(out) }
    }
}

/// A value that is counted.
#[derive(Clone, PartialEq, Eq, Hash)]
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
        for text in [&label.name, &label.value] {
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
