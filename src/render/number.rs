//! The texts of numbers on an axis, as `src/ui/assets/chart/scale.js` writes them.

use super::convert::{index, whole};

/// A factor and its symbol, the largest first.
type Prefixes = &'static [(f64, &'static str)];

const DECIMAL: Prefixes =
    &[(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")];
const BYTES: Prefixes = &[
    (1_125_899_906_842_624.0, "PiB"),
    (1_099_511_627_776.0, "TiB"),
    (1_073_741_824.0, "GiB"),
    (1_048_576.0, "MiB"),
    (1_024.0, "KiB"),
    (1.0, "B"),
];
/// Least value, divisor and symbol.
const SPANS: [(f64, f64, &str); 7] = [
    (86_400.0, 86_400.0, "d"),
    (3_600.0, 3_600.0, "h"),
    (120.0, 60.0, "min"),
    (1.0, 1.0, "s"),
    (1e-3, 1e-3, "ms"),
    (1e-6, 1e-6, "µs"),
    (1e-9, 1e-9, "ns"),
];
/// The units of ticks whose step is a whole number of them.
const WHOLE_SPANS: Prefixes = &[(86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s")];

/// Returns a finite value as text, as exact as an axis with this step needs.
pub(super) fn tick_text(value: f64, unit: &str, step: f64) -> String {
    if unit == "bytes/s" {
        return format!("{}/s", tick_text(value, "bytes", step));
    }
    if unit == "percent" {
        return format!("{} %", digits(value * 100.0, step * 100.0));
    }
    if value == 0.0 {
        return if unit == "bytes" { "0 B".to_owned() } else { "0".to_owned() };
    }
    if unit == "seconds" && step >= 1.0 {
        // The ticks are whole in the largest unit that divides the step.
        if let Some((size, sign)) = WHOLE_SPANS.iter().find(|(size, _)| step % size == 0.0) {
            return format!("{} {sign}", whole((value / size).round()));
        }
    }
    let (size, sign) = prefix(value.abs(), unit);
    let number = digits(value / size, step / size);
    match unit {
        "" | "none" => format!("{number}{sign}"),
        "bytes" | "seconds" => format!("{number} {sign}"),
        _ => format!("{number}{sign} {unit}"),
    }
}

/// Returns the divisor and the symbol that a value of this size is written with.
fn prefix(size: f64, unit: &str) -> (f64, &'static str) {
    let of = |all: Prefixes, slack: f64| all.iter().find(|(least, _)| size >= least * slack).copied();
    match unit {
        "bytes" => of(BYTES, 1.0).unwrap_or((1.0, "B")),
        "seconds" => {
            let span = SPANS.iter().find(|(least, ..)| size >= least * 0.9999);
            span.map_or((1e-9, "ns"), |(_, divisor, sign)| (*divisor, *sign))
        }
        // An axis without a unit shortens from 1,000.
        "" if size >= 1_000.0 => of(DECIMAL, 1.0).unwrap_or((1.0, "")),
        _ if !(1e-9..1e15).contains(&size) || (0.001..10_000.0).contains(&size) => (1.0, ""),
        _ => of(DECIMAL, 0.9999).unwrap_or((1.0, "")),
    }
}

/// Returns the digits of a value on an axis with this step.
fn digits(value: f64, step: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-9..1e15).contains(&size) {
        return exponential(value);
    }
    let places = index((-(step.log10() + 1e-9).floor()).clamp(0.0, 9.0));
    let scaled = step * 10_f64.powf(places as f64);
    // 2.5 needs one more place than 2 or 5 of the same power.
    let is_exact = (scaled - scaled.round()).abs() <= 1e-6;
    let places = if is_exact { places } else { (places + 1).min(9) };
    format!("{value:.places$}")
}

/// Returns a value with three digits after the point and an exponent with a sign: `1.500e+15`.
fn exponential(value: f64) -> String {
    let text = format!("{value:.3e}");
    match text.split_once('e') {
        Some((number, exponent)) if !exponent.starts_with('-') => format!("{number}e+{exponent}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_written_as_the_web_component_writes_them() {
        for (value, unit, step, expected) in [
            (0.0, "", 1.0, "0"),
            (0.5, "", 0.25, "0.50"),
            (2.5, "", 2.5, "2.5"),
            (1_500.0, "", 500.0, "1.5k"),
            (-20_000.0, "", 10_000.0, "-20k"),
            (2e6, "", 1e6, "2M"),
            (0.0, "bytes", 1.0, "0 B"),
            (1_536.0, "bytes", 512.0, "1.5 KiB"),
            (1_073_741_824.0, "bytes/s", 536_870_912.0, "1.0 GiB/s"),
            (0.25, "percent", 0.05, "25 %"),
            (0.002, "seconds", 0.001, "2 ms"),
            (0.0, "seconds", 60.0, "0"),
            (7_200.0, "seconds", 3_600.0, "2 h"),
            (90.0, "seconds", 30.0, "90 s"),
            (1_500.0, "req/s", 500.0, "1500 req/s"),
            (20_000.0, "req/s", 5_000.0, "20k req/s"),
            (1.5e15, "none", 5e14, "1.500e+15"),
            (2e-12, "", 1e-12, "2.000e-12"),
        ] {
            assert_eq!(tick_text(value, unit, step), expected, "{value} {unit} {step}");
        }
    }

    #[test]
    fn any_number_has_a_short_text() {
        for value in [f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, 1e15, -1e-9, 1e300] {
            for unit in ["", "none", "bytes", "bytes/s", "seconds", "percent", "x"] {
                for step in [5e-324, 1e-12, 1.0, 1e15, f64::MAX] {
                    let text = tick_text(value, unit, step);
                    assert!(!text.is_empty() && text.len() < 40, "{value} {unit} {step}: {text}");
                }
            }
        }
    }
}
