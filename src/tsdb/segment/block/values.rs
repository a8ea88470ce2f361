//! Bodies of value blocks.
//!
//! ```text
//! 0 u8 kind | flags of the column << 3 | ODD 0x80
//!   if ODD is set: varint count, for each varint (index - index before - 1; the first's from the
//!   start), 8 bytes of bit pattern: values that the column does not give
//!   kind 0 same      the bit pattern big-endian, without its low zero bytes, to the body's end
//!   kind 1 whole     a column (see `integers`): value = x
//!   kind 2 decimal   u8 exponent e (0..=18), a column: value = x / 10^e
//!   kind 3 ordered   a column: bit pattern = x, its low 63 bits inverted where it is negative
//!   kind 4 few       u8 patterns - 1, each u8 kept bytes and those, big-endian; a column of
//!                    indexes of patterns
//!   kind 5 raw       8 bytes each
//!   kind 6 backward  if 0x08 is set, and no other flag is: u32 crc of {u32 series id, u32 samples,
//!                    head}, varint bytes of the head; then a body of kind 1 to 4 of the same
//!                    values from the last to the first, whose column is not sparse; the head
//!                    is its beginning up to the end of the first mini
//! ```
//! Odd values are, in practice, staleness markers and other NaN, infinities and minus zero among
//! decimals.
//!
//! Most queries read the newest samples, and minis can only be decoded one after another. So blocks
//! of more than one mini are written backward (since version 2): the newest values are in the first
//! mini, which has its own checksum. A sparse column can be entered anywhere, so it is written
//! forward.

use std::ops::Range;

use super::columns::{self, ColumnSlice};
use super::integers::{self, ColumnPlan, FLAG_BITS};
use super::output::{OutputSlots, ScaledOutput};
use super::pack::MINI;
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
/// Flag of kind 6: the first mini has its own checksum.
const CHECKED: u8 = 1 << 3;
/// Least size in bytes of a body with a checksum of its first mini, which adds at most 1 %.
const CHECKED_FROM: usize = 400;
const ODD: u8 = 0x80;

/// Patterns of kind 4 at most.
const FEW_MAX: usize = 16;
/// The greatest exponent of decimals: 10^18 is the last power that fits an i64.
const EXPONENT_MAX: u8 = 18;
const POWERS: [f64; 19] =
    [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18];

/// Converts a bit pattern to an integer that ascends with the value, and back.
const fn ordered(pattern: i64) -> i64 {
    pattern ^ (pattern >> 63) & i64::MAX
}

/// Returns the integer that gives the same bits when divided by `power`. It is at most 2^53, so
/// that it is exact.
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
    // The quotient has the same bits only if the product is within two roundings of an integer.
    // This rules out most values without a division.
    if (wide - mantissa as f64).abs() > wide.abs() * f64::EPSILON * 2.0 {
        return None;
    }
    ((mantissa as f64 / power).to_bits() == pattern).then_some(mantissa)
}

/// As [`scaled`] with a power of 1, without a division.
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

/// Replaces `column` with the integers nearest to `up(value)`. Returns whether each is below 2^51
/// and gives the same bits back with `down`.
///
/// The loop has no branch, so that the compiler can vectorise it. Adding `ROUND` rounds to an
/// integer, which is then in the low bits.
#[inline]
fn all_by(values: &[u64], column: &mut Vec<i64>, up: impl Fn(f64) -> f64, down: impl Fn(f64) -> f64) -> bool {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let mut wrong = 0;
    column.clear();
    column.extend(values.iter().map(|pattern| {
        let rounded = up(f64::from_bits(*pattern)) + ROUND;
        let back = down(rounded - ROUND).to_bits();
        // The exponent differs if the number was too large, infinite or NaN.
        wrong |= (back ^ pattern) | (rounded.to_bits() ^ ROUND.to_bits()) >> 52;
        rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed()
    }));
    wrong == 0
}

/// Returns the least exponent from `from` on with which the value is a decimal.
fn exponent_of(pattern: u64, from: u8) -> Option<u8> {
    let powers = (0..=EXPONENT_MAX).zip(POWERS).skip(usize::from(from));
    powers.into_iter().find(|(_, power)| scaled(pattern, *power).is_some()).map(|(exponent, _)| exponent)
}

