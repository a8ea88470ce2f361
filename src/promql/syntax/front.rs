//! Walks the tokens once, enforces the caps, and writes the coded text that promql-parser reads.
//!
//! Placeholders, `i` being the place in the table of that kind (windows, offsets, times and fills count from 1, because
//! zero is special to the parser):
//!
//! | in the query                        | in the coded text      | table                 |
//! |-------------------------------------|------------------------|-----------------------|
//! | `up{job="a"}`                       | `s{i}`                 | [`Coded::selectors`]  |
//! | `1.5`, `5m`, `Inf`                  | `scalar(n{i})`         | [`Coded::numbers`]    |
//! | `"text"`                            | `"{i}"`                | [`Coded::texts`]      |
//! | `[5m]`, `[1h:step()]`               | `[{i}s]`, `[{i}s:]`    | [`Coded::windows`]    |
//! | `anchored`, `smoothed`              | nothing                | [`Coded::selectors`]  |
//! | `</`, `>/`                          | `< bool`, `> bool`     | [`Coded::operators`]  |
//! | `offset -5m`                        | `offset {i}s`, or nothing for zero | [`Coded::offsets`] |
//! | `@ 5`, `@ end()`                    | `@ {i}`                | [`Coded::times`]      |
//! | a label in `by`, `on`, `group_left` | `l{i}`                 | [`Coded::labels`]     |
//! | `fill(-1)`                          | `fill({i})`            | [`Coded::numbers`]    |
//! | unary `+`, `-`                      | `-`                    | [`Coded::signs`], in order |
//!
//! `scalar(n0)` keeps the parser from folding signs into literals and from exempting literals from type rules; a
//! selector of the user's is never called `n0`, so nothing can be mistaken for it.
//! Calls, aggregations, signs and operators are written in their own order, and the tree is walked in that order.

mod duration;
mod operand;
mod postfix;
pub(super) mod selector;

use std::fmt::Write;

use crate::model::Matcher;

use super::length::Length;
use super::lex::{Token, TokenKind};
use super::tree::{AtModifier, BinaryOp, Extension, Span};
use super::{Caps, Fault};

pub(super) use operand::coded_operator;
pub(super) use selector::{matcher_alone, selector_alone};

/// What `grammar` needs.
#[derive(Debug, Default)]
pub(super) struct Coded {
    pub(super) text: String,
    pub(super) selectors: Vec<Selected>,
    /// With where each starts.
    pub(super) numbers: Vec<(f64, u32)>,
    /// What each stands for, of bytes that need not be UTF-8, and where it starts.
    pub(super) texts: Vec<(Vec<u8>, u32)>,
    pub(super) windows: Vec<Window>,
    pub(super) offsets: Vec<Length>,
    pub(super) times: Vec<AtModifier>,
    pub(super) labels: Vec<String>,
    /// Unary operators in the order of the text, with where each stands; true is a plus.
    pub(super) signs: Vec<(bool, u32)>,
    /// Where each parenthesis opens that is neither a call's nor an aggregation's, in the order of the text.
    pub(super) parens: Vec<u32>,
    /// Calls and aggregations in the order of their names.
    pub(super) calls: Vec<Span>,
    /// Binary operators in the order of the text.
    pub(super) operators: Vec<(BinaryOp, Span)>,
    /// Regular expressions of selectors that count.
    pub(super) regex_matchers: usize,
}

/// A selector as far as the front knows it.
#[derive(Clone, Debug)]
pub(super) struct Selected {
    pub(super) matchers: Vec<Matcher>,
    pub(super) extension: Option<Extension>,
    pub(super) span: Span,
}

/// `[range]` or `[range:step]`.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) range: Length,
    pub(super) step: Option<Length>,
    pub(super) span: Span,
}

/// Reads `tokens`, lexed from `text`, as an expression.
pub(super) fn encode(text: &str, tokens: &[Token], caps: &Caps) -> Result<Coded, Fault> {
    let mut front = Front::new(text, tokens, caps);
    if tokens.is_empty() {
        return Err(Fault::new(0, "no expression found in input"));
    }
    front.operand()?;
    loop {
        match front.state {
            State::Operand => front.operand()?,
            State::Operator if front.at_end() => break,
            State::Operator => front.operator()?,
        }
    }
    if let Some(open) = front.stack.last() {
        let place = format!(" inside {}", open.kind.name());
        return Err(front.unexpected(&place, ""));
    }
    front.compile_selectors()?;
    front.coded.regex_matchers = front.regex_matchers;
    Ok(front.coded)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Operand,
    Operator,
}

/// What an operator or modifier would follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Selector,
    Window,
    Subquery,
    Other,
}

/// An open parenthesis.
struct Open {
    kind: OpenKind,
    /// Arguments before this one.
    args: usize,
    /// What `Front` returns to when it closes.
    depth_outside: usize,
    depth_base_outside: usize,
    subqueries_outside: usize,
    offset: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenKind {
    Paren,
    /// A call, by its place in `Coded::calls`; only `info` has a rule of its own.
    Call {
        place: usize,
        is_info: bool,
    },
    Aggregate {
        place: usize,
        has_grouping: bool,
    },
}

impl OpenKind {
    fn name(self) -> &'static str {
        match self {
            OpenKind::Paren => "parenthesis",
            OpenKind::Call { .. } => "function call arguments",
            OpenKind::Aggregate { .. } => "aggregation",
        }
    }
}

