//! The body of a samples record.
//!
//! ```text
//! varint n, i64 base time,
//! runs {zigzag gap to the next series id, varint length} covering n,      the first gap is from 0
//! runs {zigzag time step, varint length} covering n,                       the first step is from the base time
//! n values
//! ```
//! Samples are mostly sorted by series id, those of one series in their sender's order, so that for one scrape both kinds
//! of runs are few: gaps of 1, steps of 0. A value is `u8 tag`, then 0-8 bytes:
//! ```text
//! tag e << 4 | len, e 0..3   zigzag decimal mantissa m in len bytes, low first; value = m / 10^e, the same bits
//! tag 0x80 | len             the bit pattern, big-endian, without its 8 - len low zero bytes
//! ```

use crate::tsdb::bytes::{Reader, put_varint, put_zigzag, scaled, unscaled, unzigzag, whole_bytes, zigzag};
use crate::tsdb::error::Damage;

/// One sample on its way to the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct LogSample {
    pub(in crate::tsdb) series: u32,
    pub(in crate::tsdb) at_ms: i64,
    pub(in crate::tsdb) bits: u64,
}

/// Decimals that a value in the log may have: more digits are rare and cost time.
const EXPONENT_MAX: u8 = 3;
/// Bytes of a value at most.
const VALUE_BYTES_MAX: usize = 9;
/// Bytes that one sample takes at most: two runs of its own and a value, the count aside.
pub(in crate::tsdb) const SAMPLE_BYTES_MAX: usize = 2 * (10 + 5) + VALUE_BYTES_MAX;

/// Appends the body.
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
                if let Some(before) = run.replace((step, 1)) {
                    put_run(out, before);
                }
            }
        }
    }
    if let Some(last) = run {
        put_run(out, last);
    }
}

#[inline]
fn put_run(out: &mut Vec<u8>, (step, length): (i64, u64)) {
    match (u8::try_from(zigzag(step)), u8::try_from(length)) {
        (Ok(step @ ..0x80), Ok(length @ ..0x80)) => out.extend_from_slice(&[step, length]),
        _ => {
            put_zigzag(out, step);
            put_varint(out, length);
        }
    }
}

/// Values go through a piece on the stack, each written as nine bytes of which the next one covers what is too much.
fn put_values(out: &mut Vec<u8>, samples: &[LogSample]) {
    const PIECE: usize = 64;
    for samples in samples.chunks(PIECE) {
        let mut piece = [0; VALUE_BYTES_MAX * PIECE];
        let mut at = 0;
        for sample in samples {
            let Coded { tag, word } = code(sample.bits);
            if let Some([first, rest @ ..]) = piece.get_mut(at..at + VALUE_BYTES_MAX) {
                *first = tag;
                rest.copy_from_slice(&word.to_le_bytes());
            }
            at += 1 + usize::from(tag & 0x0f);
        }
        out.extend_from_slice(piece.get(..at).unwrap_or_default());
    }
}

/// A value's tag, and the bytes after it from the lowest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Coded {
    tag: u8,
    word: u64,
}

/// The shortest decimal, or the bit pattern.
#[inline]
fn code(bits: u64) -> Coded {
    // Below this, times 1,000, a value has a mantissa for some exponent exactly where it has one for the greatest: the
    // product is off by less than a half. So one attempt decides, and the others are divisions of a whole number.
    const ONE_ATTEMPT: f64 = 2_000_000_000_000.0;
    let value = f64::from_bits(bits);
    if value.abs() < ONE_ATTEMPT {
        return match scaled(value, EXPONENT_MAX) {
            Some(m) if m % 10 != 0 => decimal(3, m),
            Some(m) if m % 100 != 0 => decimal(2, m / 10),
            Some(m) if m % 1_000 != 0 => decimal(1, m / 100),
            Some(m) => decimal(0, m / 1_000),
            None => pattern(bits),
        };
    }
    code_by_trying(bits)
}

fn code_by_trying(bits: u64) -> Coded {
    let value = f64::from_bits(bits);
    let found = (0..=EXPONENT_MAX).find_map(|e| scaled(value, e).map(|mantissa| decimal(e, mantissa)));
    found.unwrap_or_else(|| pattern(bits))
}

#[inline]
fn decimal(exponent: u8, mantissa: i64) -> Coded {
    let word = zigzag(mantissa);
    Coded { tag: exponent << 4 | (8 - whole_bytes(word.leading_zeros())), word }
}

