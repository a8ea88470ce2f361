//! What people, organisations and keys may be called: any characters that are seen.
//!
//! A name stands in pages, mails, tables of the command line and the log of events, beside the names of others. So it
//! holds nothing that moves what stands beside it or that makes two names look the same: no control characters (a line of
//! the log would end, a terminal would obey), nothing that turns the direction of writing, nothing of no width but the two
//! joiners that some scripts and pictures are written with. What a provider tells of a person is cleaned instead: whoever
//! signs in there cannot change it here.

/// Longest name of a person, an organisation or a key, bytes.
pub(super) const NAME_BYTES_MAX: usize = 200;

/// Why a text is no name: `validation_failed`, each with a code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// `too_long`.
    #[error("a name has at most {NAME_BYTES_MAX} bytes, this one {0}")]
    TooLong(usize),
    /// `characters`.
    #[error("a name holds no control characters and none that are not seen; this one holds U+{:04X}", u32::from(*.0))]
    Character(char),
    /// `characters`: joiners and fillers alone.
    #[error("nothing of this name is seen")]
    Blank,
}

impl NameError {
    /// What the API calls it.
    pub const fn code(self) -> &'static str {
        match self {
            NameError::TooLong(_) => "too_long",
            NameError::Character(_) | NameError::Blank => "characters",
        }
    }
}

/// A name as it is stored: without space around it. It may be empty.
///
/// # Errors
/// [`NameError`].
pub(super) fn parse(text: &str) -> Result<String, NameError> {
    let name = text.trim();
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong(name.len()));
    }
    if let Some(wrong) = name.chars().find(|c| is_forbidden(*c)) {
        return Err(NameError::Character(wrong));
    }
    if !name.is_empty() && !name.chars().any(is_seen) {
        return Err(NameError::Blank);
    }
    Ok(name.to_owned())
}

/// A name from elsewhere, without what [`parse`] refuses; empty where nothing is left.
pub(super) fn cleaned(text: &str) -> String {
    // A tabulator or the end of a line stood between two words.
    let seen = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c });
    let whole: String = seen.filter(|c| !is_forbidden(*c)).take(NAME_BYTES_MAX).collect();
    let name = whole.trim();
    let name = name.get(..name.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or_default().trim_end();
    if name.chars().any(is_seen) { name.to_owned() } else { String::new() }
}

/// Ends lines, turns directions, or is of no width.
pub(super) fn is_forbidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Leaves a mark on the page by itself.
fn is_seen(c: char) -> bool {
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
    fn names_of_the_world_are_names() {
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
            "space around it is taken off"
        );
    }

    #[test]
    fn what_is_not_seen_is_no_name() {
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
        assert_eq!(NameError::Character('\u{1b}').to_string().split("holds U").nth(1), Some("+001B"));
    }

    proptest! {
        /// What was cleaned is a name, and a name is clean.
        #[test]
        fn what_was_cleaned_is_a_name(text in "\\PC{0,300}|(.|[\u{200b}-\u{2070}]){0,60}") {
            let name = cleaned(&text);
            prop_assert_eq!(parse(&name), Ok(name.clone()));
            prop_assert_eq!(cleaned(&name), name);
        }
    }
}
