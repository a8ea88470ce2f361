//! What is done with each value by itself between what is read and an aggregation: it is done with each row as it is read.

use crate::promql::plan::{ScalarNode, VectorNode, is_comparison};
use crate::promql::syntax::tree::BinaryOp;

use super::native::trims;
use super::operators;
use super::rows::{ABSENT, is_absent};

/// Something that is done with each value.
#[derive(Clone)]
enum Peel {
    Map(fn(f64) -> f64),
    With(fn(f64, &[f64]) -> Option<f64>, Vec<f64>),
    Negate,
    Scalar { op: BinaryOp, scalar: f64, scalar_is_left: bool, filters: bool },
}

impl Peel {
    /// What a node does with each value of another one; of scalars only with those that are written as numbers.
    fn of(node: &VectorNode) -> Option<(Peel, &VectorNode)> {
        match node {
            VectorNode::Map { run, arg, .. } => Some((Peel::Map(*run), arg)),
            VectorNode::MapWith { run, arg, params, .. } => {
                let params: Option<Vec<f64>> = params.iter().map(number).collect();
                Some((Peel::With(*run, params?), arg))
            }
            VectorNode::Negate(arg) => Some((Peel::Negate, arg)),
            VectorNode::WithScalar(with) if trims(with.op).is_none() => {
                let filters = is_comparison(with.op) && !with.returns_bool;
                let (op, scalar_is_left) = (with.op, with.scalar_is_left);
                let scalar = number(&with.scalar)?;
                Some((Peel::Scalar { op, scalar, scalar_is_left, filters }, &with.vector))
            }
            _ => None,
        }
    }

    /// Whether names go: all that computes takes them off.
    fn takes_names(&self) -> bool {
        !matches!(self, Peel::Scalar { filters: true, .. })
    }

    fn apply(&self, row: &mut [f64]) {
        let present = row.iter_mut().filter(|value| !is_absent(**value));
        match self {
            Peel::Map(run) => present.for_each(|value| *value = run(*value)),
            Peel::With(run, params) => {
                present.for_each(|value| *value = run(*value, params).unwrap_or(ABSENT));
            }
            Peel::Negate => present.for_each(|value| *value = -*value),
            Peel::Scalar { op, scalar, scalar_is_left, filters } => present.for_each(|value| {
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

/// What is done with each value: from the outside in.
#[derive(Clone)]
pub(super) struct Peels(Vec<Peel>);

/// What is done with each value, and with what.
pub(super) struct Peeled<'n> {
    pub(super) peels: Peels,
    /// The same as nodes, what is read the last.
    pub(super) nodes: Vec<&'n VectorNode>,
    pub(super) core: &'n VectorNode,
    pub(super) takes_names: bool,
}

impl<'n> Peeled<'n> {
    pub(super) fn of(node: &'n VectorNode) -> Peeled<'n> {
        let mut peeled =
            Peeled { peels: Peels(Vec::new()), nodes: vec![node], core: node, takes_names: false };
        while let Some((peel, arg)) = Peel::of(peeled.core) {
            peeled.takes_names |= peel.takes_names();
            peeled.peels.0.push(peel);
            peeled.nodes.push(arg);
            peeled.core = arg;
        }
        peeled
    }
}

impl Peels {
    pub(super) fn apply(&self, row: &mut [f64]) {
        self.0.iter().rev().for_each(|peel| peel.apply(row));
    }
}
