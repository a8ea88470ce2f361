//! Start (created) timestamps of one series. They are stored as change points, since the start of a
//! counter changes only when its process restarts.
//!
//! Changes before the barrier or before a later sample are immutable: a start for such a time
//! becomes a late start ([`super::late_starts`]). So a write needs no data of segments, and a replay
//! without those of earlier seals has the same result.

use std::borrow::Cow;

use super::late_starts::LateStarts;
use super::sealed::sort_and_dedup_starts;

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
    /// Changes that are frozen for a seal of all times; ascending.
    pub(super) frozen_changes: Vec<(i64, i64)>,
}

impl StartTimestamps {
    /// Adds the start of the sample at `at` from record `seq`. Other samples keep their start.
    pub(in crate::tsdb) fn put(&mut self, at: i64, start: i64, seq: u64, barrier: i64) {
        if at < barrier {
            return self.late.put(at, start, seq);
        }
        self.news = true;
        if self.last_at.is_some_and(|last| at < last) {
            // A late start that repeats the change would take memory for nothing.
            let is_late = self.late.contains(at) || self.frozen.contains(at);
            if is_late || self.change_at(at) != Some(start) {
                self.late.put(at, start, seq);
            }
            return;
        }
        self.last_at = Some(at);
        self.changes.pop_if(|(from, _)| *from == at);
        if self.changes.last().is_some_and(|(_, have)| *have == start) {
            return;
        }
        if self.changes.capacity() == 0 {
            // Most series never have another change.
            self.changes.reserve_exact(1);
        }
        self.changes.push((at, start));
    }

    /// Returns the start of the last change up to `at`.
    fn change_at(&self, at: i64) -> Option<i64> {
        let index = self.changes.partition_point(|(from, _)| *from <= at);
        Some(self.changes.get(index.checked_sub(1)?)?.1)
    }

