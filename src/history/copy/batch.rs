//! Batches of samples on their way from a source to a sink.

use crate::ingest::Translated;
use crate::model::{
    BatchBuilder, Exemplar, Histogram, Label, Labels, MetricKind, RawSeries, Sample, StartChange, TimeRange,
    Timestamp, WriteStart,
};

/// Part of one series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CopySeries {
    /// The label set.
    pub labels: Labels,
    /// Floats, in the order of the source.
    pub samples: Vec<Sample>,
    /// Native histograms, in the order of the source.
    pub histograms: Vec<(Timestamp, Histogram)>,
    /// Exemplars.
    pub exemplars: Vec<Exemplar>,
    /// Start timestamps, in the order of their samples.
    pub starts: Vec<StartChange>,
}

/// The description of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyMetadata {
    /// The name of the family.
    pub name: String,
    /// The type.
    pub kind: MetricKind,
    /// The help text; may be empty.
    pub help: String,
    /// The unit; may be empty.
    pub unit: String,
}

/// Samples that are written together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CopyBatch {
    /// The series. A label set may occur several times.
    pub series: Vec<CopySeries>,
    /// Descriptions of metrics.
    pub metadata: Vec<CopyMetadata>,
    /// Samples that the source could not read.
    pub refused: u64,
    /// The first reasons.
    pub reasons: Vec<String>,
}

impl CopySeries {
    /// Returns the number of samples of both kinds.
    pub fn len(&self) -> usize {
        self.samples.len().saturating_add(self.histograms.len())
    }

    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.exemplars.is_empty()
    }

    /// Returns whether it has neither histograms nor exemplars nor start timestamps.
    pub(super) fn has_only_floats(&self) -> bool {
        self.histograms.is_empty() && self.exemplars.is_empty() && self.starts.is_empty()
    }

    /// Returns the least and the greatest time of its samples; none without samples.
    pub fn range(&self) -> Option<TimeRange> {
        let times = || self.samples.iter().map(|one| one.at).chain(self.histograms.iter().map(|(at, _)| *at));
        Some(TimeRange::new(times().min()?, times().max()?))
    }
}

/// The samples of a batch that is being filled, and their estimated memory in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BatchSize {
    samples: usize,
    bytes: usize,
}

impl BatchSize {
    /// Adds floats.
    pub(super) fn add_floats(&mut self, count: usize) {
        self.samples = self.samples.saturating_add(count);
        self.bytes = self.bytes.saturating_add(count.saturating_mul(16));
    }

    /// Adds a native histogram.
    pub(super) fn add_histogram(&mut self, histogram: &Histogram) {
        self.samples = self.samples.saturating_add(1);
        self.bytes = self.bytes.saturating_add(histogram.bytes()).saturating_add(8);
    }

    /// Adds the samples of a series.
    pub(super) fn add_series(&mut self, series: &CopySeries) {
        self.add_floats(series.samples.len());
        series.histograms.iter().for_each(|(_, histogram)| self.add_histogram(histogram));
    }

    /// Returns whether the batch is large enough to be written.
    pub(super) const fn is_full(self) -> bool {
        self.samples >= super::BATCH_SAMPLES || self.bytes >= super::BATCH_BYTES
    }
}

impl From<RawSeries> for CopySeries {
    fn from(raw: RawSeries) -> CopySeries {
        let floats = raw.times.into_iter().zip(raw.values);
        let natives = raw.histograms.times.into_iter().zip(raw.histograms.histograms);
        CopySeries {
            labels: raw.labels,
            samples: floats.map(|(at, value)| Sample { at: Timestamp::from_ms(at), value }).collect(),
            histograms: natives.map(|(at, value)| (Timestamp::from_ms(at), value)).collect(),
            ..CopySeries::default()
        }
    }
}

impl CopyBatch {
    /// The most reasons that a batch lists.
    pub const REASONS_MAX: usize = 10;

    /// Returns the estimated memory of the samples in bytes.
    pub(super) fn bytes(&self) -> usize {
        let mut size = BatchSize::default();
        self.series.iter().for_each(|series| size.add_series(series));
        size.bytes
    }

    /// Returns the number of samples of both kinds.
    pub fn sample_count(&self) -> usize {
        self.series.iter().map(CopySeries::len).sum()
    }

