//! Properties over random data: a range query equals its instant queries, and windows match their
//! definitions.

use promlet::model::{Access, BatchBuilder, Labels, OrgId, Sample, Steps, Timestamp, is_stale, stale_nan};
use promlet::promql::syntax::{Caps, Features, parse};
use promlet::promql::{Budget, Options, Query, QueryError, QueryResult, Value, run};
use promlet::tsdb::{Snapshot, Tsdb};
use proptest::prelude::*;

const ORG: OrgId = OrgId(1);

/// The samples of one random series: times in milliseconds and values.
type Samples = Vec<(i64, f64)>;

fn store(series: &[Samples]) -> Snapshot {
    let mut batch = BatchBuilder::default();
    for (i, samples) in series.iter().enumerate() {
        let (id, group) = (i.to_string(), (i % 2).to_string());
        let labels =
            Labels::from_pairs([("__name__", "m_total"), ("id", id.as_str()), ("group", group.as_str())]);
        batch.series(
            &labels,
            samples.iter().map(|(at, value)| Sample { at: Timestamp::from_ms(*at), value: *value }),
        );
    }
    let store = Tsdb::scaffold();
    let report = store.append(ORG, &batch.batch(), Timestamp::from_s(1_000_000)).expect("stored");
    assert_eq!(report.refused, 0, "{:?}", report.refusals);
    store.snapshot(&Access::whole(ORG))
}

fn evaluate(text: &str, steps: Steps, instant: bool, snapshot: &Snapshot) -> Result<QueryResult, QueryError> {
    let expr = parse(text, &Caps { features: Features::ALL, ..Caps::default() })
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .expr;
    let query = Query { expr: expr.into(), text: text.into(), steps, instant };
    run(&query, snapshot, &Options::default(), &Budget::default())
}

/// Returns the bits, so that -0 differs from 0; all NaNs are equal.
fn bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
}

/// One value of each series at each step: `(labels, step, bits)`, sorted.
type Points = Vec<(Labels, i64, u64)>;

fn as_range(text: &str, steps: Steps, snapshot: &Snapshot) -> Result<Points, QueryError> {
    let Value::Matrix(matrix) = evaluate(text, steps, false, snapshot)?.value else {
        panic!("a range query returns a matrix")
    };
    let points = matrix.iter().flat_map(|series| {
        series.samples.iter().map(|sample| (series.labels.clone(), sample.at.as_ms(), bits(sample.value)))
    });
    let mut points: Points = points.collect();
    points.sort();
    Ok(points)
}

fn as_instants(text: &str, steps: Steps, snapshot: &Snapshot) -> Result<Points, QueryError> {
    let mut points = Points::new();
    for at in steps.iter() {
        match evaluate(text, Steps::once(at), true, snapshot)?.value {
            Value::Vector(vector) => {
                points
                    .extend(vector.into_iter().map(|sample| (sample.labels, at.as_ms(), bits(sample.value))));
            }
            Value::Scalar { value, .. } => points.push((Labels::default(), at.as_ms(), bits(value))),
            other => panic!("{text} answered {other:?}"),
        }
    }
    points.sort();
    Ok(points)
}

/// Values of moderate size, for which rounding errors are small.
fn moderate() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => (0..20i32).prop_map(f64::from),
        2 => -1e6..1e6f64,
        1 => prop_oneof![Just(f64::NAN), Just(stale_nan()), Just(f64::INFINITY), Just(-0.0)],
    ]
}

fn extreme() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => (0..20i32).prop_map(f64::from),
        2 => -1e6..1e6f64,
        1 => Just(f64::NAN),
        1 => Just(stale_nan()),
        1 => Just(f64::INFINITY),
        1 => prop_oneof![Just(1e300), Just(-1e300), Just(1e-300), Just(-0.0)],
    ]
}

fn samples(value: impl Strategy<Value = f64>) -> impl Strategy<Value = Samples> {
    let gap = prop_oneof![3 => Just(15_000i64), 1 => 1..60_000i64, 1 => 60_000..700_000i64];
    (-100_000..100_000i64, prop::collection::vec((gap, value), 0..40)).prop_map(|(start, gaps)| {
        let mut at = start;
        let mut samples = Samples::new();
        for (gap, value) in gaps {
            at += gap;
            samples.push((at, value));
        }
        samples
    })
}

fn series() -> impl Strategy<Value = Vec<Samples>> {
    prop::collection::vec(samples(moderate()), 1..5)
}

fn steps() -> impl Strategy<Value = Steps> {
    (-200_000..900_000i64, 0..12i64, 1..90_000i64).prop_map(|(start, count, step)| {
        let (first, last) = (Timestamp::from_ms(start), Timestamp::from_ms(start + count * step));
        Steps::new(first, last, step).expect("a grid")
    })
}

