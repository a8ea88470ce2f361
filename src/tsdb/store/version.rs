//! The version of an organisation's samples, by which caches detect changes.
//!
//! Every change of the readable samples (samples stored, samples deleted, a segment dropped for its
//! bytes) increments the version and leaves a mark with the least time that it touched. A reader
//! that remembers a version can later ask for the least time that changed since: everything before
//! it is unchanged. A change is recorded before it becomes visible and again after it is done. So a
//! reader in between notices the change by the second mark, and a check in between by the first.
//!
//! ```text
//! marks  (version, least time): both ascend. The least time since version v is that of the first
//!        mark after v.
//! ```
//!
//! Samples in order add one mark for each second of their time. If there are too many marks, pairs
//! of the older half are merged. Changes between them then seem to have touched slightly earlier
//! times, which is safe.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use crate::sync::IgnorePoison as _;

/// More than an hour of samples in order; 64 KiB.
const MARKS_MAX: usize = 4_096;
/// Times are rounded down to a multiple of this.
const GRAIN_MS: i64 = 1_000;

/// The marks of one organisation.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct StoreVersion(Mutex<VersionMarks>);

#[derive(Debug, Default)]
struct VersionMarks {
    version: u64,
    marks: VecDeque<(u64, i64)>,
    /// Changes in progress whose times are not known yet.
    open: u32,
}

/// A change whose times are known only when it is done. Until then no version is reported.
pub(in crate::tsdb) struct PendingChange<'a>(&'a StoreVersion);

impl Drop for PendingChange<'_> {
    fn drop(&mut self) {
        self.0.lock().open -= 1;
    }
}

impl StoreVersion {
    fn lock(&self) -> MutexGuard<'_, VersionMarks> {
        // The value is consistent after every statement.
        self.0.lock().ignore_poison()
    }

    /// Records that samples at or after `least_ms` change, or have changed.
    pub(in crate::tsdb) fn note(&self, least_ms: i64) {
        let least_ms = least_ms.div_euclid(GRAIN_MS).saturating_mul(GRAIN_MS);
        let mut state = self.lock();
        state.version += 1;
        let version = state.version;
        while state.marks.back().is_some_and(|(_, least)| *least >= least_ms) {
            state.marks.pop_back();
        }
        state.marks.push_back((version, least_ms));
        if state.marks.len() > MARKS_MAX {
            thin(&mut state.marks);
        }
    }

    /// Begins a change. The caller records it with [`StoreVersion::note`] before the returned guard
    /// is dropped.
    pub(in crate::tsdb) fn open(&self) -> PendingChange<'_> {
        self.lock().open += 1;
        PendingChange(self)
    }

    /// Returns the current version; none while a change is in progress.
    pub(in crate::tsdb) fn version(&self) -> Option<u64> {
        let state = self.lock();
        (state.open == 0).then_some(state.version)
    }

    /// Returns the least time that changed since `version`, in ms. Everything before it is
    /// unchanged.
    pub(in crate::tsdb) fn least_since(&self, version: u64) -> i64 {
        let state = self.lock();
        if state.open > 0 {
            return i64::MIN;
        }
        let after = state.marks.partition_point(|(marked, _)| *marked <= version);
        state.marks.get(after).map_or(i64::MAX, |(_, least)| *least)
    }
}

/// Merges pairs of marks in the older half: the later version with the earlier time.
fn thin(marks: &mut VecDeque<(u64, i64)>) {
    let half = marks.len() / 4 * 2;
    let mut thinned = VecDeque::with_capacity(MARKS_MAX);
    let mut earlier = None;
    for (index, (version, least)) in marks.drain(..).enumerate() {
        match earlier.take() {
            Some(least) => thinned.push_back((version, least)),
            None if index < half => earlier = Some(least),
            None => thinned.push_back((version, least)),
        }
    }
    *marks = thinned;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn samples_in_order_leave_earlier_times_unchanged() {
        let changes = StoreVersion::default();
        assert_eq!((changes.version(), changes.least_since(0)), (Some(0), i64::MAX));
        for second in 0..10_000_i64 {
            changes.note(second * 1_000 + 7);
        }
        assert_eq!(changes.version(), Some(10_000));
        assert_eq!((changes.least_since(10_000), changes.least_since(9_999)), (i64::MAX, 9_999_000));
        // Older marks are coarser, but never too late.
        let least = changes.least_since(1_000);
        assert!((0..=1_000_000).contains(&least), "{least}");
        assert!(changes.lock().marks.len() <= MARKS_MAX);
        changes.note(-1);
        assert_eq!(changes.least_since(9_999), -1_000);
    }

    #[test]
    fn no_version_is_reported_during_a_change() {
        let changes = StoreVersion::default();
        changes.note(5_000);
        let open = changes.open();
        assert_eq!((changes.version(), changes.least_since(1)), (None, i64::MIN));
        drop(open);
        assert_eq!((changes.version(), changes.least_since(1)), (Some(1), i64::MAX));
    }

    proptest! {
        /// The result is never later than the exact time, and equal to it while there are few
        /// marks.
        #[test]
        fn the_least_time_since_a_version_agrees_with_a_list_of_all_changes(
            times in prop::collection::vec(-50_i64..50, 1..200), asked in 0_usize..200,
        ) {
            let changes = StoreVersion::default();
            for time in &times {
                changes.note(time * 1_000);
            }
            let since = times.get(asked..).unwrap_or_default().iter().min();
            prop_assert_eq!(changes.least_since(asked as u64), since.map_or(i64::MAX, |least| least * 1_000));
            let mut marks = changes.lock();
            thin(&mut marks.marks);
            drop(marks);
            prop_assert!(changes.least_since(asked as u64) <= since.map_or(i64::MAX, |least| least * 1_000));
        }
    }
}
