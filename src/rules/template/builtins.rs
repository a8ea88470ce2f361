//! The functions that Go's templates have by themselves, but for `and` and `or`, which `exec` runs.

use std::cmp::Ordering;
use std::sync::Arc;

use super::format;
use super::functions::FunctionContext;
use super::text_functions::{html_escape, js_escape, query_escape};
use super::value::TemplateValue;

type Outcome = Result<TemplateValue, String>;
type Context<'a, 'c> = &'a mut FunctionContext<'c>;

/// The kinds of values that can be compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BasicKind {
    Bool,
    Int,
    Float,
    Text,
}

const fn basic_kind(value: &TemplateValue) -> Option<BasicKind> {
    match value {
        TemplateValue::Bool(_) => Some(BasicKind::Bool),
        TemplateValue::Int(_) => Some(BasicKind::Int),
        TemplateValue::Float(_) => Some(BasicKind::Float),
        TemplateValue::Text(_) => Some(BasicKind::Text),
        _ => None,
    }
}

fn incompatible(left: &TemplateValue, right: &TemplateValue) -> String {
    format!("incompatible types for comparison: {} and {}", left.type_name(), right.type_name())
}

fn equal(left: &TemplateValue, right: &TemplateValue) -> Result<bool, String> {
    match (left, right) {
        (TemplateValue::Bool(left), TemplateValue::Bool(right)) => Ok(left == right),
        (TemplateValue::Int(left), TemplateValue::Int(right)) => Ok(left == right),
        (TemplateValue::Float(left), TemplateValue::Float(right)) => Ok(left == right),
        (TemplateValue::Text(left), TemplateValue::Text(right)) => Ok(left == right),
        (TemplateValue::Missing, right) => Ok(matches!(right, TemplateValue::Missing)),
        (_, TemplateValue::Missing) => Ok(false),
        (TemplateValue::Sample(left), TemplateValue::Sample(right)) => Ok(Arc::ptr_eq(left, right)),
        (TemplateValue::Time(left), TemplateValue::Time(right)) => Ok(left == right),
        (TemplateValue::Duration(left), TemplateValue::Duration(right)) => Ok(left == right),
        _ if basic_kind(left) != basic_kind(right) => Err(incompatible(left, right)),
        _ => {
            let shown = format::print(std::slice::from_ref(right))?;
            Err(format!("non-comparable type {shown}: {}", right.type_name()))
        }
    }
}

fn compare(args: &[TemplateValue]) -> Result<Option<Ordering>, String> {
    let [left, right] = args else { return Err("two values are compared".into()) };
    match (left, right) {
        (TemplateValue::Int(left), TemplateValue::Int(right)) => Ok(Some(left.cmp(right))),
        (TemplateValue::Float(left), TemplateValue::Float(right)) => Ok(left.partial_cmp(right)),
        (TemplateValue::Text(left), TemplateValue::Text(right)) => Ok(Some(left.cmp(right))),
        _ => match (basic_kind(left), basic_kind(right)) {
            (Some(left_kind), Some(right_kind)) if left_kind != right_kind => Err(incompatible(left, right)),
            _ => Err("invalid type for comparison".into()),
        },
    }
}

pub(super) fn eq(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    let [first, others @ ..] = args else { return Err("missing argument for comparison".into()) };
    if others.is_empty() {
        return Err("missing argument for comparison".into());
    }
    for other in others {
        if equal(first, other)? {
            return Ok(TemplateValue::Bool(true));
        }
    }
    Ok(TemplateValue::Bool(false))
}

pub(super) fn ne(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    let [left, right] = args else { return Err("two values are compared".into()) };
    equal(left, right).map(|equal| TemplateValue::Bool(!equal))
}

pub(super) fn lt(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    compare(args).map(|order| TemplateValue::Bool(order == Some(Ordering::Less)))
}

pub(super) fn le(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    compare(args).map(|order| TemplateValue::Bool(order.is_some_and(Ordering::is_le)))
}

/// Not `le`, as in Go: true if a value is NaN.
pub(super) fn gt(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    compare(args).map(|order| TemplateValue::Bool(!order.is_some_and(Ordering::is_le)))
}

/// Not `lt`, as in Go: true if a value is NaN.
pub(super) fn ge(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    compare(args).map(|order| TemplateValue::Bool(order != Some(Ordering::Less)))
}

pub(super) fn not(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    Ok(TemplateValue::Bool(!args.first().is_some_and(TemplateValue::is_true)))
}

pub(super) fn len(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    let len = match args.first() {
        Some(TemplateValue::Text(text)) => text.len(),
        Some(TemplateValue::Labels(labels)) => labels.len(),
        Some(TemplateValue::Args(args)) => args.values.len(),
        Some(TemplateValue::Samples(samples)) => samples.len(),
        None | Some(TemplateValue::Missing) => {
            return Err("reflect: call of reflect.Value.Type on zero Value".into());
        }
        Some(other) => return Err(format!("len of type {}", other.type_name().trim_start_matches('*'))),
    };
    Ok(TemplateValue::Int(i64::try_from(len).unwrap_or(i64::MAX)))
}

