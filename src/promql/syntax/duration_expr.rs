//! Durations in brackets and after `offset`: literals, or formulas over the step and range of the
//! query (Prometheus, `promql/durations.go`).
//!
//! The plan computes formulas, since `step()` and `range()` are not known earlier. The caps of the
//! parser bound the depth of a formula and the number of its operators.

use std::fmt::{Display, Formatter, Result as Written};

use super::literal::duration_from_seconds;
use super::print::number;
use super::tree::Span;
use crate::model::format_duration;

/// A duration: a literal or a formula.
#[derive(Clone, Debug)]
pub enum DurationExpr {
    /// A literal, in milliseconds.
    Fixed(i64),
    /// A formula, which depends on the times of the query.
    Computed(Box<Term>),
}

/// A formula or a part of one, with its position.
#[derive(Clone, Debug)]
pub struct Term {
    /// The formula.
    pub formula: Formula,
    /// Position, if known.
    pub span: Span,
}

/// A formula whose result is in seconds.
#[derive(Clone, Debug)]
pub enum Formula {
    /// A number or a duration literal, in seconds.
    Number(f64),
    /// `step()`: the step of the query; zero for an instant query.
    Step,
    /// `range()`: the time from the start to the end of the query.
    Range,
    /// `-x`.
    Negate(Box<Term>),
    /// `x + y`, `min_of(x, y)`.
    Of(DurationOp, Box<(Term, Term)>),
}

/// An operator on two durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the operators'")]
pub enum DurationOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    MinOf,
    MaxOf,
}

/// The times of the query that formulas may use.
#[derive(Clone, Copy, Debug)]
pub struct QueryTimes {
    /// The step in milliseconds; zero for an instant query.
    pub step_ms: i64,
    /// The time from the first to the last evaluation in milliseconds.
    pub range_ms: i64,
}

/// The failure to compute a formula. Byte offsets count from zero, as in Prometheus.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{start}:{end}: {what}")]
pub struct DurationExprError {
    start: u32,
    end: u32,
    what: &'static str,
}

impl DurationExprError {
    fn new(span: Span, what: &'static str) -> DurationExprError {
        DurationExprError { start: span.start, end: span.end, what }
    }
}

impl DurationExpr {
    /// Returns the memory of the formula in bytes; 0 for a literal.
    pub fn memory_usage(&self) -> usize {
        match self {
            DurationExpr::Fixed(_) => 0,
            DurationExpr::Computed(term) => term.memory_usage(),
        }
    }

    /// Returns the milliseconds of a window or a step. The formula must yield more than zero, but
    /// the result may be zero after truncation to milliseconds.
    ///
    /// # Errors
    /// [`DurationExprError`] if a formula yields zero, a negative, an infinite or too large a
    /// number, or NaN.
    pub fn positive_ms(&self, times: QueryTimes) -> Result<i64, DurationExprError> {
        self.compute(times, true)
    }

    /// Returns the milliseconds of an offset, which may have any sign.
    ///
    /// # Errors
    /// [`DurationExprError`] if a formula yields NaN, an infinite or too large a number.
    pub fn offset_ms(&self, times: QueryTimes) -> Result<i64, DurationExprError> {
        self.compute(times, false)
    }

    fn compute(&self, times: QueryTimes, positive: bool) -> Result<i64, DurationExprError> {
        let term = match self {
            DurationExpr::Fixed(ms) => return Ok(*ms),
            DurationExpr::Computed(term) => term,
        };
        let value = term.compute(times)?;
        let refuse = |what| Err(DurationExprError::new(term.span, what));
        if !value.is_finite() {
            return refuse("duration is NaN or infinite");
        }
        if positive && value <= 0.0 {
            return refuse("duration must be greater than 0");
        }
        // Truncate to milliseconds; only literals are rounded.
        match duration_from_seconds((value * 1000.0).trunc() / 1000.0) {
            // Less than a millisecond becomes 0, a window without samples.
            Some(ms) => Ok(ms),
            None => refuse("duration is out of range"),
        }
    }

