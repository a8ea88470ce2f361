//! Sums and means of each window, to the bit what adding its values one by one with Neumaier's compensation gives.
//!
//! Let E be the exponent of the greatest magnitude, e that of the lowest bit set in any value, and n the number of values.
//! Every sum of some of them is a multiple of 2^e below 2^(E + 1 + log2 n), and what rounding takes from it, over at most n
//! additions, is one below 2^(E + 1 + 2 log2 n - 53). Where `E + 1 + 2 ceil(log2 n) - e <= 104` that fits a double, with a
//! bit to spare for the difference of two: so Neumaier's compensation is exact, his sum and compensation are together the
//! true sum, and one last addition rounds it. The same holds for sums from the start of the series; the difference of two of
//! them is the true sum of the window between, and is rounded once as well.
//!
//! A mean divides sum and compensation apart, so that it needs the plain sum of its window in order: one addition a value
//! in place of seven, eight windows side by side. The compensation is what the true sum has beyond it.

use crate::promql::functions::count;
use crate::simd::simd_dispatch;

use super::Frames;
use super::frames::Frame;

/// Windows of fewer values on average are as soon added up.
const WINDOW_MIN: usize = 8;

/// Sums from the start up to each place.
#[derive(Default)]
pub(super) struct Prefixes {
    /// The plain one, and what its roundings took.
    sums: Vec<(f64, f64)>,
    /// Every so manyth value together.
    phases: Vec<f64>,
}

/// In how many doubles the sums of any of some values are exact.
#[derive(Clone, Copy, PartialEq)]
enum Exact {
    InOne,
    InTwo,
    Never,
}

/// The sum of two doubles, and what its rounding took, exactly (Knuth).
#[inline(always)]
pub(super) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    let a_part = sum - b_part;
    (sum, (a - a_part) + (b - b_part))
}

/// The highest bit that the greatest of these values may have, and the lowest that is set in any, counted from the lowest that
/// a double has; none where all are zero.
#[inline(always)]
pub(super) fn bits(values: &[f64]) -> Option<(u64, u64)> {
    const FRACTION: u64 = (1 << 52) - 1;
    let (mut greatest, mut lowest) = (0u64, u64::MAX);
    for value in values {
        let magnitude = value.to_bits() & !(1 << 63);
        greatest = greatest.max(magnitude);
        // The lowest bit that may be set: that of the whole fraction would do, but fewer digits admit more.
        let exponent = (magnitude >> 52).max(1);
        let fraction = magnitude & FRACTION | if magnitude >> 52 == 0 { 0 } else { 1 << 52 };
        let bit = exponent + u64::from(fraction.trailing_zeros());
        lowest = if magnitude == 0 { lowest } else { lowest.min(bit) };
    }
    (greatest > 0).then_some(((greatest >> 52).max(1) + 52, lowest))
}

/// Whether the sums of any of these values are exact in one double, or in two.
#[inline(always)]
fn exactness(values: &[f64]) -> Exact {
    let Some((highest, lowest)) = bits(values) else { return Exact::InOne };
    let carry = u64::from(usize::BITS - values.len().leading_zeros());
    // Far enough from infinity, which NaN is not either.
    if highest + carry >= 2_040 + 52 || highest + 1 + 2 * carry > 104 + lowest {
        return Exact::Never;
    }
    if highest + 1 + carry <= 53 + lowest { Exact::InOne } else { Exact::InTwo }
}

/// Whether all are whole numbers so small that no sum of them is rounded, which several are asked for at once.
#[inline(always)]
fn is_small_and_whole(values: &[f64]) -> bool {
    // 3 * 2^51: what is added to it is rounded to a whole number.
    const ROUNDS: f64 = 6_755_399_441_055_744.0;
    // 2^50.
    const WHOLE_MAX: f64 = 1_125_899_906_842_624.0;
    let most = WHOLE_MAX / count(values.len().max(1));
    let all = |piece: &[f64]| {
        let fits = |value: &f64| ((value + ROUNDS) - ROUNDS == *value) & (value.abs() <= most);
        piece.iter().fold(true, |all, value| all & fits(value))
    };
    values.chunks(64).all(all)
}

/// The sum of values that are added without rounding, in whatever order; of zeros below zero it is zero.
fn exact_sum(values: &[f64]) -> f64 {
    let (pieces, rest) = values.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for piece in pieces {
        for (sum, value) in sums.iter_mut().zip(piece) {
            *sum += value;
        }
    }
    sums.iter().chain(rest).fold(0.0, |sum, value| sum + value)
}

