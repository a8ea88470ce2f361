//! Tests of rule files.

use proptest::prelude::*;

use super::*;

fn decode(text: &str) -> Result<Vec<RuleGroup>, YamlError> {
    let check = |text: &str| if text.contains("{{ bad") { Err("bad template".to_owned()) } else { Ok(()) };
    decode_rule_file(text, RuleFileOptions { caps: &Caps::default(), check_template: check })
}

fn error(text: &str) -> String {
    decode(text).expect_err("invalid").to_string()
}

const FILE: &str = r#"
groups:
- name: first
  interval: 30s
  query_offset: 1m
  limit: 7
  labels: {team: core, tier: "1"}
  rules:
  - record: job:up:sum
    expr: sum by (job) (up)
    labels: {tier: "2"}
  - alert: Down
    expr: |
      up == 0
      and on() vector(1)
    for: 5m
    keep_firing_for: 90s
    labels: {severity: page}
    annotations:
      summary: "{{ $labels.instance }} is down\nnow"
- name: second
"#;

#[test]
fn a_file_of_prometheus_is_read_whole() {
    let groups = decode(FILE).expect("valid");
    assert_eq!(groups.len(), 2);
    let first = &groups[0];
    assert_eq!((first.interval_ms, first.query_offset_ms, first.limit), (Some(30_000), Some(60_000), 7));
    assert_eq!(first.rules[0].labels.get("tier").map(String::as_str), Some("2"));
    assert_eq!(first.rules[1].labels.get("team").map(String::as_str), Some("core"));
    let alerting = first.rules[1].alerting().expect("alert");
    assert_eq!((alerting.for_ms, alerting.keep_firing_for_ms), (300_000, 90_000));
    assert_eq!(groups[1].rules.len(), 0);
    assert_eq!(decode("groups:\n").expect("empty").len(), 0);
    assert_eq!(decode("{}").expect("empty").len(), 0);
}

#[test]
fn written_groups_are_read_back_the_same() {
    let options = RuleFileOptions { caps: &Caps::default(), check_template: |_| Ok(()) };
    for group in decode(FILE).expect("valid") {
        let text = group_text(&group);
        let again = decode_rule_group(&text, options).expect("valid");
        assert_eq!(text, group_text(&again));
        let alert = again.rules.iter().find(|rule| rule.name() == "Down");
        assert!(alert.is_none_or(|rule| rule.expr == "up == 0\nand on() vector(1)\n"));
        assert_eq!(alert.is_some(), group.name == "first");
    }
}

