//! The exemplars of one organisation: a ring for each series, and a common bound, at which the
//! oldest are dropped.
//!
//! Exemplars of a series are accepted in order of time. One that is older than the last of its
//! series, or is present already, is dropped, so that a replay changes nothing.
//!
//! A seal takes all accepted exemplars, also those that are newer than the end of its segment.
//! Retention removes the segment by its end, so later seals take these exemplars again, until they
//! are in a segment that ends after them.

use std::collections::{BTreeMap, VecDeque};

use crate::model::Exemplar;

/// Exemplars of one series at most.
pub(in crate::tsdb) const SERIES_MAX: usize = 100;
/// Exemplars of one organisation at most, as many as Prometheus keeps in total.
pub(in crate::tsdb) const ORG_MAX: usize = 100_000;

/// The exemplars of one organisation in memory.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct ExemplarRings {
    by_series: BTreeMap<u32, VecDeque<(u64, Exemplar)>>,
    /// Stamp and series in order of arrival. Entries whose exemplar has left its ring are skipped.
    order: VecDeque<(u64, u32)>,
    next: u64,
    /// Exemplars with a smaller stamp are in segments; those below `closing` are being sealed.
    sealed: u64,
    closing: u64,
    /// The end of the last segment, exclusive. Sealed exemplars from here on are sealed again.
    ends_ms: Option<i64>,
    count: usize,
    bytes: u64,
}

/// Collects the newest exemplars of several segments, and sorts them by time, since rings accept
/// only ascending times.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct NewestExemplars {
    all: Vec<(u32, Exemplar)>,
}

impl NewestExemplars {
    /// Adds an exemplar. Only the newest `ORG_MAX` are certain to be retained.
    pub(in crate::tsdb) fn push(&mut self, series: u32, exemplar: Exemplar) {
        self.all.push((series, exemplar));
        if self.all.len() >= 2 * ORG_MAX {
            self.sort_and_dedup();
        }
    }

    /// Sorts by time and removes duplicates. Exemplars of one series and time keep their order.
    fn sort_and_dedup(&mut self) {
        self.all.sort_by_key(|(series, exemplar)| (exemplar.at, *series));
        let mut sorted: Vec<(u32, Exemplar)> = Vec::with_capacity(self.all.len());
        for one in self.all.drain(..) {
            let (series, at) = (one.0, one.1.at);
            let same_time = sorted.iter().rev().take_while(|have| (have.0, have.1.at) == (series, at));
            if !same_time.take(SERIES_MAX).any(|have| *have == one) {
                sorted.push(one);
            }
        }
        sorted.drain(..sorted.len().saturating_sub(ORG_MAX));
        self.all = sorted;
    }

    /// Returns the exemplars in order of time.
    pub(in crate::tsdb) fn into_sorted(mut self) -> Vec<(u32, Exemplar)> {
        self.sort_and_dedup();
        self.all
    }
}

impl ExemplarRings {
    /// Returns whether an exemplar is present.
    pub(in crate::tsdb) fn has(&self, series: u32, exemplar: &Exemplar) -> bool {
        let ring = self.by_series.get(&series).into_iter().flatten().rev();
        ring.take_while(|(_, have)| have.at >= exemplar.at).any(|(_, have)| have == exemplar)
    }

    /// Adds an exemplar. Returns whether it is new and was accepted.
    pub(in crate::tsdb) fn put(&mut self, series: u32, exemplar: Exemplar) -> bool {
        let ring = self.by_series.entry(series).or_default();
        let at = exemplar.at;
        let newest = ring.back().map(|(_, newest)| newest.at);
        let known =
            ring.iter().rev().take_while(|(_, have)| have.at == at).any(|(_, have)| *have == exemplar);
        if newest.is_some_and(|newest| at < newest) || known {
            return false;
        }
        self.bytes += memory(&exemplar);
        ring.push_back((self.next, exemplar));
        self.order.push_back((self.next, series));
        self.next += 1;
        self.count += 1;
        if ring.len() > SERIES_MAX {
            self.drop_oldest(series);
        }
        while self.count > ORG_MAX {
            let Some((stamp, series)) = self.order.pop_front() else { break };
            let oldest = self.by_series.get(&series).and_then(|ring| ring.front());
            if oldest.is_some_and(|(have, _)| *have == stamp) {
                self.drop_oldest(series);
            }
        }
        if self.order.len() > 2 * ORG_MAX {
            let by_series = &self.by_series;
            let there = |stamp: u64, series: u32| {
                let first = by_series.get(&series).and_then(|ring| ring.front());
                first.is_some_and(|(first, _)| *first <= stamp)
            };
            self.order.retain(|(stamp, series)| there(*stamp, *series));
        }
        true
    }

