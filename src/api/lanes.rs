//! The bridge from async to the synchronous core: five bounded thread pools with bounded queues.
//!
//! A full queue, or a wait that is too long, is 503 `busy` with `Retry-After`, never a longer
//! queue. If a caller is dropped while its work waits, the work leaves the queue.
//!
//! Organisations take turns: a free thread runs work of the organisation with the fewest running
//! threads, and among those of the one whose last turn is longest ago. So an organisation that
//! sends one request waits for at most one job of each other organisation. On the query lane one
//! organisation never uses more than half of the threads (docs/specification.md C5). While other
//! organisations are active, it leaves one core free on the query lane and one thread free on the
//! ingest lane, so that their requests wait for no thread to be preempted. In a full queue the
//! newest job of the organisation with the most waiting jobs makes room for an organisation with
//! fewer.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use tokio::sync::oneshot;

use super::error::{ApiError, Code};
use super::limits::jittered_retry;
use crate::clock::Stopwatch;
use crate::identity::{Origin, with_origin};
use crate::model::OrgId;
use crate::promql::WorkerPool;
use crate::sync::IgnorePoison as _;

tokio::task_local! {
    /// The origin of this task's request, for the audit log.
    pub(super) static ORIGIN: Origin;
}

/// A thread pool, and the organisation whose work it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Decodes and appends samples of an organisation.
    Ingest(OrgId),
    /// Parses and evaluates queries of an organisation.
    Query(OrgId),
    /// Hashes passwords.
    Password,
    /// Changes accounts, sessions and keys, which ends with a disk sync. It is separate from
    /// password hashing, so that many logins do not block logouts.
    Account,
}

/// The size of a lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneOptions {
    /// The number of threads, and so the most jobs that run at once.
    pub threads: usize,
    /// The most waiting jobs, inclusive.
    pub queue: usize,
    /// The time after which a waiting job is refused.
    pub wait: Duration,
    /// The most threads of one organisation, inclusive.
    pub threads_per_org: usize,
}

/// The sizes of all lanes.
#[derive(Clone, Copy, Debug)]
pub struct LanesOptions {
    /// [`Lane::Ingest`].
    pub ingest: LaneOptions,
    /// [`Lane::Query`].
    pub query: LaneOptions,
    /// The most query threads of one organisation while another one is active on that lane.
    pub query_threads_shared: usize,
    /// The most ingest threads of one organisation while another one is active on that lane.
    pub ingest_threads_shared: usize,
    /// The time for which an organisation counts as active after its last request.
    pub activity_window: Duration,
    /// The lane that encodes and compresses chunks of large results: [`Lanes::run_answer`].
    pub answer: LaneOptions,
    /// [`Lane::Password`].
    pub password: LaneOptions,
    /// [`Lane::Account`].
    pub account: LaneOptions,
}

impl LanesOptions {
    /// Returns the sizes of docs/specification.md C5 and D2 for a machine with `cores` cores.
    pub fn for_cores(cores: usize) -> LanesOptions {
        let lane = |threads: usize, queue, wait_ms| LaneOptions {
            threads,
            queue,
            wait: Duration::from_millis(wait_ms),
            threads_per_org: threads,
        };
        let queries = cores.saturating_mul(2).max(2);
        LanesOptions {
            // One of these waits for disk syncs while the others decode the next group.
            ingest: lane(cores.saturating_add(1).max(2), 64, 2_000),
            query: LaneOptions { threads_per_org: (queries / 2).max(1), ..lane(queries, 32, 1_000) },
            query_threads_shared: cores.saturating_sub(1).max(1),
            ingest_threads_shared: cores.max(1),
            activity_window: Duration::from_secs(1),
            // A connection has at most one chunk here, which takes about a millisecond. The queue
            // has space for all connections.
            answer: LaneOptions { threads_per_org: cores.div_ceil(2), ..lane(cores.max(2), 1_024, 60_000) },
            password: lane(cores.clamp(1, 4), 32, 2_000),
            // These threads wait for disk syncs, which the committer groups: more threads make
            // larger groups.
            account: lane(8, 256, 10_000),
        }
    }