    /// Appends all changes and late starts.
    pub(in crate::tsdb) fn copy_all(&self, changes: &mut Vec<(i64, i64)>, late: &mut LateStarts) {
        // At the same time the later ones win.
        changes.extend_from_slice(&self.frozen_changes);
        changes.extend_from_slice(&self.changes);
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

    /// Begins a seal of all times, which also freezes content at or after the barrier.
    pub(in crate::tsdb) fn close_all(&mut self) {
        self.frozen_changes.append(&mut self.changes);
        sort_and_dedup_starts(&mut self.frozen_changes);
        self.last_at = None;
        self.close(i64::MAX);
    }

    /// Begins a seal of the times before the barrier.
    pub(in crate::tsdb) fn close(&mut self, barrier: i64) {
        self.closing |= std::mem::take(&mut self.news);
        let late = self.late.take_before(barrier);
        self.frozen.add(&late);
    }

    /// Returns frozen content after a failed seal.
    pub(in crate::tsdb) fn reopen(&mut self) {
        let frozen = std::mem::take(&mut self.frozen);
        self.late.add(&frozen);
        if !self.frozen_changes.is_empty() {
            let newer = std::mem::take(&mut self.changes);
            self.changes = std::mem::take(&mut self.frozen_changes);
            self.changes.extend(newer);
            sort_and_dedup_starts(&mut self.changes);
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

    /// Returns the start at each time of `TIMES`, from sealed content and the head.
    fn by_time(sealed: &Sealed, head: &StartTimestamps) -> Vec<Option<i64>> {
        let (mut changes, mut late) = sealed.clone();
        head.copy_all(&mut changes, &mut late);
        sort_and_dedup_starts(&mut changes);
        let changes = late.merged_into(changes);
        let at = |time: i64| changes.iter().take_while(|(from, _)| *from <= time).last();
        TIMES.map(|time| at(time).map(|(_, start)| *start)).collect()
    }

    type Sealed = (Vec<(i64, i64)>, LateStarts);

    const TIMES: std::ops::Range<i64> = 0..60;

    #[derive(Clone, Debug)]
    enum Step {
        Put(i64, i64),
        /// A seal of the times before the greatest one minus this.
        Seal(i64),
        FailedSeal(i64),
        /// Loads the head from a checkpoint.
        Checkpoint,
        /// Replays all records onto an empty head, or onto one that has their content.
        Replay {
            empty: bool,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (TIMES, 0i64..4).prop_map(|(at, start)| Step::Put(at, start)),
            1 => (0i64..30).prop_map(Step::Seal),
            1 => (0i64..30).prop_map(Step::FailedSeal),
            1 => Just(Step::Checkpoint),
            1 => any::<bool>().prop_map(|empty| Step::Replay { empty }),
        ]
    }

    proptest! {
        #[test]
        fn every_sample_has_its_start_and_replays_and_seals_change_nothing(steps in prop::collection::vec(step(), 0..60)) {
            let (mut head, mut model) = (StartTimestamps::default(), BTreeMap::new());
            let (mut sealed, mut log) = (Sealed::default(), Vec::new());
            // The barrier, and the one that is recorded with the segments.
            let (mut barrier, mut recorded) = (i64::MIN, i64::MIN);
            for (seq, step) in (0u64..).zip(&steps) {
                let before = by_time(&sealed, &head);
                match step {
                    Step::Put(at, start) => {
                        head.put(*at, *start, seq, barrier);
                        log.push((*at, *start, seq, barrier));
                        model.insert(*at, *start);
                    }
                    Step::Seal(back) | Step::FailedSeal(back) => {
                        let greatest = model.last_key_value().map_or(0, |(at, _)| *at);
                        barrier = barrier.max(greatest - back);
                        head.close(barrier);
                        if matches!(step, Step::Seal(_)) {
                            head.copy_closed(barrier, &mut sealed.0, &mut sealed.1);
                            head.release(barrier);
                            log.retain(|(at, ..)| *at >= barrier);
                            recorded = barrier;
                        } else {
                            head.reopen();
                        }
                    }
                    Step::Checkpoint => {
                        let mut bytes = Vec::new();
                        head.encode(&mut bytes);
                        let late = std::mem::take(&mut head.late);
                        head = StartTimestamps { late, ..StartTimestamps::decode(&bytes).expect("decoded") };
                    }
                    Step::Replay { empty } => {
                        if *empty {
                            head = StartTimestamps::default();
                        }
                        for (at, start, seq, barrier) in &log {
                            head.put(*at, *start, *seq, recorded.max(*barrier));
                        }
                    }
                }
                let after = by_time(&sealed, &head);
                if !matches!(step, Step::Put(..)) {
                    prop_assert_eq!(&after, &before, "{:?}", step);
                }
                for (at, start) in &model {
                    prop_assert_eq!(after[usize::try_from(*at).expect("small")], Some(*start), "at {}", at);
                }
                prop_assert!(head.changes.is_sorted_by(|a, b| a.0 < b.0));
            }
        }

        #[test]
        fn samples_out_of_order_with_the_same_start_take_no_memory(times in prop::collection::vec(1i64..60, 0..60)) {
            let mut starts = StartTimestamps::default();
            starts.put(0, 7, 0, i64::MIN);
            for (seq, at) in (1u64..).zip(times) {
                starts.put(at, 7, seq, i64::MIN);
            }
            prop_assert_eq!((starts.changes, starts.late), (vec![(0, 7)], LateStarts::default()));
        }

        #[test]
        fn a_seal_of_all_times_loses_no_start(
            first in prop::collection::vec((TIMES, 0i64..4), 0..30),
            second in prop::collection::vec((60i64..99, 0i64..4), 0..30),
            fails: bool,
        ) {
            let (mut head, mut sealed) = (StartTimestamps::default(), Sealed::default());
            let mut model = BTreeMap::new();
            for (seq, (at, start)) in (0u64..).zip(first.iter().chain(&second)) {
                if seq == first.len() as u64 {
                    head.close_all();
                }
                head.put(*at, *start, seq, i64::MIN);
                model.insert(*at, *start);
            }
            for done in [false, true] {
                if done && fails {
                    head.reopen();
                } else if done {
                    head.copy_closed(i64::MIN, &mut sealed.0, &mut sealed.1);
                    head.release(i64::MIN);
                }
                let found = by_time(&sealed, &head);
                for (at, start) in model.range(TIMES) {
                    prop_assert_eq!(found[usize::try_from(*at).expect("small")], Some(*start), "at {}", at);
                }
            }
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
