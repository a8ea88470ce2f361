//! Time as the store and PromQL know it: whole milliseconds since the Unix epoch.

use std::fmt::Write as _;
use std::time::Duration;

/// Milliseconds since 1970-01-01T00:00:00Z; negative before it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Before every sample.
    pub const MIN: Timestamp = Timestamp(i64::MIN);
    /// After every sample.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// From milliseconds.
    #[inline]
    pub const fn from_ms(ms: i64) -> Timestamp {
        Timestamp(ms)
    }

    /// From whole seconds; saturates.
    pub const fn from_s(s: i64) -> Timestamp {
        Timestamp(s.saturating_mul(1_000))
    }

    /// In milliseconds.
    #[inline]
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// In whole seconds, rounded down.
    pub const fn as_s(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// In seconds with fractions, as PromQL's `time()` answers.
    #[expect(clippy::cast_precision_loss, reason = "PromQL's own arithmetic: seconds are a double")]
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1_000.0
    }

    /// In days (UTC), rounded down.
    pub const fn as_days(self) -> i64 {
        self.0.div_euclid(86_400_000)
    }

    /// Later by `ms` (earlier when negative); saturates.
    #[must_use]
    pub const fn plus_ms(self, ms: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(ms))
    }

    /// Later by a duration; saturates.
    #[must_use]
    pub fn plus(self, by: Duration) -> Timestamp {
        self.plus_ms(i64::try_from(by.as_millis()).unwrap_or(i64::MAX))
    }

    /// Earlier by a duration; saturates.
    #[must_use]
    pub fn minus(self, by: Duration) -> Timestamp {
        self.plus_ms(-i64::try_from(by.as_millis()).unwrap_or(i64::MAX))
    }

    /// Milliseconds from `earlier` to here; saturates.
    pub const fn ms_since(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// RFC 3339 in UTC with milliseconds only where there are any: `2026-11-21T10:00:00Z`.
    pub fn to_rfc3339(self) -> String {
        let Some(at) = chrono::DateTime::from_timestamp_millis(self.0) else {
            return format!("{}ms", self.0);
        };
        let form =
            if self.0.rem_euclid(1_000) == 0 { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%.3fZ" };
        at.format(form).to_string()
    }

    /// Reads RFC 3339, any offset, fractions rounded down to the millisecond.
    pub fn from_rfc3339(text: &str) -> Option<Timestamp> {
        chrono::DateTime::parse_from_rfc3339(text).ok().map(|at| Timestamp(at.timestamp_millis()))
    }
}

/// A closed stretch of time: both ends belong to it. PromQL's left-open windows add their own millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The first moment of it.
    pub start: Timestamp,
    /// The last moment of it.
    pub end: Timestamp,
}

impl TimeRange {
    /// All of time.
    pub const ALL: TimeRange = TimeRange { start: Timestamp::MIN, end: Timestamp::MAX };

    /// From `start` to `end`, both included; `end < start` is an empty range.
    pub const fn new(start: Timestamp, end: Timestamp) -> TimeRange {
        TimeRange { start, end }
    }

    /// Whether `at` lies in it.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.start <= at && at <= self.end
    }

    /// Whether it shares a moment with `[first, last]`; an empty one has none.
    pub fn overlaps(&self, first: Timestamp, last: Timestamp) -> bool {
        self.start <= self.end && self.start <= last && first <= self.end
    }
}

/// The grid of a range query: `start, start + step, ...` while not after `end`. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    start: Timestamp,
    end: Timestamp,
    step_ms: i64,
}

/// Why three numbers are no grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepsError {
    /// `end` before `start`.
    #[error("end timestamp must not be before start time")]
    EndBeforeStart,
    /// A step of zero or less.
    #[error("zero or negative query resolution step widths are not accepted. Try a positive integer")]
    StepNotPositive,
    /// More than [`Steps::MAX`] intervals.
    #[error(
        "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)"
    )]
    TooMany,
}

impl Steps {
    /// Intervals at most; one more point than this (Prometheus web/api/v1, query_range).
    pub const MAX: i64 = 11_000;

    /// Checks and builds the grid.
    ///
    /// # Errors
    /// [`StepsError`], in the order Prometheus checks.
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

    /// One step: an instant query.
    pub const fn once(at: Timestamp) -> Steps {
        Steps { start: at, end: at, step_ms: 1 }
    }

    /// The first step.
    pub const fn start(&self) -> Timestamp {
        self.start
    }

    /// The end as asked for; the last step is at or before it.
    pub const fn end(&self) -> Timestamp {
        self.end
    }

    /// Milliseconds between steps, at least 1.
    pub const fn step_ms(&self) -> i64 {
        self.step_ms
    }

    /// How many steps; at least 1, at most 11,001.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        usize::try_from(self.end.ms_since(self.start) / self.step_ms).unwrap_or(0) + 1
    }

    /// The `i`-th step.
    pub fn at(&self, i: usize) -> Timestamp {
        self.start.plus_ms(i64::try_from(i).unwrap_or(i64::MAX).saturating_mul(self.step_ms))
    }

    /// All steps in order.
    pub fn iter(&self) -> impl Iterator<Item = Timestamp> + '_ {
        (0..self.len()).map(|i| self.at(i))
    }
}

/// Why a text is no Prometheus duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not `1h30m`-like.
    #[error("not a valid duration string: {0:?}")]
    Syntax(String),
    /// Beyond int64 nanoseconds, about 292 years, as upstream.
    #[error("duration out of range: {0:?}")]
    Range(String),
}

/// The units in the order they may appear, in milliseconds (prometheus/common/model, ParseDuration).
const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Reads `1h30m`, `90s`, `5ms`, `0`: units once each, longest first, whole numbers. Answers milliseconds.
///
/// # Errors
/// [`DurationError`] for anything else, the empty text and signs included.
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
        let place = UNITS.iter().position(|(name, _)| *name == unit).ok_or_else(syntax)?;
        if digits == 0 || place < next_unit {
            return Err(syntax());
        }
        next_unit = place + 1;
        let ms = number.parse::<i64>().ok().and_then(|n| n.checked_mul(UNITS[place].1)).ok_or_else(range)?;
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

/// Writes milliseconds the way PromQL prints them: `1h30m`, `0s`; years and weeks only where they are exact.
pub fn format_duration(ms: i64) -> String {
    if ms == 0 {
        return "0s".into();
    }
    let mut out = String::new();
    if ms < 0 {
        out.push('-');
    }
    let mut rest = ms.unsigned_abs();
    for (place, (name, unit)) in UNITS.iter().enumerate() {
        let unit = unit.unsigned_abs();
        let exact_only = place < 3;
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
    fn durations_are_read_as_prometheus_reads_them() {
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
    fn durations_print_as_prometheus_prints_them() {
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
}
