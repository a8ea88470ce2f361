//! A histogram's numbers, whatever they are: counts, or sums of counts with what rounding took from them.

use std::sync::Arc;

use crate::model::CUSTOM_BUCKETS_SCHEMA;
use crate::promql::functions::sums::Sum;

/// One number of a histogram.
pub(super) trait Cell: Copy {
    fn of(value: f64) -> Self;
    /// Adds another.
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

/// One bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slot<C> {
    pub(super) index: i32,
    pub(super) cell: C,
}

/// A histogram's layout with a number in each place.
#[derive(Clone, Debug)]
pub(super) struct Cells<C> {
    pub(super) schema: i32,
    pub(super) threshold: f64,
    /// Of custom buckets; else empty.
    pub(super) bounds: Arc<[f64]>,
    pub(super) count: C,
    pub(super) sum: C,
    pub(super) zero: C,
    /// Ascending by index, each once.
    pub(super) positive: Vec<Slot<C>>,
    /// Likewise.
    pub(super) negative: Vec<Slot<C>>,
}

/// Two histograms of which one has bounds of its own cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::promql) struct Incompatible;

impl<C: Cell> Cells<C> {
    /// The same layout with other numbers.
    pub(super) fn map<D>(&self, of: impl Fn(C) -> D) -> Cells<D> {
        let slots = |slots: &[Slot<C>]| {
            slots.iter().map(|slot| Slot { index: slot.index, cell: of(slot.cell) }).collect()
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

    /// All numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = C> {
        let buckets = self.positive.iter().chain(&self.negative).map(|slot| slot.cell);
        [self.count, self.sum, self.zero].into_iter().chain(buckets)
    }

    /// Takes out buckets of nothing.
    pub(super) fn compact(&mut self) {
        self.positive.retain(|slot| !slot.cell.is_zero());
        self.negative.retain(|slot| !slot.cell.is_zero());
    }

    /// Adds number by number, in whatever layout both fit; says whether custom bounds had to be reconciled.
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

/// Adds buckets of the same layout.
fn merge<C: Cell>(into: &mut Vec<Slot<C>>, other: &[Slot<C>]) {
    let same = into.len() == other.len() && into.iter().zip(other).all(|(a, b)| a.index == b.index);
    if same {
        for (slot, other) in into.iter_mut().zip(other) {
            slot.cell.merge(other.cell);
        }
        return;
    }
    let mut merged: Vec<Slot<C>> = Vec::with_capacity(into.len() + other.len());
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

/// What a bucket becomes that only the other side has: added to nothing.
fn added<C: Cell>(slot: Option<&Slot<C>>) -> Option<Slot<C>> {
    slot.map(|slot| {
        let mut cell = C::of(0.0);
        cell.merge(slot.cell);
        Slot { index: slot.index, cell }
    })
}
