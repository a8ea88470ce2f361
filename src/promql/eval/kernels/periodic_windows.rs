//! Detection of windows that repeat: regularly scraped series, and a step that fits their interval.

use super::windows::{AscendingTimes, SampleRange};

/// Longest round of windows that is detected, in steps.
const ROUND_MAX: usize = 32;

/// A stretch of the list in which all times have the distance of the first two.
///
/// Windows repeat: after as many steps as make the step width a multiple of the sample distance,
/// each window lies among the times as it did before. As long as the sample before a window and the
/// sample after it are in the stretch, the window's ends stay between the same times.
pub(super) struct PeriodicWindows {
    interval_ms: i64,
    /// Windows of one round, and number of samples by which the next round is shifted.
    round_len: usize,
    stride: usize,
    /// Indices of the first and the last time of the stretch.
    first: usize,
    last: usize,
    /// The most recent windows of one stretch, at most one round, each with the index of its run.
    pub(super) round: Vec<(SampleRange, Option<usize>)>,
}

impl PeriodicWindows {
    /// Returns the detector for windows that are `step_ms` apart. Returns `None` if the first two
    /// times are not ascending or a round would be longer than `ROUND_MAX`.
    pub(super) fn new(times: impl AscendingTimes, step_ms: i64) -> Option<PeriodicWindows> {
        let (first, second) = times.at(0).zip(times.at(1))?;
        let interval_ms = second.checked_sub(first).filter(|interval_ms| *interval_ms > 0)?;
        let divisor = greatest_common_divisor(interval_ms, step_ms);
        let round_len =
            usize::try_from(interval_ms / divisor).ok().filter(|round_len| *round_len <= ROUND_MAX)?;
        let stride = usize::try_from(step_ms / divisor).ok()?;
        Some(PeriodicWindows {
            interval_ms,
            round_len,
            stride,
            first: 0,
            last: 0,
            round: Vec::with_capacity(round_len),
        })
    }

    /// Adds the window of the next step.
    pub(super) fn push(&mut self, times: impl AscendingTimes, range: SampleRange, run: Option<usize>) {
        if !self.covers(times, range) {
            self.round.clear();
            return;
        }
        if self.round.first().is_some_and(|(first, _)| first.from <= self.first) {
            // Another stretch has begun.
            self.round.clear();
        }
        self.round.push((range, run));
    }

    /// Returns whether a window and the samples around it are in one stretch.
    fn covers(&mut self, times: impl AscendingTimes, range: SampleRange) -> bool {
        let Some(before) = range.from.checked_sub(1) else {
            return false;
        };
        if range.to == range.from {
            return false;
        }
        if range.to > self.last {
            if before > self.last {
                (self.first, self.last) = (before, before);
            }
            self.last += times.count_regular(self.last, self.interval_ms);
        }
        before >= self.first && range.to <= self.last
    }

    /// Once a full round is known: returns how many more rounds fit into `steps` steps, and the
    /// number of samples by which each is shifted.
    pub(super) fn rounds(&mut self, steps: usize) -> Option<(usize, usize)> {
        if self.round.len() < self.round_len {
            return None;
        }
        let inside = |(range, _): &(SampleRange, Option<usize>)| (self.last - range.to) / self.stride;
        let rounds = self.round.iter().map(inside).min().unwrap_or(0).min(steps / self.round_len);
        if rounds == 0 {
            self.round.clear();
            return None;
        }
        Some((rounds, self.stride))
    }
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
