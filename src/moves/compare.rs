//! Digests of series, by which the store and a target are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::batch::{BatchSeries, MoveBatch};
use super::readback::RemoteSeries;
use crate::model::{Labels, is_stale};

/// The largest relative difference of a value that a target rounded.
const ROUNDING: f64 = 1e-12;

/// Returns whether two values are the same, apart from rounding. Every NaN counts as the same.
pub(super) fn is_near(a: f64, b: f64) -> bool {
    let is_rounded = || a.is_finite() && b.is_finite() && (a - b).abs() <= ROUNDING * a.abs().max(b.abs());
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan() || is_rounded()
}

/// The summary of one series in a time range. Staleness markers are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SeriesDigest {
    /// The number of samples, histograms included.
    pub(super) count: usize,
    /// The first time in milliseconds.
    pub(super) first_ms: i64,
    /// The last time in milliseconds.
    pub(super) last_ms: i64,
    /// A hash of all times.
    pub(super) times: u64,
    /// A hash of the bits of all float values. Every NaN counts as the same.
    pub(super) values: u64,
}

impl SeriesDigest {
    fn of(samples: &[(i64, f64)], histogram_times: &[i64]) -> SeriesDigest {
        let (mut times, mut values) = (DefaultHasher::new(), DefaultHasher::new());
        for (at, value) in samples {
            at.hash(&mut times);
            let bits = if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
            bits.hash(&mut values);
        }
        histogram_times.hash(&mut times);
        let all = || samples.iter().map(|(at, _)| *at).chain(histogram_times.iter().copied());
        SeriesDigest {
            count: samples.len() + histogram_times.len(),
            first_ms: all().min().unwrap_or_default(),
            last_ms: all().max().unwrap_or_default(),
            times: times.finish(),
            values: values.finish(),
        }
    }
}

/// Samples of a series as both sides are compared: times and values, and times of histograms.
type ComparedSamples = (Vec<(i64, f64)>, Vec<i64>);

fn compared(series: &BatchSeries) -> ComparedSamples {
    let floats = series.samples.iter().filter(|one| !is_stale(one.value));
    let histograms = series.histograms.iter().filter(|(_, histogram)| !histogram.is_stale());
    (floats.map(|one| (one.at.as_ms(), one.value)).collect(), histograms.map(|(at, _)| at.as_ms()).collect())
}

