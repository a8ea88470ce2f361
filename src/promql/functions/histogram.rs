//! Classic histograms: cumulative counts below upper bounds (prometheus promql/quantile.go).

/// One bucket: how many observations were at most `le`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::promql) struct Bucket {
    pub(in crate::promql) le: f64,
    pub(in crate::promql) count: f64,
}

/// Counts that went down from one bucket to the next and were lifted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::promql) struct Lifted {
    pub(in crate::promql) lowest: f64,
    pub(in crate::promql) highest: f64,
    pub(in crate::promql) max_difference: f64,
}

/// The relative difference below which two counts are the same but for rounding.
const SAME: f64 = 1e-12;

/// The `q`-quantile of buckets sorted by bound; equal bounds are merged and counts made monotonic in place.
pub(in crate::promql) fn quantile(q: f64, buckets: &mut Vec<Bucket>) -> (f64, Option<Lifted>) {
    if q.is_nan() {
        return (f64::NAN, None);
    }
    if q < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if q > 1.0 {
        return (f64::INFINITY, None);
    }
    let (total, lifted) = match prepare(buckets) {
        Some(prepared) => prepared,
        None => return (f64::NAN, None),
    };
    let last = buckets.len() - 1;
    if last == 0 || total == 0.0 || total.is_nan() {
        return (f64::NAN, lifted);
    }
    let rank = q * total;
    let place = buckets[..last].iter().position(|bucket| bucket.count >= rank).unwrap_or(last);
    if place == last {
        return (buckets[last - 1].le, lifted);
    }
    let Bucket { le: end, count } = buckets[place];
    if place == 0 {
        let value = if end <= 0.0 { end } else { end * (rank / count) };
        return (value, lifted);
    }
    let before = buckets[place - 1];
    (before.le + (end - before.le) * ((rank - before.count) / (count - before.count)), lifted)
}

/// The share of observations between two bounds. Unlike a quantile's, counts that fall stay as they are, as upstream has
/// it.
pub(in crate::promql) fn fraction(lower: f64, upper: f64, buckets: &mut Vec<Bucket>) -> f64 {
    let Some(total) = merged(buckets) else { return f64::NAN };
    if total == 0.0 || total.is_nan() || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    let between = rank_at(upper, buckets, total, Edge::Upper) - rank_at(lower, buckets, total, Edge::Lower);
    between / total
}

#[derive(Clone, Copy, PartialEq)]
enum Edge {
    Lower,
    Upper,
}

/// About how many observations were at most `value`.
fn rank_at(value: f64, buckets: &[Bucket], total: f64, edge: Edge) -> f64 {
    let mut rank = 0.0_f64;
    let mut from = match buckets.first() {
        Some(first) if first.le > 0.0 => 0.0,
        _ => f64::NEG_INFINITY,
    };
    for bucket in buckets {
        if from >= value {
            return rank.min(total);
        }
        if value < bucket.le {
            if from.is_infinite() {
                // A bucket that reaches down for ever has no places inside it: what it has in part, it has not.
                return if edge == Edge::Lower { bucket.count } else { rank };
            }
            let part = (value - from) / (bucket.le - from);
            return (rank + (bucket.count - rank) * part).min(total);
        }
        rank = bucket.count;
        from = bucket.le;
    }
    total
}

/// Merges, lifts, and answers the count of all observations; `None` without a last bucket of `+Inf`.
fn prepare(buckets: &mut Vec<Bucket>) -> Option<(f64, Option<Lifted>)> {
    merged(buckets)?;
    let lifted = lift(buckets);
    buckets.last().map(|last| (last.count, lifted))
}

/// Merges those of one bound, and answers the count of the last one, which is `+Inf`'s.
fn merged(buckets: &mut Vec<Bucket>) -> Option<f64> {
    if buckets.last()?.le != f64::INFINITY {
        return None;
    }
    buckets.dedup_by(|next, kept| {
        let same = next.le == kept.le;
        if same {
            kept.count += next.count;
        }
        same
    });
    buckets.last().map(|last| last.count)
}

