//! Chunks: compressed samples of one series, ascending in time. The compression preserves every
//! bit.
//!
//! A chunk consists of mini-blocks of 1 to 16 samples. A mini-block, with all integers
//! little-endian:
//! ```text
//! 0 u8   samples - 1 | time kind << 4 | value kind << 6
//! 1 zigzag varint: first time minus the time before it in the chunk (0 before the first); wraps at
//!   64 bits
//!   times, for 2 samples or more:
//!     kind 0 regular    varint step
//!     kind 1 changing   varint first step, then for each further sample a zigzag varint: step
//!                       minus the step before
//!   values:
//!     kind 0 same       u8 kept bytes k, then the bit pattern big-endian without its 8 - k low
//!                       zero bytes
//!     kind 1 decimal    u8 exponent e (0..9), zigzag varint mantissa of the first
//!                       (value = mantissa / 10^e); for 2 samples or more: zigzag varint least
//!                       difference, u8 width w (0..64), then difference - least in w bits each,
//!                       low bits first, padded with zeros to a byte
//!     kind 2 xor        for each: u8 leading zero bytes << 4 | kept bytes k of pattern xor the
//!                       pattern before it (0 before the first), then the k bytes big-endian
//!     kind 3 raw        8 bytes each
//! ```
//! The smallest kind that preserves the bits is used. Decimals have precedence, since they decode
//! fastest.

use super::codec::{POWERS, Reader, put_varint, put_zigzag, scaled, whole_bytes};
use super::error::Damage;

/// Samples of a mini-block at most.
pub(super) const MINI: usize = 16;
/// The greatest exponent that is tried. More digits are rare, and kind 2 then takes no more bytes.
const EXPONENT_MAX: u8 = 9;

const REGULAR: u8 = 0;
const CHANGING: u8 = 1;
const SAME: u8 = 0;
const DECIMAL: u8 = 1;
const XOR: u8 = 2;
const RAW: u8 = 3;

/// Appends one mini-block. `times` ascend strictly and are after `before`, the last time in `out`
/// (0 if there is none). `values` has the bit pattern of the value at each time.
///
/// Takes 1 to 16 samples. Appends nothing for other numbers of samples.
pub(super) fn put_mini(out: &mut Vec<u8>, before: i64, times: &[i64], values: &[u64]) {
    debug_assert!(times.len() == values.len(), "a value for each time");
    put(out, before, times, |out| put_values(out, values));
}

/// Appends one mini-block with the encoded values of another: their kind and bytes.
pub(super) fn put_encoded(out: &mut Vec<u8>, before: i64, times: &[i64], kind: u8, values: &[u8]) {
    put(out, before, times, |out| {
        out.extend_from_slice(values);
        kind
    });
}

/// Appends one mini-block. `put_values` appends its values, and returns their kind.
fn put(out: &mut Vec<u8>, before: i64, times: &[i64], put_values: impl FnOnce(&mut Vec<u8>) -> u8) {
    let (Some(first), Some(count)) =
        (times.first(), u8::try_from(times.len()).ok().and_then(|n| n.checked_sub(1)))
    else {
        return;
    };
    debug_assert!(times.len() <= MINI, "1 to 16 samples");
    debug_assert!(times.is_sorted_by(|a, b| a < b), "times ascend");
    let start = out.len();
    out.push(0);
    put_zigzag(out, first.wrapping_sub(before));
    let time_kind = put_times(out, times);
    let value_kind = put_values(out);
    if let Some(tag) = out.get_mut(start) {
        *tag = count | time_kind << 4 | value_kind << 6;
    }
}

/// Encodes samples as a chunk.
pub(super) fn encode(times: &[i64], values: &[u64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(times.len() * 2 + 16);
    let mut before = 0;
    for (times, values) in times.chunks(MINI).zip(values.chunks(MINI)) {
        put_mini(&mut out, before, times, values);
        before = times.last().copied().unwrap_or(before);
    }
    out
}

/// Returns the differences between neighbouring times.
fn steps(times: &[i64]) -> impl Iterator<Item = u64> + '_ {
    times.iter().zip(times.iter().skip(1)).map(|(a, b)| b.wrapping_sub(*a).cast_unsigned())
}

/// Appends the times after the first, and returns their kind.
fn put_times(out: &mut Vec<u8>, times: &[i64]) -> u8 {
    let Some(first) = steps(times).next() else { return REGULAR };
    put_varint(out, first);
    if steps(times).all(|step| step == first) {
        return REGULAR;
    }
    let mut before = first;
    for step in steps(times).skip(1) {
        put_zigzag(out, step.wrapping_sub(before).cast_signed());
        before = step;
    }
    CHANGING
}

