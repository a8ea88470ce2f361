//! 1,024 consecutive series as struct of arrays.
//!
//! A series' samples in order of time: closed chunks of 128 and a few, the open chunk, the tail of at most 16 raw
//! samples; beside them its late samples. The tail makes appends cheap (three stores) and the newest samples free to
//! read; when it is full it becomes one mini-block of the open chunk.

use std::collections::BTreeMap;

use crate::model::TimeRange;
use crate::tsdb::block::{self, MINI};
use crate::tsdb::error::Damage;
use crate::tsdb::report::SampleColumns;

/// Samples after which an open chunk is closed: half an hour at 15 s, short enough to decode for one point.
pub(in crate::tsdb) const CHUNK_SAMPLES: u16 = 128;
/// Samples of a chunk at most: an open one of 127 and a whole tail. 18 B each at worst, so 2.7 kB.
pub(in crate::tsdb) const CHUNK_SAMPLES_MAX: u16 = CHUNK_SAMPLES - 1 + 16;
const _: () = assert!(MINI == 16);
/// No sample: the time before every time; samples before the year 1 are refused long before.
const NEVER: i64 = i64::MIN;
/// Estimated memory of a slot without its chunks: 17 + 8 + 64 + 128 in arrays, 136 in its [`Chunks`].
const SLOT_BYTES: u64 = 353;
/// Estimated memory of a late sample in its tree.
const LATE_BYTES: u64 = 32;
/// Estimated memory of a closed chunk beside its bytes: its entry and the allocator's header.
const CHUNK_BYTES: u64 = 56;

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

    pub(in crate::tsdb) const fn overlaps(self, range: TimeRange) -> bool {
        self.first <= range.end.as_ms() && range.start.as_ms() <= self.last
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

impl Size {
    fn forget_late(&mut self) {
        self.samples -= 1;
        self.late -= 1;
        self.bytes -= LATE_BYTES;
    }
}

/// How samples of a chunk came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum Order {
    InOrder,
    Late,
}

/// The series `number * 1,024 ..` of an organisation.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Stripe {
    /// The last record that touched it.
    pub(in crate::tsdb) applied_seq: u64,
    last_at: Vec<i64>,
    last_bits: Vec<u64>,
    tail_len: Vec<u8>,
    tail_base: Vec<i64>,
    /// Milliseconds after the base; a longer gap than 49 days flushes the tail.
    tail_after: Vec<[u32; MINI]>,
    tail_bits: Vec<[u64; MINI]>,
    chunks: Vec<Chunks>,
    size: Size,
    /// Samples before this time that came before it was closed are in segments.
    released_until: Option<i64>,
}

/// What is not touched by most appends.
#[derive(Debug)]
struct Chunks {
    first_at: i64,
    closed: Vec<Closed>,
    open: Vec<u8>,
    open_first: i64,
    open_last: i64,
    open_samples: u16,
    late: BTreeMap<i64, u64>,
    /// Late samples that a seal at work takes.
    frozen: BTreeMap<i64, u64>,
}

#[derive(Debug)]
struct Closed {
    first: i64,
    last: i64,
    samples: u16,
    bytes: Box<[u8]>,
}

impl Default for Chunks {
    fn default() -> Chunks {
        Chunks {
            first_at: i64::MAX,
            closed: Vec::new(),
            open: Vec::new(),
            open_first: 0,
            open_last: 0,
            open_samples: 0,
            late: BTreeMap::new(),
            frozen: BTreeMap::new(),
        }
    }
}

impl Stripe {
    pub(in crate::tsdb) const fn size(&self) -> Size {
        self.size
    }

    /// Least and greatest time, if the series has samples.
    pub(in crate::tsdb) fn span(&self, slot: usize) -> Option<Span> {
        let chunks = self.chunks.get(slot)?;
        let late = [&chunks.late, &chunks.frozen];
        let in_order = self.last_at.get(slot).copied().filter(|last| *last != NEVER);
        let last = late.iter().filter_map(|late| late.keys().next_back().copied()).chain(in_order).max()?;
        let first = late.iter().filter_map(|late| late.keys().next().copied());
        let first = first.chain(in_order.map(|_| chunks.first_at)).min()?;
        Some(Span { first, last })
    }

