//! Native histograms: samples that are whole distributions (prometheus.io, "Native Histograms").
//!
//! Buckets of an exponential schema `n` grow by the factor `2^(2^-n)`. Bucket `i` covers values
//! above `2^((i-1) * 2^-n)` and up to `2^(i * 2^-n)` (inclusive), mirrored for negative
//! observations. The zero bucket covers values within its threshold. Schema -53 has custom bounds
//! instead. Only buckets within spans exist. A span is an offset from the end of the previous span
//! (of the first span, from bucket 0) and a number of consecutive buckets.
//!
//! Every value of these types is valid: construction applies the rules of Prometheus' `Validate`.

use std::sync::Arc;

use super::{Timestamp, is_stale, stale_nan};

/// The schema of histograms with custom bounds.
pub const CUSTOM_BUCKETS_SCHEMA: i32 = -53;
/// Exponential schemas, from the coarsest to the finest.
const EXPONENTIAL_SCHEMAS: std::ops::RangeInclusive<i32> = -4..=8;

/// A run of consecutive buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BucketSpan {
    /// Number of buckets skipped after the previous span; for the first span the index of its first
    /// bucket.
    pub offset: i32,
    /// Number of buckets.
    pub length: u32,
}

/// Whether the counts were reset at this sample, as reported by the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CounterReset {
    /// Unknown: compare with the previous sample.
    #[default]
    Unknown = 0,
    /// The counts were reset.
    Reset = 1,
    /// The counts were not reset.
    NotReset = 2,
    /// Counts may decrease: there are no resets.
    Gauge = 3,
}

impl CounterReset {
    /// Returns the value with this number of remote write, which is also that of `as u8`.
    pub const fn from_number(number: u8) -> Option<CounterReset> {
        Some(match number {
            0 => CounterReset::Unknown,
            1 => CounterReset::Reset,
            2 => CounterReset::NotReset,
            3 => CounterReset::Gauge,
            _ => return None,
        })
    }
}

/// The bucket layout, which consecutive samples of a series usually share. Always valid.
#[derive(Clone, Debug)]
pub struct HistogramShape {
    schema: i8,
    zero_threshold: f64,
    custom_values: Box<[f64]>,
    positive: Box<[BucketSpan]>,
    negative: Box<[BucketSpan]>,
    positive_buckets: usize,
    negative_buckets: usize,
}

/// Compares values bit by bit, so that a NaN equals itself.
impl PartialEq for HistogramShape {
    fn eq(&self, other: &HistogramShape) -> bool {
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        self.schema == other.schema
            && self.zero_threshold.to_bits() == other.zero_threshold.to_bits()
            && self.positive == other.positive
            && self.negative == other.negative
            && self.custom_values.len() == other.custom_values.len()
            && bits(&self.custom_values) == bits(&other.custom_values)
    }
}

impl HistogramShape {
    /// Maximum number of buckets of both signs. Instrumentation libraries stop at 160; the
    /// exponential schemas allow half a million.
    pub const BUCKETS_MAX: usize = 4_096;
    /// Maximum number of spans of both signs, and of custom bounds.
    pub const SPANS_MAX: usize = 4_096;

    /// Validates and builds a layout.
    ///
    /// # Errors
    /// [`HistogramError`], for everything that Prometheus refuses and for layouts beyond the limits
    /// above.
    pub fn new(
        schema: i32,
        zero_threshold: f64,
        custom_values: Vec<f64>,
        positive: Vec<BucketSpan>,
        negative: Vec<BucketSpan>,
    ) -> Result<HistogramShape, HistogramError> {
        let spans = positive.len().saturating_add(negative.len());
        for (what, found, allowed) in [
            ("spans", spans, HistogramShape::SPANS_MAX),
            ("custom bounds", custom_values.len(), HistogramShape::SPANS_MAX),
        ] {
            if found > allowed {
                return Err(HistogramError::TooLarge { what, found, allowed });
            }
        }
        let custom = schema == CUSTOM_BUCKETS_SCHEMA;
        let schema_number = match i8::try_from(schema) {
            Ok(number) if custom || EXPONENTIAL_SCHEMAS.contains(&schema) => number,
            _ => return Err(HistogramError::Schema(schema)),
        };
        let positive_buckets = check_spans("positive", &positive, custom)?;
        let negative_buckets = check_spans("negative", &negative, false)?;
        let found = positive_buckets.saturating_add(negative_buckets);
        if found > HistogramShape::BUCKETS_MAX {
            let allowed = HistogramShape::BUCKETS_MAX;
            return Err(HistogramError::TooLarge { what: "buckets", found, allowed });
        }
        if custom {
            check_custom(zero_threshold, &custom_values, &positive, &negative)?;
        } else if !custom_values.is_empty() {
            return Err(HistogramError::Custom("an exponential schema has no custom bounds"));
        }
        Ok(HistogramShape {
            schema: schema_number,
            zero_threshold,
            custom_values: custom_values.into(),
            positive: positive.into(),
            negative: negative.into(),
            positive_buckets,
            negative_buckets,
        })
    }

