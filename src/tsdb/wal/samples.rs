//! The bodies of samples records.
//!
//! Version 2, which is written:
//! ```text
//! varint n, at most 1,048,576; i64 base time
//! runs {zigzag gap to the next series id, varint length} covering n    the first gap is from 0
//! runs {zigzag time step, varint length} covering n    the first step is from the base time
//! groups of 64 values, the last one shorter:
//!     one code of 4 bits per value, the first value in the low half of the first byte,
//!     zero bits to a whole byte
//!     the bytes of each value
//! code 0..8      the bit pattern, big-endian, without its 8 - code low zero bytes
//! code 9..14     an unsigned whole number in code - 8 bytes, low byte first
//! code 15        an unsigned number of thousandths in 4 bytes, low byte first;
//!                the value is that number / 1000
//! ```
//! Samples are mostly sorted by series id, and the samples of one series keep their sender's order.
//! One scrape therefore has few runs of either kind: gaps of 1, steps of 0. Each body decodes alone
//! and refers to no other record, so damage to one record never affects another.
//!
//! Version 1, which is still read, has the same counts and runs. Each value is `u8 tag`, then 0-8
//! bytes:
//! ```text
//! tag 0x80 | len             the bit pattern, big-endian, without its 8 - len low zero bytes
//! tag e << 4 | len, e 0..3   zigzag decimal mantissa m in len bytes, low first;
//!                            value = m / 10^e, the same bits
//! ```

use super::record::RecordKind;
use crate::tsdb::codec::{Reader, put_varint, put_zigzag, unscaled, unzigzag, whole_bytes, zigzag};
use crate::tsdb::error::Damage;

/// A sample of a log record, before it reaches the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSample {
    /// The number of the series within the organisation.
    pub series: u32,
    /// Milliseconds since the epoch.
    pub at_ms: i64,
    /// The bit pattern of the value.
    pub bits: u64,
}

/// The largest decimal exponent of a value in version 1.
const EXPONENT_MAX: u8 = 3;
/// The tag of a bit pattern without bytes in version 1.
const PATTERN: u8 = 0x80;
/// The upper bound of a value's bytes in either version, its tag or code included.
const VALUE_BYTES_MAX: usize = 9;
/// The number of values that share one block of codes.
const GROUP: usize = 64;
/// The code of a whole number without bytes. Such a number is written as a pattern instead.
const WHOLE: u8 = 8;
/// The limit of a whole number's bytes.
const WHOLE_BYTES_MAX: u32 = 6;
/// The code of a number of thousandths.
const THOUSANDTHS: u8 = 15;
/// The bytes of a number of thousandths.
const THOUSANDTHS_BYTES: u8 = 4;
/// The limit of a body's samples. Writers stay far below. A hostile count allocates at most 24 MiB.
const SAMPLES_MAX: usize = 1 << 20;
/// The upper bound of one sample's bytes: two runs of its own and a value, without the count.
pub(in crate::tsdb) const SAMPLE_BYTES_MAX: usize = 2 * (10 + 5) + VALUE_BYTES_MAX;

/// Appends a body of version 2, the version of [`RecordKind::Samples`].
pub(in crate::tsdb) fn encode(out: &mut Vec<u8>, samples: &[LogSample]) {
    let base = samples.first().map_or(0, |s| s.at_ms);
    put_varint(out, samples.len() as u64);
    out.extend_from_slice(&base.to_le_bytes());
    put_runs(out, samples, 0, |s| i64::from(s.series));
    put_runs(out, samples, base, |s| s.at_ms);
    put_values(out, samples);
}

fn put_runs(out: &mut Vec<u8>, samples: &[LogSample], base: i64, of: impl Fn(&LogSample) -> i64) {
    let mut before = base;
    let mut run: Option<(i64, u64)> = None;
    for sample in samples {
        let now = of(sample);
        let step = now.wrapping_sub(before);
        before = now;
        match &mut run {
            Some((same, length)) if *same == step => *length += 1,
            _ => {
                if let Some((step, length)) = run.replace((step, 1)) {
                    put_run(out, step, length);
                }
            }
        }
    }
    if let Some((step, length)) = run {
        put_run(out, step, length);
    }
}

