//! The walk from a request down to its points, and the bounded place where series are put.
//!
//! Fields come in any order, and what tells how to read points (temporality) follows them as a rule: a message is read for
//! what it says about itself first, then for what is in it. To pass over a field costs next to nothing.

use std::collections::HashSet;

use super::super::protobuf::{WireError, WireReader};
use super::super::{DecodeError, DecodeLimits, Translated};
use super::attributes::PointLabels;
use super::histograms::Buckets;
use super::names::{self, Suffix};
use super::resource::Resource;
use super::{Trouble, charge};
use crate::model::{
    Exemplar, Histogram, METRIC_NAME, MetricKind, Refusal, RenderedLabels, Sample, Timestamp,
};

/// A `target_info` stands for so long: half of what a query looks back.
const TARGET_INFO_EVERY_MS: i64 = 150_000;
/// Samples of one `target_info` at most, the newest: a day. Nobody sends more at once but by mistake.
const TARGET_INFO_MAX: i64 = 576;

/// Translates a request's bytes.
pub(super) fn translate(message: &[u8], limits: &DecodeLimits) -> Result<Translated, DecodeError> {
    let mut translator = Translator::new(limits);
    let mut request = WireReader::new(message);
    while let Some(field) = request.field()? {
        if field.number == 1 {
            translator.resource_metrics(field.bytes("ExportMetricsServiceRequest")?)?;
        }
    }
    Ok(translator.sink.out)
}

/// Where series go, within the limits.
pub(super) struct Sink<'l> {
    pub(super) limits: &'l DecodeLimits,
    pub(super) out: Translated,
    series: usize,
    samples: usize,
    histograms: usize,
    exemplars: usize,
    exemplar_labels: usize,
    label_bytes: usize,
    /// Entries of histograms that were read.
    pub(super) buckets: usize,
    described: HashSet<String>,
}

impl Sink<'_> {
    fn begin(&mut self, parts: &[&RenderedLabels]) -> Result<(), DecodeError> {
        let bytes = parts.iter().fold(0_usize, |all, part| all.saturating_add(part.bytes()));
        charge("bytes of labels", &mut self.label_bytes, bytes, self.limits.label_bytes_max)?;
        charge("series", &mut self.series, 1, self.limits.series_max)
    }

    /// Adds a series of one sample, and since when it counts where that is known.
    #[inline]
    pub(super) fn add(
        &mut self,
        parts: &[&RenderedLabels],
        sample: Sample,
        start: Option<Timestamp>,
    ) -> Result<(), DecodeError> {
        self.add_samples(parts, [sample])?;
        if let Some(start) = start {
            self.out.batch.start(sample.at, start);
        }
        Ok(())
    }

    fn add_samples(
        &mut self,
        parts: &[&RenderedLabels],
        samples: impl IntoIterator<Item = Sample>,
    ) -> Result<(), DecodeError> {
        self.begin(parts)?;
        let before = self.out.batch.len();
        self.out.batch.series_rendered(parts, samples);
        let more = self.out.batch.len().saturating_sub(before);
        charge("samples", &mut self.samples, more, self.limits.samples_max)
    }

    /// Adds a series of one native histogram.
    pub(super) fn add_histogram(
        &mut self,
        parts: &[&RenderedLabels],
        at: Timestamp,
        histogram: Histogram,
        start: Option<Timestamp>,
    ) -> Result<(), DecodeError> {
        self.begin(parts)?;
        charge("histograms", &mut self.histograms, 1, self.limits.histograms_max)?;
        self.out.batch.series_rendered(parts, []).histograms([(at, histogram)]);
        if let Some(start) = start {
            self.out.batch.start(at, start);
        }
        Ok(())
    }

    /// Adds an exemplar to the series added last.
    pub(super) fn add_exemplar(&mut self, exemplar: Exemplar) -> Result<(), DecodeError> {
        let labels = exemplar.labels.iter().count();
        charge("exemplars", &mut self.exemplars, 1, self.limits.exemplars_max)?;
        charge("exemplar labels", &mut self.exemplar_labels, labels, self.limits.exemplar_labels_max)?;
        self.out.batch.exemplar(exemplar);
        Ok(())
    }

    /// Describes a metric, once.
    fn describe(&mut self, name: &str, kind: MetricKind, help: &str, unit: &str) -> Result<(), DecodeError> {
        if self.described.contains(name) {
            return Ok(());
        }
        let (have, allowed) = (self.described.len(), self.limits.metadata_max);
        charge("metric descriptions", &mut { have }, 1, allowed)?;
        self.described.insert(name.to_owned());
        self.out.batch.describe(name, kind, help, unit);
        Ok(())
    }

    pub(super) fn refuse(&mut self, points: usize, series: &[&RenderedLabels], why: (&'static str, String)) {
        let (code, reason) = why;
        let pairs = series.iter().flat_map(|part| part.pairs());
        self.out.refuse(points, || Refusal { series: Refusal::series_text(pairs), code, reason });
    }
}

