//! The type rules of PromQL that promql-parser does not check (Prometheus,
//! `promql/parser/parse.go`, `checkAST`).

use super::encoder::selector::{check_regex_length, too_many_regexes};
use super::tree::{Aggregate, Binary, Call, Cardinality, Expr, ValueType};
use super::{Caps, Fault, types};
use crate::model::Pattern;
use crate::promql::functions::function;

impl Expr {
    /// Returns the type of the result.
    pub fn value_type(&self) -> ValueType {
        match self {
            Expr::Number(_) => ValueType::Scalar,
            Expr::Text(_) | Expr::Bytes(_) => ValueType::Text,
            Expr::Vector(_) | Expr::Aggregate(_) => ValueType::Vector,
            Expr::Matrix(_) | Expr::Subquery(_) => ValueType::Matrix,
            Expr::Negate(operand) => operand.value_type(),
            Expr::Binary(binary) => match (binary.lhs.value_type(), binary.rhs.value_type()) {
                (ValueType::Scalar, ValueType::Scalar) => ValueType::Scalar,
                _ => ValueType::Vector,
            },
            Expr::Call(call) => function(&call.name).map_or(ValueType::Vector, |row| row.returns),
        }
    }
}

/// Refuses invalid expressions that the parser accepts. The recursion follows the tree, whose depth
/// the caps bound.
pub(super) fn check(expr: &Expr) -> Result<(), Fault> {
    match expr {
        Expr::Number(_) | Expr::Text(_) | Expr::Bytes(_) | Expr::Vector(_) | Expr::Matrix(_) => Ok(()),
        Expr::Negate(operand) => check(operand),
        Expr::Subquery(subquery) => check(&subquery.expr),
        Expr::Call(call) => {
            call.args.iter().try_for_each(check)?;
            check_call(call)
        }
        Expr::Aggregate(aggregate) => {
            aggregate.param.iter().try_for_each(check)?;
            check(&aggregate.expr)?;
            check_aggregate(aggregate)
        }
        Expr::Binary(binary) => {
            check(&binary.lhs)?;
            check(&binary.rhs)?;
            check_binary(binary)
        }
    }
}

/// Checks the number and the length of the patterns of `label_replace`; `counted` is the number of
/// those in selectors.
pub(super) fn check_patterns(expr: &Expr, mut counted: usize, caps: &Caps) -> Result<(), Fault> {
    for node in expr.nodes() {
        let Expr::Call(call) = node else { continue };
        let Some(Expr::Text(pattern)) = call.args.get(4).filter(|_| call.name == "label_replace") else {
            continue;
        };
        if Pattern::is_set(pattern) {
            continue;
        }
        check_regex_length(pattern, call.span, caps)?;
        counted += 1;
        if counted > caps.regex_matchers {
            return Err(too_many_regexes(call.span, caps));
        }
    }
    Ok(())
}

fn check_call(call: &Call) -> Result<(), Fault> {
    let second_is_selector = matches!(call.args.get(1), None | Some(Expr::Vector(_)));
    if call.name == "info" && !second_is_selector {
        return Err(Fault::at(call.span, "expected label selectors only in the second argument of info"));
    }
    Ok(())
}

fn check_aggregate(aggregate: &Aggregate) -> Result<(), Fault> {
    let (Some(param), Some(expected)) = (&aggregate.param, types::param(aggregate.op)) else { return Ok(()) };
    let got = param.value_type();
    if got == expected {
        return Ok(());
    }
    let (expected, got) = (expected.as_str(), got.as_str());
    let message = format!("expected type {expected} in aggregation parameter, got {got}");
    Err(Fault::new(aggregate.param_start as usize, message))
}

fn check_binary(binary: &Binary) -> Result<(), Fault> {
    let Some(matching) = &binary.matching else { return Ok(()) };
    let shared = matching.include.iter().find(|label| matching.on && matching.labels.contains(label));
    if let Some(label) = shared {
        return Err(Fault::at(
            binary.span,
            format!("label {label:?} must not occur in ON and GROUP clause at once"),
        ));
    }
    let fills = matching.fill_left.is_some() || matching.fill_right.is_some();
    if fills && matching.cardinality == Cardinality::ManyToMany {
        return Err(Fault::at(binary.span, "filling in missing series not allowed for set operators"));
    }
    Ok(())
}
