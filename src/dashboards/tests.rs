//! Values of variables in queries.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::promql::syntax::lex::{TokenKind, lex};

const CONTEXT: Context = Context {
    from_ms: 1_700_000_000_000,
    to_ms: 1_700_021_600_000,
    interval_ms: 20_000,
    rate_interval_ms: 60_000,
};

fn dashboard(variables: &Value) -> Dashboard {
    let document = json!({ "title": "T", "templating": { "list": variables } });
    Dashboard::parse("node", &document.to_string()).expect("a dashboard")
}

/// A dashboard with a variable of each kind: `one` and `many` are data, `word` is the author's.
fn example() -> Dashboard {
    dashboard(&json!([
        { "name": "one", "type": "query" },
        { "name": "many", "type": "query", "multi": true, "includeAll": true },
        { "name": "custom", "type": "query", "multi": true, "includeAll": true, "allValue": "x.*$one" },
        { "name": "word", "type": "custom", "query": "a : up{job=\"a\"}, b" },
        { "name": "step", "type": "interval", "query": "1m,5m", "auto": true, "auto_count": 10, "auto_min": "1m",
          "current": { "text": "auto", "value": "$__auto_interval_step" } },
        { "name": "fix", "type": "constant", "query": "job=\"node\"" },
    ]))
}

fn sent(values: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
    let owned = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
    values.iter().map(|(name, list)| ((*name).to_owned(), owned(list))).collect()
}

fn query(text: &str, values: &[(&str, &[&str])]) -> Result<String, InterpolateError> {
    let dashboard = example();
    let selections =
        dashboard.selections(|_| VariableAccess::Open(None), [], &sent(values)).expect("selected");
    dashboard.query(text, &selections, &CONTEXT)
}

#[test]
fn titles_and_legends_show_the_selected_values_and_stay_short() {
    let target = |legend: &str| json!({ "refId": "A", "expr": "up", "legendFormat": legend });
    let panel = |id: u32, title: &str, legend: &str| {
        json!({ "id": id, "title": title, "targets": [target(legend)],
                "fieldConfig": { "defaults": { "unit": "percentunit" } } })
    };
    let long = "$many".repeat(10_000);
    let document = json!({
        "templating": { "list": [{ "name": "many", "type": "query", "multi": true }] },
        "panels": [
            panel(1, "${many:raw} of [[many]], $ $none ${ [[ [x]", "{{job}} of $many"),
            panel(2, &long, "__auto"),
            json!({ "id": 3, "yaxes": [{ "format": "bytes" }], "targets": [target("")] }),
        ],
    });
    let dashboard = Dashboard::parse("node", &document.to_string()).expect("a dashboard");
    let sent = sent(&[("many", &["a", "$many"])]);
    let selections = dashboard.selections(|_| VariableAccess::Open(None), [], &sent).expect("selected");
    let panel = |id| dashboard.panel(id).expect("a panel");
    assert_eq!(panel(1).title(&selections), "a + $many of a + $many, $ $none ${ [[ [x]");
    let legend = |id| panel(id).targets[0].legend(&selections);
    assert_eq!(legend(1).as_deref(), Some("{{job}} of a + $many"));
    assert_eq!((legend(2), legend(3)), (None, None));
    assert!(panel(2).title(&selections).len() < 9_000);
    assert_eq!((panel(1).unit.as_str(), panel(3).unit.as_str()), ("percentunit", "bytes"));
}

