//! Samples that are deleted: their series are written anew, and the whole stripe once too many bytes are dead.

use super::super::arena::Arena;
use super::super::slots::{BLOCK_SERIES, NEVER};
use super::{Stripe, late_key, late_within};
use crate::model::TimeRange;
use crate::tsdb::report::SampleColumns;

impl Stripe {
    /// Removes the samples of a series inside `range`.
    pub(in crate::tsdb) fn delete(&mut self, slot: usize, range: TimeRange) {
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        for late in [&mut self.late, &mut self.frozen] {
            let gone: Vec<i64> = late_within(late, slot, start, end).map(|(at, _)| at).collect();
            for at in gone {
                late.remove(&late_key(slot, at));
            }
        }
        let mut all = SampleColumns::default();
        self.read_in_order(slot, NEVER, i64::MAX, &mut all);
        if all.times.iter().any(|at| start <= *at && *at <= end) {
            self.rebuild(slot, &all, |at| at < start || end < at);
            self.late_ahead = !(self.late.is_empty() && self.frozen.is_empty());
            self.compact_if_due();
        }
    }

    /// A page goes when all of it is old or was replaced; many deletes between two seals, or tails that end early in a
    /// replay, must not fill the memory.
    pub(super) fn compact_if_due(&mut self) {
        let dead = self.dead_bytes + self.arena.replaced();
        if dead > 64 << 10 && dead > self.arena.bytes() / 2 {
            self.compact();
        }
    }

    /// Writes a series anew.
    pub(super) fn rebuild(&mut self, slot: usize, all: &SampleColumns, keep: impl Fn(i64) -> bool) {
        let Some((block, place)) = self.block_mut(slot) else { return };
        let in_chain = block.in_chain.get(place).copied().unwrap_or(0);
        block.clear(place);
        // About: 3 B a sample is more than most take.
        self.dead_bytes += in_chain as usize * 3;
        self.in_order -= all.times.len() as u64;
        // They came before what is late.
        let late_ahead = std::mem::take(&mut self.late_ahead);
        for (at, value) in all.times.iter().zip(&all.values).filter(|(at, _)| keep(**at)) {
            self.put(slot, *at, value.to_bits(), NEVER);
        }
        self.late_ahead = late_ahead;
    }

    /// Writes all series anew.
    fn compact(&mut self) {
        let slots = 0..self.blocks.len() * BLOCK_SERIES;
        let mut all: Vec<SampleColumns> = Vec::new();
        all.resize_with(slots.len(), SampleColumns::default);
        for (slot, out) in slots.clone().zip(&mut all) {
            self.read_in_order(slot, NEVER, i64::MAX, out);
        }
        self.arena = Arena::default();
        // No records that are replaced while this goes on.
        let sparing = std::mem::take(&mut self.sparing);
        for (slot, all) in slots.clone().zip(&all) {
            self.rebuild(slot, all, |_| true);
        }
        self.sparing = sparing;
        slots.step_by(BLOCK_SERIES).for_each(|slot| self.spare(slot));
        self.dead_bytes = 0;
    }
}
