//! The threads that decode and store the responses of targets.
//!
//! They are separate from the ingest lane, because each waits for a sync of the disk: a server with
//! many targets would delay the samples of other senders.
//!
//! A job waits a little for others, because a wake-up of a thread and a sync cost as much as the
//! job itself. One thread then runs them all; others help it if that takes long.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::scrape::run::ScrapeWork;
use crate::sync::IgnorePoison as _;

/// The most jobs that wait, inclusive. The memory of their responses is bounded by the scrapes.
const WAITING_MAX: usize = 100_000;

/// The number of waiting jobs that begin at once.
const GROUP_MAX: usize = 64;
/// The time after which another thread takes jobs that still wait. Most groups are done before.
const HELP_AFTER: Duration = Duration::from_millis(10);

/// Work after each group of jobs.
type AfterGroup = dyn Fn() + Send + Sync;

#[derive(Default)]
struct PoolQueue {
    waiting: VecDeque<ScrapeWork>,
    /// The time by which a thread takes jobs, counted as [`PoolShared::since`].
    due: Duration,
    /// Whether a thread waits for that time.
    is_timed: bool,
    is_closed: bool,
}

struct PoolShared {
    since: Stopwatch,
    queue: Mutex<PoolQueue>,
    /// Signals a job to threads without one.
    idle: Condvar,
    /// Signals an earlier time to the thread that waits for it.
    timed: Condvar,
    after_group: Box<AfterGroup>,
}

/// The threads. They end when it is stopped.
pub(super) struct ScrapePoolThreads {
    shared: Arc<PoolShared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl ScrapePoolThreads {
    /// Starts threads. Each calls `after_group` after its jobs, before it waits or ends.
    ///
    /// # Errors
    /// That of the operating system.
    pub(super) fn start(
        threads: usize,
        after_group: impl Fn() + Send + Sync + 'static,
    ) -> std::io::Result<ScrapePoolThreads> {
        let shared = Arc::new(PoolShared {
            since: Stopwatch::start(),
            queue: Mutex::default(),
            idle: Condvar::new(),
            timed: Condvar::new(),
            after_group: Box::new(after_group),
        });
        let pool = ScrapePoolThreads { shared, threads: Mutex::default() };
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let thread =
                std::thread::Builder::new().name(format!("scrape-{number}")).spawn(move || shared.work())?;
            pool.threads.lock().ignore_poison().push(thread);
        }
        Ok(pool)
    }

    /// Adds a job, which begins within `max_wait` if a thread is free. Returns false if it will not
    /// run.
    pub(super) fn spawn(&self, work: ScrapeWork, max_wait: Duration) -> bool {
        let shared = &self.shared;
        let mut queue = shared.queue.lock().ignore_poison();
        if queue.is_closed || queue.waiting.len() >= WAITING_MAX {
            return false;
        }
        let now = shared.since.elapsed();
        let is_first = queue.waiting.is_empty();
        queue.waiting.push_back(work);
        let due = if queue.waiting.len() < GROUP_MAX { now + max_wait } else { now };
        let is_earlier = is_first || due < queue.due;
        if is_earlier {
            queue.due = due;
        }
        let is_timed = queue.is_timed;
        drop(queue);
        match is_timed {
            false => shared.idle.notify_one(),
            true if is_earlier => shared.timed.notify_one(),
            true => {}
        }
        true
    }

    /// Drops the waiting jobs, and waits for the running ones.
    pub(super) fn stop(&self) {
        let mut queue = self.shared.queue.lock().ignore_poison();
        queue.is_closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
        self.shared.idle.notify_all();
        self.shared.timed.notify_all();
        let own = std::thread::current().id();
        let threads = std::mem::take(&mut *self.threads.lock().ignore_poison());
        // A job may hold the last reference to the pool; its thread ends after it.
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != own) {
            // The threads catch the panics of jobs.
            drop(thread.join());
        }
    }
}

impl Drop for ScrapePoolThreads {
    fn drop(&mut self) {
        self.stop();
    }
}

impl PoolShared {
    fn work(&self) {
        while let Some(first) = self.wait() {
            let mut next = Some(first);
            // The hook of the process has logged a panic. The thread is needed for other jobs.
            while let Some(work) = next {
                let _ = catch_unwind(AssertUnwindSafe(work));
                next = self.take(self.queue.lock().ignore_poison());
            }
            let _ = catch_unwind(AssertUnwindSafe(&self.after_group));
        }
    }

    /// Waits until jobs are due, and returns the first. `None` ends the thread.
    fn wait(&self) -> Option<ScrapeWork> {
        let mut queue = self.queue.lock().ignore_poison();
        loop {
            if queue.is_closed {
                return None;
            }
            if queue.waiting.is_empty() || queue.is_timed {
                queue = self.idle.wait(queue).ignore_poison();
                continue;
            }
            let early = queue.due.saturating_sub(self.since.elapsed());
            if early.is_zero() {
                return self.take(queue);
            }
            queue.is_timed = true;
            queue = self.timed.wait_timeout(queue, early).ignore_poison().0;
            queue.is_timed = false;
        }
    }

