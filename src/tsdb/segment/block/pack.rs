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
/// More zero bits than this are not counted out.
const LONG: u8 = 32;

/// Different k that are tried.
const TRIED: usize = 4;

const PACKED: u8 = 0;
const SPLIT: u8 = 1;
const ODD: u8 = 2;

/// Appends a list of any length as minis.
pub(super) fn put_list(out: &mut Vec<u8>, numbers: &[u64]) {
    for mini in numbers.chunks(MINI) {
        put_mini(out, mini);
    }
}

/// Appends a mini of 1 to 128 numbers.
pub(super) fn put_mini(out: &mut Vec<u8>, numbers: &[u64]) {
    let all = numbers.iter().fold(0, |all, number| all | number);
    if all >> 31 == 0 && numbers.len() <= MINI {
        // Nearly all are: half the bytes are twice as many at a time.
        let mut narrow = [0u32; MINI];
        for (to, from) in narrow.iter_mut().zip(numbers) {
            *to = low_half(*from);
        }
        put_numbers(out, narrow.get(..numbers.len()).unwrap_or_default(), bits(all));
    } else {
        put_numbers(out, numbers, bits(all));
    }
}

/// Numbers of a mini that is written: below 2^31, or any.
pub(super) trait Number: Copy + Default + PartialEq {
    fn wide(self) -> u64;
    /// Significant bits, or one more: beyond 24 of them it may be rounded up.
    fn length(self) -> u32;
    /// What is left without the low `k` bits, if that fits.
    fn above(self, k: u32) -> u32;
    /// The same, but 32 at most.
    fn rest(self, k: u32) -> u32;
    /// One less, where it is not 0.
    fn less(self) -> Self;
}

impl Number for u32 {
    #[inline]
    fn wide(self) -> u64 {
        u64::from(self)
    }

    /// By the exponent of a float, since that is four at a time.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "only the exponent is meant")]
    fn length(self) -> u32 {
        ((self.cast_signed() as f32 + 0.5).to_bits() >> 23).wrapping_sub(126)
    }

    #[inline]
    fn above(self, k: u32) -> u32 {
        self >> k.min(31)
    }

    #[inline]
    fn rest(self, k: u32) -> u32 {
        (self >> k.min(31)).cast_signed().min(i32::from(LONG)).cast_unsigned()
    }

    #[inline]
    fn less(self) -> u32 {
        self - u32::from(self != 0)
    }
}

impl Number for u64 {
    fn wide(self) -> u64 {
        self
    }

    fn length(self) -> u32 {
        bits(self)
    }

    fn above(self, k: u32) -> u32 {
        u32::try_from(self >> k.min(63)).unwrap_or(u32::MAX)
    }

    fn rest(self, k: u32) -> u32 {
        u32::try_from(self >> k.min(63)).unwrap_or(u32::MAX).min(u32::from(LONG))
    }

    fn less(self) -> u64 {
        self.saturating_sub(1)
    }
}

