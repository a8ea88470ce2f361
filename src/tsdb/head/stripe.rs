//! A stripe: 1,024 consecutive series. Their tails are in [`TailBlock`]s of 32 series, full tails
//! are records in an [`Arena`], and late samples are in a map.
//!
//! The samples of a series in order of time are a chain of records, followed by a tail of at most
//! 16 raw samples. The tail makes appends cheap, and the newest samples need no decoding. Series
//! without late samples have no cost for them.

mod chunks;
mod closed;
mod deleted;

use std::collections::BTreeMap;

use super::arena::{Arena, Link, NONE, RecordLifetime};
use super::backwards::Backwards;
use super::record::{self, RecordValues, Successor, TailRecord};
use super::slots::{AppendResult, BLOCK_SERIES, EncodedTail, NEVER, TailBlock};
use crate::model::{TimeRange, Timestamp};
use crate::tsdb::chunk::MINI;
use crate::tsdb::report::SampleColumns;
pub(in crate::tsdb) use chunks::Order;

/// The memory of a late sample in bytes: 24 B in nodes of the tree that are two thirds full.
const LATE_BYTES: usize = 40;

/// The outcome of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum PutResult {
    /// The sample is stored, or was already stored with the same bits.
    Stored,
    /// The last sample of the series has this time and other bits.
    Refused {
        /// The bit pattern of the stored sample.
        have: u64,
    },
}

/// The least and greatest time of a series, including late samples. Both ends are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct Span {
    pub(in crate::tsdb) first: i64,
    pub(in crate::tsdb) last: i64,
}

impl Span {
    /// Returns the least span that contains both.
    pub(in crate::tsdb) fn with(self, other: Span) -> Span {
        Span { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// Returns whether the span overlaps `range`. An empty range, which ends before it begins,
    /// overlaps nothing.
    pub(in crate::tsdb) const fn overlaps(self, range: TimeRange) -> bool {
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        start <= end && self.first <= end && start <= self.last
    }

    /// Returns the part of `range` within the span.
    pub(in crate::tsdb) fn within(self, range: TimeRange) -> TimeRange {
        let (first, last) = (Timestamp::from_ms(self.first), Timestamp::from_ms(self.last));
        TimeRange::new(range.start.max(first), range.end.min(last))
    }
}

/// The content of a stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tsdb) struct Size {
    /// All samples, including late ones.
    pub(in crate::tsdb) samples: u64,
    pub(in crate::tsdb) late: u64,
    pub(in crate::tsdb) bytes: u64,
}

/// An iterator over the records of one series, newest first.
struct Records<'s> {
    arena: &'s Arena,
    /// The successor of the next record, and the next record's link.
    next: Option<(Successor, Link)>,
    start: i64,
}

impl<'s> Iterator for Records<'s> {
    type Item = (Link, TailRecord<'s>);

    #[inline]
    fn next(&mut self) -> Option<(Link, TailRecord<'s>)> {
        let (newer, link) =
            self.next.take().filter(|(newer, link)| *link != NONE && newer.first > self.start)?;
        // All records were encoded by this process, so an unreadable one does not occur.
        let record = TailRecord::open(self.arena.at(link)?, newer).ok().filter(|r| r.last >= self.start)?;
        self.next = Some((record.successor(), record.link));
        Some((link, record))
    }
}

/// Late samples by the series' index in the stripe and by time.
type Late = BTreeMap<(u16, i64), u64>;

/// The series from `number * 1,024` on of an organisation.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Stripe {
    /// The sequence number of the last record that changed the stripe.
    pub(in crate::tsdb) applied_seq: u64,
    released_until: Option<i64>,
    /// `None` if no series of the block has a sample in order.
    blocks: Vec<Option<Box<TailBlock>>>,
    arena: Arena,
    late: Late,
    /// Late samples that the current seal takes.
    frozen: Late,
    /// Whether a late sample may be after its series' last sample in order, because that was
    /// deleted.
    late_ahead: bool,
    /// Whether tails are kept short, when memory matters more than speed.
    pub(in crate::tsdb) short_tails: bool,
    in_order: u64,
    /// The memory of `blocks`, in bytes.
    block_bytes: usize,
    /// The bytes in pages that no link refers to since samples were deleted.
    dead_bytes: usize,
    /// A buffer for a record that is encoded.
    scratch: Vec<u8>,
}

