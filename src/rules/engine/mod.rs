//! The engine: all groups of all organisations, evaluated when they are due.
//!
//! The threads of the engine take due groups from a queue in which organisations take turns. While
//! a group is evaluated, its state belongs to the thread; the lock of the engine is held only to
//! take it and to put it back. The API reads copies that are made after each evaluation.

mod ends;
mod hold;
mod job;
mod queue;
mod schedule;
mod send;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use super::group::RuleGroup;
use super::run::{GroupRun, RuleSettings};
use crate::clock::Clock;
use crate::model::{AlertSink, OrgId, Timestamp};
use crate::sync::IgnorePoison as _;
use crate::tsdb::Tsdb;
pub use hold::HeldGroups;
use job::{AHEAD_MS_MAX, JobKind, RuleJob};
use queue::{DueQueue, PlannedEvaluation};
pub use schedule::MissedPolicy;
use schedule::RuleGrid;
pub use view::{RuleGroupKey, RuleGroupView, RuleSource, RuleView};

/// The longest sleep of a thread, so that a clock that was set is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// How far the clock must go back, in milliseconds, so that all groups are planned again.
const CLOCK_BACK_MS: i64 = 1_000;

/// The dependencies of the engine.
pub struct RuleEngineParts {
    /// The store.
    pub tsdb: Arc<Tsdb>,
    /// The receiver of alerts.
    pub sink: Option<Arc<dyn AlertSink>>,
    /// The settings of evaluations.
    pub settings: RuleSettings,
    /// The clock.
    pub clock: Clock,
    /// The treatment of missed evaluations.
    pub missed: MissedPolicy,
    /// The least time between two sendings of a firing alert, in milliseconds.
    pub resend_delay_ms: i64,
}

/// Numbers of all organisations together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCounters {
    /// The number of groups.
    pub groups: u64,
    /// The number of rules.
    pub rules: u64,
    /// Evaluations of groups.
    pub evaluations: u64,
    /// Evaluations of rules that failed.
    pub failures: u64,
    /// Evaluations of groups that were missed.
    pub missed: u64,
    /// Evaluations of groups that panicked.
    pub panics: u64,
    /// Samples that rules wrote.
    pub samples: u64,
    /// Microseconds that evaluations took.
    pub busy_us: u64,
    /// Alerts that were passed to the receiver.
    pub sent: u64,
}

/// The engine. Dropping it without [`RuleEngine::stop`] leaves its threads running.
pub struct RuleEngine {
    parts: RuleEngineParts,
    state: Mutex<EngineState>,
    wake: Condvar,
    closed: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    totals: EngineTotals,
    /// Held while stored groups and those of the engine are made equal.
    changing: Mutex<()>,
}

#[derive(Default)]
struct EngineTotals {
    evaluations: AtomicU64,
    failures: AtomicU64,
    missed: AtomicU64,
    panics: AtomicU64,
    samples: AtomicU64,
    busy_us: AtomicU64,
    sent: AtomicU64,
}

#[derive(Default)]
struct EngineState {
    slots: BTreeMap<RuleGroupKey, GroupSlot>,
    queue: DueQueue,
    /// The names of alerts that several rules of an organisation raise.
    ambiguous: HashMap<OrgId, Arc<HashSet<String>>>,
    plans: u64,
    last_now: Option<Timestamp>,
}

/// A group of the engine.
struct GroupSlot {
    group: Arc<RuleGroup>,
    grid: RuleGrid,
    /// The number of the current plan; earlier plans of the group are ignored.
    plan: u64,
    /// None while a thread evaluates the group.
    run: Option<Box<GroupRun>>,
    /// Whether the state was restored.
    restored: bool,
    /// When the group was removed, if it waits for the end of its series.
    removed_at: Option<Timestamp>,
    /// The changes under way, during which no evaluation begins ([`RuleEngine::hold`]).
    holds: usize,
    /// The due time of an evaluation that was taken from the queue meanwhile.
    held_due: Option<Timestamp>,
    missed: u64,
    view: Arc<RuleGroupView>,
}

impl GroupSlot {
    fn new(key: &RuleGroupKey, run: GroupRun, removed_at: Option<Timestamp>) -> GroupSlot {
        GroupSlot {
            view: Arc::new(RuleGroupView::of(key, &run, 0)),
            group: Arc::clone(&run.group),
            grid: RuleGrid::new(run.interval_ms, key.source.as_str(), &key.name),
            plan: 0,
            run: Some(Box::new(run)),
            restored: false,
            removed_at,
            holds: 0,
            held_due: None,
            missed: 0,
        }
    }
}

