//! What a seal takes of a stripe: late samples set aside, samples copied, and then let go.

use super::super::arena::{Kept, Link, NONE};
use super::super::record::{self, Record, Values};
use super::super::slots::{BLOCK_SERIES, NEVER};
use super::{Stripe, late_key, late_within, merge_late};
use crate::tsdb::report::SampleColumns;

impl Stripe {
    /// Sets the late samples aside for a seal.
    pub(in crate::tsdb) fn freeze(&mut self) {
        // A seal that failed may have left some: the newer ones win.
        if self.frozen.is_empty() {
            std::mem::swap(&mut self.frozen, &mut self.late);
        } else {
            self.frozen.append(&mut self.late);
        }
    }

    /// Sets the late samples aside for a seal of all times, and with them those in order at or after `until`. What came
    /// late at the same time as one in order came after it and wins.
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

    /// Takes back those set aside at `from_ms` or later; where another came meanwhile, it wins. Drops the others.
    fn thaw(&mut self, from_ms: i64) {
        let mut back = std::mem::take(&mut self.frozen);
        back.retain(|(_, at), _| *at >= from_ms);
        back.append(&mut self.late);
        self.late = back;
    }

    /// The seal failed: what was set aside is late again.
    pub(in crate::tsdb) fn reopen(&mut self) {
        self.thaw(NEVER);
    }

    /// What a seal takes of a series: samples in order before `until`, and late ones before `late_end` that were set aside.
    pub(in crate::tsdb) fn copy_closed(
        &self,
        slot: usize,
        (until, late_end): (i64, i64),
        out: &mut SampleColumns,
    ) {
        if until > NEVER {
            let from = out.times.len();
            self.read_in_order(slot, NEVER, until - 1, out);
            merge_late(late_within(&self.frozen, slot, NEVER, late_end - 1), from, out);
        }
    }

    /// Lets go of what [`Stripe::copy_closed`] gives, and of the memory.
    pub(in crate::tsdb) fn release(&mut self, (until, late_end): (i64, i64)) {
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
        let old = gaps.times(last).iter().take(gaps.len).filter(|at| **at < until).count();
        if old == gaps.len {
            block.clear(place);
        } else if old > 0 {
            block.trim(place, old);
        } else {
            self.release_records(slot, until);
        }
        let after = self.block(slot).map_or(0, |(block, place)| block.samples(place));
        self.in_order -= before - after;
    }

    /// Cuts the chain of a series whose tail stays.
    fn release_records(&mut self, slot: usize, until: i64) -> Option<()> {
        let records: Vec<(Link, Record<'_>)> = self.records(slot, until).collect();
        let (block, place) = self.block(slot)?;
        let mut first = block.newer(place)?.first;
        let (mut kept, mut newer, mut chain) = (0, None, *block.chain.get(place)?);
        let mut oldest = NONE;
        let mut made = None;
        for (link, record) in &records {
            if record.first >= until {
                (newer, first, kept) = (Some(*link), record.first, kept + record.gaps.len);
                continue;
            }
            // It reaches over the border: what stays is written anew.
            let (times, bits) = record.samples().ok()?;
            let times = times.get(..record.gaps.len)?;
            let old = times.partition_point(|at| *at < until);
            let mut gaps = record.gaps;
            gaps.over.copy_within(old.., 0);
            gaps.len -= old;
            let bits = bits.get(old..record.gaps.len)?;
            let mut bytes = Vec::new();
            record::encode(&mut bytes, NONE, &gaps, record.gap_after, Values::Bits(bits));
            made = Some((bytes, record.last));
            (first, kept) = (*times.get(old)?, kept + gaps.len);
            break;
        }
        if let Some((bytes, last)) = made {
            oldest = self.arena.put(&bytes, last, Kept::Long)?;
        }
        match newer {
            Some(newer) => self.arena.relink(newer, oldest),
            None => chain = oldest,
        }
        let (block, place) = self.block_mut(slot)?;
        *block.chain.get_mut(place)? = chain;
        *block.first_at.get_mut(place)? = first;
        *block.in_chain.get_mut(place)? = u32::try_from(kept).ok()?;
        Some(())
    }
}
