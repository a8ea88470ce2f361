//! Quantiles, fractions and the variance of the observations of a histogram.

use super::{FloatHistogram, HistogramBucket};
use crate::promql::sums::Sum;

/// A quantile, and the effect of NaN observations on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::promql) struct Quantile {
    pub(in crate::promql) value: f64,
    pub(in crate::promql) nan: NanEffect,
}

/// The effect of NaN observations, which are in no bucket, on a quantile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::promql) enum NanEffect {
    /// There are no NaN observations.
    None,
    /// NaN observations rank highest, so the quantile is higher than without them.
    Skews,
    /// The quantile itself is NaN.
    IsResult,
}

/// Returns whether the histogram has NaN observations, which are counted but in no bucket.
pub(in crate::promql) fn has_nan_observations(histogram: &FloatHistogram) -> bool {
    histogram.sum().is_nan() && in_buckets(histogram) < histogram.count()
}

/// Returns the number of observations in all buckets.
fn in_buckets(histogram: &FloatHistogram) -> f64 {
    histogram.buckets().fold(0.0, |all, bucket| all + bucket.count)
}

impl FloatHistogram {
    /// Returns the `q`-quantile, interpolated within its bucket as in Prometheus: `-Inf` for `q <
    /// 0`, `+Inf` for `q > 1`, NaN without observations.
    pub(in crate::promql) fn quantile(&self, q: f64) -> Quantile {
        let plain = |value| Quantile { value, nan: NanEffect::None };
        if q < 0.0 {
            return plain(f64::NEG_INFINITY);
        }
        if q > 1.0 {
            return plain(f64::INFINITY);
        }
        if q.is_nan() || self.count() == 0.0 {
            return plain(f64::NAN);
        }
        // Count from the nearer end, where the cumulative counts have the least rounding. NaN
        // observations rank highest, so with a sum of NaN the count must start at the lower end.
        let upwards = self.sum().is_nan() || q < 0.5;
        let rank = if upwards { q * self.count() } else { (1.0 - q) * self.count() };
        let reached = if upwards { reach(self.buckets(), rank) } else { reach(self.buckets().rev(), rank) };
        let Some((bucket, passed)) = reached else {
            // No bucket has observations, so with a sum of NaN all of them are NaN. Prometheus
            // reports the quantile 0 as skewed, since its rank is reached before the first bucket.
            let nan = match self.sum().is_nan() {
                true if rank > 0.0 => NanEffect::IsResult,
                true => NanEffect::Skews,
                false => NanEffect::None,
            };
            return Quantile { value: f64::NAN, nan };
        };
        let bucket = self.towards_zero(bucket);
        let skews = |value| Quantile {
            value,
            nan: if has_nan_observations(self) { NanEffect::Skews } else { NanEffect::None },
        };
        if self.sum().is_nan() && passed < rank {
            return Quantile { value: f64::NAN, nan: NanEffect::IsResult };
        }
        if self.is_custom() {
            if bucket.lower == f64::NEG_INFINITY {
                if bucket.upper <= 0.0 {
                    return skews(bucket.upper);
                }
            } else if bucket.upper == f64::INFINITY {
                return skews(bucket.lower);
            }
        }
        let lower = if bucket.lower == f64::NEG_INFINITY && self.is_custom() { 0.0 } else { bucket.lower };
        if bucket.upper == f64::INFINITY {
            return skews(lower);
        }
        // Rounding may make the cumulative count exceed the total. If the buckets have fewer
        // observations than the total, the quantile is the end of the last bucket.
        let passed = passed.min(self.count());
        if passed < rank {
            return plain(if upwards { bucket.upper } else { lower });
        }
        let beyond = if upwards { rank - (passed - bucket.count) } else { passed - rank };
        skews(within(&HistogramBucket { lower, ..bucket }, beyond / bucket.count, self.is_linear(&bucket)))
    }

    /// Returns whether interpolation in the bucket is linear: in custom buckets and the zero
    /// bucket.
    fn is_linear(&self, bucket: &HistogramBucket) -> bool {
        self.is_custom() || (bucket.lower <= 0.0 && bucket.upper >= 0.0)
    }

