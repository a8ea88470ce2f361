//! Native histograms by their specification (prometheus.io, "Native Histograms"): buckets in a map,
//! one operation at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use promlet::model::{BucketSpan, CounterReset, Histogram, HistogramCounts, HistogramShape};

/// The schema of histograms with custom bounds.
pub(crate) const CUSTOM: i32 = -53;

/// Counts by bucket index.
pub(crate) type Buckets = BTreeMap<i32, f64>;

/// One histogram.
#[derive(Clone, Debug, Default)]
pub(crate) struct Native {
    pub(crate) schema: i32,
    pub(crate) bounds: Vec<f64>,
    pub(crate) threshold: f64,
    pub(crate) count: f64,
    pub(crate) sum: f64,
    pub(crate) zero: f64,
    pub(crate) positive: Buckets,
    pub(crate) negative: Buckets,
    pub(crate) is_gauge: bool,
}

/// The bounds of a bucket and its count.
struct BucketRange {
    lower: f64,
    upper: f64,
    count: f64,
    is_linear: bool,
}

/// Powers of two from 1/2 in steps of 1/8, as in Prometheus' table; not all of them are the nearest
/// doubles.
const EIGHTHS: [f64; 8] = [
    0.5,
    0.545_253_866_332_628_8,
    0.594_603_557_501_360_5,
    0.648_419_777_325_504_8,
    0.707_106_781_186_547_5,
    0.771_105_412_703_970_4,
    0.840_896_415_253_714_4,
    0.917_004_043_204_671_1,
];

fn bound(schema: i32, index: i32) -> f64 {
    if schema <= 0 {
        return 2f64.powf(f64::from(index) * 2f64.powi(-schema));
    }
    assert!(schema <= 3, "no finer schemas are made here");
    let eighths = index << (3 - schema);
    EIGHTHS[eighths.rem_euclid(8) as usize] * 2f64.powi(eighths.div_euclid(8) + 1)
}

fn without_empty(buckets: &Buckets) -> Buckets {
    buckets.iter().filter(|(_, count)| **count != 0.0).map(|(index, count)| (*index, *count)).collect()
}

impl Native {
    pub(crate) fn is_custom(&self) -> bool {
        self.schema == CUSTOM
    }

    /// Returns the histogram to send, with integer or float counts.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and small")]
    pub(crate) fn to_histogram(&self, floating: bool) -> Histogram {
        let spans = |buckets: &Buckets| -> Vec<BucketSpan> {
            let mut spans: Vec<BucketSpan> = Vec::new();
            let mut next = 0;
            for index in buckets.keys() {
                match spans.last_mut() {
                    Some(span) if *index == next => span.length += 1,
                    _ => spans.push(BucketSpan { offset: index - next, length: 1 }),
                }
                next = index + 1;
            }
            spans
        };
        let (positive, negative) = (spans(&self.positive), spans(&self.negative));
        let shape = HistogramShape::new(self.schema, self.threshold, self.bounds.clone(), positive, negative);
        let all = || self.positive.values().chain(self.negative.values()).copied();
        let counts = if floating {
            HistogramCounts::Float { count: self.count, zero: self.zero, buckets: all().collect() }
        } else {
            let (count, zero) = (self.count as u64, self.zero as u64);
            HistogramCounts::Integer { count, zero, buckets: all().map(|count| count as u64).collect() }
        };
        let reset = if self.is_gauge { CounterReset::Gauge } else { CounterReset::Unknown };
        Histogram::new(Arc::new(shape.expect("a shape")), reset, self.sum, counts).expect("a histogram")
    }

    /// Returns the histogram in a coarser schema: two buckets of a schema are one bucket of the
    /// next coarser one.
    fn reduced(&self, schema: i32) -> Native {
        let mut coarse = self.clone();
        while coarse.schema > schema {
            coarse.schema -= 1;
            for side in [&mut coarse.positive, &mut coarse.negative] {
                let mut halves = Buckets::new();
                for (index, count) in side.iter() {
                    *halves.entry((index + 1).div_euclid(2)).or_insert(0.0) += count;
                }
                *side = halves;
            }
        }
        coarse
    }

    /// Returns the histogram with a zero bucket up to `threshold`, or up to the end of a bucket
    /// that this would cut.
    fn widened(&self, threshold: f64) -> Native {
        let mut wide = self.clone();
        if threshold <= self.threshold {
            return wide;
        }
        wide.threshold = threshold;
        let cut = |buckets: &Buckets, threshold: f64| {
            let within = buckets.iter().filter(|(_, count)| **count != 0.0);
            let ends = within.map(|(index, _)| (bound(self.schema, index - 1), bound(self.schema, *index)));
            ends.filter(|(lower, upper)| *lower < threshold && threshold < *upper)
                .map(|(_, upper)| upper)
                .next()
        };
        while let Some(upper) =
            cut(&self.positive, wide.threshold).or_else(|| cut(&self.negative, wide.threshold))
        {
            wide.threshold = upper;
        }
        for side in [&mut wide.positive, &mut wide.negative] {
            let within: Vec<i32> =
                side.keys().copied().filter(|index| bound(self.schema, *index) <= wide.threshold).collect();
            for index in within {
                wide.zero += side.remove(&index).unwrap_or(0.0);
            }
        }
        wide
    }

