//! A uniform view of all nodes of a plan, for code that traverses the whole tree.

use super::{HistogramFunction, MatrixNode, MatrixSource, Param, Plan, Relabel, ScalarNode, VectorNode};
use crate::model::Matcher;

/// Any node of a plan.
#[derive(Clone, Copy, Debug)]
pub(in crate::promql) enum Node<'p> {
    Scalar(&'p ScalarNode),
    Vector(&'p VectorNode),
    Matrix(&'p MatrixNode),
    Text(&'p str),
}

impl<'p> Node<'p> {
    /// Returns the memory address, which identifies the node within its plan.
    pub(in crate::promql) fn address(self) -> usize {
        match self {
            Node::Scalar(node) => std::ptr::from_ref(node).addr(),
            Node::Vector(node) => std::ptr::from_ref(node).addr(),
            Node::Matrix(node) => std::ptr::from_ref(node).addr(),
            Node::Text(text) => text.as_ptr().addr(),
        }
    }

    /// Returns the inputs of the node in the order of the query text.
    pub(in crate::promql) fn inputs(self) -> Vec<Node<'p>> {
        match self {
            Node::Text(_) => Vec::new(),
            Node::Scalar(node) => scalar_inputs(node),
            Node::Vector(node) => vector_inputs(node),
            Node::Matrix(node) => match &node.source {
                MatrixSource::Select(_) => Vec::new(),
                MatrixSource::Subquery { expr, .. } => vec![Node::Vector(expr)],
            },
        }
    }
}

impl Plan {
    /// Returns all nodes, each before its inputs. A text has none.
    pub(in crate::promql) fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        let mut pending = match self {
            Plan::Scalar(node) => vec![Node::Scalar(node)],
            Plan::Vector(node) => vec![Node::Vector(node)],
            Plan::Matrix(node) => vec![Node::Matrix(node)],
            Plan::Text(_) => Vec::new(),
        };
        std::iter::from_fn(move || {
            let node = pending.pop()?;
            pending.extend(node.inputs());
            Some(node)
        })
    }

    /// Returns the memory in bytes of the compiled regular expressions, including the most that
    /// searches with them may allocate.
    pub(in crate::promql) fn pattern_bytes(&self) -> u64 {
        let bytes = self.nodes().map(|node| match node {
            Node::Vector(VectorNode::Select(selector)) => bytes_of(&selector.matchers),
            Node::Vector(VectorNode::Info(info)) => bytes_of(&info.names) + bytes_of(&info.data),
            Node::Vector(VectorNode::Relabel { relabel: Relabel::Replace { pattern, .. }, .. }) => {
                pattern.bytes()
            }
            Node::Matrix(MatrixNode { source: MatrixSource::Select(matchers), .. }) => bytes_of(matchers),
            _ => 0,
        });
        bytes.sum::<usize>() as u64
    }
}

fn bytes_of(matchers: &[Matcher]) -> usize {
    matchers.iter().map(Matcher::pattern_bytes).sum()
}

fn scalar_inputs(node: &ScalarNode) -> Vec<Node<'_>> {
    match node {
        ScalarNode::Number(_) | ScalarNode::Time => Vec::new(),
        ScalarNode::Of(vector) => vec![Node::Vector(vector)],
        ScalarNode::Negate(inner) | ScalarNode::StepInvariant(inner) => vec![Node::Scalar(inner)],
        ScalarNode::Binary(binary) => vec![Node::Scalar(&binary.lhs), Node::Scalar(&binary.rhs)],
        ScalarNode::MinMax(extreme) => vec![Node::Scalar(&extreme.a), Node::Scalar(&extreme.b)],
    }
}

fn vector_inputs(node: &VectorNode) -> Vec<Node<'_>> {
    match node {
        VectorNode::Select(_) => Vec::new(),
        VectorNode::Info(info) => vec![Node::Vector(&info.arg)],
        VectorNode::From(scalar) => vec![Node::Scalar(scalar)],
        VectorNode::StepTimes(arg)
        | VectorNode::Map { arg, .. }
        | VectorNode::MapHistograms { arg, .. }
        | VectorNode::Absent { arg, .. }
        | VectorNode::Negate(arg)
        | VectorNode::Relabel { arg, .. }
        | VectorNode::Sort { arg, .. }
        | VectorNode::SortByLabel { arg, .. }
        | VectorNode::StepInvariant(arg) => vec![Node::Vector(arg)],
        VectorNode::MapWith { arg, params, .. } => {
            std::iter::once(Node::Vector(arg)).chain(params.iter().map(Node::Scalar)).collect()
        }
        VectorNode::Window(window) => {
            std::iter::once(Node::Matrix(&window.arg)).chain(window.params.iter().map(Node::Scalar)).collect()
        }
        VectorNode::AbsentOverTime { arg, .. } => vec![Node::Matrix(arg)],
        VectorNode::WithScalar(with) => {
            let (vector, scalar) = (Node::Vector(&with.vector), Node::Scalar(&with.scalar));
            if with.scalar_is_left { vec![scalar, vector] } else { vec![vector, scalar] }
        }
        VectorNode::Join(join) => vec![Node::Vector(&join.lhs), Node::Vector(&join.rhs)],
        VectorNode::Aggregate(node) => {
            let param = match &node.param {
                Param::None => None,
                Param::Scalar(scalar) => Some(Node::Scalar(scalar)),
                Param::Text(text) => Some(Node::Text(text)),
            };
            param.into_iter().chain([Node::Vector(&node.arg)]).collect()
        }
        VectorNode::Histogram(node) => {
            let qs: Vec<Node<'_>> = match &node.function {
                HistogramFunction::Quantile(q) => vec![Node::Scalar(q)],
                HistogramFunction::Quantiles { label: _, qs } => qs.iter().map(Node::Scalar).collect(),
                HistogramFunction::Fraction { lower, upper } => {
                    vec![Node::Scalar(lower), Node::Scalar(upper)]
                }
            };
            qs.into_iter().chain([Node::Vector(&node.arg)]).collect()
        }
    }
}
