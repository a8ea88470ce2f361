//! Classic histograms: cumulative counts below upper bounds (prometheus promql/quantile.go).

use std::ops::Range;

use crate::simd::simd_dispatch;

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
    (inside(rank, place, last, |number| buckets[number]), lifted)
}

/// Where an observation of that rank is in the bucket that it falls into, of `last` buckets and one without an upper bound.
#[inline]
fn inside(rank: f64, place: usize, last: usize, bucket: impl Fn(usize) -> Bucket) -> f64 {
    if place == last {
        return bucket(last - 1).le;
    }
    let Bucket { le: end, count } = bucket(place);
    if place == 0 {
        return if end <= 0.0 { end } else { end * (rank / count) };
    }
    let before = bucket(place - 1);
    before.le + (end - before.le) * ((rank - before.count) / (count - before.count))
}

/// The quantiles of many steps, where the buckets are as they mostly are: of different bounds, all there, and none with
/// counts that fall or nearly do. `told` says of which steps that holds; the others' are [`quantile`]'s to tell.
pub(in crate::promql) fn quantiles(
    qs: &[f64],
    buckets: &[(f64, &[f64])],
    out: &mut [f64],
    told: &mut [bool],
) {
    let Some(((f64::INFINITY, _), below)) = buckets.split_last() else { return };
    let ascend = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if below.is_empty() || !ascend || buckets.iter().any(|(_, counts)| counts.len() != out.len()) {
        return;
    }
    let mut together = Together::default();
    let pieces = out.chunks_mut(TOGETHER).zip(told.chunks_mut(TOGETHER)).zip(qs.chunks(TOGETHER));
    for (number, ((out, told), qs)) in pieces.enumerate() {
        let from = number * TOGETHER;
        let steps = from..from + out.len();
        simd_dispatch!(together.find(qs, buckets, steps.clone()));
        let found = together.rank.iter().zip(&together.lesser).zip(&together.ordinary);
        for (step, ((rank, lesser), ordinary)) in steps.zip(found) {
            if *ordinary == 0 {
                continue;
            }
            let bucket = |number: usize| {
                let (le, counts) = buckets[number];
                Bucket { le, count: counts[step] }
            };
            // No more than there are buckets.
            let place = usize::try_from(*lesser).unwrap_or(below.len());
            out[step - from] = inside(*rank, place, below.len(), bucket);
            told[step - from] = true;
        }
    }
}

/// Steps that are looked at together.
const TOGETHER: usize = 32;

/// What is found of so many steps.
#[derive(Default)]
struct Together {
    rank: [f64; TOGETHER],
    /// How many buckets have counts below the rank.
    lesser: [u64; TOGETHER],
    /// All bits where nothing is out of the ordinary, none otherwise.
    ordinary: [u64; TOGETHER],
}

impl Together {
    #[inline(always)]
    fn find(&mut self, qs: &[f64], buckets: &[(f64, &[f64])], steps: Range<usize>) {
        let counts_of = |bucket: Option<&(f64, &[f64])>| {
            let mut wanted = [0.0; TOGETHER];
            if let Some(counts) = bucket.and_then(|(_, counts)| counts.get(steps.clone())) {
                wanted[..counts.len()].copy_from_slice(counts);
            }
            wanted
        };
        let mask = |is: bool| if is { u64::MAX } else { 0 };
        let (mut before, totals) = (counts_of(buckets.first()), counts_of(buckets.last()));
        let places = self.rank.iter_mut().zip(&mut self.ordinary).zip(&mut self.lesser);
        for (((rank, ordinary), lesser), ((q, total), first)) in
            places.zip(qs.iter().zip(&totals).zip(&before))
        {
            *rank = q * total;
            let is_some = (*total > 0.0) & (*total < f64::INFINITY) & !first.is_nan();
            *ordinary = mask(is_some & (*q >= 0.0) & (*q <= 1.0));
            *lesser = 0;
        }
        // All observations together are no fewer than the rank.
        for bucket in buckets {
            let counts = counts_of(Some(bucket));
            let places = self.rank.iter().zip(&mut self.ordinary).zip(&mut self.lesser);
            for (((rank, ordinary), lesser), (count, before)) in places.zip(counts.iter().zip(&before)) {
                *lesser += u64::from(count < rank);
                *ordinary &= mask(exceeds(*count, *before) | (count.to_bits() == before.to_bits()));
            }
            before = counts;
        }
    }
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