/// The end of the samples that a seal takes of a stripe.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct SealBounds {
    /// Samples in order before this time are taken (exclusive end, in milliseconds).
    pub(in crate::tsdb) until: i64,
    /// Frozen late samples before this time are taken (exclusive end, in milliseconds).
    pub(in crate::tsdb) late_end: i64,
}
fn block_index(slot: usize) -> (usize, usize) {
    (slot / BLOCK_SERIES, slot % BLOCK_SERIES)
}

fn late_key(slot: usize, at: i64) -> (u16, i64) {
    (u16::try_from(slot).unwrap_or(u16::MAX), at)
}

fn late_within(late: &Late, slot: usize, start: i64, end: i64) -> impl Iterator<Item = (i64, u64)> {
    // `BTreeMap::range` panics if the end is before the start.
    let range = late_key(slot, start)..=late_key(slot, end.max(start));
    late.range(range).map(|((_, at), bits)| (*at, *bits)).filter(move |(at, _)| *at <= end)
}

impl Stripe {
    pub(in crate::tsdb) fn size(&self) -> Size {
        let late = self.late.len() + self.frozen.len();
        let bytes = self.block_bytes + self.arena.bytes() + late * LATE_BYTES;
        Size { samples: self.in_order + late as u64, late: late as u64, bytes: bytes as u64 }
    }

    /// Returns the time before which sealed samples were removed, or `i64::MIN`. Earlier samples
    /// that arrived before the seal are in segments.
    pub(in crate::tsdb) fn released_until(&self) -> i64 {
        self.released_until.unwrap_or(NEVER)
    }

    fn block(&self, slot: usize) -> Option<(&TailBlock, usize)> {
        let (number, place) = block_index(slot);
        Some((self.blocks.get(number)?.as_deref()?, place))
    }

    #[inline]
    fn block_mut(&mut self, slot: usize) -> Option<(&mut TailBlock, usize)> {
        let (number, place) = block_index(slot);
        Some((self.blocks.get_mut(number)?.as_deref_mut()?, place))
    }

    #[inline]
    fn block_or_new(&mut self, slot: usize) -> Option<(&mut TailBlock, usize)> {
        let (number, place) = block_index(slot);
        if self.blocks.len() <= number {
            self.blocks.resize_with(number + 1, || None);
        }
        let block = self.blocks.get_mut(number)?.get_or_insert_with(|| {
            let mut block: Box<TailBlock> = Box::default();
            if !self.short_tails {
                // Outside a start, new series get full-length tails at once.
                block.widen();
            }
            self.block_bytes += block.memory();
            block
        });
        Some((block, place))
    }

    /// Returns the least and greatest time, if the series has samples.
    pub(in crate::tsdb) fn span(&self, slot: usize) -> Option<Span> {
        let in_order = self.block(slot).and_then(|(block, place)| {
            let first = block.first_at.get(place).copied()?;
            Some(Span { first, last: block.last_at(place)? })
        });
        [&self.late, &self.frozen].iter().filter(|late| !late.is_empty()).fold(in_order, |span, late| {
            let mut times = late_within(late, slot, NEVER, i64::MAX);
            let Some((first, _)) = times.next() else { return span };
            let last = late.range(..=late_key(slot, i64::MAX)).next_back().map_or(first, |((_, at), _)| *at);
            let late = Span { first, last };
            Some(span.map_or(late, |span| span.with(late)))
        })
    }

