//! Comparisons of expected and found alerts and samples, and promtool's messages about differences.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::decode::{ExpectedAlerts, ExpectedSample, ExpectedSamples};
use super::difference::alerts_difference;
use super::expression::{histogram_text, labels_text, number_text};
use super::series::{SeriesItem, parse};
use crate::model::{Labels, format_duration};
use crate::promql::{FloatHistogram, VectorSample};

/// An alert that fires, with labels and annotations that are not empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FiringAlert {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// The comparison of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberComparison {
    /// Equal; a NaN equals nothing.
    Exact,
    /// Equal, or neighbours.
    LastBit,
}

impl NumberComparison {
    fn is_same(self, left: f64, right: f64) -> bool {
        left == right
            || self == NumberComparison::LastBit && (left.next_down() == right || left.next_up() == right)
    }
}

/// A sample of a result or of an expectation.
#[derive(Clone, Debug)]
pub(super) struct FoundSample {
    labels: Labels,
    /// The number; 0 for a histogram.
    value: f64,
    /// The histogram as text; empty for a number.
    histogram: String,
}

impl From<VectorSample> for FoundSample {
    fn from(sample: VectorSample) -> FoundSample {
        match &sample.histogram {
            Some(histogram) => {
                FoundSample { labels: sample.labels, value: 0.0, histogram: histogram_text(histogram) }
            }
            None => FoundSample { labels: sample.labels, value: sample.value, histogram: String::new() },
        }
    }
}

impl FoundSample {
    fn expected(sample: &ExpectedSample) -> Result<FoundSample, String> {
        let labelled = |message: String| format!("labels {:?}: {message}", sample.labels);
        let labels = sample.parsed_labels().map_err(labelled)?;
        let mut histogram = String::new();
        if !sample.histogram.is_empty() {
            let line = parse(&format!("{{}} {}", sample.histogram)).map_err(labelled)?;
            let [item] = line.items.as_slice() else {
                return Err(labelled(format!("expected 1 value, got {}", line.items.len())));
            };
            let SeriesItem::Histogram(literal) = item else {
                return Err(labelled("expected histogram".into()));
            };
            histogram = histogram_text(&FloatHistogram::from(&literal.stored().map_err(labelled)?));
        }
        Ok(FoundSample { labels, value: sample.value, histogram })
    }

    fn is_same(&self, other: &FoundSample, comparison: NumberComparison) -> bool {
        self.labels == other.labels
            && self.histogram == other.histogram
            && comparison.is_same(self.value, other.value)
    }

    fn text(&self) -> String {
        let labels = labels_text(self.labels.iter().map(|label| (label.name, label.value)));
        let value = if self.histogram.is_empty() { number_text(self.value) } else { self.histogram.clone() };
        format!("{labels} {value}")
    }
}

/// Returns the message about alerts that are not the expected ones, with both lists or, if
/// `as_difference`, with their difference.
pub(super) fn alert_failure(
    test: &str,
    expected: &ExpectedAlerts,
    mut found: Vec<FiringAlert>,
    as_difference: bool,
) -> Option<String> {
    let wanted = expected
        .alerts
        .iter()
        .map(|alert| FiringAlert { labels: alert.labels.clone(), annotations: alert.annotations.clone() });
    let mut wanted: Vec<FiringAlert> = wanted.collect();
    wanted.sort_by(compare_alerts);
    found.sort_by(compare_alerts);
    if wanted == found {
        return None;
    }
    let name = if test.is_empty() { String::new() } else { format!("    name: {test},\n") };
    let time = format_duration(expected.eval_time_ms);
    let indent = "            ";
    let alert = &expected.alertname;
    if as_difference {
        let difference = indented(&alerts_difference(&wanted, &found), indent);
        return Some(format!("{name}    alertname: {alert}, time: {time}, \n        diff: {difference}"));
    }
    let [wanted, found] = [wanted, found].map(|alerts| indented(&alerts_text(&alerts), indent));
    Some(format!("{name}    alertname: {alert}, time: {time}, \n        exp:{wanted}, \n        got:{found}"))
}

/// Compares by labels, then by annotations, label by label.
fn compare_alerts(left: &FiringAlert, right: &FiringAlert) -> Ordering {
    left.labels.cmp(&right.labels).then_with(|| left.annotations.cmp(&right.annotations))
}

fn alerts_text(alerts: &[FiringAlert]) -> String {
    if alerts.is_empty() {
        return "[]".into();
    }
    let pairs = |map: &BTreeMap<String, String>| {
        labels_text(map.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    };
    let texts: Vec<String> = alerts
        .iter()
        .enumerate()
        .map(|(at, alert)| {
            let (labels, annotations) = (pairs(&alert.labels), pairs(&alert.annotations));
            let text = format!("\nLabels:{labels}\nAnnotations:{annotations}");
            format!("\n{at}:{}", indented(&text, "  "))
        })
        .collect();
    format!("[{}\n]", texts.join(","))
}

/// Indents all lines but the first one.
fn indented(text: &str, indent: &str) -> String {
    text.replace('\n', &format!("\n{indent}"))
}

/// Returns the message about samples that are not the expected ones.
pub(super) fn sample_failure(
    place: &str,
    expected: &ExpectedSamples,
    mut found: Vec<FoundSample>,
    comparison: NumberComparison,
) -> Option<String> {
    let wanted: Result<Vec<FoundSample>, String> =
        expected.samples.iter().map(FoundSample::expected).collect();
    let mut wanted = match wanted {
        Ok(wanted) => wanted,
        Err(message) => return Some(format!("{place}, err: {message}")),
    };
    wanted.sort_by(|a, b| a.labels.cmp(&b.labels));
    found.sort_by(|a, b| a.labels.cmp(&b.labels));
    let same = wanted.len() == found.len()
        && wanted.iter().zip(&found).all(|(wanted, found)| wanted.is_same(found, comparison));
    let text = |samples: &[FoundSample]| {
        let texts: Vec<String> = samples.iter().map(FoundSample::text).collect();
        if texts.is_empty() { "nil".to_owned() } else { texts.join(", ") }
    };
    let (wanted, found) = (text(&wanted), text(&found));
    (!same).then(|| format!("{place},\n        exp: {wanted}\n        got: {found}"))
}
