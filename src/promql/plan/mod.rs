//! The plan: a resolved query. Functions are rows of the table, times are in milliseconds, regular
//! expressions are compiled, nodes are typed, and step-invariant subexpressions are wrapped so that
//! they are evaluated once.

mod build;
mod calls;
mod info;
mod node;

pub(super) use build::build;
pub(super) use node::Node;

use std::sync::Arc;

use crate::model::{Labels, Matcher, Pattern};

use super::functions::WindowKernel;
use super::histogram::FloatHistogram;
use super::syntax::tree::{AggregateOp, BinaryOp, Extension, Grouping, Matching, Span};

/// The plan of a query, by the type of its result.
#[derive(Debug)]
pub(super) enum Plan {
    Scalar(ScalarNode),
    Text(String),
    Vector(VectorNode),
    Matrix(MatrixNode),
}

/// A node that yields one number for each step.
#[derive(Debug)]
pub(super) enum ScalarNode {
    Number(f64),
    /// The evaluation time in seconds.
    Time,
    /// `scalar(v)`.
    Of(Box<VectorNode>),
    Negate(Box<ScalarNode>),
    Binary(Box<ScalarBinary>),
    /// `max_of` and `min_of`.
    MinMax(Box<MinMax>),
    /// A step-invariant expression: evaluated at the first step only.
    StepInvariant(Box<ScalarNode>),
}

/// A binary operation on two scalars.
#[derive(Debug)]
pub(super) struct ScalarBinary {
    pub(super) op: BinaryOp,
    pub(super) lhs: ScalarNode,
    pub(super) rhs: ScalarNode,
}

/// `max_of(a, b)` or `min_of(a, b)`.
#[derive(Debug)]
pub(super) struct MinMax {
    /// Whether this is `max_of`.
    pub(super) greatest: bool,
    pub(super) a: ScalarNode,
    pub(super) b: ScalarNode,
}

/// A node that yields series with at most one value for each step.
#[derive(Debug)]
pub(super) enum VectorNode {
    Select(Selector),
    /// `info(v)`, which adds labels of info series.
    Info(Box<InfoNode>),
    /// `vector(s)`.
    From(Box<ScalarNode>),
    /// `timestamp(v)` of an expression other than a selector: the evaluation time of each value.
    StepTimes(Box<VectorNode>),
    Map {
        name: &'static str,
        run: fn(f64) -> f64,
        arg: Box<VectorNode>,
    },
    MapWith {
        name: &'static str,
        run: fn(f64, &[f64]) -> Option<f64>,
        arg: Box<VectorNode>,
        params: Vec<ScalarNode>,
    },
    /// A function of windows; shared with the worker threads that compute it.
    Window(Arc<WindowNode>),
    /// A function that maps each native histogram to a number.
    MapHistograms {
        name: &'static str,
        run: fn(&FloatHistogram) -> f64,
        arg: Box<VectorNode>,
    },
    Absent {
        arg: Box<VectorNode>,
        labels: Labels,
    },
    AbsentOverTime {
        arg: Box<MatrixNode>,
        labels: Labels,
    },
    Negate(Box<VectorNode>),
    WithScalar(Box<WithScalar>),
    Join(Box<Join>),
    Aggregate(Box<AggregateNode>),
    Relabel {
        arg: Box<VectorNode>,
        relabel: Relabel,
    },
    Sort {
        arg: Box<VectorNode>,
        descending: bool,
        span: Span,
    },
    SortByLabel {
        arg: Box<VectorNode>,
        names: Vec<String>,
        descending: bool,
        span: Span,
    },
    Histogram(Box<HistogramNode>),
    /// A step-invariant expression: evaluated at the first step only.
    StepInvariant(Box<VectorNode>),
}

/// A node that yields series with a window of samples for each step.
#[derive(Debug)]
pub(super) struct MatrixNode {
    pub(super) source: MatrixSource,
    /// The length of the window in milliseconds.
    pub(super) range_ms: i64,
    pub(super) when: TimeShift,
    /// `anchored` or `smoothed`; always `None` for a subquery.
    pub(super) extension: Option<Extension>,
    /// Whether only counts and sums of native histograms are needed, not their buckets.
    pub(super) counts_only: bool,
}

impl MatrixNode {
    /// Returns the exclusive start and the inclusive end of the window at a step, in milliseconds.
    #[inline]
    pub(super) fn edges(&self, step_ms: i64) -> (i64, i64) {
        let end_ms = self.when.look(step_ms);
        (end_ms.saturating_sub(self.range_ms), end_ms)
    }
}

/// The source of the samples in a window.
#[derive(Debug)]
pub(super) enum MatrixSource {
    Select(Vec<Matcher>),
    Subquery {
        expr: Box<VectorNode>,
        step_ms: i64,
        /// The text of `expr`, if it determines the result at a time. `None` if the expression uses
        /// the start, end, range or step of the query.
        text: Option<Box<str>>,
        /// The number of selectors in `expr`.
        selectors: usize,
    },
}

