//! The structured query of the API (docs/specification.md C5): parameters that become a tree
//! without an intermediate text.

use crate::model::{METRIC_NAME, Matcher};

use super::tree::{
    Aggregate, AggregateOp, Call, DurationExpr, Expr, Grouping, MatrixSelector, Span, VectorSelector,
};

/// The parameters `metric`, `match`, `fn`, `window`, `agg`, `by` or `without`, `q`, `k` and
/// `offset`.
#[derive(Clone, Debug, Default)]
pub struct StructuredQuery {
    /// The metric name.
    pub metric: String,
    /// The items of `match`, parsed by [`super::parse_matcher`]; all must match.
    pub matchers: Vec<Matcher>,
    /// `fn`; `None` selects the instant value.
    pub function: Option<Function>,
    /// `window` in milliseconds: required with `fn`, an error without it. The caller applies the
    /// default.
    pub window_ms: Option<i64>,
    /// `agg`; `None` keeps every series.
    pub aggregate: Option<Aggregation>,
    /// `by` or `without`; `None` makes one group, or for `histogram_quantile` one for each `le`.
    pub grouping: Option<Grouping>,
    /// `q`, from 0 to 1, of `quantile_over_time`, `quantile` and `histogram_quantile`.
    pub q: Option<f64>,
    /// `k`, from 1 to 100, of `topk` and `bottomk`.
    pub k: Option<u32>,
    /// `offset` in milliseconds into the past.
    pub offset_ms: i64,
}

/// The values of `fn`: functions over a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are PromQL's")]
pub enum Function {
    Rate,
    Increase,
    Irate,
    Delta,
    Idelta,
    Deriv,
    AvgOverTime,
    MinOverTime,
    MaxOverTime,
    SumOverTime,
    CountOverTime,
    LastOverTime,
    QuantileOverTime,
}

/// The values of `agg`: aggregations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are PromQL's")]
pub enum Aggregation {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    Stddev,
    Quantile,
    Topk,
    Bottomk,
    /// Sums the buckets by the grouping and `le`, and computes the quantile of each group.
    HistogramQuantile,
}

/// An invalid structured query. The API reports the parameter, see [`StructuredError::parameter`].
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StructuredError {
    /// `metric` is empty.
    #[error("a metric name is required")]
    NoMetric,
    /// `fn` is unknown.
    #[error("unknown fn {0:?}")]
    UnknownFunction(String),
    /// `agg` is unknown.
    #[error("unknown agg {0:?}")]
    UnknownAggregation(String),
    /// `window` without `fn`.
    #[error("window needs fn")]
    WindowWithoutFunction,
    /// `fn` without `window`: the caller did not apply a default.
    #[error("fn needs window")]
    FunctionWithoutWindow,
    /// `window` is shorter than a second.
    #[error("window must be at least 1s, got {0} ms")]
    WindowTooShort(i64),
    /// `by` or `without` without `agg`.
    #[error("by and without need agg")]
    GroupingWithoutAggregation,
    /// `without` contains `le`, which `histogram_quantile` needs.
    #[error("histogram_quantile needs the label le: it cannot be in without")]
    WithoutLe,
    /// `q` is missing or not between 0 and 1.
    #[error("q must be a number from 0 to 1 with quantile_over_time, quantile and histogram_quantile")]
    Q,
    /// `q` without a function or aggregation that uses it.
    #[error("q needs quantile_over_time, quantile or histogram_quantile")]
    UnusedQ,
    /// `k` is missing or not between 1 and 100.
    #[error("k must be a whole number from 1 to 100 with topk and bottomk")]
    K,
    /// `k` without an aggregation that uses it.
    #[error("k needs topk or bottomk")]
    UnusedK,
}

