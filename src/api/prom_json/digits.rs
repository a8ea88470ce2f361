//! The texts of numbers and times.
//!
//! All functions write into a buffer of fixed size at the index `end`, and return the index after
//! their text. They store whole words; the next text overwrites the excess bytes. Appending to a
//! growing body instead would cost a capacity check and a copy of variable length for each text,
//! which was measured to take longer than the conversion itself.

use crate::model::Timestamp;

/// The most bytes that a number or a time writes, with excess bytes. `-0.0000012345678901234567`
/// and `-9223372036854775.807` are shorter.
pub(super) const NUMBER_BYTES: usize = 32;

/// 2^53. Every smaller whole number is exact in a double, and no shorter text parses to that
/// double.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Writes `bytes` at `end`, and returns the end after the first `used` of them.
#[inline]
pub(super) fn put<const N: usize>(buf: &mut [u8], end: usize, bytes: &[u8; N], used: usize) -> usize {
    let place = buf.get_mut(end..).and_then(<[u8]>::first_chunk_mut::<N>);
    debug_assert!(place.is_some(), "{N} bytes at {end} of {}", buf.len());
    if let Some(place) = place {
        *place = *bytes;
    }
    end + used
}

/// Writes a text of at most 24 bytes as up to three words, which may overlap.
#[inline]
fn put_bytes(buf: &mut [u8], end: usize, text: &[u8]) -> usize {
    let (Some(head), Some(tail)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) else {
        return text.iter().fold(end, |end, byte| put(buf, end, &[*byte], 1));
    };
    let last = text.len() - 8;
    let middle = last.min(8);
    put(buf, end, head, 8);
    if let Some(bytes) = text.get(middle..).and_then(<[u8]>::first_chunk::<8>) {
        put(buf, end + middle, bytes, 8);
    }
    put(buf, end + last, tail, 8)
}

/// Writes a time in seconds with three decimals, or none if they are zero.
#[inline]
pub(super) fn time(buf: &mut [u8], end: usize, at: Timestamp) -> usize {
    let ms = at.as_ms();
    let end = put(buf, end, b"-", usize::from(ms < 0));
    let ms = ms.unsigned_abs();
    let end = integer(buf, end, ms / 1_000);
    match ms % 1_000 {
        0 => end,
        fraction => put(buf, end, &decimals(fraction), 4),
    }
}

/// Writes the value of a sample.
#[inline]
pub(super) fn number(buf: &mut [u8], end: usize, value: f64) -> usize {
    if !value.is_finite() {
        return match (value.is_nan(), value > 0.0) {
            (true, _) => put(buf, end, b"NaN", 3),
            (false, true) => put(buf, end, b"+Inf", 4),
            (false, false) => put(buf, end, b"-Inf", 4),
        };
    }
    let end = put(buf, end, b"-", usize::from(value.is_sign_negative()));
    let magnitude = value.abs();
    if magnitude < EXACT_MAX {
        if let Some(whole) = whole(magnitude) {
            return integer(buf, end, whole);
        }
        if magnitude < LONG.end
            && let Some(thousandths) = thousandths(magnitude)
        {
            return thousands(buf, end, thousandths);
        }
    }
    shortest(buf, end, magnitude)
}

/// Returns a magnitude below [`EXACT_MAX`] as a whole number, if it is one.
#[inline]
fn whole(magnitude: f64) -> Option<u64> {
    let whole = whole_part(magnitude);
    same(whole, magnitude).then_some(whole)
}

/// Returns a magnitude below the end of [`LONG`] as thousandths, if their quotient is that double.
/// A decimal of at most 15 digits determines one double, so no shorter text parses to it.
#[inline]
fn thousandths(magnitude: f64) -> Option<u64> {
    let thousandths = whole_part(magnitude * 1_000.0 + 0.5);
    same_quotient(thousandths, magnitude).then_some(thousandths)
}

/// Returns whether a value probably has 16 or 17 digits, as most rates and means have.
#[inline]
pub(super) fn is_long(value: f64) -> bool {
    let magnitude = value.abs();
    LONG.contains(&magnitude) && whole(magnitude).is_none() && thousandths(magnitude).is_none()
}

/// The magnitudes whose long shortest texts are written unchanged: they have a point and no
/// exponent. The texts of whole numbers in this range are shorter than `LONG_BYTES`.
const LONG: std::ops::Range<f64> = 1e-5..1e12;
/// The least bytes of a long text.
const LONG_BYTES: usize = 16;

