//! Decodes number, duration and string tokens.

use std::borrow::Cow;

use super::Fault;
use crate::model::{DurationError, QuotedError, parse_duration, unquoted};

/// Parses a number or a duration; a duration becomes its seconds.
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

/// Parses a decimal, a hexadecimal (`0x1F`) or an octal number (`017`; `08` is decimal), with `_`
/// allowed between digits, as Go does.
fn plain_number(text: &str) -> Option<f64> {
    let digits = without_underscores(text)?;
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        let hex = Some(hex).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        return i64::from_str_radix(hex, 16).ok().map(integer);
    }
    if digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| matches!(byte, b'0'..=b'7')) {
        // A number too large for octal is decimal, as in Go.
        if let Ok(octal) = i64::from_str_radix(&digits, 8) {
            return Some(integer(octal));
        }
    }
    // Rust also parses "inf", "nan" and signs, which are not number tokens.
    let decimal =
        digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    if decimal { digits.parse().ok() } else { None }
}

#[expect(clippy::cast_precision_loss, reason = "an integer literal beyond 2^53 is rounded, as in Prometheus")]
fn integer(value: i64) -> f64 {
    value as f64
}

/// Removes `_`; returns `None` unless each is between two digits, or between a base prefix and a
/// digit.
fn without_underscores(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('_') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let hex = text.starts_with("0x") || text.starts_with("0X");
    let is_digit = |byte: &u8| if hex { byte.is_ascii_hexdigit() } else { byte.is_ascii_digit() };
    for (index, byte) in bytes.iter().enumerate() {
        if *byte != b'_' {
            continue;
        }
        let before = index.checked_sub(1).and_then(|at| bytes.get(at));
        let after_prefix = hex && index == 2;
        if !(after_prefix || before.is_some_and(is_digit)) || !bytes.get(index + 1).is_some_and(is_digit) {
            return None;
        }
    }
    Some(Cow::Owned(text.replace('_', "")))
}

/// Converts seconds to rounded milliseconds; `None` if they exceed int64 nanoseconds (about 292
/// years).
#[expect(clippy::cast_possible_truncation, reason = "checked against the bound just before")]
pub(super) fn duration_from_seconds(value: f64) -> Option<i64> {
    const SECONDS_MAX: f64 = 9_223_372_036.0;
    if value.abs() <= SECONDS_MAX { Some((value * 1000.0).round() as i64) } else { None }
}

/// Converts the timestamp of `@` from seconds to rounded milliseconds; `None` for NaN, infinities
/// and numbers outside of int64.
#[expect(clippy::cast_possible_truncation, reason = "checked against the bound just before")]
pub(super) fn timestamp_from_seconds(value: f64) -> Option<i64> {
    // 2^63: every double below it fits in int64.
    const MS_MAX: f64 = 9_223_372_036_854_775_808.0;
    let ms = (value * 1000.0).round();
    if ms > -MS_MAX && ms < MS_MAX { Some(ms as i64) } else { None }
}

/// Decodes a string token of a label name or value like [`bytes`]. Labels are UTF-8, so another
/// string is an error.
pub(super) fn string(token: &str) -> Result<String, Fault> {
    String::from_utf8(bytes(token)?).map_err(|_| Fault::new(0, "string is not valid UTF-8"))
}

/// Decodes a string token with its quotes like [`unquoted`].
///
/// # Errors
/// [`Fault`] with the byte offset within the token.
pub(super) fn bytes(token: &str) -> Result<Vec<u8>, Fault> {
    unquoted(token).map_err(|QuotedError { at, message }| Fault::new(at, message))
}
