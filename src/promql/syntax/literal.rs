//! What number, duration and string tokens stand for.

use std::borrow::Cow;

use crate::model::{DurationError, parse_duration};

/// Reads a number or duration; a duration is its seconds.
pub(super) fn number(text: &str) -> Result<f64, String> {
    match plain_number(text) {
        Some(value) if value.is_infinite() => Err(format!("error parsing number: {text:?} is out of range")),
        Some(value) => Ok(value),
        None => duration_ms(text).map(seconds),
    }
}

#[expect(clippy::cast_precision_loss, reason = "292 years of milliseconds are below 2^53")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

fn duration_ms(text: &str) -> Result<i64, String> {
    parse_duration(text).map_err(|error| match error {
        DurationError::Syntax(text) => format!("bad number or duration syntax: {text:?}"),
        DurationError::Range(_) => "duration out of range".to_owned(),
    })
}

/// Decimal, hexadecimal `0x1F`, octal by a leading zero (`017`; `08` is decimal), `_` between digits, as Go reads them.
fn plain_number(text: &str) -> Option<f64> {
    let digits = without_underscores(text)?;
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        let hex = Some(hex).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        return i64::from_str_radix(hex, 16).ok().map(integer);
    }
    if digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| matches!(byte, b'0'..=b'7')) {
        // Too large for an octal number: Go falls back to decimal, and so do we.
        if let Ok(octal) = i64::from_str_radix(&digits, 8) {
            return Some(integer(octal));
        }
    }
    // Rust also reads "inf", "nan" and signs, which no number token is.
    let decimal =
        digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    if decimal { digits.parse().ok() } else { None }
}

#[expect(clippy::cast_precision_loss, reason = "an integer literal beyond 2^53 is rounded, as upstream")]
fn integer(value: i64) -> f64 {
    value as f64
}

/// Removes `_`, each of which stands between two digits, or between a base prefix and a digit.
fn without_underscores(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('_') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let hex = text.starts_with("0x") || text.starts_with("0X");
    let is_digit = |byte: &u8| if hex { byte.is_ascii_hexdigit() } else { byte.is_ascii_digit() };
    for (place, byte) in bytes.iter().enumerate() {
        if *byte != b'_' {
            continue;
        }
        let before = place.checked_sub(1).and_then(|at| bytes.get(at));
        let after_prefix = hex && place == 2;
        if !(after_prefix || before.is_some_and(is_digit)) || !bytes.get(place + 1).is_some_and(is_digit) {
            return None;
        }
    }
    Some(Cow::Owned(text.replace('_', "")))
}

/// Milliseconds of a number of seconds, rounded; `None` where they do not fit int64 nanoseconds (about 292 years).
#[expect(clippy::cast_possible_truncation, reason = "checked against the bound just before")]
pub(super) fn duration_from_seconds(value: f64) -> Option<i64> {
    const SECONDS_MAX: f64 = 9_223_372_036.0;
    if value.abs() <= SECONDS_MAX { Some((value * 1000.0).round() as i64) } else { None }
}

/// Milliseconds of `@`'s timestamp in seconds, rounded; `None` for NaN, infinities and what int64 does not hold.
#[expect(clippy::cast_possible_truncation, reason = "checked against the bound just before")]
pub(super) fn timestamp_from_seconds(value: f64) -> Option<i64> {
    // 2^63; every double below it fits int64.
    const MS_MAX: f64 = 9_223_372_036_854_775_808.0;
    let ms = (value * 1000.0).round();
    if ms > -MS_MAX && ms < MS_MAX { Some(ms as i64) } else { None }
}

/// Decodes a string token that names or equals a label, as [`bytes`] does. Labels here are UTF-8: nothing could equal a
/// text that is not.
pub(super) fn string(token: &str) -> Result<String, (usize, String)> {
    String::from_utf8(bytes(token)?).map_err(|_| (0, "string is not valid UTF-8".to_owned()))
}

/// Decodes a string token, quotes included: Go's escapes within `"` and `'`, none within backquotes. `\xff` makes a byte,
/// so what comes out need not be UTF-8.
///
/// The error is the offset into the token and a sentence.
pub(super) fn bytes(token: &str) -> Result<Vec<u8>, (usize, String)> {
    let quote = token.chars().next().unwrap_or_default();
    let inner = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
    if quote == '`' {
        return Ok(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(place) = rest.find('\\') {
        out.extend_from_slice(rest.get(..place).unwrap_or_default().as_bytes());
        let escape = rest.get(place + 1..).unwrap_or_default();
        let used = unescape(escape, quote, &mut out).map_err(|message| {
            let read = inner.len() - escape.len();
            (read, message)
        })?;
        rest = escape.get(used..).unwrap_or_default();
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// Reads one escape after its backslash; answers how many bytes it took.
fn unescape(escape: &str, quote: char, out: &mut Vec<u8>) -> Result<usize, String> {
    let unterminated = || "escape sequence not terminated".to_owned();
    let first = escape.chars().next().ok_or_else(unterminated)?;
    let simple = match first {
        'a' => Some(7),
        'b' => Some(8),
        'f' => Some(12),
        'n' => Some(b'\n'),
        'r' => Some(b'\r'),
        't' => Some(b'\t'),
        'v' => Some(11),
        '\\' => Some(b'\\'),
        '"' if quote == '"' => Some(b'"'),
        '\'' if quote == '\'' => Some(b'\''),
        _ => None,
    };
    if let Some(byte) = simple {
        out.push(byte);
        return Ok(1);
    }
    let (start, digits, radix, is_byte) = match first {
        '0'..='7' => (0, 3, 8, true),
        'x' => (1, 2, 16, true),
        'u' => (1, 4, 16, false),
        'U' => (1, 8, 16, false),
        _ => return Err(format!("unknown escape sequence {first:?}")),
    };
    let number = escape.get(start..start + digits).ok_or_else(unterminated)?;
    if !number.chars().all(|digit| digit.is_digit(radix)) {
        return Err(format!("illegal character in escape sequence: {number:?}"));
    }
    let value = u32::from_str_radix(number, radix).map_err(|error| error.to_string())?;
    if is_byte {
        out.push(u8::try_from(value).map_err(|_| format!("octal escape \\{number} is beyond \\377"))?);
    } else {
        let character = char::from_u32(value).ok_or("escape sequence is an invalid Unicode code point")?;
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Ok(start + digits)
}
