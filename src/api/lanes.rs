//! The one bridge from async to the synchronous core: five bounded sets of our own threads with bounded queues.
//!
//! A full queue, or a wait that lasts too long, is 503 `busy` with `Retry-After`, never a longer queue. A caller that
//! goes away while its work still waits takes the work along.
//!
//! Organisations take turns: a free thread goes to the one that holds fewest, and among those to the one whose last turn
//! is longest ago, so that whoever asks for one thing waits for at most one thing of each other organisation, however
//! much they ask for. On the query lane one organisation never holds more than half of the threads (API.md C5). While
//! another one has work of late, it leaves one core free there and one thread on the ingest lane, so that the other's
//! request waits for no thread to be preempted. In a full queue the last work of the organisation that has most there makes
//! room for one that has less.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use tokio::sync::oneshot;

use super::error::{ApiError, Code};
use super::limits::jittered_retry;
use crate::clock::Stopwatch;
use crate::identity::{Origin, with_origin};
use crate::model::OrgId;
use crate::promql::WorkerPool;

tokio::task_local! {
    /// Where the request of this task comes from, for the log of events.
    pub(super) static ORIGIN: Origin;
}

/// Which threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Decoding and appending, charged to an organisation.
    Ingest(OrgId),
    /// Parsing and evaluating, charged to an organisation.
    Query(OrgId),
    /// Password hashes.
    Password,
    /// Account changes that end in a disk sync: the rest of sign-in, sessions, keys. Apart from hashing, so that a flood
    /// of logins does not keep anybody from logging out.
    Account,
}

/// How wide a lane is.
#[derive(Clone, Copy, Debug)]
pub struct LaneOptions {
    /// Threads: work running at once.
    pub threads: usize,
    /// Work waiting at most.
    pub queue: usize,
    /// How long work may wait before it is refused.
    pub wait: Duration,
    /// Threads that one organisation may hold at once.
    pub threads_per_org: usize,
}

/// How wide the lanes are.
#[derive(Clone, Copy, Debug)]
pub struct LanesOptions {
    /// [`Lane::Ingest`].
    pub ingest: LaneOptions,
    /// [`Lane::Query`].
    pub query: LaneOptions,
    /// Threads that one organisation may hold on the query lane while another one has work there.
    pub query_beside_others: usize,
    /// The same of the ingest lane.
    pub ingest_beside_others: usize,
    /// How long after its last request an organisation counts as one that has work.
    pub company: Duration,
    /// Writing and coding the next piece of a large answer: [`Lanes::run_answer`].
    pub answer: LaneOptions,
    /// [`Lane::Password`].
    pub password: LaneOptions,
    /// [`Lane::Account`].
    pub account: LaneOptions,
}

impl LanesOptions {
    /// What API.md C5 and D2 say for a machine of `cores`.
    pub fn for_cores(cores: usize) -> LanesOptions {
        let lane = |threads: usize, queue, wait_ms| LaneOptions {
            threads,
            queue,
            wait: Duration::from_millis(wait_ms),
            threads_per_org: threads,
        };
        let queries = cores.saturating_mul(2).max(2);
        LanesOptions {
            // One of these sleeps in disk syncs; meanwhile the others read what becomes the next group.
            ingest: lane(cores.saturating_add(1).max(2), 64, 2_000),
            query: LaneOptions { threads_per_org: (queries / 2).max(1), ..lane(queries, 32, 1_000) },
            query_beside_others: cores.saturating_sub(1).max(1),
            ingest_beside_others: cores.max(1),
            company: Duration::from_secs(1),
            // Each connection has one piece of a millisecond here at most: the queue holds all connections there are.
            answer: LaneOptions { threads_per_org: cores.div_ceil(2), ..lane(cores.max(2), 1_024, 60_000) },
            password: lane(cores.clamp(1, 4), 32, 2_000),
            // These threads sleep in disk syncs, which the committer groups: more of them make larger groups.
            account: lane(8, 256, 10_000),
        }
    }

    /// As wide as this machine asks for.
    pub fn for_this_machine() -> LanesOptions {
        LanesOptions::for_cores(std::thread::available_parallelism().map_or(2, usize::from))
    }
}

/// The five lanes. Cheap to clone; the threads end when the last clone is gone.
#[derive(Clone, Debug)]
pub struct Lanes(Arc<All>);

#[derive(Debug)]
struct All {
    ingest: Pool,
    query: Pool,
    answer: Pool,
    password: Pool,
    account: Pool,
    workers: WorkerPool,
    arrivals: Mutex<Arrivals<SocketAddr>>,
    done_here: AtomicU64,
}