    /// Returns the schema: -4 to 8, or -53.
    pub fn schema(&self) -> i32 {
        i32::from(self.schema)
    }

    /// Returns whether it has custom bounds.
    pub fn is_custom(&self) -> bool {
        self.schema() == CUSTOM_BUCKETS_SCHEMA
    }

    /// Returns the greatest absolute value in the zero bucket.
    pub const fn zero_threshold(&self) -> f64 {
        self.zero_threshold
    }

    /// Returns the upper bounds of the custom buckets, ascending, without the infinity of the last
    /// one.
    pub fn custom_values(&self) -> &[f64] {
        &self.custom_values
    }

    /// Returns the spans of the positive buckets.
    pub fn positive(&self) -> &[BucketSpan] {
        &self.positive
    }

    /// Returns the spans of the negative buckets.
    pub fn negative(&self) -> &[BucketSpan] {
        &self.negative
    }

    /// Returns the number of positive buckets, which come first in the counts.
    pub const fn positive_buckets(&self) -> usize {
        self.positive_buckets
    }

    /// Returns the number of negative buckets.
    pub const fn negative_buckets(&self) -> usize {
        self.negative_buckets
    }

    /// Returns the number of buckets without the zero bucket.
    pub const fn buckets(&self) -> usize {
        self.positive_buckets.saturating_add(self.negative_buckets)
    }

    /// Returns the estimated memory in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<HistogramShape>()
            + 8 * (self.custom_values.len() + self.positive.len() + self.negative.len())
    }
}

/// Validates spans and returns the number of their buckets.
fn check_spans(side: &'static str, spans: &[BucketSpan], from_zero: bool) -> Result<usize, HistogramError> {
    let (mut buckets, mut end) = (0u64, 0i64);
    for (index, span) in spans.iter().enumerate() {
        if span.offset < 0 && (index > 0 || from_zero) {
            return Err(HistogramError::SpanOffset { side, number: index + 1, offset: span.offset });
        }
        buckets = buckets.saturating_add(u64::from(span.length));
        end = end.saturating_add(i64::from(span.offset)).saturating_add(i64::from(span.length));
        if i32::try_from(end).is_err() {
            return Err(HistogramError::SpanRange { side, number: index + 1 });
        }
    }
    Ok(usize::try_from(buckets).unwrap_or(usize::MAX))
}

fn check_custom(
    zero_threshold: f64,
    bounds: &[f64],
    positive: &[BucketSpan],
    negative: &[BucketSpan],
) -> Result<(), HistogramError> {
    if bounds.iter().any(|bound| bound.is_nan()) {
        return Err(HistogramError::Custom("a custom bound is not a number"));
    }
    if !bounds.iter().is_sorted_by(|a, b| a < b) || bounds.first() == Some(&f64::NEG_INFINITY) {
        return Err(HistogramError::Custom("custom bounds must ascend from a finite one"));
    }
    if bounds.last() == Some(&f64::INFINITY) {
        return Err(HistogramError::Custom("the last bound, +Inf, is not written down"));
    }
    if zero_threshold != 0.0 {
        return Err(HistogramError::Custom("custom buckets have a zero threshold of 0"));
    }
    if !negative.is_empty() {
        return Err(HistogramError::Custom("custom buckets have no negative side"));
    }
    let reach = positive.iter().fold(0i64, |reach, span| {
        reach.saturating_add(i64::from(span.offset)).saturating_add(i64::from(span.length))
    });
    if reach > i64::try_from(bounds.len()).unwrap_or(i64::MAX).saturating_add(1) {
        return Err(HistogramError::Custom("there are fewer custom bounds than buckets"));
    }
    Ok(())
}

