//! Properties of the arithmetic, on histograms with integer counts, whose sums are exact.

use std::sync::Arc;

use proptest::prelude::*;

use super::cells::{BucketSlot, Cells};
use super::*;

const INF: f64 = f64::INFINITY;

fn slots_of(buckets: &[(i32, f64)]) -> Vec<BucketSlot<f64>> {
    buckets.iter().map(|(index, cell)| BucketSlot { index: *index, cell: *cell }).collect()
}

/// Returns an exponential histogram whose count is the sum of its buckets.
fn exponential(
    schema: i32,
    (threshold, zero): (f64, f64),
    positive: &[(i32, f64)],
    negative: &[(i32, f64)],
) -> FloatHistogram {
    let count = positive.iter().chain(negative).fold(zero, |all, (_, count)| all + count);
    let cells = Cells {
        schema,
        threshold,
        bounds: Arc::from([]),
        count,
        sum: count * 2.0,
        zero,
        positive: slots_of(positive),
        negative: slots_of(negative),
    };
    FloatHistogram { reset: CounterReset::Unknown, cells }
}

fn custom(bounds: &[f64], counts: &[f64]) -> FloatHistogram {
    let buckets: Vec<(i32, f64)> = (0..).zip(counts.iter().copied()).collect();
    let mut histogram = exponential(CUSTOM_BUCKETS_SCHEMA, (0.0, 0.0), &buckets, &[]);
    histogram.cells.bounds = bounds.into();
    histogram
}

/// Returns the number of observations in all buckets, the zero bucket included.
fn total(histogram: &FloatHistogram) -> f64 {
    histogram.buckets().map(|bucket| bucket.count).sum()
}

fn plus(a: &FloatHistogram, b: &FloatHistogram) -> FloatHistogram {
    a.plus(b).expect("compatible").histogram.compacted()
}

#[test]
fn a_stored_histogram_keeps_its_buckets() {
    let spans = |spans: &[(i32, u32)]| {
        spans
            .iter()
            .map(|(offset, length)| crate::model::BucketSpan { offset: *offset, length: *length })
            .collect::<Vec<_>>()
    };
    let shape = HistogramShape::new(2, 0.25, vec![], spans(&[(-2, 2), (3, 1)]), spans(&[(1, 1)]));
    let shape = Arc::new(shape.expect("valid"));
    let counts = HistogramCounts::Integer { count: 15, zero: 5, buckets: vec![1, 2, 3, 4] };
    let stored = Histogram::new(shape, CounterReset::Gauge, 7.5, counts).expect("valid");
    let read = FloatHistogram::from(&stored);
    let expected = exponential(2, (0.25, 5.0), &[(-2, 1.0), (-1, 2.0), (3, 3.0)], &[(1, 4.0)]);
    assert_eq!(read.positive().collect::<Vec<_>>(), expected.positive().collect::<Vec<_>>());
    assert_eq!(read.negative().collect::<Vec<_>>(), expected.negative().collect::<Vec<_>>());
    assert_eq!((read.count(), read.sum(), read.zero_count()), (15.0, 7.5, 5.0));
    assert_eq!(read.reset(), CounterReset::Gauge);
}

#[test]
fn buckets_are_shown_in_order_with_the_bounds_they_hold() {
    let histogram = exponential(0, (0.5, 3.0), &[(1, 1.0), (2, 0.0)], &[(0, 4.0), (1, 2.0)]);
    let shown: Vec<_> = histogram
        .buckets()
        .map(|b| (b.lower, b.upper, b.lower_inclusive, b.upper_inclusive, b.count))
        .collect();
    let expected = [
        (-2.0, -1.0, true, false, 2.0),
        (-1.0, -0.5, true, false, 4.0),
        (-0.5, 0.5, true, true, 3.0),
        (1.0, 2.0, false, true, 1.0),
        (2.0, 4.0, false, true, 0.0),
    ];
    assert_eq!(shown, expected);
    let text = "{count:10, sum:20, [-2,-1):2, [-1,-0.5):4, [-0.5,0.5]:3, (1,2]:1}";
    assert_eq!(histogram.to_string(), text);
    let text = custom(&[-1.0, 2.5], &[1.0, 2.0, 3.0]).to_string();
    assert_eq!(text, "{count:6, sum:12, [-Inf,-1]:1, (-1,2.5]:2, (2.5,+Inf]:3}");
}

