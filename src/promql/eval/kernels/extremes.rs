//! Least and greatest of each window: of two pieces that cover it, or by a queue of those that may still be it.

use super::Frames;

/// The best values of all pieces of a length, each of two pieces of half of it.
#[derive(Default)]
pub(super) struct Pieces {
    best: Vec<f64>,
    next: Vec<f64>,
}

/// Fills a row that is absent with each window's best value, the first of those that are as good; false where some value is
/// no number, and nothing was done.
pub(super) fn values(
    pieces: &mut Pieces,
    frames: &Frames,
    values: &[f64],
    row: &mut [f64],
    better: impl Fn(f64, f64) -> bool,
) -> bool {
    let is_number = |piece: &[f64]| piece.iter().fold(true, |all, value| all & !value.is_nan());
    if !values.chunks(64).all(is_number) {
        return false;
    }
    let of_two = |first: f64, later: f64| if better(later, first) { later } else { first };
    let all = frames.all();
    let longest = all.iter().map(|frame| frame.to - frame.from).max().unwrap_or(0);
    let looked_at: usize = all.iter().map(|frame| frame.to - frame.from).sum();
    let doublings = longest.checked_ilog2().unwrap_or(0);
    // Few windows are as soon looked through.
    let length = if looked_at / 2 > values.len() { 1 << doublings } else { usize::MAX };
    let Pieces { best, next } = pieces;
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
    for (frame, out) in all.iter().zip(row) {
        let len = frame.to - frame.from;
        if len >= length {
            // Pieces that overlap: what both have is as good in both, and the first one's comes first.
            *out = of_two(best[frame.from], best[frame.to - length]);
        } else if let Some(best) = values[frame.from..frame.to].iter().copied().reduce(of_two) {
            *out = best;
        }
    }
    true
}

/// `told` the place of each window's best value. A later value that is `better` stands in for an earlier one, and anything
/// for NaN, as in going through the window from its start.
pub(super) fn fill(
    frames: &Frames,
    values: &[f64],
    queue: &mut Vec<usize>,
    row: &mut [f64],
    better: impl Fn(f64, f64) -> bool,
    told: impl Fn(usize) -> f64,
) {
    queue.clear();
    // Places of values of which none is better than one before it; the first `gone` of them are behind the window.
    let mut gone = 0;
    let mut next = 0;
    for (frame, out) in frames.all().iter().zip(row) {
        if frame.from == frame.to {
            continue;
        }
        // What lies before the window is never looked at again.
        if next < frame.from {
            next = frame.from;
            queue.clear();
            gone = 0;
        }
        for (place, value) in values.iter().enumerate().take(frame.to).skip(next) {
            while let Some(last) = queue.get(gone..).and_then(<[usize]>::last) {
                let last = values[*last];
                if !(better(*value, last) || last.is_nan()) {
                    break;
                }
                queue.pop();
            }
            queue.push(place);
        }
        next = next.max(frame.to);
        while queue.get(gone).is_some_and(|place| *place < frame.from) {
            gone += 1;
        }
        if let Some(place) = queue.get(gone) {
            *out = told(*place);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::abreast::tests::{any_frames, any_values};
    use super::*;

    proptest! {
        /// Whatever the values and the windows are, the best of each is what the queue finds, to the bit.
        #[test]
        fn the_best_of_two_pieces_is_what_the_queue_finds(
            values in any_values(),
            windows in any_frames(),
            greatest in any::<bool>(),
        ) {
            let better = |a: f64, b: f64| if greatest { a > b } else { a < b };
            let frames = windows.over(values.len());
            let mut row = vec![0.5; frames.all().len()];
            if super::values(&mut Pieces::default(), &frames, &values, &mut row, better) {
                let mut queued = vec![0.5; frames.all().len()];
                fill(&frames, &values, &mut Vec::new(), &mut queued, better, |place| values[place]);
                for (found, queued) in row.iter().zip(queued) {
                    prop_assert_eq!(found.to_bits(), queued.to_bits(), "{} for {}", found, queued);
                }
            }
        }
    }
}