    /// Drops the oldest exemplar of a series.
    fn drop_oldest(&mut self, series: u32) {
        let Some(ring) = self.by_series.get_mut(&series) else { return };
        if let Some((_, removed)) = ring.pop_front() {
            self.count -= 1;
            self.bytes = self.bytes.saturating_sub(memory(&removed));
        }
        if ring.is_empty() {
            self.by_series.remove(&series);
        }
    }

    /// Returns the exemplars of a series in `start..=end`, in order of time.
    pub(in crate::tsdb) fn within(
        &self,
        series: u32,
        start: i64,
        end: i64,
    ) -> impl Iterator<Item = &Exemplar> {
        let ring = self.by_series.get(&series).into_iter().flatten();
        ring.map(|(_, exemplar)| exemplar).filter(move |e| (start..=end).contains(&e.at.as_ms()))
    }

    /// Returns the series with exemplars.
    pub(in crate::tsdb) fn series(&self) -> impl Iterator<Item = u32> {
        self.by_series.keys().copied()
    }

    /// Returns all exemplars, in order of arrival.
    pub(in crate::tsdb) fn in_order(&self) -> Vec<(u32, &Exemplar)> {
        let mut all: Vec<(u64, u32, &Exemplar)> = Vec::with_capacity(self.count);
        for (series, ring) in &self.by_series {
            all.extend(ring.iter().map(|(stamp, exemplar)| (*stamp, *series, exemplar)));
        }
        all.sort_unstable_by_key(|(stamp, ..)| *stamp);
        all.into_iter().map(|(_, series, exemplar)| (series, exemplar)).collect()
    }

    /// Begins a seal of the exemplars that have arrived so far.
    pub(in crate::tsdb) fn close(&mut self) {
        self.closing = self.next;
    }

    /// Returns the exemplars that the seal takes, in order of arrival.
    pub(in crate::tsdb) fn closed(&self) -> Vec<(u32, &Exemplar)> {
        let mut closed: Vec<(u64, u32, &Exemplar)> = Vec::new();
        let due = |stamp: u64, exemplar: &Exemplar| {
            let outlasts = self.ends_ms.is_some_and(|ends_ms| exemplar.at.as_ms() >= ends_ms);
            stamp < self.closing && (stamp >= self.sealed || outlasts)
        };
        for (series, ring) in &self.by_series {
            let due = ring.iter().filter(|(stamp, exemplar)| due(*stamp, exemplar));
            closed.extend(due.map(|(stamp, exemplar)| (*stamp, *series, exemplar)));
        }
        closed.sort_unstable_by_key(|(stamp, ..)| *stamp);
        closed.into_iter().map(|(_, series, exemplar)| (series, exemplar)).collect()
    }

    /// Ends a seal: its exemplars are in segments, the last of which end before `ends_ms`. They
    /// stay in the rings.
    pub(in crate::tsdb) fn release(&mut self, ends_ms: i64) {
        self.sealed = self.closing;
        self.ends_ms = Some(ends_ms);
    }

    /// Removes the exemplars of a series in `start..=end`.
    pub(in crate::tsdb) fn delete(&mut self, series: u32, start: i64, end: i64) {
        let Some(ring) = self.by_series.get_mut(&series) else { return };
        let (before, mut freed) = (ring.len(), 0);
        ring.retain(|(_, exemplar)| {
            let removed = (start..=end).contains(&exemplar.at.as_ms());
            freed += if removed { memory(exemplar) } else { 0 };
            !removed
        });
        self.count -= before - ring.len();
        self.bytes = self.bytes.saturating_sub(freed);
        if ring.is_empty() {
            self.by_series.remove(&series);
        }
    }

    pub(in crate::tsdb) const fn count(&self) -> usize {
        self.count
    }

    /// Returns the estimated memory in bytes.
    pub(in crate::tsdb) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns the estimated memory in bytes: the entries in the rings, and both texts of each label.
fn memory(exemplar: &Exemplar) -> u64 {
    let labels: usize = exemplar.labels.iter().map(|l| 64 + l.name.len() + l.value.len()).sum();
    (80 + labels) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Labels, Timestamp};

    fn exemplar(at: i64, value: f64) -> Exemplar {
        let labels = Labels::from_pairs([("trace_id", format!("{at}"))]);
        Exemplar { labels, value, at: Timestamp::from_ms(at) }
    }

