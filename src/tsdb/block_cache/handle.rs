//! Access of one query to the cached blocks, and the groups in which they are stored.

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::column::DecodedColumn;
use super::{OrgCache, SHARDS, read, write};

/// Rows of a group.
const ROWS: usize = 16;
/// Memory of a group without its columns, in bytes: the group, its map entry, and as much again for
/// free map slots.
const GROUP_BYTES: u64 = (size_of::<RowGroup>() + 32 + 2 * size_of::<(GroupKey, Arc<RowGroup>)>()) as u64;
/// Groups that a handle keeps, by block number modulo this.
const HELD: usize = 4;
/// Ranges of one call of [`CacheHandle::get_many`] at most.
pub(in crate::tsdb) const RANGES_MAX: usize = 64;

/// A range of at most this many values is copied by [`CacheHandle::get_many`]. Copying a longer one
/// takes longer than its lookup, so it is only touched.
const FEW: usize = 32;

/// One block of sixteen neighbouring rows in a family of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupKey {
    pub(super) segment: u64,
    /// Offset of the family in the segment.
    pub(super) family: u64,
    pub(super) group: u32,
    pub(super) block: u32,
}

/// The cached columns of one block of sixteen rows, with the data for admission and eviction.
#[derive(Debug)]
pub(super) struct RowGroup {
    /// The query that created the group, and the one that requested it before.
    created_by: u32,
    prior: PriorQuery,
    /// The last query that used the group.
    pub(super) used: AtomicU32,
    /// The last query that requested absent rows << 32 | a bit for each row that it requested << 16
    /// | a bit for each row that earlier queries requested.
    wanted: AtomicU64,
    bytes: AtomicU64,
    columns: [OnceLock<DecodedColumn>; ROWS],
}

/// The address of a block.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct BlockAddress {
    /// Number of the segment within its organisation.
    pub(in crate::tsdb) segment: u64,
    /// Offset of the family in the segment, which is unique within it.
    pub(in crate::tsdb) family: u64,
    pub(in crate::tsdb) row: usize,
    /// Number of the block within its row.
    pub(in crate::tsdb) block: usize,
}

/// A range of the values of a block.
#[derive(Clone, Debug)]
pub(in crate::tsdb) struct BlockRange {
    pub(in crate::tsdb) address: BlockAddress,
    /// Number of values of the block, and the requested index range.
    pub(in crate::tsdb) count: usize,
    pub(in crate::tsdb) wanted: Range<usize>,
}

/// A range of the values of a block, by the slot of its row in the group.
struct SlotRange {
    slot: usize,
    count: usize,
    wanted: Range<usize>,
}

/// Result of the lookup of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum RangeLookup {
    /// The values were appended from this index of the output on. The flag says whether the whole
    /// block is known to be non-decreasing and without NaN.
    Hit(usize, bool),
    /// The block is cached, but the range is long: [`CacheHandle::get`] will copy it.
    Cached,
    /// The block is not cached; [`CacheHandle::get`] decides whether it should be.
    Miss,
    /// The block is not cached, and the range is too short to justify caching it.
    TooLittle,
}

/// Result of the lookup of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum BlockLookup {
    /// The requested values were appended. The flag says whether the whole block is known to be
    /// non-decreasing and without NaN.
    Hit(bool),
    /// The block is not cached and should be inserted with [`CacheHandle::insert`].
    Admit(PriorQuery),
    /// The block is not cached.
    Miss,
}

/// An earlier query that requested the same block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct PriorQuery(pub(super) u32);

/// Access of one query, or of one of its threads, to the cache of an organisation.
#[derive(Debug)]
pub(in crate::tsdb) struct CacheHandle {
    org: Arc<OrgCache>,
    query: u32,
    hits: u64,
    misses: u64,
    /// The groups found last, by block number modulo [`HELD`], since the next row is usually in the
    /// same group. A group that was evicted meanwhile lives until the handle is dropped.
    held: [Option<(GroupKey, Arc<RowGroup>)>; HELD],
    /// Buffer for blocks that are decoded whole and requested in part.
    scratch: Vec<f64>,
}

impl GroupKey {
    /// Returns the key of the group of a block, and the slot of its row in the group.
    fn of(address: &BlockAddress) -> (GroupKey, usize) {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (group, slot) = (number(address.row / ROWS), address.row % ROWS);
        let BlockAddress { segment, family, block, .. } = *address;
        (GroupKey { segment, family, group, block: number(block) }, slot)
    }