    /// Returns the sizes for the cores of this machine.
    pub fn for_this_machine() -> LanesOptions {
        LanesOptions::for_cores(std::thread::available_parallelism().map_or(2, usize::from))
    }
}

/// The five lanes. Cheap to clone; the threads end when the last clone is gone.
#[derive(Clone, Debug)]
pub struct Lanes(Arc<LanePools>);

#[derive(Debug)]
struct LanePools {
    ingest: LanePool,
    query: LanePool,
    answer: LanePool,
    password: LanePool,
    account: LanePool,
    workers: WorkerPool,
    arrivals: Mutex<Arrivals<SocketAddr>>,
    inlined_total: AtomicU64,
}

/// The last request with its connection or organisation, and the time of the last request of
/// another one.
#[derive(Debug)]
struct Arrivals<K> {
    last: Option<(K, Stopwatch)>,
    other: Option<Stopwatch>,
}

/// The time after which a connection counts as quiet.
const QUIET_PERIOD: Duration = Duration::from_millis(2);

impl<K> Default for Arrivals<K> {
    fn default() -> Arrivals<K> {
        Arrivals { last: None, other: None }
    }
}

impl<K: PartialEq + Copy> Arrivals<K> {
    /// Records a request. Returns whether no other connection or organisation sent one within
    /// `window`.
    fn record(&mut self, from: K, now: Stopwatch, window: Duration) -> bool {
        let before = self.last.replace((from, now));
        if let Some((_, at)) = before.filter(|(before, _)| *before != from) {
            self.other = Some(at);
        }
        self.other.is_none_or(|at| at.elapsed() >= window)
    }
}

impl Lanes {
    /// Starts the threads.
    ///
    /// # Errors
    /// The operating system cannot create a thread.
    pub fn start(options: &LanesOptions) -> std::io::Result<Lanes> {
        let start = |name, lane, shared| LanePool::start(name, lane, shared, options.activity_window);
        Ok(Lanes(Arc::new(LanePools {
            ingest: start("ingest", options.ingest, options.ingest_threads_shared)?,
            query: start("query", options.query, options.query_threads_shared)?,
            answer: start("answer", options.answer, options.answer.threads_per_org)?,
            password: start("password", options.password, options.password.threads_per_org)?,
            account: start("account", options.account, options.account.threads_per_org)?,
            // The query lane has two threads per core.
            workers: WorkerPool::new((options.query.threads / 2).max(1)),
            arrivals: Mutex::default(),
            inlined_total: AtomicU64::new(0),
        })))
    }

    /// Returns the worker threads that queries share.
    pub fn workers(&self) -> &WorkerPool {
        &self.0.workers
    }

    /// Records a request of this connection. Returns whether no other connection sent one within
    /// the last two milliseconds.
    pub fn note_arrival(&self, from: SocketAddr) -> bool {
        let mut arrivals = self.0.arrivals.lock().ignore_poison();
        arrivals.record(from, Stopwatch::start(), QUIET_PERIOD)
    }

    /// Records a query of this organisation. Workers leave a core free while other organisations
    /// send queries.
    fn record_query(&self, org: OrgId) {
        let shared = self.0.query.record(org);
        self.0.workers.reserve_cores(usize::from(shared));
    }

