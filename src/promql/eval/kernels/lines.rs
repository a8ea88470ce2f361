//! Lines through the samples of each window, by least squares.
//!
//! Windows whose samples are as far from where the line's zero is share what is summed up of times alone; the sums that have
//! values in them are made for several such windows side by side; so do those whose last samples are as far from there, of
//! which some begin where the series does. Where values are multiples of one power of two, times
//! whole seconds, and no product of either is rounded, the sums are rounded but at their end (`sums` has the argument):
//! then they are differences of sums of integers from the start of the series.

use crate::promql::functions::regression::{FittedLine, SquareSums, least_squares};
use crate::promql::functions::sums::Sum;
use crate::promql::functions::{count, seconds};
use crate::simd::simd_dispatch;

use super::abreast::{ABREAST, Columns, Numbers, Sums, Windows, is_moderate};
use super::frames::{Frame, Frames};
use super::{GoesOn, Patience, Stopped, sums};

/// Fewer windows that are alike are as soon added up one by one.
const ALIKE_MIN: usize = 3;

/// What one series after the other is computed in.
#[derive(Default)]
pub(super) struct Room {
    /// How many values up to each place differ from the one before.
    changes: Vec<u32>,
    whole: Whole,
    shape: Shape,
    ends: Ends,
    columns: Columns,
}

/// A window that a line goes through, and where that has its zero.
#[derive(Clone, Copy, Default)]
struct Place {
    step: usize,
    frame: Frame,
    origin_ms: i64,
}

impl Place {
    fn len(&self) -> usize {
        self.frame.to - self.frame.from
    }

    /// How far its samples are from its zero.
    fn distances<'t>(&self, times: &'t [i64]) -> impl Iterator<Item = i64> + use<'t> {
        let origin_ms = self.origin_ms;
        times[self.frame.from..self.frame.to].iter().map(move |time| time.saturating_sub(origin_ms))
    }

    fn first(&self, times: &[i64]) -> i64 {
        times[self.frame.from].saturating_sub(self.origin_ms)
    }

    fn last(&self, times: &[i64]) -> i64 {
        times[self.frame.to - 1].saturating_sub(self.origin_ms)
    }
}

/// Windows that are computed side by side.
#[derive(Default)]
struct Held {
    places: [Place; ABREAST],
    len: usize,
    /// They have their ends in common, not their beginnings.
    by_ends: bool,
}

impl Held {
    fn push(&mut self, place: Place) {
        self.places[self.len] = place;
        self.len += 1;
    }

    fn take(&mut self) -> &[Place] {
        &self.places[..std::mem::take(&mut self.len)]
    }
}

