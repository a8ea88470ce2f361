//! Families of metrics in text formats: their names, types and samples, and the order of series.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::ExportFormat;
use crate::model::{Labels, METRIC_NAME, MetricKind, MetricMetadata};

/// The suffixes that senders append to the name of a family, and the kinds that have each.
const SUFFIXES: [(&str, &[MetricKind]); 9] = [
    ("", &[MetricKind::Unknown, MetricKind::Counter, MetricKind::Gauge, MetricKind::Summary]),
    ("", &[MetricKind::Info, MetricKind::StateSet]),
    ("_bucket", &[MetricKind::Histogram, MetricKind::GaugeHistogram]),
    ("_count", &[MetricKind::Histogram, MetricKind::Summary, MetricKind::GaugeHistogram]),
    ("_sum", &[MetricKind::Histogram, MetricKind::Summary, MetricKind::GaugeHistogram]),
    ("_total", &[MetricKind::Counter]),
    ("_info", &[MetricKind::Info]),
    ("_gcount", &[MetricKind::GaugeHistogram]),
    ("_gsum", &[MetricKind::GaugeHistogram]),
];

/// Returns the description of the family of a series, of those that `find` returns by name. A
/// family whose kind has no such series is not that of the series.
pub(super) fn description_of<'m>(
    labels: &Labels,
    find: impl Fn(&str) -> Option<MetricMetadata<'m>>,
) -> Option<MetricMetadata<'m>> {
    SUFFIXES.iter().find_map(|(suffix, kinds)| {
        let name = labels.metric_name().strip_suffix(suffix)?;
        find(name).filter(|found| kinds.contains(&found.kind))
    })
}

/// Returns the name and the type of the family of a series as a format has them.
///
/// OpenMetrics has samples `a_total` of a counter `a`, and `a_info` of an info `a`. The text format
/// has suffixes only for histograms and summaries; each other name is a family of its own.
pub(super) fn family_of<'n>(
    format: ExportFormat,
    series_name: &'n str,
    metadata: &MetricMetadata<'n>,
) -> (Cow<'n, str>, &'static str) {
    let kind = metadata.kind;
    if format != ExportFormat::OpenMetrics {
        return match kind {
            MetricKind::Histogram | MetricKind::Summary => (metadata.name.into(), kind.as_str()),
            MetricKind::Counter | MetricKind::Gauge => (series_name.into(), kind.as_str()),
            _ => (series_name.into(), "untyped"),
        };
    }
    let without = |suffix: &str| series_name.strip_suffix(suffix).filter(|name| !name.is_empty());
    match kind {
        MetricKind::Counter | MetricKind::Info => {
            let suffix = if kind == MetricKind::Counter { "_total" } else { "_info" };
            // OpenMetrics has no such kind for a series without the suffix.
            without(suffix).map_or((series_name.into(), MetricKind::Unknown.as_str()), |name| {
                (name.into(), kind.as_str())
            })
        }
        MetricKind::GaugeHistogram if without("_count").is_some() || without("_sum").is_some() => {
            (series_name.into(), MetricKind::Unknown.as_str())
        }
        _ => (metadata.name.into(), kind.as_str()),
    }
}

/// Returns the places of series in the order in which a text has them: by family, then the series
/// of one histogram or summary together, their buckets and quantiles by number.
pub(super) fn text_order<'m>(
    labels: &[Labels],
    format: ExportFormat,
    find: impl Fn(&str) -> Option<MetricMetadata<'m>>,
) -> Vec<usize> {
    let mut families: HashMap<&str, Arc<str>> = HashMap::new();
    let mut keyed: Vec<(Arc<str>, usize, &Labels)> = Vec::with_capacity(labels.len());
    for (place, one) in labels.iter().enumerate() {
        let family = families.entry(one.metric_name()).or_insert_with(|| {
            let metadata = description_of(one, &find);
            let family = metadata.as_ref().map(|metadata| family_of(format, one.metric_name(), metadata).0);
            family.map_or_else(|| Arc::from(one.metric_name()), |name| Arc::from(&*name))
        });
        keyed.push((Arc::clone(family), place, one));
    }
    keyed.sort_by(|(family, _, a), (other, _, b)| family.cmp(other).then_with(|| compare_in_family(a, b)));
    keyed.into_iter().map(|(_, place, _)| place).collect()
}

/// The labels whose values are numbers and tell the series of one metric apart.
const NUMBERS: [&str; 2] = ["le", "quantile"];

