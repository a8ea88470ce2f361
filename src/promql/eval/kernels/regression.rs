//! Least-squares lines through the samples of each window.
//!
//! Windows whose samples have the same distances from the line's origin share the sums over times.
//! The sums that contain values are computed for several such windows at a time. The same is done
//! for windows that begin with the series and whose last samples have the same distance from the
//! origin. If all values are multiples of one power of two, all times are whole seconds, and no
//! product is rounded, then the sums are rounded only at their end (module `sums` has the
//! argument). Such sums are differences of integer sums from the start of the series.

use crate::model::Stopped;
use crate::promql::functions::regression::{FittedLine, SquareSums, least_squares};
use crate::promql::numbers::{count, seconds};
use crate::promql::sums::Sum;
use crate::simd::simd_dispatch;

use super::interleaved::{
    EqualWindows, INTERLEAVED, InterleavedSums, WindowColumns, WindowNumbers, is_moderate,
};
use super::windows::{SampleRange, StepWindows};
use super::{CheckInterval, ContinueCheck, ListedSamples, sums};

/// Fewest similar windows for which sharing sums is faster than adding up each window.
const SHARED_MIN: usize = 3;

/// Buffers that are reused from series to series.
#[derive(Default)]
pub(super) struct RegressionScratch {
    /// For each index, the number of values up to it that differ from their predecessor.
    changes: Vec<u32>,
    integer_sums: IntegerSums,
    by_start: SharedDistances,
    by_end: SharedEnds,
    columns: WindowColumns,
}

/// The function of a window's line that fills a row.
pub(super) struct LineFunction<O, R> {
    /// Returns the line's origin from the step's index and the window's first time.
    pub(super) origin_ms: O,
    /// Returns the row's value from the step's index and the window's line.
    pub(super) result: R,
}

/// A window through which a line is fitted, and the line's origin.
#[derive(Clone, Copy, Default)]
struct LineWindow {
    step: usize,
    range: SampleRange,
    origin_ms: i64,
}

impl LineWindow {
    fn len(&self) -> usize {
        self.range.to - self.range.from
    }

    /// Returns the distances of the samples from the origin, in milliseconds.
    fn distances<'t>(&self, times: &'t [i64]) -> impl Iterator<Item = i64> + use<'t> {
        let origin_ms = self.origin_ms;
        times[self.range.from..self.range.to].iter().map(move |time| time.saturating_sub(origin_ms))
    }

    fn first(&self, times: &[i64]) -> i64 {
        times[self.range.from].saturating_sub(self.origin_ms)
    }

    fn last(&self, times: &[i64]) -> i64 {
        times[self.range.to - 1].saturating_sub(self.origin_ms)
    }
}

/// Windows that are waiting to be computed together.
#[derive(Default)]
struct PendingWindows {
    group: [LineWindow; INTERLEAVED],
    len: usize,
    /// The windows share the distance of their last samples, not of their first.
    aligned_at_end: bool,
}

impl PendingWindows {
    fn push(&mut self, window: LineWindow) {
        self.group[self.len] = window;
        self.len += 1;
    }

    fn take(&mut self) -> &[LineWindow] {
        &self.group[..std::mem::take(&mut self.len)]
    }
}

