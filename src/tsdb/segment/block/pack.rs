//! Lists of small numbers in few bits: groups of at most 128 (minis), each with the packing that is smallest for it.
//!
//! ```text
//! mini   u8 kind << 6 | k, then for its m numbers, bits from the low end of each byte, every part padded to a byte:
//!   kind 0 packed   m x k bits (k = 0: all are 0)
//!   kind 1 split    m x k low bits; then for each the rest (number >> k) as so many 0 bits and a 1, at most 32 0 bits;
//!                   then for each that has 32: a varint, rest - 32
//!   kind 2 odd      m bits: 1 where the number is not 0; then of those, less 1, as in kind 1
//! ```
//! Numbers scattered around nothing in particular, the usual case, take about 0.15 bits over their entropy as kind 1
//! with the best k; a few outliers cost themselves, not the others.

use std::cmp::Ordering;

use crate::tsdb::bytes::{Reader, put_varint};
use crate::tsdb::error::Damage;

/// Numbers of a mini at most.
pub(super) const MINI: usize = 128;
/// Words that hold the bits of a mini at any width, and one more so that two can always be looked at.
const WORDS: usize = MINI + 1;
/// More zero bits than this are not counted out.
const LONG: u64 = 32;

const PACKED: u8 = 0;
const SPLIT: u8 = 1;
const ODD: u8 = 2;

/// Appends a list of any length as minis.
pub(super) fn put_list(out: &mut Vec<u8>, numbers: &[u64]) {
    for mini in numbers.chunks(MINI) {
        put_mini(out, mini);
    }
}

/// Reads a list of the slots' length.
pub(super) fn take_list(reader: &mut Reader<'_>, slots: &mut [u64]) -> Result<(), Damage> {
    for mini in slots.chunks_mut(MINI) {
        take_mini(reader, mini)?;
    }
    Ok(())
}

fn put_mini(out: &mut Vec<u8>, numbers: &[u64]) {
    let all = numbers.iter().fold(0, |all, number| all | number);
    let width = bits(all);
    let packed = numbers.len() as u64 * u64::from(width);
    let (k, split) = best_split(numbers.iter().copied());
    let zeros = numbers.iter().filter(|number| **number == 0).count();
    // Fewer zeros than this cannot pay for the bit that each number would cost.
    if zeros * 16 > numbers.len() {
        let odd = || numbers.iter().filter(|number| **number != 0).map(|number| number - 1);
        let (k, rest) = best_split(odd());
        if rest + (numbers.len() as u64) < packed.min(split) {
            out.push(ODD << 6 | k);
            put_bits(out, numbers.iter().map(|number| u64::from(*number != 0)), 1);
            return put_split(out, odd(), k);
        }
    }
    // Packed is read faster, so a saving of under a sixty-fourth is left.
    if split + split / 64 < packed || width > 63 {
        out.push(SPLIT << 6 | k);
        put_split(out, numbers.iter().copied(), k);
    } else {
        out.push(PACKED << 6 | low_byte(u64::from(width)));
        put_bits(out, numbers.iter().copied(), width);
    }
}

/// Significant bits.
pub(super) const fn bits(number: u64) -> u32 {
    64 - number.leading_zeros()
}

#[expect(clippy::cast_possible_truncation, reason = "the low byte is meant")]
const fn low_byte(value: u64) -> u8 {
    value as u8
}

/// The k that makes the least bits as kind 1, and how many.
fn best_split(numbers: impl Iterator<Item = u64> + Clone) -> (u8, u64) {
    let (mut count, mut lengths) = (0u64, 0u64);
    for number in numbers.clone() {
        count += 1;
        lengths += u64::from(bits(number));
    }
    let cost = |k: u32| {
        let mut sum = count * (u64::from(k) + 1);
        for number in numbers.clone() {
            let rest = number >> k;
            sum += if rest < LONG { rest } else { LONG + 8 * u64::from(bits(rest - LONG) / 7 + 1) };
        }
        sum
    };
    // The mean length tells the scale whatever the outliers; the best k is next to it or one below.
    let near = u32::try_from(lengths.checked_div(count).unwrap_or(0)).unwrap_or(0);
    let mut best = (0, u64::MAX);
    for k in near.saturating_sub(2)..=(near + 1).min(63) {
        let sum = cost(k);
        if sum < best.1 {
            best = (low_byte(u64::from(k)), sum);
        }
    }
    best
}

fn put_split(out: &mut Vec<u8>, numbers: impl Iterator<Item = u64> + Clone, k: u8) {
    let mask = (1u64 << k) - 1;
    put_bits(out, numbers.clone().map(|number| number & mask), u32::from(k));
    let (mut byte, mut at) = (0u64, 0u64);
    for number in numbers.clone() {
        at += (number >> k).min(LONG);
        while at >= 8 {
            out.push(low_byte(byte));
            byte = 0;
            at -= 8;
        }
        byte |= 1 << at;
        at += 1;
    }
    if at > 0 {
        out.push(low_byte(byte));
    }
    for rest in numbers.map(|number| number >> k).filter(|rest| *rest >= LONG) {
        put_varint(out, rest - LONG);
    }
}

