//! Names of metrics and labels in Prometheus' spelling: letters, digits and underscores, with unit
//! and kind as suffixes.
//!
//! The rules are those of Prometheus 3 by default (`UnderscoreEscapingWithSuffixes`), and of the
//! OpenTelemetry specification, "Prometheus and OpenMetrics Compatibility":
//!
//! * A name is split at every character other than a letter, digit or colon, and the words are
//!   joined by one underscore.
//! * The word of the unit is appended unless the name contains it: `By` is `bytes`, `By/s` is
//!   `bytes` and then `per_second`. A part in braces states what is counted and is not a unit;
//!   neither is `1`.
//! * A counter ends in `_total`, a gauge with unit `1` in `_ratio`. If the name contains that word,
//!   it moves to the end.
//! * A leading digit gets an underscore before it.
//!
//! A label keeps its underscores; every other invalid character becomes one. `1st` becomes
//! `key_1st` and `_own` becomes `key_own`; two leading underscores remain.

/// The suffix that the kind of a metric adds to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suffix {
    /// `_total`, for counters.
    Total,
    /// `_ratio`, for gauges whose unit is `1`.
    Ratio,
    /// No suffix except the unit.
    Unit,
}

/// Units of OpenTelemetry (UCUM), and Prometheus' words for them.
const UNITS: &[(&str, &str)] = &[
    ("1", ""),
    ("%", "percent"),
    ("A", "amperes"),
    ("By", "bytes"),
    ("Cel", "celsius"),
    ("GBy", "gigabytes"),
    ("GiBy", "gibibytes"),
    ("Hz", "hertz"),
    ("J", "joules"),
    ("KBy", "kilobytes"),
    ("KiBy", "kibibytes"),
    ("MBy", "megabytes"),
    ("MiBy", "mebibytes"),
    ("TBy", "terabytes"),
    ("TiBy", "tebibytes"),
    ("V", "volts"),
    ("W", "watts"),
    ("d", "days"),
    ("g", "grams"),
    ("h", "hours"),
    ("m", "meters"),
    ("min", "minutes"),
    ("ms", "milliseconds"),
    ("ns", "nanoseconds"),
    ("s", "seconds"),
    ("us", "microseconds"),
];

/// The singular words of units after a slash.
const PER_UNITS: &[(&str, &str)] = &[
    ("d", "day"),
    ("h", "hour"),
    ("m", "minute"),
    ("mo", "month"),
    ("s", "second"),
    ("w", "week"),
    ("y", "year"),
];

/// Returns the name and the unit of a metric in Prometheus' spelling. Returns `None` if no
/// character of the name is valid.
pub(super) fn metric(name: &str, unit: &str, suffix: Suffix) -> Option<(String, String)> {
    let mut words: Vec<&str> = name.split(|c| !is_name_char(c)).filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return None;
    }
    let (main_unit, per) = unit.split_once('/').unwrap_or((unit, ""));
    let mut main_unit = sanitized(unit_word(UNITS, main_unit));
    let per = unit_word(PER_UNITS, per);
    let mut per = if per.is_empty() { String::new() } else { sanitized(&format!("per_{per}")) };
    trim_underscore(&mut per);
    if per == "per" {
        per.clear();
    }
    if !per.is_empty() {
        trim_underscore(&mut main_unit);
    }
    let parts = [main_unit.as_str(), per.as_str()].into_iter().filter(|part| !part.is_empty());
    let prometheus_unit = parts.clone().collect::<Vec<_>>().join("_");
    let missing: Vec<&str> = parts.filter(|part| !words.contains(part)).collect();
    words.extend(missing);
    let end = match suffix {
        Suffix::Total => Some("total"),
        Suffix::Ratio if unit == "1" => Some("ratio"),
        Suffix::Ratio | Suffix::Unit => None,
    };
    if let Some(end) = end {
        words.retain(|word| *word != end);
        words.push(end);
    }
    let mut name = words.join("_");
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        name.insert(0, '_');
    }
    Some((name, prometheus_unit))
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == ':'
}

/// Returns the word of a unit: the unit itself if it has none, and an empty string for a part in
/// braces.
fn unit_word<'t>(words: &[(&'static str, &'static str)], unit: &'t str) -> &'t str {
    let unit = unit.trim();
    if unit.contains(['{', '}']) {
        return "";
    }
    words.iter().find(|(short, _)| *short == unit).map_or(unit, |(_, word)| word)
}

/// Replaces each run of invalid characters by one underscore, and drops those at the start.
fn sanitized(unit: &str) -> String {
    let mut out = String::with_capacity(unit.len());
    for c in unit.chars() {
        if is_name_char(c) {
            out.push(c);
        } else if !out.is_empty() && !out.ends_with('_') {
            out.push('_');
        }
    }
    out
}

fn trim_underscore(text: &mut String) {
    if text.ends_with('_') {
        text.pop();
    }
}