/// Appends the values of a mini-block, and returns their kind.
pub(super) fn put_values(out: &mut Vec<u8>, values: &[u64]) -> u8 {
    let first = values.first().copied().unwrap_or_default();
    if values.iter().all(|value| *value == first) {
        put_kept(out, first);
        return SAME;
    }
    if put_decimal(out, values) {
        return DECIMAL;
    }
    let mut piece = [0; XOR_BYTES_MAX * MINI];
    let mut end = 0;
    let mut before = 0;
    for value in values {
        // The next value overwrites the bytes behind the kept ones.
        let (control, kept, bytes) = xored(value ^ before);
        if let Some([first, rest @ ..]) = piece.get_mut(end..end + XOR_BYTES_MAX) {
            *first = control;
            rest.copy_from_slice(&bytes);
        }
        end += 1 + kept;
        before = *value;
    }
    if end < values.len() * 8 {
        out.extend_from_slice(piece.get(..end).unwrap_or_default());
        return XOR;
    }
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
    RAW
}

/// Appends `u8 kept`, then the high bytes.
fn put_kept(out: &mut Vec<u8>, pattern: u64) {
    let kept = 8 - whole_bytes(pattern.trailing_zeros());
    out.push(kept);
    out.extend(pattern.to_be_bytes().iter().take(usize::from(kept)));
}

/// Bytes of one value of kind 2 at most.
const XOR_BYTES_MAX: usize = 9;

/// Returns the control byte, the number of kept bytes, and eight bytes that begin with those.
#[inline]
fn xored(xor: u64) -> (u8, usize, [u8; 8]) {
    let lead = whole_bytes(xor.leading_zeros());
    let tail = if xor == 0 { 0 } else { whole_bytes(xor.trailing_zeros()) };
    let kept = 8 - lead - tail;
    let high = xor.checked_shl(u32::from(lead) * 8).unwrap_or(0);
    (lead << 4 | kept, usize::from(kept), high.to_be_bytes())
}

/// Appends values of kind 1. Returns false, and appends nothing, if some value is not a decimal.
fn put_decimal(out: &mut Vec<u8>, values: &[u64]) -> bool {
    let mut mantissas = [0i64; MINI];
    let Some(mantissas) = mantissas.get_mut(..values.len()) else { return false };
    let Some(exponent) = decimals(values, mantissas) else { return false };
    let differences = || mantissas.iter().zip(mantissas.iter().skip(1)).map(|(a, b)| b - a);
    out.push(exponent);
    put_zigzag(out, mantissas.first().copied().unwrap_or_default());
    let Some(least) = differences().min() else { return true };
    let widest = differences().map(|d| (d - least).cast_unsigned()).max().unwrap_or_default();
    let width = 64 - widest.leading_zeros();
    put_zigzag(out, least);
    out.push(u8::try_from(width).unwrap_or(64));
    let mut packed = [[0; 8]; MINI];
    let (mut words, mut gathered, mut bits) = (0, 0, 0);
    let mut put = |at: usize, word: u64| {
        if let Some(slot) = packed.get_mut(at) {
            *slot = word.to_le_bytes();
        }
    };
    for difference in differences() {
        let over = (difference - least).cast_unsigned();
        gathered |= over << bits;
        bits += width;
        if bits >= 64 {
            put(words, gathered);
            words += 1;
            bits -= 64;
            // The bits that did not fit; none if the number ended with the word.
            gathered = over.checked_shr(width - bits).unwrap_or(0);
        }
    }
    put(words, gathered);
    let bytes = ((mantissas.len() - 1) * width as usize).div_ceil(8);
    out.extend_from_slice(packed.as_flattened().get(..bytes).unwrap_or_default());
    true
}

