//! A query, its options and its result.

use std::sync::Arc;

use crate::model::Steps;

use super::annotations::Annotations;
use super::budget::{Limits, QueryStats};
use super::syntax::tree::Expr;
use super::value::Value;

/// One query. A clone shares the expression and its text.
#[derive(Clone, Debug)]
pub struct Query {
    /// The expression.
    pub expr: Arc<Expr>,
    /// The text from which the expression was parsed; annotations refer to lines and columns of it.
    /// If it is empty, annotations carry no positions.
    pub text: Arc<str>,
    /// The evaluation times; one step for an instant query.
    pub steps: Steps,
    /// Whether the result is a vector (or a text, or raw samples) at one time; otherwise it is a
    /// matrix.
    pub instant: bool,
}

/// The evaluation options that a server decides.
#[derive(Clone, Debug)]
pub struct Options {
    /// The lookback of an instant selector in milliseconds; the window is left-open.
    pub lookback_ms: i64,
    /// The step in milliseconds of a subquery that names none.
    pub subquery_step_ms: i64,
    /// Whether `__name__` is removed at the end of the query only (upstream's
    /// `promql-delayed-name-removal`).
    pub delayed_name_removal: bool,
    /// Whether counters are read with the start timestamps of their samples (upstream's
    /// `use-start-timestamps`).
    pub use_start_timestamps: bool,
    /// The limits of one query.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            lookback_ms: 300_000,
            subquery_step_ms: 60_000,
            delayed_name_removal: false,
            use_start_timestamps: false,
            limits: Limits::default(),
        }
    }
}

/// The value of a query, with its annotations and its cost.
#[derive(Clone, Debug)]
pub struct QueryResult {
    /// The value: of any kind for an instant query, a matrix for a range query.
    pub value: Value,
    /// Warnings and infos.
    pub annotations: Annotations,
    /// The measured cost.
    pub stats: QueryStats,
}
