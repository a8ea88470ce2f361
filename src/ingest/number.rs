//! Parsers of decimal numbers in text formats: sample values, whole milliseconds, seconds with
//! fractions.

/// The bits that `NaN` in a text is stored as: those of Prometheus' own parser.
pub(super) const NORMAL_NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0001);

/// Number of decimal digits whose every combination is below 2^53, and so exact in a double.
const EXACT_DIGITS: usize = 15;

/// The powers of ten that a double holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// The reason why a text is not a sample value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueError {
    NotANumber,
    /// The number is finite, and its absolute value is above that of the greatest double.
    OutOfRange,
}

impl ValueError {
    /// Returns the end of a sentence about the text.
    pub(super) const fn message(self) -> &'static str {
        match self {
            ValueError::NotANumber => "is not a number",
            ValueError::OutOfRange => "is out of range: the greatest value is about 1.8e308",
        }
    }
}

/// Parses a sample value: `12`, `-1.5e-3`, `.5`, `NaN`, `+Inf`, `infinity` in any letter case.
/// Rejects `0x10`, `1_000` and `1e999`. The result is the nearest double.
///
/// # Errors
/// [`ValueError`].
#[inline]
pub(super) fn parse_value(text: &str) -> Result<f64, ValueError> {
    match parse_short(text.as_bytes()) {
        Some(value) => Ok(value),
        None => parse_long(text),
    }
}

fn parse_long(text: &str) -> Result<f64, ValueError> {
    // The standard library has the same grammar and rounds to the nearest double, which is infinite
    // for numbers out of range.
    let value: f64 = text.parse().map_err(|_| ValueError::NotANumber)?;
    if value.is_infinite() && text.bytes().any(|byte| byte.is_ascii_digit()) {
        return Err(ValueError::OutOfRange);
    }
    Ok(if value.is_nan() { NORMAL_NAN } else { value })
}

#[inline]
fn parse_short(text: &[u8]) -> Option<f64> {
    let (value, length) = take_short(text)?;
    (length == text.len()).then_some(value)
}

/// Parses up to 15 digits with an optional point and exponent at the beginning of a text. Returns
/// the value and its length; `None` for anything else, which may be a number. The digits form an
/// integer below 2^53, which is multiplied or divided by a power of ten. Both are exact, so the
/// result is correctly rounded.
#[inline]
pub(super) fn take_short(text: &[u8]) -> Option<(f64, usize)> {
    let is_negative = text.first() == Some(&b'-');
    let mut at = usize::from(is_negative);
    let (mut number, mut digits, mut point) = (0_u64, 0_usize, None);
    let end = loop {
        let byte = text.get(at).copied().unwrap_or(0);
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
            digits = digits.wrapping_add(1);
        } else if byte == b'.' && point.is_none() {
            point = Some(digits);
        } else {
            break byte;
        }
        at = at.wrapping_add(1);
    };
    if digits == 0 || digits > EXACT_DIGITS {
        return None;
    }
    let (exponent, at) = match end {
        b'e' | b'E' => take_exponent(text, at)?,
        _ => (0, at),
    };
    let places = i32::try_from(point.map_or(0, |before| digits.wrapping_sub(before))).ok()?;
    let scale = exponent.wrapping_sub(places);
    #[expect(clippy::cast_precision_loss, reason = "fifteen digits are below 2^53")]
    let number = number as f64;
    let power = POWERS.get(usize::try_from(scale.unsigned_abs()).ok()?)?;
    let value = if scale < 0 { number / power } else { number * power };
    Some((if is_negative { -value } else { value }, at))
}

/// Parses an exponent of at most three digits; its letter is at `at`. Returns it and its end.
fn take_exponent(text: &[u8], at: usize) -> Option<(i32, usize)> {
    let (sign, digits) = match text.get(at.wrapping_add(1))? {
        b'-' => (-1, at.wrapping_add(2)),
        b'+' => (1, at.wrapping_add(2)),
        _ => (1, at.wrapping_add(1)),
    };
    let (mut exponent, mut at) = (0_i32, digits);
    while let Some(digit @ b'0'..=b'9') = text.get(at) {
        exponent = exponent.wrapping_mul(10).wrapping_add(i32::from(digit.wrapping_sub(b'0')));
        at = at.wrapping_add(1);
    }
    (1..=3).contains(&at.wrapping_sub(digits)).then_some((exponent.wrapping_mul(sign), at))
}