/// Writes the values of samples, most of which are [long](is_long). `before(i)` writes the prefix
/// of value i; `after` is its suffix.
///
/// All values are converted before any text is copied. A processor stalls on bytes that it has just
/// written with stores of another width.
#[inline]
pub(super) fn numbers<const MOST: usize>(
    buf: &mut [u8],
    values: impl Iterator<Item = f64> + Clone,
    mut before: impl FnMut(&mut [u8], usize, usize) -> usize,
    after: &[u8; 2],
) -> usize {
    let mut decimals: [_; MOST] = std::array::from_fn(|_| zmij::Buffer::new());
    let mut texts: [&[u8]; MOST] = [b""; MOST];
    for ((value, decimal), text) in values.clone().zip(&mut decimals).zip(&mut texts) {
        if LONG.contains(&value.abs()) {
            *text = decimal.format_finite(value.abs()).as_bytes();
        }
    }
    let mut end = 0;
    for (index, (value, text)) in values.zip(texts).enumerate() {
        end = before(buf, end, index);
        end = if text.len() < LONG_BYTES {
            number(buf, end, value)
        } else {
            let end = put(buf, end, b"-", usize::from(value.is_sign_negative()));
            put_bytes(buf, end, text)
        };
        end = put(buf, end, after, after.len());
    }
    end
}

fn shortest(buf: &mut [u8], end: usize, magnitude: f64) -> usize {
    let mut decimal = zmij::Buffer::new();
    let shortest = decimal.format_finite(magnitude).as_bytes();
    // Most texts already have the final form, or lack only zeros. Their last bytes show which.
    if magnitude < 1e-6 {
        return match shortest {
            // Go's exponents have at least two digits.
            [.., b'e', b'-', digit] => {
                let end = put_bytes(buf, end, shortest);
                put(buf, end - 1, &[b'0', *digit], 2)
            }
            _ => put_bytes(buf, end, shortest),
        };
    }
    if let [first, rest @ .., b'e', b'-', b'6'] = shortest {
        let end = put(buf, end, b"0.00000", 7);
        let end = put(buf, end, &[*first], 1);
        return put_bytes(buf, end, rest.get(1..).unwrap_or_default());
    }
    if !(EXACT_MAX..1e21).contains(&magnitude) {
        return put_bytes(buf, end, shortest);
    }
    let mut plain = Vec::new();
    match shortest.iter().position(|byte| *byte == b'e') {
        Some(index) => {
            write_plain(&shortest[..index], exponent_of(&shortest[index + 1..]), &mut plain);
            put_bytes(buf, end, &plain)
        }
        None => put_bytes(buf, end, without_point(shortest)),
    }
}

/// Appends a magnitude without an exponent: up to 309 digits before the point, and up to 324 zeros
/// after it.
pub(super) fn fixed(magnitude: f64, out: &mut Vec<u8>) {
    let mut decimal = zmij::Buffer::new();
    let shortest = decimal.format_finite(magnitude).as_bytes();
    match shortest.iter().position(|byte| *byte == b'e') {
        Some(index) => write_plain(&shortest[..index], exponent_of(&shortest[index + 1..]), out),
        None => out.extend_from_slice(without_point(shortest)),
    }
}

fn without_point(text: &[u8]) -> &[u8] {
    text.strip_suffix(b".0").unwrap_or(text)
}

/// Returns the whole part of a number from zero to [`EXACT_MAX`].
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the result is the whole part, which has at most 53 bits"
)]
fn whole_part(value: f64) -> u64 {
    value as i64 as u64
}

/// Returns whether a number of at most 53 bits equals `value`.
#[inline]
#[expect(
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "within 53 bits the cast is exact, and the comparison must be exact"
)]
fn same(whole: u64, value: f64) -> bool {
    whole as f64 == value
}

/// Returns whether a number of at most 53 bits, divided by a thousand, rounds to `value`.
#[inline]
#[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "the comparison must be exact")]
fn same_quotient(thousandths: u64, value: f64) -> bool {
    thousandths as f64 / 1_000.0 == value
}

/// 10^8: eight digits hold every smaller number.
pub(super) const EIGHT: u64 = 100_000_000;
/// Eight ASCII characters `0`.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Writes a whole number, which has at most 20 digits.
#[inline]
pub(super) fn integer(buf: &mut [u8], end: usize, value: u64) -> usize {
    if value < EIGHT {
        return short(buf, end, value);
    }
    let (high, low) = (value / EIGHT, value % EIGHT);
    let end = if high < EIGHT { short(buf, end, high) } else { integer(buf, end, high) };
    put(buf, end, &eight_digits(low), 8)
}

