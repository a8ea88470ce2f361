//! Limits, cancellation, deadlines and refusals of queries.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use promlet::model::{
    Access, BatchBuilder, Labels, MayCompile, OrgId, PatternCache, Sample, Steps, Timestamp,
};
use promlet::promql::syntax::tree::{AggregateOp, Expr};
use promlet::promql::syntax::{Caps, Features, parse};
use promlet::promql::{Budget, Limits, Options, Query, QueryError, QueryResult, Value, run};
use promlet::tsdb::{Snapshot, Tsdb};

/// A hundred series `n{i="..."}` with a sample each minute for ten minutes.
fn hundred() -> Snapshot {
    let store = Tsdb::scaffold();
    let mut batch = BatchBuilder::default();
    for i in 0..100 {
        let labels = Labels::from_pairs([("__name__", "n"), ("i", i.to_string().as_str())]);
        batch.series(&labels, (0..10).map(|m| Sample { at: Timestamp::from_s(m * 60), value: f64::from(i) }));
    }
    store.append(OrgId(7), &batch.batch(), Timestamp::from_s(600)).expect("stored");
    store.snapshot(&Access::whole(OrgId(7)))
}

fn ten_minutes() -> Steps {
    Steps::new(Timestamp::from_s(0), Timestamp::from_s(540), 60_000).expect("a grid")
}

fn expr(text: &str) -> Expr {
    parse(text, &Caps { features: Features::ALL, ..Caps::default() }).expect("parses").expr
}

fn range(text: &str) -> Query {
    Query { expr: expr(text).into(), text: text.into(), steps: ten_minutes(), instant: false }
}

fn limited(text: &str, limits: Limits) -> Result<QueryResult, QueryError> {
    run(&range(text), &hundred(), &Options { limits, ..Options::default() }, &Budget::default())
}

#[test]
fn samples_held_at_once_are_limited() {
    let limits = Limits { samples_max: 1_000, ..Limits::default() };
    assert!(limited("n", limits).is_ok(), "100 series at 10 steps are 1,000 samples");
    let less = Limits { samples_max: 999, ..Limits::default() };
    let refused = limited("n", less).expect_err("one too many");
    assert_eq!(refused, QueryError::TooManySamples { allowed: 999 });
    assert_eq!(
        refused.to_string(),
        "query processing would load too many samples into memory in query execution"
    );
    // Released samples do not count: those of earlier series, and the rows of a finished operand.
    assert!(
        limited("sum(rate(n[5m])) + sum(rate(n[5m]))", Limits { samples_max: 1_050, ..Limits::default() })
            .is_ok()
    );
}

#[test]
fn series_of_a_selector_are_limited() {
    let refused = limited("sum(n)", Limits { series_max: 99, ..Limits::default() });
    assert_eq!(refused.expect_err("too many"), QueryError::TooManySeries { found: 100, allowed: 99 });
}

/// Memory and time bound a query in any case. The number of series is a limit that an administrator
/// may set.
#[test]
fn without_a_setting_the_number_of_series_is_not_limited() {
    assert_eq!(Limits::default().series_max, u64::MAX);
    assert!(limited("count by (__name__) ({__name__=~\".+\"})", Limits::default()).is_ok());
}

/// A thousand series with ten labels each; no two series share a label.
fn thousand_unshared() -> Snapshot {
    let store = Tsdb::scaffold();
    let mut batch = BatchBuilder::default();
    for i in 0..1_000 {
        let own = (0..10).map(|label| (format!("l{label}"), format!("v{label}-{i}")));
        let labels = Labels::from_pairs(own.chain([("__name__".to_owned(), format!("n{}", i % 3))]));
        batch.series(&labels, [Sample { at: Timestamp::from_s(1), value: f64::from(i) }]);
    }
    store.append(OrgId(7), &batch.batch(), Timestamp::from_s(600)).expect("stored");
    store.snapshot(&Access::whole(OrgId(7)))
}

