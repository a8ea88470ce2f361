//! A cache of decoded values of sealed blocks. Dashboards read the same columns every few seconds,
//! and decoding them took half of the time of most queries.
//!
//! **Exact.** Cached values have the bits of the decoded values ([`mod@column`]). They were
//! verified when they were decoded, and their file never changes. Retention, deletions and scopes
//! are applied after the read, whether values come from the cache or from a segment.
//!
//! **Admission at the second request.** The unit is a [`RowGroup`]: one block of sixteen rows of a
//! family. A group is admitted when a second query requests it. When the cache is full, a group is
//! admitted only in place of groups that were used less recently than it was first requested. So
//! neither an export nor a dashboard larger than the cache evicts anything that is in use.
//!
//! **Bounded and fair.** One bound in bytes applies to all organisations together. An organisation
//! above an equal share makes room for those below it. Within an organisation, the least recently
//! used groups are evicted first. Memory that stays unused is released after a while
//! ([`BlockCache::evict_idle`]).
//!
//! **Invalidation.** Blocks of a segment are removed when the segment is no longer listed
//! ([`OrgCache::remove_segments`]); a query that still reads the segment cannot insert them again.
//! Blocks of an organisation are removed with the organisation ([`OrgCache::close`]).

mod column;
mod handle;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use rapidhash::RapidHashMap;

use crate::model::Timestamp;
use crate::sync::IgnorePoison as _;
pub use column::non_decreasing;
pub(super) use handle::{BlockAddress, BlockLookup, BlockRange, CacheHandle, RANGES_MAX, RangeLookup};
use handle::{GroupKey, PriorQuery, RowGroup};

/// Shards of an organisation's groups, each with its own lock.
const SHARDS: usize = 16;
/// Slots for groups that were requested once, at first and at most: 2 KiB for an organisation with
/// any query, 128 KiB for one with many.
const WANTED_FIRST: usize = 256;
const WANTED_MAX: usize = 16_384;
/// An eviction frees this part of the whole bound, so that it makes room for several columns.
const EVICT_FRACTION: u64 = 32;
/// The typical size of a column in bytes, for the estimate whether there is room.
const COLUMN_BYTES: u64 = 4_096;
/// Groups that are unused for this long are released.
const IDLE: Duration = Duration::from_secs(600);
/// Times that [`BlockCache::evict_idle`] remembers at most.
const MARKS_MAX: usize = 64;

/// The bound and the counters of the cache, shared by all organisations.
#[derive(Debug)]
pub(super) struct BlockCache {
    bytes_max: u64,
    bytes: AtomicU64,
    /// The equal share of one organisation in bytes, as of the last eviction.
    share: AtomicU64,
    /// The number of the next query, which serves as the time of use.
    queries: AtomicU32,
    orgs: Mutex<Vec<Weak<OrgCache>>>,
    /// Held by the thread that evicts. Other threads skip the insertion and do not wait.
    evicting: Mutex<()>,
    /// Times with the number of the newest query at each, oldest first.
    marks: Mutex<VecDeque<(Timestamp, u32)>>,
    hits: AtomicU64,
    misses: AtomicU64,
    evicted: AtomicU64,
}

/// Usage of the cache of decoded blocks, for `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCacheUsage {
    /// Blocks that were in the cache.
    pub hits: u64,
    /// Blocks that were decoded.
    pub misses: u64,
    /// Groups of blocks that were evicted.
    pub evicted: u64,
    /// Bytes in use.
    pub bytes: u64,
    /// The bound in bytes.
    pub bytes_max: u64,
}