    /// Returns the least and greatest time of all series.
    pub(in crate::tsdb) fn bounds(&self) -> Option<Span> {
        let late = self.late.keys().chain(self.frozen.keys()).map(|(slot, _)| usize::from(*slot));
        let mut beyond: Vec<usize> = late.filter(|slot| self.block(*slot).is_none()).collect();
        beyond.dedup();
        let blocks = self.blocks.iter().enumerate().filter(|(_, block)| block.is_some());
        let slots = blocks.flat_map(|(number, _)| number * BLOCK_SERIES..(number + 1) * BLOCK_SERIES);
        slots.chain(beyond).filter_map(|slot| self.span(slot)).reduce(Span::with)
    }

    /// Stores a sample. The outcome depends only on earlier samples and barriers. A sample before
    /// the barrier is late, even in a series without samples.
    #[inline]
    pub(in crate::tsdb) fn put(&mut self, slot: usize, at: i64, bits: u64, barrier: i64) -> PutResult {
        if at >= barrier
            && !self.late_ahead
            && let Some((block, place)) = self.block_mut(slot)
            && block.append_regular(place, at, bits)
        {
            self.in_order += 1;
            return PutResult::Stored;
        }
        self.put_any(slot, at, bits, barrier)
    }

    /// Returns the bits of the stored sample if [`Stripe::put`] would refuse this one as a
    /// duplicate of it.
    pub(in crate::tsdb) fn refuses(&self, slot: usize, at: i64, bits: u64, barrier: i64) -> Option<u64> {
        let (block, place) = self.block(slot).filter(|_| at >= barrier)?;
        block.last_bits_at(place, at).filter(|have| *have != bits)
    }

    /// Returns time and bits of the newest sample in order.
    pub(in crate::tsdb) fn newest(&self, slot: usize) -> Option<(i64, u64)> {
        let (block, place) = self.block(slot)?;
        let at = block.last_at(place)?;
        Some((at, block.last_bits_at(place, at)?))
    }

    #[inline(never)]
    fn put_any(&mut self, slot: usize, at: i64, bits: u64, barrier: i64) -> PutResult {
        let short_tails = self.short_tails;
        if at >= barrier
            && let Some((block, place)) = self.block_or_new(slot)
        {
            let memory = block.memory();
            let is_in_order = match block.append(place, at, bits, short_tails) {
                AppendResult::Done => {
                    self.block_bytes += block.memory() - memory;
                    true
                }
                AppendResult::Known(have) if have == bits => return PutResult::Stored,
                AppendResult::Known(have) => return PutResult::Refused { have },
                AppendResult::Full { gap_after } => self.roll(slot, at, bits, gap_after, None).is_some(),
                AppendResult::Earlier => false,
            };
            if is_in_order {
                self.in_order += 1;
                if self.late_ahead {
                    self.supersede(slot, at);
                }
                if short_tails {
                    self.compact_if_due();
                }
                return PutResult::Stored;
            }
        }
        self.put_late(slot, at, bits);
        PutResult::Stored
    }

    /// Encodes the tail as a record and begins a new tail. Returns None and changes nothing if the
    /// arena is full.
    fn roll(
        &mut self,
        slot: usize,
        at: i64,
        bits: u64,
        gap_after: Option<u64>,
        encoded: Option<RecordValues<'_>>,
    ) -> Option<()> {
        let mut bytes = std::mem::take(&mut self.scratch);
        let (block, place) = self.block(slot)?;
        let (last, mut gaps, mut tail) = (block.last_at(place)?, block.gaps(place), block.bits(place));
        let newest = *block.chain.get(place)?;
        let (mut before, mut joined) = (newest, None);
        if self.short_tails
            && let Some(page) = self.arena.at(newest)
            && let Some(record) = record::join(page, last, &mut gaps, &mut tail)
        {
            (before, joined) = (record.before, Some(record.bytes));
        }
        let values = encoded.filter(|_| joined.is_none()).unwrap_or(RecordValues::Bits(&tail));
        record::encode(&mut bytes, before, &gaps, gap_after, values);
        let lifetime =
            if self.short_tails && gaps.len < MINI { RecordLifetime::Short } else { RecordLifetime::Long };
        let record = self.arena.put(&bytes, last, lifetime);
        self.scratch = bytes;
        let written = EncodedTail { record: record?, has_gap: gap_after.is_some() };
        if let Some(bytes) = joined {
            self.arena.replace(newest, bytes);
        }
        let (block, place) = self.block_mut(slot)?;
        let memory = block.memory();
        block.restart(place, at, bits, Some(written));
        self.block_bytes += block.memory() - memory;
        Some(())
    }

