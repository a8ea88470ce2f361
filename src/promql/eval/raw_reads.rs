//! The raw samples that a plan reads: for each selector its matchers and the range of times, in
//! closed form, without reading samples. `engine: split` fetches the part of each range that lies
//! before its border.
//!
//! The scan follows the evaluation node by node, with the same steps: a subquery evaluates its
//! expression at its own steps, a step-invariant node at the first step only. Every range is
//! extended into the past by the lookback, because the reset hint of a native histogram depends on
//! the histogram before it.

use crate::model::{Matcher, TimeRange, Timestamp};
use crate::promql::plan::{
    MatrixNode, MatrixSource, Node, Plan, ScalarNode, Selector, SelectorOutput, VectorNode,
};
use crate::promql::query::{Options, Query};
use crate::promql::syntax::tree::Span;

use super::rows::Grid;
use super::select::selected_range;
use super::subquery::subquery_grid;
use super::windows::{window_range, window_span};

/// The raw samples that one selector of a query reads.
#[derive(Clone, Debug)]
pub struct RawRead {
    /// The matchers of the selector; all must match.
    pub matchers: Vec<Matcher>,
    /// The times of all samples that the evaluation may read, both ends inclusive.
    pub range: TimeRange,
}

/// Returns the ranges that the selectors of a plan read, in the order of the query text. Selectors
/// with equal matchers whose ranges overlap are one entry. Ranges with a gap between them are not
/// joined, because the gap, such as that of `offset 1w`, can be much larger than both.
pub(in crate::promql) fn raw_reads(plan: &Plan, query: &Query, options: &Options) -> Vec<RawRead> {
    let steps = query.steps;
    let grid = Grid { start_ms: steps.start().as_ms(), step_ms: steps.step_ms(), len: steps.len() };
    let mut scan = RawReadScan { options, reads: Vec::new() };
    match plan {
        Plan::Text(_) => {}
        Plan::Scalar(node) => scan.node(Node::Scalar(node), grid),
        Plan::Vector(node) => scan.node(Node::Vector(node), grid),
        Plan::Matrix(node) => scan.node(Node::Matrix(node), grid),
    }
    scan.reads
}

struct RawReadScan<'a> {
    options: &'a Options,
    reads: Vec<RawRead>,
}

impl RawReadScan<'_> {
    /// Adds the ranges that a node and its inputs read at the steps of `grid`.
    fn node(&mut self, node: Node<'_>, grid: Grid) {
        if grid.len == 0 {
            return;
        }
        match node {
            Node::Matrix(node) => return self.matrix(node, grid),
            Node::Vector(VectorNode::Select(selector)) => {
                self.add(&selector.matchers, selected_range(selector, grid, self.options));
            }
            Node::Vector(VectorNode::Info(info)) => {
                let matchers: Vec<Matcher> = info.names.iter().chain(&info.data).cloned().collect();
                let (look, span) = (SelectorOutput::Time, Span::default());
                let selector = Selector { matchers, when: info.when, look, counts_only: true, span };
                self.add(&selector.matchers, selected_range(&selector, grid, self.options));
            }
            Node::Vector(VectorNode::StepInvariant(inner)) => {
                return self.node(Node::Vector(inner), grid.once());
            }
            Node::Scalar(ScalarNode::StepInvariant(inner)) => {
                return self.node(Node::Scalar(inner), grid.once());
            }
            Node::Vector(_) | Node::Scalar(_) | Node::Text(_) => {}
        }
        for input in node.inputs() {
            self.node(input, grid);
        }
    }

    fn matrix(&mut self, node: &MatrixNode, grid: Grid) {
        match &node.source {
            MatrixSource::Select(matchers) => self.add(matchers, window_range(node, grid, self.options)),
            MatrixSource::Subquery { expr, step_ms, .. } => {
                let (first, last) = window_span(node, grid, self.options);
                self.node(Node::Vector(expr), subquery_grid(first, last, *step_ms));
            }
        }
    }

    fn add(&mut self, matchers: &[Matcher], range: TimeRange) {
        if range.end < range.start {
            return;
        }
        let lookback_ms = self.options.lookback_ms;
        let start = Timestamp::from_ms(range.start.as_ms().saturating_sub(lookback_ms));
        let mut range = TimeRange::new(start, range.end);
        let mut place = self.reads.len();
        // The joined range may overlap another one that it did not before.
        while let Some(known) = self.reads.iter().position(|read| {
            read.range.start <= range.end
                && range.start <= read.range.end
                && are_equal(&read.matchers, matchers)
        }) {
            let RawRead { range: own, .. } = self.reads.remove(known);
            range = TimeRange::new(own.start.min(range.start), own.end.max(range.end));
            place = place.min(known);
        }
        self.reads.insert(place.min(self.reads.len()), RawRead { matchers: matchers.to_vec(), range });
    }
}

