//! Builds the plan from the expression tree.

use std::cell::Cell;

use crate::model::Steps;
use crate::promql::budget::Budget;
use crate::promql::error::QueryError;
use crate::promql::query::{Options, Query};
use crate::promql::syntax::tree::{
    Aggregate, AggregateOp, AtModifier, Binary, Cardinality, DurationExpr, Expr, Extension, MatrixSelector,
    QueryTimes, Span, Subquery, VectorSelector,
};

use super::{
    AggregateNode, Join, MatrixNode, MatrixSource, Param, Plan, ScalarBinary, ScalarNode, Selector,
    SelectorOutput, TimeShift, VectorNode, WithScalar, is_comparison, is_set,
};

/// The maximum depth of a tree. The caps of the parser are lower; this limit protects the stack
/// from trees that other callers build. A chain of operators nests to the left, so the limit must
/// exceed the cap on operators.
const DEPTH_MAX: usize = 400;

/// Builds the plan of a query.
///
/// # Errors
/// [`QueryError::BadQuery`] if the expression cannot be evaluated, [`QueryError::Execution`] for an
/// invalid constant.
pub(in crate::promql) fn build(
    query: &Query,
    options: &Options,
    budget: &Budget<'_>,
) -> Result<Plan, QueryError> {
    let builder = Builder {
        budget,
        steps: query.steps,
        instant: query.instant,
        subquery_step_ms: options.subquery_step_ms,
        demand: Cell::new(HistogramDemand::default()),
    };
    let (any, invariant) = builder.any(&query.expr, 0)?;
    Ok(match any {
        Any::Scalar(node) => Plan::Scalar(hoist_scalar(node, invariant)),
        Any::Vector(node) => Plan::Vector(hoist_vector(node, invariant)),
        Any::Text(_) | Any::Matrix(_) if !query.instant => {
            let kind = if matches!(any, Any::Text(_)) { "string" } else { "range vector" };
            return Err(QueryError::BadQuery(format!(
                "invalid expression type {kind:?} for range query, must be Scalar or instant Vector"
            )));
        }
        Any::Text(text) => Plan::Text(text),
        Any::Matrix(node) => Plan::Matrix(node),
    })
}

/// The state of building one plan.
pub(super) struct Builder<'b> {
    /// Checked before each regular expression is compiled.
    pub(super) budget: &'b Budget<'b>,
    pub(super) steps: Steps,
    pub(super) instant: bool,
    subquery_step_ms: i64,
    /// The demand of the functions around the current expression on native histograms.
    pub(super) demand: Cell<HistogramDemand>,
}

/// The parts of native histograms that enclosing functions need. Counts and sums can be read
/// without the buckets.
#[derive(Clone, Copy, Default)]
pub(super) struct HistogramDemand {
    counts: bool,
    buckets: bool,
}

impl HistogramDemand {
    /// Returns the demand on the arguments of a function.
    pub(super) fn with_function(self, name: &str) -> HistogramDemand {
        match name {
            "histogram_count" | "histogram_sum" | "histogram_avg" => HistogramDemand { counts: true, ..self },
            "histogram_quantile" | "histogram_quantiles" | "histogram_fraction" => self.with_buckets(),
            _ => self,
        }
    }

    /// Adds the demand for buckets: of a subquery, which finds resets, or of a trim operator.
    fn with_buckets(self) -> HistogramDemand {
        HistogramDemand { buckets: true, ..self }
    }
}

/// A node of any type.
pub(super) enum Any {
    Scalar(ScalarNode),
    Text(String),
    Vector(VectorNode),
    Matrix(MatrixNode),
}

/// A node, and whether it is step-invariant: yields the same at every step.
pub(super) type Built<T> = Result<(T, bool), QueryError>;

pub(super) fn hoist_scalar(node: ScalarNode, invariant: bool) -> ScalarNode {
    match node {
        ScalarNode::Number(_) | ScalarNode::StepInvariant(_) => node,
        node if invariant => ScalarNode::StepInvariant(Box::new(node)),
        node => node,
    }
}

