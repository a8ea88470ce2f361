//! Decoders of chunks of samples.
//!
//! Every sample takes at least two bits, so the bytes of a chunk bound its samples.

use std::sync::Arc;

use super::bit_reader::{BitReader, XorValue};
use super::{ChunkError, ChunkKind, ChunkSample};
use crate::model::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, CounterReset, Histogram, HistogramCounts, HistogramShape,
    counts_from_deltas, is_stale,
};

/// Calls `each` with the time in milliseconds and the sample of each sample of a chunk, in order.
///
/// # Errors
/// [`ChunkError`] if the chunk is invalid or truncated, and those of `each`.
pub fn decode<E: From<ChunkError>>(
    kind: ChunkKind,
    data: &[u8],
    mut each: impl FnMut(i64, ChunkSample) -> Result<(), E>,
) -> Result<(), E> {
    let (count, rest) = data.split_first_chunk::<2>().ok_or(ChunkError::Truncated)?;
    let count = u16::from_be_bytes(*count);
    match kind {
        ChunkKind::Floats => decode_floats(count, rest, |at, value| each(at, ChunkSample::Float(value))),
        ChunkKind::Histograms | ChunkKind::FloatHistograms => {
            let (flags, rest) = rest.split_first().ok_or(ChunkError::Truncated)?;
            if count == 0 {
                return Ok(());
            }
            let mut bits = BitReader::new(rest);
            let shape = Arc::new(read_shape(&mut bits)?);
            let mut each = |at, histogram| each(at, ChunkSample::Native(histogram));
            match kind {
                ChunkKind::FloatHistograms => {
                    decode_float_histograms(count, &mut bits, &shape, *flags, &mut each)
                }
                _ => decode_histograms(count, &mut bits, &shape, *flags, &mut each),
            }
        }
    }
}

fn decode_floats<E: From<ChunkError>>(
    count: u16,
    data: &[u8],
    mut each: impl FnMut(i64, f64) -> Result<(), E>,
) -> Result<(), E> {
    let mut bits = BitReader::new(data);
    let (mut at, mut delta, mut value) = (0_i64, 0_i64, XorValue::default());
    for number in 0..count {
        match number {
            0 => {
                at = bits.varint()?;
                value = XorValue::new(bits.bits(64)?);
            }
            1 => {
                delta = bits.uvarint()?.cast_signed();
                at = at.wrapping_add(delta);
                bits.xor(&mut value)?;
            }
            _ => {
                bits.float_sample(&mut delta, &mut value)?;
                at = at.wrapping_add(delta);
            }
        }
        each(at, value.float())?;
    }
    Ok(())
}

/// Receives the time in milliseconds and the histogram of a sample.
type EachHistogram<'e, E> = dyn FnMut(i64, Histogram) -> Result<(), E> + 'e;

fn decode_histograms<E: From<ChunkError>>(
    count: u16,
    bits: &mut BitReader<'_>,
    shape: &Arc<HistogramShape>,
    flags: u8,
    each: &mut EachHistogram<'_, E>,
) -> Result<(), E> {
    let mut at = bits.varbit_int()?;
    let (mut total, mut zero) = (bits.varbit_uint()?, bits.varbit_uint()?);
    let mut sum = XorValue::new(bits.bits(64)?);
    // Each bucket is the difference to the bucket before it.
    let mut buckets = vec![0_i64; shape.buckets()];
    for bucket in &mut buckets {
        *bucket = bits.varbit_int()?;
    }
    let mut bucket_deltas = vec![0_i64; shape.buckets()];
    let (mut delta, mut total_delta, mut zero_delta) = (0_i64, 0_i64, 0_i64);
    for number in 0..count {
        if number > 0 {
            delta = delta.wrapping_add(bits.varbit_int()?);
            at = at.wrapping_add(delta);
            total_delta = total_delta.wrapping_add(bits.varbit_int()?);
            total = total.wrapping_add_signed(total_delta);
            zero_delta = zero_delta.wrapping_add(bits.varbit_int()?);
            zero = zero.wrapping_add_signed(zero_delta);
            bits.xor(&mut sum)?;
            if !is_stale(sum.float()) {
                for (bucket, delta) in buckets.iter_mut().zip(&mut bucket_deltas) {
                    *delta = delta.wrapping_add(bits.varbit_int()?);
                    *bucket = bucket.wrapping_add(*delta);
                }
            }
        }
        if is_stale(sum.float()) {
            each(at, Histogram::stale())?;
            continue;
        }
        let (positive, negative) =
            buckets.split_at_checked(shape.positive_buckets()).ok_or(ChunkError::Truncated)?;
        let mut counts = Vec::with_capacity(shape.buckets());
        for side in [positive, negative] {
            counts_from_deltas(side.iter().copied(), &mut counts).map_err(ChunkError::from)?;
        }
        let counts = HistogramCounts::Integer { count: total, zero, buckets: counts };
        let histogram = Histogram::new(Arc::clone(shape), reset(flags, number), sum.float(), counts);
        each(at, histogram.map_err(ChunkError::from)?)?;
    }
    Ok(())
}

