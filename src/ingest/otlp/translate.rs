//! The traversal of a request down to its points, and the limited batch that receives the series.
//!
//! Fields come in any order, and the temporality, which determines how points are read, usually
//! follows them. So each message is read twice: for its own properties first, then for its
//! contents. Skipping a field costs almost nothing.

use std::collections::HashSet;

use super::super::protobuf::{WireError, WireReader};
use super::super::{DecodeError, DecodeLimits, Translated};
use super::attributes::PointLabels;
use super::delta::DeltaTotals;
use super::histograms::BucketBuffers;
use super::names::{self, Suffix};
use super::resource::Resource;
use super::{TranslateError, add_count};
use crate::model::{
    Exemplar, Histogram, METRIC_NAME, MetricKind, Refusal, RenderedLabels, Sample, Timestamp,
};

/// Interval between two samples of `target_info`: half of the default lookback of a query.
const TARGET_INFO_INTERVAL_MS: i64 = 150_000;
/// The number of delta temporality.
const DELTA: i64 = 1;
/// Samples of one `target_info`, at most; the newest are kept. They cover a day, and only mistakes
/// send more at once.
const TARGET_INFO_MAX: i64 = 576;

/// Translates a request in protobuf.
pub(super) fn translate<'l>(
    message: &[u8],
    limits: &'l DecodeLimits,
    totals: Option<&'l mut (dyn DeltaTotals + 'l)>,
) -> Result<Translated, DecodeError> {
    let mut translator = Translator::new(limits, totals);
    let mut request = WireReader::new(message);
    while let Some(field) = request.field()? {
        if field.number == 1 {
            translator.resource_metrics(field.bytes("ExportMetricsServiceRequest")?)?;
        }
    }
    Ok(translator.sink.out)
}

/// The batch of a request, with counters that enforce the limits.
pub(super) struct BatchSink<'l> {
    pub(super) limits: &'l DecodeLimits,
    pub(super) out: Translated,
    series: usize,
    samples: usize,
    histograms: usize,
    exemplars: usize,
    exemplar_labels: usize,
    label_bytes: usize,
    /// Bucket entries of all histograms that were read.
    pub(super) buckets: usize,
    described: HashSet<String>,
}

impl BatchSink<'_> {
    /// Counts a series and the bytes of its labels.
    fn begin_series(&mut self, parts: &[&RenderedLabels]) -> Result<(), DecodeError> {
        let bytes = parts.iter().fold(0_usize, |all, part| all.saturating_add(part.bytes()));
        add_count("bytes of labels", &mut self.label_bytes, bytes, self.limits.label_bytes_max)?;
        add_count("series", &mut self.series, 1, self.limits.series_max)
    }

    /// Adds a series with one sample, and its start timestamp if known.
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
        self.begin_series(parts)?;
        let before = self.out.batch.len();
        self.out.batch.series_rendered(parts, samples);
        let more = self.out.batch.len().saturating_sub(before);
        add_count("samples", &mut self.samples, more, self.limits.samples_max)
    }

    /// Adds a series with one native histogram, and its start timestamp if known.
    pub(super) fn add_histogram(
        &mut self,
        parts: &[&RenderedLabels],
        at: Timestamp,
        histogram: Histogram,
        start: Option<Timestamp>,
    ) -> Result<(), DecodeError> {
        self.begin_series(parts)?;
        add_count("histograms", &mut self.histograms, 1, self.limits.histograms_max)?;
        self.out.batch.series_rendered(parts, []).histograms([(at, histogram)]);
        if let Some(start) = start {
            self.out.batch.start(at, start);
        }
        Ok(())
    }

    /// Adds an exemplar to the series that was added last.
    pub(super) fn add_exemplar(&mut self, exemplar: Exemplar) -> Result<(), DecodeError> {
        let labels = exemplar.labels.iter().count();
        add_count("exemplars", &mut self.exemplars, 1, self.limits.exemplars_max)?;
        add_count("exemplar labels", &mut self.exemplar_labels, labels, self.limits.exemplar_labels_max)?;
        self.out.batch.exemplar(exemplar);
        Ok(())
    }

    /// Adds the metadata of a metric unless it is already in the batch.
    fn describe(&mut self, name: &str, kind: MetricKind, help: &str, unit: &str) -> Result<(), DecodeError> {
        if self.described.contains(name) {
            return Ok(());
        }
        let (have, allowed) = (self.described.len(), self.limits.metadata_max);
        add_count("metric descriptions", &mut { have }, 1, allowed)?;
        self.described.insert(name.to_owned());
        self.out.batch.describe(name, kind, help, unit);
        Ok(())
    }

    /// Counts `points` as refused; `why` is a code and a sentence.
    pub(super) fn refuse(&mut self, points: usize, series: &[&RenderedLabels], why: (&'static str, String)) {
        let (code, reason) = why;
        let pairs = series.iter().flat_map(|part| part.pairs());
        self.out.refuse(points, || Refusal { series: Refusal::series_text(pairs), code, reason });
    }
}

