//! Values of sealed blocks, kept decoded for the next query: dashboards ask for the same columns every few seconds, and
//! decoding them was half of what most answers cost.
//!
//! **Exact.** What is kept has the bits of what was decoded ([`mod@column`]), was verified when it was, and is of a file that
//! never changes. What retention, deletions and scopes hide is hidden from what is read, wherever it was read from.
//!
//! **On the second touch.** Rows of a family are kept sixteen at a time, a [`Group`] for each block of them. A group gets
//! in when a second query wants it, and once there is no room only over groups that were used less recently than itself was
//! wanted the first time: neither an export nor a dashboard larger than all of this moves anything out that is in use.
//!
//! **Bounded and fair.** So many bytes for all. Who has more than an equal part of them makes room for those who have less;
//! among an organisation's own, what was used longest ago goes first. Unused memory is given back after a while
//! ([`Decoded::age`]).
//!
//! **Gone with what it is of.** What is kept of a segment goes when the segment is listed no more ([`Kept::forget`]), and
//! nothing of it comes back, whoever is still reading it; that of an organisation goes with it ([`Kept::close`]).

mod column;
mod keeper;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use rapidhash::RapidHashMap;

use crate::model::Timestamp;
use crate::sync::IgnorePoison as _;
pub use column::rises;
pub(super) use keeper::{Found, FoundPiece, Keeper, PIECES_MAX, Piece, Place};
use keeper::{Group, Key, Since};

/// Parts of an organisation's groups, each with a lock of its own.
const SHARDS: usize = 16;
/// Groups that were wanted once and are remembered, at first and at most: 2 KiB for an organisation that is asked for
/// anything, 128 KiB for one that is asked for much.
const WANTED_FIRST: usize = 256;
const WANTED_MAX: usize = 16_384;
/// Room is made for more than one column at once: this part of everything.
const ROOM: u64 = 32;
/// About what a column takes, to tell whether there is room.
const COLUMN_BYTES: u64 = 4_096;
/// Unused so long it is given back.
const IDLE: Duration = Duration::from_secs(600);
/// Moments that [`Decoded::age`] remembers at most.
const MARKS_MAX: usize = 64;

/// What is kept for all organisations.
#[derive(Debug)]
pub(super) struct Decoded {
    bytes_max: u64,
    bytes: AtomicU64,
    /// Of all bytes what is one organisation's, when room was made last.
    part: AtomicU64,
    /// Counts queries: when something was used.
    queries: AtomicU32,
    orgs: Mutex<Vec<Weak<Kept>>>,
    /// Held by who makes room; nobody waits for it.
    making_room: Mutex<()>,
    /// The query that was newest at a moment.
    marks: Mutex<VecDeque<(Timestamp, u32)>>,
    hits: AtomicU64,
    misses: AtomicU64,
    evicted: AtomicU64,
}

/// What was kept and used of decoded values, for `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodedUse {
    /// Blocks that were there.
    pub hits: u64,
    /// Blocks that were decoded.
    pub misses: u64,
    /// Groups of blocks that made room for others.
    pub evicted: u64,
    /// Bytes held.
    pub bytes: u64,
    /// Bytes that may be held.
    pub bytes_max: u64,
}

/// What is kept for one organisation. Next to nothing until something is.
#[derive(Debug)]
pub(super) struct Kept {
    all: Arc<Decoded>,
    bytes: AtomicU64,
    shards: OnceLock<Box<[RwLock<Shard>; SHARDS]>>,
    /// By hash of the group: more of the hash << 32 | the query that wanted it last.
    wanted: RwLock<Box<[AtomicU64]>>,
    wanted_last: AtomicU32,
    /// Groups that were forgotten for others.
    displaced: AtomicUsize,
    /// The organisation is no more.
    closed: AtomicBool,
    /// No group was last used before that: it need not be looked for.
    oldest: AtomicU32,
}

type Shard = RapidHashMap<Key, Arc<Group>>;

impl Decoded {
    /// So many bytes at most; none keeps nothing.
    pub(super) fn new(bytes_max: u64) -> Arc<Decoded> {
        Arc::new(Decoded {
            bytes_max,
            bytes: AtomicU64::new(0),
            part: AtomicU64::new(0),
            queries: AtomicU32::new(1),
            orgs: Mutex::default(),
            making_room: Mutex::default(),
            marks: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        })
    }

