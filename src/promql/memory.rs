//! The memory that all running queries share, and the part of each organisation.
//!
//! A query leases memory before it allocates, in units of 1 MiB; its [`Lease`] returns all of
//! it on drop. One organisation never holds more than half, so that a flood of its queries leaves
//! memory for others. Only a query that holds nothing yet may wait, so no waiting query holds
//! memory for which another one waits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::model::{OrgId, OutOfMemory, check_available};
use crate::sync::IgnorePoison as _;

/// The unit in which leases grow, in bytes, so that small queries take the lock once.
pub const LEASE_UNIT: u64 = 1 << 20;

/// How often a waiting query checks its own deadline.
const RECHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The memory that all queries of a process may hold at once.
#[derive(Debug)]
pub struct MemoryPool {
    bytes_max: u64,
    org_bytes_max: u64,
    held: Mutex<HeldBytes>,
    freed: Condvar,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct HeldBytes {
    all: u64,
    by_org: HashMap<OrgId, u64>,
    waiting: usize,
}

/// The reason why a lease cannot grow; a later attempt may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseError {
    /// Other queries hold the memory.
    Shared {
        /// The bytes that the query would hold.
        needed: u64,
        /// The bytes that other queries hold: all of them, or those of the organisation if its
        /// share is the limit that was met.
        held: u64,
        /// The bytes that they may hold together.
        allowed: u64,
    },
    /// The operating system has no memory.
    OutOfMemory(OutOfMemory),
}

/// The current use of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPoolUsage {
    /// The bytes that queries hold.
    pub bytes: u64,
    /// The size of the pool in bytes.
    pub bytes_max: u64,
    /// The number of queries that wait for memory.
    pub waiting: usize,
    /// The number of refused leases since the start.
    pub refused: u64,
}

impl MemoryPool {
    /// Returns a pool of `bytes_max` bytes, half of which one organisation may hold.
    pub fn new(bytes_max: u64) -> Arc<MemoryPool> {
        Arc::new(MemoryPool {
            bytes_max,
            org_bytes_max: (bytes_max / 2).max(LEASE_UNIT.min(bytes_max)),
            held: Mutex::default(),
            freed: Condvar::new(),
            refused: AtomicU64::new(0),
        })
    }

    /// Returns the bytes that one query can hold at most.
    pub fn one_query_max(&self) -> u64 {
        self.org_bytes_max
    }

    /// Returns a lease of zero bytes.
    pub fn lease(self: &Arc<MemoryPool>, org: OrgId) -> Lease {
        Lease { pool: Arc::clone(self), org, bytes: AtomicU64::new(0) }
    }