/// Parses whole milliseconds with an optional sign.
#[inline]
pub(super) fn parse_millis(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// Parses decimal seconds, such as `1520879607.789` or `1.5208796e9`, as milliseconds. Fractions of
/// a millisecond are rounded down (towards negative infinity), as for RFC 3339 here and in
/// Prometheus.
#[inline]
pub(super) fn parse_seconds(text: &str) -> Option<i64> {
    parse_scaled(text, 3)
}

/// Parses a decimal number times `10^scale`, rounded down to an integer. Returns `None` if the text
/// is not a number or the result has more than 63 bits.
pub(super) fn parse_scaled(text: &str, scale: i32) -> Option<i64> {
    let (text, exponent) = match text.split_once(['e', 'E']) {
        None => (text, 0),
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
    };
    let (negative, digits) = match text.as_bytes().split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text.as_bytes()),
    };
    let mut number: i64 = 0;
    let mut places: i32 = 0;
    let mut behind_point = false;
    let mut digits_seen = false;
    let mut full = false;
    for byte in digits {
        match byte {
            b'0'..=b'9' => {
                digits_seen = true;
                let digit = i64::from(byte.wrapping_sub(b'0'));
                let longer = number.checked_mul(10).and_then(|number| number.checked_add(digit));
                match longer.filter(|_| !full) {
                    Some(longer) => {
                        number = longer;
                        places = places.saturating_add(i32::from(behind_point));
                    }
                    // Eighteen digits hold every time; further decimals would only be rounded off.
                    None if behind_point => full = true,
                    None => return None,
                }
            }
            b'.' if !behind_point => behind_point = true,
            _ => return None,
        }
    }
    if !digits_seen {
        return None;
    }
    let number = if negative { number.checked_neg()? } else { number };
    let shift = exponent.checked_sub(places)?.checked_add(scale)?;
    if number == 0 {
        return Some(0);
    }
    let power = 10i64.checked_pow(shift.unsigned_abs());
    match (shift >= 0, power) {
        (true, power) => number.checked_mul(power?),
        (false, Some(power)) => number.checked_div_euclid(power),
        // The absolute value is below one unit of the result.
        (false, None) => Some(if negative { -1 } else { 0 }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_parse_as_in_prometheus() {
        let cases = [
            ("0", 0.0),
            ("-0", -0.0),
            ("12.47", 12.47),
            ("+12", 12.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("-1.7560473e+07", -1.756_047_3e7),
            ("4.7e-324", 4.7e-324),
            ("+Inf", f64::INFINITY),
            ("-inf", f64::NEG_INFINITY),
            ("Infinity", f64::INFINITY),
            ("999999999999999", 999_999_999_999_999.0),
            ("0.00000000000001", 1e-14),
            ("9007199254740993", 9_007_199_254_740_992.0),
            ("123456789012345e22", 1.234_567_890_123_45e36),
            ("1e22", 1e22),
            ("1e23", 1e23),
            ("0.00000000000001e-9", 1e-23),
            ("3E-0022", 3e-22),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_value(text).map(f64::to_bits), Ok(f64::to_bits(expected)), "{text}");
        }
        for text in ["NaN", "nan", "-NaN"] {
            assert_eq!(parse_value(text).map(f64::to_bits), Ok(NORMAL_NAN.to_bits()), "{text}");
        }
        for text in ["", "-", ".", "-.", "1.2.3", "0x10", "1_000", "1e", "e5", "--1", "1 ", "in", "١"] {
            assert_eq!(parse_value(text), Err(ValueError::NotANumber), "{text}");
        }
    }

    #[test]
    fn a_finite_number_out_of_range_is_no_infinity() {
        let digits = "9".repeat(400);
        for text in ["1e999", "-1e400", "1.8e308", "+2E308", &digits] {
            assert_eq!(parse_value(text), Err(ValueError::OutOfRange), "{text}");
        }
        assert_eq!(parse_value("1.7976931348623157e308"), Ok(f64::MAX));
        assert_eq!(parse_value("1e-999"), Ok(0.0));
    }

    #[test]
    fn seconds_are_exact_to_the_millisecond() {
        let cases = [
            ("0", Some(0)),
            ("1520879607.789", Some(1_520_879_607_789)),
            ("1520879607.7899999", Some(1_520_879_607_789)),
            ("1520879607.78999999999999999999999999", Some(1_520_879_607_789)),
            ("1.520879607789e9", Some(1_520_879_607_789)),
            ("1520879607789E-3", Some(1_520_879_607_789)),
            ("-1.5", Some(-1_500)),
            ("-0.0001", Some(-1)),
            ("+12", Some(12_000)),
            (".5", Some(500)),
            ("1e-99", Some(0)),
            ("9223372036854775", Some(9_223_372_036_854_775_000)),
            ("9223372036854776", None),
            ("1e99", None),
            ("99999999999999999999", None),
            ("", None),
            (".", None),
            ("-", None),
            ("1e", None),
            ("NaN", None),
            ("+Inf", None),
            ("1.2.3", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_seconds(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_double_round_trips_to_the_bit(bits: u64) {
            let double = f64::from_bits(bits);
            prop_assume!(!double.is_nan());
            for text in [format!("{double}"), format!("{double:e}")] {
                prop_assert_eq!(parse_value(&text).map(f64::to_bits), Ok(bits), "{}", text);
            }
        }

        #[test]
        fn short_numbers_parse_as_in_the_standard_library(
            text in "-?[0-9]{0,8}\\.?[0-9]{0,8}([eE][+-]?[0-9]{0,3})?",
        ) {
            prop_assume!(text.parse::<f64>().map_or(true, f64::is_finite));
            let expected = text.parse::<f64>().map_err(|_| ValueError::NotANumber);
            prop_assert_eq!(parse_value(&text).map(f64::to_bits), expected.map(f64::to_bits));
        }

        #[test]
        fn milliseconds_written_as_seconds_round_trip(ms in -4_102_444_800_000_i64..=4_102_444_800_000) {
            let sign = if ms < 0 { "-" } else { "" };
            let (s, rest) = (ms.unsigned_abs() / 1_000, ms.unsigned_abs() % 1_000);
            prop_assert_eq!(parse_seconds(&format!("{sign}{s}.{rest:03}")), Some(ms));
        }
    }
}