/// The cached blocks of one organisation. It takes next to no memory until the first insertion.
#[derive(Debug)]
pub(super) struct OrgCache {
    all: Arc<BlockCache>,
    bytes: AtomicU64,
    shards: OnceLock<Box<[RwLock<CacheShard>; SHARDS]>>,
    /// Groups that were requested. The index is the hash of the group modulo the length; the value
    /// is the high half of the hash << 32 | the number of the last query that requested it.
    wanted: RwLock<Box<[AtomicU64]>>,
    wanted_last: AtomicU32,
    /// Requested groups that were overwritten by others since the table last grew.
    displaced: AtomicUsize,
    /// The organisation was removed.
    closed: AtomicBool,
    /// No group was last used before this query, so an eviction for an older query need not search.
    oldest: AtomicU32,
}

/// A part of an organisation's groups.
type CacheShard = RapidHashMap<GroupKey, Arc<RowGroup>>;

impl BlockCache {
    /// A cache of at most `bytes_max` bytes; 0 turns it off.
    pub(super) fn new(bytes_max: u64) -> Arc<BlockCache> {
        Arc::new(BlockCache {
            bytes_max,
            bytes: AtomicU64::new(0),
            share: AtomicU64::new(0),
            queries: AtomicU32::new(1),
            orgs: Mutex::default(),
            evicting: Mutex::default(),
            marks: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        })
    }

