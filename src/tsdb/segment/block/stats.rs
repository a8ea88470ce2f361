//! What a block of values amounts to, so that long windows need not decode the blocks inside them: meant for blocks of
//! 512 samples or more.
//!
//! ```text
//!  0 u32 crc of {u32 series id, 4..64}    4 u16 samples    6 u16 stale markers among them
//!  8 f64 first   16 f64 last              24 f64 least     32 f64 greatest
//! 40 f64 sum, f64 what the sum lacks (together a double-double)
//! 56 u16 resets  58 i16 exponent of the greatest magnitude  60 i16 exponent of the lowest bit  62 u8 flags  63 zero
//!    flags: 1 a NaN that is no stale marker, 2 an infinity
//! ```
//! Stale markers are no values: all but `samples` is about the others. A reset is a value below the one before. Least and
//! greatest leave NaN out, and of values that compare equal keep the first, as the query's functions do. Where there is no
//! value at all, and for the sum where there is a NaN or an infinity, the numbers are NaN.
//!
//! The exponents say when the sum is exact and any order of adding gives the same bits: see [`BlockStats::sum_is_exact`].

use crate::model::STALE_NAN_BITS;
use crate::tsdb::bytes::Reader;
use crate::tsdb::error::Damage;

use super::{BLOCK_SAMPLES, set_crc};

/// Bytes of a record.
pub(crate) const STATS_BYTES: usize = 64;

const NAN: u8 = 1;
const INFINITE: u8 = 2;

/// Statistics of one block of values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockStats {
    pub(crate) samples: u16,
    pub(crate) stale: u16,
    pub(crate) first: f64,
    pub(crate) last: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
    pub(crate) sum: f64,
    pub(crate) sum_rest: f64,
    pub(crate) resets: u16,
    /// Of the greatest magnitude: 2^e <= |v| < 2^(e + 1); `i16::MIN` where all are 0.
    pub(crate) exponent_max: i16,
    /// Of the lowest bit set in any value; `i16::MAX` where all are 0.
    pub(crate) exponent_min: i16,
    pub(crate) has_nan: bool,
    pub(crate) has_infinity: bool,
}

/// The sum of two doubles and what rounding took from it, exactly (Knuth).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    let a_part = sum - b_part;
    (sum, (a - a_part) + (b - b_part))
}

/// Exponents of the highest and the lowest set bit of a finite value that is not 0.
fn exponents(value: f64) -> (i16, i16) {
    let pattern = value.to_bits();
    let (biased, fraction) = (pattern >> 52 & 0x7ff, pattern & ((1 << 52) - 1));
    // Subnormals have no hidden bit and the exponent of the smallest normals.
    let (mantissa, biased) = if biased == 0 { (fraction, 1) } else { (fraction | 1 << 52, biased) };
    let lowest = i16::try_from(biased).unwrap_or_default() - 1_075;
    let bit = |place: u32| lowest + i16::try_from(place).unwrap_or_default();
    (bit(63 - mantissa.leading_zeros()), bit(mantissa.trailing_zeros()))
}

impl BlockStats {
    /// Statistics of the bit patterns of one block: at most 1,024, the others are left out.
    pub(crate) fn of(patterns: &[u64]) -> BlockStats {
        let patterns = patterns.get(..BLOCK_SAMPLES).unwrap_or(patterns);
        let mut stats = BlockStats {
            samples: u16::try_from(patterns.len()).unwrap_or(u16::MAX),
            stale: 0,
            first: f64::NAN,
            last: f64::NAN,
            least: f64::NAN,
            greatest: f64::NAN,
            sum: 0.0,
            sum_rest: 0.0,
            resets: 0,
            exponent_max: i16::MIN,
            exponent_min: i16::MAX,
            has_nan: false,
            has_infinity: false,
        };
        let mut before = None;
        for value in patterns.iter().filter(|pattern| **pattern != STALE_NAN_BITS).map(|p| f64::from_bits(*p))
        {
            stats.add(value, before);
            before = Some(value);
        }
        stats.stale = u16::try_from(patterns.iter().filter(|pattern| **pattern == STALE_NAN_BITS).count())
            .unwrap_or(u16::MAX);
        if before.is_none() || stats.has_nan || stats.has_infinity {
            (stats.sum, stats.sum_rest) = (f64::NAN, f64::NAN);
        } else {
            (stats.sum, stats.sum_rest) = two_sum(stats.sum, stats.sum_rest);
        }
        stats
    }

