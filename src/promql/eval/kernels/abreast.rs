//! Several windows side by side: what one of them computes waits for what it computed just before, so that several take
//! hardly longer than one.

use std::ops::Range;

use crate::promql::functions::sums::Sum;

use super::sums::two_sum;

/// Windows whose computations do not wait for one another.
pub(super) const ABREAST: usize = 8;

/// One number of each window.
pub(super) type Numbers = [f64; ABREAST];

/// What is greater than this, or no number, is not for [`Sums`]: products of two and many of them stay finite.
const MAGNITUDE_MAX: f64 = 1e140;

/// Whether no sum of these values leaves the finite numbers, nor one of their squares, nor of their products with times.
pub(super) fn is_moderate(values: &[f64]) -> bool {
    let all = |piece: &[f64]| piece.iter().fold(true, |all, value| all & (value.abs() <= MAGNITUDE_MAX));
    values.chunks(64).all(all)
}

/// Running sums with Neumaier's compensation, to the bit those of [`Sum`] as long as they stay finite: what an addition
/// rounds away is a double, which his two subtractions find as well as Knuth's, who need no choice.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    sums: Numbers,
    rests: Numbers,
}

impl Sums {
    /// Adds to the sum of one window; called for all in turn, so that several are added to at once.
    #[inline(always)]
    pub(super) fn add(&mut self, i: usize, value: f64) {
        let (next, by_rounding) = two_sum(self.sums[i], value);
        self.sums[i] = next;
        self.rests[i] += by_rounding;
    }

    #[inline(always)]
    pub(super) fn total(&self, i: usize) -> f64 {
        self.sums[i] + self.rests[i]
    }

    /// The sum of one window.
    pub(super) fn of(&self, i: usize) -> Sum {
        Sum { sum: self.sums[i], rest: self.rests[i] }
    }
}

/// The values of some windows.
pub(super) type Windows<'v> = [&'v [f64]; ABREAST];

/// So many places are put in columns at once: they stay in the nearest cache.
const PLACES: usize = 128;

/// How far all windows reach, in pieces for [`Columns`].
pub(super) fn pieces(windows: &Windows<'_>) -> impl Iterator<Item = Range<usize>> + use<> {
    let len = windows.iter().map(|window| window.len()).min().unwrap_or(0);
    (0..len).step_by(PLACES).map(move |from| from..len.min(from + PLACES))
}

/// What some windows have at the same places, place by place: values that are computed with at once are neighbours.
#[derive(Default)]
pub(super) struct Columns {
    all: Vec<Numbers>,
}

impl Columns {
    pub(super) fn of(&mut self, windows: &Windows<'_>, piece: Range<usize>) -> &[Numbers] {
        self.all.resize(piece.len(), [0.0; ABREAST]);
        for (i, window) in windows.iter().enumerate() {
            for (column, value) in self.all.iter_mut().zip(&window[piece.clone()]) {
                column[i] = *value;
            }
        }
        &self.all
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::frames::{Frame, Frames};

    /// Windows of one length that begin equally far apart, the first and the last ones cut short, some with holes.
    #[derive(Clone, Debug)]
    pub(crate) struct Sliding {
        len: usize,
        stride: usize,
        steps: usize,
        ahead: usize,
    }

    impl Sliding {
        pub(crate) fn over(&self, samples: usize) -> Frames {
            let frame = |step: usize| {
                let to = (self.ahead + step * self.stride).min(samples);
                Frame { from: to.saturating_sub(self.len), to }
            };
            Frames::from_all((0..self.steps).map(frame).collect())
        }
    }

    pub(crate) fn any_frames() -> impl Strategy<Value = Sliding> {
        (0..40usize, 0..5usize, 1..60usize, 0..30usize).prop_map(|(len, stride, steps, ahead)| Sliding {
            len,
            stride,
            steps,
            ahead,
        })
    }

    pub(crate) fn any_values() -> impl Strategy<Value = Vec<f64>> {
        let whole = prop_oneof![8 => (0..5i32).prop_map(f64::from), 1 => Just(-0.0), 1 => (-1e6..1e6f64).prop_map(f64::trunc)];
        let large = (0..1u64 << 50).prop_map(|value| value as f64 * 4.0);
        let parts = (0..1000i32).prop_map(|value| f64::from(value) / 64.0);
        let any = prop_oneof![6 => -1e3..1e3f64, 1 => Just(7.25), 1 => (-130..130i32).prop_map(|exponent| 10f64.powi(exponent))];
        let wild = prop_oneof![20 => -1e3..1e3f64, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(f64::MAX), 1 => Just(5e-324)];
        let all = [whole.boxed(), large.boxed(), parts.boxed(), any.boxed(), wild.boxed()];
        prop::sample::select(all.to_vec()).prop_flat_map(|values| prop::collection::vec(values, 0..120))
    }
}