    /// Limits the zero bucket to the positive or negative half if all other buckets are in that
    /// half.
    fn towards_zero(&self, mut bucket: HistogramBucket) -> HistogramBucket {
        let (positive, negative) = (!self.cells.positive.is_empty(), !self.cells.negative.is_empty());
        if !self.is_custom() && bucket.lower < 0.0 && bucket.upper > 0.0 {
            if positive && !negative {
                bucket.lower = 0.0;
            } else if negative && !positive {
                bucket.upper = 0.0;
            }
        }
        bucket
    }

    /// Returns the fraction of observations between two values: 0 if `lower >= upper`, NaN without
    /// observations or if a bound is NaN.
    pub(in crate::promql) fn fraction(&self, lower: f64, upper: f64) -> f64 {
        if self.count() == 0.0 || lower.is_nan() || upper.is_nan() {
            return f64::NAN;
        }
        if lower >= upper {
            return 0.0;
        }
        let known = if self.sum().is_nan() { in_buckets(self) } else { self.count() };
        let rank =
            |value: f64| self.rank(value).map_or(known, |rank| if rank > known { known } else { rank });
        (rank(upper) - rank(lower)) / self.count()
    }

    /// Returns the estimated number of observations up to `value`; `None` if every bucket ends at
    /// or below `value`.
    fn rank(&self, value: f64) -> Option<f64> {
        let (positive, negative) = (!self.cells.positive.is_empty(), !self.cells.negative.is_empty());
        let mut rank = 0.0;
        for mut bucket in self.buckets() {
            // Prometheus does this for custom buckets too.
            let around_zero = bucket.lower <= 0.0 && bucket.upper >= 0.0;
            if around_zero && positive && !negative {
                bucket.lower = 0.0;
            } else if around_zero && negative && !positive {
                bucket.upper = 0.0;
            }
            if bucket.lower >= value {
                return Some(rank);
            }
            if bucket.upper > value {
                if bucket.lower == f64::NEG_INFINITY {
                    return Some(bucket.count);
                }
                return Some(
                    rank + bucket.count * share_below(&bucket, value, self.is_custom() || around_zero),
                );
            }
            rank += bucket.count;
        }
        None
    }

    /// Returns the population variance, with the middle of its bucket for each observation: the
    /// arithmetic mean of the bounds of custom buckets, the geometric mean of exponential ones, and
    /// 0 for the zero bucket.
    pub(in crate::promql) fn variance(&self) -> f64 {
        let mean = self.sum() / self.count();
        let mut squares = Sum::default();
        for bucket in self.buckets().filter(|bucket| bucket.count != 0.0) {
            let middle = if self.is_custom() {
                f64::midpoint(bucket.lower, bucket.upper)
            } else if bucket.lower <= 0.0 && bucket.upper >= 0.0 {
                0.0
            } else {
                (bucket.lower * bucket.upper).sqrt().copysign(bucket.upper)
            };
            let off = middle - mean;
            squares.add(bucket.count * off * off);
        }
        squares.total() / self.count()
    }
}

/// Returns the bucket with the observation of `rank`, and the cumulative count up to its end.
/// Returns the last non-empty bucket if the rank exceeds all counts, and `None` if all buckets are
/// empty.
fn reach(buckets: impl Iterator<Item = HistogramBucket>, rank: f64) -> Option<(HistogramBucket, f64)> {
    let mut passed = 0.0;
    let mut last = None;
    for bucket in buckets.filter(|bucket| bucket.count != 0.0) {
        passed += bucket.count;
        last = Some((bucket, passed));
        if passed >= rank {
            break;
        }
    }
    last
}

/// Returns the value below which `share` of the bucket lies.
fn within(bucket: &HistogramBucket, share: f64, linear: bool) -> f64 {
    let HistogramBucket { lower, upper, .. } = *bucket;
    if linear {
        return lower + (upper - lower) * share;
    }
    let (from, to) = (lower.abs().log2(), upper.abs().log2());
    if lower > 0.0 { (from + (to - from) * share).exp2() } else { -(to + (from - to) * (1.0 - share)).exp2() }
}

/// Returns the share of the bucket below `value`, which must be inside the bucket.
pub(super) fn share_below(bucket: &HistogramBucket, value: f64, linear: bool) -> f64 {
    let HistogramBucket { lower, upper, .. } = *bucket;
    if linear {
        return (value - lower) / (upper - lower);
    }
    let (from, to, at) = (lower.abs().log2(), upper.abs().log2(), value.abs().log2());
    if value > 0.0 { (at - from) / (to - from) } else { 1.0 - (at - to) / (from - to) }
}
