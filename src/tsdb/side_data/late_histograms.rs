//! The late histograms of one series by time, and their memory. It is updated with each change, so
//! that a long backfill does not recompute it for each of its records.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::model::Histogram;

/// Returns the estimated memory in bytes: a share of a tree node, the counts and the shape.
fn memory_of(histogram: &Histogram) -> usize {
    32 + histogram.bytes() + histogram.shape().bytes()
}

/// Histograms by time.
#[derive(Debug, Default)]
pub(super) struct LateHistograms {
    by_time: BTreeMap<i64, Histogram>,
    bytes: usize,
}

impl LateHistograms {
    pub(super) fn len(&self) -> usize {
        self.by_time.len()
    }

    /// Returns the estimated memory in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, at: i64) -> Option<&Histogram> {
        self.by_time.get(&at)
    }

    /// Returns the histograms in a range, ascending. The range must not begin after its end.
    pub(super) fn range(&self, range: RangeInclusive<i64>) -> impl Iterator<Item = (i64, &Histogram)> {
        self.by_time.range(range).map(|(at, histogram)| (*at, histogram))
    }

    /// Returns the least and the greatest time.
    pub(super) fn span(&self) -> Option<(i64, i64)> {
        let (first, last) = (self.by_time.first_key_value()?, self.by_time.last_key_value()?);
        Some((*first.0, *last.0))
    }

    /// Stores a histogram, in place of any other at the same time.
    pub(super) fn put(&mut self, at: i64, histogram: Histogram) {
        self.bytes += memory_of(&histogram);
        if let Some(before) = self.by_time.insert(at, histogram) {
            self.bytes -= memory_of(&before);
        }
    }

    pub(super) fn remove(&mut self, at: i64) {
        if let Some(removed) = self.by_time.remove(&at) {
            self.bytes -= memory_of(&removed);
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(i64) -> bool) {
        let bytes = &mut self.bytes;
        self.by_time.retain(|at, histogram| {
            let retained = keep(*at);
            *bytes -= if retained { 0 } else { memory_of(histogram) };
            retained
        });
    }

    /// Moves the histograms of `older` here. If times are equal, the histograms of `self` win.
    pub(super) fn fill_from(&mut self, older: &mut LateHistograms) {
        for (at, histogram) in std::mem::take(older).by_time {
            if !self.by_time.contains_key(&at) {
                self.put(at, histogram);
            }
        }
    }

    /// Moves the histograms of `newer` here. If times are equal, the histograms of `newer` win.
    pub(super) fn overlay(&mut self, newer: &mut LateHistograms) {
        for (at, histogram) in std::mem::take(newer).by_time {
            self.put(at, histogram);
        }
    }

    /// Recomputes [`LateHistograms::bytes`].
    #[cfg(test)]
    pub(super) fn recounted(&self) -> usize {
        self.by_time.values().map(memory_of).sum()
    }
}
