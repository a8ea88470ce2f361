//! Output of decoded values, and the conversion of integers to doubles.

use super::columns::{self, IntegerSink};

/// Output slots, filled from first to last, or from last to first if `backward`.
pub(super) struct OutputSlots<'o> {
    pub(super) slots: &'o mut [f64],
    pub(super) backward: bool,
}

impl OutputSlots<'_> {
    /// Sets the next slots to `make(x)` for each integer of the column.
    #[inline(always)]
    pub(super) fn put<T: Copy>(&mut self, column: &[T], mut make: impl FnMut(T) -> f64) {
        self.fill(column.len(), column.iter().map(|x| make(*x)));
    }

    /// Sets the next `count` slots.
    #[inline(always)]
    fn fill(&mut self, count: usize, values: impl Iterator<Item = f64>) {
        let slots = std::mem::take(&mut self.slots);
        if self.backward {
            let (rest, next) = slots.split_at_mut(slots.len().saturating_sub(count));
            for (slot, value) in next.iter_mut().rev().zip(values) {
                *slot = value;
            }
            self.slots = rest;
        } else {
            let (next, rest) = slots.split_at_mut(slots.len().min(count));
            for (slot, value) in next.iter_mut().zip(values) {
                *slot = value;
            }
            self.slots = rest;
        }
    }
}

/// A sink that converts integers to doubles and applies `make`.
pub(super) struct ScaledOutput<'o, F> {
    pub(super) target: OutputSlots<'o>,
    pub(super) make: F,
}

impl<F: Fn(f64) -> f64 + Copy> IntegerSink for ScaledOutput<'_, F> {
    const FLOATS: bool = true;

    #[inline]
    fn put(&mut self, column: &[u64]) {
        let make = self.make;
        self.target.put(column, |x| make(whole(x)));
    }

    fn run(&mut self, first: i64, step: i64, count: usize) {
        // If the first and the last integer are exact as doubles, so are all between them.
        let steps = i32::try_from(count).unwrap_or(i32::MAX);
        let last = step.checked_mul(i64::from(steps)).and_then(|distance| first.checked_add(distance));
        let exact = |x: i64| x.unsigned_abs() <= 1 << 52;
        if exact(first) && last.is_some_and(exact) {
            let (first, step) = (whole(first.cast_unsigned()), whole(step.cast_unsigned()));
            let make = self.make;
            let values = (0..steps).map(|n| make(first + f64::from(n) * step));
            self.target.fill(count, values);
        } else {
            columns::run(self, first, step, count);
        }
    }

    #[inline(always)]
    fn put_exact(&mut self, offsets: &[i32], base: f64, factor: f64) {
        // Copied to a local variable: behind a reference the compiler would have to assume that it
        // changes with every slot, and would not vectorise the loop.
        let make = self.make;
        if factor == 1.0 {
            self.target.put(offsets, |offset| make(base + f64::from(offset)));
        } else {
            self.target.put(offsets, |offset| make(base + f64::from(offset) * factor));
        }
    }
}

/// Returns the double nearest to an integer. Both halves are converted by their bits alone, so the
/// compiler can vectorise it.
#[inline]
pub(super) fn whole(x: u64) -> f64 {
    // The bits of 2^84 and 2^52. One unit in the last place is 2^32 and 1 respectively.
    const HIGH: u64 = 0x4530_0000_0000_0000;
    const LOW: u64 = 0x4330_0000_0000_0000;
    // 2^84 + 2^63 + 2^52: the sum of both, and the offset of the inverted sign bit.
    const OVER: f64 = 19_342_822_341_709_703_277_445_120.0;
    let high = f64::from_bits(x >> 32 ^ (HIGH | 1 << 31));
    let low = f64::from_bits(x & 0xffff_ffff | LOW);
    high - OVER + low
}
