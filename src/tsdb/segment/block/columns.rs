//! Decodes columns of integers; [`super::integers`] describes and encodes them.
//!
//! Nearly all integers that stand for doubles are below 2^52 and near the previous one. Their
//! distances sum up in 32 bits, and are converted to doubles in vectors without any rounding.

use super::integers::{CHANGE, DIFFERENCE, FACTOR, GRID, LEVEL, SPARSE};
use super::pack::MINI;
use super::unpack::{NarrowNumbers, take_first, take_mini, take_mini_as, take_narrow};
use crate::simd::simd_dispatch;
use crate::tsdb::codec::{Reader, unzigzag};
use crate::tsdb::error::Damage;

/// A receiver of the requested integers of a column, in order.
pub(super) trait IntegerSink {
    /// Whether [`IntegerSink::put_exact`] may be called.
    const FLOATS: bool = false;

    /// Takes the next integers, as bit patterns.
    fn put(&mut self, column: &[u64]);

    /// Takes the next `count` integers: `first`, `first + step`, and so on.
    fn run(&mut self, first: i64, step: i64, count: usize) {
        run(self, first, step, count);
    }

    /// Takes the next integers, which are `base + factor * offset`. They and all intermediate
    /// results are exact as doubles.
    fn put_exact(&mut self, _offsets: &[i32], _base: f64, _factor: f64) {}
}

