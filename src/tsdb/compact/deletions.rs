//! When deletions are carried out: when what they hide is removed from segments and log.
//!
//! Every merge leaves out what is deleted. Where none comes along, a deletion waits an hour for others, so that many of them
//! write a segment once and not once each; then segments are merged for its sake when nothing else is to be done, and
//! after twelve hours before anything else: within a day (docs/specification.md C6) even where a job takes ten seconds for each of 4,096
//! segments. A log file that has its records is ended and removed as soon as its samples are in segments.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{OrgId, Timestamp};
use crate::tsdb::manifest::TOMBSTONES_MAX;
use crate::tsdb::store::OrgStore;

const HOUR_MS: i64 = 3_600_000;
/// Others are waited for.
const DUE_MS: i64 = HOUR_MS;
/// Nothing else comes first any more.
const OVERDUE_MS: i64 = 12 * HOUR_MS;
/// Time between two looks at the log.
const LOG_MS: i64 = HOUR_MS;

/// How long a deletion waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Age {
    Fresh,
    Due,
    Overdue,
}

/// The deletions that are not carried out, and since when they are known. In memory alone: those that a start finds are
/// overdue.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    since: BTreeMap<(OrgId, u64), Option<Timestamp>>,
    looked: bool,
    log_at: Option<Timestamp>,
}

/// Whether so much time has passed. A moment ahead of the clock is of a clock that was wrong: it holds nothing up.
fn passed(since: Timestamp, now: Timestamp, ms: i64) -> bool {
    !(0..ms).contains(&now.ms_since(since))
}

impl Waiting {
    /// Takes note of what came and went.
    pub(super) fn look(&mut self, stores: &[Arc<OrgStore>], now: Timestamp) {
        let first = self.looked.then_some(now);
        let before = std::mem::take(&mut self.since);
        for store in stores {
            for (number, _) in &store.segments().tombstones {
                let key = (store.org, *number);
                self.since.insert(key, before.get(&key).copied().unwrap_or(first));
            }
        }
        self.looked = true;
    }

    /// How long a deletion waits, one of so many of its organisation.
    pub(super) fn age(&self, deletion: (OrgId, u64), all: usize, now: Timestamp) -> Age {
        match self.since.get(&deletion) {
            // It came after the last look.
            None => Age::Fresh,
            Some(None) => Age::Overdue,
            Some(Some(since)) if passed(*since, now, OVERDUE_MS) => Age::Overdue,
            // Room is made before it is needed.
            Some(Some(since)) if passed(*since, now, DUE_MS) || all > TOMBSTONES_MAX / 2 => Age::Due,
            Some(Some(_)) => Age::Fresh,
        }
    }

    /// The last record of the log that has something deleted which is to be gone by now, if it is time to look.
    pub(super) fn in_the_log(&mut self, stores: &[Arc<OrgStore>], begin: u64, now: Timestamp) -> Option<u64> {
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
