//! The specification's questions: `query/range`, `query/instant`, `query/expr-instant`, and `query/expr-range` (API.md C5);
//! and what one would cost: `query/estimate`.
//!
//! What a caller needs to be granted depends on whether an expression is asked for, not on the path it is asked on.

pub mod active;
pub(super) mod answer;
pub(super) mod asking;
pub(super) mod brief;
mod parallel_encode;
mod structured;

use axum::extract::{RawQuery, State};
use axum::response::Response;

use answer::Answer;
use asking::{Asking, How, Running, Style, admit_steps, series_count, timeout};
pub use asking::{ReadDeps, ReadOptions};
use structured::Shape;

use crate::api::callers::{Endpoint, Grant, Reader};
use crate::api::error::{ApiError, ApiResult};
use crate::api::params::{Params, PathOf};
use crate::api::prom_json;
use crate::api::routes::{Auth, Routes};
use crate::model::{METRIC_NAME, Matcher, Steps, StepsError, TimeRange, Timestamp};
use crate::promql::explain::{Estimate, PlanNode};
use crate::promql::{Query, Value};

/// The routes below `/orgs/{slug}`.
pub fn routes() -> Routes<ReadDeps> {
    Routes::new()
        .get(
            "/orgs/{slug}/query/range",
            Auth::Reader(Endpoint::Range),
            "Query a range of time: structured, or an expression",
            range,
        )
        .get(
            "/orgs/{slug}/query/instant",
            Auth::Reader(Endpoint::Instant),
            "Query one moment: structured, or an expression",
            instant,
        )
        .get(
            "/orgs/{slug}/query/expr-instant",
            Auth::Reader(Endpoint::Expr),
            "Evaluate PromQL at one moment",
            expr_instant,
        )
        .get(
            "/orgs/{slug}/query/expr-range",
            Auth::Reader(Endpoint::Expr),
            "Evaluate PromQL over a range of time",
            expr_range,
        )
        .get(
            "/orgs/{slug}/query/estimate",
            Auth::Reader(Endpoint::Expr),
            "Reckon what an expression would cost",
            estimate,
        )
}

/// Series in one answer (API.md C5).
const SERIES_MAX: usize = 10_000;
const SERIES_DEFAULT: usize = 1_000;

/// What every handler here takes.
type Asked = (State<ReadDeps>, Reader, PathOf<String>, RawQuery);

async fn range(asked: Asked) -> ApiResult<Response> {
    answer(asked, Mode::Range, Form::Either).await
}

async fn instant(asked: Asked) -> ApiResult<Response> {
    answer(asked, Mode::Instant, Form::Either).await
}

async fn expr_instant(asked: Asked) -> ApiResult<Response> {
    answer(asked, Mode::Instant, Form::Expression).await
}

async fn expr_range(asked: Asked) -> ApiResult<Response> {
    answer(asked, Mode::Range, Form::Expression).await
}

/// What a path takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A structured question, or an expression in its place.
    Either,
    /// An expression.
    Expression,
}

#[derive(Clone)]
struct Question {
    ask: Ask,
    mode: Mode,
    explain: bool,
    how: How,
}

