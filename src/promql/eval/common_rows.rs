//! Common subexpression elimination: rows that several aggregations of a query need are computed
//! for the first of them and reused by the others. An example is the ratio of errors to all
//! requests.
//!
//! A stored row is that of one series before elementwise operations, so it does not matter which
//! matchers selected the series.

use std::rc::Rc;
use std::sync::Arc;

use rapidhash::RapidHashMap;

use crate::model::{METRIC_NAME, MatchOp, Matcher};
use crate::promql::budget::{OptionalCharge, rows_bytes};
use crate::promql::plan::{MatrixSource, Node, Plan, ScalarNode, SelectorOutput, VectorNode, WindowNode};
use crate::tsdb::SeriesId;

use super::Context;
use super::accumulate::extra_bytes;
use super::pushdown::PushedDown;
use super::rows::Grid;
use super::streaming_aggregate::ReadCounts;

/// Largest number of bytes that is stored for one aggregation.
const BYTES_MAX: u64 = 64 << 20;

/// The computation of a metric's rows, without the steps: equal recipes make equal rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowRecipe {
    metric: String,
    /// Name of the window function, window length in milliseconds, and bits of its parameters.
    /// `None` for instant selectors.
    window: Option<(&'static str, i64, Vec<u64>)>,
    offset_ms: i64,
    at_ms: Option<i64>,
}

impl RowRecipe {
    /// Returns the recipe of an aggregation's innermost argument. Returns `None` if its rows cannot
    /// be identified.
    pub(super) fn of(core: &VectorNode) -> Option<RowRecipe> {
        match core {
            VectorNode::Select(selector) if selector.look == SelectorOutput::Value => {
                let metric = metric(&selector.matchers)?;
                Some(RowRecipe {
                    metric,
                    window: None,
                    offset_ms: selector.when.offset_ms,
                    at_ms: selector.when.at_ms,
                })
            }
            VectorNode::Window(window) => {
                let WindowNode { arg, params, .. } = &**window;
                let MatrixSource::Select(matchers) = &arg.source else { return None };
                let bits = |param: &ScalarNode| match param {
                    ScalarNode::Number(value) => Some(value.to_bits()),
                    _ => None,
                };
                let params: Option<Vec<u64>> = params.iter().map(bits).collect();
                Some(RowRecipe {
                    metric: metric(matchers)?,
                    window: Some((window.name, arg.range_ms, params?)),
                    offset_ms: arg.when.offset_ms,
                    at_ms: arg.when.at_ms,
                })
            }
            _ => None,
        }
    }
}

fn metric(matchers: &[Matcher]) -> Option<String> {
    let is_name = |matcher: &&Matcher| matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal;
    matchers.iter().find(is_name).map(|matcher| matcher.value().to_owned())
}

/// Returns the recipes that more than one aggregation of a plan uses.
pub(super) fn shared_recipes(plan: &Plan) -> Vec<RowRecipe> {
    let aggregations = plan.nodes().filter_map(|node| match node {
        Node::Vector(VectorNode::Aggregate(aggregate)) => {
            extra_bytes(aggregate.op).is_some().then_some(aggregate)
        }
        _ => None,
    });
    let aggregations: Vec<_> = aggregations.collect();
    let (mut seen_once, mut shared) = (Vec::new(), Vec::new());
    // A recipe is shared by at least two.
    if aggregations.len() < 2 {
        return shared;
    }
    for aggregate in aggregations {
        match RowRecipe::of(PushedDown::of(&aggregate.arg).core) {
            Some(recipe) if shared.contains(&recipe) => {}
            Some(recipe) if seen_once.contains(&recipe) => shared.push(recipe),
            Some(recipe) => seen_once.push(recipe),
            None => {}
        }
    }
    shared
}

/// Rows of some series, one after the other.
#[derive(Debug, Default)]
pub(super) struct RowBatch {
    ids: Vec<SeriesId>,
    read: Vec<ReadCounts>,
    values: Vec<f64>,
}

impl RowBatch {
    /// Returns an empty batch with capacity for `values` values.
    pub(super) fn with_capacity(values: usize) -> RowBatch {
        RowBatch { values: Vec::with_capacity(values), ..RowBatch::default() }
    }

    pub(super) fn push(&mut self, id: SeriesId, read: ReadCounts, row: &[f64]) {
        self.ids.push(id);
        self.read.push(read);
        self.values.extend_from_slice(row);
    }
}

/// Rows by series.
#[derive(Debug, Default)]
pub(super) struct RowsBySeries {
    batches: Vec<RowBatch>,
    /// Index of the batch, and index of the row in it.
    positions: RapidHashMap<SeriesId, (usize, usize)>,
}

impl RowsBySeries {
    /// Returns the row of a series and its counts, if the row is stored.
    pub(super) fn row(&self, id: SeriesId, steps: usize) -> Option<(ReadCounts, &[f64])> {
        let (batch, index) = *self.positions.get(&id)?;
        let batch = self.batches.get(batch)?;
        Some((*batch.read.get(index)?, batch.values.get(index * steps..(index + 1) * steps)?))
    }

    fn of(batches: Vec<RowBatch>) -> RowsBySeries {
        let mut positions = RapidHashMap::default();
        for (number, batch) in batches.iter().enumerate() {
            positions.extend(batch.ids.iter().enumerate().map(|(index, id)| (*id, (number, index))));
        }
        RowsBySeries { batches, positions }
    }
}

/// Stored rows with their recipe and steps.
#[derive(Debug)]
pub(super) struct CommonRows {
    recipe: RowRecipe,
    grid: Grid,
    pub(super) rows: Arc<RowsBySeries>,
    _charge: OptionalCharge,
}

/// A reservation for rows that are being computed.
#[derive(Debug)]
pub(super) struct PendingRows {
    recipe: RowRecipe,
    charge: OptionalCharge,
}

impl Context<'_> {
    /// Returns the stored rows of the same recipe and steps.
    pub(super) fn common_rows(&self, core: &VectorNode, grid: Grid) -> Option<Rc<CommonRows>> {
        let stored = self.common_rows.borrow();
        if stored.is_empty() {
            return None;
        }
        let recipe = RowRecipe::of(core)?;
        stored.iter().find(|stored| stored.recipe == recipe && stored.grid == grid).map(Rc::clone)
    }

    /// Reserves memory for `rows` rows, if another aggregation needs them and there is memory.
    pub(super) fn reserve_common_rows(
        &self,
        core: &VectorNode,
        rows: usize,
        grid: Grid,
    ) -> Option<PendingRows> {
        if self.shared_recipes.is_empty() {
            return None;
        }
        let recipe = RowRecipe::of(core).filter(|recipe| self.shared_recipes.contains(recipe))?;
        let bytes = rows_bytes(rows, grid.len);
        let charge = if bytes <= BYTES_MAX { self.meter.optional_charge(bytes) } else { None };
        Some(PendingRows { recipe, charge: charge? })
    }

    /// Stores all rows of an aggregation.
    pub(super) fn store_common_rows(
        &self,
        PendingRows { recipe, charge }: PendingRows,
        batches: Vec<RowBatch>,
        grid: Grid,
    ) {
        let rows = Arc::new(RowsBySeries::of(batches));
        self.common_rows.borrow_mut().push(Rc::new(CommonRows { recipe, grid, rows, _charge: charge }));
    }
}