#[inline]
fn put_run(out: &mut Vec<u8>, step: i64, length: u64) {
    match (u8::try_from(zigzag(step)), u8::try_from(length)) {
        (Ok(step @ ..0x80), Ok(length @ ..0x80)) => out.extend_from_slice(&[step, length]),
        _ => {
            put_zigzag(out, step);
            put_varint(out, length);
        }
    }
}

/// Encodes the values. Each group is built on the stack. A value is stored as eight bytes, and the
/// next value overwrites the surplus ones.
fn put_values(out: &mut Vec<u8>, samples: &[LogSample]) {
    for group in samples.chunks(GROUP) {
        let mut bytes = [0; GROUP / 2 + 8 * GROUP];
        let mut at = group.len().div_ceil(2);
        for (index, sample) in group.iter().enumerate() {
            let EncodedValue { code, length, word } = code(sample.bits);
            if let Some(value) = bytes.get_mut(at..at + 8) {
                value.copy_from_slice(&word.to_le_bytes());
            }
            if let Some(codes) = bytes.get_mut(index / 2) {
                *codes |= code << (4 * (index & 1));
            }
            at += usize::from(length);
        }
        out.extend_from_slice(bytes.get(..at).unwrap_or_default());
    }
}

/// A value's code, and its bytes: the low `length` bytes of `word`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EncodedValue {
    code: u8,
    length: u8,
    word: u64,
}

/// Returns the shortest encoding of a value. The exponent and the low zero bits identify whole
/// numbers without a branch. The division that identifies thousandths runs only for values with a
/// long pattern.
#[inline]
fn code(bits: u64) -> EncodedValue {
    const FRACTION_BITS: u32 = 52;
    let zeros = bits.trailing_zeros();
    let pattern = 8 - whole_bytes(zeros);
    // A negative value, a fraction below one, an infinity and a NaN all give an exponent that is
    // too large.
    let exponent = u32::try_from(bits >> FRACTION_BITS).unwrap_or(u32::MAX).wrapping_sub(1_023);
    let whole_length = u8::try_from(exponent / 8 + 1).unwrap_or(u8::MAX);
    let is_whole = (exponent < 8 * WHOLE_BYTES_MAX)
        & (zeros.wrapping_add(exponent) >= FRACTION_BITS)
        & (whole_length < pattern);
    if is_whole {
        let fraction = bits & ((1 << FRACTION_BITS) - 1) | 1 << FRACTION_BITS;
        let word = fraction.wrapping_shr(FRACTION_BITS.wrapping_sub(exponent));
        return EncodedValue { code: WHOLE + whole_length, length: whole_length, word };
    }
    if pattern > THOUSANDTHS_BYTES + 1
        && let Some(number) = thousandths(bits)
    {
        return EncodedValue { code: THOUSANDTHS, length: THOUSANDTHS_BYTES, word: u64::from(number) };
    }
    EncodedValue { code: pattern, length: pattern, word: bits.swap_bytes() }
}

/// Returns the number of thousandths whose quotient has the same bits.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a number out of range saturates, and the comparison then fails"
)]
fn thousandths(bits: u64) -> Option<u32> {
    let number = (f64::from_bits(bits) * 1_000.0 + 0.5) as u32;
    (of_thousandths(number) == bits).then_some(number)
}

#[inline]
fn of_thousandths(number: u32) -> u64 {
    (f64::from(number) / 1_000.0).to_bits()
}

/// Decodes the values of a body of version 2.
fn take_values(reader: &mut Reader<'_>, out: &mut [LogSample]) -> Result<(), Damage> {
    for group in out.chunks_mut(GROUP) {
        let codes = reader.take(group.len().div_ceil(2))?;
        for (pair, codes) in group.chunks_mut(2).zip(codes) {
            let mut rest = *codes;
            for sample in pair {
                sample.bits = take_coded(reader, rest & 0x0f)?;
                rest >>= 4;
            }
            if rest != 0 {
                // Only the last byte of a group with an odd number of values has unused bits.
                return Err(reader.damage("code without a value"));
            }
        }
    }
    Ok(())
}

