//! Parses durations in brackets and after `offset`: literals, and formulas over literals, `step()`
//! and `range()`.

use super::super::Fault;
use super::super::duration_expr::{DurationExpr, DurationOp, Formula, Term};
use super::super::lex::{Token, TokenKind};
use super::super::literal;
use super::super::tree::Span;
use super::{TokenEncoder, is_number_word, number_word};

/// The precedence of an operator in a formula, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Sum,
    Product,
    Power,
}

const CONTEXT: &str = " in duration expression";
pub(super) const EXPECTED: &str = "number, duration, step(), or range()";

impl TokenEncoder<'_> {
    /// Parses a range or step of more than zero. `context` and `expected` are parts of the message
    /// if there is none.
    pub(super) fn positive_duration(&mut self, context: &str, expected: &str) -> Result<DurationExpr, Fault> {
        self.expect_formula(context, expected)?;
        let start = self.next;
        let term = self.formula(0, Binding::Sum)?;
        let span = term.span;
        let length = self.length(term, start)?;
        if matches!(length, DurationExpr::Fixed(ms) if ms <= 0) {
            return Err(Fault::at(span, "duration must be greater than 0"));
        }
        Ok(length)
    }

    /// Parses the duration after `offset`: a literal or call with an optional sign, or a formula in
    /// parentheses.
    pub(super) fn offset_duration(&mut self) -> Result<DurationExpr, Fault> {
        let start = self.next;
        let sign = self.take(TokenKind::Sub);
        if sign.is_none() {
            self.take(TokenKind::Add);
        }
        if matches!(self.peek_kind(0), Some(TokenKind::Add | TokenKind::Sub)) {
            return Err(self.unexpected(" in offset", EXPECTED));
        }
        self.expect_formula(" in offset", EXPECTED)?;
        let operand = self.formula_operand(0)?;
        let term = match sign {
            Some(sign) => negated(sign, operand),
            None => operand,
        };
        self.length(term, start)
    }

    /// Refuses a token that cannot begin a formula.
    fn expect_formula(&self, context: &str, expected: &str) -> Result<(), Fault> {
        match self.peek_kind(0) {
            Some(
                TokenKind::Number | TokenKind::Word | TokenKind::LeftParen | TokenKind::Add | TokenKind::Sub,
            ) => Ok(()),
            _ => Err(self.unexpected(context, expected)),
        }
    }

    /// Converts a formula to a duration: a single literal is rounded to milliseconds here, the plan
    /// computes other formulas.
    fn length(&self, term: Term, start: usize) -> Result<DurationExpr, Fault> {
        let tokens = self.tokens.get(start..self.next).unwrap_or_default();
        let signs =
            tokens.iter().filter(|token| matches!(token.kind, TokenKind::Add | TokenKind::Sub)).count();
        match term.formula {
            Formula::Number(seconds) if signs + 1 == tokens.len() => literal::duration_from_seconds(seconds)
                .map(DurationExpr::Fixed)
                .ok_or_else(|| Fault::at(term.span, "duration out of range")),
            _ => Ok(DurationExpr::Computed(Box::new(term))),
        }
    }

    fn formula(&mut self, depth: usize, binding: Binding) -> Result<Term, Fault> {
        let mut left = self.formula_operand(depth)?;
        while let Some(token) = self.peek() {
            let (op, right_binding) = match token.kind {
                TokenKind::Add if binding <= Binding::Sum => (DurationOp::Add, Binding::Product),
                TokenKind::Sub if binding <= Binding::Sum => (DurationOp::Sub, Binding::Product),
                TokenKind::Mul if binding <= Binding::Product => (DurationOp::Mul, Binding::Power),
                TokenKind::Div if binding <= Binding::Product => (DurationOp::Div, Binding::Power),
                TokenKind::Mod if binding <= Binding::Product => (DurationOp::Mod, Binding::Power),
                TokenKind::Pow => (DurationOp::Pow, Binding::Power),
                _ => break,
            };
            self.next += 1;
            self.count_operator(token.span)?;
            // Only right-associative powers recurse; other operators continue in this loop.
            self.check_depth(depth + 1, token.span)?;
            let right = self.formula(depth + 1, right_binding)?;
            match (op, &right.formula) {
                (DurationOp::Div, Formula::Number(0.0)) => {
                    return Err(Fault::at(token.span, "division by zero"));
                }
                (DurationOp::Mod, Formula::Number(0.0)) => {
                    return Err(Fault::at(token.span, "modulo by zero"));
                }
                _ => {}
            }
            let span = Span { start: left.span.start, end: right.span.end };
            left = Term { formula: Formula::Of(op, Box::new((left, right))), span };
        }
        Ok(left)
    }

    fn formula_operand(&mut self, depth: usize) -> Result<Term, Fault> {
        let token = self.peek().ok_or_else(|| self.unexpected(CONTEXT, EXPECTED))?;
        self.check_depth(depth, token.span)?;
        match token.kind {
            TokenKind::Number => {
                let seconds =
                    literal::number(self.word(token)).map_err(|message| Fault::at(token.span, message))?;
                self.formula_literal(token, seconds)
            }
            TokenKind::Add | TokenKind::Sub => {
                self.next += 1;
                let operand = self.formula(depth + 1, Binding::Power)?;
                Ok(if token.kind == TokenKind::Sub { negated(token, operand) } else { operand })
            }
            TokenKind::LeftParen => {
                self.next += 1;
                let inner = self.formula(depth + 1, Binding::Sum)?;
                self.expect(TokenKind::RightParen, CONTEXT, "\")\"")?;
                Ok(inner)
            }
            TokenKind::Word if is_number_word(self.word(token)) => {
                self.formula_literal(token, number_word(self.word(token)))
            }
            TokenKind::Word => self.formula_call(depth, token),
            _ => Err(self.unexpected(CONTEXT, EXPECTED)),
        }
    }

    fn formula_literal(&mut self, token: Token, seconds: f64) -> Result<Term, Fault> {
        if literal::duration_from_seconds(seconds).is_none() {
            return Err(Fault::at(token.span, "duration out of range"));
        }
        self.next += 1;
        Ok(Term { formula: Formula::Number(seconds), span: token.span })
    }

    fn formula_call(&mut self, depth: usize, name: Token) -> Result<Term, Fault> {
        let (op, leaf) = match self.word(name).to_ascii_lowercase().as_str() {
            "min_of" => (DurationOp::MinOf, None),
            "max_of" => (DurationOp::MaxOf, None),
            "step" => (DurationOp::MaxOf, Some(Formula::Step)),
            "range" => (DurationOp::MaxOf, Some(Formula::Range)),
            _ => return Err(self.unexpected(CONTEXT, EXPECTED)),
        };
        self.next += 1;
        self.expect(TokenKind::LeftParen, CONTEXT, "\"(\"")?;
        let formula = match leaf {
            Some(leaf) => leaf,
            None => {
                self.count_operator(name.span)?;
                let first = self.formula(depth + 1, Binding::Sum)?;
                self.expect(TokenKind::Comma, CONTEXT, "\",\"")?;
                let second = self.formula(depth + 1, Binding::Sum)?;
                Formula::Of(op, Box::new((first, second)))
            }
        };
        let close = self.expect(TokenKind::RightParen, CONTEXT, "\")\"")?;
        Ok(Term { formula, span: Span { start: name.span.start, end: close.span.end } })
    }

    /// Counts an operator of a formula towards the cap on binary operators.
    fn count_operator(&mut self, span: Span) -> Result<(), Fault> {
        self.duration_operators += 1;
        self.check_operators(span)
    }
}

/// Negates an operand; a sign before a literal becomes part of the literal.
fn negated(sign: Token, operand: Term) -> Term {
    let span = Span { start: sign.span.start, end: operand.span.end };
    let formula = match operand.formula {
        Formula::Number(value) => Formula::Number(-value),
        _ => Formula::Negate(Box::new(operand)),
    };
    Term { formula, span }
}
