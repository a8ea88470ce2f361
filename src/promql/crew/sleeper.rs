//! Threads that sleep until they are woken, on another core than that of who wakes them.
//!
//! Who helps is of no use behind the thread that it helps. A system chooses where a thread wakes, and the guest of a
//! hypervisor often wakes it where it was woken: a core that has slept for some 0.2 ms counts as one that the host took
//! away, and so as no place for anybody. The two take turns on one core then, for milliseconds, and the other sleeps. So a
//! sleeper may wake on any core but the one that wakes it, and is as free as before as soon as it is awake. Where a system
//! has no such call, or forbids it, sleepers wake where it likes.

use std::thread::Thread;

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// A thread that can be woken.
#[derive(Clone, Debug)]
pub(super) struct Sleeper {
    thread: Thread,
    #[cfg(target_os = "linux")]
    id: Pid,
}

impl Sleeper {
    /// The thread that asks.
    pub(super) fn own() -> Sleeper {
        Sleeper {
            thread: std::thread::current(),
            #[cfg(target_os = "linux")]
            id: gettid(),
        }
    }

    pub(super) fn is_same(&self, other: &Sleeper) -> bool {
        self.thread.id() == other.thread.id()
    }

    /// Sleeps until woken, or a while; to be called by the thread itself.
    pub(super) fn sleep(&self) {
        debug_assert_eq!(self.thread.id(), std::thread::current().id(), "nobody sleeps for another");
        std::thread::park();
        #[cfg(target_os = "linux")]
        if let Ok(all) = whole() {
            // Where it is not allowed it was not narrowed, either.
            let _ = sched_setaffinity(None, &all);
        }
    }

    /// Wakes it: on another core, if there is one.
    pub(super) fn wake(&self) {
        #[cfg(target_os = "linux")]
        if let Ok(mut others) = whole() {
            others.unset(sched_getcpu());
            if others.count() > 0 {
                // A matter of speed alone: without it the system chooses.
                let _ = sched_setaffinity(Some(self.id), &others);
            }
        }
        self.thread.unpark();
    }
}

/// The cores that the program may use, as its first thread has them: whoever narrows that while it runs is followed.
#[cfg(target_os = "linux")]
fn whole() -> rustix::io::Result<CpuSet> {
    sched_getaffinity(Some(rustix::process::getpid()))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn who_is_woken_is_on_another_core_than_who_woke_it_and_may_go_to_any() {
        const TIMES: usize = 50;
        let all = whole().expect("of this program");
        let (says, said) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let own = Sleeper::own();
            says.send((own.clone(), 0)).expect("heard");
            for _ in 0..TIMES {
                own.sleep();
                let mask = sched_getaffinity(None).expect("its own");
                assert!(mask == all, "{mask:?}");
                says.send((own.clone(), sched_getcpu())).expect("heard");
            }
        });
        let (sleeper, _) = said.recv().expect("it began");
        let mut elsewhere = 0;
        for _ in 0..TIMES {
            // So that this thread stays where it wakes the other.
            let mut here = CpuSet::new();
            here.set(sched_getcpu());
            sched_setaffinity(None, &here).expect("a core that it runs on");
            sleeper.wake();
            let (_, core) = said.recv().expect("it woke");
            elsewhere += usize::from(!here.is_set(core));
            sched_setaffinity(None, &all).expect("as before");
        }
        thread.join().expect("no panic");
        // It may have been moved between waking and telling.
        assert!(all.count() < 2 || elsewhere > TIMES / 2, "{elsewhere} of {TIMES}");
    }
}
