//! Random expressions, as text.

use proptest::prelude::*;

use super::windows::FUNCTIONS;

fn modifiers() -> BoxedStrategy<String> {
    let offset = prop_oneof![3 => Just(String::new()), 1 => (-90_000..90_000i64).prop_map(|ms| {
        let sign = if ms < 0 { "-" } else { "" };
        format!(" offset {sign}{}ms", ms.abs())
    })];
    let at = prop_oneof![
        8 => Just(String::new()),
        1 => (-100..900i64).prop_map(|s| format!(" @ {s}")),
        1 => prop_oneof![Just(" @ start()".to_owned()), Just(" @ end()".to_owned())],
    ];
    (offset, at).prop_map(|(offset, at)| offset + &at).boxed()
}

fn selector() -> BoxedStrategy<String> {
    prop::sample::select(
        &["m_total", r#"m_total{group="0"}"#, r#"m_total{id!="1"}"#, "other", r#"{__name__=~"m.*"}"#][..],
    )
    .prop_map(str::to_owned)
    .boxed()
}

fn grouping() -> BoxedStrategy<&'static str> {
    prop::sample::select(&["", "by (group)", "by (id, group)", "without (id)"][..]).boxed()
}

/// Windows from less than a scrape interval to far more.
fn range() -> impl Strategy<Value = i64> {
    prop_oneof![1..20_000i64, 20_000..400_000i64, 400_000..2_000_000i64]
}

fn function() -> BoxedStrategy<&'static str> {
    prop_oneof![12 => prop::sample::select(&FUNCTIONS[..]), 1 => Just("absent_over_time")].boxed()
}

fn windowed() -> BoxedStrategy<String> {
    prop_oneof![
        8 => (function(), selector(), range(), modifiers())
            .prop_map(|(f, s, range, m)| format!("{f}({s}[{range}ms]{m})")),
        1 => (-1..12i32, selector(), range(), modifiers()).prop_map(|(q, s, range, m)| {
            format!("quantile_over_time({}, {s}[{range}ms]{m})", f64::from(q) / 10.0)
        }),
    ]
    .boxed()
}

/// Of one selector or window, and nothing that adds up what was computed: values may be as wild as they like, since the
/// order of all additions is that of the series.
pub(crate) fn flat() -> BoxedStrategy<String> {
    let leaf = || {
        prop_oneof![
            1 => (selector(), modifiers()).prop_map(|(selector, modifiers)| selector + &modifiers),
            3 => windowed(),
        ]
        .boxed()
    };
    let aggregation = prop::sample::select(
        &["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar", "topk", "bottomk", "quantile"][..],
    );
    let aggregated = (aggregation, grouping(), leaf(), 0..4i32).prop_map(|(op, by, of, k)| match op {
        "topk" | "bottomk" => format!("{op} {by} ({k}, {of})"),
        "quantile" => format!("quantile {by} ({}, {of})", f64::from(k) / 3.0),
        _ => format!("{op} {by} ({of})"),
    });
    let subquery = (function(), leaf(), range(), 1_000..200_000i64, modifiers())
        .prop_map(|(f, of, range, step, m)| format!("{f}(({of})[{range}ms:{}ms]{m})", step.max(range / 60)));
    let scalar = prop::sample::select(&["+", "-", "*", "/", "%", ">", "<= bool", "== bool"][..]);
    let with_scalar = (leaf(), scalar.clone(), -5..5i32).prop_map(|(of, op, k)| format!("({of}) {op} {k}"));
    let scalar_with = (leaf(), scalar, 0..5i32).prop_map(|(of, op, k)| format!("{k} {op} ({of})"));
    prop_oneof![
        4 => leaf(),
        4 => aggregated,
        3 => subquery,
        1 => with_scalar,
        1 => scalar_with,
        1 => leaf().prop_map(|of| format!("-({of})")),
        1 => leaf().prop_map(|of| format!("vector(scalar({of}))")),
    ]
    .boxed()
}

/// Expressions of several levels, of which no result depends on the order of additions while values are whole numbers.
pub(crate) fn deep() -> BoxedStrategy<String> {
    let exact = prop::sample::select(
        &["sum_over_time", "max_over_time", "min_over_time", "count_over_time", "last_over_time", "changes"]
            [..],
    );
    let leaf = prop_oneof![
        (selector(), modifiers()).prop_map(|(selector, modifiers)| selector + &modifiers),
        (exact, selector(), range(), modifiers())
            .prop_map(|(f, s, range, m)| format!("{f}({s}[{range}ms]{m})")),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        let pair = (inner.clone(), inner.clone());
        let aggregation = prop::sample::select(&["sum", "min", "max", "count", "group"][..]);
        let join = prop::sample::select(
            &[
                "+",
                "-",
                "> bool",
                "<",
                "+ on (id)",
                "* on (id, group)",
                "- ignoring (kind)",
                "+ on (group) group_left ()",
                ">= on (group) group_left (kind)",
                "- on (group) group_right (id)",
                "== ignoring (id, kind) group_right ()",
                "and",
                "or",
                "unless",
                "and on (group)",
                "or on (id)",
                "unless on (id)",
            ][..],
        );
        prop_oneof![
            1 => (aggregation, grouping(), inner.clone()).prop_map(|(op, by, e)| format!("{op} {by} ({e})")),
            3 => (join, pair).prop_map(|(op, (a, b))| format!("({a}) {op} ({b})")),
            1 => (inner.clone(), 0..5i32).prop_map(|(e, k)| format!("({e}) > {k}")),
            1 => inner.prop_map(|e| format!("abs({e})")),
        ]
    })
    .boxed()
}
