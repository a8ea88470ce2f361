//! Two vectors: pairs are found once by the labels of their series, then computed step by step.
//!
//! That two series may not share a signature is a rule about one step: series that are never present together are fine.

use std::sync::Arc;

use rapidhash::RapidHashMap;

use crate::model::{Labels, METRIC_NAME};
use crate::promql::budget::Charge;
use crate::promql::plan::{Join, is_comparison, is_set};
use crate::promql::syntax::tree::{BinaryOp, Cardinality, Matching, Span};
use crate::promql::{FloatHistogram, QueryError};

use super::included::include;
use super::keyed::{NUMBERED_BYTES, numbered};
use super::native::{Outcome, trims};
use super::parallel_rows::SeriesCheckInterval;
use super::rows::{ABSENT, Duplicates, Grid, Head, Point, Rows, is_absent, is_metadata};
use super::{Context, operators};

/// The rows of both sides that share the values of the matching labels.
struct Group<'g> {
    /// The labels they share.
    shared: Labels,
    /// Rows of the side that may have many (of one-to-one, the left).
    many: &'g [usize],
    /// Rows of the other side.
    one: &'g [usize],
}

/// All groups, by number.
struct Groups {
    many: Members,
    one: Members,
    /// Of each group the labels of the first row, the many side's before the other's.
    firsts: Vec<usize>,
    /// Whether any label that goes with the name had to be equal.
    metadata: bool,
}

/// One side's rows, group by group.
struct Members {
    rows: Vec<usize>,
    /// Where each group's rows end.
    ends: Vec<usize>,
}

impl Members {
    fn new(groups: usize, of_rows: &[u32]) -> Members {
        let mut ends = vec![0; groups + 1];
        of_rows.iter().for_each(|group| ends[*group as usize + 1] += 1);
        for group in 0..groups {
            ends[group + 1] += ends[group];
        }
        let mut rows = vec![0; of_rows.len()];
        // Where a group's next row belongs; its end, once all have come.
        for (row, group) in of_rows.iter().enumerate() {
            let place = &mut ends[*group as usize];
            rows[*place] = row;
            *place += 1;
        }
        ends.truncate(groups);
        Members { rows, ends }
    }

    fn of(&self, group: usize) -> &[usize] {
        let from = group.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.rows[from..self.ends[group]]
    }
}

/// Memory of a row while the rows of both sides are grouped: its number, its place in its group, and its group.
const GROUPED_BYTES: usize = NUMBERED_BYTES + 4 * size_of::<usize>();

impl Context<'_> {
    /// Charges the memory of [`Groups::new`] for `rows` rows of both sides.
    fn charge_grouping(&self, rows: usize) -> Result<Charge, QueryError> {
        let mut charge = self.meter.charge();
        charge.add_bytes(rows.saturating_mul(GROUPED_BYTES) as u64)?;
        Ok(charge)
    }
}

impl Groups {
    fn new(many: &Rows, one: &Rows, matching: &Matching) -> Groups {
        let heads = many.heads.iter().chain(&one.heads);
        let numbers = numbered(heads.map(|head| &head.labels), |name| must_be_equal(matching, name));
        let (of_many, of_one) = numbers.of.split_at(many.len());
        let groups = numbers.firsts.len();
        let (many, one) = (Members::new(groups, of_many), Members::new(groups, of_one));
        let metadata = numbers.names.iter().any(|name| is_metadata(name));
        Groups { many, one, firsts: numbers.firsts, metadata }
    }

    fn len(&self) -> usize {
        self.firsts.len()
    }

    /// One after the other, with the labels that its rows share.
    fn each<'g>(
        &'g self,
        (many, one): (&'g Rows, &'g Rows),
        matching: &'g Matching,
    ) -> impl Iterator<Item = Group<'g>> {
        self.firsts.iter().enumerate().map(move |(group, first)| {
            let head = many.heads.get(*first).unwrap_or_else(|| &one.heads[first - many.len()]);
            let shared = head.labels.filtered(|name| must_be_equal(matching, name));
            Group { shared, many: self.many.of(group), one: self.one.of(group) }
        })
    }
}

