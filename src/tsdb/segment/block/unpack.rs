//! Reads minis, which [`super::pack`] draws and writes.
//!
//! Nearly all numbers are narrow: those are unpacked eight at a time into four bytes each, half of what others take.

use std::cmp::Ordering;

use super::pack::{LONG, MINI, ODD, PACKED, SPLIT, low_half};
use crate::tsdb::codec::Reader;
use crate::tsdb::error::Damage;

/// Narrow numbers have so many bits at most.
const NARROW_BITS: u8 = 24;

/// The numbers of a mini where all of them are below 2^24, or 2^24 itself. Behind the last one anything may stand.
pub(super) type Narrow = [u32; MINI];

/// Reads the first `wanted` numbers of a mini of `count` if they are narrow; answers whether they are. Where not, the reader
/// stands where it stood; behind fewer than all, it stands anywhere.
#[inline]
pub(super) fn take_narrow(
    reader: &mut Reader<'_>,
    count: usize,
    wanted: usize,
    numbers: &mut Narrow,
) -> Result<bool, Damage> {
    let start = *reader;
    let (count, wanted) = (count.min(MINI), wanted.min(count).min(MINI));
    let tag = reader.u8()?;
    let k = tag & 63;
    let narrow = match tag >> 6 {
        PACKED if k <= NARROW_BITS => {
            take_narrow_bits(reader, count, numbers, k)?;
            true
        }
        SPLIT if k < NARROW_BITS => {
            take_narrow_bits(reader, count, numbers, k)?;
            add_narrow_rests(reader, wanted, numbers, k)?
        }
        ODD if k < NARROW_BITS => take_narrow_odd(reader, count, numbers, k)?,
        _ => false,
    };
    if !narrow {
        *reader = start;
    }
    Ok(narrow)
}

/// Reads so many numbers of at most 24 bits.
#[inline]
fn take_narrow_bits(
    reader: &mut Reader<'_>,
    count: usize,
    numbers: &mut Narrow,
    width: u8,
) -> Result<(), Damage> {
    // More than these bits may be loaded.
    let bytes = reader.rest();
    reader.take((count * usize::from(width)).div_ceil(8))?;
    let (groups, _) = numbers.as_chunks_mut::<8>();
    unpack_narrow(bytes, groups.get_mut(..count.div_ceil(8)).unwrap_or_default(), width);
    Ok(())
}

/// Adds the rests of the first `count` numbers; answers false where one may be long, or no number narrow.
#[inline]
fn add_narrow_rests(
    reader: &mut Reader<'_>,
    count: usize,
    numbers: &mut Narrow,
    k: u8,
) -> Result<bool, Damage> {
    let mut rests = [0u8; MINI + 8];
    if count_out(reader, &mut rests, count)? > LONG - 8 {
        return Ok(false);
    }
    let mut all = 0;
    for (number, rest) in numbers.iter_mut().zip(&rests) {
        // Below 2^31.
        *number |= u32::from(*rest) << k;
        all |= *number;
    }
    Ok(all >> NARROW_BITS == 0)
}

fn take_narrow_odd(
    reader: &mut Reader<'_>,
    count: usize,
    numbers: &mut Narrow,
    k: u8,
) -> Result<bool, Damage> {
    let marks = take_marks(reader, count)?;
    let mut odd = [0u32; MINI];
    let marked = marks.iter().map(|marks| marks.count_ones()).sum::<u32>() as usize;
    take_narrow_bits(reader, marked, &mut odd, k)?;
    if !add_narrow_rests(reader, marked, &mut odd, k)? {
        return Ok(false);
    }
    let mut next = 0;
    for (numbers, mut marks) in numbers.chunks_mut(64).zip(marks) {
        for number in numbers {
            // No branch: which numbers are odd is not to be foreseen.
            let marked = u32::from(marks & 1 == 1);
            *number = (odd[next & (MINI - 1)] + 1) & marked.wrapping_neg();
            next += marked as usize;
            marks >>= 1;
        }
    }
    Ok(true)
}