/// Which connection or organisation sent a request last, and when another one did.
#[derive(Debug)]
struct Arrivals<K> {
    last: Option<(K, Stopwatch)>,
    other: Option<Stopwatch>,
}

/// How long somebody who asked is somebody who may ask again at any moment.
const COMPANY: Duration = Duration::from_millis(2);

impl<K> Default for Arrivals<K> {
    fn default() -> Arrivals<K> {
        Arrivals { last: None, other: None }
    }
}

impl<K: PartialEq + Copy> Arrivals<K> {
    /// A request comes; whether no other connection or organisation sent one within `company`.
    fn note(&mut self, from: K, now: Stopwatch, company: Duration) -> bool {
        let before = self.last.replace((from, now));
        if let Some((_, at)) = before.filter(|(before, _)| *before != from) {
            self.other = Some(at);
        }
        self.other.is_none_or(|at| at.elapsed() >= company)
    }
}

impl Lanes {
    /// Starts the threads.
    ///
    /// # Errors
    /// The operating system's, when it grants no thread.
    pub fn start(options: &LanesOptions) -> std::io::Result<Lanes> {
        let start = |name, lane, beside_others| Pool::start(name, lane, beside_others, options.company);
        Ok(Lanes(Arc::new(All {
            ingest: start("ingest", options.ingest, options.ingest_beside_others)?,
            query: start("query", options.query, options.query_beside_others)?,
            answer: start("answer", options.answer, options.answer.threads_per_org)?,
            password: start("password", options.password, options.password.threads_per_org)?,
            account: start("account", options.account, options.account.threads_per_org)?,
            // Two threads of the query lane for each core.
            workers: WorkerPool::new((options.query.threads / 2).max(1)),
            arrivals: Mutex::default(),
            done_here: AtomicU64::new(0),
        })))
    }

    /// The worker threads that queries share.
    pub fn workers(&self) -> &WorkerPool {
        &self.0.workers
    }

    /// Notes a request of this connection; answers whether it has the edge for itself: no other connection has sent anything
    /// within the last two milliseconds.
    pub fn arrives(&self, from: SocketAddr) -> bool {
        let mut arrivals = self.0.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.note(from, Stopwatch::start(), COMPANY)
    }

    /// Notes a query of this organisation. Workers leave a core free while other organisations query.
    fn note_query(&self, org: OrgId) {
        let beside_others = self.0.query.note(org);
        self.0.workers.reserve_cores(usize::from(beside_others));
    }

    /// A place of the query lane for work that the caller's own thread does, where one is free and nobody waits for it.
    pub fn place_here(&self, org: OrgId) -> Option<PlaceHere<'_>> {
        self.note_query(org);
        let pool = &self.0.query;
        let mut state = pool.shared.lock();
        let free = !state.closed && state.waiting == 0 && state.running < pool.options.threads;
        if !free || !state.has_less_than(pool.shared.share(&state), Some(org)) {
            return None;
        }
        state.begin(Some(org));
        Some(PlaceHere { pool, org, done: &self.0.done_here })
    }

    /// Runs `work` on a thread of `lane` and waits for its result. Dropping the future while the work still waits
    /// takes it out of the queue; work that runs is told by [`CancelOnDrop`], if its caller made one.
    ///
    /// # Errors
    /// 503 `busy` when the queue is full or the wait too long, 503 `shutting_down`, 500 when `work` panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        match lane {
            Lane::Query(org) => self.note_query(org),
            Lane::Ingest(org) => drop(self.0.ingest.note(org)),
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
        // Who has gone away needs no answer.
        let work = |reply: Reply<_>| drop(reply.send(catch_unwind(AssertUnwindSafe(work))));
        pool.run(org, work).await?.map_err(|panic| pool.panicked(panic.as_ref()))
    }

    /// Writes and codes the next piece of a large answer, charged to an organisation. As [`Lanes::run`], but who asked has
    /// it before the work ends, which may have much to put away.
    ///
    /// # Errors
    /// As [`Lanes::run`]; 500 too where the work drops its [`Reply`].
    pub async fn run_answer<T: Send + 'static>(
        &self,
        org: OrgId,
        work: impl FnOnce(Reply<T>) + Send + 'static,
    ) -> Result<T, ApiError> {
        self.0.answer.run(Some(org), work).await
    }

    /// Runs ingest work that answers when it likes, also after it has ended: on another thread, say, once a disk has
    /// synced. The lane's thread is free for others then. Senders that find no room are told to come back at different
    /// times.
    ///
    /// # Errors
    /// As [`Lanes::run`]; 500 too where the work drops its [`Reply`].
    pub async fn run_ingest<T: Send + 'static>(
        &self,
        org: OrgId,
        work: impl FnOnce(Reply<T>) + Send + 'static,
    ) -> Result<T, ApiError> {
        let busy = |error: ApiError| match error.code() {
            Code::Busy => error.with_retry_after(jittered_retry()),
            _ => error,
        };
        self.0.ingest.note(org);
        self.0.ingest.run(Some(org), work).await.map_err(busy)
    }

    /// How much was done on the threads that it arrived at, for `/metrics`.
    pub fn done_here(&self) -> u64 {
        self.0.done_here.load(Ordering::Relaxed)
    }

    /// What the lanes hold now, for `/metrics`: name, running, waiting, refused so far.
    pub fn gauges(&self) -> [(&'static str, usize, usize, u64); 5] {
        let All { ingest, query, answer, password, account, .. } = &*self.0;
        [ingest, query, answer, password, account].map(Pool::gauges)
    }
}