/// Returns the samples of a series at the target, without those that stand for a staleness marker
/// of the same series here: VictoriaMetrics returns markers, as NaN, and other engines do not.
fn without_markers(series: &BatchSeries, there: &RemoteSeries) -> Vec<(i64, f64)> {
    let floats = series.samples.iter().filter(|one| is_stale(one.value)).map(|one| one.at.as_ms());
    let histograms = series.histograms.iter().filter(|(_, histogram)| histogram.is_stale());
    let markers: BTreeSet<i64> = floats.chain(histograms.map(|(at, _)| at.as_ms())).collect();
    let is_marker = |(at, value): &(i64, f64)| value.is_nan() && markers.contains(at);
    there.samples.iter().copied().filter(|sample| !is_marker(sample)).collect()
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Comparison {
    /// The number of compared series.
    pub(super) series: u64,
    /// Values that the target rounded in their last digits.
    pub(super) rounded: u64,
    /// Series that differ: the labels, the digest of this store, and that of the target.
    pub(super) different: Vec<(Labels, SeriesDigest, SeriesDigest)>,
}

/// Compares the series of a batch with those of a target, by their digests.
pub(super) fn compare(here: &MoveBatch, there: &[RemoteSeries]) -> Comparison {
    let mut result = Comparison::default();
    let mut remote: BTreeMap<&Labels, &RemoteSeries> = there.iter().map(|one| (&one.labels, one)).collect();
    let empty = RemoteSeries::default();
    for series in &here.series {
        let (samples, histogram_times) = compared(series);
        let there = remote.remove(&series.labels).unwrap_or(&empty);
        result.series += 1;
        let own = SeriesDigest::of(&samples, &histogram_times);
        let there_samples = without_markers(series, there);
        let other = SeriesDigest::of(&there_samples, &there.histogram_times);
        if own == other {
            continue;
        }
        let has_same_times = SeriesDigest { values: own.values, ..other } == own;
        let near = |(a, b): (&(i64, f64), &(i64, f64))| is_near(a.1, b.1);
        if has_same_times && samples.iter().zip(&there_samples).all(near) {
            let pairs = samples.iter().zip(&there_samples);
            result.rounded +=
                pairs.filter(|(a, b)| a.1.to_bits() != b.1.to_bits() && !a.1.is_nan()).count() as u64;
        } else {
            result.different.push((series.labels.clone(), own, other));
        }
    }
    for (labels, series) in remote {
        let other = SeriesDigest::of(&series.samples, &series.histogram_times);
        if other.count > 0 {
            result.different.push((labels.clone(), SeriesDigest::of(&[], &[]), other));
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Sample, Timestamp, stale_nan};

    fn batch(name: &str, samples: &[(i64, f64)]) -> MoveBatch {
        let samples =
            samples.iter().map(|(at, value)| Sample { at: Timestamp::from_ms(*at), value: *value }).collect();
        let labels = Labels::from_pairs([("__name__", name)]);
        MoveBatch { series: vec![BatchSeries { labels, samples, ..BatchSeries::default() }] }
    }

    fn remote(name: &str, samples: &[(i64, f64)]) -> RemoteSeries {
        let labels = Labels::from_pairs([("__name__", name)]);
        RemoteSeries { labels, samples: samples.to_vec(), histogram_times: Vec::new() }
    }

    #[test]
    fn equal_series_differ_in_nothing_and_staleness_markers_do_not_count() {
        let here = batch("a", &[(1, 0.5), (2, stale_nan()), (3, f64::NAN)]);
        let found = compare(&here, &[remote("a", &[(1, 0.5), (3, -f64::NAN)])]);
        assert_eq!((found.series, found.rounded, found.different.len()), (1, 0, 0));
        let found = compare(&here, &[remote("a", &[(1, 0.5), (2, f64::NAN), (3, f64::NAN)])]);
        assert_eq!(found.different, [], "VictoriaMetrics returns markers as NaN");
        for wrong in [[(1, 0.5), (2, 7.0), (3, f64::NAN)], [(1, 0.5), (2, f64::NAN), (4, f64::NAN)]] {
            assert_eq!(compare(&here, &[remote("a", &wrong)]).different.len(), 1, "{wrong:?}");
        }
    }

    #[test]
    fn a_lost_a_doubled_and_an_unknown_sample_is_found() {
        let here = batch("a", &[(1, 0.5), (2, 1.5)]);
        let cases: [&[RemoteSeries]; 5] = [
            &[remote("a", &[(1, 0.5)])],
            &[remote("a", &[(1, 0.5), (1, 0.5), (2, 1.5)])],
            &[remote("a", &[(1, 0.5), (2, 1.25)])],
            &[remote("a", &[(1, 0.5), (2, 1.5)]), remote("b", &[(1, 1.0)])],
            &[],
        ];
        for there in cases {
            assert_eq!(compare(&here, there).different.len(), 1, "{there:?}");
        }
    }

    #[test]
    fn an_infinity_equals_itself_only() {
        let (infinity, big) = (f64::INFINITY, f64::MAX);
        for (here, there) in [(infinity, 5.0), (5.0, infinity), (infinity, -infinity), (infinity, big)] {
            let found = compare(&batch("a", &[(1, here)]), &[remote("a", &[(1, there)])]);
            assert_eq!((found.rounded, found.different.len()), (0, 1), "{here} and {there}");
        }
        let found = compare(&batch("a", &[(1, infinity)]), &[remote("a", &[(1, infinity)])]);
        assert_eq!((found.rounded, found.different.len()), (0, 0));
    }

    #[test]
    fn a_rounded_value_is_counted_and_is_no_difference() {
        let here = batch("a", &[(1, 0.1 + 0.2), (2, 1.0)]);
        let found = compare(&here, &[remote("a", &[(1, 0.3), (2, 1.0)])]);
        assert_eq!((found.rounded, found.different.len()), (1, 0));
    }
}
