//! What expressions compute with native histograms: a sample's counts as doubles, and the arithmetic on them.
//!
//! Buckets are pairs of index and count, ascending by index, each index once: spans are how histograms are stored and
//! sent, and say nothing more. A bucket that is there with a count of zero is still another histogram than one without
//! it, until [`FloatHistogram::compacted`] takes it out.

mod arithmetic;
mod bounds;
mod cells;
mod layout;
mod mean;
mod quantile;
#[cfg(test)]
mod tests;
mod text;
mod trim;

pub(super) use arithmetic::Added;
pub(super) use mean::{HistogramMean, HistogramSum};
pub(super) use quantile::{SeenNan, sees_nan};
pub(super) use trim::Keep;

use crate::model::{CUSTOM_BUCKETS_SCHEMA, CounterReset, Histogram, HistogramCounts, HistogramShape};

use bounds::upper_bound;
use cells::{Cells, Slot};

/// One native histogram whose counts are doubles.
#[derive(Clone, Debug)]
pub struct FloatHistogram {
    reset: CounterReset,
    cells: Cells<f64>,
}

/// A bucket as it is shown: where it lies and what it counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShownBucket {
    /// Where it begins.
    pub lower: f64,
    /// Where it ends.
    pub upper: f64,
    /// Whether `lower` is part of it.
    pub holds_lower: bool,
    /// Whether `upper` is part of it.
    pub holds_upper: bool,
    /// How many observations it counts.
    pub count: f64,
}

/// The buckets named by spans, with their counts.
fn slots<T: Copy>(spans: &[crate::model::BucketSpan], counts: &[T], of: impl Fn(T) -> f64) -> Vec<Slot<f64>> {
    let mut slots = Vec::with_capacity(counts.len());
    let mut counts = counts.iter();
    let mut next = 0i32;
    for span in spans {
        next = next.saturating_add(span.offset);
        for count in counts.by_ref().take(span.length as usize) {
            slots.push(Slot { index: next, cell: of(*count) });
            next = next.saturating_add(1);
        }
    }
    slots
}

/// A count of integers; beyond 2^53 the nearest double.
#[expect(clippy::cast_precision_loss, reason = "counts beyond 2^53 are rounded, as everywhere in PromQL")]
const fn double(count: u64) -> f64 {
    count as f64
}

fn read<T: Copy>(
    shape: &HistogramShape,
    (count, zero, buckets): (T, T, &[T]),
    sum: f64,
    of: fn(T) -> f64,
) -> Cells<f64> {
    let (positive, negative) = buckets.split_at(shape.positive_buckets().min(buckets.len()));
    Cells {
        schema: shape.schema(),
        threshold: shape.zero_threshold(),
        bounds: shape.custom_values().into(),
        count: of(count),
        sum,
        zero: of(zero),
        positive: slots(shape.positive(), positive, of),
        negative: slots(shape.negative(), negative, of),
    }
}

impl From<&Histogram> for FloatHistogram {
    fn from(stored: &Histogram) -> FloatHistogram {
        let (shape, sum) = (stored.shape(), stored.sum());
        let cells = match stored.counts() {
            HistogramCounts::Integer { count, zero, buckets } => {
                read(shape, (*count, *zero, buckets.as_slice()), sum, double)
            }
            HistogramCounts::Float { count, zero, buckets } => {
                read(shape, (*count, *zero, buckets.as_slice()), sum, |count| count)
            }
        };
        FloatHistogram { reset: stored.reset(), cells }
    }
}

impl FloatHistogram {
    /// -4 to 8, or -53 for buckets with bounds of their own.
    pub const fn schema(&self) -> i32 {
        self.cells.schema
    }

    /// Whether its buckets have bounds of their own.
    pub const fn is_custom(&self) -> bool {
        self.cells.schema == CUSTOM_BUCKETS_SCHEMA
    }

    /// How many observations there are.
    pub const fn count(&self) -> f64 {
        self.cells.count
    }

    /// The sum of observations.
    pub const fn sum(&self) -> f64 {
        self.cells.sum
    }

    /// The greatest absolute value in the zero bucket.
    pub const fn zero_threshold(&self) -> f64 {
        self.cells.threshold
    }

    /// How many observations are in the zero bucket.
    pub const fn zero_count(&self) -> f64 {
        self.cells.zero
    }

    /// Upper bounds of custom buckets, without the last one's infinity.
    pub fn custom_values(&self) -> &[f64] {
        &self.cells.bounds
    }

    /// Indices and counts of the positive buckets, ascending.
    pub fn positive(&self) -> impl Iterator<Item = (i32, f64)> {
        self.cells.positive.iter().map(|slot| (slot.index, slot.cell))
    }

    /// Indices and counts of the negative buckets, from zero downwards.
    pub fn negative(&self) -> impl Iterator<Item = (i32, f64)> {
        self.cells.negative.iter().map(|slot| (slot.index, slot.cell))
    }

    /// Whether counts began anew here, as far as that is known.
    pub const fn reset(&self) -> CounterReset {
        self.reset
    }

    /// The same with another word on resets.
    #[must_use]
    pub fn with_reset(mut self, reset: CounterReset) -> FloatHistogram {
        self.reset = reset;
        self
    }

    pub(super) const fn is_gauge(&self) -> bool {
        matches!(self.reset, CounterReset::Gauge)
    }

    /// Estimated memory.
    pub(super) fn bytes(&self) -> usize {
        let buckets = self.cells.positive.len() + self.cells.negative.len();
        size_of::<FloatHistogram>() + buckets * size_of::<Slot<f64>>() + 8 * self.cells.bounds.len()
    }

    /// Without buckets that count nothing.
    #[must_use]
    pub(super) fn compacted(mut self) -> FloatHistogram {
        self.cells.compact();
        self
    }

    fn bucket(&self, slot: &Slot<f64>, negative: bool) -> ShownBucket {
        let bound = |index: i32| upper_bound(self.cells.schema, &self.cells.bounds, index);
        let (far, near) = (bound(slot.index), bound(slot.index.saturating_sub(1)));
        let (lower, upper) = if negative { (-far, -near) } else { (near, far) };
        let (holds_lower, holds_upper) =
            if self.is_custom() { (slot.index == 0, true) } else { (lower < 0.0, upper > 0.0) };
        ShownBucket { lower, upper, holds_lower, holds_upper, count: slot.cell }
    }

    /// All buckets in ascending order, those that count nothing too; the zero bucket where it counts something.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = ShownBucket> {
        let threshold = self.cells.threshold;
        let zero = (self.cells.zero > 0.0).then_some(ShownBucket {
            lower: -threshold,
            upper: threshold,
            holds_lower: true,
            holds_upper: true,
            count: self.cells.zero,
        });
        let negative = self.cells.negative.iter().rev().map(|slot| self.bucket(slot, true));
        let positive = self.cells.positive.iter().map(|slot| self.bucket(slot, false));
        negative.chain(zero).chain(positive)
    }
}
