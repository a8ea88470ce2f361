//! The trim operators `</` and `>/`, which keep the observations on one side of a value.

use super::quantile::share_below;
use super::{BucketSlot, FloatHistogram, HistogramBucket};

/// The side of the value whose observations are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::promql) enum TrimSide {
    /// `</`: observations of at most the value.
    Below,
    /// `>/`: observations of at least the value.
    Above,
}

/// The remaining observations of a bucket, and their estimated mean.
#[derive(Clone, Copy, Debug)]
struct Remainder {
    count: f64,
    middle: f64,
}

impl FloatHistogram {
    /// Returns the observations on one side of `at`. The bucket around `at` is divided by
    /// interpolation. If any observation is removed, the count and the sum are recomputed from the
    /// remaining buckets.
    pub(in crate::promql) fn trimmed(&self, at: f64, keep: TrimSide) -> FloatHistogram {
        let mut out = self.clone();
        let (mut count, mut sum, mut changed) = (0.0, 0.0, false);
        let mut apply = |have: &mut f64, rest: Remainder| {
            count += rest.count;
            sum += rest.count * rest.middle;
            changed |= *have != rest.count;
            *have = rest.count;
        };
        for negative in [false, true] {
            let slots = if negative { &mut out.cells.negative } else { &mut out.cells.positive };
            for slot in slots.iter_mut().filter(|slot| slot.cell != 0.0) {
                let bucket = self.bucket(slot, negative);
                apply(&mut slot.cell, remainder(&bucket, at, keep, self.is_custom()));
            }
        }
        if self.cells.zero > 0.0 {
            apply(&mut out.cells.zero, remainder(&self.zero_bucket(), at, keep, true));
        }
        if !changed {
            return out;
        }
        out.cells.count = count;
        out.cells.sum = sum;
        out.compacted()
    }

    /// Returns the zero bucket, which ends at zero if only positive or only negative buckets have
    /// observations.
    fn zero_bucket(&self) -> HistogramBucket {
        let any = |slots: &[BucketSlot<f64>]| slots.iter().any(|slot| slot.cell != 0.0);
        let (positive, negative) = (any(&self.cells.positive), any(&self.cells.negative));
        let threshold = self.cells.threshold;
        HistogramBucket {
            lower: if positive && !negative { 0.0 } else { -threshold },
            upper: if negative && !positive { 0.0 } else { threshold },
            lower_inclusive: true,
            upper_inclusive: true,
            count: self.cells.zero,
        }
    }
}

/// Returns the observations of a bucket on the kept side of `at`. `linear` selects linear in place
/// of exponential interpolation.
fn remainder(bucket: &HistogramBucket, at: f64, keep: TrimSide, linear: bool) -> Remainder {
    let HistogramBucket { lower, upper, count, .. } = *bucket;
    let whole = Remainder { count, middle: middle(lower, upper, linear) };
    let nothing = Remainder { count: 0.0, middle: 0.0 };
    match keep {
        TrimSide::Below if upper <= at => return whole,
        TrimSide::Above if lower >= at => return whole,
        TrimSide::Below if lower >= at => return nothing,
        TrimSide::Above if upper <= at => return nothing,
        // No observation is on either side of NaN.
        _ if at.is_nan() => return nothing,
        _ => {}
    }
    let finite = lower.is_finite() && upper.is_finite();
    // The first custom bucket begins at zero if its upper bound is positive.
    let from_zero = lower == f64::NEG_INFINITY && upper.is_finite() && upper > 0.0;
    if !finite && !from_zero {
        return remainder_unbounded(bucket, at, keep);
    }
    let lower = if from_zero { 0.0 } else { lower };
    match keep {
        // The lower bound may have been raised to zero above, so compare with it again.
        TrimSide::Below if at <= lower => nothing,
        TrimSide::Above if at < lower => nothing,
        TrimSide::Below => {
            let share = share_below(&HistogramBucket { lower, ..*bucket }, at, linear);
            Remainder { count: count * share, middle: middle(lower, at, linear) }
        }
        TrimSide::Above => {
            let share = share_below(&HistogramBucket { lower, ..*bucket }, at, linear);
            Remainder { count: count * (1.0 - share), middle: middle(at, upper, linear) }
        }
    }
}

/// Trims a bucket with an infinite bound, in which no interpolation is possible: all of its
/// observations count as lying towards the infinite bound.
fn remainder_unbounded(bucket: &HistogramBucket, at: f64, keep: TrimSide) -> Remainder {
    let (down, up) = (bucket.lower == f64::NEG_INFINITY, bucket.upper == f64::INFINITY);
    let kept = match keep {
        TrimSide::Below => down && !up,
        TrimSide::Above => up && !down,
    };
    Remainder { count: if kept { bucket.count } else { 0.0 }, middle: at }
}

/// Returns the estimated mean of observations between two bounds: the arithmetic mean if `linear`,
/// otherwise the geometric one.
fn middle(lower: f64, upper: f64, linear: bool) -> f64 {
    match (lower.is_infinite(), upper.is_infinite()) {
        (true, true) => 0.0,
        (true, false) if upper > 0.0 => upper / 2.0,
        (true, false) => upper,
        (false, true) => lower,
        (false, false) if linear => f64::midpoint(lower, upper),
        (false, false) => {
            let size = (lower * upper).abs().sqrt();
            if upper > 0.0 { size } else { -size }
        }
    }
}
