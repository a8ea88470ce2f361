//! Numbers and times as digits.
//!
//! Everything is written into a room of fixed size, at an end that is handed on as a number: a piece is put there by one
//! store of a whole word, and what that wrote too much the next piece covers. Bytes that go straight into a growing body
//! cost a look at its capacity and a copy of unknown length each, which took longer than making the digits.

use crate::model::Timestamp;

/// Bytes that one number or one time needs at most: `-0.0000012345678901234567` and `-9223372036854775.807` are shorter.
pub(super) const ROOM: usize = 32;

/// Every whole number below is exact in a double, and its decimal digits are the shortest that read back to it.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Puts the first `used` of these bytes at `end` and answers the end after them.
#[inline]
pub(super) fn put<const N: usize>(room: &mut [u8], end: usize, bytes: &[u8; N], used: usize) -> usize {
    let place = room.get_mut(end..).and_then(<[u8]>::first_chunk_mut::<N>);
    debug_assert!(place.is_some(), "{N} bytes at {end} of {}", room.len());
    if let Some(place) = place {
        *place = *bytes;
    }
    end + used
}

/// Puts a text of 24 bytes at most: three words that overlap.
#[inline]
fn put_text(room: &mut [u8], end: usize, text: &[u8]) -> usize {
    let (Some(head), Some(tail)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) else {
        return text.iter().fold(end, |end, byte| put(room, end, &[*byte], 1));
    };
    let last = text.len() - 8;
    let middle = last.min(8);
    put(room, end, head, 8);
    if let Some(bytes) = text.get(middle..).and_then(<[u8]>::first_chunk::<8>) {
        put(room, end + middle, bytes, 8);
    }
    put(room, end + last, tail, 8)
}

/// Seconds with exactly three decimals where there is a fraction, none otherwise.
#[inline]
pub(super) fn time(room: &mut [u8], end: usize, at: Timestamp) -> usize {
    let ms = at.as_ms();
    let end = put(room, end, b"-", usize::from(ms < 0));
    let ms = ms.unsigned_abs();
    let end = integer(room, end, ms / 1_000);
    match ms % 1_000 {
        0 => end,
        fraction => put(room, end, &decimals(fraction), 4),
    }
}

/// The value of a sample.
#[inline]
pub(super) fn number(room: &mut [u8], end: usize, value: f64) -> usize {
    if !value.is_finite() {
        return match (value.is_nan(), value > 0.0) {
            (true, _) => put(room, end, b"NaN", 3),
            (false, true) => put(room, end, b"+Inf", 4),
            (false, false) => put(room, end, b"-Inf", 4),
        };
    }
    let end = put(room, end, b"-", usize::from(value.is_sign_negative()));
    let magnitude = value.abs();
    if magnitude < EXACT_MAX {
        if let Some(whole) = whole(magnitude) {
            return integer(room, end, whole);
        }
        if magnitude < LONG.end
            && let Some(thousandths) = thousandths(magnitude)
        {
            return thousands(room, end, thousandths);
        }
    }
    shortest(room, end, magnitude)
}

/// A magnitude below [`EXACT_MAX`] as the whole number that it is.
#[inline]
fn whole(magnitude: f64) -> Option<u64> {
    let whole = whole_part(magnitude);
    same(whole, magnitude).then_some(whole)
}

/// A magnitude below [`LONG`]'s end as thousandths, where it is as many: a decimal of at most 15 digits belongs to one double
/// only, so one that reads back is the shortest there is.
#[inline]
fn thousandths(magnitude: f64) -> Option<u64> {
    let thousandths = whole_part(magnitude * 1_000.0 + 0.5);
    same_quotient(thousandths, magnitude).then_some(thousandths)
}

/// Whether a value is likely to take as many digits as there are: rates and means do.
#[inline]
pub(super) fn is_long(value: f64) -> bool {
    let magnitude = value.abs();
    LONG.contains(&magnitude) && whole(magnitude).is_none() && thousandths(magnitude).is_none()
}

/// Magnitudes whose shortest text is what is written, if it is a long one: with a point, without an exponent; that of a
/// whole number is shorter.
const LONG: std::ops::Range<f64> = 1e-5..1e12;
const LONG_BYTES: usize = 16;