/// One metric's names.
#[derive(Debug, Default)]
pub(super) struct Metric {
    pub(super) family: String,
    /// `__name__` is the family's name.
    pub(super) name: RenderedLabels,
    /// A counter, that is: what it counts has a beginning, and no gauge's.
    pub(super) counts: bool,
}

impl Metric {
    /// The name with this ending.
    pub(super) fn ending(&self, with: &str) -> RenderedLabels {
        rendered_name(&format!("{}{with}", self.family))
    }
}

fn rendered_name(name: &str) -> RenderedLabels {
    let mut rendered = RenderedLabels::default();
    rendered.push(METRIC_NAME, name);
    rendered
}

/// What a metric says of itself.
#[derive(Clone, Copy, Debug, Default)]
struct Said<'a> {
    name: &'a str,
    help: &'a str,
    unit: &'a str,
}

/// The data of a metric, by its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    Gauge,
    Sum { monotonic: bool },
    Histogram,
    Exponential,
    Summary,
}

pub(super) struct Translator<'l> {
    pub(super) sink: Sink<'l>,
    pub(super) resource: Resource,
    pub(super) labels: PointLabels,
    pub(super) buckets: Buckets,
    /// The oldest and the newest time of the resource's points.
    span: Option<(Timestamp, Timestamp)>,
    /// Why nothing of the resource is taken.
    refused: Option<(&'static str, String)>,
}

impl<'l> Translator<'l> {
    fn new(limits: &'l DecodeLimits) -> Translator<'l> {
        let sink = Sink {
            limits,
            out: Translated::default(),
            series: 0,
            samples: 0,
            histograms: 0,
            exemplars: 0,
            exemplar_labels: 0,
            label_bytes: 0,
            buckets: 0,
            described: HashSet::new(),
        };
        Translator {
            sink,
            resource: Resource::default(),
            labels: PointLabels::default(),
            buckets: Buckets::default(),
            span: None,
            refused: None,
        }
    }

    fn resource_metrics(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        (self.span, self.refused) = (None, None);
        match Resource::read(message) {
            Ok(resource) => self.resource = resource,
            Err(Trouble::Request(error)) => return Err(error),
            Err(Trouble::Point(code, reason)) => {
                self.resource = Resource::default();
                self.refused = Some((code, format!("its resource: {reason}")));
            }
        }
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 2 {
                self.scope_metrics(field.bytes("ResourceMetrics")?)?;
            }
        }
        self.target_info()
    }

