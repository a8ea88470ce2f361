//! Arithmetic and comparison of two numbers, and of a vector with a scalar.

use crate::promql::error::QueryError;
use crate::promql::plan::{WithScalar, is_comparison};
use crate::promql::syntax::tree::BinaryOp;

use super::Context;
use super::native::trims;
use super::rows::{ABSENT, Grid, LabelledRows, is_absent};

/// Returns the result of an arithmetic operator. A comparison yields 0 or 1.
pub(super) fn scalar(op: BinaryOp, a: f64, b: f64) -> f64 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        // As fmod of C: the result has the sign of the dividend, and division by zero is NaN.
        BinaryOp::Mod => a % b,
        BinaryOp::Pow => a.powf(b),
        BinaryOp::Atan2 => a.atan2(b),
        // Trimming applies to histograms only.
        BinaryOp::TrimUpper | BinaryOp::TrimLower => ABSENT,
        _ => f64::from(u8::from(holds(op, a, b))),
    }
}

/// Returns whether a comparison holds; `false` for other operators.
pub(super) fn holds(op: BinaryOp, a: f64, b: f64) -> bool {
    match op {
        BinaryOp::Equal => a == b,
        BinaryOp::NotEqual => a != b,
        BinaryOp::Less => a < b,
        BinaryOp::LessEqual => a <= b,
        BinaryOp::Greater => a > b,
        BinaryOp::GreaterEqual => a >= b,
        _ => false,
    }
}

impl Context<'_> {
    pub(super) fn with_scalar(&self, node: &WithScalar, grid: Grid) -> Result<LabelledRows, QueryError> {
        let mut rows = self.vector(&node.vector, grid)?;
        let scalars = self.scalar(&node.scalar, grid)?;
        let filters = is_comparison(node.op) && !node.returns_bool;
        let op = node.op;
        if trims(op).is_some() {
            return self.trim_by_scalar(node, &scalars, rows);
        }
        for i in 0..rows.len() {
            self.budget.check()?;
            for (value, scalar) in rows.row_mut(i).iter_mut().zip(&scalars.values) {
                if is_absent(*value) {
                    continue;
                }
                let (left, right) = if node.scalar_is_left { (*scalar, *value) } else { (*value, *scalar) };
                if !filters {
                    *value = self::scalar(op, left, right);
                } else if !holds(op, left, right) {
                    *value = ABSENT;
                }
            }
        }
        if rows.has_histograms() {
            self.native_with_scalar(node, &scalars, &mut rows)?;
        }
        rows.drop_empty();
        if filters || op.is_trim() { Ok(rows) } else { self.drop_names(rows) }
    }
}
