//! Sums and means of each window. They equal, to the bit, adding the values one by one with
//! Neumaier's compensation.
//!
//! Let E be the exponent of the greatest magnitude, e that of the lowest bit set in any value, and
//! n the number of values. Every sum of some of the values is a multiple of 2^e and below
//! `2^(E + 1 + log2 n)`. The total rounding error of at most n additions is a multiple of 2^e and
//! below `2^(E + 1 + 2 log2 n - 53)`. If `E + 1 + 2 ceil(log2 n) - e <= 104`, this total fits a
//! double, with a bit to spare for the difference of two. Then Neumaier's compensation is exact,
//! his sum and compensation together are the true sum, and one last addition rounds it. The same
//! holds for sums from the start of the series. The difference of two of them is the true sum of
//! the window between, and is rounded once as well.
//!
//! A mean divides sum and compensation separately, so it needs the plain sum of its window in
//! order: one addition per value instead of seven, eight windows at a time. The compensation is the
//! true sum minus the plain sum.

use crate::promql::numbers::count;
use crate::simd::simd_dispatch;

use super::StepWindows;
use super::windows::SampleRange;

/// Average window length below which adding up each window is as fast.
const WINDOW_MIN: usize = 8;

/// Sums of all values before each index.
#[derive(Default)]
pub(super) struct PrefixSums {
    /// The plain sum, and the total of its rounding errors.
    sums: Vec<(f64, f64)>,
    /// The values regrouped by index modulo the stride.
    phases: Vec<f64>,
}

/// How many doubles hold every sum of some of the values exactly.
#[derive(Clone, Copy, PartialEq)]
enum Exactness {
    InOne,
    InTwo,
    Never,
}

/// Returns the rounded sum of two doubles and its exact rounding error (Knuth's TwoSum).
#[inline(always)]
pub(super) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    let a_part = sum - b_part;
    (sum, (a - a_part) + (b - b_part))
}

/// Returns the highest bit that the greatest magnitude may have and the lowest bit that is set in
/// any value. Both are counted from the lowest bit of a double. Returns `None` if all values are
/// zero.
#[inline(always)]
pub(super) fn bits(values: &[f64]) -> Option<(u64, u64)> {
    const FRACTION: u64 = (1 << 52) - 1;
    let (mut greatest, mut lowest) = (0u64, u64::MAX);
    for value in values {
        let magnitude = value.to_bits() & !(1 << 63);
        greatest = greatest.max(magnitude);
        // The lowest bit of the fraction would be a valid bound as well, but a tighter one admits
        // more values.
        let exponent = (magnitude >> 52).max(1);
        let fraction = magnitude & FRACTION | if magnitude >> 52 == 0 { 0 } else { 1 << 52 };
        let bit = exponent + u64::from(fraction.trailing_zeros());
        lowest = if magnitude == 0 { lowest } else { lowest.min(bit) };
    }
    (greatest > 0).then_some(((greatest >> 52).max(1) + 52, lowest))
}

/// Returns in how many doubles every sum of some of the values is exact.
#[inline(always)]
fn exactness(values: &[f64]) -> Exactness {
    let Some((highest, lowest)) = bits(values) else { return Exactness::InOne };
    let carry = u64::from(usize::BITS - values.len().leading_zeros());
    // Far enough from infinity. This also excludes NaN.
    if highest + carry >= 2_040 + 52 || highest + 1 + 2 * carry > 104 + lowest {
        return Exactness::Never;
    }
    if highest + 1 + carry <= 53 + lowest { Exactness::InOne } else { Exactness::InTwo }
}

/// Returns whether all values are whole numbers so small that no sum of them is rounded. Checks
/// several values at a time.
#[inline(always)]
fn is_small_and_whole(values: &[f64]) -> bool {
    // 3 * 2^51: adding it rounds a value to a whole number.
    const ROUNDS: f64 = 6_755_399_441_055_744.0;
    // 2^50.
    const WHOLE_MAX: f64 = 1_125_899_906_842_624.0;
    let most = WHOLE_MAX / count(values.len().max(1));
    let all = |chunk: &[f64]| {
        let fits = |value: &f64| ((value + ROUNDS) - ROUNDS == *value) & (value.abs() <= most);
        chunk.iter().fold(true, |all, value| all & fits(value))
    };
    values.chunks(64).all(all)
}

