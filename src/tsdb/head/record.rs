//! The record of a full tail in the stripe's arena. It exists only in memory; checkpoints have the
//! chunks of [`crate::tsdb::chunk`].
//!
//! ```text
//! 0 u32 link to the previous record of the series, ff ff ff ff: none
//! 4 u8  samples - 1 | time kind << 4 | value kind << 6
//!   times: each sample has a gap to the sample before it, gap = step + jitter; the step is that
//!     of the next record
//!     kind 0 same      all jitters are 0
//!     kind 1 jitter    u8 width w (0..16), the jitter of each sample, zigzag, in w bits,
//!                      low bits first, padded to a byte
//!     kind 2 own       varint gap from the last sample to the first one after it,
//!                      varint step, then as kind 1
//!   values: as in a mini-block
//! ```
//! No record contains a time: times are computed backwards from the last sample of the series. So a
//! scrape that keeps its interval costs one byte for the times of 16 samples.

use super::arena::Link;
use super::slots::TailBits;
use crate::tsdb::chunk::{self, MINI};
use crate::tsdb::codec::{Reader, put_varint};
use crate::tsdb::error::Damage;

const SAME: u8 = 0;
const JITTER: u8 = 1;
const OWN: u8 = 2;

/// The times of at most 16 samples, relative to the last one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    pub(super) len: usize,
    pub(super) step: u32,
    /// The difference of each sample's gap from the step. The first one belongs to the gap after
    /// the previous record, and is used unless that record contains its own gap.
    pub(super) jitter: [i16; MINI],
}

impl Gaps {
    /// Returns the gap before a sample.
    pub(super) fn before(&self, place: usize) -> i64 {
        i64::from(self.step) + self.jitter.get(place).copied().map_or(0, i64::from)
    }

    fn is_regular(&self) -> bool {
        self.jitter == [0; MINI]
    }

    /// Returns the first time if the last one is `last`.
    pub(super) fn first(&self, last: i64) -> i64 {
        if self.is_regular() {
            let steps = i64::try_from(self.len).unwrap_or(0).saturating_sub(1);
            return last.wrapping_sub(i64::from(self.step).wrapping_mul(steps));
        }
        (1..self.len).fold(last, |at, place| at.wrapping_sub(self.before(place)))
    }

    /// Returns the times if the last one is `last`.
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
            for (time, jitter) in slots.iter_mut().zip(&self.jitter).rev() {
                *time = at;
                at = at.wrapping_sub(i64::from(self.step) + i64::from(*jitter));
            }
        }
        times
    }
}

/// The values of the next record or tail that are needed to decode the record before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Successor {
    /// The first time, in milliseconds.
    pub(super) first: i64,
    /// The gap before the first time.
    gap: i64,
    step: u32,
}

impl Successor {
    pub(super) fn new(gaps: &Gaps, first: i64) -> Successor {
        Successor { first, gap: gaps.before(0), step: gaps.step }
    }
}

