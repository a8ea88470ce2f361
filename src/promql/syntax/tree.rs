//! Our own expression tree: what the parser's becomes, what is planned, printed and checked. Built without parentheses;
//! the printer puts them where precedence needs them.

use crate::model::{Matcher, Timestamp};

pub use super::length::{Formula, Length, LengthError, LengthOp, QueryTimes, Term};

/// Where a piece of the query text stands: byte offsets, end exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// One expression.
#[derive(Clone, Debug)]
pub enum Expr {
    /// `1.5`, `5m` (a duration is its seconds), `Inf`.
    Number(f64),
    /// `"text"`.
    Text(String),
    /// `"a\xc5"`, a text whose bytes are no UTF-8: no label's name or value, but one that can be answered.
    Bytes(Vec<u8>),
    /// `up{job="api"} offset 5m @ end()`.
    Vector(VectorSelector),
    /// `up[5m]`.
    Matrix(Box<MatrixSelector>),
    /// `rate(x[1m])[1h:5m]`.
    Subquery(Box<Subquery>),
    /// `-x`; a unary plus leaves nothing behind.
    Negate(Box<Expr>),
    /// `a + on(x) group_left b`.
    Binary(Box<Binary>),
    /// `rate(...)`.
    Call(Call),
    /// `sum by (job) (...)`.
    Aggregate(Box<Aggregate>),
}

impl Expr {
    /// Itself and every expression in it, in no order.
    pub fn nodes(&self) -> impl Iterator<Item = &Expr> {
        let mut left = vec![self];
        std::iter::from_fn(move || {
            let expr = left.pop()?;
            match expr {
                Expr::Number(_) | Expr::Text(_) | Expr::Bytes(_) | Expr::Vector(_) | Expr::Matrix(_) => {}
                Expr::Subquery(subquery) => left.push(&subquery.expr),
                Expr::Negate(inner) => left.push(inner),
                Expr::Binary(binary) => left.extend([&binary.lhs, &binary.rhs]),
                Expr::Call(call) => left.extend(&call.args),
                Expr::Aggregate(aggregate) => {
                    left.push(&aggregate.expr);
                    left.extend(&aggregate.param);
                }
            }
            Some(expr)
        })
    }

    /// The matchers of every selector in it, in no order.
    pub fn selectors(&self) -> Vec<&[Matcher]> {
        let found = self.nodes().filter_map(|expr| match expr {
            Expr::Vector(selector) => Some(&selector.matchers[..]),
            Expr::Matrix(matrix) => Some(&matrix.selector.matchers[..]),
            _ => None,
        });
        found.collect()
    }
}

/// What an expression yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// One number for each step.
    Scalar,
    /// One text.
    Text,
    /// Series with one value for each step.
    Vector,
    /// Series with a window of samples.
    Matrix,
}

impl ValueType {
    /// As Prometheus names it in its errors.
    pub const fn as_str(self) -> &'static str {
        match self {
            ValueType::Scalar => "scalar",
            ValueType::Text => "string",
            ValueType::Vector => "instant vector",
            ValueType::Matrix => "range vector",
        }
    }
}

/// Which series, and when relative to the evaluation time.
#[derive(Clone, Debug)]
pub struct VectorSelector {
    /// All tests, the one on `__name__` included.
    pub matchers: Vec<Matcher>,
    /// Back in time; negative looks forward.
    pub offset: Length,
    /// `@`.
    pub at: Option<AtModifier>,
    /// `anchored` or `smoothed`.
    pub extension: Option<Extension>,
    /// Position, where known.
    pub span: Span,
}

/// What is done with samples around a window or an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// The window begins with the sample that was in force at its start; nothing is extrapolated.
    Anchored,
    /// Values at the edges lie on the line between the samples around them.
    Smoothed,
}

impl Extension {
    /// As PromQL writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Extension::Anchored => "anchored",
            Extension::Smoothed => "smoothed",
        }
    }

    /// The one that `word` names, in any case.
    pub fn from_word(word: &str) -> Option<Extension> {
        [Extension::Anchored, Extension::Smoothed]
            .into_iter()
            .find(|extension| extension.as_str().eq_ignore_ascii_case(word))
    }
}

