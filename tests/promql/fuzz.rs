//! For any query, parsing ends, evaluation stays within its limits, nothing panics, and a range
//! query equals its instant queries. Queries are typed expressions of a grammar, and queries of the
//! scripts with changed bytes.

use std::cell::Cell;

use promlet::model::{Labels, Steps, Timestamp};
use promlet::promql::syntax::{Caps, Features, parse};
use promlet::promql::{Budget, Limits, Options, Query, QueryError, Value, run};
use promlet::tsdb::Snapshot;

use super::chance::Chance;
use super::expressions::{Grammar, Range};
use super::runner;

/// Another seed finds other expressions; each run with one seed is the same.
const SEED: u64 = 20_261_121;

/// Metrics of every kind, with the names that the grammar uses.
const DATA: &str = r#"
load 15s
  requests_total{job="api", instance="a:1", code="200"} 0+3x20 1+2x19
  requests_total{job="api", instance="b:1", code="500"} 5+1x9 stale _x9 1+1x20
  errors_total{job="api", instance="b:1", code="500"} 0+1x40
  inflight{job="api", instance="a:1"} 1 2 3 _ 5 1 NaN 2 3 4 Inf 2 1 0 0 0 1x20
  inflight{job="api", instance="b:1"} 2x40
  target_info{job="api", instance="a:1", version="1.9"} 1x40
  temperature{floor="0", room="lab"} 18.5 19.25 20 -Inf 21 NaN 17.75x34
  temperature{floor="1", room="roof"} 1.5+0.5x40
  level{floor="0", room="lab"} -1 0 1 -1 0 1 2 2 2x30
  level{floor="1", room="attic"} 3-1x40
  odd{floor="0", room="lab"} 1e300 -1e300 1e308 1e308 5e-324 -0.0 NaN Inf -Inf 1x30
  open{floor="1", room="roof"} 0 1 0 1 0 1 0 1 0 1 1x30
  churn_total{pod="p1", node="n2"} _x10 1+1x10 stale
  gappy{pod="p1", node="n2"} 1 _x9 2 stale _x3 4 _x9 5 6
  gappy{pod="p2", node="n1"} _ 1 _ 2 _ 3 _ 4 stale 5
  sparse{pod="p1", node="n2"} 1 _x19 2 _x19 3
  latency_seconds_bucket{job="api", le="0.1"} 0+1x40
  latency_seconds_bucket{job="api", le="1"} 0+2x40
  latency_seconds_bucket{job="api", le="+Inf"} 0+3x40
  latency_seconds_bucket{job="odd", le="much"} 0+1x40
  latency_seconds_bucket{job="odd", le="1"} 5 4 6 3 7x30
  latency_seconds_bucket{job="odd", le="+Inf"} 5x40
  latency_seconds_sum{job="api"} 0+0.5x40
  weight{job="api"} 2x40
  weight{job="odd"} 1 2 3 4 5x36
  size_bytes{job="api"} {{schema:1 count:3 sum:4 z_bucket:1 z_bucket_w:0.001 buckets:[1 1]}}+{{schema:1 count:2 sum:3 buckets:[1 0 1]}}x15 {{schema:0 count:2 sum:3 buckets:[1 1]}}x20
  size_bytes{job="odd"} {{count:2 sum:NaN buckets:[1 1]}}x9 stale _x5 {{count:9 sum:-4 n_buckets:[4 5]}}x20
  size_float{job="api"} {{schema:2 count:1.5 sum:4 buckets:[0.5 1]}}x40
  depth{job="api"} {{count:4 sum:4 buckets:[2 2] counter_reset_hint:gauge}}x20 {{count:1 sum:1 buckets:[1] counter_reset_hint:gauge}}x20
  wait_seconds{job="api"} {{schema:-53 count:3 sum:4 custom_values:[0.5 1 2] buckets:[1 1 0 1]}}+{{schema:-53 count:1 sum:1 custom_values:[0.5 1 2] buckets:[1]}}x40
  wait_seconds{job="odd"} {{schema:-53 count:3 sum:4 custom_values:[0.25 1] buckets:[1 1 1]}}x40
  mixed{job="api"} 1 2 3 {{count:2 sum:3 buckets:[1 1]}}x9 4 5 6 {{schema:-53 count:1 sum:1 custom_values:[1] buckets:[1]}}x9 7x9
  {"my.metric", "a.b"="ä", "ключ"="1", job="api"} 1 2 3 4 5 6 7 8 9x30
