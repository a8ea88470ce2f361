//! Calendar fields in UTC of a time in seconds, fractions cut off. A time without a calendar date answers NaN.

use chrono::{DateTime, Datelike, Timelike, Utc};

fn field(seconds: f64, of: impl Fn(DateTime<Utc>) -> u32) -> f64 {
    date(seconds).map_or(f64::NAN, |date| f64::from(of(date)))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the language cuts fractions off; what is out of range has no date"
)]
fn date(seconds: f64) -> Option<DateTime<Utc>> {
    if seconds.is_nan() { None } else { DateTime::from_timestamp(seconds as i64, 0) }
}

pub(super) fn minute(seconds: f64) -> f64 {
    field(seconds, |date| date.minute())
}

pub(super) fn hour(seconds: f64) -> f64 {
    field(seconds, |date| date.hour())
}

pub(super) fn day_of_month(seconds: f64) -> f64 {
    field(seconds, |date| date.day())
}

/// Sunday is 0.
pub(super) fn day_of_week(seconds: f64) -> f64 {
    field(seconds, |date| date.weekday().num_days_from_sunday())
}

/// January 1st is 1.
pub(super) fn day_of_year(seconds: f64) -> f64 {
    field(seconds, |date| date.ordinal())
}

pub(super) fn days_in_month(seconds: f64) -> f64 {
    field(seconds, |date| match date.month() {
        2 if date.date_naive().leap_year() => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    })
}

pub(super) fn month(seconds: f64) -> f64 {
    field(seconds, |date| date.month())
}

pub(super) fn year(seconds: f64) -> f64 {
    date(seconds).map_or(f64::NAN, |date| f64::from(date.year()))
}
