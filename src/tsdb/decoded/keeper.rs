//! How one query gets at what is kept, and the groups that it is kept in.

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::column::Column;
use super::{Kept, SHARDS, read, write};

/// Rows of a group.
const ROWS: usize = 16;
/// What a group takes beside its columns: itself, its place among the others and as much again that is free.
const GROUP_BYTES: u64 = (size_of::<Group>() + 32 + 2 * size_of::<(Key, Arc<Group>)>()) as u64;
/// Blocks of a row whose groups a reader holds.
const HELD: usize = 4;
/// Pieces that are looked for at once, at most.
pub(in crate::tsdb) const PIECES_MAX: usize = 64;

/// Values of a piece that are read at once with others'. Of more the values take longer than finding them.
const FEW: usize = 32;

/// A block of sixteen rows that follow each other in a family of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) segment: u64,
    /// Where the family begins in the segment.
    pub(super) family: u64,
    pub(super) group: u32,
    pub(super) block: u32,
}

#[derive(Debug)]
pub(super) struct Group {
    /// The query that brought it in, and the one that wanted it before.
    born: u32,
    since: Since,
    /// The query that used it last.
    pub(super) used: AtomicU32,
    /// The last query that wanted rows which are not here << 32 | a bit for each row that it wants << 16 | one for each that
    /// others wanted before.
    wanted: AtomicU64,
    bytes: AtomicU64,
    columns: [OnceLock<Column>; ROWS],
}

/// Where a block is.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct Place {
    /// Number of the segment within its organisation.
    pub(in crate::tsdb) segment: u64,
    /// Where its family begins in the segment: no two begin at the same place.
    pub(in crate::tsdb) family: u64,
    pub(in crate::tsdb) row: usize,
    /// Its number among the blocks of the row.
    pub(in crate::tsdb) block: usize,
}

/// Values of a block.
#[derive(Clone, Debug)]
pub(in crate::tsdb) struct Piece {
    pub(in crate::tsdb) place: Place,
    /// Values of the block, and which of them are wanted.
    pub(in crate::tsdb) count: usize,
    pub(in crate::tsdb) wanted: Range<usize>,
}

/// What came of asking for a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum FoundPiece {
    /// Its values have been appended from that place on; whether all of its block are numbers, and none is less than the
    /// one before.
    Here(usize, bool),
    /// It is here, and not few values; [`Keeper::find`] has them soon.
    Kept,
    /// It is not here; [`Keeper::find`] tells whether it should be.
    Missing,
    /// It is not here, and so little of its block that nothing will be.
    Little,
}

/// What came of asking for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum Found {
    /// What was wanted of it has been appended; whether all are numbers, and none is less than the one before.
    Here(bool),
    /// It is not here, and should be: [`Keeper::keep`] takes it.
    Wanted(Since),
    /// It is not here.
    Missing,
}

/// The query that wanted a block before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct Since(pub(super) u32);

/// One query's, or one thread's of it, way to what is kept.
#[derive(Debug)]
pub(in crate::tsdb) struct Keeper {
    kept: Arc<Kept>,
    query: u32,
    hits: u64,
    misses: u64,
    /// The groups that were found last, by number of the block: the next row is in the same, mostly. What others let go of
    /// stays until this ends.
    held: [Option<(Key, Arc<Group>)>; HELD],
    /// Where blocks are decoded that are kept whole and wanted in part.
    scratch: Vec<f64>,
}

impl Key {
    fn of(place: &Place) -> (Key, usize) {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (group, slot) = (number(place.row / ROWS), place.row % ROWS);
        let Place { segment, family, block, .. } = *place;
        (Key { segment, family, group, block: number(block) }, slot)
    }

    /// The part of the organisation's groups that it is in: neighbours are read by different threads.
    pub(super) fn shard(&self) -> usize {
        let mixed = u64::from(self.group) ^ u64::from(self.block) << 3 ^ self.family >> 8;
        usize::try_from(mixed % SHARDS as u64).unwrap_or_default()
    }

    /// Spread over all bits; whoever finds two keys of one hash has a block less that is kept.
    pub(super) fn hash(&self) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(ODD).rotate_left(29);
        let hash = mix(mix(ODD, self.segment), self.family);
        let hash = mix(hash, u64::from(self.group) << 32 | u64::from(self.block));
        (hash ^ hash >> 31).wrapping_mul(ODD)
    }
}

/// Whether these are so many values of a block that all may be kept: of little only that is decoded, for less than keeping
/// it would cost.
fn is_much(wanted: &Range<usize>, count: usize) -> bool {
    wanted.len() * 4 >= count
}

