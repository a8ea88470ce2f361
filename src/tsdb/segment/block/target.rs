//! Where the values of a block go, and how integers become them.

use super::columns::{self, Sink};

/// Where values go: from the first to the last, or from the last to the first.
pub(super) struct Target<'o> {
    pub(super) slots: &'o mut [f64],
    pub(super) backward: bool,
}

impl Target<'_> {
    /// Sets the next slots to what `make` makes of integers.
    #[inline(always)]
    pub(super) fn put<T: Copy>(&mut self, column: &[T], mut make: impl FnMut(T) -> f64) {
        self.fill(column.len(), column.iter().map(|x| make(*x)));
    }

    /// Sets so many slots.
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

/// Takes integers, and gives what is made of them as doubles.
pub(super) struct Scaled<'o, F> {
    pub(super) target: Target<'o>,
    pub(super) make: F,
}

impl<F: Fn(f64) -> f64 + Copy> Sink for Scaled<'_, F> {
    const FLOATS: bool = true;

    #[inline]
    fn put(&mut self, column: &[u64]) {
        let make = self.make;
        self.target.put(column, |x| make(whole(x)));
    }

    fn run(&mut self, first: i64, step: i64, count: usize) {
        // Where both ends are exact, and their distance is, all between them are.
        let steps = i32::try_from(count).unwrap_or(i32::MAX);
        let last = step.checked_mul(i64::from(steps)).and_then(|apart| first.checked_add(apart));
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
    fn near(&mut self, offsets: &[i32], base: f64, factor: f64) {
        // By value: behind a reference it may change with every slot, and only one is made at a time.
        let make = self.make;
        if factor == 1.0 {
            self.target.put(offsets, |offset| make(base + f64::from(offset)));
        } else {
            self.target.put(offsets, |offset| make(base + f64::from(offset) * factor));
        }
    }
}

/// The double next to an integer. Its halves become doubles by their bits alone, which is several at a time.
#[inline]
pub(super) fn whole(x: u64) -> f64 {
    // 2^84 and 2^52: the last bit of the one counts 2^32, that of the other 1.
    const HIGH: u64 = 0x4530_0000_0000_0000;
    const LOW: u64 = 0x4330_0000_0000_0000;
    // Both, and 2^63: the highest bit, turned around, counts so much more.
    const OVER: f64 = 19_342_822_341_709_703_277_445_120.0;
    let high = f64::from_bits(x >> 32 ^ (HIGH | 1 << 31));
    let low = f64::from_bits(x & 0xffff_ffff | LOW);
    high - OVER + low
}
