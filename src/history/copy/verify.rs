//! A comparison of a source with the destination of a copy, by a digest for each series.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{CopyFilter, CopyLookup, CopySeries, CopyShare, CopySource, SampleCopyError};
use crate::model::{Histogram, HistogramCounts, Labels};

/// The most differences that a report lists.
const DIFFERENCES_LISTED: usize = 20;

/// A digest of the samples of a series at some times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyDigest {
    /// The number of samples.
    pub count: u64,
    /// A hash of times and values.
    pub hash: u64,
}

/// A series that differs: its labels, and the digests at the source and at the destination.
pub type CopyDifference = (Labels, CopyDigest, CopyDigest);

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// The compared parts of series.
    pub compared: u64,
    /// The number of compared samples; duplicates in the source count each time.
    pub samples: u64,
    /// The parts that differ.
    pub different: u64,
    /// The first differences.
    pub listed: Vec<CopyDifference>,
    /// The parts of the source that cannot be read.
    pub problems: Vec<String>,
}

/// Returns the values of a series by time in milliseconds, as numbers that are equal only for equal
/// values. Every NaN is the same, because not every format keeps its bits. The last value of a time
/// counts, and a histogram rather than a float.
pub(super) fn samples_of(series: &CopySeries) -> BTreeMap<i64, (u8, u64)> {
    let floats = series.samples.iter().map(|one| (one.at.as_ms(), (0, bits(one.value))));
    let natives = series.histograms.iter().map(|(at, one)| (at.as_ms(), (1, digest_of_histogram(one))));
    floats.chain(natives).collect()
}

fn bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
}

fn digest_of_histogram(histogram: &Histogram) -> u64 {
    if histogram.is_stale() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    let shape = histogram.shape();
    (shape.schema(), bits(shape.zero_threshold()), bits(histogram.sum())).hash(&mut hasher);
    shape.custom_values().iter().for_each(|bound| bits(*bound).hash(&mut hasher));
    (shape.positive(), shape.negative()).hash(&mut hasher);
    match histogram.counts() {
        HistogramCounts::Integer { count, zero, buckets } => (0, count, zero, buckets).hash(&mut hasher),
        HistogramCounts::Float { count, zero, buckets } => {
            (1, bits(*count), bits(*zero)).hash(&mut hasher);
            buckets.iter().for_each(|bucket| bits(*bucket).hash(&mut hasher));
        }
    }
    hasher.finish()
}

fn digest<'s>(samples: impl Iterator<Item = (&'s i64, &'s (u8, u64))>) -> CopyDigest {
    let (mut count, mut hasher) = (0_u64, DefaultHasher::new());
    for sample in samples {
        count = count.saturating_add(1);
        sample.hash(&mut hasher);
    }
    CopyDigest { count, hash: hasher.finish() }
}

/// Reads a source to its end, and compares each series with the destination at the times of the
/// source.
///
/// # Errors
/// [`SampleCopyError`].
pub fn verify(
    source: &mut dyn CopySource,
    filter: &CopyFilter,
    lookup: &mut dyn CopyLookup,
    observe: &mut dyn FnMut(CopyShare, u64) -> bool,
) -> Result<VerifyReport, SampleCopyError> {
    let mut report = VerifyReport::default();
    while let Some(mut batch) = source.next()? {
        filter.apply(&mut batch);
        for series in &batch.series {
            let Some(range) = series.range() else { continue };
            let here = samples_of(series);
            let mut there = samples_of(&lookup.samples(&series.labels, range)?.into());
            there.retain(|at, _| here.contains_key(at));
            let (own, other) = (digest(here.iter()), digest(there.iter()));
            report.compared = report.compared.saturating_add(1);
            report.samples = report.samples.saturating_add(own.count);
            if own != other {
                report.different = report.different.saturating_add(1);
                if report.listed.len() < DIFFERENCES_LISTED {
                    report.listed.push((series.labels.clone(), own, other));
                }
            }
        }
        if !observe(source.share(), report.samples) {
            return Err(SampleCopyError::Stopped);
        }
    }
    report.problems = source.problems();
    Ok(report)
}
