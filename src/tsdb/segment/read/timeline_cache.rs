//! Reads the samples of series within a range. The times of a timeline are cached, since series
//! that are written together share it.

use std::ops::Range;
use std::sync::Arc;

use rapidhash::RapidHashMap;

use super::super::block::{TimeHeader, time_header, values_within};
use super::super::format::{DATA, TIMES};
use super::blocks::ValueBlocks;
use super::rows::RowLocation;
use super::{FamilyRow, FamilyRows, Segment, SegmentBlock, SegmentDamage, TimelineRow};
use crate::model::{RegularTimes, TimeRange, Times, TimesBuilder};
use crate::tsdb::block_cache::{BlockAddress, BlockLookup, BlockRange, CacheHandle};
use crate::tsdb::report::SampleColumns;

/// Cached times at most, 2 MiB: those of a hundred targets for a range of some hours. The cache is
/// cleared when it reaches the bound.
const TIMES_MAX: usize = 1 << 18;
/// Slots that find a recent timeline without hashing.
const RECENT: usize = 1_024;
/// Bytes of a cache line of the processor; and bytes at the start of a row's blocks that usually
/// hold its newest values.
const LINE_BYTES: usize = 64;
const TOUCHED_BYTES: usize = 256;
/// Cached timelines at most, and the capacity that is allocated once a second timeline is cached.
const TIMELINES_MAX: usize = 4_096;
const TIMELINES_USUAL: usize = 64;

/// The timelines that one reader has met: their times within its range. Each time block was
/// verified when it was decoded.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct TimelineCache {
    /// Only the newest sample of each timeline within the range is requested.
    newest: bool,
    /// The requested range, both ends inclusive. The cache is cleared when it changes.
    range: Option<TimeRange>,
    timelines: Vec<CachedTimeline>,
    /// The blocks of all timelines that overlap with the range.
    wanted: Vec<BlockSlice>,
    /// Index in `timelines` by segment number and timeline number.
    index_by_key: RapidHashMap<(u64, usize), usize>,
    /// Index in `timelines` by some bits of segment number and timeline number, for lookups without
    /// hashing.
    recent: Vec<u32>,
    /// Number of times in all timelines.
    held: usize,
}

/// The part of a timeline that is within the range.
#[derive(Debug)]
struct CachedTimeline {
    key: (u64, usize),
    /// The range of `wanted` that belongs to this timeline.
    wanted: Range<usize>,
    /// The times of the requested samples.
    times: Arc<Times>,
    /// Damage that ends the readable part of the timeline.
    damage: Option<SegmentDamage>,
}

/// A block that overlaps with the range.
#[derive(Clone, Copy, Debug)]
struct BlockSlice {
    /// Index among the blocks of the timeline.
    block: usize,
    /// Number of samples of the block.
    count: usize,
    /// The requested samples, `to` exclusive.
    from: usize,
    to: usize,
}

impl TimelineCache {
    /// Creates a cache for a reader that requests only the newest sample of each timeline within
    /// the range.
    pub(in crate::tsdb) fn newest_only() -> TimelineCache {
        TimelineCache { newest: true, ..TimelineCache::default() }
    }

    /// Clears the cache for another range.
    fn clear_for(&mut self, range: TimeRange) {
        *self = TimelineCache { newest: self.newest, range: Some(range), ..TimelineCache::default() };
    }

