//! Binary operators between two vectors: pairs of series are determined once by their labels, then
//! computed step by step. `and`, `or` and `unless` have [a module](super::set_operators) of their
//! own.
//!
//! A match group with two series on the one side is an error only at steps at which both are
//! present.

use std::sync::Arc;

use rapidhash::RapidHashMap;

use crate::model::Labels;
use crate::promql::error::QueryError;
use crate::promql::histogram::FloatHistogram;
use crate::promql::plan::{Join, is_comparison, is_set};
use crate::promql::syntax::tree::{BinaryOp, Cardinality, Matching, Span};

use super::join_labels::include;
use super::label_keys::number_label_sets;
use super::match_groups::{JoinSides, MatchGroup, MatchGroups};
use super::native::{OperatorResult, trims};
use super::parallel_rows::SeriesCheckInterval;
use super::rows::{ABSENT, Duplicates, Grid, LabelledRows, Point, RowHead, is_absent, is_metadata};
use super::{Context, operators};

/// A row of the many side, a row of the one side, and the row of the one side that is present at
/// each step.
#[derive(Clone, Copy)]
struct PairRows<'a> {
    many: &'a [f64],
    one: &'a [f64],
    partner: &'a [Option<usize>],
}

/// The output row of a pair: its values, the steps that have a pair already, and the steps at which
/// the many side is present.
struct OutputRow<'a> {
    values: &'a mut [f64],
    taken: &'a mut [bool],
    present: &'a mut [bool],
}

/// The parameters of a join, with its sides in the order "many, one".
struct JoinSpec<'n> {
    op: BinaryOp,
    matching: &'n Matching,
    /// The many side is the right one (`group_right`).
    swapped: bool,
    returns_bool: bool,
    fill_many: Option<f64>,
    fill_one: Option<f64>,
    /// Some operands are native histograms, or the operator applies only to them.
    native: bool,
    span: Span,
}

