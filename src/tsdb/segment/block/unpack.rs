//! Decodes minis; [`super::pack`] describes and encodes them.
//!
//! Nearly all numbers are narrow. These are unpacked eight at a time into u32, which takes half the
//! memory of u64.

use std::cmp::Ordering;

use super::pack::{LONG, MINI, ODD, PACKED, SPLIT, low_half};
use crate::tsdb::codec::Reader;
use crate::tsdb::error::Damage;

/// Bits of a narrow number at most.
const NARROW_BITS: u8 = 24;

/// The numbers of a mini if all of them are at most 2^24. Slots behind the last number have any
/// content.
pub(super) type NarrowNumbers = [u32; MINI];

/// Decodes the first `wanted` numbers of a mini of `count` if all are narrow, and returns whether
/// they are. Otherwise the reader does not move. If fewer than all are wanted, the position of the
/// reader is unspecified afterwards.
#[inline]
pub(super) fn take_narrow(
    reader: &mut Reader<'_>,
    count: usize,
    wanted: usize,
    numbers: &mut NarrowNumbers,
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

/// Unpacks `count` numbers of at most 24 bits.
#[inline]
fn take_narrow_bits(
    reader: &mut Reader<'_>,
    count: usize,
    numbers: &mut NarrowNumbers,
    width: u8,
) -> Result<(), Damage> {
    // Loads may reach beyond these bits.
    let bytes = reader.rest();
    reader.take((count * usize::from(width)).div_ceil(8))?;
    let (groups, _) = numbers.as_chunks_mut::<8>();
    unpack_narrow(bytes, groups.get_mut(..count.div_ceil(8)).unwrap_or_default(), width);
    Ok(())
}

/// Adds the rests to the first `count` numbers. Returns false if a rest may be long, or a number is
/// not narrow.
#[inline]
fn add_narrow_rests(
    reader: &mut Reader<'_>,
    count: usize,
    numbers: &mut NarrowNumbers,
    k: u8,
) -> Result<bool, Damage> {
    let mut rests = [0u8; MINI + 8];
    if count_out(reader, &mut rests, count)? > LONG - 8 {
        return Ok(false);
    }
    let mut all = 0;
    for (number, rest) in numbers.iter_mut().zip(&rests) {
        // The result is below 2^31.
        *number |= u32::from(*rest) << k;
        all |= *number;
    }
    Ok(all >> NARROW_BITS == 0)
}

/// Decodes a mini of kind 2 with narrow numbers. Returns false if a number is not narrow.
fn take_narrow_odd(
    reader: &mut Reader<'_>,
    count: usize,
    numbers: &mut NarrowNumbers,
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
            // Without a branch, since the pattern of odd numbers is unpredictable.
            let marked = u32::from(marks & 1 == 1);
            *number = (odd[next & (MINI - 1)] + 1) & marked.wrapping_neg();
            next += marked as usize;
            marks >>= 1;
        }
    }
    Ok(true)
}

/// Decodes one bit for each of `count` numbers. Bits beyond the last number are cleared.
fn take_marks(reader: &mut Reader<'_>, count: usize) -> Result<[u64; 2], Damage> {
    let mut marks = [0u64; 2];
    words(reader.take(count.div_ceil(8))?, &mut marks);
    let [low, high] = marks;
    let used = |bits: usize| if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    Ok([low & used(count), high & used(count.saturating_sub(64))])
}

/// Decodes a mini of `slots.len()` numbers, at most 128.
pub(super) fn take_mini(reader: &mut Reader<'_>, slots: &mut [u64]) -> Result<(), Damage> {
    take_mini_as(reader, slots, |number| number)
}

/// Decodes a mini of `slots.len()` numbers, at most 128, and applies `make` to each.
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

/// Returns whether numbers of this width are faster to unpack as narrow ones.
const fn is_narrow(slots: &[u64], width: u8) -> bool {
    width <= NARROW_BITS && slots.len() > 8
}

/// Decodes the first `slots.len()` numbers of a mini of `count`, which for few numbers is faster
/// than decoding all. The position of the reader is unspecified afterwards.
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
    // Odd numbers and long rests are stored behind all others, so the whole mini is decoded.
    *reader = start;
    let mut all = [0; MINI];
    let all = all.get_mut(..count).unwrap_or_default();
    take_mini(reader, all)?;
    for (slot, number) in slots.iter_mut().zip(all) {
        *slot = *number;
    }
    Ok(())
}

