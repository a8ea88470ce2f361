//! A reader of JSON texts in the form that servers write: without whitespace and without escapes.
//!
//! All methods return `None` for anything else, also for valid JSON in another form and for a text
//! that ends early. Their caller then reads the element with the general parser. So this reader
//! decides nothing about validity; it only has to be right where it returns something.

use crate::model::Timestamp;

/// 2^53. Every smaller whole number is exact in a double.
const EXACT_MAX: u64 = 1 << 53;
/// The most digits of a whole number that always fits into 64 bits.
const DIGITS_MAX: usize = 19;
/// The most digits of seconds. A time with three decimals is then exact to less than half a
/// millisecond as a double, so it is that of the general parser.
const SECONDS_DIGITS_MAX: usize = 12;
/// The powers of ten that are exact in a double.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// A text of at most 15 bytes, which is compared in one step: the bytes from the lowest on, and in
/// the highest byte their number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ShortText(u128);

impl ShortText {
    /// Returns `None` for a longer text.
    pub(super) fn new(text: &[u8]) -> Option<ShortText> {
        const BYTES_MAX: usize = 15;
        let length = u128::try_from(text.len()).ok().filter(|_| text.len() <= BYTES_MAX)?;
        let bytes = text.iter().rev().fold(0, |bytes, byte| bytes << 8 | u128::from(*byte));
        Some(ShortText(length << 120 | bytes))
    }

    const fn length(self) -> usize {
        (self.0 >> 120) as usize
    }
}

/// The rest of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scanner<'t>(&'t [u8]);

impl<'t> Scanner<'t> {
    pub(super) const fn new(text: &'t [u8]) -> Scanner<'t> {
        Scanner(text)
    }

    /// Returns the text that has not been read.
    pub(super) const fn rest(&self) -> &'t [u8] {
        self.0
    }

