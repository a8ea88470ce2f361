//! Decides when deletions are carried out, that is, when deleted samples are removed from segments
//! and log.
//!
//! Every merge drops deleted samples. A deletion without a merge waits an hour for others, so that
//! several deletions rewrite a segment only once. Then segments are merged for its sake if no other
//! work is left, and after twelve hours before all other work. So deletions complete within a day
//! (docs/specification.md C6), even if a job takes ten seconds for each of 4,096 segments. A log
//! file with deleted samples is closed and removed as soon as its samples are in segments.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{OrgId, Timestamp};
use crate::tsdb::store::OrgStore;
use crate::tsdb::store::manifest::TOMBSTONES_MAX;

const HOUR_MS: i64 = 3_600_000;
/// The time that a deletion waits for others.
const DUE_MS: i64 = HOUR_MS;
/// The time after which a deletion comes before all other work.
const OVERDUE_MS: i64 = 12 * HOUR_MS;
/// The time between two checks of the log.
const LOG_MS: i64 = HOUR_MS;

/// The urgency of a deletion by its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Age {
    Fresh,
    Due,
    Overdue,
}

/// The pending deletions and the times at which they were first seen. The deletions are kept only
/// in memory. Deletions found at a start are overdue.
#[derive(Debug, Default)]
pub(super) struct PendingDeletions {
    since: BTreeMap<(OrgId, u64), Option<Timestamp>>,
    refreshed: bool,
    log_at: Option<Timestamp>,
}

/// Returns whether `ms` have passed since `since`. A time ahead of the clock counts as passed,
/// because it comes from a clock that was wrong.
fn passed(since: Timestamp, now: Timestamp, ms: i64) -> bool {
    !(0..ms).contains(&now.ms_since(since))
}

impl PendingDeletions {
    /// Adds new deletions and removes completed ones.
    pub(super) fn refresh(&mut self, stores: &[Arc<OrgStore>], now: Timestamp) {
        let first = self.refreshed.then_some(now);
        let before = std::mem::take(&mut self.since);
        for store in stores {
            for (number, _) in &store.segments().tombstones {
                let key = (store.org, *number);
                self.since.insert(key, before.get(&key).copied().unwrap_or(first));
            }
        }
        self.refreshed = true;
    }

    /// Returns the age of a deletion. `all` is the number of deletions of its organisation.
    pub(super) fn age(&self, deletion: (OrgId, u64), all: usize, now: Timestamp) -> Age {
        match self.since.get(&deletion) {
            // The deletion arrived after the last refresh.
            None => Age::Fresh,
            Some(None) => Age::Overdue,
            Some(Some(since)) if passed(*since, now, OVERDUE_MS) => Age::Overdue,
            // Deletions become due early when half of their limit is used.
            Some(Some(since)) if passed(*since, now, DUE_MS) || all > TOMBSTONES_MAX / 2 => Age::Due,
            Some(Some(_)) => Age::Fresh,
        }
    }

    /// Returns the last log record with deleted samples that should be removed by now; `None` if
    /// there is no such record, or if the last check is less than an hour ago.
    pub(super) fn due_in_log(&mut self, stores: &[Arc<OrgStore>], begin: u64, now: Timestamp) -> Option<u64> {
        if self.log_at.is_some_and(|at| !passed(at, now, LOG_MS)) {
            return None;
        }
        let mut last = None;
        for store in stores {
            let set = store.segments();
            for (number, tombstone) in &set.tombstones {
                let old = self.age((store.org, *number), set.tombstones.len(), now) >= Age::Due;
                if old && tombstone.upto_seq >= begin {
                    last = last.max(Some(tombstone.upto_seq));
                }
            }
        }
        if last.is_some() {
            self.log_at = Some(now);
        }
        last
    }
}
