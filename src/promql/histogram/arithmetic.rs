//! Addition, subtraction, scaling and equality of histograms, and the detection of counter resets.

use std::sync::Arc;

use crate::model::CounterReset;

use super::FloatHistogram;
pub(in crate::promql) use super::cells::Incompatible;
use super::cells::{BucketSlot, Cells};
use super::layout::shared_bounds;

/// The sum or difference of two histograms.
#[derive(Clone, Debug)]
pub(in crate::promql) struct CombinedHistogram {
    pub(in crate::promql) histogram: FloatHistogram,
    /// One operand has the hint `Reset`, the other `NotReset`.
    pub(in crate::promql) resets_conflict: bool,
    /// The custom bounds differed; the result has only the common ones.
    pub(in crate::promql) reconciled: bool,
}

/// Returns the reset hint of a sum, and whether the hints of its operands conflict.
fn combined_hint(a: CounterReset, b: CounterReset) -> (CounterReset, bool) {
    use CounterReset::{Gauge, Unknown};
    match (a, b) {
        (a, b) if a == b => (a, false),
        (Gauge, _) | (_, Gauge) => (Gauge, false),
        (Unknown, _) | (_, Unknown) => (Unknown, false),
        _ => (Unknown, true),
    }
}

impl FloatHistogram {
    /// Adds `other`.
    ///
    /// # Errors
    /// [`Incompatible`] if exactly one of the two has custom buckets.
    pub(in crate::promql) fn plus(&self, other: &FloatHistogram) -> Result<CombinedHistogram, Incompatible> {
        let (reset, resets_conflict) = combined_hint(self.reset, other.reset);
        let mut cells = self.cells.clone();
        let reconciled = cells.add(other.cells.clone())?;
        Ok(CombinedHistogram { histogram: FloatHistogram { reset, cells }, resets_conflict, reconciled })
    }

    /// Subtracts `other`; the result is a gauge histogram.
    ///
    /// # Errors
    /// [`Incompatible`] if exactly one of the two has custom buckets.
    pub(in crate::promql) fn minus(&self, other: &FloatHistogram) -> Result<CombinedHistogram, Incompatible> {
        let (_, resets_conflict) = combined_hint(self.reset, other.reset);
        let mut cells = self.cells.clone();
        // Adding the negated operand gives the same bits as subtracting it.
        let reconciled = cells.add(other.cells.map(|cell| -cell))?;
        let histogram = FloatHistogram { reset: CounterReset::Gauge, cells };
        Ok(CombinedHistogram { histogram, resets_conflict, reconciled })
    }

    /// Multiplies every number by `factor`; a negative factor makes the result a gauge histogram.
    pub(in crate::promql) fn times(&self, factor: f64) -> FloatHistogram {
        let reset = if factor < 0.0 { CounterReset::Gauge } else { self.reset };
        FloatHistogram { reset, cells: self.cells.map(|cell| cell * factor) }
    }

    /// Divides every number by `divisor`; a negative divisor makes the result a gauge histogram. A
    /// division by zero removes all positive and negative buckets.
    pub(in crate::promql) fn divided(&self, divisor: f64) -> FloatHistogram {
        let reset = if divisor < 0.0 { CounterReset::Gauge } else { self.reset };
        let mut cells = self.cells.map(|cell| cell / divisor);
        if divisor == 0.0 {
            cells.positive.clear();
            cells.negative.clear();
        }
        FloatHistogram { reset, cells }
    }

    /// Compares bit for bit, so NaN equals itself. Reset hints are not compared.
    pub(in crate::promql) fn equals(&self, other: &FloatHistogram) -> bool {
        let (a, b) = (&self.cells, &other.cells);
        let same = |a: f64, b: f64| a.to_bits() == b.to_bits();
        let slots = |a: &[BucketSlot<f64>], b: &[BucketSlot<f64>]| {
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

    /// Returns whether the counter was reset between `before` and `self`. The reset hint decides if
    /// it is `Reset` or `NotReset`; otherwise any decreased count is a reset.
    pub(in crate::promql) fn is_reset_since(&self, before: &FloatHistogram) -> bool {
        match self.reset {
            CounterReset::Reset => true,
            CounterReset::NotReset => false,
            CounterReset::Unknown | CounterReset::Gauge => self.is_less_than(before),
        }
    }

    /// Returns whether any count of `before` is missing or lower in `self`, in which case `self`
    /// cannot continue the counter `before`.
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
        // Existing counts cannot move to a finer schema or a narrower zero bucket.
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

    /// Returns a histogram without observations in the same schema and custom bounds, with a zero
    /// threshold of 0.
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

    /// Converts to a coarser schema.
    pub(in crate::promql) fn reduced(mut self, schema: i32) -> FloatHistogram {
        self.cells.reduce(schema);
        self
    }
}

/// Returns whether any non-empty bucket of `then` is missing or has a lower count in `now`.
fn lost(now: &[BucketSlot<f64>], then: &[BucketSlot<f64>]) -> bool {
    let mut now = now.iter().peekable();
    then.iter().filter(|slot| slot.cell != 0.0).any(|then| {
        while now.peek().is_some_and(|slot| slot.index < then.index) {
            now.next();
        }
        match now.peek() {
            Some(slot) if slot.index == then.index => slot.cell < then.cell,
            // A missing bucket has a count of 0.
            _ => 0.0 < then.cell,
        }
    })
}

/// Equality by [`FloatHistogram::equals`].
impl PartialEq for FloatHistogram {
    fn eq(&self, other: &FloatHistogram) -> bool {
        self.equals(other)
    }
}
