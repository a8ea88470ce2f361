//! Tests of error messages and their positions for texts that are not PromQL.

use super::super::{Caps, parse, parse_matcher, parse_selector};
use super::all_features;
use crate::model::MatchOp;

fn refusal(text: &str) -> String {
    match parse(text, &all_features()) {
        Ok(parsed) => panic!("{text:?} was accepted as {}", parsed.expr),
        Err(error) => error.to_string(),
    }
}

#[test]
fn errors_have_a_position_and_a_reason() {
    let cases = [
        ("", "1:1: parse error: no expression found in input"),
        (" # only a comment", "1:1: parse error: no expression found in input"),
        ("(up", "1:4: parse error: unclosed left parenthesis"),
        ("sum(", "1:5: parse error: unclosed left parenthesis"),
        ("rate(up[5m]", "1:12: parse error: unclosed left parenthesis"),
        ("up)", "1:4: parse error: unexpected right parenthesis ')'"),
        ("1 +", "1:4: parse error: unexpected end of input"),
        ("up\n  up", "2:3: parse error: unexpected identifier \"up\""),
        ("up{", "1:4: parse error: unexpected end of input inside braces"),
        ("up{a}", "1:5: parse error: unexpected \"}\" in label matching, expected label matching operator"),
        ("up{a=b}", "1:6: parse error: unexpected identifier \"b\" in label matching, expected string"),
        ("up{,}", "1:4: parse error: unexpected \",\" in label matching"),
        ("up{a=\"b\" c=\"d\"}", "1:10: parse error: unexpected identifier \"c\" in label matching"),
        ("up[", "1:4: parse error: unclosed left bracket"),
        ("up{a!b}", "1:5: parse error: unexpected character after '!' inside braces: 'b'"),
        (
            "up{a=\"b\" \"c\"}",
            "1:10: parse error: unexpected string \"\\\"c\\\"\" in label matching, expected",
        ),
        ("sum by up", "1:8: parse error: unexpected identifier \"up\" in grouping opts, expected \"(\""),
        ("sum(up) by", "1:11: parse error: unexpected end of input in grouping opts, expected \"(\""),
        ("up offset 1m offset 2m", "1:1: parse error: offset may not be set multiple times"),
        ("1 + up @ 5 @ 6", "1:5: parse error: @ <timestamp> may not be set multiple times"),
        ("sum(rate(up[5m]) offset 5m)", "1:5: parse error: offset modifier must be preceded by"),
        ("1 @ 5", "1:1: parse error: @ modifier must be preceded by"),
        ("1 + up{__name__=\"x\"}", "1:5: parse error: metric name must not be set twice: \"up\" or \"x\""),
        ("up{\"x\",__name__!=\"y\"}", "1:1: parse error: metric name must not be set twice: \"up\" or \"x\""),
        ("up[]", "1:4: parse error: unexpected \"]\" in subquery or range selector, expected number"),
        ("up[5m", "1:6: parse error: unclosed left bracket"),
        ("up[5]m", "1:6: parse error: unexpected identifier \"m\""),
        ("up[5x]", "1:4: parse error: bad number or duration syntax: \"5x\""),
        ("\"abc", "1:1: parse error: unterminated quoted string"),
        ("\"a\nb\"", "1:1: parse error: unterminated quoted string"),
        ("`abc", "1:1: parse error: unterminated raw string"),
        ("up é", "1:4: parse error: unexpected character: 'é'"),
        ("up\x0c", "1:3: parse error: unexpected character: '\\u{c}'"),
        ("sum(up,)", "1:8: parse error: trailing commas not allowed in function call args"),
        ("on + 1", "1:1: parse error: unexpected <on>"),
        ("a + group_left(x) b", "1:5: parse error: unexpected <group_left>"),
        ("1 + unknown(up)", "1:5: parse error: unknown function with name \"unknown\""),
        (
            "1 + rate(up)",
            "1:10: parse error: expected type range vector in call to function \"rate\", got instant vector",
        ),
        (
            "2 * sum(1)",
            "1:9: parse error: expected type instant vector in aggregation expression, got scalar",
        ),
        ("up @ inf", "1:1: parse error: timestamp out of bounds for @ modifier: +Inf"),
        (
            "a + on(x) group_left(x) b",
            "1:3: parse error: label \"x\" must not occur in ON and GROUP clause at once",
        ),
        ("{a=~\".*\"}", "1:1: parse error: vector selector must contain at least one non-empty matcher"),
        ("x{a=~\"(\"}", "1:3: parse error: error parsing regexp: missing closing ): `(`"),
    ];
    for (text, expected) in cases {
        let message = refusal(text);
        assert!(message.starts_with(expected), "{text:?}: {message}");
    }
}