"#;

const END_S: i64 = 600;

fn caps() -> Caps {
    Caps { features: Features::ALL, ..Caps::default() }
}

/// Evaluates a query with low limits. The work is bounded by the number of calls of `expired`.
fn ask(text: &str, steps: Steps, instant: bool, snapshot: &Snapshot) -> Result<Value, QueryError> {
    let expr = match parse(text, &caps()) {
        Ok(parsed) => parsed.expr,
        Err(e) => return Err(QueryError::BadQuery(e.to_string())),
    };
    const CHECKS_MAX: u32 = 100_000;
    let checks = Cell::new(0);
    let expired = || {
        checks.set(checks.get() + 1);
        checks.get() > CHECKS_MAX
    };
    let limits = Limits { samples_max: 500_000, series_max: 1_000, memory_bytes_max: 16 << 20 };
    let options = Options { limits, ..Options::default() };
    let budget = Budget { expired: Some(&expired), ..Budget::default() };
    let query = Query { expr: expr.into(), text: text.into(), steps, instant };
    run(&query, snapshot, &options, &budget).map(|answer| answer.value)
}

/// A point of a series, rendered so that equal points are equal: the value's bits, or the whole
/// histogram.
type Point = (Labels, i64, String);

fn render(value: f64) -> String {
    // All NaNs are equal.
    if value.is_nan() { "NaN".into() } else { format!("{value:?}") }
}

fn points(value: Value) -> Vec<Point> {
    let mut points: Vec<Point> = match value {
        Value::Scalar { at, value } => vec![(Labels::default(), at.as_ms(), render(value))],
        Value::Text { at, text } => vec![(Labels::default(), at.as_ms(), text)],
        Value::Vector(vector) => vector
            .into_iter()
            .map(|one| {
                let value =
                    one.histogram.map_or_else(|| render(one.value), |histogram| format!("{histogram:?}"));
                (one.labels, one.at.as_ms(), value)
            })
            .collect(),
        Value::Matrix(matrix) => matrix
            .into_iter()
            .flat_map(|series| {
                let labels = series.labels;
                let floats = series.samples.into_iter().map(|sample| (sample.at, render(sample.value)));
                let native =
                    series.histograms.into_iter().map(|point| (point.at, format!("{:?}", point.value)));
                let all: Vec<_> = floats.chain(native).collect();
                all.into_iter().map(move |(at, value)| (labels.clone(), at.as_ms(), value))
            })
            .collect(),
    };
    points.sort();
    points
}

fn steps(chance: &mut Chance) -> Steps {
    let start = chance.between(-60_000, END_S * 1_000);
    let step = *chance.pick(&[1_000, 15_000, 37_001, 60_000]);
    let end = start + step * chance.between(0, 5);
    Steps::new(Timestamp::from_ms(start), Timestamp::from_ms(end), step).expect("a grid")
}

