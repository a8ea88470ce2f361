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
    /// Time and bits of the newest sample in order, by series. The list is not cleared with the
    /// samples.
    newest: Vec<(i64, u64)>,
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
    /// The end of the closed window, exclusive. Earlier samples are late.
    pub(in crate::tsdb) barrier_ms: i64,
}

/// The time of a series whose newest sample in order is not known.
const NO_TIME: i64 = i64::MIN;

impl ImportedSamples {
    /// Takes the samples of a prepared batch, except those that are later than the clock. Equal
    /// times are decided as in a head: another value than that of the newest sample in order is
    /// refused. `newest_in_head` returns that sample of a series, if the head has one.
    pub(in crate::tsdb) fn take(
        &mut self,
        samples: &mut Vec<LogSample>,
        times: ImportTimes,
        newest_in_head: impl Fn(u32) -> Option<(i64, u64)>,
    ) -> ApplyOutcome {
        let mut outcome = ApplyOutcome::default();
        let mut ahead = Vec::new();
        for run in samples.chunk_by(|a, b| a.series == b.series) {
            let Some(series) = run.first().map(|sample| sample.series) else { continue };
            let first = self.times.len();
            let mut newest = self.newest.get(series as usize).copied().unwrap_or((NO_TIME, 0));
            for sample @ LogSample { at_ms, bits, .. } in run.iter().copied() {
                let (in_order, is_ahead) = (at_ms >= times.barrier_ms, at_ms > times.now_ms);
                if in_order && newest.0 == NO_TIME {
                    newest = newest_in_head(series).unwrap_or(newest);
                }
                if in_order && at_ms == newest.0 && !is_ahead {
                    match newest.1 {
                        have if have == bits => outcome.stored += 1,
                        have => outcome.refuse(RefusedSample { series, at_ms, bits, have }),
                    }
                    continue;
                }
                if in_order && at_ms > newest.0 {
                    newest = (at_ms, bits);
                }
                if is_ahead {
                    ahead.push(sample);
                } else {
                    self.times.push(at_ms);
                    self.bits.push(bits);
                }
            }
            self.end_run(series, first, newest);
            outcome.stored += (self.times.len() - first) as u64;
        }
        *samples = ahead;
        outcome
    }

    fn end_run(&mut self, series: u32, first: usize, newest: (i64, u64)) {
        let times = self.times.get(first..).unwrap_or_default();
        if let Some((least, greatest)) = times.iter().min().copied().zip(times.iter().max().copied()) {
            let before = self.span.unwrap_or((least, greatest));
            self.span = Some((before.0.min(least), before.1.max(greatest)));
            self.runs.push(ImportedRun { series, first, len: times.len() });
        }
        let place = series as usize;
        if self.newest.len() <= place {
            self.newest.resize(place + 1, (NO_TIME, 0));
        }
        if let Some(slot) = self.newest.get_mut(place) {
            *slot = newest;
        }
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

    /// Sorts the runs by series for [`ImportedSamples::copy`]. The samples of a series keep their
    /// order.
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
        if out.times.get(from..).is_some_and(|times| times.is_sorted_by(|a, b| a < b)) {
            return;
        }
        let (times, values) = (out.times.split_off(from), out.values.split_off(from));
        let mut all: Vec<(i64, f64)> = times.into_iter().zip(values).collect();
        // The sort is stable, so the last of equal times stays the last.
        all.sort_by_key(|(at, _)| *at);
        for group in all.chunk_by(|a, b| a.0 == b.0) {
            if let Some((at, value)) = group.last() {
                out.times.push(*at);
                out.values.push(*value);
            }
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
    fn of_samples_at_one_time_the_newest_in_order_and_the_last_late_one_are_kept() {
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
        let outcome = samples.take(&mut batch, TIMES, |_| None);
        assert_eq!((outcome.stored, outcome.refused), (5, 1));
        assert_eq!(outcome.first, [RefusedSample { series: 2, at_ms: 60, bits: 2, have: 1 }]);
        assert_eq!(batch, [sample(1, 101, 6)], "samples ahead of the clock are left for the log");
        let outcome =
            samples.take(&mut vec![sample(2, 60, 7), sample(2, 70, 8), sample(2, 60, 9)], TIMES, |_| None);
        assert_eq!((outcome.stored, outcome.refused), (2, 1), "60 is no longer the newest");
        assert_eq!(of(&mut samples, 2), [(40, 4), (60, 9), (70, 8)]);
        assert_eq!((of(&mut samples, 1), of(&mut samples, 3)), (vec![(10, 5)], Vec::new()));
        assert_eq!(samples.span(), Some((10, 70)));
        let outcome = samples.take(&mut vec![sample(5, 80, 1), sample(5, 70, 1)], TIMES, |_| Some((80, 2)));
        assert_eq!((outcome.stored, outcome.refused), (1, 1), "the head has the newest");
    }

    #[test]
    fn the_batches_of_a_series_are_merged_and_the_last_one_wins() {
        let mut samples = ImportedSamples::default();
        samples.take(&mut vec![sample(7, 10, 1), sample(7, 30, 1), sample(8, 5, 1)], TIMES, |_| None);
        samples.take(&mut vec![sample(7, 20, 2), sample(7, 30, 2)], TIMES, |_| None);
        // Earlier than the end of the closed window: the last one wins.
        assert_eq!(of(&mut samples, 7), [(10, 1), (20, 2), (30, 2)]);
        assert_eq!(of(&mut samples, 8), [(5, 1)]);
        samples.clear();
        assert_eq!((samples.bytes(), samples.span(), of(&mut samples, 7)), (0, None, Vec::new()));
    }
}
