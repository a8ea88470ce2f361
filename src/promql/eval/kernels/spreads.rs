//! How far the values of each window are from their mean: Welford's recurrence, both of its sums compensated. Each value
//! waits for a division and some ten additions after the one before it, so that windows are computed side by side.

use crate::promql::functions::sums::CompensatedVariance;
use crate::simd::simd_dispatch;

use super::abreast::{ABREAST, Columns, Numbers, Sums, Windows, is_moderate};
use super::frames::{Frame, Frames};
use super::{GoesOn, Patience, Stopped};

/// Fills a row that is absent; false where the values are none that this can be done with, and nothing was done.
pub(super) fn fill(
    columns: &mut Columns,
    (frames, values): (&Frames, &[f64]),
    of_variance: impl Fn(f64) -> f64,
    row: &mut [f64],
    goes_on: GoesOn<'_>,
) -> Result<bool, Stopped> {
    if frames.all().len() < ABREAST || !is_moderate(values) {
        return Ok(false);
    }
    let mut patience = Patience::default();
    for (frames, out) in frames.all().chunks(ABREAST).zip(row.chunks_mut(ABREAST)) {
        for ((spread, Frame { from, to }), out) in
            spreads(columns, frames, values).iter().zip(frames).zip(out)
        {
            if from < to {
                *out = of_variance(spread.variance());
            }
        }
        patience.after(frames.iter().map(|frame| frame.to - frame.from).sum(), &mut *goes_on)?;
    }
    Ok(true)
}

/// What has been seen of each window in the end.
fn spreads(columns: &mut Columns, frames: &[Frame], values: &[f64]) -> [CompensatedVariance; ABREAST] {
    // Where they are fewer than there is room for, the others are as the first one, and nobody asks for theirs.
    let frame = |i: usize| frames.get(i).or(frames.first()).copied().unwrap_or_default();
    let len = frames.iter().map(|frame| frame.to - frame.from).min().unwrap_or(0);
    let windows = Windows { ends: std::array::from_fn(|i| frame(i).from + len), len };
    let (mut count, mut both) = (0.0, Both::default());
    for piece in windows.pieces() {
        (count, both) = go_on(count, both, columns.of(values, &windows, piece));
    }
    let Both { means, squares } = both;
    std::array::from_fn(|i| {
        let mut spread = CompensatedVariance { count, mean: means.of(i), squares: squares.of(i) };
        if let Some(Frame { from, to }) = frames.get(i) {
            values[from + len..*to].iter().for_each(|value| spread.add(*value));
        }
        spread
    })
}

/// The sums of all windows.
#[derive(Clone, Copy, Default)]
struct Both {
    means: Sums,
    squares: Sums,
}

/// Goes on with more places. By itself: as a part of what calls it the compiler computes one window after the other.
#[inline(never)]
fn go_on(count: f64, both: Both, columns: &[Numbers]) -> (f64, Both) {
    simd_dispatch!(add_places(count, both, columns))
}

#[inline(always)]
fn add_places(mut count: f64, Both { mut means, mut squares }: Both, columns: &[Numbers]) -> (f64, Both) {
    for values in columns {
        count += 1.0;
        for (i, value) in values.iter().enumerate() {
            let delta = value - means.total(i);
            means.add(i, delta / count);
            squares.add(i, delta * (value - means.total(i)));
        }
    }
    (count, Both { means, squares })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::abreast::tests::{any_frames, any_values};
    use super::*;
    use crate::promql::functions::sums::compensated_variance;

    proptest! {
        /// Whatever the values and the windows are, each is what it is alone, to the bit.
        #[test]
        fn spreads_side_by_side_are_those_of_each_window_alone(
            values in any_values(),
            windows in any_frames(),
        ) {
            let frames = windows.over(values.len());
            let mut row = vec![0.5; frames.all().len()];
            let done = fill(&mut Columns::default(), (&frames, &values), f64::sqrt, &mut row, &mut || Ok(()));
            prop_assert!(done.is_ok());
            if matches!(done, Ok(false)) {
                return Ok(());
            }
            for (frame, found) in frames.all().iter().zip(row) {
                let window = &values[frame.from..frame.to];
                let alone = if window.is_empty() { 0.5 } else { compensated_variance(window).sqrt() };
                prop_assert_eq!(found.to_bits(), alone.to_bits(), "{} for {}", found, alone);
            }
        }
    }
}