#[inline]
fn take_coded(reader: &mut Reader<'_>, code: u8) -> Result<u64, Damage> {
    if code == THOUSANDTHS {
        return reader.u32().map(of_thousandths);
    }
    let is_whole = code > WHOLE;
    let word = reader.low_bytes(usize::from(if is_whole { code - WHOLE } else { code }))?;
    // A whole number has at most six bytes, so the conversion is exact.
    Ok(if is_whole { (word as f64).to_bits() } else { word.swap_bytes() })
}

/// Decodes a value of version 1. Computes both forms and selects one: the kind of the next value
/// cannot be predicted, and a mispredicted branch costs more than either form.
#[inline]
fn take_value(reader: &mut Reader<'_>) -> Result<u64, Damage> {
    let tag = reader.u8()?;
    let length = usize::from(tag & 0x0f);
    if length > 8 || (tag > EXPONENT_MAX << 4 | 0x0f && tag & 0xf0 != PATTERN) {
        return Err(reader.damage("unknown kind of value"));
    }
    let word = reader.low_bytes(length)?;
    let decimal = unscaled(unzigzag(word), tag >> 4 & EXPONENT_MAX).unwrap_or_default().to_bits();
    Ok(if tag & PATTERN == 0 { decimal } else { word.swap_bytes() })
}

/// Decodes the runs that cover `out`, and calls `set` for each sample with its value. Values are
/// counted from `base`.
#[inline]
fn take_runs(
    reader: &mut Reader<'_>,
    out: &mut [LogSample],
    base: i64,
    set: impl Fn(&mut LogSample, i64) -> bool,
) -> Result<(), Damage> {
    let mut value = base;
    let mut rest = out;
    while !rest.is_empty() {
        let step = reader.zigzag()?;
        let length = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
        let Some((run, after)) = rest.split_at_mut_checked(length).filter(|_| length > 0) else {
            return Err(reader.damage("runs do not cover the samples"));
        };
        let mut fits = true;
        for sample in run {
            value = value.wrapping_add(step);
            fits &= set(sample, value);
        }
        if !fits {
            return Err(reader.damage("series id over 32 bits"));
        }
        rest = after;
    }
    Ok(())
}

/// Replaces `out` with the samples of a body of kind [`RecordKind::Samples`] or
/// [`RecordKind::SamplesV1`].
///
/// # Errors
/// [`Damage`] if the body is invalid. The content of `out` is then unspecified.
pub(in crate::tsdb) fn decode(kind: RecordKind, body: &[u8], out: &mut Vec<LogSample>) -> Result<(), Damage> {
    let is_v1 = kind == RecordKind::SamplesV1;
    let mut reader = Reader::new(body);
    let count = if is_v1 { reader.count(1)? } else { take_count(&mut reader)? };
    let base = reader.i64()?;
    out.clear();
    out.resize(count, LogSample { series: 0, at_ms: 0, bits: 0 });
    take_runs(&mut reader, out, 0, |sample, series| {
        u32::try_from(series).map(|series| sample.series = series).is_ok()
    })?;
    take_runs(&mut reader, out, base, |sample, at_ms| {
        sample.at_ms = at_ms;
        true
    })?;
    if is_v1 {
        for sample in out {
            sample.bits = take_value(&mut reader)?;
        }
    } else {
        take_values(&mut reader, out)?;
    }
    reader.end()
}

/// Decodes the count of version 2, in which a sample takes at least half a byte.
fn take_count(reader: &mut Reader<'_>) -> Result<usize, Damage> {
    let count = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    if count > SAMPLES_MAX || count.div_ceil(2) > reader.left() {
        return Err(reader.damage("count beyond the body"));
    }
    Ok(count)
}

#[cfg(test)]
mod tests;
