//! Properties: any text is an expression or an error, and any printed tree parses to itself.

use proptest::prelude::*;

use super::super::tree::{
    Aggregate, AggregateOp, AtModifier, Binary, BinaryOp, Call, Cardinality, DurationExpr, DurationOp, Expr,
    Extension, Formula, Grouping, Matching, MatrixSelector, Span, Subquery, Term, VectorSelector,
};
use super::super::{lex, parse, parse_matcher, parse_selector};
use super::{all_features, shape};
use crate::model::{METRIC_NAME, MatchOp, Matcher, Timestamp};

fn label() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z_][a-z0-9_]{0,3}",
        prop::sample::select(vec!["by", "on", "or", "inf", "sum", "bool", "offset", "start"])
            .prop_map(str::to_owned),
        "\\PC{1,4}",
    ]
    .prop_filter("the metric name has a rule of its own", |name| name != METRIC_NAME)
}

fn labels() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(label(), 0..3)
}

fn matcher() -> impl Strategy<Value = Matcher> {
    let text = || {
        prop_oneof![
            "\\PC{0,5}",
            prop::sample::select(vec!["a\nb", "\u{1}", "\"", "\\", "`'"]).prop_map(str::to_owned)
        ]
    };
    prop_oneof![
        (label(), text()).prop_map(|(name, value)| Matcher::equal(&name, &value)),
        (label(), text())
            .prop_map(|(name, value)| Matcher::new(&name, MatchOp::NotEqual, &value).expect("no pattern")),
        (label(), prop::sample::select(vec!["a|b", "x.+", "[0-9]+", "\\d\\.", ""]))
            .prop_map(|(name, value)| Matcher::new(&name, MatchOp::Regex, value).expect("a pattern")),
    ]
}

fn offset() -> BoxedStrategy<DurationExpr> {
    let literal = prop_oneof![Just(0), -100_000_000_000..100_000_000_000_i64, Just(86_400_000), Just(1)];
    prop_oneof![4 => literal.prop_map(DurationExpr::Fixed), 1 => computed()].boxed()
}

fn computed() -> BoxedStrategy<DurationExpr> {
    let leaf = prop_oneof![
        prop::sample::select(vec![1.0, 0.5, 300.0, -7.0, 1e9]).prop_map(Formula::Number),
        Just(Formula::Step),
        Just(Formula::Range),
    ];
    let term = |formula| Term { formula, span: Span::default() };
    let formula = leaf.prop_recursive(3, 8, 2, move |inner| {
        let op = prop::sample::select(vec![
            DurationOp::Add,
            DurationOp::Sub,
            DurationOp::Mul,
            DurationOp::Div,
            DurationOp::Mod,
            DurationOp::Pow,
            DurationOp::MinOf,
            DurationOp::MaxOf,
        ]);
        prop_oneof![
            inner.clone().prop_map(move |operand| match operand {
                Formula::Number(value) => Formula::Number(-value),
                operand => Formula::Negate(Box::new(term(operand))),
            }),
            (op, inner.clone(), inner)
                .prop_map(move |(op, a, b)| Formula::Of(op, Box::new((term(a), term(b))))),
        ]
    });
    formula.prop_map(move |formula| DurationExpr::Computed(Box::new(term(formula)))).boxed()
}

fn at() -> impl Strategy<Value = Option<AtModifier>> {
    let time = (-4_000_000_000_000..4_000_000_000_000_i64)
        .prop_map(|ms| Some(AtModifier::Time(Timestamp::from_ms(ms))));
    prop_oneof![3 => Just(None), 1 => Just(Some(AtModifier::Start)), 1 => Just(Some(AtModifier::End)), 1 => time]
}

fn selector() -> BoxedStrategy<VectorSelector> {
    let name = prop_oneof![
        "[a-z_:][a-z0-9_:]{0,4}",
        "\\PC{1,4}",
        prop::sample::select(vec![
            "sum",
            "by",
            "on",
            "nan",
            "offset",
            "and",
            "start",
            "fill",
            "group_left",
            "1x"
        ])
        .prop_map(str::to_owned),
    ];
    let extension =
        prop::sample::select(vec![None, None, Some(Extension::Anchored), Some(Extension::Smoothed)]);
    (name, prop::collection::vec(matcher(), 0..3), offset(), at(), extension)
        .prop_map(|(name, mut matchers, offset, at, extension)| {
            matchers.insert(0, Matcher::equal(METRIC_NAME, &name));
            VectorSelector { matchers, offset, at, extension, span: Span::default() }
        })
        .boxed()
}

