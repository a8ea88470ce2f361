//! Plans of function calls.

use std::sync::Arc;

use crate::model::{Labels, LabelsBuilder, METRIC_NAME, MatchOp, Matcher, Pattern, PatternError};
use crate::promql::error::QueryError;
use crate::promql::functions::{Function, Kernel, Special, function};
use crate::promql::numbers::seconds;
use crate::promql::syntax::tree::{Call, Expr, Extension, Span};

use super::build::{Any, Builder, Built, hoist_scalar, hoist_vector, lossy_text, mismatch, span_at};
use super::{
    HistogramFunction, HistogramNode, MinMax, Relabel, ScalarNode, SelectorOutput, VectorNode, WindowNode,
};

impl Builder<'_> {
    pub(super) fn call(&self, call: &Call, depth: usize) -> Built<Any> {
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
                let (arg, params, invariant) = hoist_arguments(arg, params);
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
        let (arg, params, invariant) = hoist_arguments(arg, params);
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

/// Wraps the step-invariant arguments of a call unless the whole call is step-invariant.
fn hoist_arguments(
    vector: (VectorNode, bool),
    scalars: Vec<(ScalarNode, bool)>,
) -> (VectorNode, Vec<ScalarNode>, bool) {
    let all = vector.1 && scalars.iter().all(|(_, invariant)| *invariant);
    let scalars =
        scalars.into_iter().map(|(node, invariant)| hoist_scalar(node, invariant && !all)).collect();
    (hoist_vector(vector.0, vector.1 && !all), scalars, all)
}

/// Returns the start of argument `i`. Annotations about the samples of a subquery refer to the
/// start of the text, because Prometheus evaluates a subquery to samples without a position.
fn argument_span(call: &Call, i: usize) -> Span {
    match (call.args.get(i), call.arg_starts.get(i)) {
        (Some(Expr::Subquery(_)), _) | (_, None) => Span::default(),
        (_, Some(start)) => span_at(*start),
    }
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
