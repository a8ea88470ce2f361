//! The metrics of one push, read from the Prometheus text format, and written in it again for the
//! stored row.

use std::collections::{BTreeMap, BTreeSet};

use super::grouping::GroupingLabels;
use crate::ingest::text::{self, Format};
use crate::ingest::{DecodeError, DecodeLimits};
use crate::model::{BatchBuilder, METRIC_NAME, MetricKind, Sample, Timestamp, families_of, stale_nan};

/// The reason why a body is refused. Nothing of it is stored.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PushBodyError {
    /// The body exceeds a limit, or is not text.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A line is invalid.
    #[error("{0}; nothing of this push is stored")]
    Line(String),
    /// A sample has a time.
    #[error("a pushed sample has no timestamp, because it is valid from now on; {0} has one")]
    Timestamp(String),
    /// A series occurs twice.
    #[error("the series {0} occurs twice")]
    Twice(String),
}

/// The labels of a series without those of the group, in order of their names. The metric name is
/// not among them.
type SeriesLabels = Vec<(String, String)>;

/// A family of metrics.
#[derive(Clone, Debug, Default, PartialEq)]
struct PushedFamily {
    kind: Option<MetricKind>,
    help: String,
    unit: String,
    /// The values by metric name and labels.
    series: BTreeMap<(String, SeriesLabels), f64>,
}

/// The metrics of a group, by family.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exposition {
    families: BTreeMap<String, PushedFamily>,
}

/// The time of samples without one while a body is read. No body can state it.
const NO_TIME: Timestamp = Timestamp::MIN;

