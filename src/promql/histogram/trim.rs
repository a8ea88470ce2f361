//! `</` and `>/`: the observations on one side of a value.

use super::quantile::share_below;
use super::{FloatHistogram, ShownBucket, Slot};

/// Which side is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::promql) enum Keep {
    /// `</`: what is at most the value.
    Below,
    /// `>/`: what is at least the value.
    Above,
}

/// What is left of a bucket, and about where it lies.
#[derive(Clone, Copy, Debug)]
struct Left {
    count: f64,
    middle: f64,
}

impl FloatHistogram {
    /// The observations on one side of `at`: of the bucket around it, the share that lies there. Where that takes
    /// anything away, the sum is estimated anew from where the rest lies.
    pub(in crate::promql) fn trimmed(&self, at: f64, keep: Keep) -> FloatHistogram {
        let mut out = self.clone();
        let (mut count, mut sum, mut changed) = (0.0, 0.0, false);
        let mut apply = |have: &mut f64, left: Left| {
            count += left.count;
            sum += left.count * left.middle;
            changed |= *have != left.count;
            *have = left.count;
        };
        for negative in [false, true] {
            let slots = if negative { &mut out.cells.negative } else { &mut out.cells.positive };
            for slot in slots.iter_mut().filter(|slot| slot.cell != 0.0) {
                let bucket = self.bucket(slot, negative);
                apply(&mut slot.cell, left_of(&bucket, at, keep, self.is_custom()));
            }
        }
        if self.cells.zero > 0.0 {
            apply(&mut out.cells.zero, left_of(&self.zero_bucket(), at, keep, true));
        }
        if !changed {
            return out;
        }
        out.cells.count = count;
        out.cells.sum = sum;
        out.compacted()
    }

    /// The zero bucket, which ends at zero where only one side has observations.
    fn zero_bucket(&self) -> ShownBucket {
        let any = |slots: &[Slot<f64>]| slots.iter().any(|slot| slot.cell != 0.0);
        let (positive, negative) = (any(&self.cells.positive), any(&self.cells.negative));
        let threshold = self.cells.threshold;
        ShownBucket {
            lower: if positive && !negative { 0.0 } else { -threshold },
            upper: if negative && !positive { 0.0 } else { threshold },
            holds_lower: true,
            holds_upper: true,
            count: self.cells.zero,
        }
    }
}

fn left_of(bucket: &ShownBucket, at: f64, keep: Keep, linear: bool) -> Left {
    let ShownBucket { lower, upper, count, .. } = *bucket;
    let whole = Left { count, middle: middle(lower, upper, linear) };
    let nothing = Left { count: 0.0, middle: 0.0 };
    match keep {
        Keep::Below if upper <= at => return whole,
        Keep::Above if lower >= at => return whole,
        Keep::Below if lower >= at => return nothing,
        Keep::Above if upper <= at => return nothing,
        // A value that is no number is on neither side.
        _ if at.is_nan() => return nothing,
        _ => {}
    }
    let finite = lower.is_finite() && upper.is_finite();
    // The first custom bucket is taken to begin at zero where it ends above.
    let from_zero = lower == f64::NEG_INFINITY && upper.is_finite() && upper > 0.0;
    if !finite && !from_zero {
        return left_of_endless(bucket, at, keep);
    }
    let lower = if from_zero { 0.0 } else { lower };
    match keep {
        // Nothing of a bucket that begins at zero lies below, all of it above.
        Keep::Below if at <= lower => nothing,
        Keep::Above if at < lower => nothing,
        Keep::Below => {
            let share = share_below(&ShownBucket { lower, ..*bucket }, at, linear);
            Left { count: count * share, middle: middle(lower, at, linear) }
        }
        Keep::Above => {
            let share = share_below(&ShownBucket { lower, ..*bucket }, at, linear);
            Left { count: count * (1.0 - share), middle: middle(at, upper, linear) }
        }
    }
}

/// A bucket without an end has no shares: what may lie beyond the value is taken to lie there, all of it.
fn left_of_endless(bucket: &ShownBucket, at: f64, keep: Keep) -> Left {
    let (down, up) = (bucket.lower == f64::NEG_INFINITY, bucket.upper == f64::INFINITY);
    let kept = match keep {
        Keep::Below => down && !up,
        Keep::Above => up && !down,
    };
    Left { count: if kept { bucket.count } else { 0.0 }, middle: at }
}

/// About where observations between two bounds lie.
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
