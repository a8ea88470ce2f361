//! The names of series in the legend, as `src/ui/assets/chart/columns.js` makes them.

use std::collections::BTreeSet;

use super::ChartSeries;
use super::text::clean;
use crate::model::{Labels, METRIC_NAME};

/// The most characters of a name, inclusive.
const NAME_CHARS_MAX: usize = 200;

/// Returns a name for each series: its template with the values of its labels, or the labels that
/// differ between the series. A label that all series share is no help in a legend.
pub(super) fn names(series: &[ChartSeries<'_>]) -> Vec<String> {
    let differing = differing(series);
    let name = |one: &ChartSeries<'_>| match one.legend {
        Some(template) => filled(template, one.labels),
        None => short(one.labels, &differing, series.len()),
    };
    series.iter().map(|one| clean(&name(one), NAME_CHARS_MAX)).collect()
}

/// Returns whether a result is drawn without a legend: it is one series without labels.
pub(super) fn is_nameless(series: &[ChartSeries<'_>]) -> bool {
    matches!(series, [one] if one.labels.is_empty())
}

/// Returns the names of the labels whose values differ, with the metric name first.
fn differing<'a>(series: &[ChartSeries<'a>]) -> Vec<&'a str> {
    let Some(first) = series.first() else { return Vec::new() };
    let all: BTreeSet<&str> =
        series.iter().flat_map(|one| one.labels.iter().map(|label| label.name)).collect();
    let differs = |name: &&str| {
        let value = first.labels.get(name);
        series.iter().any(|one| one.labels.get(name) != value)
    };
    let mut found: Vec<&str> = all.into_iter().filter(differs).collect();
    found.sort_by_key(|name| *name != METRIC_NAME);
    found
}

fn short(labels: &Labels, differing: &[&str], series: usize) -> String {
    let others = differing.iter().filter(|name| **name != METRIC_NAME).count();
    let mut parts = Vec::new();
    for name in differing {
        let Some(value) = labels.get(name) else { continue };
        match *name == METRIC_NAME || others == 1 {
            true => parts.push(brief(value).to_owned()),
            false => parts.push(format!("{name}={}", brief(value))),
        }
    }
    match parts.is_empty() {
        true if series == 1 && labels.is_empty() => "value".to_owned(),
        true => selector(labels),
        false => parts.join(" "),
    }
}

/// Returns the selector of exactly these labels: `up{job="api"}`.
fn selector(labels: &Labels) -> String {
    let pairs: Vec<String> = labels
        .iter()
        .filter(|label| label.name != METRIC_NAME)
        .map(|label| format!("{}={}", label.name, quoted(label.value)))
        .collect();
    let metric = labels.metric_name();
    match pairs.is_empty() && !metric.is_empty() {
        true => metric.to_owned(),
        false => format!("{metric}{{{}}}", pairs.join(", ")),
    }
}

/// Returns the part of a label value that a name shows: its beginning.
fn brief(value: &str) -> &str {
    value.char_indices().nth(NAME_CHARS_MAX).map_or(value, |(end, _)| &value[..end])
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", brief(value).replace('\\', "\\\\").replace('"', "\\\""))
}

/// Replaces each `{{label}}` by the beginning of its value; an absent label is empty. Other braces
/// stay.
fn filled(template: &str, labels: &Labels) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find("{{") {
        out.push_str(&rest[..at]);
        let name = rest[at + 2..].split_once("}}").map(|(name, after)| (name.trim(), after));
        let is_label = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        rest = match name.filter(|(name, _)| !name.is_empty() && name.chars().all(is_label)) {
            Some((name, after)) => {
                out.push_str(brief(labels.value(name)));
                after
            }
            None => {
                out.push('{');
                &rest[at + 1..]
            }
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(all: &[&[(&str, &str)]], legend: Option<&str>) -> Vec<String> {
        let labels: Vec<Labels> = all.iter().map(|pairs| Labels::from_pairs(pairs.iter().copied())).collect();
        let series: Vec<ChartSeries<'_>> = labels
            .iter()
            .map(|labels| ChartSeries { labels, samples: &[], has_histograms: false, legend })
            .collect();
        names(&series)
    }

    #[test]
    fn a_series_is_named_by_the_labels_that_differ() {
        assert_eq!(named(&[&[("job", "a")], &[("job", "b")]], None), ["a", "b"]);
        let both: &[&[(&str, &str)]] = &[&[("job", "a"), ("x", "1")], &[("job", "b"), ("x", "2")]];
        assert_eq!(named(both, None), ["job=a x=1", "job=b x=2"]);
        assert_eq!(named(&[&[("__name__", "up"), ("job", "a\"")]], None), ["up{job=\"a\\\"\"}"]);
        assert_eq!(named(&[&[("__name__", "up")], &[("__name__", "down")]], None), ["up", "down"]);
        assert_eq!(named(&[&[]], None), ["value"]);
        assert_eq!(named(&[&[("a", "1")], &[("b", "1")]], None), ["a=1", "b=1"]);
    }

    #[test]
    fn a_template_is_filled_once_and_labels_are_no_templates() {
        let labels: &[&[(&str, &str)]] = &[&[("job", "{{x}}"), ("x", "1")]];
        assert_eq!(named(labels, Some("{{ job }} of {{none}}!")), ["{{x}} of !"]);
        assert_eq!(named(labels, Some("{{a b}} {{{x}} }} {{")), ["{{a b}} {1 }} {{"]);
        let long = "y".repeat(1_000);
        let long: &[&[(&str, &str)]] = &[&[("x", &long)]];
        for template in [Some("{{x}}"), None] {
            assert_eq!(named(long, template)[0].chars().count(), NAME_CHARS_MAX);
        }
        let labels = Labels::from_pairs([("x", "é".repeat(1 << 20))]);
        assert!(filled(&"{{x}}".repeat(50), &labels).len() < 50 * 1_024, "values are cut first");
        assert!(selector(&labels).len() < 1_024);
    }
}
