//! Recurring time intervals, as Alertmanager's `time_intervals` describe them.

use super::zone::{AlertZone, CivilMinute};
use crate::model::Timestamp;

/// A range with both ends inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarRange {
    /// The first value.
    pub first: i64,
    /// The last value.
    pub last: i64,
}

/// A recurring interval: a time is inside if it is within one range of each list that is not
/// empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MuteInterval {
    /// Minutes of the day: the last one is exclusive and up to 1,440.
    pub minutes: Vec<CalendarRange>,
    /// Days of the week; 0 is Sunday.
    pub weekdays: Vec<CalendarRange>,
    /// Days of the month, from 1; negative ones count from its end, -1 being the last day.
    pub month_days: Vec<CalendarRange>,
    /// Months, from 1.
    pub months: Vec<CalendarRange>,
    /// Years.
    pub years: Vec<CalendarRange>,
    /// The time zone.
    pub zone: AlertZone,
}

const WEEKDAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

fn is_within(ranges: &[CalendarRange], value: i64) -> bool {
    ranges.is_empty() || ranges.iter().any(|range| (range.first..=range.last).contains(&value))
}

impl MuteInterval {
    /// Returns whether a time is inside of the interval.
    pub fn contains(&self, at: Timestamp) -> bool {
        let local = self.zone.minute_at(at.as_s());
        let minutes = self.minutes.is_empty()
            || self.minutes.iter().any(|range| (range.first..range.last).contains(&local.minute));
        minutes
            && is_within(&self.weekdays, local.weekday)
            && is_within(&self.months, local.month)
            && is_within(&self.years, local.year)
            && self.is_month_day(&local)
    }

    fn is_month_day(&self, local: &CivilMinute) -> bool {
        let day_of = |day: i64| match day < 0 {
            true => (local.month_days + day + 1).max(1),
            false => day.min(local.month_days),
        };
        // A range that begins after the end of the month contains no day of it.
        let inside = |range: &CalendarRange| {
            range.first <= local.month_days && (day_of(range.first)..=day_of(range.last)).contains(&local.day)
        };
        self.month_days.is_empty() || self.month_days.iter().any(inside)
    }
}

/// Parses `HH:MM`, up to `24:00`, as a minute of the day.
pub(super) fn parse_minute(text: &str) -> Result<i64, String> {
    let expected = || format!("a time from 00:00 to 24:00 is expected, not {:?}", shown(text));
    let (hours, minutes) = text.split_once(':').ok_or_else(expected)?;
    let number = |part: &str| -> Option<i64> {
        (part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit())).then(|| part.parse().ok())?
    };
    let (hours, minutes) = (number(hours).ok_or_else(expected)?, number(minutes).ok_or_else(expected)?);
    let all = hours * 60 + minutes;
    if minutes > 59 || all > 1_440 { Err(expected()) } else { Ok(all) }
}

/// The unit of the values of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CalendarUnit {
    /// Names, such as `monday`.
    Weekday,
    /// Numbers from 1 to 31, or from -31 to -1.
    MonthDay,
    /// Names or numbers from 1 to 12.
    Month,
    /// Numbers.
    Year,
}

impl CalendarUnit {
    fn value(self, text: &str) -> Option<i64> {
        let named = |names: &[&str], from: i64| -> Option<i64> {
            let at = names.iter().position(|name| name.eq_ignore_ascii_case(text))?;
            i64::try_from(at).ok().map(|at| at + from)
        };
        let number = || text.parse::<i64>().ok();
        match self {
            CalendarUnit::Weekday => named(&WEEKDAYS, 0),
            CalendarUnit::MonthDay => number().filter(|day| (1..=31).contains(&day.abs())),
            CalendarUnit::Month => {
                named(&MONTHS, 1).or_else(|| number().filter(|month| (1..=12).contains(month)))
            }
            CalendarUnit::Year => number().filter(|year| (0..=9_999).contains(year)),
        }
    }

    const fn examples(self) -> &'static str {
        match self {
            CalendarUnit::Weekday => "monday or monday:friday",
            CalendarUnit::MonthDay => "1:7, 15 or -3:-1",
            CalendarUnit::Month => "december, 1:3 or may:august",
            CalendarUnit::Year => "2026 or 2026:2028",
        }
    }

    /// Parses a value or two values with a colon between them.
    ///
    /// # Errors
    /// A sentence, for any other text and for a range whose end is before its start.
    pub(super) fn parse(self, text: &str) -> Result<CalendarRange, String> {
        let expected = || format!("{} is expected, not {:?}", self.examples(), shown(text));
        let (first, last) = text.split_once(':').unwrap_or((text, text));
        let value = |part: &str| self.value(part.trim()).ok_or_else(expected);
        let range = CalendarRange { first: value(first)?, last: value(last)? };
        let is_ordered = match (range.first < 0, range.last < 0) {
            (true, false) => false,
            (false, true) => true,
            _ => range.first <= range.last,
        };
        if is_ordered { Ok(range) } else { Err(format!("the end of {:?} is before its start", shown(text))) }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::from_rfc3339(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn quiet_hours_follow_the_clock_of_their_zone() {
        let zone = AlertZone::parse("Europe/Berlin").expect("known");
        let weekdays = vec![CalendarUnit::Weekday.parse("monday:friday").expect("valid")];
        let minutes = vec![CalendarRange { first: 0, last: parse_minute("07:00").expect("valid") }];
        let quiet = MuteInterval { minutes, weekdays, zone, ..MuteInterval::default() };
        assert!(quiet.contains(at("2026-11-27T05:59:59Z")));
        assert!(!quiet.contains(at("2026-11-27T06:00:00Z")), "the end is exclusive");
        assert!(quiet.contains(at("2026-11-26T23:00:00Z")), "Friday there");
        assert!(!quiet.contains(at("2026-11-27T23:30:00Z")), "Saturday there");
        // An hour earlier in summer.
        assert!(!quiet.contains(at("2026-07-01T05:00:00Z")));
    }

    #[test]
    fn days_count_from_the_end_of_the_month() {
        let month_days = vec![CalendarUnit::MonthDay.parse("-2:-1").expect("valid")];
        let last = MuteInterval { month_days, ..MuteInterval::default() };
        assert!(last.contains(at("2026-02-28T00:00:00Z")) && last.contains(at("2026-02-27T12:00:00Z")));
        assert!(!last.contains(at("2026-02-26T12:00:00Z")) && !last.contains(at("2024-02-27T12:00:00Z")));
        let month_days = vec![CalendarUnit::MonthDay.parse("31").expect("valid")];
        let never_in_june = MuteInterval { month_days, ..MuteInterval::default() };
        assert!(!never_in_june.contains(at("2026-06-30T12:00:00Z")));
    }

    #[test]
    fn ranges_are_checked() {
        for (unit, good, bad) in [
            (CalendarUnit::Weekday, "Sunday", "sun"),
            (CalendarUnit::Month, "may:august", "0"),
            (CalendarUnit::Month, "1:3", "may:april"),
            (CalendarUnit::MonthDay, "1:-1", "-1:1"),
            (CalendarUnit::Year, "2026", "x"),
        ] {
            assert!(unit.parse(good).is_ok(), "{good}");
            assert!(unit.parse(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_minute("24:00"), Ok(1_440));
        for bad in ["24:01", "7:00", "12:60", "x", "", "+1:00"] {
            assert!(parse_minute(bad).is_err(), "{bad}");
        }
    }
}