    /// The number of a new query.
    pub(super) fn query(&self) -> u32 {
        self.queries.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn usage(&self) -> DecodedUse {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DecodedUse {
            hits: read(&self.hits),
            misses: read(&self.misses),
            evicted: read(&self.evicted),
            bytes: read(&self.bytes),
            bytes_max: self.bytes_max,
        }
    }

    /// Gives back what no query has used for ten minutes; to be called now and then. Answers how many bytes that were.
    pub(super) fn age(&self, now: Timestamp) -> u64 {
        let newest = self.queries.load(Ordering::Relaxed);
        let mut marks = self.marks.lock().ignore_poison();
        let idle_ms = i64::try_from(IDLE.as_millis()).unwrap_or(i64::MAX);
        let is_old = |at: &Timestamp| now.as_ms().saturating_sub(at.as_ms()) >= idle_ms;
        // What a clock that was set back was ahead of never comes.
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
        orgs.iter().for_each(|kept| kept.forget_wanted(unused_since));
        orgs.iter().map(|kept| kept.evict(u64::MAX, unused_since)).sum()
    }

    /// Who was asked for anything.
    fn orgs(&self) -> Vec<Arc<Kept>> {
        let mut orgs = self.orgs.lock().ignore_poison();
        orgs.retain(|org| org.strong_count() > 0);
        orgs.iter().filter_map(Weak::upgrade).collect()
    }

    /// Takes so many bytes of what is left for an organisation, that of others if they have more than their part, its own
    /// if it was used before `since`. Answers whether there were.
    fn reserve(&self, kept: &Arc<Kept>, bytes: u64, Since(since): Since) -> bool {
        if self.take(kept, bytes) {
            return true;
        }
        if bytes > self.bytes_max {
            return false;
        }
        let Ok(_alone) = self.making_room.try_lock() else { return false };
        let mut holders = self.orgs();
        holders.retain(|kept| kept.bytes() > 0);
        let besides = u64::from(kept.bytes() == 0);
        let part = self.bytes_max / (holders.len() as u64 + besides).max(1);
        self.part.store(part, Ordering::Relaxed);
        let room = bytes.max(self.bytes_max / ROOM);
        if kept.bytes() + bytes > part {
            kept.evict(room, since);
        } else if let Some(most) = holders.iter().max_by_key(|kept| kept.bytes()) {
            // The greatest has more than its part: together they have more than all, and this one has less.
            most.evict(room.min(most.bytes().saturating_sub(part)).max(bytes), u32::MAX);
        }
        self.take(kept, bytes)
    }

    /// Takes so many bytes, if they are there.
    fn take(&self, kept: &Kept, bytes: u64) -> bool {
        let fits = |held: u64| held.checked_add(bytes).filter(|held| *held <= self.bytes_max);
        let taken = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if taken {
            kept.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        taken
    }
}

impl Kept {
    pub(super) fn new(all: &Arc<Decoded>) -> Arc<Kept> {
        Arc::new(Kept {
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

    /// Makes what groups are kept in; from then on others know of it.
    fn begin(self: &Arc<Kept>) {
        self.shards.get_or_init(|| {
            let mut orgs = self.all.orgs.lock().ignore_poison();
            orgs.push(Arc::downgrade(self));
            Box::new(std::array::from_fn(|_| RwLock::default()))
        });
    }

    /// The number of a new query; see [`Kept::keeper`].
    pub(super) fn query(&self) -> u32 {
        self.all.query()
    }

    /// What a query of this number, or a thread of it, reads with. None where nothing is kept.
    pub(super) fn keeper(self: &Arc<Kept>, query: u32) -> Option<Keeper> {
        (self.all.bytes_max > 0).then(|| Keeper::new(Arc::clone(self), query))
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Lets go of what there is of these segments, which must say by themselves from now on that they are
    /// [retired](Keeper::keep).
    pub(super) fn forget(&self, segments: &[u64]) {
        if !segments.is_empty() {
            self.drop_where(|key, _| segments.contains(&key.segment));
        }
    }

    /// Lets go of everything, for good.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.drop_where(|_, _| true);
    }

    fn drop_where(&self, mut test: impl FnMut(&Key, &Group) -> bool) -> (u64, u64) {
        let (mut freed, mut groups) = (0, 0);
        for shard in self.shards.get().into_iter().flat_map(|shards| shards.iter()) {
            write(shard).retain(|key, group| {
                let goes = test(key, group);
                if goes {
                    freed += group.bytes();
                    groups += 1;
                }
                !goes
            });
        }
        self.give_back(freed);
        (freed, groups)
    }

    fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.all.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Lets go of groups of so many bytes together, of those that no query from `since` on has used; longest ago first.
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
        // All that were used by that query or before it. Of those that it used itself as many as are needed.
        let until = enough.or(by_use.last()).map_or(0, |(used, _)| *used);
        let before = by_use.iter().filter(|(used, _)| *used < until).map(|(_, bytes)| bytes).sum();
        let mut left = bytes.saturating_sub(before);
        let (freed, groups) = self.drop_where(|_, group| {
            let used = group.used.load(Ordering::Relaxed);
            let goes = used < since && (used < until || used == until && left > 0);
            if goes && used == until {
                left = left.saturating_sub(group.bytes());
            }
            goes
        });
        self.oldest.store(if freed == 0 { oldest } else { 0 }, Ordering::Relaxed);
        self.all.evicted.fetch_add(groups, Ordering::Relaxed);
        freed
    }

    fn shard(&self, key: &Key) -> Option<&RwLock<Shard>> {
        self.shards.get()?.get(key.shard())
    }

    /// The query before this one that wanted the group, if it is remembered; from now on this one is.
    fn wanted_before(self: &Arc<Kept>, key: &Key, query: u32) -> Option<Since> {
        let hash = key.hash();
        let (high, of_query) = (hash & !u64::from(u32::MAX), u64::from(query));
        let wanted = self.wanted.read().ignore_poison();
        let place = usize::try_from(hash & u64::from(u32::MAX)).unwrap_or_default();
        let Some(slot) = place.checked_rem(wanted.len()).and_then(|place| wanted.get(place)) else {
            drop(wanted);
            self.begin();
            self.remember(WANTED_FIRST);
            return self.wanted_before(key, query);
        };
        let before = slot.load(Ordering::Relaxed);
        if before != high | of_query {
            slot.store(high | of_query, Ordering::Relaxed);
            self.wanted_last.fetch_max(query, Ordering::Relaxed);
        }
        if before & !u64::from(u32::MAX) == high {
            let by = u32::try_from(before & u64::from(u32::MAX)).unwrap_or_default();
            return (by != query).then_some(Since(by));
        }
        let slots = wanted.len();
        drop(wanted);
        // Of more groups than there are places for none would be remembered.
        let is_crowded = || self.displaced.fetch_add(1, Ordering::Relaxed) > slots;
        if before != 0 && slots < WANTED_MAX && is_crowded() {
            self.remember(slots * 4);
        }
        None
    }

    /// Remembers so many groups from now on, and nothing of before.
    fn remember(&self, slots: usize) {
        let mut wanted = self.wanted.write().ignore_poison();
        if wanted.len() < slots {
            *wanted = (0..slots).map(|_| AtomicU64::new(0)).collect();
            self.displaced.store(0, Ordering::Relaxed);
        }
    }

    /// Forgets what was wanted, if no query from `since` on wanted anything.
    fn forget_wanted(&self, since: u32) {
        if self.wanted_last.load(Ordering::Relaxed) < since {
            *self.wanted.write().ignore_poison() = Box::default();
        }
    }

    /// Whether there is, or may be made, room for what was wanted since then.
    fn has_prospect(&self, Since(since): Since) -> bool {
        let (held, part) = (self.all.bytes.load(Ordering::Relaxed), self.all.part.load(Ordering::Relaxed));
        // A column takes a few KiB; who has less than its part takes from others.
        held + COLUMN_BYTES <= self.all.bytes_max
            || self.oldest.load(Ordering::Relaxed) < since
            || self.bytes() + COLUMN_BYTES <= part
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

// A panic elsewhere leaves a shard whole: what is done under its lock is one insertion or removal after the other.

fn read(shard: &RwLock<Shard>) -> RwLockReadGuard<'_, Shard> {
    shard.read().ignore_poison()
}

fn write(shard: &RwLock<Shard>) -> RwLockWriteGuard<'_, Shard> {
    shard.write().ignore_poison()
}

#[cfg(test)]
mod tests;