impl std::fmt::Debug for RuleEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleEngine").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

impl RuleEngine {
    /// Creates an engine without groups and without threads.
    pub fn new(parts: RuleEngineParts) -> Arc<RuleEngine> {
        Arc::new(RuleEngine {
            parts,
            state: Mutex::default(),
            wake: Condvar::new(),
            closed: AtomicBool::new(false),
            threads: Mutex::default(),
            totals: EngineTotals::default(),
            changing: Mutex::default(),
        })
    }

    /// Creates an engine without groups, threads and a receiver of alerts, for tests of other
    /// rooms.
    pub fn scaffold(tsdb: &Arc<Tsdb>, clock: &Clock) -> Arc<RuleEngine> {
        RuleEngine::new(RuleEngineParts {
            tsdb: Arc::clone(tsdb),
            sink: None,
            settings: RuleSettings::default(),
            clock: clock.clone(),
            missed: MissedPolicy::Skip,
            resend_delay_ms: 60_000,
        })
    }

    /// Starts threads that evaluate groups.
    ///
    /// # Errors
    /// The operating system cannot create a thread.
    pub fn start(self: &Arc<RuleEngine>, threads: usize) -> std::io::Result<()> {
        for number in 0..threads.max(1) {
            let engine = Arc::clone(self);
            let thread = std::thread::Builder::new()
                .name(format!("rules-{number}"))
                .stack_size(job::STACK_BYTES)
                .spawn(move || engine.work())?;
            self.threads.lock().ignore_poison().push(thread);
        }
        Ok(())
    }