/// An instant selector: the series, the time relative to the step, and the output.
#[derive(Debug)]
pub(super) struct Selector {
    pub(super) matchers: Vec<Matcher>,
    pub(super) when: TimeShift,
    pub(super) look: SelectorOutput,
    /// Whether only counts and sums of native histograms are needed, not their buckets.
    pub(super) counts_only: bool,
    pub(super) span: Span,
}

/// The output of an instant selector at each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SelectorOutput {
    /// The value of the newest sample within the lookback.
    Value,
    /// The time of that sample in seconds.
    Time,
    /// The start timestamp of that sample in seconds, 0 if unknown.
    Start,
    /// The value interpolated linearly between the samples around the step.
    Smoothed,
}

/// `info(v)`: a vector whose series get labels of info series.
#[derive(Debug)]
pub(super) struct InfoNode {
    pub(super) arg: VectorNode,
    /// Matchers of the names of info series; all must match.
    pub(super) names: Vec<Matcher>,
    /// Matchers of the other labels of info series. If there are any, only labels with a matcher
    /// are added.
    pub(super) data: Vec<Matcher>,
    /// The time at which info series are selected.
    pub(super) when: TimeShift,
}

/// `offset` and `@`: the map from the evaluation time to the time at which samples are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeShift {
    /// Milliseconds into the past; negative values are in the future.
    pub(super) offset_ms: i64,
    /// The fixed evaluation time of `@` in milliseconds.
    pub(super) at_ms: Option<i64>,
}

impl TimeShift {
    /// Returns the time at which samples are read for the step at `step_ms`, in milliseconds;
    /// saturates.
    #[inline]
    pub(super) fn look(&self, step_ms: i64) -> i64 {
        self.at_ms.unwrap_or(step_ms).saturating_sub(self.offset_ms)
    }
}

/// A function of windows.
#[derive(Debug)]
pub(super) struct WindowNode {
    /// The name of the function.
    pub(super) name: &'static str,
    pub(super) kernel: WindowKernel,
    pub(super) arg: MatrixNode,
    pub(super) params: Vec<ScalarNode>,
    /// The position of the range vector argument.
    pub(super) arg_span: Span,
    /// The position of the first argument, to which annotations about parameters refer.
    pub(super) param_span: Span,
}

/// A binary operation on a vector and a scalar.
#[derive(Debug)]
pub(super) struct WithScalar {
    pub(super) op: BinaryOp,
    pub(super) vector: VectorNode,
    pub(super) scalar: ScalarNode,
    pub(super) scalar_is_left: bool,
    pub(super) returns_bool: bool,
    /// The start of the operation in the text.
    pub(super) span: Span,
}

/// A binary operation on two vectors: arithmetic, comparison or set operation.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) op: BinaryOp,
    pub(super) lhs: VectorNode,
    pub(super) rhs: VectorNode,
    pub(super) returns_bool: bool,
    pub(super) matching: Matching,
    /// The start of the operation in the text.
    pub(super) span: Span,
}

/// An aggregation.
#[derive(Debug)]
pub(super) struct AggregateNode {
    pub(super) op: AggregateOp,
    pub(super) arg: VectorNode,
    pub(super) param: Param,
    pub(super) grouping: Grouping,
    pub(super) param_span: Span,
    /// The position of the aggregated expression.
    pub(super) arg_span: Span,
    /// The position of the whole aggregation.
    pub(super) span: Span,
}

/// The parameter of an aggregation.
#[derive(Debug)]
pub(super) enum Param {
    None,
    Scalar(ScalarNode),
    Text(String),
}

/// The change of a label set by `label_replace` or `label_join`.
#[derive(Debug)]
pub(super) enum Relabel {
    Replace { target: String, replacement: String, source: String, pattern: Pattern },
    Join { target: String, separator: String, sources: Vec<String> },
}

/// A function of classic and native histograms.
#[derive(Debug)]
pub(super) struct HistogramNode {
    pub(super) function: HistogramFunction,
    pub(super) arg: VectorNode,
    pub(super) arg_span: Span,
    pub(super) param_span: Span,
}

/// The histogram functions with their parameters.
#[derive(Debug)]
pub(super) enum HistogramFunction {
    Quantile(ScalarNode),
    /// Several quantiles, each of them named by the value of `label`.
    Quantiles {
        label: String,
        qs: Vec<ScalarNode>,
    },
    Fraction {
        lower: ScalarNode,
        upper: ScalarNode,
    },
}

/// Returns whether `op` is a comparison.
pub(super) const fn is_comparison(op: BinaryOp) -> bool {
    use BinaryOp::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
    matches!(op, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual)
}

/// Returns whether `op` is a set operator, which uses only the presence of values.
pub(super) const fn is_set(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Unless)
}
