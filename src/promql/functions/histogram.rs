//! Quantiles and fractions of classic histograms, whose counts are cumulative (Prometheus,
//! `promql/quantile.go`).

use std::ops::Range;

use crate::simd::simd_dispatch;

/// A bucket: the number of observations of at most `le`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::promql) struct ClassicBucket {
    pub(in crate::promql) le: f64,
    pub(in crate::promql) count: f64,
}

/// The correction of counts that decreased from one bucket to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::promql) struct MonotonicFix {
    /// The lowest bound of a corrected bucket.
    pub(in crate::promql) lowest: f64,
    /// The highest bound of a corrected bucket.
    pub(in crate::promql) highest: f64,
    /// The greatest increase of a count.
    pub(in crate::promql) max_difference: f64,
}

/// The relative difference below which two counts differ only by rounding, as in Prometheus.
const ROUNDING_TOLERANCE: f64 = 1e-12;

/// Returns the `q`-quantile of buckets sorted by bound. Merges equal bounds and makes counts
/// monotonic in place; reports corrections beyond rounding.
pub(in crate::promql) fn quantile(q: f64, buckets: &mut Vec<ClassicBucket>) -> (f64, Option<MonotonicFix>) {
    if q.is_nan() {
        return (f64::NAN, None);
    }
    if q < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if q > 1.0 {
        return (f64::INFINITY, None);
    }
    let (total, fix) = match prepare(buckets) {
        Some(prepared) => prepared,
        None => return (f64::NAN, None),
    };
    let last = buckets.len() - 1;
    if last == 0 || total == 0.0 || total.is_nan() {
        return (f64::NAN, fix);
    }
    let rank = q * total;
    let index = buckets[..last].iter().position(|bucket| bucket.count >= rank).unwrap_or(last);
    (interpolate(rank, index, last, |i| buckets[i]), fix)
}

/// Returns the interpolated value of the observation of `rank`, which is in the bucket `index`. The
/// bucket `last` has the bound `+Inf`.
#[inline]
fn interpolate(rank: f64, index: usize, last: usize, bucket: impl Fn(usize) -> ClassicBucket) -> f64 {
    if index == last {
        return bucket(last - 1).le;
    }
    let ClassicBucket { le: end, count } = bucket(index);
    if index == 0 {
        return if end <= 0.0 { end } else { end * (rank / count) };
    }
    let before = bucket(index - 1);
    before.le + (end - before.le) * ((rank - before.count) / (count - before.count))
}

/// Computes the quantiles of many steps at once. `done[step]` is set for each step whose buckets
/// are regular: all present, with different bounds, and each count equal to its predecessor or
/// above it by more than the rounding tolerance. The caller computes the other steps with
/// [`quantile`].
///
/// `buckets` has the bound and the counts of all steps for each bucket, ascending by bound.
pub(in crate::promql) fn quantiles(
    qs: &[f64],
    buckets: &[(f64, &[f64])],
    out: &mut [f64],
    done: &mut [bool],
) {
    let Some(((f64::INFINITY, _), below)) = buckets.split_last() else { return };
    let ascend = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if below.is_empty() || !ascend || buckets.iter().any(|(_, counts)| counts.len() != out.len()) {
        return;
    }
    let mut block = StepBlock::default();
    let blocks = out.chunks_mut(BLOCK_STEPS).zip(done.chunks_mut(BLOCK_STEPS)).zip(qs.chunks(BLOCK_STEPS));
    for (number, ((out, done), qs)) in blocks.enumerate() {
        let from = number * BLOCK_STEPS;
        let steps = from..from + out.len();
        simd_dispatch!(block.rank_steps(qs, buckets, steps.clone()));
        let results = block.rank.iter().zip(&block.below_rank).zip(&block.regular);
        for (step, ((rank, below_rank), regular)) in steps.zip(results) {
            if *regular == 0 {
                continue;
            }
            let bucket = |i: usize| {
                let (le, counts) = buckets[i];
                ClassicBucket { le, count: counts[step] }
            };
            // `below_rank` never exceeds the number of buckets, so the conversion succeeds.
            let index = usize::try_from(*below_rank).unwrap_or(below.len());
            out[step - from] = interpolate(*rank, index, below.len(), bucket);
            done[step - from] = true;
        }
    }
}

/// The number of steps that are computed at once.
const BLOCK_STEPS: usize = 32;

/// The intermediate results of [`BLOCK_STEPS`] steps.
#[derive(Default)]
struct StepBlock {
    rank: [f64; BLOCK_STEPS],
    /// The number of buckets whose counts are below the rank.
    below_rank: [u64; BLOCK_STEPS],
    /// All bits set if the buckets of the step are regular, 0 otherwise.
    regular: [u64; BLOCK_STEPS],
}