impl JoinSpec<'_> {
    fn compute(&self, many: f64, one: f64) -> f64 {
        let (left, right) = if self.swapped { (one, many) } else { (many, one) };
        if !is_comparison(self.op) || self.returns_bool {
            return operators::scalar(self.op, left, right);
        }
        if operators::holds(self.op, left, right) { left } else { ABSENT }
    }

    fn one_to_one(&self) -> bool {
        self.matching.cardinality == Cardinality::OneToOne
    }

    /// Computes a row of the many side with its only partner, at the steps at which both are
    /// present. Marks the steps that are `taken` in the output row and at which the many side is
    /// `present`.
    fn pair_rows(&self, pair: PairRows<'_>, to: OutputRow<'_>) -> Result<(), QueryError> {
        // Separate calls let the compiler specialise the loop for the operator.
        match self.op {
            BinaryOp::Mul if self.swapped => self.pair_rows_by(|many, one| one * many, pair, to),
            BinaryOp::Mul => self.pair_rows_by(|many, one| many * one, pair, to),
            BinaryOp::Div if !self.swapped => self.pair_rows_by(|many, one| many / one, pair, to),
            _ => self.pair_rows_by(|many, one| self.compute(many, one), pair, to),
        }
    }

    #[inline(always)]
    fn pair_rows_by(
        &self,
        compute: impl Fn(f64, f64) -> f64,
        PairRows { many, one, partner }: PairRows<'_>,
        OutputRow { values, taken, present }: OutputRow<'_>,
    ) -> Result<(), QueryError> {
        let one_to_one = self.one_to_one();
        let pairs = many.iter().zip(one).zip(partner);
        let steps = values.iter_mut().zip(taken).zip(present);
        for (((many, one), matched), ((out, taken), present)) in pairs.zip(steps) {
            if is_absent(*many) || matched.is_none() {
                continue;
            }
            if std::mem::replace(present, true) && one_to_one {
                return Err(not_explicit());
            }
            if std::mem::replace(taken, true) {
                return Err(not_unique());
            }
            *out = compute(*many, *one);
        }
        Ok(())
    }

    /// Returns whether a label of the many side is a label of the result.
    fn keeps_label(&self, name: &str) -> bool {
        let drops_name = !is_comparison(self.op) && trims(self.op).is_none();
        if drops_name && is_metadata(name) {
            return false;
        }
        let listed = || self.matching.labels.iter().any(|label| label == name);
        !self.one_to_one() || listed() == self.matching.on
    }

    /// Returns the labels of a pair's result.
    fn labels(&self, many: &Labels, one: &Labels) -> Labels {
        let kept = many.filtered(|name| self.keeps_label(name));
        if self.matching.include.is_empty() {
            return kept;
        }
        let mut builder = kept.to_builder();
        for name in &self.matching.include {
            // An empty value removes the label.
            builder.set(name.as_str(), one.value(name));
        }
        builder.build()
    }

    /// Returns all pairs in the order of groups, if they do not depend on the values: each row of
    /// the many side has at most one partner, and no two pairs have the same labels.
    fn static_pairs(&self, groups: &MatchGroups, many: &LabelledRows) -> Option<Vec<(usize, usize)>> {
        if self.native || self.fill_many.is_some() || self.fill_one.is_some() {
            return None;
        }
        let mut pairs = Vec::with_capacity(many.len());
        for group in 0..groups.len() {
            let rows = groups.many.of(group);
            match groups.one.of(group) {
                [] => {}
                [_] if self.one_to_one() && rows.len() > 1 => return None,
                [one] => pairs.extend(rows.iter().map(|many| (*many, *one))),
                _ => return None,
            }
        }
        self.all_differ(groups, &pairs, many).then_some(pairs)
    }

    /// Returns whether all pairs have different labels.
    fn all_differ(&self, groups: &MatchGroups, pairs: &[(usize, usize)], many: &LabelledRows) -> bool {
        // With one-to-one matching, each group has one pair, and its labels include the matching
        // labels.
        if self.one_to_one() && (is_comparison(self.op) || !groups.metadata) {
            return true;
        }
        let keeps =
            |name: &str| self.keeps_label(name) && !self.matching.include.iter().any(|label| label == name);
        // The rows differ, and they still do after labels that are equal in all rows are removed.
        let first = pairs.first().and_then(|(row, _)| many.heads[*row].labels.row());
        let removes_equal = first.is_some_and(|(table, _, mask)| {
            let goes = mask & !table.mask(keeps);
            goes & !table.same() == 0
                && many.heads.iter().all(|head| {
                    head.labels.row().is_some_and(|(of, _, has)| Arc::ptr_eq(of, table) && has == mask)
                })
        });
        if removes_equal {
            return true;
        }
        let sets = pairs.iter().map(|(row, _)| &many.heads[*row].labels);
        number_label_sets(sets, keeps).firsts.len() == pairs.len()
    }

    /// Replaces a row of the many side by the pair's result. Returns the number of steps with a
    /// value.
    fn combine_in_place(&self, many: &mut [f64], one: &[f64]) -> usize {
        // Separate calls let the compiler specialise the loop for the operator. The order of
        // operands decides which NaN of two is the result.
        match (self.op, self.swapped) {
            (BinaryOp::Add, false) => combine_by(|many, one| many + one, many, one),
            (BinaryOp::Sub, false) => combine_by(|many, one| many - one, many, one),
            (BinaryOp::Mul, false) => combine_by(|many, one| many * one, many, one),
            (BinaryOp::Mul, true) => combine_by(|many, one| one * many, many, one),
            (BinaryOp::Div, false) => combine_by(|many, one| many / one, many, one),
            (BinaryOp::Div, true) => combine_by(|many, one| one / many, many, one),
            (BinaryOp::Less, false) if !self.returns_bool => filter_by(|many, one| many < one, many, one),
            (BinaryOp::Greater, false) if !self.returns_bool => filter_by(|many, one| many > one, many, one),
            _ => {
                let mut present = 0;
                for (value, other) in many.iter_mut().zip(one) {
                    let matched = !is_absent(*value) && !is_absent(*other);
                    *value = if matched { self.compute(*value, *other) } else { ABSENT };
                    present += usize::from(!is_absent(*value));
                }
                present
            }
        }
    }
}

#[inline(always)]
fn combine_by(compute: impl Fn(f64, f64) -> f64, many: &mut [f64], one: &[f64]) -> usize {
    let mut present = 0;
    for (value, other) in many.iter_mut().zip(one) {
        let matched = !is_absent(*value) & !is_absent(*other);
        let found = compute(*value, *other);
        *value = if matched { found } else { ABSENT };
        present += usize::from(matched);
    }
    present
}