    /// Returns whether this is the literal zero, which has no effect.
    pub fn is_zero(&self) -> bool {
        matches!(self, DurationExpr::Fixed(0))
    }
}

impl Term {
    /// Returns the memory of the term and its parts, in bytes.
    fn memory_usage(&self) -> usize {
        let parts = match &self.formula {
            Formula::Number(_) | Formula::Step | Formula::Range => 0,
            Formula::Negate(inner) => inner.memory_usage(),
            Formula::Of(_, operands) => operands.0.memory_usage() + operands.1.memory_usage(),
        };
        size_of::<Term>() + parts
    }

    fn compute(&self, times: QueryTimes) -> Result<f64, DurationExprError> {
        Ok(match &self.formula {
            Formula::Number(value) => *value,
            Formula::Step => seconds(times.step_ms),
            Formula::Range => seconds(times.range_ms),
            Formula::Negate(inner) => -inner.compute(times)?,
            Formula::Of(op, sides) => {
                let (left, right) = (sides.0.compute(times)?, sides.1.compute(times)?);
                match op {
                    DurationOp::Add => left + right,
                    DurationOp::Sub => left - right,
                    DurationOp::Mul => left * right,
                    DurationOp::Div if right == 0.0 => {
                        return Err(DurationExprError::new(self.span, "division by zero"));
                    }
                    DurationOp::Mod if right == 0.0 => {
                        return Err(DurationExprError::new(self.span, "modulo by zero"));
                    }
                    DurationOp::Div => left / right,
                    DurationOp::Mod => left % right,
                    DurationOp::Pow => left.powf(right),
                    DurationOp::MinOf => select(left, right, left < right),
                    DurationOp::MaxOf => select(left, right, left > right),
                }
            }
        })
    }

    /// Returns the precedence, higher binding tighter; a sign has that of `*`.
    fn strength(&self) -> u8 {
        match &self.formula {
            Formula::Of(DurationOp::Add | DurationOp::Sub, _) => 1,
            Formula::Of(DurationOp::Mul | DurationOp::Div | DurationOp::Mod, _) => 2,
            Formula::Of(DurationOp::Pow, _) => 3,
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

/// Returns the selected operand; NaN if either operand is NaN.
fn select(left: f64, right: f64, left_wins: bool) -> f64 {
    if left.is_nan() || (left_wins && !right.is_nan()) { left } else { right }
}

#[expect(clippy::cast_precision_loss, reason = "times of queries are far below 2^53 milliseconds")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

/// Formats the duration as in brackets.
impl Display for DurationExpr {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        match self {
            DurationExpr::Fixed(ms) => f.write_str(&format_duration(*ms)),
            // Without the parentheses, the text would parse as a literal.
            DurationExpr::Computed(term) if matches!(term.formula, Formula::Number(_)) => {
                write!(f, "({term})")
            }
            DurationExpr::Computed(term) => write!(f, "{term}"),
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
                // A sign before a bare literal would parse as part of the literal.
                let literal = matches!(inner.formula, Formula::Number(_));
                return within(f, inner, literal || inner.strength() < 3);
            }
            Formula::Of(DurationOp::MinOf, sides) => return write!(f, "min_of({}, {})", sides.0, sides.1),
            Formula::Of(DurationOp::MaxOf, sides) => return write!(f, "max_of({}, {})", sides.0, sides.1),
            Formula::Of(op, sides) => (*op, sides),
        };
        let (own, power) = (self.strength(), op == DurationOp::Pow);
        let (left, right) = (sides.0.strength(), sides.1.strength());
        within(f, &sides.0, left < own || (left == own && power))?;
        let sign = match op {
            DurationOp::Sub => '-',
            DurationOp::Mul => '*',
            DurationOp::Div => '/',
            DurationOp::Mod => '%',
            DurationOp::Pow => '^',
            _ => '+',
        };
        write!(f, " {sign} ")?;
        within(f, &sides.1, right < own || (right == own && !power) || sides.1.has_sign())
    }
}