    /// Encodes the long tails of a slot's block as records and releases their memory, if tails are
    /// kept short.
    pub(in crate::tsdb) fn shorten_tails(&mut self, slot: usize) {
        if !self.short_tails {
            return;
        }
        let first = slot - slot % BLOCK_SERIES;
        for slot in first..first + BLOCK_SERIES {
            let Some((block, place)) = self.block_mut(slot).filter(|(block, _)| block.is_wide()) else {
                return;
            };
            if let Some((at, bits)) = block.pop_long_tail(place)
                && self.roll(slot, at, bits, None, None).is_none()
                && let Some((block, place)) = self.block_mut(slot)
            {
                // The arena is full, so the sample returns to the tail.
                block.append(place, at, bits, false);
            }
        }
        if let Some((block, _)) = self.block_mut(first) {
            let memory = block.memory();
            block.narrow();
            self.block_bytes -= memory - block.memory();
        }
    }

    /// Removes the late sample at the time of a newer sample in order, because the last write wins.
    #[cold]
    fn supersede(&mut self, slot: usize, at: i64) {
        let key = late_key(slot, at);
        self.late.remove(&key);
        self.frozen.remove(&key);
        self.late_ahead = !(self.late.is_empty() && self.frozen.is_empty());
    }

    fn put_late(&mut self, slot: usize, at: i64, bits: u64) {
        let key = late_key(slot, at);
        let known = self.late.get(&key).or_else(|| self.frozen.get(&key)).copied();
        if known.or_else(|| self.in_order_at(slot, at)) != Some(bits) {
            self.late.insert(key, bits);
        }
    }

    /// Returns the in-order sample of exactly this time.
    fn in_order_at(&self, slot: usize, at: i64) -> Option<u64> {
        let (block, place) = self.block(slot)?;
        if at < *block.first_at.get(place)? {
            return None;
        }
        let mut out = SampleColumns::default();
        self.read_in_order(slot, at, at, &mut out);
        out.values.first().map(|value| value.to_bits())
    }