#[test]
fn each_mistake_is_refused_with_its_position() {
    let rule = |rule: &str| format!("groups:\n- name: a\n  rules:\n  - {rule}\n");
    let cases = [
        ("groups:\n- nam: a\n".to_owned(), "line 2, column 3: unknown key \"nam\"; did you mean \"name\"?"),
        ("groups:\n- interval: 1m\n".into(), "line 2, column 3: Groupname must not be empty"),
        (
            "groups:\n- name: a\n- name: a\n".into(),
            "line 3, column 3: groupname: \"a\" is repeated in the same file",
        ),
        (
            "groups:\n- name: a\n  interval: 1x\n".into(),
            "line 3, column 13: not a valid duration string: \"1x\"",
        ),
        ("groups:\n- name: a\n  interval: 1ms\n".into(), "line 3, column 13: the interval is less than 10ms"),
        (
            "groups:\n- name: a\n  labels: {__name__: x}\n".into(),
            "line 3, column 22: invalid label name: __name__",
        ),
        (
            rule("record: a\n    alert: b\n    expr: x"),
            "line 4, column 5: only one of 'record' and 'alert' must be set",
        ),
        (rule("expr: x"), "line 4, column 5: one of 'record' or 'alert' must be set"),
        (rule("record: a"), "line 4, column 5: field 'expr' must be set in rule"),
        (
            rule("record: a\n    expr: x\n    for: 1m"),
            "line 6, column 10: invalid field 'for' in recording rule",
        ),
        (
            rule("record: 'a{b=\"c\"}'\n    expr: x"),
            "line 4, column 13: braces present in the recording rule name; should it be in expr?: a{b=\"c\"}",
        ),
        (rule("alert: a\n    expr: x\n    for: 5"), "line 6, column 10: not a valid duration string: \"5\""),
        (
            rule("alert: a\n    expr: x\n    anotations: {}"),
            "line 6, column 5: unknown key \"anotations\"; did you mean \"annotations\"?",
        ),
        (
            rule("alert: a\n    expr: x\n    annotations:\n      s: '{{ bad }}'"),
            "line 7, column 10: annotation \"s\": bad template",
        ),
        (
            rule("alert: a\n    expr: x[5m]"),
            "line 5, column 11: the expression of a rule is a vector or a scalar, not a range vector",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(error(&text), expected, "{text}");
    }
}

#[test]
fn an_error_of_an_expression_has_its_position_in_the_file() {
    let rule = |expr: &str| format!("groups:\n- name: a\n  rules:\n  - record: a\n    expr: {expr}\n");
    for (expr, position) in [
        ("sum(x))", "line 5, column 18"),
        ("'sum(x))'", "line 5, column 19"),
        ("\"sum(x))\"", "line 5, column 19"),
        ("|\n      1 +\n       sum(x))", "line 7, column 15"),
        (">\n      1 +\n      sum(x))", "line 6, column 7"),
    ] {
        let error = error(&rule(expr));
        assert!(error.starts_with(&format!("{position}: could not parse expression: ")), "{expr}: {error}");
    }
}

#[test]
fn sizes_and_counts_are_bounded() {
    let big = format!("# {}\n", "x".repeat(RULE_FILE_BYTES_MAX));
    assert!(error(&big).contains("more than the 8388608 allowed"));
    let many: String = (0..=RULE_GROUPS_MAX).map(|at| format!("- name: g{at}\n")).collect();
    assert!(error(&format!("groups:\n{many}")).contains("1001 groups, more than the 1000 allowed"));
    let many = "  - {record: a, expr: '1'}\n".repeat(RULES_MAX + 1);
    assert!(error(&format!("groups:\n- name: a\n  rules:\n{many}")).contains("more than the 20000 allowed"));
    let many: String = (0..=RULE_TEXTS_MAX).map(|at| format!("l{at}: x, ")).collect();
    assert!(
        error(&format!("groups:\n- name: a\n  labels: {{{many}}}\n")).contains("more than the 64 labels")
    );
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(?s)(groups:\n- name: a\n  rules:\n  - (record|alert): x\n    expr: )?[\\-:|>'\"{}\\[\\]()a-c\n +]{0,60}") {
        let _ = decode(&text);
    }

    #[test]
    fn any_texts_survive_being_written(name in "\\PC{1,20}", value in "(?s).{0,40}", expr in "1( \\+ 1){0,3}\n?") {
        let rule = Rule {
            kind: RuleKind::Alerting(AlertingRule {
                alert: name.clone(),
                for_ms: 61_001,
                keep_firing_for_ms: 0,
                annotations: BTreeMap::from([(name.clone(), value.clone())]),
            }),
            parsed: parse(&expr, &Caps::default()).expect("valid"),
            expr,
            labels: BTreeMap::from([("a".to_owned(), value)]),
        };
        let group = RuleGroup {
            name,
            interval_ms: Some(1_500),
            limit: 0,
            query_offset_ms: None,
            labels: BTreeMap::new(),
            rules: vec![rule],
        };
        let options = RuleFileOptions { caps: &Caps::default(), check_template: |_| Ok(()) };
        let again = decode_rule_group(&group_text(&group), options).expect("valid");
        prop_assert_eq!(group_text(&again), group_text(&group));
        prop_assert_eq!(&again.rules[0].labels, &group.rules[0].labels);
        prop_assert_eq!(&again.rules[0].expr, &group.rules[0].expr);
    }
}
