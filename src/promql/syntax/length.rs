//! Lengths of time in brackets and after `offset`: a literal, or a formula over the query's own step and range
//! (prometheus promql/durations.go).
//!
//! A formula is kept as it was written and computed by the plan, since `step()` and `range()` are not known earlier.
//! Its depth and the number of its operators are bounded by the parser's caps.

use std::fmt::{Display, Formatter, Result as Written};

use super::literal::duration_from_seconds;
use super::print::number;
use super::tree::Span;
use crate::model::format_duration;

/// A length of time.
#[derive(Clone, Debug)]
pub enum Length {
    /// A literal, in milliseconds.
    Fixed(i64),
    /// Known once the query's times are.
    Computed(Box<Term>),
}

/// A formula, or a part of one, and where it stands.
#[derive(Clone, Debug)]
pub struct Term {
    /// What it says.
    pub formula: Formula,
    /// Position, where known.
    pub span: Span,
}

/// What a length is computed from, in seconds.
#[derive(Clone, Debug)]
pub enum Formula {
    /// A number or duration.
    Number(f64),
    /// `step()`: between two evaluations of the query; zero for an instant query.
    Step,
    /// `range()`: from the query's start to its end.
    Range,
    /// `-x`.
    Negate(Box<Term>),
    /// `x + y`, `min_of(x, y)`.
    Of(LengthOp, Box<(Term, Term)>),
}

/// How two lengths become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the operators'")]
pub enum LengthOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    MinOf,
    MaxOf,
}

/// The query's own times, which formulas may ask for.
#[derive(Clone, Copy, Debug)]
pub struct QueryTimes {
    /// Between two evaluations; zero for an instant query.
    pub step_ms: i64,
    /// From the first evaluation to the last.
    pub range_ms: i64,
}

/// Why a formula is no length; byte offsets as Prometheus gives them, from zero.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{start}:{end}: {what}")]
pub struct LengthError {
    start: u32,
    end: u32,
    what: &'static str,
}

impl LengthError {
    fn new(span: Span, what: &'static str) -> LengthError {
        LengthError { start: span.start, end: span.end, what }
    }
}

impl Length {
    /// Milliseconds, of a window or a step: more than zero, which cut to the millisecond may be zero.
    ///
    /// # Errors
    /// [`LengthError`] where a formula yields anything else.
    pub fn positive_ms(&self, times: QueryTimes) -> Result<i64, LengthError> {
        self.compute(times, true)
    }

    /// Milliseconds, of an offset: of any sign.
    ///
    /// # Errors
    /// [`LengthError`] where a formula yields no number or too large a one.
    pub fn offset_ms(&self, times: QueryTimes) -> Result<i64, LengthError> {
        self.compute(times, false)
    }

    fn compute(&self, times: QueryTimes, positive: bool) -> Result<i64, LengthError> {
        let term = match self {
            Length::Fixed(ms) => return Ok(*ms),
            Length::Computed(term) => term,
        };
        let value = term.compute(times)?;
        let refuse = |what| Err(LengthError::new(term.span, what));
        if !value.is_finite() {
            return refuse("duration is NaN or infinite");
        }
        if positive && value <= 0.0 {
            return refuse("duration must be greater than 0");
        }
        // Cut, not rounded, to the millisecond: what was computed is no literal.
        match duration_from_seconds((value * 1000.0).trunc() / 1000.0) {
            // Less than a millisecond is none: a window that holds nothing.
            Some(ms) => Ok(ms),
            None => refuse("duration is out of range"),
        }
    }

    /// Whether it is the literal zero, which says nothing.
    pub fn is_zero(&self) -> bool {
        matches!(self, Length::Fixed(0))
    }
}

impl Term {
    fn compute(&self, times: QueryTimes) -> Result<f64, LengthError> {
        Ok(match &self.formula {
            Formula::Number(value) => *value,
            Formula::Step => seconds(times.step_ms),
            Formula::Range => seconds(times.range_ms),
            Formula::Negate(inner) => -inner.compute(times)?,
            Formula::Of(op, sides) => {
                let (left, right) = (sides.0.compute(times)?, sides.1.compute(times)?);
                match op {
                    LengthOp::Add => left + right,
                    LengthOp::Sub => left - right,
                    LengthOp::Mul => left * right,
                    LengthOp::Div if right == 0.0 => {
                        return Err(LengthError::new(self.span, "division by zero"));
                    }
                    LengthOp::Mod if right == 0.0 => return Err(LengthError::new(self.span, "modulo by zero")),
                    LengthOp::Div => left / right,
                    LengthOp::Mod => left % right,
                    LengthOp::Pow => left.powf(right),
                    LengthOp::MinOf => either(left, right, left < right),
                    LengthOp::MaxOf => either(left, right, left > right),
                }
            }
        })
    }

    /// Binding strength, low to high; a sign binds like `*`.
    fn strength(&self) -> u8 {
        match &self.formula {
            Formula::Of(LengthOp::Add | LengthOp::Sub, _) => 1,
            Formula::Of(LengthOp::Mul | LengthOp::Div | LengthOp::Mod, _) => 2,
            Formula::Of(LengthOp::Pow, _) => 3,
            _ if self.has_sign() => 2,
            _ => 4,
        }
    }

    fn has_sign(&self) -> bool {
        match self.formula {
            Formula::Negate(_) => true,
            Formula::Number(value) => value.is_sign_negative() && !value.is_nan(),
            _ => false,
        }
    }
}

/// The picked one; a NaN on either side is the answer.
fn either(left: f64, right: f64, left_wins: bool) -> f64 {
    if left.is_nan() || (left_wins && !right.is_nan()) { left } else { right }
}

#[expect(clippy::cast_precision_loss, reason = "times of queries are far below 2^53 milliseconds")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

/// As it stands within brackets.
impl Display for Length {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        match self {
            Length::Fixed(ms) => f.write_str(&format_duration(*ms)),
            // Without the parentheses it would be a literal.
            Length::Computed(term) if matches!(term.formula, Formula::Number(_)) => write!(f, "({term})"),
            Length::Computed(term) => write!(f, "{term}"),
        }
    }
}

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        let within = |f: &mut Formatter<'_>, term: &Term, parentheses: bool| {
            if parentheses { write!(f, "({term})") } else { write!(f, "{term}") }
        };
        let (op, sides) = match &self.formula {
            Formula::Number(value) => return number(f, *value),
            Formula::Step => return f.write_str("step()"),
            Formula::Range => return f.write_str("range()"),
            Formula::Negate(inner) => {
                f.write_str("-")?;
                // A sign before a bare literal would belong to the literal.
                let literal = matches!(inner.formula, Formula::Number(_));
                return within(f, inner, literal || inner.strength() < 3);
            }
            Formula::Of(LengthOp::MinOf, sides) => return write!(f, "min_of({}, {})", sides.0, sides.1),
            Formula::Of(LengthOp::MaxOf, sides) => return write!(f, "max_of({}, {})", sides.0, sides.1),
            Formula::Of(op, sides) => (*op, sides),
        };
        let (own, power) = (self.strength(), op == LengthOp::Pow);
        let (left, right) = (sides.0.strength(), sides.1.strength());
        within(f, &sides.0, left < own || (left == own && power))?;
        let sign = match op {
            LengthOp::Sub => '-',
            LengthOp::Mul => '*',
            LengthOp::Div => '/',
            LengthOp::Mod => '%',
            LengthOp::Pow => '^',
            _ => '+',
        };
        write!(f, " {sign} ")?;
        within(f, &sides.1, right < own || (right == own && !power) || sides.1.has_sign())
    }
}
