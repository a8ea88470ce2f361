//! Columns of integers: predicted from what came before, the errors of the prediction packed.
//!
//! All arithmetic wraps at 64 bits, so that any integers come back. With x the column, g a factor that divides every
//! x - first, and q = (x - first) / g:
//! ```text
//! zigzag varint first
//! varint g, if FACTOR is set (else 1)
//! for a second integer and more:
//!   zigzag varint centre c
//!   varint step s, for order 3 alone
//!   errors r, one for each integer but the first:
//!     order 0 level       r = q - c
//!     order 1 difference  r = q - q before - c
//!     order 2 change      r = (q - q before) - (the difference before it; c before the first)
//!     order 3 grid        r = q - c - s x index
//!   SPARSE set    varint count of those that are not 0 (at most 128), and if there are any: a mini of their distances
//!                 (index - index before - 1, the first's from the start), a mini of zigzag(r) - 1; minis as in `pack`
//!   else          zigzag(r), 128 to a mini, fewer in the last one
//! ```

use super::pack::{MINI, bits, put_list, put_mini, take_mini};
use crate::tsdb::bytes::{Reader, put_varint, put_zigzag, unzigzag, zigzag};
use crate::tsdb::error::Damage;

use super::BLOCK_SAMPLES;

/// Flags of a column: the order in the low two bits.
pub(super) const SPARSE: u8 = 4;
pub(super) const FACTOR: u8 = 8;
/// Bits that flags take.
pub(super) const FLAG_BITS: u8 = 15;

const LEVEL: u8 = 0;
const DIFFERENCE: u8 = 1;
const CHANGE: u8 = 2;
const GRID: u8 = 3;

/// How many of so many errors are looked at for their centre while a prediction is chosen: more take more time in short
/// blocks than they save bytes. Of the one that is chosen all are.
const fn looked_at(errors: usize) -> usize {
    if errors > 128 { 64 } else { 16 }
}

/// How a column will be written.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) flags: u8,
    first: i64,
    factor: u64,
    centre: i64,
    step: u64,
    errors: Vec<u64>,
    /// Bits, about.
    pub(super) cost: u64,
}

/// Memory that one column after the other is planned in.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    q: Vec<i64>,
    raw: Vec<i64>,
    chosen: Vec<i64>,
    /// Of plans that are done with.
    errors: Vec<Vec<u64>>,
}

impl Scratch {
    /// Takes the memory of a plan back.
    pub(super) fn recycle(&mut self, plan: Plan) {
        // Three plans at a time at most.
        if self.errors.len() < 3 {
            self.errors.push(plan.errors);
        }
    }
}

/// The integers as multiples of their greatest common factor.
fn reduced(column: &[i64], q: &mut Vec<i64>) -> (i64, u64) {
    let first = column.first().copied().unwrap_or_default();
    let mut factor = 0u64;
    for x in column {
        let apart = x.wrapping_sub(first).unsigned_abs();
        if factor == 0 {
            factor = apart;
        } else if !divides(factor, apart) {
            factor = common(factor, apart);
            if factor == 1 {
                break;
            }
        }
    }
    // A greater one is no positive i64, or leaves numbers that are small anyway.
    let factor = if factor > 1 << 62 { 1 } else { factor.max(1) };
    let divisor = factor.cast_signed();
    q.clear();
    if factor.is_power_of_two() {
        q.extend(column.iter().map(|x| x.wrapping_sub(first) >> factor.trailing_zeros()));
    } else {
        q.extend(column.iter().map(|x| x.wrapping_sub(first) / divisor));
    }
    (first, factor)
}

const fn divides(factor: u64, number: u64) -> bool {
    // Powers of two are the usual factors, and need no division.
    if factor.is_power_of_two() { number & (factor - 1) == 0 } else { number.is_multiple_of(factor) }
}