fn number() -> impl Strategy<Value = f64> {
    let odd = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e300,
        -1e-300,
        300.0,
        f64::MAX,
        f64::MIN_POSITIVE,
    ];
    prop_oneof![prop::sample::select(odd), prop::num::f64::NORMAL]
}

fn window() -> BoxedStrategy<DurationExpr> {
    let literal = prop_oneof![1..100_000_000_000_i64, Just(300_000), Just(31_536_000_000)];
    prop_oneof![4 => literal.prop_map(DurationExpr::Fixed), 1 => computed()].boxed()
}

fn scalar() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![number().prop_map(Expr::Number), Just(call("time", Vec::new()))];
    leaf.prop_recursive(3, 8, 2, |inner| {
        let op = prop::sample::select(vec![
            BinaryOp::Add,
            BinaryOp::Sub,
            BinaryOp::Mul,
            BinaryOp::Pow,
            BinaryOp::Atan2,
            BinaryOp::Less,
        ]);
        prop_oneof![
            inner.clone().prop_map(negate),
            (inner.clone(), op, inner).prop_map(|(lhs, op, rhs)| binary(
                lhs,
                op,
                rhs,
                op.is_comparison(),
                None
            )),
        ]
    })
}

/// Negates an operand; a sign before a literal becomes part of the literal.
fn negate(operand: Expr) -> Expr {
    match operand {
        Expr::Number(value) => Expr::Number(-value),
        other => Expr::Negate(Box::new(other)),
    }
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
    Expr::Call(Call { name: name.to_owned(), args, span: Span::default(), arg_starts: Vec::new() })
}

fn binary(lhs: Expr, op: BinaryOp, rhs: Expr, returns_bool: bool, matching: Option<Matching>) -> Expr {
    Expr::Binary(Box::new(Binary { op, lhs, rhs, returns_bool, matching, span: Span::default(), start: 0 }))
}

fn grouping() -> impl Strategy<Value = Grouping> {
    prop_oneof![labels().prop_map(Grouping::By), labels().prop_map(Grouping::Without)]
}

fn matching(op: BinaryOp) -> impl Strategy<Value = Option<Matching>> {
    let cardinality =
        prop::sample::select(vec![Cardinality::OneToOne, Cardinality::ManyToOne, Cardinality::OneToMany]);
    let fill = || prop::option::of(number());
    (any::<bool>(), labels(), cardinality, labels(), fill(), fill()).prop_map(
        move |(on, labels, cardinality, mut include, fill_left, fill_right)| {
            if op.is_set() {
                return Some(Matching {
                    on,
                    labels,
                    cardinality: Cardinality::ManyToMany,
                    ..Matching::default()
                });
            }
            include.retain(|label| cardinality != Cardinality::OneToOne && !(on && labels.contains(label)));
            let matching = Matching { on, labels, cardinality, include, fill_left, fill_right };
            Some(matching).filter(|matching| *matching != Matching::default())
        },
    )
}

