//! Tests of every cap at its limit and one beyond it. Hostile texts never reach the parser.

use super::super::grammar::PARSER_CALLS;
use super::super::{Caps, SyntaxError, parse, parse_matcher, parse_selector};

/// Parses `text`, and returns whether the parser was called.
fn attempt(text: &str) -> (Result<(), SyntaxError>, bool) {
    PARSER_CALLS.set(0);
    let outcome = parse(text, &Caps::default()).map(|parsed| {
        // An accepted tree can also be printed, cloned and dropped.
        let printed = parsed.expr.to_string();
        drop((parsed.clone(), printed));
    });
    (outcome, PARSER_CALLS.get() > 0)
}

fn check_cap(at_limit: &str, beyond: &str, reason: &str) {
    let cut = |text: &str| text.chars().take(60).collect::<String>();
    if let (Err(error), _) = attempt(at_limit) {
        panic!("at the limit: {} ...: {error}", cut(at_limit));
    }
    let (outcome, parser_called) = attempt(beyond);
    let error = outcome.expect_err("beyond the limit");
    assert!(error.message.contains(reason), "{} ...: {error}", cut(beyond));
    assert!(!parser_called, "the parser was called with {} ...", cut(beyond));
}

fn around(before: &str, times: usize, inner: &str, after: &str) -> String {
    format!("{}{inner}{}", before.repeat(times), after.repeat(times))
}

fn joined(piece: &str, times: usize, between: &str) -> String {
    vec![piece; times].join(between)
}

#[test]
fn the_text_is_at_most_64_kib() {
    let of = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    check_cap(&of(65_536), &of(65_537), "too long");
}

#[test]
fn nesting_is_at_most_64() {
    let cases = [
        ("(", "a", ")"),
        ("abs(", "a", ")"),
        ("sum(", "a", ")"),
        ("-", "a", ""),
        ("+", "a", ""),
        ("-(", "a", ")"),
        ("1 ^ (", "a", ")"),
    ];
    for (before, inner, after) in cases {
        let per_piece = before.bytes().filter(|byte| matches!(byte, b'(' | b'-' | b'+')).count();
        let times = 64 / per_piece;
        check_cap(
            &around(before, times, inner, after),
            &around(before, times + 1, inner, after),
            "nested too deeply",
        );
    }
    // Braces, brackets and parentheses within a duration count as levels, too.
    check_cap(&around("(", 63, "a{b=\"c\"}", ")"), &around("(", 64, "a{b=\"c\"}", ")"), "nested too deeply");
    let windows = |times| format!("rate({})", around("(", times, "a[5m]", ")"));
    check_cap(&windows(62), &windows(63), "nested too deeply");
    check_cap(
        &format!("a[{}]", around("(", 64, "1", ")")),
        &format!("a[{}]", around("(", 65, "1", ")")),
        "nested too deeply",
    );
    check_cap(&format!("a[{}1]", "-".repeat(64)), &format!("a[{}1]", "-".repeat(65)), "nested too deeply");
}

#[test]
fn signs_around_powers_count_as_nesting() {
    // Each sign encloses all powers to its right, like a parenthesis.
    check_cap(&joined("-a", 64, " ^ "), &joined("-a", 65, " ^ ").replace('a', "1"), "nested too deeply");
    // Signs do not enclose other operators.
    attempt(&joined("-1", 200, " * ")).0.expect("not nested");
}

#[test]
fn binary_operators_are_at_most_256() {
    for op in ["+", "*", "^", "== bool", "atan2"] {
        let between = format!(" {op} ");
        check_cap(&joined("1", 257, &between), &joined("1", 258, &between), "too many binary operators");
    }
    check_cap(
        &joined("vector(1)", 257, " or "),
        &joined("vector(1)", 258, " or "),
        "too many binary operators",
    );
}

#[test]
fn selectors_are_at_most_64() {
    check_cap(&joined("a", 64, " + "), &joined("a", 65, " + "), "too many series selectors");
}

#[test]
fn regular_expressions_are_at_most_16_of_1_kib_but_sets_are_not_counted() {
    let of =
        |count: usize, pattern: &str| format!("a{{{}}}", joined(&format!("b=~\"{pattern}\""), count, ","));
    check_cap(&of(16, "x.+y"), &of(17, "x.+y"), "too many regular expressions");
    check_cap(
        &of(1, &format!("{}.", "x".repeat(1023))),
        &of(1, &format!("{}.", "x".repeat(1024))),
        "regular expression too long",
    );
    attempt(&of(1, &joined("10.0.0.1".replace('.', "\\\\.").as_str(), 3000, "|")))
        .0
        .expect("a set of 3,000 literals");
    attempt(&of(1000, "a|b|c")).0.expect("a thousand sets");
    let in_matcher = |pattern: &str| parse_matcher(&format!("a=~{pattern}"), &Caps::default());
    assert!(in_matcher(&format!("{}.", "x".repeat(1023))).is_ok());
    assert!(in_matcher(&format!("{}.", "x".repeat(1024))).is_err());
    assert!(parse_selector(&of(17, "x.+y"), &Caps::default()).is_err());
}

