//! The expression tree, which is checked, printed and planned. It has no parentheses; the printer
//! adds them where precedence requires them.

use crate::model::{Matcher, Timestamp};

pub use super::duration_expr::{DurationExpr, DurationExprError, DurationOp, Formula, QueryTimes, Term};

/// A range of the query text as byte offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte, inclusive.
    pub start: u32,
    /// The end, exclusive.
    pub end: u32,
}

/// An expression.
#[derive(Clone, Debug)]
pub enum Expr {
    /// `1.5`, `5m` (a duration is its seconds), `Inf`.
    Number(f64),
    /// `"text"`.
    Text(String),
    /// `"a\xc5"`: a string that is not UTF-8. It can be a result, but not a label name or value.
    Bytes(Vec<u8>),
    /// `up{job="api"} offset 5m @ end()`.
    Vector(VectorSelector),
    /// `up[5m]`.
    Matrix(Box<MatrixSelector>),
    /// `rate(x[1m])[1h:5m]`.
    Subquery(Box<Subquery>),
    /// `-x`; a unary plus is dropped.
    Negate(Box<Expr>),
    /// `a + on(x) group_left b`.
    Binary(Box<Binary>),
    /// `rate(...)`.
    Call(Call),
    /// `sum by (job) (...)`.
    Aggregate(Box<Aggregate>),
}

impl Expr {
    /// Returns the expression itself and all its subexpressions, in no particular order.
    pub fn nodes(&self) -> impl Iterator<Item = &Expr> {
        let mut pending = vec![self];
        std::iter::from_fn(move || {
            let expr = pending.pop()?;
            match expr {
                Expr::Number(_) | Expr::Text(_) | Expr::Bytes(_) | Expr::Vector(_) | Expr::Matrix(_) => {}
                Expr::Subquery(subquery) => pending.push(&subquery.expr),
                Expr::Negate(inner) => pending.push(inner),
                Expr::Binary(binary) => pending.extend([&binary.lhs, &binary.rhs]),
                Expr::Call(call) => pending.extend(&call.args),
                Expr::Aggregate(aggregate) => {
                    pending.push(&aggregate.expr);
                    pending.extend(&aggregate.param);
                }
            }
            Some(expr)
        })
    }

    /// Returns the memory of the expression in bytes, with its texts and patterns, and without the
    /// overhead of the allocator.
    pub fn memory_usage(&self) -> usize {
        self.nodes().map(|node| size_of::<Expr>() + node.own_bytes()).sum()
    }

    /// Returns the memory of the parts that are no subexpressions, in bytes.
    fn own_bytes(&self) -> usize {
        let texts =
            |texts: &[String]| texts.iter().map(|text| size_of::<String>() + text.len()).sum::<usize>();
        match self {
            Expr::Number(_) | Expr::Negate(_) => 0,
            Expr::Text(text) => text.len(),
            Expr::Bytes(bytes) => bytes.len(),
            Expr::Vector(selector) => selector.memory_usage(),
            Expr::Matrix(matrix) => {
                size_of::<MatrixSelector>() + matrix.selector.memory_usage() + matrix.range.memory_usage()
            }
            Expr::Subquery(subquery) => {
                let durations = [Some(&subquery.range), subquery.step.as_ref(), Some(&subquery.offset)];
                let durations: usize = durations.into_iter().flatten().map(DurationExpr::memory_usage).sum();
                size_of::<Subquery>() + durations
            }
            Expr::Binary(binary) => {
                let matching = binary.matching.as_ref();
                let labels = matching.map_or(0, |own| texts(&own.labels) + texts(&own.include));
                size_of::<Binary>() + labels
            }
            Expr::Call(call) => call.name.len() + size_of_val(&call.arg_starts[..]),
            Expr::Aggregate(aggregate) => {
                let (Grouping::By(labels) | Grouping::Without(labels)) = &aggregate.grouping;
                size_of::<Aggregate>() + texts(labels)
            }
        }
    }

    /// Calls `visit` for every subexpression and then for the expression itself.
    pub fn visit_mut(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        match self {
            Expr::Number(_) | Expr::Text(_) | Expr::Bytes(_) | Expr::Vector(_) | Expr::Matrix(_) => {}
            Expr::Subquery(subquery) => subquery.expr.visit_mut(visit),
            Expr::Negate(inner) => inner.visit_mut(visit),
            Expr::Binary(binary) => {
                binary.lhs.visit_mut(visit);
                binary.rhs.visit_mut(visit);
            }
            Expr::Call(call) => call.args.iter_mut().for_each(|arg| arg.visit_mut(visit)),
            Expr::Aggregate(aggregate) => {
                aggregate.expr.visit_mut(visit);
                aggregate.param.iter_mut().for_each(|param| param.visit_mut(visit));
            }
        }
        visit(self);
    }

