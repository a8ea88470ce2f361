//! What the evaluator answers is what the oracle answers.

use std::collections::BTreeMap;

use promlet::model::{Labels, Steps, Timestamp};
use promlet::promql::syntax::tree::Expr;
use promlet::promql::syntax::{Caps, Features, parse};
use promlet::promql::{Answer, Budget, FloatHistogram, Options, Query, Value, WorkerPool, run};
use promlet::simd::scalar_only;
use promlet::tsdb::{Snapshot, Tsdb};
use proptest::prelude::*;

use super::data::{Point, World, distributed, fill, in_folder, many, sent, world};
use super::expressions::{deep, flat, native};
use super::native::{Buckets, Native};
use super::oracle::{Answer as ByTheBook, LOOKBACK_MS, Oracle, Refused};

/// Which NaN an operation makes is nobody's business; whether it is one, and whether a zero is below zero, is.
fn bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
}

/// What is there at one step, for who compares.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Bits(u64),
    Native(String),
    /// A number whose last bits are a library's.
    Near(f64),
}

/// By series and step.
type Points = BTreeMap<(Labels, i64), Told>;

fn told(value: &Point) -> Told {
    match value {
        Point::Float(value) => Told::Bits(bits(*value)),
        Point::Native(native) => Told::Native(native.told()),
    }
}

/// The evaluator's histogram as the oracle writes it.
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

/// Takes numbers of logarithms and roots as near ones.
fn loosened(text: &str, points: Points) -> Points {
    let is_loose =
        ["histogram_quantile", "histogram_fraction", "histogram_std"].iter().any(|name| text.contains(name));
    let loose = |told: Told| match told {
        Told::Bits(bits) if is_loose => Told::Near(f64::from_bits(bits)),
        told => told,
    };
    points.into_iter().map(|(key, told)| (key, loose(told))).collect()
}

fn same(a: &Told, b: &Told) -> bool {
    match (a, b) {
        (Told::Near(a), Told::Near(b)) => {
            a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-3)
        }
        (a, b) => a == b,
    }
}

fn all_same(a: &Points, b: &Points) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|((key, a), (other, b))| key == other && same(a, b))
}

fn evaluated(text: &str, expr: &Expr, steps: Steps, snapshot: &Snapshot) -> Result<Points, String> {
    let query = Query { expr: expr.clone(), text: text.to_owned(), steps, instant: false };
    let options = Options { lookback_ms: LOOKBACK_MS, ..Options::default() };
    let alone = run(&query, snapshot, &options, &Budget::default()).map_err(|e| e.to_string());
    let told = |answer: &Result<Answer, String>| match answer {
        // What the hands hold at once is their own affair: several hold more.
        Ok(answer) => {
            let stats = (answer.stats.series, answer.stats.samples);
            format!("{:?} {:?} {stats:?}", answer.value, answer.annotations)
        }
        Err(error) => error.clone(),
    };
    // As on a processor without wide registers.
    let narrow = scalar_only(|| run(&query, snapshot, &options, &Budget::default()));
    assert_eq!(told(&alone), told(&narrow.map_err(|e| e.to_string())), "{text}, scalar_only");
    for cores in [2, 3] {
        let workers = WorkerPool::eager(cores);
        let _query = workers.begin_query();
        let budget = Budget { workers: Some(&workers), ..Budget::default() };
        let together = run(&query, snapshot, &options, &budget).map_err(|e| e.to_string());
        assert_eq!(told(&alone), told(&together), "{text}, by {cores} threads");
    }
    let answer = alone?;
    let Value::Matrix(matrix) = answer.value else { panic!("a range query answers a matrix") };
    let mut points = Points::new();
    for series in matrix {
        for sample in series.samples {
            points.insert((series.labels.clone(), sample.at.as_ms()), Told::Bits(bits(sample.value)));
        }
        for sample in series.histograms {
            let native = of_evaluator(&sample.value);
            points.insert((series.labels.clone(), sample.at.as_ms()), Told::Native(native.told()));
        }
    }
    Ok(points)
}