#[test]
fn a_zero_bucket_is_shown_only_if_its_count_is_positive() {
    // The iterator of Prometheus skips only the zero bucket if its count is negative, which a
    // negated histogram has.
    for (zero, shown) in [(2.0, 2), (0.0, 1), (-2.0, 1)] {
        assert_eq!(exponential(0, (0.5, zero), &[(1, 1.0)], &[]).buckets().count(), shown, "{zero}");
    }
}

#[test]
fn a_zero_bucket_grows_until_it_divides_no_bucket() {
    // A threshold of 3 would divide the bucket (2,4], so it becomes 4.
    let narrow = exponential(0, (0.5, 1.0), &[(1, 10.0), (2, 20.0), (3, 40.0)], &[(1, 5.0)]);
    let wide = exponential(0, (3.0, 100.0), &[(3, 7.0)], &[]);
    let sum = plus(&narrow, &wide);
    assert_eq!(sum.zero_threshold(), 4.0);
    assert_eq!(sum.zero_count(), 136.0);
    assert_eq!(sum.positive().collect::<Vec<_>>(), [(3, 47.0)]);
    // An empty bucket may be divided.
    let hollow = exponential(0, (0.5, 1.0), &[(2, 0.0), (3, 1.0)], &[]);
    assert_eq!(plus(&hollow, &wide).zero_threshold(), 3.0);
}

#[test]
fn reset_hints_are_combined() {
    use CounterReset::{Gauge, NotReset, Reset, Unknown};
    let one = exponential(0, (0.0, 1.0), &[], &[]);
    let cases = [
        (Unknown, Unknown, Unknown, false),
        (Reset, Reset, Reset, false),
        (Reset, NotReset, Unknown, true),
        (NotReset, Unknown, Unknown, false),
        (Gauge, Reset, Gauge, false),
        (Unknown, Gauge, Gauge, false),
    ];
    for (a, b, joined, conflict) in cases {
        for (a, b) in [(a, b), (b, a)] {
            let added = one.clone().with_reset(a).plus(&one.clone().with_reset(b)).expect("compatible");
            assert_eq!((added.histogram.reset(), added.resets_conflict), (joined, conflict), "{a:?} {b:?}");
            let taken = one.clone().with_reset(a).minus(&one.clone().with_reset(b)).expect("compatible");
            assert_eq!(taken.histogram.reset(), Gauge);
        }
    }
    assert_eq!(one.times(-1.0).reset(), Gauge);
    assert_eq!(one.divided(-2.0).reset(), Gauge);
    assert_eq!(one.times(3.0).reset(), Unknown);
}

#[test]
fn exponential_and_custom_buckets_cannot_be_added() {
    let (a, b) = (exponential(0, (0.0, 1.0), &[], &[]), custom(&[1.0], &[1.0]));
    assert!(a.plus(&b).is_err() && b.minus(&a).is_err());
    assert!(HistogramSum::of(&a).add(&b).is_err());
    assert!(a.is_reset_since(&b));
}

#[test]
fn adding_different_custom_bounds_keeps_the_common_ones() {
    let (a, b) = (custom(&[1.0, 2.0, 4.0], &[1.0, 2.0, 3.0, 4.0]), custom(&[2.0, 3.0], &[10.0, 20.0, 30.0]));
    for (a, b) in [(&a, &b), (&b, &a)] {
        let added = a.plus(b).expect("compatible");
        assert!(added.reconciled);
        assert_eq!(added.histogram.custom_values(), [2.0]);
        assert_eq!(added.histogram.positive().collect::<Vec<_>>(), [(0, 13.0), (1, 57.0)]);
    }
    assert!(!a.plus(&a).expect("compatible").reconciled);
}

