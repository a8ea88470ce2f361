//! Elementwise operations between a selector and an aggregation. They are applied to each row as
//! soon as it is read.

use crate::promql::plan::{ScalarNode, VectorNode, is_comparison};
use crate::promql::syntax::tree::BinaryOp;

use super::native::trims;
use super::operators;
use super::rows::{ABSENT, is_absent};

/// An operation on each value of a row.
#[derive(Clone)]
enum ElementwiseOp {
    Map(fn(f64) -> f64),
    With(fn(f64, &[f64]) -> Option<f64>, Vec<f64>),
    Negate,
    Scalar { op: BinaryOp, scalar: f64, scalar_is_left: bool, filters: bool },
}

impl ElementwiseOp {
    /// Returns the operation of a node and its argument. Scalar operands must be literal numbers.
    fn of(node: &VectorNode) -> Option<(ElementwiseOp, &VectorNode)> {
        match node {
            VectorNode::Map { run, arg, .. } => Some((ElementwiseOp::Map(*run), arg)),
            VectorNode::MapWith { run, arg, params, .. } => {
                let params: Option<Vec<f64>> = params.iter().map(number).collect();
                Some((ElementwiseOp::With(*run, params?), arg))
            }
            VectorNode::Negate(arg) => Some((ElementwiseOp::Negate, arg)),
            VectorNode::WithScalar(with) if trims(with.op).is_none() => {
                let filters = is_comparison(with.op) && !with.returns_bool;
                let (op, scalar_is_left) = (with.op, with.scalar_is_left);
                let scalar = number(&with.scalar)?;
                Some((ElementwiseOp::Scalar { op, scalar, scalar_is_left, filters }, &with.vector))
            }
            _ => None,
        }
    }

    /// Returns whether the operation drops metric names; all but filters do.
    fn drops_names(&self) -> bool {
        !matches!(self, ElementwiseOp::Scalar { filters: true, .. })
    }

    fn apply(&self, row: &mut [f64]) {
        let present = row.iter_mut().filter(|value| !is_absent(**value));
        match self {
            ElementwiseOp::Map(run) => present.for_each(|value| *value = run(*value)),
            ElementwiseOp::With(run, params) => {
                present.for_each(|value| *value = run(*value, params).unwrap_or(ABSENT));
            }
            ElementwiseOp::Negate => present.for_each(|value| *value = -*value),
            ElementwiseOp::Scalar { op, scalar, scalar_is_left, filters } => present.for_each(|value| {
                let (left, right) = if *scalar_is_left { (*scalar, *value) } else { (*value, *scalar) };
                if !filters {
                    *value = operators::scalar(*op, left, right);
                } else if !operators::holds(*op, left, right) {
                    *value = ABSENT;
                }
            }),
        }
    }
}

fn number(node: &ScalarNode) -> Option<f64> {
    match node {
        ScalarNode::Number(value) => Some(*value),
        _ => None,
    }
}

/// Elementwise operations, the outermost first.
#[derive(Clone)]
pub(super) struct ElementwiseOps(Vec<ElementwiseOp>);

/// An expression, split into elementwise operations and their innermost argument.
pub(super) struct PushedDown<'n> {
    pub(super) ops: ElementwiseOps,
    /// The nodes from the outermost to `core`.
    pub(super) nodes: Vec<&'n VectorNode>,
    pub(super) core: &'n VectorNode,
    pub(super) drops_names: bool,
}

impl<'n> PushedDown<'n> {
    pub(super) fn of(node: &'n VectorNode) -> PushedDown<'n> {
        let mut pushed_down =
            PushedDown { ops: ElementwiseOps(Vec::new()), nodes: vec![node], core: node, drops_names: false };
        while let Some((op, arg)) = ElementwiseOp::of(pushed_down.core) {
            pushed_down.drops_names |= op.drops_names();
            pushed_down.ops.0.push(op);
            pushed_down.nodes.push(arg);
            pushed_down.core = arg;
        }
        pushed_down
    }
}

impl ElementwiseOps {
    pub(super) fn apply(&self, row: &mut [f64]) {
        self.0.iter().rev().for_each(|op| op.apply(row));
    }
}
