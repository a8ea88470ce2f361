//! Loops over many numbers in the registers that this processor has: 32 bytes wide where it knows AVX2, and otherwise those
//! that every processor of the target has, 16 on x86-64 and on aarch64.
//!
//! Either way the same operations are done to the same numbers in the same order, only more of them at once. Nothing is
//! contracted or put in another order: no bit of any answer depends on the processor. Registers of 64 bytes (AVX-512) were no
//! faster where rows have some hundred steps, and slower where they have some tens.

use std::cell::Cell;

#[cfg(target_arch = "x86_64")]
use fearless_simd::{Level, Simd};

thread_local! {
    static NARROW: Cell<bool> = const { Cell::new(false) };
}

/// Does some work in wide registers: `widely!(sum(values))`. Once for a row or a block of numbers, never for each: it takes
/// some nanoseconds.
///
/// The compiler makes wide what becomes a part of the work: functions that it calls are to be `#[inline(always)]`. Others do
/// what they do as they do it elsewhere.
macro_rules! widely {
    ($work:expr) => {
        $crate::wide::run(
            #[inline(always)]
            || $work,
        )
    };
}

pub(crate) use widely;

/// As [`widely`], which sees to it that the work becomes a part of this.
#[inline(always)]
pub(crate) fn run<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if let Some(wide) = Level::new().as_avx2()
        && !NARROW.get()
    {
        return wide.vectorize(work);
    }
    work()
}

/// Does some work as a processor without wide registers does it, as far as this thread does it: for tests, since there is
/// nothing to be told by the answers.
pub fn narrowly<R>(work: impl FnOnce() -> R) -> R {
    let before = NARROW.replace(true);
    let result = work();
    NARROW.set(before);
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is added up, what that rounds away, and what a division leaves, at every place.
    #[inline(always)]
    fn add_up(values: &[f64], sums: &mut [f64], lost: &mut [f64]) {
        for ((value, sum), lost) in values.iter().zip(sums).zip(lost) {
            let next = *sum + value;
            let of_value = next - *sum;
            *lost += (*sum - (next - of_value)) + (value - of_value) / 3.0 * 7.0;
            *sum = next;
        }
    }

    /// Which NaN it is does not matter.
    fn bits(values: &[f64]) -> Vec<u64> {
        values.iter().map(|value| if value.is_nan() { f64::NAN } else { *value }.to_bits()).collect()
    }

    proptest! {
        #[test]
        fn no_bit_depends_on_how_wide_registers_are(
            rows in prop::collection::vec(prop::collection::vec(any::<f64>(), 37), 1..9),
        ) {
            let all = || {
                let (mut sums, mut lost) = (vec![0.0; 37], vec![0.0; 37]);
                for row in &rows {
                    widely!(add_up(row, &mut sums, &mut lost));
                }
                (bits(&sums), bits(&lost))
            };
            prop_assert_eq!(all(), narrowly(all));
        }
    }

    #[test]
    fn who_works_narrowly_inside_of_narrow_work_does_so_until_the_outer_one_ends() {
        let inside = narrowly(|| (narrowly(|| NARROW.get()), NARROW.get()));
        assert_eq!((inside, NARROW.get()), ((true, true), false));
        assert_eq!(widely!(6 * 7), 42);
    }
}
