//! The samples of decoded series, added to the batch of a scrape.

use super::batch::ScrapeBatch;
use super::error::ScrapeError;
use super::resolution::limited;
use super::response::NO_TIME;
use crate::model::{HistogramSample, Sample, Timestamp, WriteBatch};
use crate::scrape::config::ScrapeJob;

/// The numbers of one scrape.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScrapeCounts {
    pub(super) scraped: u64,
    pub(super) kept: u64,
    pub(super) added: u64,
    pub(super) duplicates: u64,
}

/// A decoded series.
#[derive(Clone, Copy)]
pub(super) struct DecodedSeries<'a> {
    pub(super) raw: &'a [u8],
    pub(super) samples: &'a [Sample],
    pub(super) histograms: &'a [HistogramSample],
}

/// Adds the samples of series to a batch.
pub(super) struct SampleSink<'s> {
    pub(super) job: &'s ScrapeJob,
    pub(super) batch: &'s mut ScrapeBatch,
    pub(super) counts: &'s mut ScrapeCounts,
}

impl SampleSink<'_> {
    /// Adds the samples and histograms of the last series of the batch. A sample without a time
    /// counts only if it is the first one of its series in this scrape.
    pub(super) fn add(&mut self, series: &DecodedSeries<'_>, is_repeated: bool) -> Result<(), ScrapeError> {
        let honor = self.job.honor_timestamps;
        let mut is_first = !is_repeated;
        let mut counts = |at: Timestamp| {
            let is_taken = is_first || (honor && at != NO_TIME);
            is_first = false;
            is_taken
        };
        for sample in series.samples {
            self.counts.kept += 1;
            match counts(sample.at) {
                true => {
                    let at = self.batch.time(sample.at);
                    if self.batch.admits(at) {
                        self.batch.sample(at, sample.value);
                    }
                }
                false => self.counts.duplicates += 1,
            }
        }
        for one in series.histograms {
            self.counts.kept += 1;
            let Ok(histogram) = &one.value else { continue };
            match counts(one.at) {
                true => {
                    let histogram = limited(histogram.clone(), &self.job.limits)?;
                    let at = self.batch.time(one.at);
                    if self.batch.admits(at) {
                        self.batch.histogram(at, histogram);
                    }
                }
                false => self.counts.duplicates += 1,
            }
        }
        Ok(())
    }
}

/// Iterates over the series of a response, in order.
pub(super) fn series_of<'a>(sent: &'a WriteBatch<'_>) -> impl Iterator<Item = DecodedSeries<'a>> {
    let mut histograms = &*sent.histograms;
    sent.series.iter().enumerate().map(move |(place, series)| {
        let own = histograms.iter().take_while(|one| one.series == place).count();
        let (own, rest) = histograms.split_at_checked(own).unwrap_or_default();
        histograms = rest;
        let samples = sent.samples.get(series.samples.clone()).unwrap_or_default();
        DecodedSeries { raw: series.raw_labels, samples, histograms: own }
    })
}
