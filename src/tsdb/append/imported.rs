//! Samples of an import that go to segments without the log.

use crate::tsdb::report::SampleColumns;
use crate::tsdb::wal::log::{ApplyOutcome, RefusedSample};
use crate::tsdb::wal::samples::LogSample;

/// The bytes of a sample.
const SAMPLE_BYTES: u64 = 16;

/// Admitted samples in the order in which they arrived, in memory only.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct ImportedSamples {
    times: Vec<i64>,
    bits: Vec<u64>,
    runs: Vec<ImportedRun>,
    /// The least and the greatest time.
    span: Option<(i64, i64)>,
}

/// Consecutive samples of one series.
#[derive(Clone, Copy, Debug)]
struct ImportedRun {
    series: u32,
    /// The index of its first sample.
    first: usize,
    len: usize,
}

/// The times that decide about an imported sample.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct ImportTimes {
    /// Later samples are left for the log, because a seal leaves them in the head.
    pub(in crate::tsdb) now_ms: i64,
    /// The exclusive end of the sealed time. Earlier samples are late.
    pub(in crate::tsdb) barrier_ms: i64,
}

impl ImportedSamples {
    /// Takes the samples of a prepared batch, except those that are later than the clock. Where a
    /// series has several values at one time one after the other, the first is kept, as in a head;
    /// of late samples, the last.
    pub(in crate::tsdb) fn take(&mut self, samples: &mut Vec<LogSample>, times: ImportTimes) -> ApplyOutcome {
        let mut outcome = ApplyOutcome::default();
        let mut ahead = Vec::new();
        for run in samples.chunk_by(|a, b| a.series == b.series) {
            let first = self.times.len();
            let mut before: Option<(i64, u64)> = None;
            for sample @ LogSample { series, at_ms, bits } in run.iter().copied() {
                if at_ms > times.now_ms {
                    ahead.push(sample);
                    continue;
                }
                if let Some((_, have)) = before.filter(|(at, _)| *at == at_ms && at_ms >= times.barrier_ms) {
                    match have == bits {
                        true => outcome.stored += 1,
                        false => outcome.refuse(RefusedSample { series, at_ms, bits, have }),
                    }
                    continue;
                }
                before = Some((at_ms, bits));
                let (least, greatest) = self.span.unwrap_or((at_ms, at_ms));
                self.span = Some((least.min(at_ms), greatest.max(at_ms)));
                self.times.push(at_ms);
                self.bits.push(bits);
            }
            let len = self.times.len() - first;
            outcome.stored += len as u64;
            if let Some(LogSample { series, .. }) = run.first().filter(|_| len > 0) {
                self.runs.push(ImportedRun { series: *series, first, len });
            }
        }
        *samples = ahead;
        outcome
    }

    /// Returns the number of samples.
    pub(in crate::tsdb) fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns the memory of the samples in bytes, which their segments do not exceed by much.
    pub(in crate::tsdb) fn bytes(&self) -> u64 {
        self.times.len() as u64 * SAMPLE_BYTES
    }

    /// Returns the least and the greatest time; none without samples.
    pub(in crate::tsdb) fn span(&self) -> Option<(i64, i64)> {
        self.span
    }

    /// Removes all samples, and keeps their memory for the next ones.
    pub(in crate::tsdb) fn clear(&mut self) {
        self.times.clear();
        self.bits.clear();
        self.runs.clear();
        self.span = None;
    }

    /// Sorts the runs by series, for [`ImportedSamples::copy`]. Runs of one series keep their order.
    pub(in crate::tsdb) fn sort(&mut self) {
        self.runs.sort_by_key(|run| run.series);
    }

    /// Appends the samples of a series to `out`, ascending. At equal times, the last sample wins.
    pub(in crate::tsdb) fn copy(&self, series: u32, out: &mut SampleColumns) {
        let from = out.times.len();
        let first = self.runs.partition_point(|run| run.series < series);
        let runs = self.runs.get(first..).unwrap_or_default();
        for ImportedRun { first, len, .. } in runs.iter().take_while(|run| run.series == series) {
            let range = *first..first + len;
            out.times.extend_from_slice(self.times.get(range.clone()).unwrap_or_default());
            let bits = self.bits.get(range).unwrap_or_default();
            out.values.extend(bits.iter().map(|bits| f64::from_bits(*bits)));
        }
        let times = out.times.get(from..).unwrap_or_default();
        if !times.is_sorted_by(|a, b| a < b) {
            let (times, values) = (out.times.split_off(from), out.values.split_off(from));
            let mut all: Vec<(i64, f64)> = times.into_iter().zip(values).collect();
            // The sort is stable, so that the last of equal times stays the last.
            all.sort_by_key(|(at, _)| *at);
            all.dedup_by(|later, earlier| {
                let same = later.0 == earlier.0;
                if same {
                    earlier.1 = later.1;
                }
                same
            });
            out.times.extend(all.iter().map(|(at, _)| *at));
            out.values.extend(all.iter().map(|(_, value)| *value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: ImportTimes = ImportTimes { now_ms: 100, barrier_ms: 50 };

    fn sample(series: u32, at_ms: i64, bits: u64) -> LogSample {
        LogSample { series, at_ms, bits }
    }

    fn of(samples: &mut ImportedSamples, series: u32) -> Vec<(i64, u64)> {
        samples.sort();
        let mut out = SampleColumns::default();
        samples.copy(series, &mut out);
        out.times.iter().copied().zip(out.values.iter().map(|value| value.to_bits())).collect()
    }

    #[test]
    fn of_samples_at_one_time_the_first_in_order_and_the_last_late_one_are_kept() {
        let mut samples = ImportedSamples::default();
        let mut batch = vec![
            sample(2, 60, 1),
            sample(2, 60, 2),
            sample(2, 60, 1),
            sample(2, 40, 3),
            sample(2, 40, 4),
            sample(1, 10, 5),
            sample(1, 101, 6),
        ];
        let outcome = samples.take(&mut batch, TIMES);
        assert_eq!((outcome.stored, outcome.refused), (5, 1));
        assert_eq!(outcome.first, [RefusedSample { series: 2, at_ms: 60, bits: 2, have: 1 }]);
        assert_eq!(batch, [sample(1, 101, 6)], "samples ahead of the clock are left for the log");
        assert_eq!(of(&mut samples, 2), [(40, 4), (60, 1)]);
        assert_eq!((of(&mut samples, 1), of(&mut samples, 3)), (vec![(10, 5)], Vec::new()));
        assert_eq!((samples.span(), samples.len()), (Some((10, 60)), 4));
    }

    #[test]
    fn the_batches_of_a_series_are_merged_and_the_last_one_wins() {
        let mut samples = ImportedSamples::default();
        samples.take(&mut vec![sample(7, 10, 1), sample(7, 30, 1), sample(8, 5, 1)], TIMES);
        samples.take(&mut vec![sample(7, 20, 2), sample(7, 30, 2)], TIMES);
        assert_eq!(of(&mut samples, 7), [(10, 1), (20, 2), (30, 2)]);
        assert_eq!(of(&mut samples, 8), [(5, 1)]);
        samples.clear();
        assert_eq!((samples.len(), samples.span(), of(&mut samples, 7)), (0, None, Vec::new()));
    }
}
