//! Time in the store and in PromQL: whole milliseconds since 1970.

use std::fmt::Write as _;
use std::time::Duration;

/// Milliseconds since 1970-01-01T00:00:00Z; negative before it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Earlier than every sample.
    pub const MIN: Timestamp = Timestamp(i64::MIN);
    /// Later than every sample.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// Creates a timestamp from milliseconds.
    #[inline]
    pub const fn from_ms(ms: i64) -> Timestamp {
        Timestamp(ms)
    }

    /// Creates a timestamp from whole seconds; saturates.
    pub const fn from_s(s: i64) -> Timestamp {
        Timestamp(s.saturating_mul(1_000))
    }

    /// Returns the time in milliseconds.
    #[inline]
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// Returns the time in whole seconds, rounded down.
    pub const fn as_s(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// Returns the time in seconds with fractions, like PromQL's `time()`.
    #[expect(clippy::cast_precision_loss, reason = "PromQL's own arithmetic: seconds are a double")]
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1_000.0
    }

    /// Returns the time in days (UTC), rounded down.
    pub const fn as_days(self) -> i64 {
        self.0.div_euclid(86_400_000)
    }

    /// Returns the time `ms` later (earlier if negative); saturates.
    #[must_use]
    pub const fn plus_ms(self, ms: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(ms))
    }

    /// Returns the time later by a duration; saturates.
    #[must_use]
    pub fn plus(self, by: Duration) -> Timestamp {
        self.plus_ms(i64::try_from(by.as_millis()).unwrap_or(i64::MAX))
    }

    /// Returns the time earlier by a duration; saturates.
    #[must_use]
    pub fn minus(self, by: Duration) -> Timestamp {
        self.plus_ms(-i64::try_from(by.as_millis()).unwrap_or(i64::MAX))
    }

    /// Returns the milliseconds from `earlier` to this time; saturates.
    pub const fn ms_since(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Formats the time as RFC 3339 in UTC, with milliseconds only if they are not 0:
    /// `2026-11-21T10:00:00Z`.
    pub fn to_rfc3339(self) -> String {
        let Some(at) = chrono::DateTime::from_timestamp_millis(self.0) else {
            return format!("{}ms", self.0);
        };
        let form =
            if self.0.rem_euclid(1_000) == 0 { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%.3fZ" };
        at.format(form).to_string()
    }

    /// Parses RFC 3339 with any offset; fractions are rounded down to milliseconds.
    pub fn from_rfc3339(text: &str) -> Option<Timestamp> {
        chrono::DateTime::parse_from_rfc3339(text).ok().map(|at| Timestamp(at.timestamp_millis()))
    }

    /// Parses a date of HTTP (RFC 9110): `Fri, 27 Nov 2026 10:00:00 GMT`.
    pub fn from_http_date(text: &str) -> Option<Timestamp> {
        let text = text.trim().strip_suffix(" GMT")?;
        let at = chrono::NaiveDateTime::parse_from_str(text, "%a, %d %b %Y %H:%M:%S").ok()?;
        Some(Timestamp(at.and_utc().timestamp_millis()))
    }
}

/// A closed range of time: both ends are inclusive. For PromQL's left-open windows, callers add a
/// millisecond to the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// First moment, inclusive.
    pub start: Timestamp,
    /// Last moment, inclusive.
    pub end: Timestamp,
}

impl TimeRange {
    /// All of time.
    pub const ALL: TimeRange = TimeRange { start: Timestamp::MIN, end: Timestamp::MAX };

    /// Creates a range from `start` to `end`, both inclusive; it is empty if `end < start`.
    pub const fn new(start: Timestamp, end: Timestamp) -> TimeRange {
        TimeRange { start, end }
    }

    /// Returns whether `at` is within the range.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.start <= at && at <= self.end
    }

    /// Returns whether the range overlaps `[first, last]`; an empty range never does.
    pub fn overlaps(&self, first: Timestamp, last: Timestamp) -> bool {
        self.start <= self.end && self.start <= last && first <= self.end
    }
}

/// The grid of a range query: `start`, `start + step`, ... up to `end` (inclusive). Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    start: Timestamp,
    end: Timestamp,
    step_ms: i64,
}

