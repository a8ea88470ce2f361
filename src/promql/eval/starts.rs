//! Start timestamps: since when the counts of each sample run, where its sender said so and the server looks at it.

use crate::model::{TimeRange, Timestamp};
use crate::tsdb::SeriesId;

use super::Context;

/// The start timestamps of one series' samples.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// One for each sample, zero where unknown; empty where none is known or they are not looked at.
    pub(super) of: Vec<i64>,
    /// Places of samples whose counts began before the sample before them, and yet not when that one's did.
    pub(super) overlaps: Vec<usize>,
}

impl Context<'_> {
    /// What is known of a series' samples at those times; what was computed has lost it.
    pub(super) fn starts_of(&self, id: Option<SeriesId>, times: &[i64]) -> Starts {
        let (Some(id), Some(first), Some(last)) = (id, times.first(), times.last()) else {
            return Starts::default();
        };
        if !self.options.use_start_timestamps {
            return Starts::default();
        }
        let range = TimeRange::new(Timestamp::from_ms(*first), Timestamp::from_ms(*last));
        let changes = self.snapshot.starts(id, range);
        if changes.is_empty() {
            return Starts::default();
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
        let mut starts = Starts { of, overlaps: Vec::new() };
        starts.overlaps = (1..times.len()).filter(|i| starts.overlap(times, *i)).collect();
        starts
    }
}

/// Whether counts began between two samples, each with its own start.
pub(super) fn began_between((previous, before): (i64, i64), (at, start): (i64, i64)) -> bool {
    // A start at or after its own sample is none that could be known.
    if start == 0 || start >= at || start < previous {
        return false;
    }
    // One that is the sample before it means deltas, or that nobody knows: then that sample's own says so.
    start > previous || (before != 0 && before < previous)
}

impl Starts {
    /// Whether the counts of the sample at `i` began after the sample before it.
    pub(super) fn reset(&self, times: &[i64], i: usize) -> bool {
        let (Some(start), Some(before)) = (self.of.get(i), self.of.get(i - 1)) else { return false };
        began_between((times[i - 1], *before), (times[i], *start))
    }

    fn overlap(&self, times: &[i64], i: usize) -> bool {
        let (start, before) = (self.of[i], self.of[i - 1]);
        start != 0 && start < times[i - 1] && start != before
    }
}