    /// Least and greatest time of all its series.
    pub(in crate::tsdb) fn bounds(&self) -> Option<Span> {
        let spans = (0..self.chunks.len()).filter_map(|slot| self.span(slot));
        spans.reduce(Span::with)
    }

    /// Samples before this time that came before it was closed are in segments.
    pub(in crate::tsdb) fn released_until(&self) -> i64 {
        self.released_until.unwrap_or(NEVER)
    }

    fn reach(&mut self, slot: usize) {
        let slots = slot + 1;
        if self.last_at.len() < slots {
            self.size.bytes += SLOT_BYTES * (slots - self.last_at.len()) as u64;
            self.last_at.resize(slots, NEVER);
            self.last_bits.resize(slots, 0);
            self.tail_len.resize(slots, 0);
            self.tail_base.resize(slots, 0);
            self.tail_after.resize(slots, [0; MINI]);
            self.tail_bits.resize(slots, [0; MINI]);
            self.chunks.resize_with(slots, Chunks::default);
        }
    }

    /// Takes a sample; what becomes of it depends on the samples and barriers before it alone. Before the barrier it is
    /// late, whatever the series has.
    pub(in crate::tsdb) fn put(&mut self, slot: usize, at: i64, bits: u64, barrier: i64) -> Put {
        self.reach(slot);
        if at < barrier {
            self.put_late(slot, at, bits);
            return Put::Stored;
        }
        let (Some(last_at), Some(last_bits)) = (self.last_at.get_mut(slot), self.last_bits.get_mut(slot))
        else {
            return Put::Stored;
        };
        if at > *last_at {
            let fresh = *last_at == NEVER;
            *last_at = at;
            *last_bits = bits;
            if let (true, Some(chunks)) = (fresh, self.chunks.get_mut(slot)) {
                chunks.first_at = at;
            }
            self.push(slot, at, bits);
            self.size.samples += 1;
            return Put::Stored;
        }
        if at == *last_at {
            return if bits == *last_bits { Put::Stored } else { Put::Refused { have: *last_bits } };
        }
        self.put_late(slot, at, bits);
        Put::Stored
    }

    fn push(&mut self, slot: usize, at: i64, bits: u64) {
        let after = |base: i64| u32::try_from(at.wrapping_sub(base).cast_unsigned()).ok();
        let (Some(len), Some(base)) = (self.tail_len.get(slot).copied(), self.tail_base.get(slot).copied())
        else {
            return;
        };
        let full = usize::from(len) == MINI || (len > 0 && after(base).is_none());
        if full {
            self.flush_tail(slot);
        }
        let (Some(len), Some(base)) = (self.tail_len.get_mut(slot), self.tail_base.get_mut(slot)) else {
            return;
        };
        if *len == 0 {
            *base = at;
        }
        let place = usize::from(*len);
        let (Some(times), Some(values)) = (self.tail_after.get_mut(slot), self.tail_bits.get_mut(slot))
        else {
            return;
        };
        if let (Some(time), Some(value), Some(after)) =
            (times.get_mut(place), values.get_mut(place), after(*base))
        {
            *time = after;
            *value = bits;
            *len += 1;
        }
    }

    /// Calls `each` with the times and bit patterns of the tail.
    fn with_tail<T>(&self, slot: usize, each: impl FnOnce(&[i64], &[u64]) -> T) -> Option<T> {
        let len = usize::from(*self.tail_len.get(slot)?);
        let base = *self.tail_base.get(slot)?;
        let after = self.tail_after.get(slot)?.get(..len)?;
        let mut times = [0; MINI];
        for (time, after) in times.iter_mut().zip(after) {
            *time = base.wrapping_add(i64::from(*after));
        }
        Some(each(times.get(..len)?, self.tail_bits.get(slot)?.get(..len)?))
    }

