//! The part of a seal in a stripe: late samples are frozen, samples are copied, and then removed.

use super::super::arena::{Link, NONE, RecordLifetime};
use super::super::record::{self, RecordValues, TailRecord};
use super::super::slots::{BLOCK_SERIES, NEVER};
use super::{SealBounds, Stripe, late_key, late_within, merge_late};
use crate::tsdb::report::SampleColumns;

impl Stripe {
    /// Freezes the late samples for a seal.
    pub(in crate::tsdb) fn freeze(&mut self) {
        // A failed seal may have left some, over which newer ones take precedence.
        if self.frozen.is_empty() {
            std::mem::swap(&mut self.frozen, &mut self.late);
        } else {
            self.frozen.append(&mut self.late);
        }
    }

    /// Freezes the late samples and the samples in order at or after `until` for a seal of all
    /// times. A late sample at the time of one in order was written later, so it takes precedence.
    pub(in crate::tsdb) fn freeze_all(&mut self, until: i64) {
        let mut all = SampleColumns::default();
        for slot in 0..self.blocks.len() * BLOCK_SERIES {
            all.times.clear();
            all.values.clear();
            self.read_in_order(slot, NEVER, i64::MAX, &mut all);
            let first = all.times.partition_point(|at| *at < until);
            if first == all.times.len() {
                continue;
            }
            let samples = all.times.iter().zip(&all.values).skip(first);
            for (key, value) in samples.map(|(at, value)| (late_key(slot, *at), value)) {
                if !self.frozen.contains_key(&key) {
                    self.late.entry(key).or_insert(value.to_bits());
                }
            }
            self.rebuild(slot, &all, |at| at < until);
        }
        self.late_ahead = !(self.late.is_empty() && self.frozen.is_empty());
        self.compact_if_due();
        self.freeze();
    }

    /// Makes frozen samples at or after `from_ms` late again, unless there is a newer sample of the
    /// same time. Drops the other frozen samples.
    fn thaw(&mut self, from_ms: i64) {
        let mut back = std::mem::take(&mut self.frozen);
        back.retain(|(_, at), _| *at >= from_ms);
        back.append(&mut self.late);
        self.late = back;
    }

    /// Makes the frozen samples late again after a failed seal.
    pub(in crate::tsdb) fn reopen(&mut self) {
        self.thaw(NEVER);
    }

    /// Appends the samples that a seal takes of a series: see [`SealBounds`].
    pub(in crate::tsdb) fn copy_closed(&self, slot: usize, bounds: SealBounds, out: &mut SampleColumns) {
        if bounds.until > NEVER {
            let from = out.times.len();
            self.read_in_order(slot, NEVER, bounds.until - 1, out);
            merge_late(late_within(&self.frozen, slot, NEVER, bounds.late_end - 1), from, out);
        }
    }

    /// Removes the samples that [`Stripe::copy_closed`] returns, and releases their memory.
    pub(in crate::tsdb) fn release(&mut self, SealBounds { until, late_end }: SealBounds) {
        self.thaw(late_end);
        for slot in 0..self.blocks.len() * BLOCK_SERIES {
            self.release_slot(slot, until);
        }
        for block in &mut self.blocks {
            if let Some(empty) = block.take_if(|block| block.is_empty()) {
                self.block_bytes -= empty.memory();
            }
        }
        self.arena.release(until);
        self.dead_bytes = self.dead_bytes.min(self.arena.bytes());
        self.released_until = self.released_until.max(Some(until));
    }

    fn release_slot(&mut self, slot: usize, until: i64) {
        let Some((block, place)) = self.block_mut(slot) else { return };
        let Some(last) = block.last_at(place) else { return };
        let before = block.samples(place);
        let gaps = block.gaps(place);
        let removed = gaps.times(last).iter().take(gaps.len).filter(|at| **at < until).count();
        if removed == gaps.len {
            block.clear(place);
        } else if removed > 0 {
            block.trim(place, removed);
        } else {
            self.release_records(slot, until);
        }
        let after = self.block(slot).map_or(0, |(block, place)| block.samples(place));
        self.in_order -= before - after;
    }

    /// Cuts the chain of a series whose tail stays.
    fn release_records(&mut self, slot: usize, until: i64) -> Option<()> {
        let records: Vec<(Link, TailRecord<'_>)> = self.records(slot, until).collect();
        let (block, place) = self.block(slot)?;
        let mut first = block.newer(place)?.first;
        let (mut samples, mut newer, mut chain) = (0, None, *block.chain.get(place)?);
        let mut oldest = NONE;
        let mut rewritten = None;
        for (link, record) in &records {
            if record.first >= until {
                (newer, first, samples) = (Some(*link), record.first, samples + record.gaps.len);
                continue;
            }
            // The record has samples on both sides of `until`, so its remaining samples are encoded
            // again.
            let (times, bits) = record.samples().ok()?;
            let times = times.get(..record.gaps.len)?;
            let removed = times.partition_point(|at| *at < until);
            let mut gaps = record.gaps;
            gaps.jitter.copy_within(removed.., 0);
            gaps.len -= removed;
            let bits = bits.get(removed..record.gaps.len)?;
            let mut bytes = Vec::new();
            record::encode(&mut bytes, NONE, &gaps, record.gap_after, RecordValues::Bits(bits));
            rewritten = Some((bytes, record.last));
            (first, samples) = (*times.get(removed)?, samples + gaps.len);
            break;
        }
        if let Some((bytes, last)) = rewritten {
            oldest = self.arena.put(&bytes, last, RecordLifetime::Long)?;
        }
        match newer {
            Some(newer) => self.arena.relink(newer, oldest),
            None => chain = oldest,
        }
        let (block, place) = self.block_mut(slot)?;
        *block.chain.get_mut(place)? = chain;
        *block.first_at.get_mut(place)? = first;
        *block.in_chain.get_mut(place)? = u32::try_from(samples).ok()?;
        Some(())
    }
}
