//! Ad hoc filters: matchers in every selector of a query.

use super::json::{Object, member, objects};
use super::variables::Selections;
use crate::model::{MatchOp, Matcher};
use crate::promql::syntax::tree::Expr;
use crate::promql::syntax::{Caps, parse};

/// A saved filter of an ad hoc variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    label: String,
    op: MatchOp,
    value: String,
}

/// The most filters that a viewer may have in one variable, inclusive.
const FILTERS_MAX: usize = 50;

/// Reads the filters that a viewer chose, each as a text of an address: `job|=|api`, with `__gfp__`
/// for `|` and `__gfc__` for a comma.
///
/// # Errors
/// The problem, after the name of the variable.
pub(super) fn chosen_filters(texts: &[String]) -> Result<Vec<Filter>, &'static str> {
    if texts.len() > FILTERS_MAX {
        return Err("has too many filters");
    }
    let unescaped = |part: &str| part.replace("__gfp__", "|").replace("__gfc__", ",");
    let filters = texts.iter().map(|text| {
        let mut parts = text.split('|').map(unescaped);
        let (Some(label), Some(op), Some(value), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err("has a value that is not a filter such as job|=|api");
        };
        let op = match op.as_str() {
            "=" => MatchOp::Equal,
            "!=" => MatchOp::NotEqual,
            "=~" => MatchOp::Regex,
            "!~" => MatchOp::NotRegex,
            _ => return Err("has a filter with an operator other than =, !=, =~ and !~"),
        };
        if label.is_empty() {
            return Err("has a filter without a label");
        }
        Matcher::new(&label, op, &value).map_err(|_| "has a filter whose pattern is not valid")?;
        Ok(Filter { label, op, value })
    });
    filters.collect()
}

/// Reads the filters of an ad hoc variable.
pub(super) fn filters_of(raw: &Object) -> Vec<Filter> {
    let current = raw.get("current").and_then(|current| current.get("filters"));
    let filters = objects(raw.get("filters").filter(|list| !list.is_null()).or(current));
    let filters = filters.map(|filter| Filter {
        label: member(filter, "key"),
        op: match member(filter, "operator").as_str() {
            "!=" => MatchOp::NotEqual,
            "=~" => MatchOp::Regex,
            "!~" => MatchOp::NotRegex,
            _ => MatchOp::Equal,
        },
        value: member(filter, "value"),
    });
    filters.filter(|filter| !filter.label.is_empty()).collect()
}

impl super::Dashboard {
    /// Adds the filters of all ad hoc variables to a query. A text that is not PromQL is not
    /// changed, and the parser then refuses it. A filter with an invalid pattern becomes an
    /// equality test.
    pub(super) fn with_filters(&self, text: String, selections: &Selections) -> String {
        let adhoc = self.variables.iter().filter(|variable| variable.kind == "adhoc");
        let filters = adhoc.flat_map(|variable| {
            let chosen = selections.get(&variable.name).and_then(|selection| selection.filters.as_ref());
            chosen.unwrap_or(&variable.filters)
        });
        let filters: Vec<&Filter> = filters.collect();
        if filters.is_empty() {
            return text;
        }
        let Ok(mut parsed) = parse(&text, &Caps::default()) else { return text };
        let matchers = filters.iter().map(|filter| {
            Matcher::new(&filter.label, filter.op, &filter.value)
                // An invalid pattern hides everything rather than nothing.
                .unwrap_or_else(|_| Matcher::equal(&filter.label, &filter.value))
        });
        let matchers: Vec<Matcher> = matchers.collect();
        add(&mut parsed.expr, &matchers);
        parsed.expr.to_string()
    }
}

fn add(expr: &mut Expr, matchers: &[Matcher]) {
    match expr {
        Expr::Number(_) | Expr::Text(_) | Expr::Bytes(_) => {}
        Expr::Vector(selector) => selector.matchers.extend_from_slice(matchers),
        Expr::Matrix(matrix) => matrix.selector.matchers.extend_from_slice(matchers),
        Expr::Subquery(subquery) => add(&mut subquery.expr, matchers),
        Expr::Negate(inner) => add(inner, matchers),
        Expr::Binary(binary) => {
            add(&mut binary.lhs, matchers);
            add(&mut binary.rhs, matchers);
        }
        Expr::Call(call) => call.args.iter_mut().for_each(|arg| add(arg, matchers)),
        Expr::Aggregate(aggregate) => {
            add(&mut aggregate.expr, matchers);
            aggregate.param.iter_mut().for_each(|param| add(param, matchers));
        }
    }
}
