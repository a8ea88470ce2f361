//! The resolved query: every function a row of the table, every time in milliseconds, every regular expression
//! compiled, every node typed, and what does not change from step to step wrapped so that it is evaluated once.

mod build;
mod info;
mod node;

pub(super) use build::build;
pub(super) use node::Node;

use std::sync::Arc;

use crate::model::{Labels, Matcher, Pattern};

use super::FloatHistogram;
use super::functions::WindowKernel;
use super::syntax::tree::{AggregateOp, BinaryOp, Extension, Grouping, Matching, Span};

/// A whole query.
#[derive(Debug)]
pub(super) enum Plan {
    Scalar(ScalarNode),
    Text(String),
    Vector(VectorNode),
    Matrix(MatrixNode),
}

/// Yields one number for each step.
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
    Extreme(Box<Extreme>),
    /// Evaluated at the first step, the same for all.
    Once(Box<ScalarNode>),
}

#[derive(Debug)]
pub(super) struct ScalarBinary {
    pub(super) op: BinaryOp,
    pub(super) lhs: ScalarNode,
    pub(super) rhs: ScalarNode,
}

#[derive(Debug)]
pub(super) struct Extreme {
    pub(super) greatest: bool,
    pub(super) a: ScalarNode,
    pub(super) b: ScalarNode,
}

/// Yields series with at most one value for each step.
#[derive(Debug)]
pub(super) enum VectorNode {
    Select(Selector),
    /// `info`: labels of info series are added.
    Info(Box<InfoNode>),
    /// `vector(s)`.
    From(Box<ScalarNode>),
    /// The evaluation time of each value: `timestamp` of anything but a selector.
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
    /// Shared with the hands that compute it.
    Window(Arc<WindowNode>),
    /// One number out of each native histogram.
    OfHistograms {
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
    /// Evaluated at the first step, the same for all.
    Once(Box<VectorNode>),
}

/// Yields series with a window of samples for each step.
#[derive(Debug)]
pub(super) struct MatrixNode {
    pub(super) source: MatrixSource,
    pub(super) range_ms: i64,
    pub(super) when: When,
    /// Never of a subquery.
    pub(super) extension: Option<Extension>,
    /// Only counts and sums of native histograms are asked for.
    pub(super) counts_alone: bool,
}

impl MatrixNode {
    /// The open and the closed end of the window at a step.
    #[inline]
    pub(super) fn edges(&self, step_ms: i64) -> (i64, i64) {
        let end_ms = self.when.look(step_ms);
        (end_ms.saturating_sub(self.range_ms), end_ms)
    }
}

#[derive(Debug)]
pub(super) enum MatrixSource {
    Select(Vec<Matcher>),
    Subquery {
        expr: Box<VectorNode>,
        step_ms: i64,
        /// The text of what is evaluated, where that alone tells what it yields at a time; none where it asks for the
        /// query's own range or step.
        text: Option<Box<str>>,
        /// How many selectors are in it.
        selectors: usize,
    },
}

/// Which series, when relative to the step, and what of them.
#[derive(Debug)]
pub(super) struct Selector {
    pub(super) matchers: Vec<Matcher>,
    pub(super) when: When,
    pub(super) look: Look,
    /// Only counts and sums of native histograms are asked for.
    pub(super) counts_alone: bool,
    pub(super) span: Span,
}

/// What is looked at for each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The newest sample within the lookback: its value.
    Value,
    /// Its time in seconds.
    Time,
    /// Its start timestamp in seconds, zero where it is not known.
    Start,
    /// The value on the line between the samples around the step.
    Smoothed,
}

/// A vector whose series are told more about by info series.
#[derive(Debug)]
pub(super) struct InfoNode {
    pub(super) arg: VectorNode,
    /// Tests on the names of info series; all must pass.
    pub(super) names: Vec<Matcher>,
    /// Tests on their other labels; where there are any, labels without one are not added.
    pub(super) data: Vec<Matcher>,
    /// When info series are looked at.
    pub(super) when: When,
}

/// From the evaluation time to the time looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    pub(super) offset_ms: i64,
    /// The pinned evaluation time, milliseconds.
    pub(super) at_ms: Option<i64>,
}

impl When {
    /// The time looked at when evaluating at `step_ms`; saturates.
    #[inline]
    pub(super) fn look(&self, step_ms: i64) -> i64 {
        self.at_ms.unwrap_or(step_ms).saturating_sub(self.offset_ms)
    }
}

#[derive(Debug)]
pub(super) struct WindowNode {
    /// The function's.
    pub(super) name: &'static str,
    pub(super) kernel: WindowKernel,
    pub(super) arg: MatrixNode,
    pub(super) params: Vec<ScalarNode>,
    /// Of the windowed argument.
    pub(super) arg_span: Span,
    /// Of the first argument, which a remark about parameters points at.
    pub(super) param_span: Span,
}

/// A vector with a scalar on one side.
#[derive(Debug)]
pub(super) struct WithScalar {
    pub(super) op: BinaryOp,
    pub(super) vector: VectorNode,
    pub(super) scalar: ScalarNode,
    pub(super) scalar_is_left: bool,
    pub(super) returns_bool: bool,
    /// Of the whole operation.
    pub(super) span: Span,
}

/// Two vectors: arithmetic, comparison or set operator.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) op: BinaryOp,
    pub(super) lhs: VectorNode,
    pub(super) rhs: VectorNode,
    pub(super) returns_bool: bool,
    pub(super) matching: Matching,
    /// Of the whole operation.
    pub(super) span: Span,
}

#[derive(Debug)]
pub(super) struct AggregateNode {
    pub(super) op: AggregateOp,
    pub(super) arg: VectorNode,
    pub(super) param: Param,
    pub(super) grouping: Grouping,
    pub(super) param_span: Span,
    /// Of what is aggregated.
    pub(super) arg_span: Span,
    /// Of the whole.
    pub(super) span: Span,
}

#[derive(Debug)]
pub(super) enum Param {
    None,
    Scalar(ScalarNode),
    Text(String),
}

/// What `label_replace` and `label_join` do to a label set.
#[derive(Debug)]
pub(super) enum Relabel {
    Replace { target: String, replacement: String, source: String, pattern: Pattern },
    Join { target: String, separator: String, sources: Vec<String> },
}

#[derive(Debug)]
pub(super) struct HistogramNode {
    pub(super) what: HistogramWhat,
    pub(super) arg: VectorNode,
    pub(super) arg_span: Span,
    pub(super) param_span: Span,
}

#[derive(Debug)]
pub(super) enum HistogramWhat {
    Quantile(ScalarNode),
    /// Several quantiles, each told in a label.
    Quantiles {
        label: String,
        qs: Vec<ScalarNode>,
    },
    Fraction {
        lower: ScalarNode,
        upper: ScalarNode,
    },
}

/// Whether operators of this kind compare.
pub(super) const fn is_comparison(op: BinaryOp) -> bool {
    use BinaryOp::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
    matches!(op, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual)
}

/// Whether operators of this kind look at presence only.
pub(super) const fn is_set(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Unless)
}