/// The values of samples, most of which are [long](is_long): all their digits are made before any is looked at, since a
/// processor waits for bytes that it has just written in other pieces than it reads them. `before` puts what comes before
/// the value of that number, and what comes after it is `after`.
#[inline]
pub(super) fn numbers<const MOST: usize>(
    room: &mut [u8],
    values: impl Iterator<Item = f64> + Clone,
    mut before: impl FnMut(&mut [u8], usize, usize) -> usize,
    after: &[u8; 2],
) -> usize {
    let mut buffers: [_; MOST] = std::array::from_fn(|_| zmij::Buffer::new());
    let mut texts: [&[u8]; MOST] = [b""; MOST];
    for ((value, buffer), text) in values.clone().zip(&mut buffers).zip(&mut texts) {
        if LONG.contains(&value.abs()) {
            *text = buffer.format_finite(value.abs()).as_bytes();
        }
    }
    let mut end = 0;
    for (place, (value, text)) in values.zip(texts).enumerate() {
        end = before(room, end, place);
        end = if text.len() < LONG_BYTES {
            number(room, end, value)
        } else {
            let end = put(room, end, b"-", usize::from(value.is_sign_negative()));
            put_text(room, end, text)
        };
        end = put(room, end, after, after.len());
    }
    end
}

fn shortest(room: &mut [u8], end: usize, magnitude: f64) -> usize {
    let mut buffer = zmij::Buffer::new();
    let shortest = buffer.format_finite(magnitude).as_bytes();
    // Most magnitudes have their form already, or all but a few zeros of it; what they lack is told by the last bytes.
    if magnitude < 1e-6 {
        return match shortest {
            // Two digits at least.
            [.., b'e', b'-', digit] => {
                let end = put_text(room, end, shortest);
                put(room, end - 1, &[b'0', *digit], 2)
            }
            _ => put_text(room, end, shortest),
        };
    }
    if let [first, rest @ .., b'e', b'-', b'6'] = shortest {
        let end = put(room, end, b"0.00000", 7);
        let end = put(room, end, &[*first], 1);
        return put_text(room, end, rest.get(1..).unwrap_or_default());
    }
    if !(EXACT_MAX..1e21).contains(&magnitude) {
        return put_text(room, end, shortest);
    }
    let mut plain = Vec::new();
    match shortest.iter().position(|byte| *byte == b'e') {
        Some(place) => {
            write_plain(&shortest[..place], exponent_of(&shortest[place + 1..]), &mut plain);
            put_text(room, end, &plain)
        }
        None => put_text(room, end, without_point(shortest)),
    }
}

/// Appends a magnitude without the exponent form, whatever its size: up to 309 digits before the point and 324 zeros
/// after it.
pub(super) fn fixed(magnitude: f64, out: &mut Vec<u8>) {
    let mut buffer = zmij::Buffer::new();
    let shortest = buffer.format_finite(magnitude).as_bytes();
    match shortest.iter().position(|byte| *byte == b'e') {
        Some(place) => write_plain(&shortest[..place], exponent_of(&shortest[place + 1..]), out),
        None => out.extend_from_slice(without_point(shortest)),
    }
}

fn without_point(text: &[u8]) -> &[u8] {
    text.strip_suffix(b".0").unwrap_or(text)
}

/// The whole part of a number that is neither negative nor beyond [`EXACT_MAX`].
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "that is what is asked for, within 53 bits"
)]
fn whole_part(value: f64) -> u64 {
    value as i64 as u64
}

/// Whether a number of at most 53 bits is that double.
#[inline]
#[expect(
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "within 53 bits the cast is exact, and so is the question"
)]
fn same(whole: u64, value: f64) -> bool {
    whole as f64 == value
}

/// Whether a thousandth of a number of at most 53 bits rounds to that double.
#[inline]
#[expect(
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "the question is whether it is the same double"
)]
fn same_quotient(thousandths: u64, value: f64) -> bool {
    thousandths as f64 / 1_000.0 == value
}

/// What eight digits hold.
pub(super) const EIGHT: u64 = 100_000_000;
/// Eight times `0`.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// A whole number, in 20 digits at most.
#[inline]
pub(super) fn integer(room: &mut [u8], end: usize, value: u64) -> usize {
    if value < EIGHT {
        return short(room, end, value);
    }
    let (high, low) = (value / EIGHT, value % EIGHT);
    let end = if high < EIGHT { short(room, end, high) } else { integer(room, end, high) };
    put(room, end, &eight_digits(low), 8)
}

/// A number of at most eight digits, without zeros before it.
#[inline]
fn short(room: &mut [u8], end: usize, value: u64) -> usize {
    let digits = eight(value);
    // The last digit stands, zero or not.
    let zeros = (digits | 1 << 56).trailing_zeros() / 8;
    put(room, end, &((digits | ZEROS) >> (zeros * 8)).to_le_bytes(), 8 - zeros as usize)
}

/// All eight digits of a number below 10^8.
#[inline]
pub(super) fn eight_digits(value: u64) -> [u8; 8] {
    (eight(value) | ZEROS).to_le_bytes()
}