/// Fills a row that is absent; false where the values are none that this can be done with, and nothing was done.
/// `origin_ms` tells of a step and its window's first time where the line's zero is, `told` of a step what is wanted of the
/// line.
pub(super) fn fill(
    room: &mut Room,
    frames: &Frames,
    (times, values): (&[i64], &[f64]),
    (origin_ms, told): (impl Fn(usize, i64) -> i64, impl Fn(usize, FittedLine) -> f64),
    row: &mut [f64],
    goes_on: GoesOn<'_>,
) -> Result<bool, Stopped> {
    if frames.all().len() < ABREAST || !is_moderate(values) {
        return Ok(false);
    }
    let Room { changes, whole, shape, ends, columns } = room;
    changes.clear();
    changes.push(0);
    let mut sofar = 0;
    for pair in values.windows(2) {
        sofar += u32::from(pair[0] != pair[1]);
        changes.push(sofar);
    }
    let looked_at: usize = frames.all().iter().map(|frame| frame.to - frame.from).sum();
    let is_whole = looked_at / 2 > values.len() && whole.set(times, values);
    shape.forget(times);
    let apart = repeats(frames.all(), times, &origin_ms);
    let place_of = |step: usize| {
        let frame = *frames.all().get(step).filter(|frame| frame.to - frame.from >= 2)?;
        Some(Place { step, frame, origin_ms: origin_ms(step, times[frame.from]) })
    };
    let mut patience = Patience::default();
    let mut held = Held::default();
    let known = is_whole.then_some(&*whole);
    let mut flush = |held: &mut Held, shape: &mut Shape, ends: &mut Ends, row: &mut [f64]| {
        let by_ends = held.by_ends;
        let places = held.take();
        let tell = |step: usize, line: FittedLine| row[step] = told(step, line);
        if places.len() < ALIKE_MIN {
            alone(places, (times, values), tell);
        } else if by_ends {
            ends.lines(columns, places, (times, values), known, tell);
        } else {
            shape.lines(columns, places, (times, values), known, tell);
        }
        patience.after(places.iter().map(Place::len).sum(), &mut *goes_on)
    };
    let steps = (0..apart).flat_map(|first| (first..frames.all().len()).step_by(apart));
    for step in steps {
        let Some(place) = place_of(step) else { continue };
        let Frame { from, to } = place.frame;
        if changes[to - 1] == changes[from] {
            row[step] = told(step, FittedLine::level(values[from]));
            continue;
        }
        if is_whole && let Some(line) = whole.line(&place) {
            row[step] = told(step, line);
            continue;
        }
        let is_like = if held.by_ends { ends.takes(&place, times) } else { shape.takes(&place, times) };
        if held.len == ABREAST || !is_like {
            flush(&mut held, shape, ends, row)?;
        }
        if !is_like {
            let next = place_of(step + apart).filter(|_| shape.is_steady && from == 0);
            held.by_ends = next.is_some_and(|next| {
                next.first(times) != place.first(times) && next.last(times) == place.last(times)
            });
            if held.by_ends { ends.begin(&place, times) } else { shape.begin(&place) }
        }
        held.push(place);
    }
    flush(&mut held, shape, ends, row)?;
    Ok(true)
}

/// Tells the line of each of these windows, one after the other.
fn alone(places: &[Place], (times, values): (&[i64], &[f64]), mut tell: impl FnMut(usize, FittedLine)) {
    for Place { step, frame: Frame { from, to }, origin_ms } in places {
        let samples = (&times[*from..*to], &values[*from..*to]);
        least_squares(samples.0, samples.1, *origin_ms).into_iter().for_each(|line| tell(*step, line));
    }
}

/// Windows are looked at that are so many steps apart, at most.
const APART_MAX: usize = 64;

/// After how many steps windows are as far from their lines' zeros again: where steps are no multiple of the times' distance,
/// as those of 50 s of 15 s, neighbours never are. It is read off the windows in the middle, and only the order depends on it.
fn repeats(frames: &[Frame], times: &[i64], origin_ms: impl Fn(usize, i64) -> i64) -> usize {
    let distance = |step: usize| {
        let first = *times.get(frames.get(step)?.from)?;
        Some(first.saturating_sub(origin_ms(step, first)))
    };
    let middle = frames.len() / 2;
    let here = distance(middle);
    (1..=APART_MAX.min(middle / ALIKE_MIN)).find(|apart| distance(middle + apart) == here).unwrap_or(1)
}

/// How far the samples of some windows are from their zeros: of each as far as that of any other at its place.
#[derive(Default)]
struct Shape {
    /// Whether all of the series' times are as far apart.
    is_steady: bool,
    /// The longest of the windows.
    of: Place,
    /// The distances in seconds, and what those up to each place add up to; as far as they were asked for.
    distances: Vec<f64>,
    totals: Vec<SquareSums>,
    sums: (Sum, Sum),
}

impl Shape {
    /// Begins with another series.
    fn forget(&mut self, times: &[i64]) {
        let apart = |pair: &[i64]| pair[1].saturating_sub(pair[0]);
        let first = times.windows(2).next().map(apart);
        self.is_steady = times.windows(2).fold(true, |all, pair| all & (Some(apart(pair)) == first));
        self.begin(&Place::default());
    }

    fn begin(&mut self, place: &Place) {
        self.of = *place;
        self.distances.clear();
        self.totals.clear();
        self.sums = Default::default();
    }

    /// Whether it is the place's too; it goes as far as that then.
    fn takes(&mut self, place: &Place, times: &[i64]) -> bool {
        let mut pairs = place.distances(times).zip(self.of.distances(times));
        let is_like = match pairs.next() {
            None => false,
            Some((a, b)) => a == b && (self.is_steady || pairs.all(|(a, b)| a == b)),
        };
        if is_like && self.of.len() < place.len() {
            self.of = *place;
        }
        is_like
    }