    /// Counts samples that were refused, and keeps the reason while there are few.
    pub fn refuse(&mut self, samples: u64, reason: String) {
        self.refused = self.refused.saturating_add(samples);
        if self.reasons.len() < CopyBatch::REASONS_MAX {
            self.reasons.push(reason);
        }
    }

    /// Returns the batch of decoded text. `lines` are the lines before it, which are added to the
    /// numbers in the reasons.
    pub fn of_text(decoded: &Translated, lines: u64) -> CopyBatch {
        let mut batch = CopyBatch::default();
        let all = decoded.batch.batch();
        let mut pairs = Vec::new();
        for series in &all.series {
            pairs.clear();
            let labels =
                (all.parse_labels)(series.raw_labels, &mut pairs).ok().and_then(|()| labels_of(&pairs));
            let samples = all.samples.get(series.samples.clone()).unwrap_or_default();
            match labels {
                Some(labels) => {
                    batch.series.push(CopySeries {
                        labels,
                        samples: samples.to_vec(),
                        ..CopySeries::default()
                    });
                }
                None => {
                    // An empty series keeps the indexes of the others, to which the following lists
                    // refer.
                    batch.series.push(CopySeries::default());
                    batch.refuse(samples.len() as u64, "a label set is not valid".to_owned());
                }
            }
        }
        for one in all.histograms {
            if let (Some(series), Ok(value)) = (batch.series.get_mut(one.series), one.value) {
                series.histograms.push((one.at, value));
            }
        }
        for one in &all.exemplars {
            let labels = all.exemplar_labels.get(one.labels.clone()).unwrap_or_default();
            let labels = Labels::from_pairs(labels.iter().copied());
            if let Some(series) = batch.series.get_mut(one.series) {
                series.exemplars.push(Exemplar { labels, value: one.value, at: one.at });
            }
        }
        for WriteStart { series, at, start } in all.starts {
            if let Some(series) = batch.series.get_mut(series) {
                series.starts.push(StartChange { at, start });
            }
        }
        batch.series.retain(|series| !series.is_empty() && !series.labels.is_empty());
        batch.metadata.extend(all.metadata.iter().map(|one| CopyMetadata {
            name: one.name.to_owned(),
            kind: one.kind,
            help: one.help.to_owned(),
            unit: one.unit.to_owned(),
        }));
        batch.refused = batch.refused.saturating_add(decoded.refused as u64);
        let reasons = decoded.refusals.iter().map(|refusal| with_lines(&refusal.reason, lines));
        batch.reasons.extend(reasons.take(CopyBatch::REASONS_MAX));
        batch
    }

    /// Returns the batch as the store takes it.
    pub(super) fn builder(&self) -> BatchBuilder {
        let mut builder = BatchBuilder::default();
        for one in &self.metadata {
            builder.describe(&one.name, one.kind, &one.help, &one.unit);
        }
        for series in &self.series {
            builder.series(&series.labels, series.samples.iter().copied());
            builder.histograms(series.histograms.iter().cloned());
            for exemplar in &series.exemplars {
                builder.exemplar(exemplar.clone());
            }
            for StartChange { at, start } in &series.starts {
                builder.start(*at, *start);
            }
        }
        builder
    }
}

/// Returns a label set; none if a text is not UTF-8 or a name occurs twice.
fn labels_of(pairs: &[(&[u8], &[u8])]) -> Option<Labels> {
    let mut labels = Vec::with_capacity(pairs.len());
    for (name, value) in pairs {
        let (name, value) = (std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?);
        if !value.is_empty() {
            labels.push(Label { name: name.into(), value: value.into() });
        }
    }
    labels.sort_by(|a, b| a.name.cmp(&b.name));
    labels.is_sorted_by(|a, b| a.name < b.name).then(|| Labels::from_sorted(labels))
}

/// Adds `lines`, the number of lines before a piece, to the line number with which a reason begins.
fn with_lines(reason: &str, lines: u64) -> String {
    let rest = reason.strip_prefix("line ");
    let parsed = rest.and_then(|rest| {
        let (number, rest) = rest.split_once(':')?;
        Some((number.parse::<u64>().ok()?, rest))
    });
    match parsed {
        Some((number, rest)) => format!("line {}:{rest}", number.saturating_add(lines)),
        None => reason.to_owned(),
    }
}