/// The number of observations, in all and per bucket; absolute, not as differences.
#[derive(Clone, Debug)]
pub enum HistogramCounts {
    /// Integer counts, as instrumented.
    Integer {
        /// All observations.
        count: u64,
        /// Observations in the zero bucket.
        zero: u64,
        /// Observations in the other buckets: positive ones from zero upwards, then negative ones
        /// from zero downwards.
        buckets: Vec<u64>,
    },
    /// Computed counts: rates, sums, recording rules.
    Float {
        /// All observations.
        count: f64,
        /// Observations in the zero bucket.
        zero: f64,
        /// Observations in the other buckets, ordered as above.
        buckets: Vec<f64>,
    },
}

/// Compares values bit by bit, so that a NaN equals itself.
impl PartialEq for HistogramCounts {
    fn eq(&self, other: &HistogramCounts) -> bool {
        match (self, other) {
            (
                HistogramCounts::Integer { count, zero, buckets },
                HistogramCounts::Integer { count: count2, zero: zero2, buckets: buckets2 },
            ) => count == count2 && zero == zero2 && buckets == buckets2,
            (
                HistogramCounts::Float { count, zero, buckets },
                HistogramCounts::Float { count: count2, zero: zero2, buckets: buckets2 },
            ) => {
                count.to_bits() == count2.to_bits()
                    && zero.to_bits() == zero2.to_bits()
                    && buckets.len() == buckets2.len()
                    && buckets.iter().zip(buckets2).all(|(a, b)| a.to_bits() == b.to_bits())
            }
            _ => false,
        }
    }
}

/// A native histogram sample without its time. Equality compares every bit.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    shape: Arc<HistogramShape>,
    reset: CounterReset,
    sum_bits: u64,
    counts: HistogramCounts,
}

impl Histogram {
    /// Validates and builds a histogram.
    ///
    /// # Errors
    /// [`HistogramError`] if counts and layout do not agree, or a count is negative.
    pub fn new(
        shape: Arc<HistogramShape>,
        reset: CounterReset,
        sum: f64,
        counts: HistogramCounts,
    ) -> Result<Histogram, HistogramError> {
        let found = match &counts {
            HistogramCounts::Integer { buckets, .. } => buckets.len(),
            HistogramCounts::Float { buckets, .. } => buckets.len(),
        };
        if found != shape.buckets() {
            return Err(HistogramError::Buckets { expected: shape.buckets(), found });
        }
        let zero_is_zero = match &counts {
            HistogramCounts::Integer { zero, .. } => *zero == 0,
            HistogramCounts::Float { zero, .. } => *zero == 0.0,
        };
        if shape.is_custom() && !zero_is_zero {
            return Err(HistogramError::Custom("custom buckets have a zero count of 0"));
        }
        match &counts {
            HistogramCounts::Integer { count, zero, buckets } => check_sum(*count, *zero, buckets, sum)?,
            HistogramCounts::Float { count, zero, buckets } => {
                let negative = [count, zero].into_iter().chain(buckets).find(|count| **count < 0.0);
                if let Some(count) = negative {
                    return Err(HistogramError::Negative(count.to_string()));
                }
            }
        }
        Ok(Histogram { shape, reset, sum_bits: sum.to_bits(), counts })
    }

    /// Returns the staleness marker of a series of histograms: an empty histogram whose sum is the
    /// staleness NaN.
    pub fn stale() -> Histogram {
        let shape = HistogramShape {
            schema: 0,
            zero_threshold: 0.0,
            custom_values: Box::default(),
            positive: Box::default(),
            negative: Box::default(),
            positive_buckets: 0,
            negative_buckets: 0,
        };
        let counts = HistogramCounts::Integer { count: 0, zero: 0, buckets: Vec::new() };
        let sum_bits = stale_nan().to_bits();
        Histogram { shape: Arc::new(shape), reset: CounterReset::Unknown, sum_bits, counts }
    }

