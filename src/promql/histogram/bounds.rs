//! The bounds of buckets, equal to those of Prometheus to the last bit.

use crate::model::CUSTOM_BUCKETS_SCHEMA;

/// Returns the inclusive upper bound of the bucket `index`. For custom buckets, a negative index
/// returns `-Inf`, and an index past the last bound `+Inf`.
pub(super) fn upper_bound(schema: i32, custom: &[f64], index: i32) -> f64 {
    if schema != CUSTOM_BUCKETS_SCHEMA {
        return exponential(schema, index);
    }
    match usize::try_from(index) {
        Ok(index) => custom.get(index).copied().unwrap_or(f64::INFINITY),
        Err(_) => f64::NEG_INFINITY,
    }
}

/// Returns `2^(index * 2^-schema)`, in which `f64::MAX` replaces 2^1024.
fn exponential(schema: i32, index: i32) -> f64 {
    let Ok(bits) = u32::try_from(schema) else {
        // The bounds of the schemas below 0 are powers of two.
        let wide = i64::from(index) << schema.unsigned_abs().min(31);
        // The bucket of the greatest doubles ends at `f64::MAX`, as in Prometheus, not at infinity.
        return if wide == 1_024 { f64::MAX } else { scaled(1.0, wide) };
    };
    let within = index & ((1 << bits) - 1);
    let exponent = i64::from(index >> bits) + 1;
    let fraction = fraction(bits, within);
    if within == 0 && exponent == 1_025 {
        return f64::MAX;
    }
    scaled(fraction, exponent)
}

/// Returns `2^(part / 2^bits - 1)`, in `[0.5, 1)`.
///
/// Prometheus keeps these values in a table. Multiplying roots of two, the coarsest first, yields
/// the same doubles to the last bit, provided that the root of one half is computed as
/// `1 / sqrt(2)`, which is one unit in the last place away from the nearest double.
fn fraction(bits: u32, part: i32) -> f64 {
    /// `1 / sqrt(2)` as the rounded quotient of two doubles.
    const ROOT_OF_HALF: f64 = 1.0 / std::f64::consts::SQRT_2;
    let mut root = std::f64::consts::SQRT_2;
    let mut value = 0.5;
    for level in (0..bits).rev() {
        let coarsest = level + 1 == bits;
        if part >> level & 1 == 1 {
            value = if coarsest { ROOT_OF_HALF } else { value * root };
        }
        root = root.sqrt();
    }
    value
}

/// Returns `fraction * 2^exponent`, rounded once even where the result is subnormal.
fn scaled(fraction: f64, exponent: i64) -> f64 {
    let exponent = exponent.clamp(-2_200, 2_200);
    let power = |exponent: i64| {
        let biased = u64::try_from(exponent.clamp(-1_022, 1_023) + 1_023).unwrap_or(0);
        f64::from_bits(biased << 52)
    };
    let mut value = fraction;
    let mut left = exponent;
    while left > 1_000 {
        value *= power(1_000);
        left -= 1_000;
    }
    // Stay among the normal numbers first, so that only the last multiplication rounds.
    while left < -1_000 {
        let step = if left < -1_900 { 900 } else { left.abs() - 900 };
        if value * power(-step) == 0.0 {
            return 0.0;
        }
        value *= power(-step);
        left += step;
    }
    value * power(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_equal_those_of_prometheus() {
        // Bounds from responses of Prometheus.
        let cases = [
            (0, 0, 1.0),
            (0, 1, 2.0),
            (0, -1, 0.5),
            (2, 1, 1.189_207_115_002_721),
            (2, -3, 0.594_603_557_501_360_5),
            (3, 1, 1.090_507_732_665_257_7),
            (8, 255, 1.994_592_112_170_939_6),
            (-1, 1, 4.0),
            (-4, 1, 65_536.0),
            (-4, -1, 0.000_015_258_789_062_5),
            (0, 1_023, 8.988_465_674_311_58e307),
            (0, 1_024, f64::MAX),
            (2, 4_096, f64::MAX),
            (-4, 64, f64::MAX),
            (0, -1_074, 5e-324),
            (0, -1_080, 0.0),
            (0, i32::MAX, f64::INFINITY),
            (0, i32::MIN, 0.0),
            (-4, i32::MIN, 0.0),
        ];
        for (schema, index, bound) in cases {
            assert_eq!(upper_bound(schema, &[], index).to_bits(), f64::to_bits(bound), "{schema} {index}");
        }
        assert_eq!(upper_bound(1, &[], 1).to_string(), "1.414213562373095");
    }

    #[test]
    fn bounds_of_a_coarser_schema_are_bounds_of_a_finer_one() {
        for schema in -3..=8 {
            for index in -700..700 {
                let (coarse, fine) =
                    (upper_bound(schema - 1, &[], index), upper_bound(schema, &[], index * 2));
                assert_eq!(coarse.to_bits(), fine.to_bits(), "{schema} {index}");
                assert!(upper_bound(schema, &[], index * 2 - 1) <= fine);
            }
        }
    }

    #[test]
    fn custom_buckets_reach_from_infinity_to_infinity() {
        let bounds = [-1.0, 2.5];
        let found: Vec<f64> = (-1..4).map(|i| upper_bound(CUSTOM_BUCKETS_SCHEMA, &bounds, i)).collect();
        assert_eq!(found, [f64::NEG_INFINITY, -1.0, 2.5, f64::INFINITY, f64::INFINITY]);
    }
}
