//! One evaluation of a script: as written, pinned with `@` at other times, and instants again as ranges.

use promlet::model::{Steps, Timestamp};
use promlet::promql::syntax::tree::{AtModifier, Expr};
use promlet::promql::syntax::{Caps, Features, parse};
use promlet::promql::{Answer, Budget, Options, Query, QueryError, Value, VectorSample, run};
use promlet::tsdb::Snapshot;

use super::Mode;
use super::expect::Expected;
use super::script::{Eval, EvalKind};

/// Evaluates and compares; the error says which run was wrong, and how.
pub(crate) fn check(eval: &Eval, snapshot: &Snapshot, mode: Mode) -> Result<(), String> {
    let run = Run { snapshot, mode };
    let caps = Caps { features: Features::ALL, ..Caps::default() };
    let expr = match (parse(&eval.query, &caps), &eval.expected.fail) {
        (Ok(parsed), _) => parsed.expr,
        (Err(e), Some(rule)) if rule.allows(&e.to_string()) => return Ok(()),
        (Err(e), _) => return Err(format!("does not parse: {e}")),
    };
    match eval.kind {
        EvalKind::Range { start, end, step_ms } => {
            let steps = Steps::new(start, end, step_ms).map_err(|e| e.to_string())?;
            let answer = run.ask(&expr, &eval.query, steps, false);
            let Some(answer) = judge_error(answer, &eval.expected)? else { return Ok(()) };
            eval.expected.check_annotations(&answer.annotations)?;
            match &answer.value {
                Value::Matrix(matrix) => eval.expected.check_matrix(matrix, start, step_ms),
                other => Err(format!("a range query answered {other:?}")),
            }
        }
        EvalKind::Instant { at } => {
            run.instant(&expr, eval, at)?;
            let mut pinned = expr.clone();
            if !is_unsafe(&expr) && !names_the_query(&expr) && pin(&mut pinned, at) {
                let ms = at.as_ms();
                let others =
                    if ms == 0 { vec![-1_000, 0, 1_000] } else { vec![-10 * ms, 0, ms / 5, ms, 10 * ms] };
                for other in others {
                    run.instant(&pinned, eval, Timestamp::from_ms(other))
                        .map_err(|e| format!("pinned at {ms} ms and evaluated at {other} ms: {e}"))?;
                }
            }
            Ok(())
        }
    }
}

/// What all runs of an evaluation share.
struct Run<'s> {
    snapshot: &'s Snapshot,
    mode: Mode,
}

impl Run<'_> {
    /// One instant run, and the same as a range around it.
    fn instant(&self, expr: &Expr, eval: &Eval, at: Timestamp) -> Result<(), String> {
        let expected = &eval.expected;
        let answer = self.ask(expr, &eval.query, Steps::once(at), true);
        let Some(answer) = judge_error(answer, expected)? else { return Ok(()) };
        expected.check_annotations(&answer.annotations)?;
        expected.check_instant(&answer.value, at)?;
        let own_time = ["start()", "end()", "range()", "step()"].iter().any(|call| eval.query.contains(call));
        if expected.ordered || own_time || matches!(answer.value, Value::Text { .. } | Value::Matrix(_)) {
            return Ok(());
        }
        let steps = Steps::new(at.plus_ms(-60_000), at.plus_ms(60_000), 60_000).map_err(|e| e.to_string())?;
        let again = self.ask(expr, &eval.query, steps, false).map_err(|e| format!("as a range: {e}"))?;
        let Value::Matrix(matrix) = again.value else {
            return Err("a range query answered no matrix".into());
        };
        if !matrix.is_sorted_by(|a, b| a.labels < b.labels) {
            return Err("as a range: the series are not sorted by labels".into());
        }
        let points = matrix.iter().filter_map(|series| {
            let float = series.samples.iter().find(|sample| sample.at == at);
            let histogram = series.histograms.iter().find(|sample| sample.at == at);
            let value = float.map(|sample| sample.value).or(histogram.map(|_| f64::NAN))?;
            let histogram = histogram.map(|sample| sample.value.clone());
            Some(VectorSample { labels: series.labels.clone(), at, value, histogram })
        });
        let points: Vec<VectorSample> = points.collect();
        let result = match (expected.scalar, &points[..]) {
            (Some(_), [point]) => expected.check_scalar(point.value),
            _ => expected.check_vector(&points, at),
        };
        result.map_err(|e| format!("as a range: {e}"))
    }

    fn ask(&self, expr: &Expr, text: &str, steps: Steps, instant: bool) -> Result<Answer, QueryError> {
        let query = Query { expr: expr.clone(), text: text.to_owned(), steps, instant };
        let options = Options {
            delayed_name_removal: self.mode.delayed_name_removal,
            use_start_timestamps: true,
            ..Options::default()
        };
        run(&query, self.snapshot, &options, &Budget::default())
    }
}