    /// Returns the shard of the group. Neighbouring groups are in different shards, since different
    /// threads read them.
    pub(super) fn shard(&self) -> usize {
        let mixed = u64::from(self.group) ^ u64::from(self.block) << 3 ^ self.family >> 8;
        usize::try_from(mixed % SHARDS as u64).unwrap_or_default()
    }

    /// Returns a hash that is spread over all bits. Two keys with equal hashes share a slot of
    /// requested groups, so at worst one of them is cached later.
    pub(super) fn hash(&self) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(ODD).rotate_left(29);
        let hash = mix(mix(ODD, self.segment), self.family);
        let hash = mix(hash, u64::from(self.group) << 32 | u64::from(self.block));
        (hash ^ hash >> 31).wrapping_mul(ODD)
    }
}

/// Returns whether a range is long enough to decode and cache the whole block. A shorter one is
/// decoded alone, which costs less than an insertion.
fn is_admissible(wanted: &Range<usize>, count: usize) -> bool {
    wanted.len() * 4 >= count
}

impl CacheHandle {
    pub(super) fn new(org: Arc<OrgCache>, query: u32) -> CacheHandle {
        CacheHandle { org, query, hits: 0, misses: 0, held: Default::default(), scratch: Vec::new() }
    }

    /// Appends the requested values of a block of `count` values if the block is cached.
    pub(in crate::tsdb) fn get(
        &mut self,
        address: &BlockAddress,
        count: usize,
        wanted: Range<usize>,
        out: &mut Vec<f64>,
    ) -> BlockLookup {
        let (key, slot) = GroupKey::of(address);
        let is_admissible = is_admissible(&wanted, count);
        let found = self.find_in_group(&key, SlotRange { slot, count, wanted }, is_admissible, out);
        let found = found.unwrap_or_else(|| {
            let prior = if is_admissible { self.org.prior_query(&key, self.query) } else { None };
            prior.map_or(BlockLookup::Miss, BlockLookup::Admit)
        });
        match found {
            BlockLookup::Hit(_) => self.hits += 1,
            BlockLookup::Admit(_) | BlockLookup::Miss => self.misses += 1,
        }
        match found {
            BlockLookup::Admit(prior) if !self.org.may_admit(prior) => BlockLookup::Miss,
            found => found,
        }
    }

    /// Looks up at most [`RANGES_MAX`] ranges. Appends the values of short cached ranges to `out`,
    /// and one result for each range to `found`.
    ///
    /// A lookup of single ranges waits for memory three times each: for the group, the column and
    /// the values. Here the accesses of different ranges do not depend on each other, so the
    /// processor overlaps them.
    pub(in crate::tsdb) fn get_many(
        &mut self,
        ranges: &[BlockRange],
        out: &mut Vec<f64>,
        found: &mut Vec<RangeLookup>,
    ) {
        let Some(shards) = self.org.shards.get() else {
            found.extend(ranges.iter().map(|_| RangeLookup::Miss));
            return;
        };
        let shards = shards.each_ref().map(read);
        let mut columns = [None; RANGES_MAX];
        let mut last: Option<(GroupKey, Option<&RowGroup>)> = None;
        for (column, range) in columns.iter_mut().zip(ranges) {
            let (key, slot) = GroupKey::of(&range.address);
            let group = match last {
                Some((have, group)) if have == key => group,
                _ => {
                    let group =
                        shards.get(key.shard()).and_then(|shard| shard.get(&key)).map(|group| &**group);
                    last = Some((key, group));
                    group
                }
            };
            *column = group.and_then(|group| {
                group.mark_used(self.query);
                group.columns.get(slot)?.get()
            });
        }
        for (column, BlockRange { count, wanted, .. }) in columns.iter().zip(ranges) {
            let start = out.len();
            found.push(match column.filter(|column| column.len() == *count) {
                Some(column) if wanted.len() > FEW => {
                    black_box(column.touch(wanted.clone()));
                    RangeLookup::Cached
                }
                Some(column) if column.take(wanted.clone(), out) => {
                    self.hits += 1;
                    RangeLookup::Hit(start, column.non_decreasing())
                }
                _ if is_admissible(wanted, *count) => RangeLookup::Miss,
                _ => {
                    self.misses += 1;
                    RangeLookup::TooLittle
                }
            });
        }
    }

