//! Text to tree: our lexer and caps in front, the parser's grammar behind them, our own tree out.
//!
//! ```text
//! text -> lex -> front -> coded text -> promql-parser -> grammar -> our tree -> check
//! ```
//!
//! 1. [`lex`] splits the raw text into tokens with positions. Iterative, one pass.
//! 2. `front` walks the tokens once with an explicit stack: it enforces [`Caps`], reads everything that is not an
//!    operator between expressions (selectors, windows, `offset`, `@`, label lists, literals) into tables, and
//!    writes a *coded* text in which each of those is a short placeholder carrying its place in the table.
//! 3. `grammar` hands the coded text to promql-parser, which therefore never sees a regular expression, a string, a
//!    number, a duration or a name of the user's, and turns its tree into ours by looking the placeholders up.
//! 4. `check` adds the type rules that the parser does not know.
//!
//! Spans: selectors (name to closing brace), calls and aggregations (name to closing parenthesis, or to the end
//! of a trailing `by` clause), binary operators (the operator itself), subqueries (the bracket).
//! Where step 3 refuses, `types` finds what is wrong in Prometheus' words and where.

mod cache;
mod check;
mod front;
mod grammar;
pub(super) mod length;
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

/// What one expression may be made of (API.md C5, "Expression guards").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Bytes of the text.
    pub text_bytes: usize,
    /// Open parentheses, calls, braces, brackets and unary signs around one token.
    pub nesting: usize,
    /// Operators between two expressions, and those of durations.
    pub binary_operators: usize,
    /// Series selectors.
    pub selectors: usize,
    /// Matchers `=~` and `!~`, and patterns of `label_replace`; alternations of literals (`a|b|c`) are not counted.
    pub regex_matchers: usize,
    /// Bytes of one counted regular expression.
    pub regex_bytes: usize,
    /// Subqueries inside each other.
    pub subquery_nesting: usize,
    /// The parts of the language that are understood only where a switch is on.
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
    /// What it yields.
    pub value_type: ValueType,
}

/// Why a text is no expression, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: parse error: {message}")]
pub struct SyntaxError {
    /// The sentence, without a position.
    pub message: String,
    /// Byte offset into the text.
    pub offset: usize,
    /// Line, from 1.
    pub line: u32,
    /// Byte column within the line, from 1, as Prometheus counts.
    pub column: u32,
}

/// Parses a PromQL expression. The work is bounded by `caps` before the grammar runs.
///
/// # Errors
/// [`SyntaxError`] for anything that is not PromQL, and for what exceeds `caps`.
pub fn parse(text: &str, caps: &Caps) -> Result<Parsed, SyntaxError> {
    let located = |fault| SyntaxError::locate(text, fault);
    let tokens = lex::lex_within(text, caps.text_bytes).map_err(located)?;
    let coded = front::encode(text, &tokens, caps).map_err(located)?;
    let expr = grammar::parse(&coded).map_err(located)?;
    check::check(&expr).map_err(located)?;
    check::check_patterns(&expr, coded.regex_matchers, caps).map_err(located)?;
    let value_type = expr.value_type();
    Ok(Parsed { expr, value_type })
}

/// Parses a series selector, `up{job="api"}` or `{job="api"}`, as in `match[]`.
///
/// # Errors
/// [`SyntaxError`] for anything else, and where every matcher would match a series without labels.
pub fn parse_selector(text: &str, caps: &Caps) -> Result<Vec<Matcher>, SyntaxError> {
    let located = |fault| SyntaxError::locate(text, fault);
    let tokens = lex::lex_within(text, caps.text_bytes).map_err(located)?;
    front::selector_alone(text, &tokens, caps).map_err(located)
}

/// Parses one `label op value`: `job=~"api|db"`, `job != api`. Quotes around the value are optional; without them the
/// value is the rest of the text, blanks at its ends removed.
///
/// # Errors
/// [`SyntaxError`] where the label name, the operator, the quotes or the regular expression are wrong.
pub fn parse_matcher(text: &str, caps: &Caps) -> Result<Matcher, SyntaxError> {
    front::matcher_alone(text, caps).map_err(|fault| SyntaxError::locate(text, fault))
}

/// A message and its place, before line and column are counted.
#[derive(Debug)]
struct Fault {
    offset: usize,
    message: String,
}

impl Fault {
    fn new(offset: usize, message: impl Into<String>) -> Fault {
        Fault { offset, message: message.into() }
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
        let message = shortened(fault.message);
        SyntaxError { message, offset, line: count(lines), column: count(column) }
    }
}

/// A token of 64 KiB is not repeated to its author.
fn shortened(mut message: String) -> String {
    const BYTES_MAX: usize = 400;
    if message.len() > BYTES_MAX {
        message.truncate(message.floor_char_boundary(BYTES_MAX));
        message.push_str(" ...");
    }
    message
}
