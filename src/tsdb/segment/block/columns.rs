//! Reads columns of integers, which [`super::integers`] draws and writes.
//!
//! Nearly all integers that stand for doubles are below 2^52 and near the one before: the sums of their distances are 32-bit
//! integers, several of which become doubles at a time, none of them ever rounded.

use super::integers::{CHANGE, DIFFERENCE, FACTOR, GRID, LEVEL, SPARSE};
use super::pack::MINI;
use super::unpack::{Narrow, take_first, take_mini, take_mini_as, take_narrow};
use crate::simd::simd_dispatch;
use crate::tsdb::codec::{Reader, unzigzag};
use crate::tsdb::error::Damage;

/// Takes the integers of a column that are asked for, in order.
pub(super) trait Sink {
    /// Whether [`Sink::near`] may be called.
    const FLOATS: bool = false;

    /// The next integers, as bit patterns.
    fn put(&mut self, column: &[u64]);

    /// The next integers, each `step` after the one before, from `first` on.
    fn run(&mut self, first: i64, step: i64, count: usize) {
        run(self, first, step, count);
    }

    /// The next integers: base + factor x offset, all of them, and all on the way, exact as doubles.
    fn near(&mut self, _offsets: &[i32], _base: f64, _factor: f64) {}
}

/// As [`Sink::run`], by [`Sink::put`] alone.
pub(super) fn run<S: Sink + ?Sized>(sink: &mut S, first: i64, step: i64, count: usize) {
    let mut slots = [0; MINI];
    let mut x = first;
    for at in (0..count).step_by(MINI) {
        let mini = slots.get_mut(..(count - at).min(MINI)).unwrap_or_default();
        for slot in &mut *mini {
            *slot = x.cast_unsigned();
            x = x.wrapping_add(step);
        }
        sink.put(mini);
    }
}

impl<F: FnMut(&[u64])> Sink for F {
    fn put(&mut self, column: &[u64]) {
        self(column);
    }
}

/// Where a column stands: the integer before, and the difference before where the order asks for it.
struct Prediction {
    order: u8,
    factor: i64,
    /// Added to each error.
    centre: i64,
    step: i64,
    x: i64,
    difference: i64,
    /// What is added to each error before the factor, or would be.
    shift: i64,
}

impl Prediction {
    /// At the first integer of a column.
    fn new(order: u8, factor: i64, first: i64, (shift, step): (i64, i64)) -> Prediction {
        let centre = shift.wrapping_mul(factor);
        let mut prediction = Prediction { order, factor, centre, step, x: first, difference: 0, shift };
        match order {
            LEVEL => prediction.centre = first.wrapping_add(centre),
            DIFFERENCE => {}
            CHANGE => (prediction.centre, prediction.difference) = (0, centre),
            _ => (prediction.centre, prediction.x) = (0, first.wrapping_add(centre)),
        }
        prediction
    }

    /// The next integers as doubles, if they are some.
    #[inline]
    fn near(&self) -> Option<Near> {
        match self.order {
            LEVEL => Near::new(self.centre, self.factor, 0),
            DIFFERENCE => Near::new(self.x, self.factor, self.shift),
            _ => None,
        }
    }

    /// Gives the integers of so many errors at a place, but for those before `from`.
    #[inline(always)]
    fn give(
        &mut self,
        near: Near,
        errors: &Narrow,
        count: usize,
        (at, from): (usize, usize),
        sink: &mut impl Sink,
    ) {
        let mut offsets = [0; MINI];
        for (offset, error) in offsets.iter_mut().zip(errors) {
            *offset = ((error >> 1).cast_signed() ^ -((error & 1).cast_signed())).wrapping_add(near.centre);
        }
        let offsets = offsets.get_mut(..count).unwrap_or_default();
        let is_level = self.order == LEVEL;
        if !is_level {
            sum_up(offsets);
        }
        #[expect(clippy::cast_precision_loss, reason = "2^52 at most")]
        let base = near.base as f64;
        let wanted = offsets.get(from.saturating_sub(at).min(count)..).unwrap_or_default();
        sink.near(wanted, base, f64::from(near.factor));
        if !is_level {
            let sum = offsets.last().copied().unwrap_or_default();
            self.x = near.base.wrapping_add(i64::from(near.factor) * i64::from(sum));
        }
    }

    /// An error as the distance that it stands for.
    #[inline]
    const fn distance(&self, error: u64) -> u64 {
        unzigzag(error).wrapping_mul(self.factor).wrapping_add(self.centre).cast_unsigned()
    }

