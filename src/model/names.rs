//! The classic names of Prometheus: those that need no quotes.

/// Returns whether a text is a classic label name: letters, digits and `_`, without a digit at the
/// start.
pub fn is_label_name(text: &str) -> bool {
    is_name(text, |byte| byte == b'_')
}

/// Returns whether a text is a classic metric name: a label name that may have colons.
pub fn is_metric_name(text: &str) -> bool {
    is_name(text, |byte| byte == b'_' || byte == b':')
}

fn is_name(text: &str, is_sign: impl Fn(u8) -> bool) -> bool {
    let starts = |byte: u8| byte.is_ascii_alphabetic() || is_sign(byte);
    let mut bytes = text.bytes();
    bytes.next().is_some_and(starts) && bytes.all(|byte| starts(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classic_names_have_letters_digits_and_signs() {
        for (text, is_label, is_metric) in [
            ("a", true, true),
            ("_a1", true, true),
            ("a:b", false, true),
            (":", false, true),
            ("", false, false),
            ("1a", false, false),
            ("a.b", false, false),
            ("é", false, false),
        ] {
            assert_eq!((is_label_name(text), is_metric_name(text)), (is_label, is_metric), "{text}");
        }
    }
}
