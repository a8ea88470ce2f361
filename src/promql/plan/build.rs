//! Tree to plan.

use std::cell::Cell;
use std::sync::Arc;

use crate::model::{Labels, LabelsBuilder, METRIC_NAME, MatchOp, Matcher, Pattern, PatternError, Steps};
use crate::promql::Budget;
use crate::promql::functions::{Function, Kernel, Special, function};
use crate::promql::syntax::tree::{
    Aggregate, AggregateOp, AtModifier, Binary, Call, Cardinality, Expr, Extension, Length, MatrixSelector,
    QueryTimes, Span, Subquery, VectorSelector,
};
use crate::promql::{Options, Query, QueryError};

use super::{
    AggregateNode, Extreme, HistogramNode, HistogramWhat, Join, Look, MatrixNode, MatrixSource, Param, Plan,
    Relabel, ScalarBinary, ScalarNode, Selector, VectorNode, When, WindowNode, WithScalar, is_comparison,
    is_set,
};

/// How deep a tree may nest. The parser's own cap is lower; this one keeps the stack where another caller builds trees.
/// A chain of operators nests to the left, so it must exceed the cap on operators.
const DEPTH_MAX: usize = 400;

/// Resolves a query.
///
/// # Errors
/// [`QueryError::BadQuery`] for what cannot be evaluated at all, [`QueryError::Execution`] for a bad constant.
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
        asked: Cell::new(Asked::default()),
    };
    let (any, once) = builder.any(&query.expr, 0)?;
    Ok(match any {
        Any::Scalar(node) => Plan::Scalar(once_scalar(node, once)),
        Any::Vector(node) => Plan::Vector(once_vector(node, once)),
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

pub(super) struct Builder<'b> {
    /// Asked before each regular expression is compiled.
    budget: &'b Budget<'b>,
    steps: Steps,
    instant: bool,
    subquery_step_ms: i64,
    /// What the functions around the place that is built ask of native histograms.
    asked: Cell<Asked>,
}

/// What is asked of native histograms: counts and sums alone can be had without their buckets.
#[derive(Clone, Copy, Default)]
struct Asked {
    counts: bool,
    buckets: bool,
}

impl Asked {
    /// By a function or operator, of its arguments.
    fn by_function(self, name: &str) -> Asked {
        match name {
            "histogram_count" | "histogram_sum" | "histogram_avg" => Asked { counts: true, ..self },
            "histogram_quantile" | "histogram_quantiles" | "histogram_fraction" => self.by_buckets(),
            _ => self,
        }
    }

    /// By something that needs buckets: a subquery to find resets, trimming.
    fn by_buckets(self) -> Asked {
        Asked { buckets: true, ..self }
    }
}

enum Any {
    Scalar(ScalarNode),
    Text(String),
    Vector(VectorNode),
    Matrix(MatrixNode),
}

/// A node, and whether it yields the same at every step.
pub(super) type Built<T> = Result<(T, bool), QueryError>;

fn once_scalar(node: ScalarNode, once: bool) -> ScalarNode {
    match node {
        ScalarNode::Number(_) | ScalarNode::Once(_) => node,
        node if once => ScalarNode::Once(Box::new(node)),
        node => node,
    }
}

pub(super) fn once_vector(node: VectorNode, once: bool) -> VectorNode {
    match node {
        VectorNode::Once(_) => node,
        node if once => VectorNode::Once(Box::new(node)),
        node => node,
    }
}

/// Wraps the arguments that stay the same where the whole does not.
fn settle(
    vector: (VectorNode, bool),
    scalars: Vec<(ScalarNode, bool)>,
    safe: bool,
) -> (VectorNode, Vec<ScalarNode>, bool) {
    let all = safe && vector.1 && scalars.iter().all(|(_, once)| *once);
    let scalars = scalars.into_iter().map(|(node, once)| once_scalar(node, once && !all)).collect();
    (once_vector(vector.0, vector.1 && !all), scalars, all)
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

/// The place that a remark points at.
fn starts_at(start: u32) -> Span {
    Span { start, end: start }
}

/// Where an argument starts. Remarks about the samples of a subquery point at the start of the text: upstream evaluates
/// it to samples without a place.
fn place_of(call: &Call, i: usize) -> Span {
    match (call.args.get(i), call.arg_starts.get(i)) {
        (Some(Expr::Subquery(_)), _) | (_, None) => Span::default(),
        (_, Some(start)) => starts_at(*start),
    }
}

/// Bytes as an answer tells them: JSON is UTF-8, so each byte that is not becomes U+FFFD, as in Prometheus'.
fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// The text of an expression that means the same in every query. Times and lengths that are taken from the query make
/// another expression of the same text.
fn text_of_its_own(expr: &Expr) -> Option<Box<str>> {
    let text = expr.to_string();
    // Within a label's value it costs what might have been kept, no more.
    let asks = ["start()", "end()", "range()", "step()"].iter().any(|word| text.contains(word));
    (!asks).then(|| text.into_boxed_str())
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
            Expr::Bytes(bytes) => (Any::Text(shown(bytes)), true),
            Expr::Vector(selector) => {
                let smoothed = selector.extension == Some(Extension::Smoothed);
                let look = if smoothed { Look::Smoothed } else { Look::Value };
                (Any::Vector(self.select(selector, look)?), selector.at.is_some())
            }
            Expr::Matrix(matrix) => {
                (Any::Matrix(self.matrix_selector(matrix)?), matrix.selector.at.is_some())
            }
            Expr::Subquery(subquery) => (Any::Matrix(self.subquery(subquery, depth)?), subquery.at.is_some()),
            Expr::Negate(inner) => match self.any(inner, depth)? {
                (Any::Scalar(node), once) => (Any::Scalar(ScalarNode::Negate(Box::new(node))), once),
                (Any::Vector(node), once) => (Any::Vector(VectorNode::Negate(Box::new(node))), once),
                (other, _) => return Err(mismatch("scalar or instant vector", &other)),
            },
            Expr::Binary(binary) => self.binary(binary, depth)?,
            Expr::Call(call) => self.call(call, depth)?,
            Expr::Aggregate(aggregate) => {
                let (node, once) = self.aggregate(aggregate, depth)?;
                (Any::Vector(node), once)
            }
        })
    }

    /// Whether only counts and sums of native histograms are asked for here.
    fn counts_alone(&self) -> bool {
        let asked = self.asked.get();
        asked.counts && !asked.buckets
    }

    /// Builds something of which other things are asked.
    fn asking<T>(&self, asked: Asked, build: impl FnOnce() -> T) -> T {
        let outside = self.asked.replace(asked);
        let built = build();
        self.asked.set(outside);
        built
    }

    pub(super) fn vector(&self, expr: &Expr, depth: usize) -> Built<VectorNode> {
        match self.any(expr, depth)? {
            (Any::Vector(node), once) => Ok((node, once)),
            (other, _) => Err(mismatch("instant vector", &other)),
        }
    }

    fn scalar(&self, expr: &Expr, depth: usize) -> Built<ScalarNode> {
        match self.any(expr, depth)? {
            (Any::Scalar(node), once) => Ok((node, once)),
            (other, _) => Err(mismatch("scalar", &other)),
        }
    }

    fn matrix(&self, expr: &Expr, depth: usize) -> Built<MatrixNode> {
        match self.any(expr, depth)? {
            (Any::Matrix(node), once) => Ok((node, once)),
            (other, _) => Err(mismatch("range vector", &other)),
        }
    }

    /// What formulas of lengths may ask for.
    fn times(&self) -> QueryTimes {
        let step_ms = if self.instant { 0 } else { self.steps.step_ms() };
        QueryTimes { step_ms, range_ms: self.steps.end().ms_since(self.steps.start()) }
    }

    fn positive_ms(&self, length: &Length) -> Result<i64, QueryError> {
        length.positive_ms(self.times()).map_err(|e| QueryError::BadQuery(e.to_string()))
    }

    pub(super) fn when(&self, offset: &Length, at: Option<AtModifier>) -> Result<When, QueryError> {
        let offset_ms = offset.offset_ms(self.times()).map_err(|e| QueryError::BadQuery(e.to_string()))?;
        let at_ms = at.map(|at| match at {
            AtModifier::Time(time) => time.as_ms(),
            AtModifier::Start => self.steps.start().as_ms(),
            AtModifier::End => self.steps.end().as_ms(),
        });
        Ok(When { offset_ms, at_ms })
    }

    fn select(&self, selector: &VectorSelector, look: Look) -> Result<VectorNode, QueryError> {
        let (when, counts_alone) = (self.when(&selector.offset, selector.at)?, self.counts_alone());
        let (matchers, span) = (selector.matchers.clone(), selector.span);
        Ok(VectorNode::Select(Selector { matchers, when, look, counts_alone, span }))
    }

    fn matrix_selector(&self, matrix: &MatrixSelector) -> Result<MatrixNode, QueryError> {
        Ok(MatrixNode {
            source: MatrixSource::Select(matrix.selector.matchers.clone()),
            range_ms: self.positive_ms(&matrix.range)?,
            when: self.when(&matrix.selector.offset, matrix.selector.at)?,
            extension: matrix.selector.extension,
            counts_alone: self.counts_alone(),
        })
    }

    fn subquery(&self, subquery: &Subquery, depth: usize) -> Result<MatrixNode, QueryError> {
        let asked = self.asked.get().by_buckets();
        let (expr, once) = self.asking(asked, || self.vector(&subquery.expr, depth))?;
        let step_ms = match &subquery.step {
            Some(step) => self.positive_ms(step)?,
            None => 0,
        };
        // A formula that yields less than a millisecond says nothing, as upstream has it.
        let step_ms = if step_ms > 0 { step_ms } else { self.subquery_step_ms.max(1) };
        Ok(MatrixNode {
            source: MatrixSource::Subquery {
                expr: Box::new(once_vector(expr, once)),
                step_ms,
                text: text_of_its_own(&subquery.expr),
                selectors: subquery.expr.selectors().len(),
            },
            range_ms: self.positive_ms(&subquery.range)?,
            when: self.when(&subquery.offset, subquery.at)?,
            extension: None,
            counts_alone: false,
        })
    }

    fn binary(&self, binary: &Binary, depth: usize) -> Built<Any> {
        let op = binary.op;
        let returns_bool = binary.returns_bool;
        let asked = self.asked.get();
        let asked = if op.is_trim() { asked.by_buckets() } else { asked };
        let (lhs, lhs_once) = self.asking(asked, || self.any(&binary.lhs, depth))?;
        let (rhs, rhs_once) = self.asking(asked, || self.any(&binary.rhs, depth))?;
        let span = starts_at(binary.start);
        let all = lhs_once && rhs_once;
        let (lhs_once, rhs_once) = (lhs_once && !all, rhs_once && !all);
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
                let (lhs, rhs) = (once_scalar(lhs, lhs_once), once_scalar(rhs, rhs_once));
                Any::Scalar(ScalarNode::Binary(Box::new(ScalarBinary { op, lhs, rhs })))
            }
            (Any::Vector(vector), Any::Scalar(scalar)) => {
                Any::Vector(VectorNode::WithScalar(Box::new(WithScalar {
                    op,
                    vector: once_vector(vector, lhs_once),
                    scalar: once_scalar(scalar, rhs_once),
                    scalar_is_left: false,
                    returns_bool,
                    span,
                })))
            }
            (Any::Scalar(scalar), Any::Vector(vector)) => {
                Any::Vector(VectorNode::WithScalar(Box::new(WithScalar {
                    op,
                    vector: once_vector(vector, rhs_once),
                    scalar: once_scalar(scalar, lhs_once),
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
                let (lhs, rhs) = (once_vector(lhs, lhs_once), once_vector(rhs, rhs_once));
                Any::Vector(VectorNode::Join(Box::new(Join { op, lhs, rhs, returns_bool, matching, span })))
            }
            (other @ (Any::Text(_) | Any::Matrix(_)), _) | (_, other) => {
                return Err(mismatch("scalar or instant vector", &other));
            }
        };
        Ok((node, all))
    }

    /// Whether an aggregation stays the same is asked of its vector only, as upstream does.
    fn aggregate(&self, aggregate: &Aggregate, depth: usize) -> Built<VectorNode> {
        let (arg, once) = self.vector(&aggregate.expr, depth)?;
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
                Param::Scalar(once_scalar(node, same && !once))
            }
            (None, op) if needs_param(op) => {
                return Err(QueryError::BadQuery("the aggregation lacks its parameter".into()));
            }
            (None, _) => Param::None,
        };
        let (arg_span, param_span) = (starts_at(aggregate.expr_start), starts_at(aggregate.param_start));
        let (op, grouping, span) = (aggregate.op, aggregate.grouping.clone(), aggregate.span);
        let node = AggregateNode { op, arg, param, grouping, param_span, arg_span, span };
        Ok((VectorNode::Aggregate(Box::new(node)), once))
    }

    fn call(&self, call: &Call, depth: usize) -> Built<Any> {
        let row = function(&call.name)
            .ok_or_else(|| QueryError::BadQuery(format!("unknown function with name {:?}", call.name)))?;
        let given = call.args.len();
        if given < row.args_min() || row.args_max().is_some_and(|max| given > max) {
            let (min, name) = (row.args_min(), row.name);
            return Err(QueryError::BadQuery(format!("{name} takes {min} argument(s) or more, got {given}")));
        }
        let asked = self.asked.get().by_function(row.name);
        self.asking(asked, || self.call_of(row, call, depth))
    }

    fn call_of(&self, row: &'static Function, call: &Call, depth: usize) -> Built<Any> {
        let name = row.name;
        let built = match row.kernel {
            Kernel::Map(run) => {
                let (arg, once) = self.vector(self.arg(call, 0)?, depth)?;
                (VectorNode::Map { name, run, arg: Box::new(arg) }, once)
            }
            Kernel::Date(run) => match call.args.first() {
                Some(arg) => {
                    // Not even a pinned argument makes a date safe to hoist; the argument is hoisted by itself.
                    let (arg, once) = self.vector(arg, depth)?;
                    (VectorNode::Map { name, run, arg: Box::new(once_vector(arg, once)) }, false)
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
                let (arg, params, once) = settle(arg, params, true);
                (VectorNode::MapWith { name, run, arg: Box::new(arg), params }, once)
            }
            Kernel::Window(_) => self.window(row, call, depth)?,
            Kernel::Native(run) => {
                let (arg, once) = self.vector(self.arg(call, 0)?, depth)?;
                (VectorNode::OfHistograms { name, run, arg: Box::new(arg) }, once)
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
            return Err(QueryError::BadQuery(format!("{} is no function of a window", row.name)));
        };
        let mut matrix = None;
        let mut params = Vec::new();
        for (i, arg) in call.args.iter().enumerate() {
            match self.any(arg, depth)? {
                (Any::Matrix(node), once) if matrix.is_none() => {
                    matrix = Some((node, once, place_of(call, i)))
                }
                (Any::Scalar(node), once) => params.push((node, once)),
                (other, _) => return Err(mismatch("range vector or scalar", &other)),
            }
        }
        if params.len() + 1 != row.args.len() {
            return Err(QueryError::BadQuery(format!("{} takes {} argument(s)", row.name, row.args.len())));
        }
        let Some((arg, arg_once, arg_span)) = matrix else {
            return Err(QueryError::BadQuery(format!("{} lacks a range vector", row.name)));
        };
        check_extension(row.name, arg.extension)?;
        // The only windowed function that looks at the evaluation time itself.
        let safe = row.name != "predict_linear";
        let all = safe && arg_once && params.iter().all(|(_, once)| *once);
        let params = params.into_iter().map(|(node, once)| once_scalar(node, once && !all)).collect();
        let param_span = place_of(call, 0);
        let name = row.name;
        Ok((
            VectorNode::Window(Arc::new(WindowNode { name, kernel, arg, params, arg_span, param_span })),
            all,
        ))
    }

    fn special(&self, special: Special, call: &Call, depth: usize) -> Built<Any> {
        let scalar = |node, once| Ok((Any::Scalar(node), once));
        let constant = |value| Ok((Any::Scalar(ScalarNode::Number(value)), true));
        let vector = |(node, once)| Ok((Any::Vector(node), once));
        match special {
            Special::Pi => constant(std::f64::consts::PI),
            Special::Time => scalar(ScalarNode::Time, false),
            Special::Start => constant(self.steps.start().as_seconds()),
            Special::End => constant(self.steps.end().as_seconds()),
            Special::Range => {
                constant(crate::promql::functions::seconds(self.steps.end().ms_since(self.steps.start())))
            }
            Special::Step => {
                let step_ms = if self.instant { 0 } else { self.steps.step_ms() };
                constant(crate::promql::functions::seconds(step_ms))
            }
            Special::MaxOf | Special::MinOf => {
                let (a, a_once) = self.scalar(self.arg(call, 0)?, depth)?;
                let (b, b_once) = self.scalar(self.arg(call, 1)?, depth)?;
                let extreme = Extreme { greatest: special == Special::MaxOf, a, b };
                scalar(ScalarNode::Extreme(Box::new(extreme)), a_once && b_once)
            }
            Special::Scalar => {
                let (arg, once) = self.vector(self.arg(call, 0)?, depth)?;
                scalar(ScalarNode::Of(Box::new(arg)), once)
            }
            Special::Vector => {
                let (arg, once) = self.scalar(self.arg(call, 0)?, depth)?;
                vector((VectorNode::From(Box::new(arg)), once))
            }
            Special::Timestamp => vector(self.timestamp(self.arg(call, 0)?, depth)?),
            Special::StartTimestamp => vector(self.start_timestamp(self.arg(call, 0)?, depth)?),
            Special::Info => vector(self.info(call, depth)?),
            Special::Absent => {
                let arg = self.arg(call, 0)?;
                let (node, once) = self.vector(arg, depth)?;
                vector((VectorNode::Absent { arg: Box::new(node), labels: absent_labels(arg) }, once))
            }
            Special::AbsentOverTime => {
                let arg = self.arg(call, 0)?;
                let (node, once) = self.matrix(arg, depth)?;
                check_extension("absent_over_time", node.extension)?;
                vector((VectorNode::AbsentOverTime { arg: Box::new(node), labels: absent_labels(arg) }, once))
            }
            Special::Sort | Special::SortDesc | Special::SortByLabel | Special::SortByLabelDesc => {
                vector(self.sort(special, call, depth)?)
            }
            Special::LabelReplace | Special::LabelJoin => {
                let (arg, once) = self.vector(self.arg(call, 0)?, depth)?;
                let relabel = self.relabel(special, call)?;
                vector((VectorNode::Relabel { arg: Box::new(arg), relabel }, once))
            }
            Special::HistogramQuantile | Special::HistogramQuantiles | Special::HistogramFraction => {
                vector(self.histogram(special, call, depth)?)
            }
        }
    }

    /// Of a selector the samples' own times, of anything else the evaluation time.
    fn timestamp(&self, arg: &Expr, depth: usize) -> Built<VectorNode> {
        if let Expr::Vector(selector) = arg {
            return Ok((self.select(selector, Look::Time)?, selector.at.is_some()));
        }
        let (arg, once) = self.vector(arg, depth)?;
        Ok((VectorNode::StepTimes(Box::new(once_vector(arg, once))), false))
    }

    /// Of a selector the samples' start timestamps, of anything else nothing.
    fn start_timestamp(&self, arg: &Expr, depth: usize) -> Built<VectorNode> {
        if let Expr::Vector(selector) = arg {
            return Ok((self.select(selector, Look::Start)?, selector.at.is_some()));
        }
        let (arg, once) = self.vector(arg, depth)?;
        let nothing: fn(f64, &[f64]) -> Option<f64> = |_, _| None;
        let (name, arg) = ("start_timestamp", Box::new(arg));
        Ok((VectorNode::MapWith { name, run: nothing, arg, params: Vec::new() }, once))
    }

    fn sort(&self, special: Special, call: &Call, depth: usize) -> Built<VectorNode> {
        let (arg, once) = self.vector(self.arg(call, 0)?, depth)?;
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
        Ok((node, once))
    }

    fn text(&self, call: &Call, i: usize) -> Result<String, QueryError> {
        match self.arg(call, i)? {
            Expr::Text(text) => Ok(text.clone()),
            // Labels here are UTF-8: nothing of them could be told by such a text.
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
            let target = shown(target);
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
        let place = match special {
            Special::HistogramQuantile => 1,
            Special::HistogramFraction => 2,
            _ => 0,
        };
        let arg_expr = self.arg(call, place)?;
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
        let (arg, params, once) = settle(arg, params, true);
        let mut params = params.into_iter();
        let mut next = || params.next().ok_or_else(|| QueryError::BadQuery("an argument is missing".into()));
        let what = match special {
            Special::HistogramQuantile => HistogramWhat::Quantile(next()?),
            Special::HistogramFraction => HistogramWhat::Fraction { lower: next()?, upper: next()? },
            _ => HistogramWhat::Quantiles { label: self.text(call, 1)?, qs: params.collect() },
        };
        let (arg_span, param_span) = (place_of(call, place), place_of(call, 0));
        Ok((VectorNode::Histogram(Box::new(HistogramNode { what, arg, arg_span, param_span })), once))
    }
}

fn needs_param(op: AggregateOp) -> bool {
    use AggregateOp::{Bottomk, CountValues, LimitRatio, Limitk, Quantile, Topk};
    matches!(op, Topk | Bottomk | Quantile | CountValues | Limitk | LimitRatio)
}

/// Refuses `anchored` and `smoothed` where samples beyond the window would be taken for some of it.
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

/// What an absent selector would have been called: its `=` matchers; a later matcher of the same label takes it back.
fn absent_labels(arg: &Expr) -> Labels {
    let matchers: &[Matcher] = match arg {
        Expr::Vector(selector) => &selector.matchers,
        Expr::Matrix(matrix) => &matrix.selector.matchers,
        _ => &[],
    };
    let mut builder = LabelsBuilder::default();
    let mut told: Vec<&str> = Vec::new();
    for matcher in matchers.iter().filter(|matcher| matcher.name() != METRIC_NAME) {
        if matcher.op() == MatchOp::Equal && !told.contains(&matcher.name()) {
            builder.set(matcher.name(), matcher.value());
            told.push(matcher.name());
        } else {
            builder.remove(matcher.name());
        }
    }
    builder.build()
}
