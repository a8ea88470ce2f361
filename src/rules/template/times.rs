//! Times and durations of templates, and their texts in Go.

use std::fmt;

use super::float::shortest;

const NANOS: i64 = 1_000_000_000;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// The days of the week from 1970-01-01 on.
const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// A moment in UTC, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TemplateTime {
    pub(super) ms: i64,
}

/// A duration in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TemplateDuration {
    pub(super) ns: i64,
}

/// The parts of a moment in the calendar.
#[derive(Clone, Copy, Debug)]
pub(super) struct CalendarTime {
    pub(super) year: i64,
    /// The month, 1 to 12.
    pub(super) month: usize,
    /// The day of the month, 1 to 31.
    pub(super) day: i64,
    /// The day of the year, 1 to 366.
    pub(super) day_of_year: i64,
    pub(super) weekday: &'static str,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    pub(super) ms: i64,
}

impl TemplateTime {
    /// Converts seconds since 1970; milliseconds are rounded down, as in Prometheus.
    ///
    /// # Errors
    /// The message for NaN, infinities, and times beyond 64 bits of nanoseconds.
    pub(super) fn from_seconds(seconds: f64) -> Result<TemplateTime, String> {
        if !seconds.is_finite() {
            return Err("value is NaN or Inf".into());
        }
        let nanos = seconds * 1e9;
        // 2^63 as a double: the limits of 64 bits are not representable.
        if nanos.abs() > 9_223_372_036_854_775_807.0 {
            let seconds = shortest(seconds);
            return Err(format!(
                "{seconds} cannot be represented as a nanoseconds timestamp since it overflows int64"
            ));
        }
        // The time is truncated twice, as in Prometheus: to nanoseconds, then to milliseconds.
        Ok(TemplateTime { ms: super::number::to_int(nanos) / 1_000_000 })
    }

    /// Returns the parts of the moment.
    pub(super) fn calendar(self) -> CalendarTime {
        let days = self.ms.div_euclid(86_400_000);
        let in_day = self.ms.rem_euclid(86_400_000);
        // Years begin in March here, so that the leap day is the last one.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        let day_of_year = if month > 2 { of_year + 60 + i64::from(leap) } else { of_year - 305 };
        let weekday = usize::try_from(days.rem_euclid(7)).unwrap_or_default();
        CalendarTime {
            year,
            month: usize::try_from(month).unwrap_or_default(),
            day,
            day_of_year,
            weekday: WEEKDAYS.get(weekday).copied().unwrap_or_default(),
            hour: in_day / 3_600_000,
            minute: in_day / 60_000 % 60,
            second: in_day / 1_000 % 60,
            ms: in_day % 1_000,
        }
    }

    /// Formats the moment after a layout of Go, whose reference is `Mon Jan 2 15:04:05 MST 2006`.
    pub(super) fn format(self, layout: &str) -> String {
        let calendar = self.calendar();
        let mut out = String::new();
        let mut rest = layout;
        'layout: while let Some(first) = rest.chars().next() {
            for (name, write) in LAYOUTS {
                // `Jan` within `Janet` is a text, like Go's rule for names of months and days.
                if let Some(after) = rest.strip_prefix(name) {
                    let name_only = matches!(*name, "Jan" | "Mon");
                    if name_only && after.starts_with(|c: char| c.is_ascii_lowercase()) {
                        continue;
                    }
                    out.push_str(&write(&calendar));
                    rest = after;
                    continue 'layout;
                }
            }
            if let Some((text, after)) = fraction(rest, calendar.ms) {
                out.push_str(&text);
                rest = after;
                continue;
            }
            out.push(first);
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
        out
    }
}

impl CalendarTime {
    /// Returns the name of the month.
    pub(super) fn month_name(&self) -> &'static str {
        MONTHS.get(self.month.wrapping_sub(1)).copied().unwrap_or_default()
    }

    const fn hour_of_12(&self) -> i64 {
        if self.hour % 12 == 0 { 12 } else { self.hour % 12 }
    }
}

