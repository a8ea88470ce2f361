//! The plan of `info`: the selection of info series and its time (Prometheus, `promql/info.go`).

use crate::model::{METRIC_NAME, MatchOp, Matcher};
use crate::promql::error::QueryError;
use crate::promql::syntax::tree::{Call, DurationExpr, Expr, Subquery, VectorSelector};

use super::build::{Builder, Built, hoist_vector};
use super::{InfoNode, VectorNode};

impl Builder<'_> {
    /// Plans `info(v, selector)`, which adds labels of the selected info series to the series of
    /// `v`.
    pub(super) fn info(&self, call: &Call, depth: usize) -> Built<VectorNode> {
        let arg_expr = self.arg(call, 0)?;
        let (arg, invariant) = self.vector(arg_expr, depth)?;
        // With a second argument, info series are selected again at each step.
        let all = invariant && call.args.len() == 1;
        let arg = hoist_vector(arg, invariant && !all);
        let when = match first_selector(arg_expr, &mut Vec::new()) {
            None => self.when(&DurationExpr::Fixed(0), None)?,
            Some((selector, around)) => {
                let mut when = self.when(&selector.offset, selector.at)?;
                for subquery in around.iter().rev() {
                    if when.at_ms.is_some() {
                        break;
                    }
                    let outer = self.when(&subquery.offset, subquery.at)?;
                    when.offset_ms = when.offset_ms.saturating_add(outer.offset_ms);
                    when.at_ms = outer.at_ms;
                }
                when
            }
        };
        let selected = match call.args.get(1) {
            Some(Expr::Vector(selector)) => selector.matchers.clone(),
            Some(_) => return Err(QueryError::BadQuery("expected label selectors only".into())),
            None => Vec::new(),
        };
        let (names, data) = selected.into_iter().partition(|matcher| matcher.name() == METRIC_NAME);
        let node = InfoNode { arg, names: effective_names(names)?, data, when };
        Ok((VectorNode::Info(Box::new(node)), all))
    }
}

/// Returns the matchers of the names of info series. Without a matcher the name is `target_info`;
/// with negative matchers only, `.+_info` is added, because they select nothing by themselves.
fn effective_names(mut names: Vec<Matcher>) -> Result<Vec<Matcher>, QueryError> {
    if names.is_empty() {
        return Ok(vec![Matcher::equal(METRIC_NAME, "target_info")]);
    }
    if names.iter().all(|name| matches!(name.op(), MatchOp::NotEqual | MatchOp::NotRegex)) {
        let any = Matcher::new(METRIC_NAME, MatchOp::Regex, ".+_info");
        names.insert(0, any.map_err(|e| QueryError::execution(e.to_string()))?);
    }
    Ok(names)
}

/// Returns the first selector in the order of the text, and the subqueries around it, outermost
/// first.
fn first_selector<'e>(
    expr: &'e Expr,
    around: &mut Vec<&'e Subquery>,
) -> Option<(&'e VectorSelector, Vec<&'e Subquery>)> {
    match expr {
        Expr::Number(_) | Expr::Text(_) | Expr::Bytes(_) => None,
        Expr::Vector(selector) => Some((selector, around.clone())),
        Expr::Matrix(matrix) => Some((&matrix.selector, around.clone())),
        Expr::Subquery(subquery) => {
            around.push(subquery);
            let found = first_selector(&subquery.expr, around);
            around.pop();
            found
        }
        Expr::Negate(inner) => first_selector(inner, around),
        Expr::Binary(binary) => {
            first_selector(&binary.lhs, around).or_else(|| first_selector(&binary.rhs, around))
        }
        Expr::Call(call) => call.args.iter().find_map(|arg| first_selector(arg, around)),
        // The vector comes before the parameter, as in the traversal of Prometheus.
        Expr::Aggregate(aggregate) => first_selector(&aggregate.expr, around)
            .or_else(|| aggregate.param.as_ref().and_then(|param| first_selector(param, around))),
    }
}