    /// Returns the sum or, with sign -1, the difference. `None` for exponential with custom
    /// buckets.
    pub(crate) fn added(&self, other: &Native, sign: f64) -> Option<Native> {
        if self.is_custom() != other.is_custom() {
            return None;
        }
        let (mut a, mut b) = (self.clone(), other.clone());
        if !a.is_custom() {
            while a.threshold != b.threshold {
                let widest = a.threshold.max(b.threshold);
                (a, b) = (a.widened(widest), b.widened(widest));
            }
            let schema = a.schema.min(b.schema);
            (a, b) = (a.reduced(schema), b.reduced(schema));
        }
        assert_eq!(a.bounds, b.bounds, "custom bounds are the same here");
        a.count += sign * b.count;
        a.sum += sign * b.sum;
        a.zero += sign * b.zero;
        for (into, from) in [(&mut a.positive, &b.positive), (&mut a.negative, &b.negative)] {
            for (index, count) in from {
                *into.entry(*index).or_insert(0.0) += sign * count;
            }
        }
        a.is_gauge = sign < 0.0 || a.is_gauge || b.is_gauge;
        Some(a.compacted())
    }

    pub(crate) fn compacted(mut self) -> Native {
        self.positive = without_empty(&self.positive);
        self.negative = without_empty(&self.negative);
        self
    }

    pub(crate) fn compacted_copy(&self) -> Native {
        Native { is_gauge: true, ..self.clone().compacted() }
    }

    /// Returns the histogram with buckets at most as fine as `schema`.
    pub(crate) fn coarse(&self, schema: i32) -> Native {
        if self.is_custom() { self.clone() } else { self.reduced(schema) }
    }

    fn each(&self, of: impl Fn(f64) -> f64) -> Native {
        let all = |buckets: &Buckets| buckets.iter().map(|(index, count)| (*index, of(*count))).collect();
        let (positive, negative) = (all(&self.positive), all(&self.negative));
        let (count, sum, zero) = (of(self.count), of(self.sum), of(self.zero));
        Native { count, sum, zero, positive, negative, ..self.clone() }
    }

    pub(crate) fn times(&self, factor: f64) -> Native {
        Native { is_gauge: self.is_gauge || factor < 0.0, ..self.each(|count| count * factor) }
    }

    /// Divides all counts. A division by zero leaves no buckets.
    pub(crate) fn divided(&self, by: f64) -> Native {
        let mut divided = Native { is_gauge: self.is_gauge || by < 0.0, ..self.each(|count| count / by) };
        if by == 0.0 {
            (divided.positive, divided.negative) = (Buckets::new(), Buckets::new());
        }
        divided
    }

    /// Returns the histogram with the same buckets, all zero.
    pub(crate) fn zeroed(&self) -> Native {
        self.each(|_| 0.0)
    }

    /// Returns whether all bits are equal; an empty bucket counts as a bucket.
    pub(crate) fn equals(&self, other: &Native) -> bool {
        let same = |a: &Buckets, b: &Buckets| a.keys().eq(b.keys());
        same(&self.positive, &other.positive)
            && same(&self.negative, &other.negative)
            && self.render() == other.render()
    }

    /// Renders all bits for a comparison. All NaNs are equal, and so are both zeros.
    pub(crate) fn render(&self) -> String {
        let bits = |value: f64| if value.is_nan() { f64::NAN.to_bits() } else { (value + 0.0).to_bits() };
        let buckets = |buckets: &Buckets| -> Vec<(i32, u64)> {
            without_empty(buckets).iter().map(|(index, count)| (*index, bits(*count))).collect()
        };
        let head = (self.schema, bits(self.threshold), bits(self.count), bits(self.sum), bits(self.zero));
        format!("{head:?} {:?} {:?} {:?}", self.bounds, buckets(&self.positive), buckets(&self.negative))
    }

    /// Returns whether a counter reset lies between `before` and this histogram.
    pub(crate) fn is_reset_since(&self, before: &Native) -> bool {
        if self.is_custom() != before.is_custom() || self.count < before.count {
            return true;
        }
        let mut before = before.clone();
        if !self.is_custom() {
            if self.schema > before.schema || self.threshold < before.threshold {
                return true;
            }
            before = before.widened(self.threshold);
            if before.threshold != self.threshold || self.zero < before.zero {
                return true;
            }
            before = before.reduced(self.schema);
        }
        let fell = |now: &Buckets, before: &Buckets| {
            before
                .iter()
                .any(|(index, count)| *count != 0.0 && now.get(index).copied().unwrap_or(0.0) < *count)
        };
        fell(&self.positive, &before.positive) || fell(&self.negative, &before.negative)
    }