    /// Returns a permit of the query lane for work on the caller's thread, or `None` if no thread
    /// is free or jobs are waiting.
    pub fn try_inline(&self, org: OrgId) -> Option<InlinePermit<'_>> {
        self.record_query(org);
        let pool = &self.0.query;
        let mut state = pool.shared.lock();
        let free = !state.closed && state.waiting == 0 && state.running < pool.options.threads;
        if !free || !state.has_less_than(pool.shared.share(&state), Some(org)) {
            return None;
        }
        state.begin(Some(org));
        Some(InlinePermit { pool, org, done: &self.0.inlined_total })
    }

    /// Runs `work` on a thread of `lane` and waits for its result. Dropping the future removes
    /// waiting work from the queue. It does not stop running work; a caller uses [`CancelOnDrop`]
    /// for that.
    ///
    /// # Errors
    /// 503 `busy` if the queue is full or the wait too long, 503 `shutting_down`, 500 if `work`
    /// panics.
    pub async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        match lane {
            Lane::Query(org) => self.record_query(org),
            Lane::Ingest(org) => drop(self.0.ingest.record(org)),
            Lane::Password | Lane::Account => {}
        }
        let (pool, org) = match lane {
            Lane::Ingest(org) => (&self.0.ingest, Some(org)),
            Lane::Query(org) => (&self.0.query, Some(org)),
            Lane::Password => (&self.0.password, None),
            Lane::Account => (&self.0.account, None),
        };
        let origin = ORIGIN.try_with(Clone::clone).unwrap_or_default();
        let work = move || with_origin(&origin, work);
        // A dropped caller needs no result.
        let work = |reply: Reply<_>| drop(reply.send(catch_unwind(AssertUnwindSafe(work))));
        pool.run(org, work).await?.map_err(|panic| pool.panicked(panic.as_ref()))
    }

    /// Runs work that encodes a chunk of a large result of an organisation. Unlike [`Lanes::run`],
    /// the caller receives the result before the work ends, because the work may have much memory
    /// to free.
    ///
    /// # Errors
    /// Those of [`Lanes::run`]; also 500 if the work drops its [`Reply`].
    pub async fn run_answer<T: Send + 'static>(
        &self,
        org: OrgId,
        work: impl FnOnce(Reply<T>) + Send + 'static,
    ) -> Result<T, ApiError> {
        self.0.answer.run(Some(org), work).await
    }

    /// Runs ingest work that may reply from another thread after it has ended, when the disk has
    /// synced. The thread of the lane is free for other work until then. Refused senders get
    /// different `Retry-After` times.
    ///
    /// # Errors
    /// Those of [`Lanes::run`]; also 500 if the work drops its [`Reply`].
    pub async fn run_ingest<T: Send + 'static>(
        &self,
        org: OrgId,
        work: impl FnOnce(Reply<T>) + Send + 'static,
    ) -> Result<T, ApiError> {
        let busy = |error: ApiError| match error.code() {
            Code::Busy => error.with_retry_after(jittered_retry()),
            _ => error,
        };
        self.0.ingest.record(org);
        self.0.ingest.run(Some(org), work).await.map_err(busy)
    }

    /// Returns the number of inline queries so far, for `/metrics`.
    pub fn inlined_total(&self) -> u64 {
        self.0.inlined_total.load(Ordering::Relaxed)
    }

    /// Returns for each lane its name, running jobs, waiting jobs, and refused jobs so far, for
    /// `/metrics`.
    pub fn gauges(&self) -> [(&'static str, usize, usize, u64); 5] {
        let LanePools { ingest, query, answer, password, account, .. } = &*self.0;
        [ingest, query, answer, password, account].map(LanePool::gauges)
    }
}

/// A running job of the query lane on a thread that does not belong to it; released on drop.
#[derive(Debug)]
pub struct InlinePermit<'a> {
    pool: &'a LanePool,
    org: OrgId,
    done: &'a AtomicU64,
}

impl InlinePermit<'_> {
    /// Runs the work on this thread.
    ///
    /// # Errors
    /// 500 if `work` panics.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> Result<T, ApiError> {
        let origin = ORIGIN.try_with(Clone::clone).unwrap_or_default();
        self.done.fetch_add(1, Ordering::Relaxed);
        let done = catch_unwind(AssertUnwindSafe(|| with_origin(&origin, work)));
        done.map_err(|panic| self.pool.panicked(panic.as_ref()))
    }
}

impl Drop for InlinePermit<'_> {
    fn drop(&mut self) {
        self.pool.shared.end(Some(self.org), true);
    }
}