pub(super) fn hoist_vector(node: VectorNode, invariant: bool) -> VectorNode {
    match node {
        VectorNode::StepInvariant(_) => node,
        node if invariant => VectorNode::StepInvariant(Box::new(node)),
        node => node,
    }
}

pub(super) fn mismatch(expected: &str, found: &Any) -> QueryError {
    let found = match found {
        Any::Scalar(_) => "scalar",
        Any::Text(_) => "string",
        Any::Vector(_) => "instant vector",
        Any::Matrix(_) => "range vector",
    };
    QueryError::BadQuery(format!("expected type {expected}, got {found}"))
}

/// Returns an empty span at `start`, to which annotations refer.
pub(super) fn span_at(start: u32) -> Span {
    Span { start, end: start }
}

/// Converts bytes to the text of a JSON response: each byte that is not valid UTF-8 becomes U+FFFD,
/// as in Prometheus.
pub(super) fn lossy_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// Returns the text of an expression if it has the same meaning in every query. Returns `None` if
/// it uses the start, end, range or step of the query.
fn context_free_text(expr: &Expr) -> Option<Box<str>> {
    let text = expr.to_string();
    // A match inside a label value only costs a possible cache entry.
    let uses_query_times = ["start()", "end()", "range()", "step()"].iter().any(|word| text.contains(word));
    (!uses_query_times).then(|| text.into_boxed_str())
}

