//! Bodies of value blocks.
//!
//! ```text
//! 0 u8 kind | flags of the column << 3 | ODD 0x80
//!   if ODD is set: varint count, for each varint (index - index before - 1; the first's from the start), 8 bytes of
//!   bit pattern: values that the column does not give
//!   kind 0 same      the bit pattern big-endian, without its low zero bytes, to the end of the body
//!   kind 1 whole     a column (see `integers`): value = x
//!   kind 2 decimal   u8 exponent e (0..=18), a column: value = x / 10^e
//!   kind 3 ordered   a column: bit pattern = x, its low 63 bits inverted where it is negative
//!   kind 4 few       u8 patterns - 1, each u8 kept bytes and those, big-endian; a column of places among them
//!   kind 5 raw       8 bytes each
//!   kind 6 backward  if 0x08 is set, and no other flag is: u32 crc of {u32 series id, u32 samples, head}, varint bytes of
//!                    the head, which ends with the first mini; then, the head to begin with, a body of kind 1 to 4 of
//!                    the same values from the last to the first, its column not sparse
//! ```
//! Odd are, in practice, the stale marker and other NaN, infinities and minus zero among decimals.
//!
//! Most questions are about the newest samples, and minis can only be read one after the other. So blocks of more than
//! one are written backward (since version 2): what is asked for is in the first mini, whose checksum stands for itself.
//! A sparse column is entered anywhere, whatever is its direction.

use std::ops::Range;

use super::columns::{self, Reading};
use super::integers::{self, FLAG_BITS, Plan};
use super::pack::MINI;
use super::target::{Scaled, Target};
use super::value_crc;
use crate::tsdb::codec::{Reader, put_varint, whole_bytes};
use crate::tsdb::error::Damage;

const SAME: u8 = 0;
const WHOLE: u8 = 1;
const DECIMAL: u8 = 2;
const ORDERED: u8 = 3;
const FEW: u8 = 4;
const RAW: u8 = 5;
const BACKWARD: u8 = 6;
/// Flag of kind 6: the first mini has a checksum of its own.
const CHECKED: u8 = 1 << 3;
/// Bodies from so many bytes on have one: it costs them 1 % at most.
const CHECKED_FROM: usize = 400;
const ODD: u8 = 0x80;

/// Different patterns that are still few.
const FEW_MAX: usize = 16;
/// Decimals that can be written: 10^18 is the last that fits an i64.
const EXPONENT_MAX: u8 = 18;
const POWERS: [f64; 19] =
    [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18];

/// The bit pattern as an integer that ascends with the value; its own inverse.
const fn ordered(pattern: i64) -> i64 {
    pattern ^ (pattern >> 63) & i64::MAX
}

/// The integer that gives the same bits back when divided, below 2^53 so that it is exact.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "bounded by 2^53 and checked bit for bit"
)]
fn scaled(pattern: u64, power: f64) -> Option<i64> {
    const BOUND: f64 = 9_007_199_254_740_992.0;
    let value = f64::from_bits(pattern);
    let wide = value * power;
    if !(-BOUND..=BOUND).contains(&wide) {
        return None;
    }
    let mantissa = (wide + 0.5f64.copysign(wide)) as i64;
    // What comes back by the division is within two roundings of it: most others are told without one.
    if (wide - mantissa as f64).abs() > wide.abs() * f64::EPSILON * 2.0 {
        return None;
    }
    ((mantissa as f64 / power).to_bits() == pattern).then_some(mantissa)
}

/// As [`scaled`] by one: without a division.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "saturates at worst, and is checked bit for bit"
)]
fn integer(pattern: u64) -> Option<i64> {
    const BOUND: i64 = 1 << 53;
    let x = f64::from_bits(pattern) as i64;
    ((-BOUND..=BOUND).contains(&x) && (x as f64).to_bits() == pattern).then_some(x)
}

/// Replaces `column` with the integers of all values, `up` having been done to them; answers whether all have one below 2^51
/// that gives the same bits back by `down`.
///
/// Without a branch, so that several are tried at a time. What is added rounds to an integer, which then are the low bits.
#[inline]
fn all_by(values: &[u64], column: &mut Vec<i64>, up: impl Fn(f64) -> f64, down: impl Fn(f64) -> f64) -> bool {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let mut wrong = 0;
    column.clear();
    column.extend(values.iter().map(|pattern| {
        let rounded = up(f64::from_bits(*pattern)) + ROUND;
        let back = down(rounded - ROUND).to_bits();
        // Another exponent: it was too large, infinite, or no number.
        wrong |= (back ^ pattern) | (rounded.to_bits() ^ ROUND.to_bits()) >> 52;
        rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed()
    }));
    wrong == 0
}