    /// Stops the threads: running queries are cancelled, and the call waits for their end. Series
    /// of removed groups and rules end now, because a later start finds only their stored versions.
    pub fn stop(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().ignore_poison());
        for thread in threads {
            // A panic of the thread has been reported by the hook.
            let _ = thread.join();
        }
        self.end_removed(self.parts.clock.now());
    }

    /// Replaces all groups of a source. Groups of the same name keep their state; the series of the
    /// others end after two intervals.
    pub fn set_groups(&self, org: OrgId, source: &RuleSource, groups: Vec<RuleGroup>) {
        let now = self.parts.clock.now();
        let prepare = |group: RuleGroup| {
            let key = RuleGroupKey { org, source: source.clone(), name: Arc::from(group.name.as_str()) };
            (key, GroupRun::new(Arc::new(group), &self.parts.settings))
        };
        let prepared: Vec<(RuleGroupKey, GroupRun)> = groups.into_iter().map(prepare).collect();
        let mut state = self.lock();
        let mut kept = HashSet::new();
        for (key, run) in prepared {
            kept.insert(Arc::clone(&key.name));
            state.set_group(&key, run);
        }
        let gone = state.keys_of(org);
        for key in gone.into_iter().filter(|key| key.source == *source && !kept.contains(&key.name)) {
            state.remove_group(&key, now);
        }
        state.find_ambiguous(org);
        drop(state);
        self.wake.notify_all();
    }

    /// Adds or replaces one group.
    pub fn set_group(&self, org: OrgId, source: RuleSource, group: RuleGroup) {
        let key = RuleGroupKey { org, source, name: Arc::from(group.name.as_str()) };
        let run = GroupRun::new(Arc::new(group), &self.parts.settings);
        let mut state = self.lock();
        state.set_group(&key, run);
        state.find_ambiguous(org);
        drop(state);
        self.wake.notify_all();
    }

    /// Removes one group. Its series end after two intervals.
    pub fn remove_group(&self, key: &RuleGroupKey) {
        let now = self.parts.clock.now();
        let mut state = self.lock();
        state.remove_group(key, now);
        state.find_ambiguous(key.org);
        drop(state);
        self.wake.notify_all();
    }

    /// Forgets all groups of an organisation that is deleted. No more samples are written for it.
    pub fn forget_org(&self, org: OrgId) {
        let mut state = self.lock();
        for key in state.keys_of(org) {
            state.slots.remove(&key);
        }
        state.queue.forget(org);
        state.ambiguous.remove(&org);
    }

    /// Returns the groups of an organisation, in the order of their sources and names.
    pub fn groups(&self, org: OrgId) -> Vec<Arc<RuleGroupView>> {
        let state = self.lock();
        let slots = state.slots_of(org).filter(|(_, slot)| slot.removed_at.is_none());
        slots.map(|(_, slot)| Arc::clone(&slot.view)).collect()
    }

    /// Locks changes of groups. A caller that stores a group holds the lock until the engine has
    /// the group too, so that the engine ends with the newest version.
    pub fn changes(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().ignore_poison()
    }

    /// Returns the identities of all groups.
    pub fn keys(&self) -> Vec<RuleGroupKey> {
        let state = self.lock();
        let slots = state.slots.iter().filter(|(_, slot)| slot.removed_at.is_none());
        slots.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the organisations of all groups, in their order. Removed groups that wait for the
    /// end of their series count, too. The cost is a search for each organisation, not a visit of
    /// each group.
    pub fn orgs(&self) -> Vec<OrgId> {
        let state = self.lock();
        let first = state.slots.first_key_value().map(|(key, _)| key.org);
        std::iter::successors(first, |org| state.org_after(*org)).collect()
    }

    /// Forgets one group without ending its series, because another process evaluates it or its
    /// organisation is gone.
    pub fn forget_group(&self, key: &RuleGroupKey) {
        self.lock().slots.remove(key);
    }

    /// Returns one group.
    pub fn group(&self, key: &RuleGroupKey) -> Option<Arc<RuleGroupView>> {
        let state = self.lock();
        state.slots.get(key).filter(|slot| slot.removed_at.is_none()).map(|slot| Arc::clone(&slot.view))
    }

    /// Returns the settings of evaluations.
    pub fn settings(&self) -> &RuleSettings {
        &self.parts.settings
    }

    /// Returns numbers of all organisations together.
    pub fn counters(&self) -> RuleCounters {
        let state = self.lock();
        let groups = state.slots.values().filter(|slot| slot.removed_at.is_none());
        let (groups, rules) = groups.fold((0, 0), |(groups, rules), slot| {
            (groups + 1, rules + u64::try_from(slot.group.rules.len()).unwrap_or(u64::MAX))
        });
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let EngineTotals { evaluations, failures, missed, panics, samples, busy_us, sent } = &self.totals;
        RuleCounters {
            groups,
            rules,
            evaluations: load(evaluations),
            failures: load(failures),
            missed: load(missed),
            panics: load(panics),
            samples: load(samples),
            busy_us: load(busy_us),
            sent: load(sent),
        }
    }

    /// Runs everything that is due at `now` on this thread; for tests and tools that inject the
    /// clock. Returns the number of jobs.
    pub fn run_due(&self, now: Timestamp) -> usize {
        let mut jobs = 0;
        loop {
            let job = self.lock().take_job(now);
            let Some(job) = job else { return jobs };
            self.run_job(job, now);
            jobs += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock().ignore_poison()
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Evaluates groups until the engine is stopped.
    fn work(&self) {
        while let Some((job, now)) = self.next_job() {
            self.run_job(job, now);
        }
    }

    fn next_job(&self) -> Option<(RuleJob, Timestamp)> {
        let mut state = self.lock();
        loop {
            if self.is_closed() {
                return None;
            }
            let now = self.parts.clock.now();
            if let Some(job) = state.take_job(now) {
                return Some((job, now));
            }
            let due_ms = state.queue.next_due().map_or(i64::MAX, |due| due.ms_since(now));
            let wait = Duration::from_millis(due_ms.max(1).unsigned_abs()).min(SLEEP_MAX);
            state = self.wake.wait_timeout(state, wait).ignore_poison().0;
        }
    }
}

impl EngineState {
    fn slots_of(&self, org: OrgId) -> impl Iterator<Item = (&RuleGroupKey, &GroupSlot)> {
        self.slots.range(RuleGroupKey::least_of(org)..).take_while(move |(key, _)| key.org == org)
    }

    /// Returns the next organisation that has a group.
    fn org_after(&self, org: OrgId) -> Option<OrgId> {
        let next = OrgId(org.0.checked_add(1)?);
        self.slots.range(RuleGroupKey::least_of(next)..).next().map(|(key, _)| key.org)
    }

    fn keys_of(&self, org: OrgId) -> Vec<RuleGroupKey> {
        self.slots_of(org).map(|(key, _)| key.clone()).collect()
    }

    fn set_group(&mut self, key: &RuleGroupKey, mut run: GroupRun) {
        let group = Arc::clone(&run.group);
        let grid = RuleGrid::new(run.interval_ms, key.source.as_str(), &key.name);
        match self.slots.get_mut(key) {
            Some(slot) => {
                let planned_anew = slot.removed_at.is_some() || slot.grid != grid;
                (slot.group, slot.grid, slot.removed_at) = (group, grid, None);
                if let Some(older) = slot.run.take() {
                    run.take_over(*older);
                    slot.view = Arc::new(RuleGroupView::of(key, &run, slot.missed));
                    slot.run = Some(Box::new(run));
                }
                if planned_anew {
                    self.plan(key, Timestamp::MIN);
                }
            }
            None => {
                self.slots.insert(key.clone(), GroupSlot::new(key, run, None));
                self.plan(key, Timestamp::MIN);
            }
        }
    }

    fn remove_group(&mut self, key: &RuleGroupKey, now: Timestamp) {
        let Some(slot) = self.slots.get_mut(key).filter(|slot| slot.removed_at.is_none()) else { return };
        slot.removed_at = Some(now);
        let due = slot.grid.end_of_removed(now);
        self.plan(key, due);
    }

    /// Plans a group that changed while it was evaluated: the plan of the change found no state.
    fn replan_after_change(&mut self, key: &RuleGroupKey) {
        let Some(slot) = self.slots.get(key) else { return };
        let due = slot.removed_at.map_or(Timestamp::MIN, |removed_at| slot.grid.end_of_removed(removed_at));
        self.plan(key, due);
    }

    /// Plans the next evaluation of a group, in place of an earlier plan.
    fn plan(&mut self, key: &RuleGroupKey, due: Timestamp) {
        self.plans += 1;
        let Some(slot) = self.slots.get_mut(key) else { return };
        (slot.plan, slot.held_due) = (self.plans, None);
        self.queue.plan(PlannedEvaluation { due, plan: self.plans, key: key.clone() });
    }

    fn find_ambiguous(&mut self, org: OrgId) {
        let (mut seen, mut twice) = (HashSet::new(), HashSet::new());
        let is_evaluated = |key: &RuleGroupKey| !matches!(key.source, RuleSource::Replaced(_));
        for (_, slot) in self.slots_of(org).filter(|(key, _)| is_evaluated(key)) {
            for rule in slot.group.rules.iter().filter(|rule| rule.alerting().is_some()) {
                if !seen.insert(rule.name().to_owned()) {
                    twice.insert(rule.name().to_owned());
                }
            }
        }
        self.ambiguous.insert(org, Arc::new(twice));
    }

    /// Plans all groups again if the clock went back. Ends of series wait for the clock.
    fn notice_clock(&mut self, now: Timestamp) {
        let back = self.last_now.is_some_and(|last| last.ms_since(now) > CLOCK_BACK_MS);
        self.last_now = Some(now);
        if !back {
            return;
        }
        for mut planned in self.queue.take_planned() {
            if let Some(slot) = self.slots.get(&planned.key).filter(|slot| slot.plan == planned.plan) {
                let waits = slot.removed_at.is_some_and(|at| at.ms_since(now) <= AHEAD_MS_MAX);
                if !waits {
                    planned.due = planned.due.min(slot.grid.after(now));
                }
                self.queue.plan(planned);
            }
        }
    }

    /// Takes the next group that is due.
    fn take_job(&mut self, now: Timestamp) -> Option<RuleJob> {
        self.notice_clock(now);
        loop {
            let PlannedEvaluation { due, plan, key } = self.queue.take(now)?;
            let mut slot = self.slots.get_mut(&key).filter(|slot| slot.plan == plan);
            if let Some(held) = slot.as_mut().filter(|slot| slot.holds > 0) {
                held.held_due = Some(due);
                slot = None;
            }
            let Some((slot, run)) = slot.and_then(|slot| slot.run.take().map(|run| (slot, run))) else {
                self.queue.done(key.org);
                continue;
            };
            let kind = match (slot.restored, slot.removed_at) {
                (restored, Some(removed_at)) => JobKind::End { removed_at, restored },
                (false, None) => JobKind::Restore,
                (true, None) if due == Timestamp::MIN => JobKind::Plan,
                (true, None) => JobKind::Evaluate,
            };
            let (grid, plan) = (slot.grid, slot.plan);
            let ambiguous = self.ambiguous.get(&key.org).cloned().unwrap_or_default();
            return Some(RuleJob { key, run, due, plan, kind, grid, ambiguous });
        }
    }
}