/// The eight digits of a number below 10^8, one a byte, the first in the lowest: halves, then quarters, then digits side by
/// side in one word. 10,486 / 2^20 is a hundredth and 103 / 2^10 a tenth, exact enough for four digits and for two.
#[inline]
fn eight(value: u64) -> u64 {
    let fours = (value / 10_000) | ((value % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = hundreds | (fours - hundreds * 100) << 16;
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | (twos - tens * 10) << 8
}

/// `n / 1000` with the zeros at its end left out; `n` is no multiple of 1000.
#[inline]
fn thousands(room: &mut [u8], end: usize, n: u64) -> usize {
    let end = integer(room, end, n / 1_000);
    let decimals = decimals(n % 1_000);
    let zeros = usize::from(decimals[3] == b'0') + usize::from(decimals[2..] == *b"00");
    put(room, end, &decimals, 4 - zeros)
}

/// `.125` of 125.
#[inline]
fn decimals(thousandths: u64) -> [u8; 4] {
    [b'.', ascii(thousandths / 100), ascii(thousandths / 10), ascii(thousandths)]
}

#[inline]
fn ascii(digit: u64) -> u8 {
    b'0' + u8::try_from(digit % 10).unwrap_or(0)
}

/// `-7`, `21`, `+21`.
fn exponent_of(text: &[u8]) -> i32 {
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    let magnitude = digits.fold(0, |value: i32, digit| value * 10 + i32::from(digit - b'0'));
    if text.first() == Some(&b'-') { -magnitude } else { magnitude }
}

/// `1.25` and -7 as `0.000000125`.
fn write_plain(mantissa: &[u8], exponent: i32, out: &mut Vec<u8>) {
    let mut room = [0; 32];
    let (digits, exponent) = digits(mantissa, exponent, &mut room);
    plain(digits, exponent, out);
}

/// The significant digits without zeros at either end, into `digits` (17 at most, zeros before them aside), and the power
/// of ten of the first: `1.25` and -7 are `125` and -7.
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

    fn put_into_room(put: impl FnOnce(&mut [u8]) -> usize) -> String {
        let mut room = [b'#'; ROOM];
        let end = put(&mut room);
        String::from_utf8(room[..end].to_vec()).expect("ASCII")
    }

    #[test]
    fn digits_change_at_every_power_of_ten() {
        let mut power: u64 = 1;
        loop {
            for value in [power - 1, power, power + 1, power / 2, power.saturating_mul(2)] {
                assert_eq!(put_into_room(|room| integer(room, 0, value)), value.to_string());
            }
            match power.checked_mul(10) {
                Some(next) => power = next,
                None => break,
            }
        }
        assert_eq!(put_into_room(|room| integer(room, 0, u64::MAX)), u64::MAX.to_string());
    }

    #[test]
    fn the_longest_numbers_and_times_have_room() {
        for value in [-1.234_567_890_123_456_7e-6, -2.225_073_858_507_201_4e-308, -123_456_789_012_345.67] {
            assert_eq!(put_into_room(|room| number(room, 0, value)).parse(), Ok(value));
        }
        assert_eq!(put_into_room(|room| number(room, 0, -1e20)), "-100000000000000000000");
        for at in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
            let (seconds, ms) = (at.unsigned_abs() / 1_000, at.unsigned_abs() % 1_000);
            let fraction = if ms == 0 { String::new() } else { format!(".{ms:03}") };
            let sign = if at < 0 { "-" } else { "" };
            let expected = format!("{sign}{seconds}{fraction}");
            assert_eq!(put_into_room(|room| time(room, 0, Timestamp::from_ms(at))), expected);
        }
    }

    /// Go's: the exponent has two digits at least, and there is none from 1e-6 up to 1e21.
    #[test]
    fn the_form_changes_with_the_magnitude() {
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
            assert_eq!(put_into_room(|room| number(room, 0, value)), expected);
            assert_eq!(put_into_room(|room| number(room, 0, -value)), format!("-{expected}"));
        }
    }

    proptest! {
        /// As many digits as the standard library's shortest, in the form that magnitudes ask for. (Of two that are as
        /// close the libraries take different ones.)
        #[test]
        fn a_number_is_written_in_its_shortest_form(bits: u64, few in -1_000_000_000_i64..1_000_000_000, decimals in 0..9) {
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
                let text = put_into_room(|room| number(room, 0, value));
                let shape = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "0");
                prop_assert_eq!((shape(&text), text.parse()), (shape(&expected), Ok(value)), "{}", text);
            }
        }

        #[test]
        fn a_whole_number_is_written_in_its_digits(value: u64, shift in 0_u32..64) {
            let value = value >> shift;
            prop_assert_eq!(put_into_room(|room| integer(room, 0, value)), value.to_string());
        }
    }
}