    fn scope_metrics(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 2 {
                self.metric(field.bytes("ScopeMetrics")?)?;
            }
        }
        Ok(())
    }

    fn metric(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let (mut said, mut wrong, mut has_data) = (Said::default(), self.refused.clone(), false);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            let text = match field.number {
                1 => &mut said.name,
                2 => &mut said.help,
                3 => &mut said.unit,
                number => {
                    has_data |= kind(number).is_some();
                    continue;
                }
            };
            match field.text("Metric") {
                Ok(read) => *text = read,
                Err(error @ WireError::Utf8 { .. }) => wrong = Some(("invalid_utf8", error.to_string())),
                Err(error) => return Err(error.into()),
            }
        }
        if !has_data {
            let reason =
                "it has no data of a kind that is known: gauge, sum, histogram or summary".to_owned();
            self.sink.refuse(0, &[&rendered_name(said.name)], ("no_data", reason));
        }
        // A message of one kind, but nothing is lost where it comes in two pieces.
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if let Some(kind) = kind(field.number) {
                let points = field.bytes("Metric")?;
                match &wrong {
                    None => self.data(&said, kind, points)?,
                    Some(why) => self.refuse_points(points, said.name, why.clone())?,
                }
            }
        }
        Ok(())
    }

    fn data(&mut self, said: &Said<'_>, mut data: Data, message: &[u8]) -> Result<(), DecodeError> {
        const DATA: &str = "the data of a metric";
        let (mut temporality, mut is_monotonic) = (0, false);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                2 => temporality = field.int64(DATA)?,
                3 => is_monotonic = field.int64(DATA)? != 0,
                _ => {}
            }
        }
        if let Data::Sum { monotonic } = &mut data {
            *monotonic = is_monotonic;
        }
        if let (Some(why), Data::Sum { .. } | Data::Histogram | Data::Exponential) =
            (not_cumulative(temporality), data)
        {
            return self.refuse_points(message, said.name, why);
        }
        let (suffix, kind) = match data {
            Data::Gauge => (Suffix::Ratio, MetricKind::Gauge),
            Data::Sum { monotonic: true } => (Suffix::Total, MetricKind::Counter),
            Data::Sum { monotonic: false } => (Suffix::Unit, MetricKind::Gauge),
            Data::Histogram | Data::Exponential => (Suffix::Unit, MetricKind::Histogram),
            Data::Summary => (Suffix::Unit, MetricKind::Summary),
        };
        let Some((family, unit)) = names::metric(said.name, said.unit, suffix) else {
            let reason = format!("the metric name {:?} has no letter and no digit", said.name);
            return self.refuse_points(message, said.name, ("missing_metric_name", reason));
        };
        self.sink.describe(&family, kind, said.help, &unit)?;
        let name = rendered_name(&family);
        let metric = Metric { family, name, counts: kind != MetricKind::Gauge };
        match data {
            Data::Gauge | Data::Sum { .. } => self.each_point(message, &metric, Translator::number),
            Data::Histogram => self.histograms(message, &metric),
            Data::Exponential => self.each_point(message, &metric, Translator::exponential),
            Data::Summary => self.summaries(message, &metric),
        }
    }

    /// Translates each point of a metric; a point that is none is refused alone.
    pub(super) fn each_point(
        &mut self,
        message: &[u8],
        metric: &Metric,
        mut translate: impl FnMut(&mut Self, &[u8], &Metric) -> Result<Timestamp, Trouble>,
    ) -> Result<(), DecodeError> {
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number != 1 {
                continue;
            }
            let point = field.bytes("the data of a metric")?;
            self.labels.clear();
            match translate(self, point, metric) {
                Ok(at) => {
                    let (oldest, newest) = self.span.unwrap_or((at, at));
                    self.span = Some((oldest.min(at), newest.max(at)));
                }
                Err(Trouble::Request(error)) => return Err(error),
                Err(Trouble::Point(code, reason)) => {
                    let [own, shared] = self.labels.parts(&self.resource);
                    self.sink.refuse(1, &[&metric.name, own, shared], (code, reason));
                }
            }
        }
        Ok(())
    }

    /// Refuses all points of a metric.
    fn refuse_points(
        &mut self,
        message: &[u8],
        name: &str,
        why: (&'static str, String),
    ) -> Result<(), DecodeError> {
        let mut points: usize = 0;
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            points = points.saturating_add(usize::from(field.number == 1));
        }
        if points > 0 {
            self.sink.refuse(points, &[&rendered_name(name), self.resource.rendered()], why);
        }
        Ok(())
    }

    /// The resource's `target_info`, all along its points.
    fn target_info(&mut self) -> Result<(), DecodeError> {
        let (Some((oldest, newest)), Some(labels)) = (self.span, self.resource.target_info()) else {
            return Ok(());
        };
        let first = oldest.max(newest.plus_ms(TARGET_INFO_EVERY_MS.saturating_mul(-TARGET_INFO_MAX)));
        let on_the_way = std::iter::successors(Some(first), |at| Some(at.plus_ms(TARGET_INFO_EVERY_MS)));
        let times = on_the_way.take_while(|at| *at < newest).chain([newest]);
        self.sink.add_samples(&[&labels], times.map(|at| Sample { at, value: 1.0 }))
    }
}

/// What the fields of `Metric` hold.
const fn kind(field: u32) -> Option<Data> {
    Some(match field {
        5 => Data::Gauge,
        7 => Data::Sum { monotonic: false },
        9 => Data::Histogram,
        10 => Data::Exponential,
        11 => Data::Summary,
        _ => return None,
    })
}

/// Why points of this temporality are not taken, if they are not.
fn not_cumulative(temporality: i64) -> Option<(&'static str, String)> {
    let (code, what) = match temporality {
        2 => return None,
        1 => ("delta_temporality", "delta temporality (the change since the point before)"),
        _ => ("unknown_temporality", "no aggregation temporality that is known"),
    };
    let reason = format!(
        "it has {what}; only cumulative sums and histograms are taken: set \
         OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative where it is sent"
    );
    Some((code, reason))
}
