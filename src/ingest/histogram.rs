//! Native histograms, as both versions of remote write encode them.
//!
//! Fields that are read, by message:
//! * `Histogram`: 1 count (uint64) or 2 (double), 3 sum (double), 4 schema (sint32), 5 zero
//!   threshold (double), 6 zero count (uint64) or 7 (double), 8 negative `BucketSpan`, 9 negative
//!   deltas (sint64), 10 negative counts (double), 11 to 13 the same for the positive side, 14
//!   reset hint (enum), 15 time (int64, milliseconds), 16 custom bounds (double), 17 start (int64,
//!   milliseconds; version 2.0 only)
//! * `BucketSpan`: 1 offset (sint32), 2 length (uint32)
//!
//! A histogram with field 2 has float counts, and its buckets are fields 10 and 13. Otherwise its
//! buckets are the differences in fields 9 and 12. An invalid histogram is refused alone; malformed
//! protobuf refuses the request.

use std::sync::Arc;

use super::protobuf::{Field, WireError, WireReader, unzigzag};
use super::{DecodeError, DecodeLimits};
use crate::model::{
    BucketSpan, CounterReset, Histogram, HistogramCounts, HistogramError, HistogramSample, HistogramShape,
    Timestamp, WriteBatch, counts_from_deltas,
};

const HISTOGRAM: &str = "Histogram";
const SPAN: &str = "BucketSpan";

/// Adds a histogram of the series that is being decoded. That series is not in the batch yet and
/// will get the next index. `buckets` counts the bucket entries of the whole request. Returns the
/// start timestamp in milliseconds as it was sent; 0 means that there is none.
///
/// # Errors
/// [`DecodeError`], if the message is malformed or a limit is exceeded. An invalid histogram is not
/// an error here: its sample carries the [`HistogramError`].
pub(super) fn add(
    batch: &mut WriteBatch<'_>,
    message: &[u8],
    limits: &DecodeLimits,
    buckets: &mut usize,
) -> Result<i64, DecodeError> {
    check_count("histograms", batch.histograms.len(), limits.histograms_max)?;
    let mut parts =
        HistogramFields { buckets: *buckets, buckets_max: limits.buckets_max, ..HistogramFields::default() };
    parts.read(message)?;
    *buckets = parts.buckets;
    let (at, start_ms) = (Timestamp::from_ms(parts.at_ms), parts.start_ms);
    batch.histograms.push(HistogramSample { series: batch.series.len(), at, value: parts.build() });
    Ok(start_ms)
}

/// Decodes a histogram by itself, and returns its time. `buckets` counts the bucket entries of the
/// whole response, of which there are at most `buckets_max`.
///
/// # Errors
/// Those of [`add`].
pub(super) fn decode(
    message: &[u8],
    buckets_max: usize,
    buckets: &mut usize,
) -> Result<(Timestamp, Result<Histogram, HistogramError>), DecodeError> {
    let mut parts = HistogramFields { buckets: *buckets, buckets_max, ..HistogramFields::default() };
    parts.read(message)?;
    *buckets = parts.buckets;
    Ok((Timestamp::from_ms(parts.at_ms), parts.build()))
}

/// Checks that one more entry fits `allowed`, where `count` exist already.
///
/// # Errors
/// [`DecodeError::TooLarge`].
pub(super) fn check_count(what: &'static str, count: usize, allowed: usize) -> Result<(), DecodeError> {
    if count < allowed {
        return Ok(());
    }
    Err(DecodeError::TooLarge { what, found: count.saturating_add(1), allowed })
}

/// The fields of a `Histogram`.
#[derive(Default)]
struct HistogramFields {
    at_ms: i64,
    start_ms: i64,
    count: u64,
    /// `Some` means that the histogram has float counts.
    float_count: Option<f64>,
    zero: u64,
    float_zero: f64,
    sum: f64,
    schema: i64,
    zero_threshold: f64,
    reset: u64,
    custom_values: Vec<f64>,
    positive: BucketFields,
    negative: BucketFields,
    /// Bucket entries of the request so far, and their limit.
    buckets: usize,
    buckets_max: usize,
}

