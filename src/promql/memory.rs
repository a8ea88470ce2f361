//! The memory that all running queries share, and each organisation's part of it.
//!
//! A query asks for what it is about to hold, in pieces of a MiB; what it has is given back when its [`Lease`] ends. One
//! organisation never holds more than half, so that a flood of one leaves room for the others. Only a query that holds
//! nothing yet may wait for room: nobody waits who has what others wait for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::model::{OrgId, OutOfMemory, check_available};
use crate::sync::IgnorePoison as _;

/// Leases grow in pieces of this, so that small queries take the lock once.
const PIECE: u64 = 1 << 20;

/// How long a waiting query sleeps before it looks at its own deadline.
const NAP: Duration = Duration::from_millis(10);

/// What all queries of a process hold at once.
#[derive(Debug)]
pub struct MemoryPool {
    bytes_max: u64,
    org_bytes_max: u64,
    held: Mutex<Held>,
    freed: Condvar,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Held {
    all: u64,
    by_org: HashMap<OrgId, u64>,
    waiting: usize,
}

/// Why there is no room; the query may be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Other queries hold it.
    Shared {
        /// What the query would hold.
        needed: u64,
        /// What other queries hold: all, or those of the organisation where its share is what is met.
        held: u64,
        /// What they may hold together.
        allowed: u64,
    },
    /// The operating system has none.
    OutOfMemory(OutOfMemory),
}

/// What the pool holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes held.
    pub bytes: u64,
    /// Bytes there are.
    pub bytes_max: u64,
    /// Queries that wait for room.
    pub waiting: usize,
    /// Queries refused so far.
    pub refused: u64,
}

impl MemoryPool {
    /// `bytes_max` for everybody, half of it for one organisation.
    pub fn new(bytes_max: u64) -> Arc<MemoryPool> {
        Arc::new(MemoryPool {
            bytes_max,
            org_bytes_max: (bytes_max / 2).max(PIECE.min(bytes_max)),
            held: Mutex::default(),
            freed: Condvar::new(),
            refused: AtomicU64::new(0),
        })
    }

    /// What one query can ever get.
    pub fn one_query_max(&self) -> u64 {
        self.org_bytes_max
    }

    /// A lease of nothing yet.
    pub fn lease(self: &Arc<MemoryPool>, org: OrgId) -> Lease {
        Lease { pool: Arc::clone(self), org, bytes: AtomicU64::new(0) }
    }

