//! Splits the text of a template into tokens, as Go's text/template does.

use super::TemplateError;

/// A token with its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct TemplateToken<'t> {
    pub(super) kind: TemplateTokenKind,
    /// The text of the token; of [`TemplateTokenKind::Text`] without the spaces that trim markers
    /// remove.
    pub(super) text: &'t str,
    /// The byte offset of the token in the template.
    pub(super) at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateTokenKind {
    /// Text outside of actions.
    Text,
    /// `{{`.
    Open,
    /// `}}`.
    Close,
    /// Spaces, which separate the operands of an action.
    Space,
    /// `true` or `false`.
    Bool,
    /// A character in single quotes.
    Char,
    Number,
    /// A string in double quotes.
    Quoted,
    /// A string in backquotes.
    Raw,
    /// `.name`.
    Field,
    /// `$name`, or `$`.
    Variable,
    /// The name of a function.
    Identifier,
    Keyword,
    /// `.`.
    Dot,
    Nil,
    /// `|`.
    Pipe,
    /// `:=`.
    Declare,
    /// `=`.
    Assign,
    LeftParen,
    RightParen,
    Comma,
    /// The end of the template.
    End,
}

const KEYWORDS: [&str; 10] =
    ["block", "break", "continue", "define", "else", "end", "if", "range", "template", "with"];

/// Splits a template into its tokens; the last one is [`TemplateTokenKind::End`].
pub(super) fn lex(text: &str) -> Result<Vec<TemplateToken<'_>>, TemplateError> {
    let mut lexer = TemplateLexer { text, at: 0, tokens: Vec::new() };
    let mut trim = false;
    loop {
        let rest = lexer.rest();
        let Some(open) = rest.find("{{") else {
            lexer.push_text(rest, trim, false);
            lexer.at = text.len();
            lexer.push(TemplateTokenKind::End, 0);
            return Ok(lexer.tokens);
        };
        let before = rest.get(..open).unwrap_or_default();
        let after = rest.get(open + 2..).unwrap_or_default();
        let trims_before = after.starts_with('-') && after.get(1..).is_some_and(starts_with_space);
        lexer.push_text(before, trim, trims_before);
        lexer.at += open;
        let marker = if trims_before { 2 } else { 0 };
        if after.get(marker..).is_some_and(|inner| inner.starts_with("/*")) {
            trim = lexer.comment(2 + marker)?;
            continue;
        }
        lexer.push(TemplateTokenKind::Open, 2);
        lexer.at += marker;
        trim = lexer.action()?;
    }
}

fn starts_with_space(text: &str) -> bool {
    text.starts_with(is_space)
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

struct TemplateLexer<'t> {
    text: &'t str,
    at: usize,
    tokens: Vec<TemplateToken<'t>>,
}