/// The expected messages are those of Prometheus 3.5.3.
#[test]
fn type_errors_have_the_messages_and_positions_of_prometheus() {
    let cases = [
        ("abs((-2))", "1:5", "expected type instant vector in call to function \"abs\", got scalar"),
        (
            "abs(-\"a\")",
            "1:5",
            "unary expression only allowed on expressions of type scalar or instant vector, got \"string\"",
        ),
        ("sum(t[5m])", "1:5", "expected type instant vector in aggregation expression, got range vector"),
        ("1 + t[5m]", "1:5", "binary expression must contain only scalar and instant vector types"),
        ("(t[5m] + 1)", "1:2", "binary expression must contain only scalar and instant vector types"),
        ("t and 1", "1:1", "set operator \"and\" not allowed in binary scalar expression"),
        ("1 == 1", "1:3", "comparisons between scalars must use BOOL modifier"),
        ("topk(\"a\", t)", "1:6", "expected type scalar in aggregation parameter, got string"),
        ("limitk(t, t)", "1:8", "expected type scalar in aggregation parameter, got instant vector"),
        ("count_values(1, t)", "1:14", "expected type string in aggregation parameter, got scalar"),
        ("round(t, \"a\")", "1:10", "expected type scalar in call to function \"round\", got string"),
        ("1 + clamp(t, 1)", "1:5", "expected 3 argument(s) in call to \"clamp\", got 2"),
        ("round()", "1:1", "expected at least 1 argument(s) in call to \"round\", got 0"),
        ("round(t, 1, 2)", "1:1", "expected at most 2 argument(s) in call to \"round\", got 3"),
        ("t + bool level", "1:3", "bool modifier can only be used on comparison operators"),
        ("t unless bool level", "1:3", "bool modifier can only be used on comparison operators"),
        ("t and on(room) group_left level", "1:1", "no grouping allowed for \"and\" operation"),
        ("1 + on(room) 2", "1:1", "vector matching only allowed between instant vectors"),
        ("2 * (t + on(room) 2)", "1:6", "vector matching only allowed between instant vectors"),
        (
            "-t[5m]",
            "1:1",
            "unary expression only allowed on expressions of type scalar or instant vector, got \"range vector\"",
        ),
        ("t[5m:][5m:]", "1:1", "subquery is only allowed on instant vector, got matrix instead"),
        (
            "sum(t, level)",
            "1:1",
            "wrong number of arguments for aggregate expression provided, expected 1, got 2",
        ),
        ("topk(t)", "1:1", "wrong number of arguments for aggregate expression provided, expected 2, got 1"),
        ("1 + sum()", "1:5", "no arguments for aggregate expression provided"),
        // The first error in the order of evaluation, arguments before their call.
        (
            "rate(t) + sum(1)",
            "1:6",
            "expected type range vector in call to function \"rate\", got instant vector",
        ),
        ("-2 ^ \"a\" * abs(1)", "1:6", "binary expression must contain only scalar and instant vector types"),
    ];
    for (text, position, message) in cases {
        assert_eq!(refusal(text), format!("{position}: parse error: {message}"), "{text:?}");
    }
}

/// Each text either crashes promql-parser 0.11.1, or is accepted by it although it is not PromQL.
#[test]
fn texts_that_promql_parser_gets_wrong_are_refused() {
    let texts = [
        "foo[1e300]",
        "foo[1e30]",
        "foo offset inf",
        "foo offset nan",
        "foo offset -inf",
        "foo offset 1e300",
        "foo[0]",
        "foo[0s]",
        "foo[5m:0]",
        "foo[300y]",
        "foo[300y:1m]",
        "foo offset 300y",
        "foo[9.5e10]",
        "foo[0.0001]",
        "foo[-5m]",
        "foo[1/0]",
        "foo[nan]",
        "foo @ 1e20",
        "foo @ nan",
        "foo @ -inf",
        "1e1000",
        "-1e1000",
        "{a=\"b\" or c=\"d\"}",
        "x{tenant=\"evil\" or tenant=~\".*\"}",
        "limitk(\"x\", a)",
        "limit_ratio(a, a)",
        "+\"x\"",
        "+a[5m]",
        "+(a[5m])",
        "-\"x\"",
        "a and fill(0) b",
        "1 + fill(0) a",
        "ln(-1)",
        "exp(inf)",
        "info(a, b + c)",
        "integral(a[5m])",
        "a\x0c+ b",
        "x{a=~\"x**\"}",
        "x{a=~\"a)|(b\"}",
        "x{a=~\"(?x)a b\"}",
        "x{a=~\"\\\\u0041\"}",
        "x{a=~\"x{1001}\"}",
        "x{a=~\"[a--b]\"}",
        "{a=\"\\xff\"}",
        "foo offset 5m[5m]",
        "foo @ 5 [5m]",
        "sum(foo)[5m]",
        "foo[5m] [1h:]",
        "foo offset 5m offset 1m",
        "foo @ 1 @ 2",
        "1 offset 5m",
        "(foo) offset 5m",
        "foo[5m:1m:1s]",
        "foo[:5m]",
    ];
    for text in texts {
        refusal(text);
    }
}