/// Fills an absent row. Returns `false` without any change if the values or windows do not qualify.
pub(super) fn fill(
    scratch: &mut RegressionScratch,
    windows: &StepWindows,
    samples: ListedSamples<'_>,
    LineFunction { origin_ms, result }: LineFunction<
        impl Fn(usize, i64) -> i64,
        impl Fn(usize, FittedLine) -> f64,
    >,
    row: &mut [f64],
    check: ContinueCheck<'_>,
) -> Result<bool, Stopped> {
    if windows.all().len() < INTERLEAVED || !is_moderate(samples.values) {
        return Ok(false);
    }
    let ListedSamples { times, values } = samples;
    let RegressionScratch { changes, integer_sums, by_start, by_end, columns } = scratch;
    changes.clear();
    changes.push(0);
    let mut changed = 0;
    for pair in values.windows(2) {
        changed += u32::from(pair[0] != pair[1]);
        changes.push(changed);
    }
    let visited: usize = windows.all().iter().map(|range| range.to - range.from).sum();
    let is_exact = visited / 2 > values.len() && integer_sums.set(times, values);
    by_start.start_series(times);
    let period = distance_period(windows.all(), times, &origin_ms);
    let line_window = |step: usize| {
        let range = *windows.all().get(step).filter(|range| range.to - range.from >= 2)?;
        Some(LineWindow { step, range, origin_ms: origin_ms(step, times[range.from]) })
    };
    let mut interval = CheckInterval::default();
    let mut pending = PendingWindows::default();
    let exact = is_exact.then_some(&*integer_sums);
    let mut flush = |pending: &mut PendingWindows,
                     by_start: &mut SharedDistances,
                     by_end: &mut SharedEnds,
                     row: &mut [f64]| {
        let aligned_at_end = pending.aligned_at_end;
        let group = pending.take();
        let emit = |step: usize, line: FittedLine| row[step] = result(step, line);
        if group.len() < SHARED_MIN {
            fit_each(group, samples, emit);
        } else if aligned_at_end {
            by_end.fit(columns, group, samples, exact, emit);
        } else {
            by_start.fit(columns, group, samples, exact, emit);
        }
        interval.add_samples(group.iter().map(LineWindow::len).sum(), &mut *check)
    };
    let steps = (0..period).flat_map(|first| (first..windows.all().len()).step_by(period));
    for step in steps {
        let Some(window) = line_window(step) else { continue };
        let SampleRange { from, to } = window.range;
        if changes[to - 1] == changes[from] {
            row[step] = result(step, FittedLine::level(values[from]));
            continue;
        }
        if is_exact && let Some(line) = integer_sums.line(&window) {
            row[step] = result(step, line);
            continue;
        }
        let is_match = if pending.aligned_at_end {
            by_end.matches(&window, times)
        } else {
            by_start.matches(&window, times)
        };
        if pending.len == INTERLEAVED || !is_match {
            flush(&mut pending, by_start, by_end, row)?;
        }
        if !is_match {
            let next = line_window(step + period).filter(|_| by_start.is_regular && from == 0);
            pending.aligned_at_end = next.is_some_and(|next| {
                next.first(times) != window.first(times) && next.last(times) == window.last(times)
            });
            if pending.aligned_at_end { by_end.start(&window, times) } else { by_start.start(&window) }
        }
        pending.push(window);
    }
    flush(&mut pending, by_start, by_end, row)?;
    Ok(true)
}

/// Fits the line of each window separately.
fn fit_each(
    group: &[LineWindow],
    ListedSamples { times, values }: ListedSamples<'_>,
    mut emit: impl FnMut(usize, FittedLine),
) {
    for LineWindow { step, range: SampleRange { from, to }, origin_ms } in group {
        let samples = (&times[*from..*to], &values[*from..*to]);
        least_squares(samples.0, samples.1, *origin_ms).into_iter().for_each(|line| emit(*step, line));
    }
}

/// Largest number of steps after which a repetition of distances is detected.
const PERIOD_MAX: usize = 64;

/// Returns after how many steps the distances from the origin repeat. If the step is not a multiple
/// of the sample distance (50 s and 15 s), neighbouring windows always differ. The number is taken
/// from the windows in the middle; only the order of computation depends on it.
fn distance_period(windows: &[SampleRange], times: &[i64], origin_ms: impl Fn(usize, i64) -> i64) -> usize {
    let distance = |step: usize| {
        let first = *times.get(windows.get(step)?.from)?;
        Some(first.saturating_sub(origin_ms(step, first)))
    };
    let middle = windows.len() / 2;
    let reference = distance(middle);
    (1..=PERIOD_MAX.min(middle / SHARED_MIN))
        .find(|period| distance(middle + period) == reference)
        .unwrap_or(1)
}

/// The distances of samples from the origin, shared by several windows: they are equal at each
/// position.
#[derive(Default)]
struct SharedDistances {
    /// Whether all times of the series have equal distances.
    is_regular: bool,
    /// The longest of the windows.
    longest: LineWindow,
    /// Distances in seconds, and the sums of the distances up to each position, as far as computed.
    distances: Vec<f64>,
    totals: Vec<SquareSums>,
    sums: (Sum, Sum),
}

