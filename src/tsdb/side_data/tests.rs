//! Tests of histograms and the side table against a simple model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::histograms::{Histograms, PutHistogram};
use super::*;
use crate::model::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, CounterReset, Histogram, HistogramCounts, HistogramShape,
};

fn spans(pairs: &[(i32, u32)]) -> Vec<BucketSpan> {
    pairs.iter().map(|(offset, length)| BucketSpan { offset: *offset, length: *length }).collect()
}

/// An integer histogram with exponential buckets.
#[expect(clippy::too_many_arguments, reason = "a histogram has so many parts")]
pub(in crate::tsdb) fn exponential(
    schema: i32,
    zero_threshold: f64,
    positive: &[(i32, u32)],
    negative: &[(i32, u32)],
    sum: f64,
    zero: u64,
    buckets: &[u64],
) -> Histogram {
    let shape = HistogramShape::new(schema, zero_threshold, Vec::new(), spans(positive), spans(negative));
    let count = zero + buckets.iter().sum::<u64>();
    let counts = HistogramCounts::Integer { count, zero, buckets: buckets.to_vec() };
    Histogram::new(Arc::new(shape.expect("valid")), CounterReset::Unknown, sum, counts).expect("valid")
}

/// Histograms of few shapes, so that neighbours often share one, with counts of any size.
pub(in crate::tsdb) fn any_histogram() -> impl Strategy<Value = Histogram> {
    let shape = (0usize..4).prop_map(|which| {
        let of = |schema, zero, custom: &[f64], positive: &[(i32, u32)], negative: &[(i32, u32)]| {
            let shape = HistogramShape::new(schema, zero, custom.to_vec(), spans(positive), spans(negative));
            Arc::new(shape.expect("valid"))
        };
        match which {
            0 => of(3, 0.001, &[], &[(-2, 3), (0, 0), (4, 2)], &[(1, 1)]),
            1 => of(-4, f64::NAN, &[], &[], &[(-9, 2)]),
            2 => of(CUSTOM_BUCKETS_SCHEMA, 0.0, &[-0.5, 1.0, 7.5], &[(1, 3)], &[]),
            _ => of(8, 0.0, &[], &[], &[]),
        }
    });
    let count = prop_oneof![0u64..40, any::<u64>()];
    let counts = prop::collection::vec(count, 9);
    (shape, any::<bool>(), 0u8..4, any::<f64>(), counts).prop_map(|(shape, float, reset, sum, counts)| {
        let custom = shape.is_custom();
        let zero = if custom { 0 } else { counts[0] };
        let buckets = &counts[1..=shape.buckets()];
        let (sum, counts) = if float {
            let of = |bits: u64| f64::from_bits(bits & !(1 << 63));
            let buckets = buckets.iter().map(|bits| of(*bits)).collect();
            (sum, HistogramCounts::Float { count: of(counts[8]), zero: of(zero), buckets })
        } else {
            let count = buckets.iter().fold(zero, |all, bucket| all.saturating_add(*bucket));
            (sum, HistogramCounts::Integer { count, zero, buckets: buckets.to_vec() })
        };
        let reset = CounterReset::from_number(reset).expect("below 4");
        Histogram::new(shape, reset, sum, counts).expect("valid")
    })
}

/// The rules in their simplest form.
#[derive(Default)]
struct HistogramModel {
    in_order: BTreeSet<i64>,
    samples: BTreeMap<i64, Histogram>,
}

impl HistogramModel {
    fn put(&mut self, at: i64, histogram: Histogram, barrier: i64) -> PutHistogram {
        let last = self.in_order.last().copied();
        if at >= barrier && last == Some(at) && self.samples.get(&at) != Some(&histogram) {
            return PutHistogram::Refused;
        }
        if at >= barrier && last.is_none_or(|last| at > last) {
            self.in_order.insert(at);
        }
        self.samples.insert(at, histogram);
        PutHistogram::Stored
    }
}