    /// Makes the tail a mini-block of the open chunk.
    fn flush_tail(&mut self, slot: usize) {
        let Some(mut chunks) = self.chunks.get_mut(slot).map(std::mem::take) else { return };
        let before = chunks.open.capacity();
        self.with_tail(slot, |times, values| chunks.append(times, values));
        let grown = chunks.open.capacity() - before;
        self.size.bytes += grown as u64;
        if chunks.open_samples >= CHUNK_SAMPLES {
            self.size.bytes -= chunks.open.capacity() as u64;
            self.size.bytes += chunks.open.len() as u64 + CHUNK_BYTES;
            chunks.close();
        }
        if let (Some(place), Some(len)) = (self.chunks.get_mut(slot), self.tail_len.get_mut(slot)) {
            *place = chunks;
            *len = 0;
        }
    }

    fn put_late(&mut self, slot: usize, at: i64, bits: u64) {
        let known =
            self.chunks.get(slot).and_then(|c| c.late.get(&at).or_else(|| c.frozen.get(&at)).copied());
        if known == Some(bits) || (known.is_none() && self.in_order_at(slot, at) == Some(bits)) {
            return;
        }
        let Some(chunks) = self.chunks.get_mut(slot) else { return };
        if chunks.late.insert(at, bits).is_none() {
            self.size.samples += 1;
            self.size.late += 1;
            self.size.bytes += LATE_BYTES;
        }
    }

    /// The in-order sample of exactly this time.
    fn in_order_at(&self, slot: usize, at: i64) -> Option<u64> {
        let find = |times: &[i64], values: &[u64]| values.get(times.binary_search(&at).ok()?).copied();
        if let Some(found) = self.with_tail(slot, find).flatten() {
            return Some(found);
        }
        let chunks = self.chunks.get(slot)?;
        let place = chunks.closed.partition_point(|closed| closed.last < at);
        let bytes = chunks.closed.get(place).map_or(chunks.open.as_slice(), |closed| &closed.bytes);
        let mut minis = block::decode(bytes);
        // Chunks are made here, or were read to their end when they were loaded.
        while let Ok(Some(mini)) = minis.next() {
            if let Some(found) = find(mini.times(), mini.values()) {
                return Some(found);
            }
        }
        None
    }

    /// Appends the samples of a series inside `range` to `out`, ascending; answers [`Stripe::released_until`].
    pub(in crate::tsdb) fn read(&self, slot: usize, range: TimeRange, out: &mut SampleColumns) -> i64 {
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        let from = out.times.len();
        self.read_in_order(slot, start, end, out);
        if let Some(chunks) = self.chunks.get(slot).filter(|_| start <= end) {
            merge_late(&chunks.frozen, start, end, from, out);
            merge_late(&chunks.late, start, end, from, out);
        }
        self.released_until()
    }

    fn read_in_order(&self, slot: usize, start: i64, end: i64, out: &mut SampleColumns) {
        let Some(chunks) = self.chunks.get(slot).filter(|_| start <= end) else { return };
        let first = chunks.closed.partition_point(|closed| closed.last < start);
        let closed = chunks.closed.iter().skip(first).take_while(|closed| closed.first <= end);
        for closed in closed {
            push_chunk(&closed.bytes, start, end, out);
        }
        if chunks.open_samples > 0 && chunks.open_first <= end && start <= chunks.open_last {
            push_chunk(&chunks.open, start, end, out);
        }
        self.with_tail(slot, |times, values| push_within(times, values, start, end, out));
    }

    /// Sets the late samples aside for a seal.
    pub(in crate::tsdb) fn freeze(&mut self) {
        for chunks in self.chunks.iter_mut().filter(|chunks| !chunks.late.is_empty()) {
            // A seal that failed left some: the newer ones win.
            let late = std::mem::take(&mut chunks.late);
            for (at, bits) in late {
                if chunks.frozen.insert(at, bits).is_some() {
                    self.size.forget_late();
                }
            }
        }
    }

    /// Takes back those set aside at `from_ms` or later; where another came meanwhile, it wins. Drops the others.
    fn thaw(&mut self, from_ms: i64) {
        for chunks in self.chunks.iter_mut().filter(|chunks| !chunks.frozen.is_empty()) {
            for (at, bits) in std::mem::take(&mut chunks.frozen) {
                if at < from_ms || chunks.late.contains_key(&at) {
                    self.size.forget_late();
                } else {
                    chunks.late.insert(at, bits);
                }
            }
        }
    }

