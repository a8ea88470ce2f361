//! Cost estimates and explanations of queries.
//!
//! An estimate selects the series of the query's selectors, reads a few of them, and extrapolates;
//! it does not evaluate the query. An explanation evaluates the query, and reports for each node
//! the estimate, the series and samples that it read, and the time that it took.

mod describe;
mod estimate;

use std::cell::RefCell;
use std::collections::HashMap;

use super::budget::Budget;
use super::error::QueryError;
use super::eval::{self, EvalCost, Hooks, NodeObserver};
use super::plan::{self, Node, Plan};
use super::query::{Options, Query, QueryResult};
use crate::tsdb::Snapshot;

use estimate::Estimator;

/// The expected cost of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The number of series in the result, at most.
    pub series: u64,
    /// The number of samples read from the store.
    pub samples: u64,
    /// The memory in bytes of the values held at once.
    pub memory_bytes: u64,
}

/// The actual cost of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Actual {
    /// The number of series in its result; for a range selector, of series selected.
    pub series: u64,
    /// The number of samples that the node and its inputs read from the store.
    pub samples: u64,
    /// The duration in milliseconds, inputs included.
    pub ms: f64,
}

/// A node of an explained plan, with its inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanNode {
    /// The operation, in terms of PromQL.
    pub node: String,
    /// The estimated number of series in its result, at most.
    pub series: u64,
    /// The estimated number of samples that the node and its inputs read.
    pub samples: u64,
    /// The estimated memory in bytes of the values held at once, inputs included.
    pub memory_bytes: u64,
    /// The actual cost; `None` for nodes that are not evaluated separately, such as constants.
    pub actual: Option<Actual>,
    /// The inputs in the order of the query text.
    pub inputs: Vec<PlanNode>,
}

/// Estimates the cost of a query without evaluating it.
///
/// # Errors
/// [`QueryError`] for an expression that cannot be evaluated, a selector of too many series, a
/// deadline or a cancellation.
pub fn estimate(
    query: &Query,
    snapshot: &Snapshot,
    options: &Options,
    budget: &Budget<'_>,
) -> Result<Estimate, QueryError> {
    let plan = plan::build(query, options, budget)?;
    let root = Estimator::new(snapshot, options, budget).plan(&plan, query)?;
    Ok(Estimate { series: root.series, samples: root.samples, memory_bytes: root.memory_bytes })
}

/// Evaluates a query, and returns the result with the estimated and actual cost of each node.
///
/// # Errors
/// The errors of [`run`](super::run).
pub fn explain(
    query: &Query,
    snapshot: &Snapshot,
    options: &Options,
    budget: &Budget<'_>,
) -> Result<(QueryResult, PlanNode), QueryError> {
    let plan = plan::build(query, options, budget)?;
    let mut root = Estimator::new(snapshot, options, budget).plan(&plan, query)?;
    let trace = Trace::default();
    let hooks = Hooks { observer: Some(&trace), subqueries: None };
    let answer = eval::run(&plan, query, snapshot, options, budget, hooks)?;
    trace.fill(Node::of_plan(&plan), &mut root);
    Ok((answer, root))
}

/// The actual costs of the nodes in one evaluation, by memory address.
#[derive(Debug, Default)]
struct Trace {
    costs: RefCell<HashMap<usize, NodeCost>>,
}

/// The actual cost of one node over all its evaluations, inputs included.
#[derive(Clone, Copy, Debug, Default)]
struct NodeCost {
    /// The most series in a result.
    rows: u64,
    /// The number of series selected from the store.
    selected: u64,
    samples: u64,
    ms: f64,
}

impl NodeObserver for Trace {
    fn node_evaluated(&self, node: usize, cost: EvalCost) {
        let mut costs = self.costs.borrow_mut();
        let total = costs.entry(node).or_default();
        total.rows = total.rows.max(cost.rows as u64);
        total.selected += cost.selected;
        total.samples += cost.samples;
        total.ms += cost.ms;
    }
}

impl Trace {
    /// Sets the actual costs in the tree that was estimated from the same plan.
    fn fill(&self, node: Node<'_>, into: &mut PlanNode) {
        let inputs = node.inputs();
        for (input, into) in inputs.iter().zip(&mut into.inputs) {
            self.fill(*input, into);
        }
        if let Some(cost) = self.costs.borrow().get(&node.address()) {
            into.actual = Some(Actual { series: cost.rows, samples: cost.samples, ms: cost.ms });
            // The enclosing function reads a range selector, so the selector's own cost is the cost
            // of the function less that of its other inputs.
            let others: (u64, f64) = into
                .inputs
                .iter()
                .filter_map(|input| input.actual)
                .fold((0, 0.0), |(samples, ms), actual| (samples + actual.samples, ms + actual.ms));
            for (input, into) in inputs.iter().zip(&mut into.inputs) {
                if let (Node::Matrix(matrix), None) = (input, into.actual)
                    && matches!(matrix.source, plan::MatrixSource::Select(_))
                {
                    into.actual = Some(Actual {
                        series: cost.selected,
                        samples: cost.samples.saturating_sub(others.0),
                        ms: cost.ms - others.1,
                    });
                }
            }
        } else if let [only] = into.inputs.as_slice()
            && matches!(node, Node::Matrix(_) | Node::Scalar(_))
        {
            into.actual = only.actual;
        }
    }
}

impl Node<'_> {
    /// Returns the root of a plan.
    fn of_plan(plan: &Plan) -> Node<'_> {
        match plan {
            Plan::Scalar(node) => Node::Scalar(node),
            Plan::Text(text) => Node::Text(text),
            Plan::Vector(node) => Node::Vector(node),
            Plan::Matrix(node) => Node::Matrix(node),
        }
    }
}

#[cfg(test)]
mod tests;