#[test]
fn any_lost_count_is_a_reset() {
    let before = exponential(1, (0.5, 2.0), &[(3, 5.0), (4, 1.0)], &[(2, 1.0)]);
    let more = exponential(1, (0.5, 3.0), &[(3, 5.0), (4, 2.0), (9, 1.0)], &[(2, 1.0)]);
    assert!(!more.is_reset_since(&before));
    let worse = [
        ("fewer in total", exponential(1, (0.5, 1.0), &[(3, 5.0)], &[])),
        ("fewer in the zero bucket", exponential(1, (0.5, 1.0), &[(3, 5.0), (4, 9.0)], &[(2, 1.0)])),
        ("a missing bucket", exponential(1, (0.5, 9.0), &[(3, 5.0)], &[(2, 1.0)])),
        ("a finer schema", exponential(2, (0.5, 99.0), &[], &[])),
        ("a narrower zero bucket", exponential(1, (0.25, 9.0), &[(3, 5.0), (4, 1.0)], &[(2, 1.0)])),
        ("a zero bucket that divides a bucket", exponential(1, (2.5, 99.0), &[(9, 5.0)], &[])),
    ];
    for (what, worse) in worse {
        assert!(worse.is_reset_since(&before), "{what}");
        assert!(!worse.clone().with_reset(CounterReset::NotReset).is_reset_since(&before), "{what}");
    }
    assert!(more.with_reset(CounterReset::Reset).is_reset_since(&before));
    let bounds = custom(&[1.0, 2.0], &[1.0, 1.0, 1.0]);
    assert!(!custom(&[1.0, 1.5, 2.0], &[1.0, 1.0, 0.0, 2.0]).is_reset_since(&bounds));
    assert!(custom(&[1.0, 1.5, 2.0], &[1.0, 0.0, 0.0, 9.0]).is_reset_since(&bounds));
}

#[test]
fn quantiles_are_interpolated_by_the_growth_of_their_buckets() {
    let root = std::f64::consts::SQRT_2;
    let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
    let one = exponential(0, (0.0, 0.0), &[(0, 1.0), (1, 2.0), (2, 1.0)], &[]);
    assert!(close(one.quantile(0.5).value, root));
    let zero = exponential(0, (0.5, 4.0), &[(5, 0.0)], &[]);
    assert!(
        close(zero.quantile(0.5).value, 0.25),
        "with positive buckets only, the zero bucket begins at zero"
    );
    assert!(
        close(exponential(0, (0.5, 4.0), &[], &[]).quantile(0.5).value, 0.0),
        "without other buckets, the zero bucket covers both sides"
    );
    let classic = custom(&[5.0, 10.0], &[1.0, 2.0, 1.0]);
    assert!(close(classic.quantile(0.5).value, 7.5));
    assert!(close(classic.quantile(0.125).value, 2.5));
    assert_eq!(classic.quantile(1.0).value, 10.0);
    assert_eq!(custom(&[-5.0, 10.0], &[1.0]).quantile(0.5).value, -5.0);
    for (q, expected) in [(-0.1, -INF), (1.1, INF)] {
        assert_eq!(one.quantile(q).value, expected);
    }
    assert!(one.quantile(f64::NAN).value.is_nan());
    assert!(exponential(0, (0.0, 0.0), &[], &[]).quantile(0.5).value.is_nan());
}

#[test]
fn nan_observations_are_reported() {
    let mut histogram = exponential(0, (0.0, 0.0), &[(1, 4.0)], &[]);
    histogram.cells.count = 8.0;
    histogram.cells.sum = f64::NAN;
    assert!(has_nan_observations(&histogram));
    let low = histogram.quantile(0.25);
    assert!(low.value.is_finite() && low.nan == NanEffect::Skews);
    let high = histogram.quantile(0.75);
    assert!(high.value.is_nan() && high.nan == NanEffect::IsResult);
    assert_eq!(histogram.fraction(-INF, INF), 0.5);
}

#[test]
fn a_division_by_zero_leaves_no_buckets() {
    let none = exponential(0, (0.5, 1.0), &[(1, 2.0)], &[]).divided(0.0);
    assert_eq!((none.count(), none.zero_count(), none.positive().count()), (INF, INF, 0));
}

#[test]
fn a_mean_is_finite_although_the_sum_overflows() {
    let mut huge = exponential(0, (0.0, 0.0), &[], &[]);
    huge.cells.count = f64::MAX;
    let mut mean = HistogramMean::of(&huge);
    for _ in 0..3 {
        mean.add(&huge).expect("compatible");
    }
    assert!((mean.value().count() / f64::MAX - 1.0).abs() < 1e-12);
}