impl Keeper {
    pub(super) fn new(kept: Arc<Kept>, query: u32) -> Keeper {
        Keeper { kept, query, hits: 0, misses: 0, held: Default::default(), scratch: Vec::new() }
    }

    /// Appends the wanted ones of a block of `count` values, if it is here.
    pub(in crate::tsdb) fn find(
        &mut self,
        place: &Place,
        count: usize,
        wanted: Range<usize>,
        out: &mut Vec<f64>,
    ) -> Found {
        let (key, slot) = Key::of(place);
        let is_much = is_much(&wanted, count);
        let found = self.find_group(&key, (slot, count, wanted), is_much, out);
        let found = found.unwrap_or_else(|| {
            let since = if is_much { self.kept.wanted_before(&key, self.query) } else { None };
            since.map_or(Found::Missing, Found::Wanted)
        });
        match found {
            Found::Here(_) => self.hits += 1,
            Found::Wanted(_) | Found::Missing => self.misses += 1,
        }
        match found {
            Found::Wanted(since) if !self.kept.has_prospect(since) => Found::Missing,
            found => found,
        }
    }

    /// Appends to `out` what is here of these pieces, where that is few values, and to `found` what came of each. They are
    /// [`PIECES_MAX`] at most.
    ///
    /// One by one each series waits for memory three times: for its group, for its column, and for what is in it. Here
    /// nothing that is looked for waits for what was looked for before.
    pub(in crate::tsdb) fn find_few(
        &mut self,
        pieces: &[Piece],
        out: &mut Vec<f64>,
        found: &mut Vec<FoundPiece>,
    ) {
        let Some(shards) = self.kept.shards.get() else {
            found.extend(pieces.iter().map(|_| FoundPiece::Missing));
            return;
        };
        let shards = shards.each_ref().map(read);
        let mut columns = [None; PIECES_MAX];
        let mut last: Option<(Key, Option<&Group>)> = None;
        for (column, piece) in columns.iter_mut().zip(pieces) {
            let (key, slot) = Key::of(&piece.place);
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
                group.use_by(self.query);
                group.columns.get(slot)?.get()
            });
        }
        for (column, Piece { count, wanted, .. }) in columns.iter().zip(pieces) {
            let start = out.len();
            found.push(match column.filter(|column| column.len() == *count) {
                Some(column) if wanted.len() > FEW => {
                    black_box(column.touch(wanted.clone()));
                    FoundPiece::Kept
                }
                Some(column) if column.take(wanted.clone(), out) => {
                    self.hits += 1;
                    FoundPiece::Here(start, column.rises())
                }
                _ if is_much(wanted, *count) => FoundPiece::Missing,
                _ => {
                    self.misses += 1;
                    FoundPiece::Little
                }
            });
        }
    }

    /// None: there is no such group.
    fn find_group(
        &mut self,
        key: &Key,
        (slot, count, wanted): (usize, usize, Range<usize>),
        is_much: bool,
        out: &mut Vec<f64>,
    ) -> Option<Found> {
        let held = self.held.get_mut(key.block as usize % HELD)?;
        if held.as_ref().is_none_or(|(have, _)| have != key) {
            let group = Arc::clone(read(self.kept.shard(key)?).get(key)?);
            group.use_by(self.query);
            *held = Some((*key, group));
        }
        let (_, group) = held.as_ref()?;
        if let Some(column) = group.columns.get(slot)?.get() {
            let is_here = column.len() == count && column.take(wanted, out);
            return Some(if is_here { Found::Here(column.rises()) } else { Found::Missing });
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
    pub(in crate::tsdb) fn scratch(&mut self) -> Vec<f64> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch
    }

    /// The scratch comes back.
    pub(in crate::tsdb) fn give_back(&mut self, scratch: Vec<f64>) {
        self.scratch = scratch;
    }

    /// Keeps all values of a block, if there is room. `retired`: its segment is not listed any more.
    pub(in crate::tsdb) fn keep(&self, place: &Place, values: &[f64], since: Since, retired: &AtomicBool) {
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
            Arc::new(Group::new(self.query, since))
        });
        if group.columns.get(slot).is_some_and(|place| place.set(column).is_ok()) {
            group.bytes.fetch_add(of_column, Ordering::Relaxed);
        } else {
            // Another thread came first.
            unused += of_column;
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
            bytes: AtomicU64::new(GROUP_BYTES),
            columns: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Notes that a query used it. Of several at once any may be noted last: they are of about the same time.
    fn use_by(&self, query: u32) {
        if self.used.load(Ordering::Relaxed) < query {
            self.used.store(query, Ordering::Relaxed);
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