fn exponent_of(pattern: u64, from: u8) -> Option<u8> {
    let powers = (0..=EXPONENT_MAX).zip(POWERS).skip(usize::from(from));
    powers.into_iter().find(|(_, power)| scaled(pattern, *power).is_some()).map(|(exponent, _)| exponent)
}

/// Values as integers over a power of ten, but for the odd ones: {index, pattern}.
#[derive(Debug, Default)]
struct Decimals {
    exponent: u8,
    column: Vec<i64>,
    odd: Vec<(usize, u64)>,
}

/// Memory that one block after the other is encoded in.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    decimals: Decimals,
    column: Vec<i64>,
    few: Vec<i64>,
    integers: integers::Scratch,
}

impl Decimals {
    /// Takes values; answers whether they are decimals, mostly.
    fn set(&mut self, values: &[u64]) -> bool {
        // Sixteen values tell whether these are decimals at all.
        let stride = values.len().div_ceil(16).max(1);
        let tried = values.len().div_ceil(stride);
        let mut exponent = 0;
        let mut strange = 0;
        for pattern in values.iter().step_by(stride) {
            // Most have as many digits as those before.
            let known =
                POWERS.get(usize::from(exponent)).is_some_and(|power| scaled(*pattern, *power).is_some());
            if known {
                continue;
            }
            match exponent_of(*pattern, 0) {
                Some(least) => exponent = exponent.max(least),
                None => strange += 1,
            }
            if strange * 4 > tried {
                return false;
            }
        }
        loop {
            match self.take(values, exponent) {
                // An odd value takes some ten bytes; one digit more takes 0.4 bytes for each value.
                Some(higher) if self.odd.len() * 24 > values.len() => exponent = higher,
                _ => return self.odd.len() * 8 <= values.len() + 8,
            }
        }
    }

    /// Takes values as decimals of this exponent; answers a higher one that the first odd value that has one would need.
    fn take(&mut self, values: &[u64], exponent: u8) -> Option<u8> {
        let power = *POWERS.get(usize::from(exponent))?;
        let Decimals { column, odd, .. } = self;
        self.exponent = exponent;
        odd.clear();
        let all = if exponent == 0 {
            all_by(values, column, |value| value, |whole| whole)
        } else {
            all_by(values, column, |value| value * power, |whole| whole / power)
        };
        if all {
            return None;
        }
        column.clear();
        let mut before = None;
        let mut higher = None;
        for (index, pattern) in values.iter().enumerate() {
            let x = if exponent == 0 { integer(*pattern) } else { scaled(*pattern, power) };
            if let Some(x) = x {
                if before.is_none() {
                    // The odd ones at the start are predicted like this one.
                    column.fill(x);
                }
                before = Some(x);
            } else {
                odd.push((index, *pattern));
                higher = higher.or_else(|| exponent_of(*pattern, exponent + 1));
            }
            column.push(before.unwrap_or_default());
        }
        higher
    }
}

/// Appends the body of a block of a series, backward where that makes the newest values cheaper to read.
pub(super) fn put_block(out: &mut Vec<u8>, series: u32, values: &[u64], scratch: &mut Scratch) {
    let start = out.len();
    let Some(head) = put_body(out, values, true, scratch) else { return };
    let mut before = vec![BACKWARD];
    if out.len() - start >= CHECKED_FROM {
        let head = out.get(start..head).unwrap_or_default();
        before = vec![BACKWARD | CHECKED];
        before.extend_from_slice(&value_crc(series, values.len(), head).to_le_bytes());
        put_varint(&mut before, head.len() as u64);
    }
    out.splice(start..start, before);
}

/// Appends a body that is not backward.
pub(super) fn put(out: &mut Vec<u8>, values: &[u64], scratch: &mut Scratch) {
    put_body(out, values, false, scratch);
}

