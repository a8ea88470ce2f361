//! Durations in brackets and after `offset`: literals, and formulas over them, `step()` and `range()`.

use super::super::Fault;
use super::super::length::{Formula, Length, LengthOp, Term};
use super::super::lex::{Token, TokenKind};
use super::super::literal;
use super::super::tree::Span;
use super::{Front, is_number_word, number_word};

/// How strongly an operator binds within a formula.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Sum,
    Product,
    Power,
}

const PLACE: &str = " in duration expression";
pub(super) const EXPECTED: &str = "number, duration, step(), or range()";

impl Front<'_> {
    /// A range or step, more than zero; where none stands, the error says so of `place`.
    pub(super) fn positive_duration(&mut self, place: &str, expected: &str) -> Result<Length, Fault> {
        self.expect_formula(place, expected)?;
        let start = self.next;
        let term = self.formula(0, Binding::Sum)?;
        let span = term.span;
        let length = self.length(term, start)?;
        if matches!(length, Length::Fixed(ms) if ms <= 0) {
            return Err(Fault::at(span, "duration must be greater than 0"));
        }
        Ok(length)
    }

    /// What follows `offset`: one literal or call with its sign, or anything in parentheses.
    pub(super) fn offset_duration(&mut self) -> Result<Length, Fault> {
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

    /// Refuses what begins no formula.
    fn expect_formula(&self, place: &str, expected: &str) -> Result<(), Fault> {
        match self.peek_kind(0) {
            Some(
                TokenKind::Number | TokenKind::Word | TokenKind::LeftParen | TokenKind::Add | TokenKind::Sub,
            ) => Ok(()),
            _ => Err(self.unexpected(place, expected)),
        }
    }

    /// A lone literal is rounded to the millisecond here; the plan computes everything else.
    fn length(&self, term: Term, start: usize) -> Result<Length, Fault> {
        let tokens = self.tokens.get(start..self.next).unwrap_or_default();
        let signs =
            tokens.iter().filter(|token| matches!(token.kind, TokenKind::Add | TokenKind::Sub)).count();
        match term.formula {
            Formula::Number(seconds) if signs + 1 == tokens.len() => literal::duration_from_seconds(seconds)
                .map(Length::Fixed)
                .ok_or_else(|| Fault::at(term.span, "duration out of range")),
            _ => Ok(Length::Computed(Box::new(term))),
        }
    }

    fn formula(&mut self, depth: usize, binding: Binding) -> Result<Term, Fault> {
        let mut left = self.formula_operand(depth)?;
        while let Some(token) = self.peek() {
            let (op, right_binding) = match token.kind {
                TokenKind::Add if binding <= Binding::Sum => (LengthOp::Add, Binding::Product),
                TokenKind::Sub if binding <= Binding::Sum => (LengthOp::Sub, Binding::Product),
                TokenKind::Mul if binding <= Binding::Product => (LengthOp::Mul, Binding::Power),
                TokenKind::Div if binding <= Binding::Product => (LengthOp::Div, Binding::Power),
                TokenKind::Mod if binding <= Binding::Product => (LengthOp::Mod, Binding::Power),
                TokenKind::Pow => (LengthOp::Pow, Binding::Power),
                _ => break,
            };
            self.next += 1;
            self.count_operator(token.span)?;
            // Right-associative powers recurse; everything else returns to this loop.
            self.check_depth(depth + 1, token.span)?;
            let right = self.formula(depth + 1, right_binding)?;
            match (op, &right.formula) {
                (LengthOp::Div, Formula::Number(0.0)) => {
                    return Err(Fault::at(token.span, "division by zero"));
                }
                (LengthOp::Mod, Formula::Number(0.0)) => {
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
        let token = self.peek().ok_or_else(|| self.unexpected(PLACE, EXPECTED))?;
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
                self.expect(TokenKind::RightParen, PLACE, "\")\"")?;
                Ok(inner)
            }
            TokenKind::Word if is_number_word(self.word(token)) => {
                self.formula_literal(token, number_word(self.word(token)))
            }
            TokenKind::Word => self.formula_call(depth, token),
            _ => Err(self.unexpected(PLACE, EXPECTED)),
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
            "min_of" => (LengthOp::MinOf, None),
            "max_of" => (LengthOp::MaxOf, None),
            "step" => (LengthOp::MaxOf, Some(Formula::Step)),
            "range" => (LengthOp::MaxOf, Some(Formula::Range)),
            _ => return Err(self.unexpected(PLACE, EXPECTED)),
        };
        self.next += 1;
        self.expect(TokenKind::LeftParen, PLACE, "\"(\"")?;
        let formula = match leaf {
            Some(leaf) => leaf,
            None => {
                self.count_operator(name.span)?;
                let first = self.formula(depth + 1, Binding::Sum)?;
                self.expect(TokenKind::Comma, PLACE, "\",\"")?;
                let second = self.formula(depth + 1, Binding::Sum)?;
                Formula::Of(op, Box::new((first, second)))
            }
        };
        let close = self.expect(TokenKind::RightParen, PLACE, "\")\"")?;
        Ok(Term { formula, span: Span { start: name.span.start, end: close.span.end } })
    }

    /// Operators of formulas count as those of expressions do.
    fn count_operator(&mut self, span: Span) -> Result<(), Fault> {
        self.length_operators += 1;
        self.check_operators(span)
    }
}

/// A sign before a literal belongs to it.
fn negated(sign: Token, operand: Term) -> Term {
    let span = Span { start: sign.span.start, end: operand.span.end };
    let formula = match operand.formula {
        Formula::Number(value) => Formula::Number(-value),
        _ => Formula::Negate(Box::new(operand)),
    };
    Term { formula, span }
}
