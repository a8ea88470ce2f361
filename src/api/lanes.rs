//! The bridge from async to the synchronous core: five bounded thread pools with bounded queues.
//!
//! A handler never blocks the thread of its connection. It hands work to a lane ([`Lanes::run`])
//! and awaits the result. The work waits in the queue of the lane (`queue`) until one of the lane's
//! threads (`pool`) takes it, runs it to its end, and sends the result through a channel (`job`).
//! The threads know nothing of the async runtime: an idle one is parked, and the caller that adds
//! a job wakes it.
//!
//! A full queue, or a wait that is too long, is 503 `busy` with `Retry-After`, never a longer
//! queue; `options` has the limits of each lane. If a caller is dropped while its work waits, the
//! work leaves the queue. Work that runs is not interrupted; a query checks a flag that
//! [`CancelOnDrop`] sets.
//!
//! Organisations take turns: a free thread runs work of the organisation with the fewest running
//! threads, and among those of the one whose last turn is longest ago. Among the work of one
//! organisation, queries of embed tokens come last, and make room first in a full queue. So an
//! organisation that sends one request waits for at most one job of each other organisation. On
//! the query lane one organisation never uses more than half of the threads
//! (docs/specification.md C5), and on the answer lane no more than half, rounded up. While other
//! organisations are active, it leaves one core free on the query lane and one thread free on the
//! ingest lane, so that their requests wait for no thread to be preempted. In a full queue the
//! newest job of the organisation with the most waiting jobs makes room for an organisation with
//! fewer.
//!
//! A query that is known to be fast does not go through the queue: [`Lanes::try_inline`] counts it
//! as a running job of the query lane, and the thread of the connection evaluates it.
//!
//! Writes of imports give way ([`Lanes::give_way`], `background`): while others send
//! queries or writes, they use at most a fifth of the time.

mod arrivals;
mod background;
mod job;
mod options;
mod pool;
mod queue;

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::error::{ApiError, Code};
use super::limits::jittered_retry;
use crate::clock::Stopwatch;
use crate::identity::{Origin, with_origin};
use crate::model::OrgId;
use crate::promql::WorkerPool;
use crate::sync::IgnorePoison as _;
use arrivals::Arrivals;
use background::Activity;
pub use job::{CancelOnDrop, Reply};
pub use options::{LaneOptions, LanesOptions};
use pool::LanePool;
pub use pool::STACK_BYTES;
pub(super) use pool::panic_text;

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
    /// Like `Query`, behind the other queries of the organisation: those of its embed tokens, so
    /// that a flood of them does not delay its members.
    Embed(OrgId),
    /// Hashes passwords.
    Password,
    /// Changes accounts, sessions and keys, which ends with a disk sync. It is separate from
    /// password hashing, so that many logins do not block logouts.
    Account,
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
    activity: Activity,
    inlined_total: AtomicU64,
}