/// Returns the sum of values whose additions are exact in any order. The sum of negative zeros is
/// positive zero.
fn exact_sum(values: &[f64]) -> f64 {
    let (chunks, rest) = values.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value;
        }
    }
    sums.iter().chain(rest).fold(0.0, |sum, value| sum + value)
}

/// Fills a row, except for empty windows. Returns `false` without any change if the values or
/// windows do not qualify.
pub(super) fn fill(
    prefix_sums: &mut PrefixSums,
    windows: &StepWindows,
    values: &[f64],
    is_mean: bool,
    row: &mut [f64],
) -> bool {
    let all = windows.all();
    let visited: usize = all.iter().map(|range| range.to - range.from).sum();
    if visited < WINDOW_MIN * all.len() || visited < values.len() {
        return false;
    }
    let is_whole = simd_dispatch!(is_small_and_whole(values));
    let exactness = if is_whole { Exactness::InOne } else { simd_dispatch!(exactness(values)) };
    if exactness == Exactness::Never {
        return false;
    }
    if exactness == Exactness::InOne && visited <= 2 * values.len() {
        for (range, out) in all.iter().zip(row).filter(|(range, _)| range.from < range.to) {
            let sum = exact_sum(&values[range.from..range.to]);
            // The compensation is zero; the mean adds it.
            *out = if is_mean { sum / count(range.to - range.from) + 0.0 } else { sum };
        }
        return true;
    }
    let PrefixSums { sums, phases } = prefix_sums;
    fill_prefix_sums(values, sums);
    let exact = |from: usize, to: usize| exact(sums[from], sums[to]);
    if !is_mean {
        for (range, out) in all.iter().zip(row).filter(|(range, _)| range.from < range.to) {
            // Adding zero turns a sum of -0.0 into 0.0.
            *out = exact(range.from, range.to).0 + 0.0;
        }
        return true;
    }
    let mean = |from: usize, to: usize, plain: f64| mean(plain, exact(from, to), count(to - from));
    if exactness == Exactness::InOne {
        // No addition rounds, so the order does not matter.
        for (range, out) in all.iter().zip(row).filter(|(range, _)| range.from < range.to) {
            *out = mean(range.from, range.to, exact(range.from, range.to).0);
        }
        return true;
    }
    // The prefix sums already contain the plain sums of windows that begin with the series.
    let mut done = all.iter().take_while(|range| range.from == 0).count();
    for (range, out) in all.iter().zip(&mut row[..done]).filter(|(range, _)| range.from < range.to) {
        *out = mean(0, range.to, sums[range.to].0);
    }
    while let Some(left) = all.get(done..).filter(|left| !left.is_empty()) {
        let regular_windows = regular_windows(left);
        let count = regular_windows.map_or(INTERLEAVED.min(left.len()), |(count, _)| count);
        let (windows, out) = (&left[..count], &mut row[done..done + count]);
        done += count;
        if let Some((_, stride)) = regular_windows {
            let values = &values[windows[0].from..windows[count - 1].to];
            simd_dispatch!(strided_sums(values, stride, phases, out));
            simd_dispatch!(strided_means(sums, windows[0], stride, out));
            continue;
        }
        let plain = plain_sums(windows.iter().map(|range| &values[range.from..range.to]));
        for ((range, plain), out) in windows.iter().zip(plain).zip(out) {
            if range.from < range.to {
                *out = mean(range.from, range.to, plain);
            }
        }
    }
    true
}

/// Fills `sums` with the sums of the values before each index; the first is 0.
fn fill_prefix_sums(values: &[f64], sums: &mut Vec<(f64, f64)>) {
    // Writing into existing elements keeps the running sums in registers. Elements beyond are
    // unused.
    if sums.len() <= values.len() {
        sums.resize(values.len() + 1, (0.0, 0.0));
    }
    let (mut sum, mut rest) = (0.0, 0.0);
    for (value, slot) in values.iter().zip(&mut sums[1..]) {
        let (next, by_rounding) = two_sum(sum, *value);
        (sum, rest) = (next, rest + by_rounding);
        *slot = (sum, rest);
    }
}

