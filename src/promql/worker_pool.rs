//! Worker threads that queries share.
//!
//! Each running query computes on one thread of its own. While fewer threads compute than there are
//! cores, a query with much work acquires more. As soon as more threads compute than there are
//! cores, the acquired workers stop within some tens of series. So one organisation uses all cores
//! while no other one queries, and only its own threads otherwise.
//!
//! The number of threads does not change a result: series are read in fixed batches, one thread
//! computes a row, and rows are put together in their order.
//!
//! Workers are persistent threads, one fewer than there are cores, started on first use, parked
//! between two jobs, and stopped with their pool. A worker wakes on another core than the thread
//! that wakes it ([`parked_thread`]). Waking one costs a third of starting one, and it computes in
//! less than half the time. A job owns all of its data, because a worker may start it at any time.
//! The query takes back the jobs that no worker has started and waits for the others, so no worker
//! computes for a query that has ended.

mod parked_thread;

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use parked_thread::ParkedThread;

use crate::sync::IgnorePoison as _;

/// Estimated time of the smallest work that a second thread speeds up. A sleeping core takes about
/// 50 µs to wake, and both threads pay for the wake-up and for the wait at the end.
const WORK_NS_MIN: u64 = 500_000;

/// How often a thread that waits for others checks whether to continue.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The worker threads, and how many threads compute at once.
#[derive(Debug)]
pub struct WorkerPool {
    work_ns_min: u64,
    state: Arc<PoolState>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The state that the workers share.
#[derive(Debug)]
struct PoolState {
    cores: usize,
    /// Cores that workers leave free.
    reserved: AtomicUsize,
    /// Threads that compute: those of queries, and acquired workers.
    computing: AtomicUsize,
    queue: Mutex<JobQueue>,
}

#[derive(Debug, Default)]
struct JobQueue {
    /// Jobs that no worker has started. At most one per core, because each holds a slot.
    waiting: VecDeque<Arc<WorkerJob>>,
    parked: Vec<ParkedThread>,
    closed: bool,
}

/// One computing thread; the slot is released on drop.
#[derive(Debug)]
pub struct WorkerSlot(Arc<PoolState>);

/// Work that several threads share: each thread takes the next piece until none is left.
pub trait ParallelTask: Send + Sync + 'static {
    /// Computes pieces until none is left or `should_continue` returns false.
    fn run(&self, should_continue: &dyn Fn() -> bool);

    /// Makes all threads stop, including those that wait for each other. The result is discarded.
    fn stop(&self);
}

/// The part of one worker in a task.
struct WorkerJob {
    state: Mutex<JobState>,
    ended: Condvar,
}

enum JobState {
    Waiting(Arc<dyn ParallelTask>, WorkerSlot),
    Running,
    /// With the payload of the panic that ended it, if any.
    Ended(Option<Box<dyn Any + Send>>),
}

/// The workers of one task. Dropping it without [`ActiveWorkers::join`] stops them.
pub struct ActiveWorkers {
    state: Arc<PoolState>,
    task: Arc<dyn ParallelTask>,
    jobs: Vec<Arc<WorkerJob>>,
}

impl WorkerPool {
    /// A pool for `cores` cores, and so at most `cores - 1` worker threads.
    pub fn new(cores: usize) -> WorkerPool {
        WorkerPool::with(cores, WORK_NS_MIN)
    }

    /// A pool that acquires workers for any amount of work; for tests.
    pub fn eager(cores: usize) -> WorkerPool {
        WorkerPool::with(cores, 0)
    }

    fn with(cores: usize, work_ns_min: u64) -> WorkerPool {
        let (reserved, computing) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let state = PoolState { cores, reserved, computing, queue: Mutex::default() };
        WorkerPool { work_ns_min, state: Arc::new(state), threads: Mutex::default() }
    }

    /// Makes workers leave this many cores free. Running workers stop within some tens of series.
    pub fn reserve_cores(&self, cores: usize) {
        self.state.reserved.store(cores, Ordering::Relaxed);
    }

