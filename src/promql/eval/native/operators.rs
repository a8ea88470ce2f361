//! Operators where one side at least is a native histogram.

use std::sync::Arc;

use crate::promql::eval::operators;
use crate::promql::histogram::{CombinedHistogram, TrimSide};
use crate::promql::plan::{WithScalar, is_comparison};
use crate::promql::syntax::tree::{BinaryOp, Span};
use crate::promql::{FloatHistogram, QueryError};

use super::windows::{conflicting, reconciled};
use super::{Context, Rows};
use crate::promql::eval::rows::{ABSENT, Point, Scalars, is_absent};

/// What an operator yields.
pub(in crate::promql::eval) enum Outcome {
    /// There is no result, whatever is asked.
    Refused,
    /// A comparison that does not hold.
    Dropped,
    /// A comparison that holds keeps the left side.
    Kept,
    Float(f64),
    Histogram(FloatHistogram),
}

impl Context<'_> {
    /// Any operator but the set operators, over samples of either kind.
    pub(in crate::promql::eval) fn combine(
        &self,
        op: BinaryOp,
        left: Point<'_>,
        right: Point<'_>,
        span: Span,
    ) -> Outcome {
        match (left, right) {
            (Point::Float(a), Point::Float(b)) if is_comparison(op) => {
                if operators::holds(op, a, b) {
                    Outcome::Kept
                } else {
                    Outcome::Dropped
                }
            }
            (Point::Float(_), Point::Float(_)) if trims(op).is_some() => self.refuse(op, left, right, span),
            (Point::Float(a), Point::Float(b)) => Outcome::Float(operators::scalar(op, a, b)),
            (Point::Float(factor), Point::Histogram(histogram)) if op == BinaryOp::Mul => {
                Outcome::Histogram(histogram.times(factor).compacted())
            }
            (Point::Histogram(histogram), Point::Float(value)) => match (op, trims(op)) {
                (BinaryOp::Mul, _) => Outcome::Histogram(histogram.times(value).compacted()),
                (BinaryOp::Div, _) => Outcome::Histogram(histogram.divided(value).compacted()),
                (_, Some(keep)) => Outcome::Histogram(histogram.trimmed(value, keep)),
                _ => self.refuse(op, left, right, span),
            },
            (Point::Histogram(a), Point::Histogram(b)) => match op {
                BinaryOp::Add => self.added(a.plus(b).ok(), op, "addition", span),
                BinaryOp::Sub => self.added(a.minus(b).ok(), op, "subtraction", span),
                BinaryOp::Equal | BinaryOp::NotEqual => {
                    if a.equals(b) == (op == BinaryOp::Equal) {
                        Outcome::Kept
                    } else {
                        Outcome::Dropped
                    }
                }
                _ => self.refuse(op, left, right, span),
            },
            _ => self.refuse(op, left, right, span),
        }
    }

    fn added(&self, added: Option<CombinedHistogram>, op: BinaryOp, what: &str, span: Span) -> Outcome {
        let mut notes = self.notes.borrow_mut();
        let Some(CombinedHistogram { histogram, resets_conflict, reconciled: bounds }) = added else {
            let op = op.as_str();
            notes.warn(span, format!("incompatible bucket layout encountered for binary operator {op}"));
            return Outcome::Refused;
        };
        if resets_conflict {
            notes.warn(span, conflicting(what));
            return Outcome::Refused;
        }
        if bounds {
            notes.info(span, reconciled(what));
        }
        Outcome::Histogram(histogram.compacted())
    }

    fn refuse(&self, op: BinaryOp, left: Point<'_>, right: Point<'_>, span: Span) -> Outcome {
        let kind = |point| if matches!(point, Point::Float(_)) { "float" } else { "histogram" };
        let (op, left, right) = (op.as_str(), kind(left), kind(right));
        let text =
            format!("incompatible sample types encountered for binary operator {op:?}: {left} {op} {right}");
        self.notes.borrow_mut().info(span, text);
        Outcome::Refused
    }

    /// The histograms of a vector with a scalar on one side; floats were computed before.
    pub(in crate::promql::eval) fn native_with_scalar(
        &self,
        node: &WithScalar,
        scalars: &Scalars,
        rows: &mut Rows,
    ) -> Result<(), QueryError> {
        for row in 0..rows.len() {
            self.budget.check()?;
            for step in 0..rows.steps() {
                let Some(histogram) = rows.take_histogram(row, step) else { continue };
                let (vector, scalar) = (Point::Histogram(&histogram), Point::Float(scalars.values[step]));
                let (left, right) = if node.scalar_is_left { (scalar, vector) } else { (vector, scalar) };
                let outcome = self.combine(node.op, left, right, node.span);
                let told = |holds: bool| if node.returns_bool { f64::from(u8::from(holds)) } else { ABSENT };
                match outcome {
                    Outcome::Refused => {}
                    Outcome::Dropped => rows.row_mut(row)[step] = told(false),
                    Outcome::Kept if node.returns_bool => rows.row_mut(row)[step] = told(true),
                    Outcome::Kept => rows.put_histogram(row, step, histogram)?,
                    Outcome::Float(value) => rows.row_mut(row)[step] = value,
                    Outcome::Histogram(made) => rows.put_histogram(row, step, Arc::new(made))?,
                }
            }
        }
        Ok(())
    }

    /// `</` and `>/` with a scalar: numbers have nothing to trim.
    pub(in crate::promql::eval) fn trim_by_scalar(
        &self,
        node: &WithScalar,
        scalars: &Scalars,
        mut rows: Rows,
    ) -> Result<Rows, QueryError> {
        if rows.has_histograms() {
            self.native_with_scalar(node, scalars, &mut rows)?;
        }
        let number = Point::Float(0.0);
        for value in rows.values_mut().iter_mut().filter(|value| !is_absent(**value)) {
            self.refuse(node.op, number, number, node.span);
            *value = ABSENT;
        }
        rows.drop_empty();
        Ok(rows)
    }

    /// A vector's unary minus.
    pub(in crate::promql::eval) fn negate_native(&self, rows: &mut Rows) -> Result<(), QueryError> {
        for row in 0..rows.len() {
            for step in 0..rows.steps() {
                if let Some(histogram) = rows.take_histogram(row, step) {
                    rows.put_histogram(row, step, Arc::new(histogram.times(-1.0)))?;
                }
            }
        }
        Ok(())
    }
}

/// Which side of a value an operator keeps, where it trims.
pub(in crate::promql::eval) fn trims(op: BinaryOp) -> Option<TrimSide> {
    match op {
        BinaryOp::TrimUpper => Some(TrimSide::Below),
        BinaryOp::TrimLower => Some(TrimSide::Above),
        _ => None,
    }
}