struct Front<'t> {
    text: &'t str,
    tokens: &'t [Token],
    next: usize,
    caps: &'t Caps,
    coded: Coded,
    selectors: Vec<selector::Raw>,
    regex_matchers: usize,
    /// Operators of formulas within brackets and after `offset`.
    length_operators: usize,
    state: State,
    stack: Vec<Open>,
    /// Open parentheses and unary signs around the next token.
    depth: usize,
    /// `depth` of an operand without signs in the expression that is open now.
    depth_base: usize,
    last: Last,
    /// Where the operand just read starts.
    last_start: u32,
    last_has_offset: bool,
    last_has_at: bool,
    /// Subqueries inside each other in the operand just read.
    subqueries: usize,
    /// The same of the operands before it in the expression that is open now.
    subqueries_before: usize,
}

impl<'t> Front<'t> {
    fn new(text: &'t str, tokens: &'t [Token], caps: &'t Caps) -> Front<'t> {
        Front {
            text,
            tokens,
            next: 0,
            caps,
            coded: Coded::default(),
            selectors: Vec::new(),
            regex_matchers: 0,
            length_operators: 0,
            state: State::Operand,
            stack: Vec::new(),
            depth: 0,
            depth_base: 0,
            last: Last::Other,
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

    /// Takes the next token where it is of this kind.
    fn take(&mut self, kind: TokenKind) -> Option<Token> {
        let token = self.peek().filter(|token| token.kind == kind)?;
        self.next += 1;
        Some(token)
    }

    /// Takes the next token, which must be of this kind.
    fn expect(&mut self, kind: TokenKind, place: &str, expected: &str) -> Result<Token, Fault> {
        self.take(kind).ok_or_else(|| self.unexpected(place, expected))
    }

    /// The next token, or the end, does not belong here.
    fn unexpected(&self, place: &str, expected: &str) -> Fault {
        let expected = if expected.is_empty() { String::new() } else { format!(", expected {expected}") };
        match self.peek() {
            None => {
                let message = self.unclosed().unwrap_or(format!("unexpected end of input{place}{expected}"));
                Fault::new(self.text.len(), message)
            }
            Some(token) => {
                let what = match token.kind {
                    TokenKind::Word if is_keyword(self.word(token)) => format!("<{}>", self.word(token)),
                    TokenKind::Word => format!("identifier {:?}", self.word(token)),
                    TokenKind::Number => format!("number {:?}", self.word(token)),
                    // As upstream quotes it: with its own quotes, and once more.
                    TokenKind::Text => format!("string {:?}", self.word(token)),
                    _ => format!("{:?}", self.word(token)),
                };
                Fault::at(token.span, format!("unexpected {what}{place}{expected}"))
            }
        }
    }

    /// What the text ends within, in upstream's words.
    fn unclosed(&self) -> Option<String> {
        let count = |kind| self.tokens.iter().filter(|token| token.kind == kind).count();
        let open = [
            (TokenKind::LeftParen, TokenKind::RightParen, "parenthesis"),
            (TokenKind::LeftBracket, TokenKind::RightBracket, "bracket"),
        ];
        let what = open.into_iter().find(|(left, right, _)| count(*left) > count(*right))?;
        Some(format!("unclosed left {}", what.2))
    }

    /// Where the innermost open parenthesis is, in words.
    fn place(&self) -> String {
        self.stack.last().map_or_else(String::new, |open| format!(" inside {}", open.kind.name()))
    }

    /// Refuses a token that lies `more` deeper than the current expression.
    fn check_depth(&self, more: usize, span: Span) -> Result<(), Fault> {
        if self.depth + more <= self.caps.nesting {
            return Ok(());
        }
        Err(Fault::at(
            span,
            format!("expression nested too deeply: at most {} levels are allowed", self.caps.nesting),
        ))
    }

    /// Refuses one operator too many; `span` is that one.
    fn check_operators(&self, span: Span) -> Result<(), Fault> {
        if self.coded.operators.len() + self.length_operators <= self.caps.binary_operators {
            return Ok(());
        }
        let message =
            format!("too many binary operators: at most {} are allowed", self.caps.binary_operators);
        Err(Fault::at(span, message))
    }

    /// Appends to the coded text; pieces are separated by a blank.
    fn write(&mut self, piece: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.coded.text.write_fmt(piece);
        self.coded.text.push(' ');
    }

    /// An operand is complete.
    fn operand_done(&mut self, last: Last, start: u32, subqueries: usize) {
        self.state = State::Operator;
        self.last = last;
        self.last_start = start;
        self.last_has_offset = false;
        self.last_has_at = false;
        self.subqueries = subqueries;
    }

    /// The operand just read will not be the operand of a subquery any more.
    fn fold_subqueries(&mut self) {
        self.subqueries_before = self.subqueries_before.max(self.subqueries);
        self.subqueries = 0;
    }
}

/// What Prometheus' lexer calls a keyword, operators among them.
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

/// Words that are no metric names even where an operand is expected.
pub(super) fn is_reserved(word: &str) -> bool {
    const RESERVED: [&str; 6] = ["bool", "on", "ignoring", "group_left", "group_right", "atan2"];
    RESERVED.iter().any(|keyword| keyword.eq_ignore_ascii_case(word)) || is_number_word(word)
}

/// `Inf` and `NaN`, any case, are numbers.
pub(super) fn is_number_word(word: &str) -> bool {
    word.eq_ignore_ascii_case("inf") || word.eq_ignore_ascii_case("nan")
}

/// The value of `Inf` or `NaN`.
fn number_word(word: &str) -> f64 {
    if word.eq_ignore_ascii_case("inf") { f64::INFINITY } else { f64::NAN }
}