    /// Returns the part of a timeline within the range, and its blocks, from the cache or from the
    /// segment.
    fn timeline(
        &mut self,
        segment: &Segment,
        number: usize,
        range: TimeRange,
    ) -> Option<(&CachedTimeline, &[BlockSlice])> {
        if self.range != Some(range) {
            self.clear_for(range);
        }
        let key = (segment.meta().seq, number);
        let slot = (usize::try_from(key.0).unwrap_or_default() ^ number) % RECENT;
        let recent = self.recent.get(slot).map_or(usize::MAX, |index| *index as usize);
        if self.timelines.get(recent).is_some_and(|timeline| timeline.key == key) {
            return self.get(recent);
        }
        let index = match self.index_by_key.get(&key) {
            Some(index) => {
                if self.recent.is_empty() {
                    // Allocated at the second lookup, so that a reader of one series does not pay
                    // for it.
                    self.recent = vec![u32::MAX; RECENT];
                }
                *index
            }
            None => {
                let list = segment.timeline_list(number)?;
                if self.timelines.len() == 1 {
                    self.timelines.reserve(TIMELINES_USUAL);
                    self.wanted.reserve(TIMELINES_USUAL);
                    self.index_by_key.reserve(TIMELINES_USUAL);
                }
                let mut timeline = self.load(segment, number, list, range);
                if self.held + timeline.times.len() > TIMES_MAX || self.timelines.len() >= TIMELINES_MAX {
                    let own = self.wanted.split_off(timeline.wanted.start);
                    self.clear_for(range);
                    (timeline.wanted, self.wanted) = (0..own.len(), own);
                }
                self.held += timeline.times.len();
                self.timelines.push(timeline);
                self.index_by_key.insert(key, self.timelines.len() - 1);
                self.timelines.len() - 1
            }
        };
        if let Some(recent) = self.recent.get_mut(slot) {
            *recent = u32::try_from(index).unwrap_or(u32::MAX);
        }
        self.get(index)
    }

    fn get(&self, index: usize) -> Option<(&CachedTimeline, &[BlockSlice])> {
        let timeline = self.timelines.get(index)?;
        Some((timeline, self.wanted.get(timeline.wanted.clone())?))
    }

    /// Reads the part of a timeline within the range from the segment.
    fn load(
        &mut self,
        segment: &Segment,
        number: usize,
        list: Range<usize>,
        range: TimeRange,
    ) -> CachedTimeline {
        let (newest, from) = (self.newest, self.wanted.len());
        let wanted = &mut self.wanted;
        let mut found = TimelineBuilder { newest, wanted, from, times: TimesBuilder::default() };
        let mut damage = None;
        for (block, index) in list.enumerate() {
            match found.add(segment, block, index, range) {
                Ok(true) => {}
                Ok(false) => break,
                Err(why) => {
                    damage = Some(why);
                    break;
                }
            }
        }
        if newest {
            found.keep_newest();
        }
        let times = Arc::new(found.times.build());
        CachedTimeline { key: (segment.meta().seq, number), wanted: from..self.wanted.len(), times, damage }
    }
}

/// The part of a timeline within a range, built block by block.
struct TimelineBuilder<'k> {
    /// Only the newest sample is requested: earlier times may be missing.
    newest: bool,
    /// All blocks found so far; those of this timeline begin at `from`.
    wanted: &'k mut Vec<BlockSlice>,
    from: usize,
    times: TimesBuilder,
}

impl TimelineBuilder<'_> {
    /// Adds the requested part of a block. Returns whether the next block may overlap with the
    /// range as well.
    fn add(
        &mut self,
        segment: &Segment,
        block: usize,
        list_index: usize,
        range: TimeRange,
    ) -> Result<bool, SegmentDamage> {
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        let (times, times_offset) = segment.time_block(list_index)?;
        let header = time_header(times).map_err(|damage| segment.at_offset(TIMES, times_offset, damage))?;
        let TimeHeader { count, first, last, step, .. } = header;
        if last < start {
            return Ok(true);
        }
        if first > end {
            return Ok(false);
        }
        if let Some(step) = step {
            let Range { start: from, end: to } = self.add_regular(&header, step, range);
            self.wanted.push(BlockSlice { block, count, from, to });
            return Ok(true);
        }
        let list = self.times.list_mut();
        let before = list.len();
        // The header has verified that the count is at most 1,024.
        list.reserve(count);
        let block_times =
            SegmentBlock { count, first, last, times, times_offset, values: &[], values_offset: 0 };
        segment.times(&block_times, list)?;
        let decoded = list.get(before..).unwrap_or_default();
        let from = decoded.partition_point(|time| *time < start);
        // A range may end before it begins.
        let to = decoded.partition_point(|time| *time <= end).max(from);
        list.truncate(before + to);
        list.drain(before..before + from);
        self.wanted.push(BlockSlice { block, count, from, to });
        Ok(true)
    }

    /// Removes all but the newest requested sample.
    fn keep_newest(&mut self) {
        // The last overlapping block contributes no sample if the range ends between two samples.
        let own = self.wanted.get(self.from..).unwrap_or_default();
        let last = own.iter().rfind(|wanted| wanted.from < wanted.to).copied();
        self.wanted.truncate(self.from);
        self.wanted.extend(last.map(|last| BlockSlice { from: last.to - 1, ..last }));
        self.times.keep_last();
    }

    /// Adds the regular times that are within an overlapping range, or only the newest of them.
    /// Computes and returns their indexes without decoding the block.
    fn add_regular(&mut self, header: &TimeHeader, step: i64, range: TimeRange) -> Range<usize> {
        let TimeHeader { count, first, last, .. } = *header;
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        let steps =
            |distance: u64| usize::try_from(distance / step.unsigned_abs()).unwrap_or(count).min(count);
        // The first time at or after the start.
        let from = if start <= first { 0 } else { steps(start.abs_diff(first) - 1) + 1 };
        let to = if end >= last { count } else { steps(end.abs_diff(first)) + 1 };
        // A range may end before it begins.
        let to = to.max(from);
        let added = if self.newest { from.max(to.saturating_sub(1)) } else { from };
        let at = first.wrapping_add(step.wrapping_mul(i64::try_from(added).unwrap_or_default()));
        self.times.push_regular(RegularTimes { first: at, interval_ms: step, len: to.saturating_sub(added) });
        from..to
    }
}

