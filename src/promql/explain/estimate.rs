//! The estimator: series and labels come from the selectors, samples are extrapolated from a few
//! series, and memory is computed from rows and steps.
//!
//! If labels are known, the groups of an aggregation are counted exactly. Behind a join or a
//! relabelling, the number of rows is an upper bound.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::model::{Labels, METRIC_NAME, Matcher, TimeRange, Timestamp};
use crate::promql::budget::{Budget, Charge, Meter, rows_bytes};
use crate::promql::error::QueryError;
use crate::promql::eval::scratch_bytes;
use crate::promql::plan::{
    AggregateNode, HistogramFunction, Join, MatrixNode, MatrixSource, Node, Param, Plan, ScalarNode,
    VectorNode,
};
use crate::promql::query::{Options, Query};
use crate::promql::syntax::tree::{AggregateOp, BinaryOp, Cardinality, Grouping};
use crate::tsdb::{SampleColumns, Snapshot};

use super::PlanNode;
use super::describe::describe;

/// The most series of a selector whose samples are read.
const PROBES: usize = 16;

/// The steps at which an expression is evaluated.
#[derive(Clone, Copy, Debug)]
struct StepSpan {
    first_ms: i64,
    last_ms: i64,
    steps: usize,
}

impl StepSpan {
    /// Returns the first step only.
    fn first_step(self) -> StepSpan {
        StepSpan { last_ms: self.first_ms, steps: self.steps.min(1), ..self }
    }
}

/// The estimated result of a node.
#[derive(Clone, Debug, Default)]
struct RowEstimate {
    count: usize,
    /// The `count` distinct label sets, if they are known.
    labels: Option<Vec<Labels>>,
}

impl RowEstimate {
    fn unknown(count: usize) -> RowEstimate {
        RowEstimate { count, labels: None }
    }

    fn of(labels: Vec<Labels>) -> RowEstimate {
        RowEstimate { count: labels.len(), labels: Some(labels) }
    }
}

/// The estimated result of a node, and the node with its estimated cost.
type Estimated = Result<(RowEstimate, PlanNode), QueryError>;

/// Estimates the cost of one plan.
pub(super) struct Estimator<'a> {
    snapshot: &'a Snapshot,
    options: &'a Options,
    budget: &'a Budget<'a>,
    /// Finished selections by matchers, first and last time in milliseconds: an expression often
    /// has the same selection twice. The values are labels and the estimated number of samples.
    selections: HashMap<(String, i64, i64), (Vec<Labels>, u64)>,
    meter: Rc<Meter>,
    /// The memory of `selections`.
    held: Charge,
}

