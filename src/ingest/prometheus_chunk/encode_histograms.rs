//! Encoders of chunks of native histograms.

use std::sync::Arc;

use super::ChunkKind;
use super::bit_writer::{BitWriter, XorState};
use crate::model::{CounterReset, Histogram, HistogramCounts, HistogramShape};

/// The encoder of a histogram chunk, after its first sample.
#[derive(Clone, Debug)]
pub(super) struct HistogramEncoder {
    out: BitWriter,
    shape: Arc<HistogramShape>,
    is_gauge: bool,
    /// Whether the last sample was a staleness marker. Only other markers may follow it.
    is_stale: bool,
    last_ms: i64,
    delta_ms: i64,
    sum: XorState,
    counts: EncodedCounts,
}

/// The state to which the next sample refers, with the counts of the last one.
#[derive(Clone, Debug)]
enum EncodedCounts {
    Integer {
        count: RunningCount,
        zero: RunningCount,
        /// The differences of the buckets to the bucket before.
        buckets: Vec<RunningCount>,
    },
    Float {
        count: XorState,
        zero: XorState,
        buckets: Vec<XorState>,
    },
}

/// A number and its last difference.
#[derive(Clone, Copy, Debug, Default)]
struct RunningCount {
    value: i64,
    delta: i64,
}

impl RunningCount {
    fn new(value: i64) -> RunningCount {
        RunningCount { value, delta: 0 }
    }

    /// Appends the difference of the differences, and moves to the next value.
    fn push(&mut self, value: i64, out: &mut BitWriter) {
        let delta = value.wrapping_sub(self.value);
        out.varbit_int(delta.wrapping_sub(self.delta));
        *self = RunningCount { value, delta };
    }
}

/// Returns the two highest bits of the flags of a chunk, by its first sample.
const fn flags(reset: CounterReset) -> u8 {
    match reset {
        CounterReset::Unknown => 0,
        CounterReset::NotReset => 1 << 6,
        CounterReset::Reset => 2 << 6,
        CounterReset::Gauge => 3 << 6,
    }
}

impl HistogramEncoder {
    pub(super) fn new(at_ms: i64, histogram: &Histogram) -> HistogramEncoder {
        let mut out = BitWriter::default();
        let marker = Histogram::stale();
        // Prometheus leaves the buckets of a marker out.
        let stored = if histogram.is_stale() { &marker } else { histogram };
        let shape = Arc::clone(stored.shape());
        out.byte(flags(histogram.reset()));
        put_shape(&shape, &mut out);
        out.varbit_int(at_ms);
        let sum = histogram.sum().to_bits();
        let counts = match stored.counts() {
            HistogramCounts::Integer { count, zero, buckets } => {
                out.varbit_uint(*count);
                out.varbit_uint(*zero);
                out.bits(sum, 64);
                let buckets = bucket_deltas(&shape, buckets).map(RunningCount::new).collect::<Vec<_>>();
                buckets.iter().for_each(|bucket| out.varbit_int(bucket.value));
                let progress = |value: u64| RunningCount::new(value.cast_signed());
                EncodedCounts::Integer { count: progress(*count), zero: progress(*zero), buckets }
            }
            HistogramCounts::Float { count, zero, buckets } => {
                let mut first = |value: u64| {
                    out.bits(value, 64);
                    XorState::new(value)
                };
                let (count, zero) = (first(count.to_bits()), first(zero.to_bits()));
                first(sum);
                let buckets = buckets.iter().map(|bucket| first(bucket.to_bits())).collect();
                EncodedCounts::Float { count, zero, buckets }
            }
        };
        HistogramEncoder {
            out,
            shape,
            is_gauge: histogram.reset() == CounterReset::Gauge,
            is_stale: histogram.is_stale(),
            last_ms: at_ms,
            delta_ms: 0,
            sum: XorState::new(sum),
            counts,
        }
    }

    /// Returns whether a sample may follow the last one in this chunk.
    fn takes(&self, histogram: &Histogram) -> bool {
        if histogram.is_stale() {
            return true;
        }
        let is_same_kind = matches!(
            (histogram.counts(), &self.counts),
            (HistogramCounts::Integer { .. }, EncodedCounts::Integer { .. })
                | (HistogramCounts::Float { .. }, EncodedCounts::Float { .. })
        );
        let expected = if self.is_gauge { CounterReset::Gauge } else { CounterReset::NotReset };
        let is_same_shape = Arc::ptr_eq(histogram.shape(), &self.shape) || **histogram.shape() == *self.shape;
        !self.is_stale && is_same_kind && histogram.reset() == expected && is_same_shape
    }

    /// Appends a sample, and returns whether it fits into this chunk.
    pub(super) fn push(&mut self, at_ms: i64, histogram: &Histogram) -> bool {
        if !self.takes(histogram) {
            return false;
        }
        let delta_ms = at_ms.wrapping_sub(self.last_ms);
        self.out.varbit_int(delta_ms.wrapping_sub(self.delta_ms));
        (self.last_ms, self.delta_ms) = (at_ms, delta_ms);
        self.is_stale = histogram.is_stale();
        if self.is_stale {
            self.put_marker(histogram.sum())
        } else {
            self.put_counts(histogram)
        }
        true
    }

