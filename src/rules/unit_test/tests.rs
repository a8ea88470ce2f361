//! Tests of the notation of series and of files of unit tests.

use proptest::prelude::*;

use super::decode::UnitTestFile;
use super::series::{SeriesItem, parse, parse_metric};
use super::{UNIT_TEST_FILE_BYTES_MAX, UnitTestOptions, run_unit_test_file};

fn values(text: &str) -> String {
    let line = parse(&format!("m{{a=\"b\"}} {text}")).expect(text);
    let texts: Vec<String> = line
        .items
        .iter()
        .map(|item| match item {
            SeriesItem::Missing => "_".into(),
            SeriesItem::Stale => "stale".into(),
            SeriesItem::Value(value) => value.to_string(),
            SeriesItem::Histogram(literal) => format!("h{}", literal.count),
        })
        .collect();
    texts.join(" ")
}

#[test]
fn items_of_series_are_expanded() {
    for (text, expected) in [
        ("1 2 3", "1 2 3"),
        ("1x2", "1 1 1"),
        ("1+2x3", "1 3 5 7"),
        ("-1-2x2", "-1 -3 -5"),
        ("1.5+0.5x1 _ stale", "1.5 2 _ stale"),
        ("_x3 1e3", "_ _ _ 1000"),
        ("Inf -Inf NaN", "inf -inf NaN"),
        ("{{count:1}}x1 {{count:1}}+{{count:2}}x2", "h1 h1 h1 h3 h5"),
    ] {
        assert_eq!(values(text), expected, "{text}");
    }
    for wrong in [
        "x",
        "1x",
        "1y2",
        "{{count:1",
        "{{foo:1}}",
        "{{count:1}}y",
        "_y",
        "1+2x99999999",
        "{{buckets:[1 2]}}x1000000",
    ] {
        parse(&format!("m {wrong}")).expect_err(wrong);
    }
    assert_eq!(
        parse_metric("m{b='c', \"d.e\"=\"f\"}").expect("valid").to_string(),
        "{__name__=\"m\", b=\"c\", d.e=\"f\"}"
    );
    parse_metric("m{} 1").expect_err("a value");
    assert!(parse_metric("").expect("no labels").is_empty());
}

#[test]
fn errors_of_files_have_a_position() {
    for (text, expected) in [
        (
            "tests:\n- intervall: 1m\n",
            "line 2, column 3: unknown key \"intervall\"; did you mean \"interval\"?",
        ),
        ("tests:\n- interval: 1x\n", "line 2, column 13: not a valid duration string: \"1x\""),
        ("group_eval_order: [a, a]\n", "line 1, column 23: group name repeated in evaluation order: a"),
        (
            "tests:\n- alert_rule_test:\n  - eval_time: 5m\n",
            "misses required attribute alertname at eval_time 5m",
        ),
        ("tests:\n- input_series:\n  - series: m\n    values: x\n", "line 3, column 5: not a value: \"x\""),
        ("tests:\n- start_timestamp: yesterday\n", "line 2, column 20: cannot parse \"yesterday\""),
        (
            "tests:\n- promql_expr_test:\n  - exp_samples:\n    - value: Inf\n",
            "line 4, column 14: cannot read \"Inf\" as a number",
        ),
    ] {
        let found = UnitTestFile::decode(text).expect_err(text).to_string();
        assert!(found.contains(expected), "{text}\n  expected {expected}\n  found    {found}");
    }
}

#[test]
fn a_test_may_begin_at_another_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("start.test.yml");
    let text = "
rule_files: [rules.yml]
tests:
- interval: 1m
  start_timestamp: 2026-11-27T12:00:00Z
  input_series: [{series: x, values: '1 2 3'}]
  alert_rule_test:
  - {eval_time: 2m, alertname: Big, exp_alerts: [{exp_annotations: {at: '2026-11-27 12:02:00 +0000 UTC'}}]}
  promql_expr_test:
  - {expr: 'timestamp(x)', eval_time: 2m, exp_samples: [{labels: '{}', value: 1795780920}]}
  - {expr: 'time()', eval_time: 30s, exp_samples: [{labels: '{}', value: 1795780830}]}
- interval: 1m
  start_timestamp: 1795780800
  promql_expr_test: [{expr: 'time()', eval_time: 0s, exp_samples: [{labels: '{}', value: 1795780800}]}]
";
    let rules = "groups: [{name: g, rules: [{alert: Big, expr: x > 2, \
                 annotations: {at: '{{ query \"time()\" | first | value | humanizeTimestamp }}'}}]}]";
    std::fs::write(&file, text).expect("written");
    std::fs::write(folder.path().join("rules.yml"), rules).expect("written");
    let report = run_unit_test_file(&file, &UnitTestOptions::default());
    assert_eq!(report.failures(), [""; 0]);
}

#[test]
fn too_many_evaluations_and_too_large_files_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |text: &str| {
        let file = folder.path().join("large.test.yml");
        std::fs::write(&file, text).expect("written");
        run_unit_test_file(&file, &UnitTestOptions::default()).failures().join("\n")
    };
    let found = run("evaluation_interval: 1ms\ntests:\n- promql_expr_test: [{expr: '1', eval_time: 1y}]\n");
    assert!(found.contains("more than 1000000 evaluations"), "{found}");
    let found =
        run("tests:\n- input_series: [{series: x, values: '0x1500000'}, {series: y, values: '0x1500000'}]\n");
    assert!(found.contains("more than 2000000 samples"), "{found}");
    let found = run(&"#".repeat(UNIT_TEST_FILE_BYTES_MAX + 1));
    assert!(found.contains("10485761 bytes, more than the 10485760 allowed"), "{found}");
}

proptest! {
    #[test]
    fn any_text_is_a_series_or_refused(text in "(?s)[a-z{}\\[\\]=\"'`\\\\0-9+\\-x_:,. é\n]{0,60}") {
        let _ = parse(&text);
        let _ = parse(&format!("m {text}"));
        let _ = parse(&format!("m {{{{{text}}}}}x2"));
        let _ = parse_metric(&text);
        let _ = UnitTestFile::decode(&text);
    }
}
