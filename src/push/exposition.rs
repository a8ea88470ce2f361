//! The metrics of one push, read from the Prometheus text format or from protobuf messages, and
//! written as text for the stored row.

use std::collections::{BTreeMap, BTreeSet};

use super::grouping::GroupingLabels;
use crate::ingest::exposition::{self, ExpositionOptions, FloatLabels};
use crate::ingest::text::{self, Format};
use crate::ingest::{DecodeError, DecodeLimits, LABELS_PARSED_MAX, Translated};
use crate::model::{
    BatchBuilder, METRIC_NAME, MetricKind, MetricMetadata, Sample, Timestamp, WriteBatch, families_of,
    stale_nan,
};

/// The format of a pushed body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushFormat {
    /// A text format.
    Text(Format),
    /// Delimited protobuf messages, as Go's client sends them.
    Protobuf,
}

impl PushFormat {
    /// Returns the format that a `Content-Type` (empty if absent) names; `None` if it names
    /// anything else. See [`Format::of`] for `body`.
    pub fn of(content_type: &str, body: &[u8]) -> Option<PushFormat> {
        match exposition::is_media_type(content_type) {
            true => Some(PushFormat::Protobuf),
            false => Format::of(content_type, body).map(PushFormat::Text),
        }
    }
}

/// The reason why a body is refused. No part of the body is stored.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PushBodyError {
    /// The body exceeds a limit, or is not in its format.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A line or a metric is invalid.
    #[error("{0}; nothing of this push is stored")]
    Invalid(String),
    /// A sample has a time.
    #[error("a pushed sample must have no timestamp, because it is valid from now on; {0} has one")]
    Timestamp(String),
    /// A series occurs twice.
    #[error("the series {0} occurs twice")]
    Twice(String),
    /// Two messages describe one family.
    #[error("the metric family {0} occurs twice; nothing of this push is stored")]
    FamilyTwice(String),
    /// A metric is a native histogram.
    #[error(
        "{0} is a native histogram; groups of pushes have classic histograms only, so create it with \
         classic buckets and without NativeHistogramBucketFactor"
    )]
    Native(String),
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
        format: PushFormat,
        labels: &GroupingLabels,
        limits: &DecodeLimits,
    ) -> Result<Exposition, PushBodyError> {
        match format {
            PushFormat::Text(format) => Exposition::read_text(body, format, labels, limits),
            PushFormat::Protobuf => Exposition::read_protobuf(body, labels, limits),
        }
    }

    fn read_text(
        body: &[u8],
        format: Format,
        labels: &GroupingLabels,
        limits: &DecodeLimits,
    ) -> Result<Exposition, PushBodyError> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Exposition::default());
        }
        let read = text::decode(body, format, NO_TIME, limits)?;
        match read.refusals.first() {
            Some(first) => Err(PushBodyError::Invalid(first.reason.clone())),
            None => Exposition::of_batch(&read.batch.batch(), labels),
        }
    }

    /// Reads the metrics that the text format of the same client would have. It has no exemplars,
    /// no start timestamps and no native histograms; the last ones are errors.
    fn read_protobuf(
        body: &[u8],
        labels: &GroupingLabels,
        limits: &DecodeLimits,
    ) -> Result<Exposition, PushBodyError> {
        if body.is_empty() {
            return Ok(Exposition::default());
        }
        let float_labels = FloatLabels::Text;
        let options = ExpositionOptions { default_at: NO_TIME, classic: false, float_labels };
        let Translated { batch, refusals, .. } = exposition::decode(body, options, limits)?;
        if let Some(first) = refusals.first() {
            let reason = match first.series.as_str() {
                "" => first.reason.clone(),
                series => format!("{}: {series}", first.reason),
            };
            return Err(PushBodyError::Invalid(reason));
        }
        Exposition::of_batch(&batch.batch(), labels)
    }

    fn of_batch(batch: &WriteBatch<'_>, labels: &GroupingLabels) -> Result<Exposition, PushBodyError> {
        let mut found = Exposition::default();
        for metric in &batch.metadata {
            found.describe(metric)?;
        }
        let mut pairs = Vec::new();
        for series in &batch.series {
            pairs.clear();
            (batch.parse_labels)(series.raw_labels, &mut pairs)
                .map_err(|reason| PushBodyError::Invalid(reason.to_owned()))?;
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
            check_labels(&name, &own)?;
            let samples = batch.samples.get(series.samples.clone()).unwrap_or_default();
            match samples {
                [sample] if sample.at == NO_TIME => found.insert(name, own, sample.value)?,
                [_] => return Err(PushBodyError::Timestamp(shown(&name, &own))),
                // Only a native histogram is a series without a sample.
                [] => return Err(PushBodyError::Native(shown(&name, &own))),
                _ => return Err(PushBodyError::Twice(shown(&name, &own))),
            }
        }
        Ok(found)
    }

    /// Adds a family. A unit with a line end could not be stored as text.
    fn describe(&mut self, metric: &MetricMetadata<'_>) -> Result<(), PushBodyError> {
        if metric.unit.contains(['\n', '\r']) {
            let reason = format!("the unit of the metric family {:?} has a line end", metric.name);
            return Err(PushBodyError::Invalid(reason));
        }
        let family = PushedFamily {
            kind: Some(metric.kind),
            help: metric.help.trim_start_matches([' ', '\t']).to_owned(),
            unit: metric.unit.trim_ascii().to_owned(),
            series: BTreeMap::new(),
        };
        match self.families.insert(metric.name.to_owned(), family) {
            None => Ok(()),
            Some(_) => Err(PushBodyError::FamilyTwice(metric.name.to_owned())),
        }
    }

    fn insert(&mut self, name: String, labels: SeriesLabels, value: f64) -> Result<(), PushBodyError> {
        let is_described = |family: &&str| self.families.contains_key(*family);
        let family = families_of(&name).find(is_described).unwrap_or(&name).to_owned();
        let shown = shown(&name, &labels);
        // The text format knows one NaN, so that no body contains a staleness marker.
        let value = if value.is_nan() { f64::NAN } else { value };
        let family = self.families.entry(family).or_default();
        match family.series.insert((name, labels), value) {
            None => Ok(()),
            Some(_) => Err(PushBodyError::Twice(shown)),
        }
    }

    /// Replaces the families of `other` that `self` has, and keeps the other families of `other`.
    #[must_use]
    pub fn merged(mut self, other: Exposition) -> Exposition {
        self.families.extend(other.families);
        self
    }

    /// Removes the series with these metric names, and families that have no series then.
    #[must_use]
    pub fn without(mut self, names: &[&str]) -> Exposition {
        self.families.retain(|_, family| {
            let before = family.series.len();
            family.series.retain(|(name, _), _| !names.contains(&name.as_str()));
            family.series.len() == before || !family.series.is_empty()
        });
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

    /// Reads the text of [`Exposition::to_text`].
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
        Exposition::read_text(text, Format::Prometheus, labels, &limits)
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

/// Refuses messages that the text format cannot express: labels of the same name, and more of them
/// than a line may have.
fn check_labels(name: &str, labels: &[(String, String)]) -> Result<(), PushBodyError> {
    let twice = labels.iter().zip(labels.iter().skip(1)).find(|((one, _), (next, _))| one == next);
    if let Some(((label, _), _)) = twice {
        let reason = format!("the label {label:?} occurs twice: {}", shown(name, labels));
        return Err(PushBodyError::Invalid(reason));
    }
    if labels.len() >= LABELS_PARSED_MAX {
        let reason = format!("the series has {} labels or more: {}", LABELS_PARSED_MAX, shown(name, labels));
        return Err(PushBodyError::Invalid(reason));
    }
    Ok(())
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
mod tests;
