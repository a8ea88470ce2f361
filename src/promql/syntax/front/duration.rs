//! Durations in brackets and after `offset`: literals, and arithmetic on them as far as it is constant.
//!
//! `[5m * 2]`, `[min_of(1h, 30m)]`, `offset (2 ^ 3)` are computed here, in seconds (promql/durations.go);
//! `step()` and `range()`, which depend on the query, are not supported.

use super::super::Fault;
use super::super::lex::TokenKind;
use super::super::literal;
use super::super::tree::Span;
use super::Front;

/// How strongly an operator binds within a duration expression.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Sum,
    Product,
    Power,
}

impl Front<'_> {
    /// A range or step: more than zero.
    pub(super) fn positive_duration(&mut self) -> Result<i64, Fault> {
        let start = self.next;
        let (seconds, span) = self.duration_expression(0, Binding::Sum)?;
        let ms = self.milliseconds(seconds, start, span)?;
        if ms <= 0 {
            return Err(Fault::at(span, "duration must be greater than 0"));
        }
        Ok(ms)
    }

    /// What follows `offset`: one literal or call with its signs, or anything in parentheses.
    pub(super) fn offset_duration(&mut self) -> Result<i64, Fault> {
        let start = self.next;
        let negative = self.take(TokenKind::Sub).is_some();
        if !negative {
            self.take(TokenKind::Add);
        }
        if matches!(self.peek_kind(0), Some(TokenKind::Add | TokenKind::Sub)) {
            return Err(self.unexpected(" in offset", "duration"));
        }
        let (seconds, span) = self.duration_operand(0)?;
        self.milliseconds(if negative { -seconds } else { seconds }, start, span)
    }

    /// A lone literal is rounded to the millisecond, a computed value is cut.
    fn milliseconds(&self, seconds: f64, start: usize, span: Span) -> Result<i64, Fault> {
        let tokens = self.tokens.get(start..self.next).unwrap_or_default();
        let numbers = tokens.iter().filter(|token| token.kind == TokenKind::Number).count();
        let signs =
            tokens.iter().filter(|token| matches!(token.kind, TokenKind::Add | TokenKind::Sub)).count();
        let is_literal = numbers == 1 && numbers + signs == tokens.len();
        let seconds = if is_literal { seconds } else { (seconds * 1000.0).trunc() / 1000.0 };
        literal::duration_from_seconds(seconds).ok_or_else(|| Fault::at(span, "duration out of range"))
    }

    fn duration_expression(&mut self, depth: usize, binding: Binding) -> Result<(f64, Span), Fault> {
        let (mut left, mut span) = self.duration_operand(depth)?;
        while let Some(token) = self.peek() {
            let (op, right_binding) = match token.kind {
                TokenKind::Add | TokenKind::Sub if binding <= Binding::Sum => (token.kind, Binding::Product),
                TokenKind::Mul | TokenKind::Div | TokenKind::Mod if binding <= Binding::Product => {
                    (token.kind, Binding::Power)
                }
                TokenKind::Pow => (token.kind, Binding::Power),
                _ => break,
            };
            self.next += 1;
            // Right-associative powers recurse; everything else returns to this loop.
            self.check_depth(depth + 1, token.span)?;
            let (right, right_span) = self.duration_expression(depth + 1, right_binding)?;
            left = match op {
                TokenKind::Add => left + right,
                TokenKind::Sub => left - right,
                TokenKind::Mul => left * right,
                TokenKind::Div | TokenKind::Mod if right == 0.0 => {
                    return Err(Fault::at(right_span, "division by zero in duration expression"));
                }
                TokenKind::Div => left / right,
                TokenKind::Mod => left % right,
                _ => left.powf(right),
            };
            span.end = right_span.end;
        }
        Ok((left, span))
    }

    fn duration_operand(&mut self, depth: usize) -> Result<(f64, Span), Fault> {
        const PLACE: &str = " in duration expression";
        const EXPECTED: &str = "duration";
        let token = self.peek().ok_or_else(|| self.unexpected(PLACE, EXPECTED))?;
        self.check_depth(depth, token.span)?;
        match token.kind {
            TokenKind::Number => {
                self.next += 1;
                let seconds =
                    literal::number(self.word(token)).map_err(|message| Fault::at(token.span, message))?;
                Ok((seconds, token.span))
            }
            TokenKind::Add | TokenKind::Sub => {
                self.next += 1;
                let (value, span) = self.duration_expression(depth + 1, Binding::Power)?;
                let span = Span { start: token.span.start, end: span.end };
                Ok((if token.kind == TokenKind::Sub { -value } else { value }, span))
            }
            TokenKind::LeftParen => {
                self.next += 1;
                let (value, _) = self.duration_expression(depth + 1, Binding::Sum)?;
                let close = self.expect(TokenKind::RightParen, PLACE, "\")\"")?;
                Ok((value, Span { start: token.span.start, end: close.span.end }))
            }
            TokenKind::Word => self.duration_call(depth),
            _ => Err(self.unexpected(PLACE, EXPECTED)),
        }
    }

    fn duration_call(&mut self, depth: usize) -> Result<(f64, Span), Fault> {
        const PLACE: &str = " in duration expression";
        let name = self.expect(TokenKind::Word, PLACE, "duration")?;
        let pick: fn(f64, f64) -> f64 = match self.word(name) {
            "min_of" => f64::min,
            "max_of" => f64::max,
            "step" | "range" => {
                let message = format!("{}() is not supported in a duration", self.word(name));
                return Err(Fault::at(name.span, message));
            }
            other => {
                return Err(Fault::at(
                    name.span,
                    format!("unexpected identifier {other:?}{PLACE}, expected duration"),
                ));
            }
        };
        self.expect(TokenKind::LeftParen, PLACE, "\"(\"")?;
        let (first, _) = self.duration_expression(depth + 1, Binding::Sum)?;
        self.expect(TokenKind::Comma, PLACE, "\",\"")?;
        let (second, _) = self.duration_expression(depth + 1, Binding::Sum)?;
        let close = self.expect(TokenKind::RightParen, PLACE, "\")\"")?;
        Ok((pick(first, second), Span { start: name.span.start, end: close.span.end }))
    }
}