    fn add(&mut self, value: f64, before: Option<f64>) {
        if before.is_none() {
            self.first = value;
        }
        self.last = value;
        self.resets += u16::from(before.is_some_and(|before| value < before));
        if value.is_nan() {
            self.has_nan = true;
            return;
        }
        if value < self.least || self.least.is_nan() {
            self.least = value;
        }
        if value > self.greatest || self.greatest.is_nan() {
            self.greatest = value;
        }
        if value.is_infinite() {
            self.has_infinity = true;
            return;
        }
        let (sum, lost) = two_sum(self.sum, value);
        self.sum = sum;
        self.sum_rest += lost;
        if value != 0.0 {
            let (highest, lowest) = exponents(value);
            self.exponent_max = self.exponent_max.max(highest);
            self.exponent_min = self.exponent_min.min(lowest);
        }
    }

    /// Whether `sum` and `sum_rest` are the sum without any rounding, and stay so when blocks of together `samples`
    /// samples with exponents no wider than these are added up in any order: every partial sum fits two doubles.
    pub(crate) fn sum_is_exact(&self, samples: u64) -> bool {
        if self.has_nan || self.has_infinity {
            return false;
        }
        let carry = i32::try_from(64 - samples.max(1).saturating_sub(1).leading_zeros()).unwrap_or(i32::MAX);
        let (greatest, lowest) = (i32::from(self.exponent_max), i32::from(self.exponent_min));
        let wide = greatest.saturating_add(1).saturating_add(carry.saturating_mul(2)).saturating_sub(lowest);
        // All zeros have no exponents. The sum of so many must not overflow either.
        greatest < lowest || wide <= 104 && greatest.saturating_add(carry) < 1_023
    }

    /// The record, for the block of this series.
    pub(crate) fn encode(&self, series: u32) -> [u8; STATS_BYTES] {
        let mut out = Vec::with_capacity(STATS_BYTES);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.samples.to_le_bytes());
        out.extend_from_slice(&self.stale.to_le_bytes());
        for value in [self.first, self.last, self.least, self.greatest, self.sum, self.sum_rest] {
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        out.extend_from_slice(&self.resets.to_le_bytes());
        out.extend_from_slice(&self.exponent_max.to_le_bytes());
        out.extend_from_slice(&self.exponent_min.to_le_bytes());
        out.push(if self.has_nan { NAN } else { 0 } | if self.has_infinity { INFINITE } else { 0 });
        out.push(0);
        set_crc(&mut out, 0, |rest| stats_crc(series, rest));
        let mut record = [0; STATS_BYTES];
        for (to, from) in record.iter_mut().zip(out) {
            *to = from;
        }
        record
    }

    /// Reads the record of a block of this series.
    ///
    /// # Errors
    /// [`Damage`] where it is none.
    pub(crate) fn decode(record: &[u8], series: u32) -> Result<BlockStats, Damage> {
        let mut reader = Reader::new(record);
        let crc = reader.u32()?;
        if record.len() != STATS_BYTES || stats_crc(series, reader.rest()) != crc {
            return Err(Damage::new(0, "wrong checksum of block statistics"));
        }
        let (samples, stale) = (reader.u16()?, reader.u16()?);
        let mut value = || reader.u64().map(f64::from_bits);
        let [first, last, least, greatest, sum, sum_rest] =
            [value()?, value()?, value()?, value()?, value()?, value()?];
        let resets = reader.u16()?;
        let mut exponent = || reader.u16().map(u16::cast_signed);
        let (exponent_max, exponent_min) = (exponent()?, exponent()?);
        let flags = reader.u8()?;
        Ok(BlockStats {
            samples,
            stale,
            first,
            last,
            least,
            greatest,
            sum,
            sum_rest,
            resets,
            exponent_max,
            exponent_min,
            has_nan: flags & NAN != 0,
            has_infinity: flags & INFINITE != 0,
        })
    }
}

