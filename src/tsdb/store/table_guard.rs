//! The read lock of a table.
//!
//! A thread must not lock a table that it has locked: the second lock would wait for a writer that
//! waits for the first, and both would wait forever. Debug builds, and so all tests, panic instead.

use std::ops::Deref;
use std::sync::RwLockReadGuard;

use crate::tsdb::series::table::Table;

/// A table that this thread has locked for reading.
#[derive(Debug)]
pub(in crate::tsdb) struct TableGuard<'s> {
    table: RwLockReadGuard<'s, Table>,
    _lock: ThreadLock,
}

impl<'s> TableGuard<'s> {
    /// Adds the lock that `lock` returned to those of the thread.
    pub(super) const fn new(table: RwLockReadGuard<'s, Table>, lock: ThreadLock) -> TableGuard<'s> {
        TableGuard { table, _lock: lock }
    }
}

impl Deref for TableGuard<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

/// An entry in the list of locks that this thread holds. Empty in release builds.
#[derive(Debug)]
pub(super) struct ThreadLock {
    #[cfg(debug_assertions)]
    address: usize,
}

#[cfg(debug_assertions)]
thread_local! {
    static LOCKED: std::cell::RefCell<Vec<usize>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl ThreadLock {
    /// Adds a lock, before the thread waits for it. In debug builds it panics if the thread holds
    /// this lock.
    #[cfg(debug_assertions)]
    pub(super) fn add<T>(lock: &T) -> ThreadLock {
        let address = std::ptr::from_ref(lock).addr();
        LOCKED.with_borrow_mut(|locked| {
            assert!(!locked.contains(&address), "the thread locks a table that it has locked");
            locked.push(address);
        });
        ThreadLock { address }
    }

    /// Adds nothing in release builds.
    #[cfg(not(debug_assertions))]
    pub(super) const fn add<T>(_lock: &T) -> ThreadLock {
        ThreadLock {}
    }
}

#[cfg(debug_assertions)]
impl Drop for ThreadLock {
    fn drop(&mut self) {
        // The list may already be dropped when the thread ends.
        let _ = LOCKED.try_with(|locked| locked.borrow_mut().retain(|address| *address != self.address));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::RwLock;

    use super::*;

    #[test]
    fn a_thread_that_locks_a_table_twice_panics() {
        let (lock, other) = (RwLock::new(1), RwLock::new(2));
        let first = ThreadLock::add(&lock);
        let _other = ThreadLock::add(&other);
        assert!(catch_unwind(AssertUnwindSafe(|| ThreadLock::add(&lock))).is_err());
        std::thread::scope(|scope| {
            scope.spawn(|| ThreadLock::add(&lock));
        });
        drop(first);
        ThreadLock::add(&lock);
    }
}
