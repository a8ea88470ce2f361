//! Deletion of samples: the series is written again, and the whole stripe once too many bytes are
//! unused.

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
            let deleted: Vec<i64> = late_within(late, slot, start, end).map(|(at, _)| at).collect();
            for at in deleted {
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

    /// Rewrites the stripe if too much memory is unused. A page is released only when all its
    /// records are old or replaced, so without this, many deletions between two seals, or short
    /// tails of a replay, would fill the memory.
    pub(super) fn compact_if_due(&mut self) {
        let dead = self.dead_bytes + self.arena.replaced();
        if dead > 64 << 10 && dead > self.arena.bytes() / 2 {
            self.compact();
        }
    }

    /// Writes the samples in order of a series again, without those for which `keep` returns false.
    pub(super) fn rebuild(&mut self, slot: usize, all: &SampleColumns, keep: impl Fn(i64) -> bool) {
        let Some((block, place)) = self.block_mut(slot) else { return };
        let in_chain = block.in_chain.get(place).copied().unwrap_or(0);
        block.clear(place);
        // An estimate: most samples take less than 3 B.
        self.dead_bytes += in_chain as usize * 3;
        self.in_order -= all.times.len() as u64;
        // These samples were written before the late ones, and must not remove them.
        let late_ahead = std::mem::take(&mut self.late_ahead);
        for (at, value) in all.times.iter().zip(&all.values).filter(|(at, _)| keep(**at)) {
            self.put(slot, *at, value.to_bits(), NEVER);
        }
        self.late_ahead = late_ahead;
    }

    /// Writes all series again.
    fn compact(&mut self) {
        let slots = 0..self.blocks.len() * BLOCK_SERIES;
        let mut all: Vec<SampleColumns> = Vec::new();
        all.resize_with(slots.len(), SampleColumns::default);
        for (slot, out) in slots.clone().zip(&mut all) {
            self.read_in_order(slot, NEVER, i64::MAX, out);
        }
        self.arena = Arena::default();
        // Meanwhile no record is replaced.
        let short_tails = std::mem::take(&mut self.short_tails);
        for (slot, all) in slots.clone().zip(&all) {
            self.rebuild(slot, all, |_| true);
        }
        self.short_tails = short_tails;
        slots.step_by(BLOCK_SERIES).for_each(|slot| self.shorten_tails(slot));
        self.dead_bytes = 0;
    }
}
