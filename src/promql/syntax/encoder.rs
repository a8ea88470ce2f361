//! Reads the tokens once, enforces the caps, and writes the coded text for promql-parser.
//!
//! In the placeholders, `i` is an index into the table, which is a field of [`CodedText`]. Windows,
//! offsets, times and fills count from 1, because zero is special to the parser.
//!
//! | in the query                        | in the coded text                  | table            |
//! |-------------------------------------|------------------------------------|------------------|
//! | `up{job="a"}`                       | `s{i}`                             | `selectors`      |
//! | `1.5`, `5m`, `Inf`                  | `scalar(n{i})`                     | `numbers`        |
//! | `"text"`                            | `"{i}"`                            | `texts`          |
//! | `[5m]`, `[1h:step()]`               | `[{i}s]`, `[{i}s:]`                | `windows`        |
//! | `anchored`, `smoothed`              | nothing                            | `selectors`      |
//! | `</`, `>/`                          | `< bool`, `> bool`                 | `operators`      |
//! | `offset -5m`                        | `offset {i}s`, or nothing for zero | `offsets`        |
//! | `@ 5`, `@ end()`                    | `@ {i}`                            | `times`          |
//! | a label in `by`, `on`, `group_left` | `l{i}`                             | `labels`         |
//! | `fill(-1)`                          | `fill({i})`                        | `numbers`        |
//! | unary `+`, `-`                      | `-`                                | `signs`, ordered |
//!
//! `scalar(n0)` prevents the parser from merging signs into literals and from exempting literals
//! from type rules. Selectors of the user are coded as `s{i}`, so none of them can look like `n0`.
//! Calls, aggregations, signs and operators keep the order of the text, in which the tree is
//! traversed.

mod duration;
mod operand;
mod postfix;
pub(super) mod selector;

use std::fmt::Write;

use crate::model::Matcher;

use super::duration_expr::DurationExpr;
use super::lex::{Token, TokenKind};
use super::tree::{AtModifier, BinaryOp, Extension, Span};
use super::{Caps, Fault};

pub(super) use operand::coded_operator;
pub(super) use selector::{single_matcher, single_selector};

/// The coded text, and the tables that its placeholders refer to.
#[derive(Debug, Default)]
pub(super) struct CodedText {
    pub(super) text: String,
    pub(super) selectors: Vec<EncodedSelector>,
    /// Values with their start in the text.
    pub(super) numbers: Vec<(f64, u32)>,
    /// Decoded strings, which need not be UTF-8, with their start in the text.
    pub(super) texts: Vec<(Vec<u8>, u32)>,
    pub(super) windows: Vec<EncodedWindow>,
    pub(super) offsets: Vec<DurationExpr>,
    pub(super) times: Vec<AtModifier>,
    pub(super) labels: Vec<String>,
    /// Signs in the order of the text: whether each is a plus, and its offset.
    pub(super) signs: Vec<(bool, u32)>,
    /// Offsets of opening parentheses that belong to no call or aggregation, in the order of the
    /// text.
    pub(super) parens: Vec<u32>,
    /// Calls and aggregations in the order in which their names occur in the text.
    pub(super) calls: Vec<Span>,
    /// Binary operators in the order of the text.
    pub(super) operators: Vec<(BinaryOp, Span)>,
    /// The number of counted regular expressions in selectors.
    pub(super) regex_matchers: usize,
}

/// A selector without `offset` and `@`.
#[derive(Clone, Debug)]
pub(super) struct EncodedSelector {
    pub(super) matchers: Vec<Matcher>,
    pub(super) extension: Option<Extension>,
    pub(super) span: Span,
}

/// `[range]` or `[range:step]`.
#[derive(Clone, Debug)]
pub(super) struct EncodedWindow {
    pub(super) range: DurationExpr,
    pub(super) step: Option<DurationExpr>,
    pub(super) span: Span,
}

/// Encodes the expression `text`, whose tokens are `tokens`.
pub(super) fn encode(text: &str, tokens: &[Token], caps: &Caps) -> Result<CodedText, Fault> {
    let mut encoder = TokenEncoder::new(text, tokens, caps);
    if tokens.is_empty() {
        return Err(Fault::new(0, "no expression found in input"));
    }
    encoder.operand()?;
    loop {
        match encoder.state {
            ExpectedToken::Operand => encoder.operand()?,
            ExpectedToken::Operator if encoder.at_end() => break,
            ExpectedToken::Operator => encoder.operator()?,
        }
    }
    if let Some(open) = encoder.stack.last() {
        let context = format!(" inside {}", open.kind.name());
        return Err(encoder.unexpected(&context, ""));
    }
    encoder.compile_selectors()?;
    encoder.coded.regex_matchers = encoder.regex_matchers;
    Ok(encoder.coded)
}