    /// Returns the current use, for `/metrics`.
    pub fn usage(&self) -> MemoryPoolUsage {
        let held = self.lock();
        MemoryPoolUsage {
            bytes: held.all,
            bytes_max: self.bytes_max,
            waiting: held.waiting,
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HeldBytes> {
        // Only numbers change under the lock, so a panic elsewhere leaves them consistent.
        self.held.lock().ignore_poison()
    }

    /// Returns the limit that prevents a query with `have` bytes from holding `more` bytes more, if
    /// one does.
    fn limit_met(&self, held: &HeldBytes, org: OrgId, have: u64, more: u64) -> Option<LeaseError> {
        let held_by_org = held.by_org.get(&org).copied().unwrap_or(0);
        let limits = [(held_by_org, self.org_bytes_max), (held.all, self.bytes_max)];
        let met = limits.into_iter().find(|(held, allowed)| held.saturating_add(more) > *allowed);
        met.map(|(held, allowed)| LeaseError::Shared {
            needed: have.saturating_add(more),
            held: held.saturating_sub(have),
            allowed,
        })
    }
}

/// A part of a [`MemoryPool`], returned on drop.
#[derive(Debug)]
pub struct Lease {
    pool: Arc<MemoryPool>,
    org: OrgId,
    bytes: AtomicU64,
}

impl Lease {
    /// Returns the leased bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Grows the lease to at least `bytes`. A lease of zero bytes waits for memory while
    /// `should_wait` returns true; a larger one is refused at once. Every lease is refused at once
    /// if the operating system does not have the memory.
    ///
    /// # Errors
    /// [`LeaseError`], with the numbers at the time of the refusal.
    pub fn grow_to(&self, bytes: u64, should_wait: &dyn Fn() -> bool) -> Result<(), LeaseError> {
        let have = self.bytes();
        if bytes <= have {
            return Ok(());
        }
        // The last unit of an organisation's share may be smaller than a MiB.
        let whole = bytes.div_ceil(LEASE_UNIT).saturating_mul(LEASE_UNIT);
        let wanted = if whole > self.pool.org_bytes_max { bytes } else { whole };
        let more = wanted - have;
        let mut held = self.pool.lock();
        while let Some(met) = self.pool.limit_met(&held, self.org, have, more) {
            let never = wanted > self.pool.org_bytes_max;
            if have > 0 || never || !should_wait() {
                self.pool.refused.fetch_add(1, Ordering::Relaxed);
                return Err(met);
            }
            held.waiting += 1;
            let (again, _) = self.pool.freed.wait_timeout(held, RECHECK_INTERVAL).ignore_poison();
            held = again;
            held.waiting -= 1;
        }
        // Checked before the bytes are taken, so that nothing has to be returned.
        if let Err(none) = check_available(more) {
            self.pool.refused.fetch_add(1, Ordering::Relaxed);
            return Err(LeaseError::OutOfMemory(none));
        }
        held.all += more;
        *held.by_org.entry(self.org).or_default() += more;
        drop(held);
        self.bytes.store(wanted, Ordering::Relaxed);
        Ok(())
    }

    /// Returns all bytes but the first `bytes` to the pool.
    pub fn shrink_to(&self, bytes: u64) {
        let have = self.bytes();
        let less = have.saturating_sub(bytes);
        if less == 0 {
            return;
        }
        self.bytes.store(have - less, Ordering::Relaxed);
        let mut held = self.pool.lock();
        held.all = held.all.saturating_sub(less);
        let held_by_org = held.by_org.entry(self.org).or_default();
        *held_by_org = held_by_org.saturating_sub(less);
        if *held_by_org == 0 {
            held.by_org.remove(&self.org);
        }
        let wake = held.waiting > 0;
        drop(held);
        if wake {
            self.pool.freed.notify_all();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const A: OrgId = OrgId(1);
    const B: OrgId = OrgId(2);

    fn at_once() -> bool {
        false
    }

    #[test]
    fn one_organisation_gets_half_and_the_rest_remains_for_others() {
        let pool = MemoryPool::new(8 * LEASE_UNIT);
        let (first, second, other) = (pool.lease(A), pool.lease(A), pool.lease(B));
        first.grow_to(3 * LEASE_UNIT, &at_once).expect("there is room");
        let refused = second.grow_to(2 * LEASE_UNIT, &at_once).expect_err("the share is met");
        assert_eq!(
            refused,
            LeaseError::Shared { needed: 2 * LEASE_UNIT, held: 3 * LEASE_UNIT, allowed: 4 * LEASE_UNIT }
        );
        other.grow_to(4 * LEASE_UNIT, &at_once).expect("another organisation's share");
        assert_eq!((pool.usage().bytes, pool.usage().refused), (7 * LEASE_UNIT, 1));
        drop(first);
        second.grow_to(2 * LEASE_UNIT, &at_once).expect("there is room again");
        drop((second, other));
        assert_eq!((pool.usage().bytes, pool.lock().by_org.len()), (0, 0));
    }

    #[test]
    fn only_a_query_that_holds_nothing_waits_for_memory() {
        let pool = MemoryPool::new(4 * LEASE_UNIT);
        let (holds, waits) = (pool.lease(A), pool.lease(A));
        holds.grow_to(2 * LEASE_UNIT, &at_once).expect("room");
        let asked = Cell::new(0);
        let should_wait = || {
            asked.set(asked.get() + 1);
            if asked.get() == 3 {
                // The pool's lock is held while this closure runs.
                return false;
            }
            true
        };
        waits.grow_to(1, &should_wait).expect_err("no query returns memory");
        assert_eq!(asked.get(), 3, "the closure is called at each interval");
        holds
            .grow_to(3 * LEASE_UNIT, &|| panic!("a query that holds something must not wait"))
            .expect_err("full");
    }

    #[test]
    fn returned_memory_wakes_a_waiting_query() {
        let pool = MemoryPool::new(2 * LEASE_UNIT);
        let holds = pool.lease(A);
        holds.grow_to(1, &at_once).expect("room");
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| {
                let waits = pool.lease(A);
                waits.grow_to(1, &|| true).map(|()| waits.bytes())
            });
            while pool.usage().waiting == 0 {
                std::thread::yield_now();
            }
            drop(holds);
            assert_eq!(waiting.join().expect("no panic"), Ok(LEASE_UNIT));
        });
        assert_eq!(pool.usage().bytes, 0);
    }

    #[test]
    fn a_lease_that_the_operating_system_cannot_back_is_refused_and_leaves_the_pool_unchanged() {
        let pool = MemoryPool::new(u64::MAX);
        let lease = pool.lease(A);
        let refused = lease
            .grow_to(1 << 62, &|| panic!("a query must not wait for the operating system"))
            .expect_err("too much");
        assert_eq!(refused, LeaseError::OutOfMemory(OutOfMemory { bytes: 1 << 62 }));
        assert_eq!((pool.usage().bytes, pool.usage().refused), (0, 1));
    }

    #[test]
    fn a_lease_over_the_share_of_an_organisation_is_refused_without_waiting() {
        let pool = MemoryPool::new(4 * LEASE_UNIT);
        let lease = pool.lease(A);
        let refused = lease
            .grow_to(u64::MAX, &|| panic!("a query must not wait for more than its share"))
            .expect_err("too much");
        assert_eq!(refused, LeaseError::Shared { needed: u64::MAX, held: 0, allowed: 2 * LEASE_UNIT });
        lease.grow_to(2 * LEASE_UNIT, &at_once).expect("exactly the share");
    }
}
