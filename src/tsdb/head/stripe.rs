//! 1,024 consecutive series: tails in [`Block`]s of 32, full tails as records in an [`Arena`], late samples in a map.
//!
//! A series' samples in order of time: a chain of records, then the tail of at most 16 raw samples. The tail makes
//! appends cheap and the newest samples free to read. Late samples cost nothing where there are none.

mod chunks;
mod closed;
mod deleted;

use std::collections::BTreeMap;

use super::arena::{Arena, Kept, Link, NONE};
use super::backwards::Backwards;
use super::record::{self, Newer, Record, Values};
use super::slots::{Append, BLOCK_SERIES, Block, NEVER, Written};
use crate::model::TimeRange;
use crate::tsdb::chunk::MINI;
use crate::tsdb::report::SampleColumns;
pub(in crate::tsdb) use chunks::Order;

/// Memory of a late sample: 24 B in nodes of the tree that are two thirds full.
const LATE_BYTES: usize = 40;

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum Put {
    /// It is there now, or was there bit for bit.
    Stored,
    /// The series' last sample has this time and these other bits.
    Refused {
        /// Bit pattern.
        have: u64,
    },
}

/// Least and greatest time of a series, late samples included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct Span {
    pub(in crate::tsdb) first: i64,
    pub(in crate::tsdb) last: i64,
}

impl Span {
    /// The least span that holds both.
    pub(in crate::tsdb) fn with(self, other: Span) -> Span {
        Span { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// Whether it shares a moment with `range`; an empty one, which ends before it begins, has none.
    pub(in crate::tsdb) const fn overlaps(self, range: TimeRange) -> bool {
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        start <= end && self.first <= end && start <= self.last
    }
}

/// What a stripe holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tsdb) struct Size {
    /// Late ones included.
    pub(in crate::tsdb) samples: u64,
    pub(in crate::tsdb) late: u64,
    pub(in crate::tsdb) bytes: u64,
}

/// Records of one series from the newest on, as they are found.
struct Records<'s> {
    arena: &'s Arena,
    /// What the next one is read against, and where it lies.
    next: Option<(Newer, Link)>,
    start: i64,
}

impl<'s> Iterator for Records<'s> {
    type Item = (Link, Record<'s>);

    #[inline]
    fn next(&mut self) -> Option<(Link, Record<'s>)> {
        let (newer, link) =
            self.next.take().filter(|(newer, link)| *link != NONE && newer.first > self.start)?;
        // Records are made here: that one cannot be read does not come.
        let record = Record::open(self.arena.at(link)?, newer).ok().filter(|r| r.last >= self.start)?;
        self.next = Some((record.newer(), record.link));
        Some((link, record))
    }
}

/// Late samples by place in the stripe and time.
type Late = BTreeMap<(u16, i64), u64>;

/// The series `number * 1,024 ..` of an organisation.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Stripe {
    /// The last record that touched it.
    pub(in crate::tsdb) applied_seq: u64,
    released_until: Option<i64>,
    /// None where no series of the block has a sample in order.
    blocks: Vec<Option<Box<Block>>>,
    arena: Arena,
    late: Late,
    /// Late samples that a seal at work takes.
    frozen: Late,
    /// A late sample may be newer than its series' newest in order, since that was deleted.
    late_ahead: bool,
    /// Tails are kept short: memory counts, and readers wait.
    pub(in crate::tsdb) sparing: bool,
    in_order: u64,
    /// Of blocks.
    block_bytes: usize,
    /// Bytes in pages that nothing links to since samples were deleted.
    dead_bytes: usize,
    /// A record while it is made.
    scratch: Vec<u8>,
}

fn parts(slot: usize) -> (usize, usize) {
    (slot / BLOCK_SERIES, slot % BLOCK_SERIES)
}

fn late_key(slot: usize, at: i64) -> (u16, i64) {
    (u16::try_from(slot).unwrap_or(u16::MAX), at)
}

fn late_within(late: &Late, slot: usize, start: i64, end: i64) -> impl Iterator<Item = (i64, u64)> {
    // A map's range panics where the end comes before the start.
    let range = late_key(slot, start)..=late_key(slot, end.max(start));
    late.range(range).map(|((_, at), bits)| (*at, *bits)).filter(move |(at, _)| *at <= end)
}

