//! Intermediate results of an evaluation: labelled rows with one value for each step.
//!
//! A step without a value holds [`ABSENT`], the bits of the staleness marker. No result can have
//! these bits: markers in the store are filtered when samples are read, and arithmetic produces
//! only quiet NaNs, which these bits are not.
//!
//! Native histograms are stored separately, in rows that exist only if there are histograms. A step
//! with a histogram has the value [`ABSENT`], so code that computes floats skips it without extra
//! cost.

use std::rc::Rc;
use std::sync::Arc;

use crate::model::{Labels, METRIC_NAME, STALE_NAN_BITS, try_reserve_exact, try_with_capacity};
use crate::promql::budget::{Charge, Meter};
use crate::promql::error::QueryError;
use crate::promql::histogram::FloatHistogram;
use crate::simd::simd_dispatch;
use crate::tsdb::SelectedSeries;

use super::label_keys::number_label_sets;

/// The value of a step without a value.
pub(super) const ABSENT: f64 = f64::from_bits(STALE_NAN_BITS);

/// Returns whether this is [`ABSENT`].
#[inline]
pub(super) fn is_absent(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// Returns the number of steps with a value.
pub(super) fn present(row: &[f64]) -> usize {
    #[inline(always)]
    fn count(row: &[f64]) -> usize {
        row.iter().filter(|value| !is_absent(**value)).count()
    }
    // Rows of instant queries have one value, and there are many of them.
    if row.len() < 8 { count(row) } else { simd_dispatch!(count(row)) }
}

/// The steps of an evaluation. Inside a subquery there may be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) start_ms: i64,
    pub(super) step_ms: i64,
    pub(super) len: usize,
}

impl Grid {
    /// Returns the time of the `i`-th step in milliseconds; saturates.
    pub(super) fn at(&self, i: usize) -> i64 {
        let ahead = self.step_ms.saturating_mul(i64::try_from(i).unwrap_or(i64::MAX));
        self.start_ms.saturating_add(ahead)
    }

    pub(super) fn last(&self) -> i64 {
        self.at(self.len.saturating_sub(1))
    }

    /// Returns the grid of the first step only.
    pub(super) fn once(&self) -> Grid {
        Grid { start_ms: self.start_ms, step_ms: self.step_ms, len: self.len.min(1) }
    }
}

/// The labels of a row.
#[derive(Clone, Debug)]
pub(super) struct RowHead {
    pub(super) labels: Labels,
    /// The metric name is removed at the end of the query (delayed name removal).
    pub(super) drops_name: bool,
}

/// Labelled rows with one value per step. The rows of a finished node have different labels, and
/// each has a value at some step.
#[derive(Debug)]
pub(super) struct LabelledRows {
    pub(super) heads: Vec<RowHead>,
    /// Row after row, `steps` values each.
    values: Vec<f64>,
    /// One entry for each row, or empty if no row has histograms.
    histograms: Vec<Option<HistogramRow>>,
    steps: usize,
    charge: Charge,
    /// Number of rows whose memory is charged.
    charged_rows: usize,
}

/// The histograms of one row, one entry for each step.
type HistogramRow = Box<[Option<Arc<FloatHistogram>>]>;

/// A value of either kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Point<'r> {
    Float(f64),
    Histogram(&'r Arc<FloatHistogram>),
}

/// Returns how many samples a histogram counts as: one, plus one for each 16 bytes of buckets.
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
    /// Returns `len` copies of `value`. Charges the memory before it is allocated.
    pub(super) fn filled(meter: &Rc<Meter>, len: usize, value: f64) -> Result<Scalars, QueryError> {
        let mut charge = meter.charge();
        charge.add_values(len)?;
        charge.add_samples(len)?;
        let mut values = try_with_capacity(len)?;
        values.resize(len, value);
        Ok(Scalars { values, _charge: charge })
    }
}

/// Counts of one series that was read for a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowCounts {
    /// Samples that were read.
    pub(super) read: usize,
    /// Samples from which the row was computed.
    pub(super) held: usize,
    /// Steps with a value.
    pub(super) present: usize,
}

