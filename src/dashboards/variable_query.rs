//! The query of a variable: `label_values(up, job)` and its relatives, as text or as an object.

use serde_json::Value;

use super::interpolate::{Context, InterpolateError};
use super::json::{Object, member, objects, text};
use super::variables::{Selections, Variable};

const QUERY_BYTES_MAX: usize = 64 * 1_024;
/// Grafana's numbers in `qryType`.
const TYPES: [&str; 6] = ["label_names", "label_values", "metrics", "query_result", "series", "classic"];

/// The query of a variable. Selectors are `None` for all series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariableQuery {
    /// The values of a label.
    LabelValues {
        /// The label.
        label: String,
        /// A series selector.
        selector: Option<String>,
    },
    /// The names of labels.
    LabelNames {
        /// A series selector.
        selector: Option<String>,
    },
    /// The names of metrics that contain a match of this regular expression.
    Metrics {
        /// The regular expression.
        regex: String,
    },
    /// The result of an instant query.
    QueryResult {
        /// The expression.
        expr: String,
    },
    /// Series.
    Series {
        /// A series selector.
        selector: String,
    },
}

impl super::Dashboard {
    /// Returns the query of a variable with its references replaced; `None` for variables without a
    /// query.
    ///
    /// # Errors
    /// [`InterpolateError`].
    pub fn variable_query(
        &self,
        variable: &Variable,
        selections: &Selections,
        context: &Context,
    ) -> Result<Option<VariableQuery>, InterpolateError> {
        let parsed = if variable.kind == "query" { parse(&variable.query) } else { None };
        let replaced = |text: String| self.interpolate(&text, selections, context);
        let selected = |text: Option<String>| text.map(replaced).transpose();
        Ok(Some(match parsed {
            None => return Ok(None),
            Some(VariableQuery::LabelValues { label, selector }) => {
                VariableQuery::LabelValues { label: replaced(label)?, selector: selected(selector)? }
            }
            Some(VariableQuery::LabelNames { selector }) => {
                VariableQuery::LabelNames { selector: selected(selector)? }
            }
            Some(VariableQuery::Metrics { regex }) => VariableQuery::Metrics { regex: replaced(regex)? },
            Some(VariableQuery::QueryResult { expr }) => VariableQuery::QueryResult { expr: replaced(expr)? },
            Some(VariableQuery::Series { selector }) => {
                VariableQuery::Series { selector: replaced(selector)? }
            }
        }))
    }
}

/// Parses the text, or `{query, qryType, label, metric, labelFilters}`.
fn parse(query: &Value) -> Option<VariableQuery> {
    let parts = query.as_object();
    let written = match parts {
        None => text(Some(query)).unwrap_or_default(),
        Some(parts) => {
            let names = ["query", "classicQuery", "expr"].map(|name| member(parts, name));
            names.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
        }
    };
    match written.trim() {
        "" => parts.and_then(from_parts),
        written => from_text(written),
    }
}

fn given(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn from_text(text: &str) -> Option<VariableQuery> {
    if text.len() > QUERY_BYTES_MAX {
        return None;
    }
    let series = || Some(VariableQuery::Series { selector: text.to_owned() });
    let calls = ["label_names", "label_values", "metrics", "query_result"];
    let call = calls.into_iter().find_map(|name| {
        let inner = text.strip_prefix(name)?.trim_start().strip_prefix('(')?.strip_suffix(')')?;
        Some((name, inner.trim()))
    });
    let (name, inner) = match call {
        None => return series(),
        Some(call) => call,
    };
    match name {
        "label_names" => return Some(VariableQuery::LabelNames { selector: given(inner.to_owned()) }),
        "metrics" => return Some(VariableQuery::Metrics { regex: inner.to_owned() }),
        "query_result" => return Some(VariableQuery::QueryResult { expr: inner.to_owned() }),
        _ => {}
    }
    let (selector, label) = inner.rsplit_once(',').unwrap_or(("", inner));
    let (selector, label) = (selector.trim(), label.trim());
    // A comma inside braces or quotes belongs to the selector, and no label follows it.
    if without_references(label).contains(['{', '}', '=']) {
        return series();
    }
    let inside = label.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let label = match inside {
        Some(inside) => unescaped(inside).unwrap_or_else(|| label.to_owned()),
        None => label.to_owned(),
    };
    Some(VariableQuery::LabelValues { label, selector: given(selector.to_owned()) })
}

/// Returns the text without each `${...}`.
fn without_references(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((_, end)) = after.split_once('}') else { break };
        out.push_str(before);
        rest = end;
    }
    out + rest
}

/// Returns the content of a string; `None` if it has a quote that is not escaped.
fn unescaped(inside: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return None,
            '\\' => out.push(chars.next()?),
            c => out.push(c),
        }
    }
    Some(out)
}

fn from_parts(query: &Object) -> Option<VariableQuery> {
    let kind =
        query.get("qryType").and_then(Value::as_u64).and_then(|at| TYPES.get(usize::try_from(at).ok()?));
    let kind = kind.copied().unwrap_or_default();
    let own = |name: &str| given(member(query, name));
    if let (Some(expr), "query_result") = (own("varQuery"), kind) {
        return Some(VariableQuery::QueryResult { expr });
    }
    if let (Some(selector), "series") = (own("seriesQuery"), kind) {
        return Some(VariableQuery::Series { selector });
    }
    if kind == "metrics" {
        return Some(VariableQuery::Metrics { regex: own("metric").unwrap_or(".*".to_owned()) });
    }
    let selector = own("match").or_else(|| given(selector_of(query)));
    if kind == "label_names" {
        return Some(VariableQuery::LabelNames { selector });
    }
    Some(VariableQuery::LabelValues { label: own("label")?, selector })
}

fn selector_of(query: &Object) -> String {
    let filters = objects(query.get("labelFilters")).filter(|filter| !member(filter, "label").is_empty());
    let filters: Vec<String> = filters
        .map(|filter| {
            let op = member(filter, "op");
            let op = if ["=", "!=", "=~", "!~"].contains(&op.as_str()) { op } else { "=".to_owned() };
            let value = member(filter, "value").replace('\\', "\\\\").replace('"', "\\\"");
            format!("{}{op}\"{value}\"", member(filter, "label"))
        })
        .collect();
    let metric = member(query, "metric");
    if filters.is_empty() { metric } else { format!("{metric}{{{}}}", filters.join(",")) }
}