/// The answer, or nothing where the expected error came.
fn judge_error(answer: Result<Answer, QueryError>, expected: &Expected) -> Result<Option<Answer>, String> {
    match (answer, &expected.fail) {
        (Ok(answer), None) => Ok(Some(answer)),
        (Ok(answer), Some(_)) => Err(format!("expected an error, found {:?}", answer.value)),
        (Err(e), None) => Err(format!("failed: {e}")),
        (Err(e), Some(rule)) if rule.allows(&e.to_string()) => Ok(None),
        (Err(e), Some(rule)) => Err(format!("failed with {e:?}, expected {rule:?}")),
    }
}

/// Functions whose answer depends on the evaluation time even where every selector is pinned.
const UNSAFE: [&str; 14] = [
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "days_in_month",
    "end",
    "hour",
    "minute",
    "month",
    "predict_linear",
    "range",
    "start",
    "step",
    "time",
    "timestamp",
];

fn is_unsafe(expr: &Expr) -> bool {
    match expr {
        Expr::Number(_) | Expr::Text(_) | Expr::Bytes(_) | Expr::Vector(_) | Expr::Matrix(_) => false,
        Expr::Subquery(subquery) => subquery.at.is_none() && is_unsafe(&subquery.expr),
        Expr::Negate(inner) => is_unsafe(inner),
        Expr::Binary(binary) => is_unsafe(&binary.lhs) || is_unsafe(&binary.rhs),
        Expr::Call(call) => UNSAFE.contains(&call.name.as_str()) || call.args.iter().any(is_unsafe),
        Expr::Aggregate(aggregate) => {
            is_unsafe(&aggregate.expr) || aggregate.param.as_ref().is_some_and(is_unsafe)
        }
    }
}

/// Whether an `@ start()` or `@ end()` makes the answer depend on when the query is asked.
fn names_the_query(expr: &Expr) -> bool {
    let named = |at: Option<AtModifier>| matches!(at, Some(AtModifier::Start | AtModifier::End));
    match expr {
        Expr::Number(_) | Expr::Text(_) | Expr::Bytes(_) => false,
        Expr::Vector(selector) => named(selector.at),
        Expr::Matrix(matrix) => named(matrix.selector.at),
        Expr::Subquery(subquery) => named(subquery.at) || names_the_query(&subquery.expr),
        Expr::Negate(inner) => names_the_query(inner),
        Expr::Binary(binary) => names_the_query(&binary.lhs) || names_the_query(&binary.rhs),
        Expr::Call(call) => call.args.iter().any(names_the_query),
        Expr::Aggregate(aggregate) => {
            names_the_query(&aggregate.expr) || aggregate.param.as_ref().is_some_and(names_the_query)
        }
    }
}

/// Puts `@ at` on what has none; says whether there was anything to pin.
fn pin(expr: &mut Expr, at: Timestamp) -> bool {
    let put =
        |place: &mut Option<AtModifier>| place.get_or_insert(AtModifier::Time(at)) == &AtModifier::Time(at);
    match expr {
        Expr::Number(_) | Expr::Text(_) | Expr::Bytes(_) => false,
        Expr::Vector(selector) => put(&mut selector.at),
        Expr::Matrix(matrix) => put(&mut matrix.selector.at),
        Expr::Subquery(subquery) => put(&mut subquery.at),
        Expr::Negate(inner) => pin(inner, at),
        Expr::Binary(binary) => {
            let left = pin(&mut binary.lhs, at);
            pin(&mut binary.rhs, at) || left
        }
        Expr::Call(call) => {
            let mut pinned = false;
            for arg in &mut call.args {
                pinned |= pin(arg, at);
            }
            pinned
        }
        Expr::Aggregate(aggregate) => {
            let param = aggregate.param.as_mut().is_some_and(|param| pin(param, at));
            pin(&mut aggregate.expr, at) || param
        }
    }
}