    fn reach(&mut self, times: &[i64]) {
        for distance in self.of.distances(times).skip(self.distances.len()) {
            let x = seconds(distance);
            self.distances.push(x);
            self.sums.0.add(x);
            self.sums.1.add(x * x);
            self.totals.push(SquareSums { sum: self.sums.0.total(), squares: self.sums.1.total() });
        }
    }

    /// Tells the lines of windows of this shape; what values add up to may be known.
    fn lines(
        &mut self,
        columns: &mut Columns,
        places: &[Place],
        (times, values): (&[i64], &[f64]),
        known: Option<&Whole>,
        mut tell: impl FnMut(usize, FittedLine),
    ) {
        self.reach(times);
        let len = places.iter().map(Place::len).min().unwrap_or(0);
        let windows = Windows { ends: of_lanes(places, |place| place.frame.from + len), len };
        let (sums, products) = added(columns, values, &windows, &self.distances, known.is_none());
        for (i, place) in places.iter().enumerate() {
            let (mut sum, mut product) = (sums.of(i), products.of(i));
            for (x, y) in self.distances[len..].iter().zip(&values[place.frame.from + len..place.frame.to]) {
                sum.add(*y);
                product.add(x * y);
            }
            let sum = known.map_or(sum.total(), |known| known.sum(place.frame));
            let x = self.totals[place.len() - 1];
            tell(place.step, FittedLine::through(count(place.len()), x, sum, product.total()));
        }
    }
}

/// What the values of windows add up to, if that is asked for, and what their products with distances do.
fn added(
    columns: &mut Columns,
    values: &[f64],
    windows: &Windows,
    distances: &[f64],
    with_sums: bool,
) -> (Sums, Sums) {
    let (mut sums, mut products) = (Sums::default(), Sums::default());
    for piece in windows.pieces() {
        let distances = &distances[piece.clone()];
        let columns = columns.of(values, windows, piece);
        products = with_products(products, columns, distances);
        if with_sums {
            sums = with_values(sums, columns);
        }
    }
    (sums, products)
}

/// Of each window one thing; where they are fewer than there is room for, the others are as the first one, and nobody asks for
/// theirs.
fn of_lanes(places: &[Place], of: impl Fn(&Place) -> usize) -> [usize; ABREAST] {
    std::array::from_fn(|i| places.get(i).or(places.first()).map_or(0, &of))
}

/// Windows that begin where the series does, whose times are all as far apart, the last samples of which are as far from
/// their zeros.
#[derive(Default)]
struct Ends {
    /// How far the last one is, and how far apart they are.
    last_ms: i64,
    apart_ms: i64,
    /// What so many distances, in seconds, add up to, as far as that was asked for: for all series that are alike in this.
    totals: Vec<Option<SquareSums>>,
}

impl Ends {
    fn begin(&mut self, place: &Place, times: &[i64]) {
        let (last_ms, apart_ms) = (place.last(times), times[1].saturating_sub(times[0]));
        if (last_ms, apart_ms) != (self.last_ms, self.apart_ms) {
            *self = Ends { last_ms, apart_ms, ..Ends::default() };
        }
    }

    fn takes(&self, place: &Place, times: &[i64]) -> bool {
        place.frame.from == 0 && place.last(times) == self.last_ms
    }

    /// Tells the lines of such windows; what values add up to may be known.
    fn lines(
        &mut self,
        columns: &mut Columns,
        places: &[Place],
        (times, values): (&[i64], &[f64]),
        known: Option<&Whole>,
        mut tell: impl FnMut(usize, FittedLine),
    ) {
        let Some(longest) = places.iter().max_by_key(|place| place.len()) else { return };
        let len = longest.len();
        // As from the first one on they are added up.
        let distances: Vec<f64> = longest.distances(times).map(seconds).collect();
        let x = self.totals(places, &distances);
        let windows = Windows { ends: of_lanes(places, |place| place.frame.to), len };
        let (sums, products) = added(columns, values, &windows, &distances, known.is_none());
        for (i, place) in places.iter().enumerate() {
            let sum = known.map_or_else(|| sums.total(i), |known| known.sum(place.frame));
            tell(place.step, FittedLine::through(count(place.len()), x[i], sum, products.total(i)));
        }
    }