impl StructuredError {
    /// Returns the invalid query parameter.
    pub const fn parameter(&self) -> &'static str {
        match self {
            StructuredError::NoMetric => "metric",
            StructuredError::UnknownFunction(_) => "fn",
            StructuredError::UnknownAggregation(_) => "agg",
            StructuredError::WindowWithoutFunction
            | StructuredError::FunctionWithoutWindow
            | StructuredError::WindowTooShort(_) => "window",
            StructuredError::GroupingWithoutAggregation => "by",
            StructuredError::WithoutLe => "without",
            StructuredError::Q | StructuredError::UnusedQ => "q",
            StructuredError::K | StructuredError::UnusedK => "k",
        }
    }
}

impl Function {
    const ALL: [(&'static str, Function); 13] = [
        ("rate", Function::Rate),
        ("increase", Function::Increase),
        ("irate", Function::Irate),
        ("delta", Function::Delta),
        ("idelta", Function::Idelta),
        ("deriv", Function::Deriv),
        ("avg_over_time", Function::AvgOverTime),
        ("min_over_time", Function::MinOverTime),
        ("max_over_time", Function::MaxOverTime),
        ("sum_over_time", Function::SumOverTime),
        ("count_over_time", Function::CountOverTime),
        ("last_over_time", Function::LastOverTime),
        ("quantile_over_time", Function::QuantileOverTime),
    ];

    /// Parses `fn`; `none` and the empty text return `None`.
    ///
    /// # Errors
    /// [`StructuredError::UnknownFunction`].
    pub fn parse(text: &str) -> Result<Option<Function>, StructuredError> {
        if text.is_empty() || text == "none" {
            return Ok(None);
        }
        let known = Function::ALL.iter().find(|(name, _)| *name == text);
        known
            .map(|(_, function)| Some(*function))
            .ok_or_else(|| StructuredError::UnknownFunction(text.to_owned()))
    }

    /// Returns the name in PromQL.
    pub fn as_str(self) -> &'static str {
        Function::ALL.iter().find(|(_, function)| *function == self).map_or("", |(name, _)| name)
    }
}

impl Aggregation {
    const ALL: [(&'static str, Aggregation); 10] = [
        ("sum", Aggregation::Sum),
        ("avg", Aggregation::Avg),
        ("min", Aggregation::Min),
        ("max", Aggregation::Max),
        ("count", Aggregation::Count),
        ("stddev", Aggregation::Stddev),
        ("quantile", Aggregation::Quantile),
        ("topk", Aggregation::Topk),
        ("bottomk", Aggregation::Bottomk),
        ("histogram_quantile", Aggregation::HistogramQuantile),
    ];

    /// Parses `agg`; `none` and the empty text return `None`.
    ///
    /// # Errors
    /// [`StructuredError::UnknownAggregation`].
    pub fn parse(text: &str) -> Result<Option<Aggregation>, StructuredError> {
        if text.is_empty() || text == "none" {
            return Ok(None);
        }
        let known = Aggregation::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, agg)| Some(*agg)).ok_or_else(|| StructuredError::UnknownAggregation(text.to_owned()))
    }

    /// Returns the name in PromQL.
    pub fn as_str(self) -> &'static str {
        Aggregation::ALL.iter().find(|(_, agg)| *agg == self).map_or("", |(name, _)| name)
    }
}

