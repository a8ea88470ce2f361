//! What appends touch: the tails of 32 consecutive series as struct of arrays.

use super::arena::{Link, NONE};
use super::record::{Gaps, Newer};
use crate::tsdb::block::MINI;

/// Series of a block: those of a checkpoint's row.
pub(super) const BLOCK_SERIES: usize = 32;
/// No sample: the time before every time; samples before the year 1 are refused long before.
pub(super) const NEVER: i64 = i64::MIN;

/// Tails of at most 16 samples: newest samples are read without decoding, and appends write 10 bytes. Places are those
/// of the series in the block, below 32.
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
    bits: [[u64; MINI]; BLOCK_SERIES],
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
            bits: [[0; MINI]; BLOCK_SERIES],
        }
    }
}

impl Block {
    /// Memory, and the allocator's headers.
    #[inline]
    pub(super) const fn memory(&self) -> usize {
        let over = if self.over.is_some() { size_of::<[[i16; MINI]; BLOCK_SERIES]>() + 16 } else { 0 };
        size_of::<Block>() + 16 + over
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
        match self.bits[place].get_mut(len) {
            Some(slot) if regular => *slot = bits,
            _ => return false,
        }
        self.len[place] += 1;
        self.last_at[place] = at;
        true
    }

    #[inline]
    pub(super) fn append(&mut self, place: usize, at: i64, bits: u64) -> Append {
        let place = place % BLOCK_SERIES;
        let (last, len) = (self.last_at[place], usize::from(self.len[place]) % (MINI + 1));
        if at <= last {
            let known = at == last && len > 0;
            return if known { Append::Known(self.bits[place][len - 1]) } else { Append::Earlier };
        }
        if len == 0 {
            self.first_at[place] = at;
            self.restart(place, at, bits, None);
            return Append::Done;
        }
        let gap = at.wrapping_sub(last).cast_unsigned();
        let over = i16::try_from(gap.wrapping_sub(u64::from(self.step[place])).cast_signed());
        match over {
            // The second sample of a tail that nothing counts on says what the step is.
            _ if len == 1 && self.free[place] && gap <= u64::from(u32::MAX) => {
                self.step[place] = u32::try_from(gap).unwrap_or(u32::MAX);
                self.set_over(place, 1, 0);
            }
            Ok(over) if len < MINI => self.set_over(place, len, over),
            _ => return Append::Full { gap_after: (!self.goes_on(place, gap)).then_some(gap) },
        }
        self.bits[place][len] = bits;
        self.len[place] += 1;
        self.last_at[place] = at;
        Append::Done
    }

    /// Whether the tail after this one can have its step: it has the same interval.
    pub(super) fn goes_on(&self, place: usize, gap: u64) -> bool {
        let place = place % BLOCK_SERIES;
        let over = i16::try_from(gap.wrapping_sub(u64::from(self.step[place])).cast_signed());
        // Where the interval has changed for good the next tail has its own step.
        let changed = |over: i16| over != 0 && over == self.over(place)[MINI - 1];
        over.is_ok_and(|over| usize::from(self.len[place]) == MINI && !changed(over))
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
        self.bits[place][0] = bits;
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
    pub(super) fn bits(&self, place: usize) -> &[u64] {
        let place = place % BLOCK_SERIES;
        self.bits[place].get(..usize::from(self.len[place])).unwrap_or_default()
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
        self.bits[place].copy_within(samples.min(MINI).., 0);
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
