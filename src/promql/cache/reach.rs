//! Properties of a plan that decide how long a cached result stays valid: the range of samples that
//! each step reads, and whether the steps of a range can be computed in two parts without changing
//! a bit of the result.
//!
//! **Parts.** The value of a step depends on its own samples only. But an aggregation adds floats
//! in the order of its rows, and an error or an annotation may concern rows that are never present
//! at the same step. So a plan is computed in parts only if no range changes the order of
//! additions, if removing metric names cannot make two rows equal, and if no annotation depends on
//! the whole range. (One gap remains: buckets with one bound in three spellings are added in the
//! order of an aggregation's groups.) Results of all other plans are reused for the same range
//! only.

use crate::model::{METRIC_NAME, MatchOp, Matcher};
use crate::promql::plan::{
    AggregateNode, HistogramFunction, MatrixNode, MatrixSource, Node, Param, Plan, ScalarNode, Selector,
    SelectorOutput, TimeShift, VectorNode, WindowNode, is_set,
};
use crate::promql::query::Options;
use crate::promql::syntax::tree::{AggregateOp, Extension, Grouping};

/// The samples on which the value of a step depends: oldest and newest time, both inclusive, in
/// milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// Times relative to the step.
    steps: Option<(i64, i64)>,
    /// Fixed times, from `@` modifiers.
    pinned: Option<(i64, i64)>,
}

impl Reach {
    /// Returns the reach of a whole plan.
    pub(super) fn of(plan: &Plan, options: &Options) -> Reach {
        let mut reach = Reach::default();
        let scan = ReachScan { lookback_ms: options.lookback_ms };
        match plan {
            Plan::Scalar(node) => scan.node(Node::Scalar(node), EvalTimes::STEP, &mut reach),
            Plan::Text(_) => {}
            Plan::Vector(node) => scan.node(Node::Vector(node), EvalTimes::STEP, &mut reach),
            Plan::Matrix(node) => scan.node(Node::Matrix(node), EvalTimes::STEP, &mut reach),
        }
        reach
    }

    /// Returns the reach of the expression of a subquery, relative to the subquery's steps.
    pub(super) fn of_vector(node: &VectorNode, options: &Options) -> Reach {
        let mut reach = Reach::default();
        ReachScan { lookback_ms: options.lookback_ms }.node(Node::Vector(node), EvalTimes::STEP, &mut reach);
        reach
    }

    /// Returns the newest sample time on which the step at `step_ms` may depend, if any.
    #[cfg(test)]
    pub(super) fn newest(&self, step_ms: i64) -> Option<i64> {
        let of_step = self.steps.map(|(_, newest)| step_ms.saturating_add(newest));
        of_step.max(self.pinned.map(|(_, newest)| newest))
    }

    /// Returns the oldest sample time on which the step at `step_ms` may depend, if any.
    pub(super) fn oldest(&self, step_ms: i64) -> Option<i64> {
        let of_step = self.steps.map(|(oldest, _)| step_ms.saturating_add(oldest));
        of_step.into_iter().chain(self.pinned.map(|(oldest, _)| oldest)).min()
    }

    /// Returns the last step that depends on no sample at or after `from_ms`: `None` if every step
    /// depends on one, `i64::MAX` if no step does.
    pub(super) fn last_step_before(&self, from_ms: i64) -> Option<i64> {
        if self.pinned.is_some_and(|(_, newest)| newest >= from_ms) {
            return None;
        }
        Some(self.steps.map_or(i64::MAX, |(_, newest)| from_ms.saturating_sub(newest).saturating_sub(1)))
    }

    fn add(&mut self, at: EvalTimes) {
        let (slot, (oldest, newest)) = match at {
            EvalTimes::Step(oldest, newest) => (&mut self.steps, (oldest, newest)),
            EvalTimes::Pinned(oldest, newest) => (&mut self.pinned, (oldest, newest)),
        };
        *slot = Some(slot.map_or((oldest, newest), |(a, b)| (a.min(oldest), b.max(newest))));
    }
}

/// The times at which a node is evaluated, oldest and newest: relative to the step, or fixed.
#[derive(Clone, Copy, Debug)]
enum EvalTimes {
    Step(i64, i64),
    Pinned(i64, i64),
}

impl EvalTimes {
    const STEP: EvalTimes = EvalTimes::Step(0, 0);

    fn shifted(self, TimeShift { offset_ms, at_ms }: TimeShift) -> EvalTimes {
        let moved = |at: i64| at.saturating_sub(offset_ms);
        match (at_ms, self) {
            (Some(at), _) => EvalTimes::Pinned(moved(at), moved(at)),
            (None, EvalTimes::Step(oldest, newest)) => EvalTimes::Step(moved(oldest), moved(newest)),
            (None, EvalTimes::Pinned(oldest, newest)) => EvalTimes::Pinned(moved(oldest), moved(newest)),
        }
    }