/// Implements [`IntegerSink::run`] with [`IntegerSink::put`].
pub(super) fn run<S: IntegerSink + ?Sized>(sink: &mut S, first: i64, step: i64, count: usize) {
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

impl<F: FnMut(&[u64])> IntegerSink for F {
    fn put(&mut self, column: &[u64]) {
        self(column);
    }
}

/// The state of a predictor: the integer before, and for order `CHANGE` the difference before.
struct Prediction {
    order: u8,
    factor: i64,
    /// Added to each error.
    centre: i64,
    step: i64,
    x: i64,
    difference: i64,
    /// The stored centre, which is added to each error before the multiplication by `factor`.
    shift: i64,
}

impl Prediction {
    /// The state at the first integer of a column.
    fn new(order: u8, factor: i64, first: i64, shift: i64, step: i64) -> Prediction {
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

    /// Returns the base of the next integers, if they can be computed as doubles.
    #[inline]
    fn float_frame(&self) -> Option<FloatFrame> {
        match self.order {
            LEVEL => FloatFrame::new(self.centre, self.factor, 0),
            DIFFERENCE => FloatFrame::new(self.x, self.factor, self.shift),
            _ => None,
        }
    }

    /// Computes the integers of `count` errors, and passes all but the first `skipped` to the
    /// sink.
    #[inline(always)]
    fn emit(
        &mut self,
        frame: FloatFrame,
        errors: &NarrowNumbers,
        count: usize,
        skipped: usize,
        sink: &mut impl IntegerSink,
    ) {
        let mut offsets = [0; MINI];
        for (offset, error) in offsets.iter_mut().zip(errors) {
            *offset = ((error >> 1).cast_signed() ^ -((error & 1).cast_signed())).wrapping_add(frame.centre);
        }
        let offsets = offsets.get_mut(..count).unwrap_or_default();
        let is_level = self.order == LEVEL;
        if !is_level {
            sum_up(offsets);
        }
        #[expect(clippy::cast_precision_loss, reason = "2^52 at most")]
        let base = frame.base as f64;
        let wanted = offsets.get(skipped..).unwrap_or_default();
        sink.put_exact(wanted, base, f64::from(frame.factor));
        if !is_level {
            let sum = offsets.last().copied().unwrap_or_default();
            self.x = frame.base.wrapping_add(i64::from(frame.factor) * i64::from(sum));
        }
    }

    /// Converts an error to the distance that it stands for.
    #[inline]
    const fn distance(&self, error: u64) -> u64 {
        unzigzag(error).wrapping_mul(self.factor).wrapping_add(self.centre).cast_unsigned()
    }

    /// Converts distances to integers.
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

    /// Skips `count` integers, whose distances have this sum.
    const fn skip(&mut self, count: i64, sum: u64) {
        match self.order {
            DIFFERENCE => self.x = self.x.wrapping_add(sum.cast_signed()),
            GRID => self.x = self.x.wrapping_add(self.step.wrapping_mul(count)),
            _ => {}
        }
    }
}

/// Replaces each number with the sum of `sum` and all numbers up to it. Returns the last sum.
#[inline]
fn sums(mut sum: u64, slots: &mut [u64]) -> u64 {
    // Groups of four shorten the chain of dependent additions.
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

/// Integers that are computed as doubles: `base + factor * offset`.
#[derive(Clone, Copy)]
struct FloatFrame {
    /// The integer before, or the level.
    base: i64,
    factor: u32,
    /// Added to each error.
    centre: i32,
}

impl FloatFrame {
    /// `None` if doubles would not be exact. Distances are below 2^24, so the sum of 128 is below
    /// 2^31, below 2^51 with the factor, and below 2^53 with the base.
    fn new(base: i64, factor: i64, centre: i64) -> Option<FloatFrame> {
        const FACTOR_MAX: u32 = 1 << 20;
        const CENTRE_END: u64 = 1 << 23;
        const BASE_MAX: u64 = 1 << 52;
        let factor = u32::try_from(factor).ok().filter(|factor| (1..=FACTOR_MAX).contains(factor))?;
        let fits = centre.unsigned_abs() < CENTRE_END && base.unsigned_abs() <= BASE_MAX;
        Some(FloatFrame { base, factor, centre: i32::try_from(centre).ok().filter(|_| fits)? })
    }
}

/// Replaces each number with the sum of all up to it.
#[inline(always)]
fn sum_up(offsets: &mut [i32]) {
    // A plain chain of additions takes no longer than sums of four lanes that have to be combined.
    let mut sum = 0i32;
    for offset in offsets {
        sum = sum.wrapping_add(*offset);
        *offset = sum;
    }
}

/// The part of a column to decode.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnSlice {
    pub(super) flags: u8,
    /// Integers of the column, 1 to 1,024.
    pub(super) count: usize,
    /// The requested indexes, `to` exclusive.
    pub(super) from: usize,
    pub(super) to: usize,
}

impl ColumnSlice {
    /// All integers of a column of `count`.
    pub(super) const fn whole(flags: u8, count: usize) -> ColumnSlice {
        ColumnSlice { flags, count, from: 0, to: count }
    }

    /// Returns the requested numbers of a mini that begins at index `at`.
    fn of(self, mini: &[u64], at: usize) -> &[u64] {
        let end = self.to.saturating_sub(at).min(mini.len());
        mini.get(self.from.saturating_sub(at).min(end)..end).unwrap_or_default()
    }
}

/// Decodes a column and passes the requested integers to the sink in order. Integers behind them
/// are not decoded. Returns the common difference of all integers, if the column has one.
#[inline]
pub(super) fn take<S: IntegerSink>(
    reader: &mut Reader<'_>,
    slice: ColumnSlice,
    mut sink: S,
) -> Result<Option<i64>, Damage> {
    let ColumnSlice { flags, count, from, to } = slice;
    let first = reader.zigzag()?;
    let factor = if flags & FACTOR == 0 { 1 } else { reader.varint()?.cast_signed() };
    sink.put(slice.of(&[first.cast_unsigned()], 0));
    if count < 2 {
        return Ok(None);
    }
    let centre = reader.zigzag()?;
    let order = flags & 3;
    let step = if order == GRID { reader.varint()?.cast_signed().wrapping_mul(factor) } else { 0 };
    let mut prediction = Prediction::new(order, factor, first, centre, step);
    if flags & SPARSE != 0 {
        return take_sparse(reader, slice, prediction, sink);
    }
    let mut at = 1;
    let mut narrow = [0; MINI];
    while at < to {
        let (numbers, needed) = ((count - at).min(MINI), to - at);
        let wanted = numbers.min(needed);
        if S::FLOATS
            && let Some(frame) = prediction.float_frame()
            && take_narrow(reader, numbers, wanted, &mut narrow)?
        {
            let skipped = from.saturating_sub(at).min(wanted);
            simd_dispatch!(prediction.emit(frame, &narrow, wanted, skipped, &mut sink));
        } else {
            take_wide(reader, slice, at, numbers, &mut prediction, &mut sink)?;
        }
        at += wanted;
    }
    Ok(None)
}

/// Decodes a mini of `numbers` integers at index `at`, for any integers.
fn take_wide(
    reader: &mut Reader<'_>,
    slice: ColumnSlice,
    at: usize,
    numbers: usize,
    prediction: &mut Prediction,
    sink: &mut impl IntegerSink,
) -> Result<(), Damage> {
    let needed = slice.to - at;
    let mut slots = [0; MINI];
    let mini = slots.get_mut(..numbers.min(needed)).unwrap_or_default();
    // Most factors are 1, and a 64-bit multiplication takes time.
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
    sink.put(slice.of(mini, at));
    Ok(())
}

/// Decodes the rest of a sparse column as [`take`] does. The first integer has been decoded.
fn take_sparse<S: IntegerSink>(
    reader: &mut Reader<'_>,
    slice: ColumnSlice,
    mut prediction: Prediction,
    mut sink: S,
) -> Result<Option<i64>, Damage> {
    let ColumnSlice { count, from, to, .. } = slice;
    let Prediction { order, centre, x: first, .. } = prediction;
    let mut at = 1;
    let errors = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    if errors == 0 && order == DIFFERENCE {
        // The first integer has been passed to the sink already.
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
    // The number of integers before the next error.
    let mut ahead = errors.next();
    let mut until = ahead.map_or(u64::MAX, |ahead| *ahead.0);
    while at < to {
        let mini = slots.get_mut(..(count - at).min(MINI)).unwrap_or_default();
        // For other orders than `CHANGE`, an integer depends only on the sum of the distances
        // before it, so minis before the requested range are skipped.
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
            prediction.skip(i64::try_from(mini.len()).unwrap_or_default(), sum);
        } else {
            prediction.apply(mini);
            sink.put(slice.of(mini, at));
        }
        at += mini.len();
    }
    if ahead.is_some() && at >= count {
        return Err(reader.damage("an error beyond the integers"));
    }
    Ok(None)
}
