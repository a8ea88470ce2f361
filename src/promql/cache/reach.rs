//! What decides how long an answer of a plan stays true: how far from its step each step looks, and whether the steps of a
//! range can be computed in two parts without a bit of the answer changing.
//!
//! **Parts.** A step's value depends on its own samples alone, but the order in which an aggregation adds floats is the
//! order of its rows, and an error or a remark may be about rows that are never present at one step. So a plan is computed
//! in parts only where no range changes the order of what is added, where taking names off cannot make two rows equal, and
//! where no remark looks at a whole range. (One gap is left: buckets of one bound that is spelled in three ways add up in
//! the order of an aggregation's groups.) Of all others an answer is used again for the same range only.

use crate::model::{METRIC_NAME, MatchOp, Matcher};
use crate::promql::Options;
use crate::promql::plan::{
    AggregateNode, HistogramFunction, MatrixNode, MatrixSource, Node, Param, Plan, ScalarNode, Selector,
    SelectorOutput, TimeShift, VectorNode, WindowNode, is_set,
};
use crate::promql::syntax::tree::{AggregateOp, Extension, Grouping};

/// Which samples a step's value depends on; both ends in, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// Relative to the step.
    steps: Option<(i64, i64)>,
    /// At pinned times.
    pinned: Option<(i64, i64)>,
}

impl Reach {
    /// Of a whole plan.
    pub(super) fn of(plan: &Plan, options: &Options) -> Reach {
        let mut reach = Reach::default();
        let walk = Walk { lookback_ms: options.lookback_ms };
        match plan {
            Plan::Scalar(node) => walk.node(Node::Scalar(node), At::STEP, &mut reach),
            Plan::Text(_) => {}
            Plan::Vector(node) => walk.node(Node::Vector(node), At::STEP, &mut reach),
            Plan::Matrix(node) => walk.node(Node::Matrix(node), At::STEP, &mut reach),
        }
        reach
    }

    /// Of what a subquery evaluates, at the subquery's steps.
    pub(super) fn of_vector(node: &VectorNode, options: &Options) -> Reach {
        let mut reach = Reach::default();
        Walk { lookback_ms: options.lookback_ms }.node(Node::Vector(node), At::STEP, &mut reach);
        reach
    }

    /// The newest sample that the step at `step_ms` may depend on; none if it depends on none.
    #[cfg(test)]
    pub(super) fn newest(&self, step_ms: i64) -> Option<i64> {
        let of_step = self.steps.map(|(_, newest)| step_ms.saturating_add(newest));
        of_step.max(self.pinned.map(|(_, newest)| newest))
    }

    /// The oldest one.
    pub(super) fn oldest(&self, step_ms: i64) -> Option<i64> {
        let of_step = self.steps.map(|(oldest, _)| step_ms.saturating_add(oldest));
        of_step.into_iter().chain(self.pinned.map(|(oldest, _)| oldest)).min()
    }

    /// The last step that depends on nothing from `from_ms` on; none where every step does, `i64::MAX` where none does.
    pub(super) fn last_step_before(&self, from_ms: i64) -> Option<i64> {
        if self.pinned.is_some_and(|(_, newest)| newest >= from_ms) {
            return None;
        }
        Some(self.steps.map_or(i64::MAX, |(_, newest)| from_ms.saturating_sub(newest).saturating_sub(1)))
    }

    fn sees(&mut self, at: At) {
        let (slot, (oldest, newest)) = match at {
            At::Step(oldest, newest) => (&mut self.steps, (oldest, newest)),
            At::Pinned(oldest, newest) => (&mut self.pinned, (oldest, newest)),
        };
        *slot = Some(slot.map_or((oldest, newest), |(a, b)| (a.min(oldest), b.max(newest))));
    }
}

/// When a node is evaluated: times relative to the step, or fixed ones.
#[derive(Clone, Copy, Debug)]
enum At {
    Step(i64, i64),
    Pinned(i64, i64),
}

impl At {
    const STEP: At = At::Step(0, 0);

    fn looked(self, TimeShift { offset_ms, at_ms }: TimeShift) -> At {
        let moved = |at: i64| at.saturating_sub(offset_ms);
        match (at_ms, self) {
            (Some(at), _) => At::Pinned(moved(at), moved(at)),
            (None, At::Step(oldest, newest)) => At::Step(moved(oldest), moved(newest)),
            (None, At::Pinned(oldest, newest)) => At::Pinned(moved(oldest), moved(newest)),
        }
    }