/// Writes the fraction of a second for `.000` (all digits) or `.999` (without zeros at the end).
fn fraction(layout: &str, ms: i64) -> Option<(String, &str)> {
    let mark = layout.chars().next().filter(|c| matches!(c, '.' | ','))?;
    let digits = layout.get(1..)?;
    let digit = digits.chars().next().filter(|c| matches!(c, '0' | '9'))?;
    let count = digits.chars().take_while(|c| *c == digit).count();
    let rest = digits.get(count..)?;
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut text: String = format!("{ms:03}000000").chars().take(count).collect();
    if digit == '9' {
        text = text.trim_end_matches('0').to_owned();
    }
    let mark = if text.is_empty() { String::new() } else { mark.to_string() };
    Some((format!("{mark}{text}"), rest))
}

/// The elements of a layout, longer ones before their prefixes.
type LayoutElement = (&'static str, fn(&CalendarTime) -> String);
const LAYOUTS: &[LayoutElement] = &[
    ("January", |at| at.month_name().into()),
    ("Jan", |at| at.month_name().chars().take(3).collect()),
    ("Monday", |at| at.weekday.into()),
    ("Mon", |at| at.weekday.chars().take(3).collect()),
    ("MST", |_| "UTC".into()),
    ("2006", |at| format!("{:04}", at.year)),
    ("002", |at| format!("{:03}", at.day_of_year)),
    ("__2", |at| format!("{:>3}", at.day_of_year)),
    ("_2006", |at| format!("_{:04}", at.year)),
    ("_2", |at| format!("{:>2}", at.day)),
    ("01", |at| format!("{:02}", at.month)),
    ("02", |at| format!("{:02}", at.day)),
    ("03", |at| format!("{:02}", at.hour_of_12())),
    ("04", |at| format!("{:02}", at.minute)),
    ("05", |at| format!("{:02}", at.second)),
    ("06", |at| format!("{:02}", at.year.rem_euclid(100))),
    ("15", |at| format!("{:02}", at.hour)),
    ("1", |at| at.month.to_string()),
    ("2", |at| at.day.to_string()),
    ("3", |at| at.hour_of_12().to_string()),
    ("4", |at| at.minute.to_string()),
    ("5", |at| at.second.to_string()),
    ("PM", |at| if at.hour < 12 { "AM" } else { "PM" }.into()),
    ("pm", |at| if at.hour < 12 { "am" } else { "pm" }.into()),
    ("-07:00:00", |_| "+00:00:00".into()),
    ("-070000", |_| "+000000".into()),
    ("-07:00", |_| "+00:00".into()),
    ("-0700", |_| "+0000".into()),
    ("-07", |_| "+00".into()),
    ("Z07:00:00", |_| "Z".into()),
    ("Z070000", |_| "Z".into()),
    ("Z07:00", |_| "Z".into()),
    ("Z0700", |_| "Z".into()),
    ("Z07", |_| "Z".into()),
];

impl fmt::Display for TemplateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.format("2006-01-02 15:04:05.999999999 -0700 MST"))
    }
}

impl fmt::Display for TemplateDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.ns < 0 { "-" } else { "" };
        let ns = self.ns.unsigned_abs();
        let decimal = |ns: u64, unit: u64| {
            let fraction = format!("{:0width$}", ns % unit, width = unit.ilog10() as usize);
            let fraction = fraction.trim_end_matches('0');
            let point = if fraction.is_empty() || unit == 1 { "" } else { "." };
            format!("{}{point}{}", ns / unit, if unit == 1 { "" } else { fraction })
        };
        match ns {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{sign}{ns}ns"),
            1_000..1_000_000 => write!(f, "{sign}{}µs", decimal(ns, 1_000)),
            1_000_000..1_000_000_000 => write!(f, "{sign}{}ms", decimal(ns, 1_000_000)),
            _ => {
                let second = NANOS.unsigned_abs();
                let (minutes, rest) = (ns / second / 60, ns % (60 * second));
                f.write_str(sign)?;
                if minutes >= 60 {
                    write!(f, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(f, "{}m", minutes % 60)?;
                }
                write!(f, "{}s", decimal(rest, second))
            }
        }
    }
}
