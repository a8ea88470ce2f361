//! Two vectors: pairs are found once by the labels of their series, then computed step by step.
//!
//! That two series may not share a signature is a rule about one step: series that are never present together are fine.

use std::sync::Arc;

use rapidhash::RapidHashMap;

use crate::model::{Labels, METRIC_NAME};
use crate::promql::plan::{Join, is_comparison, is_set};
use crate::promql::syntax::tree::{BinaryOp, Cardinality, Matching, Span};
use crate::promql::{FloatHistogram, QueryError};

use super::keyed::Keyed;
use super::native::{Outcome, trims};
use super::rows::{ABSENT, Duplicates, Grid, Head, Point, Rows, is_absent, is_metadata};
use super::{Context, operators};

/// The rows of both sides that share the values of the matching labels.
struct Group {
    /// The labels they share.
    shared: Labels,
    /// Rows of the side that may have many (of one-to-one, the left).
    many: Vec<usize>,
    /// Rows of the other side.
    one: Vec<usize>,
}

/// A row of the many side, one of the other side, and at which steps that one is there.
type Pair<'a> = (&'a [f64], &'a [f64], &'a [Option<usize>]);

/// Where what they come to belongs: values, which steps are taken, at which anything of the many side is there.
type Places<'a> = (&'a mut [f64], &'a mut [bool], &'a mut [bool]);

/// A join with its sides in the order "many, one".
struct Sides<'n> {
    op: BinaryOp,
    matching: &'n Matching,
    /// The many side is the right one: `group_right`.
    swapped: bool,
    returns_bool: bool,
    fill_many: Option<f64>,
    fill_one: Option<f64>,
    /// Either side has native histograms, or only they have an answer.
    native: bool,
    span: Span,
}