    fn ahead(self, by_ms: i64) -> At {
        match self {
            At::Step(oldest, newest) => At::Step(oldest, newest.saturating_add(by_ms)),
            At::Pinned(oldest, newest) => At::Pinned(oldest, newest.saturating_add(by_ms)),
        }
    }

    fn back(self, by_ms: i64) -> At {
        match self {
            At::Step(oldest, newest) => At::Step(oldest.saturating_sub(by_ms), newest),
            At::Pinned(oldest, newest) => At::Pinned(oldest.saturating_sub(by_ms), newest),
        }
    }
}

struct Walk {
    lookback_ms: i64,
}

impl Walk {
    /// A node that looks at samples says which; every other one sees what its inputs see. Whoever adds a kind of node is
    /// asked by [`rows_of`], too.
    fn node(&self, node: Node<'_>, at: At, reach: &mut Reach) {
        match node {
            Node::Matrix(node) => return self.matrix(node, at, reach),
            Node::Vector(VectorNode::Select(selector)) => {
                let Selector { matchers: _, when, look, counts_only: _, span: _ } = selector;
                let ahead_ms = if *look == SelectorOutput::Smoothed { self.lookback_ms } else { 0 };
                reach.sees(at.looked(*when).back(self.lookback_ms).ahead(ahead_ms));
            }
            Node::Vector(VectorNode::Info(node)) => reach.sees(at.looked(node.when).back(self.lookback_ms)),
            Node::Vector(_) | Node::Scalar(_) | Node::Text(_) => {}
        }
        for input in node.inputs() {
            self.node(input, at, reach);
        }
    }

    fn matrix(&self, node: &MatrixNode, at: At, reach: &mut Reach) {
        let MatrixNode { source, range_ms, when, extension, counts_only: _ } = node;
        let (before_ms, after_ms) = match extension {
            None => (0, 0),
            Some(Extension::Anchored) => (self.lookback_ms, 0),
            Some(Extension::Smoothed) => (self.lookback_ms, self.lookback_ms),
        };
        let at = at.looked(*when).back(range_ms.saturating_add(before_ms)).ahead(after_ms);
        match source {
            MatrixSource::Select(_) => reach.sees(at),
            MatrixSource::Subquery { expr, .. } => self.node(Node::Vector(expr), at, reach),
        }
    }
}

/// Whether the steps of a range can be computed in parts.
pub(super) fn has_parts(plan: &Plan, options: &Options) -> bool {
    // Names that go at the end may make two rows equal there.
    !options.delayed_name_removal
        && match plan {
            Plan::Scalar(node) => scalar_has_parts(node),
            Plan::Vector(node) => rows_of(node).is_some(),
            Plan::Text(_) | Plan::Matrix(_) => false,
        }
}

/// Whether the steps of what a subquery evaluates can be computed in parts.
pub(super) fn vector_has_parts(node: &VectorNode, options: &Options) -> bool {
    !options.delayed_name_removal && rows_of(node).is_some()
}

/// What is known of a node's rows, whatever the range.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Two rows never change places.
    ordered: bool,
    /// Taking the names off makes no two of them equal.
    one_name: bool,
}

const SINGLE: Shape = Shape { ordered: true, one_name: true };

impl Shape {
    /// After an operation that takes names off, and makes one row of two that are equal then.
    fn unnamed(self) -> Shape {
        Shape { ordered: self.ordered && self.one_name, one_name: self.one_name }
    }

    fn disordered(self) -> Shape {
        Shape { ordered: false, ..self }
    }
}

fn scalar_has_parts(node: &ScalarNode) -> bool {
    match node {
        // What is pinned is the same for every range.
        ScalarNode::Number(_) | ScalarNode::Time | ScalarNode::StepInvariant(_) => true,
        ScalarNode::Of(vector) => rows_of(vector).is_some(),
        ScalarNode::Negate(inner) => scalar_has_parts(inner),
        ScalarNode::Binary(binary) => scalar_has_parts(&binary.lhs) && scalar_has_parts(&binary.rhs),
        ScalarNode::MinMax(extreme) => scalar_has_parts(&extreme.a) && scalar_has_parts(&extreme.b),
    }
}