const WINDOWED: [&str; 24] = [
    "rate",
    "increase",
    "delta",
    "irate",
    "idelta",
    "resets",
    "changes",
    "deriv",
    "avg_over_time",
    "sum_over_time",
    "min_over_time",
    "max_over_time",
    "count_over_time",
    "last_over_time",
    "first_over_time",
    "present_over_time",
    "stddev_over_time",
    "stdvar_over_time",
    "mad_over_time",
    "ts_of_min_over_time",
    "ts_of_max_over_time",
    "ts_of_first_over_time",
    "ts_of_last_over_time",
    "absent_over_time",
];

/// Random modifiers of a selector or window: offset and pin.
fn modifiers() -> impl Strategy<Value = String> {
    let offset = prop_oneof![3 => Just(String::new()), 1 => (-90_000..90_000i64).prop_map(|ms| {
        let sign = if ms < 0 { "-" } else { "" };
        format!(" offset {sign}{}ms", ms.abs())
    })];
    let at = prop_oneof![5 => Just(String::new()), 1 => (-100..900i64).prop_map(|s| format!(" @ {s}"))];
    (offset, at).prop_map(|(offset, at)| offset + &at)
}

fn selector() -> impl Strategy<Value = String> {
    prop_oneof![Just("m_total"), Just(r#"m_total{group="0"}"#), Just(r#"{__name__="m_total",id!="1"}"#)]
        .prop_map(str::to_owned)
}

fn expression() -> impl Strategy<Value = String> {
    let windowed = || prop::sample::select(&WINDOWED[..]);
    let range = || (1..400_000i64).prop_map(|ms| format!("{ms}ms"));
    let leaf = prop_oneof![
        (selector(), modifiers()).prop_map(|(selector, modifiers)| selector + &modifiers),
        (windowed(), selector(), range(), modifiers())
            .prop_map(|(f, s, range, m)| format!("{f}({s}[{range}]{m})")),
        (selector(), modifiers()).prop_map(|(s, m)| format!("timestamp({s}{m})")),
        Just("vector(time())".to_owned()),
    ];
    leaf.prop_recursive(3, 8, 2, move |inner| {
        let pair = (inner.clone(), inner.clone());
        let aggregations =
            prop::sample::select(&["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"][..]);
        let grouping = prop::sample::select(&["", "by (group)", "without (id)"][..]);
        let arithmetic = prop::sample::select(
            &[
                "+",
                "-",
                "*",
                "/",
                "%",
                ">",
                "==",
                "!= bool",
                "<= bool",
                "* on (group)",
                ">= on (group, id)",
                "+ on (group) group_left (id)",
                "- ignoring (id) group_right ()",
                "+ on (id) fill (2)",
            ][..],
        );
        let plain = prop::sample::select(&["+", "-", "*", "^", "atan2", ">", "< bool"][..]);
        let sets = prop::sample::select(
            &["and", "or", "unless", "and on (group)", "or on (id)", "unless on (group)"][..],
        );
        prop_oneof![
            (aggregations, grouping.clone(), inner.clone()).prop_map(|(a, g, e)| format!("{a} {g} ({e})")),
            (0..4i32, grouping, inner.clone()).prop_map(|(k, g, e)| format!("topk {g} ({k}, {e})")),
            (arithmetic, pair.clone()).prop_map(|(op, (a, b))| format!("({a}) {op} ({b})")),
            (plain, inner.clone()).prop_map(|(op, e)| format!("({e}) {op} 3")),
            (sets, pair).prop_map(|(op, (a, b))| format!("({a}) {op} ({b})")),
            inner.clone().prop_map(|e| format!("-({e})")),
            inner.clone().prop_map(|e| format!("abs({e})")),
            inner.clone().prop_map(|e| format!("vector(scalar({e}))")),
            inner.clone().prop_map(|e| format!("absent({e})")),
            (windowed(), inner, 1..200_000i64, 5_000..70_000i64, modifiers())
                .prop_map(|(f, e, range, step, m)| format!("{f}(({e})[{range}ms:{step}ms]{m})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_range_query_equals_its_instant_queries(series in series(), steps in steps(), text in expression()) {
        let snapshot = store(&series);
        match (as_range(&text, steps, &snapshot), as_instants(&text, steps, &snapshot)) {
            (Ok(range), Ok(instants)) => {
                prop_assert!(same(&range, &instants), "{}:\n{:?}\n{:?}", text, range, instants);
            }
            // An instant query fails at the first wrong step, so its message may differ.
            (Err(_), Err(_)) => {}
            (range, instants) => prop_assert!(
                only_merged(&range, &instants), "{}: {:?} as a range, {:?} as instants", text, range, instants
            ),
        }
    }

    #[test]
    fn functions_of_windows_match_their_definitions(
        samples in samples(extreme()),
        steps in steps(),
        range_ms in 1..400_000i64,
        offset_ms in -60_000..60_000i64,
    ) {
        let snapshot = store(std::slice::from_ref(&samples));
        for (name, definition) in DEFINITIONS {
            let sign = if offset_ms < 0 { "-" } else { "" };
            let text = format!("{name}(m_total[{range_ms}ms] offset {sign}{}ms)", offset_ms.abs());
            let mut expected = Vec::new();
            for at in steps.iter() {
                let end = at.as_ms() - offset_ms;
                let start = end - range_ms;
                let inside = samples.iter().filter(|(at, value)| *at > start && *at <= end && !is_stale(*value));
                let window: Samples = inside.copied().collect();
                if let Some(value) = definition(&window, start, end) {
                    expected.push((at.as_ms(), bits(value)));
                }
            }
            let found = as_range(&text, steps, &snapshot).expect("has an answer");
            let found: Vec<(i64, u64)> = found.into_iter().map(|(_, at, bits)| (at, bits)).collect();
            prop_assert_eq!(found, expected, "{}", text);
        }
    }
}

/// Compares apart from rounding: series are added in the order of their rows, which may differ if
/// series alternate.
fn same(range: &Points, instants: &Points) -> bool {
    range.len() == instants.len()
        && range.iter().zip(instants).all(|(a, b)| {
            let (x, y) = (f64::from_bits(a.2), f64::from_bits(b.2));
            (&a.0, a.1) == (&b.0, b.1)
                && (a.2 == b.2 || (x - y).abs() <= 1e-9 * x.abs().max(y.abs()).max(1.0))
        })
}

/// Functions of windows refuse equal label sets over a whole range, not only at one step.
fn only_merged(range: &Result<Points, QueryError>, instants: &Result<Points, QueryError>) -> bool {
    instants.is_ok() && matches!(range, Err(e) if e.to_string().contains("same labelset"))
}

type Definition = fn(&Samples, i64, i64) -> Option<f64>;

/// Simple definitions, which compute each window by itself.
const DEFINITIONS: [(&str, Definition); 8] = [
    ("rate", |window, start, end| {
        extrapolate(window, start, end, true)
            .map(|(change, factor)| change * (factor / ((end - start) as f64 / 1000.0)))
    }),
    ("increase", |window, start, end| {
        extrapolate(window, start, end, true).map(|(change, factor)| change * factor)
    }),
    ("delta", |window, start, end| {
        extrapolate(window, start, end, false).map(|(change, factor)| change * factor)
    }),
    ("resets", |window, _, _| {
        let drops = window.windows(2).filter(|pair| pair[1].1 < pair[0].1).count();
        (!window.is_empty()).then_some(drops as f64)
    }),
    ("count_over_time", |window, _, _| (!window.is_empty()).then_some(window.len() as f64)),
    ("last_over_time", |window, _, _| window.last().map(|(_, value)| *value)),
    ("max_over_time", |window, _, _| {
        let known = window.iter().map(|(_, value)| *value).filter(|value| !value.is_nan());
        let most = known.fold(None, |most: Option<f64>, value| match most {
            Some(most) if most >= value => Some(most),
            _ => Some(value),
        });
        if window.is_empty() { None } else { Some(most.unwrap_or(f64::NAN)) }
    }),
    ("irate", |window, _, _| {
        let [.., (before_at, before), (at, last)] = window[..] else { return None };
        let change = if last < before { last } else { last - before };
        Some(change / ((at - before_at) as f64 / 1000.0))
    }),
];

/// Prometheus' extrapolation, literally: the change, and the ratio of the extrapolated range to the
/// sampled one.
fn extrapolate(window: &Samples, start: i64, end: i64, counter: bool) -> Option<(f64, f64)> {
    let (first, last) = (window.first()?, window.last()?);
    if window.len() < 2 {
        return None;
    }
    let mut change = last.1 - first.1;
    if counter {
        for pair in window.windows(2) {
            if pair[1].1 < pair[0].1 {
                change += pair[0].1;
            }
        }
    }
    let s = |ms: i64| ms as f64 / 1000.0;
    let sampled = s(last.0 - first.0);
    let average = sampled / (window.len() - 1) as f64;
    let limit = average * 1.1;
    let mut before = s(first.0 - start);
    if before >= limit {
        before = average / 2.0;
    }
    if counter && change > 0.0 && first.1 >= 0.0 {
        let zero = sampled * (first.1 / change);
        before = if zero < before { zero } else { before };
    }
    let mut after = s(end - last.0);
    if after >= limit {
        after = average / 2.0;
    }
    Some((change, (sampled + before + after) / sampled))
}