/// Returns whether the value at this index is not less than the previous one.
pub(in crate::tsdb) fn non_decreasing_at(values: &[f64], index: usize) -> bool {
    let before = index.checked_sub(1).and_then(|before| values.get(before));
    before.zip(values.get(index)).is_none_or(|(before, value)| before <= value)
}

/// Reads the values of a row block by block, from the cache or from the segment.
struct ValueReader<'a, 'k> {
    segment: &'a Segment,
    rows: &'k FamilyRows,
    row: usize,
    /// The series id and the reader of its blocks, located at the first block that is not cached.
    bytes: Option<(u32, ValueBlocks<'a>)>,
    blocks: Option<&'k mut CacheHandle>,
}

impl ValueReader<'_, '_> {
    /// Appends the requested values of a block. Block numbers ascend from call to call. Returns
    /// whether the values are known to be non-decreasing and without NaN. On damage anything may be
    /// appended.
    fn take(&mut self, wanted: &BlockSlice, out: &mut Vec<f64>) -> Result<bool, SegmentDamage> {
        let BlockSlice { block, count, from, to } = *wanted;
        let address =
            BlockAddress { segment: self.segment.meta().seq, family: self.rows.data, row: self.row, block };
        let Some(blocks) = self.blocks.as_mut() else {
            return self.decode(block, count, from..to, out).map(|()| false);
        };
        match blocks.get(&address, count, from..to, out) {
            BlockLookup::Hit(non_decreasing) => Ok(non_decreasing),
            BlockLookup::Miss => self.decode(block, count, from..to, out).map(|()| false),
            BlockLookup::Admit(prior) => {
                let mut whole = blocks.scratch();
                self.decode(block, count, 0..count, &mut whole)?;
                out.extend_from_slice(whole.get(from..to).unwrap_or_default());
                if let Some(blocks) = self.blocks.as_mut() {
                    blocks.insert(&address, &whole, prior, &self.segment.retired);
                    blocks.return_scratch(whole);
                }
                Ok(false)
            }
        }
    }

