//! The batch that a protocol decoder passes to the store: series that borrow the request's body,
//! and the refused rest.

use std::ops::Range;

use super::{Exemplar, Histogram, HistogramError, Sample, Timestamp};

/// Splits a series' raw label bytes, in the encoding of one protocol, into (name, value) pairs in
/// the sender's order.
///
/// Called only for series whose raw bytes the store does not know yet. `Err` is a message for the
/// sender.
pub type ParseLabels =
    for<'a> fn(raw: &'a [u8], pairs: &mut Vec<(&'a [u8], &'a [u8])>) -> Result<(), &'static str>;

/// A batch whose `raw_labels` were split off without parsing. Bytes that the store remembers are
/// labels. For others it must call `is_labels`; if they are not labels, the body must be decoded
/// completely.
#[derive(Debug)]
pub struct GuessedBatch<'a>(pub WriteBatch<'a>);

/// A decoded request. No text is copied: `raw_labels` are slices of the (decompressed) body.
#[derive(Debug)]
pub struct WriteBatch<'a> {
    /// Encoding of `raw_labels`, so that equal bytes of two protocols are never taken for one
    /// series.
    pub encoding: u8,
    /// Parser of `raw_labels`, for a series seen for the first time.
    pub parse_labels: ParseLabels,
    /// Returns whether the bytes are labels and nothing else; only such bytes are remembered.
    pub is_labels: fn(&[u8]) -> bool,
    /// The series, in the sender's order.
    pub series: Vec<WriteSeries<'a>>,
    /// The samples of all series, one after another; indexed by [`WriteSeries::samples`].
    pub samples: Vec<Sample>,
    /// Metadata of metrics in the request.
    pub metadata: Vec<MetricMetadata<'a>>,
    /// Labels that the API key sets on every series; they replace the sender's
    /// (docs/specification.md C4, `ingest.labels`).
    pub forced_labels: Vec<(Box<str>, Box<str>)>,
    /// Native histograms, in the sender's order: series by series, ascending.
    pub histograms: Vec<HistogramSample>,
    /// Exemplars, in the sender's order: series by series.
    pub exemplars: Vec<WriteExemplar>,
    /// Names and values of the exemplars' labels, one after another; indexed by
    /// [`WriteExemplar::labels`].
    pub exemplar_labels: Vec<(&'a str, &'a str)>,
    /// Start timestamps of samples and histograms, where the sender gave one.
    pub starts: Vec<WriteStart>,
}

impl<'a> WriteBatch<'a> {
    /// Creates an empty batch in this encoding, with capacity for `likely` series of one sample
    /// each.
    pub fn new(
        encoding: u8,
        parse_labels: ParseLabels,
        is_labels: fn(&[u8]) -> bool,
        likely: usize,
    ) -> WriteBatch<'a> {
        WriteBatch {
            encoding,
            parse_labels,
            is_labels,
            series: Vec::with_capacity(likely),
            samples: Vec::with_capacity(likely),
            metadata: Vec::new(),
            forced_labels: Vec::new(),
            histograms: Vec::new(),
            exemplars: Vec::new(),
            exemplar_labels: Vec::new(),
            starts: Vec::new(),
        }
    }
}

/// A native histogram of a request.
#[derive(Clone, Debug)]
pub struct HistogramSample {
    /// Index of its series in [`WriteBatch::series`].
    pub series: usize,
    /// Time.
    pub at: Timestamp,
    /// The histogram, or the reason to refuse this sample alone.
    pub value: Result<Histogram, HistogramError>,
}

/// An exemplar of a request.
#[derive(Clone, Debug)]
pub struct WriteExemplar {
    /// Index of its series in [`WriteBatch::series`].
    pub series: usize,
    /// Range of its labels in [`WriteBatch::exemplar_labels`], in the sender's order.
    pub labels: Range<usize>,
    /// The observed value.
    pub value: f64,
    /// Time of the observation.
    pub at: Timestamp,
}