/// Reasons why three numbers are not a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepsError {
    /// `end` is before `start`.
    #[error("end timestamp must not be before start time")]
    EndBeforeStart,
    /// The step is zero or negative.
    #[error("zero or negative query resolution step widths are not accepted. Try a positive integer")]
    StepNotPositive,
    /// The grid has more than [`Steps::MAX`] intervals.
    #[error(
        "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)"
    )]
    TooMany,
}

impl Steps {
    /// Maximum number of intervals, which is one less than that of points (Prometheus web/api/v1,
    /// query_range).
    pub const MAX: i64 = 11_000;

    /// Validates and builds the grid.
    ///
    /// # Errors
    /// [`StepsError`], checked in the order of Prometheus.
    pub fn new(start: Timestamp, end: Timestamp, step_ms: i64) -> Result<Steps, StepsError> {
        if end < start {
            return Err(StepsError::EndBeforeStart);
        }
        if step_ms <= 0 {
            return Err(StepsError::StepNotPositive);
        }
        if end.ms_since(start) / step_ms > Steps::MAX {
            return Err(StepsError::TooMany);
        }
        Ok(Steps { start, end, step_ms })
    }

    /// Creates the grid of an instant query: one step.
    pub const fn once(at: Timestamp) -> Steps {
        Steps { start: at, end: at, step_ms: 1 }
    }

    /// Returns the first step.
    pub const fn start(&self) -> Timestamp {
        self.start
    }

    /// Returns the requested end; the last step is at or before it.
    pub const fn end(&self) -> Timestamp {
        self.end
    }

    /// Returns the milliseconds between steps, at least 1.
    pub const fn step_ms(&self) -> i64 {
        self.step_ms
    }

    /// Returns the number of steps; at least 1, at most 11,001.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        usize::try_from(self.end.ms_since(self.start) / self.step_ms).unwrap_or(0) + 1
    }

    /// Returns the time of step `i`, from 0.
    pub fn at(&self, i: usize) -> Timestamp {
        self.start.plus_ms(i64::try_from(i).unwrap_or(i64::MAX).saturating_mul(self.step_ms))
    }

    /// Returns the index of the step at `at`; `None` if there is none.
    pub fn index_of(&self, at: Timestamp) -> Option<usize> {
        let is_within = self.start <= at && at <= self.end;
        let since_ms = if is_within { at.ms_since(self.start) } else { return None };
        let index = since_ms / self.step_ms;
        (index * self.step_ms == since_ms).then(|| usize::try_from(index).ok())?
    }

    /// Iterates over all steps in order.
    pub fn iter(&self) -> impl Iterator<Item = Timestamp> + '_ {
        (0..self.len()).map(|i| self.at(i))
    }
}

/// Reasons why a text is not a Prometheus duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text does not have a form like `1h30m`.
    #[error("not a valid duration string: {0:?}")]
    Syntax(String),
    /// The duration exceeds int64 nanoseconds, about 292 years, as in Prometheus.
    #[error("duration out of range: {0:?}")]
    Range(String),
}

/// The units in the order in which they may occur, in milliseconds (prometheus/common/model,
/// ParseDuration).
const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Parses `1h30m`, `90s`, `5ms` or `0`: whole numbers, each unit at most once, longest first.
/// Returns milliseconds.
///
/// # Errors
/// [`DurationError`] for any other text, including the empty text and signs.
pub fn parse_duration(text: &str) -> Result<i64, DurationError> {
    if text == "0" {
        return Ok(0);
    }
    let syntax = || DurationError::Syntax(text.to_owned());
    let range = || DurationError::Range(text.to_owned());
    let mut rest = text;
    let mut next_unit = 0;
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(letters);
        let index = UNITS.iter().position(|(name, _)| *name == unit).ok_or_else(syntax)?;
        if digits == 0 || index < next_unit {
            return Err(syntax());
        }
        next_unit = index + 1;
        let ms = number.parse::<i64>().ok().and_then(|n| n.checked_mul(UNITS[index].1)).ok_or_else(range)?;
        total = total.checked_add(ms).ok_or_else(range)?;
        rest = after;
    }
    if next_unit == 0 {
        return Err(syntax());
    }
    if total > i64::MAX / 1_000_000 {
        return Err(range());
    }
    Ok(total)
}

