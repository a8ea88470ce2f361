//! Which times of an organisation's samples changed, for those who keep answers.
//!
//! Every change of what can be read (samples stored, samples deleted, a segment dropped for its bytes) counts the version
//! up and leaves a mark with the least time that it touched. A reader who remembers a version asks later from which time on
//! things may differ: everything before that time is as it was. A change is noted before it can be seen and again when it
//! is done, so that who reads in between is told by the second note and who asks in between by the first.
//!
//! ```text
//! marks  (version, least time): both ascend. The least time since version v is that of the first mark after v.
//! ```
//!
//! Samples that come in order push one mark for each second of their time. When there are too many marks, pairs of the older
//! half become one: what was between them then seems to have changed a little earlier than it did, which is safe.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use crate::sync::IgnorePoison as _;

/// More than an hour of samples that come in order; 64 KiB.
const MARKS_MAX: usize = 4_096;
/// Times are rounded down to this.
const GRAIN_MS: i64 = 1_000;

/// The marks of one organisation.
#[derive(Debug, Default)]
pub(super) struct Changes(Mutex<Marks>);

#[derive(Debug, Default)]
struct Marks {
    version: u64,
    marks: VecDeque<(u64, i64)>,
    /// Changes under way whose times are not known yet.
    open: u32,
}

/// A change whose times are known when it is done; until then nobody is told anything.
pub(super) struct Open<'a>(&'a Changes);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.lock().open -= 1;
    }
}

impl Changes {
    fn lock(&self) -> MutexGuard<'_, Marks> {
        // Whole after every statement.
        self.0.lock().ignore_poison()
    }

    /// Something at `least_ms` or after it changes, or has changed.
    pub(super) fn note(&self, least_ms: i64) {
        let least_ms = least_ms.div_euclid(GRAIN_MS).saturating_mul(GRAIN_MS);
        let mut held = self.lock();
        held.version += 1;
        let version = held.version;
        while held.marks.back().is_some_and(|(_, least)| *least >= least_ms) {
            held.marks.pop_back();
        }
        held.marks.push_back((version, least_ms));
        if held.marks.len() > MARKS_MAX {
            thin(&mut held.marks);
        }
    }

    /// A change begins; [`Changes::note`] it before this ends.
    pub(super) fn open(&self) -> Open<'_> {
        self.lock().open += 1;
        Open(self)
    }

    /// What to remember; none while a change is under way.
    pub(super) fn version(&self) -> Option<u64> {
        let held = self.lock();
        (held.open == 0).then_some(held.version)
    }

    /// Everything before this time is as it was at `version`.
    pub(super) fn least_since(&self, version: u64) -> i64 {
        let held = self.lock();
        if held.open > 0 {
            return i64::MIN;
        }
        let after = held.marks.partition_point(|(marked, _)| *marked <= version);
        held.marks.get(after).map_or(i64::MAX, |(_, least)| *least)
    }
}

/// Makes one of every two marks of the older half: the later version, the earlier time.
fn thin(marks: &mut VecDeque<(u64, i64)>) {
    let half = marks.len() / 4 * 2;
    let mut kept = VecDeque::with_capacity(MARKS_MAX);
    let mut earlier = None;
    for (place, (version, least)) in marks.drain(..).enumerate() {
        match earlier.take() {
            Some(least) => kept.push_back((version, least)),
            None if place < half => earlier = Some(least),
            None => kept.push_back((version, least)),
        }
    }
    *marks = kept;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_comes_in_order_leaves_the_past_alone() {
        let changes = Changes::default();
        assert_eq!((changes.version(), changes.least_since(0)), (Some(0), i64::MAX));
        for second in 0..10_000_i64 {
            changes.note(second * 1_000 + 7);
        }
        assert_eq!(changes.version(), Some(10_000));
        assert_eq!((changes.least_since(10_000), changes.least_since(9_999)), (i64::MAX, 9_999_000));
        // The older, the coarser; never too late.
        let least = changes.least_since(1_000);
        assert!((0..=1_000_000).contains(&least), "{least}");
        assert!(changes.lock().marks.len() <= MARKS_MAX);
        changes.note(-1);
        assert_eq!(changes.least_since(9_999), -1_000);
    }

    #[test]
    fn while_a_change_is_under_way_nobody_is_told_anything() {
        let changes = Changes::default();
        changes.note(5_000);
        let open = changes.open();
        assert_eq!((changes.version(), changes.least_since(1)), (None, i64::MIN));
        drop(open);
        assert_eq!((changes.version(), changes.least_since(1)), (Some(1), i64::MAX));
    }

    proptest! {
        /// Never later than the truth, and the truth while there are few marks.
        #[test]
        fn the_least_time_since_a_version_is_what_a_list_says(
            times in prop::collection::vec(-50_i64..50, 1..200), asked in 0_usize..200,
        ) {
            let changes = Changes::default();
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