/// Fills a row; false where the values are none that this can be done with, and nothing was done.
pub(super) fn fill(
    prefixes: &mut Prefixes,
    frames: &Frames,
    values: &[f64],
    is_mean: bool,
    row: &mut [f64],
) -> bool {
    let all = frames.all();
    let looked_at: usize = all.iter().map(|frame| frame.to - frame.from).sum();
    if looked_at < WINDOW_MIN * all.len() || looked_at < values.len() {
        return false;
    }
    let is_whole = simd_dispatch!(is_small_and_whole(values));
    let exactness = if is_whole { Exact::InOne } else { simd_dispatch!(exactness(values)) };
    if exactness == Exact::Never {
        return false;
    }
    if exactness == Exact::InOne && looked_at <= 2 * values.len() {
        for (frame, out) in all.iter().zip(row).filter(|(frame, _)| frame.from < frame.to) {
            let sum = exact_sum(&values[frame.from..frame.to]);
            // The compensation is zero, and a mean adds it.
            *out = if is_mean { sum / count(frame.to - frame.from) + 0.0 } else { sum };
        }
        return true;
    }
    let Prefixes { sums, phases } = prefixes;
    fill_prefixes(values, sums);
    let exact = |from: usize, to: usize| exact(sums[from], sums[to]);
    if !is_mean {
        for (frame, out) in all.iter().zip(row).filter(|(frame, _)| frame.from < frame.to) {
            // A sum of nothing but zeros is no zero below zero.
            *out = exact(frame.from, frame.to).0 + 0.0;
        }
        return true;
    }
    let mean = |from: usize, to: usize, plain: f64| mean(plain, exact(from, to), count(to - from));
    if exactness == Exact::InOne {
        // Nothing is rounded, in whatever order it is added.
        for (frame, out) in all.iter().zip(row).filter(|(frame, _)| frame.from < frame.to) {
            *out = mean(frame.from, frame.to, exact(frame.from, frame.to).0);
        }
        return true;
    }
    // What begins where the series does is summed up already.
    let mut done = all.iter().take_while(|frame| frame.from == 0).count();
    for (frame, out) in all.iter().zip(&mut row[..done]).filter(|(frame, _)| frame.from < frame.to) {
        *out = mean(0, frame.to, sums[frame.to].0);
    }
    while let Some(left) = all.get(done..).filter(|left| !left.is_empty()) {
        let regular = regular(left);
        let count = regular.map_or(SIDE_BY_SIDE.min(left.len()), |(count, _)| count);
        let (frames, out) = (&left[..count], &mut row[done..done + count]);
        done += count;
        if let Some((_, stride)) = regular {
            let values = &values[frames[0].from..frames[count - 1].to];
            simd_dispatch!(strided_sums(values, stride, phases, out));
            simd_dispatch!(strided_means(sums, (frames[0], stride), out));
            continue;
        }
        let plain = plain_sums(frames.iter().map(|frame| &values[frame.from..frame.to]));
        for ((frame, plain), out) in frames.iter().zip(plain).zip(out) {
            if frame.from < frame.to {
                *out = mean(frame.from, frame.to, plain);
            }
        }
    }
    true
}

/// Sums from the start up to each place, the first of nothing.
fn fill_prefixes(values: &[f64], sums: &mut Vec<(f64, f64)>) {
    // In places that are there already: what is summed up then stays in registers. Those beyond are no matter.
    if sums.len() <= values.len() {
        sums.resize(values.len() + 1, (0.0, 0.0));
    }
    let (mut sum, mut rest) = (0.0, 0.0);
    for (value, place) in values.iter().zip(&mut sums[1..]) {
        let (next, by_rounding) = two_sum(sum, *value);
        (sum, rest) = (next, rest + by_rounding);
        *place = (sum, rest);
    }
}

/// The sum of a window, rounded once, and what that took; of what was added up before its first value and up to its last.
#[inline(always)]
fn exact((before, lost_before): (f64, f64), (after, lost_after): (f64, f64)) -> (f64, f64) {
    let (difference, by_rounding) = two_sum(after, -before);
    two_sum(difference, by_rounding + (lost_after - lost_before))
}

/// The mean of `n` values of which the plain sum and the true one are known.
#[inline(always)]
fn mean(plain: f64, (sum, rest): (f64, f64), n: f64) -> f64 {
    plain / n + ((sum - plain) + rest) / n
}

/// Windows that are added up together where they are regular, at least.
const TOGETHER: usize = 16;

/// And where there are as many left: so many sums that the processor adds to some while it waits for the others, and still
/// has registers for all.
const TOGETHER_MAX: usize = 32;

/// How far apart regular windows are at most: more would not be neighbours for the processor either.
const STRIDE_MAX: usize = 64;

