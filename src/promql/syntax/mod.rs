//! Parses PromQL text into an expression tree. Our lexer and caps come first, then the grammar of
//! promql-parser.
//!
//! ```text
//! text -> lex -> encoder -> coded text -> promql-parser -> grammar -> our tree -> check
//! ```
//!
//! 1. [`lex`] splits the text into tokens with positions, in one pass without recursion.
//! 2. `encoder` reads the tokens once with an explicit stack. It enforces [`Caps`], reads
//!    everything except the operators between expressions (selectors, windows, `offset`, `@`,
//!    label lists, literals) into tables, and writes a *coded* text, in which a short placeholder
//!    with its index in the table replaces each of them.
//! 3. `grammar` passes the coded text to promql-parser, which therefore never sees a regular
//!    expression, string, number, duration or name of the user. It then converts the parser's tree
//!    to ours and replaces the placeholders.
//! 4. `check` enforces the type rules that the parser does not check.
//!
//! Spans: selectors (name to closing brace), calls and aggregations (name to closing parenthesis,
//! or to the end of a trailing `by` clause), binary operators (the operator itself), subqueries
//! (the bracket). If step 3 fails, `types` finds the error message of Prometheus and its position.

mod cache;
mod check;
pub(super) mod duration_expr;
mod encoder;
mod grammar;

pub mod lex;
mod literal;
mod print;
pub mod structured;
pub mod tree;
mod types;

#[cfg(test)]
mod tests;

pub use crate::model::Features;
use crate::model::Matcher;
pub use cache::ExpressionCache;
use tree::{Expr, Span, ValueType};

/// The limits on one expression (docs/specification.md C5, "Expression guards").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Bytes of text.
    pub text_bytes: usize,
    /// Open parentheses, calls, braces, brackets and unary signs around one token.
    pub nesting: usize,
    /// Binary operators, including those in duration expressions.
    pub binary_operators: usize,
    /// Series selectors.
    pub selectors: usize,
    /// Matchers `=~` and `!~`, and patterns of `label_replace`; alternations of literals (`a|b|c`)
    /// are not counted.
    pub regex_matchers: usize,
    /// Bytes of one counted regular expression.
    pub regex_bytes: usize,
    /// Subqueries inside each other.
    pub subquery_nesting: usize,
    /// The feature switches, which enable parts of the language.
    pub features: Features,
}

impl Default for Caps {
    fn default() -> Caps {
        Caps {
            text_bytes: 64 << 10,
            nesting: 64,
            binary_operators: 256,
            selectors: 64,
            regex_matchers: 16,
            regex_bytes: 1 << 10,
            subquery_nesting: 4,
            features: Features::default(),
        }
    }
}

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The tree.
    pub expr: Expr,
    /// The type of its result.
    pub value_type: ValueType,
}

/// A syntax error and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: parse error: {message}")]
pub struct SyntaxError {
    /// The message without the position.
    pub message: String,
    /// Byte offset into the text.
    pub offset: usize,
    /// Line, counted from 1.
    pub line: u32,
    /// Byte column within the line, counted from 1 as in Prometheus.
    pub column: u32,
}

/// Parses a PromQL expression. `caps` bound the work before the grammar runs.
///
/// # Errors
/// [`SyntaxError`] if the text is not PromQL or exceeds `caps`.
pub fn parse(text: &str, caps: &Caps) -> Result<Parsed, SyntaxError> {
    let located = |fault| SyntaxError::locate(text, fault);
    let tokens = lex::lex_within(text, caps.text_bytes).map_err(located)?;
    let coded = encoder::encode(text, &tokens, caps).map_err(located)?;
    let expr = grammar::parse(&coded).map_err(located)?;
    check::check(&expr).map_err(located)?;
    check::check_patterns(&expr, coded.regex_matchers, caps).map_err(located)?;
    let value_type = expr.value_type();
    Ok(Parsed { expr, value_type })
}

/// Parses a series selector, `up{job="api"}` or `{job="api"}`, as in `match[]`.
///
/// # Errors
/// [`SyntaxError`] for other expressions, and if every matcher would match a series without labels.
pub fn parse_selector(text: &str, caps: &Caps) -> Result<Vec<Matcher>, SyntaxError> {
    let located = |fault| SyntaxError::locate(text, fault);
    let tokens = lex::lex_within(text, caps.text_bytes).map_err(located)?;
    encoder::single_selector(text, &tokens, caps).map_err(located)
}

/// Parses one `label op value`, such as `job=~"api|db"` or `job != api`. Quotes around the value
/// are optional; without them, the value is the trimmed rest of the text.
///
/// # Errors
/// [`SyntaxError`] if the label name, the operator, the quotes or the regular expression are
/// invalid.
pub fn parse_matcher(text: &str, caps: &Caps) -> Result<Matcher, SyntaxError> {
    encoder::single_matcher(text, caps).map_err(|fault| SyntaxError::locate(text, fault))
}

/// A syntax error before its line and column are computed.
#[derive(Debug)]
struct Fault {
    /// Byte offset.
    offset: usize,
    message: String,
}

impl Fault {
    fn new(offset: usize, message: impl Into<String>) -> Fault {
        Fault { offset, message: message.into() }
    }

    /// Adds `start` to the offset, which was relative to a part of the text.
    fn shifted(self, start: usize) -> Fault {
        Fault { offset: start + self.offset, ..self }
    }

    fn at(span: Span, message: impl Into<String>) -> Fault {
        Fault::new(span.start as usize, message)
    }
}

impl SyntaxError {
    fn locate(text: &str, fault: Fault) -> SyntaxError {
        let offset = fault.offset.min(text.len());
        let before = text.as_bytes().get(..offset).unwrap_or_default();
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).saturating_add(1);
        let message = truncated(fault.message);
        SyntaxError { message, offset, line: count(lines), column: count(column) }
    }
}

/// Truncates a message to 400 bytes, because it may contain a token of 64 KiB.
fn truncated(mut message: String) -> String {
    const BYTES_MAX: usize = 400;
    if message.len() > BYTES_MAX {
        message.truncate(message.floor_char_boundary(BYTES_MAX));
        message.push_str(" ...");
    }
    message
}
