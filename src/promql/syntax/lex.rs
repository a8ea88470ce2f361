//! PromQL's tokens with their positions. One pass, no recursion; every byte of the text is looked at a bounded number
//! of times. What a token means in its place (keyword, metric name, label name) is the reader's business.

use super::tree::Span;
use super::{Fault, SyntaxError};

/// One piece of the text. Blanks and comments are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// Where it stands.
    pub span: Span,
}

impl Token {
    /// What was written; `text` is what was lexed.
    pub fn text<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.span.start as usize..self.span.end as usize).unwrap_or_default()
    }
}

/// The kinds of token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A name or keyword; with colons only outside of braces and brackets.
    Word,
    /// Digits and what may follow them: a number or a duration, not yet checked.
    Number,
    /// A quoted text with its quotes; escapes are not yet checked.
    Text,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Mod,
    /// `^`
    Pow,
    /// `==`
    EqualEqual,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
    /// `</`
    TrimUpper,
    /// `>/`
    TrimLower,
    /// `=`
    Equal,
    /// `=~`
    Regex,
    /// `!~`
    NotRegex,
    /// `@`
    At,
    /// `,`
    Comma,
    /// `:` within brackets
    Colon,
    /// `(`
    LeftParen,
    /// `)`
    RightParen,
    /// `{`
    LeftBrace,
    /// `}`
    RightBrace,
    /// `[`
    LeftBracket,
    /// `]`
    RightBracket,
}

/// Splits `text` into tokens.
///
/// # Errors
/// [`SyntaxError`] at the first character that begins no token, or at a text that does not end.
pub fn lex(text: &str) -> Result<Vec<Token>, SyntaxError> {
    lex_within(text, u32::MAX as usize).map_err(|fault| SyntaxError::locate(text, fault))
}

pub(super) fn lex_within(text: &str, text_bytes_max: usize) -> Result<Vec<Token>, Fault> {
    let text_bytes_max = text_bytes_max.min(u32::MAX as usize);
    if text.len() > text_bytes_max {
        let message =
            format!("expression too long: {} bytes, at most {text_bytes_max} are allowed", text.len());
        return Err(Fault::new(0, message));
    }
    let mut lexer = Lexer { bytes: text.as_bytes(), text, at: 0, inside: Inside::Nothing };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.token()? {
        tokens.push(token);
    }
    Ok(tokens)
}

/// What encloses the next token directly, as far as the lexer cares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Nothing,
    Braces,
    Brackets,
}

