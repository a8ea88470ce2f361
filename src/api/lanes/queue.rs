//! The queue of a lane: which organisation has the next turn, and which job makes room in a full
//! queue.
//!
//! The queue neither waits nor wakes threads: [`pool`](super::pool) holds the lock of the queue
//! meanwhile, and runs the jobs.

use std::collections::{BTreeMap, VecDeque};
use std::thread::Thread;
use std::time::Duration;

use super::arrivals::Arrivals;
use super::job::LaneJob;
use crate::clock::Stopwatch;
use crate::model::OrgId;

/// The jobs of one organisation on a lane. `None` stands for jobs without an organisation.
#[derive(Default)]
pub(super) struct OrgJobs {
    /// Waiting jobs; jobs that yield are behind the others.
    pub(super) waiting: VecDeque<LaneJob>,
    pub(super) running: usize,
    /// The time of its last turn, see [`LaneQueue::clock`]. A new organisation comes before the one
    /// that had the last turn, and after all others.
    last_turn: u64,
}

/// The waiting and the running jobs of a lane, by organisation.
#[derive(Default)]
pub(super) struct LaneQueue {
    /// Organisations with waiting or running jobs, and some that had them.
    pub(super) shares: BTreeMap<Option<OrgId>, OrgJobs>,
    pub(super) waiting: usize,
    pub(super) running: usize,
    arrivals: Arrivals<OrgId>,
    /// Whether more than one organisation was active at the last arrival.
    pub(super) is_shared: bool,
    /// Twice the number of turns so far. A turn gets the next odd number, and so comes after
    /// organisations that were queued before the next turn.
    clock: u64,
    /// Parked threads. The last one was parked last and is woken first, because its buffers may
    /// still be in a cache.
    pub(super) idle: Vec<Thread>,
    /// Whether threads end instead of taking a job.
    pub(super) closed: bool,
}

impl LaneQueue {
    /// Records a request of an organisation. Returns whether another organisation has jobs, or sent
    /// a request within `window`.
    pub(super) fn record(&mut self, org: OrgId, window: Duration) -> bool {
        let alone = self.arrivals.record(org, Stopwatch::start(), window);
        let is_other = |other: &Option<OrgId>| other.is_some_and(|other| other != org);
        let mut others = self.shares.iter().filter(|(other, _)| is_other(other));
        self.is_shared = !alone || others.any(|(_, share)| share.running + share.waiting.len() > 0);
        self.is_shared
    }

    /// Adds a waiting job.
    pub(super) fn push(&mut self, org: Option<OrgId>, job: LaneJob) {
        let new = || OrgJobs { last_turn: self.clock, ..OrgJobs::default() };
        let waiting = &mut self.shares.entry(org).or_insert_with(new).waiting;
        match job.yields {
            true => waiting.push_back(job),
            false => waiting.insert(waiting.partition_point(|other| !other.yields), job),
        }
        self.waiting += 1;
    }

    /// Takes the next job of an organisation with fewer than `threads_per_org` running jobs, and
    /// counts it as running.
    pub(super) fn take(&mut self, threads_per_org: usize) -> Option<(Option<OrgId>, LaneJob)> {
        let may = |org: &Option<OrgId>, share: &OrgJobs| org.is_none() || share.running < threads_per_org;
        let next = self.shares.iter().filter(|(org, share)| !share.waiting.is_empty() && may(org, share));
        let org = *next.min_by_key(|(_, share)| (share.running, share.last_turn))?.0;
        let job = self.shares.get_mut(&org)?.waiting.pop_front()?;
        self.waiting -= 1;
        self.begin(org);
        Some((org, job))
    }

    /// Returns whether an organisation has fewer than `threads_per_org` running jobs.
    pub(super) fn has_less_than(&self, threads_per_org: usize, org: Option<OrgId>) -> bool {
        self.shares.get(&org).is_none_or(|share| share.running < threads_per_org)
    }

    /// Counts a job that starts.
    pub(super) fn begin(&mut self, org: Option<OrgId>) {
        self.clock += 2;
        self.running += 1;
        let share = self.shares.entry(org).or_default();
        share.running += 1;
        share.last_turn = self.clock + 1;
    }

    /// Counts a job that ended.
    pub(super) fn finished(&mut self, org: Option<OrgId>) {
        self.running = self.running.saturating_sub(1);
        if let Some(share) = self.shares.get_mut(&org) {
            share.running = share.running.saturating_sub(1);
        }
        self.tidy(org);
    }

    /// Removes the jobs of `org` whose callers were dropped.
    pub(super) fn remove_abandoned(&mut self, org: Option<OrgId>) -> VecDeque<LaneJob> {
        let Some(share) = self.shares.get_mut(&org) else { return VecDeque::new() };
        let all = std::mem::take(&mut share.waiting);
        let (abandoned, stays) = all.into_iter().partition(|job| job.state.is_abandoned());
        share.waiting = stays;
        self.waiting -= VecDeque::len(&abandoned);
        self.tidy(org);
        abandoned
    }

    /// Removes the entry of an organisation without jobs if there are more than `IDLE_ENTRIES_MAX`
    /// entries. The others stay, so that most requests allocate nothing.
    fn tidy(&mut self, org: Option<OrgId>) {
        const IDLE_ENTRIES_MAX: usize = 64;
        if self.shares.len() > IDLE_ENTRIES_MAX
            && self.shares.get(&org).is_some_and(|share| share.waiting.is_empty() && share.running == 0)
        {
            self.shares.remove(&org);
        }
    }

    /// Removes the newest job of the organisation with the most waiting jobs, if `org` would have
    /// fewer even with one more. For a job that does not yield, a job of `org` that yields makes
    /// room first. The caller drops the job after it has released the lock.
    pub(super) fn make_room_for(&mut self, org: Option<OrgId>, yields: bool) -> Option<LaneJob> {
        if !yields
            && let Some(share) = self.shares.get_mut(&org)
            && share.waiting.back().is_some_and(|job| job.yields)
        {
            self.waiting -= 1;
            return share.waiting.pop_back();
        }
        // Jobs without an organisation are never removed.
        let own = self.shares.get(&org).map_or(0, |share| share.waiting.len());
        let of_orgs = self.shares.iter().filter(|(org, _)| org.is_some());
        let (most, waiting) =
            of_orgs.map(|(org, share)| (*org, share.waiting.len())).max_by_key(|(_, waiting)| *waiting)?;
        if org.is_none() || waiting <= own + 1 {
            return None;
        }
        let removed = self.shares.get_mut(&most)?.waiting.pop_back()?;
        self.waiting -= 1;
        self.tidy(most);
        Some(removed)
    }
}