/// Appends a mini whose widest number has so many bits.
fn put_numbers<N: Number>(out: &mut Vec<u8>, numbers: &[N], width: u32) {
    let count = numbers.len() as u64;
    let packed = count * u64::from(width);
    let (k, split) = best_split(numbers, count, width);
    let zeros = numbers.iter().map(|number| u32::from(*number == N::default())).sum::<u32>();
    // Fewer zeros than this cannot pay for the bit that each number would cost.
    if u64::from(zeros) * 16 > count {
        let mut odd = [N::default(); MINI];
        let odd = odd.get_mut(..numbers.len()).unwrap_or_default();
        for (to, from) in odd.iter_mut().zip(numbers) {
            *to = from.less();
        }
        // What is 0 now and was 0 before costs nothing.
        let (k, rest) = best_split(odd, count - u64::from(zeros), width);
        if rest + count < packed.min(split) {
            out.push(ODD << 6 | k);
            let mut places = 0;
            for (place, number) in numbers.iter().enumerate() {
                if let (Some(to), Some(from)) = (odd.get(place).copied(), odd.get_mut(places)) {
                    *from = to;
                }
                places += usize::from(*number != N::default());
            }
            put_bits(out, numbers.iter().map(|number| u64::from(*number != N::default())), 1);
            return put_split(out, odd.get(..places).unwrap_or_default(), k);
        }
    }
    // Packed is read faster, so a saving of under a sixty-fourth is left.
    if split + split / 64 < packed || width > 63 {
        out.push(SPLIT << 6 | k);
        put_split(out, numbers, k);
    } else {
        out.push(PACKED << 6 | low_byte(u64::from(width)));
        put_bits(out, numbers.iter().map(|number| number.wide()), width);
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

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
pub(super) const fn low_half(value: u64) -> u32 {
    value as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the low word is meant")]
const fn low_word(value: u128) -> u64 {
    value as u64
}

/// The k that makes the least bits as kind 1, and how many, for `count` of these numbers; the others are 0. The widest has
/// `width` bits.
fn best_split<N: Number>(numbers: &[N], count: u64, width: u32) -> (u8, u64) {
    let lengths: u32 = numbers.iter().map(|number| number.length()).sum();
    // The mean length tells the scale whatever the outliers; the best k is next to it or one below.
    let near = u64::from(lengths).checked_div(count).unwrap_or(0);
    let least = u32::try_from(near).unwrap_or(0).saturating_sub(2);
    let mut rests = [0u32; TRIED];
    if width > least + 5 {
        for number in numbers {
            for (k, sum) in (least..).zip(&mut rests) {
                *sum += number.rest(k);
            }
        }
    } else {
        // None is cut at 32.
        for number in numbers {
            for (k, sum) in (least..).zip(&mut rests) {
                *sum += number.above(k);
            }
        }
    }
    let mut best = (0, u64::MAX);
    for (k, rests) in (least..64).zip(rests) {
        let mut cost = count * (u64::from(k) + 1) + u64::from(rests);
        if width > k + 5 {
            let over = numbers.iter().filter_map(|number| (number.wide() >> k).checked_sub(u64::from(LONG)));
            cost += over.map(|over| 8 * u64::from(bits(over) / 7 + 1)).sum::<u64>();
        }
        if cost < best.1 {
            best = (low_byte(u64::from(k)), cost);
        }
    }
    best
}

fn put_split<N: Number>(out: &mut Vec<u8>, numbers: &[N], k: u8) {
    let mask = (1u64 << k) - 1;
    put_bits(out, numbers.iter().map(|number| number.wide() & mask), u32::from(k));
    let (mut word, mut at) = (0u64, 0u32);
    let mut longest = 0;
    for number in numbers {
        let rest = number.rest(u32::from(k));
        longest = rest.max(longest);
        at += rest;
        if at >= 64 {
            out.extend_from_slice(&word.to_le_bytes());
            word = 0;
            at -= 64;
        }
        word |= 1 << at;
        at += 1;
    }
    out.extend(word.to_le_bytes().iter().take(at.div_ceil(8) as usize));
    if longest == u32::from(LONG) {
        for over in numbers.iter().filter_map(|number| (number.wide() >> k).checked_sub(u64::from(LONG))) {
            put_varint(out, over);
        }
    }
}

/// Appends the low bits of each; there are none above.
fn put_bits(out: &mut Vec<u8>, numbers: impl Iterator<Item = u64>, width: u32) {
    if width == 0 {
        return;
    }
    let (mut word, mut held) = (0u64, 0u32);
    for number in numbers {
        word |= number << held;
        held += width;
        if held >= 64 {
            out.extend_from_slice(&word.to_le_bytes());
            held -= 64;
            word = number.checked_shr(width - held).unwrap_or(0);
        }
    }
    out.extend(word.to_le_bytes().iter().take(held.div_ceil(8) as usize));
}

/// Reads a mini of the slots' length, at most 128.
pub(super) fn take_mini(reader: &mut Reader<'_>, slots: &mut [u64]) -> Result<(), Damage> {
    take_mini_as(reader, slots, |number| number)
}

/// Reads a mini of the slots' length, at most 128, and makes something of each number while it is at hand.
#[inline]
pub(super) fn take_mini_as(
    reader: &mut Reader<'_>,
    slots: &mut [u64],
    make: impl Fn(u64) -> u64,
) -> Result<(), Damage> {
    let tag = reader.u8()?;
    let k = tag & 63;
    match tag >> 6 {
        PACKED => take_bits(reader, slots, k)?,
        SPLIT => return take_split(reader, slots, k, make),
        ODD => take_odd(reader, slots, k)?,
        _ => return Err(reader.damage("unknown kind of mini")),
    }
    for slot in slots {
        *slot = make(*slot);
    }
    Ok(())
}

/// Reads the first numbers of a mini of `count`, as many as there are slots: for less than all where they are few. The
/// reader then stands anywhere.
pub(super) fn take_first(reader: &mut Reader<'_>, count: usize, slots: &mut [u64]) -> Result<(), Damage> {
    let count = count.min(MINI);
    let start = *reader;
    let tag = reader.u8()?;
    let k = tag & 63;
    match tag >> 6 {
        PACKED => return take_bits(reader, slots, k),
        SPLIT => {
            let mut rests = *reader;
            take_bits(reader, slots, k)?;
            rests.take((count * usize::from(k)).div_ceil(8))?;
            if add_rests(&mut rests, slots, k)? {
                return Ok(());
            }
        }
        _ => {}
    }
    // What is odd or long stands behind all of them.
    *reader = start;
    let mut all = [0; MINI];
    let all = all.get_mut(..count).unwrap_or_default();
    take_mini(reader, all)?;
    for (slot, number) in slots.iter_mut().zip(all) {
        *slot = *number;
    }
    Ok(())
}

fn take_odd(reader: &mut Reader<'_>, slots: &mut [u64], k: u8) -> Result<(), Damage> {
    let mut marks = [0u64; 2];
    words(reader.take(slots.len().div_ceil(8))?, &mut marks);
    if let (1.., [low, high]) = (MINI - slots.len(), &mut marks) {
        // Bits beyond the last number mean nothing.
        let used = (1u128 << slots.len()) - 1;
        (*low, *high) = (*low & low_word(used), *high & low_word(used >> 64));
    }
    let mut odd = [0u64; MINI];
    let count = marks.iter().map(|marks| marks.count_ones()).sum::<u32>() as usize;
    take_split(reader, odd.get_mut(..count).unwrap_or_default(), k, |number| number)?;
    let mut next = 0;
    for (slots, mut marks) in slots.chunks_mut(64).zip(marks) {
        for slot in slots {
            // No branch: which numbers are odd is not to be foreseen.
            let marked = marks & 1;
            *slot = odd[next & (MINI - 1)].wrapping_add(1) & marked.wrapping_neg();
            next += usize::from(marked == 1);
            marks >>= 1;
        }
    }
    Ok(())
}

/// Little-endian words, at most as many as there are slots; a short last one is filled up with zeros.
fn words(bytes: &[u8], slots: &mut [u64]) {
    for (slot, bytes) in slots.iter_mut().zip(bytes.chunks(8)) {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(bytes) {
            *to = *from;
        }
        *slot = u64::from_le_bytes(word);
    }
}

/// One function for each width that one load can hold, so that all places and shifts are constants.
macro_rules! unpack_as {
    ($width:expr, $bytes:expr, $slots:expr, $($known:literal)*) => {
        match $width {
            $($known => unpack::<$known>($bytes, $slots),)*
            width => unpack_wide(width, $bytes, $slots),
        }
    };
}

#[inline]
fn take_bits(reader: &mut Reader<'_>, slots: &mut [u64], width: u8) -> Result<(), Damage> {
    if width == 0 {
        slots.fill(0);
        return Ok(());
    }
    // More than these bits may be loaded, never more is looked at.
    let bytes = reader.rest();
    reader.take((slots.len() * usize::from(width)).div_ceil(8))?;
    unpack_as!(width, bytes, slots,
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28
        29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56);
    Ok(())
}

fn unpack<const WIDTH: usize>(bytes: &[u8], slots: &mut [u64]) {
    let (groups, tail) = slots.as_chunks_mut::<8>();
    // The last load of a group begins in it and may end eight bytes behind it.
    let ample = groups.len().min(bytes.len().saturating_sub(8) / WIDTH);
    let (ample_groups, groups) = groups.split_at_mut(ample);
    for (group, window) in
        ample_groups.iter_mut().zip((0..).step_by(WIDTH).map(|at| bytes.get(at..at + WIDTH + 8)))
    {
        unpack_group::<WIDTH>(window.unwrap_or_default(), group);
    }
    if groups.is_empty() && tail.is_empty() {
        return;
    }
    // Not more than WIDTH + 7 bytes are left, or all groups are done.
    let mut padded = [0; 192];
    for (to, from) in padded.iter_mut().take(2 * WIDTH + 8).zip(bytes.iter().skip(ample * WIDTH)) {
        *to = *from;
    }
    let mut windows = (0..).step_by(WIDTH).map(|at| padded.get(at..at + WIDTH + 8).unwrap_or_default());
    for (group, window) in groups.iter_mut().zip(windows.by_ref()) {
        unpack_group::<WIDTH>(window, group);
    }
    if let (false, Some(window)) = (tail.is_empty(), windows.next()) {
        let mut group = [0; 8];
        unpack_group::<WIDTH>(window, &mut group);
        tail.copy_from_slice(group.get(..tail.len()).unwrap_or_default());
    }
}

#[inline(always)]
fn unpack_group<const WIDTH: usize>(window: &[u8], group: &mut [u64; 8]) {
    for (place, slot) in group.iter_mut().enumerate() {
        let (at, shift) = (place * WIDTH / 8, place * WIDTH % 8);
        let word = window.get(at..at + 8).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        *slot = u64::from_le_bytes(word) >> shift & ((1 << WIDTH) - 1);
    }
}

fn unpack_wide(width: u8, bytes: &[u8], slots: &mut [u64]) {
    let width = usize::from(width);
    for (place, slot) in slots.iter_mut().enumerate() {
        let (at, shift) = (place * width / 8, place * width % 8);
        let mut held = [0; 2];
        words(bytes.get(at..).unwrap_or_default(), &mut held);
        let [low, high] = held;
        *slot = (low >> shift | high << 1 << (63 - shift)) & ((1 << width) - 1);
    }
}

/// What a byte of counted out zeros says.
#[derive(Clone, Copy)]
struct Counted {
    /// For each 1 bit the 0 bits before it, a byte each, low first.
    zeros: u64,
    /// 1 bits.
    ones: u8,
    /// 0 bits above the highest 1.
    open: u8,
    /// All bits if the byte is 0: then the zeros before it are still open.
    keep: u8,
}

static COUNTED: [Counted; 256] = counted();

const fn counted() -> [Counted; 256] {
    let mut table = [Counted { zeros: 0, ones: 0, open: 8, keep: 0xff }; 256];
    let mut byte = 1;
    while byte < 256 {
        let (mut zeros, mut ones, mut run, mut bit) = (0u64, 0, 0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                zeros |= (run as u64) << (8 * ones);
                ones += 1;
                run = 0;
            } else {
                run += 1;
            }
            bit += 1;
        }
        table[byte] = Counted { zeros, ones, open: run, keep: 0 };
        byte += 1;
    }
    table
}

/// Counts the rests of numbers out of zero bits; answers the longest run of zeros that a byte left open.
#[inline]
fn count_out(reader: &mut Reader<'_>, rests: &mut [u8; MINI + 8], count: usize) -> Result<u8, Damage> {
    let (mut done, mut used, mut open, mut longest) = (0, 0, 0u8, 0);
    let mut bytes = reader.rest().iter();
    while done < count {
        let byte = bytes.next().ok_or_else(|| reader.damage("cut short"))?;
        let counted = &COUNTED[usize::from(*byte)];
        if let Some(place) = rests.get_mut(done..done + 8) {
            place.copy_from_slice(&(counted.zeros + u64::from(open)).to_le_bytes());
        }
        done += usize::from(counted.ones);
        open = counted.open + (open & counted.keep);
        longest = open.max(longest);
        if open > LONG {
            return Err(reader.damage("more zero bits than are counted out"));
        }
        used += 1;
    }
    reader.take(used)?;
    Ok(longest)
}

/// Adds the rests of the first numbers of a mini; answers false, and adds none, where one may be long.
fn add_rests(reader: &mut Reader<'_>, slots: &mut [u64], k: u8) -> Result<bool, Damage> {
    let mut rests = [0u8; MINI + 8];
    if count_out(reader, &mut rests, slots.len())? > LONG - 8 {
        return Ok(false);
    }
    for (slot, rest) in slots.iter_mut().zip(&rests) {
        *slot |= u64::from(*rest) << k;
    }
    Ok(true)
}

#[inline]
fn take_split(
    reader: &mut Reader<'_>,
    slots: &mut [u64],
    k: u8,
    make: impl Fn(u64) -> u64,
) -> Result<(), Damage> {
    take_bits(reader, slots, k)?;
    let mut rests = [0u8; MINI + 8];
    let longest = count_out(reader, &mut rests, slots.len())?;
    if longest <= LONG - 8 {
        for (slot, rest) in slots.iter_mut().zip(&rests) {
            *slot = make(*slot | u64::from(*rest) << k);
        }
        return Ok(());
    }
    // So many in a row leave whole bytes open.
    for (slot, rest) in slots.iter_mut().zip(&rests) {
        *slot |= u64::from(*rest) << k;
        match rest.cmp(&LONG) {
            Ordering::Less => {}
            Ordering::Equal => *slot = slot.wrapping_add(reader.varint()? << k),
            Ordering::Greater => return Err(reader.damage("more zero bits than are counted out")),
        }
        *slot = make(*slot);
    }
    Ok(())
}