/// How many of the first windows are as long as the first one and equally far apart, and how far; where they are enough.
fn regular(frames: &[Frame]) -> Option<(usize, usize)> {
    let length = |frame: &Frame| frame.to - frame.from;
    let [first, second, ..] = frames else { return None };
    let stride = second.from - first.from;
    let alike = |pair: &&[Frame]| length(&pair[1]) == length(first) && pair[1].from - pair[0].from == stride;
    let count = 1 + frames.windows(2).take_while(alike).count();
    let usable = count >= TOGETHER && length(first) > 0 && (1..=STRIDE_MAX).contains(&stride);
    usable.then_some((count, stride))
}

/// The sums of regular windows over these values, as many as there is room for, [`TOGETHER`] at least; each from its first
/// value on in order. What the windows have at one place are neighbours once every `stride`th value lies together.
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
        first += if left > TOGETHER && sums.len() >= TOGETHER_MAX {
            sums_together::<TOGETHER_MAX>((phases, each), (width, stride), first, sums)
        } else {
            sums_together::<TOGETHER>((phases, each), (width, stride), first, sums)
        };
    }
}

/// The sums of some windows, the first one being of that number; the last ones are computed again with some before them.
/// Answers how many were new.
#[inline(always)]
fn sums_together<const N: usize>(
    (phases, each): (&[f64], usize),
    (width, stride): (usize, usize),
    wanted: usize,
    sums: &mut [f64],
) -> usize {
    let first = wanted.min(sums.len() - N);
    // From minus zero on: the first value is then what it is, were it a zero below zero.
    let mut together = [-0.0; N];
    // The values of all windows at one place after the other: no division to find where they are.
    for round in 0..width.div_ceil(stride) {
        let from = first + round;
        for phase in phases.chunks_exact(each).take(width - round * stride) {
            for (sum, value) in together.iter_mut().zip(&phase[from..from + N]) {
                *sum += value;
            }
        }
    }
    sums[first..first + N].copy_from_slice(&together);
    first + N - wanted
}

/// Makes the plain sums of regular windows, of which this is the first, their means.
#[inline(always)]
fn strided_means(of: &[(f64, f64)], (first, stride): (Frame, usize), sums: &mut [f64]) {
    let n = count(first.to - first.from);
    // So that what is computed with at once are neighbours.
    let mut columns = [[0.0; TOGETHER]; 4];
    for (piece, sums) in sums.chunks_mut(TOGETHER).enumerate() {
        let apart = piece * TOGETHER * stride;
        let [before, lost_before, after, lost_after] = &mut columns;
        for (at, plain, lost) in [(first.from, before, lost_before), (first.to, after, lost_after)] {
            let all = of.get(at + apart..).unwrap_or_default().iter().step_by(stride);
            for ((plain, lost), sum) in plain.iter_mut().zip(lost).zip(all) {
                (*plain, *lost) = *sum;
            }
        }
        let [before, lost_before, after, lost_after] = &columns;
        let sides = before.iter().zip(lost_before).zip(after.iter().zip(lost_after));
        for (out, ((before, lost_before), (after, lost_after))) in sums.iter_mut().zip(sides) {
            *out = mean(*out, exact((*before, *lost_before), (*after, *lost_after)), n);
        }
    }
}

/// Windows whose additions do not wait for one another.
const SIDE_BY_SIDE: usize = 8;

/// The sums of up to eight windows, each from its first value on in order.
fn plain_sums<'v>(windows: impl Iterator<Item = &'v [f64]>) -> [f64; SIDE_BY_SIDE] {
    let mut all: [&[f64]; SIDE_BY_SIDE] = [&[]; SIDE_BY_SIDE];
    for (slot, window) in all.iter_mut().zip(windows) {
        *slot = window;
    }
    let shared = all.iter().map(|window| window.len()).min().unwrap_or(0);
    let [a, b, c, d, e, f, g, h] = all.map(|window| window.get(..shared).unwrap_or_default());
    // From minus zero on: the first value is then what it is, were it a zero below zero.
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

    use super::super::abreast::tests::{any_frames, any_values};
    use super::*;
    use crate::promql::functions::sums::{Mean, Sum};

    proptest! {
        /// Whatever the values and the windows are, few or many, each sum and mean is that of its window alone, to the bit.
        #[test]
        fn sums_of_all_windows_are_those_of_each_alone(
            values in any_values(),
            windows in any_frames(),
            is_mean in any::<bool>(),
        ) {
            let frames = windows.over(values.len());
            let mut row = vec![0.5; frames.all().len()];
            if fill(&mut Prefixes::default(), &frames, &values, is_mean, &mut row) {
                for (frame, found) in frames.all().iter().zip(row) {
                    let window = &values[frame.from..frame.to];
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