impl Builder<'_> {
    pub(super) fn any(&self, expr: &Expr, depth: usize) -> Built<Any> {
        if depth > DEPTH_MAX {
            return Err(QueryError::BadQuery(format!("the expression nests deeper than {DEPTH_MAX} levels")));
        }
        let depth = depth + 1;
        Ok(match expr {
            Expr::Number(value) => (Any::Scalar(ScalarNode::Number(*value)), true),
            Expr::Text(text) => (Any::Text(text.clone()), true),
            Expr::Bytes(bytes) => (Any::Text(lossy_text(bytes)), true),
            Expr::Vector(selector) => {
                let smoothed = selector.extension == Some(Extension::Smoothed);
                let look = if smoothed { SelectorOutput::Smoothed } else { SelectorOutput::Value };
                (Any::Vector(self.select(selector, look)?), selector.at.is_some())
            }
            Expr::Matrix(matrix) => {
                (Any::Matrix(self.matrix_selector(matrix)?), matrix.selector.at.is_some())
            }
            Expr::Subquery(subquery) => (Any::Matrix(self.subquery(subquery, depth)?), subquery.at.is_some()),
            Expr::Negate(inner) => match self.any(inner, depth)? {
                (Any::Scalar(node), invariant) => {
                    (Any::Scalar(ScalarNode::Negate(Box::new(node))), invariant)
                }
                (Any::Vector(node), invariant) => {
                    (Any::Vector(VectorNode::Negate(Box::new(node))), invariant)
                }
                (other, _) => return Err(mismatch("scalar or instant vector", &other)),
            },
            Expr::Binary(binary) => self.binary(binary, depth)?,
            Expr::Call(call) => self.call(call, depth)?,
            Expr::Aggregate(aggregate) => {
                let (node, invariant) = self.aggregate(aggregate, depth)?;
                (Any::Vector(node), invariant)
            }
        })
    }

    /// Returns whether only counts and sums of native histograms are needed, not their buckets.
    fn counts_only(&self) -> bool {
        let demand = self.demand.get();
        demand.counts && !demand.buckets
    }

    /// Runs `build` with another demand and restores the current one afterwards.
    pub(super) fn with_demand<T>(&self, demand: HistogramDemand, build: impl FnOnce() -> T) -> T {
        let outside = self.demand.replace(demand);
        let built = build();
        self.demand.set(outside);
        built
    }

    pub(super) fn vector(&self, expr: &Expr, depth: usize) -> Built<VectorNode> {
        match self.any(expr, depth)? {
            (Any::Vector(node), invariant) => Ok((node, invariant)),
            (other, _) => Err(mismatch("instant vector", &other)),
        }
    }

    pub(super) fn scalar(&self, expr: &Expr, depth: usize) -> Built<ScalarNode> {
        match self.any(expr, depth)? {
            (Any::Scalar(node), invariant) => Ok((node, invariant)),
            (other, _) => Err(mismatch("scalar", &other)),
        }
    }

    pub(super) fn matrix(&self, expr: &Expr, depth: usize) -> Built<MatrixNode> {
        match self.any(expr, depth)? {
            (Any::Matrix(node), invariant) => Ok((node, invariant)),
            (other, _) => Err(mismatch("range vector", &other)),
        }
    }

    /// Returns the times of the query that duration formulas may use.
    fn times(&self) -> QueryTimes {
        let step_ms = if self.instant { 0 } else { self.steps.step_ms() };
        QueryTimes { step_ms, range_ms: self.steps.end().ms_since(self.steps.start()) }
    }

    fn positive_ms(&self, length: &DurationExpr) -> Result<i64, QueryError> {
        length.positive_ms(self.times()).map_err(|e| QueryError::BadQuery(e.to_string()))
    }

    pub(super) fn when(
        &self,
        offset: &DurationExpr,
        at: Option<AtModifier>,
    ) -> Result<TimeShift, QueryError> {
        let offset_ms = offset.offset_ms(self.times()).map_err(|e| QueryError::BadQuery(e.to_string()))?;
        let at_ms = at.map(|at| match at {
            AtModifier::Time(time) => time.as_ms(),
            AtModifier::Start => self.steps.start().as_ms(),
            AtModifier::End => self.steps.end().as_ms(),
        });
        Ok(TimeShift { offset_ms, at_ms })
    }

    pub(super) fn select(
        &self,
        selector: &VectorSelector,
        look: SelectorOutput,
    ) -> Result<VectorNode, QueryError> {
        let (when, counts_only) = (self.when(&selector.offset, selector.at)?, self.counts_only());
        let (matchers, span) = (selector.matchers.clone(), selector.span);
        Ok(VectorNode::Select(Selector { matchers, when, look, counts_only, span }))
    }

    fn matrix_selector(&self, matrix: &MatrixSelector) -> Result<MatrixNode, QueryError> {
        Ok(MatrixNode {
            source: MatrixSource::Select(matrix.selector.matchers.clone()),
            range_ms: self.positive_ms(&matrix.range)?,
            when: self.when(&matrix.selector.offset, matrix.selector.at)?,
            extension: matrix.selector.extension,
            counts_only: self.counts_only(),
        })
    }

    fn subquery(&self, subquery: &Subquery, depth: usize) -> Result<MatrixNode, QueryError> {
        let demand = self.demand.get().with_buckets();
        let (expr, invariant) = self.with_demand(demand, || self.vector(&subquery.expr, depth))?;
        let step_ms = match &subquery.step {
            Some(step) => self.positive_ms(step)?,
            None => 0,
        };
        // As in Prometheus, a step of less than a millisecond selects the default.
        let step_ms = if step_ms > 0 { step_ms } else { self.subquery_step_ms.max(1) };
        Ok(MatrixNode {
            source: MatrixSource::Subquery {
                expr: Box::new(hoist_vector(expr, invariant)),
                step_ms,
                text: context_free_text(&subquery.expr),
                selectors: subquery.expr.selectors().len(),
            },
            range_ms: self.positive_ms(&subquery.range)?,
            when: self.when(&subquery.offset, subquery.at)?,
            extension: None,
            counts_only: false,
        })
    }

    fn binary(&self, binary: &Binary, depth: usize) -> Built<Any> {
        let op = binary.op;
        let returns_bool = binary.returns_bool;
        let demand = self.demand.get();
        let demand = if op.is_trim() { demand.with_buckets() } else { demand };
        let (lhs, lhs_invariant) = self.with_demand(demand, || self.any(&binary.lhs, depth))?;
        let (rhs, rhs_invariant) = self.with_demand(demand, || self.any(&binary.rhs, depth))?;
        let span = span_at(binary.start);
        let all = lhs_invariant && rhs_invariant;
        let (lhs_invariant, rhs_invariant) = (lhs_invariant && !all, rhs_invariant && !all);
        let node = match (lhs, rhs) {
            (Any::Scalar(_), _) | (_, Any::Scalar(_)) if is_set(op) => {
                return Err(QueryError::BadQuery("set operators are not allowed between scalars".into()));
            }
            (Any::Scalar(lhs), Any::Scalar(rhs)) => {
                if is_comparison(op) && !returns_bool {
                    return Err(QueryError::BadQuery(
                        "comparisons between scalars must use BOOL modifier".into(),
                    ));
                }
                if op.is_trim() {
                    let text = format!("operator {:?} not allowed for Scalar operations", op.as_str());
                    return Err(QueryError::execution(text));
                }
                let (lhs, rhs) = (hoist_scalar(lhs, lhs_invariant), hoist_scalar(rhs, rhs_invariant));
                Any::Scalar(ScalarNode::Binary(Box::new(ScalarBinary { op, lhs, rhs })))
            }
            (Any::Vector(vector), Any::Scalar(scalar)) => {
                Any::Vector(VectorNode::WithScalar(Box::new(WithScalar {
                    op,
                    vector: hoist_vector(vector, lhs_invariant),
                    scalar: hoist_scalar(scalar, rhs_invariant),
                    scalar_is_left: false,
                    returns_bool,
                    span,
                })))
            }
            (Any::Scalar(scalar), Any::Vector(vector)) => {
                Any::Vector(VectorNode::WithScalar(Box::new(WithScalar {
                    op,
                    vector: hoist_vector(vector, rhs_invariant),
                    scalar: hoist_scalar(scalar, lhs_invariant),
                    scalar_is_left: true,
                    returns_bool,
                    span,
                })))
            }
            (Any::Vector(lhs), Any::Vector(rhs)) => {
                let mut matching = binary.matching.clone().unwrap_or_default();
                if is_set(op) {
                    matching.cardinality = Cardinality::ManyToMany;
                }
                let (lhs, rhs) = (hoist_vector(lhs, lhs_invariant), hoist_vector(rhs, rhs_invariant));
                Any::Vector(VectorNode::Join(Box::new(Join { op, lhs, rhs, returns_bool, matching, span })))
            }
            (other @ (Any::Text(_) | Any::Matrix(_)), _) | (_, other) => {
                return Err(mismatch("scalar or instant vector", &other));
            }
        };
        Ok((node, all))
    }

    /// Plans an aggregation. As in Prometheus, only its vector decides whether it is
    /// step-invariant.
    fn aggregate(&self, aggregate: &Aggregate, depth: usize) -> Built<VectorNode> {
        let (arg, invariant) = self.vector(&aggregate.expr, depth)?;
        let param = match (&aggregate.param, aggregate.op) {
            (Some(name @ Expr::Bytes(_)), AggregateOp::CountValues) => {
                return Err(QueryError::execution(format!("invalid label name {name}")));
            }
            (Some(param), AggregateOp::CountValues) => match self.any(param, depth)? {
                (Any::Text(text), _) if text.is_empty() => {
                    return Err(QueryError::execution(format!("invalid label name {text:?}")));
                }
                (Any::Text(text), _) => Param::Text(text),
                (other, _) => return Err(mismatch("string", &other)),
            },
            (Some(param), _) => {
                let (node, same) = self.scalar(param, depth)?;
                Param::Scalar(hoist_scalar(node, same && !invariant))
            }
            (None, op) if needs_param(op) => {
                return Err(QueryError::BadQuery("the aggregation lacks its parameter".into()));
            }
            (None, _) => Param::None,
        };
        let (arg_span, param_span) = (span_at(aggregate.expr_start), span_at(aggregate.param_start));
        let (op, grouping, span) = (aggregate.op, aggregate.grouping.clone(), aggregate.span);
        let node = AggregateNode { op, arg, param, grouping, param_span, arg_span, span };
        Ok((VectorNode::Aggregate(Box::new(node)), invariant))
    }
}

fn needs_param(op: AggregateOp) -> bool {
    use AggregateOp::{Bottomk, CountValues, LimitRatio, Limitk, Quantile, Topk};
    matches!(op, Topk | Bottomk | Quantile | CountValues | Limitk | LimitRatio)
}