#[test]
fn texts_that_are_not_promql_are_refused() {
    let texts = [
        "1 = 1",
        "1 =~ 1",
        "!up",
        "1 !",
        "up up",
        "1 2",
        "()",
        "(,)",
        "rate()",
        "rate(up[5m], 1)",
        "1 == 2",
        "1 and 2",
        "a + bool b",
        "a and on(x) group_left() b",
        "a + on(x) 1",
        "\"a\" + 1",
        "up[5m] + 1",
        "sum by job (up)",
        "sum by (job) up",
        "sum by (a b) (up)",
        "sum by (,) (up)",
        "sum by (a:b) (up)",
        "sum by (inf) (up)",
        "sum by (\"\") (up)",
        "topk(up)",
        "topk(\"a\", up)",
        "count_values(1, up)",
        "sum()",
        "sum(up, up)",
        "Rate(up[5m])",
        "a:b(up)",
        "1(up)",
        "time(1)",
        "time() [5m:]",
    ];
    for text in texts {
        refusal(text);
    }
}

#[test]
fn wrong_selectors_literals_and_modifiers_are_refused() {
    let texts = [
        "up{a=\"b\",,}",
        "up{=\"b\"}",
        "up{a==\"b\"}",
        "up{a:b=\"c\"}",
        "up{1=\"c\"}",
        "up{\"\"=\"c\"}",
        "{}",
        "{a=\"\"}",
        "{a!=\"b\"}",
        "{\"\"}",
        "up{__name__=\"x\"}",
        "up{\"x\"}",
        "1__0",
        "1_",
        "0x",
        "0b1",
        "0x1p4",
        "1e",
        "1.2.3",
        "5m5m",
        "1m1h",
        "1.5h",
        "1d2",
        "up[5m]]",
        "up[5m}",
        "up(",
        "a + ",
        "* a",
        "a + on b",
        "a + on(x) group_left(y) group_right(z) b",
        "a + fill(x) b",
        "a + fill() b",
        "a + fill(0) fill_left(1) b",
        "up @",
        "up @ foo",
        "up @ start",
        "up @ start(1)",
        "up @ \"x\"",
        "up offset",
        "up offset foo",
        "up offset \"1m\"",
        "up offset --1m",
        "'\\\"'",
        "\"\\'\"",
        "\"\\400\"",
        "\"\\x4\"",
        "\"\\ud800\"",
        "\"\\U00110000\"",
        "\"\\q\"",
        "\"\\",
        "\"abc\\\"",
        "label_replace(up, \"a\")",
        "a </ bool b",
        "1 anchored",
        "(up) smoothed",
        "up[5m:1m] anchored",
        "up anchored smoothed",
        "up[step(1)]",
        "up[step]",
        "up[min_of(1)]",
        "@ 5",
        "offset 5m up",
        "}",
        "]",
        ",",
        "a atan2",
        "atan2",
        "bool",
        "group_left",
    ];
    for text in texts {
        refusal(text);
    }
}

#[test]
fn a_single_selector_parses_to_its_matchers() {
    let texts = |text: &str| -> Vec<String> {
        let matchers =
            parse_selector(text, &Caps::default()).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        matchers.iter().map(ToString::to_string).collect()
    };
    assert_eq!(texts("up"), ["__name__=\"up\""]);
    assert_eq!(texts(" {job=~\"a|b\"} "), ["job=~\"a|b\""]);
    assert_eq!(texts("up{job!=\"a\", x=\"\"}"), ["__name__=\"up\"", "job!=\"a\"", "x=\"\""]);
    for text in [
        "",
        "{}",
        "{a=~\".*\"}",
        "up[5m]",
        "up offset 5m",
        "up + 1",
        "1",
        "\"up\"",
        "sum(up)",
        "(up)",
        "bool",
        "inf",
        "up{a=~\"[\"}",
    ] {
        assert!(parse_selector(text, &Caps::default()).is_err(), "{text:?}");
    }
}