/// The start timestamp of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteStart {
    /// Index of the sample's series in [`WriteBatch::series`].
    pub series: usize,
    /// Time of the sample.
    pub at: Timestamp,
    /// Start of the counts; zero if it is no longer known.
    pub start: Timestamp,
}

/// A series of a request.
#[derive(Clone, Debug)]
pub struct WriteSeries<'a> {
    /// The label set in the encoding of the protocol.
    pub raw_labels: &'a [u8],
    /// Range of its samples in [`WriteBatch::samples`].
    pub samples: Range<usize>,
}

/// Metadata of a metric, as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricMetadata<'a> {
    /// Name of the metric (family).
    pub name: &'a str,
    /// Type of the metric.
    pub kind: MetricKind,
    /// The help text; may be empty.
    pub help: &'a str,
    /// The unit; may be empty.
    pub unit: &'a str,
}

/// Returns the names of the families that a series of this name may belong to, the likeliest first:
/// the name itself, and the name without a suffix that senders append to that of the family.
pub fn families_of(series_name: &str) -> impl Iterator<Item = &str> {
    const SUFFIXES: [&str; 7] = ["", "_bucket", "_count", "_sum", "_total", "_created", "_info"];
    SUFFIXES.iter().filter_map(|suffix| series_name.strip_suffix(suffix))
}

/// Prometheus' metric types, with the numbers of remote write 1.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum MetricKind {
    /// Not specified.
    #[default]
    Unknown = 0,
    /// A value that only increases or is reset to zero.
    Counter = 1,
    /// A value that may increase and decrease.
    Gauge = 2,
    /// Buckets, sum and count.
    Histogram = 3,
    /// Buckets of a gauge.
    GaugeHistogram = 4,
    /// Quantiles, sum and count.
    Summary = 5,
    /// Text in labels, value 1.
    Info = 6,
    /// One of several states.
    StateSet = 7,
}

impl MetricKind {
    /// Returns the type with this number, which is also that of `as u8`, if any.
    pub const fn from_number(number: u8) -> Option<MetricKind> {
        Some(match number {
            0 => MetricKind::Unknown,
            1 => MetricKind::Counter,
            2 => MetricKind::Gauge,
            3 => MetricKind::Histogram,
            4 => MetricKind::GaugeHistogram,
            5 => MetricKind::Summary,
            6 => MetricKind::Info,
            7 => MetricKind::StateSet,
            _ => return None,
        })
    }

    /// Returns the name used in Prometheus' API and text format.
    pub const fn as_str(self) -> &'static str {
        match self {
            MetricKind::Unknown => "unknown",
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::GaugeHistogram => "gaugehistogram",
            MetricKind::Summary => "summary",
            MetricKind::Info => "info",
            MetricKind::StateSet => "stateset",
        }
    }
}

/// A series or sample that was not stored, with the reason for its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The series as far as it could be parsed, `{__name__="up", job="a"}`; truncated to 200 bytes.
    pub series: String,
    /// A stable code: `duplicate_label`, `too_old`, `out_of_bounds`, `duplicate_sample`,
    /// `series_limit`, ...
    pub code: &'static str,
    /// A message.
    pub reason: String,
}

impl Refusal {
    /// Maximum length of [`Refusal::series`] in bytes.
    pub const SERIES_BYTES_MAX: usize = 200;

    /// Formats a series as `{__name__="up", job="a"}`, truncated to [`Refusal::SERIES_BYTES_MAX`].
    /// The cost does not depend on the length of the texts.
    pub fn series_text<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
        const MAX: usize = Refusal::SERIES_BYTES_MAX;
        let cut = |text: &'a str| text.get(..text.floor_char_boundary(MAX)).unwrap_or_default();
        let mut text = String::from("{");
        for (index, (name, value)) in pairs.into_iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            text.push_str(&format!("{comma}{}={:?}", cut(name), cut(value)));
            if text.len() > MAX {
                break;
            }
        }
        text.push('}');
        if text.len() > MAX {
            text.truncate(text.floor_char_boundary(MAX - 3));
            text.push_str("...");
        }
        text
    }
}

