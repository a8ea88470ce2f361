//! What a query will cost, and what each part of it did cost.
//!
//! An estimate selects the series that the query's selectors name, reads a few of them, and reckons the rest from those:
//! nothing is evaluated. An explanation evaluates, and sets beside each node's estimate what it found, read and took.

mod estimate;
mod walk;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::budget::Meter;
use super::plan::{self, Node, Plan};
use super::{Answer, Budget, Options, Query, QueryError, QueryStats, eval};
use crate::clock::Stopwatch;
use crate::tsdb::Snapshot;

use estimate::Estimator;

/// What a query is expected to cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Series of its result, at most.
    pub series: u64,
    /// Samples that it reads from the store.
    pub samples: u64,
    /// Bytes of values that it holds at once.
    pub memory_bytes: u64,
}

/// What a node did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Actual {
    /// Series that it yielded; of a range selector those that it found.
    pub series: u64,
    /// Samples that it and its inputs read from the store.
    pub samples: u64,
    /// Milliseconds that it and its inputs took.
    pub ms: f64,
}

/// One node of a plan, and what it takes in.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanNode {
    /// What it does, in PromQL's words.
    pub node: String,
    /// Series that it yields, at most.
    pub series: u64,
    /// Samples that it and its inputs read.
    pub samples: u64,
    /// Bytes of values held at once while it and its inputs are evaluated.
    pub memory_bytes: u64,
    /// What came of it; none where it was not evaluated by itself, as constants are.
    pub actual: Option<Actual>,
    /// What it takes in, in the order it is written.
    pub inputs: Vec<PlanNode>,
}

/// Reckons what a query would cost.
///
/// # Errors
/// [`QueryError`]: what cannot be evaluated at all, a selector of too many series, a deadline, a cancellation.
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

/// Evaluates, and tells what each part was expected to cost and did cost.
///
/// # Errors
/// As [`run`](super::run).
pub fn explain(
    query: &Query,
    snapshot: &Snapshot,
    options: &Options,
    budget: &Budget<'_>,
) -> Result<(Answer, PlanNode), QueryError> {
    let plan = plan::build(query, options, budget)?;
    let mut root = Estimator::new(snapshot, options, budget).plan(&plan, query)?;
    let trace = Trace::default();
    let beside = eval::Beside { trace: Some(&trace), subqueries: None };
    let answer = eval::run(&plan, query, (snapshot, options, budget), beside)?;
    trace.fill(Node::of_plan(&plan), &mut root);
    Ok((answer, root))
}

/// What the nodes of one evaluation did, by where they lie in memory: the plan does not move while it runs.
#[derive(Debug, Default)]
pub(super) struct Trace {
    seen: RefCell<HashMap<usize, Seen>>,
}

/// What a node did, its inputs included.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    rows: u64,
    found: u64,
    samples: u64,
    ms: f64,
}

/// How things stood before a node was evaluated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    stats: QueryStats,
    watch: Stopwatch,
}

impl Trace {
    pub(super) fn enter(&self, meter: &Rc<Meter>) -> Before {
        Before { stats: meter.stats(), watch: Stopwatch::start() }
    }

    /// The node at `place` yielded `rows` rows.
    pub(super) fn leave(&self, place: usize, before: Before, rows: usize, meter: &Rc<Meter>) {
        let Before { stats, watch } = before;
        let now = meter.stats();
        let mut all = self.seen.borrow_mut();
        let seen = all.entry(place).or_default();
        seen.rows = seen.rows.max(rows as u64);
        seen.found += now.series - stats.series;
        seen.samples += now.samples - stats.samples;
        seen.ms += watch.elapsed_ms();
    }

    /// Sets what was seen into the tree that was estimated from the same plan.
    fn fill(&self, node: Node<'_>, into: &mut PlanNode) {
        let inputs = node.inputs();
        for (input, into) in inputs.iter().zip(&mut into.inputs) {
            self.fill(*input, into);
        }
        if let Some(seen) = self.seen.borrow().get(&node.place()) {
            into.actual = Some(Actual { series: seen.rows, samples: seen.samples, ms: seen.ms });
            // A range selector is read by the function around it: what is not another input's is its own.
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
                        series: seen.found,
                        samples: seen.samples.saturating_sub(others.0),
                        ms: seen.ms - others.1,
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