    /// Reads a literal, whose length is known to the compiler.
    #[inline]
    pub(super) fn take<const N: usize>(&mut self, literal: &[u8; N]) -> Option<()> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        if first != literal {
            return None;
        }
        self.0 = rest;
        Some(())
    }

    #[inline]
    pub(super) fn take_slice(&mut self, text: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// Reads a text that is not empty. `None` also within the last 15 bytes.
    #[inline]
    pub(super) fn take_short(&mut self, text: ShortText) -> Option<()> {
        let length = text.length();
        let next = u128::from_le_bytes(*self.0.first_chunk::<16>()?);
        let is_equal = (next ^ text.0) & ((1 << (8 * length)) - 1) == 0;
        self.0 = self.0.get(length..).filter(|_| is_equal && length > 0)?;
        Some(())
    }

    /// Reads one byte.
    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    /// Reads a label with this name and value, which have no characters that JSON escapes.
    #[inline]
    pub(super) fn take_label(&mut self, name: &str, value: &str) -> Option<()> {
        let mut rest = *self;
        rest.take(b"\"")?;
        rest.take_slice(name.as_bytes())?;
        rest.take(b"\":\"")?;
        rest.take_slice(value.as_bytes())?;
        rest.take(b"\"")?;
        *self = rest;
        Some(())
    }

    /// Reads a string without escapes.
    pub(super) fn text(&mut self) -> Option<&'t str> {
        self.take(b"\"")?;
        let end = self.0.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
        let (text, rest) = self.0.split_at_checked(end)?;
        self.0 = rest.strip_prefix(b"\"")?;
        std::str::from_utf8(text).ok()
    }

    /// Reads digits that follow those of `value`. Returns the number, modulo 2^64, and the count of
    /// the digits that were read.
    #[inline]
    fn digits(&mut self, mut value: u64) -> (u64, usize) {
        let mut count = 0;
        loop {
            let word = self.word();
            let digits = count_digits(word);
            let number = number_of(word, digits);
            value = value.wrapping_mul(INTEGER_POWERS[digits]).wrapping_add(number);
            count += digits;
            self.0 = self.0.get(digits..).unwrap_or_default();
            if digits < 8 {
                return (value, count);
            }
        }
    }

    /// Reads a time in seconds, which is not negative.
    #[inline]
    pub(super) fn time(&mut self) -> Option<Timestamp> {
        let is_zero = self.0.first() == Some(&b'0');
        let (seconds, digits) = self.digits(0);
        // A number has no leading zeros.
        if digits == 0 || digits > SECONDS_DIGITS_MAX || (is_zero && digits > 1) {
            return None;
        }
        let mut ms = seconds * 1_000;
        if self.0.first() == Some(&b'.') {
            self.byte()?;
            let (fraction, digits) = self.digits(0);
            ms += match digits {
                1 => fraction * 100,
                2 => fraction * 10,
                3 => fraction,
                _ => return None,
            };
        }
        // An exponent may follow.
        if matches!(self.0.first(), Some(b'e' | b'E')) {
            return None;
        }
        i64::try_from(ms).ok().map(Timestamp::from_ms)
    }

    /// Reads digits. Returns their number.
    #[inline]
    fn skip_digits(&mut self) -> usize {
        let mut count = 0;
        loop {
            let digits = count_digits(self.word());
            count += digits;
            self.0 = self.0.get(digits..).unwrap_or_default();
            if digits < 8 {
                return count;
            }
        }
    }

    /// Returns the next eight bytes; zeros stand for those after the end.
    #[inline]
    fn word(&self) -> u64 {
        match self.0.first_chunk::<8>() {
            Some(word) => u64::from_le_bytes(*word),
            None => self.0.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        }
    }

    /// Reads the value of a sample in the form that Prometheus prints, and its closing quote. The
    /// number is finite and has a bounded length.
    #[inline]
    pub(super) fn skip_value(&mut self) -> Option<()> {
        /// The most digits before the point, and of those after it.
        const PLAIN_DIGITS_MAX: usize = 40;
        if matches!(self.0.first(), Some(b'N' | b'+')) {
            return self.take(b"NaN\"").or_else(|| self.take(b"+Inf\""));
        }
        if self.0.first() == Some(&b'-') {
            self.byte()?;
            if self.take(b"Inf\"").is_some() {
                return Some(());
            }
        }
        let whole = self.skip_digits();
        if whole == 0 || whole > PLAIN_DIGITS_MAX {
            return None;
        }
        if self.0.first() == Some(&b'.') {
            self.byte()?;
            let decimals = self.skip_digits();
            if decimals == 0 || decimals > PLAIN_DIGITS_MAX {
                return None;
            }
        }
        if self.0.first() == Some(&b'e') {
            self.byte()?;
            self.take(b"+").or_else(|| self.take(b"-"))?;
            // A third digit may be too large for a double.
            if self.skip_digits() != 2 {
                return None;
            }
        }
        self.take(b"\"")
    }

    /// Reads the value of a sample and its closing quote.
    #[inline]
    pub(super) fn value(&mut self) -> Option<f64> {
        let mut rest = *self;
        let is_negative = rest.take(b"-").is_some();
        let (whole, whole_digits) = rest.digits(0);
        let (number, decimals) = match rest.take(b".") {
            Some(()) => rest.digits(whole),
            None => (whole, 0),
        };
        let is_exact = whole_digits > 0
            && whole_digits + decimals <= DIGITS_MAX
            && number < EXACT_MAX
            && rest.take(b"\"").is_some();
        if !is_exact {
            return self.other_value();
        }
        *self = rest;
        // Both are exact, so the quotient is the double nearest to the decimal.
        #[expect(clippy::cast_precision_loss, reason = "less than 2^53")]
        let magnitude = number as f64 / POWERS.get(decimals)?;
        Some(if is_negative { -magnitude } else { magnitude })
    }

    /// Reads any value of a sample, as the general parser does.
    #[inline(never)]
    fn other_value(&mut self) -> Option<f64> {
        let end = self.0.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
        let (text, rest) = self.0.split_at_checked(end)?;
        self.0 = rest.strip_prefix(b"\"")?;
        std::str::from_utf8(text).ok()?.parse().ok()
    }
}

/// The powers of ten up to eight digits.
const INTEGER_POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Eight bytes of one.
const ONES: u64 = u64::MAX / 255;

/// Returns the number of digits at the beginning of a word.
#[inline]
fn count_digits(word: u64) -> usize {
    let word = word ^ (ONES * 0x30);
    // The high bit of each byte that is no digit. No carry leaves a byte.
    let others = (((word & (ONES * 0x7f)) + ONES * 0x76) | word) & (ONES * 0x80);
    (others.trailing_zeros() / 8) as usize
}