/// Decodes a mini of kind 2.
fn take_odd(reader: &mut Reader<'_>, slots: &mut [u64], k: u8) -> Result<(), Damage> {
    let marks = take_marks(reader, slots.len())?;
    let mut odd = [0u64; MINI];
    let count = marks.iter().map(|marks| marks.count_ones()).sum::<u32>() as usize;
    take_split(reader, odd.get_mut(..count).unwrap_or_default(), k, |number| number)?;
    let mut next = 0;
    for (slots, mut marks) in slots.chunks_mut(64).zip(marks) {
        for slot in slots {
            // Without a branch, since the pattern of odd numbers is unpredictable.
            let marked = marks & 1;
            *slot = odd[next & (MINI - 1)].wrapping_add(1) & marked.wrapping_neg();
            next += usize::from(marked == 1);
            marks >>= 1;
        }
    }
    Ok(())
}

/// Loads little-endian words into the slots. A last word that is short is filled up with zeros.
fn words(bytes: &[u8], slots: &mut [u64]) {
    for (slot, bytes) in slots.iter_mut().zip(bytes.chunks(8)) {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(bytes) {
            *to = *from;
        }
        *slot = u64::from_le_bytes(word);
    }
}

/// Instantiates a function for each width, so that all offsets and shifts are constants.
macro_rules! by_width {
    ($function:ident, $width:expr, $bytes:expr, $slots:expr, $other:expr, $($literal:literal)*) => {
        match $width {
            $($literal => $function::<$literal>($bytes, $slots),)*
            _ => $other,
        }
    };
}

/// Unpacks `slots.len()` numbers of `width` bits.
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
    // Loads may reach beyond these bits, but the result does not depend on the later bits.
    let bytes = reader.rest();
    reader.take((slots.len() * usize::from(width)).div_ceil(8))?;
    by_width!(unpack, width, bytes, slots, unpack_wide(width, bytes, slots),
        25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56);
    Ok(())
}

/// Unpacks numbers of at most 24 bits in groups of eight.
fn unpack_narrow(bytes: &[u8], groups: &mut [[u32; 8]], width: u8) {
    // Unpacks to bytes or u16 first, which the compiler can widen in vectors.
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

/// Calls `each` with the bytes of each group. Group `i` begins at `i * stride`, and the slice has
/// `reach` bytes.
#[inline(always)]
fn windows(bytes: &[u8], groups: usize, stride: usize, reach: usize, mut each: impl FnMut(usize, &[u8])) {
    let ample = bytes.len().checked_sub(reach).map_or(0, |most| most / stride + 1).min(groups);
    for (group, at) in (0..ample).zip((0..).step_by(stride)) {
        each(group, bytes.get(at..at + reach).unwrap_or_default());
    }
    if ample < groups {
        // Fewer bytes are left than a window has, so they are padded with zeros.
        let mut padded = [0; 64];
        let left = bytes.get(ample * stride..).unwrap_or_default();
        let left = left.get(..left.len().min(padded.len())).unwrap_or_default();
        padded.get_mut(..left.len()).unwrap_or_default().copy_from_slice(left);
        for (group, at) in (ample..groups).zip((0..).step_by(stride)) {
            each(group, padded.get(at..at + reach).unwrap_or_default());
        }
    }
}

/// Loads eight bytes as a little-endian integer; 0 beyond the end of the window.
#[inline(always)]
fn load(window: &[u8], at: usize) -> u64 {
    window.get(at..at + 8).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_le_bytes)
}

/// Unpacks numbers into a byte each.
fn unpack_bytes<const WIDTH: usize>(bytes: &[u8], lanes: &mut [u8]) {
    let (eights, _) = lanes.as_chunks_mut::<8>();
    windows(bytes, eights.len(), WIDTH, 8, |group, window| {
        if let Some(eight) = eights.get_mut(group) {
            let word = spread::<WIDTH, 8>(spread::<WIDTH, 8>(spread::<WIDTH, 8>(load(window, 0), 4), 2), 1);
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
                .map(|word| spread::<WIDTH, 16>(spread::<WIDTH, 16>(word, 2), 1).to_le_bytes());
        }
    });
}

/// Unpacks numbers, two with each load.
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

/// Spreads packed numbers. Each part of `2 * half` lanes has `2 * half` packed numbers at its low
/// end; this moves the upper half of them to the upper half of the lanes. After the call with a
/// `half` of 1 each number has its own lane.
#[inline(always)]
const fn spread<const WIDTH: usize, const LANE: usize>(word: u64, half: usize) -> u64 {
    let mut low = (1u64 << (half * WIDTH)) - 1;
    let mut part = 2 * half * LANE;
    while part < 64 {
        low |= low << part;
        part *= 2;
    }
    word & low | word << (half * (LANE - WIDTH)) & low << (half * LANE)
}

