//! What an expression yields while it is evaluated: rows of values, one for each series, one value for each step.
//!
//! A step without a value holds [`ABSENT`]: the staleness marker's bits. No result can be that NaN: the store's markers
//! are filtered where samples are read, and arithmetic only makes quiet NaNs, which these bits are not.
//!
//! Native histograms stand beside the values, in columns that only rows with histograms have: where a step has one, its
//! value is [`ABSENT`], so that what computes floats alone passes over it and pays nothing.

use std::rc::Rc;
use std::sync::Arc;

use crate::model::{Labels, METRIC_NAME, STALE_NAN_BITS, try_reserve_exact, try_with_capacity};
use crate::promql::FloatHistogram;
use crate::promql::QueryError;
use crate::promql::budget::{Charge, Meter};
use crate::simd::simd_dispatch;
use crate::tsdb::SelectedSeries;

use super::keyed::numbered;

/// No value at this step.
pub(super) const ABSENT: f64 = f64::from_bits(STALE_NAN_BITS);

/// Whether there is no value.
#[inline]
pub(super) fn is_absent(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// How many steps have a value.
pub(super) fn present(row: &[f64]) -> usize {
    #[inline(always)]
    fn count(row: &[f64]) -> usize {
        row.iter().filter(|value| !is_absent(**value)).count()
    }
    // At one moment a row is one value, and there are many of them.
    if row.len() < 8 { count(row) } else { simd_dispatch!(count(row)) }
}

/// The steps something is evaluated at; may be none, inside a subquery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) start_ms: i64,
    pub(super) step_ms: i64,
    pub(super) len: usize,
}

impl Grid {
    /// The time of the `i`-th step; saturates.
    pub(super) fn at(&self, i: usize) -> i64 {
        let ahead = self.step_ms.saturating_mul(i64::try_from(i).unwrap_or(i64::MAX));
        self.start_ms.saturating_add(ahead)
    }

    pub(super) fn last(&self) -> i64 {
        self.at(self.len.saturating_sub(1))
    }

    /// The first step alone.
    pub(super) fn once(&self) -> Grid {
        Grid { start_ms: self.start_ms, step_ms: self.step_ms, len: self.len.min(1) }
    }
}

/// Whose a row is.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) labels: Labels,
    /// The name goes at the end of the query (delayed name removal).
    pub(super) drops_name: bool,
}

/// Rows of one value per step. No two rows of a finished node have equal labels, and none is without any value.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) heads: Vec<Head>,
    /// Row by row, `steps` each.
    values: Vec<f64>,
    /// As many as rows, or none at all where no row has histograms.
    histograms: Vec<Option<Column>>,
    steps: usize,
    charge: Charge,
    /// Rows that are paid for.
    room: usize,
}

/// The histograms of one row, one place for each step.
type Column = Box<[Option<Arc<FloatHistogram>>]>;

/// One value of either kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Point<'r> {
    Float(f64),
    Histogram(&'r Arc<FloatHistogram>),
}

/// The size of a histogram as samples are counted: one for what it is, one for each 16 bytes of buckets.
pub(super) fn samples_of(histogram: &FloatHistogram) -> usize {
    histogram.bytes() / 16 + 1
}

/// One number for each step.
#[derive(Debug)]
pub(super) struct Scalars {
    pub(super) values: Vec<f64>,
    _charge: Charge,
}

impl Scalars {
    /// `len` times `value`, paid before it is allocated.
    pub(super) fn filled(meter: &Rc<Meter>, len: usize, value: f64) -> Result<Scalars, QueryError> {
        let mut charge = meter.charge();
        charge.add_values(len)?;
        charge.add_samples(len)?;
        let mut values = try_with_capacity(len)?;
        values.resize(len, value);
        Ok(Scalars { values, _charge: charge })
    }
}

/// What became of one series that was read for a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filled {
    /// Samples that were read.
    pub(super) read: usize,
    /// Those that the row was made of.
    pub(super) held: usize,
    /// Values of the row.
    pub(super) present: usize,
}

/// What two rows of equal labels mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duplicates {
    /// They are one series, unless both have a value at one step.
    Merge,
    /// An error, as upstream has it for functions of windows.
    Refuse,
}

impl Rows {
    pub(super) fn new(meter: &Rc<Meter>, steps: usize) -> Rows {
        let (heads, values, histograms) = (Vec::new(), Vec::new(), Vec::new());
        Rows { heads, values, histograms, steps, charge: meter.charge(), room: 0 }
    }