    /// What the distances of each window add up to.
    fn totals(&mut self, places: &[Place], distances: &[f64]) -> [SquareSums; ABREAST] {
        let len = distances.len();
        if self.totals.len() <= len {
            self.totals.resize(len + 1, None);
        }
        let lens = of_lanes(places, Place::len);
        if lens.iter().any(|of| self.totals[*of].is_none()) {
            let firsts = lens.map(|of| count(len - of));
            let (sums, squares) = of_ends(distances, firsts);
            for (i, of) in lens.into_iter().enumerate() {
                self.totals[of] = Some(SquareSums { sum: sums.total(i), squares: squares.total(i) });
            }
        }
        lens.map(|of| self.totals[of].unwrap_or_default())
    }
}

/// What distances add up to, and their squares, of windows each of which has those from its first place on.
#[inline(never)]
fn of_ends(distances: &[f64], firsts: Numbers) -> (Sums, Sums) {
    simd_dispatch!(add_ends(distances, firsts))
}

#[inline(always)]
fn add_ends(distances: &[f64], firsts: Numbers) -> (Sums, Sums) {
    let (mut sums, mut squares) = (Sums::default(), Sums::default());
    let mut place = 0.0;
    for x in distances {
        for (i, first) in firsts.iter().enumerate() {
            // What has begun with nothing stays so.
            let of_window = if place >= *first { *x } else { 0.0 };
            sums.add(i, of_window);
            squares.add(i, of_window * x);
        }
        place += 1.0;
    }
    (sums, squares)
}

/// Adds values of windows. By itself, as what is below: as a part of what calls it the compiler adds up one window after the
/// other.
#[inline(never)]
fn with_values(sums: Sums, columns: &[Numbers]) -> Sums {
    simd_dispatch!(add_values(sums, columns))
}

#[inline(always)]
fn add_values(mut sums: Sums, columns: &[Numbers]) -> Sums {
    for values in columns {
        for (i, y) in values.iter().enumerate() {
            sums.add(i, *y);
        }
    }
    sums
}

/// Adds values of windows, each times what belongs to its place.
#[inline(never)]
fn with_products(sums: Sums, columns: &[Numbers], distances: &[f64]) -> Sums {
    simd_dispatch!(add_products(sums, columns, distances))
}

#[inline(always)]
fn add_products(mut sums: Sums, columns: &[Numbers], distances: &[f64]) -> Sums {
    for (values, x) in columns.iter().zip(distances) {
        for (i, y) in values.iter().enumerate() {
            sums.add(i, x * y);
        }
    }
    sums
}

/// Sums of integers from the start of a series up to each place: of its times, in seconds from the first one, of their
/// squares, of its values, in multiples of a power of two, and of the products of both.
#[derive(Default)]
struct Whole {
    times: Vec<i64>,
    of_times: Vec<(i64, i64)>,
    of_values: Vec<(i128, i128)>,
    /// How many bits the values have, and by what they are multiplied once they are added up.
    bits: u32,
    unit: f64,
}

/// So many values, and so many seconds from the first to the last, each a power of two: what is summed up of times fits 64
/// bits then, and the sums are 4 MiB at most.
const LEN_BITS: u32 = 16;
const SPAN_BITS: u32 = 20;

/// What a double has.
const DIGITS: u32 = f64::MANTISSA_DIGITS;

impl Whole {
    /// False where they are no such times and values.
    fn set(&mut self, times: &[i64], values: &[f64]) -> bool {
        if times != self.times && !self.set_times(times) {
            return false;
        }
        let Some((bits, unit)) = grain(values) else { return false };
        (self.bits, self.unit) = (bits, unit);
        self.of_values.clear();
        let (mut sum, mut product) = (0, 0);
        self.of_values.push((sum, product));
        for (value, time) in values.iter().zip(times) {
            let value = i128::from(integer(value / unit));
            sum += value;
            product += value * i128::from((time - times[0]) / 1000);
            self.of_values.push((sum, product));
        }
        true
    }