#[inline(always)]
fn filter_by(holds: impl Fn(f64, f64) -> bool, many: &mut [f64], one: &[f64]) -> usize {
    let mut present = 0;
    for (value, other) in many.iter_mut().zip(one) {
        // An absent value is NaN, so no comparison holds for it.
        let holds = holds(*value, *other);
        *value = if holds { *value } else { ABSENT };
        present += usize::from(holds);
    }
    present
}

/// Returns the steps at which any row has a value.
fn any_present(rows: &LabelledRows) -> Vec<bool> {
    let mut present = vec![false; rows.steps()];
    for i in 0..rows.len() {
        rows.mark_present(i, &mut present);
    }
    present
}

impl Context<'_> {
    pub(super) fn join(&self, node: &Join, grid: Grid) -> Result<LabelledRows, QueryError> {
        let lhs = self.vector(&node.lhs, grid)?;
        let rhs = self.vector(&node.rhs, grid)?;
        if is_set(node.op) {
            return self.set_operator(node.op, &node.matching, lhs, &rhs);
        }
        let matching = &node.matching;
        let swapped = matching.cardinality == Cardinality::OneToMany;
        let (many, one) = if swapped { (rhs, lhs) } else { (lhs, rhs) };
        // Prometheus swaps the sides for `group_right`, but not the fill values: `fill_left` always
        // replaces a missing sample of the many side (fill-modifier.test).
        let (fill_many, fill_one) = (matching.fill_left, matching.fill_right);
        let native = many.has_histograms() || one.has_histograms() || trims(node.op).is_some();
        let spec = JoinSpec {
            op: node.op,
            matching,
            swapped,
            returns_bool: node.returns_bool,
            fill_many,
            fill_one,
            native,
            span: node.span,
        };
        let filled = fill_many.is_some() || fill_one.is_some();
        if (many.is_empty() || one.is_empty()) && !filled {
            return Ok(LabelledRows::new(&self.meter, grid.len));
        }
        let _grouping = self.charge_grouping(many.len() + one.len())?;
        let groups = MatchGroups::new(&many, &one, matching);
        if let Some(pairs) = spec.static_pairs(&groups, &many) {
            drop(groups);
            let out = self.join_in_place(&spec, &pairs, many, &one)?;
            return if node.returns_bool && is_comparison(node.op) { self.drop_names(out) } else { Ok(out) };
        }
        // At steps at which one side is empty nothing is checked, unless values are filled in.
        let active: Vec<bool> = if filled {
            vec![true; grid.len]
        } else {
            any_present(&many).into_iter().zip(any_present(&one)).map(|(a, b)| a && b).collect()
        };
        let mut out = LabelledRows::with_capacity(&self.meter, many.len(), grid.len)?;
        let sides = JoinSides { many: &many, one: &one };
        for group in groups.each(sides, matching) {
            self.budget.check()?;
            let partner = partners(&spec, &group, &one, &active)?;
            self.join_group(&spec, &group, sides, &partner, &mut out)?;
        }
        out.finish_all()?;
        let out = out.merge_duplicates(Duplicates::Merge)?;
        if node.returns_bool && is_comparison(node.op) { self.drop_names(out) } else { Ok(out) }
    }

    /// Computes pairs that are known in advance, in the memory of the many side's rows.
    fn join_in_place(
        &self,
        spec: &JoinSpec<'_>,
        pairs: &[(usize, usize)],
        mut many: LabelledRows,
        one: &LabelledRows,
    ) -> Result<LabelledRows, QueryError> {
        let steps = many.steps();
        let mut interval = SeriesCheckInterval::default();
        let mut total = 0;
        let mut matches: Vec<(usize, usize)> = Vec::with_capacity(pairs.len());
        for (row, other) in pairs {
            if interval.is_due(steps) {
                self.budget.check()?;
            }
            let present = spec.combine_in_place(many.row_mut(*row), one.row(*other));
            total += present;
            if present > 0 {
                matches.push((*row, *other));
            }
        }
        let rows: Vec<usize> = matches.iter().map(|(row, _)| *row).collect();
        if spec.matching.include.is_empty() {
            // Rows without a partner are removed below.
            let heads = many.heads.iter_mut();
            Labels::filter_all(heads.map(|head| &mut head.labels), |name| spec.keeps_label(name));
        } else {
            let names = &spec.matching.include;
            include(
                &mut many.heads,
                &one.heads,
                &matches,
                names,
                |name| spec.keeps_label(name),
                |many, one| spec.labels(many, one),
            );
        }
        many.finish_selected(&rows, total)
    }

    /// Computes the pairs of one group. `partner` has the present row of the one side at each step.
    fn join_group(
        &self,
        spec: &JoinSpec<'_>,
        group: &MatchGroup<'_>,
        JoinSides { many, one }: JoinSides<'_>,
        partner: &[Option<usize>],
        out: &mut LabelledRows,
    ) -> Result<(), QueryError> {
        if group.many.is_empty() && spec.fill_many.is_none() {
            return Ok(());
        }
        let mut many_present = vec![false; partner.len()];
        let mut group_rows = GroupRows::default();
        let only_partner = only_partner(partner).filter(|_| !spec.native && spec.fill_one.is_none());
        for i in group.many {
            self.budget.check()?;
            let head = &many.heads[*i];
            if let Some(matched) = only_partner {
                let values = many.row(*i);
                let pairs = values
                    .iter()
                    .zip(partner)
                    .any(|(value, matched)| !is_absent(*value) && matched.is_some());
                if pairs {
                    let labels = spec.labels(&head.labels, &one.heads[matched].labels);
                    let index = group_rows.index_of(labels, head.drops_name, out)?;
                    let JoinedRow { row, taken } = &mut group_rows.rows[index];
                    let pair = PairRows { many: values, one: one.row(matched), partner };
                    let values = out.row_mut(*row);
                    spec.pair_rows(pair, OutputRow { values, taken, present: &mut many_present })?;
                }
                continue;
            }
            // The partner at the previous step and its output row: partners rarely change.
            let mut last: Option<(Option<usize>, usize)> = None;
            for (step, value) in many.row(*i).iter().enumerate() {
                let histogram = if spec.native { many.histogram(*i, step) } else { None };
                if is_absent(*value) && histogram.is_none() {
                    continue;
                }
                let (matched, other) = match (partner[step], spec.fill_one) {
                    (Some(matched), _) => (Some(matched), one.row(matched)[step]),
                    (None, Some(fill)) => (None, fill),
                    (None, None) => continue,
                };
                let mut native = None;
                if spec.native {
                    let left = histogram.map_or(Point::Float(*value), Point::Histogram);
                    let right = matched.and_then(|matched| one.histogram(matched, step));
                    let right = right.map_or(Point::Float(other), Point::Histogram);
                    // A pair without a result does not count as a match.
                    let Some(found) = self.native_pair(spec, left, right) else { continue };
                    native = Some(found);
                }
                if spec.one_to_one() && many_present[step] {
                    return Err(not_explicit());
                }
                many_present[step] = true;
                let index = match last {
                    Some((last_matched, index)) if last_matched == matched => index,
                    _ => {
                        let other = matched.map_or(&group.shared, |matched| &one.heads[matched].labels);
                        group_rows.index_of(spec.labels(&head.labels, other), head.drops_name, out)?
                    }
                };
                last = Some((matched, index));
                let joined = &mut group_rows.rows[index];
                // A pair that a comparison drops still occupies its step.
                if std::mem::replace(&mut joined.taken[step], true) {
                    return Err(not_unique());
                }
                match native {
                    None => out.row_mut(joined.row)[step] = spec.compute(*value, other),
                    Some(found) => found.put(out, joined.row, step)?,
                }
            }
        }
        let Some(fill) = spec.fill_many else { return Ok(()) };
        for (step, matched) in partner.iter().enumerate() {
            let Some(matched) = matched.filter(|_| !many_present[step]) else { continue };
            let head = &one.heads[matched];
            let labels = spec.labels(&group.shared, &head.labels);
            let index = group_rows.index_of(labels, head.drops_name, out)?;
            let row = group_rows.rows[index].row;
            if spec.native {
                let Some(point) = one.point(matched, step) else { continue };
                if let Some(found) = self.native_pair(spec, Point::Float(fill), point) {
                    found.put(out, row, step)?;
                }
                continue;
            }
            out.row_mut(row)[step] = spec.compute(fill, one.row(matched)[step]);
        }
        Ok(())
    }

    /// Computes a pair of which at least one operand may be a histogram. Returns `None` if the
    /// operator does not apply.
    fn native_pair(&self, spec: &JoinSpec<'_>, many: Point<'_>, one: Point<'_>) -> Option<PairValue> {
        let (left, right) = if spec.swapped { (one, many) } else { (many, one) };
        let render = |holds: bool| PairValue::Float(f64::from(u8::from(holds)));
        let found = match self.combine(spec.op, left, right, spec.span) {
            OperatorResult::Refused => return None,
            OperatorResult::Dropped if spec.returns_bool => render(false),
            OperatorResult::Dropped => PairValue::Nothing,
            OperatorResult::CommonRows if spec.returns_bool => render(true),
            OperatorResult::CommonRows => match left {
                Point::Float(value) => PairValue::Float(value),
                Point::Histogram(histogram) => PairValue::Histogram(Arc::clone(histogram)),
            },
            OperatorResult::Float(value) => PairValue::Float(value),
            OperatorResult::Histogram(histogram) => PairValue::Histogram(Arc::new(histogram)),
        };
        Some(found)
    }
}