    /// Pays for and allocates up to `rows` rows; they still have to be pushed.
    pub(super) fn with_room(meter: &Rc<Meter>, rows: usize, steps: usize) -> Result<Rows, QueryError> {
        let mut charge = meter.charge();
        charge.add_rows(rows, steps)?;
        let values = try_with_capacity(rows.saturating_mul(steps))?;
        let heads = try_with_capacity(rows)?;
        Ok(Rows { heads, values, histograms: Vec::new(), steps, charge, room: rows })
    }

    /// Rows of values that are there, row by row; pays for them.
    pub(super) fn of(
        meter: &Rc<Meter>,
        heads: Vec<Head>,
        values: Vec<f64>,
        steps: usize,
    ) -> Result<Rows, QueryError> {
        let mut charge = meter.charge();
        charge.add_rows(heads.len(), steps)?;
        let room = heads.len();
        Ok(Rows { heads, values, histograms: Vec::new(), steps, charge, room })
    }

    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    pub(super) fn row(&self, i: usize) -> &[f64] {
        let from = i * self.steps;
        &self.values[from..from + self.steps]
    }

    pub(super) fn row_mut(&mut self, i: usize) -> &mut [f64] {
        let from = i * self.steps;
        &mut self.values[from..from + self.steps]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Head, &[f64])> {
        self.heads.iter().enumerate().map(|(i, head)| (head, self.row(i)))
    }

    /// Whether any row has histograms.
    pub(super) fn has_histograms(&self) -> bool {
        !self.histograms.is_empty()
    }

    pub(super) fn histogram(&self, row: usize, step: usize) -> Option<&Arc<FloatHistogram>> {
        self.histograms.get(row)?.as_ref()?.get(step)?.as_ref()
    }

    /// The histograms of a row, by step.
    pub(super) fn row_histograms(&self, row: usize) -> impl Iterator<Item = (usize, &Arc<FloatHistogram>)> {
        let column = self.histograms.get(row).and_then(Option::as_ref);
        let places = column.into_iter().flat_map(|column| column.iter().enumerate());
        places.filter_map(|(step, histogram)| Some((step, histogram.as_ref()?)))
    }

    /// Marks the steps at which a row has a value of either kind.
    pub(super) fn mark_present(&self, row: usize, present: &mut [bool]) {
        for (value, present) in self.row(row).iter().zip(present.iter_mut()) {
            *present |= !is_absent(*value);
        }
        self.row_histograms(row).for_each(|(step, _)| present[step] = true);
    }