        /// What is told of many steps at once is what each alone comes to, to the bit, and nothing had to be lifted.
        #[test]
        fn quantiles_of_many_steps_are_what_each_comes_to(
            (bounds, steps) in (prop::collection::vec(-3i32..20, 1..6), 1usize..70),
            seed in prop::collection::vec((count(), 0u8..8), 1..40),
            qs in prop::collection::vec(prop_oneof![3 => 0.0..1.0f64, 1 => prop::sample::select(vec![0.0, 1.0, -1.0, 2.0, f64::NAN])], 1..9),
            is_open in prop::bool::weighted(0.9),
        ) {
            let mut bounds: Vec<f64> = bounds.into_iter().map(f64::from).collect();
            bounds.sort_by(f64::total_cmp);
            if is_open {
                bounds.push(INF);
            }
            // Mostly counts that rise, some that stay, fall or nearly do, some that are anything.
            let mut rows = vec![Vec::new(); bounds.len()];
            for step in 0..steps {
                let mut sofar = 0.0_f64;
                for (number, row) in rows.iter_mut().enumerate() {
                    let (any, kind) = seed[(step * 7 + number * 3) % seed.len()];
                    sofar = match kind {
                        0 if step % 3 == 0 => any,
                        1 => sofar,
                        2 if step % 2 == 0 => sofar * (1.0 - 1e-13),
                        _ => sofar + f64::from(kind),
                    };
                    row.push(sofar);
                }
            }
            let qs: Vec<f64> = (0..steps).map(|step| qs[step % qs.len()]).collect();
            let buckets: Vec<(f64, &[f64])> = bounds.iter().copied().zip(rows.iter().map(Vec::as_slice)).collect();
            let (mut out, mut told) = (vec![0.0; steps], vec![false; steps]);
            quantiles(&qs, &buckets, &mut out, &mut told);
            for step in (0..steps).filter(|step| told[*step]) {
                let mut alone: Vec<Bucket> = buckets.iter().map(|(le, counts)| Bucket { le: *le, count: counts[step] }).collect();
                let (value, lifted) = quantile(qs[step], &mut alone);
                prop_assert_eq!((out[step].to_bits(), lifted), (value.to_bits(), None), "step {} of {:?}", step, &buckets);
            }
        }
    }

    #[test]
    fn ordinary_buckets_are_told_together_and_no_others() {
        let rows = [[1.0, 1.0, 5.0, 0.0, f64::NAN], [4.0, 1.0, 3.0, 0.0, 2.0], [4.0, 9.0, 6.0, 0.0, 2.0]];
        let buckets = |bounds: [f64; 3]| -> Vec<(f64, &[f64])> {
            bounds.into_iter().zip(rows.iter().map(<[f64; 5]>::as_slice)).collect()
        };
        let told_of = |bounds, q| {
            let mut told = [false; 5];
            quantiles(&[q; 5], &buckets(bounds), &mut [0.0; 5], &mut told);
            told
        };
        assert_eq!(told_of([1.0, 2.0, INF], 0.5), [true, true, false, false, false]);
        for (bounds, q) in [([1.0, 1.0, INF], 0.5), ([1.0, 2.0, 3.0], 0.5), ([1.0, 2.0, INF], 1.5)] {
            assert_eq!(told_of(bounds, q), [false; 5], "{bounds:?} {q}");
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
