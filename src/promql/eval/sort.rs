//! Sorting: kept only where there is one step, since a matrix is ordered by labels.

use std::cmp::Ordering;

use crate::promql::QueryError;
use crate::promql::syntax::tree::Span;

use super::rows::Rows;
use super::{ABSENT, Context};

impl Context<'_> {
    pub(super) fn sort(&self, rows: Rows, descending: bool, span: Span) -> Result<Rows, QueryError> {
        if self.is_pointless(&rows, span) {
            return Ok(rows);
        }
        let mut places: Vec<usize> = (0..rows.len()).collect();
        places.sort_by(|a, b| by_value(first(&rows, *a), first(&rows, *b), descending));
        rows.reordered(&places)
    }

    pub(super) fn sort_by_label(
        &self,
        rows: Rows,
        names: &[String],
        descending: bool,
        span: Span,
    ) -> Result<Rows, QueryError> {
        if self.is_pointless(&rows, span) {
            return Ok(rows);
        }
        let mut places: Vec<usize> = (0..rows.len()).collect();
        places.sort_by(|a, b| {
            let (a, b) = (&rows.heads[*a].labels, &rows.heads[*b].labels);
            let by_names = names.iter().map(|name| natural(a.value(name), b.value(name)));
            let order = by_names.fold(Ordering::Equal, Ordering::then).then_with(|| a.cmp(b));
            if descending { order.reverse() } else { order }
        });
        rows.reordered(&places)
    }

    fn is_pointless(&self, rows: &Rows, span: Span) -> bool {
        if rows.steps() > 1 {
            let text = "sort is ineffective for range queries since results are always ordered by labels";
            self.notes.borrow_mut().warn(span, text);
        }
        rows.steps() != 1
    }
}

fn first(rows: &Rows, i: usize) -> f64 {
    rows.row(i).first().copied().unwrap_or(ABSENT)
}

/// The order of `sort` and `topk`: NaN is last whichever the direction.
pub(super) fn by_value(a: f64, b: f64, descending: bool) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) if descending => b.partial_cmp(&a).unwrap_or(Ordering::Equal),
        (false, false) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
    }
}

/// Runs of digits compare as numbers, everything else as text.
fn natural(mut a: &str, mut b: &str) -> Ordering {
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

/// The leading run of digits, or of anything but digits.
fn run(text: &str) -> (&str, &str) {
    let digit = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c: char| c.is_ascii_digit() != digit).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

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