    /// What stands at a place, of either kind.
    pub(super) fn point(&self, row: usize, step: usize) -> Option<Point<'_>> {
        let value = self.row(row)[step];
        if !is_absent(value) {
            return Some(Point::Float(value));
        }
        self.histogram(row, step).map(Point::Histogram)
    }

    /// Puts a histogram at a place and takes any float away from it. Pays for a column where the row had none, and for a
    /// histogram that nobody else holds.
    pub(super) fn put_histogram(
        &mut self,
        row: usize,
        step: usize,
        histogram: Arc<FloatHistogram>,
    ) -> Result<(), QueryError> {
        if self.histograms.is_empty() {
            self.histograms.resize_with(self.heads.len(), || None);
        }
        if Arc::strong_count(&histogram) == 1 {
            self.charge.add_bytes(histogram.bytes() as u64)?;
        }
        let place = &mut self.histograms[row];
        if place.is_none() {
            self.charge.add_values(self.steps)?;
        }
        let column = place.get_or_insert_with(|| vec![None; self.steps].into_boxed_slice());
        column[step] = Some(histogram);
        self.row_mut(row)[step] = ABSENT;
        Ok(())
    }

    /// Takes a histogram away from its place.
    pub(super) fn take_histogram(&mut self, row: usize, step: usize) -> Option<Arc<FloatHistogram>> {
        self.histograms.get_mut(row)?.as_mut()?.get_mut(step)?.take()
    }

    /// Leaves the floats alone, and the rows that have any.
    pub(super) fn without_histograms(mut self) -> Rows {
        if self.has_histograms() {
            self.histograms = Vec::new();
            self.drop_empty();
        }
        self
    }

    /// Without rows that have nothing, once their histograms were taken one by one.
    pub(super) fn without_empty(mut self) -> Rows {
        self.histograms = Vec::new();
        self.drop_empty();
        self
    }

    /// Pays for histograms that rows of this will share with whoever read them.
    pub(super) fn pay_for(&mut self, bytes: usize) -> Result<(), QueryError> {
        self.charge.add_bytes(bytes as u64)
    }

    fn count_histograms(&self, row: usize) -> usize {
        self.row_histograms(row).map(|(_, histogram)| samples_of(histogram)).sum()
    }

    fn is_row_empty(&self, row: usize) -> bool {
        self.row(row).iter().all(|value| is_absent(*value)) && self.row_histograms(row).next().is_none()
    }

    pub(super) fn values_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }

    /// The heads to change, and the charge for what that takes.
    pub(super) fn heads_and_charge(&mut self) -> (&mut [Head], &mut Charge) {
        (&mut self.heads, &mut self.charge)
    }

    /// Adds a row without values, in room that was paid for by [`Rows::with_room`].
    pub(super) fn push_absent(&mut self, head: Head) -> &mut [f64] {
        self.heads.push(head);
        if !self.histograms.is_empty() {
            self.histograms.push(None);
        }
        self.values.resize(self.heads.len() * self.steps, ABSENT);
        self.row_mut(self.heads.len() - 1)
    }

    /// Adds a row without values, and pays for it where it is not paid for.
    pub(super) fn push_paid(&mut self, head: Head) -> Result<&mut [f64], QueryError> {
        if self.heads.len() >= self.room {
            self.charge.add_rows(1, self.steps)?;
            self.room = self.heads.len() + 1;
        }
        Ok(self.push_absent(head))
    }

    /// Room for so many rows, all absent, to be filled in any order; [`Rows::settle_filled`] makes rows of it.
    pub(super) fn all_absent(&mut self, rows: usize) -> &mut [f64] {
        self.values.resize(rows * self.steps, ABSENT);
        &mut self.values
    }

    /// Names the rows that were filled, leaves out those without values, and counts samples in the order of rows: those
    /// that each is made of, where they are `held` meanwhile, and those that it has.
    pub(super) fn settle_filled(
        &mut self,
        found: Vec<SelectedSeries>,
        filled: &[Filled],
        held: bool,
    ) -> Result<(), QueryError> {
        let steps = self.steps;
        let mut kept = 0;
        for (i, (series, filled)) in found.into_iter().zip(filled).enumerate() {
            if held {
                self.charge.count_transient_samples(filled.held)?;
            }
            self.charge.add_samples(filled.present)?;
            if filled.present == 0 {
                continue;
            }
            if kept != i {
                self.values.copy_within(i * steps..(i + 1) * steps, kept * steps);
            }
            self.heads.push(Head { labels: series.labels, drops_name: false });
            kept += 1;
        }
        self.values.truncate(kept * steps);
        Ok(())
    }

    /// Takes the last row back where it stayed without values; else counts its samples.
    pub(super) fn settle_last(&mut self) -> Result<(), QueryError> {
        let Some(last) = self.heads.len().checked_sub(1) else { return Ok(()) };
        let floats = present(self.row(last));
        let present = floats + self.count_histograms(last);
        if present == 0 {
            self.heads.pop();
            self.histograms.truncate(last);
            self.values.truncate(last * self.steps);
        }
        self.charge.add_samples(present)
    }

    /// Counts all present samples, for rows whose rows were filled side by side.
    pub(super) fn settle_all(&mut self) -> Result<(), QueryError> {
        self.drop_empty();
        let present = self.present();
        self.charge.add_samples(present)
    }

    /// Counts all present samples in place of those that were counted of the rows before they were changed.
    pub(super) fn settle_again(&mut self) -> Result<(), QueryError> {
        self.drop_empty();
        let present = self.present();
        self.charge.replace_samples(present)
    }

    /// Leaves the rows of these `places` in their order, each with so many values, and counts those in place of what was
    /// counted before; no row is there twice, or without any value.
    pub(super) fn settle_picked(mut self, places: &[usize], present: usize) -> Result<Rows, QueryError> {
        if !places.is_sorted() {
            if places.len() < self.heads.len() {
                self.charge.add_values(places.len().saturating_mul(self.steps))?;
            }
            self = self.reordered(places)?;
        } else if places.len() < self.heads.len() {
            for (to, from) in places.iter().copied().enumerate() {
                self.heads.swap(to, from);
                self.values.copy_within(from * self.steps..(from + 1) * self.steps, to * self.steps);
            }
            self.heads.truncate(places.len());
            self.values.truncate(places.len() * self.steps);
        }
        self.charge.replace_samples(present)?;
        Ok(self)
    }

    /// Pays for and allocates up to so many rows more.
    pub(super) fn add_room(&mut self, rows: usize) -> Result<(), QueryError> {
        let more = (self.heads.len() + rows).saturating_sub(self.room);
        self.charge.add_rows(more, self.steps)?;
        self.room += more;
        try_reserve_exact(&mut self.heads, rows)?;
        try_reserve_exact(&mut self.values, rows.saturating_mul(self.steps))?;
        Ok(())
    }

    fn present(&self) -> usize {
        let floats = present(&self.values);
        let histograms: usize = (0..self.histograms.len()).map(|row| self.count_histograms(row)).sum();
        floats + histograms
    }

    /// Removes rows that have no value at any step.
    pub(super) fn drop_empty(&mut self) {
        let steps = self.steps;
        let mut kept = 0;
        for i in 0..self.heads.len() {
            if self.is_row_empty(i) {
                continue;
            }
            if kept != i {
                self.heads.swap(kept, i);
                if self.has_histograms() {
                    self.histograms.swap(kept, i);
                }
                self.values.copy_within(i * steps..(i + 1) * steps, kept * steps);
            }
            kept += 1;
        }
        self.heads.truncate(kept);
        self.histograms.truncate(kept);
        self.values.truncate(kept * steps);
    }

    /// Rows in the order of `places`, each a row's index, and none twice.
    pub(super) fn reordered(mut self, places: &[usize]) -> Result<Rows, QueryError> {
        if places.len() == self.heads.len() {
            self.move_values(places);
        } else {
            let mut values = try_with_capacity(places.len() * self.steps)?;
            places.iter().for_each(|i| values.extend_from_slice(self.row(*i)));
            self.values = values;
        }
        self.heads = picked(self.heads, places);
        if !self.histograms.is_empty() {
            self.histograms = picked(self.histograms, places);
        }
        Ok(self)
    }

    /// Moves the values of each row to where its index stands among the `places`, which are all there are: memory that was
    /// used before costs less than new memory.
    fn move_values(&mut self, places: &[usize]) {
        let steps = self.steps;
        let mut moved = vec![false; places.len()];
        let mut first_row = vec![0.0; steps];
        for first in 0..places.len() {
            if moved[first] || places[first] == first {
                continue;
            }
            first_row.copy_from_slice(self.row(first));
            let mut to = first;
            while places[to] != first {
                let from = places[to];
                self.values.copy_within(from * steps..(from + 1) * steps, to * steps);
                moved[to] = true;
                to = from;
            }
            self.row_mut(to).copy_from_slice(&first_row);
            moved[to] = true;
        }
    }

    /// Rows in the order of their labels.
    pub(super) fn by_labels(self) -> Result<Rows, QueryError> {
        if self.heads.is_sorted_by(|a, b| a.labels <= b.labels) {
            return Ok(self);
        }
        let mut places: Vec<usize> = (0..self.heads.len()).collect();
        places.sort_by(|a, b| self.heads[*a].labels.cmp(&self.heads[*b].labels));
        self.reordered(&places)
    }

    /// Rows of more steps, all with the value of the only one there is.
    pub(super) fn repeated(self, meter: &Rc<Meter>, steps: usize) -> Result<Rows, QueryError> {
        if steps == self.steps {
            return Ok(self);
        }
        let mut out = Rows::with_room(meter, self.len(), steps)?;
        for (i, head) in self.heads.iter().enumerate() {
            let value = self.row(i).first().copied().unwrap_or(ABSENT);
            out.push_absent(head.clone()).fill(value);
            if let Some(histogram) = self.histogram(i, 0) {
                let last = out.len() - 1;
                for step in 0..steps {
                    out.put_histogram(last, step, Arc::clone(histogram))?;
                }
            }
            out.settle_last()?;
        }
        Ok(out)
    }

    /// Makes rows of equal labels one, or refuses.
    pub(super) fn merged(mut self, duplicates: Duplicates) -> Result<Rows, QueryError> {
        // Mostly they are in order still, and so each different from the others.
        if self.heads.is_sorted_by(|a, b| a.labels < b.labels) {
            return Ok(self);
        }
        let numbers = numbered(self.heads.iter().map(|head| &head.labels), |_| true);
        let (of, firsts) = (numbers.of, numbers.firsts);
        if firsts.len() == self.heads.len() {
            return Ok(self);
        }
        for (i, number) in of.into_iter().enumerate() {
            let into = firsts[number as usize];
            if into == i {
                continue;
            }
            if duplicates == Duplicates::Refuse {
                return Err(same_labelset());
            }
            let (before, after) = self.values.split_at_mut(i * self.steps);
            let target = &mut before[into * self.steps..(into + 1) * self.steps];
            for (have, value) in target.iter_mut().zip(&mut after[..self.steps]) {
                if is_absent(*value) {
                    continue;
                }
                if !is_absent(*have) {
                    return Err(same_labelset());
                }
                *have = std::mem::replace(value, ABSENT);
            }
            if self.has_histograms() {
                self.merge_histograms(into, i)?;
            }
            let drops_name = self.heads[i].drops_name;
            self.heads[into].drops_name |= drops_name;
        }
        self.drop_empty();
        Ok(self)
    }

    /// Moves the histograms of one row to another, where nothing may stand at their steps.
    fn merge_histograms(&mut self, into: usize, from: usize) -> Result<(), QueryError> {
        for step in 0..self.steps {
            let float = !is_absent(self.row(into)[step]);
            if float && self.histogram(into, step).is_some() {
                return Err(same_labelset());
            }
            let Some(histogram) = self.take_histogram(from, step) else { continue };
            if float || self.histogram(into, step).is_some() {
                return Err(same_labelset());
            }
            self.put_histogram(into, step, histogram)?;
        }
        Ok(())
    }

    /// Takes names off: at once, or marked for the end of the query.
    pub(super) fn without_names(mut self, delayed: bool, duplicates: Duplicates) -> Result<Rows, QueryError> {
        if delayed {
            for head in &mut self.heads {
                head.drops_name = true;
            }
            return Ok(self);
        }
        // Where all have one name (or none), taking it off cannot make two of them equal.
        let mut names = self.heads.iter().map(|head| metadata(&head.labels));
        let first = names.next();
        let unique = names.all(|name| Some(name) == first);
        Labels::filter_all(self.heads.iter_mut().map(|head| &mut head.labels), |name| !is_metadata(name));
        if unique { Ok(self) } else { self.merged(duplicates) }
    }

    /// Carries out the removals that were marked.
    pub(super) fn clean(mut self) -> Result<Rows, QueryError> {
        if self.heads.iter().all(|head| !head.drops_name) {
            return Ok(self);
        }
        let named = self.heads.iter_mut();
        let named = named.filter_map(|head| std::mem::take(&mut head.drops_name).then_some(&mut head.labels));
        Labels::filter_all(named, |name| !is_metadata(name));
        self.merged(Duplicates::Merge)
    }
}