    fn ahead(self, by_ms: i64) -> EvalTimes {
        match self {
            EvalTimes::Step(oldest, newest) => EvalTimes::Step(oldest, newest.saturating_add(by_ms)),
            EvalTimes::Pinned(oldest, newest) => EvalTimes::Pinned(oldest, newest.saturating_add(by_ms)),
        }
    }

    fn back(self, by_ms: i64) -> EvalTimes {
        match self {
            EvalTimes::Step(oldest, newest) => EvalTimes::Step(oldest.saturating_sub(by_ms), newest),
            EvalTimes::Pinned(oldest, newest) => EvalTimes::Pinned(oldest.saturating_sub(by_ms), newest),
        }
    }
}

/// The scan of a plan for the samples that it reads.
struct ReachScan {
    lookback_ms: i64,
}

impl ReachScan {
    /// Adds the samples that a node reads itself; other nodes read what their inputs read. A new
    /// kind of node must be handled in [`rows_of`], too.
    fn node(&self, node: Node<'_>, at: EvalTimes, reach: &mut Reach) {
        match node {
            Node::Matrix(node) => return self.matrix(node, at, reach),
            Node::Vector(VectorNode::Select(selector)) => {
                let Selector { matchers: _, when, look, counts_only: _, span: _ } = selector;
                let ahead_ms = if *look == SelectorOutput::Smoothed { self.lookback_ms } else { 0 };
                reach.add(at.shifted(*when).back(self.lookback_ms).ahead(ahead_ms));
            }
            Node::Vector(VectorNode::Info(node)) => reach.add(at.shifted(node.when).back(self.lookback_ms)),
            Node::Vector(_) | Node::Scalar(_) | Node::Text(_) => {}
        }
        for input in node.inputs() {
            self.node(input, at, reach);
        }
    }

    fn matrix(&self, node: &MatrixNode, at: EvalTimes, reach: &mut Reach) {
        let MatrixNode { source, range_ms, when, extension, counts_only: _ } = node;
        let (before_ms, after_ms) = match extension {
            None => (0, 0),
            Some(Extension::Anchored) => (self.lookback_ms, 0),
            Some(Extension::Smoothed) => (self.lookback_ms, self.lookback_ms),
        };
        let at = at.shifted(*when).back(range_ms.saturating_add(before_ms)).ahead(after_ms);
        match source {
            MatrixSource::Select(_) => reach.add(at),
            MatrixSource::Subquery { expr, .. } => self.node(Node::Vector(expr), at, reach),
        }
    }
}

/// Returns whether the steps of a range can be computed in parts.
pub(super) fn has_parts(plan: &Plan, options: &Options) -> bool {
    // Delayed removal of names may make two rows equal at the end of the query.
    !options.delayed_name_removal
        && match plan {
            Plan::Scalar(node) => scalar_has_parts(node),
            Plan::Vector(node) => rows_of(node).is_some(),
            Plan::Text(_) | Plan::Matrix(_) => false,
        }
}

/// Returns whether the steps of a subquery's expression can be computed in parts.
pub(super) fn vector_has_parts(node: &VectorNode, options: &Options) -> bool {
    !options.delayed_name_removal && rows_of(node).is_some()
}

/// Properties that a node's rows have for every range.
#[derive(Clone, Copy, Debug)]
struct RowTraits {
    /// No two rows ever change their order.
    ordered: bool,
    /// Removing the names makes no two rows equal.
    one_name: bool,
}

const SINGLE: RowTraits = RowTraits { ordered: true, one_name: true };

impl RowTraits {
    /// The traits after an operation that removes names and then merges equal rows.
    fn unnamed(self) -> RowTraits {
        RowTraits { ordered: self.ordered && self.one_name, one_name: self.one_name }
    }

    fn unordered(self) -> RowTraits {
        RowTraits { ordered: false, ..self }
    }
}

fn scalar_has_parts(node: &ScalarNode) -> bool {
    match node {
        // A step-invariant value is the same for every range.
        ScalarNode::Number(_) | ScalarNode::Time | ScalarNode::StepInvariant(_) => true,
        ScalarNode::Of(vector) => rows_of(vector).is_some(),
        ScalarNode::Negate(inner) => scalar_has_parts(inner),
        ScalarNode::Binary(binary) => scalar_has_parts(&binary.lhs) && scalar_has_parts(&binary.rhs),
        ScalarNode::MinMax(extreme) => scalar_has_parts(&extreme.a) && scalar_has_parts(&extreme.b),
    }
}

