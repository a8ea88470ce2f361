//! Decoder of Prometheus' protobuf exposition: `application/vnd.google.protobuf;
//! proto=io.prometheus.client.MetricFamily; encoding=delimited`.
//!
//! A body is a sequence of `MetricFamily` messages, each after its length as a varint. Fields that
//! are read, by message:
//! * `MetricFamily`: 1 name, 2 help, 3 type (enum), 4 `Metric`, 5 unit
//! * `Metric`: 1 `LabelPair` (1 name, 2 value), 2 `Gauge`, 3 `Counter`, 4 `Summary`, 5 `Untyped`,
//!   6 time (int64, milliseconds), 7 `Histogram`
//! * `Gauge`, `Untyped`: 1 value (double)
//! * `Counter`: 1 value (double), 2 `Exemplar`, 3 created `Timestamp`
//! * `Summary`: 1 count (uint64), 2 sum (double), 3 `Quantile` (1 quantile, 2 value), 4 created
//!   `Timestamp`
//! * `Histogram`: see [`mod@histogram`]
//! * `Exemplar`: 1 `LabelPair`, 2 value (double), 3 `Timestamp` (1 seconds, 2 nanoseconds)
//!
//! Source: `io/prometheus/client/metrics.proto` of Prometheus' client model. The message has no
//! field for custom bounds, so native histograms have exponential schemas only.
//!
//! A histogram becomes a native one if it has spans, a zero threshold or observations in its zero
//! bucket, as in Prometheus. Its classic buckets are added if [`ExpositionOptions::classic`] is set
//! or if it is not a native histogram. A metric without the value of its family's type is refused
//! alone.

mod float;
mod histogram;

pub use float::{FloatLabels, normalized_float};

use super::histogram::check_count;
use super::pairs::LABELS_PARSED_MAX;
use super::protobuf::{WireError, WireReader, double_pair, label_pair};
use super::{DecodeError, DecodeLimits, Translated};
use crate::model::{Exemplar, Labels, METRIC_NAME, MetricKind, Refusal, Sample, Timestamp};

const FAMILY: &str = "MetricFamily";
const METRIC: &str = "Metric";
const LABEL: &str = "LabelPair";
const EXEMPLAR: &str = "Exemplar";
const TIMESTAMP: &str = "Timestamp";

/// How a body is decoded.
#[derive(Clone, Copy, Debug)]
pub struct ExpositionOptions {
    /// The time of samples and exemplars without one.
    pub default_at: Timestamp,
    /// Whether the classic buckets of native histograms are added, too.
    pub classic: bool,
    /// The format of the values of `le` and `quantile`.
    pub float_labels: FloatLabels,
}

/// Returns whether a `Content-Type` names delimited messages of this kind. The media type may stand
/// without parameters.
pub fn is_media_type(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let is_protobuf =
        parts.next().is_some_and(|media| media.eq_ignore_ascii_case("application/vnd.google.protobuf"));
    is_protobuf
        && parts.all(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "proto" => value == "io.prometheus.client.MetricFamily",
                "encoding" => value == "delimited",
                _ => true,
            }
        })
}

/// Decodes a decompressed body.
///
/// # Errors
/// [`DecodeError`], if the body is empty, malformed, or exceeds a limit. Metrics that are invalid
/// by themselves are in [`Translated::refusals`].
pub fn decode(
    body: &[u8],
    options: ExpositionOptions,
    limits: &DecodeLimits,
) -> Result<Translated, DecodeError> {
    super::check_size(body, limits)?;
    let mut decoder = ExpositionDecoder {
        options,
        limits,
        out: Translated::default(),
        families: 0,
        exemplars: 0,
        exemplar_labels: 0,
        histograms: 0,
        buckets: 0,
        label_bytes: 0,
    };
    let mut reader = WireReader::new(body);
    while !reader.is_empty() {
        decoder.family(reader.bytes()?)?;
    }
    Ok(decoder.out)
}

struct ExpositionDecoder<'l> {
    options: ExpositionOptions,
    limits: &'l DecodeLimits,
    out: Translated,
    families: usize,
    exemplars: usize,
    exemplar_labels: usize,
    histograms: usize,
    /// Spans and buckets of native histograms so far.
    buckets: usize,
    /// Bytes of the labels of all series so far: a histogram repeats its labels in each bucket.
    label_bytes: usize,
}

