//! The body of a samples record.
//!
//! ```text
//! varint n, i64 base time,
//! runs {zigzag gap to the next series id, varint length} covering n,      the first gap is from 0
//! runs {zigzag time step, varint length} covering n,                       the first step is from the base time
//! n values
//! ```
//! Samples are sorted by series id, those of one series in their sender's order, so that for one scrape both kinds of
//! runs are few: gaps of 1, steps of 0. A value is `u8 tag`, then 0-8 bytes:
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
/// Bytes that one sample takes at most: two runs of its own and a value, the count aside.
pub(in crate::tsdb) const SAMPLE_BYTES_MAX: usize = 2 * (10 + 5) + 9;

/// Appends the body.
pub(in crate::tsdb) fn encode(out: &mut Vec<u8>, samples: &[LogSample]) {
    let base = samples.first().map_or(0, |s| s.at_ms);
    put_varint(out, samples.len() as u64);
    out.extend_from_slice(&base.to_le_bytes());
    put_runs(out, samples, 0, |s| i64::from(s.series));
    put_runs(out, samples, base, |s| s.at_ms);
    for sample in samples {
        put_value(out, sample.bits);
    }
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
                    put_zigzag(out, step);
                    put_varint(out, length);
                }
            }
        }
    }
    if let Some((step, length)) = run {
        put_zigzag(out, step);
        put_varint(out, length);
    }
}

#[inline]
fn put_value(out: &mut Vec<u8>, bits: u64) {
    let value = f64::from_bits(bits);
    for exponent in 0..=EXPONENT_MAX {
        if let Some(mantissa) = scaled(value, exponent) {
            let coded = zigzag(mantissa);
            let length = 8 - whole_bytes(coded.leading_zeros());
            out.push(exponent << 4 | length);
            out.extend(coded.to_le_bytes().iter().take(usize::from(length)));
            return;
        }
    }
    let length = 8 - whole_bytes(bits.trailing_zeros());
    out.push(0x80 | length);
    out.extend(bits.to_be_bytes().iter().take(usize::from(length)));
}

fn take_value(reader: &mut Reader<'_>) -> Result<u64, Damage> {
    let tag = reader.u8()?;
    let length = usize::from(tag & 0x0f);
    let mut bytes = [0; 8];
    let place = bytes.get_mut(..length).ok_or_else(|| reader.damage("value over 8 bytes"))?;
    place.copy_from_slice(reader.take(length)?);
    match tag >> 4 {
        8 => Ok(u64::from_be_bytes(bytes)),
        exponent @ 0..=EXPONENT_MAX => {
            let value = unscaled(unzigzag(u64::from_le_bytes(bytes)), exponent);
            Ok(value.unwrap_or_default().to_bits())
        }
        _ => Err(reader.damage("unknown kind of value")),
    }
}

/// A column of steps in runs, walked value by value.
struct Runs<'a> {
    reader: Reader<'a>,
    value: i64,
    step: i64,
    left: u64,
}

impl<'a> Runs<'a> {
    /// Takes the runs that cover `count` off `reader`.
    fn cover(reader: &mut Reader<'a>, count: u64, base: i64) -> Result<Runs<'a>, Damage> {
        let runs = Runs { reader: *reader, value: base, step: 0, left: 0 };
        let mut covered = 0u64;
        while covered < count {
            reader.zigzag()?;
            let length = reader.varint()?;
            covered = match covered.checked_add(length) {
                Some(sum) if length > 0 && sum <= count => sum,
                _ => return Err(reader.damage("runs do not cover the samples")),
            };
        }
        Ok(runs)
    }

    #[inline]
    fn next(&mut self) -> Result<i64, Damage> {
        if self.left == 0 {
            self.step = self.reader.zigzag()?;
            self.left = self.reader.varint()?;
        }
        self.left = self.left.saturating_sub(1);
        self.value = self.value.wrapping_add(self.step);
        Ok(self.value)
    }
}

/// Replaces `out` with the samples of a body.
///
/// # Errors
/// [`Damage`] where it is none; `out` is then to be thrown away.
pub(in crate::tsdb) fn decode(body: &[u8], out: &mut Vec<LogSample>) -> Result<(), Damage> {
    out.clear();
    let mut reader = Reader::new(body);
    let count = reader.count(1)?;
    let base = reader.i64()?;
    let mut series = Runs::cover(&mut reader, count as u64, 0)?;
    let mut times = Runs::cover(&mut reader, count as u64, base)?;
    if count > reader.left() {
        return Err(reader.damage("count beyond the body"));
    }
    out.reserve(count);
    for _ in 0..count {
        let id = u32::try_from(series.next()?).map_err(|_| reader.damage("series id over 32 bits"))?;
        out.push(LogSample { series: id, at_ms: times.next()?, bits: take_value(&mut reader)? });
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
