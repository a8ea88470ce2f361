//! The sum of two native histograms with integer counts.
//!
//! Senders choose the scale of each interval by its values, so the scales of two intervals differ.
//! The sum has the coarser one: two neighbours of a scale are one bucket of the next coarser scale.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{BucketSpan, CounterReset, Histogram, HistogramCounts, HistogramError, HistogramShape};

/// The coarsest schema of exponential buckets.
const SCHEMA_MIN: i32 = -4;

/// The counts of one sign by the index of the bucket.
type Buckets = BTreeMap<i64, u64>;

/// Adds `change` to `total`.
///
/// # Errors
/// [`HistogramError`], if one has float counts or custom bounds, or the sum has too many buckets at
/// the coarsest scale.
pub(super) fn sum(total: &Histogram, change: &Histogram) -> Result<Histogram, HistogramError> {
    let (a, b) = (Parts::of(total)?, Parts::of(change)?);
    let mut schema = a.schema.min(b.schema);
    let zero_threshold = a.zero_threshold.max(b.zero_threshold);
    let value = total.sum() + change.sum();
    loop {
        let (a, b) = (a.at(schema, zero_threshold), b.at(schema, zero_threshold));
        match built(schema, zero_threshold, value, &a.plus(b)) {
            Err(HistogramError::TooLarge { .. }) if schema > SCHEMA_MIN => schema -= 1,
            done => return done,
        }
    }
}

/// A histogram with its buckets by index.
struct Parts {
    schema: i32,
    zero_threshold: f64,
    count: u64,
    zero: u64,
    positive: Buckets,
    negative: Buckets,
}

impl Parts {
    fn of(histogram: &Histogram) -> Result<Parts, HistogramError> {
        let shape = histogram.shape();
        let HistogramCounts::Integer { count, zero, buckets } = histogram.counts() else {
            return Err(HistogramError::Custom("a total of changes has integer counts"));
        };
        if shape.is_custom() {
            return Err(HistogramError::Custom("a total of changes has no custom buckets"));
        }
        let mut counts = buckets.iter().copied();
        let positive = indexed(shape.positive(), &mut counts);
        let negative = indexed(shape.negative(), &mut counts);
        let (schema, zero_threshold) = (shape.schema(), shape.zero_threshold());
        Ok(Parts { schema, zero_threshold, count: *count, zero: *zero, positive, negative })
    }

    /// Returns the same observations at a coarser schema and a wider zero bucket. A bucket counts
    /// as zero if its upper bound is within the threshold.
    fn at(&self, schema: i32, zero_threshold: f64) -> Parts {
        let downscale = u32::try_from(self.schema.saturating_sub(schema)).unwrap_or_default();
        let mut zero = self.zero;
        let mut coarser = |buckets: &Buckets| {
            let mut coarser = Buckets::new();
            for (index, count) in buckets {
                let index = ((index - 1) >> downscale.min(63)) + 1;
                if zero_threshold > self.zero_threshold && upper_bound(index, schema) <= zero_threshold {
                    zero = zero.saturating_add(*count);
                } else {
                    let bucket = coarser.entry(index).or_default();
                    *bucket = bucket.saturating_add(*count);
                }
            }
            coarser
        };
        let (positive, negative) = (coarser(&self.positive), coarser(&self.negative));
        Parts { schema, zero_threshold, count: self.count, zero, positive, negative }
    }

    fn plus(mut self, other: Parts) -> Parts {
        for (own, more) in [(&mut self.positive, other.positive), (&mut self.negative, other.negative)] {
            for (index, count) in more {
                let bucket = own.entry(index).or_default();
                *bucket = bucket.saturating_add(count);
            }
        }
        self.zero = self.zero.saturating_add(other.zero);
        self.count = self.count.saturating_add(other.count);
        self
    }
}

/// Returns the upper bound of a bucket, a power of 2^(2^-schema).
fn upper_bound(index: i64, schema: i32) -> f64 {
    let exponent = f64::from(i32::try_from(index).unwrap_or(i32::MAX)) * f64::from(-schema).exp2();
    exponent.exp2()
}

fn indexed(spans: &[BucketSpan], counts: &mut impl Iterator<Item = u64>) -> Buckets {
    let mut buckets = Buckets::new();
    let mut index = 0_i64;
    for span in spans {
        index += i64::from(span.offset);
        for count in counts.by_ref().take(usize::try_from(span.length).unwrap_or(usize::MAX)) {
            if count > 0 {
                buckets.insert(index, count);
            }
            index += 1;
        }
    }
    buckets
}

