//! Start (created) timestamps of one series. They are stored as change points, since the start of a
//! counter changes only when its process restarts.
//!
//! Changes before the barrier are immutable: a start for such a time becomes a late start
//! ([`super::late_starts`]). So a write needs no data of segments.

use std::borrow::Cow;

use super::late_starts::LateStarts;

/// Changes as {time, start}, ascending by time: each applies from its time on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tsdb) struct StartTimestamps {
    pub(super) changes: Vec<(i64, i64)>,
    /// The greatest time of a sample with a start.
    pub(super) last_at: Option<i64>,
    /// Whether a start arrived since the current seal began; and whether one arrived between it and
    /// the seal before.
    pub(super) news: bool,
    pub(super) closing: bool,
    /// Late starts, and those that are frozen for a seal.
    pub(super) late: LateStarts,
    pub(super) frozen: LateStarts,
    /// Changes at or after the barrier that are frozen for a seal of all times; ascending.
    pub(super) frozen_changes: Vec<(i64, i64)>,
}

impl StartTimestamps {
    /// Adds the start of the sample at `at` from record `seq`. Later samples keep their start.
    pub(in crate::tsdb) fn put(&mut self, at: i64, start: i64, seq: u64, barrier: i64) {
        if at < barrier {
            return self.late.put(at, start, seq);
        }
        self.news = true;
        let newest = self.last_at.is_none_or(|last| at >= last);
        self.last_at = self.last_at.max(Some(at));
        let index = self.changes.partition_point(|(from, _)| *from <= at);
        let before = index.checked_sub(1).and_then(|before| self.changes.get(before)).copied();
        if before.is_some_and(|(_, have)| have == start) {
            return;
        }
        let exact = before.is_some_and(|(from, _)| from == at);
        let index = if exact { index - 1 } else { index };
        if exact {
            self.changes.remove(index);
        }
        if self.changes.capacity() == 0 {
            // Most series never have another change.
            self.changes.reserve_exact(1);
        }
        self.changes.insert(index, (at, start));
        // If it is not the newest, it applies only to its own time.
        let follows = self.changes.get(index + 1).map(|(from, _)| *from);
        if let (false, Some((_, have)), Some(next)) = (newest, before, at.checked_add(1))
            && follows.is_none_or(|from| from > next)
        {
            self.changes.insert(index + 1, (next, have));
        }
    }

    /// Appends all changes and late starts.
    pub(in crate::tsdb) fn copy_all(&self, changes: &mut Vec<(i64, i64)>, late: &mut LateStarts) {
        let from = changes.len();
        changes.extend_from_slice(&self.changes);
        changes.extend_from_slice(&self.frozen_changes);
        if !self.frozen_changes.is_empty() {
            changes.split_at_mut(from).1.sort_by_key(|(at, _)| *at);
        }
        late.add(&self.frozen);
        late.add(&self.late);
    }

    /// Appends the content for a seal: changes before the barrier, if a start arrived since the
    /// seal before, frozen changes and frozen late starts.
    pub(in crate::tsdb) fn copy_closed(
        &self,
        barrier: i64,
        changes: &mut Vec<(i64, i64)>,
        late: &mut LateStarts,
    ) {
        changes.extend_from_slice(self.closed(barrier));
        changes.extend_from_slice(&self.frozen_changes);
        late.add(&self.frozen);
    }

    /// Returns whether there is content for a seal.
    pub(in crate::tsdb) fn has_closed(&self, barrier: i64) -> bool {
        !self.closed(barrier).is_empty() || !self.frozen.is_empty() || !self.frozen_changes.is_empty()
    }

    /// Returns the changes that a seal takes.
    fn closed(&self, barrier: i64) -> &[(i64, i64)] {
        if self.closing { self.before(barrier) } else { &[] }
    }

    /// Returns the changes before the barrier.
    fn before(&self, barrier: i64) -> &[(i64, i64)] {
        let end = self.changes.partition_point(|(at, _)| *at < barrier);
        self.changes.get(..end).unwrap_or_default()
    }

    /// Removes the changes before the barrier, except for the last, with which later starts are
    /// compared.
    pub(in crate::tsdb) fn release(&mut self, barrier: i64) {
        let released = self.before(barrier).len().saturating_sub(1);
        self.changes.drain(..released);
        // Changes after the barrier are for the next seal.
        self.news |= self.changes.last().is_some_and(|(at, _)| *at >= barrier);
        self.closing = false;
        self.frozen = LateStarts::default();
        self.frozen_changes = Vec::new();
    }

