//! Lists of small numbers in few bits: groups of at most 128 numbers (minis), each with the packing
//! that is smallest for it. [`super::unpack`] reads them.
//!
//! ```text
//! mini   u8 kind << 6 | k, then for its m numbers, bits from the low end of each byte, every part
//!        padded to a byte:
//!   kind 0 packed   m x k bits (k = 0: all are 0)
//!   kind 1 split    m x k low bits; then for each the rest (number >> k) in unary, as 0 bits and
//!                   a 1, at most 32 0 bits; then for each with 32: a varint, rest - 32
//!   kind 2 odd      m bits: 1 where the number is not 0; then of those, less 1, as in kind 1
//! ```
//! Prediction errors, the usual input, take about 0.15 bits more than their entropy as kind 1 with
//! the best k (a Rice code). A few outliers make only themselves longer, not the other numbers.

use crate::tsdb::codec::put_varint;

/// Numbers of a mini at most.
pub(super) const MINI: usize = 128;
/// The longest unary code, in 0 bits.
pub(super) const LONG: u8 = 32;

/// Number of values of k that are tried.
const TRIED: usize = 4;

pub(super) const PACKED: u8 = 0;
pub(super) const SPLIT: u8 = 1;
pub(super) const ODD: u8 = 2;

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
        // Nearly all minis are narrow, and vectors hold twice as many u32 as u64.
        let mut narrow = [0u32; MINI];
        for (to, from) in narrow.iter_mut().zip(numbers) {
            *to = low_half(*from);
        }
        put_numbers(out, narrow.get(..numbers.len()).unwrap_or_default(), bits(all));
    } else {
        put_numbers(out, numbers, bits(all));
    }
}

/// The numbers of a mini that is encoded: u32 if all are below 2^31, else u64.
pub(super) trait MiniNumber: Copy + Default + PartialEq {
    /// Converts the number to u64.
    fn wide(self) -> u64;
    /// Returns the number of significant bits. Beyond 24 bits it may be one too large.
    fn length(self) -> u32;
    /// Returns the number without its low `k` bits, saturating.
    fn above(self, k: u32) -> u32;
    /// Returns the number without its low `k` bits, at most 32.
    fn rest(self, k: u32) -> u32;
    /// Returns the number less 1, or 0 for 0.
    fn less(self) -> Self;
}

impl MiniNumber for u32 {
    #[inline]
    fn wide(self) -> u64 {
        u64::from(self)
    }

    /// Uses the exponent of a float, which the compiler can vectorise.
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

impl MiniNumber for u64 {
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

/// Appends a mini. Its largest number has `width` significant bits.
fn put_numbers<N: MiniNumber>(out: &mut Vec<u8>, numbers: &[N], width: u32) {
    let count = numbers.len() as u64;
    let packed = count * u64::from(width);
    let (k, split) = best_split(numbers, count, width);
    let zeros = numbers.iter().map(|number| u32::from(*number == N::default())).sum::<u32>();
    // With fewer zeros, kind 2 cannot save the bit that it adds to each number.
    if u64::from(zeros) * 16 > count {
        let mut odd = [N::default(); MINI];
        let odd = odd.get_mut(..numbers.len()).unwrap_or_default();
        for (to, from) in odd.iter_mut().zip(numbers) {
            *to = from.less();
        }
        // Numbers that were 0 are left out, so their cost is not counted.
        let (k, rest) = best_split(odd, count - u64::from(zeros), width);
        if rest + count < packed.min(split) {
            out.push(ODD << 6 | k);
            let mut odd_count = 0;
            for (index, number) in numbers.iter().enumerate() {
                if let (Some(to), Some(from)) = (odd.get(index).copied(), odd.get_mut(odd_count)) {
                    *from = to;
                }
                odd_count += usize::from(*number != N::default());
            }
            put_bits(out, numbers.iter().map(|number| u64::from(*number != N::default())), 1);
            return put_split(out, odd.get(..odd_count).unwrap_or_default(), k);
        }
    }
    // Kind 0 is read faster, so kind 1 must save more than a sixty-fourth.
    if split + split / 64 < packed || width > 63 {
        out.push(SPLIT << 6 | k);
        put_split(out, numbers, k);
    } else {
        out.push(PACKED << 6 | low_byte(u64::from(width)));
        put_bits(out, numbers.iter().map(|number| number.wide()), width);
    }
}

/// Returns the number of significant bits.
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

/// Returns the k with which kind 1 takes the fewest bits, and that number of bits. Only `count` of
/// the numbers are stored; the others are 0. The largest has `width` significant bits.
fn best_split<N: MiniNumber>(numbers: &[N], count: u64, width: u32) -> (u8, u64) {
    let lengths: u32 = numbers.iter().map(|number| number.length()).sum();
    // The mean length estimates the scale in spite of outliers. The best k is next to it, or one
    // below.
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
        // No rest exceeds 32, so none needs to be limited.
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

/// Appends numbers as kind 1 with the given `k`, without the first byte of the mini.
fn put_split<N: MiniNumber>(out: &mut Vec<u8>, numbers: &[N], k: u8) {
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

/// Appends the low `width` bits of each number, which has no higher bits.
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