/// The types of families, with the numbers of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FamilyType {
    Counter,
    Gauge,
    Summary,
    Untyped,
    Histogram,
    GaugeHistogram,
}

impl FamilyType {
    const fn from_number(number: i64) -> Option<FamilyType> {
        Some(match number {
            0 => FamilyType::Counter,
            1 => FamilyType::Gauge,
            2 => FamilyType::Summary,
            3 => FamilyType::Untyped,
            4 => FamilyType::Histogram,
            5 => FamilyType::GaugeHistogram,
            _ => return None,
        })
    }

    const fn kind(self) -> MetricKind {
        match self {
            FamilyType::Counter => MetricKind::Counter,
            FamilyType::Gauge => MetricKind::Gauge,
            FamilyType::Summary => MetricKind::Summary,
            FamilyType::Untyped => MetricKind::Unknown,
            FamilyType::Histogram => MetricKind::Histogram,
            FamilyType::GaugeHistogram => MetricKind::GaugeHistogram,
        }
    }
}

/// The fields of a family without its metrics.
struct FamilyHeader<'a> {
    name: &'a str,
    help: &'a str,
    unit: &'a str,
    kind: FamilyType,
}

impl<'a> FamilyHeader<'a> {
    /// Reads a family up to its end, since fields may come in any order. `Err` in the result is the
    /// number of an unknown type.
    fn read(message: &'a [u8]) -> Result<Result<FamilyHeader<'a>, i64>, WireError> {
        let (mut name, mut help, mut unit, mut number) = ("", "", "", 0);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                1 => name = field.text(FAMILY)?,
                2 => help = field.text(FAMILY)?,
                3 => number = field.int64(FAMILY)?,
                5 => unit = field.text(FAMILY)?,
                _ => {}
            }
        }
        let kind = FamilyType::from_number(number).ok_or(number);
        Ok(kind.map(|kind| FamilyHeader { name, help, unit, kind }))
    }
}

/// A metric: its labels, its time, and the messages of its values.
#[derive(Default)]
struct MetricFields<'a> {
    labels: Vec<(&'a str, &'a str)>,
    at_ms: Option<i64>,
    gauge: Option<&'a [u8]>,
    counter: Option<&'a [u8]>,
    summary: Option<&'a [u8]>,
    untyped: Option<&'a [u8]>,
    histogram: Option<&'a [u8]>,
}

impl<'a> MetricFields<'a> {
    fn read(message: &'a [u8]) -> Result<MetricFields<'a>, DecodeError> {
        let mut fields = MetricFields::default();
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            let place = match field.number {
                1 => {
                    check_count("labels of a metric", fields.labels.len(), LABELS_PARSED_MAX)?;
                    fields.labels.push(label_pair(field.bytes(METRIC)?, LABEL)?);
                    continue;
                }
                6 => {
                    fields.at_ms = Some(field.int64(METRIC)?);
                    continue;
                }
                2 => &mut fields.gauge,
                3 => &mut fields.counter,
                4 => &mut fields.summary,
                5 => &mut fields.untyped,
                7 => &mut fields.histogram,
                _ => continue,
            };
            *place = Some(field.bytes(METRIC)?);
        }
        Ok(fields)
    }
}

/// One series of a metric.
struct MetricSeries<'s> {
    /// Appended to the name of the family.
    suffix: &'static str,
    /// A further label.
    label: Option<(&'static str, &'s str)>,
    value: f64,
}

/// An exemplar as it was sent.
struct SentExemplar<'a> {
    labels: Vec<(&'a str, &'a str)>,
    value: f64,
    at: Option<Timestamp>,
}

/// A metric, and the family that it belongs to.
struct FamilyMetric<'a, 'f> {
    family: &'f FamilyHeader<'a>,
    labels: &'f [(&'a str, &'a str)],
    at: Timestamp,
}