impl Sides<'_> {
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

    /// A row of the many side with the only one it meets, at the steps at which both are there: values, which steps of the
    /// row are `taken`, and at which anything of the many side is `present`.
    fn pair_rows(&self, pair: Pair<'_>, to: Places<'_>) -> Result<(), QueryError> {
        // So that the compiler knows what is computed at each step.
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
        (many, one, partner): Pair<'_>,
        (out, taken, present): Places<'_>,
    ) -> Result<(), QueryError> {
        let one_to_one = self.one_to_one();
        let pairs = many.iter().zip(one).zip(partner);
        let places = out.iter_mut().zip(taken).zip(present);
        for (((many, one), met), ((out, taken), present)) in pairs.zip(places) {
            if is_absent(*many) || met.is_none() {
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

    /// What a pair is called.
    fn labels(&self, many: &Labels, one: &Labels) -> Labels {
        let matching = self.matching;
        let drops_name = !is_comparison(self.op) && trims(self.op).is_none();
        let listed = |name: &str| matching.labels.iter().any(|label| label == name);
        let kept = many.filtered(|name| {
            if drops_name && is_metadata(name) {
                return false;
            }
            !self.one_to_one() || listed(name) == matching.on
        });
        if matching.include.is_empty() {
            return kept;
        }
        let mut builder = kept.to_builder();
        for name in &matching.include {
            // An empty value removes the label.
            builder.set(name.as_str(), one.value(name));
        }
        builder.build()
    }
}

fn groups(many: &Rows, one: &Rows, matching: &Matching) -> Vec<Group> {
    let listed = |name: &str| matching.labels.iter().any(|label| label == name);
    // The labels that must be equal.
    let shares = |name: &str| if matching.on { listed(name) } else { name != METRIC_NAME && !listed(name) };
    let mut keyed = Keyed::default();
    let mut groups: Vec<Group> = Vec::new();
    for (rows, is_many) in [(many, true), (one, false)] {
        for (i, head) in rows.heads.iter().enumerate() {
            let (place, new) = keyed.number(&head.labels, shares);
            groups.extend(new.map(|shared| Group { shared, many: Vec::new(), one: Vec::new() }));
            let side = if is_many { &mut groups[place].many } else { &mut groups[place].one };
            side.push(i);
        }
    }
    groups
}

/// Steps at which any row has a value.
fn any_present(rows: &Rows) -> Vec<bool> {
    let mut present = vec![false; rows.steps()];
    for i in 0..rows.len() {
        rows.mark_present(i, &mut present);
    }
    present
}

impl Context<'_> {
    pub(super) fn join(&self, node: &Join, grid: Grid) -> Result<Rows, QueryError> {
        let lhs = self.vector(&node.lhs, grid)?;
        let rhs = self.vector(&node.rhs, grid)?;
        if is_set(node.op) {
            return self.set_operator(node.op, &node.matching, lhs, &rhs);
        }
        let matching = &node.matching;
        let swapped = matching.cardinality == Cardinality::OneToMany;
        let (many, one) = if swapped { (rhs, lhs) } else { (lhs, rhs) };
        // Upstream turns the sides round for `group_right`, but not the values filled in: the left one always stands
        // for a missing sample of the many side (fill-modifier.test).
        let (fill_many, fill_one) = (matching.fill_left, matching.fill_right);
        let native = many.has_histograms() || one.has_histograms() || trims(node.op).is_some();
        let sides = Sides {
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
            return Ok(Rows::new(&self.meter, grid.len));
        }
        // Where one side is empty at a step nothing is checked there, unless values are filled in.
        let active: Vec<bool> = if filled {
            vec![true; grid.len]
        } else {
            any_present(&many).into_iter().zip(any_present(&one)).map(|(a, b)| a && b).collect()
        };
        let mut out = Rows::with_room(&self.meter, many.len(), grid.len)?;
        for group in groups(&many, &one, matching) {
            self.budget.check()?;
            let partner = one_side(&sides, &group, &one, &active)?;
            self.join_group(&sides, &group, (&many, &one), &partner, &mut out)?;
        }
        out.settle_all()?;
        let out = out.merged(Duplicates::Merge)?;
        if node.returns_bool && is_comparison(node.op) { self.unnamed(out) } else { Ok(out) }
    }

    /// The pairs of one group. `partner` tells for each step which row of the one side is there.
    fn join_group(
        &self,
        sides: &Sides<'_>,
        group: &Group,
        (many, one): (&Rows, &Rows),
        partner: &[Option<usize>],
        out: &mut Rows,
    ) -> Result<(), QueryError> {
        if group.many.is_empty() && sides.fill_many.is_none() {
            return Ok(());
        }
        let mut many_present = vec![false; partner.len()];
        let mut made = MadeRows::default();
        let sole = sole(partner).filter(|_| !sides.native && sides.fill_one.is_none());
        for i in &group.many {
            self.budget.check()?;
            let head = &many.heads[*i];
            if let Some(met) = sole {
                let values = many.row(*i);
                let pairs =
                    values.iter().zip(partner).any(|(value, met)| !is_absent(*value) && met.is_some());
                if pairs {
                    let labels = sides.labels(&head.labels, &one.heads[met].labels);
                    let place = made.place(labels, head.drops_name, out)?;
                    let Made { row, taken } = &mut made.rows[place];
                    let to = (out.row_mut(*row), &mut taken[..], &mut many_present[..]);
                    sides.pair_rows((values, one.row(met), partner), to)?;
                }
                continue;
            }
            // Where the row's pairs stand, by the partner it met last: partners change rarely.
            let mut last: Option<(Option<usize>, usize)> = None;
            for (step, value) in many.row(*i).iter().enumerate() {
                let histogram = if sides.native { many.histogram(*i, step) } else { None };
                if is_absent(*value) && histogram.is_none() {
                    continue;
                }
                let (met, other) = match (partner[step], sides.fill_one) {
                    (Some(met), _) => (Some(met), one.row(met)[step]),
                    (None, Some(fill)) => (None, fill),
                    (None, None) => continue,
                };
                let mut native = None;
                if sides.native {
                    let left = histogram.map_or(Point::Float(*value), Point::Histogram);
                    let right = met.and_then(|met| one.histogram(met, step));
                    let right = right.map_or(Point::Float(other), Point::Histogram);
                    // What has no answer has not met either.
                    let Some(found) = self.native_pair(sides, left, right) else { continue };
                    native = Some(found);
                }
                if sides.one_to_one() && many_present[step] {
                    return Err(not_explicit());
                }
                many_present[step] = true;
                let place = match last {
                    Some((whom, place)) if whom == met => place,
                    _ => {
                        let other = met.map_or(&group.shared, |met| &one.heads[met].labels);
                        made.place(sides.labels(&head.labels, other), head.drops_name, out)?
                    }
                };
                last = Some((met, place));
                let place = &mut made.rows[place];
                // A pair that a comparison drops has taken its place all the same.
                if std::mem::replace(&mut place.taken[step], true) {
                    return Err(not_unique());
                }
                match native {
                    None => out.row_mut(place.row)[step] = sides.compute(*value, other),
                    Some(found) => found.put(out, place.row, step)?,
                }
            }
        }
        let Some(fill) = sides.fill_many else { return Ok(()) };
        for (step, met) in partner.iter().enumerate() {
            let Some(met) = met.filter(|_| !many_present[step]) else { continue };
            let head = &one.heads[met];
            let labels = sides.labels(&group.shared, &head.labels);
            let place = made.place(labels, head.drops_name, out)?;
            let row = made.rows[place].row;
            if sides.native {
                let Some(point) = one.point(met, step) else { continue };
                if let Some(found) = self.native_pair(sides, Point::Float(fill), point) {
                    found.put(out, row, step)?;
                }
                continue;
            }
            out.row_mut(row)[step] = sides.compute(fill, one.row(met)[step]);
        }
        Ok(())
    }

    /// What a pair comes to of which one at least may be a histogram; nothing where the operator has no answer.
    fn native_pair(&self, sides: &Sides<'_>, many: Point<'_>, one: Point<'_>) -> Option<Found> {
        let (left, right) = if sides.swapped { (one, many) } else { (many, one) };
        let told = |holds: bool| Found::Float(f64::from(u8::from(holds)));
        let found = match self.combine(sides.op, left, right, sides.span) {
            Outcome::Refused => return None,
            Outcome::Dropped if sides.returns_bool => told(false),
            Outcome::Dropped => Found::Nothing,
            Outcome::Kept if sides.returns_bool => told(true),
            Outcome::Kept => match left {
                Point::Float(value) => Found::Float(value),
                Point::Histogram(histogram) => Found::Histogram(Arc::clone(histogram)),
            },
            Outcome::Float(value) => Found::Float(value),
            Outcome::Histogram(histogram) => Found::Histogram(Arc::new(histogram)),
        };
        Some(found)
    }

    fn set_operator(
        &self,
        op: BinaryOp,
        matching: &Matching,
        mut lhs: Rows,
        rhs: &Rows,
    ) -> Result<Rows, QueryError> {
        let steps = lhs.steps().max(rhs.steps());
        let mut mask = vec![false; steps];
        let mut out = Rows::new(&self.meter, steps);
        let all = groups(&lhs, rhs, matching);
        if op == BinaryOp::Or {
            let mut hidden: Vec<Option<usize>> = vec![None; rhs.len()];
            for (place, group) in all.iter().enumerate() {
                for i in group.one.iter().filter(|_| !group.many.is_empty()) {
                    hidden[*i] = Some(place);
                }
            }
            for (i, (head, row)) in lhs.iter().enumerate() {
                out.push_paid(head.clone())?.copy_from_slice(row);
                copy_histograms(&lhs, i, &mut out, |_| true)?;
            }
            for (i, (head, row)) in rhs.iter().enumerate() {
                self.budget.check()?;
                mask.fill(false);
                for left in hidden[i].iter().flat_map(|place| &all[*place].many) {
                    lhs.mark_present(*left, &mut mask);
                }
                let target = out.push_paid(head.clone())?;
                for ((value, hidden), target) in row.iter().zip(&mask).zip(target) {
                    *target = if *hidden { ABSENT } else { *value };
                }
                copy_histograms(rhs, i, &mut out, |step| !mask[step])?;
            }
            out.settle_all()?;
            return out.merged(Duplicates::Merge);
        }
        for group in &all {
            self.budget.check()?;
            mask.fill(false);
            for right in &group.one {
                rhs.mark_present(*right, &mut mask);
            }
            for left in &group.many {
                for (value, there) in lhs.row_mut(*left).iter_mut().zip(&mask) {
                    if *there != (op == BinaryOp::And) {
                        *value = ABSENT;
                    }
                }
                if lhs.has_histograms() {
                    let hidden =
                        mask.iter().enumerate().filter(|(_, there)| **there != (op == BinaryOp::And));
                    for (step, _) in hidden {
                        lhs.take_histogram(*left, step);
                    }
                }
            }
        }
        lhs.drop_empty();
        Ok(lhs)
    }
}

/// What a pair comes to.
enum Found {
    /// It met, and is dropped.
    Nothing,
    Float(f64),
    Histogram(Arc<FloatHistogram>),
}

impl Found {
    fn put(self, out: &mut Rows, row: usize, step: usize) -> Result<(), QueryError> {
        match self {
            Found::Nothing => {}
            Found::Float(value) => out.row_mut(row)[step] = value,
            Found::Histogram(histogram) => out.put_histogram(row, step, histogram)?,
        }
        Ok(())
    }
}

/// Gives the last row of `out` the histograms of a row, at steps that are `shown`.
fn copy_histograms(
    from: &Rows,
    row: usize,
    out: &mut Rows,
    shown: impl Fn(usize) -> bool,
) -> Result<(), QueryError> {
    let last = out.len() - 1;
    for (step, histogram) in from.row_histograms(row).filter(|(step, _)| shown(*step)) {
        out.put_histogram(last, step, Arc::clone(histogram))?;
    }
    Ok(())
}

/// The rows that a group made.
#[derive(Default)]
struct MadeRows {
    places: RapidHashMap<Labels, usize>,
    rows: Vec<Made>,
}

/// A row that a group made, and the steps at which a pair stands there.
struct Made {
    row: usize,
    taken: Vec<bool>,
}

impl MadeRows {
    /// The place of the row with these labels among those the group made.
    fn place(&mut self, labels: Labels, drops_name: bool, out: &mut Rows) -> Result<usize, QueryError> {
        let place = match self.places.get(&labels) {
            Some(place) => *place,
            None => {
                let row = out.len();
                out.push_paid(Head { labels: labels.clone(), drops_name })?;
                self.rows.push(Made { row, taken: vec![false; out.steps()] });
                self.places.insert(labels, self.rows.len() - 1);
                self.rows.len() - 1
            }
        };
        out.heads[self.rows[place].row].drops_name |= drops_name;
        Ok(place)
    }
}

/// The only row of the one side that is there at any step, if there is one.
fn sole(partner: &[Option<usize>]) -> Option<usize> {
    let first = partner.iter().find_map(|met| *met);
    first.filter(|_| partner.iter().all(|met| met.is_none() || *met == first))
}

fn not_explicit() -> QueryError {
    QueryError::execution(
        "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)",
    )
}

fn not_unique() -> QueryError {
    QueryError::execution("multiple matches for labels: grouping labels must ensure unique matches")
}

/// For each step the one row of the one side that is there, or why there may not be two.
fn one_side(
    sides: &Sides<'_>,
    group: &Group,
    one: &Rows,
    active: &[bool],
) -> Result<Vec<Option<usize>>, QueryError> {
    let mut partner: Vec<Option<usize>> = vec![None; active.len()];
    for i in &group.one {
        for (step, value) in one.row(*i).iter().enumerate() {
            let there = !is_absent(*value) || one.histogram(*i, step).is_some();
            if !there || !active[step] {
                continue;
            }
            if let Some(other) = partner[step] {
                let side = if sides.swapped { "left" } else { "right" };
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