/// How rows with equal labels are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duplicates {
    /// The rows are merged; an error if two of them have a value at one step.
    Merge,
    /// Equal labels are an error, as in Prometheus for window functions.
    Refuse,
}

impl LabelledRows {
    pub(super) fn new(meter: &Rc<Meter>, steps: usize) -> LabelledRows {
        let (heads, values, histograms) = (Vec::new(), Vec::new(), Vec::new());
        LabelledRows { heads, values, histograms, steps, charge: meter.charge(), charged_rows: 0 }
    }

    /// Charges and allocates the memory of `rows` rows, which are not pushed yet.
    pub(super) fn with_capacity(
        meter: &Rc<Meter>,
        rows: usize,
        steps: usize,
    ) -> Result<LabelledRows, QueryError> {
        let mut charge = meter.charge();
        charge.add_rows(rows, steps)?;
        let values = try_with_capacity(rows.saturating_mul(steps))?;
        let heads = try_with_capacity(rows)?;
        Ok(LabelledRows { heads, values, histograms: Vec::new(), steps, charge, charged_rows: rows })
    }

    /// Returns rows with these values, row after row, and charges them.
    pub(super) fn of(
        meter: &Rc<Meter>,
        heads: Vec<RowHead>,
        values: Vec<f64>,
        steps: usize,
    ) -> Result<LabelledRows, QueryError> {
        let mut charge = meter.charge();
        charge.add_rows(heads.len(), steps)?;
        let charged_rows = heads.len();
        Ok(LabelledRows { heads, values, histograms: Vec::new(), steps, charge, charged_rows })
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

    pub(super) fn iter(&self) -> impl Iterator<Item = (&RowHead, &[f64])> {
        self.heads.iter().enumerate().map(|(i, head)| (head, self.row(i)))
    }

    /// Returns whether any row has histograms.
    pub(super) fn has_histograms(&self) -> bool {
        !self.histograms.is_empty()
    }

    pub(super) fn histogram(&self, row: usize, step: usize) -> Option<&Arc<FloatHistogram>> {
        self.histograms.get(row)?.as_ref()?.get(step)?.as_ref()
    }

    /// Returns the histograms of a row with their steps.
    pub(super) fn row_histograms(&self, row: usize) -> impl Iterator<Item = (usize, &Arc<FloatHistogram>)> {
        let column = self.histograms.get(row).and_then(Option::as_ref);
        let entries = column.into_iter().flat_map(|column| column.iter().enumerate());
        entries.filter_map(|(step, histogram)| Some((step, histogram.as_ref()?)))
    }

    /// Sets `present` at the steps at which a row has a value of either kind.
    pub(super) fn mark_present(&self, row: usize, present: &mut [bool]) {
        for (value, present) in self.row(row).iter().zip(present.iter_mut()) {
            *present |= !is_absent(*value);
        }
        self.row_histograms(row).for_each(|(step, _)| present[step] = true);
    }

    /// Returns the value of a row at a step, of either kind.
    pub(super) fn point(&self, row: usize, step: usize) -> Option<Point<'_>> {
        let value = self.row(row)[step];
        if !is_absent(value) {
            return Some(Point::Float(value));
        }
        self.histogram(row, step).map(Point::Histogram)
    }