    /// Returns the number of a new query.
    pub(super) fn query(&self) -> u32 {
        self.queries.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn usage(&self) -> BlockCacheUsage {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BlockCacheUsage {
            hits: read(&self.hits),
            misses: read(&self.misses),
            evicted: read(&self.evicted),
            bytes: read(&self.bytes),
            bytes_max: self.bytes_max,
        }
    }

    /// Evicts the groups that no query has used for ten minutes, and returns the bytes freed. The
    /// caller calls it periodically.
    pub(super) fn evict_idle(&self, now: Timestamp) -> u64 {
        let newest = self.queries.load(Ordering::Relaxed);
        let mut marks = self.marks.lock().ignore_poison();
        let idle_ms = i64::try_from(IDLE.as_millis()).unwrap_or(i64::MAX);
        let is_old = |at: &Timestamp| now.as_ms().saturating_sub(at.as_ms()) >= idle_ms;
        // After the clock was set back, marks of later times would never expire.
        while marks.pop_back_if(|(at, _)| *at > now).is_some() {}
        let mut unused_since = None;
        while let Some((_, query)) = marks.pop_front_if(|(at, _)| is_old(at)) {
            unused_since = Some(query);
        }
        if marks.len() < MARKS_MAX {
            marks.push_back((now, newest));
        }
        drop(marks);
        let Some(unused_since) = unused_since else { return 0 };
        let orgs = self.orgs();
        orgs.iter().for_each(|org| org.clear_wanted(unused_since));
        orgs.iter().map(|org| org.evict(u64::MAX, unused_since)).sum()
    }

    /// The organisations with any cached or requested group.
    fn orgs(&self) -> Vec<Arc<OrgCache>> {
        let mut orgs = self.orgs.lock().ignore_poison();
        orgs.retain(|org| org.strong_count() > 0);
        orgs.iter().filter_map(Weak::upgrade).collect()
    }

    /// Reserves bytes for an organisation. If too few are left, it evicts groups of organisations
    /// above their share, or groups of `org` that were last used before `since`. Returns whether
    /// the bytes are reserved.
    fn reserve(&self, org: &Arc<OrgCache>, bytes: u64, PriorQuery(since): PriorQuery) -> bool {
        if self.take(org, bytes) {
            return true;
        }
        if bytes > self.bytes_max {
            return false;
        }
        let Ok(_alone) = self.evicting.try_lock() else { return false };
        let mut holders = self.orgs();
        holders.retain(|org| org.bytes() > 0);
        let newcomer = u64::from(org.bytes() == 0);
        let share = self.bytes_max / (holders.len() as u64 + newcomer).max(1);
        self.share.store(share, Ordering::Relaxed);
        let room = bytes.max(self.bytes_max / EVICT_FRACTION);
        if org.bytes() + bytes > share {
            org.evict(room, since);
        } else if let Some(most) = holders.iter().max_by_key(|org| org.bytes()) {
            // The largest organisation exceeds its share, since the cache is full and this one does
            // not.
            most.evict(room.min(most.bytes().saturating_sub(share)).max(bytes), u32::MAX);
        }
        self.take(org, bytes)
    }

    /// Reserves bytes if they are free.
    fn take(&self, org: &OrgCache, bytes: u64) -> bool {
        let fits = |held: u64| held.checked_add(bytes).filter(|held| *held <= self.bytes_max);
        let taken = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if taken {
            org.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        taken
    }
}

impl OrgCache {
    pub(super) fn new(all: &Arc<BlockCache>) -> Arc<OrgCache> {
        Arc::new(OrgCache {
            all: Arc::clone(all),
            bytes: AtomicU64::new(0),
            shards: OnceLock::new(),
            wanted: RwLock::default(),
            wanted_last: AtomicU32::new(0),
            displaced: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            oldest: AtomicU32::new(0),
        })
    }

    /// Allocates the shards and registers the organisation for evictions.
    fn init_shards(self: &Arc<OrgCache>) {
        self.shards.get_or_init(|| {
            let mut orgs = self.all.orgs.lock().ignore_poison();
            orgs.push(Arc::downgrade(self));
            Box::new(std::array::from_fn(|_| RwLock::default()))
        });
    }

    /// Returns the number of a new query; see [`OrgCache::handle`].
    pub(super) fn query(&self) -> u32 {
        self.all.query()
    }

    /// Returns a handle for a query, or for one of its threads. `None` if the cache is off.
    pub(super) fn handle(self: &Arc<OrgCache>, query: u32) -> Option<CacheHandle> {
        (self.all.bytes_max > 0).then(|| CacheHandle::new(Arc::clone(self), query))
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Removes the blocks of these segments. The segments must be [retired](CacheHandle::insert)
    /// before, so that no reader inserts their blocks again.
    pub(super) fn remove_segments(&self, segments: &[u64]) {
        if !segments.is_empty() {
            self.drop_where(|key, _| segments.contains(&key.segment));
        }
    }

    /// Removes all blocks, and rejects later insertions.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.drop_where(|_, _| true);
    }

    /// Removes the groups for which `test` returns true. Returns the freed bytes and the number of
    /// groups.
    fn drop_where(&self, mut test: impl FnMut(&GroupKey, &RowGroup) -> bool) -> (u64, u64) {
        let (mut freed, mut groups) = (0, 0);
        for shard in self.shards.get().into_iter().flat_map(|shards| shards.iter()) {
            write(shard).retain(|key, group| {
                let removes = test(key, group);
                if removes {
                    freed += group.bytes();
                    groups += 1;
                }
                !removes
            });
        }
        self.release(freed);
        (freed, groups)
    }

    /// Returns reserved bytes to the budget.
    fn release(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.all.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Evicts least recently used groups until `bytes` are freed. Groups that query `since` or a
    /// later one used stay. Returns the bytes freed.
    fn evict(&self, bytes: u64, since: u32) -> u64 {
        if self.oldest.load(Ordering::Relaxed) >= since {
            return 0;
        }
        let (mut by_use, mut oldest) = (Vec::new(), u32::MAX);
        for shard in self.shards.get().into_iter().flat_map(|shards| shards.iter()) {
            for group in read(shard).values() {
                let used = group.used.load(Ordering::Relaxed);
                if used < since {
                    by_use.push((used, group.bytes()));
                }
                oldest = oldest.min(used);
            }
        }
        by_use.sort_unstable();
        let mut sum = 0;
        let enough = by_use.iter().find(|(_, of_group)| {
            sum += of_group;
            sum >= bytes
        });
        // All groups last used before query `until` are evicted, and as many of those that it used
        // as are needed.
        let until = enough.or(by_use.last()).map_or(0, |(used, _)| *used);
        let before = by_use.iter().filter(|(used, _)| *used < until).map(|(_, bytes)| bytes).sum();
        let mut left = bytes.saturating_sub(before);
        let (freed, groups) = self.drop_where(|_, group| {
            let used = group.used.load(Ordering::Relaxed);
            let removes = used < since && (used < until || used == until && left > 0);
            if removes && used == until {
                left = left.saturating_sub(group.bytes());
            }
            removes
        });
        self.oldest.store(if freed == 0 { oldest } else { 0 }, Ordering::Relaxed);
        self.all.evicted.fetch_add(groups, Ordering::Relaxed);
        freed
    }

    fn shard(&self, key: &GroupKey) -> Option<&RwLock<CacheShard>> {
        self.shards.get()?.get(key.shard())
    }

    /// Records that a query requests a group, and returns the query that requested it before, if
    /// that is still known and is another one.
    fn prior_query(self: &Arc<OrgCache>, key: &GroupKey, query: u32) -> Option<PriorQuery> {
        let hash = key.hash();
        let (high, of_query) = (hash & !u64::from(u32::MAX), u64::from(query));
        let wanted = self.wanted.read().ignore_poison();
        let index = usize::try_from(hash & u64::from(u32::MAX)).unwrap_or_default();
        let Some(slot) = index.checked_rem(wanted.len()).and_then(|index| wanted.get(index)) else {
            drop(wanted);
            self.init_shards();
            self.remember(WANTED_FIRST);
            return self.prior_query(key, query);
        };
        let before = slot.load(Ordering::Relaxed);
        if before != high | of_query {
            slot.store(high | of_query, Ordering::Relaxed);
            self.wanted_last.fetch_max(query, Ordering::Relaxed);
        }
        if before & !u64::from(u32::MAX) == high {
            let by = u32::try_from(before & u64::from(u32::MAX)).unwrap_or_default();
            return (by != query).then_some(PriorQuery(by));
        }
        let slots = wanted.len();
        drop(wanted);
        // If the requested groups outnumber the slots, each would be overwritten before its second
        // request.
        let is_crowded = || self.displaced.fetch_add(1, Ordering::Relaxed) > slots;
        if before != 0 && slots < WANTED_MAX && is_crowded() {
            self.remember(slots * 4);
        }
        None
    }

    /// Enlarges the table of requested groups to `slots`; the entries are lost.
    fn remember(&self, slots: usize) {
        let mut wanted = self.wanted.write().ignore_poison();
        if wanted.len() < slots {
            *wanted = (0..slots).map(|_| AtomicU64::new(0)).collect();
            self.displaced.store(0, Ordering::Relaxed);
        }
    }

    /// Drops the table of requested groups if no query from `since` on requested one.
    fn clear_wanted(&self, since: u32) {
        if self.wanted_last.load(Ordering::Relaxed) < since {
            *self.wanted.write().ignore_poison() = Box::default();
        }
    }

    /// Returns whether a block that was first requested at `since` may find room.
    fn may_admit(&self, PriorQuery(since): PriorQuery) -> bool {
        let (held, share) = (self.all.bytes.load(Ordering::Relaxed), self.all.share.load(Ordering::Relaxed));
        // A column takes a few KiB. An organisation below its share may evict blocks of others.
        held + COLUMN_BYTES <= self.all.bytes_max
            || self.oldest.load(Ordering::Relaxed) < since
            || self.bytes() + COLUMN_BYTES <= share
    }
}

impl Drop for OrgCache {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

// A panic of another thread leaves a shard consistent: each insertion or removal under its lock is
// complete in itself.

fn read(shard: &RwLock<CacheShard>) -> RwLockReadGuard<'_, CacheShard> {
    shard.read().ignore_poison()
}

fn write(shard: &RwLock<CacheShard>) -> RwLockWriteGuard<'_, CacheShard> {
    shard.write().ignore_poison()
}

#[cfg(test)]
mod tests;