impl ExpositionDecoder<'_> {
    fn family(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let family = match FamilyHeader::read(message)? {
            Ok(family) => family,
            Err(number) => {
                self.refuse("invalid_type", String::new(), format!("metric type {number} does not exist"));
                return Ok(());
            }
        };
        if family.name.is_empty() {
            self.refuse("missing_metric_name", String::new(), "a metric family has no name".to_owned());
            return Ok(());
        }
        check_count("metric descriptions", self.families, self.limits.metadata_max)?;
        self.families = self.families.saturating_add(1);
        self.out.batch.describe(family.name, family.kind.kind(), family.help, family.unit);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 4 {
                self.metric(&family, field.bytes(FAMILY)?)?;
            }
        }
        Ok(())
    }

    fn metric(&mut self, family: &FamilyHeader<'_>, message: &[u8]) -> Result<(), DecodeError> {
        let fields = MetricFields::read(message)?;
        let at = fields.at_ms.map_or(self.options.default_at, Timestamp::from_ms);
        let metric = FamilyMetric { family, labels: &fields.labels, at };
        if let Some(reason) = find_label_error(&fields.labels) {
            let series = metric.display();
            self.refuse("invalid_label", series, reason);
            return Ok(());
        }
        let value = match family.kind {
            FamilyType::Counter => fields.counter,
            FamilyType::Gauge => fields.gauge,
            FamilyType::Summary => fields.summary,
            FamilyType::Untyped => fields.untyped,
            FamilyType::Histogram | FamilyType::GaugeHistogram => fields.histogram,
        };
        let Some(value) = value else {
            let kind = family.kind.kind().as_str();
            let reason = format!("a metric of a family of type {kind} has no value of this type");
            self.refuse("missing_value", metric.display(), reason);
            return Ok(());
        };
        match family.kind {
            FamilyType::Counter => self.counter(&metric, value),
            FamilyType::Gauge | FamilyType::Untyped => {
                let (value, _) = double_pair(value, "Gauge")?;
                self.series(&metric, &MetricSeries { suffix: "", label: None, value })
            }
            FamilyType::Summary => self.summary(&metric, value),
            FamilyType::Histogram | FamilyType::GaugeHistogram => self.histogram(&metric, value),
        }
    }

    fn counter(&mut self, metric: &FamilyMetric<'_, '_>, message: &[u8]) -> Result<(), DecodeError> {
        let (mut value, mut sent, mut start) = (0.0, None, None);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                1 => value = field.double("Counter")?,
                2 => sent = Some(exemplar(field.bytes("Counter")?)?),
                3 => start = Some(timestamp(field.bytes("Counter")?)?),
                _ => {}
            }
        }
        self.series(metric, &MetricSeries { suffix: "", label: None, value })?;
        self.start(metric, start);
        sent.map_or(Ok(()), |sent| self.exemplar(metric, &sent))
    }

    fn summary(&mut self, metric: &FamilyMetric<'_, '_>, message: &[u8]) -> Result<(), DecodeError> {
        const SUMMARY: &str = "Summary";
        let (mut count, mut sum, mut start) = (0, 0.0, None);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                1 => count = field.uint64(SUMMARY)?,
                2 => sum = field.double(SUMMARY)?,
                4 => start = Some(timestamp(field.bytes(SUMMARY)?)?),
                _ => {}
            }
        }
        for (suffix, value) in [("_count", float_of(count)), ("_sum", sum)] {
            self.series(metric, &MetricSeries { suffix, label: None, value })?;
            self.start(metric, start);
        }
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 3 {
                let (quantile, value) = double_pair(field.bytes(SUMMARY)?, "Quantile")?;
                let quantile = self.options.float_labels.format(quantile);
                let label = Some(("quantile", quantile.as_str()));
                self.series(metric, &MetricSeries { suffix: "", label, value })?;
                self.start(metric, start);
            }
        }
        Ok(())
    }

    /// Adds a series of one sample.
    fn series(
        &mut self,
        metric: &FamilyMetric<'_, '_>,
        series: &MetricSeries<'_>,
    ) -> Result<(), DecodeError> {
        check_count("samples", self.out.batch.len(), self.limits.samples_max)?;
        self.add_series(
            metric,
            series.suffix,
            series.label,
            Some(Sample { at: metric.at, value: series.value }),
        )
    }

    fn add_series(
        &mut self,
        metric: &FamilyMetric<'_, '_>,
        suffix: &str,
        label: Option<(&str, &str)>,
        sample: Option<Sample>,
    ) -> Result<(), DecodeError> {
        let name = [metric.family.name, suffix].concat();
        let labels = metric.labels.iter().copied();
        let all = [(METRIC_NAME, name.as_str())].into_iter().chain(labels).chain(label);
        let bytes = all.clone().map(|(name, value)| name.len().saturating_add(value.len())).sum();
        self.label_bytes = self.label_bytes.saturating_add(bytes);
        let (found, allowed) = (self.label_bytes, self.limits.label_bytes_max);
        if found > allowed {
            return Err(DecodeError::TooLarge { what: "bytes of labels", found, allowed });
        }
        self.out.batch.series_of(all, sample);
        super::check_series(&self.out.batch, self.limits)
    }

    /// Adds the start timestamp of the last series.
    fn start(&mut self, metric: &FamilyMetric<'_, '_>, start: Option<Timestamp>) {
        if let Some(start) = start {
            self.out.batch.start(metric.at, start);
        }
    }

    /// Adds an exemplar to the last series.
    fn exemplar(
        &mut self,
        metric: &FamilyMetric<'_, '_>,
        sent: &SentExemplar<'_>,
    ) -> Result<(), DecodeError> {
        check_count("exemplars", self.exemplars, self.limits.exemplars_max)?;
        self.exemplars = self.exemplars.saturating_add(1);
        self.exemplar_labels = self.exemplar_labels.saturating_add(sent.labels.len());
        let (found, allowed) = (self.exemplar_labels, self.limits.exemplar_labels_max);
        if found > allowed {
            return Err(DecodeError::TooLarge { what: "exemplar labels", found, allowed });
        }
        let labels = Labels::from_pairs(sent.labels.iter().copied());
        let at = sent.at.unwrap_or(metric.at);
        self.out.batch.exemplar(Exemplar { labels, value: sent.value, at });
        Ok(())
    }

    fn refuse(&mut self, code: &'static str, series: String, reason: String) {
        self.out.refuse(1, || Refusal { series, code, reason });
    }
}