#[test]
fn values_are_written_in_their_format_and_escaped_for_their_place() {
    let cases = [
        ("x{a=\"$one\"}", "v", "x{a=\"v\"}"),
        ("x{a=\"$one\"}", "v\"\\\n", "x{a=\"v\\\"\\\\\\n\"}"),
        ("x{a='$one'}", "v'", "x{a='v\\''}"),
        ("x{a=`$one`}", "v`\\", "x{a=`v.\\`}"),
        ("x{a=\"${one:raw}\"}", "\"} or y", "x{a=\"\\\"} or y\"}"),
        ("x{a=~\"${one:regex}\"}", "a.b", "x{a=~\"a\\\\.b\"}"),
        ("x{a=~\"$many\"}", "a.b", "x{a=~\"a\\\\.b\"}"),
        ("x{a=\"${one.text}\"}", "\"", "x{a=\"\\\"\"}"),
        ("x{a=${one:doublequote}}", "\"\\", "x{a=\"\\\"\\\\\"}"),
        ("x{a=${one:singlequote}}", "'\\", "x{a='\\'\\\\'}"),
        ("x # $one", "a\nup\rup", "x # a\\nup\\rup"),
        ("sum by ($one) (x)", "job,  host", "sum by (job,  host) (x)"),
        ("topk($one, x[$one])", "5m", "topk(5m, x[5m])"),
        ("x > [[one]]", "-1.5e3", "x > -1.5e3"),
        ("x{a=\"[[one:pipe]]\"}", "v", "x{a=\"v\"}"),
        ("$one $other ${one", "v", "v $other ${one"),
        ("x{a=\"$one\"}", "$many ${fix}", "x{a=\"$many ${fix}\"}"),
    ];
    for (text, value, expected) in cases {
        assert_eq!(query(text, &[("one", &[value]), ("many", &[value])]).as_deref(), Ok(expected), "{text}");
    }
    for (text, value) in [
        ("$one", "up or x"),
        ("$one", "up{}"),
        ("sum by ($one) (x)", "a) (up"),
        ("x$one", "{a=\"b\"}"),
        ("${one:raw}", "a b"),
        ("${one.text}", ""),
        ("$one", "a;b"),
        ("$one", "\u{e9}"),
        ("x # $one\n$one", "a-b"),
    ] {
        let refused = query(text, &[("one", &[value])]);
        assert_eq!(refused, Err(InterpolateError::NotPlain("one".to_owned())), "{text} with {value}");
    }
}

#[test]
fn several_values_and_all_are_patterns() {
    let cases: [(&str, &[&str], &str); 8] = [
        ("x{a=~\"$many\"}", &["a", "b.c"], "x{a=~\"(a|b\\\\.c)\"}"),
        ("x{a=~\"${many:pipe}\"}", &["a", "b"], "x{a=~\"a|b\"}"),
        ("x{a=~\"${many:csv}\"}", &["a", "b"], "x{a=~\"a,b\"}"),
        ("sum by (${many:csv}) (x)", &["a", "b"], "sum by (a,b) (x)"),
        ("x{a=~\"$many\"}", &["$__all"], "x{a=~\".+\"}"),
        ("x{a=~\"${many:regex}\"}", &["$__all"], "x{a=~\".+\"}"),
        (
            "label_replace(x, \"a\", \"${many:text}\", \"\", \"\")",
            &["$__all"],
            "label_replace(x, \"a\", \"All\", \"\", \"\")",
        ),
        ("x{a=~\"[[many:glob]]\"}", &["a", "b"], "x{a=~\"{a,b}\"}"),
    ];
    for (text, values, expected) in cases {
        assert_eq!(query(text, &[("many", values)]).as_deref(), Ok(expected), "{text}");
    }
    let outside = query("sum by ($many) (x)", &[("many", &["$__all"])]);
    assert_eq!(outside, Err(InterpolateError::AllOutside("many".to_owned())));
    // A reference in a custom value of All is escaped for the place of the outer one.
    let custom = query("x{a=~\"$custom\"}", &[("custom", &["$__all"]), ("one", &["\"} or y"])]);
    assert_eq!(custom.as_deref(), Ok("x{a=~\"x.*\\\"} or y\"}"));
}

#[test]
fn texts_of_the_author_are_code_and_intervals_follow_the_range() {
    assert_eq!(query("sum($word)", &[("word", &["up{job=\"a\"}"])]).as_deref(), Ok("sum(up{job=\"a\"})"));
    assert_eq!(query("x{$fix}", &[]).as_deref(), Ok("x{job=\"node\"}"));
    let other = query("sum($word)", &[("word", &["up{job=\"b\"}"])]);
    assert_eq!(other, Err(InterpolateError::NotPlain("word".to_owned())), "not one of the author's options");
    for text in ["x[$step]", "x[${step.text}]", "x[${step:text}]"] {
        let forged = query(text, &[("step", &["$__auto_interval_step] or up[5m"])]);
        assert_eq!(forged, Err(InterpolateError::NotPlain("step".to_owned())), "{text}");
    }
    // Six hours in ten steps, rounded as Grafana does.
    assert_eq!(query("x[$step]", &[]).as_deref(), Ok("x[30m]"));
    assert_eq!(query("x[$step]", &[("step", &["5m"])]).as_deref(), Ok("x[5m]"));
    let built_in = "x[$__interval] $__interval_ms [$__rate_interval] $__range $__range_s $__range_ms ${__from:date:seconds} $__to";
    let expected = "x[20s] 20000 [1m] 21600s 21600 21600000 1700000000 1700021600000";
    assert_eq!(query(built_in, &[]).as_deref(), Ok(expected));
}

