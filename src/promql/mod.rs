//! PromQL: from text to value.
//!
//! `syntax` parses text into a tree, `plan` resolves the tree into typed nodes, and `eval` runs the
//! nodes over the snapshot of one organisation: labels first, then series by series over all steps
//! at once. `explain` estimates the cost of a plan and reports the measured cost of each node.
//! `cache` stores results of range queries and reuses the steps that are still valid.

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
pub use budget::{Budget, Limits, QueryProgress, QueryStats};
pub use cache::{CacheOutcomes, CacheUsage, RangeCache};
pub use error::QueryError;
pub use functions::{FUNCTIONS, Function, function};
pub use histogram::{FloatHistogram, HistogramBucket};
pub use memory::{Lease, LeaseError, MemoryPool, MemoryPoolUsage};
pub use value::{HistogramPoint, MatrixSeries, Value, VectorSample};
pub use windows::{WindowSpec, windows};
pub use worker_pool::{ActiveWorkers, ParallelTask, WorkerPool, WorkerSlot};

use crate::model::Steps;
use crate::tsdb::Snapshot;

use syntax::tree::Expr;

/// One query.
#[derive(Clone, Debug)]
pub struct Query {
    /// The expression.
    pub expr: Expr,
    /// The text from which the expression was parsed; annotations refer to lines and columns of it.
    /// If it is empty, annotations carry no positions.
    pub text: String,
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

/// Evaluates one query over one snapshot, without the cache.
///
/// # Errors
/// [`QueryError`]: a limit, the deadline, a cancellation, or an expression that has no result on
/// this data. A partial result is never returned.
pub fn run(
    query: &Query,
    snapshot: &Snapshot,
    options: &Options,
    budget: &Budget<'_>,
) -> Result<QueryResult, QueryError> {
    let plan = plan::build(query, options, budget)?;
    eval::run(&plan, query, snapshot, options, budget, eval::Hooks::default())
}
