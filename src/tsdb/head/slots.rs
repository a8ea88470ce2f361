//! What appends touch: the tails of 32 consecutive series as struct of arrays.

use std::ops::Deref;

use super::arena::{Link, NONE};
use super::record::{Gaps, Newer};
use crate::tsdb::chunk::MINI;

/// Series of a block: those of a checkpoint's row.
pub(super) const BLOCK_SERIES: usize = 32;
/// No sample: the time before every time; samples before the year 1 are refused long before.
pub(super) const NEVER: i64 = i64::MIN;
/// Samples of each tail that a block has room for by itself; it makes room for all of longer ones at once.
pub(super) const NEAR: usize = 4;
const _: () = assert!(MINI.is_multiple_of(NEAR));

/// Tails of at most 16 samples: newest samples are read without decoding, and appends write 10 bytes. Places are those
/// of the series in the block, below 32. A block whose tails are short has room for four samples each.
///
/// A tail without samples: the series has no sample in order. One that begins `free` has no record before it whose times
/// are told by the gap before its first sample.
#[derive(Debug)]
pub(super) struct Block {
    /// The last sample in order.
    last_at: [i64; BLOCK_SERIES],
    /// The first one in order.
    pub(super) first_at: [i64; BLOCK_SERIES],
    step: [u32; BLOCK_SERIES],
    /// The newest record.
    pub(super) chain: [Link; BLOCK_SERIES],
    /// Samples in records.
    pub(super) in_chain: [u32; BLOCK_SERIES],
    len: [u8; BLOCK_SERIES],
    free: [bool; BLOCK_SERIES],
    /// None: all are 0, as those of senders that keep their interval to the millisecond.
    over: Option<Box<[[i16; MINI]; BLOCK_SERIES]>>,
    /// The first of each tail,
    bits: [[u64; NEAR]; BLOCK_SERIES],
    /// and the others, once there is one.
    more: Option<Box<More>>,
}

type More = [[u64; MINI - NEAR]; BLOCK_SERIES];

/// Bit patterns of a tail.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits {
    bits: [u64; MINI],
    len: usize,
}

impl Bits {
    /// Puts others before them. None: they are too many.
    pub(super) fn put_before(&mut self, others: &[u64]) -> Option<()> {
        let len = Some(self.len + others.len()).filter(|len| *len <= MINI)?;
        self.bits.copy_within(..self.len, others.len());
        self.bits.get_mut(..others.len())?.copy_from_slice(others);
        self.len = len;
        Some(())
    }
}

impl Deref for Bits {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        self.bits.get(..self.len).unwrap_or_default()
    }
}

/// What an append came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Append {
    Done,
    /// The series' last sample has this time, and these bits.
    Known(u64),
    /// The series' last sample is later.
    Earlier,
    /// The tail must become a record first; the next one goes on with its step if there is no gap to tell.
    Full {
        gap_after: Option<u64>,
    },
}

impl Default for Block {
    fn default() -> Block {
        Block {
            last_at: [NEVER; BLOCK_SERIES],
            first_at: [NEVER; BLOCK_SERIES],
            step: [0; BLOCK_SERIES],
            chain: [NONE; BLOCK_SERIES],
            in_chain: [0; BLOCK_SERIES],
            len: [0; BLOCK_SERIES],
            free: [true; BLOCK_SERIES],
            over: None,
            bits: [[0; NEAR]; BLOCK_SERIES],
            more: None,
        }
    }
}

impl Block {
    /// Memory, and the allocator's headers.
    #[inline]
    pub(super) const fn memory(&self) -> usize {
        let over = if self.over.is_some() { size_of::<[[i16; MINI]; BLOCK_SERIES]>() + 16 } else { 0 };
        let more = if self.more.is_some() { size_of::<More>() + 16 } else { 0 };
        size_of::<Block>() + 16 + over + more
    }

    #[inline]
    fn bits_at(&self, place: usize, sample: usize) -> u64 {
        let place = place % BLOCK_SERIES;
        match sample.checked_sub(NEAR) {
            None => self.bits[place][sample % NEAR],
            Some(sample) => self.more.as_ref().map_or(0, |more| more[place][sample % (MINI - NEAR)]),
        }
    }