impl SharedDistances {
    /// Starts another series.
    fn start_series(&mut self, times: &[i64]) {
        let interval = |pair: &[i64]| pair[1].saturating_sub(pair[0]);
        let first = times.windows(2).next().map(interval);
        self.is_regular = times.windows(2).fold(true, |all, pair| all & (Some(interval(pair)) == first));
        self.start(&LineWindow::default());
    }

    fn start(&mut self, window: &LineWindow) {
        self.longest = *window;
        self.distances.clear();
        self.totals.clear();
        self.sums = Default::default();
    }

    /// Returns whether the window has the same distances. If so, they are extended to its length.
    fn matches(&mut self, window: &LineWindow, times: &[i64]) -> bool {
        let mut pairs = window.distances(times).zip(self.longest.distances(times));
        let is_match = match pairs.next() {
            None => false,
            Some((a, b)) => a == b && (self.is_regular || pairs.all(|(a, b)| a == b)),
        };
        if is_match && self.longest.len() < window.len() {
            self.longest = *window;
        }
        is_match
    }

    fn extend(&mut self, times: &[i64]) {
        for distance in self.longest.distances(times).skip(self.distances.len()) {
            let x = seconds(distance);
            self.distances.push(x);
            self.sums.0.add(x);
            self.sums.1.add(x * x);
            self.totals.push(SquareSums { sum: self.sums.0.total(), squares: self.sums.1.total() });
        }
    }

    /// Fits the lines of windows with these distances. `exact` has the sums of values, if they are
    /// exact integers.
    fn fit(
        &mut self,
        columns: &mut WindowColumns,
        group: &[LineWindow],
        ListedSamples { times, values }: ListedSamples<'_>,
        exact: Option<&IntegerSums>,
        mut emit: impl FnMut(usize, FittedLine),
    ) {
        self.extend(times);
        let len = group.iter().map(LineWindow::len).min().unwrap_or(0);
        let windows = EqualWindows { ends: per_slot(group, |window| window.range.from + len), len };
        let (sums, products) = sums_and_products(columns, values, &windows, &self.distances, exact.is_none());
        for (i, window) in group.iter().enumerate() {
            let (mut sum, mut product) = (sums.of(i), products.of(i));
            for (x, y) in self.distances[len..].iter().zip(&values[window.range.from + len..window.range.to])
            {
                sum.add(*y);
                product.add(x * y);
            }
            let sum = exact.map_or(sum.total(), |exact| exact.sum(window.range));
            let x = self.totals[window.len() - 1];
            emit(window.step, FittedLine::through(count(window.len()), x, sum, product.total()));
        }
    }
}

/// Returns the sums of the windows' values, if `with_sums`, and the sums of their products with the
/// distances.
fn sums_and_products(
    columns: &mut WindowColumns,
    values: &[f64],
    windows: &EqualWindows,
    distances: &[f64],
    with_sums: bool,
) -> (InterleavedSums, InterleavedSums) {
    let (mut sums, mut products) = (InterleavedSums::default(), InterleavedSums::default());
    for block in windows.blocks() {
        let distances = &distances[block.clone()];
        let columns = columns.of(values, windows, block);
        products = sum_products(products, columns, distances);
        if with_sums {
            sums = sum_values(sums, columns);
        }
    }
    (sums, products)
}

/// Returns one number for each window. Unused slots repeat the first window; their results are
/// ignored.
fn per_slot(group: &[LineWindow], of: impl Fn(&LineWindow) -> usize) -> [usize; INTERLEAVED] {
    std::array::from_fn(|i| group.get(i).or(group.first()).map_or(0, &of))
}

/// Windows that begin with the series, whose times are equally spaced and whose last samples have
/// the same distance from their origins.
#[derive(Default)]
struct SharedEnds {
    /// Milliseconds from the origin to the last sample, and between samples.
    last_ms: i64,
    interval_ms: i64,
    /// Sums of the last `n` distances in seconds, by `n`, as far as computed. They are kept for
    /// other series with the same distances.
    totals: Vec<Option<SquareSums>>,
}

