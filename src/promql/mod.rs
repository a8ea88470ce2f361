//! PromQL: text to value.
//!
//! `syntax` reads text into a tree, `plan` resolves the tree into typed nodes, `eval` runs the nodes over one
//! organisation's snapshot: labels first, then series by series over all steps at once. `explain` tells what a plan will
//! cost, and what each of its nodes did cost. `cache` keeps answers of range queries for as long as they are true.

mod annotations;
mod budget;
mod cache;
mod error;
mod eval;
pub mod explain;
mod functions;
mod histogram;
mod memory;
mod plan;
pub mod syntax;
mod value;
mod windows;
mod worker_pool;

pub use annotations::Annotations;
pub use budget::{Budget, Limits, Progress, QueryStats};
pub use cache::{CacheUse, Finds, RangeCache};
pub use error::QueryError;
pub use functions::{FUNCTIONS, Function, function};
pub use histogram::{FloatHistogram, HistogramBucket};
pub use memory::{Lease, MemoryPool, MemoryUse, NoRoom};
pub use value::{HistogramPoint, MatrixSeries, Value, VectorSample};
pub use windows::{Window, windows};
pub use worker_pool::{ActiveWorkers, ParallelTask, WorkerPool, WorkerSlot};

use crate::model::Steps;
use crate::tsdb::Snapshot;

use syntax::tree::Expr;

/// One question.
#[derive(Clone, Debug)]
pub struct Query {
    /// What is asked.
    pub expr: Expr,
    /// The text it was parsed from: annotations tell lines and columns of it. May be empty, then they tell none.
    pub text: String,
    /// When; one step for an instant query.
    pub steps: Steps,
    /// An instant query answers a vector (or text, or raw samples), a range query a matrix.
    pub instant: bool,
}

/// What a server decides about evaluation.
#[derive(Clone, Debug)]
pub struct Options {
    /// How far back an instant selector looks, milliseconds; the window is left-open.
    pub lookback_ms: i64,
    /// The step of a subquery that names none, milliseconds.
    pub subquery_step_ms: i64,
    /// Keeps `__name__` until the end of the query (upstream's `promql-delayed-name-removal`).
    pub delayed_name_removal: bool,
    /// Counters are read with the start timestamps of their samples (upstream's `use-start-timestamps`).
    pub use_start_timestamps: bool,
    /// What one query may cost.
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

/// A value, and what is to be said about it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The result: of an instant query any kind, of a range query a matrix.
    pub value: Value,
    /// Warnings and infos.
    pub annotations: Annotations,
    /// What it cost.
    pub stats: QueryStats,
}

/// Evaluates one query over one snapshot.
///
/// # Errors
/// [`QueryError`]: a limit, the deadline, a cancellation, or an expression that has no answer on this data.
/// Nothing partial is ever returned.
pub fn run(
    query: &Query,
    snapshot: &Snapshot,
    options: &Options,
    budget: &Budget<'_>,
) -> Result<Answer, QueryError> {
    let plan = plan::build(query, options, budget)?;
    eval::run(&plan, query, snapshot, options, budget, eval::Hooks::default())
}