/// Data that grows with the number of series is charged: label sets, rows, and groups with their
/// own labels.
#[test]
fn label_sets_and_groups_of_many_series_count_as_memory() {
    let snapshot = thousand_unshared();
    let evaluate = |text: &str, memory_bytes_max: u64| {
        let at = Steps::new(Timestamp::from_s(1), Timestamp::from_s(1), 1).expect("one step");
        let query = Query { expr: expr(text).into(), text: text.into(), steps: at, instant: true };
        let limits = Limits { memory_bytes_max, ..Limits::default() };
        // A short lookback needs little memory for the samples of one series.
        let options = Options { limits, lookback_ms: 1_000, ..Options::default() };
        run(&query, &snapshot, &options, &Budget::default())
    };
    // Queries with a number of bytes that is too small for the result, and one that suffices.
    let labels = "l0, l1, l2, l3, l4, l5, l6, l7, l8, l9";
    let cases = [
        ("{l0=~\".+\"}".to_owned(), 200_000, 1_000_000),
        ("count by (__name__) ({l0=~\".+\"})".to_owned(), 50_000, 300_000),
        (format!("count by ({labels}) ({{l0=~\".+\"}})"), 400_000, 2_000_000),
        (format!("topk by ({labels}) (1, {{l0=~\".+\"}})"), 400_000, 2_000_000),
        (format!("{{l0=~\".+\"}} * on ({labels}) {{l1=~\".+\"}}"), 500_000, 2_000_000),
    ];
    for (text, too_few, enough) in cases {
        let refused = evaluate(&text, too_few).map(|answer| answer.stats).expect_err(&text);
        assert!(
            matches!(refused, QueryError::TooMuchMemory { allowed, .. } if allowed == too_few),
            "{text}: {refused}"
        );
        let answer = evaluate(&text, enough);
        assert!(answer.is_ok(), "{text}: {:?}", answer.map(|answer| answer.stats));
    }
}

#[test]
fn memory_is_charged_before_it_is_allocated() {
    // The selection of 100 series fits, but their rows do not.
    let limits = Limits { memory_bytes_max: 16_500, ..Limits::default() };
    let refused = limited("n", limits).expect_err("too much");
    let QueryError::TooMuchMemory { needed, allowed: 16_500 } = refused else { panic!("{refused}") };
    assert!((100 * (64 + 10 * 8)..18_000).contains(&needed), "the rows and what their labels hold: {needed}");
    // A subquery of a century by the millisecond is refused before it is evaluated.
    for text in [
        "max_over_time(n[100y:1ms])",
        "max_over_time(vector(time())[100y:1ms])",
        "absent_over_time((-n)[100y:1ms])",
    ] {
        let refused = limited(text, Limits::default()).expect_err("far too much");
        assert!(matches!(refused, QueryError::TooMuchMemory { .. }), "{text}: {refused}");
    }
}

#[test]
fn the_peak_of_held_samples_and_memory_is_reported() {
    let answer = limited("sum(n)", Limits::default()).expect("fits");
    assert_eq!((answer.stats.series, answer.stats.samples), (100, 1_000));
    assert_eq!(answer.stats.peak_samples, 10, "the rows of the sum only");
    let kept = limited("topk(100, n)", Limits::default()).expect("fits");
    assert_eq!(kept.stats.peak_samples, 1_010, "the rows, and the parameter");
    assert!(kept.stats.peak_memory_bytes >= 8_000);
}

#[test]
fn a_cancelled_query_stops() {
    let flag = AtomicBool::new(true);
    let budget = Budget { cancel: Some(&flag), ..Budget::default() };
    let stopped = run(&range("n"), &hundred(), &Options::default(), &budget).expect_err("cancelled");
    assert_eq!(stopped, QueryError::Cancelled);
    assert_eq!(stopped.to_string(), "query was canceled in expression evaluation");
}

#[test]
fn an_expired_query_stops_in_the_middle() {
    let checks = Cell::new(0);
    let expired = || {
        checks.set(checks.get() + 1);
        checks.get() > 5
    };
    let budget = Budget { expired: Some(&expired), ..Budget::default() };
    let stopped = run(&range("n"), &hundred(), &Options::default(), &budget).expect_err("expired");
    assert_eq!(stopped, QueryError::Timeout);
    assert_eq!(stopped.to_string(), "query timed out in expression evaluation");
    assert_eq!(checks.get(), 6, "checked every few series until then");
}

