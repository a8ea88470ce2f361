//! The hands that queries lend one another: a query that is alone may use the cores that nobody else wants.
//!
//! Every query that runs is at work with one thread, its own. Where fewer are at work than there are cores, one with much
//! to do takes on more; as soon as more are at work than there are cores, those that were taken on leave, within some tens
//! of series. So one organisation has all cores while nobody else asks, and no more than its own threads then.
//!
//! What is computed does not depend on how many compute it: series are taken in fixed batches, each row is one thread's,
//! and rows are put together in their order.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Work that takes less than this is done before another thread has begun.
const LEAST_NS: u64 = 300_000;

/// How many threads compute at once, and how many may.
#[derive(Debug)]
pub struct Crew {
    cores: usize,
    least_ns: u64,
    at_work: AtomicUsize,
}

/// Somebody at work, until dropped.
#[derive(Debug)]
pub struct Hand<'c>(&'c Crew);

impl Crew {
    /// For so many cores.
    pub fn new(cores: usize) -> Crew {
        Crew { cores, least_ns: LEAST_NS, at_work: AtomicUsize::new(0) }
    }

    /// One that takes on hands however little there is to do: for tests.
    pub fn eager(cores: usize) -> Crew {
        Crew { least_ns: 0, ..Crew::new(cores) }
    }

    /// The most threads that one query has.
    pub(super) fn cores(&self) -> usize {
        self.cores
    }

    /// A query begins.
    pub fn enter(&self) -> Hand<'_> {
        self.at_work.fetch_add(1, Ordering::Relaxed);
        Hand(self)
    }

    /// One more thread for work that takes about this long, where a core is free.
    pub(super) fn hire(&self, work_ns: u64) -> Option<Hand<'_>> {
        if work_ns < self.least_ns {
            return None;
        }
        let one_more = |at_work: usize| (at_work < self.cores).then_some(at_work + 1);
        self.at_work.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Hand(self))
    }
}

impl Hand<'_> {
    /// Whether more are at work than there are cores.
    pub(super) fn is_wanted_elsewhere(&self) -> bool {
        self.0.at_work.load(Ordering::Relaxed) > self.0.cores
    }
}

impl Drop for Hand<'_> {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
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
        assert!(crew.hire(LEAST_NS).is_some(), "it is alone again");
    }
}