    fn set_times(&mut self, times: &[i64]) -> bool {
        self.times.clear();
        let Some(first) = times.first() else { return false };
        let from_first = |time: &i64| time.checked_sub(*first).filter(|apart| apart % 1000 == 0);
        let is_whole =
            times.iter().all(|time| from_first(time).is_some_and(|apart| apart >> SPAN_BITS < 1000));
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

    /// What the values of a window add up to.
    #[expect(clippy::cast_precision_loss, reason = "rounded once, as upstream's sum is in the end")]
    fn sum(&self, Frame { from, to }: Frame) -> f64 {
        (self.of_values[to].0 - self.of_values[from].0) as f64 * self.unit
    }

    /// The line of a window; none where times are no whole seconds from its zero, or a product would be rounded.
    #[expect(clippy::cast_precision_loss, reason = "rounded once, as upstream's sums are in the end")]
    fn line(&self, place: &Place) -> Option<FittedLine> {
        let Frame { from, to } = place.frame;
        // A time is this much further from the line's zero than from the first one.
        let further_ms = self.times[0].checked_sub(place.origin_ms).filter(|further| further % 1000 == 0)?;
        let further = further_ms / 1000;
        let apart = |time: i64| (time - self.times[0]) / 1000 + further;
        let greatest = apart(self.times[from]).unsigned_abs().max(apart(self.times[to - 1]).unsigned_abs());
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
        let of_y = (self.sum(place.frame), (xy + i128::from(further) * y) as f64 * self.unit);
        Some(FittedLine::through(count(to - from), of_x, of_y.0, of_y.1))
    }
}

/// In how many bits all of these values are multiples of which power of two; none where that says nothing.
fn grain(values: &[f64]) -> Option<(u32, f64)> {
    let (highest, lowest) = simd_dispatch!(sums::bits(values))?;
    // The number of the bit of 1.
    const ONE: u64 = 1023 + 52;
    const FAR: u64 = 500;
    if lowest < ONE - FAR || highest > ONE + FAR {
        return None;
    }
    let bits = u32::try_from(highest - lowest + 1).ok()?;
    // Of what is no further away than that the exponent alone is the number.
    let unit = f64::from_bits((lowest - 52) << 52);
    (bits < DIGITS).then_some((bits, unit))
}

#[expect(clippy::cast_possible_truncation, reason = "an integer of at most 53 bits")]
fn integer(value: f64) -> i64 {
    value as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::abreast::tests::{any_frames, any_values};
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
        /// Whatever the samples and the windows are, each line is the one through its window alone, to the bit.
        #[test]
        fn lines_of_many_windows_are_those_of_each_alone(
            (values, times) in any_values().prop_flat_map(|values| {
                let len = values.len();
                (Just(values), any_times(len))
            }),
            windows in any_frames(),
            (zero, step_ms) in (prop_oneof![Just(0i64), -50_000..50_000i64], prop_oneof![Just(15_000i64), Just(60_000), 1..60_000i64]),
            from_first in any::<bool>(),
        ) {
            let frames = windows.over(values.len());
            let mut room = Room::default();
            // The second time with what is known of the first.
            for times in [times.clone(), times.iter().map(|time| time + 1).collect(), times] {
                let origin = |step: usize, first: i64| {
                    if from_first { first } else { zero + step_ms * i64::try_from(step).unwrap_or(0) }
                };
                let of = |_: usize, line: FittedLine| line.slope() + line.at(3.0);
                let mut row = vec![0.5; frames.all().len()];
                let done = fill(&mut room, &frames, (&times, &values), (origin, of), &mut row, &mut || Ok(()));
                prop_assert!(done.is_ok());
                if matches!(done, Ok(false)) {
                    continue;
                }
                for ((step, frame), found) in frames.all().iter().enumerate().zip(row) {
                    let samples = (&times[frame.from..frame.to], &values[frame.from..frame.to]);
                    let alone = samples.0.first().and_then(|first| least_squares(samples.0, samples.1, origin(step, *first)));
                    let alone = alone.map_or(0.5, |line| of(step, line));
                    prop_assert_eq!(found.to_bits(), alone.to_bits(), "step {}: {} for {}", step, found, alone);
                }
            }
        }
    }
}