/// The time after which a connection counts as quiet.
const QUIET_PERIOD: Duration = Duration::from_millis(2);

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
            activity: Activity::new(options.activity_window),
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
        self.0.activity.record();
        let shared = self.0.query.record(org);
        self.0.workers.reserve_cores(usize::from(shared));
    }

    fn record_ingest(&self, org: OrgId) {
        self.0.activity.record();
        self.0.ingest.record(org);
    }

    /// Returns the most threads of the query lane that one organisation may use now.
    pub fn query_share(&self) -> usize {
        let shared = &self.0.query.shared;
        shared.share(&shared.lock())
    }

    /// Returns a permit of the query lane for work on the caller's thread, or `None` if no thread
    /// is free, jobs are waiting, or the organisation has its share of the threads.
    pub fn try_inline(&self, org: OrgId) -> Option<InlinePermit<'_>> {
        self.record_query(org);
        let pool = &self.0.query;
        let mut queue = pool.shared.lock();
        let free = queue.waiting == 0 && queue.running < pool.options.threads;
        if !free || !queue.has_less_than(pool.shared.share(&queue), Some(org)) {
            return None;
        }
        queue.begin(Some(org));
        Some(InlinePermit { pool, org, done: &self.0.inlined_total })
    }

    /// Runs `work` on a thread of `lane` and waits for its result. Dropping the future removes
    /// waiting work from the queue. It does not stop running work; a caller uses [`CancelOnDrop`]
    /// for that.
    ///
    /// # Errors
    /// 503 `busy` if the queue is full or the wait too long, 500 if `work` panics.
    pub async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let wait = self.pool_of(lane).0.options.wait;
        self.run_within(lane, wait, work).await
    }

    /// As [`Lanes::run`], but waits for a thread for `wait` instead of the time of the lane.
    ///
    /// # Errors
    /// Those of [`Lanes::run`].
    pub async fn run_within<T: Send + 'static>(
        &self,
        lane: Lane,
        wait: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        match lane {
            Lane::Query(org) | Lane::Embed(org) => self.record_query(org),
            Lane::Ingest(org) => self.record_ingest(org),
            Lane::Password | Lane::Account => {}
        }
        let (pool, org) = self.pool_of(lane);
        let origin = ORIGIN.try_with(Clone::clone).unwrap_or_default();
        let work = move || with_origin(&origin, work);
        pool.run_whole(org, matches!(lane, Lane::Embed(_)), wait, work).await
    }

    fn pool_of(&self, lane: Lane) -> (&LanePool, Option<OrgId>) {
        match lane {
            Lane::Ingest(org) => (&self.0.ingest, Some(org)),
            Lane::Query(org) | Lane::Embed(org) => (&self.0.query, Some(org)),
            Lane::Password => (&self.0.password, None),
            Lane::Account => (&self.0.account, None),
        }
    }

    /// Runs work of some milliseconds that precedes queries, such as parsing a batch. It runs on
    /// the lane of answers, where it waits for no query. Such work of embed tokens waits behind the
    /// answers of their organisation.
    ///
    /// # Errors
    /// Those of [`Lanes::run`].
    pub async fn run_before_queries<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (pool, (_, org)) = (&self.0.answer, self.pool_of(lane));
        pool.run_whole(org, matches!(lane, Lane::Embed(_)), pool.options.wait, work).await
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
        let pool = &self.0.answer;
        pool.run(Some(org), false, pool.options.wait, work).await
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
        self.record_ingest(org);
        self.ingest(org, work).await
    }

    /// As [`Lanes::run_ingest`], for work that gives way: nothing else gives way to it.
    ///
    /// # Errors
    /// Those of [`Lanes::run_ingest`].
    pub async fn run_background_ingest<T: Send + 'static>(
        &self,
        org: OrgId,
        work: impl FnOnce(Reply<T>) + Send + 'static,
    ) -> Result<T, ApiError> {
        self.0.ingest.record(org);
        self.ingest(org, work).await
    }

    /// Waits after work that gives way and took `took`, if other queries or writes arrived within
    /// the last second: four times as long, and at most a second. So a sender that waits for each
    /// response uses at most a fifth of the time. Returns whether it waited.
    pub async fn give_way(&self, took: Duration) -> bool {
        let wait = self.0.activity.wait_after(took);
        if wait.is_zero() {
            return false;
        }
        tokio::time::sleep(wait).await;
        true
    }

    async fn ingest<T: Send + 'static>(
        &self,
        org: OrgId,
        work: impl FnOnce(Reply<T>) + Send + 'static,
    ) -> Result<T, ApiError> {
        let busy = |error: ApiError| match error.code() {
            Code::Busy => error.with_retry_after(jittered_retry()),
            _ => error,
        };
        let pool = &self.0.ingest;
        pool.run(Some(org), false, pool.options.wait, work).await.map_err(busy)
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

#[cfg(test)]
mod tests;
