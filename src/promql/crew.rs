//! The hands that queries lend one another: a query that is alone may use the cores that nobody else wants.
//!
//! Every query that runs is at work with one thread, its own. Where fewer are at work than there are cores, one with much
//! to do takes on more; as soon as more are at work than there are cores, those that were taken on leave, within some tens
//! of series. So one organisation has all cores while nobody else asks, and no more than its own threads then.
//!
//! What is computed does not depend on how many compute it: series are taken in fixed batches, each row is one thread's,
//! and rows are put together in their order.
//!
//! Hands are threads that stay: one fewer than there are cores, begun when first needed, asleep between two works,
//! and ended with their crew. They wake on another core than the one that wakes them ([`sleeper`]). Waking one costs
//! a third of what beginning one does, and it is at work in less than half the time. What they are given owns all
//! that it needs, since a hand may come to it at any time; whoever asked takes it back from those who did not come,
//! and waits for the others, so that nothing is at work for a query that is over.

mod sleeper;

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sleeper::Sleeper;

/// Work that takes less than this is done as soon by one thread: a core that sleeps is awake after some 50 µs, and waking it,
/// and waiting for it in the end, costs both.
const LEAST_NS: u64 = 500_000;

/// How long somebody who waits for others sleeps before it looks whether to go on.
pub(super) const NAP: Duration = Duration::from_millis(2);

/// How many threads compute at once, and how many may; and the threads that help.
#[derive(Debug)]
pub struct Crew {
    least_ns: u64,
    room: Arc<Room>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the hands of a crew share.
#[derive(Debug)]
struct Room {
    cores: usize,
    /// Cores that no helper takes.
    left_free: AtomicUsize,
    at_work: AtomicUsize,
    desk: Mutex<Desk>,
}

#[derive(Debug, Default)]
struct Desk {
    /// What nobody has come to yet: no more than cores, since each has its place among those at work.
    asked: VecDeque<Arc<Ticket>>,
    /// Who sleeps.
    idle: Vec<Sleeper>,
    closed: bool,
}

/// Somebody at work, until dropped.
#[derive(Debug)]
pub struct Hand(Arc<Room>);

/// Work that several threads do together: each takes piece after piece until none is left.
pub trait Together: Send + Sync + 'static {
    /// One hand's part, for as long as it `stays`.
    fn help(&self, stays: &dyn Fn() -> bool);

    /// Tells all to stop, those too who wait for one another: nothing will come of it.
    fn stop(&self);
}

/// One hand's place at some work.
struct Ticket {
    stage: Mutex<Stage>,
    ended: Condvar,
}

enum Stage {
    Waiting(Arc<dyn Together>, Hand),
    AtWork,
    /// And what the panic said that ended it.
    Over(Option<Box<dyn Any + Send>>),
}

/// Those who were asked to help with some work. Dropped before they were dismissed, they are told to stop.
pub struct Helpers {
    room: Arc<Room>,
    work: Arc<dyn Together>,
    tickets: Vec<Arc<Ticket>>,
}

impl Crew {
    /// For so many cores.
    pub fn new(cores: usize) -> Crew {
        Crew::with(cores, LEAST_NS)
    }

    /// One that takes on hands however little there is to do: for tests.
    pub fn eager(cores: usize) -> Crew {
        Crew::with(cores, 0)
    }

    fn with(cores: usize, least_ns: u64) -> Crew {
        let (left_free, at_work) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let room = Room { cores, left_free, at_work, desk: Mutex::default() };
        Crew { least_ns, room: Arc::new(room), threads: Mutex::default() }
    }

    /// Has helpers leave so many cores free, from now on; those at work leave within some tens of series.
    pub fn leave_free(&self, cores: usize) {
        self.room.left_free.store(cores, Ordering::Relaxed);
    }

    /// A query begins.
    pub fn enter(&self) -> Hand {
        self.room.at_work.fetch_add(1, Ordering::Relaxed);
        Hand(Arc::clone(&self.room))
    }

