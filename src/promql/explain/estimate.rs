//! Reckoning: series and their labels as the selectors find them, samples from a few of them, memory from rows and steps.
//!
//! Where labels are known the groups of an aggregation are counted; behind a join or a relabelling the number of rows is
//! the most that can come out.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::model::{Labels, METRIC_NAME, Matcher, TimeRange, Timestamp};
use crate::promql::budget::{Charge, Meter, rows_bytes};
use crate::promql::eval::scratch_bytes;
use crate::promql::plan::{
    AggregateNode, HistogramWhat, MatrixNode, MatrixSource, Node, Param, Plan, ScalarNode, VectorNode,
};
use crate::promql::syntax::tree::{AggregateOp, BinaryOp, Cardinality, Grouping};
use crate::promql::{Budget, Options, Query, QueryError};
use crate::tsdb::{SampleColumns, Snapshot};

use super::PlanNode;
use super::walk::words;

/// So many of a selector's series are read.
const PROBES: usize = 16;

/// The steps that something is evaluated at.
#[derive(Clone, Copy, Debug)]
struct Span {
    first_ms: i64,
    last_ms: i64,
    steps: usize,
}

impl Span {
    fn once(self) -> Span {
        Span { last_ms: self.first_ms, steps: self.steps.min(1), ..self }
    }
}

/// What comes out of a node.
#[derive(Clone, Debug, Default)]
struct Rows {
    count: usize,
    /// Label sets without duplicates, where they are known; then there are `count` of them.
    labels: Option<Vec<Labels>>,
}

impl Rows {
    fn unknown(count: usize) -> Rows {
        Rows { count, labels: None }
    }

    fn of(labels: Vec<Labels>) -> Rows {
        Rows { count: labels.len(), labels: Some(labels) }
    }
}

type Reckoned = Result<(Rows, PlanNode), QueryError>;

pub(super) struct Estimator<'a> {
    snapshot: &'a Snapshot,
    options: &'a Options,
    budget: &'a Budget<'a>,
    /// Selections made so far: an expression often names the same one twice.
    found: HashMap<(String, i64, i64), (Vec<Labels>, u64)>,
    meter: Rc<Meter>,
    /// Memory of what `found` holds.
    held: Charge,
}