impl<'a> Estimator<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, options: &'a Options, budget: &'a Budget<'a>) -> Estimator<'a> {
        let meter = Meter::new(options.limits, budget);
        let held = meter.charge();
        Estimator { snapshot, options, budget, selections: HashMap::new(), meter, held }
    }

    /// Returns the plan as a tree with estimated costs.
    pub(super) fn plan(&mut self, plan: &Plan, query: &Query) -> Result<PlanNode, QueryError> {
        let steps = query.steps;
        let span =
            StepSpan { first_ms: steps.start().as_ms(), last_ms: steps.end().as_ms(), steps: steps.len() };
        Ok(match plan {
            Plan::Scalar(node) => self.scalar(node, span)?,
            Plan::Text(text) => leaf(Node::Text(text), 1, 0, 0),
            Plan::Vector(node) => self.vector(node, span)?.1,
            Plan::Matrix(node) => {
                let (_, mut tree) = self.matrix(node, span)?;
                // The result has raw samples of 16 bytes.
                tree.memory_bytes = tree.memory_bytes.saturating_add(tree.samples.saturating_mul(16));
                tree
            }
        })
    }

    /// Returns the labels of the series that `matchers` select, and their estimated number of
    /// samples. Both times are inclusive.
    fn select(
        &mut self,
        matchers: &[Matcher],
        first_ms: i64,
        last_ms: i64,
    ) -> Result<(Vec<Labels>, u64), QueryError> {
        self.budget.check()?;
        let key = (format!("{matchers:?}"), first_ms, last_ms);
        if let Some(selection) = self.selections.get(&key) {
            return Ok(selection.clone());
        }
        let range = between(first_ms, last_ms);
        let series =
            self.budget.paced(self.snapshot, Some(&self.meter), |paced| paced.select(matchers, range))?;
        let (found, allowed) = (series.len() as u64, self.options.limits.series_max);
        if found > allowed {
            return Err(QueryError::TooManySeries { found, allowed });
        }
        let stride = series.len().div_ceil(PROBES).max(1);
        let (mut probes, mut samples) = (0_u64, 0_u64);
        let mut columns = SampleColumns::default();
        for series in series.iter().step_by(stride) {
            self.budget.check()?;
            self.snapshot.read(series.id, range, &mut columns);
            probes += 1;
            samples += columns.times.len() as u64;
        }
        let samples = samples.saturating_mul(found).checked_div(probes).unwrap_or(0);
        let labels = series.iter().map(|series| &series.labels);
        let bytes = Labels::bytes_behind(labels) + series.len() * size_of::<Labels>();
        // The map keeps the labels, and the caller gets a copy.
        self.held.add_bytes(2 * bytes as u64)?;
        let selection = (series.into_iter().map(|series| series.labels).collect::<Vec<_>>(), samples);
        self.selections.insert(key, selection.clone());
        Ok(selection)
    }

    fn scalar(&mut self, node: &ScalarNode, span: StepSpan) -> Result<PlanNode, QueryError> {
        let inputs = match node {
            ScalarNode::Number(_) | ScalarNode::Time => Vec::new(),
            ScalarNode::Of(vector) => vec![self.vector(vector, span)?.1],
            ScalarNode::Negate(inner) => vec![self.scalar(inner, span)?],
            ScalarNode::Binary(binary) => {
                vec![self.scalar(&binary.lhs, span)?, self.scalar(&binary.rhs, span)?]
            }
            ScalarNode::MinMax(extreme) => {
                vec![self.scalar(&extreme.a, span)?, self.scalar(&extreme.b, span)?]
            }
            ScalarNode::StepInvariant(inner) => vec![self.scalar(inner, span.first_step())?],
        };
        Ok(parent(Node::Scalar(node), 1, rows_bytes(1, span.steps), inputs))
    }

    fn scalars<'n>(
        &mut self,
        nodes: impl IntoIterator<Item = &'n ScalarNode>,
        span: StepSpan,
    ) -> Result<Vec<PlanNode>, QueryError> {
        nodes.into_iter().map(|node| self.scalar(node, span)).collect()
    }

    fn matrix(&mut self, node: &MatrixNode, span: StepSpan) -> Estimated {
        let first = node.when.look(span.first_ms).saturating_sub(node.range_ms);
        let last = node.when.look(span.last_ms);
        match &node.source {
            MatrixSource::Select(matchers) => {
                let (labels, samples) = self.select(matchers, first.saturating_add(1), last)?;
                // One series at a time is decoded into columns of 16 bytes per sample.
                let widest = samples.checked_div(labels.len() as u64).unwrap_or(0).saturating_mul(16);
                let range = between(first.saturating_add(1), last);
                let widest = widest.saturating_add(scratch_bytes(labels.len(), range, span.steps) as u64);
                let widest = widest.saturating_add(Labels::bytes_behind(&labels) as u64);
                let tree = leaf(Node::Matrix(node), labels.len(), samples, widest);
                Ok((RowEstimate::of(labels), tree))
            }
            MatrixSource::Subquery { expr, step_ms, .. } => {
                let inner = inner_span(first, last, (*step_ms).max(1));
                let (rows, tree) = self.vector(expr, inner)?;
                Ok((rows.clone(), parent(Node::Matrix(node), rows.count, 0, vec![tree])))
            }
        }
    }

    fn vector(&mut self, node: &VectorNode, span: StepSpan) -> Estimated {
        self.budget.check()?;
        let (rows, inputs) = match node {
            VectorNode::Select(selector) => {
                let first = selector
                    .when
                    .look(span.first_ms)
                    .saturating_sub(self.options.lookback_ms)
                    .saturating_add(1);
                let last = selector.when.look(span.last_ms);
                let (labels, samples) = self.select(&selector.matchers, first, last)?;
                let bytes = rows_bytes(labels.len(), span.steps);
                let bytes = bytes
                    .saturating_add(scratch_bytes(labels.len(), between(first, last), span.steps) as u64)
                    .saturating_add(Labels::bytes_behind(&labels) as u64);
                let tree = leaf(Node::Vector(node), labels.len(), samples, bytes);
                return Ok((RowEstimate::of(labels), tree));
            }
            VectorNode::From(scalar) => {
                (RowEstimate::of(vec![Labels::default()]), vec![self.scalar(scalar, span)?])
            }
            VectorNode::StepInvariant(arg) => {
                let (rows, tree) = self.vector(arg, span.first_step())?;
                (rows, vec![tree])
            }
            VectorNode::Info(info) => {
                let (rows, tree) = self.vector(&info.arg, span)?;
                (RowEstimate::unknown(rows.count), vec![tree])
            }
            VectorNode::StepTimes(arg)
            | VectorNode::Map { arg, .. }
            | VectorNode::MapHistograms { arg, .. }
            | VectorNode::Negate(arg)
            | VectorNode::Sort { arg, .. }
            | VectorNode::SortByLabel { arg, .. } => {
                let (rows, tree) = self.vector(arg, span)?;
                (rows, vec![tree])
            }
            VectorNode::Relabel { arg, .. } => {
                let (rows, tree) = self.vector(arg, span)?;
                (RowEstimate::unknown(rows.count), vec![tree])
            }
            VectorNode::MapWith { arg, params, .. } => {
                let (rows, tree) = self.vector(arg, span)?;
                let mut inputs = vec![tree];
                inputs.extend(self.scalars(params, span)?);
                (rows, inputs)
            }
            VectorNode::Window(window) => {
                let (rows, tree) = self.matrix(&window.arg, span)?;
                let mut inputs = vec![tree];
                inputs.extend(self.scalars(&window.params, span)?);
                (rows, inputs)
            }
            VectorNode::Absent { arg, .. } => (RowEstimate::unknown(1), vec![self.vector(arg, span)?.1]),
            VectorNode::AbsentOverTime { arg, .. } => {
                (RowEstimate::unknown(1), vec![self.matrix(arg, span)?.1])
            }
            VectorNode::WithScalar(with) => {
                let (rows, vector) = self.vector(&with.vector, span)?;
                let scalar = self.scalar(&with.scalar, span)?;
                (rows, if with.scalar_is_left { vec![scalar, vector] } else { vec![vector, scalar] })
            }
            VectorNode::Join(join) => {
                let (left, left_tree) = self.vector(&join.lhs, span)?;
                let (right, right_tree) = self.vector(&join.rhs, span)?;
                let count = joined_count(join, left.count, right.count);
                (RowEstimate::unknown(count), vec![left_tree, right_tree])
            }
            VectorNode::Aggregate(aggregate) => self.aggregate(aggregate, span)?,
            VectorNode::Histogram(histogram) => {
                let (rows, tree) = self.vector(&histogram.arg, span)?;
                let (qs, times) = match &histogram.function {
                    HistogramFunction::Quantile(q) => (vec![q], 1),
                    HistogramFunction::Quantiles { label: _, qs } => (qs.iter().collect(), qs.len()),
                    HistogramFunction::Fraction { lower, upper } => (vec![lower, upper], 1),
                };
                let groups = grouped(&rows, |name| name != METRIC_NAME && name != "le");
                let mut inputs = self.scalars(qs, span)?;
                inputs.push(tree);
                (RowEstimate::unknown(groups.count.saturating_mul(times)), inputs)
            }
        };
        // Aggregations such as sum, mean and variance keep up to three more numbers for each value,
        // such as a compensation and a count.
        let columns = if matches!(node, VectorNode::Aggregate(_)) { 4 } else { 1 };
        let bytes = rows_bytes(rows.count, span.steps).saturating_mul(columns);
        let tree = parent(Node::Vector(node), rows.count, bytes, inputs);
        Ok((rows, tree))
    }

    fn aggregate(
        &mut self,
        node: &AggregateNode,
        span: StepSpan,
    ) -> Result<(RowEstimate, Vec<PlanNode>), QueryError> {
        let (rows, tree) = self.vector(&node.arg, span)?;
        let mut inputs = match &node.param {
            Param::None => Vec::new(),
            Param::Scalar(scalar) => vec![self.scalar(scalar, span)?],
            Param::Text(text) => vec![leaf(Node::Text(text), 1, 0, 0)],
        };
        inputs.push(tree);
        let groups = match &node.grouping {
            Grouping::By(by) => grouped(&rows, |name| by.iter().any(|by| by == name)),
            Grouping::Without(without) => {
                grouped(&rows, |name| name != METRIC_NAME && !without.iter().any(|other| other == name))
            }
        };
        let out = match node.op {
            // Each step may select other rows, so all of them can be in the result.
            AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk | AggregateOp::LimitRatio => rows,
            AggregateOp::CountValues => RowEstimate::unknown(rows.count),
            _ => groups,
        };
        Ok((out, inputs))
    }
}