    /// Counts the thread of a query until the slot is dropped.
    pub fn begin_query(&self) -> WorkerSlot {
        self.state.computing.fetch_add(1, Ordering::Relaxed);
        WorkerSlot(Arc::clone(&self.state))
    }

    /// A slot for one more thread, if a core is free and the work is estimated to take long enough.
    pub fn try_acquire(&self, work_ns: u64) -> Option<WorkerSlot> {
        if work_ns < self.work_ns_min {
            return None;
        }
        let most = self.state.threads_max();
        let one_more = |computing: usize| (computing < most).then_some(computing + 1);
        self.state.computing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(WorkerSlot(Arc::clone(&self.state)))
    }

    /// Queues the task once for each slot.
    pub fn spawn<T: ParallelTask>(&self, slots: Vec<WorkerSlot>, task: &Arc<T>) -> ActiveWorkers {
        let task: Arc<dyn ParallelTask> = Arc::<T>::clone(task);
        let mut workers = ActiveWorkers { state: Arc::clone(&self.state), task, jobs: Vec::new() };
        for slot in slots {
            let state = Mutex::new(JobState::Waiting(Arc::clone(&workers.task), slot));
            let job = Arc::new(WorkerJob { state, ended: Condvar::new() });
            workers.jobs.push(Arc::clone(&job));
            let parked = {
                let mut queue = self.state.lock();
                queue.waiting.push_back(job);
                queue.parked.pop()
            };
            match parked {
                Some(thread) => thread.wake(),
                None => self.start_worker(),
            }
        }
        workers
    }

    /// Starts one more thread, up to one fewer than there are cores. If the system refuses it, the
    /// query computes everything itself.
    fn start_worker(&self) {
        let mut threads = self.threads.lock().ignore_poison();
        if threads.len() + 1 < self.state.cores {
            let state = Arc::clone(&self.state);
            let thread = std::thread::Builder::new().name("query-worker".into());
            threads.extend(thread.spawn(move || state.serve()).ok());
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        let parked = {
            let mut queue = self.state.lock();
            queue.closed = true;
            std::mem::take(&mut queue.parked)
        };
        parked.iter().for_each(ParkedThread::wake);
        for thread in self.threads.lock().ignore_poison().drain(..) {
            // A panic of a job was passed on to its query.
            let _ = thread.join();
        }
    }
}

impl PoolState {
    /// The number of computing threads up to which workers run.
    fn threads_max(&self) -> usize {
        self.cores.saturating_sub(self.reserved.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, JobQueue> {
        // No code that can panic runs under the lock, so it is never poisoned.
        self.queue.lock().ignore_poison()
    }

    /// The loop of a worker thread.
    fn serve(&self) {
        let own = ParkedThread::own();
        let mut queue = self.lock();
        while !queue.closed {
            if let Some(job) = queue.waiting.pop_front() {
                drop(queue);
                job.serve();
                queue = self.lock();
                continue;
            }
            queue.parked.push(own.clone());
            drop(queue);
            // The thread that wakes this thread has removed it from the list. A wake-up may also be
            // spurious.
            own.park();
            queue = self.lock();
            queue.parked.retain(|thread| !thread.is_same(&own));
        }
    }
}

impl WorkerJob {
    fn lock(&self) -> MutexGuard<'_, JobState> {
        self.state.lock().ignore_poison()
    }

    /// Takes the task and the slot of a job that no worker has started.
    fn take(&self) -> Option<(Arc<dyn ParallelTask>, WorkerSlot)> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, JobState::Running) {
            JobState::Waiting(task, slot) => Some((task, slot)),
            other => {
                *state = other;
                None
            }
        }
    }

    fn serve(&self) {
        let Some((task, slot)) = self.take() else { return };
        let outcome = catch_unwind(AssertUnwindSafe(|| task.run(&|| !slot.is_surplus())));
        if outcome.is_err() {
            task.stop();
        }
        // A job that has ended holds neither task nor slot.
        drop((task, slot));
        *self.lock() = JobState::Ended(outcome.err());
        self.ended.notify_all();
    }