#[test]
fn a_single_matcher_parses_with_and_without_quotes() {
    let cases = [
        ("job=api", "job", MatchOp::Equal, "api"),
        (" job != api server ", "job", MatchOp::NotEqual, "api server"),
        ("job=~\"api|db\"", "job", MatchOp::Regex, "api|db"),
        ("env!~prod.*", "env", MatchOp::NotRegex, "prod.*"),
        ("env=~prod|stage", "env", MatchOp::Regex, "prod|stage"),
        ("tenant='t\\'42'", "tenant", MatchOp::Equal, "t'42"),
        ("path=`C:\\x`", "path", MatchOp::Equal, "C:\\x"),
        ("\"a.b\" = c", "a.b", MatchOp::Equal, "c"),
        ("a=", "a", MatchOp::Equal, ""),
        ("a==b", "a", MatchOp::Equal, "=b"),
        ("a=b=c", "a", MatchOp::Equal, "b=c"),
        ("a=x\"y\"", "a", MatchOp::Equal, "x\"y\""),
        ("a=~", "a", MatchOp::Regex, ""),
    ];
    for (text, name, op, value) in cases {
        let matcher =
            parse_matcher(text, &Caps::default()).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!((matcher.name(), matcher.op(), matcher.value()), (name, op, value), "{text:?}");
    }
    let refused = [
        "",
        "=",
        "a",
        "a b",
        "1=2",
        "=x",
        "\"\"=x",
        "\"a=x",
        "a=\"x",
        "a=\"x\" y",
        "a=\"x\",b=\"y\"",
        "a=~[",
        "a>1",
        "é=1",
        "a!x",
        "a.b=c",
        "a=\"\\q\"",
    ];
    for text in refused {
        assert!(parse_matcher(text, &Caps::default()).is_err(), "{text:?}");
    }
    let error = parse_matcher("job=~(", &Caps::default()).expect_err("not a pattern");
    assert_eq!((error.offset, error.column), (5, 6));
}

#[test]
fn messages_about_long_tokens_are_truncated() {
    let long = "é".repeat(20_000);
    for text in [
        format!("up \"{long}\""),
        format!("1 + {}", "1x".repeat(20_000)),
        format!("{}(1)", "f".repeat(40_000)),
    ] {
        let error = parse(&text, &Caps::default()).expect_err("not an expression");
        assert!(error.message.len() <= 404, "{} bytes", error.message.len());
    }
}

#[test]
fn disabled_features_are_refused_with_the_name_of_their_switch() {
    let cases = [
        (
            "info(up)",
            "1:1: parse error: function \"info\" is not enabled (--enable-feature=promql-experimental-functions)",
        ),
        (
            "1 + step()",
            "1:5: parse error: function \"step\" is not enabled (--enable-feature=promql-experimental-functions)",
        ),
        (
            "limitk(1, up)",
            "1:1: parse error: limitk() is experimental and must be enabled with --enable-feature=promql-experimental-functions",
        ),
        (
            "rate(up[5m] anchored)",
            "1:13: parse error: anchored modifier is experimental and not enabled (--enable-feature=promql-extended-range-selectors)",
        ),
        (
            "up smoothed",
            "1:4: parse error: smoothed modifier is experimental and not enabled (--enable-feature=promql-extended-range-selectors)",
        ),
        (
            "a + fill(0) b",
            "1:5: parse error: binop fill modifiers are experimental and not enabled (--enable-feature=promql-binop-fill-modifiers)",
        ),
    ];
    for (text, expected) in cases {
        let error = parse(text, &Caps::default()).expect_err(text);
        assert_eq!(error.to_string(), expected, "{text:?}");
        assert!(parse(text, &all_features()).is_ok(), "{text:?}");
    }
    // Metric names and duration arithmetic need no switch.
    for text in
        ["info", "anchored + smoothed", "fill + limitk", "up[step() * 2]", "up offset -min_of(1m, range())"]
    {
        assert!(parse(text, &Caps::default()).is_ok(), "{text:?}");
    }
}

#[test]
fn duration_operators_are_counted_and_their_nesting_is_bounded() {
    let chain = |n: usize| format!("up[{}]", vec!["step()"; n].join(" + "));
    assert!(parse(&chain(257), &all_features()).is_ok());
    let error = parse(&chain(258), &all_features()).expect_err("one too many");
    assert!(error.message.contains("too many binary operators"), "{error}");
    for text in [
        format!("up[{}1{}]", "(".repeat(100), ")".repeat(100)),
        format!("up[{}1]", "-".repeat(10_000)),
        format!("up[{}1]", "1^".repeat(30_000)),
        format!("up offset {}step(){}", "min_of(1, ".repeat(3_000), ")".repeat(3_000)),
    ] {
        let error = parse(&text, &all_features()).expect_err("too deep or too many");
        let capped = ["too many", "too deeply"].iter().any(|cap| error.message.contains(cap));
        assert!(capped, "{error}");
    }
}