/// The values of a record to be encoded.
#[derive(Clone, Copy)]
pub(super) enum RecordValues<'a> {
    Bits(&'a [u64]),
    /// The kind and the bytes of a mini-block.
    Encoded((u8, &'a [u8])),
}

/// Replaces `out` with an encoded record. `gap_after` is the gap to the next sample, if the next
/// tail has its own step.
pub(super) fn encode(
    out: &mut Vec<u8>,
    link: Link,
    gaps: &Gaps,
    gap_after: Option<u64>,
    values: RecordValues<'_>,
) {
    out.clear();
    out.extend_from_slice(&link.to_le_bytes());
    out.push(0);
    let jitter = gaps.jitter.get(..gaps.len).unwrap_or_default();
    let regular = jitter.iter().all(|jitter| *jitter == 0);
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
        put_jitter(out, jitter);
    }
    let value_kind = match values {
        RecordValues::Bits(bits) => chunk::put_values(out, bits),
        RecordValues::Encoded((kind, bytes)) => {
            out.extend_from_slice(bytes);
            kind
        }
    };
    let count = u8::try_from(gaps.len).unwrap_or(0).saturating_sub(1) & 0x0f;
    if let Some(tag) = out.get_mut(4) {
        *tag = count | time_kind << 4 | value_kind << 6;
    }
}

/// The record that [`join`] replaced.
pub(super) struct Joined {
    /// The link to the previous record.
    pub(super) before: Link,
    /// The length of the replaced record in bytes.
    pub(super) bytes: usize,
}

/// Prepends the samples of the record at the beginning of `page` to a tail whose last sample is at
/// `last`. Returns None and changes nothing if one record cannot hold both.
pub(super) fn join(page: &[u8], last: i64, gaps: &mut Gaps, bits: &mut TailBits) -> Option<Joined> {
    // Most records that cannot be joined are full.
    let len = usize::from(page.get(4)? & 0x0f) + 1;
    let both = len + gaps.len;
    if both > MINI {
        return None;
    }
    let record = TailRecord::open(page, Successor::new(gaps, gaps.first(last))).ok()?;
    if record.gap_after.is_some() {
        return None;
    }
    let (mut values, mut end) = ([0; MINI], record.rest);
    chunk::take_values(&mut end, record.value_kind, values.get_mut(..len)?).ok()?;
    bits.put_before(values.get(..len)?)?;
    let tail = std::mem::replace(gaps, Gaps { len: both, ..record.gaps });
    for (jitter, tail) in gaps.jitter.iter_mut().skip(len).zip(tail.jitter) {
        *jitter = tail;
    }
    Some(Joined { before: record.link, bytes: page.len() - end.left() })
}

const fn zigzag(jitter: i16) -> u16 {
    (jitter.cast_unsigned() << 1) ^ (jitter >> 15).cast_unsigned()
}

const fn unzigzag(coded: u16) -> i16 {
    (coded >> 1).cast_signed() ^ -((coded & 1).cast_signed())
}

fn put_jitter(out: &mut Vec<u8>, jitter: &[i16]) {
    let widest = jitter.iter().map(|jitter| zigzag(*jitter)).max().unwrap_or(0);
    let width = 16 - widest.leading_zeros();
    out.push(u8::try_from(width).unwrap_or(16));
    let (mut gathered, mut bits) = (0u32, 0u32);
    for jitter in jitter {
        gathered |= u32::from(zigzag(*jitter)) << bits;
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

fn take_jitter(reader: &mut Reader<'_>, jitter: &mut [i16]) -> Result<(), Damage> {
    let width = u32::from(reader.u8()?);
    if width > 16 {
        return Err(reader.damage("width over 16 bits"));
    }
    let mask = (1u32 << width) - 1;
    let (mut gathered, mut bits) = (0u32, 0u32);
    for jitter in jitter {
        while bits < width {
            gathered |= u32::from(reader.u8()?) << bits;
            bits += 8;
        }
        *jitter = unzigzag(u16::try_from(gathered & mask).unwrap_or(0));
        gathered >>= width;
        bits -= width;
    }
    Ok(())
}

/// A record whose times are decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct TailRecord<'a> {
    /// The link to the previous record.
    pub(super) link: Link,
    pub(super) gaps: Gaps,
    pub(super) gap_after: Option<u64>,
    pub(super) first: i64,
    pub(super) last: i64,
    value_kind: u8,
    rest: Reader<'a>,
}

impl<'a> TailRecord<'a> {
    /// Decodes the record before `successor`.
    #[inline]
    pub(super) fn open(bytes: &'a [u8], successor: Successor) -> Result<TailRecord<'a>, Damage> {
        let mut reader = Reader::new(bytes);
        let link = reader.u32()?;
        let tag = reader.u8()?;
        let mut gaps = Gaps { len: usize::from(tag & 0x0f) + 1, step: successor.step, jitter: [0; MINI] };
        let (mut gap, mut gap_after) = (successor.gap, None);
        let kind = tag >> 4 & 3;
        if kind == OWN {
            let after = reader.varint()?;
            gap = after.cast_signed();
            gap_after = Some(after);
            gaps.step = u32::try_from(reader.varint()?).map_err(|_| reader.damage("step over 32 bits"))?;
        }
        if kind != SAME {
            take_jitter(&mut reader, gaps.jitter.get_mut(..gaps.len).unwrap_or_default())?;
        }
        let last = successor.first.wrapping_sub(gap);
        let first = gaps.first(last);
        Ok(TailRecord { link, gaps, gap_after, first, last, value_kind: tag >> 6, rest: reader })
    }

    #[inline]
    pub(super) fn successor(&self) -> Successor {
        Successor::new(&self.gaps, self.first)
    }

    /// Returns the encoded values: kind and bytes.
    pub(super) fn encoded(&self) -> Result<(u8, &'a [u8]), Damage> {
        let (mut start, mut end) = (self.rest, self.rest);
        chunk::skip_values(&mut end, self.value_kind, self.gaps.len)?;
        Ok((self.value_kind, start.take(start.left() - end.left())?))
    }

    /// Returns times and bit patterns, of which the first `gaps.len` are valid.
    pub(super) fn samples(&self) -> Result<([i64; MINI], [u64; MINI]), Damage> {
        let mut bits = [0; MINI];
        let mut reader = self.rest;
        chunk::take_values(&mut reader, self.value_kind, bits.get_mut(..self.gaps.len).unwrap_or_default())?;
        Ok((self.gaps.times(self.last), bits))
    }
}