fn stats_crc(series: u32, rest: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&series.to_le_bytes()), rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same(a: &BlockStats, b: &BlockStats) -> bool {
        a.encode(0) == b.encode(0)
    }

    /// The plain way, over the values without stale markers.
    fn plainly(patterns: &[u64]) -> (Vec<f64>, usize) {
        let values: Vec<f64> =
            patterns.iter().filter(|p| **p != STALE_NAN_BITS).map(|p| f64::from_bits(*p)).collect();
        let resets = values.windows(2).filter(|pair| pair[1] < pair[0]).count();
        (values, resets)
    }

    fn patterns() -> impl Strategy<Value = Vec<u64>> {
        let pattern = prop_oneof![
            4 => any::<u64>(),
            4 => (-1_000_000i64..1_000_000).prop_map(|x| (x as f64 / 8.0).to_bits()),
            1 => Just(STALE_NAN_BITS),
            1 => prop::sample::select(vec![0u64, 1, 1 << 63, 0x7ff0 << 48, 0xfff0 << 48, 0x7ff8 << 48]),
        ];
        prop::collection::vec(pattern, 1..200)
    }

    /// An integer as one.
    fn exactly(value: f64) -> i128 {
        format!("{value:.0}").parse().unwrap()
    }

    proptest! {
        #[test]
        fn statistics_are_those_of_the_values(patterns in patterns(), series: u32) {
            let stats = BlockStats::of(&patterns);
            let (values, resets) = plainly(&patterns);
            prop_assert_eq!(usize::from(stats.samples), patterns.len());
            prop_assert_eq!(usize::from(stats.stale), patterns.len() - values.len());
            prop_assert_eq!(usize::from(stats.resets), resets);
            let ends = |value: Option<&f64>| value.copied().unwrap_or(f64::NAN).to_bits();
            prop_assert_eq!(stats.first.to_bits(), ends(values.first()));
            prop_assert_eq!(stats.last.to_bits(), ends(values.last()));
            let numbers = || values.iter().copied().filter(|value| !value.is_nan());
            prop_assert_eq!(stats.least.to_bits(), numbers().reduce(|a, b| if b < a { b } else { a }).unwrap_or(f64::NAN).to_bits());
            prop_assert_eq!(stats.greatest.to_bits(), numbers().reduce(|a, b| if b > a { b } else { a }).unwrap_or(f64::NAN).to_bits());
            prop_assert_eq!(stats.has_nan, values.iter().any(|value| value.is_nan()));
            prop_assert_eq!(stats.has_infinity, values.iter().any(|value| value.is_infinite()));
            let record = stats.encode(series);
            prop_assert!(same(&BlockStats::decode(&record, series).unwrap(), &stats));
            prop_assert!(BlockStats::decode(&record, series ^ 1).is_err());
        }

        /// Eighths are exact as integers, so there is a true sum to compare with.
        #[test]
        fn a_sum_said_to_be_exact_is(values in prop::collection::vec(-(1i64 << 52)..1 << 52, 1..600), shift in 0u32..40) {
            let values: Vec<i64> = values.iter().enumerate().map(|(i, v)| if i % 3 == 0 { *v } else { v >> shift }).collect();
            let patterns: Vec<u64> = values.iter().map(|value| (*value as f64 / 8.0).to_bits()).collect();
            let stats = BlockStats::of(&patterns);
            prop_assert!(stats.sum_is_exact(values.len() as u64));
            let truth: i128 = values.iter().map(|value| i128::from(*value)).sum();
            // Both parts are integers times an eighth, and their sum is the truth, not near it.
            let rest = truth - exactly(stats.sum * 8.0);
            prop_assert_eq!(rest, exactly(stats.sum_rest * 8.0));
        }
    }

    #[test]
    fn a_sum_over_too_many_binades_is_not_said_to_be_exact() {
        let of =
            |values: &[f64]| BlockStats::of(&values.iter().map(|value| value.to_bits()).collect::<Vec<_>>());
        assert!(!of(&[1e300, 1e-300]).sum_is_exact(2));
        assert!(!of(&[f64::MAX, 1.0e308]).sum_is_exact(2));
        assert!(!of(&[1.0, f64::NAN]).sum_is_exact(2));
        assert!(of(&[0.0, -0.0]).sum_is_exact(2));
        assert!(of(&[5e-324, 5e-324]).sum_is_exact(2));
        assert_eq!(of(&[1e16, 1.0, -1e16]).sum, 1.0);
    }

    #[test]
    fn the_record_is_drawn_as_it_is() {
        let patterns = [3.0, 1.5, STALE, 8.0].map(f64::to_bits);
        let record = BlockStats::of(&patterns).encode(7);
        let mut drawn = vec![0; 4];
        drawn.extend_from_slice(&[4, 0, 1, 0]);
        for value in [3.0f64, 8.0, 1.5, 8.0, 12.5, 0.0] {
            drawn.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        drawn.extend_from_slice(&[1, 0, 3, 0, 0xff, 0xff, 0, 0]);
        assert_eq!(record[4..], drawn[4..]);
        assert_eq!(record[..4], stats_crc(7, &drawn[4..]).to_le_bytes());
        for bit in 0..8 * STATS_BYTES {
            let mut damaged = record;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(BlockStats::decode(&damaged, 7).is_err(), "bit {bit}");
        }
    }

    const STALE: f64 = f64::from_bits(STALE_NAN_BITS);
}