#[derive(Clone)]
enum Ask {
    Structured(Shape),
    Expression(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Range,
    Instant,
}

fn ask(params: &mut Params, form: Form) -> ApiResult<Ask> {
    match (params.one(&["expr", "query"])?, form) {
        (Some(text), _) => Ok(Ask::Expression(text)),
        (None, Form::Either) => Shape::take(params).map(Ask::Structured),
        (None, Form::Expression) => Err(ApiError::invalid_parameter("expr", "an expression is required")),
    }
}

/// When a question is asked for, and how much of the answer is wanted.
#[derive(Clone, Copy, Debug)]
struct When {
    steps: Steps,
    limit: usize,
}

async fn answer(asked: Asked, mode: Mode, form: Form) -> ApiResult<Response> {
    let (State(deps), reader, PathOf(slug), RawQuery(query)) = asked;
    let mut params = Params::of_query(query.as_deref())?;
    let likeness = deps.brief.like((if mode == Mode::Range { "range" } else { "instant" }, ""), &params);
    let how = How { lookback_ms: None, nocache: flag(&mut params, "nocache")? };
    let question =
        Question { ask: ask(&mut params, form)?, mode, explain: flag(&mut params, "explain")?, how };
    let endpoint = match (&question.ask, question.mode) {
        (Ask::Expression(_), _) => Endpoint::Expr,
        (Ask::Structured(_), Mode::Range) => Endpoint::Range,
        (Ask::Structured(_), Mode::Instant) => Endpoint::Instant,
    };
    let entered = reader.enter(&slug, endpoint)?;
    let now = deps.clock.now();
    let steps = match question.mode {
        Mode::Range => range_steps(&mut params, now, deps.options.range_ms_max, &entered.grant)?,
        Mode::Instant => Steps::once(params.time("time", now)?.unwrap_or(now)),
    };
    let limit = params.count("limit", 1, SERIES_MAX)?.unwrap_or(SERIES_DEFAULT);
    let about = TimeRange::new(steps.start(), steps.end());
    let asking = Asking::from(entered).within(timeout(&mut params)?).like(likeness, about);
    let unknown = params.unknown();
    let listed = match &question.ask {
        Ask::Expression(text) => text.clone(),
        Ask::Structured(shape) => shape.metric().to_owned(),
    };
    let work = move |running: &mut Running| {
        unused(running, unknown);
        run(running, &question, When { steps, limit })
    };
    deps.answer_large(asking.listed(listed), work).await
}

fn unused(running: &mut Running, unknown: Vec<String>) {
    for name in unknown {
        running.warn(format!("the parameter {name:?} was not used"));
    }
}

/// Takes a yes or no; not given is no.
pub(super) fn flag(params: &mut Params, name: &'static str) -> ApiResult<bool> {
    match params.one(&[name])?.as_deref() {
        None | Some("0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(_) => Err(ApiError::invalid_parameter(name, "true or false is expected")),
    }
}

/// What an expression would cost: over a range where `start`, `end` or `step` is given, else at one moment.
async fn estimate(asked: Asked) -> ApiResult<Response> {
    let (State(deps), reader, PathOf(slug), RawQuery(query)) = asked;
    let mut params = Params::of_query(query.as_deref())?;
    let text = params.one(&["expr", "query"])?;
    let text = text.ok_or_else(|| ApiError::invalid_parameter("expr", "an expression is required"))?;
    let entered = reader.enter(&slug, Endpoint::Expr)?;
    let now = deps.clock.now();
    let at = params.time("time", now)?;
    let instant = !["start", "end", "step"].iter().any(|name| params.has(name));
    let steps = match at {
        Some(_) if !instant => {
            return Err(ApiError::invalid_parameter("time", "time and a range exclude each other"));
        }
        _ if instant => Steps::once(at.unwrap_or(now)),
        _ => range_steps(&mut params, now, deps.options.range_ms_max, &entered.grant)?,
    };
    let asking = Asking::from(entered).within(timeout(&mut params)?);
    let unknown = params.unknown();
    let work = move |running: &mut Running| {
        unused(running, unknown);
        let expr = running.expression("expr", &text)?;
        let found = running.estimate(&Query { expr, text, steps, instant })?;
        running.body(&[], Style::Specified, |out| {
            out.raw(br#""data":"#);
            out.write(|out| write_estimate(&found, out))
        })
    };
    deps.answer(asking, work).await
}

/// Runs on the query lane.
fn run(running: &mut Running, question: &Question, when: When) -> ApiResult<Answer> {
    let instant = question.mode == Mode::Instant;
    let (expr, text) = match &question.ask {
        Ask::Expression(text) => (running.expression("expr", text)?, text.clone()),
        Ask::Structured(shape) => {
            running.admit_metric(shape.metric())?;
            let least_window_ms = if instant { 0 } else { when.steps.step_ms() };
            let built = shape.build(&running.options, least_window_ms, running.grant.max_range_ms);
            let expr = built.map_err(|error| running.refusal(error))?;
            // Its annotations have no place in a text that nobody wrote.
            (expr, String::new())
        }
    };
    let printed = expr.to_string();
    let query = Query { expr, text, steps: when.steps, instant };
    let (answer, plan) = match question.explain {
        true => running.explain(&query).map(|(answer, plan)| (answer, Some(plan)))?,
        false => (running.evaluate(&query, question.how)?, None),
    };
    let infos = running.annotate(answer.annotations);
    let mut value = answer.value;
    let series = series_count(&value);
    // How many samples went into a sum tells of how many series.
    let insight = running.admit_insight().is_ok();
    running.truncate(&mut value, Some(when.limit));
    if let Ask::Structured(shape) = &question.ask {
        warn_of_unknown(running, shape.metric(), &value)?;
    }
    running.result(value, &infos, Style::Specified, |out| {
        out.extend_from_slice(br#","query":{"expr":"#);
        prom_json::text(&printed, out);
        write_steps(&when.steps, instant, out);
        out.extend_from_slice(br#"},"stats":{"series":"#);
        prom_json::count(series as u64, out);
        if insight {
            out.extend_from_slice(br#","samples":"#);
            prom_json::count(answer.stats.samples, out);
        }
        out.extend_from_slice(br#","elapsed_ms":"#);
        milliseconds(running.elapsed_ms(), out);
        out.push(b'}');
        if let Some(plan) = &plan {
            out.extend_from_slice(br#","explain":"#);
            write_plan(plan, out);
        }
    })
}

/// To the microsecond.
fn milliseconds(ms: f64, out: &mut Vec<u8>) {
    prom_json::number((ms * 1_000.0).round() / 1_000.0, out);
}

fn write_estimate(found: &Estimate, out: &mut Vec<u8>) {
    for (name, value) in [
        (&br#"{"series":"#[..], found.series),
        (br#","samples":"#, found.samples),
        (br#","memory_bytes":"#, found.memory_bytes),
    ] {
        out.extend_from_slice(name);
        prom_json::count(value, out);
    }
    out.push(b'}');
}

/// What a node was expected to cost, what it did cost (no numbers where it was not evaluated by itself), its inputs.
fn write_plan(plan: &PlanNode, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"node":"#);
    prom_json::text(&plan.node, out);
    out.extend_from_slice(br#","estimated":"#);
    let PlanNode { series, samples, memory_bytes, .. } = *plan;
    write_estimate(&Estimate { series, samples, memory_bytes }, out);
    if let Some(actual) = &plan.actual {
        out.extend_from_slice(br#","actual":{"series":"#);
        prom_json::count(actual.series, out);
        out.extend_from_slice(br#","samples":"#);
        prom_json::count(actual.samples, out);
        out.extend_from_slice(br#","elapsed_ms":"#);
        milliseconds(actual.ms, out);
        out.push(b'}');
    }
    out.extend_from_slice(br#","inputs":["#);
    for (place, input) in plan.inputs.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_plan(input, out);
    }
    out.extend_from_slice(b"]}");
}

fn write_steps(steps: &Steps, instant: bool, out: &mut Vec<u8>) {
    if instant {
        out.extend_from_slice(br#","time":"#);
        prom_json::time(steps.start(), out);
        return;
    }
    out.extend_from_slice(br#","start":"#);
    prom_json::time(steps.start(), out);
    out.extend_from_slice(br#","end":"#);
    prom_json::time(steps.end(), out);
    out.extend_from_slice(br#","step":"#);
    prom_json::plain_time(Timestamp::from_ms(steps.step_ms()), out);
}

/// An empty answer for a metric that is there differs from one for a metric that nobody ever sent. Of a scope nothing is
/// told: a metric outside of it is unknown.
fn warn_of_unknown(running: &mut Running, metric: &str, value: &Value) -> ApiResult<()> {
    let is_empty = matches!(value, Value::Vector(series) if series.is_empty())
        || matches!(value, Value::Matrix(series) if series.is_empty());
    if is_empty {
        let named = vec![Matcher::equal(METRIC_NAME, metric)];
        if !running.paced(|paced| paced.exists(&[named], TimeRange::ALL))? {
            running.warn(format!("the metric {metric:?} is not known"));
        }
    }
    Ok(())
}

/// `start`, `end` and `step` with the defaults of API.md C5.
fn range_steps(params: &mut Params, now: Timestamp, range_ms_max: i64, grant: &Grant) -> ApiResult<Steps> {
    const HOUR_MS: i64 = 3_600_000;
    let end = params.time("end", now)?.unwrap_or(now);
    let default_range = HOUR_MS.min(grant.max_range_ms.unwrap_or(HOUR_MS));
    let start = params.time("start", now)?.unwrap_or(end.plus_ms(-default_range));
    let range_ms = end.ms_since(start);
    if range_ms > range_ms_max {
        let message = format!(
            "end - start is {} s, more than the {} s allowed",
            range_ms / 1_000,
            range_ms_max / 1_000
        );
        return Err(ApiError::invalid_parameter("start", message));
    }
    let step =
        params.duration_ms("step")?.unwrap_or(default_step_ms(range_ms).max(grant.min_step_ms.unwrap_or(0)));
    let steps = Steps::new(start, end, step).map_err(|error| {
        let parameter = match error {
            StepsError::EndBeforeStart => "end",
            StepsError::StepNotPositive | StepsError::TooMany => "step",
        };
        ApiError::invalid_parameter(parameter, error.to_string())
    })?;
    admit_steps(grant, &steps)?;
    Ok(steps)
}

/// The smallest of 1, 2, 5, 10, 20, 50, ... seconds that makes 250 points or fewer, but 15 seconds at least.
fn default_step_ms(range_ms: i64) -> i64 {
    const LEAST_MS: i64 = 15_000;
    let wanted = range_ms / 250 + i64::from(range_ms % 250 > 0);
    let mut decade: i64 = 1_000;
    let nice = loop {
        match [1, 2, 5].into_iter().map(|n| decade.saturating_mul(n)).find(|step| *step >= wanted) {
            Some(step) => break step,
            None => decade = decade.saturating_mul(10),
        }
    };
    nice.max(LEAST_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_step_makes_some_two_hundred_points() {
        let hour = 3_600;
        let cases = [
            (0, 15),
            (60, 15),
            (2_500, 15),
            (hour, 20),
            (5_000, 20),
            (5_001, 50),
            (6 * hour, 100),
            (24 * hour, 500),
            (365 * 24 * hour, 200_000),
        ];
        for (range_s, step_s) in cases {
            assert_eq!(default_step_ms(range_s * 1_000) / 1_000, step_s, "{range_s}");
        }
        assert!(default_step_ms(i64::MAX) > 0);
    }
}