fn must_be_equal(matching: &Matching, name: &str) -> bool {
    let listed = matching.labels.iter().any(|label| label == name);
    if matching.on { listed } else { name != METRIC_NAME && !listed }
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

    /// Whether a label of the many side is one of the pair's.
    fn keeps(&self, name: &str) -> bool {
        let drops_name = !is_comparison(self.op) && trims(self.op).is_none();
        if drops_name && is_metadata(name) {
            return false;
        }
        let listed = || self.matching.labels.iter().any(|label| label == name);
        !self.one_to_one() || listed() == self.matching.on
    }

    /// What a pair is called.
    fn labels(&self, many: &Labels, one: &Labels) -> Labels {
        let kept = many.filtered(|name| self.keeps(name));
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

    /// All pairs, in the order of groups, where each row of the many side can have one only, whatever the values are, and no
    /// two pairs have the same labels.
    fn sole_pairs(&self, groups: &Groups, many: &Rows) -> Option<Vec<(usize, usize)>> {
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

    /// Whether no two pairs can have the same labels.
    fn all_differ(&self, groups: &Groups, pairs: &[(usize, usize)], many: &Rows) -> bool {
        // One-to-one, groups have one pair each, and its labels are those that tell groups apart, or more.
        if self.one_to_one() && (is_comparison(self.op) || !groups.metadata) {
            return true;
        }
        let stays = |name: &str| self.keeps(name) && !self.matching.include.iter().any(|label| label == name);
        // Rows differ from one another, and so do they without what is the same in all.
        let first = pairs.first().and_then(|(row, _)| many.heads[*row].labels.row());
        let goes_alike = first.is_some_and(|(table, _, mask)| {
            let goes = mask & !table.mask(stays);
            goes & !table.same() == 0
                && many.heads.iter().all(|head| {
                    head.labels.row().is_some_and(|(of, _, has)| Arc::ptr_eq(of, table) && has == mask)
                })
        });
        if goes_alike {
            return true;
        }
        let sets = pairs.iter().map(|(row, _)| &many.heads[*row].labels);
        numbered(sets, stays).firsts.len() == pairs.len()
    }

    /// Puts what a pair comes to in the place of the many side's row; answers at how many steps there is anything.
    fn pair_in_place(&self, many: &mut [f64], one: &[f64]) -> usize {
        // So that the compiler knows what is computed at each step. Which is left decides between two NaNs.
        match (self.op, self.swapped) {
            (BinaryOp::Add, false) => pair_by(|many, one| many + one, many, one),
            (BinaryOp::Sub, false) => pair_by(|many, one| many - one, many, one),
            (BinaryOp::Mul, false) => pair_by(|many, one| many * one, many, one),
            (BinaryOp::Mul, true) => pair_by(|many, one| one * many, many, one),
            (BinaryOp::Div, false) => pair_by(|many, one| many / one, many, one),
            (BinaryOp::Div, true) => pair_by(|many, one| one / many, many, one),
            (BinaryOp::Less, false) if !self.returns_bool => filter_by(|many, one| many < one, many, one),
            (BinaryOp::Greater, false) if !self.returns_bool => filter_by(|many, one| many > one, many, one),
            _ => {
                let mut present = 0;
                for (value, other) in many.iter_mut().zip(one) {
                    let met = !is_absent(*value) && !is_absent(*other);
                    *value = if met { self.compute(*value, *other) } else { ABSENT };
                    present += usize::from(!is_absent(*value));
                }
                present
            }
        }
    }
}

#[inline(always)]
fn pair_by(compute: impl Fn(f64, f64) -> f64, many: &mut [f64], one: &[f64]) -> usize {
    let mut present = 0;
    for (value, other) in many.iter_mut().zip(one) {
        let met = !is_absent(*value) & !is_absent(*other);
        let found = compute(*value, *other);
        *value = if met { found } else { ABSENT };
        present += usize::from(met);
    }
    present
}

#[inline(always)]
fn filter_by(holds: impl Fn(f64, f64) -> bool, many: &mut [f64], one: &[f64]) -> usize {
    let mut present = 0;
    for (value, other) in many.iter_mut().zip(one) {
        // Absence is a NaN, for which nothing holds.
        let holds = holds(*value, *other);
        *value = if holds { *value } else { ABSENT };
        present += usize::from(holds);
    }
    present
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
        let _grouping = self.charge_grouping(many.len() + one.len())?;
        let groups = Groups::new(&many, &one, matching);
        if let Some(pairs) = sides.sole_pairs(&groups, &many) {
            drop(groups);
            let out = self.pair_up(&sides, &pairs, many, &one)?;
            return if node.returns_bool && is_comparison(node.op) { self.unnamed(out) } else { Ok(out) };
        }
        // Where one side is empty at a step nothing is checked there, unless values are filled in.
        let active: Vec<bool> = if filled {
            vec![true; grid.len]
        } else {
            any_present(&many).into_iter().zip(any_present(&one)).map(|(a, b)| a && b).collect()
        };
        let mut out = Rows::with_room(&self.meter, many.len(), grid.len)?;
        for group in groups.each((&many, &one), matching) {
            self.budget.check()?;
            let partner = one_side(&sides, &group, &one, &active)?;
            self.join_group(&sides, &group, (&many, &one), &partner, &mut out)?;
        }
        out.settle_all()?;
        let out = out.merged(Duplicates::Merge)?;
        if node.returns_bool && is_comparison(node.op) { self.unnamed(out) } else { Ok(out) }
    }

    /// Pairs of which each is known: the rows of the many side become theirs, where they are.
    fn pair_up(
        &self,
        sides: &Sides<'_>,
        pairs: &[(usize, usize)],
        mut many: Rows,
        one: &Rows,
    ) -> Result<Rows, QueryError> {
        let steps = many.steps();
        let mut interval = SeriesCheckInterval::default();
        let mut total = 0;
        let mut met: Vec<(usize, usize)> = Vec::with_capacity(pairs.len());
        for (row, other) in pairs {
            if interval.is_due(steps) {
                self.budget.check()?;
            }
            let present = sides.pair_in_place(many.row_mut(*row), one.row(*other));
            total += present;
            if present > 0 {
                met.push((*row, *other));
            }
        }
        let places: Vec<usize> = met.iter().map(|(row, _)| *row).collect();
        if sides.matching.include.is_empty() {
            // Rows that met nobody go.
            let heads = many.heads.iter_mut();
            Labels::filter_all(heads.map(|head| &mut head.labels), |name| sides.keeps(name));
        } else {
            let names = &sides.matching.include;
            include(
                &mut many.heads,
                &one.heads,
                (&met, names),
                |name| sides.keeps(name),
                |many, one| sides.labels(many, one),
            );
        }
        many.settle_picked(&places, total)
    }

    /// The pairs of one group. `partner` tells for each step which row of the one side is there.
    fn join_group(
        &self,
        sides: &Sides<'_>,
        group: &Group<'_>,
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
        for i in group.many {
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
        let _grouping = self.charge_grouping(lhs.len() + rhs.len())?;
        let groups = Groups::new(&lhs, rhs, matching);
        let mut mask = vec![false; lhs.steps().max(rhs.steps())];
        let mut interval = SeriesCheckInterval::default();
        if op == BinaryOp::Or {
            return self.either(&groups, lhs, rhs, &mut mask);
        }
        for group in 0..groups.len() {
            let (left, right) = (groups.many.of(group), groups.one.of(group));
            if left.is_empty() || right.is_empty() && op == BinaryOp::Unless {
                continue;
            }
            mask.fill(false);
            right.iter().for_each(|right| rhs.mark_present(*right, &mut mask));
            for left in left {
                if interval.is_due(mask.len()) {
                    self.budget.check()?;
                }
                for (value, there) in lhs.row_mut(*left).iter_mut().zip(&mask) {
                    *value = if *there == (op == BinaryOp::And) { *value } else { ABSENT };
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

    /// The left side, and of the right one what no row of the left one's in its group hides.
    fn either(
        &self,
        groups: &Groups,
        mut lhs: Rows,
        rhs: &Rows,
        mask: &mut [bool],
    ) -> Result<Rows, QueryError> {
        let mut hidden: Vec<Option<usize>> = vec![None; rhs.len()];
        for group in (0..groups.len()).filter(|group| !groups.many.of(*group).is_empty()) {
            groups.one.of(group).iter().for_each(|row| hidden[*row] = Some(group));
        }
        lhs.add_room(rhs.len())?;
        let mut interval = SeriesCheckInterval::default();
        for ((i, (head, row)), hidden) in rhs.iter().enumerate().zip(hidden) {
            if interval.is_due(mask.len()) {
                self.budget.check()?;
            }
            mask.fill(false);
            for left in hidden.map_or(&[][..], |group| groups.many.of(group)) {
                lhs.mark_present(*left, mask);
            }
            let target = lhs.push_absent(head.clone());
            for ((value, hidden), target) in row.iter().zip(&*mask).zip(target) {
                *target = if *hidden { ABSENT } else { *value };
            }
            copy_histograms(rhs, i, &mut lhs, |step| !mask[step])?;
        }
        lhs.settle_again()?;
        lhs.merged(Duplicates::Merge)
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
    group: &Group<'_>,
    one: &Rows,
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::model::{Access, BatchBuilder, Labels, OrgId, Sample, Steps, Timestamp};
    use crate::promql::syntax::{Caps, parse};
    use crate::promql::{Budget, Options, Query, run};
    use crate::tsdb::{Snapshot, Tsdb};

    const STEPS: i64 = 20;
    const STEP_S: i64 = 30;

    /// A series: which of some values its labels have, its first and last step, its first value.
    type Series = ([usize; 4], (i64, i64), i32);

    fn series(most: usize) -> impl Strategy<Value = Vec<Series>> {
        let labels = [0usize..6, 0..3, 0..4, 0..3];
        prop::collection::vec((labels, (-8..8i64, 8..28i64), -3..4i32), 1..most)
    }

    /// Series of both sides, and two of one signature that are never there together.
    fn store(many: &[Series], one: &[Series]) -> Snapshot {
        let mut batch = BatchBuilder::default();
        let mut put = |pairs: &[(&str, &str)], (first, last): (i64, i64), value: i32| {
            let at = |step: i64| Timestamp::from_s(1_000 + step * STEP_S);
            let sample = |step| Sample { at: at(step), value: f64::from(value) + (step % 5) as f64 };
            batch.series(&Labels::from_pairs(pairs.iter().copied()), (first..=last).map(sample));
        };
        let text =
            |kind: &str, value: usize| if value == 0 { String::new() } else { format!("{kind}{value}") };
        for (number, ([pod, node, zone, name], shown, value)) in many.iter().enumerate() {
            let (pod, node, zone) = (text("p", *pod), text("n", *node), text("z", *zone));
            let id = (number % 11).to_string();
            let name = ["a", "a", "ab"][*name];
            let pairs = [("__name__", name), ("id", &id), ("node", &node), ("pod", &pod), ("zone", &zone)];
            put(&pairs, *shown, *value);
        }
        for ([pod, node, kind, name], shown, value) in one {
            let (pod, node, kind) = (text("p", *pod), text("n", *node), text("k", *kind));
            let name = ["b", "b", "bb"][*name];
            put(&[("__name__", name), ("kind", &kind), ("node", &node), ("pod", &pod)], *shown, *value);
        }
        put(&[("__name__", "c"), ("pod", "none")], (0, 3), 1);
        put(&[("__name__", "cc"), ("pod", "none")], (15, 19), 1);
        let store = Tsdb::scaffold();
        store.append(OrgId(1), &batch.batch(), Timestamp::from_s(10_000)).expect("stored");
        store.snapshot(&Access::whole(OrgId(1)))
    }

    fn told(text: &str, snapshot: &Snapshot, instant: bool, delayed_name_removal: bool) -> String {
        let expr = parse(text, &Caps::default()).expect("an expression").expr;
        let (first, last) = (Timestamp::from_s(1_000), Timestamp::from_s(1_000 + STEPS * STEP_S));
        let steps = Steps::new(first, if instant { first } else { last }, STEP_S * 1_000).expect("a grid");
        let query = Query { expr, text: String::new(), steps, instant };
        let options = Options { lookback_ms: STEP_S * 1_000, delayed_name_removal, ..Options::default() };
        match run(&query, snapshot, &options, &Budget::default()) {
            Ok(answer) => format!("{:?} {:?}", answer.value, answer.annotations),
            Err(error) => error.to_string(),
        }
    }

    /// Joins, with `A` for the many side and `B` for the other one.
    const JOINS: [&str; 15] = [
        "A * on (pod) group_left () B",
        "A * on (pod) group_left (node) B",
        "A / on (pod) group_left (node, kind, node) B",
        "B - on (pod) group_right (kind) A",
        "B / on (pod) group_right () A",
        "A > on (pod) group_left (node) B",
        "A == bool on (pod) group_left (kind) B",
        "B <= on (pod, node) group_right (zone) A",
        "A ^ on (pod, node) group_left (kind, id) B",
        "A + on (pod) group_left (__name__) B",
        "sum by (node) (A * on (pod) group_left (node) B)",
        "count by (kind, node) (A * on (pod) group_left (kind) (B > 0))",
        "A * ignoring (id, zone, kind) group_left (kind) B",
        "max by (pod) (A) - on (pod) B",
        "max by (pod, node, kind) (A) < B",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Two rows of one signature on the one side, which nothing of the many side meets, make it look at each step.
        #[test]
        fn pairs_that_are_known_from_the_start_are_those_that_are_met_step_by_step(
            many in series(60),
            one in series(9),
            (instant, delayed) in (any::<bool>(), any::<bool>()),
        ) {
            let snapshot = store(&many, &one);
            for join in JOINS {
                for (a, b) in [("a", "b"), ("{__name__=~\"a.*\"}", "b"), ("a", "{__name__=~\"b.*\"}")] {
                    let of = |b: &str| join.replace('A', a).replace('B', b);
                    let plain = told(&of(b), &snapshot, instant, delayed);
                    let stepwise = told(&of(&format!("({b} or {{__name__=~\"cc?\"}})")), &snapshot, instant, delayed);
                    prop_assert_eq!(plain, stepwise, "{}", of(b));
                }
            }
        }
    }
}