impl Exposition {
    /// Reads a decompressed body. Labels of the group replace those of the body. An empty body has
    /// no metrics.
    ///
    /// # Errors
    /// [`PushBodyError`].
    pub fn read(
        body: &[u8],
        format: Format,
        labels: &GroupingLabels,
        limits: &DecodeLimits,
    ) -> Result<Exposition, PushBodyError> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Exposition::default());
        }
        let read = text::decode(body, format, NO_TIME, limits)?;
        if let Some(first) = read.refusals.first() {
            return Err(PushBodyError::Line(first.reason.clone()));
        }
        let batch = read.batch.batch();
        let mut found = Exposition::default();
        for metric in &batch.metadata {
            let family = PushedFamily {
                kind: Some(metric.kind),
                help: metric.help.to_owned(),
                unit: metric.unit.to_owned(),
                series: BTreeMap::new(),
            };
            found.families.insert(metric.name.to_owned(), family);
        }
        let mut pairs = Vec::new();
        for series in &batch.series {
            pairs.clear();
            (batch.parse_labels)(series.raw_labels, &mut pairs)
                .map_err(|reason| PushBodyError::Line(reason.to_owned()))?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let mut name = String::new();
            let mut own = SeriesLabels::new();
            for (label, value) in pairs.iter().map(|(label, value)| (text(label), text(value))) {
                match label.as_str() {
                    METRIC_NAME => name = value,
                    _ if labels.has(&label) || value.is_empty() => {}
                    _ => own.push((label, value)),
                }
            }
            own.sort();
            let samples = batch.samples.get(series.samples.clone()).unwrap_or_default();
            match samples {
                [sample] if sample.at == NO_TIME => found.insert(name, own, sample.value)?,
                [_] => return Err(PushBodyError::Timestamp(shown(&name, &own))),
                _ => return Err(PushBodyError::Twice(shown(&name, &own))),
            }
        }
        Ok(found)
    }

    fn insert(&mut self, name: String, labels: SeriesLabels, value: f64) -> Result<(), PushBodyError> {
        let is_described = |family: &&str| self.families.contains_key(*family);
        let family = families_of(&name).find(is_described).unwrap_or(&name).to_owned();
        let shown = shown(&name, &labels);
        let family = self.families.entry(family).or_default();
        match family.series.insert((name, labels), value) {
            None => Ok(()),
            Some(_) => Err(PushBodyError::Twice(shown)),
        }
    }

    /// Replaces the families of `other` that this has, and keeps its others.
    #[must_use]
    pub fn merged(mut self, other: Exposition) -> Exposition {
        self.families.extend(other.families);
        self
    }

    /// Returns the number of series.
    pub fn series_len(&self) -> usize {
        self.families.values().map(|family| family.series.len()).sum()
    }

    /// Adds the values of all series at one time to a batch. The labels of the group are forced
    /// labels of the batch.
    pub fn write(&self, at: Timestamp, describes: bool, batch: &mut BatchBuilder) {
        for (name, family) in &self.families {
            for ((name, labels), value) in &family.series {
                batch.series_of(with_name(name, labels), [Sample { at, value: *value }]);
            }
            if let Some(kind) = family.kind.filter(|_| describes) {
                batch.describe(name, kind, &family.help, &family.unit);
            }
        }
    }

    /// Adds a staleness marker for each series that `kept` does not have.
    pub fn write_stale(&self, kept: &Exposition, at: Timestamp, batch: &mut BatchBuilder) {
        let kept: BTreeSet<_> = kept.families.values().flat_map(|family| family.series.keys()).collect();
        let gone = self.families.values().flat_map(|family| family.series.keys());
        for key in gone.filter(|key| !kept.contains(key)) {
            batch.series_of(with_name(&key.0, &key.1), [Sample { at, value: stale_nan() }]);
        }
    }

    /// Returns the metrics in the text format with quoted names, which [`Exposition::of_stored`]
    /// reads.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for (name, family) in &self.families {
            if let Some(kind) = family.kind {
                let quoted = quoted(name);
                if !family.help.is_empty() {
                    let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
                    out.push_str(&format!("# HELP {quoted} {help}\n"));
                }
                if !family.unit.is_empty() {
                    out.push_str(&format!("# UNIT {quoted} {}\n", family.unit));
                }
                out.push_str(&format!("# TYPE {quoted} {}\n", kind.as_str()));
            }
            for ((name, labels), value) in &family.series {
                out.push('{');
                out.push_str(&quoted(name));
                for (label, value) in labels {
                    out.push_str(&format!(",{}={}", quoted(label), quoted(value)));
                }
                out.push_str(&format!("}} {}\n", float(*value)));
            }
        }
        out
    }

    /// Reads what [`Exposition::to_text`] wrote.
    ///
    /// # Errors
    /// [`PushBodyError`], if the text is damaged, or if there is too little memory.
    pub(super) fn of_stored(text: &[u8], labels: &GroupingLabels) -> Result<Exposition, PushBodyError> {
        // Merged pushes have more metrics than one body may have. The bytes of the text bound them.
        let most = text.len();
        let limits = DecodeLimits {
            series_max: most,
            samples_max: most,
            metadata_max: most,
            ..DecodeLimits::default()
        };
        Exposition::read(text, Format::Prometheus, labels, &limits)
    }

    /// Returns all series, by family.
    pub fn series(&self) -> impl Iterator<Item = PushedSeries<'_>> {
        self.families.values().flat_map(|family| {
            let kind = family.kind.unwrap_or(MetricKind::Unknown);
            let series = family.series.iter();
            series.map(move |((name, labels), value)| PushedSeries {
                name,
                labels,
                value: *value,
                kind,
                help: &family.help,
            })
        })
    }
}

/// A series of an [`Exposition`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PushedSeries<'e> {
    /// The metric name.
    pub name: &'e str,
    /// The labels without those of the group, in order of their names.
    pub labels: &'e [(String, String)],
    /// The value.
    pub value: f64,
    /// The type of the family.
    pub kind: MetricKind,
    /// The help text of the family.
    pub help: &'e str,
}

fn with_name<'s>(name: &'s str, labels: &'s [(String, String)]) -> impl Iterator<Item = (&'s str, &'s str)> {
    let own = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    [(METRIC_NAME, name)].into_iter().chain(own)
}