    /// One more thread for work that takes about this long, where a core is free.
    pub fn hire(&self, work_ns: u64) -> Option<Hand> {
        if work_ns < self.least_ns {
            return None;
        }
        let most = self.room.with_helpers();
        let one_more = |at_work: usize| (at_work < most).then_some(at_work + 1);
        self.room.at_work.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Hand(Arc::clone(&self.room)))
    }

    /// Asks those who were hired to help.
    pub fn call<W: Together>(&self, hands: Vec<Hand>, work: &Arc<W>) -> Helpers {
        let work: Arc<dyn Together> = Arc::<W>::clone(work);
        let mut helpers = Helpers { room: Arc::clone(&self.room), work, tickets: Vec::new() };
        for hand in hands {
            let stage = Mutex::new(Stage::Waiting(Arc::clone(&helpers.work), hand));
            let ticket = Arc::new(Ticket { stage, ended: Condvar::new() });
            helpers.tickets.push(Arc::clone(&ticket));
            let idle = {
                let mut desk = self.room.lock();
                desk.asked.push_back(ticket);
                desk.idle.pop()
            };
            match idle {
                Some(sleeper) => sleeper.wake(),
                None => self.begin_one(),
            }
        }
        helpers
    }

    /// Begins one more thread, unless there are as many as ever work at once. Without it the others do it all.
    fn begin_one(&self) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.len() + 1 < self.room.cores {
            let room = Arc::clone(&self.room);
            let thread = std::thread::Builder::new().name("query-hand".into());
            threads.extend(thread.spawn(move || room.serve()).ok());
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let idle = {
            let mut desk = self.room.lock();
            desk.closed = true;
            std::mem::take(&mut desk.idle)
        };
        idle.iter().for_each(Sleeper::wake);
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // What ended it was told to whom it helped.
            let _ = thread.join();
        }
    }
}