impl StructuredQuery {
    /// Builds the tree of this query, whose printed form is the equivalent PromQL.
    ///
    /// # Errors
    /// [`StructuredError`] if a parameter is missing, invalid or unused.
    pub fn build(&self) -> Result<Expr, StructuredError> {
        self.check_parameters()?;
        let mut matchers = vec![Matcher::equal(METRIC_NAME, &self.metric)];
        matchers.extend(self.matchers.iter().cloned());
        let offset = DurationExpr::Fixed(self.offset_ms);
        let selector = VectorSelector { matchers, offset, at: None, extension: None, span: Span::default() };
        let inner = self.windowed(selector)?;
        let Some(aggregate) = self.aggregate else { return Ok(inner) };
        let grouping = self.grouping.clone().unwrap_or_else(|| Grouping::By(Vec::new()));
        let (op, param, grouping) = match aggregate {
            Aggregation::Sum => (AggregateOp::Sum, None, grouping),
            Aggregation::Avg => (AggregateOp::Avg, None, grouping),
            Aggregation::Min => (AggregateOp::Min, None, grouping),
            Aggregation::Max => (AggregateOp::Max, None, grouping),
            Aggregation::Count => (AggregateOp::Count, None, grouping),
            Aggregation::Stddev => (AggregateOp::Stddev, None, grouping),
            Aggregation::Quantile => (AggregateOp::Quantile, self.q, grouping),
            Aggregation::Topk => (AggregateOp::Topk, self.k.map(f64::from), grouping),
            Aggregation::Bottomk => (AggregateOp::Bottomk, self.k.map(f64::from), grouping),
            Aggregation::HistogramQuantile => (AggregateOp::Sum, None, with_le(grouping)?),
        };
        let param = param.map(Expr::Number);
        let grouped = Expr::Aggregate(Box::new(Aggregate {
            op,
            expr: inner,
            param,
            grouping,
            span: Span::default(),
            expr_start: 0,
            param_start: 0,
        }));
        match (aggregate, self.q) {
            (Aggregation::HistogramQuantile, Some(q)) => {
                Ok(call("histogram_quantile", vec![Expr::Number(q), grouped]))
            }
            _ => Ok(grouped),
        }
    }

    fn windowed(&self, selector: VectorSelector) -> Result<Expr, StructuredError> {
        let (function, range_ms) = match (self.function, self.window_ms) {
            (None, None) => return Ok(Expr::Vector(selector)),
            (None, Some(_)) => return Err(StructuredError::WindowWithoutFunction),
            (Some(_), None) => return Err(StructuredError::FunctionWithoutWindow),
            (Some(_), Some(ms)) if ms < 1000 => return Err(StructuredError::WindowTooShort(ms)),
            (Some(function), Some(ms)) => (function, ms),
        };
        let window =
            Expr::Matrix(Box::new(MatrixSelector { selector, range: DurationExpr::Fixed(range_ms) }));
        let args = match (function, self.q) {
            (Function::QuantileOverTime, Some(q)) => vec![Expr::Number(q), window],
            _ => vec![window],
        };
        Ok(call(function.as_str(), args))
    }

    fn check_parameters(&self) -> Result<(), StructuredError> {
        if self.metric.is_empty() {
            return Err(StructuredError::NoMetric);
        }
        if self.grouping.is_some() && self.aggregate.is_none() {
            return Err(StructuredError::GroupingWithoutAggregation);
        }
        let reads_q = self.function == Some(Function::QuantileOverTime)
            || matches!(self.aggregate, Some(Aggregation::Quantile | Aggregation::HistogramQuantile));
        match self.q {
            Some(_) if !reads_q => return Err(StructuredError::UnusedQ),
            Some(q) if !(0.0..=1.0).contains(&q) => return Err(StructuredError::Q),
            None if reads_q => return Err(StructuredError::Q),
            _ => {}
        }
        match (self.k, matches!(self.aggregate, Some(Aggregation::Topk | Aggregation::Bottomk))) {
            (Some(_), false) => Err(StructuredError::UnusedK),
            (Some(1..=100), true) | (None, false) => Ok(()),
            (_, true) => Err(StructuredError::K),
        }
    }
}

/// Adds `le` to the labels that the grouping keeps.
fn with_le(grouping: Grouping) -> Result<Grouping, StructuredError> {
    const LE: &str = "le";
    match grouping {
        Grouping::By(mut labels) => {
            if !labels.iter().any(|label| label == LE) {
                labels.insert(0, LE.to_owned());
            }
            Ok(Grouping::By(labels))
        }
        Grouping::Without(labels) if labels.iter().any(|label| label == LE) => {
            Err(StructuredError::WithoutLe)
        }
        without @ Grouping::Without(_) => Ok(without),
    }
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
    Expr::Call(Call { name: name.to_owned(), args, span: Span::default(), arg_starts: Vec::new() })
}
