//! The layout of a histogram with a generic number per bucket: a plain count, or a compensated sum
//! of counts that carries its rounding error.

use std::sync::Arc;

use crate::model::CUSTOM_BUCKETS_SCHEMA;
use crate::promql::sums::Sum;

/// One number of a histogram: a count or a compensated sum.
pub(super) trait Cell: Copy {
    fn of(value: f64) -> Self;
    /// Adds `other`.
    fn merge(&mut self, other: Self);
    fn is_zero(self) -> bool;
}

impl Cell for f64 {
    fn of(value: f64) -> f64 {
        value
    }

    fn merge(&mut self, other: f64) {
        *self += other;
    }

    fn is_zero(self) -> bool {
        self == 0.0
    }
}

impl Cell for Sum {
    fn of(value: f64) -> Sum {
        Sum::of(value)
    }

    fn merge(&mut self, other: Sum) {
        Sum::merge(self, other);
    }

    fn is_zero(self) -> bool {
        Sum::is_zero(self)
    }
}

/// A bucket by its index in the schema.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BucketSlot<C> {
    pub(super) index: i32,
    pub(super) cell: C,
}

/// A histogram: its layout, and a number for the count, the sum and each bucket.
#[derive(Clone, Debug)]
pub(super) struct Cells<C> {
    pub(super) schema: i32,
    /// The upper bound of the absolute values in the zero bucket, inclusive.
    pub(super) threshold: f64,
    /// The upper bounds of custom buckets, without `+Inf`; empty for exponential buckets.
    pub(super) bounds: Arc<[f64]>,
    pub(super) count: C,
    pub(super) sum: C,
    pub(super) zero: C,
    /// Ascending by index, each index once.
    pub(super) positive: Vec<BucketSlot<C>>,
    /// Ascending by index, each index once; indices count away from zero.
    pub(super) negative: Vec<BucketSlot<C>>,
}

/// The error of combining a histogram with custom buckets and one with exponential buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::promql) struct Incompatible;

impl<C: Cell> Cells<C> {
    /// Applies `of` to each number and keeps the layout.
    pub(super) fn map<D>(&self, of: impl Fn(C) -> D) -> Cells<D> {
        let slots = |slots: &[BucketSlot<C>]| {
            slots.iter().map(|slot| BucketSlot { index: slot.index, cell: of(slot.cell) }).collect()
        };
        Cells {
            schema: self.schema,
            threshold: self.threshold,
            bounds: Arc::clone(&self.bounds),
            count: of(self.count),
            sum: of(self.sum),
            zero: of(self.zero),
            positive: slots(&self.positive),
            negative: slots(&self.negative),
        }
    }

    pub(super) fn is_custom(&self) -> bool {
        self.schema == CUSTOM_BUCKETS_SCHEMA
    }

    /// Returns the count, the sum, the zero bucket, and the positive and negative buckets.
    pub(super) fn all(&self) -> impl Iterator<Item = C> {
        let buckets = self.positive.iter().chain(&self.negative).map(|slot| slot.cell);
        [self.count, self.sum, self.zero].into_iter().chain(buckets)
    }

    /// Removes empty buckets.
    pub(super) fn compact(&mut self) {
        self.positive.retain(|slot| !slot.cell.is_zero());
        self.negative.retain(|slot| !slot.cell.is_zero());
    }

    /// Adds `other` number by number, in the finest layout that both convert to. Returns whether
    /// custom bounds differed and were reconciled.
    ///
    /// # Errors
    /// [`Incompatible`] if exactly one of the two has custom buckets.
    pub(super) fn add(&mut self, mut other: Cells<C>) -> Result<bool, Incompatible> {
        if self.is_custom() != other.is_custom() {
            return Err(Incompatible);
        }
        let reconciled = self.is_custom() && self.bounds != other.bounds;
        if reconciled {
            let shared: Arc<[f64]> = super::layout::shared_bounds(&self.bounds, &other.bounds).into();
            self.rebound(&shared);
            other.rebound(&shared);
        } else if !self.is_custom() {
            self.share_zero_bucket(&mut other);
            let schema = self.schema.min(other.schema);
            self.reduce(schema);
            other.reduce(schema);
        }
        self.count.merge(other.count);
        self.sum.merge(other.sum);
        self.zero.merge(other.zero);
        merge(&mut self.positive, &other.positive);
        merge(&mut self.negative, &other.negative);
        Ok(reconciled)
    }
}

/// Adds buckets of the same layout, in linear time.
fn merge<C: Cell>(into: &mut Vec<BucketSlot<C>>, other: &[BucketSlot<C>]) {
    let same = into.len() == other.len() && into.iter().zip(other).all(|(a, b)| a.index == b.index);
    if same {
        for (slot, other) in into.iter_mut().zip(other) {
            slot.cell.merge(other.cell);
        }
        return;
    }
    let mut merged: Vec<BucketSlot<C>> = Vec::with_capacity(into.len() + other.len());
    let (mut left, mut right) = (into.iter().peekable(), other.iter().peekable());
    loop {
        let take_left = match (left.peek(), right.peek()) {
            (Some(a), Some(b)) if a.index == b.index => {
                let mut slot = **a;
                slot.cell.merge(b.cell);
                merged.push(slot);
                left.next();
                right.next();
                continue;
            }
            (Some(a), Some(b)) => a.index < b.index,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => break,
        };
        merged.extend(if take_left { left.next().copied() } else { added(right.next()) });
    }
    *into = merged;
}

/// Adds a bucket that only the other histogram has to zero, so that -0 becomes 0.
fn added<C: Cell>(slot: Option<&BucketSlot<C>>) -> Option<BucketSlot<C>> {
    slot.map(|slot| {
        let mut cell = C::of(0.0);
        cell.merge(slot.cell);
        BucketSlot { index: slot.index, cell }
    })
}