/// The kind of token that is expected next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedToken {
    Operand,
    Operator,
}

/// The kind of the operand before an operator or modifier.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastOperand {
    Selector,
    Window,
    Subquery,
    Other,
}

/// An open parenthesis.
struct OpenParen {
    kind: ParenKind,
    /// The number of complete arguments.
    args: usize,
    /// `TokenEncoder::depth` to restore at the closing parenthesis.
    depth_outside: usize,
    /// `TokenEncoder::depth_base` to restore at the closing parenthesis.
    depth_base_outside: usize,
    /// `TokenEncoder::subqueries_before` to restore at the closing parenthesis.
    subqueries_outside: usize,
    /// The start of the operand in the text.
    offset: u32,
}

/// The kinds of open parenthesis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParenKind {
    Paren,
    /// A call, by its index in `CodedText::calls`; only `info` has a special rule.
    Call {
        index: usize,
        is_info: bool,
    },
    Aggregate {
        index: usize,
        has_grouping: bool,
    },
}

impl ParenKind {
    fn name(self) -> &'static str {
        match self {
            ParenKind::Paren => "parenthesis",
            ParenKind::Call { .. } => "function call arguments",
            ParenKind::Aggregate { .. } => "aggregation",
        }
    }
}

/// The state of encoding one text.
struct TokenEncoder<'t> {
    text: &'t str,
    tokens: &'t [Token],
    next: usize,
    caps: &'t Caps,
    coded: CodedText,
    selectors: Vec<selector::RawSelector>,
    regex_matchers: usize,
    /// The number of operators in duration expressions.
    duration_operators: usize,
    state: ExpectedToken,
    stack: Vec<OpenParen>,
    /// The number of open parentheses and signs around the next token.
    depth: usize,
    /// The `depth` of an operand without signs in the innermost open expression.
    depth_base: usize,
    last: LastOperand,
    /// The start of the last operand in the text.
    last_start: u32,
    last_has_offset: bool,
    last_has_at: bool,
    /// The nesting of subqueries in the last operand.
    subqueries: usize,
    /// The greatest nesting of subqueries in earlier operands of the innermost open expression.
    subqueries_before: usize,
}

impl<'t> TokenEncoder<'t> {
    fn new(text: &'t str, tokens: &'t [Token], caps: &'t Caps) -> TokenEncoder<'t> {
        TokenEncoder {
            text,
            tokens,
            next: 0,
            caps,
            coded: CodedText::default(),
            selectors: Vec::new(),
            regex_matchers: 0,
            duration_operators: 0,
            state: ExpectedToken::Operand,
            stack: Vec::new(),
            depth: 0,
            depth_base: 0,
            last: LastOperand::Other,
            last_start: 0,
            last_has_offset: false,
            last_has_at: false,
            subqueries: 0,
            subqueries_before: 0,
        }
    }

    fn at_end(&self) -> bool {
        self.next >= self.tokens.len()
    }

    fn peek(&self) -> Option<Token> {
        self.tokens.get(self.next).copied()
    }

    fn peek_kind(&self, ahead: usize) -> Option<TokenKind> {
        self.tokens.get(self.next + ahead).map(|token| token.kind)
    }

    fn word(&self, token: Token) -> &'t str {
        token.text(self.text)
    }

    /// Consumes the next token if it is of this kind.
    fn take(&mut self, kind: TokenKind) -> Option<Token> {
        let token = self.peek().filter(|token| token.kind == kind)?;
        self.next += 1;
        Some(token)
    }

    /// Consumes the next token, which must be of this kind.
    fn expect(&mut self, kind: TokenKind, context: &str, expected: &str) -> Result<Token, Fault> {
        self.take(kind).ok_or_else(|| self.unexpected(context, expected))
    }