impl Stripe {
    pub(in crate::tsdb) fn size(&self) -> Size {
        let late = self.late.len() + self.frozen.len();
        let bytes = self.block_bytes + self.arena.bytes() + late * LATE_BYTES;
        Size { samples: self.in_order + late as u64, late: late as u64, bytes: bytes as u64 }
    }

    /// Samples before this time that came before it was closed are in segments.
    pub(in crate::tsdb) fn released_until(&self) -> i64 {
        self.released_until.unwrap_or(NEVER)
    }

    fn block(&self, slot: usize) -> Option<(&Block, usize)> {
        let (number, place) = parts(slot);
        Some((self.blocks.get(number)?.as_deref()?, place))
    }

    #[inline]
    fn block_mut(&mut self, slot: usize) -> Option<(&mut Block, usize)> {
        let (number, place) = parts(slot);
        Some((self.blocks.get_mut(number)?.as_deref_mut()?, place))
    }

    #[inline]
    fn block_or_new(&mut self, slot: usize) -> Option<(&mut Block, usize)> {
        let (number, place) = parts(slot);
        if self.blocks.len() <= number {
            self.blocks.resize_with(number + 1, || None);
        }
        let block = self.blocks.get_mut(number)?.get_or_insert_with(|| {
            let mut block: Box<Block> = Box::default();
            if !self.sparing {
                // Series that are let in have their room.
                block.widen();
            }
            self.block_bytes += block.memory();
            block
        });
        Some((block, place))
    }

    /// Least and greatest time, if the series has samples.
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

    /// Least and greatest time of all its series.
    pub(in crate::tsdb) fn bounds(&self) -> Option<Span> {
        let late = self.late.keys().chain(self.frozen.keys()).map(|(slot, _)| usize::from(*slot));
        let mut beyond: Vec<usize> = late.filter(|slot| self.block(*slot).is_none()).collect();
        beyond.dedup();
        let blocks = self.blocks.iter().enumerate().filter(|(_, block)| block.is_some());
        let slots = blocks.flat_map(|(number, _)| number * BLOCK_SERIES..(number + 1) * BLOCK_SERIES);
        slots.chain(beyond).filter_map(|slot| self.span(slot)).reduce(Span::with)
    }

    /// Takes a sample; what becomes of it depends on the samples and barriers before it alone. Before the barrier it is
    /// late, whatever the series has.
    #[inline]
    pub(in crate::tsdb) fn put(&mut self, slot: usize, at: i64, bits: u64, barrier: i64) -> Put {
        if at >= barrier
            && !self.late_ahead
            && let Some((block, place)) = self.block_mut(slot)
            && block.append_regular(place, at, bits)
        {
            self.in_order += 1;
            return Put::Stored;
        }
        self.put_any(slot, at, bits, barrier)
    }

    #[inline(never)]
    fn put_any(&mut self, slot: usize, at: i64, bits: u64, barrier: i64) -> Put {
        let sparing = self.sparing;
        if at >= barrier
            && let Some((block, place)) = self.block_or_new(slot)
        {
            let memory = block.memory();
            let is_in_order = match block.append(place, at, bits, sparing) {
                Append::Done => {
                    self.block_bytes += block.memory() - memory;
                    true
                }
                Append::Known(have) if have == bits => return Put::Stored,
                Append::Known(have) => return Put::Refused { have },
                Append::Full { gap_after } => self.roll(slot, at, bits, gap_after, None).is_some(),
                Append::Earlier => false,
            };
            if is_in_order {
                self.in_order += 1;
                if self.late_ahead {
                    self.supersede(slot, at);
                }
                if sparing {
                    self.compact_if_due();
                }
                return Put::Stored;
            }
        }
        self.put_late(slot, at, bits);
        Put::Stored
    }

