//! Conversion of a stripe's samples to the chunks of a checkpoint, and back.

use std::collections::BTreeMap;

use super::super::record::{RecordValues, TailRecord};
use super::super::slots::NEVER;
use super::{Stripe, late_within};
use crate::tsdb::chunk::{self, MINI};
use crate::tsdb::error::Damage;

/// The samples after which a chunk of a checkpoint is closed: half an hour at 15 s, with at most 18
/// B each.
const CHUNK_SAMPLES: usize = 128;
/// The most samples of a chunk: 127, and a tail.
const CHUNK_SAMPLES_MAX: u16 = 127 + 16;
const _: () = assert!(CHUNK_SAMPLES == 128 && MINI == 16);
/// The order in which the samples of a chunk arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum Order {
    InOrder,
    Late,
}

impl Stripe {
    /// Calls `each` with every chunk of a series for a checkpoint: order, number of samples, least
    /// time, bytes.
    pub(in crate::tsdb) fn copy_chunks(&self, slot: usize, mut each: impl FnMut(Order, u16, i64, &[u8])) {
        self.copy_in_order(slot, &mut |samples, least, bytes| each(Order::InOrder, samples, least, bytes));
        if self.late.is_empty() && self.frozen.is_empty() {
            return;
        }
        let mut late: BTreeMap<i64, u64> = late_within(&self.frozen, slot, NEVER, i64::MAX).collect();
        late.extend(late_within(&self.late, slot, NEVER, i64::MAX));
        let (times, bits): (Vec<i64>, Vec<u64>) = late.into_iter().unzip();
        for (times, bits) in times.chunks(CHUNK_SAMPLES).zip(bits.chunks(CHUNK_SAMPLES)) {
            if let (Ok(samples), Some(least)) = (u16::try_from(times.len()), times.first()) {
                each(Order::Late, samples, *least, &chunk::encode(times, bits));
            }
        }
    }

    /// Copies the chunks of samples in order. The values of records are copied to mini-blocks
    /// without recoding.
    fn copy_in_order(&self, slot: usize, each: &mut dyn FnMut(u16, i64, &[u8])) -> Option<()> {
        let (block, place) = self.block(slot)?;
        let mut bytes = Vec::with_capacity(256);
        let (mut samples, mut least, mut before) = (0, 0, 0);
        let mut next = |times: &[i64], put: &mut dyn FnMut(&mut Vec<u8>, i64)| {
            let (Some(first), Some(last)) = (times.first(), times.last()) else { return };
            if samples >= CHUNK_SAMPLES {
                each(u16::try_from(samples).unwrap_or(CHUNK_SAMPLES_MAX), least, &bytes);
                bytes.clear();
                samples = 0;
            }
            if samples == 0 {
                (least, before) = (*first, 0);
            }
            put(&mut bytes, before);
            before = *last;
            samples += times.len();
        };
        let records: Vec<TailRecord<'_>> = self.records(slot, NEVER).map(|(_, record)| record).collect();
        for record in records.iter().rev() {
            let times = record.gaps.times(record.last);
            let times = times.get(..record.gaps.len)?;
            let (kind, values) = record.encoded().ok()?;
            next(times, &mut |bytes, before| chunk::put_encoded(bytes, before, times, kind, values));
        }
        let times = block.gaps(place).times(block.last_at(place)?);
        let times = times.get(..block.bits(place).len())?;
        next(times, &mut |bytes, before| chunk::put_mini(bytes, before, times, &block.bits(place)));
        each(u16::try_from(samples).ok()?, least, &bytes);
        Some(())
    }

    /// Loads a chunk from a checkpoint, without samples before `from_ms`. The chunks of one series
    /// and order must come in order of time, and late ones last.
    ///
    /// # Errors
    /// [`Damage`] if the chunk is invalid, or does not follow the existing samples.
    pub(in crate::tsdb) fn load_chunk(
        &mut self,
        slot: usize,
        order: Order,
        samples: u16,
        bytes: &[u8],
        from_ms: i64,
    ) -> Result<(), Damage> {
        if samples > CHUNK_SAMPLES_MAX {
            return Err(Damage::new(0, "a chunk has too many samples"));
        }
        // Full tails take over compressed values unchanged. `shorten_tails` is called once the row
        // is loaded.
        let short_tails = std::mem::take(&mut self.short_tails);
        let loaded = self.load_minis(slot, order, samples, bytes, from_ms);
        self.short_tails = short_tails;
        loaded
    }

    fn load_minis(
        &mut self,
        slot: usize,
        order: Order,
        samples: u16,
        bytes: &[u8],
        from_ms: i64,
    ) -> Result<(), Damage> {
        let mut left = usize::from(samples);
        let mut encoded = None;
        let mut minis = chunk::decode(bytes);
        while let Some(mini) = minis.next()?.copied() {
            left = left.wrapping_sub(mini.times().len());
            let (Some(first), Some(last)) = (mini.times().first(), mini.times().last()) else { continue };
            if order == Order::InOrder && *first >= from_ms {
                let have = self.block(slot).and_then(|(block, place)| block.last_at(place));
                if have.is_some_and(|have| *first <= have) {
                    return Err(Damage::new(0, "chunks do not ascend"));
                }
                self.load_mini(slot, mini.times(), mini.values(), encoded);
                encoded = (mini.times().len() == MINI).then_some((*last, minis.encoded()));
                continue;
            }
            for (at, bits) in mini.times().iter().zip(mini.values()).filter(|(at, _)| **at >= from_ms) {
                match order {
                    Order::InOrder => _ = self.put(slot, *at, *bits, NEVER),
                    Order::Late => {
                        self.put_late(slot, *at, *bits);
                        let newest = self.block(slot).and_then(|(block, place)| block.last_at(place));
                        self.late_ahead |= newest.is_none_or(|newest| newest < *at);
                    }
                }
            }
        }
        if left == 0 && samples > 0 {
            Ok(())
        } else {
            Err(Damage::new(0, "a chunk has a wrong number of samples"))
        }
    }

    /// Appends a mini-block. `before` is a full mini-block before it: its last time and its values.
    fn load_mini(&mut self, slot: usize, times: &[i64], bits: &[u64], before: Option<(i64, (u8, &[u8]))>) {
        let mut samples = times.iter().zip(bits);
        // If the tail is the previous mini-block, its values need not be compressed again.
        if let Some((last, values)) = before
            && let Some((block, place)) = self.block(slot)
            && block.last_at(place) == Some(last)
            && block.bits(place).len() == MINI
            && let Some((at, bits)) = samples.next()
        {
            let gap = at.wrapping_sub(last).cast_unsigned();
            let gap_after = (!block.continues_step(place, gap)).then_some(gap);
            if self.roll(slot, *at, *bits, gap_after, Some(RecordValues::Encoded(values))).is_some() {
                self.in_order += 1;
            } else {
                self.put_late(slot, *at, *bits);
            }
        }
        for (at, bits) in samples {
            self.put(slot, *at, *bits, NEVER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_that_do_not_ascend_are_damage() {
        let mut stripe = Stripe::default();
        let chunk = chunk::encode(&[1, 2], &[0, 0]);
        assert_eq!(stripe.load_chunk(0, Order::InOrder, 2, &chunk, NEVER), Ok(()));
        assert!(stripe.load_chunk(0, Order::InOrder, 2, &chunk, NEVER).is_err());
        assert!(stripe.load_chunk(1, Order::InOrder, 3, &chunk, NEVER).is_err());
        assert!(stripe.load_chunk(1, Order::InOrder, 0, &[], NEVER).is_err());
    }
}