/// The most series of a join whose sides have `left` and `right` series.
fn joined_count(join: &Join, left: usize, right: usize) -> usize {
    let filled = join.matching.fill_left.is_some() || join.matching.fill_right.is_some();
    match (join.op, join.matching.cardinality) {
        (BinaryOp::Or, _) => left.saturating_add(right),
        (BinaryOp::And | BinaryOp::Unless, _) | (_, Cardinality::ManyToOne) => left,
        (_, Cardinality::OneToMany) => right,
        _ if filled => left.saturating_add(right),
        _ => left.min(right),
    }
}

fn between(first_ms: i64, last_ms: i64) -> TimeRange {
    TimeRange::new(Timestamp::from_ms(first_ms), Timestamp::from_ms(last_ms))
}

/// Returns the steps of a subquery: the multiples of its step in `(after, until]`, in milliseconds.
fn inner_span(after: i64, until: i64, step_ms: i64) -> StepSpan {
    let first_ms = after.div_euclid(step_ms).saturating_add(1).saturating_mul(step_ms);
    if first_ms > until {
        return StepSpan { first_ms, last_ms: first_ms, steps: 0 };
    }
    let intervals = until.saturating_sub(first_ms) / step_ms;
    let last_ms = first_ms.saturating_add(intervals.saturating_mul(step_ms));
    StepSpan { first_ms, last_ms, steps: usize::try_from(intervals).unwrap_or(usize::MAX).saturating_add(1) }
}

