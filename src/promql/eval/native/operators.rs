//! Binary operators with at least one native histogram as operand.

use std::sync::Arc;

use crate::promql::error::QueryError;
use crate::promql::eval::operators;
use crate::promql::histogram::{CombinedHistogram, FloatHistogram, TrimSide};
use crate::promql::plan::{WithScalar, is_comparison};
use crate::promql::syntax::tree::{BinaryOp, Span};

use super::windows::{conflicting, reconciled};
use super::{Context, LabelledRows};
use crate::promql::eval::rows::{ABSENT, Point, Scalars, is_absent};

/// The result of a binary operator.
pub(in crate::promql::eval) enum OperatorResult {
    /// The operator does not apply to these operands; there is no result, even with `bool`.
    Refused,
    /// A comparison that does not hold.
    Dropped,
    /// A comparison that holds, which keeps the left operand.
    CommonRows,
    Float(f64),
    Histogram(FloatHistogram),
}

impl Context<'_> {
    /// Evaluates any operator except the set operators for samples of either kind.
    pub(in crate::promql::eval) fn combine(
        &self,
        op: BinaryOp,
        left: Point<'_>,
        right: Point<'_>,
        span: Span,
    ) -> OperatorResult {
        match (left, right) {
            (Point::Float(a), Point::Float(b)) if is_comparison(op) => {
                if operators::holds(op, a, b) {
                    OperatorResult::CommonRows
                } else {
                    OperatorResult::Dropped
                }
            }
            (Point::Float(_), Point::Float(_)) if trims(op).is_some() => self.refuse(op, left, right, span),
            (Point::Float(a), Point::Float(b)) => OperatorResult::Float(operators::scalar(op, a, b)),
            (Point::Float(factor), Point::Histogram(histogram)) if op == BinaryOp::Mul => {
                OperatorResult::Histogram(histogram.times(factor).compacted())
            }
            (Point::Histogram(histogram), Point::Float(value)) => match (op, trims(op)) {
                (BinaryOp::Mul, _) => OperatorResult::Histogram(histogram.times(value).compacted()),
                (BinaryOp::Div, _) => OperatorResult::Histogram(histogram.divided(value).compacted()),
                (_, Some(keep)) => OperatorResult::Histogram(histogram.trimmed(value, keep)),
                _ => self.refuse(op, left, right, span),
            },
            (Point::Histogram(a), Point::Histogram(b)) => match op {
                BinaryOp::Add => self.combined(a.plus(b).ok(), op, "addition", span),
                BinaryOp::Sub => self.combined(a.minus(b).ok(), op, "subtraction", span),
                BinaryOp::Equal | BinaryOp::NotEqual => {
                    if a.equals(b) == (op == BinaryOp::Equal) {
                        OperatorResult::CommonRows
                    } else {
                        OperatorResult::Dropped
                    }
                }
                _ => self.refuse(op, left, right, span),
            },
            _ => self.refuse(op, left, right, span),
        }
    }

    fn combined(
        &self,
        combined: Option<CombinedHistogram>,
        op: BinaryOp,
        what: &str,
        span: Span,
    ) -> OperatorResult {
        let mut notes = self.notes.borrow_mut();
        let Some(CombinedHistogram { histogram, resets_conflict, reconciled: bounds }) = combined else {
            let op = op.as_str();
            notes.warn(span, format!("incompatible bucket layout encountered for binary operator {op}"));
            return OperatorResult::Refused;
        };
        if resets_conflict {
            notes.warn(span, conflicting(what));
            return OperatorResult::Refused;
        }
        if bounds {
            notes.info(span, reconciled(what));
        }
        OperatorResult::Histogram(histogram.compacted())
    }

    fn refuse(&self, op: BinaryOp, left: Point<'_>, right: Point<'_>, span: Span) -> OperatorResult {
        let kind = |point| if matches!(point, Point::Float(_)) { "float" } else { "histogram" };
        let (op, left, right) = (op.as_str(), kind(left), kind(right));
        let text =
            format!("incompatible sample types encountered for binary operator {op:?}: {left} {op} {right}");
        self.notes.borrow_mut().info(span, text);
        OperatorResult::Refused
    }

    /// Evaluates an operator between the histograms of a vector and a scalar. Floats are computed
    /// before.
    pub(in crate::promql::eval) fn native_with_scalar(
        &self,
        node: &WithScalar,
        scalars: &Scalars,
        rows: &mut LabelledRows,
    ) -> Result<(), QueryError> {
        for row in 0..rows.len() {
            self.budget.check()?;
            for step in 0..rows.steps() {
                let Some(histogram) = rows.take_histogram(row, step) else { continue };
                let (vector, scalar) = (Point::Histogram(&histogram), Point::Float(scalars.values[step]));
                let (left, right) = if node.scalar_is_left { (scalar, vector) } else { (vector, scalar) };
                let outcome = self.combine(node.op, left, right, node.span);
                let comparison_value =
                    |holds: bool| if node.returns_bool { f64::from(u8::from(holds)) } else { ABSENT };
                match outcome {
                    OperatorResult::Refused => {}
                    OperatorResult::Dropped => rows.row_mut(row)[step] = comparison_value(false),
                    OperatorResult::CommonRows if node.returns_bool => {
                        rows.row_mut(row)[step] = comparison_value(true)
                    }
                    OperatorResult::CommonRows => rows.put_histogram(row, step, histogram)?,
                    OperatorResult::Float(value) => rows.row_mut(row)[step] = value,
                    OperatorResult::Histogram(result) => rows.put_histogram(row, step, Arc::new(result))?,
                }
            }
        }
        Ok(())
    }

    /// Evaluates `</` and `>/` with a scalar. Floats cannot be trimmed and are removed with an
    /// annotation.
    pub(in crate::promql::eval) fn trim_by_scalar(
        &self,
        node: &WithScalar,
        scalars: &Scalars,
        mut rows: LabelledRows,
    ) -> Result<LabelledRows, QueryError> {
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

    /// Negates the histograms of a vector.
    pub(in crate::promql::eval) fn negate_native(&self, rows: &mut LabelledRows) -> Result<(), QueryError> {
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

/// Returns which observations a trim operator keeps, or `None` for other operators.
pub(in crate::promql::eval) fn trims(op: BinaryOp) -> Option<TrimSide> {
    match op {
        BinaryOp::TrimUpper => Some(TrimSide::Below),
        BinaryOp::TrimLower => Some(TrimSide::Above),
        _ => None,
    }
}