/// Appends a body; where it is written backward, which it may be if `turns`, answers where its first mini ends.
fn put_body(out: &mut Vec<u8>, values: &[u64], turns: bool, scratch: &mut Scratch) -> Option<usize> {
    let first = values.first()?;
    if values.iter().all(|value| value == first) {
        out.push(SAME);
        let kept = 8 - whole_bytes(first.trailing_zeros());
        out.extend(first.to_be_bytes().iter().take(usize::from(kept)));
        return None;
    }
    let start = out.len();
    let Scratch { decimals, column, few, integers } = scratch;
    let mut by_decimals = decimals.set(values).then(|| {
        let plan = integers::plan(integers, &decimals.column, false);
        let cost = plan.cost + 80 * decimals.odd.len() as u64;
        (plan, cost)
    });
    // Few digits are never beaten by the bits themselves.
    let certain = by_decimals.is_some() && decimals.exponent < 6 && decimals.odd.is_empty();
    let mut by_bits = (!certain).then(|| {
        column.clear();
        column.extend(values.iter().map(|pattern| ordered(pattern.cast_signed())));
        integers::plan(integers, column, false)
    });
    let bits_cost = by_bits.as_ref().map_or(u64::MAX, |plan| plan.cost);
    let least = by_decimals.as_ref().map_or(u64::MAX, |(_, cost)| *cost).min(bits_cost);
    let mut head = None;
    if !put_few(out, values, (least, turns), (few, integers), &mut head) {
        match (&mut by_decimals, &mut by_bits) {
            (Some((plan, cost)), _) if *cost <= bits_cost => {
                let turned = turns && plan.is_long();
                if turned {
                    plan.turn(&decimals.column);
                }
                let start = put_decimals(out, (decimals, values.len(), turned), plan);
                head = turned.then_some(start);
            }
            (_, Some(plan)) => {
                let turned = turns && plan.is_long();
                if turned {
                    plan.turn(column);
                }
                out.push(ORDERED | plan.flags << 3);
                let start = plan.put(out);
                head = turned.then_some(start);
            }
            // Without bits the decimals are certain.
            (_, None) => {}
        }
    }
    for plan in by_decimals.map(|(plan, _)| plan).into_iter().chain(by_bits) {
        integers.recycle(plan);
    }
    // What goes before a backward body counts.
    let before = if head.is_some() { 7 } else { 0 };
    if before + out.len() - start > 1 + values.len() * 8 {
        out.truncate(start);
        out.push(RAW);
        for value in values {
            out.extend_from_slice(&value.to_le_bytes());
        }
        head = None;
    }
    head
}

/// Writes decimals; answers where the first mini ends. The plan is turned already, if it is.
fn put_decimals(
    out: &mut Vec<u8>,
    (decimals, count, turned): (&Decimals, usize, bool),
    plan: &Plan,
) -> usize {
    let kind = if decimals.exponent == 0 { WHOLE } else { DECIMAL };
    let odd = if decimals.odd.is_empty() { 0 } else { ODD };
    out.push(kind | plan.flags << 3 | odd);
    if odd != 0 {
        put_varint(out, decimals.odd.len() as u64);
        let mut next = 0;
        let mut put = |index: usize, pattern: u64| {
            put_varint(out, (index - next) as u64);
            out.extend_from_slice(&pattern.to_le_bytes());
            next = index + 1;
        };
        if turned {
            decimals.odd.iter().rev().for_each(|(index, pattern)| put(count - 1 - index, *pattern));
        } else {
            decimals.odd.iter().for_each(|(index, pattern)| put(*index, *pattern));
        }
    }
    if kind == DECIMAL {
        out.push(decimals.exponent);
    }
    plan.put(out)
}