/// Groups rows by the labels for which `keep` returns true.
fn grouped(rows: &RowEstimate, mut keep: impl FnMut(&str) -> bool) -> RowEstimate {
    let Some(labels) = &rows.labels else { return RowEstimate::unknown(rows.count) };
    let groups: HashSet<Labels> = labels.iter().map(|labels| labels.filtered(&mut keep)).collect();
    RowEstimate::of(groups.into_iter().collect())
}

/// Returns a node without inputs.
fn leaf(node: Node<'_>, series: usize, samples: u64, memory_bytes: u64) -> PlanNode {
    let series = series as u64;
    PlanNode { node: describe(node), series, samples, memory_bytes, actual: None, inputs: Vec::new() }
}

/// Returns a node with inputs. Its memory is `own_bytes` plus that of all inputs, which exist at
/// the same time.
fn parent(node: Node<'_>, series: usize, own_bytes: u64, inputs: Vec<PlanNode>) -> PlanNode {
    let samples = inputs.iter().map(|input| input.samples).sum();
    let input_bytes: u64 = inputs.iter().map(|input| input.memory_bytes).sum();
    let memory_bytes = input_bytes.saturating_add(own_bytes);
    PlanNode { node: describe(node), series: series as u64, samples, memory_bytes, actual: None, inputs }
}