#[test]
fn a_range_query_returns_numbers_only() {
    for (text, kind) in [("n[5m]", "range vector"), (r#""text""#, "string")] {
        let refused =
            run(&range(text), &hundred(), &Options::default(), &Budget::default()).expect_err("refused");
        let expected =
            format!("invalid expression type {kind:?} for range query, must be Scalar or instant Vector");
        assert_eq!(refused, QueryError::BadQuery(expected));
    }
    let answer = limited("1 + 1", Limits::default()).expect("a scalar is one series");
    let Value::Matrix(matrix) = answer.value else { panic!("a range query returns a matrix") };
    assert_eq!((matrix.len(), matrix[0].samples.len()), (1, 10));
}

#[test]
fn a_tree_that_the_parser_would_not_make_is_refused() {
    let evaluate = |expr: Expr| {
        let query = Query { expr: expr.into(), text: "".into(), steps: ten_minutes(), instant: false };
        run(&query, &hundred(), &Options::default(), &Budget::default()).map(|_| ()).expect_err("refused")
    };
    let mut deep = Expr::Number(1.0);
    for _ in 0..1_000 {
        deep = Expr::Negate(Box::new(deep));
    }
    assert!(matches!(evaluate(deep), QueryError::BadQuery(_)));
    let Expr::Call(mut call) = expr("abs(n)") else { panic!("a call") };
    call.name = "integral".into();
    assert_eq!(
        evaluate(Expr::Call(call.clone())),
        QueryError::BadQuery("unknown function with name \"integral\"".into())
    );
    call.name = "rate".into();
    assert!(
        matches!(evaluate(Expr::Call(call.clone())), QueryError::BadQuery(_)),
        "an instant vector has no windows"
    );
    call.args.clear();
    assert!(matches!(evaluate(Expr::Call(call)), QueryError::BadQuery(_)), "an argument is missing");
    let Expr::Aggregate(mut aggregate) = expr("sum(n)") else { panic!("an aggregation") };
    aggregate.op = AggregateOp::Topk;
    assert!(matches!(evaluate(Expr::Aggregate(aggregate)), QueryError::BadQuery(_)), "no parameter");
    assert!(matches!(evaluate(Expr::Negate(Box::new(Expr::Text("a".into())))), QueryError::BadQuery(_)));
}

/// Test threads have stacks of 2 MiB, as query lanes do. The plan accepts trees of depth 400, six
/// times what the caps before the parser admit. The stack of a query lane holds them even in an
/// unoptimised build.
#[test]
fn the_deepest_tree_fits_on_the_stack_of_a_query_lane() {
    let lane = std::thread::Builder::new().stack_size(promlet::api::lanes::STACK_BYTES);
    lane.spawn(deepest_trees).expect("a thread").join().expect("no tree overflows it");
}

fn deepest_trees() {
    let wrap: [fn(Expr) -> Expr; 4] = [
        |inner| Expr::Negate(Box::new(inner)),
        |inner| call("abs(n)", inner),
        |inner| call("scalar(n)", call("vector(1)", inner)),
        |inner| {
            let Expr::Binary(mut binary) = expr("n or n") else { panic!("an operator") };
            binary.lhs = inner;
            Expr::Binary(binary)
        },
    ];
    for (i, wrap) in wrap.into_iter().enumerate() {
        let mut tree = expr(if i == 2 { "1" } else { "n" });
        for _ in 0..(if i == 2 { 200 } else { 400 }) {
            tree = wrap(tree);
        }
        let query = Query { expr: tree.into(), text: "".into(), steps: ten_minutes(), instant: false };
        let answer = run(&query, &hundred(), &Options::default(), &Budget::default());
        assert!(answer.is_ok(), "{i}: {answer:?}");
    }
}

fn call(template: &str, arg: Expr) -> Expr {
    let Expr::Call(mut call) = expr(template) else { panic!("a call") };
    call.args = vec![arg];
    Expr::Call(call)
}

#[test]
fn label_values_do_not_grow_without_end() {
    let doubled =
        (0..40).fold("n".to_owned(), |inner, _| format!(r#"label_join({inner}, "i", "", "i", "i")"#));
    let many = "$1".repeat(20_000);
    let replaced = (0..3)
        .fold("n".to_owned(), |inner, _| format!(r#"label_replace({inner}, "i", "{many}", "i", "(.*)")"#));
    for text in [doubled, replaced] {
        let caps = Caps { text_bytes: 1 << 20, ..Caps::default() };
        let expr = parse(&text, &caps).expect("parses").expr;
        let query = Query { expr: expr.into(), text: text.into(), steps: ten_minutes(), instant: false };
        let refused = run(&query, &hundred(), &Options::default(), &Budget::default()).expect_err("refused");
        let expected = "a label value would be longer than 1048576 bytes";
        assert_eq!(refused, QueryError::Execution(expected.to_owned()));
    }
}

#[test]
fn annotations_contain_line_and_column_of_the_text() {
    let answer = limited("1 +\n  rate(n[5m])", Limits::default()).expect("has an answer");
    assert_eq!(answer.annotations.infos.len(), 1, "reported once, not once per series");
    assert!(answer.annotations.infos[0].ends_with("\"n\" (2:8)"), "{:?}", answer.annotations.infos);
}

/// Runs a query whose deadline passes when it is checked for the `most`-th time. Returns the number
/// of checks.
fn run_until(query: &Query, snapshot: &Snapshot, most: u32) -> (Result<QueryResult, QueryError>, u32) {
    let checks = Cell::new(0);
    let expired = || {
        checks.set(checks.get() + 1);
        checks.get() > most
    };
    let budget = Budget { expired: Some(&expired), ..Budget::default() };
    (run(query, snapshot, &Options::default(), &budget), checks.get())
}

fn instant(text: &str) -> Query {
    let at = Steps::new(Timestamp::from_s(1), Timestamp::from_s(1), 1).expect("one step");
    Query { steps: at, instant: true, ..range(text) }
}

#[test]
fn a_deadline_ends_a_running_sort() {
    // Unordered, and the texts differ at the very end only.
    let unordered = |count: u32, prefix: &str| {
        let store = Tsdb::scaffold();
        let mut batch = BatchBuilder::default();
        for i in (0..count).map(|i| (i * 7_919) % count) {
            let labels = Labels::from_pairs([("__name__", "n"), ("p", &*format!("{prefix}{i}"))]);
            batch.series(&labels, [Sample { at: Timestamp::from_s(1), value: f64::from(i * 31 % 101) }]);
        }
        store.append(OrgId(7), &batch.batch(), Timestamp::from_s(600)).expect("stored");
        store.snapshot(&Access::whole(OrgId(7)))
    };
    let (long, many) = (unordered(300, &"x7".repeat(200)), unordered(3_000, ""));
    for (text, snapshot, series, least) in [
        ("sort_by_label(n, \"p\")", &long, 300, 100),
        ("sort_by_label_desc(n, \"absent\", \"p\")", &long, 300, 100),
        ("sort(n)", &many, 3_000, 10),
        ("sort_desc(n)", &many, 3_000, 10),
    ] {
        let (plain, unsorted) = run_until(&instant("n"), snapshot, u32::MAX);
        plain.expect("no deadline");
        let (sorted, checks) = run_until(&instant(text), snapshot, u32::MAX);
        let Ok(QueryResult { value: Value::Vector(sorted), .. }) = sorted else {
            panic!("{text}: {sorted:?}")
        };
        assert_eq!(sorted.len(), series);
        assert!(checks >= unsorted + least, "{text}: {checks} checks, {unsorted} without the sort");
        let most = unsorted + least / 2;
        let (ended, checks) = run_until(&instant(text), snapshot, most);
        assert_eq!((ended.expect_err("late"), checks), (QueryError::Timeout, most + 1), "{text}");
    }
}

#[test]
fn patterns_of_label_replace_count_as_memory_and_the_budget_is_checked_before_each() {
    let text = "label_replace(n{i=\"1\"}, \"d\", \"$1\", \"i\", \"([ab]*a.{900})x\")";
    let with = |memory_bytes_max| limited(text, Limits { memory_bytes_max, ..Limits::default() });
    let refused = with(2 << 20).expect_err("the program and the states of its searches do not fit");
    assert!(matches!(refused, QueryError::TooMuchMemory { needed, .. } if needed > 4 << 20), "{refused}");
    assert!(with(16 << 20).expect("they fit").stats.peak_memory_bytes > 4 << 20);

    let open = "label_replace(".repeat(16);
    let close: String = (0..16).map(|i| format!(", \"d\", \"$1\", \"i\", \"(.*)a{i}\")")).collect();
    let query = instant(&format!("{open}n{close}"));
    let patterns = Arc::new(PatternCache::default());
    let planned = |most| {
        let compiled = Rc::new(Cell::new(0));
        let count = Rc::clone(&compiled);
        let may_compile: MayCompile = Rc::new(move || {
            count.set(count.get() + 1);
            true
        });
        let (answer, _) =
            patterns.with_check(OrgId(most), Some(may_compile), || run_until(&query, &hundred(), most));
        (answer.map(|_| ()), compiled.get())
    };
    assert_eq!(planned(u32::MAX), (Ok(()), 16));
    let (late, compiled) = planned(5);
    assert_eq!(late, Err(QueryError::Timeout));
    assert!(compiled <= 5, "{compiled} were compiled");
}