    /// For `/metrics`.
    pub fn usage(&self) -> MemoryUse {
        let held = self.lock();
        MemoryUse {
            bytes: held.all,
            bytes_max: self.bytes_max,
            waiting: held.waiting,
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // Only numbers change inside: a panic elsewhere leaves them whole.
        self.held.lock().ignore_poison()
    }

    /// What stands in the way of `more` bytes for a query that has `have`.
    fn obstacle(&self, held: &Held, org: OrgId, have: u64, more: u64) -> Option<NoRoom> {
        let of_org = held.by_org.get(&org).copied().unwrap_or(0);
        let limits = [(of_org, self.org_bytes_max), (held.all, self.bytes_max)];
        let met = limits.into_iter().find(|(held, allowed)| held.saturating_add(more) > *allowed);
        met.map(|(held, allowed)| NoRoom::Shared {
            needed: have.saturating_add(more),
            held: held.saturating_sub(have),
            allowed,
        })
    }
}

/// A part of a [`MemoryPool`]; given back when dropped.
#[derive(Debug)]
pub struct Lease {
    pool: Arc<MemoryPool>,
    org: OrgId,
    bytes: AtomicU64,
}

impl Lease {
    /// What is held.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Holds at least `bytes` from now on. A lease of nothing waits for room for as long as `goes_on` says so; another
    /// one is refused at once, and so is each where the operating system does not have what is to be held more.
    ///
    /// # Errors
    /// [`NoRoom`], in the numbers of the moment.
    pub fn grow_to(&self, bytes: u64, goes_on: &dyn Fn() -> bool) -> Result<(), NoRoom> {
        let have = self.bytes();
        if bytes <= have {
            return Ok(());
        }
        // The last piece of what one organisation may have need not be whole.
        let whole = bytes.div_ceil(PIECE).saturating_mul(PIECE);
        let wanted = if whole > self.pool.org_bytes_max { bytes } else { whole };
        let more = wanted - have;
        let mut held = self.pool.lock();
        while let Some(met) = self.pool.obstacle(&held, self.org, have, more) {
            let never = wanted > self.pool.org_bytes_max;
            if have > 0 || never || !goes_on() {
                self.pool.refused.fetch_add(1, Ordering::Relaxed);
                return Err(met);
            }
            held.waiting += 1;
            let (again, _) = self.pool.freed.wait_timeout(held, NAP).ignore_poison();
            held = again;
            held.waiting -= 1;
        }
        // Before it is taken, so that nothing is to be given back.
        if let Err(none) = check_available(more) {
            self.pool.refused.fetch_add(1, Ordering::Relaxed);
            return Err(NoRoom::OutOfMemory(none));
        }
        held.all += more;
        *held.by_org.entry(self.org).or_default() += more;
        drop(held);
        self.bytes.store(wanted, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back all but `bytes`.
    pub fn shrink_to(&self, bytes: u64) {
        let have = self.bytes();
        let less = have.saturating_sub(bytes);
        if less == 0 {
            return;
        }
        self.bytes.store(have - less, Ordering::Relaxed);
        let mut held = self.pool.lock();
        held.all = held.all.saturating_sub(less);
        let of_org = held.by_org.entry(self.org).or_default();
        *of_org = of_org.saturating_sub(less);
        if *of_org == 0 {
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
    fn one_organisation_gets_half_and_the_other_half_stays_for_others() {
        let pool = MemoryPool::new(8 * PIECE);
        let (first, second, other) = (pool.lease(A), pool.lease(A), pool.lease(B));
        first.grow_to(3 * PIECE, &at_once).expect("there is room");
        let refused = second.grow_to(2 * PIECE, &at_once).expect_err("the share is met");
        assert_eq!(refused, NoRoom::Shared { needed: 2 * PIECE, held: 3 * PIECE, allowed: 4 * PIECE });
        other.grow_to(4 * PIECE, &at_once).expect("another organisation's share");
        assert_eq!((pool.usage().bytes, pool.usage().refused), (7 * PIECE, 1));
        drop(first);
        second.grow_to(2 * PIECE, &at_once).expect("there is room again");
        drop((second, other));
        assert_eq!((pool.usage().bytes, pool.lock().by_org.len()), (0, 0));
    }

    #[test]
    fn who_holds_nothing_waits_and_who_holds_something_does_not() {
        let pool = MemoryPool::new(4 * PIECE);
        let (holds, waits) = (pool.lease(A), pool.lease(A));
        holds.grow_to(2 * PIECE, &at_once).expect("room");
        let asked = Cell::new(0);
        let patience = || {
            asked.set(asked.get() + 1);
            if asked.get() == 3 {
                // As another thread would; the lock is not held while a query waits, but it is while it asks.
                return false;
            }
            true
        };
        waits.grow_to(1, &patience).expect_err("nobody gives anything back");
        assert_eq!(asked.get(), 3, "it asked again and again");
        holds.grow_to(3 * PIECE, &|| panic!("a query that holds something must not wait")).expect_err("full");
    }

    #[test]
    fn what_is_given_back_wakes_who_waits() {
        let pool = MemoryPool::new(2 * PIECE);
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
            assert_eq!(waiting.join().expect("no panic"), Ok(PIECE));
        });
        assert_eq!(pool.usage().bytes, 0);
    }

    #[test]
    fn what_the_operating_system_does_not_have_is_refused_and_not_taken_from_the_pool() {
        let pool = MemoryPool::new(u64::MAX);
        let lease = pool.lease(A);
        let refused = lease.grow_to(1 << 62, &|| panic!("nobody gives that back")).expect_err("too much");
        assert_eq!(refused, NoRoom::OutOfMemory(OutOfMemory { bytes: 1 << 62 }));
        assert_eq!((pool.usage().bytes, pool.usage().refused), (0, 1));
    }

    #[test]
    fn what_never_fits_is_not_waited_for() {
        let pool = MemoryPool::new(4 * PIECE);
        let lease = pool.lease(A);
        let refused = lease.grow_to(u64::MAX, &|| panic!("hopeless")).expect_err("too much");
        assert_eq!(refused, NoRoom::Shared { needed: u64::MAX, held: 0, allowed: 2 * PIECE });
        lease.grow_to(2 * PIECE, &at_once).expect("exactly the share");
    }
}