fn read(histograms: &Histograms, start: i64, end: i64) -> Vec<(i64, Histogram)> {
    let mut out = HistogramColumns::default();
    histograms.read(start, end, &mut out);
    out.times.into_iter().zip(out.histograms).collect()
}

fn reloaded(histograms: &Histograms) -> Histograms {
    let mut again = Histograms::default();
    histograms.copy_chunks(|late, rows, bytes| again.load_chunk(late, rows, bytes, i64::MIN).expect("loads"));
    again
}

proptest! {
    #[test]
    fn a_series_equals_a_map_after_any_appends_and_seals(
        steps in prop::collection::vec((0u8..20, -40i64..40, any_histogram()), 1..200),
        ends in (-40i64..300, -40i64..300),
    ) {
        let mut histograms = Histograms::default();
        let mut model = HistogramModel::default();
        let (mut barrier, mut sealing) = (i64::MIN, false);
        // The content of the segments.
        let mut sealed: BTreeMap<i64, Histogram> = BTreeMap::new();
        for (place, (step, at, histogram)) in steps.into_iter().enumerate() {
            let now = place as i64;
            match step {
                0 if !sealing => {
                    barrier = barrier.max(now + at);
                    histograms.freeze();
                    sealing = true;
                }
                1 if sealing => {
                    let mut out = HistogramColumns::default();
                    histograms.copy_closed(barrier, barrier, &mut out);
                    prop_assert!(out.times.is_sorted_by(|a, b| a < b) && out.times.iter().all(|t| *t < barrier));
                    // A late histogram that arrived since is newer than the one that the seal
                    // takes.
                    sealed.extend(out.times.into_iter().zip(out.histograms));
                    histograms.release(barrier, barrier);
                    sealing = false;
                }
                2 if sealing => {
                    histograms.thaw();
                    sealing = false;
                }
                3 if !sealing && barrier == i64::MIN => histograms = reloaded(&histograms),
                4 => {
                    let (from, to) = (now + at, now + at + 5);
                    histograms.delete(from, to);
                    sealed.retain(|t, _| !(from..=to).contains(t));
                    model.samples.retain(|t, _| !(from..=to).contains(t));
                    model.in_order.retain(|t| !(from..=to).contains(t));
                }
                _ => {
                    // Mostly ascending times.
                    let at = if at > 0 { now } else { now + at };
                    let expected = model.put(at, histogram.clone(), barrier);
                    prop_assert_eq!(histograms.put(at, histogram, barrier), expected);
                }
            }
            let mut all = sealed.clone();
            all.extend(read(&histograms, i64::MIN, i64::MAX));
            prop_assert_eq!(&all, &model.samples);
            prop_assert_eq!((histograms.counts(), histograms.memory()), histograms.recounted());
        }
        let within: Vec<_> = read(&histograms, i64::MIN, i64::MAX).into_iter().filter(|(t, _)| ends.0 <= *t && *t <= ends.1).collect();
        prop_assert_eq!(read(&histograms, ends.0, ends.1), within);
        let times: Vec<i64> = read(&histograms, i64::MIN, i64::MAX).into_iter().map(|(t, _)| t).collect();
        prop_assert_eq!(histograms.span(), times.first().copied().zip(times.last().copied()));
    }
}

#[test]
fn a_chunk_out_of_order_is_damage() {
    let histogram = exponential(0, 0.0, &[(0, 1)], &[], 1.0, 0, &[1]);
    let chunk = histogram_chunk::HistogramEncoder::new(5, &histogram).into_bytes();
    let mut histograms = Histograms::default();
    assert_eq!(histograms.load_chunk(false, 1, &chunk, i64::MIN), Ok(()));
    assert!(histograms.load_chunk(false, 1, &chunk, i64::MIN).is_err());
    assert!(Histograms::default().load_chunk(false, 2, &chunk, i64::MIN).is_err());
    assert_eq!(histograms.load_chunk(true, 1, &chunk, i64::MIN), Ok(()));
}