/// Values as integers over a power of ten, and the odd ones as {index, pattern}.
#[derive(Debug, Default)]
struct Decimals {
    exponent: u8,
    column: Vec<i64>,
    odd: Vec<(usize, u64)>,
}

/// Buffers that are reused for each block.
#[derive(Debug, Default)]
pub(super) struct ValueBuffers {
    decimals: Decimals,
    column: Vec<i64>,
    few: Vec<i64>,
    integers: integers::PlanBuffers,
}

impl Decimals {
    /// Sets the decimals of these values. Returns whether most of them are decimals.
    fn set(&mut self, values: &[u64]) -> bool {
        // A sample of sixteen values rules out blocks that are not decimals.
        let stride = values.len().div_ceil(16).max(1);
        let tried = values.len().div_ceil(stride);
        let mut exponent = 0;
        let mut strange = 0;
        for pattern in values.iter().step_by(stride) {
            // Most values have as many digits as the previous ones.
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
                // An odd value takes about ten bytes; a further digit takes 0.4 bytes for each
                // value.
                Some(higher) if self.odd.len() * 24 > values.len() => exponent = higher,
                _ => return self.odd.len() * 8 <= values.len() + 8,
            }
        }
    }

    /// Sets the decimals with this exponent. Returns the higher exponent of the first odd value
    /// that has one.
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
                    // The odd values at the start get the first integer.
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