#[test]
fn long_results_and_endless_references_end() {
    let long = "v".repeat(40_000);
    assert_eq!(query("x{a=\"$one\",b=\"$one\"}", &[("one", &[&long])]), Err(InterpolateError::TooLong));
    let looped = dashboard(&json!([
        { "name": "a", "type": "query", "includeAll": true, "allValue": "$a$a", "current": { "value": "$__all" } }
    ]));
    let selections = looped.selections(|_| VariableAccess::Fixed, [], &BTreeMap::new()).expect("saved");
    assert_eq!(looped.query("$a", &selections, &CONTEXT).as_deref(), Ok(""));
}

#[test]
fn ad_hoc_filters_are_matchers_of_each_selector() {
    let filtered = dashboard(&json!([
        { "name": "f", "type": "adhoc", "filters": [
            { "key": "job", "operator": "=~", "value": "a|b" }, { "key": "env", "operator": "!=", "value": "\"" } ] }
    ]));
    let selections = filtered.selections(|_| VariableAccess::Fixed, [], &BTreeMap::new()).expect("saved");
    let text = filtered.query("sum(rate(x[5m])) / on() y{a=\"b\"}", &selections, &CONTEXT).expect("a query");
    assert_eq!(text.matches("job=~\"a|b\"").count(), 2, "{text}");
    assert_eq!(text.matches("env!=\"\\\"\"").count(), 2, "{text}");
    let choose = |access: VariableAccess<'static>, texts: &[&str]| {
        let selections = filtered.selections(move |_| access, [], &sent(&[("f", texts)]))?;
        Ok(filtered.query("sum(rate(x[5m])) / on() y{a=\"b\"}", &selections, &CONTEXT).expect("a query"))
    };
    let refused = choose(VariableAccess::Fixed, &["job|=|x"]);
    assert_eq!(refused, Err(SelectionError::NotOpen("f".to_owned())));
    let text = choose(VariableAccess::Open(None), &["job|!~|x__gfp__y__gfc__"]).expect("open");
    assert_eq!((text.matches("job!~\"x|y,\"").count(), text.matches("env").count()), (2, 0), "{text}");
    let none = choose(VariableAccess::Open(None), &[]).expect("open");
    assert!(!none.contains("job") && !none.contains("env"), "{none}");
}

#[test]
fn the_look_of_a_panel_is_read_also_of_the_older_plugin() {
    let look = |panel: Value| {
        let mut panel = panel;
        panel["id"] = json!(1);
        let read = Dashboard::parse("x", &json!({ "panels": [panel] }).to_string()).expect("an object");
        read.panel(1).expect("a panel").look
    };
    let custom =
        |custom: Value| json!({ "type": "timeseries", "fieldConfig": { "defaults": { "custom": custom } } });
    let of = |draw, stacking, fill_percent| PanelLook { draw, stacking, fill_percent };
    use PanelDraw::{Bars, Line, Points};
    use PanelStacking::{None as Apart, Normal, Percent};
    for (panel, expected) in [
        (json!({ "type": "timeseries" }), of(Line, Apart, None)),
        (custom(json!({ "drawStyle": "bars", "stacking": { "mode": "normal" } })), of(Bars, Normal, None)),
        (custom(json!({ "drawStyle": "points", "fillOpacity": 250 })), of(Points, Apart, Some(100))),
        (
            custom(json!({ "stacking": { "mode": "percent" }, "fillOpacity": 12.4 })),
            of(Line, Percent, Some(12)),
        ),
        (custom(json!({ "stacking": "normal", "fillOpacity": "x", "drawStyle": 7 })), of(Line, Apart, None)),
        (json!({ "type": "graph", "bars": true, "lines": true, "stack": true }), of(Bars, Normal, Some(100))),
        (
            json!({ "type": "graph", "lines": true, "fill": 3, "stack": true, "percentage": true }),
            of(Line, Percent, Some(30)),
        ),
        (json!({ "type": "graph", "points": true, "lines": false }), of(Points, Apart, None)),
    ] {
        assert_eq!(look(panel.clone()), expected, "{panel}");
    }
}

