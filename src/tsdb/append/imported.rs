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

/// Time and bits of the newest sample in order, by series.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct NewestSamples(Vec<(i64, u64)>);

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

/// Returns the first and the last time of a run that is taken as it is: it ascends, none of its
/// samples is ahead of the clock, and either all are late or all follow `newest`, which becomes the
/// last one then.
fn plain_span(
    run: &[LogSample],
    times: ImportTimes,
    newest: &mut (i64, u64),
    newest_in_head: impl Fn(u32) -> Option<(i64, u64)>,
) -> Option<(i64, i64)> {
    let (first, last) = (run.first()?, run.last()?);
    let is_late = last.at_ms < times.barrier_ms;
    if !is_late && newest.0 == NO_TIME {
        *newest = newest_in_head(last.series).unwrap_or(*newest);
    }
    let follows = is_late || first.at_ms > newest.0;
    if !follows || last.at_ms > times.now_ms || !run.is_sorted_by(|a, b| a.at_ms < b.at_ms) {
        return None;
    }
    if !is_late {
        *newest = (last.at_ms, last.bits);
    }
    Some((first.at_ms, last.at_ms))
}

impl NewestSamples {
    fn get(&self, series: u32) -> (i64, u64) {
        self.0.get(series as usize).copied().unwrap_or((NO_TIME, 0))
    }

    fn set(&mut self, series: u32, newest: (i64, u64)) {
        let place = series as usize;
        if self.0.len() <= place {
            self.0.resize(place + 1, (NO_TIME, 0));
        }
        if let Some(slot) = self.0.get_mut(place) {
            *slot = newest;
        }
    }
}

impl ImportedSamples {
    /// Takes the samples of a prepared batch, except those that are later than the clock. Equal
    /// times are decided as in a head: another value than that of the newest sample in order is
    /// refused. `known` has the newest samples of earlier batches. `newest_in_head` returns the
    /// newest sample of a series, if the head has one.
    pub(in crate::tsdb) fn take(
        &mut self,
        samples: &mut Vec<LogSample>,
        times: ImportTimes,
        known: &mut NewestSamples,
        newest_in_head: impl Fn(u32) -> Option<(i64, u64)>,
    ) -> ApplyOutcome {
        let mut outcome = ApplyOutcome::default();
        let mut ahead = Vec::new();
        for run in samples.chunk_by(|a, b| a.series == b.series) {
            let Some(series) = run.first().map(|sample| sample.series) else { continue };
            let first = self.times.len();
            let mut newest = known.get(series);
            if let Some(span) = plain_span(run, times, &mut newest, &newest_in_head) {
                self.times.extend(run.iter().map(|sample| sample.at_ms));
                self.bits.extend(run.iter().map(|sample| sample.bits));
                self.end_run(series, first, span);
                known.set(series, newest);
                outcome.stored += run.len() as u64;
                continue;
            }
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
            let times = self.times.get(first..).unwrap_or_default();
            if let Some(span) = times.iter().min().copied().zip(times.iter().max().copied()) {
                self.end_run(series, first, span);
            }
            known.set(series, newest);
            outcome.stored += (self.times.len() - first) as u64;
        }
        *samples = ahead;
        outcome
    }

    /// Adds the samples from the index `first` on as a run. The span is their least and greatest
    /// time.
    fn end_run(&mut self, series: u32, first: usize, (least, greatest): (i64, i64)) {
        let before = self.span.unwrap_or((least, greatest));
        self.span = Some((before.0.min(least), before.1.max(greatest)));
        self.runs.push(ImportedRun { series, first, len: self.times.len() - first });
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
        let mut known = NewestSamples::default();
        let outcome = samples.take(&mut batch, TIMES, &mut known, |_| None);
        assert_eq!((outcome.stored, outcome.refused), (5, 1));
        assert_eq!(outcome.first, [RefusedSample { series: 2, at_ms: 60, bits: 2, have: 1 }]);
        assert_eq!(batch, [sample(1, 101, 6)], "samples ahead of the clock are left for the log");
        let mut batch = vec![sample(2, 60, 7), sample(2, 70, 8), sample(2, 60, 9)];
        let outcome = samples.take(&mut batch, TIMES, &mut known, |_| None);
        assert_eq!((outcome.stored, outcome.refused), (2, 1), "60 is no longer the newest");
        assert_eq!(of(&mut samples, 2), [(40, 4), (60, 9), (70, 8)]);
        assert_eq!((of(&mut samples, 1), of(&mut samples, 3)), (vec![(10, 5)], Vec::new()));
        assert_eq!(samples.span(), Some((10, 70)));
        let mut batch = vec![sample(5, 80, 1), sample(5, 70, 1)];
        let outcome = samples.take(&mut batch, TIMES, &mut known, |_| Some((80, 2)));
        assert_eq!((outcome.stored, outcome.refused), (1, 1), "the head has the newest");
    }

    #[test]
    fn the_batches_of_a_series_are_merged_and_the_last_one_wins() {
        let mut samples = ImportedSamples::default();
        let mut known = NewestSamples::default();
        let mut first = vec![sample(7, 10, 1), sample(7, 30, 1), sample(8, 5, 1)];
        samples.take(&mut first, TIMES, &mut known, |_| None);
        samples.take(&mut vec![sample(7, 20, 2), sample(7, 30, 2)], TIMES, &mut known, |_| None);
        // Earlier than the end of the closed window: the last one wins.
        assert_eq!(of(&mut samples, 7), [(10, 1), (20, 2), (30, 2)]);
        assert_eq!(of(&mut samples, 8), [(5, 1)]);
        samples.clear();
        assert_eq!((samples.bytes(), samples.span(), of(&mut samples, 7)), (0, None, Vec::new()));
    }
}
