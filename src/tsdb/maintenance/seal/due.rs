//! Decides when an organisation is sealed.
//!
//! A window of event time, half an hour from :00 or :30, closes when the clock is two minutes past
//! its end and no sample before the end has arrived for ten seconds. If such samples keep arriving,
//! it closes fifteen minutes after the first sample at or after the end, so that a backfill of old
//! times stays in order, too. High memory use, a large log and many late samples make it close
//! earlier. One sender's clock never makes another's samples late, since only the server's clock
//! and arrivals count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{DueSeal, forced_until, needs_seal_of_all, window_end};
use crate::clock::Stopwatch;
use crate::model::{OrgId, Timestamp};
use crate::tsdb::options::Options;
use crate::tsdb::store::{OrgStore, Stores};
use crate::tsdb::wal::log::Log;

/// The length of a window in ms.
pub(super) const WINDOW_MS: i64 = 30 * 60_000;
/// The time that the clock must be past the end of a window.
const PAST_MS: i64 = 2 * 60_000;
/// The time without samples before the end of a window.
const QUIET_MS: i64 = 10_000;
/// The time after the first sample at or after the end that closes the window in any case.
const PATIENCE_MS: i64 = 15 * 60_000;
/// The delay before a failed seal is retried, and between two early seals.
const AGAIN_MS: i64 = 60_000;

/// Returns whether `ms` have passed since `since`. A time ahead of the clock counts as passed,
/// because it comes from a clock that was wrong.
fn passed(since: Timestamp, now: Timestamp, ms: i64) -> bool {
    !(0..ms).contains(&now.ms_since(since))
}

/// The state of the decisions. Its lock admits one seal at a time.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Sealer {
    orgs: BTreeMap<OrgId, OrgSchedule>,
    /// The time of the last early seal of everything.
    early_at: Option<Timestamp>,
    /// The time since the last successful seal.
    last_made: Option<Stopwatch>,
}

/// The state of the decisions for one organisation.
#[derive(Debug, Default)]
struct OrgSchedule {
    /// The end of the window that closes next.
    end: i64,
    /// The last time at which a sample before the end had arrived.
    below_at: Option<Timestamp>,
    /// The first time at which a sample at or after the end had arrived.
    beyond_since: Option<Timestamp>,
    /// The end of the last sealed window.
    done: Option<i64>,
    failure: Option<(Timestamp, String)>,
    /// The time of the last early seal for its own memory.
    pressed_at: Option<Timestamp>,
    /// The time at which a seal of all times was last due.
    all_at: Option<Timestamp>,
}

/// The clocks of a decision.
#[derive(Clone, Copy)]
pub(super) struct SealClock {
    /// The wall clock.
    pub(super) now: Timestamp,
    /// The latest time of a sample from a correct clock.
    pub(super) latest: Timestamp,
}

impl Sealer {
    /// Returns the seals that are due now, with their ends. A sample after `latest` comes from a
    /// wrong clock. For seals that free memory or log space, only the wall clock decides which
    /// samples are ahead. If the wall clock is behind, those samples come from correct senders, and
    /// a seal without them would free nothing.
    pub(super) fn due(
        &mut self,
        stores: &Stores,
        options: &Options,
        log: &Log,
        clock: SealClock,
    ) -> Vec<DueSeal> {
        let SealClock { now, latest } = clock;
        let end = now.as_ms().saturating_sub(PAST_MS).div_euclid(WINDOW_MS).saturating_mul(WINDOW_MS);
        let all = stores.all();
        let early = self.is_early(&all, stores, options, log, now);
        let mut due = Vec::new();
        for store in all {
            let schedule = self.orgs.entry(store.org).or_default();
            let is_ripe = schedule.is_ripe(&store, end, now);
            if schedule.failed_recently(now) {
                continue;
            }
            let again = schedule.all_at.is_none_or(|at| passed(at, now, AGAIN_MS));
            let asked = early || schedule.is_pressed(&store, now);
            let latest = if asked { options.latest_plausible(now) } else { latest };
            if again && needs_seal_of_all(&store, log, latest) {
                schedule.all_at = Some(now);
                due.push(DueSeal { until: window_end(now), all: true, store });
            } else if asked {
                let until = forced_until(&store, None, now);
                if has_work(&store, until, log) {
                    due.push(DueSeal { store, until, all: false });
                }
            } else if is_ripe && schedule.done != Some(end) {
                let until = end_for(&store, end);
                if has_work(&store, until, log) {
                    due.push(DueSeal { store, until, all: false });
                } else {
                    // Samples that arrive for this window from now on wait for the next one.
                    schedule.done = Some(end);
                }
            }
        }
        due
    }

