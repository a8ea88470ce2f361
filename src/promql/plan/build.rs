//! Builds the plan from the expression tree.

use std::cell::Cell;
use std::sync::Arc;

use crate::model::{Labels, LabelsBuilder, METRIC_NAME, MatchOp, Matcher, Pattern, PatternError, Steps};
use crate::promql::budget::Budget;
use crate::promql::error::QueryError;
use crate::promql::functions::{Function, Kernel, Special, function};
use crate::promql::numbers::seconds;
use crate::promql::query::{Options, Query};
use crate::promql::syntax::tree::{
    Aggregate, AggregateOp, AtModifier, Binary, Call, Cardinality, DurationExpr, Expr, Extension,
    MatrixSelector, QueryTimes, Span, Subquery, VectorSelector,
};

use super::{
    AggregateNode, HistogramFunction, HistogramNode, Join, MatrixNode, MatrixSource, MinMax, Param, Plan,
    Relabel, ScalarBinary, ScalarNode, Selector, SelectorOutput, TimeShift, VectorNode, WindowNode,
    WithScalar, is_comparison, is_set,
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
    budget: &'b Budget<'b>,
    steps: Steps,
    instant: bool,
    subquery_step_ms: i64,
    /// The demand of the functions around the current expression on native histograms.
    demand: Cell<HistogramDemand>,
}

/// The parts of native histograms that enclosing functions need. Counts and sums can be read
/// without the buckets.
#[derive(Clone, Copy, Default)]
struct HistogramDemand {
    counts: bool,
    buckets: bool,
}

