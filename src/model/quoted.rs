//! Quoted strings of PromQL, which have the escapes of Go.

/// The reason why a quoted string is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QuotedError {
    /// The byte offset within the string.
    pub at: usize,
    /// The reason.
    pub message: String,
}

/// Returns the length in bytes of the quoted string at the start of a text, with its quotes; `None`
/// if the text does not begin with a quote or the string is not closed. A line ends a string that
/// is not in backquotes.
pub fn quoted_length(text: &str) -> Option<usize> {
    let mut chars = text.char_indices();
    let (_, quote) = chars.next().filter(|(_, first)| matches!(first, '"' | '\'' | '`'))?;
    let mut is_escaped = false;
    for (at, character) in chars {
        match character {
            '\n' if quote != '`' => return None,
            _ if is_escaped => is_escaped = false,
            '\\' if quote != '`' => is_escaped = true,
            _ if character == quote => return Some(at + quote.len_utf8()),
            _ => {}
        }
    }
    None
}

/// Decodes a quoted string: escapes of Go within `"` and `'`, none within backquotes. `\xff` is one
/// byte, so the result need not be UTF-8.
///
/// # Errors
/// [`QuotedError`] for an invalid escape.
pub fn unquoted(token: &str) -> Result<Vec<u8>, QuotedError> {
    let quote = token.chars().next().unwrap_or_default();
    let inner = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
    if quote == '`' {
        return Ok(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(index) = rest.find('\\') {
        out.extend_from_slice(rest.get(..index).unwrap_or_default().as_bytes());
        let escape = rest.get(index + 1..).unwrap_or_default();
        let used = unescape(escape, quote, &mut out)
            .map_err(|message| QuotedError { at: inner.len() - escape.len(), message })?;
        rest = escape.get(used..).unwrap_or_default();
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// Decodes one escape sequence after its backslash, and returns the number of bytes read.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_string_ends_at_its_own_quote() {
        let cases = [
            (r#""a.b"="c""#, Some(5)),
            (r#""a\"b" x"#, Some(6)),
            (r#""a\\" x""#, Some(5)),
            (r"'a\'b'", Some(6)),
            (r"`a\`b`", Some(4)),
            ("`a\nb`", Some(5)),
            ("\"a\nb\"", None),
            ("\"a\\\nb\"", None),
            (r#""a"#, None),
            (r#""a\""#, None),
            ("a", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(quoted_length(text), expected, "{text:?}");
        }
    }
}