/// Checks an index of a list or text of `len` elements; `inclusive` allows the end.
fn position(index: &TemplateValue, len: usize, inclusive: bool) -> Result<usize, String> {
    let int = match index {
        TemplateValue::Int(int) => *int,
        TemplateValue::Missing => return Err("cannot index slice/array with nil".into()),
        other => return Err(format!("cannot index slice/array with type {}", other.type_name())),
    };
    let max = if inclusive { len.saturating_add(1) } else { len };
    usize::try_from(int).ok().filter(|at| *at < max).ok_or_else(|| format!("index out of range: {int}"))
}

pub(super) fn index(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    let [first, indexes @ ..] = args else { return Err("index of untyped nil".into()) };
    if matches!(first, TemplateValue::Missing) {
        return Err("index of untyped nil".into());
    }
    let mut item = first.clone();
    for index in indexes {
        let next = match &item {
            TemplateValue::Missing => return Err("index of untyped nil".into()),
            TemplateValue::Text(text) => {
                let at = position(index, text.len(), false)?;
                let byte = text.as_bytes().get(at).copied().unwrap_or_default();
                TemplateValue::Int(i64::from(byte))
            }
            TemplateValue::Samples(samples) => {
                let at = position(index, samples.len(), false)?;
                samples.get(at).map_or(TemplateValue::Missing, |one| TemplateValue::Sample(Arc::clone(one)))
            }
            TemplateValue::Labels(_) | TemplateValue::Args(_) => match index {
                TemplateValue::Text(key) => item.field(key)?,
                TemplateValue::Missing => return Err("value is nil; should be of type string".into()),
                other => return Err(format!("value has type {}; should be string", other.type_name())),
            },
            other => return Err(format!("can't index item of type {}", other.type_name())),
        };
        item = next;
    }
    Ok(item)
}

pub(super) fn slice(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    let [item, indexes @ ..] = args else { return Err("slice of untyped nil".into()) };
    let len = match item {
        TemplateValue::Text(text) => text.len(),
        TemplateValue::Samples(samples) => samples.len(),
        TemplateValue::Missing => return Err("slice of untyped nil".into()),
        other => {
            return Err(format!("can't slice item of type {}", other.type_name().trim_start_matches('*')));
        }
    };
    if indexes.len() > 3 {
        return Err(format!("too many slice indexes: {}", indexes.len()));
    }
    if indexes.len() == 3 && matches!(item, TemplateValue::Text(_)) {
        return Err("cannot 3-index slice a string".into());
    }
    let mut bounds = [0, len, len];
    for (bound, index) in bounds.iter_mut().zip(indexes) {
        *bound = position(index, len, true)?;
    }
    let [from, to, capacity] = bounds;
    if from > to {
        return Err(format!("invalid slice index: {from} > {to}"));
    }
    if to > capacity {
        return Err(format!("invalid slice index: {to} > {capacity}"));
    }
    Ok(match item {
        // Bytes, as in Go; half a character becomes U+FFFD.
        TemplateValue::Text(text) => TemplateValue::text(
            String::from_utf8_lossy(text.as_bytes().get(from..to).unwrap_or_default()).into_owned(),
        ),
        TemplateValue::Samples(samples) => {
            TemplateValue::Samples(samples.get(from..to).unwrap_or_default().into())
        }
        _ => TemplateValue::Missing,
    })
}

pub(super) fn print(context: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    context.produced(format::print(args)?)
}

pub(super) fn println(context: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    context.produced(format::print_line(args)?)
}

pub(super) fn printf(context: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    let [TemplateValue::Text(format), values @ ..] = args else { return Err("no format".into()) };
    context.produced(format::print_format(format, values)?)
}

/// Returns a single text as it is, and other values as `print` does.
fn as_text(args: &[TemplateValue]) -> Result<String, String> {
    if let [TemplateValue::Text(text)] = args {
        return Ok(text.to_string());
    }
    let shown = args.iter().map(|arg| match arg {
        TemplateValue::Missing => TemplateValue::text("<no value>"),
        other => other.clone(),
    });
    format::print(&shown.collect::<Vec<_>>())
}

pub(super) fn html(context: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    context.produced(html_escape(&as_text(args)?))
}

pub(super) fn js(context: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    context.produced(js_escape(&as_text(args)?))
}

pub(super) fn urlquery(context: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    context.produced(query_escape(&as_text(args)?))
}

/// Refuses every value: templates of rules have no functions as values.
pub(super) fn call(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    Err(match args.first() {
        None | Some(TemplateValue::Missing) => "call of nil".into(),
        Some(other) => {
            let shown = format::print_format("%#v", std::slice::from_ref(other))?;
            format!("non-function {shown} of type {}", other.type_name())
        }
    })
}
