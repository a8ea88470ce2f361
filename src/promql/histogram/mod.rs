//! Native histograms with floating-point counts, and the arithmetic of expressions on them.
//!
//! Buckets are pairs of index and count, ascending by index, each index once. Spans are only the
//! stored and transmitted form. A histogram with an explicit empty bucket differs from one without
//! that bucket until [`FloatHistogram::compacted`] removes it.

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

pub(super) use arithmetic::CombinedHistogram;
pub(super) use mean::{HistogramMean, HistogramSum};
pub(super) use quantile::{NanEffect, has_nan_observations};
pub(super) use trim::TrimSide;

use crate::model::{CUSTOM_BUCKETS_SCHEMA, CounterReset, Histogram, HistogramCounts, HistogramShape};

use bounds::upper_bound;
use cells::{BucketSlot, Cells};

/// One native histogram whose counts are doubles.
#[derive(Clone, Debug)]
pub struct FloatHistogram {
    reset: CounterReset,
    cells: Cells<f64>,
}

/// The bounds and the count of one bucket, as responses show them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistogramBucket {
    /// The lower bound.
    pub lower: f64,
    /// The upper bound.
    pub upper: f64,
    /// Whether `lower` is inclusive.
    pub lower_inclusive: bool,
    /// Whether `upper` is inclusive.
    pub upper_inclusive: bool,
    /// The number of observations.
    pub count: f64,
}

/// Returns the buckets that `spans` name, with their counts in the order of the spans.
fn slots<T: Copy>(
    spans: &[crate::model::BucketSpan],
    counts: &[T],
    of: impl Fn(T) -> f64,
) -> Vec<BucketSlot<f64>> {
    let mut slots = Vec::with_capacity(counts.len());
    let mut counts = counts.iter();
    let mut next = 0i32;
    for span in spans {
        next = next.saturating_add(span.offset);
        for count in counts.by_ref().take(span.length as usize) {
            slots.push(BucketSlot { index: next, cell: of(*count) });
            next = next.saturating_add(1);
        }
    }
    slots
}

/// Converts an integer count; above 2^53 to the nearest double.
#[expect(clippy::cast_precision_loss, reason = "counts beyond 2^53 are rounded, as everywhere in PromQL")]
const fn double(count: u64) -> f64 {
    count as f64
}

/// The counts of a stored histogram, as integers or doubles.
struct StoredCounts<'a, T> {
    count: T,
    zero: T,
    /// The positive buckets, then the negative ones.
    buckets: &'a [T],
}

/// Expands stored counts into cells; `of` converts one count.
fn read<T: Copy>(
    shape: &HistogramShape,
    counts: &StoredCounts<'_, T>,
    sum: f64,
    of: fn(T) -> f64,
) -> Cells<f64> {
    let StoredCounts { count, zero, buckets } = *counts;
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
                read(shape, &StoredCounts { count: *count, zero: *zero, buckets }, sum, double)
            }
            HistogramCounts::Float { count, zero, buckets } => {
                read(shape, &StoredCounts { count: *count, zero: *zero, buckets }, sum, |count| count)
            }
        };
        FloatHistogram { reset: stored.reset(), cells }
    }
}

impl FloatHistogram {
    /// Returns the schema: -4 to 8 for exponential buckets, -53 for custom buckets.
    pub const fn schema(&self) -> i32 {
        self.cells.schema
    }

    /// Returns whether the buckets have custom bounds (schema -53).
    pub const fn is_custom(&self) -> bool {
        self.cells.schema == CUSTOM_BUCKETS_SCHEMA
    }

    /// Returns the number of observations.
    pub const fn count(&self) -> f64 {
        self.cells.count
    }

    /// Returns the sum of the observations.
    pub const fn sum(&self) -> f64 {
        self.cells.sum
    }

    /// Returns the greatest absolute value that the zero bucket includes.
    pub const fn zero_threshold(&self) -> f64 {
        self.cells.threshold
    }

    /// Returns the number of observations in the zero bucket.
    pub const fn zero_count(&self) -> f64 {
        self.cells.zero
    }

    /// Returns the upper bounds of custom buckets, ascending, without the final `+Inf`.
    pub fn custom_values(&self) -> &[f64] {
        &self.cells.bounds
    }

    /// Returns indices and counts of the positive buckets, ascending.
    pub fn positive(&self) -> impl Iterator<Item = (i32, f64)> {
        self.cells.positive.iter().map(|slot| (slot.index, slot.cell))
    }

    /// Returns indices and counts of the negative buckets, ascending by index: from zero downwards.
    pub fn negative(&self) -> impl Iterator<Item = (i32, f64)> {
        self.cells.negative.iter().map(|slot| (slot.index, slot.cell))
    }

    /// Returns the counter reset hint.
    pub const fn reset(&self) -> CounterReset {
        self.reset
    }

    /// Replaces the counter reset hint.
    #[must_use]
    pub fn with_reset(mut self, reset: CounterReset) -> FloatHistogram {
        self.reset = reset;
        self
    }

    pub(super) const fn is_gauge(&self) -> bool {
        matches!(self.reset, CounterReset::Gauge)
    }

    /// Returns the estimated memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let buckets = self.cells.positive.len() + self.cells.negative.len();
        size_of::<FloatHistogram>() + buckets * size_of::<BucketSlot<f64>>() + 8 * self.cells.bounds.len()
    }

    /// Removes empty buckets.
    #[must_use]
    pub(super) fn compacted(mut self) -> FloatHistogram {
        self.cells.compact();
        self
    }

    /// Returns the bounds of a bucket. Custom buckets exclude their lower bound, except the first;
    /// exponential buckets exclude the bound nearer to zero.
    fn bucket(&self, slot: &BucketSlot<f64>, negative: bool) -> HistogramBucket {
        let bound = |index: i32| upper_bound(self.cells.schema, &self.cells.bounds, index);
        let (far, near) = (bound(slot.index), bound(slot.index.saturating_sub(1)));
        let (lower, upper) = if negative { (-far, -near) } else { (near, far) };
        let (lower_inclusive, upper_inclusive) =
            if self.is_custom() { (slot.index == 0, true) } else { (lower < 0.0, upper > 0.0) };
        HistogramBucket { lower, upper, lower_inclusive, upper_inclusive, count: slot.cell }
    }

    /// Returns all buckets in ascending order, empty ones included. The zero bucket is included
    /// only if its count is positive.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = HistogramBucket> {
        let threshold = self.cells.threshold;
        let zero = (self.cells.zero > 0.0).then_some(HistogramBucket {
            lower: -threshold,
            upper: threshold,
            lower_inclusive: true,
            upper_inclusive: true,
            count: self.cells.zero,
        });
        let negative = self.cells.negative.iter().rev().map(|slot| self.bucket(slot, true));
        let positive = self.cells.positive.iter().map(|slot| self.bucket(slot, false));
        negative.chain(zero).chain(positive)
    }
}
