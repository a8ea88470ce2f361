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
mod numbers;
mod plan;
mod query;
mod sums;
pub mod syntax;
mod value;
mod windows;
mod worker_pool;

pub use annotations::Annotations;
pub use budget::{Budget, Limits, QueryProgress, QueryStats};
pub use cache::{CacheOutcomes, CacheUsage, RangeCache};
pub use error::QueryError;
pub use eval::RawRead;
pub use functions::{FUNCTIONS, Function, function};
pub use histogram::{FloatHistogram, HistogramBucket};
pub use memory::{LEASE_UNIT, Lease, LeaseError, MemoryPool, MemoryPoolUsage};
pub use query::{Options, Query, QueryResult};
pub use value::{HistogramPoint, MatrixSeries, Value, VectorSample};
pub use windows::{WindowSpec, windows};
pub use worker_pool::{ActiveWorkers, ParallelTask, WorkerPool, WorkerSlot};

use crate::model::Timestamp;
use crate::tsdb::Snapshot;

/// Returns the time of the oldest sample that a query may read, if it reads any.
///
/// # Errors
/// [`QueryError`] of an expression that cannot be planned.
pub fn oldest_sample(
    query: &Query,
    options: &Options,
    budget: &Budget<'_>,
) -> Result<Option<Timestamp>, QueryError> {
    let plan = plan::build(query, options, budget)?;
    Ok(cache::oldest_sample(&plan, query, options))
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

/// Returns the raw samples that the evaluation of a query reads, without reading any: the matchers
/// and the range of each selector.
///
/// # Errors
/// [`QueryError`] for an expression that has no plan, and for a limit of its patterns.
pub fn raw_reads(query: &Query, options: &Options, budget: &Budget<'_>) -> Result<Vec<RawRead>, QueryError> {
    let plan = plan::build(query, options, budget)?;
    Ok(eval::raw_reads(&plan, query, options))
}