/// A builder of a [`WriteBatch`] from label sets, for writers inside the process (own metrics,
/// generated data, tests).
#[derive(Debug, Default)]
pub struct BatchBuilder {
    bytes: Vec<u8>,
    series: Vec<(Range<usize>, Range<usize>)>,
    samples: Vec<Sample>,
    metadata: Vec<(String, MetricKind, String, String)>,
    histograms: Vec<HistogramSample>,
    exemplars: Vec<(usize, Exemplar)>,
    starts: Vec<WriteStart>,
}

impl BatchBuilder {
    /// The [`WriteBatch::encoding`] of its batches: per label `u32 name length, name, u32 value
    /// length, value`, little-endian.
    pub const ENCODING: u8 = 0;

    /// Adds a series and its samples.
    pub fn series(
        &mut self,
        labels: &super::Labels,
        samples: impl IntoIterator<Item = Sample>,
    ) -> &mut BatchBuilder {
        self.series_of(labels.iter().map(|label| (label.name, label.value)), samples)
    }

    /// Adds a series by its labels as sent, in any order, and its samples. The store reports
    /// invalid labels, such as duplicate names or too many.
    pub fn series_of<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        samples: impl IntoIterator<Item = Sample>,
    ) -> &mut BatchBuilder {
        let start = self.bytes.len();
        for (name, value) in labels {
            put_label(&mut self.bytes, name, value);
        }
        self.end_series(start, samples)
    }

    /// Adds a series from parts of rendered labels, and its samples. Like
    /// [`BatchBuilder::series_of`], without inspecting the labels.
    pub fn series_rendered(
        &mut self,
        parts: &[&RenderedLabels],
        samples: impl IntoIterator<Item = Sample>,
    ) -> &mut BatchBuilder {
        let start = self.bytes.len();
        for part in parts {
            self.bytes.extend_from_slice(&part.bytes);
        }
        self.end_series(start, samples)
    }

    fn end_series(&mut self, start: usize, samples: impl IntoIterator<Item = Sample>) -> &mut BatchBuilder {
        let first = self.samples.len();
        self.samples.extend(samples);
        self.series.push((start..self.bytes.len(), first..self.samples.len()));
        self
    }

    /// Like [`BatchBuilder::series_of`]; if the labels equal those of the last series, in the same
    /// order, the samples are added to it.
    pub fn samples_of<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        samples: impl IntoIterator<Item = Sample>,
    ) -> &mut BatchBuilder {
        self.series_of(labels, samples);
        if let [.., (before, run), (last, more)] = &mut *self.series
            && self.bytes[before.clone()] == self.bytes[last.clone()]
        {
            run.end = more.end;
            self.bytes.truncate(last.start);
            self.series.pop();
        }
        self
    }

    /// Adds samples to the last series.
    pub fn more(&mut self, samples: impl IntoIterator<Item = Sample>) -> &mut BatchBuilder {
        if let Some((_, range)) = self.series.last_mut() {
            self.samples.extend(samples);
            range.end = self.samples.len();
        }
        self
    }

    /// Adds native histograms to the last series.
    pub fn histograms(
        &mut self,
        samples: impl IntoIterator<Item = (Timestamp, Histogram)>,
    ) -> &mut BatchBuilder {
        let series = self.series.len().saturating_sub(1);
        let of = |(at, value)| HistogramSample { series, at, value: Ok(value) };
        self.histograms.extend(samples.into_iter().map(of));
        self
    }

    /// Adds an exemplar to the last series.
    pub fn exemplar(&mut self, exemplar: Exemplar) -> &mut BatchBuilder {
        self.exemplars.push((self.series.len().saturating_sub(1), exemplar));
        self
    }

    /// Adds the start timestamp of the sample at this time of the last series.
    pub fn start(&mut self, at: Timestamp, start: Timestamp) -> &mut BatchBuilder {
        self.starts.push(WriteStart { series: self.series.len().saturating_sub(1), at, start });
        self
    }

    /// Adds metadata of a metric.
    pub fn describe(&mut self, name: &str, kind: MetricKind, help: &str, unit: &str) -> &mut BatchBuilder {
        self.metadata.push((name.into(), kind, help.into(), unit.into()));
        self
    }

    /// Returns the number of series.
    pub fn series_len(&self) -> usize {
        self.series.len()
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Like [`BatchBuilder::batch`], and moves the samples into the batch.
    pub fn take_batch(&mut self) -> WriteBatch<'_> {
        let samples = std::mem::take(&mut self.samples);
        WriteBatch { samples, ..self.batch() }
    }

    /// Returns the batch, which borrows from this builder.
    pub fn batch(&self) -> WriteBatch<'_> {
        let series = self.series.iter();
        let metadata = self.metadata.iter();
        let (mut exemplars, mut exemplar_labels) = (Vec::new(), Vec::new());
        for (series, exemplar) in &self.exemplars {
            let first = exemplar_labels.len();
            exemplar_labels.extend(exemplar.labels.iter().map(|label| (label.name, label.value)));
            let labels = first..exemplar_labels.len();
            let Exemplar { value, at, .. } = *exemplar;
            exemplars.push(WriteExemplar { series: *series, labels, value, at });
        }
        WriteBatch {
            series: series
                .map(|(raw, samples)| WriteSeries {
                    raw_labels: &self.bytes[raw.clone()],
                    samples: samples.clone(),
                })
                .collect(),
            samples: self.samples.clone(),
            metadata: metadata
                .map(|(name, kind, help, unit)| MetricMetadata { name, kind: *kind, help, unit })
                .collect(),
            histograms: self.histograms.clone(),
            exemplars,
            exemplar_labels,
            starts: self.starts.clone(),
            ..WriteBatch::new(BatchBuilder::ENCODING, parse_built_labels, |_| true, 0)
        }
    }
}

