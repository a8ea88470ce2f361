//! The batch of one scrape: decoded samples under their final labels, staleness markers, and the
//! samples about the scrape itself.

use std::ops::Range;

use super::edge::{ScrapeRefusal, ScrapeStored};
use super::known::next_record;
use super::response::NO_TIME;
use crate::ingest::Translated;
use crate::model::{
    BatchBuilder, Histogram, HistogramSample, Refusal, Sample, Timestamp, WriteBatch, WriteExemplar,
    WriteSeries, WriteStart, stale_nan,
};
use crate::tsdb::AHEAD_MAX;

/// The index of a series that is not in the batch, because it is not stored.
const NOWHERE: u32 = u32::MAX;

/// The batch of one scrape.
#[derive(Debug)]
pub struct ScrapeBatch {
    /// The time of the scrape.
    at: Timestamp,
    /// Whether times of the exposition count.
    honor_timestamps: bool,
    /// The decoded response, whose exemplars and metadata are used.
    translated: Translated,
    /// The labels of all series, in the encoding of [`BatchBuilder`].
    labels: Vec<u8>,
    series: Vec<(Range<usize>, Range<usize>)>,
    samples: Vec<Sample>,
    histograms: Vec<HistogramSample>,
    /// The index of the labels of each decoded series in `series`, or [`NOWHERE`].
    places: Vec<u32>,
    /// Whether the metadata of the response is stored.
    pub(super) with_metadata: bool,
    /// The samples that were left out because of their time.
    left_out: ScrapeStored,
}

