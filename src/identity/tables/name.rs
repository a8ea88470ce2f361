//! Rules for the names of people, organisations and keys: visible characters only.
//!
//! A name appears in pages, mails, tables of the command line and the audit log, next to the names
//! of others. So it must not contain characters that move the surrounding text or make two names
//! look the same: no control characters (they would end a line of the log or control a terminal),
//! no characters that change the writing direction, and no characters of zero width except the two
//! joiners that some scripts and emoji need. Names from a sign-in provider are cleaned instead of
//! refused, because the person cannot change them here.

/// Maximum length of a name, bytes.
pub(in crate::identity) const NAME_BYTES_MAX: usize = 200;

/// Errors of parsing a name: `validation_failed`, each with its own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// `too_long`.
    #[error("a name has at most {NAME_BYTES_MAX} bytes; this one has {0}")]
    TooLong(usize),
    /// `characters`.
    #[error("a name has no control characters and no invisible ones; this one has U+{:04X}", u32::from(*.0))]
    Character(char),
    /// `characters`: the name consists of joiners and fillers only.
    #[error("this name has no visible characters")]
    Blank,
}

impl NameError {
    /// Returns the code used in the API.
    pub const fn code(self) -> &'static str {
        match self {
            NameError::TooLong(_) => "too_long",
            NameError::Character(_) | NameError::Blank => "characters",
        }
    }
}

/// Parses a name and trims surrounding space. The result may be empty.
///
/// # Errors
/// [`NameError`].
pub(in crate::identity) fn parse(text: &str) -> Result<String, NameError> {
    let name = text.trim();
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong(name.len()));
    }
    if let Some(wrong) = name.chars().find(|c| is_forbidden(*c)) {
        return Err(NameError::Character(wrong));
    }
    if !name.is_empty() && !name.chars().any(is_visible) {
        return Err(NameError::Blank);
    }
    Ok(name.to_owned())
}

/// Returns a name from a provider without the characters that [`parse`] refuses; it may be empty.
pub(in crate::identity) fn cleaned(text: &str) -> String {
    // A tab or line end separates two words.
    let spaced = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c });
    let whole: String = spaced.filter(|c| !is_forbidden(*c)).take(NAME_BYTES_MAX).collect();
    let name = whole.trim();
    let name = name.get(..name.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or_default().trim_end();
    if name.chars().any(is_visible) { name.to_owned() } else { String::new() }
}

/// Returns whether a character ends lines, changes the direction, or has zero width.
pub(in crate::identity) fn is_forbidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Returns whether a character is visible by itself.
fn is_visible(c: char) -> bool {
    !c.is_whitespace()
        && !is_forbidden(c)
        && !matches!(c,
            '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200c}' | '\u{200d}'
            | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_many_scripts_are_accepted() {
        for name in [
            "",
            "Ada",
            "O'Brien <ada@x>",
            "Łukasz Ñandú",
            "李小龍",
            "محمد",
            "می‌خواهم",
            "👩‍💻 ops",
            "❤️",
            "a\u{a0}b",
            "कि",
        ] {
            assert_eq!(parse(name).as_deref(), Ok(name), "{name:?}");
            assert_eq!(cleaned(name).replace(' ', "\u{a0}"), name.replace(' ', "\u{a0}"), "{name:?}");
        }
        assert_eq!(
            parse(" \u{3000}Ada  Lovelace\n").as_deref(),
            Ok("Ada  Lovelace"),
            "surrounding space is trimmed"
        );
    }

    #[test]
    fn names_with_invisible_characters_are_refused() {
        for wrong in [
            '\0',
            '\u{1b}',
            '\u{7f}',
            '\u{85}',
            '\u{9b}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{200b}',
            '\u{200f}',
            '\u{2028}',
            '\u{feff}',
            '\u{ad}',
            '\u{e0041}',
        ] {
            assert_eq!(parse(&format!("a{wrong}b")), Err(NameError::Character(wrong)));
            assert_eq!(cleaned(&format!("a{wrong}b")).replace(' ', ""), "ab", "{wrong:?}");
        }
        for blank in ["\u{200d}", "\u{200c} \u{200d}", "\u{3164}", "\u{2800}", "\u{fe0f}"] {
            assert_eq!(parse(blank), Err(NameError::Blank), "{blank:?}");
            assert_eq!(cleaned(blank), "", "{blank:?}");
        }
        assert_eq!(cleaned("Ada\r\nSet-Cookie: x\t\u{1b}[31m"), "Ada  Set-Cookie: x [31m");
        assert_eq!(parse(&"é".repeat(101)), Err(NameError::TooLong(202)));
        assert_eq!(NameError::Character('\u{1b}').to_string().split("has U").nth(1), Some("+001B"));
    }

    proptest! {
        /// A cleaned name is valid, and cleaning it again changes nothing.
        #[test]
        fn a_cleaned_name_is_valid(text in "\\PC{0,300}|(.|[\u{200b}-\u{2070}]){0,60}") {
            let name = cleaned(&text);
            prop_assert_eq!(parse(&name), Ok(name.clone()));
            prop_assert_eq!(cleaned(&name), name);
        }
    }
}
