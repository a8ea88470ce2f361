//! Sums and means of many histograms, without what rounding would take from them.

use crate::model::CounterReset;
use crate::promql::functions::sums::Sum;

use super::FloatHistogram;
use super::cells::{Cell, Cells, Incompatible};

/// A running sum; the order of additions is the caller's.
#[derive(Clone, Debug)]
pub(in crate::promql) struct HistogramSum {
    cells: Cells<Sum>,
    told: Told,
    /// Custom bounds had to be reconciled.
    pub(in crate::promql) reconciled: bool,
}

/// What the members of a sum know of resets.
#[derive(Clone, Copy, Debug)]
struct Told {
    reset: CounterReset,
    any_reset: bool,
    any_not_reset: bool,
}

impl Told {
    fn of(first: CounterReset) -> Told {
        let mut told = Told { reset: first, any_reset: false, any_not_reset: false };
        told.note(first);
        told
    }

    fn note(&mut self, reset: CounterReset) {
        self.any_reset |= reset == CounterReset::Reset;
        self.any_not_reset |= reset == CounterReset::NotReset;
    }

    fn add(&mut self, reset: CounterReset) {
        self.note(reset);
        self.reset = match (self.reset, reset) {
            (a, b) if a == b => a,
            (CounterReset::Gauge, _) | (_, CounterReset::Gauge) => CounterReset::Gauge,
            _ => CounterReset::Unknown,
        };
    }

    fn conflict(&self) -> bool {
        self.any_reset && self.any_not_reset
    }
}

impl HistogramSum {
    pub(in crate::promql) fn of(first: &FloatHistogram) -> HistogramSum {
        HistogramSum { cells: first.cells.map(Sum::of), told: Told::of(first.reset), reconciled: false }
    }

    /// # Errors
    /// [`Incompatible`] where one has bounds of its own and the other has not.
    pub(in crate::promql) fn add(&mut self, other: &FloatHistogram) -> Result<(), Incompatible> {
        self.told.add(other.reset);
        self.reconciled |= self.cells.add(other.cells.map(Sum::of))?;
        Ok(())
    }

    /// Whether one member says that counts began anew and another that they did not.
    pub(in crate::promql) fn resets_conflict(&self) -> bool {
        self.told.conflict()
    }

    pub(in crate::promql) fn value(&self) -> FloatHistogram {
        let cells = self.cells.map(|cell| cell.total());
        FloatHistogram { reset: self.told.reset, cells }.compacted()
    }

    /// Estimated memory.
    pub(in crate::promql) fn bytes(&self) -> usize {
        let buckets = self.cells.positive.len() + self.cells.negative.len();
        size_of::<HistogramSum>() + buckets * 24 + 8 * self.cells.bounds.len()
    }
}

/// A running mean: of the sum while that stays finite, from there on a mean that moves with each member.
#[derive(Clone, Debug)]
pub(in crate::promql) struct HistogramMean {
    /// The sum, or the mean once `moves`.
    state: HistogramSum,
    count: f64,
    moves: bool,
}

impl HistogramMean {
    pub(in crate::promql) fn of(first: &FloatHistogram) -> HistogramMean {
        HistogramMean { state: HistogramSum::of(first), count: 1.0, moves: false }
    }

    /// # Errors
    /// [`Incompatible`] where one has bounds of its own and the other has not.
    pub(in crate::promql) fn add(&mut self, other: &FloatHistogram) -> Result<(), Incompatible> {
        let before = self.count;
        self.count += 1.0;
        if !self.moves {
            let mut next = self.state.clone();
            next.add(other)?;
            if !next.cells.all().any(Sum::is_infinite) {
                self.state = next;
                return Ok(());
            }
            self.moves = true;
            self.state.cells = self.state.cells.map(|cell| cell.divided(before));
        }
        self.state.told.add(other.reset);
        let share = before / self.count;
        self.state.cells = self.state.cells.map(|cell| cell.scaled(share));
        let part = other.cells.map(|cell| <Sum as Cell>::of(cell / self.count));
        self.state.reconciled |= self.state.cells.add(part)?;
        Ok(())
    }

    /// The sum that it is computed from.
    pub(in crate::promql) const fn sum(&self) -> &HistogramSum {
        &self.state
    }

    pub(in crate::promql) fn value(&self) -> FloatHistogram {
        if self.moves {
            return self.state.value();
        }
        let cells = self.state.cells.map(|cell| cell.divided(self.count).total());
        FloatHistogram { reset: self.state.told.reset, cells }.compacted()
    }
}