fn put_bits(out: &mut Vec<u8>, numbers: impl Iterator<Item = u64>, width: u32) {
    if width == 0 {
        return;
    }
    let (mut gathered, mut held) = (0u128, 0u32);
    for number in numbers {
        gathered |= u128::from(number) << held;
        held += width;
        if held >= 64 {
            #[expect(clippy::cast_possible_truncation, reason = "the low word is meant")]
            let word = gathered as u64;
            out.extend_from_slice(&word.to_le_bytes());
            gathered >>= 64;
            held -= 64;
        }
    }
    let left = held.div_ceil(8) as usize;
    out.extend(gathered.to_le_bytes().iter().take(left));
}

fn take_mini(reader: &mut Reader<'_>, slots: &mut [u64]) -> Result<(), Damage> {
    let tag = reader.u8()?;
    let k = tag & 63;
    match tag >> 6 {
        PACKED => take_bits(reader, slots, k),
        SPLIT => take_split(reader, slots, k),
        ODD => take_odd(reader, slots, k),
        _ => Err(reader.damage("unknown kind of mini")),
    }
}

fn take_odd(reader: &mut Reader<'_>, slots: &mut [u64], k: u8) -> Result<(), Damage> {
    let mut marks = [0u64; 2];
    words(reader.take(slots.len().div_ceil(8))?, &mut marks);
    let [low, high] = marks;
    let mut marks = u128::from(low) | u128::from(high) << 64;
    if slots.len() < MINI {
        // Bits beyond the last number mean nothing.
        marks &= (1 << slots.len()) - 1;
    }
    let mut odd = [0u64; MINI];
    let odd = odd.get_mut(..marks.count_ones() as usize).unwrap_or_default();
    take_split(reader, odd, k)?;
    slots.fill(0);
    for number in odd {
        if let Some(slot) = slots.get_mut(marks.trailing_zeros() as usize) {
            *slot = number.wrapping_add(1);
        }
        marks &= marks.wrapping_sub(1);
    }
    Ok(())
}

/// Little-endian words, at most as many as there are slots; a short last one is filled up with zeros.
#[inline]
fn words(bytes: &[u8], slots: &mut [u64]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    for (slot, word) in slots.iter_mut().zip(whole) {
        *slot = u64::from_le_bytes(*word);
    }
    if let (false, Some(slot)) = (rest.is_empty(), slots.get_mut(whole.len())) {
        *slot = short_word(rest);
    }
}

fn short_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

#[inline]
fn take_bits(reader: &mut Reader<'_>, slots: &mut [u64], width: u8) -> Result<(), Damage> {
    let width = usize::from(width);
    if width == 0 {
        slots.fill(0);
        return Ok(());
    }
    let mut held = [0u64; WORDS];
    words(reader.take((slots.len() * width).div_ceil(8))?, &mut held);
    let mask = (1u64 << width) - 1;
    let mut at = 0;
    for slot in slots {
        let (place, shift) = (at >> 6 & (MINI - 1), at & 63);
        *slot = (held[place] >> shift | held[place + 1] << 1 << (63 - shift)) & mask;
        at += width;
    }
    Ok(())
}

fn take_split(reader: &mut Reader<'_>, slots: &mut [u64], k: u8) -> Result<(), Damage> {
    take_bits(reader, slots, k)?;
    let rest = reader.rest();
    let (whole, short) = rest.as_chunks::<8>();
    let short = [short_word(short)];
    let mut stream = whole.iter().map(|word| u64::from_le_bytes(*word)).chain(short);
    let mut left = slots.iter_mut();
    // The place after the 1 bit before, from the start of the word at hand: below 0, wrapped, from the second word on.
    let mut last = 0u32;
    let (mut longest, mut full_words) = (0, 0);
    while left.len() > 0 {
        let mut word = stream.next().ok_or_else(|| reader.damage("cut short"))?;
        let ones = word.count_ones() as usize;
        for slot in left.by_ref().take(ones) {
            let place = word.trailing_zeros();
            let zeros = place.wrapping_sub(last);
            longest = zeros.max(longest);
            *slot |= u64::from(zeros) << k;
            last = place + 1;
            word &= word.wrapping_sub(1);
        }
        if left.len() > 0 {
            last = last.wrapping_sub(64);
            full_words += 1;
        }
    }
    let used = if slots.is_empty() { 0 } else { full_words * 8 + last.div_ceil(8) as usize };
    reader.take(used)?;
    match u64::from(longest).cmp(&LONG) {
        Ordering::Less => Ok(()),
        Ordering::Equal => {
            for slot in slots.iter_mut().filter(|slot| **slot >> k == LONG) {
                *slot = slot.wrapping_add(reader.varint()? << k);
            }
            Ok(())
        }
        Ordering::Greater => Err(reader.damage("more zero bits than are counted out")),
    }
}