const fn common(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The differences from one integer to the next: the errors of two orders before a centre is taken off.
fn differences(q: &[i64], errors: &mut Vec<i64>) {
    errors.clear();
    errors.extend(q.iter().zip(q.get(1..).unwrap_or_default()).map(|(a, b)| b.wrapping_sub(*a)));
}

/// The errors of a grid before a centre is taken off.
fn off_grid(q: &[i64], step: u64, errors: &mut Vec<i64>) {
    errors.clear();
    let mut grid = 0i64;
    errors.extend(q.iter().skip(1).map(|x| {
        grid = grid.wrapping_add(step.cast_signed());
        x.wrapping_sub(grid)
    }));
}

/// The middle one of at most so many, evenly chosen; 0 where that is common anyway.
fn centre_of(errors: &[i64], most: usize, chosen: &mut Vec<i64>) -> i64 {
    let stride = errors.len().div_ceil(most).max(1);
    chosen.clear();
    if stride == 1 {
        chosen.extend_from_slice(errors);
    } else {
        chosen.extend(errors.iter().step_by(stride));
    }
    if chosen.iter().filter(|error| **error == 0).count() * 8 > chosen.len() || chosen.is_empty() {
        return 0;
    }
    let middle = chosen.len() / 2;
    *chosen.select_nth_unstable(middle).1
}

/// Gives the errors as small numbers to `each`, in order.
#[inline]
fn fold_each(raw: &[i64], order: u8, centre: i64, mut each: impl FnMut(u64)) {
    if order == CHANGE {
        let mut before = centre;
        for difference in raw {
            each(zigzag(difference.wrapping_sub(before)));
            before = *difference;
        }
    } else {
        for error in raw {
            each(zigzag(error.wrapping_sub(centre)));
        }
    }
}

/// Bits that the errors take, about.
fn cost_of(raw: &[i64], order: u8, centre: i64) -> u64 {
    let mut cost = raw.len() as u64;
    fold_each(raw, order, centre, |error| cost += u64::from(bits(error)));
    cost
}

/// The best prediction so far.
struct Choice {
    cost: u64,
    order: u8,
    step: u64,
    centre: i64,
}

impl Choice {
    fn offer(&mut self, raw: &[i64], order: u8, step: u64, chosen: &mut Vec<i64>) {
        let centre =
            if order == CHANGE { first_of(raw) } else { centre_of(raw, looked_at(raw.len()), chosen) };
        let cost = cost_of(raw, order, centre);
        if cost < self.cost {
            *self = Choice { cost, order, step, centre };
        }
    }
}

/// Chooses the prediction for a column of at least one integer; `grids`: also try regular ones.
pub(super) fn plan(scratch: &mut Scratch, column: &[i64], grids: bool) -> Plan {
    let Scratch { q, raw, chosen, errors } = scratch;
    let (first, factor) = reduced(column, q);
    differences(q, raw);
    let level = q.get(1..).unwrap_or_default();
    let mut best = Choice { cost: u64::MAX, order: LEVEL, step: 0, centre: 0 };
    for (order, raw) in [(LEVEL, level), (DIFFERENCE, raw.as_slice()), (CHANGE, raw.as_slice())] {
        best.offer(raw, order, 0, chosen);
        if best.cost == raw.len() as u64 {
            // All as predicted: nothing is better.
            break;
        }
    }
    if grids && best.cost > level.len() as u64 {
        for step in steps(q) {
            off_grid(q, step, raw);
            best.offer(raw, GRID, step, chosen);
        }
        match best.order {
            GRID => off_grid(q, best.step, raw),
            _ => differences(q, raw),
        }
    }
    let Choice { cost, order, step, mut centre } = best;
    let raw = if order == LEVEL { level } else { raw.as_slice() };
    if order != CHANGE && raw.len() > looked_at(raw.len()) {
        centre = centre_of(raw, BLOCK_SAMPLES, chosen);
    }
    let mut errors = errors.pop().unwrap_or_default();
    errors.clear();
    fold_each(raw, order, centre, |error| errors.push(error));
    let odd = errors.iter().filter(|error| **error != 0).count();
    let sparse = if odd * 10 < errors.len() && odd <= MINI { SPARSE } else { 0 };
    let flags = order | sparse | if factor == 1 { 0 } else { FACTOR };
    Plan { flags, first, factor, centre, step, errors, cost }
}

/// Steps that a regular sender may have meant: the mean one, and round numbers next to it.
fn steps(q: &[i64]) -> Vec<u64> {
    let last = q.last().copied().unwrap_or_default();
    let count = i64::try_from(q.len()).unwrap_or(i64::MAX).saturating_sub(1).max(1);
    let mean = last / count;
    let near = |round: i64| mean.saturating_add(round / 2) / round * round;
    [1, 10, 100, 500, 1_000].map(near).into_iter().filter(|step| *step > 0).map(i64::cast_unsigned).collect()
}

fn first_of(raw: &[i64]) -> i64 {
    raw.first().copied().unwrap_or_default()
}

impl Plan {
    /// Appends the column; the flags are the caller's to write.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_zigzag(out, self.first);
        if self.flags & FACTOR != 0 {
            put_varint(out, self.factor);
        }
        if self.errors.is_empty() {
            return;
        }
        put_zigzag(out, self.centre);
        if self.flags & 3 == GRID {
            put_varint(out, self.step);
        }
        if self.flags & SPARSE == 0 {
            return put_list(out, &self.errors);
        }
        let (mut gaps, mut odd) = (Vec::new(), Vec::new());
        let mut next = 0;
        for (place, error) in (0u64..).zip(&self.errors) {
            if *error != 0 {
                gaps.push(place - next);
                odd.push(error - 1);
                next = place + 1;
            }
        }
        put_varint(out, gaps.len() as u64);
        if !gaps.is_empty() {
            put_mini(out, &gaps);
            put_mini(out, &odd);
        }
    }
}