    /// The seal failed: what was set aside is late again.
    pub(in crate::tsdb) fn reopen(&mut self) {
        self.thaw(NEVER);
    }

    /// What a seal takes of a series: samples in order before `until`, and late ones that were set aside.
    pub(in crate::tsdb) fn copy_closed(&self, slot: usize, until: i64, out: &mut SampleColumns) {
        let Some(chunks) = self.chunks.get(slot).filter(|_| until > NEVER) else { return };
        let from = out.times.len();
        self.read_in_order(slot, NEVER, until - 1, out);
        merge_late(&chunks.frozen, NEVER, until - 1, from, out);
    }

    /// Lets go of what [`Stripe::copy_closed`] gives.
    pub(in crate::tsdb) fn release(&mut self, until: i64) {
        self.thaw(until);
        for slot in 0..self.chunks.len() {
            self.keep_in_order(slot, |at| at >= until);
        }
        self.released_until = self.released_until.max(Some(until));
    }

    /// Removes the samples of a series inside `range`.
    pub(in crate::tsdb) fn delete(&mut self, slot: usize, range: TimeRange) {
        let gone = |at: i64| range.start.as_ms() <= at && at <= range.end.as_ms();
        if let Some(chunks) = self.chunks.get_mut(slot) {
            for late in [&mut chunks.late, &mut chunks.frozen] {
                for _ in late.extract_if(.., |at, _| gone(*at)) {
                    self.size.forget_late();
                }
            }
        }
        self.keep_in_order(slot, |at| !gone(at));
    }

    fn keep_in_order(&mut self, slot: usize, keep: impl Fn(i64) -> bool) {
        let mut all = SampleColumns::default();
        self.read_in_order(slot, NEVER, i64::MAX, &mut all);
        if all.times.iter().all(|at| keep(*at)) {
            return;
        }
        let (Some(last_at), Some(tail), Some(chunks)) =
            (self.last_at.get_mut(slot), self.tail_len.get_mut(slot), self.chunks.get_mut(slot))
        else {
            return;
        };
        let closed: usize = chunks.closed.iter().map(|closed| closed.bytes.len()).sum();
        let bytes = chunks.open.capacity() + closed + chunks.closed.len() * CHUNK_BYTES as usize;
        self.size.bytes = self.size.bytes.saturating_sub(bytes as u64);
        self.size.samples -= all.times.len() as u64;
        (*last_at, *tail) = (NEVER, 0);
        let (late, frozen) = (std::mem::take(&mut chunks.late), std::mem::take(&mut chunks.frozen));
        *chunks = Chunks { late, frozen, ..Chunks::default() };
        for (at, value) in all.times.iter().zip(&all.values).filter(|(at, _)| keep(**at)) {
            self.put(slot, *at, value.to_bits(), NEVER);
        }
    }

    /// Calls `each` with every chunk that a checkpoint keeps of a series: order, samples, least time, bytes.
    pub(in crate::tsdb) fn copy_chunks(&self, slot: usize, mut each: impl FnMut(Order, u16, i64, &[u8])) {
        let Some(chunks) = self.chunks.get(slot) else { return };
        for closed in &chunks.closed {
            each(Order::InOrder, closed.samples, closed.first, &closed.bytes);
        }
        let mut open = chunks.open.clone();
        let in_tail = self.with_tail(slot, |times, values| {
            block::put_mini(&mut open, chunks.open_last_or_zero(), times, values);
            (times.len(), times.first().copied())
        });
        let (tail_samples, tail_first) = in_tail.unwrap_or_default();
        let samples = chunks.open_samples + u16::try_from(tail_samples).unwrap_or(0);
        if samples > 0 {
            let first =
                if chunks.open_samples > 0 { chunks.open_first } else { tail_first.unwrap_or_default() };
            each(Order::InOrder, samples, first, &open);
        }
        let mut late = chunks.frozen.clone();
        late.extend(&chunks.late);
        let (times, values): (Vec<i64>, Vec<u64>) = late.into_iter().unzip();
        let pieces = times.chunks(usize::from(CHUNK_SAMPLES)).zip(values.chunks(usize::from(CHUNK_SAMPLES)));
        for (times, values) in pieces {
            let samples = u16::try_from(times.len()).unwrap_or(CHUNK_SAMPLES);
            each(
                Order::Late,
                samples,
                times.first().copied().unwrap_or_default(),
                &block::encode(times, values),
            );
        }
    }