/// Labels in the encoding of a [`BatchBuilder`], rendered once for many series.
#[derive(Clone, Debug, Default)]
pub struct RenderedLabels {
    bytes: Vec<u8>,
}

impl RenderedLabels {
    /// Adds a label.
    pub fn push(&mut self, name: &str, value: &str) -> &mut RenderedLabels {
        put_label(&mut self.bytes, name, value);
        self
    }

    /// Removes all labels; keeps the capacity.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Returns the number of bytes that they add to a batch.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the labels, in the order in which they were added.
    pub fn pairs(&self) -> Vec<(&str, &str)> {
        let mut pairs = Vec::new();
        // The bytes were written by `push` from valid text, so parsing cannot fail.
        let _ = parse_built_labels(&self.bytes, &mut pairs);
        let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
        pairs.into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }
}

fn put_label(bytes: &mut Vec<u8>, name: &str, value: &str) {
    for text in [name, value] {
        let length = u32::try_from(text.len()).expect("a label is never 4 GiB");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
}

fn parse_built_labels<'a>(raw: &'a [u8], pairs: &mut Vec<(&'a [u8], &'a [u8])>) -> Result<(), &'static str> {
    fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (length, after) = rest.split_first_chunk()?;
        let (text, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        *rest = after;
        Some(text)
    }
    let mut rest = raw;
    while !rest.is_empty() {
        let name = text(&mut rest).ok_or("label name is cut short")?;
        let value = text(&mut rest).ok_or("label value is cut short")?;
        pairs.push((name, value));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_series_is_truncated_at_a_character() {
        let long = "ä".repeat(300);
        for pair in [("a", long.as_str()), (&long, "a")] {
            let text = Refusal::series_text([pair]);
            assert!(text.len() <= 200 && text.ends_with("..."), "{text}");
        }
        assert_eq!(Refusal::series_text([("__name__", "up"), ("a", "b")]), r#"{__name__="up", a="b"}"#);
        assert_eq!(Refusal::series_text([("a", "\"\n")]), r#"{a="\"\n"}"#);
    }
}