    /// Sets the histogram of a row at a step and removes its float. Charges a histogram row if
    /// there was none, and the histogram if nothing else refers to it.
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
        let slot = &mut self.histograms[row];
        if slot.is_none() {
            self.charge.add_values(self.steps)?;
        }
        let column = slot.get_or_insert_with(|| vec![None; self.steps].into_boxed_slice());
        column[step] = Some(histogram);
        self.row_mut(row)[step] = ABSENT;
        Ok(())
    }

    /// Removes and returns a histogram.
    pub(super) fn take_histogram(&mut self, row: usize, step: usize) -> Option<Arc<FloatHistogram>> {
        self.histograms.get_mut(row)?.as_mut()?.get_mut(step)?.take()
    }

    /// Removes all histograms, and the rows that have no floats.
    pub(super) fn without_histograms(mut self) -> LabelledRows {
        if self.has_histograms() {
            self.histograms = Vec::new();
            self.drop_empty();
        }
        self
    }

    /// Removes empty rows after all histograms were taken out.
    pub(super) fn without_empty(mut self) -> LabelledRows {
        self.histograms = Vec::new();
        self.drop_empty();
        self
    }

    /// Charges histograms that these rows share with a cache or reader.
    pub(super) fn charge_shared(&mut self, bytes: usize) -> Result<(), QueryError> {
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

    /// Returns the heads for a change, and the charge for the memory that it needs.
    pub(super) fn heads_and_charge(&mut self) -> (&mut [RowHead], &mut Charge) {
        (&mut self.heads, &mut self.charge)
    }

    /// Adds a row without values. Its memory must have been charged by
    /// [`LabelledRows::with_capacity`].
    pub(super) fn push_absent(&mut self, head: RowHead) -> &mut [f64] {
        self.heads.push(head);
        if !self.histograms.is_empty() {
            self.histograms.push(None);
        }
        self.values.resize(self.heads.len() * self.steps, ABSENT);
        self.row_mut(self.heads.len() - 1)
    }

    /// Adds a row without values and charges it if necessary.
    pub(super) fn push_charged(&mut self, head: RowHead) -> Result<&mut [f64], QueryError> {
        if self.heads.len() >= self.charged_rows {
            self.charge.add_rows(1, self.steps)?;
            self.charged_rows = self.heads.len() + 1;
        }
        Ok(self.push_absent(head))
    }

    /// Returns the values of `rows` absent rows, to be filled in any order.
    /// [`LabelledRows::finish_filled`] completes the rows.
    pub(super) fn absent_values(&mut self, rows: usize) -> &mut [f64] {
        self.values.resize(rows * self.steps, ABSENT);
        &mut self.values
    }

    /// Labels the filled rows, removes those without values, and counts samples in the order of
    /// rows: the values of each row and, if `held`, the samples from which it was computed.
    pub(super) fn finish_filled(
        &mut self,
        series: Vec<SelectedSeries>,
        counts: &[RowCounts],
        held: bool,
    ) -> Result<(), QueryError> {
        let steps = self.steps;
        let mut kept = 0;
        for (i, (series, counts)) in series.into_iter().zip(counts).enumerate() {
            if held {
                self.charge.count_transient_samples(counts.held)?;
            }
            self.charge.add_samples(counts.present)?;
            if counts.present == 0 {
                continue;
            }
            if kept != i {
                self.values.copy_within(i * steps..(i + 1) * steps, kept * steps);
            }
            self.heads.push(RowHead { labels: series.labels, drops_name: false });
            kept += 1;
        }
        self.values.truncate(kept * steps);
        Ok(())
    }

    /// Removes the last row if it has no values; otherwise counts its samples.
    pub(super) fn finish_last(&mut self) -> Result<(), QueryError> {
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

    /// Removes empty rows and counts all samples, for rows that were filled together.
    pub(super) fn finish_all(&mut self) -> Result<(), QueryError> {
        self.drop_empty();
        let present = self.present();
        self.charge.add_samples(present)
    }

    /// Removes empty rows and counts all samples, in place of those counted before the rows were
    /// changed.
    pub(super) fn recount(&mut self) -> Result<(), QueryError> {
        self.drop_empty();
        let present = self.present();
        self.charge.replace_samples(present)
    }

    /// Keeps the rows with these `indices`, in this order, and counts their `present` values in
    /// place of those counted before. No index may occur twice, and each row must have a value.
    pub(super) fn finish_selected(
        mut self,
        indices: &[usize],
        present: usize,
    ) -> Result<LabelledRows, QueryError> {
        if !indices.is_sorted() {
            if indices.len() < self.heads.len() {
                self.charge.add_values(indices.len().saturating_mul(self.steps))?;
            }
            self = self.reordered(indices)?;
        } else if indices.len() < self.heads.len() {
            for (to, from) in indices.iter().copied().enumerate() {
                self.heads.swap(to, from);
                self.values.copy_within(from * self.steps..(from + 1) * self.steps, to * self.steps);
            }
            self.heads.truncate(indices.len());
            self.values.truncate(indices.len() * self.steps);
        }
        self.charge.replace_samples(present)?;
        Ok(self)
    }

    /// Charges and allocates the memory of up to `rows` additional rows.
    pub(super) fn reserve_rows(&mut self, rows: usize) -> Result<(), QueryError> {
        let more = (self.heads.len() + rows).saturating_sub(self.charged_rows);
        self.charge.add_rows(more, self.steps)?;
        self.charged_rows += more;
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

    /// Returns the rows with these `indices`, in this order. No index may occur twice.
    pub(super) fn reordered(mut self, indices: &[usize]) -> Result<LabelledRows, QueryError> {
        if indices.len() == self.heads.len() {
            self.move_values(indices);
        } else {
            let mut values = try_with_capacity(indices.len() * self.steps)?;
            indices.iter().for_each(|i| values.extend_from_slice(self.row(*i)));
            self.values = values;
        }
        self.heads = pick(self.heads, indices);
        if !self.histograms.is_empty() {
            self.histograms = pick(self.histograms, indices);
        }
        Ok(self)
    }

    /// Permutes the values in place: row `i` becomes the row that had the index `indices[i]`.
    /// `indices` contains every index. Memory in use is cheaper than newly allocated memory.
    fn move_values(&mut self, indices: &[usize]) {
        let steps = self.steps;
        let mut moved = vec![false; indices.len()];
        let mut first_row = vec![0.0; steps];
        for first in 0..indices.len() {
            if moved[first] || indices[first] == first {
                continue;
            }
            first_row.copy_from_slice(self.row(first));
            let mut to = first;
            while indices[to] != first {
                let from = indices[to];
                self.values.copy_within(from * steps..(from + 1) * steps, to * steps);
                moved[to] = true;
                to = from;
            }
            self.row_mut(to).copy_from_slice(&first_row);
            moved[to] = true;
        }
    }

    /// Sorts the rows by their labels.
    pub(super) fn sorted_by_labels(self) -> Result<LabelledRows, QueryError> {
        if self.heads.is_sorted_by(|a, b| a.labels <= b.labels) {
            return Ok(self);
        }
        let mut indices: Vec<usize> = (0..self.heads.len()).collect();
        indices.sort_by(|a, b| self.heads[*a].labels.cmp(&self.heads[*b].labels));
        self.reordered(&indices)
    }

    /// Returns rows of `steps` steps, each with the value of its only step.
    pub(super) fn repeat(self, meter: &Rc<Meter>, steps: usize) -> Result<LabelledRows, QueryError> {
        if steps == self.steps {
            return Ok(self);
        }
        let mut out = LabelledRows::with_capacity(meter, self.len(), steps)?;
        for (i, head) in self.heads.iter().enumerate() {
            let value = self.row(i).first().copied().unwrap_or(ABSENT);
            out.push_absent(head.clone()).fill(value);
            if let Some(histogram) = self.histogram(i, 0) {
                let last = out.len() - 1;
                for step in 0..steps {
                    out.put_histogram(last, step, Arc::clone(histogram))?;
                }
            }
            out.finish_last()?;
        }
        Ok(out)
    }

    /// Merges rows with equal labels, or fails.
    pub(super) fn merge_duplicates(mut self, duplicates: Duplicates) -> Result<LabelledRows, QueryError> {
        // Rows are mostly still in order, and therefore distinct.
        if self.heads.is_sorted_by(|a, b| a.labels < b.labels) {
            return Ok(self);
        }
        let numbers = number_label_sets(self.heads.iter().map(|head| &head.labels), |_| true);
        let (of, firsts) = (numbers.of, numbers.firsts);
        if firsts.len() == self.heads.len() {
            return Ok(self);
        }
        for (i, number) in of.into_iter().enumerate() {
            let target_row = firsts[number as usize];
            if target_row == i {
                continue;
            }
            if duplicates == Duplicates::Refuse {
                return Err(same_labelset());
            }
            let (before, after) = self.values.split_at_mut(i * self.steps);
            let target = &mut before[target_row * self.steps..(target_row + 1) * self.steps];
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
                self.merge_histograms(target_row, i)?;
            }
            let drops_name = self.heads[i].drops_name;
            self.heads[target_row].drops_name |= drops_name;
        }
        self.drop_empty();
        Ok(self)
    }

    /// Moves the histograms of row `from` to row `into`. Fails if both have a value at one step.
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

    /// Removes metric names: at once, or by marking the rows for the end of the query.
    pub(super) fn without_names(
        mut self,
        delayed: bool,
        duplicates: Duplicates,
    ) -> Result<LabelledRows, QueryError> {
        if delayed {
            for head in &mut self.heads {
                head.drops_name = true;
            }
            return Ok(self);
        }
        // If all rows have the same name, or none, removing it cannot make two rows equal.
        let mut names = self.heads.iter().map(|head| metadata(&head.labels));
        let first = names.next();
        let unique = names.all(|name| Some(name) == first);
        Labels::filter_all(self.heads.iter_mut().map(|head| &mut head.labels), |name| !is_metadata(name));
        if unique { Ok(self) } else { self.merge_duplicates(duplicates) }
    }

    /// Performs the removals that were marked.
    pub(super) fn apply_name_drops(mut self) -> Result<LabelledRows, QueryError> {
        if self.heads.iter().all(|head| !head.drops_name) {
            return Ok(self);
        }
        let named = self.heads.iter_mut();
        let named = named.filter_map(|head| std::mem::take(&mut head.drops_name).then_some(&mut head.labels));
        Labels::filter_all(named, |name| !is_metadata(name));
        self.merge_duplicates(Duplicates::Merge)
    }
}

/// Returns the elements with these indices, none of which occurs twice.
fn pick<T>(all: Vec<T>, indices: &[usize]) -> Vec<T> {
    let mut all: Vec<Option<T>> = all.into_iter().map(Some).collect();
    indices.iter().filter_map(|index| all[*index].take()).collect()
}

/// Returns the error for two equal label sets at one step.
pub(super) fn same_labelset() -> QueryError {
    QueryError::execution("vector cannot contain metrics with the same labelset")
}

/// Returns whether a label is removed together with the metric name.
pub(super) fn is_metadata(name: &str) -> bool {
    name == METRIC_NAME || name == "__type__" || name == "__unit__"
}

fn metadata(labels: &Labels) -> [&str; 3] {
    [labels.value(METRIC_NAME), labels.value("__type__"), labels.value("__unit__")]
}

/// Returns the labels without the metric name and its companions.
pub(super) fn labels_without_name(labels: &Labels) -> Labels {
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
        fn reordered_rows_keep_their_labels_and_values(
            order in Just((0..12usize).collect::<Vec<_>>()).prop_shuffle(),
            left in 0usize..13,
            steps in 0usize..4,
        ) {
            let meter = Meter::new(Limits::default(), &Budget::default());
            let labels_of = |row: usize| Labels::from_pairs([("row", row.to_string())]);
            let values = |row: usize| (0..steps).map(move |step| (row * 10 + step) as f64);
            let rows = || -> Result<LabelledRows, QueryError> {
                let heads = (0..12).map(|row| RowHead { labels: labels_of(row), drops_name: false });
                LabelledRows::of(&meter, heads.collect(), (0..12).flat_map(values).collect(), steps)
            };
            let mut sorted = order[..left].to_vec();
            sorted.sort_unstable();
            for indices in [&order[..left], &sorted] {
                let moved = rows().expect("memory").reordered(indices).expect("memory");
                let selected = rows().expect("memory").finish_selected(indices, left * steps).expect("memory");
                for rows in [moved, selected] {
                    let found: Vec<Labels> = rows.heads.iter().map(|head| head.labels.clone()).collect();
                    prop_assert_eq!(found, indices.iter().map(|row| labels_of(*row)).collect::<Vec<_>>());
                    let expected: Vec<f64> = indices.iter().copied().flat_map(values).collect();
                    prop_assert_eq!(&rows.values, &expected);
                }
            }
            prop_assert_eq!(meter.samples_left(), Limits::default().samples_max);
        }
    }
}