    /// Returns the selector of the series that all `matchers` match.
    pub fn selector(matchers: Vec<Matcher>) -> Expr {
        let (offset, span) = (DurationExpr::Fixed(0), Span::default());
        Expr::Vector(VectorSelector { matchers, offset, at: None, extension: None, span })
    }

    /// Returns the matchers of every selector in the expression, in no particular order.
    pub fn selectors(&self) -> Vec<&[Matcher]> {
        let found = self.nodes().filter_map(|expr| match expr {
            Expr::Vector(selector) => Some(&selector.matchers[..]),
            Expr::Matrix(matrix) => Some(&matrix.selector.matchers[..]),
            _ => None,
        });
        found.collect()
    }
}

/// The type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// One number for each step.
    Scalar,
    /// A string.
    Text,
    /// Series with one value for each step.
    Vector,
    /// Series with a window of samples.
    Matrix,
}

impl ValueType {
    /// Returns the name in the error messages of Prometheus.
    pub const fn as_str(self) -> &'static str {
        match self {
            ValueType::Scalar => "scalar",
            ValueType::Text => "string",
            ValueType::Vector => "instant vector",
            ValueType::Matrix => "range vector",
        }
    }
}

/// An instant vector selector.
#[derive(Clone, Debug)]
pub struct VectorSelector {
    /// All matchers, including that of `__name__`.
    pub matchers: Vec<Matcher>,
    /// The offset into the past; a negative one is into the future.
    pub offset: DurationExpr,
    /// The modifier `@`.
    pub at: Option<AtModifier>,
    /// `anchored` or `smoothed`.
    pub extension: Option<Extension>,
    /// Position, if known.
    pub span: Span,
}

impl VectorSelector {
    /// Returns the memory of the parts on the heap, in bytes.
    fn memory_usage(&self) -> usize {
        let of_matcher = |matcher: &Matcher| size_of::<Matcher>() + matcher.memory_usage();
        self.matchers.iter().map(of_matcher).sum::<usize>() + self.offset.memory_usage()
    }
}

/// A modifier that uses samples around a window or an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// The window begins with the last sample at or before its start, without extrapolation.
    Anchored,
    /// Values at the edges are interpolated linearly between the samples around them.
    Smoothed,
}

impl Extension {
    /// Returns the PromQL text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Extension::Anchored => "anchored",
            Extension::Smoothed => "smoothed",
        }
    }

    /// Returns the modifier named `word`, ignoring case.
    pub fn from_word(word: &str) -> Option<Extension> {
        [Extension::Anchored, Extension::Smoothed]
            .into_iter()
            .find(|extension| extension.as_str().eq_ignore_ascii_case(word))
    }
}

/// The modifier `@`, which fixes the evaluation time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtModifier {
    /// `@ 1609746000`.
    Time(Timestamp),
    /// `@ start()`: the start of the query.
    Start,
    /// `@ end()`: the end of the query.
    End,
}

/// A range vector selector.
#[derive(Clone, Debug)]
pub struct MatrixSelector {
    /// The series, with offset and `@`.
    pub selector: VectorSelector,
    /// The window, with an exclusive start.
    pub range: DurationExpr,
}

/// An instant expression evaluated over a window.
#[derive(Clone, Debug)]
pub struct Subquery {
    /// The evaluated expression.
    pub expr: Expr,
    /// The window, with an exclusive start.
    pub range: DurationExpr,
    /// The distance between two inner steps; `None` means the default of the server.
    pub step: Option<DurationExpr>,
    /// The offset into the past.
    pub offset: DurationExpr,
    /// The modifier `@`.
    pub at: Option<AtModifier>,
    /// Position, if known.
    pub span: Span,
}

/// A binary operation.
#[derive(Clone, Debug)]
pub struct Binary {
    /// The operator.
    pub op: BinaryOp,
    /// The left operand.
    pub lhs: Expr,
    /// The right operand.
    pub rhs: Expr,
    /// Whether the modifier `bool` is present: the comparison returns 0 or 1.
    pub returns_bool: bool,
    /// The vector matching; `None` means one-to-one on all labels.
    pub matching: Option<Matching>,
    /// Position of the operator, if known.
    pub span: Span,
    /// The start of the left operand, which is the start of the operation.
    pub start: u32,
}

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the operators'")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    TrimUpper,
    TrimLower,
    And,
    Or,
    Unless,
}

