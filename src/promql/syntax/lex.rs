//! Splits PromQL text into tokens with positions, in one pass without recursion and in linear time.
//! The parser decides whether a word is a keyword, a metric name or a label name.

use super::tree::Span;
use super::{Fault, SyntaxError};

/// A token of the text. Blanks and comments are not tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The kind of the token.
    pub kind: TokenKind,
    /// The position in the text.
    pub span: Span,
}

impl Token {
    /// Returns the token's part of `text`, which must be the lexed text.
    pub fn text<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.span.start as usize..self.span.end as usize).unwrap_or_default()
    }
}

/// The kinds of token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A name or keyword; with colons only outside of braces and brackets.
    Word,
    /// A number or duration, not validated yet.
    Number,
    /// A string with its quotes; escapes are not validated yet.
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
/// [`SyntaxError`] at the first character that cannot begin a token, or at an unterminated string.
pub fn lex(text: &str) -> Result<Vec<Token>, SyntaxError> {
    lex_within(text, u32::MAX as usize).map_err(|fault| SyntaxError::locate(text, fault))
}

/// Splits `text` into tokens if it has at most `text_bytes_max` bytes.
pub(super) fn lex_within(text: &str, text_bytes_max: usize) -> Result<Vec<Token>, Fault> {
    let text_bytes_max = text_bytes_max.min(u32::MAX as usize);
    if text.len() > text_bytes_max {
        let message =
            format!("expression too long: {} bytes, at most {text_bytes_max} are allowed", text.len());
        return Err(Fault::new(0, message));
    }
    let mut lexer = Lexer { bytes: text.as_bytes(), text, at: 0, inside: Enclosure::Nothing };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.token()? {
        tokens.push(token);
    }
    Ok(tokens)
}

/// The innermost enclosing braces or brackets, which change the tokens that are valid.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Enclosure {
    Nothing,
    Braces,
    Brackets,
}

struct Lexer<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    inside: Enclosure,
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
            b':' if self.inside == Enclosure::Nothing => self.word(),
            _ => self.symbol(first)?,
        };
        let offset = |at| u32::try_from(at).expect("texts beyond u32 were refused");
        Ok(Some(Token { kind, span: Span { start: offset(start), end: offset(self.at) } }))
    }

    fn word(&mut self) -> TokenKind {
        let colons = self.inside == Enclosure::Nothing;
        self.skip_while(|byte| byte == b'_' || byte.is_ascii_alphanumeric() || (colons && byte == b':'));
        TokenKind::Word
    }

    /// Reads all characters that could belong to a number or duration, so that `1x` is one invalid
    /// token instead of two valid ones.
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
            b':' if self.inside == Enclosure::Brackets => single(TokenKind::Colon),
            b'(' => single(TokenKind::LeftParen),
            b')' => single(TokenKind::RightParen),
            b'{' => single(TokenKind::LeftBrace),
            b'}' => single(TokenKind::RightBrace),
            b'[' => single(TokenKind::LeftBracket),
            b']' => single(TokenKind::RightBracket),
            _ => None,
        });
        let Some((kind, bytes)) = known else { return Err(self.unexpected_character()) };
        match kind {
            TokenKind::LeftBrace => self.inside = Enclosure::Braces,
            TokenKind::LeftBracket => self.inside = Enclosure::Brackets,
            TokenKind::RightBrace | TokenKind::RightBracket => self.inside = Enclosure::Nothing,
            _ => {}
        }
        self.at += bytes;
        Ok(kind)
    }

    fn unexpected_character(&self) -> Fault {
        let mut characters = self.text.get(self.at..).unwrap_or_default().chars();
        let character = characters.next().unwrap_or_default();
        if let (Enclosure::Braces, '!', Some(next)) = (self.inside, character, characters.next()) {
            return Fault::new(self.at, format!("unexpected character after '!' inside braces: {next:?}"));
        }
        let context = match self.inside {
            Enclosure::Nothing => "",
            Enclosure::Braces => " inside braces",
            Enclosure::Brackets => " inside brackets",
        };
        Fault::new(self.at, format!("unexpected character{context}: {character:?}"))
    }
}