impl SharedEnds {
    fn start(&mut self, window: &LineWindow, times: &[i64]) {
        let (last_ms, interval_ms) = (window.last(times), times[1].saturating_sub(times[0]));
        if (last_ms, interval_ms) != (self.last_ms, self.interval_ms) {
            *self = SharedEnds { last_ms, interval_ms, ..SharedEnds::default() };
        }
    }

    fn matches(&self, window: &LineWindow, times: &[i64]) -> bool {
        window.range.from == 0 && window.last(times) == self.last_ms
    }

    /// Fits the lines of such windows. `exact` has the sums of values, if they are exact integers.
    fn fit(
        &mut self,
        columns: &mut WindowColumns,
        group: &[LineWindow],
        ListedSamples { times, values }: ListedSamples<'_>,
        exact: Option<&IntegerSums>,
        mut emit: impl FnMut(usize, FittedLine),
    ) {
        let Some(longest) = group.iter().max_by_key(|window| window.len()) else { return };
        let len = longest.len();
        // The terms in the order in which they are added up.
        let distances: Vec<f64> = longest.distances(times).map(seconds).collect();
        let x = self.totals(group, &distances);
        let windows = EqualWindows { ends: per_slot(group, |window| window.range.to), len };
        let (sums, products) = sums_and_products(columns, values, &windows, &distances, exact.is_none());
        for (i, window) in group.iter().enumerate() {
            let sum = exact.map_or_else(|| sums.total(i), |exact| exact.sum(window.range));
            emit(window.step, FittedLine::through(count(window.len()), x[i], sum, products.total(i)));
        }
    }

    /// Returns the sums of each window's distances.
    fn totals(&mut self, group: &[LineWindow], distances: &[f64]) -> [SquareSums; INTERLEAVED] {
        let len = distances.len();
        if self.totals.len() <= len {
            self.totals.resize(len + 1, None);
        }
        let lens = per_slot(group, LineWindow::len);
        if lens.iter().any(|of| self.totals[*of].is_none()) {
            let firsts = lens.map(|of| count(len - of));
            let (sums, squares) = suffix_sums(distances, firsts);
            for (i, of) in lens.into_iter().enumerate() {
                self.totals[of] = Some(SquareSums { sum: sums.total(i), squares: squares.total(i) });
            }
        }
        lens.map(|of| self.totals[of].unwrap_or_default())
    }
}

/// Returns, for each window, the sums of the distances and of their squares from position `firsts`
/// on.
#[inline(never)]
fn suffix_sums(distances: &[f64], firsts: WindowNumbers) -> (InterleavedSums, InterleavedSums) {
    simd_dispatch!(add_suffixes(distances, firsts))
}

#[inline(always)]
fn add_suffixes(distances: &[f64], firsts: WindowNumbers) -> (InterleavedSums, InterleavedSums) {
    let (mut sums, mut squares) = (InterleavedSums::default(), InterleavedSums::default());
    let mut position = 0.0;
    for x in distances {
        for (i, first) in firsts.iter().enumerate() {
            // Adding 0 to a sum that is still 0 changes nothing.
            let of_window = if position >= *first { *x } else { 0.0 };
            sums.add(i, of_window);
            squares.add(i, of_window * x);
        }
        position += 1.0;
    }
    (sums, squares)
}

/// Adds the values of windows. Must not be inlined, like the functions below: the compiler would
/// then add up one window after the other.
#[inline(never)]
fn sum_values(sums: InterleavedSums, columns: &[WindowNumbers]) -> InterleavedSums {
    simd_dispatch!(add_values(sums, columns))
}

#[inline(always)]
fn add_values(mut sums: InterleavedSums, columns: &[WindowNumbers]) -> InterleavedSums {
    for values in columns {
        for (i, y) in values.iter().enumerate() {
            sums.add(i, *y);
        }
    }
    sums
}

/// Adds the values of windows, each multiplied by the distance at its position.
#[inline(never)]
fn sum_products(sums: InterleavedSums, columns: &[WindowNumbers], distances: &[f64]) -> InterleavedSums {
    simd_dispatch!(add_products(sums, columns, distances))
}