/// Returns the sum of a window, rounded once, and the rounding error. The arguments are the prefix
/// sums before its first value and after its last.
#[inline(always)]
fn exact((before, lost_before): (f64, f64), (after, lost_after): (f64, f64)) -> (f64, f64) {
    let (difference, by_rounding) = two_sum(after, -before);
    two_sum(difference, by_rounding + (lost_after - lost_before))
}

/// Returns the mean of `n` values from their plain sum and their true sum.
#[inline(always)]
fn mean(plain: f64, (sum, rest): (f64, f64), n: f64) -> f64 {
    plain / n + ((sum - plain) + rest) / n
}

/// Fewest regular windows that are added up together.
const STRIDED_MIN: usize = 16;

/// Windows that are added up together if there are enough. So many independent additions hide the
/// latency of an addition, and all sums still fit the registers.
const STRIDED_MAX: usize = 32;

/// Largest stride of regular windows; beyond it, their values share no cache lines.
const STRIDE_MAX: usize = 64;

/// Returns how many leading windows have the length of the first one and equal distances, and their
/// stride. Returns `None` if there are fewer than [`STRIDED_MIN`].
fn regular_windows(windows: &[SampleRange]) -> Option<(usize, usize)> {
    let length = |range: &SampleRange| range.to - range.from;
    let [first, second, ..] = windows else { return None };
    let stride = second.from - first.from;
    let same_shape =
        |pair: &&[SampleRange]| length(&pair[1]) == length(first) && pair[1].from - pair[0].from == stride;
    let count = 1 + windows.windows(2).take_while(same_shape).count();
    let usable = count >= STRIDED_MIN && length(first) > 0 && (1..=STRIDE_MAX).contains(&stride);
    usable.then_some((count, stride))
}

/// Computes the sums of at least [`STRIDED_MIN`] regular windows over `values`, each in order from
/// its first value. Regrouping the values by index modulo `stride` makes the values of all windows
/// at one position contiguous.
#[inline(always)]
fn strided_sums(values: &[f64], stride: usize, phases: &mut Vec<f64>, sums: &mut [f64]) {
    let width = values.len() - (sums.len() - 1) * stride;
    let each = values.len().div_ceil(stride);
    phases.clear();
    for phase in 0..stride {
        phases.extend(values.iter().skip(phase).step_by(stride));
        phases.resize((phase + 1) * each, 0.0);
    }
    let mut first = 0;
    while first < sums.len() {
        let left = sums.len() - first;
        first += if left > STRIDED_MIN && sums.len() >= STRIDED_MAX {
            sum_strided::<STRIDED_MAX>(phases, each, width, stride, first, sums)
        } else {
            sum_strided::<STRIDED_MIN>(phases, each, width, stride, first, sums)
        };
    }
}

/// Computes the sums of `N` windows beginning with window `start`. If fewer are left, the last `N`
/// are computed and some of them are repeated. Returns how many were new.
#[inline(always)]
fn sum_strided<const N: usize>(
    phases: &[f64],
    each: usize,
    width: usize,
    stride: usize,
    start: usize,
    sums: &mut [f64],
) -> usize {
    let first = start.min(sums.len() - N);
    // Starting at -0.0 keeps the sign of a first value of -0.0.
    let mut sums_of_block = [-0.0; N];
    // Iterating position by position finds the values without a division.
    for round in 0..width.div_ceil(stride) {
        let from = first + round;
        for phase in phases.chunks_exact(each).take(width - round * stride) {
            for (sum, value) in sums_of_block.iter_mut().zip(&phase[from..from + N]) {
                *sum += value;
            }
        }
    }
    sums[first..first + N].copy_from_slice(&sums_of_block);
    first + N - start
}