/// A place of the query lane, held by a thread that is none of its own; given back when dropped.
#[derive(Debug)]
pub struct PlaceHere<'a> {
    pool: &'a Pool,
    org: OrgId,
    done: &'a AtomicU64,
}

impl PlaceHere<'_> {
    /// Does the work here and now.
    ///
    /// # Errors
    /// 500 when `work` panicked.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> Result<T, ApiError> {
        let origin = ORIGIN.try_with(Clone::clone).unwrap_or_default();
        self.done.fetch_add(1, Ordering::Relaxed);
        let done = catch_unwind(AssertUnwindSafe(|| with_origin(&origin, work)));
        done.map_err(|panic| self.pool.panicked(panic.as_ref()))
    }
}

impl Drop for PlaceHere<'_> {
    fn drop(&mut self) {
        self.pool.shared.end(Some(self.org), true);
    }
}

/// Where a lane's work puts its result.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Sender<T>);

impl<T> Reply<T> {
    /// Wakes the caller.
    ///
    /// # Errors
    /// The result, where the caller has gone away.
    pub fn send(self, result: T) -> Result<(), T> {
        self.0.send(result)
    }
}

/// Sets its flag when dropped: a handler holds one across `run`, so that a client that hangs up stops its query.
#[derive(Debug)]
pub struct CancelOnDrop(Arc<std::sync::atomic::AtomicBool>);

impl CancelOnDrop {
    /// Watches over `flag`.
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

struct Job {
    state: Arc<AtomicU8>,
    work: Box<dyn FnOnce() + Send>,
}

/// Leaves the queue when its caller does.
struct Place<'a> {
    pool: &'a Pool,
    org: Option<OrgId>,
    state: Arc<AtomicU8>,
}

