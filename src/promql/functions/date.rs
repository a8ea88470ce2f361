//! Calendar fields in UTC of a time in seconds, truncated to whole seconds. The result is NaN for
//! NaN, infinities and times outside of 64-bit seconds.

/// A time as a day of the proleptic Gregorian calendar and the seconds since its start.
struct CivilTime {
    year: i64,
    /// The month, 1 to 12.
    month: i64,
    /// The day of the month, 1 to 31.
    day: i64,
    /// Days since 1970-01-01.
    days: i64,
    /// Seconds since the start of the day.
    second: i64,
}

const DAY_S: i64 = 86_400;

impl CivilTime {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "PromQL truncates fractions of a second; the range was checked"
    )]
    fn of(seconds: f64) -> Option<CivilTime> {
        // 2^63, the exclusive bound of 64-bit integers.
        const BOUND: f64 = 9_223_372_036_854_775_808.0;
        if !(-BOUND..BOUND).contains(&seconds) {
            return None;
        }
        let seconds = seconds as i64;
        let days = seconds.div_euclid(DAY_S);
        // Years begin in March here, so that the leap day is the last day of its year. An era of
        // 400 years has a fixed number of days.
        const ERA_DAYS: i64 = 146_097;
        const DAYS_BEFORE_1970: i64 = 719_468;
        let since_march = days + DAYS_BEFORE_1970;
        let (era, day_of_era) = (since_march.div_euclid(ERA_DAYS), since_march.rem_euclid(ERA_DAYS));
        let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / (ERA_DAYS - 1);
        let year_of_era = (day_of_era - leap_days) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // Counted from March, every five months have 153 days.
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        let year = era * 400 + year_of_era + next_year;
        Some(CivilTime { year, month, day, days, second: seconds.rem_euclid(DAY_S) })
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
fn field(seconds: f64, of: impl Fn(&CivilTime) -> i64) -> f64 {
    CivilTime::of(seconds).map_or(f64::NAN, |time| of(&time) as f64)
}

pub(super) fn minute(seconds: f64) -> f64 {
    field(seconds, |time| time.second / 60 % 60)
}

pub(super) fn hour(seconds: f64) -> f64 {
    field(seconds, |time| time.second / 3_600)
}

pub(super) fn day_of_month(seconds: f64) -> f64 {
    field(seconds, |time| time.day)
}

/// Returns the day of the week; Sunday is 0.
pub(super) fn day_of_week(seconds: f64) -> f64 {
    // The first day of 1970 was a Thursday.
    field(seconds, |time| (time.days + 4).rem_euclid(7))
}

/// Returns the day of the year; January 1st is 1.
pub(super) fn day_of_year(seconds: f64) -> f64 {
    field(seconds, CivilTime::day_of_year)
}

pub(super) fn days_in_month(seconds: f64) -> f64 {
    field(seconds, CivilTime::days_in_month)
}

pub(super) fn month(seconds: f64) -> f64 {
    field(seconds, |time| time.month)
}

pub(super) fn year(seconds: f64) -> f64 {
    field(seconds, |time| time.year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_equal_those_of_chrono() {
        use chrono::{DateTime, Datelike, Timelike};
        // The test covers about every third day of 1,600 years, at changing times of day.
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
    fn every_64_bit_second_has_a_date() {
        // Years from responses of Prometheus.
        let years = [(1e15, 31_690_708.0), (-9e18, -285_198_644_592.0), (9e18, 285_198_648_531.0)];
        for (seconds, expected) in years {
            assert_eq!(year(seconds), expected, "{seconds}");
        }
        for nothing in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e19, -1e19] {
            assert!(year(nothing).is_nan() && hour(nothing).is_nan(), "{nothing}");
        }
    }
}