impl HistogramDemand {
    /// Returns the demand on the arguments of a function.
    fn with_function(self, name: &str) -> HistogramDemand {
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
enum Any {
    Scalar(ScalarNode),
    Text(String),
    Vector(VectorNode),
    Matrix(MatrixNode),
}

/// A node, and whether it is step-invariant: yields the same at every step.
pub(super) type Built<T> = Result<(T, bool), QueryError>;

fn hoist_scalar(node: ScalarNode, invariant: bool) -> ScalarNode {
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

/// Wraps the step-invariant arguments of a call unless the whole call is step-invariant. `safe` is
/// false for functions that are never step-invariant.
fn hoist_arguments(
    vector: (VectorNode, bool),
    scalars: Vec<(ScalarNode, bool)>,
    safe: bool,
) -> (VectorNode, Vec<ScalarNode>, bool) {
    let all = safe && vector.1 && scalars.iter().all(|(_, invariant)| *invariant);
    let scalars =
        scalars.into_iter().map(|(node, invariant)| hoist_scalar(node, invariant && !all)).collect();
    (hoist_vector(vector.0, vector.1 && !all), scalars, all)
}

fn mismatch(expected: &str, found: &Any) -> QueryError {
    let found = match found {
        Any::Scalar(_) => "scalar",
        Any::Text(_) => "string",
        Any::Vector(_) => "instant vector",
        Any::Matrix(_) => "range vector",
    };
    QueryError::BadQuery(format!("expected type {expected}, got {found}"))
}

/// Returns an empty span at `start`, to which annotations refer.
fn span_at(start: u32) -> Span {
    Span { start, end: start }
}

/// Returns the start of argument `i`. Annotations about the samples of a subquery refer to the
/// start of the text, because Prometheus evaluates a subquery to samples without a position.
fn argument_span(call: &Call, i: usize) -> Span {
    match (call.args.get(i), call.arg_starts.get(i)) {
        (Some(Expr::Subquery(_)), _) | (_, None) => Span::default(),
        (_, Some(start)) => span_at(*start),
    }
}

/// Converts bytes to the text of a JSON response: each byte that is not valid UTF-8 becomes U+FFFD,
/// as in Prometheus.
fn lossy_text(bytes: &[u8]) -> String {
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
    fn any(&self, expr: &Expr, depth: usize) -> Built<Any> {
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
    fn with_demand<T>(&self, demand: HistogramDemand, build: impl FnOnce() -> T) -> T {
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

    fn scalar(&self, expr: &Expr, depth: usize) -> Built<ScalarNode> {
        match self.any(expr, depth)? {
            (Any::Scalar(node), invariant) => Ok((node, invariant)),
            (other, _) => Err(mismatch("scalar", &other)),
        }
    }

    fn matrix(&self, expr: &Expr, depth: usize) -> Built<MatrixNode> {
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

    fn select(&self, selector: &VectorSelector, look: SelectorOutput) -> Result<VectorNode, QueryError> {
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

    fn call(&self, call: &Call, depth: usize) -> Built<Any> {
        let row = function(&call.name)
            .ok_or_else(|| QueryError::BadQuery(format!("unknown function with name {:?}", call.name)))?;
        let given = call.args.len();
        if given < row.args_min() || row.args_max().is_some_and(|max| given > max) {
            let (min, name) = (row.args_min(), row.name);
            return Err(QueryError::BadQuery(format!("{name} takes {min} argument(s) or more, got {given}")));
        }
        let demand = self.demand.get().with_function(row.name);
        self.with_demand(demand, || self.planned_call(row, call, depth))
    }

    fn planned_call(&self, row: &'static Function, call: &Call, depth: usize) -> Built<Any> {
        let name = row.name;
        let built = match row.kernel {
            Kernel::Map(run) => {
                let (arg, invariant) = self.vector(self.arg(call, 0)?, depth)?;
                (VectorNode::Map { name, run, arg: Box::new(arg) }, invariant)
            }
            Kernel::Date(run) => match call.args.first() {
                Some(arg) => {
                    // As in Prometheus, a date is never step-invariant, but its argument may be.
                    let (arg, invariant) = self.vector(arg, depth)?;
                    (VectorNode::Map { name, run, arg: Box::new(hoist_vector(arg, invariant)) }, false)
                }
                None => {
                    let now = VectorNode::From(Box::new(ScalarNode::Time));
                    (VectorNode::Map { name, run, arg: Box::new(now) }, false)
                }
            },
            Kernel::MapWith(run) => {
                let arg = self.vector(self.arg(call, 0)?, depth)?;
                let params = call
                    .args
                    .iter()
                    .skip(1)
                    .map(|param| self.scalar(param, depth))
                    .collect::<Result<_, _>>()?;
                let (arg, params, invariant) = hoist_arguments(arg, params, true);
                (VectorNode::MapWith { name, run, arg: Box::new(arg), params }, invariant)
            }
            Kernel::Window(_) => self.window(row, call, depth)?,
            Kernel::Native(run) => {
                let (arg, invariant) = self.vector(self.arg(call, 0)?, depth)?;
                (VectorNode::MapHistograms { name, run, arg: Box::new(arg) }, invariant)
            }
            Kernel::Special(special) => return self.special(special, call, depth),
        };
        Ok((Any::Vector(built.0), built.1))
    }

    pub(super) fn arg<'c>(&self, call: &'c Call, i: usize) -> Result<&'c Expr, QueryError> {
        call.args.get(i).ok_or_else(|| QueryError::BadQuery(format!("{} lacks an argument", call.name)))
    }

    fn window(&self, row: &'static Function, call: &Call, depth: usize) -> Built<VectorNode> {
        let Kernel::Window(kernel) = row.kernel else {
            return Err(QueryError::BadQuery(format!("{} is not a window function", row.name)));
        };
        let mut matrix = None;
        let mut params = Vec::new();
        for (i, arg) in call.args.iter().enumerate() {
            match self.any(arg, depth)? {
                (Any::Matrix(node), invariant) if matrix.is_none() => {
                    matrix = Some((node, invariant, argument_span(call, i)))
                }
                (Any::Scalar(node), invariant) => params.push((node, invariant)),
                (other, _) => return Err(mismatch("range vector or scalar", &other)),
            }
        }
        if params.len() + 1 != row.args.len() {
            return Err(QueryError::BadQuery(format!("{} takes {} argument(s)", row.name, row.args.len())));
        }
        let Some((arg, arg_invariant, arg_span)) = matrix else {
            return Err(QueryError::BadQuery(format!("{} lacks a range vector", row.name)));
        };
        check_extension(row.name, arg.extension)?;
        // `predict_linear` is the only window function that uses the evaluation time.
        let safe = row.name != "predict_linear";
        let all = safe && arg_invariant && params.iter().all(|(_, invariant)| *invariant);
        let params =
            params.into_iter().map(|(node, invariant)| hoist_scalar(node, invariant && !all)).collect();
        let param_span = argument_span(call, 0);
        let name = row.name;
        Ok((
            VectorNode::Window(Arc::new(WindowNode { name, kernel, arg, params, arg_span, param_span })),
            all,
        ))
    }

    fn special(&self, special: Special, call: &Call, depth: usize) -> Built<Any> {
        let scalar = |node, invariant| Ok((Any::Scalar(node), invariant));
        let constant = |value| Ok((Any::Scalar(ScalarNode::Number(value)), true));
        let vector = |(node, invariant)| Ok((Any::Vector(node), invariant));
        match special {
            Special::Pi => constant(std::f64::consts::PI),
            Special::Time => scalar(ScalarNode::Time, false),
            Special::Start => constant(self.steps.start().as_seconds()),
            Special::End => constant(self.steps.end().as_seconds()),
            Special::Range => constant(seconds(self.steps.end().ms_since(self.steps.start()))),
            Special::Step => {
                let step_ms = if self.instant { 0 } else { self.steps.step_ms() };
                constant(seconds(step_ms))
            }
            Special::MaxOf | Special::MinOf => {
                let (a, a_invariant) = self.scalar(self.arg(call, 0)?, depth)?;
                let (b, b_invariant) = self.scalar(self.arg(call, 1)?, depth)?;
                let extreme = MinMax { greatest: special == Special::MaxOf, a, b };
                scalar(ScalarNode::MinMax(Box::new(extreme)), a_invariant && b_invariant)
            }
            Special::Scalar => {
                let (arg, invariant) = self.vector(self.arg(call, 0)?, depth)?;
                scalar(ScalarNode::Of(Box::new(arg)), invariant)
            }
            Special::Vector => {
                let (arg, invariant) = self.scalar(self.arg(call, 0)?, depth)?;
                vector((VectorNode::From(Box::new(arg)), invariant))
            }
            Special::Timestamp => vector(self.timestamp(self.arg(call, 0)?, depth)?),
            Special::StartTimestamp => vector(self.start_timestamp(self.arg(call, 0)?, depth)?),
            Special::Info => vector(self.info(call, depth)?),
            Special::Absent => {
                let arg = self.arg(call, 0)?;
                let (node, invariant) = self.vector(arg, depth)?;
                vector((VectorNode::Absent { arg: Box::new(node), labels: absent_labels(arg) }, invariant))
            }
            Special::AbsentOverTime => {
                let arg = self.arg(call, 0)?;
                let (node, invariant) = self.matrix(arg, depth)?;
                check_extension("absent_over_time", node.extension)?;
                vector((
                    VectorNode::AbsentOverTime { arg: Box::new(node), labels: absent_labels(arg) },
                    invariant,
                ))
            }
            Special::Sort | Special::SortDesc | Special::SortByLabel | Special::SortByLabelDesc => {
                vector(self.sort(special, call, depth)?)
            }
            Special::LabelReplace | Special::LabelJoin => {
                let (arg, invariant) = self.vector(self.arg(call, 0)?, depth)?;
                let relabel = self.relabel(special, call)?;
                vector((VectorNode::Relabel { arg: Box::new(arg), relabel }, invariant))
            }
            Special::HistogramQuantile | Special::HistogramQuantiles | Special::HistogramFraction => {
                vector(self.histogram(special, call, depth)?)
            }
        }
    }

    /// Plans `timestamp`: the sample times of a selector, the evaluation times of other
    /// expressions.
    fn timestamp(&self, arg: &Expr, depth: usize) -> Built<VectorNode> {
        if let Expr::Vector(selector) = arg {
            return Ok((self.select(selector, SelectorOutput::Time)?, selector.at.is_some()));
        }
        let (arg, invariant) = self.vector(arg, depth)?;
        Ok((VectorNode::StepTimes(Box::new(hoist_vector(arg, invariant))), false))
    }

    /// Plans `start_timestamp`: the start timestamps of a selector, no values for other
    /// expressions.
    fn start_timestamp(&self, arg: &Expr, depth: usize) -> Built<VectorNode> {
        if let Expr::Vector(selector) = arg {
            return Ok((self.select(selector, SelectorOutput::Start)?, selector.at.is_some()));
        }
        let (arg, invariant) = self.vector(arg, depth)?;
        let nothing: fn(f64, &[f64]) -> Option<f64> = |_, _| None;
        let (name, arg) = ("start_timestamp", Box::new(arg));
        Ok((VectorNode::MapWith { name, run: nothing, arg, params: Vec::new() }, invariant))
    }

    fn sort(&self, special: Special, call: &Call, depth: usize) -> Built<VectorNode> {
        let (arg, invariant) = self.vector(self.arg(call, 0)?, depth)?;
        let (arg, span) = (Box::new(arg), call.span);
        let node = match special {
            Special::Sort | Special::SortDesc => {
                VectorNode::Sort { arg, descending: special == Special::SortDesc, span }
            }
            _ => {
                let names = (1..call.args.len()).map(|i| self.text(call, i)).collect::<Result<_, _>>()?;
                VectorNode::SortByLabel { arg, names, descending: special == Special::SortByLabelDesc, span }
            }
        };
        Ok((node, invariant))
    }

    fn text(&self, call: &Call, i: usize) -> Result<String, QueryError> {
        match self.arg(call, i)? {
            Expr::Text(text) => Ok(text.clone()),
            // Label names and values are UTF-8, so other bytes cannot refer to any.
            bytes @ Expr::Bytes(_) => {
                Err(QueryError::execution(format!("{}(): {bytes} is not valid UTF-8", call.name)))
            }
            _ => {
                Err(QueryError::BadQuery(format!("expected type string in call to function {:?}", call.name)))
            }
        }
    }

    fn relabel(&self, special: Special, call: &Call) -> Result<Relabel, QueryError> {
        let name = if special == Special::LabelReplace { "label_replace" } else { "label_join" };
        if let Expr::Bytes(target) = self.arg(call, 1)? {
            let target = lossy_text(target);
            return Err(QueryError::execution(format!(
                "invalid destination label name in {name}(): {target}"
            )));
        }
        let target = self.text(call, 1)?;
        if target.is_empty() {
            return Err(QueryError::execution(format!(
                "invalid destination label name in {name}(): {target}"
            )));
        }
        if special == Special::LabelReplace {
            let (replacement, source, text) = (self.text(call, 2)?, self.text(call, 3)?, self.text(call, 4)?);
            self.budget.check()?;
            let pattern = Pattern::new(&text).map_err(|error| {
                if error == PatternError::Refused {
                    return self.budget.check().err().unwrap_or(QueryError::Timeout);
                }
                QueryError::execution(format!("invalid regular expression in label_replace(): {text}"))
            })?;
            return Ok(Relabel::Replace { target, replacement, source, pattern });
        }
        let separator = self.text(call, 2)?;
        let sources = (3..call.args.len()).map(|i| self.text(call, i)).collect::<Result<Vec<_>, _>>()?;
        if sources.iter().any(String::is_empty) {
            return Err(QueryError::execution("invalid source label name in label_join(): "));
        }
        Ok(Relabel::Join { target, separator, sources })
    }

    fn histogram(&self, special: Special, call: &Call, depth: usize) -> Built<VectorNode> {
        let index = match special {
            Special::HistogramQuantile => 1,
            Special::HistogramFraction => 2,
            _ => 0,
        };
        let arg_expr = self.arg(call, index)?;
        let arg = self.vector(arg_expr, depth)?;
        let scalars: Vec<usize> = match special {
            Special::HistogramQuantile => vec![0],
            Special::HistogramFraction => vec![0, 1],
            _ => (2..call.args.len()).collect(),
        };
        let params = scalars
            .into_iter()
            .map(|i| self.scalar(self.arg(call, i)?, depth))
            .collect::<Result<Vec<_>, _>>()?;
        let (arg, params, invariant) = hoist_arguments(arg, params, true);
        let mut params = params.into_iter();
        let mut next = || params.next().ok_or_else(|| QueryError::BadQuery("an argument is missing".into()));
        let function = match special {
            Special::HistogramQuantile => HistogramFunction::Quantile(next()?),
            Special::HistogramFraction => HistogramFunction::Fraction { lower: next()?, upper: next()? },
            _ => HistogramFunction::Quantiles { label: self.text(call, 1)?, qs: params.collect() },
        };
        let (arg_span, param_span) = (argument_span(call, index), argument_span(call, 0));
        Ok((
            VectorNode::Histogram(Box::new(HistogramNode { function, arg, arg_span, param_span })),
            invariant,
        ))
    }
}

fn needs_param(op: AggregateOp) -> bool {
    use AggregateOp::{Bottomk, CountValues, LimitRatio, Limitk, Quantile, Topk};
    matches!(op, Topk | Bottomk | Quantile | CountValues | Limitk | LimitRatio)
}

/// Refuses `anchored` and `smoothed` for functions that would treat samples outside of the window
/// as part of it.
fn check_extension(function: &str, extension: Option<Extension>) -> Result<(), QueryError> {
    let Some(extension) = extension else { return Ok(()) };
    let safe: &[&str] = match extension {
        Extension::Anchored => &["changes", "delta", "increase", "rate", "resets"],
        Extension::Smoothed => &["delta", "increase", "rate"],
    };
    if safe.contains(&function) {
        return Ok(());
    }
    Err(QueryError::execution(format!(
        "{} modifier can only be used with: {} - not with {function}",
        extension.as_str(),
        safe.join(", ")
    )))
}

/// Returns the labels of the result of `absent`: those of the `=` matchers. A later matcher of the
/// same label removes it again.
fn absent_labels(arg: &Expr) -> Labels {
    let matchers: &[Matcher] = match arg {
        Expr::Vector(selector) => &selector.matchers,
        Expr::Matrix(matrix) => &matrix.selector.matchers,
        _ => &[],
    };
    let mut builder = LabelsBuilder::default();
    let mut seen: Vec<&str> = Vec::new();
    for matcher in matchers.iter().filter(|matcher| matcher.name() != METRIC_NAME) {
        if matcher.op() == MatchOp::Equal && !seen.contains(&matcher.name()) {
            builder.set(matcher.name(), matcher.value());
            seen.push(matcher.name());
        } else {
            builder.remove(matcher.name());
        }
    }
    builder.build()
}