#[test]
fn trimming_recomputes_the_sum_if_it_removes_observations() {
    let classic = custom(&[5.0, 10.0, 15.0, 20.0], &[1.0, 6.0, 4.0, 3.0, 1.0]);
    let whole = classic.trimmed(0.0, TrimSide::Above);
    assert!(whole.equals(&classic), "no observation is below zero");
    let below = classic.trimmed(13.0, TrimSide::Below);
    assert!((below.count() - 9.4).abs() < 1e-12 && (below.sum() - 75.1).abs() < 1e-12);
    let above = classic.trimmed(13.0, TrimSide::Above);
    assert!((above.count() - 5.6).abs() < 1e-12 && (above.sum() - 94.9).abs() < 1e-12);
    assert_eq!(
        classic.trimmed(50.0, TrimSide::Below).count(),
        14.0,
        "observations of the unbounded bucket count as beyond the value"
    );
    assert_eq!(classic.trimmed(-INF, TrimSide::Below).count(), 0.0);
    let around = exponential(0, (0.5, 4.0), &[], &[]);
    assert_eq!(around.trimmed(0.25, TrimSide::Below).zero_count(), 3.0);
    assert_eq!(around.trimmed(0.25, TrimSide::Above).sum(), 0.375);
}

/// Generates indices and counts, ascending, each index once.
fn buckets() -> impl Strategy<Value = Vec<(i32, f64)>> {
    proptest::collection::btree_map(-12i32..24, 0u32..50, 0..8)
        .prop_map(|map| map.into_iter().map(|(index, count)| (index, f64::from(count))).collect())
}

fn exponentials() -> impl Strategy<Value = FloatHistogram> {
    exponentials_over(&[0.0, 0.001, 0.5, 1.0, 3.0])
}

fn exponentials_over(thresholds: &[f64]) -> impl Strategy<Value = FloatHistogram> + use<> {
    let threshold = proptest::sample::select(thresholds.to_vec());
    (-2i32..=4, threshold, 0u32..20, buckets(), buckets()).prop_map(
        |(schema, threshold, zero, mut positive, mut negative)| {
            // Senders leave buckets that the zero bucket covers empty.
            let outside = |(index, _): &(i32, f64)| bounds::upper_bound(schema, &[], index - 1) >= threshold;
            positive.retain(outside);
            negative.retain(outside);
            exponential(schema, (threshold, f64::from(zero)), &positive, &negative)
        },
    )
}

fn customs() -> impl Strategy<Value = FloatHistogram> {
    let bounds = proptest::sample::subsequence(vec![-4.0, -1.0, 0.0, 0.5, 2.0, 8.0, 9.0], 0..=7);
    (bounds, proptest::collection::vec(0u32..50, 8)).prop_map(|(bounds, counts)| {
        let counts: Vec<f64> = counts.into_iter().take(bounds.len() + 1).map(f64::from).collect();
        custom(&bounds, &counts)
    })
}

/// Generates two compatible histograms.
fn pairs() -> impl Strategy<Value = (FloatHistogram, FloatHistogram)> {
    prop_oneof![(exponentials(), exponentials()), (customs(), customs())]
}

/// Generates three compatible histograms with one zero threshold.
fn threes() -> impl Strategy<Value = (FloatHistogram, FloatHistogram, FloatHistogram)> {
    let of = || exponentials_over(&[0.001]);
    prop_oneof![(of(), of(), of()), (customs(), customs(), customs())]
}

fn any() -> impl Strategy<Value = FloatHistogram> {
    prop_oneof![exponentials(), customs()]
}