/// The result of a pair.
enum PairValue {
    /// A comparison dropped the pair.
    Nothing,
    Float(f64),
    Histogram(Arc<FloatHistogram>),
}

impl PairValue {
    fn put(self, out: &mut LabelledRows, row: usize, step: usize) -> Result<(), QueryError> {
        match self {
            PairValue::Nothing => {}
            PairValue::Float(value) => out.row_mut(row)[step] = value,
            PairValue::Histogram(histogram) => out.put_histogram(row, step, histogram)?,
        }
        Ok(())
    }
}

/// The output rows of a group.
#[derive(Default)]
struct GroupRows {
    by_labels: RapidHashMap<Labels, usize>,
    rows: Vec<JoinedRow>,
}

/// An output row, and the steps at which it has a pair.
struct JoinedRow {
    row: usize,
    taken: Vec<bool>,
}

impl GroupRows {
    /// Returns the index of the output row with these labels; adds the row if there is none.
    fn index_of(
        &mut self,
        labels: Labels,
        drops_name: bool,
        out: &mut LabelledRows,
    ) -> Result<usize, QueryError> {
        let index = match self.by_labels.get(&labels) {
            Some(index) => *index,
            None => {
                let row = out.len();
                out.push_charged(RowHead { labels: labels.clone(), drops_name })?;
                self.rows.push(JoinedRow { row, taken: vec![false; out.steps()] });
                self.by_labels.insert(labels, self.rows.len() - 1);
                self.rows.len() - 1
            }
        };
        out.heads[self.rows[index].row].drops_name |= drops_name;
        Ok(index)
    }
}

