//! Adding, subtracting and scaling histograms, whether they are equal, and whether counts began anew between two.

use std::sync::Arc;

use crate::model::CounterReset;

use super::FloatHistogram;
pub(in crate::promql) use super::cells::Incompatible;
use super::cells::{Cells, Slot};
use super::layout::shared_bounds;

/// Two histograms made one.
#[derive(Clone, Debug)]
pub(in crate::promql) struct Added {
    pub(in crate::promql) histogram: FloatHistogram,
    /// One says that counts began anew, the other that they did not.
    pub(in crate::promql) resets_conflict: bool,
    /// Their custom bounds differ: only those that both have are left.
    pub(in crate::promql) reconciled: bool,
}

/// What is known of resets in a sum of two, and whether they contradict each other.
fn joined(a: CounterReset, b: CounterReset) -> (CounterReset, bool) {
    use CounterReset::{Gauge, Unknown};
    match (a, b) {
        (a, b) if a == b => (a, false),
        (Gauge, _) | (_, Gauge) => (Gauge, false),
        (Unknown, _) | (_, Unknown) => (Unknown, false),
        _ => (Unknown, true),
    }
}

impl FloatHistogram {
    /// # Errors
    /// [`Incompatible`] where one has bounds of its own and the other has not.
    pub(in crate::promql) fn plus(&self, other: &FloatHistogram) -> Result<Added, Incompatible> {
        let (reset, resets_conflict) = joined(self.reset, other.reset);
        let mut cells = self.cells.clone();
        let reconciled = cells.add(other.cells.clone())?;
        Ok(Added { histogram: FloatHistogram { reset, cells }, resets_conflict, reconciled })
    }

    /// # Errors
    /// [`Incompatible`] where one has bounds of its own and the other has not.
    pub(in crate::promql) fn minus(&self, other: &FloatHistogram) -> Result<Added, Incompatible> {
        let (_, resets_conflict) = joined(self.reset, other.reset);
        let mut cells = self.cells.clone();
        // A difference is a sum with what is taken away negated, to the last bit.
        let reconciled = cells.add(other.cells.map(|cell| -cell))?;
        let histogram = FloatHistogram { reset: CounterReset::Gauge, cells };
        Ok(Added { histogram, resets_conflict, reconciled })
    }

    /// Every number times `factor`; what was multiplied by a negative number counts nothing any more.
    pub(in crate::promql) fn times(&self, factor: f64) -> FloatHistogram {
        let reset = if factor < 0.0 { CounterReset::Gauge } else { self.reset };
        FloatHistogram { reset, cells: self.cells.map(|cell| cell * factor) }
    }

    /// Every number by `divisor`; by zero there are no buckets left.
    pub(in crate::promql) fn divided(&self, divisor: f64) -> FloatHistogram {
        let reset = if divisor < 0.0 { CounterReset::Gauge } else { self.reset };
        let mut cells = self.cells.map(|cell| cell / divisor);
        if divisor == 0.0 {
            cells.positive.clear();
            cells.negative.clear();
        }
        FloatHistogram { reset, cells }
    }

    /// Bit for bit, so that a NaN equals itself; what is known of resets is no part of the value.
    pub(in crate::promql) fn equals(&self, other: &FloatHistogram) -> bool {
        let (a, b) = (&self.cells, &other.cells);
        let same = |a: f64, b: f64| a.to_bits() == b.to_bits();
        let slots = |a: &[Slot<f64>], b: &[Slot<f64>]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.index == b.index && same(a.cell, b.cell))
        };
        a.schema == b.schema
            && a.bounds == b.bounds
            && a.threshold == b.threshold
            && same(a.count, b.count)
            && same(a.sum, b.sum)
            && same(a.zero, b.zero)
            && slots(&a.positive, &b.positive)
            && slots(&a.negative, &b.negative)
    }

    /// Whether counts began anew between `before` and this: what is known decides, else something must have become
    /// less.
    pub(in crate::promql) fn is_reset_since(&self, before: &FloatHistogram) -> bool {
        match self.reset {
            CounterReset::Reset => true,
            CounterReset::NotReset => false,
            CounterReset::Unknown | CounterReset::Gauge => self.is_less_than(before),
        }
    }

    /// Whether anything was counted in `before` that is not counted here.
    pub(in crate::promql) fn is_less_than(&self, before: &FloatHistogram) -> bool {
        let (now, then) = (&self.cells, &before.cells);
        if now.count < then.count || now.is_custom() != then.is_custom() {
            return true;
        }
        if now.is_custom() {
            if now.bounds == then.bounds {
                return lost(&now.positive, &then.positive);
            }
            let shared: Arc<[f64]> = shared_bounds(&now.bounds, &then.bounds).into();
            let over_shared = |cells: &Cells<f64>| {
                let mut cells = cells.clone();
                cells.rebound(&shared);
                cells.positive
            };
            return lost(&over_shared(now), &over_shared(then));
        }
        // A finer schema or a narrower zero bucket cannot be had from counts that were there before.
        if now.schema > then.schema || now.threshold < then.threshold {
            return true;
        }
        let mut then = then.clone();
        if now.threshold > then.threshold {
            if then.uncut_threshold(now.threshold) != now.threshold {
                return true;
            }
            then.widen(now.threshold);
        }
        then.reduce(now.schema);
        now.zero < then.zero || lost(&now.positive, &then.positive) || lost(&now.negative, &then.negative)
    }

    /// The same layout with nothing in it.
    pub(in crate::promql) fn emptied(&self) -> FloatHistogram {
        let cells = Cells {
            schema: self.cells.schema,
            threshold: 0.0,
            bounds: Arc::clone(&self.cells.bounds),
            count: 0.0,
            sum: 0.0,
            zero: 0.0,
            positive: Vec::new(),
            negative: Vec::new(),
        };
        FloatHistogram { reset: CounterReset::Unknown, cells }
    }

    /// The same observations in a coarser schema.
    pub(in crate::promql) fn reduced(mut self, schema: i32) -> FloatHistogram {
        self.cells.reduce(schema);
        self
    }
}

/// Whether a bucket counts less than it did, or is no longer there.
fn lost(now: &[Slot<f64>], then: &[Slot<f64>]) -> bool {
    let mut now = now.iter().peekable();
    then.iter().filter(|slot| slot.cell != 0.0).any(|then| {
        while now.peek().is_some_and(|slot| slot.index < then.index) {
            now.next();
        }
        match now.peek() {
            Some(slot) if slot.index == then.index => slot.cell < then.cell,
            // A bucket that is not there counts nothing.
            _ => 0.0 < then.cell,
        }
    })
}

/// As [`FloatHistogram::equals`].
impl PartialEq for FloatHistogram {
    fn eq(&self, other: &FloatHistogram) -> bool {
        self.equals(other)
    }
}
