//! When which organisation is to be sealed.
//!
//! A window of event time, half an hour at :00 and :30, closes when the clock is two minutes past its end and no sample
//! below the end has come for ten seconds; where they keep coming, fifteen minutes after the first one beyond the end
//! was seen, so that a backfill of old times stays in order too. Memory, the log's size and too many late samples make
//! it sooner. One sender's clock never makes another's samples late, since only the server's clock and arrivals count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Due, forced_until, needs_seal_of_all, window_end};
use crate::clock::Stopwatch;
use crate::model::{OrgId, Timestamp};
use crate::tsdb::options::Options;
use crate::tsdb::store::{OrgStore, Stores};
use crate::tsdb::wal::log::Log;

pub(super) const WINDOW_MS: i64 = 30 * 60_000;
/// How far past its end the clock must be.
const PAST_MS: i64 = 2 * 60_000;
/// How long nothing below the end may have come.
const QUIET_MS: i64 = 10_000;
/// After so long beyond the end it is not waited for quiet any more.
const PATIENCE_MS: i64 = 15 * 60_000;
/// A seal that failed is tried again, and an early one repeated, after this.
const AGAIN_MS: i64 = 60_000;

/// Whether so much time has passed. A moment ahead of the clock is of a clock that was wrong: it holds nothing up.
fn passed(since: Timestamp, now: Timestamp, ms: i64) -> bool {
    !(0..ms).contains(&now.ms_since(since))
}

/// What sealing remembers; one seal at a time.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Sealer {
    orgs: BTreeMap<OrgId, Watch>,
    /// When everything was sealed early.
    early_at: Option<Timestamp>,
    /// Since the last seal that was made.
    last_made: Option<Stopwatch>,
}

/// What is known of one organisation.
#[derive(Debug, Default)]
struct Watch {
    /// The end of the window that is waited for.
    end: i64,
    /// When a sample below it was seen last.
    below_at: Option<Timestamp>,
    /// When one beyond it was seen first.
    beyond_since: Option<Timestamp>,
    /// The end of the last window that is sealed.
    done: Option<i64>,
    failure: Option<(Timestamp, String)>,
    /// When it was sealed early for its own memory.
    pressed_at: Option<Timestamp>,
    /// When all its times were to be sealed.
    all_at: Option<Timestamp>,
}

impl Sealer {
    /// What is to be sealed now, and up to when. A sample after `latest` is of a wrong clock. Where memory or the log ask for
    /// a seal, the wall clock alone decides which samples are ahead: if it is behind, they are those of right senders, and
    /// without them nothing would become free.
    pub(super) fn due(
        &mut self,
        stores: &Stores,
        options: &Options,
        log: &Log,
        (now, latest): (Timestamp, Timestamp),
    ) -> Vec<Due> {
        let end = now.as_ms().saturating_sub(PAST_MS).div_euclid(WINDOW_MS).saturating_mul(WINDOW_MS);
        let all = stores.all();
        let early = self.is_early(&all, stores, options, log, now);
        let mut due = Vec::new();
        for store in all {
            let watch = self.orgs.entry(store.org).or_default();
            let is_ripe = watch.is_ripe(&store, end, now);
            let rests = watch.failure.as_ref().is_some_and(|(at, _)| !passed(*at, now, AGAIN_MS));
            if rests {
                continue;
            }
            let again = watch.all_at.is_none_or(|at| passed(at, now, AGAIN_MS));
            let asked = early || watch.is_pressed(&store, now);
            let latest = if asked { options.latest_plausible(now) } else { latest };
            if again && needs_seal_of_all(&store, log, latest) {
                watch.all_at = Some(now);
                due.push(Due { until: window_end(now), all: true, store });
            } else if asked {
                let until = forced_until(&store, None, now);
                if has_work(&store, until, log) {
                    due.push(Due { store, until, all: false });
                }
            } else if is_ripe && watch.done != Some(end) {
                let until = end_for(&store, end);
                if has_work(&store, until, log) {
                    due.push(Due { store, until, all: false });
                } else {
                    // What comes for it from now on waits for the next one.
                    watch.done = Some(end);
                }
            }
        }
        due
    }

    /// Whether memory or space ask for a seal of everything.
    fn is_early(
        &mut self,
        all: &[Arc<OrgStore>],
        stores: &Stores,
        options: &Options,
        log: &Log,
        now: Timestamp,
    ) -> bool {
        let late: u64 = all.iter().map(|store| store.head.counters.late.load(Ordering::Relaxed)).sum();
        let asked = stores.head_bytes.load(Ordering::Relaxed) > options.seal_head_bytes
            || log.counters().file_bytes.load(Ordering::Relaxed) > options.seal_log_bytes
            || late > options.seal_late_samples;
        let again = self.early_at.is_none_or(|at| passed(at, now, AGAIN_MS));
        if asked && again {
            self.early_at = Some(now);
        }
        asked && again
    }

    pub(super) fn made(&mut self, org: OrgId) {
        self.last_made = Some(Stopwatch::start());
        let watch = self.orgs.entry(org).or_default();
        (watch.failure, watch.done) = (None, Some(watch.end));
    }

    pub(super) fn failed(&mut self, org: OrgId, now: Timestamp, why: String) {
        self.orgs.entry(org).or_default().failure = Some((now, why));
    }

    /// Whether something was sealed so lately.
    pub(in crate::tsdb) fn made_within(&self, time: Duration) -> bool {
        self.last_made.is_some_and(|watch| watch.elapsed() < time)
    }

    /// What failed and was not made since, one sentence each.
    pub(in crate::tsdb) fn failures(&self) -> impl Iterator<Item = String> {
        self.orgs.iter().filter_map(|(org, watch)| {
            let (at, why) = watch.failure.as_ref()?;
            let at = at.to_rfc3339();
            Some(format!(
                "organisation {org} was not sealed at {at}; its samples stay in memory and in the log: {why}"
            ))
        })
    }
}

impl Watch {
    /// Whether its memory is used up, and a seal of its own is to make room.
    fn is_pressed(&mut self, store: &OrgStore, now: Timestamp) -> bool {
        let again = self.pressed_at.is_none_or(|at| passed(at, now, AGAIN_MS));
        let pressed = again && store.usage.take_pressed();
        if pressed {
            self.pressed_at = Some(now);
        }
        pressed
    }

    /// Takes note of what came, and says whether the window may be closed.
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

/// How far an organisation is sealed when the window that ends at `end` closes: not beyond the window of its newest
/// sample, so that a clock that was wrong for a while does not make everything after it late.
fn end_for(store: &OrgStore, end: i64) -> i64 {
    let newest = store
        .greatest_ms()
        .map_or(end, |newest| newest.div_euclid(WINDOW_MS).saturating_add(1).saturating_mul(WINDOW_MS));
    end.min(newest).max(store.segments().sealed_until)
}

/// Whether there is anything to move, or a log file waits for this organisation alone.
fn has_work(store: &OrgStore, until: i64, log: &Log) -> bool {
    if store.least_ms().is_some_and(|least| least < until) {
        return true;
    }
    let set = store.segments();
    log.full_files()
        .iter()
        .flat_map(|file| file.spans.iter().flatten())
        .any(|span| span.org == store.org && !set.covers(span) && span.greatest_ms < until)
}