    /// Makes the tail a record and begins a new one. None: the arena is full; nothing is changed.
    fn roll(
        &mut self,
        slot: usize,
        at: i64,
        bits: u64,
        gap_after: Option<u64>,
        encoded: Option<Values<'_>>,
    ) -> Option<()> {
        let mut bytes = std::mem::take(&mut self.scratch);
        let (block, place) = self.block(slot)?;
        let (last, mut gaps, mut tail) = (block.last_at(place)?, block.gaps(place), block.bits(place));
        let newest = *block.chain.get(place)?;
        let (mut before, mut joined) = (newest, None);
        if self.sparing
            && let Some(page) = self.arena.at(newest)
            && let Some(record) = record::join(page, last, &mut gaps, &mut tail)
        {
            (before, joined) = (record.before, Some(record.bytes));
        }
        let values = encoded.filter(|_| joined.is_none()).unwrap_or(Values::Bits(&tail));
        record::encode(&mut bytes, before, &gaps, gap_after, values);
        let kept = if self.sparing && gaps.len < MINI { Kept::Short } else { Kept::Long };
        let record = self.arena.put(&bytes, last, kept);
        self.scratch = bytes;
        let written = Written { record: record?, told: gap_after.is_some() };
        if let Some(bytes) = joined {
            self.arena.replace(newest, bytes);
        }
        let (block, place) = self.block_mut(slot)?;
        let memory = block.memory();
        block.restart(place, at, bits, Some(written));
        self.block_bytes += block.memory() - memory;
        Some(())
    }

    /// Makes records of what is in the longer tails of a slot's block, and gives their room back, where tails are kept short.
    pub(in crate::tsdb) fn spare(&mut self, slot: usize) {
        if !self.sparing {
            return;
        }
        let first = slot - slot % BLOCK_SERIES;
        for slot in first..first + BLOCK_SERIES {
            let Some((block, place)) = self.block_mut(slot).filter(|(block, _)| block.is_wide()) else {
                return;
            };
            if let Some((at, bits)) = block.pop_of_long(place)
                && self.roll(slot, at, bits, None, None).is_none()
                && let Some((block, place)) = self.block_mut(slot)
            {
                // The arena is full: it stays where it was.
                block.append(place, at, bits, false);
            }
        }
        if let Some((block, _)) = self.block_mut(first) {
            let memory = block.memory();
            block.narrow();
            self.block_bytes -= memory - block.memory();
        }
    }

    /// Takes out the late sample of a time at which one came in order after it: the last write wins.
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

    /// The in-order sample of exactly this time.
    fn in_order_at(&self, slot: usize, at: i64) -> Option<u64> {
        let (block, place) = self.block(slot)?;
        if at < *block.first_at.get(place)? {
            return None;
        }
        let mut out = SampleColumns::default();
        self.read_in_order(slot, at, at, &mut out);
        out.values.first().map(|value| value.to_bits())
    }

    /// Records of a series that may have samples at or after `start`, newest first.
    fn records(&self, slot: usize, start: i64) -> Records<'_> {
        let next = self
            .block(slot)
            .and_then(|(block, place)| block.newer(place).zip(block.chain.get(place).copied()));
        Records { arena: &self.arena, next, start }
    }

    /// Appends the samples of a series inside `range` to `out`, ascending; answers [`Stripe::released_until`].
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
        let records: Vec<Record<'_>> = self.records(slot, start).map(|(_, record)| record).collect();
        for record in records.iter().rev().take_while(|record| record.first <= end) {
            if let Ok((times, bits)) = record.samples() {
                push_within(&times, bits.get(..record.gaps.len).unwrap_or_default(), start, end, out);
            }
        }
        push_within(&block.gaps(place).times(last), &block.bits(place), start, end, out);
    }

    /// As [`Stripe::read_in_order`] from the first one on. None: there are more than are counted, which never happens.
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

/// `times` may be longer than `bits`.
fn push_within(times: &[i64; MINI], bits: &[u64], start: i64, end: i64, out: &mut SampleColumns) {
    let times = times.get(..bits.len()).unwrap_or_default();
    let (mut from, mut to) = (0, times.len());
    // Most are inside as a whole.
    if times.first().is_some_and(|first| *first < start) || times.last().is_some_and(|last| *last > end) {
        from = times.partition_point(|at| *at < start);
        to = times.partition_point(|at| *at <= end);
    }
    if let (Some(times), Some(bits)) = (times.get(from..to), bits.get(from..to)) {
        out.times.extend_from_slice(times);
        out.values.extend(bits.iter().map(|bits| f64::from_bits(*bits)));
    }
}

/// Goes over the records of series by their links alone, a step of each in turn; answers how many there are.
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

/// Merges late samples into those of `out` after `from`; at the same time the late one wins.
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
        let instead = late.next_if(|(same, _)| *same == at).map(|(_, bits)| f64::from_bits(bits));
        out.times.push(at);
        out.values.push(instead.unwrap_or(value));
    }
    for (at, bits) in late {
        out.times.push(at);
        out.values.push(f64::from_bits(bits));
    }
}