    /// Makes integers of distances.
    #[inline]
    fn apply(&mut self, slots: &mut [u64]) {
        match self.order {
            LEVEL => {}
            DIFFERENCE => self.x = sums(self.x.cast_unsigned(), slots).cast_signed(),
            CHANGE => {
                self.difference = sums(self.difference.cast_unsigned(), slots).cast_signed();
                self.x = sums(self.x.cast_unsigned(), slots).cast_signed();
            }
            _ => {
                for slot in slots {
                    self.x = self.x.wrapping_add(self.step);
                    *slot = self.x.wrapping_add(slot.cast_signed()).cast_unsigned();
                }
            }
        }
    }

    /// Passes so many integers by, the sum of whose distances is this.
    const fn pass(&mut self, count: i64, sum: u64) {
        match self.order {
            DIFFERENCE => self.x = self.x.wrapping_add(sum.cast_signed()),
            GRID => self.x = self.x.wrapping_add(self.step.wrapping_mul(count)),
            _ => {}
        }
    }
}

/// Makes sums of all numbers up to each, and of what was before; answers the last.
#[inline]
fn sums(mut sum: u64, slots: &mut [u64]) -> u64 {
    // Four at a time wait for one addition only.
    let (fours, rest) = slots.as_chunks_mut::<4>();
    for [a, b, c, d] in fours {
        let ab = a.wrapping_add(*b);
        let abc = ab.wrapping_add(*c);
        let abcd = ab.wrapping_add(c.wrapping_add(*d));
        *a = a.wrapping_add(sum);
        *b = ab.wrapping_add(sum);
        *c = abc.wrapping_add(sum);
        sum = abcd.wrapping_add(sum);
        *d = sum;
    }
    for slot in rest {
        sum = sum.wrapping_add(*slot);
        *slot = sum;
    }
    sum
}

/// Integers that are doubles at every step: base + factor x offset.
#[derive(Clone, Copy)]
struct Near {
    /// The integer before, or the level.
    base: i64,
    factor: u32,
    /// Added to each error.
    centre: i32,
}

impl Near {
    /// If doubles are exact: distances are below 2^24, so 128 of them below 2^31, and with the factor below 2^51, which with
    /// the base is less than 2^53.
    fn new(base: i64, factor: i64, centre: i64) -> Option<Near> {
        const FACTOR_MAX: u32 = 1 << 20;
        const CENTRE_END: u64 = 1 << 23;
        const BASE_MAX: u64 = 1 << 52;
        let factor = u32::try_from(factor).ok().filter(|factor| (1..=FACTOR_MAX).contains(factor))?;
        let fits = centre.unsigned_abs() < CENTRE_END && base.unsigned_abs() <= BASE_MAX;
        Some(Near { base, factor, centre: i32::try_from(centre).ok().filter(|_| fits)? })
    }
}

/// Makes each number the sum of all up to it.
#[inline(always)]
fn sum_up(offsets: &mut [i32]) {
    // One addition waits for the other, which is no longer than four side by side and putting those together took.
    let mut sum = 0i32;
    for offset in offsets {
        sum = sum.wrapping_add(*offset);
        *offset = sum;
    }
}

/// What of a column is to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) flags: u8,
    /// Integers of the column, 1 to 1,024.
    pub(super) count: usize,
    /// The places of those that are asked for.
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Reading {
    pub(super) const fn whole(flags: u8, count: usize) -> Reading {
        Reading { flags, count, from: 0, to: count }
    }

    /// Those that are asked for of a mini that begins at a place.
    fn of(self, mini: &[u64], at: usize) -> &[u64] {
        let end = self.to.saturating_sub(at).min(mini.len());
        mini.get(self.from.saturating_sub(at).min(end)..end).unwrap_or_default()
    }
}

