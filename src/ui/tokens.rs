//! Splits modules into tokens, when the binary is built.

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name, a keyword, a private name, or a number.
    Word,
    /// A text in quotes, or a regular expression.
    Literal,
    /// A part of a template.
    Template {
        /// Whether the token ends an expression in the template: it begins with `}`.
        closes: bool,
        /// Whether an expression in the template follows: the token ends with `${`.
        opens: bool,
    },
    /// Anything else. Signs of several characters that the callers know are one token.
    Sign,
}

/// The white space and the comments before a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// Nothing.
    None,
    /// White space or comments without a line break.
    Space,
    /// A line break.
    Line,
}

/// A token of a module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    /// The white space and comments before the token.
    pub(crate) gap: Gap,
}

impl Token<'_> {
    /// Returns whether the token is this sign or this word.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text && matches!(self.kind, Kind::Word | Kind::Sign)
    }
}

/// Words after which `/` begins a regular expression.
const WORDS_BEFORE_REGEX: [&str; 12] =
    ["return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "do", "else", "await"];

/// Signs that are one token. All others have one character.
const LONG_SIGNS: [&str; 4] = ["...", "=>", "??", "?."];

/// Returns the tokens of a module.
///
/// # Errors
/// The byte offset of a text, template, comment or regular expression without an end.
pub(crate) fn tokens(source: &str) -> Result<Vec<Token<'_>>, usize> {
    let mut found: Vec<Token<'_>> = Vec::new();
    // Braces that are open in each template expression around the current position.
    let mut templates: Vec<usize> = Vec::new();
    let mut at = 0;
    while let Some(rest) = source.get(at..).filter(|rest| !rest.is_empty()) {
        let (skipped, gap) = space(rest).map_err(|offset| at + offset)?;
        at += skipped;
        let rest = source.get(at..).unwrap_or_default();
        let Some(next) = rest.chars().next() else { break };
        let closes = next == '}' && templates.last() == Some(&0);
        let (kind, length) = if closes || next == '`' {
            if closes {
                templates.pop();
            }
            let (length, opens) = template(rest).ok_or(at + 1)?;
            if opens {
                templates.push(0);
            }
            (Kind::Template { closes, opens }, length)
        } else if matches!(next, '\'' | '"') {
            (Kind::Literal, quoted(rest, next).ok_or(at)?)
        } else if next == '/' && !is_value(&found) {
            (Kind::Literal, regex(rest).ok_or(at)?)
        } else if is_name(next) {
            (Kind::Word, name_end(rest, 0))
        } else {
            match (next, templates.last_mut()) {
                ('{', Some(open)) => *open += 1,
                ('}', Some(open)) => *open -= 1,
                _ => {}
            }
            (Kind::Sign, sign(rest, next))
        };
        let text = rest.get(..length).unwrap_or_default();
        found.push(Token { kind, text, gap });
        at += length;
    }
    if templates.is_empty() { Ok(found) } else { Err(source.len()) }
}

/// Returns whether a character belongs to names and numbers.
pub(crate) fn is_name(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '$' | '#' | '\\')
}

/// Returns whether the last token ends a value: `/` after it divides.
fn is_value(tokens: &[Token<'_>]) -> bool {
    let Some((last, before)) = tokens.split_last() else { return false };
    match last.kind {
        Kind::Literal => true,
        Kind::Template { opens, .. } => !opens,
        Kind::Sign => matches!(last.text, ")" | "]" | "}"),
        Kind::Word => {
            let is_member = before.last().is_some_and(|before| before.is(".") || before.is("?."));
            is_member || !WORDS_BEFORE_REGEX.contains(&last.text)
        }
    }
}

/// Returns the length of the white space and the comments at the start, and their kind.
fn space(source: &str) -> Result<(usize, Gap), usize> {
    let mut at = 0;
    while let Some(rest) = source.get(at..) {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").ok_or(at)? + 2
        } else {
            rest.len() - rest.trim_start().len()
        };
        if length == 0 {
            break;
        }
        at += length;
    }
    let skipped = source.get(..at).unwrap_or_default();
    let gap = match skipped {
        "" => Gap::None,
        _ if skipped.contains('\n') => Gap::Line,
        _ => Gap::Space,
    };
    Ok((at, gap))
}

/// Returns the length of the text in quotes at the start.
fn quoted(source: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (offset, character) in source.char_indices().skip(1) {
        match character {
            '\n' => return None,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return Some(offset + 1),
            _ => {}
        }
    }
    None
}

/// Returns the length of the part of a template at the start, and whether an expression follows.
fn template(source: &str) -> Option<(usize, bool)> {
    let (mut escaped, mut last) = (false, ' ');
    for (offset, character) in source.char_indices().skip(1) {
        match character {
            _ if escaped => {
                (escaped, last) = (false, ' ');
                continue;
            }
            '`' => return Some((offset + 1, false)),
            '{' if last == '$' => return Some((offset + 1, true)),
            '\\' => escaped = true,
            _ => {}
        }
        last = character;
    }
    None
}

/// Returns the length of the regular expression at the start, with its flags.
fn regex(source: &str) -> Option<usize> {
    let (mut escaped, mut class) = (false, false);
    for (offset, character) in source.char_indices().skip(1) {
        match character {
            '\n' => return None,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => class = true,
            ']' => class = false,
            '/' if !class => return Some(name_end(source, offset + 1)),
            _ => {}
        }
    }
    None
}

/// Returns the offset of the first character that belongs to no name, from an offset on.
fn name_end(source: &str, from: usize) -> usize {
    let rest = source.get(from..).unwrap_or_default();
    from + rest.find(|character| !is_name(character)).unwrap_or(rest.len())
}

fn sign(source: &str, first: char) -> usize {
    let long = LONG_SIGNS.iter().find(|sign| source.starts_with(**sign));
    // `a?.5:b` has a number.
    let number =
        source.get(2..3).is_some_and(|digit| digit.starts_with(|digit: char| digit.is_ascii_digit()));
    match long {
        Some(sign) if *sign != "?." || !number => sign.len(),
        _ => first.len_utf8(),
    }
}