/// Where a column stands: the integer before, and the difference before where the order asks for it.
struct Prediction {
    order: u8,
    factor: i64,
    centre: i64,
    step: i64,
    x: i64,
    difference: i64,
}

impl Prediction {
    /// An error as the distance that it stands for.
    #[inline]
    const fn distance(&self, error: u64) -> u64 {
        unzigzag(error).wrapping_mul(self.factor).cast_unsigned()
    }

    /// Makes distances of errors.
    #[inline]
    fn unfold(&self, slots: &mut [u64]) {
        // Most factors are 1, and a multiplication of 64 bits is not free.
        if self.factor == 1 {
            for slot in slots {
                *slot = unzigzag(*slot).cast_unsigned();
            }
        } else {
            for slot in slots {
                *slot = self.distance(*slot);
            }
        }
    }

    /// Makes integers of distances.
    #[inline]
    fn apply(&mut self, slots: &mut [u64]) {
        match self.order {
            LEVEL => {
                for slot in slots {
                    *slot = slot.wrapping_add(self.centre.cast_unsigned());
                }
            }
            DIFFERENCE => {
                let mut x = self.x;
                for slot in slots {
                    x = x.wrapping_add(self.centre.wrapping_add(slot.cast_signed()));
                    *slot = x.cast_unsigned();
                }
                self.x = x;
            }
            CHANGE => {
                for slot in slots {
                    self.difference = self.difference.wrapping_add(slot.cast_signed());
                    self.x = self.x.wrapping_add(self.difference);
                    *slot = self.x.cast_unsigned();
                }
            }
            _ => {
                for slot in slots {
                    self.x = self.x.wrapping_add(self.step);
                    *slot = self.x.wrapping_add(slot.cast_signed()).cast_unsigned();
                }
            }
        }
    }
}

/// What of a column is to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) flags: u8,
    /// Integers of the column, 1 to 1,024.
    pub(super) count: usize,
    /// The first so many are asked for.
    pub(super) wanted: usize,
}

/// Reads a column and gives its integers, as bit patterns, to `each` in order: those that are wanted, and perhaps some
/// more. Answers the difference that all of them keep, if the column says that they do.
#[inline]
pub(super) fn take(
    reader: &mut Reader<'_>,
    Reading { flags, count, wanted }: Reading,
    mut each: impl FnMut(&[u64]),
) -> Result<Option<i64>, Damage> {
    let first = reader.zigzag()?;
    let factor = if flags & FACTOR == 0 { 1 } else { reader.varint()?.cast_signed() };
    each(&[first.cast_unsigned()]);
    if count < 2 {
        return Ok(None);
    }
    let centre = reader.zigzag()?.wrapping_mul(factor);
    let order = flags & 3;
    let step = if order == GRID { reader.varint()?.cast_signed().wrapping_mul(factor) } else { 0 };
    let mut prediction = Prediction { order, factor, centre, step, x: first, difference: centre };
    match order {
        LEVEL => prediction.centre = first.wrapping_add(centre),
        GRID => prediction.x = first.wrapping_add(centre),
        _ => {}
    }
    // Numbers of the minis to come, and how few may be left of them at the end.
    let mut left = count - 1;
    let enough = count.saturating_sub(wanted.max(1));
    let mut slots = [0; MINI];
    if flags & SPARSE == 0 {
        while left > enough {
            let mini = slots.get_mut(..left.min(MINI)).unwrap_or_default();
            take_mini(reader, mini)?;
            prediction.unfold(mini);
            prediction.apply(mini);
            each(mini);
            left -= mini.len();
        }
        return Ok(None);
    }
    let errors = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    if errors == 0 && order == DIFFERENCE {
        let mut x = first;
        while left > enough {
            let mini = slots.get_mut(..left.min(MINI)).unwrap_or_default();
            for slot in mini.iter_mut() {
                x = x.wrapping_add(centre);
                *slot = x.cast_unsigned();
            }
            each(mini);
            left -= mini.len();
        }
        return Ok(Some(centre));
    }
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
    while left > enough {
        let mini = slots.get_mut(..left.min(MINI)).unwrap_or_default();
        mini.fill(0);
        while let (Some((_, error)), Some(slot)) =
            (ahead, usize::try_from(until).ok().and_then(|until| mini.get_mut(until)))
        {
            *slot = prediction.distance(error.wrapping_add(1));
            let at = until + 1;
            ahead = errors.next();
            until = ahead.map_or(u64::MAX, |ahead| at.saturating_add(*ahead.0));
        }
        until = until.saturating_sub(mini.len() as u64);
        prediction.apply(mini);
        each(mini);
        left -= mini.len();
    }
    if ahead.is_some() && left == 0 {
        return Err(reader.damage("an error beyond the integers"));
    }
    Ok(None)
}