/// Returns the number that the first `digits` bytes of a word are.
#[inline]
fn number_of(word: u64, digits: usize) -> u64 {
    if digits == 0 {
        return 0;
    }
    // Zeros in front of the digits; the first digit is in the lowest byte.
    let word = (word ^ (ONES * 0x30)) << (64 - 8 * digits);
    let pairs = (word * 10 + (word >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs & 0x0000_00ff_0000_00ff) * 100 + (pairs >> 16 & 0x0000_00ff_0000_00ff);
    (fours & 0xffff) * 10_000 + (fours >> 32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::time_of;
    use super::*;

    #[test]
    fn digits_are_counted_and_added_up() {
        for (text, expected) in [
            ("", (0, 0)),
            ("x", (0, 0)),
            ("7", (7, 1)),
            ("12345678", (12_345_678, 8)),
            ("123456789", (123_456_789, 9)),
            ("00000001:", (1, 8)),
            ("9999999999999999999/", (9_999_999_999_999_999_999, 19)),
            ("12\u{e9}3456789", (12, 2)),
        ] {
            assert_eq!(Scanner::new(text.as_bytes()).digits(0), expected, "{text}");
        }
    }

    #[test]
    fn times_that_are_no_usual_numbers_are_left_to_the_general_parser() {
        for text in ["", "-1", "01", "00", "1.", "1.2345", ".5", "1e3", "1.5E3", "1234567890123", "x"] {
            assert_eq!(Scanner::new(text.as_bytes()).time(), None, "{text}");
        }
    }

    #[test]
    fn short_texts_are_compared_as_slices() {
        for text in ["", "1", "1435781430,\"", "123456789012345", "1234567890123456"] {
            let short = ShortText::new(text.as_bytes());
            assert_eq!(short.is_some(), text.len() < 16);
            for other in [text, "2", "1435781430,", "123456789012346"] {
                let whole = format!("{other}{}", "x".repeat(16));
                let mut scanner = Scanner::new(whole.as_bytes());
                let is_taken = short.is_some_and(|short| scanner.take_short(short).is_some());
                let expected = !text.is_empty() && short.is_some() && whole.starts_with(text);
                assert_eq!(is_taken, expected, "{text} in {whole}");
                let read = if expected { text.len() } else { 0 };
                assert_eq!(scanner.rest(), &whole.as_bytes()[read..]);
            }
        }
        let one = ShortText::new(b"1").expect("short");
        assert_eq!(Scanner::new(b"1").take_short(one), None, "the end is near");
    }

    proptest! {
        #[test]
        fn a_time_is_that_of_the_general_parser(
            seconds in prop_oneof![0..10u64, 0..10_000_000_000u64, 0..1_000_000_000_000u64],
            fraction in prop::option::of("[0-9]{1,3}"),
        ) {
            let text = fraction.map_or_else(|| seconds.to_string(), |digits| format!("{seconds}.{digits}"));
            let general = time_of(serde_json::from_str(&text).expect("a number"));
            prop_assert_eq!(Scanner::new(text.as_bytes()).time(), general, "{}", text);
        }

        #[test]
        fn a_value_is_that_of_the_general_parser(
            text in prop_oneof![
                "-?[0-9]{0,22}(\\.[0-9]{0,22})?",
                "-?0\\.0{0,8}[0-9]{15,18}",
                "[-+]?[0-9]{1,3}(\\.[0-9]{1,3})?[eE][-+]?[0-9]{1,3}",
                "[-+]?(NaN|Inf|inf|infinity|nan)",
                "[-+.0-9eEInfN ]{0,8}",
                any::<f64>().prop_map(|value| value.to_string()),
                any::<u64>().prop_map(|bits| f64::from_bits(bits).to_string()),
            ],
        ) {
            let quoted = format!("{text}\"]");
            let mut scanner = Scanner::new(quoted.as_bytes());
            let read = scanner.value();
            prop_assert_eq!(read.map(f64::to_bits), text.parse().ok().map(f64::to_bits), "{}", text);
            prop_assert!(read.is_none() || scanner.0 == b"]");
        }

        /// Any finite value that Prometheus prints, and no number that is too large for a double.
        #[test]
        fn a_value_that_is_passed_has_the_form_of_prometheus(
            text in prop_oneof![
                "-?[0-9]{0,42}(\\.[0-9]{0,42})?",
                "[-+]?[0-9]{1,3}(\\.[0-9]{1,3})?[eE]?[-+]?[0-9]{1,4}",
                "[-+]?(NaN|Inf|inf|nan)",
                any::<f64>().prop_map(|value| value.to_string()),
            ],
        ) {
            let form = r"^(-?[0-9]{1,40}(\.[0-9]{1,40})?(e[-+][0-9]{2})?|NaN|[-+]Inf)$";
            let is_usual = crate::model::Pattern::new(form).expect("a pattern").matches(&text);
            let quoted = format!("{text}\"]");
            let mut scanner = Scanner::new(quoted.as_bytes());
            let read = scanner.skip_value();
            prop_assert_eq!(read.is_some(), is_usual, "{}", text);
            prop_assert!(!is_usual || scanner.0 == b"]");
            prop_assert!(!is_usual || text.ends_with("Inf") || text.parse::<f64>().is_ok_and(|value| !value.is_infinite()));
        }

        #[test]
        fn no_bytes_panic(text in prop::collection::vec(prop_oneof![Just(b'"'), b'0'..=b'9', any::<u8>()], 0..40)) {
            let _ = Scanner::new(&text).value();
            let _ = Scanner::new(&text).skip_value();
            let _ = Scanner::new(&text).time();
            let _ = Scanner::new(&text).text();
            let _ = Scanner::new(&text).take_label("a", "b");
        }
    }
}
