//! The ticks of both axes, as `src/ui/assets/chart/scale.js` computes them.

use super::convert::whole;
use super::zone::{Zone, date_of, days_of};

/// Round steps, in seconds, ascending.
const STEPS_S: [i64; 24] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, DAY_S, 172_800,
    604_800, 1_209_600, MONTH_S, 7_776_000, YEAR_S,
];
const DAY_S: i64 = 86_400;
const MONTH_S: i64 = 2_592_000;
const YEAR_S: i64 = 31_536_000;
/// The most ticks of a value axis.
const TICKS_MAX: usize = 40;

/// The bounds and the ticks of a value axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ValueAxis {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) step: f64,
    pub(super) ticks: Vec<f64>,
}

impl ValueAxis {
    /// Returns round bounds and about `count` intervals around the values from `low` to `high`.
    ///
    /// The axis of values that are not far above zero begins at zero; otherwise small changes would
    /// look large.
    pub(super) fn around(low: f64, high: f64, count: usize, unit: &str) -> ValueAxis {
        let (mut low, mut high) = (low, high);
        if low > 0.0 && low < high * 0.7 {
            low = 0.0;
        }
        if high < 0.0 && high > low * 0.7 {
            high = 0.0;
        }
        #[expect(clippy::float_cmp, reason = "a single value, to the bit")]
        if low == high {
            let pad = if low == 0.0 { 1.0 } else { (low.abs() * 0.1).max(f64::MIN_POSITIVE) };
            (low, high) =
                if low == 0.0 { (0.0, pad) } else { ((low - pad).max(f64::MIN), (high + pad).min(f64::MAX)) };
        }
        let step = value_step((high - low) / count.max(1) as f64, unit);
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        let fits =
            [step, first * step, last * step, last * step - first * step].iter().all(|n| n.is_finite());
        if !fits || step <= 0.0 {
            // Values close to the ends of the floating-point numbers.
            return ValueAxis { low, high, step: (high / 2.0 - low / 2.0) * 2.0, ticks: vec![low, high] };
        }
        let mut ticks = Vec::new();
        let mut at = first;
        while at <= last && ticks.len() < TICKS_MAX {
            ticks.push(at * step);
            at += 1.0;
        }
        ValueAxis { low: first * step, high: last.max(first + 1.0) * step, step, ticks }
    }

    /// Returns where a value lies between the bounds: 0 at the lower, 1 at the upper.
    pub(super) fn fraction(&self, value: f64) -> f64 {
        let span = self.high - self.low;
        if span.is_finite() {
            return (value - self.low) / span;
        }
        (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0)
    }
}

/// Returns the round step that is at least about `raw`.
fn value_step(raw: f64, unit: &str) -> f64 {
    if unit.starts_with("bytes") && raw >= 1.0 {
        let power = raw.log2().floor().exp2();
        return if raw > power { power * 2.0 } else { power };
    }
    let power = 10_f64.powf(raw.log10().floor());
    let decimal = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|factor| factor * power >= raw * 0.999);
    let decimal = decimal.unwrap_or(10.0) * power;
    if unit == "seconds" && raw > 1.0 {
        let round = STEPS_S.iter().map(|step| *step as f64).find(|step| *step >= raw * 0.999);
        return round.unwrap_or(decimal);
    }
    decimal
}

/// Returns the round step, in seconds, with which a range has at most about `count` of them.
pub fn nice_step_s(range_s: f64, count: usize) -> i64 {
    let least = range_s / count.max(1) as f64;
    let round = STEPS_S.into_iter().find(|step| *step as f64 >= least);
    round.unwrap_or_else(|| whole((least / DAY_S as f64).ceil()).saturating_mul(DAY_S))
}

/// A tick of the time axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TimeTick {
    /// Seconds since 1970.
    pub(super) at: i64,
    pub(super) text: String,
    /// The beginning of a day.
    pub(super) major: bool,
}

/// Returns about `count` ticks at round local times from `start` to `end`, in seconds since 1970,
/// both inclusive.
pub(super) fn time_ticks(start: f64, end: f64, count: usize, zone: &Zone) -> Vec<TimeTick> {
    let step = nice_step_s(end - start, count);
    let shown = |at: i64| at as f64 >= start && at as f64 <= end;
    if step >= MONTH_S {
        return month_ticks(start, end, step, count, zone)
            .into_iter()
            .filter(|tick| shown(tick.at))
            .collect();
    }
    let from = whole(start.floor());
    let offset = zone.ahead_s(from);
    let local = start + offset as f64;
    let first = whole((local / step as f64).ceil()).saturating_mul(step).saturating_sub(offset);
    let mut ticks = Vec::new();
    let mut plain = first;
    // The step bounds the number of ticks. An hour more, because local clocks may be set back.
    while plain as f64 <= end + 3_600.0 {
        // Across a change of summer time, hours and days stay on the local clock.
        let at = if step >= 3_600 { plain + offset - zone.ahead_s(plain) } else { plain };
        plain = plain.saturating_add(step);
        if !shown(at) {
            continue;
        }
        let local = at + zone.ahead_s(at);
        let second = local.rem_euclid(DAY_S);
        let is_midnight = second == 0;
        let text = if step >= DAY_S || is_midnight { day_text(local) } else { clock_text(second, step < 60) };
        ticks.push(TimeTick { at, text, major: is_midnight && step < DAY_S });
    }
    ticks
}