/// Writes kind 4 if the values are few and that is smaller than `cost` bits; where it turns them, says where the first
/// mini ends.
fn put_few(
    out: &mut Vec<u8>,
    values: &[u64],
    (cost, turns): (u64, bool),
    (column, scratch): (&mut Vec<i64>, &mut integers::Scratch),
    head: &mut Option<usize>,
) -> bool {
    // In the order in which they come: {pattern, how often}.
    let mut patterns = [(0u64, 0usize); FEW_MAX];
    let (mut few, mut last) = (0, 0);
    for value in values {
        let known = patterns.get(..few).unwrap_or_default();
        if known.get(last).is_none_or(|(pattern, _)| pattern != value) {
            last = known.iter().position(|(pattern, _)| pattern == value).unwrap_or(few);
        }
        let Some(slot) = patterns.get_mut(last) else { return false };
        few = few.max(last + 1);
        *slot = (*value, slot.1 + 1);
    }
    let patterns = patterns.get_mut(..few).unwrap_or_default();
    // A pattern takes nine bytes, and each value at least a bit.
    if 72 * patterns.len() as u64 + values.len() as u64 > cost {
        return false;
    }
    patterns.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let place = |value: &u64| patterns.iter().position(|(pattern, _)| pattern == value).unwrap_or_default();
    column.clear();
    column.extend(values.iter().map(|value| i64::try_from(place(value)).unwrap_or_default()));
    let mut plan = integers::plan(scratch, column, false);
    let is_smaller = plan.cost + 72 * (patterns.len() as u64) < cost;
    if is_smaller {
        let turned = turns && plan.is_long();
        if turned {
            plan.turn(column);
        }
        out.push(FEW | plan.flags << 3);
        out.push(u8::try_from(patterns.len() - 1).unwrap_or_default());
        for (pattern, _) in &*patterns {
            let kept = 8 - whole_bytes(pattern.trailing_zeros());
            out.push(kept);
            out.extend(pattern.to_be_bytes().iter().take(usize::from(kept)));
        }
        let start = plan.put(out);
        *head = turned.then_some(start);
    }
    scratch.recycle(plan);
    is_smaller
}

/// Appends the `wanted` ones of the `count` values (1 to 1,024) of a body at whose start the reader stands. If the last ones
/// are wanted, or the first ones of a backward body, it stands at the body's end afterwards.
pub(super) fn take(
    reader: &mut Reader<'_>,
    count: usize,
    wanted: Range<usize>,
    out: &mut Vec<f64>,
) -> Result<(), Damage> {
    let tag = reader.rest().first().copied().unwrap_or_default();
    if tag & 7 != BACKWARD {
        return take_body(reader, count, (wanted, false), out);
    }
    reader.u8()?;
    match tag & !7 {
        0 => {}
        CHECKED => {
            // The block's own checksum held.
            reader.u32()?;
            reader.count(1)?;
        }
        _ => return Err(reader.damage("unknown flags of a backward body")),
    }
    take_backward(reader, count, &wanted, out)
}

/// What is behind the tag and checksum of a backward body.
fn take_backward(
    reader: &mut Reader<'_>,
    count: usize,
    wanted: &Range<usize>,
    out: &mut Vec<f64>,
) -> Result<(), Damage> {
    let tag = reader.rest().first().copied().unwrap_or_default();
    if !matches!(tag & 7, WHOLE | DECIMAL | ORDERED | FEW) || tag >> 3 & integers::SPARSE != 0 {
        return Err(reader.damage("not what is written backward"));
    }
    let (from, to) = (count.saturating_sub(wanted.end), count.saturating_sub(wanted.start));
    take_body(reader, count, (from..to, true), out)
}

/// Whether the wanted values of a block are in its head alone: in the first mini of a backward body that has a checksum.
pub(super) fn in_head(body: &[u8], count: usize, wanted: &Range<usize>) -> bool {
    body.first() == Some(&(BACKWARD | CHECKED)) && wanted.start + MINI >= count - 1 && !wanted.is_empty()
}

/// As [`take`], for values that are [`in_head`]: nothing else is looked at, and that is verified here.
pub(super) fn take_head(
    mut reader: Reader<'_>,
    series: u32,
    count: usize,
    wanted: &Range<usize>,
    out: &mut Vec<f64>,
) -> Result<(), Damage> {
    reader.u8()?;
    let crc = reader.u32()?;
    let length = reader.count(1)?;
    let head = reader.take(length)?;
    if value_crc(series, count, head) != crc {
        return Err(Damage::new(0, "wrong checksum of the newest values"));
    }
    take_backward(&mut Reader::new(head), count, wanted, out)
}