impl StepBlock {
    /// Computes the rank of each step, the number of buckets below it, and whether the buckets are
    /// regular.
    #[inline(always)]
    fn rank_steps(&mut self, qs: &[f64], buckets: &[(f64, &[f64])], steps: Range<usize>) {
        let counts_of = |bucket: Option<&(f64, &[f64])>| {
            let mut block = [0.0; BLOCK_STEPS];
            if let Some(counts) = bucket.and_then(|(_, counts)| counts.get(steps.clone())) {
                block[..counts.len()].copy_from_slice(counts);
            }
            block
        };
        let mask = |is: bool| if is { u64::MAX } else { 0 };
        let (mut before, totals) = (counts_of(buckets.first()), counts_of(buckets.last()));
        let steps_out = self.rank.iter_mut().zip(&mut self.regular).zip(&mut self.below_rank);
        for (((rank, regular), below_rank), ((q, total), first)) in
            steps_out.zip(qs.iter().zip(&totals).zip(&before))
        {
            *rank = q * total;
            let has_observations = (*total > 0.0) & (*total < f64::INFINITY) & !first.is_nan();
            *regular = mask(has_observations & (*q >= 0.0) & (*q <= 1.0));
            *below_rank = 0;
        }
        // The count of the last bucket is the total, which is never below the rank.
        for bucket in buckets {
            let counts = counts_of(Some(bucket));
            let steps_out = self.rank.iter().zip(&mut self.regular).zip(&mut self.below_rank);
            for (((rank, regular), below_rank), (count, before)) in steps_out.zip(counts.iter().zip(&before))
            {
                *below_rank += u64::from(count < rank);
                *regular &= mask(exceeds(*count, *before) | (count.to_bits() == before.to_bits()));
            }
            before = counts;
        }
    }
}

/// Returns the fraction of observations between `lower` and `upper`. Decreasing counts are not
/// corrected, unlike in [`quantile`]; Prometheus does the same.
pub(in crate::promql) fn fraction(lower: f64, upper: f64, buckets: &mut Vec<ClassicBucket>) -> f64 {
    let Some(total) = merge_equal_bounds(buckets) else { return f64::NAN };
    if total == 0.0 || total.is_nan() || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    let between = rank_at(upper, buckets, total, Edge::Upper) - rank_at(lower, buckets, total, Edge::Lower);
    between / total
}

/// The end of the interval whose rank is computed.
#[derive(Clone, Copy, PartialEq)]
enum Edge {
    Lower,
    Upper,
}

