//! The decoded values of one block, in few bytes that can be read in one pass.
//!
//! Integers and decimals are stored as distances from the least one, in 1, 2 or 4 bytes; all other
//! values as doubles. An encoding is used only after a check that it reproduces all bits. For a few
//! hundred values in the processor's cache, reading a distance takes 0.1 ns with wide registers and
//! 0.15 to 0.3 ns without, a double 0.36 ns, a decimal (which needs a division) 0.3 or 0.65 ns.
//! Decoding a value from its block takes 1.7 ns.

use std::ops::Range;

use crate::simd::simd_dispatch;

/// Adding this to a double below 2^51 leaves the nearest integer in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// Sums of integers below this bound are exact.
const EXACT: f64 = 2_251_799_813_685_248.0;

/// The powers of ten that are tried for decimals.
const POWERS: [f64; 7] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6];

/// The decoded values of a block.
#[derive(Debug)]
pub(super) struct DecodedColumn {
    digits: ColumnEncoding,
    /// The least integer.
    base: f64,
    power: f64,
    /// Whether the values are non-decreasing and without NaN.
    non_decreasing: bool,
}

/// The stored form of the values.
#[derive(Debug)]
enum ColumnEncoding {
    /// The number of values, all with these bits.
    Same(usize, u64),
    Bytes(Box<[u8]>),
    Words(Box<[u16]>),
    /// Distances of 0 or more.
    Longs(Box<[i32]>),
    Doubles(Box<[f64]>),
}

impl DecodedColumn {
    /// Encodes values in the fewest bytes.
    pub(super) fn of(values: &[f64]) -> DecodedColumn {
        let non_decreasing = non_decreasing(values);
        let as_they_are = |digits| DecodedColumn { digits, base: 0.0, power: 1.0, non_decreasing };
        let first = values.first().copied().unwrap_or_default().to_bits();
        if values.iter().all(|value| value.to_bits() == first) {
            return as_they_are(ColumnEncoding::Same(values.len(), first));
        }
        let integers = power_of(values).and_then(|power| Some((power, span(values, power, non_decreasing)?)));
        let Some((power, (least, most))) = integers else {
            return as_they_are(ColumnEncoding::Doubles(values.into()));
        };
        let distance = |value: &f64| whole(*value, power) - least;
        let digits = match most - least {
            // The distances are non-negative integers, as the check in `span` has shown.
            #[expect(clippy::cast_possible_truncation, reason = "up to 255")]
            most_distance if most_distance <= 255.0 => {
                ColumnEncoding::Bytes(values.iter().map(|v| distance(v) as u8).collect())
            }
            #[expect(clippy::cast_possible_truncation, reason = "up to 65,535")]
            most_distance if most_distance <= 65_535.0 => {
                ColumnEncoding::Words(values.iter().map(|v| distance(v) as u16).collect())
            }
            #[expect(clippy::cast_possible_truncation, reason = "up to 2^31 - 1")]
            most_distance if most_distance <= f64::from(i32::MAX) => {
                ColumnEncoding::Longs(values.iter().map(|v| distance(v) as i32).collect())
            }
            _ => return as_they_are(ColumnEncoding::Doubles(values.into())),
        };
        DecodedColumn { digits, base: least, power, non_decreasing }
    }

    /// Returns whether the values are non-decreasing and without NaN.
    pub(super) const fn non_decreasing(&self) -> bool {
        self.non_decreasing
    }

    pub(super) fn len(&self) -> usize {
        match &self.digits {
            ColumnEncoding::Same(count, _) => *count,
            ColumnEncoding::Bytes(digits) => digits.len(),
            ColumnEncoding::Words(digits) => digits.len(),
            ColumnEncoding::Longs(digits) => digits.len(),
            ColumnEncoding::Doubles(digits) => digits.len(),
        }
    }

    /// Returns the heap bytes of the column, the allocator's overhead included.
    pub(super) fn bytes(&self) -> usize {
        let digits = match &self.digits {
            ColumnEncoding::Same(..) => return 0,
            ColumnEncoding::Bytes(digits) => size_of_val(&**digits),
            ColumnEncoding::Words(digits) => size_of_val(&**digits),
            ColumnEncoding::Longs(digits) => size_of_val(&**digits),
            ColumnEncoding::Doubles(digits) => size_of_val(&**digits),
        };
        digits + 16
    }

    /// Appends the values with these indexes; returns false, and appends nothing, if the range
    /// exceeds the column.
    pub(super) fn take(&self, wanted: Range<usize>, out: &mut Vec<f64>) -> bool {
        simd_dispatch!(self.put_wanted(wanted, out))
    }

