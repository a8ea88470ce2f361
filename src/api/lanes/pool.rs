//! The threads of a lane and how callers reach them.
//!
//! [`LanePool::run`] puts a job into the queue and wakes the thread that was parked last. The
//! caller then waits for the reply, which arrives through a channel of its own. Three things end
//! the wait of a job: a thread starts it, its caller abandons it (the future is dropped, or the job
//! has waited too long), or the job of another organisation takes its place. [`LaneJobState`]
//! decides between the first two. In the third case the job is dropped, and the caller finds the
//! channel closed.
//!
//! No wake-up is lost, because a thread parks only after it has added itself to the list of idle
//! threads, under the same lock under which it found no job. A caller that adds a job takes a
//! thread from this list under that lock, too. If no thread is idle, the first thread whose job
//! ends takes the next job from the queue. A job may also wait because its organisation has its
//! share of the threads, while other threads park. [`LaneShared::end`] then wakes one of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use super::job::{LaneJob, LaneJobState, Reply};
use super::options::LaneOptions;
use super::queue::LaneQueue;
use crate::api::error::ApiError;
use crate::model::OrgId;
use crate::sync::IgnorePoison as _;

/// Enough for the deepest expression within the caps, evaluated recursively in a debug build.
pub const STACK_BYTES: usize = 8 * 1024 * 1024;

/// One lane: its queue and its threads. Dropping it ends the threads.
pub(super) struct LanePool {
    name: &'static str,
    pub(super) options: LaneOptions,
    pub(super) shared: Arc<LaneShared>,
    /// The number of jobs refused so far.
    refused: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The part of a lane that its threads share with its callers.
pub(super) struct LaneShared {
    queue: Mutex<LaneQueue>,
    threads_per_org: usize,
    /// The most threads of one organisation while others are active.
    threads_shared: usize,
    activity_window: Duration,
    /// Whether one organisation may not use all threads.
    capped: bool,
}

/// Removes a waiting job when its caller is dropped. The future of the caller holds it.
struct QueuedJob<'a> {
    pool: &'a LanePool,
    org: Option<OrgId>,
    state: Arc<LaneJobState>,
}

impl QueuedJob<'_> {
    /// Removes the job from the queue. Returns false if it has started.
    fn leave(&self) -> bool {
        if !self.state.abandon() {
            return false;
        }
        let left = self.pool.shared.lock().remove_abandoned(self.org);
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

impl LaneShared {
    /// Returns the most threads that one organisation may use now.
    pub(super) const fn share(&self, queue: &LaneQueue) -> usize {
        if queue.is_shared { self.threads_shared } else { self.threads_per_org }
    }

    /// Locks the queue.
    pub(super) fn lock(&self) -> MutexGuard<'_, LaneQueue> {
        // No code that can panic runs under the lock.
        self.queue.lock().ignore_poison()
    }

    /// Runs jobs until the lane closes: the body of each thread.
    fn work(&self) {
        while let Some((org, job)) = self.next() {
            (job.work)();
            // If organisations are limited, a waiting job may be able to start only now. Otherwise
            // this thread, or the thread that was woken for the job, takes it.
            self.end(org, self.capped);
        }
    }

    /// Counts a job that ended, and wakes a thread if a waiting job may start because of it.
    pub(super) fn end(&self, org: Option<OrgId>, admits: bool) {
        let mut queue = self.lock();
        queue.finished(org);
        let wake = if admits && queue.waiting > 0 { queue.idle.pop() } else { None };
        drop(queue);
        if let Some(thread) = wake {
            thread.unpark();
        }
    }

    /// Waits for the next job. Returns `None` when the lane closes.
    fn next(&self) -> Option<(Option<OrgId>, LaneJob)> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            let share = self.share(&queue);
            if let Some((org, job)) = queue.take(share) {
                if job.state.start() {
                    return Some((org, job));
                }
                // The job's caller was dropped in between.
                queue.finished(org);
                drop(queue);
                drop(job);
                queue = self.lock();
                continue;
            }
            let own = std::thread::current();
            queue.idle.push(own.clone());
            drop(queue);
            // The waking thread has removed this one from the list. A wake-up may also be spurious.
            std::thread::park();
            queue = self.lock();
            queue.idle.retain(|thread| thread.id() != own.id());
        }
    }
}

