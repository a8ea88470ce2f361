//! Threads that park until they are woken, on another core than that of the waking thread.
//!
//! A worker is of no use if it waits for the core of the thread that it works for. The operating
//! system chooses the core on which a thread wakes. In a virtual machine that is often the core of
//! the waking thread: a core that has been idle for about 0.2 ms counts as taken away by the host,
//! and is not chosen. Then two threads share one core for milliseconds while the other core idles.
//! So a parked thread may wake on any core but that of the waking thread; once awake, it may run on
//! all cores again. If the system has no such call, or forbids it, the scheduler chooses the
//! processor of a woken thread.

use std::thread::Thread;

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// A thread that can be woken.
#[derive(Clone, Debug)]
pub(super) struct ParkedThread {
    thread: Thread,
    #[cfg(target_os = "linux")]
    id: Pid,
}

impl ParkedThread {
    /// The calling thread.
    pub(super) fn own() -> ParkedThread {
        ParkedThread {
            thread: std::thread::current(),
            #[cfg(target_os = "linux")]
            id: gettid(),
        }
    }

    pub(super) fn is_same(&self, other: &ParkedThread) -> bool {
        self.thread.id() == other.thread.id()
    }

    /// Parks the calling thread, which must be this one, until it is woken. May return earlier.
    pub(super) fn park(&self) {
        debug_assert_eq!(self.thread.id(), std::thread::current().id(), "a thread parks itself");
        std::thread::park();
        #[cfg(target_os = "linux")]
        if let Ok(all) = process_cores() {
            // If this is forbidden, the affinity was never narrowed.
            let _ = sched_setaffinity(None, &all);
        }
    }

    /// Wakes the thread on another core than the caller's, if there is one.
    pub(super) fn wake(&self) {
        #[cfg(target_os = "linux")]
        if let Ok(mut others) = process_cores() {
            others.unset(sched_getcpu());
            if others.count() > 0 {
                // Affects speed only; on failure the system chooses the core.
                let _ = sched_setaffinity(Some(self.id), &others);
            }
        }
        self.thread.unpark();
    }
}

/// The cores that the process may use, read from its first thread at each call, because an operator
/// may change them while it runs.
#[cfg(target_os = "linux")]
fn process_cores() -> rustix::io::Result<CpuSet> {
    sched_getaffinity(Some(rustix::process::getpid()))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_woken_thread_is_on_another_core_and_may_run_on_all() {
        const TIMES: usize = 50;
        let all = process_cores().expect("of this program");
        let (tx, rx) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let own = ParkedThread::own();
            tx.send((own.clone(), 0)).expect("the test listens");
            for _ in 0..TIMES {
                own.park();
                let mask = sched_getaffinity(None).expect("its own");
                assert!(mask == all, "{mask:?}");
                tx.send((own.clone(), sched_getcpu())).expect("the test listens");
            }
        });
        let (parked, _) = rx.recv().expect("it began");
        let mut elsewhere = 0;
        for _ in 0..TIMES {
            // Keeps this thread on the core from which it wakes the other.
            let mut here = CpuSet::new();
            here.set(sched_getcpu());
            sched_setaffinity(None, &here).expect("a core that it runs on");
            parked.wake();
            let (_, core) = rx.recv().expect("it woke");
            elsewhere += usize::from(!here.is_set(core));
            sched_setaffinity(None, &all).expect("as before");
        }
        thread.join().expect("no panic");
        // The system may have moved it between waking and reporting.
        assert!(all.count() < 2 || elsewhere > TIMES / 2, "{elsewhere} of {TIMES}");
    }
}