/// Returns ticks at the beginnings of local months, some of them before `start`.
fn month_ticks(start: f64, end: f64, step: i64, count: usize, zone: &Zone) -> Vec<TimeTick> {
    const MONTHS_MAX: i64 = 600;
    let months = if step >= YEAR_S {
        12
    } else if step >= 7_776_000 {
        3
    } else {
        1
    };
    let from = whole(start.floor());
    let (year, month, _) = date_of((from + zone.ahead_s(from)).div_euclid(DAY_S));
    let mut ticks = Vec::new();
    for place in 0..MONTHS_MAX {
        let month = (month - 1) / months * months + place * months;
        let (year, month) = (year + month.div_euclid(12), month.rem_euclid(12) + 1);
        let plain = days_of(year, month, 1) * DAY_S;
        let at = plain - zone.ahead_s(plain - zone.ahead_s(plain));
        if at as f64 > end || ticks.len() > count + 1 {
            break;
        }
        ticks.push(TimeTick { at, text: format!("{} {year}", month_name(month)), major: false });
    }
    ticks
}

/// Returns the label of a time with its day: `Nov 26, 12:05`.
pub(super) fn moment_text(at: i64, zone: &Zone) -> String {
    let local = at.saturating_add(zone.ahead_s(at));
    format!("{}, {}", day_text(local), clock_text(local.rem_euclid(DAY_S), false))
}

fn day_text(local: i64) -> String {
    let (_, month, day) = date_of(local.div_euclid(DAY_S));
    format!("{} {day}", month_name(month))
}

fn clock_text(second: i64, with_seconds: bool) -> String {
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    match with_seconds {
        true => format!("{hour:02}:{minute:02}:{:02}", second % 60),
        false => format!("{hour:02}:{minute:02}"),
    }
}

fn month_name(month: i64) -> &'static str {
    const NAMES: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    usize::try_from(month - 1).ok().and_then(|place| NAMES.get(place)).copied().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(low: f64, high: f64, unit: &str) -> (f64, f64, f64) {
        let ValueAxis { low, high, step, .. } = ValueAxis::around(low, high, 5, unit);
        (low, high, step)
    }

    #[test]
    fn value_axes_are_round_and_begin_at_zero_unless_the_values_are_far_above() {
        assert_eq!(axis(12.0, 97.0, ""), (0.0, 100.0, 20.0));
        assert_eq!(axis(980.0, 1_000.0, ""), (980.0, 1_000.0, 5.0));
        assert_eq!(axis(0.0, 0.0, ""), (0.0, 1.0, 0.2));
        assert_eq!(axis(-3.0, -1.0, ""), (-3.0, 0.0, 1.0));
        assert_eq!(axis(0.0, 5_000.0, "bytes"), (0.0, 5_120.0, 1_024.0));
        assert_eq!(axis(0.0, 250.0, "seconds"), (0.0, 300.0, 60.0));
    }

    #[test]
    fn extreme_values_have_an_axis_that_contains_them() {
        let extremes = [f64::MAX, f64::MIN, 0.0, 5e-324, f64::MIN_POSITIVE, 1e308, -1e308];
        for low in extremes {
            for high in extremes.into_iter().filter(|high| *high >= low) {
                for unit in ["", "bytes", "seconds"] {
                    let axis = ValueAxis::around(low, high, 5, unit);
                    let inside = [axis.fraction(low), axis.fraction(high)];
                    let bounded = inside.iter().all(|part| (-1e-6..=1.000_001).contains(part));
                    assert!(bounded && axis.ticks.len() <= TICKS_MAX, "{low} {high} {unit} {axis:?}");
                }
            }
        }
    }

    fn ticks(start: i64, end: i64, zone: &str) -> Vec<String> {
        let zone = Zone::parse(zone).expect("a zone");
        let ticks = time_ticks(start as f64, end as f64, 6, &zone);
        ticks.into_iter().map(|tick| tick.text).collect()
    }

    #[test]
    fn time_ticks_are_round_on_the_local_clock() {
        // 2026-11-26 12:00:00 UTC.
        let noon = 1_795_694_400;
        assert_eq!(
            ticks(noon, noon + 3_600, ""),
            ["12:00", "12:10", "12:20", "12:30", "12:40", "12:50", "13:00"]
        );
        assert_eq!(ticks(noon, noon + 30, "UTC")[..2], ["12:00:00", "12:00:05"]);
        assert_eq!(ticks(noon, noon + 3_600, "+05:30")[..2], ["17:30", "17:40"]);
        let day = ticks(noon, noon + 86_400, "America/New_York");
        assert_eq!(day, ["12:00", "18:00", "Nov 27", "06:00"]);
        // Hours before and after the end of summer time in Berlin, 2026-10-25 at 01:00 UTC.
        let autumn = ticks(1_792_879_200, 1_792_879_200 + 10 * 3_600, "Europe/Berlin");
        assert_eq!(autumn, ["Oct 25", "02:00", "04:00", "06:00", "08:00"]);
        assert_eq!(ticks(noon, noon + 300 * 86_400, "")[0], "Jan 2027");
    }

    #[test]
    fn any_range_has_a_bounded_number_of_ticks() {
        let zone = Zone::parse("Europe/Berlin").expect("a zone");
        for start in [i64::MIN / 1_000, -1, 0, 1_795_694_400, i64::MAX / 1_000 - 10] {
            for range in [0.0, 0.001, 1.0, 1e5, 1e7, 3.2e7, 1e12] {
                let found = time_ticks(start as f64, start as f64 + range, 8, &zone);
                assert!(found.len() <= 11, "{start} {range}: {}", found.len());
            }
        }
    }
}