/// `@`: the evaluation time is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtModifier {
    /// `@ 1609746000`.
    Time(Timestamp),
    /// `@ start()`: of the whole query.
    Start,
    /// `@ end()`: of the whole query.
    End,
}

/// A selector with a window.
#[derive(Clone, Debug)]
pub struct MatrixSelector {
    /// Which series; offset and `@` stand there.
    pub selector: VectorSelector,
    /// The window, left-open.
    pub range: Length,
}

/// An instant expression evaluated over a window.
#[derive(Clone, Debug)]
pub struct Subquery {
    /// What is evaluated.
    pub expr: Expr,
    /// The window, left-open.
    pub range: Length,
    /// Distance of the inner steps; `None` is the server's default.
    pub step: Option<Length>,
    /// Back in time.
    pub offset: Length,
    /// `@`.
    pub at: Option<AtModifier>,
    /// Position, where known.
    pub span: Span,
}

/// An operator between two expressions.
#[derive(Clone, Debug)]
pub struct Binary {
    /// Which.
    pub op: BinaryOp,
    /// Left side.
    pub lhs: Expr,
    /// Right side.
    pub rhs: Expr,
    /// `bool` was written: a comparison answers 0 or 1.
    pub returns_bool: bool,
    /// How series pair up; `None` means all labels, one to one.
    pub matching: Option<Matching>,
    /// Of the operator, where known.
    pub span: Span,
    /// Where the left side starts, which is where the operation does.
    pub start: u32,
}

/// The operators.
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
    /// As PromQL writes it.
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

    /// `==`, `<` and their like: they filter, or answer 0 and 1 with `bool`.
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

    /// `</`, `>/`: they keep the observations of a histogram below or above a bound.
    pub const fn is_trim(self) -> bool {
        matches!(self, BinaryOp::TrimUpper | BinaryOp::TrimLower)
    }

    /// `and`, `or`, `unless`: operators on sets of series.
    pub const fn is_set(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or | BinaryOp::Unless)
    }
}

/// Vector matching.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matching {
    /// `on(...)` rather than `ignoring(...)`.
    pub on: bool,
    /// The labels of `on` or `ignoring`.
    pub labels: Vec<String>,
    /// Which side may have many.
    pub cardinality: Cardinality,
    /// The labels of `group_left(...)` or `group_right(...)`.
    pub include: Vec<String>,
    /// `fill` and `fill_left`: the value of a missing left partner.
    pub fill_left: Option<f64>,
    /// `fill` and `fill_right`: the value of a missing right partner.
    pub fill_right: Option<f64>,
}

/// How many series of each side may share a signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cardinality {
    /// One each.
    #[default]
    OneToOne,
    /// `group_left`: many on the left.
    ManyToOne,
    /// `group_right`: many on the right.
    OneToMany,
    /// Set operators.
    ManyToMany,
}

/// A function and its arguments, arity and types checked.
#[derive(Clone, Debug)]
pub struct Call {
    /// The function's name.
    pub name: String,
    /// Its arguments as written; defaults are filled in by the plan.
    pub args: Vec<Expr>,
    /// Position, where known.
    pub span: Span,
    /// Where each argument starts, signs included, parentheses around it not; nothing where that is unknown.
    pub arg_starts: Vec<u32>,
}

/// An aggregation over series.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// Which.
    pub op: AggregateOp,
    /// What is aggregated.
    pub expr: Expr,
    /// `k`, `q` or the label of `count_values`.
    pub param: Option<Expr>,
    /// Which labels make a group.
    pub grouping: Grouping,
    /// Position, where known.
    pub span: Span,
    /// Where `expr` starts, parentheses and signs included.
    pub expr_start: u32,
    /// Where `param` starts, parentheses around it not included.
    pub param_start: u32,
}

/// The aggregations.
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
    /// All of them.
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

    /// As PromQL writes it.
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

/// Which labels make a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// `by (...)`; no clause is `by ()`.
    By(Vec<String>),
    /// `without (...)`.
    Without(Vec<String>),
}
