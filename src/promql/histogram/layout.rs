//! Conversions of the bucket layout: coarser schemas, wider zero buckets, fewer custom bounds.

use std::sync::Arc;

use super::bounds::upper_bound;
use super::cells::{BucketSlot, Cell, Cells};

impl<C: Cell> Cells<C> {
    /// Converts to a coarser exponential schema: each step merges two adjacent buckets into one.
    /// A finer `schema` and custom buckets are left unchanged.
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

    /// Merges custom buckets so that only the bounds in `shared` remain; these must be a subset.
    pub(super) fn rebound(&mut self, shared: &Arc<[f64]>) {
        if self.bounds == *shared {
            return;
        }
        let bounds = Arc::clone(&self.bounds);
        let last = i32::try_from(shared.len()).unwrap_or(i32::MAX);
        renumber(&mut self.positive, |index| {
            let bound = usize::try_from(index).ok().and_then(|index| bounds.get(index));
            let position = bound.map(|bound| shared.partition_point(|shared| shared < bound));
            position.and_then(|position| i32::try_from(position).ok()).unwrap_or(last)
        });
        self.bounds = Arc::clone(shared);
    }

    /// Widens the narrower zero bucket to the threshold of the other one. If a threshold would
    /// divide a non-empty bucket, both zero buckets grow to the end of that bucket.
    pub(super) fn share_zero_bucket(&mut self, other: &mut Cells<C>) {
        // Each iteration absorbs at least one more bucket of either histogram, so the loop ends.
        while self.threshold != other.threshold {
            if self.threshold < other.threshold {
                self.widen(other.threshold);
            } else if other.threshold < self.threshold {
                other.widen(self.threshold);
            } else {
                // A threshold of NaN compares unequal to everything, so no common threshold exists.
                return;
            }
        }
    }

    /// Returns the lowest threshold from `threshold` up that divides no non-empty bucket.
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

    /// Widens the zero bucket to [`Self::uncut_threshold`] of `threshold` and merges the buckets
    /// that it covers.
    pub(super) fn widen(&mut self, threshold: f64) {
        let threshold = self.uncut_threshold(threshold);
        let mut zero = self.zero;
        for slots in [&self.positive, &self.negative] {
            for slot in slots.iter().filter(|slot| self.near(slot) < threshold) {
                zero.merge(slot.cell);
            }
        }
        self.zero = zero;
        self.threshold = threshold;
        let (schema, bounds) = (self.schema, Arc::clone(&self.bounds));
        let outside =
            |slot: &BucketSlot<C>| upper_bound(schema, &bounds, slot.index.saturating_sub(1)) >= threshold;
        self.positive.retain(outside);
        self.negative.retain(outside);
    }

    /// Returns the absolute value of the bound nearer to zero.
    fn near(&self, slot: &BucketSlot<C>) -> f64 {
        upper_bound(self.schema, &self.bounds, slot.index.saturating_sub(1))
    }

    /// Returns the absolute value of the bound farther from zero.
    fn far(&self, slot: &BucketSlot<C>) -> f64 {
        upper_bound(self.schema, &self.bounds, slot.index)
    }
}

/// Renumbers buckets by `number`, which must not change their order. Buckets that get the same
/// index are added.
fn renumber<C: Cell>(slots: &mut Vec<BucketSlot<C>>, number: impl Fn(i32) -> i32) {
    slots.iter_mut().for_each(|slot| slot.index = number(slot.index));
    slots.dedup_by(|next, kept| {
        let same = next.index == kept.index;
        if same {
            kept.cell.merge(next.cell);
        }
        same
    });
}

/// Returns the bounds that two ascending lists have in common, ascending.
pub(super) fn shared_bounds(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().copied().filter(|bound| b.binary_search_by(|other| other.total_cmp(bound)).is_ok()).collect()
}