    #[inline]
    fn set_bits(&mut self, place: usize, sample: usize, bits: u64) {
        let place = place % BLOCK_SERIES;
        match sample.checked_sub(NEAR) {
            None => self.bits[place][sample % NEAR] = bits,
            Some(sample) => self.more.get_or_insert_default()[place][sample % (MINI - NEAR)] = bits,
        }
    }

    fn over(&self, place: usize) -> [i16; MINI] {
        self.over.as_ref().map_or([0; MINI], |over| over[place % BLOCK_SERIES])
    }

    #[inline]
    fn set_over(&mut self, place: usize, sample: usize, over: i16) {
        if over != 0 || self.over.is_some() {
            self.over.get_or_insert_default()[place % BLOCK_SERIES][sample % MINI] = over;
        }
    }

    /// Takes the sample of a sender that keeps its interval, as nearly all do; false, and nothing is changed, where there is
    /// more to it than [`Append::Done`].
    #[inline]
    pub(super) fn append_regular(&mut self, place: usize, at: i64, bits: u64) -> bool {
        let place = place % BLOCK_SERIES;
        let len = usize::from(self.len[place]);
        let regular = at.checked_sub(self.last_at[place]) == Some(i64::from(self.step[place]))
            // A tail's second sample may have to say what the step is; a step of 0 is a known time.
            && self.step[place] > 0
            && len > 1
            && self.over.is_none();
        let slot = match len.checked_sub(NEAR) {
            None => self.bits[place].get_mut(len),
            Some(len) => self.more.as_mut().and_then(|more| more[place].get_mut(len)),
        };
        match slot {
            Some(slot) if regular => *slot = bits,
            _ => return false,
        }
        self.len[place] += 1;
        self.last_at[place] = at;
        true
    }

    /// Takes a sample. `sparing`: a tail has no more samples than there is room for.
    #[inline]
    pub(super) fn append(&mut self, place: usize, at: i64, bits: u64, sparing: bool) -> Append {
        let place = place % BLOCK_SERIES;
        let (last, len) = (self.last_at[place], usize::from(self.len[place]) % (MINI + 1));
        if at <= last {
            let known = at == last && len > 0;
            return if known { Append::Known(self.bits_at(place, len - 1)) } else { Append::Earlier };
        }
        if len == 0 {
            self.first_at[place] = at;
            self.restart(place, at, bits, None);
            return Append::Done;
        }
        let gap = at.wrapping_sub(last).cast_unsigned();
        let over = i16::try_from(gap.wrapping_sub(u64::from(self.step[place])).cast_signed());
        let most = if sparing && self.more.is_none() { NEAR } else { MINI };
        match over {
            // The second sample of a tail that nothing counts on says what the step is.
            _ if len == 1 && self.free[place] && gap <= u64::from(u32::MAX) => {
                self.step[place] = u32::try_from(gap).unwrap_or(u32::MAX);
                self.set_over(place, 1, 0);
            }
            Ok(over) if len < most => self.set_over(place, len, over),
            _ => return Append::Full { gap_after: (!self.goes_on(place, gap)).then_some(gap) },
        }
        self.set_bits(place, len, bits);
        self.len[place] += 1;
        self.last_at[place] = at;
        Append::Done
    }

    /// Whether the tail after this one can have its step: it has the same interval.
    pub(super) fn goes_on(&self, place: usize, gap: u64) -> bool {
        let place = place % BLOCK_SERIES;
        let (len, before) = (usize::from(self.len[place]), self.in_chain[place] as usize);
        let over = i16::try_from(gap.wrapping_sub(u64::from(self.step[place])).cast_signed());
        // Where the interval has changed for good the next tail has its own step; only whole records are worth that, and
        // shorter ones are joined where they share it.
        let is_whole = len == MINI || (before + len).is_multiple_of(MINI);
        let changed = |over: i16| is_whole && over != 0 && over == self.over(place)[(len + MINI - 1) % MINI];
        over.is_ok_and(|over| !changed(over))
    }

    /// Begins a tail with one sample, after the one before was written to `record` or there was none.
    pub(super) fn restart(&mut self, place: usize, at: i64, bits: u64, after: Option<Written>) {
        let place = place % BLOCK_SERIES;
        self.free[place] = after.is_none_or(|written| written.told);
        let gap = at.wrapping_sub(self.last_at[place]).cast_unsigned();
        let over = gap.wrapping_sub(u64::from(self.step[place])).cast_signed();
        self.set_over(place, 0, if self.free[place] { 0 } else { i16::try_from(over).unwrap_or(0) });
        match after {
            Some(written) => {
                self.chain[place] = written.record;
                self.in_chain[place] += u32::from(self.len[place]);
            }
            None => (self.chain[place], self.in_chain[place]) = (NONE, 0),
        }
        self.set_bits(place, 0, bits);
        self.len[place] = 1;
        self.last_at[place] = at;
    }

