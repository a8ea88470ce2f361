//! Texts of labels, numbers and histograms as promtool writes them.

use std::fmt::Write as _;

use crate::model::{CUSTOM_BUCKETS_SCHEMA, CounterReset};
use crate::promql::FloatHistogram;
use crate::rules::template::{go_exponent, go_quote, go_shortest};

/// Returns a label set: `{__name__="up", job="api"}`.
pub(super) fn labels_text<'l>(labels: impl IntoIterator<Item = (&'l str, &'l str)>) -> String {
    let mut out = String::from("{");
    for (index, (name, value)) in labels.into_iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        let plain = name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
            && !name.starts_with(|c: char| c.is_ascii_digit());
        let name = if plain { name.to_owned() } else { go_quote(name) };
        let _ = write!(out, "{name}={}", go_quote(value));
    }
    out.push('}');
    out
}

/// Returns a number with its exponent: `1.5E+00`.
pub(super) fn number_text(value: f64) -> String {
    go_exponent(value).replace('e', "E")
}

/// Returns a histogram in the notation of series descriptions. Empty buckets at both ends are left
/// out.
pub(super) fn histogram_text(histogram: &FloatHistogram) -> String {
    let mut parts: Vec<String> = Vec::new();
    if histogram.schema() != 0 {
        parts.push(format!("schema:{}", histogram.schema()));
    }
    for (key, value) in [
        ("count", histogram.count()),
        ("sum", histogram.sum()),
        ("z_bucket", histogram.zero_count()),
        ("z_bucket_w", histogram.zero_threshold()),
    ] {
        if value != 0.0 {
            parts.push(format!("{key}:{}", go_shortest(value)));
        }
    }
    if histogram.schema() == CUSTOM_BUCKETS_SCHEMA {
        parts.push(format!("custom_values:{}", list(histogram.custom_values())));
    }
    match histogram.reset() {
        CounterReset::Unknown => {}
        CounterReset::Reset => parts.push("counter_reset_hint:reset".into()),
        CounterReset::NotReset => parts.push("counter_reset_hint:not_reset".into()),
        CounterReset::Gauge => parts.push("counter_reset_hint:gauge".into()),
    }
    buckets(&mut parts, histogram.positive().collect(), ["offset", "buckets"]);
    buckets(&mut parts, histogram.negative().collect(), ["n_offset", "n_buckets"]);
    format!("{{{{{}}}}}", parts.join(" "))
}

fn buckets(parts: &mut Vec<String>, mut buckets: Vec<(i32, f64)>, keys: [&str; 2]) {
    /// The most empty buckets between two others that are written.
    const GAP_MAX: i32 = 10_000;
    buckets.retain(|(_, count)| *count != 0.0);
    let Some((first, _)) = buckets.first().copied() else { return };
    let mut counts: Vec<f64> = Vec::with_capacity(buckets.len());
    let mut next = first;
    for (index, count) in buckets {
        let gap = index.saturating_sub(next).min(GAP_MAX);
        counts.extend(std::iter::repeat_n(0.0, usize::try_from(gap).unwrap_or_default()));
        counts.push(count);
        next = index.saturating_add(1);
    }
    let [offset, list_key] = keys;
    if first != 0 {
        parts.push(format!("{offset}:{first}"));
    }
    parts.push(format!("{list_key}:{}", list(&counts)));
}

fn list(values: &[f64]) -> String {
    let texts: Vec<String> = values.iter().map(|value| go_shortest(*value)).collect();
    format!("[{}]", texts.join(" "))
}
