//! Parts of query strings and forms that are sent to other servers.

use std::fmt::{Display, Formatter, Result, Write as _};

/// Milliseconds, formatted as seconds with three decimals.
pub(super) struct DecimalSeconds(pub(super) i64);

impl Display for DecimalSeconds {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let ms = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:03}", ms / 1_000, ms % 1_000)
    }
}

/// Encodes all bytes but letters, digits and `-_.~`.
pub(super) fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            byte => {
                // Writing to a string cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}