fn decode_float_histograms<E: From<ChunkError>>(
    count: u16,
    bits: &mut BitReader<'_>,
    shape: &Arc<HistogramShape>,
    flags: u8,
    each: &mut EachHistogram<'_, E>,
) -> Result<(), E> {
    let mut at = bits.varbit_int()?;
    let mut total = XorValue::new(bits.bits(64)?);
    let mut zero = XorValue::new(bits.bits(64)?);
    let mut sum = XorValue::new(bits.bits(64)?);
    let mut buckets = vec![XorValue::default(); shape.buckets()];
    for bucket in &mut buckets {
        *bucket = XorValue::new(bits.bits(64)?);
    }
    let mut delta = 0_i64;
    for number in 0..count {
        if number > 0 {
            delta = delta.wrapping_add(bits.varbit_int()?);
            at = at.wrapping_add(delta);
            bits.xor(&mut total)?;
            bits.xor(&mut zero)?;
            bits.xor(&mut sum)?;
            if !is_stale(sum.float()) {
                for bucket in &mut buckets {
                    bits.xor(bucket)?;
                }
            }
        }
        if is_stale(sum.float()) {
            each(at, Histogram::stale())?;
            continue;
        }
        let counts = HistogramCounts::Float {
            count: total.float(),
            zero: zero.float(),
            buckets: buckets.iter().map(|bucket| bucket.float()).collect(),
        };
        let histogram = Histogram::new(Arc::clone(shape), reset(flags, number), sum.float(), counts);
        each(at, histogram.map_err(ChunkError::from)?)?;
    }
    Ok(())
}

/// Returns the reset hint of a sample. The flags of a chunk concern its first sample, because a
/// reset starts a new chunk.
const fn reset(flags: u8, number: u16) -> CounterReset {
    match (flags >> 6, number) {
        (3, _) => CounterReset::Gauge,
        (_, 1..) | (1, _) => CounterReset::NotReset,
        (2, _) => CounterReset::Reset,
        _ => CounterReset::Unknown,
    }
}

/// The biased exponent of a power of two in a single byte, less that byte.
const BIAS: u64 = 1_023 - 244;

fn read_shape(bits: &mut BitReader<'_>) -> Result<HistogramShape, ChunkError> {
    let zero_threshold = match bits.byte()? {
        0 => 0.0,
        255 => f64::from_bits(bits.bits(64)?),
        // A power of two: 0.5 * 2^(byte - 243).
        byte => f64::from_bits(u64::from(byte).saturating_add(BIAS) << 52),
    };
    let schema =
        i32::try_from(bits.varbit_int()?).map_err(|_| ChunkError::Invalid("a schema is too large"))?;
    let positive = read_spans(bits)?;
    let negative = read_spans(bits)?;
    let custom = if schema == CUSTOM_BUCKETS_SCHEMA { read_bounds(bits)? } else { Vec::new() };
    Ok(HistogramShape::new(schema, zero_threshold, custom, positive, negative)?)
}

/// Reads a number of entries, within the limit of a layout.
fn read_count(bits: &mut BitReader<'_>) -> Result<usize, ChunkError> {
    let count = usize::try_from(bits.varbit_uint()?).unwrap_or(usize::MAX);
    if count > HistogramShape::SPANS_MAX {
        return Err(ChunkError::Invalid("a histogram has too many spans or bounds"));
    }
    Ok(count)
}

fn read_spans(bits: &mut BitReader<'_>) -> Result<Vec<BucketSpan>, ChunkError> {
    let mut spans = Vec::new();
    for _ in 0..read_count(bits)? {
        let length = u32::try_from(bits.varbit_uint()?);
        let offset = i32::try_from(bits.varbit_int()?);
        let (Ok(length), Ok(offset)) = (length, offset) else {
            return Err(ChunkError::Invalid("a span is too large"));
        };
        spans.push(BucketSpan { offset, length });
    }
    Ok(spans)
}

fn read_bounds(bits: &mut BitReader<'_>) -> Result<Vec<f64>, ChunkError> {
    let mut bounds = Vec::new();
    for _ in 0..read_count(bits)? {
        // Multiples of 0.001 are one more than their thousandfold; 0 stands for a whole float.
        #[expect(clippy::cast_precision_loss, reason = "encoders store at most 25 bits")]
        bounds.push(match bits.varbit_uint()?.checked_sub(1) {
            None => f64::from_bits(bits.bits(64)?),
            Some(thousandths) => thousandths as f64 / 1_000.0,
        });
    }
    Ok(bounds)
}