/// Formats milliseconds like PromQL: `1h30m`, `0s`; years, weeks and days only if they are exact.
pub fn format_duration(ms: i64) -> String {
    if ms == 0 {
        return "0s".into();
    }
    let mut out = String::new();
    if ms < 0 {
        out.push('-');
    }
    let mut rest = ms.unsigned_abs();
    for (index, (name, unit)) in UNITS.iter().enumerate() {
        let unit = unit.unsigned_abs();
        let exact_only = index < 3;
        if rest < unit || (exact_only && !rest.is_multiple_of(unit)) {
            continue;
        }
        let _ = write!(out, "{}{name}", rest / unit);
        rest %= unit;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_like_in_prometheus() {
        let cases = [
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("90s", 90_000),
            ("1y", 31_536_000_000),
            ("0", 0),
            ("0s", 0),
            ("1d12h1ms", 129_600_001),
        ];
        for (text, ms) in cases {
            assert_eq!(parse_duration(text), Ok(ms), "{text}");
        }
        for bad in ["", "5", "m", "5m1h", "5m5m", "-5m", "1.5h", "5x", "5M", "1e3s"] {
            assert!(matches!(parse_duration(bad), Err(DurationError::Syntax(_))), "{bad}");
        }
        for bad in ["300y", "99999999999999999999s", "9223372036854775807y"] {
            assert!(matches!(parse_duration(bad), Err(DurationError::Range(_))), "{bad}");
        }
    }

    #[test]
    fn durations_are_formatted_like_in_prometheus() {
        let cases = [
            (0, "0s"),
            (300_000, "5m"),
            (5_400_000, "1h30m"),
            (604_800_000, "1w"),
            (86_400_000, "1d"),
            (90_000_000, "25h"),
            (1, "1ms"),
            (-300_000, "-5m"),
        ];
        for (ms, text) in cases {
            assert_eq!(format_duration(ms), text);
        }
    }

    #[test]
    fn the_index_of_a_time_is_that_of_its_step() {
        let steps = Steps::new(Timestamp::from_ms(-7), Timestamp::from_ms(22), 10).expect("steps");
        for ms in -20..40 {
            let at = Timestamp::from_ms(ms);
            assert_eq!(steps.index_of(at), steps.iter().position(|step| step == at), "{ms}");
        }
        let all = Steps::once(Timestamp::MIN);
        assert_eq!((all.index_of(Timestamp::MIN), all.index_of(Timestamp::MAX)), (Some(0), None));
    }

    #[test]
    fn steps_allow_eleven_thousand_and_one_points() {
        let steps = |end, step| Steps::new(Timestamp::from_ms(0), Timestamp::from_ms(end), step);
        assert_eq!(steps(11_000, 1).map(|s| s.len()), Ok(11_001));
        assert_eq!(steps(11_001, 1), Err(StepsError::TooMany));
        assert_eq!(steps(-1, 1), Err(StepsError::EndBeforeStart));
        assert_eq!(steps(1, 0), Err(StepsError::StepNotPositive));
        assert_eq!(
            steps(25, 10).expect("valid").iter().map(Timestamp::as_ms).collect::<Vec<_>>(),
            [0, 10, 20]
        );
    }

    #[test]
    fn rfc3339_round_trips() {
        for text in ["2026-11-21T10:00:00Z", "1969-12-31T23:59:59.500Z"] {
            assert_eq!(Timestamp::from_rfc3339(text).expect("valid").to_rfc3339(), text);
        }
        assert_eq!(
            Timestamp::from_rfc3339("2026-11-21T12:00:00+02:00"),
            Timestamp::from_rfc3339("2026-11-21T10:00:00Z")
        );
    }

    #[test]
    fn dates_of_http_are_read() {
        let at = Timestamp::from_http_date(" Fri, 27 Nov 2026 02:30:05 GMT").expect("valid");
        assert_eq!(at.to_rfc3339(), "2026-11-27T02:30:05Z");
        for wrong in
            ["", "30", "Fri, 27 Nov 2026 02:30:05", "Mon, 27 Nov 2026 02:30:05 GMT", "2026-11-27 GMT"]
        {
            assert_eq!(Timestamp::from_http_date(wrong), None, "{wrong}");
        }
    }
}
