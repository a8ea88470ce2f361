//! The tails of 32 consecutive series as a struct of arrays: the only memory that most appends
//! touch.

use std::ops::Deref;

use super::arena::{Link, NONE};
use super::record::{Gaps, Successor};
use crate::tsdb::chunk::MINI;

/// The series of a block, which are also those of a checkpoint's row.
pub(super) const BLOCK_SERIES: usize = 32;
/// The time before all times, which stands for no sample. Samples before the year 1 are refused.
pub(super) const NEVER: i64 = i64::MIN;
/// The samples of each tail for which a block always has memory. The memory for longer tails is
/// allocated for all series of the block at once.
pub(super) const NEAR: usize = 4;
const _: () = assert!(MINI.is_multiple_of(NEAR));

/// The tails of 32 series, each of at most 16 samples. The newest samples are read without
/// decoding, and an append writes 10 bytes. Indexes are those of the series in the block, below 32.
/// A block with only short tails has memory for four samples each.
///
/// A series whose tail is empty has no sample in order. `free[i]` is true if the tail's step may
/// still change: no record before it derives the gap before the tail's first sample from the step.
#[derive(Debug)]
pub(super) struct TailBlock {
    /// The time of the last sample in order.
    last_at: [i64; BLOCK_SERIES],
    /// The time of the first sample in order.
    pub(super) first_at: [i64; BLOCK_SERIES],
    step: [u32; BLOCK_SERIES],
    /// The newest record.
    pub(super) chain: [Link; BLOCK_SERIES],
    /// The number of samples in records.
    pub(super) in_chain: [u32; BLOCK_SERIES],
    len: [u8; BLOCK_SERIES],
    free: [bool; BLOCK_SERIES],
    /// The difference of each gap from the step. `None` if all are 0, as for senders that keep
    /// their interval to the millisecond.
    jitter: Option<Box<[[i16; MINI]; BLOCK_SERIES]>>,
    /// The first values of each tail.
    bits: [[u64; NEAR]; BLOCK_SERIES],
    /// The other values, if any tail is that long.
    more: Option<Box<LongTails>>,
}

type LongTails = [[u64; MINI - NEAR]; BLOCK_SERIES];

/// The values of a tail as bit patterns.
#[derive(Clone, Copy, Debug)]
pub(super) struct TailBits {
    bits: [u64; MINI],
    len: usize,
}

impl TailBits {
    /// Inserts values before the others. Returns None if there are too many.
    pub(super) fn put_before(&mut self, others: &[u64]) -> Option<()> {
        let len = Some(self.len + others.len()).filter(|len| *len <= MINI)?;
        self.bits.copy_within(..self.len, others.len());
        self.bits.get_mut(..others.len())?.copy_from_slice(others);
        self.len = len;
        Some(())
    }
}

impl Deref for TailBits {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        self.bits.get(..self.len).unwrap_or_default()
    }
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppendResult {
    Done,
    /// The last sample of the series has this time and these bits.
    Known(u64),
    /// The last sample of the series is later.
    Earlier,
    /// The tail must be encoded as a record first. The next tail continues with its step if
    /// `gap_after` is None.
    Full {
        gap_after: Option<u64>,
    },
}

impl Default for TailBlock {
    fn default() -> TailBlock {
        TailBlock {
            last_at: [NEVER; BLOCK_SERIES],
            first_at: [NEVER; BLOCK_SERIES],
            step: [0; BLOCK_SERIES],
            chain: [NONE; BLOCK_SERIES],
            in_chain: [0; BLOCK_SERIES],
            len: [0; BLOCK_SERIES],
            free: [true; BLOCK_SERIES],
            jitter: None,
            bits: [[0; NEAR]; BLOCK_SERIES],
            more: None,
        }
    }
}

