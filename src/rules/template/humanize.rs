//! Prometheus' texts of numbers for people.

use super::float::{FloatForm, format_float};
use super::number::to_int;
use super::times::TemplateTime;

fn four_digits(value: f64) -> String {
    format_float(value, FloatForm::General, Some(4))
}

/// Divides by 1,000 (or multiplies, below 1) until the number is between 1 and 1,000.
fn with_prefix(mut value: f64) -> (f64, &'static str) {
    let mut prefix = "";
    if value.abs() >= 1.0 {
        for larger in ["k", "M", "G", "T", "P", "E", "Z", "Y"] {
            if value.abs() < 1_000.0 {
                break;
            }
            prefix = larger;
            value /= 1_000.0;
        }
    } else {
        for smaller in ["m", "u", "n", "p", "f", "a", "z", "y"] {
            if value.abs() >= 1.0 {
                break;
            }
            prefix = smaller;
            value *= 1_000.0;
        }
    }
    (value, prefix)
}

/// Returns four digits and a metric prefix: `1.234M`.
pub(super) fn humanize(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return four_digits(value);
    }
    let (value, prefix) = with_prefix(value);
    format!("{}{prefix}", four_digits(value))
}

/// Returns four digits and a binary prefix: `1.5Ki` is written `1.5ki`.
pub(super) fn humanize1024(mut value: f64) -> String {
    if value.abs() <= 1.0 || !value.is_finite() {
        return four_digits(value);
    }
    let mut prefix = "";
    for larger in ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"] {
        if value.abs() < 1_024.0 {
            break;
        }
        prefix = larger;
        value /= 1_024.0;
    }
    format!("{}{prefix}", four_digits(value))
}

/// Returns seconds as days, hours, minutes and seconds, or with a metric prefix below 1.
pub(super) fn humanize_duration(value: f64) -> String {
    if !value.is_finite() {
        return four_digits(value);
    }
    if value == 0.0 {
        return format!("{}s", four_digits(value));
    }
    if value.abs() < 1.0 {
        let (value, prefix) = with_prefix(value);
        return format!("{}{prefix}s", four_digits(value));
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let value = value.abs();
    let whole = to_int(value);
    let (days, hours, minutes, seconds) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60, whole % 60);
    if days != 0 {
        return format!("{sign}{days}d {hours}h {minutes}m {seconds}s");
    }
    if hours != 0 {
        return format!("{sign}{hours}h {minutes}m {seconds}s");
    }
    if minutes != 0 {
        return format!("{sign}{minutes}m {seconds}s");
    }
    format!("{sign}{}s", four_digits(value))
}

/// Returns a ratio as percentage with four digits.
pub(super) fn humanize_percentage(value: f64) -> String {
    format!("{}%", four_digits(value * 100.0))
}

/// Returns seconds since 1970 as date and time; NaN and infinities as such.
///
/// # Errors
/// The message for a time beyond 64 bits of nanoseconds.
pub(super) fn humanize_timestamp(value: f64) -> Result<String, String> {
    if !value.is_finite() {
        return Ok(four_digits(value));
    }
    Ok(TemplateTime::from_seconds(value)?.to_string())
}