#[test]
fn a_range_query_of_any_expression_equals_its_instant_queries() {
    let snapshot = runner::store(DATA).expect("a script");
    let mut chance = Chance::new(SEED);
    let (mut answered, mut wrong) = (0, Vec::new());
    for _ in 0..1_200 {
        let range = Range { begin_ms: 0, end_ms: END_S * 1_000 };
        let text = Grammar::everything(&mut chance, range).expression(true).to_string();
        // These functions have another meaning in an instant query by design, or sort, so that they
        // add in another order.
        let others = ["start()", "end()", "range()", "step()", "sort", "topk", "bottomk"];
        let differs_by_design = others.iter().any(|word| text.contains(word));
        let printed = parse(&text, &caps()).unwrap_or_else(|e| panic!("{text}: {e}")).expr.to_string();
        let again = parse(&printed, &caps()).unwrap_or_else(|e| panic!("{text} prints as {printed}: {e}"));
        assert_eq!(again.expr.to_string(), printed, "{text}");
        let steps = steps(&mut chance);
        let whole = ask(&text, steps, false, &snapshot).map(points);
        if differs_by_design {
            continue;
        }
        let one_by_one: Result<Vec<Vec<Point>>, QueryError> =
            steps.iter().map(|at| ask(&text, Steps::once(at), true, &snapshot).map(points)).collect();
        let one_by_one = one_by_one.map(|all| {
            let mut all: Vec<Point> = all.into_iter().flatten().collect();
            all.sort();
            all
        });
        answered += usize::from(whole.as_ref().is_ok_and(|points| !points.is_empty()));
        let same = match (&whole, &one_by_one) {
            (Ok(whole), Ok(one_by_one)) => whole == one_by_one,
            (Err(_), Err(_)) => true,
            _ => false,
        };
        if !same {
            wrong.push(format!("{text}\n  {steps:?}\n  whole {whole:?}\n  one by one {one_by_one:?}"));
        }
    }
    assert!(answered > 500, "{answered} results have points");
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Fragments that are inserted where bytes are changed: tokens of the language, and texts that are
/// none.
const FRAGMENTS: [&str; 60] = [
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "@",
    "-",
    "+",
    "*",
    "/",
    "%",
    "^",
    "==",
    "!=",
    "<",
    ">=",
    "</",
    ">/",
    "=~",
    "!~",
    "\"",
    "'",
    "`",
    "\\",
    "\\xff",
    "\n",
    "#",
    " ",
    "\u{0}",
    "ä",
    "1e308",
    "1e-400",
    "0x",
    "5m",
    "1y1s",
    "NaN",
    "Inf",
    "offset ",
    " by ",
    " without ",
    " on ",
    " ignoring ",
    " group_left ",
    " bool ",
    " and ",
    " or ",
    " unless ",
    " fill (",
    " anchored",
    " smoothed",
    "[5m:]",
    "[1s:1ms]",
    "rate(",
    "sum(",
    "topk(1e18, ",
    "label_replace(",
    "{__name__=~\".+\"}",
];

fn mutated(chance: &mut Chance, texts: &[&str]) -> String {
    let mut bytes = chance.pick(texts).as_bytes().to_vec();
    for _ in 0..chance.between(1, 3) {
        let position = |chance: &mut Chance, bytes: &[u8]| chance.below(bytes.len() + 1);
        let (from, to) = (position(chance, &bytes), position(chance, &bytes));
        let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 12));
        match chance.below(6) {
            0 => {
                bytes.drain(from..to);
            }
            1 => {
                let fragment = bytes[from..to].to_vec();
                bytes.splice(to..to, fragment);
            }
            2 if from < bytes.len() => bytes[from] = u8::try_from(chance.below(256)).expect("a byte"),
            3 => {
                let other = chance.pick(texts).as_bytes();
                let end = position(chance, other);
                bytes.truncate(from);
                bytes.extend_from_slice(&other[end..]);
            }
            _ => {
                bytes.splice(from..from, chance.pick(&FRAGMENTS).bytes());
            }
        }
        bytes.truncate(2_000);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn changed_queries_are_evaluated_or_refused() {
    let snapshot = runner::store(DATA).expect("a script");
    let scripts = super::scripts();
    let queries: Vec<&str> = super::evaluations(&scripts).filter_map(query_of).collect();
    assert!(queries.len() > 1_000, "{} queries", queries.len());
    let mut chance = Chance::new(SEED ^ 1);
    let (mut parsed, mut answered) = (0, 0);
    for _ in 0..12_000 {
        let text = mutated(&mut chance, &queries);
        let Ok(expr) = parse(&text, &caps()).map(|parsed| parsed.expr) else { continue };
        parsed += 1;
        let printed = expr.to_string();
        let again =
            parse(&printed, &caps()).unwrap_or_else(|e| panic!("{text:?} prints as {printed:?}: {e}"));
        assert_eq!(again.expr.to_string(), printed, "{text:?}");
        let steps = steps(&mut chance);
        let instant = chance.percent(50);
        let steps = if instant { Steps::once(steps.start()) } else { steps };
        answered += usize::from(ask(&text, steps, instant, &snapshot).is_ok());
    }
    assert!(parsed > 500 && answered > 400, "{parsed} queries parse, {answered} have a result");
}

/// Returns the expression that a line of a script evaluates.
fn query_of(line: &str) -> Option<&str> {
    let words = if line.contains(" instant ") { 4 } else { 8 };
    line.splitn(words + 1, ' ').nth(words)
}
