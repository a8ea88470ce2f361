//! Start (created) timestamps of one series. They are stored as change points, since the start of a
//! counter changes only when its process restarts.
//!
//! Changes before the barrier or before a later sample are immutable: a start for such a time
//! becomes a late start ([`super::late_starts`]). So a write needs no data of segments, and a
//! replay without those of earlier seals has the same result.

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
mod tests;
