//! Other layouts for the same observations: coarser schemas, wider zero buckets, fewer bounds.

use std::sync::Arc;

use super::bounds::upper_bound;
use super::cells::{Cell, Cells, Slot};

impl<C: Cell> Cells<C> {
    /// To a coarser exponential schema: each step down makes two buckets one.
    pub(super) fn reduce(&mut self, schema: i32) {
        let Ok(steps) = u32::try_from(self.schema.saturating_sub(schema)) else { return };
        if steps == 0 || self.is_custom() {
            return;
        }
        for slots in [&mut self.positive, &mut self.negative] {
            renumber(slots, |index| (index.saturating_sub(1) >> steps.min(31)) + 1);
        }
        self.schema = schema;
    }

    /// Custom buckets over some of their bounds.
    pub(super) fn rebound(&mut self, shared: &Arc<[f64]>) {
        if self.bounds == *shared {
            return;
        }
        let bounds = Arc::clone(&self.bounds);
        let last = i32::try_from(shared.len()).unwrap_or(i32::MAX);
        renumber(&mut self.positive, |index| {
            let bound = usize::try_from(index).ok().and_then(|index| bounds.get(index));
            let place = bound.map(|bound| shared.partition_point(|shared| shared < bound));
            place.and_then(|place| i32::try_from(place).ok()).unwrap_or(last)
        });
        self.bounds = Arc::clone(shared);
    }

    /// Gives both the same zero bucket, the wider one; wider still where it would cut a bucket in two that is not empty.
    pub(super) fn share_zero_bucket(&mut self, other: &mut Cells<C>) {
        // Each turn takes in at least one more bucket of either, so that this ends.
        while self.threshold != other.threshold {
            if self.threshold < other.threshold {
                self.widen(other.threshold);
            } else if other.threshold < self.threshold {
                other.widen(self.threshold);
            } else {
                // One is no number: there is nothing to agree on.
                return;
            }
        }
    }

    /// How far the zero bucket must reach where it should at least reach `threshold`.
    pub(super) fn uncut_threshold(&self, threshold: f64) -> f64 {
        let mut threshold = threshold;
        loop {
            let slots = self.positive.iter().chain(&self.negative).filter(|slot| !slot.cell.is_zero());
            let cut = slots
                .map(|slot| (self.near(slot), self.far(slot)))
                .find(|(near, far)| *near < threshold && threshold < *far);
            match cut {
                Some((_, far)) => threshold = far,
                None => return threshold,
            }
        }
    }

    /// Makes the zero bucket reach `threshold`, or what it has to reach so that it cuts no bucket.
    pub(super) fn widen(&mut self, threshold: f64) {
        let threshold = self.uncut_threshold(threshold);
        let mut zero = self.zero;
        for side in [&self.positive, &self.negative] {
            for slot in side.iter().filter(|slot| self.near(slot) < threshold) {
                zero.merge(slot.cell);
            }
        }
        self.zero = zero;
        self.threshold = threshold;
        let (schema, bounds) = (self.schema, Arc::clone(&self.bounds));
        let outside =
            |slot: &Slot<C>| upper_bound(schema, &bounds, slot.index.saturating_sub(1)) >= threshold;
        self.positive.retain(outside);
        self.negative.retain(outside);
    }

    /// The bound towards zero, without its sign.
    fn near(&self, slot: &Slot<C>) -> f64 {
        upper_bound(self.schema, &self.bounds, slot.index.saturating_sub(1))
    }

    /// The bound away from zero, without its sign.
    fn far(&self, slot: &Slot<C>) -> f64 {
        upper_bound(self.schema, &self.bounds, slot.index)
    }
}

/// Gives buckets other numbers, in the same order; those that get the same one are added.
fn renumber<C: Cell>(slots: &mut Vec<Slot<C>>, number: impl Fn(i32) -> i32) {
    slots.iter_mut().for_each(|slot| slot.index = number(slot.index));
    slots.dedup_by(|next, kept| {
        let same = next.index == kept.index;
        if same {
            kept.cell.merge(next.cell);
        }
        same
    });
}

/// The bounds that two ascending lists share.
pub(super) fn shared_bounds(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().copied().filter(|bound| b.binary_search_by(|other| other.total_cmp(bound)).is_ok()).collect()
}
