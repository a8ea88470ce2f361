//! Readers of JSON values with any shape, as lenient as those of the page.

use serde_json::{Map, Value};

/// An object read from JSON.
pub(super) type Object = Map<String, Value>;

/// Returns the text of a string, number or boolean.
pub(super) fn text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (None, Some(float)) if float.fract() == 0.0 && float.abs() < 1e15 => Some(format!("{float:.0}")),
            _ => Some(number.to_string()),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns the text of a member; empty without one.
pub(super) fn member(object: &Object, name: &str) -> String {
    text(object.get(name)).unwrap_or_default()
}

/// Returns whether a member is `true`.
pub(super) fn flag(object: &Object, name: &str) -> bool {
    object.get(name) == Some(&Value::Bool(true))
}

/// Returns the objects of a list; none for anything else.
pub(super) fn objects(value: Option<&Value>) -> impl Iterator<Item = &Object> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

/// Returns the texts of a list, or of one value.
pub(super) fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(list)) => list.iter().map(|one| text(Some(one)).unwrap_or_default()).collect(),
        one => vec![text(one).unwrap_or_default()],
    }
}

/// Returns a finite number, also from its text.
pub(super) fn number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
    .filter(|number: &f64| number.is_finite())
}

/// Returns a whole number within bounds, or the fallback.
pub(super) fn whole(value: Option<&Value>, least: u32, most: u32, fallback: u32) -> u32 {
    let found = number(value).filter(|number| number.fract() == 0.0 && *number >= 0.0);
    match found.and_then(|number| format!("{number:.0}").parse().ok()) {
        Some(number) if (least..=most).contains(&number) => number,
        _ => fallback,
    }
}