/// Returns the least exponent with which all values are decimals, and sets their mantissas.
fn decimals(values: &[u64], mantissas: &mut [i64]) -> Option<u8> {
    if all_by(values, mantissas, |value| value, |whole| whole) {
        return Some(0);
    }
    let least = |value: Option<&u64>| {
        let value = f64::from_bits(*value?);
        (0..=EXPONENT_MAX).find(|exponent| scaled(value, *exponent).is_some())
    };
    // In most series, all values have at most as many digits as the first or the last one.
    let likely = least(values.first())?.max(least(values.last())?);
    if likely > 0
        && let Some(power) = POWERS.get(usize::from(likely))
        && all_by(values, mantissas, |value| value * power, |whole| whole / power)
    {
        return Some(likely);
    }
    let mut exponent = 0;
    for value in values {
        while scaled(f64::from_bits(*value), exponent).is_none() {
            exponent += 1;
            if exponent > EXPONENT_MAX {
                return None;
            }
        }
    }
    // A value that is a decimal with fewer digits may not be one with more.
    for (slot, value) in mantissas.iter_mut().zip(values) {
        *slot = scaled(f64::from_bits(*value), exponent)?;
    }
    Some(exponent)
}

/// Sets the mantissas to the integers nearest to `up(value)`. Returns whether each is below 2^51
/// and gives the same bits back with `down`. The loop has no branch, so that the compiler can
/// vectorise it. Adding `ROUND` rounds to an integer, which is then in the low bits.
#[inline]
fn all_by(values: &[u64], mantissas: &mut [i64], up: impl Fn(f64) -> f64, down: impl Fn(f64) -> f64) -> bool {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let mut wrong = 0;
    for (slot, pattern) in mantissas.iter_mut().zip(values) {
        let rounded = up(f64::from_bits(*pattern)) + ROUND;
        let back = down(rounded - ROUND).to_bits();
        // The exponent differs if the number was too large, infinite or NaN.
        wrong |= (back ^ pattern) | (rounded.to_bits() ^ ROUND.to_bits()) >> 52;
        *slot = rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    }
    wrong == 0
}

/// A decoded mini-block.
#[derive(Clone, Copy, Debug)]
pub(super) struct MiniBlock {
    len: usize,
    times: [i64; MINI],
    values: [u64; MINI],
}

impl MiniBlock {
    pub(super) fn times(&self) -> &[i64] {
        self.times.get(..self.len).unwrap_or_default()
    }

    /// Returns the bit patterns of the values.
    pub(super) fn values(&self) -> &[u64] {
        self.values.get(..self.len).unwrap_or_default()
    }
}

/// A decoder of the mini-blocks of a chunk. It ends at the first damage.
pub(super) struct MiniBlocks<'a> {
    reader: Reader<'a>,
    before: i64,
    mini: MiniBlock,
    encoded: (u8, &'a [u8]),
    started: bool,
}

/// Begins to decode a chunk.
pub(super) fn decode(chunk: &[u8]) -> MiniBlocks<'_> {
    let mini = MiniBlock { len: 0, times: [0; MINI], values: [0; MINI] };
    MiniBlocks { reader: Reader::new(chunk), before: 0, mini, encoded: (RAW, &[]), started: false }
}

impl<'a> MiniBlocks<'a> {
    /// Returns the kind and the encoded bytes of the values of the last mini-block.
    pub(super) const fn encoded(&self) -> (u8, &'a [u8]) {
        self.encoded
    }

    /// Decodes the next mini-block; `None` at the end of the chunk.
    ///
    /// # Errors
    /// [`Damage`] if the bytes are not a chunk, or the times do not ascend.
    pub(super) fn next(&mut self) -> Result<Option<&MiniBlock>, Damage> {
        if self.reader.left() == 0 {
            return Ok(None);
        }
        let tag = self.reader.u8()?;
        self.mini.len = usize::from(tag & 0x0f) + 1;
        self.times(tag >> 4 & 3)?;
        let len = self.mini.len;
        let values = self.mini.values.get_mut(..len).unwrap_or_default();
        let mut start = self.reader;
        take_values(&mut self.reader, tag >> 6, values)?;
        self.encoded = (tag >> 6, start.take(start.left() - self.reader.left())?);
        self.started = true;
        Ok(Some(&self.mini))
    }

    /// Decodes the times of a mini-block of this kind.
    fn times(&mut self, kind: u8) -> Result<(), Damage> {
        let mut at = self.before.wrapping_add(self.reader.zigzag()?);
        if self.started && at <= self.before {
            return Err(self.reader.damage("times do not ascend"));
        }
        let mut step = 0u64;
        for (index, slot) in self.mini.times.iter_mut().take(self.mini.len).enumerate() {
            if index > 0 {
                step = match (index, kind) {
                    (1, REGULAR | CHANGING) => self.reader.varint()?,
                    (_, REGULAR) => step,
                    (_, CHANGING) => step.wrapping_add(self.reader.zigzag()?.cast_unsigned()),
                    _ => return Err(self.reader.damage("unknown kind of times")),
                };
                let next = at.wrapping_add(step.cast_signed());
                if next <= at {
                    return Err(self.reader.damage("times do not ascend"));
                }
                at = next;
            }
            *slot = at;
        }
        self.before = at;
        Ok(())
    }
}