/// None where the node cannot be computed in parts.
fn rows_of(node: &VectorNode) -> Option<Shape> {
    match node {
        VectorNode::Select(selector) => {
            let shape = Shape { ordered: true, one_name: name_of(&selector.matchers).is_some() };
            match selector.look {
                SelectorOutput::Value | SelectorOutput::Smoothed => Some(shape),
                SelectorOutput::Time | SelectorOutput::Start => Some(shape.unnamed()),
            }
        }
        VectorNode::From(scalar) => scalar_has_parts(scalar).then_some(SINGLE),
        VectorNode::StepTimes(arg)
        | VectorNode::Map { arg, .. }
        | VectorNode::MapHistograms { arg, .. }
        | VectorNode::Negate(arg) => rows_of(arg).map(Shape::unnamed),
        VectorNode::MapWith { arg, params, .. } => {
            let shape = rows_of(arg)?.unnamed();
            params.iter().all(scalar_has_parts).then_some(shape)
        }
        VectorNode::Window(window) => window_has_parts(window),
        VectorNode::Absent { arg, .. } => rows_of(arg).map(|_| SINGLE),
        VectorNode::AbsentOverTime { arg, .. } => matrix_rows(arg).map(|_| SINGLE),
        VectorNode::WithScalar(with) => {
            let shape = rows_of(&with.vector)?.unnamed();
            scalar_has_parts(&with.scalar).then_some(shape)
        }
        VectorNode::Join(join) => {
            let (left, right) = (rows_of(&join.lhs)?, rows_of(&join.rhs)?);
            // The rows of `or` have the names of both sides.
            let one_name = !is_set(join.op) && left.one_name && right.one_name;
            Some(Shape { ordered: false, one_name })
        }
        VectorNode::Aggregate(node) => aggregate_has_parts(node),
        VectorNode::Relabel { .. } | VectorNode::Info(_) => None,
        VectorNode::Sort { arg, .. } | VectorNode::SortByLabel { arg, .. } => {
            rows_of(arg).map(Shape::disordered)
        }
        VectorNode::Histogram(node) => {
            let shape = rows_of(&node.arg)?;
            let qs: Vec<&ScalarNode> = match &node.function {
                HistogramFunction::Quantile(q) => vec![q],
                HistogramFunction::Quantiles { label: _, qs } => qs.iter().collect(),
                HistogramFunction::Fraction { lower, upper } => vec![lower, upper],
            };
            (shape.one_name && qs.into_iter().all(scalar_has_parts)).then_some(shape.disordered())
        }
        // Evaluated at times that no range moves.
        VectorNode::StepInvariant(_) => Some(Shape { ordered: true, one_name: false }),
    }
}

fn matrix_rows(node: &MatrixNode) -> Option<Shape> {
    match &node.source {
        MatrixSource::Select(matchers) => {
            Some(Shape { ordered: true, one_name: name_of(matchers).is_some() })
        }
        // Whatever their order was, they are put into that of their labels.
        MatrixSource::Subquery { expr, .. } => rows_of(expr).map(|shape| Shape { ordered: true, ..shape }),
    }
}

fn window_has_parts(node: &WindowNode) -> Option<Shape> {
    let shape = matrix_rows(&node.arg)?;
    if !node.params.iter().all(scalar_has_parts) {
        return None;
    }
    if node.kernel.counts && !reads_counters(&node.arg) {
        // Whether a series is doubted to be a counter depends on all of its windows.
        return None;
    }
    // Two series that differ in their names alone are an error even if they are never there together.
    (node.kernel.keeps_name || shape.one_name).then_some(shape)
}

/// Whether no remark about names of counters can come of it.
fn reads_counters(node: &MatrixNode) -> bool {
    match &node.source {
        MatrixSource::Select(matchers) => name_of(matchers).is_some_and(|name| {
            ["_total", "_sum", "_count", "_bucket"].iter().any(|end| name.ends_with(end))
        }),
        MatrixSource::Subquery { .. } => false,
    }
}

fn aggregate_has_parts(node: &AggregateNode) -> Option<Shape> {
    let shape = rows_of(&node.arg)?;
    match &node.param {
        Param::None => {}
        Param::Scalar(scalar) if scalar_has_parts(scalar) => {}
        Param::Scalar(_) | Param::Text(_) => return None,
    }
    if !shape.ordered && !matches!(node.op, AggregateOp::Count | AggregateOp::Group) {
        return None;
    }
    let picks = matches!(
        node.op,
        AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk | AggregateOp::LimitRatio
    );
    if picks {
        return Some(shape.disordered());
    }
    let keeps_names = match &node.grouping {
        Grouping::By(labels) => labels.iter().any(|label| label.starts_with("__")),
        Grouping::Without(_) => false,
    };
    Some(Shape { ordered: false, one_name: !keeps_names })
}

/// The one metric name that a selector finds.
fn name_of(matchers: &[Matcher]) -> Option<&str> {
    let equal =
        matchers.iter().find(|matcher| matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal);
    equal.map(Matcher::value).filter(|name| !name.is_empty())
}