/// Returns the estimated number of observations of at most `value`.
fn rank_at(value: f64, buckets: &[ClassicBucket], total: f64, edge: Edge) -> f64 {
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
                // No interpolation is possible in a bucket without a lower bound: the interval
                // excludes a bucket that it covers only in part.
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

/// Merges equal bounds, makes counts monotonic, and returns the total count. Returns `None` if the
/// last bound is not `+Inf`.
fn prepare(buckets: &mut Vec<ClassicBucket>) -> Option<(f64, Option<MonotonicFix>)> {
    merge_equal_bounds(buckets)?;
    let fix = make_monotonic(buckets);
    buckets.last().map(|last| (last.count, fix))
}

/// Merges buckets of equal bounds and returns the count of the last one. Returns `None` if its
/// bound is not `+Inf`.
fn merge_equal_bounds(buckets: &mut Vec<ClassicBucket>) -> Option<f64> {
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

/// Raises counts that are below their predecessor, and reports those that differ by more than
/// rounding.
fn make_monotonic(buckets: &mut [ClassicBucket]) -> Option<MonotonicFix> {
    let mut total_fix: Option<MonotonicFix> = None;
    let mut before = buckets.first()?.count;
    for bucket in &mut buckets[1..] {
        if exceeds(bucket.count, before) {
            before = bucket.count;
        } else if almost_equal(before, bucket.count) {
            bucket.count = before;
        } else if bucket.count < before {
            let difference = before - bucket.count;
            let fix = total_fix.get_or_insert(MonotonicFix {
                lowest: bucket.le,
                highest: bucket.le,
                max_difference: 0.0,
            });
            fix.lowest = fix.lowest.min(bucket.le);
            fix.highest = fix.highest.max(bucket.le);
            fix.max_difference = fix.max_difference.max(difference);
            bucket.count = before;
        } else {
            before = bucket.count;
        }
    }
    total_fix
}

/// Returns whether `count` is certainly above `before` and not almost equal to it. Most counts are,
/// and this test needs no division.
#[inline]
fn exceeds(count: f64, before: f64) -> bool {
    let sum = before.abs() + count.abs();
    (count - before > sum * (ROUNDING_TOLERANCE * 2.0)) & (sum >= f64::MIN_POSITIVE)
}

/// Returns whether two counts differ only by rounding, as `almost.Equal` of Prometheus does.
fn almost_equal(a: f64, b: f64) -> bool {
    if a == b {
        return true;
    }
    let (sum, difference) = (a.abs() + b.abs(), (a - b).abs());
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < ROUNDING_TOLERANCE * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < ROUNDING_TOLERANCE
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
        fn a_count_that_exceeds_is_greater_and_not_almost_equal(before in count(), other in count(), near in -3e-12..3e-12f64) {
            for count in [other, before + before * near] {
                let more = count > before && !almost_equal(before, count);
                prop_assert!(more || !exceeds(count, before), "{before} {count}");
            }
        }

        /// Covers the steps that are computed at once, none of which needs a correction of counts.
        #[test]
        fn quantiles_of_many_steps_equal_those_of_single_steps_to_the_bit(
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
            // Most counts increase; some stay, decrease slightly, or are arbitrary.
            let mut rows = vec![Vec::new(); bounds.len()];
            for step in 0..steps {
                let mut count = 0.0_f64;
                for (number, row) in rows.iter_mut().enumerate() {
                    let (any, kind) = seed[(step * 7 + number * 3) % seed.len()];
                    count = match kind {
                        0 if step % 3 == 0 => any,
                        1 => count,
                        2 if step % 2 == 0 => count * (1.0 - 1e-13),
                        _ => count + f64::from(kind),
                    };
                    row.push(count);
                }
            }
            let qs: Vec<f64> = (0..steps).map(|step| qs[step % qs.len()]).collect();
            let buckets: Vec<(f64, &[f64])> = bounds.iter().copied().zip(rows.iter().map(Vec::as_slice)).collect();
            let (mut out, mut done) = (vec![0.0; steps], vec![false; steps]);
            quantiles(&qs, &buckets, &mut out, &mut done);
            for step in (0..steps).filter(|step| done[*step]) {
                let mut single: Vec<ClassicBucket> = buckets.iter().map(|(le, counts)| ClassicBucket { le: *le, count: counts[step] }).collect();
                let (value, fix) = quantile(qs[step], &mut single);
                prop_assert_eq!((out[step].to_bits(), fix), (value.to_bits(), None), "step {} of {:?}", step, &buckets);
            }
        }
    }

    #[test]
    fn only_steps_with_regular_buckets_are_computed_at_once() {
        let rows = [[1.0, 1.0, 5.0, 0.0, f64::NAN], [4.0, 1.0, 3.0, 0.0, 2.0], [4.0, 9.0, 6.0, 0.0, 2.0]];
        let buckets = |bounds: [f64; 3]| -> Vec<(f64, &[f64])> {
            bounds.into_iter().zip(rows.iter().map(<[f64; 5]>::as_slice)).collect()
        };
        let done_of = |bounds, q| {
            let mut done = [false; 5];
            quantiles(&[q; 5], &buckets(bounds), &mut [0.0; 5], &mut done);
            done
        };
        assert_eq!(done_of([1.0, 2.0, INF], 0.5), [true, true, false, false, false]);
        for (bounds, q) in [([1.0, 1.0, INF], 0.5), ([1.0, 2.0, 3.0], 0.5), ([1.0, 2.0, INF], 1.5)] {
            assert_eq!(done_of(bounds, q), [false; 5], "{bounds:?} {q}");
        }
    }

    const INF: f64 = f64::INFINITY;

    type Case = (f64, &'static [(f64, f64)], f64);

    fn buckets(pairs: &[(f64, f64)]) -> Vec<ClassicBucket> {
        pairs.iter().map(|(le, count)| ClassicBucket { le: *le, count: *count }).collect()
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
    fn decreasing_counts_are_corrected_and_reported() {
        let (_, fix) = quantile(0.5, &mut buckets(&[(1.0, 5.0), (2.0, 3.0), (f64::INFINITY, 6.0)]));
        assert_eq!(fix, Some(MonotonicFix { lowest: 2.0, highest: 2.0, max_difference: 2.0 }));
        let (_, fix) = quantile(0.5, &mut buckets(&[(1.0, 5.0), (2.0, 5.0 - 1e-13), (f64::INFINITY, 6.0)]));
        assert_eq!(fix, None, "rounding is not reported");
    }

    #[test]
    fn a_fraction_counts_the_observations_between_its_bounds() {
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
