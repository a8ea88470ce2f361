//! Values of sealed blocks, kept decoded for the next query: dashboards ask for the same columns every few seconds, and
//! decoding them was half of what most answers cost.
//!
//! **Exact.** What is kept has the bits of what was decoded ([`column`]), was verified when it was, and is of a file that
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

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use rapidhash::RapidHashMap;

use crate::model::Timestamp;
use column::Column;

/// Rows of a group.
const ROWS: usize = 16;
/// Parts of an organisation's groups, each with a lock of its own.
const SHARDS: usize = 16;
/// Groups that were wanted once and are remembered, at first and at most: 2 KiB for an organisation that is asked for
/// anything, 128 KiB for one that is asked for much.
const WANTED_FIRST: usize = 256;
const WANTED_MAX: usize = 16_384;
/// Room is made for more than one column at once: this part of everything.
const ROOM: u64 = 32;
/// What a group takes beside its columns: itself, its place among the others and as much again that is free.
const GROUP_BYTES: u64 = (size_of::<[Option<Column>; ROWS]>() + 16 + 2 * size_of::<(Key, Group)>()) as u64;
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

type Shard = RapidHashMap<Key, Group>;

/// A block of sixteen rows that follow each other in a family of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    segment: u64,
    /// Where the family begins in the segment.
    family: u64,
    group: u32,
    block: u32,
}

#[derive(Debug)]
struct Group {
    /// The query that brought it in, and the one that wanted it before.
    born: u32,
    since: Since,
    /// The query that used it last.
    used: AtomicU32,
    /// The last query that wanted rows which are not here << 32 | a bit for each row that it wants << 16 | one for each that
    /// others wanted before.
    wanted: AtomicU64,
    bytes: u64,
    columns: Box<[Option<Column>; ROWS]>,
}

/// Where a block is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Number of the segment within its organisation.
    pub(super) segment: u64,
    /// Where its family begins in the segment: no two begin at the same place.
    pub(super) family: u64,
    pub(super) row: usize,
    /// Its number among the blocks of the row.
    pub(super) block: usize,
}

/// What came of asking for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// What was wanted of it has been appended.
    Here,
    /// It is not here, and should be: [`Keeper::keep`] takes it.
    Wanted(Since),
    /// It is not here.
    Missing,
}

/// The query that wanted a block before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Since(u32);