    #[inline(always)]
    fn put_wanted(&self, wanted: Range<usize>, out: &mut Vec<f64>) -> bool {
        match &self.digits {
            ColumnEncoding::Same(count, _) if wanted.end > *count || wanted.start > wanted.end => {
                return false;
            }
            ColumnEncoding::Same(_, bits) => out.resize(out.len() + wanted.len(), f64::from_bits(*bits)),
            ColumnEncoding::Bytes(digits) => {
                let Some(digits) = digits.get(wanted) else { return false };
                self.put(digits, out);
            }
            ColumnEncoding::Words(digits) => {
                let Some(digits) = digits.get(wanted) else { return false };
                self.put(digits, out);
            }
            ColumnEncoding::Longs(digits) => {
                let Some(digits) = digits.get(wanted) else { return false };
                self.put(digits, out);
            }
            ColumnEncoding::Doubles(digits) => {
                let Some(digits) = digits.get(wanted) else { return false };
                out.extend_from_slice(digits);
            }
        }
        true
    }

    /// Loads the memory of the values with these indexes into the processor's cache. The result has
    /// no meaning.
    pub(super) fn touch(&self, wanted: Range<usize>) -> bool {
        match &self.digits {
            ColumnEncoding::Same(..) => false,
            ColumnEncoding::Bytes(digits) => touch(digits, wanted),
            ColumnEncoding::Words(digits) => touch(digits, wanted),
            ColumnEncoding::Longs(digits) => touch(digits, wanted),
            ColumnEncoding::Doubles(digits) => touch(digits, wanted),
        }
    }

    #[inline(always)]
    fn put<D: Copy + Into<f64>>(&self, digits: &[D], out: &mut Vec<f64>) {
        let DecodedColumn { base, power, .. } = *self;
        if power == 1.0 {
            out.extend(digits.iter().map(|digit| base + (*digit).into()));
        } else {
            out.extend(digits.iter().map(|digit| (base + (*digit).into()) / power));
        }
    }
}

/// Reads one value of each of the first cache lines of a range.
fn touch<D: Copy + Default + PartialEq>(digits: &[D], wanted: Range<usize>) -> bool {
    /// Bytes of a cache line. The processor prefetches the cache lines after the first few, since
    /// they are read in order.
    const LINE: usize = 64;
    const LINES: usize = 8;
    let digits = digits.get(wanted).unwrap_or_default();
    let lines = digits.iter().step_by(LINE / size_of::<D>().max(1)).take(LINES);
    lines.fold(false, |any, digit| any ^ (*digit == D::default()))
}

/// Returns whether the values are non-decreasing and without NaN.
pub fn non_decreasing(values: &[f64]) -> bool {
    values.first().is_none_or(|first| !first.is_nan()) && simd_dispatch!(is_in_order(values))
}

/// Returns whether each value is at least the previous one. A comparison with NaN is false.
#[inline(always)]
fn is_in_order(values: &[f64]) -> bool {
    // Values are compared in chunks, without a branch for each.
    let later = values.get(1..).unwrap_or_default();
    let in_order = |before: &[f64], after: &[f64]| {
        before.iter().zip(after).fold(true, |all, (before, value)| all & (value >= before))
    };
    values.chunks(64).zip(later.chunks(64)).all(|(before, after)| in_order(before, after))
}

/// Returns the integer nearest to `value * power`. The result has no meaning if that is 2^51 or
/// more.
fn whole(value: f64, power: f64) -> f64 {
    (value * power + ROUND) - ROUND
}

/// Returns the least power of ten that makes integers of a sample of the values.
fn power_of(values: &[f64]) -> Option<f64> {
    let few = || values.iter().step_by(values.len().div_ceil(16).max(1));
    let fits = |power: &f64| few().all(|value| (whole(*value, *power) / power).to_bits() == value.to_bits());
    POWERS.iter().copied().find(fits)
}

/// Returns the least and the greatest integer, if all values are reproduced bit for bit from the
/// integers that the power gives.
fn span(values: &[f64], power: f64, non_decreasing: bool) -> Option<(f64, f64)> {
    // A division takes as long as all other operations together.
    let all = if power == 1.0 {
        all_by(values, |value| (value + ROUND) - ROUND, |whole| whole)
    } else {
        all_by(values, |value| whole(value, power), |whole| whole / power)
    };
    if !all {
        return None;
    }
    let wholes = || values.iter().map(|value| whole(*value, power));
    let (least, most) = if non_decreasing {
        (wholes().next()?, wholes().next_back()?)
    } else {
        wholes().fold((f64::MAX, f64::MIN), |(least, most), whole| {
            (if whole < least { whole } else { least }, if whole > most { whole } else { most })
        })
    };
    (least > -EXACT && most < EXACT).then_some((least, most))
}