    /// Begins a seal of all times, which also freezes changes at or after the barrier.
    pub(in crate::tsdb) fn close_all(&mut self, barrier: i64) {
        let index = self.before(barrier).len();
        let mut ahead = self.changes.split_off(index);
        self.frozen_changes.append(&mut ahead);
        self.frozen_changes.sort_by_key(|(at, _)| *at);
        self.last_at = self.changes.last().map(|(at, _)| *at);
        self.close();
    }

    /// Begins a seal.
    pub(in crate::tsdb) fn close(&mut self) {
        self.closing |= std::mem::take(&mut self.news);
        let late = std::mem::take(&mut self.late);
        self.frozen.add(&late);
    }

    /// Returns frozen content after a failed seal.
    pub(in crate::tsdb) fn reopen(&mut self) {
        let frozen = std::mem::take(&mut self.frozen);
        self.late.add(&frozen);
        let ahead = std::mem::take(&mut self.frozen_changes);
        if !ahead.is_empty() {
            self.changes.extend(ahead);
            self.changes.sort_by_key(|(at, _)| *at);
            self.changes.dedup_by_key(|(at, _)| *at);
            self.last_at = self.last_at.max(self.changes.last().map(|(at, _)| *at));
            self.news = true;
        }
    }

    /// Returns the content as it is without a current seal.
    pub(in crate::tsdb) fn reopened(&self) -> Cow<'_, StartTimestamps> {
        if self.frozen_changes.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut starts = self.clone();
        starts.reopen();
        Cow::Owned(starts)
    }

    /// Returns the estimated memory in bytes.
    pub(in crate::tsdb) fn memory(&self) -> u64 {
        (16 * (self.changes.capacity() + self.frozen_changes.capacity())) as u64
            + self.late.memory()
            + self.frozen.memory()
    }
}

/// Returns the changes that apply to samples in `start..=end`: those within, and the last one
/// before. `changes` ascend in time.
pub(in crate::tsdb) fn within(changes: &[(i64, i64)], start: i64, end: i64) -> &[(i64, i64)] {
    let first = changes.partition_point(|(at, _)| *at <= start).saturating_sub(1);
    let after = changes.partition_point(|(at, _)| *at <= end);
    changes.get(first..after).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn at(starts: &StartTimestamps, time: i64) -> Option<i64> {
        let upto = starts.changes.partition_point(|(from, _)| *from <= time);
        starts.changes.get(upto.checked_sub(1)?).map(|(_, start)| *start)
    }

    proptest! {
        #[test]
        fn every_sample_has_its_start(samples in prop::collection::vec((0i64..60, 0i64..4), 0..60)) {
            let (mut starts, mut model) = (StartTimestamps::default(), BTreeMap::new());
            for (time, start) in &samples {
                starts.put(*time, *start, 0, i64::MIN);
                model.insert(*time, *start);
                for (time, start) in &model {
                    prop_assert_eq!(at(&starts, *time), Some(*start), "at {}", time);
                }
                prop_assert!(starts.changes.is_sorted_by(|a, b| a.0 < b.0));
            }
        }

        #[test]
        fn a_replay_of_everything_changes_nothing(samples in prop::collection::btree_map(0i64..60, 0i64..4, 0..30), order: u64) {
            let mut samples: Vec<(i64, i64)> = samples.into_iter().collect();
            let len = samples.len().max(1);
            samples.rotate_left(usize::try_from(order % len as u64).expect("small"));
            let mut starts = StartTimestamps::default();
            for (time, start) in &samples {
                starts.put(*time, *start, 0, i64::MIN);
            }
            let before: Vec<_> = samples.iter().map(|(time, _)| at(&starts, *time)).collect();
            for (time, start) in &samples {
                starts.put(*time, *start, 0, i64::MIN);
            }
            let after: Vec<_> = samples.iter().map(|(time, _)| at(&starts, *time)).collect();
            prop_assert_eq!(before, after);
        }
    }

    #[test]
    fn a_steady_counter_is_one_change() {
        let mut starts = StartTimestamps::default();
        for time in 0..1_000 {
            starts.put(time * 15_000, if time < 500 { 7 } else { 8_000 }, 0, i64::MIN);
        }
        assert_eq!(starts.changes, [(0, 7), (7_500_000, 8_000)]);
        assert_eq!(within(&starts.changes, 1, 100), [(0, 7)]);
        assert_eq!(within(&starts.changes, 8_000_000, 9_000_000), [(7_500_000, 8_000)]);
        starts.release(9_000_000);
        assert_eq!(starts.changes, [(7_500_000, 8_000)]);
    }
}
