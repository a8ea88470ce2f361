//! Start timestamps: the time since which the counts of each sample run, if the sender reported it
//! and the option is on.

use crate::model::{TimeRange, Timestamp};
use crate::tsdb::SeriesId;

use super::Context;

/// The start timestamps of the samples of one series.
#[derive(Debug, Default)]
pub(super) struct StartTimestamps {
    /// One for each sample in milliseconds, zero if unknown. Empty if none is known or the option
    /// is off.
    pub(super) of: Vec<i64>,
    /// Indices of samples whose start is before the previous sample and differs from that sample's
    /// start.
    pub(super) overlaps: Vec<usize>,
}

impl Context<'_> {
    /// Returns the start timestamps of a series at these sample times. Computed series have none.
    pub(super) fn start_timestamps(&self, id: Option<SeriesId>, times: &[i64]) -> StartTimestamps {
        let (Some(id), Some(first), Some(last)) = (id, times.first(), times.last()) else {
            return StartTimestamps::default();
        };
        if !self.options.use_start_timestamps {
            return StartTimestamps::default();
        }
        let range = TimeRange::new(Timestamp::from_ms(*first), Timestamp::from_ms(*last));
        let changes = self.snapshot.starts(id, range);
        if changes.is_empty() {
            return StartTimestamps::default();
        }
        let mut next = 0;
        let mut start = 0;
        let mut of = Vec::with_capacity(times.len());
        for at in times {
            while let Some(change) = changes.get(next).filter(|change| change.at.as_ms() <= *at) {
                start = change.start.as_ms();
                next += 1;
            }
            of.push(start);
        }
        let mut starts = StartTimestamps { of, overlaps: Vec::new() };
        starts.overlaps = (1..times.len()).filter(|i| starts.overlap(times, *i)).collect();
        starts
    }
}

/// The time of a sample and its start timestamp, in milliseconds; a start of zero is unknown.
#[derive(Clone, Copy)]
pub(super) struct TimedStart {
    pub(super) at: i64,
    pub(super) start: i64,
}

/// Returns whether counting restarted between two consecutive samples.
pub(super) fn restarted_between(previous: TimedStart, sample: TimedStart) -> bool {
    let TimedStart { at, start } = sample;
    // A start at or after its own sample is invalid; one before the previous sample is not a
    // restart.
    if start == 0 || start >= at || start < previous.at {
        return false;
    }
    // A start equal to the previous sample's time occurs with delta temporality and with an unknown
    // start. It counts only if the previous sample has a start before its own time.
    start > previous.at || (previous.start != 0 && previous.start < previous.at)
}

impl StartTimestamps {
    /// Returns whether counting restarted between the samples `i - 1` and `i`.
    pub(super) fn reset(&self, times: &[i64], i: usize) -> bool {
        let (Some(start), Some(before)) = (self.of.get(i), self.of.get(i - 1)) else { return false };
        let previous = TimedStart { at: times[i - 1], start: *before };
        restarted_between(previous, TimedStart { at: times[i], start: *start })
    }

    fn overlap(&self, times: &[i64], i: usize) -> bool {
        let (start, before) = (self.of[i], self.of[i - 1]);
        start != 0 && start < times[i - 1] && start != before
    }
}