    fn put_marker(&mut self, sum: f64) {
        match &mut self.counts {
            EncodedCounts::Integer { .. } => (0..2).for_each(|_| self.out.varbit_int(0)),
            EncodedCounts::Float { count, zero, .. } => {
                for field in [count, zero] {
                    self.out.xor(field, 0);
                }
            }
        }
        self.out.xor(&mut self.sum, sum.to_bits());
    }

    fn put_counts(&mut self, histogram: &Histogram) {
        let (out, sum) = (&mut self.out, histogram.sum().to_bits());
        match (histogram.counts(), &mut self.counts) {
            (
                HistogramCounts::Integer { count, zero, buckets },
                EncodedCounts::Integer { count: last_count, zero: last_zero, buckets: last },
            ) => {
                last_count.push(count.cast_signed(), out);
                last_zero.push(zero.cast_signed(), out);
                out.xor(&mut self.sum, sum);
                for (last, bucket) in last.iter_mut().zip(bucket_deltas(&self.shape, buckets)) {
                    last.push(bucket, out);
                }
            }
            (
                HistogramCounts::Float { count, zero, buckets },
                EncodedCounts::Float { count: last_count, zero: last_zero, buckets: last },
            ) => {
                out.xor(last_count, count.to_bits());
                out.xor(last_zero, zero.to_bits());
                out.xor(&mut self.sum, sum);
                for (last, bucket) in last.iter_mut().zip(buckets) {
                    out.xor(last, bucket.to_bits());
                }
            }
            // `takes` has compared the kinds.
            _ => {}
        }
    }

    pub(super) const fn kind(&self) -> ChunkKind {
        match self.counts {
            EncodedCounts::Integer { .. } => ChunkKind::Histograms,
            EncodedCounts::Float { .. } => ChunkKind::FloatHistograms,
        }
    }

    pub(super) fn byte_len(&self) -> usize {
        self.out.byte_len()
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out.finish()
    }
}

/// Returns the difference of each bucket to the bucket before it. The first one of each sign refers
/// to 0.
fn bucket_deltas<'b>(shape: &HistogramShape, buckets: &'b [u64]) -> impl Iterator<Item = i64> + 'b {
    let positive = shape.positive_buckets();
    let before = std::iter::once(&0).chain(buckets);
    buckets.iter().zip(before).enumerate().map(move |(number, (bucket, before))| {
        let before = if number == positive { 0 } else { before.cast_signed() };
        bucket.cast_signed().wrapping_sub(before)
    })
}

/// The least and the greatest binary exponent of a threshold that is stored in one byte.
const EXPONENTS: std::ops::RangeInclusive<i64> = -242..=11;

fn put_zero_threshold(threshold: f64, out: &mut BitWriter) {
    let bits = threshold.to_bits();
    // The exponent of a threshold of the form 0.5 * 2^exponent.
    let exponent = (bits >> 52).cast_signed().wrapping_sub(1_022);
    let is_power = bits << 12 == 0 && EXPONENTS.contains(&exponent);
    match u8::try_from(exponent.wrapping_add(243)) {
        _ if bits == 0 => out.byte(0),
        Ok(byte) if is_power => out.byte(byte),
        _ => {
            out.byte(255);
            out.bits(bits, 64);
        }
    }
}

fn put_shape(shape: &HistogramShape, out: &mut BitWriter) {
    put_zero_threshold(shape.zero_threshold(), out);
    out.varbit_int(i64::from(shape.schema()));
    for spans in [shape.positive(), shape.negative()] {
        out.varbit_uint(spans.len() as u64);
        for span in spans {
            out.varbit_uint(u64::from(span.length));
            out.varbit_int(i64::from(span.offset));
        }
    }
    if shape.is_custom() {
        out.varbit_uint(shape.custom_values().len() as u64);
        for bound in shape.custom_values() {
            put_bound(*bound, out);
        }
    }
}

/// The greatest thousandfold of a bound that is stored as a whole number.
const THOUSANDTHS_MAX: f64 = 33_554_430.0;

/// Appends a custom bound: a multiple of 0.001 as one more than its thousandfold, another one as a
/// zero and a whole float.
fn put_bound(bound: f64, out: &mut BitWriter) {
    let thousandths = (bound * 1_000.0).round();
    let is_whole = (thousandths / 1_000.0).to_bits() == bound.to_bits() && bound.is_sign_positive();
    if is_whole && thousandths <= THOUSANDTHS_MAX {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number of 25 bits"
        )]
        let whole = thousandths as u64;
        out.varbit_uint(whole.saturating_add(1));
    } else {
        out.bit(false);
        out.bits(bound.to_bits(), 64);
    }
}
