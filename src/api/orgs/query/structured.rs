//! Structured queries: the parameters `metric`, `match`, `fn`, `window`, `agg`, `by`, `without`,
//! `q`, `k` and `offset`, and the expression tree that they stand for (docs/specification.md C5).

use crate::api::error::data::bad_expression;
use crate::api::error::{ApiError, ApiResult};
use crate::api::params::{Params, shortened};
use crate::model::Matcher;
use crate::promql::syntax::structured::{Aggregation, Function, StructuredError, StructuredQuery};
use crate::promql::syntax::tree::{Expr, Grouping};
use crate::promql::syntax::{Caps, parse_matcher};

use super::deps::ReadOptions;
use super::selectors::patterns;

/// A structured query whose matchers are not compiled yet. Compiling them is work for the query
/// lane.
#[derive(Clone, Debug)]
pub(super) struct StructuredParams {
    query: StructuredQuery,
    matchers: Vec<String>,
    window_ms: Option<i64>,
}

/// The default of `window`: five minutes, as in most dashboards.
const WINDOW_DEFAULT_MS: i64 = 300_000;
/// The most items of `match`, inclusive; each is one label matcher.
const MATCHERS_MAX: usize = 64;

impl StructuredParams {
    /// Takes the parameters.
    ///
    /// # Errors
    /// 400 `invalid_parameter` and `duplicate_parameter`.
    pub(super) fn take(params: &mut Params) -> ApiResult<StructuredParams> {
        let text = |params: &mut Params, name| Ok::<_, ApiError>(params.one(&[name])?.unwrap_or_default());
        let metric = text(params, "metric")?;
        let matchers = params.many(&["match", "match[]"]);
        if matchers.len() > MATCHERS_MAX {
            let message = format!("{} label matchers, more than the {MATCHERS_MAX} allowed", matchers.len());
            return Err(ApiError::invalid_parameter("match", message));
        }
        let grouping = match (params.one(&["by"])?, params.one(&["without"])?) {
            (Some(_), Some(_)) => {
                return Err(ApiError::invalid_parameter("by", "by and without exclude each other"));
            }
            (Some(labels), None) => Some(Grouping::By(list(&labels))),
            (None, Some(labels)) => Some(Grouping::Without(list(&labels))),
            (None, None) => None,
        };
        let query = StructuredQuery {
            metric,
            matchers: Vec::new(),
            function: Function::parse(&text(params, "fn")?).map_err(|error| refused(&error))?,
            window_ms: None,
            aggregate: Aggregation::parse(&text(params, "agg")?).map_err(|error| refused(&error))?,
            grouping,
            q: params.number("q", "a number from 0 to 1")?,
            k: params.number("k", "a whole number from 1 to 100")?,
            offset_ms: params.duration_ms("offset")?.unwrap_or(0),
        };
        if query.metric.is_empty() {
            return Err(refused(&StructuredError::NoMetric));
        }
        Ok(StructuredParams { query, matchers, window_ms: params.duration_ms("window")? })
    }

    /// Returns the name of the metric.
    pub(super) fn metric(&self) -> &str {
        &self.query.metric
    }

    /// Compiles the matchers and returns the expression tree. The default window is at least
    /// `min_window_ms` and at most `max_window_ms`.
    ///
    /// # Errors
    /// 400 `invalid_parameter`, and `bad_expr` for a `match` that is not a matcher.
    pub(super) fn build(
        &self,
        options: &ReadOptions,
        min_window_ms: i64,
        max_window_ms: Option<i64>,
    ) -> ApiResult<Expr> {
        let mut query = self.query.clone();
        query.matchers = compile(&self.matchers, &options.caps)?;
        let default = min_window_ms.max(WINDOW_DEFAULT_MS);
        let default = query.function.map(|_| max_window_ms.map_or(default, |most| default.min(most)));
        query.window_ms = self.window_ms.or(default);
        if let Some(window_ms) = query.window_ms.filter(|ms| *ms > options.range_ms_max) {
            let most = options.range_ms_max / 1_000;
            let message = format!("{} s, more than the {most} s allowed", window_ms / 1_000);
            return Err(ApiError::invalid_parameter("window", message));
        }
        query.build().map_err(|error| refused(&error))
    }
}

/// Compiles the matchers one by one, and stops at the first pattern beyond the limit. As in an
/// expression, an alternation of literals is a set and does not count as a pattern.
fn compile(texts: &[String], caps: &Caps) -> ApiResult<Vec<Matcher>> {
    let mut matchers = Vec::with_capacity(texts.len());
    for text in texts {
        matchers.push(parse_matcher(text, caps).map_err(|error| bad_expression("match", &error))?);
        if patterns(&matchers) > caps.regex_matchers {
            let message = format!("more than {} regular expressions", caps.regex_matchers);
            return Err(ApiError::invalid_parameter("match", message));
        }
    }
    Ok(matchers)
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|label| !label.is_empty()).map(str::to_owned).collect()
}

fn refused(error: &StructuredError) -> ApiError {
    ApiError::invalid_parameter(error.parameter(), shortened(&error.to_string()))
}
