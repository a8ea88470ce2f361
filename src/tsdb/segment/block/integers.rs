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
//!   SPARSE set    varint count of those that are not 0, list of their distances (index - index before - 1, the first's
//!                 from the start), list of zigzag(r) - 1; lists as in `pack`
//!   else          list of zigzag(r)
//! ```

use super::pack::{bits, put_list, take_list};
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

/// The integers as multiples of their greatest common factor.
fn reduced(column: &[i64]) -> (i64, u64, Vec<i64>) {
    let first = column.first().copied().unwrap_or_default();
    let mut factor = 0u64;
    for x in column {
        let apart = x.wrapping_sub(first).unsigned_abs();
        if factor == 0 {
            factor = apart;
        } else if apart % factor != 0 {
            factor = common(factor, apart);
            if factor == 1 {
                break;
            }
        }
    }
    // 2^63 is no factor of an i64; its half is.
    let factor = factor.clamp(1, 1 << 62);
    let divisor = factor.cast_signed();
    let q = if factor == 1 {
        column.iter().map(|x| x.wrapping_sub(first)).collect()
    } else {
        column.iter().map(|x| x.wrapping_sub(first) / divisor).collect()
    };
    (first, factor, q)
}

const fn common(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The errors before a centre is taken off them.
fn raw_errors(q: &[i64], order: u8, step: u64, errors: &mut Vec<i64>) {
    errors.clear();
    let pairs = q.iter().zip(q.iter().skip(1));
    match order {
        LEVEL => errors.extend(q.iter().skip(1)),
        GRID => {
            let mut grid = 0i64;
            errors.extend(q.iter().skip(1).map(|x| {
                grid = grid.wrapping_add(step.cast_signed());
                x.wrapping_sub(grid)
            }));
        }
        _ => errors.extend(pairs.map(|(a, b)| b.wrapping_sub(*a))),
    }
}

/// The middle one of at most so many, evenly chosen; 0 where that is common anyway.
fn centre_of(errors: &[i64], most: usize) -> i64 {
    let stride = errors.len().div_ceil(most).max(1);
    let mut chosen: Vec<i64> = errors.iter().step_by(stride).copied().collect();
    if chosen.iter().filter(|error| **error == 0).count() * 8 > chosen.len() || chosen.is_empty() {
        return 0;
    }
    let middle = chosen.len() / 2;
    *chosen.select_nth_unstable(middle).1
}

/// Errors as small numbers.
fn folded(raw: &[i64], order: u8, centre: i64, out: &mut Vec<u64>) {
    out.clear();
    if order == CHANGE {
        let mut before = centre;
        out.extend(raw.iter().map(|difference| {
            let error = difference.wrapping_sub(before);
            before = *difference;
            zigzag(error)
        }));
    } else {
        out.extend(raw.iter().map(|error| zigzag(error.wrapping_sub(centre))));
    }
}

fn cost_of(errors: &[u64]) -> u64 {
    errors.iter().map(|error| u64::from(bits(*error)) + 1).sum()
}

/// Chooses the prediction for a column of at least one integer; `grids`: also try regular ones.
pub(super) fn plan(column: &[i64], grids: bool) -> Plan {
    let (first, factor, q) = reduced(column);
    let (mut raw, mut errors) = (Vec::with_capacity(q.len()), Vec::with_capacity(q.len()));
    let mut best = (u64::MAX, LEVEL, 0);
    let orders = [(LEVEL, 0), (DIFFERENCE, 0), (CHANGE, 0)].into_iter();
    for (order, step) in
        orders.chain(if grids { steps(&q) } else { Vec::new() }.into_iter().map(|step| (GRID, step)))
    {
        raw_errors(&q, order, step, &mut raw);
        let centre = if order == CHANGE { first_of(&raw) } else { centre_of(&raw, 64) };
        folded(&raw, order, centre, &mut errors);
        let cost = cost_of(&errors);
        if cost < best.0 {
            best = (cost, order, step);
        }
    }
    let (cost, order, step) = best;
    raw_errors(&q, order, step, &mut raw);
    let centre = if order == CHANGE { first_of(&raw) } else { centre_of(&raw, BLOCK_SAMPLES) };
    folded(&raw, order, centre, &mut errors);
    let odd = errors.iter().filter(|error| **error != 0).count();
    let sparse = if odd * 10 < errors.len() { SPARSE } else { 0 };
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
        put_list(out, &gaps);
        put_list(out, &odd);
    }
}

/// Reads a column of the slots' length, integers as their bit patterns.
pub(super) fn take(reader: &mut Reader<'_>, flags: u8, slots: &mut [u64]) -> Result<(), Damage> {
    let first = reader.zigzag()?;
    let factor = if flags & FACTOR == 0 { 1 } else { reader.varint()?.cast_signed() };
    let Some((start, slots)) = slots.split_first_mut() else { return Ok(()) };
    *start = first.cast_unsigned();
    if slots.is_empty() {
        return Ok(());
    }
    let centre = reader.zigzag()?;
    let order = flags & 3;
    let step = if order == GRID { reader.varint()?.cast_signed() } else { 0 };
    if flags & SPARSE == 0 {
        take_list(reader, slots)?;
    } else {
        take_sparse(reader, slots)?;
    }
    let (centre, step) = (centre.wrapping_mul(factor), step.wrapping_mul(factor));
    let error = |slot: &u64| unzigzag(*slot).wrapping_mul(factor);
    match order {
        LEVEL => {
            let base = first.wrapping_add(centre);
            for slot in slots {
                *slot = base.wrapping_add(error(slot)).cast_unsigned();
            }
        }
        GRID => {
            let mut base = first.wrapping_add(centre);
            for slot in slots {
                base = base.wrapping_add(step);
                *slot = base.wrapping_add(error(slot)).cast_unsigned();
            }
        }
        DIFFERENCE => {
            let mut x = first;
            for slot in slots {
                x = x.wrapping_add(centre).wrapping_add(error(slot));
                *slot = x.cast_unsigned();
            }
        }
        _ => {
            let (mut x, mut difference) = (first, centre);
            for slot in slots {
                difference = difference.wrapping_add(error(slot));
                x = x.wrapping_add(difference);
                *slot = x.cast_unsigned();
            }
        }
    }
    Ok(())
}

fn take_sparse(reader: &mut Reader<'_>, slots: &mut [u64]) -> Result<(), Damage> {
    slots.fill(0);
    let count = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    if count == 0 {
        return Ok(());
    }
    let (mut gaps, mut odd) = ([0; BLOCK_SAMPLES], [0; BLOCK_SAMPLES]);
    let (Some(gaps), Some(odd)) = (gaps.get_mut(..count), odd.get_mut(..count)) else {
        return Err(reader.damage("more errors than integers"));
    };
    take_list(reader, gaps)?;
    take_list(reader, odd)?;
    let mut rest = slots.iter_mut();
    for (gap, odd) in gaps.iter().zip(odd) {
        let slot = usize::try_from(*gap).ok().and_then(|gap| rest.nth(gap));
        *slot.ok_or_else(|| reader.damage("an error beyond the integers"))? = odd.wrapping_add(1);
    }
    Ok(())
}