    /// Returns all buckets with counts in ascending order. The zero bucket ends at zero on a side
    /// without other buckets.
    fn cuts(&self) -> Vec<BucketRange> {
        let linear = self.is_custom();
        let custom = |index: i32| {
            let at = usize::try_from(index).ok();
            at.map_or(f64::NEG_INFINITY, |at| self.bounds.get(at).copied().unwrap_or(f64::INFINITY))
        };
        let end = |index: i32| if linear { custom(index) } else { bound(self.schema, index) };
        let mut cuts = Vec::new();
        for (index, count) in self.negative.iter().rev() {
            let (lower, upper) = (-end(*index), -end(index - 1));
            cuts.push(BucketRange { lower, upper, count: *count, is_linear: linear });
        }
        if !linear {
            let lower =
                if self.negative.is_empty() && !self.positive.is_empty() { 0.0 } else { -self.threshold };
            let upper =
                if self.positive.is_empty() && !self.negative.is_empty() { 0.0 } else { self.threshold };
            cuts.push(BucketRange { lower, upper, count: self.zero, is_linear: true });
        }
        for (index, count) in &self.positive {
            let (mut lower, upper) = (end(index - 1), end(*index));
            // The first custom bucket begins at zero if its upper bound is positive.
            if lower == f64::NEG_INFINITY && upper > 0.0 {
                lower = 0.0;
            }
            cuts.push(BucketRange { lower, upper, count: *count, is_linear: linear });
        }
        cuts.retain(|cut| cut.count != 0.0);
        cuts
    }

    pub(crate) fn quantile(&self, q: f64) -> f64 {
        if q < 0.0 {
            return f64::NEG_INFINITY;
        }
        if q > 1.0 {
            return f64::INFINITY;
        }
        if self.count == 0.0 || q.is_nan() {
            return f64::NAN;
        }
        let rank = q * self.count;
        let cuts = self.cuts();
        let mut seen = 0.0;
        // Counts from the nearer end, so that both halves are symmetric; from below if NaNs were
        // observed.
        let upward = q < 0.5 || self.sum.is_nan();
        let ahead = if upward { rank } else { self.count - rank };
        let order: Vec<&BucketRange> =
            if upward { cuts.iter().collect() } else { cuts.iter().rev().collect() };
        let Some(cut) = order.iter().find(|cut| {
            seen += cut.count;
            seen >= ahead
        }) else {
            return f64::NAN;
        };
        let into = ahead - (seen - cut.count);
        let share = (if upward { into } else { cut.count - into }) / cut.count;
        if cut.lower == f64::NEG_INFINITY {
            return cut.upper;
        }
        if cut.upper == f64::INFINITY {
            return cut.lower;
        }
        if cut.is_linear {
            return cut.lower + (cut.upper - cut.lower) * share;
        }
        let (low, high) = (cut.lower.abs().log2(), cut.upper.abs().log2());
        if cut.lower > 0.0 {
            (low + (high - low) * share).exp2()
        } else {
            -(low + (high - low) * share).exp2()
        }
    }

    /// Estimates how many observations are below `value`.
    fn rank(&self, value: f64) -> f64 {
        let of = |cut: &BucketRange| {
            // A bucket around zero begins at zero if there are no negative buckets.
            let around_zero = cut.lower <= 0.0 && cut.upper >= 0.0;
            let positive_alone = self.negative.is_empty() && !self.positive.is_empty();
            let lower = if around_zero && positive_alone { 0.0 } else { cut.lower };
            let cut = BucketRange { lower, ..*cut };
            // The observations of a bucket without width lie above its only value.
            if value <= cut.lower {
                return 0.0;
            }
            if value >= cut.upper {
                return cut.count;
            }
            // All observations of an infinite bucket lie at its finite end.
            if cut.lower == f64::NEG_INFINITY {
                return cut.count;
            }
            if cut.upper == f64::INFINITY {
                return 0.0;
            }
            if cut.is_linear {
                return cut.count * (value - cut.lower) / (cut.upper - cut.lower);
            }
            let (low, high, at) = (cut.lower.abs().log2(), cut.upper.abs().log2(), value.abs().log2());
            cut.count * (at - low) / (high - low)
        };
        let mut below = 0.0;
        for cut in self.cuts() {
            below += of(&cut);
            // Generated samples may count in buckets that the zero bucket covers, which no sender
            // does. These are ignored.
            if value < cut.upper {
                break;
            }
        }
        below
    }

    pub(crate) fn fraction(&self, lower: f64, upper: f64) -> f64 {
        if self.count == 0.0 || lower.is_nan() || upper.is_nan() {
            return f64::NAN;
        }
        if lower >= upper { 0.0 } else { (self.rank(upper) - self.rank(lower)) / self.count }
    }

    pub(crate) fn variance(&self) -> f64 {
        let mean = self.sum / self.count;
        let of = |cut: &BucketRange| {
            let middle = if cut.is_linear && !self.is_custom() {
                0.0
            } else if cut.is_linear {
                f64::midpoint(cut.lower, cut.upper)
            } else {
                (cut.lower * cut.upper).sqrt() * cut.lower.signum()
            };
            (middle - mean) * (middle - mean) * cut.count
        };
        self.cuts().iter().map(of).sum::<f64>() / self.count
    }
}
