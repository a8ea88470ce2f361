//! One job of the engine: a restore, an evaluation, or the end of a removed group.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::schedule::{MissedPolicy, RuleGrid};
use super::view::{RuleGroupKey, RuleGroupView};
use super::{RuleEngine, send};
use crate::clock::Stopwatch;
use crate::model::Timestamp;
use crate::rules::run::{GroupRun, RuleContext};

/// The stack of a thread in bytes: that of the threads that evaluate queries.
pub(super) const STACK_BYTES: usize = 8 << 20;
/// How far the last evaluation may be ahead of the clock, in milliseconds, so that the state waits
/// for the clock. Beyond it the state is restored as of now.
pub(super) const AHEAD_MS_MAX: i64 = 2 * 3_600_000;

/// The kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobKind {
    /// Restores the state after a start.
    Restore,
    /// Only plans the next evaluation, after the group changed.
    Plan,
    /// Evaluates the group.
    Evaluate,
    /// Ends the series of a removed group.
    End {
        /// The time at which the group was removed.
        removed_at: Timestamp,
        /// Whether its state was restored before.
        restored: bool,
    },
}

impl JobKind {
    fn is_end(self) -> bool {
        matches!(self, JobKind::End { .. })
    }
}

/// A group that a thread works on.
pub(super) struct RuleJob {
    pub(super) key: RuleGroupKey,
    pub(super) run: Box<GroupRun>,
    pub(super) due: Timestamp,
    pub(super) plan: u64,
    pub(super) kind: JobKind,
    pub(super) grid: RuleGrid,
    pub(super) ambiguous: Arc<HashSet<String>>,
}

/// The outcome of a job.
struct JobOutcome {
    next_due: Option<Timestamp>,
    skipped: u64,
}

impl RuleEngine {
    /// Runs a job without the lock, and puts the group back.
    pub(super) fn run_job(&self, mut job: RuleJob, now: Timestamp) {
        let watch = Stopwatch::start();
        let before = job.run.totals;
        let caught = catch_unwind(AssertUnwindSafe(|| self.execute(&mut job, now)));
        let outcome = caught.unwrap_or_else(|_| {
            self.totals.panics.fetch_add(1, Ordering::Relaxed);
            job.run.fail_all("the evaluation panicked");
            JobOutcome { next_due: (!job.kind.is_end()).then(|| job.grid.after(now)), skipped: 0 }
        });
        let after = job.run.totals;
        let add = |counter: &std::sync::atomic::AtomicU64, more: u64| {
            counter.fetch_add(more, Ordering::Relaxed);
        };
        add(&self.totals.evaluations, after.evaluations - before.evaluations);
        add(&self.totals.failures, after.failures - before.failures);
        add(&self.totals.samples, after.samples - before.samples);
        add(&self.totals.panics, after.panics - before.panics);
        add(&self.totals.missed, outcome.skipped);
        add(&self.totals.busy_us, micros(watch.elapsed()));
        self.put_back(job, &outcome);
    }

    fn execute(&self, job: &mut RuleJob, now: Timestamp) -> JobOutcome {
        let context = RuleContext {
            cancel: Some(&self.closed),
            ..RuleContext::new(&self.parts.settings, &self.parts.tsdb, job.key.org)
        };
        let grid = job.grid;
        let next = |at: Timestamp, skipped| JobOutcome { next_due: Some(grid.after(at)), skipped };
        match job.kind {
            JobKind::Restore => {
                let ambiguous = Arc::clone(&job.ambiguous);
                job.run.restore(context, now, |name| ambiguous.contains(name));
                let catches_up = matches!(self.parts.missed, MissedPolicy::CatchUp { .. });
                next(job.run.last_at.filter(|at| catches_up && *at < now).unwrap_or(now), 0)
            }
            JobKind::Plan => next(now, 0),
            JobKind::End { removed_at, restored } => {
                if !restored {
                    // Another rule may raise alerts of the same names now.
                    job.run.restore(context, removed_at, |_| true);
                }
                let is_done = job.run.end(context, grid.end_of_removed(removed_at), now);
                JobOutcome { next_due: (!is_done).then(|| grid.after(now)), skipped: 0 }
            }
            JobKind::Evaluate => {
                let (at, skipped) = grid.catch_up(job.due, now, self.parts.missed);
                let ahead_ms = job.run.last_at.map_or(i64::MIN, |last| last.ms_since(at));
                if ahead_ms > AHEAD_MS_MAX {
                    *job.run = GroupRun::new(Arc::clone(&job.run.group), &self.parts.settings);
                    let ambiguous = Arc::clone(&job.ambiguous);
                    job.run.restore(context, at.plus_ms(-1), |name| ambiguous.contains(name));
                }
                // A time that was evaluated before the clock went back is not evaluated again.
                if job.run.last_at.is_none_or(|last| last < at) {
                    job.run.evaluate(context, at, now);
                }
                self.send_alerts(job, at, now);
                next(at, skipped)
            }
        }
    }

    fn send_alerts(&self, job: &mut RuleJob, at: Timestamp, now: Timestamp) {
        let Some(sink) = &self.parts.sink else { return };
        let delay_ms = self.parts.resend_delay_ms;
        let alerts = send::alerts_to_send(&mut job.run, at, now, delay_ms);
        if !alerts.is_empty() {
            let sent = u64::try_from(alerts.len()).unwrap_or(u64::MAX);
            self.totals.sent.fetch_add(sent, Ordering::Relaxed);
            sink.send(job.key.org, alerts, now);
        }
    }

    /// Puts a group back, makes its new view, and plans its next evaluation. A version that arrived
    /// meanwhile takes over the state.
    fn put_back(&self, job: RuleJob, outcome: &JobOutcome) {
        let RuleJob { key, mut run, plan, kind, .. } = job;
        let mut view = None;
        loop {
            let mut state = self.lock();
            let Some(slot) = state.slots.get_mut(&key) else {
                state.queue.done(key.org);
                return;
            };
            // A newer version is compiled, and the view is copied, outside of the lock.
            if !Arc::ptr_eq(&slot.group, &run.group) {
                let group = Arc::clone(&slot.group);
                drop(state);
                let mut newer = GroupRun::new(group, &self.parts.settings);
                newer.take_over(*run);
                (run, view) = (Box::new(newer), None);
                continue;
            }
            let missed = slot.missed + outcome.skipped;
            let Some(view) = view.take() else {
                drop(state);
                view = Some(Arc::new(RuleGroupView::of(&key, &run, missed)));
                continue;
            };
            (slot.view, slot.missed, slot.restored) = (view, missed, true);
            slot.run = Some(run);
            let (current, removed) = (slot.plan == plan, slot.removed_at.is_some());
            if current && removed && kind.is_end() && outcome.next_due.is_none() {
                state.slots.remove(&key);
            } else if current && let Some(due) = outcome.next_due {
                state.plan(&key, due);
            } else {
                state.replan_after_change(&key);
            }
            state.queue.done(key.org);
            drop(state);
            self.wake.notify_one();
            return;
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