#[test]
fn subqueries_nest_at_most_4_deep() {
    let of = |depth: usize| {
        let mut text = "a".to_owned();
        for _ in 0..depth {
            text = format!("max_over_time({text}[1h:])");
        }
        text
    };
    check_cap(&of(4), &of(5), "subqueries nested too deeply");
    // Adjacent subqueries do not nest.
    attempt(&joined("max_over_time(a[1h:])", 20, " + ")).0.expect("not nested");
}

#[test]
fn hostile_texts_never_reach_the_parser() {
    let regexes: Vec<String> = (0..100).map(|i| format!("l{i}=~\"\\\\w{{60}}\"")).collect();
    let texts = [
        "(".repeat(100_000),
        "(".repeat(60_000),
        around("(", 30_000, "a", ")"),
        joined("1", 20_000, "+"),
        "sum(".repeat(16_000),
        around("sum(", 10_000, "a", ")"),
        format!("{}a", "-".repeat(60_000)),
        format!("{}a", "-+".repeat(30_000)),
        joined("a", 10_000, " or "),
        joined("-a", 10_000, "^"),
        format!("a{{{}}}", regexes.join(",")),
        format!("a{}", "[5m:]".repeat(10_000)),
        format!("a{}", " offset 1m".repeat(5_000)),
        format!("a{}", " @ 1".repeat(10_000)),
        "{".repeat(60_000),
        "[".repeat(60_000),
        format!("a[{}", "(".repeat(60_000)),
        format!("a[{}1]", "1^".repeat(30_000)),
        "\"".repeat(60_001),
        format!("{}\"", "\"\\".repeat(20_000)),
        "1e".repeat(30_000),
        format!("a{{b=~\"{}\"}}", "(".repeat(50_000)),
        format!("a{{b=~\"{}\"}}", "(a|b)".repeat(10_000)),
    ];
    for text in texts {
        let (outcome, parser_called) = attempt(&text);
        let cut: String = text.chars().take(40).collect();
        assert!(outcome.is_err(), "{cut} ...");
        assert!(!parser_called, "{cut} ...");
    }
    // Within the cap on the text, long lists are allowed; their cost is linear in their length.
    attempt(&format!("label_join(a, \"b\", {})", joined("\"\"", 16_000, ",")))
        .0
        .expect("a long list of arguments");
    attempt(&format!("sum by ({}) (a)", joined("b", 30_000, ","))).0.expect("a long list of labels");
    attempt(&format!("a{{{}}}", joined("b=\"c\"", 10_000, ","))).0.expect("a long list of matchers");
    attempt(&"#".repeat(60_000)).0.expect_err("a long comment");
}

#[test]
fn errors_in_large_texts_do_not_repeat_the_work_of_the_parser() {
    // All groups fail with the same message, and the parser is not called once for each of them.
    PARSER_CALLS.set(0);
    let text = format!("label_join(a, \"b\", {})", joined("(1)", 10_000, ","));
    assert!(parse(&text, &Caps::default()).is_err());
    assert_eq!(PARSER_CALLS.get(), 1);
    PARSER_CALLS.set(0);
    assert!(parse(&joined("(1 == 1)", 100, " + "), &Caps::default()).is_err());
    assert!(PARSER_CALLS.get() <= 65);
}

#[test]
fn the_largest_trees_fit_a_mebibyte_of_stack() {
    let deep = around("-(1 + ", 32, &joined("1", 220, " ^ "), ")");
    let texts = [
        deep,
        joined("1", 257, " ^ "),
        joined("1", 257, " + "),
        around("sum(", 64, "a", ")"),
        format!("{} + {}", around("(", 64, "a", ")"), joined("1", 255, " - ")),
    ];
    let worker = std::thread::Builder::new().stack_size(1 << 20);
    let run = move || {
        texts.iter().for_each(|text| attempt(text).0.unwrap_or_else(|error| panic!("{text}: {error}")))
    };
    worker.spawn(run).expect("a thread").join().expect("no overflow");
}