/// Buckets of one sign.
#[derive(Default)]
struct BucketFields {
    spans: Vec<BucketSpan>,
    deltas: Vec<i64>,
    counts: Vec<f64>,
}

impl HistogramFields {
    fn read(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                1 => (self.count, self.float_count) = (field.uint64(HISTOGRAM)?, None),
                2 => self.float_count = Some(field.double(HISTOGRAM)?),
                3 => self.sum = field.double(HISTOGRAM)?,
                4 => self.schema = unzigzag(field.uint64(HISTOGRAM)?),
                5 => self.zero_threshold = field.double(HISTOGRAM)?,
                6 => self.zero = field.uint64(HISTOGRAM)?,
                7 => self.float_zero = field.double(HISTOGRAM)?,
                8..=13 => self.bucket_fields(&field)?,
                14 => self.reset = field.uint64(HISTOGRAM)?,
                15 => self.at_ms = field.int64(HISTOGRAM)?,
                16 => field.doubles(HISTOGRAM, |bound| {
                    count_entry(&mut self.buckets, self.buckets_max)?;
                    self.custom_values.push(bound);
                    Ok::<_, DecodeError>(())
                })?,
                17 => self.start_ms = field.int64(HISTOGRAM)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads one of the fields 8 to 13: 8 to 10 are negative, 11 to 13 positive spans, deltas and
    /// counts.
    fn bucket_fields(&mut self, field: &Field<'_>) -> Result<(), DecodeError> {
        let HistogramFields { positive, negative, buckets, buckets_max, .. } = self;
        let (bucket_fields, number) = match field.number.checked_sub(11) {
            Some(number) => (positive, number),
            None => (negative, field.number.saturating_sub(8)),
        };
        match number {
            0 => {
                count_entry(buckets, *buckets_max)?;
                bucket_fields.spans.push(span(field.bytes(HISTOGRAM)?)?);
            }
            1 => field.varints(HISTOGRAM, |delta| {
                count_entry(buckets, *buckets_max)?;
                bucket_fields.deltas.push(unzigzag(delta));
                Ok::<_, DecodeError>(())
            })?,
            _ => field.doubles(HISTOGRAM, |count| {
                count_entry(buckets, *buckets_max)?;
                bucket_fields.counts.push(count);
                Ok::<_, DecodeError>(())
            })?,
        }
        Ok(())
    }

    /// Builds the histogram.
    ///
    /// # Errors
    /// [`HistogramError`], if the shape is invalid or the number of buckets does not fit the spans.
    fn build(self) -> Result<Histogram, HistogramError> {
        let schema = i32::try_from(self.schema).map_err(|_| HistogramError::Schema(i32::MAX))?;
        let BucketFields { spans: positive, deltas: positive_deltas, counts: positive_counts } =
            self.positive;
        let BucketFields { spans: negative, deltas: negative_deltas, counts: negative_counts } =
            self.negative;
        let shape = HistogramShape::new(schema, self.zero_threshold, self.custom_values, positive, negative)?;
        // Each side is checked separately, so that surplus buckets of one side cannot compensate
        // for missing ones of the other.
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
        // Unknown hints mean no hint.
        let reset = u8::try_from(self.reset).ok().and_then(CounterReset::from_number).unwrap_or_default();
        Histogram::new(Arc::new(shape), reset, self.sum, counts)
    }
}

fn count_entry(count: &mut usize, allowed: usize) -> Result<(), DecodeError> {
    check_count("histogram buckets", *count, allowed)?;
    *count = count.saturating_add(1);
    Ok(())
}

/// Decodes a `BucketSpan`.
pub(super) fn span(message: &[u8]) -> Result<BucketSpan, WireError> {
    let mut span = BucketSpan::default();
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            // Standard protobuf decoders truncate to the low 32 bits as well.
            1 => span.offset = low_i32(unzigzag(field.uint64(SPAN)?)),
            2 => span.length = low_u32(field.uint64(SPAN)?),
            _ => {}
        }
    }
    Ok(span)
}

const fn low_u32(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

const fn low_i32(value: i64) -> i32 {
    low_u32(value.cast_unsigned()).cast_signed()
}