    /// The tail's times, relative to the last one.
    #[inline]
    pub(super) fn gaps(&self, place: usize) -> Gaps {
        let place = place % BLOCK_SERIES;
        Gaps { len: usize::from(self.len[place]), step: self.step[place], over: self.over(place) }
    }

    /// The tail's bit patterns.
    #[inline]
    pub(super) fn bits(&self, place: usize) -> Bits {
        let place = place % BLOCK_SERIES;
        let mut bits = [0; MINI];
        let (near, others) = bits.split_at_mut(NEAR);
        near.copy_from_slice(&self.bits[place]);
        let len = usize::from(self.len[place]);
        if let Some(more) = self.more.as_ref().filter(|_| len > NEAR) {
            others.copy_from_slice(&more[place]);
        }
        Bits { bits, len }
    }

    /// Makes room for longer tails.
    pub(super) fn widen(&mut self) {
        self.more.get_or_insert_default();
    }

    /// Whether there is room for longer tails.
    pub(super) const fn is_wide(&self) -> bool {
        self.more.is_some()
    }

    /// Takes the last sample of a tail that is longer than the room of each out again.
    pub(super) fn pop_of_long(&mut self, place: usize) -> Option<(i64, u64)> {
        let place = place % BLOCK_SERIES;
        let last = usize::from(self.len[place]).checked_sub(1).filter(|last| *last >= NEAR)?;
        let out = (self.last_at[place], self.bits_at(place, last));
        self.last_at[place] = out.0.wrapping_sub(self.gaps(place).before(last));
        self.len[place] -= 1;
        Some(out)
    }

    /// Gives the room for longer tails back, of which there is none.
    pub(super) fn narrow(&mut self) {
        self.more = self.more.take().filter(|_| self.len.iter().any(|len| usize::from(*len) > NEAR));
    }

    /// The last time in order.
    #[inline]
    pub(super) fn last_at(&self, place: usize) -> Option<i64> {
        let place = place % BLOCK_SERIES;
        (self.len[place] > 0).then_some(self.last_at[place])
    }

    /// Samples in order.
    pub(super) fn samples(&self, place: usize) -> u64 {
        let place = place % BLOCK_SERIES;
        u64::from(self.in_chain[place]) + u64::from(self.len[place])
    }

    /// What the newest record is read against.
    pub(super) fn newer(&self, place: usize) -> Option<Newer> {
        let gaps = self.gaps(place);
        Some(Newer::new(&gaps, gaps.first(self.last_at(place)?)))
    }

    /// Forgets the samples in order of a series.
    pub(super) fn clear(&mut self, place: usize) {
        let place = place % BLOCK_SERIES;
        (self.len[place], self.last_at[place], self.first_at[place]) = (0, NEVER, NEVER);
        (self.chain[place], self.in_chain[place]) = (NONE, 0);
        (self.step[place], self.free[place]) = (0, true);
    }

    /// Forgets the records and the first `samples` of the tail, one of which stays.
    pub(super) fn trim(&mut self, place: usize, samples: usize) {
        let place = place % BLOCK_SERIES;
        let first = self.gaps(place).times(self.last_at[place]).get(samples).copied();
        let kept = usize::from(self.len[place]).saturating_sub(samples);
        let (Some(first), Ok(len)) = (first, u8::try_from(kept)) else { return };
        if let Some(over) = &mut self.over {
            over[place].copy_within(samples.min(MINI).., 0);
        }
        for (sample, bits) in self.bits(place).iter().skip(samples).enumerate() {
            self.set_bits(place, sample, *bits);
        }
        self.set_over(place, 0, 0);
        (self.len[place], self.first_at[place]) = (len, first);
        (self.chain[place], self.in_chain[place], self.free[place]) = (NONE, 0, true);
    }

    /// Whether no series has a sample in order.
    pub(super) fn is_empty(&self) -> bool {
        self.len.iter().all(|len| *len == 0)
    }
}

/// A tail that became a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) record: Link,
    /// The record tells the gap after it itself.
    pub(super) told: bool,
}