/// Decodes the values of a mini-block of this kind.
pub(super) fn take_values(reader: &mut Reader<'_>, kind: u8, values: &mut [u64]) -> Result<(), Damage> {
    match kind {
        SAME => {
            let kept = usize::from(reader.u8()?);
            let pattern = take_high(reader, 0, kept)?;
            values.fill(pattern);
        }
        DECIMAL => take_decimal(reader, values)?,
        XOR => {
            let mut before = 0;
            for slot in values {
                let control = reader.u8()?;
                before ^= take_high(reader, usize::from(control >> 4), usize::from(control & 0x0f))?;
                *slot = before;
            }
        }
        _ => {
            for slot in values {
                *slot = reader.u64()?;
            }
        }
    }
    Ok(())
}

/// Skips the values of a mini-block.
pub(super) fn skip_values(reader: &mut Reader<'_>, kind: u8, count: usize) -> Result<(), Damage> {
    match kind {
        SAME => {
            let kept = usize::from(reader.u8()?);
            reader.take(kept.min(9))?;
        }
        DECIMAL => {
            reader.u8()?;
            reader.varint()?;
            if count > 1 {
                reader.varint()?;
                let width = usize::from(reader.u8()?);
                reader.take(((count - 1) * width).div_ceil(8))?;
            }
        }
        XOR => {
            for _ in 0..count {
                let kept = usize::from(reader.u8()? & 0x0f);
                reader.take(kept)?;
            }
        }
        _ => {
            reader.take(count * 8)?;
        }
    }
    Ok(())
}

/// Decodes a pattern with `lead` zero bytes, then `kept` stored bytes.
fn take_high(reader: &mut Reader<'_>, lead: usize, kept: usize) -> Result<u64, Damage> {
    let mut pattern = [0; 8];
    let taken = reader.take(kept.min(9))?;
    let stored = pattern
        .get_mut(lead..lead.saturating_add(kept))
        .ok_or_else(|| reader.damage("pattern over 8 bytes"))?;
    stored.copy_from_slice(taken);
    Ok(u64::from_be_bytes(pattern))
}

/// Decodes values of kind 1.
fn take_decimal(reader: &mut Reader<'_>, values: &mut [u64]) -> Result<(), Damage> {
    let exponent = reader.u8()?;
    let mut mantissa = reader.zigzag()?;
    let power = *POWERS.get(usize::from(exponent)).ok_or_else(|| reader.damage("unknown exponent"))?;
    let Some((first, rest)) = values.split_first_mut() else { return Ok(()) };
    *first = mantissa.cast_unsigned();
    if !rest.is_empty() {
        let least = reader.zigzag()?;
        let width = usize::from(reader.u8()?);
        if width > 64 {
            return Err(reader.damage("width over 64 bits"));
        }
        let ahead = reader.rest();
        let packed = reader.take((rest.len() * width).div_ceil(8))?;
        // A load needs 8 bytes, and the widest differences need two loads. Usually more bytes
        // follow.
        let mut padded = [0; MINI * 8 + 16];
        let from = if ahead.len() >= packed.len() + 16 {
            ahead
        } else {
            for (to, from) in padded.iter_mut().zip(packed) {
                *to = *from;
            }
            &padded
        };
        let load =
            |at: usize| from.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_le_bytes);
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        for (index, slot) in rest.iter_mut().enumerate() {
            let (at, shift) = (index * width / 8, index * width % 8);
            let low = load(at) >> shift;
            let over = if width <= 56 { low } else { low | load(at + 8) << 1 << (63 - shift) };
            mantissa = mantissa.wrapping_add(least).wrapping_add((over & mask).cast_signed());
            *slot = mantissa.cast_unsigned();
        }
    }
    // Most values are whole numbers, and a division takes time.
    if exponent == 0 {
        values.iter_mut().for_each(|slot| *slot = float(*slot).to_bits());
    } else {
        values.iter_mut().for_each(|slot| *slot = (float(*slot) / power).to_bits());
    }
    Ok(())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "mantissas written here are below 2^53; others are hostile and any value will do"
)]
const fn float(mantissa: u64) -> f64 {
    mantissa.cast_signed() as f64
}

#[cfg(test)]
mod tests;
