//! Random expressions as text.

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

fn of_one_metric() -> BoxedStrategy<&'static str> {
    prop::sample::select(&["m_total", r#"m_total{group="0"}"#, r#"m_total{id!="1"}"#][..]).boxed()
}

fn grouping() -> BoxedStrategy<&'static str> {
    prop::sample::select(&["", "by (group)", "by (id, group)", "without (id)"][..]).boxed()
}

/// Window lengths from less than a scrape interval to much more.
fn range() -> impl Strategy<Value = i64> {
    prop_oneof![1..20_000i64, 20_000..400_000i64, 400_000..2_000_000i64]
}

fn function() -> BoxedStrategy<&'static str> {
    prop_oneof![12 => prop::sample::select(&FUNCTIONS[..]), 1 => Just("absent_over_time")].boxed()
}

fn windowed() -> BoxedStrategy<String> {
    let anchored = prop::sample::select(&["rate", "increase", "delta", "changes", "resets"][..]);
    let smoothed = prop::sample::select(&["rate", "increase", "delta"][..]);
    prop_oneof![
        1 => (anchored, selector(), range(), modifiers())
            .prop_map(|(f, s, range, m)| format!("{f}({s}[{range}ms] anchored{m})")),
        1 => (smoothed, selector(), range(), modifiers())
            .prop_map(|(f, s, range, m)| format!("{f}({s}[{range}ms] smoothed{m})")),
        1 => (selector(), range(), modifiers(), -600..600i32)
            .prop_map(|(s, range, m, ahead)| format!("predict_linear({s}[{range}ms]{m}, {ahead})")),
        1 => (selector(), range(), modifiers(), 1..10i32, 1..10i32).prop_map(|(s, range, m, sf, tf)| {
            format!("double_exponential_smoothing({s}[{range}ms]{m}, 0.{sf}, 0.{tf})")
        }),
        8 => (function(), selector(), range(), modifiers())
            .prop_map(|(f, s, range, m)| format!("{f}({s}[{range}ms]{m})")),
        1 => (-1..12i32, selector(), range(), modifiers()).prop_map(|(q, s, range, m)| {
            format!("quantile_over_time({}, {s}[{range}ms]{m})", f64::from(q) / 10.0)
        }),
    ]
    .boxed()
}