    /// Returns the error that the next token, or the end of the text, is not valid here.
    fn unexpected(&self, context: &str, expected: &str) -> Fault {
        let expected = if expected.is_empty() { String::new() } else { format!(", expected {expected}") };
        match self.peek() {
            None => {
                let message =
                    self.unclosed().unwrap_or(format!("unexpected end of input{context}{expected}"));
                Fault::new(self.text.len(), message)
            }
            Some(token) => {
                let what = match token.kind {
                    TokenKind::Word if is_keyword(self.word(token)) => format!("<{}>", self.word(token)),
                    TokenKind::Word => format!("identifier {:?}", self.word(token)),
                    TokenKind::Number => format!("number {:?}", self.word(token)),
                    // Prometheus quotes the token with its own quotes once more.
                    TokenKind::Text => format!("string {:?}", self.word(token)),
                    _ => format!("{:?}", self.word(token)),
                };
                Fault::at(token.span, format!("unexpected {what}{context}{expected}"))
            }
        }
    }

    /// Returns the message of Prometheus about an unclosed parenthesis or bracket.
    fn unclosed(&self) -> Option<String> {
        let count = |kind| self.tokens.iter().filter(|token| token.kind == kind).count();
        let open = [
            (TokenKind::LeftParen, TokenKind::RightParen, "parenthesis"),
            (TokenKind::LeftBracket, TokenKind::RightBracket, "bracket"),
        ];
        let what = open.into_iter().find(|(left, right, _)| count(*left) > count(*right))?;
        Some(format!("unclosed left {}", what.2))
    }

    /// Describes the innermost open parenthesis for messages.
    fn context(&self) -> String {
        self.stack.last().map_or_else(String::new, |open| format!(" inside {}", open.kind.name()))
    }

    /// Refuses a token if `more` further levels exceed the cap on nesting.
    fn check_depth(&self, more: usize, span: Span) -> Result<(), Fault> {
        if self.depth + more <= self.caps.nesting {
            return Ok(());
        }
        Err(Fault::at(
            span,
            format!("expression nested too deeply: at most {} levels are allowed", self.caps.nesting),
        ))
    }

    /// Refuses the operator at `span` if there are too many.
    fn check_operators(&self, span: Span) -> Result<(), Fault> {
        if self.coded.operators.len() + self.duration_operators <= self.caps.binary_operators {
            return Ok(());
        }
        let message =
            format!("too many binary operators: at most {} are allowed", self.caps.binary_operators);
        Err(Fault::at(span, message))
    }

    /// Appends `piece` and a blank to the coded text.
    fn write(&mut self, piece: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.coded.text.write_fmt(piece);
        self.coded.text.push(' ');
    }

    /// Records that an operand is complete.
    fn operand_done(&mut self, last: LastOperand, start: u32, subqueries: usize) {
        self.state = ExpectedToken::Operator;
        self.last = last;
        self.last_start = start;
        self.last_has_offset = false;
        self.last_has_at = false;
        self.subqueries = subqueries;
    }

    /// Records that the last operand can no longer become the operand of a subquery.
    fn fold_subqueries(&mut self) {
        self.subqueries_before = self.subqueries_before.max(self.subqueries);
        self.subqueries = 0;
    }
}

/// Returns whether the lexer of Prometheus treats `word` as a keyword, including operators.
fn is_keyword(word: &str) -> bool {
    const KEYWORDS: [&str; 17] = [
        "and",
        "or",
        "unless",
        "atan2",
        "offset",
        "by",
        "without",
        "on",
        "ignoring",
        "group_left",
        "group_right",
        "bool",
        "fill",
        "fill_left",
        "fill_right",
        "anchored",
        "smoothed",
    ];
    KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(word)) || is_aggregation(word)
}

fn is_aggregation(word: &str) -> bool {
    const AGGREGATIONS: [&str; 14] = [
        "sum",
        "avg",
        "count",
        "min",
        "max",
        "group",
        "stddev",
        "stdvar",
        "topk",
        "bottomk",
        "quantile",
        "count_values",
        "limitk",
        "limit_ratio",
    ];
    AGGREGATIONS.iter().any(|name| name.eq_ignore_ascii_case(word))
}

/// Returns whether `word` is not a metric name even where an operand is expected.
pub(super) fn is_reserved(word: &str) -> bool {
    const RESERVED: [&str; 6] = ["bool", "on", "ignoring", "group_left", "group_right", "atan2"];
    RESERVED.iter().any(|keyword| keyword.eq_ignore_ascii_case(word)) || is_number_word(word)
}

/// Returns whether `word` is `Inf` or `NaN`, ignoring case.
pub(super) fn is_number_word(word: &str) -> bool {
    word.eq_ignore_ascii_case("inf") || word.eq_ignore_ascii_case("nan")
}

/// Returns the value of `Inf` or `NaN`.
fn number_word(word: &str) -> f64 {
    if word.eq_ignore_ascii_case("inf") { f64::INFINITY } else { f64::NAN }
}