/// Unpacks numbers of 25 to 56 bits.
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
    // At most WIDTH + 7 bytes are left, or all groups are done.
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

/// Unpacks eight numbers, each with one load.
#[inline(always)]
fn unpack_group<const WIDTH: usize>(window: &[u8], group: &mut [u64; 8]) {
    for (index, slot) in group.iter_mut().enumerate() {
        let (at, shift) = (index * WIDTH / 8, index * WIDTH % 8);
        let word = window.get(at..at + 8).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        *slot = u64::from_le_bytes(word) >> shift & ((1 << WIDTH) - 1);
    }
}

fn widen(slots: &mut [u64], numbers: &NarrowNumbers) {
    for (slot, number) in slots.iter_mut().zip(numbers) {
        *slot = u64::from(*number);
    }
}

/// Unpacks at most eight numbers, each with one load.
fn unpack_few(width: usize, bytes: &[u8], slots: &mut [u64]) {
    let reach = (slots.len() * width).div_ceil(8) + 8;
    windows(bytes, 1, 64, reach, |_, window| {
        for (index, slot) in slots.iter_mut().enumerate() {
            *slot = load(window, index * width / 8) >> (index * width % 8) & ((1 << width) - 1);
        }
    });
}

/// Unpacks numbers of more than 56 bits, each with two loads.
fn unpack_wide(width: u8, bytes: &[u8], slots: &mut [u64]) {
    let width = usize::from(width);
    for (index, slot) in slots.iter_mut().enumerate() {
        let (at, shift) = (index * width / 8, index * width % 8);
        let mut held = [0; 2];
        words(bytes.get(at..).unwrap_or_default(), &mut held);
        let [low, high] = held;
        *slot = (low >> shift | high << 1 << (63 - shift)) & ((1 << width) - 1);
    }
}

/// The unary codes in one byte.
#[derive(Clone, Copy)]
struct UnaryByte {
    /// For each 1 bit the number of 0 bits before it, one byte each, low first.
    zeros: u64,
    /// Number of 1 bits.
    ones: u8,
    /// Number of 0 bits above the highest 1 bit.
    open: u8,
    /// All bits set if the byte is 0: the run of zeros before it then continues.
    carry_mask: u8,
}

static UNARY_CODES: [UnaryByte; 256] = unary_codes();

/// Computes the table of unary codes by byte.
const fn unary_codes() -> [UnaryByte; 256] {
    let mut table = [UnaryByte { zeros: 0, ones: 0, open: 8, carry_mask: 0xff }; 256];
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
        table[byte] = UnaryByte { zeros, ones, open: run, carry_mask: 0 };
        byte += 1;
    }
    table
}

/// Decodes the unary rests of `count` numbers. Returns the longest run of zeros that was open at
/// the end of a byte.
#[inline]
fn count_out(reader: &mut Reader<'_>, rests: &mut [u8; MINI + 8], count: usize) -> Result<u8, Damage> {
    let (mut done, mut used, mut open, mut longest) = (0, 0, 0u8, 0);
    let mut bytes = reader.rest().iter();
    while done < count {
        let byte = bytes.next().ok_or_else(|| reader.damage("cut short"))?;
        let unary = &UNARY_CODES[usize::from(*byte)];
        if let Some(index) = rests.get_mut(done..done + 8) {
            index.copy_from_slice(&(unary.zeros + u64::from(open)).to_le_bytes());
        }
        done += usize::from(unary.ones);
        open = unary.open + (open & unary.carry_mask);
        longest = open.max(longest);
        if open > LONG {
            return Err(reader.damage("unary code too long"));
        }
        used += 1;
    }
    reader.take(used)?;
    Ok(longest)
}

/// Adds the rests to the first numbers of a mini. Returns false, and adds none, if a rest may be
/// long.
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

/// Decodes a mini of kind 1, and applies `make` to each number.
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
    // An open run exceeded `LONG - 8`, so a rest may be `LONG`.
    for (slot, rest) in slots.iter_mut().zip(&rests) {
        *slot |= u64::from(*rest) << k;
        match rest.cmp(&LONG) {
            Ordering::Less => {}
            Ordering::Equal => *slot = slot.wrapping_add(reader.varint()? << k),
            Ordering::Greater => return Err(reader.damage("unary code too long")),
        }
        *slot = make(*slot);
    }
    Ok(())
}