/// The names of one metric.
#[derive(Debug, Default)]
pub(super) struct MetricNames {
    pub(super) family: String,
    /// The label `__name__` with the family name.
    pub(super) name: RenderedLabels,
    /// The metric is not a gauge, so its start timestamp is meaningful.
    pub(super) is_cumulative: bool,
}

impl MetricNames {
    /// Returns the label `__name__` with the family name and this suffix.
    pub(super) fn with_suffix(&self, with: &str) -> RenderedLabels {
        rendered_name(&format!("{}{with}", self.family))
    }
}

fn rendered_name(name: &str) -> RenderedLabels {
    let mut rendered = RenderedLabels::default();
    rendered.push(METRIC_NAME, name);
    rendered
}

/// The name, description and unit of a metric.
#[derive(Clone, Copy, Debug, Default)]
struct MetricHeader<'a> {
    name: &'a str,
    help: &'a str,
    unit: &'a str,
}

/// The kind of a metric, by the field of `Metric` that holds its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataKind {
    Gauge,
    Sum { monotonic: bool },
    Histogram,
    Exponential,
    Summary,
}

pub(super) struct Translator<'l> {
    pub(super) sink: BatchSink<'l>,
    pub(super) resource: Resource,
    pub(super) labels: PointLabels,
    pub(super) buckets: BucketBuffers,
    /// Adds up points of delta temporality; `None` if they are refused.
    pub(super) totals: Option<&'l mut (dyn DeltaTotals + 'l)>,
    /// The current metric has delta temporality.
    pub(super) is_delta: bool,
    /// The oldest and the newest time of the points of the current resource.
    time_range: Option<(Timestamp, Timestamp)>,
    /// The reason why all points of the current resource are refused.
    refused: Option<(&'static str, String)>,
}

