//! Texts of floating-point numbers, as Go's strconv writes them.

/// The forms of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FloatForm {
    /// `%e`: digits and an exponent.
    Exponent,
    /// `%f`: digits only.
    Fixed,
    /// `%g`: an exponent if the number is large or small.
    General,
}

/// Formats a number with a sign only if it is negative, or `+Inf`. A text without a precision has
/// the shortest digits that identify the number.
pub(super) fn format_float(value: f64, form: FloatForm, precision: Option<usize>) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    match (form, precision) {
        (FloatForm::Fixed, Some(precision)) => format!("{value:.precision$}"),
        (FloatForm::Fixed, None) => format!("{value}"),
        (FloatForm::Exponent, Some(precision)) => padded_exponent(&format!("{value:.precision$e}")),
        (FloatForm::Exponent, None) => padded_exponent(&format!("{value:e}")),
        (FloatForm::General, precision) => general(value, precision),
    }
}

/// Returns the short form of a number (`%g`, and the value as text).
pub(super) fn shortest(value: f64) -> String {
    format_float(value, FloatForm::General, None)
}

fn general(value: f64, precision: Option<usize>) -> String {
    let digits = precision.map(|digits| digits.max(1));
    let text = match digits {
        Some(digits) => format!("{value:.*e}", digits - 1),
        None => format!("{value:e}"),
    };
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let exponent: i64 = exponent.parse().unwrap_or_default();
    let mantissa = match mantissa.contains('.') {
        true => mantissa.trim_end_matches('0').trim_end_matches('.'),
        false => mantissa,
    };
    // Without a precision, numbers from 10^6 on have an exponent.
    let threshold = digits.map_or(6, |digits| i64::try_from(digits).unwrap_or(i64::MAX));
    if exponent < -4 || exponent >= threshold {
        return padded_exponent(&format!("{mantissa}e{exponent}"));
    }
    let shown = i64::try_from(mantissa.bytes().filter(u8::is_ascii_digit).count()).unwrap_or(i64::MAX);
    let decimals = usize::try_from(shown - 1 - exponent).unwrap_or_default();
    if digits.is_some() { format!("{value:.decimals$}") } else { format!("{value}") }
}

/// Writes the exponent of a text with its sign and at least two digits.
fn padded_exponent(text: &str) -> String {
    let Some((mantissa, exponent)) = text.split_once('e') else { return text.to_owned() };
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}