/// Sends the result of a job to its caller.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Sender<T>);

impl<T> Reply<T> {
    /// Sends the result.
    ///
    /// # Errors
    /// The result, if the caller was dropped.
    pub fn send(self, result: T) -> Result<(), T> {
        self.0.send(result)
    }
}

/// Sets its flag on drop. A handler holds one while its query runs, so that a closed connection
/// cancels the query.
#[derive(Debug)]
pub struct CancelOnDrop(Arc<std::sync::atomic::AtomicBool>);

impl CancelOnDrop {
    /// Returns a guard that sets `flag`.
    pub fn new(flag: Arc<std::sync::atomic::AtomicBool>) -> CancelOnDrop {
        CancelOnDrop(flag)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const WAITING: u8 = 0;
const STARTED: u8 = 1;
const GONE: u8 = 2;

struct LaneJob {
    state: Arc<AtomicU8>,
    work: Box<dyn FnOnce() + Send>,
}

/// Removes a waiting job when its caller is dropped.
struct QueuedJob<'a> {
    pool: &'a LanePool,
    org: Option<OrgId>,
    state: Arc<AtomicU8>,
}

impl QueuedJob<'_> {
    /// Removes the job from the queue. Returns false if it has started.
    fn leave(&self) -> bool {
        if self.state.compare_exchange(WAITING, GONE, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return false;
        }
        let left = self.pool.shared.lock().forget_gone(self.org);
        // Dropped without the lock, because a job owns data of its caller.
        drop(left);
        true
    }
}

impl Drop for QueuedJob<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

struct LanePool {
    name: &'static str,
    options: LaneOptions,
    shared: Arc<LaneShared>,
    refused: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct LaneShared {
    state: Mutex<LaneState>,
    threads_per_org: usize,
    /// The most threads of one organisation while others are active.
    threads_shared: usize,
    activity_window: Duration,
    /// Whether one organisation may not use all threads.
    capped: bool,
}

/// The jobs of one organisation on a lane. `None` stands for jobs without an organisation.
#[derive(Default)]
struct OrgJobs {
    waiting: VecDeque<LaneJob>,
    running: usize,
    /// The time of its last turn, see [`LaneState::clock`]. A new organisation stands behind all
    /// but the one that has just had its turn.
    last_turn: u64,
}

#[derive(Default)]
struct LaneState {
    /// Organisations with waiting or running jobs, and some that had them.
    shares: BTreeMap<Option<OrgId>, OrgJobs>,
    waiting: usize,
    running: usize,
    arrivals: Arrivals<OrgId>,
    /// Whether more than one organisation was active at the last arrival.
    is_shared: bool,
    /// Twice the number of turns so far. A turn gets the next odd number, and so lies behind
    /// organisations that came before the next turn.
    clock: u64,
    /// Parked threads. The last one was parked last and is woken first, because its buffers may
    /// still be in a cache.
    idle: Vec<Thread>,
    closed: bool,
}

impl LaneState {
    /// Records a request of an organisation. Returns whether another organisation has jobs, or sent
    /// a request within `window`.
    fn record(&mut self, org: OrgId, window: Duration) -> bool {
        let alone = self.arrivals.record(org, Stopwatch::start(), window);
        let is_other = |other: &Option<OrgId>| other.is_some_and(|other| other != org);
        let mut others = self.shares.iter().filter(|(other, _)| is_other(other));
        self.is_shared = !alone || others.any(|(_, share)| share.running + share.waiting.len() > 0);
        self.is_shared
    }

    fn push(&mut self, org: Option<OrgId>, job: LaneJob) {
        let new = || OrgJobs { last_turn: self.clock, ..OrgJobs::default() };
        self.shares.entry(org).or_insert_with(new).waiting.push_back(job);
        self.waiting += 1;
    }