impl TailBlock {
    /// Returns the memory in bytes, including the allocator's headers.
    #[inline]
    pub(super) const fn memory(&self) -> usize {
        let jitter = if self.jitter.is_some() { size_of::<[[i16; MINI]; BLOCK_SERIES]>() + 16 } else { 0 };
        let more = if self.more.is_some() { size_of::<LongTails>() + 16 } else { 0 };
        size_of::<TailBlock>() + 16 + jitter + more
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

    fn jitter(&self, place: usize) -> [i16; MINI] {
        self.jitter.as_ref().map_or([0; MINI], |jitter| jitter[place % BLOCK_SERIES])
    }

    #[inline]
    fn set_jitter(&mut self, place: usize, sample: usize, jitter: i16) {
        if jitter != 0 || self.jitter.is_some() {
            self.jitter.get_or_insert_default()[place % BLOCK_SERIES][sample % MINI] = jitter;
        }
    }

    /// Appends the sample of a sender that keeps its interval, as nearly all do. Returns false and
    /// changes nothing in any other case.
    #[inline]
    pub(super) fn append_regular(&mut self, place: usize, at: i64, bits: u64) -> bool {
        let place = place % BLOCK_SERIES;
        let len = usize::from(self.len[place]);
        let regular = at.checked_sub(self.last_at[place]) == Some(i64::from(self.step[place]))
            // The second sample of a tail may have to set the step. A step of 0 means an equal
            // time.
            && self.step[place] > 0
            && len > 1
            && self.jitter.is_none();
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

    /// Returns the bits of the last sample of a series, if its time is `at`.
    #[inline]
    pub(super) fn last_bits_at(&self, place: usize, at: i64) -> Option<u64> {
        let place = place % BLOCK_SERIES;
        let len = usize::from(self.len[place]) % (MINI + 1);
        (at == self.last_at[place] && len > 0).then(|| self.bits_at(place, len - 1))
    }

    /// Appends a sample. If `short_tails`, a tail does not grow beyond its allocated memory.
    #[inline]
    pub(super) fn append(&mut self, place: usize, at: i64, bits: u64, short_tails: bool) -> AppendResult {
        let place = place % BLOCK_SERIES;
        let (last, len) = (self.last_at[place], usize::from(self.len[place]) % (MINI + 1));
        if at <= last {
            return self.last_bits_at(place, at).map_or(AppendResult::Earlier, AppendResult::Known);
        }
        if len == 0 {
            self.first_at[place] = at;
            self.restart(place, at, bits, None);
            return AppendResult::Done;
        }
        let gap = at.wrapping_sub(last).cast_unsigned();
        let jitter = i16::try_from(gap.wrapping_sub(u64::from(self.step[place])).cast_signed());
        let most = if short_tails && self.more.is_none() { NEAR } else { MINI };
        match jitter {
            // The second sample of a tail sets the step, if no record depends on it.
            _ if len == 1 && self.free[place] && gap <= u64::from(u32::MAX) => {
                self.step[place] = u32::try_from(gap).unwrap_or(u32::MAX);
                self.set_jitter(place, 1, 0);
            }
            Ok(jitter) if len < most => self.set_jitter(place, len, jitter),
            _ => return AppendResult::Full { gap_after: (!self.continues_step(place, gap)).then_some(gap) },
        }
        self.set_bits(place, len, bits);
        self.len[place] += 1;
        self.last_at[place] = at;
        AppendResult::Done
    }

    /// Returns whether the next tail can use the step of this one, because the interval is the
    /// same.
    pub(super) fn continues_step(&self, place: usize, gap: u64) -> bool {
        let place = place % BLOCK_SERIES;
        let (len, before) = (usize::from(self.len[place]), self.in_chain[place] as usize);
        let jitter = i16::try_from(gap.wrapping_sub(u64::from(self.step[place])).cast_signed());
        // If the interval has changed permanently, the next tail gets its own step. This is worth
        // its cost only after full records. Shorter ones can be joined only if they share the step.
        let is_whole = len == MINI || (before + len).is_multiple_of(MINI);
        let changed =
            |jitter: i16| is_whole && jitter != 0 && jitter == self.jitter(place)[(len + MINI - 1) % MINI];
        jitter.is_ok_and(|jitter| !changed(jitter))
    }

    /// Begins a tail with one sample, after the previous tail was encoded as `after`, or as the
    /// first tail.
    pub(super) fn restart(&mut self, place: usize, at: i64, bits: u64, after: Option<EncodedTail>) {
        let place = place % BLOCK_SERIES;
        self.free[place] = after.is_none_or(|written| written.has_gap);
        let gap = at.wrapping_sub(self.last_at[place]).cast_unsigned();
        let jitter = gap.wrapping_sub(u64::from(self.step[place])).cast_signed();
        self.set_jitter(place, 0, if self.free[place] { 0 } else { i16::try_from(jitter).unwrap_or(0) });
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

    /// Returns the tail's times relative to the last one.
    #[inline]
    pub(super) fn gaps(&self, place: usize) -> Gaps {
        let place = place % BLOCK_SERIES;
        Gaps { len: usize::from(self.len[place]), step: self.step[place], jitter: self.jitter(place) }
    }

    /// Returns the tail's values as bit patterns.
    #[inline]
    pub(super) fn bits(&self, place: usize) -> TailBits {
        let place = place % BLOCK_SERIES;
        let mut bits = [0; MINI];
        let (near, others) = bits.split_at_mut(NEAR);
        near.copy_from_slice(&self.bits[place]);
        let len = usize::from(self.len[place]);
        if let Some(more) = self.more.as_ref().filter(|_| len > NEAR) {
            others.copy_from_slice(&more[place]);
        }
        TailBits { bits, len }
    }

    /// Allocates memory for long tails.
    pub(super) fn widen(&mut self) {
        self.more.get_or_insert_default();
    }

    /// Returns whether the block has memory for long tails.
    pub(super) const fn is_wide(&self) -> bool {
        self.more.is_some()
    }

    /// Removes and returns the last sample of a tail that is longer than `NEAR`.
    pub(super) fn pop_long_tail(&mut self, place: usize) -> Option<(i64, u64)> {
        let place = place % BLOCK_SERIES;
        let last = usize::from(self.len[place]).checked_sub(1).filter(|last| *last >= NEAR)?;
        let out = (self.last_at[place], self.bits_at(place, last));
        self.last_at[place] = out.0.wrapping_sub(self.gaps(place).before(last));
        self.len[place] -= 1;
        Some(out)
    }

    /// Releases the memory for long tails if no tail is long.
    pub(super) fn narrow(&mut self) {
        self.more = self.more.take().filter(|_| self.len.iter().any(|len| usize::from(*len) > NEAR));
    }

    /// Returns the time of the last sample in order.
    #[inline]
    pub(super) fn last_at(&self, place: usize) -> Option<i64> {
        let place = place % BLOCK_SERIES;
        (self.len[place] > 0).then_some(self.last_at[place])
    }

    /// Returns the number of samples in order.
    pub(super) fn samples(&self, place: usize) -> u64 {
        let place = place % BLOCK_SERIES;
        u64::from(self.in_chain[place]) + u64::from(self.len[place])
    }

    /// Returns the successor that the newest record is decoded with.
    pub(super) fn newer(&self, place: usize) -> Option<Successor> {
        let gaps = self.gaps(place);
        Some(Successor::new(&gaps, gaps.first(self.last_at(place)?)))
    }

    /// Removes a series' samples in order.
    pub(super) fn clear(&mut self, place: usize) {
        let place = place % BLOCK_SERIES;
        (self.len[place], self.last_at[place], self.first_at[place]) = (0, NEVER, NEVER);
        (self.chain[place], self.in_chain[place]) = (NONE, 0);
        (self.step[place], self.free[place]) = (0, true);
    }

    /// Removes the records and the first `samples` of the tail, which must have more samples.
    pub(super) fn trim(&mut self, place: usize, samples: usize) {
        let place = place % BLOCK_SERIES;
        let first = self.gaps(place).times(self.last_at[place]).get(samples).copied();
        let kept = usize::from(self.len[place]).saturating_sub(samples);
        let (Some(first), Ok(len)) = (first, u8::try_from(kept)) else { return };
        if let Some(jitter) = &mut self.jitter {
            jitter[place].copy_within(samples.min(MINI).., 0);
        }
        for (sample, bits) in self.bits(place).iter().skip(samples).enumerate() {
            self.set_bits(place, sample, *bits);
        }
        self.set_jitter(place, 0, 0);
        (self.len[place], self.first_at[place]) = (len, first);
        (self.chain[place], self.in_chain[place], self.free[place]) = (NONE, 0, true);
    }

    /// Returns whether no series has a sample in order.
    pub(super) fn is_empty(&self) -> bool {
        self.len.iter().all(|len| *len == 0)
    }
}

/// A tail that was encoded as a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct EncodedTail {
    pub(super) record: Link,
    /// Whether the record contains the gap after it.
    pub(super) has_gap: bool,
}
