//! Rows that several aggregations of a question are made of: read and computed for the first of them, and kept for the
//! others. The share of errors among all requests is such a question.
//!
//! What is kept is a row of one series before anything is done with its values, so that it does not matter how the series
//! was selected.

use std::rc::Rc;
use std::sync::Arc;

use rapidhash::RapidHashMap;

use crate::model::{METRIC_NAME, MatchOp, Matcher};
use crate::promql::budget::{OptionalCharge, rows_bytes};
use crate::promql::plan::{MatrixSource, Node, Plan, ScalarNode, SelectorOutput, VectorNode, WindowNode};
use crate::tsdb::SeriesId;

use super::Context;
use super::accumulate::extra_bytes;
use super::peel::Peeled;
use super::rows::Grid;
use super::streaming_aggregate::Read;

/// More than this is not kept, however much room there is.
const BYTES_MAX: u64 = 64 << 20;

/// How the rows of a metric's series are made, but for the steps: two that are equal make the same rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    metric: String,
    /// The function of windows, their length, and the bits of what it is given; none for instant selectors.
    window: Option<(&'static str, i64, Vec<u64>)>,
    offset_ms: i64,
    at_ms: Option<i64>,
}

impl Way {
    /// How what is read at the core of an aggregation becomes rows, where it can be told from others' ways.
    pub(super) fn of(core: &VectorNode) -> Option<Way> {
        match core {
            VectorNode::Select(selector) if selector.look == SelectorOutput::Value => {
                let metric = metric(&selector.matchers)?;
                Some(Way {
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
                Some(Way {
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

/// The ways that more than one aggregation of a plan goes.
pub(super) fn repeated(plan: &Plan) -> Vec<Way> {
    let (mut once, mut more) = (Vec::new(), Vec::new());
    let mut ahead: Vec<Node<'_>> = match plan {
        Plan::Vector(node) => vec![Node::Vector(node)],
        Plan::Scalar(node) => vec![Node::Scalar(node)],
        Plan::Matrix(node) => vec![Node::Matrix(node)],
        Plan::Text(_) => Vec::new(),
    };
    while let Some(node) = ahead.pop() {
        ahead.extend(node.inputs());
        let Node::Vector(VectorNode::Aggregate(aggregate)) = node else { continue };
        let way = extra_bytes(aggregate.op).and_then(|_| Way::of(Peeled::of(&aggregate.arg).core));
        match way {
            Some(way) if more.contains(&way) => {}
            Some(way) if once.contains(&way) => more.push(way),
            Some(way) => once.push(way),
            None => {}
        }
    }
    more
}

/// Some series' rows, one after the other.
#[derive(Debug, Default)]
pub(super) struct Part {
    ids: Vec<SeriesId>,
    read: Vec<Read>,
    values: Vec<f64>,
}

impl Part {
    /// With room for so many values.
    pub(super) fn with_room(values: usize) -> Part {
        Part { values: Vec::with_capacity(values), ..Part::default() }
    }

    pub(super) fn push(&mut self, id: SeriesId, read: Read, row: &[f64]) {
        self.ids.push(id);
        self.read.push(read);
        self.values.extend_from_slice(row);
    }
}

/// Rows by series.
#[derive(Debug, Default)]
pub(super) struct KeptRows {
    parts: Vec<Part>,
    /// The part, and the place there.
    places: RapidHashMap<SeriesId, (usize, usize)>,
}

impl KeptRows {
    /// The row of a series and what was read for it, where it was kept.
    pub(super) fn row(&self, id: SeriesId, steps: usize) -> Option<(Read, &[f64])> {
        let (part, place) = *self.places.get(&id)?;
        let part = self.parts.get(part)?;
        Some((*part.read.get(place)?, part.values.get(place * steps..(place + 1) * steps)?))
    }

    fn of(parts: Vec<Part>) -> KeptRows {
        let mut places = RapidHashMap::default();
        for (number, part) in parts.iter().enumerate() {
            places.extend(part.ids.iter().enumerate().map(|(place, id)| (*id, (number, place))));
        }
        KeptRows { parts, places }
    }
}

/// What an aggregation has kept.
#[derive(Debug)]
pub(super) struct Kept {
    way: Way,
    grid: Grid,
    pub(super) rows: Arc<KeptRows>,
    _aside: OptionalCharge,
}

/// What is about to be kept.
#[derive(Debug)]
pub(super) struct Keeping {
    way: Way,
    aside: OptionalCharge,
}

impl Context<'_> {
    /// What was kept of rows that are made like this.
    pub(super) fn kept(&self, core: &VectorNode, grid: Grid) -> Option<Rc<Kept>> {
        let kept = self.kept.borrow();
        if kept.is_empty() {
            return None;
        }
        let way = Way::of(core)?;
        kept.iter().find(|kept| kept.way == way && kept.grid == grid).map(Rc::clone)
    }

    /// Where so many rows are to be kept, if there is room and anybody else may ask for them.
    pub(super) fn keeping(&self, core: &VectorNode, rows: usize, grid: Grid) -> Option<Keeping> {
        if self.repeated.is_empty() {
            return None;
        }
        let way = Way::of(core).filter(|way| self.repeated.contains(way))?;
        let bytes = rows_bytes(rows, grid.len);
        let aside = if bytes <= BYTES_MAX { self.meter.optional_charge(bytes) } else { None };
        Some(Keeping { way, aside: aside? })
    }

    /// Keeps all rows of an aggregation.
    pub(super) fn keep(&self, Keeping { way, aside }: Keeping, parts: Vec<Part>, grid: Grid) {
        let rows = Arc::new(KeptRows::of(parts));
        self.kept.borrow_mut().push(Rc::new(Kept { way, grid, rows, _aside: aside }));
    }
}