    /// Takes the next job of an organisation with fewer than `threads_per_org` running jobs, and
    /// counts it as running.
    fn take(&mut self, threads_per_org: usize) -> Option<(Option<OrgId>, LaneJob)> {
        let may = |org: &Option<OrgId>, share: &OrgJobs| org.is_none() || share.running < threads_per_org;
        let next = self.shares.iter().filter(|(org, share)| !share.waiting.is_empty() && may(org, share));
        let org = *next.min_by_key(|(_, share)| (share.running, share.last_turn))?.0;
        let job = self.shares.get_mut(&org)?.waiting.pop_front()?;
        self.waiting -= 1;
        self.begin(org);
        Some((org, job))
    }

    /// Returns whether an organisation has fewer than `threads_per_org` running jobs.
    fn has_less_than(&self, threads_per_org: usize, org: Option<OrgId>) -> bool {
        self.shares.get(&org).is_none_or(|share| share.running < threads_per_org)
    }

    /// Counts a job that starts.
    fn begin(&mut self, org: Option<OrgId>) {
        self.clock += 2;
        self.running += 1;
        let share = self.shares.entry(org).or_default();
        share.running += 1;
        share.last_turn = self.clock + 1;
    }

    fn finished(&mut self, org: Option<OrgId>) {
        self.running = self.running.saturating_sub(1);
        if let Some(share) = self.shares.get_mut(&org) {
            share.running = share.running.saturating_sub(1);
        }
        self.tidy(org);
    }

    /// Removes the jobs of `org` whose callers were dropped.
    fn forget_gone(&mut self, org: Option<OrgId>) -> VecDeque<LaneJob> {
        let Some(share) = self.shares.get_mut(&org) else { return VecDeque::new() };
        let all = std::mem::take(&mut share.waiting);
        let (gone, stays) = all.into_iter().partition(|job| job.state.load(Ordering::SeqCst) == GONE);
        share.waiting = stays;
        self.waiting -= VecDeque::len(&gone);
        self.tidy(org);
        gone
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
    /// fewer even with one more. The caller drops the job without the lock.
    fn make_room_for(&mut self, org: Option<OrgId>) -> Option<LaneJob> {
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

impl LaneShared {
    /// Returns the most threads that one organisation may use now.
    const fn share(&self, state: &LaneState) -> usize {
        if state.is_shared { self.threads_shared } else { self.threads_per_org }
    }

    fn lock(&self) -> MutexGuard<'_, LaneState> {
        // No code that can panic runs under the lock.
        self.state.lock().ignore_poison()
    }

    fn work(&self) {
        while let Some((org, job)) = self.next() {
            (job.work)();
            // If organisations are limited, a waiting job may be able to start only now. Otherwise
            // this thread, or the thread that was woken for the job, takes it.
            self.end(org, self.capped);
        }
    }

    /// Counts a job that ended, and wakes a thread if a waiting job may start because of it.
    fn end(&self, org: Option<OrgId>, admits: bool) {
        let mut state = self.lock();
        state.finished(org);
        let wake = if admits && state.waiting > 0 { state.idle.pop() } else { None };
        drop(state);
        if let Some(thread) = wake {
            thread.unpark();
        }
    }

    /// Waits for the next job. Returns `None` when the lane closes.
    fn next(&self) -> Option<(Option<OrgId>, LaneJob)> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let share = self.share(&state);
            if let Some((org, job)) = state.take(share) {
                if job.state.compare_exchange(WAITING, STARTED, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                    return Some((org, job));
                }
                // Its caller was dropped in between.
                state.finished(org);
                drop(state);
                drop(job);
                state = self.lock();
                continue;
            }
            let own = std::thread::current();
            state.idle.push(own.clone());
            drop(state);
            // The waking thread has removed this one from the list. A wake-up may also be spurious.
            std::thread::park();
            state = self.lock();
            state.idle.retain(|thread| thread.id() != own.id());
        }
    }
}

impl LanePool {
    fn start(
        name: &'static str,
        options: LaneOptions,
        threads_shared: usize,
        activity_window: Duration,
    ) -> std::io::Result<LanePool> {
        let threads_per_org = options.threads_per_org.max(1);
        let threads_shared = threads_shared.clamp(1, threads_per_org);
        let shared = Arc::new(LaneShared {
            state: Mutex::default(),
            threads_per_org,
            threads_shared,
            activity_window,
            capped: threads_shared < options.threads,
        });
        let pool =
            LanePool { name, options, shared, refused: AtomicU64::new(0), threads: Mutex::new(Vec::new()) };
        for n in 0..options.threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new()
                .name(format!("{name}-{n}"))
                .stack_size(STACK_BYTES)
                .spawn(move || shared.work())?;
            pool.threads.lock().ignore_poison().push(thread);
        }
        Ok(pool)
    }