/// Expressions over one selector or window that do not aggregate computed values. The samples may
/// have any values, because all additions follow the order of the series.
pub(crate) fn flat() -> BoxedStrategy<String> {
    let leaf = || {
        prop_oneof![
            4 => (selector(), modifiers()).prop_map(|(selector, modifiers)| selector + &modifiers),
            1 => (selector(), modifiers()).prop_map(|(selector, modifiers)| format!("{selector} smoothed{modifiers}")),
            12 => windowed(),
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
    // Both sides compute the same windows, of the same or of other series.
    let shared = (
        prop::sample::select(&["sum", "avg", "min", "max", "count"][..]),
        (function(), range(), modifiers(), grouping()),
        [of_one_metric(), of_one_metric()],
        prop::sample::select(&["/", "-", "> bool", "or", "unless"][..]),
        any::<bool>(),
    )
        .prop_map(|(op, (f, range, m, by), [left, right], join, negated)| {
            let of = |selector| format!("{f}({selector}[{range}ms]{m})");
            let minus = if negated { "-" } else { "" };
            format!("{op} {by} ({minus}{}) {join} max {by} ({})", of(left), of(right))
        });
    let subquery = (function(), leaf(), range(), 1_000..200_000i64, modifiers())
        .prop_map(|(f, of, range, step, m)| format!("{f}(({of})[{range}ms:{}ms]{m})", step.max(range / 60)));
    let scalar = prop::sample::select(&["+", "-", "*", "/", "%", ">", "<= bool", "== bool"][..]);
    let with_scalar = (leaf(), scalar.clone(), -5..5i32).prop_map(|(of, op, k)| format!("({of}) {op} {k}"));
    let scalar_with = (leaf(), scalar, 0..5i32).prop_map(|(of, op, k)| format!("{k} {op} ({of})"));
    prop_oneof![
        4 => leaf(),
        4 => aggregated,
        2 => shared,
        3 => subquery,
        1 => with_scalar,
        1 => scalar_with,
        1 => leaf().prop_map(|of| format!("-({of})")),
        1 => leaf().prop_map(|of| format!("vector(scalar({of}))")),
    ]
    .boxed()
}

/// Nested expressions. No result depends on the order of additions if all values are whole numbers.
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

/// Expressions over native histograms. They add sent samples or sums of these, so the order of
/// additions does not matter.
pub(crate) fn native() -> BoxedStrategy<String> {
    let selector = || {
        prop::sample::select(
            &[
                "h_total",
                "h_gauge",
                "h_custom",
                "h_mixed",
                r#"{__name__=~"h_.*"}"#,
                r#"{__name__!="m_total", group="0"}"#,
            ][..],
        )
    };
    let sample =
        move || (selector(), modifiers()).prop_map(|(selector, modifiers)| format!("{selector}{modifiers}"));
    let exact = prop::sample::select(
        &["sum_over_time", "last_over_time", "first_over_time", "count_over_time", "changes", "resets"][..],
    );
    let whole = move || {
        prop_oneof![
            2 => sample(),
            1 => (exact.clone(), selector(), range(), modifiers())
                .prop_map(|(f, s, range, m)| format!("{f}({s}[{range}ms]{m})")),
        ]
    };
    let windowed = move || {
        (function(), selector(), range(), modifiers())
            .prop_map(|(f, s, range, m)| format!("{f}({s}[{range}ms]{m})"))
    };
    let subquery = (function(), sample(), range(), 1_000..200_000i64, modifiers())
        .prop_map(|(f, of, range, step, m)| format!("{f}(({of})[{range}ms:{}ms]{m})", step.max(range / 60)));
    let any = || prop_oneof![2 => sample(), 4 => windowed()].boxed();
    // Negative counts have no defined quantile, and where counts are rounded, a rank may fall into
    // the next bucket.
    let whole_windows = prop::sample::select(&["sum_over_time", "last_over_time", "first_over_time"][..]);
    let ranked = prop_oneof![
        2 => sample(),
        1 => (whole_windows, selector(), range(), modifiers())
            .prop_map(|(f, s, range, m)| format!("{f}({s}[{range}ms]{m})")),
    ];
    let of_histogram =
        prop::sample::select(&["histogram_count(", "histogram_sum(", "histogram_avg(", "abs("][..]);
    let of_ranks = prop::sample::select(
        &[
            "histogram_stddev(",
            "histogram_stdvar(",
            "histogram_quantile(0.2, ",
            "histogram_quantile(0.75, ",
            "histogram_quantile(1, ",
            "histogram_fraction(-Inf, 0.7, ",
            "histogram_fraction(-2.5, 0, ",
            "histogram_fraction(-3, 3, ",
            "histogram_fraction(0.1, 0.9, ",
            "histogram_fraction(0, Inf, ",
            "histogram_fraction(4, 1, ",
        ][..],
    );
    let added = prop::sample::select(&["sum", "avg"][..]);
    let counting = prop::sample::select(&["count", "group", "min", "max", "stddev"][..]);
    let scaled =
        prop::sample::select(&["* 2", "/ 4", "* -1", "/ 0", "* 0", "+ 1", "== bool 1", "> 2", "% 3"][..]);
    let pair = prop::sample::select(
        &[
            "+ ignoring (group)",
            "- ignoring (group)",
            "== ignoring (group)",
            "!= bool ignoring (group)",
            "* on (id)",
            "/ on (id)",
            "> on (id)",
            "and on (id)",
            "unless on (id)",
            "* on (group) group_left ()",
        ][..],
    );
    let one = prop::sample::select(&["m_total", r#"h_total{id="0"}"#, "h_gauge", "h_total", "h_custom"][..]);
    prop_oneof![
        2 => any(),
        2 => subquery,
        2 => (of_histogram, any()).prop_map(|(of_histogram, of)| format!("{of_histogram}{of})")),
        3 => (of_ranks, ranked).prop_map(|(of_histogram, of)| format!("{of_histogram}{of})")),
        3 => (added, grouping(), whole()).prop_map(|(op, by, of)| format!("{op} {by} ({of})")),
        1 => (counting, grouping(), whole()).prop_map(|(op, by, of)| format!("{op} {by} ({of})")),
        2 => (any(), scaled).prop_map(|(of, by)| format!("({of}) {by}")),
        1 => any().prop_map(|of| format!("-({of})")),
        1 => any().prop_map(|of| format!("2 * ({of})")),
        3 => (whole(), pair, one).prop_map(|(a, op, b)| format!("({a}) {op} ({b})")),
        1 => whole().prop_map(|of| format!("vector(scalar({of}))")),
    ]
    .boxed()
}