/// Writes the label name of an attribute key to `name`.
pub(super) fn label(key: &str, name: &mut String) {
    name.clear();
    name.push_str(key);
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !key.bytes().all(good) {
        name.clear();
        // Writes one underscore per character, even if it has several bytes.
        name.extend(key.chars().map(|c| if u8::try_from(c).is_ok_and(good) { c } else { '_' }));
    }
    match *name.as_bytes() {
        [b'0'..=b'9', ..] => name.insert_str(0, "key_"),
        [b'_', b'_', ..] => {}
        [b'_', ..] => name.insert_str(0, "key"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_names_end_in_their_unit_and_kind() {
        use Suffix::{Ratio, Total, Unit};
        let cases: &[(&str, &str, Suffix, &str, &str)] = &[
            // Characters.
            ("up", "", Unit, "up", ""),
            ("http.server.active_requests", "{request}", Unit, "http_server_active_requests", ""),
            ("(lambda).function.executions(#)", "", Unit, "lambda_function_executions", ""),
            ("__own__metric__", "", Unit, "own_metric", ""),
            ("a:b.c", "", Unit, "a:b_c", ""),
            ("größe", "", Unit, "gr_e", ""),
            ("5xx.responses", "", Total, "_5xx_responses_total", ""),
            // Units.
            ("system.filesystem.usage", "By", Unit, "system_filesystem_usage_bytes", "bytes"),
            ("http.client.duration", "ms", Unit, "http_client_duration_milliseconds", "milliseconds"),
            ("request_duration_seconds", "s", Unit, "request_duration_seconds", "seconds"),
            ("seconds.spent", "s", Unit, "seconds_spent", "seconds"),
            ("cache", "MiBy", Ratio, "cache_mebibytes", "mebibytes"),
            ("cache", "KBy", Ratio, "cache_kilobytes", "kilobytes"),
            ("disk", "TiBy", Ratio, "disk_tebibytes", "tebibytes"),
            ("temperature", "Cel", Ratio, "temperature_celsius", "celsius"),
            ("clock", "Hz", Ratio, "clock_hertz", "hertz"),
            ("load", "%", Ratio, "load_percent", "percent"),
            ("packets", "packets", Unit, "packets", "packets"),
            ("dropped", "packets", Unit, "dropped_packets", "packets"),
            ("dropped", " packets ", Unit, "dropped_packets", "packets"),
            ("dropped", "odd__unit__", Unit, "dropped_odd_unit_", "odd_unit_"),
            ("dropped", "__x", Unit, "dropped_x", "x"),
            ("weight", "k{g}", Unit, "weight", ""),
            // Per.
            ("throughput", "By/s", Ratio, "throughput_bytes_per_second", "bytes_per_second"),
            ("rate", "1/s", Ratio, "rate_per_second", "per_second"),
            ("rate", "{packet}/s", Ratio, "rate_per_second", "per_second"),
            ("rate", "By/{packet}", Ratio, "rate_bytes", "bytes"),
            ("speed", "m/m", Ratio, "speed_meters_per_minute", "meters_per_minute"),
            ("speed", "km/fortnight", Ratio, "speed_km_per_fortnight", "km_per_fortnight"),
            ("speed", "km_/h_", Ratio, "speed_km_per_h", "km_per_h"),
            ("speed", "m/s/s", Ratio, "speed_meters_per_s_s", "meters_per_s_s"),
            ("speed", "m/", Ratio, "speed_meters", "meters"),
            ("speed", "m/_", Ratio, "speed_meters", "meters"),
            ("bytes.per.second", "By/s", Ratio, "bytes_per_second_per_second", "bytes_per_second"),
            // Kinds.
            ("requests", "", Total, "requests_total", ""),
            ("requests", "1", Total, "requests_total", ""),
            ("requests_total", "", Total, "requests_total", ""),
            ("requests.total.count", "", Total, "requests_count_total", ""),
            ("total.total", "", Total, "total", ""),
            ("cpu.time", "s", Total, "cpu_time_seconds_total", "seconds"),
            ("cpu_total_time", "s", Total, "cpu_time_seconds_total", "seconds"),
            ("requests", "1/s", Total, "requests_per_second_total", "per_second"),
            ("memory.utilization", "1", Ratio, "memory_utilization_ratio", ""),
            ("hit_ratio_now", "1", Ratio, "hit_now_ratio", ""),
            ("connections", "1", Unit, "connections", ""),
        ];
        for (name, unit, suffix, expected, prometheus_unit) in cases {
            let found = metric(name, unit, *suffix);
            assert_eq!(
                found,
                Some(((*expected).to_owned(), (*prometheus_unit).to_owned())),
                "{name:?} in {unit:?}"
            );
        }
        for nothing in ["", "...", "@#$", "_", "äöü"] {
            assert_eq!(metric(nothing, "s", Total), None, "{nothing:?}");
        }
    }

    #[test]
    fn label_names_keep_underscores_and_escape_other_characters() {
        let cases = [
            ("method", "method"),
            ("http.request.method", "http_request_method"),
            ("label:with:colons", "label_with_colons"),
            ("two..dots", "two__dots"),
            ("trailing)", "trailing_"),
            ("1st", "key_1st"),
            ("_own", "key_own"),
            (".own", "key_own"),
            ("__own", "__own"),
            ("..own", "__own"),
            ("_.own", "__own"),
            ("größe", "gr__e"),
            ("", ""),
        ];
        let mut name = "left over".to_owned();
        for (key, expected) in cases {
            label(key, &mut name);
            assert_eq!(name, expected, "{key:?}");
        }
    }
}