#[inline(always)]
fn add_products(mut sums: InterleavedSums, columns: &[WindowNumbers], distances: &[f64]) -> InterleavedSums {
    for (values, x) in columns.iter().zip(distances) {
        for (i, y) in values.iter().enumerate() {
            sums.add(i, x * y);
        }
    }
    sums
}

/// Integer sums from the start of a series to each index: of its times in seconds since the first,
/// of their squares, of its values in multiples of `unit`, and of the products of both.
#[derive(Default)]
struct IntegerSums {
    times: Vec<i64>,
    of_times: Vec<(i64, i64)>,
    of_values: Vec<(i128, i128)>,
    /// Bits of the largest value in multiples of `unit`, and the power of two by which sums are
    /// multiplied.
    bits: u32,
    unit: f64,
}

/// Limits as powers of two: values, and seconds from the first to the last time. They keep the sums
/// over times within 64 bits and the lists within 4 MiB.
const LEN_BITS: u32 = 16;
const SPAN_BITS: u32 = 20;

/// Significant bits of a double.
const DIGITS: u32 = f64::MANTISSA_DIGITS;

impl IntegerSums {
    /// Computes the sums. Returns `false` if the times or values do not qualify.
    fn set(&mut self, times: &[i64], values: &[f64]) -> bool {
        if times != self.times && !self.set_times(times) {
            return false;
        }
        let Some((bits, unit)) = common_unit(values) else { return false };
        (self.bits, self.unit) = (bits, unit);
        self.of_values.clear();
        let (mut sum, mut product) = (0, 0);
        self.of_values.push((sum, product));
        for (value, time) in values.iter().zip(times) {
            let value = i128::from(to_integer(value / unit));
            sum += value;
            product += value * i128::from((time - times[0]) / 1000);
            self.of_values.push((sum, product));
        }
        true
    }

    fn set_times(&mut self, times: &[i64]) -> bool {
        self.times.clear();
        let Some(first) = times.first() else { return false };
        let from_first = |time: &i64| time.checked_sub(*first).filter(|offset| offset % 1000 == 0);
        let is_whole =
            times.iter().all(|time| from_first(time).is_some_and(|offset| offset >> SPAN_BITS < 1000));
        if !is_whole || times.len() >> LEN_BITS > 0 {
            return false;
        }
        self.times.extend_from_slice(times);
        self.of_times.clear();
        let (mut sum, mut squares) = (0, 0);
        self.of_times.push((sum, squares));
        for time in times {
            let x = (time - first) / 1000;
            sum += x;
            squares += x * x;
            self.of_times.push((sum, squares));
        }
        true
    }

    /// Returns the sum of a window's values.
    #[expect(clippy::cast_precision_loss, reason = "rounded once, as upstream's sum is in the end")]
    fn sum(&self, SampleRange { from, to }: SampleRange) -> f64 {
        (self.of_values[to].0 - self.of_values[from].0) as f64 * self.unit
    }

    /// Returns the line of a window. Returns `None` if its times are not whole seconds from the
    /// origin, or a product would be rounded.
    #[expect(clippy::cast_precision_loss, reason = "rounded once, as upstream's sums are in the end")]
    fn line(&self, window: &LineWindow) -> Option<FittedLine> {
        let SampleRange { from, to } = window.range;
        // Offset of all times: from the origin instead of from the first time.
        let further_ms = self.times[0].checked_sub(window.origin_ms).filter(|further| further % 1000 == 0)?;
        let further = further_ms / 1000;
        let distance = |time: i64| (time - self.times[0]) / 1000 + further;
        let greatest =
            distance(self.times[from]).unsigned_abs().max(distance(self.times[to - 1]).unsigned_abs());
        let bits = u64::BITS - greatest.leading_zeros();
        if bits + self.bits > DIGITS || bits > SPAN_BITS + 1 {
            return None;
        }
        let n = i64::try_from(to - from).ok()?;
        let (start, end) = (self.of_times[from], self.of_times[to]);
        let (x, xx) = (end.0 - start.0, end.1 - start.1);
        let (start, end) = (self.of_values[from], self.of_values[to]);
        let (y, xy) = (end.0 - start.0, end.1 - start.1);
        let of_x = SquareSums {
            sum: (x + n * further) as f64,
            squares: (xx + 2 * further * x + n * further * further) as f64,
        };
        let of_y = (self.sum(window.range), (xy + i128::from(further) * y) as f64 * self.unit);
        Some(FittedLine::through(count(to - from), of_x, of_y.0, of_y.1))
    }
}