/// One bit for each of so many numbers; bits beyond the last one mean nothing and are not there.
fn take_marks(reader: &mut Reader<'_>, count: usize) -> Result<[u64; 2], Damage> {
    let mut marks = [0u64; 2];
    words(reader.take(count.div_ceil(8))?, &mut marks);
    let [low, high] = marks;
    let used = |bits: usize| if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    Ok([low & used(count), high & used(count.saturating_sub(64))])
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
        PACKED if is_narrow(slots, k) => {
            let mut numbers = [0; MINI];
            take_narrow_bits(reader, slots.len().min(MINI), &mut numbers, k)?;
            for (slot, number) in slots.iter_mut().zip(numbers) {
                *slot = make(u64::from(number));
            }
            return Ok(());
        }
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

/// Whether numbers of this width are better unpacked as narrow ones.
const fn is_narrow(slots: &[u64], width: u8) -> bool {
    width <= NARROW_BITS && slots.len() > 8
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
    let marks = take_marks(reader, slots.len())?;
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

/// One function for each width, so that all places and shifts are constants.
macro_rules! by_width {
    ($function:ident, $width:expr, $bytes:expr, $slots:expr, $other:expr, $($known:literal)*) => {
        match $width {
            $($known => $function::<$known>($bytes, $slots),)*
            _ => $other,
        }
    };
}

#[inline]
fn take_bits(reader: &mut Reader<'_>, slots: &mut [u64], width: u8) -> Result<(), Damage> {
    if slots.len() <= 8 && (1..=56).contains(&width) {
        let bytes = reader.rest();
        reader.take((slots.len() * usize::from(width)).div_ceil(8))?;
        unpack_few(usize::from(width), bytes, slots);
        return Ok(());
    }
    if width <= NARROW_BITS {
        let mut numbers = [0; MINI];
        take_narrow_bits(reader, slots.len().min(MINI), &mut numbers, width)?;
        widen(slots, &numbers);
        return Ok(());
    }
    // More than these bits may be loaded, never more is looked at.
    let bytes = reader.rest();
    reader.take((slots.len() * usize::from(width)).div_ceil(8))?;
    by_width!(unpack, width, bytes, slots, unpack_wide(width, bytes, slots),
        25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56);
    Ok(())
}

fn unpack_narrow(bytes: &[u8], groups: &mut [[u32; 8]], width: u8) {
    // By way of bytes, and pairs of them, which become four bytes several at a time.
    let mut lanes = [0u8; 2 * MINI];
    match width {
        0..9 => {
            let lanes = lanes.get_mut(..8 * groups.len()).unwrap_or_default();
            by_width!(unpack_bytes, width, bytes, lanes, (), 1 2 3 4 5 6 7 8);
            for (number, lane) in groups.as_flattened_mut().iter_mut().zip(lanes) {
                *number = u32::from(*lane);
            }
        }
        9..17 => {
            let lanes = lanes.get_mut(..16 * groups.len()).unwrap_or_default();
            by_width!(unpack_pairs, width, bytes, lanes, (), 9 10 11 12 13 14 15 16);
            let (pairs, _) = lanes.as_chunks::<2>();
            for (number, pair) in groups.as_flattened_mut().iter_mut().zip(pairs) {
                *number = u32::from(u16::from_le_bytes(*pair));
            }
        }
        _ => by_width!(unpack_eights, width, bytes, groups, (), 17 18 19 20 21 22 23 24),
    }
}

/// Calls `each` with the bytes of each of so many groups, `apart` from each other, and with as many behind them as make
/// `reach` of them.
#[inline(always)]
fn windows(bytes: &[u8], groups: usize, apart: usize, reach: usize, mut each: impl FnMut(usize, &[u8])) {
    let ample = bytes.len().checked_sub(reach).map_or(0, |most| most / apart + 1).min(groups);
    for (group, at) in (0..ample).zip((0..).step_by(apart)) {
        each(group, bytes.get(at..at + reach).unwrap_or_default());
    }
    if ample < groups {
        // Fewer bytes are left than one window has.
        let mut padded = [0; 64];
        let left = bytes.get(ample * apart..).unwrap_or_default();
        let left = left.get(..left.len().min(padded.len())).unwrap_or_default();
        padded.get_mut(..left.len()).unwrap_or_default().copy_from_slice(left);
        for (group, at) in (ample..groups).zip((0..).step_by(apart)) {
            each(group, padded.get(at..at + reach).unwrap_or_default());
        }
    }
}

#[inline(always)]
fn load(window: &[u8], at: usize) -> u64 {
    window.get(at..at + 8).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_le_bytes)
}

/// Unpacks numbers into a byte each.
fn unpack_bytes<const WIDTH: usize>(bytes: &[u8], lanes: &mut [u8]) {
    let (eights, _) = lanes.as_chunks_mut::<8>();
    windows(bytes, eights.len(), WIDTH, 8, |group, window| {
        if let Some(eight) = eights.get_mut(group) {
            let word = apart::<WIDTH, 8>(apart::<WIDTH, 8>(apart::<WIDTH, 8>(load(window, 0), 4), 2), 1);
            *eight = word.to_le_bytes();
        }
    });
}

/// Unpacks numbers into two bytes each.
fn unpack_pairs<const WIDTH: usize>(bytes: &[u8], lanes: &mut [u8]) {
    let (fours, _) = lanes.as_chunks_mut::<8>();
    let (eights, _) = fours.as_chunks_mut::<2>();
    windows(bytes, eights.len(), WIDTH, WIDTH / 2 + 8, |group, window| {
        if let Some(eight) = eights.get_mut(group) {
            *eight = [load(window, 0), load(window, WIDTH / 2) >> (WIDTH % 2 * 4)]
                .map(|word| apart::<WIDTH, 16>(apart::<WIDTH, 16>(word, 2), 1).to_le_bytes());
        }
    });
}

/// Unpacks numbers, two of which one load holds.
fn unpack_eights<const WIDTH: usize>(bytes: &[u8], groups: &mut [[u32; 8]]) {
    let mask = (1 << WIDTH) - 1;
    windows(bytes, groups.len(), WIDTH, WIDTH * 6 / 8 + 8, |group, window| {
        let pair = |at: usize| {
            let word = load(window, at * WIDTH / 8) >> (at * WIDTH % 8);
            [low_half(word & mask), low_half(word >> WIDTH & mask)]
        };
        let ([a, b], [c, d], [e, f], [g, h]) = (pair(0), pair(2), pair(4), pair(6));
        if let Some(group) = groups.get_mut(group) {
            *group = [a, b, c, d, e, f, g, h];
        }
    });
}

/// Where numbers of a word begin so many at a time in each of its parts: moves the upper half of each part to where it
/// belongs, each number having a lane in the end.
#[inline(always)]
const fn apart<const WIDTH: usize, const LANE: usize>(word: u64, half: usize) -> u64 {
    let mut low = (1u64 << (half * WIDTH)) - 1;
    let mut part = 2 * half * LANE;
    while part < 64 {
        low |= low << part;
        part *= 2;
    }
    word & low | word << (half * (LANE - WIDTH)) & low << (half * LANE)
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

fn widen(slots: &mut [u64], numbers: &Narrow) {
    for (slot, number) in slots.iter_mut().zip(numbers) {
        *slot = u64::from(*number);
    }
}

/// Unpacks a handful of numbers, each of which one load holds.
fn unpack_few(width: usize, bytes: &[u8], slots: &mut [u64]) {
    let reach = (slots.len() * width).div_ceil(8) + 8;
    windows(bytes, 1, 64, reach, |_, window| {
        for (place, slot) in slots.iter_mut().enumerate() {
            *slot = load(window, place * width / 8) >> (place * width % 8) & ((1 << width) - 1);
        }
    });
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
    let mut rests = [0u8; MINI + 8];
    if is_narrow(slots, k) {
        let mut numbers = [0; MINI];
        take_narrow_bits(reader, slots.len().min(MINI), &mut numbers, k)?;
        if count_out(reader, &mut rests, slots.len())? <= LONG - 8 {
            for ((slot, number), rest) in slots.iter_mut().zip(numbers).zip(&rests) {
                *slot = make(u64::from(number) | u64::from(*rest) << k);
            }
            return Ok(());
        }
        widen(slots, &numbers);
    } else {
        take_bits(reader, slots, k)?;
        if count_out(reader, &mut rests, slots.len())? <= LONG - 8 {
            for (slot, rest) in slots.iter_mut().zip(&rests) {
                *slot = make(*slot | u64::from(*rest) << k);
            }
            return Ok(());
        }
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