/// Those of these `places`, none of which is there twice.
fn picked<T>(all: Vec<T>, places: &[usize]) -> Vec<T> {
    let mut all: Vec<Option<T>> = all.into_iter().map(Some).collect();
    places.iter().filter_map(|place| all[*place].take()).collect()
}

/// The error of two equal label sets at one step.
pub(super) fn same_labelset() -> QueryError {
    QueryError::execution("vector cannot contain metrics with the same labelset")
}

/// The labels that go with the metric's name.
pub(super) fn is_metadata(name: &str) -> bool {
    name == METRIC_NAME || name == "__type__" || name == "__unit__"
}

fn metadata(labels: &Labels) -> [&str; 3] {
    [labels.value(METRIC_NAME), labels.value("__type__"), labels.value("__unit__")]
}

/// The labels without the metric's name.
pub(super) fn nameless(labels: &Labels) -> Labels {
    labels.filtered(|name| !is_metadata(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::promql::Budget;
    use crate::promql::budget::Limits;

    proptest! {
        #[test]
        fn rows_stand_where_they_were_put_whether_all_of_them_are_or_few(
            order in Just((0..12usize).collect::<Vec<_>>()).prop_shuffle(),
            left in 0usize..13,
            steps in 0usize..4,
        ) {
            let meter = Meter::new(Limits::default(), &Budget::default());
            let called = |row: usize| Labels::from_pairs([("row", row.to_string())]);
            let values = |row: usize| (0..steps).map(move |step| (row * 10 + step) as f64);
            let rows = || -> Result<Rows, QueryError> {
                let heads = (0..12).map(|row| Head { labels: called(row), drops_name: false });
                Rows::of(&meter, heads.collect(), (0..12).flat_map(values).collect(), steps)
            };
            let mut sorted = order[..left].to_vec();
            sorted.sort_unstable();
            for places in [&order[..left], &sorted] {
                let moved = rows().expect("room").reordered(places).expect("room");
                let settled = rows().expect("room").settle_picked(places, left * steps).expect("room");
                for rows in [moved, settled] {
                    let found: Vec<Labels> = rows.heads.iter().map(|head| head.labels.clone()).collect();
                    prop_assert_eq!(found, places.iter().map(|row| called(*row)).collect::<Vec<_>>());
                    let expected: Vec<f64> = places.iter().copied().flat_map(values).collect();
                    prop_assert_eq!(&rows.values, &expected);
                }
            }
            prop_assert_eq!(meter.samples_left(), Limits::default().samples_max);
        }
    }
}
