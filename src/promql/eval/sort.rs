//! Sorting. The order is kept only for a single step, because a matrix is ordered by labels.
//!
//! A sort of the standard library cannot be stopped from within a comparison, and it may panic if
//! comparisons are inconsistent. So this module has a merge sort of its own that checks the budget.

use std::cmp::Ordering;

use crate::model::{Labels, Pace, Stopped};
use crate::promql::error::QueryError;
use crate::promql::syntax::tree::Span;

use super::rows::LabelledRows;
use super::{ABSENT, Context};

/// Cost of comparing two numbers and moving an index, in units of [`Pace`].
pub(super) const VALUE_UNITS: u64 = 20;
/// Cost of finding a label in two label sets.
const LABEL_UNITS: u64 = 100;
/// Cost of comparing a byte of a label's value.
const BYTE_UNITS: u64 = 4;

impl Context<'_> {
    pub(super) fn sort(
        &self,
        rows: LabelledRows,
        descending: bool,
        span: Span,
    ) -> Result<LabelledRows, QueryError> {
        if self.is_pointless(&rows, span) {
            return Ok(rows);
        }
        let indices = self.sorted(rows.len(), |pace, a, b| {
            pace.spend(VALUE_UNITS)?;
            Ok(by_value(first(&rows, a), first(&rows, b), descending))
        })?;
        rows.reordered(&indices)
    }

    pub(super) fn sort_by_label(
        &self,
        rows: LabelledRows,
        names: &[String],
        descending: bool,
        span: Span,
    ) -> Result<LabelledRows, QueryError> {
        if self.is_pointless(&rows, span) {
            return Ok(rows);
        }
        let indices = self.sorted(rows.len(), |pace, a, b| {
            let order = by_names(names, &rows.heads[a].labels, &rows.heads[b].labels, pace)?;
            Ok(if descending { order.reverse() } else { order })
        })?;
        rows.reordered(&indices)
    }

    /// Returns the indices of `count` rows in ascending order. The sort is stable.
    ///
    /// # Errors
    /// Those of the budget, and lack of memory for the indices.
    pub(super) fn sorted(
        &self,
        count: usize,
        order: impl Fn(&Pace<'_>, usize, usize) -> Result<Ordering, Stopped>,
    ) -> Result<Vec<usize>, QueryError> {
        let mut charge = self.meter.charge();
        charge.add_values(count.saturating_mul(2))?;
        self.budget.pacing(None, |pace| merge_sorted(count, |a, b| order(pace, a, b)))
    }

    fn is_pointless(&self, rows: &LabelledRows, span: Span) -> bool {
        if rows.steps() > 1 {
            let text = "sort is ineffective for range queries since results are always ordered by labels";
            self.notes.borrow_mut().warn(span, text);
        }
        rows.steps() != 1
    }
}

/// Sorts `0..count` by a stable merge sort.
fn merge_sorted(
    count: usize,
    mut order: impl FnMut(usize, usize) -> Result<Ordering, Stopped>,
) -> Result<Vec<usize>, Stopped> {
    let mut from: Vec<usize> = (0..count).collect();
    let mut to: Vec<usize> = Vec::with_capacity(count);
    let mut width = 1;
    while width < count {
        to.clear();
        for pair in from.chunks(width.saturating_mul(2)) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            // Sorted rows need only one comparison for each pair of chunks.
            if let (Some(last), Some(first)) = (left.last(), right.first())
                && order(*last, *first)? != Ordering::Greater
            {
                to.extend_from_slice(pair);
                continue;
            }
            while let (Some((a, rest_left)), Some((b, rest_right))) =
                (left.split_first(), right.split_first())
            {
                if order(*a, *b)? == Ordering::Greater {
                    to.push(*b);
                    right = rest_right;
                } else {
                    to.push(*a);
                    left = rest_left;
                }
            }
            to.extend_from_slice(left);
            to.extend_from_slice(right);
        }
        std::mem::swap(&mut from, &mut to);
        width = width.saturating_mul(2);
    }
    Ok(from)
}

/// Compares the values of the named labels in order; if all are equal, compares all labels.
fn by_names(names: &[String], a: &Labels, b: &Labels, pace: &Pace<'_>) -> Result<Ordering, Stopped> {
    let spend = |a: &str, b: &str| pace.spend(LABEL_UNITS + (a.len() + b.len()) as u64 * BYTE_UNITS);
    for name in names {
        let (a, b) = (a.value(name), b.value(name));
        spend(a, b)?;
        let order = natural(a, b);
        if order != Ordering::Equal {
            return Ok(order);
        }
    }
    for (a, b) in a.iter().zip(b.iter()) {
        spend(a.value, b.value)?;
        if a != b {
            break;
        }
    }
    Ok(a.cmp(b))
}

fn first(rows: &LabelledRows, i: usize) -> f64 {
    rows.row(i).first().copied().unwrap_or(ABSENT)
}

/// Compares values as `sort` and `topk` do: NaN is last in both directions.
pub(super) fn by_value(a: f64, b: f64, descending: bool) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) if descending => b.partial_cmp(&a).unwrap_or(Ordering::Equal),
        (false, false) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
    }
}

/// Compares runs of digits as numbers and everything else as text.
fn natural(mut a: &str, mut b: &str) -> Ordering {
    if a == b {
        return Ordering::Equal;
    }
    loop {
        if a.is_empty() || b.is_empty() {
            return a.len().cmp(&b.len());
        }
        let (a_run, a_rest) = run(a);
        let (b_run, b_rest) = run(b);
        let digits = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        let order = if digits(a_run) && digits(b_run) {
            let (x, y) = (a_run.trim_start_matches('0'), b_run.trim_start_matches('0'));
            x.len().cmp(&y.len()).then_with(|| x.cmp(y)).then_with(|| b_run.len().cmp(&a_run.len()))
        } else {
            a_run.cmp(b_run)
        };
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (a_rest, b_rest);
    }
}

/// Splits off the leading run of digits, or of anything but digits.
fn run(text: &str) -> (&str, &str) {
    let digit = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c: char| c.is_ascii_digit() != digit).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn merge_sort_equals_the_stable_sort_of_the_standard_library(values in prop::collection::vec(0u8..20, 0..80)) {
            let mut expected: Vec<usize> = (0..values.len()).collect();
            expected.sort_by_key(|place| values[*place]);
            let sorted = merge_sorted(values.len(), |a, b| Ok(values[a].cmp(&values[b])));
            prop_assert_eq!(sorted, Ok(expected));
        }

        #[test]
        fn merge_sort_stops_at_the_first_error(values in prop::collection::vec(0u8..20, 0..80), most in 0u32..100) {
            let mut comparisons = 0;
            let sorted = merge_sorted(values.len(), |a, b| {
                comparisons += 1;
                if comparisons > most { Err(Stopped) } else { Ok(values[a].cmp(&values[b])) }
            });
            prop_assert_eq!(sorted.is_err(), comparisons > most);
            prop_assert!(comparisons <= most + 1);
        }
    }

    #[test]
    fn digits_inside_names_compare_as_numbers() {
        let cases = [
            ("cpu2", "cpu10"),
            ("a", "b"),
            ("", "a"),
            ("1", "a"),
            ("x1y2", "x1y10"),
            ("7", "08"),
            ("a1", "a1b"),
        ];
        for (less, more) in cases {
            assert_eq!(natural(less, more), Ordering::Less, "{less} < {more}");
            assert_eq!(natural(more, less), Ordering::Greater, "{more} > {less}");
        }
    }
}
