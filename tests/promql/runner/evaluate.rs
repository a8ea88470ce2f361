//! One evaluation of a script: as written, pinned with `@` at other times, and instant queries also
//! as range queries.

use promlet::model::{Steps, Timestamp};
use promlet::promql::syntax::tree::{AtModifier, Expr};
use promlet::promql::syntax::{Caps, Features, parse};
use promlet::promql::{Budget, Options, Query, QueryError, QueryResult, Value, VectorSample, run};
use promlet::tsdb::Snapshot;

use super::Mode;
use super::expect::Expected;
use super::script::{Eval, EvalKind};

/// Evaluates and compares. The error names the evaluation that was wrong, and how.
pub(crate) fn check(eval: &Eval, snapshot: &Snapshot, mode: Mode) -> Result<(), String> {
    let run = Evaluator { snapshot, mode };
    let caps = Caps { features: Features::ALL, ..Caps::default() };
    let expr = match (parse(&eval.query, &caps), &eval.expected.fail) {
        (Ok(parsed), _) => parsed.expr,
        (Err(e), Some(rule)) if rule.allows(&e.to_string()) => return Ok(()),
        (Err(e), _) => return Err(format!("does not parse: {e}")),
    };
    match eval.kind {
        EvalKind::Range { start, end, step_ms } => {
            let steps = Steps::new(start, end, step_ms).map_err(|e| e.to_string())?;
            let result = run.evaluate(&expr, &eval.query, steps, false);
            let Some(result) = result_unless_failed(result, &eval.expected)? else { return Ok(()) };
            eval.expected.check_annotations(&result.annotations)?;
            match &result.value {
                Value::Matrix(matrix) => eval.expected.check_matrix(matrix, start, step_ms),
                other => Err(format!("a range query returned {other:?}")),
            }
        }
        EvalKind::Instant { at } => {
            run.instant(&expr, eval, at)?;
            let mut pinned = expr.clone();
            if !depends_on_time(&expr) && !depends_on_range(&expr) && pin(&mut pinned, at) {
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

/// The context that all evaluations share.
struct Evaluator<'s> {
    snapshot: &'s Snapshot,
    mode: Mode,
}

impl Evaluator<'_> {
    /// Evaluates an instant query, and the same expression as a range query around its time.
    fn instant(&self, expr: &Expr, eval: &Eval, at: Timestamp) -> Result<(), String> {
        let expected = &eval.expected;
        let result = self.evaluate(expr, &eval.query, Steps::once(at), true);
        let Some(result) = result_unless_failed(result, expected)? else { return Ok(()) };
        expected.check_annotations(&result.annotations)?;
        expected.check_instant(&result.value, at)?;
        let own_time = ["start()", "end()", "range()", "step()"].iter().any(|call| eval.query.contains(call));
        if expected.ordered || own_time || matches!(result.value, Value::Text { .. } | Value::Matrix(_)) {
            return Ok(());
        }
        let steps = Steps::new(at.plus_ms(-60_000), at.plus_ms(60_000), 60_000).map_err(|e| e.to_string())?;
        let again = self.evaluate(expr, &eval.query, steps, false).map_err(|e| format!("as a range: {e}"))?;
        let Value::Matrix(matrix) = again.value else {
            return Err("a range query returned no matrix".into());
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

    fn evaluate(
        &self,
        expr: &Expr,
        text: &str,
        steps: Steps,
        instant: bool,
    ) -> Result<QueryResult, QueryError> {
        let query = Query { expr: expr.clone().into(), text: text.into(), steps, instant };
        let options = Options {
            delayed_name_removal: self.mode.delayed_name_removal,
            use_start_timestamps: true,
            ..Options::default()
        };
        run(&query, self.snapshot, &options, &Budget::default())
    }
}

/// Returns the result, or `None` if the expected error occurred.
fn result_unless_failed(
    result: Result<QueryResult, QueryError>,
    expected: &Expected,
) -> Result<Option<QueryResult>, String> {
    match (result, &expected.fail) {
        (Ok(result), None) => Ok(Some(result)),
        (Ok(result), Some(_)) => Err(format!("expected an error, found {:?}", result.value)),
        (Err(e), None) => Err(format!("failed: {e}")),
        (Err(e), Some(rule)) if rule.allows(&e.to_string()) => Ok(None),
        (Err(e), Some(rule)) => Err(format!("failed with {e:?}, expected {rule:?}")),
    }
}

/// Functions whose result depends on the evaluation time even if every selector is pinned.
const TIME_DEPENDENT: [&str; 14] = [
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

fn depends_on_time(expr: &Expr) -> bool {
    match expr {
        Expr::Number(_) | Expr::Text(_) | Expr::Bytes(_) | Expr::Vector(_) | Expr::Matrix(_) => false,
        Expr::Subquery(subquery) => subquery.at.is_none() && depends_on_time(&subquery.expr),
        Expr::Negate(inner) => depends_on_time(inner),
        Expr::Binary(binary) => depends_on_time(&binary.lhs) || depends_on_time(&binary.rhs),
        Expr::Call(call) => {
            TIME_DEPENDENT.contains(&call.name.as_str()) || call.args.iter().any(depends_on_time)
        }
        Expr::Aggregate(aggregate) => {
            depends_on_time(&aggregate.expr) || aggregate.param.as_ref().is_some_and(depends_on_time)
        }
    }
}

/// Returns whether an `@ start()` or `@ end()` makes the result depend on the query's range.
fn depends_on_range(expr: &Expr) -> bool {
    let named = |at: Option<AtModifier>| matches!(at, Some(AtModifier::Start | AtModifier::End));
    match expr {
        Expr::Number(_) | Expr::Text(_) | Expr::Bytes(_) => false,
        Expr::Vector(selector) => named(selector.at),
        Expr::Matrix(matrix) => named(matrix.selector.at),
        Expr::Subquery(subquery) => named(subquery.at) || depends_on_range(&subquery.expr),
        Expr::Negate(inner) => depends_on_range(inner),
        Expr::Binary(binary) => depends_on_range(&binary.lhs) || depends_on_range(&binary.rhs),
        Expr::Call(call) => call.args.iter().any(depends_on_range),
        Expr::Aggregate(aggregate) => {
            depends_on_range(&aggregate.expr) || aggregate.param.as_ref().is_some_and(depends_on_range)
        }
    }
}

/// Puts `@ at` on every selector and subquery without one. Returns whether there was anything to
/// pin.
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