/// Returns `None` if the node cannot be computed in parts.
fn rows_of(node: &VectorNode) -> Option<RowTraits> {
    match node {
        VectorNode::Select(selector) => {
            let traits = RowTraits { ordered: true, one_name: name_of(&selector.matchers).is_some() };
            match selector.look {
                SelectorOutput::Value | SelectorOutput::Smoothed => Some(traits),
                SelectorOutput::Time | SelectorOutput::Start => Some(traits.unnamed()),
            }
        }
        VectorNode::From(scalar) => scalar_has_parts(scalar).then_some(SINGLE),
        VectorNode::StepTimes(arg)
        | VectorNode::Map { arg, .. }
        | VectorNode::MapHistograms { arg, .. }
        | VectorNode::Negate(arg) => rows_of(arg).map(RowTraits::unnamed),
        VectorNode::MapWith { arg, params, .. } => {
            let traits = rows_of(arg)?.unnamed();
            params.iter().all(scalar_has_parts).then_some(traits)
        }
        VectorNode::Window(window) => window_has_parts(window),
        VectorNode::Absent { arg, .. } => rows_of(arg).map(|_| SINGLE),
        VectorNode::AbsentOverTime { arg, .. } => matrix_rows(arg).map(|_| SINGLE),
        VectorNode::WithScalar(with) => {
            let traits = rows_of(&with.vector)?.unnamed();
            scalar_has_parts(&with.scalar).then_some(traits)
        }
        VectorNode::Join(join) => {
            let (left, right) = (rows_of(&join.lhs)?, rows_of(&join.rhs)?);
            // The rows of `or` keep the names of both sides.
            let one_name = !is_set(join.op) && left.one_name && right.one_name;
            Some(RowTraits { ordered: false, one_name })
        }
        VectorNode::Aggregate(node) => aggregate_has_parts(node),
        VectorNode::Relabel { .. } | VectorNode::Info(_) => None,
        VectorNode::Sort { arg, .. } | VectorNode::SortByLabel { arg, .. } => {
            rows_of(arg).map(RowTraits::unordered)
        }
        VectorNode::Histogram(node) => {
            let traits = rows_of(&node.arg)?;
            let qs: Vec<&ScalarNode> = match &node.function {
                HistogramFunction::Quantile(q) => vec![q],
                HistogramFunction::Quantiles { label: _, qs } => qs.iter().collect(),
                HistogramFunction::Fraction { lower, upper } => vec![lower, upper],
            };
            (traits.one_name && qs.into_iter().all(scalar_has_parts)).then_some(traits.unordered())
        }
        // The evaluation times do not depend on the range.
        VectorNode::StepInvariant(_) => Some(RowTraits { ordered: true, one_name: false }),
    }
}

fn matrix_rows(node: &MatrixNode) -> Option<RowTraits> {
    match &node.source {
        MatrixSource::Select(matchers) => {
            Some(RowTraits { ordered: true, one_name: name_of(matchers).is_some() })
        }
        // The rows of a subquery are sorted by labels, not in the order of its expression.
        MatrixSource::Subquery { expr, .. } => {
            rows_of(expr).map(|traits| RowTraits { ordered: true, ..traits })
        }
    }
}

fn window_has_parts(node: &WindowNode) -> Option<RowTraits> {
    let traits = matrix_rows(&node.arg)?;
    if !node.params.iter().all(scalar_has_parts) {
        return None;
    }
    if node.kernel.counts && !reads_counters(&node.arg) {
        // The info that a metric might not be a counter depends on all windows of a series.
        return None;
    }
    // Series that differ only in their names are an error, even if they are never present together.
    (node.kernel.keeps_name || traits.one_name).then_some(traits)
}

/// Returns whether the name excludes the info that the metric might not be a counter.
fn reads_counters(node: &MatrixNode) -> bool {
    match &node.source {
        MatrixSource::Select(matchers) => name_of(matchers).is_some_and(|name| {
            ["_total", "_sum", "_count", "_bucket"].iter().any(|end| name.ends_with(end))
        }),
        MatrixSource::Subquery { .. } => false,
    }
}

fn aggregate_has_parts(node: &AggregateNode) -> Option<RowTraits> {
    let traits = rows_of(&node.arg)?;
    match &node.param {
        Param::None => {}
        Param::Scalar(scalar) if scalar_has_parts(scalar) => {}
        Param::Scalar(_) | Param::Text(_) => return None,
    }
    if !traits.ordered && !matches!(node.op, AggregateOp::Count | AggregateOp::Group) {
        return None;
    }
    let selects = matches!(
        node.op,
        AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk | AggregateOp::LimitRatio
    );
    if selects {
        return Some(traits.unordered());
    }
    let keeps_names = match &node.grouping {
        Grouping::By(labels) => labels.iter().any(|label| label.starts_with("__")),
        Grouping::Without(_) => false,
    };
    Some(RowTraits { ordered: false, one_name: !keeps_names })
}

/// Returns the metric name that the matchers require to be equal, if there is one.
fn name_of(matchers: &[Matcher]) -> Option<&str> {
    let equal =
        matchers.iter().find(|matcher| matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal);
    equal.map(Matcher::value).filter(|name| !name.is_empty())
}