    fn times(exemplars: &ExemplarRings, series: u32) -> Vec<i64> {
        exemplars.within(series, i64::MIN, i64::MAX).map(|e| e.at.as_ms()).collect()
    }

    #[test]
    fn the_newest_exemplars_of_each_series_are_retained_in_order_of_time() {
        let mut exemplars = ExemplarRings::default();
        for at in 0..150 {
            assert!(exemplars.put(1, exemplar(at, 1.0)));
        }
        assert_eq!(times(&exemplars, 1), (50..150).collect::<Vec<_>>());
        assert!(!exemplars.put(1, exemplar(149, 1.0)), "there already");
        assert!(exemplars.put(1, exemplar(149, 2.0)), "another at the same time");
        assert!(!exemplars.put(1, exemplar(149, 1.0)), "still there");
        assert!(!exemplars.put(1, exemplar(3, 1.0)), "older than the last");
        assert_eq!(exemplars.within(1, 148, 149).count(), 3);
        exemplars.delete(1, 0, 148);
        assert_eq!((times(&exemplars, 1), exemplars.count()), (vec![149, 149], 2));
        exemplars.delete(1, 0, 1_000);
        assert_eq!((exemplars.count(), exemplars.bytes()), (0, 0));
    }

    #[test]
    fn exemplars_newer_than_the_end_of_their_segment_are_sealed_again() {
        let mut exemplars = ExemplarRings::default();
        let closed = |exemplars: &mut ExemplarRings| {
            exemplars.close();
            exemplars.closed().iter().map(|(_, exemplar)| exemplar.at.as_ms()).collect::<Vec<_>>()
        };
        for at in [1, 5, 9] {
            exemplars.put(1, exemplar(at, 1.0));
        }
        assert_eq!(closed(&mut exemplars), [1, 5, 9]);
        exemplars.release(5);
        exemplars.put(1, exemplar(12, 1.0));
        assert_eq!(closed(&mut exemplars), [5, 9, 12]);
        // This seal failed. The next one includes later exemplars as well.
        exemplars.put(2, exemplar(2, 1.0));
        assert_eq!(closed(&mut exemplars), [5, 9, 12, 2]);
        exemplars.release(10);
        assert_eq!(closed(&mut exemplars), [12]);
        exemplars.release(13);
        assert!(closed(&mut exemplars).is_empty());
    }

    #[test]
    fn duplicates_from_several_segments_are_loaded_once() {
        let mut newest = NewestExemplars::default();
        for (series, at, value) in
            [(2, 7, 1.0), (1, 7, 1.0), (1, 7, 2.0), (1, 3, 1.0), (1, 7, 1.0), (2, 7, 1.0)]
        {
            newest.push(series, exemplar(at, value));
        }
        let sorted = newest.into_sorted();
        let found: Vec<_> = sorted.iter().map(|(series, e)| (*series, e.at.as_ms(), e.value)).collect();
        assert_eq!(found, [(1, 3, 1.0), (1, 7, 1.0), (1, 7, 2.0), (2, 7, 1.0)]);
    }

    #[test]
    fn the_oldest_exemplars_of_the_organisation_are_dropped_first() {
        let mut exemplars = ExemplarRings::default();
        let series = u32::try_from(ORG_MAX / 50).expect("small");
        for round in 0..60 {
            for id in 0..series {
                exemplars.put(id, exemplar(round, 0.5));
            }
        }
        assert_eq!(exemplars.count(), ORG_MAX);
        assert_eq!(times(&exemplars, 0), (10..60).collect::<Vec<_>>());
        assert!(exemplars.order.len() <= 2 * ORG_MAX);
        let all = exemplars.in_order();
        assert_eq!((all.len(), all[0].0, all[0].1.at.as_ms()), (ORG_MAX, 0, 10));
    }

    #[test]
    fn a_replay_of_everything_changes_nothing() {
        let came: Vec<(u32, Exemplar)> =
            (0..500u32).map(|n| (n % 7, exemplar(i64::from(n % 90), f64::from(n % 3)))).collect();
        let mut exemplars = ExemplarRings::default();
        for (series, exemplar) in &came {
            exemplars.put(*series, exemplar.clone());
        }
        let all = |exemplars: &ExemplarRings| {
            exemplars.in_order().into_iter().map(|(series, e)| (series, e.clone())).collect::<Vec<_>>()
        };
        let before = all(&exemplars);
        for (series, exemplar) in &came {
            exemplars.put(*series, exemplar.clone());
        }
        assert_eq!(all(&exemplars), before);
    }
}