    /// Takes a chunk over from a checkpoint, but for samples before `from_ms`; those of one series and order come in
    /// order of time, late ones last.
    ///
    /// # Errors
    /// [`Damage`] where it is no chunk, or does not follow what is there.
    pub(in crate::tsdb) fn load_chunk(
        &mut self,
        slot: usize,
        order: Order,
        samples: u16,
        bytes: &[u8],
        from_ms: i64,
    ) -> Result<(), Damage> {
        self.reach(slot);
        let (mut times, mut values) = (Vec::new(), Vec::new());
        let mut minis = block::decode(bytes);
        while let Some(mini) = minis.next()? {
            times.extend_from_slice(mini.times());
            values.extend_from_slice(mini.values());
        }
        let Some(first) = times.first() else {
            return Err(Damage::new(0, "a chunk without samples"));
        };
        if times.len() != usize::from(samples) || samples > CHUNK_SAMPLES_MAX {
            return Err(Damage::new(0, "a chunk has another number of samples"));
        }
        let within = times.iter().copied().zip(values).filter(|(at, _)| *at >= from_ms);
        if order == Order::Late {
            for (at, bits) in within {
                self.put_late(slot, at, bits);
            }
            return Ok(());
        }
        if self.last_at.get(slot).is_some_and(|last| first <= last) {
            return Err(Damage::new(0, "chunks do not ascend"));
        }
        for (at, bits) in within {
            self.put(slot, at, bits, NEVER);
        }
        Ok(())
    }
}

impl Chunks {
    fn open_last_or_zero(&self) -> i64 {
        if self.open.is_empty() { 0 } else { self.open_last }
    }

    fn append(&mut self, times: &[i64], values: &[u64]) {
        let (Some(first), Some(last)) = (times.first(), times.last()) else { return };
        let before = self.open_last_or_zero();
        block::put_mini(&mut self.open, before, times, values);
        if self.open_samples == 0 {
            self.open_first = *first;
        }
        self.open_last = *last;
        self.open_samples += u16::try_from(times.len()).unwrap_or(0);
    }

    fn close(&mut self) {
        if self.open_samples > 0 {
            let bytes = std::mem::take(&mut self.open).into_boxed_slice();
            let (first, last, samples) = (self.open_first, self.open_last, self.open_samples);
            self.closed.push(Closed { first, last, samples, bytes });
            self.open_samples = 0;
        }
    }
}

fn push_chunk(bytes: &[u8], start: i64, end: i64, out: &mut SampleColumns) {
    let mut minis = block::decode(bytes);
    // Chunks are made here, or were read to their end when they were loaded.
    while let Ok(Some(mini)) = minis.next() {
        push_within(mini.times(), mini.values(), start, end, out);
    }
}

fn push_within(times: &[i64], values: &[u64], start: i64, end: i64, out: &mut SampleColumns) {
    let from = times.partition_point(|at| *at < start);
    let to = times.partition_point(|at| *at <= end);
    if let (Some(times), Some(values)) = (times.get(from..to), values.get(from..to)) {
        out.times.extend_from_slice(times);
        out.values.extend(values.iter().map(|bits| f64::from_bits(*bits)));
    }
}