    /// See [`LaneState::record`].
    fn record(&self, org: OrgId) -> bool {
        self.shared.lock().record(org, self.shared.activity_window)
    }

    async fn run<T: Send + 'static>(
        &self,
        org: Option<OrgId>,
        work: impl FnOnce(Reply<T>) + Send + 'static,
    ) -> Result<T, ApiError> {
        let state = Arc::new(AtomicU8::new(WAITING));
        let (done_tx, mut done) = oneshot::channel();
        let span = tracing::Span::current();
        let job = LaneJob {
            state: Arc::clone(&state),
            work: Box::new(move || {
                let run = || span.in_scope(|| work(Reply(done_tx)));
                if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
                    let message = panic_text(panic.as_ref());
                    tracing::error!(message, "a job panicked; its request fails with status 500");
                }
            }),
        };
        let (wake, removed) = {
            let mut shared = self.shared.lock();
            if shared.closed {
                return Err(ApiError::shutting_down());
            }
            let full = shared.waiting >= self.options.queue;
            let removed = if full { shared.make_room_for(org) } else { None };
            if full && removed.is_none() {
                drop(shared);
                return Err(self.refuse());
            }
            shared.push(org, job);
            (shared.idle.pop(), removed)
        };
        // Dropping the job closes its channel, which notifies its caller.
        drop(removed);
        if let Some(thread) = wake {
            thread.unpark();
        }
        let queued = QueuedJob { pool: self, org, state };
        let outcome = match tokio::time::timeout(self.options.wait, &mut done).await {
            Ok(outcome) => outcome,
            Err(_late) => {
                // The caller waits for a job that has started.
                if queued.leave() {
                    return Err(self.refuse());
                }
                done.await
            }
        };
        outcome.map_err(|_dropped| match queued.state.load(Ordering::SeqCst) {
            STARTED => ApiError::internal(format!("work on the {} lane ended without a reply", self.name)),
            _ if self.shared.lock().closed => ApiError::shutting_down(),
            // It was removed for another job.
            _ => self.refuse(),
        })
    }

    fn panicked(&self, panic: &(dyn std::any::Any + Send)) -> ApiError {
        ApiError::internal(format!("work on the {} lane panicked: {}", self.name, panic_text(panic)))
    }

    fn refuse(&self) -> ApiError {
        self.refused.fetch_add(1, Ordering::Relaxed);
        ApiError::busy(self.options.wait)
    }

    fn gauges(&self) -> (&'static str, usize, usize, u64) {
        let state = self.shared.lock();
        (self.name, state.running, state.waiting, self.refused.load(Ordering::Relaxed))
    }
}

/// Enough for the deepest expression within the caps, evaluated recursively in a debug build.
pub const STACK_BYTES: usize = 8 * 1024 * 1024;

/// Returns the message of a panic, for the log.
pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

impl Drop for LanePool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.waiting = 0;
        let waiting: Vec<VecDeque<LaneJob>> =
            state.shares.values_mut().map(|share| std::mem::take(&mut share.waiting)).collect();
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        drop(waiting);
        for thread in idle {
            thread.unpark();
        }
        let own = std::thread::current().id();
        for thread in self.threads.lock().ignore_poison().drain(..) {
            if thread.thread().id() != own {
                let _ = thread.join();
            }
        }
    }
}

impl std::fmt::Debug for LanePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LanePool")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
