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

/// Where some windows of a series lie, each as long as the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    /// The places after their last values.
    pub(super) ends: [usize; ABREAST],
    /// How many values each has; those that would be before the series' first one are 0, which adds nothing to a sum that
    /// has begun with nothing.
    pub(super) len: usize,
}

/// So many places are put in columns at once: they stay in the nearest cache.
const PLACES: usize = 128;

/// Windows that begin further apart have hardly a value in common.
const STRIDE_MAX: usize = 32;

impl Windows {
    /// How far they reach, in pieces for [`Columns`].
    pub(super) fn pieces(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let len = self.len;
        (0..len).step_by(PLACES).map(move |from| from..len.min(from + PLACES))
    }

    /// By how much each begins after the one before, where that is the same for all.
    fn stride(&self) -> Option<usize> {
        let stride =
            self.ends[1].checked_sub(self.ends[0]).filter(|stride| (1..=STRIDE_MAX).contains(stride))?;
        self.ends.windows(2).all(|pair| pair[0] + stride == pair[1]).then_some(stride)
    }
}

/// What some windows have at the same places, place by place: values that are computed with at once are neighbours.
#[derive(Default)]
pub(super) struct Columns {
    all: Vec<Numbers>,
    /// Every so manyth value of a series.
    phase: Vec<f64>,
}

impl Columns {
    /// The columns of a piece of some windows of these values.
    pub(super) fn of(&mut self, values: &[f64], windows: &Windows, piece: Range<usize>) -> &[Numbers] {
        self.all.resize(piece.len(), [0.0; ABREAST]);
        match windows.stride() {
            Some(stride) => self.lay_evenly(values, windows, stride, piece),
            None => self.lay(values, windows, piece),
        }
        &self.all
    }

    fn lay(&mut self, values: &[f64], windows: &Windows, piece: Range<usize>) {
        for (i, end) in windows.ends.iter().enumerate() {
            let place = |at: usize| (end + at).checked_sub(windows.len);
            match place(piece.start).and_then(|from| values.get(from..from + piece.len())) {
                Some(window) => {
                    for (column, value) in self.all.iter_mut().zip(window) {
                        column[i] = *value;
                    }
                }
                None => {
                    for (column, at) in self.all.iter_mut().zip(piece.clone()) {
                        column[i] = place(at).and_then(|at| values.get(at)).copied().unwrap_or(0.0);
                    }
                }
            }
        }
    }

    /// Where each window begins `stride` values after the one before, what they have at a place are neighbours among every
    /// `stride`th value: that is picked out once for all windows.
    fn lay_evenly(&mut self, values: &[f64], windows: &Windows, stride: usize, piece: Range<usize>) {
        for first in 0..stride.min(piece.len()) {
            let places = (piece.len() - first).div_ceil(stride);
            let len = places + ABREAST - 1;
            let place =
                |k: usize| (windows.ends[0] + piece.start + first + k * stride).checked_sub(windows.len);
            self.phase.clear();
            match place(0).zip(place(len - 1)) {
                Some((from, to)) if to < values.len() => {
                    self.phase.extend(values[from..=to].iter().step_by(stride));
                }
                _ => {
                    let value = |k: usize| place(k).and_then(|at| values.get(at)).copied().unwrap_or(0.0);
                    self.phase.extend((0..len).map(value));
                }
            }
            let columns = self.all[first..].iter_mut().step_by(stride);
            for (column, values) in columns.zip(self.phase.windows(ABREAST)) {
                column.copy_from_slice(values);
            }
        }
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