    /// Returns whether it is a staleness marker: its sum has the staleness bits; the other fields
    /// do not matter.
    pub fn is_stale(&self) -> bool {
        is_stale(self.sum())
    }

    /// Returns the bucket layout.
    pub const fn shape(&self) -> &Arc<HistogramShape> {
        &self.shape
    }

    /// Replaces its layout by an equal one, so that the samples of a series share one.
    #[must_use]
    pub fn sharing(mut self, shape: &Arc<HistogramShape>) -> Histogram {
        if *self.shape == **shape {
            self.shape = Arc::clone(shape);
        }
        self
    }

    /// Returns the sender's report of counter resets.
    pub const fn reset(&self) -> CounterReset {
        self.reset
    }

    /// Returns the sum of observations.
    pub const fn sum(&self) -> f64 {
        f64::from_bits(self.sum_bits)
    }

    /// Returns the counts.
    pub const fn counts(&self) -> &HistogramCounts {
        &self.counts
    }

    /// Returns the total number of observations; integers beyond 2^53 are rounded to the nearest
    /// double.
    #[expect(clippy::cast_precision_loss, reason = "counts beyond 2^53 are rounded, as everywhere in PromQL")]
    pub fn count(&self) -> f64 {
        match &self.counts {
            HistogramCounts::Integer { count, .. } => *count as f64,
            HistogramCounts::Float { count, .. } => *count,
        }
    }

    /// Returns the estimated memory in bytes, without the shared layout.
    pub fn bytes(&self) -> usize {
        size_of::<Histogram>() + 8 * self.shape.buckets()
    }
}

/// Checks that integer counts add up. NaN observations are in no bucket and make the sum NaN, so
/// then the buckets may have fewer.
fn check_sum(count: u64, zero: u64, buckets: &[u64], sum: f64) -> Result<(), HistogramError> {
    let in_buckets = buckets.iter().fold(zero, |all, bucket| all.saturating_add(*bucket));
    if in_buckets == count || (sum.is_nan() && in_buckets <= count) {
        return Ok(());
    }
    Err(HistogramError::Count { count, in_buckets })
}

/// Converts differences to absolute counts. Each difference refers to the previous bucket, the
/// first one to 0.
///
/// # Errors
/// [`HistogramError::Negative`] if a count is below 0 or exceeds 63 bits.
pub fn counts_from_deltas(
    deltas: impl IntoIterator<Item = i64>,
    out: &mut Vec<u64>,
) -> Result<(), HistogramError> {
    let mut count = 0i64;
    for delta in deltas {
        let next = count.wrapping_add(delta);
        out.push(u64::try_from(next).map_err(|_| HistogramError::Negative(next.to_string()))?);
        count = next;
    }
    Ok(())
}

/// Reasons why something is not a native histogram.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistogramError {
    /// The schema does not exist.
    #[error("a histogram's schema is -4 to 8, or -53 for custom buckets, and not {0}")]
    Schema(i32),
    /// A span has a negative offset.
    #[error("{side} span number {number} has the offset {offset}, which is negative")]
    SpanOffset {
        /// `positive` or `negative`.
        side: &'static str,
        /// Number of the span, from 1.
        number: usize,
        /// The offset.
        offset: i32,
    },
    /// The index of a bucket does not fit into 32 bits.
    #[error("{side} span number {number} ends beyond every bucket")]
    SpanRange {
        /// `positive` or `negative`.
        side: &'static str,
        /// Number of the span, from 1.
        number: usize,
    },
    /// The number of counts differs from the number of buckets in the spans.
    #[error("the histogram's spans name {expected} buckets, it has {found}")]
    Buckets {
        /// Number of buckets in the spans.
        expected: usize,
        /// Number of counts.
        found: usize,
    },
    /// A count is negative.
    #[error("the histogram has the count {0}, which is negative")]
    Negative(String),
    /// The buckets have more or fewer observations than the total.
    #[error("the histogram counts {count} observations, its buckets hold {in_buckets}")]
    Count {
        /// The total.
        count: u64,
        /// The sum over the buckets.
        in_buckets: u64,
    },
    /// A rule of custom buckets is violated.
    #[error("{0}")]
    Custom(&'static str),
    /// A limit is exceeded.
    #[error("the histogram has {found} {what}; at most {allowed} are allowed")]
    TooLarge {
        /// The limited item.
        what: &'static str,
        /// The number.
        found: usize,
        /// The limit.
        allowed: usize,
    },
}

