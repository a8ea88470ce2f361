//! Numbers as text in the labels `le` and `quantile`.

use crate::ingest::number;

/// The format of the values of `le` and `quantile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatLabels {
    /// With a point or an exponent, as OpenMetrics writes them and Prometheus stores them: `1.0`.
    OpenMetrics,
    /// The texts that Go's client writes in the text format: `1`.
    Text,
}

impl FloatLabels {
    pub(super) fn format(self, value: f64) -> String {
        let text = open_metrics_float(value);
        match (self, text.strip_suffix(".0")) {
            (FloatLabels::Text, Some(whole)) => whole.to_owned(),
            _ => text,
        }
    }
}

/// Formats a number as OpenMetrics writes it: the shortest digits that are read back to the same
/// bits, with a point or an exponent: `1.0`, `0.005`, `1e+06`, `+Inf`.
///
/// The exponent is written below -4 and from 6 on, as in Go's `strconv.FormatFloat` with `g`.
pub(super) fn open_metrics_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        let plain = format!("{value}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// Returns a value of `le` or `quantile` as [`open_metrics_float`] writes it; `None` if it is
/// written so already, or is not a number.
pub fn normalized_float(text: &str) -> Option<String> {
    let normalized = open_metrics_float(number::parse_value(text).ok()?);
    (normalized != text).then_some(normalized)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_written_as_in_prometheus() {
        let cases = [
            (1.0, "1.0"),
            (0.0, "0.0"),
            (-1.0, "-1.0"),
            (0.005, "0.005"),
            (2.5, "2.5"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (100_000.0, "100000.0"),
            (1_000_000.0, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (1e100, "1e+100"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ];
        for (value, expected) in cases {
            assert_eq!(FloatLabels::OpenMetrics.format(value), expected);
            let text = expected.strip_suffix(".0").unwrap_or(expected);
            assert_eq!(FloatLabels::Text.format(value), text);
        }
        for (text, expected) in [
            ("1", Some("1.0")),
            ("1.0", None),
            ("1000000", Some("1e+06")),
            ("Inf", Some("+Inf")),
            ("x", None),
        ] {
            assert_eq!(normalized_float(text).as_deref(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_written_number_is_read_back_to_the_bit(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(!value.is_nan());
            let text = open_metrics_float(value);
            prop_assert_eq!(text.parse::<f64>().map(f64::to_bits), Ok(bits), "{}", text);
            prop_assert_eq!(normalized_float(&text), None);
        }
    }
}
