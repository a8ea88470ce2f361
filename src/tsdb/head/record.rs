//! One full tail as bytes in the stripe's arena. Lives in memory only; the chunks of a checkpoint are
//! [`crate::tsdb::block`]'s.
//!
//! ```text
//! 0 u32 link to the record before it of the same series, ff ff ff ff: none
//! 4 u8  samples - 1 | time kind << 4 | value kind << 6
//!   times: every sample has a gap to the sample before it, gap = step + over; the step is that of the record after it
//!     kind 0 same      all over are 0
//!     kind 1 jitter    u8 width w (0..16), over of each sample, zigzag, in w bits, low bits first, padded to a byte
//!     kind 2 own       varint gap from its last sample to the first one after it, varint step, then as kind 1
//!   values: as in a mini-block
//! ```
//! No record holds a time: they are counted back from the series' last one. So a scrape that keeps its interval costs
//! one byte in 16 samples.

use super::arena::Link;
use super::slots::Bits;
use crate::tsdb::block::{self, MINI};
use crate::tsdb::codec::{Reader, put_varint};
use crate::tsdb::error::Damage;

const SAME: u8 = 0;
const JITTER: u8 = 1;
const OWN: u8 = 2;

/// Times of at most 16 samples, relative to the last one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    pub(super) len: usize,
    pub(super) step: u32,
    /// What the gap before each sample has over the step. The first one's is told by the record before it, if that has
    /// no gap of its own.
    pub(super) over: [i16; MINI],
}

impl Gaps {
    /// The gap before a sample.
    pub(super) fn before(&self, place: usize) -> i64 {
        i64::from(self.step) + self.over.get(place).copied().map_or(0, i64::from)
    }

    fn is_regular(&self) -> bool {
        self.over == [0; MINI]
    }

    /// The first time, the last one being `last`.
    pub(super) fn first(&self, last: i64) -> i64 {
        if self.is_regular() {
            let steps = i64::try_from(self.len).unwrap_or(0).saturating_sub(1);
            return last.wrapping_sub(i64::from(self.step).wrapping_mul(steps));
        }
        (1..self.len).fold(last, |at, place| at.wrapping_sub(self.before(place)))
    }

    /// The times, the last one being `last`.
    pub(super) fn times(&self, last: i64) -> [i64; MINI] {
        let mut times = [0; MINI];
        let mut at = last;
        let slots = times.get_mut(..self.len).unwrap_or_default();
        if self.is_regular() {
            for time in slots.iter_mut().rev() {
                *time = at;
                at = at.wrapping_sub(i64::from(self.step));
            }
        } else {
            for (time, over) in slots.iter_mut().zip(&self.over).rev() {
                *time = at;
                at = at.wrapping_sub(i64::from(self.step) + i64::from(*over));
            }
        }
        times
    }
}

/// What the record before is read against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newer {
    /// Its first time, and the gap before that.
    pub(super) first: i64,
    gap: i64,
    step: u32,
}

impl Newer {
    pub(super) fn new(gaps: &Gaps, first: i64) -> Newer {
        Newer { first, gap: gaps.before(0), step: gaps.step }
    }
}

