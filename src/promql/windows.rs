//! The windows that a query reads: those of range selectors, and those of subqueries, which also
//! have a step.
//!
//! They are read from the syntax tree, before a plan is built, so that a caller with restricted
//! windows is refused before the query costs anything.

use super::query::{Options, Query};
use super::syntax::duration_expr::{DurationExpr, QueryTimes};
use super::syntax::tree::Expr;

/// The range of one selector or subquery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSpec {
    /// The range in milliseconds.
    pub range_ms: i64,
    /// The step of a subquery in milliseconds.
    pub step_ms: Option<i64>,
}

/// Returns all windows of a query, in no order. A length that cannot be computed is omitted; the
/// plan refuses it.
pub fn windows(query: &Query, options: &Options) -> Vec<WindowSpec> {
    let times = QueryTimes {
        step_ms: if query.instant { 0 } else { query.steps.step_ms() },
        range_ms: query.steps.end().ms_since(query.steps.start()),
    };
    let length = |length: &DurationExpr| length.positive_ms(times).ok();
    let of_node = |expr: &Expr| match expr {
        Expr::Matrix(matrix) => length(&matrix.range).map(|range_ms| WindowSpec { range_ms, step_ms: None }),
        Expr::Subquery(subquery) => {
            let step_ms = match &subquery.step {
                Some(step) => length(step)?,
                None => 0,
            };
            // As in the plan: a missing step, or one below a millisecond, is the server's default.
            let step_ms = if step_ms > 0 { step_ms } else { options.subquery_step_ms.max(1) };
            length(&subquery.range).map(|range_ms| WindowSpec { range_ms, step_ms: Some(step_ms) })
        }
        _ => None,
    };
    query.expr.nodes().filter_map(of_node).collect()
}

#[cfg(test)]
mod tests {
    use super::super::syntax::{Caps, parse};
    use super::*;
    use crate::model::{Steps, Timestamp};

    #[test]
    fn windows_are_found_at_every_level_of_an_expression() {
        let of = |text: &str| {
            let expr = parse(text, &Caps::default()).unwrap_or_else(|e| panic!("{text}: {e}")).expr;
            let steps = Steps::new(Timestamp::from_s(0), Timestamp::from_s(600), 30_000).expect("steps");
            let query = Query { expr: expr.into(), text: "".into(), steps, instant: false };
            let mut found: Vec<(i64, Option<i64>)> = windows(&query, &Options::default())
                .into_iter()
                .map(|window| (window.range_ms / 1_000, window.step_ms.map(|ms| ms / 1_000)))
                .collect();
            found.sort_unstable();
            found
        };
        assert_eq!(of("up + 1"), []);
        assert_eq!(of("-rate(up[5m])"), [(300, None)]);
        assert_eq!(of("up[1h]"), [(3_600, None)]);
        assert_eq!(of("max_over_time(rate(up[1m])[1h:5s])"), [(60, None), (3_600, Some(5))]);
        assert_eq!(
            of("sum(rate(a[1m])) / on() topk(scalar(max_over_time(b[2m:])), c)"),
            [(60, None), (120, Some(60))]
        );
        assert_eq!(of("rate(a[step() + 30s])"), [(60, None)]);
    }
}