/// One query's, or one thread's of it, way to what is kept.
#[derive(Debug)]
pub(super) struct Keeper {
    kept: Arc<Kept>,
    query: u32,
    hits: u64,
    misses: u64,
    /// Where blocks are decoded that are kept whole and wanted in part.
    scratch: Vec<f64>,
}

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
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut orgs = self.orgs.lock().unwrap_or_else(PoisonError::into_inner);
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
            let mut orgs = self.all.orgs.lock().unwrap_or_else(PoisonError::into_inner);
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
        let kept = Arc::clone(self);
        (self.all.bytes_max > 0).then(|| Keeper { kept, query, hits: 0, misses: 0, scratch: Vec::new() })
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
                    freed += group.bytes;
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
                    by_use.push((used, group.bytes));
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
                left = left.saturating_sub(group.bytes);
            }
            goes
        });
        self.oldest.store(if freed == 0 { oldest } else { 0 }, Ordering::Relaxed);
        self.all.evicted.fetch_add(groups, Ordering::Relaxed);
        freed
    }

    fn shard(&self, key: &Key) -> Option<&RwLock<Shard>> {
        // Neighbours are read by different threads.
        let mixed = u64::from(key.group) ^ u64::from(key.block) << 3 ^ key.family >> 8;
        self.shards.get()?.get(usize::try_from(mixed % SHARDS as u64).unwrap_or_default())
    }

    /// The query before this one that wanted the group, if it is remembered; from now on this one is.
    fn wanted_before(self: &Arc<Kept>, key: &Key, query: u32) -> Option<Since> {
        let hash = key.hash();
        let (high, of_query) = (hash & !u64::from(u32::MAX), u64::from(query));
        let wanted = self.wanted.read().unwrap_or_else(PoisonError::into_inner);
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
        let mut wanted = self.wanted.write().unwrap_or_else(PoisonError::into_inner);
        if wanted.len() < slots {
            *wanted = (0..slots).map(|_| AtomicU64::new(0)).collect();
            self.displaced.store(0, Ordering::Relaxed);
        }
    }

    /// Forgets what was wanted, if no query from `since` on wanted anything.
    fn forget_wanted(&self, since: u32) {
        if self.wanted_last.load(Ordering::Relaxed) < since {
            *self.wanted.write().unwrap_or_else(PoisonError::into_inner) = Box::default();
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

impl Key {
    fn of(place: &Place) -> (Key, usize) {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (group, slot) = (number(place.row / ROWS), place.row % ROWS);
        let Place { segment, family, block, .. } = *place;
        (Key { segment, family, group, block: number(block) }, slot)
    }

    /// Spread over all bits; whoever finds two keys of one hash has a block less that is kept.
    fn hash(&self) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(ODD).rotate_left(29);
        let hash = mix(mix(ODD, self.segment), self.family);
        let hash = mix(hash, u64::from(self.group) << 32 | u64::from(self.block));
        (hash ^ hash >> 31).wrapping_mul(ODD)
    }
}

impl Keeper {
    /// Appends the wanted ones of a block of `count` values, if it is here.
    pub(super) fn find(
        &mut self,
        place: &Place,
        count: usize,
        wanted: Range<usize>,
        out: &mut Vec<f64>,
    ) -> Found {
        let (key, slot) = Key::of(place);
        // Of little of a block only that is decoded, for less than keeping it would cost.
        let is_much = wanted.len() * 4 >= count;
        let found = self.find_group(&key, (slot, count, wanted), is_much, out);
        let found = found.unwrap_or_else(|| {
            let since = if is_much { self.kept.wanted_before(&key, self.query) } else { None };
            since.map_or(Found::Missing, Found::Wanted)
        });
        match found {
            Found::Here => self.hits += 1,
            Found::Wanted(_) | Found::Missing => self.misses += 1,
        }
        match found {
            Found::Wanted(since) if !self.kept.has_prospect(since) => Found::Missing,
            found => found,
        }
    }

    /// None: there is no such group.
    fn find_group(
        &self,
        key: &Key,
        (slot, count, wanted): (usize, usize, Range<usize>),
        is_much: bool,
        out: &mut Vec<f64>,
    ) -> Option<Found> {
        let shard = read(self.kept.shard(key)?);
        let group = shard.get(key)?;
        if group.used.load(Ordering::Relaxed) != self.query {
            group.used.store(self.query, Ordering::Relaxed);
        }
        if let Some(column) = group.columns.get(slot)? {
            let is_here = column.len() == count && column.take(wanted, out);
            return Some(if is_here { Found::Here } else { Found::Missing });
        }
        if !is_much {
            return Some(Found::Missing);
        }
        if group.born == self.query {
            // The query before wanted the group; nobody knows which of its rows.
            return Some(Found::Wanted(group.since));
        }
        Some(group.row_wanted_before(slot, self.query).map_or(Found::Missing, Found::Wanted))
    }

    /// Where the values of a block may be decoded that are not wanted whole; to be given back to [`Keeper::keep`].
    pub(super) fn scratch(&mut self) -> Vec<f64> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch
    }

    /// The scratch comes back.
    pub(super) fn give_back(&mut self, scratch: Vec<f64>) {
        self.scratch = scratch;
    }

    /// Keeps all values of a block, if there is room. `retired`: its segment is not listed any more.
    pub(super) fn keep(&self, place: &Place, values: &[f64], since: Since, retired: &AtomicBool) {
        let (key, slot) = Key::of(place);
        let column = Column::of(values);
        let (of_column, of_group) = (column.bytes() as u64, GROUP_BYTES);
        self.kept.begin();
        // Before the lock is taken: who makes room takes all of them.
        if !self.kept.all.reserve(&self.kept, of_column + of_group, since) {
            return;
        }
        let Some(shard) = self.kept.shard(&key) else { return self.kept.give_back(of_column + of_group) };
        let mut shard = write(shard);
        // Whoever retires it looks at this shard afterwards.
        if self.kept.closed.load(Ordering::Acquire) || retired.load(Ordering::Acquire) {
            drop(shard);
            return self.kept.give_back(of_column + of_group);
        }
        let mut unused = of_group;
        let group = shard.entry(key).or_insert_with(|| {
            unused = 0;
            Group::new(self.query, since)
        });
        match group.columns.get_mut(slot) {
            Some(place @ None) => {
                *place = Some(column);
                group.bytes += of_column;
            }
            // Another thread came first.
            _ => unused += of_column,
        }
        drop(shard);
        self.kept.give_back(unused);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.kept.all.hits.fetch_add(self.hits, Ordering::Relaxed);
        self.kept.all.misses.fetch_add(self.misses, Ordering::Relaxed);
    }
}

impl Group {
    fn new(query: u32, since: Since) -> Group {
        Group {
            born: query,
            since,
            used: AtomicU32::new(query),
            wanted: AtomicU64::new(0),
            bytes: GROUP_BYTES,
            columns: Box::default(),
        }
    }

    /// Whether queries before this one wanted a row that is not here, and when the group was last wanted before; from now on
    /// this one has.
    fn row_wanted_before(&self, slot: usize, query: u32) -> Option<Since> {
        let bit = 1u64 << slot;
        let next = |wanted: u64| {
            let is_same = wanted >> 32 == u64::from(query);
            let (by_it, before) = (wanted >> 16 & 0xffff, wanted & 0xffff);
            let (by_it, before) = if is_same { (by_it, before) } else { (0, before | by_it) };
            Some(u64::from(query) << 32 | (by_it | bit) << 16 | before)
        };
        let was = self.wanted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        let is_same = was >> 32 == u64::from(query);
        let before = if is_same { was & 0xffff } else { was & 0xffff | was >> 16 & 0xffff };
        (before & bit != 0).then(|| {
            // Of several that wanted it the last one is known, unless that is this one.
            let by = u32::try_from(was >> 32).unwrap_or_default();
            if is_same { self.since } else { Since(by) }
        })
    }
}

// A panic elsewhere leaves a shard whole: what is done under its lock is one insertion or removal after the other.

fn read(shard: &RwLock<Shard>) -> RwLockReadGuard<'_, Shard> {
    shard.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(shard: &RwLock<Shard>) -> RwLockWriteGuard<'_, Shard> {
    shard.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