fn built(schema: i32, zero_threshold: f64, sum: f64, parts: &Parts) -> Result<Histogram, HistogramError> {
    let (positive, mut buckets) = spans(&parts.positive, "positive")?;
    let (negative, more) = spans(&parts.negative, "negative")?;
    buckets.extend(more);
    let shape = HistogramShape::new(schema, zero_threshold, Vec::new(), positive, negative)?;
    let counts = HistogramCounts::Integer { count: parts.count, zero: parts.zero, buckets };
    Histogram::new(Arc::new(shape), CounterReset::Unknown, sum, counts)
}

/// Returns the spans of buckets, without empty ones between them, and their counts.
fn spans(buckets: &Buckets, side: &'static str) -> Result<(Vec<BucketSpan>, Vec<u64>), HistogramError> {
    let mut spans: Vec<BucketSpan> = Vec::new();
    let mut next = 0_i64;
    for index in buckets.keys() {
        match spans.last_mut() {
            Some(span) if *index == next => span.length += 1,
            _ => {
                let number = spans.len() + 1;
                let offset =
                    i32::try_from(index - next).map_err(|_| HistogramError::SpanRange { side, number })?;
                spans.push(BucketSpan { offset, length: 1 });
            }
        }
        next = index + 1;
    }
    Ok((spans, buckets.values().copied().collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram(schema: i32, first: i32, counts: &[u64]) -> Histogram {
        let spans = vec![BucketSpan { offset: first, length: u32::try_from(counts.len()).expect("few") }];
        let shape = HistogramShape::new(schema, 0.001, Vec::new(), spans, Vec::new()).expect("valid");
        let all = HistogramCounts::Integer { count: counts.iter().sum(), zero: 0, buckets: counts.to_vec() };
        Histogram::new(Arc::new(shape), CounterReset::Unknown, 1.0, all).expect("valid")
    }

    fn counts(histogram: &Histogram) -> Vec<(i64, u64)> {
        Parts::of(histogram).expect("valid").positive.into_iter().collect()
    }

    #[test]
    fn counts_of_equal_buckets_are_added() {
        let both = sum(&histogram(2, 1, &[1, 2]), &histogram(2, 2, &[3, 4])).expect("valid");
        assert_eq!(counts(&both), [(1, 1), (2, 5), (3, 4)]);
        assert_eq!((both.sum(), both.count()), (2.0, 10.0));
    }

    #[test]
    fn the_coarser_scale_is_the_scale_of_the_sum() {
        // At the next coarser scale, buckets 1 and 2 are 1, 3 and 4 are 2.
        let both = sum(&histogram(3, 1, &[1, 2, 4, 8]), &histogram(2, 1, &[16, 32])).expect("valid");
        assert_eq!((both.shape().schema(), counts(&both)), (2, vec![(1, 19), (2, 44)]));
        let swapped = sum(&histogram(2, 1, &[16, 32]), &histogram(3, 1, &[1, 2, 4, 8])).expect("valid");
        assert_eq!(counts(&swapped), counts(&both));
    }

    #[test]
    fn a_sum_with_too_many_buckets_has_a_coarser_scale() {
        let wide = |first: i32| histogram(8, first, &[1; 4_000]);
        let both = sum(&wide(0), &wide(4_000)).expect("valid");
        assert_eq!((both.shape().schema(), both.count()), (7, 8_000.0));
    }

    proptest! {
        #[test]
        fn no_observation_is_lost_and_the_order_does_not_matter(
            parts in prop::collection::vec((-4_i32..=8, -40_i32..40, prop::collection::vec(0_u64..9, 1..12)), 1..6),
        ) {
            let all: Vec<Histogram> = parts.iter().map(|(schema, first, counts)| histogram(*schema, *first, counts)).collect();
            let fold = |all: &mut dyn Iterator<Item = &Histogram>| {
                let first = all.next().expect("one").clone();
                all.fold(first, |total, one| sum(&total, one).expect("valid"))
            };
            let (there, back) = (fold(&mut all.iter()), fold(&mut all.iter().rev()));
            let expected: u64 = parts.iter().flat_map(|(.., counts)| counts).sum();
            prop_assert_eq!(Parts::of(&there).expect("valid").count, expected);
            prop_assert_eq!(there.shape().schema(), back.shape().schema());
            prop_assert_eq!(counts(&there), counts(&back));
        }
    }
}