/// Turns the plain sums of regular windows, beginning with `first`, into means.
#[inline(always)]
fn strided_means(of: &[(f64, f64)], first: SampleRange, stride: usize, sums: &mut [f64]) {
    let n = count(first.to - first.from);
    // Transposed, so that values of one operation are contiguous.
    let mut columns = [[0.0; STRIDED_MIN]; 4];
    for (chunk, sums) in sums.chunks_mut(STRIDED_MIN).enumerate() {
        let offset = chunk * STRIDED_MIN * stride;
        let [before, lost_before, after, lost_after] = &mut columns;
        for (at, plain, lost) in [(first.from, before, lost_before), (first.to, after, lost_after)] {
            let all = of.get(at + offset..).unwrap_or_default().iter().step_by(stride);
            for ((plain, lost), sum) in plain.iter_mut().zip(lost).zip(all) {
                (*plain, *lost) = *sum;
            }
        }
        let [before, lost_before, after, lost_after] = &columns;
        let operands = before.iter().zip(lost_before).zip(after.iter().zip(lost_after));
        for (out, ((before, lost_before), (after, lost_after))) in sums.iter_mut().zip(operands) {
            *out = mean(*out, exact((*before, *lost_before), (*after, *lost_after)), n);
        }
    }
}

/// Windows whose additions are independent of one another.
const INTERLEAVED: usize = 8;

/// Returns the sums of up to [`INTERLEAVED`] windows, each in order from its first value.
fn plain_sums<'v>(windows: impl Iterator<Item = &'v [f64]>) -> [f64; INTERLEAVED] {
    let mut all: [&[f64]; INTERLEAVED] = [&[]; INTERLEAVED];
    for (slot, window) in all.iter_mut().zip(windows) {
        *slot = window;
    }
    let shared = all.iter().map(|window| window.len()).min().unwrap_or(0);
    let [a, b, c, d, e, f, g, h] = all.map(|window| window.get(..shared).unwrap_or_default());
    // Starting at -0.0 keeps the sign of a first value of -0.0.
    let (mut i, mut j, mut k, mut l) = (-0.0, -0.0, -0.0, -0.0);
    let (mut m, mut n, mut o, mut p) = (-0.0, -0.0, -0.0, -0.0);
    let pairs = a.iter().zip(b).zip(c.iter().zip(d)).zip(e.iter().zip(f).zip(g.iter().zip(h)));
    for (((a, b), (c, d)), ((e, f), (g, h))) in pairs {
        (i, j, k, l) = (i + a, j + b, k + c, l + d);
        (m, n, o, p) = (m + e, n + f, o + g, p + h);
    }
    let mut sums = [i, j, k, l, m, n, o, p];
    for (sum, window) in sums.iter_mut().zip(&all) {
        *sum = window.iter().skip(shared).fold(*sum, |sum, value| sum + value);
    }
    sums
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::interleaved::tests::{any_sliding_windows, any_values};
    use super::*;
    use crate::promql::sums::{Mean, Sum};

    proptest! {
        /// For any values and windows, each sum and mean equals that of its window alone, to the
        /// bit.
        #[test]
        fn sums_of_all_windows_equal_those_of_each_window_alone(
            values in any_values(),
            sliding in any_sliding_windows(),
            is_mean in any::<bool>(),
        ) {
            let windows = sliding.over(values.len());
            let mut row = vec![0.5; windows.all().len()];
            if fill(&mut PrefixSums::default(), &windows, &values, is_mean, &mut row) {
                for (range, found) in windows.all().iter().zip(row) {
                    let window = &values[range.from..range.to];
                    let alone = match window.split_first() {
                        None => 0.5,
                        Some((first, rest)) if is_mean => {
                            let mut mean = Mean::of(*first);
                            rest.iter().for_each(|value| mean.add(*value));
                            mean.value()
                        }
                        Some(_) => {
                            let mut sum = Sum::default();
                            window.iter().for_each(|value| sum.add(*value));
                            sum.value()
                        }
                    };
                    prop_assert_eq!(found.to_bits(), alone.to_bits(), "{} for {}", found, alone);
                }
            }
        }
    }
}