impl<'t> TemplateLexer<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn error(&self, message: impl Into<String>) -> TemplateError {
        TemplateError::at(self.text, self.at, message)
    }

    /// Pushes a token of `len` bytes and moves past it.
    fn push(&mut self, kind: TemplateTokenKind, len: usize) {
        let text = self.rest().get(..len).unwrap_or_default();
        self.tokens.push(TemplateToken { kind, text, at: self.at });
        self.at += len;
    }

    fn push_text(&mut self, text: &'t str, trim_start: bool, trim_end: bool) {
        let start = if trim_start { text.trim_start_matches(is_space) } else { text };
        let at = self.at + (text.len() - start.len());
        let text = if trim_end { start.trim_end_matches(is_space) } else { start };
        if !text.is_empty() {
            self.tokens.push(TemplateToken { kind: TemplateTokenKind::Text, text, at });
        }
    }

    /// Skips a comment that begins `skip` bytes after the delimiter. Returns whether spaces after
    /// it are removed.
    fn comment(&mut self, skip: usize) -> Result<bool, TemplateError> {
        let inner = self.rest().get(skip..).unwrap_or_default();
        let end = inner.find("*/").ok_or_else(|| self.error("unclosed comment"))? + 2;
        let after = inner.get(end..).unwrap_or_default();
        let Some((len, trim)) = closing(after) else {
            return Err(self.error("comment ends before closing delimiter"));
        };
        self.at += skip + end + len;
        Ok(trim)
    }

    /// Reads up to the closing delimiter. Returns whether spaces after it are removed.
    fn action(&mut self) -> Result<bool, TemplateError> {
        let mut parens = 0usize;
        loop {
            let rest = self.rest();
            if let Some((len, trim)) = closing(rest) {
                if parens > 0 {
                    return Err(self.error("unclosed left paren"));
                }
                self.at += len - 2;
                self.push(TemplateTokenKind::Close, 2);
                return Ok(trim);
            }
            let Some(first) = rest.chars().next() else { return Err(self.error("unclosed action")) };
            match first {
                c if is_space(c) => self.space(),
                '(' => {
                    parens += 1;
                    self.push(TemplateTokenKind::LeftParen, 1);
                }
                ')' => {
                    parens = parens.checked_sub(1).ok_or_else(|| self.error("unexpected right paren"))?;
                    self.push(TemplateTokenKind::RightParen, 1);
                }
                _ => self.operand(first)?,
            }
        }
    }

    fn space(&mut self) {
        let rest = self.rest();
        // A space in front of `-}}` belongs to the delimiter.
        let len = rest
            .char_indices()
            .find(|(at, c)| !is_space(*c) || closing(rest.get(*at..).unwrap_or_default()).is_some())
            .map_or(rest.len(), |(at, _)| at);
        self.push(TemplateTokenKind::Space, len);
    }

    fn operand(&mut self, first: char) -> Result<(), TemplateError> {
        let rest = self.rest();
        let digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        let after = rest.get(first.len_utf8()..).unwrap_or_default();
        match first {
            ':' if after.starts_with('=') => self.push(TemplateTokenKind::Declare, 2),
            ':' => return Err(self.error("expected :=")),
            '=' => self.push(TemplateTokenKind::Assign, 1),
            '|' => self.push(TemplateTokenKind::Pipe, 1),
            ',' => self.push(TemplateTokenKind::Comma, 1),
            '"' => self.quoted('"', TemplateTokenKind::Quoted, "unterminated quoted string")?,
            '\'' => self.quoted('\'', TemplateTokenKind::Char, "unterminated character constant")?,
            '`' => {
                let end = after.find('`').ok_or_else(|| self.error("unterminated raw quoted string"))?;
                self.push(TemplateTokenKind::Raw, end + 2);
            }
            '.' if !digit(after) => self.name(TemplateTokenKind::Field)?,
            '$' => self.name(TemplateTokenKind::Variable)?,
            '+' | '-' | '.' | '0'..='9' => self.number()?,
            c if is_word(c) => self.word()?,
            c => return Err(self.error(format!("unexpected {c:?} in action"))),
        }
        Ok(())
    }

    /// Reads a text up to its closing quote, on one line.
    fn quoted(
        &mut self,
        quote: char,
        kind: TemplateTokenKind,
        unterminated: &str,
    ) -> Result<(), TemplateError> {
        let mut escaped = false;
        for (at, c) in self.rest().char_indices().skip(1) {
            match c {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == quote => {
                    self.push(kind, at + 1);
                    return Ok(());
                }
                _ => {}
            }
        }
        Err(self.error(unterminated))
    }

    /// Reads `.name` or `$name`; the name may be empty.
    fn name(&mut self, kind: TemplateTokenKind) -> Result<(), TemplateError> {
        let rest = self.rest();
        let name = rest.get(1..).unwrap_or_default();
        let len = name.find(|c| !is_word(c)).unwrap_or(name.len());
        self.check_terminator(name.get(len..).unwrap_or_default(), len + 1)?;
        let kind = if len == 0 && kind == TemplateTokenKind::Field { TemplateTokenKind::Dot } else { kind };
        self.push(kind, len + 1);
        Ok(())
    }

    fn word(&mut self) -> Result<(), TemplateError> {
        let rest = self.rest();
        let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        self.check_terminator(rest.get(len..).unwrap_or_default(), len)?;
        let kind = match rest.get(..len).unwrap_or_default() {
            "true" | "false" => TemplateTokenKind::Bool,
            "nil" => TemplateTokenKind::Nil,
            word if KEYWORDS.contains(&word) => TemplateTokenKind::Keyword,
            _ => TemplateTokenKind::Identifier,
        };
        self.push(kind, len);
        Ok(())
    }

    fn check_terminator(&self, after: &str, len: usize) -> Result<(), TemplateError> {
        let ends = after.starts_with(['.', ',', '|', ':', '=', '(', ')']) || after.starts_with("}}");
        match after.chars().next() {
            Some(c) if !ends && !is_space(c) => {
                Err(TemplateError::at(self.text, self.at + len, format!("bad character {c:?}")))
            }
            _ => Ok(()),
        }
    }

    fn number(&mut self) -> Result<(), TemplateError> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let signed = usize::from(rest.starts_with(['+', '-']));
        let hex =
            rest.get(signed..).is_some_and(|digits| digits.starts_with("0x") || digits.starts_with("0X"));
        let mut len = signed;
        while let Some(byte) = bytes.get(len) {
            let before = len.checked_sub(1).and_then(|at| bytes.get(at)).copied().unwrap_or_default();
            let exponent = if hex { matches!(before, b'p' | b'P') } else { matches!(before, b'e' | b'E') };
            let sign = exponent && matches!(byte, b'+' | b'-');
            if !(sign || byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.')) {
                break;
            }
            len += 1;
        }
        let text = rest.get(..len).unwrap_or_default();
        let bad = || self.error(format!("bad number syntax: {text:?}"));
        if rest.get(len..).is_some_and(|after| after.starts_with(is_word)) {
            return Err(bad());
        }
        super::number::parse(text).ok_or_else(bad)?;
        self.push(TemplateTokenKind::Number, len);
        Ok(())
    }
}

/// Returns the length of the closing delimiter at the start of `text`, with its trim marker, and
/// whether it has one.
fn closing(text: &str) -> Option<(usize, bool)> {
    if text.starts_with("}}") {
        return Some((2, false));
    }
    let marked = starts_with_space(text) && text.get(1..).is_some_and(|rest| rest.starts_with("-}}"));
    marked.then_some((4, true))
}