/// Merges late samples into those of `out` after `from`; at the same time the late one wins.
fn merge_late(late: &BTreeMap<i64, u64>, start: i64, end: i64, from: usize, out: &mut SampleColumns) {
    let mut late = late.range(start..=end).peekable();
    if late.peek().is_none() {
        return;
    }
    let (times, values) = (out.times.split_off(from), out.values.split_off(from));
    for (at, value) in times.into_iter().zip(values) {
        while let Some((early, bits)) = late.next_if(|(early, _)| **early < at) {
            out.times.push(*early);
            out.values.push(f64::from_bits(*bits));
        }
        let instead = late.next_if(|(same, _)| **same == at).map(|(_, bits)| f64::from_bits(*bits));
        out.times.push(at);
        out.values.push(instead.unwrap_or(value));
    }
    for (at, bits) in late {
        out.times.push(*at);
        out.values.push(f64::from_bits(*bits));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Timestamp;

    fn read(stripe: &Stripe, slot: usize, range: TimeRange) -> Vec<(i64, u64)> {
        let mut out = SampleColumns::default();
        stripe.read(slot, range, &mut out);
        out.times.into_iter().zip(out.values.into_iter().map(f64::to_bits)).collect()
    }

    /// The rules in their simplest form.
    #[derive(Default)]
    struct Model {
        last: Option<(i64, u64)>,
        samples: BTreeMap<i64, u64>,
    }

    impl Model {
        fn put(&mut self, at: i64, bits: u64) -> Put {
            match self.last {
                Some((last, have)) if last == at && have != bits => return Put::Refused { have },
                Some((last, _)) if last >= at => {}
                _ => self.last = Some((at, bits)),
            }
            self.samples.insert(at, bits);
            Put::Stored
        }
    }

    proptest! {
        #[test]
        fn a_stripe_equals_a_map(
            puts in prop::collection::vec((0usize..2, prop_oneof![-50i64..400, -1_000_000_000_000i64..1_000_000_000_000], 0u64..3), 0..700),
            ends in (-60i64..400, -60i64..400),
            reload_at: prop::sample::Index,
        ) {
            let mut stripe = Stripe::default();
            let mut models = [Model::default(), Model::default()];
            let reload_at = reload_at.index(puts.len().max(1));
            for (place, (slot, at, bits)) in puts.iter().enumerate() {
                if place == reload_at {
                    stripe = reloaded(&stripe);
                }
                // Mostly ascending, sometimes not.
                let at = if *at > 300 || *at < -50 { *at } else { at + place as i64 };
                prop_assert_eq!(stripe.put(*slot, at, *bits, NEVER), models[*slot].put(at, *bits));
            }
            let range = TimeRange::new(Timestamp::from_ms(ends.0), Timestamp::from_ms(ends.1));
            for (slot, model) in models.iter().enumerate() {
                let all: Vec<(i64, u64)> = model.samples.iter().map(|(t, v)| (*t, *v)).collect();
                prop_assert_eq!(&read(&stripe, slot, TimeRange::ALL), &all);
                let within = |(at, _): &&(i64, u64)| ends.0 <= *at && *at <= ends.1;
                prop_assert_eq!(read(&stripe, slot, range), all.iter().filter(within).copied().collect::<Vec<_>>());
                let span = stripe.span(slot);
                prop_assert_eq!(span.map(|s| s.first), all.first().map(|s| s.0));
                prop_assert_eq!(span.map(|s| s.last), all.last().map(|s| s.0));
            }
            let samples: usize = models.iter().map(|m| m.samples.len()).sum();
            prop_assert!(stripe.size().samples - stripe.size().late <= samples as u64);
        }
    }

    fn reloaded(stripe: &Stripe) -> Stripe {
        let mut again = Stripe::default();
        for slot in 0..2 {
            stripe.copy_chunks(slot, |order, samples, _, bytes| {
                assert!(bytes.len() < 3_000);
                again.load_chunk(slot, order, samples, bytes, NEVER).expect("loads");
            });
        }
        again
    }

    #[test]
    fn chunks_that_do_not_follow_are_damage() {
        let mut stripe = Stripe::default();
        let chunk = block::encode(&[1, 2], &[0, 0]);
        assert_eq!(stripe.load_chunk(0, Order::InOrder, 2, &chunk, NEVER), Ok(()));
        assert!(stripe.load_chunk(0, Order::InOrder, 2, &chunk, NEVER).is_err());
        assert!(stripe.load_chunk(1, Order::InOrder, 3, &chunk, NEVER).is_err());
        assert!(stripe.load_chunk(1, Order::InOrder, 0, &[], NEVER).is_err());
    }
}
