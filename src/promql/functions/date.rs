//! Calendar fields in UTC of a time in seconds, fractions cut off. What is no number of seconds has no date: NaN.

/// A day of the proleptic Gregorian calendar, and the seconds of it that have passed.
struct Moment {
    year: i64,
    /// From 1.
    month: i64,
    /// From 1.
    day: i64,
    /// Days since 1970-01-01.
    days: i64,
    second: i64,
}

const DAY_S: i64 = 86_400;

impl Moment {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the language cuts fractions off; the range was checked"
    )]
    fn of(seconds: f64) -> Option<Moment> {
        // 2^63: what 64 bits hold.
        const BOUND: f64 = 9_223_372_036_854_775_808.0;
        if !(-BOUND..BOUND).contains(&seconds) {
            return None;
        }
        let seconds = seconds as i64;
        let days = seconds.div_euclid(DAY_S);
        // Years begin in March here, so that the day of a leap year is the last; 400 of them have a fixed number of days.
        const ERA_DAYS: i64 = 146_097;
        const DAYS_BEFORE_1970: i64 = 719_468;
        let since_march = days + DAYS_BEFORE_1970;
        let (era, day_of_era) = (since_march.div_euclid(ERA_DAYS), since_march.rem_euclid(ERA_DAYS));
        let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / (ERA_DAYS - 1);
        let year_of_era = (day_of_era - leap_days) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // Months from March on have 153 days in every five.
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        let year = era * 400 + year_of_era + next_year;
        Some(Moment { year, month, day, days, second: seconds.rem_euclid(DAY_S) })
    }

    fn is_in_leap_year(&self) -> bool {
        self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0)
    }

    fn days_in_month(&self) -> i64 {
        match self.month {
            2 => 28 + i64::from(self.is_in_leap_year()),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    fn day_of_year(&self) -> i64 {
        const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let before = usize::try_from(self.month - 1).ok().and_then(|i| BEFORE.get(i)).copied().unwrap_or(0);
        before + self.day + i64::from(self.month > 2 && self.is_in_leap_year())
    }
}

#[expect(clippy::cast_precision_loss, reason = "years have at most twelve digits")]
fn field(seconds: f64, of: impl Fn(&Moment) -> i64) -> f64 {
    Moment::of(seconds).map_or(f64::NAN, |moment| of(&moment) as f64)
}

pub(super) fn minute(seconds: f64) -> f64 {
    field(seconds, |moment| moment.second / 60 % 60)
}

pub(super) fn hour(seconds: f64) -> f64 {
    field(seconds, |moment| moment.second / 3_600)
}

pub(super) fn day_of_month(seconds: f64) -> f64 {
    field(seconds, |moment| moment.day)
}

/// Sunday is 0.
pub(super) fn day_of_week(seconds: f64) -> f64 {
    // The first day of 1970 was a Thursday.
    field(seconds, |moment| (moment.days + 4).rem_euclid(7))
}

/// January 1st is 1.
pub(super) fn day_of_year(seconds: f64) -> f64 {
    field(seconds, Moment::day_of_year)
}

pub(super) fn days_in_month(seconds: f64) -> f64 {
    field(seconds, Moment::days_in_month)
}

pub(super) fn month(seconds: f64) -> f64 {
    field(seconds, |moment| moment.month)
}

pub(super) fn year(seconds: f64) -> f64 {
    field(seconds, |moment| moment.year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar_package() {
        use chrono::{DateTime, Datelike, Timelike};
        // Every 3rd day or so over 1,600 years, at changing times of day.
        for i in -100_000..100_000i64 {
            let seconds = i * 263_003;
            let date = DateTime::from_timestamp(seconds, 0).expect("within chrono's range");
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let at = seconds as f64;
            let ours = [
                year(at),
                month(at),
                day_of_month(at),
                day_of_year(at),
                day_of_week(at),
                hour(at),
                minute(at),
            ];
            let theirs = [
                f64::from(date.year()),
                f64::from(date.month()),
                f64::from(date.day()),
                f64::from(date.ordinal()),
                f64::from(date.weekday().num_days_from_sunday()),
                f64::from(date.hour()),
                f64::from(date.minute()),
            ];
            assert_eq!(ours, theirs, "{seconds}");
        }
    }

    #[test]
    fn a_calendar_has_no_end_before_seconds_have() {
        // As a real Prometheus has them.
        let years = [(1e15, 31_690_708.0), (-9e18, -285_198_644_592.0), (9e18, 285_198_648_531.0)];
        for (seconds, expected) in years {
            assert_eq!(year(seconds), expected, "{seconds}");
        }
        for nothing in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e19, -1e19] {
            assert!(year(nothing).is_nan() && hour(nothing).is_nan(), "{nothing}");
        }
    }
}