/// Returns the bits of the largest value and the power of two of which all values are multiples.
/// Returns `None` if the values do not qualify.
fn common_unit(values: &[f64]) -> Option<(u32, f64)> {
    let (highest, lowest) = simd_dispatch!(sums::bits(values))?;
    // Bit number of 1.0, as counted by `sums::bits`.
    const ONE: u64 = 1023 + 52;
    const FAR: u64 = 500;
    if lowest < ONE - FAR || highest > ONE + FAR {
        return None;
    }
    let bits = u32::try_from(highest - lowest + 1).ok()?;
    // Within this range the unit is a normal number, so its exponent alone defines it.
    let unit = f64::from_bits((lowest - 52) << 52);
    (bits < DIGITS).then_some((bits, unit))
}

#[expect(clippy::cast_possible_truncation, reason = "an integer of at most 53 bits")]
fn to_integer(value: f64) -> i64 {
    value as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::interleaved::tests::{any_sliding_windows, any_values};
    use super::*;

    fn any_times(len: usize) -> impl Strategy<Value = Vec<i64>> {
        let gap = prop_oneof![
            Just(vec![15_000i64]),
            Just(vec![15_000, 30_000]),
            Just(vec![15_001]),
            prop::collection::vec(prop_oneof![8 => Just(15_000i64), 1 => 1..60_000i64], len.max(1)),
        ];
        (prop_oneof![Just(0i64), -100_000..100_000i64], gap).prop_map(move |(first, gaps)| {
            let mut at = first;
            let next = |gap: &i64| {
                let this = at;
                at += gap;
                this
            };
            gaps.iter().cycle().take(len).map(next).collect()
        })
    }

    proptest! {
        /// For any samples and windows, each line equals the one through its window alone, to the
        /// bit.
        #[test]
        fn lines_of_shared_windows_equal_those_of_each_window_alone(
            (values, times) in any_values().prop_flat_map(|values| {
                let len = values.len();
                (Just(values), any_times(len))
            }),
            sliding in any_sliding_windows(),
            (zero, step_ms) in (prop_oneof![Just(0i64), -50_000..50_000i64], prop_oneof![Just(15_000i64), Just(60_000), 1..60_000i64]),
            from_first in any::<bool>(),
        ) {
            let windows = sliding.over(values.len());
            let mut scratch = RegressionScratch::default();
            // The scratch is used again, with other times and with the same times.
            for times in [times.clone(), times.iter().map(|time| time + 1).collect(), times] {
                let origin = |step: usize, first: i64| {
                    if from_first { first } else { zero + step_ms * i64::try_from(step).unwrap_or(0) }
                };
                let of = |_: usize, line: FittedLine| line.slope() + line.at(3.0);
                let mut row = vec![0.5; windows.all().len()];
                let samples = ListedSamples { times: &times, values: &values };
                let function = LineFunction { origin_ms: origin, result: of };
                let done = fill(&mut scratch, &windows, samples, function, &mut row, &mut || Ok(()));
                prop_assert!(done.is_ok());
                if matches!(done, Ok(false)) {
                    continue;
                }
                for ((step, range), found) in windows.all().iter().enumerate().zip(row) {
                    let samples = (&times[range.from..range.to], &values[range.from..range.to]);
                    let alone = samples.0.first().and_then(|first| least_squares(samples.0, samples.1, origin(step, *first)));
                    let alone = alone.map_or(0.5, |line| of(step, line));
                    prop_assert_eq!(found.to_bits(), alone.to_bits(), "step {}: {} for {}", step, found, alone);
                }
            }
        }
    }
}
