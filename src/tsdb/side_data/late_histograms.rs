//! LateHistograms histograms of one series by time, and what they take: counted as they come and go, so that a long backfill does not
//! count them all anew with each of its records.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::model::Histogram;

/// Memory of a node's share and of a histogram's counts and shape, about.
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

    /// Estimated memory.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, at: i64) -> Option<&Histogram> {
        self.by_time.get(&at)
    }

    /// Those in a range, ascending; it begins before it ends.
    pub(super) fn range(&self, range: RangeInclusive<i64>) -> impl Iterator<Item = (i64, &Histogram)> {
        self.by_time.range(range).map(|(at, histogram)| (*at, histogram))
    }

    /// Least and greatest time.
    pub(super) fn span(&self) -> Option<(i64, i64)> {
        let (first, last) = (self.by_time.first_key_value()?, self.by_time.last_key_value()?);
        Some((*first.0, *last.0))
    }

    /// The last one that is put at a time stays.
    pub(super) fn put(&mut self, at: i64, histogram: Histogram) {
        self.bytes += memory_of(&histogram);
        if let Some(before) = self.by_time.insert(at, histogram) {
            self.bytes -= memory_of(&before);
        }
    }

    pub(super) fn remove(&mut self, at: i64) {
        if let Some(gone) = self.by_time.remove(&at) {
            self.bytes -= memory_of(&gone);
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(i64) -> bool) {
        let bytes = &mut self.bytes;
        self.by_time.retain(|at, histogram| {
            let stays = keep(*at);
            *bytes -= if stays { 0 } else { memory_of(histogram) };
            stays
        });
    }

    /// Takes over what another has; at the same time its own stays.
    pub(super) fn fill_from(&mut self, older: &mut LateHistograms) {
        for (at, histogram) in std::mem::take(older).by_time {
            if !self.by_time.contains_key(&at) {
                self.put(at, histogram);
            }
        }
    }

    /// Takes over what another has, over its own.
    pub(super) fn overlay(&mut self, newer: &mut LateHistograms) {
        for (at, histogram) in std::mem::take(newer).by_time {
            self.put(at, histogram);
        }
    }

    /// What [`LateHistograms::bytes`] says, added up anew.
    #[cfg(test)]
    pub(super) fn recounted(&self) -> usize {
        self.by_time.values().map(memory_of).sum()
    }
}