impl BinaryOp {
    /// Returns the PromQL text.
    pub const fn as_str(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Mod => "%",
            BinaryOp::Pow => "^",
            BinaryOp::Atan2 => "atan2",
            BinaryOp::Equal => "==",
            BinaryOp::NotEqual => "!=",
            BinaryOp::Less => "<",
            BinaryOp::LessEqual => "<=",
            BinaryOp::Greater => ">",
            BinaryOp::GreaterEqual => ">=",
            BinaryOp::TrimUpper => "</",
            BinaryOp::TrimLower => ">/",
            BinaryOp::And => "and",
            BinaryOp::Or => "or",
            BinaryOp::Unless => "unless",
        }
    }

    /// Returns whether this is `==`, `!=`, `<`, `<=`, `>` or `>=`. Comparisons filter series, or
    /// return 0 and 1 with `bool`.
    pub const fn is_comparison(self) -> bool {
        matches!(
            self,
            BinaryOp::Equal
                | BinaryOp::NotEqual
                | BinaryOp::Less
                | BinaryOp::LessEqual
                | BinaryOp::Greater
                | BinaryOp::GreaterEqual
        )
    }

    /// Returns whether this is `</` or `>/`, which keep the observations of a histogram below or
    /// above a bound.
    pub const fn is_trim(self) -> bool {
        matches!(self, BinaryOp::TrimUpper | BinaryOp::TrimLower)
    }

    /// Returns whether this is `and`, `or` or `unless`, which are operators on sets of series.
    pub const fn is_set(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or | BinaryOp::Unless)
    }
}

/// Vector matching.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matching {
    /// Whether the labels are those of `on`, not of `ignoring`.
    pub on: bool,
    /// The labels of `on` or `ignoring`.
    pub labels: Vec<String>,
    /// The cardinality of the match.
    pub cardinality: Cardinality,
    /// The labels of `group_left(...)` or `group_right(...)`.
    pub include: Vec<String>,
    /// The value of `fill` or `fill_left`, which replaces a missing series on the left.
    pub fill_left: Option<f64>,
    /// The value of `fill` or `fill_right`, which replaces a missing series on the right.
    pub fill_right: Option<f64>,
}

/// The number of series of each side that may share the matching labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cardinality {
    /// One series on each side.
    #[default]
    OneToOne,
    /// `group_left`: many series on the left.
    ManyToOne,
    /// `group_right`: many series on the right.
    OneToMany,
    /// Set operators.
    ManyToMany,
}

/// A function call with valid argument count and types.
#[derive(Clone, Debug)]
pub struct Call {
    /// The name of the function.
    pub name: String,
    /// The arguments in the text; the plan adds defaults.
    pub args: Vec<Expr>,
    /// Position, if known.
    pub span: Span,
    /// The start of each argument, with its signs but without its parentheses; empty if unknown.
    pub arg_starts: Vec<u32>,
}

/// An aggregation.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// The operator.
    pub op: AggregateOp,
    /// The aggregated expression.
    pub expr: Expr,
    /// `k`, `q` or the label of `count_values`.
    pub param: Option<Expr>,
    /// The grouping labels.
    pub grouping: Grouping,
    /// Position, if known.
    pub span: Span,
    /// The start of `expr`, with its parentheses and signs.
    pub expr_start: u32,
    /// The start of `param`, without its parentheses.
    pub param_start: u32,
}

/// An aggregation operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the aggregations'")]
pub enum AggregateOp {
    Sum,
    Avg,
    Count,
    Min,
    Max,
    Group,
    Stddev,
    Stdvar,
    Topk,
    Bottomk,
    Quantile,
    CountValues,
    Limitk,
    LimitRatio,
}

impl AggregateOp {
    /// All aggregation operators.
    pub const ALL: [AggregateOp; 14] = [
        AggregateOp::Sum,
        AggregateOp::Avg,
        AggregateOp::Count,
        AggregateOp::Min,
        AggregateOp::Max,
        AggregateOp::Group,
        AggregateOp::Stddev,
        AggregateOp::Stdvar,
        AggregateOp::Topk,
        AggregateOp::Bottomk,
        AggregateOp::Quantile,
        AggregateOp::CountValues,
        AggregateOp::Limitk,
        AggregateOp::LimitRatio,
    ];

    /// Returns the PromQL text.
    pub const fn as_str(self) -> &'static str {
        match self {
            AggregateOp::Sum => "sum",
            AggregateOp::Avg => "avg",
            AggregateOp::Count => "count",
            AggregateOp::Min => "min",
            AggregateOp::Max => "max",
            AggregateOp::Group => "group",
            AggregateOp::Stddev => "stddev",
            AggregateOp::Stdvar => "stdvar",
            AggregateOp::Topk => "topk",
            AggregateOp::Bottomk => "bottomk",
            AggregateOp::Quantile => "quantile",
            AggregateOp::CountValues => "count_values",
            AggregateOp::Limitk => "limitk",
            AggregateOp::LimitRatio => "limit_ratio",
        }
    }
}

/// The grouping of an aggregation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// `by (...)`; without a clause, `by ()`.
    By(Vec<String>),
    /// `without (...)`.
    Without(Vec<String>),
}