impl Place<'_> {
    /// Takes the work out of the queue if it still waits there; answers whether it did.
    fn leave(&self) -> bool {
        if self.state.compare_exchange(WAITING, GONE, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return false;
        }
        let left = self.pool.shared.lock().forget_gone(self.org);
        // Dropped without the lock: what a job holds is its caller's.
        drop(left);
        true
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

struct Pool {
    name: &'static str,
    options: LaneOptions,
    shared: Arc<Shared>,
    refused: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    threads_per_org: usize,
    /// The same while more than one organisation has work here, or had it within `company`.
    threads_beside_others: usize,
    company: Duration,
    /// Whether one organisation's share is less than all threads.
    capped: bool,
}

/// What one organisation has on a lane; `None` is work that is nobody's own.
#[derive(Default)]
struct Share {
    waiting: VecDeque<Job>,
    running: usize,
    /// When it had its last turn, see [`State::clock`]; one that comes anew stands behind all but the one that has just
    /// had its turn.
    last_turn: u64,
}

#[derive(Default)]
struct State {
    /// Those that have something waiting or running, and some that had.
    shares: BTreeMap<Option<OrgId>, Share>,
    waiting: usize,
    running: usize,
    arrivals: Arrivals<OrgId>,
    /// At the last arrival more than one organisation had work here, or had it of late.
    beside_others: bool,
    /// Twice the turns taken so far; a turn is stamped one later, so that it lies behind who came before the next.
    clock: u64,
    /// Threads that sleep, who fell asleep last at the end: that one is woken, because its buffers are still in a cache.
    idle: Vec<Thread>,
    closed: bool,
}

impl State {
    /// A request of an organisation comes; whether another one has work here, or had it within `company`.
    fn note(&mut self, org: OrgId, company: Duration) -> bool {
        let alone = self.arrivals.note(org, Stopwatch::start(), company);
        let is_other = |other: &Option<OrgId>| other.is_some_and(|other| other != org);
        let mut others = self.shares.iter().filter(|(other, _)| is_other(other));
        self.beside_others = !alone || others.any(|(_, share)| share.running + share.waiting.len() > 0);
        self.beside_others
    }

    fn push(&mut self, org: Option<OrgId>, job: Job) {
        let anew = || Share { last_turn: self.clock, ..Share::default() };
        self.shares.entry(org).or_insert_with(anew).waiting.push_back(job);
        self.waiting += 1;
    }

    /// The work whose turn it is, of an organisation that holds fewer than `threads_per_org`.
    fn take(&mut self, threads_per_org: usize) -> Option<(Option<OrgId>, Job)> {
        let may = |org: &Option<OrgId>, share: &Share| org.is_none() || share.running < threads_per_org;
        let next = self.shares.iter().filter(|(org, share)| !share.waiting.is_empty() && may(org, share));
        let org = *next.min_by_key(|(_, share)| (share.running, share.last_turn))?.0;
        let job = self.shares.get_mut(&org)?.waiting.pop_front()?;
        self.waiting -= 1;
        self.begin(org);
        Some((org, job))
    }

    /// Whether an organisation holds fewer than this.
    fn has_less_than(&self, threads_per_org: usize, org: Option<OrgId>) -> bool {
        self.shares.get(&org).is_none_or(|share| share.running < threads_per_org)
    }

    /// It takes its turn.
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

    /// Takes out the work of `org` whose callers have gone away.
    fn forget_gone(&mut self, org: Option<OrgId>) -> VecDeque<Job> {
        let Some(share) = self.shares.get_mut(&org) else { return VecDeque::new() };
        let all = std::mem::take(&mut share.waiting);
        let (gone, stays) = all.into_iter().partition(|job| job.state.load(Ordering::SeqCst) == GONE);
        share.waiting = stays;
        self.waiting -= VecDeque::len(&gone);
        self.tidy(org);
        gone
    }

    /// Forgets an organisation that has nothing here any more; a few are kept, so that most requests allocate nothing.
    fn tidy(&mut self, org: Option<OrgId>) {
        const KEPT: usize = 64;
        if self.shares.len() > KEPT
            && self.shares.get(&org).is_some_and(|share| share.waiting.is_empty() && share.running == 0)
        {
            self.shares.remove(&org);
        }
    }

    /// Takes the last waiting work of the organisation that has the most of it, if `org` would still have less with one
    /// more. The caller drops it without the lock.
    fn make_room_for(&mut self, org: Option<OrgId>) -> Option<Job> {
        // What is nobody's own is never put back for another.
        let asks = self.shares.get(&org).map_or(0, |share| share.waiting.len());
        let of_orgs = self.shares.iter().filter(|(org, _)| org.is_some());
        let (most, has) =
            of_orgs.map(|(org, share)| (*org, share.waiting.len())).max_by_key(|(_, has)| *has)?;
        if org.is_none() || has <= asks + 1 {
            return None;
        }
        let put_back = self.shares.get_mut(&most)?.waiting.pop_back()?;
        self.waiting -= 1;
        self.tidy(most);
        Some(put_back)
    }
}

impl Shared {
    /// Threads that one organisation may hold now.
    const fn share(&self, state: &State) -> usize {
        if state.beside_others { self.threads_beside_others } else { self.threads_per_org }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No panic can happen inside: the work itself runs outside the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some((org, job)) = self.next() {
            (job.work)();
            // An organisation at its share may have work waiting that this end admits. Without shares whatever waits is
            // taken by this thread next, or by the one that was woken for it.
            self.end(org, self.capped);
        }
    }

    /// Work of `org` has ended; where it may be this that others wait for, one is woken.
    fn end(&self, org: Option<OrgId>, admits: bool) {
        let mut state = self.lock();
        state.finished(org);
        let wake = if admits && state.waiting > 0 { state.idle.pop() } else { None };
        drop(state);
        if let Some(thread) = wake {
            thread.unpark();
        }
    }

    /// The work whose turn it is; blocks; `None` when the lane closes.
    fn next(&self) -> Option<(Option<OrgId>, Job)> {
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
                // Its caller has just gone away.
                state.finished(org);
                drop(state);
                drop(job);
                state = self.lock();
                continue;
            }
            let own = std::thread::current();
            state.idle.push(own.clone());
            drop(state);
            // Whoever wakes this thread has taken it off the list; a sleep may also end by itself.
            std::thread::park();
            state = self.lock();
            state.idle.retain(|thread| thread.id() != own.id());
        }
    }
}