fn vector() -> impl Strategy<Value = Expr> {
    let ops = vec![
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Mod,
        BinaryOp::Pow,
        BinaryOp::Atan2,
        BinaryOp::Equal,
        BinaryOp::NotEqual,
        BinaryOp::GreaterEqual,
        BinaryOp::TrimUpper,
        BinaryOp::TrimLower,
        BinaryOp::And,
        BinaryOp::Or,
        BinaryOp::Unless,
    ];
    selector().prop_map(Expr::Vector).prop_recursive(4, 24, 3, move |inner| {
        let between = (prop::sample::select(ops.clone()), any::<bool>())
            .prop_flat_map(|(op, bool)| (Just((op, bool)), matching(op)));
        let subquery = (inner.clone(), window(), prop::option::of(window()), offset(), at()).prop_map(
            |(expr, range, step, offset, at)| {
                Expr::Subquery(Box::new(Subquery { expr, range, step, offset, at, span: Span::default() }))
            },
        );
        let windowed = (selector(), window())
            .prop_map(|(selector, range)| Expr::Matrix(Box::new(MatrixSelector { selector, range })));
        let aggregate = (
            prop::sample::select(AggregateOp::ALL.to_vec()),
            scalar(),
            "\\PC{0,4}",
            grouping(),
            inner.clone(),
        );
        prop_oneof![
            inner.clone().prop_map(negate),
            (inner.clone(), between, inner.clone()).prop_map(|(lhs, ((op, bool), matching), rhs)| binary(
                lhs,
                op,
                rhs,
                bool && op.is_comparison(),
                matching
            )),
            (scalar(), inner.clone()).prop_map(|(lhs, rhs)| binary(lhs, BinaryOp::Pow, rhs, false, None)),
            (inner.clone(), scalar()).prop_map(|(lhs, rhs)| binary(lhs, BinaryOp::Mul, rhs, false, None)),
            prop_oneof![subquery, windowed].prop_map(|matrix| call("rate", vec![matrix])),
            (inner, "\\PC{0,4}").prop_map(|(vector, text)| call(
                "label_join",
                vec![vector, Expr::Text(text.clone()), Expr::Text(text.clone()), Expr::Text(text)]
            )),
            aggregate.prop_map(|(op, number, text, grouping, expr)| {
                let param = match op {
                    AggregateOp::CountValues => Some(Expr::Text(text)),
                    AggregateOp::Topk
                    | AggregateOp::Bottomk
                    | AggregateOp::Quantile
                    | AggregateOp::Limitk
                    | AggregateOp::LimitRatio => Some(number),
                    _ => None,
                };
                Expr::Aggregate(Box::new(Aggregate {
                    op,
                    expr,
                    param,
                    grouping,
                    span: Span::default(),
                    expr_start: 0,
                    param_start: 0,
                }))
            }),
        ]
    })
}

fn check_never_panics(text: &str) {
    let caps = all_features();
    if let Ok(parsed) = parse(text, &caps) {
        let printed = parsed.expr.to_string();
        let again =
            parse(&printed, &caps).unwrap_or_else(|error| panic!("{text:?} printed as {printed:?}: {error}"));
        assert_eq!(shape(&again.expr), shape(&parsed.expr), "{text:?} printed as {printed:?}");
        assert_eq!(again.value_type, parsed.value_type);
    }
    let _ = parse_selector(text, &caps);
    let _ = parse_matcher(text, &caps);
    if let Ok(tokens) = lex::lex(text) {
        let mut end = 0;
        for token in tokens {
            assert!(token.span.start >= end && token.span.end > token.span.start);
            assert!(!token.text(text).is_empty());
            end = token.span.end;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_an_expression_or_an_error(text in prop_oneof!["\\PC{0,60}", any::<String>()]) {
        check_never_panics(&text);
    }

    #[test]
    fn any_sequence_of_tokens_is_an_expression_or_an_error(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "up", "a", "sum", "rate", "by", "on", "or", "and", "offset", "bool", "inf", "nan", "start", "end", "step", "ignoring",
            "group_left", "fill", "min_of", "info", "anchored", "smoothed", "range", "max_of", "</", ">/", "1", "5m", "0x1F", "1e300", "1e1000", ".5", "'x'", "\"\\xff\"", "`\\`", "(", ")",
            "()", "{", "}", "{}", "[", "]", "[5m]", "[1h:]", "[5m:1m]", ":", ",", "=", "=~", "!=", "!~", "==", "<", ">=", "+", "-", "*",
            "/", "%", "^", "@", "#\n", "é", "\"[\"", "a=~\"x.y\"", "time()", "(a)", "(1)",
        ]), 0..14),
        gap in prop::sample::select(vec!["", " "]),
    ) {
        check_never_panics(&pieces.join(gap));
    }

}

#[test]
fn a_printed_tree_parses_to_itself() {
    // The unoptimised frames of the generator nest deeper than its trees and sometimes overflow the
    // stack of a test thread.
    let property = || {
        proptest!(|(tree in prop_oneof![3 => vector(), 1 => scalar()])| {
            let printed = tree.to_string();
            match parse(&printed, &all_features()) {
                Ok(parsed) => {
                    prop_assert_eq!(shape(&parsed.expr), shape(&tree), "{}", &printed);
                    prop_assert_eq!(parsed.expr.to_string(), printed);
                    prop_assert_eq!(parsed.value_type, tree.value_type());
                }
                // Only texts beyond the caps may be refused.
                Err(error) => {
                    let capped = ["too many", "nested too deeply"].iter().any(|cap| error.message.contains(cap));
                    prop_assert!(capped, "{}: {}", printed, error);
                }
            }
        });
    };
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(property).expect("a thread");
    thread.join().expect("the property holds");
}