proptest! {
    #[test]
    fn addition_commutes_and_keeps_every_observation((a, b) in pairs()) {
        let (sum, other) = (plus(&a, &b), plus(&b, &a));
        prop_assert!(sum.equals(&other), "{} and {}", sum, other);
        prop_assert_eq!(sum.count(), a.count() + b.count());
        prop_assert_eq!(total(&sum), total(&a) + total(&b));
    }

    /// Zero thresholds are equal here: otherwise the final threshold depends on the order of the
    /// additions.
    #[test]
    fn addition_is_associative((a, b, c) in threes()) {
        let one = plus(&plus(&a, &b), &c);
        let other = plus(&a, &plus(&b, &c));
        prop_assert!(one.equals(&other), "{} and {}", one, other);
        let mut sum = HistogramSum::of(&a);
        prop_assert!(sum.add(&b).is_ok() && sum.add(&c).is_ok());
        prop_assert!(sum.value().equals(&one));
    }

    #[test]
    fn subtraction_reverses_addition((a, b) in pairs()) {
        let sum = a.plus(&b).expect("compatible").histogram;
        let back = sum.minus(&b).expect("compatible").histogram.compacted();
        prop_assert_eq!(back.count(), a.count());
        prop_assert_eq!(total(&back), total(&a));
        let none = sum.minus(&sum).expect("compatible").histogram.compacted();
        prop_assert_eq!((none.count(), none.sum(), none.buckets().count()), (0.0, 0.0, 0));
    }

    #[test]
    fn growth_is_not_a_reset((a, b) in pairs()) {
        prop_assert!(!a.is_reset_since(&a));
        let sum = plus(&a, &b);
        prop_assert!(!sum.is_reset_since(&a), "{} after {}", sum, a);
        prop_assert_eq!(a.is_reset_since(&sum), a.schema() > sum.schema()
            || a.zero_threshold() < sum.zero_threshold() || a.count() < sum.count()
            || a.is_less_than(&sum));
    }

    #[test]
    fn a_coarser_schema_keeps_the_count_below_each_of_its_bounds(histogram in exponentials(), steps in 0i32..4) {
        let coarse = histogram.clone().reduced(histogram.schema() - steps);
        prop_assert_eq!(total(&coarse), total(&histogram));
        for bucket in coarse.buckets() {
            let below = |histogram: &FloatHistogram| -> f64 {
                histogram.buckets().filter(|b| b.upper <= bucket.upper).map(|b| b.count).sum()
            };
            prop_assert_eq!(below(&coarse), below(&histogram), "below {}", bucket.upper);
        }
    }

    #[test]
    fn quantiles_never_decrease_with_their_rank(histogram in any(), qs in proptest::collection::vec(0.0f64..=1.0, 2..6)) {
        prop_assume!(histogram.count() > 0.0);
        let mut qs = qs;
        qs.sort_by(f64::total_cmp);
        let values: Vec<f64> = qs.iter().map(|q| histogram.quantile(*q).value).collect();
        let slack = |value: f64| value.abs() * 1e-9 + 1e-12;
        for pair in values.windows(2) {
            prop_assert!(pair[0] <= pair[1] + slack(pair[1]), "{values:?} of {qs:?}");
        }
    }

    /// The fraction of observations below the q-quantile is q.
    #[test]
    fn a_fraction_is_the_inverse_of_a_quantile(histogram in exponentials(), q in 0.01f64..0.99) {
        prop_assume!(histogram.count() > 0.0);
        let value = histogram.quantile(q).value;
        let back = histogram.fraction(-INF, value);
        // At the edge of a bucket, and in a bucket with one value, the fraction jumps at the
        // quantile.
        let after = histogram.fraction(-INF, value + value.abs() * 1e-9 + 1e-12);
        prop_assert!(back <= q + 1e-6 && q <= after + 1e-6, "{back} <= {q} <= {after} at {value} in {histogram}");
    }

    /// Empty buckets are removed first: a fraction limits the zero bucket by them, a trim does not.
    #[test]
    fn trimming_on_both_sides_keeps_every_observation(histogram in exponentials(), at in -20.0f64..20.0) {
        let histogram = histogram.compacted();
        let (below, above) = (histogram.trimmed(at, TrimSide::Below), histogram.trimmed(at, TrimSide::Above));
        prop_assert!((below.count() + above.count() - histogram.count()).abs() < 1e-9);
        prop_assert!(below.trimmed(at, TrimSide::Below).count() <= below.count() + 1e-9);
        if histogram.count() > 0.0 {
            let share = histogram.fraction(-INF, at) * histogram.count();
            prop_assert!((share - below.count()).abs() < 1e-6, "{share} and {}", below.count());
        }
    }

    #[test]
    fn a_mean_is_the_sum_divided_by_the_number_of_histograms(all in proptest::collection::vec(exponentials(), 1..5)) {
        let (mut sum, mut mean) = (HistogramSum::of(&all[0]), HistogramMean::of(&all[0]));
        for histogram in &all[1..] {
            prop_assert!(sum.add(histogram).is_ok() && mean.add(histogram).is_ok());
        }
        let shared = sum.value().divided(f64::from(u32::try_from(all.len()).expect("few")));
        prop_assert!(mean.value().equals(&shared));
    }
}