/// Appends the body of a block of a series, backward if that makes the newest values cheaper to
/// read.
pub(super) fn put_block(out: &mut Vec<u8>, series: u32, values: &[u64], scratch: &mut ValueBuffers) {
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
pub(super) fn put(out: &mut Vec<u8>, values: &[u64], scratch: &mut ValueBuffers) {
    put_body(out, values, false, scratch);
}

/// Appends a body, backward if that pays and `turns` allows it. For a backward body, returns the
/// end of its first mini.
fn put_body(out: &mut Vec<u8>, values: &[u64], turns: bool, scratch: &mut ValueBuffers) -> Option<usize> {
    let first = values.first()?;
    if values.iter().all(|value| value == first) {
        out.push(SAME);
        let kept = 8 - whole_bytes(first.trailing_zeros());
        out.extend(first.to_be_bytes().iter().take(usize::from(kept)));
        return None;
    }
    let start = out.len();
    let ValueBuffers { decimals, column, few, integers } = scratch;
    let mut by_decimals = decimals.set(values).then(|| {
        let plan = integers::plan(integers, &decimals.column, false);
        let cost = plan.cost + 80 * decimals.odd.len() as u64;
        (plan, cost)
    });
    // The bit patterns never take fewer bytes than decimals of few digits.
    let certain = by_decimals.is_some() && decimals.exponent < 6 && decimals.odd.is_empty();
    let mut by_bits = (!certain).then(|| {
        column.clear();
        column.extend(values.iter().map(|pattern| ordered(pattern.cast_signed())));
        integers::plan(integers, column, false)
    });
    let bits_cost = by_bits.as_ref().map_or(u64::MAX, |plan| plan.cost);
    let least = by_decimals.as_ref().map_or(u64::MAX, |(_, cost)| *cost).min(bits_cost);
    let mut head = None;
    if let Some(written) = put_few(out, values, least, turns, few, integers) {
        head = written.head;
    } else {
        match (&mut by_decimals, &mut by_bits) {
            (Some((plan, cost)), _) if *cost <= bits_cost => {
                let turned = turns && plan.is_long();
                if turned {
                    plan.turn(&decimals.column);
                }
                let start = put_decimals(out, decimals, values.len(), turned, plan);
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
            // The bit patterns are only skipped if decimals are certain.
            (_, None) => {}
        }
    }
    for plan in by_decimals.map(|(plan, _)| plan).into_iter().chain(by_bits) {
        integers.recycle(plan);
    }
    // A backward body has 7 bytes (kind, checksum, length of the head) that are not in `out` yet.
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

/// Appends decimals, and returns the end of the first mini. If `turned`, the plan is turned
/// already.
fn put_decimals(
    out: &mut Vec<u8>,
    decimals: &Decimals,
    count: usize,
    turned: bool,
    plan: &ColumnPlan,
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

/// A body of kind 4 that was appended.
struct WrittenFew {
    /// The end of the first mini, if the body is written backward.
    head: Option<usize>,
}

/// Appends kind 4 if there are few patterns and it takes fewer than `cost` bits.
fn put_few(
    out: &mut Vec<u8>,
    values: &[u64],
    cost: u64,
    turns: bool,
    column: &mut Vec<i64>,
    buffers: &mut integers::PlanBuffers,
) -> Option<WrittenFew> {
    // In order of their first occurrence: {pattern, number of occurrences}.
    let mut patterns = [(0u64, 0usize); FEW_MAX];
    let (mut few, mut last) = (0, 0);
    for value in values {
        let seen = patterns.get(..few).unwrap_or_default();
        if seen.get(last).is_none_or(|(pattern, _)| pattern != value) {
            last = seen.iter().position(|(pattern, _)| pattern == value).unwrap_or(few);
        }
        let slot = patterns.get_mut(last)?;
        few = few.max(last + 1);
        *slot = (*value, slot.1 + 1);
    }
    let patterns = patterns.get_mut(..few).unwrap_or_default();
    // A pattern takes nine bytes, and each value at least a bit.
    if 72 * patterns.len() as u64 + values.len() as u64 > cost {
        return None;
    }
    patterns.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let index_of =
        |value: &u64| patterns.iter().position(|(pattern, _)| pattern == value).unwrap_or_default();
    column.clear();
    column.extend(values.iter().map(|value| i64::try_from(index_of(value)).unwrap_or_default()));
    let mut plan = integers::plan(buffers, column, false);
    let is_smaller = plan.cost + 72 * (patterns.len() as u64) < cost;
    let written = is_smaller.then(|| {
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
        let end = plan.put(out);
        WrittenFew { head: turned.then_some(end) }
    });
    buffers.recycle(plan);
    written
}

/// Appends the `wanted` values of a body of `count` values (1 to 1,024). The reader is at its
/// start. If the last values are requested, or the first ones of a backward body, it is at the end
/// of the body afterwards.
pub(super) fn take(
    reader: &mut Reader<'_>,
    count: usize,
    wanted: Range<usize>,
    out: &mut Vec<f64>,
) -> Result<(), Damage> {
    let tag = reader.rest().first().copied().unwrap_or_default();
    if tag & 7 != BACKWARD {
        return take_body(reader, count, wanted, false, out);
    }
    reader.u8()?;
    match tag & !7 {
        0 => {}
        CHECKED => {
            // The checksum of the block has been verified.
            reader.u32()?;
            reader.count(1)?;
        }
        _ => return Err(reader.damage("unknown flags of a backward body")),
    }
    take_backward(reader, count, &wanted, out)
}

/// Appends the `wanted` values of a backward body. The reader is behind tag and checksum.
fn take_backward(
    reader: &mut Reader<'_>,
    count: usize,
    wanted: &Range<usize>,
    out: &mut Vec<f64>,
) -> Result<(), Damage> {
    let tag = reader.rest().first().copied().unwrap_or_default();
    if !matches!(tag & 7, WHOLE | DECIMAL | ORDERED | FEW) || tag >> 3 & integers::SPARSE != 0 {
        return Err(reader.damage("invalid kind of a backward body"));
    }
    let (from, to) = (count.saturating_sub(wanted.end), count.saturating_sub(wanted.start));
    take_body(reader, count, from..to, true, out)
}

/// Returns whether all wanted values are in the head: the first mini of a backward body with its
/// own checksum.
pub(super) fn in_head(body: &[u8], count: usize, wanted: &Range<usize>) -> bool {
    body.first() == Some(&(BACKWARD | CHECKED)) && wanted.start + MINI >= count - 1 && !wanted.is_empty()
}

/// As [`take`], for values that are [`in_head`]. Reads and verifies only the head.
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

/// Appends the wanted values of a body that is not of kind 6; the last one comes first if
/// `backward`. On damage anything may be appended.
fn take_body(
    reader: &mut Reader<'_>,
    count: usize,
    wanted: Range<usize>,
    backward: bool,
    out: &mut Vec<f64>,
) -> Result<(), Damage> {
    let tag = reader.u8()?;
    let (from, to) = (wanted.start, wanted.end);
    let column = ColumnSlice { flags: tag >> 3 & FLAG_BITS, count, from, to };
    let start = out.len();
    if tag & (7 | ODD) == SAME {
        let value = f64::from_bits(take_pattern(reader, reader.left())?);
        out.resize(start + wanted.len(), value);
        return Ok(());
    }
    out.resize(start + wanted.len(), 0.0);
    let slots = out.get_mut(start..).unwrap_or_default();
    let odd = if tag & ODD == 0 { None } else { Some(skip_odd(reader)?) };
    let mut target = OutputSlots { slots: &mut *slots, backward };
    match tag & 7 {
        SAME => target.slots.fill(f64::from_bits(take_pattern(reader, reader.left())?)),
        WHOLE => {
            columns::take(reader, column, ScaledOutput { target, make: |x| x })?;
        }
        DECIMAL => {
            let exponent = usize::from(reader.u8()?);
            let power = *POWERS.get(exponent).ok_or_else(|| reader.damage("unknown exponent"))?;
            columns::take(reader, column, ScaledOutput { target, make: move |x| x / power })?;
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
        Some(mut odd) => take_odd(&mut odd, count, from, backward, slots),
        None => Ok(()),
    }
}

/// Decodes values of kind 4.
fn take_few(
    reader: &mut Reader<'_>,
    column: ColumnSlice,
    target: &mut OutputSlots<'_>,
) -> Result<(), Damage> {
    let mut patterns = [0; FEW_MAX];
    let few = usize::from(reader.u8()?) + 1;
    for slot in patterns.get_mut(..few).ok_or_else(|| reader.damage("over 16 patterns"))? {
        let kept = usize::from(reader.u8()?);
        *slot = take_pattern(reader, kept)?;
    }
    // An index beyond the patterns gives 0 here and is reported below.
    let mut highest = 0;
    columns::take(reader, column, |column: &[u64]| {
        target.put(column, |index| {
            highest = highest.max(index);
            let pattern = usize::try_from(index).ok().and_then(|index| patterns.get(index));
            f64::from_bits(pattern.copied().unwrap_or_default())
        });
    })?;
    if highest < few as u64 { Ok(()) } else { Err(reader.damage("unknown pattern")) }
}

/// Decodes a pattern of which only the `kept` high bytes are stored.
fn take_pattern(reader: &mut Reader<'_>, kept: usize) -> Result<u64, Damage> {
    let mut pattern = [0; 8];
    let high = pattern.get_mut(..kept).ok_or_else(|| reader.damage("pattern over 8 bytes"))?;
    high.copy_from_slice(reader.take(kept)?);
    Ok(u64::from_be_bytes(pattern))
}

/// Skips the odd values, and returns a reader of them.
fn skip_odd<'a>(reader: &mut Reader<'a>) -> Result<Reader<'a>, Damage> {
    let odd = *reader;
    for _ in 0..reader.count(9)? {
        reader.varint()?;
        reader.u64()?;
    }
    Ok(odd)
}

/// Sets the odd values among `values`, which begin at index `from` of a block of `count`; the last
/// value comes first if `backward`.
fn take_odd(
    reader: &mut Reader<'_>,
    count: usize,
    from: usize,
    backward: bool,
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
        let slot_index = index.checked_sub(from);
        let slot_index =
            if backward { slot_index.and_then(|n| values.len().checked_sub(n + 1)) } else { slot_index };
        if let Some(slot) = slot_index.and_then(|slot_index| values.get_mut(slot_index)) {
            *slot = f64::from_bits(pattern);
        }
        next = index + 1;
    }
    Ok(())
}