/// Reads a column and gives the integers that are asked for to the sink in order; those behind them are not read. Answers
/// the difference that all of them keep, if the column says that they do.
#[inline]
pub(super) fn take<S: Sink>(
    reader: &mut Reader<'_>,
    reading: Reading,
    mut sink: S,
) -> Result<Option<i64>, Damage> {
    let Reading { flags, count, from, to } = reading;
    let first = reader.zigzag()?;
    let factor = if flags & FACTOR == 0 { 1 } else { reader.varint()?.cast_signed() };
    sink.put(reading.of(&[first.cast_unsigned()], 0));
    if count < 2 {
        return Ok(None);
    }
    let centre = reader.zigzag()?;
    let order = flags & 3;
    let step = if order == GRID { reader.varint()?.cast_signed().wrapping_mul(factor) } else { 0 };
    let mut prediction = Prediction::new(order, factor, first, (centre, step));
    if flags & SPARSE != 0 {
        return take_sparse(reader, reading, prediction, sink);
    }
    let mut at = 1;
    let mut narrow = [0; MINI];
    while at < to {
        let (numbers, needed) = ((count - at).min(MINI), to - at);
        let wanted = numbers.min(needed);
        if S::FLOATS
            && let Some(near) = prediction.near()
            && take_narrow(reader, numbers, wanted, &mut narrow)?
        {
            simd_dispatch!(prediction.give(near, &narrow, wanted, (at, from), &mut sink));
        } else {
            take_wide(reader, reading, (at, numbers), &mut prediction, &mut sink)?;
        }
        at += wanted;
    }
    Ok(None)
}

/// Reads a mini of so many numbers at a place of a column, whatever the integers are.
fn take_wide(
    reader: &mut Reader<'_>,
    reading: Reading,
    (at, numbers): (usize, usize),
    prediction: &mut Prediction,
    sink: &mut impl Sink,
) -> Result<(), Damage> {
    let needed = reading.to - at;
    let mut slots = [0; MINI];
    let mini = slots.get_mut(..numbers.min(needed)).unwrap_or_default();
    // Most factors are 1, and a multiplication of 64 bits is not free.
    if needed < numbers {
        take_first(reader, numbers, mini)?;
        for slot in &mut *mini {
            *slot = prediction.distance(*slot);
        }
    } else if prediction.factor == 1 {
        let centre = prediction.centre;
        take_mini_as(reader, mini, |error| unzigzag(error).wrapping_add(centre).cast_unsigned())?;
    } else {
        take_mini_as(reader, mini, |error| prediction.distance(error))?;
    }
    prediction.apply(mini);
    sink.put(reading.of(mini, at));
    Ok(())
}

/// As [`take`], of a sparse column whose first integer is taken already.
fn take_sparse<S: Sink>(
    reader: &mut Reader<'_>,
    reading: Reading,
    mut prediction: Prediction,
    mut sink: S,
) -> Result<Option<i64>, Damage> {
    let Reading { count, from, to, .. } = reading;
    let Prediction { order, centre, x: first, .. } = prediction;
    let mut at = 1;
    let errors = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    if errors == 0 && order == DIFFERENCE {
        // The first integer was given already.
        let from = from.max(1);
        let ahead = i64::try_from(from).unwrap_or_default();
        sink.run(first.wrapping_add(centre.wrapping_mul(ahead)), centre, to.saturating_sub(from));
        return Ok(Some(centre));
    }
    let mut slots = [0; MINI];
    let (mut gaps, mut odd) = ([0; MINI], [0; MINI]);
    let (Some(gaps), Some(odd)) = (gaps.get_mut(..errors), odd.get_mut(..errors)) else {
        return Err(reader.damage("over 128 errors in a sparse column"));
    };
    if errors > 0 {
        take_mini(reader, gaps)?;
        take_mini(reader, odd)?;
    }
    let mut errors = gaps.iter().zip(odd.iter());
    // Integers up to the next error.
    let mut ahead = errors.next();
    let mut until = ahead.map_or(u64::MAX, |ahead| *ahead.0);
    while at < to {
        let mini = slots.get_mut(..(count - at).min(MINI)).unwrap_or_default();
        // Where each integer rests on nothing but the sum of the errors before it, those that nobody asks for are not made.
        let passed = at + mini.len() <= from && order != CHANGE;
        let usual = prediction.distance(0);
        let mut sum = usual.wrapping_mul(mini.len() as u64);
        if !passed {
            mini.fill(usual);
        }
        while let (Some((_, error)), Some(slot)) =
            (ahead, usize::try_from(until).ok().and_then(|until| mini.get_mut(until)))
        {
            *slot = prediction.distance(error.wrapping_add(1));
            sum = sum.wrapping_add(*slot).wrapping_sub(usual);
            let at = until + 1;
            ahead = errors.next();
            until = ahead.map_or(u64::MAX, |ahead| at.saturating_add(*ahead.0));
        }
        until = until.saturating_sub(mini.len() as u64);
        if passed {
            prediction.pass(i64::try_from(mini.len()).unwrap_or_default(), sum);
        } else {
            prediction.apply(mini);
            sink.put(reading.of(mini, at));
        }
        at += mini.len();
    }
    if ahead.is_some() && at >= count {
        return Err(reader.damage("an error beyond the integers"));
    }
    Ok(None)
}