impl HistogramError {
    /// Returns a stable code for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            HistogramError::Schema(_) => "histogram_schema",
            HistogramError::SpanOffset { .. }
            | HistogramError::SpanRange { .. }
            | HistogramError::Buckets { .. } => "histogram_spans",
            HistogramError::Negative(_) => "histogram_negative_count",
            HistogramError::Count { .. } => "histogram_count_mismatch",
            HistogramError::Custom(_) => "histogram_custom_buckets",
            HistogramError::TooLarge { .. } => "histogram_too_large",
        }
    }
}

/// Histogram samples of one series as columns, ascending in time; adjacent ones share their layout.
/// The buffers are reused between reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramColumns {
    /// Milliseconds since 1970.
    pub times: Vec<i64>,
    /// The histograms, staleness markers included.
    pub histograms: Vec<Histogram>,
}

impl HistogramColumns {
    /// Removes all samples; keeps the capacity.
    pub fn clear(&mut self) {
        self.times.clear();
        self.histograms.clear();
    }

    /// Appends a sample.
    pub fn push(&mut self, at_ms: i64, histogram: Histogram) {
        self.times.push(at_ms);
        self.histograms.push(histogram);
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }
}

impl Extend<(i64, Histogram)> for HistogramColumns {
    fn extend<T: IntoIterator<Item = (i64, Histogram)>>(&mut self, samples: T) {
        for (at_ms, histogram) in samples {
            self.push(at_ms, histogram);
        }
    }
}