#[test]
fn documents_of_any_shape_are_read() {
    for text in [
        "{}",
        "{\"panels\":7}",
        "{\"panels\":[1,{\"targets\":[{}]}],\"templating\":{\"list\":[{},{\"name\":\"\"}]}}",
    ] {
        let read = Dashboard::parse("x", text).expect("an object");
        assert!(
            read.variables.is_empty() && read.panels.iter().all(|panel| panel.targets.is_empty()),
            "{text}"
        );
        assert!(read.view(|_| VariableAccess::Fixed).is_object());
    }
    assert!(Dashboard::parse("x", "[]").is_err());
    let library = json!({
        "__elements": { "u": { "model": { "type": "stat", "targets": [{ "expr": "up" }, { "expr": "x" }, { "refId": "A", "expr": "z" }, { "refId": "A", "expr": "w" }] } } },
        "panels": [{ "id": 7, "libraryPanel": { "uid": "u" } }],
        "rows": [{ "repeat": "host", "panels": [{ "id": 8, "targets": [{ "refId": "Q", "expr": "y" }] }] }],
    });
    let read = Dashboard::parse("x", &library.to_string()).expect("a dashboard");
    let exprs = ["A", "B", "C", "D"].map(|name| read.target(7, name).map(|(_, target)| target.expr.as_str()));
    assert_eq!(exprs, [Some("z"), Some("up"), Some("x"), Some("w")], "each query has a name of its own");
    assert_eq!(read.target(8, "Q").map(|(panel, _)| panel.repeats.clone()), Some(vec!["host".to_owned()]));
    assert!(!read.view(|_| VariableAccess::Fixed).to_string().contains("expr"));
}

/// Templates with a reference `@` inside a string or a comment.
const QUOTED: [&str; 7] = [
    "x{a=\"@\"}",
    "x{a=~'y@z'} or up",
    "x{a=`@`, b=\"c\"}",
    "label_replace(x, \"a\", \"'@\", 'b', \"#@\")",
    "x # @ \"\n or y{a=\"@\"}",
    "x{a=\"\\\"@\"} # '",
    "x # y\r or y{a=\"@\"}",
];
const FORMATS: [&str; 12] = [
    "$one",
    "${one}",
    "[[one]]",
    "${one:raw}",
    "${one:regex}",
    "${one:csv}",
    "${one:json}",
    "${one:doublequote}",
    "${one:singlequote}",
    "${one:lucene}",
    "${one.text}",
    "${one:none}",
];

fn kinds(text: &str) -> Vec<TokenKind> {
    lex(text).expect("PromQL").iter().map(|token| token.kind).collect()
}

proptest! {
    /// No value inside quotes or a comment changes another token, in any format.
    #[test]
    fn no_value_leaves_its_quotes(
        template in prop::sample::select(&QUOTED[..]),
        format in prop::sample::select(&FORMATS[..]),
        value in "\\PC{0,8}|[\\\\\"'`\n\r#{}$|().*ab\u{0}]{1,8}",
    ) {
        let written = query(&template.replace('@', format), &[("one", &[&value])]).expect("escaped");
        prop_assert_eq!(kinds(&written), kinds(&template.replace('@', "v")), "{}", written);
    }

    /// Outside of quotes a value is refused, or it is whole tokens: names, numbers and commas.
    #[test]
    fn a_value_outside_of_quotes_is_a_list_of_names_or_numbers(
        format in prop::sample::select(&FORMATS[..]),
        value in "\\PC{0,8}|[\\\\\"'`\n#{}$|().*ab5,: -]{1,8}",
    ) {
        let text = format!("( {format} )");
        if let Ok(written) = query(&text, &[("one", &[&value])]) {
            let inner = kinds(&written);
            let plain = [TokenKind::Word, TokenKind::Number, TokenKind::Sub, TokenKind::Comma, TokenKind::Text];
            let ends = (inner.first(), inner.last());
            prop_assert_eq!(ends, (Some(&TokenKind::LeftParen), Some(&TokenKind::RightParen)));
            prop_assert!(inner[1..inner.len() - 1].iter().all(|kind| plain.contains(kind)), "{}", written);
        }
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in "[$\\[\\]{}:.a-c\"'\\\\ ]{0,30}|\\PC{0,30}") {
        let _ = query(&text, &[("one", &["v"])]);
    }
}