/// Returns the only row of the one side that is present at any step, if there is exactly one.
fn only_partner(partner: &[Option<usize>]) -> Option<usize> {
    let first = partner.iter().find_map(|matched| *matched);
    first.filter(|_| partner.iter().all(|matched| matched.is_none() || *matched == first))
}

fn not_explicit() -> QueryError {
    QueryError::execution(
        "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)",
    )
}

fn not_unique() -> QueryError {
    QueryError::execution("multiple matches for labels: grouping labels must ensure unique matches")
}

/// Returns the present row of the one side at each step. Fails if there are two at one step.
fn partners(
    spec: &JoinSpec<'_>,
    group: &MatchGroup<'_>,
    one: &LabelledRows,
    active: &[bool],
) -> Result<Vec<Option<usize>>, QueryError> {
    let mut partner: Vec<Option<usize>> = vec![None; active.len()];
    for i in group.one {
        for (step, value) in one.row(*i).iter().enumerate() {
            let there = !is_absent(*value) || one.histogram(*i, step).is_some();
            if !there || !active[step] {
                continue;
            }
            if let Some(other) = partner[step] {
                let side = if spec.swapped { "left" } else { "right" };
                let mut pair = [one.heads[*i].labels.to_string(), one.heads[other].labels.to_string()];
                pair.sort();
                return Err(QueryError::execution(format!(
                    "found duplicate series for the match group {} on the {side} hand-side of the operation: [{}, {}];\
                     many-to-many matching not allowed: matching labels must be unique on one side",
                    group.shared, pair[0], pair[1]
                )));
            }
            partner[step] = Some(*i);
        }
    }
    Ok(partner)
}

#[cfg(test)]
mod tests;
