//! Several windows computed at a time. Each step of a recurrence waits for the previous one, so
//! interleaving several windows takes hardly longer than computing one.

use std::ops::Range;

use crate::promql::sums::Sum;

use super::sums::two_sum;

/// Windows that are computed at a time.
pub(super) const INTERLEAVED: usize = 8;

/// One number for each window.
pub(super) type WindowNumbers = [f64; INTERLEAVED];

/// Largest magnitude that [`InterleavedSums`] accept: products of two such values, and sums of
/// them, stay finite.
const MAGNITUDE_MAX: f64 = 1e140;

/// Returns whether all sums of these values, of their squares and of their products with times stay
/// finite. Returns `false` for NaN.
pub(super) fn is_moderate(values: &[f64]) -> bool {
    let all = |block: &[f64]| block.iter().fold(true, |all, value| all & (value.abs() <= MAGNITUDE_MAX));
    values.chunks(64).all(all)
}

/// Running sums with Neumaier's compensation. They equal [`Sum`] to the bit as long as they stay
/// finite: the rounding error of an addition is a double, which Knuth's branch-free formula finds
/// exactly as Neumaier's two subtractions do.
#[derive(Clone, Copy, Default)]
pub(super) struct InterleavedSums {
    sums: WindowNumbers,
    rests: WindowNumbers,
}

impl InterleavedSums {
    /// Adds to the sum of one window. Call it for all windows in turn, so that the compiler
    /// vectorises the additions.
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

    /// Returns the sum of one window.
    pub(super) fn of(&self, i: usize) -> Sum {
        Sum { sum: self.sums[i], rest: self.rests[i] }
    }
}

/// Windows of one length in a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct EqualWindows {
    /// Exclusive end index of each window.
    pub(super) ends: [usize; INTERLEAVED],
    /// Values in each window. Values before the start of the series count as 0, which changes no
    /// sum that is still 0.
    pub(super) len: usize,
}

/// Positions that are transposed at a time, so that they stay in the first-level cache.
const BLOCK_LEN: usize = 128;

/// Largest stride for which windows share enough values to be regrouped.
const STRIDE_MAX: usize = 32;

impl EqualWindows {
    /// Returns the positions within a window in blocks for [`WindowColumns`].
    pub(super) fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let len = self.len;
        (0..len).step_by(BLOCK_LEN).map(move |from| from..len.min(from + BLOCK_LEN))
    }

    /// Returns the distance from each window to the next if it is the same for all.
    fn stride(&self) -> Option<usize> {
        let stride =
            self.ends[1].checked_sub(self.ends[0]).filter(|stride| (1..=STRIDE_MAX).contains(stride))?;
        self.ends.windows(2).all(|pair| pair[0] + stride == pair[1]).then_some(stride)
    }
}

/// The values of the windows, transposed: the values of all windows at one position are contiguous.
#[derive(Default)]
pub(super) struct WindowColumns {
    all: Vec<WindowNumbers>,
    /// Every `stride`-th value of a series.
    phase: Vec<f64>,
}

impl WindowColumns {
    /// Returns the columns of a block of positions.
    pub(super) fn of(
        &mut self,
        values: &[f64],
        windows: &EqualWindows,
        block: Range<usize>,
    ) -> &[WindowNumbers] {
        self.all.resize(block.len(), [0.0; INTERLEAVED]);
        match windows.stride() {
            Some(stride) => self.transpose_strided(values, windows, stride, block),
            None => self.transpose(values, windows, block),
        }
        &self.all
    }

    fn transpose(&mut self, values: &[f64], windows: &EqualWindows, block: Range<usize>) {
        for (i, end) in windows.ends.iter().enumerate() {
            let index = |at: usize| (end + at).checked_sub(windows.len);
            match index(block.start).and_then(|from| values.get(from..from + block.len())) {
                Some(window) => {
                    for (column, value) in self.all.iter_mut().zip(window) {
                        column[i] = *value;
                    }
                }
                None => {
                    for (column, at) in self.all.iter_mut().zip(block.clone()) {
                        column[i] = index(at).and_then(|at| values.get(at)).copied().unwrap_or(0.0);
                    }
                }
            }
        }
    }

    /// If each window begins `stride` values after the previous one, the values of all windows at
    /// one position are contiguous among every `stride`-th value. These are extracted once for all
    /// windows.
    fn transpose_strided(
        &mut self,
        values: &[f64],
        windows: &EqualWindows,
        stride: usize,
        block: Range<usize>,
    ) {
        for first in 0..stride.min(block.len()) {
            let positions = (block.len() - first).div_ceil(stride);
            let len = positions + INTERLEAVED - 1;
            let index =
                |k: usize| (windows.ends[0] + block.start + first + k * stride).checked_sub(windows.len);
            self.phase.clear();
            match index(0).zip(index(len - 1)) {
                Some((from, to)) if to < values.len() => {
                    self.phase.extend(values[from..=to].iter().step_by(stride));
                }
                _ => {
                    let value = |k: usize| index(k).and_then(|at| values.get(at)).copied().unwrap_or(0.0);
                    self.phase.extend((0..len).map(value));
                }
            }
            let columns = self.all[first..].iter_mut().step_by(stride);
            for (column, values) in columns.zip(self.phase.windows(INTERLEAVED)) {
                column.copy_from_slice(values);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::windows::{SampleRange, StepWindows};

    /// Equally long and equally spaced windows; the first and the last ones are cut off at the ends
    /// of the series.
    #[derive(Clone, Debug)]
    pub(crate) struct SlidingWindows {
        len: usize,
        stride: usize,
        steps: usize,
        ahead: usize,
    }

    impl SlidingWindows {
        pub(crate) fn over(&self, samples: usize) -> StepWindows {
            let range = |step: usize| {
                let to = (self.ahead + step * self.stride).min(samples);
                SampleRange { from: to.saturating_sub(self.len), to }
            };
            StepWindows::from_all((0..self.steps).map(range).collect())
        }
    }

    pub(crate) fn any_sliding_windows() -> impl Strategy<Value = SlidingWindows> {
        (0..40usize, 0..5usize, 1..60usize, 0..30usize)
            .prop_map(|(len, stride, steps, ahead)| SlidingWindows { len, stride, steps, ahead })
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
