//! Raw samples of one series that come from outside of the store, such as an upstream.

use super::{Histogram, HistogramColumns, Labels};

/// The labels and the raw samples of one series.
///
/// Times are in milliseconds since the epoch. After [`RawSeries::finish`], they ascend strictly,
/// and no time has both a float and a native histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawSeries {
    /// The whole label set.
    pub labels: Labels,
    /// The times of the floats.
    pub times: Vec<i64>,
    /// The floats, including staleness markers.
    pub values: Vec<f64>,
    /// The native histograms, including staleness markers.
    pub histograms: HistogramColumns,
}

impl RawSeries {
    /// Returns a series without samples.
    pub fn new(labels: Labels) -> RawSeries {
        RawSeries { labels, ..RawSeries::default() }
    }

    /// Appends a float.
    pub fn push(&mut self, at_ms: i64, value: f64) {
        self.times.push(at_ms);
        self.values.push(value);
    }

    /// Appends all samples of another part of the series. Histograms take precedence at equal
    /// times.
    pub fn append(&mut self, other: RawSeries) {
        self.times.extend(other.times);
        self.values.extend(other.values);
        self.histograms.extend(other.histograms.times.into_iter().zip(other.histograms.histograms));
    }

    /// Sorts the samples by time and keeps one of each time: the last one of its kind, and a
    /// histogram rather than a float.
    pub fn finish(&mut self) {
        let HistogramColumns { times, histograms } = &mut self.histograms;
        if !times.is_sorted_by(|a, b| a < b) {
            (*times, *histograms) = latest_by_time(std::mem::take(times), std::mem::take(histograms));
        }
        if !self.times.is_sorted_by(|a, b| a < b) {
            (self.times, self.values) =
                latest_by_time(std::mem::take(&mut self.times), std::mem::take(&mut self.values));
        }
        if !times.is_empty() && !self.times.is_empty() {
            let floats = std::mem::take(&mut self.times).into_iter().zip(std::mem::take(&mut self.values));
            (self.times, self.values) = floats.filter(|(at, _)| times.binary_search(at).is_err()).unzip();
        }
    }

    /// Returns the number of samples of both kinds.
    pub fn len(&self) -> usize {
        self.times.len().saturating_add(self.histograms.len())
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the estimated memory in bytes, labels included. A layout that several histograms
    /// share counts once for each run of neighbours.
    pub fn bytes(&self) -> u64 {
        let HistogramColumns { times, histograms } = &self.histograms;
        let mut bytes = size_of::<RawSeries>()
            .saturating_add(Labels::bytes_behind([&self.labels]))
            .saturating_add(16_usize.saturating_mul(self.times.capacity()))
            .saturating_add(8_usize.saturating_mul(times.capacity()));
        let mut shape = std::ptr::null();
        for histogram in histograms {
            bytes = bytes.saturating_add(histogram.bytes());
            let own = std::sync::Arc::as_ptr(histogram.shape());
            if own != shape {
                shape = own;
                bytes = bytes.saturating_add(histogram.shape().bytes());
            }
        }
        bytes as u64
    }

    /// Appends a native histogram, which shares the layout of the previous one if they are equal.
    pub fn push_histogram(&mut self, at_ms: i64, histogram: Histogram) {
        let histogram = match self.histograms.histograms.last() {
            Some(before) => histogram.sharing(before.shape()),
            None => histogram,
        };
        self.histograms.push(at_ms, histogram);
    }
}

/// Sorts samples by time, and keeps the last one of each time.
fn latest_by_time<T>(times: Vec<i64>, values: Vec<T>) -> (Vec<i64>, Vec<T>) {
    let mut samples: Vec<(i64, T)> = times.into_iter().zip(values).collect();
    // The sort is stable, so the last one of a time stays the last.
    samples.sort_by_key(|(at, _)| *at);
    samples.reverse();
    samples.dedup_by_key(|(at, _)| *at);
    samples.reverse();
    samples.into_iter().unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_series_has_one_sample_of_each_time_and_the_last_one_wins() {
        let mut series = RawSeries::new(Labels::from_pairs([("__name__", "m")]));
        for (at, value) in [(30, 1.0), (10, 2.0), (30, 3.0), (20, 4.0)] {
            series.push(at, value);
        }
        let mut newer = RawSeries::new(series.labels.clone());
        newer.push(10, 5.0);
        newer.push_histogram(20, Histogram::stale());
        series.append(newer);
        series.finish();
        assert_eq!((series.times.as_slice(), series.values.as_slice()), (&[10, 30][..], &[5.0, 3.0][..]));
        assert_eq!(series.histograms.times, [20]);
        assert_eq!(series.len(), 3);
        assert!(series.bytes() > 48);
    }
}
