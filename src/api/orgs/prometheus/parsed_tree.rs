//! The tree of an expression as JSON, with the members of Prometheus 3 (`web/api/v1`,
//! `translate_ast.go`).
//!
//! promlet's tree has no parentheses. `parenExpr` stands where the canonical text has some, so that
//! a client which prints the tree gets an equivalent expression.
//!
//! The recursion follows the tree, whose depth the caps of the parser bound.

use serde_json::{Value, json};

use crate::model::{METRIC_NAME, MatchOp, Matcher};
use crate::promql::syntax::tree::{
    AtModifier, Binary, Call, Cardinality, DurationExpr, Expr, Grouping, ValueType, VectorSelector,
};
use crate::promql::{Function, function};

/// Returns the tree of an expression.
pub(super) fn tree(expr: &Expr) -> Value {
    match expr {
        Expr::Number(value) => json!({ "type": "numberLiteral", "val": number(*value) }),
        Expr::Text(text) => json!({ "type": "stringLiteral", "val": text }),
        Expr::Bytes(bytes) => {
            json!({ "type": "stringLiteral", "val": String::from_utf8_lossy(bytes) })
        }
        Expr::Vector(selector) => selected("vectorSelector", selector),
        Expr::Matrix(matrix) => {
            let mut node = selected("matrixSelector", &matrix.selector);
            node["range"] = duration(&matrix.range);
            node
        }
        Expr::Subquery(subquery) => json!({
            "type": "subquery",
            "expr": within(&subquery.expr, subquery.needs_parentheses()),
            "range": duration(&subquery.range),
            "offset": duration(&subquery.offset),
            "step": subquery.step.as_ref().map_or(json!(0), duration),
            "timestamp": timestamp(subquery.at),
            "startOrEnd": start_or_end(subquery.at),
        }),
        Expr::Negate(operand) => json!({
            "type": "unaryExpr",
            "op": "-",
            "expr": within(operand, operand.needs_parentheses_after_minus()),
        }),
        Expr::Binary(binary) => operation(binary),
        Expr::Call(call) => called(call),
        Expr::Aggregate(aggregate) => {
            let (labels, is_without) = match &aggregate.grouping {
                Grouping::By(labels) => (labels, false),
                Grouping::Without(labels) => (labels, true),
            };
            json!({
                "type": "aggregation",
                "op": aggregate.op.as_str(),
                "expr": tree(&aggregate.expr),
                "param": aggregate.param.as_ref().map(tree),
                "grouping": labels,
                "without": is_without,
            })
        }
    }
}

/// Returns a number as Prometheus writes it here, without an exponent.
fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

fn within(expr: &Expr, has_parentheses: bool) -> Value {
    let inner = tree(expr);
    if has_parentheses { json!({ "type": "parenExpr", "expr": inner }) } else { inner }
}

fn selected(kind: &str, selector: &VectorSelector) -> Value {
    let is_name = |matcher: &&Matcher| matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal;
    let name = selector.matchers.iter().find(is_name).map_or("", Matcher::value);
    // Our tree begins with the metric name; Prometheus adds it behind the other matchers.
    let (names, others): (Vec<_>, Vec<_>) =
        selector.matchers.iter().partition(|matcher| matcher.name() == METRIC_NAME);
    let matchers = others.into_iter().chain(names).map(
        |matcher| json!({ "name": matcher.name(), "value": matcher.value(), "type": matcher.op().as_str() }),
    );
    let mut node = json!({
        "type": kind,
        "name": name,
        "offset": duration(&selector.offset),
        "matchers": matchers.collect::<Vec<_>>(),
        "timestamp": timestamp(selector.at),
        "startOrEnd": start_or_end(selector.at),
    });
    if let Some(extension) = selector.extension {
        node[extension.as_str()] = json!(true);
    }
    node
}

/// Returns a duration in milliseconds; 0 for a formula, whose value depends on the times of the
/// query.
fn duration(duration: &DurationExpr) -> Value {
    match duration {
        DurationExpr::Fixed(ms) => json!(ms),
        DurationExpr::Computed(_) => json!(0),
    }
}

/// Returns the time of `@` in milliseconds.
fn timestamp(at: Option<AtModifier>) -> Value {
    match at {
        Some(AtModifier::Time(time)) => json!(time.as_ms()),
        _ => Value::Null,
    }
}

fn start_or_end(at: Option<AtModifier>) -> Value {
    match at {
        Some(AtModifier::Start) => json!("start"),
        Some(AtModifier::End) => json!("end"),
        _ => Value::Null,
    }
}