#[inline]
fn pattern(bits: u64) -> Coded {
    Coded { tag: 0x80 | (8 - whole_bytes(bits.trailing_zeros())), word: bits.swap_bytes() }
}

/// Both readings of a value are made and one is taken: which kind comes next cannot be foretold, and a wrong guess of
/// the processor costs more than either.
#[inline]
fn take_value(reader: &mut Reader<'_>) -> Result<u64, Damage> {
    let tag = reader.u8()?;
    let length = usize::from(tag & 0x0f);
    if length > 8 || (tag > EXPONENT_MAX << 4 | 0x0f && tag & 0xf0 != 0x80) {
        return Err(reader.damage("unknown kind of value"));
    }
    let word = reader.low_bytes(length)?;
    let decimal = unscaled(unzigzag(word), tag >> 4 & EXPONENT_MAX).unwrap_or_default().to_bits();
    Ok(if tag & 0x80 == 0 { decimal } else { word.swap_bytes() })
}

/// Takes the runs that cover `out` and hands each to `set` with its values, which begin after `base`.
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

/// Replaces `out` with the samples of a body.
///
/// # Errors
/// [`Damage`] where it is none; `out` is then to be thrown away.
pub(in crate::tsdb) fn decode(body: &[u8], out: &mut Vec<LogSample>) -> Result<(), Damage> {
    let mut reader = Reader::new(body);
    // Every sample has a byte of its own, so this allocates 24 times the body at most.
    let count = reader.count(1)?;
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
    for sample in out {
        sample.bits = take_value(&mut reader)?;
    }
    reader.end()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> impl Strategy<Value = LogSample> {
        let value =
            prop_oneof![any::<u64>(), (-100_000i32..100_000).prop_map(|n| (f64::from(n) / 100.0).to_bits())];
        (any::<u32>(), any::<i64>(), value).prop_map(|(series, at_ms, bits)| LogSample {
            series,
            at_ms,
            bits,
        })
    }

    proptest! {
        #[test]
        fn decode_after_encode_is_identity(samples in prop::collection::vec(sample(), 0..50)) {
            let mut body = Vec::new();
            encode(&mut body, &samples);
            prop_assert!(body.len() <= 20 + samples.len() * SAMPLE_BYTES_MAX);
            let mut back = Vec::new();
            prop_assert_eq!(decode(&body, &mut back), Ok(()));
            prop_assert_eq!(back, samples);
        }

        #[test]
        fn one_attempt_finds_what_trying_all_finds(
            bits: u64, whole in -3_000_000_000_000_i64..3_000_000_000_000, exponent in 0u8..8, ulps in -2i64..=2,
        ) {
            prop_assert_eq!(code(bits), code_by_trying(bits));
            // Decimals, and what lies beside them.
            let near = whole as f64 / 10f64.powi(i32::from(exponent));
            let bits = near.to_bits().wrapping_add_signed(ulps);
            prop_assert_eq!(code(bits), code_by_trying(bits), "{}", near);
        }

        #[test]
        fn a_reader_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes, &mut Vec::new());
        }
    }

    #[test]
    fn the_bytes_are_the_drawing() {
        let of = |series, at_ms, value: f64| LogSample { series, at_ms, bits: value.to_bits() };
        let mut body = Vec::new();
        encode(
            &mut body,
            &[of(5, 1_000, 1.5), of(6, 1_000, -3.0), of(7, 1_000, f64::INFINITY), of(7, 1_015, 0.0)],
        );
        let hex: String = body.iter().map(|b| format!("{b:02x}")).collect();
        // n 4, base 1,000 | gaps 5 x1, 1 x2, 0 x1 | steps 0 x3, 15 x1 | 15/10, -3, pattern 7ff0, 0
        assert_eq!(hex, "04e803000000000000 0a0102020001 00031e01 111e 0105 827ff0 00".replace(' ', ""));
    }

    #[test]
    fn a_scrape_is_small() {
        let samples: Vec<LogSample> = (0..2_000)
            .map(|i| LogSample { series: i, at_ms: 0, bits: (f64::from(i) / 10.0).to_bits() })
            .collect();
        let mut body = Vec::new();
        encode(&mut body, &samples);
        assert!(body.len() <= 2_000 * 3 + 40, "{} bytes", body.len());
    }
}