/// Returns whether `down(up(value))` reproduces the bits of each value, and none of the integers is
/// NaN.
fn all_by(values: &[f64], up: impl Fn(f64) -> f64, down: impl Fn(f64) -> f64) -> bool {
    let wrong = values.iter().fold(0, |wrong, value| {
        let whole = up(*value);
        // A NaN may be reproduced bit for bit, but has no distance.
        wrong | down(whole).to_bits() ^ value.to_bits() | u64::from(whole.is_nan())
    });
    wrong == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits(values: &[f64]) -> Vec<u64> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    fn roundtrip(values: &[f64], wanted: Range<usize>) -> Vec<u64> {
        let column = DecodedColumn::of(values);
        assert_eq!(column.len(), values.len());
        // Values that are in the output already must stay.
        let mut out = vec![-1.0];
        assert!(column.take(wanted, &mut out), "as many as asked for");
        bits(out.get(1..).unwrap_or_default())
    }

    #[test]
    fn every_encoding_preserves_the_bits() {
        let stale = f64::from_bits(0x7ff0_0000_0000_0002);
        let forms: [(&str, Vec<f64>); 13] = [
            ("same", vec![stale; 720]),
            ("bytes", (0..720).map(|i| f64::from(i / 3) - 100.0).collect()),
            ("words", (0..720).map(|i| 1e12 + f64::from(i * 90)).collect()),
            ("longs", (0..720).map(|i| f64::from(i * 2_000_000)).collect()),
            ("doubles by distance", (0..720).map(|i| f64::from(i) * 1e10).collect()),
            ("cents", (0..720).map(|i| f64::from(i * 7) / 100.0).collect()),
            ("minus zero", vec![0.0, -0.0, 1.0]),
            ("infinite", vec![1.0, f64::INFINITY, f64::NEG_INFINITY]),
            ("no number", vec![1.0, f64::NAN, stale]),
            ("quietly no number", vec![1.0, f64::NAN, 3.0]),
            ("tiny", vec![1.0, f64::from_bits(1), f64::MIN_POSITIVE]),
            ("huge", vec![f64::MAX, f64::MIN, 1.0]),
            ("beyond what is exact", vec![2_251_799_813_685_248.0, 4_503_599_627_370_497.0, 1.0]),
        ];
        for (name, values) in forms {
            assert_eq!(roundtrip(&values, 0..values.len()), bits(&values), "{name}");
            assert_eq!(roundtrip(&values, 1..2), bits(&values[1..2]), "{name}");
            assert_eq!(roundtrip(&values, 1..1), Vec::<u64>::new(), "{name}");
            assert!(!DecodedColumn::of(&values).take(0..values.len() + 1, &mut Vec::new()), "{name}");
        }
    }

    #[test]
    fn a_counter_takes_two_bytes_per_value_and_a_constant_none() {
        let counter: Vec<f64> = (0..720).map(|i| 123_456_789.0 + f64::from(i * 15)).collect();
        assert_eq!(DecodedColumn::of(&counter).bytes(), 720 * 2 + 16);
        assert_eq!(DecodedColumn::of(&vec![17.5; 720]).bytes(), 0);
        let seconds: Vec<f64> = (0..720).map(|i| f64::from(i * 1_475) / 100.0).collect();
        assert_eq!(DecodedColumn::of(&seconds).bytes(), 720 * 4 + 16);
        let any: Vec<f64> = (0..720).map(|i| 1.0 / f64::from(i + 3)).collect();
        assert_eq!(DecodedColumn::of(&any).bytes(), 720 * 8 + 16);
    }

    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![
            8 => (-1_000i32..1_000).prop_map(f64::from),
            4 => (-1_000_000i32..1_000_000).prop_map(|x| f64::from(x) / 100.0),
            2 => any::<i64>().prop_map(|x| f64::from_bits(x.cast_unsigned())),
            1 => any::<i32>().prop_map(|x| f64::from(x) * 4e6),
            1 => Just(-0.0),
            1 => Just(f64::NAN),
            1 => Just(f64::from_bits(0x7ff0_0000_0000_0002)),
        ]
    }

    proptest! {
        #[test]
        fn any_column_preserves_the_bits(
            values in prop_oneof![
                prop::collection::vec(value(), 1..200),
                prop::collection::vec((-100_000i32..100_000).prop_map(|x| f64::from(x) / 1_000.0), 1..200),
                prop::collection::vec(any::<i32>().prop_map(f64::from), 1..200),
            ],
            from in 0usize..200,
            to in 0usize..200,
        ) {
            let to = to.min(values.len());
            let from = from.min(to);
            prop_assert_eq!(roundtrip(&values, from..to), bits(&values[from..to]));
            let non_decreasing = values.windows(2).all(|two| two[0] <= two[1]) && !values[0].is_nan();
            prop_assert_eq!(DecodedColumn::of(&values).non_decreasing(), non_decreasing);
        }
    }
}