    /// Appends the requested values of block `number` from the segment.
    fn decode(
        &mut self,
        number: usize,
        count: usize,
        wanted: Range<usize>,
        out: &mut Vec<f64>,
    ) -> Result<(), SegmentDamage> {
        let (id, bytes) = match &mut self.bytes {
            Some(bytes) => bytes,
            none => {
                let RowLocation { region, start, id, list } = self.segment.stored(self.rows, self.row)?;
                self.segment.prefetch_data(start, region.len());
                none.insert((id, ValueBlocks::new(self.segment, region, start, list.len())?))
            }
        };
        let (offset, block) = bytes.nth(number)?;
        values_within(block, *id, count, wanted, out)
            .map_err(|damage| self.segment.at_offset(DATA, offset, damage))
    }
}

impl Segment {
    /// Appends the values of a row with this timeline within a range, both ends inclusive, to
    /// `out`. Returns their times, and whether the values are known to be non-decreasing and
    /// without NaN. On damage anything may be appended.
    pub(in crate::tsdb) fn read_values(
        &self,
        at: TimelineRow<'_>,
        range: TimeRange,
        timelines: &mut TimelineCache,
        blocks: Option<&mut CacheHandle>,
        out: &mut Vec<f64>,
    ) -> Result<(Arc<Times>, bool), SegmentDamage> {
        let TimelineRow { rows, row, timeline } = at;
        let (timeline, wanted) = timelines.timeline(self, timeline, range).ok_or_else(|| self.no_row())?;
        if let Some(damage) = &timeline.damage {
            return Err(damage.clone());
        }
        let mut values = ValueReader { segment: self, rows, row, bytes: None, blocks };
        let (start, mut non_decreasing) = (out.len(), true);
        for wanted in wanted {
            let before = out.len();
            non_decreasing &= values.take(wanted, out)?;
            non_decreasing &= before == start || non_decreasing_at(out, before);
        }
        self.intact().map(|()| (Arc::clone(&timeline.times), non_decreasing))
    }

    /// Returns the part of a row within a range, if it is in one block and the times of the
    /// timeline can be read.
    pub(in crate::tsdb) fn block_range(
        &self,
        at: TimelineRow<'_>,
        range: TimeRange,
        timelines: &mut TimelineCache,
    ) -> Option<BlockRange> {
        let TimelineRow { rows, row, timeline } = at;
        let (timeline, wanted) = timelines.timeline(self, timeline, range)?;
        let [BlockSlice { block, count, from, to }] = *wanted else { return None };
        if timeline.damage.is_some() {
            return None;
        }
        let address = BlockAddress { segment: self.meta().seq, family: rows.data, row, block };
        Some(BlockRange { address, count, wanted: from..to })
    }

    /// Loads the beginning of a row's blocks into the processor's cache. The result has no meaning.
    pub(in crate::tsdb) fn touch(&self, rows: &FamilyRows, row: usize) -> u8 {
        let region = self.stored(rows, row).map_or(&[][..], |RowLocation { region, start, .. }| {
            self.prefetch_data(start, region.len());
            region
        });
        region.iter().take(TOUCHED_BYTES).step_by(LINE_BYTES).fold(0, |sum, byte| sum ^ byte)
    }

    /// Returns the times of the values that [`Segment::read_values`] appends.
    pub(in crate::tsdb) fn times_within(
        &self,
        number: usize,
        range: TimeRange,
        timelines: &mut TimelineCache,
    ) -> Result<Arc<Times>, SegmentDamage> {
        let timeline = timelines.timeline(self, number, range);
        let times = timeline.map(|(timeline, _)| Arc::clone(&timeline.times)).ok_or_else(|| self.no_row())?;
        self.intact().map(|()| times)
    }

    /// Appends the samples of a row within a range, both ends inclusive, to `out`. Only blocks that
    /// overlap with the range are read. Each is verified, except for cached times. On damage, `out`
    /// has the samples of the blocks before it.
    pub(in crate::tsdb) fn read(
        &self,
        at: FamilyRow<'_>,
        range: TimeRange,
        timelines: &mut TimelineCache,
        blocks: Option<&mut CacheHandle>,
        out: &mut SampleColumns,
    ) -> Result<(), SegmentDamage> {
        let FamilyRow { rows, row } = at;
        let number = self.timeline_of(rows, row).ok_or_else(|| self.no_row())?;
        let (timeline, wanted) = timelines.timeline(self, number, range).ok_or_else(|| self.no_row())?;
        let before = out.values.len();
        let mut values = ValueReader { segment: self, rows, row, bytes: None, blocks };
        let mut wanted = wanted.iter();
        let read = wanted.try_for_each(|wanted| values.take(wanted, &mut out.values).map(drop));
        // A damaged block appends no values.
        let good = out.values.len() - before;
        out.times.extend_from_slice(timeline.times.list().get(..good).unwrap_or_default());
        read?;
        timeline.damage.clone().map_or(Ok(()), Err)?;
        self.intact()
    }
}
