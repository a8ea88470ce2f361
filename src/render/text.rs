//! Texts of users, made safe to draw: bounded, on one line, and without characters that are
//! invisible or that change the order of their neighbours.

/// The replacement of a character that cannot be drawn.
pub(super) const REPLACEMENT: char = '\u{FFFD}';

/// Returns at most `chars_max` characters of a text. Longer texts end with `…`.
pub(super) fn clean(text: &str, chars_max: usize) -> String {
    let mut chars = text.chars();
    let mut out: String = chars.by_ref().take(chars_max).map(drawable).collect();
    if chars.next().is_some() {
        out.pop();
        out.push('…');
    }
    out
}

fn drawable(character: char) -> char {
    match character {
        '\t' | '\n' | '\r' => ' ',
        // Direction marks and other invisible characters, and code points that XML excludes.
        '\u{200B}'..='\u{200F}'
        | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}'
        | '\u{FEFF}'
        | '\u{FFF9}'..='\u{FFFB}'
        | '\u{FFFE}'
        | '\u{FFFF}' => REPLACEMENT,
        _ if character.is_control() => REPLACEMENT,
        _ => character,
    }
}

/// Returns a whole number with commas between thousands.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_replaced_and_long_texts_are_cut() {
        assert_eq!(clean("a\tb\nc\u{0}\u{1b}\u{202e}\u{ffff}", 20), "a b c\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(clean("abcdef", 6), "abcdef");
        assert_eq!(clean("abcdef", 4), "abc…");
        assert_eq!(clean("äöü", 2), "ä…");
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
