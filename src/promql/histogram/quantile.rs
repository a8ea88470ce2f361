//! What a histogram says of its observations: quantiles, fractions, mean and spread.

use super::{FloatHistogram, ShownBucket};
use crate::promql::functions::sums::Sum;

/// A quantile, and what NaN observations did to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::promql) struct Quantile {
    pub(in crate::promql) value: f64,
    pub(in crate::promql) nan: SeenNan,
}

/// What observations of NaN, which are in no bucket, mean for a quantile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::promql) enum SeenNan {
    /// There are none.
    None,
    /// They count as the greatest: the quantile is higher than that of the numbers.
    Skews,
    /// The quantile is one of them.
    IsResult,
}

/// Whether observations are in no bucket because they are NaN.
pub(in crate::promql) fn sees_nan(histogram: &FloatHistogram) -> bool {
    histogram.sum().is_nan() && in_buckets(histogram) < histogram.count()
}

fn in_buckets(histogram: &FloatHistogram) -> f64 {
    histogram.buckets().fold(0.0, |all, bucket| all + bucket.count)
}

impl FloatHistogram {
    /// The `q`-quantile, interpolated within its bucket.
    pub(in crate::promql) fn quantile(&self, q: f64) -> Quantile {
        let plain = |value| Quantile { value, nan: SeenNan::None };
        if q < 0.0 {
            return plain(f64::NEG_INFINITY);
        }
        if q > 1.0 {
            return plain(f64::INFINITY);
        }
        if q.is_nan() || self.count() == 0.0 {
            return plain(f64::NAN);
        }
        // From the nearer end, since that is where sums of counts are exact. NaN observations count as the greatest, so
        // that the upper end is unknown where there may be any.
        let upwards = self.sum().is_nan() || q < 0.5;
        let rank = if upwards { q * self.count() } else { (1.0 - q) * self.count() };
        let found = if upwards { reach(self.buckets(), rank) } else { reach(self.buckets().rev(), rank) };
        let Some((bucket, passed)) = found else {
            // No bucket has observations: with a sum of NaN all of them are NaN. Prometheus reports the
            // quantile 0, whose rank is reached before the first bucket, as skewed.
            let nan = match self.sum().is_nan() {
                true if rank > 0.0 => SeenNan::IsResult,
                true => SeenNan::Skews,
                false => SeenNan::None,
            };
            return Quantile { value: f64::NAN, nan };
        };
        let bucket = self.towards_zero(bucket);
        let skews =
            |value| Quantile { value, nan: if sees_nan(self) { SeenNan::Skews } else { SeenNan::None } };
        if self.sum().is_nan() && passed < rank {
            return Quantile { value: f64::NAN, nan: SeenNan::IsResult };
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
        // Rounding may have counted more than there are; and where buckets hold less than all, their end is the end.
        let passed = passed.min(self.count());
        if passed < rank {
            return plain(if upwards { bucket.upper } else { lower });
        }
        let beyond = if upwards { rank - (passed - bucket.count) } else { passed - rank };
        skews(within(&ShownBucket { lower, ..bucket }, beyond / bucket.count, self.is_linear(&bucket)))
    }

    /// Whether observations are taken to be spread evenly over the bucket: over custom ones and the zero bucket.
    fn is_linear(&self, bucket: &ShownBucket) -> bool {
        self.is_custom() || (bucket.lower <= 0.0 && bucket.upper >= 0.0)
    }

    /// The zero bucket ends at zero on the side where there is no other bucket.
    fn towards_zero(&self, mut bucket: ShownBucket) -> ShownBucket {
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

    /// The share of observations between two values.
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

    /// About how many observations are at most `value`; none where every bucket ends below it.
    fn rank(&self, value: f64) -> Option<f64> {
        let (positive, negative) = (!self.cells.positive.is_empty(), !self.cells.negative.is_empty());
        let mut rank = 0.0;
        for mut bucket in self.buckets() {
            // As upstream has it, for custom buckets too.
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

    /// The variance of observations, each taken for the middle of its bucket.
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

/// The bucket with the observation of that rank, and how many there are up to its end; the last one where the rank is
/// beyond all.
fn reach(buckets: impl Iterator<Item = ShownBucket>, rank: f64) -> Option<(ShownBucket, f64)> {
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

/// The value below which that share of the bucket lies.
fn within(bucket: &ShownBucket, share: f64, linear: bool) -> f64 {
    let ShownBucket { lower, upper, .. } = *bucket;
    if linear {
        return lower + (upper - lower) * share;
    }
    let (from, to) = (lower.abs().log2(), upper.abs().log2());
    if lower > 0.0 { (from + (to - from) * share).exp2() } else { -(to + (from - to) * (1.0 - share)).exp2() }
}

/// The share of the bucket that lies below the value, which is inside it.
pub(super) fn share_below(bucket: &ShownBucket, value: f64, linear: bool) -> f64 {
    let ShownBucket { lower, upper, .. } = *bucket;
    if linear {
        return (value - lower) / (upper - lower);
    }
    let (from, to, at) = (lower.abs().log2(), upper.abs().log2(), value.abs().log2());
    if value > 0.0 { (at - from) / (to - from) } else { 1.0 - (at - to) / (from - to) }
}