/// Values of a record that is written.
#[derive(Clone, Copy)]
pub(super) enum Values<'a> {
    Bits(&'a [u64]),
    /// As a mini-block has them: kind and bytes.
    Encoded((u8, &'a [u8])),
}

/// Replaces `out` with a record. `gap_after`: the gap to the next sample, where the next tail begins with a step of its
/// own.
pub(super) fn encode(out: &mut Vec<u8>, link: Link, gaps: &Gaps, gap_after: Option<u64>, values: Values<'_>) {
    out.clear();
    out.extend_from_slice(&link.to_le_bytes());
    out.push(0);
    let over = gaps.over.get(..gaps.len).unwrap_or_default();
    let regular = over.iter().all(|over| *over == 0);
    let time_kind = match gap_after {
        None if regular => SAME,
        None => JITTER,
        Some(gap) => {
            put_varint(out, gap);
            put_varint(out, u64::from(gaps.step));
            OWN
        }
    };
    if time_kind != SAME {
        put_over(out, over);
    }
    let value_kind = match values {
        Values::Bits(bits) => block::put_values(out, bits),
        Values::Encoded((kind, bytes)) => {
            out.extend_from_slice(bytes);
            kind
        }
    };
    let count = u8::try_from(gaps.len).unwrap_or(0).saturating_sub(1) & 0x0f;
    if let Some(tag) = out.get_mut(4) {
        *tag = count | time_kind << 4 | value_kind << 6;
    }
}

/// A record that is joined.
pub(super) struct Joined {
    /// The record before it,
    pub(super) before: Link,
    /// and its own bytes.
    pub(super) bytes: usize,
}

/// Puts the samples of the record at the beginning of `page` before those of a tail, the last of which came at `last`.
/// None, and nothing is changed: one record cannot hold both.
pub(super) fn join(page: &[u8], last: i64, gaps: &mut Gaps, bits: &mut Bits) -> Option<Joined> {
    // Most that cannot be joined are whole.
    let len = usize::from(page.get(4)? & 0x0f) + 1;
    let both = len + gaps.len;
    if both > MINI {
        return None;
    }
    let record = Record::open(page, Newer::new(gaps, gaps.first(last))).ok()?;
    if record.gap_after.is_some() {
        return None;
    }
    let (mut values, mut end) = ([0; MINI], record.rest);
    block::take_values(&mut end, record.value_kind, values.get_mut(..len)?).ok()?;
    bits.put_before(values.get(..len)?)?;
    let tail = std::mem::replace(gaps, Gaps { len: both, ..record.gaps });
    for (over, tail) in gaps.over.iter_mut().skip(len).zip(tail.over) {
        *over = tail;
    }
    Some(Joined { before: record.link, bytes: page.len() - end.left() })
}

const fn zigzag(over: i16) -> u16 {
    (over.cast_unsigned() << 1) ^ (over >> 15).cast_unsigned()
}

const fn unzigzag(coded: u16) -> i16 {
    (coded >> 1).cast_signed() ^ -((coded & 1).cast_signed())
}

fn put_over(out: &mut Vec<u8>, over: &[i16]) {
    let widest = over.iter().map(|over| zigzag(*over)).max().unwrap_or(0);
    let width = 16 - widest.leading_zeros();
    out.push(u8::try_from(width).unwrap_or(16));
    let (mut gathered, mut bits) = (0u32, 0u32);
    for over in over {
        gathered |= u32::from(zigzag(*over)) << bits;
        bits += width;
        while bits >= 8 {
            out.push(low_byte(gathered));
            gathered >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out.push(low_byte(gathered));
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low byte is meant")]
const fn low_byte(value: u32) -> u8 {
    value as u8
}

fn take_over(reader: &mut Reader<'_>, over: &mut [i16]) -> Result<(), Damage> {
    let width = u32::from(reader.u8()?);
    if width > 16 {
        return Err(reader.damage("width over 16 bits"));
    }
    let mask = (1u32 << width) - 1;
    let (mut gathered, mut bits) = (0u32, 0u32);
    for over in over {
        while bits < width {
            gathered |= u32::from(reader.u8()?) << bits;
            bits += 8;
        }
        *over = unzigzag(u16::try_from(gathered & mask).unwrap_or(0));
        gathered >>= width;
        bits -= width;
    }
    Ok(())
}

/// A record with its times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    /// The one before it.
    pub(super) link: Link,
    pub(super) gaps: Gaps,
    pub(super) gap_after: Option<u64>,
    pub(super) first: i64,
    pub(super) last: i64,
    value_kind: u8,
    rest: Reader<'a>,
}

impl<'a> Record<'a> {
    /// Reads the record that comes before `newer` in time.
    #[inline]
    pub(super) fn open(bytes: &'a [u8], newer: Newer) -> Result<Record<'a>, Damage> {
        let mut reader = Reader::new(bytes);
        let link = reader.u32()?;
        let tag = reader.u8()?;
        let mut gaps = Gaps { len: usize::from(tag & 0x0f) + 1, step: newer.step, over: [0; MINI] };
        let (mut gap, mut gap_after) = (newer.gap, None);
        let kind = tag >> 4 & 3;
        if kind == OWN {
            let after = reader.varint()?;
            gap = after.cast_signed();
            gap_after = Some(after);
            gaps.step = u32::try_from(reader.varint()?).map_err(|_| reader.damage("step over 32 bits"))?;
        }
        if kind != SAME {
            take_over(&mut reader, gaps.over.get_mut(..gaps.len).unwrap_or_default())?;
        }
        let last = newer.first.wrapping_sub(gap);
        let first = gaps.first(last);
        Ok(Record { link, gaps, gap_after, first, last, value_kind: tag >> 6, rest: reader })
    }

    #[inline]
    pub(super) fn newer(&self) -> Newer {
        Newer::new(&self.gaps, self.first)
    }

    /// The values as they are written: kind and bytes.
    pub(super) fn encoded(&self) -> Result<(u8, &'a [u8]), Damage> {
        let (mut start, mut end) = (self.rest, self.rest);
        block::skip_values(&mut end, self.value_kind, self.gaps.len)?;
        Ok((self.value_kind, start.take(start.left() - end.left())?))
    }

    /// Times and bit patterns; the first `gaps.len` are meant.
    pub(super) fn samples(&self) -> Result<([i64; MINI], [u64; MINI]), Damage> {
        let mut bits = [0; MINI];
        let mut reader = self.rest;
        block::take_values(&mut reader, self.value_kind, bits.get_mut(..self.gaps.len).unwrap_or_default())?;
        Ok((self.gaps.times(self.last), bits))
    }
}
