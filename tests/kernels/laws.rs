//! Properties: the evaluator's results equal those of the oracle.

use std::collections::BTreeMap;

use promlet::model::{Labels, Steps, Timestamp};
use promlet::promql::syntax::tree::Expr;
use promlet::promql::syntax::{Caps, Features, parse};
use promlet::promql::{Budget, FloatHistogram, Options, Query, QueryResult, Value, WorkerPool, run};
use promlet::simd::scalar_only;
use promlet::tsdb::{Snapshot, Tsdb};
use proptest::prelude::*;

use super::data::{
    Point, SampleMap, expected_samples, in_folder, many_series, random_floats, random_histograms,
    store_samples,
};
use super::expressions::{deep, flat, native};
use super::native::{Buckets, Native};
use super::oracle::{LOOKBACK_MS, Oracle, OracleValue, Refusal};

/// Returns the bits. All NaNs are equal, but -0 differs from 0.
fn bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
}

/// A value at one step, in a form that can be compared.
#[derive(Clone, Debug, PartialEq)]
enum Comparable {
    Bits(u64),
    Native(String),
    /// A number whose last bits depend on a library function.
    Near(f64),
}

/// Values by series and step.
type Points = BTreeMap<(Labels, i64), Comparable>;

fn comparable(value: &Point) -> Comparable {
    match value {
        Point::Float(value) => Comparable::Bits(bits(*value)),
        Point::Native(native) => Comparable::Native(native.render()),
    }
}

/// Converts the evaluator's histogram to the oracle's type.
fn of_evaluator(found: &FloatHistogram) -> Native {
    let buckets = |all: &mut dyn Iterator<Item = (i32, f64)>| -> Buckets { all.collect() };
    Native {
        schema: found.schema(),
        bounds: found.custom_values().to_vec(),
        threshold: found.zero_threshold(),
        count: found.count(),
        sum: found.sum(),
        zero: found.zero_count(),
        positive: buckets(&mut found.positive()),
        negative: buckets(&mut found.negative()),
        is_gauge: false,
    }
}

/// Marks numbers that depend on logarithms and roots as approximate.
fn with_approximate(text: &str, points: Points) -> Points {
    let is_approximate =
        ["histogram_quantile", "histogram_fraction", "histogram_std"].iter().any(|name| text.contains(name));
    let approximate = |comparable: Comparable| match comparable {
        Comparable::Bits(bits) if is_approximate => Comparable::Near(f64::from_bits(bits)),
        comparable => comparable,
    };
    points.into_iter().map(|(key, comparable)| (key, approximate(comparable))).collect()
}

fn same(a: &Comparable, b: &Comparable) -> bool {
    match (a, b) {
        (Comparable::Near(a), Comparable::Near(b)) => {
            a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-3)
        }
        (a, b) => a == b,
    }
}

fn all_same(a: &Points, b: &Points) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|((key, a), (other, b))| key == other && same(a, b))
}

fn evaluated(text: &str, expr: &Expr, steps: Steps, snapshot: &Snapshot) -> Result<Points, String> {
    let query = Query { expr: expr.clone().into(), text: text.into(), steps, instant: false };
    let options = Options { lookback_ms: LOOKBACK_MS, ..Options::default() };
    let alone = run(&query, snapshot, &options, &Budget::default()).map_err(|e| e.to_string());
    let comparable = |answer: &Result<QueryResult, String>| match answer {
        // Peaks are left out: several workers hold more at once.
        Ok(answer) => {
            let stats = (answer.stats.series, answer.stats.samples);
            format!("{:?} {:?} {stats:?}", answer.value, answer.annotations)
        }
        Err(error) => error.clone(),
    };
    // As on a processor without wide registers.
    let scalar = scalar_only(|| run(&query, snapshot, &options, &Budget::default()));
    assert_eq!(comparable(&alone), comparable(&scalar.map_err(|e| e.to_string())), "{text}, scalar_only");
    for cores in [2, 3] {
        let workers = WorkerPool::eager(cores);
        let _query = workers.begin_query();
        let budget = Budget { workers: Some(&workers), ..Budget::default() };
        let together = run(&query, snapshot, &options, &budget).map_err(|e| e.to_string());
        assert_eq!(comparable(&alone), comparable(&together), "{text}, by {cores} threads");
    }
    let answer = alone?;
    let Value::Matrix(matrix) = answer.value else { panic!("a range query returns a matrix") };
    let mut points = Points::new();
    for series in matrix {
        for sample in series.samples {
            points.insert((series.labels.clone(), sample.at.as_ms()), Comparable::Bits(bits(sample.value)));
        }
        for sample in series.histograms {
            let native = of_evaluator(&sample.value);
            points.insert((series.labels.clone(), sample.at.as_ms()), Comparable::Native(native.render()));
        }
    }
    Ok(points)
}