fn lift(buckets: &mut [Bucket]) -> Option<Lifted> {
    let mut lifted: Option<Lifted> = None;
    let mut before = buckets.first()?.count;
    for bucket in &mut buckets[1..] {
        if exceeds(bucket.count, before) {
            before = bucket.count;
        } else if almost_equal(before, bucket.count) {
            bucket.count = before;
        } else if bucket.count < before {
            let difference = before - bucket.count;
            let sofar =
                lifted.get_or_insert(Lifted { lowest: bucket.le, highest: bucket.le, max_difference: 0.0 });
            sofar.lowest = sofar.lowest.min(bucket.le);
            sofar.highest = sofar.highest.max(bucket.le);
            sofar.max_difference = sofar.max_difference.max(difference);
            bucket.count = before;
        } else {
            before = bucket.count;
        }
    }
    lifted
}

/// Whether a count is above another one by so much that no rounding makes them almost equal: most are, and no division is
/// needed to see it.
#[inline]
fn exceeds(count: f64, before: f64) -> bool {
    let sum = before.abs() + count.abs();
    (count - before > sum * (SAME * 2.0)) & (sum >= f64::MIN_POSITIVE)
}

fn almost_equal(a: f64, b: f64) -> bool {
    if a == b {
        return true;
    }
    let (sum, difference) = (a.abs() + b.abs(), (a - b).abs());
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < SAME * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < SAME
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count() -> impl Strategy<Value = f64> {
        let few = [0.0, -0.0, 5e-324, f64::MIN_POSITIVE, f64::MAX, f64::INFINITY, f64::NAN];
        prop_oneof![any::<f64>(), prop::sample::select(few.to_vec()), 0.0..1e6, -310f64..308.0]
            .prop_map(|value| if value < -2.0 { 10f64.powf(value) } else { value })
    }

    proptest! {
        #[test]
        fn what_exceeds_is_not_almost_equal(before in count(), other in count(), near in -3e-12..3e-12f64) {
            for count in [other, before + before * near] {
                let more = count > before && !almost_equal(before, count);
                prop_assert!(more || !exceeds(count, before), "{before} {count}");
            }
        }
    }

    const INF: f64 = f64::INFINITY;

    type Case = (f64, &'static [(f64, f64)], f64);

    fn buckets(pairs: &[(f64, f64)]) -> Vec<Bucket> {
        pairs.iter().map(|(le, count)| Bucket { le: *le, count: *count }).collect()
    }

    #[test]
    fn a_quantile_is_interpolated_inside_its_bucket() {
        let cases: [Case; 6] = [
            (0.5, &[(1.0, 2.0), (2.0, 4.0), (INF, 4.0)], 1.0),
            (0.75, &[(1.0, 2.0), (2.0, 4.0), (INF, 4.0)], 1.5),
            (0.9, &[(1.0, 2.0), (INF, 4.0)], 1.0),
            (0.1, &[(-1.0, 2.0), (INF, 4.0)], -1.0),
            (0.25, &[(1.0, 2.0), (2.0, 2.0), (2.0, 2.0), (INF, 4.0)], 0.5),
            (2.0, &[(INF, 4.0)], INF),
        ];
        for (q, pairs, expected) in cases {
            assert_eq!(quantile(q, &mut buckets(pairs)).0, expected, "{q} of {pairs:?}");
        }
        for pairs in [&[(1.0, 2.0)][..], &[(INF, 2.0)], &[], &[(1.0, 0.0), (INF, 0.0)]] {
            assert!(quantile(0.5, &mut buckets(pairs)).0.is_nan(), "{pairs:?}");
        }
    }

    #[test]
    fn counts_that_fall_are_lifted_and_told() {
        let (_, lifted) = quantile(0.5, &mut buckets(&[(1.0, 5.0), (2.0, 3.0), (f64::INFINITY, 6.0)]));
        assert_eq!(lifted, Some(Lifted { lowest: 2.0, highest: 2.0, max_difference: 2.0 }));
        let (_, lifted) =
            quantile(0.5, &mut buckets(&[(1.0, 5.0), (2.0, 5.0 - 1e-13), (f64::INFINITY, 6.0)]));
        assert_eq!(lifted, None, "rounding is not told");
    }

    #[test]
    fn a_fraction_counts_what_lies_between() {
        let all = [(1.0, 2.0), (2.0, 4.0), (f64::INFINITY, 4.0)];
        let cases = [
            ((0.0, 1.0), 0.5),
            ((0.5, 1.5), 0.5),
            ((2.0, 1.0), 0.0),
            ((f64::NEG_INFINITY, f64::INFINITY), 1.0),
        ];
        for ((lower, upper), expected) in cases {
            assert_eq!(fraction(lower, upper, &mut buckets(&all)), expected, "{lower}..{upper}");
        }
    }
}