impl FamilyMetric<'_, '_> {
    /// Formats the metric for a refusal.
    fn display(&self) -> String {
        let name = [(METRIC_NAME, self.family.name)].into_iter();
        Refusal::series_text(name.chain(self.labels.iter().copied()))
    }
}

/// Returns a sentence about the first label that is wrong.
fn find_label_error(labels: &[(&str, &str)]) -> Option<String> {
    let mut names: Vec<&str> = labels.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    if names.first().is_some_and(|name| name.is_empty()) {
        return Some("a label name is empty".to_owned());
    }
    if names.binary_search(&METRIC_NAME).is_ok() {
        return Some(format!("the label {METRIC_NAME} is not allowed beside the name of the family"));
    }
    let twice = names.iter().zip(names.iter().skip(1)).find(|(one, next)| one == next);
    twice.map(|(name, _)| {
        format!("label name {:?} occurs twice", name.get(..name.floor_char_boundary(64)).unwrap_or_default())
    })
}

fn exemplar(message: &[u8]) -> Result<SentExemplar<'_>, DecodeError> {
    let mut sent = SentExemplar { labels: Vec::new(), value: 0.0, at: None };
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => {
                check_count("labels of an exemplar", sent.labels.len(), LABELS_PARSED_MAX)?;
                sent.labels.push(label_pair(field.bytes(EXEMPLAR)?, LABEL)?);
            }
            2 => sent.value = field.double(EXEMPLAR)?,
            3 => sent.at = Some(timestamp(field.bytes(EXEMPLAR)?)?),
            _ => {}
        }
    }
    Ok(sent)
}

/// Reads a `Timestamp`; saturates. Fractions of a millisecond are rounded down.
fn timestamp(message: &[u8]) -> Result<Timestamp, WireError> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => seconds = field.int64(TIMESTAMP)?,
            2 => nanos = field.int64(TIMESTAMP)?,
            _ => {}
        }
    }
    Ok(Timestamp::from_s(seconds).plus_ms(nanos.div_euclid(1_000_000)))
}

#[expect(clippy::cast_precision_loss, reason = "counts beyond 2^53 are rounded, as in Prometheus")]
const fn float_of(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
