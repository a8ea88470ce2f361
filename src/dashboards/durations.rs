//! Durations and intervals, as the page reads and rounds them.

const DAY_MS: i64 = 86_400_000;

/// The lengths of units in milliseconds; a month has 30 days, a year 365.
const UNITS: [(&str, i64); 9] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", DAY_MS),
    ("w", 7 * DAY_MS),
    ("M", 30 * DAY_MS),
    ("Q", 91 * DAY_MS),
    ("y", 365 * DAY_MS),
];

const TEXT_BYTES_MAX: usize = 128;
/// A thousand years.
const MS_MAX: f64 = 3.2e13;

/// Returns the length of a duration such as `1h30m`, `15s`, `>10s` or plain seconds, at least a
/// millisecond; `None` for other texts.
pub fn duration_ms(text: &str) -> Option<i64> {
    let text = text.trim();
    let text = text.strip_prefix('>').unwrap_or(text).trim_start();
    if text.is_empty() || text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let is_number = |text: &str| {
        text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
            && text.starts_with(|c: char| c.is_ascii_digit())
    };
    if is_number(text) {
        return rounded(text.parse::<f64>().ok()? * 1_000.0);
    }
    let (mut rest, mut total) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (count, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let (_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
        if !is_number(count) {
            return None;
        }
        total += count.parse::<f64>().ok()? * *length as f64;
        rest = after;
    }
    rounded(total)
}

#[expect(clippy::cast_possible_truncation, reason = "within the bounds that the line before checks")]
fn rounded(ms: f64) -> Option<i64> {
    (0.5..=MS_MAX).contains(&ms).then(|| ms.round() as i64)
}

/// Returns a duration as PromQL writes it: 5,400,000 is `1h30m`.
pub(super) fn duration_text(ms: i64) -> String {
    let mut left = ms.max(1);
    let mut text = String::new();
    for (unit, length) in [("d", DAY_MS), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if left >= length {
            text.push_str(&format!("{}{unit}", left / length));
            left %= length;
        }
    }
    text
}

/// Grafana's table of intervals: below the first number of milliseconds, the interval is the
/// second.
const ROUNDING: [(i64, i64); 29] = [
    (10, 1),
    (15, 10),
    (35, 20),
    (75, 50),
    (150, 100),
    (350, 200),
    (750, 500),
    (1_500, 1_000),
    (3_500, 2_000),
    (7_500, 5_000),
    (12_500, 10_000),
    (17_500, 15_000),
    (25_000, 20_000),
    (45_000, 30_000),
    (90_000, 60_000),
    (210_000, 120_000),
    (450_000, 300_000),
    (750_000, 600_000),
    (1_050_000, 900_000),
    (1_500_000, 1_200_000),
    (2_700_000, 1_800_000),
    (5_400_000, 3_600_000),
    (9_000_000, 7_200_000),
    (16_200_000, 10_800_000),
    (32_400_000, 21_600_000),
    (DAY_MS, 43_200_000),
    (7 * DAY_MS, DAY_MS),
    (21 * DAY_MS, 7 * DAY_MS),
    (42 * DAY_MS, 30 * DAY_MS),
];

/// Returns `range_ms` in `count` steps, rounded as Grafana rounds intervals.
pub(super) fn rounded_interval(range_ms: i64, count: u32) -> i64 {
    let count = i64::from(count.max(1));
    let below = ROUNDING.iter().find(|(below, _)| range_ms < below.saturating_mul(count));
    below.map_or(365 * DAY_MS, |(_, interval)| *interval)
}