fn operation(binary: &Binary) -> Value {
    let (left, right) = binary.need_parentheses();
    let is_vector = |expr: &Expr| expr.value_type() == ValueType::Vector;
    // Only two vectors are matched.
    let matching = (is_vector(&binary.lhs) && is_vector(&binary.rhs)).then(|| match &binary.matching {
        Some(matching) => json!({
            "card": cardinality(matching.cardinality),
            "labels": matching.labels,
            "on": matching.on,
            "include": matching.include,
        }),
        None => {
            let all = if binary.op.is_set() { Cardinality::ManyToMany } else { Cardinality::OneToOne };
            json!({ "card": cardinality(all), "labels": [], "on": false, "include": [] })
        }
    });
    json!({
        "type": "binaryExpr",
        "op": binary.op.as_str(),
        "lhs": within(&binary.lhs, left),
        "rhs": within(&binary.rhs, right),
        "matching": matching,
        "bool": binary.returns_bool,
    })
}

const fn cardinality(cardinality: Cardinality) -> &'static str {
    match cardinality {
        Cardinality::OneToOne => "one-to-one",
        Cardinality::ManyToOne => "many-to-one",
        Cardinality::OneToMany => "one-to-many",
        Cardinality::ManyToMany => "many-to-many",
    }
}

fn called(call: &Call) -> Value {
    let args: Vec<Value> = call.args.iter().map(tree).collect();
    json!({ "type": "call", "func": function(&call.name).map(signature), "args": args })
}

/// Returns the signature of a function. Its `variadic` is 0 for a fixed number of arguments, -1 for
/// any number, and otherwise the number of optional arguments.
fn signature(function: &Function) -> Value {
    let args: Vec<&str> = function.args.iter().map(|kind| kind_name(*kind)).collect();
    json!({
        "name": function.name,
        "argTypes": args,
        "variadic": function.args_max().map_or(json!(-1), |most| json!(most - function.args_min())),
        "returnType": kind_name(function.returns),
    })
}

/// Returns the name of a type in Prometheus' API.
const fn kind_name(kind: ValueType) -> &'static str {
    match kind {
        ValueType::Scalar => "scalar",
        ValueType::Text => "string",
        ValueType::Vector => "vector",
        ValueType::Matrix => "matrix",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promql::syntax::{self, Caps};

    fn parsed(text: &str) -> Value {
        tree(&syntax::parse(text, &Caps::default()).expect("valid").expr)
    }

    #[test]
    fn a_tree_has_the_members_of_prometheus() {
        let matcher = |name: &str, value: &str| json!({ "name": name, "value": value, "type": "=" });
        let selector = json!({
            "type": "matrixSelector", "name": "m", "range": 300_000, "offset": 60_000,
            "matchers": [matcher("job", "a"), matcher("__name__", "m")],
            "timestamp": 10_000, "startOrEnd": null,
        });
        let found = parsed("sum by (job) (rate(m{job=\"a\"}[5m] @ 10 offset 1m))");
        let call = json!({
            "type": "call", "args": [selector],
            "func": { "name": "rate", "argTypes": ["matrix"], "variadic": 0, "returnType": "vector" },
        });
        assert_eq!(
            found,
            json!({
                "type": "aggregation", "op": "sum", "expr": call, "param": null, "grouping": ["job"],
                "without": false,
            })
        );
    }

    #[test]
    fn numbers_have_the_texts_of_prometheus() {
        let cases = [
            ("Inf", "+Inf"),
            ("-inf", "-Inf"),
            ("nan", "NaN"),
            ("1e21", "1000000000000000000000"),
            ("1e-7", "0.0000001"),
            ("-0", "-0"),
            ("0x1F", "31"),
        ];
        for (text, val) in cases {
            assert_eq!(parsed(text), json!({ "type": "numberLiteral", "val": val }), "{text}");
        }
    }

    #[test]
    fn parentheses_stand_where_the_text_needs_them_and_matching_is_of_two_vectors() {
        let found = parsed("(a + on(x) group_left(y) b) * 2");
        assert_eq!((&found["op"], &found["matching"]), (&json!("*"), &Value::Null));
        assert_eq!(found["lhs"]["type"], "parenExpr");
        assert_eq!(
            found["lhs"]["expr"]["matching"],
            json!({ "card": "many-to-one", "labels": ["x"], "on": true, "include": ["y"] })
        );
        assert_eq!(found["rhs"], json!({ "type": "numberLiteral", "val": "2" }));
        assert_eq!(parsed("a and b")["matching"]["card"], "many-to-many");
        assert_eq!(parsed("a - b")["matching"]["card"], "one-to-one");
        assert_eq!(parsed("-(a + b)")["expr"]["type"], "parenExpr");
        assert_eq!(parsed("max_over_time(a[1h:1m] @ end())")["args"][0]["startOrEnd"], "end");
        assert_eq!(parsed("round(a)")["func"]["variadic"], 1);
        assert_eq!(parsed("label_join(a, \"x\", \",\", \"y\")")["func"]["variadic"], -1);
    }
}
