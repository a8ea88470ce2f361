//! Loops over many numbers with the SIMD instructions of the running processor: 32-byte registers
//! if it has AVX2, otherwise those that every processor of the target has (16 bytes on x86-64 and
//! aarch64).
//!
//! Both variants perform the same operations on the same numbers in the same order. No operations
//! are fused or reordered, so no bit of a result depends on the processor. 64-byte registers
//! (AVX-512) were no faster for rows of some hundred steps, and slower for rows of some tens.

use std::cell::Cell;

#[cfg(target_arch = "x86_64")]
use fearless_simd::{Level, Simd};

thread_local! {
    /// Whether [`scalar_only`] is running on this thread.
    static SCALAR_ONLY: Cell<bool> = const { Cell::new(false) };
}

/// Runs an expression with the widest registers: `simd_dispatch!(sum(values))`. The dispatch takes
/// some nanoseconds, so use it once per row or block and not per number.
///
/// Only code that is inlined into the expression is compiled for these registers, so the functions
/// that it calls must be `#[inline(always)]`.
macro_rules! simd_dispatch {
    ($work:expr) => {
        $crate::simd::run(
            #[inline(always)]
            || $work,
        )
    };
}

pub(crate) use simd_dispatch;

/// The function behind [`simd_dispatch`], which makes sure that `work` is inlined.
#[inline(always)]
pub(crate) fn run<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = Level::new().as_avx2()
        && !SCALAR_ONLY.get()
    {
        return avx2.vectorize(work);
    }
    work()
}

/// Runs `work` without [`simd_dispatch`] on this thread, like a processor without AVX2. For tests,
/// because both variants give the same results.
pub fn scalar_only<R>(work: impl FnOnce() -> R) -> R {
    let before = SCALAR_ONLY.replace(true);
    let result = work();
    SCALAR_ONLY.set(before);
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A compensated sum at every index, with a division.
    #[inline(always)]
    fn add_compensated(values: &[f64], sums: &mut [f64], lost: &mut [f64]) {
        for ((value, sum), lost) in values.iter().zip(sums).zip(lost) {
            let next = *sum + value;
            let of_value = next - *sum;
            *lost += (*sum - (next - of_value)) + (value - of_value) / 3.0 * 7.0;
            *sum = next;
        }
    }

    /// Returns the bits of all values; all NaNs become equal.
    fn bits(values: &[f64]) -> Vec<u64> {
        values.iter().map(|value| if value.is_nan() { f64::NAN } else { *value }.to_bits()).collect()
    }

    proptest! {
        #[test]
        fn no_bit_depends_on_the_width_of_registers(
            rows in prop::collection::vec(prop::collection::vec(any::<f64>(), 37), 1..9),
        ) {
            let all = || {
                let (mut sums, mut lost) = (vec![0.0; 37], vec![0.0; 37]);
                for row in &rows {
                    simd_dispatch!(add_compensated(row, &mut sums, &mut lost));
                }
                (bits(&sums), bits(&lost))
            };
            prop_assert_eq!(all(), scalar_only(all));
        }
    }

    #[test]
    fn calls_of_scalar_only_nest() {
        let inside = scalar_only(|| (scalar_only(|| SCALAR_ONLY.get()), SCALAR_ONLY.get()));
        assert_eq!((inside, SCALAR_ONLY.get()), ((true, true), false));
        assert_eq!(simd_dispatch!(6 * 7), 42);
    }
}