    /// Takes a job. If more jobs wait that are due, another thread takes some of them later.
    fn take(&self, mut queue: MutexGuard<'_, PoolQueue>) -> Option<ScrapeWork> {
        let work = queue.waiting.pop_front()?;
        let now = self.since.elapsed();
        let needs_help = !queue.waiting.is_empty() && queue.due <= now;
        if needs_help {
            queue.due = now + HELP_AFTER;
        }
        let is_timed = queue.is_timed;
        drop(queue);
        if needs_help && !is_timed {
            self.idle.notify_one();
        }
        Some(work)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// A time that no test waits for.
    const LONG: Duration = Duration::from_secs(3_600);

    fn pool(threads: usize) -> ScrapePoolThreads {
        ScrapePoolThreads::start(threads, || ()).expect("threads")
    }

    #[test]
    fn jobs_run_until_the_pool_is_stopped() {
        let pool = pool(2);
        let (sender, received) = mpsc::channel();
        for number in 0..10 {
            let sender = sender.clone();
            let work = move || sender.send(number).expect("received");
            assert!(pool.spawn(Box::new(work), Duration::from_millis(number)));
        }
        let mut numbers: Vec<u64> = received.iter().take(10).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        pool.stop();
        assert!(!pool.spawn(Box::new(|| ()), Duration::ZERO));
    }

    #[test]
    fn a_job_that_panics_does_not_end_its_thread() {
        let pool = pool(1);
        let (sender, received) = mpsc::channel();
        assert!(pool.spawn(Box::new(|| panic!("the panic of a test")), Duration::ZERO));
        assert!(pool.spawn(Box::new(move || sender.send(()).expect("received")), Duration::ZERO));
        received.recv().expect("the thread runs the next job");
    }

    #[test]
    fn jobs_that_may_wait_run_together_when_the_first_of_them_is_due() {
        let groups = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&groups);
        let (ended, end) = mpsc::channel();
        let after_group = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            ended.send(()).expect("received");
        };
        let pool = ScrapePoolThreads::start(1, after_group).expect("threads");
        let (sender, received) = mpsc::channel();
        for (number, max_wait) in [(0, LONG), (1, LONG), (2, Duration::ZERO)] {
            let sender = sender.clone();
            assert!(pool.spawn(Box::new(move || sender.send(number).expect("received")), max_wait));
        }
        assert_eq!(received.iter().take(3).collect::<Vec<_>>(), [0, 1, 2]);
        end.recv().expect("after the jobs");
        assert_eq!(groups.load(Ordering::SeqCst), 1);
        // As many as begin at once.
        for number in 0..GROUP_MAX {
            let sender = sender.clone();
            assert!(pool.spawn(Box::new(move || sender.send(number).expect("received")), LONG));
        }
        assert_eq!(received.iter().take(GROUP_MAX).count(), GROUP_MAX);
    }

    #[test]
    fn other_threads_take_the_jobs_behind_one_that_hangs() {
        let pool = pool(3);
        let max_wait = Duration::from_millis(50);
        let (release, hang) = mpsc::channel::<()>();
        let (sender, received) = mpsc::channel();
        assert!(pool.spawn(Box::new(move || assert!(hang.recv().is_err())), max_wait));
        for number in 0..9 {
            let sender = sender.clone();
            assert!(pool.spawn(Box::new(move || sender.send(number).expect("received")), max_wait));
        }
        assert_eq!(received.iter().take(9).count(), 9);
        assert!(pool.spawn(Box::new(move || sender.send(9).expect("received")), max_wait));
        assert_eq!(received.recv(), Ok(9), "a later job");
        drop(release);
    }

    #[test]
    fn a_stop_drops_waiting_jobs_and_ends_the_group_of_the_running_ones() {
        let (ended, end) = mpsc::channel();
        let pool = ScrapePoolThreads::start(2, move || ended.send(()).expect("received")).expect("threads");
        let (started, start) = mpsc::channel();
        let (release, hang) = mpsc::channel::<()>();
        let running = move || {
            started.send(()).expect("received");
            assert!(hang.recv().is_err());
        };
        assert!(pool.spawn(Box::new(running), Duration::ZERO));
        start.recv().expect("it runs");
        let dropped = Arc::new(());
        let held = Arc::clone(&dropped);
        assert!(pool.spawn(Box::new(move || drop(held)), LONG));
        std::thread::scope(|scope| {
            scope.spawn(|| pool.stop());
            drop(release);
        });
        assert_eq!(Arc::strong_count(&dropped), 1);
        end.recv().expect("after the running job");
    }
}
