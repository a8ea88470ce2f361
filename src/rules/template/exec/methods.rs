//! Methods of times and durations.

use crate::rules::template::number::to_float;
use crate::rules::template::times::{TemplateDuration, TemplateTime};
use crate::rules::template::value::TemplateValue;

/// The most bytes of the layout of a time.
const LAYOUT_BYTES_MAX: usize = 256;

/// Calls a method. `None`: the value has no method of this name.
pub(super) fn call(
    value: &TemplateValue,
    name: &str,
    args: &[TemplateValue],
) -> Option<Result<TemplateValue, String>> {
    match value {
        TemplateValue::Time(time) => time_method(*time, name, args),
        TemplateValue::Duration(duration) => duration_method(*duration, name, args),
        _ => None,
    }
}

fn wrong_count(name: &str, wanted: usize, args: &[TemplateValue]) -> Result<TemplateValue, String> {
    Err(format!("wrong number of args for {name}: want {wanted} got {}", args.len()))
}

fn time_method(
    time: TemplateTime,
    name: &str,
    args: &[TemplateValue],
) -> Option<Result<TemplateValue, String>> {
    let other_time = || match args {
        [TemplateValue::Time(other)] => Some(*other),
        _ => None,
    };
    let expected = |what: &str| Err(format!("wrong type for value; expected {what}"));
    match name {
        "Format" => {
            return Some(match args {
                [TemplateValue::Text(layout)] if layout.len() > LAYOUT_BYTES_MAX => {
                    Err(format!("a layout has more than {LAYOUT_BYTES_MAX} bytes"))
                }
                [TemplateValue::Text(layout)] => Ok(TemplateValue::text(time.format(layout))),
                [_] => expected("string"),
                _ => wrong_count(name, 1, args),
            });
        }
        "Add" => {
            return Some(match args {
                [TemplateValue::Duration(duration)] => {
                    let ms = time.ms.saturating_add(duration.ns.div_euclid(1_000_000));
                    Ok(TemplateValue::Time(TemplateTime { ms }))
                }
                [_] => expected("time.Duration"),
                _ => wrong_count(name, 1, args),
            });
        }
        "Sub" => {
            return Some(other_time().map_or_else(
                || expected("time.Time"),
                |other| {
                    let ns = time.ms.saturating_sub(other.ms).saturating_mul(1_000_000);
                    Ok(TemplateValue::Duration(TemplateDuration { ns }))
                },
            ));
        }
        "Before" | "After" | "Equal" => {
            return Some(other_time().map_or_else(
                || expected("time.Time"),
                |other| {
                    let truth = match name {
                        "Before" => time < other,
                        "After" => time > other,
                        _ => time == other,
                    };
                    Ok(TemplateValue::Bool(truth))
                },
            ));
        }
        _ => {}
    }
    let calendar = time.calendar();
    let found = match name {
        "UTC" => TemplateValue::Time(time),
        "Unix" => TemplateValue::Int(time.ms.div_euclid(1_000)),
        "UnixMilli" => TemplateValue::Int(time.ms),
        "UnixNano" => TemplateValue::Int(time.ms.saturating_mul(1_000_000)),
        "Year" => TemplateValue::Int(calendar.year),
        "Month" => TemplateValue::text(calendar.month_name()),
        "Day" => TemplateValue::Int(calendar.day),
        "YearDay" => TemplateValue::Int(calendar.day_of_year),
        "Weekday" => TemplateValue::text(calendar.weekday),
        "Hour" => TemplateValue::Int(calendar.hour),
        "Minute" => TemplateValue::Int(calendar.minute),
        "Second" => TemplateValue::Int(calendar.second),
        "Nanosecond" => TemplateValue::Int(calendar.ms * 1_000_000),
        "IsZero" => TemplateValue::Bool(false),
        "String" => TemplateValue::text(time.to_string()),
        _ => return None,
    };
    Some(if args.is_empty() { Ok(found) } else { wrong_count(name, 0, args) })
}

fn duration_method(
    duration: TemplateDuration,
    name: &str,
    args: &[TemplateValue],
) -> Option<Result<TemplateValue, String>> {
    let seconds = to_float(duration.ns) / 1e9;
    let found = match name {
        "String" => TemplateValue::text(duration.to_string()),
        "Seconds" => TemplateValue::Float(seconds),
        "Minutes" => TemplateValue::Float(seconds / 60.0),
        "Hours" => TemplateValue::Float(seconds / 3_600.0),
        "Milliseconds" => TemplateValue::Int(duration.ns / 1_000_000),
        "Nanoseconds" => TemplateValue::Int(duration.ns),
        _ => return None,
    };
    Some(if args.is_empty() { Ok(found) } else { wrong_count(name, 0, args) })
}