impl Pool {
    fn start(
        name: &'static str,
        options: LaneOptions,
        threads_beside_others: usize,
        company: Duration,
    ) -> std::io::Result<Pool> {
        let threads_per_org = options.threads_per_org.max(1);
        let threads_beside_others = threads_beside_others.clamp(1, threads_per_org);
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            threads_per_org,
            threads_beside_others,
            company,
            capped: threads_beside_others < options.threads,
        });
        let pool =
            Pool { name, options, shared, refused: AtomicU64::new(0), threads: Mutex::new(Vec::new()) };
        for n in 0..options.threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new()
                .name(format!("{name}-{n}"))
                .stack_size(STACK_BYTES)
                .spawn(move || shared.work())?;
            pool.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(pool)
    }

    /// Notes a request of an organisation; whether another one has work here, or had it of late.
    fn note(&self, org: OrgId) -> bool {
        self.shared.lock().note(org, self.shared.company)
    }

    async fn run<T: Send + 'static>(
        &self,
        org: Option<OrgId>,
        work: impl FnOnce(Reply<T>) + Send + 'static,
    ) -> Result<T, ApiError> {
        let state = Arc::new(AtomicU8::new(WAITING));
        let (done_tx, mut done) = oneshot::channel();
        let span = tracing::Span::current();
        let job = Job {
            state: Arc::clone(&state),
            work: Box::new(move || {
                let run = || span.in_scope(|| work(Reply(done_tx)));
                if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
                    let said = panic_text(panic.as_ref());
                    tracing::error!(
                        said,
                        "work panicked; its caller is told that it ended without an answer"
                    );
                }
            }),
        };
        let (wake, put_back) = {
            let mut shared = self.shared.lock();
            if shared.closed {
                return Err(ApiError::shutting_down());
            }
            let full = shared.waiting >= self.options.queue;
            let put_back = if full { shared.make_room_for(org) } else { None };
            if full && put_back.is_none() {
                drop(shared);
                return Err(self.refuse());
            }
            shared.push(org, job);
            (shared.idle.pop(), put_back)
        };
        // Its caller learns it from the channel that ends with it.
        drop(put_back);
        if let Some(thread) = wake {
            thread.unpark();
        }
        let place = Place { pool: self, org, state };
        let outcome = match tokio::time::timeout(self.options.wait, &mut done).await {
            Ok(outcome) => outcome,
            Err(_late) => {
                // What has started is waited for.
                if place.leave() {
                    return Err(self.refuse());
                }
                done.await
            }
        };
        outcome.map_err(|_dropped| match place.state.load(Ordering::SeqCst) {
            STARTED => ApiError::internal(format!("work on the {} lane ended without an answer", self.name)),
            _ if self.shared.lock().closed => ApiError::shutting_down(),
            // It made room for another.
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

/// Enough for the deepest expression that the caps let through, evaluated recursively in a dev build.
pub const STACK_BYTES: usize = 8 * 1024 * 1024;

/// What a panic said, for the log.
pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.waiting = 0;
        let waiting: Vec<VecDeque<Job>> =
            state.shares.values_mut().map(|share| std::mem::take(&mut share.waiting)).collect();
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        drop(waiting);
        for thread in idle {
            thread.unpark();
        }
        let own = std::thread::current().id();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if thread.thread().id() != own {
                let _ = thread.join();
            }
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const ORG: OrgId = OrgId(1);

    fn lanes(query: LaneOptions) -> Lanes {
        let query_beside_others = query.threads_per_org;
        let options = LanesOptions { query, query_beside_others, ..LanesOptions::for_cores(1) };
        Lanes::start(&options).expect("threads")
    }

    /// Waits until the query lane holds so much; bounded by the test's own time.
    async fn until(lanes: &Lanes, running: usize, waiting: usize) {
        loop {
            let (_, runs, waits, _) = lanes.gauges()[1];
            if (runs, waits) == (running, waiting) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Work that runs until its sender is dropped, and what it was sent.
    fn held() -> (mpsc::Sender<u32>, impl FnOnce() -> u32 + Send + 'static) {
        let (release, released) = mpsc::channel();
        (release, move || released.recv().unwrap_or_default())
    }

    const PATIENT: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn work_runs_and_a_panic_in_it_is_a_500() {
        let lanes = lanes(LaneOptions { threads: 1, queue: 1, wait: PATIENT, threads_per_org: 1 });
        assert_eq!(lanes.run(Lane::Ingest(ORG), || 7).await.expect("done"), 7);
        let panicked = lanes.run(Lane::Query(ORG), || -> u32 { panic!("a bug") }).await;
        assert_eq!(panicked.expect_err("a panic").code(), Code::Internal);
        assert_eq!(lanes.run(Lane::Query(ORG), || 8).await.expect("the thread lives"), 8);
    }

    #[tokio::test]
    async fn the_thread_that_worked_last_works_next() {
        let lanes = lanes(LaneOptions { threads: 4, queue: 1, wait: PATIENT, threads_per_org: 4 });
        let mut worked = None;
        for _ in 0..50 {
            while lanes.0.query.shared.lock().idle.len() < 4 {
                tokio::task::yield_now().await;
            }
            let now = lanes.run(Lane::Query(ORG), || std::thread::current().id()).await.expect("done");
            assert_eq!(*worked.get_or_insert(now), now);
        }
    }

    /// Whoever works on a thread of their own holds a place as any other work does, and what waited for it comes next.
    #[tokio::test]
    async fn work_done_here_holds_a_place_and_gives_it_back() {
        for threads_per_org in [1, 2] {
            let lanes = lanes(LaneOptions { threads: 2, queue: 4, wait: PATIENT, threads_per_org });
            let places: Vec<_> = (0..threads_per_org).map_while(|_| lanes.place_here(ORG)).collect();
            assert_eq!((places.len(), lanes.gauges()[1].1), (threads_per_org, threads_per_org));
            assert!(lanes.place_here(ORG).is_none(), "it has its share");
            assert_eq!(lanes.place_here(OrgId(2)).is_some(), threads_per_org == 1, "the other's is free");
            let waiting = tokio::spawn({
                let lanes = lanes.clone();
                async move { lanes.run(Lane::Query(ORG), || 7).await }
            });
            until(&lanes, threads_per_org, 1).await;
            assert!(lanes.place_here(OrgId(2)).is_none(), "nobody goes before who waits");
            let mut places = places.into_iter();
            let panicked = places.next().expect("one").run(|| -> u32 { panic!("a bug") });
            assert_eq!((panicked.expect_err("a panic").code(), lanes.done_here()), (Code::Internal, 1));
            assert_eq!(waiting.await.expect("no panic").expect("its turn has come"), 7);
            drop(places);
            until(&lanes, 0, 0).await;
        }
    }

    #[tokio::test]
    async fn beside_others_an_organisation_leaves_a_core_free() {
        let options = LanesOptions { company: PATIENT, ..LanesOptions::for_cores(2) };
        let lanes = Lanes::start(&options).expect("threads");
        let ask = |work: Box<dyn FnOnce() -> u32 + Send>| {
            let lanes = lanes.clone();
            tokio::spawn(async move { lanes.run(Lane::Query(ORG), work).await })
        };
        let hold = || {
            let (release, work) = held();
            (release, ask(Box::new(work)))
        };
        let alone = [hold(), hold()];
        until(&lanes, 2, 0).await;
        for (release, asked) in alone {
            drop(release);
            asked.await.expect("no panic").expect("done");
        }
        assert_eq!(lanes.run(Lane::Query(OrgId(2)), || 1).await.expect("done"), 1);
        let (first, _) = hold();
        until(&lanes, 1, 0).await;
        let (second, waits) = hold();
        until(&lanes, 1, 1).await;
        assert!(lanes.place_here(ORG).is_none());
        assert_eq!(lanes.run(Lane::Query(OrgId(2)), || 2).await.expect("a thread is free"), 2);
        let query = lanes.workers().begin_query();
        assert!(lanes.workers().try_acquire(u64::MAX).is_none(), "the other core is left free");
        drop(query);
        until(&lanes, 1, 1).await;
        drop((first, second));
        waits.await.expect("no panic").expect("done");
    }

    #[test]
    fn who_asks_has_the_edge_for_itself_until_another_connection_asks() {
        let [one, other] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut arrivals = Arrivals::default();
        let mut note = |from| arrivals.note(from, Stopwatch::start(), COMPANY);
        assert!(note(one) && note(one));
        // What has just come from the first is company for the other, and the other way round.
        assert!(!note(other) && !note(one));
        arrivals.other = None;
        assert!(arrivals.note(one, Stopwatch::start(), COMPANY), "it is forgotten");
    }

    #[tokio::test]
    async fn a_full_queue_is_busy_at_once() {
        let lanes = lanes(LaneOptions { threads: 1, queue: 1, wait: PATIENT, threads_per_org: 1 });
        let (release, work) = held();
        let running = tokio::spawn({
            let lanes = lanes.clone();
            async move { lanes.run(Lane::Query(ORG), work).await }
        });
        until(&lanes, 1, 0).await;
        let waiting = tokio::spawn({
            let lanes = lanes.clone();
            async move { lanes.run(Lane::Query(ORG), || 2).await }
        });
        until(&lanes, 1, 1).await;
        let refused = lanes.run(Lane::Query(ORG), || 3).await.expect_err("full");
        assert_eq!(refused.code(), Code::Busy);
        assert_eq!(lanes.gauges()[1].3, 1);
        release.send(1).expect("still running");
        assert_eq!(running.await.expect("no panic").expect("done"), 1);
        assert_eq!(waiting.await.expect("no panic").expect("done"), 2);
    }

    #[tokio::test]
    async fn waiting_too_long_is_busy_and_leaves_the_queue() {
        let lanes = lanes(LaneOptions { threads: 1, queue: 4, wait: Duration::ZERO, threads_per_org: 1 });
        let (release, work) = held();
        let mut running = Box::pin(lanes.run(Lane::Query(ORG), work));
        // With no patience at all the first may be refused, too; it is asked until it runs.
        let refused = tokio::select! { biased; done = &mut running => done.is_err(), () = until(&lanes, 1, 0) => false };
        if !refused {
            let late = lanes.run(Lane::Query(ORG), || 2).await.expect_err("late");
            assert_eq!(late.code(), Code::Busy);
            assert_eq!(lanes.gauges()[1].2, 0);
        }
        drop(release);
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_takes_its_waiting_work_along() {
        let lanes = lanes(LaneOptions { threads: 1, queue: 4, wait: PATIENT, threads_per_org: 1 });
        let (release, work) = held();
        let running = tokio::spawn({
            let lanes = lanes.clone();
            async move { lanes.run(Lane::Query(ORG), work).await }
        });
        until(&lanes, 1, 0).await;
        let (told, ran) = mpsc::channel();
        let mut waiting = Box::pin(lanes.run(Lane::Query(ORG), move || told.send(()).expect("heard")));
        tokio::select! { biased; _ = &mut waiting => unreachable!(), () = until(&lanes, 1, 1) => {} }
        drop(waiting);
        assert_eq!(lanes.gauges()[1].2, 0);
        release.send(1).expect("still running");
        running.await.expect("no panic").expect("done");
        lanes.run(Lane::Query(ORG), || ()).await.expect("done");
        assert!(ran.recv().is_err(), "it never ran");
    }

    /// API.md C5: at most half of the running queries for one organisation.
    #[tokio::test]
    async fn one_organisation_never_holds_more_than_its_share() {
        let lanes = lanes(LaneOptions { threads: 4, queue: 32, wait: PATIENT, threads_per_org: 2 });
        let mut flood = Vec::new();
        for _ in 0..10 {
            let (release, work) = held();
            let lanes = lanes.clone();
            flood.push((release, tokio::spawn(async move { lanes.run(Lane::Query(ORG), work).await })));
        }
        until(&lanes, 2, 8).await;
        assert_eq!(lanes.run(Lane::Query(OrgId(2)), || 5).await.expect("room for the other"), 5);
        for (release, done) in flood {
            let _ = release.send(1);
            done.await.expect("no panic").expect("done");
        }
    }

    #[tokio::test]
    async fn in_a_full_queue_who_has_most_makes_room_for_who_has_less() {
        let other = OrgId(2);
        let lanes = lanes(LaneOptions { threads: 1, queue: 3, wait: PATIENT, threads_per_org: 1 });
        let ask = |org, work: Box<dyn FnOnce() -> u32 + Send>| {
            let lanes = lanes.clone();
            tokio::spawn(async move { lanes.run(Lane::Query(org), work).await })
        };
        let (release, work) = held();
        let running = ask(ORG, Box::new(work));
        until(&lanes, 1, 0).await;
        let mut flood = Vec::new();
        for n in 0..3 {
            flood.push(ask(ORG, Box::new(move || n)));
            until(&lanes, 1, flood.len()).await;
        }
        let theirs = ask(other, Box::new(|| 7));
        let put_back = flood.pop().expect("three").await.expect("no panic");
        assert_eq!(put_back.expect_err("the last of the flood").code(), Code::Busy);
        // One more of theirs would be as many as the flood still has: now it is full for both.
        for org in [ORG, other] {
            assert_eq!(lanes.run(Lane::Query(org), || 8).await.expect_err("full").code(), Code::Busy);
        }
        release.send(1).expect("still running");
        assert_eq!(theirs.await.expect("no panic").expect("answered"), 7);
        for asked in flood.into_iter().chain([running]) {
            asked.await.expect("no panic").expect("answered");
        }
        assert_eq!(lanes.gauges()[1].3, 3);
    }

    /// API.md B3: senders that were refused together do not come back together.
    #[tokio::test]
    async fn senders_that_find_no_room_come_back_at_different_times() {
        let none = LaneOptions { threads: 1, queue: 0, wait: PATIENT, threads_per_org: 1 };
        let lanes =
            Lanes::start(&LanesOptions { ingest: none, ..LanesOptions::for_cores(1) }).expect("threads");
        let mut waits = std::collections::BTreeSet::new();
        for _ in 0..50 {
            let refused =
                lanes.run_ingest(ORG, |reply| reply.send(()).unwrap_or(())).await.expect_err("no room");
            assert_eq!(refused.code(), Code::Busy);
            let response = axum::response::IntoResponse::into_response(refused);
            let wait = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
            waits.insert(wait.and_then(|wait| wait.parse::<u64>().ok()).expect("seconds"));
        }
        assert!(waits.len() > 2 && waits.iter().all(|wait| (2..=10).contains(wait)), "{waits:?}");
    }

    /// Turns, not time: one organisation asks for forty things, another for one at a time. On one thread, whatever the
    /// first has asked for, at most the one thing that runs already comes before.
    #[tokio::test]
    async fn a_flood_of_one_organisation_comes_before_nobodys_turn() {
        let other = OrgId(2);
        let one = LaneOptions { threads: 1, queue: 64, wait: PATIENT, threads_per_org: 1 };
        let options = LanesOptions { ingest: one, query: one, ..LanesOptions::for_cores(1) };
        for (place, lane) in [(0, Lane::Ingest as fn(OrgId) -> Lane), (1, Lane::Query)] {
            let lanes = Lanes::start(&options).expect("threads");
            let turns: Arc<Mutex<Vec<OrgId>>> = Arc::default();
            let ask = |org: OrgId| {
                let (lanes, turns) = (lanes.clone(), Arc::clone(&turns));
                tokio::spawn(async move {
                    lanes.run(lane(org), move || turns.lock().expect("no panic").push(org)).await
                })
            };
            let (release, work) = held();
            let first = tokio::spawn({
                let lanes = lanes.clone();
                async move { lanes.run(lane(ORG), work).await }
            });
            let until = async |waiting| {
                while lanes.gauges()[place].2 != waiting {
                    tokio::task::yield_now().await;
                }
            };
            while lanes.gauges()[place].1 != 1 {
                tokio::task::yield_now().await;
            }
            let flood: Vec<_> = (0..40).map(|_| ask(ORG)).collect();
            until(40).await;
            let theirs: Vec<_> = (0..5).map(|_| ask(other)).collect();
            until(45).await;
            release.send(1).expect("still running");
            first.await.expect("no panic").expect("done");
            for asked in flood.into_iter().chain(theirs) {
                asked.await.expect("no panic").expect("done");
            }
            let turns = turns.lock().expect("no panic").clone();
            let of_other: Vec<usize> = (0..45).filter(|turn| turns[*turn] == other).collect();
            assert_eq!(of_other, [0, 2, 4, 6, 8], "they take turns: {turns:?}");
        }
    }

    proptest::proptest! {
        /// Whoever waits, waits for at most one turn of each other organisation; nobody is passed over for ever.
        #[test]
        fn nobody_waits_longer_than_one_turn_of_each_other(asks in proptest::collection::vec((0u32..5, proptest::bool::ANY), 1..200)) {
            let mut state = State::default();
            // How often each of the others had a turn since this one's first work began to wait.
            let mut since: BTreeMap<OrgId, BTreeMap<OrgId, usize>> = BTreeMap::new();
            for (org, asks) in asks {
                let org = OrgId(org);
                if asks {
                    let job = Job { state: Arc::default(), work: Box::new(|| ()) };
                    state.push(Some(org), job);
                    since.entry(org).or_default();
                } else if let Some((Some(taken), _)) = state.take(usize::MAX) {
                    // One thread: it ends before the next begins.
                    let still = state.shares.get(&Some(taken)).is_some_and(|share| !share.waiting.is_empty());
                    state.finished(Some(taken));
                    since.remove(&taken);
                    for turns in since.values_mut() {
                        let turns = turns.entry(taken).or_default();
                        *turns += 1;
                        proptest::prop_assert!(*turns <= 1, "{taken:?} went before another twice");
                    }
                    if still {
                        since.insert(taken, BTreeMap::new());
                    }
                }
                let waiting: usize = state.shares.values().map(|share| share.waiting.len()).sum();
                proptest::prop_assert_eq!(waiting, state.waiting);
            }
        }
    }
}
