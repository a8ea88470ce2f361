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
//! tag 0x80 | len             the bit pattern, big-endian, without its 8 - len low zero bytes
//! tag e << 4 | len, e 0..3   zigzag decimal mantissa m in len bytes, low first; value = m / 10^e, the same bits
//! ```
//! Decimals are read, and no longer written: they take 3.9 bytes where patterns take 5.0 (workload S), and 7.3 ns to be found
//! where patterns take 1.2. A log is trimmed soon, and each of its values is coded once and hardly ever read.

use crate::tsdb::bytes::{Reader, put_varint, put_zigzag, unscaled, unzigzag, whole_bytes, zigzag};
use crate::tsdb::error::Damage;

/// One sample on its way to the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct LogSample {
    pub(in crate::tsdb) series: u32,
    pub(in crate::tsdb) at_ms: i64,
    pub(in crate::tsdb) bits: u64,
}

/// Decimals that a value in the log may have.
const EXPONENT_MAX: u8 = 3;
/// The tag of a bit pattern without bytes.
const PATTERN: u8 = 0x80;
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

/// The bit pattern without its low zero bytes.
#[inline]
fn code(bits: u64) -> Coded {
    Coded { tag: PATTERN | (8 - whole_bytes(bits.trailing_zeros())), word: bits.swap_bytes() }
}

/// Both readings of a value are made and one is taken: which kind comes next cannot be foretold, and a wrong guess of
/// the processor costs more than either.
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
        // n 4, base 1,000 | gaps 5 x1, 1 x2, 0 x1 | steps 0 x3, 15 x1 | patterns 3ff8, c008, 7ff0, 0
        assert_eq!(hex, "04e803000000000000 0a0102020001 00031e01 823ff8 82c008 827ff0 80".replace(' ', ""));
    }

    #[test]
    fn decimals_that_earlier_versions_wrote_are_read() {
        // As above: 15/10, -3, pattern 7ff0, 0; and 1,234.567.
        let mut body = vec![5, 0xe8, 3, 0, 0, 0, 0, 0, 0, 0x0a, 1, 2, 4, 0, 5];
        body.extend_from_slice(&[0x11, 0x1e, 0x01, 0x05, 0x82, 0x7f, 0xf0, 0x00, 0x33, 0x0e, 0xad, 0x25]);
        let mut samples = Vec::new();
        assert_eq!(decode(&body, &mut samples), Ok(()));
        let values: Vec<f64> = samples.iter().map(|sample| f64::from_bits(sample.bits)).collect();
        assert_eq!(values, [1.5, -3.0, f64::INFINITY, 0.0, 1_234.567]);
    }

    #[test]
    fn a_scrape_is_small() {
        let samples: Vec<LogSample> =
            (0..2_000).map(|i| LogSample { series: i, at_ms: 0, bits: f64::from(i).to_bits() }).collect();
        let mut body = Vec::new();
        encode(&mut body, &samples);
        assert!(body.len() <= 2_000 * 4 + 40, "{} bytes", body.len());
    }
}