impl Room {
    /// Threads that compute at once at most, if there are helpers among them.
    fn with_helpers(&self) -> usize {
        self.cores.saturating_sub(self.left_free.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, Desk> {
        // No panic can happen inside: the work itself runs outside the lock.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One hand's life.
    fn serve(&self) {
        let own = Sleeper::own();
        let mut desk = self.lock();
        while !desk.closed {
            if let Some(ticket) = desk.asked.pop_front() {
                drop(desk);
                ticket.serve();
                desk = self.lock();
                continue;
            }
            desk.idle.push(own.clone());
            drop(desk);
            // Whoever wakes this thread has taken it off the list; a sleep may also end by itself.
            own.sleep();
            desk = self.lock();
            desk.idle.retain(|sleeper| !sleeper.is_same(&own));
        }
    }
}

impl Ticket {
    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place, where it is still free.
    fn take(&self) -> Option<(Arc<dyn Together>, Hand)> {
        let mut stage = self.lock();
        match std::mem::replace(&mut *stage, Stage::AtWork) {
            Stage::Waiting(work, hand) => Some((work, hand)),
            other => {
                *stage = other;
                None
            }
        }
    }

    fn serve(&self) {
        let Some((work, hand)) = self.take() else { return };
        let outcome = catch_unwind(AssertUnwindSafe(|| work.help(&|| !hand.is_wanted_elsewhere())));
        if outcome.is_err() {
            work.stop();
        }
        // Nothing is held any more once it is over.
        drop((work, hand));
        *self.lock() = Stage::Over(outcome.err());
        self.ended.notify_all();
    }

    /// Waits for a while; none if it is still at work.
    fn outcome(&self) -> Option<Option<Box<dyn Any + Send>>> {
        let is_at_work = |stage: &mut Stage| matches!(stage, Stage::AtWork);
        let waited = self.ended.wait_timeout_while(self.lock(), NAP, is_at_work);
        let (mut stage, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match &mut *stage {
            Stage::Over(panic) => Some(panic.take()),
            Stage::Waiting(..) | Stage::AtWork => None,
        }
    }
}

impl Helpers {
    /// Waits for those who came, and does not for the others. While it waits it asks now and then whether to `go_on`, and
    /// tells them to stop where not.
    ///
    /// # Panics
    /// With what a hand's panic said: its work is as lost as if one's own thread had done it.
    pub fn dismiss(mut self, mut go_on: impl FnMut() -> bool) {
        if let Some(panic) = self.end(&mut go_on) {
            resume_unwind(panic);
        }
    }

    fn end(&mut self, go_on: &mut dyn FnMut() -> bool) -> Option<Box<dyn Any + Send>> {
        let mut first = None;
        for ticket in std::mem::take(&mut self.tickets) {
            if let Some(unused) = ticket.take() {
                drop(unused);
                self.room.lock().asked.retain(|asked| !Arc::ptr_eq(asked, &ticket));
                continue;
            }
            let panic = loop {
                match ticket.outcome() {
                    Some(panic) => break panic,
                    None if !go_on() => self.work.stop(),
                    None => {}
                }
            };
            first = first.or(panic);
        }
        first
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        if !self.tickets.is_empty() {
            self.work.stop();
            // The panic that brought it here is the one that is told.
            drop(self.end(&mut || false));
        }
    }
}

impl std::fmt::Debug for Helpers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Helpers").field("asked", &self.tickets.len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}

impl Hand {
    /// Whether more are at work than there are cores for them.
    pub(super) fn is_wanted_elsewhere(&self) -> bool {
        self.0.at_work.load(Ordering::Relaxed) > self.0.with_helpers()
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn who_was_taken_on_leaves_when_others_come() {
        let crew = Crew::new(2);
        let _first = crew.enter();
        assert!(crew.hire(LEAST_NS - 1).is_none(), "not worth it");
        let helper = crew.hire(LEAST_NS).expect("a core is free");
        assert!(crew.hire(LEAST_NS).is_none(), "none is left");
        assert!(!helper.is_wanted_elsewhere());
        let second = crew.enter();
        assert!(helper.is_wanted_elsewhere());
        assert!(crew.hire(LEAST_NS).is_none());
        drop(helper);
        drop(second);
        let helper = crew.hire(LEAST_NS).expect("it is alone again");
        crew.leave_free(1);
        assert!(helper.is_wanted_elsewhere());
        drop(helper);
        assert!(crew.hire(LEAST_NS).is_none());
        crew.leave_free(0);
        assert!(crew.hire(LEAST_NS).is_some());
    }

    #[derive(Clone, Copy, PartialEq)]
    enum How {
        Leaves,
        Stays,
        Panics,
    }

    /// Says when a hand has come, and keeps it until it is told to stop.
    struct Held {
        came: Mutex<mpsc::Sender<std::thread::ThreadId>>,
        stopped: AtomicBool,
        how: How,
    }

    impl Together for Held {
        fn help(&self, stays: &dyn Fn() -> bool) {
            self.came.lock().expect("no panic").send(std::thread::current().id()).expect("heard");
            assert!(self.how != How::Panics, "a bug");
            while (self.how == How::Stays || stays()) && !self.stopped.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }

        fn stop(&self) {
            self.stopped.store(true, Ordering::Relaxed);
        }
    }

    /// Somebody to help, and who came.
    fn called(crew: &Crew, how: How) -> (Arc<Held>, Helpers, mpsc::Receiver<std::thread::ThreadId>) {
        let (came, who) = mpsc::channel();
        let work = Arc::new(Held { came: Mutex::new(came), stopped: AtomicBool::new(false), how });
        let helpers = crew.call(crew.hire(LEAST_NS).into_iter().collect(), &work);
        (work, helpers, who)
    }

    fn at_work(crew: &Crew) -> usize {
        crew.room.at_work.load(Ordering::Relaxed)
    }

    #[test]
    fn the_same_hand_helps_again_and_nothing_is_at_work_afterwards() {
        let crew = Crew::new(2);
        let _query = crew.enter();
        let mut hands = Vec::new();
        for _ in 0..20 {
            let (work, helpers, who) = called(&crew, How::Leaves);
            hands.push(who.recv().expect("it came"));
            work.stop();
            helpers.dismiss(|| true);
            assert_eq!((at_work(&crew), Arc::strong_count(&work)), (1, 1));
        }
        assert!(hands.iter().all(|hand| *hand == hands[0]) && hands[0] != std::thread::current().id());
    }

    #[test]
    fn who_waits_for_a_hand_can_have_it_stopped_and_another_query_takes_it_away() {
        let crew = Crew::new(2);
        let _query = crew.enter();
        let (work, helpers, who) = called(&crew, How::Leaves);
        who.recv().expect("it came");
        helpers.dismiss(|| false);
        assert!(work.stopped.load(Ordering::Relaxed));
        let (work, helpers, who) = called(&crew, How::Leaves);
        who.recv().expect("it came");
        let _other = crew.enter();
        helpers.dismiss(|| true);
        assert!(!work.stopped.load(Ordering::Relaxed), "it left by itself");
        assert_eq!(at_work(&crew), 2);
    }

    #[test]
    fn nobody_waits_for_a_hand_that_did_not_come() {
        let crew = Crew::new(2);
        let _query = crew.enter();
        let (_busy, helpers, who) = called(&crew, How::Stays);
        who.recv().expect("it came");
        // The only hand there is helps another question.
        let (came, who) = mpsc::channel();
        let work = Held { came: Mutex::new(came), stopped: AtomicBool::new(false), how: How::Leaves };
        let work = Arc::new(work);
        crew.call(vec![crew.enter()], &work).dismiss(|| panic!("there is nobody to wait for"));
        assert_eq!((crew.room.lock().asked.len(), Arc::strong_count(&work)), (0, 1));
        drop(helpers);
        assert!(who.try_recv().is_err(), "nobody came");
        assert_eq!(at_work(&crew), 1);
    }

    #[test]
    fn a_hands_panic_is_its_questions_and_the_hand_helps_others() {
        let crew = Crew::new(2);
        let _query = crew.enter();
        let (work, helpers, who) = called(&crew, How::Panics);
        let hand = who.recv().expect("it came");
        let panic = catch_unwind(AssertUnwindSafe(|| helpers.dismiss(|| true))).expect_err("a panic");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"a bug"));
        assert_eq!((work.stopped.load(Ordering::Relaxed), at_work(&crew)), (true, 1));
        let (_work, helpers, who) = called(&crew, How::Leaves);
        assert_eq!(who.recv().expect("it came"), hand);
        // As when the question's own thread panics.
        drop(helpers);
        assert_eq!(at_work(&crew), 1);
    }
}