/// Appends the wanted values of a body that is not of kind 6, the last one first if `backward`. On damage anything may be
/// appended.
fn take_body(
    reader: &mut Reader<'_>,
    count: usize,
    (wanted, backward): (Range<usize>, bool),
    out: &mut Vec<f64>,
) -> Result<(), Damage> {
    let tag = reader.u8()?;
    let (from, to) = (wanted.start, wanted.end);
    let column = Reading { flags: tag >> 3 & FLAG_BITS, count, from, to };
    let start = out.len();
    if tag & (7 | ODD) == SAME {
        let value = f64::from_bits(take_pattern(reader, reader.left())?);
        out.resize(start + wanted.len(), value);
        return Ok(());
    }
    out.resize(start + wanted.len(), 0.0);
    let slots = out.get_mut(start..).unwrap_or_default();
    let odd = if tag & ODD == 0 { None } else { Some(skip_odd(reader)?) };
    let mut target = Target { slots: &mut *slots, backward };
    match tag & 7 {
        SAME => target.slots.fill(f64::from_bits(take_pattern(reader, reader.left())?)),
        WHOLE => {
            columns::take(reader, column, Scaled { target, make: |x| x })?;
        }
        DECIMAL => {
            let exponent = usize::from(reader.u8()?);
            let power = *POWERS.get(exponent).ok_or_else(|| reader.damage("unknown exponent"))?;
            columns::take(reader, column, Scaled { target, make: move |x| x / power })?;
        }
        ORDERED => {
            let value = |x: u64| f64::from_bits(ordered(x.cast_signed()).cast_unsigned());
            columns::take(reader, column, |column: &[u64]| target.put(column, value))?;
        }
        FEW => take_few(reader, column, &mut target)?,
        RAW => {
            reader.take(from * 8)?;
            let (patterns, _) = reader.take(to.saturating_sub(from) * 8)?.as_chunks::<8>();
            target.put(patterns, |pattern| f64::from_bits(u64::from_le_bytes(pattern)));
        }
        _ => return Err(reader.damage("unknown kind of values")),
    }
    match odd {
        Some(mut odd) => take_odd(&mut odd, count, (from, backward), slots),
        None => Ok(()),
    }
}

fn take_few(reader: &mut Reader<'_>, column: Reading, target: &mut Target<'_>) -> Result<(), Damage> {
    let mut patterns = [0; FEW_MAX];
    let few = usize::from(reader.u8()?) + 1;
    for slot in patterns.get_mut(..few).ok_or_else(|| reader.damage("over 16 patterns"))? {
        let kept = usize::from(reader.u8()?);
        *slot = take_pattern(reader, kept)?;
    }
    // A place beyond the patterns takes what is there, and is noticed.
    let mut highest = 0;
    columns::take(reader, column, |column: &[u64]| {
        target.put(column, |place| {
            highest = highest.max(place);
            let pattern = usize::try_from(place).ok().and_then(|place| patterns.get(place));
            f64::from_bits(pattern.copied().unwrap_or_default())
        });
    })?;
    if highest < few as u64 { Ok(()) } else { Err(reader.damage("unknown pattern")) }
}

/// A pattern of which the high bytes are written.
fn take_pattern(reader: &mut Reader<'_>, kept: usize) -> Result<u64, Damage> {
    let mut pattern = [0; 8];
    let place = pattern.get_mut(..kept).ok_or_else(|| reader.damage("pattern over 8 bytes"))?;
    place.copy_from_slice(reader.take(kept)?);
    Ok(u64::from_be_bytes(pattern))
}

/// Passes by the odd values and answers where they are.
fn skip_odd<'a>(reader: &mut Reader<'a>) -> Result<Reader<'a>, Damage> {
    let odd = *reader;
    for _ in 0..reader.count(9)? {
        reader.varint()?;
        reader.u64()?;
    }
    Ok(odd)
}

/// Sets the odd values among those from `from` on of a block of `count`; the last one first if `backward`.
fn take_odd(
    reader: &mut Reader<'_>,
    count: usize,
    (from, backward): (usize, bool),
    values: &mut [f64],
) -> Result<(), Damage> {
    let mut next = 0usize;
    for _ in 0..reader.count(9)? {
        let gap = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
        let index = next.saturating_add(gap);
        if index >= count {
            return Err(reader.damage("an odd value beyond the block"));
        }
        let pattern = reader.u64()?;
        let place = index.checked_sub(from);
        let place = if backward { place.and_then(|n| values.len().checked_sub(n + 1)) } else { place };
        if let Some(slot) = place.and_then(|place| values.get_mut(place)) {
            *slot = f64::from_bits(pattern);
        }
        next = index + 1;
    }
    Ok(())
}