struct Lexer<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    inside: Inside,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn skip_while(&mut self, mut keep: impl FnMut(u8) -> bool) {
        while self.peek(0).is_some_and(&mut keep) {
            self.at += 1;
        }
    }

    fn skip_blanks_and_comments(&mut self) {
        loop {
            self.skip_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
            if self.peek(0) != Some(b'#') {
                return;
            }
            self.skip_while(|byte| !matches!(byte, b'\n' | b'\r'));
        }
    }

    fn token(&mut self) -> Result<Option<Token>, Fault> {
        self.skip_blanks_and_comments();
        let start = self.at;
        let Some(first) = self.peek(0) else { return Ok(None) };
        let kind = match first {
            b'"' | b'\'' | b'`' => self.quoted(first)?,
            b'0'..=b'9' => self.number(),
            b'.' if self.peek(1).is_some_and(|byte| byte.is_ascii_digit()) => self.number(),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => self.word(),
            b':' if self.inside == Inside::Nothing => self.word(),
            _ => self.symbol(first)?,
        };
        let offset = |at| u32::try_from(at).expect("texts beyond u32 were refused");
        Ok(Some(Token { kind, span: Span { start: offset(start), end: offset(self.at) } }))
    }

    fn word(&mut self) -> TokenKind {
        let colons = self.inside == Inside::Nothing;
        self.skip_while(|byte| byte == b'_' || byte.is_ascii_alphanumeric() || (colons && byte == b':'));
        TokenKind::Word
    }

    /// Takes everything that could belong to a number or duration, so that `1x` is one wrong token, not two right ones.
    fn number(&mut self) -> TokenKind {
        let hex = self.peek(0) == Some(b'0') && matches!(self.peek(1), Some(b'x' | b'X'));
        let mut before = 0;
        self.skip_while(|byte| {
            let sign_of_exponent = matches!(byte, b'+' | b'-') && matches!(before, b'e' | b'E') && !hex;
            before = byte;
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.') || sign_of_exponent
        });
        TokenKind::Number
    }

    fn quoted(&mut self, quote: u8) -> Result<TokenKind, Fault> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek(0) {
                Some(byte) if byte == quote => break,
                Some(b'\\') if quote != b'`' => self.at += 2,
                Some(b'\n') if quote != b'`' => return Err(Fault::new(start, "unterminated quoted string")),
                Some(_) => self.at += 1,
                None if quote == b'`' => return Err(Fault::new(start, "unterminated raw string")),
                None => return Err(Fault::new(start, "unterminated quoted string")),
            }
        }
        self.at += 1;
        Ok(TokenKind::Text)
    }

    fn symbol(&mut self, first: u8) -> Result<TokenKind, Fault> {
        let two = |kind| Some((kind, 2));
        let double = match (first, self.peek(1)) {
            (b'=', Some(b'=')) => two(TokenKind::EqualEqual),
            (b'=', Some(b'~')) => two(TokenKind::Regex),
            (b'!', Some(b'=')) => two(TokenKind::NotEqual),
            (b'!', Some(b'~')) => two(TokenKind::NotRegex),
            (b'<', Some(b'=')) => two(TokenKind::LessEqual),
            (b'>', Some(b'=')) => two(TokenKind::GreaterEqual),
            (b'<', Some(b'/')) => two(TokenKind::TrimUpper),
            (b'>', Some(b'/')) => two(TokenKind::TrimLower),
            _ => None,
        };
        let single = |kind| Some((kind, 1));
        let known = double.or_else(|| match first {
            b'+' => single(TokenKind::Add),
            b'-' => single(TokenKind::Sub),
            b'*' => single(TokenKind::Mul),
            b'/' => single(TokenKind::Div),
            b'%' => single(TokenKind::Mod),
            b'^' => single(TokenKind::Pow),
            b'<' => single(TokenKind::Less),
            b'>' => single(TokenKind::Greater),
            b'=' => single(TokenKind::Equal),
            b'@' => single(TokenKind::At),
            b',' => single(TokenKind::Comma),
            b':' if self.inside == Inside::Brackets => single(TokenKind::Colon),
            b'(' => single(TokenKind::LeftParen),
            b')' => single(TokenKind::RightParen),
            b'{' => single(TokenKind::LeftBrace),
            b'}' => single(TokenKind::RightBrace),
            b'[' => single(TokenKind::LeftBracket),
            b']' => single(TokenKind::RightBracket),
            _ => None,
        });
        let Some((kind, bytes)) = known else { return Err(self.stranger()) };
        match kind {
            TokenKind::LeftBrace => self.inside = Inside::Braces,
            TokenKind::LeftBracket => self.inside = Inside::Brackets,
            TokenKind::RightBrace | TokenKind::RightBracket => self.inside = Inside::Nothing,
            _ => {}
        }
        self.at += bytes;
        Ok(kind)
    }

    fn stranger(&self) -> Fault {
        let mut characters = self.text.get(self.at..).unwrap_or_default().chars();
        let character = characters.next().unwrap_or_default();
        if let (Inside::Braces, '!', Some(next)) = (self.inside, character, characters.next()) {
            return Fault::new(self.at, format!("unexpected character after '!' inside braces: {next:?}"));
        }
        let place = match self.inside {
            Inside::Nothing => "",
            Inside::Braces => " inside braces",
            Inside::Brackets => " inside brackets",
        };
        Fault::new(self.at, format!("unexpected character{place}: {character:?}"))
    }
}
