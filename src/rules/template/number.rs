//! Number, character and string constants, as Go writes them.

/// A number constant. It may be used as an integer, as a float, or as both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NumberConstant {
    /// The value as an integer, if it is one.
    pub(super) int: Option<i64>,
    /// The value as a float.
    pub(super) float: f64,
    /// Whether the text has a point or an exponent, so that the constant is a float by itself.
    pub(super) is_float: bool,
}

/// Parses a number with Go's prefixes (`0x`, `0o`, `0b`, `0`) and underscores. Complex numbers are
/// not supported.
pub(super) fn parse(text: &str) -> Option<NumberConstant> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let sign = if negative { -1.0 } else { 1.0 };
    if let Some(magnitude) = integer(digits) {
        let magnitude = i128::from(magnitude);
        let int = i64::try_from(if negative { -magnitude } else { magnitude }).ok()?;
        return Some(NumberConstant { int: Some(int), float: to_float(int), is_float: false });
    }
    let float = parse_float(digits)?;
    (float.is_finite()).then_some(NumberConstant { int: None, float: sign * float, is_float: true })
}

/// Converts an integer; beyond 2^53 to the nearest double.
#[expect(clippy::cast_precision_loss, reason = "Go's conversion of int to float64 rounds, too")]
pub(super) fn to_float(int: i64) -> f64 {
    int as f64
}

/// Converts a float to an integer: towards zero, saturating, NaN to 0.
#[expect(clippy::cast_possible_truncation, reason = "saturates; callers check the range where it matters")]
pub(super) fn to_int(float: f64) -> i64 {
    float as i64
}

fn integer(digits: &str) -> Option<u64> {
    let lower = digits.to_ascii_lowercase();
    let (radix, rest) = match lower.get(..2) {
        Some("0x") => (16, lower.get(2..)?),
        Some("0o") => (8, lower.get(2..)?),
        Some("0b") => (2, lower.get(2..)?),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, lower.get(1..)?),
        _ => (10, lower.as_str()),
    };
    let plain = without_underscores(rest, radix != 10)?;
    plain.bytes().all(|byte| char::from(byte).is_digit(radix)).then_some(())?;
    u64::from_str_radix(&plain, radix).ok()
}

/// Removes underscores between digits; `None` if an underscore is elsewhere.
fn without_underscores(text: &str, may_lead: bool) -> Option<String> {
    let misplaced = text.contains("__") || text.ends_with('_') || (text.starts_with('_') && !may_lead);
    (!misplaced).then(|| text.replace('_', ""))
}

/// Parses a decimal float without sign.
fn parse_float(digits: &str) -> Option<f64> {
    let plain = without_underscores(digits, false)?;
    let known = plain.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let float = plain.contains(['.', 'e', 'E']) || plain.bytes().all(|byte| byte.is_ascii_digit());
    (known && float).then(|| plain.parse().ok()).flatten()
}

/// Decodes a string or character constant with its quotes. Bytes that are no UTF-8 become U+FFFD.
pub(super) fn unquote(token: &str) -> Result<String, String> {
    let inner = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
    if token.starts_with('`') {
        return Ok(inner.replace('\r', ""));
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            escape(&mut chars, token, &mut out)?;
        } else {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn escape(chars: &mut std::str::Chars<'_>, token: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let bad = || "invalid syntax".to_owned();
    let quote = token.chars().next().unwrap_or_default();
    let first = chars.next().ok_or_else(bad)?;
    let simple = match first {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' => b'\\',
        c if c == quote && c.is_ascii() => u8::try_from(c).map_err(|_| bad())?,
        _ => 0,
    };
    if simple != 0 {
        out.push(simple);
        return Ok(());
    }
    let (mut value, digits, radix) = match first {
        'x' => (0, 2, 16),
        'u' => (0, 4, 16),
        'U' => (0, 8, 16),
        c => (c.to_digit(8).ok_or_else(bad)?, 2, 8),
    };
    for _ in 0..digits {
        let digit = chars.next().and_then(|c| c.to_digit(radix)).ok_or_else(bad)?;
        value = value.checked_mul(radix).and_then(|value| value.checked_add(digit)).ok_or_else(bad)?;
    }
    if matches!(first, 'u' | 'U') {
        let c = char::from_u32(value).ok_or_else(bad)?;
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    } else {
        out.push(u8::try_from(value).map_err(|_| bad())?);
    }
    Ok(())
}