    /// Returns the records of a series that may have samples at or after `start`, newest first.
    fn records(&self, slot: usize, start: i64) -> Records<'_> {
        let next = self
            .block(slot)
            .and_then(|(block, place)| block.newer(place).zip(block.chain.get(place).copied()));
        Records { arena: &self.arena, next, start }
    }

    /// Appends the samples of a series inside `range` to `out`, ascending, and returns
    /// [`Stripe::released_until`].
    pub(in crate::tsdb) fn read(&self, slot: usize, range: TimeRange, out: &mut SampleColumns) -> i64 {
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        let from = out.times.len();
        self.read_in_order(slot, start, end, out);
        for late in [&self.frozen, &self.late] {
            merge_late(late_within(late, slot, start, end), from, out);
        }
        self.released_until()
    }

    fn read_in_order(&self, slot: usize, start: i64, end: i64, out: &mut SampleColumns) {
        let Some((block, place)) = self.block(slot).filter(|_| start <= end) else { return };
        let Some(last) = block.last_at(place) else { return };
        let Some(first) = block.first_at.get(place).copied().filter(|first| *first <= end) else { return };
        if start <= first {
            let from = out.times.len();
            if self.read_from_first(slot, end, out).is_some() {
                return;
            }
            out.times.truncate(from);
            out.values.truncate(from);
        }
        let records: Vec<TailRecord<'_>> = self.records(slot, start).map(|(_, record)| record).collect();
        for record in records.iter().rev().take_while(|record| record.first <= end) {
            if let Ok((times, bits)) = record.samples() {
                push_within(&times, bits.get(..record.gaps.len).unwrap_or_default(), start, end, out);
            }
        }
        push_within(&block.gaps(place).times(last), &block.bits(place), start, end, out);
    }

    /// Like [`Stripe::read_in_order`] from the first sample on. Returns None if there are more
    /// samples than were counted, which never happens.
    fn read_from_first(&self, slot: usize, end: i64, out: &mut SampleColumns) -> Option<()> {
        let (block, place) = self.block(slot)?;
        let mut back = Backwards::new(out, usize::try_from(block.samples(place)).ok()?);
        let (times, bits) = (block.gaps(place).times(block.last_at(place)?), block.bits(place));
        back.put(times.get(..bits.len())?, &bits, end)?;
        for (_, record) in self.records(slot, NEVER).filter(|(_, record)| record.first <= end) {
            if let Ok((times, bits)) = record.samples() {
                back.put(times.get(..record.gaps.len)?, bits.get(..record.gaps.len)?, end)?;
            }
        }
        back.finish();
        Some(())
    }
}

/// Appends the samples inside the range. `times` may be longer than `bits`.
fn push_within(times: &[i64; MINI], bits: &[u64], start: i64, end: i64, out: &mut SampleColumns) {
    let times = times.get(..bits.len()).unwrap_or_default();
    let (mut from, mut to) = (0, times.len());
    // Most lists are completely inside the range.
    if times.first().is_some_and(|first| *first < start) || times.last().is_some_and(|last| *last > end) {
        from = times.partition_point(|at| *at < start);
        to = times.partition_point(|at| *at <= end);
    }
    if let (Some(times), Some(bits)) = (times.get(from..to), bits.get(from..to)) {
        out.times.extend_from_slice(times);
        out.values.extend(bits.iter().map(|bits| f64::from_bits(*bits)));
    }
}

/// Follows the chains of records of series, one step of each chain in turn, and returns the number
/// of records.
pub(super) fn touch<'s>(series: impl Iterator<Item = (&'s Stripe, usize)>) -> usize {
    let newest = |(stripe, slot): (&'s Stripe, usize)| {
        let (block, place) = stripe.block(slot)?;
        Some((&stripe.arena, block.chain.get(place).copied()?))
    };
    let mut left: Vec<(&Arena, Link)> = series.filter_map(newest).filter(|(_, link)| *link != NONE).collect();
    let mut records = 0;
    while !left.is_empty() {
        records += left.len();
        for (arena, link) in &mut left {
            *link = arena.before(*link);
        }
        left.retain(|(_, link)| *link != NONE);
    }
    records
}

/// Merges late samples into the samples of `out` from index `from` on. At equal times the late one
/// wins.
fn merge_late(late: impl Iterator<Item = (i64, u64)>, from: usize, out: &mut SampleColumns) {
    let mut late = late.peekable();
    if late.peek().is_none() {
        return;
    }
    let (times, values) = (out.times.split_off(from), out.values.split_off(from));
    for (at, value) in times.into_iter().zip(values) {
        while let Some((early, bits)) = late.next_if(|(early, _)| *early < at) {
            out.times.push(early);
            out.values.push(f64::from_bits(bits));
        }
        let replacement = late.next_if(|(same, _)| *same == at).map(|(_, bits)| f64::from_bits(bits));
        out.times.push(at);
        out.values.push(replacement.unwrap_or(value));
    }
    for (at, bits) in late {
        out.times.push(at);
        out.values.push(f64::from_bits(bits));
    }
}