fn are_equal(a: &[Matcher], b: &[Matcher]) -> bool {
    let mut pairs = a.iter().zip(b);
    a.len() == b.len()
        && pairs.all(|(a, b)| a.op() == b.op() && a.name() == b.name() && a.value() == b.value())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Steps;
    use crate::promql::syntax::{Caps, Features};
    use crate::promql::{Budget, plan, syntax};

    const LOOKBACK_S: i64 = 300;

    /// Returns the ranges that a query from 1,000 to 2,000 s by 100 s reads, in seconds: the range
    /// of floats without the lookback for reset hints, rounded outwards, left end exclusive.
    fn reads(text: &str) -> Vec<(String, i64, i64)> {
        let expr =
            syntax::parse(text, &Caps { features: Features::ALL, ..Caps::default() }).expect("valid").expr;
        let steps = Steps::new(Timestamp::from_s(1_000), Timestamp::from_s(2_000), 100_000).expect("steps");
        let query = Query { expr: expr.into(), text: text.into(), steps, instant: false };
        let options = Options::default();
        let plan = plan::build(&query, &options, &Budget::default()).expect("a plan");
        let all = raw_reads(&plan, &query, &options);
        let read = |read: RawRead| {
            let name = read.matchers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let start = read.range.start.as_ms() - 1 + LOOKBACK_S * 1_000;
            assert_eq!((start % 1_000, read.range.end.as_ms() % 1_000), (0, 0), "{text}");
            (name, start / 1_000, read.range.end.as_ms() / 1_000)
        };
        all.into_iter().map(read).collect()
    }

    #[test]
    fn the_range_of_every_selector_follows_from_its_modifiers_and_the_steps() {
        let cases = [
            ("m", 700, 2_000),
            ("m offset 50s", 650, 1_950),
            ("m offset -50s", 750, 2_050),
            ("m @ 500", 200, 500),
            ("m @ 500 offset 50s", 150, 450),
            ("m @ end()", 1_700, 2_000),
            ("rate(m[10m])", 400, 2_000),
            ("rate(m[10m] offset 1m)", 340, 1_940),
            ("rate(m[10m] @ 3000)", 2_400, 3_000),
            // The steps of the subquery are 420, 480, ... 1,980.
            ("max_over_time(m[10m:1m])", 120, 1_980),
            ("max_over_time(m[10m:1m] offset 1m)", 60, 1_920),
            ("max_over_time(rate(m[5m])[10m:1m])", 120, 1_980),
            ("max_over_time(max_over_time(m[2m:10s])[10m:1m])", 10, 1_980),
            ("max_over_time(m[10m:1m] @ 3000)", 2_160, 3_000),
            ("sum by (a) (m) + on () group_left count(m offset 10m)", 100, 2_000),
            ("timestamp(m)", 700, 2_000),
            ("absent_over_time(m[20m])", -200, 2_000),
            ("scalar(m) + time()", 700, 2_000),
            ("predict_linear(m[30m], scalar(m @ 100))", -800, 2_000),
            ("m + m offset 40m + m offset 20m", -1_700, 2_000),
            ("label_replace(m, \"a\", \"$1\", \"b\", \"(.*)\")", 700, 2_000),
        ];
        for (text, start, end) in cases {
            assert_eq!(reads(text), [("__name__=\"m\"".to_owned(), start, end)], "{text}");
        }
    }

    #[test]
    fn selectors_with_different_matchers_have_ranges_of_their_own() {
        let found = reads("rate(a{x=\"1\"}[1m]) / on () b offset 1h");
        let expected = [
            ("__name__=\"a\",x=\"1\"".to_owned(), 940, 2_000),
            ("__name__=\"b\"".to_owned(), -2_900, -1_600),
        ];
        assert_eq!(found, expected);
        let info = reads("info(rate(m[5m]), {__name__=\"target_info\", v=~\".+\"})");
        let names: Vec<&str> = info.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names[1].contains("target_info") || names[0].contains("target_info"), "{names:?}");
        assert!(info.iter().all(|(_, start, end)| (*start, *end) == (700, 2_000)), "{info:?}");
    }

    #[test]
    fn windows_of_the_same_series_with_a_gap_between_them_are_read_apart() {
        let all = [("topk(scalar(m offset 1h), m)", -2_900, -1_600), ("m / m offset 1w", -604_100, -602_800)];
        for (text, start, end) in all {
            let name = "__name__=\"m\"".to_owned();
            let mut found = reads(text);
            found.sort();
            assert_eq!(found, [(name.clone(), start, end), (name, 700, 2_000)], "{text}");
        }
    }

    #[test]
    fn an_expression_without_selectors_reads_nothing() {
        assert_eq!(reads("vector(1) + time()"), []);
    }
}
