//! Sums and means of many histograms with compensated (Kahan-Neumaier) summation.

use crate::model::CounterReset;
use crate::promql::sums::Sum;

use super::FloatHistogram;
use super::cells::{Cell, Cells, Incompatible};

/// A running sum of histograms, added in the caller's order.
#[derive(Clone, Debug)]
pub(in crate::promql) struct HistogramSum {
    cells: Cells<Sum>,
    hints: ResetHints,
    /// Whether any two members had different custom bounds.
    pub(in crate::promql) reconciled: bool,
}

/// The combined counter reset hints of the members of a sum.
#[derive(Clone, Copy, Debug)]
struct ResetHints {
    reset: CounterReset,
    any_reset: bool,
    any_not_reset: bool,
}

impl ResetHints {
    fn of(first: CounterReset) -> ResetHints {
        let mut hints = ResetHints { reset: first, any_reset: false, any_not_reset: false };
        hints.record(first);
        hints
    }

    fn record(&mut self, reset: CounterReset) {
        self.any_reset |= reset == CounterReset::Reset;
        self.any_not_reset |= reset == CounterReset::NotReset;
    }

    fn add(&mut self, reset: CounterReset) {
        self.record(reset);
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
        HistogramSum {
            cells: first.cells.map(Sum::of),
            hints: ResetHints::of(first.reset),
            reconciled: false,
        }
    }

    /// Adds a member.
    ///
    /// # Errors
    /// [`Incompatible`] if exactly one of the two has custom buckets.
    pub(in crate::promql) fn add(&mut self, other: &FloatHistogram) -> Result<(), Incompatible> {
        self.hints.add(other.reset);
        self.reconciled |= self.cells.add(other.cells.map(Sum::of))?;
        Ok(())
    }

    /// Returns whether one member has the hint `Reset` and another `NotReset`.
    pub(in crate::promql) fn resets_conflict(&self) -> bool {
        self.hints.conflict()
    }

    /// Returns the sum without empty buckets.
    pub(in crate::promql) fn value(&self) -> FloatHistogram {
        let cells = self.cells.map(|cell| cell.total());
        FloatHistogram { reset: self.hints.reset, cells }.compacted()
    }

    /// Returns the estimated memory in bytes.
    pub(in crate::promql) fn bytes(&self) -> usize {
        let buckets = self.cells.positive.len() + self.cells.negative.len();
        size_of::<HistogramSum>() + buckets * 24 + 8 * self.cells.bounds.len()
    }
}

/// A running mean: computed from the sum while the sum is finite, afterwards updated incrementally
/// with each member. `avg` of Prometheus switches at the same point.
#[derive(Clone, Debug)]
pub(in crate::promql) struct HistogramMean {
    /// The sum, or the mean if `incremental`.
    state: HistogramSum,
    count: f64,
    incremental: bool,
}

impl HistogramMean {
    pub(in crate::promql) fn of(first: &FloatHistogram) -> HistogramMean {
        HistogramMean { state: HistogramSum::of(first), count: 1.0, incremental: false }
    }

    /// Adds a member.
    ///
    /// # Errors
    /// [`Incompatible`] if exactly one of the two has custom buckets.
    pub(in crate::promql) fn add(&mut self, other: &FloatHistogram) -> Result<(), Incompatible> {
        let before = self.count;
        self.count += 1.0;
        if !self.incremental {
            let mut next = self.state.clone();
            next.add(other)?;
            if !next.cells.all().any(Sum::is_infinite) {
                self.state = next;
                return Ok(());
            }
            self.incremental = true;
            self.state.cells = self.state.cells.map(|cell| cell.divided(before));
        }
        self.state.hints.add(other.reset);
        let share = before / self.count;
        self.state.cells = self.state.cells.map(|cell| cell.scaled(share));
        let part = other.cells.map(|cell| <Sum as Cell>::of(cell / self.count));
        self.state.reconciled |= self.state.cells.add(part)?;
        Ok(())
    }

    /// Returns the underlying sum, whose hints and `reconciled` cover all members.
    pub(in crate::promql) const fn sum(&self) -> &HistogramSum {
        &self.state
    }

    /// Returns the mean without empty buckets.
    pub(in crate::promql) fn value(&self) -> FloatHistogram {
        if self.incremental {
            return self.state.value();
        }
        let cells = self.state.cells.map(|cell| cell.divided(self.count).total());
        FloatHistogram { reset: self.state.hints.reset, cells }.compacted()
    }
}
