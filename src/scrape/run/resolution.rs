//! Reduces the resolution of native histograms that have too many buckets.

use std::sync::Arc;

use super::error::ScrapeError;
use crate::model::{BucketSpan, Histogram, HistogramCounts, HistogramError, HistogramShape};
use crate::scrape::config::ScrapeLimits;

/// The coarsest schema.
const SCHEMA_MIN: i32 = -4;

/// Reduces the resolution of a histogram until it has at most `native_histogram_bucket_limit`
/// buckets and its buckets grow by `native_histogram_min_bucket_factor` at least.
///
/// # Errors
/// [`ScrapeError::BucketLimit`], if the coarsest schema has too many buckets. Custom buckets cannot
/// be merged.
pub(super) fn limited(histogram: Histogram, limits: &ScrapeLimits) -> Result<Histogram, ScrapeError> {
    let mut histogram = histogram;
    if !histogram.shape().is_custom() {
        while histogram.shape().schema() > SCHEMA_MIN && is_too_fine(&histogram, limits) {
            histogram = match halved(&histogram) {
                Ok(coarser) => coarser,
                Err(error) => {
                    let series = String::new();
                    return Err(ScrapeError::Invalid { reason: error.to_string(), series });
                }
            };
        }
    }
    let (found, allowed) = (histogram.shape().buckets(), limits.native_histogram_bucket_limit);
    if allowed > 0 && found as u64 > allowed {
        return Err(ScrapeError::BucketLimit { found, allowed });
    }
    Ok(histogram)
}

fn is_too_fine(histogram: &Histogram, limits: &ScrapeLimits) -> bool {
    let allowed = limits.native_histogram_bucket_limit;
    if allowed > 0 && histogram.shape().buckets() as u64 > allowed {
        return true;
    }
    let factor_e9 = limits.native_histogram_min_bucket_factor_e9;
    if factor_e9 == 0 {
        return false;
    }
    #[expect(clippy::cast_precision_loss, reason = "a factor is below 2^53 in units of 1/1,000,000,000")]
    let factor = factor_e9 as f64 / 1e9;
    // The growth of a schema n is 2^(2^-n).
    f64::from(-histogram.shape().schema()).exp2().exp2() < factor
}

/// Returns the histogram in the next coarser schema: bucket `i` becomes a part of `ceil(i / 2)`.
fn halved(histogram: &Histogram) -> Result<Histogram, HistogramError> {
    let shape = histogram.shape();
    let positive = indexes(shape.positive());
    let negative = indexes(shape.negative());
    let (positive_spans, positive_places) = merged(&positive);
    let (negative_spans, negative_places) = merged(&negative);
    let coarser = HistogramShape::new(
        shape.schema() - 1,
        shape.zero_threshold(),
        Vec::new(),
        positive_spans,
        negative_spans,
    )?;
    let places = positive_places.iter().copied();
    let places = places.chain(negative_places.iter().map(|place| place + coarser.positive_buckets()));
    let counts = match histogram.counts() {
        HistogramCounts::Integer { count, zero, buckets } => {
            let mut sums = vec![0_u64; coarser.buckets()];
            for (place, bucket) in places.zip(buckets) {
                if let Some(sum) = sums.get_mut(place) {
                    *sum = sum.saturating_add(*bucket);
                }
            }
            HistogramCounts::Integer { count: *count, zero: *zero, buckets: sums }
        }
        HistogramCounts::Float { count, zero, buckets } => {
            let mut sums = vec![0.0; coarser.buckets()];
            for (place, bucket) in places.zip(buckets) {
                if let Some(sum) = sums.get_mut(place) {
                    *sum += bucket;
                }
            }
            HistogramCounts::Float { count: *count, zero: *zero, buckets: sums }
        }
    };
    Histogram::new(Arc::new(coarser), histogram.reset(), histogram.sum(), counts)
}

/// Returns the index of each bucket.
fn indexes(spans: &[BucketSpan]) -> Vec<i64> {
    let mut indexes = Vec::new();
    let mut next = 0_i64;
    for span in spans {
        next += i64::from(span.offset);
        for _ in 0..span.length {
            indexes.push(next);
            next += 1;
        }
    }
    indexes
}

/// Returns the spans of the coarser buckets, and the place of each finer bucket among them.
fn merged(indexes: &[i64]) -> (Vec<BucketSpan>, Vec<usize>) {
    let mut spans: Vec<BucketSpan> = Vec::new();
    let mut places = Vec::with_capacity(indexes.len());
    let (mut buckets, mut last) = (0_usize, None);
    for index in indexes {
        let coarser = (index + 1).div_euclid(2);
        let gap = coarser - last.map_or(0, |last: i64| last + 1);
        if last != Some(coarser) {
            match (last, spans.last_mut()) {
                (Some(_), Some(span)) if gap == 0 => span.length += 1,
                _ => {
                    let offset = i32::try_from(gap).unwrap_or(i32::MAX);
                    spans.push(BucketSpan { offset, length: 1 });
                }
            }
            buckets += 1;
            last = Some(coarser);
        }
        places.push(buckets.saturating_sub(1));
    }
    (spans, places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CounterReset;

    fn histogram(schema: i32, spans: &[(i32, u32)], buckets: &[u64]) -> Histogram {
        let spans = spans.iter().map(|(offset, length)| BucketSpan { offset: *offset, length: *length });
        let shape = HistogramShape::new(schema, 0.0, Vec::new(), spans.collect(), Vec::new());
        let count = buckets.iter().sum();
        let counts = HistogramCounts::Integer { count, zero: 0, buckets: buckets.to_vec() };
        Histogram::new(Arc::new(shape.expect("valid")), CounterReset::Unknown, 1.0, counts).expect("valid")
    }

    #[test]
    fn buckets_are_merged_by_their_bounds_until_they_fit() {
        // Buckets -2 to 1 and 4 become -1, 0, 0, 1 and 2.
        let fine = histogram(3, &[(-2, 4), (2, 1)], &[1, 2, 3, 4, 5]);
        let limits = ScrapeLimits { native_histogram_bucket_limit: 4, ..ScrapeLimits::default() };
        let coarse = limited(fine.clone(), &limits).expect("fits");
        assert_eq!(coarse, histogram(2, &[(-1, 4)], &[1, 5, 4, 5]));
        let one = ScrapeLimits { native_histogram_bucket_limit: 1, ..ScrapeLimits::default() };
        let wide = histogram(0, &[(-100, 1), (300, 1)], &[1, 2]);
        assert!(matches!(limited(wide, &one), Err(ScrapeError::BucketLimit { found: 2, allowed: 1 })));
        assert_eq!(limited(fine.clone(), &ScrapeLimits::default()), Ok(fine));
    }

    #[test]
    fn the_growth_of_buckets_has_a_minimum() {
        let limits =
            ScrapeLimits { native_histogram_min_bucket_factor_e9: 1_100_000_000, ..ScrapeLimits::default() };
        let coarse = limited(histogram(5, &[(0, 2)], &[1, 2]), &limits).expect("fits");
        // 2^(2^-3) is 1.0905, 2^(2^-2) is 1.189.
        assert_eq!(coarse.shape().schema(), 2);
    }
}
