//! A native histogram as both versions of remote write send it.
//!
//! | message | fields that are read |
//! |---|---|
//! | `Histogram` | 1 count (uint64) or 2 (double), 3 sum (double), 4 schema (sint32), 5 zero threshold (double), 6 zero count (uint64) or 7 (double), 8 negative `BucketSpan`, 9 negative deltas (sint64), 10 negative counts (double), 11 to 13 the same of the positive side, 14 reset hint (enum), 15 time (int64, milliseconds), 16 custom bounds (double), 17 start (int64, milliseconds; version 2.0 alone) |
//! | `BucketSpan` | 1 offset (sint32), 2 length (uint32) |
//!
//! A histogram that was sent with field 2 is one of floats, and its buckets are fields 10 and 13; else they are the
//! differences in 9 and 12. What is wrong with one histogram refuses that one; what is no protobuf refuses the request.

use std::sync::Arc;

use super::protobuf::{Field, Reader, WireError, unzigzag};
use super::{DecodeError, Limits};
use crate::model::{
    BucketSpan, CounterReset, Histogram, HistogramCounts, HistogramError, HistogramSample, HistogramShape,
    Timestamp, WriteBatch, counts_from_deltas,
};

const HISTOGRAM: &str = "Histogram";
const SPAN: &str = "BucketSpan";

/// Adds a histogram of the series that is being read, which is added once it has been. Answers its start as it was sent.
///
/// # Errors
/// As of [`DecodeError`].
pub(super) fn add(
    batch: &mut WriteBatch<'_>,
    message: &[u8],
    limits: &Limits,
    buckets: &mut usize,
) -> Result<i64, DecodeError> {
    bound("histograms", batch.histograms.len(), limits.histograms_max)?;
    let mut parts = Parts { buckets: *buckets, buckets_max: limits.buckets_max, ..Parts::default() };
    parts.read(message)?;
    *buckets = parts.buckets;
    let (at, start_ms) = (Timestamp::from_ms(parts.at_ms), parts.start_ms);
    batch.histograms.push(HistogramSample { series: batch.series.len(), at, value: parts.build() });
    Ok(start_ms)
}

/// Whether one more fits.
///
/// # Errors
/// [`DecodeError::TooLarge`].
pub(super) fn bound(what: &'static str, have: usize, allowed: usize) -> Result<(), DecodeError> {
    if have < allowed {
        return Ok(());
    }
    Err(DecodeError::TooLarge { what, found: have.saturating_add(1), allowed })
}

/// A `Histogram` field by field.
#[derive(Default)]
struct Parts {
    at_ms: i64,
    start_ms: i64,
    count: u64,
    /// There is one: the histogram is one of floats.
    float_count: Option<f64>,
    zero: u64,
    float_zero: f64,
    sum: f64,
    schema: i64,
    zero_threshold: f64,
    reset: u64,
    custom_values: Vec<f64>,
    positive: Side,
    negative: Side,
    /// Entries of this request so far, and how many there may be.
    buckets: usize,
    buckets_max: usize,
}

/// Buckets of one sign.
#[derive(Default)]
struct Side {
    spans: Vec<BucketSpan>,
    deltas: Vec<i64>,
    counts: Vec<f64>,
}

impl Parts {
    fn read(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let mut reader = Reader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                1 => (self.count, self.float_count) = (field.uint64(HISTOGRAM)?, None),
                2 => self.float_count = Some(field.double(HISTOGRAM)?),
                3 => self.sum = field.double(HISTOGRAM)?,
                4 => self.schema = unzigzag(field.uint64(HISTOGRAM)?),
                5 => self.zero_threshold = field.double(HISTOGRAM)?,
                6 => self.zero = field.uint64(HISTOGRAM)?,
                7 => self.float_zero = field.double(HISTOGRAM)?,
                8..=13 => self.side(&field)?,
                14 => self.reset = field.uint64(HISTOGRAM)?,
                15 => self.at_ms = field.int64(HISTOGRAM)?,
                16 => field.doubles(HISTOGRAM, |bound| {
                    charge(&mut self.buckets, self.buckets_max)?;
                    self.custom_values.push(bound);
                    Ok::<_, DecodeError>(())
                })?,
                17 => self.start_ms = field.int64(HISTOGRAM)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn side(&mut self, field: &Field<'_>) -> Result<(), DecodeError> {
        let Parts { positive, negative, buckets, buckets_max, .. } = self;
        let (side, number) = match field.number.checked_sub(11) {
            Some(number) => (positive, number),
            None => (negative, field.number.saturating_sub(8)),
        };
        match number {
            0 => {
                charge(buckets, *buckets_max)?;
                side.spans.push(span(field.bytes(HISTOGRAM)?)?);
            }
            1 => field.varints(HISTOGRAM, |delta| {
                charge(buckets, *buckets_max)?;
                side.deltas.push(unzigzag(delta));
                Ok::<_, DecodeError>(())
            })?,
            _ => field.doubles(HISTOGRAM, |count| {
                charge(buckets, *buckets_max)?;
                side.counts.push(count);
                Ok::<_, DecodeError>(())
            })?,
        }
        Ok(())
    }

    fn build(self) -> Result<Histogram, HistogramError> {
        let schema = i32::try_from(self.schema).map_err(|_| HistogramError::Schema(i32::MAX))?;
        let Side { spans: positive, deltas: positive_deltas, counts: positive_counts } = self.positive;
        let Side { spans: negative, deltas: negative_deltas, counts: negative_counts } = self.negative;
        let shape = HistogramShape::new(schema, self.zero_threshold, self.custom_values, positive, negative)?;
        // Each side by itself: too many buckets here must not make up for too few there.
        let sent = |deltas: usize, counts: usize| if self.float_count.is_some() { counts } else { deltas };
        for (expected, found) in [
            (shape.positive_buckets(), sent(positive_deltas.len(), positive_counts.len())),
            (shape.negative_buckets(), sent(negative_deltas.len(), negative_counts.len())),
        ] {
            if expected != found {
                return Err(HistogramError::Buckets { expected, found });
            }
        }
        let counts = if let Some(count) = self.float_count {
            let mut buckets = positive_counts;
            buckets.extend(negative_counts);
            HistogramCounts::Float { count, zero: self.float_zero, buckets }
        } else {
            let mut buckets = Vec::with_capacity(shape.buckets());
            counts_from_deltas(positive_deltas, &mut buckets)?;
            counts_from_deltas(negative_deltas, &mut buckets)?;
            HistogramCounts::Integer { count: self.count, zero: self.zero, buckets }
        };
        // A hint that does not exist yet says nothing.
        let reset = u8::try_from(self.reset).ok().and_then(CounterReset::from_number).unwrap_or_default();
        Histogram::new(Arc::new(shape), reset, self.sum, counts)
    }
}

fn charge(have: &mut usize, allowed: usize) -> Result<(), DecodeError> {
    bound("histogram buckets", *have, allowed)?;
    *have = have.saturating_add(1);
    Ok(())
}

fn span(message: &[u8]) -> Result<BucketSpan, WireError> {
    let mut span = BucketSpan::default();
    let mut reader = Reader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            // The protocol's own readers keep the low 32 bits, too.
            1 => span.offset = low_signed(unzigzag(field.uint64(SPAN)?)),
            2 => span.length = low(field.uint64(SPAN)?),
            _ => {}
        }
    }
    Ok(span)
}

const fn low(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

const fn low_signed(value: i64) -> i32 {
    low(value.cast_unsigned()).cast_signed()
}
