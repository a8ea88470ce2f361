//! Percent-encoding (RFC 3986, section 2.1).

use std::borrow::Cow;
use std::fmt::Write as _;

/// Decodes `%41`. A percent sign without two hexadecimal digits is kept as it is.
pub fn percent_decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.contains('%') {
        return Cow::Borrowed(text.as_bytes());
    }
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escape = (*byte == b'%').then(|| Some((digit(bytes.get(at + 1))?, digit(bytes.get(at + 2))?)));
        match escape.flatten().and_then(|(high, low)| u8::try_from(high * 16 + low).ok()) {
            Some(escaped) => {
                plain.push(escaped);
                at += 3;
            }
            None => {
                plain.push(*byte);
                at += 1;
            }
        }
    }
    Cow::Owned(plain)
}

/// Encodes all bytes but letters, digits and `-_.~`.
pub fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_bytes_are_encoded_and_decoded_to_the_same() {
        let text = "a-Z_0.~ /?&=+%{é}";
        assert_eq!(percent_encoded(text), "a-Z_0.~%20%2F%3F%26%3D%2B%25%7B%C3%A9%7D");
        assert_eq!(*percent_decoded(&percent_encoded(text)), *text.as_bytes());
    }

    #[test]
    fn escapes_are_decoded_and_other_percent_signs_are_kept() {
        for (text, plain) in [("a", "a"), ("%41%2f", "A/"), ("100%", "100%"), ("%4", "%4"), ("%+1", "%+1")] {
            assert_eq!(*percent_decoded(text), *plain.as_bytes(), "{text}");
        }
        assert_eq!(*percent_decoded("%ff"), [0xff]);
    }
}