impl<'l> Translator<'l> {
    fn new(limits: &'l DecodeLimits, totals: Option<&'l mut (dyn DeltaTotals + 'l)>) -> Translator<'l> {
        let sink = BatchSink {
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
            buckets: BucketBuffers::default(),
            totals,
            is_delta: false,
            time_range: None,
            refused: None,
        }
    }

    fn resource_metrics(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        (self.time_range, self.refused) = (None, None);
        match Resource::read(message) {
            Ok(resource) => self.resource = resource,
            Err(TranslateError::Request(error)) => return Err(error),
            Err(TranslateError::Point(code, reason)) => {
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
        let (mut header, mut refusal, mut has_data) = (MetricHeader::default(), self.refused.clone(), false);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            let text = match field.number {
                1 => &mut header.name,
                2 => &mut header.help,
                3 => &mut header.unit,
                number => {
                    has_data |= data_kind(number).is_some();
                    continue;
                }
            };
            match field.text("Metric") {
                Ok(read) => *text = read,
                Err(error @ WireError::Utf8 { .. }) => refusal = Some(("invalid_utf8", error.to_string())),
                Err(error) => return Err(error.into()),
            }
        }
        if !has_data {
            let reason =
                "it has no data of a known kind: gauge, sum, histogram, exponential histogram or summary"
                    .to_owned();
            self.sink.refuse(0, &[&rendered_name(header.name)], ("no_data", reason));
        }
        // A metric has data of one kind. If it has several, all are translated.
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if let Some(kind) = data_kind(field.number) {
                let points = field.bytes("Metric")?;
                match &refusal {
                    None => self.data(&header, kind, points)?,
                    Some(why) => self.refuse_points(points, header.name, why.clone())?,
                }
            }
        }
        Ok(())
    }

    fn data(
        &mut self,
        header: &MetricHeader<'_>,
        mut data: DataKind,
        message: &[u8],
    ) -> Result<(), DecodeError> {
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
        if let DataKind::Sum { monotonic } = &mut data {
            *monotonic = is_monotonic;
        }
        let has_temporality =
            matches!(data, DataKind::Sum { .. } | DataKind::Histogram | DataKind::Exponential);
        self.is_delta = has_temporality && temporality == DELTA && self.totals.is_some();
        if has_temporality
            && !self.is_delta
            && let Some(why) = not_cumulative(temporality)
        {
            return self.refuse_points(message, header.name, why);
        }
        let (suffix, kind) = match data {
            DataKind::Gauge => (Suffix::Ratio, MetricKind::Gauge),
            DataKind::Sum { monotonic: true } => (Suffix::Total, MetricKind::Counter),
            DataKind::Sum { monotonic: false } => (Suffix::Unit, MetricKind::Gauge),
            DataKind::Histogram | DataKind::Exponential => (Suffix::Unit, MetricKind::Histogram),
            DataKind::Summary => (Suffix::Unit, MetricKind::Summary),
        };
        let Some((family, unit)) = names::metric(header.name, header.unit, suffix) else {
            let reason = format!("the metric name {:?} has no letters or digits", header.name);
            return self.refuse_points(message, header.name, ("missing_metric_name", reason));
        };
        self.sink.describe(&family, kind, header.help, &unit)?;
        let name = rendered_name(&family);
        let metric = MetricNames { family, name, is_cumulative: kind != MetricKind::Gauge };
        match data {
            DataKind::Gauge | DataKind::Sum { .. } => self.each_point(message, &metric, Translator::number),
            DataKind::Histogram => self.histograms(message, &metric),
            DataKind::Exponential => self.each_point(message, &metric, Translator::exponential),
            DataKind::Summary => self.summaries(message, &metric),
        }
    }

    /// Translates each point of a metric. An invalid point is refused alone.
    pub(super) fn each_point(
        &mut self,
        message: &[u8],
        metric: &MetricNames,
        mut translate: impl FnMut(&mut Self, &[u8], &MetricNames) -> Result<Timestamp, TranslateError>,
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
                    let (oldest, newest) = self.time_range.unwrap_or((at, at));
                    self.time_range = Some((oldest.min(at), newest.max(at)));
                }
                Err(TranslateError::Request(error)) => return Err(error),
                Err(TranslateError::Point(code, reason)) => {
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

    /// Adds the `target_info` series of the resource, with samples over the whole time range of its
    /// points.
    fn target_info(&mut self) -> Result<(), DecodeError> {
        let (Some((oldest, newest)), Some(labels)) = (self.time_range, self.resource.target_info()) else {
            return Ok(());
        };
        let first = oldest.max(newest.plus_ms(TARGET_INFO_INTERVAL_MS.saturating_mul(-TARGET_INFO_MAX)));
        let times_before = std::iter::successors(Some(first), |at| Some(at.plus_ms(TARGET_INFO_INTERVAL_MS)));
        let times = times_before.take_while(|at| *at < newest).chain([newest]);
        self.sink.add_samples(&[&labels], times.map(|at| Sample { at, value: 1.0 }))
    }
}

/// Returns the kind of data in a field of `Metric`.
const fn data_kind(field: u32) -> Option<DataKind> {
    Some(match field {
        5 => DataKind::Gauge,
        7 => DataKind::Sum { monotonic: false },
        9 => DataKind::Histogram,
        10 => DataKind::Exponential,
        11 => DataKind::Summary,
        _ => return None,
    })
}

/// Returns the reason to refuse points of this temporality; `None` if it is cumulative.
fn not_cumulative(temporality: i64) -> Option<(&'static str, String)> {
    let (code, what) = match temporality {
        2 => return None,
        DELTA => ("delta_temporality", "delta temporality (changes since the previous point)"),
        _ => ("unknown_temporality", "no known aggregation temporality"),
    };
    let reason = format!(
        "it has {what}; only cumulative sums and histograms are supported: set \
         OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative at the sender"
    );
    Some((code, reason))
}