fn by_oracle(expr: &Expr, steps: Steps, expected_samples: &SampleMap) -> Result<Points, Refusal> {
    let times: Vec<i64> = steps.iter().map(Timestamp::as_ms).collect();
    // `@ end()` is the end of the requested range, even if no step is there.
    let oracle =
        Oracle { samples: expected_samples, start_ms: steps.start().as_ms(), end_ms: steps.end().as_ms() };
    let mut points = Points::new();
    for at in times {
        let vector = match oracle.at(expr, at)? {
            OracleValue::Scalar(value) => vec![(Labels::default(), Point::Float(value))],
            OracleValue::Vector(vector) => vector,
        };
        for (labels, value) in vector {
            points.insert((labels, at), comparable(&value));
        }
    }
    Ok(points)
}

/// Steps shorter and longer than the scrape interval of 15 s.
pub(crate) fn steps() -> impl Strategy<Value = Steps> {
    let step = prop_oneof![1..15_000i64, Just(15_000), 15_000..200_000i64];
    (-200_000..900_000i64, 0..40i64, step).prop_map(|(start, count, step)| {
        let (first, last) = (Timestamp::from_ms(start), Timestamp::from_ms(start + count * step));
        Steps::new(first, last, step).expect("a grid")
    })
}

fn check(
    text: &str,
    steps: Steps,
    expected_samples: &SampleMap,
    snapshot: &Snapshot,
) -> Result<(), TestCaseError> {
    let expr = parse(text, &Caps { features: Features::ALL, ..Caps::default() })
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .expr;
    match (evaluated(text, &expr, steps, snapshot), by_oracle(&expr, steps, expected_samples)) {
        (Ok(found), Ok(expected)) => {
            let (found, expected) = (with_approximate(text, found), with_approximate(text, expected));
            prop_assert!(all_same(&found, &expected), "{}: {}", text, difference(&found, &expected));
        }
        // Where labels are removed, two series may be equal in a range query although they are not
        // at any one step.
        (Err(_), Err(_)) => {}
        (found, expected) => prop_assert!(false, "{}: {:?}, the oracle {:?}", text, found, expected),
    }
    Ok(())
}

/// Renders the first few points that differ.
fn difference(found: &Points, expected: &Points) -> String {
    let mut all: Vec<&(Labels, i64)> = found.keys().chain(expected.keys()).collect();
    all.sort();
    all.dedup();
    let comparable = |points: &Points, key| match points.get(key) {
        Some(Comparable::Bits(bits)) => format!("{:?}", f64::from_bits(*bits)),
        comparable => format!("{comparable:?}"),
    };
    let alike = |key: &(Labels, i64)| match (found.get(key), expected.get(key)) {
        (Some(a), Some(b)) => same(a, b),
        _ => false,
    };
    let differ = all.into_iter().filter(|key| !alike(key)).take(5);
    differ
        .map(|key| {
            format!(
                "\n  {} at {}: {}, expected {}",
                key.0,
                key.1,
                comparable(found, key),
                comparable(expected, key)
            )
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn windows_and_aggregations_of_extreme_values_equal_the_oracle_to_the_bit(
        sent in random_floats(true),
        steps in steps(),
        text in flat(),
    ) {
        let store = Tsdb::scaffold();
        check(&text, steps, &expected_samples(&sent, false), &store_samples(&store, &sent, |_| {}))?;
    }

    #[test]
    fn functions_of_native_histograms_equal_the_oracle(
        sent in random_histograms(),
        steps in steps(),
        text in native(),
    ) {
        let store = Tsdb::scaffold();
        check(&text, steps, &expected_samples(&sent, false), &store_samples(&store, &sent, |_| {}))?;
    }

    #[test]
    fn operators_equal_an_evaluation_step_by_step(sent in random_floats(false), steps in steps(), text in deep()) {
        let store = Tsdb::scaffold();
        check(&text, steps, &expected_samples(&sent, false), &store_samples(&store, &sent, |_| {}))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn many_series_are_distributed_to_threads_and_none_is_lost(
        sent in many_series(),
        steps in steps(),
        text in flat(),
    ) {
        let store = Tsdb::scaffold();
        check(&text, steps, &expected_samples(&sent, false), &store_samples(&store, &sent, |_| {}))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sealed_samples_are_unchanged_and_late_samples_replace_them(
        (few, many, native_ones) in (random_floats(true), many_series(), random_histograms()),
        steps in steps(),
        (texts, native_texts) in (prop::collection::vec(flat(), 8), prop::collection::vec(native(), 8)),
    ) {
        for (sent, texts) in [(few, &texts), (many, &texts), (native_ones, &native_texts)] {
            in_folder(|store| {
                let snapshot = store_samples(store, &sent, |store| {
                    store.seal(Timestamp::from_s(1_000_000)).expect("sealed");
                });
                let expected_samples = expected_samples(&sent, true);
                texts.iter().try_for_each(|text| check(text, steps, &expected_samples, &snapshot))
            })?;
        }
    }
}
