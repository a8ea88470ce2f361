//! Tests of the public functions: texts become trees, printed forms or errors.

mod caps;
mod laws;
mod refusals;
mod structured;

use super::tree::{
    AtModifier, BinaryOp, Cardinality, DurationExpr, Expr, Formula, Grouping, Span, Term, ValueType,
};
use super::{Caps, Features, Parsed, parse};
use crate::model::Timestamp;

/// Returns caps with all feature switches on.
fn all_features() -> Caps {
    Caps { features: Features::ALL, ..Caps::default() }
}

fn parsed(text: &str) -> Parsed {
    parse(text, &all_features()).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// Checks the printed form of `text`, and that it parses and prints as itself.
fn check_prints(text: &str, expected: &str) {
    let printed = parsed(text).expr.to_string();
    assert_eq!(printed, expected, "of {text:?}");
    assert_eq!(parsed(&printed).expr.to_string(), expected, "printed form of {text:?}");
}

fn length(length: &DurationExpr) -> String {
    fn formula(term: &Term) -> String {
        match &term.formula {
            Formula::Number(value) => format!("{value:?}"),
            Formula::Step => "step".into(),
            Formula::Range => "range".into(),
            Formula::Negate(inner) => format!("(-{})", formula(inner)),
            Formula::Of(op, sides) => format!("({op:?} {} {})", formula(&sides.0), formula(&sides.1)),
        }
    }
    match length {
        DurationExpr::Fixed(ms) => ms.to_string(),
        DurationExpr::Computed(term) => format!("<{}>", formula(term)),
    }
}

/// Returns the tree with all parentheses, independently of the printer.
fn shape(expr: &Expr) -> String {
    match expr {
        Expr::Number(value) => format!("{value:?}"),
        Expr::Text(text) => format!("{text:?}"),
        Expr::Bytes(bytes) => format!("{bytes:x?}"),
        Expr::Vector(selector) => {
            format!(
                "{:?}~{}~{:?}",
                selector.matchers.iter().map(ToString::to_string).collect::<Vec<_>>(),
                length(&selector.offset),
                (selector.at, selector.extension)
            )
        }
        Expr::Matrix(matrix) => {
            format!("{}[{}]", shape(&Expr::Vector(matrix.selector.clone())), length(&matrix.range))
        }
        Expr::Subquery(s) => {
            let (range, step) = (length(&s.range), s.step.as_ref().map(length));
            format!("<{}>[{range}:{step:?}]~{}~{:?}", shape(&s.expr), length(&s.offset), s.at)
        }
        Expr::Negate(operand) => format!("(-{})", shape(operand)),
        Expr::Binary(b) => {
            format!(
                "({} {} {} {:?} {})",
                shape(&b.lhs),
                b.op.as_str(),
                b.returns_bool,
                b.matching,
                shape(&b.rhs)
            )
        }
        Expr::Call(call) => {
            format!("{}({})", call.name, call.args.iter().map(shape).collect::<Vec<_>>().join(", "))
        }
        Expr::Aggregate(a) => {
            format!("{:?}({:?}, {}) {:?}", a.op, a.param.as_ref().map(shape), shape(&a.expr), a.grouping)
        }
    }
}

#[test]
fn numbers_are_read_as_prometheus_reads_them() {
    let cases = [
        ("1", 1.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1E+3", 1000.0),
        ("5e-3", 0.005),
        ("0x1F", 31.0),
        ("0X1f", 31.0),
        ("017", 15.0),
        ("08", 8.0),
        ("0", 0.0),
        ("00", 0.0),
        ("0777777777777777777777777", 777_777_777_777_777_777_777_777.0),
        ("1_000", 1000.0),
        ("0x_FF", 255.0),
        (".123_456", 0.123_456),
        ("1e-400", 0.0),
        ("Inf", f64::INFINITY),
        ("+iNf", f64::INFINITY),
        ("-inf", f64::NEG_INFINITY),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("0s", 0.0),
        ("100ms", 0.1),
        ("4294967296s", 4_294_967_296.0),
        ("-1", -1.0),
        ("- - 1", 1.0),
        ("-+-+1", 1.0),
        ("-(1)", -1.0),
        ("((1))", 1.0),
    ];
    for (text, expected) in cases {
        let Parsed { expr, value_type } = parsed(text);
        assert!(matches!(expr, Expr::Number(value) if value == expected), "{text:?} is {expr:?}");
        assert_eq!(value_type, ValueType::Scalar);
    }
    assert!(matches!(parsed("NaN").expr, Expr::Number(value) if value.is_nan()));
}

#[test]
fn strings_are_decoded_with_go_escapes() {
    let cases = [
        (r#""plain""#, "plain"),
        (r#""\a\b\f\n\r\t\v\\\"""#, "\x07\x08\x0c\n\r\t\x0b\\\""),
        (r"'it\'s'", "it's"),
        (r#"'"'"#, "\""),
        (r#""\101\x42\u0043\U00000044""#, "ABCD"),
        (r#""\xc3\xa9 é""#, "é é"),
        (r"`raw \n \x ' `", r"raw \n \x ' "),
        ("`two\nlines`", "two\nlines"),
        (r#""""#, ""),
        ("'# no comment'", "# no comment"),
    ];
    for (text, expected) in cases {
        let Parsed { expr, value_type } = parsed(text);
        assert!(matches!(&expr, Expr::Text(value) if value == expected), "{text:?} is {expr:?}");
        assert_eq!(value_type, ValueType::Text);
    }
}

#[test]
fn strings_that_are_not_utf8_are_values_but_not_labels() {
    let Parsed { expr, value_type } = parsed(r#""a\xc5z\303\251\n""#);
    assert!(matches!(&expr, Expr::Bytes(bytes) if bytes == b"a\xc5z\xc3\xa9\n"), "{expr:?}");
    assert_eq!(value_type, ValueType::Text);
    assert_eq!(expr.to_string(), r#""a\xc5z\u{e9}\n""#.replace(r"\u{e9}", "\u{e9}"));
    assert_eq!(parsed(&expr.to_string()).expr.to_string(), expr.to_string());
    for text in [r#"{a="\xff"}"#, r#"{"\xff"}"#, r#"sum by ("\xff") (a)"#] {
        let refused = parse(text, &Caps::default()).expect_err("not a label");
        assert!(refused.to_string().contains("string is not valid UTF-8"), "{text}: {refused}");
    }
}

#[test]
fn precedence_is_that_of_prometheus() {
    let cases = [
        ("1 + 2 * 3", "(1.0 + false None (2.0 * false None 3.0))"),
        ("1 - 2 - 3", "((1.0 - false None 2.0) - false None 3.0)"),
        ("2 ^ 3 ^ 2", "(2.0 ^ false None (3.0 ^ false None 2.0))"),
        ("-1 ^ 2", "(-(1.0 ^ false None 2.0))"),
        ("-1 * 2", "(-1.0 * false None 2.0)"),
        ("2 * -1 ^ 2", "(2.0 * false None (-(1.0 ^ false None 2.0)))"),
        ("1 + 2 atan2 3", "(1.0 + false None (2.0 atan2 false None 3.0))"),
        ("1 < bool 2 + 3", "(1.0 < true None (2.0 + false None 3.0))"),
        ("1 == bool 2 < bool 3", "((1.0 == true None 2.0) < true None 3.0)"),
        ("(1 + 2) * 3", "((1.0 + false None 2.0) * false None 3.0)"),
    ];
    for (text, expected) in cases {
        assert_eq!(shape(&parsed(text).expr), expected, "{text:?}");
    }
    let sets = parsed("a or b and c unless d").expr;
    let Expr::Binary(or) = &sets else { panic!("{sets:?}") };
    assert_eq!(or.op, BinaryOp::Or);
    let Expr::Binary(unless) = &or.rhs else { panic!("{sets:?}") };
    assert_eq!(unless.op, BinaryOp::Unless);
    assert_eq!(or.matching.as_ref().map(|matching| matching.cardinality), Some(Cardinality::ManyToMany));
}

#[test]
fn expressions_print_in_canonical_form() {
    let cases = [
        // Selectors.
        ("up", "up"),
        ("up{}", "up"),
        (r#"up{job="api",}"#, r#"up{job="api"}"#),
        (r#"{job='api' , __name__="up"}"#, r#"up{job="api"}"#),
        (r#"{"my.metric","a.b"!="c"}"#, r#"{"my.metric", "a.b"!="c"}"#),
        (r#"{a="b", "up"}"#, r#"up{a="b"}"#),
        (r#"{__name__=~"up|down"}"#, r#"{__name__=~"up|down"}"#),
        (r#"{__name__="up",__name__!="x"}"#, r#"{__name__="up", __name__!="x"}"#),
        (r#"{"Inf"}"#, r#"{"Inf"}"#),
        // Braces may name several metrics.
        (r#"{"up","gauge"}"#, r#"{__name__="up", __name__="gauge"}"#),
        (r#"{"up","up"}"#, r#"{__name__="up", __name__="up"}"#),
        (r#"{"up",__name__=~"u."}"#, r#"{__name__="up", __name__=~"u."}"#),
        (r#"{__name__!="x","up"}"#, r#"{__name__!="x", __name__="up"}"#),
        // Infinity has a sign, as in Prometheus.
        ("up * inf", "up * +Inf"),
        ("+Inf ^ 2", "+Inf ^ 2"),
        ("-inf ^ 2", "-+Inf ^ 2"),
        ("2 ^ -Inf", "2 ^ -Inf"),
        (r#"{or ="x", on=~"y"}"#, r#"{or="x", on=~"y"}"#),
        ("a:b:c", "a:b:c"),
        (r#"x{a!~`\d+`}"#, r#"x{a!~"\\d+"}"#),
        (r#"x{a="\u0001\n\"é"}"#, r#"x{a="\u0001\n\"é"}"#),
        // Keywords are metric names where an operand is expected.
        ("sum + by", "sum + by"),
        ("offset offset 5m", "offset offset 5m"),
        ("and and or", "and and or"),
        ("fill + fill_left", "fill + fill_left"),
        ("start + end", "start + end"),
        ("anchored", "anchored"),
        ("smoothed{a=\"b\"}", "smoothed{a=\"b\"}"),
        // Windows and modifiers.
        ("up[300]", "up[5m]"),
        ("up[0.5]", "up[500ms]"),
        ("up[1w]", "up[1w]"),
        ("up [ 5m ] offset 1h @ 12.5", "up[5m] @ 12.500 offset 1h"),
        ("up offset -5m", "up offset -5m"),
        ("up offset 0s offset 5m", "up offset 5m"),
        ("up offset 0", "up"),
        ("up offset (5)", "up offset (5)"),
        ("up offset 1m + 1", "up offset 1m + 1"),
        ("up @ start() offset 5m", "up @ start() offset 5m"),
        ("up @ END()", "up @ end()"),
        ("up @ -1.5", "up @ -1.500"),
        ("up @ 1m", "up @ 60"),
        ("up @ 0x10", "up @ 16"),
        ("up[5m * 2]", "up[300 * 2]"),
        ("up[(1h + 30m) / 3]", "up[(3600 + 1800) / 3]"),
        ("up[min_of(1h, 2m)]", "up[min_of(3600, 120)]"),
        ("up[2 ^ 3 ^ 2]", "up[2 ^ 3 ^ 2]"),
        ("up[(2 ^ 3) ^ STEP()]", "up[(2 ^ 3) ^ step()]"),
        ("up[-step()*2]", "up[-step() * 2]"),
        ("up[-(range() - 5)]", "up[-(range() - 5)]"),
        ("up[1h:step()] offset -Range()", "up[1h:step()] offset (-range())"),
        ("up[(5m)]", "up[(300)]"),
        ("up[5m] Anchored offset 1m", "up[5m] anchored offset 1m"),
        ("up anchored[5m]", "up[5m] anchored"),
        ("up smoothed @ 5", "up smoothed @ 5"),
        ("a </ 2 >/ on(x) b", "a </ 2 >/ on (x) b"),
        ("up[-1 + 2m]", "up[-1 + 120]"),
        ("up offset (2 ^ 3 + max_of(1, 2))", "up offset (2 ^ 3 + max_of(1, 2))"),
        ("up offset -2 ^ 2", "up offset -2s ^ 2"),
        // Subqueries.
        ("rate(up[1m])[1h:5m]", "rate(up[1m])[1h:5m]"),
        ("up[1h:]", "up[1h:]"),
        ("(a + b)[1h:] offset 1m @ end()", "(a + b)[1h:] @ end() offset 1m"),
        ("(-a)[1h:]", "(-a)[1h:]"),
        ("up offset 5m[1h:]", "up offset 5m[1h:]"),
        ("up @ 5 [1h:1m]", "up @ 5[1h:1m]"),
    ];
    cases.iter().for_each(|(text, expected)| check_prints(text, expected));
}

#[test]
fn calls_and_operators_print_in_canonical_form() {
    let cases = [
        ("sum(up)", "sum(up)"),
        ("sum by () (up)", "sum(up)"),
        ("SUM BY (a, \"b.c\", by,) (up)", "sum by (a, \"b.c\", by) (up)"),
        ("sum(up) without ()", "sum without () (up)"),
        ("topk(5, up) by (job)", "topk by (job) (5, up)"),
        ("count_values by (x) (\"v\", up)", "count_values by (x) (\"v\", up)"),
        ("limit_ratio(-0.5, up)", "limit_ratio(-0.5, up)"),
        ("time()", "time()"),
        ("round(up)", "round(up)"),
        ("step() + range() + start() + end()", "step() + range() + start() + end()"),
        ("max_of(1, 2)", "max_of(1, 2)"),
        ("info(a, {})", "info(a, {})"),
        ("info(a, {b=~\".*\"})", "info(a, {b=~\".*\"})"),
        (
            "histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))",
            "histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))",
        ),
        (
            "label_replace(up, \"a\", \"$1\", \"b\", \"(.*)\")",
            "label_replace(up, \"a\", \"$1\", \"b\", \"(.*)\")",
        ),
        ("scalar(n0)", "scalar(n0)"),
        // Operators.
        ("a+b*c", "a + b * c"),
        ("(a+b)*c", "(a + b) * c"),
        ("a-(b-c)", "a - (b - c)"),
        ("(a^b)^c", "(a ^ b) ^ c"),
        ("-(a+b)", "-(a + b)"),
        ("(-a)^b", "(-a) ^ b"),
        ("(-1)^2", "(-1) ^ 2"),
        ("a ^ -b ^ c", "a ^ -b ^ c"),
        ("+a", "a"),
        ("--a", "--a"),
        ("1 > bool 2", "1 > bool 2"),
        ("a / on(x,y) group_left(z) b", "a / on (x, y) group_left (z) b"),
        ("a / ignoring(x) group_right b", "a / ignoring (x) group_right () b"),
        ("a * on() b", "a * on () b"),
        ("a * ignoring() b", "a * b"),
        ("a and on(x) b", "a and on (x) b"),
        ("a > bool on(x) b", "a > bool on (x) b"),
        ("a + fill(0) b", "a + fill (0) b"),
        ("a + on(x) fill_right(-1) fill_left(1m) b", "a + on (x) fill_left (60) fill_right (-1) b"),
        ("1 + on() a", "1 + a"),
        // Numbers.
        ("1e300 + 1e-9", "1e300 + 1e-9"),
        ("-Inf + NaN + 0.1", "-Inf + NaN + 0.1"),
        // Blanks and comments.
        ("up # the end\n + # more\r\n 1", "up + 1"),
    ];
    cases.iter().for_each(|(text, expected)| check_prints(text, expected));
}

#[test]
fn expressions_have_the_value_types_of_prometheus() {
    let cases = [
        ("1 + 2", ValueType::Scalar),
        ("time() * 2", ValueType::Scalar),
        ("scalar(up)", ValueType::Scalar),
        ("vector(1)", ValueType::Vector),
        ("1 + up", ValueType::Vector),
        ("-up", ValueType::Vector),
        ("sum(up)", ValueType::Vector),
        ("up[5m]", ValueType::Matrix),
        ("up[5m:]", ValueType::Matrix),
        ("\"a\"", ValueType::Text),
    ];
    for (text, expected) in cases {
        assert_eq!(parsed(text).value_type, expected, "{text:?}");
    }
}

#[test]
fn modifiers_are_in_the_tree() {
    let Expr::Vector(selector) = parsed("up offset -5m @ 12.3456").expr else { panic!("a selector") };
    assert!(matches!(selector.offset, DurationExpr::Fixed(-300_000)));
    assert_eq!(selector.at, Some(AtModifier::Time(Timestamp::from_ms(12_346))));

    let Expr::Aggregate(aggregate) = parsed("quantile without (a) (0.5, up)").expr else {
        panic!("an aggregation")
    };
    assert!(matches!(aggregate.param, Some(Expr::Number(0.5))));
    assert_eq!(aggregate.grouping, Grouping::Without(vec!["a".into()]));

    let Expr::Binary(binary) = parsed("a == bool on (x) group_right (y, z) b").expr else {
        panic!("an operator")
    };
    let matching = binary.matching.expect("modifiers");
    assert!(binary.returns_bool && matching.on);
    assert_eq!(
        (matching.labels, matching.include),
        (vec!["x".to_owned()], vec!["y".to_owned(), "z".to_owned()])
    );
    assert_eq!(matching.cardinality, Cardinality::OneToMany);
}

#[test]
fn spans_are_exact() {
    fn spans(expr: &Expr, out: &mut Vec<Span>) {
        match expr {
            Expr::Vector(selector) => out.push(selector.span),
            Expr::Matrix(matrix) => out.push(matrix.selector.span),
            Expr::Subquery(subquery) => {
                spans(&subquery.expr, out);
                out.push(subquery.span);
            }
            Expr::Negate(operand) => spans(operand, out),
            Expr::Binary(binary) => {
                spans(&binary.lhs, out);
                out.push(binary.span);
                spans(&binary.rhs, out);
            }
            Expr::Call(call) => {
                out.push(call.span);
                call.args.iter().for_each(|arg| spans(arg, out));
            }
            Expr::Aggregate(aggregate) => {
                out.push(aggregate.span);
                aggregate.param.iter().for_each(|param| spans(param, out));
                spans(&aggregate.expr, out);
            }
            Expr::Number(_) | Expr::Text(_) | Expr::Bytes(_) => {}
        }
    }
    let text = "-rate( a{x=\"é\"} [5m] ) + 1 ^ -topk(scalar(b), c * (d)) by (x) unless {e=\"f\"}";
    let mut found = Vec::new();
    spans(&parsed(text).expr, &mut found);
    let found: Vec<&str> = found.iter().map(|span| &text[span.start as usize..span.end as usize]).collect();
    let expected = [
        "rate( a{x=\"é\"} [5m] )",
        "a{x=\"é\"}",
        "+",
        "^",
        "topk(scalar(b), c * (d)) by (x)",
        "scalar(b)",
        "b",
        "c",
        "*",
        "d",
        "unless",
        "{e=\"f\"}",
    ];
    assert_eq!(found, expected);

    let text = "(a or b)[1h : 5m] @ end()";
    let mut found = Vec::new();
    spans(&parsed(text).expr, &mut found);
    assert_eq!(found.last().map(|span| &text[span.start as usize..span.end as usize]), Some("[1h : 5m]"));
}