fn shown(name: &str, labels: &[(String, String)]) -> String {
    crate::model::Refusal::series_text(with_name(name, labels))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// Formats a value so that the text format reads the same one.
fn float(value: f64) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => format!("{value:?}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn group() -> GroupingLabels {
        GroupingLabels::parse("job/batch/instance/a").expect("valid")
    }

    fn read(body: &str) -> Result<Exposition, PushBodyError> {
        Exposition::read(body.as_bytes(), Format::Prometheus, &group(), &DecodeLimits::default())
    }

    const HISTOGRAM: &str = "# HELP h A \"text\".\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n";

    #[test]
    fn labels_of_the_group_replace_those_of_the_body() {
        let found = read("m{job=\"x\",instance=\"y\",a=\"b\"} 1\n").expect("valid");
        assert_eq!(found, read("m{a=\"b\"} 1\n").expect("valid"));
    }

    #[test]
    fn a_body_with_times_duplicates_or_invalid_lines_is_refused_as_a_whole() {
        assert!(matches!(read("m 1 1000\n"), Err(PushBodyError::Timestamp(_))));
        assert!(matches!(read("m 1\nn 1\nm 2\n"), Err(PushBodyError::Twice(_))));
        assert!(matches!(read("m 1\nm 2\n"), Err(PushBodyError::Twice(_))));
        assert!(matches!(read("m{job=\"x\"} 1\nn 1\nm{job=\"y\"} 2\n"), Err(PushBodyError::Twice(_))));
        assert!(matches!(read("m 1\nnonsense\n"), Err(PushBodyError::Line(_))));
        assert_eq!(read("\n"), Ok(Exposition::default()));
    }

    #[test]
    fn a_histogram_is_one_family_and_is_replaced_as_a_whole() {
        let before = read(&format!("{HISTOGRAM}m 1\n")).expect("valid");
        assert_eq!(before.series_len(), 5);
        let after = before.merged(read("# TYPE h histogram\nh_sum 1\n").expect("valid"));
        assert_eq!(after.series_len(), 2, "the buckets are gone, m is kept");
    }

    #[test]
    fn series_that_are_gone_get_a_staleness_marker() {
        let before = read("a 1\nb{x=\"1\"} 1\nb{x=\"2\"} 1\n").expect("valid");
        let after = read("b{x=\"1\"} 2\n").expect("valid");
        let mut batch = BatchBuilder::default();
        before.write_stale(&after, Timestamp::from_s(1), &mut batch);
        assert_eq!(batch.len(), 2);
        assert!(batch.batch().samples.iter().all(|sample| crate::model::is_stale(sample.value)));
    }

    proptest! {
        #[test]
        fn a_stored_text_reads_back_the_same(
            series in prop::collection::btree_map(("[a-z.]{1,4}", "[a-c]", "\\PC{0,6}|[\"\\\\\n]{0,3}"), any::<f64>(), 0..6),
            help in "\\PC{0,8}|[\\\\\n]{0,3}",
        ) {
            let mut found = Exposition::default();
            for ((name, label, value), number) in series {
                let number = if number.is_nan() { f64::INFINITY } else { number };
                let labels = if value.is_empty() { Vec::new() } else { vec![(label, value)] };
                let _ = found.insert(name, labels, number);
            }
            if let Some(family) = found.families.values_mut().next() {
                family.kind = Some(MetricKind::Gauge);
                family.help = help.trim_ascii_start().to_owned();
            }
            let text = found.to_text();
            let back = Exposition::of_stored(text.as_bytes(), &group());
            prop_assert_eq!(back, Ok(found), "{}", text);
        }

        #[test]
        fn no_body_panics(body in "[a-z{}=\",0-9\n# ]{0,80}|\\PC{0,40}") {
            let _ = read(&body);
        }
    }
}