    /// Returns whether memory, log size or late samples require a seal of all samples.
    fn is_early(
        &mut self,
        all: &[Arc<OrgStore>],
        stores: &Stores,
        options: &Options,
        log: &Log,
        now: Timestamp,
    ) -> bool {
        let late: u64 = all.iter().map(|store| store.head.counters.late.load(Ordering::Relaxed)).sum();
        // A seal does not release the files that only pins or a follower keep.
        let held_bytes = log.counters().held_bytes.load(Ordering::Relaxed);
        let log_bytes = log.counters().file_bytes.load(Ordering::Relaxed).saturating_sub(held_bytes);
        let asked = stores.head_bytes.load(Ordering::Relaxed) > options.seal_head_bytes
            || log_bytes > options.seal_log_bytes
            || late > options.seal_late_samples;
        let again = self.early_at.is_none_or(|at| passed(at, now, AGAIN_MS));
        if asked && again {
            self.early_at = Some(now);
        }
        asked && again
    }

    pub(super) fn record_success(&mut self, org: OrgId) {
        self.last_made = Some(Stopwatch::start());
        let schedule = self.orgs.entry(org).or_default();
        (schedule.failure, schedule.done) = (None, Some(schedule.end));
    }

    /// Returns the end of the last sealed window.
    pub(super) fn done(&self, org: OrgId) -> Option<i64> {
        self.orgs.get(&org).and_then(|schedule| schedule.done)
    }

    /// Sets the end of the last sealed window, after a seal that closed none.
    pub(super) fn set_done(&mut self, org: OrgId, done: Option<i64>) {
        self.orgs.entry(org).or_default().done = done;
    }

    /// Returns whether a seal of the organisation failed within the last minute.
    pub(super) fn failed_recently(&self, org: OrgId, now: Timestamp) -> bool {
        self.orgs.get(&org).is_some_and(|schedule| schedule.failed_recently(now))
    }

    pub(super) fn record_failure(&mut self, org: OrgId, now: Timestamp, why: String) {
        self.orgs.entry(org).or_default().failure = Some((now, why));
    }

    /// Returns whether a seal succeeded within the last `time`.
    pub(in crate::tsdb) fn made_within(&self, time: Duration) -> bool {
        self.last_made.is_some_and(|watch| watch.elapsed() < time)
    }

    /// Describes the failed seals without a later success, one sentence each.
    pub(in crate::tsdb) fn failures(&self) -> impl Iterator<Item = String> {
        self.orgs.iter().filter_map(|(org, schedule)| {
            let (at, why) = schedule.failure.as_ref()?;
            let at = at.to_rfc3339();
            Some(format!(
                "organisation {org} was not sealed at {at}; its samples stay in memory and in the log: {why}"
            ))
        })
    }
}

impl OrgSchedule {
    /// Returns whether a seal failed within the last minute.
    fn failed_recently(&self, now: Timestamp) -> bool {
        self.failure.as_ref().is_some_and(|(at, _)| !passed(*at, now, AGAIN_MS))
    }

    /// Returns whether the organisation's memory limit requires a seal of its samples.
    fn is_pressed(&mut self, store: &OrgStore, now: Timestamp) -> bool {
        let again = self.pressed_at.is_none_or(|at| passed(at, now, AGAIN_MS));
        let pressed = again && store.usage.take_pressed();
        if pressed {
            self.pressed_at = Some(now);
        }
        pressed
    }

    /// Records the arrivals since the last call. Returns whether the window may be closed.
    fn is_ripe(&mut self, store: &OrgStore, end: i64, now: Timestamp) -> bool {
        if end != self.end {
            (self.end, self.beyond_since) = (end, None);
        }
        if store.arrivals.take_least() < end {
            self.below_at = Some(now);
        }
        if store.arrivals.greatest() >= end {
            self.beyond_since.get_or_insert(now);
        }
        let quiet = self.below_at.is_none_or(|at| passed(at, now, QUIET_MS));
        quiet || self.beyond_since.is_some_and(|since| passed(since, now, PATIENCE_MS))
    }
}

/// Returns the end of a seal when the window up to `end` closes: at most the end of the window of
/// the newest sample, so that a clock that is ahead for a while does not make all later samples
/// late.
fn end_for(store: &OrgStore, end: i64) -> i64 {
    let newest = store
        .greatest_ms()
        .map_or(end, |newest| newest.div_euclid(WINDOW_MS).saturating_add(1).saturating_mul(WINDOW_MS));
    end.min(newest).max(store.segments().sealed_until)
}

/// Returns whether there are samples to move, or a log file is held only by this organisation.
pub(super) fn has_work(store: &OrgStore, until: i64, log: &Log) -> bool {
    if store.least_ms().is_some_and(|least| least < until) {
        return true;
    }
    let set = store.segments();
    log.full_files()
        .iter()
        .flat_map(|file| file.spans.iter().flatten())
        .any(|span| span.org == store.org && !set.covers(span) && span.greatest_ms < until)
}