/// Appends a label in the encoding of [`BatchBuilder`].
pub(super) fn put_label(out: &mut Vec<u8>, name: &str, value: &str) {
    for text in [name, value] {
        // A body is bounded, so no label is longer than 4 GiB.
        let length = u32::try_from(text.len()).unwrap_or(0);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
}

/// Returns whether a time is later than the store accepts at the time of a scrape.
pub(super) fn is_too_far_ahead(at: Timestamp, scraped_at: Timestamp) -> bool {
    at > scraped_at.plus(AHEAD_MAX)
}

/// Returns the names and values of labels in the encoding of [`BatchBuilder`].
fn pairs_of(labels: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    let mut at = 0;
    let mut text = move || std::str::from_utf8(next_record(labels, &mut at)?).ok();
    std::iter::from_fn(move || Some((text()?, text()?)))
}

impl ScrapeBatch {
    pub(super) fn new(at: Timestamp, honor_timestamps: bool) -> ScrapeBatch {
        ScrapeBatch {
            at,
            honor_timestamps,
            translated: Translated::default(),
            labels: Vec::new(),
            series: Vec::new(),
            samples: Vec::new(),
            histograms: Vec::new(),
            places: Vec::new(),
            with_metadata: false,
            left_out: ScrapeStored::default(),
        }
    }

    /// Reserves memory for a response with this many series, samples, and bytes of labels.
    pub(super) fn reserve(&mut self, series: usize, samples: usize, label_bytes: usize) {
        self.series.reserve(series + 8);
        self.samples.reserve(samples + 8);
        self.places.reserve(series);
        self.labels.reserve(label_bytes + 1_024);
    }

    /// Returns the time of a decoded sample.
    pub(super) fn time(&self, sent: Timestamp) -> Timestamp {
        if sent == NO_TIME || !self.honor_timestamps { self.at } else { sent }
    }

    /// Adds a series of the response without samples. Returns the range of its labels.
    pub(super) fn series(&mut self, parts: [&[u8]; 2]) -> Range<usize> {
        let place = u32::try_from(self.series.len()).unwrap_or(NOWHERE);
        self.places.push(place);
        self.bare_series(parts)
    }

    fn bare_series(&mut self, parts: [&[u8]; 2]) -> Range<usize> {
        let start = self.labels.len();
        for part in parts {
            self.labels.extend_from_slice(part);
        }
        let (labels, samples) = (start..self.labels.len(), self.samples.len()..self.samples.len());
        self.series.push((labels.clone(), samples));
        labels
    }

    /// Skips a series of the response.
    pub(super) fn skip_series(&mut self) {
        self.places.push(NOWHERE);
    }

    /// Returns whether a sample of this time may be stored. One that is more than [`AHEAD_MAX`]
    /// after the scrape is left out and counted: shortly after a start, the store refuses a whole
    /// batch with such a time, because the time of the server may be wrong instead.
    pub(super) fn admits(&mut self, at: Timestamp) -> bool {
        if !is_too_far_ahead(at, self.at) {
            return true;
        }
        self.left_out.refused += 1;
        if self.left_out.reason.is_none() {
            let labels = self.series.last().map(|(labels, _)| labels.clone()).unwrap_or_default();
            let series = Refusal::series_text(pairs_of(self.labels(labels)));
            let (ms, ahead) = (at.as_ms(), at.ms_since(self.at));
            let allowed = AHEAD_MAX.as_millis();
            let text = format!(
                "{series}: the sample's time {ms} is {ahead} ms ahead of the scrape, at most {allowed} ms \
                 are allowed"
            );
            self.left_out.reason = Some(ScrapeRefusal { code: "too_far_in_future", text });
        }
        false
    }

    /// Returns the samples that [`ScrapeBatch::admits`] has left out, and resets their count.
    pub(super) fn take_left_out(&mut self) -> ScrapeStored {
        std::mem::take(&mut self.left_out)
    }

    /// Adds a sample to the last series.
    pub(super) fn sample(&mut self, at: Timestamp, value: f64) {
        self.samples.push(Sample { at, value });
        if let Some((_, samples)) = self.series.last_mut() {
            samples.end = self.samples.len();
        }
    }

    /// Adds a native histogram to the last series.
    pub(super) fn histogram(&mut self, at: Timestamp, value: Histogram) {
        let series = self.series.len().saturating_sub(1);
        self.histograms.push(HistogramSample { series, at, value: Ok(value) });
    }

    /// Adds the staleness marker of a series.
    pub(super) fn mark(&mut self, labels: &[u8], is_histogram: bool) {
        self.bare_series([labels, &[]]);
        match is_histogram {
            true => self.histogram(self.at, Histogram::stale()),
            false => self.sample(self.at, stale_nan()),
        }
    }

    /// Adds a sample about the scrape.
    pub(super) fn report(&mut self, labels: &[u8], value: f64) {
        self.bare_series([labels, &[]]);
        self.sample(self.at, value);
    }

    /// Returns the labels in a range that [`ScrapeBatch::series`] returned.
    pub(super) fn labels(&self, range: Range<usize>) -> &[u8] {
        self.labels.get(range).unwrap_or_default()
    }

    /// Sets the response whose exemplars, start times and metadata belong to the series.
    pub(super) fn set_translated(&mut self, translated: Translated) {
        self.translated = translated;
    }

    /// Returns the number of samples, markers and histograms included.
    pub fn len(&self) -> usize {
        self.samples.len().saturating_add(self.histograms.len())
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the batch for the store, which borrows from this one.
    pub fn batch(&self) -> WriteBatch<'_> {
        let sent = self.translated.batch.batch();
        let place = |series: usize| {
            let place = self.places.get(series).copied().filter(|place| *place != NOWHERE)?;
            usize::try_from(place).ok()
        };
        let exemplars = sent.exemplars.into_iter().filter_map(|one| {
            Some(WriteExemplar { series: place(one.series)?, at: self.time(one.at), ..one })
        });
        let starts = sent
            .starts
            .into_iter()
            .filter_map(|one| Some(WriteStart { series: place(one.series)?, at: self.time(one.at), ..one }));
        let series = self.series.iter().map(|(labels, samples)| WriteSeries {
            raw_labels: self.labels.get(labels.clone()).unwrap_or_default(),
            samples: samples.clone(),
        });
        WriteBatch {
            series: series.collect(),
            samples: self.samples.clone(),
            histograms: self.histograms.clone(),
            exemplars: exemplars.collect(),
            starts: starts.collect(),
            metadata: if self.with_metadata { sent.metadata } else { Vec::new() },
            exemplar_labels: sent.exemplar_labels,
            ..WriteBatch::new(BatchBuilder::ENCODING, sent.parse_labels, sent.is_labels, 0)
        }
    }
}