fn by_the_book(expr: &Expr, steps: Steps, world: &World) -> Result<Points, Refused> {
    let times: Vec<i64> = steps.iter().map(Timestamp::as_ms).collect();
    // `@ end()` is what was asked for, whether or not a step falls there.
    let oracle = Oracle { world, start_ms: steps.start().as_ms(), end_ms: steps.end().as_ms() };
    let mut points = Points::new();
    for at in times {
        let vector = match oracle.at(expr, at)? {
            ByTheBook::Scalar(value) => vec![(Labels::default(), Point::Float(value))],
            ByTheBook::Vector(vector) => vector,
        };
        for (labels, value) in vector {
            points.insert((labels, at), told(&value));
        }
    }
    Ok(points)
}

/// Steps smaller and larger than the scrape interval of 15 s.
fn steps() -> impl Strategy<Value = Steps> {
    let step = prop_oneof![1..15_000i64, Just(15_000), 15_000..200_000i64];
    (-200_000..900_000i64, 0..40i64, step).prop_map(|(start, count, step)| {
        let (first, last) = (Timestamp::from_ms(start), Timestamp::from_ms(start + count * step));
        Steps::new(first, last, step).expect("a grid")
    })
}

fn check(text: &str, steps: Steps, world: &World, snapshot: &Snapshot) -> Result<(), TestCaseError> {
    let expr = parse(text, &Caps { features: Features::ALL, ..Caps::default() })
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .expr;
    match (evaluated(text, &expr, steps, snapshot), by_the_book(&expr, steps, world)) {
        (Ok(found), Ok(expected)) => {
            let (found, expected) = (loosened(text, found), loosened(text, expected));
            prop_assert!(all_same(&found, &expected), "{}: {}", text, difference(&found, &expected));
        }
        // Where labels are taken off, two series may be one for a range and not at any one step.
        (Err(_), Err(_)) => {}
        (found, expected) => prop_assert!(false, "{}: {:?}, by the book {:?}", text, found, expected),
    }
    Ok(())
}

/// The first few points that differ.
fn difference(found: &Points, expected: &Points) -> String {
    let mut all: Vec<&(Labels, i64)> = found.keys().chain(expected.keys()).collect();
    all.sort();
    all.dedup();
    let told = |points: &Points, key| match points.get(key) {
        Some(Told::Bits(bits)) => format!("{:?}", f64::from_bits(*bits)),
        told => format!("{told:?}"),
    };
    let alike = |key: &(Labels, i64)| match (found.get(key), expected.get(key)) {
        (Some(a), Some(b)) => same(a, b),
        _ => false,
    };
    let differ = all.into_iter().filter(|key| !alike(key)).take(5);
    differ
        .map(|key| {
            format!("\n  {} at {}: {}, expected {}", key.0, key.1, told(found, key), told(expected, key))
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_values_go_through_windows_and_groups_to_the_bit(
        sent in sent(true),
        steps in steps(),
        text in flat(),
    ) {
        let store = Tsdb::scaffold();
        check(&text, steps, &world(&sent, false), &fill(&store, &sent, |_| {}))?;
    }

    #[test]
    fn native_histograms_are_what_the_book_makes_of_them(
        sent in distributed(),
        steps in steps(),
        text in native(),
    ) {
        let store = Tsdb::scaffold();
        check(&text, steps, &world(&sent, false), &fill(&store, &sent, |_| {}))?;
    }

    #[test]
    fn operators_answer_what_each_step_alone_answers(sent in sent(false), steps in steps(), text in deep()) {
        let store = Tsdb::scaffold();
        check(&text, steps, &world(&sent, false), &fill(&store, &sent, |_| {}))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn many_series_are_shared_out_and_none_is_lost(
        sent in many(),
        steps in steps(),
        text in flat(),
    ) {
        let store = Tsdb::scaffold();
        check(&text, steps, &world(&sent, false), &fill(&store, &sent, |_| {}))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_sealed_is_what_was_there_and_late_samples_come_over_it(
        (few, many, native_ones) in (sent(true), many(), distributed()),
        steps in steps(),
        (texts, native_texts) in (prop::collection::vec(flat(), 8), prop::collection::vec(native(), 8)),
    ) {
        for (sent, texts) in [(few, &texts), (many, &texts), (native_ones, &native_texts)] {
            in_folder(|store| {
                let snapshot = fill(store, &sent, |store| {
                    store.seal(Timestamp::from_s(1_000_000)).expect("sealed");
                });
                let world = world(&sent, true);
                texts.iter().try_for_each(|text| check(text, steps, &world, &snapshot))
            })?;
        }
    }
}