fn compare_in_family(a: &Labels, b: &Labels) -> Ordering {
    let names = || a.metric_name().cmp(b.metric_name());
    let numbers = || {
        let pairs = NUMBERS.map(|name| compare_numbers(a.value(name), b.value(name)));
        pairs.into_iter().fold(Ordering::Equal, Ordering::then)
    };
    labels_of_metric(a).cmp(labels_of_metric(b)).then_with(names).then_with(numbers)
}

fn labels_of_metric(labels: &Labels) -> impl Iterator<Item = (&str, &str)> {
    let is_of_metric = |name: &str| name != METRIC_NAME && !NUMBERS.contains(&name);
    let own = labels.iter().filter(move |label| is_of_metric(label.name));
    own.map(|label| (label.name, label.value))
}

fn compare_numbers(a: &str, b: &str) -> Ordering {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(first), Ok(second)) => first.total_cmp(&second).then_with(|| a.cmp(b)),
        _ => a.cmp(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(
        format: ExportFormat,
        series: &str,
        name: &str,
        kind: MetricKind,
    ) -> Option<(String, String)> {
        let metadata = MetricMetadata { name, kind, help: "", unit: "" };
        let labels = Labels::from_pairs([(METRIC_NAME, series)]);
        let found = description_of(&labels, |asked| (asked == name).then_some(metadata))?;
        let (family, kind) = family_of(format, series, &found);
        Some((family.into_owned(), kind.to_owned()))
    }

    #[test]
    fn each_format_has_its_own_families_and_types() {
        use ExportFormat::{OpenMetrics, Prometheus};
        for (series, name, kind, open, text) in [
            ("a_total", "a_total", MetricKind::Counter, "a counter", "a_total counter"),
            ("a_total", "a", MetricKind::Counter, "a counter", "a_total counter"),
            ("a", "a", MetricKind::Counter, "a unknown", "a counter"),
            ("a_info", "a_info", MetricKind::Info, "a info", "a_info untyped"),
            ("a_info", "a", MetricKind::Info, "a info", "a_info untyped"),
            ("a", "a", MetricKind::StateSet, "a stateset", "a untyped"),
            ("a_bucket", "a", MetricKind::GaugeHistogram, "a gaugehistogram", "a_bucket untyped"),
            ("a_gsum", "a", MetricKind::GaugeHistogram, "a gaugehistogram", "a_gsum untyped"),
            ("a_bucket", "a", MetricKind::Histogram, "a histogram", "a histogram"),
            ("a_sum", "a", MetricKind::Summary, "a summary", "a summary"),
            ("a", "a", MetricKind::Summary, "a summary", "a summary"),
            ("a_count", "a_count", MetricKind::Gauge, "a_count gauge", "a_count gauge"),
            ("a", "a", MetricKind::Unknown, "a unknown", "a untyped"),
        ] {
            for (format, expected) in [(OpenMetrics, open), (Prometheus, text)] {
                let found = described(format, series, name, kind);
                let found = found.map(|(family, kind)| format!("{family} {kind}"));
                assert_eq!(found.as_deref(), Some(expected), "{series} {kind:?} {format:?}");
            }
        }
        assert_eq!(described(OpenMetrics, "a_total", "a", MetricKind::Gauge), None, "another metric");
        assert_eq!(described(OpenMetrics, "a", "a", MetricKind::Histogram), None, "a native histogram");
    }

    #[test]
    fn the_series_of_a_histogram_are_together_and_its_buckets_ascend() {
        let series = |name: &str, le: &str, job: &str| {
            let pairs = [(METRIC_NAME, name), ("job", job), ("le", le)];
            Labels::from_pairs(pairs.into_iter().filter(|(_, value)| !value.is_empty()))
        };
        let labels = [
            series("a_b", "", ""),
            series("a_bucket", "+Inf", "x"),
            series("a_bucket", "+Inf", "y"),
            series("a_bucket", "10", "x"),
            series("a_bucket", "2.5", "x"),
            series("a_c", "", ""),
            series("a_count", "", "x"),
            series("a_sum", "", "y"),
        ];
        let metadata = MetricMetadata { name: "a", kind: MetricKind::Histogram, help: "", unit: "" };
        let find = |name: &str| (name == "a").then_some(metadata);
        let order = text_order(&labels, ExportFormat::OpenMetrics, find);
        assert_eq!(order, [4, 3, 1, 6, 2, 7, 0, 5]);
    }
}