/// A changed start (created) timestamp: from `at` on, the counts of the series cover the time since
/// `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartChange {
    /// The time of the first sample with this start.
    pub at: Timestamp,
    /// The time from which the counts begin.
    pub start: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(offset: i32, length: u32) -> BucketSpan {
        BucketSpan { offset, length }
    }

    fn shape(schema: i32, positive: &[BucketSpan], negative: &[BucketSpan]) -> Arc<HistogramShape> {
        let shape = HistogramShape::new(schema, 0.001, Vec::new(), positive.to_vec(), negative.to_vec());
        Arc::new(shape.expect("valid"))
    }

    fn integer(count: u64, zero: u64, buckets: &[u64]) -> HistogramCounts {
        HistogramCounts::Integer { count, zero, buckets: buckets.to_vec() }
    }

    #[test]
    fn shapes_are_refused_where_prometheus_refuses_them() {
        let exponential = |schema, positive: &[BucketSpan], negative: &[BucketSpan], custom: &[f64]| {
            HistogramShape::new(schema, 0.0, custom.to_vec(), positive.to_vec(), negative.to_vec())
                .map(|_| ())
                .map_err(|e| e.code())
        };
        let custom =
            |bounds: &[f64], spans: &[BucketSpan]| exponential(CUSTOM_BUCKETS_SCHEMA, spans, &[], bounds);
        for schema in [-4, 0, 8] {
            assert_eq!(exponential(schema, &[span(-3, 2), span(0, 1)], &[span(5, 1)], &[]), Ok(()));
        }
        for schema in [-5, 9, -52, 300] {
            assert_eq!(exponential(schema, &[], &[], &[]), Err("histogram_schema"), "{schema}");
        }
        assert_eq!(exponential(0, &[span(0, 1), span(-1, 1)], &[], &[]), Err("histogram_spans"));
        assert_eq!(exponential(0, &[span(i32::MAX, 1)], &[], &[]), Err("histogram_spans"));
        assert_eq!(exponential(0, &[span(0, 5_000)], &[], &[]), Err("histogram_too_large"));
        assert_eq!(exponential(0, &[span(0, 0); 5_000], &[], &[]), Err("histogram_too_large"));
        assert_eq!(exponential(0, &[], &[], &[1.0]), Err("histogram_custom_buckets"));
        assert_eq!(custom(&[0.1, 1.0, 10.0], &[span(0, 4)]), Ok(()));
        assert_eq!(custom(&[], &[span(0, 1)]), Ok(()));
        assert_eq!(custom(&[1.0], &[span(-1, 1)]), Err("histogram_spans"));
        for bounds in
            [&[1.0, 1.0][..], &[2.0, 1.0], &[f64::NAN], &[1.0, f64::INFINITY], &[f64::NEG_INFINITY, 1.0]]
        {
            assert_eq!(custom(bounds, &[]), Err("histogram_custom_buckets"), "{bounds:?}");
        }
        assert_eq!(custom(&[1.0], &[span(1, 2)]), Err("histogram_custom_buckets"));
        assert_eq!(
            exponential(CUSTOM_BUCKETS_SCHEMA, &[], &[span(0, 1)], &[1.0]),
            Err("histogram_custom_buckets")
        );
        assert!(HistogramShape::new(CUSTOM_BUCKETS_SCHEMA, 0.5, vec![], vec![], vec![]).is_err());
    }

    #[test]
    fn counts_are_refused_where_prometheus_refuses_them() {
        let shape = shape(2, &[span(0, 2)], &[span(1, 1)]);
        let of = |sum: f64, counts: HistogramCounts| {
            Histogram::new(Arc::clone(&shape), CounterReset::Unknown, sum, counts)
                .map(|_| ())
                .map_err(|e| e.code())
        };
        assert_eq!(of(1.0, integer(7, 1, &[1, 2, 3])), Ok(()));
        assert_eq!(of(1.0, integer(8, 1, &[1, 2, 3])), Err("histogram_count_mismatch"));
        assert_eq!(of(f64::NAN, integer(8, 1, &[1, 2, 3])), Ok(()), "NaN observations are in no bucket");
        assert_eq!(of(f64::NAN, integer(6, 1, &[1, 2, 3])), Err("histogram_count_mismatch"));
        assert_eq!(of(1.0, integer(u64::MAX, 1, &[u64::MAX, 2, 3])), Ok(()), "saturated");
        assert_eq!(of(1.0, integer(6, 1, &[1, 2])), Err("histogram_spans"));
        let float =
            |count, zero, buckets: &[f64]| HistogramCounts::Float { count, zero, buckets: buckets.to_vec() };
        assert_eq!(of(1.0, float(1.5, 0.25, &[0.0, f64::NAN, f64::INFINITY])), Ok(()));
        for counts in
            [float(-1.0, 0.0, &[0.0; 3]), float(1.0, -0.5, &[0.0; 3]), float(1.0, 0.0, &[0.0, -0.1, 0.0])]
        {
            assert_eq!(of(1.0, counts), Err("histogram_negative_count"));
        }
        let custom = HistogramShape::new(CUSTOM_BUCKETS_SCHEMA, 0.0, vec![1.0], vec![], vec![]);
        let zero =
            Histogram::new(Arc::new(custom.expect("valid")), CounterReset::Unknown, 0.0, integer(1, 1, &[]));
        assert_eq!(zero.map_err(|e| e.code()), Err("histogram_custom_buckets"));
    }

    #[test]
    fn deltas_add_up_to_counts_that_are_never_negative() {
        let mut out = Vec::new();
        assert_eq!(counts_from_deltas([5, -2, 0, 4], &mut out), Ok(()));
        assert_eq!(out, [5, 3, 3, 7]);
        assert!(counts_from_deltas([1, -2], &mut Vec::new()).is_err());
        assert!(counts_from_deltas([i64::MAX, 1], &mut Vec::new()).is_err());
    }

    #[test]
    fn a_staleness_marker_is_recognised_by_its_sum() {
        assert!(Histogram::stale().is_stale());
        assert_eq!(Histogram::stale(), Histogram::stale());
    }
}
