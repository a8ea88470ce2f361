//! Hooks of an evaluation, which `explain` and `cache` implement: an observer of nodes, and a cache
//! of subqueries. They are called for each node and each subquery, never for each series.

use std::sync::Arc;

use crate::clock::Stopwatch;
use crate::promql::budget::{Budget, Meter, QueryStats};
use crate::promql::plan::VectorNode;
use crate::promql::query::Options;
use crate::promql::value::MatrixSeries;
use crate::tsdb::Snapshot;

/// The hooks of one evaluation; the default has none.
#[derive(Clone, Copy, Default)]
pub(in crate::promql) struct Hooks<'a> {
    pub(in crate::promql) observer: Option<&'a dyn NodeObserver>,
    pub(in crate::promql) subqueries: Option<&'a dyn SubqueryCache>,
}

/// Receives the cost of each evaluated node.
pub(in crate::promql) trait NodeObserver {
    /// Called after each evaluation of the node at memory address `node`; a plan does not move
    /// while it runs.
    fn node_evaluated(&self, node: usize, cost: EvalCost);
}

/// The cost of one evaluation of a node, inputs included.
#[derive(Clone, Copy, Debug)]
pub(in crate::promql) struct EvalCost {
    /// The number of rows of the result.
    pub(in crate::promql) rows: usize,
    /// The number of series selected from the store.
    pub(in crate::promql) selected: u64,
    /// The number of samples read from the store.
    pub(in crate::promql) samples: u64,
    /// The duration in milliseconds.
    pub(in crate::promql) ms: f64,
}

/// The counters and the time before the evaluation of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct CostSnapshot {
    stats: QueryStats,
    watch: Stopwatch,
}

impl CostSnapshot {
    pub(super) fn take(meter: &Meter) -> CostSnapshot {
        CostSnapshot { stats: meter.stats(), watch: Stopwatch::start() }
    }

    /// Returns the cost since the snapshot of an evaluation that returned `rows` rows.
    pub(super) fn cost(self, rows: usize, meter: &Meter) -> EvalCost {
        let now = meter.stats();
        let selected = now.series - self.stats.series;
        let samples = now.samples - self.stats.samples;
        EvalCost { rows, selected, samples, ms: self.watch.elapsed_ms() }
    }
}

/// The cached results of subqueries that the caller may read.
pub(in crate::promql) trait SubqueryCache {
    /// Returns the access to the cached result of a subquery with the expression `expr`, whose text
    /// is `text`. Must be called before any sample is read. Returns `None` if the result must not
    /// be cached.
    fn subquery<'s>(
        &'s self,
        text: &str,
        expr: &VectorNode,
        times: SubqueryTimes,
        snapshot: &Snapshot,
        options: &Options,
    ) -> Option<Box<dyn CachedSubquery + 's>>;
}

/// The times of an evaluation of a subquery, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(in crate::promql) struct SubqueryTimes {
    /// The range of the subquery.
    pub(in crate::promql) range_ms: i64,
    /// The first step, inclusive.
    pub(in crate::promql) first_ms: i64,
    /// The last step, inclusive.
    pub(in crate::promql) last_ms: i64,
    pub(in crate::promql) step_ms: i64,
}

/// Access to the cached result of one subquery.
pub(in crate::promql) trait CachedSubquery {
    /// Returns the part of the cached result that is still valid.
    fn look_up(&self, snapshot: &Snapshot, budget: &Budget<'_>) -> CacheLookup;

    /// Returns whether the size limit of one entry admits `rows` rows of `steps` steps.
    fn admits(&self, rows: usize, steps: usize) -> bool;

    /// Stores the result of an evaluation without annotations, sorted by labels.
    fn store(self: Box<Self>, snapshot: &Snapshot, budget: &Budget<'_>, series: &[MatrixSeries]);

    /// Counts an evaluation whose result was cached as a whole.
    fn count_hit(&self);

    /// Counts an evaluation of whose result a part was cached.
    fn count_extended(&self);

    /// Counts an evaluation whose result was computed as a whole.
    fn count_miss(&self);
}

/// The usable part of a cached result.
pub(in crate::promql) enum CacheLookup {
    /// The result covers all requested steps.
    Hit(Arc<[MatrixSeries]>),
    /// The result is valid up to and including this step, in milliseconds.
    Prefix(Arc<[MatrixSeries]>, i64),
    Miss,
}
