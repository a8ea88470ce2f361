//! Minimum and maximum of each window, by two overlapping spans of a sparse table or by a monotonic
//! queue.

use super::StepWindows;

/// One level of a sparse table: the best values of all spans of one length, computed from two spans
/// of half that length.
#[derive(Default)]
pub(super) struct SparseTable {
    best: Vec<f64>,
    next: Vec<f64>,
}

/// Fills an absent row with the best value of each window, the earliest of several equal ones.
/// Returns `false` without any change if any value is NaN.
pub(super) fn values(
    table: &mut SparseTable,
    windows: &StepWindows,
    values: &[f64],
    row: &mut [f64],
    better: impl Fn(f64, f64) -> bool,
) -> bool {
    let is_number = |chunk: &[f64]| chunk.iter().fold(true, |all, value| all & !value.is_nan());
    if !values.chunks(64).all(is_number) {
        return false;
    }
    let of_two = |first: f64, later: f64| if better(later, first) { later } else { first };
    let all = windows.all();
    let longest = all.iter().map(|range| range.to - range.from).max().unwrap_or(0);
    let visited: usize = all.iter().map(|range| range.to - range.from).sum();
    let doublings = longest.checked_ilog2().unwrap_or(0);
    // For few or short windows a scan of each is as fast.
    let length = if visited / 2 > values.len() { 1 << doublings } else { usize::MAX };
    let SparseTable { best, next } = table;
    if length <= longest {
        best.clear();
        best.extend_from_slice(values);
        for doubling in 0..doublings {
            let later = best.get(1 << doubling..).unwrap_or_default();
            next.clear();
            next.extend(best.iter().zip(later).map(|(first, later)| of_two(*first, *later)));
            std::mem::swap(best, next);
        }
    }
    for (range, out) in all.iter().zip(row) {
        let len = range.to - range.from;
        if len >= length {
            // The two spans overlap. Their common values are equal, and the earlier span wins a
            // tie.
            *out = of_two(best[range.from], best[range.to - length]);
        } else if let Some(best) = values[range.from..range.to].iter().copied().reduce(of_two) {
            *out = best;
        }
    }
    true
}

/// Fills a row with `result` of the index of each window's best value. A later value that is
/// `better` replaces an earlier one, and any value replaces NaN, as in a scan from the start of the
/// window.
pub(super) fn fill(
    windows: &StepWindows,
    values: &[f64],
    queue: &mut Vec<usize>,
    row: &mut [f64],
    better: impl Fn(f64, f64) -> bool,
    result: impl Fn(usize) -> f64,
) {
    queue.clear();
    // Monotonic queue: indices of values of which none is better than an earlier one. The first
    // `gone` entries are before the window.
    let mut gone = 0;
    let mut next = 0;
    for (range, out) in windows.all().iter().zip(row) {
        if range.from == range.to {
            continue;
        }
        // Values before the window are never needed again.
        if next < range.from {
            next = range.from;
            queue.clear();
            gone = 0;
        }
        for (index, value) in values.iter().enumerate().take(range.to).skip(next) {
            while let Some(last) = queue.get(gone..).and_then(<[usize]>::last) {
                let last = values[*last];
                if !(better(*value, last) || last.is_nan()) {
                    break;
                }
                queue.pop();
            }
            queue.push(index);
        }
        next = next.max(range.to);
        while queue.get(gone).is_some_and(|index| *index < range.from) {
            gone += 1;
        }
        if let Some(index) = queue.get(gone) {
            *out = result(*index);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::interleaved::tests::{any_sliding_windows, any_values};
    use super::*;

    proptest! {
        /// For any values and windows, the sparse table and the queue find the same value, to the
        /// bit.
        #[test]
        fn sparse_table_and_queue_find_the_same_value(
            values in any_values(),
            sliding in any_sliding_windows(),
            greatest in any::<bool>(),
        ) {
            let better = |a: f64, b: f64| if greatest { a > b } else { a < b };
            let windows = sliding.over(values.len());
            let mut row = vec![0.5; windows.all().len()];
            if super::values(&mut SparseTable::default(), &windows, &values, &mut row, better) {
                let mut queued = vec![0.5; windows.all().len()];
                fill(&windows, &values, &mut Vec::new(), &mut queued, better, |index| values[index]);
                for (found, queued) in row.iter().zip(queued) {
                    prop_assert_eq!(found.to_bits(), queued.to_bits(), "{} for {}", found, queued);
                }
            }
        }
    }
}
