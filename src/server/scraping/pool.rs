//! The threads that decode and store the responses of targets.
//!
//! They are separate from the ingest lane, because each waits for a sync of the disk: a server with
//! many targets would delay the samples of other senders.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use crate::scrape::run::ScrapeWork;
use crate::sync::IgnorePoison as _;

/// The most jobs that wait, inclusive. The memory of their responses is bounded by the scrapes.
const WAITING_MAX: usize = 100_000;

#[derive(Default)]
struct PoolQueue {
    waiting: VecDeque<ScrapeWork>,
    is_closed: bool,
}

#[derive(Default)]
struct PoolShared {
    queue: Mutex<PoolQueue>,
    changed: Condvar,
}

/// The threads. They end when it is stopped.
pub(super) struct ScrapePoolThreads {
    shared: Arc<PoolShared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl ScrapePoolThreads {
    /// Starts threads.
    ///
    /// # Errors
    /// That of the operating system.
    pub(super) fn start(threads: usize) -> std::io::Result<ScrapePoolThreads> {
        let pool = ScrapePoolThreads { shared: Arc::default(), threads: Mutex::default() };
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let thread =
                std::thread::Builder::new().name(format!("scrape-{number}")).spawn(move || shared.work())?;
            pool.threads.lock().ignore_poison().push(thread);
        }
        Ok(pool)
    }

    /// Adds a job. Returns false if it will not run.
    pub(super) fn spawn(&self, work: ScrapeWork) -> bool {
        let mut queue = self.shared.queue.lock().ignore_poison();
        if queue.is_closed || queue.waiting.len() >= WAITING_MAX {
            return false;
        }
        queue.waiting.push_back(work);
        drop(queue);
        self.shared.changed.notify_one();
        true
    }

    /// Drops the waiting jobs, and waits for the running ones.
    pub(super) fn stop(&self) {
        let mut queue = self.shared.queue.lock().ignore_poison();
        queue.is_closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
        self.shared.changed.notify_all();
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
        loop {
            let mut queue = self.queue.lock().ignore_poison();
            let work = loop {
                if queue.is_closed {
                    return;
                }
                match queue.waiting.pop_front() {
                    Some(work) => break work,
                    None => queue = self.changed.wait(queue).ignore_poison(),
                }
            };
            drop(queue);
            // The hook of the process has logged the panic. The thread is needed for other jobs.
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_run_until_the_pool_is_stopped() {
        let pool = ScrapePoolThreads::start(2).expect("threads");
        let (sender, received) = mpsc::channel();
        for number in 0..10 {
            let sender = sender.clone();
            assert!(pool.spawn(Box::new(move || sender.send(number).expect("received"))));
        }
        let mut numbers: Vec<u32> = received.iter().take(10).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        pool.stop();
        assert!(!pool.spawn(Box::new(|| ())));
    }

    #[test]
    fn a_job_that_panics_does_not_end_its_thread() {
        let pool = ScrapePoolThreads::start(1).expect("a thread");
        let (sender, received) = mpsc::channel();
        assert!(pool.spawn(Box::new(|| panic!("the panic of a test"))));
        assert!(pool.spawn(Box::new(move || sender.send(()).expect("received"))));
        received.recv().expect("the thread runs the next job");
    }
}
