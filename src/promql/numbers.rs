//! Conversions of numbers: to the floats of the language, and to text.

/// Converts milliseconds to seconds.
#[inline]
#[expect(clippy::cast_precision_loss, reason = "PromQL's own arithmetic: seconds are a double")]
pub(super) fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}

/// Converts a count to a value.
#[inline]
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub(super) fn count(n: usize) -> f64 {
    n as f64
}

/// Formats a number like Go's `%g`, which the messages of Prometheus use.
pub(super) fn go_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e6).contains(&size) {
        // Rust writes `1e-5`; Go pads the exponent to two digits.
        let text = format!("{value:e}");
        return match text.split_once('e') {
            Some((digits, exponent)) => {
                let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
                format!("{digits}e{sign}{exponent:0>2}")
            }
            None => text,
        };
    }
    value.to_string()
}
