//! Percent-encoding of paths (RFC 3986, section 2.1).

use std::borrow::Cow;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_other_percent_signs_are_kept() {
        for (text, plain) in [("a", "a"), ("%41%2f", "A/"), ("100%", "100%"), ("%4", "%4"), ("%+1", "%+1")] {
            assert_eq!(*percent_decoded(text), *plain.as_bytes(), "{text}");
        }
        assert_eq!(*percent_decoded("%ff"), [0xff]);
    }
}