    /// Looks up a block in its group; `None` if there is no such group.
    fn find_in_group(
        &mut self,
        key: &GroupKey,
        range: SlotRange,
        is_admissible: bool,
        out: &mut Vec<f64>,
    ) -> Option<BlockLookup> {
        let SlotRange { slot, count, wanted } = range;
        let held = self.held.get_mut(key.block as usize % HELD)?;
        if held.as_ref().is_none_or(|(have, _)| have != key) {
            let group = Arc::clone(read(self.org.shard(key)?).get(key)?);
            group.mark_used(self.query);
            *held = Some((*key, group));
        }
        let (_, group) = held.as_ref()?;
        if let Some(column) = group.columns.get(slot)?.get() {
            let is_here = column.len() == count && column.take(wanted, out);
            return Some(if is_here { BlockLookup::Hit(column.non_decreasing()) } else { BlockLookup::Miss });
        }
        if !is_admissible {
            return Some(BlockLookup::Miss);
        }
        if group.created_by == self.query {
            // The earlier query requested the group; which of its rows is unknown.
            return Some(BlockLookup::Admit(group.prior));
        }
        Some(group.row_prior_query(slot, self.query).map_or(BlockLookup::Miss, BlockLookup::Admit))
    }

    /// Takes the buffer for a block that is decoded whole and requested in part. The caller hands
    /// it back to [`CacheHandle::return_scratch`].
    pub(in crate::tsdb) fn scratch(&mut self) -> Vec<f64> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch
    }

    /// Stores the buffer for the next block.
    pub(in crate::tsdb) fn return_scratch(&mut self, scratch: Vec<f64>) {
        self.scratch = scratch;
    }

    /// Inserts all values of a block if there is room. `retired` is set once the segment is no
    /// longer listed; the block is not inserted then.
    pub(in crate::tsdb) fn insert(
        &self,
        address: &BlockAddress,
        values: &[f64],
        prior: PriorQuery,
        retired: &AtomicBool,
    ) {
        let (key, slot) = GroupKey::of(address);
        let column = DecodedColumn::of(values);
        let (of_column, of_group) = (column.bytes() as u64, GROUP_BYTES);
        self.org.init_shards();
        // Reserved before the shard is locked: an eviction locks all shards.
        if !self.org.all.reserve(&self.org, of_column + of_group, prior) {
            return;
        }
        let Some(shard) = self.org.shard(&key) else { return self.org.release(of_column + of_group) };
        let mut shard = write(shard);
        // The thread that retires a segment removes its blocks from this shard afterwards.
        if self.org.closed.load(Ordering::Acquire) || retired.load(Ordering::Acquire) {
            drop(shard);
            return self.org.release(of_column + of_group);
        }
        let mut unused = of_group;
        let group = shard.entry(key).or_insert_with(|| {
            unused = 0;
            Arc::new(RowGroup::new(self.query, prior))
        });
        if group.columns.get(slot).is_some_and(|slot| slot.set(column).is_ok()) {
            group.bytes.fetch_add(of_column, Ordering::Relaxed);
        } else {
            // Another thread inserted the column first.
            unused += of_column;
        }
        drop(shard);
        self.org.release(unused);
    }
}

impl Drop for CacheHandle {
    fn drop(&mut self) {
        self.org.all.hits.fetch_add(self.hits, Ordering::Relaxed);
        self.org.all.misses.fetch_add(self.misses, Ordering::Relaxed);
    }
}

impl RowGroup {
    fn new(query: u32, prior: PriorQuery) -> RowGroup {
        RowGroup {
            created_by: query,
            prior,
            used: AtomicU32::new(query),
            wanted: AtomicU64::new(0),
            bytes: AtomicU64::new(GROUP_BYTES),
            columns: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    /// Returns the memory of the group in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Records that a query used the group. If several do so at once, any of them may win: their
    /// numbers are close.
    fn mark_used(&self, query: u32) {
        if self.used.load(Ordering::Relaxed) < query {
            self.used.store(query, Ordering::Relaxed);
        }
    }

    /// Records that a query requests an absent row. Returns the query that last requested it
    /// before, if one did.
    fn row_prior_query(&self, slot: usize, query: u32) -> Option<PriorQuery> {
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
            // If several queries requested the row, the last one is returned, unless that is the
            // current one.
            let by = u32::try_from(was >> 32).unwrap_or_default();
            if is_same { self.prior } else { PriorQuery(by) }
        })
    }
}