    /// Waits for at most [`POLL_INTERVAL`]; `None` if the job is still running.
    fn outcome(&self) -> Option<Option<Box<dyn Any + Send>>> {
        let is_running = |state: &mut JobState| matches!(state, JobState::Running);
        let waited = self.ended.wait_timeout_while(self.lock(), POLL_INTERVAL, is_running);
        let (mut state, _) = waited.ignore_poison();
        match &mut *state {
            JobState::Ended(panic) => Some(panic.take()),
            JobState::Waiting(..) | JobState::Running => None,
        }
    }
}

impl ActiveWorkers {
    /// Takes back the jobs that no worker has started and waits for the others. Stops the task if
    /// `should_continue`, called at each [`POLL_INTERVAL`], returns false.
    ///
    /// # Panics
    /// With the payload of a worker's panic.
    pub fn join(mut self, mut should_continue: impl FnMut() -> bool) {
        if let Some(panic) = self.end(&mut should_continue) {
            resume_unwind(panic);
        }
    }

    fn end(&mut self, should_continue: &mut dyn FnMut() -> bool) -> Option<Box<dyn Any + Send>> {
        let mut first = None;
        for job in std::mem::take(&mut self.jobs) {
            if let Some(unused) = job.take() {
                drop(unused);
                self.state.lock().waiting.retain(|waiting| !Arc::ptr_eq(waiting, &job));
                continue;
            }
            let panic = loop {
                match job.outcome() {
                    Some(panic) => break panic,
                    None if !should_continue() => self.task.stop(),
                    None => {}
                }
            };
            first = first.or(panic);
        }
        first
    }
}

impl Drop for ActiveWorkers {
    fn drop(&mut self) {
        if !self.jobs.is_empty() {
            self.task.stop();
            // If a panic is unwinding, it is the one that is reported.
            drop(self.end(&mut || false));
        }
    }
}

impl std::fmt::Debug for ActiveWorkers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveWorkers").field("jobs", &self.jobs.len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for WorkerJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerJob").finish_non_exhaustive()
    }
}