impl LanePool {
    /// Starts the threads of a lane.
    ///
    /// # Errors
    /// The operating system cannot create a thread.
    pub(super) fn start(
        name: &'static str,
        options: LaneOptions,
        threads_shared: usize,
        activity_window: Duration,
    ) -> std::io::Result<LanePool> {
        let threads_per_org = options.threads_per_org.max(1);
        let threads_shared = threads_shared.clamp(1, threads_per_org);
        let shared = Arc::new(LaneShared {
            queue: Mutex::default(),
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

    /// See [`LaneQueue::record`].
    pub(super) fn record(&self, org: OrgId) -> bool {
        self.shared.lock().record(org, self.shared.activity_window)
    }

    /// As [`LanePool::run`], for work whose result is its reply.
    ///
    /// # Errors
    /// Those of [`LanePool::run`], and 500 if the work panics.
    pub(super) async fn run_whole<T: Send + 'static>(
        &self,
        org: Option<OrgId>,
        yields: bool,
        wait: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        // A dropped caller needs no result.
        let work = |reply: Reply<_>| drop(reply.send(catch_unwind(AssertUnwindSafe(work))));
        let done = self.run(org, yields, wait, work).await?;
        done.map_err(|panic| self.panicked(panic.as_ref()))
    }

    /// Submits work and waits for its reply, for `wait` until a thread starts it. Dropping the
    /// future removes waiting work. Work that yields waits behind the other work of its
    /// organisation.
    ///
    /// # Errors
    /// 503 `busy` if the queue is full or the wait too long, 500 if the work ends without a reply.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        org: Option<OrgId>,
        yields: bool,
        wait: Duration,
        work: impl FnOnce(Reply<T>) + Send + 'static,
    ) -> Result<T, ApiError> {
        let received = Arc::new(Mutex::new(None));
        let result = Arc::clone(&received);
        let work = Box::new(move |done| work(Reply { result, done }));
        self.run_job(org, yields, wait, work).await?;
        let result = received.lock().ignore_poison().take();
        result.ok_or_else(|| self.no_reply())
    }

    /// The part of [`LanePool::run`] that does not depend on the type of the result: `work` tells
    /// its caller through the channel that the result is there.
    async fn run_job(
        &self,
        org: Option<OrgId>,
        yields: bool,
        wait: Duration,
        work: Box<dyn FnOnce(oneshot::Sender<()>) + Send>,
    ) -> Result<(), ApiError> {
        let state = Arc::<LaneJobState>::default();
        let (done_tx, mut done) = oneshot::channel();
        let span = tracing::Span::current();
        let job = LaneJob {
            state: Arc::clone(&state),
            yields,
            work: Box::new(move || {
                let run = || span.in_scope(|| work(done_tx));
                if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
                    let message = panic_text(panic.as_ref());
                    tracing::error!(message, "a job panicked; its request fails with status 500");
                }
            }),
        };
        let (wake, removed) = {
            let mut queue = self.shared.lock();
            let full = queue.waiting >= self.options.queue;
            let removed = if full { queue.make_room_for(org, yields) } else { None };
            if full && removed.is_none() {
                drop(queue);
                return Err(self.refuse());
            }
            queue.push(org, job);
            (queue.idle.pop(), removed)
        };
        // Dropping the job closes its channel, which notifies its caller.
        drop(removed);
        if let Some(thread) = wake {
            thread.unpark();
        }
        let queued = QueuedJob { pool: self, org, state };
        let outcome = match tokio::time::timeout(wait, &mut done).await {
            Ok(outcome) => outcome,
            Err(_late) => {
                // The caller waits for a job that has started.
                if queued.leave() {
                    return Err(self.refuse());
                }
                done.await
            }
        };
        outcome.map_err(|_dropped| {
            if queued.state.has_started() {
                return self.no_reply();
            }
            // Otherwise the job was removed for another one.
            self.refuse()
        })
    }

    /// Returns the error of a job that ended without a reply.
    fn no_reply(&self) -> ApiError {
        ApiError::internal(format!("work on the {} lane ended without a reply", self.name))
    }

    /// Returns the error of a job that panicked.
    pub(super) fn panicked(&self, panic: &(dyn std::any::Any + Send)) -> ApiError {
        ApiError::internal(format!("work on the {} lane panicked: {}", self.name, panic_text(panic)))
    }

    /// Counts a refused job and returns its error.
    fn refuse(&self) -> ApiError {
        self.refused.fetch_add(1, Ordering::Relaxed);
        ApiError::busy(self.options.wait)
    }

    /// Returns the name of the lane, its running and waiting jobs, and its refused jobs so far.
    pub(super) fn gauges(&self) -> (&'static str, usize, usize, u64) {
        let queue = self.shared.lock();
        (self.name, queue.running, queue.waiting, self.refused.load(Ordering::Relaxed))
    }
}

impl Drop for LanePool {
    fn drop(&mut self) {
        // No job waits: a waiting job's caller borrows this lane, and removes the job when it ends.
        let idle = {
            let mut queue = self.shared.lock();
            queue.closed = true;
            std::mem::take(&mut queue.idle)
        };
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

/// Returns the message of a panic, for the log.
pub(in crate::api) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
