//! Tests of structured queries (docs/specification.md C5), whose parameters become PromQL.

use super::super::structured::{Aggregation, Function, StructuredError, StructuredQuery};
use super::super::tree::Grouping;
use super::super::{Caps, parse, parse_matcher};
use super::shape;

/// Builds a query from `key=value` pairs, as in a URL.
fn query(parameters: &[(&str, &str)]) -> Result<StructuredQuery, StructuredError> {
    let mut query = StructuredQuery::default();
    let labels =
        |value: &str| value.split(',').filter(|label| !label.is_empty()).map(str::to_owned).collect();
    for (key, value) in parameters {
        match *key {
            "metric" => query.metric = (*value).to_owned(),
            "match" => query.matchers.push(parse_matcher(value, &Caps::default()).expect("a matcher")),
            "fn" => query.function = Function::parse(value)?,
            "window" => query.window_ms = value.parse().ok(),
            "agg" => query.aggregate = Aggregation::parse(value)?,
            "by" => query.grouping = Some(Grouping::By(labels(value))),
            "without" => query.grouping = Some(Grouping::Without(labels(value))),
            "q" => query.q = value.parse().ok(),
            "k" => query.k = value.parse().ok(),
            "offset" => query.offset_ms = value.parse().expect("milliseconds"),
            other => panic!("{other}"),
        }
    }
    Ok(query)
}

#[test]
fn parameters_become_promql() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("metric", "up")], "up"),
        (&[("metric", "up"), ("fn", "none"), ("agg", "none")], "up"),
        (&[("metric", "my.metric"), ("match", "a=\"x\"")], "{\"my.metric\", a=\"x\"}"),
        (
            &[
                ("metric", "http_requests_total"),
                ("match", "job=api"),
                ("fn", "rate"),
                ("window", "300000"),
                ("agg", "sum"),
                ("by", "job"),
            ],
            "sum by (job) (rate(http_requests_total{job=\"api\"}[5m]))",
        ),
        (
            &[("metric", "up"), ("match", "job=~a|b"), ("match", "x!="), ("offset", "60000")],
            "up{job=~\"a|b\", x!=\"\"} offset 1m",
        ),
        (
            &[("metric", "up"), ("fn", "increase"), ("window", "1000"), ("offset", "-1000")],
            "increase(up[1s] offset -1s)",
        ),
        (&[("metric", "up"), ("agg", "count"), ("without", "a,b")], "count without (a, b) (up)"),
        (&[("metric", "up"), ("agg", "avg")], "avg(up)"),
        (&[("metric", "up"), ("agg", "topk"), ("k", "5")], "topk(5, up)"),
        (&[("metric", "up"), ("agg", "bottomk"), ("k", "100"), ("by", "a")], "bottomk by (a) (100, up)"),
        (&[("metric", "up"), ("agg", "quantile"), ("q", "0.5")], "quantile(0.5, up)"),
        (
            &[("metric", "up"), ("fn", "quantile_over_time"), ("window", "60000"), ("q", "1")],
            "quantile_over_time(1, up[1m])",
        ),
        (
            &[
                ("metric", "x_bucket"),
                ("fn", "rate"),
                ("window", "60000"),
                ("agg", "histogram_quantile"),
                ("q", "0.99"),
            ],
            "histogram_quantile(0.99, sum by (le) (rate(x_bucket[1m])))",
        ),
        (
            &[("metric", "x_bucket"), ("agg", "histogram_quantile"), ("q", "0"), ("by", "job,le")],
            "histogram_quantile(0, sum by (job, le) (x_bucket))",
        ),
        (
            &[("metric", "x_bucket"), ("agg", "histogram_quantile"), ("q", "0.5"), ("by", "job")],
            "histogram_quantile(0.5, sum by (le, job) (x_bucket))",
        ),
        (
            &[("metric", "x_bucket"), ("agg", "histogram_quantile"), ("q", "0.5"), ("without", "pod")],
            "histogram_quantile(0.5, sum without (pod) (x_bucket))",
        ),
    ];
    for (parameters, expected) in cases {
        let expr = query(parameters)
            .and_then(|query| query.build())
            .unwrap_or_else(|error| panic!("{parameters:?}: {error}"));
        assert_eq!(expr.to_string(), *expected);
        // `query.expr` of the response can be sent as `expr` and gives the same tree.
        let parsed = parse(expected, &Caps::default()).expect("PromQL");
        assert_eq!(shape(&parsed.expr), shape(&expr), "{expected}");
        assert_eq!(parsed.value_type, expr.value_type());
    }
}

#[test]
fn every_function_and_aggregation_of_the_api_is_known() {
    let functions = "rate increase irate delta idelta deriv avg_over_time min_over_time max_over_time sum_over_time count_over_time \
                     last_over_time quantile_over_time";
    for name in functions.split_whitespace() {
        let q = if name == "quantile_over_time" { ("q", "0.5") } else { ("offset", "0") };
        let expr = query(&[("metric", "up"), ("fn", name), ("window", "60000"), q])
            .and_then(|query| query.build())
            .expect(name);
        let printed = expr.to_string();
        assert!(printed.starts_with(name), "{printed}");
        assert!(parse(&printed, &Caps::default()).is_ok(), "{printed}");
    }
    for name in "sum avg min max count stddev quantile topk bottomk histogram_quantile".split_whitespace() {
        let parameter = match name {
            "topk" | "bottomk" => ("k", "1"),
            "quantile" | "histogram_quantile" => ("q", "0.5"),
            _ => ("offset", "0"),
        };
        let expr =
            query(&[("metric", "up"), ("agg", name), parameter]).and_then(|query| query.build()).expect(name);
        let printed = expr.to_string();
        assert!(printed.starts_with(name), "{printed}");
        assert!(parse(&printed, &Caps::default()).is_ok(), "{printed}");
    }
}

#[test]
fn errors_name_the_invalid_parameter() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[], "metric"),
        (&[("metric", "up"), ("fn", "Rate")], "fn"),
        (&[("metric", "up"), ("agg", "group")], "agg"),
        (&[("metric", "up"), ("window", "60000")], "window"),
        (&[("metric", "up"), ("fn", "rate")], "window"),
        (&[("metric", "up"), ("fn", "rate"), ("window", "999")], "window"),
        (&[("metric", "up"), ("by", "a")], "by"),
        (&[("metric", "up"), ("agg", "histogram_quantile"), ("q", "0.5"), ("without", "le")], "without"),
        (&[("metric", "up"), ("agg", "quantile")], "q"),
        (&[("metric", "up"), ("agg", "quantile"), ("q", "1.1")], "q"),
        (&[("metric", "up"), ("agg", "quantile"), ("q", "NaN")], "q"),
        (&[("metric", "up"), ("agg", "sum"), ("q", "0.5")], "q"),
        (&[("metric", "up"), ("agg", "topk")], "k"),
        (&[("metric", "up"), ("agg", "topk"), ("k", "0")], "k"),
        (&[("metric", "up"), ("agg", "topk"), ("k", "101")], "k"),
        (&[("metric", "up"), ("k", "1")], "k"),
    ];
    for (parameters, expected) in cases {
        let error = query(parameters).and_then(|query| query.build()).expect_err("invalid");
        assert_eq!(error.parameter(), *expected, "{parameters:?}: {error}");
    }
}