/// Writes a number below 10^8 without leading zeros.
#[inline]
fn short(buf: &mut [u8], end: usize, value: u64) -> usize {
    let digits = eight(value);
    // The last digit is written even if it is zero.
    let zeros = (digits | 1 << 56).trailing_zeros() / 8;
    put(buf, end, &((digits | ZEROS) >> (zeros * 8)).to_le_bytes(), 8 - zeros as usize)
}

/// Returns the eight digits of a number below 10^8 as ASCII, with leading zeros.
#[inline]
pub(super) fn eight_digits(value: u64) -> [u8; 8] {
    (eight(value) | ZEROS).to_le_bytes()
}

/// Returns the eight digits of a number below 10^8, one per byte, the first digit in the lowest
/// byte. The number is split into halves, quarters and digits within one word. 10,486 / 2^20
/// approximates a hundredth and 103 / 2^10 a tenth, exactly enough for four and for two digits.
#[inline]
fn eight(value: u64) -> u64 {
    let fours = (value / 10_000) | ((value % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = hundreds | (fours - hundreds * 100) << 16;
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | (twos - tens * 10) << 8
}

/// Writes `n / 1000` without trailing zeros; `n` must not be a multiple of 1000.
#[inline]
fn thousands(buf: &mut [u8], end: usize, n: u64) -> usize {
    let end = integer(buf, end, n / 1_000);
    let decimals = decimals(n % 1_000);
    let zeros = usize::from(decimals[3] == b'0') + usize::from(decimals[2..] == *b"00");
    put(buf, end, &decimals, 4 - zeros)
}

/// Returns the point and three decimals of a number of thousandths: `.125` for 125.
#[inline]
fn decimals(thousandths: u64) -> [u8; 4] {
    [b'.', ascii(thousandths / 100), ascii(thousandths / 10), ascii(thousandths)]
}

#[inline]
fn ascii(digit: u64) -> u8 {
    b'0' + u8::try_from(digit % 10).unwrap_or(0)
}

/// Parses an exponent such as `-7`, `21` or `+21`.
fn exponent_of(text: &[u8]) -> i32 {
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    let magnitude = digits.fold(0, |value: i32, digit| value * 10 + i32::from(digit - b'0'));
    if text.first() == Some(&b'-') { -magnitude } else { magnitude }
}

/// Writes a mantissa and an exponent as a plain number: `1.25` and -7 as `0.000000125`.
fn write_plain(mantissa: &[u8], exponent: i32, out: &mut Vec<u8>) {
    let mut buf = [0; 32];
    let (digits, exponent) = digits(mantissa, exponent, &mut buf);
    plain(digits, exponent, out);
}

/// Copies the significant digits of `mantissa` to `digits`, without leading and trailing zeros.
/// There are at most 17. Returns them with the power of ten of the first one: `1.25` and -7 become
/// `125` and -7.
fn digits<'d>(mantissa: &[u8], exponent: i32, digits: &'d mut [u8; 32]) -> (&'d [u8], i32) {
    let (mut length, mut zeros, mut whole, mut after_point) = (0, 0, 0, false);
    for byte in mantissa {
        if *byte == b'.' {
            after_point = true;
            continue;
        }
        whole += i32::from(!after_point);
        if length == 0 && *byte == b'0' {
            zeros += 1;
        } else if let Some(slot) = digits.get_mut(length) {
            *slot = *byte;
            length += 1;
        }
    }
    let length = digits[..length].iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
    (&digits[..length], exponent + whole - zeros - 1)
}

fn plain(digits: &[u8], exponent: i32, out: &mut Vec<u8>) {
    let zeros =
        |count: i32, out: &mut Vec<u8>| out.resize(out.len() + usize::try_from(count).unwrap_or(0), b'0');
    let Ok(whole) = usize::try_from(exponent + 1) else {
        out.extend_from_slice(b"0.");
        zeros(-exponent - 1, out);
        out.extend_from_slice(digits);
        return;
    };
    if whole == 0 {
        out.extend_from_slice(b"0.");
        out.extend_from_slice(digits);
    } else if digits.len() <= whole {
        out.extend_from_slice(digits);
        zeros(i32::try_from(whole - digits.len()).unwrap_or(0), out);
    } else {
        out.extend_from_slice(&digits[..whole]);
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn to_text(put: impl FnOnce(&mut [u8]) -> usize) -> String {
        let mut buf = [b'#'; NUMBER_BYTES];
        let end = put(&mut buf);
        String::from_utf8(buf[..end].to_vec()).expect("ASCII")
    }

    #[test]
    fn numbers_around_powers_of_ten_have_the_right_digits() {
        let mut power: u64 = 1;
        loop {
            for value in [power - 1, power, power + 1, power / 2, power.saturating_mul(2)] {
                assert_eq!(to_text(|buf| integer(buf, 0, value)), value.to_string());
            }
            match power.checked_mul(10) {
                Some(next) => power = next,
                None => break,
            }
        }
        assert_eq!(to_text(|buf| integer(buf, 0, u64::MAX)), u64::MAX.to_string());
    }

    #[test]
    fn the_longest_numbers_and_times_fit_into_the_buffer() {
        for value in [-1.234_567_890_123_456_7e-6, -2.225_073_858_507_201_4e-308, -123_456_789_012_345.67] {
            assert_eq!(to_text(|buf| number(buf, 0, value)).parse(), Ok(value));
        }
        assert_eq!(to_text(|buf| number(buf, 0, -1e20)), "-100000000000000000000");
        for at in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
            let (seconds, ms) = (at.unsigned_abs() / 1_000, at.unsigned_abs() % 1_000);
            let fraction = if ms == 0 { String::new() } else { format!(".{ms:03}") };
            let sign = if at < 0 { "-" } else { "" };
            let expected = format!("{sign}{seconds}{fraction}");
            assert_eq!(to_text(|buf| time(buf, 0, Timestamp::from_ms(at))), expected);
        }
    }

    /// As in Go, an exponent has at least two digits, and numbers from 1e-6 up to 1e21 have none.
    #[test]
    fn only_very_small_and_very_large_numbers_have_an_exponent() {
        let cases = [
            (1e-6, "0.000001"),
            (9e-6, "0.000009"),
            (1.25e-6, "0.00000125"),
            (9.999_999_999_999_999e-6, "0.000009999999999999999"),
            (1e-5, "0.00001"),
            (1.234_567_890_123_456_8e-5, "0.000012345678901234568"),
            (9e-7, "9e-07"),
            (9.999_999_999_999_99e-7, "9.99999999999999e-07"),
            (1.5e-10, "1.5e-10"),
            (2.5e-100, "2.5e-100"),
            (5e-324, "5e-324"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (1e16, "10000000000000000"),
            (1.5e17, "150000000000000000"),
            (123_456_789_012_345_680_000.0, "123456789012345680000"),
            (999_999_999_999_999_900_000.0, "999999999999999900000"),
            (1e21, "1e+21"),
            (1.25e22, "1.25e+22"),
            (f64::MAX, "1.7976931348623157e+308"),
        ];
        for (value, expected) in cases {
            assert_eq!(to_text(|buf| number(buf, 0, value)), expected);
            assert_eq!(to_text(|buf| number(buf, 0, -value)), format!("-{expected}"));
        }
    }

    proptest! {
        /// The text has as many digits as the standard library's shortest one. The digits may
        /// differ: of two equally close texts the libraries choose different ones.
        #[test]
        fn a_number_has_its_shortest_form(bits: u64, few in -1_000_000_000_i64..1_000_000_000, decimals in 0..9) {
            let power = i32::from(bits.to_le_bytes()[0]) % 36 - 12;
            let near = |value: f64| value * 10_f64.powi(power);
            let fraction = f64::from_bits(bits >> 12 | 1_f64.to_bits());
            let (any, short) = (f64::from_bits(bits), few as f64 / 10_f64.powi(decimals));
            for value in [any, short, near(fraction), near(f64::from(i16::from_le_bytes([bits.to_le_bytes()[1], 0])))] {
                prop_assume!(value.is_finite());
                let text = format!("{value:e}");
                let (mantissa, exponent) = text.split_once('e').expect("an exponent");
                let exponent: i32 = exponent.parse().expect("a number");
                let expected = if value == 0.0 || (1e-6..1e21).contains(&value.abs()) {
                    format!("{value}")
                } else {
                    let sign = if exponent < 0 { '-' } else { '+' };
                    format!("{mantissa}e{sign}{:02}", exponent.abs())
                };
                let text = to_text(|buf| number(buf, 0, value));
                let shape = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "0");
                prop_assert_eq!((shape(&text), text.parse()), (shape(&expected), Ok(value)), "{}", text);
            }
        }

        #[test]
        fn a_whole_number_has_its_decimal_digits(value: u64, shift in 0_u32..64) {
            let value = value >> shift;
            prop_assert_eq!(to_text(|buf| integer(buf, 0, value)), value.to_string());
        }
    }
}