impl<'a> Estimator<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, options: &'a Options, budget: &'a Budget<'a>) -> Estimator<'a> {
        let meter = Meter::new(options.limits, budget);
        let held = meter.charge();
        Estimator { snapshot, options, budget, found: HashMap::new(), meter, held }
    }

    /// The whole plan as a tree.
    pub(super) fn plan(&mut self, plan: &Plan, query: &Query) -> Result<PlanNode, QueryError> {
        let steps = query.steps;
        let span = Span { first_ms: steps.start().as_ms(), last_ms: steps.end().as_ms(), steps: steps.len() };
        Ok(match plan {
            Plan::Scalar(node) => self.scalar(node, span)?,
            Plan::Text(text) => leaf(Node::Text(text), 1, 0, 0),
            Plan::Vector(node) => self.vector(node, span)?.1,
            Plan::Matrix(node) => {
                let (_, mut tree) = self.matrix(node, span)?;
                // Raw samples of 16 bytes.
                tree.memory_bytes = tree.memory_bytes.saturating_add(tree.samples.saturating_mul(16));
                tree
            }
        })
    }

    /// The series that a selector finds, and how many samples they have about.
    fn select(
        &mut self,
        matchers: &[Matcher],
        first_ms: i64,
        last_ms: i64,
    ) -> Result<(Vec<Labels>, u64), QueryError> {
        self.budget.check()?;
        let key = (format!("{matchers:?}"), first_ms, last_ms);
        if let Some(known) = self.found.get(&key) {
            return Ok(known.clone());
        }
        let range = between(first_ms, last_ms);
        let series =
            self.budget.paced(self.snapshot, Some(&self.meter), |paced| paced.select(matchers, range))?;
        let (found, allowed) = (series.len() as u64, self.options.limits.series_max);
        if found > allowed {
            return Err(QueryError::TooManySeries { found, allowed });
        }
        let apart = series.len().div_ceil(PROBES).max(1);
        let (mut probes, mut samples) = (0_u64, 0_u64);
        let mut columns = SampleColumns::default();
        for series in series.iter().step_by(apart) {
            self.budget.check()?;
            self.snapshot.read(series.id, range, &mut columns);
            probes += 1;
            samples += columns.times.len() as u64;
        }
        let samples = samples.saturating_mul(found).checked_div(probes).unwrap_or(0);
        let labels = series.iter().map(|series| &series.labels);
        let bytes = Labels::bytes_behind(labels) + series.len() * size_of::<Labels>();
        // The map keeps them, and the caller works on a copy.
        self.held.add_bytes(2 * bytes as u64)?;
        let known = (series.into_iter().map(|series| series.labels).collect::<Vec<_>>(), samples);
        self.found.insert(key, known.clone());
        Ok(known)
    }

    fn scalar(&mut self, node: &ScalarNode, span: Span) -> Result<PlanNode, QueryError> {
        let inputs = match node {
            ScalarNode::Number(_) | ScalarNode::Time => Vec::new(),
            ScalarNode::Of(vector) => vec![self.vector(vector, span)?.1],
            ScalarNode::Negate(inner) => vec![self.scalar(inner, span)?],
            ScalarNode::Binary(binary) => {
                vec![self.scalar(&binary.lhs, span)?, self.scalar(&binary.rhs, span)?]
            }
            ScalarNode::Extreme(extreme) => {
                vec![self.scalar(&extreme.a, span)?, self.scalar(&extreme.b, span)?]
            }
            ScalarNode::Once(inner) => vec![self.scalar(inner, span.once())?],
        };
        Ok(over(Node::Scalar(node), 1, rows_bytes(1, span.steps), inputs))
    }

    fn scalars<'n>(
        &mut self,
        nodes: impl IntoIterator<Item = &'n ScalarNode>,
        span: Span,
    ) -> Result<Vec<PlanNode>, QueryError> {
        nodes.into_iter().map(|node| self.scalar(node, span)).collect()
    }

    fn matrix(&mut self, node: &MatrixNode, span: Span) -> Reckoned {
        let first = node.when.look(span.first_ms).saturating_sub(node.range_ms);
        let last = node.when.look(span.last_ms);
        match &node.source {
            MatrixSource::Select(matchers) => {
                let (labels, samples) = self.select(matchers, first.saturating_add(1), last)?;
                // One series at a time, in columns of 16 bytes a sample.
                let widest = samples.checked_div(labels.len() as u64).unwrap_or(0).saturating_mul(16);
                let range = between(first.saturating_add(1), last);
                let widest = widest.saturating_add(scratch_bytes(labels.len(), range, span.steps) as u64);
                let widest = widest.saturating_add(Labels::bytes_behind(&labels) as u64);
                let tree = leaf(Node::Matrix(node), labels.len(), samples, widest);
                Ok((Rows::of(labels), tree))
            }
            MatrixSource::Subquery { expr, step_ms, .. } => {
                let inner = inner_span(first, last, (*step_ms).max(1));
                let (rows, tree) = self.vector(expr, inner)?;
                Ok((rows.clone(), over(Node::Matrix(node), rows.count, 0, vec![tree])))
            }
        }
    }

    fn vector(&mut self, node: &VectorNode, span: Span) -> Reckoned {
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
                return Ok((Rows::of(labels), tree));
            }
            VectorNode::From(scalar) => (Rows::of(vec![Labels::default()]), vec![self.scalar(scalar, span)?]),
            VectorNode::Once(arg) => {
                let (rows, tree) = self.vector(arg, span.once())?;
                (rows, vec![tree])
            }
            VectorNode::Info(info) => {
                let (rows, tree) = self.vector(&info.arg, span)?;
                (Rows::unknown(rows.count), vec![tree])
            }
            VectorNode::StepTimes(arg)
            | VectorNode::Map { arg, .. }
            | VectorNode::OfHistograms { arg, .. }
            | VectorNode::Negate(arg)
            | VectorNode::Sort { arg, .. }
            | VectorNode::SortByLabel { arg, .. } => {
                let (rows, tree) = self.vector(arg, span)?;
                (rows, vec![tree])
            }
            VectorNode::Relabel { arg, .. } => {
                let (rows, tree) = self.vector(arg, span)?;
                (Rows::unknown(rows.count), vec![tree])
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
            VectorNode::Absent { arg, .. } => (Rows::unknown(1), vec![self.vector(arg, span)?.1]),
            VectorNode::AbsentOverTime { arg, .. } => (Rows::unknown(1), vec![self.matrix(arg, span)?.1]),
            VectorNode::WithScalar(with) => {
                let (rows, vector) = self.vector(&with.vector, span)?;
                let scalar = self.scalar(&with.scalar, span)?;
                (rows, if with.scalar_is_left { vec![scalar, vector] } else { vec![vector, scalar] })
            }
            VectorNode::Join(join) => {
                let (left, left_tree) = self.vector(&join.lhs, span)?;
                let (right, right_tree) = self.vector(&join.rhs, span)?;
                let filled = join.matching.fill_left.is_some() || join.matching.fill_right.is_some();
                let count = match (join.op, join.matching.cardinality) {
                    (BinaryOp::Or, _) => left.count.saturating_add(right.count),
                    (BinaryOp::And | BinaryOp::Unless, _) | (_, Cardinality::ManyToOne) => left.count,
                    (_, Cardinality::OneToMany) => right.count,
                    _ if filled => left.count.saturating_add(right.count),
                    _ => left.count.min(right.count),
                };
                (Rows::unknown(count), vec![left_tree, right_tree])
            }
            VectorNode::Aggregate(aggregate) => self.aggregate(aggregate, span)?,
            VectorNode::Histogram(histogram) => {
                let (rows, tree) = self.vector(&histogram.arg, span)?;
                let (qs, times) = match &histogram.what {
                    HistogramWhat::Quantile(q) => (vec![q], 1),
                    HistogramWhat::Quantiles { label: _, qs } => (qs.iter().collect(), qs.len()),
                    HistogramWhat::Fraction { lower, upper } => (vec![lower, upper], 1),
                };
                let groups = grouped(&rows, |name| name != METRIC_NAME && name != "le");
                let mut inputs = self.scalars(qs, span)?;
                inputs.push(tree);
                (Rows::unknown(groups.count.saturating_mul(times)), inputs)
            }
        };
        // A sum keeps a correction and a count beside each value, a mean and a variance as much.
        let columns = if matches!(node, VectorNode::Aggregate(_)) { 4 } else { 1 };
        let bytes = rows_bytes(rows.count, span.steps).saturating_mul(columns);
        let tree = over(Node::Vector(node), rows.count, bytes, inputs);
        Ok((rows, tree))
    }

    fn aggregate(&mut self, node: &AggregateNode, span: Span) -> Result<(Rows, Vec<PlanNode>), QueryError> {
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
            // Which of the rows stay is another matter at every step.
            AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk | AggregateOp::LimitRatio => rows,
            AggregateOp::CountValues => Rows::unknown(rows.count),
            _ => groups,
        };
        Ok((out, inputs))
    }
}