impl WorkerSlot {
    /// Whether more threads compute than there are cores for, so that this worker has to stop.
    pub(super) fn is_surplus(&self) -> bool {
        self.0.computing.load(Ordering::Relaxed) > self.0.threads_max()
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        self.0.computing.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_worker_stops_when_another_query_begins() {
        let pool = WorkerPool::new(2);
        let _first = pool.begin_query();
        assert!(pool.try_acquire(WORK_NS_MIN - 1).is_none(), "too little work");
        let worker = pool.try_acquire(WORK_NS_MIN).expect("a core is free");
        assert!(pool.try_acquire(WORK_NS_MIN).is_none(), "all cores are used");
        assert!(!worker.is_surplus());
        let second = pool.begin_query();
        assert!(worker.is_surplus());
        assert!(pool.try_acquire(WORK_NS_MIN).is_none());
        drop(worker);
        drop(second);
        let worker = pool.try_acquire(WORK_NS_MIN).expect("one query computes");
        pool.reserve_cores(1);
        assert!(worker.is_surplus());
        drop(worker);
        assert!(pool.try_acquire(WORK_NS_MIN).is_none());
        pool.reserve_cores(0);
        assert!(pool.try_acquire(WORK_NS_MIN).is_some());
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Behaviour {
        /// Ends when the worker has to stop.
        Cooperates,
        /// Ends when the task is stopped.
        Ignores,
        Panics,
    }

    /// Reports each worker that starts it, and keeps the worker.
    struct TestTask {
        started: Mutex<mpsc::Sender<std::thread::ThreadId>>,
        stopped: AtomicBool,
        behaviour: Behaviour,
    }

    impl ParallelTask for TestTask {
        fn run(&self, should_continue: &dyn Fn() -> bool) {
            let started = self.started.lock().expect("no panic");
            started.send(std::thread::current().id()).expect("the test listens");
            drop(started);
            assert!(self.behaviour != Behaviour::Panics, "a bug");
            let ignores = self.behaviour == Behaviour::Ignores;
            while (ignores || should_continue()) && !self.stopped.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }

        fn stop(&self) {
            self.stopped.store(true, Ordering::Relaxed);
        }
    }

    fn task(behaviour: Behaviour) -> (Arc<TestTask>, mpsc::Receiver<std::thread::ThreadId>) {
        let (started, workers) = mpsc::channel();
        let (started, stopped) = (Mutex::new(started), AtomicBool::new(false));
        (Arc::new(TestTask { started, stopped, behaviour }), workers)
    }

    /// A task given to one worker, and the channel on which that reports.
    fn spawned(
        pool: &WorkerPool,
        behaviour: Behaviour,
    ) -> (Arc<TestTask>, ActiveWorkers, mpsc::Receiver<std::thread::ThreadId>) {
        let (task, started) = task(behaviour);
        let workers = pool.spawn(pool.try_acquire(WORK_NS_MIN).into_iter().collect(), &task);
        (task, workers, started)
    }

    fn computing(pool: &WorkerPool) -> usize {
        pool.state.computing.load(Ordering::Relaxed)
    }

    #[test]
    fn one_worker_runs_all_jobs_and_keeps_none() {
        let pool = WorkerPool::new(2);
        let _query = pool.begin_query();
        let mut seen = Vec::new();
        for _ in 0..20 {
            let (task, workers, started) = spawned(&pool, Behaviour::Cooperates);
            seen.push(started.recv().expect("a worker starts it"));
            task.stop();
            workers.join(|| true);
            assert_eq!((computing(&pool), Arc::strong_count(&task)), (1, 1));
        }
        assert!(seen.iter().all(|id| *id == seen[0]) && seen[0] != std::thread::current().id());
    }

    #[test]
    fn a_waiting_query_can_stop_its_workers_and_another_query_takes_their_cores() {
        let pool = WorkerPool::new(2);
        let _query = pool.begin_query();
        let (task, workers, started) = spawned(&pool, Behaviour::Cooperates);
        started.recv().expect("a worker starts it");
        workers.join(|| false);
        assert!(task.stopped.load(Ordering::Relaxed));
        let (task, workers, started) = spawned(&pool, Behaviour::Cooperates);
        started.recv().expect("a worker starts it");
        let _other = pool.begin_query();
        workers.join(|| true);
        assert!(!task.stopped.load(Ordering::Relaxed), "the worker stopped by itself");
        assert_eq!(computing(&pool), 2);
    }

    #[test]
    fn a_job_that_no_worker_started_is_not_waited_for() {
        let pool = WorkerPool::new(2);
        let _query = pool.begin_query();
        let (_busy, workers, started) = spawned(&pool, Behaviour::Ignores);
        started.recv().expect("a worker starts it");
        // The only worker is busy.
        let (task, started) = task(Behaviour::Cooperates);
        pool.spawn(vec![pool.begin_query()], &task).join(|| panic!("there is nothing to wait for"));
        assert_eq!((pool.state.lock().waiting.len(), Arc::strong_count(&task)), (0, 1));
        drop(workers);
        assert!(started.try_recv().is_err(), "no worker started it");
        assert_eq!(computing(&pool), 1);
    }

    #[test]
    fn a_panic_of_a_worker_reaches_its_query_and_the_worker_continues() {
        let pool = WorkerPool::new(2);
        let _query = pool.begin_query();
        let (task, workers, started) = spawned(&pool, Behaviour::Panics);
        let worker = started.recv().expect("a worker starts it");
        let panic = catch_unwind(AssertUnwindSafe(|| workers.join(|| true))).expect_err("a panic");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"a bug"));
        assert_eq!((task.stopped.load(Ordering::Relaxed), computing(&pool)), (true, 1));
        let (_task, workers, started) = spawned(&pool, Behaviour::Cooperates);
        assert_eq!(started.recv().expect("a worker starts it"), worker);
        // The same happens if the query's own thread panics.
        drop(workers);
        assert_eq!(computing(&pool), 1);
    }
}