fn between(first_ms: i64, last_ms: i64) -> TimeRange {
    TimeRange::new(Timestamp::from_ms(first_ms), Timestamp::from_ms(last_ms))
}

/// A subquery's steps: the absolute multiples of its step in `(after, until]`.
fn inner_span(after: i64, until: i64, step_ms: i64) -> Span {
    let first_ms = after.div_euclid(step_ms).saturating_add(1).saturating_mul(step_ms);
    if first_ms > until {
        return Span { first_ms, last_ms: first_ms, steps: 0 };
    }
    let further = until.saturating_sub(first_ms) / step_ms;
    let last_ms = first_ms.saturating_add(further.saturating_mul(step_ms));
    Span { first_ms, last_ms, steps: usize::try_from(further).unwrap_or(usize::MAX).saturating_add(1) }
}

/// The groups that rows fall into by the labels that `keep` keeps.
fn grouped(rows: &Rows, mut keep: impl FnMut(&str) -> bool) -> Rows {
    let Some(labels) = &rows.labels else { return Rows::unknown(rows.count) };
    let groups: HashSet<Labels> = labels.iter().map(|labels| labels.filtered(&mut keep)).collect();
    Rows::of(groups.into_iter().collect())
}

fn leaf(node: Node<'_>, series: usize, samples: u64, memory_bytes: u64) -> PlanNode {
    let series = series as u64;
    PlanNode { node: words(node), series, samples, memory_bytes, actual: None, inputs: Vec::new() }
}

/// A node of so many bytes of its own, made of inputs that are there beside it.
fn over(node: Node<'_>, series: usize, own_bytes: u64, inputs: Vec<PlanNode>) -> PlanNode {
    let samples = inputs.iter().map(|input| input.samples).sum();
    let beside: u64 = inputs.iter().map(|input| input.memory_bytes).sum();
    let memory_bytes = beside.saturating_add(own_bytes);
    PlanNode { node: words(node), series: series as u64, samples, memory_bytes, actual: None, inputs }
}
